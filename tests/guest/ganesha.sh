# Files that NFS-Ganesha serves from a ganesha.conf, and weft from the import of it: the same.
# Set by the caller besides ADDR, PORT.

mkdir -p $debian/etc/ganesha $debian/run/ganesha $debian/var/lib/nfs/ganesha
ln -s /proc/mounts $debian/etc/mtab
cp /etc/netconfig $debian/etc/netconfig
log=$debian/run/ganesha/log
cat >$debian/etc/ganesha/ganesha.conf <<T
NFS_CORE_PARAM { NFS_Port = $PORT; Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; }
NFSv4 { Grace_Period = 5; Lease_Lifetime = 5; Minor_Versions = 1, 2; Only_Numeric_Owners = true; }
EXPORT_DEFAULTS { SecType = sys; Access_Type = RW; }
EXPORT {
    Export_Id = 1;
    Path = /srv/open;
    Pseudo = /open;
    Squash = no_root_squash;
    FSAL { Name = VFS; }
}
%include "kept.conf"
T
cat >$debian/etc/ganesha/kept.conf <<T
EXPORT {
    Export_Id = 2;
    Path = /srv/kept;
    Pseudo = /below/kept;
    Access_Type = RO;
    Squash = root_squash;
    FSAL { Name = VFS; }
}
EXPORT {
    Export_Id = 3;
    Path = /srv/mapped;
    Pseudo = /mapped;
    Access_Type = NONE;
    FSAL { Name = VFS; }
    CLIENT {
        Clients = 10.0.2.0/24;
        Access_Type = RW;
        Squash = all_squash;
        Anonymous_Uid = 1000;
        Anonymous_Gid = 1000;
    }
}
T

seen() {
    looks "$1" /open vers=4.2 /below/kept vers=4.1 /mapped vers=4.2
    cat "$1"
}

step Ganesha serves
LD_LIBRARY_PATH=/usr/lib/ganesha chroot $debian /usr/bin/ganesha.nfsd -F -L /run/ganesha/log \
    -f /etc/ganesha/ganesha.conf -p /run/ganesha/pid >/tmp/ganesha 2>&1 &
ganesha=$!
state='cat /tmp/ganesha; tail -n 40 $log'
until_true "Ganesha" 'grep -qs "NFS SERVER INITIALIZED" $log || ! kill -0 $ganesha'
kill -0 $ganesha || fail "Ganesha: $(eval "$state")"
seen /tmp/ganesha.looks
kill -9 $ganesha
wait $ganesha || true

step weft serves what it imports
weft import ganesha /etc/ganesha/ganesha.conf >$debian/srv/weft.toml 2>/tmp/report ||
    fail "import: $? $(cat /tmp/report)"
cat /tmp/report
weft check /srv/weft.toml >/tmp/said 2>&1 || fail "check: $(cat /tmp/said $debian/srv/weft.toml)"
serve /srv/weft.toml
seen /tmp/weft.looks
unserve
same /tmp/ganesha.looks /tmp/weft.looks
step end
