//! What is read and written, and when.

use clap::ValueEnum;
use machine::Nanos;
use random::Random;
use serde::Serialize;

/// Which I/Os a load is made of, in fio's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lowercase")]
pub enum Rw {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Random reads.
    RandRead,
    /// Random writes.
    RandWrite,
    /// Sequential reads and writes, mixed.
    #[value(alias = "readwrite")]
    Rw,
    /// Random reads and writes, mixed.
    RandRw,
    /// Files of --bs bytes: made, written, closed and removed (NFS).
    Create,
    /// Attributes of files (NFS).
    Getattr,
    /// A directory listed, over and over (NFS).
    Readdir,
}

impl Rw {
    /// Whether offsets are random.
    #[must_use]
    pub fn is_random(self) -> bool {
        matches!(self, Rw::RandRead | Rw::RandWrite | Rw::RandRw)
    }

    /// Whether it is of names and attributes, not of what is in a file.
    #[must_use]
    pub fn is_metadata(self) -> bool {
        matches!(self, Rw::Create | Rw::Getattr | Rw::Readdir)
    }

    /// Whether anything is written.
    #[must_use]
    pub fn writes(self, mix: u8) -> bool {
        self.read_percent(mix) < 100
    }

    /// Percentage of reads, where `mix` is what was asked of a mixed load.
    #[must_use]
    pub fn read_percent(self, mix: u8) -> u8 {
        match self {
            Rw::Read | Rw::RandRead | Rw::Getattr | Rw::Readdir => 100,
            Rw::Write | Rw::RandWrite | Rw::Create => 0,
            Rw::Rw | Rw::RandRw => mix,
        }
    }
}

/// Which way one I/O goes; also an index into [`KINDS`] of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoDirection {
    /// From the controller.
    Read = 0,
    /// To the controller.
    Write = 1,
    /// An operation on names or attributes.
    Metadata = 2,
}

/// How many kinds there are.
pub const KINDS: usize = 3;

/// The I/Os of one job, one after the other.
#[derive(Clone, Debug)]
pub struct Workload {
    is_random: bool,
    /// `None`: neither reads nor writes.
    read_percent: Option<u8>,
    blocks: u64,
    /// Next block of a sequential load, by [`IoDirection`].
    next: [u64; KINDS],
    random: Random,
}

impl Workload {
    /// I/Os of one size on `blocks` places, at least 1; without `read_percent`
    /// operations on names and attributes.
    #[must_use]
    pub fn new(is_random: bool, read_percent: Option<u8>, blocks: u64, seed: u64) -> Self {
        assert!(blocks > 0, "a load needs a place");
        Workload {
            is_random,
            read_percent,
            blocks,
            next: [0; KINDS],
            random: Random::new(seed),
        }
    }

    /// Which way the next I/O goes.
    #[inline]
    pub fn next_kind(&mut self) -> IoDirection {
        match self.read_percent {
            None => IoDirection::Metadata,
            Some(100) => IoDirection::Read,
            Some(0) => IoDirection::Write,
            Some(percent) if self.random.below(100) < u64::from(percent) => IoDirection::Read,
            _ => IoDirection::Write,
        }
    }

    /// Where an I/O of this kind goes: a number of a block.
    #[inline]
    pub fn next_block(&mut self, kind: IoDirection) -> u64 {
        if self.is_random {
            return self.random.below(self.blocks);
        }
        let next = &mut self.next[kind as usize];
        let block = *next;
        *next = if block + 1 == self.blocks {
            0
        } else {
            block + 1
        };
        block
    }
}

/// When the I/Os of an open-loop load are due, whatever the target does.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    first: Nanos,
    interval_ns: f64,
    issued: u64,
}

impl Schedule {
    /// `per_second` I/Os a second, the first at `first`.
    #[must_use]
    pub fn new(first: Nanos, per_second: f64) -> Self {
        Schedule {
            first,
            interval_ns: 1e9 / per_second,
            issued: 0,
        }
    }

    /// When the next one is due. Computed from the start, so that nothing adds up.
    #[inline]
    #[must_use]
    pub fn next(&self) -> Nanos {
        self.first + (self.issued as f64 * self.interval_ns) as Nanos
    }

    /// Takes the next one if it is due by `now`: when it was due.
    #[inline]
    pub fn take(&mut self, now: Nanos) -> Option<Nanos> {
        let due = self.next();
        (due <= now).then(|| {
            self.issued += 1;
            due
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequential_goes_round_each_way_by_itself() {
        let mut load = Workload::new(false, Some(50), 3, 1);
        let blocks: Vec<u64> = (0..5).map(|_| load.next_block(IoDirection::Read)).collect();
        assert_eq!(blocks, [0, 1, 2, 0, 1]);
        assert_eq!(load.next_block(IoDirection::Write), 0);
    }

    #[test]
    fn random_reaches_every_block_and_no_other() {
        let mut load = Workload::new(true, Some(100), 10, 1);
        let mut seen = [false; 10];
        for _ in 0..1000 {
            seen[load.next_block(IoDirection::Read) as usize] = true;
        }
        assert_eq!(seen, [true; 10]);
    }

    #[test]
    fn the_mix_is_kept() {
        let mut load = Workload::new(true, Some(70), 10, 1);
        let reads = (0..10_000)
            .filter(|_| load.next_kind() == IoDirection::Read)
            .count();
        assert!((6_800..7_200).contains(&reads), "{reads}");
        assert_eq!(Rw::RandRw.read_percent(70), 70);
        assert_eq!(
            (Rw::Read.read_percent(70), Rw::RandWrite.read_percent(70)),
            (100, 0)
        );
    }

    #[test]
    fn due_times_do_not_drift_and_do_not_wait_for_ios() {
        let mut schedule = Schedule::new(1_000, 3.0);
        assert_eq!(schedule.take(999), None);
        assert_eq!(schedule.take(1_000), Some(1_000));
        assert_eq!(schedule.take(1_000), None);
        // A stall of a second leaves three due, each with its own time.
        let late: Vec<Nanos> = std::iter::from_fn(|| schedule.take(1_000_001_000)).collect();
        assert_eq!(late, [333_334_333, 666_667_666, 1_000_001_000]);
        let mut fast = Schedule::new(0, 1e6);
        for _ in 0..999_999 {
            assert!(fast.take(u64::MAX).is_some());
        }
        assert_eq!(fast.next(), 999_999_000);
    }
}
