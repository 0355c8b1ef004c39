//! One reactor's share of the target: its listeners, connections and mail.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use machine::{Nanos, work};
use mem::broken::{self, Fault};
use reactor::{Completion, Driver, Handler, SocketId};
use store::Volume;

use crate::any::{AnyConnection, Local};
use crate::connection::Via;
use crate::fence::{Passage, Scope};
use crate::iscsi;
use crate::iscsi::login::Handover;
use crate::job::{JobId, Work};
use crate::later::{Answer, Later};
use crate::nvme;
use crate::placement::Placer;
use crate::refusals::{Kind, Refusal};
use crate::report::Report;
use crate::shared::{ConnectionRef, Mail, Newcomer, Shared, Then};
use crate::token::{ConnectionId, Subject};
use crate::waiting::Shortage;

/// How often deadlines of connections are looked at. Keep-alive and handshake
/// time-outs are counted in seconds, so this is fine enough, and an idle
/// target still sleeps.
const TICK: Nanos = 500_000_000;

/// How long, after a stop, file work may go on whose connection is gone.
const STOP_ORPHANS_MAX: Nanos = 2_000_000_000;

/// Connections beyond `connections_max` while those that they displace end.
pub const DISPLACING_MAX: u32 = 64;

/// Where new connections come from; the first reactor owns them.
pub struct Acceptor {
    /// Their numbers, and themselves.
    pub listeners: Vec<(u16, TcpListener)>,
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
    /// Jobs that began before it.
    mark: u64,
}

/// A volume that is being flushed.
struct Sync {
    volume: Arc<dyn Volume>,
    /// Taken while it is being looked at.
    task: Option<store::Task>,
    then: Then<Result<(), store::Error>>,
}

/// What somebody has spent of a turn (see [`machine::work`]).
#[derive(Clone, Copy, Default)]
struct Share {
    turn: u64,
    units: u64,
}

impl Share {
    /// What was spent in this turn.
    #[inline]
    fn in_turn(&mut self, turn: u64) -> &mut u64 {
        if self.turn != turn {
            *self = Share { turn, units: 0 };
        }
        &mut self.units
    }
}

/// One entry of the connection table.
#[derive(Default)]
struct Entry {
    generation: u16,
    connection: Option<AnyConnection>,
    share: Share,
}

/// One reactor's share of the target.
pub struct Shard {
    number: usize,
    shared: Arc<Shared>,
    placer: Option<Placer>,
    listening: Vec<Listening>,
    table: Vec<Entry>,
    /// Its jobs among it.
    local: Local,
    free: Vec<u32>,
    dirty: Vec<u32>,
    /// Which turn it is.
    turn: u64,
    /// What was spent by work without a connection.
    background: Share,
    /// File work that has completed and waits until who owns it has a share again, in
    /// the order that it came.
    deferred: VecDeque<(JobId, io::Result<u32>)>,
    /// A connection has more work than its share of this turn was enough for.
    has_more: bool,
    /// What goes to other reactors where memory is short.
    shortage: Shortage,
    /// The most units that a connection has spent in a turn.
    turn_units_max: u64,
    open: usize,
    /// Oldest first; some have said since who they are, or are gone.
    strangers: VecDeque<ConnectionId>,
    fences: Vec<Pending>,
    /// Who wants to know what this reactor has done.
    asked: Vec<Sender<Report>>,
    syncs: Vec<Option<Sync>>,
    tick_at: Option<Nanos>,
    /// The last tick came too late to judge anybody by.
    was_late: bool,
    stopping: Option<Stopping>,
    gave_up_on_orphans: bool,
}

/// How far the end has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stopping {
    /// Connections are being closed.
    Closing,
    /// Its sockets are gone. Orphans, and calls of NFS, are waited for until this time.
    Closed(Nanos),
}

impl Shard {
    /// A shard with nothing to do yet; the one with an acceptor listens.
    pub fn new<D: Driver>(
        number: usize,
        shared: Arc<Shared>,
        acceptor: Option<Acceptor>,
        driver: &mut D,
    ) -> std::io::Result<Self> {
        shared.start(driver.now());
        let mut shard = Shard {
            number,
            shared,
            placer: None,
            listening: Vec::new(),
            table: Vec::new(),
            local: Local::default(),
            free: Vec::new(),
            dirty: Vec::new(),
            turn: 0,
            background: Share::default(),
            deferred: VecDeque::new(),
            has_more: false,
            shortage: Shortage::default(),
            turn_units_max: 0,
            open: 0,
            strangers: VecDeque::new(),
            fences: Vec::new(),
            asked: Vec::new(),
            syncs: Vec::new(),
            tick_at: None,
            was_late: false,
            stopping: None,
            gave_up_on_orphans: false,
        };
        if let Some(acceptor) = acceptor {
            shard.placer = Some(acceptor.placer);
            for (number, listener) in acceptor.listeners {
                shard.listen(driver, number, listener)?;
            }
        }
        Ok(shard)
    }

    /// What this reactor has done.
    pub fn report<D: Driver>(&self, driver: &D) -> Report {
        Report {
            orphans: self.local.jobs.borrow().orphans() as u64,
            nfs_calls: self.local.nfs.calls.get(),
            turn_units_max: self.turn_units_max,
            connections: self.open as u64,
            ..Report::here(driver)
        }
    }

    /// The most that a connection has spent in one turn, in units of [`machine::work`].
    pub fn turn_units_max(&self) -> u64 {
        self.turn_units_max
    }

    fn listen<D: Driver>(
        &mut self,
        driver: &mut D,
        number: u16,
        listener: TcpListener,
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
            if connection.via().listener == number && !broken::is(Fault::KeepConnections) {
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
    fn for_each<D: Driver>(&mut self, driver: &mut D, f: impl Fn(&mut AnyConnection, &mut D)) {
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
        fd: OwnedFd,
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
            let max = of_address_max.into();
            return self.note_refusal(peer, "connections_of_address_max", max);
        };
        let placer = self.placer.as_mut().expect("only the acceptor accepts");
        let shard = placer.place(reactor::incoming_cpu(&fd));
        // Counted here, so that a burst of connections is spread as well.
        self.shared.load[shard].fetch_add(1, Ordering::Relaxed);
        let newcomer = Newcomer {
            fd,
            peer,
            place,
            listener,
            displaces: open >= max,
        };
        if shard == self.number {
            self.adopt(driver, newcomer);
        } else {
            self.shared.send(shard, Mail::Adopt(newcomer));
        }
    }

    /// A connection is one too many for a limit.
    fn note_refusal(&self, peer: SocketAddr, limit: &str, max: u64) {
        self.shared.refusals.note(Refusal {
            peer: Some(peer),
            ..Refusal::new(
                Kind::Connection,
                &format_args!("{limit} = {max} is reached"),
            )
        });
    }

    /// Whether it is open and has not said who it is.
    fn is_stranger(&self, id: ConnectionId) -> bool {
        let entry = &self.table[id.index as usize];
        let connection = entry.connection.as_ref();
        entry.generation == id.generation && connection.is_some_and(AnyConnection::is_stranger)
    }

    /// Closes the connection that has not said who it is for longest, if there
    /// is one: strangers keep no host out.
    fn displace<D: Driver>(&mut self, driver: &mut D) -> bool {
        while let Some(id) = self.strangers.pop_front() {
            if self.is_stranger(id) {
                self.with(driver, id, |c, d| c.close(d));
                return true;
            }
        }
        false
    }

    fn adopt<D: Driver>(&mut self, driver: &mut D, newcomer: Newcomer) {
        let Newcomer {
            fd,
            peer,
            place,
            listener,
            displaces,
        } = newcomer;
        if displaces && !self.displace(driver) {
            self.shared.load[self.number].fetch_sub(1, Ordering::Relaxed);
            let max = self.shared.limits.connections_max.into();
            return self.note_refusal(peer, "connections_max", max);
        }
        let protocol = self.shared.state().protocol_of(listener);
        let opened = |shard: &mut Shard, id, via_of: &dyn Fn(SocketAddr) -> Via, driver: &mut D| {
            let via = via_of(driver.local_addr(&fd)?);
            let socket = driver.add_socket(fd)?;
            let (shared, now) = (shard.shared.clone(), driver.now());
            // It may have been accepted just before the listener was closed.
            let protocol = protocol.unwrap_or_default();
            let local = &shard.local;
            let here = (local, driver.pool());
            Ok(AnyConnection::open(
                protocol,
                id,
                socket,
                (via, place),
                shared,
                here,
                now,
            ))
        };
        let id = self.put(driver, (peer, listener), opened);
        let is_late = self.stopping.is_some() || protocol.is_none();
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
    fn put<D: Driver>(
        &mut self,
        driver: &mut D,
        (peer, listener): (SocketAddr, u16),
        open: impl FnOnce(
            &mut Shard,
            ConnectionId,
            &dyn Fn(SocketAddr) -> Via,
            &mut D,
        ) -> io::Result<AnyConnection>,
    ) -> Option<ConnectionId> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.table.push(Entry::default());
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
        match open(self, id, &via_of, driver) {
            Ok(connection) => {
                self.table[index as usize].connection = Some(connection);
                self.open += 1;
                self.tick_at.get_or_insert(driver.now() + TICK);
                Some(id)
            }
            Err(error) => {
                self.shared.refusals.note(Refusal {
                    peer: Some(peer),
                    ..Refusal::new(Kind::Connection, &error)
                });
                self.free.push(index);
                self.shared.load[self.number].fetch_sub(1, Ordering::Relaxed);
                None
            }
        }
    }

    /// Takes a connection that belongs to a session of this reactor.
    fn join<D: Driver>(&mut self, driver: &mut D, handover: Handover) {
        self.shared.load[self.number].fetch_add(1, Ordering::Relaxed);
        let Via {
            connection: from,
            local: address,
            peer,
            listener,
        } = handover.via;
        let session = handover.session();
        let mut to = None;
        let open = |shard: &mut Shard, id, via_of: &dyn Fn(SocketAddr) -> Via, driver: &mut D| {
            let via = via_of(address);
            to = Some(via.connection);
            let connection = handover.arrive(id, via, &shard.shared, &shard.local, driver)?;
            Ok(AnyConnection::Iscsi(Box::new(connection)))
        };
        let id = self.put(driver, (peer, listener), open);
        let Some(id) = id else {
            self.shared.iscsi().closed(from);
            return;
        };
        let to = to.expect("it was opened");
        let is_over = {
            let mut registry = self.shared.iscsi();
            // Meanwhile another may have taken its place in the session.
            let has_place = registry.moved(from, to);
            let session = registry.session(session);
            !has_place || session.is_none_or(|session| session.has_ended)
        };
        let is_late = self.stopping.is_some() || !self.shared.is_listening(listener) || is_over;
        self.with(driver, id, |c, d| match c.iscsi().filter(|_| !is_late) {
            Some(c) => c.arrived(),
            None => c.close(d),
        });
    }

    /// What all reactors share.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// What its connections share.
    pub(crate) fn local(&self) -> &Local {
        &self.local
    }

    /// Runs `f` on a connection that is still the one meant.
    #[inline]
    pub(crate) fn with<D: Driver>(
        &mut self,
        driver: &mut D,
        id: ConnectionId,
        f: impl FnOnce(&mut AnyConnection, &mut D),
    ) {
        let max = self.units_max();
        let Some(entry) = self.table.get_mut(id.index as usize) else {
            return;
        };
        if entry.generation != id.generation {
            return;
        }
        let Some(connection) = entry.connection.as_mut() else {
            return;
        };
        let units = entry.share.in_turn(self.turn);
        work::take_turn(units, max, || f(connection, driver));
        self.turn_units_max = self.turn_units_max.max(*units);
        if !std::mem::replace(connection.dirty(), true) {
            self.dirty.push(id.index);
        }
    }

    /// What a connection may spend in a turn.
    #[inline]
    fn units_max(&self) -> u64 {
        match broken::is(Fault::EndlessTurn) {
            true => u64::MAX,
            false => self.shared.limits.turn_units_max,
        }
    }

    /// Whether whose job it is has used its share of the turn up.
    #[inline]
    fn is_used_up(&mut self, id: JobId) -> bool {
        let max = self.units_max();
        let owner = self.local.jobs.borrow().owner(id);
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
            true => self.end_file_work(driver, id, result),
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
                false => self.end_file_work(driver, id, result),
            }
        }
    }

    #[inline]
    fn end_file_work<D: Driver>(&mut self, driver: &mut D, id: JobId, result: io::Result<u32>) {
        let Some(job) = self.local.jobs.borrow_mut().take(id) else {
            return;
        };
        match job.owner {
            Some(owner) => self.with(driver, owner, |c, d| {
                work::spend(work::OPERATION_UNITS);
                c.on_file(id, job, result, d);
            }),
            None => match job.work {
                Work::Background(work, task) => {
                    let mut units = *self.background.in_turn(self.turn);
                    let max = self.units_max();
                    work::take_turn(&mut units, max, || {
                        self.go_on_with_nfs(driver, (id, job.mark), work, (task, result));
                    });
                    self.background.units = units;
                }
                _ => (self.local.jobs.borrow_mut()).resume_orphan(id, job, result, driver),
            },
        }
    }

    /// The answer to a command that ended elsewhere.
    fn on_answer<D: Driver>(&mut self, driver: &mut D, id: JobId, answer: Answer) {
        let mut jobs = self.local.jobs.borrow_mut();
        let job = jobs
            .take(id)
            .expect("a job that ends elsewhere has one answer");
        let Some(owner) = job.owner else {
            return jobs.bury(id);
        };
        jobs.release(id);
        drop(jobs);
        self.with(driver, owner, |c, d| c.on_answer(&job, answer, d));
    }

    /// Abort of a command of one of our connections.
    fn abort<D: Driver>(
        &mut self,
        driver: &mut D,
        id: ConnectionId,
        cid: u16,
        later: Later<nvme::Answer>,
    ) {
        let mut later = Some(later);
        self.with(driver, id, |c, d| {
            let later = later.take().expect("one connection has it");
            if let Some(c) = c.nvme() {
                c.abort(cid, later, d);
            }
        });
        if let Some(later) = later {
            later.answer(nvme::Answer::not_aborted());
        }
    }

    fn remove(&mut self, index: u32) {
        let entry = &mut self.table[index as usize];
        if let Some(mut connection) = entry.connection.take() {
            connection.was_removed();
        }
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index);
        self.open -= 1;
        self.shared.load[self.number].fetch_sub(1, Ordering::Relaxed);
    }

    fn stop<D: Driver>(&mut self, driver: &mut D) {
        if self.stopping.is_none() {
            self.stopping = Some(Stopping::Closing);
            self.close_listeners(driver, |_| true);
            self.for_each(driver, |c, d| c.dismiss(d));
        }
    }

    /// Whether a connection has its socket. Calls of NFS go on without one, and what
    /// they wait for may never come: a disk that hangs, or a range that belongs to a
    /// reactor that has failed.
    fn has_sockets(&self) -> bool {
        let mut connections = self.table.iter().filter_map(|e| e.connection.as_ref());
        self.open > 0 && connections.any(AnyConnection::has_socket)
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
        let volumes = self.shared.volumes();
        let unsynced = &self.shared.unsynced;
        unsynced.store(volumes.len() as u64, Ordering::Relaxed);
        for volume in volumes {
            let name = volume.info().name.clone();
            let then = move |shared: &Arc<Shared>, result: Result<(), store::Error>| match result {
                Ok(()) => {
                    shared.unsynced.fetch_sub(1, Ordering::Relaxed);
                }
                Err(error) => {
                    tracing::error!(volume = %name, %error, "volume not synced at the end");
                }
            };
            self.flush(driver, volume, Box::new(then));
        }
    }

    fn flush<D: Driver>(
        &mut self,
        driver: &mut D,
        volume: Arc<dyn Volume>,
        then: Then<Result<(), store::Error>>,
    ) {
        let free = self.syncs.iter().position(Option::is_none);
        let at = free.unwrap_or(self.syncs.len());
        if free.is_none() {
            self.syncs.push(None);
        }
        let token = Subject::Sync(at as u32).token();
        let progress = volume.start(store::Io::Flush, driver, token);
        let task = None;
        self.sync(at, Sync { volume, task, then }, progress);
    }

    fn sync(&mut self, at: usize, sync: Sync, progress: store::Progress) {
        match progress {
            store::Progress::Pending(task) => {
                let task = Some(task);
                self.syncs[at] = Some(Sync { task, ..sync });
            }
            store::Progress::Done(result) => {
                drop(sync.volume);
                (sync.then)(&self.shared, result);
            }
        }
    }

    fn synced<D: Driver>(&mut self, driver: &mut D, at: u32, result: io::Result<u32>) {
        let sync = self.syncs[at as usize].take();
        let mut sync = sync.expect("a sync that completes was started");
        let task = sync.task.take().expect("it waits for its task");
        let token = Subject::Sync(at).token();
        let progress = sync.volume.resume(task, result, driver, token);
        self.sync(at as usize, sync, progress);
    }

    /// Passes the fences that nothing of this reactor is behind any more.
    #[cold]
    fn pass_fences(&mut self) {
        for pending in std::mem::take(&mut self.fences) {
            // Passing the last one may begin others, by mail.
            match self.holds(&pending) {
                true => self.fences.push(pending),
                false => pending.passage.pass(&self.shared),
            }
        }
    }

    /// The loop of its reactor has failed. Whoever has it keeps it for as long as
    /// the process lives: the kernel may still be at its memory, and what it has
    /// under way holds its ranges.
    pub fn failed(&mut self, why: &str) {
        self.shared.reactor_failed(self.number, why);
        self.fences.clear();
    }

    fn holds(&self, pending: &Pending) -> bool {
        match pending.passage.scope() {
            // It came in order.
            Scope::Mail => false,
            Scope::Volumes(volumes) => {
                let jobs = self.local.jobs.borrow();
                (volumes.iter())
                    .any(|volume| jobs.busy_before(pending.mark, |job| job.touches(volume)))
            }
            Scope::Files(fs) => {
                let jobs = self.local.jobs.borrow();
                jobs.busy_before(pending.mark, |job| job.is_in(fs))
            }
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

    /// Mail that only iSCSI has.
    fn on_iscsi_mail<D: Driver>(&mut self, driver: &mut D, mail: Mail) {
        match mail {
            Mail::RefreshTarget(name, by, tell) => self.for_each_iscsi(driver, |c, d| {
                c.refresh(&name, by, tell, d);
            }),
            Mail::EndTasks(ending) => self.for_each_iscsi(driver, |c, d| c.end_tasks(&ending, d)),
            Mail::Attend(volume, told) => self.for_each_iscsi(driver, |c, _| {
                c.attend(&volume, &told);
            }),
            Mail::GoOn(ConnectionRef { id, .. }) => self.with(driver, id, |c, d| {
                if let Some(c) = c.iscsi() {
                    c.go_on_waiting(d);
                    c.run(d);
                }
            }),
            Mail::Warn(name, lun, attention) => self.for_each_iscsi(driver, |c, _| {
                c.warn(&name, lun, attention);
            }),
            Mail::Dismiss(ConnectionRef { id, .. }) => self.with(driver, id, |c, d| c.dismiss(d)),
            Mail::AskToLeave(ConnectionRef { id, .. }) => self.with(driver, id, |c, d| {
                if let Some(c) = c.iscsi() {
                    c.ask_to_leave(d);
                }
            }),
            Mail::Join(handover) => self.join(driver, *handover),
            _ => unreachable!("everybody's mail"),
        }
    }

    fn for_each_iscsi<D: Driver>(
        &mut self,
        driver: &mut D,
        f: impl Fn(&mut iscsi::Connection, &mut D),
    ) {
        self.for_each(driver, |c, d| {
            if let Some(c) = c.iscsi() {
                f(c, d);
            }
        });
    }

    /// Runs the connections that can go on because of something that happened on
    /// others.
    #[inline]
    fn resume_due<D: Driver>(&mut self, driver: &mut D) {
        while let Some(id) = { self.local.iscsi.due.borrow_mut().pop() } {
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
            wants_more |= work::take_turn(units, max, || connection.on_turn(driver));
            self.turn_units_max = self.turn_units_max.max(*units);
            self.has_more |= connection.has_more();
            self.shortage.is_here |= connection.is_waiting();
            // One that waits for memory is looked at again when something
            // happens, which is when memory comes free.
            let again = connection.is_waiting() || connection.has_more();
            *connection.dirty() = again;
            if connection.is_gone() {
                self.remove(index);
            }
            again
        });
        wants_more
    }
}

impl<D: Driver> Handler<D, Mail> for Shard {
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
                Subject::Sync(n) => self.synced(driver, n, result),
                other => unreachable!("file work of {other:?}"),
            },
            Completion::Accepted { token, result } => match (Subject::of(token), result) {
                (Subject::Listener(n), Ok((fd, peer))) => {
                    self.accepted(driver, fd, peer, n as u16);
                }
                (_, Ok(_)) => unreachable!("only listeners accept"),
                (_, Err(error)) => {
                    let refusal = Refusal::new(Kind::Connection, &error);
                    self.shared.refusals.note(refusal);
                }
            },
            Completion::Closed { token } => match Subject::of(token) {
                Subject::Close(id) => self.with(driver, id, |c, _| c.on_closed()),
                Subject::Listener(n) => self.listening.retain(|l| u32::from(l.number) != n),
                other => unreachable!("{other:?} has no socket"),
            },
            Completion::Connected { .. } => unreachable!("a target connects to nobody"),
        }
    }

    fn on_mail(&mut self, driver: &mut D, mail: Mail) {
        match mail {
            Mail::Adopt(newcomer) => self.adopt(driver, newcomer),
            Mail::Close(ConnectionRef { id, .. }) => self.with(driver, id, |c, d| c.close(d)),
            Mail::Notify(ConnectionRef { id, .. }) => self.with(driver, id, |c, _| {
                if let Some(c) = c.nvme() {
                    c.notified();
                }
            }),
            Mail::Refresh(nqn) => self.for_each(driver, |c, d| {
                if let Some(c) = c.nvme() {
                    c.refresh(&nqn, d);
                }
            }),
            Mail::Fence(passage) => {
                let mark = self.local.jobs.borrow().mark();
                self.fences.push(Pending { passage, mark });
            }
            Mail::Listen(number, listener, then) => {
                let result = self.listen(driver, number, listener);
                then(&self.shared, result);
            }
            Mail::Unlisten(number) => self.unlisten(driver, number),
            Mail::Answer(id, answer) => self.on_answer(driver, id, answer),
            Mail::Abort {
                connection,
                cid,
                later,
            } => self.abort(driver, connection.id, cid, later),
            Mail::Preempt(volume, hosts) => {
                self.for_each(driver, |c, d| c.preempt(&volume, &hosts, d));
            }
            Mail::RefreshTarget(..)
            | Mail::GoOn(_)
            | Mail::Join(_)
            | Mail::EndTasks(_)
            | Mail::Attend(..)
            | Mail::Warn(..)
            | Mail::Dismiss(_)
            | Mail::AskToLeave(_) => self.on_iscsi_mail(driver, mail),
            Mail::Flush(volume, then) => self.flush(driver, volume, then),
            Mail::MemoryWanted(by) => self.shortage.wanted(by, driver.pool()),
            Mail::MemoryFreed => self.shortage.has_asked = false,
            Mail::Nfs(mail) => self.on_nfs_mail(driver, mail),
            Mail::Report(to) => self.asked.push(to),
            Mail::Stop => self.stop(driver),
        }
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
            if self.local.iscsi.due.borrow().is_empty() {
                break;
            }
        }
        if self.shortage.concerns_others() {
            self.shortage
                .turn_ends(&self.shared, self.number, driver.pool());
        }
        if !self.fences.is_empty() {
            self.pass_fences();
        }
        // Only now: what an I/O costs is done where it was counted.
        while let Some(to) = self.asked.pop() {
            // Who asked may have given up waiting.
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
        self.tick_at
    }

    fn on_deadline(&mut self, driver: &mut D, now: Nanos) {
        self.shared.refusals.tick(now);
        self.shared.watch_space(now);
        let mut strangers = std::mem::take(&mut self.strangers);
        strangers.retain(|id| self.is_stranger(*id));
        self.strangers = strangers;
        // Where it was us who stood still, a machine that was paused, what hosts
        // have sent meanwhile is heard before their time is up.
        let is_late = self.tick_at.is_some_and(|at| now > at + TICK);
        self.was_late = is_late && !self.was_late && !broken::is(Fault::HastyTick);
        self.tick_nfs(driver, now);
        if !self.was_late {
            self.for_each(driver, |c, d| c.on_tick(now, d));
        }
        let is_needed =
            self.open > 0 || self.stopping.is_some() || self.shared.refusals.has_untold();
        self.tick_at = is_needed.then_some(now + TICK);
        if let Some(Stopping::Closed(until)) = self.stopping {
            self.gave_up_on_orphans = now >= until;
        }
    }

    fn is_done(&self) -> bool {
        let has_orphans = self.local.jobs.borrow().orphans() > 0 || self.open > 0;
        let has_orphans = has_orphans && !self.gave_up_on_orphans;
        matches!(self.stopping, Some(Stopping::Closed(_)))
            && self.syncs.iter().all(Option::is_none)
            && self.listening.is_empty()
            && !has_orphans
    }
}
