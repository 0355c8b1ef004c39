//! `delay`: another volume whose I/Os take longer, to play a disk that one has not.
//!
//! An I/O waits first and is begun then, so that nothing below is held meanwhile. Nothing is
//! lent: that would take no time.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use reactor::{FileIo, Token};

use super::composite::Composite;
use super::task::canceled;
use crate::spec::{Latency, Settings};
use crate::{Base, Error, Extent, Io, Parked, Progress, ResizeError, Spec, Task, Volume};

/// One I/O of so many takes the time of the tail.
const TAIL_ONE_IN: u64 = 1000;

pub(crate) struct Delay {
    below: Composite,
    read: Latency,
    write: Latency,
    /// Its I/Os so far: the times that they take follow from their number.
    count: AtomicU64,
    seed: u64,
}

/// An I/O that has not begun.
#[derive(Debug)]
struct DelayedTask {
    io: Io,
    is_canceled: bool,
}

impl Parked for DelayedTask {
    fn is_waiting(&self) -> bool {
        true
    }

    fn cancel(&mut self, _: &mut dyn FileIo, _: Token) {
        self.is_canceled = true;
    }
}

/// The volume that this description makes of others: one whose I/Os take longer, if it says so.
pub(crate) fn delayed(spec: &Spec, below: Composite) -> Arc<dyn Volume> {
    match spec.kind.settings {
        Settings::Delay { read, write } => Arc::new(Delay {
            seed: below.info().uuid.as_u64_pair().1,
            below,
            read,
            write,
            count: AtomicU64::new(0),
        }),
        _ => Arc::new(below),
    }
}

impl Delay {
    /// How long the next I/O waits, in nanoseconds.
    fn next_ns(&self, io: &Io) -> u64 {
        let latency = match io {
            Io::Read { .. } | Io::Compare { .. } | Io::Verify { .. } => &self.read,
            _ => &self.write,
        };
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let chance = mix(self.seed.wrapping_add(number));
        1000 * latency.of(chance)
    }
}

impl Latency {
    /// That of an I/O to which chance has given this number, microseconds.
    fn of(&self, chance: u64) -> u64 {
        if self.tail_us > 0 && chance.is_multiple_of(TAIL_ONE_IN) {
            return self.tail_us.into();
        }
        let above_mean = self.mean_us.saturating_sub(self.fixed_us);
        // Of the upper bits, above 0 and not above 1.
        let part = ((chance >> 11) + 1) as f64 / (1u64 << 53) as f64;
        let above = -part.ln() * f64::from(above_mean);
        u64::from(self.fixed_us) + above as u64
    }
}

/// A number in which every bit hangs on all of this one, always the same.
fn mix(number: u64) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(number)
}

impl Volume for Delay {
    #[inline]
    fn base(&self) -> &Base {
        self.below.base()
    }

    fn below(&self) -> Option<&dyn Volume> {
        Some(&self.below)
    }

    fn start(&self, io: Io, files: &mut dyn FileIo, token: Token) -> Progress {
        files.complete_after(self.next_ns(&io), token);
        let is_canceled = false;
        Progress::Pending(Task::parked(DelayedTask { io, is_canceled }))
    }

    fn resume(
        &self,
        task: Task,
        result: io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        match task.unpark::<DelayedTask>() {
            Ok(task) if task.is_canceled || result.is_err() => {
                self.base().finish(&task.io, Err(canceled(&task.io)))
            }
            Ok(task) => self.below.start(task.io, files, token),
            Err(begun) => self.below.resume(begun, result, files, token),
        }
    }

    fn resize(&self, size_bytes: u64, allow_shrink: bool) -> Result<(), ResizeError> {
        self.below.resize(size_bytes, allow_shrink)
    }

    fn extents(
        &self,
        offset: u64,
        len: u64,
        max: usize,
        out: &mut Vec<Extent>,
    ) -> Result<(), Error> {
        self.below.extents(offset, len, max, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_their_least_their_mean_and_their_tail() {
        let latency = Latency {
            fixed_us: 100,
            mean_us: 300,
            tail_us: 50_000,
        };
        const COUNT: u64 = 100_000;
        let times: Vec<u64> = (0..COUNT).map(|n| latency.of(mix(n))).collect();
        let (tail, usual): (Vec<u64>, Vec<u64>) = times.iter().partition(|us| **us == 50_000);
        assert!((50..200).contains(&tail.len()), "{}", tail.len());
        assert!(usual.iter().all(|us| *us >= 100));
        let mean = usual.iter().sum::<u64>() / usual.len() as u64;
        assert!((290..310).contains(&mean), "{mean}");
        let fixed = Latency {
            fixed_us: 10,
            ..Latency::default()
        };
        assert!((0..COUNT).all(|n| fixed.of(mix(n)) == 10));
    }
}
