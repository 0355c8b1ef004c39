//! The network: streams of bytes that come in pieces, late, or not at all.

mod closing;
mod flight;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use mem::{BufRange, Pool, Stage};
use reactor::{Batch, Completion, ConnectedSocket, Nanos, Received, SocketId, Token};

use crate::records::RecordWatch;
use crate::world::{DriverId, US, World, WorldEvent};

/// Errors of sockets, by their Linux numbers.
const ECONNRESET: i32 = 104;
const ECONNREFUSED: i32 = 111;

/// How the network behaves in one run.
#[derive(Clone, Copy, Debug)]
pub struct NetSettings {
    /// Mean time of a byte on its way.
    pub latency: Nanos,
    /// How often, of a hundred, a piece is cut short.
    pub split_percent: u64,
    /// Bytes under way and not received before a sender waits.
    pub window_bytes: usize,
    /// Whether senders' memory is read when the bytes arrive, not when they are
    /// sent.
    pub zero_copy: bool,
    /// Once in so many pieces that arrive on connections that are exposed a bit is
    /// another; 0 for never.
    pub flips: u64,
    /// Where one stream is cut.
    pub cut: Option<StreamCut>,
}

/// A connection is reset when so many bytes have come to one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamCut {
    /// The number of the connection.
    pub connection: usize,
    /// The end: 0 has connected, 1 was connected to.
    pub end: usize,
    /// The bytes, at least 1.
    pub at: u64,
}

/// A receive that waits.
struct PendingRecv {
    token: Token,
    direct: Option<BufRange>,
    stage: Option<Stage>,
    stage_max: u32,
    /// It may complete at an event that is scheduled.
    is_scheduled: bool,
}

struct PendingSend {
    token: Token,
    batch: Box<Batch>,
}

enum Piece {
    Bytes(Vec<u8>),
    /// So many bytes of the oldest batch that the sender has let out of hand.
    Late(usize),
    Fin,
    Reset,
}

/// What holds an end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// Accepted, and not taken by a driver yet.
    Accepted(DriverId),
    Socket(DriverId, SocketId),
    /// Its driver has closed it, or died.
    Closed,
}

struct SocketEnd {
    holder: Holder,
    recv: Option<PendingRecv>,
    send: Option<PendingSend>,
    pump_scheduled: bool,
    /// On its way to this end, with the time of arrival.
    flight: VecDeque<(Nanos, Piece)>,
    flight_bytes: usize,
    /// Arrived, and not received.
    inbox: VecDeque<u8>,
    /// All bytes that have arrived.
    arrived: u64,
    has_fin: bool,
    error: Option<i32>,
    /// Batches sent from this end whose bytes have not all arrived.
    late: VecDeque<Box<Batch>>,
    /// Nothing arrives here before this.
    stalled_until: Nanos,
    /// The completion of its close.
    closing: Option<Token>,
    address: SocketAddr,
}

impl SocketEnd {
    fn is_kept(&self) -> bool {
        matches!(self.holder, Holder::Socket(..)) && self.closing.is_none()
    }

    fn new(holder: Holder, address: SocketAddr) -> SocketEnd {
        SocketEnd {
            holder,
            recv: None,
            send: None,
            pump_scheduled: false,
            flight: VecDeque::new(),
            flight_bytes: 0,
            inbox: VecDeque::new(),
            arrived: 0,
            has_fin: false,
            error: None,
            late: VecDeque::new(),
            stalled_until: 0,
            closing: None,
            address,
        }
    }
}

struct SimConnection {
    /// The connecting end, and the accepting one.
    ends: [SocketEnd; 2],
    /// Its host has vanished without a word: nothing passes any more.
    is_dead: bool,
    /// The driver that made it.
    maker: DriverId,
    /// Bits of it may be flipped on their way.
    is_exposed: bool,
    /// A bit of it was flipped on its way.
    is_damaged: bool,
    /// By TLS: what the connecting end has sent, and the accepting one.
    watches: Option<Box<[RecordWatch; 2]>>,
}

struct Attempt {
    from: Option<(DriverId, SocketId, Token)>,
    to: SocketAddr,
    local: SocketAddr,
}

/// What a place in a driver's table is used for.
#[derive(Clone, Copy, Debug)]
enum SlotUse {
    Free,
    Listener(Token, SocketAddr),
    Attempt(usize),
    End(usize, usize),
}

struct SocketSlot {
    generation: u32,
    what: SlotUse,
}

/// When TLS begins on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secures {
    /// With its first byte.
    AtOnce,
    /// Behind a call and its answer (RFC 9289, section 4.1).
    BehindProbe,
}

impl Secures {
    /// What is looked for both ways.
    fn watches(self) -> [RecordWatch; 2] {
        match self {
            Secures::AtOnce => Default::default(),
            Secures::BehindProbe => [RecordWatch::behind_a_call(), RecordWatch::behind_a_call()],
        }
    }
}

/// What the world keeps of one driver.
pub struct DriverState {
    /// Ready for its user, with the socket that each belongs to.
    pub ready: Vec<(Option<SocketId>, Completion)>,
    turn_scheduled: bool,
    slots: Vec<SocketSlot>,
    free: Vec<u32>,
    pool: Pool,
    /// Spare batches.
    #[allow(clippy::vec_box)] // handed out as they are
    batches: Vec<Box<Batch>>,
    /// Its user is slow for a while.
    pub busy_until: Nanos,
    /// Bits that were flipped on the connections it has made.
    pub flips: u64,
    /// It speaks TLS on the connections that it makes: their bits may be flipped from the
    /// first on.
    pub secures: Option<Secures>,
    /// Its user has panicked, and gets no more completions.
    pub has_failed: bool,
}

/// The network.
pub struct Net {
    settings: NetSettings,
    drivers: Vec<DriverState>,
    connections: Vec<SimConnection>,
    attempts: Vec<Attempt>,
    next_port: u16,
}

impl Net {
    /// A network without drivers on it.
    pub fn new(settings: NetSettings) -> Net {
        Net {
            settings,
            drivers: Vec::new(),
            connections: Vec::new(),
            attempts: Vec::new(),
            next_port: 1024,
        }
    }

    /// A new driver.
    pub fn add_driver(&mut self, pool: Pool) -> DriverId {
        self.drivers.push(DriverState {
            ready: Vec::new(),
            turn_scheduled: false,
            slots: Vec::new(),
            free: Vec::new(),
            pool,
            batches: Vec::new(),
            busy_until: 0,
            flips: 0,
            secures: None,
            has_failed: false,
        });
        self.drivers.len() - 1
    }

    /// What is kept of a driver.
    pub fn driver(&mut self, id: DriverId) -> &mut DriverState {
        &mut self.drivers[id]
    }

    /// Connections that both sides still know, as numbers.
    pub fn live_connections(&self) -> Vec<usize> {
        let open = |c: &SimConnection| !c.is_dead && c.ends.iter().all(|e| e.error.is_none());
        let held = |c: &SimConnection| c.ends.iter().all(|e| e.holder != Holder::Closed);
        let all = self.connections.iter().enumerate();
        all.filter(|(_, c)| open(c) && held(c))
            .map(|(n, _)| n)
            .collect()
    }

    /// Connections to `address` that a driver of the accepting side has.
    pub fn connections_to(&self, address: SocketAddr) -> usize {
        let kept = |c: &&SimConnection| c.ends[1].address == address && c.ends[1].is_kept();
        self.connections.iter().filter(kept).count()
    }

    /// The connection of a driver's socket, once it is made.
    pub fn connection_of(&self, driver: DriverId, socket: SocketId) -> Option<usize> {
        let slot = self.drivers[driver].slots.get(socket.index() as usize)?;
        match slot.what {
            SlotUse::End(connection, _) if slot.generation == socket.generation() => {
                Some(connection)
            }
            _ => None,
        }
    }

    /// From now on bits of the connection may be flipped on their way.
    pub fn allow_bit_flips(&mut self, connection: usize) {
        self.connections[connection].is_exposed = true;
    }

    /// Whether a bit of the connection was flipped on its way.
    pub fn is_damaged(&self, connection: usize) -> bool {
        self.connections[connection].is_damaged
    }

    /// From now on every bit arrives as it was sent.
    pub fn heal(&mut self) {
        self.settings.flips = 0;
    }

    /// Whether a stream is still to be cut.
    pub fn awaits_cut(&self) -> bool {
        self.settings.cut.is_some()
    }

    /// Whether the accepting side has let go of the connection.
    pub fn is_forgotten(&self, connection: usize) -> bool {
        let end = &self.connections[connection].ends[1];
        end.holder == Holder::Closed && end.closing.is_none()
    }

    fn take_slot(&mut self, driver: DriverId, what: SlotUse) -> SocketId {
        let state = &mut self.drivers[driver];
        let index = state.free.pop().unwrap_or_else(|| {
            state.slots.push(SocketSlot {
                generation: 0,
                what: SlotUse::Free,
            });
            state.slots.len() as u32 - 1
        });
        let slot = &mut state.slots[index as usize];
        slot.what = what;
        SocketId::new(index, slot.generation)
    }

    /// The place of a socket in use. Anything else is the user's mistake.
    fn slot(&mut self, driver: DriverId, socket: SocketId) -> &mut SocketSlot {
        let slot = &mut self.drivers[driver].slots[socket.index() as usize];
        let fits = slot.generation == socket.generation() && !matches!(slot.what, SlotUse::Free);
        assert!(fits, "socket used after its close");
        slot
    }

    fn end_of(&mut self, driver: DriverId, socket: SocketId) -> (usize, usize) {
        match self.slot(driver, socket).what {
            SlotUse::End(connection, end) => (connection, end),
            other => panic!("{other:?} is not connected"),
        }
    }

    /// See [`reactor::Driver::peer_has_closed`].
    pub fn peer_has_closed(&mut self, driver: DriverId, socket: SocketId) -> bool {
        let (connection, end) = self.end_of(driver, socket);
        let end = &self.connections[connection].ends[end];
        end.has_fin || end.error.is_some()
    }

    fn free_slot(&mut self, driver: DriverId, socket: SocketId) {
        let slot = self.slot(driver, socket);
        slot.what = SlotUse::Free;
        slot.generation += 1;
        self.drivers[driver].free.push(socket.index());
    }

    /// An empty batch.
    pub fn batch(&mut self, driver: DriverId) -> Box<Batch> {
        let spare = self.drivers[driver].batches.pop();
        spare.unwrap_or_else(Batch::new)
    }

    fn recycle(&mut self, driver: DriverId, mut batch: Box<Batch>) {
        batch.clear();
        self.drivers[driver].batches.push(batch);
    }

    /// An end of a connection that no driver has.
    fn connected(&self, connection: usize, end: usize) -> ConnectedSocket {
        let number = (2 * connection + end) as u64;
        ConnectedSocket::numbered(number, self.connections[connection].ends[end].address)
    }

    fn socket_of(&self, connection: usize, end: usize) -> Option<(DriverId, SocketId)> {
        match self.connections[connection].ends[end].holder {
            Holder::Socket(driver, socket) => Some((driver, socket)),
            _ => None,
        }
    }
}

impl World {
    /// Something is ready for a driver's user: it gets its turn soon.
    pub fn wake(&mut self, driver: DriverId) {
        let state = self.net.driver(driver);
        if state.turn_scheduled {
            return;
        }
        state.turn_scheduled = true;
        let busy = state.busy_until;
        let delay = self.random.below(2 * US);
        let at = (self.now + delay).max(busy);
        self.at(at, WorldEvent::Turn(driver));
    }

    /// A turn of the driver's user begins: what is ready for it.
    pub fn begin_turn(&mut self, driver: DriverId) {
        self.net.driver(driver).turn_scheduled = false;
    }

    fn complete(&mut self, driver: DriverId, socket: Option<SocketId>, completion: Completion) {
        self.net.driver(driver).ready.push((socket, completion));
        self.wake(driver);
    }

    /// A file operation of a driver has ended.
    pub fn complete_file(&mut self, driver: DriverId, token: Token, result: io::Result<u32>) {
        self.complete(driver, None, Completion::File { token, result });
    }

    /// Listens on `address`.
    pub fn listen(&mut self, driver: DriverId, address: SocketAddr, token: Token) -> SocketId {
        self.net
            .take_slot(driver, SlotUse::Listener(token, address))
    }

    /// Takes an accepted connection.
    pub fn take_socket(&mut self, driver: DriverId, connected: &ConnectedSocket) -> SocketId {
        let number = connected.number().expect("of this network") as usize;
        let (connection, end) = (number / 2, number % 2);
        let socket = self.net.take_slot(driver, SlotUse::End(connection, end));
        self.net.connections[connection].ends[end].holder = Holder::Socket(driver, socket);
        socket
    }

    /// Gives a connected socket that is at rest back, for another driver.
    pub fn give_socket(&mut self, driver: DriverId, socket: SocketId) -> Option<ConnectedSocket> {
        let (connection, end) = self.net.end_of(driver, socket);
        let is_ready = |(of, _): &(Option<SocketId>, Completion)| *of == Some(socket);
        let is_heard = self.net.driver(driver).ready.iter().any(is_ready);
        let this = &mut self.net.connections[connection].ends[end];
        if this.recv.is_some() || this.send.is_some() || is_heard {
            return None;
        }
        this.holder = Holder::Accepted(driver);
        self.net.free_slot(driver, socket);
        self.trace(|| format!("connection {connection}: end {end} leaves driver {driver}"));
        Some(self.net.connected(connection, end))
    }

    /// Connects to `to`.
    pub fn connect(&mut self, driver: DriverId, to: SocketAddr, token: Token) -> SocketId {
        let attempt = self.net.attempts.len();
        let socket = self.net.take_slot(driver, SlotUse::Attempt(attempt));
        self.net.next_port = self.net.next_port.checked_add(1).unwrap_or(1024);
        let local = SocketAddr::from(([10, 0, 1, driver as u8], self.net.next_port));
        self.net.attempts.push(Attempt {
            from: Some((driver, socket, token)),
            to,
            local,
        });
        let delay = self.random.around(self.net.settings.latency * 2);
        self.after(delay, WorldEvent::Connect(attempt));
        socket
    }

    /// The end of an attempt to connect.
    pub(crate) fn connect_ends(&mut self, attempt: usize) {
        let Attempt { from, to, local } = &mut self.net.attempts[attempt];
        let (to, local) = (*to, *local);
        let Some((driver, socket, token)) = from.take() else {
            return;
        };
        let listening = self.net.drivers.iter().enumerate().find_map(|(n, state)| {
            state.slots.iter().find_map(|slot| match slot.what {
                SlotUse::Listener(token, address) if address == to => Some((n, token)),
                _ => None,
            })
        });
        let Some((acceptor, accept_token)) = listening else {
            self.trace(|| format!("connect of driver {driver} to {to} is refused"));
            let result = Err(io::Error::from_raw_os_error(ECONNREFUSED));
            return self.complete(
                driver,
                Some(socket),
                Completion::Connected { token, result },
            );
        };
        let connection = self.net.connections.len();
        let secures = self.net.drivers[driver].secures;
        self.net.connections.push(SimConnection {
            ends: [
                SocketEnd::new(Holder::Socket(driver, socket), local),
                SocketEnd::new(Holder::Accepted(acceptor), to),
            ],
            is_dead: false,
            maker: driver,
            is_exposed: secures.is_some(),
            is_damaged: false,
            watches: secures.map(|secures| Box::new(secures.watches())),
        });
        self.net.slot(driver, socket).what = SlotUse::End(connection, 0);
        self.trace(|| format!("connection {connection}: driver {driver} to {to}"));
        let result = Ok(());
        self.complete(
            driver,
            Some(socket),
            Completion::Connected { token, result },
        );
        let accepted = Completion::Accepted {
            token: accept_token,
            result: Ok((self.net.connected(connection, 1), local)),
        };
        self.complete(acceptor, None, accepted);
    }

    /// A receive begins.
    pub fn recv(
        &mut self,
        driver: DriverId,
        socket: SocketId,
        direct: Option<BufRange>,
        stage: Option<Stage>,
        stage_max: u32,
        token: Token,
    ) {
        let direct = direct.filter(|direct| !direct.is_empty());
        assert!(direct.is_some() || stage_max > 0, "a receive of nothing");
        let (connection, end) = self.net.end_of(driver, socket);
        let this = &mut self.net.connections[connection].ends[end];
        assert!(this.recv.is_none(), "one receive at a time");
        this.recv = Some(PendingRecv {
            token,
            direct,
            stage,
            stage_max,
            is_scheduled: false,
        });
        self.try_receive(connection, end, 0);
    }

    /// Lets a receive that waits complete soon, if there is something.
    fn try_receive(&mut self, connection: usize, end: usize, delay: Nanos) {
        let delay = delay + self.random.below(US);
        let this = &mut self.net.connections[connection].ends[end];
        let has = !this.inbox.is_empty() || this.has_fin || this.error.is_some();
        if let Some(recv) = &mut this.recv
            && has
            && !std::mem::replace(&mut recv.is_scheduled, true)
        {
            self.after(delay, WorldEvent::Recv(connection, end));
        }
    }

    /// A receive completes with some of what is there.
    pub(crate) fn receive(&mut self, connection: usize, end: usize) {
        let Some((driver, socket)) = self.net.socket_of(connection, end) else {
            return;
        };
        let available = self.net.connections[connection].ends[end].inbox.len();
        let part = self.part_of(available);
        let pool = self.net.drivers[driver].pool.clone();
        let this = &mut self.net.connections[connection].ends[end];
        if this.closing.is_some() {
            return;
        }
        let Some(mut recv) = this.recv.take() else {
            return;
        };
        if available == 0 && !this.has_fin && this.error.is_none() {
            // What was there is gone with its sender.
            recv.is_scheduled = false;
            this.recv = Some(recv);
            return;
        }
        let token = recv.token;
        let result = match this.error {
            Some(errno) if available == 0 => Err(io::Error::from_raw_os_error(errno)),
            _ => Ok(fill(recv, &mut this.inbox, part, &pool)),
        };
        let is_open = result.is_ok();
        self.complete(driver, Some(socket), Completion::Received { token, result });
        if is_open {
            // There is room in the window again.
            self.schedule_pump(connection, 1 - end);
        }
    }

    /// How much of `available` bytes come at a time.
    fn part_of(&mut self, available: usize) -> usize {
        if available <= 1 || !self.random.percent(self.net.settings.split_percent) {
            return available;
        }
        let most = match self.random.below(3) {
            0 => 16,
            1 => 160,
            _ => available as u64,
        };
        1 + self.random.below(most.min(available as u64)) as usize
    }

    /// A send begins.
    pub fn send(&mut self, driver: DriverId, socket: SocketId, batch: Box<Batch>, token: Token) {
        assert!(!batch.is_empty(), "a send of nothing");
        let (connection, end) = self.net.end_of(driver, socket);
        let this = &mut self.net.connections[connection].ends[end];
        assert!(this.send.is_none(), "one send at a time");
        this.send = Some(PendingSend { token, batch });
        self.schedule_pump(connection, end);
    }

    /// Nothing arrives on a connection for a while, in one direction or both.
    pub fn stall(&mut self, connection: usize, time: Nanos) {
        let until = self.now + time;
        let both = self.random.percent(50);
        let only = self.random.below(2) as usize;
        self.trace(|| format!("connection {connection}: stalls for {} us", time / US));
        for end in 0..2 {
            if both || end == only {
                let this = &mut self.net.connections[connection].ends[end];
                this.stalled_until = this.stalled_until.max(until);
            }
        }
    }

    /// Nothing arrives at the accepting end of a connection before `until`.
    pub fn hold_arrivals(&mut self, connection: usize, until: Nanos) {
        let this = &mut self.net.connections[connection].ends[1];
        this.stalled_until = this.stalled_until.max(until);
    }
}

/// Takes the first `len` bytes out, in blocks: byte by byte is most of a run's time
/// where it is not optimised.
fn first(inbox: &mut VecDeque<u8>, len: usize) -> Vec<u8> {
    let rest = inbox.split_off(len);
    std::mem::replace(inbox, rest).into()
}

/// Moves at most `most` bytes to where the receive wants them.
fn fill(recv: PendingRecv, inbox: &mut VecDeque<u8>, most: usize, pool: &Pool) -> Received {
    let direct_len = recv.direct.map_or(0, BufRange::len) as usize;
    let mut stage = recv.stage;
    let given = stage.is_some();
    if recv.stage_max > 0 {
        match &mut stage {
            Some(stage) => stage.fit(pool, recv.stage_max),
            None => stage = Some(pool.stage_of(recv.stage_max.min(mem::STAGE_BYTES))),
        }
    }
    let room = stage
        .as_ref()
        .map_or(0, Stage::room)
        .min(recv.stage_max as usize);
    assert!(direct_len + room > 0, "a receive of nothing");
    let bytes = most.min(direct_len + room);
    let eof = inbox.is_empty();
    let bytes = first(inbox, bytes);
    let direct = bytes.len().min(direct_len);
    if let Some(range) = recv.direct {
        mem::copy_in(range.slice(0, direct as u32), &bytes[..direct]);
    }
    let staged = bytes.len() - direct;
    if let Some(stage) = &mut stage {
        stage.append(&bytes[direct..]);
    }
    Received {
        direct: direct as u32,
        stage: stage.filter(|_| given || staged > 0),
        eof,
        more: !inbox.is_empty(),
    }
}
