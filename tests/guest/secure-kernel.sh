# The kernel's own target in this guest behind KERNEL_TARGET, with what security asks of it.

# tls_port PORT TREQ: one more port, which speaks TLS; TREQ says whether it must.
tls_port() {
    port=$nvmet/ports/$1
    mkdir "$port"
    for key in "adrfam ipv4" "trtype tcp" "traddr $ADDR" "trsvcid $1" "tsas tls1.3" "treq $2"; do
        echo "${key#* }" >"$port/addr_${key%% *}"
    done
    ln -s $nvmet/subsystems/"$NQN" "$port/subsystems/$NQN"
}

# authenticated SECRET CONTROLLER_SECRET HASH GROUP: this host alone is let in, and proves itself.
authenticated() {
    mkdir -p $nvmet/hosts/"$host"
    echo "$1" >$nvmet/hosts/"$host"/dhchap_key
    echo "$2" >$nvmet/hosts/"$host"/dhchap_ctrl_key
    echo "$3" >$nvmet/hosts/"$host"/dhchap_hash
    echo "$4" >$nvmet/hosts/"$host"/dhchap_dhgroup
    echo 0 >$nvmet/subsystems/"$NQN"/attr_allow_any_host
    [ -e $nvmet/subsystems/"$NQN"/allowed_hosts/"$host" ] ||
        ln -s $nvmet/hosts/"$host" $nvmet/subsystems/"$NQN"/allowed_hosts/"$host"
}
