# Common to all scripts. Set by the caller: ADDR, PORT, NQN.
set -eu

# What carries NVMe and NFS; rdma.sh says otherwise.
TRANSPORT=tcp

# A step's name is what a failure is looked up by; the time is the guest's.
step() {
    read -r up _ </proc/uptime
    echo "STEP $up $*"
}

fail() {
    echo "FAIL $*"
    exit 1
}

# What must be refused by the target: any exit status but 0, and the reason in
# what the command said.
refused() {
    reason=$1
    shift
    if "$@" >/tmp/refused 2>&1; then
        fail "accepted: $*"
    fi
    grep -qi "$reason" /tmp/refused || fail "refused otherwise: $* : $(cat /tmp/refused)"
}

has() {
    grep -q "$1" "$2" || fail "no '$1' in: $(cat "$2")"
}

# until_true WHAT COMMAND...: waits a minute for it. `state` is a command that
# says how things are when it never comes.
until_true() {
    what=$1
    shift
    tries=0
    until eval "$*"; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "never came: $what: $(eval "${state:-:}")"
        sleep 0.1
    done
}

wait_for() {
    until_true "$1" "[ -e $1 ]"
}

# How many lines of the kernel's log have these words. `grep -c` fails where it counts none.
kernel_said() {
    dmesg | grep -c "$1" || true
}

# A file of random bytes.
random() {
    dd if=/dev/urandom of="$1" bs=4096 count="$(($2 / 4096))" 2>/dev/null
}

at_exit() {
    status=$?
    if [ $status != 0 ]; then
        echo "--- exit $status, the kernel's last lines"
        dmesg | tail -25
    fi
}
trap at_exit EXIT
