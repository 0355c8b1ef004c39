//! NFS version 3 (RFC 1813), as generated from descriptions in
//! `crates/wire/xdr/nfs3`. Names are the standard's.

#[rustfmt::skip]
mod basic;
#[rustfmt::skip]
mod procedures;

pub use basic::*;
pub use procedures::*;
