# The kernel's target behind KERNEL_TARGET, SECURE and SECURE_KERNEL, for a host on the machine
# that makes its PSK for TLS by DH-HMAC-CHAP. Set by the caller besides: HOST, its NQN; SECRET,
# BACK; WAYS: hash, group and the cipher of the PSK, one way after the other, each until a
# connection arrives at the third port.

host=$HOST
tls_daemon
tls_port 4421 "not required"
for way in $WAYS; do
    hash=${way%%:*}
    cipher=${way##*:}
    group=${way#*:}
    authenticated "$SECRET" "$BACK" "hmac($hash)" "${group%:*}"
    : >/tmp/tlshd.log
    echo "MARK $way"
    nc -l -p 4422 </dev/null >/dev/null
    spoken "$cipher"
done
