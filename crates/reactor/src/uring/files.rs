//! File operations of the io_uring driver.

use super::request::Request;
use super::{CompletionKind, UringDriver, errno, user_data};
use crate::bell::Ticket;
use crate::descriptors::DiskFile;
use crate::shares::Disk;
use crate::sys::Nanos;
use crate::types::{Completion, FallocateMode, FileIo, Token};
use mem::BufRange;
use rustix::io::Errno;
use std::sync::Arc;

/// Operations under way on one disk at most. The kernel has a thread for each that
/// waits, if it must: more than any disk takes at a time.
pub(super) const SHARE_MAX: usize = 64;

/// A file operation; keeps the file open.
pub(super) struct FileOp {
    token: Token,
    disk: Disk,
    _file: Arc<DiskFile>,
}

impl UringDriver {
    fn push_file(&mut self, request: Request, file: &Arc<DiskFile>, token: Token) {
        let disk = self.disks.of(file);
        let op = FileOp {
            token,
            disk,
            _file: Arc::clone(file),
        };
        if let Some(begun) = self.shares.offer(disk, self.host, token, (request, op)) {
            self.begin_file(begun);
        }
    }

    fn begin_file(&mut self, (request, op): (Request, FileOp)) {
        if self.shares.disks() > self.disks_max {
            self.raise_workers();
        }
        let index = self.files.insert(op);
        self.push(request, user_data(CompletionKind::File, 0, index));
    }

    /// Has the kernel's threads for this reactor suffice for the shares of so many
    /// disks more.
    #[cold]
    fn raise_workers(&mut self) {
        self.disks_max = self.shares.disks().next_power_of_two();
        let wanted = (self.disks_max * SHARE_MAX) as u32;
        // What there are at most now, then what is to be: 0 changes nothing.
        let mut workers = [0, 0];
        let submitter = self.ring.submitter();
        let mut raised = submitter.register_iowq_max_workers(&mut workers);
        if raised.is_ok() && workers[0] < wanted {
            raised = submitter.register_iowq_max_workers(&mut [wanted, 0]);
        }
        if let Err(error) = raised {
            tracing::warn!(%error, wanted, "io_uring: a disk that hangs may hold up others");
        }
    }

    pub(super) fn on_file(&mut self, index: u32, result: i32, out: &mut Vec<Completion>) {
        let FileOp { token, disk, .. } = self.files.take(index);
        if let Some(begun) = self.shares.ended(disk) {
            self.begin_file(begun);
        }
        self.counters.file_ops += 1;
        out.push(Completion::File {
            token,
            result: errno(result),
        });
    }
}

impl FileIo for UringDriver {
    fn read_at(&mut self, file: &Arc<DiskFile>, buf: BufRange, offset: u64, token: Token) {
        self.push_file(Request::read(file, buf, offset), file, token);
    }

    fn write_at(
        &mut self,
        file: &Arc<DiskFile>,
        buf: BufRange,
        offset: u64,
        durable: bool,
        token: Token,
    ) {
        self.push_file(Request::write(file, buf, offset, durable), file, token);
    }

    fn sync_data(&mut self, file: &Arc<DiskFile>, token: Token) {
        self.push_file(Request::sync_data(file), file, token);
    }

    fn fallocate(
        &mut self,
        file: &Arc<DiskFile>,
        mode: FallocateMode,
        offset: u64,
        len: u64,
        token: Token,
    ) {
        self.push_file(Request::fallocate(file, mode, offset, len), file, token);
    }

    fn ticket(&mut self, token: Token) -> Ticket {
        self.bell.ticket(token)
    }

    fn complete_after(&mut self, after_ns: Nanos, token: Token) {
        self.timers.add(after_ns, token);
    }

    fn cancel_file(&mut self, token: Token) {
        for (_, FileOp { token, .. }) in self.shares.cancel(token) {
            let result = Err(Errno::CANCELED.into());
            self.ready.push(Completion::File { token, result });
        }
        let ops = self.files.iter().filter(|(_, op)| op.token == token);
        let indices: Vec<u32> = ops.map(|(index, _)| index).collect();
        for index in indices {
            let request = Request::cancel(user_data(CompletionKind::File, 0, index));
            self.push(request, user_data(CompletionKind::CancelFile, 0, 0));
        }
    }
}
