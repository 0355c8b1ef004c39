# A Debian in the guest: the packages that the guest is made of, with Python and what udev asks
# disks by, and weft, both from folders of the machine. `debian COMMAND` runs there.

debian=/debian

debian() {
    chroot $debian "$@"
}

modprobe -a 9p 9pnet_virtio configfs
mount -t configfs none /sys/kernel/config
mkdir -p /packages /weft $debian
mount -t 9p -o ro,trans=virtio,cache=loose,msize=262144 packages /packages
mount -t tmpfs debian $debian
for folder in bin lib lib64 sbin usr; do
    mkdir $debian/$folder
    mount --bind /packages/$folder $debian/$folder
done
for folder in proc sys dev applets; do
    mkdir $debian/$folder
    mount --rbind /$folder $debian/$folder
done
mkdir -p $debian/tmp $debian/run $debian/etc $debian/srv $debian/root $debian/var/lib $debian/weft
ln -s /run $debian/var/run
echo "root:x:0:0:root:/root:/bin/sh" >$debian/etc/passwd
echo "127.0.0.1 localhost" >$debian/etc/hosts
echo 0123456789abcdef0123456789abcdef >$debian/etc/machine-id
mount -t 9p -o ro,trans=virtio,cache=loose,msize=262144 weft $debian/weft

weft() {
    debian /weft/weft "$@"
}

# serve FILE [COMMAND...]: weft on this configuration, run by the command, until `unserve`.
serve() {
    served_by=$1
    shift
    : >/tmp/weft.log
    "$@" chroot $debian /weft/weft serve -c "$served_by" >>/tmp/weft.log 2>&1 &
    served=$!
    until_true "weft" 'grep -q "reactors on" /tmp/weft.log || ! kill -0 $served'
    kill -0 $served || fail "weft: $(cat /tmp/weft.log)"
}

unserve() {
    kill $served
    wait $served || fail "weft: $(tail -n 5 /tmp/weft.log)"
}

# same ONE OTHER: what was found there.
same() {
    diff "$1" "$2" >/tmp/said || fail "$2 is not $1: $(cat /tmp/said)"
}
