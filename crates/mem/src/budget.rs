//! The one ceiling on the memory that pools may take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a pool reserves at a time, in bytes: one huge page.
pub const CHUNK_BYTES: u64 = 2 << 20;
/// Buffers of at most this many bytes have memory that larger ones leave to them.
pub(crate) const SMALL_BYTES_MAX: u64 = 16 << 10;
/// Sizes of those.
pub(crate) const SMALL_CLASSES: usize = 2;
/// What each pool needs to go on, if slowly, in bytes: chunks for stages, for small buffers,
/// and for two of the largest. Under a lower ceiling nothing is kept.
pub const POOL_BYTES_MIN: u64 = 8 * CHUNK_BYTES;
/// Each pool keeps a chunk for each size of small buffers.
const POOL_SMALL_BYTES: u64 = SMALL_CLASSES as u64 * CHUNK_BYTES;

/// What memory is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryUse {
    Payload,
    SmallPayload,
    /// The first chunk of a pool for each size of small payload: chunks belong to one pool
    /// and one size.
    FirstSmallPayload,
    Stage,
}

const USES: usize = 4;

/// The ceiling `memory_max`, in bytes: pools reserve their chunks from it.
#[derive(Debug)]
pub struct Budget {
    max_bytes: u64,
    /// What is kept for each [`MemoryUse`], whatever others need.
    kept_bytes: [u64; USES],
    /// For each [`MemoryUse`]. The lock is taken for whole chunks, which buffers seldom need.
    used_bytes: Mutex<[u64; USES]>,
    /// Of larger and of small payload, to connections that hold it as a part of a share.
    lent_bytes: [AtomicU64; 2],
    shortages: AtomicU64,
}

impl Budget {
    /// A budget of `max_bytes` for one pool, nothing of it used.
    pub fn new(max_bytes: u64) -> Arc<Budget> {
        Budget::of_pools(max_bytes, 1)
    }

    /// The same for so many pools.
    pub fn of_pools(max_bytes: u64, pools: usize) -> Arc<Budget> {
        Arc::new(Budget {
            max_bytes,
            kept_bytes: kept_bytes(max_bytes, pools as u64),
            used_bytes: Mutex::default(),
            lent_bytes: Default::default(),
            shortages: AtomicU64::new(0),
        })
    }

    /// The ceiling, in bytes.
    pub fn max(&self) -> u64 {
        self.max_bytes
    }

    /// Bytes reserved now.
    pub fn used(&self) -> u64 {
        self.reserved().iter().sum()
    }

    fn reserved(&self) -> MutexGuard<'_, [u64; USES]> {
        let used_bytes = self.used_bytes.lock();
        used_bytes.unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn kept(&self, of: MemoryUse) -> u64 {
        self.kept_bytes[of as usize]
    }

    /// Reserves `n` bytes for `of`, or nothing and `false` if the ceiling is in the way
    /// or what is kept for others.
    pub(crate) fn try_reserve(&self, n: u64, of: MemoryUse) -> bool {
        let mut used = self.reserved();
        let taken = |other: usize| match other == of as usize {
            true => used[other],
            false => used[other].max(self.kept_bytes[other]),
        };
        let left = self.max_bytes.saturating_sub((0..USES).map(taken).sum());
        if n > left {
            self.shortages.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        used[of as usize] += n;
        true
    }

    /// Bytes of small or of larger payload that are not lent: the other has what is kept
    /// for it, or what it has taken. The first chunks of pools are left out, as no other
    /// pool has them.
    #[inline]
    pub(crate) fn left(&self, is_small: bool) -> u64 {
        let [large, small] = &self.lent_bytes;
        let (own, other, kept) = match is_small {
            true => (small, large, self.kept(MemoryUse::Payload)),
            false => (large, small, self.kept(MemoryUse::SmallPayload)),
        };
        let of_payload =
            self.max_bytes - self.kept(MemoryUse::Stage) - self.kept(MemoryUse::FirstSmallPayload);
        let other = other.load(Ordering::Relaxed).max(kept);
        of_payload.saturating_sub(own.load(Ordering::Relaxed) + other)
    }

    #[inline]
    pub(crate) fn lend(&self, n: u64, is_small: bool) {
        self.lent_bytes[usize::from(is_small)].fetch_add(n, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn unlend(&self, n: u64, is_small: bool) {
        self.lent_bytes[usize::from(is_small)].fetch_sub(n, Ordering::Relaxed);
    }

    /// Gives `n` bytes back that were reserved for `of`. Panics if fewer were.
    pub(crate) fn release(&self, n: u64, of: MemoryUse) {
        let used = &mut self.reserved()[of as usize];
        assert!(*used >= n, "released more memory than was reserved");
        *used -= n;
    }

    /// How often a request found no memory: when it grows, pools with free
    /// chunks should give them back.
    #[inline]
    pub fn shortages(&self) -> u64 {
        self.shortages.load(Ordering::Relaxed)
    }
}

/// Of a ceiling over so many pools: an eighth for stages; a sixteenth for small payload,
/// or as much as the first chunks of all pools are; and a quarter for larger payload:
/// stages are full of what waits for that.
fn kept_bytes(max_bytes: u64, pools: u64) -> [u64; USES] {
    let mut kept_bytes = [0; USES];
    if max_bytes >= pools * POOL_BYTES_MIN {
        let first = pools * POOL_SMALL_BYTES;
        kept_bytes[MemoryUse::Payload as usize] = max_bytes / 4;
        kept_bytes[MemoryUse::FirstSmallPayload as usize] = first;
        kept_bytes[MemoryUse::SmallPayload as usize] = (max_bytes / 16).saturating_sub(first);
        kept_bytes[MemoryUse::Stage as usize] = max_bytes / 8;
    }
    kept_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserves_up_to_the_ceiling_and_no_further() {
        let budget = Budget::new(100);
        assert!(budget.try_reserve(60, MemoryUse::Stage));
        assert_eq!(budget.shortages(), 0);
        assert!(!budget.try_reserve(41, MemoryUse::Payload));
        assert_eq!(budget.shortages(), 1);
        assert!(budget.try_reserve(40, MemoryUse::Payload));
        assert_eq!(budget.used(), 100);
        budget.release(60, MemoryUse::Stage);
        budget.release(40, MemoryUse::Payload);
        assert_eq!(budget.used(), 0);
        assert!(!budget.try_reserve(u64::MAX, MemoryUse::Stage));
    }

    #[test]
    fn each_use_finds_what_is_kept_for_it_in_any_order() {
        let (payload, small, first, stage) = (
            MemoryUse::Payload,
            MemoryUse::SmallPayload,
            MemoryUse::FirstSmallPayload,
            MemoryUse::Stage,
        );
        for order in [
            [(payload, 104), (small, 4), (stage, 16), (first, 4)],
            [(stage, 88), (first, 4), (small, 4), (payload, 32)],
            [(small, 76), (stage, 16), (payload, 32), (first, 4)],
        ] {
            let budget = Budget::new(128 << 20);
            for (of, mib) in order {
                assert!(budget.try_reserve(mib << 20, of), "{of:?} of {order:?}");
                assert!(!budget.try_reserve(1, of), "{of:?} of {order:?}");
            }
            assert_eq!(budget.used(), 128 << 20);
        }
    }

    #[test]
    #[should_panic(expected = "released more")]
    fn releasing_more_than_reserved_is_a_bug() {
        Budget::new(10).release(1, MemoryUse::Stage);
    }
}
