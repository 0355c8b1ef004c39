# Files of weft's on the machine, with Kerberos: its KDC is there too. Two users have keys and
# tickets of their own. Set by the caller: ADDR (a name of the machine), PORT; the machine's folder
# `kerberos` has krb5.conf and the keytabs of this guest and its users.

hostname guest.test
printf '%s\n' "127.0.0.1 guest.test localhost" "10.0.2.2 $ADDR" >/etc/hosts
printf '%s\n' "root:x:0:0:root:/root:/bin/sh" "daemon:x:1:1:daemon:/:/bin/dash" \
    "bin:x:2:2:bin:/:/bin/dash" >/etc/passwd
printf '%s\n' "root:x:0:" "daemon:x:1:" "bin:x:2:" >/etc/group
echo 'tcp 6 TCP' >/etc/protocols
modprobe -a 9p 9pnet_virtio nfsv3 nfsv4 rpcsec_gss_krb5 authenc krb5enc
keys=/etc/kerberos
pipes=/run/rpc_pipefs
mkdir -p $keys $pipes /var/tmp
mount -t 9p -o ro,trans=virtio kerberos $keys
mount -t rpc_pipefs pipes $pipes
cp $keys/krb5.conf /etc/krb5.conf
cp $keys/guest.keytab /etc/krb5.keytab
# Owners are names to users with tickets: the kernel asks nfsidmap which users they are here.
printf '%s\n' "[General]" "Domain = test" "[Translation]" "Method = nsswitch" >/etc/idmapd.conf
echo 'create id_resolver * * /usr/sbin/nfsidmap -t 600 %k %d' >/etc/request-key.conf

# gssd [WORDS]: rpc.gssd, once the kernel can ask it: until then mounts are denied.
gssd() {
    rpc.gssd "$@" -p $pipes
    until_true "rpc.gssd" 'ls -l /proc/"$(pidof rpc.gssd)"/fd 2>/dev/null | grep -q "/gssd$"'
}

# tickets USER [WORDS]: new ones, where rpc.gssd looks for them.
tickets() {
    user=$1
    shift
    cache=/tmp/krb5cc_$(id -u "$user")
    kinit.mit -k -t "$keys/$user.keytab" -c "FILE:$cache" "$@" "$user@TEST" >/tmp/said 2>&1 ||
        fail "kinit $user: $(cat /tmp/said)"
    chown "$user" "$cache"
}

# owner FILE: user and group, as daemon sees them.
owner() {
    as daemon "stat -c %U:%G $1"
}

# as USER COMMAND: what a user does, in one line.
as() {
    su "$1" -s /bin/dash -c "$2"
}

# attach VERSION SECURITY
attach() {
    options="vers=$1,sec=$2,proto=tcp,port=$PORT"
    [ "$1" != 3 ] || options="$options,nolock,mountport=$PORT,mountproto=tcp"
    mount.nfs "$ADDR":/ /mnt -o "$options" >/tmp/said 2>&1 ||
        fail "mount -o $options: $(cat /tmp/said)"
}

detach() {
    umount /mnt || fail "umount: $(cat /proc/mounts)"
}

# Kept for a client whose context the server has no more.
same() {
    cmp "$1" "$2" >/tmp/said 2>&1 || fail "cmp: $(cat /tmp/said)"
}

step folders of two users
attach 4.2 sys
for user in daemon bin; do
    mkdir -m 700 /mnt/$user
    chown $user:$user /mnt/$user
done
detach
gssd
tickets daemon
tickets bin
random /tmp/content 1048576
chmod 644 /tmp/content

for version in 4.2 4.1 4.0 3; do
    for security in krb5 krb5i krb5p; do
        step "version $version with $security"
        attach $version $security
        file=/mnt/daemon/$version-$security
        as daemon "cp /tmp/content $file" || fail "daemon cannot write"
        as daemon "cmp /tmp/content $file" || fail "daemon cannot read"
        [ "$(owner "$file")" = daemon:daemon ] || fail "it is of $(owner "$file")"
        as bin "cat $file" >/tmp/said 2>&1 && fail "bin reads what is daemon's"
        as bin "cp /tmp/content /mnt/bin/$version-$security" || fail "bin cannot write"
        # Nobody there knows this machine: it is the anonymous user.
        ls /mnt/daemon >/tmp/said 2>&1 && fail "this machine is root there"
        detach
    done
done

step what was written
attach 4.2 sys
for file in /mnt/daemon/* /mnt/bin/*; do
    same /tmp/content "$file"
done
[ "$(ls /mnt/daemon | wc -l)" = 12 ] || fail "$(ls /mnt/daemon)"
# By AUTH_SYS, as numbers.
for file in /mnt/daemon/*; do
    [ "$(stat -c %u:%g "$file")" = 1:1 ] || fail "$(ls -ln /mnt/daemon)"
done
[ "$(stat -c %u:%g /mnt/bin/3-krb5p)" = 2:2 ] || fail "$(ls -ln /mnt/bin)"
detach

step owners by name
# Now root acts by its own ticket: weft knows it as root.
kill "$(pidof rpc.gssd)" || fail "no rpc.gssd"
until_true "the end of rpc.gssd" '! pidof rpc.gssd >/tmp/said'
gssd -n
tickets root
for version in 4.2 4.1 4.0; do
    attach $version krb5p
    file=/mnt/daemon/given-$version
    cp /tmp/content $file || fail "root cannot write"
    for to in bin:daemon daemon:bin; do
        chown $to $file || fail "chown $to"
        [ "$(stat -c %U:%G $file)" = $to ] || fail "$(ls -l /mnt/daemon)"
    done
    ls -l $file | grep -q " daemon  *bin " || fail "$(ls -l /mnt/daemon)"
    detach
done
# Names went to weft, not numbers: it has those of its own users.
attach 4.2 sys
for version in 4.2 4.1 4.0; do
    [ "$(stat -c %u:%g /mnt/daemon/given-$version)" = 1:2 ] || fail "$(ls -ln /mnt/daemon)"
    rm /mnt/daemon/given-$version
done
detach
rm /tmp/krb5cc_0
kill "$(pidof rpc.gssd)" || fail "no rpc.gssd"
until_true "the end of rpc.gssd" '! pidof rpc.gssd >/tmp/said'
gssd

step ticket that expires and is renewed
attach 4.2 krb5i
rm /tmp/krb5cc_1
as daemon "ls /mnt/daemon" >/tmp/said 2>&1 && fail "daemon has no ticket, and reads"
tickets daemon -l 8s
until_true "a context" 'as daemon "ls /mnt/daemon" >/tmp/said 2>&1'
sleep 9
echo 3 >/proc/sys/vm/drop_caches
# The client tries again by itself until there is a new one.
as daemon "cp /tmp/content /mnt/daemon/renewed" >/tmp/copied 2>&1 &
copying=$!
sleep 2
tickets daemon
wait $copying || as daemon "cp /tmp/content /mnt/daemon/renewed" || fail "$(cat /tmp/copied)"
as daemon "cmp /tmp/content /mnt/daemon/renewed" || fail "renewed: not what was written"
detach

step clock of this guest a quarter of an hour ahead
now=$(date +%s)
date -s "@$((now + 900))" >/tmp/said
refused "denied\|not permitted\|invalid" \
    mount.nfs "$ADDR":/ /mnt -o "vers=4.2,sec=krb5,proto=tcp,port=$PORT"
now=$(date +%s)
date -s "@$((now - 900))" >/tmp/said
until_true "a mount" \
    'mount.nfs "$ADDR":/ /mnt -o "vers=4.2,sec=krb5,proto=tcp,port=$PORT" >/tmp/said 2>&1'
detach
step end
