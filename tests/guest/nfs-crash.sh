# A client whose server is killed under load and comes again. The caller kills
# and restarts the server at each line that starts with MARK.
# Set by the caller besides ADDR, PORT, STEPS, SEED: EXPORT.

attach 4.2 "$EXPORT" /a nconnect=4
attach 4.1 "$EXPORT" /b
attach 4.0 "$EXPORT" /c

step names
mkdir -m 777 /a/names
exercise names "$STEPS" /a/names /b/names
rm -r /a/names

step load
mkdir -m 777 /a/one /a/two /a/three
(/tmp/exerciser data "$SEED" "$STEPS" /a/one /b/one >/tmp/data 2>&1 || echo "FAIL $(cat /tmp/data)" >>/tmp/wrong) &
one=$!
(/tmp/exerciser locks "$SEED" "$STEPS" /a/two /b/two >/tmp/locks 2>&1 || echo "FAIL $(cat /tmp/locks)" >>/tmp/wrong) &
two=$!
(/tmp/exerciser data "$SEED" "$STEPS" /c/three /a/three >/tmp/old 2>&1 || echo "FAIL $(cat /tmp/old)" >>/tmp/wrong) &
three=$!
load_killed /a 12M
wait $one $two $three || true
[ ! -e /tmp/wrong ] || fail "$(cat /tmp/wrong)"
cat /tmp/data /tmp/locks /tmp/old

step written, not committed, killed, committed
for n in 1 2 3; do
    random /a/file$n $((n * 1048576))
done
remember /a
# A lock, and a file without a name, that must be there afterwards.
/tmp/exerciser hold /a/locked >/tmp/holds &
holds=$!
until grep -q held /tmp/holds; do sleep 0.1; done
random /tmp/nameless 65536
cp /tmp/nameless /a/nameless
exec 5</a/nameless
rm /a/nameless
echo "MARK with dirty pages"
sync
cat </a/file1 >/dev/null
refused 'held by another' /tmp/exerciser hold /b/locked

step verify
echo 3 >/proc/sys/vm/drop_caches
unchanged /b
cmp - /tmp/nameless <&5 || fail "what was open"
kill $holds
wait $holds || true
/tmp/exerciser hold /b/locked >/tmp/holds &
holds=$!
until grep -q held /tmp/holds; do
    kill -0 $holds || fail "the lock is not free: $(cat /tmp/holds)"
    sleep 0.1
done
kill $holds
wait $holds || true
detach /c
# ("lost locks" counts those too that were just being asked for.)
! dmesg | grep -i 'reclaim.*fail\|I/O error' || fail "see above"
step end
