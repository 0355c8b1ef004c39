//! Commands that end elsewhere: at the blocking worker, on another reactor, behind a
//! fence.

use std::sync::Arc;

use machine::Tag;

use crate::job::AnswerSource;
use crate::post::{Mail, Post};
use crate::protocol::Protocol;
use crate::token::JobId;

/// Answers one command from anywhere, once. Where the command's job is an orphan the
/// answer is dropped.
pub struct Later<A, M> {
    post: Arc<dyn Post<Mail<A, M>>>,
    shard: usize,
    job: JobId,
    /// What is said when this is dropped; there until then.
    answer: Option<A>,
}

impl<A, M> Later<A, M> {
    /// Completes the command.
    pub fn answer(mut self, answer: impl Into<A>) {
        self.answer = Some(answer.into());
    }
}

impl<A, M> Drop for Later<A, M> {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take() {
            self.post.send(self.shard, Mail::Answer(self.job, answer));
        }
    }
}

/// What a connection does with commands that end elsewhere.
pub trait Elsewhere: Protocol {
    /// The command of `tag` ends elsewhere. Where it has data for the peer, a
    /// buffer for it was set before.
    fn later(&mut self, tag: Tag) -> Later<Self::Answer, Self::Mail> {
        self.later_unless_lost(tag, Self::lost())
    }

    /// The same, of a command that `lost` answers when this is dropped without an
    /// answer: our own failure.
    fn later_unless_lost(
        &mut self,
        tag: Tag,
        lost: Self::Answer,
    ) -> Later<Self::Answer, Self::Mail> {
        let core = self.core_mut();
        let mut jobs = core.jobs.borrow_mut();
        let job = jobs.vacant();
        jobs.insert(job, core.id(), tag, Self::Job::elsewhere());
        drop(jobs);
        core.jobs_open += 1;
        Later {
            shard: self.core().shard(),
            post: self.post().clone(),
            job,
            answer: Some(lost),
        }
    }

    /// Puts data that came with an answer into the buffer of its command; how
    /// much fits.
    fn put_answer(&mut self, tag: Tag, data: &[u8]) -> u32 {
        let Some(range) = self.core().link.range(tag) else {
            return 0;
        };
        let len = range.len().min(data.len() as u32);
        mem::copy_in(range.slice(0, len), &data[..len as usize]);
        len
    }
}

impl<P: Protocol> Elsewhere for P {}
