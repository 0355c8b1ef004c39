//! The one ceiling on the memory that pools may take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a pool reserves at a time, in bytes: one huge page.
pub const CHUNK_BYTES: u64 = 2 << 20;
/// Buffers of at most this many bytes have memory that larger ones leave to them.
pub(crate) const SMALL_BYTES_MAX: u64 = 16 << 10;
/// Under so low a ceiling nothing is left over.
const LOW_BYTES: u64 = 16 << 20;

/// What memory is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryUse {
    Payload,
    SmallPayload,
    Stage,
}

const USES: usize = 3;

/// The ceiling `memory_max`, in bytes: pools reserve their chunks from it.
#[derive(Debug)]
pub struct Budget {
    max_bytes: u64,
    /// For each [`MemoryUse`]. The lock is taken for whole chunks, which buffers seldom need.
    used_bytes: Mutex<[u64; USES]>,
    /// Of payload, to connections that hold it as a part of a share.
    lent_bytes: AtomicU64,
    shortages: AtomicU64,
}

impl Budget {
    /// A budget of `max_bytes`, nothing of it used.
    pub fn new(max_bytes: u64) -> Arc<Budget> {
        Arc::new(Budget {
            max_bytes,
            used_bytes: Mutex::default(),
            lent_bytes: AtomicU64::new(0),
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

    /// What is kept for `of`, whatever else there is: an eighth of the ceiling for
    /// stages, a sixteenth, one chunk at least, for small payload, and a quarter for
    /// other payload: stages are full of what waits for that.
    fn kept(&self, of: MemoryUse) -> u64 {
        match of {
            _ if self.max_bytes < LOW_BYTES => 0,
            MemoryUse::Payload => self.max_bytes / 4,
            MemoryUse::SmallPayload => (self.max_bytes / 16).max(CHUNK_BYTES),
            MemoryUse::Stage => self.max_bytes / 8,
        }
    }

    /// Reserves `n` bytes for `of`, or nothing and `false` if the ceiling is in the way
    /// or what is kept for others.
    pub(crate) fn try_reserve(&self, n: u64, of: MemoryUse) -> bool {
        let mut used = self.reserved();
        let others = [
            MemoryUse::Payload,
            MemoryUse::SmallPayload,
            MemoryUse::Stage,
        ]
        .map(|other| match other == of {
            true => used[other as usize],
            false => used[other as usize].max(self.kept(other)),
        });
        let left = self.max_bytes.saturating_sub(others.iter().sum());
        if n > left {
            self.shortages.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        used[of as usize] += n;
        true
    }

    /// What payload may have together; large buffers leave what is kept for small ones.
    fn payload_max(&self, is_small: bool) -> u64 {
        let kept_small = match is_small {
            true => 0,
            false => self.kept(MemoryUse::SmallPayload),
        };
        self.max_bytes - self.kept(MemoryUse::Stage) - kept_small
    }

    /// Bytes of payload that are not lent.
    #[inline]
    pub(crate) fn left(&self, is_small: bool) -> u64 {
        let lent = self.lent_bytes.load(Ordering::Relaxed);
        self.payload_max(is_small).saturating_sub(lent)
    }

    #[inline]
    pub(crate) fn lend(&self, n: u64) {
        self.lent_bytes.fetch_add(n, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn unlend(&self, n: u64) {
        self.lent_bytes.fetch_sub(n, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserves_up_to_the_ceiling_and_no_further() {
        let budget = Budget::new(100);
        assert!(budget.try_reserve(60, MemoryUse::Stage));
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
        let (payload, small, stage) = (
            MemoryUse::Payload,
            MemoryUse::SmallPayload,
            MemoryUse::Stage,
        );
        for order in [
            [(payload, 26), (small, 2), (stage, 4)],
            [(stage, 22), (small, 2), (payload, 8)],
            [(small, 20), (stage, 4), (payload, 8)],
        ] {
            let budget = Budget::new(32 << 20);
            for (of, mib) in order {
                assert!(budget.try_reserve(mib << 20, of), "{of:?} of {order:?}");
                assert!(!budget.try_reserve(1, of), "{of:?} of {order:?}");
            }
            assert_eq!(budget.used(), 32 << 20);
        }
    }

    #[test]
    #[should_panic(expected = "released more")]
    fn releasing_more_than_reserved_is_a_bug() {
        Budget::new(10).release(1, MemoryUse::Stage);
    }
}
