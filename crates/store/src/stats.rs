//! Counters of a volume, by thread (see [`crate::stripes`]).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use machine::work;

use crate::stripes::{Here, Stripes};
use crate::{Error, Io, counters};

/// I/Os that a volume has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Reads that succeeded.
    pub reads: u64,
    /// Bytes of those.
    pub read_bytes: u64,
    /// Writes that succeeded.
    pub writes: u64,
    /// Bytes of those.
    pub write_bytes: u64,
    /// Of those, bytes that were not written but are shared with another volume, or with another
    /// range: a copy by reference.
    pub shared_bytes: u64,
    /// Flushes that succeeded.
    pub flushes: u64,
    /// Ranges made zero.
    pub zeroes: u64,
    /// Ranges deallocated.
    pub deallocates: u64,
    /// Compares that succeeded, those of compare-and-writes included (each of
    /// which is a write, too).
    pub compares: u64,
    /// Bytes of those.
    pub compare_bytes: u64,
    /// Ranges verified.
    pub verifies: u64,
    /// Bytes of those.
    pub verify_bytes: u64,
    /// Ranges marked as unreadable.
    pub marks: u64,
    /// I/Os that failed.
    pub errors: ErrorStats,
}

/// Failed I/Os by kind, in the order of [`Error`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorStats {
    /// [`Error::OutOfRange`].
    pub out_of_range: u64,
    /// [`Error::ReadOnly`].
    pub read_only: u64,
    /// [`Error::OutOfSpace`].
    pub out_of_space: u64,
    /// [`Error::ReadFailed`] and [`Error::EndsEarly`].
    pub read_failed: u64,
    /// [`Error::WriteFailed`].
    pub write_failed: u64,
    /// [`Error::FlushFailed`].
    pub flush_failed: u64,
    /// [`Error::Miscompare`].
    pub miscompare: u64,
    /// [`Error::Unreadable`].
    pub unreadable: u64,
    /// [`Error::ChecksumMismatch`].
    pub checksum_mismatch: u64,
    /// [`Error::Locked`].
    pub locked: u64,
    /// [`Error::Busy`].
    pub busy: u64,
}

impl ErrorStats {
    /// All of them together.
    pub fn total(&self) -> u64 {
        self.out_of_range
            + self.read_only
            + self.out_of_space
            + self.read_failed
            + self.write_failed
            + self.flush_failed
            + self.miscompare
            + self.unreadable
            + self.checksum_mismatch
            + self.locked
            + self.busy
    }
}

const READ: usize = 0;
const WRITE: usize = 1;
const FLUSH: usize = 2;
const ZERO: usize = 3;
const DEALLOCATE: usize = 4;
const READ_BYTES: usize = 5;
const WRITE_BYTES: usize = 6;
const COMPARE: usize = 7;
const COMPARE_BYTES: usize = 8;
const VERIFY: usize = 9;
const VERIFY_BYTES: usize = 10;
const MARK: usize = 11;
const SHARED_BYTES: usize = 12;
const ERRORS: usize = 13;
const CELLS: usize = ERRORS + 11;

/// The counters of one thread.
#[derive(Default)]
struct Cells([AtomicU64; CELLS]);

impl Here<'_, Cells> {
    #[inline]
    fn count_read(&self, len: u32) {
        self.one(READ);
        self.more(READ_BYTES, u64::from(len));
    }

    #[inline]
    fn count_write(&self, len: u32) {
        self.one(WRITE);
        self.more(WRITE_BYTES, u64::from(len));
    }

    #[inline]
    fn one(&self, cell: usize) {
        self.more(cell, 1);
    }

    #[inline]
    fn more(&self, cell: usize, n: u64) {
        self.add(|cells| &cells.0[cell], n);
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Counters {
    cells: Stripes<Cells>,
    /// Its I/Os are done, and counted for the thread, on other volumes.
    is_over_others: bool,
}

impl Counters {
    /// Those of a volume that is made of others.
    pub(crate) fn of_volume_over_others() -> Counters {
        Counters {
            is_over_others: true,
            ..Counters::default()
        }
    }

    /// Counts one for the thread.
    #[inline]
    fn count_here(&self, bytes: u32) {
        if !self.is_over_others {
            counters::add(bytes);
        }
    }

    /// Counts one finished I/O.
    #[inline]
    pub(crate) fn count(&self, io: &Io, result: &Result<(), Error>) {
        if let Err(error) = result {
            return self.count_error(error);
        }
        let here = self.cells.here();
        match io {
            Io::Read { buf, .. }
            | Io::Write { buf, .. }
            | Io::OrWrite { buf, .. }
            | Io::CompareAndWrite { write: buf, .. } => self.count_here(buf.len()),
            Io::Flush | Io::Zero { .. } | Io::Deallocate { .. } => self.count_here(0),
            Io::Compare { .. } | Io::Verify { .. } | Io::MarkUnreadable { .. } => {}
        }
        match io {
            Io::Read { buf, .. } => here.count_read(buf.len()),
            Io::Write { buf, .. } | Io::OrWrite { buf, .. } => here.count_write(buf.len()),
            Io::Flush => here.one(FLUSH),
            Io::Zero { .. } => here.one(ZERO),
            Io::Deallocate { .. } => here.one(DEALLOCATE),
            Io::Compare { buf, .. } => {
                here.one(COMPARE);
                here.more(COMPARE_BYTES, u64::from(buf.len()));
            }
            Io::CompareAndWrite { write, .. } => {
                here.one(COMPARE);
                here.more(COMPARE_BYTES, u64::from(write.len()));
                here.count_write(write.len());
            }
            Io::Verify { len, .. } => {
                here.one(VERIFY);
                here.more(VERIFY_BYTES, *len);
            }
            Io::MarkUnreadable { .. } => here.one(MARK),
        }
    }

    /// Counts a read that was lent.
    #[inline]
    pub(crate) fn count_read(&self, len: u32) {
        self.count_here(len);
        self.cells.here().count_read(len);
    }

    /// Counts a write that was received into memory of the volume.
    #[inline]
    pub(crate) fn count_write(&self, len: u32, result: &Result<(), Error>) {
        match result {
            Ok(()) => {
                self.count_here(len);
                self.cells.here().count_write(len);
            }
            Err(error) => self.count_error(error),
        }
    }

    /// Counts a write of which a part was not written but is shared.
    pub(crate) fn count_share(&self, len: u64, shared: u64) {
        let here = self.cells.here();
        here.one(WRITE);
        here.more(WRITE_BYTES, len);
        here.more(SHARED_BYTES, shared);
    }

    #[cold]
    pub(crate) fn count_error(&self, error: &Error) {
        let kind = match error {
            Error::OutOfRange => 0,
            Error::ReadOnly => 1,
            Error::OutOfSpace(_) => 2,
            Error::ReadFailed(_) | Error::EndsEarly => 3,
            Error::WriteFailed(_) => 4,
            Error::FlushFailed(_) => 5,
            Error::Miscompare { .. } => 6,
            Error::Unreadable => 7,
            Error::ChecksumMismatch => 8,
            Error::Locked => 9,
            Error::Busy => 10,
        };
        self.cells.here().one(ERRORS + kind);
    }

    pub(crate) fn stats(&self) -> Stats {
        work::spend_bytes(size_of::<Counters>() as u64);
        let mut sums = [0u64; CELLS];
        for cells in self.cells.iter() {
            work::spend_bytes(size_of::<Cells>() as u64);
            for (sum, cell) in sums.iter_mut().zip(&cells.0) {
                *sum = sum.wrapping_add(cell.load(Relaxed));
            }
        }
        Stats {
            reads: sums[READ],
            read_bytes: sums[READ_BYTES],
            writes: sums[WRITE],
            write_bytes: sums[WRITE_BYTES],
            shared_bytes: sums[SHARED_BYTES],
            flushes: sums[FLUSH],
            zeroes: sums[ZERO],
            deallocates: sums[DEALLOCATE],
            compares: sums[COMPARE],
            compare_bytes: sums[COMPARE_BYTES],
            verifies: sums[VERIFY],
            verify_bytes: sums[VERIFY_BYTES],
            marks: sums[MARK],
            errors: ErrorStats {
                out_of_range: sums[ERRORS],
                read_only: sums[ERRORS + 1],
                out_of_space: sums[ERRORS + 2],
                read_failed: sums[ERRORS + 3],
                write_failed: sums[ERRORS + 4],
                flush_failed: sums[ERRORS + 5],
                miscompare: sums[ERRORS + 6],
                unreadable: sums[ERRORS + 7],
                checksum_mismatch: sums[ERRORS + 8],
                locked: sums[ERRORS + 9],
                busy: sums[ERRORS + 10],
            },
        }
    }
}
