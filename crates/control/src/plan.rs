//! From one configuration to another while hosts are connected: the changes, in the
//! order in which they are made.

mod nbd;

use std::collections::{BTreeMap, BTreeSet};

use faults::Fault;
use iscsi::{PortalGroup, Target};
use nvmf::{AnaGroup, HostTerms};
use server::nfs::{ExportSpec, Exported, FileSystemKind, FileSystemSpec, NfsSettings, QuotaSpec};
use server::{
    Ana, Change, Config, ConnectionPolicy, IscsiTargetSpec, ListenerSpec, LunSpec, NamespaceSpec,
    RateLimit, SubsystemSpec,
};
use store::{Settings, Spec};

use crate::disturbs::disturbs;
use crate::nvme::{ANA_STATES, host_name};
use crate::policy;
use crate::words::told;

mod volume;

/// One change of a [`plan`].
///
/// Listeners are named by their place in a document: the desired one in `change`, the
/// running one in `undo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedChange {
    /// What is changed.
    pub change: Change,
    /// What takes it back, if anything does.
    pub undo: Option<Change>,
    /// What it means, to people.
    pub text: String,
    /// A host, initiator or client is cut, or what is in memory is lost.
    pub disturbs: bool,
}

/// The changes that make what serves `running` serve `desired`, in order. Steps that
/// nothing takes back come last.
///
/// # Errors
/// What cannot be changed while hosts are connected, a line each.
pub fn plan(running: &Config, desired: &Config) -> Result<Vec<PlannedChange>, Vec<String>> {
    let mut plan = Planner {
        places: places(&running.listeners, &desired.listeners),
        running,
        desired,
        phases: Default::default(),
        refused: Vec::new(),
    };
    plan.listeners();
    plan.volumes();
    plan.file_systems();
    plan.kerberos();
    plan.exports();
    plan.nbd_exports();
    plan.subsystems();
    plan.targets();
    if running.iscsi_discovery != desired.iscsi_discovery {
        let set = |config: &Config| Change::SetDiscoveryAuth(config.iscsi_discovery.clone());
        let text = "what initiators prove in discovery changes".to_owned();
        plan.add(Phase::Set, set(desired), Some(set(running)), text);
    }
    if running.referrals != desired.referrals {
        let set = |config: &Config| Change::SetReferrals(config.referrals.clone());
        let text = "the referrals of discovery change".to_owned();
        plan.add(Phase::Set, set(desired), Some(set(running)), text);
    }
    if running.psk_compat != desired.psk_compat {
        let set = |config: &Config| Change::SetPskCompat(config.psk_compat);
        let text = policy::psk_compat_text(desired.psk_compat).to_owned();
        plan.add(Phase::Set, set(desired), Some(set(running)), text);
    }
    if running.quotas != desired.quotas {
        let set = |config: &Config| Change::SetQuotas(config.quotas.clone());
        let text = quotas_text(&running.quotas, &desired.quotas);
        plan.add(Phase::Set, set(desired), Some(set(running)), text);
    }
    plan.rate_limits();
    plan.connection_policies();
    if running.snapshot_schedules != desired.snapshot_schedules {
        let set = |config: &Config| Change::SetSnapshotSchedules(config.snapshot_schedules.clone());
        let text = "the schedules of snapshots change; snapshots that there are stay".to_owned();
        plan.add(Phase::Set, set(desired), Some(set(running)), text);
    }
    if faults::is(Fault::ListenEarly) {
        let listeners = std::mem::take(&mut plan.phases[Phase::AddListeners as usize]);
        plan.phases[Phase::RemoveListeners as usize].extend(listeners);
    }
    match plan.refused.is_empty() {
        true => Ok(plan.phases.into_iter().flatten().collect()),
        false => Err(plan.refused),
    }
}

/// Which quotas come, go and change.
fn quotas_text(running: &[QuotaSpec], desired: &[QuotaSpec]) -> String {
    let text = pairs(running, desired, |spec| &spec.name);
    let text = text.filter_map(|pair| match pair {
        Counterpart::Gone(old) => Some(format!("\"{}\" goes", old.name)),
        Counterpart::New(new) => Some(format!("\"{}\" comes", new.name)),
        Counterpart::Both(old, new) if old != new => Some(format!("\"{}\" changes", new.name)),
        Counterpart::Both(..) => None,
    });
    let text: Vec<String> = text.collect();
    match text.is_empty() {
        true => "quotas: their order changes".to_owned(),
        false => format!("quotas: {}; what is there stays", text.join(", ")),
    }
}

/// In order: what is taken away leaves names, files and ports to what is added. Hosts
/// come in by a listener only before others may do more, or after they may do less, so
/// that none may do what neither document allows.
#[derive(Clone, Copy)]
enum Phase {
    RemoveListeners,
    /// Exports, logical units, namespaces.
    Unplace,
    RemoveTargets,
    RemoveSubsystems,
    /// What can be opened again: volumes, file systems.
    Close,
    /// Volumes, file systems.
    Open,
    Set,
    AddSubsystems,
    AddTargets,
    /// Exports, logical units, namespaces.
    Place,
    AddListeners,
    /// What cannot be undone: hosts may use what a volume has more.
    Grow,
    /// Likewise: what is in memory is lost.
    Forget,
}

const PHASES: usize = Phase::Forget as usize + 1;

struct Planner<'c> {
    running: &'c Config,
    desired: &'c Config,
    /// For each listener of the running document its place in the desired one.
    places: Vec<Option<u16>>,
    phases: [Vec<PlannedChange>; PHASES],
    refused: Vec<String>,
}

/// For each listener of `running` the place of the one in `desired` that has its number:
/// what is spoken there is the same.
fn places(running: &[ListenerSpec], desired: &[ListenerSpec]) -> Vec<Option<u16>> {
    let key = |spec: &ListenerSpec| (spec.address, spec.protocol);
    let place = |spec| desired.iter().position(|other| key(other) == key(spec));
    let places = running.iter().map(place);
    places.map(|at| at.map(|at| at as u16)).collect()
}

/// Settings of `desired` that hold from the next start on, a line each.
pub fn at_restart(running: &Config, desired: &Config) -> Vec<String> {
    // Every field is named, so that a new one is either planned or told here; as in
    // [`until_restart`].
    let Config {
        volumes: _,
        subsystems: _,
        iscsi_targets: _,
        iscsi_discovery: _,
        file_systems: _,
        quotas: _,
        exports: _,
        nbd_exports: _,
        nbd_tls,
        listeners: _,
        referrals: _,
        psk_compat: _,
        rate_limits: _,
        connection_policies: _,
        snapshot_schedules: _,
        // Of the next start.
        start: _,
        nfs,
        cpus,
        backend,
        spin_us_max,
        placement,
        memory_max,
        zero_copy_min_bytes,
        registered_min_bytes,
        fast_path,
        admin,
        limits,
    } = running;
    let are_same = [
        ("[policy] cpus", *cpus == desired.cpus),
        ("[policy] io", *backend == desired.backend),
        ("[policy] spin_us_max", *spin_us_max == desired.spin_us_max),
        ("[policy] placement", *placement == desired.placement),
        ("[policy] memory_max", *memory_max == desired.memory_max),
        (
            "[policy] zero_copy_min_bytes",
            *zero_copy_min_bytes == desired.zero_copy_min_bytes,
        ),
        (
            "[policy] registered_min_bytes",
            *registered_min_bytes == desired.registered_min_bytes,
        ),
        ("[policy] fast_path", *fast_path == desired.fast_path),
        (
            "a limit or the digests of [nvme], or [iscsi] io_bytes_max",
            *limits == desired.limits,
        ),
        ("[admin] socket", admin.socket == desired.admin.socket),
        ("[admin] listen", admin.listen == desired.admin.listen),
        ("[admin] state", admin.state == desired.admin.state),
        ("[nbd.tls]", *nbd_tls == desired.nbd_tls),
        ("[admin.tls]", admin.tls == desired.admin.tls),
        (
            "a setting of [nfs]",
            *nfs == with_kerberos_of(&desired.nfs, nfs),
        ),
    ];
    let differing = are_same.into_iter().filter(|(_, is_same)| !is_same);
    differing
        .map(|(name, _)| format!("{name} changes at the next start"))
        .collect()
}

/// A document with the settings that hold until the next start.
pub fn until_restart(desired: Config, running: &Config) -> Config {
    Config {
        volumes: desired.volumes,
        subsystems: desired.subsystems,
        iscsi_targets: desired.iscsi_targets,
        iscsi_discovery: desired.iscsi_discovery,
        file_systems: desired.file_systems,
        quotas: desired.quotas,
        exports: desired.exports,
        nbd_exports: desired.nbd_exports,
        listeners: desired.listeners,
        referrals: desired.referrals,
        psk_compat: desired.psk_compat,
        rate_limits: desired.rate_limits,
        connection_policies: desired.connection_policies,
        snapshot_schedules: desired.snapshot_schedules,
        start: desired.start,
        nfs: with_kerberos_of(&running.nfs, &desired.nfs),
        ..running.clone()
    }
}

/// Settings of NFS, but for those of Kerberos, which change while clients are connected.
fn with_kerberos_of(nfs: &NfsSettings, other: &NfsSettings) -> NfsSettings {
    NfsSettings {
        kerberos: other.kerberos.clone(),
        ..nfs.clone()
    }
}

impl Planner<'_> {
    fn add(&mut self, phase: Phase, change: Change, undo: Option<Change>, text: String) {
        let disturbs = disturbs(&change, undo.as_ref(), &self.places);
        let step = PlannedChange {
            change,
            undo,
            text,
            disturbs,
        };
        self.phases[phase as usize].push(step);
    }

    fn refuse(&mut self, text: String) {
        self.refused.push(text);
    }

    fn listeners(&mut self) {
        let (running, desired) = (self.running, self.desired);
        for spec in &running.listeners {
            if desired.listeners.contains(spec) {
                continue;
            }
            let address = spec.address;
            let spoken = spec.spoken();
            let text = format!("listener {address} ({spoken}) is removed: connections by it end");
            let undo = Some(Change::AddListener(spec.clone()));
            let change = Change::RemoveListener { address };
            self.add(Phase::RemoveListeners, change, undo, text);
        }
        for spec in &desired.listeners {
            if running.listeners.contains(spec) {
                continue;
            }
            let address = spec.address;
            let text = format!("listener {address} ({}) is added", spec.spoken());
            let undo = Some(Change::RemoveListener { address });
            let change = Change::AddListener(spec.clone());
            self.add(Phase::AddListeners, change, undo, text);
        }
    }

    /// Keys are there before an export asks for what they prove, and until none does.
    fn kerberos(&mut self) {
        let (from, to) = (&self.running.nfs.kerberos, &self.desired.nfs.kerberos);
        if from == to {
            return;
        }
        let (phase, text) = match (from, to) {
            (_, None) => (Phase::AddListeners, "NFS clients can use Kerberos no more"),
            (None, _) => (Phase::Open, "NFS clients can use Kerberos"),
            _ => (
                Phase::Open,
                "the keys or the realm of NFS clients' Kerberos change",
            ),
        };
        let change = Change::SetKerberos(to.clone());
        let undo = Some(Change::SetKerberos(from.clone()));
        self.add(phase, change, undo, text.to_owned());
    }

    /// All that hosts may do more comes under limits before, and what they may do no more after.
    fn rate_limits(&mut self) {
        let (running, desired) = (&self.running.rate_limits, &self.desired.rate_limits);
        let in_desired = |limit: &RateLimit| {
            let listeners = self.in_desired(&limit.listeners)?;
            Some(RateLimit {
                listeners,
                ..limit.clone()
            })
        };
        let before: Option<Vec<RateLimit>> = running.iter().map(in_desired).collect();
        let by_number = |limit: &RateLimit| RateLimit {
            listeners: sorted(&limit.listeners),
            ..limit.clone()
        };
        let after: Vec<RateLimit> = desired.iter().map(by_number).collect();
        if before.as_ref() == Some(&after) {
            return;
        }
        let text = pairs(running, desired, |limit| &limit.name);
        let text = text.filter_map(|pair| match pair {
            Counterpart::Gone(old) => Some(format!("\"{}\" goes", old.name)),
            Counterpart::New(new) => Some(format!("\"{}\" comes", new.name)),
            Counterpart::Both(old, new) if in_desired(old).as_ref() != Some(&by_number(new)) => {
                Some(format!("\"{}\" changes", new.name))
            }
            Counterpart::Both(..) => None,
        });
        let text: Vec<String> = text.collect();
        let text = match text.is_empty() {
            true => "limits: their order changes".to_owned(),
            false => format!("limits: {}, for what waits too", text.join(", ")),
        };
        let change = Change::SetRateLimits(desired.clone());
        let undo = Change::SetRateLimits(running.clone());
        self.add(Phase::Open, change, Some(undo), text);
    }

    /// Listeners come after them, so that what connects there is theirs.
    fn connection_policies(&mut self) {
        let running = &self.running.connection_policies;
        let desired = &self.desired.connection_policies;
        let in_desired = |policy: &ConnectionPolicy| {
            let listeners = self.in_desired(&policy.listeners)?;
            Some(ConnectionPolicy {
                listeners,
                ..policy.clone()
            })
        };
        let before: Option<Vec<ConnectionPolicy>> = running.iter().map(in_desired).collect();
        let by_number = |policy: &ConnectionPolicy| ConnectionPolicy {
            listeners: sorted(&policy.listeners),
            ..policy.clone()
        };
        let after: Vec<ConnectionPolicy> = desired.iter().map(by_number).collect();
        if before.as_ref() == Some(&after) {
            return;
        }
        let change = Change::SetConnectionPolicies(desired.clone());
        let undo = Change::SetConnectionPolicies(running.clone());
        let text = "connections go by other policies from now on; those that there are stay";
        self.add(Phase::Open, change, Some(undo), text.to_owned());
    }

    fn volumes(&mut self) {
        let (running, desired) = (self.running, self.desired);
        let pairs = pairs(&running.volumes, &desired.volumes, |spec| &spec.name);
        let left = legs_that_go(&running.volumes, &desired.volumes);
        for pair in pairs {
            match pair {
                Counterpart::Gone(spec) => {
                    let name = spec.name.clone();
                    let is_leg = left.contains(&&spec.name);
                    let text = match spec.kind.is_memory() {
                        true => format!("volume \"{name}\" is removed, and what is in it"),
                        false => format!("volume \"{name}\" is closed; its data stays"),
                    };
                    let change = Change::RemoveVolume { name };
                    let undo = || Some(Change::AddVolume(spec.clone()));
                    match spec.kind.is_memory() {
                        true => self.add(Phase::Forget, change, None, text),
                        // Its mirror has another by then.
                        false if is_leg => self.add(Phase::Forget, change, undo(), text),
                        false => self.add(Phase::Close, change, undo(), text),
                    }
                }
                Counterpart::New(spec) => {
                    let name = spec.name.clone();
                    let text = format!("volume \"{name}\" is added");
                    let undo = Some(Change::RemoveVolume { name });
                    self.add(Phase::Open, Change::AddVolume(spec.clone()), undo, text);
                }
                Counterpart::Both(old, new) => self.volume(old, new),
            }
        }
        // What is made of others stands behind them, and goes before them.
        self.phases[Phase::Close as usize].reverse();
    }

    fn file_systems(&mut self) {
        let (running, desired) = (self.running, self.desired);
        let pairs = pairs(&running.file_systems, &desired.file_systems, |s| &s.name);
        for pair in pairs {
            match pair {
                Counterpart::Gone(spec) => self.close_file_system(spec),
                Counterpart::New(spec) => {
                    let name = spec.name.clone();
                    let text = format!("file system \"{name}\" is added");
                    let undo = Some(Change::RemoveFileSystem { name });
                    let change = Change::AddFileSystem(spec.clone());
                    self.add(Phase::Open, change, undo, text);
                }
                Counterpart::Both(old, new) if old == new => {}
                Counterpart::Both(_, new) => self.refuse(format!(
                    "file system \"{}\" changes at a restart alone",
                    new.name
                )),
            }
        }
    }

    fn close_file_system(&mut self, spec: &FileSystemSpec) {
        let name = spec.name.clone();
        let change = Change::RemoveFileSystem { name: name.clone() };
        match spec.kind {
            FileSystemKind::Mem { .. } => {
                let text = format!("file system \"{name}\" is removed, and what is in it");
                self.add(Phase::Forget, change, None, text);
            }
            FileSystemKind::Dir { .. } => {
                let text = format!("file system \"{name}\" is closed; its files stay");
                let undo = Some(Change::AddFileSystem(spec.clone()));
                self.add(Phase::Close, change, undo, text);
            }
        }
    }

    fn exports(&mut self) {
        let (running, desired) = (self.running, self.desired);
        for pair in pairs(&running.exports, &desired.exports, |spec| &spec.path) {
            match pair {
                Counterpart::Gone(spec) => self.remove_export(spec),
                Counterpart::New(spec) => self.add_export(spec),
                Counterpart::Both(old, new) if old == new => {}
                Counterpart::Both(old, new) if old.what.file_system() == new.what.file_system() => {
                    let set = |spec: &ExportSpec| Change::SetExport(spec.clone());
                    let path = &new.path;
                    let text = match old.what == new.what {
                        true => format!("export {path}: its clients change"),
                        false => format!("export {path}: it refers clients to other servers"),
                    };
                    self.add(Phase::Set, set(new), Some(set(old)), text);
                }
                Counterpart::Both(old, new) => {
                    self.remove_export(old);
                    self.add_export(new);
                }
            }
        }
    }

    fn remove_export(&mut self, spec: &ExportSpec) {
        let path = spec.path.clone();
        let text = match spec.what {
            Exported::FileSystem(_) => {
                format!("export {path} is removed: clients lose what they have open there")
            }
            Exported::Referral(_) => format!("export {path} is removed: it refers no client"),
        };
        let undo = Some(Change::AddExport(spec.clone()));
        self.add(Phase::Unplace, Change::RemoveExport { path }, undo, text);
    }

    fn add_export(&mut self, spec: &ExportSpec) {
        let path = spec.path.clone();
        let text = format!("export {path} is added");
        let undo = Some(Change::RemoveExport { path });
        self.add(Phase::Place, Change::AddExport(spec.clone()), undo, text);
    }

    fn subsystems(&mut self) {
        let (running, desired) = (self.running, self.desired);
        for pair in pairs(&running.subsystems, &desired.subsystems, |spec| &spec.nqn) {
            match pair {
                Counterpart::Gone(spec) => {
                    let nqn = spec.nqn.clone();
                    let text = format!("subsystem {nqn} is removed: its controllers end");
                    let undo = Some(Change::AddSubsystem(spec.clone()));
                    let change = Change::RemoveSubsystem { nqn };
                    self.add(Phase::RemoveSubsystems, change, undo, text);
                }
                Counterpart::New(spec) => {
                    let nqn = spec.nqn.clone();
                    let text = format!("subsystem {nqn} is added");
                    let undo = Some(Change::RemoveSubsystem { nqn });
                    let change = Change::AddSubsystem(spec.clone());
                    self.add(Phase::AddSubsystems, change, undo, text);
                }
                Counterpart::Both(old, new) => self.subsystem(old, new),
            }
        }
    }

    fn subsystem(&mut self, old: &SubsystemSpec, new: &SubsystemSpec) {
        let nqn = &new.nqn;
        let fixed = |spec: &SubsystemSpec| {
            let SubsystemSpec { serial, model, .. } = spec.clone();
            (serial, model, spec.cntlids.clone())
        };
        if fixed(old) != fixed(new) {
            self.refuse(format!(
                "subsystem {nqn}: its serial, model and cntlids change at a restart alone"
            ));
        }
        let mut changes = Vec::new();
        if !has_same_names(&old.hosts, &new.hosts) {
            let hosts = told(new.hosts.as_deref(), "may connect");
            changes.push(format!("{hosts}, controllers of other hosts end"));
        }
        changes.extend(changed_terms(&old.terms, &new.terms));
        if old.dhchap != new.dhchap {
            changes.push("its hosts authenticate by other hashes or groups".to_owned());
        }
        let was_reached = old.listeners.as_deref().map(|old| self.in_desired(old));
        if was_reached != new.listeners.as_deref().map(|new| Some(sorted(new))) {
            changes.push("its listeners change, controllers by others end".to_owned());
        }
        let sets_ana = !self.has_same_states(&old.ana_groups, &new.ana_groups);
        if sets_ana {
            changes.push("its ANA states change, its hosts are told".to_owned());
        }
        // What is in both documents, as it is in each.
        let (mut before, mut after) = (without_namespaces(old), without_namespaces(new));
        let number = |spec: &NamespaceSpec| spec.nsid;
        for pair in pairs(&old.namespaces, &new.namespaces, number) {
            match pair {
                Counterpart::Gone(old) => self.remove_namespace(nqn, old),
                Counterpart::New(new) => self.add_namespace(nqn, new),
                Counterpart::Both(old, new) if is_same_namespace(old, new) => {}
                Counterpart::Both(old, new) if old.volume == new.volume => {
                    let hosts = told(new.hosts.as_deref(), "see it");
                    let (nsid, group) = (new.nsid, new.ana_group);
                    changes.push(format!("namespace {nsid}: {hosts}, ANA group {group}"));
                    before.namespaces.push(old.clone());
                    after.namespaces.push(new.clone());
                }
                Counterpart::Both(old, new) => {
                    self.remove_namespace(nqn, old);
                    self.add_namespace(nqn, new);
                }
            }
        }
        if !changes.is_empty() {
            let text = format!("subsystem {nqn}: {}", changes.join("; "));
            let set = |spec| Change::SetSubsystem { spec, sets_ana };
            self.add(Phase::Set, set(after), Some(set(before)), text);
        }
    }

    fn remove_namespace(&mut self, nqn: &str, spec: &NamespaceSpec) {
        let (nqn, nsid) = (nqn.to_owned(), spec.nsid);
        let text = format!("namespace {nsid} of {nqn} is removed: its hosts are told");
        let undo = Change::AddNamespace {
            nqn: nqn.clone(),
            namespace: spec.clone(),
        };
        let change = Change::RemoveNamespace { nqn, nsid };
        self.add(Phase::Unplace, change, Some(undo), text);
    }

    fn add_namespace(&mut self, nqn: &str, spec: &NamespaceSpec) {
        let (nqn, nsid) = (nqn.to_owned(), spec.nsid);
        let text = format!("namespace {nsid} of {nqn} is added: its hosts are told");
        let undo = Change::RemoveNamespace {
            nqn: nqn.clone(),
            nsid,
        };
        let namespace = spec.clone();
        let change = Change::AddNamespace { nqn, namespace };
        self.add(Phase::Place, change, Some(undo), text);
    }

    fn targets(&mut self) {
        let (running, desired) = (self.running, self.desired);
        let name = |spec: &IscsiTargetSpec| spec.target.name.clone();
        for pair in pairs(&running.iscsi_targets, &desired.iscsi_targets, name) {
            match pair {
                Counterpart::Gone(spec) => {
                    let name = name(spec);
                    let text = format!("target {name} is removed: its sessions end");
                    let undo = Some(Change::AddTarget(spec.clone()));
                    let change = Change::RemoveTarget { name };
                    self.add(Phase::RemoveTargets, change, undo, text);
                }
                Counterpart::New(spec) => {
                    let name = name(spec);
                    let text = format!("target {name} is added");
                    let undo = Some(Change::RemoveTarget { name });
                    self.add(
                        Phase::AddTargets,
                        Change::AddTarget(spec.clone()),
                        undo,
                        text,
                    );
                }
                Counterpart::Both(old, new) => self.target(old, new),
            }
        }
    }

    fn target(&mut self, old: &IscsiTargetSpec, new: &IscsiTargetSpec) {
        let name = &new.target.name;
        if old.space_warning_bytes != new.space_warning_bytes {
            self.refuse(format!(
                "target {name}: its space_warning changes at a restart alone"
            ));
        }
        let (from, to) = match (&old.ana, &new.ana) {
            (Ana::Own(old), Ana::Own(new)) => (&old[..], &new[..]),
            (old, new) => {
                if old != new {
                    self.refuse(format!(
                        "target {name}: whose ANA states it has changes at a restart alone"
                    ));
                }
                (&[][..], &[][..])
            }
        };
        let opened = self.close_paths(name, from, to);
        let redirected = self.target_in_desired(&Target {
            redirect: new.target.redirect.clone(),
            ..old.target.clone()
        });
        if redirected != Some(sorted_target(&new.target)) {
            let text = format!("target {name} changes: sessions that it would refuse end");
            let set = |spec: &IscsiTargetSpec| Change::SetTarget(spec.target.clone());
            self.add(Phase::Set, set(new), Some(set(old)), text);
        } else if old.target.redirect != new.target.redirect {
            let set = |spec: &IscsiTargetSpec| Change::SetRedirect {
                name: name.clone(),
                redirect: spec.target.redirect.clone(),
            };
            let text = match new.target.redirect {
                Some(_) => format!("target {name}: initiators are sent elsewhere"),
                None => format!("target {name}: initiators are sent elsewhere no more"),
            };
            self.add(Phase::Set, set(new), Some(set(old)), text);
        }
        if let Some(before) = opened {
            self.target_ana(name, to, &before);
        }
        for pair in pairs(&old.luns, &new.luns, |spec| spec.lun) {
            match pair {
                Counterpart::Gone(old) => self.remove_lun(name, old),
                Counterpart::New(new) => self.add_lun(name, new),
                Counterpart::Both(old, new) if old == new => {}
                Counterpart::Both(old, new) => {
                    self.remove_lun(name, old);
                    self.add_lun(name, new);
                }
            }
        }
    }

    fn remove_lun(&mut self, name: &str, spec: &LunSpec) {
        let (name, number) = (name.to_owned(), spec.lun);
        let text = format!("LUN {number} of {name} is removed: its initiators are told");
        let undo = Change::AddLun {
            name: name.clone(),
            lun: spec.clone(),
        };
        let change = Change::RemoveLun { name, lun: number };
        self.add(Phase::Unplace, change, Some(undo), text);
    }

    fn add_lun(&mut self, name: &str, spec: &LunSpec) {
        let (name, number) = (name.to_owned(), spec.lun);
        let text = format!("LUN {number} of {name} is added: its initiators are told");
        let undo = Change::RemoveLun {
            name: name.clone(),
            lun: number,
        };
        let lun = spec.clone();
        self.add(Phase::Place, Change::AddLun { name, lun }, Some(undo), text);
    }

    /// Paths of a target close before other initiators may use it, and open after those that
    /// may not any more are gone: what the states are before they do, where some open.
    fn close_paths(
        &mut self,
        name: &str,
        old: &[AnaGroup],
        new: &[AnaGroup],
    ) -> Option<Vec<AnaGroup>> {
        if self.has_same_states(old, new) {
            return None;
        }
        let ids = old.iter().chain(new).map(|group| group.id);
        let ids: BTreeSet<u32> = ids.collect();
        let staying = (0..).zip(&self.places);
        let staying = staying.filter_map(|(at, place)| Some((at, (*place)?)));
        let staying: Vec<(u16, u16)> = staying.collect();
        let (mut closes, mut opens) = (false, false);
        let (mut running, mut desired) = (Vec::new(), Vec::new());
        for id in ids {
            let find = |groups: &[AnaGroup]| {
                let group = groups.iter().find(|group| group.id == id);
                let unnamed = || AnaGroup {
                    id,
                    ..AnaGroup::default()
                };
                group.cloned().unwrap_or_else(unnamed)
            };
            let (old, new) = (find(old), find(new));
            let (mut before, mut after) = (old.clone(), old.clone());
            after.on.clear();
            for &(at, place) in &staying {
                let (from, to) = (old.state_on(at), new.state_on(place));
                let state = if to.is_accessible() { from } else { to };
                closes |= from.is_accessible() && !to.is_accessible();
                opens |= !from.is_accessible() && to.is_accessible();
                before.set_state(Some(at), state);
                after.set_state(Some(place), state);
            }
            running.push(before);
            desired.push(after);
        }
        match (closes, opens) {
            (true, true) => self.target_ana(name, &desired, old),
            (false, true) => running = old.to_vec(),
            (_, false) => self.target_ana(name, new, old),
        }
        opens.then_some(running)
    }

    /// Sets the states of a target, and back to those before.
    fn target_ana(&mut self, name: &str, states: &[AnaGroup], before: &[AnaGroup]) {
        let set = |groups: &[AnaGroup]| Change::SetTargetAna {
            name: name.to_owned(),
            groups: groups.to_vec(),
        };
        let text = format!("ANA states of {name} change: its initiators are told");
        self.add(Phase::Set, set(states), Some(set(before)), text);
    }

    fn has_same_states(&self, old: &[AnaGroup], new: &[AnaGroup]) -> bool {
        self.states(old, |at| self.places[usize::from(at)]) == self.states(new, Some)
    }

    /// The states of groups, by the places of their listeners in the desired document;
    /// listeners that go have none.
    fn states(
        &self,
        groups: &[AnaGroup],
        place: impl Fn(u16) -> Option<u16>,
    ) -> BTreeSet<(u32, Option<u16>, &'static str)> {
        let name = |state| {
            let known = ANA_STATES.iter().find(|(_, known)| *known == state);
            known.map_or("", |(name, _)| *name)
        };
        let states = groups.iter().flat_map(|group| {
            let on = group.on.iter().map(|(at, state)| (place(*at), *state));
            let on = on.map(|(at, state)| (group.id, at.or(Some(u16::MAX)), name(state)));
            on.chain([(group.id, None, name(group.state))])
        });
        states.collect()
    }

    /// Places in the running document as places in the desired one, in order; `None`:
    /// a listener that goes.
    fn in_desired(&self, running: &[u16]) -> Option<Vec<u16>> {
        let places = running.iter().map(|&at| self.places[usize::from(at)]);
        let places: Option<Vec<u16>> = places.collect();
        places.map(|places| sorted(&places))
    }

    /// A target of the running document as the desired one would have it; `None`: it
    /// names a listener that goes.
    fn target_in_desired(&self, target: &Target) -> Option<Target> {
        let groups = target.portal_groups.iter().map(|group| {
            let portals = self.in_desired(&group.portals)?;
            Some(PortalGroup {
                portals,
                ..group.clone()
            })
        });
        Some(Target {
            portal_groups: groups.collect::<Option<_>>()?,
            ..target.clone()
        })
    }
}

/// Whether lists have the same names: their order means nothing.
fn has_same_names(old: &Option<Vec<String>>, new: &Option<Vec<String>>) -> bool {
    let names = |list: &Option<Vec<String>>| -> Option<BTreeSet<String>> {
        list.as_ref().map(|list| list.iter().cloned().collect())
    };
    old == new || names(old) == names(new)
}

fn is_same_namespace(old: &NamespaceSpec, new: &NamespaceSpec) -> bool {
    let renamed = NamespaceSpec {
        hosts: new.hosts.clone(),
        ..old.clone()
    };
    renamed == *new && has_same_names(&old.hosts, &new.hosts)
}

/// Which hosts are held to something else, if any are, and what of it does not hold for those that
/// are here: keys that they had before hold for their connections.
fn changed_terms(old: &[HostTerms], new: &[HostTerms]) -> Option<String> {
    let of_host = |all: &[HostTerms], nqn: &str| {
        let found = all.iter().find(|terms| terms.nqn == nqn);
        found.cloned().unwrap_or_else(|| HostTerms::new(nqn))
    };
    let names = old.iter().chain(new).map(|terms| &*terms.nqn);
    let names: BTreeSet<&str> = names.collect();
    let all = names.into_iter();
    let all = all.map(|nqn| (of_host(old, nqn), of_host(new, nqn)));
    let changed: Vec<_> = all.filter(|(old, new)| old != new).collect();
    if changed.is_empty() {
        return None;
    }
    let name = |terms: &HostTerms| match &*terms.nqn {
        HostTerms::ANY_HOST => host_name(terms),
        nqn => nqn.to_owned(),
    };
    let names: Vec<String> = changed.iter().map(|(_, new)| name(new)).collect();
    let mut text = told(Some(&names), "get other terms (`host`)");
    let changes_keys = |(old, new): &(HostTerms, HostTerms)| {
        let is_gone = |psk| !new.psks.contains(psk);
        let loses_secrets = old.dhchap.as_ref().is_some_and(|old| match &new.dhchap {
            None => true,
            Some(new) => {
                let is_gone = |secret| !new.host.contains(secret);
                old.controller != new.controller || old.host.iter().any(is_gone)
            }
        });
        loses_secrets || old.psks.iter().any(is_gone)
    };
    if changed.iter().any(changes_keys) {
        text += "; connections by former keys stay";
    }
    Some(text)
}

fn without_namespaces(spec: &SubsystemSpec) -> SubsystemSpec {
    SubsystemSpec {
        namespaces: Vec::new(),
        ..spec.clone()
    }
}

fn sorted_target(target: &Target) -> Target {
    let groups = target.portal_groups.iter().map(|group| PortalGroup {
        portals: sorted(&group.portals),
        ..group.clone()
    });
    Target {
        portal_groups: groups.collect(),
        ..target.clone()
    }
}

fn sorted(numbers: &[u16]) -> Vec<u16> {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    numbers
}

/// What two documents have under one name.
enum Counterpart<'c, T> {
    Gone(&'c T),
    New(&'c T),
    Both(&'c T, &'c T),
}

/// The names of volumes that are legs of mirrors which stay, and are theirs no more.
fn legs_that_go<'c>(running: &'c [Spec], desired: &[Spec]) -> Vec<&'c String> {
    let is_mirror = |spec: &&Spec| matches!(spec.kind.settings(), Settings::Mirror { .. });
    let legs = running.iter().filter(is_mirror).flat_map(|old| {
        let new = desired.iter().find(|new| new.name == old.name);
        let stay = new.map_or(old.kind.of(), |new| new.kind.of());
        let legs = old.kind.of().iter();
        legs.filter(|leg| !stay.contains(leg))
    });
    legs.collect()
}

/// What goes, in the order of `old`, then what comes or stays, in the order of `new`.
fn pairs<'c, T, K: Ord>(
    old: &'c [T],
    new: &'c [T],
    key: impl Fn(&'c T) -> K,
) -> impl Iterator<Item = Counterpart<'c, T>> {
    let mut left: BTreeMap<K, (usize, &T)> = BTreeMap::new();
    left.extend(
        old.iter()
            .enumerate()
            .map(|(at, one)| (key(one), (at, one))),
    );
    let there: Vec<Counterpart<T>> = (new.iter())
        .map(|new| match left.remove(&key(new)) {
            Some((_, old)) => Counterpart::Both(old, new),
            None => Counterpart::New(new),
        })
        .collect();
    let mut gone: Vec<(usize, &T)> = left.into_values().collect();
    gone.sort_by_key(|(at, _)| *at);
    let gone = gone.into_iter().map(|(_, old)| Counterpart::Gone(old));
    gone.chain(there)
}
