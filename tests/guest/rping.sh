# rping with an endpoint on the machine, behind RDMA: what it writes there it finds again. Set by
# the caller: ADDR, PORT; SIZES of its pings, COUNT of each.

modprobe rdma_ucm
for size in $SIZES; do
    step "$size bytes"
    rping -c -a "$ADDR" -p "$PORT" -C "$COUNT" -V -S "$size" >/tmp/said 2>&1 ||
        fail "rping: $? $(cat /tmp/said)"
done
step end
