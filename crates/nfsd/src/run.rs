//! A COMPOUND under way: takes one operation after the other, asks file
//! systems, waits where it must, and puts the answer together.

use std::io;
use std::sync::Arc;

use machine::{Nanos, Tag, work};
use nfs::compound::{self, Compound};
use nfs::connection::{Args, Flavor, Procedure};
use store::fs::{self, FileSystem, Output, Progress, Task};
use wire::nfs4::{nfs_opnum4, nfsstat4};
use wire::xdr::Decode;

use crate::call::{
    Around, Elsewhere, Flow, NextStep, OperationOutcome, RunningCall, Step, Waits, without_body,
};
use crate::continuation::Continuation;
use crate::{
    attributes, data, delegation, lock, names, offload, open, payload, readdir, retransmission,
    security, sequence, session, v3,
};

/// One call under way, and when it is over, the next one: kept by its driver in
/// a table by the call's tag.
#[derive(Default)]
pub struct Execution {
    flow: Option<Flow>,
    args: Args,
    waits: Waits,
    /// A call of NFSv3 or MOUNT instead.
    v3: v3::V3Call,
}

const UNDER_WAY: &str = "a call is under way";

impl Execution {
    /// Begins with a call that has all arrived ([`nfs::connection::ServerOp::Call`]).
    pub fn begin(&mut self, tag: Tag, around: &mut Around<'_>) -> Step {
        self.begin_since((tag, around.now), around)
    }

    /// The same of one that has come then: what was found since counts, however late that is.
    fn begin_since(&mut self, (tag, since): (Tag, Nanos), around: &mut Around<'_>) -> Step {
        around.peer.view.refresh(&around.nfsd.exports);
        let names = find_names(since, around);
        if let Some(elsewhere) = names.or_else(|| find_groups((tag, since), around)) {
            self.waits = Waits::First(tag, since);
            return Step::Elsewhere(elsewhere);
        }
        let machine = &mut around.link.machine;
        let (call, reply) = machine.call_and_reply(tag);
        if call.procedure != Procedure::Compound {
            return self.v3.begin(tag, around);
        }
        let begin = reply.mark();
        let compound = Compound::begin(&call, reply);
        let generation = around.peer.view.generation();
        self.flow = Some(Flow::begin(tag, compound, generation, begin));
        self.args = machine.take_args(tag);
        self.run_call(around, |run| run.take())
    }

    /// Goes on when the completion that it waited for has come with `result`.
    pub fn resume(
        &mut self,
        fs: &Arc<dyn FileSystem>,
        task: Task,
        result: io::Result<u32>,
        around: &mut Around<'_>,
    ) -> Step {
        around.peer.view.refresh(&around.nfsd.exports);
        if self.v3.is_busy() {
            return self.v3.resume(fs, task, result, around);
        }
        match fs.resume(task, result, around.files, around.token) {
            Progress::Pending(task) => Step::Pending(fs.clone(), task),
            Progress::Done(result) => {
                let Waits::For(then) = std::mem::take(&mut self.waits) else {
                    panic!("it waits for a file system");
                };
                self.run_call(around, |run| resume_operation(run, then, result))
            }
        }
    }

    /// Goes on when what it waited for elsewhere is done, or there may be
    /// memory again.
    pub fn go_on(&mut self, around: &mut Around<'_>) -> Step {
        around.peer.view.refresh(&around.nfsd.exports);
        if self.v3.is_busy() {
            return self.v3.go_on(around);
        }
        match std::mem::take(&mut self.waits) {
            Waits::First(tag, since) => self.begin_since((tag, since), around),
            Waits::For(then) => {
                self.run_call(around, |run| resume_operation(run, then, Ok(Output::Done)))
            }
            Waits::Again => self.run_call(around, |run| {
                run.flow.compound.rewind_args();
                dispatch(run, run.flow.compound.number())
            }),
            Waits::Next => self.run_call(around, |run| run.take()),
            Waits::Nothing => panic!("it waits for something"),
        }
    }

    /// It has waited for memory too long ([`Step::NoMemory`]): the operation
    /// under way is to be tried again later, and the call goes on to its end.
    pub fn refuse(&mut self, around: &mut Around<'_>) -> Step {
        around.peer.view.refresh(&around.nfsd.exports);
        if self.v3.is_busy() {
            return self.v3.refuse(around);
        }
        self.waits = Waits::Nothing;
        self.run_call(around, |_| Err(nfsstat4::NFS4ERR_DELAY))
    }

    /// The call is given up: its answer is not sent, and what it has done so far
    /// stays done.
    pub fn abandon(&mut self) {
        if let Some(flow) = self.flow.take() {
            flow.once.forget();
            if let Some(slot) = flow.slot {
                slot.held.session.finish(slot.slotid, None);
            }
        }
        self.v3.abandon();
        *self = Execution::default();
    }

    #[inline]
    fn run_call(
        &mut self,
        around: &mut Around<'_>,
        first: impl for<'a> FnOnce(&mut RunningCall<'a>) -> OperationOutcome<'a>,
    ) -> Step {
        let flow = self.flow.as_mut().expect(UNDER_WAY);
        let mut run = RunningCall {
            waits: &mut self.waits,
            step: None,
            answered: None,
            nfsd: around.nfsd,
            peer: around.peer,
            link: around.link,
            pool: around.pool,
            is_connected: around.is_connected,
            limits: around.limits,
            files: around.files,
            token: around.token,
            now: around.now,
            time: around.time,
            args: &self.args,
            flow,
        };
        let next = first(&mut run);
        let step = run.run_operations(next);
        match step {
            Step::Sent => {
                let args = std::mem::take(&mut self.args);
                self.send(args, around);
            }
            _ => payload::keep(run.link, run.pool, run.flow.tag),
        }
        step
    }

    /// All results are there.
    #[inline]
    fn send(&mut self, args: Args, around: &mut Around<'_>) {
        let flow = self.flow.as_mut().expect(UNDER_WAY);
        let machine = &mut around.link.machine;
        machine.give_args(flow.tag, args);
        let reply = machine.reply(flow.tag);
        if !flow.is_replayed {
            flow.compound.end(reply);
        }
        if let Some(slot) = &flow.slot {
            // SEQUENCE alone is kept anyway: it costs nothing.
            let keeps = slot.keeps || flow.compound.ops() == 1;
            let results = keeps.then(|| reply.results());
            slot.held.session.finish(slot.slotid, results);
        } else {
            flow.once.end(reply);
        }
        payload::send(around.link, flow.tag);
        around.peer.answered = Some(flow.io());
        self.flow = None;
    }
}

impl<'a> RunningCall<'a> {
    /// Goes on as far as it can.
    fn run_operations(&mut self, mut next: OperationOutcome<'a>) -> Step {
        loop {
            next = match next {
                Ok(NextStep::Done) => {
                    self.check_result_size();
                    match self.gives_way() {
                        true => return Step::Turn,
                        false => self.take(),
                    }
                }
                Err(status) => {
                    self.flow.io.has_failed = true;
                    self.refuse(status);
                    self.take()
                }
                Ok(NextStep::Answered) => {
                    let (then, result) = self.answered.take().expect("an answer is there");
                    resume_operation(self, then, result)
                }
                Ok(NextStep::End) => return Step::Sent,
                Ok(NextStep::Waits) => return self.step.take().expect("a waiting call has a step"),
                Ok(NextStep::NoMemory) => {
                    *self.waits = Waits::Again;
                    return Step::NoMemory;
                }
                Ok(NextStep::HeldBack(demand)) => {
                    *self.waits = Waits::Again;
                    return Step::HeldBack(demand);
                }
                Ok(NextStep::Turn) => {
                    *self.waits = Waits::Again;
                    return Step::Turn;
                }
            }
        }
    }

    /// Whether others have their turn before the next operation.
    #[inline]
    fn gives_way(&mut self) -> bool {
        let gives_way = work::is_used_up();
        if gives_way {
            *self.waits = Waits::Next;
        }
        gives_way
    }

    /// Takes the next operation and begins it.
    #[inline]
    fn take(&mut self) -> OperationOutcome<'a> {
        let (call, reply) = self.link.machine.call_and_reply(self.flow.tag);
        self.flow.mark = reply.mark();
        match self.flow.compound.next(self.args, &call) {
            compound::Next::Op(number, payload) => {
                work::spend(work::OPERATION_UNITS);
                self.flow.payload = payload;
                dispatch(self, number)
            }
            compound::Next::Refused(number, status) => {
                self.flow.compound.result(number, status, reply);
                without_body(number, reply);
                Ok(NextStep::End)
            }
            compound::Next::End => Ok(NextStep::End),
        }
    }
}

/// Has a connection know what rules ask of its client's address; `Some`: it is to be looked up.
#[inline]
fn find_names(since: Nanos, around: &mut Around<'_>) -> Option<Elsewhere> {
    if !around.peer.view.needs_names() {
        return None;
    }
    let address = around.peer.find_names(around.nfsd, (since, around.now));
    let let_in = around.peer.has_exports();
    around.link.machine.set_let_in(let_in);
    address.map(Elsewhere::Names)
}

/// Gives a call the groups that this machine knows its user to be in, if it is to have those;
/// `Some`: they are to be looked up.
#[inline]
fn find_groups((tag, since): (Tag, Nanos), around: &mut Around<'_>) -> Option<Elsewhere> {
    let credential = around.link.machine.call(tag).credential;
    if !around.nfsd.settings.manage_gids || credential.flavor != Flavor::Sys {
        return None;
    }
    let uid = credential.uid;
    match around.nfsd.groups.find(uid, (since, around.now)) {
        Some(gids) => {
            around.link.machine.set_gids(tag, gids);
            None
        }
        // Whoever may use nothing here needs none, and asks the database nothing.
        None if !around.peer.has_exports() => None,
        None => Some(Elsewhere::Groups(uid)),
    }
}

/// An operation with its arguments.
#[inline]
fn with<'a, T: Decode<'a>>(
    run: &mut RunningCall<'a>,
    op: impl FnOnce(&mut RunningCall<'a>, &T) -> OperationOutcome<'a>,
) -> OperationOutcome<'a> {
    let args = run.flow.compound.args(run.args);
    op(run, &args)
}

/// The same of one that must not be done twice, and without a session has nothing
/// else to be known by.
fn with_replay_check<'a, T: Decode<'a>>(
    run: &mut RunningCall<'a>,
    op: impl FnOnce(&mut RunningCall<'a>, &T) -> OperationOutcome<'a>,
) -> OperationOutcome<'a> {
    if run.minor() == 0
        && let Some(outcome) = retransmission::answer(run)
    {
        return outcome;
    }
    with(run, op)
}

/// Begins an operation.
#[inline]
fn dispatch<'a>(run: &mut RunningCall<'a>, number: nfs_opnum4) -> OperationOutcome<'a> {
    use nfs_opnum4::*;
    match number {
        OP_ACCESS => with(run, attributes::access),
        OP_CLOSE => with(run, open::close),
        OP_COMMIT => with(run, data::commit),
        OP_CREATE => with_replay_check(run, names::create),
        OP_DELEGPURGE => with(run, delegation::delegpurge),
        OP_DELEGRETURN => with(run, delegation::delegreturn),
        OP_GETATTR => with(run, attributes::getattr),
        OP_GETFH => names::getfh(run),
        OP_LINK => with_replay_check(run, names::link),
        OP_LOCK => with(run, lock::lock),
        OP_LOCKT => with(run, lock::lockt),
        OP_LOCKU => with(run, lock::locku),
        OP_LOOKUP => with(run, names::lookup),
        OP_LOOKUPP => names::lookupp(run),
        OP_NVERIFY => with(run, attributes::verify),
        OP_OPEN => with(run, open::open),
        OP_OPEN_CONFIRM => with(run, open::open_confirm),
        OP_OPEN_DOWNGRADE => with(run, open::open_downgrade),
        OP_PUTFH => with(run, names::putfh),
        OP_PUTPUBFH | OP_PUTROOTFH => names::putrootfh(run),
        OP_READ | OP_READ_PLUS => with(run, data::read),
        OP_READDIR => with(run, readdir::readdir),
        OP_READLINK => names::readlink(run),
        OP_REMOVE => with_replay_check(run, names::remove),
        OP_RENAME => with_replay_check(run, names::rename),
        OP_RENEW => with(run, session::renew),
        OP_RESTOREFH => names::restorefh(run),
        OP_SAVEFH => names::savefh(run),
        OP_SECINFO => with(run, security::secinfo),
        OP_SETATTR => with_replay_check(run, attributes::setattr),
        OP_SETCLIENTID => with(run, session::setclientid),
        OP_SETCLIENTID_CONFIRM => with(run, session::setclientid_confirm),
        OP_VERIFY => with(run, attributes::verify),
        OP_WRITE => with(run, data::write),
        OP_RELEASE_LOCKOWNER => with(run, lock::release_lockowner),
        OP_BACKCHANNEL_CTL => with(run, session::backchannel_ctl),
        OP_BIND_CONN_TO_SESSION => with(run, session::bind_conn_to_session),
        OP_EXCHANGE_ID => with(run, session::exchange_id),
        OP_CREATE_SESSION => with(run, session::create_session),
        OP_DESTROY_SESSION => with(run, session::destroy_session),
        OP_FREE_STATEID => with(run, delegation::free_stateid),
        OP_SECINFO_NO_NAME => with(run, security::secinfo_no_name),
        OP_SEQUENCE => with(run, sequence::sequence),
        OP_TEST_STATEID => with(run, delegation::test_stateid),
        OP_DESTROY_CLIENTID => with(run, session::destroy_clientid),
        OP_RECLAIM_COMPLETE => with(run, session::reclaim_complete),
        OP_ALLOCATE => with(run, data::allocate),
        OP_COPY => with(run, offload::copy),
        OP_DEALLOCATE => with(run, data::deallocate),
        OP_IO_ADVISE => with(run, data::io_advise),
        OP_OFFLOAD_CANCEL => with(run, offload::offload_cancel),
        OP_OFFLOAD_STATUS => with(run, offload::offload_status),
        OP_SEEK => with(run, data::seek),
        OP_CLONE => with(run, data::clone),
        OP_GETXATTR => with(run, attributes::getxattr),
        OP_SETXATTR => with(run, attributes::setxattr),
        OP_LISTXATTRS => with(run, attributes::listxattrs),
        OP_REMOVEXATTR => with(run, attributes::removexattr),
        // Named attributes, and what the connection knows no arguments of.
        _ => Err(nfsstat4::NFS4ERR_NOTSUPP),
    }
}

/// An operation goes on: what it asked for is there.
#[inline]
fn resume_operation<'a>(
    run: &mut RunningCall<'a>,
    then: Continuation,
    result: Result<Output, fs::Error>,
) -> OperationOutcome<'a> {
    match then {
        Continuation::Attributes(then) => attributes::resume(run, then, result),
        Continuation::Names(then) => names::resume(run, then, result),
        Continuation::Readdir(then) => readdir::resume(run, then, result),
        Continuation::Security(then) => security::resume(run, then, result),
        Continuation::Data(then) => data::resume(run, then, result),
        Continuation::Session(then) => session::resume(run, then, result),
        Continuation::Open(then) => open::resume(run, then, result),
        Continuation::Lock(then) => lock::resume(run, then, result),
        Continuation::Offload(then) => offload::resume(run, then, result),
    }
}
