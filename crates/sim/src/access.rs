//! What a host may do, as a document has it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use iscsi::InitiatorAcl;
use nvmf::AnaGroup;
use nvmf::command::AnaState;
use server::{Ana, Config, IscsiTargetSpec, NamespaceSpec, SubsystemSpec};

use crate::changes::host_nqn;
use crate::credentials::{Credentials, Proof};
use crate::plan::Plan;
use crate::target::{initiator_name, lun, nsid, subnqn, volume_name};

/// How a host comes in.
#[derive(Clone, Copy)]
pub struct Arrival {
    /// By which listener.
    pub listener: SocketAddr,
    /// With which key and secret.
    pub shown: Credentials,
}

/// What a host may do as it comes in, as a document has it.
pub struct HostAccess<'d> {
    plan: &'d Plan,
    document: &'d Config,
    host: usize,
    arrival: Arrival,
}

impl<'d> HostAccess<'d> {
    /// Of a host that comes in so.
    pub fn new(
        plan: &'d Plan,
        document: &'d Config,
        (host, arrival): (usize, Arrival),
    ) -> HostAccess<'d> {
        HostAccess {
            plan,
            document,
            host,
            arrival,
        }
    }

    /// The place of the listener.
    fn place(&self) -> Option<u16> {
        let listeners = (0..).zip(&self.document.listeners);
        let mut listeners = listeners.filter(|(_, spec)| spec.address == self.arrival.listener);
        listeners.next().map(|(place, _)| place)
    }

    fn subsystem(&self) -> Option<&'d SubsystemSpec> {
        let nqn = subnqn(self.plan.hosts[self.host].subsystem);
        self.document.subsystems.iter().find(|spec| spec.nqn == nqn)
    }

    fn entry(&self) -> Option<(&'d IscsiTargetSpec, &'d InitiatorAcl)> {
        let spec = self.document.iscsi_targets.first()?;
        let name = initiator_name(self.host);
        let acl = &spec.target.acl;
        let named = acl.iter().find(|entry| entry.name.as_ref() == Some(&name));
        let entry = named.or_else(|| acl.iter().find(|entry| entry.name.is_none()))?;
        Some((spec, entry))
    }

    /// The NVMe host that it says to be.
    fn nqn(&self) -> String {
        host_nqn(self.arrival.shown.poses_as.unwrap_or(self.host))
    }

    /// What its key and its secret are compared with; `None` for initiators, which have none.
    fn proof(&self) -> Option<Proof<'d>> {
        let spec = self.subsystem()?;
        let is_nvme = self.plan.hosts[self.host].speaks_nvme();
        is_nvme.then(|| Proof::new(self.plan, spec, (self.host, self.arrival.shown)))
    }

    /// Whether it may connect.
    pub fn may_connect(&self) -> bool {
        let keeps_key = self.proof().is_none_or(|proof| proof.keeps_key());
        self.may_stay() && self.has_key() && self.has_secret() && keeps_key
    }

    /// Whether the key that it speaks TLS by, or speaks none, fits.
    pub fn has_key(&self) -> bool {
        self.proof().is_none_or(|proof| proof.has_key())
    }

    /// Whether its secret fits.
    pub fn has_secret(&self) -> bool {
        self.proof().is_none_or(|proof| proof.has_secret())
    }

    /// Whether it may be connected, by whatever key and secret it has come in.
    pub fn may_stay(&self) -> bool {
        let Some(place) = self.place() else {
            return false;
        };
        if self.plan.hosts[self.host].iscsi.is_some() {
            return self.entry().is_some();
        }
        // Exports stay as they are.
        if self.plan.hosts[self.host].nbd.is_some() {
            return true;
        }
        let requires_tls = self.document.listeners[usize::from(place)].requires_tls;
        let comes_by_tls =
            self.plan.hosts[self.host].tls.is_some() || self.arrival.shown.has_made_key;
        if requires_tls && !comes_by_tls {
            return false;
        }
        let nqn = self.nqn();
        self.subsystem().is_some_and(|spec| {
            spec.hosts.as_ref().is_none_or(|hosts| hosts.contains(&nqn))
                && (spec.listeners.as_ref()).is_none_or(|places| places.contains(&place))
        }) && self.proof().is_some_and(|proof| proof.may_stay())
    }

    /// The ANA group of a volume that it sees, and that group's state on its way.
    pub fn path(&self, volume: usize) -> Option<(u32, AnaState)> {
        let place = self.place()?;
        let state = |groups: &[AnaGroup], id: u32| {
            let group = groups.iter().find(|group| group.id == id);
            (
                id,
                group.map_or(AnaState::default(), |group| group.state_on(place)),
            )
        };
        if self.plan.hosts[self.host].iscsi.is_some() {
            let (spec, entry) = self.entry()?;
            let unit = spec.luns.iter().find(|spec| spec.lun == lun(volume))?;
            let is_seen = entry
                .luns
                .as_ref()
                .is_none_or(|seen| seen.contains(&unit.lun));
            let Ana::Own(groups) = &spec.ana else {
                return None;
            };
            return is_seen.then(|| state(groups, unit.ana_group));
        }
        if self.plan.hosts[self.host].nbd.is_some() {
            return Some(state(&[], 0));
        }
        let spec = self.subsystem()?;
        let number = nsid(self.plan.hosts[self.host].subsystem, volume);
        let namespace = self.namespaces().find(|spec| spec.nsid == number)?;
        Some(state(&spec.ana_groups, namespace.ana_group))
    }

    /// The namespaces that it sees.
    fn namespaces(&self) -> impl Iterator<Item = &'d NamespaceSpec> {
        let nqn = self.nqn();
        let all = self
            .subsystem()
            .into_iter()
            .flat_map(|spec| &spec.namespaces);
        all.filter(move |spec| spec.hosts.as_ref().is_none_or(|hosts| hosts.contains(&nqn)))
    }

    /// Whether it may read and write a volume.
    pub fn may_use(&self, volume: usize) -> bool {
        let path = self.path(volume);
        self.may_stay() && path.is_some_and(|(_, state)| state.is_accessible())
    }

    /// What the namespaces are that it sees, by their numbers.
    pub fn attributes(&self) -> BTreeMap<u32, (String, u64)> {
        let size = |name: &str| {
            let mut volumes = self.document.volumes.iter();
            let volume = volumes.find(|spec| spec.name == name);
            volume.map_or(0, |spec| spec.size_bytes)
        };
        self.namespaces()
            .map(|spec| (spec.nsid, (spec.volume.clone(), size(&spec.volume))))
            .collect()
    }

    /// The ways to them.
    pub fn paths(&self) -> BTreeMap<u32, (u32, AnaState)> {
        let Some(place) = self.place() else {
            return BTreeMap::new();
        };
        let groups = self.subsystem().map_or(&[][..], |spec| &spec.ana_groups);
        let path = |id: u32| {
            let group = groups.iter().find(|group| group.id == id);
            (
                id,
                group.map_or(AnaState::default(), |group| group.state_on(place)),
            )
        };
        self.namespaces()
            .map(|spec| (spec.nsid, path(spec.ana_group)))
            .collect()
    }

    /// The size of a volume.
    pub fn size_bytes(&self, volume: usize) -> Option<u64> {
        let name = volume_name(volume);
        let mut volumes = self.document.volumes.iter();
        volumes
            .find(|spec| spec.name == name)
            .map(|spec| spec.size_bytes)
    }
}
