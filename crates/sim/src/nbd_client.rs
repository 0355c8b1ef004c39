//! An NBD client: connections to the export of each volume, on a simulated driver. It asks for the
//! same as NVMe hosts do, as far as NBD has it; when one connection is lost, all are, and it
//! connects anew.

use std::collections::BTreeMap;

use mem::{Buf, Pool};
use reactor::{Completion, Driver, Nanos, SocketId, Token};

use crate::access::Arrival;
use crate::checker::{Verdict, Violation};
use crate::credentials::Credentials;
use crate::driver::SimDriver;
use crate::host::{COMMAND_TIMEOUT, CONNECT_TIMEOUT, HostStage};
use crate::nbd_words::{self as words, NbdAsked, NbdHandshake, NbdReplied};
use crate::plan::{Harm, NbdForm, NbdPlan, Plan, VolumePlan};
use crate::target::{nbd_portal, volume_name, volume_of};
use crate::work::{CheckedIo, HostWork};
use crate::world::{DriverId, MS, SharedWorld, US, WorldEvent};

/// Bytes of one receive.
const RECV_BYTES: u32 = 64 << 10;
/// Bytes of one send.
const SEND_BYTES_MAX: usize = 64 << 10;

/// A request that was sent and has no reply.
struct SentRequest {
    asked: NbdAsked,
    io: CheckedIo,
    begun_at: Nanos,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NbdStage {
    Connecting,
    /// Its handshake is under way.
    Coming,
    /// It serves requests.
    Live,
    /// It is being closed.
    Ending,
    Closed,
}

/// One connection.
struct NbdLane {
    token: Token,
    socket: SocketId,
    number: Option<usize>,
    volume: usize,
    stage: NbdStage,
    received: Vec<u8>,
    to_send: Vec<u8>,
    /// A send is under way.
    is_sending: bool,
    cookie: u64,
    requests: BTreeMap<u64, SentRequest>,
}

/// A client.
pub struct SimNbdClient {
    number: usize,
    entries: usize,
    plan: NbdPlan,
    harm: Harm,
    volumes: Vec<VolumePlan>,
    driver: SimDriver,
    stage: HostStage,
    since: Nanos,
    lanes: Vec<NbdLane>,
    next_token: Token,
    completions: Vec<Completion>,
    wants_end: bool,
    /// How often it came up.
    pub lives: u64,
}

impl SimNbdClient {
    /// A client that connects soon.
    pub fn new(world: &SharedWorld, number: usize, id: DriverId, plan: &Plan, pool: Pool) -> Self {
        world.borrow_mut().after(US, WorldEvent::Turn(id));
        let host = plan.hosts[number];
        SimNbdClient {
            number,
            entries: host.entries.into(),
            plan: host.nbd.expect("it speaks NBD"),
            harm: plan.harm(number),
            volumes: plan.volumes.clone(),
            driver: SimDriver::new(world, id, pool),
            stage: HostStage::Down(0),
            since: 0,
            lanes: Vec::new(),
            next_token: 0,
            completions: Vec::new(),
            wants_end: false,
            lives: 0,
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

    /// Requests without a reply.
    pub fn in_flight(&self) -> usize {
        self.lanes.iter().map(|lane| lane.requests.len()).sum()
    }

    /// It shall close its connections and not come back.
    pub fn end(&mut self) {
        self.wants_end = true;
    }

    /// Its machine is gone from one moment to the next; it returns at `at`.
    pub fn vanish(&mut self, world: &SharedWorld, at: Nanos, work: &mut HostWork) -> Verdict {
        self.lose_all(work)?;
        self.lanes.clear();
        self.driver.vanish();
        self.stage = HostStage::Down(at);
        self.wake(world, at);
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
            lane.flush(&mut self.driver);
        }
        Ok(())
    }

    fn completion(&mut self, completion: Completion, work: &mut HostWork) -> Verdict {
        let token = completion.token();
        let Some(at) = self.lanes.iter().position(|lane| lane.token == token) else {
            return Ok(());
        };
        let lane = &mut self.lanes[at];
        match completion {
            Completion::Closed { .. } => lane.stage = NbdStage::Closed,
            _ if lane.stage == NbdStage::Ending => {}
            Completion::Connected { result, .. } => match result {
                Ok(()) => {
                    lane.stage = NbdStage::Coming;
                    lane.receive(&mut self.driver);
                }
                Err(error) => return self.went_down(&error.to_string(), work),
            },
            Completion::Sent { result, .. } => {
                lane.is_sending = false;
                if let Err(error) = result {
                    return self.went_down(&error.to_string(), work);
                }
            }
            Completion::Received { result, .. } => match result {
                Ok(received) if !received.eof => {
                    let bytes = received
                        .stage
                        .as_ref()
                        .map_or(&[][..], |stage| stage.bytes());
                    lane.received.extend(bytes);
                    lane.receive(&mut self.driver);
                    self.read(at, work)?;
                }
                Ok(_) => return self.went_down("its end", work),
                Err(error) => return self.went_down(&error.to_string(), work),
            },
            Completion::Accepted { .. } | Completion::File { .. } => {}
        }
        Ok(())
    }

    /// Looks at what was received on a connection.
    fn read(&mut self, at: usize, work: &mut HostWork) -> Verdict {
        while let Some(lane) = self.lanes.get_mut(at) {
            let wrong = match lane.stage {
                NbdStage::Coming => match words::handshake(&lane.received) {
                    Ok(NbdHandshake::UnderWay) => return Ok(()),
                    Ok(NbdHandshake::Over(len)) => {
                        lane.received.drain(..len);
                        self.came_up(at, work)?;
                        continue;
                    }
                    Ok(NbdHandshake::ServerEnds) => return self.went_down("the server ends", work),
                    Err(why) => why,
                },
                NbdStage::Live => match lane.reply(self.plan.form) {
                    Ok(Some((cookie, reply))) => match lane.requests.remove(&cookie) {
                        Some(sent) => {
                            self.replied(at, sent, reply, work)?;
                            continue;
                        }
                        None => format!(
                            "a reply to no request: {cookie:#x} of {:x?}",
                            lane.requests.keys()
                        ),
                    },
                    Ok(None) => return Ok(()),
                    Err(why) => why,
                },
                NbdStage::Connecting | NbdStage::Ending | NbdStage::Closed => return Ok(()),
            };
            return match self.is_damaged() {
                true => self.went_down(&wrong, work),
                false => Err(Violation(format!("NBD client {}: {wrong}", self.number))),
            };
        }
        Ok(())
    }

    /// A connection serves requests.
    fn came_up(&mut self, at: usize, work: &mut HostWork) -> Verdict {
        let lane = &mut self.lanes[at];
        lane.stage = NbdStage::Live;
        lane.number = self.driver.connection_of(lane.socket);
        self.driver.allow_bit_flips(lane.number);
        work.let_in(self.number)
    }

    fn replied(
        &mut self,
        at: usize,
        sent: SentRequest,
        reply: NbdReplied,
        work: &mut HostWork,
    ) -> Verdict {
        let took = self.driver.now() - sent.begun_at;
        let connection = self.lanes[at].number;
        let Some((cqe, data)) = words::answer(&sent.asked, reply) else {
            // The server ends, and what it has done by then is not known.
            work.trace(|| format!("NBD client {}: the server ends", self.number));
            return work.lost(sent.io, connection);
        };
        let buf = (!data.is_empty()).then(|| {
            let buf = self.driver.pool().get(data.len() as u32);
            let buf = buf.expect("hosts have memory");
            mem::copy_in(buf.range(), &data);
            buf
        });
        let memory = buf.as_ref().map(Buf::range);
        work.answered(sent.io, &cqe, memory, connection, took)
    }

    /// A connection is lost: so is the client.
    fn went_down(&mut self, why: &str, work: &mut HostWork) -> Verdict {
        work.trace(|| format!("NBD client {}: connection lost: {why}", self.number));
        work.was_cut(self.number, why)?;
        self.begin_end(work)
    }

    /// Whether a bit was flipped on the way from or to it.
    fn is_damaged(&self) -> bool {
        let mut lanes = self.lanes.iter();
        self.harm == Harm::Anything && lanes.any(|lane| self.driver.is_damaged(lane.number))
    }

    /// Closes every connection; what was in flight has an unknown outcome.
    fn begin_end(&mut self, work: &mut HostWork) -> Verdict {
        self.lose_all(work)?;
        for lane in &mut self.lanes {
            if !matches!(lane.stage, NbdStage::Ending | NbdStage::Closed) {
                lane.stage = NbdStage::Ending;
                self.driver.close(lane.socket, lane.token);
            }
        }
        self.stage = HostStage::Ending;
        Ok(())
    }

    fn lose_all(&mut self, work: &mut HostWork) -> Verdict {
        work.announced.lost(self.number);
        for lane in &mut self.lanes {
            for sent in std::mem::take(&mut lane.requests).into_values() {
                work.lost(sent.io, lane.number)?;
            }
        }
        Ok(())
    }

    fn open(&mut self, volume: usize) {
        let token = self.next_token;
        self.next_token += 1;
        let socket = self.driver.connect(nbd_portal(), token);
        self.lanes.push(NbdLane {
            token,
            socket: socket.expect("a simulated socket can be made"),
            number: None,
            volume,
            stage: NbdStage::Connecting,
            received: Vec::new(),
            to_send: words::hello(self.plan.form, &volume_name(volume)),
            is_sending: false,
            // So that cookies are no small numbers, nor those of other connections.
            cookie: (token + 1) << 40,
            requests: BTreeMap::new(),
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
                let arrival = Arrival {
                    listener: nbd_portal(),
                    shown: Credentials::default(),
                };
                work.connects(self.number, arrival);
                for _ in 0..self.plan.connections {
                    (0..self.volumes.len()).for_each(|volume| self.open(volume));
                }
                self.wake(world, now + CONNECT_TIMEOUT);
            }
            HostStage::Starting if now >= self.since + CONNECT_TIMEOUT => self.begin_end(work)?,
            HostStage::Starting => {
                if self.lanes.iter().all(|lane| lane.stage == NbdStage::Live) {
                    self.stage = HostStage::Live;
                    self.lives += 1;
                    work.trace(|| format!("NBD client {} is live", self.number));
                    work.is_live(self.number);
                    self.live(world, work, now)?;
                }
            }
            HostStage::Live if self.wants_end && self.in_flight() == 0 => self.begin_end(work)?,
            HostStage::Live => self.live(world, work, now)?,
            HostStage::Ending => {}
        }
        let is_closed = |lane: &NbdLane| lane.stage == NbdStage::Closed;
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
        let begun = self.lanes.iter().flat_map(|lane| lane.requests.values());
        if let Some(oldest) = begun.map(|sent| sent.begun_at).min()
            && now >= oldest + COMMAND_TIMEOUT
        {
            if !self.is_damaged() {
                work.timed_out(self.number)?;
            }
            return self.begin_end(work);
        }
        while !self.wants_end && work.has_more() && self.in_flight() < self.entries {
            let think = work.draw_pause();
            if think > 0 {
                self.wake(world, now + think);
                break;
            }
            let Some(request) = work.next(self.number, 1).pop() else {
                break;
            };
            let volume = volume_of(request.sqe.nsid.get());
            let asked = words::asked(&request, self.volumes[volume].block_bytes);
            let lanes = self.lanes.iter_mut().filter(|lane| lane.volume == volume);
            let lane = lanes.min_by_key(|lane| lane.requests.len());
            let lane = lane.expect("each volume is exported");
            words::put(
                &mut lane.to_send,
                self.plan.form,
                lane.cookie,
                &asked,
                &request.bytes,
            );
            let sent = SentRequest {
                asked,
                io: request.io,
                begun_at: now,
            };
            lane.requests.insert(lane.cookie, sent);
            lane.cookie += 1;
            self.wake(world, now + COMMAND_TIMEOUT);
        }
        Ok(())
    }
}

impl NbdLane {
    fn receive(&mut self, driver: &mut SimDriver) {
        driver.recv(self.socket, None, None, RECV_BYTES, self.token);
    }

    /// Sends what is to be sent, a part at a time.
    fn flush(&mut self, driver: &mut SimDriver) {
        let is_connected = matches!(self.stage, NbdStage::Coming | NbdStage::Live);
        if self.to_send.is_empty() || self.is_sending || !is_connected {
            return;
        }
        let len = self.to_send.len().min(SEND_BYTES_MAX);
        let buf = driver.pool().get(len as u32).expect("hosts have memory");
        mem::copy_in(buf.range(), &self.to_send[..len]);
        self.to_send.drain(..len);
        let mut batch = driver.batch();
        batch.payload(buf.range());
        // It may be read until the peer has it.
        batch.hold(buf);
        self.is_sending = true;
        driver.send(self.socket, batch, self.token);
    }

    /// The next reply, and the cookie of its request.
    fn reply(&mut self, form: NbdForm) -> Result<Option<(u64, NbdReplied)>, String> {
        let read_len = |cookie: u64| Some(self.requests.get(&cookie)?.asked.read_len());
        let Some((len, cookie, reply)) = words::reply(&self.received, form, read_len)? else {
            return Ok(None);
        };
        self.received.drain(..len);
        Ok(Some((cookie, reply)))
    }
}
