# A host while an operator changes its target. Each MARK asks the machine for one; the
# loads beside it must not see an error.
# Set by the caller besides ADDR, PORT, NQN: SECOND, the port of a listener that comes;
# OTHER, the NQN of a host that is shut out.

connect() {
    nvme connect -t tcp -a "$ADDR" -s "$1" -n "$NQN" --nr-io-queues=2 \
        --keep-alive-tmo=30 --reconnect-delay=1 --ctrl-loss-tmo=600 >/tmp/said 2>&1
}

# The state of the controller of this host at port $1.
state_at() {
    for controller in /sys/class/nvme/nvme*; do
        case $(cat "$controller"/hostnqn "$controller"/address | tr '\n' ' ') in
        "$HOST "*trsvcid="$1"*) cat "$controller"/state ;;
        esac
    done
}

# shown SIZE STATE: what programs show of the disk, without anything that has the kernel look
# again: its bytes, and how many paths are in a state.
shown() {
    [ "$(lsblk -bdno SIZE /dev/nvme0n1)" = "$1" ] || fail "lsblk: $(lsblk)"
    multipath -ll >/tmp/said 2>&1
    has "size=$(($1 / 512)) " /tmp/said
    has " $2\$" /tmp/said
    nvme list -o json >/tmp/said
    has "\"PhysicalSize\" *: *$1" /tmp/said
}

HOST=$(cat /etc/nvme/hostnqn)
state="nvme list-subsys; nvme list"
modprobe dm_multipath
mkdir -p /run/udev/data
[ -e /var/run ] || { mkdir -p /var && ln -s /run /var/run; }
printf 'defaults {\n    enable_foreign nvme\n}\n' >/etc/multipath.conf

step connect as two hosts
connect "$PORT" || fail "$(cat /tmp/said)"
wait_for /dev/nvme0n1
# What udev would have written, which is not there.
printf 'I:1\n' >"/run/udev/data/b$(cat /sys/block/nvme0n1/dev)"
echo "transport=tcp,traddr=$ADDR,trsvcid=$PORT,nqn=$NQN,nr_io_queues=1,hostid=0b1c7c52-8d0e-4d0c-9c9f-5d5b1d1f0a01,hostnqn=$OTHER" >/dev/nvme-fabrics
until_true "the other host" 'cat /sys/class/nvme/nvme*/hostnqn | grep -qx "$OTHER"'
loads /dev/nvme0n1

step the volume grows
echo "MARK grow"
until_true "128 MiB" '[ "$(cat /sys/block/nvme0n1/size)" = 262144 ]'
shown 134217728 live
loads_go_on

step the other host is shut out
echo "MARK mask"
until_true "a refusal" 'dmesg | grep -q "is not allowed, hostnqn: $OTHER"'
other=$(grep -lx "$OTHER" /sys/class/nvme/nvme*/hostnqn)
nvme disconnect -d "$(basename "$(dirname "$other")")"
loads_go_on

step the listener moves
echo "MARK listener"
until_true "the second listener" 'connect "$SECOND"'
until_true "two paths" '[ "$(state_at "$PORT") $(state_at "$SECOND")" = "live live" ]'
loads_go_on
echo "MARK listener moved"
until_true "a path lost" '[ "$(state_at "$PORT")" = connecting ]'
shown 134217728 connecting
nvme list-subsys >/tmp/said
has "trsvcid=$PORT.* connecting" /tmp/said
has "trsvcid=$SECOND.* live" /tmp/said
loads_go_on

step the host is evicted
lost=$(kernel_said "Successfully reconnected")
echo "MARK evict"
until_true "a way back" '[ "$(kernel_said "Successfully reconnected")" -gt '"$lost ]"
until_true "a path" '[ "$(state_at "$SECOND")" = live ]'
shown 134217728 live
loads_go_on

step weft is drained
ana='cat /sys/class/nvme/nvme*/nvme0c*n1/ana_state'
echo "MARK drain"
until_true "no access" '$ana | grep -qx inaccessible'
# Nothing can be asked of the disk itself.
multipath -ll >/tmp/said 2>&1
has " inaccessible live$" /tmp/said
echo "MARK drained"
until_true "access" '[ "$($ana | sort -u)" = optimized ]'
loads_go_on

step the configuration goes back
echo "MARK rollback"
until_true "the first path" '[ "$(state_at "$PORT")" = live ]'
until_true "the second lost" '[ "$(state_at "$SECOND")" = connecting ]'
[ "$(cat /sys/block/nvme0n1/size)" = 262144 ] || fail "the volume is not what it was"
shown 134217728 live
loads_go_on

step disconnect
loads_end
echo "loads: $(wc -l </tmp/loads)"
nvme disconnect-all
step end
