//! When a reactor gives memory back.

use crate::sys::Nanos;
use mem::Pool;

/// How often a reactor that sleeps gives memory back that it has not used since.
const INTERVAL_NS: Nanos = 5_000_000_000;
/// After so many of these times nothing is left to be given back until there was work.
const TRIMS: u32 = 2;

/// What a loop gives back of its pool: where there was too little, all that is not lent;
/// while it sleeps, what was not lent for a while.
#[derive(Debug)]
pub struct Trimmer {
    pool: Pool,
    at: Nanos,
    left: u32,
    shortages: u64,
}

impl Trimmer {
    /// Of a loop that begins.
    pub fn new(pool: &Pool) -> Trimmer {
        Trimmer {
            pool: pool.clone(),
            at: 0,
            left: TRIMS,
            shortages: pool.budget().shortages(),
        }
    }

    /// A turn that had something to do is over.
    #[inline]
    pub fn worked(&mut self) {
        self.left = TRIMS;
        let shortages = self.pool.budget().shortages();
        if std::mem::replace(&mut self.shortages, shortages) != shortages {
            self.pool.trim();
        }
    }

    /// There is nothing to do: when to look again at the latest. `give_back` is the
    /// driver's.
    pub fn sleeps(&mut self, now: Nanos, give_back: impl FnOnce() -> bool) -> Nanos {
        if self.left > 0 && now >= self.at {
            // Also with connections that are open, of which many may have gone.
            if give_back() {
                mem::give_back_heap();
            }
            (self.at, self.left) = (now + INTERVAL_NS, self.left - 1);
        }
        match self.left {
            0 => Nanos::MAX,
            _ => self.at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mem::Budget;
    use std::sync::Arc;

    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_that_is_not_used_goes_back_once_and_then_nothing_wakes_the_loop() {
        let pool = Pool::new(Budget::new(64 * MIB)).unwrap();
        let mut trimmer = Trimmer::new(&pool);
        let give_back = || pool.trim_unused() > 0;
        drop(pool.get(4096).unwrap());
        trimmer.worked();
        let first = trimmer.sleeps(7, give_back);
        assert_eq!(pool.reserved_bytes(), 2 * MIB, "it was used just now");
        assert_eq!(
            trimmer.sleeps(first - 1, give_back),
            first,
            "it is not time yet"
        );
        assert_eq!(trimmer.sleeps(first, give_back), Nanos::MAX);
        assert_eq!(pool.reserved_bytes(), 0);
        trimmer.worked();
        let next = trimmer.sleeps(first + 1, give_back);
        assert_eq!(next, first + INTERVAL_NS);
    }

    #[test]
    fn where_there_was_too_little_all_that_is_not_lent_goes_back_after_the_turn() {
        let budget = Budget::new(4 * MIB);
        let pool = Pool::new(Arc::clone(&budget)).unwrap();
        let other = Pool::new(budget).unwrap();
        let mut trimmer = Trimmer::new(&pool);
        drop((pool.get(2 << 20).unwrap(), pool.get(2 << 20).unwrap()));
        trimmer.worked();
        assert_eq!(pool.reserved_bytes(), 4 * MIB);
        assert!(other.get(4096).is_none());
        trimmer.worked();
        assert_eq!(pool.reserved_bytes(), 0);
    }
}
