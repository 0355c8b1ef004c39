//! Counters that threads bump without sharing a cache line.
//!
//! Each thread owns a stripe and is its only writer, so that counting is a plain load and
//! store; a reader sums the stripes and costs no thread anything. Threads beyond the number
//! of stripes share the last one with atomic additions. A stripe is made when its thread
//! counts there first.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::atomic::{Ordering::Acquire, Ordering::Release};

pub(crate) const STRIPES: usize = 64;
/// The stripe of threads that found no free one.
const SHARED: usize = STRIPES - 1;
const UNCLAIMED: usize = usize::MAX;

/// Bit i is set while a thread owns stripe i.
static CLAIMED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static STRIPE: Cell<usize> = const { Cell::new(UNCLAIMED) };
    static CLAIM: StripeClaim = StripeClaim::take();
}

/// A thread's ownership of a stripe; ends with the thread.
struct StripeClaim(usize);

impl StripeClaim {
    fn take() -> StripeClaim {
        let free = |bits: u64| {
            let stripe = bits.trailing_ones() as usize;
            (stripe < SHARED).then(|| bits | 1 << stripe)
        };
        match CLAIMED.fetch_update(Acquire, Relaxed, free) {
            Ok(bits) => StripeClaim(bits.trailing_ones() as usize),
            Err(_) => StripeClaim(SHARED),
        }
    }
}

impl Drop for StripeClaim {
    fn drop(&mut self) {
        STRIPE.set(SHARED);
        if self.0 != SHARED {
            CLAIMED.fetch_and(!(1 << self.0), Release);
        }
    }
}

#[cold]
fn claim() -> usize {
    let stripe = CLAIM.try_with(|claim| claim.0).unwrap_or(SHARED);
    STRIPE.set(stripe);
    stripe
}

#[inline]
fn stripe() -> usize {
    match STRIPE.get() {
        UNCLAIMED => claim(),
        stripe => stripe,
    }
}

/// One counter of each thread that counts. Two lines: the neighbour line is fetched along
/// with the one asked for.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe<T>(T);

/// A `T` of each thread that counts.
#[derive(Debug)]
pub struct Stripes<T>([OnceLock<Box<Stripe<T>>>; STRIPES]);

impl<T> Default for Stripes<T> {
    fn default() -> Stripes<T> {
        Stripes([const { OnceLock::new() }; STRIPES])
    }
}

/// The calling thread's part of some [`Stripes`].
pub struct Here<'a, T> {
    /// Its counters.
    pub cells: &'a T,
    is_shared: bool,
}

impl<T> Here<'_, T> {
    /// Adds to one of the counters.
    #[inline]
    pub fn add(&self, cell: impl FnOnce(&T) -> &AtomicU64, n: u64) {
        let cell = cell(self.cells);
        if self.is_shared {
            cell.fetch_add(n, Relaxed);
        } else {
            cell.store(cell.load(Relaxed).wrapping_add(n), Relaxed);
        }
    }
}

impl<T: Default> Stripes<T> {
    /// Those of the calling thread.
    #[inline]
    pub fn here(&self) -> Here<'_, T> {
        let index = stripe();
        Here {
            cells: &self.0[index].get_or_init(Box::default).0,
            is_shared: index == SHARED,
        }
    }

    /// Those of each thread that has counted.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let made = self.0.iter().filter_map(OnceLock::get);
        made.map(|stripe| &stripe.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn sum(stripes: &Stripes<AtomicU64>) -> u64 {
        stripes.iter().map(|cell| cell.load(Relaxed)).sum()
    }

    /// More threads than stripes, all alive at once: some share.
    #[test]
    fn no_count_is_lost_between_threads() {
        const THREADS: u64 = STRIPES as u64 + 16;
        const EACH: u64 = 1_000;
        let stripes = Stripes::default();
        let barrier = Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    stripes.here().add(|cell| cell, 1);
                    barrier.wait();
                    for _ in 1..EACH {
                        stripes.here().add(|cell| cell, 1);
                    }
                });
            }
        });
        assert_eq!(sum(&stripes), THREADS * EACH);
    }

    #[test]
    fn no_count_is_lost_on_the_shared_stripe() {
        const EACH: u64 = 1_000_000;
        let stripes = Stripes::default();
        let barrier = Barrier::new(2);
        let count = || {
            STRIPE.set(SHARED);
            barrier.wait();
            for _ in 0..EACH {
                stripes.here().add(|cell| cell, 1);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(count);
            scope.spawn(count);
        });
        assert_eq!(sum(&stripes), 2 * EACH);
    }

    #[test]
    fn a_stripe_has_one_owner_and_comes_back() {
        for _ in 0..3 * STRIPES {
            std::thread::spawn(|| assert_ne!(stripe(), UNCLAIMED))
                .join()
                .unwrap();
        }
        let mine = stripe();
        let theirs = std::thread::spawn(stripe).join().unwrap();
        assert!(mine != theirs || mine == SHARED);
    }
}
