# The kernel's server of files by RDMA, behind RDMA and KNFSD, for clients on the machine: until a
# connection arrives at the second port.

served
echo rdma 20049 >/proc/fs/nfsd/portlist
grep -q "rdma 20049" /proc/fs/nfsd/portlist || fail "ports: $(cat /proc/fs/nfsd/portlist)"
echo "MARK served"
nc -l -p 2050 </dev/null >/dev/null
