//! A machine with several users, whose calls by RPCSEC_GSS share one connection.

use std::collections::{BTreeSet, HashMap, VecDeque};

use mem::Pool;
use random::Random;
use reactor::{Completion, Driver as _, Nanos, SocketId, Token};
use wire::rpc::{RecordMark, reply_stat};
use wire::xdr::{Decode as _, Reader};

use super::user::{Heard, User, UserAsk};
use crate::checker::{Verdict, Violation};
use crate::driver::SimDriver;
use crate::plan::UsersPlan;
use crate::target::nfs_portal;
use crate::world::{DriverId, MS, S, SharedWorld, US, WorldEvent};

const CONNECT: Token = 0;
const RECEIVE: Token = 1;
const SEND: Token = 2;
const CLOSE: Token = 3;

/// A connection on which an answer takes longer is made again.
const CALL_TIMEOUT: Nanos = 2 * S;
/// Until a lost connection is made again.
const PAUSE: Nanos = 5 * MS;
/// Bytes of a receive and of a send.
const PART_BYTES: usize = 2048;
/// The user id of the first.
const FIRST_UID: u32 = 2001;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UsersStage {
    /// Nothing is connected before this.
    Down(Nanos),
    Connecting,
    Live,
    Closing,
    /// For ever.
    Gone,
}

/// The users of a machine.
pub struct Users {
    plan: UsersPlan,
    driver: SimDriver,
    random: Random,
    users: Vec<User>,
    stage: UsersStage,
    socket: Option<SocketId>,
    /// The last one, of the network.
    connection: Option<usize>,
    since: Nanos,
    /// Bits of the connection may be flipped.
    is_exposed: bool,
    unsent: VecDeque<u8>,
    is_sending: bool,
    inbox: Vec<u8>,
    xid: u32,
    /// Calls that must do nothing, by their numbers, and when their contexts expire.
    unwanted: HashMap<u32, Nanos>,
    next_at: Nanos,
    wakes: BTreeSet<Nanos>,
    wants_end: bool,
}

impl Users {
    /// They connect soon.
    pub fn new(
        world: &SharedWorld,
        (id, pool): (DriverId, Pool),
        plan: UsersPlan,
        seed: u64,
    ) -> Users {
        world.borrow_mut().after(US, WorldEvent::Turn(id));
        Users {
            plan,
            driver: SimDriver::new(world, id, pool),
            random: Random::new(seed),
            users: (0..plan.users)
                .map(|n| User::new(FIRST_UID + n, plan))
                .collect(),
            stage: UsersStage::Down(0),
            socket: None,
            connection: None,
            since: 0,
            is_exposed: false,
            unsent: VecDeque::new(),
            is_sending: false,
            inbox: Vec::new(),
            xid: 1,
            unwanted: HashMap::new(),
            next_at: 0,
            wakes: BTreeSet::new(),
            wants_end: false,
        }
    }

    /// Whether they have nothing to ask for.
    pub fn is_idle(&self) -> bool {
        self.users.iter().all(User::is_idle)
    }

    /// Whether they have left for good.
    pub fn is_gone(&self) -> bool {
        self.stage == UsersStage::Gone
    }

    /// Answers that were checked.
    pub fn checked(&self) -> u64 {
        self.users.iter().map(|user| user.checked).sum()
    }

    /// They look at everything.
    pub fn verify(&mut self) {
        self.users.iter_mut().for_each(User::verify);
    }

    /// They shall leave.
    pub fn end(&mut self) {
        self.wants_end = true;
    }

    /// They take up what there is to do.
    pub fn wake(&self, world: &SharedWorld) {
        world.borrow_mut().at(0, WorldEvent::Turn(self.driver.id()));
    }

    /// The target's process has ended, with its memory.
    pub fn target_died(&mut self) {
        self.users.iter_mut().for_each(User::server_died);
        self.close();
    }

    /// One turn.
    pub fn turn(&mut self, world: &SharedWorld) -> Verdict {
        let mut completions = Vec::new();
        self.driver.begin_turn(&mut completions);
        if let (None, Some(socket)) = (self.connection, self.socket) {
            self.connection = self.driver.connection_of(socket);
        }
        for completion in completions {
            self.completion(world, completion)?;
        }
        self.step(world)
    }

    fn completion(&mut self, world: &SharedWorld, completion: Completion) -> Verdict {
        match completion {
            Completion::Connected { result: Ok(()), .. }
                if self.stage == UsersStage::Connecting =>
            {
                self.stage = UsersStage::Live;
                self.receive();
            }
            Completion::Received {
                result: Ok(received),
                ..
            } if !received.eof && self.stage == UsersStage::Live => {
                if let Some(stage) = received.stage {
                    self.inbox.extend_from_slice(stage.bytes());
                }
                self.take_answers(world)?;
                if self.stage == UsersStage::Live {
                    self.receive();
                }
            }
            Completion::Sent { result: Ok(()), .. } => self.is_sending = false,
            Completion::Closed { .. } => {
                self.socket = None;
                if self.stage == UsersStage::Closing {
                    let pause = self.random.around(PAUSE);
                    self.stage = UsersStage::Down(self.driver.now() + pause);
                }
            }
            Completion::Connected { .. }
            | Completion::Received { .. }
            | Completion::Sent { .. } => {
                self.close();
            }
            _ => {}
        }
        Ok(())
    }

    fn receive(&mut self) {
        let socket = self.socket.expect("it is connected");
        self.driver
            .recv(socket, None, None, PART_BYTES as u32, RECEIVE);
    }

    /// The answers to what is under way are lost.
    fn close(&mut self) {
        let is_open = matches!(self.stage, UsersStage::Connecting | UsersStage::Live);
        let Some(socket) = self.socket.filter(|_| is_open) else {
            return;
        };
        self.stage = UsersStage::Closing;
        self.driver.close(socket, CLOSE);
        self.unsent.clear();
        self.inbox.clear();
        self.users.iter_mut().for_each(User::lose);
    }

    fn is_damaged(&self) -> bool {
        self.driver.is_damaged(self.connection)
    }

    /// What came is not what was to come: a bit of it was flipped, or the target is wrong.
    fn is_wrong(&mut self, why: &str) -> Verdict {
        if !self.is_damaged() {
            return Err(Violation(format!("users: {why}")));
        }
        self.close();
        Ok(())
    }

    /// Takes all answers that are whole.
    fn take_answers(&mut self, world: &SharedWorld) -> Verdict {
        while self.stage == UsersStage::Live
            && let Some(mark) = self.inbox.first_chunk()
        {
            let mark = RecordMark::decode(*mark);
            let end = RecordMark::LEN + mark.len as usize;
            if !mark.is_last || mark.len > 1 << 16 {
                return self.is_wrong("an answer in several fragments");
            }
            if self.inbox.len() < end {
                break;
            }
            let answer: Vec<u8> = self.inbox.drain(..end).skip(RecordMark::LEN).collect();
            let xid = answer.first_chunk().map(|xid| u32::from_be_bytes(*xid));
            let is_of = |user: &User| user.sent.as_ref().map(|call| call.xid) == xid;
            let at = self.users.iter().position(is_of);
            let Some(at) = at.filter(|_| answer.len() > 8) else {
                if self.may_be_denied(xid, &answer) {
                    continue;
                }
                return self.is_wrong("an answer to no call, or to one that must have none");
            };
            let now = self.driver.now();
            let (ask, uid) = (
                self.users[at].sent.as_ref().map(|call| call.ask),
                self.users[at].uid,
            );
            let heard = self.users[at].heard(&answer, now)?;
            let mut traced = world.borrow_mut();
            traced.trace(|| format!("user {uid}: {ask:?}: {heard:?}"));
            drop(traced);
            if let Heard::Wrong(why) = heard {
                return self.is_wrong(&format!("user {uid}: {why}"));
            }
        }
        Ok(())
    }

    /// Whether a call that must do nothing is denied because its context is good no more.
    fn may_be_denied(&self, xid: Option<u32>, answer: &[u8]) -> bool {
        let expires = xid.and_then(|xid| self.unwanted.get(&xid));
        let is_over = expires.is_some_and(|at| self.driver.now() + S >= *at);
        let status = answer
            .get(8..)
            .map(|from| reply_stat::decode(&mut Reader::new(from)));
        is_over && matches!(status, Some(Ok(reply_stat::MSG_DENIED)))
    }

    /// What time and circumstances ask for.
    fn step(&mut self, world: &SharedWorld) -> Verdict {
        let now = self.driver.now();
        match self.stage {
            UsersStage::Down(_) if self.wants_end => self.stage = UsersStage::Gone,
            UsersStage::Down(until) if now < until => self.wake_at(world, until),
            UsersStage::Down(_) => self.connect(world, now),
            UsersStage::Connecting | UsersStage::Live if self.is_late(now) => self.close(),
            UsersStage::Live if self.wants_end => self.close(),
            UsersStage::Live => self.live(world, now),
            UsersStage::Connecting | UsersStage::Closing | UsersStage::Gone => {}
        }
        Ok(())
    }

    fn is_late(&self, now: Nanos) -> bool {
        let calls = self.users.iter().filter_map(|user| user.sent.as_ref());
        let oldest = calls.map(|call| call.begun_at).min();
        let since = match self.stage {
            UsersStage::Connecting => Some(self.since),
            _ => oldest,
        };
        since.is_some_and(|since| now >= since + CALL_TIMEOUT)
    }

    /// A new connection, when nothing of the last one can be done any more.
    fn connect(&mut self, world: &SharedWorld, now: Nanos) {
        let last = self.connection;
        if last.is_some_and(|last| !world.borrow().net.is_forgotten(last)) {
            return self.wake_at(world, now + PAUSE);
        }
        let socket = self.driver.connect(nfs_portal(), CONNECT);
        self.socket = Some(socket.expect("a simulated socket can be made"));
        (self.connection, self.since) = (None, now);
        (self.is_sending, self.is_exposed) = (false, false);
        self.stage = UsersStage::Connecting;
        self.wake_at(world, now + CALL_TIMEOUT);
    }

    fn live(&mut self, world: &SharedWorld, now: Nanos) {
        // The tokens of this mechanism guard nothing: contexts are made where bits stay.
        let lacks_context = self.users.iter().any(|user| !user.has_context());
        if self.is_exposed && lacks_context {
            return self.close();
        }
        if self.plan.is_exposed && !lacks_context && !self.is_exposed {
            self.is_exposed = true;
            self.driver.allow_bit_flips(self.connection);
        }
        if now < self.next_at {
            self.wake_at(world, self.next_at);
        } else {
            self.ask(world, now);
            self.next_at = now + self.random.around(self.plan.think);
            if !self.is_idle() {
                self.wake_at(world, self.next_at);
            }
        }
        self.send();
    }

    /// The next call of a user who awaits no answer.
    fn ask(&mut self, world: &SharedWorld, now: Nanos) {
        let all = 0..self.users.len();
        let free: Vec<usize> = all.filter(|at| self.users[*at].sent.is_none()).collect();
        if free.is_empty() {
            return;
        }
        let at = self.random.pick(&free);
        self.xid += 1;
        if self.random.one_in(6)
            && let Some((record, expires)) = self.users[at].unwanted(self.xid, &mut self.random)
        {
            let xid = record.first_chunk().expect("it has a header");
            self.unwanted.insert(u32::from_be_bytes(*xid), expires);
            let uid = self.users[at].uid;
            world
                .borrow_mut()
                .trace(|| format!("user {uid}: a call that must do nothing"));
            return self.put(&record);
        }
        let others = self.users.iter().enumerate();
        let others = others.filter(|(other, user)| *other != at && user.has_context());
        let others: Vec<u32> = others.map(|(_, user)| user.uid).collect();
        let Some(ask) = self.users[at].next(&others, &mut self.random) else {
            return;
        };
        let stolen = match ask {
            UserAsk::Steal(uid) => {
                let mut users = self.users.iter();
                users.find(|user| user.uid == uid).and_then(User::handle)
            }
            _ => None,
        };
        let record = self.users[at].call((self.xid, ask, now), stolen, &mut self.random);
        self.put(&record);
        self.wake_at(world, now + CALL_TIMEOUT);
    }

    fn put(&mut self, record: &[u8]) {
        let mark = RecordMark {
            is_last: true,
            len: record.len() as u32,
        };
        self.unsent.extend(mark.encode());
        self.unsent.extend(record);
    }

    fn send(&mut self) {
        if self.is_sending || self.unsent.is_empty() {
            return;
        }
        let len = self.unsent.len().min(PART_BYTES);
        let part: Vec<u8> = self.unsent.drain(..len).collect();
        let mut batch = self.driver.batch();
        batch.header(&part);
        let socket = self.socket.expect("it is connected");
        self.driver.send(socket, batch, SEND);
        self.is_sending = true;
    }

    /// Asks for a turn at a time, once.
    fn wake_at(&mut self, world: &SharedWorld, at: Nanos) {
        let mut world = world.borrow_mut();
        self.wakes.retain(|wake| *wake > world.now);
        if self.wakes.insert(at) {
            world.at(at, WorldEvent::Turn(self.driver.id()));
        }
    }
}
