//! An I/O of a checksummed volume: pieces that are each read and compared with their sums, or
//! whose sums are written before them.

use std::io;

use mem::{BufRange, Region};
use reactor::{FileIo, Token};
use rustix::io::Errno;

use super::file_work::FileWork;
use super::repair::Asking;
use super::table::{PAGE_BLOCKS, Room};
use crate::locks::{Claim, StripePlace};
use crate::{Error, Io, Parked, Task};

/// Bytes of a piece of a range that is zeroed or verified are the sums of so many pages at most.
const PIECE_PAGES: u64 = 16;

/// An I/O of a checksummed volume.
pub(super) struct ChecksummedTask {
    pub io: Io,
    block_bytes: u64,
    /// Bytes of it that are done, and bytes of the piece that it is at.
    pub done: u64,
    pub len: u64,
    pub step: SumStep,
    pub wait: Wait,
    /// What it holds for the piece: room for pages, its range, pages that are kept in memory.
    pub room: Option<Room>,
    pub held: Option<Claim>,
    pub pinned: std::ops::Range<u64>,
    /// Blocks of the piece that are checked, or have their new sums.
    pub blocks: u64,
    /// Its sums have changed in the file.
    pub has_entered: bool,
    /// Some of it may have changed what is below.
    pub has_changed: bool,
    /// What blocks are read to that are to be settled or verified.
    pub own: Option<Region>,
    /// What a scrub has found, which goes on behind what is wrong.
    pub scrub: Option<Box<Scrubbed>>,
    /// The legs of a mirror are asked for the block that it is at.
    pub asking: Option<Box<Asking>>,
    pub is_canceled: bool,
}

/// What a scrub has found in a chunk.
#[derive(Default)]
pub(super) struct Scrubbed {
    /// Blocks that have another checksum.
    pub wrong: Vec<u64>,
    /// Blocks that a leg of the mirror below had so, and has again from another one.
    pub repaired: u64,
    /// The leg of a mirror that is read by itself, a bit.
    pub leg: Option<u8>,
}

/// What it does next, or waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SumStep {
    /// Another piece.
    Piece,
    /// Room for the pages that it changes.
    Room,
    /// Its range.
    Range,
    /// The volume below reads the piece.
    Read,
    /// What was read is compared with its sums.
    Check,
    /// A leg of the mirror below reads a block that is wrong on another one.
    Ask,
    /// Legs of it get that block again.
    Repair,
    /// The blocks get the sums of what is to be written.
    Enter,
    /// The page of the next block is read from the file.
    Load { page: u64, then: After },
    /// The volume below flushes, so that a block can have another sum.
    Flush { epoch: u64 },
    /// The volume below reads a block that can have no other sum.
    Settle,
    /// The new sums come to the medium, with the sync of this number.
    Sync { number: u64 },
    /// The volume below writes the piece.
    Write,
    /// The volume below does what needs no sums; a flush has begun before this epoch.
    Pass { epoch: Option<u64> },
}

/// What goes on when a page is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Check,
    Ask,
    Enter,
}

/// What it waits for.
#[derive(Debug)]
pub(super) enum Wait {
    /// To be called.
    Ticket,
    Range(Box<StripePlace>),
    Below(Task),
    /// To begin this again below, which had no memory for it.
    Again(Io),
    File(FileWork),
}

impl ChecksummedTask {
    pub(super) fn new(io: Io, block_bytes: u32) -> ChecksummedTask {
        ChecksummedTask {
            io,
            block_bytes: block_bytes.into(),
            done: 0,
            len: 0,
            step: SumStep::Piece,
            wait: Wait::Ticket,
            room: None,
            held: None,
            pinned: 0..0,
            blocks: 0,
            has_entered: false,
            has_changed: false,
            own: None,
            scrub: None,
            asking: None,
            is_canceled: false,
        }
    }

    /// The first byte of the piece, on the volume.
    pub(super) fn offset(&self) -> u64 {
        self.io.extent().0 + self.done
    }

    /// The first block of the piece.
    pub(super) fn first_block(&self) -> u64 {
        self.offset() / self.block_bytes
    }

    /// The next block of the piece.
    pub(super) fn block(&self) -> u64 {
        self.first_block() + self.blocks
    }

    /// Blocks of the piece.
    pub(super) fn block_count(&self) -> u64 {
        self.len / self.block_bytes
    }

    /// Blocks from the next one on whose sums are in one page, and all of which are in the piece.
    pub(super) fn blocks_of_page(&self) -> u64 {
        let next = self.block();
        (self.block_count() - self.blocks).min(PAGE_BLOCKS - next % PAGE_BLOCKS)
    }

    /// Pages that have the sums of the piece.
    pub(super) fn page_count(&self) -> usize {
        let first = self.first_block();
        let last = first + self.block_count() - 1;
        (last / PAGE_BLOCKS - first / PAGE_BLOCKS + 1) as usize
    }

    /// Goes to the next piece; `false` if there is none.
    pub(super) fn next_piece(&mut self) -> io::Result<bool> {
        let rest = self.io.extent().1 - self.done;
        self.blocks = 0;
        self.has_entered = false;
        self.len = match self.io {
            Io::Zero { .. } | Io::Deallocate { .. } => {
                // Up to where a page ends.
                let first = self.first_block() % PAGE_BLOCKS;
                rest.min((PIECE_PAGES * PAGE_BLOCKS - first) * self.block_bytes)
            }
            Io::Verify { scratch, .. } => {
                let whole = u64::from(scratch.len()) / self.block_bytes * self.block_bytes;
                if whole == 0 && self.own.is_none() {
                    self.own = Some(Region::small_pages(self.block_bytes)?);
                }
                rest.min(whole.max(self.block_bytes))
            }
            _ => rest,
        };
        Ok(rest > 0)
    }

    /// Whether the piece is read first.
    pub(super) fn reads(&self) -> bool {
        self.io.needs_data()
    }

    /// Whether it changes the volume.
    pub(super) fn changes(&self) -> bool {
        !self.io.leaves_volume_unchanged()
    }

    /// Where what is read of the piece goes.
    pub(super) fn read_to(&self) -> BufRange {
        match self.io {
            Io::Read { buf, .. } => buf,
            Io::Compare { scratch, .. }
            | Io::CompareAndWrite { scratch, .. }
            | Io::OrWrite { scratch, .. } => scratch,
            Io::Verify { scratch, .. } => match &self.own {
                Some(own) => own.range(0, self.len as u32),
                None => scratch.slice(0, self.len as u32),
            },
            io => unreachable!("{io:?} reads nothing"),
        }
    }

    /// What is written; `None`: zeros.
    pub(super) fn written(&self) -> Option<BufRange> {
        match self.io {
            Io::Write { buf, .. } | Io::CompareAndWrite { write: buf, .. } => Some(buf),
            Io::OrWrite { scratch, .. } => Some(scratch),
            _ => None,
        }
    }

    /// What the volume below is asked to write for the piece.
    pub(super) fn write_io(&self) -> Io {
        let (offset, durable) = (self.offset(), self.io.durable());
        match (self.written(), self.io) {
            (Some(buf), _) => Io::Write {
                offset,
                buf,
                durable,
            },
            (None, io) => Io::Zero {
                offset,
                len: self.len,
                deallocate: !matches!(
                    io,
                    Io::Zero {
                        deallocate: false,
                        ..
                    }
                ),
                durable,
            },
        }
    }

    /// What it reports that was not begun.
    pub(super) fn canceled(&self) -> Error {
        match self.io.leaves_volume_unchanged() {
            true => Error::ReadFailed(Errno::CANCELED),
            false => Error::WriteFailed(Errno::CANCELED),
        }
    }

    /// What it reports where its sums could not be read, or written.
    pub(super) fn failed(&self, errno: Errno) -> Error {
        match (self.changes(), errno) {
            (false, _) => Error::ReadFailed(errno),
            (true, Errno::NOSPC | Errno::DQUOT) => Error::OutOfSpace(errno),
            (true, _) => Error::WriteFailed(errno),
        }
    }

    /// Whether it has not begun what would be left in its middle.
    pub(super) fn may_end(&self) -> bool {
        self.is_canceled && !self.has_changed
    }
}

impl Parked for ChecksummedTask {
    fn is_waiting(&self) -> bool {
        let waits = matches!(self.step, SumStep::Room | SumStep::Range);
        waits && self.done == 0
    }

    /// A change that has begun goes on with all of its pieces: half of it would stay.
    fn cancel(&mut self, files: &mut dyn FileIo, token: Token) {
        self.is_canceled = true;
        let is_all = self.done == 0 && self.len == self.io.extent().1;
        if (!self.has_changed || is_all)
            && let Wait::Below(below) = &mut self.wait
        {
            below.cancel(files, token);
        }
    }
}

impl std::fmt::Debug for ChecksummedTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("ChecksummedTask");
        shown.field("io", &self.io).field("step", &self.step);
        shown.field("wait", &self.wait).finish_non_exhaustive()
    }
}
