# An iSCSI initiator: open-iscsi as a distribution has it.
# Set by the caller besides ADDR, PORT: IQN, the target with LUN 0.

initiator() {
    mkdir -p /run/lock/iscsi /var/lib/iscsi /etc/iscsi
    ln -sf /run/lock /var/lock
    echo "InitiatorName=$1" >/etc/iscsi/initiatorname.iscsi
    modprobe -a iscsi_tcp sd_mod sg
    # iscsid refuses requests of a user that is not in it.
    echo "root:x:0:0:root:/:/bin/sh" >/etc/passwd
    iscsid
}

# A field of iscsid.conf, for every session that is logged in from now on.
setting() {
    grep -v "^$1 *=" /etc/iscsi/iscsid.conf >/tmp/conf || true
    echo "$1 = $2" >>/tmp/conf
    mv /tmp/conf /etc/iscsi/iscsid.conf
}

# One field of the record of a target, for its next login.
field() {
    iscsiadm -m node -T "$1" -o update -n "$2" -v "$3"
}

login() {
    iscsiadm -m node -T "$1" -p "$ADDR:${2:-$PORT}" --login >/tmp/said 2>&1 || fail "login: $(cat /tmp/said)"
}

logout() {
    iscsiadm -m node -T "$1" --logout >/tmp/said 2>&1 || fail "logout: $(cat /tmp/said)"
    until_true "the session's end" '[ -z "$(ls /sys/class/iscsi_session 2>/dev/null)" ]'
}

# The disks there are, waited for until there are $1.
disks() {
    until_true "$1 disks" '[ "$(ls -d /sys/block/sd* 2>/dev/null | wc -l)" = '"$1 ]"
}
