//! One connection, as far as it is the same for every protocol: its machine on
//! its stream, operations that wait for memory, work that its volumes are at.

use std::cell::RefCell;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use auth::psk::{Derivation, PskIdentity, TlsPsk};
use link::{HandshakeDone, Link, Stream, StreamProblem};
use machine::{Machine, Nanos, Tag, work};
use mem::Pool;
use reactor::{Driver, Received};
use store::meter::{IoMeter, IoOp};

use crate::commands::CommandRoom;
use crate::handshakes::HandshakePlace;
use crate::held_back::OwnLimits;
use crate::hosts::{ConnectedHost, HostName, HostPlace};
use crate::job::Jobs;
use crate::life::ConnectionLife;
use crate::post::ShardMail;
use crate::proofs::{ProofKind, ProofPlace};
use crate::protocol::{ConnectionEvent, ConnectionStage, Protocol, ProtocolOp};
use crate::refusals::{Refusal, RefusalKind};
use crate::sample::{Sample, StageMeters};
use crate::shared::Shared;
use crate::tls_meter::MeteredTls;
use crate::token::{ConnectionId, ConnectionRef};
use crate::waiting::{Limited, Waiting, Waits};

/// A connection that has ended has so many ticks to say why.
const ENDED_TICKS_MAX: u32 = 10;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionState {
    Open,
    /// The socket is being closed; its operations are ending.
    Closing,
    /// The socket is gone.
    Closed,
}

/// How a connection came.
#[derive(Clone, Copy, Debug)]
pub struct Via {
    /// Itself, as [`ConnectionRef`] packs it.
    pub connection: u64,
    /// Our address.
    pub local: SocketAddr,
    /// The peer's.
    pub peer: SocketAddr,
    /// Number of the listener.
    pub listener: u16,
}

/// Where the times of a connection's stages are noted.
pub(crate) fn stage_meters<'a>(
    shared: &'a Shared,
    host: &'a ConnectedHost,
    protocol: usize,
) -> StageMeters<'a> {
    StageMeters {
        protocol: &shared.stage_times[protocol],
        host: &host.stage_times[protocol],
    }
}

/// One of the connections of its protocol, until it is dropped.
struct OpenConnection {
    shared: Arc<Shared>,
    protocol: usize,
}

impl OpenConnection {
    fn new(shared: Arc<Shared>, protocol: usize) -> OpenConnection {
        shared.connections[protocol].fetch_add(1, Ordering::Relaxed);
        OpenConnection { shared, protocol }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.shared.connections[self.protocol].fetch_sub(1, Ordering::Relaxed);
    }
}

/// How a connection is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsInfo {
    /// The cipher suite, as TLS calls it.
    pub cipher: &'static str,
    /// The pre-shared key that both sides have proved to have; `None`: there is none.
    pub psk: Option<PskInfo>,
}

/// A pre-shared key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PskInfo {
    /// The version of its identity, 0 or 1.
    pub version: u8,
    /// DH-HMAC-CHAP has made it.
    pub is_generated: bool,
    /// Its hash, SHA-256 or SHA-384.
    pub hash: &'static str,
    /// The host derives it as libnvme up to 1.13 does.
    pub is_old: bool,
}

impl PskInfo {
    fn of(psk: &TlsPsk) -> Option<PskInfo> {
        let named = PskIdentity::parse(&psk.identity)?;
        Some(PskInfo {
            version: named.version,
            is_generated: named.is_generated,
            hash: psk.hash.name(),
            is_old: psk.derivation == Derivation::Old,
        })
    }
}

/// What every connection has, as an administrator may want to know it.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionInfo {
    /// Which one it is.
    pub connection: ConnectionRef,
    /// How it came.
    pub via: Via,
    /// It takes no commands any more.
    pub is_closing: bool,
    /// Milliseconds since it came to its reactor.
    pub age_ms: u64,
    /// Milliseconds since its peer sent something.
    pub idle_ms: u64,
    /// I/Os that succeeded, as [`store::counters`] counts them.
    pub ios: u64,
    /// Bytes of those.
    pub io_bytes: u64,
    /// An operation waits for memory.
    pub is_short: bool,
    /// So many commands wait for a limit.
    pub held_back: usize,
    /// Bytes of memory that its commands and what has arrived of them hold.
    pub held_bytes: u64,
    /// How it is encrypted; `None`: it is not.
    pub tls: Option<TlsInfo>,
}

/// What every connection has.
pub struct Core<P: Protocol> {
    /// Whether its shard will look at it at the end of this turn.
    pub dirty: bool,
    /// Its machine on its stream.
    pub link: Link<P::Machine>,
    /// How it came.
    pub via: Via,
    /// What all reactors share.
    pub shared: Arc<Shared>,
    /// Its host, as far as that is known.
    pub(crate) host: Arc<ConnectedHost>,
    /// Buffers of its reactor, as a part of its host's share.
    pub pool: Pool,
    /// Its place among the connections of its address; gone with one that moved.
    pub place: Option<HostPlace>,
    id: ConnectionId,
    state: ConnectionState,
    /// Those of the protocol on its reactor.
    pub jobs: Rc<RefCell<Jobs<P::Job>>>,
    /// How many of them are its own.
    pub(crate) jobs_open: usize,
    /// Memory of those.
    pub(crate) room: CommandRoom,
    /// Operations that wait for memory, or for limits.
    pub waiting: Waiting<ProtocolOp<P>>,
    /// When what waits for memory is tried again, whatever happens meanwhile.
    pub looks_at: Option<Nanos>,
    /// Limits of what it reads and writes in a second.
    pub limits: OwnLimits,
    /// The number of its protocol.
    pub(crate) protocol: usize,
    _open: OpenConnection,
    /// Its command that is timed.
    pub(crate) sample: Sample,
    /// Its share of the turn was used up before its work was.
    has_more: bool,
    /// Ticks since its machine has ended.
    ended_ticks: u32,
    /// When the peer sent something last.
    heard_at: Nanos,
    /// A step of its handshake that is made elsewhere.
    handshake: Option<ProofPlace>,
    /// Of its handshake among those that are under way.
    under_way: Option<HandshakePlace>,
    /// It is encrypted.
    tls: Option<MeteredTls>,
}

impl<P: Protocol> Core<P> {
    /// Of a connection that came by `stream`.
    pub fn new(
        machine: P::Machine,
        id: ConnectionId,
        stream: Stream,
        (via, place): (Via, HostPlace),
        shared: Arc<Shared>,
        (jobs, pool): (Rc<RefCell<Jobs<P::Job>>>, &Pool),
    ) -> Self {
        let name = HostName::of_peer(via.peer);
        let host = shared.hosts.host(name, pool.budget());
        let protocol = jobs.borrow().table() as usize;
        let mut link = Link::new(machine, stream);
        link.set_fast_path(shared.connection_policies.fast_path(via.peer, via.listener));
        Core {
            _open: OpenConnection::new(shared.clone(), protocol),
            dirty: false,
            link,
            looks_at: None,
            limits: OwnLimits::new(shared.rate_limits.clone(), host.clone(), via.listener),
            via,
            shared,
            pool: pool.of(host.share.clone()),
            host,
            place: Some(place),
            id,
            state: ConnectionState::Open,
            jobs,
            jobs_open: 0,
            room: CommandRoom::default(),
            waiting: Waiting::default(),
            protocol,
            sample: Sample::new(protocol),
            has_more: false,
            ended_ticks: 0,
            heard_at: 0,
            handshake: None,
            under_way: None,
            tls: None,
        }
    }

    /// As an administrator may want to know it.
    pub fn info(&self, life: ConnectionLife, now: Nanos) -> ConnectionInfo {
        let since = |then: Nanos| now.saturating_sub(then) / 1_000_000;
        ConnectionInfo {
            connection: ConnectionRef::unpack(self.via.connection),
            via: self.via,
            is_closing: !self.is_open(),
            age_ms: since(life.since),
            idle_ms: since(self.heard_at.max(life.since)),
            ios: life.counts.ios,
            io_bytes: life.counts.io_bytes,
            is_short: self.is_waiting(),
            held_back: self.waiting.held_back.len(),
            held_bytes: self.link.held_bytes(),
            tls: self.link.stream.cipher_suite().map(|cipher| TlsInfo {
                cipher,
                psk: self.link.stream.psk().and_then(PskInfo::of),
            }),
        }
    }

    /// Which of its reactor's connections it is.
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// Its host has identified itself: what the connection takes from now on counts
    /// against the share of that host.
    pub fn set_host(&mut self, name: HostName) {
        self.host = self.shared.hosts.host(name, self.pool.budget());
        let limits = self.shared.rate_limits.clone();
        self.limits = OwnLimits::new(limits, self.host.clone(), self.via.listener);
        self.room = CommandRoom::default();
        self.pool = self.pool.of(self.host.share.clone());
        self.link.stream.count_to(&self.pool);
    }

    /// So many of its commands have room, whatever there is: those of a short queue that
    /// is always received.
    pub fn keep_room(&mut self, commands: usize) {
        self.room.keep(commands);
    }

    /// Tells its host from others that have connections; never 0.
    #[inline]
    pub fn host(&self) -> u64 {
        Arc::as_ptr(&self.host) as u64
    }

    /// The reactor that serves it.
    pub fn shard(&self) -> usize {
        ConnectionRef::unpack(self.via.connection).shard as usize
    }

    /// Whether nothing of it is left to wait for.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.state == ConnectionState::Closed && self.jobs_open == 0
    }

    /// Whether its socket is still there.
    pub fn has_socket(&self) -> bool {
        self.state != ConnectionState::Closed
    }

    /// Whether something waits for memory: look again next turn.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        let is_waiting = !self.waiting.is_empty() || self.holds_back();
        is_waiting && self.state == ConnectionState::Open
    }

    /// Whether there is memory for one command more.
    #[inline]
    fn has_room(&mut self) -> bool {
        self.room.has(self.jobs_open, &self.pool)
    }

    /// Whether nothing more is received before there is room for a command.
    #[inline]
    pub(crate) fn holds_back(&self) -> bool {
        !P::REFUSES_COMMANDS && self.room.is_short()
    }

    /// When what waits for a limit is to be looked at, or for what the protocol expects.
    #[inline]
    pub fn wakes_at(&self) -> Option<Nanos> {
        let limit = self.waiting.held_back.wakes_at();
        limit.into_iter().chain(self.looks_at).min()
    }

    /// Whether it has work for its next turn, whatever happens meanwhile.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.has_more && self.state == ConnectionState::Open
    }

    /// Whether others are to have their turn before it does more.
    #[inline]
    pub fn gives_way(&mut self) -> bool {
        let gives_way = work::is_used_up();
        self.has_more |= gives_way;
        gives_way
    }

    /// Whether commands are taken.
    pub fn is_open(&self) -> bool {
        self.state == ConnectionState::Open
    }

    /// Whether commands of its own wait for something.
    #[inline]
    pub fn has_jobs(&self) -> bool {
        self.jobs_open > 0
    }

    /// Whether a command waits for something.
    pub fn has_job(&self, tag: Tag) -> bool {
        self.jobs.borrow().find(self.id, tag).is_some()
    }

    /// Takes out an operation of a command that waits for memory or for a limit: it will not be
    /// executed.
    pub fn take_waiting(&mut self, tag: Tag) -> Option<ProtocolOp<P>> {
        self.waiting.take(|op| is_of::<P>(op, tag))
    }

    /// The volume or the file system of a command is asked to do its part.
    #[inline]
    pub fn begins_backend<D: Driver>(&mut self, tag: Tag, driver: &D) {
        if self.sample.is_timed(tag) {
            self.sample.ask(driver);
        }
    }

    /// It has done its part; of a command that is timed how long that took since the command
    /// was whole.
    #[inline]
    pub fn ends_backend<D: Driver>(&mut self, tag: Tag, driver: &D) -> Option<Nanos> {
        self.sample.is_timed(tag).then(|| {
            let meters = stage_meters(&self.shared, &self.host, self.protocol);
            self.sample.end(self.link.batches(), meters, driver)
        })
    }

    /// Counts a command that its volume or its file system has done, or could not do: where
    /// that is metered, and its host. `took` says how long one took that was timed.
    #[inline]
    pub fn count(
        &self,
        meter: Option<&IoMeter>,
        (op, bytes): (IoOp, u64),
        is_done: bool,
        took: Option<Nanos>,
    ) {
        let note = |meter: &IoMeter| match is_done {
            true => meter.counters.count(op, bytes),
            false => meter.counters.count_error(op),
        };
        let of_host = &self.host.meters[self.protocol];
        note(of_host);
        if let Some(meter) = meter {
            note(meter);
        }
        if let Some(took) = took {
            let time = |meter: &IoMeter| meter.times.note(op as usize, took);
            time(of_host);
            if let Some(meter) = meter {
                time(meter);
            }
        }
    }

    /// Whether an operation of a command waits for memory or for a limit.
    pub(crate) fn is_command_waiting(&self, tag: Tag) -> bool {
        self.waiting.has(|op| is_of::<P>(op, tag))
    }

    /// Whether nothing can be received before an operation that found no memory goes on:
    /// its data stands before its memory, or lies where it was staged.
    pub(crate) fn stalls(&self, op: &ProtocolOp<P>) -> bool {
        let is_in_the_way =
            |tag| self.link.machine.is_blocked_on(tag) || self.link.staged(tag).is_some();
        P::commands(op).into_iter().flatten().any(is_in_the_way)
    }

    /// Whether its host or others have waited for memory a moment ago.
    pub fn is_short(&self, now: Nanos) -> bool {
        self.shared.is_short(now) || self.host.is_short(now)
    }

    /// The socket is gone.
    pub fn on_closed(&mut self) {
        if let (Some(tls), Some(bytes)) = (&mut self.tls, self.link.stream.tls_bytes()) {
            tls.tell(bytes);
        }
        self.tls = None;
        self.state = ConnectionState::Closed;
    }

    /// Whether what was received before has been walked as far as it goes.
    #[inline]
    pub fn may_receive(&self) -> bool {
        !self.waiting.is_stalled() && !self.has_more && !self.holds_back()
    }
}

/// Whether it is an operation of this command.
fn is_of<P: Protocol>(op: &ProtocolOp<P>, tag: Tag) -> bool {
    P::commands(op).contains(&Some(tag))
}

/// Whether it closes once everything was sent.
#[inline]
fn is_ending<P: Protocol>(c: &P) -> bool {
    c.core().link.machine.is_finished()
        || c.core().link.stream.has_failed()
        || c.core().link.stream.peer_has_ended()
        || matches!(
            c.stage(),
            ConnectionStage::Leaving | ConnectionStage::Draining
        )
}

/// What every connection does.
pub trait Connection: Protocol {
    /// Whether it is open and has not identified itself.
    fn is_stranger(&self) -> bool {
        self.core().is_open() && self.stage() == ConnectionStage::Stranger
    }

    /// A receive completed.
    #[inline]
    fn on_received<D: Driver>(&mut self, result: io::Result<Received>, driver: &mut D) {
        match result {
            Ok(received) => {
                let core = self.core_mut();
                if core.link.on_received(received) {
                    core.link.stream.end_handshake(StreamProblem::Left);
                    return self.close(driver);
                }
                core.heard_at = driver.now();
                self.on_event(ConnectionEvent::Heard, driver);
                self.go_on_with_handshake();
                if self.core().is_open() {
                    self.run(driver);
                }
            }
            Err(error) => {
                tracing::debug!(peer = %self.core().via.peer, %error, "receive failed");
                let stream = &mut self.core_mut().link.stream;
                stream.end_handshake(StreamProblem::Left);
                self.close(driver);
            }
        }
    }

    /// Has the next step of a handshake made beside the reactors, and tells of one that failed,
    /// or of records that did.
    #[inline]
    fn go_on_with_handshake(&mut self) {
        let core = self.core_mut();
        if let Some(work) = core.link.stream.take_handshake() {
            let connection = ConnectionRef::unpack(core.via.connection);
            let shared = core.shared.clone();
            let begin = || shared.begin_handshake(core.via.peer.ip(), connection);
            core.under_way.get_or_insert_with(begin);
            let step = move || {
                let mail = ShardMail::Handshake(connection, Box::new(work.step()));
                shared.send(connection.shard as usize, mail);
            };
            let (kind, address) = (ProofKind::Computed, core.via.peer.ip());
            core.handshake = Some(core.shared.prove(kind, address, step));
        }
        if core.link.stream.take_key_used_up() {
            let (host, target) = self.names();
            tracing::warn!(event = "tls-key-used-up", peer = %self.core().via.peer, host, target,
                "the TLS key of the connection has sealed 2^24 records, and AES-GCM is good for \
                 2^24.5: connect again (on Linux: `nvme reset`)");
        }
        self.tell_problem();
    }

    /// Counts and tells why TLS with its peer comes not about, or ends, once.
    #[inline]
    fn tell_problem(&mut self) {
        let core = self.core_mut();
        if let Some(problem) = core.link.stream.take_problem() {
            let named = problem.identity().and_then(PskIdentity::named_in);
            let core = self.core();
            if let Some(reason) = problem.reason() {
                core.shared.tls_meter(core.via.listener).failed(reason);
            }
            core.shared.refusals.note(Refusal {
                peer: Some(core.via.peer),
                host: named.map(|(hostnqn, _)| hostnqn),
                target: named.map(|(_, subnqn)| subnqn),
                ..Refusal::new(RefusalKind::TLS, &problem)
            });
        }
    }

    /// A step of its handshake was made.
    fn on_handshake<D: Driver>(&mut self, done: HandshakeDone, driver: &mut D) {
        if !self.core().is_open() {
            return;
        }
        let core = self.core_mut();
        core.handshake = None;
        let left = core.link.stream.on_handshake(done, driver);
        if core.link.stream.has_failed() || !core.link.stream.is_in_handshake() {
            core.under_way = None;
        }
        if core.link.stream.tls_bytes().is_some() && core.tls.is_none() {
            core.link.stream.count_to(&core.pool);
            core.tls = Some(MeteredTls::new(core.shared.tls_meter(core.via.listener)));
        }
        if self.core().link.stream.proven_peer().is_some() {
            self.on_event(ConnectionEvent::Secured, driver);
        }
        match left {
            Some(received) => self.on_received(Ok(received), driver),
            None => self.go_on_with_handshake(),
        }
    }

    /// Its handshake is one too many, if it is under way still.
    fn give_way<D: Driver>(&mut self, driver: &mut D) {
        if self.core().under_way.is_some() {
            self.close(driver);
        }
    }

    /// A batch was taken by the kernel, or never will be.
    #[inline]
    fn on_sent<D: Driver>(&mut self, result: io::Result<()>, driver: &mut D) {
        let core = self.core_mut();
        core.link.on_sent();
        if core.sample.is_sent() {
            let meters = stage_meters(&core.shared, &core.host, core.protocol);
            core.sample.sent(meters, driver);
        }
        if let Err(error) = result {
            tracing::debug!(peer = %self.core().via.peer, %error, "send failed");
            self.close(driver);
        }
    }

    /// Notes what its peer is refused, or why it ends.
    fn note_refusal(&self, kind: RefusalKind, reason: &dyn Display) {
        let (host, target) = self.names();
        let core = self.core();
        core.shared.refusals.note(Refusal {
            peer: Some(core.via.peer),
            host,
            target,
            ..Refusal::new(kind, reason)
        });
    }

    /// Logs that a peer is gone whose arrival was logged.
    fn tell_gone(&self, what: &str) {
        let peer = self.core().via.peer;
        if self.core().shared.refusals.tells_arrival(Some(peer.ip())) {
            let (host, target) = self.names();
            tracing::info!(event = "disconnected", %peer, host, target, "{what}");
        }
    }

    /// Starts the end: no more is received or sent.
    fn close<D: Driver>(&mut self, driver: &mut D) {
        if self.core().is_open() {
            self.core_mut().state = ConnectionState::Closing;
            self.on_event(ConnectionEvent::Closing, driver);
            let core = self.core_mut();
            let place = core.under_way.take();
            core.link.stream.end_handshake(match place {
                Some(place) if place.gives_way() => {
                    StreamProblem::TooMany(core.shared.limits.tls_handshakes_max)
                }
                _ => StreamProblem::Unfinished,
            });
            self.tell_problem();
            let core = self.core_mut();
            core.waiting.clear();
            core.room = CommandRoom::default();
            core.handshake = None;
            core.link.stream.close(driver);
        }
    }

    /// Takes operations until the received bytes are used up, one stands before
    /// the rest, or others are to have their turn.
    #[inline]
    fn run<D: Driver>(&mut self, driver: &mut D) {
        while !self.core().waiting.is_stalled()
            && !self.core_mut().gives_way()
            && (Self::REFUSES_COMMANDS || self.core_mut().has_room())
            && let Some(op) = self.core_mut().link.next_op(driver.now())
        {
            work::spend(work::OPERATION_UNITS);
            let is_command = || Self::commands(&op)[0].is_some();
            if let Some(tag) = Self::commands(&op)[0]
                && self.core_mut().sample.counts(tag, Self::is_whole(&op))
            {
                self.time_command(tag, Self::is_whole(&op), driver);
            }
            if Self::REFUSES_COMMANDS && is_command() && !self.core_mut().has_room() {
                self.refuse_command(op, driver);
            } else {
                self.execute_or_hold(op, driver);
            }
        }
        let core = self.core_mut();
        // The machine stops too where the share is used up.
        core.gives_way();
        if core.holds_back() {
            core.link.shrink_stage(&core.pool);
        }
        self.on_event(ConnectionEvent::Ran, driver);
    }

    /// Times a command, or goes on with it.
    #[cold]
    fn time_command<D: Driver>(&mut self, tag: Tag, is_whole: bool, driver: &D) {
        let none = Sample::new(self.core().protocol);
        let mut sample = std::mem::replace(&mut self.core_mut().sample, none);
        let is_over = |tag| !self.is_worked_on(tag) && !self.core().is_command_waiting(tag);
        let core = self.core();
        let meters = stage_meters(&core.shared, &core.host, core.protocol);
        sample.on_chosen((tag, is_whole), is_over, meters, driver);
        self.core_mut().sample = sample;
    }

    /// There is no room for a command: its host sends it again later.
    #[cold]
    fn refuse_command<D: Driver>(&mut self, op: ProtocolOp<Self>, driver: &mut D) {
        let reason = "its host's share of memory_max has no room for more commands";
        self.note_refusal(RefusalKind::COMMAND, &reason);
        let (core, now) = (self.core(), driver.now());
        if core.host.note_shortage(now) {
            core.shared.note_shortage(now);
        }
        self.refuse(op, driver);
    }

    /// Goes on, because of something that happened elsewhere.
    fn resume<D: Driver>(&mut self, driver: &mut D) {
        if self.core().is_open() {
            self.on_event(ConnectionEvent::Resumed, driver);
            self.run(driver);
        }
    }

    /// The end of a turn that touched it: everything ready leaves in one
    /// batch, and the next bytes are asked for. Whether it found memory and
    /// waits for more.
    #[inline]
    fn on_turn<D: Driver>(&mut self, driver: &mut D) -> bool {
        self.core_mut().looks_at = None;
        if !self.core().is_open() {
            return false;
        }
        if std::mem::take(&mut self.core_mut().has_more) {
            self.resume(driver);
        } else if self.core().holds_back() {
            self.run(driver);
        }
        if !self.core().waiting.held_back.is_empty() {
            self.go_on_held_back(driver);
        }
        let wants_more = !self.core().waiting.is_empty() && self.retry(driver);
        let ends = is_ending(self);
        let core = self.core_mut();
        if ends {
            core.link.end_output(driver);
        } else {
            // What is still to come is planned for when the batch has gone that
            // asks for it.
            let comes_first = core.link.stream.has_more() && core.link.staged_bytes() == 0;
            if comes_first && core.may_receive() {
                core.link.receive(driver);
            }
            core.link.flush(driver);
        }
        // A batch that goes makes room for more of what is staged, which may be
        // the last that comes: it is walked before anything else is received.
        while self.core().link.machine.has_step() {
            let staged = self.core().link.staged_bytes();
            self.run(driver);
            let link = &mut self.core_mut().link;
            link.flush(driver);
            if link.staged_bytes() == staged {
                break;
            }
        }
        if is_ending(self) {
            if !self.core().link.stream.is_sending() && self.stage() != ConnectionStage::Draining {
                self.close(driver);
            }
        } else if self.core().may_receive() {
            self.core_mut().link.receive(driver);
        }
        let core = self.core_mut();
        if core.sample.replies() {
            let meters = stage_meters(&core.shared, &core.host, core.protocol);
            core.sample.turn_ends(core.link.batches(), meters, driver);
        }
        if let (Some(tls), Some(bytes)) = (&mut core.tls, core.link.stream.tls_bytes()) {
            tls.note(bytes);
        }
        self.on_event(ConnectionEvent::TurnEnds, driver);
        wants_more
    }

    /// When it needs the time next, if nothing happens on it before: with the
    /// next tick (0) while anything is under way, waits or takes memory.
    fn next_tick(&self) -> Option<Nanos> {
        let core = self.core();
        if !core.is_open() {
            return None;
        }
        let is_busy = core.is_waiting()
            || core.waiting.is_stalled()
            || core.has_jobs()
            || core.link.stream.is_sending()
            || core.link.held().next().is_some()
            || is_ending(self);
        match is_busy {
            true => Some(0),
            false => self.deadline(),
        }
    }

    /// Looks at the time.
    fn on_tick<D: Driver>(&mut self, now: Nanos, driver: &mut D) {
        // The end of what is not received is seen by nothing else.
        let core = self.core();
        let is_stalled = core.is_open() && core.waiting.is_stalled();
        if is_stalled && core.link.stream.peer_has_closed(driver) {
            self.close(driver);
        }
        if is_ending(self) {
            // A peer that takes nothing more must not hold its place for ever.
            self.core_mut().ended_ticks += 1;
            if self.core().ended_ticks > ENDED_TICKS_MAX {
                self.close(driver);
            }
        }
        self.on_event(ConnectionEvent::Tick(now), driver);
        if self.core().is_open() {
            self.memory_tick(now, driver);
        }
    }
}

impl<P: Protocol> Connection for P {}
