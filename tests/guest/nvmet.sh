# The namespaces of the kernel's NVMe target, served by weft from the import of what the kernel
# serves, and by the kernel from what weft exports: the same disks to a host.
# Set by the caller besides ADDR, PORT, NQN.

modprobe -a nvmet nvmet_tcp
modprobe null_blk nr_devices=0
nvmet=/sys/kernel/config/nvmet
host=$(cat /etc/nvme/hostnqn)

step the kernel serves
mkdir $nvmet/hosts/"$host" $nvmet/subsystems/"$NQN"
ln -s $nvmet/hosts/"$host" $nvmet/subsystems/"$NQN"/allowed_hosts/"$host"
echo 0 >$nvmet/subsystems/"$NQN"/attr_allow_any_host
for nsid in 1 7; do
    block=/sys/kernel/config/nullb/nullb$nsid
    mkdir $block
    echo 1 >$block/memory_backed
    echo $((nsid * 16)) >$block/size
    echo 512 >$block/blocksize
    echo 1 >$block/power
    wait_for /dev/nullb$nsid
    namespace=$nvmet/subsystems/$NQN/namespaces/$nsid
    mkdir "$namespace"
    echo -n /dev/nullb$nsid >"$namespace"/device_path
    if [ $nsid = 7 ]; then
        echo 6001405a-b123-4567-8012-3456789abcde >"$namespace"/device_nguid
    fi
    echo 1 >"$namespace"/enable
done
mkdir $nvmet/ports/1
for key in "adrfam ipv4" "trtype tcp" "traddr $ADDR" "trsvcid $PORT"; do
    echo "${key#* }" >$nvmet/ports/1/addr_"${key%% *}"
done
ln -s $nvmet/subsystems/"$NQN" $nvmet/ports/1/subsystems/"$NQN"

# What names a disk in /dev/disk/by-id, of each namespace.
identities() {
    nvme connect -t tcp -a "$ADDR" -s "$PORT" -n "$NQN" >/tmp/said
    wait_for /dev/nvme0n2
    # The other namespace has no NGUID of the kernel's; weft gives it one.
    cat /sys/block/nvme0n2/nguid >"$1"
    for disk in nvme0n1 nvme0n2; do
        (cd /sys/block/$disk && cat nsid wwid uuid size device/serial device/model)
        dd if=/dev/$disk bs=64k count=16 iflag=direct 2>/dev/null | sha256sum
    done >>"$1" 2>/tmp/said || fail "$(cat "$1" /tmp/said)"
    if [ -n "${2:-}" ]; then
        eval "$2"
    fi
    nvme disconnect-all
}

written() {
    for disk in /dev/nvme0n1 /dev/nvme0n2; do
        random /tmp/data 1048576
        dd if=/tmp/data of=$disk bs=64k oflag=direct 2>/dev/null
    done
}

identities /tmp/empty written
identities /tmp/kernel
cat /tmp/kernel

step weft serves what it imports
weft import --live nvmet >$debian/srv/weft.toml 2>/tmp/report || fail "import: $? $(cat /tmp/report)"
cat /tmp/report
rm $nvmet/ports/1/subsystems/"$NQN"
rmdir $nvmet/ports/1 $nvmet/subsystems/"$NQN"/namespaces/*
rm $nvmet/subsystems/"$NQN"/allowed_hosts/"$host"
rmdir $nvmet/subsystems/"$NQN" $nvmet/hosts/"$host"
weft check /srv/weft.toml >/tmp/said 2>&1 || fail "check: $(cat /tmp/said)"
serve /srv/weft.toml
identities /tmp/weft
same /tmp/kernel /tmp/weft

step the kernel serves what weft exports
weft import --back nvmetcli /srv/weft.toml >$debian/srv/back.json 2>/tmp/report ||
    fail "export: $? $(cat /tmp/report)"
unserve
# nvmetcli is no package of Debian: this does what its `restore` does with each key.
cat >$debian/srv/restore.py <<'P'
import json, os, sys

ROOT = "/sys/kernel/config/nvmet"
saved = json.load(open(sys.argv[1]))


def make(*parts):
    path = os.path.join(ROOT, *map(str, parts))
    os.mkdir(path)
    return path


def attributes(path, table):
    for group, keys in table.items():
        if isinstance(keys, dict):
            for key, value in keys.items():
                with open(f"{path}/{group}_{key}", "w") as file:
                    file.write(str(value))


for host in saved["hosts"]:
    make("hosts", host["nqn"])
for subsystem in saved["subsystems"]:
    path = make("subsystems", subsystem["nqn"])
    attributes(path, subsystem)
    for nqn in subsystem["allowed_hosts"]:
        os.symlink(f"{ROOT}/hosts/{nqn}", f"{path}/allowed_hosts/{nqn}")
    for namespace in subsystem["namespaces"]:
        inner = make("subsystems", subsystem["nqn"], "namespaces", namespace["nsid"])
        attributes(inner, namespace)
        with open(f"{inner}/enable", "w") as file:
            file.write(str(namespace["enable"]))
for port in saved["ports"]:
    path = make("ports", port["portid"])
    attributes(path, port)
    for nqn in port["subsystems"]:
        os.symlink(f"{ROOT}/subsystems/{nqn}", f"{path}/subsystems/{nqn}")
P
debian /usr/bin/python3 /srv/restore.py /srv/back.json >/tmp/said 2>&1 ||
    fail "restore: $(cat /tmp/said $debian/srv/back.json)"
identities /tmp/back
same /tmp/kernel /tmp/back
step end
