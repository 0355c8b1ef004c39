//! Commands that take several I/Os, on one volume or many: Dataset Management,
//! Copy, and Flush of everything.

use std::sync::Arc;

use engine::OnVolumes as _;
use engine::blocks::AfterIo;
use engine::steps::{IoStep, StepIo, StepPlan, Steps};
use faults::Fault;
use machine::Tag;
use mem::BufRange;
use nvmf::command::{COPY_DESCRIPTOR_BYTES_MAX, CopyRange, Io, copy_ranges, deallocate_ranges};
use reactor::Driver;
use store::{ReferenceCopy, Volume};
use wire::nvme::{DSM_RANGES_MAX, DsmRange, Status};

use super::{Bound, CommandAnswer, NvmeConnection, ServedSubsystem};

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
                io: store::Io::Flush.into(),
            })
        };
        let steps = Steps::numbered(self.volumes().len() as u32, flush, None);
        self.go_on(tag, None, steps, driver);
    }

    /// Copy (NVM Command Set 1.0, section 3.2.2), one source range after the
    /// other: by reference, or through one buffer, each written as one I/O. False while
    /// memory is short.
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
        if faults::is(Fault::ShortCopy) && ranges.len() > 1 {
            ranges.pop();
        }
        let copying = RangeCopy {
            volumes: self.bound().served.volumes.clone(),
            to: io,
            ranges,
            at: 0,
            to_offset: io.offset,
            step: RangeStep::Share,
            share: None,
            buf: buf.range(),
        };
        let steps = Steps::planned(Box::new(copying), Some(buf));
        self.go_on(tag, None, steps, driver);
        true
    }

    /// The first `len` bytes of a command's data, which are its ranges.
    fn descriptors<'a>(&self, tag: Tag, len: u64, bytes: &'a mut [u8]) -> &'a [u8] {
        let data = self.core.link.range(tag).expect("the ranges have arrived");
        let bytes = &mut bytes[..len as usize];
        mem::copy_out(data.slice(0, len as u32), bytes);
        bytes
    }
}

/// How far the source range is that is copied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RangeStep {
    /// It is to be taken by reference.
    Share,
    /// That has not been done: it is to be read whole.
    Read,
    /// And to be written as one I/O.
    Write,
}

/// A Copy under way, one source range after the other.
struct RangeCopy {
    volumes: Arc<[Arc<dyn Volume>]>,
    /// The command.
    to: Io,
    ranges: Vec<CopyRange>,
    /// The range that is copied, and where it goes.
    at: usize,
    to_offset: u64,
    step: RangeStep,
    share: Option<Arc<ReferenceCopy>>,
    buf: BufRange,
}

impl RangeCopy {
    fn source(&self, range: &CopyRange) -> u32 {
        match faults::is(Fault::OneVolume) {
            true => self.to.namespace,
            false => range.namespace,
        }
    }

    /// The range is copied.
    fn pass(&mut self) {
        self.to_offset += self.ranges[self.at].len;
        self.at += 1;
        self.step = RangeStep::Share;
    }
}

impl StepPlan<CommandAnswer> for RangeCopy {
    fn next(&mut self) -> Option<IoStep> {
        if self.share.take().is_some_and(|share| share.is_done()) {
            self.pass();
        }
        let range = *self.ranges.get(self.at)?;
        let volume = |namespace: u32| &self.volumes[namespace as usize];
        let (source, goal) = (volume(self.source(&range)), volume(self.to.namespace));
        let (offset, buf) = (range.offset, self.buf.slice(0, range.len as u32));
        let (unit, volume, io) = match self.step {
            RangeStep::Share => {
                self.step = RangeStep::Read;
                let to = (goal, self.to_offset);
                let Some(share) =
                    ReferenceCopy::new((source, offset), to, range.len, self.to.fua, None)
                else {
                    return self.next();
                };
                let goal = goal.clone();
                self.share = Some(share.clone());
                (self.to.namespace, goal, StepIo::ReferenceCopy(share))
            }
            RangeStep::Read => {
                self.step = RangeStep::Write;
                let read = store::Io::Read { offset, buf };
                (range.namespace, source.clone(), read.into())
            }
            RangeStep::Write => {
                let write = store::Io::Write {
                    offset: self.to_offset,
                    buf,
                    durable: self.to.fua,
                };
                let goal = goal.clone();
                self.pass();
                (self.to.namespace, goal, write.into())
            }
        };
        Some(IoStep { unit, volume, io })
    }

    fn touches(&self, volume: &Arc<dyn Volume>) -> bool {
        let is_it = |namespace: u32| Arc::ptr_eq(&self.volumes[namespace as usize], volume);
        let left = &self.ranges[self.at..];
        !left.is_empty() && is_it(self.to.namespace)
            || left.iter().any(|range| is_it(self.source(range)))
    }

    /// Dword 0 of the completion: the number of the source range that was not copied (NVM
    /// Command Set 1.0, section 3.2.2).
    fn failed_at(&self) -> u64 {
        // A range that is being written is passed already.
        let is_written = self.step == RangeStep::Share && self.share.is_none();
        (self.at - usize::from(is_written)) as u64
    }
}
