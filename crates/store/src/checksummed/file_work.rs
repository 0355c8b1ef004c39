//! One operation on the file with the sums, to its end.

use std::io;
use std::sync::Arc;

use mem::BufRange;
use reactor::{DiskFile, FileIo, Token};
use rustix::io::Errno;

/// An operation that is interrupted is issued this many times more before it fails.
const RETRIES_MAX: u8 = 8;

/// What is under way.
#[derive(Debug)]
pub(super) struct FileWork {
    what: FileOp,
    done: u32,
    retries: u8,
}

#[derive(Clone, Copy, Debug)]
enum FileOp {
    Read { to: BufRange, offset: u64 },
    Write { from: BufRange, offset: u64 },
    Sync,
}

impl FileWork {
    pub(super) fn read(to: BufRange, offset: u64) -> FileWork {
        FileWork::new(FileOp::Read { to, offset })
    }

    pub(super) fn write(from: BufRange, offset: u64) -> FileWork {
        FileWork::new(FileOp::Write { from, offset })
    }

    pub(super) fn sync() -> FileWork {
        FileWork::new(FileOp::Sync)
    }

    fn new(what: FileOp) -> FileWork {
        FileWork {
            what,
            done: 0,
            retries: 0,
        }
    }

    /// Begins it, or what is left of it.
    pub(super) fn submit(&self, file: &Arc<DiskFile>, files: &mut dyn FileIo, token: Token) {
        let rest = |buf: BufRange| buf.slice(self.done, buf.len() - self.done);
        let done = u64::from(self.done);
        match self.what {
            FileOp::Read { to, offset } => files.read_at(file, rest(to), offset + done, token),
            FileOp::Write { from, offset } => {
                files.write_at(file, rest(from), offset + done, false, token);
            }
            FileOp::Sync => files.sync_data(file, token),
        }
    }

    /// How it ended; `None` where it is to be submitted again.
    pub(super) fn after(&mut self, result: io::Result<u32>) -> Option<Result<(), Errno>> {
        let len = match self.what {
            FileOp::Read { to: buf, .. } | FileOp::Write { from: buf, .. } => buf.len(),
            FileOp::Sync => return self.after_sync(result),
        };
        match result {
            // The file ends too early.
            Ok(0) => Some(Err(Errno::IO)),
            Ok(moved) => {
                self.done += moved;
                (self.done == len).then_some(Ok(()))
            }
            Err(error) => self.after_error(&error),
        }
    }

    fn after_sync(&mut self, result: io::Result<u32>) -> Option<Result<(), Errno>> {
        match result {
            Ok(_) => Some(Ok(())),
            Err(error) => self.after_error(&error),
        }
    }

    fn after_error(&mut self, error: &io::Error) -> Option<Result<(), Errno>> {
        let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
        let is_interrupted = matches!(errno, Errno::INTR | Errno::AGAIN | Errno::CANCELED);
        if is_interrupted && self.retries < RETRIES_MAX {
            self.retries += 1;
            return None;
        }
        Some(Err(errno))
    }
}
