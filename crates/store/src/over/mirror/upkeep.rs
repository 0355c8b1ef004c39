//! What a mirror does by itself: it copies to a leg what that lacks, asks legs that are out
//! whether they answer again, and takes regions for clean that nothing is written to any more.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use mem::BufRange;
use reactor::{FileIo, Nanos, Token};

use super::log::{LogWait, Stand, legs};
use super::record::MirrorRecord;
use super::regions::Regions;
use super::{LEGS_MAX, Legs, Mirror};
use crate::locks::{Caller, Claim, StripePlace};
use crate::pace::pause_after;
use crate::{Error, Io, Parked, Progress, Range, Task};

/// Bytes that are copied at a time at most.
pub(super) const SCRATCH_BYTES: u64 = 128 << 10;

/// Bytes that are copied to a leg before it is flushed, and the log says that it has them.
const BATCH_BYTES: u64 = 64 << 20;

const S: Nanos = 1_000_000_000;
const MS: Nanos = 1_000_000;

/// Ranges that wait to be mended at most. Others are found by the next read of them.
const MENDS_MAX: usize = 1024;

/// When what is done next.
pub(super) struct Upkeep {
    /// How long nothing is written to a region before it may be clean; how long a leg that is
    /// out, or could not be copied to, is left alone.
    clean_ns: Nanos,
    rest_ns: Nanos,
    cleans_at: Nanos,
    legs: [LegUpkeep; LEGS_MAX],
    /// What a leg has with another checksum than what was written.
    mends: VecDeque<(usize, Range)>,
}

#[derive(Clone, Copy, Default)]
struct LegUpkeep {
    asks_at: Nanos,
    copies_at: Nanos,
    /// The region that copying goes on at.
    from: usize,
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
            legs: [LegUpkeep::default(); LEGS_MAX],
            mends: VecDeque::new(),
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
    /// The leg that is read.
    source: usize,
    /// Where the region begins, where it is, and how many bytes are copied at a time; the end of
    /// the region.
    begin: u64,
    at: u64,
    len: u64,
    end: u64,
    /// Bytes of a chunk as long as they can be read together.
    chunk: u64,
    /// Legs, a bit each, that have it with another checksum.
    mismatched: u8,
    /// How long it has paused for the last chunk.
    paused: Nanos,
    /// A scrub of the leg has found it.
    is_found: bool,
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
    /// Another leg is to decide what the region holds.
    Settle,
}

/// Work of a mirror that is under way.
#[derive(Debug)]
pub(super) struct UpkeepTask {
    legs: Arc<Legs>,
    stand: Stand,
    work: Work,
    place: Option<Box<StripePlace>>,
    held: Option<Claim>,
    /// What is under way on legs; `None`: it is to be begun, or begun again.
    running: Vec<(usize, Io, Option<Task>)>,
    /// Legs that have done what was last begun on several, and that have not; the first error.
    done: u8,
    failed: u8,
    error: Option<Error>,
    is_canceled: bool,
}

impl Parked for UpkeepTask {
    /// It ends as soon as what is under way on the legs is done.
    fn cancel(&mut self, _: &mut dyn FileIo, _: Token) {
        self.is_canceled = true;
    }
}

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
        let (record, legs, stand) = self.log.now();
        let mut task = UpkeepTask {
            work: self.next_work(now, &record, (&legs, stand))?,
            legs,
            stand,
            place: None,
            held: None,
            running: Vec::new(),
            done: 0,
            failed: 0,
            error: None,
            is_canceled: false,
        };
        let ended = match &task.work {
            Work::Clean(_) => self.flush(&mut task, record.members(), files, token),
            Work::Ask { leg, .. } => {
                // It lacks all that was not flushed when it went out.
                task.legs.all[*leg].forget_losses();
                let leg = 1 << leg;
                self.flush(&mut task, leg, files, token)
            }
            Work::Copy(_) => self.copy_on(&mut task, files, token),
        };
        Some(progress(task, ended))
    }

    /// What there is to do now.
    fn next_work(
        &self,
        now: Nanos,
        record: &MirrorRecord,
        (all, stand): (&Legs, Stand),
    ) -> Option<Work> {
        let mut upkeep = self.upkeep.lock().unwrap_or_else(PoisonError::into_inner);
        let Upkeep {
            clean_ns,
            rest_ns,
            cleans_at,
            legs,
            mends,
        } = &mut *upkeep;
        if now >= *cleans_at {
            *cleans_at = now + *clean_ns;
            let idle = self.log.idle_regions();
            if !idle.is_empty() {
                return Some(Work::Clean(idle));
            }
        }
        let each = record.legs.iter().zip(&mut *legs).enumerate();
        let out = each.filter(|(_, (leg, at))| leg.is_out && now >= at.asks_at);
        // In turn.
        if let Some((leg, (_, at))) = out.min_by_key(|(_, (_, at))| at.asks_at) {
            at.asks_at = now + *rest_ns;
            return Some(Work::Ask { leg, reads: false });
        }
        if self.resync_rate.load(Ordering::Relaxed) == 0 {
            all.scrubs().for_each(|(_, scrub)| scrub.give_up_repairs());
            return None;
        }
        while let Some((leg, range)) = mends.pop_front() {
            if record.legs.get(leg).is_some_and(|leg| !leg.is_out) {
                return Some(Work::Copy(mending(record.region_bytes, leg, range)));
            }
        }
        if let Some(repairing) = self.repairing(record, all) {
            return Some(Work::Copy(repairing));
        }
        for (leg, (lacks, at)) in record.legs.iter().zip(legs).enumerate() {
            if lacks.is_out || lacks.missing.is_empty() || now < at.copies_at {
                continue;
            }
            let none = || Regions::none(record.dirty.count());
            let from = |region| self.copying(stand, leg, region, none());
            if let Some(copying) = from(at.from).or_else(|| from(0)) {
                // What cannot be copied now is left alone for a while.
                *at = LegUpkeep {
                    copies_at: now + *rest_ns / 10,
                    from: 0,
                    ..*at
                };
                self.log.state().begin_copy();
                return Some(Work::Copy(copying));
            }
            at.copies_at = now + *clean_ns / 5;
        }
        None
    }

    /// A leg has a range with another checksum: others that have it are copied there soon.
    pub(super) fn mend_later(&self, leg: usize, range: Range) {
        let mut upkeep = self.upkeep.lock().unwrap_or_else(PoisonError::into_inner);
        let mend = (leg, range);
        if upkeep.mends.len() < MENDS_MAX && !upkeep.mends.contains(&mend) {
            upkeep.mends.push_back(mend);
        }
    }

    /// The copy of what a scrub of a leg has found, in blocks of the mirror.
    fn repairing(&self, record: &MirrorRecord, all: &Legs) -> Option<Copying> {
        let block_bytes = u64::from(self.base.info.block_bytes);
        for (leg, scrub) in all.scrubs() {
            while let Some(Range { offset, len }) = scrub.next_repair() {
                let end = (offset + len).next_multiple_of(block_bytes);
                let offset = offset / block_bytes * block_bytes;
                let is_there = end <= record.size_bytes && !record.legs[leg].is_out;
                let len = end - offset;
                if is_there {
                    return Some(Copying {
                        is_found: true,
                        ..mending(record.region_bytes, leg, Range { offset, len })
                    });
                }
            }
        }
        None
    }

    /// The next region from this one on that a leg lacks and another has.
    fn copying(&self, stand: Stand, leg: usize, from: usize, copied: Regions) -> Option<Copying> {
        let state = self.log.state();
        let record = &state.record;
        if state.stand() != stand {
            return None;
        }
        let missing = &record.legs[leg].missing;
        let mut region = missing.next(from)?;
        while record.current(region..region + 1) == 0 {
            region = missing.next(region + 1)?;
        }
        let at = region as u64 * record.region_bytes;
        Some(Copying {
            leg,
            region,
            source: leg,
            begin: at,
            at,
            len: 0,
            end: (at + record.region_bytes).min(record.size_bytes),
            chunk: SCRATCH_BYTES,
            mismatched: 0,
            paused: 0,
            is_found: false,
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
            None => self.pause(&mut task, files, whole),
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
        // All of them are under way before the last is done.
        task.running = legs(on).map(|leg| (leg, Io::Flush, None)).collect();
        (task.done, task.failed) = (0, 0);
        let mut goes = Some(());
        for leg in legs(on) {
            task.running.retain(|(other, ..)| *other != leg);
            goes = self.begin_on(task, (leg, Io::Flush), files, whole);
        }
        goes
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
                match task.legs.all[leg].outcome(&io, result) {
                    Ok(()) => task.done |= 1 << leg,
                    Err(error) => {
                        task.failed |= 1 << leg;
                        task.error.get_or_insert(error);
                    }
                }
                if !task.running.is_empty() {
                    return None;
                }
                return self.after(task, files, whole);
            }
        };
        task.running.push((leg, io, below));
        None
    }

    /// All that was under way is done.
    fn after(&self, task: &mut UpkeepTask, files: &mut dyn FileIo, whole: Token) -> Goes {
        let error = task.error.take();
        match &mut task.work {
            Work::Copy(_) => self.copied(task, error, files, whole),
            Work::Clean(idle) => {
                match error {
                    None => self.log.flushed(task.stand, idle),
                    Some(error) => self.flush_has_failed(task, task.done, error),
                }
                Some(())
            }
            Work::Ask { .. } if error.is_some_and(is_no_answer) => Some(()),
            Work::Ask { leg, reads: true } => {
                task.legs.all[*leg].is_told.store(false, Ordering::Relaxed);
                self.log.bring_in(*leg, task.stand);
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

    /// Legs have failed a flush which these have done, or need not do.
    fn flush_has_failed(&self, task: &UpkeepTask, done: u8, error: Error) {
        for leg in legs(task.failed) {
            self.tell(&task.legs, leg, error);
        }
        self.log.flush_has_failed((&task.legs, done, task.failed));
    }

    fn scratch(&self, len: u64) -> BufRange {
        self.scratch.range(0, len as u32)
    }

    /// The next chunk: its range first.
    fn copy_on(&self, task: &mut UpkeepTask, files: &mut dyn FileIo, whole: Token) -> Goes {
        let rate = self.resync_rate.load(Ordering::Relaxed);
        let is_over = task.is_canceled || rate == 0;
        let Work::Copy(copying) = &mut task.work else {
            unreachable!("nothing else is copied");
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
            let next = match is_over || *bytes >= BATCH_BYTES {
                true => None,
                false => self.copying(task.stand, *leg, *region + 1, copied.clone()),
            };
            let Some(next) = next else {
                return self.end_batch(task, files, whole);
            };
            *copying = Copying {
                bytes: *bytes,
                has_skipped: *has_skipped,
                ..next
            };
        }
        if is_over {
            return self.end_batch(task, files, whole);
        }
        copying.step = CopyStep::Lock;
        copying.len = copying.chunk.min(copying.end - copying.at);
        let claim = Claim::new(copying.at, copying.len, false);
        self.claim_range(task, claim, files, whole)
    }

    fn claim_range(
        &self,
        task: &mut UpkeepTask,
        claim: Claim,
        files: &mut dyn FileIo,
        whole: Token,
    ) -> Goes {
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

    /// What was copied is to be durable on the leg.
    fn end_batch(&self, task: &mut UpkeepTask, files: &mut dyn FileIo, whole: Token) -> Goes {
        let Work::Copy(copying) = &mut task.work else {
            unreachable!("nothing else is copied");
        };
        if copying.copied.is_empty() {
            return Some(());
        }
        copying.step = CopyStep::Flush;
        let leg = 1 << copying.leg;
        self.flush(task, leg, files, whole)
    }

    /// Goes on where it has paused for as long as the rate wants it now.
    fn pause(&self, task: &mut UpkeepTask, files: &mut dyn FileIo, whole: Token) -> Goes {
        let rate = self.resync_rate.load(Ordering::Relaxed);
        let Work::Copy(copying) = &mut task.work else {
            unreachable!("nothing else pauses");
        };
        if copying.step == CopyStep::Settle {
            return self.skip_region(task, files, whole);
        }
        let is_pause = copying.step == CopyStep::Pause && rate > 0 && !task.is_canceled;
        let pause = is_pause.then(|| pause_after(copying.len, rate, copying.paused));
        let Some(pause) = pause.flatten() else {
            return self.copy_on(task, files, whole);
        };
        copying.paused += pause;
        files.complete_after(pause, whole);
        None
    }

    /// Nothing changes the chunk now: it is read from the first leg that has it.
    fn has_range(&self, task: &mut UpkeepTask, files: &mut dyn FileIo, whole: Token) -> Goes {
        let Work::Copy(copying) = &mut task.work else {
            unreachable!("nothing else waits for a range");
        };
        let (at, len) = (copying.at, copying.len);
        let is_same = self.log.state().stand() == task.stand;
        if copying.step == CopyStep::Settle {
            let (region, failed) = (copying.region, 1 << copying.source);
            let ticket = || files.ticket(whole);
            let settled = is_same.then(|| self.log.settle_on_another(region, failed, ticket));
            // What is read of it waits for that.
            return match settled.flatten() {
                Some(LogWait::Change(_)) => None,
                _ => self.skip_region(task, files, whole),
            };
        }
        let count = task.legs.all.len();
        let (from, part) = self.log.readable(at, len, 1 << copying.leg, count);
        // It may have become smaller, or another leg has gone out.
        if !is_same || !self.base.holds(at, len) || from == 0 || part < len {
            self.release(task);
            return Some(());
        }
        copying.mismatched = 0;
        self.read_from(task, from, files, whole)
    }

    /// Reads the chunk from the first of these legs.
    fn read_from(
        &self,
        task: &mut UpkeepTask,
        from: u8,
        files: &mut dyn FileIo,
        whole: Token,
    ) -> Goes {
        let Work::Copy(copying) = &mut task.work else {
            unreachable!("the work of another kind");
        };
        copying.step = CopyStep::Read;
        copying.source = from.trailing_zeros() as usize;
        let (leg, offset, len) = (copying.source, copying.at, copying.len);
        let buf = self.scratch(len);
        self.begin_on(task, (leg, Io::Read { offset, buf }), files, whole)
    }

    /// Other legs that have the chunk, where it was read from one that has it with another
    /// checksum.
    fn others_with(&self, task: &mut UpkeepTask) -> u8 {
        let Work::Copy(copying) = &mut task.work else {
            unreachable!("the work of another kind");
        };
        if copying.step != CopyStep::Read {
            return 0;
        }
        copying.mismatched |= 1 << copying.source;
        let but = copying.mismatched | 1 << copying.leg;
        let count = task.legs.all.len();
        let (others, part) = self.log.readable(copying.at, copying.len, but, count);
        if part < copying.len { 0 } else { others }
    }

    /// Goes on behind a region that cannot be copied now.
    fn skip_region(&self, task: &mut UpkeepTask, files: &mut dyn FileIo, whole: Token) -> Goes {
        let Work::Copy(copying) = &mut task.work else {
            unreachable!("nothing else has a region");
        };
        copying.at = copying.end;
        (copying.skips, copying.step) = (true, CopyStep::Lock);
        self.copy_later(task, files, whole)
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
        if error == Some(Error::ChecksumMismatch) {
            let others = self.others_with(task);
            if others != 0 {
                return self.read_from(task, others, files, whole);
            }
        }
        let Work::Copy(copying) = &mut task.work else {
            unreachable!("the work of another kind");
        };
        let (leg, offset, len) = (copying.leg, copying.at, copying.len);
        let block_bytes = u64::from(self.base.info.block_bytes);
        match (copying.step, error) {
            (CopyStep::Flush, _) => self.batch_flushed(task, error),
            (CopyStep::Read, None) => {
                copying.step = CopyStep::Write;
                let io = self.copy_of(offset, len);
                self.begin_on(task, (leg, io), files, whole)
            }
            // Hosts have made a block of it unreadable: so it is on the leg, too.
            (CopyStep::Read, Some(Error::Unreadable | Error::ChecksumMismatch))
                if len > block_bytes =>
            {
                copying.chunk = len / 2 / block_bytes * block_bytes;
                self.copy_later(task, files, whole)
            }
            (CopyStep::Read, Some(Error::Unreadable)) => {
                copying.step = CopyStep::Write;
                let io = Io::MarkUnreadable { offset, len };
                self.begin_on(task, (leg, io), files, whole)
            }
            (CopyStep::Read, Some(_))
                if !copying.skips && self.log.state().is_undecided(copying.region) =>
            {
                copying.step = CopyStep::Settle;
                let whole_region = Claim::new(copying.begin, copying.end - copying.begin, true);
                self.release(task);
                self.claim_range(task, whole_region, files, whole)
            }
            // All of the region but that is copied, and it stays missing.
            (CopyStep::Read, Some(Error::ChecksumMismatch)) => {
                copying.at += len;
                copying.chunk = SCRATCH_BYTES;
                copying.skips = true;
                self.copy_later(task, files, whole)
            }
            (CopyStep::Write, None) => self.written(task, files, whole),
            // The leg has nothing of it as long as the one that has it cannot read it.
            (CopyStep::Read, Some(_)) => self.skip_region(task, files, whole),
            // The leg does not do what it is asked for: others are copied before that is tried
            // again.
            (_, error) => {
                let region = copying.region;
                copying.has_skipped = true;
                self.of_leg(leg, |of| of.from = region + 1);
                if let Some(error) = error {
                    self.tell(&task.legs, leg, error);
                }
                self.release(task);
                self.end_batch(task, files, whole)
            }
        }
    }

    /// A chunk is on the leg.
    fn written(&self, task: &mut UpkeepTask, files: &mut dyn FileIo, whole: Token) -> Goes {
        let Work::Copy(copying) = &mut task.work else {
            unreachable!("the work of another kind");
        };
        let (leg, offset, len) = (copying.leg, copying.at, copying.len);
        copying.at += len;
        copying.bytes += len;
        copying.chunk = SCRATCH_BYTES;
        (copying.step, copying.paused) = (CopyStep::Pause, 0);
        self.resynced_bytes.fetch_add(len, Ordering::Relaxed);
        // No region is copied so: it is what the leg had with another checksum.
        if copying.copied.count() == 0 {
            self.was_repaired(&task.legs, leg, Range { offset, len });
        }
        if let Some(scrub) = task.legs.volume(leg).scrub().filter(|_| copying.is_found) {
            scrub.repaired(Range { offset, len });
        }
        self.release(task);
        self.pause(task, files, whole)
    }

    /// What was copied is durable on the leg, or it could not be flushed.
    fn batch_flushed(&self, task: &UpkeepTask, error: Option<Error>) -> Goes {
        let Work::Copy(copying) = &task.work else {
            unreachable!("the work of another kind");
        };
        if let Some(error) = error {
            let others = self.log.state().record.members() & !task.failed;
            self.flush_has_failed(task, others, error);
            return Some(());
        }
        self.log.copied(copying.leg, task.stand, &copying.copied);
        if !copying.has_skipped {
            self.of_leg(copying.leg, |of| of.copies_at = 0);
        }
        Some(())
    }

    fn of_leg(&self, leg: usize, change: impl FnOnce(&mut LegUpkeep)) {
        let mut upkeep = self.upkeep.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut upkeep.legs[leg]);
    }
}

/// Whether a leg that fails so is not there. What one of its blocks holds is another matter.
fn is_no_answer(error: Error) -> bool {
    !matches!(error, Error::ChecksumMismatch | Error::Unreadable)
}

/// The copy of a range to a leg that may have alone what lies beside it: no region is copied so.
fn mending(region_bytes: u64, leg: usize, Range { offset, len }: Range) -> Copying {
    Copying {
        leg,
        region: (offset / region_bytes) as usize,
        source: leg,
        begin: offset,
        at: offset,
        len: 0,
        end: offset + len,
        chunk: SCRATCH_BYTES,
        mismatched: 0,
        paused: 0,
        is_found: false,
        copied: Regions::none(0),
        bytes: BATCH_BYTES,
        skips: true,
        has_skipped: true,
        step: CopyStep::Lock,
    }
}

fn progress(task: UpkeepTask, ended: Goes) -> Progress {
    match ended {
        Some(()) => Progress::Done(Ok(())),
        None => Progress::Pending(Task::parked(task)),
    }
}
