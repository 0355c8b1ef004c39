//! What iSCSI connections on all reactors have in common: sessions, what is behind
//! targets, and the mail about both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use engine::reservation::Hears;
use engine::{ConnectionRef, Post, Scope, Shared};
use iscsi::iser::TerminateCounts;
use iscsi::target::TargetSettings;
use iscsi::{Registry, SessionId};
use machine::locked;
use nvmf::AnaGroup;
use scsi::{AccessState, Attention, Modes};
use store::Volume;
use store::reservation::{Notice, Registrant};

use super::CommandAnswer;
use super::login::Handover;
use super::rod_tokens::RodTokens;
use super::served::{Ana, Targets};
use super::task_management::Ending;

/// What reactors tell each other about iSCSI connections.
pub enum OwnMail {
    /// What is behind the target of this name has changed, by a command of
    /// this session or otherwise: take it, and tell initiators if so.
    Refresh(Arc<str>, Option<SessionId>, bool),
    /// What this connection of yours waited for is over.
    GoOn(ConnectionRef),
    /// A connection for a session of yours.
    Join(Box<Handover>),
    /// End these tasks.
    EndTasks(Arc<Ending>),
    /// Tell the sessions of these nexuses what has happened to this volume.
    Attend(Arc<dyn Volume>, Arc<BTreeMap<Registrant, Attention>>),
    /// Tell all sessions with the target of this name this of this unit.
    Warn(Arc<str>, u16, Attention),
    /// Ask the initiator of this connection of yours to log out, and close it
    /// when it should have.
    AskToLeave(ConnectionRef),
    /// End what these nexuses, whose registrations were preempted, have under way
    /// on this volume.
    Preempt(Arc<dyn Volume>, Arc<BTreeSet<Registrant>>),
}

/// The same with answers to commands.
pub type IscsiMail = engine::Mail<CommandAnswer, OwnMail>;

/// Gives the states of the ANA groups of a subsystem, which do not change meanwhile.
pub type StatesOf = Box<dyn Fn(&str, &mut dyn FnMut(&[AnaGroup])) + Send + Sync>;

/// Told whether states were set, or why not.
pub type StatesSet = Box<dyn FnOnce(Result<(), String>) + Send>;

/// Sets the states of target port groups, by tag, of a unit of a target. May block.
pub type SetStates = Box<dyn Fn(&str, u16, &[(u16, AccessState)], StatesSet) + Send + Sync>;

/// What iSCSI connections on all reactors have in common.
pub struct Service {
    /// What all protocols have in common.
    pub shared: Arc<Shared>,
    /// What a connection may do.
    pub settings: TargetSettings,
    pub(super) post: Arc<dyn Post<IscsiMail>>,
    registry: Mutex<Registry>,
    /// Taken after the registry where both are held.
    places: Mutex<Targets>,
    states_of: StatesOf,
    set_states: OnceLock<SetStates>,
    /// When the space below thin provisioned units is to be looked at next, and
    /// units, by target and LUN, of which that is being done.
    pub(super) space_due: AtomicU64,
    pub(super) looking: Mutex<BTreeSet<(String, u16)>>,
    pub(super) rod_tokens: RodTokens,
    /// How streams by RDMA have ended.
    pub terminates: TerminateCounts,
}

impl Service {
    /// With the sessions of `registry`, what is behind its targets, and where the states
    /// of subsystems are that they share.
    pub fn new(
        shared: Arc<Shared>,
        post: Arc<dyn Post<IscsiMail>>,
        settings: TargetSettings,
        (registry, places): (Registry, Targets),
        states_of: StatesOf,
    ) -> Service {
        Service {
            shared,
            settings,
            post,
            registry: Mutex::new(registry),
            places: Mutex::new(places),
            states_of,
            set_states: OnceLock::new(),
            space_due: AtomicU64::new(0),
            looking: Mutex::default(),
            rod_tokens: RodTokens::default(),
            terminates: TerminateCounts::default(),
        }
    }

    /// Installs what sets states of target port groups; once.
    pub fn on_set_states(&self, set_states: SetStates) {
        assert!(self.set_states.set(set_states).is_ok(), "set once");
    }

    pub(super) fn set_states(
        &self,
        target: &str,
        lun: u16,
        states: &[(u16, AccessState)],
        then: StatesSet,
    ) {
        let set = self.set_states.get();
        set.expect("set before the first reactor runs")(target, lun, states, then);
    }

    /// The targets and sessions, locked: off the way of an I/O.
    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        locked(&self.registry)
    }

    /// What is behind targets, locked: off the way of an I/O.
    pub fn places(&self) -> MutexGuard<'_, Targets> {
        locked(&self.places)
    }

    pub(super) fn send(&self, shard: usize, mail: OwnMail) {
        self.post.send(shard, IscsiMail::Own(mail));
    }

    pub(super) fn send_all(&self, mail: impl Fn() -> OwnMail) {
        for shard in 0..self.shared.load.len() {
            self.send(shard, mail());
        }
    }

    /// Something of a target's units changed (which there
    /// are, size, mode parameters, ANA), by a command of the session `by` or
    /// otherwise: every session takes it, before any fence that is begun after
    /// this, and tells its initiator with unit attentions.
    pub fn publish(&self, name: &str, by: Option<SessionId>) {
        self.refresh(name, by, true);
    }

    /// The same, but initiators are not told yet: they are told of what they may do
    /// more than before when all sessions let them.
    pub fn prepare(&self, name: &str) {
        self.refresh(name, None, false);
    }

    fn refresh(&self, name: &str, by: Option<SessionId>, tell: bool) {
        let ana = self.places().ana_of(name);
        match ana {
            Some(Ana::Own(_)) => self.show(name, None, by, tell),
            Some(Ana::Subsystem(nqn)) => (self.states_of)(&nqn, &mut |groups| {
                self.show(name, Some(groups), by, tell);
            }),
            None => {}
        }
    }

    /// The states of a subsystem have changed: the targets that share them show it.
    pub fn subsystem_changed(&self, nqn: &str, groups: &[AnaGroup], tell: bool) {
        let sharing = self.places().sharing(nqn);
        for target in sharing {
            self.show(&target, Some(groups), None, tell);
        }
    }

    /// Shows a target with these states of its ANA groups, or with its own.
    fn show(&self, name: &str, groups: Option<&[AnaGroup]>, by: Option<SessionId>, tell: bool) {
        let registry = self.registry();
        let Some(target) = registry.target(name) else {
            return;
        };
        let mut places = self.places();
        match (groups, places.ana_of(name)) {
            (Some(groups), _) => places.publish(target, groups),
            (None, Some(Ana::Own(groups))) => places.publish(target, &groups),
            (None, _) => return,
        }
        drop(places);
        let name: Arc<str> = name.into();
        self.send_all(|| OwnMail::Refresh(name.clone(), by, tell));
    }

    /// Sets mode parameters of a logical unit for the session `by`, then does
    /// `then`, when all nexuses have them.
    pub(super) fn set_modes(
        &self,
        target: &str,
        lun: u16,
        modes: Modes,
        by: SessionId,
        then: impl FnOnce() + Send + 'static,
    ) {
        self.places().set_modes(target, lun, modes);
        self.publish(target, Some(by));
        self.shared.fence(Scope::Mail, then);
    }

    /// Asks an initiator to log out; the connection is closed if it does not.
    pub fn ask_to_leave(&self, packed: u64) {
        let connection = ConnectionRef::unpack(packed);
        self.send(connection.shard as usize, OwnMail::AskToLeave(connection));
    }
}

impl Hears for Service {
    /// Nexuses are told by unit attentions.
    fn notice(&self, volume: &Arc<dyn Volume>, told: &BTreeMap<Registrant, Notice>) -> bool {
        let nexuses = told.iter().filter_map(|(registrant, notice)| {
            let attention = match notice {
                Notice::RegistrationPreempted => Attention::REGISTRATIONS_PREEMPTED,
                Notice::ReservationReleased => Attention::RESERVATIONS_RELEASED,
                Notice::ReservationPreempted => Attention::RESERVATIONS_PREEMPTED,
            };
            let is_nexus = matches!(registrant, Registrant::ScsiNexus(_));
            is_nexus.then(|| (registrant.clone(), attention))
        });
        let nexuses: Arc<BTreeMap<_, _>> = Arc::new(nexuses.collect());
        if !nexuses.is_empty() {
            self.send_all(|| OwnMail::Attend(volume.clone(), nexuses.clone()));
        }
        !nexuses.is_empty()
    }

    fn preempt(&self, volume: &Arc<dyn Volume>, preempted: &Arc<BTreeSet<Registrant>>) {
        self.send_all(|| OwnMail::Preempt(volume.clone(), preempted.clone()));
    }
}
