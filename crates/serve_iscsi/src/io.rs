//! Reads and writes, and what their failures are to an initiator.

use engine::OnVolumes as _;
use engine::blocks::AfterIo;
use engine::steps::{IoStep, Steps};
use iscsi::target::Task;
use link::CommandMemory;
use machine::Tag;
use mem::{BUF_BYTES_MAX, BufRange};
use reactor::Driver;
use scsi::{IoKind, ScsiIo, Sense, Unit, asc, key};
use store::Error;

use super::IscsiConnection;
use super::task::written;

impl IscsiConnection {
    /// READ, of as much as the initiator expects. False while memory is short.
    #[inline]
    pub(super) fn read<D: Driver>(
        &mut self,
        tag: Tag,
        task: &Task,
        place: u32,
        io: ScsiIo,
        driver: &mut D,
    ) -> bool {
        let expected = if task.read { task.edtl } else { 0 };
        let slot = self.slot(tag);
        slot.transfer_len = io.len;
        slot.data_in_len = expected.min(io.len as u32);
        let lun = self.place(place);
        let block_bytes = lun.unit.block_bytes;
        let len = (expected.min(io.len as u32)).next_multiple_of(block_bytes);
        if len == 0 {
            self.succeed(tag);
            return true;
        }
        let must_flush = io.fua && lun.unit.volatile_cache;
        if !must_flush && let Some(loan) = lun.volume.lend(io.offset, len) {
            self.core.link.set_data(tag, CommandMemory::loan(loan));
            self.succeed(tag);
            return true;
        }
        let Some(data) = self.memory(len) else {
            return false;
        };
        self.core.link.set_data(tag, data);
        let offset = io.offset;
        if must_flush || len > BUF_BYTES_MAX {
            // What is read must be durable (SBC-3, section 5.13).
            let flush = must_flush.then_some(store::Io::Flush);
            let read = |offset, buf| store::Io::Read { offset, buf };
            self.run_in_pieces(tag, (place, offset), flush, read, driver);
            return true;
        }
        let buf = self.core.link.range(tag).expect("one buffer");
        let read = store::Io::Read { offset, buf };
        self.start(
            tag,
            place,
            read,
            AfterIo::Complete { data_len: len },
            driver,
        );
        true
    }

    /// One I/O for each buffer of a command's data, after the `first` one.
    fn run_in_pieces<D: Driver>(
        &mut self,
        tag: Tag,
        (place, offset): (u32, u64),
        first: Option<store::Io>,
        io: impl Fn(u64, BufRange) -> store::Io,
        driver: &mut D,
    ) {
        let pieces = (offset..).step_by(BUF_BYTES_MAX as usize);
        let pieces = pieces.zip(self.core.link.ranges(tag));
        let all = first.into_iter().chain(pieces.map(|(at, buf)| io(at, buf)));
        let volume = &self.place(place).volume;
        let steps = all.map(|io| IoStep {
            unit: place,
            volume: volume.clone(),
            io,
        });
        let steps = Steps::new(steps.collect(), None);
        self.go_on(tag, None, steps, driver);
    }

    /// WRITE, of as much as the initiator announces. False while memory is short.
    #[inline]
    pub(super) fn write<D: Driver>(
        &mut self,
        tag: Tag,
        task: &Task,
        place: u32,
        io: ScsiIo,
        driver: &mut D,
    ) -> bool {
        let slot = self.slot(tag);
        slot.transfer_len = io.len;
        let want = slot.want;
        let lun = self.place(place);
        let block_bytes = lun.unit.block_bytes;
        let sent = if task.write { task.edtl } else { 0 };
        // Half of an atomic write is what it must never be.
        let is_half = io.kind == IoKind::WriteAtomic && u64::from(sent) < io.len;
        let written = match written(io.len, sent.into(), block_bytes) {
            Ok(written) if !is_half => written,
            _ => {
                self.refuse_length(tag, &short_data());
                return true;
            }
        };
        if u64::from(want) != written {
            // It was to be refused when its data was about to come.
            self.status(tag, scsi::status::BUSY);
            return true;
        }
        if want == 0 {
            self.succeed(tag);
            return true;
        }
        let at = (place, io.offset);
        if want > BUF_BYTES_MAX {
            let write = |offset, buf| store::Io::Write {
                offset,
                buf,
                durable: io.fua,
            };
            self.run_in_pieces(tag, at, None, write, driver);
            return true;
        }
        let then = AfterIo::Complete { data_len: 0 };
        if let Some(bytes) = self.core.link.staged(tag) {
            if let Some(result) = lun.volume.write_now(io.offset, bytes) {
                if let Err(Error::Busy) = result {
                    return false;
                }
                self.finish(tag, at, result, then);
                return true;
            }
            let Some(buf) = self.core.pool.get_to_finish(bytes.len() as u32) else {
                // Nothing is received while it lies there: see `prepare`.
                self.no_room(tag);
                return true;
            };
            mem::copy_in(buf.range(), bytes);
            self.core.link.set_data(tag, CommandMemory::owned(buf));
        }
        let mut data = self.core.link.take_data(tag);
        if let Some(loan) = data.loan_mut() {
            let result = self.place(place).volume.commit(loan, io.offset);
            if let Err(Error::Busy) = result {
                self.core.link.set_data(tag, data);
                return false;
            }
            self.finish(tag, at, result, then);
            return true;
        }
        let write = store::Io::Write {
            offset: io.offset,
            buf: data.range().expect("a write has its data"),
            durable: io.fua,
        };
        self.core.link.set_data(tag, data);
        self.start_unless_busy(tag, place, write, then, driver)
    }

    /// An I/O has failed at a byte of the volume at a place, and with it the
    /// command.
    #[cold]
    pub(super) fn io_failed(&mut self, tag: Tag, (place, at): (u32, u64), error: Error) {
        if let Error::Busy = error {
            return self.no_room(tag);
        }
        let lun = self.bound().served.at(place);
        let sense = sense_of(error, lun.map(|lun| &*lun.unit), at);
        self.check(tag, &sense);
    }
}

/// What tells an initiator why its command failed at a byte of a unit.
pub(super) fn sense_of(error: Error, unit: Option<&Unit>, at: u64) -> Sense {
    let lba = unit.map(|unit| at / u64::from(unit.block_bytes));
    match error {
        Error::OutOfRange => Sense::out_of_range(),
        Error::ReadOnly => Sense::write_protected(),
        Error::OutOfSpace(_) => Sense::out_of_space(),
        Error::Miscompare { offset } => Sense::miscompare(offset),
        Error::Unreadable | Error::ReadFailed(_) => Sense::unreadable(lba),
        Error::WriteFailed(_) | Error::FlushFailed(_) => Sense::write_error(lba),
        // Who meets it here cannot wait any more.
        Error::Busy => internal_failure(),
    }
}

/// Our own failure.
pub(super) fn internal_failure() -> Sense {
    Sense::new(key::HARDWARE_ERROR, asc::INTERNAL_TARGET_FAILURE)
}

/// The initiator does not send what the CDB says (SAM-5, section 5.4.2).
#[cold]
pub(super) fn short_data() -> Sense {
    Sense::illegal(asc::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT)
}
