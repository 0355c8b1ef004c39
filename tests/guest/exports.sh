# Files that the kernel serves from an exports(5), and weft from the import of it: the same.
# Set by the caller besides ADDR, PORT.

mkdir -p $debian/var/lib/nfs/v4recovery
printf 'tcp 6 TCP\nudp 17 UDP\n' >$debian/etc/protocols
modprobe nfsd
mount -t nfsd nfsd $debian/proc/fs/nfsd
cat >$debian/etc/exports <<T
/srv/open 10.0.2.0/24(rw,sync,no_subtree_check,no_root_squash,insecure)
/srv/kept 10.0.2.15(ro,sync,no_subtree_check,insecure)
/srv/mapped 10.0.2.15(rw,sync,no_subtree_check,all_squash,anonuid=1000,anongid=1000,insecure) 192.0.2.0/24(ro)
T

seen() {
    looks "$1" /srv/open vers=4.2 /srv/kept vers=4.1 /srv/mapped vers=4.2
    cat "$1"
}

step the kernel serves
debian /usr/sbin/exportfs -ra >/tmp/said 2>&1 || fail "exportfs: $(cat /tmp/said)"
chroot $debian /usr/sbin/rpc.mountd --foreground --no-nfs-version 3 >/tmp/mountd 2>&1 &
mountd=$!
debian /usr/sbin/rpc.nfsd --grace-time 10 --lease-time 10 --no-nfs-version 3 --port "$PORT" 2 >/tmp/said 2>&1 ||
    fail "rpc.nfsd: $(cat /tmp/said)"
echo Y >$debian/proc/fs/nfsd/v4_end_grace
state='cat /tmp/mountd'
seen /tmp/kernel.looks
debian /usr/sbin/rpc.nfsd 0
kill $mountd
wait $mountd || true
debian /usr/sbin/exportfs -ua

step weft serves what it imports
weft import exports /etc/exports >$debian/srv/weft.toml 2>/tmp/report ||
    fail "import: $? $(cat /tmp/report)"
cat /tmp/report
# Where the source names no address, the import serves this machine alone.
sed -i "s/127.0.0.1:2049/0.0.0.0:$PORT/" $debian/srv/weft.toml
weft check /srv/weft.toml >/tmp/said 2>&1 || fail "check: $(cat /tmp/said $debian/srv/weft.toml)"
serve /srv/weft.toml
seen /tmp/weft.looks
unserve
same /tmp/kernel.looks /tmp/weft.looks
step end
