# DH-HMAC-CHAP of both sides between the kernel's host and its target, alone and with the PSK
# that it leads to. Set by the caller besides ADDR, PORT, NQN: CIPHER, that of a PSK of SHA-384.

tls_daemon
tls_port 4421 "not required"
secret=$(nvme gen-dhchap-key --hmac=1 --nqn="$host")
back=$(nvme gen-dhchap-key --hmac=2 --nqn="$NQN")
other=$(nvme gen-dhchap-key --hmac=2 --nqn="$NQN")

for way in "hmac(sha256) null" "hmac(sha384) ffdhe2048"; do
    step "both sides, $way"
    # shellcheck disable=SC2086
    authenticated "$secret" "$back" $way
    connected --dhchap-secret="$secret" --dhchap-ctrl-secret="$back"
    # shellcheck disable=SC2086
    proven $way
    written_is_read "$disk"
    disconnected
done

step other secrets
shut_out
shut_out --dhchap-secret="$other" --dhchap-ctrl-secret="$back"
shut_out --dhchap-secret="$secret" --dhchap-ctrl-secret="$other"

step concatenation
PORT=4421
connected --dhchap-secret="$secret" --dhchap-ctrl-secret="$back" --concat
protected concat
spoken "$CIPHER"
has "NVMe1G02 $host $NQN" /proc/keys
written_is_read "$disk"
disconnected
step end
