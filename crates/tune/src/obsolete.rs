//! What lists of tuning advice still name, and why weft does not.

/// A setting that brings nothing, and the reason.
pub(crate) struct Obsolete {
    pub(crate) name: &'static str,
    pub(crate) why: &'static str,
}

/// Taken from the tuning guides of storage and NIC vendors.
pub(crate) const OBSOLETE: &[Obsolete] = &[
    Obsolete {
        name: "net.core.rmem_max, wmem_max, rmem_default, wmem_default",
        why: "bound buffers that a program sets itself; weft leaves them to TCP (tcp_rmem, tcp_wmem)",
    },
    Obsolete {
        name: "net.ipv4.tcp_low_latency",
        why: "does nothing since Linux 4.14",
    },
    Obsolete {
        name: "net.ipv4.tcp_adv_win_scale",
        why: "does nothing since Linux 6.6",
    },
    Obsolete {
        name: "net.ipv4.tcp_timestamps = 0",
        why: "saves 12 of 1,448 bytes, and takes the clock that loss recovery goes by",
    },
    Obsolete {
        name: "net.ipv4.tcp_tw_recycle",
        why: "gone since Linux 4.12",
    },
    Obsolete {
        name: "net.ipv4.tcp_mem",
        why: "a limit for all of TCP that grows with the machine's memory at boot",
    },
    Obsolete {
        name: "net.core.optmem_max",
        why: "for control data and notices of MSG_ZEROCOPY; weft sends neither",
    },
    Obsolete {
        name: "net.core.busy_read",
        why: "for receives that block; weft has none",
    },
    Obsolete {
        name: "vm.nr_hugepages, hugetlbfs",
        why: "weft asks for transparent huge pages and needs no reserve",
    },
    Obsolete {
        name: "isolcpus, nohz_full",
        why: "for threads that never sleep; a reactor sleeps when there is nothing to do",
    },
    Obsolete {
        name: "mitigations=off",
        why: "makes system calls cheaper, of which weft makes one for some 50 I/Os under load",
    },
];
