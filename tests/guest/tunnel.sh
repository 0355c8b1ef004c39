# An initiator that reaches weft through WireGuard, by the lines of docs/security.md. The storage
# machine is the network namespace `storage`.
# Set by the caller besides ADDR, PORT, IQN: lines of the storage machine STORAGE, of the host HOST,
# of the storage machine PEER, weft's configuration but for its volume SERVES, lines of the host LOGIN.

in_storage() {
    ip netns exec storage "$@"
}

# answers ADDRESS: something takes connections there.
answers() {
    nc -w 2 "$1" "$PORT" </dev/null >/tmp/said 2>&1
}

step network
modprobe -a veth wireguard
ip netns add storage
ip link add outside type veth peer name outside netns storage
ip address add 192.0.2.2/24 dev outside
ip link set outside up
in_storage ip address add 192.0.2.1/24 dev outside
in_storage ip link set outside up
in_storage ip link set lo up

step tunnel
mkdir -p /etc/wireguard
storage_key=$(in_storage dash -euc "$STORAGE")
host_key=$(dash -euc "$(echo "$HOST" | sed "s|STORAGE_KEY|$storage_key|")")

step weft
cat >$debian/etc/weft.toml <<T
[[volume]]
name = "disk"
kind = "ram"
size = "64MiB"

$SERVES
[admin]
socket = "off"
listen = "off"
T
: >/tmp/weft.log
ip netns exec storage chroot $debian /weft/weft serve -c /etc/weft.toml >/tmp/weft.log 2>&1 &
served=$!
until_true "weft" 'grep -q "reactors on" /tmp/weft.log || ! kill -0 $served'
kill -0 $served || fail "weft: $(cat /tmp/weft.log)"

step a host whose key is not known
! answers "$ADDR" || fail "it is let in"
! answers 192.0.2.1 || fail "there is a way beside the tunnel"

step a host whose key is known
in_storage dash -euc "$(echo "$PEER" | sed "s|HOST_KEY|$host_key|")"
# A handshake that was not answered is tried again after 5 s.
state='cat /tmp/said /tmp/weft.log' until_true "the way in" 'answers "$ADDR"'
initiator iqn.2026-01.org.example:host
dash -euc "$LOGIN" >/tmp/said 2>&1 || fail "login: $(cat /tmp/said)"
disks 1
random /tmp/data 4194304
dd if=/tmp/data of=/dev/sda bs=65536 conv=fsync 2>/dev/null
echo 3 >/proc/sys/vm/drop_caches
dd if=/dev/sda of=/tmp/read bs=65536 count=64 2>/dev/null
cmp /tmp/data /tmp/read || fail "read otherwise than written"
sent=$(wg show weft0 transfer | awk '{ print $3 }')
[ "$sent" -gt 4194304 ] || fail "only $sent bytes went through the tunnel"
logout "$IQN"

step a host that is shut out
in_storage wg set weft0 peer "$host_key" remove
! answers "$ADDR" || fail "it is let in"
kill $served
wait $served || fail "weft: $(tail -n 5 /tmp/weft.log)"

step end
