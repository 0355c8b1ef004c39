# Mounts of version 3 with no option but the version, and locks. After nfs-storage.sh.

# What the programs of a client look up.
printf 'tcp 6 TCP\nudp 17 UDP\n' >/etc/protocols
printf 'sunrpc 111/tcp portmapper\nsunrpc 111/udp portmapper\n' >/etc/services
printf 'root:x:0:0:root:/root:/bin/sh\n_rpc:x:107:65534::/run:/bin/false\n' >/etc/passwd
printf 'root:x:0:\n' >/etc/group
hostname client.example.org
mkdir -p /run/rpcbind /var/lib/nfs/sm /var/lib/nfs/sm.bak
rpcbind
until_true "rpcbind" 'rpcinfo -p 127.0.0.1 >/dev/null 2>&1'
rpc.statd --no-notify

# plain PATH FOLDER [OPTIONS]
plain() {
    mkdir -p "$2"
    mount.nfs "$ADDR:$1" "$2" -o "vers=3${3:+,$3}" >/tmp/said 2>&1 ||
        fail "mount $1: $(cat /tmp/said /tmp/weft.log)"
}

free() {
    kill $held
    wait $held || true
}

# taken FILE: another has it locked.
taken() {
    refused 'held by another' timeout 60 /tmp/exerciser hold "$1"
}

# is_free FILE: another mount may lock it.
is_free() {
    timeout 5 /tmp/exerciser hold "$1" >/tmp/asked 2>&1 || true
    grep -q held$ /tmp/asked
}

# How often the kernel's lock manager has said it: NLMDBG_ALL.
echo 32767 >/proc/sys/sunrpc/nlm_debug

step the port mapper
rpcinfo -p "$ADDR" >/tmp/said || fail "rpcinfo: $(cat /tmp/said)"
cat /tmp/said
for program in 100000 100003 100005 100021 100024; do
    has "$program" /tmp/said
done
rpcinfo -T udp "$ADDR" 100005 3 >/tmp/said || fail "mountd by udp: $(cat /tmp/said)"
showmount -e "$ADDR" >/tmp/said 2>&1 || fail "showmount: $(cat /tmp/said)"
for export in $exports; do
    has "^/$export " /tmp/said
done

step mounts without options
plain /kept /v3
plain / /top
grep ' /v3 ' /proc/mounts
[ "$(echo $(ls /top))" = "kept mem posix" ] || fail "/: $(ls -la /top)"
echo through >/top/kept/file
[ "$(cat /v3/file)" = through ] || fail "$(cat /v3/file)"
showmount -a "$ADDR" >/tmp/said 2>&1
has "192.0.2.2:/kept" /tmp/said
detach /top/kept /top
attach 4.2 /kept /v4

step locks of 3 and 4.2 are in each other\'s way
holds /v3/locked
taken /v4/locked
[ -n "$(ls /var/lib/nfs/sm)" ] || fail "the host is not monitored"
free
holds /v4/locked
taken /v3/locked
free
exercise locks "$STEPS" /v3 /v4

step hosts of 3 and 3
plain /kept /other nosharecache
exercise locks "$STEPS" /v3 /other
detach /other

step a lock that waits is given
dmesg -c >/dev/null
holds /v4/locked
(
    exec 9>>/v3/locked
    flock 9
    echo given >/tmp/given
) &
waits=$!
# NLM4_BLOCKED.
state=dmesg until_true "a lock that waits" '[ "$(kernel_said "server returns status 3")" -gt 0 ]'
[ ! -e /tmp/given ] || fail "it is given while another has it"
free
state=dmesg until_true "the lock" '[ -e /tmp/given ]'
wait $waits || fail "flock"
# The kernel was told, it has not asked again.
[ "$(kernel_said "GRANTED *status 0")" = 1 ] || fail "$(dmesg)"
[ "$(kernel_said "server returns status 3")" = 1 ] || fail "$(dmesg)"

step a program that is killed
holds /v3/locked
kill -9 $held
wait $held || true
detach /v3
holds /v4/locked
free
[ -z "$(ls /var/lib/nfs/sm)" ] || fail "monitored still: $(ls /var/lib/nfs/sm)"

step weft is killed
plain /kept /v3
holds /v3/locked
keeps=$held
dmesg -c >/dev/null
kill -9 $served
wait $served || true
serve /etc/weft.toml $storage
state='dmesg; cat /tmp/weft.log' until_true "a lock that is reclaimed" '[ "$(kernel_said "done reclaiming locks")" -gt 0 ]'
[ "$(kernel_said "failed to reclaim")" = 0 ] || fail "$(dmesg)"
# The grace period is over once another may lock.
holds /v4/other
free
taken /v4/locked

step the client starts again
sm-notify -f >/tmp/said 2>&1 || fail "sm-notify: $(cat /tmp/said)"
state='cat /tmp/said /tmp/weft.log' until_true "a lock that is free" is_free /v4/locked

step a client that is gone is evicted
holds /v3/gone
taken /v4/gone
weft get nfs-clients >/tmp/said
cat /tmp/said
has client.example.org /tmp/said
weft evict host 192.0.2.2 >/tmp/said || fail "evict: $(cat /tmp/said)"
has "(client.example.org) has lost" /tmp/said
state='cat /tmp/said /tmp/weft.log' until_true "a lock that is free" is_free /v4/gone
free

step the end
kill $keeps
wait $keeps || true
detach /v3 /v4
unserve
step end
