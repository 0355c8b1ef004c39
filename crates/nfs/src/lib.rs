//! NFS as pure state: [`Connection`] is one TCP connection of ONC RPC, which
//! knows calls, payloads and answers. No I/O, no clock, no payload bytes.
#![forbid(unsafe_code)]

pub mod attributes;
pub mod client;
pub mod compound;
pub mod connection;
pub mod server;
pub mod testing;

pub use connection::Connection;
