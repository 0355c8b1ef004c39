# DH-HMAC-CHAP of the kernel's host with weft. Set by the caller besides ADDR, PORT, NQN: SECRET
# and BACK, of the host and of weft to it; WAYS: hashes and groups, of each of which $NQN-HASH-GROUP
# takes no other; BY_FILE and CONNECT, lines of the connect page for the last of them.

: >/tmp/tlshd.log
base=$NQN
other=$(nvme gen-dhchap-key --hmac=2 --nqn="$host")

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
disconnected

step other secrets
echo MARK other secrets
shut_out
shut_out --dhchap-secret="$other"
shut_out --dhchap-secret="$other" --dhchap-ctrl-secret="$BACK"
shut_out --dhchap-secret="$SECRET" --dhchap-ctrl-secret="$other"
step end
