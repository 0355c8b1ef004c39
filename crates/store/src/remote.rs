//! `remote`: a volume whose blocks another machine keeps. Which machine that is, and what is
//! spoken with it, another room knows ([`RemoteBlocks`]); it completes I/Os from a thread of its
//! own. What every volume promises is kept here.
//!
//! Each I/O has its range to itself from its first step to its last, so that one of several
//! steps is one to all others of this process. Nothing keeps what other hosts of that machine
//! write apart from them.

use std::io;
use std::sync::Arc;

use mem::{BufRange, Region};
use reactor::{FileIo, Token};

use crate::base::compare;
use crate::kept;
use crate::locks::{Caller, Claim, Locks};
use crate::problem::{OpenError, Problem};
use crate::remote_call::{RemoteCall, RemoteOutcome, wait_for};
use crate::remote_place::{RemoteAt, RemoteBlocks, RemoteInfo};
use crate::{
    Base, Error, Extent, Io, Progress, Range, ResizeError, Spec, State, Task, Volume, identity,
    resize,
};
use task::{RemoteStep, RemoteTask};

mod task;

/// Bytes at either end by which a volume is taken for a new one.
const END_BYTES: u64 = 1 << 20;

pub(crate) struct Remote {
    base: Base,
    blocks: Arc<dyn RemoteBlocks>,
    locks: Arc<Locks>,
}

/// Opens the volume that a description has elsewhere.
pub(crate) fn open(spec: &Spec) -> Result<Remote, Problem> {
    let blocks = place(spec)?.open(&spec.name).map_err(Problem::Remote)?;
    let state = State::in_file(spec, uuid(spec, blocks.info()), None, None)?;
    over(spec, blocks, state)
}

/// The same of blocks that are there, with a state that is kept elsewhere.
pub(crate) fn over(
    spec: &Spec,
    blocks: Arc<dyn RemoteBlocks>,
    state: State,
) -> Result<Remote, Problem> {
    let info = info(spec, blocks.info())?;
    if state.can_persist() {
        kept::savers();
    }
    let mut base = Base::new(info, blocks.info().size_bytes);
    base.outlasts_process = true;
    Ok(Remote {
        base: base.with_state(state).with_marks(),
        blocks,
        locks: Locks::new(),
    })
}

/// A `remote` volume over blocks that are there already, with a state that is kept elsewhere.
pub fn over_blocks(
    spec: &Spec,
    blocks: Arc<dyn RemoteBlocks>,
    state: State,
) -> Result<Arc<dyn Volume>, OpenError> {
    match over(spec, blocks, state) {
        Ok(volume) => Ok(Arc::new(volume)),
        Err(problem) => Err(OpenError {
            volume: spec.name.clone(),
            problem,
        }),
    }
}

/// What would be opened.
pub(crate) fn examine(spec: &Spec) -> Result<(crate::Info, u64), Problem> {
    let found = place(spec)?.examine().map_err(Problem::Remote)?;
    Ok((info(spec, &found)?, found.size_bytes))
}

fn place(spec: &Spec) -> Result<&RemoteAt, Problem> {
    let place = spec.kind.remote.as_ref();
    place.ok_or_else(|| Problem::Remote("nothing says where it is".to_owned()))
}

/// The same wherever the blocks are reached from.
fn uuid(spec: &Spec, found: &RemoteInfo) -> uuid::Uuid {
    spec.uuid
        .unwrap_or_else(|| identity::of_device(&found.identifier))
}

/// What hosts know the volume by; refuses what the description has other than it is.
fn info(spec: &Spec, found: &RemoteInfo) -> Result<crate::Info, Problem> {
    if !crate::BLOCK_SIZES.contains(&found.block_bytes) {
        return Err(Problem::BlockSize(found.block_bytes));
    }
    let is_other = |own: u64, there: u64| own != 0 && own != there;
    if is_other(spec.size_bytes, found.size_bytes)
        || is_other(spec.block_bytes.into(), found.block_bytes.into())
    {
        return Err(Problem::RemoteFormat {
            size_bytes: found.size_bytes,
            block_bytes: found.block_bytes,
        });
    }
    Ok(crate::Info {
        block_bytes: found.block_bytes,
        is_thin: found.is_thin,
        atomic_power_fail_bytes: found.block_bytes,
        ..spec.info(uuid(spec, found), found.volatile_cache)
    })
}

impl Remote {
    /// What an I/O locks, if anything.
    #[inline]
    fn claim(&self, io: &Io) -> Option<Claim> {
        let (offset, len) = io.extent();
        let moves = !matches!(io, Io::Flush | Io::Verify { .. });
        (moves && len > 0).then(|| Claim::new(offset, len, !io.leaves_volume_unchanged()))
    }

    /// The task has the range that it needs.
    fn begin(&self, mut task: RemoteTask, files: &mut dyn FileIo, token: Token) -> Progress {
        let begun = self.base.check(&task.io);
        match (begun, task.first(self.base.info.is_thin)) {
            (Err(error), _) => self.finish(&task, Err(error)),
            (Ok(()), Some(io)) => self.ask(task, io, files, token),
            (Ok(()), None) => self.settle(task, files, token),
        }
    }

    /// Has an I/O done where the blocks are.
    fn ask(&self, mut task: RemoteTask, io: Io, files: &mut dyn FileIo, token: Token) -> Progress {
        let outcome = RemoteOutcome::new();
        let call = RemoteCall::new(&outcome, Caller::Ticket(files.ticket(token)));
        task.outcome = Some(outcome);
        self.blocks.begin(io, call);
        Progress::Pending(Task::parked(task))
    }

    /// What was asked for is done.
    fn answered(&self, mut task: RemoteTask, files: &mut dyn FileIo, token: Token) -> Progress {
        match task.step {
            RemoteStep::Fetch => {
                task.done_bytes += task.fetched_bytes();
                match (task.next_fetch(), task.io) {
                    (Some(_), _) if task.is_canceled => self.finish(&task, Err(task.canceled())),
                    (Some(io), _) => self.ask(task, io, files, token),
                    (None, Io::Compare { buf, scratch, .. }) => {
                        self.finish(&task, compare(buf, scratch))
                    }
                    (
                        None,
                        Io::CompareAndWrite {
                            compare: old,
                            write,
                            scratch,
                            ..
                        },
                    ) => match compare(old, scratch) {
                        Ok(()) => self.replace(task, write, files, token),
                        miscompare => self.finish(&task, miscompare),
                    },
                    (None, Io::OrWrite { buf, scratch, .. }) => {
                        mem::or(scratch, buf);
                        self.replace(task, scratch, files, token)
                    }
                    (None, _) => self.finish(&task, Ok(())),
                }
            }
            RemoteStep::Change | RemoteStep::Sync => self.settle(task, files, token),
        }
    }

    /// Writes in place of what was read.
    fn replace(
        &self,
        mut task: RemoteTask,
        buf: BufRange,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        if task.is_canceled {
            return self.finish(&task, Err(task.canceled()));
        }
        task.step = RemoteStep::Change;
        let io = Io::Write {
            offset: task.io.extent().0,
            buf,
            durable: task.io.durable(),
        };
        self.ask(task, io, files, token)
    }

    /// The task has done its work there; what is remembered here follows it.
    fn settle(&self, mut task: RemoteTask, files: &mut dyn FileIo, token: Token) -> Progress {
        if task.is_idle {
            return self.finish(&task, Ok(()));
        }
        // What makes a block readable must be there before that is remembered.
        let is_safe = task.io.durable() || task.step == RemoteStep::Sync;
        if !is_safe && self.base.unmarks(&task.io) {
            task.step = RemoteStep::Sync;
            return self.ask(task, Io::Flush, files, token);
        }
        if !self.base.mark(&task.io) || !self.base.state().can_persist() {
            return self.finish(&task, Ok(()));
        }
        let (offset, len) = task.io.extent();
        let changed = Range { offset, len };
        let ticket = files.ticket(token);
        task.saving = Some(self.base.kept().save_aside(changed, ticket));
        Progress::Pending(Task::parked(task))
    }

    /// The task is over: others may have its range.
    #[inline]
    fn finish(&self, task: &RemoteTask, result: Result<(), Error>) -> Progress {
        if task.holds
            && let Some(claim) = self.claim(&task.io)
        {
            self.locks.release(&claim);
        }
        self.base.finish(&task.io, result)
    }

    /// Whether bytes that lie there are zeros.
    fn is_zero(&self, offset: u64, buf: BufRange) -> bool {
        let read = wait_for(|call| self.blocks.begin(Io::Read { offset, buf }, call));
        read.is_ok() && mem::is_zero(buf)
    }
}

impl Volume for Remote {
    #[inline]
    fn base(&self) -> &Base {
        &self.base
    }

    fn start(&self, io: Io, files: &mut dyn FileIo, token: Token) -> Progress {
        let mut task = RemoteTask::new(io);
        let (offset, len) = io.extent();
        if !self.base.holds(offset, len) {
            return self.finish(&task, Err(Error::OutOfRange));
        }
        if let Some(claim) = self.claim(&io) {
            let caller = || Caller::Ticket(files.ticket(token));
            match self.locks.acquire(claim, caller) {
                Ok(()) => task.holds = true,
                Err(place) => {
                    task.place = Some(place);
                    return Progress::Pending(Task::parked(task));
                }
            }
        }
        self.begin(task, files, token)
    }

    fn resume(
        &self,
        task: Task,
        result: io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        let mut task: RemoteTask = task.unpark().expect("all are its own");
        if let Some(place) = task.place.take() {
            if task.is_canceled || result.is_err() {
                drop(place);
                return self.finish(&task, Err(task.canceled()));
            }
            return match place.go_on(|| Caller::Ticket(files.ticket(token))) {
                Ok(()) => {
                    task.holds = true;
                    self.begin(task, files, token)
                }
                Err(place) => {
                    task.place = Some(place);
                    Progress::Pending(Task::parked(task))
                }
            };
        }
        if let Some(saving) = task.saving.take() {
            let saved = saving.result().map_err(Error::WriteFailed);
            return self.finish(&task, saved);
        }
        let outcome = task.outcome.take().expect("it waits for an answer");
        match outcome.result() {
            Ok(()) => self.answered(task, files, token),
            Err(error) => {
                let error = task.told(error);
                self.finish(&task, Err(error))
            }
        }
    }

    /// It is as large as what is there.
    fn resize(&self, size_bytes: u64, allow_shrink: bool) -> Result<(), ResizeError> {
        let has_bytes = self.blocks.size_bytes();
        let (from, to) = match size_bytes {
            0 => (self.size_bytes(), has_bytes),
            _ => (self.size_bytes(), size_bytes),
        };
        resize::check(&self.base, from, to, allow_shrink)?;
        if to != has_bytes {
            return Err(ResizeError::Remote {
                size_bytes: to,
                has_bytes,
            });
        }
        self.base.set_size(to);
        Ok(())
    }

    fn extents(
        &self,
        offset: u64,
        len: u64,
        max: usize,
        out: &mut Vec<Extent>,
    ) -> Result<(), Error> {
        if !self.base.holds(offset, len) {
            return Err(Error::OutOfRange);
        }
        if len > 0 && max > 0 {
            let allocated = true;
            out.push(Extent {
                offset,
                len,
                allocated,
            });
        }
        Ok(())
    }

    /// Looks at both ends, as of a device.
    fn is_blank(&self, Range { offset, len }: Range) -> bool {
        let block_bytes = u64::from(self.base.info.block_bytes);
        let part = len.min(END_BYTES) / block_bytes * block_bytes;
        let Ok(memory) = Region::anonymous(part.max(block_bytes)) else {
            return false;
        };
        let buf = memory.range(0, part as u32);
        self.is_zero(offset, buf) && self.is_zero(offset + len - part, buf)
    }

    fn losses(&self) -> u64 {
        self.blocks.losses()
    }

    fn remote(&self) -> Option<&dyn RemoteBlocks> {
        Some(&*self.blocks)
    }
}
