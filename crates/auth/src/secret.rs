//! Secrets.

use std::fmt;
use std::hint::black_box;

use zeroize::Zeroize as _;

/// Something that only we and a peer know. Neither `Debug` nor anything else
/// shows it, and comparing takes a time that tells nothing.
#[derive(Clone)]
pub struct Secret {
    bytes: Box<[u8]>,
    is_withdrawn: bool,
}

impl Secret {
    /// The least bytes of a CHAP secret: 96 random bits (RFC 7143, section 9.2.1).
    pub const LEN_MIN: usize = 12;
    /// The most bytes that weft takes.
    pub const LEN_MAX: usize = 255;

    /// The secret of `bytes`; whether they are as many as they should be is the
    /// caller's to check.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        let len = bytes.len();
        Secret::first(bytes, len)
    }

    /// The secret of the first `len` of some bytes. Nothing of them is left where they were.
    pub fn first(mut bytes: Vec<u8>, len: usize) -> Self {
        // A vector that gives room back may leave a copy behind.
        let secret = Secret {
            bytes: bytes[..len].into(),
            is_withdrawn: false,
        };
        bytes.zeroize();
        secret
    }

    /// What stands for a secret that was taken back: `bytes` are no peer's.
    pub fn withdrawn(bytes: impl Into<Vec<u8>>) -> Self {
        let mut secret = Secret::new(bytes);
        secret.is_withdrawn = true;
        secret
    }

    /// Whether it stands for one that was taken back, so that no peer can know it.
    pub fn is_withdrawn(&self) -> bool {
        self.is_withdrawn
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes, for what computes with them.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        are_equal(&self.bytes, &other.bytes)
    }
}

impl Eq for Secret {}

/// Whether two texts are equal, in a time that depends on their lengths alone.
pub(crate) fn are_equal(a: &[u8], b: &[u8]) -> bool {
    let differences = a
        .iter()
        .zip(b)
        .fold(0, |so_far, (a, b)| black_box(so_far | (a ^ b)));
    a.len() == b.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_compared_and_never_shown() {
        let secret = Secret::new(*b"correct horse");
        assert_eq!(secret, Secret::new(*b"correct horse"));
        assert_ne!(secret, Secret::new(*b"correct hors"));
        assert_ne!(secret, Secret::new(*b"correct horsf"));
        assert_ne!(secret, Secret::new(*b"dorrect horse"));
        assert_eq!((secret.len(), secret.is_empty()), (13, false));
        assert!(Secret::new(*b"").is_empty());
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        assert_eq!(
            Secret::first(b"correct horse".to_vec(), 7),
            Secret::new(*b"correct")
        );
    }

    /// Two bytes that differ in the same bits do not make up for each other.
    #[test]
    fn texts_with_any_number_of_differences_differ() {
        for b in [*b"\x01\0\0", *b"\x01\x01\0", *b"\x03\x02\x01"] {
            assert!(!are_equal(b"\0\0\0", &b));
        }
        assert!(are_equal(b"\0\0\0", b"\0\0\0"));
    }
}
