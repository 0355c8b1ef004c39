//! `mirror`: two or three volumes that hold the same.
//!
//! A write goes to all legs and is acknowledged when all have it that are not out. Reads go to
//! any leg that has what is read. A leg that fails a write is out: that is on the medium of the
//! log before the write is acknowledged, and so is each region that it lacks from then on. What a
//! leg lacks is never read from it; it is copied to it when it answers again. Where legs may
//! differ after a crash, the first that is not known to lack something decides, and that is on
//! the medium before anything is served. Where that one cannot be read, and nothing was read from
//! it since the crash, the next one decides.
//!
//! What only one leg has, and that leg cannot read, is an error. What a leg has with another
//! checksum is copied to it, and nothing else: it may have alone what lies beside that.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mem::Region;
use reactor::{FileIo, Token};
use rustix::io::Errno;
use tracing::error;

use super::LegBits;
use super::task::canceled;
use crate::locks::{Caller, Claim, Locks};
use crate::parts::VolumePart;
use crate::{Base, Error, Io, Progress, Range, Scrub, Task, Volume};
use log::{Ended, Log, LogWait, legs};
use task::{LegIo, MirrorStep};

pub(crate) use open::{examine, open, open_with};
pub use replace::ReplaceError;
pub use status::{LegStatus, MirrorStatus, scrubbed};
pub(crate) use task::MirrorTask;

mod absent;
mod copies;
mod log;
mod open;
mod record;
mod regions;
mod repair;
mod replace;
mod status;
mod task;
mod upkeep;
mod volume;

/// Legs at most.
pub(crate) const LEGS_MAX: usize = 3;

/// Two or three volumes that hold the same.
pub struct Mirror {
    base: Base,
    locks: Arc<Locks>,
    log: Arc<Log>,
    /// Which leg is read next of those that have as little to do.
    turn: AtomicU32,
    /// Bytes that are copied to a leg in a second at most; 0: none.
    resync_rate: AtomicU64,
    resynced_bytes: AtomicU64,
    /// Bytes of legs that were written anew for their checksum.
    repaired_bytes: AtomicU64,
    upkeep: Mutex<upkeep::Upkeep>,
    scratch: Region,
    /// Writes that have begun, and ended; and how many had when all legs were flushed and none
    /// was under way.
    writes_begun: AtomicU64,
    writes_ended: AtomicU64,
    flushed_at: AtomicU64,
    /// How long a change waits for I/O.
    patience: Duration,
    /// One change of size or of legs at a time.
    changing: Mutex<()>,
}

/// The legs of a mirror, in their order.
pub(super) struct Legs {
    all: Vec<Arc<Leg>>,
    bits: LegBits,
}

struct Leg {
    part: VolumePart,
    reads: AtomicU32,
    /// That I/O on it fails is in the log.
    is_told: AtomicBool,
    /// That it had a block with another checksum is in the log.
    is_repair_told: AtomicBool,
    /// [`Volume::losses`] of it, as of when it was known to have what it was given.
    losses: AtomicU64,
}

impl Leg {
    /// What comes of an I/O on it: a flush has failed where what is flushed may be lost.
    fn outcome(&self, io: &Io, result: Result<(), Error>) -> Result<(), Error> {
        let has_lost = || self.part.volume().losses() != self.losses.load(Ordering::Relaxed);
        match (io, result) {
            (Io::Flush, Ok(())) if has_lost() => Err(Error::FlushFailed(Errno::IO)),
            (_, result) => result,
        }
    }

    /// It has nothing now that it was given and that is not flushed.
    fn forget_losses(&self) {
        let volume = self.part.volume();
        volume.forget_loss();
        self.losses.store(volume.losses(), Ordering::Relaxed);
    }
}

impl Drop for Leg {
    fn drop(&mut self) {
        if let Some(scrub) = self.part.volume().scrub() {
            scrub.remove_mirror();
        }
    }
}

impl fmt::Debug for Legs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} legs", self.all.len())
    }
}

impl Legs {
    fn volumes(&self) -> impl Iterator<Item = &Arc<dyn Volume>> {
        self.all.iter().map(|leg| leg.part.volume())
    }

    /// Those of legs that have checksums.
    fn scrubs(&self) -> impl Iterator<Item = (usize, &Scrub)> {
        let all = self.volumes().enumerate();
        all.filter_map(|(leg, volume)| Some((leg, volume.scrub()?)))
    }

    fn name(&self, leg: usize) -> &str {
        &self.volume(leg).info().name
    }

    #[inline]
    fn volume(&self, leg: usize) -> &dyn Volume {
        &**self.all[leg].part.volume()
    }

    fn size_bytes(&self) -> u64 {
        let sizes = self.volumes().map(|leg| leg.size_bytes());
        sizes.min().unwrap_or(0)
    }
}

/// How an I/O goes on.
type Goes = Option<Result<(), Error>>;

impl Mirror {
    #[inline]
    fn legs(&self) -> Arc<Legs> {
        self.log.legs()
    }

    /// What an I/O locks, if anything.
    #[inline]
    fn claim(&self, io: &Io) -> Option<Claim> {
        let (offset, len) = io.extent();
        (len > 0).then(|| Claim::new(offset, len, !io.leaves_volume_unchanged()))
    }

    /// Of these legs the one that has the fewest reads under way.
    #[inline]
    fn choose(&self, all: &Legs, from: u8) -> Option<usize> {
        if from.count_ones() < 2 {
            return (from != 0).then(|| from.trailing_zeros() as usize);
        }
        let count = all.all.len();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) as usize;
        let in_turn = (0..count).map(|n| (turn + n) % count);
        let readable = in_turn.filter(|leg| from >> leg & 1 == 1);
        readable.min_by_key(|leg| all.all[*leg].reads.load(Ordering::Relaxed))
    }

    /// Begins an I/O that has its range; how it ended where it waits for nothing.
    fn begin(&self, task: &mut MirrorTask, files: &mut dyn FileIo, whole: Token) -> Goes {
        match task.io {
            Io::Flush => {
                let writes = self.writes_begun.load(Ordering::SeqCst);
                let is_quiet = self.writes_ended.load(Ordering::SeqCst) == writes;
                task.writes = is_quiet.then_some(writes);
                let begun = self.log.wait_for_legs(|| files.ticket(whole));
                (task.members, task.legs) = (begun.members, begun.legs);
                self.log_then_write(task, begun.wait, files, whole)
            }
            // It is advice, which disks that are not thin would take by writing zeros.
            Io::Deallocate { .. } if !self.base.info.is_thin => Some(Ok(())),
            _ if task.io.needs_data() => self.fetch(task, files, whole),
            _ => match task.only {
                Some(only) => self.write_anew(task, only, files, whole),
                None => self.mark(task, files, whole),
            },
        }
    }

    /// Reads on, from one leg after the other, until something must be waited for.
    fn fetch(&self, task: &mut MirrorTask, files: &mut dyn FileIo, whole: Token) -> Goes {
        task.step = MirrorStep::Fetch;
        let (offset, len) = task.io.extent();
        while task.from < len {
            let (at, rest) = (offset + task.from, len - task.from);
            let (count, piece) = (task.legs.all.len(), rest.min(task.piece_max));
            let but = task.unread | !task.only.unwrap_or(u8::MAX);
            let (readable, part) = self.log.readable(at, piece, but, count);
            let Some(leg) = self.choose(&task.legs, readable) else {
                // What a leg lacks is not read of it.
                if task.only.is_some() && task.error.is_none() {
                    task.from += part;
                    continue;
                }
                let block_bytes = u64::from(self.base.info.block_bytes);
                // Each of its blocks may be right on one of the legs.
                if task.mismatched != 0 && part > block_bytes {
                    task.piece_max = part.div_ceil(2 * block_bytes) * block_bytes;
                    (task.unread, task.mismatched, task.error) = (0, 0, None);
                    continue;
                }
                return Some(Err(task.error.unwrap_or(Error::ReadFailed(Errno::IO))));
            };
            let io = task.fetch_io(part);
            let token = task.legs.bits.on_leg(whole, leg);
            task.legs.all[leg].reads.fetch_add(1, Ordering::Relaxed);
            let progress = task.legs.volume(leg).start(io, files, token);
            if let Some(goes) = self.fetched(task, (leg, io), progress, files, token) {
                return goes;
            }
        }
        self.after_fetch(task, files, whole)
    }

    /// A leg has done something for a read; `None`: it reads on.
    fn fetched(
        &self,
        task: &mut MirrorTask,
        (leg, io): (usize, Io),
        progress: Progress,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Option<Goes> {
        let below = match progress {
            Progress::Pending(below) => Some(below),
            Progress::Done(Err(Error::Busy)) => {
                files.ticket(token).ring();
                None
            }
            Progress::Done(result) => {
                task.legs.all[leg].reads.fetch_sub(1, Ordering::Relaxed);
                return self
                    .read_by(task, (leg, io), result)
                    .map(|error| Some(Err(error)));
            }
        };
        task.running[leg] = Some(LegIo { io, task: below });
        Some(None)
    }

    /// A leg has read a part, or has failed to: why the I/O ends, if it does.
    fn read_by(
        &self,
        task: &mut MirrorTask,
        (leg, io): (usize, Io),
        result: Result<(), Error>,
    ) -> Option<Error> {
        let (offset, len) = io.extent();
        match result {
            Ok(()) => {
                self.log.was_read(offset, len);
                // A leg that lacks its key has what it has.
                let is_locked = |leg: &usize| {
                    let encryption = task.legs.all[*leg].part.volume().encryption();
                    encryption.is_some_and(|keys| keys.is_locked())
                };
                let unread = task.unread & !task.mismatched;
                for other in legs(unread).filter(|leg| !is_locked(leg)) {
                    self.log.could_not_read(other, offset, len);
                }
                for other in legs(task.mismatched) {
                    self.mend_later(other, Range { offset, len });
                }
                (task.unread, task.mismatched, task.error) = (0, 0, None);
                task.from += len;
                None
            }
            Err(Error::Miscompare { offset: differs }) => {
                self.log.was_read(offset, len);
                Some(Error::Miscompare {
                    offset: task.from + differs,
                })
            }
            Err(_) if task.is_canceled => Some(canceled(&task.io)),
            Err(error) => {
                task.unread |= 1 << leg;
                task.error.get_or_insert(error);
                match error {
                    // It tells of that itself.
                    Error::ChecksumMismatch => task.mismatched |= 1 << leg,
                    Error::Unreadable => {}
                    _ => self.tell(&task.legs, leg, error),
                }
                None
            }
        }
    }

    fn after_fetch(&self, task: &mut MirrorTask, files: &mut dyn FileIo, whole: Token) -> Goes {
        match task.io {
            _ if task.is_canceled => Some(Err(canceled(&task.io))),
            Io::CompareAndWrite { .. } => self.mark(task, files, whole),
            Io::OrWrite { buf, scratch, .. } => {
                mem::or(scratch, buf);
                self.mark(task, files, whole)
            }
            _ => Some(Ok(())),
        }
    }

    /// The log is to have the regions of a write before it goes to a leg.
    fn mark(&self, task: &mut MirrorTask, files: &mut dyn FileIo, whole: Token) -> Goes {
        let begun = self
            .log
            .begin_write(task.io.extent(), || files.ticket(whole));
        self.writes_begun.fetch_add(1, Ordering::SeqCst);
        (task.is_counted, task.members, task.legs) = (true, begun.members, begun.legs);
        self.log_then_write(task, begun.wait, files, whole)
    }

    fn log_then_write(
        &self,
        task: &mut MirrorTask,
        wait: LogWait,
        files: &mut dyn FileIo,
        whole: Token,
    ) -> Goes {
        match wait {
            LogWait::No => self.write(task, files, whole),
            LogWait::Failed(errno) => Some(Err(Error::WriteFailed(errno))),
            LogWait::Change(change) => {
                (task.step, task.change) = (MirrorStep::Log, change);
                None
            }
        }
    }

    /// Writes on all legs that are not out.
    fn write(&self, task: &mut MirrorTask, files: &mut dyn FileIo, whole: Token) -> Goes {
        if task.is_canceled {
            return Some(Err(canceled(&task.io)));
        }
        task.step = MirrorStep::Write;
        let io = task.write_io();
        for leg in legs(task.members) {
            self.write_on(task, (leg, io), files, whole);
        }
        self.after_write(task, files, whole)
    }

    fn write_on(
        &self,
        task: &mut MirrorTask,
        (leg, io): (usize, Io),
        files: &mut dyn FileIo,
        whole: Token,
    ) {
        let token = task.legs.bits.on_leg(whole, leg);
        let progress = task.legs.volume(leg).start(io, files, token);
        self.wrote(task, (leg, io), progress, files, token);
    }

    /// A leg has done something for a write.
    fn wrote(
        &self,
        task: &mut MirrorTask,
        (leg, io): (usize, Io),
        progress: Progress,
        files: &mut dyn FileIo,
        token: Token,
    ) {
        let below = match progress {
            Progress::Pending(below) => Some(below),
            Progress::Done(Err(Error::Busy)) => {
                files.ticket(token).ring();
                None
            }
            Progress::Done(result) => {
                return match task.legs.all[leg].outcome(&io, result) {
                    Ok(()) => task.done |= 1 << leg,
                    Err(error) => {
                        task.failed |= 1 << leg;
                        task.error.get_or_insert(error);
                        self.tell(&task.legs, leg, error);
                    }
                };
            }
        };
        task.running[leg] = Some(LegIo { io, task: below });
    }

    /// How a write ended, where all legs are done with it and nothing else must be waited for.
    fn after_write(&self, task: &mut MirrorTask, files: &mut dyn FileIo, whole: Token) -> Goes {
        if task.is_running() {
            return None;
        }
        if task.failed == 0 && task.done != 0 {
            return Some(Ok(()));
        }
        let error = task.error.unwrap_or(Error::WriteFailed(Errno::IO));
        if task.only.is_some() {
            return Some(Err(error));
        }
        let outcome = (&task.legs, task.done, task.failed);
        let Ended { is_done, wait } =
            (self.log).has_failed(task.io.extent(), outcome, || files.ticket(whole));
        let answer = if is_done { Ok(()) } else { Err(error) };
        match wait {
            LogWait::No => Some(answer),
            LogWait::Failed(errno) => Some(Err(Error::WriteFailed(errno))),
            LogWait::Change(change) => {
                (task.step, task.change) = (MirrorStep::Answer(answer), change);
                None
            }
        }
    }

    /// Something has completed for a task.
    fn go_on(
        &self,
        task: &mut MirrorTask,
        result: io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Goes {
        let whole = task.legs.bits.whole(token);
        match task.step {
            MirrorStep::Range => self.called(task, &result, files, whole),
            MirrorStep::Log | MirrorStep::Answer(_) => {
                match (self.log.saved(task.change), task.step) {
                    (Some(Err(errno)), _) => Some(Err(Error::WriteFailed(errno))),
                    (Some(Ok(())), MirrorStep::Answer(answer)) => Some(answer),
                    (Some(Ok(())), _) => self.write(task, files, whole),
                    (None, _) => unreachable!("it is called when its change is decided"),
                }
            }
            MirrorStep::Fetch | MirrorStep::Write => {
                let leg = task.legs.bits.leg(token);
                let LegIo { io, task: below } =
                    task.running[leg].take().expect("it was begun there");
                let volume = task.legs.all[leg].part.volume().clone();
                let progress = match below {
                    Some(below) => volume.resume(below, result, files, token),
                    None => volume.start(io, files, task.legs.bits.on_leg(whole, leg)),
                };
                let token = task.legs.bits.on_leg(whole, leg);
                if task.step == MirrorStep::Write {
                    self.wrote(task, (leg, io), progress, files, token);
                    return self.after_write(task, files, whole);
                }
                match self.fetched(task, (leg, io), progress, files, token) {
                    Some(goes) => goes,
                    None => self.fetch(task, files, whole),
                }
            }
        }
    }

    /// A task that waited for its range was called, with `result`.
    fn called(
        &self,
        task: &mut MirrorTask,
        result: &io::Result<u32>,
        files: &mut dyn FileIo,
        whole: Token,
    ) -> Goes {
        let place = task.place.take().expect("it waits");
        if task.is_canceled || result.is_err() {
            return Some(Err(canceled(&task.io)));
        }
        if let Err(place) = place.go_on(|| Caller::Ticket(files.ticket(whole))) {
            task.place = Some(place);
            return None;
        }
        task.holds = true;
        // It may have become smaller meanwhile, or have other legs.
        task.legs = self.legs();
        match self.check(task) {
            Ok(()) => self.begin(task, files, whole),
            Err(error) => Some(Err(error)),
        }
    }

    /// Others may have its range.
    fn finish(&self, task: &MirrorTask, result: Result<(), Error>) -> Progress {
        if task.is_counted {
            self.writes_ended.fetch_add(1, Ordering::SeqCst);
            self.log.end_write(task.io.extent());
        }
        if let (Ok(()), Some(writes)) = (&result, task.writes) {
            self.flushed_at.store(writes, Ordering::SeqCst);
        }
        if task.holds
            && let Some(claim) = self.claim(&task.io)
        {
            self.locks.release(&claim);
        }
        match task.only {
            Some(_) => self.finish_on(task, result),
            None => self.base.finish(&task.io, result),
        }
    }

    /// Tells the log which of the legs fails, once.
    fn tell(&self, all: &Legs, leg: usize, error: Error) {
        let leg = &all.all[leg];
        if !leg.is_told.swap(true, Ordering::Relaxed) {
            error!(
                volume = self.base.info.name,
                leg = leg.part.volume().info().name,
                %error,
                "I/O fails on a leg of a mirror; more such failures count in its figures alone"
            );
        }
    }
}

impl Mirror {
    fn start_io(&self, io: Io, files: &mut dyn FileIo, token: Token) -> Progress {
        self.start_task(MirrorTask::new(io, self.legs(), None), files, token)
    }

    fn start_task(&self, mut task: MirrorTask, files: &mut dyn FileIo, token: Token) -> Progress {
        if let Err(error) = self.check(&task) {
            return self.finish(&task, Err(error));
        }
        if let Some(claim) = self.claim(&task.io) {
            match self
                .locks
                .acquire(claim, || Caller::Ticket(files.ticket(token)))
            {
                Ok(()) => {
                    task.holds = true;
                    // Those that it saw may have been replaced before it had its range.
                    task.legs = self.legs();
                }
                Err(place) => {
                    task.place = Some(place);
                    return Box::new(task).into();
                }
            }
        }
        match self.begin(&mut task, files, token) {
            Some(result) => self.finish(&task, result),
            None => Box::new(task).into(),
        }
    }

    fn resume_io(
        &self,
        task: Task,
        result: io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        let mut task = task.into_mirror();
        match self.go_on(&mut task, result, files, token) {
            Some(result) => self.finish(&task, result),
            None => task.into(),
        }
    }
}
