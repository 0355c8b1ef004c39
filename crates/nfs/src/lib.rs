//! NFS as pure state, of versions 3 and 4: no I/O, no clock, no payload bytes.
//!
//! [`Connection`] is the server's end of one TCP connection of ONC RPC, which
//! knows calls, payloads and answers; [`client`] the other end, with the slots of
//! a session. [`compound`] walks a COMPOUND operation by operation, [`attributes`]
//! is the table of what files are asked for, [`gss`] has the security contexts of clients. What clients have of a server
//! (sessions, opens, locks, delegations) is [`server`]. What operations do to
//! files is `nfsd`'s.
#![forbid(unsafe_code)]

pub mod attributes;
pub mod client;
pub mod compound;
pub mod connection;
pub mod gss;
mod rdma;
pub mod server;

pub use connection::Connection;
