# The disks of a target that targetcli has made, served by the kernel, by weft from the import of
# what targetcli has saved, and by the kernel from what weft exports: the same disks to a host.
# Set by the caller besides ADDR, PORT: IQN.

initiator iqn.2026-01.org.example:guest
# Where Debian's targetcli and the kernel keep what outlives them.
state=/etc/rtslib-fb-target
mkdir -p $state $debian$state /etc/target
modprobe -a target_core_mod target_core_file target_core_iblock iscsi_target_mod
modprobe null_blk nr_devices=0
block=/sys/kernel/config/nullb/nullb9
mkdir $block
echo 1 >$block/memory_backed
echo 64 >$block/size
echo 512 >$block/blocksize
echo 1 >$block/power
wait_for /dev/nullb9

written() {
    iscsiadm -m node -o new -T "$IQN" -p "$ADDR:$PORT" >/tmp/said
    login "$IQN"
    disks 2
    for disk in /dev/sda /dev/sdb; do
        random /tmp/data 1048576
        dd if=/tmp/data of=$disk bs=64k oflag=direct 2>/dev/null
    done
    logout "$IQN"
}

targetcli() {
    debian /usr/bin/python3 /usr/bin/targetcli "$@" >/tmp/targetcli 2>&1 || fail "targetcli $*: $(cat /tmp/targetcli)"
}

# It does not start without a system bus, on which it looks for handlers of user space.
mkdir -p $debian/run/dbus
debian /usr/bin/dbus-daemon --session --fork --address=unix:path=/run/dbus/system_bus_socket

step targetcli makes a target
cat >/tmp/commands <<T
/backstores/fileio create db /srv/db.img 64M
/backstores/block create fast /dev/nullb9
/iscsi create $IQN
/iscsi/$IQN/tpg1/luns create /backstores/fileio/db
/iscsi/$IQN/tpg1/luns create /backstores/block/fast
/iscsi/$IQN/tpg1/acls create iqn.2026-01.org.example:guest
saveconfig
T
targetcli </tmp/commands
saved=$state/saveconfig.json
[ -s $debian$saved ] || fail "nothing saved: $(cat /tmp/targetcli)"
written
identities /tmp/kernel "$IQN" 2
cat /tmp/kernel

step weft serves what it imports
targetcli clearconfig confirm=True
weft import targetcli $saved >$debian/srv/weft.toml 2>/tmp/report ||
    fail "import: $? $(cat /tmp/report)"
cat /tmp/report
weft check /srv/weft.toml >/tmp/said 2>&1 || fail "check: $(cat /tmp/said)"
serve /srv/weft.toml
identities /tmp/weft "$IQN" 2
same /tmp/kernel /tmp/weft

step the kernel serves what weft exports
weft import --back targetcli /srv/weft.toml >$debian/srv/back.json 2>/tmp/report ||
    fail "export: $? $(cat /tmp/report)"
unserve
targetcli restoreconfig /srv/back.json
cat /tmp/targetcli
identities /tmp/back "$IQN" 2
same /tmp/kernel /tmp/back
step end
