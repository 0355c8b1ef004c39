//! Secrets of DH-HMAC-CHAP as people hand them on.

use std::fmt;

use super::DhchapHash;
use crate::Secret;
use crate::interchange::{self, InterchangeError};

/// What a secret begins with (Base 2.0, section 8.13.5.8).
const INTERCHANGE: &str = "DHHC-1";

/// A text that is no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DhchapKeyError {
    /// Not `DHHC-1:HH:...:`.
    #[error(
        "it is no DH-HMAC-CHAP secret: one reads DHHC-1:00:...: (`nvme gen-dhchap-key` makes one)"
    )]
    Form,
    /// Not as long as it says.
    #[error(
        "its length is none of a DH-HMAC-CHAP secret: 32, 48 or 64 bytes, and what its hash has \
         where it names one"
    )]
    Length,
    /// The CRC-32 behind it is another.
    #[error("its checksum is wrong: a character was lost or changed")]
    Checksum,
}

impl From<InterchangeError> for DhchapKeyError {
    fn from(error: InterchangeError) -> Self {
        match error {
            InterchangeError::Form => DhchapKeyError::Form,
            InterchangeError::Length => DhchapKeyError::Length,
            InterchangeError::Checksum => DhchapKeyError::Checksum,
        }
    }
}

/// The secret of a host or of a controller.
#[derive(Clone, PartialEq, Eq)]
pub struct DhchapKey {
    key: Secret,
    /// What makes it another for each NQN.
    hash: Option<DhchapHash>,
}

impl fmt::Debug for DhchapKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DhchapKey(..)")
    }
}

impl DhchapKey {
    /// Of its text: `DHHC-1:HH:base64 of key and CRC-32:`.
    ///
    /// # Errors
    /// What of it is wrong.
    pub fn parse(text: &str) -> Result<DhchapKey, DhchapKeyError> {
        let (code, key) = interchange::parse(INTERCHANGE, text, DhchapHash::LEN_MAX)?;
        let hash = match code {
            "00" => None,
            "01" => Some(DhchapHash::Sha256),
            "02" => Some(DhchapHash::Sha384),
            "03" => Some(DhchapHash::Sha512),
            _ => return Err(DhchapKeyError::Form),
        };
        let fits = |hash: DhchapHash| hash.len() == key.len();
        match hash.map_or_else(|| DhchapHash::ALL.into_iter().any(fits), fits) {
            true => Ok(DhchapKey { key, hash }),
            false => Err(DhchapKeyError::Length),
        }
    }

    /// A new key for `hash` to transform; `random` fills in unpredictable bytes.
    #[must_use]
    pub fn new(hash: DhchapHash, random: &mut dyn FnMut(&mut [u8])) -> DhchapKey {
        let mut key = vec![0; hash.len()];
        random(&mut key);
        DhchapKey {
            key: Secret::new(key),
            hash: Some(hash),
        }
    }

    /// In the place of one that was taken back: see [`Secret::withdrawn`].
    #[must_use]
    pub fn withdrawn(stand_in: Secret) -> DhchapKey {
        DhchapKey {
            key: stand_in,
            hash: Some(DhchapHash::Sha256),
        }
    }

    /// Whether it stands for one that was taken back.
    #[must_use]
    pub fn is_withdrawn(&self) -> bool {
        self.key.is_withdrawn()
    }

    /// The hash that makes it another for each NQN, if one does.
    #[must_use]
    pub fn hash(&self) -> Option<DhchapHash> {
        self.hash
    }

    /// As both sides are told it: whoever sees it has it.
    #[must_use]
    pub fn interchange(&self) -> String {
        let code = self.hash.map_or(0, |hash| hash as u8);
        interchange::text(INTERCHANGE, &format!("{code:02}"), &self.key)
    }

    /// The key that responses are computed with by the host or the subsystem of `nqn`.
    pub(super) fn transformed(&self, nqn: &str) -> Secret {
        match self.hash {
            Some(hash) => hash.hmac(&self.key, &[nqn.as_bytes(), b"NVMe-over-Fabrics"]),
            None => self.key.clone(),
        }
    }
}
