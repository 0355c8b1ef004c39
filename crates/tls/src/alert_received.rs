//! Alerts by which a peer ends TLS (RFC 8446, section 6).

use std::fmt;

/// An alert of a peer, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlertReceived(pub u8);

/// The alerts that TLS 1.3 has, as it calls them, and what some of them mean to those who keep
/// keys.
const ALERTS: [(u8, &str, &str); 27] = [
    (0, "close_notify", ""),
    (10, "unexpected_message", ""),
    (20, "bad_record_mac", ""),
    (22, "record_overflow", ""),
    (
        40,
        "handshake_failure",
        "it takes no key, version or cipher suite that is offered",
    ),
    (42, "bad_certificate", ""),
    (43, "unsupported_certificate", ""),
    (44, "certificate_revoked", ""),
    (45, "certificate_expired", ""),
    (46, "certificate_unknown", ""),
    (
        47,
        "illegal_parameter",
        "OpenSSL and GnuTLS say so of a key that is another there",
    ),
    (48, "unknown_ca", ""),
    (49, "access_denied", ""),
    (50, "decode_error", ""),
    (
        51,
        "decrypt_error",
        "the key of the TLS identity is another there",
    ),
    (70, "protocol_version", "it does not speak TLS 1.3"),
    (71, "insufficient_security", ""),
    (
        80,
        "internal_error",
        "SPDK's target says so of a TLS identity that it does not know",
    ),
    (86, "inappropriate_fallback", ""),
    (90, "user_canceled", ""),
    (109, "missing_extension", ""),
    (110, "unsupported_extension", ""),
    (112, "unrecognized_name", ""),
    (113, "bad_certificate_status_response", ""),
    (
        115,
        "unknown_psk_identity",
        "it knows no such TLS identity: another key, host NQN or subsystem NQN than there",
    ),
    (116, "certificate_required", ""),
    (120, "no_application_protocol", ""),
];

impl fmt::Display for AlertReceived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AlertReceived(number) = *self;
        match ALERTS.iter().find(|(known, ..)| *known == number) {
            None => write!(f, "alert {number}"),
            Some((_, name, "")) => write!(f, "alert {number}, {name}"),
            Some((_, name, meaning)) => write!(f, "alert {number}, {name}: {meaning}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alert_is_told_by_number_and_name_and_what_it_means_for_keys() {
        for (number, told) in [
            (71, "alert 71, insufficient_security"),
            (70, "alert 70, protocol_version: it does not speak TLS 1.3"),
            (3, "alert 3"),
        ] {
            assert_eq!(AlertReceived(number).to_string(), told);
        }
        let numbers = ALERTS.map(|(number, ..)| number);
        assert!(numbers.is_sorted_by(|one, next| one < next));
    }
}
