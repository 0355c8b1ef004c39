# One of two clients on kernels of their own, which do the same to one directory
# at the same time. They talk by files in a folder of it.
# Set by the caller besides ADDR, PORT, STEPS, SEED: NAME, by which the kernel
# calls itself, OTHER, VERSION, LEASE_S, and END: one holds at the end and is
# killed at "MARK holds", the caller makes the flag "killed", and the other takes.

tell() {
    : >"/a/flags/$1"
}

await() {
    wait_for "/a/flags/$1"
}

# Neither goes on before the other is here.
meet() {
    step "$1"
    tell "$1-$NAME"
    await "$1-$OTHER"
}

echo "$NAME" >/proc/sys/kernel/hostname
attach "$VERSION" /dir /a
attach 4.0 /dir /old
mkdir -p -m 777 /a/flags

meet contend
exercise contend "$STEPS" /a
meet contend-4.0
if [ "$NAME" = first ]; then
    exercise contend "$((STEPS / 2))" /old
else
    exercise contend "$((STEPS / 2))" /a
fi
detach /old

# A file whose delegation was recalled gets none for a while: a file each turn.
for turn in 1 2 3; do
    own=/a/own-$NAME-$turn
    echo "before $turn" >"$own"
    exec 3<"$own"
    cat "$own" >/dev/null
    before=$(sent /a DELEGRETURN)
    meet "recall-$turn"
    echo "from $NAME" >"/a/own-$OTHER-$turn"
    meet "written-$turn"
    [ "$(cat "$own")" = "from $OTHER" ] || fail "$(cat "$own")"
    exec 3<&-
    [ "$(sent /a DELEGRETURN)" -gt "$before" ] || fail "no delegation was recalled"
done

if [ "$END" = holds ]; then
    holds /a/locked
    echo first >/a/kept
    exec 3</a/kept
    cat /a/kept >/dev/null
    tell holds
    echo "MARK holds"
    # Its lease is as good as new when it is killed.
    while :; do
        stat /a >/dev/null
        sleep 0.2
    done
fi

await holds
refused 'held by another' /tmp/exerciser hold /a/locked
echo "MARK refused"
await killed
step killed
refused 'held by another' /tmp/exerciser hold /a/locked
sleep $((LEASE_S + 2))
step lease over
# At once: neither is asked for twice.
holds /a/locked
echo taken >/a/kept
[ "$(cat /a/kept)" = taken ] || fail "$(cat /a/kept)"
kill $held
wait $held || true
! dmesg | grep -i 'nfs.*error\|nfs.*unhandled\|server returned a bad' || fail "see above"
step end
