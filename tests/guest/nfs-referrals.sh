# Referrals: what clients find below one server is on another. After LAB, STORAGE, NFS.

# Where the files are, and where no server is. The kernel takes port 2049, whatever it is told.
there=192.0.2.3
down=192.0.2.4
for address in $there $down; do
    $storage ip address add $address/24 dev outside
done

# document ADDRESS PATH: files at this path.
document() {
    cat <<T
[[file_system]]
name = "mem"
kind = "mem"
size = "16MiB"

[[export]]
path = "$2"
file_system = "mem"
allow_any_client = true
squash = "none"

[[listener]]
address = "$1:$PORT"
protocol = "nfs"

[admin]
listen = "off"
T
}

# refers PATH SERVERS
refers() {
    cat <<T

[[export]]
path = "$1"
referral = [$2]
allow_any_client = true
T
}

document $there /files >$debian/etc/there.toml
{
    document "$ADDR" /near
    refers /far "\"$down:/files\", \"$there:/files\""
    refers /gone "\"$down:/files\""
} >$debian/etc/here.toml
serve /etc/there.toml $storage
far=$served
serve /etc/here.toml $storage

is() {
    [ "$(cat "$1")" = "$2" ] || fail "$1: $(cat "$1")"
}

listed() {
    [ "$(ls "$1" | tr '\n' ' ')" = "$2" ] || fail "in $1: $(ls "$1")"
}

for version in 4.2 4.1 4.0; do
    step "referrals by version $version"
    attach $version / /a
    listed /a "far gone near "
    # The first server of the two is down.
    echo "by $version" >/a/far/said
    (
        ADDR=$there
        attach $version /files /b
    )
    is /b/said "by $version"
    echo back >/b/said
    is /a/far/said back
    [ "$(sent /a FS_LOCATIONS)" != 0 ] || fail "it has not asked where the files are"
    [ "$(sent /a WRITE)" = 0 ] || fail "written to the server that refers: $(sent /a WRITE)"

    # All its servers are down: that is an error for who enters it, and others go on.
    echo "near by $version" >/a/near/said
    refused "gone" cat /a/gone/said
    is /a/near/said "near by $version"
    listed /a "far gone near "
    detach /a /b
done

step version 3 has none
attach 3 / /a
listed /a "near "
echo 3 >/a/near/said
detach /a
refused "denied" mount.nfs "$ADDR:/far" /a -o "vers=3,port=$PORT,proto=tcp,nolock,mountport=$PORT,mountproto=tcp"
state='cat /tmp/weft.log' until_true "the reason" 'grep -q "/far.*a referral to another server" /tmp/weft.log'

unserve
served=$far
unserve
step end
