//! The way of a command through its volumes: one I/O, or one after the other,
//! at once or when the kernel is done.

use std::sync::Arc;

use machine::{Tag, work};
use mem::Buf;
use reactor::Driver;
use store::{Error, Progress, Volume};

use crate::connection::{Blocks, Connection, Protocol};
use crate::job::{Job, JobId, OnVolume, Work};
use crate::steps::{Step, Steps};
use crate::token::Subject;

/// What is left to do when the volume has done its part.
pub(crate) enum Then {
    /// Complete, with this much data to the peer.
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
pub(crate) type Kept = Option<(JobId, u64)>;

impl<P: Protocol> Connection<P> {
    /// The command waits for its volume or its file system, or for its turn.
    #[inline]
    pub(crate) fn keep(&mut self, tag: Tag, kept: Kept, work: Work) {
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
    pub(crate) fn let_go(&mut self, kept: Kept) {
        if let Some((id, _)) = kept {
            self.jobs.borrow_mut().release(id);
            self.jobs_open -= 1;
        }
    }
}

impl<P: Blocks> Connection<P> {
    #[inline]
    fn volume(&self, unit: u32) -> &Arc<dyn Volume> {
        let volume = self.own.volume(unit);
        volume.expect("a command that begins has its volume")
    }

    /// The volume has done its part at once.
    #[inline]
    pub(crate) fn finish(
        &mut self,
        tag: Tag,
        at: (u32, u64),
        result: Result<(), Error>,
        then: Then,
    ) {
        let left = self.ended(tag, at, result, then);
        assert!(left.is_none(), "a read or write is one step");
    }

    /// Starts the only I/O of a command, or the first.
    #[inline]
    pub(crate) fn start<D: Driver>(
        &mut self,
        tag: Tag,
        unit: u32,
        io: store::Io,
        then: Then,
        driver: &mut D,
    ) {
        let id = self.jobs.borrow_mut().vacant();
        let volume = self.volume(unit);
        let progress = volume.start(io, driver, Subject::File(id).token());
        self.started(tag, unit, io, then, progress, driver);
    }

    /// Starts an I/O that nobody waits for.
    pub(crate) fn start_unawaited<D: Driver>(
        &mut self,
        volume: &Arc<dyn Volume>,
        unit: u32,
        io: store::Io,
        driver: &mut D,
    ) {
        let id = self.jobs.borrow_mut().vacant();
        let progress = volume.start(io, driver, Subject::File(id).token());
        if let Progress::Pending(task) = progress {
            let on = OnVolume {
                volume: volume.clone(),
                unit,
                offset: io.extent().0,
                task,
                then: Then::Complete { data_len: 0 },
            };
            let mut jobs = self.jobs.borrow_mut();
            jobs.insert_orphan(id, self.id(), Work::Volume(on));
        }
    }

    /// As [`Connection::start`], but of a volume that has no memory for it now:
    /// false, nothing was done.
    #[inline]
    pub(crate) fn start_unless_busy<D: Driver>(
        &mut self,
        tag: Tag,
        unit: u32,
        io: store::Io,
        then: Then,
        driver: &mut D,
    ) -> bool {
        let id = self.jobs.borrow_mut().vacant();
        let volume = self.volume(unit);
        let progress = volume.start(io, driver, Subject::File(id).token());
        if let Progress::Done(Err(Error::Busy)) = progress {
            return false;
        }
        self.started(tag, unit, io, then, progress, driver);
        true
    }

    #[inline]
    fn started<D: Driver>(
        &mut self,
        tag: Tag,
        unit: u32,
        io: store::Io,
        then: Then,
        progress: Progress,
        driver: &mut D,
    ) {
        match progress {
            Progress::Done(result) => {
                let at = (unit, io.extent().0);
                if let Some(steps) = self.ended(tag, at, result, then) {
                    self.go_on(tag, None, steps, driver);
                }
            }
            Progress::Pending(task) => {
                let on = OnVolume {
                    volume: self.volume(unit).clone(),
                    unit,
                    offset: io.extent().0,
                    task,
                    then,
                };
                self.keep(tag, None, Work::Volume(on));
            }
        }
    }

    /// Takes steps until one must be waited for, others are to have their turn,
    /// or none is left.
    pub(crate) fn go_on<D: Driver>(
        &mut self,
        tag: Tag,
        kept: Kept,
        mut steps: Box<Steps>,
        driver: &mut D,
    ) {
        while let Some(Step { unit, volume, io }) = steps.next() {
            let id = kept.map_or_else(|| self.jobs.borrow_mut().vacant(), |(id, _)| id);
            work::spend(work::OPERATION_UNITS);
            let offset = io.extent().0;
            match volume.start(io, driver, Subject::File(id).token()) {
                Progress::Pending(task) => {
                    let then = Then::Steps(steps);
                    let on = OnVolume {
                        volume,
                        unit,
                        offset,
                        task,
                        then,
                    };
                    return self.keep(tag, kept, Work::Volume(on));
                }
                Progress::Done(result) => {
                    match self.ended(tag, (unit, offset), result, Then::Steps(steps)) {
                        Some(left) => steps = left,
                        None => return self.let_go(kept),
                    }
                }
            }
            if work::is_used_up() {
                driver.ticket(Subject::File(id).token()).ring();
                return self.keep(tag, kept, Work::Turn(steps));
            }
        }
        P::succeeded(self, tag, 0, Then::Steps(steps));
        self.let_go(kept);
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
            tag, mark, work, ..
        } = job;
        let kept = Some((id, mark));
        let on = match work {
            Work::Volume(on) => on,
            Work::Turn(steps) => return self.go_on(tag, kept, steps, driver),
            Work::Files(_)
            | Work::CallTurn
            | Work::Background(..)
            | Work::Elsewhere
            | Work::Abort => {
                unreachable!("file work is a volume's")
            }
        };
        let token = Subject::File(id).token();
        match on.volume.resume(on.task, result, driver, token) {
            Progress::Pending(task) => {
                self.keep(tag, kept, Work::Volume(OnVolume { task, ..on }));
            }
            Progress::Done(result) => {
                match self.ended(tag, (on.unit, on.offset), result, on.then) {
                    Some(steps) => self.go_on(tag, kept, steps, driver),
                    None => self.let_go(kept),
                }
            }
        }
    }

    /// An I/O on a volume is over: its command is completed, or there are
    /// steps left.
    #[inline]
    pub(crate) fn ended(
        &mut self,
        tag: Tag,
        (unit, offset): (u32, u64),
        result: Result<(), Error>,
        then: Then,
    ) -> Option<Box<Steps>> {
        match (result, then) {
            (Ok(()), Then::Steps(steps)) => return Some(steps),
            (Ok(()), then) => {
                let data_len = match then {
                    Then::Complete { data_len } => data_len,
                    _ => 0,
                };
                P::succeeded(self, tag, data_len, then);
            }
            (Err(error), then) => self.failed(tag, unit, offset, error, then),
        }
        None
    }

    /// An I/O on a volume failed, and with it the command.
    #[cold]
    fn failed(&mut self, tag: Tag, unit: u32, offset: u64, error: Error, then: Then) {
        if is_failure(error) {
            self.log_failure(unit, error);
        }
        let at = match error {
            Error::Miscompare { offset: byte } => offset + byte,
            _ => offset,
        };
        P::failed(self, tag, (unit, at), error, then);
    }
}

/// Whether an administrator should hear of it.
fn is_failure(error: Error) -> bool {
    !matches!(
        error,
        Error::Miscompare { .. } | Error::Unreadable | Error::Busy
    )
}
