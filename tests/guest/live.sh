# A host while its target is changed under it. Each MARK asks the machine for a
# change; the load beside it must not see an error.
# Set by the caller besides ADDR, PORT, NQN: SECOND, the port of the other path.

connect() {
    nvme connect -t "$TRANSPORT" -a "$ADDR" -s "$1" -n "$NQN" --nr-io-queues=2 \
        --keep-alive-tmo=30 --reconnect-delay=1 --ctrl-loss-tmo=120
}

sectors() {
    cat /sys/block/nvme0n"$1"/size
}

# Nor has the kernel.
all_loaded() {
    loaded
    if dmesg | grep -q "I/O error\|critical medium error"; then
        fail "an I/O error reached the block layer"
    fi
}

step connect over two paths
connect "$PORT"
connect "$SECOND"
wait_for /dev/nvme0n1
until_true "two paths" '[ "$(ls -d /sys/class/nvme/nvme*/nvme0c*n1 2>/dev/null | wc -l)" = 2 ]'
until_true "both optimized" '[ "$(cat /sys/class/nvme/nvme*/nvme0c*n1/ana_state | grep -cx optimized)" = 2 ]'

step failover under load
load /dev/nvme0n1 8 &
sleep 1
echo "MARK failover"
until_true "a path inaccessible" 'grep -qx inaccessible /sys/class/nvme/nvme*/nvme0c*n1/ana_state'
all_loaded
echo "MARK failover ends"
until_true "both optimized again" '[ "$(cat /sys/class/nvme/nvme*/nvme0c*n1/ana_state | grep -cx optimized)" = 2 ]'

step a path lost under load
load /dev/nvme0n1 4 &
sleep 1
echo "MARK lose"
all_loaded
echo "MARK regain"
until_true "both live" '[ "$(cat /sys/class/nvme/nvme*/state | grep -cx live)" = 2 ]'

step resize under load
load /dev/nvme0n1 4 &
sleep 1
echo "MARK resize"
until_true "128 MiB" '[ "$(sectors 1)" = 262144 ]'
until_true "96 MiB" '[ "$(sectors 1)" = 196608 ]'
all_loaded

step resets under load
load /dev/nvme0n1 5 &
for n in 1 2 3 4; do
    sleep 1
    nvme reset /dev/nvme$((n % 2))
done
all_loaded

step 256 namespaces
echo "MARK many"
until_true "256 namespaces" '[ "$(ls -d /sys/block/nvme0n* | wc -l)" = 256 ]'
for n in 2 100 255 256; do
    wait_for /dev/nvme0n$n
    random /tmp/data 4096
    dd if=/tmp/data of=/dev/nvme0n$n bs=4k count=1 oflag=direct 2>/dev/null
    dd if=/dev/nvme0n$n of=/tmp/back bs=4k count=1 iflag=direct 2>/dev/null
    cmp /tmp/data /tmp/back
done
nvme list-ns /dev/nvme0 >/tmp/said
[ "$(wc -l </tmp/said)" = 256 ] || fail "$(tail -n 3 /tmp/said)"
echo "MARK few"
until_true "one namespace" '[ "$(ls -d /sys/block/nvme0n* | wc -l)" = 1 ]'

step disconnect
nvme disconnect-all
step end
