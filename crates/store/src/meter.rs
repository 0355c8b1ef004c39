//! What hosts did with a volume, an export or by themselves, for those who watch: I/Os and
//! bytes, all of them, and how long some took.
//!
//! Each thread writes its own cells, and whoever watches reads those of all: a scrape costs
//! no reactor anything.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use machine::Nanos;

use crate::stripes::Stripes;

/// What an I/O does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoOp {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It makes what was written durable.
    Flush,
    /// Anything else.
    #[default]
    Other,
}

impl IoOp {
    /// All, in the order of their numbers.
    pub const ALL: [IoOp; 4] = [IoOp::Read, IoOp::Write, IoOp::Flush, IoOp::Other];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        ["read", "write", "flush", "other"][self as usize]
    }
}

/// Upper bounds of a [`Histogram`]'s buckets: each is twice the one before.
pub const BOUNDS: usize = 24;
/// The first bound is 2 to this, in nanoseconds: about half a microsecond. The last is
/// about four seconds.
const FIRST_BOUND_SHIFT: u32 = 9;

/// The upper bound of a bucket, which belongs to it.
pub const fn bound(bucket: usize) -> Nanos {
    1 << (FIRST_BOUND_SHIFT as usize + bucket)
}

/// The bucket of a time; [`BOUNDS`] is that of all that is longer.
fn bucket(ns: Nanos) -> usize {
    let above = ns.saturating_sub(1) >> FIRST_BOUND_SHIFT;
    (u64::BITS - above.leading_zeros()).min(BOUNDS as u32) as usize
}

/// Times, of one thread.
#[derive(Debug, Default)]
struct HistogramCells {
    buckets: [AtomicU64; BOUNDS + 1],
    sum_ns: AtomicU64,
}

/// Times, by length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// How many fell into each bucket; into the last all that are beyond [`BOUNDS`].
    pub buckets: [u64; BOUNDS + 1],
    /// All together, nanoseconds.
    pub sum_ns: u64,
}

impl Histogram {
    fn add(&mut self, cells: &HistogramCells) {
        for (to, from) in self.buckets.iter_mut().zip(&cells.buckets) {
            *to += from.load(Relaxed);
        }
        self.sum_ns += cells.sum_ns.load(Relaxed);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

impl std::ops::AddAssign for Histogram {
    fn add_assign(&mut self, other: Histogram) {
        for (to, from) in self.buckets.iter_mut().zip(other.buckets) {
            *to += from;
        }
        self.sum_ns += other.sum_ns;
    }
}

/// Histograms of `N` kinds of times.
#[derive(Debug, Default)]
pub struct Times<const N: usize>(Stripes<TimesCells<N>>);

#[derive(Debug)]
struct TimesCells<const N: usize>([HistogramCells; N]);

impl<const N: usize> Default for TimesCells<N> {
    fn default() -> TimesCells<N> {
        TimesCells(std::array::from_fn(|_| HistogramCells::default()))
    }
}

impl<const N: usize> Times<N> {
    /// One was so long.
    pub fn note(&self, kind: usize, ns: Nanos) {
        let here = self.0.here();
        here.add(|cells| &cells.0[kind].buckets[bucket(ns)], 1);
        here.add(|cells| &cells.0[kind].sum_ns, ns);
    }

    /// What was noted so far.
    pub fn read(&self) -> [Histogram; N] {
        let mut all = [Histogram::default(); N];
        for cells in self.0.iter() {
            for (to, from) in all.iter_mut().zip(&cells.0) {
                to.add(from);
            }
        }
        all
    }
}

/// I/Os of one kind, on one thread.
#[derive(Debug, Default)]
struct OpCells {
    ios: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
}

/// I/Os of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCounts {
    /// Those that succeeded.
    pub ios: u64,
    /// Bytes that were read or written.
    pub bytes: u64,
    /// Those that failed.
    pub errors: u64,
}

impl std::ops::AddAssign for OpCounts {
    fn add_assign(&mut self, other: OpCounts) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.errors += other.errors;
    }
}

/// I/Os by kind, by [`IoOp`].
#[derive(Debug, Default)]
pub struct IoCounters(Stripes<[OpCells; IoOp::ALL.len()]>);

impl IoCounters {
    /// One more has succeeded.
    #[inline]
    pub fn count(&self, op: IoOp, bytes: u64) {
        let here = self.0.here();
        here.add(|cells| &cells[op as usize].ios, 1);
        here.add(|cells| &cells[op as usize].bytes, bytes);
    }

    /// One more has failed.
    #[cold]
    pub fn count_error(&self, op: IoOp) {
        self.0.here().add(|cells| &cells[op as usize].errors, 1);
    }

    /// What was counted so far.
    pub fn read(&self) -> [OpCounts; IoOp::ALL.len()] {
        let mut all = [OpCounts::default(); IoOp::ALL.len()];
        for cells in self.0.iter() {
            for (to, from) in all.iter_mut().zip(cells) {
                to.ios += from.ios.load(Relaxed);
                to.bytes += from.bytes.load(Relaxed);
                to.errors += from.errors.load(Relaxed);
            }
        }
        all
    }
}

/// What came by one protocol.
#[derive(Debug, Default)]
pub struct IoMeter {
    /// I/Os, every one.
    pub counters: IoCounters,
    /// How long some of them took, by [`IoOp`].
    pub times: Times<{ IoOp::ALL.len() }>,
}

/// Protocols that are told apart: each has its number.
pub const PROTOCOLS_MAX: usize = 3;

/// What came to a volume, by the number of the protocol.
pub type IoMeters = [IoMeter; PROTOCOLS_MAX];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_falls_into_the_first_bucket_whose_bound_it_does_not_exceed() {
        for at in 0..BOUNDS {
            assert_eq!(bucket(bound(at)), at);
            assert_eq!(bucket(bound(at) + 1), at + 1);
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BOUNDS));
    }

    #[test]
    fn meter_tells_what_was_counted_on_all_threads() {
        let meter = IoMeter::default();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    meter.counters.count(IoOp::Write, 512);
                    meter.counters.count_error(IoOp::Write);
                    meter.times.note(IoOp::Write as usize, 1000);
                });
            }
        });
        let counts = OpCounts {
            ios: 3,
            bytes: 1536,
            errors: 3,
        };
        assert_eq!(meter.counters.read()[IoOp::Write as usize], counts);
        let times = meter.times.read();
        let of = times[IoOp::Write as usize];
        assert_eq!((of.buckets[1], of.count(), of.sum_ns), (3, 3, 3000));
        assert_eq!(times[IoOp::Read as usize], Histogram::default());
    }
}
