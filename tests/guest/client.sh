# A host's whole session with one subsystem: discovery, administration, a file
# system, verified load, every data command, reset, disconnect.
# Set by the caller besides ADDR, PORT, NQN: OPTIONS for connect, QUEUES (I/O
# queues expected), COMPARE=1 where the target has Compare, ADVERTISED (the
# address in the discovery log, reached here as ADDR) to try connect-all, which
# then finds OTHER too: namespaces 1 (16 MiB, 512 byte blocks) and 7 (32, 4096).

step discover
nvme discover -t "$TRANSPORT" -a "$ADDR" -s "$PORT" >/tmp/discovered
has "subnqn: *$NQN" /tmp/discovered
has "trtype: *$TRANSPORT" /tmp/discovered
has "subtype: *nvme subsystem" /tmp/discovered

step connect
# shellcheck disable=SC2086
nvme connect -t "$TRANSPORT" -a "$ADDR" -s "$PORT" -n "$NQN" $OPTIONS
wait_for /dev/nvme0n1
queues=$(($(cat /sys/class/nvme/nvme0/queue_count) - 1))
[ "$queues" = "$QUEUES" ] || fail "$queues I/O queues, not $QUEUES"
[ "$(cat /sys/class/nvme/nvme0/state)" = live ] || fail "not live"
block=$(cat /sys/block/nvme0n1/queue/logical_block_size)
size=$(($(cat /sys/block/nvme0n1/size) * 512))
# Blocks in 4 KiB, as the 0's based count of a command.
nlb=$((4096 / block - 1))

step administration
nvme list >/tmp/said
has /dev/nvme0n1 /tmp/said
nvme id-ctrl /dev/nvme0 >/tmp/said
has "subnqn *: $NQN" /tmp/said
sn=$(sed -n 's/^sn *: *//p' /tmp/said)
[ -n "$sn" ] || fail "no serial number"
nvme id-ns /dev/nvme0n1 >/tmp/said
[ $(($(sed -n 's/^nsze *: *//p' /tmp/said) * block)) = $size ] || fail "nsze: $(cat /tmp/said)"
nvme ns-descs /dev/nvme0 -n 1 >/tmp/said
has uuid /tmp/said
nvme list-ns /dev/nvme0 >/tmp/said
has ':0x1$' /tmp/said
nvme list-subsys >/tmp/said
has "NQN=$NQN" /tmp/said
has "traddr=$ADDR.*trsvcid=$PORT" /tmp/said
# CSTS: ready.
nvme get-property /dev/nvme0 --offset=0x1c >/tmp/said
has "value: \(0x\)\?1$" /tmp/said
nvme smart-log /dev/nvme0 >/tmp/said
has "critical_warning[[:space:]]*: 0" /tmp/said
nvme error-log /dev/nvme0 -e 1 >/tmp/said
nvme get-log /dev/nvme0 -i 3 -l 512 >/tmp/said
# Number of queues, asynchronous events, keep alive.
for feature in 7 0xb 0xf; do
    nvme get-feature /dev/nvme0 -f $feature >/tmp/said
    has "Current value" /tmp/said
done
refused "INVALID_LOG_PAGE\|INVALID_FIELD\|Invalid Log Page\|Invalid Field" nvme get-log /dev/nvme0 -i 0xbf -l 512
refused "INVALID_OPCODE\|Invalid Command Opcode" nvme admin-passthru /dev/nvme0 --opcode=0xc1

step file system
try_ext4 /dev/nvme0n1

step load
fio --minimal --output=/tmp/fio --filename=/dev/nvme0n1 --direct=1 --verify_fatal=1 \
    --verify=crc32c --group_reporting --name=mix --ioengine=libaio --iodepth=32 \
    --rw=randwrite --bssplit=4k/70:16k/15:64k/10:512k/5 --size=16M \
    --name=uring --stonewall --ioengine=io_uring --iodepth=16 --rw=randrw --bs=4k \
    --size=4M --offset=32M --numjobs=2 --offset_increment=8M \
    --name=small --stonewall --ioengine=libaio --iodepth=8 --rw=randwrite --bs="$block" \
    --size=256k --offset=64M --name=durable --stonewall --ioengine=libaio --iodepth=4 \
    --rw=write --bs=8k --size=512k --offset=72M --sync=dsync || fail "fio: $(cat /tmp/fio)"

step commands
random /tmp/data 4096
random /tmp/other 4096
nvme write /dev/nvme0n1 -s 0 -c $nlb -z 4096 -d /tmp/data --force-unit-access
nvme read /dev/nvme0n1 -s 0 -c $nlb -z 4096 -d /tmp/back
cmp /tmp/data /tmp/back
nvme flush /dev/nvme0 -n 1
if [ "$COMPARE" = 1 ]; then
    nvme compare /dev/nvme0n1 -s 0 -c $nlb -z 4096 -d /tmp/data
    refused "COMPARE_FAILED\|Compare Failure" \
        nvme compare /dev/nvme0n1 -s 0 -c $nlb -z 4096 -d /tmp/other
fi
nvme write-zeroes /dev/nvme0n1 -s 0 -c $nlb
nvme read /dev/nvme0n1 -s 0 -c $nlb -z 4096 -d /tmp/back
cmp -n 4096 /tmp/back /dev/zero
refused "LBA_RANGE\|LBA Out of Range\|Internal Error\|Invalid Field" \
    nvme read /dev/nvme0n1 -s $((size / block)) -c $nlb -z 4096 -d /tmp/back

step discard
random /tmp/large 4194304
dd if=/tmp/large of=/dev/nvme0n1 bs=1M oflag=direct 2>/dev/null
cmp -n 4194304 /tmp/large /dev/nvme0n1
# Two ranges in one command, then one that the kernel makes.
per=$((65536 / block))
nvme dsm /dev/nvme0n1 -n 1 -d -s 0,$((4 * per)) -b $per,$per
blkdiscard -o 1048576 -l 1048576 /dev/nvme0n1
echo 3 >/proc/sys/vm/drop_caches
for kib in "0 64" "256 64" "1024 1024"; do
    dd if=/dev/nvme0n1 of=/tmp/back bs=1k skip="${kib% *}" count="${kib#* }" 2>/dev/null
    cmp -n $((${kib#* } * 1024)) /tmp/back /dev/zero
done
for kib in "64 192" "2048 2048"; do
    dd if=/dev/nvme0n1 of=/tmp/back bs=1k skip="${kib% *}" count="${kib#* }" 2>/dev/null
    dd if=/tmp/large of=/tmp/want bs=1k skip="${kib% *}" count="${kib#* }" 2>/dev/null
    cmp /tmp/back /tmp/want
done

step reset
nvme reset /dev/nvme0
until_true "live after reset" '[ "$(cat /sys/class/nvme/nvme0/state)" = live ]'
dd if=/dev/nvme0n1 of=/tmp/back bs=1M skip=2 count=2 iflag=direct 2>/dev/null
dd if=/tmp/large of=/tmp/want bs=1M skip=2 count=2 2>/dev/null
cmp /tmp/back /tmp/want

step disconnect
nvme disconnect -n "$NQN" >/tmp/said
has "disconnected 1 controller" /tmp/said

if [ -n "$ADVERTISED" ]; then
    step connect-all
    # The guest's own loopback moves out of the way of the address that the
    # discovery log names.
    echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet
    echo 1 >/proc/sys/net/ipv4/conf/eth0/route_localnet
    ip addr del 127.0.0.1/8 dev lo
    ip route flush table local 127.0.0.0/8
    ip route add "$ADVERTISED" via 10.0.2.2 dev eth0
    nvme connect-all -t "$TRANSPORT" -a "$ADVERTISED" -s "$PORT"
    # By name: the discovery controller took the first number.
    device() {
        found=$(grep -lxF "$1" /sys/class/nvme/nvme*/subsysnqn) || fail "no controller of $1"
        basename "$(dirname "$found")"
    }
    same=/dev/$(device "$NQN")
    nvme id-ctrl "$same" | grep -q "^sn *: *$sn" || fail "another serial number"
    other=/dev/$(device "$OTHER")
    nvme list-ns "$other" >/tmp/said
    has ':0x1$' /tmp/said
    has ':0x7$' /tmp/said
    [ "$(grep -c ':0x' /tmp/said)" = 2 ] || fail "namespaces: $(cat /tmp/said)"
    # Each namespace by what only it has: its size; and what is written to one
    # is not in the other.
    for sectors in 32768 65536; do
        disk=$(grep -lx $sectors /sys/block/nvme*/size) || fail "no disk of $sectors"
        disk=/dev/$(basename "$(dirname "$disk")")
        random /tmp/large 1048576
        dd if=/tmp/large of="$disk" bs=64k oflag=direct 2>/dev/null
        sha256sum </tmp/large >/tmp/sum$sectors
        eval "disk$sectors=$disk"
    done
    # shellcheck disable=SC2154
    for of in "$disk32768 32768 512" "$disk65536 65536 4096"; do
        # shellcheck disable=SC2086
        set -- $of
        [ "$(cat /sys/block/"$(basename "$1")"/queue/logical_block_size)" = "$3" ] || fail "blocks of $1"
        echo 3 >/proc/sys/vm/drop_caches
        dd if="$1" bs=64k count=16 iflag=direct 2>/dev/null | sha256sum | cmp - /tmp/sum"$2"
    done
    nvme disconnect-all
fi
dmesg >/tmp/said
! grep -i 'nvme.*\(timeout\|i/o error\|digest error\|protocol error\)' /tmp/said || fail "see above"
step end
