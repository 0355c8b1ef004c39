# Files with Kerberos, behind knfsd.sh, in a realm of this guest's own.

# realm: its KDC, and a key for the client and the server on this guest.
realm() {
    hostname localhost
    echo "127.0.0.1 localhost" >/etc/hosts
    echo "root:x:0:0:root:/root:/bin/sh" >/etc/passwd
    # A program that accepts tickets remembers them in /var/tmp.
    mkdir -p /var/krb5kdc /var/tmp
    cat >/etc/krb5.conf <<K
[libdefaults]
default_realm = TEST
dns_canonicalize_hostname = false
rdns = false
[realms]
TEST = {
    kdc = 127.0.0.1:88
}
K
    cat >/etc/kdc.conf <<K
[realms]
TEST = {
    database_name = /var/krb5kdc/principal
    key_stash_file = /var/krb5kdc/stash
    kdc_listen = 127.0.0.1:88
    kdc_tcp_listen = 127.0.0.1:88
}
[logging]
kdc = FILE:/tmp/kdc.log
K
    export KRB5_KDC_PROFILE=/etc/kdc.conf
    {
        kdb5_util create -s -r TEST -P secret
        kadmin.local addprinc -randkey nfs/localhost
        kadmin.local ktadd -k /etc/krb5.keytab nfs/localhost
        krb5kdc
    } >/tmp/said 2>&1 || fail "realm: $(cat /tmp/said /tmp/kdc.log)"
}

step realm
realm
modprobe -a rpcsec_gss_krb5 authenc krb5enc
served
# The kernel asks these two for the contexts of either side.
rpc.svcgssd
rpc.gssd -p $pipes
for security in krb5 krb5i krb5p; do
    step $security
    attached sec=$security
done

step without Kerberos
shut_out_of_files sec=sys
step end
