# What a client hears that writes 64 MiB to file systems of 16 MiB.
# Set by the caller besides ADDR, PORT: EXPORTS.

# full HOW: the writer ends, and knows why. One that is never told can hardly be
# ended: then the guest's time is over.
full() {
    case $1 in
    buffered) flag=--end_fsync=1 ;;
    sync) flag=--sync=1 ;;
    direct) flag=--direct=1 ;;
    esac
    status=0
    timeout 10 fio --name=full --filename=/a/full --ioengine=psync --rw=write --bs=1M \
        --size=64M --fallocate=none "$flag" >/tmp/full 2>&1 || status=$?
    [ $status != 0 ] || fail "$1: 64 MiB fit: $(cat /tmp/full)"
    has 'No space left on device' /tmp/full
    size=$(stat -c %s /a/full)
    # A client with a write delegation tells the size that it has wanted.
    case $version-$1 in
    4.1-buffered | 4.2-buffered) most=67108864 ;;
    *) most=67108863 ;;
    esac
    [ "$size" -gt 8388608 ] && [ "$size" -le $most ] || fail "$1: $size bytes"
    rm /a/full
}

for export in $EXPORTS; do
    # So that of one write only a part fits.
    attach 4.2 "$export" /a
    random /a/filler 307200
    detach /a
    for version in 3 4.0 4.1 4.2; do
        attach $version "$export" /a
        for how in buffered sync direct; do
            step "$export: version $version, $how"
            full $how
        done
        # There is room again.
        echo written >/a/small
        sync
        [ "$(cat /a/small)" = written ] || fail "$(cat /a/small)"
        rm /a/small
        detach /a
    done
done
step end
