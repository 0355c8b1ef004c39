//! iSCSI: sessions of initiators on the target's connections.

mod copy;
mod inline;
mod io;
pub(crate) mod login;
mod order;
pub(crate) mod reservation;
pub(crate) mod served;
pub(crate) mod session;
mod space;
mod steps;
mod task;
pub(crate) mod task_management;

use std::cell::{Ref, RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use iscsi::target::{Connection as Transport, Done, Op, Settings};
use iscsi::{LoginState, SessionId, SessionKind};
use machine::{Machine, Nanos, Tag};
use reactor::Driver;
use scsi::{Attention, Sense};
use store::Volume;
use store::reservation::Registrant;
use wire::iscsi::TaskResponse;

use self::login::Waiting;
use self::served::{Lun, Served};
use self::session::{Local, Session};
use self::task::Slot;
use crate::connection::{self, Blocks, Protocol, Via};
use crate::engine::Then;
use crate::job::Work;
use crate::later::{self, Answers};
use crate::refusals::Kind;
use crate::shared::Shared;

/// One iSCSI connection.
pub(crate) type Connection = connection::Connection<Iscsi>;

/// What a connection became with the end of its login.
pub(crate) struct Bound {
    session: Rc<RefCell<Session>>,
    served: Served,
    kind: SessionKind,
}

/// What is iSCSI's own of a connection.
pub(crate) struct Iscsi {
    /// What it shares with others of its reactor.
    local: Rc<Local>,
    /// How far its login has come.
    login: LoginState,
    /// The outcome of a login that something must happen before.
    waiting: Option<Box<Waiting>>,
    bound: Option<Bound>,
    /// By tag.
    slots: Vec<Slot>,
    /// It closes when everything was sent.
    is_lost: bool,
    /// It was asked to log out, and is closed at this time.
    leaves_at: Option<Nanos>,
    /// It is on another reactor now.
    has_moved: bool,
}

impl Iscsi {
    /// Of a connection that just came.
    pub(crate) fn open(shared: &Shared, local: Rc<Local>, now: Nanos) -> (Transport, Iscsi) {
        let settings = Settings {
            handshake_timeout: u64::from(shared.limits.handshake_timeout_ms) * 1_000_000,
        };
        (Transport::new(settings, now), Iscsi::new(local))
    }

    fn new(local: Rc<Local>) -> Iscsi {
        Iscsi {
            local,
            login: LoginState::default(),
            waiting: None,
            bound: None,
            slots: Vec::new(),
            is_lost: false,
            leaves_at: None,
            has_moved: false,
        }
    }
}

/// How a command ended that ended elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// GOOD, with data to the initiator; cut to what there is memory for.
    Good(Vec<u8>),
    /// CHECK CONDITION.
    Check(Sense),
    /// Another status.
    Status(u8),
    /// Of a task management function.
    TaskManagement(TaskResponse),
    /// GOOD, of SET TARGET PORT GROUPS.
    StatesSet,
}

impl From<Sense> for Answer {
    fn from(sense: Sense) -> Answer {
        Answer::Check(sense)
    }
}

impl From<Answer> for later::Answer {
    fn from(answer: Answer) -> later::Answer {
        later::Answer::Iscsi(answer)
    }
}

impl Answers for Answer {
    fn lost() -> Answer {
        Answer::Check(io::internal_failure())
    }
}

impl From<Via> for iscsi::Via {
    fn from(via: Via) -> iscsi::Via {
        iscsi::Via {
            connection: via.connection,
            listener: via.listener,
            local: via.local,
            peer: via.peer,
        }
    }
}

/// Whether it is an operation of this task.
fn is_of(op: &Op, tag: Tag) -> bool {
    match *op {
        Op::Prepare { tag: own, .. }
        | Op::Execute { tag: own, .. }
        | Op::Ping { tag: own, .. }
        | Op::TaskManagement { tag: own, .. }
        | Op::GivenUp { tag: own } => own == tag,
        Op::Login | Op::Text | Op::Logout { .. } | Op::Refused(_) | Op::Fatal(_) => false,
    }
}

impl Protocol for Iscsi {
    type Machine = Transport;
    type Answer = Answer;

    fn names(&self) -> (Option<&str>, Option<&str>) {
        (self.login.initiator(), self.login.target())
    }

    fn closing<D: Driver>(c: &mut Connection, driver: &mut D) {
        if c.own.bound.is_some() {
            c.tell_gone("logged out, or its connection is lost");
        }
        c.orphan_all(driver);
    }

    #[inline]
    fn execute<D: Driver>(c: &mut Connection, op: &Op, driver: &mut D) -> bool {
        match op {
            Op::Execute { tag, task } => c.execute_task(*tag, task, driver),
            Op::Prepare { tag, task, staged } => c.prepare(*tag, task, *staged),
            _ => c.execute_rare(op, driver),
        }
    }

    fn is_of(op: &Op, tag: Tag) -> bool {
        is_of(op, tag)
    }

    fn stalls(c: &Connection, op: &Op) -> bool {
        match *op {
            Op::Prepare { tag, .. } | Op::Ping { tag, .. } => c.link.machine.is_blocked_on(tag),
            Op::Execute { tag, .. } => c.link.staged(tag).is_some(),
            _ => false,
        }
    }

    fn refuse_late<D: Driver>(c: &mut Connection, op: Op, driver: &mut D) {
        if let Op::Prepare { tag, .. } | Op::Execute { tag, .. } | Op::Ping { tag, .. } = op {
            c.end_task(tag, Done::status(scsi::status::BUSY), driver);
        }
    }

    #[inline]
    fn has_step(c: &Connection) -> bool {
        c.link.machine.has_step()
    }

    #[inline]
    fn ran(c: &mut Connection) {
        c.note_due();
    }

    fn is_leaving(&self) -> bool {
        self.is_lost
    }

    fn turn_ends<D: Driver>(c: &mut Connection, driver: &mut D) {
        c.move_on(driver);
    }

    fn resume<D: Driver>(c: &mut Connection, driver: &mut D) {
        c.begin_held(driver);
    }

    fn answered<D: Driver>(c: &mut Connection, tag: Tag, _: &Work, answer: Answer, _: &mut D) {
        c.answer(tag, answer);
    }

    /// In a discovery session anybody may be, and as often as he likes.
    fn is_known(&self) -> bool {
        let bound = self.bound.as_ref();
        bound.is_some_and(|bound| bound.kind == SessionKind::Normal)
    }

    #[inline]
    fn heard(&self) {}

    fn on_tick<D: Driver>(c: &mut Connection, now: Nanos, driver: &mut D) {
        if c.own.leaves_at.take_if(|at| *at <= now).is_some() {
            c.dismiss(driver);
        }
        if c.link.machine.deadline().is_some_and(|at| at <= now) {
            c.link.machine.on_deadline(now);
            c.run(driver);
        }
        if c.is_short(now) && c.is_open() {
            c.link.machine.shed_kept();
        }
    }

    /// What waits for its turn does so whatever its initiator does.
    fn is_worked_on(c: &Connection, tag: Tag) -> bool {
        let slot = c.own.slots.get(usize::from(tag));
        slot.is_some_and(Slot::is_held) || c.jobs.borrow().find(c.id(), tag).is_some()
    }

    fn end_all(c: &mut Connection) {
        c.end_session();
    }

    fn was_removed(c: &mut Connection) {
        c.leave();
    }
}

impl Blocks for Iscsi {
    #[inline]
    fn volume(&self, unit: u32) -> Option<&Arc<dyn Volume>> {
        let lun = self.bound.as_ref()?.served.at(unit)?;
        Some(&lun.volume)
    }

    #[inline]
    fn succeeded(c: &mut Connection, tag: Tag, _: u32, then: Then) {
        if let Then::Steps(mut steps) = then
            && let Some(answer) = steps.verdict()
        {
            return c.answer(tag, answer);
        }
        c.succeed(tag);
    }

    #[cold]
    fn failed(c: &mut Connection, tag: Tag, at: (u32, u64), error: store::Error, then: Then) {
        if let Then::Steps(mut steps) = then
            && let Some(answer) = steps.failed(error)
        {
            return c.answer(tag, answer);
        }
        c.io_failed(tag, at, error);
    }

    fn preempt<D: Driver>(
        c: &mut Connection,
        volume: &Arc<dyn Volume>,
        hosts: &BTreeSet<Registrant>,
        driver: &mut D,
    ) {
        let is_meant = |bound: &Bound| hosts.contains(bound.session.borrow().registrant());
        if c.own.bound.as_ref().is_some_and(is_meant) {
            c.end_tasks_on(volume, driver);
        }
    }
}

impl Iscsi {
    #[inline]
    fn at(&self, place: u32) -> &Lun {
        let bound = self.bound.as_ref().expect("commands come after login");
        bound.served.at(place).expect("a command has its unit")
    }
}

impl Connection {
    #[inline]
    fn bound(&self) -> &Bound {
        let bound = self.own.bound.as_ref();
        bound.expect("commands come after login")
    }

    /// The logical unit at a place.
    #[inline]
    pub(super) fn place(&self, place: u32) -> &Lun {
        self.own.at(place)
    }

    /// Its session.
    #[inline]
    pub(super) fn session(&self) -> Ref<'_, Session> {
        self.bound().session.borrow()
    }

    /// Its session, to be changed.
    #[inline]
    pub(super) fn session_mut(&self) -> RefMut<'_, Session> {
        self.bound().session.borrow_mut()
    }

    /// Who it is to reservations.
    pub(super) fn registrant(&self) -> Registrant {
        self.session().registrant().clone()
    }

    /// The name of its target.
    pub(super) fn target_name(&self) -> &str {
        &self.bound().served.view.name
    }

    /// Copies of its nexus.
    pub(super) fn copies(&self) -> copy::Copies {
        self.session().copies.clone()
    }

    /// What is behind its target has changed, by a command of the session `by`
    /// or otherwise; its initiator is to be told now, or later.
    pub(crate) fn refresh<D: Driver>(
        &mut self,
        target: &str,
        by: Option<SessionId>,
        tell: bool,
        driver: &mut D,
    ) {
        let is_open = self.is_open();
        let Some(bound) = self.own.bound.as_mut().filter(|_| is_open) else {
            return;
        };
        if bound.served.view.name != target || bound.kind != SessionKind::Normal {
            return;
        }
        let id = bound.session.borrow().id;
        let registry = self.shared.iscsi();
        let mask = registry.session(id).map(|session| session.luns.clone());
        drop(registry);
        // One that is over sees nothing any more.
        let mask = mask.unwrap_or(Some(Vec::new())).map(Arc::from);
        let new = self.shared.state().iscsi.renewed(&bound.served, mask);
        bound.served = new.clone();
        let mut session = bound.session.borrow_mut();
        let own = by == Some(session.id);
        let begins = session.adopt(&new, own, tell);
        drop(session);
        if begins {
            self.note_begun();
        }
        self.run(driver);
    }

    /// Something has happened to a volume that these nexuses are told of.
    pub(crate) fn attend(
        &mut self,
        volume: &Arc<dyn Volume>,
        told: &BTreeMap<Registrant, Attention>,
    ) {
        let Some(bound) = &self.own.bound else { return };
        let mut session = bound.session.borrow_mut();
        if let Some(attention) = told.get(session.registrant()).copied() {
            session.post(attention, |lun| Arc::ptr_eq(&lun.volume, volume));
        }
    }

    /// Ends a command as it was said elsewhere.
    fn answer(&mut self, tag: Tag, answer: Answer) {
        match answer {
            Answer::Good(data) => {
                let len = self.put_answer(tag, &data);
                self.good_with(tag, len);
            }
            Answer::Check(sense) => self.check(tag, &sense),
            Answer::Status(status) => self.status(tag, status),
            Answer::StatesSet => {
                // Who asked for it is not told of it.
                self.session_mut().clear(Attention::ACCESS_STATE_CHANGED);
                self.good(tag);
            }
            Answer::TaskManagement(response) => {
                self.link.machine.task_management_done(tag, response);
            }
        }
    }

    /// Everything but SCSI commands; false while memory is short.
    #[cold]
    fn execute_rare<D: Driver>(&mut self, op: &Op, driver: &mut D) -> bool {
        match *op {
            Op::Login => self.login(driver),
            Op::Text => self.text(),
            Op::Ping { tag, len } => self.ping(tag, len),
            Op::TaskManagement {
                tag,
                function,
                lun,
                referenced,
            } => self.task_management(tag, function, lun, referenced, driver),
            Op::Logout { reason, cid } => self.logout(reason, cid, driver),
            Op::GivenUp { tag } => self.given_up(tag),
            Op::Refused(refused) => {
                let (opcode, reason) = (refused.opcode, refused.reason);
                self.note_refusal(Kind::Pdu, &format_args!("opcode {opcode:#x}: {reason}"));
            }
            Op::Fatal(error) => {
                self.note_refusal(Kind::End, &error);
                if error.ends_session() {
                    self.end_session();
                }
            }
            Op::Execute { .. } | Op::Prepare { .. } => unreachable!("tasks have their own way"),
        }
        true
    }
}
