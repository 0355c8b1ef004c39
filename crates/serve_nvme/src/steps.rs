//! Commands that take several I/Os, on one volume or many: Dataset Management,
//! Copy, and Flush of everything.

use engine::OnVolumes as _;
use engine::blocks::AfterIo;
use engine::steps::{IoStep, Steps};
use faults::Fault;
use machine::Tag;
use mem::BufRange;
use nvmf::command::{COPY_DESCRIPTOR_BYTES_MAX, CopyRange, Io, copy_ranges, deallocate_ranges};
use reactor::Driver;
use wire::nvme::{DSM_RANGES_MAX, DsmRange, Status};

use super::{Bound, CommandAnswer, NvmeConnection, ServedSubsystem};

/// Each source range of a Copy is read whole, then written.
const STEPS_A_RANGE: u32 = 2;

/// Dword 0 of a completion that failed at the last step begun: of a Copy the
/// number of the source range that was not copied (NVM Command Set 1.0, section
/// 3.2.2), else 0.
pub(super) fn result_of(steps: &Steps<CommandAnswer>) -> u64 {
    match steps.has_buf() {
        true => u64::from(steps.begun().saturating_sub(1) / STEPS_A_RANGE),
        false => 0,
    }
}

impl NvmeConnection {
    /// Dataset Management with the deallocate attribute: the ranges are the
    /// command's data (NVM Command Set 1.0, section 3.2.3). All are checked
    /// before the first is touched.
    pub(crate) fn deallocate<D: Driver>(&mut self, tag: Tag, io: Io, driver: &mut D) {
        if !io.deallocate {
            // Hints, which need no look at the ranges.
            let then = AfterIo::Complete { data_len: 0 };
            return self.finish(tag, (io.namespace, 0), Ok(()), then, driver);
        }
        let mut bytes = [0; DSM_RANGES_MAX as usize * size_of::<DsmRange>()];
        let bytes = self.descriptors(tag, io.len, &mut bytes);
        let (namespace, geometry) = (io.namespace, self.geometry(io.namespace));
        if let Some(status) = deallocate_ranges(bytes, &geometry).find_map(Result::err) {
            return self.fail(tag, status, namespace, 0);
        }
        // The ranges stay where they lie, which is a part of `memory_max`.
        let data = self.core.link.range(tag).expect("the ranges have arrived");
        let ios = (0..io.len as u32)
            .step_by(size_of::<DsmRange>())
            .filter_map(move |at| {
                let mut bytes = [0; size_of::<DsmRange>()];
                mem::copy_out(data.slice(at, size_of::<DsmRange>() as u32), &mut bytes);
                let range = deallocate_ranges(&bytes, &geometry).next()?.ok();
                let (offset, len) = range.filter(|(_, len)| *len > 0)?;
                Some(store::Io::Deallocate { offset, len })
            });
        let steps = Steps::on(namespace, &self.volumes()[namespace as usize], ios, None);
        self.go_on(tag, None, steps, driver);
    }

    /// Flush of every namespace (Base 2.0, section 7.1, with NSID FFFFFFFFh).
    pub(crate) fn flush_all<D: Driver>(&mut self, tag: Tag, driver: &mut D) {
        let ServedSubsystem {
            geometry, volumes, ..
        } = self.bound().served.clone();
        let flush = move |at: u32| {
            let is_there = geometry[at as usize].nsid != 0;
            is_there.then(|| IoStep {
                unit: at,
                volume: volumes[at as usize].clone(),
                io: store::Io::Flush,
            })
        };
        let steps = Steps::numbered(self.volumes().len() as u32, flush, None);
        self.go_on(tag, None, steps, driver);
    }

    /// Copy (NVM Command Set 1.0, section 3.2.2), one source range after the
    /// other through one buffer, each written as one I/O. False while memory is
    /// short.
    pub(crate) fn copy<D: Driver>(&mut self, tag: Tag, io: Io, driver: &mut D) -> bool {
        let mut bytes = [0; COPY_DESCRIPTOR_BYTES_MAX];
        let bytes = self.descriptors(tag, io.len, &mut bytes);
        let mut ranges = Vec::new();
        let Bound {
            activity, served, ..
        } = self.bound();
        let checked = match activity.allows_copy_format(io.copy_format) {
            true => copy_ranges(bytes, &io, &served.geometry, &mut ranges),
            false => Err(Status::INVALID_FIELD.dnr()),
        };
        if let Err(status) = checked {
            // Nothing was copied: the first range that was not is 0.
            self.fail(tag, status, io.namespace, io.offset);
            return true;
        }
        // What it writes was looked at before.
        if !ranges.iter().all(|range| self.may_read(range.namespace)) {
            self.conflict(tag, &io);
            return true;
        }
        let largest = ranges.iter().map(|range| range.len).max().unwrap_or(0);
        let Some(buf) = self.core.pool.get(largest as u32) else {
            return false;
        };
        let mut count = ranges.len() as u32 * STEPS_A_RANGE;
        if count > 2 && faults::is(Fault::ShortCopy) {
            count -= 1;
        }
        let make = self.copy_steps(io, &ranges, buf.range());
        let steps = Steps::numbered(count, make, Some(buf));
        self.go_on(tag, None, steps, driver);
        true
    }

    /// The steps of a Copy by their numbers: of each range it reads, then writes.
    fn copy_steps(
        &self,
        io: Io,
        ranges: &[CopyRange],
        buf: BufRange,
    ) -> impl Fn(u32) -> Option<IoStep> + use<> {
        let volumes = self.bound().served.volumes.clone();
        let mut to = io.offset;
        let ranges = Box::from_iter(ranges.iter().map(|range| {
            to += range.len;
            (*range, to - range.len)
        }));
        move |at| {
            let (range, to) = ranges[(at / STEPS_A_RANGE) as usize];
            let buf = buf.slice(0, range.len as u32);
            let is_read = at.is_multiple_of(STEPS_A_RANGE);
            let (unit, volume, io) = match is_read {
                true => {
                    let offset = range.offset;
                    let source = match faults::is(Fault::OneVolume) {
                        true => io.namespace,
                        false => range.namespace,
                    };
                    (range.namespace, source, store::Io::Read { offset, buf })
                }
                false => {
                    let durable = io.fua;
                    let write = store::Io::Write {
                        offset: to,
                        buf,
                        durable,
                    };
                    (io.namespace, io.namespace, write)
                }
            };
            let volume = volumes[volume as usize].clone();
            Some(IoStep { unit, volume, io })
        }
    }

    /// The first `len` bytes of a command's data, which are its ranges.
    fn descriptors<'a>(&self, tag: Tag, len: u64, bytes: &'a mut [u8]) -> &'a [u8] {
        let data = self.core.link.range(tag).expect("the ranges have arrived");
        let bytes = &mut bytes[..len as usize];
        mem::copy_out(data.slice(0, len as u32), bytes);
        bytes
    }
}
