# The kernel's target behind KERNEL_TARGET, SECURE and SECURE_KERNEL with a port for TLS alone, for
# a host on the machine. Set by the caller besides: HOST, its NQN; PSK_SHA256 and PSK_SHA384, each
# an interchange key and the cipher that it leads to. Each is there until a connection arrives at
# the third port.

host=$HOST
tls_daemon
tls_port 4421 required
for psk in "SHA-256 $PSK_SHA256" "SHA-384 $PSK_SHA384"; do
    # shellcheck disable=SC2086
    set -- $psk
    insert_psk "$2" >/dev/null
    : >/tmp/tlshd.log
    echo "MARK $1"
    nc -l -p 4422 </dev/null >/dev/null
    spoken "$3"
done
