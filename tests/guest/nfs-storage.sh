# Files of weft's on the storage machine: in memory, in a folder with lists of its own, and in one
# with lists of POSIX. After LAB, storage.sh, NFS.

exports="mem kept posix"
modprobe null_blk nr_devices=0
disk=/sys/kernel/config/nullb/nullb9
mkdir $disk
echo 1 >$disk/memory_backed
echo 64 >$disk/size
echo 1 >$disk/power
wait_for /dev/nullb9
mkfs.ext4 -q -F /dev/nullb9
mount -t ext4 /dev/nullb9 $debian/srv
for folder in kept posix state; do
    mkdir -m 755 $debian/srv/$folder
done
{
    cat <<T
[nfs]
state = "/srv/state"
lease_ms = 10000
grace_ms = 30000

[[file_system]]
name = "mem"
kind = "mem"
size = "64MiB"

[[file_system]]
name = "kept"
kind = "dir"
path = "/srv/kept"
acl = "nfs4"

[[file_system]]
name = "posix"
kind = "dir"
path = "/srv/posix"
acl = "posix"

[[listener]]
address = "$ADDR:$PORT"
protocol = "nfs"

[[listener]]
address = "$ADDR:111"
protocol = "nfs"
programs = ["portmap"]

[admin]
listen = "off"
T
    for export in $exports; do
        cat <<T

[[export]]
path = "/$export"
file_system = "$export"
allow_any_client = true
squash = "none"
T
    done
} >$debian/etc/weft.toml
serve /etc/weft.toml $storage
