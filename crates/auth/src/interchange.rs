//! The text by which people hand on keys of NVMe: `KIND:HH:base64 of key and CRC-32:`, where HH
//! says the hash.

use crc_fast::{CrcAlgorithm, checksum};
use zeroize::Zeroizing;

use crate::Secret;
use crate::binary::{base64, parse_base64};

/// Bytes of the CRC-32 behind a key.
const CRC_BYTES: usize = 4;

/// A text that is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InterchangeError {
    /// Not of the form, or longer than any key.
    Form,
    /// Shorter than a CRC-32.
    Length,
    /// The CRC-32 is another.
    Checksum,
}

/// HH and the key, of `key_bytes_max` at most, in a text that begins with `kind`.
pub(crate) fn parse<'a>(
    kind: &str,
    text: &'a str,
    key_bytes_max: usize,
) -> Result<(&'a str, Secret), InterchangeError> {
    let mut fields = text.split(':');
    let fields = [(); 5].map(|()| fields.next());
    let [Some(first), Some(code), Some(digits), Some(""), None] = fields else {
        return Err(InterchangeError::Form);
    };
    if first != kind {
        return Err(InterchangeError::Form);
    }
    let bytes = parse_base64(digits.as_bytes(), key_bytes_max + CRC_BYTES);
    let mut bytes = bytes.ok_or(InterchangeError::Form)?;
    let at = bytes.len().checked_sub(CRC_BYTES);
    let crc = bytes.split_off(at.ok_or(InterchangeError::Length)?);
    let key = Secret::new(bytes);
    match crc32(key.bytes()) == crc[..] {
        true => Ok((code, key)),
        false => Err(InterchangeError::Checksum),
    }
}

/// The text of a key.
pub(crate) fn text(kind: &str, code: &str, key: &Secret) -> String {
    // Each of its whole size at once: what grows leaves copies behind.
    let bytes = Zeroizing::new([key.bytes(), &crc32(key.bytes())].concat());
    let digits = Zeroizing::new(base64(&bytes));
    [kind, ":", code, ":", &digits, ":"].concat()
}

/// The CRC-32 of Ethernet.
fn crc32(bytes: &[u8]) -> [u8; CRC_BYTES] {
    let crc = checksum(CrcAlgorithm::Crc32IsoHdlc, bytes);
    (crc as u32).to_le_bytes()
}
