//! What tests of several crates share: a driver on plain memory, PDUs and calls as a
//! peer writes them, a client of NFSv4, file systems and ports of their own. It uses nothing above
//! `wire` and `machine`, so that the unit tests of every protocol may use it.
#![forbid(unsafe_code)]

mod end;
mod free_port;
pub mod iscsi;
pub mod iwarp;
mod mounted;
pub mod nfs;
pub mod nvme;
mod resident;
pub mod rpc_rdma;

pub use end::End;
pub use free_port::free_port;
pub use mounted::Mounted;
pub use resident::resident_bytes;
