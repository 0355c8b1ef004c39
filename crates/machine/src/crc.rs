//! CRC32C, the digest of NVMe/TCP, iSCSI and iWARP (RFC 7143, section 13.1).

use crc_fast::{CrcAlgorithm, Digest};

/// Continues the CRC32C `so_far` (0 to start) over `bytes`. It goes on the wire little
/// endian, which is the bit order of the figure in that section.
#[inline]
pub fn crc32c(bytes: &[u8], so_far: u32) -> u32 {
    match so_far {
        0 => crc_fast::crc32_iscsi(bytes),
        _ => continued(bytes, so_far),
    }
}

fn continued(bytes: &[u8], so_far: u32) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!so_far));
    digest.update(bytes);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn digest_is_crc32c() {
        // RFC 3720, section B.4: 32 bytes of zeros and 32 bytes of ones.
        assert_eq!(crc32c(&[0; 32], 0), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32], 0), 0x62a8_ab43);
    }

    #[test]
    fn digest_of_two_parts_is_that_of_the_whole() {
        let bytes: Vec<u8> = (0..67u8).map(|i| i.wrapping_mul(37) ^ 0x5a).collect();
        for at in 0..=bytes.len() {
            let (first, second) = bytes.split_at(at);
            assert_eq!(crc32c(second, crc32c(first, 0)), crc32c(&bytes, 0));
        }
    }
}
