//! Memory lent for one I/O.

use crate::region::BufRange;
use std::cell::RefCell;
use std::fmt;

/// Pieces of a loan at most: [`crate::BUF_BYTES_MAX`] from anywhere inside a
/// frame of 16 KiB.
pub const LOAN_PIECES_MAX: usize = 129;
/// Bytes of a loan that are fetched before they are needed: of more the
/// processor finds out by itself that it is to go on.
const PREFETCH_BYTES_MAX: u32 = 4096;
/// What is fetched at a time.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;
/// Emptied lists that a thread keeps for its next loans of several pieces.
const SPARE_LISTS_MAX: usize = 4096;

thread_local! {
    static SPARE_LISTS: RefCell<Vec<Vec<BufRange>>> = const { RefCell::new(Vec::new()) };
}

/// What has lent memory, and takes it back when a loan is over.
pub trait Lender: Sync {
    /// The loan is over: neither the program nor the kernel touches its pieces any more.
    fn take_back(&self, loan: &Loan);
}

/// Memory lent for one I/O: read it or fill it, as its lender says, and drop it
/// when neither the program nor the kernel will touch it any more.
#[must_use = "memory is lent only as long as the loan lives"]
pub struct Loan {
    pieces: Pieces,
    lender: Option<&'static dyn Lender>,
    /// The lender's own note on it.
    note: u64,
    len: u32,
}

/// Nearly always one piece, which then needs no list.
enum Pieces {
    One(BufRange),
    Many(Vec<BufRange>),
}

impl Loan {
    /// Memory that stays what it is whatever happens: it has no lender.
    #[inline]
    pub fn of(range: BufRange) -> Loan {
        Loan {
            len: range.len(),
            pieces: Pieces::One(range),
            lender: None,
            note: 0,
        }
    }

    /// The first piece of what `lender` lends, which may be empty; those that are
    /// pushed are lent too. `note` is for the lender alone.
    #[inline]
    pub fn lent(piece: BufRange, lender: &'static dyn Lender, note: u64) -> Loan {
        Loan {
            len: piece.len(),
            pieces: Pieces::One(piece),
            lender: Some(lender),
            note,
        }
    }

    /// What [`Loan::lent`] and [`Loan::add_note`] have noted.
    #[inline]
    pub fn note(&self) -> u64 {
        self.note
    }

    /// Sets bits of the note.
    #[inline]
    pub fn add_note(&mut self, bits: u64) {
        self.note |= bits;
    }

    /// Whether `lender` has lent it.
    #[inline]
    pub fn is_of(&self, lender: &dyn Lender) -> bool {
        self.lender
            .is_some_and(|own| std::ptr::addr_eq(own, lender))
    }

    /// The lender has what was lent: the loan is empty and has no lender.
    pub fn end(&mut self) {
        self.lender = None;
        let nothing = self.pieces()[0].slice(0, 0);
        if let Pieces::Many(list) = std::mem::replace(&mut self.pieces, Pieces::One(nothing)) {
            keep_list(list);
        }
        self.len = 0;
    }

    /// Where the bytes lie, in order; neighbours are one piece.
    #[inline]
    pub fn pieces(&self) -> &[BufRange] {
        match &self.pieces {
            Pieces::One(piece) => std::slice::from_ref(piece),
            Pieces::Many(pieces) => pieces,
        }
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Has the processor fetch the first bytes, which are to be sent soon: until
    /// then it works on other commands of the same batch. Half of them now, the
    /// rest when they are put into a batch ([`BufRange::prefetch_rest`]): more at
    /// a time would be waited for.
    #[inline]
    pub fn prefetch(&self) {
        let first = self.pieces()[0];
        fetch(first, 0, PREFETCH_BYTES_MAX / 2);
    }

    /// Whether it holds no byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where `len` bytes from `offset` lie, in order. Panics past the end.
    #[inline]
    pub fn parts(&self, offset: u32, len: u32) -> Parts<'_> {
        let end = u64::from(offset) + u64::from(len);
        assert!(end <= u64::from(self.len), "part past the end of a loan");
        Parts {
            pieces: self.pieces(),
            skip: offset,
            left: len,
        }
    }

    /// Appends a piece; one that follows the last in memory becomes part of it.
    #[inline]
    pub fn push(&mut self, piece: BufRange) {
        let was_empty = self.len == 0;
        self.len += piece.len();
        match &mut self.pieces {
            Pieces::One(nothing) if was_empty => *nothing = piece,
            Pieces::One(last) => match last.joined(piece) {
                Some(joined) => *last = joined,
                None => self.spill(piece),
            },
            Pieces::Many(list) => {
                let last = list.last_mut().expect("a list of pieces has some");
                match last.joined(piece) {
                    Some(joined) => *last = joined,
                    None => list.push(piece),
                }
            }
        }
    }

    #[cold]
    fn spill(&mut self, piece: BufRange) {
        let mut list = SPARE_LISTS.with_borrow_mut(Vec::pop).unwrap_or_default();
        list.extend_from_slice(self.pieces());
        list.push(piece);
        self.pieces = Pieces::Many(list);
    }
}

impl BufRange {
    /// Has the processor fetch what [`Loan`]s have not of their first bytes yet.
    #[inline]
    pub fn prefetch_rest(self) {
        fetch(self, PREFETCH_BYTES_MAX / 2, PREFETCH_BYTES_MAX);
    }
}

/// Has the processor fetch the bytes in `from..to`, as far as there are any.
#[inline]
fn fetch(range: BufRange, from: u32, to: u32) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // Resolved once: it is a look into a table.
        let begin = range.as_ptr();
        for at in (from..to.min(range.len())).step_by(LINE_BYTES) {
            let line = begin.wrapping_add(at as usize);
            // SAFETY: a prefetch has no effect that could be seen, and faults nowhere.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast()) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (range, from, to);
}

impl Drop for Loan {
    #[inline]
    fn drop(&mut self) {
        if let Some(lender) = self.lender {
            lender.take_back(self);
        }
        if let Pieces::Many(list) = &mut self.pieces {
            keep_list(std::mem::take(list));
        }
    }
}

#[cold]
fn keep_list(mut list: Vec<BufRange>) {
    list.clear();
    // A thread that is being torn down keeps nothing.
    let _ = SPARE_LISTS.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if spare.len() < SPARE_LISTS_MAX {
            spare.push(list);
        }
    });
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Loan({} bytes in {} pieces)",
            self.len,
            self.pieces().len()
        )
    }
}

/// The pieces of a part of a [`Loan`]; none of them empty.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    pieces: &'a [BufRange],
    skip: u32,
    left: u32,
}

impl Iterator for Parts<'_> {
    type Item = BufRange;

    #[inline]
    fn next(&mut self) -> Option<BufRange> {
        while self.left > 0 {
            let (first, rest) = self.pieces.split_first().expect("checked at the start");
            if self.skip < first.len() {
                let len = self.left.min(first.len() - self.skip);
                let part = first.slice(self.skip, len);
                (self.pieces, self.skip, self.left) = (rest, 0, self.left - len);
                return Some(part);
            }
            (self.pieces, self.skip) = (rest, self.skip - first.len());
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Region;

    #[test]
    fn neighbours_are_one_piece_and_parts_are_cut_at_any_byte() {
        let region = Region::anonymous(4096).unwrap();
        let mut loan = Loan::of(region.range(0, 10));
        loan.push(region.range(10, 10));
        assert_eq!(loan.pieces(), [region.range(0, 20)]);
        loan.push(region.range(100, 5));
        loan.push(region.range(105, 5));
        loan.push(region.range(50, 10));
        let pieces = [
            region.range(0, 20),
            region.range(100, 10),
            region.range(50, 10),
        ];
        assert_eq!((loan.pieces(), loan.len()), (&pieces[..], 40));
        let at = |i: u32| {
            pieces
                .iter()
                .flat_map(|p| (0..p.len()).map(|j| p.offset() + u64::from(j)))
                .nth(i as usize)
        };
        for offset in 0..=40 {
            for len in 0..=40 - offset {
                let parts: Vec<_> = loan.parts(offset, len).collect();
                assert!(parts.iter().all(|part| !part.is_empty()));
                let bytes = parts
                    .iter()
                    .flat_map(|p| (0..p.len()).map(|j| p.offset() + u64::from(j)));
                assert!(bytes.map(Some).eq((offset..offset + len).map(at)));
            }
        }
    }

    #[test]
    fn lists_are_used_again() {
        let region = Region::anonymous(4096).unwrap();
        let two = || {
            let mut loan = Loan::of(region.range(0, 1));
            loan.push(region.range(2, 1));
            loan.pieces().as_ptr()
        };
        assert_eq!(two(), two());
    }

    #[test]
    #[should_panic(expected = "past the end of a loan")]
    fn a_part_past_the_end_panics() {
        let region = Region::anonymous(4096).unwrap();
        let _ = Loan::of(region.range(0, 10)).parts(5, 6);
    }
}
