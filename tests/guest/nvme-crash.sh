# The host of crash.sh. Set by the caller: ADDR, PORT, NQN, OPTIONS.

disk=/dev/nvme0n1

connect() {
    # shellcheck disable=SC2086
    nvme connect -t "$TRANSPORT" -a "$ADDR" -s "$PORT" -n "$NQN" --reconnect-delay=1 --ctrl-loss-tmo=90 $OPTIONS
    wait_for $disk
}

# How often the connection was lost, counted when it has come back.
outages() {
    kernel_said "Successfully reconnected"
}

again() {
    :
}

disconnect() {
    nvme disconnect -n "$NQN"
}
