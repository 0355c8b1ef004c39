//! Handshakes of TLS 1.3, whatever both sides prove in them and whichever library makes them:
//! bytes in, bytes out. What they cost (about half a millisecond) is for a thread beside the
//! reactors.

use std::borrow::Cow;

use auth::psk::{PskIdentity, TlsPsk};

use crate::alert_received::AlertReceived;
use crate::certificate::Certificate;
use crate::records::{Alert, Opener, Sealer};
use crate::words::OLDER_VERSION;

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// What came is no ClientHello.
    #[error("what it sends is no TLS handshake")]
    Malformed,
    /// There is no TLS, or not yet.
    #[error(
        "it begins with TLS, and this listener does not: over iSCSI connect without, over NFS \
         begin in the clear (RFC 9289; `mount -o xprtsec=tls`)"
    )]
    NotSpoken,
    /// An older version.
    #[error("{OLDER_VERSION}")]
    Version,
    /// No key is offered.
    #[error("it offers no pre-shared key: connect with --tls, with the key in the host's keyring")]
    NoPsk,
    /// The same of a protocol whose clients have keys by name.
    #[error(
        "it offers no pre-shared key, and there is no certificate here: connect with a key of \
         `psk_file` (`tls-psk-file=` of libnbd, `tls-creds-psk` of QEMU)"
    )]
    NoPskOfClient,
    /// Keys without a key exchange, which NVMe/TCP does not allow.
    #[error("it offers pre-shared keys without a key exchange (psk_ke), which is not allowed")]
    NoKeyExchange,
    /// There is no key at all.
    #[error(
        "it speaks TLS, and no host has a key here: connect without --tls, or make a key \
         (`weft key new`)"
    )]
    NoKeys,
    /// No host has the identity.
    #[error(
        "no host has the TLS identity that it says, \"{said}\": {remedy}",
        said = said(.0), remedy = of_unknown(.0)
    )]
    UnknownIdentity(String),
    /// No client has the name.
    #[error(
        "the client's name has no key in `psk_file`, \"{}\": give it a line there, or the \
         client a name that has one", said(.0)
    )]
    UnknownName(String),
    /// The key of the identity has expired, or was revoked in its keyring.
    #[error(
        "the key of the TLS identity \"{said}\" has expired or was revoked: {remedy}",
        said = said(.0), remedy = of_expired(.0)
    )]
    Expired(String),
    /// The key of the identity is another.
    #[error("the key of the TLS identity \"{}\" is another on the host than here", said(.0))]
    WrongKey(String),
    /// The key of the identity is proved by a hash that is not its own.
    #[error(
        "the host proves its SHA-384 key by SHA-256, as GnuTLS before 3.8.11 and tlshd before 1.1 \
         do: update gnutls and ktls-utils there, or give it a key for SHA-256 (`weft key new \
         --hash sha256`); TLS identity \"{}\"", said(.0)
    )]
    OtherBinder(String),
    /// The key is derived as it may not be.
    #[error(
        "the host derives its TLS key in the old way of libnvme up to 1.13, which `psk_compat = \
         \"off\"` of [nvme] refuses: update nvme-cli and libnvme there and insert the key again \
         (`nvme check-tls-key --insert`), or set `psk_compat = \"auto\"`; TLS identity \"{}\"",
        said(.0)
    )]
    OldDerivation(String),
    /// The peer's certificate is not good.
    #[error("its TLS certificate is refused: {0}")]
    Certificate(String),
    /// More bytes than any handshake needs.
    #[error("its TLS handshake is longer than {max_bytes} bytes")]
    TooLong {
        /// As many may come.
        max_bytes: usize,
    },
    /// A record does not open.
    #[error(
        "a record of its TLS handshake does not open by the keys of both sides: it was changed on \
         its way"
    )]
    BadRecord,
    /// The last message of the peer does not verify.
    #[error("what ends its TLS handshake (Finished) does not fit what came before it")]
    BadFinished,
    /// The peer has ended it.
    #[error("it has ended the TLS handshake with {0}")]
    Alert(AlertReceived),
    /// It failed.
    #[error("the TLS handshake failed: {0}")]
    Failed(String),
}

/// Bytes of an identity that are told: as many as one of NVMe has, but for the longest.
const TOLD_BYTES_MAX: usize = 256;

/// An identity as far as it is told, and how long it is where it is longer: a client may say
/// any 16 KiB.
fn said(identity: &str) -> Cow<'_, str> {
    match identity.len() <= TOLD_BYTES_MAX {
        true => Cow::Borrowed(identity),
        false => {
            let end = identity.floor_char_boundary(TOLD_BYTES_MAX);
            Cow::Owned(format!("{}… of {} bytes", &identity[..end], identity.len()))
        }
    }
}

/// What is done about an identity that no host has.
fn of_unknown(identity: &str) -> &'static str {
    match PskIdentity::parse(identity) {
        // Such a key lives as long as its controller does.
        Some(named) if named.is_generated => {
            "the key that authentication has made is gone, with its controller or with a restart \
             of weft: on the host, `nvme disconnect`, then `nvme connect` with --concat again"
        }
        _ => "another key, host NQN or subsystem NQN than here (`weft key check`)",
    }
}

/// What is done about a key that is good no longer.
fn of_expired(identity: &str) -> &'static str {
    match PskIdentity::parse(identity) {
        Some(named) if named.is_generated => {
            "the host authenticates again to make another (`nvme reset`)"
        }
        _ => "give the host one that is good (`weft key check`, `weft key rotate`)",
    }
}

impl HandshakeError {
    /// What the client is told.
    #[must_use]
    pub fn alert(&self) -> Alert {
        match self {
            HandshakeError::Malformed | HandshakeError::TooLong { .. } => Alert::DecodeError,
            HandshakeError::Version => Alert::ProtocolVersion,
            HandshakeError::NotSpoken
            | HandshakeError::NoPsk
            | HandshakeError::NoPskOfClient
            | HandshakeError::NoKeyExchange
            | HandshakeError::Certificate(_)
            | HandshakeError::Alert(_)
            | HandshakeError::Failed(_) => Alert::HandshakeFailure,
            HandshakeError::NoKeys
            | HandshakeError::UnknownIdentity(_)
            | HandshakeError::UnknownName(_)
            | HandshakeError::Expired(_)
            | HandshakeError::OldDerivation(_) => Alert::UnknownPskIdentity,
            HandshakeError::BadRecord => Alert::BadRecordMac,
            HandshakeError::WrongKey(_)
            | HandshakeError::OtherBinder(_)
            | HandshakeError::BadFinished => Alert::DecryptError,
        }
    }

    /// A word for what is counted: one of [`HandshakeError::REASONS`].
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            HandshakeError::Malformed => "malformed",
            HandshakeError::NotSpoken => "not-spoken",
            HandshakeError::Version => "version",
            HandshakeError::NoPsk | HandshakeError::NoPskOfClient => "no-psk",
            HandshakeError::NoKeyExchange => "no-key-exchange",
            HandshakeError::NoKeys => "no-keys",
            HandshakeError::UnknownIdentity(_) | HandshakeError::UnknownName(_) => {
                "unknown-identity"
            }
            HandshakeError::Expired(_) => "expired",
            HandshakeError::WrongKey(_) => "wrong-key",
            HandshakeError::OtherBinder(_) => "other-binder",
            HandshakeError::OldDerivation(_) => "old-derivation",
            HandshakeError::Certificate(_) => "certificate",
            HandshakeError::TooLong { .. } => "too-long",
            HandshakeError::BadRecord => "bad-record",
            HandshakeError::BadFinished => "bad-finished",
            HandshakeError::Alert(_) => "alert",
            HandshakeError::Failed(_) => "failed",
        }
    }

    /// All words of [`HandshakeError::reason`].
    pub const REASONS: [&str; 17] = [
        "malformed",
        "not-spoken",
        "version",
        "no-psk",
        "no-key-exchange",
        "no-keys",
        "unknown-identity",
        "expired",
        "wrong-key",
        "other-binder",
        "old-derivation",
        "certificate",
        "too-long",
        "bad-record",
        "bad-finished",
        "alert",
        "failed",
    ];

    /// The identity that the client has said, if it has.
    #[must_use]
    pub fn identity(&self) -> Option<&str> {
        match self {
            HandshakeError::UnknownIdentity(identity)
            | HandshakeError::Expired(identity)
            | HandshakeError::WrongKey(identity)
            | HandshakeError::OtherBinder(identity)
            | HandshakeError::OldDerivation(identity) => Some(identity),
            _ => None,
        }
    }
}

/// What the peer has proved.
#[derive(Debug)]
pub enum ProvenPeer {
    /// That it has this key.
    Psk(TlsPsk),
    /// That it has the key of this certificate, which is good; `None`: it has shown none.
    Certificate(Option<Certificate>),
}

/// What a handshake has made.
pub struct Secured {
    /// What is sent from now on.
    pub sealer: Sealer,
    /// What is received.
    pub opener: Opener,
    /// What was received behind the handshake.
    pub left: Vec<u8>,
    /// What is known of the peer.
    pub peer: ProvenPeer,
}

/// What comes of a step.
pub struct HandshakeStep {
    /// To be sent.
    pub output: Vec<u8>,
    /// The end, if it is there.
    pub end: Option<Result<Secured, HandshakeError>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_told_as_far_as_one_of_nvme_goes_and_how_long_it_is() {
        let whole = "ü".repeat(TOLD_BYTES_MAX / 2);
        let told = HandshakeError::WrongKey(whole.clone()).to_string();
        assert!(told.contains(&format!("\"{whole}\"")), "{told}");
        let long = "a".to_owned() + &"ü".repeat(6000);
        for error in [
            HandshakeError::UnknownIdentity(long.clone()),
            HandshakeError::UnknownName(long.clone()),
            HandshakeError::Expired(long.clone()),
            HandshakeError::WrongKey(long.clone()),
            HandshakeError::OtherBinder(long.clone()),
            HandshakeError::OldDerivation(long.clone()),
        ] {
            let told = error.to_string();
            assert!(told.contains("ü… of 12001 bytes\""), "{told}");
            assert!(told.len() < 3 * TOLD_BYTES_MAX, "{told}");
        }
    }

    #[test]
    fn host_whose_generated_key_is_gone_is_told_to_connect_again() {
        let told = |form| {
            let identity = format!("{form} nqn.2026-01.a nqn.2026-01.b digest");
            HandshakeError::UnknownIdentity(identity).to_string()
        };
        let gone = told("NVMe1G01");
        assert!(
            gone.contains("`nvme disconnect`") && gone.contains("--concat again"),
            "{gone}"
        );
        assert!(told("NVMe1R01").contains("another key"));
    }
}
