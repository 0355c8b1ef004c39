# The end of all data of an encrypted volume that is a namespace and a LUN at once: by NVMe Format
# NVM and Sanitize, and by SCSI SANITIZE. The other protocol sees what is left.
# Set by the caller besides ADDR, PORT, IQN: NVME_PORT and NQN, the same volume as namespace 1,
# and MARK, the text that is written to it.

initiator iqn.2026-01.org.example:guest
modprobe nvme_tcp

# What the first MiB of a disk has.
first_mib() {
    dd if="$1" of=/tmp/back bs=1M count=1 iflag=direct 2>/tmp/said || fail "$1: $(cat /tmp/said)"
}

write() {
    dd if=/tmp/data of=/dev/nvme0n1 bs=1M oflag=direct 2>/tmp/said || fail "$(cat /tmp/said)"
    for disk in /dev/nvme0n1 /dev/sda; do
        first_mib $disk
        cmp /tmp/data /tmp/back || fail "$disk has not what was written"
    done
}

erased() {
    for disk in /dev/nvme0n1 /dev/sda; do
        first_mib $disk
        cmp -n 1048576 /tmp/back /dev/zero || fail "$disk has data"
    done
}

step connect
nvme connect -t tcp -a "$ADDR" -s "$NVME_PORT" -n "$NQN" --keep-alive-tmo=30
wait_for /dev/nvme0n1
iscsiadm -m node -o new -T "$IQN" -p "$ADDR:$PORT" >/tmp/said
login "$IQN"
disks 1
yes "$MARK" | head -c 1048576 >/tmp/data

step format
refused "INVALID\|Invalid" nvme format /dev/nvme0n1 -l 1 -s 2 --force
# What is erased by another way than asked for is erased all the same.
for ses in 2 1; do
    write
    nvme format /dev/nvme0n1 -s $ses --force >/tmp/said || fail "$(cat /tmp/said)"
    erased
done

step sanitize by nvme
write
refused "INVALID\|Invalid" nvme sanitize /dev/nvme0 -a 2
nvme sanitize /dev/nvme0 -a 4 >/tmp/said || fail "$(cat /tmp/said)"
state="cat /tmp/said"
until_true "a sanitize that has ended" 'nvme sanitize-log /dev/nvme0 >/tmp/said && grep -q "(SSTAT) *: *0x[0-9]*1$" /tmp/said'
erased

step sanitize by scsi
write
sg_sanitize --crypto --quick --wait /dev/sda >/tmp/said 2>&1 || fail "$(cat /tmp/said)"
erased
write
sg_sanitize --crypto --quick --early /dev/sda >/tmp/said 2>&1 || fail "$(cat /tmp/said)"
until_true "a LUN that is ready" 'sg_turs /dev/sda >/tmp/said 2>&1'
erased
refused "illegal request\|not supported\|invalid" sg_sanitize --block --quick --wait /dev/sda

step end
write
sync
nvme disconnect -n "$NQN" >/tmp/said
logout "$IQN"
