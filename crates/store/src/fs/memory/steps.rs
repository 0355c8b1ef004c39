//! What is too much for one turn of a reactor, step by step.

use std::fmt;
use std::sync::Arc;

use ::mem::Loan;

use super::content::{Chunk, Store, WriteData};
use super::{MemoryInner, node::Node};
use crate::fs::op::Move;
use crate::fs::{Asker, Caller, Error, FileId, Output, Time, access};

/// Bytes that are given back in a step: below a millisecond's work.
pub(super) const FREE_STEP_BYTES: u64 = 16 << 20;
/// Bytes that are zeroed or copied in a step.
const MOVE_STEP_BYTES: u64 = 4 << 20;
/// Bytes that are lent at a time for a copy.
const COPY_BYTES: u64 = 1 << 20;

/// Content that no file has any more. Dropped, all of it is given back at once.
pub(super) struct Doomed {
    store: Arc<Store>,
    chunks: Vec<Chunk>,
    at: u64,
}

impl Doomed {
    pub(super) fn new(store: &Arc<Store>, chunks: Vec<Chunk>) -> Doomed {
        Doomed {
            store: Arc::clone(store),
            chunks,
            at: 0,
        }
    }

    fn step(&mut self) -> bool {
        self.store
            .free(&mut self.chunks, &mut self.at, FREE_STEP_BYTES)
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        while !self.step() {}
    }
}

/// An operation in several steps.
pub(crate) struct MemorySteps {
    inner: Arc<MemoryInner>,
    work: StepWork,
    is_canceled: bool,
    /// For files that are written.
    now: Time,
    is_root: bool,
}

enum StepWork {
    /// The operation is done but for what it leaves behind.
    Free(Doomed, Option<Output>),
    Clear {
        file: FileId,
        at: u64,
        end: u64,
    },
    Fill {
        file: FileId,
        at: u64,
        end: u64,
    },
    Copy {
        what: Move,
        done: u64,
        /// It is a CLONE: both files are open, and closed to others.
        frozen: Option<Frozen>,
    },
}

/// Two files that a clone keeps others from, until this is dropped.
struct Frozen {
    inner: Arc<MemoryInner>,
    from: FileId,
    to: FileId,
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let thaw = |file, thaw: &dyn Fn(&mut Node)| {
            if let Ok(mut node) = self.inner.table.write(file) {
                thaw(&mut node);
            }
            if let Ok(chunks) = self.inner.close(file) {
                drop(Doomed::new(&self.inner.store, chunks));
            }
        };
        thaw(self.from, &|node| node.freeze.sources -= 1);
        thaw(self.to, &|node| node.freeze.is_target = false);
    }
}

impl fmt::Debug for MemorySteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, at) = match &self.work {
            StepWork::Free(doomed, _) => ("free", doomed.at),
            StepWork::Clear { at, .. } => ("clear", *at),
            StepWork::Fill { at, .. } => ("fill", *at),
            StepWork::Copy { done, .. } => ("copy", *done),
        };
        write!(f, "Steps({what} at {at})")
    }
}

/// What a step has come to.
pub(super) type Stepped = Option<Result<Output, Error>>;

impl MemorySteps {
    fn new(inner: &Arc<MemoryInner>, caller: &Caller<'_>, work: StepWork) -> MemorySteps {
        inner.store.quotas.at(caller.now);
        MemorySteps {
            inner: Arc::clone(inner),
            work,
            is_canceled: false,
            now: caller.now,
            is_root: caller.is_root(),
        }
    }

    /// Ends with `output` when chunks that are left over are given back.
    pub(super) fn free(
        inner: &Arc<MemoryInner>,
        caller: &Caller<'_>,
        chunks: Vec<Chunk>,
        output: Output,
    ) -> MemorySteps {
        let doomed = Doomed::new(&inner.store, chunks);
        MemorySteps::new(inner, caller, StepWork::Free(doomed, Some(output)))
    }

    pub(super) fn clear(
        inner: &Arc<MemoryInner>,
        caller: &Caller<'_>,
        (file, at, len): (FileId, u64, u64),
    ) -> Result<MemorySteps, Error> {
        let end = at.checked_add(len).ok_or(Error::Inval)?;
        inner.table.read(file)?.check_write(caller, at)?;
        let work = StepWork::Clear { file, at, end };
        Ok(MemorySteps::new(inner, caller, work))
    }

    pub(super) fn fill(
        inner: &Arc<MemoryInner>,
        caller: &Caller<'_>,
        (file, at, len): (FileId, u64, u64),
    ) -> Result<MemorySteps, Error> {
        let end = at.checked_add(len).ok_or(Error::FBig)?;
        if end > inner.info.file_bytes_max {
            return Err(Error::FBig);
        }
        let node = inner.table.read(file)?;
        node.check_write(caller, at)?;
        // Rather nothing than a part of it.
        let missing = inner.store.missing(&node, at, end);
        let bytes = missing.saturating_mul(crate::frames::FRAME_BYTES.into());
        if bytes > inner.store.space.free() {
            return Err(Error::NoSpc);
        }
        inner.store.quotas.at(caller.now);
        inner.store.quotas.check(&node.charged, bytes)?;
        drop(node);
        let work = StepWork::Fill { file, at, end };
        Ok(MemorySteps::new(inner, caller, work))
    }

    /// A copy, in one step to others if it is a CLONE.
    pub(super) fn copy(
        inner: &Arc<MemoryInner>,
        caller: &Caller<'_>,
        mut what: Move,
        is_clone: bool,
    ) -> Result<MemorySteps, Error> {
        let ends = (
            what.from_offset.checked_add(what.len),
            what.to_offset.checked_add(what.len),
        );
        let (Some(from_end), Some(_)) = ends else {
            return Err(Error::Inval);
        };
        let mut both = inner.table.lock(&[what.from, what.to])?;
        both.get(what.to).check_write(caller, what.to_offset)?;
        let source = both.get(what.from);
        source.check_read(caller)?;
        let size = source.attr.size;
        if what.from_offset > size || (is_clone && from_end > size) {
            return Err(Error::Inval);
        }
        let rest = size - what.from_offset;
        what.len = match what.len {
            0 => rest,
            len => len.min(rest),
        };
        if what.overlaps() {
            return Err(Error::Inval);
        }
        if what.to_offset.saturating_add(what.len) > inner.info.file_bytes_max {
            return Err(Error::FBig);
        }
        let frozen = match is_clone {
            false => None,
            true => {
                both.get(what.from).freeze.sources += 1;
                both.get(what.from).opens += 1;
                both.get(what.to).freeze.is_target = true;
                both.get(what.to).opens += 1;
                Some(Frozen {
                    inner: Arc::clone(inner),
                    from: what.from,
                    to: what.to,
                })
            }
        };
        drop(both);
        let done = 0;
        let work = StepWork::Copy { what, done, frozen };
        Ok(MemorySteps::new(inner, caller, work))
    }

    pub(crate) fn copied_bytes(&self) -> u64 {
        match &self.work {
            StepWork::Copy { done, .. } => *done,
            _ => 0,
        }
    }

    pub(crate) fn cancel(&mut self) {
        self.is_canceled = true;
    }

    /// A little of it; its end, if that was all.
    pub(super) fn step(&mut self) -> Stepped {
        match self.try_step() {
            Ok(None) => None,
            Ok(Some(output)) => Some(Ok(output)),
            Err(error) => Some(Err(error)),
        }
    }

    fn try_step(&mut self) -> Result<Option<Output>, Error> {
        let inner = &self.inner;
        let written = |node: &mut Node| {
            let caller = Caller {
                uid: u32::from(!self.is_root),
                gid: 0,
                gids: &[],
                now: self.now,
                is_open: true,
                from: Asker::default(),
            };
            node.attr.mode = access::mode_written(node.attr.mode, &caller);
            node.touch_content(self.now);
        };
        match &mut self.work {
            StepWork::Free(doomed, output) => match doomed.step() {
                true => Ok(output.take()),
                false => Ok(None),
            },
            StepWork::Clear { file, at, end } => {
                let mut node = inner.table.write(*file)?;
                node.check_changes()?;
                *at = inner.store.clear(&mut node, *at, *end, FREE_STEP_BYTES)?;
                written(&mut node);
                Ok((*at >= *end).then_some(Output::Done))
            }
            StepWork::Fill { file, at, end } => {
                let mut node = inner.table.write(*file)?;
                node.check_changes()?;
                let to = (*at + 1).next_multiple_of(MOVE_STEP_BYTES).min(*end);
                if to > *at {
                    inner.store.fill(&mut node, *at, to - *at)?;
                    node.attr.size = node.attr.size.max(to);
                    written(&mut node);
                }
                *at = to;
                Ok((to == *end).then_some(Output::Done))
            }
            StepWork::Copy { what, done, frozen } => {
                let step_end = (*done + MOVE_STEP_BYTES).min(what.len);
                while *done < step_end {
                    let len = (step_end - *done).min(COPY_BYTES);
                    let copied = inner.copy_some(what, *done, len, frozen.is_some(), &written);
                    match copied {
                        Ok(0) => what.len = *done,
                        Ok(copied) => *done += copied,
                        // Frames are lent elsewhere; a clone goes to its end.
                        Err(Error::Delay) if frozen.is_some() => return Ok(None),
                        // What was copied is the answer.
                        Err(_) if frozen.is_none() && *done > 0 => what.len = *done,
                        Err(error) => return Err(error),
                    }
                    if *done >= what.len {
                        break;
                    }
                }
                let is_over = *done >= what.len || (self.is_canceled && frozen.is_none());
                let output = match frozen {
                    Some(_) => Output::Done,
                    None => Output::Copied(*done),
                };
                if is_over {
                    // Before the end is answered.
                    *frozen = None;
                }
                Ok(is_over.then_some(output))
            }
        }
    }
}

/// What a part of a file holds.
enum Piece {
    Lent(Loan),
    Bytes(Vec<u8>),
    Hole,
}

impl MemoryInner {
    /// Copies `len` bytes, or fewer where the source ends or changes its kind;
    /// how many.
    fn copy_some(
        &self,
        what: &Move,
        done: u64,
        len: u64,
        is_clone: bool,
        written: &dyn Fn(&mut Node),
    ) -> Result<u64, Error> {
        let mut both = self.table.lock(&[what.from, what.to])?;
        let source = both.get(what.from);
        let at = what.from_offset + done;
        if !is_clone {
            source.content()?;
        }
        let len = len.min(source.attr.size.saturating_sub(at));
        if len == 0 {
            return Ok(0);
        }
        let (len, piece) = self.piece(source, at, len)?;
        let target = both.get(what.to);
        if !is_clone {
            target.check_changes()?;
        }
        let to = what.to_offset + done;
        match piece {
            Piece::Lent(loan) => self.store.write(target, to, WriteData::Pinned(&loan))?,
            Piece::Bytes(bytes) => self.store.write(target, to, WriteData::Bytes(&bytes))?,
            Piece::Hole => {
                let mut at = to;
                while at < to + len {
                    at = self.store.clear(target, at, to + len, FREE_STEP_BYTES)?;
                }
                if target.attr.size < to + len {
                    let left = self.store.resize(target, to + len)?;
                    debug_assert!(left.is_empty(), "a file that grows leaves nothing");
                }
            }
        }
        written(target);
        Ok(len)
    }

    fn piece(&self, source: &Node, at: u64, len: u64) -> Result<(u64, Piece), Error> {
        // Looking further than this piece goes would be done anew for the next.
        let end = at + len;
        let data = self.store.seek_until(source, at, end, true);
        if data > at {
            return Ok((data - at, Piece::Hole));
        }
        let hole = self.store.seek_until(source, at, end, false);
        self.store.piece(source, at, hole - at)
    }
}

impl Store {
    fn piece(&self, source: &Node, at: u64, len: u64) -> Result<(u64, Piece), Error> {
        if let Some(bytes) = source.inline() {
            let bytes = bytes[at as usize..(at + len) as usize].to_vec();
            return Ok((len, Piece::Bytes(bytes)));
        }
        let (len, loan) = self.lend_some(source, at, len)?;
        Ok((len, Piece::Lent(loan)))
    }
}
