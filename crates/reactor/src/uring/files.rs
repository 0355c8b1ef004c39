//! File operations of the io_uring driver.

use super::{Kind, UringDriver, errno, user_data};
use crate::bell::Ticket;
use crate::types::{Completion, FallocateMode, FileIo, Token};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{opcode, squeue};
use mem::BufRange;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// A file operation under way; keeps the file open.
pub(super) struct FileOp {
    token: Token,
    _file: Arc<OwnedFd>,
}

impl UringDriver {
    fn push_file(&mut self, entry: squeue::Entry, file: &Arc<OwnedFd>, token: Token) {
        let index = self.files.insert(FileOp {
            token,
            _file: Arc::clone(file),
        });
        // SAFETY: regions stay mapped, and callers keep the range's memory as
        // it is until the completion.
        unsafe { self.push(entry, user_data(Kind::File, 0, index)) };
    }

    pub(super) fn on_file(&mut self, index: u32, result: i32, out: &mut Vec<Completion>) {
        let token = self.files.take(index).token;
        self.counters.file_ops += 1;
        out.push(Completion::File {
            token,
            result: errno(result),
        });
    }
}

impl FileIo for UringDriver {
    fn read_at(&mut self, file: &Arc<OwnedFd>, buf: BufRange, offset: u64, token: Token) {
        let entry = opcode::Read::new(Fd(file.as_raw_fd()), buf.as_ptr(), buf.len())
            .offset(offset)
            .build();
        self.push_file(entry, file, token);
    }

    fn write_at(
        &mut self,
        file: &Arc<OwnedFd>,
        buf: BufRange,
        offset: u64,
        durable: bool,
        token: Token,
    ) {
        let flags = if durable { libc::RWF_DSYNC } else { 0 };
        let entry = opcode::Write::new(Fd(file.as_raw_fd()), buf.as_ptr(), buf.len())
            .offset(offset)
            .rw_flags(flags)
            .build();
        self.push_file(entry, file, token);
    }

    fn sync_data(&mut self, file: &Arc<OwnedFd>, token: Token) {
        let entry = opcode::Fsync::new(Fd(file.as_raw_fd()))
            .flags(FsyncFlags::DATASYNC)
            .build();
        self.push_file(entry, file, token);
    }

    fn fallocate(
        &mut self,
        file: &Arc<OwnedFd>,
        mode: FallocateMode,
        offset: u64,
        len: u64,
        token: Token,
    ) {
        let entry = opcode::Fallocate::new(Fd(file.as_raw_fd()), len)
            .offset(offset)
            .mode(mode.flags())
            .build();
        self.push_file(entry, file, token);
    }

    fn ticket(&mut self, token: Token) -> Ticket {
        self.bell.ticket(token)
    }

    fn cancel_file(&mut self, token: Token) {
        let ops = self.files.iter().filter(|(_, op)| op.token == token);
        let indices: Vec<u32> = ops.map(|(index, _)| index).collect();
        for index in indices {
            let entry = opcode::AsyncCancel::new(user_data(Kind::File, 0, index)).build();
            // SAFETY: the entry points to nothing.
            unsafe { self.push(entry, user_data(Kind::CancelFile, 0, 0)) };
        }
    }
}
