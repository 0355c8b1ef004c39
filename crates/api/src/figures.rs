//! What is measured, for programs that take the differences of two looks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Protocol;

/// What is measured of a target, as of one moment: what is counted, is counted since the start
/// of the process. What has done nothing is not in it, and what is gone is not any more.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Figures {
    /// Tells the process from those before and after it: counts of another begin anew.
    pub boot: String,
    /// When this was, by the clock on the wall.
    pub unix_ms: u64,
    /// When this was, since the start of the process: what differences are divided by.
    pub uptime_ns: u64,
    /// The upper bounds of all buckets of times but the last, which has no bound.
    pub bounds_ns: Vec<u64>,
    /// The upper bounds of all buckets of sizes but the last, which has no bound: bytes.
    pub size_bounds: Vec<u64>,
    /// What came to volumes, and to exports of NFS, by protocol.
    pub volumes: Vec<VolumeFigures>,
    /// What hosts did that have connections, by protocol: those of the first 1000 that came,
    /// and what all others did together, as `other`.
    pub hosts: Vec<HostFigures>,
    /// How long commands are in which stage, by protocol.
    pub stages: Vec<StageFigures>,
    /// Connections that are open, by protocol.
    pub connections: BTreeMap<Protocol, u64>,
    /// What was refused, by reason.
    pub refusals: BTreeMap<String, u64>,
    /// By the number of the reactor.
    pub reactors: Vec<ReactorFigures>,
    /// What NFS clients have.
    pub nfs: NfsFigures,
    /// The memory of buffers that is in use.
    pub memory_bytes: u64,
    /// The most that it may be.
    pub memory_max_bytes: u64,
    /// Pieces of work that wait for threads beside the reactors.
    pub blocking_work: u64,
}

/// What an I/O does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FigureOp {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It makes what was written durable.
    Flush,
    /// Anything else.
    Other,
}

impl FigureOp {
    /// All, in the order in which they are told.
    pub const ALL: [FigureOp; 4] = [
        FigureOp::Read,
        FigureOp::Write,
        FigureOp::Flush,
        FigureOp::Other,
    ];

    /// Its name, as answers have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FigureOp::Read => "read",
            FigureOp::Write => "write",
            FigureOp::Flush => "flush",
            FigureOp::Other => "other",
        }
    }
}

/// What came to a volume, or an export, by one protocol.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VolumeFigures {
    /// The volume's name, or the export's path.
    pub volume: String,
    /// The protocol.
    pub protocol: Protocol,
    /// Hosts that are connected and see the volume; `None` of an export, of which NFS does not
    /// say who uses it.
    pub hosts: Option<u64>,
    /// Bytes that the volume took of what is below it when that was looked at last: each time that
    /// figures are asked for the next 16 volumes are. `None` of an export.
    pub used_bytes: Option<u64>,
    /// By operation.
    pub ops: BTreeMap<FigureOp, OpFigures>,
}

/// What a host did by one protocol.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct HostFigures {
    /// How it is called, or its address.
    pub host: String,
    /// The protocol.
    pub protocol: Protocol,
    /// By operation.
    pub ops: BTreeMap<FigureOp, OpFigures>,
    /// How long its commands are in which stage, in the order in which they go through them.
    pub stages: Vec<StageTime>,
}

/// I/Os of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpFigures {
    /// Those that succeeded.
    pub count: u64,
    /// Bytes that were read or written.
    pub bytes: u64,
    /// Those that failed.
    pub errors: u64,
    /// Those that succeeded, by size: how many were not larger than the bound of this place, and
    /// larger than that before it. What is beyond the end is 0.
    pub sizes: Vec<u64>,
    /// How long some of them took: one in 64 of each connection.
    pub times: TimeFigures,
}

/// Times, by length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimeFigures {
    /// All together.
    pub sum_ns: u64,
    /// How many were not longer than the bound of this place, and longer than that before it.
    /// What is beyond the end is 0.
    pub buckets: Vec<u64>,
}

impl TimeFigures {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// The times of one stage of commands.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StageTime {
    /// `receive`, `parse`, `queue`, `backend`, `reply` or `send`.
    pub stage: String,
    /// How long it took, of one command in 64 of each connection.
    pub times: TimeFigures,
}

/// How long commands are in which stage.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct StageFigures {
    /// The protocol.
    pub protocol: Protocol,
    /// In the order in which commands go through them.
    pub stages: Vec<StageTime>,
}

/// What one reactor counts.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ReactorFigures {
    /// Its number.
    pub reactor: u32,
    /// The CPU that it is pinned to.
    pub cpu: u32,
    /// Whether it answers: of one that does not nothing is known.
    pub answers: bool,
    /// Counts by name, those of `/metrics` behind `weft_reactor_`, times in nanoseconds
    /// (`..._ns`); `null`: this build does not count it.
    pub counts: BTreeMap<String, Option<u64>>,
}

impl ReactorFigures {
    /// The count of a name; 0 where it is not counted.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().flatten().unwrap_or(0)
    }
}

/// What NFS clients have.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct NfsFigures {
    /// Clients of NFSv4 with a lease.
    pub clients: u64,
    /// Of those, whose lease has expired.
    pub expired_clients: u64,
    /// Opens.
    pub opens: u64,
    /// Files and owners with byte-range locks.
    pub locks: u64,
    /// Delegations.
    pub delegations: u64,
    /// Clients may reclaim what they had before the start.
    pub is_in_grace: bool,
}
