//! What a ring is asked for.

use crate::descriptors::DiskFile;
use crate::types::FallocateMode;
use io_uring::types::{CancelBuilder, Fd, Fixed, FsyncFlags};
use io_uring::{opcode, squeue};
use mem::BufRange;

/// An entry for a ring. What it points to stays valid until its completion: that is
/// nothing, or memory of a region, which stays mapped, unless its maker has
/// promised the same of other memory.
pub(super) struct Request(squeue::Entry);

impl Request {
    /// # Safety
    /// What the entry points to stays valid until its completion.
    #[inline]
    pub(super) unsafe fn pointing(entry: squeue::Entry) -> Request {
        Request(entry)
    }

    #[cfg(test)]
    pub(super) fn nop() -> Request {
        Request(opcode::Nop::new().build())
    }

    /// Accepts until it is canceled.
    pub(super) fn accept(socket: u32) -> Request {
        let entry = opcode::AcceptMulti::new(Fixed(socket));
        Request(entry.flags(libc::SOCK_CLOEXEC).build())
    }

    /// Bytes of a socket, at most `max`, into one of the ring's own stages.
    #[inline]
    pub(super) fn recv_picked(socket: u32, max: u32, group: u16, ioprio: u16) -> Request {
        let entry = opcode::Recv::new(Fixed(socket), std::ptr::null_mut(), max)
            .buf_group(group)
            .ioprio(ioprio);
        Request(entry.build().flags(squeue::Flags::BUFFER_SELECT))
    }

    /// The end of all that is under way on a socket,
    pub(super) fn cancel_socket(socket: u32) -> Request {
        let of = CancelBuilder::fd(Fixed(socket)).all();
        Request(opcode::AsyncCancel2::new(of).build())
    }

    /// of all that has this user data,
    pub(super) fn cancel(user_data: u64) -> Request {
        Request(opcode::AsyncCancel::new(user_data).build())
    }

    /// or of everything.
    pub(super) fn cancel_all() -> Request {
        Request(opcode::AsyncCancel2::new(CancelBuilder::any()).build())
    }

    pub(super) fn read(file: &DiskFile, to: BufRange, offset: u64) -> Request {
        let entry = opcode::Read::new(Fd(file.raw()), to.as_ptr(), to.len());
        Request(entry.offset(offset).build())
    }

    pub(super) fn write(file: &DiskFile, from: BufRange, offset: u64, durable: bool) -> Request {
        let flags = if durable { libc::RWF_DSYNC } else { 0 };
        let entry = opcode::Write::new(Fd(file.raw()), from.as_ptr(), from.len());
        Request(entry.offset(offset).rw_flags(flags).build())
    }

    pub(super) fn sync_data(file: &DiskFile) -> Request {
        let entry = opcode::Fsync::new(Fd(file.raw()));
        Request(entry.flags(FsyncFlags::DATASYNC).build())
    }

    pub(super) fn fallocate(file: &DiskFile, mode: FallocateMode, at: u64, len: u64) -> Request {
        let entry = opcode::Fallocate::new(Fd(file.raw()), len);
        Request(entry.offset(at).mode(mode.flags().bits() as i32).build())
    }

    #[inline]
    pub(super) fn user_data(self, data: u64) -> Request {
        Request(self.0.user_data(data))
    }

    #[inline]
    pub(super) fn entry(&self) -> &squeue::Entry {
        &self.0
    }
}
