//! The user-space initiators: NVMe/TCP and NVMe/RDMA here, iSCSI in [`iscsi`], the client of
//! files in [`nfs`]. All three are a machine on a socket of the caller's reactor
//! (`transport`).
//!
//! [`Queue`] is one connection: it belongs to the owner of its driver and
//! takes commands without allocating. [`Admin`] is a controller's Admin Queue
//! with a driver of its own, for everything that happens seldom; its calls
//! wait for their answers; [`Caller`] is the same for an I/O queue.
//! [`Multipath`] is several queues, one on each path to a namespace, and
//! [`Keeper`] what keeps a path's controller.
#![forbid(unsafe_code)]

mod address;
mod admin;
mod ana;
mod authentication;
mod caller;
mod error;
pub mod iscsi;
mod keeper;
mod multipath;
pub mod nfs;
mod offered_psk;
mod qpair;
mod queue;
mod transport;

pub use address::{Address, HostIdentity, NamespaceUrl, resolve};
pub use admin::{Admin, ControllerInfo, DiscoveryEntry, NamespaceInfo, discover};
pub use ana::AnaInfo;
pub use auth::dhchap::DhchapKey;
pub use caller::{Caller, Payload};
pub use error::Error;
pub use keeper::{Keeper, KeeperParams, KeptNamespace, PathChange, PathSignal};
pub use link::CommandMemory as Memory;
pub use multipath::{Multipath, PathParams, PathReport, PathState, Policy};
pub use nvmf::command::AnaState;
pub use nvmf::dhchap::DhchapKeys;
pub use nvmf::host::{Completion, Data};
pub use nvmf::rdma::CrcPolicy;
pub use nvmf::rdma::host::{RdmaHostError, RdmaHostSettings};
pub use nvmf::tcp::host::Settings;
pub use nvmf::transport::Transport;
pub use offered_psk::OfferedPsk;
pub use qpair::QueueSettings;
pub use queue::{Event, Queue, QueueParams, TOKENS_PER_QUEUE};
