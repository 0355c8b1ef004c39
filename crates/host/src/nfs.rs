//! The user-space client of NFSv4.1 and 4.2 on a reactor.
//!
//! [`Connection`] is one TCP connection: it belongs to whoever runs its driver
//! and takes COMPOUNDs without allocating. [`Client`] is a client of a server
//! with a session and a driver of its own, whose calls wait for their answers
//! and outlive lost connections and servers that start again.

mod address;
mod attributes;
mod client;
mod connection;
mod error;
mod files;
mod recovery;

pub use crate::transport::TOKENS_PER_CONNECTION;
pub use ::nfs::client::{
    Answer, Auth, Channels, Compound, Data, Refused, Results, Sequenced, Settings, Slot, Slots,
    Template, Wrong,
};
pub use address::{Address, Identity, user};
pub use attributes::Attributes;
pub use client::{Client, Params};
pub use connection::{Connection, Event};
pub use error::Error;
pub use files::{Access, Create, Entry, Handle, Open};
