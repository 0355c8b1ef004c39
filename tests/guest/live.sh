# A host while its target is changed under it. Each MARK asks the machine for a
# change; the load beside it must not see an error.
# Set by the caller besides ADDR, PORT, NQN: SECOND, the port of the other path.

connect() {
    nvme connect -t tcp -a "$ADDR" -s "$1" -n "$NQN" --nr-io-queues=2 \
        --keep-alive-tmo=30 --reconnect-delay=1 --ctrl-loss-tmo=120
}

until_true() {
    what=$1
    shift
    tries=0
    until eval "$*"; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "never came: $what"
        sleep 0.1
    done
}

sectors() {
    cat /sys/block/nvme0n"$1"/size
}

# A verified load in the first 4 MiB, for as many seconds as $1 says: written
# whole and read back, again and again. One block size and no backlog: fio 3.33
# frees a block twice where verified blocks overlap while writes go on.
load() {
    fio --minimal --output=/tmp/fio --filename=/dev/nvme0n1 --direct=1 --verify_fatal=1 \
        --verify=crc32c --name=load --ioengine=libaio --iodepth=8 --rw=randwrite \
        --bs=16k --size=4M --time_based --runtime="$1" \
        >/tmp/fio.said 2>&1 || touch /tmp/load-failed
    touch /tmp/load-ended
}

loaded() {
    until_true "the load's end" "[ -e /tmp/load-ended ]"
    [ ! -e /tmp/load-failed ] || fail "load: $(cat /tmp/fio.said /tmp/fio)"
    rm /tmp/load-ended
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
load 8 &
sleep 1
echo "MARK failover"
until_true "a path inaccessible" 'grep -qx inaccessible /sys/class/nvme/nvme*/nvme0c*n1/ana_state'
loaded
echo "MARK failover ends"
until_true "both optimized again" '[ "$(cat /sys/class/nvme/nvme*/nvme0c*n1/ana_state | grep -cx optimized)" = 2 ]'

step a path lost under load
load 4 &
sleep 1
echo "MARK lose"
loaded
echo "MARK regain"
until_true "both live" '[ "$(cat /sys/class/nvme/nvme*/state | grep -cx live)" = 2 ]'

step resize under load
load 4 &
sleep 1
echo "MARK resize"
until_true "128 MiB" '[ "$(sectors 1)" = 262144 ]'
until_true "96 MiB" '[ "$(sectors 1)" = 196608 ]'
loaded

step resets under load
load 5 &
for n in 1 2 3 4; do
    sleep 1
    nvme reset /dev/nvme$((n % 2))
done
loaded

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
