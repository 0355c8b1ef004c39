# Secure channel concatenation of the kernel's host with weft, behind SECURE: DH-HMAC-CHAP makes
# the PSK of TLS. Set by the caller besides ADDR, PORT, NQN: SECRET and BACK, of the host and of
# weft to it; OTHER, another of the host; CIPHER. $NQN-alone has a PSK for this host, too: it is
# for TLS alone. At the MARKs the caller restarts weft, gives it OTHER, and gives it SECRET again.

# concatenated WORDS: connects by a PSK that is made.
concatenated() {
    connected --dhchap-secret="$SECRET" --concat --nr-io-queues=2 --keep-alive-tmo=5 \
        --reconnect-delay=1 --ctrl-loss-tmo=120 "$@"
    protected concat
    spoken "$CIPHER"
    grep -q "NVMe1G02 $host $NQN " /proc/keys || fail "identity: $(grep psk /proc/keys)"
    written_is_read "$disk"
}

# made_again BEFORE: the controller is live by another PSK than the one of that serial number.
made_again() {
    before=$1
    until_true "live by another PSK" \
        '[ "$(cat $controller/state)" = live ] && [ "$(cat $controller/tls_key)" != "$before" ]'
    protected concat
    written_is_read "$disk"
}

# verified_load: what was written is what is read, for some seconds.
verified_load() {
    fio --minimal --output=/tmp/fio --filename="$disk" --name=load --ioengine=libaio --direct=1 \
        --iodepth=16 --rw=randwrite --bssplit=4k/60:16k/30:256k/10 --size=32M --verify=crc32c \
        --verify_fatal=1 "$@" || fail "$(cat /tmp/fio)"
}

tls_daemon
: >/tmp/tlshd.log

step concatenation
concatenated
verified_load --io_size=16M

step reset
serial=$(cat $controller/tls_key)
nvme reset "/dev/${controller##*/}"
made_again "$serial"

step the target is lost
serial=$(cat $controller/tls_key)
echo "MARK restart"
made_again "$serial"

step another secret under load
verified_load --time_based --runtime=4 &
sleep 1
echo "MARK another secret"
wait $! || fail "$(cat /tmp/fio)"
[ "$(cat $controller/state)" = live ] || fail "not live"
disconnected
shut_out --dhchap-secret="$SECRET" --concat
was=$SECRET
: >/tmp/tlshd.log
SECRET=$OTHER
concatenated
disconnected
SECRET=$was
echo "MARK the secret that was"
until_true "the secret that was" \
    'nvme connect -t tcp -a "$ADDR" -s "$PORT" -n "$NQN" --dhchap-secret="$SECRET" --concat >/tmp/said 2>&1'
controller=/sys/class/nvme/$(sed -n 's/.*device: //p' /tmp/said)
disconnected
: >/tmp/tlshd.log

step both sides and digests
concatenated --dhchap-ctrl-secret="$BACK" -g -G
disconnected

step TLS alone
NQN=$NQN-alone
shut_out
shut_out --dhchap-secret="$SECRET"
concatenated
disconnected
step end
