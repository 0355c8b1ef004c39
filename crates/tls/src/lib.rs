//! TLS 1.3 of administration: what the files of a user hold, both sides of a connection, and
//! what has gone wrong in words that a person can use.
//!
//! No socket is opened here: whoever has one brings it, with rustls over it.
#![allow(unsafe_code)]

mod certificate;
mod cipher;
mod hello;
mod pem;
pub mod psk_handshake;
pub mod records;
mod sides;
#[cfg(test)]
mod tests;
mod words;

pub use certificate::{Certificate, SAN_KINDS};
pub use pem::{ClientAuthorities, Identity, read_certificates, read_crls, read_key};
pub use rustls::{ClientConfig, ServerConfig};
pub use sides::{ServerSide, client_side};
pub use words::{failure_of, problem_of};
