# Mounts of every version by RDMA: data, links and listings that fit in a message and that
# have memory of their own.

# used FOLDER: it is mounted by RDMA, calls and answers had memory of their own, and the
# client found none of them wrong.
used() {
    awk -v folder="$1" '
        $1 == "device" { here = $5 == folder }
        here && $1 == "xprt:" { print }' /proc/self/mountstats >/tmp/said
    # shellcheck disable=SC2046
    set -- $(cat /tmp/said)
    [ "$2" = rdma ] || fail "not by RDMA: $*"
    shift 12
    # Chunks to read, to write and for all of an answer.
    for chunks in "$1" "$2" "$3"; do
        [ "$chunks" -gt 0 ] || fail "no chunks: $*"
    done
    [ "${10}" = 0 ] || fail "wrong answers: $*"
}

for version in 3 4.0 4.1 4.2; do
    step "$version: data"
    attach "$version" /mem /a
    # Of another version, so that it is a client of its own.
    other=4.2
    [ "$version" != 4.2 ] || other=4.1
    attach "$other" /mem /b
    random /tmp/large 8388608
    for size in 1 1021 4093 4096 4097 1048577 8388608; do
        head -c $size /tmp/large >/tmp/want
        cp /tmp/want /a/file$size
        cmp /tmp/want /b/file$size || fail "$version: $size bytes"
    done
    sync
    echo 3 >/proc/sys/vm/drop_caches
    for size in 1 1021 4093 4096 4097 1048577 8388608; do
        head -c $size /tmp/large | cmp - /a/file$size || fail "$version: $size bytes, read again"
    done

    step "$version: direct"
    for size in 4096 8192 1048576; do
        dd if=/tmp/large of=/a/direct bs=$size count=4 oflag=direct 2>/dev/null
        head -c $((4 * size)) /tmp/large >/tmp/want
        cmp /tmp/want /b/direct || fail "$version: direct, $size bytes"
        dd if=/b/direct of=/tmp/back bs=$size iflag=direct 2>/dev/null
        cmp /tmp/want /tmp/back || fail "$version: direct, $size bytes, read"
        rm /a/direct
    done

    step "$version: links and names"
    for length in 5 1019 3000 4090; do
        text=$(head -c $length /dev/zero | tr '\0' l)
        ln -s "$text" /a/link
        [ "$(readlink /b/link)" = "$text" ] || fail "$version: a link of $length bytes"
        rm /a/link
    done
    mkdir /a/many
    name=$(head -c 200 /dev/zero | tr '\0' n)
    n=0
    while [ $n -lt 60 ]; do
        n=$((n + 1))
        : >/a/many/$name$n
    done
    [ "$(ls /b/many | wc -l)" = 60 ] || fail "$version: $(ls /b/many | wc -l) names"
    [ "$(ls -l /b/many | grep -c " $name")" = 60 ] || fail "$version: names with attributes"
    mv /a/many/${name}1 /a/many/other
    [ -e /b/many/other ] || fail "$version: a new name"
    [ ! -e /b/many/${name}1 ] || fail "$version: an old name"
    rm -r /a/many /a/file*
    used /a
    detach /a /b
done
step end
