#!/usr/bin/env bash
# Runs lifecycle.sh in a Debian of its own that systemd has booted, as a container. Arguments:
# the folder with the packages, and one for what is fetched and built. Needs root.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
packages=$1 cache=$2
mkdir -p "$cache"

# Programs that are only unpacked, and a root with systemd: made once.
content=systemd,systemd-sysv,dbus,init-system-helpers,rpm,keyutils,krb5-user,libgssapi-krb5-2
tar=$cache/root-$(cksum <<<"$content" | cut -d' ' -f1).tar
if [ ! -e "$tar" ]; then
    mkdir -p "$cache/apt"
    (cd "$cache/apt" && apt-get download -o APT::Sandbox::User= mmdebstrap systemd-container)
    for deb in "$cache"/apt/*.deb; do dpkg -x "$deb" "$cache/programs"; done
    perl "$cache/programs/usr/bin/mmdebstrap" --format=tar --variant=minbase \
        --include="$content" \
        "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$tar.part.tar"
    mv "$tar.part.tar" "$tar"
fi

root=$(mktemp -d "$cache/root.XXXXXX")
trap 'rm -rf --one-file-system "$root"' EXIT
tar -C "$root" -xf "$tar"
mkdir "$root/packages"
cp "$packages"/weft_*.deb "$packages"/weft-*.rpm "$here/lifecycle.sh" "$root/packages"
# The same with a higher version.
dpkg-deb -R "$(ls "$packages"/weft_*.deb)" "$root/packages/next"
sed -i 's/^Version: .*/&+next/' "$root/packages/next/DEBIAN/control"
dpkg-deb -Znone -b "$root/packages/next" "$root/packages/next.deb" >/dev/null
cat >"$root/etc/systemd/system/lifecycle.service" <<'UNIT'
[Unit]
Wants=network.target dbus.service
After=dbus.service
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'bash /packages/lifecycle.sh /packages/weft_*.deb /packages/next.deb /packages/weft-*.rpm >/packages/log 2>&1; echo $? >/packages/code'
ExecStopPost=systemctl --no-block poweroff
[Install]
WantedBy=multi-user.target
UNIT
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -s ../lifecycle.service "$root/etc/systemd/system/multi-user.target.wants/"

# Its own network, with a loopback alone. io_uring and keyrings are not among what containers may
# by default.
timeout --kill-after=10 300 env LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/systemd \
    "$cache/programs/usr/bin/systemd-nspawn" --quiet --directory="$root" --register=no \
    --keep-unit --private-network --console=pipe --system-call-filter="@aio @keyring" --boot \
    </dev/null >"$root/packages/console" 2>&1 || true
code=$(cat "$root/packages/code" 2>/dev/null || echo none)
if [ "$code" != 0 ]; then
    tail -n 20 "$root/packages/console"
    tail -n 60 "$root/packages/log" 2>/dev/null || true
    echo "the script has ended with: $code"
    exit 1
fi
grep -E "^THE PACKAGES|Overall exposure" "$root/packages/log"
