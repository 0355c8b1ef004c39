# Delegations of version 4.0, whose client is called on a connection to it. After LAB, STORAGE, NFS.

mkdir -m 777 $debian/srv/dir
mkdir $debian/srv/state
cat >$debian/etc/weft.toml <<T
[nfs]
state = "/srv/state"
lease_ms = 10000

[[file_system]]
name = "dir"
kind = "dir"
path = "/srv/dir"

[[export]]
path = "/dir"
file_system = "dir"
allow_any_client = true
squash = "none"

[[listener]]
address = "$ADDR:$PORT"
protocol = "nfs"

[admin]
listen = "off"
T
serve /etc/weft.toml $storage

# Where the kernel takes calls: before its first mount of version 4.0.
callbacks=40999
echo $callbacks >/sys/module/nfs/parameters/callback_tcpport

# file NAME: one that no client has opened yet.
file() {
    echo before >"$debian/srv/dir/$1"
}

# asks OPERATION COMMAND...: how often the client of /a sends it meanwhile.
asks() {
    op=$1
    before=$(sent /a "$op")
    shift
    "$@"
    asked=$(($(sent /a "$op") - before))
}

# client [OPTIONS]: version 4.0 at /a, with an owner of files that is confirmed.
client() {
    attach 4.0 /dir /a "$@"
    is /a/first before
}

is() {
    [ "$(cat "$1")" = "$2" ] || fail "$1: $(cat "$1")"
}

change() {
    echo after >"$1"
}

# The client opens a file that it has a delegation of without a word.
is_delegated() {
    is "$1" before
    asks OPEN is "$1" before
    [ "$asked" = 0 ]
}

file first
attach 4.2 /dir /b
client

step a delegation of reading is recalled
file read
until_true "a delegation" 'is_delegated /a/read'
asks DELEGRETURN change /b/read
[ "$asked" = 1 ] || fail "$asked delegations came back"
is /a/read after

step a delegation of writing is recalled, and others see what was written
file written
exec 3<>/a/written
printf 'what is kept' >&3
asks WRITE stat -c %s /b/written >/tmp/said
[ "$asked $(cat /tmp/said)" = "0 12" ] || fail "$asked WRITEs, bytes: $(cat /tmp/said)"
asks DELEGRETURN is /b/written "what is kept"
[ "$asked" = 1 ] || fail "$asked delegations came back"
exec 3>&-

step a client that is called no more
file cut
file apart
is_delegated /a/cut || fail "no delegation"
# The other client knows the name by now: while it opens a file that it may create, it looks up no
# other name of that directory.
is /b/apart before
# Calls reach it and its answers do not come back.
ip rule add pref 1 ipproto tcp sport $callbacks blackhole
(
    change /b/cut
    echo done >/tmp/cut
) &
waits=$!
for turn in 1 2 3; do
    is /b/apart before
done
[ ! -e /tmp/cut ] || fail "it was changed under the delegation"
wait $waits || fail "it cannot be changed"
is /a/cut after
file later
! is_delegated /a/later || fail "a client that does not answer has a delegation"
ip rule del pref 1

step a client that names another address
detach /a
client clientaddr=192.0.2.77
file elsewhere
for turn in 1 2 3; do
    ! is_delegated /a/elsewhere || fail "it has a delegation"
done

detach /a /b
unserve
step end
