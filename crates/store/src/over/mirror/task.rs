//! An I/O of a mirror, and what it does on the legs.

use std::sync::Arc;

use reactor::{FileIo, Token};

use super::{LEGS_MAX, Legs};
use crate::locks::StripePlace;
use crate::over::task::{cut, moved};
use crate::{Error, Io, Range, Task};

/// What an I/O waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MirrorStep {
    /// Its range.
    Range,
    /// What one leg holds.
    Fetch,
    /// The log, before it writes.
    Log,
    /// The legs, on all of which it writes.
    Write,
    /// The log, before it is answered so.
    Answer(Result<(), Error>),
}

/// What is under way on a leg.
#[derive(Debug)]
pub(super) struct LegIo {
    pub io: Io,
    /// None: there was no memory for it, and it is tried again at its next turn.
    pub task: Option<Task>,
}

/// An I/O of a mirror.
#[derive(Debug)]
pub(crate) struct MirrorTask {
    pub(super) io: Io,
    /// The legs that it knows.
    pub(super) legs: Arc<Legs>,
    /// Those that it is for, a bit each, where it is not for the mirror as a whole.
    pub(super) only: Option<u8>,
    pub(super) step: MirrorStep,
    /// It waits for its range.
    pub(super) place: Option<Box<StripePlace>>,
    /// It has its range.
    pub(super) holds: bool,
    /// The log counts it among the writes under way.
    pub(super) is_counted: bool,
    pub(super) running: [Option<LegIo>; LEGS_MAX],
    /// Of a flush: writes that had begun and ended before it.
    pub(super) writes: Option<u64>,
    /// How far it has read, and how many bytes it reads at a time at most.
    pub(super) from: u64,
    pub(super) piece_max: u64,
    /// Legs, a bit each: that could not read what it is at,
    pub(super) unread: u8,
    /// of those, that have it with another checksum,
    pub(super) mismatched: u8,
    /// that it writes to,
    pub(super) members: u8,
    /// that have written, that have failed to.
    pub(super) done: u8,
    pub(super) failed: u8,
    /// The first that a leg has said.
    pub(super) error: Option<Error>,
    /// The change of the log that it waits for.
    pub(super) change: u64,
    pub(super) is_canceled: bool,
}

impl MirrorTask {
    #[inline]
    pub(super) fn new(io: Io, legs: Arc<Legs>, only: Option<u8>) -> MirrorTask {
        MirrorTask {
            io,
            legs,
            only,
            step: MirrorStep::Range,
            place: None,
            holds: false,
            is_counted: false,
            running: [const { None }; LEGS_MAX],
            writes: None,
            from: 0,
            piece_max: u64::MAX,
            unread: 0,
            mismatched: 0,
            members: 0,
            done: 0,
            failed: 0,
            error: None,
            change: 0,
            is_canceled: false,
        }
    }

    /// The next of what it reads, of so many bytes.
    pub(super) fn fetch_io(&self, len: u64) -> Io {
        let offset = self.io.extent().0 + self.from;
        let whole = match self.io {
            Io::Verify { .. } => return moved(&self.io, Range { offset, len }),
            Io::CompareAndWrite {
                compare, scratch, ..
            } => Io::Compare {
                offset,
                buf: compare,
                scratch,
            },
            Io::OrWrite { scratch, .. } => Io::Read {
                offset,
                buf: scratch,
            },
            io => io,
        };
        cut(&whole, self.from, len as u32, offset)
    }

    /// What goes to each leg.
    pub(super) fn write_io(&self) -> Io {
        match self.io {
            Io::CompareAndWrite {
                offset,
                write,
                durable,
                ..
            } => Io::Write {
                offset,
                buf: write,
                durable,
            },
            Io::OrWrite {
                offset,
                scratch,
                durable,
                ..
            } => Io::Write {
                offset,
                buf: scratch,
                durable,
            },
            // A leg that cannot give space back would keep its data, beside others with zeros.
            Io::Deallocate { offset, len } => Io::Zero {
                offset,
                len,
                deallocate: true,
                durable: false,
            },
            io => io,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.iter().any(Option::is_some)
    }

    /// See [`Task::is_waiting`].
    pub(crate) fn is_waiting(&self) -> bool {
        self.place.is_some()
    }

    /// See [`Task::cancel`]. What has gone to one leg goes to all.
    pub(crate) fn cancel(&mut self, files: &mut dyn FileIo, token: Token) {
        self.is_canceled = true;
        if self.step != MirrorStep::Fetch {
            return;
        }
        let bits = self.legs.bits;
        for (leg, running) in self.running.iter_mut().enumerate() {
            if let Some(LegIo {
                task: Some(task), ..
            }) = running
            {
                task.cancel(files, bits.on_leg(token, leg));
            }
        }
    }
}
