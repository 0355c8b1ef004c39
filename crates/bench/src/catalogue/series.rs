//! Series, modes and charts that several sweeps have.

use super::{Chart, ChartKind, Scale, SeriesSpec};
use crate::load::{
    Driver, Load, LoadProtocol, LoadVolume, Mode, Payload, Placement, Spin, Subject,
};
use crate::measured::Quantity;
use client::perf::Rw;

/// Everything that weft does by default where the kernel has io_uring.
pub const FAST: Mode = Mode {
    driver: Driver::IoUring,
    fast_path: true,
    zero_copy: false,
    spin: Spin::Default,
    placement: Placement::LeastLoaded,
};

/// What targets without offload do: readiness, copies, a call for each PDU.
pub const PLAIN: Mode = Mode {
    driver: Driver::Epoll,
    fast_path: false,
    ..FAST
};

/// The kernel interface alone.
pub const URING: Mode = Mode {
    fast_path: false,
    ..FAST
};

/// Direct placement and batching without the kernel interface.
pub const EPOLL: Mode = Mode {
    driver: Driver::Epoll,
    ..FAST
};

/// SEND_ZC too.
pub const ZERO_COPY: Mode = Mode {
    zero_copy: true,
    ..FAST
};

/// Never spins.
pub const SLEEPING: Mode = Mode {
    spin: Spin::Sleep,
    ..FAST
};

/// Always spins.
pub const POLLING: Mode = Mode {
    spin: Spin::Poll,
    ..FAST
};

/// One connection that reads 4 KiB at random, one at a time.
pub const ONE: Load = Load {
    rw: Rw::RandRead,
    bs: 4096,
    iodepth: 1,
    connections: 1,
    hosts: 1,
    devices: 1,
    block_bytes: 4096,
    volume: LoadVolume::Ram,
    header_digest: false,
    data_digest: false,
    fpdu_bytes_max: None,
    tls: None,
    rate: None,
    target_cores: 1,
    mtu: None,
    beside: false,
    distribution: false,
};

/// The same written.
pub const ONE_WRITE: Load = Load {
    rw: Rw::RandWrite,
    ..ONE
};

/// Four connections; how much is outstanding follows from the size.
pub const FOUR: Load = Load {
    connections: 4,
    ..ONE
};

/// The same written.
pub const FOUR_WRITE: Load = Load {
    connections: 4,
    ..ONE_WRITE
};

/// On a volume that keeps nothing.
pub const NULL: fn(&mut Load) = |load| load.volume = LoadVolume::Null;

/// Header and data digests.
pub fn with_both(load: &mut Load) {
    (load.header_digest, load.data_digest) = (true, true);
}

/// A load that stays as the sweep has it.
pub const fn same(_: &mut Load) {}

/// weft in a mode.
pub const fn weft(name: &'static str, protocol: LoadProtocol, mode: Mode) -> SeriesSpec {
    with(name, Subject::Weft(protocol, mode), same)
}

/// Bare sockets, payload in the cache.
pub const fn hot(protocol: LoadProtocol) -> SeriesSpec {
    with(
        "ceiling, hot",
        Subject::Ceiling(protocol, Payload::Hot),
        same,
    )
}

/// Bare sockets, payload from all over memory, as weft's.
pub const fn cold(protocol: LoadProtocol) -> SeriesSpec {
    with(
        "ceiling, cold",
        Subject::Ceiling(protocol, Payload::Cold),
        same,
    )
}

/// Without a network.
pub const fn local(name: &'static str, protocol: LoadProtocol) -> SeriesSpec {
    with(name, Subject::Local(protocol), same)
}

/// Anything.
pub const fn with(name: &'static str, subject: Subject, adjust: fn(&mut Load)) -> SeriesSpec {
    SeriesSpec {
        name,
        subject,
        adjust,
    }
}

/// Depth of each connection at an I/O size: 32, less where 1 MiB is outstanding
/// already, never less than 2.
pub fn by_size(load: &mut Load, x: f64) {
    load.bs = x as u32;
    load.iodepth = depth(load.bs, 1 << 20, 32);
}

/// The same of one connection alone: 128, or 4 MiB.
pub fn by_size_deep(load: &mut Load, x: f64) {
    load.bs = x as u32;
    load.iodepth = depth(load.bs, 4 << 20, 128);
}

fn depth(bs: u32, bytes_max: u32, most: u16) -> u16 {
    let fits = u16::try_from(bytes_max / bs).unwrap_or(u16::MAX);
    fits.clamp(2, most)
}

const fn chart(name: &'static str, title: &'static str, y: Quantity) -> Chart {
    Chart {
        name,
        title,
        y,
        y_scale: Scale::Linear,
        kind: ChartKind::Lines,
    }
}

/// The same of groups of bars.
pub const fn bars(of: Chart) -> Chart {
    Chart {
        kind: ChartKind::Bars,
        ..of
    }
}

/// With a y axis in decades.
pub const fn decades(of: Chart) -> Chart {
    Chart {
        y_scale: Scale::Log10,
        ..of
    }
}

pub const IOPS: Chart = chart("iops", "I/Os a second", Quantity::Iops);
pub const THROUGHPUT: Chart = chart("throughput", "Payload", Quantity::BytesPerSecond);
pub const TARGET_CPU: Chart = chart(
    "target-cpu",
    "CPU of the target for 1 Gbit/s",
    Quantity::TargetCpuSPerGbit,
);
pub const CLIENT_CPU: Chart = chart(
    "client-cpu",
    "CPU of the client for 1 Gbit/s",
    Quantity::ClientCpuSPerGbit,
);
pub const CPU_PER_IO: Chart = chart(
    "cpu-per-io",
    "CPU of the target for an I/O",
    Quantity::TargetCpuUsPerIo,
);
pub const BUSY: Chart = chart("busy", "How busy the target is", Quantity::TargetBusy);
pub const MEAN: Chart = chart("mean", "Mean latency", Quantity::MeanUs);
pub const P50: Chart = chart("p50", "Median latency", Quantity::P50Us);
pub const P99: Chart = chart("p99", "99th percentile of latency", Quantity::P99Us);
pub const P999: Chart = chart("p999", "99.9th percentile of latency", Quantity::P999Us);
pub const P9999: Chart = chart("p9999", "99.99th percentile of latency", Quantity::P9999Us);
pub const P99999: Chart = chart(
    "p99999",
    "99.999th percentile of latency",
    Quantity::P99999Us,
);
pub const SYSCALLS: Chart = chart(
    "syscalls",
    "System calls of the target for an I/O",
    Quantity::SyscallsPerIo,
);
pub const COPIES: Chart = chart(
    "copies",
    "Bytes copied in user space for an I/O",
    Quantity::CopiedBytesPerIo,
);
pub const WAKEUPS: Chart = chart(
    "wakeups",
    "Wakeups of the target for an I/O",
    Quantity::WakeupsPerIo,
);
pub const ALLOCATIONS: Chart = chart(
    "allocations",
    "Allocations of the target for an I/O",
    Quantity::AllocationsPerIo,
);

pub const CPU_PER_CONNECTION: Chart = chart(
    "cpu-per-connection",
    "CPU of the target for a connection that is made",
    Quantity::TargetCpuUsPerConnection,
);
pub const MEMORY_PER_CONNECTION: Chart = chart(
    "memory-per-connection",
    "Memory of the target for an idle connection",
    Quantity::TargetBytesPerConnection,
);

/// What the first series does not have: the network's share.
pub const ADDED: Chart = Chart {
    name: "added",
    title: "Median latency beyond the volume's own",
    y: Quantity::P50Us,
    y_scale: Scale::Linear,
    kind: ChartKind::Difference,
};

/// How long the slowest of so many take.
pub const DISTRIBUTION: Chart = Chart {
    name: "distribution",
    title: "Latency, by share of I/Os",
    y: Quantity::MeanUs,
    y_scale: Scale::Log10,
    kind: ChartKind::Distribution,
};
