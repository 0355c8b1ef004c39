//! Reads and writes, and what their failures are to an initiator.

use engine::OnVolumes as _;
use engine::blocks::WriteStart;
use iscsi::target::Task;
use machine::Tag;
use reactor::Driver;
use scsi::{IoKind, ScsiIo, Sense, Unit, asc, key};
use store::Error;
use store::meter::IoOp;

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
        (slot.op, slot.transfer_len) = (IoOp::Read, io.len);
        slot.data_in_len = expected.min(io.len as u32);
        let block_bytes = self.place(place).unit.block_bytes;
        let len = (expected.min(io.len as u32)).next_multiple_of(block_bytes);
        if len == 0 {
            self.io_succeeded(tag);
            return true;
        }
        // What is read with FUA must be durable (SBC-3, section 5.13).
        self.read_volume(tag, (place, io.offset), len, io.fua, driver)
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
        (slot.op, slot.transfer_len) = (IoOp::Write, io.len);
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
            self.io_succeeded(tag);
            return true;
        }
        match self.write_volume(tag, (place, io.offset), io.fua, driver) {
            WriteStart::Begun => true,
            WriteStart::Busy => false,
            WriteStart::NoBuffer => {
                // Nothing is received while it lies there: see `prepare`.
                self.no_room(tag);
                true
            }
        }
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
        Error::Unreadable | Error::ChecksumMismatch | Error::ReadFailed(_) | Error::EndsEarly => {
            Sense::unreadable(lba)
        }
        Error::WriteFailed(_) | Error::FlushFailed(_) => Sense::write_error(lba),
        Error::Locked => Sense::locked(),
        // A command that meets it here cannot wait any more.
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
