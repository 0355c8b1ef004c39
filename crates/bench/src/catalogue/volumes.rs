//! What is laid over a volume, beside the bare file.

use super::others::{categories, read_or_write};
use super::series::{
    CPU_PER_IO, FAST, IOPS, ONE, P50, P99, SYSCALLS, TARGET_CPU, THROUGHPUT, bars, cold, with,
};
use super::{Care, SeriesSpec, SweepSpec};
use crate::load::LoadProtocol::NvmeTcp;
use crate::load::{Load, LoadVolume, Subject};

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
    with("file, encrypted", FAST_NVME, |load| {
        load.volume = LoadVolume::EncryptedFile;
    }),
    with("file, checksums", FAST_NVME, |load| {
        load.volume = LoadVolume::ChecksummedFile;
    }),
    with("mirror of two files", FAST_NVME, |load| {
        load.volume = LoadVolume::MirroredFile;
    }),
    cold(NvmeTcp),
];

pub const SWEEP: SweepSpec = SweepSpec {
    name: "volumes",
    title: "A file, and what is laid over it",
    paper: "none",
    about: "4 KiB, 128 deep, one connection by NVMe/TCP, target on one core and client on another. \
        The file lies in the folder for temporary files (TMPDIR) and is all in the page cache where \
        there is memory for it; direct is past that cache, so that the disk is measured. The limits \
        are ones that it never reaches. The files of the mirror lie side by side.",
    axis: categories("", &["read", "write"], &[0.0, 1.0], &[0.0, 1.0]),
    load: Load {
        iodepth: 128,
        ..ONE
    },
    vary: read_or_write,
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
