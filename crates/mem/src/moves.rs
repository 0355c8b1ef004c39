//! Moving, checking and clearing payload. All of it goes through raw pointers,
//! since others may write the bytes meanwhile; what is then copied is some mix
//! of old and new bytes, as with any disk.

use crate::counters::{add_copied, add_digested};
use crate::crc;

/// Shorter copies go through the cache in any case.
#[cfg(target_arch = "x86_64")]
const AROUND_BYTES_MIN: usize = 512;
use crate::region::BufRange;

#[inline]
fn same_len(a: u32, b: usize) -> usize {
    assert!(a as usize == b, "copy between different lengths");
    b
}

/// Copies around the cache: lines that are wholly written need not be read.
///
/// # Safety
/// `src` is valid for reads, `dst` for writes of `len` bytes; no overlap.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_around(dst: *mut u8, src: *const u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    use std::ptr::copy_nonoverlapping;
    let head = dst.align_offset(64).min(len);
    let lines = (len - head) / 64;
    let tail = head + lines * 64;
    // SAFETY: head, lines and tail are the parts of both buffers; a line of
    // `dst` is aligned.
    unsafe {
        copy_nonoverlapping(src, dst, head);
        for line in 0..lines {
            let at = head + line * 64;
            let from = src.add(at).cast::<__m128i>();
            let to = dst.add(at).cast::<__m128i>();
            // All four loads first, so that a line leaves in one piece.
            let parts = [0, 1, 2, 3].map(|i| _mm_loadu_si128(from.add(i)));
            for (i, part) in parts.into_iter().enumerate() {
                _mm_stream_si128(to.add(i), part);
            }
        }
        copy_nonoverlapping(src.add(tail), dst.add(tail), len - tail);
        // Other cores must not see what follows before what was written here.
        _mm_sfence();
    }
}

/// # Safety
/// `src` is valid for reads, `dst` for writes of `len` bytes; no overlap.
#[inline]
unsafe fn copy_bytes(dst: (*mut u8, bool), src: *const u8, len: usize) {
    let (at, is_cold) = dst;
    #[cfg(target_arch = "x86_64")]
    if is_cold && len >= AROUND_BYTES_MIN {
        // SAFETY: as promised to us.
        return unsafe { copy_around(at, src, len) };
    }
    let _ = is_cold;
    // SAFETY: as promised to us.
    unsafe { std::ptr::copy_nonoverlapping(src, at, len) };
}

/// Copies `src` to `dst`. Panics if their lengths differ.
#[inline]
pub fn copy_in(dst: BufRange, src: &[u8]) {
    let len = same_len(dst.len(), src.len());
    add_copied(len);
    // SAFETY: `dst` is valid for `len` bytes; a `&[u8]` never lies in a region
    // except as a stage, whose bytes no handle names.
    unsafe { copy_bytes(dst.resolve(), src.as_ptr(), len) };
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
    let len = same_len(src.len(), dst.len());
    // SAFETY: as in `copy_in`, the other way round.
    unsafe { std::ptr::copy_nonoverlapping(src.as_ptr(), dst.as_mut_ptr(), len) };
}

/// Copies `src` to `dst`, which may overlap. Panics if their lengths differ.
#[inline]
pub fn copy(dst: BufRange, src: BufRange) {
    let len = same_len(dst.len(), src.len() as usize);
    add_copied(len);
    let (to, from) = (dst.resolve(), src.as_ptr());
    if (to.0 as usize).abs_diff(from as usize) >= len {
        // SAFETY: both are valid for `len` bytes and do not overlap.
        return unsafe { copy_bytes(to, from, len) };
    }
    // SAFETY: both are valid for `len` bytes.
    unsafe { std::ptr::copy(from, to.0, len) };
}

/// Copies `src` to `dst` and continues the CRC32C `crc` (0 to start) over the
/// very bytes that were copied. Panics if the lengths differ.
#[inline]
pub fn copy_in_crc(dst: BufRange, src: &[u8], crc: u32) -> u32 {
    let len = same_len(dst.len(), src.len());
    add_copied(len);
    add_digested(len);
    // SAFETY: as in `copy_in`.
    unsafe { crc::copy_crc(dst.resolve(), src.as_ptr(), len, crc) }
}

/// Continues the CRC32C `crc` (0 to start) over `src`.
#[inline]
pub fn crc32c(src: BufRange, crc: u32) -> u32 {
    add_digested(src.len() as usize);
    // SAFETY: `src` is valid for its length.
    unsafe { crc::crc(src.as_ptr(), src.len() as usize, crc) }
}

/// Fills with zeros.
#[inline]
pub fn zero(dst: BufRange) {
    // SAFETY: `dst` is valid for its length.
    unsafe { std::ptr::write_bytes(dst.as_ptr(), 0, dst.len() as usize) };
}

/// Sets those bits of `dst` that are set in `src`. Panics if their lengths
/// differ.
pub fn or(dst: BufRange, src: BufRange) {
    let len = same_len(dst.len(), src.len() as usize);
    let (to, from) = (dst.as_ptr(), src.as_ptr());
    for at in 0..len {
        // SAFETY: both are valid for `len` bytes.
        unsafe { *to.add(at) |= *from.add(at) };
    }
}

/// Whether both hold the same bytes. Panics if their lengths differ.
pub fn equal(a: BufRange, b: BufRange) -> bool {
    let len = same_len(a.len(), b.len() as usize);
    // SAFETY: both are valid for `len` bytes.
    unsafe { libc::memcmp(a.as_ptr().cast(), b.as_ptr().cast(), len) == 0 }
}

/// The first byte in which both differ. Panics if their lengths do.
pub fn first_difference(a: BufRange, b: BufRange) -> Option<u32> {
    if equal(a, b) {
        return None;
    }
    // The bytes may change meanwhile; what is told then is some byte of them.
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
    let at = range.as_ptr();
    // SAFETY: first byte zero, and every byte equal to the one before it; both
    // pointers stay inside the range.
    unsafe { at.read() == 0 && libc::memcmp(at.cast(), at.add(1).cast(), rest as usize) == 0 }
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
