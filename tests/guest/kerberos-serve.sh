# The kernel's server of files with Kerberos, behind KNFSD, for clients on the machine, whose KDC
# has made its key: until a connection arrives at the second port. Set by the caller: SECURITY;
# the machine's folder `kerberos` has krb5.conf and nfs.keytab.

hostname localhost
echo "127.0.0.1 localhost" >/etc/hosts
echo "root:x:0:0:root:/root:/bin/sh" >/etc/passwd
echo "root:x:0:" >/etc/group
keys=/etc/kerberos
# A program that accepts tickets remembers them in /var/tmp.
mkdir -p $keys /var/tmp
modprobe -a 9p 9pnet_virtio rpcsec_gss_krb5 authenc krb5enc
mount -t 9p -o ro,trans=virtio kerberos $keys
cp $keys/krb5.conf /etc/krb5.conf
cp $keys/nfs.keytab /etc/krb5.keytab
served
# The kernel asks it for the contexts of clients.
rpc.svcgssd
echo "MARK served"
nc -l -p 2050 </dev/null >/dev/null
