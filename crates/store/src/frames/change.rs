//! Writes: in place where no frame is pinned, else into other frames.

use std::sync::atomic::Ordering;

use faults::Fault;
use machine::work;
use mem::{BUF_BYTES_MAX, BufRange, Loan};

use super::word::{LOCKED, PRESENT, Patience, frame_of, pins_of};
use super::{
    BORROWED, FRAME_BYTES, FRAME_SHIFT, Frames, FramesRefused, IN_PLACE_FRAMES_MAX, IO_FRAMES_MAX,
    LentInner, NOTE_FLAGS, part_in, span,
};

/// Bytes that are made holes in one step.
const DISCARD_BYTES_MAX: u64 = BUF_BYTES_MAX as u64;
/// Names of holes are below this.
const HOLES: u32 = PRESENT as u32;

/// What is written.
#[derive(Clone, Copy)]
enum Source<'a> {
    Bytes(&'a [u8]),
    Range(BufRange),
    /// What is there, with these bits set.
    Or(BufRange),
    Zeros,
    /// Zeros for which whole frames are given back.
    Hole,
}

impl Source<'_> {
    /// Puts the bytes from `at` on into `dst`.
    #[inline]
    fn fill(self, dst: BufRange, at: u32) {
        match self {
            Source::Bytes(bytes) => {
                let at = at as usize;
                mem::copy_in(dst, &bytes[at..at + dst.len() as usize]);
            }
            Source::Range(range) => mem::copy(dst, range.slice(at, dst.len())),
            Source::Or(range) => mem::or(dst, range.slice(at, dst.len())),
            Source::Zeros | Source::Hole => mem::zero(dst),
        }
    }
}

/// One write: all of it happens, or nothing.
#[derive(Clone, Copy)]
struct Write<'a> {
    offset: u64,
    len: u32,
    source: Source<'a>,
    /// What must be there.
    expect: Option<BufRange>,
    /// Past the end as well: what will not be seen any more.
    behind: bool,
}

/// What a write does with a part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WritePlan {
    Stay,
    InPlace,
    Hole,
    /// Into a frame that was this hole's anyway.
    Fill(u32),
    /// Into a spare frame.
    Spare(u32),
}

/// Frames that are no longer used, as runs: given back when their write is
/// visible.
struct Freed<'a> {
    inner: &'a LentInner,
    first: u32,
    count: u32,
    /// Give their memory back to the system.
    discard: bool,
}

impl<'a> Freed<'a> {
    fn new(inner: &'a LentInner, discard: bool) -> Self {
        Freed {
            inner,
            first: 0,
            count: 0,
            discard,
        }
    }

    #[inline]
    fn push(&mut self, frame: u32) {
        if self.count > 0 && self.first + self.count == frame {
            self.count += 1;
            return;
        }
        self.flush();
        (self.first, self.count) = (frame, 1);
    }

    fn flush(&mut self) {
        if self.count == 0 {
            return;
        }
        if self.discard {
            self.inner.free.give_unused(self.first, self.count);
            self.inner.give_back(self.first, self.count);
        } else {
            self.inner.free.give(self.first, self.count);
        }
        self.count = 0;
    }
}

impl Drop for Freed<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}

impl Frames {
    /// Memory to receive a write of `len` bytes at `offset` into, with any
    /// content; no reader sees it before [`Frames::commit`]. `None` past the end,
    /// while there are no frames to spare, and for writes so small that they
    /// would be copied in any case: receive those into memory that is warmer.
    pub fn borrow(&self, offset: u64, len: u32) -> Option<Loan> {
        let inner = self.inner;
        let end = offset.checked_add(u64::from(len))?;
        if len <= FRAME_BYTES / 2 || len > BUF_BYTES_MAX || end > self.size_bytes() {
            return None;
        }
        let (first, last) = span(offset, len);
        let count = (last - first + 1) as i64;
        if !inner.spare.take_some(count) {
            return None;
        }
        let note = offset << NOTE_FLAGS | BORROWED;
        let mut loan = Loan::lent(inner.zeros.range(0, 0), self.inner, note);
        let mut index = first;
        while index <= last {
            let Some((frame, run)) = inner.take_run(index, last) else {
                // What the loan has already comes back with it.
                inner.spare.give((last - index + 1) as i64);
                return None;
            };
            let (from, _) = part_in(index, offset, len);
            let (at, to) = (
                offset.max((index as u64) << FRAME_SHIFT),
                (index + run as usize) as u64,
            );
            let bytes = end.min(to << FRAME_SHIFT) - at;
            loan.push(inner.at(frame, from, bytes as u32));
            index += run as usize;
        }
        Some(loan)
    }

    /// Puts the frames of a loan of [`Frames::borrow`] for `offset` in the
    /// place of those that are there, all in one step. The loan is empty then;
    /// on an error it is as before. Panics over any other loan.
    pub fn commit(&self, loan: &mut Loan, offset: u64) -> Result<(), FramesRefused> {
        assert!(
            loan.note() >> NOTE_FLAGS == offset,
            "a loan is committed where it was borrowed"
        );
        self.commit_at(loan, offset)
    }

    /// The same at any place that lies in a frame where the loan's does: for
    /// content that finds its place only when it is there. Panics over a loan
    /// that does not fit.
    pub fn commit_at(&self, loan: &mut Loan, offset: u64) -> Result<(), FramesRefused> {
        let inner = self.inner;
        assert!(
            inner.is_borrowed_near(loan, offset),
            "a loan is committed where it fits"
        );
        let len = loan.len();
        let (first, last) = span(offset, len);
        if !faults::is(Fault::CommitUnlocked) {
            inner.lock_all(first, last)?;
        }
        if offset + u64::from(len) > inner.size_bytes.load(Ordering::Relaxed) {
            inner.unlock_all(first, last);
            return Err(FramesRefused::OutOfRange);
        }
        let mut freed = Freed::new(inner, false);
        inner.each_frame(loan, offset, |index, what| {
            let (from, part) = part_in(index, offset, len);
            let frame = frame_of(what).expect("only frames are borrowed");
            if part == FRAME_BYTES || inner.complete(index, frame, from, part) {
                inner.put(index, what, 1, &mut freed);
            } else {
                inner.spare.give(1);
                freed.push(frame);
            }
        });
        inner.unlock_all(first, last);
        drop(freed);
        loan.end();
        Ok(())
    }

    /// Writes `bytes` at `offset`.
    #[inline]
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), FramesRefused> {
        let inner = self.inner;
        let len = u32::try_from(bytes.len()).map_err(|_| FramesRefused::OutOfRange)?;
        let end = offset.checked_add(u64::from(len));
        let end = end.ok_or(FramesRefused::OutOfRange)?;
        if len == 0 || end > inner.size_bytes.load(Ordering::Relaxed) {
            return self.write_whole(offset, len, Source::Bytes(bytes));
        }
        let (first, last) = span(offset, len);
        if first == last {
            let word = inner.word(first);
            let seen = word.load(Ordering::Relaxed);
            let is_alone = seen & !u64::from(u32::MAX) == 0;
            if let (true, Some(frame)) = (is_alone, frame_of(seen as u32)) {
                let locked = seen | LOCKED;
                let lock =
                    word.compare_exchange(seen, locked, Ordering::Acquire, Ordering::Relaxed);
                if lock.is_ok() {
                    // The size again: the thread that made it smaller has locked
                    // this word since, or will.
                    let holds = end <= inner.size_bytes.load(Ordering::Relaxed);
                    if holds {
                        let (from, _) = part_in(first, offset, len);
                        mem::copy_in(inner.at(frame, from, len), bytes);
                    }
                    // Locked and unpinned, the word is ours alone.
                    word.store(seen, Ordering::Release);
                    return if holds {
                        Ok(())
                    } else {
                        Err(FramesRefused::OutOfRange)
                    };
                }
            }
        }
        self.write_whole(offset, len, Source::Bytes(bytes))
    }

    /// Writes `src` at `offset`.
    pub fn write_from(&self, offset: u64, src: BufRange) -> Result<(), FramesRefused> {
        self.write_whole(offset, src.len(), Source::Range(src))
    }

    /// Writes `len` zeros at `offset`.
    pub fn zero(&self, offset: u64, len: u32) -> Result<(), FramesRefused> {
        self.write_whole(offset, len, Source::Zeros)
    }

    fn write_whole(&self, offset: u64, len: u32, source: Source<'_>) -> Result<(), FramesRefused> {
        if self.is_nothing(offset, len)? {
            return Ok(());
        }
        let (first, last) = span(offset, len);
        // Large ones are copied while no word is locked.
        if (last - first) as u64 >= IN_PLACE_FRAMES_MAX
            && let Some(mut loan) = self.borrow(offset, len)
        {
            let mut at = 0;
            for &piece in loan.pieces() {
                source.fill(piece, at);
                at += piece.len();
            }
            return self.commit(&mut loan, offset);
        }
        self.inner.write(Write {
            offset,
            len,
            source,
            expect: None,
            behind: false,
        })
    }

    /// Writes `data` at `offset` if `expect`, as long as that, is what is
    /// there: one step.
    pub fn compare_and_write(
        &self,
        offset: u64,
        expect: BufRange,
        data: BufRange,
    ) -> Result<(), FramesRefused> {
        assert!(
            expect.len() == data.len(),
            "compare and write of one length"
        );
        if self.is_nothing(offset, data.len())? {
            return Ok(());
        }
        self.inner.write(Write {
            offset,
            len: data.len(),
            source: Source::Range(data),
            expect: Some(expect),
            behind: false,
        })
    }

    /// Sets at `offset` those bits that are set in `data`: one step.
    pub fn or_from(&self, offset: u64, data: BufRange) -> Result<(), FramesRefused> {
        if self.is_nothing(offset, data.len())? {
            return Ok(());
        }
        self.inner.write(Write {
            offset,
            len: data.len(),
            source: Source::Or(data),
            expect: None,
            behind: false,
        })
    }

    /// Whether a write is of no bytes; an error if it is none.
    fn is_nothing(&self, offset: u64, len: u32) -> Result<bool, FramesRefused> {
        let end = offset.checked_add(u64::from(len));
        match end.is_some_and(|end| end <= self.size_bytes()) && len <= BUF_BYTES_MAX {
            true => Ok(len == 0),
            false => Err(FramesRefused::OutOfRange),
        }
    }

    /// Makes holes of a range, which reads as zeros then; whole frames are
    /// given back. In steps of [`BUF_BYTES_MAX`].
    pub fn discard(&self, offset: u64, len: u64) -> Result<(), FramesRefused> {
        let end = offset.checked_add(len);
        if end.is_none_or(|end| end > self.size_bytes()) {
            return Err(FramesRefused::OutOfRange);
        }
        self.make_holes(offset, len, false)
    }

    fn make_holes(&self, offset: u64, len: u64, behind: bool) -> Result<(), FramesRefused> {
        let (mut at, end) = (offset, offset + len);
        work::spend(len / u64::from(FRAME_BYTES));
        while at < end {
            let step_end = (at + 1).next_multiple_of(DISCARD_BYTES_MAX).min(end);
            self.inner.write(Write {
                offset: at,
                len: (step_end - at) as u32,
                source: Source::Hole,
                expect: None,
                behind,
            })?;
            at = step_end;
        }
        Ok(())
    }

    /// Changes the size, up to what was set aside: larger ones are refused
    /// with [`FramesRefused::OutOfRange`]. What lies behind a smaller one is gone;
    /// loans of it stay as they are. May take long, and is called by one
    /// thread at a time. Not for thin volumes.
    pub fn resize(&self, size_bytes: u64) -> Result<(), FramesRefused> {
        let inner = self.inner;
        assert!(!inner.is_thin, "a thin volume is not resized");
        let mut withdrawn = inner.withdrawn();
        let old_bytes = self.size_bytes();
        if size_bytes.div_ceil(u64::from(FRAME_BYTES)) > inner.parts_max() {
            return Err(FramesRefused::OutOfRange);
        }
        let (low, high) = (old_bytes.min(size_bytes), old_bytes.max(size_bytes));
        // Writers look at the size again under their locks, which we take
        // after we have changed it: nothing is written behind it any more.
        if size_bytes < old_bytes {
            inner.size_bytes.store(size_bytes, Ordering::Release);
        }
        let high = high.next_multiple_of(u64::from(FRAME_BYTES));
        let cleaned = self.make_holes(low, high - low, true);
        if size_bytes > old_bytes {
            cleaned?;
        }
        inner.withdraw(&mut withdrawn, size_bytes);
        inner.size_bytes.store(size_bytes, Ordering::Release);
        Ok(())
    }

    /// Lets go of all content that is not lent.
    pub(super) fn empty(&self) {
        let inner = self.inner;
        let size_bytes = inner.size_bytes.swap(0, Ordering::AcqRel);
        if inner.is_thin {
            return;
        }
        let end = size_bytes.next_multiple_of(u64::from(FRAME_BYTES));
        // No other thread changes anything any more, so that no lock is in the way.
        let emptied = self.make_holes(0, end, true);
        assert!(emptied.is_ok(), "whole frames are given up without a spare");
    }
}

impl LentInner {
    /// Free frames for parts from `index` on, up to `last`: their own, so that
    /// what lies together stays together, or any.
    #[inline]
    pub(super) fn take_run(&self, index: usize, last: usize) -> Option<(u32, u32)> {
        let left = (last - index + 1).min(64) as u32;
        let in_word = left.min(64 - (index % 64) as u32);
        // Parts of a thin volume lie far apart and have no frame of their own.
        let own = (!self.is_thin).then_some(index as u32);
        let mut patience = Patience::default();
        loop {
            let moves = self.free.moves();
            if let Some(own) = own.filter(|&own| self.free.take_these(own, in_word)) {
                return Some((own, in_word));
            }
            if let Some(run) = self.free.take_run(left) {
                return Some(run);
            }
            if !self.take_cold(own, moves, &mut patience) {
                return None;
            }
        }
    }

    /// A free frame, any.
    fn take_one(&self) -> Option<u32> {
        let mut patience = Patience::default();
        loop {
            let moves = self.free.moves();
            if let Some((frame, _)) = self.free.take_run(1) {
                return Some(frame);
            }
            if !self.take_cold(None, moves, &mut patience) {
                return None;
            }
        }
    }

    /// Makes a borrowed frame, of which `part` bytes from `from` were
    /// received, fit to replace what is there; or, where that is less work,
    /// copies these bytes to what is there, and says no.
    fn complete(&self, index: usize, frame: u32, from: u32, part: u32) -> bool {
        let seen = self.word(index).load(Ordering::Acquire);
        if let Some(old) = frame_of(seen as u32)
            && pins_of(seen) == 0
            && part <= FRAME_BYTES / 2
        {
            mem::copy(self.at(old, from, part), self.at(frame, from, part));
            return false;
        }
        self.fill_around(seen as u32, frame, from, part);
        true
    }

    /// Copies what is there around `part` bytes from `from` into `frame`.
    fn fill_around(&self, what: u32, frame: u32, from: u32, part: u32) {
        let end = from + part;
        for (at, len) in [(0, from), (end, FRAME_BYTES - end)] {
            if len > 0 {
                self.bring(what, frame, at, len);
            }
        }
    }

    /// Copies `len` bytes of what is there from `at` on into `frame`.
    fn bring(&self, what: u32, frame: u32, at: u32, len: u32) {
        match frame_of(what) {
            Some(old) => mem::copy(self.at(frame, at, len), self.at(old, at, len)),
            None => mem::zero(self.at(frame, at, len)),
        }
    }

    /// Puts `what` into a locked word. `counted`: spare frames that the caller
    /// has taken for it. A replaced frame that is pinned counts as spare until
    /// its last pin is gone.
    fn put(&self, index: usize, what: u32, counted: i64, freed: &mut Freed<'_>) {
        let old = self.replace(index, what);
        if counted > 0 {
            self.spare.give(counted);
        }
        let Some(frame) = frame_of(old as u32) else {
            return self.use_ready();
        };
        if frame_of(what).is_none() {
            self.add_ready(1);
        }
        let pins = pins_of(old);
        if pins > 0 && !faults::is(Fault::FreePinned) {
            // First the count: the last pin may go at any time from then on.
            self.spare.give(-1);
            if !self.retire(frame, pins) {
                return;
            }
            self.spare.give(1);
        }
        freed.push(frame);
    }

    /// One write under locks; waits for spare frames, but not for ever.
    fn write(&self, write: Write<'_>) -> Result<(), FramesRefused> {
        let (first, last) = span(write.offset, write.len);
        let mut patience = Patience::default();
        loop {
            self.lock_all(first, last)?;
            let mut freed = Freed::new(self, matches!(write.source, Source::Hole));
            let result = self.write_locked(&write, first, last, &mut freed);
            self.unlock_all(first, last);
            drop(freed);
            if result != Err(FramesRefused::Busy) || !patience.spin() {
                return result;
            }
        }
    }

    fn write_locked(
        &self,
        write: &Write<'_>,
        first: usize,
        last: usize,
        freed: &mut Freed<'_>,
    ) -> Result<(), FramesRefused> {
        let end = write.offset + u64::from(write.len);
        if !write.behind && end > self.size_bytes.load(Ordering::Relaxed) {
            return Err(FramesRefused::OutOfRange);
        }
        if let Some(expect) = write.expect {
            self.expect(write, expect, first, last)?;
        }
        let mut plans = [WritePlan::Stay; IO_FRAMES_MAX];
        let plans = &mut plans[..=last - first];
        for (i, plan) in plans.iter_mut().enumerate() {
            let (_, part) = part_in(first + i, write.offset, write.len);
            match self.plan(first + i, part, write.source) {
                Some(found) => *plan = found,
                None => {
                    self.drop_plans(plans);
                    return Err(FramesRefused::Busy);
                }
            }
        }
        for (i, plan) in plans.iter().enumerate() {
            self.carry_out(first + i, *plan, write, freed);
        }
        Ok(())
    }

    /// Compares what is there, which the caller has locked.
    fn expect(
        &self,
        write: &Write<'_>,
        expect: BufRange,
        first: usize,
        last: usize,
    ) -> Result<(), FramesRefused> {
        let mut at = 0;
        for index in first..=last {
            let (from, part) = part_in(index, write.offset, write.len);
            let what = self.word(index).load(Ordering::Acquire) as u32;
            let there = self.piece(what, from, part);
            if let Some(differs) = mem::first_difference(expect.slice(at, part), there) {
                let offset = at + differs;
                return Err(FramesRefused::Miscompare { offset });
            }
            at += part;
        }
        Ok(())
    }

    /// What to do with a locked part; `None` if there is no frame for it.
    fn plan(&self, index: usize, part: u32, source: Source<'_>) -> Option<WritePlan> {
        let seen = self.word(index).load(Ordering::Acquire);
        let is_hole = seen & PRESENT == 0;
        match source {
            Source::Hole if is_hole => return Some(WritePlan::Stay),
            Source::Hole if part == FRAME_BYTES || faults::is(Fault::WideHole) => {
                return Some(WritePlan::Hole);
            }
            _ => {}
        }
        if is_hole {
            let (frame, _) = self.take_run(index, index)?;
            return Some(WritePlan::Fill(frame));
        }
        if pins_of(seen) == 0 || faults::is(Fault::NoPins) {
            return Some(WritePlan::InPlace);
        }
        if !self.spare.take(1, 0) {
            return None;
        }
        let Some(frame) = self.take_one() else {
            self.spare.give(1);
            return None;
        };
        Some(WritePlan::Spare(frame))
    }

    #[cold]
    fn drop_plans(&self, plans: &[WritePlan]) {
        for plan in plans {
            match *plan {
                WritePlan::Fill(frame) => self.free.give(frame, 1),
                WritePlan::Spare(frame) => {
                    self.spare.give(1);
                    self.free.give(frame, 1);
                }
                WritePlan::Stay | WritePlan::InPlace | WritePlan::Hole => {}
            }
        }
    }

    fn carry_out(&self, index: usize, plan: WritePlan, write: &Write<'_>, freed: &mut Freed<'_>) {
        let (from, part) = part_in(index, write.offset, write.len);
        let start = (index as u64) << FRAME_SHIFT;
        let at = (start + u64::from(from) - write.offset) as u32;
        let what = self.word(index).load(Ordering::Acquire) as u32;
        let (frame, counted) = match plan {
            WritePlan::Stay => return,
            WritePlan::Hole => {
                // Never written is a name of its own, 0.
                let name = self.holes.fetch_add(1, Ordering::Relaxed) % (HOLES - 1) + 1;
                return self.put(index, name, 0, freed);
            }
            WritePlan::InPlace => {
                let frame = frame_of(what).expect("only frames are written in place");
                return write.source.fill(self.at(frame, from, part), at);
            }
            WritePlan::Fill(frame) => (frame, 0),
            WritePlan::Spare(frame) => (frame, 1),
        };
        self.fill_around(what, frame, from, part);
        if matches!(write.source, Source::Or(_)) {
            self.bring(what, frame, from, part);
        }
        write.source.fill(self.at(frame, from, part), at);
        self.put(index, PRESENT as u32 | frame, counted, freed);
    }

    /// Whether a loan is of [`Frames::borrow`] here, for a place that lies in its frame
    /// where `offset` does.
    fn is_borrowed_near(&self, loan: &Loan, offset: u64) -> bool {
        let apart = (loan.note() >> NOTE_FLAGS) ^ offset;
        loan.is_of(self) && loan.note() & BORROWED != 0 && apart & u64::from(FRAME_BYTES - 1) == 0
    }

    /// A loan of [`Frames::borrow`] was dropped: its frames are free.
    #[cold]
    pub(super) fn return_frames(&self, loan: &Loan, offset: u64) {
        let mut freed = Freed::new(self, false);
        self.each_frame(loan, offset, |_, what| {
            self.spare.give(1);
            freed.push(frame_of(what).expect("only frames are borrowed"));
        });
    }

    /// Sets aside as many free frames as the size leaves without a part, or
    /// gives some of those back.
    fn withdraw(&self, withdrawn: &mut Vec<(u32, u32)>, size_bytes: u64) {
        let parts = size_bytes.div_ceil(u64::from(FRAME_BYTES));
        let wanted = self.parts_max() - parts;
        let mut have: u64 = withdrawn.iter().map(|&(_, n)| u64::from(n)).sum();
        while have > wanted {
            let (first, n) = withdrawn.pop().expect("there are some");
            let back = (have - wanted).min(u64::from(n)) as u32;
            if back < n {
                withdrawn.push((first + back, n - back));
            }
            self.free.give_cold(first, back);
            have -= u64::from(back);
        }
        while have < wanted {
            let n = (wanted - have).min(64) as u32;
            let cold = self.free.take_cold(parts as u32, n);
            let ready = || {
                self.free
                    .take_run(n)
                    .inspect(|&(_, n)| self.add_ready(-i64::from(n)))
            };
            let Some((first, n)) = cold.or_else(ready) else {
                // They are on their way; the next change will find them.
                return;
            };
            withdrawn.push((first, n));
            have += u64::from(n);
        }
    }
}
