//! CRC32C (the iSCSI and NVMe polynomial), alone and fused with a copy.
//!
//! The running value is the finished CRC of the bytes so far: start with 0,
//! feed the result back in; initial and final inversion happen inside.

use crate::counters::add_digested;

/// Continues the CRC32C `so_far` (0 to start) over `bytes`.
#[inline]
pub fn crc32c_bytes(bytes: &[u8], so_far: u32) -> u32 {
    add_digested(bytes.len());
    // SAFETY: a slice is valid for its length.
    unsafe { crc(bytes.as_ptr(), bytes.len(), so_far) }
}

/// # Safety
/// `src` is valid for reads of `len` bytes.
#[inline]
pub(crate) unsafe fn crc(src: *const u8, len: usize, so_far: u32) -> u32 {
    // SAFETY: passed on; nothing is written without COPY.
    !unsafe { dispatch::<SKIP>(std::ptr::null_mut(), src, len, !so_far) }
}

/// # Safety
/// `src` is valid for reads, `dst` for writes of `len` bytes; no overlap.
#[inline]
pub(crate) unsafe fn copy_crc(
    dst: (*mut u8, bool),
    src: *const u8,
    len: usize,
    so_far: u32,
) -> u32 {
    let (at, is_cold) = dst;
    if is_cold && at.align_offset(64) == 0 {
        // SAFETY: passed on; whole lines of `dst` are aligned.
        return !unsafe { dispatch::<AROUND>(at, src, len, !so_far) };
    }
    // SAFETY: passed on.
    !unsafe { dispatch::<COPY>(at, src, len, !so_far) }
}

/// What to do with the bytes besides the CRC: nothing,
const SKIP: u8 = 0;
/// copy them,
const COPY: u8 = 1;
/// or copy them, whole lines (aligned) around the cache.
const AROUND: u8 = 2;

/// CRC register over `len` bytes of `src`, copied to `dst` on the way as `HOW` says.
///
/// # Safety
/// `src` has `len` readable bytes and, where they are copied, `dst` as many
/// writable ones.
#[inline]
unsafe fn dispatch<const HOW: u8>(dst: *mut u8, src: *const u8, len: usize, register: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        // Detection is cached in a static: a load and a test.
        if len >= 256
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("sse4.2")
        {
            // SAFETY: the features are there; pointers as promised to us.
            return unsafe { x86::wide::<HOW>(dst, src, len, register) };
        }
        if is_x86_feature_detected!("pclmulqdq") && is_x86_feature_detected!("sse4.2") {
            // SAFETY: the features are there; pointers as promised to us.
            return unsafe { x86::narrow::<HOW>(dst, src, len, register) };
        }
    }
    // SAFETY: pointers as promised to us.
    unsafe { portable::<HOW>(dst, src, len, register) }
}

/// The polynomial 0x1EDC6F41 with its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut register = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            register = (register >> 1) ^ (POLYNOMIAL * (register & 1));
            bit += 1;
        }
        tables[0][byte] = register;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

static TABLES: [[u32; 256]; 8] = tables();

/// [`dispatch`] with tables, eight bytes a step.
///
/// # Safety
/// `src` has `len` readable bytes and, where they are copied, `dst` as many
/// writable ones.
unsafe fn portable<const HOW: u8>(
    dst: *mut u8,
    src: *const u8,
    len: usize,
    mut register: u32,
) -> u32 {
    let mut at = 0;
    while len - at >= 8 {
        // SAFETY: eight bytes from `at` are inside both buffers.
        let word = unsafe { src.add(at).cast::<[u8; 8]>().read() };
        if HOW != SKIP {
            // SAFETY: as above.
            unsafe { dst.add(at).cast::<[u8; 8]>().write(word) };
        }
        let mixed = u64::from_le_bytes(word) ^ u64::from(register);
        let bytes = mixed.to_le_bytes();
        register = 0;
        for (i, byte) in bytes.into_iter().enumerate() {
            register ^= TABLES[7 - i][usize::from(byte)];
        }
        at += 8;
    }
    while at < len {
        // SAFETY: `at` is inside both buffers.
        let byte = unsafe { src.add(at).read() };
        if HOW != SKIP {
            // SAFETY: as above.
            unsafe { dst.add(at).write(byte) };
        }
        register = (register >> 8) ^ TABLES[0][usize::from(register as u8 ^ byte)];
        at += 1;
    }
    register
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{AROUND, POLYNOMIAL, SKIP};
    use std::arch::x86_64::*;

    /// x^n mod P in the bit-reversed domain, shifted by one as carry-less
    /// products of reversed operands need.
    const fn power(n: u32) -> i64 {
        // Bit 31 is x^0; multiplying by x shifts right.
        let mut value = 0x8000_0000u32;
        let mut i = 0;
        while i < n {
            value = (value >> 1) ^ (POLYNOMIAL * (value & 1));
            i += 1;
        }
        (value as i64) << 1
    }

    /// Multipliers (for the low, the high half) that move 128 bits `bits`
    /// further: Gopal et al., "Fast CRC Computation for Generic Polynomials
    /// Using PCLMULQDQ Instruction".
    const fn fold_by(bits: u32) -> (i64, i64) {
        (power(bits + 32), power(bits - 32))
    }

    const BY_2048: (i64, i64) = fold_by(2048);
    const BY_512: (i64, i64) = fold_by(512);
    const BY_384: (i64, i64) = fold_by(384);
    const BY_256: (i64, i64) = fold_by(256);
    const BY_128: (i64, i64) = fold_by(128);

    #[target_feature(enable = "avx512f,vpclmulqdq")]
    #[inline]
    fn keys512(by: (i64, i64)) -> __m512i {
        _mm512_set_epi64(by.1, by.0, by.1, by.0, by.1, by.0, by.1, by.0)
    }

    #[target_feature(enable = "avx512f,vpclmulqdq")]
    #[inline]
    fn fold512(acc: __m512i, keys: __m512i, next: __m512i) -> __m512i {
        let low = _mm512_clmulepi64_epi128::<0x00>(acc, keys);
        let high = _mm512_clmulepi64_epi128::<0x11>(acc, keys);
        // 0x96: exclusive or of all three.
        _mm512_ternarylogic_epi64::<0x96>(low, high, next)
    }

    #[target_feature(enable = "pclmulqdq,sse4.2")]
    #[inline]
    fn fold128(acc: __m128i, by: (i64, i64), next: __m128i) -> __m128i {
        let keys = _mm_set_epi64x(by.1, by.0);
        let low = _mm_clmulepi64_si128::<0x00>(acc, keys);
        let high = _mm_clmulepi64_si128::<0x11>(acc, keys);
        _mm_xor_si128(_mm_xor_si128(low, high), next)
    }

    /// The CRC register after the 16 bytes of `acc`, from register 0.
    #[target_feature(enable = "pclmulqdq,sse4.2")]
    #[inline]
    fn finish(acc: __m128i) -> u32 {
        let low = _mm_extract_epi64::<0>(acc) as u64;
        let high = _mm_extract_epi64::<1>(acc) as u64;
        _mm_crc32_u64(_mm_crc32_u64(0, low), high) as u32
    }

    /// # Safety
    /// As `dispatch`; `len >= 256`.
    #[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.2")]
    pub(super) unsafe fn wide<const HOW: u8>(
        dst: *mut u8,
        src: *const u8,
        len: usize,
        register: u32,
    ) -> u32 {
        let take = |at: usize| {
            // SAFETY: callers of `take` stay inside both buffers.
            unsafe {
                let value = _mm512_loadu_si512(src.add(at).cast());
                match HOW {
                    SKIP => {}
                    AROUND => _mm512_stream_si512(dst.add(at).cast(), value),
                    _ => _mm512_storeu_si512(dst.add(at).cast(), value),
                }
                value
            }
        };
        let start = _mm512_castsi128_si512(_mm_cvtsi32_si128(register as i32));
        // The cast leaves the upper lanes undefined: clear them.
        let start = _mm512_maskz_mov_epi64(1, start);
        let mut a = _mm512_xor_si512(take(0), start);
        let (mut b, mut c, mut d) = (take(64), take(128), take(192));
        let mut at = 256;
        let keys = keys512(BY_2048);
        while len - at >= 256 {
            a = fold512(a, keys, take(at));
            b = fold512(b, keys, take(at + 64));
            c = fold512(c, keys, take(at + 128));
            d = fold512(d, keys, take(at + 192));
            at += 256;
        }
        let keys = keys512(BY_512);
        b = fold512(a, keys, b);
        c = fold512(b, keys, c);
        d = fold512(c, keys, d);
        while len - at >= 64 {
            d = fold512(d, keys, take(at));
            at += 64;
        }
        let mut acc = _mm512_extracti32x4_epi32::<3>(d);
        acc = fold128(_mm512_extracti32x4_epi32::<2>(d), BY_128, acc);
        acc = fold128(_mm512_extracti32x4_epi32::<1>(d), BY_256, acc);
        acc = fold128(_mm512_castsi512_si128(d), BY_384, acc);
        if HOW == AROUND {
            // Other cores must not see what follows before what was written.
            _mm_sfence();
        }
        let dst = if HOW != SKIP {
            dst.wrapping_add(at)
        } else {
            dst
        };
        // SAFETY: the tail is what is left of both buffers.
        unsafe { tail::<HOW>(dst, src.add(at), len - at, finish(acc)) }
    }

    /// # Safety
    /// As `dispatch`.
    #[target_feature(enable = "pclmulqdq,sse4.2")]
    pub(super) unsafe fn narrow<const HOW: u8>(
        dst: *mut u8,
        src: *const u8,
        len: usize,
        register: u32,
    ) -> u32 {
        if len < 128 {
            // SAFETY: passed on.
            return unsafe { tail::<HOW>(dst, src, len, register) };
        }
        let take = |at: usize| {
            // SAFETY: callers of `take` stay inside both buffers.
            unsafe {
                let value = _mm_loadu_si128(src.add(at).cast());
                if HOW != SKIP {
                    _mm_storeu_si128(dst.add(at).cast(), value);
                }
                value
            }
        };
        let mut a = _mm_xor_si128(take(0), _mm_cvtsi32_si128(register as i32));
        let (mut b, mut c, mut d) = (take(16), take(32), take(48));
        let mut at = 64;
        while len - at >= 64 {
            a = fold128(a, BY_512, take(at));
            b = fold128(b, BY_512, take(at + 16));
            c = fold128(c, BY_512, take(at + 32));
            d = fold128(d, BY_512, take(at + 48));
            at += 64;
        }
        let mut acc = fold128(c, BY_128, d);
        acc = fold128(b, BY_256, acc);
        acc = fold128(a, BY_384, acc);
        let dst = if HOW != SKIP {
            dst.wrapping_add(at)
        } else {
            dst
        };
        // SAFETY: the tail is what is left of both buffers.
        unsafe { tail::<HOW>(dst, src.add(at), len - at, finish(acc)) }
    }

    #[target_feature(enable = "sse4.2")]
    #[inline]
    unsafe fn tail<const HOW: u8>(dst: *mut u8, src: *const u8, len: usize, register: u32) -> u32 {
        let mut register = u64::from(register);
        let mut at = 0;
        while len - at >= 8 {
            // SAFETY: eight bytes from `at` are inside both buffers.
            let word = unsafe { src.add(at).cast::<u64>().read_unaligned() };
            if HOW != SKIP {
                // SAFETY: as above.
                unsafe { dst.add(at).cast::<u64>().write_unaligned(word) };
            }
            register = _mm_crc32_u64(register, word);
            at += 8;
        }
        let mut register = register as u32;
        while at < len {
            // SAFETY: `at` is inside both buffers.
            let byte = unsafe { src.add(at).read() };
            if HOW != SKIP {
                // SAFETY: as above.
                unsafe { dst.add(at).write(byte) };
            }
            register = _mm_crc32_u8(register, byte);
            at += 1;
        }
        register
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 0x1234_5678_9abc_def1u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    /// RFC 3720 appendix B.4.
    #[test]
    fn known_answers() {
        assert_eq!(crc32c_bytes(b"", 0), 0);
        assert_eq!(crc32c_bytes(b"123456789", 0), 0xe306_9283);
        assert_eq!(crc32c_bytes(&[0; 32], 0), 0x8a91_36aa);
        assert_eq!(crc32c_bytes(&[0xff; 32], 0), 0x62a8_ab43);
    }

    /// Every form against an independent implementation, at every length
    /// around the block sizes, plain and copying.
    #[test]
    fn every_form_agrees_with_another_implementation() {
        let bytes = noise(70_000);
        let lengths = (0..=1100).chain([4096, 4097, 65_535, 65_536, 69_999]);
        for len in lengths {
            let part = &bytes[1..1 + len];
            let want = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, part) as u32;
            let mut copied = vec![0; len];
            let (src, dst) = (part.as_ptr(), copied.as_mut_ptr());
            // SAFETY: both buffers are `len` long.
            unsafe {
                assert_eq!(crc(src, len, 0), want, "dispatched, {len}");
                assert_eq!(
                    !portable::<COPY>(dst, src, len, !0),
                    want,
                    "portable, {len}"
                );
                assert_eq!(copied, part);
                #[cfg(target_arch = "x86_64")]
                if is_x86_feature_detected!("pclmulqdq") && is_x86_feature_detected!("sse4.2") {
                    copied.fill(0);
                    let dst = copied.as_mut_ptr();
                    assert_eq!(
                        !x86::narrow::<COPY>(dst, src, len, !0),
                        want,
                        "narrow, {len}"
                    );
                    assert_eq!(copied, part);
                }
                copied.fill(0);
                assert_eq!(copy_crc((copied.as_mut_ptr(), false), src, len, 0), want);
                assert_eq!(copied, part);
            }
        }
    }

    #[test]
    fn may_be_continued_anywhere() {
        let bytes = noise(1500);
        let want = crc32c_bytes(&bytes, 0);
        for split in 0..bytes.len() {
            let first = crc32c_bytes(&bytes[..split], 0);
            assert_eq!(crc32c_bytes(&bytes[split..], first), want);
        }
    }
}
