//! The log of a mirror: its record as I/Os change it, and how it comes to the medium.
//!
//! A region is dirty on the medium before the first write to it goes to a leg. That a leg is out,
//! or lacks something that others have, is there before a write that says so is answered. Regions
//! become clean later, and nobody waits for that. What is wanted meanwhile goes to the medium
//! together.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use faults::Fault;
use reactor::Ticket;
use rustix::io::Errno;
use tracing::{error, info};

use super::Legs;
use super::record::MirrorRecord;
use super::regions::Regions;
use crate::Medium;
use crate::kept::savers;
use crate::state::LegOf;

/// So far ahead of a stream of writes regions become dirty, so that it waits for the log neither
/// at each region nor at all once it is on its way.
const AHEAD_BYTES: u64 = 8 << 20;

/// Where it lies, and how it is brought there.
pub(super) struct LogMedium {
    pub medium: Box<dyn Medium>,
    /// At once, on the calling thread.
    pub is_instant: bool,
}

pub(super) struct Log {
    /// The mirror's name.
    name: String,
    state: Mutex<LogState>,
    /// The legs that the record is of: they are others where it is another, under the lock of
    /// both.
    legs: RwLock<Arc<Legs>>,
    /// No leg is out, and none lacks anything.
    is_whole: AtomicBool,
    medium: Option<LogMedium>,
    /// One save at a time, so that an older one never comes after a newer one.
    saving: Mutex<()>,
}

pub(super) struct LogState {
    pub record: MirrorRecord,
    /// Writes under way in each region.
    writing: Vec<u32>,
    /// Regions that were written to since it was looked for clean ones.
    recent: Regions,
    /// Regions that are dirty on the medium, and in what is being brought there; legs that are
    /// out lack them there, too.
    sure: Regions,
    /// Regions in which a write failed on a leg since copying began.
    spoiled: Regions,
    /// Numbers of changes: the last that there is, the last that is on the medium, the last that
    /// could not be brought there, and the last of which legs have what.
    wanted: u64,
    saved: u64,
    failed: Option<(u64, Errno)>,
    of_legs: u64,
    /// The generation that the medium has.
    saved_generation: u64,
    is_saving: bool,
    /// Regions of which a crash may have left something else on each leg: those that are as good
    /// there as the first, a bit each, as long as nothing was read from that.
    as_good: BTreeMap<usize, u8>,
    /// How often it was another record.
    replaced: u64,
    /// They are called when the change of the number is saved, or cannot be.
    waiting: Vec<(u64, Ticket)>,
}

/// Whether an I/O waits for a change of the record to be on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogWait {
    /// It is there.
    No,
    /// For the change of this number; the I/O's ticket is rung then.
    Change(u64),
    /// It could not be brought there.
    Failed(Errno),
}

/// A write that has begun.
pub(super) struct Begun {
    /// The legs that it goes to, a bit each.
    pub members: u8,
    /// Before it goes there.
    pub wait: LogWait,
    /// All legs, which the bits are of.
    pub legs: Arc<Legs>,
}

/// What legs have been asked for: those of which legs, which have done it, which have failed to.
pub(super) type Outcome<'l> = (&'l Arc<Legs>, u8, u8);

/// As long as it is the same the mirror has the same legs, size and regions, and none of its legs
/// has come or gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stand {
    generation: u64,
    replaced: u64,
}

/// What comes of a write that has failed on a leg.
pub(super) struct Ended {
    /// A leg that has all of it is left.
    pub is_done: bool,
    /// Before that is answered.
    pub wait: LogWait,
}

impl Log {
    pub(super) fn new(
        name: &str,
        (record, as_good): (MirrorRecord, BTreeMap<usize, u8>),
        legs: Arc<Legs>,
        medium: Option<LogMedium>,
    ) -> Arc<Log> {
        let count = record.dirty.count();
        if medium.as_ref().is_some_and(|medium| !medium.is_instant) {
            savers();
        }
        let log = Log {
            name: name.to_owned(),
            is_whole: AtomicBool::new(false),
            legs: RwLock::new(legs),
            state: Mutex::new(LogState {
                saved_generation: record.generation,
                sure: Regions::none(count),
                writing: vec![0; count],
                recent: Regions::none(count),
                spoiled: Regions::none(count),
                record,
                wanted: 0,
                saved: 0,
                failed: None,
                of_legs: 0,
                is_saving: false,
                as_good,
                replaced: 0,
                waiting: Vec::new(),
            }),
            medium,
            saving: Mutex::default(),
        };
        log.note_whole(&log.state());
        Arc::new(log)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().expect("nothing panics under this lock")
    }

    #[inline]
    pub(super) fn legs(&self) -> Arc<Legs> {
        let legs = self.legs.read().unwrap_or_else(PoisonError::into_inner);
        legs.clone()
    }

    /// The record as it is, with its legs.
    pub(super) fn now(&self) -> (MirrorRecord, Arc<Legs>, Stand) {
        let state = self.state();
        (state.record.clone(), self.legs(), state.stand())
    }

    fn note_whole(&self, state: &LogState) {
        let mut legs = state.record.legs.iter();
        let is_whole = legs.all(|leg| !leg.is_out && leg.missing.is_empty());
        self.is_whole.store(is_whole, Ordering::Release);
    }

    /// Legs that the first bytes of a range can be read from, a bit each, and how many bytes
    /// those are. No leg has them where there is none.
    pub(super) fn readable(&self, offset: u64, len: u64, but: u8, legs: usize) -> (u8, u64) {
        let all = ((1 << legs) - 1) & !but;
        if self.is_whole.load(Ordering::Acquire) || faults::is(Fault::StaleLeg) {
            return (all, len);
        }
        let state = self.state();
        let mut regions = state.record.regions(offset, len);
        let Some(first) = regions.next() else {
            return (state.record.members() & all, len);
        };
        let mut legs = state.record.current(first..first + 1) & all;
        let mut end = first + 1;
        for region in regions {
            let both = legs & state.record.current(region..region + 1);
            if both == 0 {
                break;
            }
            (legs, end) = (both, region + 1);
        }
        (
            legs,
            len.min(end as u64 * state.record.region_bytes - offset),
        )
    }

    /// A write of a range begins, which nothing else is at.
    pub(super) fn begin_write(
        self: &Arc<Log>,
        (offset, len): (u64, u64),
        ticket: impl FnOnce() -> Ticket,
    ) -> Begun {
        let mut state = self.state();
        let regions = state.record.regions(offset, len);
        for region in regions.clone() {
            state.writing[region] += 1;
        }
        let (members, legs) = (state.record.members(), self.legs());
        let mut each = regions.clone();
        let is_whole = self.is_whole.load(Ordering::Acquire);
        if !is_whole && each.any(|region| state.record.current(region..region + 1) == 0) {
            // Only a leg that is not there has it: what that has stays what the mirror holds.
            let wait = LogWait::Failed(Errno::IO);
            return Begun {
                members,
                wait,
                legs,
            };
        }
        let is_sure = state.sure.has_all(regions.clone()) && state.saved >= state.of_legs;
        let is_ahead = state.touch_ahead(&regions);
        state.recent.insert(regions.clone());
        state.touch(regions);
        let wait = match is_sure || self.medium.is_none() || faults::is(Fault::LogLate) {
            true if is_ahead => {
                state.wanted += 1;
                self.save(state);
                LogWait::No
            }
            true => LogWait::No,
            false => self.want(state, ticket),
        };
        Begun {
            members,
            wait,
            legs,
        }
    }

    /// The change that an answer waits for which rests on which legs have what.
    pub(super) fn wait_for_legs(self: &Arc<Log>, ticket: impl FnOnce() -> Ticket) -> Begun {
        let state = self.state();
        let (members, legs) = (state.record.members(), self.legs());
        let is_sure = state.saved >= state.of_legs || self.medium.is_none();
        let wait = match is_sure {
            true => LogWait::No,
            false => self.want(state, ticket),
        };
        Begun {
            members,
            wait,
            legs,
        }
    }

    /// A write is over, on all legs.
    pub(super) fn end_write(self: &Arc<Log>, (offset, len): (u64, u64)) {
        let mut state = self.state();
        for region in state.record.regions(offset, len) {
            state.writing[region] -= 1;
        }
        if faults::is(Fault::LogLate) {
            self.save(state);
        }
    }

    /// A write of a range, or a flush, was done by some legs and has failed on others.
    pub(super) fn has_failed(
        self: &Arc<Log>,
        extent: (u64, u64),
        outcome: Outcome<'_>,
        ticket: impl FnOnce() -> Ticket,
    ) -> Ended {
        let mut state = self.state();
        let (is_done, is_new) = self.note_failed(&mut state, extent, outcome);
        if !is_new || self.medium.is_none() || faults::is(Fault::OutUnsaved) {
            let wait = LogWait::No;
            return Ended { is_done, wait };
        }
        state.of_legs = state.wanted + 1;
        let wait = self.want(state, ticket);
        Ended { is_done, wait }
    }

    /// The same of a flush that no host waits for.
    pub(super) fn flush_has_failed(self: &Arc<Log>, outcome: Outcome<'_>) {
        let mut state = self.state();
        if self.note_failed(&mut state, (0, 0), outcome).1 {
            state.wanted += 1;
            state.of_legs = state.wanted;
            self.save(state);
        }
    }

    /// Whether a leg that has all of it is left, and whether the record is another.
    fn note_failed(
        &self,
        state: &mut LogState,
        (offset, len): (u64, u64),
        (of, done, failed): Outcome<'_>,
    ) -> (bool, bool) {
        let all = self.legs();
        if !Arc::ptr_eq(of, &all) {
            // A flush of legs that are no more.
            return (false, false);
        }
        state.as_good.clear();
        let is_flush = len == 0;
        // A flush is of all that may not be durable, and of what is being copied.
        let regions = match is_flush {
            true => state.record.dirty.clone(),
            false => state.record.some(state.record.regions(offset, len)),
        };
        match is_flush {
            true => state.spoiled = Regions::all(regions.count()),
            false => state.spoiled.add(&regions),
        }
        let is_done = done != 0 && state.record.have(done, &regions);
        if is_done {
            for leg in legs(failed & state.record.members()) {
                self.leg_has_failed(state, (leg, all.name(leg)), &regions);
            }
        } else if !is_flush {
            state.record.settle(&regions);
        }
        self.note_whole(state);
        (is_done, is_done || !is_flush)
    }

    /// Others have written what a leg has failed to.
    fn leg_has_failed(&self, state: &mut LogState, (leg, name): (usize, &str), regions: &Regions) {
        if state.record.needs(leg) {
            // It alone has something: it is not out, but what it has not written it lacks.
            state.record.legs[leg].missing.add(regions);
            return;
        }
        state.record.take_out(leg);
        error!(
            event = "mirror-leg-out",
            volume = self.name,
            leg = name,
            "a write to a leg of the mirror has failed: it is served by the others; see to the \
             disk: it is copied to when it answers again"
        );
    }

    /// A leg could not read what others can: it is to be copied to it again.
    pub(super) fn could_not_read(self: &Arc<Log>, leg: usize, offset: u64, len: u64) {
        let mut state = self.state();
        let regions = state.record.regions(offset, len);
        for region in regions {
            let others = state.record.current(region..region + 1) & !(1 << leg);
            if others != 0 {
                state.record.legs[leg].missing.insert(region..region + 1);
            }
        }
        self.note_whole(&state);
        state.wanted += 1;
        self.save(state);
    }

    /// Something was read there: what the mirror holds is decided.
    pub(super) fn was_read(&self, offset: u64, len: u64) {
        if self.is_whole.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state();
        for region in state.record.regions(offset, len) {
            state.as_good.remove(&region);
        }
    }

    /// Legs that failed to read a region decide no more what it holds, if there is one that is as
    /// good: that does. Nothing of the region is under way.
    pub(super) fn settle_on_another(
        self: &Arc<Log>,
        region: usize,
        failed: u8,
        ticket: impl FnOnce() -> Ticket,
    ) -> Option<LogWait> {
        let mut state = self.state();
        let as_good = state.as_good.remove(&region)?;
        let left = legs(as_good & state.record.members() & !failed);
        let next = left.min()?;
        let only = state.record.some(region..region + 1);
        state.record.legs[next].missing.subtract(&only);
        for leg in legs(failed) {
            state.record.legs[leg].missing.add(&only);
        }
        state.as_good.insert(region, as_good & !failed);
        self.note_whole(&state);
        state.of_legs = state.wanted + 1;
        Some(self.want(state, ticket))
    }

    /// What of a leg's content has become that of the others, if nothing has come between.
    pub(super) fn copied(self: &Arc<Log>, leg: usize, stand: Stand, copied: &Regions) {
        let mut state = self.state();
        if state.stand() != stand {
            return;
        }
        let mut copied = copied.clone();
        copied.subtract(&state.spoiled);
        state.as_good.retain(|region, _| !copied.has(*region));
        state.record.legs[leg].missing.subtract(&copied);
        self.note_whole(&state);
        if state.record.legs[leg].missing.is_empty() {
            info!(
                event = "mirror-leg-whole",
                volume = self.name,
                leg = self.legs().name(leg),
                "a leg of the mirror has all that it lacked"
            );
        }
        state.wanted += 1;
        self.save(state);
    }

    /// A leg that was out then has answered: it is written to again, and copied to.
    pub(super) fn bring_in(self: &Arc<Log>, leg: usize, stand: Stand) {
        let mut state = self.state();
        if state.stand() != stand {
            return;
        }
        state.record.legs[leg].is_out = false;
        state.record.generation += 1;
        self.note_whole(&state);
        info!(
            event = "mirror-leg-in",
            volume = self.name,
            leg = self.legs().name(leg),
            "a leg of the mirror answers again, and what it lacks is copied to it"
        );
        state.wanted += 1;
        state.of_legs = state.wanted;
        self.save(state);
    }

    /// Dirty regions that nothing was written to since this was asked last.
    pub(super) fn idle_regions(&self) -> Regions {
        let mut state = self.state();
        let mut idle = state.record.dirty.clone();
        idle.subtract(&state.recent);
        let busy = state.busy(&idle);
        idle.subtract(&busy);
        state.recent = Regions::none(idle.count());
        idle
    }

    /// All legs have been flushed since [`Log::idle_regions`] gave these, if nothing has come
    /// between.
    pub(super) fn flushed(self: &Arc<Log>, stand: Stand, idle: &Regions) {
        let mut state = self.state();
        let mut clean = idle.clone();
        if state.stand() != stand {
            return;
        }
        clean.subtract(&state.recent);
        let busy = state.busy(&clean);
        clean.subtract(&busy);
        if clean.is_empty() {
            return;
        }
        state.record.dirty.subtract(&clean);
        state.wanted += 1;
        self.save(state);
    }

    /// Puts another record, with its legs, in the place of this one, while nothing is written; on
    /// the medium when this returns. Where that fails nothing has changed. Blocks.
    pub(super) fn change<E: From<io::Error>>(
        self: &Arc<Log>,
        change: impl Fn(&MirrorRecord) -> Result<MirrorRecord, E>,
        legs: Option<Arc<Legs>>,
    ) -> Result<(), E> {
        let legs = legs.unwrap_or_else(|| self.legs());
        self.save_once(|record| change(record).map(|record| (record, legs.clone())))?;
        let mut state = self.state();
        // A leg may have gone out meanwhile.
        let changed = change(&state.record);
        if let Ok(record) = changed {
            state.replace(record);
            let mut all = self.legs.write().unwrap_or_else(PoisonError::into_inner);
            let old = std::mem::replace(&mut *all, legs);
            drop(all);
            self.note_whole(&state);
            self.save(state);
            // It may close a volume.
            drop(old);
            return Ok(());
        }
        state.wanted += 1;
        self.save(state);
        changed.map(drop)
    }

    /// Brings the record as it is to the medium. Blocks.
    pub(super) fn keep(&self) -> io::Result<()> {
        self.save_once(|record| Ok((record.clone(), self.legs())))
    }

    /// All that was written is on the medium of each leg that has it.
    pub(super) fn forget_dirty(&self) {
        let mut state = self.state();
        state.record.dirty = Regions::none(state.record.dirty.count());
    }

    /// Begins a new generation, so that a leg which comes back from a backup of before is known.
    /// Blocks.
    pub(super) fn renew(&self) -> io::Result<()> {
        self.state().record.generation += 1;
        self.keep()
    }

    /// How a change ended; `None` as long as it has not.
    pub(super) fn saved(&self, change: u64) -> Option<Result<(), Errno>> {
        let state = self.state();
        match state.failed {
            _ if state.saved >= change => Some(Ok(())),
            Some((failed, errno)) if failed >= change => Some(Err(errno)),
            _ => None,
        }
    }

    /// Wants all that has changed on the medium, and rings when it is there.
    fn want(
        self: &Arc<Log>,
        mut state: MutexGuard<'_, LogState>,
        ticket: impl FnOnce() -> Ticket,
    ) -> LogWait {
        state.wanted += 1;
        let change = state.wanted;
        let is_instant = self.medium.as_ref().is_none_or(|medium| medium.is_instant);
        if !is_instant {
            state.waiting.push((change, ticket()));
            self.save(state);
            return LogWait::Change(change);
        }
        self.save(state);
        match self.saved(change) {
            Some(Err(errno)) => LogWait::Failed(errno),
            _ => LogWait::No,
        }
    }

    /// Brings what is wanted to the medium, here or beside the reactors.
    fn save(self: &Arc<Log>, mut state: MutexGuard<'_, LogState>) {
        let Some(medium) = &self.medium else { return };
        if std::mem::replace(&mut state.is_saving, true) {
            return;
        }
        drop(state);
        let log = self.clone();
        let job = move || while !log.is_saved() {};
        let savers = match medium.is_instant {
            true => None,
            false => savers(),
        };
        match savers {
            Some(savers) => savers.add(Arc::as_ptr(self).addr(), Box::new(job)),
            None => job(),
        }
    }

    /// Saves once; whether nothing was wanted meanwhile.
    fn is_saved(&self) -> bool {
        let _ = self.keep();
        let mut state = self.state();
        let decided = state
            .saved
            .max(state.failed.map_or(0, |(failed, _)| failed));
        let is_over = decided >= state.wanted;
        state.is_saving = !is_over;
        is_over
    }

    /// Brings what is made of the record as it is now to the medium.
    fn save_once<E: From<io::Error>>(
        &self,
        made: impl FnOnce(&MirrorRecord) -> Result<(MirrorRecord, Arc<Legs>), E>,
    ) -> Result<(), E> {
        let _one = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let (change, (mut record, legs), is_new) = {
            let mut state = self.state();
            let dirty = state.record.dirty.clone();
            state.sure.keep(&dirty);
            let (record, legs) = made(&state.record)?;
            let is_new = record.generation != state.saved_generation;
            (state.wanted, (record, legs), is_new)
        };
        let Some(LogMedium { medium, .. }) = &self.medium else {
            return Ok(());
        };
        // The log has a generation before any leg: none is ahead of it after a crash, and one that
        // was not told yet is not taken for one that comes back from a backup.
        let first = match is_new {
            true => medium.save(&record.bytes()),
            false => Ok(()),
        };
        let is_first = first.is_ok();
        let saved = first.and_then(|()| {
            tell_legs(&mut record, &legs);
            medium.save(&record.bytes())
        });
        let mut state = self.state();
        if is_first {
            state.saved_generation = record.generation;
            // What was not saved a second time may still be known to legs.
            state.record.generation = state.record.generation.max(record.generation);
        }
        for told in &record.legs {
            let mut legs = state.record.legs.iter_mut();
            if let Some(leg) = legs.find(|leg| leg.volume == told.volume) {
                leg.generation = told.generation;
            }
        }
        match &saved {
            Ok(()) => {
                state.saved = state.saved.max(change);
                state.sure = match state.sure.count() == record.dirty.count() {
                    true => record.dirty,
                    false => Regions::none(state.sure.count()),
                };
            }
            Err(error) => {
                error!(
                    path = %medium.path().display(),
                    %error,
                    "cannot write the log of a mirror: writes fail until it can be; free space in \
                     its folder, or mend its disk"
                );
                let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
                state.failed = Some((change, errno));
            }
        }
        let waiting = std::mem::take(&mut state.waiting);
        let (decided, later): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .partition(|(number, _)| *number <= change);
        state.waiting = later;
        drop(state);
        decided.into_iter().for_each(|(_, ticket)| ticket.ring());
        saved.map_err(E::from)
    }
}

/// Lets each leg that is in remember the generation, and whether it lacks anything.
fn tell_legs(record: &mut MirrorRecord, legs: &Legs) {
    for (leg, volume) in record.legs.iter_mut().zip(legs.volumes()) {
        let state = volume.state();
        if leg.is_out || !state.can_persist() {
            continue;
        }
        let leg_of = LegOf {
            mirror: record.mirror,
            generation: record.generation,
            is_behind: !leg.missing.is_empty(),
        };
        let told = match state.leg_of() == Some(leg_of) {
            true => Ok(()),
            false => state.set_leg_of(leg_of),
        };
        match told {
            Ok(()) => leg.generation = record.generation,
            // It is known by what its state says still.
            Err(error) => error!(
                leg = volume.info().name,
                %error,
                "the state of a leg of a mirror cannot be written"
            ),
        }
    }
}

impl LogState {
    /// These regions are being written to.
    fn touch(&mut self, regions: Range<usize>) {
        self.record.dirty.insert(regions.clone());
        for leg in self.record.legs.iter_mut().filter(|leg| leg.is_out) {
            leg.missing.insert(regions.clone());
        }
    }

    /// Writes that run on from the region before these come to those behind them soon; whether
    /// some of those become dirty with this. Legs that are out lack those, too: that has to be on
    /// the medium before a write that finds them dirty there. What such a leg has alone stays.
    fn touch_ahead(&mut self, regions: &Range<usize>) -> bool {
        let runs_on = regions.start > 0 && self.recent.has(regions.start - 1);
        let count = self.record.dirty.count();
        let ahead = (AHEAD_BYTES / self.record.region_bytes).max(1) as usize;
        let near = regions.end..(regions.end + ahead.div_ceil(2)).min(count);
        if !runs_on || self.record.dirty.has_all(near) {
            return false;
        }
        let far = regions.end..(regions.end + ahead).min(count);
        let mut each = far.clone();
        let are_had = each.all(|region| self.record.current(region..region + 1) != 0);
        if are_had {
            self.touch(far);
        }
        are_had
    }

    /// Those of these that are being written to now.
    fn busy(&self, regions: &Regions) -> Regions {
        let mut busy = Regions::none(regions.count());
        let mut next = regions.next(0);
        while let Some(region) = next {
            if self.writing[region] > 0 {
                busy.insert(region..region + 1);
            }
            next = regions.next(region + 1);
        }
        busy
    }

    /// Copying begins.
    pub(super) fn begin_copy(&mut self) {
        self.spoiled = Regions::none(self.record.dirty.count());
    }

    /// Whether a leg that cannot read a region need not be the one that decides there.
    pub(super) fn is_undecided(&self, region: usize) -> bool {
        self.as_good.contains_key(&region)
    }

    pub(super) fn stand(&self) -> Stand {
        Stand {
            generation: self.record.generation,
            replaced: self.replaced,
        }
    }

    /// Another record, while nothing is written.
    fn replace(&mut self, record: MirrorRecord) {
        let count = record.dirty.count();
        self.writing = vec![0; count];
        self.sure = Regions::none(count);
        self.recent = Regions::none(count);
        self.spoiled = Regions::none(count);
        self.as_good.clear();
        self.record = record;
        self.replaced += 1;
        self.wanted += 1;
        self.of_legs = self.wanted;
    }
}

/// The legs whose bits are set.
pub(super) fn legs(bits: u8) -> impl Iterator<Item = usize> {
    (0..8).filter(move |leg| bits >> leg & 1 == 1)
}
