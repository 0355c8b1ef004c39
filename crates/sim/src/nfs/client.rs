//! An NFS client: the real machine on a simulated driver. Calls whose connection
//! is lost are sent again on another, in the same slot; when the server has started
//! again, it takes back what it had.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};

use host::Memory;
use host::nfs::{
    Auth, CallData, CallEvent as ConnectionEvent, RpcClientSettings, Sequenced, ServerConnection,
    Slot, Slots,
};
use host::nfs::{TOKENS_PER_CONNECTION, Wrong};
use mem::Pool;
use nfs::client::{Backchannel, Channels};
use reactor::{Completion, Driver, Nanos, SocketId, Token};
use wire::nfs4::{SEQUENCE4resok, nfs_cb_argop4, nfs_opnum4, nfsstat4, stateid4};

use super::ask::{Ask, OpenShare, write_view};
use super::had::{Delegated, SimIdentity};
use super::names::Names;
use super::{Common, DATA_FILES, DELEGATED, certificates};
use crate::checker::{Verdict, Violation};
use crate::driver::SimDriver;
use crate::net::Secures;
use crate::plan::NfsClientPlan;
use crate::target::nfs_portal;
use crate::world::{DriverId, MS, S, SharedWorld, US, WorldEvent};

/// The program of callbacks.
const CALLBACK_PROGRAM: u32 = 0x4000_0000;
/// Callbacks at a time.
const CALLBACK_SLOTS: u32 = 2;
/// A connection on which an answer takes longer is made again.
const CALL_TIMEOUT: Nanos = 2 * S;
/// Until a lost connection is made again, and a call that is to come later.
const PAUSE: Nanos = 5 * MS;
/// Bytes of an answer with data, or of a request.
const MESSAGE_BYTES_MAX: u32 = 512 << 10;

/// What all sessions ask for but slots.
pub const CHANNELS: Channels = Channels {
    slots: 0,
    message_bytes_max: MESSAGE_BYTES_MAX,
    cached_bytes_max: 2048,
    ops_max: 8,
    callback_slots: CALLBACK_SLOTS,
    callback_program: CALLBACK_PROGRAM,
};

/// A request that was sent.
struct SentRequest {
    ask: Ask,
    slot: Option<Slot>,
    begun_at: Nanos,
    begin: u64,
}

struct ClientLane {
    base: Token,
    connection: Option<ServerConnection>,
    socket: SocketId,
    /// Of the network, once it is connected.
    number: Option<usize>,
    jobs: Vec<Option<SentRequest>>,
    retry_at: Option<Nanos>,
    since: Nanos,
    needs_bind: bool,
}

impl ClientLane {
    fn oldest(&self) -> Option<Nanos> {
        let begun = self
            .jobs
            .iter()
            .flatten()
            .map(|job| job.begun_at.max(self.since));
        begun.min()
    }

    /// Whether it waits for an answer to BIND_CONN_TO_SESSION.
    fn binds(&self) -> bool {
        let mut jobs = self.jobs.iter().flatten();
        jobs.any(|job| job.ask == Ask::Bind)
    }

    fn connection(&mut self) -> &mut ServerConnection {
        self.connection.as_mut().expect("it is put back at once")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientStage {
    Down(Nanos),
    /// One request after the other.
    Setup,
    Live,
    /// The session is gone: all answers are awaited.
    Draining,
    Leaving,
    Closing,
    Gone,
}

/// A client.
pub struct NfsClient {
    pub(super) plan: NfsClientPlan,
    driver: SimDriver,
    stage: ClientStage,
    pub(super) id: SimIdentity,
    pub(super) names: Names,
    slots: Option<Slots>,
    backchannel: Option<Backchannel>,
    lanes: Vec<ClientLane>,
    next_base: Token,
    completions: Vec<Completion>,
    /// What comes first, one after the other.
    setup: VecDeque<Ask>,
    /// What is to be asked once more, and when.
    later: Vec<(Nanos, Ask)>,
    pub(super) todo: VecDeque<Ask>,
    recalled: Vec<stateid4>,
    pub(super) ops_left: u64,
    /// It has something to take back.
    pub(super) reclaims: bool,
    /// It begins anew, and its session is still there.
    has_session: bool,
    /// The start of the target that it knows.
    boot: u64,
    /// What is being executed, to be asked again in its slot, and when.
    resend: Vec<(Nanos, usize, Ask, Slot)>,
    wants_end: bool,
    /// Turns that were asked for.
    wakes: RefCell<BTreeSet<Nanos>>,
    next_at: Nanos,
    renewed_at: Nanos,
    /// How often it came up.
    pub lives: u64,
    /// Calls that were sent again on another connection.
    pub repeated: u64,
    /// Times that it took back what it had.
    pub reclaimed: u64,
    /// Times that it said what a file is like that it writes by a delegation.
    pub asked: u64,
}

impl NfsClient {
    /// A client that connects soon.
    pub fn new(
        world: &SharedWorld,
        number: usize,
        (id, pool): (DriverId, Pool),
        plan: NfsClientPlan,
        block_bytes: usize,
    ) -> NfsClient {
        let mut soon = world.borrow_mut();
        soon.after(US, WorldEvent::Turn(id));
        soon.net.driver(id).secures = plan.tls.then_some(Secures::BehindProbe);
        drop(soon);
        let mut identity = SimIdentity {
            number,
            incarnation: 1,
            slots: plan.slots,
            block_bytes,
            ..SimIdentity::default()
        };
        identity.forget();
        NfsClient {
            driver: SimDriver::new(world, id, pool),
            stage: ClientStage::Down(0),
            id: identity,
            names: Names::default(),
            slots: None,
            backchannel: None,
            lanes: Vec::new(),
            next_base: 0,
            completions: Vec::new(),
            setup: VecDeque::new(),
            later: Vec::new(),
            todo: VecDeque::new(),
            recalled: Vec::new(),
            ops_left: plan.ops,
            reclaims: false,
            has_session: false,
            boot: 0,
            resend: Vec::new(),
            wants_end: false,
            wakes: RefCell::default(),
            next_at: 0,
            renewed_at: 0,
            lives: 0,
            repeated: 0,
            reclaimed: 0,
            asked: 0,
            plan,
        }
    }

    /// Whether it has a session and nothing to take back.
    pub fn is_live(&self) -> bool {
        self.stage == ClientStage::Live
    }

    /// Whether it speaks nothing but TLS.
    pub fn speaks_tls(&self) -> bool {
        self.plan.tls
    }

    /// Whether it connects by RDMA.
    pub fn is_by_rdma(&self) -> bool {
        self.plan.rdma.is_some()
    }

    /// Whether it has ended for good.
    pub fn is_gone(&self) -> bool {
        self.stage == ClientStage::Gone
    }

    /// Whether it has nothing to do.
    pub fn is_idle(&self) -> bool {
        let has_more = self.ops_left > 0 || !self.todo.is_empty() || !self.later.is_empty();
        self.is_live() && !has_more && self.in_flight() == 0
    }

    fn in_flight(&self) -> usize {
        let sent = self.lanes.iter().flat_map(|lane| &lane.jobs).flatten();
        sent.count() + self.resend.len()
    }

    /// It shall give all back and not return.
    pub fn end(&mut self) {
        self.wants_end = true;
    }

    /// Takes up what there is to do.
    pub fn wake(&self, world: &SharedWorld) {
        world.borrow_mut().at(0, WorldEvent::Turn(self.driver.id()));
    }

    /// Asks for a turn at a time, once: each turn looks at all deadlines, and would
    /// multiply the turns to come otherwise.
    fn wake_at(&self, world: &SharedWorld, at: Nanos) {
        let mut world = world.borrow_mut();
        let mut wakes = self.wakes.borrow_mut();
        wakes.retain(|wake| *wake > world.now);
        if wakes.insert(at) {
            world.at(at, WorldEvent::Turn(self.driver.id()));
        }
    }

    /// Its machine is gone from one moment to the next, and returns at `at`.
    pub fn vanish(&mut self, world: &SharedWorld, at: Nanos, common: &mut Common) {
        for lane in std::mem::take(&mut self.lanes) {
            for job in lane.jobs.into_iter().flatten() {
                self.names.lost(&job.ask);
            }
        }
        for (_, _, ask, _) in std::mem::take(&mut self.resend) {
            self.names.lost(&ask);
        }
        for (_, ask) in std::mem::take(&mut self.later) {
            self.names.refused(&ask);
        }
        self.todo.clear();
        common.model.forgets(self.id.number);
        self.id.forget();
        self.id.incarnation += 1;
        self.reclaims = false;
        self.driver.vanish();
        self.stage = ClientStage::Down(at);
        self.wake_at(world, at);
    }

    /// The power of the target has failed. What was to be asked again, of names that it may have
    /// changed, begins with a look at them.
    pub fn power_failed(&mut self) {
        self.names.power_failed();
        for (_, ask) in &mut self.later {
            *ask = self.names.begin_again(ask);
        }
    }

    /// The target's process has ended.
    pub fn target_died(&mut self, survives: bool) {
        if survives {
            self.reclaims = self.id.opens.iter().all(Option::is_some) || self.reclaims;
            return;
        }
        self.names = Names::default();
        self.id.forget();
        self.reclaims = false;
        for lane in &mut self.lanes {
            for job in lane.jobs.iter_mut().flatten() {
                // Whatever became of it is gone.
                job.ask = Ask::Renew;
            }
        }
        for (_, _, ask, _) in &mut self.resend {
            *ask = Ask::Renew;
        }
        self.later.clear();
        self.todo.clear();
        if matches!(
            self.stage,
            ClientStage::Setup | ClientStage::Live | ClientStage::Leaving
        ) {
            self.stage = ClientStage::Draining;
        }
    }

    /// One turn.
    pub fn turn(&mut self, world: &SharedWorld, common: &mut Common) -> Verdict {
        let mut completions = std::mem::take(&mut self.completions);
        self.driver.begin_turn(&mut completions);
        for lane in &mut self.lanes {
            let of_socket = || self.driver.connection_of(lane.socket);
            lane.number = lane.number.or_else(of_socket);
        }
        for completion in completions.drain(..) {
            self.completion(world, completion, common)?;
        }
        self.completions = completions;
        self.step(world, common)?;
        let has_crcs = self.plan.rdma.is_some_and(|rdma| rdma.crc);
        for lane in &mut self.lanes {
            let connection = lane.connection.as_mut().expect("it is put back at once");
            connection.flush(&mut self.driver);
            if has_crcs && connection.is_live() {
                self.driver.allow_bit_flips(lane.number);
            }
        }
        Ok(())
    }

    fn completion(
        &mut self,
        world: &SharedWorld,
        completion: Completion,
        common: &mut Common,
    ) -> Verdict {
        let base = completion.token() / TOKENS_PER_CONNECTION * TOKENS_PER_CONNECTION;
        let Some(at) = self.lanes.iter().position(|lane| lane.base == base) else {
            return Ok(());
        };
        let mut connection = self.lanes[at].connection.take().expect("put back at once");
        connection.on_completion(&mut self.driver, completion);
        while let Some(event) = connection.next_event(&mut self.driver) {
            match event {
                ConnectionEvent::Answered(tag) => {
                    let job = self.lanes[at].jobs[usize::from(tag)].take();
                    let memory = connection.take_memory(tag);
                    let job = job.ok_or_else(|| Violation("an answer to no call".into()))?;
                    let answer = connection.answer();
                    let placed = memory.range().map(|range| {
                        let len = answer.data_len.min(range.len());
                        range.slice(0, len)
                    });
                    let results = answer.results().map_err(|why| {
                        Violation(format!("client {}: {:?}: {why}", self.id.number, job.ask))
                    })?;
                    self.answered(world, at, job, (results, placed), common)?;
                }
                ConnectionEvent::CallBack(xid) => {
                    let results = self.called(connection.callback());
                    connection.answer_callback(xid, |to| to.extend_from_slice(&results));
                }
                // What is said before TLS begins may be damaged.
                ConnectionEvent::Down(host::nfs::ClientError::Protocol(error))
                    if !self.driver.is_damaged(self.lanes[at].number) =>
                {
                    return Err(Violation(format!("client {}: {error}", self.id.number)));
                }
                ConnectionEvent::Down(_) => {}
            }
        }
        self.lanes[at].connection = Some(connection);
        Ok(())
    }

    /// CB_COMPOUND.
    fn called(&mut self, args: &[u8]) -> Vec<u8> {
        let mut results = Vec::new();
        let (recalled, id, asked) = (&mut self.recalled, &self.id, &mut self.asked);
        if let Some(backchannel) = &mut self.backchannel {
            backchannel.answer(args, &mut results, |op, to| match op {
                nfs_cb_argop4::OP_CB_RECALL(args) => {
                    recalled.push(args.stateid);
                    nfsstat4::NFS4_OK
                }
                nfs_cb_argop4::OP_CB_GETATTR(args) => {
                    let mut its = id.delegations.iter().flatten();
                    let its = its.find(|it| it.given.is_some() && it.handle == args.fh.0);
                    let Some(view) = its.and_then(Delegated::view) else {
                        return nfsstat4::NFS4ERR_BADHANDLE;
                    };
                    *asked += 1;
                    write_view(&view, to);
                    nfsstat4::NFS4_OK
                }
                nfs_cb_argop4::OP_CB_RECALL_SLOT(_) | nfs_cb_argop4::OP_CB_NOTIFY_LOCK(_) => {
                    nfsstat4::NFS4_OK
                }
                _ => nfsstat4::NFS4ERR_NOTSUPP,
            });
        }
        results
    }

    fn answered(
        &mut self,
        world: &SharedWorld,
        lane: usize,
        job: SentRequest,
        (mut results, placed): (host::nfs::Results<'_>, Option<mem::BufRange>),
        common: &mut Common,
    ) -> Verdict {
        let number = self.id.number;
        world
            .borrow_mut()
            .trace(|| format!("client {number}: {:?}: {:?}", job.ask, results.status));
        let Some(slot) = job.slot else {
            return self.alone_ended(job.ask, results, common);
        };
        let sequence = results.take::<SEQUENCE4resok>(nfs_opnum4::OP_SEQUENCE);
        if let Err(Wrong::Status(_, nfsstat4::NFS4ERR_DELAY)) = sequence {
            // The same again, in the same slot.
            let pause = world.borrow_mut().random.around(PAUSE);
            let at = self.driver.now() + pause;
            self.resend.push((at, lane, job.ask, slot));
            self.wake_at(world, at);
            return Ok(());
        }
        let slots = self.slots.as_mut().expect("it has a session");
        let now = self.driver.now();
        match (slots.ended(slot, sequence.as_ref()), &sequence) {
            (Sequenced::Executed, _) => common.model.note_executed(number, job.begun_at, now),
            (Sequenced::Forgotten, _) if !job.ask.is_once() => {
                return self.forgotten(world, job, common);
            }
            (Sequenced::Gone, _) => {
                if matches!(
                    self.stage,
                    ClientStage::Setup | ClientStage::Live | ClientStage::Leaving
                ) {
                    if self.boot == common.boot && !common.model.is_doubtful(number, now) {
                        let text = format!("client {number}: its session is gone, for nothing");
                        return Err(Violation(text));
                    }
                    self.stage = ClientStage::Draining;
                }
                return self.lose(job, common);
            }
            (_, other) => {
                let text = format!("client {number}: {:?} in {slot:?}: {other:?}", job.ask);
                return Err(Violation(text));
            }
        }
        let status = results.status;
        let later = [
            nfsstat4::NFS4ERR_DELAY,
            nfsstat4::NFS4ERR_GRACE,
            nfsstat4::NFS4ERR_LAYOUTTRYLATER,
        ];
        if later.contains(&status) {
            let pause = world.borrow_mut().random.around(PAUSE);
            self.later.push((now + pause, job.ask));
            self.wake_at(world, now + pause);
            return Ok(());
        }
        self.ended(job.ask, job.begin, (results, placed), common)
    }

    /// It was executed, and its answer is not kept: once more.
    fn forgotten(&mut self, world: &SharedWorld, job: SentRequest, common: &mut Common) -> Verdict {
        let ask = match job.ask {
            Ask::Write {
                file,
                blocks,
                value,
                is_stable,
            } => {
                common.model.forgotten(value);
                let value = common.model.write(self.id.number, file, blocks.clone());
                Ask::Write {
                    file,
                    blocks,
                    value,
                    is_stable,
                }
            }
            ask => ask,
        };
        self.later.push((self.driver.now(), ask));
        self.wake(world);
        Ok(())
    }

    /// Whether it was executed is not known.
    fn lose(&mut self, job: SentRequest, common: &mut Common) -> Verdict {
        self.names.lost(&job.ask);
        common.lost += 1;
        match job.ask {
            Ask::Close(at) => {
                if let Some(opened) = self.id.opens[at].take() {
                    common.model.released(opened.hold);
                }
            }
            Ask::Unlock { at, keeps } => {
                if let Some(hold) = self.id.unlocked(at, keeps) {
                    common.model.released(hold);
                }
            }
            Ask::Flush(at) | Ask::Return(at) => self.id.delegations[at] = None,
            // What was to be written is written again.
            Ask::Write { file, blocks, .. } => {
                self.later
                    .push((0, super::repeat_write(self, file, blocks, common)));
            }
            _ => {}
        }
        Ok(())
    }

    /// Sends one request that is not under way.
    fn send(
        &mut self,
        world: &SharedWorld,
        lane: usize,
        (ask, slot): (Ask, Option<Slot>),
        common: &mut Common,
    ) -> Verdict {
        if let Ask::Write { value, .. } = ask {
            common.model.sent(value);
        }
        self.submit(world, lane, ask, slot, common)
    }

    /// Sends one request; one in a slot of the session has that.
    fn submit(
        &mut self,
        world: &SharedWorld,
        lane: usize,
        ask: Ask,
        slot: Option<Slot>,
        common: &mut Common,
    ) -> Verdict {
        let begun_at = self.driver.now();
        let (data, memory) = self.memory(&ask);
        let sequence = slot.map(|slot| {
            let slots = self.slots.as_ref().expect("it has a session");
            wire::nfs4::nfs_argop4::OP_SEQUENCE(slots.sequence(slot, ask.is_once()))
        });
        self.announce(&ask, common);
        let begin = common.model.stamp();
        let (id, lane) = (&self.id, &mut self.lanes[lane]);
        let connection = lane.connection.as_mut().expect("put back at once");
        let tag = connection.compound(
            2,
            data,
            |_| memory,
            |compound| {
                if let Some(sequence) = &sequence {
                    compound.op(sequence);
                }
                super::ask::write(&ask, id, compound);
            },
        );
        let tag = usize::from(tag.expect("it has room"));
        if tag >= lane.jobs.len() {
            lane.jobs.resize_with(tag + 1, || None);
        }
        lane.jobs[tag] = Some(SentRequest {
            ask,
            slot,
            begun_at,
            begin,
        });
        self.renewed_at = begun_at;
        self.wake_at(world, begun_at + CALL_TIMEOUT);
        Ok(())
    }

    fn memory(&self, ask: &Ask) -> (CallData, Memory) {
        let len = |blocks: usize| (blocks * self.id.block_bytes) as u32;
        let buf = |len| self.driver.pool().get(len).expect("clients have memory");
        match ask {
            Ask::Read(_, blocks) => {
                let len = len(blocks.len());
                (CallData::In(len), Memory::owned(buf(len)))
            }
            Ask::Write {
                file,
                blocks,
                value,
                ..
            } => {
                let len = len(blocks.len());
                let mut bytes = vec![0; len as usize];
                for (block, to) in blocks.clone().zip(bytes.chunks_mut(self.id.block_bytes)) {
                    super::model::fill(*value, *file, block, to);
                }
                let buf = buf(len);
                mem::copy_in(buf.range(), &bytes);
                (CallData::Out(len), Memory::owned(buf))
            }
            _ => (CallData::None, Memory::default()),
        }
    }

    /// What is given back is not had any more from here on.
    fn announce(&mut self, ask: &Ask, common: &mut Common) {
        let released = match *ask {
            Ask::Close(at) => self.id.opens[at].as_ref().map(|it| it.hold),
            Ask::Unlock { at, keeps } => {
                let held = self.id.locks[at].as_ref().map(|it| it.hold);
                match (held, keeps) {
                    (Some(hold), Some(last)) => {
                        common.model.note_unlock_begun(hold, last);
                        None
                    }
                    (held, _) => held,
                }
            }
            Ask::Return(at) => self.id.delegations[at].as_ref().map(|it| it.hold),
            _ => None,
        };
        if let Some(hold) = released {
            common.model.released(hold);
        }
        let (file, access, deny) = match ask {
            Ask::Open(share) => (share.file, share.access, share.deny),
            // Where its client cannot say, a delegation is recalled.
            Ask::Size => (DELEGATED, 1, 0),
            _ => return,
        };
        let what = super::model::InTheWay::Share { access, deny };
        let now = self.driver.now();
        (common.model).note_request(self.id.number, file, &what, now);
    }

    /// What time and circumstances ask for.
    fn step(&mut self, world: &SharedWorld, common: &mut Common) -> Verdict {
        let now = self.driver.now();
        let due: Vec<_> = self.resend.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, lane, ask, slot) in due {
            self.submit(world, lane, ask, Some(slot), common)?;
        }
        self.keep_lanes(world, now);
        match self.stage {
            ClientStage::Gone => {}
            ClientStage::Down(_) if self.wants_end => self.stage = ClientStage::Gone,
            ClientStage::Down(until) if now < until => self.wake_at(world, until),
            ClientStage::Down(_) => {
                for _ in 0..self.plan.lanes {
                    self.open_lane(now);
                }
                self.begin_setup(common);
            }
            ClientStage::Draining if self.in_flight() == 0 => {
                self.begin_setup(common);
                return self.step(world, common);
            }
            ClientStage::Setup | ClientStage::Leaving => self.one_by_one(world, common)?,
            ClientStage::Live => self.live(world, common, now)?,
            ClientStage::Closing => {
                if self
                    .lanes
                    .iter_mut()
                    .all(|lane| lane.connection().is_closed())
                {
                    self.lanes.clear();
                    self.stage = ClientStage::Gone;
                }
            }
            ClientStage::Draining => {}
        }
        Ok(())
    }

    fn open_lane(&mut self, now: Nanos) {
        let settings = RpcClientSettings {
            calls_max: 64,
            answer_bytes_max: MESSAGE_BYTES_MAX,
            callback_program: CALLBACK_PROGRAM,
            auth: Auth::sys(1000, 1000, &[]),
        };
        let base = self.next_base;
        self.next_base += TOKENS_PER_CONNECTION;
        let connection = ServerConnection::open(&mut self.driver, nfs_portal(), settings, base);
        let mut connection = connection.expect("a simulated socket can be made");
        if self.plan.tls {
            connection.ask_for_tls(certificates::believed());
        }
        if let Some(rdma) = &self.plan.rdma {
            connection.use_rdma(&self.driver, rdma.settings());
        }
        self.lanes.push(ClientLane {
            base,
            connection: Some(connection),
            socket: self.driver.last_connect(),
            number: None,
            jobs: Vec::new(),
            retry_at: None,
            since: now,
            needs_bind: false,
        });
    }

    /// Makes lost connections again, and gives those up that say nothing.
    fn keep_lanes(&mut self, world: &SharedWorld, now: Nanos) {
        if matches!(
            self.stage,
            ClientStage::Closing | ClientStage::Gone | ClientStage::Down(_)
        ) {
            return;
        }
        for at in 0..self.lanes.len() {
            let lane = &mut self.lanes[at];
            if !lane.connection().is_closed() {
                let since = lane.since;
                let is_live = lane.connection().is_live();
                let oldest = lane.oldest().or((!is_live).then_some(since));
                if oldest.is_some_and(|oldest| now >= oldest + CALL_TIMEOUT) {
                    let driver = &mut self.driver;
                    lane.connection().close(driver);
                } else if !is_live && now < since + CALL_TIMEOUT {
                    self.wake_at(world, since + CALL_TIMEOUT);
                }
                continue;
            }
            let retry_at = match lane.retry_at {
                Some(at) => at,
                None => {
                    let at = now + world.borrow_mut().random.around(PAUSE);
                    *lane.retry_at.insert(at)
                }
            };
            if now < retry_at {
                self.wake_at(world, retry_at);
                continue;
            }
            self.repeated += lane.jobs.iter().flatten().count() as u64;
            let connection = lane.connection.take().expect("put back at once");
            let again = connection.reopen(&mut self.driver, nfs_portal());
            lane.connection = Some(again.expect("a simulated socket can be made"));
            (lane.socket, lane.number) = (self.driver.last_connect(), None);
            (lane.retry_at, lane.since, lane.needs_bind) = (None, now, true);
            self.wake_at(world, now + CALL_TIMEOUT);
        }
    }

    fn begin_setup(&mut self, common: &mut Common) {
        self.boot = common.boot;
        self.drop_what_waits();
        self.slots = None;
        self.backchannel = None;
        self.id.delegations.clear();
        self.recalled.clear();
        self.setup = VecDeque::from([Ask::Exchange, Ask::Session]);
        if std::mem::take(&mut self.has_session) {
            self.setup.push_front(Ask::DestroySession);
        }
        self.stage = ClientStage::Setup;
        let number = self.id.number;
        common.model.introduced(number, self.driver.now());
        if !self.reclaims {
            common.model.forgets(number);
            self.id.forget();
            self.mount();
            return;
        }
        self.reclaimed += 1;
        let opens = 0..self.id.opens.len();
        let opens = opens.filter(|&at| self.id.opens[at].is_some());
        let locks = 0..self.id.locks.len();
        let locks = locks.filter(|&at| self.id.locks[at].is_some());
        self.setup.extend(opens.map(Ask::Reclaim));
        self.setup.extend(locks.map(Ask::ReclaimLock));
        self.setup.push_back(Ask::Complete);
    }

    /// What waited for the session that is gone.
    fn drop_what_waits(&mut self) {
        for (_, ask) in &self.later {
            match *ask {
                Ask::Close(at) => self.id.opens[at] = None,
                Ask::Unlock { at, keeps } => drop(self.id.unlocked(at, keeps)),
                _ => {}
            }
        }
        self.later.retain(|(_, ask)| ask.is_ordinary());
        self.todo.retain(Ask::is_ordinary);
        for opened in self.id.opens.iter_mut().flatten() {
            opened.is_busy = false;
        }
        for locked in self.id.locks.iter_mut().flatten() {
            locked.is_busy = false;
        }
        let is_whole = self.id.opens.iter().take(DATA_FILES).all(Option::is_some);
        self.reclaims &= is_whole;
    }

    /// From the root to its open files.
    pub(super) fn mount(&mut self) {
        self.setup.retain(|ask| !ask.has_slot());
        self.setup
            .extend([Ask::Complete, Ask::Root, Ask::MakeHome, Ask::FindHome]);
        self.setup.extend((0..DATA_FILES).map(|file| {
            Ask::Open(OpenShare {
                file,
                access: 3,
                deny: 0,
                wants: false,
                owner: file as u64,
            })
        }));
    }

    /// Its clock.
    pub(super) fn now(&self) -> Nanos {
        self.driver.now()
    }

    /// From EXCHANGE_ID on.
    pub(super) fn start_again(&mut self) {
        self.stage = ClientStage::Draining;
    }

    /// All that it had is gone.
    pub(super) fn mount_anew(&mut self) {
        self.reclaims = false;
        self.has_session = true;
        self.stage = ClientStage::Draining;
    }

    /// To be asked as soon as may be.
    pub(super) fn put_later(&mut self, ask: Ask) {
        self.later.push((0, ask));
    }

    /// One request, if none is under way.
    fn one_by_one(&mut self, world: &SharedWorld, common: &mut Common) -> Verdict {
        if self.in_flight() > 0 {
            return Ok(());
        }
        let now = self.driver.now();
        let held_back = self.later.iter().position(|(_, ask)| !ask.is_ordinary());
        let ask = match (held_back, self.setup.front()) {
            (Some(at), _) if self.later[at].0 > now => return Ok(()),
            (Some(at), _) => self.later[at].1.clone(),
            (None, Some(ask)) => ask.clone(),
            (None, None) if self.stage == ClientStage::Leaving => {
                for lane in &mut self.lanes {
                    let connection = lane.connection.as_mut().expect("put back at once");
                    connection.close(&mut self.driver);
                }
                self.stage = ClientStage::Closing;
                return Ok(());
            }
            (None, None) => {
                self.stage = ClientStage::Live;
                self.lives += 1;
                self.reclaims = false;
                return self.live(world, common, now);
            }
        };
        let lane = &mut self.lanes[0];
        if !lane.connection().is_live() {
            return Ok(());
        }
        match held_back {
            Some(at) => drop(self.later.remove(at)),
            None => drop(self.setup.pop_front()),
        }
        let slot = match ask.has_slot() {
            true => self.slots.as_mut().and_then(Slots::take),
            false => None,
        };
        self.send(world, 0, (ask, slot), common)
    }

    pub(super) fn made_session(&mut self, made: &wire::nfs4::CREATE_SESSION4resok<'_>) {
        let slots = Slots::new(made);
        self.id.session = slots.session();
        self.backchannel = Some(Backchannel::new(slots.session(), CALLBACK_SLOTS));
        self.slots = Some(slots);
        self.id.sequence = self.id.sequence.wrapping_add(1);
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            lane.needs_bind = at > 0;
        }
    }

    fn live(&mut self, world: &SharedWorld, common: &mut Common, now: Nanos) -> Verdict {
        if self.wants_end && self.is_idle() {
            self.leave();
            return self.one_by_one(world, common);
        }
        for lane in 0..self.lanes.len() {
            let it = &mut self.lanes[lane];
            // One that has no answer yet is sent again with the others.
            if it.needs_bind && it.connection().is_live() && !it.binds() {
                it.needs_bind = false;
                self.submit(world, lane, Ask::Bind, None, common)?;
            }
        }
        self.return_recalled();
        while let Some(lane) = self.lane_with_room(world) {
            let ask = match self.next(world, common, now) {
                Some(ask) => ask,
                None => break,
            };
            let slot = self.slots.as_mut().and_then(Slots::take);
            if slot.is_none() {
                self.later.push((now, ask));
                break;
            }
            self.send(world, lane, (ask, slot), common)?;
        }
        Ok(())
    }

    fn lane_with_room(&mut self, world: &SharedWorld) -> Option<usize> {
        let slots = self.slots.as_ref()?;
        if slots.in_use() >= slots.count() {
            return None;
        }
        let live = |lane: &mut ClientLane| lane.connection().is_live();
        let lanes: Vec<usize> = (self.lanes.iter_mut().enumerate())
            .filter_map(|(at, lane)| live(lane).then_some(at))
            .collect();
        (!lanes.is_empty()).then(|| world.borrow_mut().random.pick(&lanes))
    }

    /// Delegations that the server wants back.
    fn return_recalled(&mut self) {
        for at in 0..self.id.delegations.len() {
            if let Some(delegated) = &mut self.id.delegations[at] {
                let other = delegated.stateid.other;
                let is_recalled = self.recalled.iter().any(|it| it.other == other);
                if is_recalled && !delegated.is_busy {
                    delegated.is_busy = true;
                    self.todo.push_front(match delegated.size {
                        Some(_) => Ask::Flush(at),
                        None => Ask::Return(at),
                    });
                }
            }
        }
    }

    /// What to ask now.
    fn next(&mut self, world: &SharedWorld, common: &mut Common, now: Nanos) -> Option<Ask> {
        if let Some(at) = self.later.iter().position(|(at, _)| *at <= now) {
            return Some(self.later.remove(at).1);
        }
        if let Some(ask) = self.todo.pop_front() {
            return self.names.begin(&ask).or_else(|| {
                self.todo.push_back(ask);
                None
            });
        }
        if self.ops_left == 0 {
            let every = common.lease / 3;
            if self.in_flight() > 0 {
                return None;
            }
            if now >= self.renewed_at + every {
                return Some(Ask::Renew);
            }
            self.wake_at(world, self.renewed_at + every);
            return None;
        }
        if now < self.next_at {
            self.wake_at(world, self.next_at);
            return None;
        }
        self.next_at = now + world.borrow_mut().random.around(common.think);
        self.ops_left -= 1;
        super::next(self, &mut world.borrow_mut().random, common)
    }

    fn leave(&mut self) {
        let locks = (0..self.id.locks.len()).filter(|&at| self.id.locks[at].is_some());
        let unlock = |at| Ask::Unlock { at, keeps: None };
        self.setup = locks.map(unlock).collect();
        let opens = (0..self.id.opens.len()).filter(|&at| self.id.opens[at].is_some());
        self.setup.extend(opens.map(Ask::Close));
        let delegations = 0..self.id.delegations.len();
        let delegations = delegations.filter(|&at| self.id.delegations[at].is_some());
        self.setup.extend(delegations.map(Ask::Return));
        self.setup.extend([Ask::DestroySession, Ask::DestroyClient]);
        self.stage = ClientStage::Leaving;
    }
}
