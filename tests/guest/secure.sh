# NVMe/TCP with TLS and with DH-HMAC-CHAP, as a host does it. The guest is of a system that
# has tlshd. Set by the caller: ADDR, PORT, NQN.

host=$(cat /etc/nvme/hostnqn)
# With what the kernel loads by itself where it finds modules by what they offer.
modprobe -a tls chacha chacha20poly1305

# certificates: a CA's, and one of it with its key, from the machine's folder `tls`: ca.pem,
# cert.pem and key.pem in /etc/tls.
certificates() {
    modprobe -a 9p 9pnet_virtio
    mkdir -p /etc/tls
    mount -t 9p -o ro,trans=virtio tls /etc/tls
}

# tls_daemon [CERTIFICATE KEY AUTHORITY]: tlshd does the handshakes for this guest's kernel, with
# the PSKs that the kernel has and the certificates in /etc/tls, if any: these files of them, or
# cert.pem, key.pem and ca.pem. It says what it did in /tmp/tlshd.log.
tls_daemon() {
    printf '%s\n' "127.0.0.1 localhost" "10.0.2.2 machine" >/etc/hosts
    printf '%s\n' "[debug]" "loglevel=1" "[authenticate]" "keyrings=.nvme" >/etc/tlshd.conf
    if [ -e /etc/tls/ca.pem ]; then
        for side in client server; do
            printf '%s\n' "[authenticate.$side]" "x509.truststore=/etc/tls/${3:-ca.pem}" \
                "x509.certificate=/etc/tls/${1:-cert.pem}" \
                "x509.private_key=/etc/tls/${2:-key.pem}"
        done >>/etc/tlshd.conf
    fi
    tlshd -s -c /etc/tlshd.conf >>/tmp/tlshd.log 2>&1 &
    daemon=$!
    # It listens for what this kernel asks of it: a generic netlink socket in a group.
    until_true tlshd "awk '\$2 == 16 && \$4 ~ /[1-9a-f]/ { found = 1 } END { exit !found }' /proc/net/netlink"
}

# insert_psk KEY [WORDS]: the PSK that this host and $NQN derive from an interchange key, for
# the kernel. Prints its serial number as the kernel does.
insert_psk() {
    interchange=$1
    shift
    nvme check-tls-key --keydata="$interchange" --identity=1 --hostnqn="$host" \
        --subsysnqn="$NQN" --insert "$@" >/tmp/inserted 2>&1 || fail "insert: $(cat /tmp/inserted)"
    sed -n 's/^Inserted TLS key //p' /tmp/inserted
}

# connected WORDS: connects and waits for the disk. Sets `controller` (its folder in sysfs) and
# `disk`.
connected() {
    nvme connect -t tcp -a "$ADDR" -s "$PORT" -n "$NQN" "$@" >/tmp/said 2>&1 ||
        fail "connect $*: $(cat /tmp/said /tmp/tlshd.log)"
    controller=/sys/class/nvme/$(sed -n 's/.*device: //p' /tmp/said)
    until_true "live" '[ "$(cat $controller/state)" = live ]'
    until_true "a disk" 'ls -d $controller/nvme*n1 >/tmp/said 2>/dev/null'
    disk=/dev/$(sed 's/.*\/nvme\([0-9]*\)\(c[0-9]*\)*n1$/nvme\1n1/' /tmp/said)
    wait_for "$disk"
}

# protected MODE [SERIAL]: the connection is under TLS with a PSK that was configured (`tls`) or
# generated (`concat`), with that serial number.
protected() {
    [ "$(cat $controller/tls_mode)" = "$1" ] || fail "tls_mode $(cat $controller/tls_mode)"
    [ "$(cat $controller/tls_key)" = "${2:-$(cat $controller/tls_key)}" ] ||
        fail "PSK $(cat $controller/tls_key), not $2: $(grep psk /proc/keys)"
}

# spoken CIPHER: each handshake since the last call came to this one.
spoken() {
    sed -n 's/.*Session description: (TLS1.3)--(\(.*\))/\1/p' /tmp/tlshd.log | sort -u >/tmp/said
    : >/tmp/tlshd.log
    [ "$(cat /tmp/said)" = "$1" ] || fail "ciphers, not $1: $(cat /tmp/said)"
}

# proven HASH GROUP: both sides have proven themselves since the last call.
proven() {
    dmesg -c >/tmp/said
    has "authenticated with hash $1 dhgroup $2" /tmp/said
    has "controller authenticated" /tmp/said
}

# shut_out WORDS: the connection is refused, or given up.
shut_out() {
    refused "could not add new controller" \
        nvme connect -t tcp -a "$ADDR" -s "$PORT" -n "$NQN" "$@"
}

# written_is_read DISK: 4 MiB, past the cache.
written_is_read() {
    random /tmp/written 4194304
    dd if=/tmp/written of="$1" bs=256k oflag=direct 2>/dev/null
    dd if="$1" of=/tmp/read bs=64k count=64 iflag=direct 2>/dev/null
    cmp /tmp/written /tmp/read || fail "$1 holds something else"
}

disconnected() {
    nvme disconnect-all
    until_true "no controller" '[ ! -e $controller ]'
}
