# An initiator that reaches weft through WireGuard, by the lines of docs/security.md. After LAB, storage.sh.
# Set by the caller besides ADDR, PORT, IQN: lines of the storage machine STORAGE, of the host HOST,
# of the storage machine PEER, weft's configuration but for its volume SERVES, lines of the host LOGIN.

# answers ADDRESS: something takes connections there.
answers() {
    nc -w 2 "$1" "$PORT" </dev/null >/tmp/said 2>&1
}

step tunnel
modprobe wireguard
mkdir -p /etc/wireguard
storage_key=$($storage dash -euc "$STORAGE")
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
serve /etc/weft.toml $storage

step a host whose key is not known
! answers "$ADDR" || fail "it is let in"
! answers 192.0.2.1 || fail "there is a way beside the tunnel"

step a host whose key is known
$storage dash -euc "$(echo "$PEER" | sed "s|HOST_KEY|$host_key|")"
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
$storage wg set weft0 peer "$host_key" remove
! answers "$ADDR" || fail "it is let in"
unserve

step end
