//! Authentication of peers, as pure computation: secrets that are never shown,
//! and the Challenge Handshake Authentication Protocol (RFC 1994) as iSCSI uses
//! it (RFC 7143, section 12.1.3).
#![forbid(unsafe_code)]

pub mod binary;
pub mod chap;
mod secret;

pub use chap::{Algorithm, Challenge, Response};
pub use secret::Secret;
