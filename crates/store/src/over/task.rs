//! An I/O of a volume that is made of others, and its pieces on them.

use mem::BufRange;
use reactor::{FileIo, Token};
use rustix::io::Errno;

use super::LegBits;
use crate::locks::StripePlace;
use crate::{Error, Io, Range, Task};

/// What is to be done on one of the volumes below.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IoPiece {
    pub leg: usize,
    /// Bytes of the I/O before it.
    pub from: u64,
    pub io: Io,
}

/// A piece that is under way.
#[derive(Debug)]
pub(crate) struct RunningPiece {
    pub piece: IoPiece,
    /// None: there was no memory for it, and it is tried again at its next turn.
    pub task: Option<Task>,
}

/// An I/O of a volume that is made of others.
#[derive(Debug)]
pub(crate) struct CompositeTask {
    pub io: Io,
    bits: LegBits,
    /// It waits for its range.
    pub place: Option<Box<StripePlace>>,
    /// It has its range.
    pub holds: bool,
    /// A compare and write on several volumes that has compared, and writes.
    pub writes: bool,
    /// How far it has been cut into pieces: bytes of the I/O, or volumes.
    pub next: u64,
    pub running: Vec<RunningPiece>,
    /// What failed, and how many bytes of the I/O lie before it.
    failed: Option<(u64, Error)>,
    pub is_canceled: bool,
    /// Some of it may have changed what is below.
    pub has_changed: bool,
}

impl CompositeTask {
    #[inline]
    pub(crate) fn new(io: Io, bits: LegBits) -> CompositeTask {
        CompositeTask {
            io,
            bits,
            place: None,
            holds: false,
            writes: false,
            next: 0,
            running: Vec::new(),
            failed: None,
            is_canceled: false,
            has_changed: false,
        }
    }

    /// The piece that is under way on a volume; there is one at a time.
    #[inline]
    pub(crate) fn running_on(&self, leg: usize) -> Option<usize> {
        let mut running = self.running.iter();
        running.position(|running| running.piece.leg == leg)
    }

    /// Notes that a piece failed. What comes first in the I/O is told.
    pub(crate) fn fail(&mut self, from: u64, error: Error) {
        let error = match error {
            Error::Miscompare { offset } => Error::Miscompare {
                offset: from + offset,
            },
            other => other,
        };
        if self.failed.is_none_or(|(first, _)| from < first) {
            self.failed = Some((from, error));
        }
    }

    /// Whether no more pieces are begun: one failed, or it is not wanted.
    #[inline]
    pub(crate) fn is_ending(&self) -> bool {
        self.failed.is_some() || (self.is_canceled && !self.has_changed)
    }

    /// How it ended.
    #[inline]
    pub(crate) fn result(&self) -> Result<(), Error> {
        match self.failed {
            Some((_, error)) => Err(error),
            None if self.is_ending() => Err(canceled(&self.io)),
            None => Ok(()),
        }
    }

    /// See [`Task::is_waiting`]. What has no range of its own waits where its only piece does.
    pub(crate) fn is_waiting(&self) -> bool {
        match &self.running[..] {
            [
                RunningPiece {
                    task: Some(task), ..
                },
            ] => !self.holds && task.is_waiting(),
            _ => self.place.is_some(),
        }
    }

    /// Whether the only piece under way is all of it.
    fn is_one_piece(&self) -> bool {
        let bytes = |io: &Io| io.extent().1;
        matches!(&self.running[..], [one] if bytes(&one.piece.io) == bytes(&self.io))
    }

    /// See [`Task::cancel`]. A change of several pieces goes on with all of them: one that
    /// was taken back would leave the others.
    pub(crate) fn cancel(&mut self, files: &mut dyn FileIo, token: Token) {
        self.is_canceled = true;
        if self.has_changed && !self.is_one_piece() {
            return;
        }
        for running in &mut self.running {
            if let Some(task) = &mut running.task {
                task.cancel(files, self.bits.on_leg(token, running.piece.leg));
            }
        }
    }
}

/// What an I/O reports that was not begun.
pub(crate) fn canceled(io: &Io) -> Error {
    match io.leaves_volume_unchanged() {
        true => Error::ReadFailed(Errno::CANCELED),
        false => Error::WriteFailed(Errno::CANCELED),
    }
}

/// An I/O of its own for `len` bytes of `io` behind the first `from`, which lie at `offset` of
/// a volume below: one that has data.
pub(crate) fn cut(io: &Io, from: u64, len: u32, offset: u64) -> Io {
    let part = |buf: BufRange| buf.slice(from as u32, len);
    match *io {
        Io::Read { buf, .. } => Io::Read {
            offset,
            buf: part(buf),
        },
        Io::Write { buf, durable, .. } => Io::Write {
            offset,
            buf: part(buf),
            durable,
        },
        Io::Compare { buf, scratch, .. } => Io::Compare {
            offset,
            buf: part(buf),
            scratch: part(scratch),
        },
        Io::CompareAndWrite {
            compare,
            write,
            scratch,
            durable,
            ..
        } => Io::CompareAndWrite {
            offset,
            compare: part(compare),
            write: part(write),
            scratch: part(scratch),
            durable,
        },
        Io::OrWrite {
            buf,
            scratch,
            durable,
            ..
        } => Io::OrWrite {
            offset,
            buf: part(buf),
            scratch: part(scratch),
            durable,
        },
        Io::Flush
        | Io::Zero { .. }
        | Io::Deallocate { .. }
        | Io::Verify { .. }
        | Io::MarkUnreadable { .. } => unreachable!("it has no data"),
    }
}

/// The same of one without data, on a range of a volume below.
pub(crate) fn moved(io: &Io, Range { offset, len }: Range) -> Io {
    match *io {
        Io::Zero {
            deallocate,
            durable,
            ..
        } => Io::Zero {
            offset,
            len,
            deallocate,
            durable,
        },
        Io::Deallocate { .. } => Io::Deallocate { offset, len },
        Io::Verify { scratch, .. } => Io::Verify {
            offset,
            len,
            scratch,
        },
        Io::MarkUnreadable { .. } => Io::MarkUnreadable { offset, len },
        ref with_data => unreachable!("{with_data:?} has data"),
    }
}
