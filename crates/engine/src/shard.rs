//! One reactor's share of a server: its listeners, connections and mail.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use faults::Fault;
use link::Stream;
use machine::{Nanos, work};
use reactor::{BoundListener, Completion, ConnectedSocket, Driver, Handler, SocketId};
use store::counters;
use tls::Handshake;
use tls::psk_handshake::PskHandshake;

use crate::connection::Via;
use crate::fence::{Passage, Scope};
use crate::job::Older;
use crate::life::ConnectionLife;
use crate::placement::Placer;
use crate::post::{Mail, Newcomer, ShardMail};
use crate::protocol::{AnyConnection, FirstBytes, Has, Protocol, Protocols};
use crate::refusals::{Refusal, RefusalKind};
use crate::shared::Shared;
use crate::shortage::Shortage;
use crate::ticks::{TickState, Ticks, Wakes};
use crate::token::{ConnectionId, ConnectionRef, JobId, Subject};
use crate::unasked::UnaskedIos;

use upkeep::Upkeeps;

mod upkeep;

/// How often a connection is told the time on which something has happened, or is under
/// way, and how finely deadlines of all others are kept: keep-alive and handshake time-outs
/// are counted in seconds. An idle connection costs nothing before its deadline.
const TICK: Nanos = 500_000_000;

/// How long, after a stop, file work may go on whose connection is gone.
const STOP_ORPHANS_MAX: Nanos = 2_000_000_000;

/// Places of jobs that are looked at for fences in a turn: a fraction of a millisecond.
const FENCE_LOOKS_MAX: usize = 16 << 10;

/// Connections beyond `connections_max` while those that they displace end.
pub const DISPLACING_MAX: u32 = 64;

/// Where new connections come from; the first reactor owns them.
pub struct Acceptor {
    /// Their numbers, and themselves.
    pub listeners: Vec<(u16, BoundListener)>,
    /// Chooses the reactor of a new connection.
    pub placer: Placer,
}

/// A listener of the first reactor.
struct Listening {
    number: u16,
    socket: SocketId,
    is_closing: bool,
}

/// A fence that this reactor has not passed yet.
struct Pending {
    passage: Passage,
    /// Jobs that it may have to wait for.
    older: Older,
}

/// What a connection, or work without one, has spent of a turn (see [`machine::work`]).
#[derive(Clone, Copy, Default)]
struct TurnShare {
    turn: u64,
    units: u64,
}

impl TurnShare {
    /// What was spent in this turn.
    #[inline]
    fn in_turn(&mut self, turn: u64) -> &mut u64 {
        if self.turn != turn {
            *self = TurnShare { turn, units: 0 };
        }
        &mut self.units
    }
}

/// One entry of the connection table.
struct ConnectionEntry<C> {
    generation: u16,
    connection: Option<C>,
    share: TurnShare,
    tick: TickState,
    /// When it is looked at for what waits for a limit.
    wakes_at: Option<Nanos>,
    life: ConnectionLife,
}

/// One reactor's share of a server.
pub struct Shard<S: Protocols> {
    /// What composes it.
    pub server: S,
    number: usize,
    shared: Arc<Shared>,
    placer: Option<Placer>,
    listening: Vec<Listening>,
    table: Vec<ConnectionEntry<S::Connection>>,
    free: Vec<u32>,
    dirty: Vec<u32>,
    /// Which turn it is.
    turn: u64,
    /// What was spent by work without a connection.
    background: TurnShare,
    /// File work that has completed and waits until its owner has a share again, in
    /// the order that it came.
    deferred: VecDeque<(JobId, io::Result<u32>)>,
    /// A connection has more work than its share of this turn was enough for.
    has_more: bool,
    /// What goes to other reactors where memory is short.
    shortage: Shortage,
    /// The most units that a connection, or what goes on without one, has spent in a turn.
    turn_units_max: u64,
    open: usize,
    /// Oldest first; some have identified themselves since, or are gone.
    strangers: VecDeque<ConnectionId>,
    fences: Vec<Pending>,
    /// Where to send the report of what this reactor has done.
    asked: Vec<Sender<S::Report>>,
    unasked: UnaskedIos,
    upkeeps: Upkeeps,
    tick_at: Option<Nanos>,
    ticks: Ticks,
    wakes: Wakes,
    /// The last tick came too late to hold it against any peer.
    was_late: bool,
    stopping: Option<Stopping>,
    gave_up_on_orphans: bool,
}

/// How far the end has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stopping {
    /// Connections are being closed.
    Closing,
    /// Its sockets are gone. Orphans, and what goes on without a socket, are waited for
    /// until this time.
    Closed(Nanos),
}

impl<S: Protocols> Shard<S> {
    /// A shard with nothing to do yet; the one with an acceptor listens.
    pub fn new<D: Driver>(
        number: usize,
        server: impl Into<S>,
        acceptor: Option<Acceptor>,
        driver: &mut D,
    ) -> std::io::Result<Self> {
        let server: S = server.into();
        let shared = server.shared().clone();
        shared.start(driver.now());
        server.begin(driver.now());
        let mut shard = Shard {
            server,
            number,
            shared,
            placer: None,
            listening: Vec::new(),
            table: Vec::new(),
            free: Vec::new(),
            dirty: Vec::new(),
            turn: 0,
            background: TurnShare::default(),
            deferred: VecDeque::new(),
            has_more: false,
            shortage: Shortage::default(),
            turn_units_max: 0,
            open: 0,
            strangers: VecDeque::new(),
            fences: Vec::new(),
            asked: Vec::new(),
            unasked: UnaskedIos::default(),
            upkeeps: Upkeeps::default(),
            tick_at: None,
            ticks: Ticks::default(),
            wakes: Wakes::default(),
            was_late: false,
            stopping: None,
            gave_up_on_orphans: false,
        };
        shard.tick_at = shard.has_upkeep().then_some(driver.now() + TICK);
        if let Some(acceptor) = acceptor {
            shard.placer = Some(acceptor.placer);
            for (number, listener) in acceptor.listeners {
                shard.listen(driver, number, listener)?;
            }
        }
        Ok(shard)
    }

    /// What this reactor has done.
    pub fn report<D: Driver>(&self, driver: &D) -> S::Report {
        S::report(self, driver)
    }

    /// Says what it has done, at the end of this turn: what an I/O costs is done where
    /// it was counted.
    pub fn report_to(&mut self, to: Sender<S::Report>) {
        self.asked.push(to);
    }

    /// Its number among the reactors.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Connections that are open, or about to end.
    pub fn open_connections(&self) -> usize {
        self.open
    }

    /// The most that a connection, or what goes on without one, has spent in one turn, in
    /// units of [`machine::work`].
    pub fn turn_units_max(&self) -> u64 {
        self.turn_units_max
    }

    /// How often a connection was told the time: an idle one is not.
    pub fn ticks(&self) -> u64 {
        self.ticks.told
    }

    fn listen<D: Driver>(
        &mut self,
        driver: &mut D,
        number: u16,
        listener: BoundListener,
    ) -> io::Result<()> {
        let token = Subject::Listener(number.into()).token();
        let socket = driver.add_listener(listener, token)?;
        self.listening.push(Listening {
            number,
            socket,
            is_closing: false,
        });
        Ok(())
    }

    /// Closes the listener of a number and what came in by it.
    fn unlisten<D: Driver>(&mut self, driver: &mut D, number: u16) {
        self.close_listeners(driver, |listening| listening.number == number);
        self.for_each(driver, |connection, driver| {
            if connection.via().listener == number && !faults::is(Fault::KeepConnections) {
                connection.dismiss(driver);
            }
        });
    }

    fn close_listeners<D: Driver>(&mut self, driver: &mut D, which: impl Fn(&Listening) -> bool) {
        for listening in &mut self.listening {
            if which(listening) && !std::mem::replace(&mut listening.is_closing, true) {
                let token = Subject::Listener(listening.number.into()).token();
                driver.close(listening.socket, token);
            }
        }
    }

    /// Runs `f` on every connection.
    fn for_each<D: Driver>(&mut self, driver: &mut D, f: impl Fn(&mut S::Connection, &mut D)) {
        for index in 0..self.table.len() {
            let id = ConnectionId {
                index: index as u32,
                generation: self.table[index].generation,
            };
            self.with(driver, id, &f);
        }
    }

    fn accepted<D: Driver>(
        &mut self,
        driver: &mut D,
        connected: ConnectedSocket,
        peer: SocketAddr,
        listener: u16,
    ) {
        if self.shared.is_stopping() {
            return;
        }
        let max = u64::from(self.shared.limits.connections_max);
        let open: u64 = (self.shared.load.iter())
            .map(|n| u64::from(n.load(Ordering::Relaxed)))
            .sum();
        if open >= max + u64::from(DISPLACING_MAX) {
            return self.note_refusal(peer, "connections_max", max);
        }
        let of_address_max = self.shared.limits.connections_of_address_max;
        let Some(place) = self.shared.hosts.place(peer.ip(), of_address_max) else {
            return self.note_refusal(peer, "connections_of_address_max", of_address_max.into());
        };
        (self.shared.connection_policies).apply(&connected, peer, listener);
        let placer = self.placer.as_mut().expect("only the acceptor accepts");
        let shard = placer.place(&connected, &place);
        // Counted here, so that a burst of connections is spread as well.
        self.shared.load[shard].fetch_add(1, Ordering::Relaxed);
        let newcomer = Newcomer {
            connected,
            peer,
            place,
            listener,
            displaces: open >= max,
        };
        if shard == self.number {
            self.insert_accepted(driver, newcomer);
        } else {
            self.shared.send(shard, ShardMail::Adopt(newcomer));
        }
    }

    /// A connection is one too many for a limit.
    fn note_refusal(&self, peer: SocketAddr, limit: &str, max: u64) {
        self.shared.refusals.note(Refusal {
            peer: Some(peer),
            ..Refusal::new(
                RefusalKind::CONNECTION,
                &format_args!("{limit} = {max} is reached"),
            )
        });
    }

    /// Whether it is open and has not identified itself.
    fn is_stranger(&self, id: ConnectionId) -> bool {
        let entry = &self.table[id.index as usize];
        let connection = entry.connection.as_ref();
        entry.generation == id.generation && connection.is_some_and(|c| c.is_stranger())
    }

    /// Closes the oldest connection that has not identified itself, if there is one: such
    /// connections keep no host out.
    fn close_oldest_unidentified<D: Driver>(&mut self, driver: &mut D) -> bool {
        while let Some(id) = self.strangers.pop_front() {
            if self.is_stranger(id) {
                self.with(driver, id, |c, d| c.close(d));
                return true;
            }
        }
        false
    }

    fn insert_accepted<D: Driver>(&mut self, driver: &mut D, newcomer: Newcomer) {
        let Newcomer {
            connected,
            peer,
            place,
            listener,
            displaces,
        } = newcomer;
        if displaces && !self.close_oldest_unidentified(driver) {
            self.shared.load[self.number].fetch_sub(1, Ordering::Relaxed);
            let max = self.shared.limits.connections_max.into();
            return self.note_refusal(peer, "connections_max", max);
        }
        // It may have been accepted just before the listener was closed.
        let is_late = self.is_late(listener);
        let opened =
            |server: &S, id: ConnectionId, via_of: &dyn Fn(SocketAddr) -> Via, driver: &mut D| {
                let via = via_of(connected.local_address()?);
                let stream = Stream::new(driver.add_socket(connected)?, id.tokens());
                let stream = match server.first_bytes(listener) {
                    FirstBytes::Tls(terms) => {
                        let handshake = PskHandshake::server(terms.known);
                        stream.with_handshake(handshake, terms.allows_plain)
                    }
                    FirstBytes::Plain => stream.with_handshake(Handshake::NotSpoken, true),
                    FirstBytes::Server => stream,
                };
                let now = driver.now();
                Ok(server.open(id, stream, (via, place), driver.pool(), now))
            };
        let id = self.insert_connection(driver, (peer, listener), opened);
        if let Some(id) = id {
            self.strangers.push_back(id);
            self.with(driver, id, |c, d| {
                if is_late {
                    c.close(d);
                }
            });
        }
    }

    /// Puts a connection into the table; `None` if it could not be opened.
    pub fn insert_connection<D: Driver>(
        &mut self,
        driver: &mut D,
        (peer, listener): (SocketAddr, u16),
        open: impl FnOnce(
            &S,
            ConnectionId,
            &dyn Fn(SocketAddr) -> Via,
            &mut D,
        ) -> io::Result<S::Connection>,
    ) -> Option<ConnectionId> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.table.push(ConnectionEntry {
                generation: 0,
                connection: None,
                share: TurnShare::default(),
                tick: TickState::default(),
                wakes_at: None,
                life: ConnectionLife::default(),
            });
            (self.table.len() - 1) as u32
        });
        let id = ConnectionId {
            index,
            generation: self.table[index as usize].generation,
        };
        let connection = ConnectionRef {
            shard: self.number as u32,
            id,
        };
        let via_of = move |mut local: SocketAddr| {
            local.set_ip(local.ip().to_canonical());
            Via {
                connection: connection.pack(),
                local,
                peer,
                listener,
            }
        };
        match open(&self.server, id, &via_of, driver) {
            Ok(connection) => {
                let entry = &mut self.table[index as usize];
                entry.connection = Some(connection);
                entry.life = ConnectionLife::since(driver.now());
                self.open += 1;
                self.tick_at.get_or_insert(driver.now() + TICK);
                Some(id)
            }
            Err(error) => {
                self.shared.refusals.note(Refusal {
                    peer: Some(peer),
                    ..Refusal::new(RefusalKind::CONNECTION, &error)
                });
                self.free.push(index);
                self.shared.load[self.number].fetch_sub(1, Ordering::Relaxed);
                None
            }
        }
    }

    /// Shows `f` the connections at so many places of the table from `first` on; where the
    /// next ones begin, if there are any.
    pub fn look_at(
        &self,
        first: usize,
        places: usize,
        mut f: impl FnMut(&S::Connection, ConnectionLife),
    ) -> Option<usize> {
        let next = first.saturating_add(places);
        for entry in self.table.iter().take(next).skip(first) {
            if let Some(connection) = &entry.connection {
                f(connection, entry.life);
            }
        }
        (next < self.table.len()).then_some(next)
    }

    /// Counts one connection more, which comes from another reactor: [`Shard::insert_connection`]
    /// follows.
    pub fn expect(&mut self) {
        self.shared.load[self.number].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether what comes in by a listener comes too late to be served.
    pub fn is_late(&self, listener: u16) -> bool {
        self.stopping.is_some() || !self.server.is_listening(listener)
    }

    /// Runs `f` on every connection of a protocol.
    pub fn for_each_of<P: Protocol, D: Driver>(
        &mut self,
        driver: &mut D,
        f: impl Fn(&mut P, &mut D),
    ) where
        S: Has<P>,
    {
        self.for_each(driver, |connection, driver| {
            if let Some(connection) = S::of(connection) {
                f(connection, driver);
            }
        });
    }

    /// Runs `f` on a connection that is still the one meant, and of this protocol.
    #[inline]
    pub fn with_of<P: Protocol, D: Driver>(
        &mut self,
        driver: &mut D,
        id: ConnectionId,
        f: impl FnOnce(&mut P, &mut D),
    ) where
        S: Has<P>,
    {
        self.with(driver, id, |connection, driver| {
            if let Some(connection) = S::of(connection) {
                f(connection, driver);
            }
        });
    }

    /// Runs `f` on a connection that is still the one meant.
    #[inline]
    pub fn with<D: Driver>(
        &mut self,
        driver: &mut D,
        id: ConnectionId,
        f: impl FnOnce(&mut S::Connection, &mut D),
    ) {
        let Some(entry) = self.table.get_mut(id.index as usize) else {
            return;
        };
        if entry.generation != id.generation || entry.connection.is_none() {
            return;
        }
        self.ticks.touch(id.index, &mut entry.tick);
        self.run(driver, id.index, f);
    }

    /// Runs `f` on the connection at a place of the table.
    #[inline]
    fn run<D: Driver>(
        &mut self,
        driver: &mut D,
        index: u32,
        f: impl FnOnce(&mut S::Connection, &mut D),
    ) {
        let max = self.units_max();
        let entry = &mut self.table[index as usize];
        let Some(connection) = entry.connection.as_mut() else {
            return;
        };
        let units = entry.share.in_turn(self.turn);
        driver.set_host(connection.host());
        let begun = counters::of_this_thread();
        work::take_turn(units, max, || f(connection, driver));
        entry.life.count_since(begun);
        driver.set_host(0);
        self.turn_units_max = self.turn_units_max.max(*units);
        if !std::mem::replace(connection.dirty(), true) {
            self.dirty.push(index);
        }
    }

    /// Tells connections the time: those on which something has happened since the last
    /// tick or is under way, and those whose deadline has come. Others have no memory that
    /// they could give back.
    fn tick_connections<D: Driver>(&mut self, now: Nanos, driver: &mut D) {
        while let Some(index) = self.ticks.take_timer(now) {
            let entry = &mut self.table[index as usize];
            self.ticks.touch(index, &mut entry.tick);
        }
        for index in self.ticks.take() {
            self.run(driver, index, |c, d| c.on_tick(now, d));
            let entry = &mut self.table[index as usize];
            let next = entry.connection.as_ref().and_then(|c| c.next_tick());
            self.ticks.set_next_tick(index, &mut entry.tick, next);
        }
    }

    /// Has connections looked at for what waits for a limit on them, in this turn.
    fn wake<D: Driver>(&mut self, driver: &mut D, connections: Vec<u32>) {
        for index in connections {
            self.run(driver, index, |_, _| ());
        }
    }

    /// What a connection may spend in a turn.
    #[inline]
    fn units_max(&self) -> u64 {
        match faults::is(Fault::EndlessTurn) {
            true => u64::MAX,
            false => self.shared.limits.turn_units_max,
        }
    }

    /// Whether whose job it is has used its share of the turn up.
    #[inline]
    fn is_used_up(&mut self, id: JobId) -> bool {
        let max = self.units_max();
        let owner = self.server.owner(id);
        let share = match owner {
            Some(owner) => &mut self.table[owner.index as usize].share,
            None => &mut self.background,
        };
        *share.in_turn(self.turn) >= max
    }

    /// File work has completed. What came before is seen to first.
    #[inline]
    fn on_file<D: Driver>(&mut self, driver: &mut D, id: JobId, result: io::Result<u32>) {
        match self.deferred.is_empty() && !self.is_used_up(id) {
            true => S::on_file(self, id, result, driver),
            false => self.deferred.push_back((id, result)),
        }
    }

    /// Ends file work that has waited, as far as shares go.
    #[cold]
    fn go_on_with_deferred<D: Driver>(&mut self, driver: &mut D) {
        for _ in 0..self.deferred.len() {
            let Some((id, result)) = self.deferred.pop_front() else {
                return;
            };
            match self.is_used_up(id) {
                true => self.deferred.push_back((id, result)),
                false => S::on_file(self, id, result, driver),
            }
        }
    }

    /// File work of a job of this protocol has completed.
    #[inline]
    pub fn end_file_work<P: Protocol, D: Driver>(
        &mut self,
        driver: &mut D,
        id: JobId,
        result: io::Result<u32>,
    ) where
        S: Has<P>,
    {
        let Some(job) = P::jobs(self.server.local()).borrow_mut().take(id) else {
            return;
        };
        match job.owner {
            Some(owner) => self.with_of(driver, owner, |c, d| {
                work::spend(work::OPERATION_UNITS);
                c.on_file(id, job, result, d);
            }),
            None => P::on_unowned_file(self, id, job, result, driver),
        }
    }

    /// Does what no connection asked for, as one of those that share the turn.
    pub fn in_background(&mut self, f: impl FnOnce(&mut Self)) {
        let mut units = *self.background.in_turn(self.turn);
        let max = self.units_max();
        work::take_turn(&mut units, max, || f(self));
        self.background.units = units;
        self.turn_units_max = self.turn_units_max.max(units);
    }

    /// Mail for connections of a protocol.
    pub fn on_protocol_mail<P: Protocol, D: Driver>(
        &mut self,
        driver: &mut D,
        mail: Mail<P::Answer, P::Mail>,
    ) where
        S: Has<P>,
    {
        match mail {
            Mail::Answer(id, answer) => self.on_answer::<P, D>(driver, id, answer),
            Mail::Own(mail) => P::on_mail(self, mail, driver),
        }
    }

    /// The answer to a command that ended elsewhere.
    fn on_answer<P: Protocol, D: Driver>(&mut self, driver: &mut D, id: JobId, answer: P::Answer)
    where
        S: Has<P>,
    {
        let mut jobs = P::jobs(self.server.local()).borrow_mut();
        let job = jobs
            .take(id)
            .expect("a job that ends elsewhere has one answer");
        let Some(owner) = job.owner else {
            return jobs.remove_orphan(id);
        };
        jobs.release(id);
        drop(jobs);
        self.with_of(driver, owner, |c: &mut P, d| {
            c.core_mut().jobs_open -= 1;
            c.answered(job.tag, answer, d);
        });
    }

    fn remove<D: Driver>(&mut self, driver: &mut D, index: u32) {
        let entry = &mut self.table[index as usize];
        if let Some(mut connection) = entry.connection.take() {
            connection.removed(driver);
        }
        entry.generation = entry.generation.wrapping_add(1);
        self.ticks.forget(index, &mut entry.tick);
        self.wakes.set(index, &mut entry.wakes_at, None);
        self.free.push(index);
        self.open -= 1;
        self.shared.load[self.number].fetch_sub(1, Ordering::Relaxed);
    }

    fn stop<D: Driver>(&mut self, driver: &mut D) {
        if self.stopping.is_none() {
            self.stopping = Some(Stopping::Closing);
            self.close_listeners(driver, |_| true);
            self.for_each(driver, |c, d| c.dismiss(d));
            self.run_upkeep(driver);
        }
    }

    /// Whether a connection has its socket. Some go on without one, and what
    /// they wait for may never come: a disk that hangs, or a range that belongs to a
    /// reactor that has failed.
    fn has_sockets(&self) -> bool {
        let mut connections = self.table.iter().filter_map(|e| e.connection.as_ref());
        self.open > 0 && connections.any(|c| c.has_socket())
    }

    /// The last socket is gone: where that is so on every reactor, the volumes are
    /// flushed, by the last.
    fn closed<D: Driver>(&mut self, driver: &mut D) {
        self.stopping = Some(Stopping::Closed(driver.now() + STOP_ORPHANS_MAX));
        self.tick_at.get_or_insert(driver.now() + TICK);
        if !self.shared.has_left(self.number) {
            return;
        }
        self.shared.refusals.end();
        let volumes = self.server.volumes();
        let unsynced = &self.shared.unsynced;
        unsynced.store(volumes.len() as u64, Ordering::Relaxed);
        for volume in volumes {
            let name = volume.info().name.clone();
            let shared = self.shared.clone();
            let then = move |result: Result<(), store::Error>| match result {
                Ok(()) => {
                    shared.unsynced.fetch_sub(1, Ordering::Relaxed);
                }
                Err(error) => {
                    tracing::error!(volume = %name, %error, "volume not synced at the end");
                }
            };
            let flush = (volume, store::Io::Flush);
            self.unasked.start(driver, flush, Box::new(then));
        }
    }

    /// Passes the fences that nothing of this reactor is behind any more.
    #[cold]
    fn pass_fences(&mut self) {
        let mut left = FENCE_LOOKS_MAX;
        for mut pending in std::mem::take(&mut self.fences) {
            // Passing the last one may begin others, by mail.
            match self.holds(&mut pending, &mut left) {
                true => self.fences.push(pending),
                false => pending.passage.pass(),
            }
        }
        self.has_more |= left == 0;
    }

    /// The loop of its reactor has failed. The caller keeps this for as long as the process
    /// lives: the kernel may still be at its memory, and what it has under way holds its
    /// ranges.
    pub fn failed(&mut self, why: &str) {
        let volumes = self.server.volumes().len();
        self.shared.reactor_failed(self.number, why, volumes);
        self.fences.clear();
    }

    fn holds(&self, pending: &mut Pending, left: &mut usize) -> bool {
        let Pending { passage, older } = pending;
        match passage.scope() {
            // It came in order.
            Scope::Mail => false,
            scope @ (Scope::Volumes(_) | Scope::Files(_)) => self.server.holds(scope, older, left),
            Scope::Connections(list) => list.iter().any(|connection| {
                let entry = self.table.get(connection.id.index as usize);
                connection.shard as usize == self.number
                    && entry.is_some_and(|entry| {
                        entry.generation == connection.id.generation && entry.connection.is_some()
                    })
            }),
            Scope::Listener(number) => {
                let mut connections = self.table.iter().filter_map(|e| e.connection.as_ref());
                connections.any(|connection| connection.via().listener == *number)
                    || self.listening.iter().any(|l| l.number == *number)
            }
        }
    }

    /// Mail that is not of a protocol.
    pub fn on_shard_mail<D: Driver>(&mut self, driver: &mut D, mail: ShardMail) {
        match mail {
            ShardMail::Adopt(newcomer) => self.insert_accepted(driver, newcomer),
            ShardMail::Close(ConnectionRef { id, .. }) => self.with(driver, id, |c, d| c.close(d)),
            ShardMail::Handshake(ConnectionRef { id, .. }, done) => {
                let mut done = Some(done);
                self.with(driver, id, |c, d| {
                    c.on_handshake(*done.take().expect("one connection has it"), d);
                });
            }
            ShardMail::EndHandshake(of) => self.with(driver, of.id, |c, d| c.give_way(d)),
            ShardMail::Dismiss(of) => self.with(driver, of.id, |c, d| c.dismiss(d)),
            ShardMail::Fence(passage) => {
                let older = Older::than(self.server.mark());
                self.fences.push(Pending { passage, older });
            }
            ShardMail::Listen(number, listener, then) => {
                then(self.listen(driver, number, listener));
            }
            ShardMail::Unlisten(number) => self.unlisten(driver, number),
            ShardMail::Run(volume, io, then) => self.unasked.start(driver, (volume, io), then),
            ShardMail::Upkeep => {
                self.run_upkeep(driver);
                self.tick_at.get_or_insert(driver.now() + TICK);
            }
            ShardMail::SetRateLimits(limits) => {
                self.shared.rate_limits.set(limits, driver.now());
                self.shared.send_all(|| ShardMail::RateLimitsChanged);
            }
            ShardMail::RateLimitsChanged => self.wake(driver, self.wakes.all()),
            ShardMail::MemoryWanted(by) => self.shortage.wanted(by, driver.pool()),
            ShardMail::MemoryFreed => self.shortage.freed(),
            ShardMail::Stop => self.stop(driver),
        }
    }

    /// Runs the connections that can go on because of something that happened on
    /// others.
    #[inline]
    fn resume_due<D: Driver>(&mut self, driver: &mut D) {
        while let Some(id) = self.server.take_due() {
            self.with(driver, id, |c, d| c.resume(d));
        }
    }

    /// One turn of the connections in `dirty`, of which those that wait for
    /// memory stay there; whether one found some and waits for more.
    #[inline]
    fn turn<D: Driver>(&mut self, driver: &mut D, dirty: &mut Vec<u32>) -> bool {
        let max = self.units_max();
        let mut wants_more = false;
        dirty.retain(|&index| {
            let entry = &mut self.table[index as usize];
            let Some(connection) = entry.connection.as_mut() else {
                return false;
            };
            let units = entry.share.in_turn(self.turn);
            driver.set_host(connection.host());
            let begun = counters::of_this_thread();
            wants_more |= work::take_turn(units, max, || connection.on_turn(driver));
            entry.life.count_since(begun);
            driver.set_host(0);
            self.turn_units_max = self.turn_units_max.max(*units);
            self.has_more |= connection.has_more();
            let wakes_at = connection.wakes_at();
            self.wakes.set(index, &mut entry.wakes_at, wakes_at);
            self.shortage.is_here |= connection.is_waiting();
            // One that waits for memory is looked at again when something
            // happens, which is when memory comes free.
            let again = connection.is_waiting() || connection.has_more();
            *connection.dirty() = again;
            if connection.is_gone() {
                self.remove(driver, index);
            }
            again
        });
        wants_more
    }

    /// Time has passed.
    fn on_tick<D: Driver>(&mut self, driver: &mut D, now: Nanos) {
        self.shared.refusals.tick(now);
        let mut strangers = std::mem::take(&mut self.strangers);
        strangers.retain(|id| self.is_stranger(*id));
        self.strangers = strangers;
        // Where the reactor itself stood still, as in a machine that was paused, what hosts
        // have sent meanwhile is read before their time is up.
        let is_late = self.tick_at.is_some_and(|at| now > at + TICK);
        self.was_late = is_late && !self.was_late && !faults::is(Fault::HastyTick);
        self.in_background(|shard| S::on_tick(shard, now, driver));
        let has_upkeep = self.run_upkeep(driver);
        if !self.was_late {
            self.tick_connections(now, driver);
        }
        let is_needed = self.open > 0
            || self.stopping.is_some()
            || self.shared.refusals.has_untold()
            || has_upkeep;
        self.tick_at = is_needed.then_some(now + TICK);
        if let Some(Stopping::Closed(until)) = self.stopping {
            self.gave_up_on_orphans = now >= until;
        }
    }
}

impl<S: Protocols, D: Driver> Handler<D, S::Mail> for Shard<S> {
    #[inline]
    fn on_completion(&mut self, driver: &mut D, completion: Completion) {
        match completion {
            Completion::Received { token, result } => {
                if let Subject::Recv(id) = Subject::of(token) {
                    self.with(driver, id, |c, d| c.on_received(result, d));
                }
            }
            Completion::Sent { token, result } => {
                if let Subject::Send(id) = Subject::of(token) {
                    self.with(driver, id, |c, d| c.on_sent(result, d));
                }
            }
            Completion::File { token, result } => match Subject::of(token) {
                Subject::File(id) => self.on_file(driver, id, result),
                Subject::Unasked(n, leg) => self.unasked.resume(driver, (n, leg), result),
                Subject::Upkeep(n, leg) => self.go_on_with_upkeep(driver, (n, leg), result),
                other => unreachable!("file work of {other:?}"),
            },
            Completion::Accepted { token, result } => match (Subject::of(token), result) {
                (Subject::Listener(n), Ok((connected, peer))) => {
                    self.accepted(driver, connected, peer, n as u16);
                }
                (_, Ok(_)) => unreachable!("only listeners accept"),
                (_, Err(error)) => {
                    let refusal = Refusal::new(RefusalKind::CONNECTION, &error);
                    self.shared.refusals.note(refusal);
                }
            },
            Completion::Closed { token } => match Subject::of(token) {
                Subject::Close(id) => self.with(driver, id, |c, _| c.on_closed()),
                Subject::Listener(n) => self.listening.retain(|l| u32::from(l.number) != n),
                other => unreachable!("{other:?} has no socket"),
            },
            Completion::Connected { .. } => unreachable!("a server never connects"),
        }
    }

    fn on_mail(&mut self, driver: &mut D, mail: S::Mail) {
        S::on_mail(self, mail, driver);
    }

    /// Sends and receives for every connection that this turn touched, so
    /// that all its answers leave in one batch.
    #[inline]
    fn on_turn(&mut self, driver: &mut D) {
        self.has_more = false;
        self.shortage.is_here = false;
        if !self.deferred.is_empty() {
            self.go_on_with_deferred(driver);
        }
        loop {
            self.resume_due(driver);
            let mut dirty = std::mem::take(&mut self.dirty);
            // Where memory is short they take turns, until there is none.
            while self.turn(driver, &mut dirty) {}
            dirty.append(&mut self.dirty);
            self.dirty = dirty;
            if !self.server.has_due() {
                break;
            }
        }
        self.in_background(|shard| shard.has_more |= shard.server.discard());
        if self.shortage.has_mail() {
            self.shortage
                .turn_ends(&self.shared, self.number, driver.pool());
        }
        if !self.fences.is_empty() {
            self.pass_fences();
        }
        // Only now: what an I/O costs is done where it was counted.
        while let Some(to) = self.asked.pop() {
            // The thread that asked may have given up waiting.
            let _ = to.send(self.report(driver));
        }
        if self.stopping == Some(Stopping::Closing) && !self.has_sockets() {
            self.closed(driver);
        }
        self.turn += 1;
    }

    fn has_more(&self) -> bool {
        self.has_more || !self.deferred.is_empty()
    }

    fn deadline(&self) -> Option<Nanos> {
        let both = [self.tick_at, self.wakes.first()];
        both.into_iter().flatten().min()
    }

    fn on_deadline(&mut self, driver: &mut D, now: Nanos) {
        self.wake(driver, self.wakes.due(now));
        if self.tick_at.is_some_and(|at| at <= now) {
            self.on_tick(driver, now);
        }
    }

    fn is_done(&self) -> bool {
        matches!(self.stopping, Some(Stopping::Closed(_)))
            && self.unasked.is_empty()
            && self.listening.is_empty()
            && (self.gave_up_on_orphans
                || self.server.orphans() == 0 && self.open == 0 && self.upkeeps.is_empty())
    }
}
