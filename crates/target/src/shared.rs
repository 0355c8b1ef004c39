//! What the reactors of one target have in common, off the way of an I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use iscsi::SessionId;
use machine::Nanos;
use mem::broken::{self, Fault};
use nvmf::{AnaGroup, Registry, Subsystem};
use reactor::Mailbox;
use scsi::{Attention, Modes};
use store::Volume;
use store::reservation::Registrant;

use crate::clerk::{self, About, Desk};
use crate::config::{Ana, Limits};
use crate::fence::{Passage, Scope};
use crate::hosts::{Hosts, Place};
use crate::iscsi::login::Handover;
use crate::iscsi::task_management::Ending;
use crate::job::JobId;
use crate::later::{Answer, Later};
use crate::nfs::mail::NfsMail;
use crate::nfs::service::Service;
use crate::nvme::{self, served::Served};
use crate::placement::Load;
use crate::refusals::Refusals;
use crate::report::Report;
use crate::state::State;
use crate::token::ConnectionId;

/// How long a shortage of memory is over before it is forgotten: reactors look
/// every half second.
pub(crate) const SHORTAGE: Nanos = 1_500_000_000;

/// Locks what reactors share. Where one of them has panicked under the lock the
/// target stops, and the others come by it to end in order.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection anywhere in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionRef {
    /// The reactor that it lives on.
    pub shard: u32,
    /// Which of that reactor's connections.
    pub id: ConnectionId,
}

impl ConnectionRef {
    /// As one number, for those who keep it without knowing what it is.
    pub fn pack(self) -> u64 {
        debug_assert!(self.shard < 1 << 16);
        (u64::from(self.shard) << 48)
            | (u64::from(self.id.generation) << 32)
            | u64::from(self.id.index)
    }

    /// The inverse of [`ConnectionRef::pack`].
    pub fn unpack(packed: u64) -> Self {
        ConnectionRef {
            shard: (packed >> 48) as u32,
            id: ConnectionId {
                generation: (packed >> 32) as u16,
                index: packed as u32,
            },
        }
    }
}

/// A connection that was just accepted.
pub struct Newcomer {
    /// The socket.
    pub fd: OwnedFd,
    /// The host's address.
    pub peer: SocketAddr,
    /// Its place among the connections of its address.
    pub place: Place,
    /// Number of the listener that it came in by.
    pub listener: u16,
    /// There are `connections_max` already: one that has not said who it is has
    /// to go for it.
    pub displaces: bool,
}

/// What reactors tell each other.
pub enum Mail {
    /// A new connection for you.
    Adopt(Newcomer),
    /// Close this connection of yours: its controller ended.
    Close(ConnectionRef),
    /// The controller of this Admin Queue of yours has an event to complete a
    /// request with.
    Notify(ConnectionRef),
    /// What is behind the subsystem of this NQN has changed: take it.
    Refresh(Arc<str>),
    /// Pass this when you have nothing of it left.
    Fence(Passage),
    /// Accept on this socket, of the listener of this number; then say whether
    /// that is so. For the first reactor.
    Listen(u16, TcpListener, Then<io::Result<()>>),
    /// Close the listener of this number and what came in by it.
    Unlisten(u16),
    /// This job of yours ended elsewhere.
    Answer(JobId, Answer),
    /// End this command of this connection of yours, and say whether you did.
    Abort {
        /// Of the queue that the command was sent to.
        connection: ConnectionRef,
        /// Command Identifier.
        cid: u16,
        /// The Abort command.
        later: Later<nvme::Answer>,
    },
    /// End what these hosts, whose registrations were preempted, have under way
    /// on this volume.
    Preempt(Arc<dyn Volume>, Arc<BTreeSet<Registrant>>),
    /// What is behind the iSCSI target of this name has changed, by a command of
    /// this session or otherwise: take it, and tell initiators if so.
    RefreshTarget(Arc<str>, Option<SessionId>, bool),
    /// What this connection of yours waited for is over.
    GoOn(ConnectionRef),
    /// A connection for a session of yours.
    Join(Box<Handover>),
    /// End these tasks.
    EndTasks(Arc<Ending>),
    /// Tell the sessions of these nexuses what has happened to this volume.
    Attend(Arc<dyn Volume>, Arc<BTreeMap<Registrant, Attention>>),
    /// Tell all sessions with the iSCSI target of this name this of this unit.
    Warn(Arc<str>, u16, Attention),
    /// Tell the initiator of this connection of yours that its session ends, and
    /// close it.
    Dismiss(ConnectionRef),
    /// Ask the initiator of this connection of yours to log out, and close it
    /// when it should have.
    AskToLeave(ConnectionRef),
    /// Flush this volume, and say how that went. For the first reactor.
    Flush(Arc<dyn Volume>, Then<Result<(), store::Error>>),
    /// This reactor's connections wait for memory: give back what you do not use,
    /// and say when you have.
    MemoryWanted(usize),
    /// Somebody has given memory back.
    MemoryFreed,
    /// Of NFS.
    Nfs(NfsMail),
    /// Say what you have done.
    Report(Sender<Report>),
    /// End: close everything, then leave the loop.
    Stop,
}

/// What to do with a result, once.
pub type Then<T> = Box<dyn FnOnce(&Arc<Shared>, T) + Send>;

/// Listens on an address: the kernel's way, or a simulator's.
pub type Bind = Box<dyn Fn(SocketAddr) -> io::Result<TcpListener> + Send + Sync>;

/// What the reactors of one target have in common.
pub struct Shared {
    /// What one host may ask for.
    pub limits: Limits,
    /// The controllers; see [`Shared::registry`].
    pub registry: Mutex<Registry>,
    /// The iSCSI targets and sessions; see [`Shared::iscsi`]. Taken after the
    /// controllers where both are held.
    iscsi: Mutex<iscsi::Registry>,
    /// One for each reactor; set before the first one runs.
    pub mailboxes: OnceLock<Vec<Mailbox<Mail>>>,
    /// Connections of each reactor.
    pub load: Load,
    /// What serves NFS.
    pub(crate) nfs: Service,
    /// Taken after the registries where both are held.
    state: Mutex<State>,
    /// Held while a change is made, so that there is one at a time.
    pub(crate) changes: Mutex<()>,
    pub(crate) bind: Bind,
    desk: Arc<Desk>,
    started: OnceLock<Nanos>,
    /// When the space below thin provisioned units is to be looked at next, and
    /// units, by target and LUN, of which that is being done.
    pub(crate) space_due: AtomicU64,
    pub(crate) looking: Mutex<BTreeSet<(String, u16)>>,
    is_stopping: AtomicBool,
    /// When a connection last went short of memory; 0 for never.
    short_at: AtomicU64,
    /// Reactors that serve, or still have connections while the target stops.
    serving: Mutex<BTreeSet<usize>>,
    /// Parts of the target that have failed, beside reactors.
    pub(crate) failures: Mutex<Vec<String>>,
    /// At the end, volumes that are not flushed yet, or could not be.
    pub(crate) unsynced: AtomicU64,
    pub(crate) refusals: Refusals,
    pub(crate) hosts: Arc<Hosts>,
}

impl Shared {
    pub(crate) fn new(
        limits: Limits,
        (registry, iscsi, nfs): (Registry, iscsi::Registry, Service),
        state: State,
        reactors: usize,
        bind: Bind,
    ) -> Shared {
        Shared {
            limits,
            registry: Mutex::new(registry),
            iscsi: Mutex::new(iscsi),
            mailboxes: OnceLock::new(),
            load: Arc::new((0..reactors).map(|_| AtomicU32::new(0)).collect()),
            nfs,
            state: Mutex::new(state),
            changes: Mutex::new(()),
            bind,
            desk: Arc::default(),
            started: OnceLock::new(),
            space_due: AtomicU64::new(0),
            looking: Mutex::default(),
            is_stopping: AtomicBool::new(false),
            short_at: AtomicU64::new(0),
            serving: Mutex::new((0..reactors).collect()),
            failures: Mutex::default(),
            unsynced: AtomicU64::new(0),
            refusals: Refusals::default(),
            hosts: Arc::default(),
        }
    }

    /// The controllers, locked: off the way of an I/O.
    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        locked(&self.registry)
    }

    /// The iSCSI targets and sessions, locked: off the way of an I/O.
    pub fn iscsi(&self) -> MutexGuard<'_, iscsi::Registry> {
        locked(&self.iscsi)
    }

    /// What is served, locked: off the way of an I/O.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Mail to one reactor.
    pub fn send(&self, shard: usize, mail: Mail) {
        let mailboxes = self
            .mailboxes
            .get()
            .expect("set before the first reactor runs");
        mailboxes[shard].send(mail);
    }

    /// Mail to every reactor.
    pub(crate) fn send_all(&self, mail: impl Fn() -> Mail) {
        for shard in 0..self.load.len() {
            self.send(shard, mail());
        }
    }

    /// Tells a connection's reactor to close it.
    pub fn close(&self, packed: u64) {
        let connection = ConnectionRef::unpack(packed);
        self.send(connection.shard as usize, Mail::Close(connection));
    }

    /// These Admin Queues have events to complete requests with.
    pub fn notify(&self, connections: &[u64]) {
        for packed in connections {
            let connection = ConnectionRef::unpack(*packed);
            self.send(connection.shard as usize, Mail::Notify(connection));
        }
    }

    /// Does what a change of the registry asks for: hosts get their events,
    /// connections are closed.
    pub fn settle(&self, change: nvmf::Change) {
        self.notify(&change.events);
        for packed in change.closing {
            self.close(packed);
        }
    }

    /// Every volume that is open.
    pub fn volumes(&self) -> Vec<Arc<dyn Volume>> {
        self.state().volumes.clone()
    }

    /// What is behind a subsystem for a host that came in by a listener;
    /// nothing behind the discovery subsystem.
    pub fn served(&self, nqn: &str, listener: u16, host: Arc<str>) -> Served {
        self.state().nvme.served(nqn, listener, host)
    }

    /// Whether the listener of a number is still there.
    pub(crate) fn is_listening(&self, number: u16) -> bool {
        self.state().listeners.contains_key(&number)
    }

    /// What is to be in the place of `old` now.
    pub fn renewed(&self, old: &Served) -> Served {
        self.served(&old.nqn, old.listener, old.host.clone())
    }

    /// Something of a subsystem's namespaces changed in the registry (size,
    /// write protection, ANA): every connection takes it, before any fence
    /// that is begun after this.
    pub fn republish(&self, registry: &Registry, nqn: &str) {
        if let Some(subsystem) = registry.subsystem(nqn) {
            self.show_subsystem(&subsystem, true);
        }
    }

    /// The I/O path takes a subsystem as it is described here; neither hosts nor
    /// initiators of targets that share its states are told yet. The registry is
    /// locked meanwhile, so that nobody connects to what was before.
    pub(crate) fn publish(&self, subsystem: &Subsystem) {
        self.show_subsystem(subsystem, false);
    }

    fn show_subsystem(&self, subsystem: &Subsystem, tell: bool) {
        if self.state().publish(subsystem) {
            let nqn: Arc<str> = subsystem.nqn.as_str().into();
            self.send_all(|| Mail::Refresh(nqn.clone()));
        }
        let sharing = self.state().iscsi.sharing(&subsystem.nqn);
        for target in sharing {
            self.show_target(&target, &subsystem.ana_groups, None, tell);
        }
    }

    /// Something of an iSCSI target's units changed in the state (which there
    /// are, size, mode parameters, ANA), by a command of the session `by` or
    /// otherwise: every session takes it, before any fence that is begun after
    /// this, and tells its initiator with unit attentions.
    pub fn publish_target(&self, name: &str, by: Option<SessionId>) {
        self.refresh_target(name, by, true);
    }

    /// The same, but initiators are not told yet: of what they may do more than
    /// before they hear when all sessions let them.
    pub(crate) fn prepare_target(&self, name: &str) {
        self.refresh_target(name, None, false);
    }

    fn refresh_target(&self, name: &str, by: Option<SessionId>, tell: bool) {
        let registry = self.registry();
        let source = self.state().iscsi.ana_of(name);
        let groups = match source {
            Some(Ana::Own(groups)) => groups,
            Some(Ana::Subsystem(nqn)) => {
                let subsystem = registry.subsystem(&nqn);
                subsystem.map_or_else(Vec::new, |subsystem| subsystem.ana_groups.clone())
            }
            None => return,
        };
        self.show_target(name, &groups, by, tell);
    }

    fn show_target(&self, name: &str, groups: &[AnaGroup], by: Option<SessionId>, tell: bool) {
        let iscsi = self.iscsi();
        let Some(target) = iscsi.target(name) else {
            return;
        };
        self.state().iscsi.publish(target, groups);
        if self.mailboxes.get().is_some() {
            let name: Arc<str> = name.into();
            self.send_all(|| Mail::RefreshTarget(name.clone(), by, tell));
        }
    }

    /// Sets mode parameters of a logical unit for the session `by`, then does
    /// `then`, when all nexuses have them.
    pub(crate) fn set_modes(
        self: &Arc<Self>,
        target: &str,
        lun: u16,
        modes: Modes,
        by: SessionId,
        then: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) {
        self.state().iscsi.set_modes(target, lun, modes);
        self.publish_target(target, Some(by));
        self.fence(Scope::Mail, then);
    }

    /// Tells nexuses what has happened to a volume, by unit attentions.
    pub(crate) fn attend(
        &self,
        volume: &Arc<dyn Volume>,
        told: Arc<BTreeMap<Registrant, Attention>>,
    ) {
        self.send_all(|| Mail::Attend(volume.clone(), told.clone()));
    }

    /// Tells an initiator that its session ends, and closes the connection.
    pub fn dismiss(&self, packed: u64) {
        let connection = ConnectionRef::unpack(packed);
        self.send(connection.shard as usize, Mail::Dismiss(connection));
    }

    /// Asks an initiator to log out; the connection is closed if it does not.
    pub(crate) fn ask_to_leave(&self, packed: u64) {
        let connection = ConnectionRef::unpack(packed);
        self.send(connection.shard as usize, Mail::AskToLeave(connection));
    }

    /// Runs `then`, on some reactor, when what is in `scope` and began before
    /// is over on all of them.
    pub fn fence(self: &Arc<Self>, scope: Scope, then: impl FnOnce(&Arc<Shared>) + Send + 'static) {
        let scope = match scope {
            Scope::Listener(_) if broken::is(Fault::KeepConnections) => Scope::Mail,
            scope => scope,
        };
        let parts = Passage::all(scope, self.load.len(), Box::new(then), self);
        for (shard, part) in parts.enumerate() {
            self.send(shard, Mail::Fence(part));
        }
    }

    /// Has work done that may block, after all that was given before of what it is
    /// about.
    pub(crate) fn clerk(&self, about: About, work: impl FnOnce(&Arc<Shared>) + Send + 'static) {
        self.desk.add(about, Box::new(work));
    }

    /// Brings to the disk what is to be remembered of NFS clients, then does `then`.
    pub(crate) fn keep_records(&self, then: impl FnOnce() + Send + 'static) {
        self.clerk(About::Records, |shared| {
            shared.nfs.keep_records();
            then();
        });
    }

    /// Does the clerk's work where there is no thread for it; how many pieces.
    pub fn run_clerk(self: &Arc<Self>) -> usize {
        let mut done = 0;
        while self.desk.run_next(|work| work(self)) {
            done += 1;
        }
        done
    }

    pub(crate) fn start_clerk(self: &Arc<Self>) -> io::Result<()> {
        clerk::start(&self.desk, Arc::downgrade(self))
    }

    /// Ends it in order: no new connections, open ones closed, volumes synced.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.send_all(|| Mail::Stop);
    }

    /// A reactor has none of its connections left: whether it is the last one.
    pub(crate) fn has_left(&self, shard: usize) -> bool {
        let mut serving = locked(&self.serving);
        serving.remove(&shard) && serving.is_empty()
    }

    /// A reactor has failed: the others end in order, so that hosts go on by
    /// other paths at once. Where they have ended already, nobody is left to sync
    /// the volumes.
    pub fn reactor_failed(&self, shard: usize, why: &str) {
        tracing::error!(
            reactor = shard,
            why,
            "a reactor has failed: its connections are closed and the target stops; \
             report this, and start weft again"
        );
        // Before the others hear of it: the last of them syncs the volumes.
        let was_last = self.has_left(shard);
        if !broken::is(Fault::KeepServing) {
            self.stop();
        }
        if was_last {
            let volumes = self.volumes().len();
            self.unsynced.store(volumes as u64, Ordering::Relaxed);
        }
    }

    /// Work beside the reactors has failed: they end in order.
    pub(crate) fn work_failed(&self, thread: &str, why: &str) {
        tracing::error!(
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
        self.short_at.store(now.max(1), Ordering::Relaxed);
    }

    /// Whether one has a moment ago.
    pub(crate) fn is_short(&self, now: Nanos) -> bool {
        let at = self.short_at.load(Ordering::Relaxed);
        at != 0 && now.saturating_sub(at) < SHORTAGE
    }

    /// The clock of the reactors says `now`: the first to say so starts the target.
    pub(crate) fn start(&self, now: Nanos) {
        self.started.get_or_init(|| now);
        self.nfs.begin(now);
    }

    /// When the first reactor was there.
    pub(crate) fn started(&self) -> Nanos {
        *self.started.get().expect("a reactor runs")
    }
}

impl Shared {
    /// No work is done beside the reactors any more. Without a thread of the
    /// clerk's, whoever ran the reactors says so: work may own what it lies in.
    pub fn end_clerk(&self) {
        self.desk.close();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.end_clerk();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_survives_packing() {
        let connection = ConnectionRef {
            shard: 513,
            id: ConnectionId {
                index: 70_000,
                generation: u16::MAX,
            },
        };
        assert_eq!(ConnectionRef::unpack(connection.pack()), connection);
    }
}
