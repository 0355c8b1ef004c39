//! What volumes do by themselves, as mirrors that copy to a leg: the first reactor does it.

use std::io;
use std::sync::Arc;

use machine::Nanos;
use reactor::Driver;
use store::{Progress, Task, Volume};

use super::Shard;
use crate::blocking_worker::About;
use crate::protocol::Protocols;
use crate::shared::Shared;
use crate::token::Subject;

/// What a volume does one after the other before it is another's turn.
const STEPS_MAX: usize = 8;

/// A volume that is at something.
struct Upkeep {
    volume: Arc<dyn Volume>,
    /// Taken while it is being looked at.
    task: Option<Task>,
    /// It is served no more.
    ends: bool,
}

impl<S: Protocols> Shard<S> {
    /// Volumes that do something by themselves, where this reactor sees to it.
    fn with_upkeep(&self) -> Vec<Arc<dyn Volume>> {
        let mut volumes = match self.number {
            0 => self.server.volumes(),
            _ => Vec::new(),
        };
        volumes.retain(|volume| volume.has_upkeep());
        volumes
    }

    /// Whether it has any to see to.
    pub(super) fn has_upkeep(&self) -> bool {
        !self.with_upkeep().is_empty()
    }

    /// Has volumes do what they do by themselves; whether any does something.
    pub(super) fn run_upkeep<D: Driver>(&mut self, driver: &mut D) -> bool {
        let volumes = match self.stopping {
            None => self.with_upkeep(),
            Some(_) => Vec::new(),
        };
        let does = !volumes.is_empty() || !self.upkeeps.is_empty();
        if does {
            let now = driver.now();
            self.in_background(|shard| shard.upkeeps.look(driver, volumes, now));
        }
        does
    }

    /// Something has completed for a volume that does it by itself.
    pub(super) fn go_on_with_upkeep<D: Driver>(
        &mut self,
        driver: &mut D,
        of: (u32, u8),
        result: io::Result<u32>,
    ) {
        self.in_background(|shard| {
            let shared = shard.shared.clone();
            shard.upkeeps.resume(driver, of, result, &shared);
        });
    }
}

/// Those of one reactor, by the number in [`Subject::Upkeep`].
#[derive(Default)]
pub(crate) struct Upkeeps(Vec<Option<Upkeep>>);

impl Upkeeps {
    /// Whether none is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// Has each of these that is at nothing do what there is to do now. What others do, which
    /// are served no more, ends.
    pub(crate) fn look<D: Driver>(
        &mut self,
        driver: &mut D,
        volumes: Vec<Arc<dyn Volume>>,
        now: Nanos,
    ) {
        for (at, upkeep) in self.0.iter_mut().enumerate() {
            if let Some(Upkeep { volume, task, ends }) = upkeep
                && !volumes.iter().any(|other| Arc::ptr_eq(other, volume))
            {
                *ends = true;
                let task = task.as_mut().expect("it waits for its task");
                task.cancel(driver, Subject::Upkeep(at as u32, 0).token());
            }
        }
        for volume in volumes {
            let mut busy = self.0.iter().flatten();
            if !busy.any(|at| Arc::ptr_eq(&at.volume, &volume)) {
                let free = self.0.iter().position(Option::is_none);
                let at = free.unwrap_or(self.0.len());
                if free.is_none() {
                    self.0.push(None);
                }
                self.0[at] = begin(driver, volume, at as u32, now);
            }
        }
    }

    /// Something has completed for one, which goes on to the next unless it ends.
    pub(crate) fn resume<D: Driver>(
        &mut self,
        driver: &mut D,
        (at, leg): (u32, u8),
        result: io::Result<u32>,
        shared: &Shared,
    ) {
        let upkeep = self.0[at as usize].take();
        let Upkeep {
            volume,
            mut task,
            ends,
        } = upkeep.expect("what completes was begun");
        let task = task.take().expect("it waits for its task");
        let token = Subject::Upkeep(at, leg).token();
        self.0[at as usize] = match volume.resume(task, result, driver, token) {
            Progress::Pending(task) => {
                let task = Some(task);
                Some(Upkeep { volume, task, ends })
            }
            // Closing a volume may take a while.
            Progress::Done(_) if Arc::strong_count(&volume) == 1 => {
                shared.blocking(About::state(&volume), move || drop(volume));
                None
            }
            Progress::Done(_) if ends => None,
            Progress::Done(_) => {
                let now = driver.now();
                begin(driver, volume, at, now)
            }
        };
    }
}

/// Begins what there is to do for a volume; `None` if that waits for nothing.
fn begin<D: Driver>(
    driver: &mut D,
    volume: Arc<dyn Volume>,
    at: u32,
    now: Nanos,
) -> Option<Upkeep> {
    let token = Subject::Upkeep(at, 0).token();
    for _ in 0..STEPS_MAX {
        if let Progress::Pending(task) = volume.upkeep(now, driver, token)? {
            let task = Some(task);
            return Some(Upkeep {
                volume,
                task,
                ends: false,
            });
        }
    }
    None
}
