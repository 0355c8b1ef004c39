# An initiator while its target is changed by commands. Each MARK asks the machine for one;
# the loads beside it must not see an error.
# Set by the caller besides ADDR, PORT, IQN: OTHER, an initiator that is shut out.

initiator iqn.2026-01.org.example:guest

step connect
iscsiadm -m node -o new -T "$IQN" -p "$ADDR:$PORT" >/tmp/said
login "$IQN"
disks 1
loads /dev/sda

step the volume grows
echo "MARK grow"
until_true "a unit attention" "dmesg | grep -qi 'capacity data has changed'"
iscsiadm -m session --rescan >/tmp/said
until_true "128 MiB" '[ "$(cat /sys/block/sda/size)" = 262144 ]'
loads_go_on

step another initiator is shut out
iscsiadm -m iface -o new -I other >/tmp/said
iscsiadm -m iface -I other -o update -n iface.initiatorname -v "$OTHER" >/tmp/said
iscsiadm -m node -o new -I other -T "$IQN" -p "$ADDR:$PORT" >/tmp/said
echo "MARK mask"
until_true "a refusal" '! iscsiadm -m node -I other -T "$IQN" --login >/tmp/said 2>&1 ||
    ! iscsiadm -m node -I other -T "$IQN" --logout'
has "authorization failure" /tmp/said
loads_go_on

step the initiator is evicted
# A session that is new begins with a unit attention.
sessions=$(kernel_said "Power-on or device reset")
echo "MARK evict"
until_true "another session" '[ "$(kernel_said "Power-on or device reset")" -gt '"$sessions ]"
until_true "a session" '[ "$(cat /sys/class/iscsi_session/session*/state)" = LOGGED_IN ]'
loads_go_on

step the configuration goes back
echo "MARK rollback"
until_true "the other initiator" 'iscsiadm -m node -I other -T "$IQN" --login >/tmp/said 2>&1'
iscsiadm -m node -I other -T "$IQN" --logout >/tmp/said
loads_go_on

step logout
loads_end
echo "loads: $(wc -l </tmp/loads)"
logout "$IQN"
step end
