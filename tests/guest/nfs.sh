# An NFS client: mounts by mount.nfs, and the exerciser on the first virtio disk.
# Set by the caller besides ADDR, PORT: STEPS, how much is done; SEED.

# mount.nfs looks the name of a protocol up.
echo 'tcp 6 TCP' >/etc/protocols
modprobe -a nfsv3 nfsv4 virtio_blk
cat /dev/vda >/tmp/exerciser
chmod +x /tmp/exerciser

# attach VERSION PATH FOLDER [OPTIONS]: what programs see is the server's answer,
# not what this client remembers.
attach() {
    mkdir -p "$3"
    options="vers=$1,port=$PORT,proto=$TRANSPORT,actimeo=0${4:+,$4}"
    [ "$1" != 3 ] || options="$options,nolock,mountport=$PORT,mountproto=tcp"
    mount.nfs "$ADDR:$2" "$3" -o "$options" >/tmp/said 2>&1 ||
        fail "mount -o $options $2: $(cat /tmp/said)"
}

detach() {
    for folder in "$@"; do
        umount "$folder" || fail "umount $folder"
    done
}

# exercise KIND STEPS FOLDER [OTHER FOLDER]
exercise() {
    echo "exercise $* SEED $SEED"
    kind=$1 steps=$2
    shift 2
    /tmp/exerciser "$kind" "$SEED" "$steps" "$@" >/tmp/exercised 2>&1 ||
        fail "$kind: $(cat /tmp/exercised)"
    cat /tmp/exercised
}

# holds FILE: a program has it locked, until `kill $held`.
holds() {
    : >/tmp/holds
    /tmp/exerciser hold "$1" >>/tmp/holds 2>&1 &
    held=$!
    state='cat /tmp/holds' until_true "a lock of $1" 'grep -q held /tmp/holds || ! kill -0 $held'
    grep -q held /tmp/holds || fail "no lock of $1: $(cat /tmp/holds)"
}

# How often the clients of a mount have sent an operation.
sent() {
    awk -v folder="$1" -v op="$2:" '
        $1 == "device" { here = $5 == folder }
        here && $1 == op { print $2 }' /proc/self/mountstats
}
