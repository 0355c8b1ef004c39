# The kernel's target behind KERNEL_TARGET, SECURE and SECURE_KERNEL, for a host on the machine
# that makes its PSK for TLS by DH-HMAC-CHAP. Set by the caller besides: HOST, its NQN; SECRET,
# BACK; WAYS: hashes and groups, one after the other, each until a connection arrives at the
# third port.

tls_daemon
tls_port 4421 "not required"
host=$HOST
for way in $WAYS; do
    authenticated "$SECRET" "$BACK" "hmac(${way%-*})" "${way#*-}"
    echo "MARK $way"
    nc -l -p 4422 </dev/null >/dev/null
done
