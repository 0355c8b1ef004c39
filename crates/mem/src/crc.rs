//! CRC32C (the iSCSI and NVMe polynomial), alone and fused with a copy.
//!
//! The running value is the finished CRC of the bytes so far: start with 0,
//! feed the result back in; initial and final inversion happen inside.

use crate::counters::add_digested;
use crate::raw::{AROUND, COPY, RawSource, RawTarget, Walk};

/// Continues the CRC32C `so_far` (0 to start) over `bytes`.
#[inline]
pub fn crc32c_bytes(bytes: &[u8], so_far: u32) -> u32 {
    add_digested(bytes.len());
    crc(bytes.into(), so_far)
}

#[inline]
pub(crate) fn crc(src: RawSource<'_>, so_far: u32) -> u32 {
    !dispatch(Walk::reading(src), !so_far)
}

/// Copies on the way. Panics if the lengths differ.
#[inline]
pub(crate) fn copy_crc(dst: RawTarget<'_>, src: RawSource<'_>, so_far: u32) -> u32 {
    match dst.is_cold() && has_wide() {
        true => !dispatch(Walk::<AROUND>::copying(dst, src), !so_far),
        false => !dispatch(Walk::<COPY>::copying(dst, src), !so_far),
    }
}

/// Whether the processor has what [`x86::wide`] takes. Detection is cached in a static:
/// a load and a test.
#[inline]
fn has_wide() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("vpclmulqdq")
        && has_narrow();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Whether it has what [`x86::narrow`] takes.
#[cfg(target_arch = "x86_64")]
#[inline]
fn has_narrow() -> bool {
    is_x86_feature_detected!("pclmulqdq") && is_x86_feature_detected!("sse4.2")
}

/// The CRC register after the bytes of `walk`.
#[inline]
fn dispatch<const HOW: u8>(walk: Walk<'_, HOW>, register: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        if walk.left_bytes() >= 256 && has_wide() {
            // SAFETY: the features are there.
            return unsafe { x86::wide(walk, register) };
        }
        if has_narrow() {
            // SAFETY: the features are there.
            return unsafe { x86::narrow(walk, register) };
        }
    }
    portable(walk, register)
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
fn portable<const HOW: u8>(mut walk: Walk<'_, HOW>, mut register: u32) -> u32 {
    while let Some([word]) = walk.take::<u64, 1>() {
        let mixed = u64::from_le(word) ^ u64::from(register);
        register = 0;
        for (i, byte) in mixed.to_le_bytes().into_iter().enumerate() {
            register ^= TABLES[7 - i][usize::from(byte)];
        }
    }
    while let Some([byte]) = walk.take::<u8, 1>() {
        register = (register >> 8) ^ TABLES[0][usize::from(register as u8 ^ byte)];
    }
    register
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{AROUND, POLYNOMIAL, Walk};
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

    /// Of 256 bytes at least.
    #[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.2")]
    pub(super) fn wide<const HOW: u8>(mut walk: Walk<'_, HOW>, register: u32) -> u32 {
        let [mut a, mut b, mut c, mut d] = walk.take::<__m512i, 4>().expect("256 bytes");
        let start = _mm512_castsi128_si512(_mm_cvtsi32_si128(register as i32));
        // The cast leaves the upper lanes undefined: clear them.
        a = _mm512_xor_si512(a, _mm512_maskz_mov_epi64(1, start));
        let keys = keys512(BY_2048);
        while let Some(next) = walk.take::<__m512i, 4>() {
            a = fold512(a, keys, next[0]);
            b = fold512(b, keys, next[1]);
            c = fold512(c, keys, next[2]);
            d = fold512(d, keys, next[3]);
        }
        let keys = keys512(BY_512);
        b = fold512(a, keys, b);
        c = fold512(b, keys, c);
        d = fold512(c, keys, d);
        while let Some([next]) = walk.take::<__m512i, 1>() {
            d = fold512(d, keys, next);
        }
        let mut acc = _mm512_extracti32x4_epi32::<3>(d);
        acc = fold128(_mm512_extracti32x4_epi32::<2>(d), BY_128, acc);
        acc = fold128(_mm512_extracti32x4_epi32::<1>(d), BY_256, acc);
        acc = fold128(_mm512_castsi512_si128(d), BY_384, acc);
        if HOW == AROUND {
            // Other cores must not see what follows before what was written.
            _mm_sfence();
        }
        tail(walk, finish(acc))
    }

    #[target_feature(enable = "pclmulqdq,sse4.2")]
    pub(super) fn narrow<const HOW: u8>(mut walk: Walk<'_, HOW>, register: u32) -> u32 {
        if walk.left_bytes() < 128 {
            return tail(walk, register);
        }
        let [mut a, mut b, mut c, mut d] = walk.take::<__m128i, 4>().expect("128 bytes");
        a = _mm_xor_si128(a, _mm_cvtsi32_si128(register as i32));
        while let Some(next) = walk.take::<__m128i, 4>() {
            a = fold128(a, BY_512, next[0]);
            b = fold128(b, BY_512, next[1]);
            c = fold128(c, BY_512, next[2]);
            d = fold128(d, BY_512, next[3]);
        }
        let mut acc = fold128(c, BY_128, d);
        acc = fold128(b, BY_256, acc);
        acc = fold128(a, BY_384, acc);
        tail(walk, finish(acc))
    }

    #[target_feature(enable = "sse4.2")]
    #[inline]
    fn tail<const HOW: u8>(mut walk: Walk<'_, HOW>, register: u32) -> u32 {
        let mut register = u64::from(register);
        while let Some([word]) = walk.take::<u64, 1>() {
            register = _mm_crc32_u64(register, word);
        }
        let mut register = register as u32;
        while let Some([byte]) = walk.take::<u8, 1>() {
            register = _mm_crc32_u8(register, byte);
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
            let mut copying = |crc: &dyn Fn(Walk<'_, COPY>) -> u32, form| {
                copied.fill(0);
                let walk = Walk::copying(copied.as_mut_slice().into(), part.into());
                assert_eq!(!crc(walk), want, "{form}, {len}");
                assert_eq!(copied, part, "{form}, {len}");
            };
            copying(&|walk| dispatch(walk, !0), "dispatched");
            copying(&|walk| portable(walk, !0), "portable");
            #[cfg(target_arch = "x86_64")]
            if has_narrow() {
                // SAFETY: the features are there.
                copying(&|walk| unsafe { x86::narrow(walk, !0) }, "narrow");
            }
            assert_eq!(crc(part.into(), 0), want, "not copied, {len}");
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
