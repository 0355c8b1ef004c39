//! Sweeps over shapes: how much is outstanding, over how many connections. Each
//! stands beside both ceilings of its own byte counts.

use super::series::{
    CPU_PER_IO, FAST, IOPS, NULL, ONE, ONE_WRITE, P50, P99, SYSCALLS, TARGET_CPU, bars, cold, hot,
    weft, with, with_both,
};
use super::{Axis, Care, Chart, Scale, SweepSpec, Unit};
use crate::load::LoadProtocol::{Iscsi, Nfs, NvmeTcp};
use crate::load::{Load, Subject};

/// (bytes, outstanding on a connection, connections).
type Shape = (u32, u16, u16);

const KIB: u32 = 1 << 10;

const NVME: &[Shape] = &[
    (4 * KIB, 1, 1),
    (4 * KIB, 32, 1),
    (4 * KIB, 8, 4),
    (4 * KIB, 128, 1),
    (4 * KIB, 32, 4),
    (128 * KIB, 32, 1),
    (128 * KIB, 8, 4),
];
const ISCSI: &[Shape] = &[(4 * KIB, 1, 1), (4 * KIB, 128, 1), (128 * KIB, 32, 1)];
const NFS: &[Shape] = &[
    (4 * KIB, 1, 1),
    (4 * KIB, 128, 1),
    (4 * KIB, 32, 4),
    (1024 * KIB, 8, 1),
    (1024 * KIB, 2, 4),
];

fn shaped(load: &mut Load, (bs, iodepth, connections): Shape) {
    (load.bs, load.iodepth, load.connections) = (bs, iodepth, connections);
}

fn by_nvme_shape(load: &mut Load, x: f64) {
    shaped(load, NVME[x as usize]);
}

fn by_iscsi_shape(load: &mut Load, x: f64) {
    shaped(load, ISCSI[x as usize]);
}

fn by_nfs_shape(load: &mut Load, x: f64) {
    shaped(load, NFS[x as usize]);
}

const fn shapes(
    names: &'static [&'static str],
    quick: &'static [f64],
    full: &'static [f64],
) -> Axis {
    Axis {
        label: "I/O size, outstanding x connections",
        scale: Scale::Category,
        unit: Unit::Names(names),
        quick,
        normal: full,
        full,
    }
}

const CHARTS: &[Chart] = &[
    bars(IOPS),
    bars(P50),
    bars(P99),
    bars(TARGET_CPU),
    bars(CPU_PER_IO),
    bars(SYSCALLS),
];

pub const NVME_READ: SweepSpec = SweepSpec {
    name: "nvme-shapes-read",
    title: "NVMe/TCP, random reads beside bare sockets, by depth and connections",
    paper: "none",
    about: "As many outstanding on one connection and over four. Hot: the sockets' payload stays \
        in the cache; cold: it lies all over memory, as the volume's does. Null volume: reads are \
        zeros and writes are dropped, so that what is left is the protocol without its memory.",
    axis: shapes(
        &[
            "4K, 1 x 1",
            "4K, 32 x 1",
            "4K, 8 x 4",
            "4K, 128 x 1",
            "4K, 32 x 4",
            "128K, 32 x 1",
            "128K, 8 x 4",
        ],
        &[0.0, 5.0],
        &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    ),
    load: ONE,
    vary: by_nvme_shape,
    series: &[
        weft("NVMe/TCP", NvmeTcp, FAST),
        with("null volume", Subject::Weft(NvmeTcp, FAST), NULL),
        hot(NvmeTcp),
        cold(NvmeTcp),
    ],
    charts: CHARTS,
    references: &[],
    care: Care::Main,
};

pub const NVME_WRITE: SweepSpec = SweepSpec {
    name: "nvme-shapes-write",
    title: "NVMe/TCP, random writes beside bare sockets, by depth and connections",
    load: ONE_WRITE,
    ..NVME_READ
};

pub const ISCSI_READ: SweepSpec = SweepSpec {
    name: "iscsi-shapes-read",
    title: "iSCSI, random reads beside bare sockets and NVMe/TCP, by depth",
    axis: shapes(
        &["4K, 1 x 1", "4K, 128 x 1", "128K, 32 x 1"],
        &[1.0],
        &[0.0, 1.0, 2.0],
    ),
    vary: by_iscsi_shape,
    series: &[
        weft("iSCSI", Iscsi, FAST),
        with("both digests", Subject::Weft(Iscsi, FAST), with_both),
        with("null volume", Subject::Weft(Iscsi, FAST), NULL),
        weft("NVMe/TCP", NvmeTcp, FAST),
        hot(Iscsi),
        cold(Iscsi),
    ],
    ..NVME_READ
};

pub const ISCSI_WRITE: SweepSpec = SweepSpec {
    name: "iscsi-shapes-write",
    title: "iSCSI, random writes beside bare sockets and NVMe/TCP, by depth",
    load: ONE_WRITE,
    ..ISCSI_READ
};

pub const NFS_READ: SweepSpec = SweepSpec {
    name: "nfs-shapes-read",
    title: "NFS, random reads beside bare sockets, by depth and connections",
    about: "As many outstanding on one connection and over four. Hot: the sockets' payload stays \
        in the cache; cold: it lies all over memory, as the file does. There is no null series: no \
        file system keeps nothing.",
    axis: shapes(
        &[
            "4K, 1 x 1",
            "4K, 128 x 1",
            "4K, 32 x 4",
            "1M, 8 x 1",
            "1M, 2 x 4",
        ],
        &[1.0],
        &[0.0, 1.0, 2.0, 3.0, 4.0],
    ),
    vary: by_nfs_shape,
    series: &[weft("NFS", Nfs, FAST), hot(Nfs), cold(Nfs)],
    ..NVME_READ
};

pub const NFS_WRITE: SweepSpec = SweepSpec {
    name: "nfs-shapes-write",
    title: "NFS, random writes beside bare sockets, by depth and connections",
    load: ONE_WRITE,
    ..NFS_READ
};
