# Files over TLS, behind knfsd.sh: a server that is known by its certificate, and a client that
# is too.

certificates
tls_daemon
served
for security in tls mtls; do
    step $security
    attached xprtsec=$security
done

step without TLS
shut_out_of_files xprtsec=none
step end
