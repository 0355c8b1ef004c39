//! An I/O of an encrypted volume: what it does on the volume below, step by step.

use std::sync::Arc;

use crypt::Xts;
use mem::BufRange;
use reactor::{FileIo, Token};
use rustix::io::Errno;

use super::memory::{MemoryPart, PART_BYTES};
use crate::base::compare;
use crate::locks::StripePlace;
use crate::{Error, Io, Parked, Task};

/// What an I/O does next.
#[derive(Debug)]
pub(super) enum Next {
    /// This, on the volume below.
    Below(Io),
    /// It takes memory to encipher the next piece into.
    Memory,
    /// Nothing: it is over.
    Done(Result<(), Error>),
}

/// An I/O of an encrypted volume.
pub(super) struct EncryptedTask {
    pub io: Io,
    block_bytes: u32,
    /// It waits for its range.
    pub place: Option<Box<StripePlace>>,
    /// It has its range.
    pub holds: bool,
    /// The data key, while it is at work.
    key: Option<Arc<Xts>>,
    step: EncryptedStep,
    /// Bytes that were written.
    pub done_bytes: u32,
    /// It was not called yet for memory.
    pub waits_for_memory: bool,
    memory: Option<MemoryPart>,
    /// What the volume below had no memory for, and is begun again at its next turn.
    pub again: Option<Io>,
    /// What is under way below.
    pub below: Option<Task>,
    pub is_canceled: bool,
}

/// What is under way below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EncryptedStep {
    /// The I/O itself: no bytes are given or taken.
    Itself,
    /// Blocks that are read.
    Fetch,
    /// Blocks that are written, so many bytes.
    Store { len: u32 },
}

impl EncryptedTask {
    #[inline]
    pub(super) fn new(io: Io, block_bytes: u32) -> EncryptedTask {
        EncryptedTask {
            io,
            block_bytes,
            place: None,
            holds: false,
            key: None,
            step: EncryptedStep::Itself,
            done_bytes: 0,
            waits_for_memory: false,
            memory: None,
            again: None,
            below: None,
            is_canceled: false,
        }
    }

    /// Its first step.
    pub(super) fn first(&mut self, key: Option<Arc<Xts>>) -> Next {
        self.key = key;
        match (self.fetches(), self.io) {
            (Some((offset, buf)), _) => {
                self.step = EncryptedStep::Fetch;
                Next::Below(Io::Read { offset, buf })
            }
            (None, Io::Write { buf, .. }) if !buf.is_empty() => Next::Memory,
            (None, io) => Next::Below(io),
        }
    }

    /// The blocks that it reads, and where they go.
    fn fetches(&self) -> Option<(u64, BufRange)> {
        match self.io {
            Io::Read { offset, buf } => Some((offset, buf)),
            Io::Compare {
                offset, scratch, ..
            }
            | Io::CompareAndWrite {
                offset, scratch, ..
            }
            | Io::OrWrite {
                offset, scratch, ..
            } => Some((offset, scratch)),
            _ => None,
        }
    }

    fn xts(&self) -> &Xts {
        self.key.as_deref().expect("it has a key")
    }

    /// The number of the block at a byte of the I/O.
    fn block(&self, at: u32) -> u64 {
        (self.io.extent().0 + u64::from(at)) / u64::from(self.block_bytes)
    }

    /// Enciphers the next piece of a write into some memory.
    pub(super) fn encipher(&mut self, memory: MemoryPart) -> Next {
        let Io::Write {
            offset,
            buf,
            durable,
        } = self.io
        else {
            unreachable!("{:?} is not written in pieces", self.io);
        };
        let len = (buf.len() - self.done_bytes).min(PART_BYTES);
        let (from, to) = (buf.slice(self.done_bytes, len), memory.range(len));
        let first = self.block(self.done_bytes);
        self.xts().encrypt(from, to, self.block_bytes, first);
        self.memory = Some(memory);
        self.step = EncryptedStep::Store { len };
        Next::Below(Io::Write {
            offset: offset + u64::from(self.done_bytes),
            buf: to,
            durable,
        })
    }

    /// What follows what was done below.
    pub(super) fn after(&mut self, result: Result<(), Error>) -> Next {
        match (result, self.step) {
            (Err(_), _) | (Ok(()), EncryptedStep::Itself) => Next::Done(result),
            (Ok(()), EncryptedStep::Fetch) => self.fetched(),
            (Ok(()), EncryptedStep::Store { len }) => {
                self.done_bytes += len;
                let memory = self.memory.take();
                match (memory, u64::from(self.done_bytes) == self.io.extent().1) {
                    (Some(memory), false) => self.encipher(memory),
                    _ => Next::Done(Ok(())),
                }
            }
        }
    }

    /// The blocks are there that it reads.
    fn fetched(&mut self) -> Next {
        let (offset, data) = self.fetches().expect("it reads");
        self.xts().decrypt(data, self.block_bytes, self.block(0));
        let (new, durable) = match self.io {
            Io::Compare { buf, .. } => return Next::Done(compare(buf, data)),
            Io::CompareAndWrite {
                compare: old,
                write,
                durable,
                ..
            } => match compare(old, data) {
                Ok(()) => (write, durable),
                miscompare => return Next::Done(miscompare),
            },
            Io::OrWrite { buf, durable, .. } => {
                mem::or(data, buf);
                (data, durable)
            }
            _ => return Next::Done(Ok(())),
        };
        self.replace(new, data, (offset, durable))
    }

    /// Writes in place of what was read.
    fn replace(&mut self, new: BufRange, cipher: BufRange, (offset, durable): (u64, bool)) -> Next {
        if self.is_canceled {
            return Next::Done(Err(Error::WriteFailed(Errno::CANCELED)));
        }
        let first = self.block(0);
        self.xts().encrypt(new, cipher, self.block_bytes, first);
        self.step = EncryptedStep::Store { len: cipher.len() };
        Next::Below(Io::Write {
            offset,
            buf: cipher,
            durable,
        })
    }

    /// What it reports that was not begun.
    pub(super) fn canceled(&self) -> Error {
        match self.io.leaves_volume_unchanged() {
            true => Error::ReadFailed(Errno::CANCELED),
            false => Error::WriteFailed(Errno::CANCELED),
        }
    }

    /// Whether what is under way below is all that it changes.
    fn is_one_piece(&self) -> bool {
        match self.step {
            EncryptedStep::Store { len } => u64::from(len) == self.io.extent().1,
            _ => true,
        }
    }
}

impl Parked for EncryptedTask {
    fn is_waiting(&self) -> bool {
        self.place.is_some()
    }

    /// A write of several pieces goes on with all of them: half of it would stay.
    fn cancel(&mut self, files: &mut dyn FileIo, token: Token) {
        self.is_canceled = true;
        if self.is_one_piece()
            && let Some(below) = &mut self.below
        {
            below.cancel(files, token);
        }
    }
}

impl std::fmt::Debug for EncryptedTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("EncryptedTask");
        shown.field("io", &self.io).field("step", &self.step);
        shown.field("below", &self.below).finish_non_exhaustive()
    }
}
