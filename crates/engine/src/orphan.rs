//! Commands that end before their time: what their volumes are at goes on
//! without them.

use std::sync::Arc;

use link::CommandMemory;
use machine::Tag;
use reactor::Driver;
use store::Volume;

use crate::job::AnswerSource;
use crate::protocol::{ConnectionEvent, Protocol};
use crate::token::JobId;

/// What a connection does with jobs that become orphans.
pub trait Orphans: Protocol {
    /// Leaves a job to itself; the commands it was for, which are answered next.
    fn orphan<D: Driver>(&mut self, id: JobId, driver: &mut D) -> Vec<Tag> {
        let tags: Vec<Tag> = {
            let jobs = self.core().jobs.borrow();
            let job = jobs.get(id);
            let both = [Some(job.tag), job.work.partner()];
            both.into_iter().flatten().collect()
        };
        self.on_event(ConnectionEvent::Orphaned(tags[0]), driver);
        let core = self.core_mut();
        let held: Vec<CommandMemory> = tags.iter().map(|tag| core.link.take_data(*tag)).collect();
        core.jobs.borrow_mut().orphan(id, held, driver);
        core.jobs_open -= 1;
        tags
    }

    /// Leaves every job to itself: no command is left to answer.
    fn orphan_all<D: Driver>(&mut self, driver: &mut D) {
        if !self.core().has_jobs() {
            return;
        }
        let core = self.core();
        let jobs = core.jobs.borrow();
        let mine: Vec<JobId> = jobs.of(core.id()).map(|(id, _)| id).collect();
        drop(jobs);
        for id in mine {
            self.orphan(id, driver);
        }
        debug_assert!(!self.core().has_jobs(), "each job has one owner");
    }

    /// The jobs of this connection that are on a volume, or will be, and the
    /// commands they are for.
    fn jobs_on(&self, volume: &Arc<dyn Volume>) -> Vec<(JobId, Tag)> {
        let jobs = self.core().jobs.borrow();
        let mine = jobs.of(self.core().id());
        let mine = mine.filter(|(_, job)| job.work.touches(volume));
        mine.map(|(id, job)| (id, job.tag)).collect()
    }
}

impl<P: Protocol> Orphans for P {}
