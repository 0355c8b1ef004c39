# A storage machine in the guest: the network namespace `storage` at 192.0.2.1. The guest itself is
# at 192.0.2.2. After LAB.

# `ip netns exec` would keep copies of all mounts.
storage="nsenter --net=/run/netns/storage"

step network
modprobe veth
ip netns add storage
ip link add outside type veth peer name outside netns storage
ip address add 192.0.2.2/24 dev outside
ip link set outside up
$storage ip address add 192.0.2.1/24 dev outside
$storage ip link set outside up
$storage ip link set lo up
