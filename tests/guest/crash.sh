# A host or initiator whose target is killed under load and comes again. The
# caller kills and restarts the target at each line that starts with MARK.
# Set before: `disk`, and connect, outages, again, disconnect.

step connect
connect
mkfs.ext4 -q -F "$disk"
mount -t ext4 "$disk" /mnt

step flushed files
for n in 1 2 3 4; do
    random /mnt/file$n $((n * 262144))
done
sync
remember /mnt

step load
load_killed /mnt 16M
before=$(outages)
[ "$before" -gt 0 ] || fail "the connection was never lost"
again

step flushed, killed
for n in 5 6; do
    random /mnt/file$n $((n * 131072))
done
remember /mnt
sync
echo "MARK after sync"
until_true "the second outage" '[ "$(outages)" -gt "$before" ]'
again

step verify
echo 3 >/proc/sys/vm/drop_caches
unchanged /mnt
umount /mnt
check_ext4 "$disk"
mount -t ext4 "$disk" /mnt
unchanged /mnt
umount /mnt
disconnect
! dmesg | grep -i 'ext4.*error\|buffer i/o error\|I/O error' || fail "see above"
step end
