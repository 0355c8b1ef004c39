# Mounts of every version, and what programs do to them.
# Set by the caller besides ADDR, PORT, STEPS, SEED: EXPORTS, all paths, and TRIED,
# those that are tried.

step the pseudo file system
attach 4.2 / /mnt
[ "$(echo $(ls /mnt))" = "$(echo "$EXPORTS" | tr -d /)" ] || fail "/: $(ls -la /mnt)"
! touch /mnt/new 2>/tmp/said || fail "the pseudo file system can be written"
first=/mnt${EXPORTS%% *}
echo through >"$first/file"
detach "$first" /mnt

for version in 3 4.0 4.1 4.2; do
    step "$version: what is no file is opened by name"
    attach "$version" /mem /a
    attach "$version" /dir /b
    mkfifo /a/fifo
    mknod /a/null c 1 3
    ln -s linked /a/link
    mkdir /a/folder
    # What was looked up before is opened another way than what was not.
    for known in yes no; do
        [ $known = no ] || ls -l /a /b >/dev/null
        echo through >/a/fifo &
        [ "$(cat /a/fifo)" = through ] || fail "$version: a FIFO"
        wait
        echo gone >/a/null || fail "$version: a device for writing"
        [ -z "$(cat /a/null)" ] || fail "$version: a device"
        refused 'No such device or address' cat /b/socket
        echo "$known" >/a/link || fail "$version: a link for writing"
        [ "$(cat /a/linked)" = "$known" ] || fail "$version: a link"
        refused 'Is a directory' dd if=/dev/null of=/a/folder
        detach /a /b
        attach "$version" /mem /a
        attach "$version" /dir /b
    done
    rm /a/fifo /a/null /a/link /a/linked
    rmdir /a/folder
    detach /a /b
done

for export in $TRIED; do
    step "$export: 4.2 over 8 connections beside 4.1"
    attach 4.2 "$export" /a nconnect=8
    attach 4.1 "$export" /b
    exercise data "$STEPS" /a /b
    lacks='\[\]'
    # What is below a directory may have no reflinks.
    [ "$export" = /mem ] || lacks='\(\[\]\|\["clone"\]\)'
    has "lacks $lacks\$" /tmp/exercised
    mkdir -m 777 /a/names
    exercise names "$STEPS" /a/names /b/names
    has 'lacks \[\]$' /tmp/exercised
    rm -r /a/names
    exercise listing "$STEPS" /a
    exercise locks "$STEPS" /a /b

    step "$export: verified load"
    fio --minimal --output=/tmp/fio --directory=/a --verify_fatal=1 --verify=crc32c \
        --group_reporting --name=direct --ioengine=libaio --direct=1 --iodepth=16 \
        --rw=randwrite --bssplit=4k/60:16k/20:128k/15:1m/5 --size=8M \
        --name=buffered --ioengine=psync --rw=randrw --bs=16k --size=4M \
        --name=mapped --ioengine=mmap --rw=randwrite --bs=4k --size=2M ||
        fail "load: $(cat /tmp/fio)"
    rm /a/direct* /a/buffered* /a/mapped*

    step "$export: a delegation comes back when another wants to write"
    echo first >/b/shared
    exec 3</a/shared
    cat /a/shared >/dev/null
    echo second >/b/shared
    [ "$(cat /a/shared)" = second ] || fail "$(cat /a/shared)"
    exec 3<&-
    [ "$(sent /a DELEGRETURN)" -gt 0 ] || fail "no delegation was recalled"

    step "$export: rights"
    mkdir -m 700 /a/closed
    echo secret >/a/closed/file
    chmod 644 /a/closed/file
    refused denied /tmp/exerciser as 1000 cat /a/closed/file
    mkdir -m 1777 /a/open
    /tmp/exerciser as 1000 sh -c 'umask 022; echo own >/a/open/own'
    [ "$(stat -c %u:%g:%a /b/open/own)" = 1000:1000:644 ] || fail "$(stat /b/open/own)"
    refused 'permitted' /tmp/exerciser as 1001 rm -f /a/open/own
    rm -r /a/closed /a/open
    df /a | grep -q "$export" || fail "$(df /a)"
    detach /a /b

    step "$export: 4.0, over 16 connections 4.1, and 3"
    attach 4.0 "$export" /a
    attach 4.1 "$export" /b nconnect=16
    exercise data "$((STEPS / 2))" /a /b
    mkdir -m 777 /a/names
    exercise names "$((STEPS / 2))" /b/names /a/names
    exercise locks "$((STEPS / 2))" /a /b
    rm -r /a/names
    detach /a
    attach 3 "$export" /a nconnect=8
    exercise data "$((STEPS / 2))" /a /b
    mkdir -m 777 /a/names
    exercise names "$((STEPS / 2))" /a/names /b/names
    exercise listing "$((STEPS / 2))" /a
    rm -r /a/names
    detach /a /b
done
! dmesg | grep -i 'nfs.*error\|nfs.*unhandled\|server returned a bad' || fail "see above"
step end
