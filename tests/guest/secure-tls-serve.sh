# The kernel's target behind KERNEL_TARGET, SECURE and SECURE_KERNEL with a port for TLS alone, for
# a host on the machine. Set by the caller besides: HOST, its NQN; PSK_SHA256, PSK_SHA384 and
# PSK_VERSION_0, each an interchange key and the cipher that it leads to. The last is known by an
# identity of version 0 alone. The script goes on where a connection arrives at the third port.

host=$HOST
tls_daemon
tls_port 4421 required
for psk in "SHA-256 $PSK_SHA256 1" "SHA-384 $PSK_SHA384 1" "version-0 $PSK_VERSION_0 0"; do
    # shellcheck disable=SC2086
    set -- $psk
    insert_psk "$2" --identity="$4" >/dev/null
    : >/tmp/tlshd.log
    echo "MARK $1"
    nc -l -p 4422 </dev/null >/dev/null
    spoken "$3"
done
