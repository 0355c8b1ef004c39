//! Memory that may be registered with a kernel, and whether it has moved.
//!
//! Only regions without huge pages: Linux (6.18, `io_sg_from_iter`) counts what
//! is sent from a registered huge page against the socket's send buffer with
//! all that lies before it in the page, so that one packet fills the buffer.
//!
//! A kernel that has registered memory goes on using the pages that it found
//! there, whatever is mapped at the address later. Memory that is given back
//! and used again is other pages, so each block counts how often any of it was
//! given back, and a driver that has it registered looks at the count before
//! each use.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::region::BufRange;

/// Bytes of a block: what is registered at a time, one huge page.
pub const BLOCK_BYTES: u64 = crate::budget::CHUNK_BYTES;
/// Blocks that are this far apart share a count: 128 GiB of memory.
const COUNTS: usize = 1 << 16;

static COUNT: [AtomicU32; COUNTS] = [const { AtomicU32::new(0) }; COUNTS];
static TOTAL: AtomicU64 = AtomicU64::new(0);

/// A block of memory, by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBlock(u64);

impl MemoryBlock {
    /// The block in which all of `range` lies, if that is one, is no other
    /// region's, and has no huge pages.
    #[inline]
    pub fn of(range: BufRange) -> Option<MemoryBlock> {
        let first = range.as_ptr() as u64;
        let last = first + u64::from(range.len().max(1)) - 1;
        let is_one = first / BLOCK_BYTES == last / BLOCK_BYTES;
        // A region begins with a block; what follows it may be another mapping's.
        let is_whole = (range.offset() / BLOCK_BYTES + 1) * BLOCK_BYTES <= range.mapped_small()?;
        (is_one && is_whole).then_some(MemoryBlock(first / BLOCK_BYTES))
    }

    /// Counted from address 0.
    #[inline]
    pub fn number(self) -> u64 {
        self.0
    }

    /// Its first byte.
    pub fn as_ptr(self) -> *mut u8 {
        (self.0 * BLOCK_BYTES) as *mut u8
    }

    /// How often any of it was given back. To be read before it is registered,
    /// and again before the registration is used: where both are the same, what
    /// is registered is what lies there.
    #[inline]
    pub fn given_back(self) -> u32 {
        COUNT[self.0 as usize % COUNTS].load(Ordering::Acquire)
    }
}

/// How often any memory was given back.
#[inline]
pub fn given_back() -> u64 {
    TOTAL.load(Ordering::Relaxed)
}

/// Memory of ours was given back, just now: a registration made before has
/// other pages than those that will be found there.
#[cold]
pub(crate) fn give_back(at: u64, bytes: u64) {
    let (first, last) = (at / BLOCK_BYTES, (at + bytes.max(1) - 1) / BLOCK_BYTES);
    for block in first..=last.min(first + COUNTS as u64 - 1) {
        COUNT[block as usize % COUNTS].fetch_add(1, Ordering::Release);
    }
    TOTAL.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Region;

    #[test]
    fn memory_that_is_given_back_is_counted_in_its_block() {
        let region = Region::small_pages(4 * BLOCK_BYTES).unwrap();
        let block = |at: u64| MemoryBlock::of(region.range(at * BLOCK_BYTES, 4096)).unwrap();
        let counts = || [0, 1, 2, 3].map(|at| block(at).given_back());
        let (before, total) = (counts(), given_back());
        region
            .discard(BLOCK_BYTES + 4096, BLOCK_BYTES + 4096)
            .unwrap();
        let [a, b, c, d] = before;
        assert_eq!(counts(), [a, b + 1, c + 1, d]);
        assert!(given_back() > total);
        let last = block(3);
        drop(region);
        assert_eq!(last.given_back(), d + 1);
    }

    #[test]
    fn a_range_of_two_blocks_is_in_none() {
        let region = Region::small_pages(2 * BLOCK_BYTES).unwrap();
        let of = |at, len| MemoryBlock::of(region.range(at, len));
        assert_eq!(of(0, BLOCK_BYTES as u32), of(BLOCK_BYTES - 1, 1));
        assert_eq!(of(BLOCK_BYTES - 1, 2), None);
        let second = of(BLOCK_BYTES, 1).unwrap();
        assert_eq!(second.as_ptr(), region.range(BLOCK_BYTES, 1).as_ptr());
    }

    #[test]
    fn a_block_of_huge_pages_is_none() {
        for region in [
            Region::anonymous(BLOCK_BYTES).unwrap(),
            Region::bulk(64 << 20).unwrap(),
        ] {
            assert_eq!(MemoryBlock::of(region.range(0, 4096)), None);
        }
    }

    #[test]
    fn a_block_that_goes_past_its_region_is_none() {
        let region = Region::small_pages(2 * BLOCK_BYTES - 4096).unwrap();
        assert!(MemoryBlock::of(region.range(0, 4096)).is_some());
        assert_eq!(MemoryBlock::of(region.range(BLOCK_BYTES, 4096)), None);
    }
}
