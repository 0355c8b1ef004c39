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

/// Upper bounds of a [`Histogram`]'s buckets: each is twice the one before, the last about four
/// seconds.
pub const BOUNDS: usize = 24;
/// Upper bounds of the buckets of sizes: each is twice the one before, the last 1 MiB.
pub const SIZE_BOUNDS: usize = 12;
/// The first bound is 2 to this: 512 bytes, or about half a microsecond in nanoseconds.
const FIRST_BOUND_SHIFT: u32 = 9;

/// The upper bound of a bucket, which belongs to it: nanoseconds, or bytes.
pub const fn bound(bucket: usize) -> u64 {
    1 << (FIRST_BOUND_SHIFT as usize + bucket)
}

/// The bucket of a time or a size among so many `bounds`; that many is the one of all that is more.
#[inline]
fn bucket(value: u64, bounds: usize) -> usize {
    let above = value.saturating_sub(1) >> FIRST_BOUND_SHIFT;
    (u64::BITS - above.leading_zeros()).min(bounds as u32) as usize
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
        here.add(|cells| &cells.0[kind].buckets[bucket(ns, BOUNDS)], 1);
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
    /// Those that succeeded, by size.
    sizes: [AtomicU64; SIZE_BOUNDS + 1],
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
    /// Those that succeeded by size: not above the [`bound`] of their place, and above the one
    /// before; in the last place all that are larger.
    pub sizes: [u64; SIZE_BOUNDS + 1],
}

impl std::ops::AddAssign for OpCounts {
    fn add_assign(&mut self, other: OpCounts) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.errors += other.errors;
        for (to, from) in self.sizes.iter_mut().zip(other.sizes) {
            *to += from;
        }
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
        here.add(
            |cells| &cells[op as usize].sizes[bucket(bytes, SIZE_BOUNDS)],
            1,
        );
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
                for (to, from) in to.sizes.iter_mut().zip(&from.sizes) {
                    *to += from.load(Relaxed);
                }
                to.bytes += from.bytes.load(Relaxed);
                to.errors += from.errors.load(Relaxed);
            }
        }
        for counts in &mut all {
            counts.ios = counts.sizes.iter().sum();
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
pub const PROTOCOLS_MAX: usize = 4;

/// What came to a volume, by the number of the protocol.
pub type IoMeters = [IoMeter; PROTOCOLS_MAX];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_or_size_falls_into_the_first_bucket_whose_bound_it_does_not_exceed() {
        for bounds in [BOUNDS, SIZE_BOUNDS] {
            for at in 0..bounds {
                assert_eq!(bucket(bound(at), bounds), at);
                assert_eq!(bucket(bound(at) + 1, bounds), at + 1);
            }
            assert_eq!((bucket(0, bounds), bucket(u64::MAX, bounds)), (0, bounds));
        }
        assert_eq!((bound(0), bound(SIZE_BOUNDS - 1)), (512, 1 << 20));
    }

    #[test]
    fn meter_tells_what_was_counted_on_all_threads() {
        let meter = IoMeter::default();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    meter.counters.count(IoOp::Write, 512);
                    meter.counters.count(IoOp::Write, 513);
                    meter.counters.count(IoOp::Write, 2 << 20);
                    meter.counters.count_error(IoOp::Write);
                    meter.times.note(IoOp::Write as usize, 1000);
                });
            }
        });
        let mut sizes = [0; SIZE_BOUNDS + 1];
        (sizes[0], sizes[1], sizes[SIZE_BOUNDS]) = (3, 3, 3);
        let counts = OpCounts {
            ios: 9,
            bytes: 3 * (512 + 513 + (2 << 20)),
            errors: 3,
            sizes,
        };
        assert_eq!(meter.counters.read()[IoOp::Write as usize], counts);
        let times = meter.times.read();
        let of = times[IoOp::Write as usize];
        assert_eq!((of.buckets[1], of.count(), of.sum_ns), (3, 3, 3000));
        assert_eq!(times[IoOp::Read as usize], Histogram::default());
    }
}
