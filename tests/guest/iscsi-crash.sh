# An initiator whose target is killed under load and comes again. The caller
# kills and restarts the target at each line that starts with MARK.
# Set by the caller: ADDR, PORT, IQN.

initiator iqn.2026-01.org.example:guest
setting node.session.timeo.replacement_timeout 120
setting "node.conn[0].timeo.noop_out_interval" 5
setting "node.conn[0].timeo.noop_out_timeout" 30

# How often the session was lost and came back: the last state is in sysfs.
again() {
    tries=0
    until [ "$(cat /sys/class/iscsi_session/session*/state)" = LOGGED_IN ] &&
        sg_turs /dev/sda >/tmp/said 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || fail "the session does not come back: $(cat /tmp/said)"
        sleep 0.1
    done
}

step connect
iscsiadm -m node -o new -T "$IQN" -p "$ADDR:$PORT" >/tmp/said
login "$IQN"
disks 1
mkfs.ext4 -q -F /dev/sda
mount -t ext4 /dev/sda /mnt

step flushed files
for n in 1 2 3 4; do
    random /mnt/file$n $((n * 262144))
done
sync
(cd /mnt && sha256sum file*) >/tmp/sums

step load
fio --minimal --output=/tmp/fio --directory=/mnt --name=load --ioengine=libaio --direct=1 \
    --iodepth=16 --rw=randwrite --bssplit=4k/60:16k/30:64k/10 --size=16M --rate=4M \
    --fsync=16 --verify=crc32c --verify_fatal=1 &
load=$!
sleep 2
echo "MARK under load"
wait $load || fail "fio: $(cat /tmp/fio)"
dmesg | grep -q 'detected conn error' || fail "the session was never lost"
again

step flushed, killed
for n in 5 6; do
    random /mnt/file$n $((n * 131072))
done
(cd /mnt && sha256sum file*) >/tmp/sums
sync
lost=$(dmesg | grep -c 'detected conn error')
echo "MARK after sync"
tries=0
until [ "$(dmesg | grep -c 'detected conn error')" -gt "$lost" ]; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || fail "the session was not lost"
    sleep 0.1
done
again

step verify
echo 3 >/proc/sys/vm/drop_caches
(cd /mnt && sha256sum -c /tmp/sums) >/tmp/said || fail "$(cat /tmp/said)"
umount /mnt
fsck.ext4 -fn /dev/sda >/tmp/said 2>&1 || fail "$(cat /tmp/said)"
mount -t ext4 /dev/sda /mnt
(cd /mnt && sha256sum -c /tmp/sums) >/tmp/said || fail "$(cat /tmp/said)"
umount /mnt
logout "$IQN"
! dmesg | grep -i 'ext4.*error\|buffer i/o error\|I/O error' || fail "see above"
step end
