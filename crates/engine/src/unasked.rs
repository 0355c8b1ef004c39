//! I/Os on whole volumes that a reactor does for no host: a flush at the end and before one is
//! removed, the space of one that was erased.

use std::io;
use std::sync::Arc;

use reactor::Driver;
use store::{Error, Io, Progress, Task, Volume};

use crate::post::AfterMail;
use crate::token::Subject;

/// One that is under way.
struct UnaskedIo {
    volume: Arc<dyn Volume>,
    /// Taken while it is being looked at.
    task: Option<Task>,
    then: AfterMail<Result<(), Error>>,
}

/// Those of one reactor, by the number in [`Subject::Unasked`].
#[derive(Default)]
pub(crate) struct UnaskedIos(Vec<Option<UnaskedIo>>);

impl UnaskedIos {
    /// Whether none is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// Begins one, then does `then`.
    pub(crate) fn start<D: Driver>(
        &mut self,
        driver: &mut D,
        (volume, io): (Arc<dyn Volume>, Io),
        then: AfterMail<Result<(), Error>>,
    ) {
        let free = self.0.iter().position(Option::is_none);
        let at = free.unwrap_or(self.0.len());
        if free.is_none() {
            self.0.push(None);
        }
        let token = Subject::Unasked(at as u32, 0).token();
        let progress = volume.start(io, driver, token);
        let task = None;
        self.go_on(at, UnaskedIo { volume, task, then }, progress);
    }

    /// The kernel has done something for one.
    pub(crate) fn resume<D: Driver>(
        &mut self,
        driver: &mut D,
        (at, leg): (u32, u8),
        result: io::Result<u32>,
    ) {
        let io = self.0[at as usize].take();
        let mut io = io.expect("what completes was started");
        let task = io.task.take().expect("it waits for its task");
        let token = Subject::Unasked(at, leg).token();
        let progress = io.volume.resume(task, result, driver, token);
        self.go_on(at as usize, io, progress);
    }

    fn go_on(&mut self, at: usize, io: UnaskedIo, progress: Progress) {
        match progress {
            Progress::Pending(task) => {
                let task = Some(task);
                self.0[at] = Some(UnaskedIo { task, ..io });
            }
            Progress::Done(result) => {
                drop(io.volume);
                (io.then)(result);
            }
        }
    }
}
