# RDMA, as whatever the kernel is: soft iWARP on its network. Set by the caller: SIW, the kernel
# module.

step "$SIW"
modprobe -a "$SIW" nvme_rdma rpcrdma
rdma link add siw0 type siw netdev eth0
rdma link show >/tmp/said
has siw0 /tmp/said
TRANSPORT=rdma
