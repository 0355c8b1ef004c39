//! iSCSI: what sessions of initiators do on volumes.
#![forbid(unsafe_code)]

mod copy;
mod info;
mod inline;
mod io;
mod local;
mod login;
mod order;
mod reservation;
mod rod_tokens;
mod served;
mod service;
mod session;
mod space;
mod steps;
mod task;
mod task_management;
mod token_commands;

use std::cell::{Ref, RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use engine::blocks::{AfterIo, VolumeWork};
use engine::hosts::HostPlace;
use engine::job::{Job, Jobs};
use engine::{
    Blocks, Connection as _, ConnectionEvent, ConnectionId, ConnectionStage, Core, Demand,
    Elsewhere as _, Goal, Has, JobId, OnVolumes as _, Orphans as _, Post, Protocol, RefusalKind,
    Shard, Via,
};
use iscsi::accepted::{AcceptedConnection as Transport, IserSettings};
use iscsi::iser::CountedStream;
use iscsi::target::{Done, FatalError, TargetOp};
use iscsi::{LoginState, SessionId, SessionKind};
use link::Stream;
use machine::{Machine as _, Nanos, Tag};
use mem::Pool;
use reactor::{Driver, must_fill_random};
use scsi::{Attention, Sense};
use store::Volume;
use store::meter::IoOp;
use store::reservation::Registrant;
use wire::iscsi::TaskResponse;

pub use self::info::SessionPlace;
pub use self::local::Local;
use self::login::WaitingLogin;
pub use self::served::{Ana, Lun, ServedTarget, Targets, ana_state};
pub use self::service::{IscsiMail, OwnMail, Service, SetStates, StatesOf, StatesSet};
use self::session::IscsiSession;
use self::task::TaskSlot;

/// Answers one command from anywhere.
pub type Later = engine::Later<CommandAnswer, OwnMail>;

/// Where the answer to a command comes from.
pub type TaskWork = VolumeWork<CommandAnswer>;

/// A login was refused.
const LOGIN_REFUSED: RefusalKind = RefusalKind("login refused");
/// A PDU was.
const PDU_REJECTED: RefusalKind = RefusalKind("PDU rejected");

/// What a connection became with the end of its login.
pub(crate) struct Bound {
    session: Rc<RefCell<IscsiSession>>,
    served: ServedTarget,
    kind: SessionKind,
    tsih: u16,
    cid: u16,
}

/// One iSCSI connection.
pub struct IscsiConnection {
    core: Core<IscsiConnection>,
    service: Arc<Service>,
    /// What it shares with others of its reactor.
    local: Rc<Local>,
    /// How far its login has come.
    login: LoginState,
    /// The outcome of a login that something must happen before.
    waiting: Option<Box<WaitingLogin>>,
    bound: Option<Bound>,
    /// By tag.
    slots: Vec<TaskSlot>,
    /// It closes when everything was sent.
    is_lost: bool,
    /// It was asked to log out, and is closed at this time.
    leaves_at: Option<Nanos>,
    /// It is on another reactor now.
    has_moved: bool,
    rdma: CountedStream,
}

/// A connection that just came by a listener that takes RDMA as `rdma` says.
pub fn open(
    (local, rdma): (&Rc<Local>, Option<IserSettings>),
    stream: (ConnectionId, Stream),
    came: (Via, HostPlace),
    (pool, now): (&Pool, Nanos),
) -> IscsiConnection {
    let mut seed = [0; 8];
    must_fill_random(&mut seed);
    let seed = u64::from_le_bytes(seed);
    let machine = Transport::new(local.service.settings, rdma, seed, now);
    IscsiConnection::new(local, machine, stream, came, pool)
}

impl IscsiConnection {
    fn new(
        local: &Rc<Local>,
        machine: Transport,
        (id, stream): (ConnectionId, Stream),
        came: (Via, HostPlace),
        pool: &Pool,
    ) -> IscsiConnection {
        let (service, here) = (local.service.clone(), (local.jobs.clone(), pool));
        let moved = machine.rdma_counts().unwrap_or_default();
        IscsiConnection {
            rdma: local.streams.stream(moved),
            core: Core::new(machine, id, stream, came, service.shared.clone(), here),
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

    /// Counts what has moved by RDMA since the last time.
    #[inline]
    pub(crate) fn count_rdma(&mut self) {
        if let Some(now) = self.core.link.machine.rdma_counts() {
            self.rdma.note(now);
        }
    }
}

/// How a command ended that ended elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandAnswer {
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

impl From<Sense> for CommandAnswer {
    fn from(sense: Sense) -> CommandAnswer {
        CommandAnswer::Check(sense)
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

impl Protocol for IscsiConnection {
    type Machine = Transport;
    type Answer = CommandAnswer;
    type Mail = OwnMail;
    type Job = TaskWork;
    type Local = Local;

    const REFUSES_COMMANDS: bool = true;

    fn jobs(local: &Local) -> &RefCell<Jobs<TaskWork>> {
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

    fn post(&self) -> &Arc<dyn Post<IscsiMail>> {
        &self.service.post
    }

    fn lost() -> CommandAnswer {
        CommandAnswer::Check(io::internal_failure())
    }

    #[inline]
    fn execute<D: Driver>(&mut self, op: &TargetOp, driver: &mut D) -> bool {
        match op {
            TargetOp::Execute { tag, task } => self.execute_task(*tag, task, driver),
            TargetOp::Prepare { tag, task, staged } => self.prepare(*tag, task, *staged),
            _ => self.execute_rare(op, driver),
        }
    }

    fn demand(&self, op: &TargetOp) -> Option<Demand> {
        match op {
            TargetOp::Prepare { task, .. } | TargetOp::Execute { task, .. } => self.demand_of(task),
            _ => None,
        }
    }

    fn goal(&self, unit: u32) -> Option<Goal<'_>> {
        let lun = self.bound.as_ref()?.served.at(unit)?;
        Some(Goal::Volume(&lun.volume.info().name))
    }

    /// It has its place in the order of tasks, though it waits.
    fn held_back(&mut self, op: &TargetOp) {
        if let TargetOp::Prepare { tag, task, .. } | TargetOp::Execute { tag, task } = op {
            self.enter_task_set(*tag, task);
        }
    }

    fn refuse<D: Driver>(&mut self, op: TargetOp, driver: &mut D) {
        match op {
            TargetOp::Prepare { tag, task, .. } | TargetOp::Execute { tag, task } => {
                self.enter_task_set(tag, &task);
                self.no_room(tag);
            }
            TargetOp::Ping { tag, .. } => {
                self.end_task(tag, Done::status(scsi::status::BUSY), driver);
            }
            _ => {}
        }
    }

    fn answered<D: Driver>(&mut self, tag: Tag, answer: CommandAnswer, _: &mut D) {
        self.answer(tag, answer);
    }

    #[inline]
    fn on_file<D: Driver>(
        &mut self,
        id: JobId,
        job: Job<TaskWork>,
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
                c.add_unit_attention(&volume, &told);
            }),
            OwnMail::GoOn(to) => shard.with_of(driver, to.id, |c: &mut Self, d| {
                c.resume_login(d);
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
    fn on_event<D: Driver>(&mut self, event: ConnectionEvent, driver: &mut D) {
        match event {
            ConnectionEvent::Ran => {
                self.note_due();
                self.count_rdma();
            }
            ConnectionEvent::TurnEnds => self.move_to_session_reactor(driver),
            ConnectionEvent::Resumed => self.begin_held(driver),
            ConnectionEvent::Tick(now) => self.tick(now, driver),
            ConnectionEvent::SitsOnMemory => self.end_session(),
            ConnectionEvent::Dismissed => self.dismiss_initiator(driver),
            ConnectionEvent::Closing => {
                if self.bound.is_some() {
                    self.tell_gone("logged out, or its connection is lost");
                }
                self.orphan_all(driver);
            }
            ConnectionEvent::Removed => {
                self.count_rdma();
                self.leave();
            }
            ConnectionEvent::Heard | ConnectionEvent::Secured | ConnectionEvent::Orphaned(_) => {}
        }
    }

    fn deadline(&self) -> Option<Nanos> {
        let both = [self.core.link.machine.deadline(), self.leaves_at];
        both.into_iter().flatten().min()
    }

    /// Connections of discovery sessions never become [`ConnectionStage::Known`].
    #[inline]
    fn stage(&self) -> ConnectionStage {
        match &self.bound {
            _ if self.is_lost => ConnectionStage::Leaving,
            Some(bound) if bound.kind == SessionKind::Normal => ConnectionStage::Known,
            _ => ConnectionStage::Stranger,
        }
    }

    fn names(&self) -> (Option<&str>, Option<&str>) {
        (self.login.initiator(), self.login.target())
    }

    #[inline]
    fn commands(op: &TargetOp) -> [Option<Tag>; 2] {
        match *op {
            TargetOp::Prepare { tag, .. } | TargetOp::Execute { tag, .. } => [Some(tag), None],
            _ => [None; 2],
        }
    }

    #[inline]
    fn is_whole(op: &TargetOp) -> bool {
        matches!(op, TargetOp::Execute { .. })
    }

    /// What waits for its turn does so whatever its initiator does.
    fn is_worked_on(&self, tag: Tag) -> bool {
        let slot = self.slots.get(usize::from(tag));
        slot.is_some_and(TaskSlot::is_held) || self.core.has_job(tag)
    }
}

impl Blocks for IscsiConnection {
    #[inline]
    fn volume(&self, unit: u32) -> Option<&Arc<dyn Volume>> {
        let lun = self.bound.as_ref()?.served.at(unit)?;
        Some(&lun.volume)
    }

    #[inline]
    fn core_and_volume(&mut self, unit: u32) -> (&mut Core<Self>, &Arc<dyn Volume>) {
        let bound = self.bound.as_ref().expect("commands come after login");
        let lun = bound.served.at(unit).expect("a command has its unit");
        (&mut self.core, &lun.volume)
    }

    #[inline]
    fn io_of(&self, tag: Tag) -> (IoOp, u64) {
        let slot = &self.slots[usize::from(tag)];
        match slot.op {
            IoOp::Read | IoOp::Write => (slot.op, slot.transfer_len),
            IoOp::Flush | IoOp::Other => (slot.op, 0),
        }
    }

    #[inline]
    fn succeeded(&mut self, tag: Tag, _: u32, then: AfterIo<CommandAnswer>) {
        if let AfterIo::Steps(mut steps) = then
            && let Some(answer) = steps.verdict()
        {
            return self.answer(tag, answer);
        }
        self.io_succeeded(tag);
    }

    #[cold]
    fn failed(
        &mut self,
        tag: Tag,
        at: (u32, u64),
        error: store::Error,
        then: AfterIo<CommandAnswer>,
    ) {
        if let AfterIo::Steps(mut steps) = then
            && let Some(answer) = steps.failed(error)
        {
            return self.answer(tag, answer);
        }
        self.io_failed(tag, at, error);
    }
}

impl IscsiConnection {
    /// Looks at the time.
    fn tick<D: Driver>(&mut self, now: Nanos, driver: &mut D) {
        self.service.rod_tokens.expire(now);
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
                self.core.link.machine.note_alive();
            }
            self.core.link.machine.on_deadline(now);
            self.run(driver);
        }
        if self.core.is_short(now) && self.core.is_open() {
            self.core.link.machine.drop_kept_data();
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
    pub(crate) fn session(&self) -> Ref<'_, IscsiSession> {
        self.bound().session.borrow()
    }

    /// Its session, to be changed.
    #[inline]
    pub(crate) fn session_mut(&self) -> RefMut<'_, IscsiSession> {
        self.bound().session.borrow_mut()
    }

    /// What reservations know it by.
    pub(crate) fn registrant(&self) -> Registrant {
        self.session().registrant().clone()
    }

    /// The name of its target.
    pub(crate) fn target_name(&self) -> &str {
        &self.bound().served.view.name
    }

    /// Copies of its nexus.
    pub(crate) fn copies(&self) -> copy::RunningCopies {
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
        let begins = session.replace_served(&new, own, tell);
        drop(session);
        if begins {
            self.note_begun();
        }
        self.run(driver);
    }

    /// Something has happened to a volume that these nexuses are told of.
    pub(crate) fn add_unit_attention(
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
    fn answer(&mut self, tag: Tag, answer: CommandAnswer) {
        match answer {
            CommandAnswer::Good(data) => {
                let len = self.put_answer(tag, &data);
                self.good_with(tag, len);
            }
            CommandAnswer::Check(sense) => self.check(tag, &sense),
            CommandAnswer::Status(status) => self.status(tag, status),
            CommandAnswer::StatesSet => {
                // The session that set the states gets no unit attention for it.
                self.session_mut().clear(Attention::ACCESS_STATE_CHANGED);
                self.complete_good(tag);
            }
            CommandAnswer::TaskManagement(response) => {
                self.core.link.machine.task_management_done(tag, response);
            }
        }
    }

    /// Everything but SCSI commands; false while memory is short.
    #[cold]
    fn execute_rare<D: Driver>(&mut self, op: &TargetOp, driver: &mut D) -> bool {
        match *op {
            TargetOp::Login => self.login(driver),
            TargetOp::Text => self.text(),
            TargetOp::Ping { tag, len } => self.ping(tag, len),
            TargetOp::TaskManagement {
                tag,
                function,
                lun,
                referenced,
            } => self.task_management(tag, function, lun, referenced, driver),
            TargetOp::Logout { reason, cid } => self.logout(reason, cid, driver),
            TargetOp::GivenUp { tag } => self.given_up(tag),
            TargetOp::Refused(refused) => {
                let (opcode, reason) = (refused.opcode, refused.reason);
                self.note_refusal(PDU_REJECTED, &format_args!("opcode {opcode:#x}: {reason}"));
            }
            TargetOp::Fatal(error) => {
                if let FatalError::Rdma(error) = &error
                    && let Some(why) = error.of_stream()
                {
                    self.service.terminates.note(&why);
                }
                self.note_refusal(RefusalKind::END, &error);
                if error.ends_session() {
                    self.end_session();
                }
            }
            TargetOp::Execute { .. } | TargetOp::Prepare { .. } => {
                unreachable!("tasks have their own way")
            }
        }
        true
    }
}
