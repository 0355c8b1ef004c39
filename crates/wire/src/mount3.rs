//! MOUNT version 3 (RFC 1813, section 5), as generated from a description in
//! `crates/wire/xdr/mount3`. Names are the standard's.

#[rustfmt::skip]
mod mount;

pub use mount::*;
