//! I/O commands of a connection, executed on its volumes.

use engine::OnVolumes as _;
use engine::blocks::{AfterIo, WriteStart};
use engine::payload;
use engine::steps::Steps;
use link::CommandMemory;
use machine::Tag;
use mem::Buf;
use nvmf::command::{Command, Io, IoKind};
use nvmf::queue::{ControllerEnd as _, Done};
use reactor::Driver;
use store::Error;
use wire::nvme::Status;

use super::{CommandAnswer, NvmeConnection};

/// A Verify of a volume that must read to find out does so in pieces of this.
const VERIFY_PIECE_BYTES: u32 = 128 << 10;

impl NvmeConnection {
    /// Memory for data that arrives with `io`, or has all arrived (`staged`);
    /// `None` while there is none.
    #[inline]
    pub(crate) fn destination(&self, io: &Io, len: u32, staged: bool) -> Option<CommandMemory> {
        let volume = &self.volumes()[io.namespace as usize];
        let loan = match io.kind {
            IoKind::Write if staged => return Some(CommandMemory::staged()),
            IoKind::Write => volume.borrow(io.offset, len),
            _ => None,
        };
        payload::destination(loan, &self.core.pool, len)
    }

    /// Executes a command all of which is here; false while memory is short.
    #[inline]
    pub(crate) fn execute_io<D: Driver>(&mut self, tag: Tag, io: Io, driver: &mut D) -> bool {
        if !self.may_execute(&io) {
            self.conflict(tag, &io);
            return true;
        }
        let at = (io.namespace, io.offset);
        match io.kind {
            IoKind::Read => self.read_volume(tag, at, io.len as u32, io.fua, driver),
            IoKind::Write => {
                let begun = self.write_volume(tag, at, io.fua, driver);
                matches!(begun, WriteStart::Begun)
            }
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
        self.look_at_medium(tag, io, compare, scratch, driver);
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
        self.look_at_medium(tag, io, verify, scratch, driver);
        true
    }

    /// Starts what reads without data to the host. With FUA that is on the medium when the
    /// command ends (NVM Command Set 1.0, sections 3.2.1 and 3.2.5), as in
    /// [`engine::OnVolumes::read_volume`].
    fn look_at_medium<D: Driver>(
        &mut self,
        tag: Tag,
        io: Io,
        look: store::Io,
        scratch: Buf,
        driver: &mut D,
    ) {
        let volume = &self.volumes()[io.namespace as usize];
        if io.fua && volume.info().volatile_cache {
            let both = [look, store::Io::Flush].into_iter();
            let steps = Steps::on(io.namespace, volume, both, Some(scratch));
            return self.go_on(tag, None, steps, driver);
        }
        let then = AfterIo::Scratch { _buf: scratch };
        self.start(tag, io.namespace, look, then, driver);
    }

    /// What a fused pair does.
    pub(super) fn fused(&self, write: Tag) -> Io {
        match *self.command(write) {
            Command::Io(io) => io,
            _ => unreachable!("the second of a pair is a Write"),
        }
    }

    /// A fused Compare and Write, all data of both here (Base 2.0, section
    /// 3.4.2): one step of the volume. False while memory is short.
    pub(crate) fn execute_fused<D: Driver>(
        &mut self,
        compare: Tag,
        write: Tag,
        driver: &mut D,
    ) -> bool {
        let io = self.fused(write);
        tracing::debug!(peer = %self.core.via.peer, compare, write, ?io, "execute");
        if !self.may_execute(&io) {
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
            AfterIo::Steps(steps) => self.fail_with(tag, status, steps.failed_at(), namespace, at),
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
        Error::Unreadable | Error::ChecksumMismatch => Status::UNRECOVERED_READ.dnr(),
        Error::ReadFailed(_) | Error::EndsEarly => Status::UNRECOVERED_READ,
        Error::WriteFailed(_) | Error::FlushFailed(_) => Status::WRITE_FAULT,
        // It may be unlocked.
        Error::Locked => Status::NAMESPACE_NOT_READY,
        Error::Busy => Status::COMMAND_INTERRUPTED,
    }
}
