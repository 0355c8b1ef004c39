//! NVMe/RDMA over iWARP in software, beside NVMe/TCP.

use super::series::{
    ADDED, COPIES, CPU_PER_IO, FAST, IOPS, MEAN, ONE, P50, P99, SYSCALLS, TARGET_CPU, THROUGHPUT,
    by_size, by_size_deep, cold, hot, local, weft, with, with_both,
};
use super::sizes::{DIGEST_CHARTS, DIGEST_SIZES, LATENCY_SIZES, SMALL_SIZES, one_at_a_time, sizes};
use super::{Axis, Care, Reference, SweepSpec};
use crate::load::LoadProtocol::{NvmeRdma, NvmeTcp};
use crate::load::{Load, Subject};
use crate::measured::Quantity;
use client::perf::Rw;

const K: f64 = 1024.0;

/// As the paper has it: two drives, 20 jobs.
const TWENTY: Load = Load {
    connections: 10,
    devices: 2,
    block_bytes: 512,
    ..ONE
};

pub const READ: SweepSpec = SweepSpec {
    name: "iwarp-read",
    title: "NVMe/RDMA over iWARP in software: random reads over I/O size",
    paper: "Chelsio, High Performance NVMe over 40GbE iWARP: READ",
    about: "The paper's axis, from one 512-byte block to 64 KiB; two volumes, ten connections to \
        each, 32 I/Os outstanding on each or 1 MiB. iWARP without an adapter shows what the \
        protocol costs, not what an adapter saves.",
    axis: SMALL_SIZES,
    load: TWENTY,
    vary: by_size,
    series: &[
        weft("NVMe/RDMA", NvmeRdma, FAST),
        weft("NVMe/TCP", NvmeTcp, FAST),
        hot(NvmeRdma),
        cold(NvmeRdma),
    ],
    charts: &[IOPS, THROUGHPUT, MEAN, TARGET_CPU, SYSCALLS, COPIES],
    references: &[Reference {
        text: "READ: iWARP adapter, 40 GbE, two SSDs, at small sizes",
        quantity: Some(Quantity::Iops),
        x: Some(512.0),
        value: 1.2e6,
        unit: "I/Os a second",
    }],
    care: Care::Other,
};

pub const WRITE: SweepSpec = SweepSpec {
    name: "iwarp-write",
    title: "NVMe/RDMA over iWARP in software: random writes over I/O size",
    paper: "Chelsio, High Performance NVMe over 40GbE iWARP: WRITE",
    load: Load {
        rw: Rw::RandWrite,
        ..TWENTY
    },
    references: &[],
    ..READ
};

pub const LATENCY: SweepSpec = SweepSpec {
    name: "iwarp-latency",
    title: "NVMe/RDMA over iWARP in software: latency of reads, local against remote",
    paper: "Chelsio, High Performance NVMe over 40GbE iWARP: latency",
    about: "One I/O at a time. Local: the same kind of volume in the client's own process. \
        Loopback is no wire, and iWARP is in software: what is added here is software alone.",
    axis: LATENCY_SIZES,
    load: Load {
        block_bytes: 512,
        ..ONE
    },
    vary: one_at_a_time,
    series: &[
        local("local", NvmeRdma),
        weft("NVMe/RDMA", NvmeRdma, FAST),
        weft("NVMe/TCP", NvmeTcp, FAST),
        hot(NvmeRdma),
    ],
    charts: &[MEAN, P50, P99, ADDED, CPU_PER_IO],
    references: &[Reference {
        text: "added by NVMe over iWARP, 40 GbE, less than",
        quantity: None,
        x: None,
        value: 13.0,
        unit: "us",
    }],
    care: Care::Other,
};

pub const CRC: SweepSpec = SweepSpec {
    name: "iwarp-crc",
    title: "NVMe/RDMA over iWARP in software: CRCs of MPA, random reads",
    paper: "RFC 5044: the CRC of every FPDU, computed in software",
    about: "One connection, 128 I/Os outstanding or 4 MiB. Both sides compute a CRC32C of every \
        FPDU, as they do of header and data with both digests of NVMe/TCP.",
    axis: DIGEST_SIZES,
    load: ONE,
    vary: by_size_deep,
    series: &[
        weft("NVMe/RDMA", NvmeRdma, FAST),
        with("NVMe/RDMA, CRCs", Subject::Weft(NvmeRdma, FAST), with_both),
        weft("NVMe/TCP", NvmeTcp, FAST),
        with(
            "NVMe/TCP, both digests",
            Subject::Weft(NvmeTcp, FAST),
            with_both,
        ),
        cold(NvmeRdma),
    ],
    charts: DIGEST_CHARTS,
    references: &[],
    care: Care::Other,
};

/// One segment over MTU 1500 and 9000, and the most.
const FPDU_SIZES: Axis = Axis {
    label: "FPDU at most, bytes",
    ..sizes(
        &[1460.0, 64.0 * K],
        &[1460.0, 8960.0, 64.0 * K],
        &[1460.0, 8960.0, 64.0 * K],
    )
};

fn by_fpdu(load: &mut Load, x: f64) {
    load.fpdu_bytes_max = Some(x as u32);
}

pub const FPDU: SweepSpec = SweepSpec {
    name: "iwarp-fpdu",
    title: "NVMe/RDMA over iWARP in software: reads of 128 KiB over the size of FPDUs",
    paper: "RFC 5044: one FPDU a segment, or large ones",
    about: "One connection, 32 I/Os of 128 KiB outstanding. An adapter sends an FPDU in each TCP \
        segment; in software a large one costs fewer headers.",
    axis: FPDU_SIZES,
    load: Load {
        bs: 128 << 10,
        iodepth: 32,
        ..ONE
    },
    vary: by_fpdu,
    series: &[
        weft("NVMe/RDMA", NvmeRdma, FAST),
        with("NVMe/RDMA, CRCs", Subject::Weft(NvmeRdma, FAST), with_both),
        cold(NvmeRdma),
    ],
    charts: DIGEST_CHARTS,
    references: &[],
    care: Care::Other,
};
