# Access control lists on every kind of file system. After nfs-storage.sh. Users are numbers that
# are groups of their own, too.

file=/a/folder/file

# lets USER COMMAND: what it says is the file's content, if it says something.
lets() {
    user=$1
    shift
    /tmp/exerciser as "$user" dash -c "$*" >/tmp/said 2>&1 || fail "$user: $*: $(cat /tmp/said; lists)"
}

denies() {
    user=$1
    shift
    if /tmp/exerciser as "$user" dash -c "$*" >/tmp/said 2>&1; then
        fail "$user may: $*: $(lists)"
    fi
    has denied /tmp/said
}

lists() {
    ls -laR /a/folder
    for of in /a/folder /a/folder/*; do
        nfs4_getfacl $of 2>&1 || true
        getfacl -np $of 2>&1 || true
    done
}

# listed ENTRY FILE: in the list of NFSv4; of version 3, in that of POSIX.
listed() {
    case $1 in
    user:*) getfacl -np "$2" >/tmp/said ;;
    *) nfs4_getfacl "$2" >/tmp/said ;;
    esac
    has "^$1" /tmp/said
}

# A folder with a file that its owner alone reads.
make() {
    attach "$1" "/$2" /a
    mkdir -m 755 /a/folder
    (umask 077 && echo secret >$file)
    denies 1000 cat $file
}

unmake() {
    rm -r /a/folder
    detach /a
}

for export in $exports; do
    for version in 4.2 4.0; do
        step "$export by $version: users, groups"
        make $version $export
        nfs4_setfacl -a A::1000:R $file
        listed A::1000:r $file
        lets 1000 cat $file
        denies 1000 "echo more >>$file"
        denies 1001 cat $file
        nfs4_setfacl -a A:g:1001:R $file
        listed A:g:1001:r $file
        lets 1001 cat $file
        nfs4_setfacl -a A::1000:RW $file
        lets 1000 "echo more >>$file"
        if [ $export != posix ]; then
            nfs4_setfacl -a D::1001:r $file
            listed D::1001:r $file
            denies 1001 cat $file
        fi

        step "$export by $version: a mode that is set"
        chmod 600 $file
        denies 1000 cat $file
        denies 1001 cat $file
        [ "$(stat -c %a $file)" = 600 ] || fail "$(lists)"

        step "$export by $version: what is handed on"
        for entry in A:fd:EVERYONE@:tcy A:fd:GROUP@:tcy A:fd:OWNER@:RWX A:fd:1000:RX; do
            nfs4_setfacl -a $entry /a/folder
        done
        # A client of version 4.0 sends a mode from which the umask is taken.
        umask=077
        [ $version != 4.0 ] || umask=027
        (
            umask $umask
            mkdir /a/folder/below
            echo secret >/a/folder/below/new
        )
        listed A::1000:r /a/folder/below/new
        lets 1000 cat /a/folder/below/new
        denies 1000 "echo more >>/a/folder/below/new"
        denies 1001 cat /a/folder/below/new
        chmod 600 /a/folder/below/new
        denies 1000 cat /a/folder/below/new
        unmake
    done

    step "$export by 3"
    make 3 $export
    attach 4.2 /$export /b
    setfacl -m u:1000:r $file
    listed user:1000:r-- $file
    listed A::1000:r /b/folder/file
    lets 1000 cat $file
    lets 1000 cat /b/folder/file
    denies 1000 "echo more >>$file"
    denies 1001 cat $file
    setfacl -m g:1001:rw $file
    lets 1001 "echo more >>$file"
    chmod 600 $file
    denies 1000 cat $file
    chmod 660 $file
    setfacl -b $file
    chmod 600 $file
    denies 1001 cat $file
    [ -z "$(getfacl -ncs $file)" ] || fail "$(lists)"
    setfacl -d -m u:1000:rx,o::- /a/folder
    (umask 077 && echo secret >/a/folder/new)
    listed user:1000:r-- /a/folder/new
    lets 1000 cat /a/folder/new
    denies 1001 cat /a/folder/new
    (umask 077 && echo secret >/b/folder/other)
    lets 1000 cat /a/folder/other
    denies 1001 cat /a/folder/other
    setfacl -k /a/folder
    detach /b
    unmake
done
step end
