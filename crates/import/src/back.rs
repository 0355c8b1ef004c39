//! The way back: what weft serves as nvmetcli's or targetcli's JSON, or as exports(5). Secrets are
//! not written: nothing shows them. Rights are never widened here either.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

use iscsi::{DigestPolicy, InitiatorAcl, SessionLimits};
use nvmf::AnaGroup;
use nvmf::command::AnaState;
use serde_json::{Map, Value, json};
use server::nfs::{ClientName, Clients, FileSystemKind, Flavor, Rule, Squash, XprtsecModes};
use server::{Ana, Config, IscsiTargetSpec, Protocol, SubsystemSpec};
use store::{Kind, Spec};

use crate::Format;
use crate::report::Weight::{Access, Lost};
use crate::report::{Place, Report, Weight};

/// Writes what a configuration serves in another program's form; `None`: weft writes none of
/// this format.
#[must_use]
pub fn export(format: Format, config: &Config, name: &str) -> Option<(String, Report)> {
    let mut back = Back {
        config,
        report: Report::default(),
    };
    back.report.files.push(name.to_owned());
    let text = match format.0.name {
        "nvmetcli" => pretty(&back.nvmetcli()),
        "targetcli" => pretty(&back.targetcli()),
        "exports" => back.exports(),
        _ => return None,
    };
    for limit in &config.rate_limits {
        let why = "the other program has none: hosts read and write as much as they can";
        back.lose(Lost, &format!("limit \"{}\"", limit.name), why);
    }
    Some((text, back.report))
}

fn pretty(value: &Value) -> String {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

struct Back<'c> {
    config: &'c Config,
    report: Report,
}

impl<'c> Back<'c> {
    fn lose(&mut self, weight: Weight, what: &str, why: impl Into<String>) {
        self.report.add(Place::default(), what, weight, why);
    }

    fn volume(&self, name: &str) -> Option<&'c Spec> {
        self.config.volumes.iter().find(|spec| spec.name == name)
    }

    fn nvmetcli(&mut self) -> Value {
        let config = self.config;
        let hosts: BTreeSet<&String> = config
            .subsystems
            .iter()
            .flat_map(|subsystem| subsystem.hosts.iter().flatten())
            .collect();
        let hosts: Vec<Value> = hosts.into_iter().map(|nqn| json!({ "nqn": nqn })).collect();
        let subsystems: Vec<Value> = config
            .subsystems
            .iter()
            .map(|subsystem| self.subsystem(subsystem))
            .collect();
        let mut ports = Vec::new();
        for (number, listener) in (0u16..).zip(&config.listeners) {
            let address = listener.address;
            if listener.protocol != Protocol::NvmeTcp || listener.discovery_only {
                let why = "nvmet serves NVMe, and discovery on every port";
                self.lose(Lost, &address.to_string(), why);
                continue;
            }
            let mut port = json!({
                "portid": number + 1,
                "addr": {
                    "adrfam": if address.is_ipv4() { "ipv4" } else { "ipv6" },
                    "traddr": address.ip().to_string(),
                    "treq": "not specified",
                    "trsvcid": address.port().to_string(),
                    "trtype": "tcp",
                },
                "ana_groups": self.port_groups(number),
                "param": {},
                "referrals": [],
                "subsystems": self.linked(number),
            });
            if ports.is_empty() {
                port["referrals"] = self.referrals();
            }
            ports.push(port);
        }
        json!({ "hosts": hosts, "ports": ports, "subsystems": subsystems })
    }

    fn referrals(&self) -> Value {
        let referrals = self.config.referrals.iter().enumerate();
        let list = referrals.map(|(nth, referral)| {
            json!({
                "name": format!("referral{nth}"),
                "enable": "1",
                "addr": {
                    "adrfam": if referral.host.contains(':') { "ipv6" } else { "ipv4" },
                    "traddr": referral.host,
                    "trsvcid": referral.port.to_string(),
                    "trtype": "tcp",
                },
            })
        });
        list.collect()
    }

    /// The subsystems that are reached at a listener.
    fn linked(&self, number: u16) -> Vec<&'c str> {
        let reached = self.config.subsystems.iter().filter(|subsystem| {
            let listeners = subsystem.listeners.as_ref();
            listeners.is_none_or(|list| list.contains(&number))
        });
        reached.map(|subsystem| &*subsystem.nqn).collect()
    }

    /// States at a port, which nvmet has for all of its subsystems together.
    fn port_groups(&mut self, number: u16) -> Vec<Value> {
        let mut states: HashMap<u32, AnaState> = HashMap::from([(1, AnaState::Optimized)]);
        let mut uneven: BTreeSet<u32> = BTreeSet::new();
        let linked: BTreeSet<&str> = self.linked(number).into_iter().collect();
        for subsystem in &self.config.subsystems {
            if !linked.contains(&*subsystem.nqn) {
                continue;
            }
            for namespace in &subsystem.namespaces {
                let id = namespace.ana_group;
                let mut known = subsystem.ana_groups.iter();
                let state = known.find(|group| group.id == id);
                let state = state.map_or(AnaState::Optimized, |group| group.state_on(number));
                if *states.entry(id).or_insert(state) != state {
                    // The worse of both.
                    uneven.insert(id);
                    states.insert(id, AnaState::Inaccessible);
                }
            }
        }
        for id in uneven {
            let why = "nvmet has one state for all subsystems of a port: they differ, and are \
                       inaccessible there";
            self.lose(Access, &format!("ana group {id}"), why);
        }
        let mut states: Vec<(u32, AnaState)> = states.into_iter().collect();
        states.sort_unstable_by_key(|(id, _)| *id);
        let group = |(id, state)| json!({ "grpid": id, "ana": { "state": state_word(state) } });
        states.into_iter().map(group).collect()
    }

    /// What hosts must prove, and from where, which nvmet is not told.
    fn terms(&mut self, subsystem: &SubsystemSpec) {
        for terms in &subsystem.terms {
            let what = format!("{} of {}", terms.nqn, subsystem.nqn);
            if terms.dhchap.is_some() {
                let why = "nothing shows secrets: write `dhchap_key` of the host before the port \
                           is linked; before that it need not prove itself";
                self.lose(Access, &what, why);
            }
            if terms.needs_tls() {
                let why = "nvmet takes keys for TLS from the kernel's keyring: insert its key \
                           there, and set `tsas` and `treq` of the port; before that the host \
                           connects in the clear";
                self.lose(Access, &what, why);
            }
            if !terms.networks.is_empty() {
                let why = "nvmet lets a host in from anywhere";
                self.lose(Access, &what, why);
            }
        }
    }

    fn subsystem(&mut self, subsystem: &SubsystemSpec) -> Value {
        let any = if subsystem.hosts.is_none() { "1" } else { "0" };
        let mut attr = json!({
            "allow_any_host": any,
            "serial": subsystem.serial,
            "model": subsystem.model,
        });
        if let Some(range) = &subsystem.cntlids {
            attr["cntlid_min"] = range.start().to_string().into();
            attr["cntlid_max"] = range.end().to_string().into();
        }
        self.terms(subsystem);
        let mut namespaces = Vec::new();
        for namespace in &subsystem.namespaces {
            let Some(spec) = self.volume(&namespace.volume) else {
                continue;
            };
            let what = format!("{} nsid {}", subsystem.nqn, namespace.nsid);
            if self.is_left_out(&what, spec) {
                continue;
            }
            let Some(path) = spec.kind.path() else {
                let why = "nvmet serves files and devices: what is in memory, or made of other volumes, is \
                           left out";
                self.lose(Access, &what, why);
                continue;
            };
            if namespace.hosts.is_some() || spec.read_only {
                let why = "nvmet shows a namespace to every host of its subsystem, to read and \
                           write: this one is left out";
                self.lose(Access, &what, why);
                continue;
            }
            if spec.names.eui64.is_some() {
                self.lose(Lost, &what, "nvmet has no EUI-64");
            }
            let mut device = json!({ "path": path });
            if let Some(uuid) = spec.uuid {
                device["uuid"] = uuid.to_string().into();
            }
            if let Some(nguid) = &spec.names.nguid {
                device["nguid"] = hex(nguid).into();
            }
            namespaces.push(json!({
                "nsid": namespace.nsid,
                "enable": 1,
                "ana_grpid": namespace.ana_group,
                "device": device,
            }));
        }
        json!({
            "nqn": subsystem.nqn,
            "attr": attr,
            "allowed_hosts": subsystem.hosts.clone().unwrap_or_default(),
            "namespaces": namespaces,
        })
    }

    fn targetcli(&mut self) -> Value {
        let config = self.config;
        let mut objects: Vec<Value> = Vec::new();
        let mut paths: HashMap<&str, String> = HashMap::new();
        for spec in &config.volumes {
            let mut all = config.iscsi_targets.iter().flat_map(|target| &target.luns);
            if !all.any(|lun| lun.volume == spec.name) {
                continue;
            }
            if self.is_left_out(&spec.name, spec) {
                continue;
            }
            if !spec.kind.of().is_empty() {
                let why = "LIO serves files, devices and memory: what is made of other volumes is \
                           left out";
                self.lose(Access, &spec.name, why);
                continue;
            }
            let (object, path) = self.storage_object(spec);
            objects.push(object);
            paths.insert(&spec.name, path);
        }
        let targets = config.iscsi_targets.iter();
        let targets: Vec<Value> = targets.map(|target| self.target(target, &paths)).collect();
        if config.iscsi_discovery.chap.is_some() {
            let why = "nothing shows secrets: targetcli /iscsi set discovery_auth";
            self.lose(Access, "iscsi.discovery", why);
        }
        json!({ "fabric_modules": [], "storage_objects": objects, "targets": targets })
    }

    /// Whether the other program would serve hosts what they must not have: ciphertext, or the
    /// folder of a snapshot. It is left out, and that is told.
    fn is_left_out(&mut self, what: &str, spec: &Spec) -> bool {
        let why = match (&spec.encryption, spec.kind.name()) {
            (Some(_), _) => "it is encrypted, and hosts would see ciphertext: it is left out",
            (None, "snapshot") => "the other program has no snapshots of files: it is left out",
            (None, "remote") => {
                "the other program has no volumes of other machines: it is left out"
            }
            _ => return false,
        };
        self.lose(Access, what, why);
        true
    }

    fn storage_object(&mut self, spec: &Spec) -> (Value, String) {
        let kind = &spec.kind;
        let (plugin, mut object) = match kind.path() {
            Some(path) if kind.name() == "block" => {
                ("block", json!({ "dev": path, "readonly": spec.read_only }))
            }
            Some(path) => ("fileio", json!({ "dev": path, "size": spec.size_bytes })),
            None => (
                "ramdisk",
                json!({ "size": spec.size_bytes, "nullio": *kind == Kind::NULL }),
            ),
        };
        if spec.read_only && plugin != "block" {
            let why = "LIO makes devices read-only, not files or memory: each LUN is protected";
            self.lose(Lost, &spec.name, why);
        }
        let names = &spec.names;
        let wwn = names.serial.clone();
        let digits: String = wwn.iter().flat_map(|wwn| wwn.chars()).collect();
        let digits: String = digits
            .chars()
            .filter(char::is_ascii_hexdigit)
            .take(25)
            .collect();
        let naa = format!("6001405{digits:0<25}").to_ascii_lowercase();
        let is_same = names.naa.as_ref().is_some_and(|known| hex(known) == naa);
        if wwn.is_none() || !is_same || names.vendor.as_deref() != Some("LIO-ORG") {
            let why = "LIO makes vendor and NAA designator itself: initiators see a new disk";
            self.lose(Lost, &spec.name, why);
        }
        let alias: String = spec.name.chars().take(16).collect();
        let has_alias = names.product.as_ref() == Some(&alias);
        object["attributes"] = json!({
            "block_size": spec.block_bytes,
            "emulate_model_alias": u8::from(has_alias),
        });
        object["name"] = spec.name.clone().into();
        object["plugin"] = plugin.into();
        if let Some(wwn) = wwn {
            object["wwn"] = wwn.into();
        }
        object["alua_tpgs"] = self.alua_groups(spec);
        (object, format!("/backstores/{plugin}/{}", spec.name))
    }

    /// Target port groups of a unit: group 1 is LIO's default.
    fn alua_groups(&mut self, spec: &Spec) -> Value {
        let mut groups: Vec<Value> = Vec::new();
        for target in &self.config.iscsi_targets {
            let states = self.states_of(target);
            for lun in target.luns.iter().filter(|lun| lun.volume == spec.name) {
                let group = states.iter().find(|group| group.id == lun.ana_group);
                let state = group.map_or(AnaState::Optimized, |group| group.state);
                if group.is_some_and(|group| !group.on.is_empty()) {
                    let why = "LIO has one state of a group at all portals";
                    self.lose(Lost, &target.target.name, why);
                }
                let number = match state {
                    AnaState::NonOptimized => 1,
                    AnaState::Inaccessible | AnaState::PersistentLoss => 3,
                    AnaState::Change => 15,
                    _ => 0,
                };
                let name = group_name(lun.ana_group);
                if lun.ana_group == 1 && number != 0 {
                    let why = "the state of group 1 is LIO's default group's: optimized";
                    self.lose(Lost, &target.target.name, why);
                } else if lun.ana_group > 1 && !groups.iter().any(|known| known["name"] == name) {
                    groups.push(json!({
                        "name": name,
                        "tg_pt_gp_id": lun.ana_group - 1,
                        "alua_access_state": number,
                    }));
                }
            }
        }
        groups.into()
    }

    fn states_of(&self, target: &'c IscsiTargetSpec) -> &'c [AnaGroup] {
        match &target.ana {
            Ana::Own(groups) => groups,
            Ana::Subsystem(nqn) => {
                let mut subsystems = self.config.subsystems.iter();
                let found = subsystems.find(|subsystem| subsystem.nqn == *nqn);
                found.map_or(&[], |subsystem| &subsystem.ana_groups)
            }
        }
    }

    fn target(&mut self, spec: &IscsiTargetSpec, paths: &HashMap<&str, String>) -> Value {
        let target = &spec.target;
        let luns: Vec<Value> = spec
            .luns
            .iter()
            .filter_map(|lun| {
                Some(json!({
                    "index": lun.lun,
                    "storage_object": paths.get(&*lun.volume)?,
                    "alua_tg_pt_gp_name": group_name(lun.ana_group),
                }))
            })
            .collect();
        let portals = self.portals(spec);
        let mut acls = Vec::new();
        let (mut demo, mut demands) = (false, target.auth.chap.is_some());
        for entry in &target.acl {
            demands |= entry.auth.as_ref().is_some_and(|auth| auth.chap.is_some());
            match (&entry.name, is_anywhere(entry)) {
                (Some(name), true) => acls.push(self.node_acl(spec, entry, name)),
                (None, true) if entry.auth.is_none() && entry.luns.is_none() => demo = true,
                _ => {
                    let why = "LIO lets initiators in by name alone, from anywhere: one with \
                               networks or without a name is left out";
                    self.lose(Access, &target.name, why);
                }
            }
        }
        if demands {
            let why = "nothing shows secrets: set them by targetcli, before that nobody logs in";
            self.lose(Access, &target.name, why);
        }
        if target.redirect.is_some() {
            self.lose(
                Access,
                &target.name,
                "LIO sends nobody elsewhere: the target is not enabled",
            );
        }
        json!({
            "fabric": "iscsi",
            "wwn": target.name,
            "tpgs": [{
                "tag": 1,
                "enable": target.redirect.is_none(),
                "attributes": {
                    "authentication": u8::from(demands),
                    "generate_node_acls": u8::from(demo),
                    "demo_mode_write_protect": 0,
                },
                "parameters": parameters(spec),
                "luns": luns,
                "node_acls": acls,
                "portals": portals,
            }],
        })
    }

    /// Where a target is reached.
    fn portals(&self, spec: &IscsiTargetSpec) -> Vec<Value> {
        let target = &spec.target;
        let groups = target.portal_groups.iter();
        let mut numbers: Vec<u16> = groups.flat_map(|group| group.portals.clone()).collect();
        if target.portal_groups.is_empty() {
            numbers = (0..).take(self.config.listeners.len()).collect();
        }
        let listeners = numbers
            .iter()
            .map(|number| &self.config.listeners[usize::from(*number)]);
        let iscsi = listeners.filter(|listener| listener.protocol == Protocol::Iscsi);
        iscsi
            .map(|listener| {
                let ip = listener.address.ip();
                json!({ "ip_address": ip.to_string(), "port": listener.address.port() })
            })
            .collect()
    }

    fn node_acl(&self, spec: &IscsiTargetSpec, entry: &InitiatorAcl, name: &str) -> Value {
        let all = spec.luns.iter().filter(|lun| {
            let volume = self.volume(&lun.volume);
            volume.is_some_and(|volume| volume.kind.of().is_empty())
        });
        let all = all.map(|lun| lun.lun);
        let sees = all.filter(|lun| entry.luns.as_ref().is_none_or(|luns| luns.contains(lun)));
        let mapped = sees.map(|lun| {
            let mut luns = spec.luns.iter().filter(|known| known.lun == lun);
            let volume = luns.next().and_then(|lun| self.volume(&lun.volume));
            let protects = volume.is_some_and(|volume| volume.read_only);
            json!({ "index": lun, "tpg_lun": lun, "write_protect": protects })
        });
        let mapped: Vec<Value> = mapped.collect();
        json!({ "node_wwn": name, "mapped_luns": mapped })
    }

    fn exports(&mut self) -> String {
        let mut text = String::from("# Made by `weft import --back exports`.\n");
        for export in &self.config.exports {
            let Some(name) = export.what.file_system() else {
                let why = "a referral is left out: write `refer=` of the kernel's exports yourself";
                self.lose(Access, &export.path, why);
                continue;
            };
            let mut systems = self.config.file_systems.iter();
            let system = systems.find(|system| system.name == name);
            let Some(FileSystemKind::Dir {
                path, read_only, ..
            }) = system.map(|system| &system.kind)
            else {
                let why = "the kernel exports directories: what is in memory is left out";
                self.lose(Access, &export.path, why);
                continue;
            };
            let folder = path.display().to_string();
            if folder != export.path {
                let why = format!("clients mount {folder} now, as the directory is called");
                self.lose(Lost, &export.path, why);
            }
            let mut line = escaped(&folder);
            let mut last = 0;
            for rule in &export.rules {
                let class = self.rule((&export.path, rule), *read_only, &mut line);
                if class < last {
                    let why = "the kernel asks hosts before networks: a network that came first \
                               here does not there";
                    self.lose(Access, &export.path, why);
                }
                last = class;
            }
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    /// Adds the clients of a rule. Whether they are hosts, networks or everybody.
    fn rule(&mut self, (path, rule): (&str, &Rule), read_only: bool, line: &mut String) -> u8 {
        let squash = match rule.squash {
            Squash::Root => "root_squash",
            Squash::All => "all_squash",
            Squash::None => "no_root_squash",
        };
        let flavors = rule.flavors.iter().map(|flavor| match flavor {
            Flavor::Sys => "sys",
            Flavor::None => "none",
            Flavor::Krb5 => "krb5",
            Flavor::Krb5i => "krb5i",
            Flavor::Krb5p => "krb5p",
        });
        let flavors: Vec<&str> = flavors.collect();
        let xprtsec = match rule.xprtsec {
            XprtsecModes::ALL => String::new(),
            some => format!(",xprtsec={some}"),
        };
        let options = format!(
            "({},{squash},anonuid={},anongid={},sec={}{xprtsec},{},no_subtree_check,sync)",
            if rule.is_read_only || read_only {
                "ro"
            } else {
                "rw"
            },
            rule.anon_uid,
            rule.anon_gid,
            flavors.join(":"),
            if rule.secure { "secure" } else { "insecure" },
        );
        let Clients::Named(names) = &rule.clients else {
            let _ = write!(line, " *{options}");
            return 2;
        };
        let mut class = 0;
        for name in names {
            let shown = name.to_string();
            if let ClientName::Certificate(_) = name {
                let why = format!("the kernel knows no client by its certificate: {shown}");
                self.lose(Access, path, why);
                continue;
            }
            class = class.max(u8::from(shown.contains('/')));
            let _ = write!(line, " {shown}{options}");
        }
        class
    }
}

fn is_anywhere(entry: &InitiatorAcl) -> bool {
    entry.networks.is_empty() && entry.portal_groups.is_empty()
}

fn state_word(state: AnaState) -> &'static str {
    match state {
        AnaState::Optimized => "optimized",
        AnaState::NonOptimized => "non-optimized",
        AnaState::Inaccessible => "inaccessible",
        AnaState::PersistentLoss => "persistent-loss",
        AnaState::Change => "change",
    }
}

fn group_name(number: u32) -> String {
    match number {
        1 => "default_tg_pt_gp".to_owned(),
        number => format!("group{number}"),
    }
}

/// The limits that are not weft's defaults.
fn parameters(spec: &IscsiTargetSpec) -> Value {
    let (limits, usual) = (&spec.target.limits, SessionLimits::default());
    let numbers = [
        (
            "FirstBurstLength",
            limits.first_burst_bytes,
            usual.first_burst_bytes,
        ),
        (
            "MaxBurstLength",
            limits.max_burst_bytes,
            usual.max_burst_bytes,
        ),
        (
            "MaxRecvDataSegmentLength",
            limits.max_recv_data_segment_bytes,
            usual.max_recv_data_segment_bytes,
        ),
        (
            "MaxOutstandingR2T",
            limits.r2ts_max.into(),
            usual.r2ts_max.into(),
        ),
        (
            "MaxConnections",
            limits.connections_max.into(),
            usual.connections_max.into(),
        ),
    ];
    let mut parameters = Map::new();
    for (name, value, usual) in numbers {
        if value != usual {
            parameters.insert(name.to_owned(), value.to_string().into());
        }
    }
    let digests = [
        ("HeaderDigest", spec.target.header_digest),
        ("DataDigest", spec.target.data_digest),
    ];
    for (name, policy) in digests {
        let word = match policy {
            DigestPolicy::None => "None",
            DigestPolicy::Allowed => "CRC32C,None",
            DigestPolicy::Required => "CRC32C",
        };
        parameters.insert(name.to_owned(), word.into());
    }
    if let Some(alias) = &spec.target.alias {
        parameters.insert("TargetAlias".to_owned(), alias.clone().into());
    }
    parameters.into()
}

/// A path in one word.
fn escaped(path: &str) -> String {
    let mut word = String::new();
    for c in path.chars() {
        match c {
            ' ' | '\t' | '\n' | '\\' | '"' | '#' | '(' => {
                let _ = write!(word, "\\{:03o}", u32::from(c));
            }
            c => word.push(c),
        }
    }
    word
}
