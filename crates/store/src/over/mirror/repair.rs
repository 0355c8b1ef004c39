//! What a volume with checksums asks of the mirror below it: what one leg holds, and that legs get
//! again what they do not hold as it was written.
//!
//! Whoever asks keeps the range as it is meanwhile, so that nothing newer is replaced. The log
//! needs nothing of it: what is written is what the leg ought to hold anyway, and a crash in the
//! middle leaves a block that is found again by its checksum.

use std::sync::atomic::Ordering;

use reactor::{FileIo, Token};
use tracing::warn;

use super::log::legs;
use super::task::MirrorTask;
use super::{Goes, LEGS_MAX, Legs, Mirror};
use crate::{Error, Io, Progress, Range};

impl Mirror {
    /// The legs that it may have, each as a set of one: a bit of eight.
    pub(crate) fn each_leg() -> impl Iterator<Item = u8> {
        (0..LEGS_MAX).map(|leg| 1 << leg)
    }

    /// Begins a read of what a leg holds, or a write to legs that do not hold what others do:
    /// `only` has a bit for each of them. What they lack of the mirror is not read, and a write fails
    /// where they lack it. It goes on by [`Volume::resume`](crate::Volume::resume).
    pub(crate) fn start_on(
        &self,
        only: u8,
        io: Io,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        self.start_task(MirrorTask::new(io, self.legs(), Some(only)), files, token)
    }

    /// Whether the mirror takes an I/O. What is written anew changes nothing.
    pub(super) fn check(&self, task: &MirrorTask) -> Result<(), Error> {
        let (offset, len) = task.io.extent();
        match task.only {
            None => self.base.check(&task.io),
            Some(_) if !self.base.holds(offset, len) => Err(Error::OutOfRange),
            Some(_) if self.base.info.read_only && !task.io.needs_data() => Err(Error::ReadOnly),
            Some(_) => Ok(()),
        }
    }

    /// Writes to those of these legs that have what the mirror holds in this range. Others get it
    /// by being copied to.
    pub(super) fn write_anew(
        &self,
        task: &mut MirrorTask,
        only: u8,
        files: &mut dyn FileIo,
        whole: Token,
    ) -> Goes {
        let (offset, len) = task.io.extent();
        let count = task.legs.all.len();
        let (readable, part) = self.log.readable(offset, len, !only, count);
        task.members = if part == len { readable } else { 0 };
        self.write(task, files, whole)
    }

    /// The end of what was for some legs: no host has asked the mirror for it.
    pub(super) fn finish_on(&self, task: &MirrorTask, result: Result<(), Error>) -> Progress {
        let (offset, len) = task.io.extent();
        let repaired = if result.is_ok() { task.done } else { 0 };
        for leg in legs(repaired) {
            self.was_repaired(&task.legs, leg, Range { offset, len });
        }
        Progress::Done(result)
    }

    /// A leg holds a range again that it had with another checksum.
    pub(super) fn was_repaired(&self, all: &Legs, leg: usize, Range { offset, len }: Range) {
        self.repaired_bytes.fetch_add(len, Ordering::Relaxed);
        if !all.all[leg].is_repair_told.swap(true, Ordering::Relaxed) {
            warn!(
                event = "checksum-repaired",
                volume = self.base.info.name,
                leg = all.name(leg),
                block = offset / u64::from(self.base.info.block_bytes),
                "a leg of a mirror had a block with another checksum than what was written to it: \
                 it has it again, from another leg; more such blocks count in the figures alone; \
                 see to the disk"
            );
        }
    }
}
