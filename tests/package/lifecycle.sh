# The life of the Debian package in a system with systemd as process 1: installed, used,
# reloaded, upgraded, hung, started by its socket, removed; then that of the RPM. Arguments: the
# package, the same with a higher version, the RPM.
set -eux
export DEBIAN_FRONTEND=noninteractive
first=$1 second=$2 rpm=$3
nqn=nqn.2026-01.io.weft:disk0
file=/etc/weft/weft.toml

trap '[ $? = 0 ] || journalctl -u weft --no-pager -n 20' EXIT

main_pid() { systemctl show -P MainPID weft; }
# until SECONDS COMMAND...
until_true() {
    local end=$(($(date +%s) + $1))
    shift
    until "$@"; do
        [ "$(date +%s)" -lt "$end" ] || { echo "NOT TRUE IN TIME: $*"; return 1; }
        sleep 0.2
    done
}
refused() { if "$@"; then echo "SUCCEEDS: $*"; return 1; fi; }

# Installed: it runs as its own user, and serves this machine alone.
dpkg -i "$first"
systemctl is-active weft
systemctl is-enabled weft
[ "$(stat -c %U "/proc/$(main_pid)")" = weft ]
systemctl status --no-pager weft | grep 'Status: "1 volume, listens on 127.0.0.1:4420"'
weft status | grep "serves *$file"
weft check "$file"
[ -e /usr/share/man/man1/weft-serve.1.gz ]
bash -c 'source /usr/share/bash-completion/completions/weft; complete -p weft'
journalctl -u weft --no-pager | grep io_uring
refused systemctl -q is-active weft.socket
systemd-analyze security --no-pager --threshold=20 weft.service
weft perf "nvme-tcp://127.0.0.1:4420/$nqn?nsid=1" \
    --rw randrw --verify --size 16MiB --bs 4k --runtime 2s --ramp-time 0
# Nobody else asks.
refused setpriv --reuid=nobody weft status --at /run/weft/admin.sock

# Reloaded: what the file says now is served, and a mistake in it changes nothing.
pid=$(main_pid)
sed -i 's/^size = "1GiB"/size = "2GiB"/' "$file"
systemctl reload weft
weft status | grep "volumes *1"
weft discover 127.0.0.1:4420 | grep "$nqn"
sed -i 's/^size = "2GiB"/size = "2 kilometres"/' "$file"
refused systemctl reload weft
journalctl -u weft --no-pager | grep kilometres
systemctl is-active weft
sed -i 's/^size = "2 kilometres"/size = "2GiB"/' "$file"
kill -HUP "$pid"
until_true 10 sh -c 'journalctl -u weft --no-pager | grep " reloaded "'
until_true 10 systemctl -q is-active weft
[ "$(main_pid)" = "$pid" ]

# Changed by a command: the file has it, with its comments and its owner.
sed 's/^size = "2GiB"/size = "3GiB"/' "$file" >/packages/new.toml
weft apply -c /packages/new.toml
grep 'size = "3GiB"' "$file"
grep 'sparse: it takes what is written' "$file"
[ "$(stat -c %U "$file")" = weft ]
weft history

# Upgraded under load: no host is cut, and the file stays as it was edited.
weft perf "nvme-tcp://127.0.0.1:4420/$nqn?nsid=1" \
    --rw randrw --verify --size 16MiB --bs 4k --runtime 60s --ramp-time 0 &
load=$!
sleep 1
dpkg -i "$second"
[ "$(main_pid)" = "$pid" ]
grep 3GiB "$file"
kill -INT "$load"
wait "$load"
systemctl restart weft
[ "$(main_pid)" != "$pid" ]

# A process that hangs is ended by the watchdog, and started anew.
mkdir -p /etc/systemd/system/weft.service.d
printf '[Service]\nWatchdogSec=3\nTimeoutAbortSec=1\n' >/etc/systemd/system/weft.service.d/test.conf
systemctl daemon-reload
systemctl restart weft
pid=$(main_pid)
kill -STOP "$pid"
until_true 60 sh -c '[ "$(systemctl show -P NRestarts weft)" = 1 ]'
until_true 30 systemctl -q is-active weft
[ "$(main_pid)" != "$pid" ]
journalctl -u weft --no-pager | grep -i watchdog

# Killed: it is started anew too.
kill -KILL "$(main_pid)"
until_true 30 sh -c '[ "$(systemctl show -P NRestarts weft)" = 2 ]'
until_true 30 systemctl -q is-active weft

# Started by its socket: who connects first waits, and is served.
systemctl stop weft
systemctl start weft.socket
refused systemctl -q is-active weft
weft discover 127.0.0.1:4420 | grep "$nqn"
systemctl is-active weft
systemctl restart weft
weft discover 127.0.0.1:4420 | grep "$nqn"

# A key for TLS that systemd hands over, then one that the keyring of its user has, each by the
# drop-in that docs/security.md gives.
host=nqn.2014-08.org.nvmexpress:uuid:6d1f0a5e-5f0c-4a2b-9c57-3f2f6f6b7e01
with_tls() {
    weft perf "nvme-tcp://127.0.0.1:4420/$nqn?nsid=1" --hostnqn "$host" --psk-file /etc/credstore/db1.psk \
        --rw randrw --verify --size 16MiB --bs 4k --runtime 1s --ramp-time 0
}
drop_in() {
    printf '[Service]\n%s\n' "$1" >/etc/systemd/system/weft.service.d/secrets.conf
    systemctl daemon-reload
    systemctl restart weft
}
mkdir -p /etc/credstore
weft key new /etc/credstore/db1.psk --host "$host" --subsystem "$nqn"
cat >>"$file" <<TOML
[[nvme.subsystem.host]]
nqn = "$host"
psk_file = "credential:db1"
TOML
drop_in LoadCredential=db1:/etc/credstore/db1.psk
with_tls
setpriv --reuid=weft --regid=weft --clear-groups keyctl padd user weft:db1 @u </etc/credstore/db1.psk
sed -i 's/"credential:db1"/"keyring:weft:db1"/' "$file"
drop_in KeyringMode=shared
with_tls

# Kerberos: the library is loaded, and a file of keys read.
ktutil <<'KEYS'
addent -password -p nfs/files.example.org@EXAMPLE.ORG -k 1 -e aes256-cts-hmac-sha1-96
secret
wkt /etc/weft/weft.keytab
quit
KEYS
chown weft: /etc/weft/weft.keytab
printf '[nfs.kerberos]\nkeytab = "weft.keytab"\ndomain = "example.org"\n' >>"$file"
systemctl restart weft
grep libgssapi_krb5 "/proc/$(main_pid)/maps"
rm /etc/systemd/system/weft.service.d/secrets.conf
systemctl daemon-reload

# Removed, and purged: what it stored stays.
pid=$(main_pid)
dpkg -r weft
[ ! -e "/proc/$pid" ]
[ -e "$file" ]
dpkg -P weft
[ ! -e "$file" ]
[ -e /var/lib/weft/disk0.img ]

# The RPM, whose dependencies this system keeps elsewhere. The volume has been grown, which the
# file as it is installed does not say.
rm -r /var/lib/weft
rpm -qlp "$rpm"
rpm -qp --requires "$rpm"
[ "$(rpm -qp --configfiles "$rpm")" = "$file" ]
rpm -i --test --nodeps "$rpm"
rpm -i --nodeps "$rpm"
systemctl is-enabled weft
systemctl start weft
systemctl status --no-pager weft | grep 'Status: "1 volume, listens on 127.0.0.1:4420"'
weft discover 127.0.0.1:4420 | grep "$nqn"
pid=$(main_pid)
rpm -U --nodeps --replacepkgs --force "$rpm"
[ "$(main_pid)" = "$pid" ]
rpm -e weft
[ ! -e "/proc/$pid" ]
[ -e /var/lib/weft/disk0.img ]
echo THE PACKAGES LIVE AND END AS THEY SHOULD
