//! The header of an encrypted volume: its data key, wrapped. It lies twice in a file beside the
//! data, so that a crash while it is replaced leaves the old one or the new one.
//!
//! A copy has [`HEADER_BYTES`] bytes, numbers in little endian:
//!
//! | byte | bytes | holds |
//! |---|---|---|
//! | 0 | 8 | `weftkeys` |
//! | 8 | 4 | version of the format, 1 |
//! | 12 | 4 | cipher of the blocks: 1, AES-256-XTS, tweak = number of the logical block |
//! | 16 | 8 | generation: one more with each header of the volume |
//! | 24 | 16 | UUID of the volume |
//! | 40 | 4 | bytes of a logical block |
//! | 44 | 4 | what wraps: 0, the owner's key itself; 1, Argon2id of a passphrase |
//! | 48 | 12 | Argon2id: KiB of memory, passes, lanes |
//! | 60 | 4 | 0 |
//! | 64 | 16 | Argon2id: the salt |
//! | 80 | 12 | nonce of the wrapping, AES-256-GCM, to which all bytes before are authenticated |
//! | 92 | 4 | 0 |
//! | 96 | 64 | the data key, wrapped |
//! | 160 | 16 | tag of the wrapping |
//! | 4092 | 4 | CRC32C of all bytes before; those between are 0 |

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use crc_fast::{CrcAlgorithm, checksum};
use zeroize::Zeroizing;

use crate::wrapping_key::{Cost, Derivation, DerivedKey, SALT_BYTES, WrappingKey, WrongKey};
use crate::xts::{DATA_KEY_BYTES, DataKey};

/// Bytes of a copy.
pub const HEADER_BYTES: usize = 4096;

/// Bytes of both copies.
pub const COPIES_BYTES: usize = 2 * HEADER_BYTES;

const MAGIC: &[u8; 8] = b"weftkeys";
const VERSION: u32 = 1;
const AES_256_XTS: u32 = 1;
const ARGON2ID: u32 = 1;
const NONCE: usize = 80;
const NONCE_BYTES: usize = 12;
const WRAPPED: usize = 96;
const WRAPPED_BYTES: usize = DATA_KEY_BYTES + 16;
const SUM: usize = HEADER_BYTES - 4;

/// Why a header cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderProblem {
    /// Its checksum, its first bytes or its length are wrong.
    #[error("is damaged")]
    Damaged,
    /// It is of a format that a later version has.
    #[error("is of version {0}, which this weft does not know")]
    Version(u32),
    /// It is whole, and has a value that none has that weft writes.
    #[error("has a value that is not possible")]
    Impossible,
}

/// What a header says beside the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderTerms {
    /// One more with each header of the volume.
    pub generation: u64,
    /// The UUID of the volume.
    pub volume: [u8; 16],
    /// Bytes of a logical block.
    pub block_bytes: u32,
}

/// One header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHeader {
    /// What it says beside the key.
    pub terms: HeaderTerms,
    derivation: Derivation,
    nonce: [u8; NONCE_BYTES],
    wrapped: [u8; WRAPPED_BYTES],
}

/// The headers of a volume: the one that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copies {
    /// The newest that is whole.
    pub header: KeyHeader,
    /// Whether that is the first or the second, counted from 0.
    pub place: usize,
    /// Both are whole, and the same.
    pub are_alike: bool,
}

impl Copies {
    /// Of the bytes of both.
    ///
    /// # Errors
    /// Neither is whole, or one is of a format that is not known.
    pub fn parse(bytes: &[u8]) -> Result<Copies, HeaderProblem> {
        // What a crash has cut off, or a copy in a smaller file, may be one of them.
        let copy = |at: usize| {
            let copy = bytes.get(at * HEADER_BYTES..(at + 1) * HEADER_BYTES);
            KeyHeader::parse(copy.ok_or(HeaderProblem::Damaged)?)
        };
        let (header, place, are_alike) = match (copy(0), copy(1)) {
            (Ok(first), Ok(second)) if second.terms.generation > first.terms.generation => {
                (second, 1, false)
            }
            (Ok(first), Ok(second)) => {
                let are_alike = first == second;
                (first, 0, are_alike)
            }
            (Ok(first), Err(HeaderProblem::Damaged)) => (first, 0, false),
            (Err(HeaderProblem::Damaged), Ok(second)) => (second, 1, false),
            (Err(HeaderProblem::Damaged), Err(why)) | (Err(why), _) | (_, Err(why)) => {
                return Err(why);
            }
        };
        Ok(Copies {
            header,
            place,
            are_alike,
        })
    }
}

impl KeyHeader {
    /// Wraps a data key; `nonce` is random.
    #[must_use]
    pub fn seal(
        terms: HeaderTerms,
        key: &DataKey,
        by: &DerivedKey,
        nonce: [u8; NONCE_BYTES],
    ) -> KeyHeader {
        let mut header = KeyHeader {
            terms,
            derivation: by.derivation,
            nonce,
            wrapped: [0; WRAPPED_BYTES],
        };
        let mut data = Zeroizing::new(*key.bytes());
        let said = Aad::from(header.said());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = gcm(by).seal_in_place_separate_tag(nonce, said, &mut *data);
        let tag = tag.expect("a key is short enough");
        header.wrapped[..DATA_KEY_BYTES].copy_from_slice(&*data);
        header.wrapped[DATA_KEY_BYTES..].copy_from_slice(tag.as_ref());
        header
    }

    /// What wraps by it, as its owner's key says.
    ///
    /// # Errors
    /// It was made with a passphrase and this is a key, or the other way round.
    pub fn derive(&self, key: &WrappingKey) -> Result<DerivedKey, WrongKey> {
        key.derive(self.derivation).ok_or(WrongKey)
    }

    /// The data key.
    ///
    /// # Errors
    /// It was not wrapped by that key.
    pub fn open(&self, by: &DerivedKey) -> Result<DataKey, WrongKey> {
        let mut wrapped = Zeroizing::new(self.wrapped);
        let nonce = Nonce::assume_unique_for_key(self.nonce);
        let opened = gcm(by).open_in_place(nonce, Aad::from(self.said()), &mut *wrapped);
        let key = opened.map_err(|_| WrongKey)?;
        let key: &[u8; DATA_KEY_BYTES] = (&*key).try_into().map_err(|_| WrongKey)?;
        DataKey::new(*key).ok_or(WrongKey)
    }

    /// Its bytes before the nonce.
    fn said(&self) -> [u8; NONCE] {
        let mut bytes = [0; NONCE];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(12, &AES_256_XTS.to_le_bytes());
        put(16, &self.terms.generation.to_le_bytes());
        put(24, &self.terms.volume);
        put(40, &self.terms.block_bytes.to_le_bytes());
        if let Derivation::Argon2id { cost, salt } = &self.derivation {
            put(44, &ARGON2ID.to_le_bytes());
            put(48, &cost.memory_kib.to_le_bytes());
            put(52, &cost.passes.to_le_bytes());
            put(56, &cost.lanes.to_le_bytes());
            put(64, salt);
        }
        bytes
    }

    /// The bytes of a copy.
    #[must_use]
    pub fn render(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..NONCE].copy_from_slice(&self.said());
        bytes[NONCE..NONCE + NONCE_BYTES].copy_from_slice(&self.nonce);
        bytes[WRAPPED..WRAPPED + WRAPPED_BYTES].copy_from_slice(&self.wrapped);
        let sum = sum_of(&bytes[..SUM]);
        bytes[SUM..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// A copy; what it says is what [`KeyHeader::render`] writes of it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<KeyHeader, HeaderProblem> {
        let bytes: &[u8; HEADER_BYTES] = bytes.try_into().map_err(|_| HeaderProblem::Damaged)?;
        let number = |at: usize| u32::from_le_bytes(array(bytes, at));
        if bytes[..8] != *MAGIC || number(SUM) != sum_of(&bytes[..SUM]) {
            return Err(HeaderProblem::Damaged);
        }
        if number(8) != VERSION {
            return Err(HeaderProblem::Version(number(8)));
        }
        let cost = Cost {
            memory_kib: number(48),
            passes: number(52),
            lanes: number(56),
        };
        let derivation = match number(44) {
            ARGON2ID if cost.is_bearable() => Derivation::Argon2id {
                cost,
                salt: array::<SALT_BYTES>(bytes, 64),
            },
            0 => Derivation::None,
            _ => return Err(HeaderProblem::Impossible),
        };
        let header = KeyHeader {
            terms: HeaderTerms {
                generation: u64::from_le_bytes(array(bytes, 16)),
                volume: array(bytes, 24),
                block_bytes: number(40),
            },
            derivation,
            nonce: array(bytes, NONCE),
            wrapped: array(bytes, WRAPPED),
        };
        match header.render() == *bytes {
            true => Ok(header),
            false => Err(HeaderProblem::Impossible),
        }
    }
}

fn array<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("as many bytes")
}

fn gcm(by: &DerivedKey) -> LessSafeKey {
    let key = UnboundKey::new(&AES_256_GCM, by.bytes());
    LessSafeKey::new(key.expect("a key of 32 bytes"))
}

/// CRC32C.
fn sum_of(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests;
