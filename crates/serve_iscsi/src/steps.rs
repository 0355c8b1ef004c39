//! Commands that are more than one plain read or write.

use std::sync::Arc;

use engine::blocks::AfterIo;
use engine::steps::{IoStep, StepPlan, Steps};
use engine::{About, Elsewhere as _, OnVolumes as _};
use faults::Fault;
use link::CommandMemory;
use machine::Tag;
use mem::{Buf, BufRange};
use reactor::Driver;
use scsi::{Check, IoKind, ScsiIo};
use store::Volume;
use store::meter::IoOp;
use store::reservation::{Grant, Registrant};

use super::{CommandAnswer, IscsiConnection, Later};

/// A verify of a volume that must read to find out does so in pieces of this.
const VERIFY_PIECE_BYTES: u32 = 128 << 10;

/// A block is written, or compared, over and over in pieces of this.
const PATTERN_PIECE_BYTES: u32 = 256 << 10;

/// With so many orphans on a reactor, a flush with IMMED is answered only when it is
/// done.
const UNAWAITED_MAX: usize = 64;

impl IscsiConnection {
    /// Executes what is neither a plain read nor a plain write; false while
    /// memory is short.
    pub(super) fn execute_steps<D: Driver>(
        &mut self,
        tag: Tag,
        place: u32,
        io: ScsiIo,
        driver: &mut D,
    ) -> bool {
        let ScsiIo {
            offset, len, fua, ..
        } = io;
        if len == 0 && !matches!(io.kind, IoKind::Flush { .. }) {
            self.complete_good(tag);
            return true;
        }
        match io.kind {
            IoKind::Read | IoKind::Write | IoKind::WriteAtomic => {
                unreachable!("reads and writes have their own way")
            }
            IoKind::WriteAndVerify { compare } => {
                self.write_and_verify(tag, place, offset, compare, driver)
            }
            IoKind::Verify(Check::Medium) => self.verify(tag, place, io, driver),
            IoKind::Verify(Check::Data) => self.compare(tag, place, offset, driver),
            IoKind::Verify(Check::SameBlock) => self.verify_same(tag, place, io, driver),
            IoKind::CompareAndWrite => self.compare_and_write(tag, place, io, driver),
            IoKind::OrWrite => self.or_write(tag, place, io, driver),
            IoKind::WriteSame { unmap, zeros } => {
                if zeros || self.data_out(tag).is_some_and(mem::is_zero) {
                    let zero = store::Io::Zero {
                        offset,
                        len,
                        deallocate: unmap,
                        durable: fua,
                    };
                    self.start(tag, place, zero, AfterIo::Complete { data_len: 0 }, driver);
                    return true;
                }
                self.write_same(tag, place, io, driver)
            }
            IoKind::Flush { immediate } => {
                self.slot(tag).op = IoOp::Flush;
                self.flush_volume(tag, place, immediate, driver);
                true
            }
            // Nothing was fetched, which is what GOOD says; CONDITION MET would
            // say that all of it was (SBC-3, section 5.9).
            IoKind::PreFetch => {
                self.complete_good(tag);
                true
            }
        }
    }

    /// The data that came with the command.
    fn data(&self, tag: Tag) -> BufRange {
        self.data_out(tag).expect("the data was asked for")
    }

    /// VERIFY without data (SBC-3, section 5.32): that it can be read.
    fn verify<D: Driver>(&mut self, tag: Tag, place: u32, io: ScsiIo, driver: &mut D) -> bool {
        let piece = io.len.min(u64::from(VERIFY_PIECE_BYTES)) as u32;
        let Some(scratch) = self.core.pool.get(piece) else {
            return false;
        };
        let verify = store::Io::Verify {
            offset: io.offset,
            len: io.len,
            scratch: scratch.range(),
        };
        let then = AfterIo::Scratch { _buf: scratch };
        self.start(tag, place, verify, then, driver);
        true
    }

    /// VERIFY with as much data.
    fn compare<D: Driver>(&mut self, tag: Tag, place: u32, offset: u64, driver: &mut D) -> bool {
        let buf = self.data(tag);
        let Some(scratch) = self.core.pool.get_to_finish(buf.len()) else {
            return false;
        };
        let compare = store::Io::Compare {
            offset,
            buf,
            scratch: scratch.range(),
        };
        let then = AfterIo::Scratch { _buf: scratch };
        self.start(tag, place, compare, then, driver);
        true
    }

    /// COMPARE AND WRITE (SBC-3, section 5.3): the first half of the data is what
    /// should be there, the second what shall be.
    fn compare_and_write<D: Driver>(
        &mut self,
        tag: Tag,
        place: u32,
        io: ScsiIo,
        driver: &mut D,
    ) -> bool {
        let (data, len) = (self.data(tag), io.len as u32);
        let Some(scratch) = self.core.pool.get_to_finish(len) else {
            return false;
        };
        let both = store::Io::CompareAndWrite {
            offset: io.offset,
            compare: data.slice(0, len),
            write: data.slice(len, len),
            scratch: scratch.range(),
            durable: io.fua,
        };
        let then = AfterIo::Scratch { _buf: scratch };
        self.start_unless_busy(tag, place, both, then, driver)
    }

    /// ORWRITE (SBC-3, section 5.7).
    fn or_write<D: Driver>(&mut self, tag: Tag, place: u32, io: ScsiIo, driver: &mut D) -> bool {
        let buf = self.data(tag);
        let Some(scratch) = self.core.pool.get_to_finish(buf.len()) else {
            return false;
        };
        let or_write = store::Io::OrWrite {
            offset: io.offset,
            buf,
            scratch: scratch.range(),
            durable: io.fua,
        };
        let then = AfterIo::Scratch { _buf: scratch };
        self.start_unless_busy(tag, place, or_write, then, driver)
    }

    /// WRITE AND VERIFY (SBC-3, section 5.36): what is verified is what a crash
    /// would leave.
    fn write_and_verify<D: Driver>(
        &mut self,
        tag: Tag,
        place: u32,
        offset: u64,
        compare: bool,
        driver: &mut D,
    ) -> bool {
        let buf = self.data(tag);
        let len = match compare {
            true => buf.len(),
            false => buf.len().min(VERIFY_PIECE_BYTES),
        };
        let Some(scratch) = self.core.pool.get_to_finish(len) else {
            return false;
        };
        let write = store::Io::Write {
            offset,
            buf,
            durable: true,
        };
        let verify = match compare {
            true => store::Io::Compare {
                offset,
                buf,
                scratch: scratch.range(),
            },
            false => store::Io::Verify {
                offset,
                len: buf.len().into(),
                scratch: scratch.range(),
            },
        };
        let ios = [write, verify].into_iter();
        let steps = Steps::on(place, &self.place(place).volume, ios, Some(scratch));
        self.go_on(tag, None, steps, driver);
        true
    }

    /// WRITE SAME of anything but zeros (SBC-3, section 5.42).
    fn write_same<D: Driver>(&mut self, tag: Tag, place: u32, io: ScsiIo, driver: &mut D) -> bool {
        let block = self.data(tag);
        let len = pattern_len(io.len, block.len());
        let Some(buf) = self.core.pool.get(len) else {
            return false;
        };
        fill(buf.range(), block);
        self.over_and_over(tag, place, io, (buf, len), driver);
        true
    }

    /// VERIFY of every block with the same one.
    fn verify_same<D: Driver>(&mut self, tag: Tag, place: u32, io: ScsiIo, driver: &mut D) -> bool {
        let block = self.data(tag);
        let len = pattern_len(io.len, block.len());
        // The second half is for volumes that must read.
        let Some(buf) = self.core.pool.get(2 * len) else {
            return false;
        };
        fill(buf.range().slice(0, len), block);
        self.over_and_over(tag, place, io, (buf, len), driver);
        true
    }

    fn over_and_over<D: Driver>(
        &mut self,
        tag: Tag,
        place: u32,
        io: ScsiIo,
        (buf, len): (Buf, u32),
        driver: &mut D,
    ) {
        let range = buf.range();
        let pattern = RepeatedBlock {
            place,
            volume: self.place(place).volume.clone(),
            registrant: self.registrant(),
            grant: Grant::default(),
            is_refused: false,
            io,
            done: 0,
            pattern: range.slice(0, len),
            scratch: range.slice(len, range.len() - len),
        };
        let steps = Steps::planned(Box::new(pattern), Some(buf));
        self.go_on(tag, None, steps, driver);
    }

    /// SYNCHRONIZE CACHE (SBC-3, section 5.29). With IMMED it is answered before
    /// it is done: a failure is told by the next one.
    fn flush_volume<D: Driver>(&mut self, tag: Tag, place: u32, immediate: bool, driver: &mut D) {
        if immediate && self.core.jobs.borrow().orphans() < UNAWAITED_MAX {
            let volume = self.place(place).volume.clone();
            self.start_unawaited(&volume, place, store::Io::Flush, driver);
            return self.complete_good(tag);
        }
        let then = AfterIo::Complete { data_len: 0 };
        self.start(tag, place, store::Io::Flush, then, driver);
    }

    /// UNMAP (SBC-3, section 5.30): all descriptors are checked before the first
    /// is touched.
    pub(super) fn unmap<D: Driver>(
        &mut self,
        tag: Tag,
        place: u32,
        list_len: u16,
        driver: &mut D,
    ) -> bool {
        let list = self.list(tag, list_len.into(), scsi::unmap::LIST_BYTES_MAX);
        let lun = self.place(place);
        let volume = lun.volume.clone();
        match scsi::unmap::parse(&list, &lun.unit) {
            Ok(ranges) => {
                let zeros = ranges.into_iter().map(|range| store::Io::Zero {
                    // It reads as zeros then (LBPRZ), whatever is below.
                    offset: range.offset,
                    len: range.len,
                    deallocate: true,
                    durable: false,
                });
                let flush = lun.unit.writes_through().then_some(store::Io::Flush);
                let steps = Steps::on(place, &volume, zeros.chain(flush), None);
                self.go_on(tag, None, steps, driver);
            }
            Err(sense) => self.check(tag, &sense),
        }
        true
    }

    /// A parameter list of `len` bytes, no more than `max` of which are looked
    /// at.
    pub(super) fn list(&self, tag: Tag, len: u32, max: u32) -> Vec<u8> {
        let len = len.min(max);
        let Some(range) = self.data_out(tag).filter(|_| len > 0) else {
            return Vec::new();
        };
        let len = len.min(range.len());
        let mut bytes = vec![0; len as usize];
        mem::copy_out(range.slice(0, len), &mut bytes);
        bytes
    }

    /// GET LBA STATUS (SBC-3, section 5.5), which may ask a file system.
    pub(super) fn get_lba_status(
        &mut self,
        tag: Tag,
        place: u32,
        offset: u64,
        allocation_len: u32,
    ) -> bool {
        let lun = self.place(place);
        let (volume, unit) = (lun.volume.clone(), lun.unit.clone());
        let Some(later) = self.later_with(tag, allocation_len) else {
            return false;
        };
        self.core
            .shared
            .blocking(About::question(&volume), move || {
                later.answer(lba_status(&*volume, &unit, offset, allocation_len));
            });
        true
    }

    /// For an answer from elsewhere, with `len` bytes at most, for which there
    /// must be room; `None` while there is none.
    pub(super) fn later_with(&mut self, tag: Tag, len: u32) -> Option<Later> {
        let buf = self.core.pool.get(len.clamp(1, ANSWER_BYTES_MAX))?;
        self.core.link.set_data(tag, CommandMemory::owned(buf));
        Some(self.later(tag))
    }
}

/// Bytes of an answer from elsewhere at most: as many as the longest
/// allocation length of two bytes.
pub(super) const ANSWER_BYTES_MAX: u32 = 64 << 10;

fn lba_status(
    volume: &dyn Volume,
    unit: &scsi::Unit,
    offset: u64,
    allocation_len: u32,
) -> CommandAnswer {
    let mut extents = Vec::new();
    let len = volume.size_bytes().saturating_sub(offset);
    let max = scsi::unmap::STATUS_DESCRIPTORS_MAX;
    if volume.extents(offset, len, max, &mut extents).is_err() || extents.is_empty() {
        // It has become smaller.
        return CommandAnswer::Check(scsi::Sense::out_of_range());
    }
    let is_there = |extent: &store::Extent| extent.allocated && !faults::is(Fault::NoExtents);
    let extents = extents.iter().map(|extent| (extent.len, is_there(extent)));
    let mut out = Vec::new();
    let allocation_len = allocation_len.min(ANSWER_BYTES_MAX);
    scsi::unmap::lba_status(unit, offset, extents, allocation_len, &mut out);
    CommandAnswer::Good(out)
}

/// Bytes of a piece in which `block` bytes repeat over `len` bytes.
fn pattern_len(len: u64, block: u32) -> u32 {
    let piece = PATTERN_PIECE_BYTES / block * block;
    len.min(u64::from(piece)) as u32
}

/// Fills `buf`, in whole blocks, with one block over and over.
fn fill(buf: BufRange, block: BufRange) {
    mem::copy(buf.slice(0, block.len()), block);
    let mut done = block.len();
    while done < buf.len() {
        let len = done.min(buf.len() - done);
        mem::copy(buf.slice(done, len), buf.slice(0, len));
        done += len;
    }
}

/// One block over and over: written, or compared.
struct RepeatedBlock {
    place: u32,
    volume: Arc<dyn Volume>,
    /// The registrant that asked, and what it may do: a reservation that excludes it
    /// ends the command between two pieces.
    registrant: Registrant,
    grant: Grant,
    is_refused: bool,
    io: ScsiIo,
    /// Bytes that are done, or begun.
    done: u64,
    /// The piece that is repeated.
    pattern: BufRange,
    /// As long as that where it is compared.
    scratch: BufRange,
}

impl StepPlan<CommandAnswer> for RepeatedBlock {
    fn next(&mut self) -> Option<IoStep> {
        let left = self.io.len - self.done;
        if left == 0 {
            return None;
        }
        let writes = matches!(self.io.kind, IoKind::WriteSame { .. });
        let access = self
            .volume
            .reservations()
            .access(&self.registrant, &mut self.grant);
        self.is_refused = !(access.read && (access.write || !writes));
        if self.is_refused {
            return None;
        }
        let len = left.min(self.pattern.len().into()) as u32;
        let offset = self.io.offset + self.done;
        self.done += u64::from(len);
        let buf = self.pattern.slice(0, len);
        let io = match writes {
            true => store::Io::Write {
                offset,
                buf,
                durable: self.io.fua,
            },
            false => store::Io::Compare {
                offset,
                buf,
                scratch: self.scratch.slice(0, len),
            },
        };
        Some(IoStep {
            unit: self.place,
            volume: self.volume.clone(),
            io: io.into(),
        })
    }

    fn touches(&self, volume: &Arc<dyn Volume>) -> bool {
        self.done < self.io.len && Arc::ptr_eq(&self.volume, volume)
    }

    fn verdict(&mut self) -> Option<CommandAnswer> {
        (self.is_refused).then_some(CommandAnswer::Status(scsi::status::RESERVATION_CONFLICT))
    }
}
