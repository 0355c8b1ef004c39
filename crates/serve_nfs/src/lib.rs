//! NFS: calls of clients on the target's connections.
//!
//! A connection that is lost stays, without its socket, until what its calls wait
//! for is there: each goes to its end, so that a retry on another connection
//! of its session is answered from the slot instead of being done twice (RFC 8881,
//! section 2.10.6).

#![forbid(unsafe_code)]

mod client_calls;
mod config;
pub mod files;
mod gss;
pub mod hosts;
mod mail;
mod name_service;
pub mod records;
mod service;
mod transport_security;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use ::nfs::Connection as Transport;
use ::nfs::connection::{
    CountedStream, QpCounts, RpcServerFatalError, RpcServerSettings, ServerOp, StreamCounts,
};
use auth::gss::ContextStep;
use auth::gss_acceptor::AcceptError;
use engine::blocks::KeptJob;
use engine::hosts::HostPlace;
use engine::job::{Job, Jobs};
use engine::{
    Connection as _, ConnectionEvent, ConnectionId, ConnectionStage, Core, Demand, Elsewhere as _,
    Goal, Has, JobId, Limited as _, Post, ProofPlace, Protocol, Refusal, RefusalKind, Shard,
    Subject, Via, Waits as _, job,
};
use link::{CommandMemory, Stream};
use machine::{Machine, Nanos, Tag};
use mem::Pool;
use nfsd::callback::Callback;
use nfsd::{Around, Elsewhere, Execution, Peer, Step};
use reactor::{Driver, FileIo, Token, must_fill_random};
use store::fs::{self, FileSystem, Time};
use store::meter::IoOp;

pub use ::nfs::connection::{Flavor, RdmaSettings};
pub use nfsd::datagram::Datagram;
pub use nfsd::exports::{
    ClientName, Clients, ExportsError, NamedHost, Net, RULES_MAX, Rule, Squash, check_path, clash,
};
pub use nfsd::locations::{FsLocation, LOCATIONS_MAX, LocationServer, NFS_PORT};
pub use nfsd::owners::OwnerNaming;
pub use nfsd::rpcbind::{ProgramPorts, RpcProgram, RpcPrograms};
pub use nfsd::xprtsec::{ConnectedClient, Xprtsec, XprtsecModes};
pub use tls::{RenewedTls, ServerSide, TlsFiles};

pub use self::config::{
    ExportSpec, Exported, FileSystemKind, FileSystemSpec, KerberosSettings, NfsSettings, QuotaSpec,
};
pub use self::mail::{ClientInfo, OwnMail, on_tick};
pub use self::service::{Service, Wall};

/// A client is not taken.
const CLIENT_REFUSED: RefusalKind = RefusalKind("NFS client refused");
/// An export is not for a client.
const MOUNT_REFUSED: RefusalKind = RefusalKind("NFS mount refused");

/// Mail between reactors, with answers to calls.
pub type NfsMail = engine::Mail<CallAnswer, OwnMail>;

/// Where the answer to a call comes from that is not there yet.
pub enum CallWork {
    /// The file system is at it.
    Files(Arc<dyn FileSystem>, fs::Task),
    /// It goes on when others have had their turn.
    Turn,
    /// The file system is at something that was begun without a call.
    Background(Box<nfsd::offload::CopyWork>, fs::Task),
    /// What it waits for is done elsewhere.
    Elsewhere,
}

impl job::AnswerSource for CallWork {
    fn elsewhere() -> CallWork {
        CallWork::Elsewhere
    }

    fn has_begun(&self) -> bool {
        true
    }

    fn cancel(&mut self, _: &mut dyn FileIo, _: Token) {
        if let CallWork::Files(_, task) = self {
            task.cancel();
        }
    }

    fn resume(
        self,
        result: io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Option<CallWork> {
        let CallWork::Files(fs, task) = self else {
            return None;
        };
        match fs.resume(task, result, files, token) {
            fs::Progress::Pending(task) => Some(CallWork::Files(fs, task)),
            fs::Progress::Done(_) => None,
        }
    }

    fn is_in(&self, meant: &Arc<dyn FileSystem>) -> bool {
        matches!(self, CallWork::Files(fs, _) if Arc::ptr_eq(fs, meant))
    }
}

/// What the connections of one reactor share.
pub struct Local {
    service: Arc<Service>,
    jobs: Rc<RefCell<Jobs<CallWork>>>,
    /// Calls that were begun.
    calls: Cell<u64>,
    /// When it was which time of day.
    clock: Cell<(Nanos, Time)>,
    /// Those by RDMA, of every protocol.
    streams: StreamCounts,
}

impl Local {
    /// Of a reactor without connections.
    pub fn new(service: Arc<Service>, jobs: Jobs<CallWork>, streams: StreamCounts) -> Local {
        Local {
            service,
            jobs: Rc::new(RefCell::new(jobs)),
            calls: Cell::default(),
            clock: Cell::default(),
            streams,
        }
    }

    /// Calls that were begun.
    pub fn calls(&self) -> u64 {
        self.calls.get()
    }

    /// Looks at the clock.
    fn look(&self, now: Nanos) {
        self.clock.set((now, self.service.wall.time(now)));
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
struct WaitingCall {
    execution: Execution,
    /// It has begun and waits for memory, or for a limit.
    is_starved: bool,
    /// What it waits for a limit with.
    demand: Option<Demand>,
}

/// A call to a client that is not answered after this is not waited for: it was
/// made anew long before.
const CALL_MAX: Nanos = 60_000_000_000;

/// How often a call looks whether a client has said what its file is like.
const HOLDER_LOOK: Nanos = 2_000_000;

/// One NFS connection.
pub struct NfsConnection {
    core: Core<NfsConnection>,
    /// What it shares with others of its reactor.
    local: Rc<Local>,
    peer: Peer,
    /// In which every call begins. Most end there, so it stays warm.
    first: Execution,
    /// Calls that wait, by tag.
    slots: Vec<WaitingCall>,
    /// How many of them are starved.
    starved: usize,
    /// Our calls that are not answered: the xid, what [`Nfsd`](nfsd::Nfsd) calls
    /// it, and when it was made.
    called: Vec<(u32, u64, Nanos)>,
    /// Tokens under way that make security contexts.
    accepting: Vec<(Tag, ProofPlace)>,
    /// Look-ups that its calls wait for.
    asking: Vec<(Tag, ProofPlace)>,
    /// It closes when the calls under way are answered.
    is_leaving: bool,
    rdma: CountedStream,
}

/// A connection that was just accepted; its client may come by RDMA, if there are settings.
pub fn open(
    (local, rdma): (&Rc<Local>, Option<RdmaSettings>),
    (id, stream): (ConnectionId, Stream),
    (via, place): (Via, HostPlace),
    (pool, now): (&Pool, Nanos),
) -> NfsConnection {
    local.look(now);
    let service = &local.service;
    let nfsd = service.nfsd();
    let settings = RpcServerSettings {
        handshake_timeout: service.handshake_timeout,
        offers_tls: service.tls.is_some(),
        ..RpcServerSettings::with_io(nfsd.settings.io_bytes_max)
    };
    let mut peer = Peer::new(nfsd, via.connection, via.peer);
    peer.local = Some(via.local);
    let (shared, here) = (service.shared.clone(), (local.jobs.clone(), pool));
    let mut machine = Transport::new(settings, now).with_contexts(nfsd.contexts.clone());
    machine.set_let_in(peer.has_exports());
    if let Some(rdma) = rdma {
        let mut seed = [0; 8];
        must_fill_random(&mut seed);
        machine = machine.with_rdma(rdma, u64::from_le_bytes(seed));
    }
    NfsConnection {
        core: Core::new(machine, id, stream, (via, place), shared, here),
        local: local.clone(),
        peer,
        first: Execution::default(),
        slots: Vec::new(),
        starved: 0,
        called: Vec::new(),
        accepting: Vec::new(),
        asking: Vec::new(),
        is_leaving: false,
        rdma: local.streams.stream(QpCounts::default()),
    }
}

impl NfsConnection {
    /// Counts what has moved by RDMA since the last time.
    #[inline]
    fn count_rdma(&mut self) {
        if let Some(now) = self.core.link.machine.rdma_counts() {
            self.rdma.note(now);
        }
    }

    /// A call that has just begun waits.
    #[cold]
    fn park(&mut self, tag: Tag, tags_max: usize) {
        let len = tags_max.max(usize::from(tag) + 1);
        if self.slots.len() < len {
            self.slots.resize_with(len, WaitingCall::default);
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
        let was = slot.is_some_and(|slot| {
            slot.demand = None;
            std::mem::take(&mut slot.is_starved)
        });
        self.starved -= usize::from(was);
        was
    }
}

/// What a call waited for elsewhere is done.
pub enum CallAnswer {
    /// It goes on.
    GoOn,
    /// A token was taken that makes a security context.
    Accepted(Result<ContextStep, AcceptError>),
}

impl Protocol for NfsConnection {
    type Machine = Transport;
    type Answer = CallAnswer;
    type Mail = OwnMail;
    type Job = CallWork;
    type Local = Local;

    fn jobs(local: &Local) -> &RefCell<Jobs<CallWork>> {
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

    fn post(&self) -> &Arc<dyn Post<NfsMail>> {
        &self.local.service.post
    }

    /// What was to answer has failed, and the target stops. What clients
    /// may reclaim is not on the disk then, as when the disk fails.
    fn lost() -> CallAnswer {
        CallAnswer::GoOn
    }

    #[inline]
    fn execute<D: Driver>(&mut self, op: &ServerOp, driver: &mut D) -> bool {
        match *op {
            ServerOp::Call { tag } => self.call(tag, driver),
            ServerOp::Prepare {
                call,
                tag,
                offset,
                len,
                staged,
            } => {
                let is_there = self.run_call(None, None, driver, |_, around| {
                    nfsd::prepare(around, call, tag, offset, len, staged)
                });
                is_there || self.refuse_more(call, tag)
            }
            ServerOp::PrepareArgs { call, tag, bytes } => {
                self.prepare_args((tag, bytes), driver.pool()) || self.refuse_more(call, tag)
            }
            ServerOp::Place {
                tag,
                offset,
                at,
                len,
            } => {
                let link = &self.core.link;
                link.put(tag, offset, link.machine.unwrapped(at, len));
                true
            }
            ServerOp::Init { tag } => {
                self.accept(tag);
                true
            }
            ServerOp::Answer { tag, xid } => {
                self.called_back(tag, xid, driver);
                true
            }
            // Once the answer has gone: at the end of a turn.
            ServerOp::StartTls => true,
            ServerOp::Fatal(error) => {
                if let RpcServerFatalError::Rdma(why) = &error {
                    self.local.service.terminates.note(why);
                }
                self.core.shared.refusals.note(Refusal {
                    peer: Some(self.core.via.peer),
                    ..Refusal::new(RefusalKind::END, &error)
                });
                true
            }
        }
    }

    /// Data of a WRITE that is to come, or the READ that a call has come to.
    fn demand(&self, op: &ServerOp) -> Option<Demand> {
        match *op {
            ServerOp::Prepare { call, tag, len, .. } => {
                let handle = self.core.link.machine.write_handle(call, tag)?;
                Some(Demand {
                    unit: self.peer.export_of(handle)?,
                    op: IoOp::Write,
                    bytes: len.into(),
                })
            }
            ServerOp::Call { tag } => self.slots.get(usize::from(tag))?.demand,
            _ => None,
        }
    }

    fn goal(&self, unit: u32) -> Option<Goal<'_>> {
        self.peer.export_path(unit).map(Goal::Export)
    }

    fn refuse<D: Driver>(&mut self, op: ServerOp, driver: &mut D) {
        match op {
            ServerOp::Prepare { tag, .. } => self.core.link.machine.refuse(tag),
            ServerOp::Call { tag } => self.refuse_call(tag, driver),
            // The call cannot be answered before it is here. Its client sends it again.
            ServerOp::PrepareArgs { .. } => {
                let reason = "its host's share of memory_max has no room for a call";
                self.note_refusal(RefusalKind::END, &reason);
                self.is_leaving = true;
            }
            // The others need no memory.
            _ => {}
        }
    }

    fn answered<D: Driver>(&mut self, tag: Tag, answer: CallAnswer, driver: &mut D) {
        match answer {
            CallAnswer::GoOn => {
                self.asking.retain(|(other, _)| *other != tag);
                self.go_on(tag, driver);
            }
            CallAnswer::Accepted(step) => self.accepted(tag, step, driver.now()),
        }
    }

    #[inline]
    fn on_file<D: Driver>(
        &mut self,
        id: JobId,
        job: Job<CallWork>,
        result: io::Result<u32>,
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
                CallWork::Files(fs, task) => execution.resume(&fs, task, result, around),
                CallWork::Turn => execution.go_on(around),
                _ => unreachable!("file work is a file system's"),
            },
        );
        self.settle_late(tag, Some((id, mark)), step, driver);
    }

    fn on_unowned_file<S: Has<Self>, D: Driver>(
        shard: &mut Shard<S>,
        id: JobId,
        job: Job<CallWork>,
        result: io::Result<u32>,
        driver: &mut D,
    ) {
        match job {
            Job {
                mark,
                work: CallWork::Background(work, task),
                ..
            } => shard.in_background(|shard| {
                let local = shard.server.local();
                mail::go_on(local, (id, mark), work, (task, result), driver);
            }),
            job => {
                let jobs = &shard.server.local().jobs;
                jobs.borrow_mut().resume_orphan(id, job, result, driver);
            }
        }
    }

    fn on_mail<S: Has<Self>, D: Driver>(shard: &mut Shard<S>, mail: OwnMail, driver: &mut D) {
        mail::on_mail(shard, mail, driver);
    }

    #[inline]
    fn on_event<D: Driver>(&mut self, event: ConnectionEvent, driver: &mut D) {
        match event {
            ConnectionEvent::Tick(now) => self.tick(now),
            // What is under way is answered first.
            ConnectionEvent::Dismissed => self.is_leaving = true,
            ConnectionEvent::Closing => self.closing(driver),
            ConnectionEvent::TurnEnds if self.core.link.machine.awaits_tls() => {
                self.begin_tls(driver);
            }
            ConnectionEvent::Secured => self.secured(),
            ConnectionEvent::Ran | ConnectionEvent::Removed => self.count_rdma(),
            // What a client has it may have on other connections too.
            ConnectionEvent::SitsOnMemory
            | ConnectionEvent::Heard
            | ConnectionEvent::Resumed
            | ConnectionEvent::TurnEnds
            | ConnectionEvent::Orphaned(_) => {}
        }
    }

    /// What a client has not taken is trimmed with every tick.
    fn deadline(&self) -> Option<Nanos> {
        let machine = &self.core.link.machine;
        let answers = (machine.unsent_bytes() > 0).then_some(0);
        let called = self.called.iter().map(|(_, _, made)| made + CALL_MAX);
        let all = [answers, machine.deadline(), called.min()];
        all.into_iter().flatten().min()
    }

    #[inline]
    fn stage(&self) -> ConnectionStage {
        let is_busy = || self.core.has_jobs() || self.core.is_waiting();
        match (self.is_leaving, self.core.link.machine.is_identified()) {
            (true, _) if is_busy() => ConnectionStage::Draining,
            (true, _) => ConnectionStage::Leaving,
            (false, true) => ConnectionStage::Known,
            (false, false) => ConnectionStage::Stranger,
        }
    }

    /// Of a client that has shown a certificate what that calls it.
    fn names(&self) -> (Option<&str>, Option<&str>) {
        (self.peer.certificate_name(), None)
    }

    #[inline]
    fn commands(op: &ServerOp) -> [Option<Tag>; 2] {
        match *op {
            ServerOp::Call { tag }
            | ServerOp::PrepareArgs { tag, .. }
            | ServerOp::Prepare { tag, .. } => [Some(tag), None],
            _ => [None; 2],
        }
    }

    #[inline]
    fn is_whole(op: &ServerOp) -> bool {
        matches!(op, ServerOp::Call { .. })
    }

    /// Memory belongs to a call: any of its data may be what is worked on.
    fn is_worked_on(&self, _: Tag) -> bool {
        self.core.has_jobs()
    }
}

impl NfsConnection {
    /// The client whose session it has used last; none of NFSv4.0 and of NFSv3.
    pub fn client(&self) -> Option<u64> {
        self.peer.client()
    }

    /// What waits for memory will not have it; everything else is done to its end.
    fn closing<D: Driver>(&mut self, driver: &mut D) {
        let nfsd = self.local.service.nfsd();
        nfsd.disconnected(&self.peer);
        for (_, id, _) in self.called.drain(..) {
            nfsd.answered(id, None, driver.now());
        }
        mail::see_to(&self.local, driver);
        for tag in 0..self.slots.len() {
            if self.feed(tag as Tag) {
                self.slots[tag].execution.abandon();
            }
        }
    }

    /// Looks at the time.
    fn tick(&mut self, now: Nanos) {
        let machine = &mut self.core.link.machine;
        if machine.deadline().is_some_and(|at| at <= now) {
            tracing::debug!(peer = %self.core.via.peer, "no call in time: connection ends");
            machine.on_deadline(now);
        }
        self.peer.on_tick(machine);
        self.called.retain(|(xid, _, made)| {
            let is_awaited = now.saturating_sub(*made) < CALL_MAX;
            if !is_awaited {
                machine.forget_call(*xid);
            }
            is_awaited
        });
    }
}

impl NfsConnection {
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
        let execution = match tag {
            Some(tag) => &mut self.slots[usize::from(tag)].execution,
            None => &mut self.first,
        };
        let id = id.unwrap_or_else(|| self.core.jobs.borrow_mut().vacant());
        let now = driver.now();
        let is_connected = self.core.is_open();
        let mut around = Around {
            nfsd: self.local.service.nfsd(),
            peer: &mut self.peer,
            link: &mut self.core.link,
            pool: &self.core.pool,
            limits: Some(&self.core.limits),
            is_connected,
            files: driver,
            token: Subject::File(id).token(),
            now,
            time: self.local.time(now),
        };
        f(execution, &mut around)
    }

    /// Makes room for the arguments of a large call, for all of them: no call waits for
    /// more with a part of them received.
    #[cold]
    fn prepare_args(&mut self, (tag, bytes): (Tag, u32), pool: &Pool) -> bool {
        let core = &mut self.core;
        let Some(reserved) = core.pool.reserve(bytes.into()) else {
            // What has arrived of it takes none of its client's share: calls that wait
            // would keep each other from room.
            core.link.shrink_stage(pool);
            return false;
        };
        core.link.set_data(tag, CommandMemory::reserved(reserved));
        core.link.machine.prepared(tag);
        true
    }

    /// There is no memory for `tag`. A call that has some waits for no more: calls of one
    /// client whose share is full would wait for each other. It is to be sent again
    /// (NFS4ERR_DELAY: RFC 8881, section 15.1.1.3). Whether it is such a call.
    #[cold]
    fn refuse_more(&mut self, call: Tag, tag: Tag) -> bool {
        // The first memory of a call has its tag.
        let has_some = tag != call;
        if has_some {
            self.core.link.machine.refuse(tag);
        }
        has_some
    }

    /// A call is here, or one that has waited for memory may find some.
    #[inline]
    fn call<D: Driver>(&mut self, tag: Tag, driver: &mut D) -> bool {
        if self.feed(tag) {
            let step = self.run_call(Some(tag), None, driver, Execution::go_on);
            return self.settle(tag, None, step, driver);
        }
        self.core.begins_backend(tag, driver);
        let calls = &self.local.calls;
        calls.set(calls.get() + 1);
        let step = self.run_call(None, None, driver, |execution, around| {
            execution.begin(tag, around)
        });
        if !matches!(step, Step::Sent) {
            self.park(tag, self.core.link.machine.tags_max());
        }
        self.settle(tag, None, step, driver)
    }

    /// Sees to what a call waits for; false: memory.
    #[inline]
    fn settle<D: Driver>(&mut self, tag: Tag, kept: KeptJob, step: Step, driver: &mut D) -> bool {
        match step {
            Step::Sent => {
                self.core.let_go(kept);
                self.count(tag, driver);
                self.core.link.gather(driver);
                mail::see_to(&self.local, driver);
            }
            Step::Pending(fs, task) => self.core.keep(tag, kept, CallWork::Files(fs, task)),
            Step::Elsewhere(Elsewhere::Records) => {
                self.core.let_go(kept);
                self.keep_records(tag);
            }
            Step::Elsewhere(Elsewhere::Groups(uid)) => {
                self.core.let_go(kept);
                self.look_up_groups((tag, uid), driver.now());
            }
            Step::Elsewhere(Elsewhere::Names(address)) => {
                self.core.let_go(kept);
                let later = self.later(tag);
                let then = move || later.answer(CallAnswer::GoOn);
                let of = (address, driver.now());
                let place = self.local.service.look_up_names(of, then);
                self.asking.push((tag, place));
            }
            Step::NoMemory => {
                self.core.let_go(kept);
                self.starve(tag);
                if self.local.service.nfsd().files.has_delegations() {
                    // It may wait for what a client says that has one.
                    mail::see_to(&self.local, driver);
                    self.core.looks_at = Some(driver.now() + HOLDER_LOOK);
                }
                return false;
            }
            Step::HeldBack(demand) => {
                self.core.let_go(kept);
                self.wait_for_limit(tag, demand, driver);
            }
            Step::Turn => self.give_way(tag, kept, driver),
        }
        true
    }

    /// A call goes on when a limit lets the READ go that it has come to.
    #[cold]
    fn wait_for_limit<D: Driver>(&mut self, tag: Tag, demand: Demand, driver: &mut D) {
        let slot = &mut self.slots[usize::from(tag)];
        if !self.core.is_open() {
            return slot.execution.abandon();
        }
        slot.demand = Some(demand);
        self.starve(tag);
        self.hold_back(ServerOp::Call { tag }, driver);
    }

    /// Counts a call that is answered.
    #[inline]
    fn count<D: Driver>(&mut self, tag: Tag, driver: &D) {
        let took = self.core.ends_backend(tag, driver);
        let Some((io, meter)) = self.peer.take_answered() else {
            return;
        };
        self.core
            .count(meter, (io.op, io.bytes), !io.has_failed, took);
    }

    /// A call goes on when others have had their turn.
    #[cold]
    fn give_way<D: Driver>(&mut self, tag: Tag, kept: KeptJob, driver: &mut D) {
        let id = kept.map_or_else(|| self.core.jobs.borrow_mut().vacant(), |(id, _)| id);
        driver.ticket(Subject::File(id).token()).ring();
        self.core.keep(tag, kept, CallWork::Turn);
    }

    /// A call is answered when what it has changed of clients is on the disk.
    #[cold]
    fn keep_records(&mut self, tag: Tag) {
        let later = self.later(tag);
        self.local
            .service
            .keep_records(move || later.answer(CallAnswer::GoOn));
    }

    /// A call begins when the groups of its user are known.
    #[cold]
    fn look_up_groups(&mut self, (tag, uid): (Tag, u32), now: Nanos) {
        let later = self.later(tag);
        let by = (self.peer.host(), now);
        let then = move || later.answer(CallAnswer::GoOn);
        let place = self.local.service.look_up_groups(uid, by, then);
        self.asking.push((tag, place));
    }

    /// As [`NfsConnection::settle`], of a call that is not tried again by itself.
    fn settle_late<D: Driver>(&mut self, tag: Tag, kept: KeptJob, step: Step, driver: &mut D) {
        if self.settle(tag, kept, step, driver) {
            return;
        }
        match self.core.is_open() {
            true => self.wait(ServerOp::Call { tag }),
            false => {
                self.feed(tag);
                self.slots[usize::from(tag)].execution.abandon();
            }
        }
    }

    /// A call has waited for memory too long.
    #[cold]
    fn refuse_call<D: Driver>(&mut self, tag: Tag, driver: &mut D) {
        self.feed(tag);
        let step = self.run_call(Some(tag), None, driver, Execution::refuse);
        self.settle_late(tag, None, step, driver);
    }

    fn go_on<D: Driver>(&mut self, tag: Tag, driver: &mut D) {
        let step = self.run_call(Some(tag), None, driver, Execution::go_on);
        self.settle_late(tag, None, step, driver);
    }

    /// Calls the client.
    pub(crate) fn call_back(&mut self, callback: Callback, now: Nanos) {
        let machine = &mut self.core.link.machine;
        let xid = match self.is_leaving {
            true => None,
            false => machine.call_back(callback.procedure(), |to| callback.encode(to)),
        };
        match xid {
            Some(xid) => self.called.push((xid, callback.id, now)),
            None => self.local.service.nfsd().answered(callback.id, None, now),
        }
    }

    /// A callback was answered.
    #[cold]
    fn called_back<D: Driver>(&mut self, tag: Tag, xid: u32, driver: &mut D) {
        let called = &mut self.called;
        if let Some(at) = called.iter().position(|(own, ..)| *own == xid) {
            let (_, id, _) = called.swap_remove(at);
            let answer = self.core.link.machine.answer(tag);
            self.local
                .service
                .nfsd()
                .answered(id, Some(answer), driver.now());
        }
        self.core.link.machine.forget_answer(tag);
        self.core.link.set_data(tag, CommandMemory::default());
        mail::see_to(&self.local, driver);
    }
}
