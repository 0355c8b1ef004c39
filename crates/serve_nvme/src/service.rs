//! What NVMe connections on all reactors have in common: controllers, what is behind
//! subsystems, and the mail about both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use engine::reservation::Hears;
use engine::{ConnectionRef, Post, Shared};
use faults::Fault;
use machine::locked;
use nvmf::rdma::TerminateCounts;
use nvmf::reservation as nvme;
use nvmf::{Registry, Subsystem};
use store::Volume;
use store::reservation::{Notice, Registrant};

use super::served::{ServedSubsystem, Subsystems};
use super::{CommandAnswer, Later};

/// What reactors tell each other about NVMe connections.
pub enum OwnMail {
    /// The controller of this Admin Queue of yours has an event to complete a
    /// request with.
    Notify(ConnectionRef),
    /// What is behind the subsystem of this NQN has changed: take it.
    Refresh(Arc<str>),
    /// End this command of this connection of yours, and say whether you did.
    Abort {
        /// Of the queue that the command was sent to.
        connection: ConnectionRef,
        /// Command Identifier.
        cid: u16,
        /// The Abort command.
        later: Later,
    },
    /// End what these hosts, whose registrations were preempted, have under way
    /// on this volume.
    Preempt(Arc<dyn Volume>, Arc<BTreeSet<Registrant>>),
}

/// The same with answers to commands.
pub type NvmeMail = engine::Mail<CommandAnswer, OwnMail>;

/// What else is to show the states of a subsystem: told with it, and whether hosts are
/// told now.
pub type Sharing = Box<dyn Fn(&Subsystem, bool) + Send + Sync>;

/// What NVMe connections on all reactors have in common.
pub struct Service {
    /// What all protocols have in common.
    pub shared: Arc<Shared>,
    pub(super) post: Arc<dyn Post<NvmeMail>>,
    registry: Mutex<Registry>,
    /// Taken after the registry where both are held.
    places: Mutex<Subsystems>,
    sharing: OnceLock<Sharing>,
    /// How streams by RDMA have ended.
    pub terminates: TerminateCounts,
}

impl Service {
    /// With the controllers of `registry` and what is behind its subsystems.
    pub fn new(
        shared: Arc<Shared>,
        post: Arc<dyn Post<NvmeMail>>,
        registry: Registry,
        places: Subsystems,
    ) -> Service {
        Service {
            shared,
            post,
            registry: Mutex::new(registry),
            places: Mutex::new(places),
            sharing: OnceLock::new(),
            terminates: TerminateCounts::default(),
        }
    }

    /// Installs what else shows the states of subsystems; once.
    pub fn set_sharing(&self, sharing: Sharing) {
        assert!(self.sharing.set(sharing).is_ok(), "set once");
    }

    /// The controllers, locked: off the way of an I/O.
    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        locked(&self.registry)
    }

    /// What is behind subsystems, locked: off the way of an I/O.
    pub fn places(&self) -> MutexGuard<'_, Subsystems> {
        locked(&self.places)
    }

    pub(super) fn send(&self, shard: usize, mail: OwnMail) {
        self.post.send(shard, NvmeMail::Own(mail));
    }

    fn send_all(&self, mail: impl Fn() -> OwnMail) {
        for shard in 0..self.shared.load.len() {
            self.send(shard, mail());
        }
    }

    /// Does what a change of the registry asks for: hosts get their events,
    /// connections are closed.
    pub fn settle(&self, change: nvmf::ControllerChange) {
        for packed in change.events {
            let connection = ConnectionRef::unpack(packed);
            self.send(connection.shard as usize, OwnMail::Notify(connection));
        }
        for packed in change.closing {
            self.shared.close(packed);
        }
    }

    /// Little is left below a thin volume: its hosts are told.
    pub fn space_is_low(&self, volume: &Arc<dyn Volume>) {
        let uuid = volume.info().uuid.into_bytes();
        let told = self.registry().space_is_low(uuid);
        self.settle(told);
    }

    /// What is behind a subsystem for a host that came in by a listener;
    /// nothing behind the discovery subsystem.
    pub fn served(&self, nqn: &str, listener: u16, host: Arc<str>) -> ServedSubsystem {
        self.places().served(nqn, listener, host)
    }

    /// What is to be in the place of `old` now.
    pub fn renewed(&self, old: &ServedSubsystem) -> ServedSubsystem {
        self.served(&old.nqn, old.listener, old.host.clone())
    }

    /// Something of a subsystem's namespaces changed in the registry (size,
    /// write protection, ANA): every connection takes it, before any fence
    /// that is begun after this.
    pub fn republish(&self, registry: &Registry, nqn: &str) {
        if let Some(subsystem) = registry.subsystem(nqn) {
            self.show(&subsystem, true);
        }
    }

    /// The I/O path takes a subsystem as it is described here; neither hosts nor
    /// those that share its states are told yet. The registry is
    /// locked meanwhile, so that no host connects to what was before.
    pub fn publish(&self, subsystem: &Subsystem) {
        self.show(subsystem, false);
    }

    fn show(&self, subsystem: &Subsystem, tell: bool) {
        if self.places().publish(subsystem) {
            let nqn: Arc<str> = subsystem.nqn.as_str().into();
            self.send_all(|| OwnMail::Refresh(nqn.clone()));
        }
        if let Some(sharing) = self.sharing.get() {
            sharing(subsystem, tell);
        }
    }
}

impl Hears for Service {
    fn notice(&self, volume: &Arc<dyn Volume>, told: &BTreeMap<Registrant, Notice>) -> bool {
        let hosts = told.iter().filter_map(|(registrant, notice)| {
            let Registrant::NvmeHost(hostid) = registrant else {
                return None;
            };
            let notice = match notice {
                Notice::RegistrationPreempted => nvme::Notice::RegistrationPreempted,
                Notice::ReservationReleased => nvme::Notice::ReservationReleased,
                Notice::ReservationPreempted => nvme::Notice::ReservationPreempted,
            };
            Some((*hostid, notice))
        });
        let hosts: BTreeMap<_, _> = hosts.collect();
        if !hosts.is_empty() && !faults::is(Fault::NoNotices) {
            let uuid = volume.info().uuid.into_bytes();
            let told = self.registry().notify_reservation(uuid, &hosts);
            self.settle(told);
        }
        false
    }

    fn preempt(&self, volume: &Arc<dyn Volume>, preempted: &Arc<BTreeSet<Registrant>>) {
        self.send_all(|| OwnMail::Preempt(volume.clone(), preempted.clone()));
    }

    /// NRDY of their namespaces is 0 (Base 2.0, section 5.17.2.8).
    fn locked(&self) {
        let mut registry = self.registry();
        let subsystems: Vec<Arc<Subsystem>> = registry.subsystems().cloned().collect();
        for mut subsystem in subsystems {
            let mut namespaces = subsystem.namespaces.to_vec();
            for namespace in &mut namespaces {
                let volumes = self.places().volumes_of(&subsystem.nqn, &[namespace.nsid]);
                namespace.is_ready &= !volumes.iter().any(|volume| volume.is_locked());
            }
            if *namespaces != *subsystem.namespaces {
                Arc::make_mut(&mut subsystem).namespaces = namespaces.into();
                self.settle(registry.replace_subsystem(subsystem));
            }
        }
    }
}
