//! The one ceiling on the memory that pools may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::pool::CHUNK_BYTES;

/// Under so low a ceiling nothing is left over.
const LOW_BYTES: u64 = 16 << 20;

/// The ceiling `memory_max`, in bytes: pools reserve their chunks from it.
#[derive(Debug)]
pub struct Budget {
    max_bytes: u64,
    used_bytes: AtomicU64,
    /// Of payload, to connections that hold it as a part of a share.
    lent_bytes: AtomicU64,
    shortages: AtomicU64,
}

impl Budget {
    /// A budget of `max_bytes`, nothing of it used.
    pub fn new(max_bytes: u64) -> Arc<Budget> {
        Arc::new(Budget {
            max_bytes,
            used_bytes: AtomicU64::new(0),
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
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Reserves `n` bytes, or nothing and `false` if the ceiling is in the way.
    pub fn try_reserve(&self, n: u64) -> bool {
        self.try_reserve_below(n, self.max_bytes)
    }

    /// The same for payload, which leaves an eighth of the ceiling to the rest
    /// unless it is very low. What serves large buffers leaves a sixteenth more, one
    /// chunk at least, to small ones.
    pub fn try_reserve_payload(&self, n: u64, is_small: bool) -> bool {
        self.try_reserve_below(n, self.payload_max(is_small))
    }

    fn payload_max(&self, is_small: bool) -> u64 {
        match self.max_bytes {
            max if max < LOW_BYTES => max,
            max if is_small => max - max / 8,
            max => max - max / 8 - (max / 16).max(CHUNK_BYTES),
        }
    }

    /// Bytes of payload that are not lent to anybody.
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

    fn try_reserve_below(&self, n: u64, ceiling: u64) -> bool {
        let fits = |used: u64| used.checked_add(n).filter(|&after| after <= ceiling);
        let reserved = self
            .used_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .is_ok();
        if !reserved {
            self.shortages.fetch_add(1, Ordering::Relaxed);
        }
        reserved
    }

    /// Gives `n` reserved bytes back. Panics if fewer were reserved.
    pub fn release(&self, n: u64) {
        let before = self.used_bytes.fetch_sub(n, Ordering::Relaxed);
        assert!(before >= n, "released more memory than was reserved");
    }

    /// How often somebody went without memory: when it grows, pools with free
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
        assert!(budget.try_reserve(60));
        assert!(!budget.try_reserve(41));
        assert_eq!(budget.shortages(), 1);
        assert!(budget.try_reserve(40));
        assert_eq!(budget.used(), 100);
        budget.release(100);
        assert_eq!(budget.used(), 0);
        assert!(!budget.try_reserve(u64::MAX));
    }

    #[test]
    fn payload_leaves_an_eighth_and_large_buffers_a_sixteenth_more() {
        let budget = Budget::new(32 << 20);
        assert!(budget.try_reserve_payload(26 << 20, false));
        assert!(!budget.try_reserve_payload(1, false));
        assert!(budget.try_reserve_payload(2 << 20, true));
        assert!(!budget.try_reserve_payload(1, true));
        assert!(budget.try_reserve(4 << 20));
        assert!(!budget.try_reserve(1));
    }

    #[test]
    #[should_panic(expected = "released more")]
    fn releasing_more_than_reserved_is_a_bug() {
        Budget::new(10).release(1);
    }
}
