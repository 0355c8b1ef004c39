# Disks that tgtd serves from a targets.conf, and weft from the import of it: the same disks.
# Set by the caller besides ADDR, PORT: IQN, how the targets' names begin.

initiator iqn.2026-01.org.example:guest
setting node.session.auth.authmethod CHAP
setting node.session.auth.username alice
setting node.session.auth.password what-alice-knows
mkdir -p $debian/etc/tgt/conf.d $debian/run/tgtd
for disk in a b c d; do
    random $debian/srv/$disk.img 2097152
done

# Names and paths in another order than that of the alphabet.
cat >$debian/etc/tgt/targets.conf <<T
include /etc/tgt/conf.d/*.conf
<target $IQN:z>
    backing-store /srv/b.img
    backing-store /srv/a.img
    incominguser alice what-alice-knows
</target>
T
cat >$debian/etc/tgt/conf.d/one.conf <<T
<target $IQN:b>
    controller_tid 7
    incominguser alice what-alice-knows
    initiator-address ALL
    <backing-store /srv/c.img>
        scsi_id IET     c0ffee
        scsi_sn C0FFEE
        vendor_id ACME Corporation
        product_id a crate of disks
        product_rev 2.0
        readonly 1
        lun 5
    </backing-store>
    <backing-store /srv/d.img>
        block-size 4096
    </backing-store>
</target>
T

looks() {
    identities "$1" "$IQN:b" 2 "$IQN:z" 2
    # LUN 0 of tgt is no disk.
    debian /usr/bin/iscsi-ls -s "iscsi://alice%what-alice-knows@$ADDR:$PORT" >/tmp/said 2>&1 ||
        fail "iscsi-ls: $(cat /tmp/said)"
    grep -v 'Lun:0 ' /tmp/said | sort >>"$1"
    cat "$1"
    # Serial numbers of tgt stand at the end of 36 bytes; what reads them cuts blanks off.
    sed -i 's/ //g' "$1"
}

step tgtd serves
chroot $debian /usr/sbin/tgtd -f >/tmp/tgtd 2>&1 &
tgtd=$!
until_true "tgtd" 'debian /usr/sbin/tgtadm --op show --mode target >/tmp/said 2>&1'
debian /usr/sbin/tgt-admin -e -c /etc/tgt/targets.conf >/tmp/said 2>&1 || fail "tgt-admin: $(cat /tmp/said)"
looks /tmp/tgt
kill -9 $tgtd
wait $tgtd || true

step weft serves what it imports
weft import tgt /etc/tgt/targets.conf --secrets /srv >$debian/srv/weft.toml 2>/tmp/report ||
    fail "import: $? $(cat /tmp/report)"
cat /tmp/report
weft check /srv/weft.toml >/tmp/said 2>&1 || fail "check: $(cat /tmp/said $debian/srv/weft.toml)"
serve /srv/weft.toml
looks /tmp/weft
unserve
same /tmp/tgt /tmp/weft
step end
