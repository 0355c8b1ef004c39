#!/usr/bin/env bash
# Builds the image of packaging/Containerfile with podman and runs it with nothing but what it
# needs: a user without rights, no capability, a root that is read only, the profile of system
# calls of packaging/seccomp.json. Arguments: the folder that `cargo xtask static` has made, and
# one for what is fetched. Needs root and Debian.
set -euo pipefail

here=$(cd "$(dirname "$0")/../.." && pwd)
content=$(cd "$1" && pwd)
mkdir -p "$2"
cache=$(cd "$2" && pwd)

root=$cache/root
if [ ! -e "$root" ]; then
    rm -rf "$cache/apt" "$root.part"
    mkdir -p "$cache/apt"
    (cd "$cache/apt" && apt-get download -q -o APT::Sandbox::User= podman conmon crun libyajl2 \
        golang-github-containers-image golang-github-containers-common libgpgme11 libsubid4)
    for deb in "$cache"/apt/*.deb; do dpkg -x "$deb" "$root.part"; done
    mv "$root.part" "$root"
fi

# The rest in namespaces of its own: its ports are no one else's, and it ends with this script.
if [ -z "${WEFT_UNSHARED:-}" ]; then
    export WEFT_UNSHARED=1
    exec unshare --mount --net --pid --fork --kill-child --mount-proc "$0" "$content" "$cache"
fi
ip link set lo up
# crun 1.8 knows either generation of control groups, but not both at once.
umount -R /sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 none /sys/fs/cgroup

work=$(mktemp -d "$cache/work.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
libraries=$root/usr/lib/x86_64-linux-gnu
for program in conmon crun; do
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$libraries" "$root/usr/bin/$program" \
        >"$work/$program"
    chmod +x "$work/$program"
done
cat >"$work/containers.conf" <<CONF
[containers]
cgroups = "disabled"
default_ulimits = []
netns = "host"
[engine]
cgroup_manager = "cgroupfs"
conmon_path = ["$work/conmon"]
events_logger = "none"
runtime = "crun"
[engine.runtimes]
crun = ["$work/crun"]
CONF
cat >"$work/storage.conf" <<CONF
[storage]
driver = "vfs"
graphroot = "$work/graph"
runroot = "$work/run"
CONF
export CONTAINERS_CONF=$work/containers.conf CONTAINERS_STORAGE_CONF=$work/storage.conf

podman() { LD_LIBRARY_PATH=$libraries "$root/usr/bin/podman" --tmpdir "$work/tmp" "$@"; }
weft=$content/weft
# run NAME PROFILE MORE...
run() {
    local name=$1 profile=$2
    shift 2
    podman run --detach --quiet --name "$name" --ulimit host --read-only --read-only-tmpfs=false \
        --cap-drop=ALL --security-opt no-new-privileges --security-opt "seccomp=$profile" \
        "$@" weft >/dev/null
    for _ in $(seq 100); do
        if "$weft" discover 127.0.0.1:4420 >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    podman logs "$name"
    echo "$name does not serve"
    exit 1
}
# In order: its last word is a report, and the exit code is 0.
ended() {
    podman stop --time 20 "$1" >/dev/null
    [ "$(podman inspect --format '{{.State.ExitCode}}' "$1")" = 0 ]
}
verified() {
    "$weft" perf "$1" --rw randrw --verify --size 16MiB --bs 4k --runtime 2s --ramp-time 0 |
        tee "$work/perf" | grep -i iops || { cat "$work/perf"; exit 1; }
}
nvme=nvme-tcp://127.0.0.1:4420/nqn.2026-01.io.weft:disk0?nsid=1
data() { mkdir "$work/$1" && chown 65532:65532 "$work/$1" && echo "$work/$1"; }
set -x

podman build --quiet --signature-policy "$root/etc/containers/policy.json" --isolation chroot \
    --tag weft "$content"
# The image is the program and its configuration.
image=$(podman image mount weft)
[ "$(cd "$image" && find . -type f | sort | tr '\n' ' ')" = "./etc/weft/weft.toml ./weft " ]
podman image unmount weft
"$weft" --version | grep static

# As it is: io_uring, and no right but to its folder.
run plain "$content/seccomp.json" --volume "$(data plain-data)":/data
pid=$(podman inspect --format '{{.State.Pid}}' plain)
for field in "Uid:	65532" "Gid:	65532" "CapBnd:	0*$" "CapEff:	0*$" "NoNewPrivs:	1" "Seccomp:	2"; do
    grep "^$field" "/proc/$pid/status"
done
podman exec plain /weft status | grep "volumes *1"
podman logs plain 2>&1 | grep io_uring
verified "$nvme"
ended plain
[ "$(stat -c %u "$work/plain-data/disk0.img")" = 65532 ]

# Where a runtime's profile leaves io_uring out, as most do.
sed 's/"io_uring_[a-z]*",//g' "$content/seccomp.json" >"$work/without.json"
run without "$work/without.json" --volume "$(data without-data)":/data
podman logs without 2>&1 | grep "using epoll"
verified "$nvme"
ended without

# What contrib/kubernetes/weft.yaml has it serve, and what it asks of it.
mkdir "$work/config"
sed -n '/^  weft.toml: |$/,/^---$/{s/^    //p;/^$/p}' "$here/contrib/kubernetes/weft.yaml" \
    >"$work/config/weft.toml"
files=$(data files)
# As a claim with an fsGroup.
chown 0:65532 "$files" && chmod 2775 "$files"
run kubernetes "$content/seccomp.json" --volume "$(data kubernetes-data)":/data \
    --volume "$files":/files --volume "$work/config":/etc/weft:ro
for probe in healthz readyz; do
    [ "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:4480/$probe")" = 200 ]
done
[ "$(curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:4480/metrics)" = 401 ]
verified "$nvme"
verified nfs://127.0.0.1/files/file
ended kubernetes
[ "$(stat -c %u:%g "$files/file")" = 65532:65532 ]
echo THE CONTAINER SERVES AND ENDS AS IT SHOULD
