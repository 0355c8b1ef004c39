# dm-multipath over two portals, with ALUA, while the target is changed under a
# verified load. Each MARK asks the machine for a change.
# Set by the caller besides ADDR, PORT, IQN: SECOND, the port of the other path.

initiator iqn.2026-01.org.example:guest
setting node.session.timeo.replacement_timeout 5
setting "node.conn[0].timeo.noop_out_interval" 5
setting "node.conn[0].timeo.noop_out_timeout" 30

state="multipath -ll"

step connect over two portals
for port in "$PORT" "$SECOND"; do
    iscsiadm -m node -o new -T "$IQN" -p "$ADDR:$port" >/tmp/said
    login "$IQN" "$port"
done
disks 2
modprobe -a dm_multipath dm_service_time scsi_dh_alua
mkdir -p /run/udev/data
[ -e /var/run ] || ln -s /run /var/run
# What udev would have written, which is not there.
wwid=
for disk in sda sdb; do
    id=$(sed -n 's/^eui\.//p' /sys/block/$disk/device/wwid)
    [ -n "$id" ] || fail "no name: $(cat /sys/block/$disk/device/wwid)"
    [ -z "$wwid" ] || [ "$wwid" = "$id" ] || fail "two names: $wwid, $id"
    wwid=$id
    printf 'I:1\nE:ID_SERIAL=2%s\nE:ID_WWN=0x%s\n' "$id" "$id" >"/run/udev/data/b$(cat /sys/block/$disk/dev)"
done
cat >/etc/multipath.conf <<'C'
defaults {
    find_multipaths no
    polling_interval 1
    max_polling_interval 1
    path_grouping_policy group_by_prio
    prio alua
    failback immediate
    no_path_retry 60
    fast_io_fail_tmo 5
}
C
multipathd -d >/tmp/multipathd 2>&1 &
until_true "two paths" '[ "$(multipath -ll | grep -c "active ready *running")" = 2 ]'
wait_for /dev/dm-0
multipath -ll
multipath -ll >/tmp/said
has "1 alua" /tmp/said

step failover by ALUA
load /dev/dm-0 10 &
sleep 1
echo "MARK failover"
until_true "a unit attention" "dmesg | grep -q 'Asymmetric access state changed'"
until_true "a path on standby" "dmesg | grep -q 'target port in standby state'"
loaded
echo "MARK failover ends"
until_true "two paths again" '[ "$(multipath -ll | grep -c "active ready *running")" = 2 ]'

step a portal lost under load
load /dev/dm-0 10 &
sleep 1
echo "MARK lose"
until_true "one path" '[ "$(multipath -ll | grep -c "active ready *running")" = 1 ]'
loaded
echo "MARK regain"
until_true "two paths" '[ "$(multipath -ll | grep -c "active ready *running")" = 2 ]'

step resize
echo "MARK resize"
until_true "a unit attention" "dmesg | grep -qi 'capacity data has changed'"
iscsiadm -m session --rescan >/tmp/said
until_true "128 MiB" '[ "$(cat /sys/block/sda/size)" = 262144 ]'

step a LUN comes
echo "MARK lun"
until_true "a unit attention" "dmesg | grep -qi 'LUN assignments on this target have changed'"
iscsiadm -m session --rescan >/tmp/said
disks 4

step logout
kill %1 2>/dev/null || true
killall multipathd || true
sleep 1
dmsetup remove_all || true
iscsiadm -m node -T "$IQN" --logout >/tmp/said
step end
