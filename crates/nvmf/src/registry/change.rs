//! What is served and where changes while hosts are connected: every change
//! takes effect at once and comes with the notice that hosts act on, for the
//! hosts that it concerns and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use faults::Fault;

use super::{ControllerChange, ControllerId, Registry};
use crate::command::AnaState;
use crate::controller::{
    ANA_EVENT, Controller, DISCOVERY_EVENT, NAMESPACE_EVENT, RESERVATION_EVENT, SANITIZE_EVENT,
    SPARE_EVENT,
};
use crate::discovery::Port;
use crate::reservation::Notice;
use crate::sanitize_status::SanitizeStatus;
use crate::subsystem::{
    ANA_GROUPS_MAX, ListenerSpec, NSID_MAX, Namespace, Referral, Subsystem, WriteProtect,
};

impl Registry {
    /// Puts `subsystem` in the place of the one of its NQN, or adds it.
    /// Controllers see it at once. A host that sees a namespace come, go or
    /// change gets Namespace Attribute Changed, one whose access changes
    /// Asymmetric Namespace Access Change, one whose discovery log changes
    /// Discovery Log Page Change; controllers of hosts that are not allowed
    /// any more, or came through a listener where it is not reached any more,
    /// end. Keys for TLS that a host has made by a secret go with the secret.
    ///
    /// # Panics
    /// If it is the discovery subsystem, or an identifier in it is out of range
    /// or there twice.
    pub fn replace_subsystem(&mut self, subsystem: Arc<Subsystem>) -> ControllerChange {
        let known = self.entries.get(&subsystem.nqn);
        assert!(
            known.is_none_or(|entry| !entry.is_discovery),
            "the discovery subsystem is its own"
        );
        let previous = known.map(|entry| entry.subsystem.clone());
        let mut change = ControllerChange::default();
        if let Some(previous) = &previous {
            check_namespaces(&subsystem);
            self.note_keys(&subsystem);
            let differences = differences(previous, &subsystem);
            let entry = self.entries.get_mut(&subsystem.nqn).expect("found before");
            entry.subsystem = subsystem.clone();
            entry.generated.retain(|host, secret| {
                let keys = subsystem.dhchap_keys(host);
                keys.is_some_and(|keys| keys.host.iter().any(|known| known.key == *secret))
            });
            let has_to = |host: &str| subsystem.dhchap_keys(host).is_some();
            entry.unproven.retain_hosts(has_to);
            for id in entry.controllers.values() {
                let controller = self
                    .controllers
                    .get_mut(id)
                    .expect("listed controllers live");
                controller.subsystem = subsystem.clone();
                change.update(controller, previous, &differences);
            }
        } else {
            self.insert(subsystem.clone(), false);
        }
        self.tell_discovery(previous.as_deref(), Some(&subsystem), &mut change);
        change
    }

    /// Takes a subsystem away: its controllers end. Nothing happens if there is
    /// none of that NQN.
    pub fn remove_subsystem(&mut self, nqn: &str) -> ControllerChange {
        let mut change = ControllerChange::default();
        let is_known = self
            .entries
            .get(nqn)
            .is_some_and(|entry| !entry.is_discovery);
        if !is_known {
            return change;
        }
        self.with_keys.remove(nqn);
        let entry = self.entries.remove(nqn).expect("found before");
        for id in entry.controllers.values() {
            let controller = self
                .controllers
                .get_mut(id)
                .expect("listed controllers live");
            controller.end();
            change.closing.extend(controller.take_closing());
        }
        self.tell_discovery(Some(&entry.subsystem), None, &mut change);
        change
    }

    /// Ends the controllers that any of these connections is a queue of. Keys for TLS that
    /// their hosts have made with the same subsystems go, too.
    pub fn end_controllers_of(&mut self, connections: &BTreeSet<u64>) -> ControllerChange {
        let mut change = ControllerChange::default();
        for controller in self.controllers.values_mut() {
            if controller.has_any(connections) {
                controller.end();
                change.closing.extend(controller.take_closing());
                if let Some(entry) = self.entries.get_mut(&controller.subsystem.nqn) {
                    entry.generated.remove_host(&controller.hostnqn);
                }
            }
        }
        change
    }

    /// Sets the state of an ANA group of a subsystem on one listener, or
    /// (`None`) on all. `None` if there is no such subsystem or group.
    pub fn set_ana(
        &mut self,
        nqn: &str,
        listener: Option<u16>,
        group: u32,
        state: AnaState,
    ) -> Option<ControllerChange> {
        let mut subsystem = self.subsystem(nqn)?;
        if !(1..=ANA_GROUPS_MAX).contains(&group) {
            return None;
        }
        Arc::make_mut(&mut subsystem).set_ana_state(listener, group, state);
        Some(self.replace_subsystem(subsystem))
    }

    /// Sets the write protection of a namespace: what is left to do for a Set
    /// Features, see [`Outcome::WriteProtect`](crate::AdminOutcome::WriteProtect).
    /// Nothing happens if there is no such namespace (any more).
    pub fn set_write_protect(
        &mut self,
        nqn: &str,
        nsid: u32,
        state: WriteProtect,
    ) -> ControllerChange {
        match self.with_write_protect(nqn, nsid, state) {
            Some(subsystem) => self.replace_subsystem(subsystem),
            None => ControllerChange::default(),
        }
    }

    /// The subsystem as [`Registry::set_write_protect`] makes it.
    pub fn with_write_protect(
        &self,
        nqn: &str,
        nsid: u32,
        state: WriteProtect,
    ) -> Option<Arc<Subsystem>> {
        let mut subsystem = self.subsystem(nqn)?;
        let mut namespaces = subsystem.namespaces.to_vec();
        for namespace in &mut namespaces {
            if namespace.nsid == nsid {
                namespace.write_protect = state;
            }
        }
        Arc::make_mut(&mut subsystem).namespaces = namespaces.into();
        Some(subsystem)
    }

    /// Sets where hosts reach the target. Controllers whose listener is gone
    /// stay: closing their connections is the driver's choice.
    pub fn set_listeners(&mut self, listeners: Vec<ListenerSpec>) -> ControllerChange {
        self.rearrange(|registry| registry.listeners = listeners)
    }

    /// Sets the other discovery services that hosts are sent to.
    pub fn set_referrals(&mut self, referrals: Vec<Referral>) -> ControllerChange {
        self.generation += u64::from(self.referrals != referrals);
        let mut change = ControllerChange::default();
        if std::mem::replace(&mut self.referrals, referrals) != self.referrals {
            for controller in self.controllers.values_mut() {
                if controller.is_discovery {
                    change.raise(controller, DISCOVERY_EVENT);
                }
            }
        }
        change
    }

    /// From now on no controller begins but for discovery, or they do again. What that says
    /// of the states of paths is each subsystem's: [`Subsystem::is_drained`].
    pub fn set_drained(&mut self, is_drained: bool) {
        self.is_drained = is_drained;
    }

    /// Whether none begins.
    pub fn is_drained(&self) -> bool {
        self.is_drained
    }

    /// The subsystem of an NQN as of now.
    pub fn subsystem(&self, nqn: &str) -> Option<Arc<Subsystem>> {
        self.entries
            .get(nqn)
            .filter(|entry| !entry.is_discovery)
            .map(|entry| entry.subsystem.clone())
    }

    /// Changes the listeners and tells the hosts that reach others now.
    fn rearrange(&mut self, with: impl FnOnce(&mut Registry)) -> ControllerChange {
        let before: Vec<(ControllerId, Vec<Port>)> = self
            .controllers()
            .filter(|(_, controller)| controller.is_discovery)
            .map(|(id, controller)| (id, self.ports(controller)))
            .collect();
        let listeners = self.listeners.clone();
        with(self);
        self.generation += u64::from(self.listeners != listeners);
        let mut change = ControllerChange::default();
        for (id, ports) in before {
            if self.ports(&self.controllers[&id]) != ports {
                let controller = self.controllers.get_mut(&id).expect("found before");
                change.raise(controller, DISCOVERY_EVENT);
            }
        }
        change
    }

    /// Tells the hosts that see entries of a subsystem come or go.
    fn tell_discovery(
        &mut self,
        previous: Option<&Subsystem>,
        next: Option<&Subsystem>,
        change: &mut ControllerChange,
    ) {
        let shown = |subsystem: Option<&Subsystem>| {
            subsystem.map(|subsystem| {
                let (hosts, terms) = (subsystem.hosts.clone(), subsystem.terms.clone());
                (hosts, terms, subsystem.listeners.clone())
            })
        };
        if shown(previous) == shown(next) {
            return;
        }
        self.generation += 1;
        let told: Vec<ControllerId> = self
            .controllers()
            .filter(|(_, controller)| controller.is_discovery)
            .filter(|(_, controller)| {
                let ports = self.ports(controller);
                let entries = |subsystem: Option<&Subsystem>| -> Vec<u16> {
                    subsystem
                        .filter(|subsystem| {
                            let address = controller.arrival.address;
                            subsystem.is_visible_from(&controller.hostnqn, address)
                        })
                        .into_iter()
                        .flat_map(|subsystem| {
                            let needs_tls = subsystem.needs_tls(&controller.hostnqn);
                            let all = ports.iter();
                            all.filter(move |port| port.serves(subsystem, needs_tls))
                        })
                        .map(|port| port.number)
                        .collect()
                };
                entries(previous) != entries(next)
            })
            .map(|(id, _)| id)
            .collect();
        for id in told {
            let controller = self.controllers.get_mut(&id).expect("found before");
            change.raise(controller, DISCOVERY_EVENT);
        }
    }

    /// A sanitize operation begins on so many namespaces of a subsystem.
    pub fn begin_sanitize(&mut self, nqn: &str, cdw10: u32, namespaces: u32) {
        let begun = SanitizeStatus::begun(cdw10, namespaces);
        self.sanitized.insert(nqn.to_owned(), begun);
    }

    /// It has sanitized one more namespace, or could not. At its end hosts are told.
    pub fn sanitize_went_on(&mut self, nqn: &str, is_done: bool) -> ControllerChange {
        let mut change = ControllerChange::default();
        let status = self.sanitized.get_mut(nqn);
        if status.is_some_and(|status| status.went_on(is_done)) {
            for controller in self.controllers_mut() {
                if controller.subsystem.nqn == nqn {
                    change.raise(controller, SANITIZE_EVENT);
                }
            }
        }
        change
    }

    /// Tells hosts that see the volume with this UUID that little is left below it.
    pub fn space_is_low(&mut self, uuid: [u8; 16]) -> ControllerChange {
        let mut change = ControllerChange::default();
        for controller in self.controllers_mut() {
            let is_seen = (controller.namespaces()).any(|namespace| namespace.uuid == uuid);
            if is_seen {
                change.raise(controller, SPARE_EVENT);
            }
        }
        change
    }

    /// Tells hosts, by Host Identifier, what happened to their registrations on
    /// the volume with this UUID, whichever of their controllers sees it.
    pub fn notify_reservation(
        &mut self,
        uuid: [u8; 16],
        notices: &BTreeMap<[u8; 16], Notice>,
    ) -> ControllerChange {
        let mut change = ControllerChange::default();
        for controller in self.controllers_mut() {
            let Some(notice) = notices.get(&controller.hostid) else {
                continue;
            };
            let namespaces = controller.subsystem.namespaces.iter();
            let seen: Vec<u32> = (namespaces)
                .filter(|namespace| namespace.uuid == uuid)
                .filter(|namespace| namespace.is_visible_to(&controller.hostnqn))
                .map(|namespace| namespace.nsid)
                .collect();
            for nsid in seen {
                if controller.notifications.push(nsid, *notice) {
                    change.raise(controller, RESERVATION_EVENT);
                }
            }
        }
        change
    }
}

impl ControllerChange {
    /// Brings a controller from `previous` to the subsystem that it has now: it
    /// ends, or is told of the namespaces that came, went or changed, and of the
    /// ANA groups whose state or membership did (of namespaces that it sees
    /// before and after: Base 2.0, figure 146).
    fn update(
        &mut self,
        controller: &mut Controller,
        previous: &Subsystem,
        differences: &[Difference<'_>],
    ) {
        let next = controller.subsystem.clone();
        let is_admitted = next.admits(&controller.hostnqn, controller.arrival);
        if !is_admitted || !next.is_on(controller.listener) {
            controller.end();
            self.closing.extend(controller.take_closing());
            return;
        }
        let mut changed = BTreeSet::new();
        let mut groups = BTreeSet::new();
        let host = &controller.hostnqn;
        let access = |subsystem: &Subsystem, namespace: &Namespace| {
            let group = namespace.ana_group;
            (group, subsystem.ana_state(controller.listener, group))
        };
        for difference in differences {
            let old = difference.old.filter(|old| old.is_visible_to(host));
            let new = difference.new.filter(|new| new.is_visible_to(host));
            if let (Some(old), Some(new)) = (old, new) {
                let (before, after) = (access(previous, old), access(&next, new));
                if before != after {
                    groups.extend([before.0, after.0]);
                }
            }
            let (was_seen, is_seen) = (old.is_some(), new.is_some());
            if !is_seen && faults::is(Fault::RemoveUntold) {
                continue;
            }
            if was_seen != is_seen || (is_seen && difference.of_attributes) {
                changed.insert(difference.nsid);
            }
        }
        if !changed.is_empty() {
            controller.changed_namespaces.extend(&changed);
            self.raise(controller, NAMESPACE_EVENT);
        }
        if !groups.is_empty() {
            controller.ana.note(&groups);
            self.raise(controller, ANA_EVENT);
        }
    }

    pub(crate) fn raise(&mut self, controller: &mut Controller, event: u32) {
        if controller.raise(event)
            && let Some(connection) = controller.admin_connection()
            && !self.events.contains(&connection)
        {
            self.events.push(connection);
        }
    }
}

/// A namespace in two states of a subsystem, of which it may be in one only.
struct Difference<'a> {
    nsid: u32,
    old: Option<&'a Namespace>,
    new: Option<&'a Namespace>,
    /// More than its ANA group and the hosts that see it.
    of_attributes: bool,
}

/// Namespaces that a host may see differently, in whatever way.
fn differences<'a>(previous: &'a Subsystem, next: &'a Subsystem) -> Vec<Difference<'a>> {
    let by_nsid = |subsystem: &'a Subsystem| -> BTreeMap<u32, &'a Namespace> {
        let namespaces = subsystem.namespaces.iter();
        namespaces.map(|one| (one.nsid, one)).collect()
    };
    let (old, new) = (by_nsid(previous), by_nsid(next));
    let nsids: BTreeSet<u32> = old.keys().chain(new.keys()).copied().collect();
    let moved = |group: u32| {
        let find = |of: &'a Subsystem| of.ana_groups.iter().find(|known| known.id == group);
        previous.is_drained != next.is_drained || find(previous) != find(next)
    };
    nsids
        .into_iter()
        .map(|nsid| (nsid, old.get(&nsid).copied(), new.get(&nsid).copied()))
        .filter(|(_, old, new)| old != new || new.is_some_and(|new| moved(new.ana_group)))
        .map(|(nsid, old, new)| Difference {
            nsid,
            old,
            new,
            of_attributes: match (old, new) {
                (Some(old), Some(new)) => {
                    let aside = Namespace {
                        ana_group: new.ana_group,
                        hosts: new.hosts.clone(),
                        ..old.clone()
                    };
                    aside != *new
                }
                _ => true,
            },
        })
        .collect()
}

/// # Panics
/// On identifiers out of range, or there twice.
pub(super) fn check_namespaces(subsystem: &Subsystem) {
    for (index, namespace) in subsystem.namespaces.iter().enumerate() {
        let nsid = namespace.nsid;
        let is_first = subsystem
            .namespace(nsid)
            .is_some_and(|(first, _)| first == index);
        assert!(
            (1..=NSID_MAX).contains(&nsid) && is_first,
            "namespace identifier {nsid} of {}",
            subsystem.nqn
        );
        assert!(
            (1..=ANA_GROUPS_MAX).contains(&namespace.ana_group),
            "ANA group {} of {}",
            namespace.ana_group,
            subsystem.nqn
        );
    }
}
