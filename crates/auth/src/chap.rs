//! The Challenge Handshake Authentication Protocol (RFC 1994), with the
//! algorithms and rules of iSCSI (RFC 7143, sections 9.2.1 and 12.1.3). Both
//! sides compute with the same functions.

use std::fmt;

use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::Sha256;
use sha3::Sha3_256;

use crate::Secret;
use crate::secret::are_equal;

/// The most bytes of a challenge that is taken from a peer (RFC 7143, section
/// 12.1.3).
pub const CHALLENGE_LEN_MAX: usize = 1024;
/// Bytes of a challenge of ours: as many as the longest digest has.
pub const CHALLENGE_LEN: usize = 32;
/// The most bytes of a name (RFC 7143, section 12.1.3: a text value).
pub const NAME_LEN_MAX: usize = 255;

/// How a response is computed: the numbers of CHAP_A (IANA's PPP authentication
/// algorithms).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Algorithm {
    /// MD5, which every implementation has and which is broken.
    Md5 = 5,
    /// SHA-1, which is weak.
    Sha1 = 6,
    /// SHA-256.
    Sha256 = 7,
    /// SHA3-256.
    Sha3_256 = 8,
}

impl Algorithm {
    /// All of them, the strongest first.
    pub const ALL: [Algorithm; 4] = [
        Algorithm::Sha3_256,
        Algorithm::Sha256,
        Algorithm::Sha1,
        Algorithm::Md5,
    ];
    /// Those that nothing speaks against, the strongest first.
    pub const STRONG: [Algorithm; 2] = [Algorithm::Sha3_256, Algorithm::Sha256];

    /// The algorithm of a number in CHAP_A.
    pub fn from_number(number: u8) -> Option<Self> {
        Algorithm::ALL
            .into_iter()
            .find(|algorithm| *algorithm as u8 == number)
    }

    /// What people write: `md5`, `sha1`, `sha256`, `sha3-256`.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Md5 => "md5",
            Algorithm::Sha1 => "sha1",
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha3_256 => "sha3-256",
        }
    }

    /// The algorithm that people write so.
    pub fn from_name(name: &str) -> Option<Self> {
        Algorithm::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
    }

    /// What answers `challenge` under `id`: the digest of the identifier, the
    /// secret and the challenge (RFC 1994, section 4.1).
    pub fn respond(self, id: u8, secret: &Secret, challenge: &[u8]) -> Response {
        let parts = [&[id][..], secret.bytes(), challenge];
        match self {
            Algorithm::Md5 => digest::<Md5>(parts),
            Algorithm::Sha1 => digest::<Sha1>(parts),
            Algorithm::Sha256 => digest::<Sha256>(parts),
            Algorithm::Sha3_256 => digest::<Sha3_256>(parts),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn digest<D: Digest>(parts: [&[u8]; 3]) -> Response {
    let mut digest = D::new();
    for part in parts {
        digest.update(part);
    }
    let mut response = Response::default();
    let bytes = digest.finalize();
    response.len = bytes.len();
    response.bytes[..bytes.len()].copy_from_slice(&bytes);
    response
}

/// A digest that proves the knowledge of a secret.
#[derive(Clone, Copy, Debug, Default)]
pub struct Response {
    bytes: [u8; 32],
    len: usize,
}

impl Response {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Whether `other` is the same, in a time that tells nothing.
    pub fn matches(&self, other: &[u8]) -> bool {
        are_equal(self.bytes(), other)
    }
}

/// What one side asks the other: an identifier and random bytes, used once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// How it is to be answered.
    pub algorithm: Algorithm,
    /// CHAP_I.
    pub id: u8,
    /// CHAP_C.
    pub bytes: [u8; CHALLENGE_LEN],
}

impl Challenge {
    /// A new challenge; `random` fills in unpredictable bytes.
    pub fn new(algorithm: Algorithm, random: &mut dyn FnMut(&mut [u8])) -> Self {
        let (mut id, mut bytes) = ([0], [0; CHALLENGE_LEN]);
        random(&mut id);
        random(&mut bytes);
        Challenge {
            algorithm,
            id: id[0],
            bytes,
        }
    }

    /// Whether `response` proves that the peer knows `secret`.
    pub fn is_answered_by(&self, response: &[u8], secret: &Secret) -> bool {
        self.algorithm
            .respond(self.id, secret, &self.bytes)
            .matches(response)
    }

    /// Whether a peer sends our own challenge back at us, to have us compute
    /// what it must answer (RFC 7143, section 9.2.1).
    pub fn is_reflected_by(&self, challenge: &[u8]) -> bool {
        self.bytes == challenge
    }
}

#[cfg(test)]
mod tests;
