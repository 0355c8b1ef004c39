//! I/O commands of a connection, executed on its volumes.

use engine::OnVolumes as _;
use engine::blocks::AfterIo;
use link::CommandMemory;
use machine::Tag;
use nvmf::command::{Io, IoKind};
use nvmf::tcp::controller::Done;
use reactor::Driver;
use store::Error;
use wire::nvme::Status;

use super::steps::result_of;
use super::{CommandAnswer, NvmeConnection};

/// A Verify of a volume that must read to find out does so in pieces of this.
const VERIFY_PIECE_BYTES: u32 = 128 << 10;

impl NvmeConnection {
    /// Memory for data that arrives with `io`, or has all arrived (`staged`);
    /// `None` while there is none.
    #[inline]
    pub(crate) fn destination(&self, io: &Io, len: u32, staged: bool) -> Option<CommandMemory> {
        if io.kind == IoKind::Write {
            if staged {
                return Some(CommandMemory::staged());
            }
            let volume = &self.volumes()[io.namespace as usize];
            if let Some(loan) = volume.borrow(io.offset, len) {
                return Some(CommandMemory::loan(loan));
            }
        }
        self.core.pool.get(len).map(CommandMemory::owned)
    }

    /// Executes a command all of which is here; false while memory is short.
    #[inline]
    pub(crate) fn execute_io<D: Driver>(&mut self, tag: Tag, io: Io, driver: &mut D) -> bool {
        if !self.may(&io) {
            self.conflict(tag, &io);
            return true;
        }
        match io.kind {
            IoKind::Read => self.read(tag, io, driver),
            IoKind::Write => self.write(tag, io, driver),
            _ => self.execute_other(tag, io, driver),
        }
    }

    /// Everything but reads and writes.
    fn execute_other<D: Driver>(&mut self, tag: Tag, io: Io, driver: &mut D) -> bool {
        let Io { offset, len, .. } = io;
        let volume_io = match io.kind {
            IoKind::Compare => return self.compare(tag, io, driver),
            IoKind::Verify => return self.verify(tag, io, driver),
            IoKind::Copy => return self.copy(tag, io, driver),
            IoKind::Deallocate => {
                self.deallocate(tag, io, driver);
                return true;
            }
            IoKind::FlushAll => {
                self.flush_all(tag, driver);
                return true;
            }
            IoKind::Flush => store::Io::Flush,
            IoKind::WriteZeroes => store::Io::Zero {
                offset,
                len,
                deallocate: io.deallocate,
                durable: io.fua,
            },
            IoKind::WriteUncorrectable => store::Io::MarkUnreadable { offset, len },
            IoKind::Read | IoKind::Write | IoKind::CompareAndWrite => {
                unreachable!("reads and writes have their own way")
            }
        };
        let then = AfterIo::Complete { data_len: 0 };
        self.start(tag, io.namespace, volume_io, then, driver);
        true
    }

    #[inline]
    fn read<D: Driver>(&mut self, tag: Tag, io: Io, driver: &mut D) -> bool {
        let len = io.len as u32;
        let then = AfterIo::Complete { data_len: len };
        let volume = &self.volumes()[io.namespace as usize];
        if let Some(loan) = volume.lend(io.offset, len) {
            self.core.link.set_data(tag, CommandMemory::loan(loan));
            self.finish(tag, (io.namespace, io.offset), Ok(()), then);
            return true;
        }
        let Some(buf) = self.core.pool.get(len) else {
            return false;
        };
        let read = store::Io::Read {
            offset: io.offset,
            buf: buf.range(),
        };
        self.core.link.set_data(tag, CommandMemory::owned(buf));
        self.start(tag, io.namespace, read, then, driver);
        true
    }

    #[inline]
    fn write<D: Driver>(&mut self, tag: Tag, io: Io, driver: &mut D) -> bool {
        let then = AfterIo::Complete { data_len: 0 };
        let volume = &self.volumes()[io.namespace as usize];
        if let Some(bytes) = self.core.link.staged(tag) {
            if let Some(result) = volume.write_now(io.offset, bytes) {
                if let Err(Error::Busy) = result {
                    return false;
                }
                self.finish(tag, (io.namespace, io.offset), result, then);
                return true;
            }
            let Some(buf) = self.core.pool.get_to_finish(bytes.len() as u32) else {
                return false;
            };
            mem::copy_in(buf.range(), bytes);
            self.core.link.set_data(tag, CommandMemory::owned(buf));
        }
        let mut data = self.core.link.take_data(tag);
        if let Some(loan) = data.loan_mut() {
            let result = self.volumes()[io.namespace as usize].commit(loan, io.offset);
            if let Err(Error::Busy) = result {
                self.core.link.set_data(tag, data);
                return false;
            }
            self.finish(tag, (io.namespace, io.offset), result, then);
            return true;
        }
        let write = store::Io::Write {
            offset: io.offset,
            buf: data.range().expect("a write has its data"),
            durable: io.fua,
        };
        self.core.link.set_data(tag, data);
        self.start_unless_busy(tag, io.namespace, write, then, driver)
    }

    fn compare<D: Driver>(&mut self, tag: Tag, io: Io, driver: &mut D) -> bool {
        let buf = self.core.link.range(tag).expect("a compare has its data");
        let Some(scratch) = self.core.pool.get_to_finish(buf.len()) else {
            return false;
        };
        let compare = store::Io::Compare {
            offset: io.offset,
            buf,
            scratch: scratch.range(),
        };
        self.start(
            tag,
            io.namespace,
            compare,
            AfterIo::Scratch { _buf: scratch },
            driver,
        );
        true
    }

    fn verify<D: Driver>(&mut self, tag: Tag, io: Io, driver: &mut D) -> bool {
        let piece = io.len.min(u64::from(VERIFY_PIECE_BYTES)) as u32;
        let Some(scratch) = self.core.pool.get(piece) else {
            return false;
        };
        let verify = store::Io::Verify {
            offset: io.offset,
            len: io.len,
            scratch: scratch.range(),
        };
        self.start(
            tag,
            io.namespace,
            verify,
            AfterIo::Scratch { _buf: scratch },
            driver,
        );
        true
    }

    /// A fused Compare and Write, all data of both here (Base 2.0, section
    /// 3.4.2): one step of the volume. False while memory is short.
    pub(crate) fn execute_fused<D: Driver>(
        &mut self,
        compare: Tag,
        write: Tag,
        io: Io,
        driver: &mut D,
    ) -> bool {
        if !self.may(&io) {
            self.conflict(compare, &io);
            self.fail(write, Status::FUSED_FAILED, io.namespace, io.offset);
            return true;
        }
        let atomic = self.volumes()[io.namespace as usize].info().atomic_bytes;
        if io.len > u64::from(atomic) {
            let status = Status::ATOMIC_WRITE_UNIT_EXCEEDED.dnr();
            self.fail(compare, status, io.namespace, io.offset);
            self.fail(write, Status::FUSED_FAILED, io.namespace, io.offset);
            return true;
        }
        let Some(scratch) = self.core.pool.get_to_finish(io.len as u32) else {
            return false;
        };
        let both = store::Io::CompareAndWrite {
            offset: io.offset,
            compare: self
                .core
                .link
                .range(compare)
                .expect("a compare has its data"),
            write: self.core.link.range(write).expect("a write has its data"),
            scratch: scratch.range(),
            durable: io.fua,
        };
        let then = AfterIo::Both {
            first: compare,
            _scratch: scratch,
        };
        self.start_unless_busy(write, io.namespace, both, then, driver)
    }

    /// An I/O has succeeded, and with it the command.
    #[inline]
    pub(super) fn io_succeeded(&mut self, tag: Tag, data_len: u32, then: &AfterIo<CommandAnswer>) {
        if let AfterIo::Both { first: compare, .. } = then {
            self.core.link.machine.complete(*compare, done(0));
        }
        self.core.link.machine.complete(tag, done(data_len));
    }

    /// An I/O has failed, and with it the command.
    #[cold]
    pub(super) fn io_failed(
        &mut self,
        tag: Tag,
        at: (u32, u64),
        error: Error,
        then: &AfterIo<CommandAnswer>,
    ) {
        let (namespace, at) = at;
        let status = match error {
            Error::Busy => self.bound().activity.delay_retry(status_of(error)),
            _ => status_of(error),
        };
        match then {
            // Whichever of the two failed takes the other with it.
            AfterIo::Both { first: compare, .. } => {
                let (first, second) = match is_of_write(error) {
                    true => (Status::FUSED_FAILED, status),
                    false => (status, Status::FUSED_FAILED),
                };
                self.fail(*compare, first, namespace, at);
                self.fail(tag, second, namespace, at);
            }
            AfterIo::Steps(steps) => self.fail_with(tag, status, result_of(steps), namespace, at),
            AfterIo::Complete { .. } | AfterIo::Scratch { .. } => {
                self.fail(tag, status, namespace, at)
            }
        }
    }
}

/// Success, with this much data to the host.
#[inline]
fn done(data_len: u32) -> Done {
    Done {
        data_len,
        ..Done::default()
    }
}

/// Whether it was the Write of a Compare and Write that failed.
fn is_of_write(error: Error) -> bool {
    matches!(
        error,
        Error::ReadOnly | Error::OutOfSpace(_) | Error::WriteFailed(_) | Error::FlushFailed(_)
    )
}

/// The status that tells a host why its command failed.
pub(crate) fn status_of(error: Error) -> Status {
    match error {
        Error::OutOfRange => Status::LBA_OUT_OF_RANGE.dnr(),
        Error::ReadOnly => Status::WRITE_PROTECTED.dnr(),
        Error::OutOfSpace(_) => Status::CAPACITY_EXCEEDED.dnr(),
        Error::Miscompare { .. } => Status::COMPARE_FAILURE.dnr(),
        // Stays so until it is written: trying again is no use.
        Error::Unreadable => Status::UNRECOVERED_READ.dnr(),
        Error::ReadFailed(_) => Status::UNRECOVERED_READ,
        Error::WriteFailed(_) | Error::FlushFailed(_) => Status::WRITE_FAULT,
        Error::Busy => Status::COMMAND_INTERRUPTED,
    }
}
