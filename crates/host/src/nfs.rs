//! The user-space client of NFSv4.1 and 4.2 on a reactor.
//!
//! [`ServerConnection`] is one connection, of TCP or of iWARP on it: it belongs to the owner of its driver
//! and takes COMPOUNDs without allocating. [`Client`] is a client of a server
//! with a session and a driver of its own, whose calls wait for their answers
//! and outlive lost connections and servers that start again.

mod address;
mod attributes;
mod client;
mod connection;
mod error;
mod files;
mod gss;
mod recovery;
mod security;

pub use crate::transport::TOKENS_PER_CONNECTION;
pub use ::nfs::client::{
    Auth, CallData, Channels, Compound, RdmaClientSettings, Results, RpcAnswer, RpcClientSettings,
    RpcRefused, Sequenced, Slot, Slots, Template, Wrong,
};
pub use address::{ClientIdentity, NfsAddress, user};
pub use attributes::Attributes;
pub use client::{Client, Params};
pub use connection::{CallEvent, RpcTls, ServerConnection};
pub use error::ClientError;
pub use files::{Access, Create, Entry, Handle, Open};
pub use gss::RpcGss;
pub use security::SecurityFlavor;
