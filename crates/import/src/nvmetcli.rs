//! The JSON of nvmetcli: a dump of the kernel's target (nvmet) as it stands in configfs.
//!
//! `hosts` with NQNs; `subsystems` with `attr`, `allowed_hosts` and `namespaces` (`nsid`,
//! `enable`, `ana_grpid`, `device`); `ports` with `addr`, `ana_groups`, `referrals` and the NQNs
//! of subsystems.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use auth::dhchap::DhchapKey;
use server::check;

use crate::model::{
    AnaModel, Backing, HostKey, HostModel, NamespaceModel, Notes, Spoken, SubsystemModel,
    VolumeModel,
};
use crate::report::Weight::{Access, Default, Lost};
use crate::tree::{Known, SourceKey, number};
use crate::volumes::KnownVolumes;
use crate::{Import, json, note, other_transport};

const KNOWN: &[Known] = &[
    ("adrfam", Default, "the address says it"),
    (
        "treq",
        Default,
        "a host with a key (`psk_file`) connects by TLS alone, others in the clear",
    ),
    ("trtype", Default, "NVMe/TCP"),
    ("portid", Default, "weft numbers its listeners itself"),
    (
        "inline_data_size",
        Default,
        "see `in_capsule_bytes` of [nvme], one number for all; 16 KiB",
    ),
    (
        "max_queue_size",
        Default,
        "see `queue_entries_max` of [nvme], one number for all",
    ),
    (
        "mdts",
        Default,
        "see `io_bytes_max` of [nvme], one number for all",
    ),
    ("pi_enable", Lost, "weft keeps no protection information"),
    ("version", Default, "weft says the version that it keeps to"),
    (
        "qid_max",
        Default,
        "see `io_queues_max` of [nvme], one number for all",
    ),
    ("ieee_oui", Lost, "weft has its own"),
    ("firmware", Lost, "weft says its own version"),
    (
        "passthru",
        Lost,
        "weft has volumes, and hands no controller through",
    ),
    ("p2pmem", Lost, "weft uses no memory of devices"),
    ("buffered_io", Default, "weft decides itself"),
    (
        "resv_enable",
        Default,
        "weft has reservations for every namespace",
    ),
    ("revalidate_size", Default, "weft looks itself"),
    (
        "dhchap_hash",
        Lost,
        "see `dhchap_hashes` of [[nvme.subsystem]], for all its hosts; all that weft has",
    ),
    (
        "dhchap_dhgroup",
        Lost,
        "see `dhchap_groups` of [[nvme.subsystem]], for all its hosts; all that weft has",
    ),
];

const STATES: &[&str] = &[
    "optimized",
    "non-optimized",
    "inaccessible",
    "persistent-loss",
    "change",
];

pub(crate) fn read(import: &mut Import, text: &str) {
    match json::read(text, 0) {
        Ok(tree) => read_tree(import, &tree),
        Err((place, why)) => import.report.mistake(place, why),
    }
}

/// What configfs holds, wherever it was read.
pub(crate) fn read_tree(import: &mut Import, tree: &SourceKey) {
    tree.see();
    if tree.key("subsystems").is_none() && tree.key("ports").is_none() {
        let text = "there are neither `subsystems` nor `ports`: this is no file of nvmetcli";
        import.report.mistake(tree.place, text);
        return;
    }
    let mut known_hosts = KnownHosts::new();
    for host in tree.items("hosts") {
        if let Some(nqn) = host.text("nqn") {
            known_hosts.insert(nqn, read_keys(import, host));
        }
    }
    let mut volumes = KnownVolumes::default();
    for subsystem in tree.items("subsystems") {
        read_subsystem(import, subsystem, &known_hosts, &mut volumes);
    }
    for port in tree.items("ports") {
        read_port(import, port);
    }
    for subsystem in &mut import.model.subsystems {
        if let Some(listeners) = &mut subsystem.listeners {
            listeners.sort();
        }
    }
    tree.tell_rest(KNOWN, &mut import.report);
}

fn read_subsystem(
    import: &mut Import,
    key: &SourceKey,
    known_hosts: &KnownHosts,
    volumes: &mut KnownVolumes,
) {
    let Some(nqn) = key.key("nqn").filter(|nqn| nqn.word().is_some()) else {
        import
            .report
            .mistake(key.place, "a subsystem has no `nqn`: give it one");
        return;
    };
    let name = nqn.word().unwrap_or_default();
    if !import.fits(nqn, nvmf::check_subsystem_nqn(name)) {
        // All of it is left out, and that is told.
        see_all(key);
        return;
    }
    let number = import.model.subsystems.len();
    if import.named.insert(name.to_owned(), number).is_some() {
        let text = format!("a subsystem {name} is there already: give each its own NQN");
        import.report.mistake(nqn.place, text);
        return;
    }
    let mut subsystem = SubsystemModel {
        nqn: name.to_owned(),
        // Ports add to it.
        listeners: Some(Vec::new()),
        ..SubsystemModel::default()
    };
    subsystem.notes.set("nqn", note(nqn));
    subsystem
        .notes
        .set("listeners", "the ports that link to it");
    subsystem.hosts = read_hosts(import, key, known_hosts, &mut subsystem.notes);
    if let Some(attr) = key.key("attr") {
        read_attributes(import, attr, &mut subsystem);
    }
    if subsystem.model.is_none() {
        // Names of disks by their identity have it in them.
        subsystem.model = Some("Linux".to_owned());
        subsystem.notes.set("model", "default of nvmet");
    }
    let mut seen = SeenNamespaces::default();
    for namespace in key.items("namespaces") {
        let read = read_namespace(import, namespace, &mut seen, volumes);
        subsystem.namespaces.extend(read);
    }
    import.model.subsystems.push(subsystem);
}

/// Marks all of what is left out.
pub(crate) fn see_all(key: &SourceKey) {
    let mut rest = vec![key];
    while let Some(key) = rest.pop() {
        rest.extend(key.see().keys.iter());
    }
}

/// The hosts of the source by their NQN, with what each proves itself by; `None`: weft cannot
/// take that, and lets the host in nowhere.
type KnownHosts<'t> = HashMap<&'t str, Option<Vec<(&'static str, HostKey)>>>;

/// The secrets of a host for DH-HMAC-CHAP.
fn read_keys(import: &mut Import, host: &SourceKey) -> Option<Vec<(&'static str, HostKey)>> {
    let mut keys = Vec::new();
    for (name, weft) in [
        ("dhchap_key", "dhchap_secret_file"),
        ("dhchap_ctrl_key", "dhchap_ctrl_secret_file"),
    ] {
        let Some(key) = host.key(name) else { continue };
        let secret = key.word().unwrap_or_default();
        if secret.is_empty() {
            continue;
        }
        if let Err(why) = DhchapKey::parse(secret) {
            let why = format!("weft cannot take the secret: {why}; the host is let in nowhere");
            import.report.add(key.place, name, Access, why);
            return None;
        }
        keys.push((weft, HostKey::Inside(secret.to_owned())));
    }
    if keys.is_empty() {
        // Nothing goes by them.
        for name in ["dhchap_hash", "dhchap_dhgroup"] {
            let _ = host.key(name);
        }
    }
    Some(keys)
}

fn read_hosts(
    import: &mut Import,
    key: &SourceKey,
    known: &KnownHosts,
    notes: &mut Notes,
) -> Option<Vec<HostModel>> {
    let attr = key.key("attr");
    let allowed = key.key("allowed_hosts");
    let any = attr.and_then(|attr| attr.key("allow_any_host"));
    if let Some(any) = any.filter(|any| any.word().and_then(crate::tree::flag) == Some(true)) {
        notes.set("allow_any_host", note(any));
        if let Some(allowed) = allowed.filter(|allowed| !allowed.words.is_empty()) {
            let why = "`allow_any_host` lets them in anyhow";
            import
                .report
                .add(allowed.place, &allowed.name, Default, why);
        }
        return None;
    }
    let mut hosts: Vec<HostModel> = Vec::new();
    let mut seen: HashSet<&str> = HashSet::new();
    notes.set("hosts", "no host may connect: the source allows none");
    for allowed in allowed.into_iter() {
        notes.set("hosts", note(allowed));
        for host in &allowed.words {
            let Some(keys) = known.get(host.as_str()) else {
                let text = format!(
                    "{host} is allowed, but is not in `hosts`: add it there, or take it out here"
                );
                import.report.mistake(allowed.place, text);
                continue;
            };
            if import.fits(allowed, nvmf::check_host_nqn(host))
                && seen.insert(host)
                && let Some(keys) = keys
            {
                hosts.push(HostModel {
                    nqn: host.clone(),
                    keys: keys.clone(),
                });
            }
        }
    }
    Some(hosts)
}

fn read_attributes(import: &mut Import, attr: &SourceKey, subsystem: &mut SubsystemModel) {
    let texts = [
        ("serial", check::SERIAL_BYTES, &mut subsystem.serial),
        ("model", check::MODEL_BYTES, &mut subsystem.model),
    ];
    for (name, bytes_max, place) in texts {
        let Some(key) = attr.key(name) else { continue };
        let Some(text) = key.word() else { continue };
        if let Err(why) = check::fixed_text(name, text, bytes_max) {
            let why = format!("{why}: hosts see another, and by-id names change");
            import.report.add(key.place, name, Lost, why);
            continue;
        }
        *place = Some(text.to_owned());
        subsystem.notes.set(name, note(key));
    }
    let ends = [attr.key("cntlid_min"), attr.key("cntlid_max")];
    if let [Some(first), Some(last)] = ends {
        let end = |key: &SourceKey| key.word().and_then(|text| text.parse::<u16>().ok());
        match (end(first), end(last)) {
            (Some(1), Some(65_519)) => {}
            (Some(from), Some(to)) if check::cntlids(&(from..=to)).is_ok() => {
                subsystem.cntlids = Some((from, to));
                subsystem.notes.set("cntlids", note(first));
            }
            _ => import.report.mistake(
                first.place,
                "`cntlid_min` and `cntlid_max` are from 1 to 65519, the first not behind the last",
            ),
        }
    }
}

/// What no two namespaces of a subsystem share.
#[derive(Default)]
struct SeenNamespaces {
    nsids: HashSet<u32>,
    volumes: HashSet<String>,
}

fn read_namespace(
    import: &mut Import,
    key: &SourceKey,
    seen: &mut SeenNamespaces,
    volumes: &mut KnownVolumes,
) -> Option<NamespaceModel> {
    let nsid = key.key("nsid");
    let word = nsid.and_then(SourceKey::word).and_then(number);
    let nsid = match word.map(check::nsid) {
        Some(Ok(nsid)) => nsid,
        _ => {
            let place = nsid.map_or(key.place, |nsid| nsid.place);
            import
                .report
                .mistake(place, "a namespace needs an `nsid`: a number from 1 on");
            return None;
        }
    };
    if !seen.nsids.insert(nsid) {
        let text = format!("nsid {nsid} is there already in this subsystem");
        import.report.mistake(key.place, text);
        return None;
    }
    let device = key.key("device");
    let Some(path) = device.and_then(|device| device.key("path")) else {
        import
            .report
            .mistake(key.place, "a namespace has no `device` with a `path`");
        return None;
    };
    if key.flag("enable") == Some(false) {
        see_all(key);
        let why = "a namespace that is not enabled: hosts do not see it, and it is left out";
        import.report.add(key.place, "enable", Lost, why);
        return None;
    }
    let Some(place) = path.word() else {
        import
            .report
            .mistake(path.place, "`path` is empty: name a device or a file");
        return None;
    };
    let volume = device_volume(import, device, path, volumes);
    let volume = volumes.add(import, path, volume);
    if !seen.volumes.insert(volume.clone()) {
        let why = format!("{place} is a namespace of this subsystem already: it is one only once");
        import.report.add(path.place, "path", Access, why);
        return None;
    }
    let mut notes = Notes::default();
    notes.set("nsid", format!("`nsid`, line {}", key.place.line));
    notes.set("volume", "the device above");
    let ana_group = read_group(import, key)?;
    notes.set("ana_group", "`ana_grpid`");
    Some(NamespaceModel {
        nsid,
        volume,
        ana_group,
        hosts: None,
        notes,
    })
}

/// The ANA group of a namespace: the kernel's own is 1.
fn read_group(import: &mut Import, key: &SourceKey) -> Option<u32> {
    let number = key.text("ana_grpid").and_then(number).unwrap_or(0);
    let group = check::ana_group(number.max(1));
    let told = |why| import.report.mistake(key.place, why);
    group.map_err(told).ok()
}

/// The volume that a namespace wishes.
fn device_volume(
    import: &mut Import,
    device: Option<&SourceKey>,
    path: &SourceKey,
    volumes: &KnownVolumes,
) -> VolumeModel {
    let place = path.word().unwrap_or_default();
    let name = place.trim_start_matches("/dev/");
    let mut volume = VolumeModel::new(name, Backing::of_path(place));
    volume.notes.set("path", note(path));
    volume.notes.set("name", "made from the path");
    if matches!(volume.backing, Backing::File(_)) {
        volume.block_bytes = 4096;
        let note = "what nvmet takes for a file on nearly every file system";
        volume.notes.set("block_bytes", note);
    } else if !volumes.has(place) {
        let why = "the blocks are as large as the device's, which stands nowhere: 512 is \
                   written, see `blockdev --getss`";
        import.report.add(path.place, "block_bytes", Lost, why);
        let note = "default: see `blockdev --getss`";
        volume.notes.set("block_bytes", note);
    }
    for name in ["uuid", "nguid"] {
        if let Some(key) = device.and_then(|device| device.key(name))
            && let Some(value) = key.word()
        {
            volume.identify(name, value.to_ascii_lowercase(), note(key));
        }
    }
    volume
}

fn read_port(import: &mut Import, port: &SourceKey) {
    let Some(addr) = port.key("addr") else {
        import.report.mistake(
            port.place,
            "a port has no `addr`: give it one with `traddr`",
        );
        return;
    };
    let kind = addr.text("trtype").unwrap_or_default().to_ascii_lowercase();
    if kind != "tcp" {
        see_all(port);
        import
            .report
            .add(addr.place, "trtype", Access, other_transport(&kind));
        return;
    }
    for name in ["treq", "tsas"] {
        let Some(key) = addr.key(name) else { continue };
        let word = key.word().unwrap_or_default().to_ascii_lowercase();
        if word == "required" || word.starts_with("tls") {
            let why = "the keys for TLS lie in the kernel's keyring: `weft key new` makes one for \
                       each host, and `psk_file` of [[nvme.subsystem.host]] names it; before \
                       that hosts connect in the clear";
            import.report.add(key.place, name, Access, why);
        }
    }
    let Some(address) = read_address(import, addr) else {
        return;
    };
    import.listen(addr, address, Spoken::NvmeTcp);
    // Its keys are told one by one.
    let _ = port.key("param");
    read_links(import, port, address);
    for referral in port.items("referrals") {
        read_referral(import, referral);
    }
}

fn read_address(import: &mut Import, addr: &SourceKey) -> Option<SocketAddr> {
    let ip = addr.text("traddr").unwrap_or_default();
    let port = addr.text("trsvcid").unwrap_or("4420");
    match (ip.parse(), port.parse::<u16>()) {
        (Ok(ip), Ok(port)) if port > 0 => Some(SocketAddr::new(ip, port)),
        _ => {
            let text = format!(
                "{ip:?} with port {port:?} is no address: `traddr` is an IP address, `trsvcid` a \
                 port from 1 to 65535"
            );
            import.report.mistake(addr.place, text);
            None
        }
    }
}

/// The subsystems that a port links to, and how good its paths to them are.
fn read_links(import: &mut Import, port: &SourceKey, address: SocketAddr) {
    let mut states: Vec<(u32, &str, &SourceKey)> = Vec::new();
    for group in port.items("ana_groups") {
        let state = group.key("ana").and_then(|ana| ana.key("state"));
        let word = state.and_then(SourceKey::word).unwrap_or("optimized");
        let id = group.text("grpid").and_then(|id| id.parse().ok());
        match (id, STATES.iter().find(|known| **known == word)) {
            (Some(id), Some(state)) => states.push((id, state, group)),
            _ => import.report.mistake(
                group.place,
                format!(
                    "an ANA group needs a `grpid` and a `state` of {}",
                    STATES.join(", ")
                ),
            ),
        }
    }
    let Some(linked) = port.key("subsystems") else {
        return;
    };
    for nqn in &linked.words {
        let known = import.named.get(nqn).copied();
        let known = known.and_then(|number| import.model.subsystems.get_mut(number));
        let Some(subsystem) = known else {
            // One that weft could not take is told already.
            if nvmf::check_subsystem_nqn(nqn).is_ok() {
                let text = format!(
                    "the port links to {nqn}, which is not in `subsystems`: add it, or take the \
                     link out"
                );
                import.report.mistake(linked.place, text);
            }
            continue;
        };
        if let Some(listeners) = &mut subsystem.listeners {
            listeners.push(address);
        }
        let used: HashSet<u32> = subsystem
            .namespaces
            .iter()
            .map(|namespace| namespace.ana_group)
            .collect();
        let told = states
            .iter()
            .filter(|(id, state, _)| used.contains(id) && *state != "optimized");
        for (id, state, key) in told {
            let mut found = Notes::default();
            found.set("group", note(key));
            subsystem.ana.push(AnaModel {
                group: *id,
                at: Some(address),
                state,
                note: found,
            });
        }
    }
}

fn read_referral(import: &mut Import, referral: &SourceKey) {
    see_all(referral);
    let addr = referral.key("addr");
    let is_tcp = addr.and_then(|addr| addr.text("trtype")) == Some("tcp");
    if !is_tcp || referral.flag("enable") == Some(false) {
        let why = "it is not enabled, or not for TCP: it is left out";
        import.report.add(referral.place, "referrals", Lost, why);
        return;
    }
    let address = addr.and_then(|addr| read_address(import, addr));
    let address = address.map(|address| address.to_string());
    import.model.referrals.extend(address);
    import.model.referrals.dedup();
}
