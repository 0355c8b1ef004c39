//! Sweeps of TLS beside the same in the clear.

use super::others::categories;
use super::series::{
    ADDED, CLIENT_CPU, CPU_PER_CONNECTION, CPU_PER_IO, FAST, IOPS, MEMORY_PER_CONNECTION, ONE,
    ONE_WRITE, P50, P99, SYSCALLS, TARGET_CPU, THROUGHPUT, bars, cold, weft, with,
};
use super::{Axis, Care, Chart, Scale, SeriesSpec, SweepSpec, Unit};
use crate::load::LoadProtocol::NvmeTcp;
use crate::load::{Load, Subject, TlsKey};

/// What is asked for: (bytes, depth).
const SHAPES: &[(u32, u16)] = &[(4 << 10, 128), (128 << 10, 32), (4 << 10, 1)];

fn by_shape(load: &mut Load, x: f64) {
    (load.bs, load.iodepth) = SHAPES[x as usize];
}

fn sha_256(load: &mut Load) {
    load.tls = Some(TlsKey::Sha256);
}

fn sha_384(load: &mut Load) {
    load.tls = Some(TlsKey::Sha384);
}

const FAST_NVME: Subject = Subject::Weft(NvmeTcp, FAST);
/// The first is what the others are compared with.
const SERIES: &[SeriesSpec] = &[
    weft("NVMe/TCP", NvmeTcp, FAST),
    with("NVMe/TCP, TLS AES-128", FAST_NVME, sha_256),
    with("NVMe/TCP, TLS AES-256", FAST_NVME, sha_384),
    cold(NvmeTcp),
];

/// What the clear does not have.
const LATENCY_ADDED: Chart = Chart {
    title: "Median latency that TLS adds",
    ..ADDED
};

pub const READ: SweepSpec = SweepSpec {
    name: "tls-read",
    title: "Random reads over TLS and in the clear",
    paper: "none",
    about: "One connection, target on one core and client on another. TLS 1.3 by a pre-shared key \
        of SHA-256 (AES-128-GCM) and of SHA-384 (AES-256-GCM); both sides seal and open their \
        records themselves.",
    axis: categories(
        "",
        &["4k, 128 deep", "128k, 32 deep", "4k, 1 deep"],
        &[0.0],
        &[0.0, 1.0, 2.0],
    ),
    load: ONE,
    vary: by_shape,
    series: SERIES,
    charts: &[
        bars(IOPS),
        bars(THROUGHPUT),
        bars(P50),
        bars(P99),
        LATENCY_ADDED,
        bars(CPU_PER_IO),
        bars(TARGET_CPU),
        bars(CLIENT_CPU),
        bars(SYSCALLS),
    ],
    references: &[],
    care: Care::Main,
};

pub const WRITE: SweepSpec = SweepSpec {
    name: "tls-write",
    title: "Random writes over TLS and in the clear",
    load: ONE_WRITE,
    ..READ
};

/// Connections of each host, beside its Admin Queue.
const CONNECTIONS_OF_HOST: u16 = 124;

/// So many hosts make as many connections each.
fn by_hosts(load: &mut Load, x: f64) {
    (load.hosts, load.connections) = (x as u16, CONNECTIONS_OF_HOST);
}

pub const CONNECTIONS: SweepSpec = SweepSpec {
    name: "tls-connections",
    title: "What a connection takes over TLS and in the clear",
    paper: "none",
    about: "Hosts with 124 I/O queues and an Admin Queue each: CPU time of the target until all are \
        connected, and memory that it has more then, before the first I/O. Handshakes are made by \
        one thread, so one million by the microseconds that TLS adds is how many it makes a \
        second. Bare sockets make no handshake, so there is no ceiling.",
    axis: Axis {
        label: "Hosts with 125 connections each",
        scale: Scale::Log2,
        unit: Unit::Count,
        quick: &[1.0],
        normal: &[1.0, 8.0],
        full: &[1.0, 8.0],
    },
    load: ONE,
    vary: by_hosts,
    series: &[
        weft("NVMe/TCP", NvmeTcp, FAST),
        with("NVMe/TCP, TLS AES-128", FAST_NVME, sha_256),
        with("NVMe/TCP, TLS AES-256", FAST_NVME, sha_384),
    ],
    charts: &[bars(CPU_PER_CONNECTION), bars(MEMORY_PER_CONNECTION)],
    references: &[],
    care: Care::Other,
};
