# A PSK of each hash between the kernel's host and its target, which asks for TLS.

tls_daemon
tls_port 4421 required
PORT=4421
for hash in 1 2; do
    step identity 1, hash $hash
    key=$(nvme gen-tls-key --hmac=$hash)
    # The kernel takes SHA-384 before SHA-256 where it has both.
    serial=$(insert_psk "$key")
    has "NVMe1R0$hash $host $NQN" /proc/keys
    connected --tls
    protected tls "$serial"
    written_is_read "$disk"
    disconnected
done

step without TLS
shut_out
step end
