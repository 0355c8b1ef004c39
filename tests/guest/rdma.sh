# A host that connects by RDMA: soft iWARP on its network. Set by the caller: SIW, the kernel
# module.

step "$SIW"
modprobe "$SIW"
modprobe nvme_rdma
rdma link add siw0 type siw netdev eth0
rdma link show >/tmp/said
has siw0 /tmp/said
TRANSPORT=rdma
