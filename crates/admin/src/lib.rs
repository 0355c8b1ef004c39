//! The admin socket: what a process that serves is asked, and told to change, over
//! HTTP on a Unix socket, by a thread beside the reactors; and the client of it.
//!
//! No I/O of a host passes here: where the thread fails, hosts are served as before.
#![forbid(unsafe_code)]

mod client;
mod counters;
mod place;
mod problem;
mod routes;
mod serve;
mod served;

pub use client::{Answer, ask};
pub use counters::{counters, now};
pub use place::{Place, usual_path};
pub use serve::{AdminThread, serve};
pub use served::{NotApplied, PlanLine, ServedFile, Told};

/// A request for a plan of a file, or to apply it.
#[derive(Clone, Debug, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct FileRequest {
    /// The configuration, by an absolute path: the server reads it.
    pub file: std::path::PathBuf,
    /// Whether hosts, initiators and clients may be cut, and what is in memory be lost.
    #[serde(default)]
    pub disconnect: bool,
}
