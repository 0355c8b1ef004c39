//! Encryption of volumes at rest: blocks in memory that are enciphered by AES-256-XTS, and the
//! keys of a volume, which lie wrapped by a key of its owner beside its data.
//!
//! Nothing is read or written here but memory, and no clock or source of random numbers is
//! asked: what must be random is given.
#![allow(unsafe_code)]

mod header;
mod wrapping_key;
mod xts;

pub use header::{COPIES_BYTES, Copies, HEADER_BYTES, HeaderProblem, HeaderTerms, KeyHeader};
pub use wrapping_key::{DerivedKey, KeyProblem, WrappingKey, WrongKey};
pub use xts::{DATA_KEY_BYTES, DataKey, Xts};
