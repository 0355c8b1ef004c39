# A host whose target is killed under load and comes again. The caller kills
# and restarts the target at each line that starts with MARK.
# Set by the caller: ADDR, PORT, NQN, OPTIONS.

step connect
# shellcheck disable=SC2086
nvme connect -t tcp -a "$ADDR" -s "$PORT" -n "$NQN" --reconnect-delay=1 --ctrl-loss-tmo=90 $OPTIONS
wait_for /dev/nvme0n1
mkfs.ext4 -q -F /dev/nvme0n1
mount -t ext4 /dev/nvme0n1 /mnt

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
dmesg | grep -q 'Successfully reconnected' || fail "the host did not reconnect"
before=$(dmesg | grep -c 'Successfully reconnected')

step flushed, killed
for n in 5 6; do
    random /mnt/file$n $((n * 131072))
done
(cd /mnt && sha256sum file*) >/tmp/sums
sync
echo "MARK after sync"
tries=0
until [ "$(dmesg | grep -c 'Successfully reconnected')" -gt "$before" ]; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || fail "the host did not reconnect again"
    sleep 0.1
done

step verify
echo 3 >/proc/sys/vm/drop_caches
(cd /mnt && sha256sum -c /tmp/sums) >/tmp/said || fail "$(cat /tmp/said)"
umount /mnt
fsck.ext4 -fn /dev/nvme0n1 >/tmp/said 2>&1 || fail "$(cat /tmp/said)"
mount -t ext4 /dev/nvme0n1 /mnt
(cd /mnt && sha256sum -c /tmp/sums) >/tmp/said || fail "$(cat /tmp/said)"
umount /mnt
nvme disconnect -n "$NQN"
! dmesg | grep -i 'ext4.*error\|buffer i/o error\|I/O error' || fail "see above"
step end
