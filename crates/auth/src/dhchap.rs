//! DH-HMAC-CHAP, the in-band authentication of NVMe (Base 2.0, section 8.13.5): what both
//! sides compute, with the same functions.

mod group;
mod key;
#[cfg(test)]
mod tests;

use std::fmt;

use sha2::{Digest as _, Sha256, Sha384, Sha512};

use crate::Secret;
use crate::hash::hmac;
use crate::psk::Psk;
use crate::secret::are_equal;

pub use group::{DhchapGroup, DhchapKeyPair};
pub use key::{DhchapKey, DhchapKeyError};

/// The hash that responses are computed with: the numbers of the messages (figure 445).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DhchapHash {
    /// SHA-256.
    Sha256 = 1,
    /// SHA-384.
    Sha384 = 2,
    /// SHA-512.
    Sha512 = 3,
}

impl DhchapHash {
    /// All of them, the strongest first.
    pub const ALL: [DhchapHash; 3] = [DhchapHash::Sha512, DhchapHash::Sha384, DhchapHash::Sha256];
    /// Bytes of the longest digest.
    pub const LEN_MAX: usize = 64;

    /// The hash of a number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        DhchapHash::ALL
            .into_iter()
            .find(|hash| *hash as u8 == number)
    }

    /// What people write: `sha256`, `sha384`, `sha512`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            DhchapHash::Sha256 => "sha256",
            DhchapHash::Sha384 => "sha384",
            DhchapHash::Sha512 => "sha512",
        }
    }

    /// The hash that people write so.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        DhchapHash::ALL.into_iter().find(|hash| hash.name() == name)
    }

    /// Whether a TLS cipher suite has it, so that a key for TLS can be made by it.
    #[must_use]
    pub const fn is_of_tls(self) -> bool {
        matches!(self, DhchapHash::Sha256 | DhchapHash::Sha384)
    }

    /// Bytes of a digest, and of a challenge.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no digest is empty")]
    pub const fn len(self) -> usize {
        match self {
            DhchapHash::Sha256 => 32,
            DhchapHash::Sha384 => 48,
            DhchapHash::Sha512 => 64,
        }
    }

    /// The HMAC of `parts`, one behind the other.
    fn hmac(self, key: &Secret, parts: &[&[u8]]) -> Secret {
        let key = key.bytes();
        Secret::new(match self {
            DhchapHash::Sha256 => hmac::<Sha256>(key, parts),
            DhchapHash::Sha384 => hmac::<Sha384>(key, parts),
            DhchapHash::Sha512 => hmac::<Sha512>(key, parts),
        })
    }

    /// The session key of what Diffie-Hellman made (section 8.13.5.5).
    #[must_use]
    pub fn session_key(self, shared: &Secret) -> Secret {
        let shared = shared.bytes();
        Secret::new(match self {
            DhchapHash::Sha256 => Sha256::digest(shared).to_vec(),
            DhchapHash::Sha384 => Sha384::digest(shared).to_vec(),
            DhchapHash::Sha512 => Sha512::digest(shared).to_vec(),
        })
    }
}

impl fmt::Display for DhchapHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The side that proves to know its secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DhchapSide {
    /// It answers the challenge C1.
    Host,
    /// It answers the challenge C2.
    Controller,
}

/// What the responses of both sides in one transaction have in common.
#[derive(Clone, Copy, Debug)]
pub struct DhchapTerms<'a> {
    /// HashID.
    pub hash: DhchapHash,
    /// The session key; `None` where the group is NULL.
    pub session_key: Option<&'a Secret>,
    /// T_ID.
    pub t_id: u16,
    /// SC_C of AUTH_Negotiate.
    pub sc_c: u8,
    /// NQN of the host.
    pub hostnqn: &'a str,
    /// NQN of the subsystem.
    pub subnqn: &'a str,
}

impl DhchapTerms<'_> {
    /// What answers `challenge` and its sequence number by the secret of `side` (sections
    /// 8.13.5.4 and 8.13.5.5).
    #[must_use]
    pub fn response(
        &self,
        side: DhchapSide,
        key: &DhchapKey,
        challenge: &[u8],
        seqnum: u32,
    ) -> DhchapResponse {
        let (label, own, other) = match side {
            DhchapSide::Host => ("HostHost", self.hostnqn, self.subnqn),
            DhchapSide::Controller => ("Controller", self.subnqn, self.hostnqn),
        };
        let augmented = self
            .session_key
            .map(|session_key| self.hash.hmac(session_key, &[challenge]));
        let challenge = augmented.as_ref().map_or(challenge, Secret::bytes);
        let parts = [
            challenge,
            &seqnum.to_le_bytes(),
            &self.t_id.to_le_bytes(),
            &[self.sc_c],
            label.as_bytes(),
            own.as_bytes(),
            &[0],
            other.as_bytes(),
        ];
        DhchapResponse(self.hash.hmac(&key.transformed(own), &parts))
    }
}

/// A digest that proves the knowledge of a secret. It is compared in a time that tells
/// nothing.
#[derive(Clone, Debug)]
pub struct DhchapResponse(Secret);

impl DhchapResponse {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// Whether `other` is the same.
    #[must_use]
    pub fn matches(&self, other: &[u8]) -> bool {
        are_equal(self.0.bytes(), other)
    }
}

/// The PSK for TLS that both challenges make with the session key (secure channel
/// concatenation: Base 2.1, section 8.3.4.5.9). `None`: no cipher suite has the hash.
///
/// Linux gives HMAC what Diffie-Hellman made in place of its digest. HMAC takes the digest of a
/// key that is longer than a block (RFC 2104, section 2), and the least group makes 256 bytes:
/// both make the same PSK.
#[must_use]
pub fn generated_psk(hash: DhchapHash, session_key: &Secret, c1: &[u8], c2: &[u8]) -> Option<Psk> {
    Psk::generated(hash.hmac(session_key, &[c1, c2]))
}
