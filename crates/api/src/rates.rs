//! What differences of figures say.

use serde::{Deserialize, Serialize};

use crate::{Protocol, TimeFigures};

/// What all volumes and exports did together, as of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FigureSample {
    /// When this was, since the start of the process.
    pub uptime_ns: u64,
    /// I/Os that succeeded.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// I/Os that failed.
    pub errors: u64,
    /// How long some of them took.
    pub times: TimeFigures,
}

/// What a volume, an export or a host did between two looks, each second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FigureRates {
    /// The volume, the path of the export, or the host.
    pub name: String,
    /// The protocol.
    pub protocol: Protocol,
    /// Reads that succeeded.
    pub reads: u64,
    /// Writes that succeeded.
    pub writes: u64,
    /// Bytes that were read or written.
    pub bytes: u64,
    /// I/Os that failed.
    pub errors: u64,
    /// Half of the I/Os took no longer; `None`: none was timed.
    pub p50_ns: Option<u64>,
    /// 99 of 100 took no longer.
    pub p99_ns: Option<u64>,
    /// 999 of 1000 took no longer.
    pub p999_ns: Option<u64>,
}
