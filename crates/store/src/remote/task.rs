//! An I/O of a remote volume: what it has done elsewhere, step by step.

use std::sync::Arc;

use reactor::{FileIo, Token};
use rustix::io::Errno;

use crate::kept::Saving;
use crate::locks::StripePlace;
use crate::remote_call::RemoteOutcome;
use crate::{Error, Io, Parked};

/// What it is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RemoteStep {
    /// Data that is read, into its buffer or its scratch memory.
    Fetch,
    /// What changes the blocks, or flushes them.
    Change,
    /// A flush before marks on what was written are taken away.
    Sync,
}

/// An I/O of a remote volume.
#[derive(Debug)]
pub(super) struct RemoteTask {
    pub io: Io,
    /// It waits for its range.
    pub place: Option<Box<StripePlace>>,
    /// It has its range.
    pub holds: bool,
    pub step: RemoteStep,
    /// Bytes that were read.
    pub done_bytes: u64,
    /// What comes of what was asked for.
    pub outcome: Option<Arc<RemoteOutcome>>,
    /// What is remembered beside the data is being saved.
    pub saving: Option<Arc<Saving>>,
    /// It is advice that is not taken.
    pub is_idle: bool,
    pub is_canceled: bool,
}

impl RemoteTask {
    #[inline]
    pub(super) fn new(io: Io) -> RemoteTask {
        RemoteTask {
            io,
            place: None,
            holds: false,
            step: RemoteStep::Change,
            done_bytes: 0,
            outcome: None,
            saving: None,
            is_idle: false,
            is_canceled: false,
        }
    }

    /// The first that is to be done elsewhere; none if nothing is.
    pub(super) fn first(&mut self, is_thin: bool) -> Option<Io> {
        match self.io {
            Io::MarkUnreadable { .. } => None,
            _ if self.io.extent().1 == 0 && self.io != Io::Flush => {
                self.is_idle = true;
                None
            }
            Io::Flush | Io::Write { .. } | Io::Zero { .. } => Some(self.io),
            // What is not thin would write zeros.
            Io::Deallocate { .. } if !is_thin => {
                self.is_idle = true;
                None
            }
            Io::Deallocate { offset, len } => Some(Io::Zero {
                offset,
                len,
                deallocate: true,
                durable: false,
            }),
            _ => {
                self.step = RemoteStep::Fetch;
                self.next_fetch()
            }
        }
    }

    /// The next read; none when all is there.
    pub(super) fn next_fetch(&self) -> Option<Io> {
        let (offset, len) = self.io.extent();
        let offset = offset + self.done_bytes;
        let buf = match self.io {
            Io::Read { buf, .. } => buf,
            Io::Compare { scratch, .. }
            | Io::CompareAndWrite { scratch, .. }
            | Io::OrWrite { scratch, .. } => scratch,
            Io::Verify { scratch, .. } => scratch.slice(0, self.fetched_bytes() as u32),
            _ => return None,
        };
        (self.done_bytes < len).then_some(Io::Read { offset, buf })
    }

    /// Bytes of the read that is under way, or comes next.
    pub(super) fn fetched_bytes(&self) -> u64 {
        let left = self.io.extent().1 - self.done_bytes;
        match self.io {
            Io::Verify { scratch, .. } => left.min(scratch.len().into()),
            _ => left,
        }
    }

    /// What it reports that was not begun.
    pub(super) fn canceled(&self) -> Error {
        self.failed(Errno::CANCELED)
    }

    /// What it reports where a step of it has failed with this.
    pub(super) fn told(&self, error: Error) -> Error {
        match error {
            Error::ReadFailed(errno) | Error::WriteFailed(errno) | Error::FlushFailed(errno) => {
                self.failed(errno)
            }
            error => error,
        }
    }

    fn failed(&self, errno: Errno) -> Error {
        match (self.io, self.step) {
            (Io::Flush, _) => Error::FlushFailed(errno),
            (io, _) if io.leaves_volume_unchanged() => Error::ReadFailed(errno),
            (_, RemoteStep::Fetch) if errno != Errno::CANCELED => Error::ReadFailed(errno),
            _ => Error::WriteFailed(errno),
        }
    }
}

impl Parked for RemoteTask {
    fn is_waiting(&self) -> bool {
        self.place.is_some()
    }

    /// What has gone to the other machine goes on to its end.
    fn cancel(&mut self, _: &mut dyn FileIo, _: Token) {
        self.is_canceled = true;
    }
}
