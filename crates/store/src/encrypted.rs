//! A volume of any kind whose blocks are enciphered before they leave it: AES-256-XTS
//! (`crypt`), one block a data unit.
//!
//! What is written is enciphered from the caller's memory into some of the volume's own, and what
//! is read where the caller wants it is deciphered there: one pass over the bytes each way. A
//! block that was never written, or was deallocated, lies below as zeros and reads as zeros.
//!
//! Each I/O has its range to itself from its first step to its last, so that those of several
//! steps (a compare and write, a write in pieces) are one to all others, and so that a new data
//! key takes the place of the old one between two I/Os.

use std::io;
use std::sync::Arc;

use faults::Fault;
use machine::work;
use reactor::{FileIo, Token};

use crate::encryption_settings::EncryptionSettings;
use crate::locks::{Caller, Claim, Locks};
use crate::problem::{Problem, no_memory};
use crate::{Base, Error, Extent, Io, Progress, Range, ResizeError, Spec, Task, Volume};

use memory::CipherMemory;
use task::{EncryptedTask, Next};

pub use key_file::KeyMedium;
pub use keys::{Encryption, EraseError};

pub(crate) mod key_file;
mod keys;
mod memory;
mod task;

pub(crate) struct Encrypted {
    base: Base,
    below: Arc<dyn Volume>,
    encryption: Encryption,
    locks: Arc<Locks>,
    memory: Arc<CipherMemory>,
}

/// Encrypts what a description's volume keeps in `below`, with the keys that lie beside it.
pub(crate) fn open(
    spec: &Spec,
    settings: &EncryptionSettings,
    below: Arc<dyn Volume>,
) -> Result<Encrypted, Problem> {
    let medium = key_file::beside(spec)?;
    open_with(settings, below, medium)
}

/// The same with keys that are kept elsewhere, or (`None`) nowhere.
pub(crate) fn open_with(
    settings: &EncryptionSettings,
    below: Arc<dyn Volume>,
    medium: Option<Box<dyn KeyMedium>>,
) -> Result<Encrypted, Problem> {
    let locks = Locks::new();
    let is_new = || {
        let len = below.size_bytes();
        let is_blank = below.is_blank(Range { offset: 0, len });
        if is_blank {
            // What it was of a mirror, it was with other keys.
            let left = below.state().leave_mirror();
            left.map_err(|source| Problem::System {
                action: "forget the mirror that it was a leg of",
                path: None,
                source,
            })?;
        }
        Ok(is_blank)
    };
    let encryption = Encryption::open(below.base(), settings, medium, is_new, &locks)?;
    let volume = Encrypted {
        base: Base::around(below.base()),
        memory: CipherMemory::new().map_err(no_memory)?,
        below,
        encryption,
        locks,
    };
    volume.look_at_space();
    Ok(volume)
}

/// What of a description's keys would keep its volume from being opened.
pub(crate) fn examine(
    spec: &Spec,
    info: &crate::Info,
    has_data: bool,
) -> Result<Option<String>, Problem> {
    let Some(settings) = &spec.encryption else {
        return key_file::expect_none(spec).map(|()| None);
    };
    let medium = key_file::beside(spec)?;
    keys::examine(info, settings, medium, has_data)
}

impl Encrypted {
    /// What an I/O locks, if anything.
    #[inline]
    fn claim(&self, io: &Io) -> Option<Claim> {
        let (offset, len) = io.extent();
        let moves = !matches!(io, Io::Flush | Io::Verify { .. });
        let is_split = matches!(io, Io::CompareAndWrite { .. } | Io::OrWrite { .. })
            && faults::is(Fault::SplitEncrypted);
        let is_alone = !io.leaves_volume_unchanged() && !is_split;
        (moves && len > 0).then(|| Claim::new(offset, len, is_alone))
    }

    /// The task has the range that it needs.
    fn begin(&self, mut task: EncryptedTask, files: &mut dyn FileIo, token: Token) -> Progress {
        let begun = self.base.check(&task.io).and_then(|()| match task.io {
            Io::Flush => Ok(None),
            _ => self.encryption.data().map(Some),
        });
        match begun {
            Ok(key) => {
                let next = task.first(key);
                self.go_on(task, next, files, token)
            }
            Err(error) => self.finish(&task, Err(error)),
        }
    }

    /// Goes on until something must be waited for, or all is done.
    fn go_on(
        &self,
        mut task: EncryptedTask,
        mut next: Next,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        loop {
            let io = match next {
                Next::Below(io) => io,
                Next::Memory => match self.memory.take(|| files.ticket(token)) {
                    Some(part) => {
                        next = task.encipher(part);
                        continue;
                    }
                    None => {
                        task.waits_for_memory = true;
                        return Progress::Pending(Task::parked(task));
                    }
                },
                Next::Done(result) => return self.finish(&task, result),
            };
            match self.below.start(io, files, token) {
                Progress::Pending(below) => {
                    task.below = Some(below);
                    return Progress::Pending(Task::parked(task));
                }
                // What has been written cannot be begun anew as a whole.
                Progress::Done(Err(Error::Busy)) if task.done_bytes > 0 => {
                    files.ticket(token).ring();
                    task.again = Some(io);
                    return Progress::Pending(Task::parked(task));
                }
                Progress::Done(result) => next = task.after(result),
            }
        }
    }

    /// The task is over: others may have its range.
    #[inline]
    fn finish(&self, task: &EncryptedTask, result: Result<(), Error>) -> Progress {
        if task.holds
            && let Some(claim) = self.claim(&task.io)
        {
            self.locks.release(&claim);
        }
        self.base.finish(&task.io, result)
    }
}

impl Volume for Encrypted {
    #[inline]
    fn base(&self) -> &Base {
        &self.base
    }

    fn below(&self) -> Option<&dyn Volume> {
        Some(&*self.below)
    }

    fn encryption(&self) -> Option<&Encryption> {
        Some(&self.encryption)
    }

    fn is_locked(&self) -> bool {
        self.encryption.is_locked() || self.below.is_locked()
    }

    fn start(&self, io: Io, files: &mut dyn FileIo, token: Token) -> Progress {
        let (offset, len) = io.extent();
        let mut task = EncryptedTask::new(io, self.base.info.block_bytes);
        if !self.base.holds(offset, len) {
            return self.finish(&task, Err(Error::OutOfRange));
        }
        if matches!(io, Io::Read { .. } | Io::Write { .. } | Io::Compare { .. }) {
            work::spend_bytes(len);
        }
        if let Some(claim) = self.claim(&io) {
            match self
                .locks
                .acquire(claim, || Caller::Ticket(files.ticket(token)))
            {
                Ok(()) => task.holds = true,
                Err(place) => {
                    task.place = Some(place);
                    return Progress::Pending(Task::parked(task));
                }
            }
        }
        self.begin(task, files, token)
    }

    fn resume(
        &self,
        task: Task,
        result: io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        let mut task: EncryptedTask = match task.unpark() {
            Ok(task) => task,
            // What the volume below does by itself.
            Err(task) => return self.below.resume(task, result, files, token),
        };
        if let Some(place) = task.place.take() {
            if task.is_canceled || result.is_err() {
                drop(place);
                let canceled = task.canceled();
                return self.finish(&task, Err(canceled));
            }
            match place.go_on(|| Caller::Ticket(files.ticket(token))) {
                Ok(()) => task.holds = true,
                Err(place) => {
                    task.place = Some(place);
                    return Progress::Pending(Task::parked(task));
                }
            }
            return self.begin(task, files, token);
        }
        let next = if std::mem::take(&mut task.waits_for_memory) {
            let part = self.memory.take_called();
            match task.is_canceled && task.done_bytes == 0 {
                true => Next::Done(Err(task.canceled())),
                false => task.encipher(part),
            }
        } else if let Some(io) = task.again.take() {
            Next::Below(io)
        } else {
            let below = task.below.take().expect("it waits for what is below");
            match self.below.resume(below, result, files, token) {
                Progress::Pending(below) => {
                    task.below = Some(below);
                    return Progress::Pending(Task::parked(task));
                }
                Progress::Done(result) => task.after(result),
            }
        };
        // What is begun anew below finds its bits of the token at 0.
        let bits = self.base.leg_bits;
        self.go_on(task, next, files, token >> bits << bits)
    }

    fn resize(&self, size_bytes: u64, allow_shrink: bool) -> Result<(), ResizeError> {
        let resized = self.below.resize(size_bytes, allow_shrink);
        self.base.show_size(self.below.size_bytes());
        resized
    }

    fn extents(
        &self,
        offset: u64,
        len: u64,
        max: usize,
        out: &mut Vec<Extent>,
    ) -> Result<(), Error> {
        self.below.extents(offset, len, max, out)
    }
}
