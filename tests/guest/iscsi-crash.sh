# The initiator of crash.sh. Set by the caller: ADDR, PORT, IQN.

disk=/dev/sda

initiator iqn.2026-01.org.example:guest
setting node.session.timeo.replacement_timeout 120
setting "node.conn[0].timeo.noop_out_interval" 5
setting "node.conn[0].timeo.noop_out_timeout" 30

connect() {
    iscsiadm -m node -o new -T "$IQN" -p "$ADDR:$PORT" >/tmp/said
    login "$IQN"
    disks 1
}

# How often the session was lost.
outages() {
    kernel_said "detected conn error"
}

# It has come back: the state is in sysfs.
again() {
    until_true "the session" '[ "$(cat /sys/class/iscsi_session/session*/state)" = LOGGED_IN ] &&
        sg_turs $disk >/tmp/said 2>&1'
}

disconnect() {
    logout "$IQN"
}
