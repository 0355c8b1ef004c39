//! Calls of NFS, and a client of NFSv4 in as few lines as it takes, to try servers with.
// Most names are the standard's, and what they mean stands there.
#![allow(missing_docs)]

pub mod call;
pub mod client;
pub mod compound;
pub mod proxy;
pub mod socket;
