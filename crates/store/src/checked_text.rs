//! Text with a checksum: a line with the name and version of its format and a CRC32C of the
//! rest, then the rest.

use crc_fast::{CrcAlgorithm, checksum};

/// The text of `body` in the format that begins with `magic`.
pub(crate) fn seal(magic: &str, body: &str) -> String {
    format!("{magic} {}\n{body}", sum_of(body))
}

/// The body of a text of this format, or what is wrong with it.
pub(crate) fn unseal<'t>(magic: &str, bytes: &'t [u8]) -> Result<&'t str, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "is damaged".to_owned())?;
    let (head, body) = text.split_once('\n').unwrap_or((text, ""));
    let Some(sum) = head.strip_prefix(magic) else {
        return Err(format!("does not begin with '{magic}'"));
    };
    match sum.trim() == sum_of(body) {
        true => Ok(body),
        false => Err("is damaged: its checksum does not match".to_owned()),
    }
}

/// CRC32C, in hexadecimal.
fn sum_of(body: &str) -> String {
    let sum = checksum(CrcAlgorithm::Crc32Iscsi, body.as_bytes());
    format!("{sum:08x}")
}
