//! CRC32C backwards.

/// The polynomial of CRC32C, bits reversed (RFC 7143, section 13.1).
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The digest of what stands before `pad`, where `digest` covers both.
///
/// A data digest covers the padding (RFC 7143, section 11.1), but whoever holds
/// the data has it alone.
pub fn without_pad(digest: u32, pad: &[u8]) -> u32 {
    let mut state = !digest;
    for byte in pad.iter().rev() {
        for _ in 0..8 {
            // A step forwards that subtracted the polynomial set the top bit.
            state = match state >> 31 {
                1 => (state ^ POLYNOMIAL) << 1 | 1,
                _ => state << 1,
            };
        }
        state ^= u32::from(*byte);
    }
    !state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_taken_out_of_a_digest() {
        let bytes: Vec<u8> = (0..67u8).map(|i| i.wrapping_mul(37) ^ 0x5a).collect();
        for len in 0..=64 {
            for pad in 0..=3 {
                let whole = wire::iscsi::digest(&bytes[..len + pad]);
                let alone = wire::iscsi::digest(&bytes[..len]);
                assert_eq!(without_pad(whole, &bytes[len..len + pad]), alone);
            }
        }
    }
}
