//! What both kinds of hashes compute alike.

use hmac::{EagerHash, Hmac, KeyInit as _, Mac as _};

/// The HMAC of `parts`, one behind the other (RFC 2104).
pub(crate) fn hmac<H: EagerHash>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mac = Hmac::<H>::new_from_slice(key);
    let mut mac = mac.expect("HMAC takes keys of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}
