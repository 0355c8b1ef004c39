//! The volume itself: its I/Os, cut into pieces that several volumes are at together.

use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use machine::work;
use mem::Loan;
use reactor::{FileIo, Token};
use tracing::error;

use super::map::{Map, Run};
use super::task::{CompositeTask, IoPiece, RunningPiece, canceled, cut, moved};
use super::{LegBits, Shape};
use crate::locks::{Caller, Claim, HeldRange, Locks};
use crate::parts::{VolumePart, WHOLE};
use crate::problem::Problem;
use crate::spec::Settings;
use crate::{
    Base, Error, Extent, Io, Progress, Range, ResizeError, Space, Spec, State, Task, Volume, resize,
};

/// How long a shrink waits for I/O on what goes away.
const SHRINK_PATIENCE: Duration = Duration::from_secs(5);

/// Extents of a volume below that are asked for at a time.
const EXTENTS_AT_A_TIME: usize = 256;

pub(crate) struct Composite {
    base: Base,
    map: Map,
    legs: Vec<Leg>,
    bits: LegBits,
    /// None where all of it lies on one volume, which keeps its I/Os apart.
    locks: Option<Arc<Locks>>,
    /// One change of size at a time.
    resizing: Mutex<()>,
}

/// One of the volumes that it is made of.
struct Leg {
    part: VolumePart,
    /// That I/O on it fails is in the log.
    is_told: AtomicBool,
}

/// Whether an I/O was let onto its range; what it holds there goes with the answer.
type LetIn<'l> = Option<Option<HeldRange<'l>>>;

impl Composite {
    pub(crate) fn open(
        spec: &Spec,
        shape: Shape,
        below: Vec<Arc<dyn Volume>>,
        state: State,
    ) -> Result<Composite, Problem> {
        let bits = LegBits::over(&below)?;
        let taken = taken(&shape.map, shape.size_bytes);
        let legs = below.into_iter().map(|volume| {
            let part = VolumePart::take(volume, &spec.name, taken, shape.keeps_sizes)?;
            let is_told = AtomicBool::new(false);
            Ok(Leg { part, is_told })
        });
        let legs: Vec<Leg> = legs.collect::<Result<_, Problem>>()?;
        let below = || legs.iter().map(|leg| leg.part.volume().base());
        let outlasts = below().all(|base| base.outlasts_process);
        let is_delayed = matches!(spec.kind.settings, Settings::Delay { .. });
        let mut base = Base::over(shape.info, shape.size_bytes, bits.total, outlasts);
        base.takes_time = is_delayed || below().any(|base| base.takes_time);
        Ok(Composite {
            base: base.with_state(state),
            map: shape.map,
            bits,
            locks: (legs.len() > 1).then(Locks::new),
            legs,
            resizing: Mutex::default(),
        })
    }

    #[inline]
    fn leg(&self, leg: usize) -> &dyn Volume {
        &**self.legs[leg].part.volume()
    }

    fn sizes(&self) -> Vec<u64> {
        let legs = self.legs.iter();
        legs.map(|leg| leg.part.volume().size_bytes()).collect()
    }

    /// What an I/O locks, if anything.
    #[inline]
    fn claim(&self, io: &Io) -> Option<Claim> {
        let (offset, len) = io.extent();
        let moves = !matches!(io, Io::Flush | Io::Verify { .. });
        let locks = moves && len > 0 && self.locks.is_some() && !self.base.info.read_only;
        locks.then(|| Claim::new(offset, len, !io.leaves_volume_unchanged()))
    }

    /// Lets a whole I/O onto its range if nothing is in its way now.
    #[inline]
    fn let_in(&self, offset: u64, len: u64, is_exclusive: bool) -> LetIn<'_> {
        match &self.locks {
            Some(locks) if len > 0 && !self.base.info.read_only => {
                let held = locks.try_acquire(Claim::new(offset, len, is_exclusive));
                held.map(Some)
            }
            _ => Some(None),
        }
    }

    /// Where a range lies that lies on one volume; none if it lies on several, or that
    /// volume is no memory.
    #[inline]
    fn run_in_memory(&self, offset: u64, len: u64) -> Option<Run> {
        if self.base.info.volatile_cache || !self.base.holds(offset, len) {
            return None;
        }
        let run = (len > 0).then(|| self.map.run(offset))?;
        (run.len >= len).then_some(run)
    }

    /// The next piece of a task, and how far it is cut up then.
    fn next_piece(&self, task: &CompositeTask) -> Option<(IoPiece, u64)> {
        let (offset, len) = task.io.extent();
        match task.io {
            Io::Flush => {
                let leg = task.next as usize;
                let piece = IoPiece {
                    leg,
                    from: 0,
                    io: Io::Flush,
                };
                (leg < self.legs.len()).then_some((piece, task.next + 1))
            }
            Io::Zero { .. }
            | Io::Deallocate { .. }
            | Io::Verify { .. }
            | Io::MarkUnreadable { .. } => {
                let on_leg = |leg| (leg, self.map.on_leg(leg, Range { offset, len }));
                let mut legs = (task.next as usize..self.legs.len()).map(on_leg);
                let (leg, range) = legs.find(|(_, range)| range.len > 0)?;
                let piece = IoPiece {
                    leg,
                    from: 0,
                    io: moved(&task.io, range),
                };
                Some((piece, leg as u64 + 1))
            }
            _ if task.next == len => None,
            _ => {
                let run = self.map.run(offset + task.next);
                let part = run.len.min(len - task.next);
                let is_whole = part == len;
                let piece = IoPiece {
                    leg: run.leg,
                    from: task.next,
                    io: self.data_io(task, is_whole, part as u32, run.offset),
                };
                Some((piece, task.next + part))
            }
        }
    }

    /// A piece with data. A compare and write that lies on several volumes is compared on all
    /// of them before it is written on any.
    fn data_io(&self, task: &CompositeTask, is_whole: bool, len: u32, offset: u64) -> Io {
        match cut(&task.io, task.next, len, offset) {
            Io::CompareAndWrite { write, durable, .. } if task.writes => Io::Write {
                offset,
                buf: write,
                durable,
            },
            Io::CompareAndWrite {
                compare, scratch, ..
            } if !is_whole => Io::Compare {
                offset,
                buf: compare,
                scratch,
            },
            io => io,
        }
    }

    /// Begins what can be begun now: one piece on each volume.
    fn begin_pieces(&self, task: &mut CompositeTask, files: &mut dyn FileIo, whole: Token) {
        // All of them read into the same memory.
        let one_at_a_time = matches!(task.io, Io::Verify { .. });
        while !task.is_ending()
            && (task.running.is_empty() || !one_at_a_time)
            && let Some((piece, next)) = self.next_piece(task)
            && task.running_on(piece.leg).is_none()
        {
            if next < task.io.extent().1 {
                work::spend(work::OPERATION_UNITS);
            }
            task.next = next;
            task.has_changed |= !piece.io.leaves_volume_unchanged();
            self.begin(task, piece, files, whole);
        }
    }

    fn begin(
        &self,
        task: &mut CompositeTask,
        piece: IoPiece,
        files: &mut dyn FileIo,
        whole: Token,
    ) {
        let token = self.bits.on_leg(whole, piece.leg);
        let progress = self.leg(piece.leg).start(piece.io, files, token);
        self.note(task, piece, progress, files, token);
    }

    fn note(
        &self,
        task: &mut CompositeTask,
        piece: IoPiece,
        progress: Progress,
        files: &mut dyn FileIo,
        token: Token,
    ) {
        let below = match progress {
            Progress::Done(Ok(())) => return,
            // It has compared, and what has been written would not compare again.
            Progress::Done(Err(Error::Busy)) if task.writes => {
                files.ticket(token).ring();
                None
            }
            Progress::Done(Err(error)) => {
                if !task.is_canceled {
                    self.tell(piece, error);
                }
                return task.fail(piece.from, error);
            }
            Progress::Pending(below) => Some(below),
        };
        task.running.push(RunningPiece { piece, task: below });
    }

    /// Goes on until something must be waited for, or all is done: how it ended.
    fn advance(
        &self,
        task: &mut CompositeTask,
        files: &mut dyn FileIo,
        whole: Token,
    ) -> Option<Result<(), Error>> {
        loop {
            self.begin_pieces(task, files, whole);
            if !task.running.is_empty() {
                return None;
            }
            let compared = matches!(task.io, Io::CompareAndWrite { .. }) && !task.has_changed;
            if !compared || task.is_ending() || task.io.extent().1 == 0 {
                return Some(task.result());
            }
            (task.writes, task.next) = (true, 0);
        }
    }

    /// Others may have its range.
    #[inline]
    fn finish(&self, task: &CompositeTask, result: Result<(), Error>) -> Progress {
        if task.holds
            && let (Some(locks), Some(claim)) = (&self.locks, self.claim(&task.io))
        {
            locks.release(&claim);
        }
        self.base.finish(&task.io, result)
    }

    /// A task that waited for its range was called, with `result`: how it ended if it
    /// goes no further.
    fn called(
        &self,
        task: &mut CompositeTask,
        result: &io::Result<u32>,
        files: &mut dyn FileIo,
        whole: Token,
    ) -> Option<Result<(), Error>> {
        let place = task.place.take().expect("it waits");
        if task.is_canceled || result.is_err() {
            return Some(Err(canceled(&task.io)));
        }
        if let Err(place) = place.go_on(|| Caller::Ticket(files.ticket(whole))) {
            task.place = Some(place);
            return None;
        }
        task.holds = true;
        // The volume may have become smaller meanwhile.
        match self.base.check(&task.io) {
            Ok(()) => self.advance(task, files, whole),
            Err(error) => Some(Err(error)),
        }
    }

    /// Tells the log which of the volumes fails, once.
    fn tell(&self, piece: IoPiece, error: Error) {
        let is_failure = !matches!(
            error,
            Error::Miscompare { .. } | Error::Unreadable | Error::Locked | Error::Busy
        );
        let leg = &self.legs[piece.leg];
        if is_failure && !leg.is_told.swap(true, Ordering::Relaxed) {
            error!(
                volume = self.base.info.name,
                part = leg.part.volume().info().name,
                %error,
                "I/O fails on a volume that this one is made of; more such failures count in its \
                 figures alone"
            );
        }
    }

    /// What there is room for, in whole blocks.
    fn capacity(&self) -> u64 {
        let block_bytes = u64::from(self.base.info.block_bytes);
        self.map.capacity(&self.sizes()) / block_bytes * block_bytes
    }

    /// New I/O behind `to` is refused, and what is under way there ends before anything else
    /// may have what lies there.
    fn shrink(&self, from: u64, to: u64) -> Result<(), ResizeError> {
        self.base.show_size(to);
        if let Some(locks) = &self.locks {
            let gone = Claim::new(to, from - to, true);
            if !locks.acquire_within(gone, SHRINK_PATIENCE) {
                self.base.show_size(from);
                return Err(ResizeError::Busy);
            }
            locks.release(&gone);
        }
        self.base.set_size(to);
        Ok(())
    }

    /// Has each volume below kept for it as far as it reaches.
    fn retake(&self, size_bytes: u64) -> Result<(), ResizeError> {
        let range = taken(&self.map, size_bytes);
        for leg in &self.legs {
            leg.part.retake(range).map_err(ResizeError::Taken)?;
        }
        Ok(())
    }
}

/// What of each volume below one of so many bytes takes.
fn taken(map: &Map, size_bytes: u64) -> Range {
    match map {
        Map::Slice { .. } => map.on_leg(
            0,
            Range {
                offset: 0,
                len: size_bytes,
            },
        ),
        _ => WHOLE,
    }
}

impl Volume for Composite {
    #[inline]
    fn base(&self) -> &Base {
        &self.base
    }

    #[inline]
    fn lend(&self, offset: u64, len: u32) -> Option<Loan> {
        let run = self.run_in_memory(offset, len.into())?;
        let _held = self.let_in(offset, len.into(), false)?;
        let loan = self.leg(run.leg).lend(run.offset, len)?;
        self.base.counters.count_read(len);
        Some(loan)
    }

    #[inline]
    fn borrow(&self, offset: u64, len: u32) -> Option<Loan> {
        self.base.check_write(offset, len.into()).ok()?;
        // What commits a loan cannot wait for an I/O that has the range for longer than a step.
        if self.base.takes_time {
            return None;
        }
        let run = self.run_in_memory(offset, len.into())?;
        self.leg(run.leg).borrow(run.offset, len)
    }

    fn commit(&self, loan: &mut Loan, offset: u64) -> Result<(), Error> {
        let len = loan.len();
        let mut commit = || {
            self.base.check_write(offset, len.into())?;
            let run = self.map.run(offset);
            let _held = self.let_in(offset, len.into(), true).ok_or(Error::Busy)?;
            self.leg(run.leg).commit(loan, run.offset)
        };
        let result = commit();
        self.base.counters.count_write(len, &result);
        result
    }

    #[inline]
    fn write_now(&self, offset: u64, bytes: &[u8]) -> Option<Result<(), Error>> {
        let len = bytes.len() as u32;
        self.base.check_write(offset, len.into()).ok()?;
        let run = self.run_in_memory(offset, len.into())?;
        let _held = self.let_in(offset, len.into(), true)?;
        let result = self.leg(run.leg).write_now(run.offset, bytes)?;
        self.base.counters.count_write(len, &result);
        Some(result)
    }

    #[inline]
    fn start(&self, io: Io, files: &mut dyn FileIo, token: Token) -> Progress {
        if let Err(error) = self.base.check(&io) {
            return self.base.finish(&io, Err(error));
        }
        let mut task = CompositeTask::new(io, self.bits);
        if let (Some(locks), Some(claim)) = (&self.locks, self.claim(&io)) {
            match locks.acquire(claim, || Caller::Ticket(files.ticket(token))) {
                Ok(()) => task.holds = true,
                Err(place) => {
                    task.place = Some(place);
                    return Box::new(task).into();
                }
            }
        }
        match self.advance(&mut task, files, token) {
            Some(result) => self.finish(&task, result),
            None => Box::new(task).into(),
        }
    }

    fn resume(
        &self,
        task: Task,
        result: io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        let mut task = task.into_composite();
        let whole = self.bits.whole(token);
        let ended = match task.place {
            Some(_) => self.called(&mut task, &result, files, whole),
            None => {
                let leg = self.bits.leg(token);
                let at = task.running_on(leg).expect("it was begun there");
                let RunningPiece { piece, task: below } = task.running.swap_remove(at);
                match below {
                    Some(below) => {
                        let progress = self.leg(leg).resume(below, result, files, token);
                        let token = self.bits.on_leg(whole, leg);
                        self.note(&mut task, piece, progress, files, token);
                    }
                    None => self.begin(&mut task, piece, files, whole),
                }
                self.advance(&mut task, files, whole)
            }
        };
        match ended {
            Some(result) => self.finish(&task, result),
            None => task.into(),
        }
    }

    fn resize(&self, size_bytes: u64, allow_shrink: bool) -> Result<(), ResizeError> {
        let _one = self
            .resizing
            .lock()
            .expect("nothing panics under this lock");
        let (from, has_bytes) = (self.size_bytes(), self.capacity());
        let to = match size_bytes {
            0 => has_bytes.max(from),
            _ => size_bytes,
        };
        resize::check(&self.base, from, to, allow_shrink)?;
        if to == from {
            return Ok(());
        }
        if matches!(self.map, Map::Concat { .. }) {
            return Err(ResizeError::Fixed(self.info().kind));
        }
        if to > has_bytes {
            return Err(ResizeError::Below {
                size_bytes: to,
                has_bytes,
            });
        }
        if to < from {
            self.shrink(from, to)?;
            return self.retake(to);
        }
        self.retake(to)?;
        self.base.set_size(to);
        Ok(())
    }

    fn extents(
        &self,
        offset: u64,
        len: u64,
        max: usize,
        out: &mut Vec<Extent>,
    ) -> Result<(), Error> {
        if !self.base.holds(offset, len) {
            return Err(Error::OutOfRange);
        }
        let (mut at, end) = (offset, offset + len);
        let first = out.len();
        // What is known of each volume below, as far as that goes.
        let mut known: Vec<Option<Extent>> = vec![None; self.legs.len()];
        while at < end {
            let (allocated, to) = self.alike(at, end, |leg, rest| {
                let found = known[leg].filter(|found| rest.offset < found.offset + found.len);
                let found = match found {
                    Some(found) => found,
                    None => {
                        let mut one = Vec::new();
                        self.leg(leg).extents(rest.offset, rest.len, 1, &mut one)?;
                        *known[leg].insert(one[0])
                    }
                };
                Ok::<_, Error>((found.allocated, found.offset + found.len))
            })?;
            let len = to - at;
            let is_full = out.len() - first == max;
            match out[first..].last_mut() {
                Some(last) if last.allocated == allocated => last.len += len,
                _ if is_full => break,
                _ => out.push(Extent {
                    offset: at,
                    len,
                    allocated,
                }),
            }
            at = to;
        }
        Ok(())
    }

    /// A slice takes what is allocated in its range, others what theirs take.
    fn space(&self) -> Option<Space> {
        let mut below = self.legs.iter().map(|leg| leg.part.volume().space());
        let first = below.next()??;
        let all = below.try_fold(first, |sum, space| Some(sum.with(space?)))?;
        let used_bytes = match self.map {
            Map::Slice { .. } => self.allocated_bytes()?,
            _ => all.used_bytes,
        };
        Some(Space { used_bytes, ..all })
    }

    fn losses(&self) -> u64 {
        (0..self.legs.len()).map(|leg| self.leg(leg).losses()).sum()
    }

    fn is_locked(&self) -> bool {
        (0..self.legs.len()).any(|leg| self.leg(leg).is_locked())
    }

    fn is_blank(&self, range: Range) -> bool {
        (0..self.legs.len()).all(|leg| {
            let there = self.map.on_leg(leg, range);
            self.leg(leg).is_blank(there)
        })
    }

    fn forget_loss(&self) {
        (0..self.legs.len()).for_each(|leg| self.leg(leg).forget_loss());
    }

    fn unreadable(&self, offset: u64, len: u64, max: usize) -> Vec<Range> {
        // Two that are apart on a volume below are apart here, so `max` of each are enough.
        let marks = (0..self.legs.len()).map(|leg| {
            let there = self.map.on_leg(leg, Range { offset, len });
            self.leg(leg).unreadable(there.offset, there.len, max)
        });
        let marks: Vec<Vec<Range>> = marks.collect();
        let (mut at, end) = (offset, offset + len);
        let mut all: Vec<Range> = Vec::new();
        while at < end {
            let Ok((is_marked, to)) = self.alike(at, end, |leg, rest| {
                let marks = &marks[leg];
                let ended = marks.partition_point(|mark| mark.offset + mark.len <= rest.offset);
                Ok::<_, Infallible>(match marks.get(ended) {
                    Some(mark) if mark.offset <= rest.offset => (true, mark.offset + mark.len),
                    Some(mark) => (false, mark.offset),
                    None => (false, u64::MAX),
                })
            });
            let len = to - at;
            let is_full = all.len() == max;
            match all.last_mut() {
                _ if !is_marked => {}
                Some(last) if last.offset + last.len == at => last.len += len,
                _ if is_full => break,
                _ => all.push(Range { offset: at, len }),
            }
            at = to;
        }
        all
    }
}

impl Composite {
    /// What is so of the byte at `at`, and up to where it is of all at once. `look` says it of the
    /// first byte of a range of a volume below, and up to where there.
    fn alike<E>(
        &self,
        at: u64,
        end: u64,
        mut look: impl FnMut(usize, Range) -> Result<(bool, u64), E>,
    ) -> Result<(bool, u64), E> {
        let rest = Range {
            offset: at,
            len: end - at,
        };
        let rest = |leg| self.map.on_leg(leg, rest);
        let own = self.map.run(at).leg;
        let (is_so, _) = look(own, rest(own))?;
        let mut to = end;
        for leg in 0..self.legs.len() {
            let rest = rest(leg);
            if rest.len == 0 {
                continue;
            }
            let (is_so_there, until) = look(leg, rest)?;
            let differs = if is_so_there == is_so {
                until
            } else {
                rest.offset
            };
            if differs < rest.offset + rest.len {
                to = to.min(self.map.whole(leg, differs));
            }
        }
        Ok((is_so, to))
    }

    /// Bytes of it that something was written to.
    fn allocated_bytes(&self) -> Option<u64> {
        let (mut at, end) = (0, self.size_bytes());
        let (mut bytes, mut found) = (0, Vec::new());
        while at < end {
            found.clear();
            let asked = self.extents(at, end - at, EXTENTS_AT_A_TIME, &mut found);
            asked.ok()?;
            let allocated = found.iter().filter(|extent| extent.allocated);
            bytes += allocated.map(|extent| extent.len).sum::<u64>();
            at = found.last().map(|last| last.offset + last.len)?;
        }
        Some(bytes)
    }
}
