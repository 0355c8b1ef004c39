# The kernel's target behind KERNEL_TARGET and SECURE_KERNEL, for a host on the machine that
# authenticates. Set by the caller besides: HOST, its NQN; SECRET, BACK; WAYS: hashes and groups,
# one after the other, each until a connection arrives at the second port.

host=$HOST
for way in $WAYS; do
    authenticated "$SECRET" "$BACK" "hmac(${way%-*})" "${way#*-}"
    echo "MARK $way"
    nc -l -p 4421 </dev/null >/dev/null
done
