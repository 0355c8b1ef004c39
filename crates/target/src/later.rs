//! Commands that end elsewhere: at the clerk, on another reactor, behind a
//! fence.

use std::sync::Arc;

use machine::Tag;
use nvmf::tcp::controller::Done;
use wire::nvme::Status;

use crate::connection::Connection;
use crate::job::{Job, JobId, Work};
use crate::shared::{Mail, Shared};

/// How a command ended that ended elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: Status,
    /// Dwords 0 and 1 of the completion.
    pub result: u64,
    /// Data to the host; cut to what the command's SGL holds.
    pub data: Vec<u8>,
}

impl Answer {
    /// Of an Abort that did nothing: bit 0 of dword 0 (Base 2.0, section 5.1).
    pub(crate) fn not_aborted() -> Answer {
        Answer {
            result: 1,
            ..Answer::default()
        }
    }
}

impl From<Status> for Answer {
    fn from(status: Status) -> Answer {
        Answer {
            status,
            ..Answer::default()
        }
    }
}

/// Answers one command from anywhere, once. Dropped without an answer the
/// command fails with Internal Error. Where nobody waits for the command any
/// more the answer goes nowhere.
pub struct Later {
    shared: Arc<Shared>,
    shard: usize,
    job: JobId,
    answer: Option<Answer>,
}

impl Later {
    /// What the reactors have in common.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Completes the command.
    pub fn answer(mut self, answer: Answer) {
        self.answer = Some(answer);
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        let answer = self.answer.take();
        let answer = answer.unwrap_or_else(|| Status::INTERNAL_ERROR.into());
        self.shared.send(self.shard, Mail::Answer(self.job, answer));
    }
}

impl Connection {
    /// The command of `tag` ends elsewhere. Where it has data for the host, a
    /// buffer for it was set before.
    pub(crate) fn later(&mut self, tag: Tag) -> Later {
        self.later_as(tag, Work::Elsewhere)
    }

    /// The same for an Abort, which its controller counts.
    pub(crate) fn later_abort(&mut self, tag: Tag) -> Later {
        self.later_as(tag, Work::Abort)
    }

    fn later_as(&mut self, tag: Tag, work: Work) -> Later {
        let mut jobs = self.jobs.borrow_mut();
        let job = jobs.vacant();
        jobs.insert(job, self.id(), tag, work);
        drop(jobs);
        self.jobs_open += 1;
        Later {
            shared: self.shared.clone(),
            shard: self.shard(),
            job,
            answer: None,
        }
    }

    /// The answer to [`Connection::later`].
    pub(crate) fn on_answer(&mut self, job: &Job, answer: Answer) {
        let tag = job.tag;
        self.jobs_open -= 1;
        if let Work::Abort = job.work {
            self.abort_done();
        }
        let Answer {
            status,
            result,
            data,
        } = answer;
        let data_len = match self.link.range(tag) {
            Some(range) if status.is_success() => {
                let len = range.len().min(data.len() as u32);
                mem::copy_in(range.slice(0, len), &data[..len as usize]);
                len
            }
            _ => 0,
        };
        let done = Done {
            status,
            result,
            data_len,
        };
        self.link.machine.complete(tag, done);
    }
}
