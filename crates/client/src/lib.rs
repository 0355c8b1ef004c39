//! What loads targets and asks them: `weft perf` and `weft discover`, on the
//! initiators and the NFS client of `host`.
//!
//! Each command is an argument struct and a `run`: [`perf`], [`discover`]. [`probe`] tries whether
//! a client gets through.
#![forbid(unsafe_code)]

pub mod chap;
pub mod clock;
pub mod discover;
pub mod latency;
mod nfs_client;
pub mod nvme_host;
pub mod perf;
mod private_file;
pub mod probe;
pub mod units;

pub use private_file::read_private;
