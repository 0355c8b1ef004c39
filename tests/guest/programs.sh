# Configurations of programs that are no packages of Debian: weft serves what it imports, and this
# kernel finds what the source names. After LAB, ISCSI, ISCSI_IDENTITIES and FILES_LOOKS.
# Set by the caller besides ADDR.

# imported FORMAT: weft serves /srv/source.
imported() {
    weft import "$1" /srv/source --secrets /srv >$debian/srv/weft.toml 2>/tmp/report ||
        fail "import: $? $(cat /tmp/report)"
    cat /tmp/report
    # Where a source names no address, the import serves this machine alone.
    sed -i "s/127.0.0.1:2049/$ADDR:2049/" $debian/srv/weft.toml
    weft check /srv/weft.toml >/tmp/said 2>&1 ||
        fail "check: $(cat /tmp/said $debian/srv/weft.toml)"
    serve /srv/weft.toml
}

# expect FILE: has the lines that come.
expect() {
    while read -r line; do
        grep -qxF -- "$line" "$1" || fail "no '$line' in: $(cat "$1")"
    done
}

# namespace NQN FILE: its names, once it has been written and read.
namespace() {
    nvme connect -t tcp -a "$ADDR" -s 4420 -n "$1" >/tmp/said
    wait_for /dev/nvme0n1
    random /tmp/data 1048576
    dd if=/tmp/data of=/dev/nvme0n1 bs=64k oflag=direct 2>/dev/null
    dd if=/dev/nvme0n1 bs=64k count=16 iflag=direct 2>/dev/null | cmp - /tmp/data
    for name in nsid uuid nguid size device/serial device/model device/subsysnqn; do
        echo "$name $(cat /sys/block/nvme0n1/$name 2>/dev/null)"
    done | sed 's/ *$//' >"$2"
    nvme disconnect-all
    cat "$2"
}

initiator iqn.2026-01.org.example:guest
nqn=nqn.2026-01.org.example
iqn=iqn.2026-01.org.example

step SPDK, JSON
cat >$debian/srv/source <<T
{"subsystems": [
 {"subsystem": "bdev", "config": [
  {"method": "bdev_malloc_create", "params": {"name": "m0", "num_blocks": 16384,
   "block_size": 512, "uuid": "0b1c7c52-8d0e-4d0c-9c9f-5d5b1d1f0a01"}},
  {"method": "bdev_malloc_create", "params": {"name": "c0ffee", "num_blocks": 8192, "block_size": 512}}]},
 {"subsystem": "nvmf", "config": [
  {"method": "nvmf_create_transport", "params": {"trtype": "TCP"}},
  {"method": "nvmf_create_subsystem", "params": {"nqn": "$nqn:spdk", "allow_any_host": false,
   "serial_number": "SERIAL-SPDK", "model_number": "a model"}},
  {"method": "nvmf_subsystem_add_host", "params": {"nqn": "$nqn:spdk", "host": "$(cat /etc/nvme/hostnqn)"}},
  {"method": "nvmf_subsystem_add_ns", "params": {"nqn": "$nqn:spdk", "namespace": {"nsid": 5,
   "bdev_name": "m0", "nguid": "6001405AB123456780123456789ABCDE"}}},
  {"method": "nvmf_subsystem_add_listener", "params": {"nqn": "$nqn:spdk", "listen_address":
   {"trtype": "TCP", "adrfam": "IPv4", "traddr": "$ADDR", "trsvcid": "4420"}}}]},
 {"subsystem": "iscsi", "config": [
  {"method": "iscsi_create_portal_group", "params": {"tag": 1, "portals": [{"host": "$ADDR", "port": "3260"}]}},
  {"method": "iscsi_create_initiator_group", "params": {"tag": 2, "initiators": ["ANY"], "netmasks": ["10.0.2.0/24"]}},
  {"method": "iscsi_create_target_node", "params": {"name": "$iqn:spdk", "alias_name": "a",
   "pg_ig_maps": [{"pg_tag": 1, "ig_tag": 2}], "luns": [{"lun_id": 2, "bdev_name": "c0ffee"}], "queue_depth": 64,
   "disable_chap": true}}]}]}
T
imported spdk
namespace $nqn:spdk /tmp/looks
expect /tmp/looks <<T
nsid 5
uuid 0b1c7c52-8d0e-4d0c-9c9f-5d5b1d1f0a01
nguid 6001405a-b123-4567-8012-3456789abcde
size 16384
device/serial SERIAL-SPDK
device/model a model
device/subsysnqn $nqn:spdk
T
identities /tmp/looks $iqn:spdk 1
cat /tmp/looks
expect /tmp/looks <<T
$iqn:spdk LUN 2
ID_VENDOR=INTEL
ID_SCSI_SERIAL=c0ffee
8192
T
unserve

step SPDK, INI
cat >$debian/srv/source <<T
[Malloc]
  NumberOfLuns 1
  LunSizeInMB 8
[Transport]
  Type TCP
[Subsystem1]
  NQN $nqn:ini
  Listen TCP $ADDR:4420
  AllowAnyHost No
  Host $(cat /etc/nvme/hostnqn)
  SN SERIAL-INI
  Namespace Malloc0 3
T
imported spdk-ini
namespace $nqn:ini /tmp/looks
expect /tmp/looks <<T
nsid 3
size 16384
device/serial SERIAL-INI
device/model SPDK bdev Controller
T
unserve

step ctl.conf, classic
random $debian/srv/ctl.img 2097152
cat >$debian/srv/source <<T
auth-group ag0 {
    chap alice what-alice-knows
    initiator-name $iqn:guest
}
portal-group pg0 {
    discovery-auth-group no-authentication
    listen $ADDR
}
target $iqn:ctl {
    auth-group ag0
    portal-group pg0
    lun 3 {
        path /srv/ctl.img
        serial "FB0001"
        option naa 0x50015178f369f093
        option vendor ACME
        option product crate
        option revision 2.0
    }
}
T
setting node.session.auth.authmethod CHAP
setting node.session.auth.username alice
setting node.session.auth.password what-alice-knows
imported ctl
identities /tmp/looks $iqn:ctl 1
cat /tmp/looks
expect /tmp/looks <<T
$iqn:ctl LUN 3
ID_VENDOR=ACME
ID_MODEL=crate
ID_REVISION=2.0
ID_SERIAL=350015178f369f093
ID_SCSI_SERIAL=FB0001
4096
$(dd if=$debian/srv/ctl.img bs=64k count=16 2>/dev/null | sha256sum)
T
unserve

step ctl.conf, UCL
cat >$debian/srv/source <<T
auth-group { ag1 { host-nqn = "$(cat /etc/nvme/hostnqn)" } }
transport-group { tg0 { listen { tcp = "$ADDR" } } }
controller {
    "$nqn:ucl" {
        auth-group = ag1
        transport-group = tg0
        namespace { 4 { path = "/srv/ctl.img", serial = "FB0002" } }
    }
}
T
imported ctl-ucl
namespace $nqn:ucl /tmp/looks
expect /tmp/looks <<T
nsid 4
size 4096
device/subsysnqn $nqn:ucl
T
unserve

step exports of BSD
PORT=2049
cat >$debian/srv/source <<T
V4: / -sec=sys
/srv/open -maproot=root -network 10.0.2.0 -mask 255.255.255.0
/srv/kept -ro $ADDR
/srv/mapped -mapall=1000:1000 $ADDR
T
imported exports-bsd
looks /tmp/looks /srv/open vers=4.2 /srv/kept vers=3,nolock,mountport=2049,mountproto=tcp \
    /srv/mapped vers=4.1
cat /tmp/looks
unserve
for export in open kept mapped; do
    echo "what $export has"
done | expect /tmp/looks
grep "new-root\|secret" /tmp/looks >/tmp/rights
cat >/tmp/expected <<T
./folder/secret 600 0:0 regular file
new-root 0:0
./folder/secret 600 0:0 regular file
cat: can't open './folder/secret': Permission denied
touch: /tmp/found/new-root: Read-only file system
stat: can't stat 'new-root': No such file or directory
./folder/secret 600 0:0 regular file
cat: can't open './folder/secret': Permission denied
new-root 1000:1000
T
same /tmp/expected /tmp/rights
step end
