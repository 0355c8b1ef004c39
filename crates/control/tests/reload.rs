//! A target that runs takes a new document: it serves then what a target serves that was
//! started with it, or what it served before.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use auth::Secret;
use control::{MadeChanges, Origin, ServedDocument, parse};
use nvmf::AnaGroup;
use nvmf::command::AnaState;
use proptest::prelude::*;
use server::{Ana, Change, Config, ListenerSpec, Protocol, Running, Served, Start, SubsystemSpec};
use store::{EncryptionSettings, Kind, Spec, WrappingKey};

/// What a document has, each at most once; a part that is `None` is not there.
#[derive(Clone, Debug)]
struct Parts {
    /// Of listener `n` on an address of its own: `advertise`.
    listeners: Vec<Option<bool>>,
    /// Of each volume its MiB.
    volumes: Vec<Option<u8>>,
    subsystems: Vec<Option<Host>>,
    targets: Vec<Option<Initiators>>,
    /// Of each file system whether it is read only where it is exported.
    exports: Vec<Option<(usize, bool)>>,
    /// Of each NBD export its volume, and whether it is read only.
    nbd_exports: Vec<Option<(usize, bool)>>,
    referral: bool,
    /// Whether each iSCSI listener is in a portal group of its own.
    portal_groups: bool,
}

/// What a subsystem has.
#[derive(Clone, Debug)]
struct Host {
    /// The host that may connect; any.
    host: Option<u8>,
    /// By places of listeners; those that are not there are left out.
    listeners: Option<Vec<usize>>,
    /// Volumes, with the host that sees the namespace and the ANA group.
    namespaces: Vec<Option<(Option<u8>, u8)>>,
    /// States of the groups, everywhere and on one listener.
    ana: Vec<(usize, usize)>,
}

/// What a target has.
#[derive(Clone, Debug)]
struct Initiators {
    initiator: Option<u8>,
    has_alias: bool,
    redirect: bool,
    /// Of its own: the second.
    portal_group: bool,
    luns: Vec<Option<u8>>,
    ana: usize,
}

/// NVMe/TCP at the first ones, then iSCSI, then NFS, then NBD.
const PROTOCOLS: [&str; 7] = [
    "nvme-tcp", "nvme-tcp", "nvme-tcp", "iscsi", "iscsi", "nfs", "nbd",
];
const VOLUMES: usize = 5;
const STATES: [&str; 3] = ["optimized", "non-optimized", "inaccessible"];

fn host() -> impl Strategy<Value = Host> {
    let namespace = prop::option::of((prop::option::of(0..2_u8), 1..3_u8));
    let reached = prop::option::of(prop::collection::vec(0..3_usize, 1..3));
    (
        prop::option::of(0..2_u8),
        reached,
        prop::collection::vec(namespace, VOLUMES),
        prop::collection::vec((0..3_usize, 0..3_usize), 2),
    )
        .prop_map(|(host, listeners, namespaces, ana)| Host {
            host,
            listeners,
            namespaces,
            ana,
        })
}

fn initiators() -> impl Strategy<Value = Initiators> {
    (
        prop::option::of(0..2_u8),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        prop::collection::vec(prop::option::of(1..3_u8), VOLUMES),
        0..3_usize,
    )
        .prop_map(
            |(initiator, has_alias, redirect, portal_group, luns, ana)| Initiators {
                initiator,
                has_alias,
                redirect,
                portal_group,
                luns,
                ana,
            },
        )
}

fn parts() -> impl Strategy<Value = Parts> {
    let some = prop::option::weighted::<BoxedStrategy<bool>>;
    let megabytes = prop_oneof![9 => Just(1_u8), 1 => Just(2)];
    (
        prop::collection::vec(some(0.8, any::<bool>().boxed()), PROTOCOLS.len()),
        prop::collection::vec(prop::option::weighted(0.8, megabytes), VOLUMES),
        prop::collection::vec(prop::option::of(host()), 2),
        prop::collection::vec(prop::option::of(initiators()), 2),
        prop::collection::vec(prop::option::of((0..2_usize, any::<bool>())), 2),
        prop::collection::vec(prop::option::of((0..VOLUMES, any::<bool>())), 2),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(listeners, volumes, subsystems, targets, exports, nbd_exports, referral, groups)| {
                Parts {
                    listeners,
                    volumes,
                    subsystems,
                    targets,
                    exports,
                    nbd_exports,
                    referral,
                    portal_groups: groups,
                }
            },
        )
}

/// Of listener `n`; no other process listens on addresses of this one.
fn address(n: usize, port: u16) -> String {
    let own = std::process::id().to_le_bytes();
    format!("127.{}.{}.{}:{port}", own[1], own[0], n + 1)
}

fn listener(n: usize, port: u16) -> ListenerSpec {
    let address: SocketAddr = address(n, port).parse().expect("one");
    address.into()
}

/// Of the target that takes documents, and of those that are started to compare: a
/// port may be taken for a moment after its target has ended.
fn ports() -> [u16; 2] {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    let first = NEXT.fetch_add(2, Ordering::Relaxed);
    [first, first + 1]
}

impl Parts {
    fn has_listener(&self, n: usize) -> bool {
        self.listeners[n].is_some()
    }

    /// As a file has it. Where a listener must be, and is not, something is left out.
    fn text(&self, port: u16) -> String {
        let mut text = String::from("[policy]\ncpus = \"0\"\nio = \"epoll\"\n");
        for (n, megabytes) in self.volumes.iter().enumerate() {
            if let Some(megabytes) = megabytes {
                let _ = write!(
                    text,
                    "[[volume]]\nname = \"v{n}\"\nkind = \"ram\"\nsize = \"{megabytes}MiB\"\n"
                );
            }
        }
        for n in 0..2 {
            let _ = write!(
                text,
                "[[file_system]]\nname = \"f{n}\"\nkind = \"mem\"\nsize = \"1MiB\"\n"
            );
        }
        if self.has_listener(5) {
            for (n, export) in self.exports.iter().enumerate() {
                if let Some((file_system, read_only)) = export {
                    let _ = write!(
                        text,
                        "[[export]]\npath = \"/e{n}\"\nfile_system = \"f{file_system}\"\n\
                         allow_any_client = true\nread_only = {read_only}\n"
                    );
                }
            }
        }
        if self.has_listener(6) {
            for (n, export) in self.nbd_exports.iter().enumerate() {
                if let Some((volume, read_only)) = export
                    && self.volumes[*volume].is_some()
                {
                    let _ = write!(
                        text,
                        "[[nbd_export]]\nname = \"n{n}\"\nvolume = \"v{volume}\"\n\
                         allow_any_client = true\nread_only = {read_only}\n"
                    );
                }
            }
        }
        let listeners = self.listeners.iter().enumerate();
        for (n, advertise) in listeners {
            let Some(advertise) = advertise else { continue };
            let (address, protocol) = (address(n, port), PROTOCOLS[n]);
            let _ = write!(
                text,
                "[[listener]]\naddress = \"{address}\"\nprotocol = \"{protocol}\"\n"
            );
            if *advertise && n < 5 {
                let _ = writeln!(text, "advertise = \"192.0.2.{n}:7\"");
            }
        }
        if (0..3).any(|n| self.has_listener(n)) {
            self.nvme(&mut text, port);
        }
        if (3..5).any(|n| self.has_listener(n)) {
            self.iscsi(&mut text, port);
        }
        text
    }

    fn nvme(&self, text: &mut String, port: u16) {
        if self.referral {
            *text += "[[nvme.referral]]\naddress = \"192.0.2.7:8009\"\n";
        }
        for (n, host) in self.subsystems.iter().enumerate() {
            let Some(host) = host else { continue };
            let namespaces = host.namespaces.iter().zip(&self.volumes).enumerate();
            let namespaces: Vec<_> = namespaces
                .filter_map(|(volume, (namespace, is_there))| {
                    is_there
                        .and(*namespace)
                        .map(|namespace| (volume, namespace))
                })
                .collect();
            if namespaces.is_empty() {
                continue;
            }
            let _ = writeln!(
                text,
                "[[nvme.subsystem]]\nnqn = \"nqn.2026-01.org.example:s{n}\""
            );
            *text += &match host.host {
                None => "allow_any_host = true\n".to_owned(),
                Some(host) => format!("hosts = [\"nqn.2026-01.org.example:h{host}\"]\n"),
            };
            let mut reached = host.listeners.clone().unwrap_or_default();
            reached.sort_unstable();
            reached.dedup();
            reached.retain(|n| self.has_listener(*n));
            if !reached.is_empty() {
                let list: Vec<_> = reached.iter().map(|n| address(*n, port)).collect();
                let _ = writeln!(text, "listeners = {list:?}");
            }
            for (volume, (sees, group)) in &namespaces {
                let _ = write!(
                    text,
                    "[[nvme.subsystem.namespace]]\nnsid = {}\nvolume = \"v{volume}\"\n\
                     ana_group = {group}\n",
                    volume + 1
                );
                if let Some(sees) = sees {
                    let _ = writeln!(text, "hosts = [\"nqn.2026-01.org.example:h{sees}\"]");
                }
            }
            for (group, (all, first)) in (1_u8..).zip(&host.ana) {
                if !namespaces.iter().any(|(_, (_, of))| *of == group) {
                    continue;
                }
                let ana = "[[nvme.subsystem.ana]]";
                let _ = writeln!(text, "{ana}\ngroup = {group}\nstate = \"{}\"", STATES[*all]);
                if self.has_listener(0) {
                    let (state, on) = (STATES[*first], address(0, port));
                    let _ = writeln!(
                        text,
                        "{ana}\ngroup = {group}\nstate = \"{state}\"\nlistener = \"{on}\""
                    );
                }
            }
        }
    }

    fn iscsi(&self, text: &mut String, port: u16) {
        for (tag, n) in (1..).zip(3..5) {
            if self.portal_groups && self.has_listener(n) {
                let on = address(n, port);
                let _ = writeln!(
                    text,
                    "[[iscsi.portal_group]]\ntag = {tag}\nlisteners = [\"{on}\"]"
                );
            }
        }
        for (n, target) in self.targets.iter().enumerate() {
            let Some(target) = target else { continue };
            let luns: Vec<_> = (target.luns.iter().zip(&self.volumes).enumerate())
                .filter_map(|(volume, (lun, is_there))| {
                    is_there.and(*lun).map(|group| (volume, group))
                })
                .collect();
            if luns.is_empty() {
                continue;
            }
            let _ = writeln!(
                text,
                "[[iscsi.target]]\nname = \"iqn.2026-01.org.example:t{n}\""
            );
            *text += &match target.initiator {
                None => "allow_any_initiator = true\n".to_owned(),
                Some(name) => format!("initiators = [\"iqn.2026-01.org.example:i{name}\"]\n"),
            };
            if target.has_alias {
                *text += "alias = \"an alias\"\n";
            }
            if target.redirect {
                *text += "redirect = \"192.0.2.9:3260\"\n";
            }
            if self.portal_groups && target.portal_group && self.has_listener(4) {
                *text += "portal_groups = [2]\n";
            }
            for (volume, group) in &luns {
                let _ = write!(
                    text,
                    "[[iscsi.target.lun]]\nlun = {volume}\nvolume = \"v{volume}\"\n\
                     ana_group = {group}\n"
                );
            }
            let group = luns[0].1;
            let state = STATES[target.ana];
            let _ = writeln!(
                text,
                "[[iscsi.target.ana]]\ngroup = {group}\nstate = \"{state}\""
            );
        }
    }

    /// `None`: it serves nothing.
    fn config(&self, port: u16) -> Option<Config> {
        let origin = Origin {
            folder: Path::new(""),
            access: None,
        };
        let text = self.text(port);
        match parse(&text, &origin, &reactor::affinity()) {
            Ok(config) => Some(config),
            Err(problems) => {
                let serves_nothing = ![
                    "[[nvme.sub",
                    "[[iscsi.target]]",
                    "[[export]]",
                    "[[nbd_export]]",
                ]
                .iter()
                .any(|table| text.contains(table));
                let unserved = problems.iter().all(|p| p.text.contains("listener"));
                assert!(serves_nothing || unserved, "{problems:?}\n{text}");
                None
            }
        }
    }
}

/// The same for what is the same to hosts: listeners by their addresses without the
/// ports, states by group and listener.
fn comparable(running: &Running) -> String {
    let Served {
        listeners,
        mut volumes,
        mut subsystems,
        mut targets,
        mut file_systems,
        mut exports,
        nbd_exports,
    } = running.served();
    let ip = |number: &u16| {
        let found = listeners.iter().find(|(known, _)| known == number);
        found.map(|(_, spec)| spec.address.ip().to_string())
    };
    let names = |numbers: &[u16]| {
        let mut names: Vec<_> = numbers.iter().filter_map(ip).collect();
        names.sort();
        names
    };
    let states = |groups: &[AnaGroup]| {
        let all = groups.iter().flat_map(|group| {
            let on = listeners.iter().map(move |(number, spec)| {
                let state = group.state_on(*number);
                (group.id, spec.address.ip().to_string(), state)
            });
            on.filter(|(.., state)| *state != AnaState::Optimized)
        });
        let mut all: Vec<_> = all.map(|state| format!("{state:?}")).collect();
        all.sort();
        all
    };
    let mut text = String::new();
    for subsystem in &mut subsystems {
        let reached = subsystem.listeners.take().map(|numbers| names(&numbers));
        let ana = states(&std::mem::take(&mut subsystem.ana_groups));
        let _ = writeln!(text, "{subsystem:?} {reached:?} {ana:?}");
    }
    for spec in &mut targets {
        let groups = std::mem::take(&mut spec.target.portal_groups);
        let reached: Vec<_> = (groups.iter())
            .map(|group| (group.tag, names(&group.portals)))
            .collect();
        let ana = match std::mem::take(&mut spec.ana) {
            Ana::Own(groups) => states(&groups),
            Ana::Subsystem(nqn) => vec![nqn],
        };
        let _ = writeln!(text, "{spec:?} {reached:?} {ana:?}");
    }
    volumes.sort();
    file_systems.sort();
    exports.sort_by(|a, b| a.path.cmp(&b.path));
    let mut open: Vec<_> = (listeners.iter())
        .map(|(_, spec)| (spec.address.ip(), spec.protocol, spec.advertise.clone()))
        .collect();
    open.sort_by_key(|(ip, ..)| *ip);
    let _ = writeln!(text, "{volumes:?}\n{file_systems:?}\n{exports:?}\n{open:?}");
    let _ = writeln!(text, "{nbd_exports:?}");
    text
}

/// What each host may do by each listener.
fn rights(running: &Running) -> BTreeSet<String> {
    let served = running.served();
    let mut rights = BTreeSet::new();
    for (number, listener) in &served.listeners {
        let ip = listener.address.ip();
        for host in 0..2 {
            let nqn = format!("nqn.2026-01.org.example:h{host}");
            let has = |hosts: &Option<Vec<String>>| hosts.as_ref().is_none_or(|h| h.contains(&nqn));
            let iqn = format!("iqn.2026-01.org.example:i{host}");
            let subsystems = served.subsystems.iter().filter(|spec| {
                let reached = spec.listeners.as_ref();
                has(&spec.hosts) && reached.is_none_or(|list| list.contains(number))
            });
            for subsystem in subsystems.filter(|_| listener.protocol == Protocol::NvmeTcp) {
                for namespace in subsystem.namespaces.iter().filter(|one| has(&one.hosts)) {
                    let groups = subsystem.ana_groups.iter();
                    let mut of_it = groups.filter(|group| group.id == namespace.ana_group);
                    let state = of_it.next().map(|group| group.state_on(*number));
                    if state.is_none_or(AnaState::is_accessible) {
                        let (of, nsid, volume) =
                            (&subsystem.nqn, namespace.nsid, &namespace.volume);
                        rights.insert(format!("{nqn} by {ip}: {of} {nsid} {volume}"));
                    }
                }
            }
            for spec in &served.targets {
                let group = spec.target.portal_group_of(*number);
                let entry = group.and_then(|group| spec.target.entry_of(&iqn, ip, group.tag));
                for lun in spec.luns.iter().filter(|_| entry.is_some()) {
                    let (of, number, volume) = (&spec.target.name, lun.lun, &lun.volume);
                    rights.insert(format!("{iqn} by {ip}: {of} {number} {volume}"));
                }
            }
        }
        for export in served
            .exports
            .iter()
            .filter(|_| listener.protocol == Protocol::Nfs)
        {
            rights.insert(format!("by {ip}: {export:?}"));
        }
        let exports = served.nbd_exports.iter();
        for export in exports.filter(|_| listener.protocol == Protocol::Nbd) {
            rights.insert(format!("by {ip}: {export:?}"));
        }
    }
    rights
}

fn start(config: &Config) -> Running {
    server::start(config.clone()).expect("starts")
}

fn apply(
    document: &mut ServedDocument,
    desired: Config,
    running: &Running,
    told: impl FnMut(&str),
) -> Result<MadeChanges, Vec<String>> {
    let plan = document.plan(desired, running)?;
    document.apply(plan, running, told)
}

fn stop(running: Running) {
    running.stop();
    let ended = running.wait(Duration::from_secs(20));
    assert!(ended.expect("in order").is_some(), "it has ended");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn target_that_takes_a_document_serves_what_one_that_starts_with_it_serves(
        before in parts(),
        after in parts(),
    ) {
        let ports = ports();
        let of = |parts: &Parts| ports.map(|port| parts.config(port));
        let ([Some(old), Some(old_fresh)], [Some(new), Some(new_fresh)]) = (of(&before), of(&after))
        else {
            return Ok(());
        };
        let running = start(&old);
        let mut document = ServedDocument::new(&old, &running);
        let turns = [(&new, &new_fresh), (&old, &old_fresh), (&new, &new_fresh)];
        for (config, alone) in turns {
            let before = comparable(&running);
            // A volume whose folder is not there: what was changed before is taken back.
            let mut broken = config.clone();
            let path = "no/such/folder/disk";
            let volume = store::Spec::new("broken", store::Kind::file(path), 1 << 20, 512);
            broken.volumes.push(volume);
            let refused = apply(&mut document, broken, &running, |_| ()).expect_err("there is no folder");
            prop_assert_eq!(comparable(&running), before.clone(), "{:?}", refused);
            if let Ok(plan) = document.plan(config.clone(), &running)
                && !plan.changes.iter().any(|step| matches!(step.change, Change::ResizeVolume { .. }))
            {
                let made = document.apply(plan, &running, |_| ()).expect("as before");
                prop_assert_eq!(document.take_back(made, &running), Vec::<String>::new());
                prop_assert_eq!(comparable(&running), before.clone());
            }
            let mut before_rights = rights(&running);
            let mut steps = Vec::new();
            let told = |text: &str| steps.push((text.to_owned(), rights(&running)));
            match apply(&mut document, config.clone(), &running, told) {
                Ok(_) => {
                    before_rights.append(&mut rights(&running));
                    for (text, rights) in steps {
                        let more: Vec<_> = rights.difference(&before_rights).collect();
                        prop_assert!(more.is_empty(), "{text}: neither document allows {more:?}");
                    }
                    let fresh = start(alone);
                    prop_assert_eq!(comparable(&running), comparable(&fresh));
                    stop(fresh);
                }
                Err(why) => {
                    let is_shrink = why.iter().all(|line| line.contains("would shrink"));
                    prop_assert!(is_shrink, "{why:?}\n{before}");
                    prop_assert_eq!(comparable(&running), before);
                }
            }
        }
        stop(running);
    }
}

/// What is served is then neither document, and is told to be.
#[test]
fn document_whose_change_cannot_be_taken_back_is_served_after_a_restart_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let [port, _] = ports();
    let volume = |name: &str, folder: &Path| {
        let path = folder.join(name);
        store::Spec::new(name, store::Kind::file(path), 1 << 20, 512)
    };
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).expect("a folder");
    let with = |volumes: Vec<store::Spec>| Config {
        volumes,
        cpus: vec![0],
        listeners: vec![listener(0, port)],
        ..Config::default()
    };
    let config = with(vec![volume("v", &inner)]);
    let running = start(&config);
    let mut document = ServedDocument::new(&config, &running);
    // Nothing opens it again.
    std::fs::remove_dir_all(&inner).expect("a folder");
    let broken = with(vec![volume("w", &folder.path().join("none"))]);
    let why = apply(&mut document, broken, &running, |_| ()).expect_err("no folder");
    assert!(
        why[1].starts_with("not taken back: volume \"v\""),
        "{why:?}"
    );
    for desired in [with(Vec::new()), config] {
        let why = document.plan(desired, &running).expect_err("not known");
        assert!(why[0].contains("restart weft"), "{why:?}");
        assert!(why[1].contains("volume \"v\" is closed"), "{why:?}");
    }
    stop(running);
}

/// What would be taken back later costs hosts their connections until then.
#[test]
fn document_with_a_listener_whose_port_is_in_use_changes_nothing() {
    let [port, _] = ports();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let other = ListenerSpec::from(taken.local_addr().expect("bound"));
    let config = Config {
        cpus: vec![0],
        listeners: vec![listener(0, port), listener(1, port)],
        ..Config::default()
    };
    let running = start(&config);
    let mut document = ServedDocument::new(&config, &running);
    let desired = Config {
        listeners: vec![listener(0, port), other],
        ..config
    };
    let mut made = 0;
    let outcome = apply(&mut document, desired, &running, |_| made += 1);
    let why = outcome.expect_err("it is in use");
    assert!(why[0].contains("configure another port"), "{why:?}");
    assert_eq!(made, 0);
    stop(running);
}

/// An initiator may set them too, which no file says.
#[test]
fn states_that_were_set_since_the_start_stay_where_the_file_does_not_change_them() {
    let [port, _] = ports();
    let nqn = "nqn.2026-01.org.example:s";
    let config = |hosts: Option<Vec<String>>| Config {
        cpus: vec![0],
        listeners: vec![listener(0, port)],
        subsystems: vec![SubsystemSpec {
            nqn: nqn.to_owned(),
            serial: "1".to_owned(),
            model: "m".to_owned(),
            hosts,
            ..SubsystemSpec::default()
        }],
        ..Config::default()
    };
    let running = start(&config(None));
    let mut document = ServedDocument::new(&config(None), &running);
    let set = Change::SetAna {
        nqn: nqn.to_owned(),
        listener: None,
        group: 1,
        state: AnaState::Inaccessible,
    };
    running.change(set).expect("it may");
    let set = running.served().subsystems[0].ana_groups.clone();
    assert_eq!(set.len(), 1);
    let desired = config(Some(vec!["nqn.2026-01.org.example:h".to_owned()]));
    let made = apply(&mut document, desired, &running, |_| ()).expect("it may");
    assert_eq!(made.count(), 1);
    assert_eq!(running.served().subsystems[0].ana_groups, set);
    stop(running);
}

/// Also by a reload.
#[test]
fn mirror_of_which_one_leg_is_there_again_is_served_without_the_other() {
    let [port, _] = ports();
    let folder = tempfile::tempdir().expect("a folder");
    let [left, right] = ["left", "right"].map(|name| folder.path().join(name));
    let leg = |at: &Path| {
        let name = at.file_name().expect("it has one").to_string_lossy();
        Spec::new(&*name, Kind::file(at.join("disk")), 1 << 20, 4096)
    };
    let mirror = Spec {
        state: Some(folder.path().join("m")),
        ..Spec::new("m", Kind::mirror(&["left", "right"]), 0, 4096)
    };
    let config = Config {
        cpus: vec![0],
        start: Start::Degraded,
        listeners: vec![listener(0, port)],
        volumes: vec![leg(&left), leg(&right), mirror],
        ..Config::default()
    };
    let names = |running: &Running| -> Vec<String> {
        let volumes = running.shared().volumes();
        volumes
            .iter()
            .map(|volume| volume.info().name.clone())
            .collect()
    };
    for path in [&left, &right] {
        std::fs::create_dir(path).expect("a folder");
    }
    let running = start(&config);
    assert_eq!(names(&running), ["left", "right", "m"]);
    stop(running);
    let away = folder.path().join("away");
    std::fs::rename(&left, &away).expect("ours");
    std::fs::remove_dir_all(&right).expect("ours");
    let running = start(&config);
    assert!(names(&running).is_empty());
    let mut document = ServedDocument::new(&config, &running);
    std::fs::rename(&away, &left).expect("ours");
    let (findings, served) = server::examine(&config);
    assert_eq!(
        (findings.len(), served.volumes.len()),
        (2, 2),
        "{findings:?}"
    );
    let plan = document.plan(config.clone(), &running).expect("it may");
    assert_eq!(plan.missing.len(), 1, "{:?}", plan.missing);
    document.apply(plan, &running, |_| ()).expect("it may");
    assert_eq!(names(&running), ["left", "m"]);
    std::fs::create_dir(&right).expect("a folder");
    apply(&mut document, config.clone(), &running, |_| ()).expect("it may");
    assert_eq!(names(&running), ["left", "m", "right"]);
    stop(running);
}

/// A volume that is made of others is looked at again like any other, and taken when it fits.
#[test]
fn volume_of_others_that_a_start_has_left_out_keeps_nothing_else_from_changing() {
    let [port, _] = ports();
    let config = |size_bytes: u64, listeners: usize| Config {
        cpus: vec![0],
        start: Start::Degraded,
        listeners: (0..listeners).map(|n| listener(n, port)).collect(),
        volumes: vec![
            Spec::new("whole", Kind::RAM, 8 << 20, 4096),
            Spec::new("end", Kind::slice("whole", 4 << 20), size_bytes, 4096),
        ],
        ..Config::default()
    };
    let running = start(&config(5 << 20, 1));
    let mut document = ServedDocument::new(&config(5 << 20, 1), &running);
    let plan = document.plan(config(5 << 20, 2), &running).expect("it may");
    assert!(plan.missing[0].contains("'end'"), "{:?}", plan.missing);
    let made = document.apply(plan, &running, |_| ()).expect("it may");
    assert_eq!(made.count(), 1, "the listener");
    let made = apply(&mut document, config(4 << 20, 2), &running, |_| ()).expect("it fits");
    assert_eq!(made.count(), 1);
    let names = running.shared().volumes();
    let names: Vec<&str> = names.iter().map(|volume| &*volume.info().name).collect();
    assert_eq!(names, ["whole", "end"]);
    stop(running);
}

/// A key that is gone later changes nothing, and an erase that could not be done is over when the
/// file with the keys can be written.
#[test]
fn volume_that_an_erase_has_locked_is_unlocked_by_the_same_document() {
    let folder = tempfile::tempdir().expect("a folder");
    let by = |key| Some(EncryptionSettings { key, former: None });
    let config = |encryption| Config {
        cpus: vec![0],
        volumes: vec![Spec {
            encryption,
            ..Spec::new("v", Kind::file(folder.path().join("v")), 1 << 20, 4096)
        }],
        ..Config::default()
    };
    let keyed = config(by(Ok(WrappingKey::Key(Secret::new([7; 32])))));
    let running = start(&keyed);
    let mut document = ServedDocument::new(&keyed, &running);
    let volume = running.shared().volumes().remove(0);
    let encryption = volume.encryption().expect("it is encrypted");
    let gone = config(by(Err("no such file".to_owned())));
    for desired in [&gone, &keyed] {
        let made = apply(&mut document, desired.clone(), &running, |_| ()).expect("it may");
        assert_eq!(made.count(), 0);
    }
    let [keys, away] = ["v.weft.keys", "away"].map(|name| folder.path().join(name));
    std::fs::rename(&keys, &away).expect("its keys");
    std::fs::create_dir(&keys).expect("room");
    encryption.erase().expect_err("a folder is no file");
    assert!(encryption.is_locked());
    let why = apply(&mut document, keyed.clone(), &running, |_| ()).expect_err("still");
    assert!(why[0].contains("v.weft.keys"), "{why:?}");
    std::fs::remove_dir(&keys).expect("ours");
    std::fs::rename(&away, &keys).expect("its keys");
    for (desired, count) in [(&gone, 1), (&keyed, 0)] {
        let made = apply(&mut document, desired.clone(), &running, |_| ()).expect("it may");
        assert_eq!(made.count(), count);
        assert!(!encryption.is_locked());
    }
    drop(volume);
    stop(running);
}
