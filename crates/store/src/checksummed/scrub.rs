//! A scrub of a checksummed volume: each of its steps reads a chunk and compares it with its sums,
//! as a read does, or pauses, or saves how far it is. Between two of them the sums are cleaned.

use std::io;

use mem::Region;
use reactor::{FileIo, Token};

use super::Checksummed;
use super::file::SCRUB_AT;
use super::file_work::FileWork;
use super::task::{ChecksummedTask, Scrubbed};
use crate::scrub::{SAVED_BYTES, ScrubWork};
use crate::{Error, Io, Parked, Progress, Range, Task};

/// A step of a scrub that is under way.
#[derive(Debug)]
pub(super) struct ScrubTask {
    step: ScrubStep,
}

#[derive(Debug)]
enum ScrubStep {
    Read {
        task: Box<ChecksummedTask>,
        range: Range,
        memory: Region,
    },
    Pause,
    Save {
        work: FileWork,
        _memory: Region,
    },
}

impl Parked for ScrubTask {
    fn cancel(&mut self, files: &mut dyn FileIo, token: Token) {
        if let ScrubStep::Read { task, .. } = &mut self.step {
            task.cancel(files, token);
        }
    }
}

fn pending(step: ScrubStep) -> Progress {
    Progress::Pending(Task::parked(ScrubTask { step }))
}

impl Checksummed {
    pub(super) fn begin_scrub(&self, files: &mut dyn FileIo, token: Token) -> Option<Progress> {
        let saves = self.file.is_some() && !self.base.info.read_only;
        let work = self.scrub.next_work(self.base.size_bytes(), saves)?;
        match work {
            ScrubWork::Pause(pause) => {
                files.complete_after(pause, token);
                Some(pending(ScrubStep::Pause))
            }
            ScrubWork::Save(bytes) => {
                let file = self.file.as_ref()?;
                let memory = Region::small_pages(SAVED_BYTES as u64).ok()?;
                let from = memory.range(0, SAVED_BYTES as u32);
                mem::copy_in(from, &bytes);
                let work = FileWork::write(from, SCRUB_AT);
                work.submit(file, files, token);
                let _memory = memory;
                Some(pending(ScrubStep::Save { work, _memory }))
            }
            ScrubWork::Read(range) => {
                let memory = self.scrub.memory().ok()?;
                Some(self.begin_chunk(range, memory, files, token))
            }
        }
    }

    fn begin_chunk(
        &self,
        range: Range,
        memory: Region,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        let Range { offset, len } = range;
        let scratch = memory.range(0, len as u32);
        let io = Io::Verify {
            offset,
            len,
            scratch,
        };
        let mut task = ChecksummedTask::new(io, self.base.info.block_bytes);
        task.scrub = Some(Box::<Scrubbed>::default());
        let ended = match self.base.check(&io) {
            Ok(()) => self.advance(&mut task, files, token),
            error => Some(error),
        };
        self.after_chunk(Box::new(task), ended, (range, memory))
    }

    fn after_chunk(
        &self,
        mut task: Box<ChecksummedTask>,
        ended: Option<Result<(), Error>>,
        (range, memory): (Range, Region),
    ) -> Progress {
        let Some(result) = ended else {
            return pending(ScrubStep::Read {
                task,
                range,
                memory,
            });
        };
        self.let_go(&mut task);
        let found = task.scrub.take().expect("it scrubs");
        match result {
            Ok(()) => {
                for _ in &found.wrong {
                    let mismatch = Err(Error::ChecksumMismatch);
                    self.base.counters.count(&task.io, &mismatch);
                }
                let found = (&found.wrong[..], found.repaired);
                self.scrub.has_read(range, found, memory);
            }
            // It is not wanted now, or the volume has become smaller.
            Err(_) if task.is_canceled => {}
            Err(Error::Busy | Error::Locked | Error::OutOfRange) => {}
            Err(_) => self.scrub.could_not_read(range, memory),
        }
        Progress::Done(Ok(()))
    }

    pub(super) fn resume_scrub(
        &self,
        task: ScrubTask,
        result: io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        let whole = token >> self.base.leg_bits << self.base.leg_bits;
        match task.step {
            ScrubStep::Pause => Progress::Done(Ok(())),
            ScrubStep::Save { mut work, _memory } => match (work.after(result), &self.file) {
                (None, Some(file)) => {
                    work.submit(file, files, whole);
                    pending(ScrubStep::Save { work, _memory })
                }
                // Where it was not saved it begins at an earlier place after a restart.
                _ => Progress::Done(Ok(())),
            },
            ScrubStep::Read {
                mut task,
                range,
                memory,
            } => {
                let ended = self.go_on(&mut task, result, files, token);
                self.after_chunk(task, ended, (range, memory))
            }
        }
    }
}
