//! What is laid over a volume, beside the bare file.

use super::others::categories;
use super::series::{
    CPU_PER_IO, FAST, IOPS, ONE, ONE_WRITE, P50, P99, SYSCALLS, TARGET_CPU, THROUGHPUT, bars, cold,
    with,
};
use super::{Care, SeriesSpec, SweepSpec};
use crate::load::LoadProtocol::NvmeTcp;
use crate::load::{Load, LoadVolume, Subject};

/// What is asked for: (bytes, depth).
const SHAPES: &[(u32, u16)] = &[(4 << 10, 128), (128 << 10, 32)];

fn by_shape(load: &mut Load, x: f64) {
    (load.bs, load.iodepth) = SHAPES[x as usize];
}

const FAST_NVME: Subject = Subject::Weft(NvmeTcp, FAST);
/// The first is what the others are compared with.
const SERIES: &[SeriesSpec] = &[
    with("file", FAST_NVME, |load| load.volume = LoadVolume::File),
    with("file, direct", FAST_NVME, |load| {
        load.volume = LoadVolume::DirectFile;
    }),
    with("file, limits", FAST_NVME, |load| {
        load.volume = LoadVolume::LimitedFile;
    }),
    cold(NvmeTcp),
];

pub const READ: SweepSpec = SweepSpec {
    name: "volumes-read",
    title: "Random reads of a file and of what is laid over it",
    paper: "none",
    about: "One connection by NVMe/TCP, target on one core and client on another. The file lies in \
        the folder for temporary files (TMPDIR) and is all in the page cache where there is memory \
        for it; direct is past that cache, so that the disk is measured. The limits are ones that \
        it never reaches.",
    axis: categories("", &["4k, 128 deep", "128k, 32 deep"], &[0.0], &[0.0, 1.0]),
    load: ONE,
    vary: by_shape,
    series: SERIES,
    charts: &[
        bars(IOPS),
        bars(THROUGHPUT),
        bars(P50),
        bars(P99),
        bars(CPU_PER_IO),
        bars(TARGET_CPU),
        bars(SYSCALLS),
    ],
    references: &[],
    care: Care::Other,
};

pub const WRITE: SweepSpec = SweepSpec {
    name: "volumes-write",
    title: "Random writes of a file and of what is laid over it",
    load: ONE_WRITE,
    ..READ
};
