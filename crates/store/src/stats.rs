//! Counters of a volume that reactors can bump without sharing a cache line.
//!
//! Each thread owns a stripe and is its only writer, so that counting is a
//! plain load and store; a reader sums the stripes. Threads beyond the number
//! of stripes share the last one with atomic additions.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::atomic::{Ordering::Acquire, Ordering::Release};

use machine::work;

use crate::{Error, Io, counters};

/// I/Os that a volume has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Reads that succeeded.
    pub reads: u64,
    /// Bytes of those.
    pub read_bytes: u64,
    /// Writes that succeeded.
    pub writes: u64,
    /// Bytes of those.
    pub write_bytes: u64,
    /// Flushes that succeeded.
    pub flushes: u64,
    /// Ranges made zero.
    pub zeroes: u64,
    /// Ranges deallocated.
    pub deallocates: u64,
    /// Compares that succeeded, those of compare-and-writes included (each of
    /// which is a write, too).
    pub compares: u64,
    /// Bytes of those.
    pub compare_bytes: u64,
    /// Ranges verified.
    pub verifies: u64,
    /// Bytes of those.
    pub verify_bytes: u64,
    /// Ranges marked as unreadable.
    pub marks: u64,
    /// I/Os that failed.
    pub errors: ErrorStats,
}

/// Failed I/Os by kind, in the order of [`Error`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorStats {
    /// [`Error::OutOfRange`].
    pub out_of_range: u64,
    /// [`Error::ReadOnly`].
    pub read_only: u64,
    /// [`Error::OutOfSpace`].
    pub out_of_space: u64,
    /// [`Error::ReadFailed`] and [`Error::EndsEarly`].
    pub read_failed: u64,
    /// [`Error::WriteFailed`].
    pub write_failed: u64,
    /// [`Error::FlushFailed`].
    pub flush_failed: u64,
    /// [`Error::Miscompare`].
    pub miscompare: u64,
    /// [`Error::Unreadable`].
    pub unreadable: u64,
    /// [`Error::Busy`].
    pub busy: u64,
}

impl ErrorStats {
    /// All of them together.
    pub fn total(&self) -> u64 {
        self.out_of_range
            + self.read_only
            + self.out_of_space
            + self.read_failed
            + self.write_failed
            + self.flush_failed
            + self.miscompare
            + self.unreadable
            + self.busy
    }
}

const STRIPES: usize = 64;
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

const READ: usize = 0;
const WRITE: usize = 1;
const FLUSH: usize = 2;
const ZERO: usize = 3;
const DEALLOCATE: usize = 4;
const READ_BYTES: usize = 5;
const WRITE_BYTES: usize = 6;
const COMPARE: usize = 7;
const COMPARE_BYTES: usize = 8;
const VERIFY: usize = 9;
const VERIFY_BYTES: usize = 10;
const MARK: usize = 11;
const ERRORS: usize = 12;
const CELLS: usize = ERRORS + 9;

/// Two lines: the neighbour line is fetched along with the one asked for.
#[repr(align(128))]
struct Stripe([AtomicU64; CELLS]);

/// The stripe of the calling thread.
struct Here<'a> {
    stripe: &'a Stripe,
    shared: bool,
}

impl Here<'_> {
    #[inline]
    fn new(stripes: &[Stripe; STRIPES]) -> Here<'_> {
        let index = stripe();
        Here {
            stripe: &stripes[index],
            shared: index == SHARED,
        }
    }

    #[inline]
    fn count_read(&self, len: u32) {
        counters::add(len);
        self.add(READ, 1);
        self.add(READ_BYTES, u64::from(len));
    }

    #[inline]
    fn count_write(&self, len: u32) {
        counters::add(len);
        self.add(WRITE, 1);
        self.add(WRITE_BYTES, u64::from(len));
    }

    /// Counts an I/O that moves no bytes.
    fn count_bare(&self, cell: usize) {
        counters::add(0);
        self.add(cell, 1);
    }

    #[inline]
    fn add(&self, cell: usize, n: u64) {
        let cell = &self.stripe.0[cell];
        if self.shared {
            cell.fetch_add(n, Relaxed);
        } else {
            cell.store(cell.load(Relaxed).wrapping_add(n), Relaxed);
        }
    }
}

/// See the module.
pub(crate) struct Counters(Box<[Stripe; STRIPES]>);

impl Counters {
    pub(crate) fn new() -> Counters {
        Counters(Box::new(
            [const { Stripe([const { AtomicU64::new(0) }; CELLS]) }; STRIPES],
        ))
    }

    /// Counts one finished I/O.
    #[inline]
    pub(crate) fn count(&self, io: &Io, result: &Result<(), Error>) {
        if let Err(error) = result {
            return self.count_error(error);
        }
        let here = Here::new(&self.0);
        match io {
            Io::Read { buf, .. } => here.count_read(buf.len()),
            Io::Write { buf, .. } | Io::OrWrite { buf, .. } => here.count_write(buf.len()),
            Io::Flush => here.count_bare(FLUSH),
            Io::Zero { .. } => here.count_bare(ZERO),
            Io::Deallocate { .. } => here.count_bare(DEALLOCATE),
            Io::Compare { buf, .. } => {
                here.add(COMPARE, 1);
                here.add(COMPARE_BYTES, u64::from(buf.len()));
            }
            Io::CompareAndWrite { write, .. } => {
                here.add(COMPARE, 1);
                here.add(COMPARE_BYTES, u64::from(write.len()));
                here.count_write(write.len());
            }
            Io::Verify { len, .. } => {
                here.add(VERIFY, 1);
                here.add(VERIFY_BYTES, *len);
            }
            Io::MarkUnreadable { .. } => here.add(MARK, 1),
        }
    }

    /// Counts a read that was lent.
    #[inline]
    pub(crate) fn count_read(&self, len: u32) {
        Here::new(&self.0).count_read(len);
    }

    /// Counts a write that was received into memory of the volume.
    #[inline]
    pub(crate) fn count_write(&self, len: u32, result: &Result<(), Error>) {
        match result {
            Ok(()) => Here::new(&self.0).count_write(len),
            Err(error) => self.count_error(error),
        }
    }

    #[cold]
    fn count_error(&self, error: &Error) {
        let kind = match error {
            Error::OutOfRange => 0,
            Error::ReadOnly => 1,
            Error::OutOfSpace(_) => 2,
            Error::ReadFailed(_) | Error::EndsEarly => 3,
            Error::WriteFailed(_) => 4,
            Error::FlushFailed(_) => 5,
            Error::Miscompare { .. } => 6,
            Error::Unreadable => 7,
            Error::Busy => 8,
        };
        Here::new(&self.0).add(ERRORS + kind, 1);
    }

    pub(crate) fn stats(&self) -> Stats {
        work::spend_bytes(size_of_val(&*self.0) as u64);
        let mut sums = [0u64; CELLS];
        for stripe in self.0.iter() {
            for (sum, cell) in sums.iter_mut().zip(&stripe.0) {
                *sum = sum.wrapping_add(cell.load(Relaxed));
            }
        }
        Stats {
            reads: sums[READ],
            read_bytes: sums[READ_BYTES],
            writes: sums[WRITE],
            write_bytes: sums[WRITE_BYTES],
            flushes: sums[FLUSH],
            zeroes: sums[ZERO],
            deallocates: sums[DEALLOCATE],
            compares: sums[COMPARE],
            compare_bytes: sums[COMPARE_BYTES],
            verifies: sums[VERIFY],
            verify_bytes: sums[VERIFY_BYTES],
            marks: sums[MARK],
            errors: ErrorStats {
                out_of_range: sums[ERRORS],
                read_only: sums[ERRORS + 1],
                out_of_space: sums[ERRORS + 2],
                read_failed: sums[ERRORS + 3],
                write_failed: sums[ERRORS + 4],
                flush_failed: sums[ERRORS + 5],
                miscompare: sums[ERRORS + 6],
                unreadable: sums[ERRORS + 7],
                busy: sums[ERRORS + 8],
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// More threads than stripes, all alive at once: some share.
    #[test]
    fn no_count_is_lost_between_threads() {
        const THREADS: u64 = STRIPES as u64 + 16;
        const EACH: u64 = 1_000;
        let counters = Counters::new();
        let barrier = Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    counters.count(&Io::Flush, &Ok(()));
                    barrier.wait();
                    for _ in 1..EACH {
                        counters.count(&Io::Flush, &Ok(()));
                    }
                    counters.count(&Io::Flush, &Err(Error::ReadOnly));
                });
            }
        });
        let stats = counters.stats();
        assert_eq!(stats.flushes, THREADS * EACH);
        assert_eq!(stats.errors.read_only, THREADS);
        assert_eq!(stats.errors.total(), THREADS);
    }

    #[test]
    fn no_count_is_lost_on_the_shared_stripe() {
        const EACH: u64 = 1_000_000;
        let counters = Counters::new();
        let barrier = Barrier::new(2);
        let count = || {
            STRIPE.set(SHARED);
            barrier.wait();
            for _ in 0..EACH {
                counters.count(&Io::Flush, &Ok(()));
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(count);
            scope.spawn(count);
        });
        assert_eq!(counters.stats().flushes, 2 * EACH);
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
