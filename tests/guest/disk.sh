# A disk and a file system on it, whichever protocol it comes by.

# remember FOLDER: what its files hold.
remember() {
    (cd "$1" && sha256sum file*) >/tmp/sums
}

# unchanged FOLDER: its files hold what was remembered.
unchanged() {
    (cd "$1" && sha256sum -c /tmp/sums) >/tmp/said || fail "$(cat /tmp/said)"
}

# Whether the ext4 on disk $1 is whole.
check_ext4() {
    fsck.ext4 -fn "$1" >/tmp/said 2>&1 || fail "$(cat /tmp/said)"
}

# try_ext4 DISK: files that outlive a mount, and a trim that takes none of them.
try_ext4() {
    mkfs.ext4 -q -F "$1"
    mount -t ext4 -o discard "$1" /mnt
    for n in 1 2 3 4 5 6; do
        random /mnt/file$n $((n * n * 65536))
    done
    remember /mnt
    sync
    umount /mnt
    echo 3 >/proc/sys/vm/drop_caches
    mount -t ext4 "$1" /mnt
    unchanged /mnt
    rm /mnt/file3 /mnt/file6
    fstrim -v /mnt
    umount /mnt
    check_ext4 "$1"
}

# try_xfs DISK: the same with the other file system.
try_xfs() {
    modprobe xfs
    mkfs.xfs -q -f "$1" >/tmp/said 2>&1 || fail "$(cat /tmp/said)"
    mount -t xfs -o discard "$1" /mnt
    for n in 1 2 3 4; do
        random /mnt/file$n $((n * n * 65536))
    done
    remember /mnt
    umount /mnt
    echo 3 >/proc/sys/vm/drop_caches
    mount -t xfs "$1" /mnt
    unchanged /mnt
    rm /mnt/file2
    fstrim /mnt
    umount /mnt
    xfs_repair -n "$1" >/tmp/said 2>&1 || fail "$(cat /tmp/said)"
}

# load_killed FOLDER SIZE: a verified load during which the other side dies.
load_killed() {
    fio --minimal --output=/tmp/fio --directory="$1" --name=load --ioengine=libaio --direct=1 \
        --iodepth=16 --rw=randwrite --bssplit=4k/60:16k/30:64k/10 --size="$2" --rate=4M \
        --fsync=16 --verify=crc32c --verify_fatal=1 &
    load=$!
    sleep 2
    echo "MARK under load"
    wait $load || fail "fio: $(cat /tmp/fio)"
}

# load DISK SECONDS: a verified load in the first 4 MiB, written whole and read
# back, again and again. One block size and no backlog: fio 3.33 frees a block
# twice where verified blocks overlap while writes go on.
load() {
    fio --minimal --output=/tmp/fio --filename="$1" --direct=1 --verify_fatal=1 \
        --verify=crc32c --name=load --ioengine=libaio --iodepth=8 --rw=randwrite \
        --bs=16k --size=4M --time_based --runtime="$2" \
        >/tmp/fio.said 2>&1 || touch /tmp/load-failed
    touch /tmp/load-ended
}

# The load has seen no error.
loaded() {
    until_true "the load's end" "[ -e /tmp/load-ended ]"
    [ ! -e /tmp/load-failed ] || fail "load: $(cat /tmp/fio.said /tmp/fio)"
    rm /tmp/load-ended
}

# loads DISK: one verified load after another, in the background, until `loads_end`.
loads() {
    rm -f /tmp/stop /tmp/loads
    while [ ! -e /tmp/stop ]; do
        load "$1" 1
        echo load >>/tmp/loads
    done &
    loads_go_on
}

# A load that has begun since has come to its end, and none has seen an error.
loads_go_on() {
    seen=$(cat /tmp/loads 2>/dev/null | wc -l)
    until_true "loads that go on" '[ "$(cat /tmp/loads 2>/dev/null | wc -l)" -ge '$((seen + 2))' ]'
    [ ! -e /tmp/load-failed ] || fail "load: $(cat /tmp/fio.said /tmp/fio)"
}

loads_end() {
    touch /tmp/stop
    rm -f /tmp/load-ended
    wait
    [ ! -e /tmp/load-failed ] || fail "load: $(cat /tmp/fio.said /tmp/fio)"
    if dmesg | grep "I/O error\|critical medium error"; then
        fail "an I/O error reached the block layer"
    fi
}
