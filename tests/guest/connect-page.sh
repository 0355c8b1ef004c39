# The lines of the console's page "Connect a client" for Linux, as they stand there.
# Set by the caller besides ADDR, PORT, NQN, IQN: of NVMe CONNECT, EVERY_START and UDEV, of block
# devices FSTAB, of iSCSI LOGIN, AUTOMATIC and MULTIPATH, of files MOUNTS and NFS_FSTAB. Where a
# line is of a file, it is put there.

# mounted: what a line of /etc/fstab mounts at a start, in the Debian; it keeps a file.
mounted() {
    debian mount -a >/tmp/said 2>&1 || fail "mount -a: $(cat /tmp/said)"
    debian mountpoint -q /mnt || fail "not mounted: $(cat $debian/etc/fstab)"
    echo kept >$debian/mnt/file
    debian umount /mnt
}

paths() {
    ls -d /sys/class/nvme-subsystem/nvme-subsys*/nvme[0-9] 2>/dev/null | wc -l
}

mkdir -p $debian/mnt $debian/etc/udev/rules.d /etc/nvme

step nvme connect
dash -euc "$CONNECT" >/tmp/said 2>&1 || fail "connect: $(cat /tmp/said)"
has "subnqn: *$NQN" /tmp/said
wait_for /dev/nvme0n1

step a file system at every start
mkfs.ext4 -q -F /dev/nvme0n1
uuid=$(debian blkid -o value -s UUID /dev/nvme0n1)
echo "$FSTAB" | sed "s/UUID=\.\.\./UUID=$uuid/" >$debian/etc/fstab
mounted
nvme disconnect -n "$NQN" >/tmp/said

step connections at every start
echo "$EVERY_START" | sed 1q >/etc/nvme/discovery.conf
echo "$EVERY_START" | sed 1d >/tmp/commands
has "^systemctl enable nvmf-autoconnect.service$" /tmp/commands
unit=$debian/lib/systemd/system/nvmf-autoconnect.service
has "ConditionPathExists=.*/etc/nvme/discovery.conf" $unit
has "ExecStart=.*nvme connect-all" $unit
nvme connect-all >/tmp/said 2>&1 || fail "connect-all: $(cat /tmp/said)"
until_true "two paths" '[ "$(paths)" = 2 ]'

step udev
echo "$UDEV" >$debian/etc/udev/rules.d/71-nvme-weft.rules
subsystem=$(echo /sys/class/nvme-subsystem/nvme-subsys*)
[ "$(cat "$subsystem/iopolicy")" = numa ] || fail "it is in force already"
debian udevadm test --action=add "$subsystem" >/tmp/said 2>&1 || fail "$(cat /tmp/said)"
[ "$(cat "$subsystem/iopolicy")" = round-robin ] || fail "no effect: $(cat /tmp/said)"
nvme disconnect -n "$NQN" >/tmp/said

step iscsi
initiator iqn.2026-01.org.example:guest
dash -euc "$LOGIN" >/tmp/said 2>&1 || fail "login: $(cat /tmp/said)"
disks 1
dash -euc "$AUTOMATIC"
iscsiadm -m node -T "$IQN" >/tmp/said
has "node.startup = automatic" /tmp/said

step multipath
echo "$MULTIPATH" >/etc/multipath.conf
modprobe -a dm_multipath dm_service_time scsi_dh_alua
multipath -t >/tmp/known 2>/tmp/said || fail "multipath: $(cat /tmp/said)"
! [ -s /tmp/said ] || fail "multipath: $(cat /tmp/said)"
vendor=$(sed 's/ *$//' /sys/block/sda/device/vendor)
product=$(sed 's/ *$//' /sys/block/sda/device/model)
sed -n "/vendor \"$vendor\"/,/}/p" /tmp/known >/tmp/device
has "product \"$product\"" /tmp/device
has 'prio "alua"' /tmp/device
has 'path_selector "service-time 0"' /tmp/device
logout "$IQN"

step mounts
echo 'tcp 6 TCP' >$debian/etc/protocols
cp /etc/netconfig $debian/etc
echo "$MOUNTS" >/tmp/mounts
modprobe -a nfsv3 nfsv4
while read -r line; do
    debian dash -euc "$line" >/tmp/said 2>&1 || fail "$line: $(cat /tmp/said)"
    echo kept >$debian/mnt/file
    debian umount /mnt
done </tmp/mounts
[ "$(wc -l </tmp/mounts)" = 2 ] || fail "other mounts: $(cat /tmp/mounts)"

step a mount at every start
echo "$NFS_FSTAB" >$debian/etc/fstab
mounted

step end
