# What an administrator types: every nvme subcommand that Linux has for what
# this target serves, two hosts on one namespace, and each refusal.
# Set by the caller besides ADDR, PORT, NQN: OPTIONS for connect. The namespace
# is a file volume of 512 byte blocks that keeps reservations over restarts.

# A field of what the last command said: "name : value".
field() {
    sed -n "s/^[[:space:]]*$1[[:space:]]*: *//p" /tmp/said | head -n1
}

differs() {
    [ "$1" = "$2" ] || fail "$1 is not $2: $(cat /tmp/said)"
}

step connect
# shellcheck disable=SC2086
nvme connect -t "$TRANSPORT" -a "$ADDR" -s "$PORT" -n "$NQN" $OPTIONS
wait_for /dev/nvme0n1
dev=/dev/nvme0n1

step identify
nvme id-ctrl /dev/nvme0 -H >/tmp/said
has "Compare and Write.*Supported\|Fused Compare and Write Supported" /tmp/said
nvme id-ctrl /dev/nvme0 >/tmp/said
differs "$(field cntrltype)" 1
[ $(($(field oncs) & 0x1af)) = $((0x1af)) ] || fail "oncs $(field oncs)"
[ $(($(field anacap) & 0x80)) = 0 ] || fail "anacap $(field anacap)"
nvme id-ns $dev -H >/tmp/said
has "Persist Through Power Loss.*Supported\|Persistent Through Power Loss" /tmp/said
nvme id-ns $dev >/tmp/said
[ "$(field nacwu)" -ge 7 ] || fail "nacwu $(field nacwu)"
[ $(($(field nmic) & 1)) = 1 ] || fail "nmic $(field nmic)"
nvme cmdset-ind-id-ns /dev/nvme0 -n 1 >/tmp/said
nvme nvm-id-ctrl /dev/nvme0 >/tmp/said
has vsl /tmp/said
nvme nvm-id-ns $dev >/tmp/said
nvme id-iocs /dev/nvme0 >/tmp/said
nvme ns-descs /dev/nvme0 -n 1 >/tmp/said
has nguid /tmp/said
has csi /tmp/said
nvme list-ns /dev/nvme0 >/tmp/said
has ':0x1$' /tmp/said
nvme list-ns /dev/nvme0 --all >/tmp/said
has ':0x1$' /tmp/said
nvme list-ctrl /dev/nvme0 >/tmp/said
has ':0x' /tmp/said
nvme list-ctrl /dev/nvme0 -n 1 >/tmp/said
has ':0x' /tmp/said
nvme list -v >/tmp/said
has "$NQN" /tmp/said
nvme show-topology >/tmp/said

step logs
nvme supported-log-pages /dev/nvme0 >/tmp/said
for page in 0x0 0x1 0x2 0x3 0x4 0x5 0xc 0x12 0x80; do
    grep -qi "LID $page \|(LID $page)\|$page" /tmp/said || fail "log page $page is not there: $(cat /tmp/said)"
done
nvme effects-log /dev/nvme0 --csi=0 >/tmp/said
for name in "Identify" "Get Log Page" "Compare" "Write Zeroes" "Dataset Management"; do
    has "$name" /tmp/said
done
nvme fid-support-effects-log /dev/nvme0 >/tmp/said
nvme fw-log /dev/nvme0 >/tmp/said
has frs1 /tmp/said
nvme changed-ns-list-log /dev/nvme0 >/tmp/said
nvme ana-log /dev/nvme0 >/tmp/said
has optimized /tmp/said
nvme resv-notif-log /dev/nvme0 >/tmp/said
nvme smart-log /dev/nvme0 >/tmp/said
before=$(field host_read_commands)
dd if=$dev of=/dev/null bs=4k count=16 iflag=direct 2>/dev/null
nvme smart-log /dev/nvme0 >/tmp/said
after=$(field host_read_commands)
[ "$after" -ge $((before + 16)) ] || fail "host_read_commands: $before, then $after"
refused "LBA_RANGE\|LBA Out of Range" nvme io-passthru $dev --opcode=2 --namespace-id=1 --data-len=512 -r --cdw10=0xfffffff0
nvme error-log /dev/nvme0 -e 1 >/tmp/said
has "nsid[[:space:]]*: 0x1" /tmp/said
grep -qi "LBA Out of Range\|LBA_RANGE\|status_field.*0x[0-9]*80" /tmp/said || fail "error log: $(cat /tmp/said)"

step features
for feature in 0x1 0x2 0x4 0x5 0x6 0x7 0xb 0xe 0xf 0x10 0x16 0x81; do
    if ! nvme get-feature /dev/nvme0 -f $feature >/tmp/said 2>&1; then
        echo "feature $feature: $(cat /tmp/said)"
    fi
done
for feature in 0x7 0xb 0xf; do
    nvme get-feature /dev/nvme0 -f $feature >/tmp/said
    has "Current value" /tmp/said
done
nvme get-feature /dev/nvme0 -n 1 -f 0x82 >/tmp/said
nvme get-feature /dev/nvme0 -n 1 -f 0x83 >/tmp/said
nvme set-feature /dev/nvme0 -f 0xf -v 30000 >/tmp/said
nvme get-feature /dev/nvme0 -f 0xf >/tmp/said
has "0x00007530\|0x7530" /tmp/said

step write protection
random /tmp/data 4096
nvme write $dev -s 0 -c 7 -z 4096 -d /tmp/data
nvme set-feature /dev/nvme0 -n 1 -f 0x84 -v 1 >/tmp/said
refused "WRITE_PROTECTED\|Write Protected" nvme write $dev -s 8 -c 7 -z 4096 -d /tmp/data
nvme read $dev -s 0 -c 7 -z 4096 -d /tmp/back
cmp /tmp/data /tmp/back
nvme set-feature /dev/nvme0 -n 1 -f 0x84 -v 0 >/tmp/said
nvme write $dev -s 8 -c 7 -z 4096 -d /tmp/data

step data commands
nvme verify $dev -s 0 -c 7
nvme copy $dev --sdlba=64 --slbs=0,8 --blocks=3,7 --format=0 >/tmp/said
nvme read $dev -s 64 -c 3 -z 2048 -d /tmp/back
cmp -n 2048 /tmp/data /tmp/back
nvme read $dev -s 68 -c 7 -z 4096 -d /tmp/back
cmp /tmp/data /tmp/back
nvme write-uncor $dev -s 128 -c 7
refused "READ_ERROR\|Unrecovered Read" nvme read $dev -s 128 -c 7 -z 4096 -d /tmp/back
refused "READ_ERROR\|Unrecovered Read" nvme verify $dev -s 120 -c 15
nvme write $dev -s 128 -c 7 -z 4096 -d /tmp/data
nvme read $dev -s 128 -c 7 -z 4096 -d /tmp/back
cmp /tmp/data /tmp/back
nvme get-lba-status $dev -n 1 -s 0 -m 64 -a 0x11 -l 256 >/tmp/said
nvme write-zeroes $dev -s 128 -c 7 -d
nvme read $dev -s 128 -c 7 -z 4096 -d /tmp/back
cmp -n 4096 /tmp/back /dev/zero

step two hosts
# To the kernel itself: libnvme 1.3 takes a second host for the first. Without
# multipath it has a controller and a namespace of its own.
host=6d1f0a5e-5f0c-4a2b-9c57-3f2f6f6b7e09
echo "transport=$TRANSPORT,traddr=$ADDR,trsvcid=$PORT,nqn=$NQN,nr_io_queues=1,hostid=$host,hostnqn=nqn.2014-08.org.nvmexpress:uuid:$host" >/dev/nvme-fabrics
wait_for /dev/nvme1n1
second=/dev/nvme1n1

step reservations
nvme resv-register $dev --nrkey=0x11 --rrega=0 --cptpl=3 >/tmp/said
nvme resv-register "$second" --nrkey=0x22 --rrega=0 >/tmp/said
nvme resv-acquire $dev --crkey=0x11 --rtype=1 --racqa=0 >/tmp/said
nvme resv-report $dev -e >/tmp/said
has "regctl *: 2" /tmp/said
has "rtype *: 1" /tmp/said
has "ptpls *: 1" /tmp/said
nvme read "$second" -s 0 -c 7 -z 4096 -d /tmp/back
refused "RESERVATION_CONFLICT\|Reservation Conflict" nvme write "$second" -s 0 -c 7 -z 4096 -d /tmp/data
refused "RESERVATION_CONFLICT\|Reservation Conflict" \
    nvme resv-acquire "$second" --crkey=0x22 --rtype=1 --racqa=0
nvme resv-acquire "$second" --crkey=0x22 --prkey=0x11 --rtype=2 --racqa=1 >/tmp/said
refused "RESERVATION_CONFLICT\|Reservation Conflict" nvme read $dev -s 0 -c 7 -z 4096 -d /tmp/back
nvme resv-notif-log /dev/nvme0 >/tmp/said
nvme resv-release "$second" --crkey=0x22 --rtype=2 --rrela=0 >/tmp/said
nvme read $dev -s 0 -c 7 -z 4096 -d /tmp/back
nvme resv-register "$second" --crkey=0x22 --rrega=1 >/tmp/said
nvme resv-report $dev -e >/tmp/said
has "regctl *: 0" /tmp/said

step reset
nvme reset /dev/nvme0
until_true "live after reset" '[ "$(cat /sys/class/nvme/nvme0/state)" = live ]'
nvme ns-rescan /dev/nvme0

step xfs
try_xfs $dev

step refusals
for command in "device-self-test /dev/nvme0 -n 1 -s 1" "format $dev -f" \
    "create-ns /dev/nvme0 -s 100 -c 100 -f 0" "delete-ns /dev/nvme0 -n 1" "sanitize /dev/nvme0 -a 2"; do
    # shellcheck disable=SC2086
    refused "INVALID\|Invalid" nvme $command
done

step persistent discovery
nvme discover -t "$TRANSPORT" -a "$ADDR" -s "$PORT" --persistent --keep-alive-tmo=30 >/tmp/said
has "$NQN" /tmp/said
found=$(grep -lxF nqn.2014-08.org.nvmexpress.discovery /sys/class/nvme/nvme*/subsysnqn)
[ "$(cat "$(dirname "$found")"/state)" = live ] || fail "the discovery controller is not live"

step disconnect
nvme disconnect-all
step end
