//! Composes what serves the protocols to one target.
//!
//! [`start`] opens the volumes and file systems, binds the listeners and runs one
//! reactor a CPU. Which protocols there are says `serving`; what all reactors share
//! (`shared`) is read only or off the way of an I/O. What changes meanwhile is
//! [`Change`].
//!
//! A RAM disk that hosts reach over iSCSI, in a program of one's own (`examples/embed.rs`
//! has a host too):
//!
//! ```
//! use std::net::SocketAddr;
//! use std::time::Duration;
//!
//! use server::{Config, IscsiTargetSpec, ListenerSpec, LunSpec};
//! use store::{Kind, Spec};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let running = server::start(Config {
//!     volumes: vec![Spec::new("disk", Kind::RAM, 1 << 20, 512)],
//!     iscsi_targets: vec![IscsiTargetSpec {
//!         luns: vec![LunSpec::new(0, "disk")],
//!         ..IscsiTargetSpec::new("iqn.2026-01.org.example:disk")
//!     }],
//!     listeners: vec![ListenerSpec::iscsi(SocketAddr::from(([127, 0, 0, 1], 0)))],
//!     ..Config::default()
//! })?;
//! println!("initiators log in at {}", running.addresses()[0]);
//! running.stop();
//! assert!(running.wait(Duration::from_secs(10))?.is_some(), "it has ended");
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod change;
pub mod check;
mod config;
mod connection_info;
mod connections;
mod datagrams;
mod examine;
mod kept_volumes;
pub mod metrics;
mod report;
mod schedule;
mod served;
mod serving;
mod shared;
mod space;
mod start;
mod state;

pub use change::{Change, ChangeError};
pub use config::{
    AdminClient, AdminGroup, AdminListen, AdminRole, AdminSocket, AdminSpec, AdminToken, Ana,
    Config, ConnectionPolicy, IscsiTargetSpec, LimitFigures, Limits, ListenerSpec, LunSpec,
    NamespaceSpec, Placement, Protocol, RateLimit, Rates, RdmaSpec, SnapshotSchedule, Start,
    SubsystemSpec, default_portal_group,
};
pub use connection_info::{ConnectionInfo, ConnectionRole, Listed};
pub use connections::{CONNECTIONS_LISTED_MAX, ControllerInfo};
pub use engine::hosts::network;
pub use engine::{LastRefusal, RefusalKind, Remedy, TlsInfo};
pub use examine::{Finding, examine};
pub use kept_volumes::KeptVolumes;
pub use nvmf::transport::Transports;
pub use report::{COUNTS, Count, CountKind, Report};
pub use serve_nbd::{NbdClientName, NbdExportSpec, NbdTlsSpec, OF_KEY};
pub use serve_nfs as nfs;
pub use serve_nvme::NOT_AUTHENTICATED;
pub use served::Served;
pub use start::{Running, StartError, start, start_on};

/// What a target is made of, for code that runs it on its own reactors: the simulator,
/// tests with their own volumes.
pub mod parts {
    pub use crate::change::ChangeOutcome;
    pub use crate::serving::Shard;
    pub use crate::shared::{AfterChange, Bind, ServerMail, Shared};
    pub use crate::start::{OpenedStore, assemble, start_with};
    pub use engine::blocking_worker::BlockingWorker;
    pub use engine::fence::{Passage, Scope};
    pub use engine::placement::{Load, Placer};
    pub use engine::post::{Newcomer, ShardMail};
    pub use engine::shard::Acceptor;
    pub use engine::{ConnectionId, ConnectionRef};
    pub use serve_nfs::Wall;
    pub use serve_nfs::records::{Journal, Records};
}
