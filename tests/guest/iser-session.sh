# A session by iSER: discovery, login, verified load of small and large blocks, a file system,
# resets, CHAP, tasks that are aborted.
# Set by the caller besides ADDR, PORT, IQN: CHAP_IQN, and its USER and SECRET; SLOW_IQN, whose
# I/Os take 3 s.

initiator iqn.2026-01.org.example:guest
modprobe ib_iser

step discovery
iscsiadm -m discovery -t sendtargets -p "$ADDR:$PORT" -I iser >/tmp/discovered 2>&1 ||
    fail "discovery: $(cat /tmp/discovered)"
for name in "$IQN" "$CHAP_IQN" "$SLOW_IQN"; do
    has "^$ADDR:$PORT,1 $name$" /tmp/discovered
done

step login
login "$IQN"
disks 1
iscsiadm -m session -P 2 >/tmp/said
has "Iface Transport: iser" /tmp/said
has "ImmediateData: No" /tmp/said
sg_inq /dev/sda >/tmp/said
has "Vendor identification: WEFT" /tmp/said

for size in 4k 1m; do
    step "load of $size"
    fio --minimal --output=/tmp/fio --filename=/dev/sda --direct=1 --verify_fatal=1 \
        --verify=crc32c --group_reporting --name=load --ioengine=libaio --iodepth=16 \
        --rw=randwrite --bs=$size --size=16M ||
        fail "load: $(cat /tmp/fio)"
done

step ext4
try_ext4 /dev/sda

step resets under load
loads /dev/sda
for n in 1 2 3; do
    sg_reset --device /dev/sda
    loads_go_on
done
loads_end
sg_turs /dev/sda || sg_turs /dev/sda
iscsiadm -m session -P 1 >/tmp/said
has "iSCSI Session State: LOGGED_IN" /tmp/said
! dmesg | grep "detected conn error" || fail "see above"
logout "$IQN"

step CHAP
refused "authori[sz]ation\|authentication" iscsiadm -m node -T "$CHAP_IQN" -p "$ADDR:$PORT" --login
field "$CHAP_IQN" node.session.auth.authmethod CHAP
field "$CHAP_IQN" node.session.auth.username "$USER"
field "$CHAP_IQN" node.session.auth.password "$SECRET"
login "$CHAP_IQN"
disks 1
logout "$CHAP_IQN"

step aborts
# A login that is refused may end in one.
errors=$(kernel_said "detected conn error")
echo 1 >/sys/module/libiscsi/parameters/debug_libiscsi_eh
# With pings of its own the initiator gives a command more time where they are answered.
field "$SLOW_IQN" "node.conn[0].timeo.noop_out_interval" 0
field "$SLOW_IQN" "node.conn[0].timeo.noop_out_timeout" 0
login "$SLOW_IQN"
disks 1
# Reads of whoever looks for partitions come first.
dd if=/dev/sda of=/tmp/block bs=4k count=1 iflag=direct 2>/tmp/said || fail "$(cat /tmp/said)"
echo 1 >/sys/block/sda/device/timeout
! dd if=/dev/sda of=/tmp/block bs=4k count=1 iflag=direct 2>/tmp/said || fail "a read within 1 s"
reads=$(kernel_said "abort success")
! dd if=/dev/zero of=/dev/sda bs=64k count=1 oflag=direct 2>/tmp/said || fail "a write within 1 s"
writes=$(kernel_said "abort success")
echo "ABORTED $reads and $((writes - reads))"
[ "$reads" -gt 0 ] && [ "$writes" -gt "$reads" ] || fail "none was aborted"
echo 30 >/sys/block/sda/device/timeout
dd if=/dev/sda of=/tmp/block bs=4k count=1 iflag=direct 2>/tmp/said || fail "$(cat /tmp/said)"
[ "$(kernel_said "detected conn error")" = "$errors" ] || fail "a connection ended"
logout "$SLOW_IQN"
step end
