//! iSCSI: what sessions of initiators do on volumes.
#![forbid(unsafe_code)]

mod copy;
mod inline;
mod io;
mod local;
mod login;
mod order;
mod reservation;
mod served;
mod service;
mod session;
mod space;
mod steps;
mod task;
mod task_management;

use std::cell::{Ref, RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use engine::blocks::{Then, VolumeWork};
use engine::hosts::Place;
use engine::job::{Job, Jobs};
use engine::{
    Blocks, Connection as _, ConnectionId, Core, Elsewhere as _, Event, Has, JobId, Kind,
    OnVolumes as _, Orphans as _, Post, Protocol, Shard, Stage, Via,
};
use iscsi::target::{Connection as Transport, Done, Op};
use iscsi::{LoginState, SessionId, SessionKind};
use machine::{Machine as _, Nanos, Tag};
use mem::Pool;
use reactor::{Driver, SocketId};
use scsi::{Attention, Sense};
use store::Volume;
use store::reservation::Registrant;
use wire::iscsi::TaskResponse;

pub use self::local::Local;
use self::login::Waiting;
pub use self::served::{Ana, Lun, Served, Targets, ana_state};
pub use self::service::{Mail, OwnMail, Service, SetStates, StatesOf, StatesSet};
use self::session::Session;
use self::task::Slot;

/// Answers one command from anywhere.
pub type Later = engine::Later<Answer, OwnMail>;

/// Where the answer to a command comes from.
pub type Work = VolumeWork<Answer>;

/// A login was refused.
const LOGIN_REFUSED: Kind = Kind("login refused");
/// A PDU was.
const PDU_REJECTED: Kind = Kind("PDU rejected");

/// What a connection became with the end of its login.
pub(crate) struct Bound {
    session: Rc<RefCell<Session>>,
    served: Served,
    kind: SessionKind,
}

/// One iSCSI connection.
pub struct Connection {
    core: Core<Connection>,
    service: Arc<Service>,
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

/// A connection that just came.
pub fn open(
    local: &Rc<Local>,
    socket: (ConnectionId, SocketId),
    came: (Via, Place),
    (pool, now): (&Pool, Nanos),
) -> Connection {
    let machine = Transport::new(local.service.settings, now);
    Connection::new(local, machine, socket, came, pool)
}

impl Connection {
    fn new(
        local: &Rc<Local>,
        machine: Transport,
        (id, socket): (ConnectionId, SocketId),
        came: (Via, Place),
        pool: &Pool,
    ) -> Connection {
        let (service, here) = (local.service.clone(), (local.jobs.clone(), pool));
        Connection {
            core: Core::new(machine, id, socket, came, service.shared.clone(), here),
            service,
            local: local.clone(),
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

/// As the registry knows it.
fn via(via: &Via) -> iscsi::Via {
    iscsi::Via {
        connection: via.connection,
        listener: via.listener,
        local: via.local,
        peer: via.peer,
    }
}

impl Protocol for Connection {
    type Machine = Transport;
    type Answer = Answer;
    type Mail = OwnMail;
    type Job = Work;
    type Local = Local;

    const REFUSES_COMMANDS: bool = true;

    fn jobs(local: &Local) -> &RefCell<Jobs<Work>> {
        &local.jobs
    }

    #[inline]
    fn core(&self) -> &Core<Self> {
        &self.core
    }

    #[inline]
    fn core_mut(&mut self) -> &mut Core<Self> {
        &mut self.core
    }

    fn post(&self) -> &Arc<dyn Post<Mail>> {
        &self.service.post
    }

    fn lost() -> Answer {
        Answer::Check(io::internal_failure())
    }

    #[inline]
    fn execute<D: Driver>(&mut self, op: &Op, driver: &mut D) -> bool {
        match op {
            Op::Execute { tag, task } => self.execute_task(*tag, task, driver),
            Op::Prepare { tag, task, staged } => self.prepare(*tag, task, *staged),
            _ => self.execute_rare(op, driver),
        }
    }

    fn refuse<D: Driver>(&mut self, op: Op, driver: &mut D) {
        match op {
            Op::Prepare { tag, task, .. } | Op::Execute { tag, task } => {
                self.come(tag, &task);
                self.no_room(tag);
            }
            Op::Ping { tag, .. } => {
                self.end_task(tag, Done::status(scsi::status::BUSY), driver);
            }
            _ => {}
        }
    }

    fn answered<D: Driver>(&mut self, tag: Tag, answer: Answer, _: &mut D) {
        self.answer(tag, answer);
    }

    #[inline]
    fn on_file<D: Driver>(
        &mut self,
        id: JobId,
        job: Job<Work>,
        result: std::io::Result<u32>,
        driver: &mut D,
    ) {
        self.on_volume(id, job, result, driver);
    }

    fn on_mail<S: Has<Self>, D: Driver>(shard: &mut Shard<S>, mail: OwnMail, driver: &mut D) {
        match mail {
            OwnMail::Refresh(name, by, tell) => shard.for_each_of(driver, |c: &mut Self, d| {
                c.refresh(&name, by, tell, d);
            }),
            OwnMail::EndTasks(ending) => shard.for_each_of(driver, |c: &mut Self, d| {
                c.end_tasks(&ending, d);
            }),
            OwnMail::Attend(volume, told) => shard.for_each_of(driver, |c: &mut Self, _| {
                c.attend(&volume, &told);
            }),
            OwnMail::GoOn(to) => shard.with_of(driver, to.id, |c: &mut Self, d| {
                c.go_on_waiting(d);
                c.run(d);
            }),
            OwnMail::Warn(name, lun, attention) => shard.for_each_of(driver, |c: &mut Self, _| {
                c.warn(&name, lun, attention);
            }),
            OwnMail::AskToLeave(to) => shard.with_of(driver, to.id, |c: &mut Self, d| {
                c.ask_to_leave(d);
            }),
            OwnMail::Preempt(volume, nexuses) => shard.for_each_of(driver, |c: &mut Self, d| {
                let is_meant = |bound: &Bound| {
                    let session = bound.session.borrow();
                    nexuses.contains(session.registrant())
                };
                if c.bound.as_ref().is_some_and(is_meant) {
                    c.end_tasks_on(&volume, d);
                }
            }),
            OwnMail::Join(handover) => login::join(shard, *handover, driver),
        }
    }

    #[inline]
    fn on_event<D: Driver>(&mut self, event: Event, driver: &mut D) {
        match event {
            Event::Ran => self.note_due(),
            Event::TurnEnds => self.move_on(driver),
            Event::Resumed => self.begin_held(driver),
            Event::Tick(now) => self.tick(now, driver),
            Event::SitsOnMemory => self.end_session(),
            Event::Dismissed => self.dismiss_initiator(driver),
            Event::Closing => {
                if self.bound.is_some() {
                    self.tell_gone("logged out, or its connection is lost");
                }
                self.orphan_all(driver);
            }
            Event::Removed => self.leave(),
            Event::Heard | Event::Orphaned(_) => {}
        }
    }

    /// In a discovery session anybody may be, and as often as he likes.
    #[inline]
    fn stage(&self) -> Stage {
        match &self.bound {
            _ if self.is_lost => Stage::Leaving,
            Some(bound) if bound.kind == SessionKind::Normal => Stage::Known,
            _ => Stage::Stranger,
        }
    }

    fn names(&self) -> (Option<&str>, Option<&str>) {
        (self.login.initiator(), self.login.target())
    }

    #[inline]
    fn has_step(&self) -> bool {
        self.core.link.machine.has_step()
    }

    #[inline]
    fn is_command(op: &Op) -> bool {
        matches!(op, Op::Execute { .. } | Op::Prepare { .. })
    }

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

    fn stalls(&self, op: &Op) -> bool {
        let link = &self.core.link;
        match *op {
            Op::Prepare { tag, .. } | Op::Ping { tag, .. } => link.machine.is_blocked_on(tag),
            Op::Execute { tag, .. } => link.staged(tag).is_some(),
            _ => false,
        }
    }

    /// What waits for its turn does so whatever its initiator does.
    fn is_worked_on(&self, tag: Tag) -> bool {
        let slot = self.slots.get(usize::from(tag));
        slot.is_some_and(Slot::is_held) || self.core.has_job(tag)
    }
}

impl Blocks for Connection {
    #[inline]
    fn volume(&self, unit: u32) -> Option<&Arc<dyn Volume>> {
        let lun = self.bound.as_ref()?.served.at(unit)?;
        Some(&lun.volume)
    }

    #[inline]
    fn succeeded(&mut self, tag: Tag, _: u32, then: Then<Answer>) {
        if let Then::Steps(mut steps) = then
            && let Some(answer) = steps.verdict()
        {
            return self.answer(tag, answer);
        }
        self.succeed(tag);
    }

    #[cold]
    fn failed(&mut self, tag: Tag, at: (u32, u64), error: store::Error, then: Then<Answer>) {
        if let Then::Steps(mut steps) = then
            && let Some(answer) = steps.failed(error)
        {
            return self.answer(tag, answer);
        }
        self.io_failed(tag, at, error);
    }
}

impl Connection {
    /// Looks at the time.
    fn tick<D: Driver>(&mut self, now: Nanos, driver: &mut D) {
        if self.leaves_at.take_if(|at| *at <= now).is_some() {
            self.dismiss_initiator(driver);
        }
        if self
            .core
            .link
            .machine
            .deadline()
            .is_some_and(|at| at <= now)
        {
            if !self.core.may_receive() {
                self.core.link.machine.leaves_unread();
            }
            self.core.link.machine.on_deadline(now);
            self.run(driver);
        }
        if self.core.is_short(now) && self.core.is_open() {
            self.core.link.machine.shed_kept();
        }
    }

    #[inline]
    fn bound(&self) -> &Bound {
        let bound = self.bound.as_ref();
        bound.expect("commands come after login")
    }

    /// The logical unit at a place.
    #[inline]
    pub(crate) fn place(&self, place: u32) -> &Lun {
        let lun = self.bound().served.at(place);
        lun.expect("a command has its unit")
    }

    /// Its session.
    #[inline]
    pub(crate) fn session(&self) -> Ref<'_, Session> {
        self.bound().session.borrow()
    }

    /// Its session, to be changed.
    #[inline]
    pub(crate) fn session_mut(&self) -> RefMut<'_, Session> {
        self.bound().session.borrow_mut()
    }

    /// Who it is to reservations.
    pub(crate) fn registrant(&self) -> Registrant {
        self.session().registrant().clone()
    }

    /// The name of its target.
    pub(crate) fn target_name(&self) -> &str {
        &self.bound().served.view.name
    }

    /// Copies of its nexus.
    pub(crate) fn copies(&self) -> copy::Copies {
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
        let is_open = self.core.is_open();
        let Some(bound) = self.bound.as_mut().filter(|_| is_open) else {
            return;
        };
        if bound.served.view.name != target || bound.kind != SessionKind::Normal {
            return;
        }
        let id = bound.session.borrow().id;
        let registry = self.service.registry();
        let mask = registry.session(id).map(|session| session.luns.clone());
        drop(registry);
        // One that is over sees nothing any more.
        let mask = mask.unwrap_or(Some(Vec::new())).map(Arc::from);
        let new = self.service.places().renewed(&bound.served, mask);
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
        let Some(bound) = &self.bound else { return };
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
                self.core.link.machine.task_management_done(tag, response);
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
                self.note_refusal(PDU_REJECTED, &format_args!("opcode {opcode:#x}: {reason}"));
            }
            Op::Fatal(error) => {
                self.note_refusal(Kind::END, &error);
                if error.ends_session() {
                    self.end_session();
                }
            }
            Op::Execute { .. } | Op::Prepare { .. } => unreachable!("tasks have their own way"),
        }
        true
    }
}
