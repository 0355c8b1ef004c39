//! Binds protocol machines to sockets and to the store.
//!
//! [`start`] opens the volumes and file systems, binds the listeners and runs one
//! reactor a CPU. A connection (`connection`, and `nvme`, `iscsi` and `nfs` for
//! what a protocol adds) lives on one reactor for its life; what reactors share
//! (`shared`) is read only or off the way of an I/O. What changes meanwhile is
//! [`Change`].
#![forbid(unsafe_code)]

mod abort;
mod any;
mod change;
pub mod check;
mod clerk;
mod config;
mod connection;
mod engine;
mod examine;
mod fence;
mod hosts;
mod iscsi;
mod job;
mod later;
pub mod nfs;
mod nvme;
mod placement;
mod refusals;
mod report;
mod reservation;
mod shard;
mod shared;
mod start;
mod state;
mod steps;
mod token;
mod waiting;

pub use change::{Change, ChangeError};
pub use config::{
    Ana, Config, IscsiTargetSpec, Limits, ListenerSpec, LunSpec, NamespaceSpec, Placement,
    Protocol, Start, SubsystemSpec, default_portal_group,
};
pub use examine::{Finding, examine};
pub use report::Report;
pub use start::{Running, StartError, start};

/// What a target is made of, for who runs it on reactors of his own: a
/// simulator, a test with its own volumes.
pub mod parts {
    pub use crate::change::Outcome;
    pub use crate::clerk::Clerk;
    pub use crate::fence::{Passage, Scope};
    pub use crate::nfs::records::Journal;
    pub use crate::nfs::service::Wall;
    pub use crate::placement::{Load, Placer};
    pub use crate::shard::{Acceptor, Shard};
    pub use crate::shared::{Bind, ConnectionRef, Mail, Newcomer, Shared, Then};
    pub use crate::start::{Opened, assemble, start_with};
    pub use crate::token::ConnectionId;
}
