//! What has gone wrong, for people.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};

/// Of a peer without TLS 1.3.
pub(crate) const OLDER_VERSION: &str = "it speaks TLS 1.2 or older, and weft speaks TLS 1.3 \
                                        alone: update it, or let it speak TLS 1.3";

/// Whether the peer has no TLS 1.3.
pub(crate) fn is_older_version(why: &PeerIncompatible) -> bool {
    matches!(
        why,
        PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::ServerDoesNotSupportTls12Or13
    )
}

/// What of a handshake, a certificate or a key is wrong, and what to do.
#[must_use]
pub fn problem_of(error: &Error) -> String {
    use CertificateError as Wrong;
    match error {
        Error::InconsistentKeys(_) => {
            "the key is not that of the certificate: name the two that were made together".into()
        }
        Error::InvalidCertificate(wrong) => match wrong {
            Wrong::Expired | Wrong::ExpiredContext { .. } => {
                "the certificate has expired: make another, or set the clock".into()
            }
            Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => {
                "the certificate is not valid yet: set the clock, or make another".into()
            }
            Wrong::UnknownIssuer => {
                "the certificate is signed by none of the authorities (CA) that are named".into()
            }
            Wrong::NotValidForNameContext { presented, .. } if !presented.is_empty() => format!(
                "the certificate is not of that name: it names {}",
                presented
                    .iter()
                    .map(|name| plain(name))
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
            Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
                "the certificate is not of that name: it names none (subjectAltName)".into()
            }
            Wrong::BadSignature => {
                "the signature of the certificate is not right: another authority (CA) of the same \
                 name has made it"
                    .into()
            }
            Wrong::Revoked => "the certificate was revoked".into(),
            Wrong::UnknownRevocationStatus => {
                "no revocation list is of the authority that has signed the certificate".into()
            }
            Wrong::InvalidPurpose | Wrong::InvalidPurposeContext { .. } => {
                "the certificate is for another purpose (extendedKeyUsage)".into()
            }
            other => format!("the certificate is not good: {other}"),
        },
        Error::PeerIncompatible(why) if is_older_version(why) => OLDER_VERSION.into(),
        Error::AlertReceived(alert) => problem_of_alert(*alert),
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
        ) => "what is there does not speak TLS".into(),
        other => other.to_string(),
    }
}

/// A name of a certificate without the kind that the library puts around it, as in
/// `DnsName("localhost")`.
fn plain(presented: &str) -> &str {
    let inner = presented.split_once('(').map(|(_, rest)| rest);
    let inner = inner.and_then(|rest| rest.strip_suffix(')'));
    inner.map_or(presented, |name| name.trim_matches('"'))
}

/// What the other side says is wrong with this one.
fn problem_of_alert(alert: AlertDescription) -> String {
    use AlertDescription as Alert;
    let why = match alert {
        Alert::UnknownCA => "it knows no authority (CA) that has signed the certificate",
        Alert::CertificateExpired => "the certificate has expired, or is not valid yet",
        Alert::CertificateRevoked => "the certificate was revoked",
        Alert::CertificateUnknown | Alert::BadCertificate | Alert::UnsupportedCertificate => {
            "the certificate is none that it takes"
        }
        Alert::DecryptError => {
            "the signature is not right: another authority (CA) of the same name has signed"
        }
        Alert::ProtocolVersion => "it does not speak TLS 1.3",
        Alert::HandshakeFailure => "both sides have no method in common",
        other => return format!("the other side has refused it: {other:?}"),
    };
    format!("the other side has refused it: {why}")
}

/// The failure of TLS that an error stands for, behind what libraries have put around it.
#[must_use]
pub fn failure_of<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(failure) = error.downcast_ref() {
            return Some(failure);
        }
        // One of input or output has its own as no source, but in itself.
        let inner = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        next = match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}
