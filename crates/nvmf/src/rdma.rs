//! NVMe/RDMA over iWARP (NVM Express RDMA Transport Specification 1.0): a queue pair is a
//! stream, a capsule is a Send, and the controller moves data of commands by RDMA Reads and
//! Writes of the host's memory.

pub mod controller;
pub mod host;

pub use iwarp::{
    CountedStream, CrcPolicy, QpCounts, QpSettings, StreamCounts, TerminateCount, TerminateCounts,
    ulpdu_max,
};
