//! A block that has another checksum on a leg of the mirror below: each leg is asked for it, and
//! those that do not have what was written get it from one that has.
//!
//! The I/O that has found it has its range, so that nothing newer is replaced.

use faults::Fault;
use mem::{BufRange, Region};

use super::table::{Checked, PAGE_BLOCKS};
use super::task::{After, ChecksummedTask, SumStep};
use super::{Checksummed, Going};
use crate::{Error, Io, Mirror};

/// What is asked of the legs.
pub(super) struct Asking {
    /// The leg that is asked, a bit, and the legs that do not have what was written.
    leg: u8,
    bad: u8,
    /// One has it: it is in its place.
    is_found: bool,
    /// The I/O was to know which of several sums the block has.
    settles: bool,
    /// What a leg has.
    memory: Region,
}

/// The leg behind this one.
fn next_leg(leg: u8) -> Option<u8> {
    Mirror::each_leg().find(|next| *next > leg)
}

impl ChecksummedTask {
    /// The legs of the mirror below that the step is for, a bit each; `None`: all of it.
    pub(super) fn legs(&self) -> Option<u8> {
        match (self.step, &self.asking, &self.scrub) {
            (SumStep::Ask, Some(asking), _) => Some(asking.leg),
            (SumStep::Repair, Some(asking), _) => Some(asking.bad),
            (SumStep::Read, _, Some(scrub)) => scrub.leg,
            _ => None,
        }
    }
}

impl Checksummed {
    /// Whether a scrub of a mirror reads the piece again, of the next leg by itself. What that leg
    /// lacks is as it was read before.
    pub(super) fn goes_to_next_leg(&self, task: &mut ChecksummedTask) -> bool {
        let is_mirror = self.below.as_mirror().is_some();
        let Some(scrub) = task.scrub.as_mut().filter(|_| is_mirror) else {
            return false;
        };
        let next = match scrub.leg {
            None => Mirror::each_leg().next(),
            Some(leg) => next_leg(leg),
        };
        if next.is_some() {
            scrub.leg = next;
            (task.blocks, task.step) = (0, SumStep::Read);
        }
        next.is_some()
    }

    /// The piece could not be read for a scrub. A leg that does not read it is left as it is.
    pub(super) fn unread(&self, task: &mut ChecksummedTask, error: Error) -> Going {
        let is_leg = task.scrub.as_ref().is_some_and(|scrub| scrub.leg.is_some());
        match error {
            Error::Busy | Error::Locked => Going::Over(Err(error)),
            _ if !is_leg || task.may_end() => Going::Over(Err(error)),
            _ if self.goes_to_next_leg(task) => Going::On,
            _ => self.end_piece(task),
        }
    }

    /// The block that an I/O is at is not what was written.
    pub(super) fn found_wrong(&self, task: &mut ChecksummedTask) -> Going {
        let block = task.block();
        let is_known = |wrong: &[u64]| wrong.contains(&block);
        if task
            .scrub
            .as_ref()
            .is_some_and(|scrub| is_known(&scrub.wrong))
        {
            task.blocks += 1;
            return Going::On;
        }
        match self.ask_legs(task) {
            true => Going::On,
            false => self.is_lost(task),
        }
    }

    /// No leg has the block, or there is but one place for it.
    fn is_lost(&self, task: &mut ChecksummedTask) -> Going {
        let block = task.block();
        let error = self.is_wrong(block);
        let Some(scrub) = &mut task.scrub else {
            return Going::Over(Err(error));
        };
        scrub.wrong.push(block);
        (task.blocks, task.step) = (task.blocks + 1, SumStep::Check);
        Going::On
    }

    /// Begins to ask the legs of the mirror below for the block, if there is one.
    pub(super) fn ask_legs(&self, task: &mut ChecksummedTask) -> bool {
        let first = Mirror::each_leg().next();
        let first = first.filter(|_| self.below.as_mirror().is_some());
        let memory = first.map(|_| Region::small_pages(self.base.info.block_bytes.into()));
        let (Some(leg), Some(Ok(memory))) = (first, memory) else {
            return false;
        };
        task.asking = Some(Box::new(Asking {
            leg,
            bad: 0,
            is_found: false,
            settles: task.step == SumStep::Settle,
            memory,
        }));
        task.step = SumStep::Ask;
        true
    }

    /// Where the I/O has the block.
    pub(super) fn place(&self, task: &ChecksummedTask) -> BufRange {
        let len = self.base.info.block_bytes;
        let settles = task.asking.as_ref().is_some_and(|asking| asking.settles);
        if settles || task.step == SumStep::Settle {
            let own = task.own.as_ref().expect("it was read there");
            return own.range(0, len);
        }
        task.read_to().slice(task.blocks as u32 * len, len)
    }

    /// What is asked of a leg, or written to some.
    pub(super) fn io_of_block(&self, task: &ChecksummedTask) -> Io {
        let asking = task.asking.as_ref().expect("it asks");
        let len = self.base.info.block_bytes;
        let offset = task.block() * u64::from(len);
        match task.step {
            SumStep::Ask => Io::Read {
                offset,
                buf: asking.memory.range(0, len),
            },
            _ => Io::Write {
                offset,
                buf: self.place(task),
                durable: false,
            },
        }
    }

    /// A leg has read the block, or has failed to.
    pub(super) fn answered(&self, task: &mut ChecksummedTask, result: Result<(), Error>) -> Going {
        let (block, place) = (task.block(), self.place(task));
        let asking = task.asking.as_mut().expect("it asks");
        let has = asking.memory.range(0, self.base.info.block_bytes);
        let is_right = match result.map(|()| self.table.check(block, &[self.sum(has)])) {
            Ok(Checked::Missing) => {
                let (page, then) = (block / PAGE_BLOCKS, After::Ask);
                task.step = SumStep::Load { page, then };
                return Going::On;
            }
            Ok(Checked::Wrong(_)) => faults::is(Fault::AnyLeg),
            Ok(Checked::Good) => true,
            Err(_) => false,
        };
        match is_right {
            true if !asking.is_found => {
                mem::copy(place, has);
                asking.is_found = true;
            }
            true => {}
            false => asking.bad |= asking.leg,
        }
        match next_leg(asking.leg) {
            Some(leg) => asking.leg = leg,
            None if asking.is_found && asking.bad != 0 => task.step = SumStep::Repair,
            None => return self.has_asked(task),
        }
        Going::On
    }

    /// Legs have the block again, or do not take it.
    pub(super) fn wrote_anew(&self, task: &mut ChecksummedTask, is_done: bool) -> Going {
        if let Some(scrub) = task.scrub.as_mut().filter(|_| is_done) {
            scrub.repaired += 1;
        }
        self.has_asked(task)
    }

    /// All legs have answered: the I/O goes on.
    fn has_asked(&self, task: &mut ChecksummedTask) -> Going {
        let place = self.place(task);
        let asking = task.asking.take().expect("it asks");
        if asking.settles {
            let sum = asking.is_found.then(|| self.sum(place));
            self.table.settle(task.block(), sum);
            task.step = SumStep::Enter;
            return Going::On;
        }
        if !asking.is_found {
            return self.is_lost(task);
        }
        (task.blocks, task.step) = (task.blocks + 1, SumStep::Check);
        Going::On
    }
}
