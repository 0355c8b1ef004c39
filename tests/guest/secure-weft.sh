# TLS with weft, which holds this host to a key: behind SECURE.
# Set by the caller besides ADDR, PORT, NQN: KEY, an interchange key, and its CIPHER. At
# the MARKs the caller evicts this host, gives weft a key before KEY, lets KEY expire, gives it KEY
# again, and then another.

discovery=nqn.2014-08.org.nvmexpress.discovery
tls_daemon

step without TLS
shut_out
nvme discover -t tcp -a "$ADDR" -s "$PORT" >/tmp/discovered
has "subnqn: *$NQN" /tmp/discovered
has "treq: *required" /tmp/discovered
has "sectype: *tls13" /tmp/discovered

step TLS by an identity of version 0
# The kernel takes version 1 before version 0 where it has both.
serial=$(insert_psk "$KEY" --identity=0)
has "NVMe0R0[12] $host $NQN: " /proc/keys
connected --tls
protected tls "$serial"
spoken "$CIPHER"
written_is_read "$disk"
echo "MARK version 0"
until_true "eviction" '[ "$(cat $controller/state)" != live ]'
disconnected

step TLS
serial=$(insert_psk "$KEY")
connected --tls
protected tls "$serial"
spoken "$CIPHER"
written_is_read "$disk"

step reset
nvme reset "/dev/${controller##*/}"
until_true "live" '[ "$(cat $controller/state)" = live ]'
written_is_read "$disk"
disconnected

step TLS and digests
connected --tls -g -G
written_is_read "$disk"
disconnected

step rotation under verified load
connected --tls --nr-io-queues=2
fio --minimal --output=/tmp/fio --filename="$disk" --name=load --ioengine=libaio --direct=1 \
    --iodepth=16 --rw=randwrite --bssplit=4k/60:16k/30:256k/10 --size=32M --time_based \
    --runtime=4 --verify=crc32c --verify_fatal=1 &
sleep 1
echo "MARK rotation"
wait $! || fail "$(cat /tmp/fio)"
protected tls "$serial"
disconnected
connected --tls
disconnected

step discovery by TLS
NQN=$discovery insert_psk "$KEY" >/dev/null
nvme discover -t tcp -a "$ADDR" -s "$PORT" --tls >/tmp/discovered || fail "$(cat /tmp/tlshd.log)"
has "subnqn: *$NQN" /tmp/discovered

step expired key
echo "MARK expired key"
until_true "expiry of the key" \
    '! nvme discover -t tcp -a "$ADDR" -s "$PORT" --tls >/tmp/discovered 2>&1'
echo "MARK the key again"
until_true "the key again" 'nvme discover -t tcp -a "$ADDR" -s "$PORT" --tls >/tmp/discovered 2>&1'

step wrong key
echo "MARK another key"
until_true "refusal of the key that was" \
    '! nvme discover -t tcp -a "$ADDR" -s "$PORT" --tls >/tmp/discovered 2>&1'
shut_out --tls

step end
