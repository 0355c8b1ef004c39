//! Sweeps over the size of an I/O.

use super::series::{
    ADDED, ALLOCATIONS, BUSY, CLIENT_CPU, COPIES, CPU_PER_IO, EPOLL, FAST, FOUR, FOUR_WRITE, IOPS,
    MEAN, ONE, ONE_WRITE, P50, P99, PLAIN, POLLING, SYSCALLS, TARGET_CPU, THROUGHPUT, URING,
    WAKEUPS, ZERO_COPY, by_size, by_size_deep, cold, hot, local, weft, with, with_both,
};
use super::{Axis, Care, Chart, Reference, Scale, SeriesSpec, SweepSpec, Unit};
use crate::load::LoadProtocol::{Iscsi, Nfs, NvmeTcp};
use crate::load::{Load, LoadProtocol, Subject};
use crate::measured::Quantity;

const K: f64 = 1024.0;

pub(super) const fn sizes(
    quick: &'static [f64],
    normal: &'static [f64],
    full: &'static [f64],
) -> Axis {
    Axis {
        label: "I/O size, bytes",
        scale: Scale::Log2,
        unit: Unit::Bytes,
        quick,
        normal,
        full,
    }
}

const NVME_SIZES: Axis = sizes(
    &[4.0 * K, 256.0 * K],
    &[4.0 * K, 16.0 * K, 64.0 * K, 256.0 * K],
    &[
        4.0 * K,
        8.0 * K,
        16.0 * K,
        32.0 * K,
        64.0 * K,
        128.0 * K,
        256.0 * K,
    ],
);
const ISCSI_SIZES: Axis = sizes(
    &[4.0 * K, 512.0 * K],
    &[4.0 * K, 32.0 * K, 128.0 * K, 512.0 * K],
    &[
        4.0 * K,
        8.0 * K,
        16.0 * K,
        32.0 * K,
        64.0 * K,
        128.0 * K,
        256.0 * K,
        512.0 * K,
    ],
);
/// Beyond the paper's 512 KiB: clients ask for 1 MiB today.
const NFS_SIZES: Axis = sizes(
    &[4.0 * K, 512.0 * K],
    &[4.0 * K, 32.0 * K, 128.0 * K, 512.0 * K],
    &[
        4.0 * K,
        8.0 * K,
        16.0 * K,
        32.0 * K,
        64.0 * K,
        128.0 * K,
        256.0 * K,
        512.0 * K,
        1024.0 * K,
    ],
);
pub(super) const SMALL_SIZES: Axis = sizes(
    &[512.0, 64.0 * K],
    &[512.0, 4.0 * K, 64.0 * K],
    &[
        512.0,
        K,
        2.0 * K,
        4.0 * K,
        8.0 * K,
        16.0 * K,
        32.0 * K,
        64.0 * K,
    ],
);
pub(super) const LATENCY_SIZES: Axis = sizes(
    &[512.0, 64.0 * K],
    &[512.0, 4.0 * K, 64.0 * K],
    &[512.0, 2.0 * K, 4.0 * K, 16.0 * K, 64.0 * K],
);
pub(super) const DIGEST_SIZES: Axis = sizes(
    &[4.0 * K, 128.0 * K],
    &[4.0 * K, 128.0 * K],
    &[4.0 * K, 32.0 * K, 128.0 * K],
);

/// What is drawn of throughput: rates, CPU, and what the program counts.
const ALL: &[Chart] = &[
    IOPS,
    THROUGHPUT,
    TARGET_CPU,
    CLIENT_CPU,
    BUSY,
    P99,
    SYSCALLS,
    COPIES,
    WAKEUPS,
    ALLOCATIONS,
];

const NVME_MODES: &[SeriesSpec] = &[
    weft("fast path", NvmeTcp, FAST),
    weft("io_uring, copies", NvmeTcp, URING),
    weft("epoll", NvmeTcp, EPOLL),
    weft("plain", NvmeTcp, PLAIN),
    weft("zero-copy sends", NvmeTcp, ZERO_COPY),
    hot(NvmeTcp),
    cold(NvmeTcp),
];
const ISCSI_MODES: &[SeriesSpec] = &[
    weft("fast path", Iscsi, FAST),
    weft("plain", Iscsi, PLAIN),
    hot(Iscsi),
    cold(Iscsi),
];
const NFS_MODES: &[SeriesSpec] = &[
    weft("fast path", Nfs, FAST),
    weft("plain", Nfs, PLAIN),
    hot(Nfs),
    cold(Nfs),
];

const MODES_ABOUT: &str = "Four connections, 32 I/Os outstanding on each or 1 MiB, \
    random offsets; target and client on a core each. The modes are settings of one binary; \
    plain is epoll with copies and a call for each PDU, fast path is io_uring with direct \
    placement and batching.";

pub const NVME_READ: SweepSpec = SweepSpec {
    name: "nvme-read",
    title: "NVMe/TCP, random reads over I/O size",
    paper: "Chelsio, 100G Kernel and User Space NVMe/TCP Using Chelsio TOE: figures 1 to 3",
    about: MODES_ABOUT,
    axis: NVME_SIZES,
    load: FOUR,
    vary: by_size,
    series: NVME_MODES,
    charts: ALL,
    references: &[
        Reference {
            text: "READ at 4 KiB: SPDK target on a 100 GbE offload adapter, four hosts",
            quantity: Some(Quantity::Iops),
            x: Some(4.0 * K),
            value: 2.9e6,
            unit: "I/Os a second",
        },
        Reference {
            text: "READ: line rate of the 100 GbE offload adapter",
            quantity: Some(Quantity::BytesPerSecond),
            x: None,
            value: 99e9 / 8.0,
            unit: "bytes a second (printed as 99 Gbps)",
        },
        Reference {
            text: "CPU for each Gbit/s saved by offload, at most",
            quantity: None,
            x: None,
            value: 50.0,
            unit: "% of that without offload",
        },
    ],
    care: Care::Main,
};

pub const NVME_WRITE: SweepSpec = SweepSpec {
    name: "nvme-write",
    title: "NVMe/TCP, random writes over I/O size",
    load: FOUR_WRITE,
    references: &[
        Reference {
            text: "WRITE: line rate of the 100 GbE offload adapter",
            quantity: Some(Quantity::BytesPerSecond),
            x: None,
            value: 99e9 / 8.0,
            unit: "bytes a second (printed as 99 Gbps)",
        },
        Reference {
            text: "CPU for each Gbit/s saved by offload, at most",
            quantity: None,
            x: None,
            value: 50.0,
            unit: "% of that without offload",
        },
    ],
    ..NVME_READ
};

pub const ISCSI_READ: SweepSpec = SweepSpec {
    name: "iscsi-read",
    title: "iSCSI, random reads over I/O size",
    paper: "Chelsio, High performance 100G iSCSI: figures 1 and 3",
    about: MODES_ABOUT,
    axis: ISCSI_SIZES,
    load: FOUR,
    vary: by_size,
    series: ISCSI_MODES,
    charts: ALL,
    references: &[
        Reference {
            text: "READ at 4 KiB: LIO with PDU offload, 100 GbE, four initiators, RAM disks",
            quantity: Some(Quantity::Iops),
            x: Some(4.0 * K),
            value: 2.8e6,
            unit: "I/Os a second",
        },
        Reference {
            text: "CPU of the target machine, at most, falling with the I/O size",
            quantity: None,
            x: None,
            value: 50.0,
            unit: "% of all its cores",
        },
    ],
    care: Care::Main,
};

pub const ISCSI_WRITE: SweepSpec = SweepSpec {
    name: "iscsi-write",
    title: "iSCSI, random writes over I/O size",
    paper: "Chelsio, High performance 100G iSCSI: figures 2 and 3",
    load: FOUR_WRITE,
    references: &[Reference {
        text: "WRITE at 4 KiB: LIO with PDU offload, 100 GbE, four initiators, RAM disks",
        quantity: Some(Quantity::Iops),
        x: Some(4.0 * K),
        value: 2.8e6,
        unit: "I/Os a second",
    }],
    ..ISCSI_READ
};

pub const NFS_READ: SweepSpec = SweepSpec {
    name: "nfs-read",
    title: "NFS, random reads over I/O size",
    paper: "Chelsio, NFS/TCP Offload: figures 1 to 4",
    about: MODES_ABOUT,
    axis: NFS_SIZES,
    load: FOUR,
    vary: by_size,
    series: NFS_MODES,
    charts: ALL,
    references: &[
        Reference {
            text: "CPU saved by offload, READ, 100 GbE adapter, MTU 1500",
            quantity: None,
            x: None,
            value: 20.0,
            unit: "%",
        },
        Reference {
            text: "CPU saved by offload, READ, 100 GbE adapter, MTU 9000 (30 to 20)",
            quantity: None,
            x: None,
            value: 30.0,
            unit: "%",
        },
    ],
    care: Care::Main,
};

pub const NFS_WRITE: SweepSpec = SweepSpec {
    name: "nfs-write",
    title: "NFS, random writes over I/O size",
    load: FOUR_WRITE,
    references: &[
        Reference {
            text: "CPU saved by offload, WRITE, 100 GbE adapter, MTU 1500 (60 to 40)",
            quantity: None,
            x: None,
            value: 60.0,
            unit: "%",
        },
        Reference {
            text: "CPU saved by offload, WRITE, 100 GbE adapter, MTU 9000 (35 to 12)",
            quantity: None,
            x: None,
            value: 35.0,
            unit: "%",
        },
    ],
    ..NFS_READ
};

pub(super) fn one_at_a_time(load: &mut Load, x: f64) {
    load.bs = x as u32;
}

/// Each protocol against the volume, and against bare sockets.
const LATENCY: &[SeriesSpec] = &[
    local("local", NvmeTcp),
    weft("NVMe/TCP", NvmeTcp, FAST),
    weft("NVMe/TCP, polling", NvmeTcp, POLLING),
    weft("iSCSI", Iscsi, FAST),
    weft("NFS", Nfs, FAST),
    hot(NvmeTcp),
];

pub const LATENCY_READ: SweepSpec = SweepSpec {
    name: "latency-read",
    title: "Latency of reads over I/O size, local against remote",
    paper: "Chelsio, High performance 100G iSCSI: figure 4",
    about: "One I/O at a time. Local: the same kind of volume in the client's own process; files \
        have none, since a file system of weft's is only reached through NFS, and the kernel's own \
        would be another one. Loopback is no wire: what is added here is software alone.",
    axis: LATENCY_SIZES,
    load: Load {
        block_bytes: 512,
        ..ONE
    },
    vary: one_at_a_time,
    series: LATENCY,
    charts: &[MEAN, P50, P99, ADDED, CPU_PER_IO],
    references: &[Reference {
        text: "added to a local READ by iSCSI with PDU offload, 100 GbE",
        quantity: None,
        x: None,
        value: 15.0,
        unit: "us",
    }],
    care: Care::Other,
};

pub const LATENCY_WRITE: SweepSpec = SweepSpec {
    name: "latency-write",
    title: "Latency of writes over I/O size, local against remote",
    load: Load {
        block_bytes: 512,
        ..ONE_WRITE
    },
    references: &[Reference {
        text: "added to a local WRITE by iSCSI with PDU offload, 100 GbE",
        quantity: None,
        x: None,
        value: 17.0,
        unit: "us",
    }],
    ..LATENCY_READ
};

fn with_header(load: &mut Load) {
    load.header_digest = true;
}

fn with_data(load: &mut Load) {
    load.data_digest = true;
}

const fn digest(name: &'static str, protocol: LoadProtocol, adjust: fn(&mut Load)) -> SeriesSpec {
    with(name, Subject::Weft(protocol, FAST), adjust)
}

pub(super) const DIGEST_CHARTS: &[Chart] = &[IOPS, THROUGHPUT, TARGET_CPU, CLIENT_CPU, COPIES];

pub const DIGESTS_NVME_READ: SweepSpec = SweepSpec {
    name: "digests-nvme-read",
    title: "NVMe/TCP digests, random reads",
    paper: "Chelsio, High performance 100G iSCSI: figure 1 (digests), for NVMe/TCP",
    about: "One connection, 128 I/Os outstanding or 4 MiB. Digests are CRC32C, computed by both \
        sides.",
    axis: DIGEST_SIZES,
    load: ONE,
    vary: by_size_deep,
    series: &[
        weft("no digests", NvmeTcp, FAST),
        digest("header digest", NvmeTcp, with_header),
        digest("data digest", NvmeTcp, with_data),
        digest("both digests", NvmeTcp, with_both),
        cold(NvmeTcp),
    ],
    charts: DIGEST_CHARTS,
    references: &[],
    care: Care::Other,
};

pub const DIGESTS_NVME_WRITE: SweepSpec = SweepSpec {
    name: "digests-nvme-write",
    title: "NVMe/TCP digests, random writes",
    paper: "Chelsio, High performance 100G iSCSI: figure 2 (digests), for NVMe/TCP",
    load: ONE_WRITE,
    ..DIGESTS_NVME_READ
};

pub const DIGESTS_ISCSI_READ: SweepSpec = SweepSpec {
    name: "digests-iscsi-read",
    title: "iSCSI digests, random reads",
    paper: "Chelsio, High performance 100G iSCSI: figure 1 (digests)",
    series: &[
        weft("no digests", Iscsi, FAST),
        digest("header digest", Iscsi, with_header),
        digest("data digest", Iscsi, with_data),
        digest("both digests", Iscsi, with_both),
        cold(Iscsi),
    ],
    references: &[Reference {
        text: "lost with digests on an adapter that computes them",
        quantity: None,
        x: None,
        value: 0.0,
        unit: "%",
    }],
    ..DIGESTS_NVME_READ
};

pub const DIGESTS_ISCSI_WRITE: SweepSpec = SweepSpec {
    name: "digests-iscsi-write",
    title: "iSCSI digests, random writes",
    paper: "Chelsio, High performance 100G iSCSI: figure 2 (digests)",
    load: ONE_WRITE,
    ..DIGESTS_ISCSI_READ
};
