//! Sweeps over everything but the size of an I/O.

use super::series::{
    ADDED, ALLOCATIONS, CLIENT_CPU, CPU_PER_IO, DISTRIBUTION, FAST, FOUR, IOPS, MEAN, NULL, ONE,
    ONE_WRITE, P50, P99, P999, P9999, P99999, PLAIN, POLLING, SLEEPING, SYSCALLS, TARGET_CPU,
    THROUGHPUT, WAKEUPS, bars, by_size, cold, decades, hot, local, same, weft, with,
};
use super::{Axis, Care, Chart, Reference, Scale, SeriesSpec, SweepSpec, Unit};
use crate::load::LoadProtocol::{Iscsi, Nfs, NvmeTcp};
use crate::load::{Load, LoadProtocol, Mode, Payload, Placement, Subject};
use crate::measured::Quantity;
use client::perf::Rw;

const K: f64 = 1024.0;

const fn counts(
    label: &'static str,
    quick: &'static [f64],
    normal: &'static [f64],
    full: &'static [f64],
) -> Axis {
    Axis {
        label,
        scale: Scale::Log2,
        unit: Unit::Count,
        quick,
        normal,
        full,
    }
}

pub(super) const fn categories(
    label: &'static str,
    names: &'static [&'static str],
    quick: &'static [f64],
    full: &'static [f64],
) -> Axis {
    Axis {
        label,
        scale: Scale::Category,
        unit: Unit::Names(names),
        quick,
        normal: full,
        full,
    }
}

pub(super) fn read_or_write(load: &mut Load, x: f64) {
    load.rw = [Rw::RandRead, Rw::RandWrite][x as usize];
}

pub const LATENCY_4K: SweepSpec = SweepSpec {
    name: "latency-4k",
    title: "Latency of 4 KiB: local, remote, and what the network adds",
    paper: "Chelsio, 100G Kernel and User Space NVMe/TCP Using Chelsio TOE: latency table; \
        High performance 100G iSCSI: latency",
    about: "One I/O at a time on one connection, target on one core and client on another. Local: \
        the same kind of volume in the client's own process; files have none, since a file system \
        of weft's is only reached through NFS. Null volume: reads are zeros and writes are \
        dropped.",
    axis: categories("", &["read", "write"], &[0.0, 1.0], &[0.0, 1.0]),
    load: ONE,
    vary: read_or_write,
    series: &[
        local("local", NvmeTcp),
        weft("NVMe/TCP", NvmeTcp, FAST),
        weft("NVMe/TCP, sleeping", NvmeTcp, SLEEPING),
        weft("NVMe/TCP, polling", NvmeTcp, POLLING),
        weft("NVMe/TCP, plain", NvmeTcp, PLAIN),
        with("null volume", FAST_NVME, NULL),
        weft("iSCSI", Iscsi, FAST),
        weft("NFS", Nfs, FAST),
        hot(NvmeTcp),
        cold(NvmeTcp),
    ],
    charts: &[
        bars(MEAN),
        bars(P50),
        bars(P99),
        bars(P999),
        ADDED,
        bars(CPU_PER_IO),
    ],
    references: LATENCY_4K_REFERENCES,
    care: Care::Main,
};

const fn latency(text: &'static str, x: f64, value: f64) -> Reference {
    Reference {
        text,
        quantity: Some(Quantity::MeanUs),
        x: Some(x),
        value,
        unit: "us",
    }
}

const fn added(text: &'static str, x: f64, value: f64) -> Reference {
    Reference {
        quantity: None,
        ..latency(text, x, value)
    }
}

/// Its local figures are those of an NVMe SSD, ours of memory.
const LATENCY_4K_REFERENCES: &[Reference] = &[
    latency("READ local, SSD, user-space target", 0.0, 109.16),
    latency(
        "READ remote, SSD, user-space target, 100 GbE offload",
        0.0,
        114.14,
    ),
    added(
        "READ, added by user-space NVMe/TCP, 100 GbE offload",
        0.0,
        4.98,
    ),
    latency("WRITE local, SSD, user-space target", 1.0, 24.69),
    latency(
        "WRITE remote, SSD, user-space target, 100 GbE offload",
        1.0,
        29.65,
    ),
    added(
        "WRITE, added by user-space NVMe/TCP, 100 GbE offload",
        1.0,
        4.96,
    ),
    latency(
        "READ remote, SSD, kernel target, 100 GbE offload",
        0.0,
        126.28,
    ),
    added(
        "READ, added by kernel NVMe/TCP, 100 GbE offload",
        0.0,
        17.12,
    ),
    latency(
        "WRITE remote, SSD, kernel target, 100 GbE offload",
        1.0,
        40.35,
    ),
    added(
        "WRITE, added by kernel NVMe/TCP, 100 GbE offload",
        1.0,
        16.13,
    ),
    added("READ, added by iSCSI with PDU offload, 100 GbE", 0.0, 15.0),
    added("WRITE, added by iSCSI with PDU offload, 100 GbE", 1.0, 17.0),
];

/// 128 outstanding over all.
fn by_connections(load: &mut Load, x: f64) {
    load.connections = x as u16;
    load.iodepth = (128 / load.connections).max(1);
}

/// 32 outstanding over all.
fn by_connections_large(load: &mut Load, x: f64) {
    by_connections(load, x);
    (load.bs, load.iodepth) = (128 << 10, (32 / load.connections).max(1));
}

const CONNECTION_SERIES: &[SeriesSpec] = &[
    weft("NVMe/TCP", NvmeTcp, FAST),
    weft("NVMe/TCP, plain", NvmeTcp, PLAIN),
    weft("iSCSI", Iscsi, FAST),
    weft("NFS", Nfs, FAST),
    hot(NvmeTcp),
    cold(NvmeTcp),
];

const CONNECTION_CHARTS: &[Chart] = &[IOPS, THROUGHPUT, SYSCALLS, WAKEUPS, P99, TARGET_CPU];

pub const CONNECTIONS_READ: SweepSpec = SweepSpec {
    name: "connections-read",
    title: "Random reads of 4 KiB over the number of connections",
    paper: "SPDK forum 2020, Optimizing user space NVMe-oF TCP transport: system calls for 16 \
        connections",
    about: "128 I/Os outstanding over all connections together, so that what changes is how they \
        are spread.",
    axis: counts(
        "Connections",
        &[1.0, 16.0],
        &[1.0, 4.0, 16.0],
        &[1.0, 4.0, 16.0, 64.0],
    ),
    load: ONE,
    vary: by_connections,
    series: CONNECTION_SERIES,
    charts: CONNECTION_CHARTS,
    references: &[Reference {
        text: "system calls fewer in each round over 16 connections, sends by io_uring",
        quantity: None,
        x: Some(16.0),
        value: 15.0,
        unit: "system calls",
    }],
    care: Care::Other,
};

pub const CONNECTIONS_WRITE: SweepSpec = SweepSpec {
    name: "connections-write",
    title: "Random writes of 4 KiB over the number of connections",
    load: ONE_WRITE,
    references: &[],
    ..CONNECTIONS_READ
};

pub const CONNECTIONS_LARGE_READ: SweepSpec = SweepSpec {
    name: "connections-large-read",
    title: "Random reads of 128 KiB over the number of connections",
    paper: "none",
    about: "32 I/Os outstanding over all connections together.",
    axis: counts("Connections", &[1.0], &[1.0, 4.0], &[1.0, 4.0, 16.0]),
    vary: by_connections_large,
    references: &[],
    ..CONNECTIONS_READ
};

pub const CONNECTIONS_LARGE_WRITE: SweepSpec = SweepSpec {
    name: "connections-large-write",
    title: "Random writes of 128 KiB over the number of connections",
    load: ONE_WRITE,
    ..CONNECTIONS_LARGE_READ
};

fn by_depth(load: &mut Load, x: f64) {
    load.iodepth = x as u16;
}

pub const DEPTH_READ: SweepSpec = SweepSpec {
    name: "depth-read",
    title: "Random reads of 4 KiB over queue depth, polling against sleeping",
    paper: "none",
    about: "One connection. Sleeping: neither side ever spins; polling: both always do.",
    axis: counts(
        "I/Os outstanding",
        &[1.0, 128.0],
        &[1.0, 8.0, 32.0, 128.0],
        &[1.0, 8.0, 32.0, 128.0, 512.0],
    ),
    load: ONE,
    vary: by_depth,
    series: &[
        weft("fast path", NvmeTcp, FAST),
        weft("plain", NvmeTcp, PLAIN),
        weft("sleeping", NvmeTcp, SLEEPING),
        weft("polling", NvmeTcp, POLLING),
        cold(NvmeTcp),
    ],
    charts: &[
        IOPS,
        decades(MEAN),
        decades(P99),
        CPU_PER_IO,
        SYSCALLS,
        WAKEUPS,
    ],
    references: &[],
    care: Care::Other,
};

pub const DEPTH_WRITE: SweepSpec = SweepSpec {
    name: "depth-write",
    title: "Random writes of 4 KiB over queue depth, polling against sleeping",
    load: ONE_WRITE,
    ..DEPTH_READ
};

fn by_cores(load: &mut Load, x: f64) {
    load.target_cores = x as u16;
    (load.connections, load.iodepth) = (8, 16);
}

const fn placed(placement: Placement) -> Mode {
    Mode { placement, ..FAST }
}

pub const CORES_READ: SweepSpec = SweepSpec {
    name: "cores-read",
    title: "Random reads of 4 KiB over cores of the target, placements compared",
    paper: "SPDK forum 2020, Optimizing user space NVMe-oF TCP transport: reads over cores, \
        placement by the adapter on and off",
    about: "Eight connections of 16 I/Os. The client has the cores that the target leaves, or \
        shares them where it leaves none. The ceiling has one core each side everywhere.",
    axis: counts(
        "Cores of the target",
        &[1.0, 2.0],
        &[1.0, 2.0, 4.0],
        &[1.0, 2.0, 4.0, 8.0],
    ),
    load: ONE,
    vary: by_cores,
    series: &[
        weft("least-loaded", NvmeTcp, placed(Placement::LeastLoaded)),
        weft("round-robin", NvmeTcp, placed(Placement::RoundRobin)),
        weft("incoming-cpu", NvmeTcp, placed(Placement::IncomingCpu)),
        cold(NvmeTcp),
    ],
    charts: &[IOPS, MEAN, P99, P9999, CPU_PER_IO],
    references: &[
        Reference {
            text: "cores that saturate 100 GbE at 4 KiB, placement by the adapter",
            quantity: None,
            x: None,
            value: 5.0,
            unit: "cores",
        },
        Reference {
            text: "I/Os a second more with placement by the adapter, up to",
            quantity: None,
            x: None,
            value: 33.0,
            unit: "%",
        },
        Reference {
            text: "99.99th percentile less with placement by the adapter, up to",
            quantity: None,
            x: None,
            value: 26.0,
            unit: "%",
        },
    ],
    care: Care::Other,
};

pub const CORES_WRITE: SweepSpec = SweepSpec {
    name: "cores-write",
    title: "Random writes of 4 KiB over cores of the target, placements compared",
    paper: "SPDK forum 2020, Optimizing user space NVMe-oF TCP transport: writes over cores, \
        placement by the adapter on and off",
    load: ONE_WRITE,
    references: &[],
    ..CORES_READ
};

fn by_rate(load: &mut Load, x: f64) {
    load.rate = Some(x);
    load.iodepth = 256;
}

pub const TAIL: SweepSpec = SweepSpec {
    name: "tail",
    title: "The slowest of many: random reads of 4 KiB at a given rate",
    paper: "SPDK forum 2020, Optimizing user space NVMe-oF TCP transport: 99.99th percentile; \
        Chelsio, NFS/TCP Offload: CPU at equal throughput",
    about: "An open loop over four connections: each I/O starts at its own time, and its latency \
        counts from then, however late it was sent. At equal rates CPU can be compared too. The \
        ceiling is bare sockets with the same times; both their sides always spin.",
    axis: Axis {
        label: "I/Os a second, as asked",
        scale: Scale::Log10,
        unit: Unit::Count,
        quick: &[50_000.0],
        normal: &[20_000.0, 100_000.0],
        full: &[20_000.0, 100_000.0],
    },
    load: Load {
        distribution: true,
        ..FOUR
    },
    vary: by_rate,
    series: &[
        weft("fast path", NvmeTcp, FAST),
        weft("plain", NvmeTcp, PLAIN),
        weft("sleeping", NvmeTcp, SLEEPING),
        weft("polling", NvmeTcp, POLLING),
        cold(NvmeTcp),
    ],
    charts: &[
        DISTRIBUTION,
        bars(P99),
        bars(P999),
        bars(P9999),
        bars(P99999),
        bars(CPU_PER_IO),
        bars(TARGET_CPU),
    ],
    references: &[Reference {
        text: "99.99th percentile less with placement by the adapter, up to",
        quantity: None,
        x: None,
        value: 26.0,
        unit: "%",
    }],
    care: Care::Rare,
};

fn by_mtu(load: &mut Load, x: f64) {
    load.mtu = Some(x as u32);
    (load.bs, load.iodepth) = (128 << 10, 8);
}

pub const MTU_READ: SweepSpec = SweepSpec {
    name: "mtu-read",
    title: "Random reads of 128 KiB over the MTU",
    paper: "Chelsio, NFS/TCP Offload: figures 1 to 4 (MTU 1500 and 9000); the others' settings \
        (4096, 9000)",
    about: "Over a veth pair between two network namespaces, four connections of 8 I/Os. No wire, \
        but the kernel cuts and joins packets as for one. The ceiling is bare sockets over such a \
        pair.",
    axis: Axis {
        label: "MTU, bytes",
        scale: Scale::Linear,
        unit: Unit::Count,
        quick: &[1500.0, 9000.0],
        normal: &[1500.0, 4096.0, 9000.0],
        full: &[1500.0, 4096.0, 9000.0],
    },
    load: FOUR,
    vary: by_mtu,
    series: &[
        weft("NVMe/TCP", NvmeTcp, FAST),
        weft("NVMe/TCP, plain", NvmeTcp, PLAIN),
        weft("iSCSI", Iscsi, FAST),
        weft("NFS", Nfs, FAST),
        weft("NFS, plain", Nfs, PLAIN),
        cold(NvmeTcp),
    ],
    charts: &[THROUGHPUT, TARGET_CPU, CLIENT_CPU, SYSCALLS],
    references: &[
        Reference {
            text: "NFS READ, CPU saved by offload, 100 GbE adapter, MTU 1500",
            quantity: None,
            x: Some(1500.0),
            value: 20.0,
            unit: "%",
        },
        Reference {
            text: "NFS READ, CPU saved by offload, 100 GbE adapter, MTU 9000 (30 to 20)",
            quantity: None,
            x: Some(9000.0),
            value: 30.0,
            unit: "%",
        },
    ],
    care: Care::Other,
};

pub const MTU_WRITE: SweepSpec = SweepSpec {
    name: "mtu-write",
    title: "Random writes of 128 KiB over the MTU",
    load: Load {
        rw: Rw::RandWrite,
        ..FOUR
    },
    references: &[
        Reference {
            text: "NFS WRITE, CPU saved by offload, 100 GbE adapter, MTU 1500 (60 to 40)",
            quantity: None,
            x: Some(1500.0),
            value: 60.0,
            unit: "%",
        },
        Reference {
            text: "NFS WRITE, CPU saved by offload, 100 GbE adapter, MTU 9000 (35 to 12)",
            quantity: None,
            x: Some(9000.0),
            value: 35.0,
            unit: "%",
        },
    ],
    ..MTU_READ
};

/// NVMe's four hosts: two subsystems each, four connections to each.
fn four_hosts(load: &mut Load) {
    (load.hosts, load.devices, load.connections) = (4, 8, 4);
    load.iodepth = (load.iodepth / 8).max(1);
}

/// iSCSI's four initiators: eight LUNs each.
fn four_initiators(load: &mut Load) {
    (load.hosts, load.devices, load.connections) = (4, 32, 1);
    load.iodepth = (load.iodepth / 8).max(1);
}

/// Four clients, a share each, `nconnect=8`.
fn four_clients(load: &mut Load) {
    (load.hosts, load.devices, load.connections) = (4, 4, 8);
    load.iodepth = (load.iodepth / 8).max(1);
}

pub const HOSTS_READ: SweepSpec = SweepSpec {
    name: "hosts-read",
    title: "Four hosts with 8 subsystems, 32 LUNs or 4 shares: random reads",
    paper: "Chelsio, 100G Kernel and User Space NVMe/TCP Using Chelsio TOE: topology of figure 1; \
        High performance 100G iSCSI: topology; NFS/TCP Offload: topology",
    about: "Four client processes that start together: NVMe/TCP with 2 subsystems each and 4 \
        connections to each, iSCSI with 8 LUNs each, NFS with a share each over 8 connections; as \
        much outstanding in all as of the single host beside them.",
    axis: Axis {
        quick: &[4.0 * K],
        normal: &[4.0 * K, 128.0 * K],
        full: &[4.0 * K, 32.0 * K, 128.0 * K],
        label: "I/O size, bytes",
        scale: Scale::Log2,
        unit: Unit::Bytes,
    },
    load: FOUR,
    vary: by_size,
    series: &[
        weft("NVMe/TCP", NvmeTcp, FAST),
        with("NVMe/TCP, 4 hosts, 8 subsystems", FAST_NVME, four_hosts),
        with("iSCSI, 4 hosts, 32 LUNs", FAST_ISCSI, four_initiators),
        with("NFS, 4 clients, 4 shares", FAST_NFS, four_clients),
        cold(NvmeTcp),
    ],
    charts: &[IOPS, THROUGHPUT, TARGET_CPU, P99, SYSCALLS, ALLOCATIONS],
    references: &[],
    care: Care::Other,
};

const FAST_NVME: Subject = Subject::Weft(NvmeTcp, FAST);
const FAST_ISCSI: Subject = Subject::Weft(Iscsi, FAST);
const FAST_NFS: Subject = Subject::Weft(Nfs, FAST);

pub const HOSTS_WRITE: SweepSpec = SweepSpec {
    name: "hosts-write",
    title: "Four hosts with 8 subsystems, 32 LUNs or 4 shares: random writes",
    load: Load {
        rw: Rw::RandWrite,
        ..FOUR
    },
    ..HOSTS_READ
};

fn by_company(load: &mut Load, x: f64) {
    load.beside = x > 0.0;
    load.iodepth = 32;
}

pub const MIXED: SweepSpec = SweepSpec {
    name: "mixed",
    title: "All protocols at once: random reads of 4 KiB",
    paper: "Chelsio, 100G Kernel and User Space NVMe/TCP Using Chelsio TOE: one network for all; \
        shares are nowhere printed",
    about: "Each protocol with one connection of 32 I/Os, alone and then with the two others under \
        the same load on the same target: what each still gets.",
    axis: categories("", &["alone", "all at once"], &[0.0, 1.0], &[0.0, 1.0]),
    load: ONE,
    vary: by_company,
    series: &[
        weft("NVMe/TCP", NvmeTcp, FAST),
        weft("iSCSI", Iscsi, FAST),
        weft("NFS", Nfs, FAST),
        cold(NvmeTcp),
    ],
    charts: &[bars(IOPS), bars(P50), bars(P99)],
    references: &[],
    care: Care::Other,
};

/// Loads on names and attributes: (kind, calls outstanding).
const NAME_LOADS: &[(Rw, u16)] = &[
    (Rw::Create, 32),
    (Rw::Create, 128),
    (Rw::Getattr, 1),
    (Rw::Getattr, 128),
    (Rw::Readdir, 8),
];

fn by_name_load(load: &mut Load, x: f64) {
    (load.rw, load.iodepth) = NAME_LOADS[x as usize];
}

/// As many calls, over four connections; one on each at least.
fn over_four(load: &mut Load) {
    (load.connections, load.iodepth) = (4, (load.iodepth / 4).max(1));
}

pub const NAMES: SweepSpec = SweepSpec {
    name: "nfs-names",
    title: "NFS: names and attributes",
    paper: "none",
    about: "So many calls outstanding, on one connection or in all over four (one call alone: one \
        on each of the four). A create is a file of 4 KiB made, written, closed and removed; a \
        readdir lists part of a directory of 10,000 files. Bare sockets know no names, so there is \
        no ceiling.",
    axis: categories(
        "",
        &[
            "create, 32 deep",
            "create, 128 deep",
            "getattr, 1 deep",
            "getattr, 128 deep",
            "readdir, 8 deep",
        ],
        &[0.0, 3.0, 4.0],
        &[0.0, 1.0, 2.0, 3.0, 4.0],
    ),
    load: ONE,
    vary: by_name_load,
    series: &[
        weft("NFS", Nfs, FAST),
        with("NFS, 4 connections", FAST_NFS, over_four),
    ],
    charts: &[bars(IOPS), bars(P50), bars(P99), bars(CPU_PER_IO)],
    references: &[],
    care: Care::Main,
};

/// What others' programs are compared by: (kind, bytes, depth).
const PEER_LOADS: &[(Rw, u32, u16)] = &[
    (Rw::RandRead, 4 << 10, 1),
    (Rw::RandRead, 4 << 10, 32),
    (Rw::RandWrite, 4 << 10, 32),
    (Rw::RandRead, 128 << 10, 8),
    (Rw::RandWrite, 128 << 10, 8),
];

fn by_peer_load(load: &mut Load, x: f64) {
    (load.rw, load.bs, load.iodepth) = PEER_LOADS[x as usize];
}

const PEER_AXIS: Axis = categories(
    "",
    &[
        "read 4k, 1 deep",
        "read 4k, 32 deep",
        "write 4k, 32 deep",
        "read 128k, 8 deep",
        "write 128k, 8 deep",
    ],
    &[1.0],
    &[0.0, 1.0, 2.0, 3.0, 4.0],
);

const fn peer(name: &'static str) -> SeriesSpec {
    with(name, Subject::Peer(name), same)
}

const fn client(name: &'static str) -> SeriesSpec {
    with(name, Subject::Client(name), same)
}

const fn bare(protocol: LoadProtocol) -> SeriesSpec {
    with(
        "ceiling, cold",
        Subject::Ceiling(protocol, Payload::Cold),
        same,
    )
}

pub const PEERS_NVME: SweepSpec = SweepSpec {
    name: "peers-nvme",
    title: "NVMe/TCP beside others' targets and clients",
    paper: "Chelsio, 100G Kernel and User Space NVMe/TCP Using Chelsio TOE: kernel and user-space \
        hosts and targets",
    about: "One connection. Targets of others have weft's client, clients of others weft's target. \
        What runs in a guest has the guest's slower machine.",
    axis: PEER_AXIS,
    load: ONE,
    vary: by_peer_load,
    series: &[
        weft("NVMe/TCP", NvmeTcp, FAST),
        peer("nvme-tcp target by address"),
        peer("nvmet in the guest"),
        client("fio, kernel device"),
        client("kernel host in the guest"),
        bare(NvmeTcp),
    ],
    charts: &[
        bars(IOPS),
        bars(THROUGHPUT),
        bars(P50),
        bars(P99),
        bars(TARGET_CPU),
        bars(CLIENT_CPU),
    ],
    references: &[],
    care: Care::Other,
};

pub const PEERS_ISCSI: SweepSpec = SweepSpec {
    name: "peers-iscsi",
    title: "iSCSI beside others' targets and clients",
    paper: "Chelsio, High performance 100G iSCSI: LIO and open-iscsi",
    series: &[
        weft("iSCSI", Iscsi, FAST),
        peer("tgtd"),
        peer("LIO in the guest"),
        client("fio, libiscsi"),
        client("iscsi-perf"),
        client("kernel initiator in the guest"),
        bare(Iscsi),
    ],
    ..PEERS_NVME
};

pub const PEERS_NFS: SweepSpec = SweepSpec {
    name: "peers-nfs",
    title: "NFS beside others' servers and clients",
    paper: "Chelsio, NFS/TCP Offload: the kernel's server",
    series: &[
        weft("NFS", Nfs, FAST),
        peer("nfs-ganesha"),
        peer("knfsd in the guest"),
        client("fio, nfs"),
        client("kernel client in the guest"),
        bare(Nfs),
    ],
    ..PEERS_NVME
};
