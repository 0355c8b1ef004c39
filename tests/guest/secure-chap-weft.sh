# DH-HMAC-CHAP of the kernel's host with weft. Set by the caller besides ADDR, PORT, NQN: SECRET
# and BACK, of the host and of weft to it; WAYS: hashes and groups, of each of which $NQN-HASH-GROUP
# takes no other; BY_FILE and CONNECT, lines of the connect page for the last of them; NEXT, a
# secret that the caller gives weft before SECRET at the first MARK. At the last, SECRET expires.

: >/tmp/tlshd.log
base=$NQN
other=$(nvme gen-dhchap-key --hmac=2 --nqn="$host")

# connects_by SECRET: to the subsystem of the first way, and goes.
connects_by() {
    first=$base-${WAYS%% *}
    nvme connect -t tcp -a "$ADDR" -s "$PORT" -n "$first" --dhchap-secret="$1" &&
        nvme disconnect -n "$first"
}

for way in $WAYS; do
    step "both sides, $way"
    NQN=$base-$way
    connected --nr-io-queues=1 --dhchap-secret="$SECRET" --dhchap-ctrl-secret="$BACK"
    proven "hmac(${way%-*})" "${way#*-}"
    written_is_read "$disk"
    disconnected
done

step one side
connected --dhchap-secret="$SECRET"
dmesg -c >/tmp/said
has "qid 0: authenticated with" /tmp/said
if grep -q "controller authenticated" /tmp/said; then
    fail "$(cat /tmp/said)"
fi
written_is_read "$disk"

step a file that has the secret
disconnected
cd /tmp
echo "$SECRET" >host.dhchap
dash -euc "$BY_FILE"
[ "$(stat -c %a host.conf)" = 600 ] || fail "others may read it"
dash -euc "$CONNECT" >/tmp/said 2>&1 || fail "connect: $(cat /tmp/said)"
until_true "authenticated" 'dmesg | grep -q "qid 0: authenticated with"'
until_true "live" '[ "$(cat /sys/class/nvme/nvme*/state)" = live ]'
controller=$(echo /sys/class/nvme/nvme*)
until_true "a disk" 'ls /dev/nvme*n1 >/tmp/said 2>/dev/null'
disk=$(cat /tmp/said)
dmesg -c >/dev/null

step again while it is connected
echo "$SECRET" >$controller/dhchap_secret
until_true "authenticated again" 'dmesg | grep -q "qid 0: authenticated with"'
written_is_read "$disk"
[ "$(cat $controller/state)" = live ] || fail "not live"

step rotation under verified load
fio --minimal --output=/tmp/fio --filename="$disk" --name=load --ioengine=libaio --direct=1 \
    --iodepth=16 --rw=randwrite --bssplit=4k/60:16k/30:256k/10 --size=8M --time_based \
    --runtime=8 --verify=crc32c --verify_fatal=1 &
sleep 1
echo MARK rotation
until_true "the next secret" 'connects_by "$NEXT" >/tmp/said 2>&1'
connects_by "$SECRET" >/tmp/said 2>&1 || fail "the old secret: $(cat /tmp/said)"
dmesg -c >/dev/null
echo "$NEXT" >$controller/dhchap_secret
until_true "authenticated by it" 'dmesg | grep -q "qid 0: authenticated with"'
wait $! || fail "$(cat /tmp/fio)"
[ "$(cat $controller/state)" = live ] || fail "not live"
dmesg >/tmp/said
if grep -q "reconnect" /tmp/said; then
    fail "$(cat /tmp/said)"
fi
disconnected

step other secrets
echo MARK other secrets
shut_out
shut_out --dhchap-secret="$other"
shut_out --dhchap-secret="$other" --dhchap-ctrl-secret="$BACK"
shut_out --dhchap-secret="$SECRET" --dhchap-ctrl-secret="$other"

step expired secret
echo MARK expired secret
until_true "expiry of the secret" '! connects_by "$SECRET" >/tmp/said 2>&1'
connects_by "$NEXT" >/tmp/said 2>&1 || fail "the next secret: $(cat /tmp/said)"
step end
