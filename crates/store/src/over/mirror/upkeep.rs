//! What a mirror does by itself: it copies to a leg what that lacks, asks legs that are out
//! whether they answer again, and takes regions for clean that nothing is written to any more.

use std::io;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use mem::BufRange;
use reactor::{FileIo, Nanos, Token};

use super::log::legs;
use super::regions::Regions;
use super::{Legs, Mirror};
use crate::locks::{Caller, Claim, StripePlace};
use crate::{Error, Io, Parked, Progress, Task, Volume};

/// Bytes that are copied at a time at most.
pub(super) const SCRATCH_BYTES: u64 = 128 << 10;

/// Bytes that are copied to a leg before it is flushed, and the log says that it has them.
const BATCH_BYTES: u64 = 64 << 20;

const S: Nanos = 1_000_000_000;
const MS: Nanos = 1_000_000;

/// When what was done last.
pub(super) struct Upkeep {
    /// How long nothing is written to a region before it may be clean; how long a leg that is
    /// out, or could not be copied to, is left alone.
    clean_ns: Nanos,
    rest_ns: Nanos,
    cleans_at: Nanos,
    asks_at: Nanos,
    copies_at: Nanos,
}

impl Upkeep {
    /// In a simulated world all is quicker.
    pub(super) fn new(is_simulated: bool) -> Upkeep {
        let (clean_ns, rest_ns) = match is_simulated {
            true => (2 * MS, 4 * MS),
            false => (5 * S, 10 * S),
        };
        Upkeep {
            clean_ns,
            rest_ns,
            cleans_at: 0,
            asks_at: 0,
            copies_at: 0,
        }
    }
}

/// What it is at.
#[derive(Debug)]
enum Work {
    /// All legs are flushed, so that these regions are clean.
    Clean(Regions),
    /// A leg that is out is flushed, then its first block is read.
    Ask {
        leg: usize,
        reads: bool,
    },
    Copy(Copying),
}

/// What is copied to a leg.
#[derive(Debug)]
struct Copying {
    leg: usize,
    region: usize,
    /// Where it is, and how many bytes are copied at a time; the end of the region.
    at: u64,
    len: u64,
    end: u64,
    /// Bytes of a chunk as long as they can be read together.
    chunk: u64,
    /// Regions that it is done with, and bytes of them.
    copied: Regions,
    bytes: u64,
    /// The region cannot be read; one before it could not.
    skips: bool,
    has_skipped: bool,
    step: CopyStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyStep {
    Lock,
    Read,
    Write,
    Pause,
    Flush,
}

/// Work of a mirror that is under way.
#[derive(Debug)]
pub(super) struct UpkeepTask {
    legs: Arc<Legs>,
    generation: u64,
    work: Work,
    place: Option<Box<StripePlace>>,
    held: Option<Claim>,
    /// What is under way on legs; `None`: it is to be begun again.
    running: Vec<(usize, Io, Option<Task>)>,
    has_failed: bool,
}

impl Parked for UpkeepTask {}

/// Whether there is more to do without waiting.
type Goes = Option<()>;

impl Mirror {
    pub(super) fn begin_upkeep(
        &self,
        now: Nanos,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Option<Progress> {
        if self.base.info.read_only {
            return None;
        }
        let work = self.next_work(now)?;
        let mut task = UpkeepTask {
            legs: self.legs(),
            generation: self.log.state().record.generation,
            work,
            place: None,
            held: None,
            running: Vec::new(),
            has_failed: false,
        };
        let ended = match &task.work {
            Work::Clean(_) => {
                let members = self.log.state().record.members();
                self.flush(&mut task, members, files, token)
            }
            Work::Ask { leg, .. } => {
                let leg = 1 << leg;
                self.flush(&mut task, leg, files, token)
            }
            Work::Copy(_) => self.copy_on(&mut task, files, token),
        };
        Some(progress(task, ended))
    }

    /// What there is to do now.
    fn next_work(&self, now: Nanos) -> Option<Work> {
        let mut upkeep = self.upkeep.lock().unwrap_or_else(PoisonError::into_inner);
        let record = self.log.state().record.clone();
        if now >= upkeep.cleans_at {
            upkeep.cleans_at = now + upkeep.clean_ns;
            let idle = self.log.idle_regions();
            if !idle.is_empty() {
                return Some(Work::Clean(idle));
            }
        }
        if now >= upkeep.asks_at {
            upkeep.asks_at = now + upkeep.rest_ns;
            if let Some(leg) = record.legs.iter().position(|leg| leg.is_out) {
                return Some(Work::Ask { leg, reads: false });
            }
        }
        if now < upkeep.copies_at || self.resync_rate.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let lacking = record
            .legs
            .iter()
            .position(|leg| !leg.is_out && !leg.missing.is_empty());
        let copying =
            lacking.and_then(|leg| self.copying(leg, 0, Regions::none(record.dirty.count())));
        let Some(copying) = copying else {
            upkeep.copies_at = now + upkeep.clean_ns / 5;
            return None;
        };
        // What cannot be copied now is left alone for a while.
        upkeep.copies_at = now + upkeep.rest_ns / 10;
        self.log.state().begin_copy();
        Some(Work::Copy(copying))
    }

    /// The next region from this one on that a leg lacks and another has.
    fn copying(&self, leg: usize, from: usize, copied: Regions) -> Option<Copying> {
        let state = self.log.state();
        let record = &state.record;
        let missing = &record.legs[leg].missing;
        let mut region = missing.next(from)?;
        while record.current(region..region + 1) == 0 {
            region = missing.next(region + 1)?;
        }
        let at = region as u64 * record.region_bytes;
        Some(Copying {
            leg,
            region,
            at,
            len: 0,
            end: (at + record.region_bytes).min(self.size_bytes()),
            chunk: SCRATCH_BYTES,
            copied,
            bytes: 0,
            skips: false,
            has_skipped: false,
            step: CopyStep::Lock,
        })
    }

    pub(super) fn resume_upkeep(
        &self,
        mut task: UpkeepTask,
        result: io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        let whole = task.legs.bits.whole(token);
        if let Some(place) = task.place.take() {
            let ended = match place.go_on(|| Caller::Ticket(files.ticket(whole))) {
                Ok(()) => self.has_range(&mut task, files, whole),
                Err(place) => {
                    task.place = Some(place);
                    None
                }
            };
            return progress(task, ended);
        }
        let leg = task.legs.bits.leg(token);
        let at = task.running.iter().position(|(on, ..)| *on == leg);
        let ended = match at {
            Some(at) => {
                let (leg, io, below) = task.running.swap_remove(at);
                let volume = task.legs.all[leg].part.volume().clone();
                let progress = match below {
                    Some(below) => volume.resume(below, result, files, token),
                    None => volume.start(io, files, task.legs.bits.on_leg(whole, leg)),
                };
                self.did(&mut task, (leg, io), progress, files, whole)
            }
            // A pause is over.
            None => self.copy_on(&mut task, files, whole),
        };
        progress(task, ended)
    }

    /// Begins an I/O on a leg.
    fn begin_on(
        &self,
        task: &mut UpkeepTask,
        (leg, io): (usize, Io),
        files: &mut dyn FileIo,
        whole: Token,
    ) -> Goes {
        let token = task.legs.bits.on_leg(whole, leg);
        let progress = task.legs.volume(leg).start(io, files, token);
        self.did(task, (leg, io), progress, files, whole)
    }

    fn flush(&self, task: &mut UpkeepTask, on: u8, files: &mut dyn FileIo, whole: Token) -> Goes {
        // All of them are under way before the first is looked at.
        let begun: Vec<(usize, Progress)> = legs(on)
            .map(|leg| {
                let token = task.legs.bits.on_leg(whole, leg);
                (leg, task.legs.volume(leg).start(Io::Flush, files, token))
            })
            .collect();
        let mut ended = Some(());
        for (leg, progress) in begun {
            match progress {
                Progress::Pending(below) => {
                    task.running.push((leg, Io::Flush, Some(below)));
                    ended = None;
                }
                Progress::Done(result) => task.has_failed |= result.is_err(),
            }
        }
        ended.and_then(|()| self.after(task, None, files, whole))
    }

    /// A leg has done something.
    fn did(
        &self,
        task: &mut UpkeepTask,
        (leg, io): (usize, Io),
        progress: Progress,
        files: &mut dyn FileIo,
        whole: Token,
    ) -> Goes {
        let below = match progress {
            Progress::Pending(below) => Some(below),
            Progress::Done(Err(Error::Busy)) => {
                files.ticket(task.legs.bits.on_leg(whole, leg)).ring();
                None
            }
            Progress::Done(result) => {
                task.has_failed |= result.is_err();
                if !task.running.is_empty() {
                    return None;
                }
                return self.after(task, result.err(), files, whole);
            }
        };
        task.running.push((leg, io, below));
        None
    }

    /// All that was under way is done; what the last has said if that is an error.
    fn after(
        &self,
        task: &mut UpkeepTask,
        error: Option<Error>,
        files: &mut dyn FileIo,
        whole: Token,
    ) -> Goes {
        match &mut task.work {
            Work::Copy(_) => self.copied(task, error, files, whole),
            _ if task.has_failed => Some(()),
            Work::Clean(idle) => {
                self.log.flushed(idle);
                Some(())
            }
            Work::Ask { leg, reads: true } => {
                task.legs.all[*leg].is_told.store(false, Ordering::Relaxed);
                self.log.bring_in(*leg, task.generation);
                Some(())
            }
            Work::Ask { leg, reads } => {
                *reads = true;
                let (leg, buf) = (*leg, self.scratch(self.base.info.block_bytes.into()));
                let io = Io::Read { offset: 0, buf };
                self.begin_on(task, (leg, io), files, whole)
            }
        }
    }

    fn scratch(&self, len: u64) -> BufRange {
        self.scratch.range(0, len as u32)
    }

    /// The next chunk: its range first.
    fn copy_on(&self, task: &mut UpkeepTask, files: &mut dyn FileIo, whole: Token) -> Goes {
        let Work::Copy(copying) = &mut task.work else {
            unreachable!("nothing else pauses");
        };
        if copying.at >= copying.end {
            if !copying.skips {
                copying.copied.insert(copying.region..copying.region + 1);
            }
            copying.has_skipped |= copying.skips;
            let Copying {
                leg,
                region,
                bytes,
                copied,
                has_skipped,
                ..
            } = copying;
            let is_enough = *bytes >= BATCH_BYTES || self.resync_rate.load(Ordering::Relaxed) == 0;
            let next = match is_enough {
                true => None,
                false => self.copying(*leg, *region + 1, copied.clone()),
            };
            let Some(next) = next else {
                copying.step = CopyStep::Flush;
                let leg = 1 << copying.leg;
                return self.flush(task, leg, files, whole);
            };
            *copying = Copying {
                bytes: *bytes,
                has_skipped: *has_skipped,
                ..next
            };
        }
        copying.step = CopyStep::Lock;
        copying.len = copying.chunk.min(copying.end - copying.at);
        let claim = Claim::new(copying.at, copying.len, false);
        task.held = Some(claim);
        match self
            .locks
            .acquire(claim, || Caller::Ticket(files.ticket(whole)))
        {
            Ok(()) => self.has_range(task, files, whole),
            Err(place) => {
                task.place = Some(place);
                None
            }
        }
    }

    /// Nothing changes the chunk now: it is read from the first leg that has it.
    fn has_range(&self, task: &mut UpkeepTask, files: &mut dyn FileIo, whole: Token) -> Goes {
        let Work::Copy(copying) = &mut task.work else {
            unreachable!("nothing else waits for a range");
        };
        let (at, len) = (copying.at, copying.len);
        let record_is_same = self.log.state().record.generation == task.generation;
        let count = task.legs.all.len();
        let (from, part) = self.log.readable(at, len, 1 << copying.leg, count);
        // It may have become smaller, or another leg has gone out.
        if !record_is_same || !self.base.holds(at, len) || from == 0 || part < len {
            self.release(task);
            return Some(());
        }
        copying.step = CopyStep::Read;
        let io = Io::Read {
            offset: at,
            buf: self.scratch(len),
        };
        self.begin_on(task, (from.trailing_zeros() as usize, io), files, whole)
    }

    fn release(&self, task: &mut UpkeepTask) {
        if let Some(claim) = task.held.take() {
            self.locks.release(&claim);
        }
    }

    /// What has been read as a write; zeros take no space.
    fn copy_of(&self, offset: u64, len: u64) -> Io {
        let buf = self.scratch(len);
        match mem::is_zero(buf) {
            true => Io::Zero {
                offset,
                len,
                deallocate: true,
                durable: false,
            },
            false => Io::Write {
                offset,
                buf,
                durable: false,
            },
        }
    }

    /// Goes on with another chunk at the next turn.
    fn copy_later(&self, task: &mut UpkeepTask, files: &mut dyn FileIo, whole: Token) -> Goes {
        self.release(task);
        files.ticket(whole).ring();
        None
    }

    /// A step of copying is done.
    fn copied(
        &self,
        task: &mut UpkeepTask,
        error: Option<Error>,
        files: &mut dyn FileIo,
        whole: Token,
    ) -> Goes {
        let Work::Copy(copying) = &mut task.work else {
            unreachable!("the work of another kind");
        };
        let (leg, offset, len) = (copying.leg, copying.at, copying.len);
        let block_bytes = u64::from(self.base.info.block_bytes);
        match (copying.step, error) {
            (CopyStep::Flush, None) => {
                self.log.copied(leg, task.generation, &copying.copied);
                if !copying.has_skipped {
                    let mut upkeep = self.upkeep.lock().unwrap_or_else(PoisonError::into_inner);
                    upkeep.copies_at = 0;
                }
                Some(())
            }
            (CopyStep::Read, None) => {
                copying.step = CopyStep::Write;
                let io = self.copy_of(offset, len);
                self.begin_on(task, (leg, io), files, whole)
            }
            // Hosts have made a block of it unreadable: so it is on the leg, too.
            (CopyStep::Read, Some(Error::Unreadable)) if len > block_bytes => {
                copying.chunk = len / 2 / block_bytes * block_bytes;
                self.copy_later(task, files, whole)
            }
            (CopyStep::Read, Some(Error::Unreadable)) => {
                copying.step = CopyStep::Write;
                let io = Io::MarkUnreadable { offset, len };
                self.begin_on(task, (leg, io), files, whole)
            }
            (CopyStep::Write, None) => {
                copying.at += len;
                copying.bytes += len;
                copying.chunk = SCRATCH_BYTES;
                copying.step = CopyStep::Pause;
                self.resynced_bytes.fetch_add(len, Ordering::Relaxed);
                self.release(task);
                match self.resync_rate.load(Ordering::Relaxed) {
                    0 => self.copy_on(task, files, whole),
                    rate => {
                        files.complete_after(len * S / rate, whole);
                        None
                    }
                }
            }
            // The leg has nothing of it as long as the one that has it cannot read it.
            (CopyStep::Read, Some(_)) => {
                copying.at = copying.end;
                copying.skips = true;
                self.copy_later(task, files, whole)
            }
            // The leg does not do what it is asked for: what was copied so far is copied again.
            (_, error) => {
                if let Some(error) = error {
                    self.tell(&task.legs, leg, error);
                }
                self.release(task);
                Some(())
            }
        }
    }
}

fn progress(task: UpkeepTask, ended: Goes) -> Progress {
    match ended {
        Some(()) => Progress::Done(Ok(())),
        None => Progress::Pending(Task::parked(task)),
    }
}
