//! TLS 1.3: handshakes, records, what the files of a user hold, both sides of a connection, and
//! what has gone wrong in words that a person can use.
//!
//! No socket is opened here: bytes go in and come out, or a caller brings a socket with rustls
//! over it.
#![allow(unsafe_code)]

mod alert_received;
mod certificate;
mod certificate_handshake;
mod choice_handshake;
mod cipher;
mod client_psks;
mod either_handshake;
mod handshake;
mod hello;
mod pem;
pub mod psk_handshake;
pub mod records;
mod renewed;
mod secret_place;
mod sides;
#[cfg(test)]
mod tests;
mod traffic_secrets;
mod words;

pub use alert_received::AlertReceived;
pub use certificate::{Certificate, SAN_KINDS};
pub use certificate_handshake::{CertificateHandshake, HANDSHAKE_BYTES_MAX};
pub use choice_handshake::ChoiceHandshake;
pub use client_psks::{ClientPsks, RenewedPsks, is_psk_name};
pub use either_handshake::Handshake;
pub use handshake::{HandshakeError, HandshakeStep, ProvenPeer, Secured};
pub use pem::{ClientAuthorities, Identity, read_certificates, read_crls, read_key};
pub use renewed::{MakeSide, Renewed, RenewedTls, TlsFiles};
pub use rustls::{ClientConfig, ServerConfig};
pub use secret_place::{KeyNow, SECRET_PLACE, SecretPlace, is_no_path};
pub use sides::{ServerSide, client_side, rpc_client_side};
pub use words::{failure_of, problem_of};
