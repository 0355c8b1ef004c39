//! Commands that end elsewhere: at the clerk, on another reactor, behind a
//! fence.

use std::sync::Arc;

use machine::Tag;
use reactor::Driver;

use crate::connection::{Connection, Protocol};
use crate::job::{JobId, Work};
use crate::shared::{Mail, Shared};

/// How a command ended that ended elsewhere, in the words of its protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Of an NVMe command.
    Nvme(crate::nvme::Answer),
    /// Of a SCSI command, or of a task management function.
    Iscsi(crate::iscsi::Answer),
    /// Of what an NFS call waited for.
    Nfs(crate::nfs::GoOn),
}

/// One protocol's part of [`Answer`].
pub trait Answers: Into<Answer> {
    /// To a command that nobody has answered: our own failure.
    fn lost() -> Self;
}

/// Answers one command from anywhere, once. Where nobody waits for the command
/// any more the answer goes nowhere.
pub struct Later<A: Answers> {
    shared: Arc<Shared>,
    shard: usize,
    job: JobId,
    /// What is said when this is dropped; there until then.
    answer: Option<A>,
}

impl<A: Answers> Later<A> {
    /// What the reactors have in common.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Completes the command.
    pub fn answer(mut self, answer: impl Into<A>) {
        self.answer = Some(answer.into());
    }
}

impl<A: Answers> Drop for Later<A> {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take() {
            (self.shared).send(self.shard, Mail::Answer(self.job, answer.into()));
        }
    }
}

impl<P: Protocol> Connection<P> {
    /// The command of `tag` ends elsewhere. Where it has data for the peer, a
    /// buffer for it was set before.
    pub(crate) fn later(&mut self, tag: Tag) -> Later<P::Answer> {
        self.later_as(tag, Work::Elsewhere, P::Answer::lost())
    }

    /// The same, of work of another kind, or which is answered otherwise when it
    /// is `lost`.
    pub(crate) fn later_as(&mut self, tag: Tag, work: Work, lost: P::Answer) -> Later<P::Answer> {
        let mut jobs = self.jobs.borrow_mut();
        let job = jobs.vacant();
        jobs.insert(job, self.id(), tag, work);
        drop(jobs);
        self.jobs_open += 1;
        Later {
            shared: self.shared.clone(),
            shard: self.shard(),
            job,
            answer: Some(lost),
        }
    }

    /// The answer to [`Connection::later`].
    pub(crate) fn on_answer<D: Driver>(
        &mut self,
        tag: Tag,
        work: &Work,
        answer: P::Answer,
        driver: &mut D,
    ) {
        self.jobs_open -= 1;
        P::answered(self, tag, work, answer, driver);
    }

    /// Puts data that came with an answer into the buffer of its command; how
    /// much fits.
    pub(crate) fn put_answer(&mut self, tag: Tag, data: &[u8]) -> u32 {
        let Some(range) = self.link.range(tag) else {
            return 0;
        };
        let len = range.len().min(data.len() as u32);
        mem::copy_in(range.slice(0, len), &data[..len as usize]);
        len
    }
}
