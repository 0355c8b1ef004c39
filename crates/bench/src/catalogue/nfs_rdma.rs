//! NFS by RDMA over iWARP in software, beside NFS over TCP.

use super::series::{
    COPIES, CPU_PER_IO, FAST, IOPS, MEAN, ONE, ONE_WRITE, SYSCALLS, TARGET_CPU, THROUGHPUT, cold,
    weft,
};
use super::sizes::sizes;
use super::{Axis, Care, SweepSpec};
use crate::load::Load;
use crate::load::LoadProtocol::{Nfs, NfsRdma};

const K: f64 = 1024.0;

/// What clients use for data, and the most that they take by themselves.
const LARGE_SIZES: Axis = sizes(
    &[128.0 * K, 1024.0 * K],
    &[128.0 * K, 1024.0 * K],
    &[128.0 * K, 1024.0 * K],
);

/// 4 MiB outstanding.
fn by_size(load: &mut Load, x: f64) {
    load.bs = x as u32;
    load.iodepth = (4096.0 * K / x) as u16;
}

pub const READ: SweepSpec = SweepSpec {
    name: "nfs-rdma-read",
    title: "NFS by RDMA over iWARP in software: random reads over I/O size",
    paper: "RFC 8267: data of READ goes by RDMA Writes",
    about: "One connection, 4 MiB outstanding. The server writes data to where the client wants \
        it, and an answer without data follows. iWARP without an adapter shows what the protocol \
        costs, not what an adapter saves.",
    axis: LARGE_SIZES,
    load: ONE,
    vary: by_size,
    series: &[
        weft("NFS by RDMA", NfsRdma, FAST),
        weft("NFS", Nfs, FAST),
        cold(Nfs),
    ],
    charts: &[
        IOPS, THROUGHPUT, MEAN, TARGET_CPU, CPU_PER_IO, SYSCALLS, COPIES,
    ],
    references: &[],
    care: Care::Other,
};

pub const WRITE: SweepSpec = SweepSpec {
    name: "nfs-rdma-write",
    title: "NFS by RDMA over iWARP in software: random writes over I/O size",
    paper: "RFC 8267: data of WRITE comes by RDMA Reads",
    about: "One connection, 4 MiB outstanding. The server reads data from where the client has it.",
    load: ONE_WRITE,
    ..READ
};
