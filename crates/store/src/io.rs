//! One I/O: what is asked, and how it ended.

use mem::BufRange;
use rustix::io::Errno;

/// What is asked of a volume. Offsets and lengths are bytes, in whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// Fills `buf` from `offset`.
    Read {
        /// First byte on the volume.
        offset: u64,
        /// Where the data goes.
        buf: BufRange,
    },
    /// Stores `buf` at `offset`.
    Write {
        /// First byte on the volume.
        offset: u64,
        /// The data.
        buf: BufRange,
        /// Done only when it would survive a crash of the machine.
        durable: bool,
    },
    /// Done when every write that was done before would survive a crash of the
    /// machine.
    Flush,
    /// Makes a range read as zeros.
    Zero {
        /// First byte on the volume.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Give the space back where possible.
        deallocate: bool,
        /// Done only when it would survive a crash of the machine.
        durable: bool,
    },
    /// Advice to give the space of a range back, which then reads as zeros.
    /// Where the store below cannot, the data stays, without an error.
    Deallocate {
        /// First byte on the volume.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Succeeds if the volume holds `buf` at `offset`, else
    /// [`Error::Miscompare`].
    Compare {
        /// First byte on the volume.
        offset: u64,
        /// What should be there.
        buf: BufRange,
        /// As long as `buf`, for volumes that must read; others leave it alone.
        scratch: BufRange,
    },
    /// Compares and, if the volume holds `compare`, stores `write` in its
    /// place: one step to every other I/O.
    CompareAndWrite {
        /// First byte on the volume.
        offset: u64,
        /// What should be there.
        compare: BufRange,
        /// What shall be there; as long as `compare`.
        write: BufRange,
        /// As long as `compare`, for volumes that must read.
        scratch: BufRange,
        /// Done only when it would survive a crash of the machine.
        durable: bool,
    },
    /// Sets those bits that are set in `buf`: one step to every other I/O.
    OrWrite {
        /// First byte on the volume.
        offset: u64,
        /// The bits to set.
        buf: BufRange,
        /// As long as `buf`, for volumes that must read.
        scratch: BufRange,
        /// Done only when it would survive a crash of the machine.
        durable: bool,
    },
    /// Succeeds if a range can be read; the data goes nowhere. Not atomic.
    Verify {
        /// First byte on the volume.
        offset: u64,
        /// Bytes.
        len: u64,
        /// For volumes that must read, which they do in pieces of its length;
        /// not empty.
        scratch: BufRange,
    },
    /// From now on reads, compares and verifies of the range fail with
    /// [`Error::Unreadable`], block by block until one is written, zeroed or
    /// deallocated. Lasts as long as the volume's state file, if it has one.
    MarkUnreadable {
        /// First byte on the volume.
        offset: u64,
        /// Bytes.
        len: u64,
    },
}

impl Io {
    /// First byte and number of bytes; nothing for a flush.
    #[inline]
    pub fn extent(&self) -> (u64, u64) {
        match *self {
            Io::Read { offset, buf } | Io::Write { offset, buf, .. } => {
                (offset, u64::from(buf.len()))
            }
            Io::Compare { offset, buf, .. } | Io::OrWrite { offset, buf, .. } => {
                (offset, u64::from(buf.len()))
            }
            Io::CompareAndWrite {
                offset, compare, ..
            } => (offset, u64::from(compare.len())),
            Io::Zero { offset, len, .. }
            | Io::Deallocate { offset, len }
            | Io::Verify { offset, len, .. }
            | Io::MarkUnreadable { offset, len } => (offset, len),
            Io::Flush => (0, 0),
        }
    }

    /// Whether it must survive a crash of the machine before it is done.
    #[inline]
    pub(crate) fn durable(&self) -> bool {
        matches!(
            self,
            Io::Flush
                | Io::Write { durable: true, .. }
                | Io::Zero { durable: true, .. }
                | Io::CompareAndWrite { durable: true, .. }
                | Io::OrWrite { durable: true, .. }
        )
    }

    /// Whether it leaves the volume as it is.
    #[inline]
    pub(crate) fn leaves_volume_unchanged(&self) -> bool {
        matches!(
            self,
            Io::Read { .. } | Io::Compare { .. } | Io::Verify { .. } | Io::Flush
        )
    }

    /// Whether it needs the data that is there.
    #[inline]
    pub(crate) fn needs_data(&self) -> bool {
        matches!(
            self,
            Io::Read { .. }
                | Io::Compare { .. }
                | Io::Verify { .. }
                | Io::CompareAndWrite { .. }
                | Io::OrWrite { .. }
        )
    }

    /// Whether blocks that were unreadable can be read after it.
    #[inline]
    pub(crate) fn heals(&self) -> bool {
        matches!(
            self,
            Io::Write { .. }
                | Io::Zero { .. }
                | Io::Deallocate { .. }
                | Io::CompareAndWrite { .. }
                | Io::OrWrite { .. }
        )
    }
}

/// Why an I/O failed. It costs that I/O alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Reaches past the end of the volume.
    #[error("past the end of the volume")]
    OutOfRange,
    /// The volume, or the file system below it, may not be changed.
    #[error("read only")]
    ReadOnly,
    /// No space (ENOSPC) or no quota (EDQUOT) left below.
    #[error("out of space: {0}")]
    OutOfSpace(Errno),
    /// Data could not be read.
    #[error("read failed: {0}")]
    ReadFailed(Errno),
    /// Data is not there to be read.
    #[error("read failed: the file ends too early")]
    EndsEarly,
    /// Data could not be written.
    #[error("write failed: {0}")]
    WriteFailed(Errno),
    /// Data written earlier could not be made durable and may be lost. Stays
    /// for every later flush and durable write until the volume is opened
    /// again: the kernel reports such a loss once and then forgets it.
    #[error("flush failed: {0}")]
    FlushFailed(Errno),
    /// A compare found other data.
    #[error("other data from byte {offset}")]
    Miscompare {
        /// The first byte that differs, counted from the start of the data.
        offset: u64,
    },
    /// The range, or a part of it, was marked with [`Io::MarkUnreadable`].
    #[error("marked as unreadable")]
    Unreadable,
    /// What was read has another checksum than what was written there.
    #[error("its checksum is another")]
    ChecksumMismatch,
    /// The volume is encrypted, and its key is not known: it is not ready.
    #[error("locked: its key is missing")]
    Locked,
    /// No memory for it now; to be tried again.
    #[error("no memory for it now")]
    Busy,
}
