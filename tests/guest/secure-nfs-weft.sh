# Files over TLS with weft, which exports /tls to clients with TLS, /mtls to those with a
# certificate and /named to one by the name in it: behind SECURE. Set by the caller: ADDR, PORT.
# At each MARK the caller does what it says.

echo 'tcp 6 TCP' >/etc/protocols
modprobe -a nfsv3 nfsv4
certificates
tls_daemon

# options VERSION XPRTSEC: what a mount is made with.
options() {
    echo "vers=$1,port=$PORT,proto=tcp,xprtsec=$2"
    [ "$1" != 3 ] || echo ",nolock,mountport=$PORT,mountproto=tcp"
}

# attach VERSION PATH XPRTSEC [MORE]
attach() {
    with=$(options "$1" "$3" | tr -d '\n')${4:+,$4}
    mount.nfs "$ADDR:$2" /mnt -o "$with" >/tmp/said 2>&1 ||
        fail "mount -o $with $2: $(cat /tmp/said /tmp/tlshd.log)"
    grep -q " /mnt .*[ ,]xprtsec=$3," /proc/mounts || fail "mount: $(cat /proc/mounts)"
}

# shut_out_of VERSION PATH XPRTSEC
shut_out_of() {
    refused "not permitted\|denied\|no such file" \
        mount.nfs "$ADDR:$2" /mnt -o "$(options "$1" "$3" | tr -d '\n')"
}

# kept PATH XPRTSEC VERSION: what is written to a mount is there in the next.
kept() {
    attach "$3" "$1" "$2"
    random /mnt/file 4194304
    remember /mnt
    umount /mnt
    attach "$3" "$1" "$2"
    unchanged /mnt
    umount /mnt
}

for version in 4.2 4.1 4.0 3; do
    step NFS $version
    kept /tls tls $version
    kept /mtls mtls $version
    # MOUNT goes in the clear, where no client has a name.
    [ $version = 3 ] || kept /named mtls $version
    shut_out_of $version /tls none
    shut_out_of $version /mtls none
    shut_out_of $version /mtls tls
    shut_out_of $version /named tls
done

step a server that starts again
attach 4.2 /tls tls nconnect=4
for n in 1 2 3 4; do random /mnt/file$n $((n * 1048576)); done
remember /mnt
echo "MARK starts again"
random /mnt/file5 4194304
remember /mnt
sync
echo 3 >/proc/sys/vm/drop_caches
unchanged /mnt
umount /mnt

step a certificate that is renewed
attach 4.2 /mtls mtls
echo "MARK renewed"
unchanged_before=$(sha256sum /mnt/file)
umount /mnt
until_true "the renewed certificate" '[ -e /etc/tls/renewed ]'
kept /mtls mtls 4.2
[ -n "$unchanged_before" ] || fail "the mount is gone"

step a certificate whose days are over
kill $daemon
wait $daemon || true
tls_daemon expired.pem expired.key
refused "" mount.nfs "$ADDR:/mtls" /mnt -o "$(options 4.2 mtls | tr -d '\n'),retry=0"

step a server of another authority
kill $daemon
wait $daemon || true
tls_daemon cert.pem key.pem other.pem
refused "" mount.nfs "$ADDR:/tls" /mnt -o "$(options 4.2 tls | tr -d '\n'),retry=0"
step end
