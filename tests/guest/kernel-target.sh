# The kernel's own target in this guest, so that a script is known to be right
# before it judges another target: one RAM-backed namespace on loopback.
modprobe -a configfs null_blk nvmet nvmet_"$TRANSPORT"
mount -t configfs none /sys/kernel/config
disk=/sys/kernel/config/nullb/disk
mkdir -p $disk
echo 1 >$disk/memory_backed
echo 512 >$disk/blocksize
echo 256 >$disk/size
echo 1 >$disk/discard
echo 1 >$disk/power
nvmet=/sys/kernel/config/nvmet
mkdir $nvmet/subsystems/"$NQN"
echo 1 >$nvmet/subsystems/"$NQN"/attr_allow_any_host
mkdir $nvmet/subsystems/"$NQN"/namespaces/1
echo -n /dev/disk >$nvmet/subsystems/"$NQN"/namespaces/1/device_path
[ -e /dev/disk ] || echo -n /dev/nullb0 >$nvmet/subsystems/"$NQN"/namespaces/1/device_path
echo 1 >$nvmet/subsystems/"$NQN"/namespaces/1/enable
mkdir $nvmet/ports/1
echo ipv4 >$nvmet/ports/1/addr_adrfam
echo "$TRANSPORT" >$nvmet/ports/1/addr_trtype
echo "$ADDR" >$nvmet/ports/1/addr_traddr
echo "$PORT" >$nvmet/ports/1/addr_trsvcid
ln -s $nvmet/subsystems/"$NQN" $nvmet/ports/1/subsystems/"$NQN"
