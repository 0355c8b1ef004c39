//! Moving, checking and clearing payload.

use crate::counters::{add_copied, add_digested};
use crate::crc;
use crate::raw::{RawSource, RawTarget};
use crate::region::BufRange;

/// Copies `src` to `dst`. Panics if their lengths differ.
#[inline]
pub fn copy_in(dst: BufRange, src: &[u8]) {
    add_copied(src.len());
    RawTarget::from(dst).copy_from(src.into());
}

/// Copies `src` to `dst`. Panics if their lengths differ.
#[inline]
pub fn copy_out(src: BufRange, dst: &mut [u8]) {
    add_copied(dst.len());
    copy_out_as_kernel(src, dst);
}

/// The same for a driver without a kernel: not counted, as a kernel copies it.
#[inline]
pub fn copy_out_as_kernel(src: BufRange, dst: &mut [u8]) {
    RawTarget::from(dst).copy_from(src.into());
}

/// Copies `src` to `dst`, which may overlap. Panics if their lengths differ.
#[inline]
pub fn copy(dst: BufRange, src: BufRange) {
    add_copied(src.len() as usize);
    RawTarget::from(dst).copy_from(src.into());
}

/// Copies `src` to `dst` and continues the CRC32C `crc` (0 to start) over the
/// very bytes that were copied. Panics if the lengths differ.
#[inline]
pub fn copy_in_crc(dst: BufRange, src: &[u8], crc: u32) -> u32 {
    add_copied(src.len());
    add_digested(src.len());
    crc::copy_crc(dst.into(), src.into(), crc)
}

/// Continues the CRC32C `crc` (0 to start) over `src`.
#[inline]
pub fn crc32c(src: BufRange, crc: u32) -> u32 {
    add_digested(src.len() as usize);
    crc::crc(src.into(), crc)
}

/// Fills with zeros.
#[inline]
pub fn zero(dst: BufRange) {
    RawTarget::from(dst).zero();
}

/// Sets those bits of `dst` that are set in `src`. Panics if their lengths
/// differ.
pub fn or(dst: BufRange, src: BufRange) {
    RawTarget::from(dst).or(src.into());
}

/// Whether both hold the same bytes. Panics if their lengths differ.
pub fn equal(a: BufRange, b: BufRange) -> bool {
    RawSource::from(a).equals(b.into())
}

/// The first byte in which both differ. Panics if their lengths do.
pub fn first_difference(a: BufRange, b: BufRange) -> Option<u32> {
    if equal(a, b) {
        return None;
    }
    // The bytes may change meanwhile; the answer is then some byte of them.
    let (mut from, mut len) = (0, a.len());
    while len > 1 {
        let half = len / 2;
        if equal(a.slice(from, half), b.slice(from, half)) {
            from += half;
            len -= half;
        } else {
            len = half;
        }
    }
    Some(from)
}

/// Whether every byte is zero.
pub fn is_zero(range: BufRange) -> bool {
    let Some(rest) = range.len().checked_sub(1) else {
        return true;
    };
    // The first byte is zero, and every other is as the one before it.
    let starts_zero = RawSource::from(range.slice(0, 1)).equals([0].as_slice().into());
    starts_zero && equal(range.slice(0, rest), range.slice(1, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Region, counters, crc32c_bytes};

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
    }

    #[test]
    fn copies_move_the_bytes_and_are_counted() {
        let region = Region::anonymous(1 << 20).unwrap();
        let bytes = pattern(70_001);
        let (a, b) = (region.range(3, 70_001), region.range(100_001, 70_001));
        let before = counters::here().copied_bytes;
        copy_in(a, &bytes);
        copy(b, a);
        let mut out = vec![0; 70_001];
        copy_out(b, &mut out);
        assert_eq!(out, bytes);
        assert_eq!(counters::here().copied_bytes - before, 3 * 70_001);
        assert!(equal(a, b));
        copy_in(b.slice(70_000, 1), &[!bytes[70_000]]);
        assert!(!equal(a, b));
    }

    /// Large shared regions are written around the cache: same bytes.
    #[test]
    fn copies_into_cold_memory_at_every_alignment() {
        let region = Region::bulk(64 << 20).unwrap();
        let bytes = pattern(9000);
        for start in (0..130).chain([4095]) {
            for len in [0, 1, 511, 512, 513, 640, 4096, 4097] {
                let dst = region.range(start, len as u32);
                let around = region.range(0, 16_384);
                for with_digest in [false, true] {
                    zero(around);
                    let part = &bytes[3..3 + len];
                    if with_digest {
                        let crc = copy_in_crc(dst, part, 0);
                        assert_eq!(crc, crc32c_bytes(part, 0));
                    } else {
                        copy_in(dst, part);
                    }
                    let mut out = vec![0; len];
                    copy_out(dst, &mut out);
                    assert_eq!(out, part);
                    let end = start as u32 + len as u32;
                    assert!(is_zero(around.slice(0, start as u32)));
                    assert!(is_zero(around.slice(end, 16_384 - end)));
                }
            }
        }
    }

    #[test]
    fn overlapping_copy_is_a_move() {
        let region = Region::anonymous(4096).unwrap();
        copy_in(region.range(0, 100), &pattern(100));
        copy(region.range(10, 100), region.range(0, 100));
        let mut out = vec![0; 100];
        copy_out(region.range(10, 100), &mut out);
        assert_eq!(out, pattern(100));
    }

    #[test]
    fn copy_with_digest_does_both() {
        let region = Region::anonymous(1 << 20).unwrap();
        for len in [0, 1, 63, 64, 255, 256, 257, 4096, 9001, 131_072] {
            let bytes = pattern(len);
            let (a, b) = (
                region.range(1, len as u32),
                region.range(300_000, len as u32),
            );
            let want = crc32c_bytes(&bytes, 0);
            assert_eq!(copy_in_crc(a, &bytes, 0), want);
            copy(b, a);
            assert_eq!(crc32c(b, 0), want);
            let mut out = vec![0; len];
            copy_out(b, &mut out);
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn zero_clears_exactly_its_range() {
        let region = Region::anonymous(4096).unwrap();
        copy_in(region.range(0, 4096), &[5; 4096]);
        zero(region.range(10, 100));
        assert!(is_zero(region.range(10, 100)));
        assert!(!is_zero(region.range(9, 101)));
        assert!(!is_zero(region.range(10, 101)));
        assert!(is_zero(region.range(0, 0)));
    }

    #[test]
    #[should_panic(expected = "different lengths")]
    fn lengths_must_agree() {
        let region = Region::anonymous(4096).unwrap();
        copy_in(region.range(0, 10), &[0; 11]);
    }
}
