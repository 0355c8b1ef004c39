//! Commands that end before their time: what their volumes are at goes on
//! without them.

use std::sync::Arc;

use link::Data;
use machine::Tag;
use reactor::Driver;
use store::Volume;

use crate::connection::{Connection, Protocol};
use crate::job::JobId;

impl<P: Protocol> Connection<P> {
    /// Leaves a job to itself; the commands it was for, which are answered next.
    pub(crate) fn orphan<D: Driver>(&mut self, id: JobId, driver: &mut D) -> Vec<Tag> {
        let jobs = self.jobs.clone();
        let mut jobs = jobs.borrow_mut();
        let job = jobs.get(id);
        P::forsaken(self, &job.work);
        let tags: Vec<Tag> = [Some(job.tag), job.partner()]
            .into_iter()
            .flatten()
            .collect();
        let held: Vec<Data> = tags.iter().map(|tag| self.link.take_data(*tag)).collect();
        jobs.orphan(id, held, driver);
        self.jobs_open -= 1;
        tags
    }

    /// Leaves every job to itself: nobody is left to answer.
    pub(crate) fn orphan_all<D: Driver>(&mut self, driver: &mut D) {
        if self.jobs_open == 0 {
            return;
        }
        let owner = Some(self.id());
        let mine = self.jobs.borrow().all(|job| job.owner == owner);
        for id in mine {
            self.orphan(id, driver);
        }
        debug_assert_eq!(self.jobs_open, 0, "each job has one owner");
    }

    /// The jobs of this connection that are on a volume, or will be, and the
    /// commands they are for.
    pub(crate) fn jobs_on(&self, volume: &Arc<dyn Volume>) -> Vec<(JobId, Tag)> {
        let owner = Some(self.id());
        let jobs = self.jobs.borrow();
        let mine = jobs.all(|job| job.owner == owner && job.touches(volume));
        mine.into_iter().map(|id| (id, jobs.get(id).tag)).collect()
    }
}
