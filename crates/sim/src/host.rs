//! A host: the real initiator's queues on a simulated driver, with the manners
//! of a kernel: when one queue is lost, all are, and it connects anew.

use host::{Completion as Cqe, Data};
use host::{
    Error, Event as QueueEvent, Memory, Queue, QueueParams, QueueSettings, RdmaHostError,
    RdmaHostSettings, Settings,
};
use machine::Tag;
use mem::Pool;
use reactor::{Completion, Driver, Nanos, Token};
use wire::nvme::authentication::Concatenation;
use wire::nvme::fabrics::ConnectData;
use wire::nvme::feature::{HOST_BEHAVIOR_BYTES, HostBehavior, fid};
use wire::nvme::identify::{self, IDENTIFY_BYTES, cns};
use wire::nvme::lba_status::cmpc;
use wire::nvme::log::{event, lid};
use wire::nvme::property::{csts, offset};
use wire::nvme::reservation::{Notification, notice};
use wire::nvme::{ConnectCommand, PropertyGet, PropertySet, Sqe, Status, admin};
use zerocopy::FromBytes;

use crate::access::Arrival;
use crate::announced::Told;
use crate::changes::host_nqn;
use crate::checker::{Verdict, Violation};
use crate::credentials::HostCredentials;
use crate::driver::SimDriver;
use crate::net::Secures;
use crate::plan::{Harm, HostPlan, Plan};
use crate::target::{address, subnqn};
use crate::work::{CheckedIo, HostWork};
use crate::world::{DriverId, MS, S, SharedWorld, US, WorldEvent};

/// Entries of the Admin Queue.
const ADMIN_ENTRIES: u16 = 32;
/// CC: enabled, NVM Command Set, 64-byte SQEs, 16-byte CQEs.
pub const CC_ENABLE: u64 = 1 | 6 << 16 | 4 << 20;
/// A controller that does not come up in this time is given up.
pub const CONNECT_TIMEOUT: Nanos = 4 * S;
/// A command that takes longer makes the host reset the controller.
pub const COMMAND_TIMEOUT: Nanos = 6 * S;
/// Commands of the Admin Queue under way while aborts are sent; fewer than the
/// limit that controllers announce.
const ABORTS_MAX: usize = 2;
/// The Changed Namespace List: 1,024 numbers (Base 2.0, section 5.16.1.5).
const CHANGED_NAMESPACES_BYTES: u32 = 4096;
/// More than the ANA log page has here.
const ANA_BYTES: u32 = 1024;
/// Tokens of one queue; more than it uses.
pub const TOKENS: Token = 8;

/// What a host sent and has no answer to.
#[derive(Debug)]
enum Sent {
    Enable,
    Ready,
    Identify,
    /// Set Features, Host Behavior Support.
    Behavior,
    KeepAlive,
    Abort,
    /// Asynchronous Event Request, which is answered when there is something.
    Event,
    /// The Reservation Notification log page.
    Notice,
    /// The Changed Namespace List.
    Changed,
    /// The ANA log page.
    Ana,
    Io(CheckedIo),
}

struct SentCommand {
    what: Sent,
    begun_at: Nanos,
}

struct HostLane {
    base: Token,
    queue: Queue,
    qid: u16,
    connection: Option<usize>,
    socket: reactor::SocketId,
    commands: Vec<Option<SentCommand>>,
    has_room: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostStage {
    /// Nothing is connected before this.
    Down(Nanos),
    /// The controller is being set up.
    Starting,
    /// All queues are there.
    Live,
    /// Queues are being closed.
    Ending,
    /// For ever.
    Gone,
}

/// A host.
pub struct SimHost {
    /// Its number.
    pub number: usize,
    plan: HostPlan,
    harm: Harm,
    /// Ways to the target, and the one that it takes this time.
    listeners: usize,
    listener: usize,
    driver: SimDriver,
    credentials: HostCredentials,
    stage: HostStage,
    since: Nanos,
    lanes: Vec<HostLane>,
    next_base: Token,
    cntlid: u16,
    in_capsule_max: u32,
    completions: Vec<Completion>,
    keep_alive_at: Nanos,
    wants_end: bool,
    /// How often it came up.
    pub lives: u64,
}

impl SimHost {
    /// A host that connects soon.
    pub fn new(
        world: &SharedWorld,
        number: usize,
        id: DriverId,
        plan: &Plan,
        pool: Pool,
    ) -> SimHost {
        let mut soon = world.borrow_mut();
        soon.after(US, WorldEvent::Turn(id));
        // Every record that is changed on its way is found, those of handshakes, too.
        soon.net.driver(id).secures = plan.hosts[number].tls.map(|_| Secures::AtOnce);
        drop(soon);
        SimHost {
            number,
            plan: plan.hosts[number],
            harm: plan.harm(number),
            listeners: plan.listeners,
            listener: 0,
            driver: SimDriver::new(world, id, pool),
            credentials: HostCredentials::new(plan, number),
            stage: HostStage::Down(0),
            since: 0,
            lanes: Vec::new(),
            next_base: 0,
            cntlid: 0,
            in_capsule_max: 0,
            completions: Vec::new(),
            keep_alive_at: 0,
            wants_end: false,
            lives: 0,
        }
    }

    /// Times that it has shown what is not its own, or not of the first generation.
    pub fn odd_arrivals(&self) -> u64 {
        self.credentials.odd
    }

    /// Whether it has all its queues.
    pub fn is_live(&self) -> bool {
        self.stage == HostStage::Live
    }

    /// Whether it has ended for good.
    pub fn is_gone(&self) -> bool {
        self.stage == HostStage::Gone
    }

    /// Commands without an answer, but for those that wait for an event.
    pub fn in_flight(&self) -> usize {
        self.lanes.iter().flat_map(HostLane::under_way).count()
    }

    /// It shall close its queues and not come back.
    pub fn end(&mut self) {
        self.wants_end = true;
    }

    /// Its machine is gone from one moment to the next; it returns at `at`.
    pub fn vanish(&mut self, world: &SharedWorld, at: Nanos, work: &mut HostWork) -> Verdict {
        self.lose_all(work)?;
        self.lanes.clear();
        self.driver.vanish();
        self.stage = HostStage::Down(at);
        world
            .borrow_mut()
            .at(at, WorldEvent::Turn(self.driver.id()));
        Ok(())
    }

    /// One turn.
    pub fn turn(&mut self, world: &SharedWorld, work: &mut HostWork) -> Verdict {
        let mut completions = std::mem::take(&mut self.completions);
        self.driver.begin_turn(&mut completions);
        for lane in &mut self.lanes {
            let of_socket = || self.driver.connection_of(lane.socket);
            lane.connection = lane.connection.or_else(of_socket);
        }
        for completion in completions.drain(..) {
            self.completion(completion, work)?;
        }
        self.completions = completions;
        self.step(world, work)?;
        for lane in &mut self.lanes {
            lane.queue.flush(&mut self.driver);
        }
        Ok(())
    }

    fn completion(&mut self, completion: Completion, work: &mut HostWork) -> Verdict {
        let base = completion.token() / TOKENS * TOKENS;
        let Some(at) = self.lanes.iter().position(|lane| lane.base == base) else {
            return Ok(());
        };
        self.lanes[at]
            .queue
            .on_completion(&mut self.driver, completion);
        while let Some(event) = self.lanes[at].queue.next_event(&mut self.driver) {
            match event {
                QueueEvent::Live(result) => {
                    work.let_in(self.number)?;
                    if self.credentials.poses_as().is_some() {
                        // It has no business under another name.
                        return self.begin_end(work);
                    }
                    match self.credentials.makes_key() {
                        true => self.made_key(at, result)?,
                        false => self.came_up(at, result),
                    }
                }
                QueueEvent::Completed(tag, cqe) => self.completed(at, tag, &cqe, work)?,
                QueueEvent::Down(error) => self.went_down(&error, work)?,
            }
        }
        Ok(())
    }

    /// A queue is lost: so is the controller.
    fn went_down(&mut self, error: &Error, work: &mut HostWork) -> Verdict {
        work.trace(|| format!("host {}: queue lost: {error}", self.number));
        let is_mistake = match error {
            // The controller that it is of is gone meanwhile.
            Error::Rdma(RdmaHostError::Rejected(_)) => false,
            Error::Protocol(_) | Error::Rdma(_) => true,
            _ => false,
        };
        if is_mistake && !self.is_damaged() {
            let host = self.number;
            return Err(Violation(format!("host {host}: {error}")));
        }
        work.was_cut(self.number, &error.to_string())?;
        self.begin_end(work)
    }

    /// Whether a bit was flipped on the way from or to it.
    fn is_damaged(&self) -> bool {
        let mut lanes = self.lanes.iter();
        lanes.any(|lane| self.driver.is_damaged(lane.connection))
    }

    /// What comes may be anything: headers without digests were damaged.
    fn may_anything(&self) -> bool {
        self.harm == Harm::Anything && self.is_damaged()
    }

    /// Closes every queue; what was in flight has an unknown outcome.
    fn begin_end(&mut self, work: &mut HostWork) -> Verdict {
        self.lose_all(work)?;
        for lane in &mut self.lanes {
            lane.queue.close(&mut self.driver);
        }
        self.stage = HostStage::Ending;
        Ok(())
    }

    fn lose_all(&mut self, work: &mut HostWork) -> Verdict {
        work.set_hears(self.number, false);
        work.announced.lost(self.number);
        for lane in &mut self.lanes {
            for command in lane.commands.drain(..).flatten() {
                if let Sent::Io(io) = command.what {
                    work.lost(io, lane.connection)?;
                }
            }
        }
        Ok(())
    }

    /// A queue without TLS has authenticated: it is there for the key that this has made, but
    /// where its host is odd.
    fn made_key(&mut self, at: usize, result: u64) -> Verdict {
        let number = self.number;
        if self.lanes[at].qid != 0 {
            return Err(Violation(format!(
                "host {number} has an I/O queue without the key for TLS that it has made"
            )));
        }
        if self.credentials.shown.stays_plain {
            self.came_up(at, result);
        } else {
            self.lanes[at].queue.close(&mut self.driver);
        }
        Ok(())
    }

    /// Whether it has made a key for TLS, and nothing is left of the queue without.
    fn may_come_back(&self) -> bool {
        let has_made = |lane: &HostLane| lane.queue.generated_psk().is_some();
        let mut lanes = self.lanes.iter();
        self.credentials.makes_key() && lanes.all(|lane| lane.queue.is_closed() && has_made(lane))
    }

    /// Connects by the key that it has made.
    fn come_back(&mut self, world: &SharedWorld, work: &mut HostWork) {
        let made = self.lanes[0].queue.generated_psk().cloned();
        let shown = self
            .credentials
            .come_back(made.expect("its queue was live"));
        work.comes_back(self.number, shown);
        self.lanes.clear();
        self.stage = HostStage::Starting;
        let mut world = world.borrow_mut();
        world.net.driver(self.driver.id()).secures = Some(Secures::AtOnce);
        drop(world);
        self.open(0);
    }

    /// Connect of a queue succeeded.
    fn came_up(&mut self, at: usize, result: u64) {
        let lane = &mut self.lanes[at];
        // What the Admin Queue brings is no data of blocks: it must be right.
        let is_guarded = self.harm != Harm::Data || lane.qid != 0;
        if is_guarded && !self.credentials.makes_key() {
            self.driver.allow_bit_flips(lane.connection);
        }
        if lane.qid == 0 {
            self.cntlid = result as u16;
            let set = PropertySet {
                offset: offset::CC,
                is_8_bytes: false,
                value: CC_ENABLE,
            };
            self.command(0, &set.encode(), Data::None, Sent::Enable);
        }
    }

    fn command(&mut self, at: usize, sqe: &Sqe, data: Data, what: Sent) {
        let len = match data {
            Data::In(len) | Data::Out(len) => len,
            Data::None => 0,
        };
        let memory = match len {
            0 => Memory::default(),
            len => Memory::owned(self.driver.pool().get(len).expect("hosts have memory")),
        };
        let lane = &mut self.lanes[at];
        if let Some(tag) = lane.queue.submit(sqe, data, |_| memory) {
            let begun_at = self.driver.now();
            lane.put(tag, SentCommand { what, begun_at });
        }
    }

    fn completed(&mut self, at: usize, tag: Tag, cqe: &Cqe, work: &mut HostWork) -> Verdict {
        let lane = &mut self.lanes[at];
        lane.has_room = true;
        let command = lane
            .commands
            .get_mut(usize::from(tag))
            .and_then(Option::take);
        let Some(SentCommand { what, begun_at }) = command else {
            if self.may_anything() {
                return self.begin_end(work);
            }
            let host = self.number;
            return Err(Violation(format!("host {host}: an answer to no command")));
        };
        let memory = lane.queue.take_memory(tag);
        if let Sent::Io(io) = what {
            let took = self.driver.now() - begun_at;
            return work.answered(io, cqe, memory.range(), lane.connection, took);
        }
        if !cqe.status.is_success() {
            work.trace(|| format!("host {}: admin command: {}", self.number, cqe.status));
            work.was_cut(self.number, &cqe.status.to_string())?;
            return self.begin_end(work);
        }
        match what {
            Sent::Enable => self.ask_ready(),
            Sent::Ready if cqe.result as u32 & csts::RDY == 0 => self.ask_ready(),
            Sent::Ready => {
                let mut sqe = Sqe::new(admin::IDENTIFY);
                sqe.cdw10 = u32::from(cns::CONTROLLER).into();
                let data = Data::In(IDENTIFY_BYTES as u32);
                self.command(0, &sqe, data, Sent::Identify);
            }
            Sent::Identify => {
                self.identified(&memory);
                self.enable_copies();
            }
            Sent::Behavior => {
                for qid in 1..=self.plan.queues {
                    self.open(qid);
                }
            }
            Sent::KeepAlive | Sent::Abort => {}
            Sent::Event => self.event_came(cqe.result as u32),
            Sent::Notice | Sent::Changed | Sent::Ana => {
                let bytes = memory.range().expect("it has memory");
                self.log_came(&what, bytes, work)?;
            }
            Sent::Io(_) => unreachable!("handled above"),
        }
        Ok(())
    }

    /// An event comes again when its log page has been read.
    fn event_came(&mut self, event: u32) {
        match event {
            event::RESERVATION_LOG_AVAILABLE => self.read_notice(),
            event::NAMESPACE_ATTRIBUTE_CHANGED => self.read_log(
                lid::CHANGED_NAMESPACES,
                CHANGED_NAMESPACES_BYTES,
                Sent::Changed,
            ),
            event::ANA_CHANGED => self.read_log(lid::ANA, ANA_BYTES, Sent::Ana),
            _ => {}
        }
        self.await_event();
    }

    /// The log page of an event.
    fn log_came(&mut self, what: &Sent, page: mem::BufRange, work: &mut HostWork) -> Verdict {
        match what {
            Sent::Notice => {
                let mut bytes = [0; size_of::<Notification>()];
                mem::copy_out(page, &mut bytes);
                let page = Notification::read_from_bytes(&bytes).expect("its size");
                if page.kind != notice::EMPTY && !self.may_anything() {
                    work.notice_arrived(self.number, page.nsid.get(), page.kind)?;
                }
                if page.available > 0 {
                    self.read_notice();
                }
                Ok(())
            }
            Sent::Changed => {
                let mut bytes = [0; CHANGED_NAMESPACES_BYTES as usize];
                mem::copy_out(page, &mut bytes);
                let numbers = bytes.as_chunks().0.iter();
                let mut numbers = numbers
                    .map(|nsid| u32::from_le_bytes(*nsid))
                    .take_while(|nsid| *nsid != 0);
                numbers.try_for_each(|nsid| work.was_told(self.number, Told::Namespace(nsid)))
            }
            _ => work.was_told(self.number, Told::Ana),
        }
    }

    /// The controller has said what it takes.
    fn identified(&mut self, memory: &Memory) {
        let mut bytes = [0; IDENTIFY_BYTES];
        mem::copy_out(memory.range().expect("it has memory"), &mut bytes);
        let controller = identify::Controller::read_from_prefix(&bytes[..]);
        let (controller, _) = controller.expect("4096 bytes");
        // IOCCSZ counts 16-byte units and includes the 64-byte SQE.
        let takes = controller
            .ioccsz
            .get()
            .saturating_mul(16)
            .saturating_sub(64);
        self.in_capsule_max = takes.min(self.plan.in_capsule_max);
    }

    /// Copies between namespaces (Base 2.1, Host Behavior Support).
    fn enable_copies(&mut self) {
        let mut behavior = [0; HOST_BEHAVIOR_BYTES];
        behavior[4..6].copy_from_slice(&HostBehavior::COPY_FORMATS.to_le_bytes());
        let mut sqe = Sqe::new(admin::SET_FEATURES);
        sqe.cdw10 = u32::from(fid::HOST_BEHAVIOR).into();
        let buf = self.driver.pool().get(HOST_BEHAVIOR_BYTES as u32);
        let buf = buf.expect("hosts have memory");
        mem::copy_in(buf.range(), &behavior);
        let lane = &mut self.lanes[0];
        let data = Data::Out(HOST_BEHAVIOR_BYTES as u32);
        if let Some(tag) = lane.queue.submit(&sqe, data, |_| Memory::owned(buf)) {
            let begun_at = self.driver.now();
            let what = Sent::Behavior;
            lane.put(tag, SentCommand { what, begun_at });
        }
    }

    fn await_event(&mut self) {
        let sqe = Sqe::new(admin::ASYNC_EVENT_REQUEST);
        self.command(0, &sqe, Data::None, Sent::Event);
    }

    fn read_notice(&mut self) {
        let len = size_of::<Notification>() as u32;
        self.read_log(lid::RESERVATION_NOTIFICATION, len, Sent::Notice);
    }

    fn read_log(&mut self, page: u8, len: u32, what: Sent) {
        let mut sqe = Sqe::new(admin::GET_LOG_PAGE);
        sqe.cdw10 = (u32::from(page) | (len / 4 - 1) << 16).into();
        self.command(0, &sqe, Data::In(len), what);
    }

    fn ask_ready(&mut self) {
        let get = PropertyGet {
            offset: offset::CSTS,
            is_8_bytes: false,
        };
        self.command(0, &get.encode(), Data::None, Sent::Ready);
    }

    /// What its queues go over.
    fn settings(&self) -> QueueSettings {
        let plan = &self.plan;
        match plan.rdma {
            false => QueueSettings::Tcp(Settings {
                header_digest: plan.header_digest,
                data_digest: plan.data_digest,
                hpda: plan.hpda,
                maxr2t: plan.maxr2t,
                part_in_capsule: plan.part_in_capsule,
            }),
            true => QueueSettings::Rdma(RdmaHostSettings {
                crc: plan.crc(),
                ird_max: plan.maxr2t as u16 + 1,
                ulpdu_max: if plan.part_in_capsule { 1454 } else { u16::MAX },
            }),
        }
    }

    fn open(&mut self, qid: u16) {
        let entries = if qid == 0 {
            ADMIN_ENTRIES
        } else {
            self.plan.entries
        };
        let (cntlid, kato_ms) = match qid {
            0 => (0xffff, self.plan.kato_ms),
            _ => (self.cntlid, 0),
        };
        let no_flow_control = self.plan.no_flow_control && qid != 0;
        let connect_data = |hostnqn: &str| {
            let (hostid, subnqn) = ([self.number as u8 + 1; 16], subnqn(self.plan.subsystem));
            ConnectData::new(hostid, cntlid, &subnqn, hostnqn)
        };
        let params = QueueParams {
            settings: self.settings(),
            connect: ConnectCommand {
                recfmt: 0,
                qid,
                sqsize: entries - 1,
                cattr: if no_flow_control {
                    ConnectCommand::DISABLE_SQ_FLOW_CONTROL
                } else {
                    0
                },
                kato_ms,
            },
            connect_data: connect_data(&host_nqn(self.number)),
            in_capsule_max: match qid {
                0 if self.plan.rdma => 0,
                0 => 8192,
                _ => self.in_capsule_max,
            },
            psk: self.credentials.psk().map(Into::into),
            dhchap: self.credentials.dhchap(),
        };
        let base = self.next_base;
        self.next_base += TOKENS;
        let queue = Queue::open(&mut self.driver, address(self.listener), params, base);
        let mut queue = queue.expect("a simulated socket can be made");
        if qid == 0 && self.credentials.makes_key() {
            queue.concatenate(Concatenation::NewTlsPsk);
        }
        if let Some(other) = self.credentials.poses_as() {
            queue.connect_as(connect_data(&host_nqn(other)));
        }
        self.lanes.push(HostLane {
            base,
            queue,
            qid,
            connection: None,
            socket: self.driver.last_connect(),
            commands: Vec::new(),
            has_room: true,
        });
    }

    /// What time and circumstances ask for.
    fn step(&mut self, world: &SharedWorld, work: &mut HostWork) -> Verdict {
        let now = self.driver.now();
        match self.stage {
            HostStage::Gone => {}
            HostStage::Down(_) if self.wants_end => self.stage = HostStage::Gone,
            HostStage::Down(until) if now < until => self.wake(world, until),
            HostStage::Down(_) => {
                self.stage = HostStage::Starting;
                self.since = now;
                self.lanes.clear();
                let listeners = self.listeners as u64;
                self.listener = world.borrow_mut().random.below(listeners) as usize;
                let arrival = Arrival {
                    listener: address(self.listener),
                    shown: self.credentials.draw(),
                };
                work.connects(self.number, arrival);
                if self.plan.concatenates {
                    world.borrow_mut().net.driver(self.driver.id()).secures = None;
                }
                self.open(0);
                self.wake(world, now + CONNECT_TIMEOUT);
            }
            HostStage::Starting if now >= self.since + CONNECT_TIMEOUT => self.begin_end(work)?,
            HostStage::Starting if self.may_come_back() => self.come_back(world, work),
            HostStage::Starting => {
                let all = usize::from(self.plan.queues) + 1;
                if self.lanes.len() == all && self.lanes.iter().all(|lane| lane.queue.is_live()) {
                    self.stage = HostStage::Live;
                    self.lives += 1;
                    work.trace(|| format!("host {} is live", self.number));
                    work.set_hears(self.number, true);
                    work.is_live(self.number);
                    self.await_event();
                    self.keep_alive_at = now;
                    self.live(world, work, now)?;
                }
            }
            HostStage::Live if self.wants_end && self.in_flight() == 0 => self.begin_end(work)?,
            HostStage::Live => self.live(world, work, now)?,
            HostStage::Ending => {}
        }
        if self.stage == HostStage::Ending && self.lanes.iter().all(|lane| lane.queue.is_closed()) {
            self.lanes.clear();
            let pause = world.borrow_mut().random.around(MS);
            self.stage = HostStage::Down(now + pause);
            self.wake(world, now + pause);
        }
        Ok(())
    }

    fn wake(&self, world: &SharedWorld, at: Nanos) {
        world
            .borrow_mut()
            .at(at, WorldEvent::Turn(self.driver.id()));
    }

    fn live(&mut self, world: &SharedWorld, work: &mut HostWork, now: Nanos) -> Verdict {
        let begun = self.lanes.iter().flat_map(HostLane::under_way);
        if let Some(oldest) = begun.min_by_key(|command| command.begun_at)
            && now >= oldest.begun_at + COMMAND_TIMEOUT
        {
            let (what, at) = (&oldest.what, oldest.begun_at);
            work.trace(|| format!("host {}: {what:?} begun at {at} ns", self.number));
            if !self.is_damaged() {
                work.timed_out(self.number)?;
            }
            return self.begin_end(work);
        }
        if self.plan.kato_ms > 0 && now >= self.keep_alive_at {
            let half = u64::from(self.plan.kato_ms) * MS / 2;
            self.keep_alive_at = now + half;
            self.command(0, &Sqe::new(admin::KEEP_ALIVE), Data::None, Sent::KeepAlive);
            self.wake(world, now + half);
        }
        if self.wants_end {
            return Ok(());
        }
        if work.wants_abort() {
            self.abort_one(world);
        }
        for at in 1..self.lanes.len() {
            while self.lanes[at].has_room && work.has_more() {
                let think = work.draw_pause();
                if think > 0 {
                    self.wake(world, now + think);
                    break;
                }
                if !self.begin(at, world, work)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Asks for the end of a command that is under way; its Command Identifier
    /// is its tag.
    fn abort_one(&mut self, world: &SharedWorld) {
        if self.lanes[0].under_way().count() >= ABORTS_MAX {
            return;
        }
        let lane =
            &self.lanes[1 + world.borrow_mut().random.below(self.lanes.len() as u64 - 1) as usize];
        let tag = lane.commands.iter().position(Option::is_some);
        let Some(tag) = tag else { return };
        let mut sqe = Sqe::new(admin::ABORT);
        sqe.cdw10 = (u32::from(lane.qid) | (tag as u32) << 16).into();
        self.command(0, &sqe, Data::None, Sent::Abort);
    }

    /// Begins one operation on a queue; false where that is full.
    fn begin(
        &mut self,
        at: usize,
        world: &SharedWorld,
        work: &mut HostWork,
    ) -> Result<bool, Violation> {
        let now = self.driver.now();
        let lane = &mut self.lanes[at];
        let room = usize::from(self.plan.entries) - 1;
        let used = lane.commands.iter().flatten().count();
        let requests = work.next(self.number, room - used);
        if requests.is_empty() {
            lane.has_room = false;
            return Ok(false);
        }
        for request in requests {
            let is_admin = request.sqe.opcode == admin::GET_LBA_STATUS;
            let lane = &mut self.lanes[if is_admin { 0 } else { at }];
            let memory = match request.len {
                0 => Memory::default(),
                len => {
                    let buf = self.driver.pool().get(len).expect("hosts have memory");
                    if !request.bytes.is_empty() {
                        mem::copy_in(buf.range(), &request.bytes);
                    }
                    Memory::owned(buf)
                }
            };
            let data = match (request.len, request.bytes.is_empty()) {
                (0, _) => Data::None,
                (len, true) => Data::In(len),
                (len, false) => Data::Out(len),
            };
            match lane.queue.submit(&request.sqe, data, |_| memory) {
                Some(tag) => {
                    let what = Sent::Io(request.io);
                    let begun_at = now;
                    lane.put(tag, SentCommand { what, begun_at });
                }
                None => {
                    work.not_sent(request.io)?;
                    lane.has_room = false;
                }
            }
        }
        let has_room = self.lanes[at].has_room;
        self.wake(world, now + COMMAND_TIMEOUT);
        Ok(has_room)
    }
}

impl HostLane {
    /// What has no answer, but for what waits for an event.
    fn under_way(&self) -> impl Iterator<Item = &SentCommand> {
        let all = self.commands.iter().flatten();
        all.filter(|command| !matches!(command.what, Sent::Event))
    }

    fn put(&mut self, tag: Tag, command: SentCommand) {
        let index = usize::from(tag);
        if index >= self.commands.len() {
            self.commands.resize_with(index + 1, || None);
        }
        self.commands[index] = Some(command);
    }
}

/// The blocks without data in the answer to Get LBA Status about a range (NVM
/// Command Set 1.0, section 4.2.1): those that are not allocated.
pub fn holes(bytes: &[u8], first: u64, blocks: u64) -> Option<Vec<u64>> {
    let count = u32::from_le_bytes(*bytes.first_chunk::<4>()?) as usize;
    let descriptors = bytes.get(8..8 + 16 * count)?.chunks_exact(16);
    let mut holes = Vec::new();
    let mut at = first;
    for one in descriptors {
        let start = u64::from_le_bytes(*one.first_chunk()?);
        let blocks = u32::from_le_bytes(one[8..12].try_into().ok()?);
        holes.extend(at..start);
        at = start + u64::from(blocks);
    }
    // Of what did not fit nothing is known.
    if bytes[4] == cmpc::COMPLETE {
        holes.extend(at..first + blocks);
    }
    Some(holes)
}

/// Whether a command that ended with `status` had no effect for certain. A disk
/// that may not be written may have become so half-way.
pub fn had_no_effect(status: Status) -> bool {
    [
        Status::FUSED_FAILED,
        Status::FUSED_MISSING,
        Status::INVALID_FIELD,
        Status::COMMAND_INTERRUPTED,
        Status::TRANSIENT_TRANSPORT,
        Status::LBA_OUT_OF_RANGE,
        Status::RESERVATION_CONFLICT,
        Status::ANA_INACCESSIBLE,
        Status::ANA_PERSISTENT_LOSS,
        Status::ANA_TRANSITION,
        Status::NAMESPACE_NOT_READY,
    ]
    .contains(&status.code())
}
