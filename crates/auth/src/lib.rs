//! Authentication of peers, as pure computation: secrets that are never shown,
//! and the Challenge Handshake Authentication Protocol (RFC 1994) as iSCSI uses
//! it (RFC 7143, section 12.1.3); DH-HMAC-CHAP and the pre-shared keys of NVMe; security
//! contexts of the GSS-API, as protocols see them; the networks that peers may come from, and the
//! owners and modes of files with secrets.
#![forbid(unsafe_code)]

pub mod binary;
pub mod chap;
pub mod dhchap;
mod file_mode;
pub mod gss;
pub mod gss_acceptor;
pub mod gss_initiator;
mod hash;
mod interchange;
mod key_file;
mod network;
pub mod psk;
mod secret;
pub mod user;

pub use chap::{Algorithm, Challenge, Response};
pub use file_mode::FileAccess;
pub use key_file::{
    HostDhchap, HostKey, HostPsk, KEY_FILE_BYTES_MAX, KeyText, key_lines, parse_keys,
};
pub use network::{Network, NetworkError};
pub use secret::Secret;
