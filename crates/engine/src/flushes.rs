//! Volumes that a reactor flushes for no host: at the end, and before one is removed.

use std::io;
use std::sync::Arc;

use reactor::Driver;
use store::{Error, Io, Progress, Task, Volume};

use crate::post::AfterMail;
use crate::token::Subject;

/// A volume that is being flushed.
struct Flush {
    volume: Arc<dyn Volume>,
    /// Taken while it is being looked at.
    task: Option<Task>,
    then: AfterMail<Result<(), Error>>,
}

/// Those of one reactor, by the number in [`Subject::Sync`].
#[derive(Default)]
pub(crate) struct Flushes(Vec<Option<Flush>>);

impl Flushes {
    /// Whether none is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// Begins one, then does `then`.
    pub(crate) fn start<D: Driver>(
        &mut self,
        driver: &mut D,
        volume: Arc<dyn Volume>,
        then: AfterMail<Result<(), Error>>,
    ) {
        let free = self.0.iter().position(Option::is_none);
        let at = free.unwrap_or(self.0.len());
        if free.is_none() {
            self.0.push(None);
        }
        let token = Subject::Sync(at as u32, 0).token();
        let progress = volume.start(Io::Flush, driver, token);
        let task = None;
        self.go_on(at, Flush { volume, task, then }, progress);
    }

    /// The kernel has done something for one.
    pub(crate) fn resume<D: Driver>(
        &mut self,
        driver: &mut D,
        (at, leg): (u32, u8),
        result: io::Result<u32>,
    ) {
        let flush = self.0[at as usize].take();
        let mut flush = flush.expect("a sync that completes was started");
        let task = flush.task.take().expect("it waits for its task");
        let token = Subject::Sync(at, leg).token();
        let progress = flush.volume.resume(task, result, driver, token);
        self.go_on(at as usize, flush, progress);
    }

    fn go_on(&mut self, at: usize, flush: Flush, progress: Progress) {
        match progress {
            Progress::Pending(task) => {
                let task = Some(task);
                self.0[at] = Some(Flush { task, ..flush });
            }
            Progress::Done(result) => {
                drop(flush.volume);
                (flush.then)(result);
            }
        }
    }
}
