//! How many frames may be pinned: fewer than are kept for writes to pinned
//! frames, so that such a write always finds one, however long readers take.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Threads with a share of their own; others count together.
const SHARES: usize = 64;
const NONE: usize = SHARES;
const UNCLAIMED: usize = usize::MAX;

/// Bit i is set while a thread owns share i of every quota.
static CLAIMED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static MINE: Cell<usize> = const { Cell::new(UNCLAIMED) };
    static CLAIM: QuotaClaim = QuotaClaim::take();
}

/// A thread's ownership of its shares; ends with the thread.
struct QuotaClaim(usize);

impl QuotaClaim {
    fn take() -> QuotaClaim {
        let free = |bits: u64| {
            let share = bits.trailing_ones() as usize;
            (share < SHARES).then(|| bits | 1 << share)
        };
        // Acquire and Release: what the last owner has left is ours.
        match CLAIMED.fetch_update(Ordering::Acquire, Ordering::Relaxed, free) {
            Ok(bits) => QuotaClaim(bits.trailing_ones() as usize),
            Err(_) => QuotaClaim(NONE),
        }
    }
}

impl Drop for QuotaClaim {
    fn drop(&mut self) {
        MINE.set(NONE);
        if self.0 != NONE {
            CLAIMED.fetch_and(!(1 << self.0), Ordering::Release);
        }
    }
}

#[cold]
fn claim() -> usize {
    let share = CLAIM.try_with(|claim| claim.0).unwrap_or(NONE);
    MINE.set(share);
    share
}

#[inline]
fn mine() -> usize {
    match MINE.get() {
        UNCLAIMED => claim(),
        share => share,
    }
}

/// Pins that may still be made. Each thread keeps a few for itself, which it
/// takes and gives with plain loads and stores.
pub(super) struct Quota {
    left: CacheLine,
    shares: Box<[CacheLine; SHARES]>,
    /// Taken from `left` at a time.
    chunk: i64,
}

#[repr(align(128))]
struct CacheLine(AtomicI64);

impl Quota {
    pub(super) fn new(max: i64) -> Quota {
        Quota {
            left: CacheLine(AtomicI64::new(max)),
            shares: Box::new([const { CacheLine(AtomicI64::new(0)) }; SHARES]),
            chunk: max / 256,
        }
    }

    /// Only while nothing is pinned and no thread pins.
    pub(super) fn reset(&self, max: i64) {
        for share in &*self.shares {
            share.0.store(0, Ordering::Relaxed);
        }
        self.left.0.store(max, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn take(&self, n: i64) -> bool {
        let share = self.shares.get(mine());
        let have = share.map_or(0, |share| share.0.load(Ordering::Relaxed));
        match share {
            Some(share) if have >= n => {
                share.0.store(have - n, Ordering::Relaxed);
                true
            }
            _ => self.take_more(share, n - have),
        }
    }

    #[cold]
    fn take_more(&self, share: Option<&CacheLine>, missing: i64) -> bool {
        let keep = if share.is_some() { self.chunk } else { 0 };
        for keep in [keep, 0] {
            let wanted = missing + keep;
            if self.left.0.fetch_sub(wanted, Ordering::Relaxed) >= wanted {
                if let Some(share) = share {
                    share.0.store(keep, Ordering::Relaxed);
                }
                return true;
            }
            self.left.0.fetch_add(wanted, Ordering::Relaxed);
        }
        false
    }

    #[inline]
    pub(super) fn give(&self, n: i64) {
        let Some(share) = self.shares.get(mine()) else {
            self.left.0.fetch_add(n, Ordering::Relaxed);
            return;
        };
        let mut have = share.0.load(Ordering::Relaxed) + n;
        if have > 2 * self.chunk {
            self.left.0.fetch_add(have - self.chunk, Ordering::Relaxed);
            have = self.chunk;
        }
        share.0.store(have, Ordering::Relaxed);
    }

    /// All that may still be pinned.
    #[cfg(test)]
    pub(super) fn count(&self) -> i64 {
        let shares = self.shares.iter();
        let kept: i64 = shares.map(|share| share.0.load(Ordering::Relaxed)).sum();
        kept + self.left.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::thread;

    /// More threads than shares, all alive at once.
    #[test]
    fn never_more_than_there_are_and_all_come_back() {
        const MAX: i64 = 5000;
        let (quota, taken) = (Quota::new(MAX), AtomicI64::new(0));
        let barrier = Barrier::new(SHARES + 8);
        thread::scope(|scope| {
            for me in 0..SHARES as i64 + 8 {
                let (quota, taken, barrier) = (&quota, &taken, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let mut mine = Vec::new();
                    for round in 0..2000 {
                        let n = (me + round) % 9 + 1;
                        if quota.take(n) {
                            assert!(taken.fetch_add(n, Ordering::SeqCst) + n <= MAX);
                            mine.push(n);
                        }
                        if round % 3 == 0 || mine.len() > 20 {
                            let n = mine.pop().unwrap_or(0);
                            taken.fetch_sub(n, Ordering::SeqCst);
                            quota.give(n);
                        }
                    }
                    for n in mine {
                        taken.fetch_sub(n, Ordering::SeqCst);
                        quota.give(n);
                    }
                });
            }
        });
        assert_eq!(quota.count(), MAX);
    }

    #[test]
    fn the_last_ones_can_be_taken() {
        let quota = Quota::new(1000);
        for _ in 0..1000 {
            assert!(quota.take(1));
        }
        assert!(!quota.take(1));
        quota.give(5);
        assert!(!quota.take(6));
        assert!(quota.take(5));
        quota.give(1000);
        assert_eq!(quota.count(), 1000);
        quota.reset(1000);
        assert!(quota.take(1000));
    }
}
