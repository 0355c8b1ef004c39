//! NVMe over TCP and RDMA: what queue pairs and controllers do on volumes.
#![forbid(unsafe_code)]

mod abort;
mod admin;
mod authentication;
mod host_keys;
mod info;
mod io;
mod rdma;
mod reservation;
mod served;
mod service;
mod steps;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use engine::blocks::{AfterIo, VolumeWork};
use engine::hosts::{HostPlace, network};
use engine::job::{Job, Jobs};
use engine::{
    Blocks, Connection as _, ConnectionEvent, ConnectionId, ConnectionStage, Core, Demand,
    Elsewhere as _, Goal, Has, JobId, OnVolumes as _, Orphans as _, Post, ProofPlace, Protocol,
    RefusalKind, Shard, Via,
};
use link::{CommandMemory, Stream};
use machine::{Machine as _, Nanos, Tag};
use mem::Pool;
use nvmf::accepted::{AcceptedQpair, QpairOp, QpairSettings};
use nvmf::command::{Command, Geometry, IoKind};
use nvmf::dhchap::controller::Authentication;
use nvmf::queue::{ControllerEnd as _, Done, Op, RefusedCommand};
use nvmf::rdma::controller::RdmaError;
use nvmf::rdma::{CountedStream, QpCounts, StreamCounts};
use nvmf::{Activity, ControllerId};
use reactor::{Driver, must_fill_random};
use store::Volume;
use store::meter::IoOp;
use wire::nvme::Status;
use wire::nvme_rdma::cm_status;

pub use self::host_keys::handshake_terms;
pub use self::info::QueueInfo;
use self::reservation::Rights;
pub use self::served::{ServedSubsystem, Subsystems};
pub use self::service::{NvmeMail, OwnMail, Service, Sharing};

/// Answers one command from anywhere.
pub type Later = engine::Later<CommandAnswer, OwnMail>;

/// Where the answer to a command comes from.
pub type CommandWork = VolumeWork<CommandAnswer>;

/// A Connect command was refused.
const CONNECT_REFUSED: RefusalKind = RefusalKind("Connect refused");
/// A host did not prove to know its secret.
const AUTHENTICATION_FAILED: RefusalKind = RefusalKind("authentication failed");
/// A connection in the name of a host that has to authenticate has ended before it has.
pub const NOT_AUTHENTICATED: RefusalKind = RefusalKind("authentication missing");
/// A controller ends.
const CONTROLLER_ENDED: RefusalKind = RefusalKind("controller ended");

/// What a connection became with its Connect command.
pub(crate) struct Bound {
    controller: ControllerId,
    cntlid: u16,
    qid: u16,
    activity: Arc<Activity>,
    served: ServedSubsystem,
    rights: Rights,
    host: String,
    target: String,
    /// Where the host has two, its Host Identifiers.
    hostids: Option<[[u8; 16]; 2]>,
    authentication: Arc<Mutex<Authentication>>,
    /// The host has proven what it is, where it must.
    is_admitted: bool,
    /// It has tried to, and has not: that is told.
    has_failed: bool,
}

/// One connection of a queue pair.
pub struct NvmeConnection {
    core: Core<NvmeConnection>,
    service: Arc<Service>,
    bound: Option<Bound>,
    /// Abort commands whose answer is not there yet.
    aborts: Vec<Tag>,
    /// When the keep alive timer of the controller whose Admin Queue this is runs out, if
    /// its host says nothing.
    keep_alive_at: Option<Nanos>,
    /// The place of its host's step of authentication, which is computed elsewhere.
    proof: Option<ProofPlace>,
    /// Of its reactor.
    authentications: Rc<Cell<u64>>,
    rdma: CountedStream,
}

/// What the connections of one reactor share.
pub struct Local {
    service: Arc<Service>,
    jobs: Rc<RefCell<Jobs<CommandWork>>>,
    /// Queues whose host has authenticated, each time.
    authentications: Rc<Cell<u64>>,
    /// Those by RDMA, of every protocol.
    streams: StreamCounts,
}

impl Local {
    /// Of a reactor without connections.
    pub fn new(service: Arc<Service>, jobs: Jobs<CommandWork>, streams: StreamCounts) -> Local {
        let jobs = Rc::new(RefCell::new(jobs));
        Local {
            service,
            jobs,
            authentications: Rc::default(),
            streams,
        }
    }

    /// Queues whose host has authenticated, each time.
    pub fn authentications(&self) -> u64 {
        self.authentications.get()
    }
}

/// A connection that just came by a listener with these settings.
pub fn open(
    (local, settings): (&Local, QpairSettings),
    (id, stream): (ConnectionId, Stream),
    came: (Via, HostPlace),
    (pool, now): (&Pool, Nanos),
) -> NvmeConnection {
    let mut seed = [0; 8];
    must_fill_random(&mut seed);
    let machine = AcceptedQpair::new(settings, u64::from_le_bytes(seed), now);
    let (service, here) = (&local.service, (local.jobs.clone(), pool));
    NvmeConnection {
        core: Core::new(machine, id, stream, came, service.shared.clone(), here),
        service: service.clone(),
        bound: None,
        aborts: Vec::new(),
        keep_alive_at: None,
        proof: None,
        authentications: local.authentications.clone(),
        rdma: local.streams.stream(QpCounts::default()),
    }
}

/// How a command ended that ended elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandAnswer {
    /// Its status.
    pub status: Status,
    /// Dwords 0 and 1 of the completion.
    pub result: u64,
    /// Data to the host; cut to what the command's SGL holds.
    pub data: Vec<u8>,
}

impl CommandAnswer {
    /// Of an Abort that did nothing: bit 0 of dword 0 (Base 2.0, section 5.1).
    pub(crate) fn not_aborted() -> CommandAnswer {
        CommandAnswer {
            result: 1,
            ..CommandAnswer::default()
        }
    }
}

impl From<Status> for CommandAnswer {
    fn from(status: Status) -> CommandAnswer {
        CommandAnswer {
            status,
            ..CommandAnswer::default()
        }
    }
}

/// As the registry knows it.
fn via(via: &Via, stream: &Stream, machine: &AcceptedQpair) -> nvmf::Via {
    nvmf::Via {
        psk_identity: stream.psk().map(|psk| psk.identity.clone()),
        transport: machine.transport(),
        connection: via.connection,
        local: via.local,
        peer: via.peer,
        network: network(via.peer.ip()),
        listener: via.listener,
    }
}

impl Protocol for NvmeConnection {
    type Machine = AcceptedQpair;
    type Answer = CommandAnswer;
    type Mail = OwnMail;
    type Job = CommandWork;
    type Local = Local;

    #[inline]
    fn core(&self) -> &Core<Self> {
        &self.core
    }

    #[inline]
    fn core_mut(&mut self) -> &mut Core<Self> {
        &mut self.core
    }

    fn post(&self) -> &Arc<dyn Post<NvmeMail>> {
        &self.service.post
    }

    fn jobs(local: &Local) -> &RefCell<Jobs<CommandWork>> {
        &local.jobs
    }

    fn lost() -> CommandAnswer {
        Status::INTERNAL_ERROR.into()
    }

    #[inline]
    fn execute<D: Driver>(&mut self, op: &QpairOp, driver: &mut D) -> bool {
        match *op {
            Op::Execute { tag } => self.execute_command(tag, driver),
            Op::Prepare { tag, len, staged } => self.prepare(tag, len, staged),
            Op::ExecuteFused { compare, write } => self.execute_fused(compare, write, driver),
            Op::Forgotten { tag, event } => {
                self.forget_event_request(tag, event);
                true
            }
            Op::Refused(refused) => {
                self.note_refused(refused);
                true
            }
            Op::QueueAsked { cntlid } => {
                self.answer_queue(cntlid);
                true
            }
            Op::Fatal(error) => {
                self.count_end(&error);
                self.note_refusal(RefusalKind::END, &error);
                true
            }
        }
    }

    fn names(&self) -> (Option<&str>, Option<&str>) {
        let bound = self.bound.as_ref();
        let names = bound.map(|bound| (&*bound.host, &*bound.target));
        names.unzip()
    }

    #[inline]
    fn commands(op: &QpairOp) -> [Option<Tag>; 2] {
        match *op {
            Op::Prepare { tag, .. } | Op::Execute { tag } => [Some(tag), None],
            Op::ExecuteFused { compare, write } => [Some(compare), Some(write)],
            Op::Forgotten { .. } | Op::Refused(_) | Op::QueueAsked { .. } | Op::Fatal(_) => {
                [None; 2]
            }
        }
    }

    #[inline]
    fn is_whole(op: &QpairOp) -> bool {
        matches!(op, Op::Execute { .. } | Op::ExecuteFused { .. })
    }

    fn demand(&self, op: &QpairOp) -> Option<Demand> {
        let (Op::Prepare { tag, .. } | Op::Execute { tag }) = *op else {
            return None;
        };
        let Command::Io(io) = *self.command(tag) else {
            return None;
        };
        let (op, bytes) = match io.kind {
            IoKind::Read | IoKind::Compare | IoKind::Verify => (IoOp::Read, io.len),
            IoKind::Write | IoKind::CompareAndWrite | IoKind::WriteZeroes => (IoOp::Write, io.len),
            IoKind::Copy | IoKind::Deallocate | IoKind::WriteUncorrectable => (IoOp::Write, 0),
            IoKind::Flush | IoKind::FlushAll => return None,
        };
        let unit = io.namespace;
        Some(Demand { unit, op, bytes })
    }

    fn goal(&self, unit: u32) -> Option<Goal<'_>> {
        let volume = self.bound.as_ref()?.served.volumes.get(unit as usize)?;
        Some(Goal::Volume(&volume.info().name))
    }

    fn refuse<D: Driver>(&mut self, op: QpairOp, _: &mut D) {
        let status = match &self.bound {
            Some(bound) => bound.activity.delay_retry(Status::COMMAND_INTERRUPTED),
            None => Status::COMMAND_INTERRUPTED,
        };
        self.refuse(op, status);
    }

    fn answered<D: Driver>(&mut self, tag: Tag, answer: CommandAnswer, driver: &mut D) {
        self.end_abort(tag);
        let CommandAnswer {
            status,
            result,
            data,
        } = answer;
        let data_len = match status.is_success() {
            true => self.put_answer(tag, &data),
            false => 0,
        };
        let done = Done {
            status,
            result,
            data_len,
        };
        self.core.link.machine.complete(tag, done);
        // What was computed elsewhere tells no host of success.
        let _ = self.settle_authentication(driver.now());
    }

    #[inline]
    fn on_file<D: Driver>(
        &mut self,
        id: JobId,
        job: Job<Self::Job>,
        result: std::io::Result<u32>,
        driver: &mut D,
    ) {
        self.on_volume(id, job, result, driver);
    }

    fn on_mail<S: Has<Self>, D: Driver>(shard: &mut Shard<S>, mail: OwnMail, driver: &mut D) {
        match mail {
            OwnMail::Notify(to) => shard.with_of(driver, to.id, |c: &mut NvmeConnection, _| {
                c.notified();
            }),
            OwnMail::Refresh(nqn) => shard.for_each_of(driver, |c: &mut NvmeConnection, d| {
                c.refresh(&nqn, d);
            }),
            OwnMail::Abort {
                connection,
                cid,
                later,
            } => {
                let mut later = Some(later);
                shard.with_of(driver, connection.id, |c: &mut NvmeConnection, d| {
                    c.abort(cid, later.take().expect("one connection has it"), d);
                });
                if let Some(later) = later {
                    later.answer(CommandAnswer::not_aborted());
                }
            }
            OwnMail::Preempt(volume, hosts) => {
                shard.for_each_of(driver, |c: &mut NvmeConnection, d| {
                    c.preempt(&volume, &hosts, d)
                });
            }
        }
    }

    #[inline]
    fn on_event<D: Driver>(&mut self, event: ConnectionEvent, driver: &mut D) {
        match event {
            ConnectionEvent::Heard => {
                if let Some(bound) = &self.bound {
                    bound.activity.note();
                }
            }
            ConnectionEvent::Tick(now) => self.tick(now),
            ConnectionEvent::Orphaned(tag) => self.end_abort(tag),
            ConnectionEvent::SitsOnMemory => self.end_controller(),
            // NVMe has no words for it.
            ConnectionEvent::Dismissed => self.close(driver),
            ConnectionEvent::Closing => {
                if self.is_admitted() && self.bound().qid == 0 {
                    self.tell_gone("host disconnected");
                }
                self.note_unproven();
                self.proof = None;
                self.orphan_all(driver);
            }
            ConnectionEvent::Removed => {
                self.count_rdma();
                self.leave();
            }
            ConnectionEvent::Secured => self.core.link.machine.secured(),
            ConnectionEvent::Ran => self.count_rdma(),
            ConnectionEvent::Resumed | ConnectionEvent::TurnEnds => {}
        }
    }

    fn deadline(&self) -> Option<Nanos> {
        let machine = self.core.link.machine.deadline();
        let both = [machine, self.keep_alive_at];
        both.into_iter().flatten().min()
    }

    #[inline]
    fn stage(&self) -> ConnectionStage {
        match self.is_admitted() {
            true => ConnectionStage::Known,
            false => ConnectionStage::Stranger,
        }
    }
}

impl Blocks for NvmeConnection {
    #[inline]
    fn volume(&self, unit: u32) -> Option<&Arc<dyn Volume>> {
        self.bound.as_ref()?.served.volumes.get(unit as usize)
    }

    #[inline]
    fn core_and_volume(&mut self, unit: u32) -> (&mut Core<Self>, &Arc<dyn Volume>) {
        let bound = self.bound.as_ref().expect("commands come after Connect");
        (&mut self.core, &bound.served.volumes[unit as usize])
    }

    #[inline]
    fn io_of(&self, tag: Tag) -> (IoOp, u64) {
        match self.command(tag) {
            Command::Io(io) => match io.kind {
                IoKind::Read => (IoOp::Read, io.len),
                IoKind::Write => (IoOp::Write, io.len),
                IoKind::Flush | IoKind::FlushAll => (IoOp::Flush, 0),
                _ => (IoOp::Other, 0),
            },
            _ => (IoOp::Other, 0),
        }
    }

    #[inline]
    fn succeeded(&mut self, tag: Tag, data_len: u32, then: AfterIo<CommandAnswer>) {
        self.io_succeeded(tag, data_len, &then);
    }

    #[cold]
    fn failed(
        &mut self,
        tag: Tag,
        at: (u32, u64),
        error: store::Error,
        then: AfterIo<CommandAnswer>,
    ) {
        self.io_failed(tag, at, error, &then);
    }
}

impl NvmeConnection {
    /// Whether its host is known, and has proven what it is where it must.
    #[inline]
    fn is_admitted(&self) -> bool {
        self.bound.as_ref().is_some_and(|bound| bound.is_admitted)
    }

    #[inline]
    fn bound(&self) -> &Bound {
        let bound = self.bound.as_ref();
        bound.expect("commands come after Connect")
    }

    #[inline]
    fn volumes(&self) -> &[Arc<dyn Volume>] {
        &self.bound().served.volumes
    }

    fn geometry(&self, namespace: u32) -> Geometry {
        self.bound().served.geometry[namespace as usize]
    }

    /// A host asks by RDMA for an I/O queue of a controller: whether there is one of that ID.
    fn answer_queue(&mut self, cntlid: u16) {
        let registry = self.service.registry();
        let is_known = registry.has_cntlid(cntlid, self.core.via.listener);
        drop(registry);
        if !is_known {
            let why = RdmaError::Rejected(cm_status::INVALID_CNTLID);
            self.note_refusal(RefusalKind::END, &why);
        }
        self.core.link.machine.answer_queue(is_known);
    }

    /// What a command in flight is.
    #[inline]
    fn command(&self, tag: Tag) -> &Command {
        self.core.link.machine.queue().command(tag)
    }

    /// Executes a command all of which is here; false while memory is short.
    #[inline]
    fn execute_command<D: Driver>(&mut self, tag: Tag, driver: &mut D) -> bool {
        tracing::debug!(peer = %self.core.via.peer, tag, command = ?self.command(tag), "execute");
        match *self.command(tag) {
            Command::Io(io) => self.execute_io(tag, io, driver),
            Command::Reservation { namespace, sqe } => self.reserve(tag, namespace, &sqe),
            Command::AuthenticationSend => self.authentication_send(tag, driver.now()),
            Command::AuthenticationReceive { len } => {
                self.authentication_receive(tag, len, driver.now())
            }
            command => self.execute_admin(tag, command, driver),
        }
    }

    /// Provides memory for data that arrives; false while there is none.
    #[inline]
    fn prepare(&mut self, tag: Tag, len: u32, staged: bool) -> bool {
        let data = match self.command(tag) {
            Command::Io(io) => self.destination(io, len, staged),
            _ => self.core.pool.get(len).map(CommandMemory::owned),
        };
        let Some(data) = data.or_else(|| self.spare_for(tag, len)) else {
            return false;
        };
        self.core.link.set_data(tag, data);
        self.core.link.machine.prepared(tag);
        true
    }

    /// Memory that is kept for commands that keep everything behind them from
    /// being received, `None` for any other.
    #[cold]
    fn spare_for(&self, tag: Tag, len: u32) -> Option<CommandMemory> {
        let is_in_the_way = self.core.link.machine.is_blocked_on(tag);
        let buf = is_in_the_way.then(|| self.core.pool.get_spare(len))?;
        buf.map(CommandMemory::owned)
    }

    /// Completes a command with an error, at a byte of a namespace.
    #[cold]
    pub(crate) fn fail(&mut self, tag: Tag, status: Status, namespace: u32, offset: u64) {
        self.fail_with(tag, status, 0, namespace, offset);
    }

    /// The same, with dwords 0 and 1 of the completion.
    #[cold]
    pub(crate) fn fail_with(
        &mut self,
        tag: Tag,
        status: Status,
        result: u64,
        namespace: u32,
        offset: u64,
    ) {
        let geometry = self.geometry(namespace);
        self.note_refused(RefusedCommand {
            cid: self.core.link.machine.queue().cid(tag),
            status,
            nsid: geometry.nsid,
            slba: offset >> geometry.block_shift,
            location: None,
        });
        self.core.link.take_data(tag);
        let done = Done {
            result,
            ..Done::from(status)
        };
        self.core.link.machine.complete(tag, done);
    }
}
