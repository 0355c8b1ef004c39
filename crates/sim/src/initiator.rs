//! An iSCSI initiator: the real one on a simulated driver. It asks for the same
//! as NVMe hosts do, in the words of SCSI; when one connection of its session is
//! lost, the session is, and it logs in anew under its old name.

use host::iscsi::{
    Command, CommandOutcome, Digest, ExpectedData, Failure, InitiatorFatalError, InitiatorSettings,
    Params, QpSettings, SessionConnection, SessionError, SessionEvent as ConnectionEvent,
    SessionState, lun_field,
};
use host::{Completion as Cqe, Memory};
use machine::Tag;
use mem::Pool;
use reactor::{Completion, Driver, Nanos, Token};
use wire::iscsi::TaskFunction;
use wire::nvme::Status;
use wire::scsi::status;

use crate::access::Arrival;
use crate::checker::{Verdict, Violation};
use crate::credentials::Credentials;
use crate::driver::SimDriver;
use crate::host::{COMMAND_TIMEOUT, CONNECT_TIMEOUT, HostStage, TOKENS};
use crate::plan::{Harm, HostPlan, IscsiPlan, Plan};
use crate::scsi::{self, ScsiAsked};
use crate::target::{initiator_name, isid, portal, target_name};
use crate::work::{CheckedIo, HostWork};
use crate::world::{DriverId, MS, SharedWorld, US, WorldEvent};

/// Task management functions under way at a time.
const FUNCTIONS_MAX: usize = 2;
/// CmdSN of a session's first command: it wraps soon.
const CMD_SN: u32 = u32::MAX - 20;
const CHECK_CONDITION: CommandOutcome = CommandOutcome::Status(status::CHECK_CONDITION);

/// A command that was sent and has no answer.
struct Sent {
    asked: ScsiAsked,
    ios: Vec<CheckedIo>,
    begun_at: Nanos,
}

/// One connection of the session.
struct SessionLane {
    base: Token,
    connection: SessionConnection,
    number: Option<usize>,
    socket: reactor::SocketId,
    commands: Vec<Option<Sent>>,
    functions: usize,
    has_room: bool,
}

impl SessionLane {
    fn under_way(&self) -> impl Iterator<Item = &Sent> {
        self.commands.iter().flatten()
    }
}

/// An initiator.
pub struct SimInitiator {
    number: usize,
    host: HostPlan,
    plan: IscsiPlan,
    reserves: bool,
    harm: Harm,
    driver: SimDriver,
    stage: HostStage,
    since: Nanos,
    lanes: Vec<SessionLane>,
    next_base: Token,
    completions: Vec<Completion>,
    ping_at: Nanos,
    wants_end: bool,
    /// No other initiator uses the target.
    is_only: bool,
    /// How often it came up.
    pub lives: u64,
    /// Task management functions that ended something.
    pub functions: u64,
}

impl SimInitiator {
    /// An initiator that connects soon.
    pub fn new(world: &SharedWorld, number: usize, id: DriverId, plan: &Plan, pool: Pool) -> Self {
        world.borrow_mut().after(US, WorldEvent::Turn(id));
        let host = plan.hosts[number];
        SimInitiator {
            number,
            host,
            plan: host.iscsi.expect("it speaks iSCSI"),
            reserves: plan.reserve_percent > 0,
            harm: plan.harm(number),
            driver: SimDriver::new(world, id, pool),
            stage: HostStage::Down(0),
            since: 0,
            lanes: Vec::new(),
            next_base: 0,
            completions: Vec::new(),
            ping_at: 0,
            wants_end: false,
            is_only: plan
                .hosts
                .iter()
                .filter(|host| host.iscsi.is_some())
                .count()
                == 1,
            lives: 0,
            functions: 0,
        }
    }

    /// Whether it has all its connections.
    pub fn is_live(&self) -> bool {
        self.stage == HostStage::Live
    }

    /// Whether it has ended for good.
    pub fn is_gone(&self) -> bool {
        self.stage == HostStage::Gone
    }

    /// Commands without an answer.
    pub fn in_flight(&self) -> usize {
        self.lanes.iter().flat_map(SessionLane::under_way).count()
    }

    /// It shall close its session and not come back.
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
        for completion in completions.drain(..) {
            self.completion(completion, work)?;
        }
        self.completions = completions;
        self.step(world, work)?;
        for lane in &mut self.lanes {
            lane.connection.flush(&mut self.driver);
        }
        Ok(())
    }

    fn completion(&mut self, completion: Completion, work: &mut HostWork) -> Verdict {
        let base = completion.token() / TOKENS * TOKENS;
        let Some(at) = self.lanes.iter().position(|lane| lane.base == base) else {
            return Ok(());
        };
        let connection = &mut self.lanes[at].connection;
        connection.on_completion(&mut self.driver, completion);
        while let Some(event) = self.lanes[at].connection.next_event(&mut self.driver) {
            match event {
                ConnectionEvent::Live => {
                    work.let_in(self.number)?;
                    self.came_up(at);
                }
                ConnectionEvent::Completed(tag, completion) => {
                    self.completed(at, tag, &completion, work)?;
                }
                ConnectionEvent::TaskManaged(_, response) => {
                    self.lanes[at].functions -= 1;
                    self.functions += u64::from(response == 0);
                }
                ConnectionEvent::Down(error) => self.went_down(&error, work)?,
                ConnectionEvent::Async(_) | ConnectionEvent::Pong(_) => {}
                ConnectionEvent::Text(_)
                | ConnectionEvent::LoggedOut(..)
                | ConnectionEvent::Rejected(..) => {
                    if self.may_anything() {
                        return self.begin_end(work);
                    }
                    let text = format!("initiator {}: {event:?}", self.number);
                    return Err(Violation(text));
                }
            }
        }
        Ok(())
    }

    /// A connection is lost: so is the session.
    fn went_down(&mut self, error: &SessionError, work: &mut HostWork) -> Verdict {
        work.trace(|| format!("initiator {}: connection lost: {error}", self.number));
        work.was_cut(self.number, &error.to_string())?;
        let may_be_denied = |fatal: &InitiatorFatalError| {
            let is_denial = matches!(fatal, InitiatorFatalError::LoginRefused { class: 2, .. });
            is_denial && work.may_be_cut(self.number)
        };
        match error {
            SessionError::Protocol(fatal)
                if !is_passing(fatal) && !may_be_denied(fatal) && !self.is_damaged() =>
            {
                let text = format!("initiator {}: {fatal}", self.number);
                Err(Violation(text))
            }
            _ => self.begin_end(work),
        }
    }

    /// Whether a bit was flipped on the way from or to it.
    fn is_damaged(&self) -> bool {
        let mut lanes = self.lanes.iter();
        lanes.any(|lane| self.driver.is_damaged(lane.number))
    }

    /// What comes may be anything: headers without digests were damaged.
    fn may_anything(&self) -> bool {
        self.harm == Harm::Anything && self.is_damaged()
    }

    /// Closes every connection; what was in flight has an unknown outcome.
    fn begin_end(&mut self, work: &mut HostWork) -> Verdict {
        self.lose_all(work)?;
        for lane in &mut self.lanes {
            lane.connection.close(&mut self.driver);
        }
        self.stage = HostStage::Ending;
        Ok(())
    }

    fn lose_all(&mut self, work: &mut HostWork) -> Verdict {
        work.announced.lost(self.number);
        for lane in &mut self.lanes {
            for sent in lane.commands.drain(..).flatten() {
                for io in sent.ios {
                    work.lost(io, lane.number)?;
                }
            }
        }
        Ok(())
    }

    /// A connection is in full feature phase; behind the leading one come the
    /// others.
    fn came_up(&mut self, at: usize) {
        let lane = &mut self.lanes[at];
        lane.number = self.driver.connection_of(lane.socket);
        self.driver.allow_bit_flips(lane.number);
        if at == 0 {
            let session = lane.connection.session().clone();
            let wanted = self
                .plan
                .connections
                .min(lane.connection.agreed().max_connections);
            for cid in 1..wanted {
                self.open(cid, Some(session.clone()));
            }
        }
    }

    /// The stream below each of its connections, by RDMA.
    fn stream(&self) -> Option<QpSettings> {
        let host = &self.host;
        host.rdma.then(|| QpSettings {
            crc: host.crc(),
            ird_max: host.maxr2t as u16 + 1,
            ulpdu_max: if host.part_in_capsule { 1454 } else { u16::MAX },
            ..QpSettings::default()
        })
    }

    fn open(&mut self, cid: u16, session: Option<SessionState>) {
        let p = &self.plan;
        // Over RDMA, CRCs of MPA stand for digests.
        let digest = |wanted| match self.host.rdma {
            true => Digest::Never,
            false => wanted,
        };
        let settings = InitiatorSettings {
            header_digest: digest(p.header_digest),
            data_digest: digest(p.data_digest),
            max_recv_data_segment: p.max_recv_data_segment,
            first_burst: p.first_burst,
            max_burst: p.max_burst,
            initial_r2t: p.initial_r2t,
            immediate_data: p.immediate_data,
            max_outstanding_r2t: p.max_outstanding_r2t,
            max_connections: p.connections,
            queue_depth: self.host.entries,
            rdma: self.stream(),
            ..InitiatorSettings::new(&initiator_name(self.number), &target_name())
        };
        let params = Params {
            settings,
            isid: isid(self.number),
            cid,
            cmd_sn: CMD_SN,
            random: [self.number as u8; _],
        };
        let session = session.unwrap_or_else(|| SessionState::new(params.isid, params.cmd_sn));
        let base = self.next_base;
        self.next_base += TOKENS;
        let connection =
            SessionConnection::open_in(&mut self.driver, portal(), params, session, base);
        self.lanes.push(SessionLane {
            base,
            connection: connection.expect("a simulated socket can be made"),
            number: None,
            socket: self.driver.last_connect(),
            commands: Vec::new(),
            functions: 0,
            has_room: true,
        });
    }

    fn completed(
        &mut self,
        at: usize,
        tag: Tag,
        completion: &host::iscsi::Completion,
        work: &mut HostWork,
    ) -> Verdict {
        let now = self.driver.now();
        let (may_anything, is_damaged) = (self.may_anything(), self.is_damaged());
        let lane = &mut self.lanes[at];
        lane.has_room = true;
        let sent = lane
            .commands
            .get_mut(usize::from(tag))
            .and_then(Option::take);
        let Some(sent) = sent else {
            if may_anything {
                return self.begin_end(work);
            }
            let text = format!("initiator {}: an answer to no command", self.number);
            return Err(Violation(text));
        };
        let memory = lane.connection.take_memory(tag);
        let failure = Failure::of(completion.outcome, lane.connection.sense());
        // Sense data is data: what it says may be anything.
        let is_vague = is_damaged && self.harm != Harm::Nothing;
        if failure.is_some_and(|failure| is_vague && failure.outcome == CHECK_CONDITION) {
            return (sent.ios.into_iter()).try_for_each(|io| work.lost(io, None));
        }
        if let Some(failure) = failure
            && failure.is_unit_attention()
        {
            work.trace(|| format!("initiator {}: {failure}", self.number));
            if let Some(told) = scsi::told(&failure, sent.asked.lun) {
                work.was_told(self.number, told)?;
            }
            return self.send(at, sent, work);
        }
        let number = lane.number;
        let took = now - sent.begun_at;
        // A unit attention may be on its way over another connection.
        let mut others = (self.lanes.iter().enumerate()).filter(|(other, _)| *other != at);
        let has_all_answers = others.all(|(_, lane)| lane.under_way().next().is_none());
        let statuses = match failure {
            None => [Status::SUCCESS; 2],
            Some(failure) => match scsi::statuses(&failure) {
                Some(statuses) => statuses,
                None if may_anything => [Status::ABORT_REQUESTED; 2],
                None => {
                    let text = format!("initiator {}: {failure}", self.number);
                    return Err(Violation(text));
                }
            },
        };
        for (io, status) in sent.ios.into_iter().zip(statuses) {
            if status.is_success() && has_all_answers {
                work.was_executed(&io)?;
            }
            let cqe = Cqe {
                status,
                result: 0,
                sqhd: 0,
                data_len: completion.data_len,
            };
            work.answered(io, &cqe, memory.range(), number, took)?;
        }
        Ok(())
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
                let arrival = Arrival {
                    listener: portal(),
                    shown: Credentials::default(),
                };
                work.connects(self.number, arrival);
                self.open(0, None);
                self.wake(world, now + CONNECT_TIMEOUT);
            }
            HostStage::Starting if now >= self.since + CONNECT_TIMEOUT => self.begin_end(work)?,
            HostStage::Starting => {
                if self.lanes.iter().all(|lane| lane.connection.is_live()) {
                    self.stage = HostStage::Live;
                    self.lives += 1;
                    work.trace(|| format!("initiator {} is live", self.number));
                    work.is_live(self.number);
                    self.ping_at = now;
                    self.live(world, work, now)?;
                }
            }
            HostStage::Live if self.wants_end && self.in_flight() == 0 => self.begin_end(work)?,
            HostStage::Live => self.live(world, work, now)?,
            HostStage::Ending => {}
        }
        let is_closed = |lane: &SessionLane| lane.connection.is_closed();
        if self.stage == HostStage::Ending && self.lanes.iter().all(is_closed) {
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
        let begun = self.lanes.iter().flat_map(SessionLane::under_way);
        if let Some(oldest) = begun.map(|sent| sent.begun_at).min()
            && now >= oldest + COMMAND_TIMEOUT
        {
            // Commands of a nexus that is preempted end without a word (SPC-4,
            // section 5.12.11.2.6).
            if !self.reserves && !self.is_damaged() {
                work.timed_out(self.number)?;
            }
            return self.begin_end(work);
        }
        if self.host.kato_ms > 0 && now >= self.ping_at {
            let half = u64::from(self.host.kato_ms) * MS / 2;
            self.ping_at = now + half;
            self.lanes[0].connection.ping();
            self.wake(world, now + half);
        }
        if self.wants_end {
            return Ok(());
        }
        // A function that is another than was sent might reset the target.
        if self.harm != Harm::Anything && work.wants_abort() {
            self.abort_one(world, work)?;
        }
        for at in 0..self.lanes.len() {
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

    /// Ends a command that is under way, or all on its unit.
    fn abort_one(&mut self, world: &SharedWorld, work: &mut HostWork) -> Verdict {
        let (at, is_all, is_reset) = {
            let random = &mut world.borrow_mut().random;
            let at = random.below(self.lanes.len() as u64) as usize;
            // A set spans the connections of a session, a reset all sessions.
            let is_all = self.lanes.len() == 1 && random.one_in(4);
            (at, is_all, self.is_only && random.one_in(2))
        };
        let lane = &mut self.lanes[at];
        let tag = lane.commands.iter().position(Option::is_some);
        let Some(tag) = tag.filter(|_| lane.functions < FUNCTIONS_MAX) else {
            return Ok(());
        };
        if lane.connection.withdraw(tag as Tag) {
            let sent = lane.commands[tag].take().expect("just seen");
            return sent.ios.into_iter().try_for_each(|io| work.lost(io, None));
        }
        let sent = lane.commands[tag].as_ref().expect("just seen");
        let lun = lun_field(sent.asked.lun);
        let (function, tag) = match is_all {
            true if is_reset => (TaskFunction::LogicalUnitReset, None),
            true => (TaskFunction::AbortTaskSet, None),
            false => (TaskFunction::AbortTask, Some(tag as Tag)),
        };
        let function = lane.connection.task_management(function, lun, tag);
        lane.functions += usize::from(function.is_some());
        Ok(())
    }

    /// Begins one operation on a connection; false where that is full.
    fn begin(
        &mut self,
        at: usize,
        world: &SharedWorld,
        work: &mut HostWork,
    ) -> Result<bool, Violation> {
        let now = self.driver.now();
        let room = usize::from(self.lanes[at].connection.room());
        // Both halves of a pair are one command here.
        let requests = work.next(self.number, if room > 0 { 2 } else { 0 });
        if requests.is_empty() {
            self.lanes[at].has_room = false;
            return Ok(false);
        }
        let asked = scsi::asked(&requests);
        let ios = requests.into_iter().map(|request| request.io).collect();
        let sent = Sent {
            asked,
            ios,
            begun_at: now,
        };
        self.send(at, sent, work)?;
        self.wake(world, now + COMMAND_TIMEOUT);
        Ok(self.lanes[at].has_room)
    }

    /// Sends a command, perhaps once more.
    fn send(&mut self, at: usize, sent: Sent, work: &mut HostWork) -> Verdict {
        let lane = &mut self.lanes[at];
        let asked = &sent.asked;
        let memory = match asked.len {
            0 => Memory::default(),
            len => {
                let buf = self.driver.pool().get(len).expect("hosts have memory");
                if !asked.bytes.is_empty() {
                    mem::copy_in(buf.range(), &asked.bytes);
                }
                Memory::owned(buf)
            }
        };
        let data = match (asked.len, asked.bytes.is_empty()) {
            (0, _) => ExpectedData::None,
            (len, true) => ExpectedData::In(len),
            (len, false) => ExpectedData::Out(len),
        };
        let command = Command::new(asked.lun, asked.cdb);
        match lane.connection.submit(&command, data, |_| memory) {
            Some(tag) => {
                let index = usize::from(tag);
                if index >= lane.commands.len() {
                    lane.commands.resize_with(index + 1, || None);
                }
                lane.commands[index] = Some(sent);
            }
            None => {
                lane.has_room = false;
                sent.ios
                    .into_iter()
                    .try_for_each(|io| work.lost(io, None))?;
            }
        }
        Ok(())
    }
}

/// Whether a login may be refused for this: what it depends on is on its way.
fn is_passing(error: &InitiatorFatalError) -> bool {
    matches!(
        error,
        // Target errors, too many connections, not into this session, no such
        // session.
        InitiatorFatalError::LoginRefused { class: 3, .. }
            | InitiatorFatalError::LoginRefused {
                class: 2,
                detail: 0x06 | 0x08 | 0x0a
            }
    )
}
