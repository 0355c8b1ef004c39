//! Binds protocol machines to sockets and to the store.
//!
//! [`start`] opens the volumes, binds the listeners and runs one reactor a
//! CPU. A connection lives on one reactor for its life; what reactors share
//! ([`shared`](self)) is read only or off the way of an I/O.
#![forbid(unsafe_code)]

mod admin;
mod config;
mod connection;
mod io;
mod placement;
mod report;
mod shard;
mod shared;
mod start;
mod token;

pub use config::{Config, Limits, NamespaceSpec, Placement, SubsystemSpec};
pub use report::Report;
pub use start::{Running, StartError, start};
