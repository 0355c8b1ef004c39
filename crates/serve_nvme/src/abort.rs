//! Ends of commands before their time: Abort, a closed connection, a
//! reservation preempted, a namespace that changed.

use std::sync::Arc;

use engine::{Connection as _, Core, JobId, Orphans as _};
use machine::Tag;
use nvmf::accepted::{AcceptedQpair, QpairOp};
use nvmf::command::{Command, recheck};
use nvmf::queue::{AbortOutcome, ControllerEnd as _, Done, Op};
use reactor::Driver;
use store::Volume;
use wire::nvme::Status;

use super::{CommandAnswer, Later, NvmeConnection};

impl NvmeConnection {
    /// Abort of the command `cid` of this queue. Both are answered at once,
    /// whatever the command's volume does.
    pub(crate) fn abort<D: Driver>(&mut self, cid: u16, later: Later, driver: &mut D) {
        let is_aborted = self.abort_cid(cid, driver);
        tracing::debug!(peer = %self.core.via.peer, cid, is_aborted, "Abort");
        later.answer(match is_aborted {
            true => CommandAnswer::default(),
            false => CommandAnswer::not_aborted(),
        });
    }

    fn abort_cid<D: Driver>(&mut self, cid: u16, driver: &mut D) -> bool {
        if !self.core.is_open() {
            return false;
        }
        match self.core.link.machine.abort(cid) {
            AbortOutcome::NotFound => false,
            AbortOutcome::Aborted(_) => true,
            AbortOutcome::Executing(tag) => self.abort_tag(tag, Status::ABORT_REQUESTED, driver),
        }
    }

    /// Ends a command that is in our hands.
    fn abort_tag<D: Driver>(&mut self, tag: Tag, status: Status, driver: &mut D) -> bool {
        let job = self.core.jobs.borrow().find(self.core.id(), tag);
        if let Some(job) = job {
            self.abort_job(job, tag, status, driver);
            return true;
        }
        if let Some(op) = self.core.take_waiting(tag) {
            if let Op::ExecuteFused { compare, write } = op {
                let other = if tag == compare { write } else { compare };
                self.end(other, Status::FUSED_FAILED);
            }
            self.end(tag, status);
            // Those behind it have arrived already.
            self.run(driver);
            return true;
        }
        // What is left are event requests, which the controller holds.
        let is_held = self.cancel_event_request(tag);
        if is_held {
            self.end(tag, status);
        }
        is_held
    }

    /// Completes the command of a job with `status` and orphans the job. Of a
    /// fused pair the other command fails with it.
    fn abort_job<D: Driver>(&mut self, id: JobId, tag: Tag, status: Status, driver: &mut D) {
        let mut tags = self.orphan(id, driver);
        tags.sort_unstable_by_key(|other| *other != tag);
        for other in tags {
            let is_named = other == tag;
            self.end(
                other,
                if is_named {
                    status
                } else {
                    Status::FUSED_FAILED
                },
            );
        }
    }

    pub(super) fn end(&mut self, tag: Tag, status: Status) {
        self.core.link.take_data(tag);
        self.core.link.machine.complete(tag, Done::from(status));
    }

    /// What is behind the namespaces has changed. Jobs keep their volumes; the
    /// machine looks again at commands whose data still arrives; here are
    /// those that wait for memory.
    pub(crate) fn refresh<D: Driver>(&mut self, nqn: &str, driver: &mut D) {
        let is_open = self.core.is_open();
        let Some(bound) = self.bound.as_mut().filter(|_| is_open) else {
            return;
        };
        let new = self.service.renewed(&bound.served);
        // Where the whole subsystem went, the connection is about to.
        if *bound.served.nqn != *nqn || new.geometry.len() < bound.served.geometry.len() {
            return;
        }
        let before = std::mem::replace(&mut bound.served, new).geometry;
        let now = bound.served.geometry.clone();
        self.core.link.machine.set_namespaces(now.clone());
        let refusal = |machine: &AcceptedQpair, op: &QpairOp| {
            recheck(command_of(machine, op)?, &before, &now).err()
        };
        loop {
            let Core { waiting, link, .. } = &mut self.core;
            let machine = &link.machine;
            let Some(op) = waiting.take(|op| refusal(machine, op).is_some()) else {
                break;
            };
            if let Some(status) = refusal(machine, &op) {
                self.refuse(op, status);
            }
        }
        self.run(driver);
    }

    /// An operation that waited for memory will not be executed.
    pub(crate) fn refuse(&mut self, op: QpairOp, status: Status) {
        match op {
            Op::Execute { tag } => match *self.command(tag) {
                Command::Io(io) => self.fail(tag, status, io.namespace, io.offset),
                _ => self.end(tag, status),
            },
            Op::Prepare { tag, .. } => self.end(tag, status),
            Op::ExecuteFused { compare, write } => {
                let io = self.fused(write);
                self.fail(compare, status, io.namespace, io.offset);
                self.fail(write, Status::FUSED_FAILED, io.namespace, io.offset);
            }
            Op::Forgotten { .. } | Op::Refused(_) | Op::QueueAsked { .. } | Op::Fatal(_) => {
                unreachable!("nothing to wait for")
            }
        }
    }

    /// Ends the commands that are on a volume with `status`: their host has lost its
    /// right to them (Base 2.0, section 8.19.6, preempt and abort).
    pub(crate) fn abort_volume<D: Driver>(
        &mut self,
        volume: &Arc<dyn Volume>,
        status: Status,
        driver: &mut D,
    ) {
        for (id, tag) in self.jobs_on(volume) {
            self.abort_job(id, tag, status, driver);
        }
    }
}

/// The command of an operation that waits for memory.
fn command_of<'a>(machine: &'a AcceptedQpair, op: &QpairOp) -> Option<&'a Command> {
    let tag = match *op {
        Op::Prepare { tag, .. } | Op::Execute { tag } => tag,
        Op::ExecuteFused { write, .. } => write,
        Op::Forgotten { .. } | Op::Refused(_) | Op::QueueAsked { .. } | Op::Fatal(_) => {
            return None;
        }
    };
    Some(machine.queue().command(tag))
}
