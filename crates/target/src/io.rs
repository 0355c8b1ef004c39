//! I/O commands of a connection, executed on its volumes.

use link::Data;
use machine::Tag;
use mem::{Buf, BufRange};
use nvmf::command::{Io, IoKind, deallocate_ranges};
use nvmf::tcp::controller::Done;
use reactor::Driver;
use store::{Access, Error, Progress, Task};
use wire::nvme::{DSM_RANGES_MAX, DsmRange, Status};

use crate::connection::Connection;
use crate::token::Subject;

/// A command whose volume is still at it.
pub(crate) struct Job {
    volume: u32,
    /// First byte of what the volume is at.
    offset: u64,
    task: Task,
    then: Then,
}

/// What is left to do when the volume has done its part.
pub(crate) enum Then {
    /// Complete, with this much data to the host.
    Complete { data_len: u32 },
    /// Compare what was read with the command's data; the buffer holds it
    /// where it is not the volume's own memory.
    Compare(BufRange, Option<Buf>),
    /// More of the same, last one first.
    Next(Vec<store::Io>),
}

impl Connection {
    /// Memory for data that arrives with `io`; `None` while there is none.
    pub(crate) fn destination<D: Driver>(&self, io: &Io, len: u32, driver: &D) -> Option<Data> {
        // A digest is checked before anything reaches the volume.
        if io.kind == IoKind::Write && !self.data_digest() {
            let volume = &self.volumes()[io.namespace as usize];
            if let Some(range) = volume.memory(Access::Write, io.offset, len) {
                return Some(Data::lent(range));
            }
        }
        driver.pool().get(len).map(Data::owned)
    }

    /// Executes a command all of which is here; false while memory is short.
    #[inline]
    pub(crate) fn execute_io<D: Driver>(&mut self, tag: Tag, io: Io, driver: &mut D) -> bool {
        match io.kind {
            IoKind::Read => self.read(tag, io, driver),
            IoKind::Write => {
                self.write(tag, io, driver);
                true
            }
            IoKind::Compare => self.compare(tag, io, driver),
            IoKind::Flush => {
                let then = Then::Complete { data_len: 0 };
                self.start(tag, io.namespace, store::Io::Flush, then, driver);
                true
            }
            IoKind::WriteZeroes => {
                let zero = store::Io::Zero {
                    offset: io.offset,
                    len: io.len,
                    deallocate: io.deallocate,
                    durable: io.fua,
                };
                self.start(
                    tag,
                    io.namespace,
                    zero,
                    Then::Complete { data_len: 0 },
                    driver,
                );
                true
            }
            IoKind::Deallocate => {
                self.deallocate(tag, io, driver);
                true
            }
            IoKind::CompareAndWrite
            | IoKind::Verify
            | IoKind::WriteUncorrectable
            | IoKind::Copy
            | IoKind::FlushAll => {
                self.refuse(tag);
                true
            }
        }
    }

    #[inline]
    fn read<D: Driver>(&mut self, tag: Tag, io: Io, driver: &mut D) -> bool {
        let len = io.len as u32;
        let lent = self.volumes()[io.namespace as usize].memory(Access::Read, io.offset, len);
        let (data, buf) = match lent {
            Some(range) if self.data_digest() => {
                // Another host may write the volume between the digest and
                // the send, so the data must stand still.
                let Some(copy) = driver.pool().get(len) else {
                    return false;
                };
                let crc = mem::copy_crc(copy.range(), range, 0);
                let mut data = Data::owned(copy);
                data.crc = Some(crc);
                (data, range)
            }
            Some(range) => (Data::lent(range), range),
            None => {
                let Some(buf) = driver.pool().get(len) else {
                    return false;
                };
                let range = buf.range();
                (Data::owned(buf), range)
            }
        };
        self.link.set_data(tag, data);
        let read = store::Io::Read {
            offset: io.offset,
            buf,
        };
        self.start(
            tag,
            io.namespace,
            read,
            Then::Complete { data_len: len },
            driver,
        );
        true
    }

    #[inline]
    fn write<D: Driver>(&mut self, tag: Tag, io: Io, driver: &mut D) {
        let mut buf = self.link.range(tag).expect("a write has its data");
        let volume = &self.volumes()[io.namespace as usize];
        if let Some(range) = volume.memory(Access::Write, io.offset, buf.len())
            && range != buf
        {
            mem::copy(range, buf);
            buf = range;
        }
        let write = store::Io::Write {
            offset: io.offset,
            buf,
            durable: io.fua,
        };
        self.start(
            tag,
            io.namespace,
            write,
            Then::Complete { data_len: 0 },
            driver,
        );
    }

    fn compare<D: Driver>(&mut self, tag: Tag, io: Io, driver: &mut D) -> bool {
        let len = io.len as u32;
        let lent = self.volumes()[io.namespace as usize].memory(Access::Read, io.offset, len);
        let (buf, hold) = match lent {
            Some(range) => (range, None),
            None => match driver.pool().get(len) {
                Some(buf) => (buf.range(), Some(buf)),
                None => return false,
            },
        };
        let read = store::Io::Read {
            offset: io.offset,
            buf,
        };
        self.start(tag, io.namespace, read, Then::Compare(buf, hold), driver);
        true
    }

    /// Dataset Management with the deallocate attribute: the ranges are the
    /// command's data (NVM Command Set 1.0, section 3.2.3). All are checked
    /// before the first is touched.
    fn deallocate<D: Driver>(&mut self, tag: Tag, io: Io, driver: &mut D) {
        let data = self.link.range(tag).expect("the ranges have arrived");
        let mut bytes = [0; DSM_RANGES_MAX as usize * size_of::<DsmRange>()];
        let bytes = &mut bytes[..io.len as usize];
        mem::copy_out(data.slice(0, io.len as u32), bytes);
        let geometry = self.geometry(io.namespace);
        let holes: Result<Vec<_>, Status> = deallocate_ranges(bytes, &geometry)
            .filter(|range| !matches!(range, Ok((_, 0))))
            .map(|range| range.map(|(offset, len)| store::Io::Deallocate { offset, len }))
            .collect();
        match holes {
            Ok(holes) => self.next(tag, io.namespace, holes, driver),
            Err(status) => self.fail(tag, status, io.namespace, 0),
        }
    }

    /// Starts the last of `rest`, or completes when there is none.
    fn next<D: Driver>(&mut self, tag: Tag, volume: u32, mut rest: Vec<store::Io>, driver: &mut D) {
        match rest.pop() {
            Some(io) => self.start(tag, volume, io, Then::Next(rest), driver),
            None => self.link.machine.complete(tag, done(0)),
        }
    }

    #[inline]
    fn start<D: Driver>(
        &mut self,
        tag: Tag,
        volume: u32,
        io: store::Io,
        then: Then,
        driver: &mut D,
    ) {
        let token = Subject::File(self.id(), tag).token();
        let (offset, _) = io.extent();
        let progress = self.volumes()[volume as usize].start(io, driver, token);
        self.progress(tag, (volume, offset), progress, then, driver);
    }

    /// File work of a command completed.
    pub(crate) fn on_file<D: Driver>(
        &mut self,
        tag: Tag,
        result: std::io::Result<u32>,
        driver: &mut D,
    ) {
        let job = self.take_job(tag);
        let token = Subject::File(self.id(), tag).token();
        let volume = &self.volumes()[job.volume as usize];
        let progress = volume.resume(job.task, result, driver, token);
        self.progress(tag, (job.volume, job.offset), progress, job.then, driver);
    }

    #[inline]
    fn progress<D: Driver>(
        &mut self,
        tag: Tag,
        (volume, offset): (u32, u64),
        progress: Progress,
        then: Then,
        driver: &mut D,
    ) {
        match (progress, then) {
            (Progress::Done(Ok(())), Then::Complete { data_len }) => {
                self.link.machine.complete(tag, done(data_len));
            }
            (Progress::Done(Ok(())), Then::Compare(stored, _hold)) => {
                let data = self.link.range(tag).expect("a compare has its data");
                if mem::equal(data, stored) {
                    self.link.machine.complete(tag, done(0));
                } else {
                    self.fail(tag, Status::COMPARE_FAILURE.dnr(), volume, offset);
                }
            }
            (Progress::Done(Ok(())), Then::Next(rest)) => self.next(tag, volume, rest, driver),
            (Progress::Done(Err(error)), _) => {
                self.log_failure(volume, error);
                self.fail(tag, status_of(error), volume, offset);
            }
            (Progress::Pending(task), then) => self.put_job(
                tag,
                Job {
                    volume,
                    offset,
                    task,
                    then,
                },
            ),
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

/// The status that tells a host why its command failed.
fn status_of(error: Error) -> Status {
    match error {
        Error::OutOfRange => Status::LBA_OUT_OF_RANGE.dnr(),
        Error::ReadOnly => Status::WRITE_PROTECTED.dnr(),
        Error::OutOfSpace(_) => Status::CAPACITY_EXCEEDED.dnr(),
        Error::ReadFailed(_) => Status::UNRECOVERED_READ,
        Error::WriteFailed(_) | Error::FlushFailed(_) => Status::WRITE_FAULT,
        Error::Miscompare { .. } => Status::COMPARE_FAILURE.dnr(),
        Error::Unreadable => Status::UNRECOVERED_READ.dnr(),
        Error::Busy => Status::COMMAND_INTERRUPTED,
    }
}
