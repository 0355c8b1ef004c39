# The kernel's server of files over TLS, behind SECURE and KNFSD, for clients on the machine:
# until a connection arrives at the second port.

certificates
tls_daemon
served
echo "MARK served"
nc -l -p 2050 </dev/null >/dev/null
