//! Changes of subsystems, and of their namespaces, hosts and ANA groups.

use std::collections::BTreeSet;

use faults::Fault;
use nvmf::{HostTerms, Namespace, WriteProtect};

use super::*;
use crate::config::Protocol;

impl Shared {
    pub(super) fn add_subsystem(&self, spec: &SubsystemSpec) -> Result<Left, ChangeError> {
        let mut registry = self.nvme.registry();
        if registry.subsystem(&spec.nqn).is_some() {
            return Err(ChangeError::Exists("subsystem", spec.nqn.clone()));
        }
        let change = self.insert_subsystem(&mut registry, spec)?;
        self.nvme.settle(change);
        Ok(Left::Nothing)
    }

    /// Checks a new subsystem and puts it in.
    pub(crate) fn insert_subsystem(
        &self,
        registry: &mut Registry,
        spec: &SubsystemSpec,
    ) -> Result<nvmf::ControllerChange, ChangeError> {
        nvmf::check_subsystem_nqn(&spec.nqn).map_err(|e| ChangeError::Invalid(e.to_string()))?;
        check_hosts(spec.hosts.as_deref())?;
        check_terms(spec)?;
        check::fixed_text("serial", &spec.serial, check::SERIAL_BYTES)
            .and_then(|()| check::fixed_text("model", &spec.model, check::MODEL_BYTES))
            .map_err(ChangeError::Invalid)?;
        check_ana_groups(&spec.ana_groups)?;
        if let Some(range) = &spec.cntlids {
            check::cntlids(range).map_err(ChangeError::Invalid)?;
        }
        let mut subsystem = Subsystem {
            nqn: spec.nqn.clone(),
            serial: spec.serial.clone(),
            model: spec.model.clone(),
            firmware: env!("CARGO_PKG_VERSION").to_owned(),
            hosts: spec.hosts.clone(),
            terms: spec.terms.clone(),
            dhchap: spec.dhchap.clone(),
            listeners: spec.listeners.clone(),
            namespaces: Arc::new([]),
            ana_groups: spec.ana_groups.clone(),
            limits: nvmf::Limits {
                io_queues_max: self.limits.io_queues_max,
                queue_entries_max: self.limits.queue_entries_max,
                io_bytes_max: self.limits.io_bytes_max,
                in_capsule_bytes_max: self.limits.in_capsule_bytes_max,
                controllers_of_host_max: self.limits.controllers_of_host_max,
            },
            cntlids: spec.cntlids.clone().unwrap_or(1..=nvmf::CNTLID_MAX),
            is_drained: registry.is_drained(),
        };
        let mut volumes = Vec::new();
        for spec in &spec.namespaces {
            let (namespace, volume) = self.new_namespace(&subsystem, spec)?;
            put(&mut subsystem, namespace);
            volumes.push((spec.nsid, volume));
        }
        let mut places = self.nvme.places();
        for (nsid, volume) in volumes {
            places.place(&subsystem.nqn, nsid, volume);
        }
        places.publish(&subsystem);
        Ok(registry.replace_subsystem(Arc::new(subsystem)))
    }

    /// Checks a new namespace of a subsystem; itself, and the volume behind it.
    fn new_namespace(
        &self,
        subsystem: &Subsystem,
        spec: &NamespaceSpec,
    ) -> Result<(Namespace, Arc<dyn Volume>), ChangeError> {
        check::nsid(spec.nsid.into()).map_err(ChangeError::Invalid)?;
        check::ana_group(spec.ana_group.into()).map_err(ChangeError::Invalid)?;
        check_hosts(spec.hosts.as_deref())?;
        let nqn = &subsystem.nqn;
        let (state, places) = (self.state(), self.nvme.places());
        if subsystem.namespace(spec.nsid).is_some() || places.has_place(nqn, spec.nsid) {
            let name = format!("{} of {nqn}", spec.nsid);
            return Err(ChangeError::Exists("namespace", name));
        }
        let volume = state.free_volume(&spec.volume)?;
        let namespace = namespace(spec, volume.as_ref());
        let mut known = subsystem.namespaces.iter();
        let is_there = known.any(|known| known.uuid == namespace.uuid)
            || places.users(volume).iter().any(|(user, _)| user == nqn);
        if is_there {
            let text = format!("volume \"{}\" is there already in {nqn}", spec.volume);
            return Err(ChangeError::Invalid(text));
        }
        Ok((namespace, volume.clone()))
    }

    pub(super) fn remove_subsystem(&self, nqn: &str) -> Result<Left, ChangeError> {
        let mut registry = self.nvme.registry();
        registry
            .subsystem(nqn)
            .ok_or_else(|| unknown_subsystem(nqn))?;
        if let Some(target) = self.iscsi.places().sharing(nqn).first() {
            let text = format!("the states of its paths are those of {target}: remove that first");
            return Err(ChangeError::Invalid(text));
        }
        let change = registry.remove_subsystem(nqn);
        self.nvme.places().forget(nqn);
        Ok(self.settle_and_wait(change))
    }

    pub(super) fn add_namespace(
        &self,
        nqn: &str,
        spec: &NamespaceSpec,
    ) -> Result<Left, ChangeError> {
        let mut subsystem = subsystem(&self.nvme.registry(), nqn)?;
        let (namespace, volume) = self.new_namespace(&subsystem, spec)?;
        self.nvme.places().place(nqn, spec.nsid, volume);
        Ok(self.allow_more(vec![Edit {
            nqn: std::mem::take(&mut subsystem.nqn),
            apply: Box::new(move |subsystem| put(subsystem, namespace.clone())),
        }]))
    }

    pub(super) fn remove_namespace(&self, nqn: &str, nsid: u32) -> Result<Left, ChangeError> {
        if subsystem(&self.nvme.registry(), nqn)?
            .namespace(nsid)
            .is_none()
        {
            return Err(unknown_namespace(nqn, nsid));
        }
        let volume = self.nvme.places().unplace(nqn, nsid);
        let nqn = nqn.to_owned();
        self.allow_less(Edit {
            nqn: nqn.clone(),
            apply: Box::new(move |subsystem| {
                let rest = subsystem.namespaces.iter().filter(|n| n.nsid != nsid);
                subsystem.namespaces = rest.cloned().collect();
            }),
        });
        let scope = Scope::Volumes(vec![volume.clone()]);
        let free = move |shared: &Arc<Shared>, done: ChangeDone| {
            shared.nvme.places().free(&volume);
            drop(volume);
            shared.nvme.republish(&shared.registry(), &nqn);
            // Then no connection holds the volume any more.
            shared.fence(Scope::Mail, move |shared| done(shared, Ok(())));
        };
        Ok(Left::Fence(scope, Box::new(free)))
    }

    pub(super) fn set_subsystem(
        &self,
        spec: SubsystemSpec,
        sets_ana: bool,
    ) -> Result<Left, ChangeError> {
        let mut registry = self.nvme.registry();
        let known = subsystem(&registry, &spec.nqn)?;
        let mut spec = spec;
        if faults::is(Fault::KeepKeys) {
            keep_keys(&known.terms, &mut spec.terms);
        }
        self.check_access(&known, &spec)?;
        let nsids: Vec<u32> = known.namespaces.iter().map(|n| n.nsid).collect();
        let mut volumes = self.nvme.places().volumes_of(&spec.nqn, &nsids);
        let groups = known.ana_groups.iter().chain(&spec.ana_groups);
        let ids: BTreeSet<u32> = groups.map(|group| group.id).collect();
        volumes.extend(
            ids.iter()
                .flat_map(|id| self.behind_targets(&spec.nqn, *id)),
        );
        // Those that may not connect any more are gone before others may do more.
        let narrowed = Subsystem {
            hosts: common(known.hosts.as_deref(), spec.hosts.as_deref()),
            terms: spec.terms.clone(),
            listeners: common(known.listeners.as_deref(), spec.listeners.as_deref()),
            ..known
        };
        let narrowed = match faults::is(Fault::CutAll) {
            true => Subsystem {
                hosts: Some(Vec::new()),
                ..narrowed
            },
            false => narrowed,
        };
        let change = registry.replace_subsystem(Arc::new(narrowed));
        drop(registry);
        let edit = Edit {
            nqn: spec.nqn.clone(),
            apply: Box::new(move |subsystem| set_access(subsystem, &spec, sets_ana)),
        };
        let left = self.settle_and_wait(change);
        let left = left.then(|shared| shared.allow_more(vec![edit]));
        Ok(left.then_fence(volumes))
    }

    fn check_access(&self, known: &Subsystem, spec: &SubsystemSpec) -> ChangeOutcome {
        check_hosts(spec.hosts.as_deref())?;
        check_terms(spec)?;
        check_ana_groups(&spec.ana_groups)?;
        let state = self.state();
        let is_one = |number| state.protocol_to_be(number) == Some(Protocol::NvmeTcp);
        let mut numbers = spec.listeners.iter().flatten();
        if let Some(number) = numbers.find(|number| !is_one(**number)) {
            let text = format!("there is no NVMe/TCP listener with number {number}");
            return Err(ChangeError::Invalid(text));
        }
        for namespace in &spec.namespaces {
            check::ana_group(namespace.ana_group.into()).map_err(ChangeError::Invalid)?;
            check_hosts(namespace.hosts.as_deref())?;
            let nsid = namespace.nsid;
            known
                .namespace(nsid)
                .ok_or_else(|| unknown_namespace(&known.nqn, nsid))?;
        }
        Ok(())
    }

    pub(super) fn allow_host(&self, nqn: &str, host: String) -> Result<Left, ChangeError> {
        let known = subsystem(&self.nvme.registry(), nqn)?.hosts;
        let Some(mut hosts) = known else {
            let text = format!("every host may connect to {nqn} already: set its hosts instead");
            return Err(ChangeError::Invalid(text));
        };
        if hosts.contains(&host) {
            return Err(ChangeError::Exists("host", host));
        }
        hosts.push(host);
        self.set_hosts(nqn, Some(hosts))
    }

    pub(super) fn deny_host(&self, nqn: &str, host: &str) -> Result<Left, ChangeError> {
        let known = subsystem(&self.nvme.registry(), nqn)?.hosts;
        let Some(mut hosts) = known else {
            let text = format!("every host may connect to {nqn}: set its hosts instead");
            return Err(ChangeError::Invalid(text));
        };
        let at = hosts.iter().position(|known| known == host);
        let at = at.ok_or_else(|| ChangeError::Unknown("host", host.to_owned()))?;
        hosts.remove(at);
        self.set_hosts(nqn, Some(hosts))
    }

    pub(super) fn set_hosts(
        &self,
        nqn: &str,
        hosts: Option<Vec<String>>,
    ) -> Result<Left, ChangeError> {
        check_hosts(hosts.as_deref())?;
        let mut registry = self.nvme.registry();
        let mut subsystem = subsystem(&registry, nqn)?;
        subsystem.hosts = hosts;
        let change = registry.replace_subsystem(Arc::new(subsystem));
        Ok(self.settle_and_wait(change))
    }

    pub(super) fn set_ana(
        &self,
        nqn: &str,
        listener: Option<SocketAddr>,
        group: u32,
        state: AnaState,
    ) -> Result<Left, ChangeError> {
        let group = check::ana_group(group.into()).map_err(ChangeError::Invalid)?;
        let listener = listener.map(|address| self.listener(address)).transpose()?;
        let subsystem = subsystem(&self.nvme.registry(), nqn)?;
        let numbers: Vec<Option<u16>> = match listener {
            None => vec![None],
            Some(number) => self.together(nqn, number).into_iter().map(Some).collect(),
        };
        let edit = Edit {
            nqn: nqn.to_owned(),
            apply: Box::new(move |subsystem| {
                for number in &numbers {
                    subsystem.set_ana_state(*number, group, state);
                }
            }),
        };
        if state.is_accessible() {
            return Ok(self.allow_more(vec![edit]));
        }
        self.allow_less(edit);
        let members = subsystem.namespaces.iter().filter(|n| n.ana_group == group);
        let members: Vec<u32> = members.map(|namespace| namespace.nsid).collect();
        let mut volumes = self.nvme.places().volumes_of(nqn, &members);
        volumes.extend(self.behind_targets(nqn, group));
        Ok(Left::fence(Scope::Volumes(volumes)))
    }

    /// Does what a change asks for; it is true when the connections that it
    /// closes are gone.
    fn settle_and_wait(&self, change: nvmf::ControllerChange) -> Left {
        let closing = change
            .closing
            .iter()
            .map(|packed| ConnectionRef::unpack(*packed));
        let closing: Vec<_> = closing.collect();
        self.nvme.settle(change);
        match closing.is_empty() {
            true => Left::Nothing,
            false => Left::fence(Scope::Connections(closing)),
        }
    }
}

/// Keys that hosts had stay good, which is wrong.
fn keep_keys(known: &[HostTerms], terms: &mut [HostTerms]) {
    for terms in terms {
        let known = known.iter().filter(|known| known.nqn == terms.nqn);
        terms
            .psks
            .extend(known.flat_map(|known| known.psks.clone()));
    }
}

/// What a subsystem is to allow: see [`Change::SetSubsystem`].
fn set_access(subsystem: &mut Subsystem, spec: &SubsystemSpec, sets_ana: bool) {
    subsystem.hosts.clone_from(&spec.hosts);
    subsystem.terms.clone_from(&spec.terms);
    subsystem.dhchap.clone_from(&spec.dhchap);
    subsystem.listeners.clone_from(&spec.listeners);
    if sets_ana {
        subsystem.ana_groups.clone_from(&spec.ana_groups);
    }
    let mut list = subsystem.namespaces.to_vec();
    for namespace in &mut list {
        let mut named = spec.namespaces.iter();
        if let Some(named) = named.find(|named| named.nsid == namespace.nsid) {
            namespace.ana_group = named.ana_group;
            namespace.hosts.clone_from(&named.hosts);
        }
    }
    subsystem.namespaces = list.into();
}

/// What is in both lists; `None`: everything.
fn common<T: Clone + Ord>(old: Option<&[T]>, new: Option<&[T]>) -> Option<Vec<T>> {
    let (Some(old), Some(new)) = (old, new) else {
        return old.or(new).map(<[T]>::to_vec);
    };
    let new: BTreeSet<&T> = new.iter().collect();
    Some(
        old.iter()
            .filter(|one| new.contains(one))
            .cloned()
            .collect(),
    )
}

pub(super) fn check_ana_groups(groups: &[AnaGroup]) -> ChangeOutcome {
    for group in groups {
        check::ana_group(group.id.into()).map_err(ChangeError::Invalid)?;
    }
    Ok(())
}

/// A list of hosts, each of them once; `None`: any.
fn check_hosts(hosts: Option<&[String]>) -> ChangeOutcome {
    let hosts = hosts.unwrap_or_default();
    for (at, host) in hosts.iter().enumerate() {
        nvmf::check_host_nqn(host).map_err(|e| ChangeError::Invalid(e.to_string()))?;
        if hosts[..at].contains(host) {
            return Err(ChangeError::Exists("host", host.clone()));
        }
    }
    Ok(())
}

fn check_terms(spec: &SubsystemSpec) -> ChangeOutcome {
    let is_any = |nqn: &str| nqn == HostTerms::ANY_HOST && spec.hosts.is_none();
    let names = spec.terms.iter().map(|terms| &terms.nqn);
    let names: Vec<String> = names.filter(|nqn| !is_any(nqn)).cloned().collect();
    check_hosts(Some(&names))
}

/// Puts a namespace into the description of its subsystem.
fn put(subsystem: &mut Subsystem, namespace: Namespace) {
    let mut namespaces = subsystem.namespaces.to_vec();
    namespaces.push(namespace);
    namespaces.sort_by_key(|namespace| namespace.nsid);
    subsystem.namespaces = namespaces.into();
}

/// A subsystem to be changed.
pub(super) fn subsystem(registry: &Registry, nqn: &str) -> Result<Subsystem, ChangeError> {
    let found = registry.subsystem(nqn);
    let found = found.ok_or_else(|| unknown_subsystem(nqn))?;
    Ok((*found).clone())
}

fn unknown_namespace(nqn: &str, nsid: u32) -> ChangeError {
    ChangeError::Unknown("namespace", format!("{nsid} of {nqn}"))
}

fn unknown_subsystem(nqn: &str) -> ChangeError {
    ChangeError::Unknown("subsystem", nqn.to_owned())
}

/// A namespace as the registry knows it.
fn namespace(spec: &NamespaceSpec, volume: &dyn Volume) -> Namespace {
    let info = volume.info();
    let block_count = volume.size_bytes() / u64::from(info.block_bytes);
    Namespace {
        uuid: info.uuid.into_bytes(),
        nguid: info.nguid,
        eui64: info.eui64,
        read_only: info.read_only,
        write_protect: match volume.state().is_write_protected() {
            true => WriteProtect::Permanent,
            false => WriteProtect::Off,
        },
        is_thin: info.is_thin,
        persists_state: volume.state().can_persist(),
        is_ready: !volume.is_locked(),
        is_encrypted: volume.encryption().is_some(),
        volatile_cache: info.volatile_cache,
        ana_group: spec.ana_group,
        hosts: spec.hosts.clone(),
        atomic_bytes: info.atomic_bytes,
        atomic_power_fail_bytes: info.atomic_power_fail_bytes,
        ..Namespace::new(spec.nsid, info.block_bytes, block_count)
    }
}
