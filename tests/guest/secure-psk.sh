# A PSK of each hash between the kernel's host and its target, which asks for TLS.
# Set by the caller besides ADDR, PORT, NQN: PSK_SHA256 and PSK_SHA384, each an interchange key,
# the digest in the identity that is derived from it, and the cipher that it leads to.

tls_daemon
tls_port 4421 required
PORT=4421
for psk in "1 $PSK_SHA256" "2 $PSK_SHA384"; do
    # shellcheck disable=SC2086
    set -- $psk
    step PSK of hash "$1"
    # The kernel takes SHA-384 before SHA-256 where it has both.
    serial=$(insert_psk "$2")
    grep -qF "NVMe1R0$1 $host $NQN $3: " /proc/keys || fail "identity: $(grep psk /proc/keys)"
    connected --tls
    protected tls "$serial"
    spoken "$4"
    written_is_read "$disk"
    disconnected
done

step without TLS
shut_out
step end
