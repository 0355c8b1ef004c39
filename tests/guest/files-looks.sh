# What a client finds under exports. After LAB.

# looks FILE, then an export's path and mount options, once or more: names, rights and content,
# and what comes of writing as root and as another user.
looks() {
    to=$1
    shift
    mkdir -p /tmp/found
    : >"$to"
    while [ $# -gt 0 ]; do
        echo "export $1 $2" >>"$to"
        mount.nfs "$ADDR:$1" /tmp/found -o "port=$PORT,proto=tcp,actimeo=0,soft,$2" >/tmp/said 2>&1 ||
            fail "mount -o $2 $1: $(cat /tmp/said)"
        (
            cd /tmp/found
            find . | sort | while read -r name; do
                stat -c '%N %a %u:%g %F' "$name"
                [ ! -f "$name" ] || cat "$name" || true
            done
            for user in root user; do
                su $user -s /bin/dash -c "touch /tmp/found/new-$user" || true
                stat -c '%N %u:%g' new-$user || true
                rm -f new-$user
            done
        ) >>"$to" 2>&1
        umount /tmp/found
        shift 2
    done
}

# A file system of a disk, as servers want one.
modprobe null_blk nr_devices=0
block=/sys/kernel/config/nullb/nullb9
mkdir $block
echo 1 >$block/memory_backed
echo 64 >$block/size
echo 1 >$block/power
wait_for /dev/nullb9
mkfs.ext4 -q -F /dev/nullb9
mount -t ext4 /dev/nullb9 $debian/srv
mkdir -p $debian/var/lib/weft
for export in open kept mapped; do
    mkdir -p $debian/srv/$export/folder
    chmod 777 $debian/srv/$export
    echo "what $export has" >$debian/srv/$export/file
    echo "for root" >$debian/srv/$export/folder/secret
    chmod 600 $debian/srv/$export/folder/secret
    chown 1000:1000 $debian/srv/$export/folder
    ln -s file $debian/srv/$export/link
done
rmdir $debian/srv/lost+found
printf 'root:x:0:0::/:/bin/dash\nuser:x:1000:1000::/:/bin/dash\n' >/etc/passwd
# mount.nfs looks the name of a protocol up.
echo 'tcp 6 TCP' >/etc/protocols
modprobe -a nfsv3 nfsv4
