# What initiators know disks by, and what is in them. After LAB and ISCSI.

# identities FILE, then IQN and how many disks, once or more.
identities() {
    to=$1
    shift
    : >"$to"
    while [ $# -gt 0 ]; do
        iscsiadm -m node -o new -T "$1" -p "$ADDR:$PORT" >/tmp/said
        login "$1"
        disks "$2"
        for disk in /sys/block/sd*; do
            lun=$(ls -d "$disk"/device/scsi_device/*)
            disk=$(basename "$disk")
            echo "$1 LUN ${lun##*:}"
            # What names it in /dev/disk/by-id and to multipathd. The number of the port is no
            # name of the disk.
            debian /lib/udev/scsi_id --export --whitelisted -d /dev/"$disk" | grep -v ID_TARGET_PORT
            debian /lib/udev/scsi_id --whitelisted --page=0x80 -d /dev/"$disk"
            cat /sys/block/"$disk"/size /sys/block/"$disk"/ro
            dd if=/dev/"$disk" bs=64k count=16 iflag=direct 2>/dev/null | sha256sum
        done >>"$to"
        logout "$1"
        shift 2
    done
}
