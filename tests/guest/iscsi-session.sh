# A whole session with one target: discovery, login with every way of digests,
# CHAP, file systems, verified load, logout.
# Set by the caller besides ADDR, PORT, IQN: CHAP_IQN, and its USER and SECRET,
# the target's own USER_IN and SECRET_IN.

initiator iqn.2026-01.org.example:guest

step discovery
iscsiadm -m discovery -t sendtargets -p "$ADDR:$PORT" >/tmp/discovered
has "^$ADDR:$PORT,1 $IQN$" /tmp/discovered
has "^$ADDR:$PORT,1 $CHAP_IQN$" /tmp/discovered
iscsiadm -m node -o show -T "$IQN" >/tmp/said

for header in None CRC32C; do
    for data in None CRC32C; do
        step "digests: header $header, data $data"
        field "$IQN" "node.conn[0].iscsi.HeaderDigest" $header
        field "$IQN" "node.conn[0].iscsi.DataDigest" $data
        login "$IQN"
        disks 1
        iscsiadm -m session -P 2 >/tmp/said
        has "HeaderDigest: $header" /tmp/said
        has "DataDigest: $data" /tmp/said
        fio --minimal --output=/tmp/fio --filename=/dev/sda --direct=1 --verify_fatal=1 \
            --verify=crc32c --group_reporting --name=mix --ioengine=libaio --iodepth=32 \
            --rw=randwrite --bssplit=4k/70:16k/15:64k/10:512k/5 --size=8M ||
            fail "load: $(cat /tmp/fio)"
        logout "$IQN"
    done
done

step unsolicited data
field "$IQN" node.session.iscsi.InitialR2T No
field "$IQN" node.session.iscsi.ImmediateData Yes
login "$IQN"
disks 1

step identity
sg_inq /dev/sda >/tmp/said
has "Vendor identification: WEFT" /tmp/said
sg_vpd --page=0x83 /dev/sda >/tmp/said
has "EUI-64" /tmp/said
[ -n "$(cat /sys/block/sda/device/wwid)" ] || fail "no wwid"

step ext4
try_ext4 /dev/sda

step xfs
try_xfs /dev/sda

step reset
sg_reset --device /dev/sda
sg_turs /dev/sda || sg_turs /dev/sda
logout "$IQN"

step CHAP
refused "authori[sz]ation\|authentication" iscsiadm -m node -T "$CHAP_IQN" -p "$ADDR:$PORT" --login
field "$CHAP_IQN" node.session.auth.authmethod CHAP
field "$CHAP_IQN" node.session.auth.username "$USER"
field "$CHAP_IQN" node.session.auth.password "wrong$SECRET"
refused "authori[sz]ation\|authentication" iscsiadm -m node -T "$CHAP_IQN" -p "$ADDR:$PORT" --login
field "$CHAP_IQN" node.session.auth.password "$SECRET"
login "$CHAP_IQN"
disks 1
logout "$CHAP_IQN"

step CHAP both ways
field "$CHAP_IQN" node.session.auth.username_in "$USER_IN"
field "$CHAP_IQN" node.session.auth.password_in "wrong$SECRET_IN"
# The initiator itself finds that the target does not know it.
refused "login failure" iscsiadm -m node -T "$CHAP_IQN" -p "$ADDR:$PORT" --login
field "$CHAP_IQN" node.session.auth.password_in "$SECRET_IN"
login "$CHAP_IQN"
disks 1
logout "$CHAP_IQN"
step end
