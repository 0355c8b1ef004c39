//! The content of a volume that is memory, in frames that change hands whole.
//!
//! A table says for each part of the volume which frame of one region holds
//! it, or that it is a hole, which reads as zeros. A reader pins the frames
//! and sends from them; no writer changes a pinned frame. So a write either
//! finds its frames unpinned and locks them for the time of one short copy, or
//! takes other frames, fills them unseen, and puts them into the table. What
//! was there before is free again when its last pin goes.
//!
//! Everything that is one I/O is one step to every other I/O: writers lock all
//! frames of a range in ascending order; readers pin them one by one and look
//! again whether all are still in the table, which shows that all were there
//! at one time.
//!
//! A word of the table holds all that there is to know of a part:
//!
//! ```text
//! 63       56        32        31        0
//! | locked | pins      | present | frame, or which hole |
//! ```
//!
//! Pins belong to the frame in the word. A writer that replaces a pinned frame
//! moves them to `retired`, where the last of them frees it.

mod change;
mod free;
mod owner;
mod quota;
mod reserve;
#[cfg(test)]
mod tests;
mod word;

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, OnceLock};

use faults::Fault;
use machine::work;

use mem::sync::{AtomicI32, AtomicI64, AtomicU32, AtomicU64};
use mem::{AtomicTable, BUF_BYTES_MAX, BufRange, Lender, Loan, Region};

use free::Free;
use quota::Quota;
use reserve::Reserve;
pub use reserve::touch_ahead;
use word::{PRESENT, frame_of};

/// Bytes of a frame.
pub const FRAME_BYTES: u32 = 1 << FRAME_SHIFT;
const FRAME_SHIFT: u32 = 14;
/// Frames that one I/O may touch: [`BUF_BYTES_MAX`] from anywhere in a frame.
const IO_FRAMES_MAX: usize = (BUF_BYTES_MAX / FRAME_BYTES) as usize + 1;
/// Writes that touch no more frames are copied into them where they are.
const IN_PLACE_FRAMES_MAX: u64 = 2;
/// What a loan of frames notes: the first byte on the volume, shifted by so many bits,
const NOTE_FLAGS: u32 = 2;
/// whether frames were lent to be filled, not to be read,
const BORROWED: u64 = 1;
/// and whether pins are counted.
const METERED: u64 = 2;
/// A reader that was overtaken by writers this often locks them out.
const SNAPSHOTS_MAX: u32 = 4;

const _: () = assert!(IO_FRAMES_MAX <= mem::LOAN_PIECES_MAX);

/// Why something was not done; nothing of it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramesRefused {
    /// Reaches past the end.
    OutOfRange,
    /// No spare frames, or a lock is held for longer than can be waited.
    Busy,
    /// There is other data.
    Miscompare {
        /// The first byte that differs, counted from the start of the data.
        offset: u32,
    },
}

/// The content of a volume that is memory. Every call but [`Frames::resize`]
/// and [`Frames::discard`] moves at most [`BUF_BYTES_MAX`] and is one step to
/// all others. May be used from any thread; loans stay on theirs.
pub struct Frames {
    inner: &'static LentInner,
}

/// What loans point to; never freed, but used again when the last of them is
/// over.
pub(crate) struct LentInner {
    data: Region,
    zeros: &'static Region,
    words: AtomicTable<AtomicU64>,
    /// There are fewer frames than parts; any part has any frame.
    is_thin: bool,
    /// By frame: pins of a frame that is no longer in the table. Below zero
    /// while a pin goes before the writer has counted those it found.
    retired: AtomicTable<AtomicI32>,
    free: Free,
    reserve: Reserve,
    /// Bytes of the volume now.
    size_bytes: AtomicU64,
    /// Frames that writes may have beyond one for each part of the volume.
    spare: Spare,
    /// Frames that loans may have pinned.
    pins: Quota,
    /// Names the next hole, so that no two of a part look the same.
    holes: AtomicU32,
    /// Frames that no part may take: those that a larger volume would have.
    withdrawn: Mutex<Vec<(u32, u32)>>,
    /// That was made after it.
    next: OnceLock<&'static LentInner>,
}

/// Touched by large writes and those to pinned frames only.
#[repr(align(128))]
struct Spare {
    left: AtomicI64,
    max: i64,
}

impl Spare {
    /// Takes `n` for a write that may as well use a buffer: half of all is left
    /// for those to pinned frames, more than loans can have pinned.
    fn take_some(&self, n: i64) -> bool {
        self.take(n, self.max / 2)
    }

    fn take(&self, n: i64, rest_min: i64) -> bool {
        let left = self.left.fetch_sub(n, Ordering::Relaxed) - n;
        if left < rest_min {
            self.left.fetch_add(n, Ordering::Relaxed);
        }
        left >= rest_min
    }

    fn give(&self, n: i64) {
        self.left.fetch_add(n, Ordering::Relaxed);
    }
}

/// Counts a look at `n` words that lie one behind the other.
#[inline]
pub(crate) fn spend_look(n: u64) {
    work::spend(1 + n / 64);
}

/// Frames `first..=last` of a range, which is not empty.
#[inline]
fn span(offset: u64, len: u32) -> (usize, usize) {
    let end = offset + u64::from(len) - 1;
    (
        (offset >> FRAME_SHIFT) as usize,
        (end >> FRAME_SHIFT) as usize,
    )
}

/// What a loan of a range counts for: the frames that it may have pinned.
#[inline]
fn pins_for(offset: u64, len: u32) -> Option<i64> {
    let end = offset.checked_add(u64::from(len))?;
    Some((end.div_ceil(u64::from(FRAME_BYTES)) - (offset >> FRAME_SHIFT)) as i64)
}

/// The bytes of a range that lie in frame `index`: where in the frame, how
/// many.
#[inline]
fn part_in(index: usize, offset: u64, len: u32) -> (u32, u32) {
    let start = (index as u64) << FRAME_SHIFT;
    let from = offset.max(start);
    let to = (offset + u64::from(len)).min(start + u64::from(FRAME_BYTES));
    ((from - start) as u32, (to - from) as u32)
}

impl Frames {
    /// `size_bytes` of zeros that take no memory, and may be resized up to
    /// `max_bytes`, for which address space is set aside.
    pub fn new(size_bytes: u64, max_bytes: u64) -> io::Result<Frames> {
        let inner = LentInner::take(size_bytes, max_bytes, None)?;
        Ok(Frames { inner })
    }

    /// A volume of `address_bytes` of zeros, parts for `content_bytes` of which
    /// may hold data at a time: the caller counts them, and makes holes of all
    /// that it has written before it drops the volume. Memory is taken close
    /// together however far apart the parts lie.
    pub fn thin(address_bytes: u64, content_bytes: u64) -> io::Result<Frames> {
        let inner = LentInner::take_thin(address_bytes, content_bytes)?;
        Ok(Frames { inner })
    }

    /// Bytes now.
    #[inline]
    pub fn size_bytes(&self) -> u64 {
        self.inner.size_bytes.load(Ordering::Acquire)
    }

    /// Lends `len` bytes from `offset` to be read: as they are at one moment,
    /// and as long as the loan lives. `None` past the end, where writers are in
    /// the way for longer than can be waited, and where so much is lent already
    /// that this is to be copied ([`Frames::read`]).
    #[inline]
    pub fn pin(&self, offset: u64, len: u32) -> Option<Loan> {
        if len == 0 {
            return self.pin_unmetered(offset, len);
        }
        let count = pins_for(offset, len)?;
        if !self.inner.pins.take(count) {
            return None;
        }
        match self.pin_unmetered(offset, len) {
            Some(mut loan) => {
                loan.add_note(METERED);
                loan.prefetch();
                Some(loan)
            }
            None => {
                self.inner.pins.give(count);
                None
            }
        }
    }

    /// The same for callers that let go at once.
    #[inline]
    fn pin_unmetered(&self, offset: u64, len: u32) -> Option<Loan> {
        let inner = self.inner;
        let end = offset.checked_add(u64::from(len))?;
        if end > inner.size_bytes.load(Ordering::Relaxed) || len == 0 {
            return self.pin_nothing(offset, len);
        }
        let (first, last) = span(offset, len);
        if first != last {
            return self.pin_many(offset, len);
        }
        let what = inner.pin(first).ok()?;
        let from = (offset & u64::from(FRAME_BYTES - 1)) as u32;
        let piece = inner.piece(what, from, len);
        Some(Loan::lent(piece, self.inner, offset << NOTE_FLAGS))
    }

    #[cold]
    fn pin_nothing(&self, offset: u64, len: u32) -> Option<Loan> {
        let nothing = len == 0 && offset <= self.size_bytes();
        nothing.then(|| Loan::of(self.inner.zeros.range(0, 0)))
    }

    fn pin_many(&self, offset: u64, len: u32) -> Option<Loan> {
        if len > BUF_BYTES_MAX {
            return None;
        }
        let inner = self.inner;
        let (first, last) = span(offset, len);
        let mut seen = [0; IO_FRAMES_MAX];
        let seen = &mut seen[..=last - first];
        for _ in 0..SNAPSHOTS_MAX {
            let loan = self.pin_each(offset, len, seen, LentInner::pin)?;
            if inner.is_snapshot(first, seen) {
                return Some(loan);
            }
        }
        // Writers were always quicker: lock them out for a moment.
        inner.lock_all(first, last).ok()?;
        let loan = self.pin_each(offset, len, seen, LentInner::pin_locked);
        inner.unlock_all(first, last);
        loan
    }

    #[inline]
    fn pin_each(
        &self,
        offset: u64,
        len: u32,
        seen: &mut [u32],
        pin: impl Fn(&LentInner, usize) -> Result<u32, FramesRefused>,
    ) -> Option<Loan> {
        let inner = self.inner;
        let (first, _) = span(offset, len);
        let nothing = inner.zeros.range(0, 0);
        let mut loan = Loan::lent(nothing, self.inner, offset << NOTE_FLAGS);
        for (index, seen) in (first..).zip(seen) {
            let what = pin(inner, index).ok()?;
            let (from, part) = part_in(index, offset, len);
            loan.push(inner.next_piece(what, from, part, &loan));
            *seen = what;
        }
        Some(loan)
    }

    /// What is at `offset`: whether it was written, and up to which byte that
    /// is so, `end` at most.
    pub fn extent(&self, offset: u64, end: u64) -> (bool, u64) {
        let words = self.inner.words.all();
        let is_present = |index: u64| words[index as usize].load(Ordering::Relaxed) & PRESENT != 0;
        let first = offset >> FRAME_SHIFT;
        let last = end.saturating_sub(1) >> FRAME_SHIFT;
        let present = is_present(first);
        let other = (first..=last).find(|&index| is_present(index) != present);
        spend_look(other.unwrap_or(last) - first);
        (present, other.map_or(end, |index| index << FRAME_SHIFT))
    }

    /// Copies `dst.len()` bytes from `offset`.
    pub fn read(&self, offset: u64, dst: BufRange) -> Result<(), FramesRefused> {
        let loan = self
            .pin_unmetered(offset, dst.len())
            .ok_or_else(|| self.why(offset, dst.len()))?;
        let mut at = 0;
        for &piece in loan.pieces() {
            mem::copy(dst.slice(at, piece.len()), piece);
            at += piece.len();
        }
        Ok(())
    }

    /// Succeeds if `data` is what there is at `offset`.
    pub fn compare(&self, offset: u64, data: BufRange) -> Result<(), FramesRefused> {
        let loan = self
            .pin_unmetered(offset, data.len())
            .ok_or_else(|| self.why(offset, data.len()))?;
        let mut at = 0;
        for &piece in loan.pieces() {
            if let Some(differs) = mem::first_difference(data.slice(at, piece.len()), piece) {
                let offset = at + differs;
                return Err(FramesRefused::Miscompare { offset });
            }
            at += piece.len();
        }
        Ok(())
    }

    /// Why a range could not be pinned.
    #[cold]
    fn why(&self, offset: u64, len: u32) -> FramesRefused {
        let end = offset.checked_add(u64::from(len));
        match end {
            Some(end) if end <= self.size_bytes() => FramesRefused::Busy,
            _ => FramesRefused::OutOfRange,
        }
    }
}

impl LentInner {
    /// Whether every word still says what it said when it was pinned: then all
    /// of that was there at one time. No thread can write a pinned frame or bring
    /// it back before its pin is gone, and no hole has the name of another.
    /// Acquire, as in [`LentInner::pin`]: the writer that put one of our frames into
    /// the table had locked and replaced all others of that write before, which
    /// we would see here.
    #[inline]
    fn is_snapshot(&self, first: usize, seen: &[u32]) -> bool {
        if faults::is(Fault::NoSnapshots) {
            return true;
        }
        let words = &self.words.all()[first..];
        let mut pairs = words.iter().zip(seen);
        pairs.all(|(word, &what)| word.load(Ordering::Acquire) as u32 == what)
    }

    /// The memory of `len` bytes from `from` of a part whose word says `what`.
    #[inline]
    fn piece(&self, what: u32, from: u32, len: u32) -> BufRange {
        match frame_of(what) {
            Some(frame) => self.at(frame, from, len),
            None => self.zeros.range(0, len),
        }
    }

    /// The same where it follows what is lent already: zeros follow zeros.
    #[inline]
    fn next_piece(&self, what: u32, from: u32, len: u32, loan: &Loan) -> BufRange {
        let last = loan.pieces().last().expect("a loan has a piece");
        if frame_of(what).is_none() && last.region() == self.zeros.id() {
            return self.zeros.range(last.offset() + u64::from(last.len()), len);
        }
        self.piece(what, from, len)
    }

    /// `len` bytes from `from` in a frame.
    #[inline]
    fn at(&self, frame: u32, from: u32, len: u32) -> BufRange {
        let start = u64::from(frame) << FRAME_SHIFT;
        self.data.range(start + u64::from(from), len)
    }

    /// Calls `each` with the parts that lie in frames of a loan, and what the
    /// word of such a frame says.
    #[inline]
    fn each_frame(&self, loan: &Loan, offset: u64, mut each: impl FnMut(usize, u32)) {
        let mut at = offset;
        for piece in loan.pieces() {
            let end = at + u64::from(piece.len());
            if piece.region() == self.data.id() {
                let (first, last) = span(at, piece.len());
                let frame = (piece.offset() >> FRAME_SHIFT) as u32;
                for index in first..=last {
                    let what = PRESENT as u32 | (frame + (index - first) as u32);
                    each(index, what);
                }
            }
            at = end;
        }
    }
}

impl Lender for LentInner {
    #[inline]
    fn take_back(&self, loan: &Loan) {
        let offset = loan.note() >> NOTE_FLAGS;
        if loan.note() & BORROWED != 0 {
            return self.return_frames(loan, offset);
        }
        if loan.note() & METERED != 0 {
            let count = pins_for(offset, loan.len()).expect("as when it was taken");
            self.pins.give(count);
        }
        self.each_frame(loan, offset, |index, what| self.unpin(index, what));
    }
}
