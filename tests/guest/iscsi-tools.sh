# What an administrator types: the SCSI tools, two initiators on one LUN, a
# namespace of NVMe over the same volume, and each refusal.
# Set by the caller besides ADDR, PORT, IQN: NVME_PORT and NQN, the same volume
# as namespace 1; LUN 0 and LUN 1 are thin, of 512 byte blocks.

initiator iqn.2026-01.org.example:guest
modprobe nvme_tcp

step two initiators
iscsiadm -m node -o new -T "$IQN" -p "$ADDR:$PORT" >/tmp/said
login "$IQN"
disks 2
iscsiadm -m iface -I second -o new >/tmp/said
iscsiadm -m iface -I second -o update -n iface.initiatorname -v iqn.2026-01.org.example:second >/tmp/said
iscsiadm -m node -o new -T "$IQN" -p "$ADDR:$PORT" -I second >/tmp/said
iscsiadm -m node -T "$IQN" -p "$ADDR:$PORT" -I second --login >/tmp/said
disks 4
# By host and LUN: which initiator, which volume.
name() {
    ls "/sys/class/scsi_device/$1:0:0:$2/device/block"
}
hosts=$(ls /sys/class/iscsi_host | sed 's/host//' | sort -n)
first=$(echo "$hosts" | head -n1)
second=$(echo "$hosts" | tail -n1)
disk=/dev/$(name "$first" 0)
disk1=/dev/$(name "$first" 1)
other=/dev/$(name "$second" 0)
# Each has its own unit attentions.
for d in "$disk" "$disk1" "$other"; do
    sg_turs "$d" >/tmp/said 2>&1 || sg_turs "$d" >/tmp/said 2>&1 || fail "not ready: $(cat /tmp/said)"
done

step what it says of itself
sg_luns "$disk" >/tmp/said
has 0001000000000000 /tmp/said
sg_readcap --long "$disk" >/tmp/said
has "lbpme=1" /tmp/said
for page in 0x00 0x80 0x83 0x86 0xb0 0xb1 0xb2; do
    sg_vpd --page=$page "$disk" >/tmp/said || fail "VPD page $page: $(cat /tmp/said)"
done
sg_vpd --page=0xb0 "$disk" >/tmp/said
! grep -q "Maximum compare and write length: 0 " /tmp/said || fail "$(cat /tmp/said)"
sg_modes -a "$disk" >/tmp/said
has "Caching" /tmp/said
has "Control" /tmp/said
sg_opcodes "$disk" >/tmp/said
for name in "Compare and write" "Write same(16)" "Unmap" "Persistent reserve out" "Extended copy" "Or write\|Orwrite"; do
    grep -qi "$name" /tmp/said || fail "no '$name' in: $(cat /tmp/said)"
done
sg_opcodes --tmf "$disk" >/tmp/said
has "Abort task" /tmp/said
sg_rtpg --decode "$disk" >/tmp/said
has "active/optimized" /tmp/said
sg_requests "$disk" >/tmp/said
sg_inq "$disk" >/tmp/said
has "TPGS=[13]" /tmp/said
has "3PC=1" /tmp/said

step compare and write
for file in /tmp/old /tmp/new; do
    dd if=/dev/urandom of=$file bs=512 count=1 2>/dev/null
done
dd if=/tmp/old of="$disk" bs=512 seek=40 oflag=direct 2>/dev/null
sg_compare_and_write --in=/tmp/old --inw=/tmp/new --lba=40 --num=1 --xferlen=1024 "$disk"
dd if="$disk" of=/tmp/back bs=512 skip=40 count=1 iflag=direct 2>/dev/null
cmp /tmp/new /tmp/back
refused miscompare sg_compare_and_write --in=/tmp/old --inw=/tmp/new --lba=40 --num=1 --xferlen=1024 "$disk"

step unmap and write same
random /tmp/data 1048576
dd if=/tmp/data of="$disk" bs=64k oflag=direct 2>/dev/null
sg_unmap --force --lba=256 --num=1024 "$disk"
sg_get_lba_status --lba=256 "$disk" >/tmp/said
has "deallocated" /tmp/said
dd if=/dev/zero bs=512 count=1024 of=/tmp/zeros 2>/dev/null
dd if="$disk" of=/tmp/back bs=512 skip=256 count=1024 iflag=direct 2>/dev/null
cmp /tmp/zeros /tmp/back
sg_write_same --10 --in=/tmp/new --lba=0 --num=64 "$disk"
dd if="$disk" of=/tmp/back bs=512 skip=63 count=1 iflag=direct 2>/dev/null
cmp /tmp/new /tmp/back
sg_write_same --16 --unmap --in=/dev/zero --xferlen=512 --lba=0 --num=64 "$disk"
dd if="$disk" of=/tmp/back bs=512 count=64 iflag=direct 2>/dev/null
cmp -n 32768 /tmp/zeros /tmp/back
sg_verify --16 --lba=0 --count=1024 "$disk"
sg_sync "$disk"

step extended copy
dd if=/tmp/data of="$disk" bs=64k oflag=direct 2>/dev/null
generic() {
    echo "/dev/$(ls "/sys/class/scsi_device/$first:0:0:$1/device/scsi_generic")"
}
sg_xcopy if="$(generic 0)" of="$(generic 1)" bs=512 count=2048 >/tmp/said 2>&1 || fail "$(cat /tmp/said)"
dd if="$disk1" of=/tmp/back bs=64k count=16 iflag=direct 2>/dev/null
cmp /tmp/data /tmp/back

step persistent reservations
out() {
    sg_persist --no-inquiry --out "$@"
}
out --register --param-sark=0xabc "$disk"
out --register --param-sark=0xdef "$other"
sg_persist --no-inquiry --in --read-keys "$disk" >/tmp/said
has 0xabc /tmp/said
has 0xdef /tmp/said
out --reserve --param-rk=0xabc --prout-type=1 "$disk"
sg_persist --no-inquiry --in --read-reservation "$other" >/tmp/said
has "Write Exclusive" /tmp/said
dd if=/tmp/new of="$disk" bs=512 count=1 oflag=direct 2>/dev/null
refused "invalid exchange\|error" dd if=/tmp/new of="$other" bs=512 count=1 oflag=direct
dd if="$other" of=/tmp/back bs=512 count=1 iflag=direct 2>/dev/null
refused conflict out --reserve --param-rk=0xdef --prout-type=1 "$other"
sg_persist --no-inquiry --in --read-full-status "$disk" >/tmp/said
has "iqn.2026-01.org.example:guest" /tmp/said
sg_persist --no-inquiry --in --report-capabilities "$disk" >/tmp/said
has "Persist Through Power Loss Capable(PTPL_C): 1" /tmp/said

step NVMe meets the same reservation
nvme connect -t tcp -a "$ADDR" -s "$NVME_PORT" -n "$NQN" --nr-io-queues=1 --keep-alive-tmo=30 >/tmp/said
wait_for /dev/nvme0n1
refused "invalid exchange\|error" dd if=/tmp/new of=/dev/nvme0n1 bs=512 count=1 oflag=direct
dd if=/dev/nvme0n1 of=/tmp/back bs=512 count=1 iflag=direct 2>/dev/null
cmp /tmp/new /tmp/back
nvme resv-report /dev/nvme0n1 --eds >/tmp/said 2>&1 || fail "$(cat /tmp/said)"
has "rtype *: 1" /tmp/said
out --preempt --param-rk=0xdef --param-sark=0xabc --prout-type=1 "$other"
refused "invalid exchange\|error" dd if=/tmp/new of="$disk" bs=512 count=1 oflag=direct
out --release --param-rk=0xdef --prout-type=1 "$other"
out --clear --param-rk=0xdef "$other"
# And the other way round.
nvme resv-register /dev/nvme0n1 --nrkey=0x77 --rrega=0 >/tmp/said
nvme resv-acquire /dev/nvme0n1 --crkey=0x77 --rtype=2 --racqa=0 >/tmp/said
refused "invalid exchange\|error" dd if=/tmp/new of="$other" bs=512 count=1 oflag=direct
refused "invalid exchange\|error" dd if="$other" of=/tmp/back bs=512 count=1 iflag=direct
nvme resv-release /dev/nvme0n1 --crkey=0x77 --rtype=2 --rrela=0 >/tmp/said
nvme resv-register /dev/nvme0n1 --crkey=0x77 --rrega=1 >/tmp/said
dd if=/tmp/new of="$other" bs=512 count=1 oflag=direct 2>/dev/null

step one volume, two protocols
random /tmp/data 1048576
dd if=/tmp/data of=/dev/nvme0n1 bs=64k oflag=direct 2>/dev/null
dd if="$disk" of=/tmp/back bs=64k count=16 iflag=direct 2>/dev/null
cmp /tmp/data /tmp/back
nvme disconnect -n "$NQN" >/tmp/said

step asymmetric access
sg_stpg --active --tp=1 "$disk"
sg_rtpg --decode "$other" >/tmp/said 2>&1 || sg_rtpg --decode "$other" >/tmp/said
has "non.optimized" /tmp/said
sg_stpg --optimized --tp=1 "$disk"

step logout
iscsiadm -m node -T "$IQN" -I second --logout >/tmp/said
iscsiadm -m node -T "$IQN" --logout >/tmp/said
step end
