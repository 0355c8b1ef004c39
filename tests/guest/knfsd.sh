# The kernel's client and server of files in this guest: a server whose only export, /srv, asks
# for security. Set by the caller: ADDR, PORT, SECURITY.

pipes=/run/rpc_pipefs
echo 'tcp 6 TCP' >/etc/protocols
echo "nfs $PORT/tcp" >/etc/services
modprobe -a nfsd nfsv4
mkdir -p /srv $pipes /etc/exports.d /var/lib/nfs/nfsdcld
mount -t tmpfs export /srv
mount -t nfsd nfsd /proc/fs/nfsd
mount -t rpc_pipefs pipes $pipes
touch /var/lib/nfs/etab /var/lib/nfs/rmtab

# The export is there from now on.
served() {
    echo "/srv *(rw,fsid=0,no_root_squash,insecure,$SECURITY)" >/etc/exports
    exportfs -a
    # It knows of no client: the server need not wait for any to come back.
    nfsdcld -p $pipes
    rpc.mountd -N 2 -N 3
    rpc.nfsd -N 3 -p "$PORT" 2
}

# attached OPTION: mounted with it, and what is written to the mount is in the export.
attached() {
    mount.nfs "$ADDR":/ /mnt -o vers=4.2,proto=tcp,port="$PORT","$1" >/tmp/said 2>&1 ||
        fail "mount -o $1: $(cat /tmp/said)"
    grep -q " /mnt .*[ ,]$1," /proc/mounts || fail "mount: $(cat /proc/mounts)"
    random /mnt/file 4194304
    remember /mnt
    umount /mnt
    unchanged /srv
}

shut_out_of_files() {
    refused "not permitted" mount.nfs "$ADDR":/ /mnt -o vers=4.2,proto=tcp,port="$PORT","$1"
}
