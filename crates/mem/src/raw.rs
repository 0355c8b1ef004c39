//! Memory by its address: what is copied, digested, compared and cleared. It is never
//! seen as `&[u8]`, since others may write the bytes meanwhile; what is then copied is
//! some mix of old and new bytes, as with any disk.

use crate::region::BufRange;
use std::marker::PhantomData;

/// Shorter copies go through the cache in any case.
#[cfg(target_arch = "x86_64")]
const AROUND_BYTES_MIN: usize = 512;

/// Bytes to read: those of a slice, or of a range, whose memory stays mapped.
#[derive(Clone, Copy)]
pub(crate) struct RawSource<'a> {
    at: *const u8,
    len: usize,
    of: PhantomData<&'a [u8]>,
}

impl<'a> From<&'a [u8]> for RawSource<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> RawSource<'a> {
        RawSource {
            at: bytes.as_ptr(),
            len: bytes.len(),
            of: PhantomData,
        }
    }
}

impl From<BufRange> for RawSource<'_> {
    #[inline]
    fn from(range: BufRange) -> Self {
        RawSource {
            at: range.as_ptr(),
            len: range.len() as usize,
            of: PhantomData,
        }
    }
}

impl RawSource<'_> {
    /// Whether both hold the same bytes. Panics if their lengths differ.
    #[inline]
    pub(crate) fn equals(self, other: RawSource<'_>) -> bool {
        let len = same_len(self.len, other.len);
        // SAFETY: both are valid for `len` bytes.
        unsafe { libc::memcmp(self.at.cast(), other.at.cast(), len) == 0 }
    }
}

/// Bytes to write, of the same two kinds. A slice never lies in a region except as a
/// stage, whose bytes no handle names: it overlaps no range.
pub(crate) struct RawTarget<'a> {
    at: *mut u8,
    len: usize,
    /// To be written around the cache.
    is_cold: bool,
    of: PhantomData<&'a mut [u8]>,
}

impl<'a> From<&'a mut [u8]> for RawTarget<'a> {
    #[inline]
    fn from(bytes: &'a mut [u8]) -> RawTarget<'a> {
        RawTarget {
            at: bytes.as_mut_ptr(),
            len: bytes.len(),
            is_cold: false,
            of: PhantomData,
        }
    }
}

impl From<BufRange> for RawTarget<'_> {
    #[inline]
    fn from(range: BufRange) -> Self {
        let (at, is_cold) = range.resolve();
        RawTarget {
            at,
            len: range.len() as usize,
            is_cold,
            of: PhantomData,
        }
    }
}

impl RawTarget<'_> {
    /// Whether it is to be written around the cache.
    #[inline]
    pub(crate) fn is_cold(&self) -> bool {
        self.is_cold
    }

    /// Copies all of `src`, which may overlap. Panics if the lengths differ.
    #[inline]
    pub(crate) fn copy_from(self, src: RawSource<'_>) {
        let len = same_len(self.len, src.len);
        let overlaps = (self.at as usize).abs_diff(src.at as usize) < len;
        #[cfg(target_arch = "x86_64")]
        if self.is_cold && len >= AROUND_BYTES_MIN && !overlaps {
            return self.copy_around(src);
        }
        // SAFETY: both are valid for `len` bytes; they overlap in the first case only.
        unsafe {
            match overlaps {
                true => std::ptr::copy(src.at, self.at, len),
                false => std::ptr::copy_nonoverlapping(src.at, self.at, len),
            }
        }
    }

    /// The same around the cache: lines that are wholly written need not be read. They
    /// do not overlap, and their lengths are the same.
    #[cfg(target_arch = "x86_64")]
    fn copy_around(self, src: RawSource<'_>) {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
        use std::ptr::copy_nonoverlapping;
        let (dst, src, len) = (self.at, src.at, self.len.min(src.len));
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

    /// Fills it with zeros.
    #[inline]
    pub(crate) fn zero(self) {
        // SAFETY: it is valid for its length.
        unsafe { std::ptr::write_bytes(self.at, 0, self.len) };
    }

    /// Sets the bits that are set in `src`. Panics if the lengths differ.
    pub(crate) fn or(self, src: RawSource<'_>) {
        for at in 0..same_len(self.len, src.len) {
            // SAFETY: both are valid for as many bytes.
            unsafe { *self.at.add(at) |= *src.at.add(at) };
        }
    }
}

#[inline]
fn same_len(a: usize, b: usize) -> usize {
    assert!(a == b, "copy between different lengths");
    a
}

/// What a [`Walk`] does with the bytes: nothing,
pub(crate) const SKIP: u8 = 0;
/// copies them,
pub(crate) const COPY: u8 = 1;
/// or copies them, words of a whole line around the cache where they lie so.
pub(crate) const AROUND: u8 = 2;

/// A word of memory.
///
/// # Safety
/// Any bits are a value of it.
pub(crate) unsafe trait Word: Copy {}

macro_rules! words {
    ($($word:ty),*) => {
        // SAFETY: integers and vectors of integers.
        $(unsafe impl Word for $word {})*
    };
}

words!(u8, u64);
#[cfg(target_arch = "x86_64")]
words!(std::arch::x86_64::__m128i, std::arch::x86_64::__m512i);

/// Bytes that are read once from front to back, and copied on the way as `HOW` says.
pub(crate) struct Walk<'a, const HOW: u8> {
    src: *const u8,
    dst: *mut u8,
    left: usize,
    of: PhantomData<(RawSource<'a>, RawTarget<'a>)>,
}

impl<'a> Walk<'a, SKIP> {
    /// Nothing is written.
    #[inline]
    pub(crate) fn reading(src: RawSource<'a>) -> Self {
        Walk {
            src: src.at,
            dst: std::ptr::null_mut(),
            left: src.len,
            of: PhantomData,
        }
    }
}

impl<'a, const HOW: u8> Walk<'a, HOW> {
    /// Panics if the lengths differ, or if the processor has no words of a line.
    #[inline]
    pub(crate) fn copying(dst: RawTarget<'a>, src: RawSource<'a>) -> Self {
        #[cfg(target_arch = "x86_64")]
        assert!(HOW != AROUND || is_x86_feature_detected!("avx512f"));
        Walk {
            src: src.at,
            dst: dst.at,
            left: same_len(dst.len, src.len),
            of: PhantomData,
        }
    }

    /// Bytes that are left.
    #[inline]
    pub(crate) fn left_bytes(&self) -> usize {
        self.left
    }

    /// The next words, if as many are left.
    // Always: its caller may have the processor's features that the words take.
    #[inline(always)]
    pub(crate) fn take<T: Word, const N: usize>(&mut self) -> Option<[T; N]> {
        let bytes = N * size_of::<T>();
        if self.left < bytes {
            return None;
        }
        // SAFETY: so many bytes are left of both; the maker of one that goes around
        // the cache has seen that the processor can.
        unsafe {
            let (src, dst) = (self.src.cast::<T>(), self.dst.cast::<T>());
            let mut words = [src.read_unaligned(); N];
            for (i, word) in words.iter_mut().enumerate() {
                *word = src.add(i).read_unaligned();
                match HOW {
                    SKIP => {}
                    #[cfg(target_arch = "x86_64")]
                    AROUND if size_of::<T>() == 64 && dst.is_aligned() => {
                        use std::arch::x86_64::_mm512_stream_si512;
                        _mm512_stream_si512(dst.add(i).cast(), std::mem::transmute_copy(word));
                    }
                    _ => dst.add(i).write_unaligned(*word),
                }
            }
            self.src = self.src.add(bytes);
            self.dst = self.dst.wrapping_add(bytes);
            self.left -= bytes;
            Some(words)
        }
    }
}
