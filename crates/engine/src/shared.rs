//! What the reactors of one server have in common, off the way of an I/O.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use faults::Fault;
use machine::{Nanos, locked};
use store::Volume;
use store::meter::PROTOCOLS_MAX;

use crate::blocking_worker::{self, About, Desk};
use crate::connection_policy::ConnectionPolicies;
use crate::fence::{Passage, Scope};
use crate::handshakes::{HandshakePlace, Handshakes};
use crate::hosts::{Hosts, SHORTAGE};
use crate::placement::Load;
use crate::post::{Post, ShardMail};
use crate::proofs::{ProofKind, ProofPlace, ProofQueue};
use crate::rate_limits::{RateLimit, RateLimits};
use crate::refusals::Refusals;
use crate::reservation::Hears;
use crate::sample::StageTimes;
use crate::tls_meter::{TlsMeter, TlsMeters};
use crate::token::ConnectionRef;

/// How long there is enough memory before a shortage is told again.
const TOLD_AGAIN: Nanos = 60_000_000_000;

/// What peers may take, whatever they speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections of all hosts together.
    pub connections_max: u32,
    /// Connections of one address, or of one subnet (/64) of IPv6.
    pub connections_of_address_max: u32,
    /// Handshakes of TLS that are under way, of all peers together.
    pub tls_handshakes_max: u32,
    /// What a connection may spend in one turn of its reactor before all others of it
    /// have theirs, in units of [`machine::work`].
    pub turn_units_max: u64,
}

/// What the reactors of one server have in common.
pub struct Shared {
    /// What peers may take.
    pub limits: ConnectionLimits,
    /// Connections of each reactor.
    pub load: Load,
    /// What peers were refused.
    pub refusals: Refusals,
    /// What hosts have.
    pub hosts: Arc<Hosts>,
    /// How much hosts read and write in a second.
    pub rate_limits: Arc<RateLimits>,
    /// What the kernel is to do with what goes over connections.
    pub connection_policies: ConnectionPolicies,
    /// Connections that are open, by protocol.
    pub connections: [AtomicU64; PROTOCOLS_MAX],
    /// Times of the stages of some commands, by protocol.
    pub stage_times: [StageTimes; PROTOCOLS_MAX],
    /// Parts that have failed, beside reactors.
    pub failures: Mutex<Vec<String>>,
    /// At the end, volumes that are not flushed yet, or could not be.
    pub unsynced: AtomicU64,
    post: Arc<dyn Post<ShardMail>>,
    desk: Arc<Desk>,
    /// By [`ProofKind`].
    proofs: [Arc<ProofQueue>; 3],
    handshakes: Arc<Handshakes>,
    tls: TlsMeters,
    started: OnceLock<Nanos>,
    is_stopping: AtomicBool,
    /// When a connection last went short of memory; 0 for never.
    short_at: AtomicU64,
    /// Reactors that serve, or still have connections while the server stops.
    serving: Mutex<BTreeSet<usize>>,
    hearing: OnceLock<Vec<Weak<dyn Hears>>>,
}

impl Shared {
    /// Of so many reactors, which get their mail by `post`.
    pub fn new(
        limits: ConnectionLimits,
        reactors: usize,
        post: Arc<dyn Post<ShardMail>>,
    ) -> Shared {
        Shared {
            limits,
            load: Arc::new((0..reactors).map(|_| AtomicU32::new(0)).collect()),
            refusals: Refusals::default(),
            hosts: Arc::default(),
            rate_limits: Arc::default(),
            connection_policies: ConnectionPolicies::default(),
            connections: Default::default(),
            stage_times: Default::default(),
            failures: Mutex::default(),
            unsynced: AtomicU64::new(0),
            post,
            desk: Arc::default(),
            proofs: Default::default(),
            handshakes: Arc::default(),
            tls: TlsMeters::default(),
            started: OnceLock::new(),
            is_stopping: AtomicBool::new(false),
            short_at: AtomicU64::new(0),
            serving: Mutex::new((0..reactors).collect()),
            hearing: OnceLock::new(),
        }
    }

    /// Sets the protocols that are told of reservations; once, before the first reactor
    /// runs.
    pub fn set_hearing(&self, hearing: Vec<Weak<dyn Hears>>) {
        assert!(self.hearing.set(hearing).is_ok(), "set once");
    }

    pub(crate) fn hearing(&self) -> impl Iterator<Item = Arc<dyn Hears>> {
        let all = self.hearing.get().into_iter().flatten();
        all.filter_map(Weak::upgrade)
    }

    /// Mail to one reactor.
    pub fn send(&self, shard: usize, mail: ShardMail) {
        self.post.send(shard, mail);
    }

    /// Mail to every reactor.
    pub fn send_all(&self, mail: impl Fn() -> ShardMail) {
        for shard in 0..self.load.len() {
            self.send(shard, mail());
        }
    }

    /// These limits hold from now on, for what waits too: when all reactors have passed a fence
    /// that is begun next.
    pub fn set_rate_limits(&self, limits: Vec<RateLimit>) {
        self.send(0, ShardMail::SetRateLimits(limits));
    }

    /// Tells a connection's reactor to close it.
    pub fn close(&self, packed: u64) {
        let connection = ConnectionRef::unpack(packed);
        self.send(connection.shard as usize, ShardMail::Close(connection));
    }

    /// Tells a peer that its connection ends, and closes it.
    pub fn dismiss(&self, packed: u64) {
        let connection = ConnectionRef::unpack(packed);
        self.send(connection.shard as usize, ShardMail::Dismiss(connection));
    }

    /// Runs `then`, on some reactor, when what is in `scope` and began before
    /// is over on all of them.
    pub fn fence(&self, scope: Scope, then: impl FnOnce() + Send + 'static) {
        let scope = match scope {
            Scope::Listener(_) if faults::is(Fault::KeepConnections) => Scope::Mail,
            scope => scope,
        };
        let parts = Passage::all(scope, self.load.len(), Box::new(then), &self.desk);
        for (shard, part) in parts.enumerate() {
            self.send(shard, ShardMail::Fence(part));
        }
    }

    /// Has work done that may block, after all that was given before of what it is
    /// about.
    pub fn blocking(&self, about: About, work: impl FnOnce() + Send + 'static) {
        self.desk.add(about, Box::new(work));
    }

    /// Has volumes do at once what there is to do for them by themselves, as copying to a leg of a
    /// mirror; they are asked again every while.
    pub fn run_upkeep(&self) {
        self.send(0, ShardMail::Upkeep);
    }

    /// Has [`Base::used_bytes`](store::Base::used_bytes) of a volume say soon what is so now,
    /// unless that is looked at already: no caller waits for a file system here.
    pub fn look_at_space(&self, volume: &Arc<dyn Volume>) {
        if volume.base().begin_look() {
            let looked_at = volume.clone();
            self.blocking(About::question(volume), move || looked_at.look_at_space());
        }
    }

    /// Has a step made by which a peer at `address` proves what it is, in the turn of the
    /// address, if its place is still kept then.
    pub fn prove(
        self: &Arc<Self>,
        kind: ProofKind,
        address: IpAddr,
        step: impl FnOnce() + Send + 'static,
    ) -> ProofPlace {
        let (place, begins) = self.proofs[kind as usize].add(address, Box::new(step));
        if begins {
            self.make_proofs(kind);
        }
        place
    }

    /// Has the next step made, and those after it, whatever becomes of this one.
    fn make_proofs(self: &Arc<Self>, kind: ProofKind) {
        let shared = self.clone();
        self.blocking(kind.about(), move || {
            let step = shared.proofs[kind as usize].take();
            if shared.proofs[kind as usize].goes_on() {
                shared.make_proofs(kind);
            }
            if let Some(step) = step {
                step();
            }
        });
    }

    /// A handshake of TLS has begun on a connection of a peer at `address`. If that is one too many
    /// one gives way.
    pub(crate) fn begin_handshake(
        &self,
        address: IpAddr,
        connection: ConnectionRef,
    ) -> HandshakePlace {
        let max = self.limits.tls_handshakes_max;
        let (place, loser) = self.handshakes.begin(address, connection, max);
        if let Some(loser) = loser {
            self.send(loser.shard as usize, ShardMail::EndHandshake(loser));
        }
        place
    }

    /// Handshakes of TLS that are under way.
    pub fn handshakes(&self) -> u32 {
        self.handshakes.count()
    }

    /// What is counted of TLS at the listener of this number.
    pub fn tls_meter(&self, listener: u16) -> Arc<TlsMeter> {
        self.tls.of(listener)
    }

    /// Pieces of the blocking worker's work that wait.
    pub fn blocking_work(&self) -> usize {
        self.desk.waiting()
    }

    /// Does the blocking worker's work where there is no thread for it; how many pieces.
    pub fn run_blocking_work(&self) -> usize {
        let mut done = 0;
        while self.desk.run_next(|work| work()) {
            done += 1;
        }
        done
    }

    /// Has the blocking worker's work done by threads.
    pub fn start_blocking_worker(self: &Arc<Self>) -> io::Result<()> {
        let (needs, tells) = (Arc::downgrade(self), Arc::downgrade(self));
        let failed = move |thread: &str, why: &str| {
            if let Some(shared) = tells.upgrade() {
                shared.work_failed(thread, why);
            }
        };
        blocking_worker::start(&self.desk, move || needs.strong_count() > 0, failed)
    }

    /// Waits for the blocking worker's work that is under way, at most `timeout`: it may own what is
    /// served.
    pub fn wait_for_blocking_work(&self, timeout: Duration) {
        self.desk.wait_until_done(timeout);
    }

    /// No work is done beside the reactors any more. Where the blocking worker has no
    /// thread, the caller that ran the reactors calls this: work may own what it lies in.
    pub fn end_blocking_work(&self) {
        self.desk.close();
    }

    /// Ends it in order: no new connections, open ones closed, volumes synced.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.send_all(|| ShardMail::Stop);
    }

    /// A reactor has none of its connections left: whether it is the last one.
    pub fn has_left(&self, shard: usize) -> bool {
        let mut serving = locked(&self.serving);
        serving.remove(&shard) && serving.is_empty()
    }

    /// A reactor has failed: the others end in order, so that hosts go on by
    /// other paths at once. Where they have ended already, none is left to sync the
    /// `volumes`, of which there are so many.
    pub fn reactor_failed(&self, shard: usize, why: &str, volumes: usize) {
        tracing::error!(
            event = "reactor-lost",
            reactor = shard,
            why,
            "a reactor has failed: its connections are closed and the target stops; \
             report this, and start weft again"
        );
        // Before the others hear of it: the last of them syncs the volumes.
        let was_last = self.has_left(shard);
        if !faults::is(Fault::KeepServing) {
            self.stop();
        }
        if was_last {
            self.unsynced.store(volumes as u64, Ordering::Relaxed);
        }
    }

    /// Work beside the reactors has failed: they end in order.
    fn work_failed(&self, thread: &str, why: &str) {
        tracing::error!(
            event = "thread-lost",
            thread,
            why,
            "work beside the reactors has failed: the target stops; \
             report this, and start weft again"
        );
        locked(&self.failures).push(format!("{thread}: {why}"));
        self.stop();
    }

    /// Whether it is about to end.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// A connection has waited for memory for some time.
    pub(crate) fn note_shortage(&self, now: Nanos) {
        let before = self.short_at.swap(now.max(1), Ordering::Relaxed);
        if before == 0 || now.saturating_sub(before) > TOLD_AGAIN {
            tracing::warn!(
                event = "memory-short",
                "connections wait for memory: raise `memory_max` if that lasts"
            );
        }
    }

    /// Whether one has a moment ago.
    pub(crate) fn is_short(&self, now: Nanos) -> bool {
        let at = self.short_at.load(Ordering::Relaxed);
        at != 0 && now.saturating_sub(at) < SHORTAGE
    }

    /// The clock of the reactors says `now`: the first to say so starts the server.
    pub(crate) fn start(&self, now: Nanos) {
        self.started.get_or_init(|| now);
    }

    /// When the first reactor was there.
    pub fn started(&self) -> Nanos {
        *self.started.get().expect("a reactor runs")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.end_blocking_work();
    }
}
