//! Documents: what a target is started with, random ones that it is to serve instead,
//! and whether what it serves is what one says.

use std::collections::BTreeMap;

use control::format_size;
use iscsi::InitiatorAcl;
use nvmf::command::AnaState;
use nvmf::{Advertise, AnaGroup, Referral};
use random::Random;
use server::nfs::{ExportSpec, Exported, FileSystemKind, FileSystemSpec, Rule};
use server::{
    Ana, Config, IscsiTargetSpec, Limits, ListenerSpec, LunSpec, NamespaceSpec, Placement,
    Protocol, Served, SubsystemSpec, default_portal_group,
};
use store::{Kind, Spec};

use crate::changes::host_nqn;
use crate::credentials;
use crate::limits;
use crate::nfs;
use crate::plan::Plan;
use crate::target::{
    Medium, address, initiator_name, iscsi_listener, listener, lun, namespace, nbd_export,
    nbd_portal, nfs_listener, rdma, subnqn, taken_address, target_name, volume_name,
};

/// Volumes, listeners and file systems that no host uses come and go.
const SPARES: usize = 2;
/// A volume that does not open.
pub const UNOPENED: &str = "unopened";
/// ANA groups that namespaces and logical units are in.
const GROUPS: u32 = 2;
/// A volume grows no more when it is so many times as large as it was.
const GROWN_MAX: u64 = 3;

/// The document in which all hosts have everything, with volumes as large as they are.
pub fn base(plan: &Plan, media: &[Medium]) -> Config {
    let subsystem = |subsystem: usize| {
        let mut spec = SubsystemSpec {
            nqn: subnqn(subsystem),
            serial: format!("SIM{subsystem}"),
            model: "simulated".into(),
            hosts: None,
            namespaces: (0..plan.volumes.len())
                .map(|volume| namespace(subsystem, volume))
                .collect(),
            ..SubsystemSpec::default()
        };
        credentials::hold_to_all(plan, &mut spec);
        spec
    };
    Config {
        volumes: (media.iter().enumerate())
            .map(|(n, medium)| medium.spec(n))
            .collect(),
        subsystems: (0..plan.subsystems).map(subsystem).collect(),
        iscsi_targets: vec![iscsi_target(plan)],
        nbd_exports: (0..plan.volumes.len())
            .filter(|_| plan.has_nbd())
            .map(nbd_export)
            .collect(),
        listeners: (0..plan.listeners)
            .map(|n| listener(plan, n))
            .chain([iscsi_listener()])
            .chain(plan.nfs.iter().map(|_| nfs_listener()))
            .chain(plan.has_nbd().then(|| ListenerSpec::nbd(nbd_portal())))
            .collect(),
        file_systems: plan.nfs.iter().map(|_| nfs::file_system()).collect(),
        exports: plan.nfs.iter().flat_map(|_| nfs::exports()).collect(),
        nfs: plan.nfs.as_ref().map(nfs::settings).unwrap_or_default(),
        referrals: Vec::new(),
        cpus: (0..plan.shards).collect(),
        backend: reactor::Choice::Auto,
        spin_us_max: 0,
        placement: Placement::LeastLoaded,
        memory_max: 1 << 30,
        zero_copy_min_bytes: None,
        registered_min_bytes: None,
        limits: Limits {
            io_bytes_max: plan.io_bytes_max,
            scsi_io_bytes_max: plan.io_bytes_max,
            in_capsule_bytes_max: plan.in_capsule_max,
            h2c_data_bytes_max: plan.h2c_data_max,
            cpda: plan.cpda,
            turn_units_max: plan.turn_units_max,
            ..Limits::default()
        },
        rate_limits: limits::of_plan(plan, 1),
        ..Config::default()
    }
}

fn iscsi_target(plan: &Plan) -> IscsiTargetSpec {
    let mut spec = IscsiTargetSpec::new(target_name());
    let volumes = 0..plan.volumes.len();
    spec.luns = volumes
        .map(|n| LunSpec::new(lun(n), volume_name(n)))
        .collect();
    let limits = &mut spec.target.limits;
    limits.queue_depth = plan.iscsi.queue_depth;
    limits.max_recv_data_segment_bytes = plan.iscsi.max_recv_data_segment;
    limits.first_burst_bytes = plan.iscsi.first_burst.min(plan.iscsi.max_burst);
    limits.max_burst_bytes = plan.iscsi.max_burst;
    limits.r2ts_max = plan.iscsi.r2ts_max;
    limits.connections_max = 4;
    spec
}

/// A document to be served, and whether a change on the way to it cannot be made.
pub struct Desired {
    /// The document.
    pub document: Config,
    /// A volume does not open, or a port is taken when it is to be listened on.
    pub fails: bool,
}

/// A random document, of what is in `base` and of spares.
pub fn random(plan: &Plan, base: &Config, r: &mut Random) -> Desired {
    let mut document = base.clone();
    listeners(plan, &mut document, r);
    volumes(plan, &mut document, r);
    let places = document.listeners.iter().zip(0..);
    let places: Vec<u16> = places
        .filter(|(spec, _)| spec.protocol == Protocol::NvmeTcp)
        .map(|(_, place)| place)
        .collect();
    document.subsystems.retain(|_| !r.one_in(8));
    for spec in &mut document.subsystems {
        subsystem(plan, spec, (&places, &document.volumes), r);
    }
    document.iscsi_targets.retain(|_| !r.one_in(8));
    for spec in &mut document.iscsi_targets {
        target(plan, spec, &document.volumes, r);
    }
    files(&mut document, r);
    if r.one_in(4) {
        let referral = Referral::new("198.51.100.7", r.pick(&[4420, 8009]));
        document.referrals.push(referral);
    }
    let fails = r.one_in(6);
    if fails {
        match r.one_in(2) {
            true => {
                let kind = Kind::file("/dev/null/none");
                let spec = Spec::new(UNOPENED, kind, 1 << 20, 512);
                document.volumes.push(spec);
            }
            false => document.listeners.push(taken_address().into()),
        }
    }
    Desired { document, fails }
}

/// Those that hosts use are mostly there; others come and go; their order is any.
fn listeners(plan: &Plan, document: &mut Config, r: &mut Random) {
    let listeners = &mut document.listeners;
    let stays = |spec: &ListenerSpec| matches!(spec.protocol, Protocol::Nfs | Protocol::Nbd);
    listeners.retain(|spec| stays(spec) || !r.one_in(6));
    for n in 0..SPARES {
        if r.one_in(3) {
            listeners.push(address(80 + n).into());
        }
    }
    for spec in listeners.iter_mut() {
        if !stays(spec) && r.one_in(6) {
            spec.advertise = Some(Advertise {
                host: "198.51.100.1".to_owned(),
                port: Some(spec.address.port()),
            });
        }
        if spec.protocol == Protocol::NvmeTcp && plan.has_credentials() && r.one_in(6) {
            spec.requires_tls = !spec.requires_tls;
            spec.rdma = rdma(spec.requires_tls);
        }
    }
    if r.one_in(2) {
        listeners.reverse();
    }
}

fn spare_name(n: usize) -> String {
    format!("spare{n}")
}

/// Volumes grow, and spares come and go, with any size.
fn volumes(plan: &Plan, document: &mut Config, r: &mut Random) {
    for (spec, plan) in document.volumes.iter_mut().zip(&plan.volumes) {
        let block_bytes = u64::from(plan.block_bytes);
        if r.one_in(4) && spec.size_bytes < GROWN_MAX * plan.blocks * block_bytes {
            spec.size_bytes += r.between(1, 32) * block_bytes;
        }
    }
    for n in 0..SPARES {
        if r.one_in(2) {
            let size_bytes = r.weighted(&[(1, 1 << 20), (3, 2 << 20)]);
            let spec = Spec::new(spare_name(n), Kind::RAM, size_bytes, 512);
            document.volumes.push(spec);
        }
    }
}

fn spares(volumes: &[Spec]) -> impl Iterator<Item = (usize, String)> {
    let is_there = |name: &String| volumes.iter().any(|spec| spec.name == *name);
    let all = (0..SPARES).map(|n| (n, spare_name(n)));
    let there: Vec<_> = all.filter(|(_, name)| is_there(name)).collect();
    there.into_iter()
}

/// Each of `all` or not; any (`None`) in half of the cases.
fn some_of<T: Clone>(all: &[T], r: &mut Random) -> Option<Vec<T>> {
    if r.one_in(2) {
        return None;
    }
    let some = all.iter().filter(|_| !r.one_in(4));
    Some(some.cloned().collect())
}

fn groups(places: &[u16], r: &mut Random) -> Vec<AnaGroup> {
    let mut groups = Vec::new();
    for id in 1..=GROUPS {
        if r.one_in(2) {
            continue;
        }
        let state = |r: &mut Random| {
            r.weighted(&[
                (2, AnaState::Optimized),
                (2, AnaState::NonOptimized),
                (1, AnaState::Inaccessible),
            ])
        };
        let on = places.iter().filter(|_| r.one_in(3));
        let on: Vec<u16> = on.copied().collect();
        groups.push(AnaGroup {
            id,
            state: state(r),
            on: on.into_iter().map(|place| (place, state(r))).collect(),
        });
    }
    groups
}

fn subsystem(
    plan: &Plan,
    spec: &mut SubsystemSpec,
    (places, volumes): (&[u16], &[Spec]),
    r: &mut Random,
) {
    let hosts: Vec<String> = (0..plan.hosts.len()).map(host_nqn).collect();
    spec.hosts = some_of(&hosts, r);
    credentials::hold_to_some(plan, spec, r);
    spec.listeners = some_of(places, r);
    spec.ana_groups = groups(places, r);
    spec.namespaces.retain(|_| !r.one_in(5));
    for (n, volume) in spares(volumes) {
        if r.one_in(2) {
            spec.namespaces.push(NamespaceSpec {
                nsid: 1000 + n as u32,
                volume,
                ..NamespaceSpec::default()
            });
        }
    }
    for namespace in &mut spec.namespaces {
        namespace.ana_group = r.between(1, GROUPS.into()) as u32;
        if r.one_in(4) {
            namespace.hosts = some_of(&hosts, r);
        }
    }
}

fn target(plan: &Plan, spec: &mut IscsiTargetSpec, volumes: &[Spec], r: &mut Random) {
    let named = |n: usize| InitiatorAcl {
        name: Some(initiator_name(n)),
        ..InitiatorAcl::default()
    };
    if r.one_in(2) {
        let all = (0..plan.hosts.len()).filter(|_| !r.one_in(3));
        let all: Vec<usize> = all.collect();
        spec.target.acl = all.into_iter().map(named).collect();
        for entry in &mut spec.target.acl {
            if r.one_in(4) {
                let seen = spec.luns.iter().filter(|_| !r.one_in(3));
                entry.luns = Some(seen.map(|spec| spec.lun).collect());
            }
        }
    }
    if r.one_in(3) {
        spec.target.alias = Some(r.pick(&["disks", "more disks"]).to_owned());
    }
    spec.luns.retain(|_| !r.one_in(5));
    for (n, volume) in spares(volumes) {
        if r.one_in(2) {
            spec.luns.push(LunSpec::new(700 + n as u16, volume));
        }
    }
    for lun in &mut spec.luns {
        lun.ana_group = r.weighted(&[(4, 1), (1, 2)]);
    }
    spec.ana = Ana::Own(groups(&[], r));
}

/// Exports that no client uses, and who might. Of a file system that comes and goes where
/// there is no NFS: the number of one is any, and clients would show that.
fn files(document: &mut Config, r: &mut Random) {
    if r.one_in(2) {
        return;
    }
    if document.file_systems.is_empty() {
        let kind = FileSystemKind::Mem {
            size_bytes: 1 << 20,
        };
        document.file_systems.push(FileSystemSpec {
            name: "spare".to_owned(),
            kind,
        });
    }
    let name = document.file_systems[0].name.clone();
    for path in ["/spare", "/spare too"] {
        if r.one_in(2) {
            continue;
        }
        let rules = (0..r.between(1, 2)).map(|_| Rule {
            is_read_only: r.one_in(2),
            anon_uid: r.pick(&[65_534, 1000]),
            ..Rule::default()
        });
        document.exports.push(ExportSpec {
            path: path.to_owned(),
            what: Exported::FileSystem(name.clone()),
            rules: rules.collect(),
        });
    }
}

/// The volumes of a document are as large as they are.
pub fn keep_sizes(document: &mut Config, media: &[Medium]) {
    for (n, medium) in media.iter().enumerate() {
        let mut volumes = document.volumes.iter_mut();
        if let Some(spec) = volumes.find(|spec| spec.name == volume_name(n)) {
            spec.size_bytes = medium.spec(n).size_bytes;
        }
    }
}

/// What a part of a document says, in words and order that do not depend on where
/// things stand in it.
type Said = BTreeMap<String, String>;

/// Where what is served is not what a document says, in words.
pub fn difference(served: &Served, document: &Config) -> Option<String> {
    let (served, said) = (said_by_target(served), said_by(document));
    let keys = served.keys().chain(said.keys());
    let mut different = keys.filter(|key| served.get(*key) != said.get(*key));
    let key = different.next()?;
    let word = |said: &Said| said.get(key).cloned().unwrap_or("nothing".to_owned());
    Some(format!(
        "{key} is served as {}, and the document says {}",
        word(&served),
        word(&said)
    ))
}

fn said_by_target(served: &Served) -> Said {
    let listeners: Vec<(u16, ListenerSpec)> = served.listeners.clone();
    let mut said = Said::new();
    said_of_listeners(&listeners, &mut said);
    for (name, size_bytes) in &served.volumes {
        said.insert(format!("volume {name}"), format_size(*size_bytes));
    }
    said_of_access(&served.subsystems, &served.targets, &listeners, &mut said);
    for name in &served.file_systems {
        said.insert(format!("file system {name}"), "there".to_owned());
    }
    said_of_exports(&served.exports, &mut said);
    said
}

fn said_by(document: &Config) -> Said {
    let listeners = (0..).zip(document.listeners.iter().cloned());
    let listeners: Vec<(u16, ListenerSpec)> = listeners.collect();
    let mut said = Said::new();
    said_of_listeners(&listeners, &mut said);
    for spec in &document.volumes {
        said.insert(
            format!("volume {}", spec.name),
            format_size(spec.size_bytes),
        );
    }
    let (subsystems, targets) = (&document.subsystems, &document.iscsi_targets);
    said_of_access(subsystems, targets, &listeners, &mut said);
    for spec in &document.file_systems {
        said.insert(format!("file system {}", spec.name), "there".to_owned());
    }
    said_of_exports(&document.exports, &mut said);
    said
}

fn said_of_listeners(listeners: &[(u16, ListenerSpec)], said: &mut Said) {
    for (_, spec) in listeners {
        said.insert(format!("listener {}", spec.address), format!("{spec:?}"));
    }
}

fn said_of_exports(exports: &[ExportSpec], said: &mut Said) {
    for spec in exports {
        said.insert(format!("export {}", spec.path), format!("{spec:?}"));
    }
}

fn said_of_access(
    subsystems: &[SubsystemSpec],
    targets: &[IscsiTargetSpec],
    listeners: &[(u16, ListenerSpec)],
    said: &mut Said,
) {
    let states = |groups: &[AnaGroup]| -> Vec<String> {
        let ids = 1..=GROUPS;
        let all = ids.flat_map(|id| {
            listeners
                .iter()
                .map(move |(number, spec)| (id, number, spec))
        });
        let mut all: Vec<String> = all
            .map(|(id, number, spec)| {
                let group = groups.iter().find(|group| group.id == id);
                let state = group.map_or(AnaState::default(), |group| group.state_on(*number));
                format!("{id} {} {state:?}", spec.address)
            })
            .collect();
        all.sort();
        all
    };
    let addresses = |numbers: &[u16]| -> Vec<String> {
        let there = listeners
            .iter()
            .filter(|(number, _)| numbers.contains(number));
        let mut all: Vec<String> = there.map(|(_, spec)| spec.address.to_string()).collect();
        all.sort();
        all
    };
    for spec in subsystems {
        let listeners = spec.listeners.as_deref().map(addresses);
        let states = states(&spec.ana_groups);
        let (nqn, hosts) = (&spec.nqn, &spec.hosts);
        let what = (&spec.serial, &spec.model, hosts, listeners, states);
        let what = (what, credentials::words_of(spec));
        said.insert(format!("subsystem {nqn}"), format!("{what:?}"));
        for spec in &spec.namespaces {
            said.insert(
                format!("namespace {} of {nqn}", spec.nsid),
                format!("{spec:?}"),
            );
        }
    }
    for spec in targets {
        let name = &spec.target.name;
        let mut target = spec.target.clone();
        let mut groups = std::mem::take(&mut target.portal_groups);
        if groups.is_empty() {
            groups = vec![default_portal_group(
                listeners.iter().map(|(number, spec)| (*number, spec)),
            )];
        }
        let groups = groups
            .iter()
            .map(|group| (group.tag, addresses(&group.portals)));
        let groups: Vec<_> = groups.collect();
        let ana = match &spec.ana {
            Ana::Own(groups) => states(groups),
            Ana::Subsystem(nqn) => vec![nqn.clone()],
        };
        let what = (target, groups, ana);
        said.insert(format!("target {name}"), format!("{what:?}"));
        for spec in &spec.luns {
            said.insert(format!("LUN {} of {name}", spec.lun), format!("{spec:?}"));
        }
    }
}
