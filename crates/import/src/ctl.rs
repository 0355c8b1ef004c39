//! ctl.conf(5) of FreeBSD's ctld, in its classic form and as UCL: auth groups, portal groups and
//! transport groups, then targets (iSCSI) and controllers (NVMe) with units that stand inside or
//! are named. Who says nothing of authentication lets nobody in.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::net::SocketAddr;

use server::check;

use crate::blocks::{self, BlockStyle};
use crate::model::{
    Backing, HostModel, InitiatorModel, LoginPair, LunModel, NamespaceModel, Notes, Spoken,
    SubsystemModel, TargetModel, VolumeModel,
};
use crate::nvmetcli::see_all;
use crate::report::Weight::{Access, Default, Lost};
use crate::tree::{Known, SourceKey, number, size};
use crate::volumes::KnownVolumes;
use crate::{Import, note, other_transport};

const KNOWN: &[Known] = &[
    ("debug", Default, "see WEFT_LOG"),
    (
        "maxproc",
        Default,
        "weft starts no process for a connection",
    ),
    ("pidfile", Default, "weft writes none"),
    ("timeout", Default, "weft has its own"),
    ("isns-server", Lost, "weft tells no iSNS server"),
    ("isns-period", Lost, "weft tells no iSNS server"),
    ("isns-timeout", Lost, "weft tells no iSNS server"),
    (
        "discovery-filter",
        Default,
        "weft tells initiators only of targets that let them in",
    ),
    ("offload", Default, "weft uses no offload of a card"),
    ("foreign", Lost, "weft knows no other node"),
    ("tag", Default, "weft numbers portal groups itself"),
    ("dscp", Lost, "weft marks no packets"),
    ("pcp", Lost, "weft marks no packets"),
    ("port", Lost, "weft serves no ports of cards"),
    (
        "device-id",
        Lost,
        "weft's T10 designator is of vendor and serial number",
    ),
    ("ctl-lun", Default, "weft numbers nothing by it"),
    ("device-type", Default, "weft has disks alone"),
    ("listen-iser", Lost, "weft serves iSCSI over TCP"),
];

/// Options of a unit, and what they are here.
const OPTIONS: &[(&str, &str)] = &[
    ("naa", "naa"),
    ("eui", "eui64"),
    ("uuid", "uuid"),
    ("vendor", "vendor"),
    ("product", "product"),
    ("revision", "revision"),
];

pub(crate) fn read_classic(import: &mut Import, text: &str) {
    match blocks::read(BlockStyle::Ctl, text, 0) {
        Ok(keys) => read(import, &keys),
        Err((place, why)) => import.report.mistake(place, why),
    }
}

pub(crate) fn read_ucl(import: &mut Import, text: &str) {
    match blocks::read(BlockStyle::Ucl, text, 0) {
        Ok(keys) => {
            let mut classic = Vec::new();
            for key in &keys {
                flatten(import, key, &mut classic);
            }
            read(import, &classic);
        }
        Err((place, why)) => import.report.mistake(place, why),
    }
}

/// From UCL's form to the classic one: what has names becomes one block for each, a list one
/// line for each item, and tables of credentials and options become words.
fn flatten(import: &mut Import, key: &SourceKey, into: &mut Vec<SourceKey>) {
    if key.name.starts_with('.') {
        let text = format!("`{}`: write what it stands for in its place", key.name);
        return import.report.mistake(key.place, text);
    }
    const NAMED: &[&str] = &[
        "auth-group",
        "portal-group",
        "transport-group",
        "target",
        "controller",
        "lun",
        "namespace",
    ];
    let is_named = NAMED.contains(&&*key.name);
    if key.keys.is_empty() && key.name == "options" {
        return;
    }
    if key.keys.is_empty() {
        for word in &key.words {
            let mut line = SourceKey::new(&key.name, key.place);
            line.words.push(word.clone());
            into.push(line);
        }
        return;
    }
    match key.name.as_str() {
        "options" => {
            for option in &key.keys {
                let mut line = SourceKey::new("option", option.place);
                line.words.push(option.name.clone());
                line.words.extend(option.words.iter().cloned());
                into.push(line);
            }
        }
        // Of a transport group: addresses by transport.
        "listen" => {
            for kind in &key.keys {
                for address in &kind.words {
                    let mut line = SourceKey::new("listen", kind.place);
                    line.words = vec![kind.name.clone(), address.clone()];
                    into.push(line);
                }
            }
        }
        "chap" | "chap-mutual" => {
            let is_list = key.keys.iter().all(|item| item.name.is_empty());
            let tables: Vec<&SourceKey> = match is_list {
                true => key.keys.iter().collect(),
                false => vec![key],
            };
            for table in tables {
                let names = ["user", "secret", "mutual-user", "mutual-secret"];
                let mut line = SourceKey::new(&key.name, key.place);
                let words = names.iter().filter_map(|name| table.text(name));
                line.words.extend(words.map(str::to_owned));
                into.push(line);
            }
        }
        // Of a target: a group's name with that of an auth group.
        "portal-group" | "transport-group" if key.key("name").is_some() => {
            let mut line = SourceKey::new(&key.name, key.place);
            let words = ["name", "auth-group-name"]
                .iter()
                .filter_map(|name| key.text(name));
            line.words.extend(words.map(str::to_owned));
            into.push(line);
        }
        _ if is_named => named_blocks(import, key, into),
        _ => into.push(key.clone()),
    }
}

/// A block for each item that has a name or a number.
fn named_blocks(import: &mut Import, key: &SourceKey, into: &mut Vec<SourceKey>) {
    for item in &key.keys {
        let mut block = SourceKey::new(&key.name, item.place);
        let said = item.text("number").map(str::to_owned);
        let name = if item.name.is_empty() {
            said
        } else {
            Some(item.name.clone())
        };
        block.words.extend(name);
        // `0: name`, or a table that names it.
        block.words.extend(item.words.iter().cloned());
        let said = ["name", "auth-group-name"]
            .iter()
            .filter_map(|name| item.text(name));
        block.words.extend(said.map(str::to_owned));
        for inner in &item.keys {
            if !matches!(inner.name.as_str(), "number" | "name" | "auth-group-name") {
                flatten(import, inner, &mut block.keys);
            }
        }
        into.push(block);
    }
}

/// A group of terms of access.
#[derive(Clone, Debug, Default)]
struct AuthGroup {
    /// Everybody is refused.
    denies: bool,
    logins: Vec<LoginPair>,
    names: Vec<String>,
    networks: Vec<String>,
    hosts: Vec<String>,
    says_something: bool,
    /// Said, whether weft could take them or not.
    has_chap: bool,
    has_names: bool,
    has_hosts: bool,
}

/// What stands before targets and controllers.
#[derive(Default)]
struct Ctl {
    volumes: KnownVolumes,
    groups: HashMap<String, AuthGroup>,
    portals: HashMap<String, Vec<SocketAddr>>,
    /// Units with a name: their volumes.
    luns: HashMap<String, Option<String>>,
}

fn read(import: &mut Import, keys: &[SourceKey]) {
    let mut ctl = Ctl::default();
    ctl.groups
        .insert("no-authentication".to_owned(), AuthGroup::default());
    let denies = AuthGroup {
        denies: true,
        ..AuthGroup::default()
    };
    ctl.groups.insert("default".to_owned(), denies.clone());
    ctl.groups.insert("no-access".to_owned(), denies);
    for key in keys {
        ctl.shared(import, key);
    }
    for key in keys {
        match key.name.as_str() {
            "target" => ctl.target(import, key.see()),
            "controller" => ctl.controller(import, key.see()),
            _ => {}
        }
    }
    let mut top = SourceKey::default();
    top.keys = keys.to_vec();
    top.tell_rest(KNOWN, &mut import.report);
}

impl Ctl {
    fn shared(&mut self, import: &mut Import, key: &SourceKey) {
        let name = key.word().unwrap_or_default().to_owned();
        let is_twice = match key.name.as_str() {
            "auth-group" => {
                let group = auth(import, key.see());
                // "default" may be said anew.
                let known = self.groups.insert(name.clone(), group);
                known.is_some() && name != "default"
            }
            "portal-group" => self.portal_group(import, key.see(), &name, Spoken::Iscsi),
            "transport-group" => self.portal_group(import, key.see(), &name, Spoken::NvmeTcp),
            "lun" => {
                let volume = self.unit(import, key.see(), &name);
                self.luns.insert(name.clone(), volume).is_some()
            }
            _ => false,
        };
        if is_twice {
            let text = format!("{} {name} is there already: give it its own name", key.name);
            import.report.mistake(key.place, text);
        }
    }

    fn portal_group(
        &mut self,
        import: &mut Import,
        key: &SourceKey,
        name: &str,
        spoken: Spoken,
    ) -> bool {
        let mut addresses = Vec::new();
        for listen in key.all("listen") {
            let words = &listen.words;
            let (kind, address) = match (spoken, &words[..]) {
                (Spoken::NvmeTcp, [kind, address, ..]) => (kind.as_str(), address.as_str()),
                (_, [address, ..]) => ("tcp", address.as_str()),
                _ => ("tcp", ""),
            };
            let (port, discovery_only) = match kind {
                "tcp" => (spoken.word().1, false),
                "discovery-tcp" => (8009, true),
                other => {
                    import
                        .report
                        .add(listen.place, "listen", Access, other_transport(other));
                    continue;
                }
            };
            let Some(address) = socket_address(address, port) else {
                let text =
                    format!("{address:?} is no address: write 192.0.2.1 or [2001:db8::1]:3260");
                import.report.mistake(listen.place, text);
                continue;
            };
            import.listen_for(listen, address, spoken, discovery_only);
            if !discovery_only {
                addresses.push(address);
            }
        }
        for redirect in key.all("redirect") {
            let why = "weft redirects targets, not portals: its targets are served here";
            import.report.add(redirect.place, "redirect", Access, why);
        }
        self.discovery(import, key, spoken);
        let map = match spoken {
            Spoken::NvmeTcp => format!("transport {name}"),
            _ => name.to_owned(),
        };
        self.portals.insert(map, addresses).is_some()
    }

    fn discovery(&mut self, import: &mut Import, key: &SourceKey, spoken: Spoken) {
        let Some(group) = key.key("discovery-auth-group") else {
            return;
        };
        let name = group.word().unwrap_or_default();
        let Some(found) = self.groups.get(name) else {
            let text = format!("there is no auth-group {name:?}: write it before");
            return import.report.mistake(group.place, text);
        };
        match &found.logins[..] {
            [logins] if spoken == Spoken::Iscsi => import.model.discovery = logins.clone(),
            [] if name == "no-authentication" => {}
            _ => {
                let why = "weft tells whoever may reach a target of it; see [iscsi.discovery]";
                import
                    .report
                    .add(group.place, "discovery-auth-group", Access, why);
            }
        }
    }

    /// The volume of a unit; `None`: it is left out, which is told.
    fn unit(&mut self, import: &mut Import, key: &SourceKey, name: &str) -> Option<String> {
        let backend = key.text("backend").unwrap_or("block");
        let path = key.key("path");
        let block = key.text("blocksize").unwrap_or("512");
        let size_key = key.key("size");
        let bytes = size_key.and_then(SourceKey::word).and_then(size);
        let backing = match (backend, path.and_then(SourceKey::word)) {
            ("ramdisk", _) => Backing::Ram,
            (_, Some(path)) => Backing::of_path(path),
            (_, None) => {
                import
                    .report
                    .mistake(key.place, format!("the unit {name} has no path"));
                return None;
            }
        };
        if let Some(kind) = key
            .text("device-type")
            .filter(|kind| !matches!(*kind, "disk" | "0"))
        {
            let why = format!("weft has disks, no {kind}: the unit is left out");
            import.report.add(key.place, "device-type", Access, why);
            return None;
        }
        let is_memory = backing == Backing::Ram;
        let is_device = matches!(backing, Backing::Block(_));
        let shown = path.and_then(SourceKey::word).unwrap_or(name);
        let shown = if name.is_empty() || name.bytes().all(|byte| byte.is_ascii_digit()) {
            shown.trim_start_matches("/dev/")
        } else {
            name
        };
        let mut volume = VolumeModel::new(shown, backing);
        volume.notes.set("path", path.map(note).unwrap_or_default());
        volume.block_bytes = match block {
            "512" => 512,
            "4096" => 4096,
            other => {
                let why = format!("weft has blocks of 512 and 4096 bytes, not {other}: left out");
                import.report.add(key.place, "blocksize", Access, why);
                return None;
            }
        };
        volume
            .notes
            .set("block_bytes", "`blocksize`, or its default");
        if !is_device {
            volume.size_bytes = bytes;
            volume
                .notes
                .set("size", size_key.map(note).unwrap_or_default());
        }
        if is_memory && bytes.is_none_or(|bytes| bytes == 0) {
            let text = format!("the ramdisk {name} has no size: say how many bytes it has");
            import.report.mistake(key.place, text);
        }
        identify(import, key, &mut volume);
        Some(self.volumes.add(import, key, volume))
    }

    /// The volume of a unit of a target or controller: one that is named, or one that stands there.
    fn volume_of(&mut self, import: &mut Import, key: &SourceKey) -> Option<(u64, String)> {
        let id = key.words.first().and_then(|word| number(word));
        let Some(id) = id else {
            let text = format!("a {} needs a number", key.name);
            import.report.mistake(key.place, text);
            return None;
        };
        match key.words.get(1) {
            None => {
                let name = id.to_string();
                self.unit(import, key, &name).map(|volume| (id, volume))
            }
            Some(name) => match self.luns.get(name) {
                Some(Some(volume)) => Some((id, volume.clone())),
                // What is left out is told already.
                Some(None) => None,
                None => {
                    let text = format!("there is no lun {name:?}: write it before");
                    import.report.mistake(key.place, text);
                    None
                }
            },
        }
    }

    /// The volumes of a target or controller, by their numbers there.
    fn units<N: PartialEq + Display>(
        &mut self,
        import: &mut Import,
        key: &SourceKey,
        (kind, number_key): (&str, &'static str),
        checked: impl Fn(u64) -> Result<N, String>,
    ) -> Vec<(N, String, Notes)> {
        let mut units: Vec<(N, String, Notes)> = Vec::new();
        for unit in key.all(kind) {
            let Some((id, volume)) = self.volume_of(import, unit) else {
                continue;
            };
            let number = match checked(id) {
                Ok(number) => number,
                Err(why) => {
                    import.report.mistake(unit.place, why);
                    continue;
                }
            };
            let is_same = |(known, of, _): &(N, String, Notes)| *known == number || *of == volume;
            if units.iter().any(is_same) {
                let text = format!("{kind} {number} or {volume} is there already");
                import.report.mistake(unit.place, text);
                continue;
            }
            let mut notes = Notes::default();
            notes.set(number_key, note(unit));
            notes.set("volume", note(unit));
            units.push((number, volume, notes));
        }
        units
    }

    /// Where a target or controller is reached, and by whom.
    fn reached(
        &mut self,
        import: &mut Import,
        key: &SourceKey,
        spoken: Spoken,
    ) -> (Vec<SocketAddr>, AuthGroup) {
        let (word, start) = match spoken {
            Spoken::NvmeTcp => ("transport-group", "transport "),
            _ => ("portal-group", ""),
        };
        let own = auth(import, key);
        let mut named: Vec<&SourceKey> = key.all("auth-group").collect();
        let mut portals: Vec<SocketAddr> = Vec::new();
        let mut is_said = false;
        for group in key.all(word) {
            is_said = true;
            let name = group.word().unwrap_or_default();
            match self.portals.get(&format!("{start}{name}")) {
                Some(found) => portals.extend(found),
                None if name == "default" => is_said = false,
                None => {
                    let text = format!("there is no {word} {name:?}: write it before");
                    import.report.mistake(group.place, text);
                }
            }
            if group.words.len() > 1 {
                let why = "weft has one set of rights for a target, wherever it is reached: that \
                           of the group counts";
                import.report.add(group.place, word, Access, why);
                named.push(group);
            }
        }
        if !is_said {
            for address in ["0.0.0.0", "[::]"] {
                if let Some(address) = socket_address(address, spoken.word().1) {
                    import.listen(key, address, spoken);
                    portals.push(address);
                }
            }
        }
        let mut found = own;
        for group in named {
            let name = group.words.last().map_or("", String::as_str);
            match self.groups.get(name) {
                Some(known) if !found.says_something => {
                    found = known.clone();
                    found.says_something = true;
                }
                // A second one must let in too.
                Some(_) => found.denies = true,
                None => {
                    let text = format!("there is no auth-group {name:?}: write it before");
                    import.report.mistake(group.place, text);
                }
            }
        }
        if !found.says_something {
            found = self.groups.get("default").cloned().unwrap_or_default();
        }
        (portals, found)
    }

    fn target(&mut self, import: &mut Import, key: &SourceKey) {
        let name = key.word().unwrap_or_default();
        if key.key("port").is_some() && key.key("portal-group").is_none() {
            see_all(key);
            let why = "weft serves no ports of cards: the target is left out";
            return import.report.add(key.place, "port", Access, why);
        }
        let Some(mut target) = import.target(key, name) else {
            return see_all(key);
        };
        if let Some(alias) = key.key("alias") {
            import.alias(alias, &mut target);
        }
        if let Some(redirect) = key.key("redirect") {
            target.redirect = redirect.word().map(str::to_owned);
            target.notes.set("redirect", note(redirect));
        }
        let (portals, group) = self.reached(import, key, Spoken::Iscsi);
        target.portals = Some(portals);
        let units = self.units(import, key, ("lun", "lun"), check::lun);
        let units = units.into_iter().map(|(lun, volume, notes)| LunModel {
            lun,
            volume,
            ana_group: 1,
            read_only: false,
            notes,
        });
        target.luns.extend(units);
        let_in(import, key, &mut target, group);
        import.model.targets.push(target);
    }

    fn controller(&mut self, import: &mut Import, key: &SourceKey) {
        let name = key.word().unwrap_or_default();
        if !import.fits(key, nvmf::check_subsystem_nqn(name)) {
            return see_all(key);
        }
        let at = import.model.subsystems.len();
        if import.named.insert(name.to_owned(), at).is_some() {
            let text = format!("a controller {name} is there already");
            return import.report.mistake(key.place, text);
        }
        let (listeners, group) = self.reached(import, key, Spoken::NvmeTcp);
        let mut subsystem = SubsystemModel {
            nqn: name.to_owned(),
            listeners: Some(listeners),
            ..SubsystemModel::default()
        };
        subsystem.notes.set("nqn", note(key));
        subsystem.notes.set(
            "hosts",
            "`host-nqn`; without one nobody whom weft could name",
        );
        let proves_more = group.has_chap || !group.networks.is_empty();
        let takes_all = !group.denies && !group.has_hosts && !proves_more;
        if proves_more {
            let why = "weft lets hosts in by their NQN, not by an address or a secret of CHAP alone: \
                       no host is let in; see `networks` of [[nvme.subsystem.host]]";
            import.report.add(key.place, "auth-group", Access, why);
        }
        if !takes_all {
            let by_name = !proves_more && !group.denies;
            let hosts = if by_name { group.hosts } else { Vec::new() };
            let hosts = hosts.into_iter().map(HostModel::of_name);
            subsystem.hosts = Some(hosts.collect());
        }
        if let Some(serial) = key.key("serial")
            && let Some(word) = serial.word()
        {
            match check::fixed_text("serial", word, check::SERIAL_BYTES) {
                Ok(()) => subsystem.serial = Some(word.to_owned()),
                Err(why) => import.report.add(serial.place, "serial", Lost, why),
            }
            subsystem.notes.set("serial", note(serial));
        }
        let units = self.units(import, key, ("namespace", "nsid"), check::nsid);
        let units = units
            .into_iter()
            .map(|(nsid, volume, notes)| NamespaceModel {
                nsid,
                volume,
                ana_group: 1,
                hosts: None,
                notes,
            });
        subsystem.namespaces.extend(units);
        import.model.subsystems.push(subsystem);
    }
}

/// An address without a port, or with one, as `[2001:db8::1]:3260`.
fn socket_address(text: &str, port: u16) -> Option<SocketAddr> {
    let plain = text.trim_start_matches('[').trim_end_matches(']');
    match plain.parse() {
        Ok(ip) => Some(SocketAddr::new(ip, port)),
        Err(_) => text
            .parse()
            .ok()
            .filter(|found: &SocketAddr| found.port() > 0),
    }
}

/// What a block says of who is let in.
fn auth(import: &mut Import, key: &SourceKey) -> AuthGroup {
    let mut group = AuthGroup::default();
    for line in &key.keys {
        let word = |nth: usize| line.words.get(nth).map_or("", String::as_str);
        let is_known = match line.name.as_str() {
            "auth-type" => {
                group.denies |= word(0) == "deny";
                true
            }
            "chap" | "chap-mutual" => {
                let mutual = (line.name == "chap-mutual").then(|| (word(2), word(3)));
                group.has_chap = true;
                let found = import.logins(line, (word(0), word(1)), mutual);
                group.logins.extend(found);
                true
            }
            "initiator-name" => {
                group.has_names = true;
                group.names.extend(import.initiator(line, word(0)));
                true
            }
            "initiator-portal" | "host-address" => {
                let network = word(0).replace(['[', ']'], "");
                let ip = network.split('/').next().unwrap_or_default();
                match ip.parse::<std::net::IpAddr>() {
                    Ok(_) => group.networks.push(network),
                    Err(_) => import.report.mistake(
                        line.place,
                        format!("{network:?} is no network: write 192.0.2.0/24"),
                    ),
                }
                true
            }
            "host-nqn" => {
                group.has_hosts = true;
                let fits = import.fits(line, nvmf::check_host_nqn(word(0)));
                if fits && !group.hosts.iter().any(|known| known == word(0)) {
                    group.hosts.push(word(0).to_owned());
                }
                true
            }
            _ => false,
        };
        if is_known {
            line.see();
            group.says_something = true;
        }
    }
    group
}

/// Whom a group lets in, if weft can say it.
fn let_in(import: &mut Import, key: &SourceKey, target: &mut TargetModel, group: AuthGroup) {
    target
        .notes
        .set("initiators", "the source lets nobody in whom weft could");
    if group.denies || group.has_chap && group.logins.is_empty() {
        return;
    }
    if group.logins.len() > 1 {
        let why = "weft takes one secret for all of a target: the first; give the others tables of \
                   their own, [[iscsi.target.initiator]]";
        import.report.add(key.place, "chap", Access, why);
    }
    target.logins = group.logins.into_iter().next().unwrap_or_default();
    let mut seen: HashSet<String> = HashSet::new();
    for name in group.names {
        if seen.insert(name.clone()) {
            let mut initiator = InitiatorModel {
                name: Some(name),
                networks: group.networks.clone(),
                ..InitiatorModel::default()
            };
            initiator.notes.set("name", "`initiator-name`");
            initiator.notes.set("networks", "`initiator-portal`");
            target.initiators.push(initiator);
        }
    }
    if !group.has_names {
        target.any_initiator = true;
        target.networks = group.networks;
        target
            .notes
            .set("allow_any_initiator", "no `initiator-name`");
        target.notes.set("networks", "`initiator-portal`");
    }
}

/// What hosts know a unit by.
fn identify(import: &mut Import, key: &SourceKey, volume: &mut VolumeModel) {
    match key.key("serial").map(|serial| (serial, serial.word())) {
        Some((serial, Some(word))) => volume.identify("serial", word, note(serial)),
        _ => {
            let why = "ctld makes the serial number: set `serial` as `sg_inq` shows it, or hosts \
                       see a new disk";
            import.report.add(key.place, "serial", Lost, why);
        }
    }
    let defaults = [
        ("vendor", "FREEBSD"),
        ("product", "CTLDISK"),
        ("revision", "0001"),
    ];
    for (ours, value) in defaults {
        volume.identify(ours, value, "default of CTL".to_owned());
    }
    for option in key.all("option") {
        let [name, rest @ ..] = &option.words[..] else {
            continue;
        };
        let value = rest.first().map_or("", String::as_str);
        let known = OPTIONS.iter().find(|(theirs, _)| theirs == name);
        match (known, name.as_str()) {
            (Some((_, ours)), _) => {
                let value = match *ours {
                    "naa" | "eui64" | "uuid" => value.trim_start_matches("0x").to_ascii_lowercase(),
                    _ => value.to_owned(),
                };
                volume.identify(
                    ours,
                    value,
                    format!("`option {name}`, line {}", option.place.line),
                );
            }
            (None, "readonly") => volume.read_only = crate::tree::flag(value) != Some(false),
            (None, _) => {
                let why = format!("the option {name} is of CTL alone");
                import.report.add(option.place, "option", Lost, why);
            }
        }
    }
}
