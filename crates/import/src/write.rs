//! Weft's document from a model: TOML with a comment on every line.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::SecretFile;
use crate::model::{
    AnaModel, Backing, ExportModel, HostKey, HostModel, InitiatorModel, LoginPair, Model, Notes,
    RuleModel, Spoken, SubsystemModel, TargetModel, VolumeModel,
};
use crate::report::{Report, plain};

/// What stands behind a value of which no note says more.
const TAKEN: &str = "from the source";
const IN_ITS_FILE: &str = "the secret stands in its own file (`--secrets`)";

/// The document, and the files with secrets that it names.
pub(crate) fn write(model: &Model, report: &Report) -> (String, Vec<SecretFile>) {
    let source = report.files.first().map_or("", String::as_str);
    let mut out = DocumentWriter::default();
    let _ = writeln!(out.text, "# Made by `weft import` from {}.", plain(source));
    for volume in &model.volumes {
        out.volume(volume);
    }
    out.folders(&model.exports);
    for subsystem in &model.subsystems {
        out.subsystem(subsystem);
    }
    for referral in &model.referrals {
        out.table("[[nvme.referral]]");
        out.line("address", quoted(referral), "a referral of the source");
    }
    out.iscsi(model);
    out.nfs(model);
    for listener in &model.listeners {
        out.table("[[listener]]");
        out.said(
            "address",
            quoted(&listener.address.to_string()),
            &listener.notes,
        );
        let note = "what was spoken there";
        out.line("protocol", quoted(listener.spoken.word().0), note);
        if listener.discovery_only {
            out.said("discovery_only", "true".to_owned(), &listener.notes);
        }
    }
    out.text.push('\n');
    match report.losses.is_empty() {
        true => out.text.push_str("# Nothing of the source is lost.\n"),
        false => out
            .text
            .push_str("# Not carried over, what changes access first:\n"),
    }
    for line in report.lines() {
        let _ = writeln!(out.text, "#   {line}");
    }
    (out.text, out.secrets)
}

/// A text as TOML writes it.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items
        .into_iter()
        .map(|item| quoted(&item.to_string()))
        .collect();
    format!("[{}]", items.join(", "))
}

/// A size in the largest binary unit that is exact.
fn size(bytes: u64) -> String {
    const UNITS: &[(&str, u32)] = &[("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let exact = |(_, shift): &&(&str, u32)| bytes > 0 && bytes.trailing_zeros() >= *shift;
    match UNITS.iter().find(exact) {
        Some((unit, shift)) => format!("\"{}{unit}\"", bytes >> shift),
        None => bytes.to_string(),
    }
}

#[derive(Default)]
struct DocumentWriter {
    text: String,
    secrets: Vec<SecretFile>,
}

impl DocumentWriter {
    fn table(&mut self, title: &str) {
        let _ = writeln!(self.text, "\n{title}");
    }

    fn line(&mut self, key: &str, value: String, note: &str) {
        let _ = writeln!(self.text, "{key} = {value}  # {}", plain(note));
    }

    fn said(&mut self, key: &str, value: String, notes: &Notes) {
        self.line(key, value, notes.get(key).unwrap_or(TAKEN));
    }

    fn volume(&mut self, volume: &VolumeModel) {
        self.table("[[volume]]");
        let VolumeModel { backing, notes, .. } = volume;
        let kind = match backing {
            Backing::Ram => "ram",
            Backing::Null => "null",
            Backing::File(_) => "file",
            Backing::Block(_) => "block",
        };
        self.said("name", quoted(&volume.name), notes);
        self.said("kind", quoted(kind), notes);
        if let Some(path) = backing.path() {
            self.said("path", quoted(path), notes);
        }
        match volume.size_bytes {
            Some(bytes) => self.said("size", size(bytes), notes),
            None if matches!(backing, Backing::Block(_)) => {}
            None => self
                .text
                .push_str("# size = \"1GiB\"  # FILL IN: the source does not say it\n"),
        }
        self.said("block_bytes", volume.block_bytes.to_string(), notes);
        for (key, value) in &volume.identity {
            self.said(key, quoted(value), notes);
        }
        if volume.read_only {
            self.said("read_only", "true".to_owned(), notes);
        }
    }

    fn folders(&mut self, exports: &[ExportModel]) {
        for (name, export) in file_systems(exports) {
            self.table("[[file_system]]");
            self.line("name", quoted(&name), "made from the path");
            self.line("kind", quoted("dir"), "a directory of this machine");
            self.said("path", quoted(&export.folder), &export.notes);
        }
    }

    fn subsystem(&mut self, subsystem: &SubsystemModel) {
        let SubsystemModel { notes, .. } = subsystem;
        self.table("[[nvme.subsystem]]");
        self.said("nqn", quoted(&subsystem.nqn), notes);
        match &subsystem.hosts {
            None => self.said("allow_any_host", "true".to_owned(), notes),
            Some(hosts) => {
                let by_name = hosts.iter().filter(|host| host.keys.is_empty());
                let by_name: Vec<&String> = by_name.map(|host| &host.nqn).collect();
                if by_name.len() == hosts.len() || !by_name.is_empty() {
                    self.said("hosts", list(by_name), notes);
                }
            }
        }
        for (key, value) in [("serial", &subsystem.serial), ("model", &subsystem.model)] {
            if let Some(value) = value {
                self.said(key, quoted(value), notes);
            }
        }
        if let Some((first, last)) = subsystem.cntlids {
            self.said("cntlids", quoted(&format!("{first}-{last}")), notes);
        }
        if let Some(listeners) = &subsystem.listeners {
            self.said("listeners", list(listeners), notes);
        }
        if subsystem.namespaces.is_empty() {
            self.line(
                "volumes",
                "[]".to_owned(),
                "the source has no namespace here",
            );
        }
        for host in subsystem.hosts.iter().flatten() {
            self.host(host, &subsystem.nqn);
        }
        for namespace in &subsystem.namespaces {
            let notes = &namespace.notes;
            self.table("[[nvme.subsystem.namespace]]");
            self.said("nsid", namespace.nsid.to_string(), notes);
            self.said("volume", quoted(&namespace.volume), notes);
            if namespace.ana_group != 1 {
                self.said("ana_group", namespace.ana_group.to_string(), notes);
            }
            if let Some(hosts) = &namespace.hosts {
                self.said("hosts", list(hosts), notes);
            }
        }
        let place = |address: &SocketAddr| quoted(&address.to_string());
        self.ana("[[nvme.subsystem.ana]]", "listener", &subsystem.ana, place);
    }

    /// A host that proves itself by keys.
    fn host(&mut self, host: &HostModel, subnqn: &str) {
        if host.keys.is_empty() {
            return;
        }
        self.table("[[nvme.subsystem.host]]");
        self.line("nqn", quoted(&host.nqn), TAKEN);
        for (key, place) in &host.keys {
            let (place, note) = match place {
                HostKey::At(place) => (place.clone(), "where the source has it"),
                HostKey::Inside(secret) => {
                    let whose = format!("{subnqn}-{}", host.nqn);
                    let name = key.trim_end_matches("_secret_file");
                    (self.secret((&host.nqn, secret), &whose, name), IN_ITS_FILE)
                }
            };
            self.line(key, quoted(&place), note);
        }
    }

    fn ana<P>(
        &mut self,
        title: &str,
        at: &str,
        states: &[AnaModel<P>],
        place: impl Fn(&P) -> String,
    ) {
        for ana in states {
            self.table(title);
            self.said("group", ana.group.to_string(), &ana.note);
            if let Some(found) = &ana.at {
                self.said(at, place(found), &ana.note);
            }
            self.said("state", quoted(ana.state), &ana.note);
        }
    }

    fn iscsi(&mut self, model: &Model) {
        if model.discovery.chap.is_some() {
            self.table("[iscsi.discovery]");
            self.logins(&model.discovery, "discovery");
        }
        let groups = PortalGroups::of(model);
        for (tag, portals) in &groups.list {
            self.table("[[iscsi.portal_group]]");
            self.line("tag", tag.to_string(), "a number for these listeners");
            self.line(
                "listeners",
                list(portals),
                "targets that are reached here alike",
            );
        }
        for target in &model.targets {
            self.target(target, &groups);
        }
    }

    fn target(&mut self, target: &TargetModel, groups: &PortalGroups) {
        let TargetModel { notes, name, .. } = target;
        self.table("[[iscsi.target]]");
        self.said("name", quoted(name), notes);
        if let Some(alias) = &target.alias {
            self.said("alias", quoted(alias), notes);
        }
        if target.any_initiator {
            self.said("allow_any_initiator", "true".to_owned(), notes);
            if !target.networks.is_empty() {
                self.said("networks", list(&target.networks), notes);
            }
        } else if target.initiators.is_empty() {
            self.said("initiators", "[]".to_owned(), notes);
        }
        self.logins(&target.logins, name);
        let logins = target.initiators.iter().map(|initiator| &initiator.logins);
        let mut logins = logins.chain([&target.logins]);
        if target.has_weak_chap && logins.any(|logins| logins.chap.is_some()) {
            let algorithms = ["sha3-256", "sha256", "sha1", "md5"];
            let note =
                "as before; md5 and sha1 are weak, leave them out when no initiator needs them";
            self.line("chap_algorithms", list(algorithms), note);
        }
        if let Some(tags) = groups.tags(target) {
            let tags: Vec<String> = tags.iter().map(u16::to_string).collect();
            self.said("portal_groups", format!("[{}]", tags.join(", ")), notes);
        }
        if let Some(redirect) = &target.redirect {
            self.said("redirect", quoted(redirect), notes);
        }
        for (key, value) in &target.terms {
            self.said(key, value.clone(), notes);
        }
        if target.luns.is_empty() {
            self.line("volumes", "[]".to_owned(), "the source has no LUN here");
        }
        for lun in &target.luns {
            self.table("[[iscsi.target.lun]]");
            self.said("lun", lun.lun.to_string(), &lun.notes);
            self.said("volume", quoted(&lun.volume), &lun.notes);
            if lun.ana_group != 1 {
                self.said("ana_group", lun.ana_group.to_string(), &lun.notes);
            }
        }
        for initiator in &target.initiators {
            self.initiator(initiator, name);
        }
        self.ana(
            "[[iscsi.target.ana]]",
            "portal_group",
            &target.ana,
            u16::to_string,
        );
    }

    fn initiator(&mut self, initiator: &InitiatorModel, target: &str) {
        self.table("[[iscsi.target.initiator]]");
        let InitiatorModel { notes, .. } = initiator;
        if let Some(name) = &initiator.name {
            self.said("name", quoted(name), notes);
        }
        if !initiator.networks.is_empty() {
            self.said("networks", list(&initiator.networks), notes);
        }
        if let Some(luns) = &initiator.luns {
            let luns: Vec<String> = luns.iter().map(u16::to_string).collect();
            self.said("luns", format!("[{}]", luns.join(", ")), notes);
        }
        let whose = initiator.name.as_deref().unwrap_or("all");
        self.logins(&initiator.logins, &format!("{target}-{whose}"));
    }

    fn logins(&mut self, logins: &LoginPair, whose: &str) {
        let pair = [("chap", &logins.chap), ("mutual_chap", &logins.mutual)];
        for (key, login) in pair {
            let Some(login) = login else { continue };
            let file = self.secret((&login.user, &login.secret), whose, key);
            let (user, file) = (quoted(&login.user), quoted(&file));
            self.line(
                key,
                format!("{{ user = {user}, secret_file = {file} }}"),
                IN_ITS_FILE,
            );
        }
    }

    /// The file for a secret of a user.
    fn secret(&mut self, (user, secret): (&str, &str), whose: &str, key: &str) -> String {
        let name = plain_name(&format!("{whose}.{key}"), 200);
        let is_taken =
            |secrets: &[SecretFile], name: &str| secrets.iter().any(|secret| secret.name == name);
        let mut found = format!("{name}.secret");
        let mut nth = 2;
        while is_taken(&self.secrets, &found) {
            found = format!("{name}-{nth}.secret");
            nth += 1;
        }
        self.secrets.push(SecretFile {
            name: found.clone(),
            user: user.to_owned(),
            secret: secret.to_owned(),
        });
        found
    }

    fn nfs(&mut self, model: &Model) {
        if model.exports.is_empty() {
            return;
        }
        self.table("[nfs]");
        let note = "default of this import: what clients hold must outlive a restart";
        self.line("state", quoted("/var/lib/weft/nfs"), note);
        for (key, value) in [("lease_ms", model.lease_ms), ("grace_ms", model.grace_ms)] {
            if let Some(value) = value {
                self.line(key, value.to_string(), TAKEN);
            }
        }
        for (name, export) in file_systems(&model.exports) {
            self.export(export, &name);
        }
    }

    fn export(&mut self, export: &ExportModel, file_system: &str) {
        self.table("[[export]]");
        self.said("path", quoted(&export.path), &export.notes);
        self.line("file_system", quoted(file_system), "the directory, above");
        let mut rules = export.rules.clone();
        let general = rules.pop_if(|rule| rule.clients.is_none());
        match &general {
            Some(rule) => {
                self.said("allow_any_client", "true".to_owned(), &rule.note);
                self.rule(rule);
            }
            None if rules.is_empty() => {
                let note = "the source lets nobody in whom weft could name; 192.0.2.0/32 is nobody";
                self.line("clients", list(["192.0.2.0/32"]), note);
            }
            None => {}
        }
        for rule in &rules {
            self.table("[[export.client]]");
            self.said("clients", list(rule.clients.iter().flatten()), &rule.note);
            self.rule(rule);
        }
    }

    fn rule(&mut self, rule: &RuleModel) {
        let RuleModel { note, .. } = rule;
        self.said("read_only", rule.read_only.to_string(), note);
        self.said("squash", quoted(rule.squash), note);
        self.said("anon_uid", rule.anon_uid.to_string(), note);
        self.said("anon_gid", rule.anon_gid.to_string(), note);
        self.said("security", list(&rule.security), note);
        if !rule.xprtsec.is_empty() {
            self.said("xprtsec", list(&rule.xprtsec), note);
        }
        if rule.secure {
            self.said("secure", "true".to_owned(), note);
        }
    }
}

/// A name of letters, digits, `-`, `_` and `.` as volumes have it.
pub(crate) fn file_name(text: &str) -> String {
    plain_name(text, 56)
}

fn plain_name(text: &str, length_max: usize) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let text = text.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let name = text.chars().map(|c| if is_plain(c) { c } else { '-' });
    let length = text.chars().count();
    // What tells names apart stands at their end.
    let name: String = name.skip(length.saturating_sub(length_max)).collect();
    match name.is_empty() {
        true => "unnamed".to_owned(),
        false => name,
    }
}

/// Exports with a name for what each of them serves.
fn file_systems(exports: &[ExportModel]) -> Vec<(String, &ExportModel)> {
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    let named = exports.iter().map(|export| {
        let name = match export.folder.as_str() {
            "/" => "root".to_owned(),
            folder => file_name(folder),
        };
        let count = taken.entry(name.clone()).or_default();
        *count += 1;
        match *count {
            1 => (name, export),
            nth => (format!("{name}-{nth}"), export),
        }
    });
    named.collect()
}

/// Listeners that the same targets use.
struct PortalGroups {
    list: Vec<(u16, Vec<SocketAddr>)>,
}

impl PortalGroups {
    fn of(model: &Model) -> PortalGroups {
        let mut list = Vec::new();
        if model.targets.iter().all(|target| target.portals.is_none()) {
            return PortalGroups { list };
        }
        let mut by_use: BTreeMap<Vec<bool>, Vec<SocketAddr>> = BTreeMap::new();
        let iscsi = model.listeners.iter();
        for listener in iscsi.filter(|listener| listener.spoken == Spoken::Iscsi) {
            let uses = model.targets.iter().map(|target| {
                let portals = target.portals.as_ref();
                portals.is_none_or(|portals| portals.contains(&listener.address))
            });
            let same = by_use.entry(uses.collect()).or_default();
            same.push(listener.address);
        }
        // Those that most targets use have the first numbers.
        for (tag, (_, portals)) in (1..).zip(by_use.into_iter().rev()) {
            list.push((tag, portals));
        }
        PortalGroups { list }
    }

    fn tags(&self, target: &TargetModel) -> Option<Vec<u16>> {
        let portals = target.portals.as_ref()?;
        let used = self
            .list
            .iter()
            .filter(|(_, group)| portals.contains(&group[0]));
        Some(used.map(|(tag, _)| *tag).collect())
    }
}
