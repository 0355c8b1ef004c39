//! NFS: calls of clients on the target's connections.
//!
//! A connection that has died stays, without its socket, until what its calls
//! wait for has come: each goes to its end, so that who sends it again on
//! another connection of its session is answered from the slot instead of having
//! it done twice (RFC 8881, section 2.10.6).

pub(crate) mod files;
pub(crate) mod mail;
pub(crate) mod records;
pub(crate) mod service;

use std::cell::Cell;
use std::rc::Rc;

use ::nfs::Connection as Transport;
use ::nfs::connection::{Op, Settings};
use machine::{Machine, Nanos, Tag};
use nfsd::callback::Callback;
use nfsd::{Around, Elsewhere, Execution, Peer, Step};
use reactor::Driver;
use store::fs::Time;

pub use ::nfs::connection::Flavor;
pub use nfsd::exports::{Clients, ExportsError, Net, RULES_MAX, Rule, Squash, check_path, clash};

pub use self::mail::Client;
pub use crate::config::{ExportSpec, FileSystemKind, FileSystemSpec, NfsSettings};

use self::service::Wall;
use crate::connection::{self, Protocol, Via};
use crate::engine::Kept;
use crate::job::{Job, JobId, OnFiles, Work};
use crate::later::{self, Answers};
use crate::refusals::{Kind, Refusal};
use crate::shared::Shared;
use crate::token::Subject;

/// One NFS connection.
pub(crate) type Connection = connection::Connection<Nfs>;

/// What the connections of one reactor share.
#[derive(Default)]
pub(crate) struct Local {
    /// Calls that were begun.
    pub(crate) calls: Cell<u64>,
    /// When it was which time of day.
    clock: Cell<(Nanos, Time)>,
}

impl Local {
    /// Looks at the clock.
    pub(crate) fn look(&self, wall: Wall, now: Nanos) {
        self.clock.set((now, wall.time(now)));
    }

    /// The time of day.
    #[inline]
    fn time(&self, now: Nanos) -> Time {
        let (then, time) = self.clock.get();
        service::later(time, now.saturating_sub(then))
    }
}

/// A call that waits, or none.
#[derive(Default)]
struct Slot {
    execution: Execution,
    /// It has begun and waits for memory.
    is_starved: bool,
}

/// A call to a client that is not answered after this is not waited for: it was
/// made anew long before.
const CALL_MAX: Nanos = 60_000_000_000;

/// What is NFS's own of a connection.
pub(crate) struct Nfs {
    /// What it shares with others of its reactor.
    local: Rc<Local>,
    peer: Peer,
    /// In which every call begins. Most end there, so it stays warm.
    first: Execution,
    /// Calls that wait, by tag.
    slots: Vec<Slot>,
    /// How many of them are starved.
    starved: usize,
    /// Our calls that are not answered: the xid, what [`Nfsd`](nfsd::Nfsd) calls
    /// it, and when it was made.
    called: Vec<(u32, u64, Nanos)>,
    /// It has called something.
    is_known: bool,
    /// It closes when the calls under way are answered.
    is_leaving: bool,
}

impl Nfs {
    /// Of a connection that just came.
    pub(crate) fn open(
        shared: &Shared,
        local: Rc<Local>,
        via: &Via,
        now: Nanos,
    ) -> (Transport, Nfs) {
        local.look(shared.nfs.wall, now);
        let nfsd = shared.nfs.nfsd();
        let settings = Settings {
            io_bytes_max: nfsd.settings.io_bytes_max,
            handshake_timeout: u64::from(shared.limits.handshake_timeout_ms) * 1_000_000,
            ..Settings::default()
        };
        let nfs = Nfs {
            local,
            peer: Peer::new(nfsd, via.connection, via.peer),
            first: Execution::default(),
            slots: Vec::new(),
            starved: 0,
            called: Vec::new(),
            is_known: false,
            is_leaving: false,
        };
        (Transport::new(settings, now), nfs)
    }

    /// A call that has just begun waits.
    #[cold]
    fn put_aside(&mut self, tag: Tag, tags_max: usize) {
        let len = tags_max.max(usize::from(tag) + 1);
        if self.slots.len() < len {
            self.slots.resize_with(len, Slot::default);
        }
        let slot = &mut self.slots[usize::from(tag)];
        std::mem::swap(&mut slot.execution, &mut self.first);
    }

    #[cold]
    fn starve(&mut self, tag: Tag) {
        self.slots[usize::from(tag)].is_starved = true;
        self.starved += 1;
    }

    /// Whether a call was starved; it is not any more.
    #[inline]
    fn feed(&mut self, tag: Tag) -> bool {
        if self.starved == 0 {
            return false;
        }
        let slot = self.slots.get_mut(usize::from(tag));
        let was = slot.is_some_and(|slot| std::mem::take(&mut slot.is_starved));
        self.starved -= usize::from(was);
        was
    }
}

/// What a call waited for elsewhere is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoOn;

impl From<GoOn> for later::Answer {
    fn from(_: GoOn) -> later::Answer {
        later::Answer::Nfs(GoOn)
    }
}

impl Answers for GoOn {
    /// Whoever was to do it has failed, and the target stops. What clients may
    /// reclaim is not on the disk then, as when the disk fails.
    fn lost() -> GoOn {
        GoOn
    }
}

impl Protocol for Nfs {
    type Machine = Transport;
    type Answer = GoOn;

    #[inline]
    fn execute<D: Driver>(c: &mut Connection, op: &Op, driver: &mut D) -> bool {
        match *op {
            Op::Call { tag } => c.call(tag, driver),
            Op::Prepare {
                call,
                tag,
                offset,
                len,
                staged,
            } => c.run_call(None, None, driver, |_, around| {
                nfsd::prepare(around, call, tag, offset, len, staged)
            }),
            Op::Answer { tag, xid } => {
                c.called_back(tag, xid, driver);
                true
            }
            Op::Fatal(error) => {
                c.shared.refusals.note(Refusal {
                    peer: Some(c.via.peer),
                    ..Refusal::new(Kind::End, &error)
                });
                true
            }
        }
    }

    fn is_of(op: &Op, tag: Tag) -> bool {
        match *op {
            Op::Call { tag: own } | Op::Prepare { tag: own, .. } => own == tag,
            Op::Answer { .. } | Op::Fatal(_) => false,
        }
    }

    fn stalls(c: &Connection, op: &Op) -> bool {
        matches!(*op, Op::Prepare { tag, .. } if c.link.machine.is_blocked_on(tag))
    }

    fn refuse_late<D: Driver>(c: &mut Connection, op: Op, driver: &mut D) {
        match op {
            Op::Prepare { tag, .. } => c.link.machine.refuse(tag),
            Op::Call { tag } => c.refuse(tag, driver),
            Op::Answer { .. } | Op::Fatal(_) => {}
        }
    }

    /// A batch that has gone, or an answer, may have made room for calls that are
    /// staged.
    #[inline]
    fn has_step(c: &Connection) -> bool {
        c.link.staged_bytes() > 0
    }

    fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    fn is_busy(c: &Connection) -> bool {
        c.own.is_leaving && (c.jobs_open > 0 || c.is_waiting())
    }

    fn answered<D: Driver>(c: &mut Connection, tag: Tag, _: &Work, _: GoOn, driver: &mut D) {
        c.go_on(tag, driver);
    }

    /// Memory goes with a call: any of its data may be what is worked on.
    fn is_worked_on(c: &Connection, _: Tag) -> bool {
        c.jobs_open > 0
    }

    /// What waits for memory will not have it; everything else goes to its end.
    fn closing<D: Driver>(c: &mut Connection, driver: &mut D) {
        let nfsd = c.shared.nfs.nfsd();
        nfsd.disconnected(&c.own.peer);
        for (_, id, _) in c.own.called.drain(..) {
            nfsd.answered(id, None, driver.now());
        }
        mail::see_to(&c.shared, (&c.jobs, &c.own.local), driver);
        for tag in 0..c.own.slots.len() {
            if c.own.feed(tag as Tag) {
                c.own.slots[tag].execution.abandon();
            }
        }
    }

    fn has_ended(c: &Connection) -> bool {
        c.jobs_open == 0
    }

    fn is_known(&self) -> bool {
        self.is_known
    }

    #[inline]
    fn heard(&self) {}

    fn on_tick<D: Driver>(c: &mut Connection, now: Nanos, _: &mut D) {
        if c.link.machine.deadline().is_some_and(|at| at <= now) {
            tracing::debug!(peer = %c.via.peer, "no call in time: connection ends");
            c.link.machine.on_deadline(now);
        }
        let nfsd = c.shared.nfs.nfsd();
        c.own.peer.on_tick(nfsd, &c.link.machine);
        let machine = &mut c.link.machine;
        c.own.called.retain(|(xid, _, made)| {
            let is_awaited = now.saturating_sub(*made) < CALL_MAX;
            if !is_awaited {
                machine.forget_call(*xid);
            }
            is_awaited
        });
    }

    /// What a client has it may have on other connections too.
    fn end_all(_: &mut Connection) {}

    fn was_removed(_: &mut Connection) {}
}

impl Connection {
    /// Runs `f` on the execution of a call that waited, or on the one that no
    /// call is in.
    #[inline]
    fn run_call<D: Driver, R>(
        &mut self,
        tag: Option<Tag>,
        id: Option<JobId>,
        driver: &mut D,
        f: impl FnOnce(&mut Execution, &mut Around<'_>) -> R,
    ) -> R {
        let own = &mut self.own;
        let execution = match tag {
            Some(tag) => &mut own.slots[usize::from(tag)].execution,
            None => &mut own.first,
        };
        let id = id.unwrap_or_else(|| self.jobs.borrow_mut().vacant());
        let now = driver.now();
        let mut around = Around {
            nfsd: self.shared.nfs.nfsd(),
            peer: &mut own.peer,
            link: &mut self.link,
            pool: &self.pool,
            files: driver,
            token: Subject::File(id).token(),
            now,
            time: own.local.time(now),
        };
        f(execution, &mut around)
    }

    /// A call is here, or one that has waited for memory may find some.
    #[inline]
    fn call<D: Driver>(&mut self, tag: Tag, driver: &mut D) -> bool {
        if self.own.feed(tag) {
            let step = self.run_call(Some(tag), None, driver, Execution::go_on);
            return self.settle(tag, None, step, driver);
        }
        self.own.is_known = true;
        let calls = &self.own.local.calls;
        calls.set(calls.get() + 1);
        let step = self.run_call(None, None, driver, |execution, around| {
            execution.begin(tag, around)
        });
        if !matches!(step, Step::Sent) {
            self.own.put_aside(tag, self.link.machine.tags_max());
        }
        self.settle(tag, None, step, driver)
    }

    /// Sees to what a call waits for; false: memory.
    #[inline]
    fn settle<D: Driver>(&mut self, tag: Tag, kept: Kept, step: Step, driver: &mut D) -> bool {
        match step {
            Step::Sent => {
                self.let_go(kept);
                self.link.gather(driver);
                mail::see_to(&self.shared, (&self.jobs, &self.own.local), driver);
            }
            Step::Pending(fs, task) => self.keep(tag, kept, Work::Files(OnFiles { fs, task })),
            Step::Elsewhere(Elsewhere::Records) => {
                self.let_go(kept);
                self.keep_records(tag);
            }
            Step::NoMemory => {
                self.let_go(kept);
                self.own.starve(tag);
                return false;
            }
            Step::Turn => self.give_way(tag, kept, driver),
        }
        true
    }

    /// A call goes on when others have had their turn.
    #[cold]
    fn give_way<D: Driver>(&mut self, tag: Tag, kept: Kept, driver: &mut D) {
        let id = kept.map_or_else(|| self.jobs.borrow_mut().vacant(), |(id, _)| id);
        driver.ticket(Subject::File(id).token()).ring();
        self.keep(tag, kept, Work::CallTurn);
    }

    /// A call is answered when what it has changed of clients is on the disk.
    #[cold]
    fn keep_records(&mut self, tag: Tag) {
        let later = self.later(tag);
        self.shared.keep_records(move || later.answer(GoOn));
    }

    /// As [`Connection::settle`], of a call that nobody tries again by itself.
    fn settle_late<D: Driver>(&mut self, tag: Tag, kept: Kept, step: Step, driver: &mut D) {
        if self.settle(tag, kept, step, driver) {
            return;
        }
        match self.is_open() {
            true => self.wait(Op::Call { tag }),
            false => {
                self.own.feed(tag);
                self.own.slots[usize::from(tag)].execution.abandon();
            }
        }
    }

    /// A call has waited for memory too long.
    #[cold]
    fn refuse<D: Driver>(&mut self, tag: Tag, driver: &mut D) {
        self.own.feed(tag);
        let step = self.run_call(Some(tag), None, driver, Execution::refuse);
        self.settle_late(tag, None, step, driver);
    }

    fn go_on<D: Driver>(&mut self, tag: Tag, driver: &mut D) {
        let step = self.run_call(Some(tag), None, driver, Execution::go_on);
        self.settle_late(tag, None, step, driver);
    }

    /// File work of a call completed.
    #[inline]
    pub(crate) fn on_file<D: Driver>(
        &mut self,
        id: JobId,
        job: Job,
        result: std::io::Result<u32>,
        driver: &mut D,
    ) {
        let Job {
            tag, mark, work, ..
        } = job;
        let step = self.run_call(
            Some(tag),
            Some(id),
            driver,
            |execution, around| match work {
                Work::Files(on) => execution.resume(&on.fs, on.task, result, around),
                Work::CallTurn => execution.go_on(around),
                _ => unreachable!("file work is a file system's"),
            },
        );
        self.settle_late(tag, Some((id, mark)), step, driver);
    }

    /// Answers what is under way and closes.
    pub(crate) fn dismiss<D: Driver>(&mut self, _: &mut D) {
        self.own.is_leaving = true;
    }

    /// Calls the client.
    pub(crate) fn call_back(&mut self, callback: Callback, now: Nanos) {
        let machine = &mut self.link.machine;
        let xid = match self.own.is_leaving {
            true => None,
            false => machine.call_back(callback.procedure(), |to| callback.encode(to)),
        };
        match xid {
            Some(xid) => self.own.called.push((xid, callback.id, now)),
            None => self.shared.nfs.nfsd().answered(callback.id, None, now),
        }
    }

    /// What we called was answered.
    #[cold]
    fn called_back<D: Driver>(&mut self, tag: Tag, xid: u32, driver: &mut D) {
        let called = &mut self.own.called;
        if let Some(at) = called.iter().position(|(own, ..)| *own == xid) {
            let (_, id, _) = called.swap_remove(at);
            let answer = self.link.machine.answer(tag);
            self.shared
                .nfs
                .nfsd()
                .answered(id, Some(answer), driver.now());
        }
        self.link.machine.forget_answer(tag);
        mail::see_to(&self.shared, (&self.jobs, &self.own.local), driver);
    }
}
