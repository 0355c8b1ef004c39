//! I/O commands of a connection, executed on its volumes.

use std::sync::Arc;

use link::Data;
use machine::Tag;
use mem::Buf;
use nvmf::command::{Io, IoKind};
use nvmf::tcp::controller::Done;
use reactor::Driver;
use store::{Error, Progress, Volume};
use wire::nvme::Status;

use crate::connection::Connection;
use crate::job::{Job, JobId, OnVolume, Work};
use crate::steps::{Step, Steps};
use crate::token::Subject;

/// A Verify of a volume that must read to find out does so in pieces of this.
const VERIFY_PIECE_BYTES: u32 = 128 << 10;

/// What is left to do when the volume has done its part.
pub(crate) enum Then {
    /// Complete, with this much data to the host.
    Complete { data_len: u32 },
    /// Complete; the buffer was the volume's to work with.
    Scratch { _buf: Buf },
    /// Complete the Compare, then the command itself, which is its Write.
    Fused { compare: Tag, _scratch: Buf },
    /// More to do, on this volume or others.
    Steps(Box<Steps>),
}

impl Then {
    /// Whether what is left will be done on this volume.
    pub(crate) fn touches(&self, volume: &Arc<dyn Volume>) -> bool {
        matches!(self, Then::Steps(steps) if steps.touches(volume))
    }
}

/// A job that goes on: its place, and when it began.
type Kept = Option<(JobId, u64)>;

impl Connection {
    /// Memory for data that arrives with `io`, or has all arrived (`staged`);
    /// `None` while there is none.
    #[inline]
    pub(crate) fn destination<D: Driver>(
        &self,
        io: &Io,
        len: u32,
        staged: bool,
        driver: &D,
    ) -> Option<Data> {
        if io.kind == IoKind::Write {
            if staged {
                return Some(Data::staged());
            }
            let volume = &self.volumes()[io.namespace as usize];
            if let Some(loan) = volume.borrow(io.offset, len) {
                return Some(Data::loan(loan));
            }
        }
        driver.pool().get(len).map(Data::owned)
    }

    /// Memory that is kept for commands that keep everything behind them from
    /// being received, `None` for any other.
    #[cold]
    pub(crate) fn spare_for<D: Driver>(&self, tag: Tag, len: u32, driver: &D) -> Option<Data> {
        let is_in_the_way = self.link.machine.is_blocked_on(tag);
        let buf = is_in_the_way.then(|| driver.pool().get_spare(len))?;
        buf.map(Data::owned)
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
        let then = Then::Complete { data_len: 0 };
        self.start(tag, io.namespace, volume_io, then, driver);
        true
    }

    #[inline]
    fn read<D: Driver>(&mut self, tag: Tag, io: Io, driver: &mut D) -> bool {
        let len = io.len as u32;
        let then = Then::Complete { data_len: len };
        let volume = &self.volumes()[io.namespace as usize];
        if let Some(loan) = volume.lend(io.offset, len) {
            self.link.set_data(tag, Data::loan(loan));
            self.finish(tag, io, Ok(()), then);
            return true;
        }
        let Some(buf) = driver.pool().get(len) else {
            return false;
        };
        let read = store::Io::Read {
            offset: io.offset,
            buf: buf.range(),
        };
        self.link.set_data(tag, Data::owned(buf));
        self.start(tag, io.namespace, read, then, driver);
        true
    }

    #[inline]
    fn write<D: Driver>(&mut self, tag: Tag, io: Io, driver: &mut D) -> bool {
        let then = Then::Complete { data_len: 0 };
        let volume = &self.volumes()[io.namespace as usize];
        if let Some(bytes) = self.link.staged(tag) {
            if let Some(result) = volume.write_now(io.offset, bytes) {
                if let Err(Error::Busy) = result {
                    return false;
                }
                self.finish(tag, io, result, then);
                return true;
            }
            let (pool, len) = (driver.pool(), bytes.len() as u32);
            let Some(buf) = pool.get(len).or_else(|| pool.get_spare(len)) else {
                return false;
            };
            mem::copy_in(buf.range(), bytes);
            self.link.set_data(tag, Data::owned(buf));
        }
        let mut data = self.link.take_data(tag);
        if let Some(loan) = data.loan_mut() {
            let result = self.volumes()[io.namespace as usize].commit(loan, io.offset);
            if let Err(Error::Busy) = result {
                self.link.set_data(tag, data);
                return false;
            }
            self.finish(tag, io, result, then);
            return true;
        }
        let write = store::Io::Write {
            offset: io.offset,
            buf: data.range().expect("a write has its data"),
            durable: io.fua,
        };
        self.link.set_data(tag, data);
        self.start_unless_busy(tag, io.namespace, write, then, driver)
    }

    /// The volume has done its part at once.
    #[inline]
    fn finish(&mut self, tag: Tag, io: Io, result: Result<(), Error>, then: Then) {
        let left = self.ended(tag, (io.namespace, io.offset), result, then);
        assert!(left.is_none(), "a read or write is one step");
    }

    fn compare<D: Driver>(&mut self, tag: Tag, io: Io, driver: &mut D) -> bool {
        let buf = self.link.range(tag).expect("a compare has its data");
        let (pool, len) = (driver.pool(), buf.len());
        let Some(scratch) = pool.get(len).or_else(|| pool.get_spare(len)) else {
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
            Then::Scratch { _buf: scratch },
            driver,
        );
        true
    }

    fn verify<D: Driver>(&mut self, tag: Tag, io: Io, driver: &mut D) -> bool {
        let piece = io.len.min(u64::from(VERIFY_PIECE_BYTES)) as u32;
        let Some(scratch) = driver.pool().get(piece) else {
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
            Then::Scratch { _buf: scratch },
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
        let (pool, len) = (driver.pool(), io.len as u32);
        let Some(scratch) = pool.get(len).or_else(|| pool.get_spare(len)) else {
            return false;
        };
        let both = store::Io::CompareAndWrite {
            offset: io.offset,
            compare: self.link.range(compare).expect("a compare has its data"),
            write: self.link.range(write).expect("a write has its data"),
            scratch: scratch.range(),
            durable: io.fua,
        };
        let then = Then::Fused {
            compare,
            _scratch: scratch,
        };
        self.start_unless_busy(write, io.namespace, both, then, driver)
    }

    /// Starts the only I/O of a command, or the first.
    #[inline]
    fn start<D: Driver>(
        &mut self,
        tag: Tag,
        namespace: u32,
        io: store::Io,
        then: Then,
        driver: &mut D,
    ) {
        let id = self.jobs.borrow_mut().vacant();
        let volume = &self.volumes()[namespace as usize];
        let progress = volume.start(io, driver, Subject::File(id).token());
        self.started(tag, namespace, io, then, progress, driver);
    }

    /// The same, but of a volume that has no memory for it now: false, nothing
    /// was done.
    #[inline]
    fn start_unless_busy<D: Driver>(
        &mut self,
        tag: Tag,
        namespace: u32,
        io: store::Io,
        then: Then,
        driver: &mut D,
    ) -> bool {
        let id = self.jobs.borrow_mut().vacant();
        let volume = &self.volumes()[namespace as usize];
        let progress = volume.start(io, driver, Subject::File(id).token());
        if let Progress::Done(Err(Error::Busy)) = progress {
            return false;
        }
        self.started(tag, namespace, io, then, progress, driver);
        true
    }

    #[inline]
    fn started<D: Driver>(
        &mut self,
        tag: Tag,
        namespace: u32,
        io: store::Io,
        then: Then,
        progress: Progress,
        driver: &mut D,
    ) {
        match progress {
            Progress::Done(result) => {
                let at = (namespace, io.extent().0);
                if let Some(steps) = self.ended(tag, at, result, then) {
                    self.go_on(tag, None, steps, driver);
                }
            }
            Progress::Pending(task) => {
                let on = OnVolume {
                    volume: self.volumes()[namespace as usize].clone(),
                    namespace,
                    offset: io.extent().0,
                    task,
                    then,
                };
                self.keep(tag, None, on);
            }
        }
    }

    /// Takes steps until one must be waited for, or none is left.
    pub(crate) fn go_on<D: Driver>(
        &mut self,
        tag: Tag,
        kept: Kept,
        mut steps: Box<Steps>,
        driver: &mut D,
    ) {
        while let Some(Step {
            namespace,
            volume,
            io,
        }) = steps.next()
        {
            let id = kept.map_or_else(|| self.jobs.borrow_mut().vacant(), |(id, _)| id);
            let offset = io.extent().0;
            match volume.start(io, driver, Subject::File(id).token()) {
                Progress::Pending(task) => {
                    let then = Then::Steps(steps);
                    let on = OnVolume {
                        volume,
                        namespace,
                        offset,
                        task,
                        then,
                    };
                    return self.keep(tag, kept, on);
                }
                Progress::Done(result) => {
                    match self.ended(tag, (namespace, offset), result, Then::Steps(steps)) {
                        Some(left) => steps = left,
                        None => return self.let_go(kept),
                    }
                }
            }
        }
        self.link.machine.complete(tag, done(0));
        self.let_go(kept);
    }

    /// The command waits for its volume.
    #[inline]
    fn keep(&mut self, tag: Tag, kept: Kept, on: OnVolume) {
        let work = Work::Volume(on);
        let mut jobs = self.jobs.borrow_mut();
        match kept {
            Some((id, mark)) => jobs.put_back(id, Job::new(self.id(), tag, mark, work)),
            None => {
                let id = jobs.vacant();
                jobs.insert(id, self.id(), tag, work);
                self.jobs_open += 1;
            }
        }
    }

    /// The command waits for nothing any more.
    #[inline]
    fn let_go(&mut self, kept: Kept) {
        if let Some((id, _)) = kept {
            self.jobs.borrow_mut().release(id);
            self.jobs_open -= 1;
        }
    }

    /// File work of a command completed.
    #[inline]
    pub(crate) fn on_file<D: Driver>(
        &mut self,
        id: JobId,
        job: Job,
        result: std::io::Result<u32>,
        driver: &mut D,
    ) {
        let Job {
            tag,
            mark,
            work: Work::Volume(on),
            ..
        } = job
        else {
            unreachable!("file work is a volume's");
        };
        let kept = Some((id, mark));
        let token = Subject::File(id).token();
        match on.volume.resume(on.task, result, driver, token) {
            Progress::Pending(task) => self.keep(tag, kept, OnVolume { task, ..on }),
            Progress::Done(result) => {
                match self.ended(tag, (on.namespace, on.offset), result, on.then) {
                    Some(steps) => self.go_on(tag, kept, steps, driver),
                    None => self.let_go(kept),
                }
            }
        }
    }

    /// An I/O on a volume is over: its command is completed, or there are
    /// steps left.
    #[inline]
    fn ended(
        &mut self,
        tag: Tag,
        (namespace, offset): (u32, u64),
        result: Result<(), Error>,
        then: Then,
    ) -> Option<Box<Steps>> {
        match (result, then) {
            (Ok(()), Then::Complete { data_len }) => {
                self.link.machine.complete(tag, done(data_len));
            }
            (Ok(()), Then::Scratch { .. }) => self.link.machine.complete(tag, done(0)),
            (Ok(()), Then::Fused { compare, .. }) => {
                self.link.machine.complete(compare, done(0));
                self.link.machine.complete(tag, done(0));
            }
            (Ok(()), Then::Steps(steps)) => return Some(steps),
            (Err(error), then) => self.failed(tag, namespace, offset, error, then),
        }
        None
    }

    /// An I/O on a volume failed, and with it the command.
    #[cold]
    fn failed(&mut self, tag: Tag, namespace: u32, offset: u64, error: Error, then: Then) {
        if is_failure(error) {
            self.log_failure(namespace, error);
        }
        let status = match error {
            Error::Busy => self.bound().activity.delay_retry(status_of(error)),
            _ => status_of(error),
        };
        let at = match error {
            Error::Miscompare { offset: byte } => offset + byte,
            _ => offset,
        };
        match then {
            // Whichever of the two failed takes the other with it.
            Then::Fused { compare, .. } => {
                let (first, second) = match is_of_write(error) {
                    true => (Status::FUSED_FAILED, status),
                    false => (status, Status::FUSED_FAILED),
                };
                self.fail(compare, first, namespace, at);
                self.fail(tag, second, namespace, at);
            }
            Then::Steps(steps) => self.fail_with(tag, status, steps.result(), namespace, at),
            Then::Complete { .. } | Then::Scratch { .. } => self.fail(tag, status, namespace, at),
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

/// Whether an administrator should hear of it.
fn is_failure(error: Error) -> bool {
    !matches!(
        error,
        Error::Miscompare { .. } | Error::Unreadable | Error::Busy
    )
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
