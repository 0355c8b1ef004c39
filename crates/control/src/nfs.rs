//! The file systems of a file, what of them is exported, and to which clients.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use server::nfs::{
    ClientName, Clients, ExportSpec, Exported, FileSystemKind, FileSystemSpec, Flavor, Net,
};
use server::nfs::{
    NamedHost, NfsSettings, Rule as ExportRule, Squash, TlsFiles, Xprtsec, XprtsecModes,
};
use server::{Config, ListenerSpec, check, nfs};
use store::fs::Acls;
use tls::ServerSide;

mod kerberos;
mod owners;
mod referral;

use crate::by_name::ByName;
use crate::certificates::{
    alternative_name, is_alternative_name, no_pattern, out_of_time, tls_files,
};
use crate::format_size;
use crate::policy::{Number, Rule, count, pick, size};
use crate::schema::{CLIENT, EXPORT, FILE_SYSTEM, KERBEROS, NFS, NFS_TLS, SCHEMA};
use crate::source::choice;
use crate::source::{At, Section, Sink, hint};

/// What the file says of files.
pub(crate) struct Files {
    pub file_systems: Vec<FileSystemSpec>,
    pub exports: Vec<ExportSpec>,
    pub settings: NfsSettings,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

const IO_BYTES_MAX: Number = size("max_io_bytes", 4 * KIB, 8 * MIB, Rule::Multiple(4096));
/// The part of `memory_max` that the data of one READ or WRITE may be: one whose user protects
/// it by Kerberos takes twice as much, and other clients find room beside it.
const IO_PART_MAX: u64 = 8;
const LEASE_MS: Number = count("lease_ms", 1_000, 3_600_000);
const GRACE_MS: Number = count("grace_ms", 0, 3_600_000);
const MEM_SIZE: Number = size("size", MIB, 1 << 44, Rule::Any);
/// 4294967295 is the number of no user: it means "leave it" to `chown`.
const ANON_UID: Number = count("anon_uid", 0, u32::MAX as u64 - 1);
const ANON_GID: Number = count("anon_gid", 0, u32::MAX as u64 - 1);

pub(crate) fn read(
    sink: &mut Sink,
    file: &Section,
    section: Option<&Section>,
    (folder, listeners): (&Path, &[ListenerSpec]),
) -> Files {
    let state = section.and_then(|section| section.text(sink, "state"));
    let state = state.map(|path| folder.join(path.value));
    let (file_systems, names) = file_systems(sink, file, (folder, state.as_deref()));
    let has_keys = section.is_some_and(|section| section.has("kerberos"));
    let exports = exports(sink, file, (&names, listeners), has_keys);
    let default = NfsSettings::default();
    let owners = section.map(|section| owners::read(sink, section));
    let owners = owners.unwrap_or_default();
    let domain = owners.domain.as_deref();
    let settings = NfsSettings {
        io_bytes_max: IO_BYTES_MAX.read(sink, section, default.io_bytes_max),
        lease_ms: LEASE_MS.read(sink, section, default.lease_ms),
        grace_ms: GRACE_MS.read(sink, section, default.grace_ms),
        state,
        manage_gids: section
            .and_then(|section| section.flag(sink, "manage_gids"))
            .unwrap_or(default.manage_gids),
        tls: tls(sink, section, folder),
        kerberos: section.and_then(|section| kerberos::read(sink, section, folder, domain)),
        owners,
    };
    if let Some(section) = section
        && settings.grace_ms < settings.lease_ms
        && (section.has("grace_ms") || section.has("lease_ms"))
    {
        let text = format!(
            "`grace_ms` ({}) is less than `lease_ms` ({}): a client that notices a restart late \
             could not reclaim what it had",
            settings.grace_ms, settings.lease_ms
        );
        sink.add(&section.span_of("grace_ms"), text);
    }
    Files {
        file_systems,
        exports,
        settings,
    }
}

/// Whether there is memory for what clients may read and write at a time.
pub(crate) fn fits(sink: &mut Sink, section: Option<&Section>, config: &Config) {
    let memory_max = config.memory_max;
    let need = IO_PART_MAX * u64::from(config.nfs.io_bytes_max);
    if let Some(section) = section
        && memory_max < need
    {
        let text = format!(
            "`max_io_bytes` is more than an eighth of `memory_max` ({}): write less, or have \
             `memory_max` of {} in [policy]",
            format_size(memory_max),
            format_size(need)
        );
        sink.add(&section.span_of("max_io_bytes"), text);
    }
}

/// What RPC-with-TLS is spoken by.
fn tls(sink: &mut Sink, section: Option<&Section>, folder: &Path) -> Option<TlsFiles> {
    let table = section?.table(sink, SCHEMA, "tls", NFS_TLS)?;
    tls_files(sink, &table, folder, ServerSide::for_rpc)
}

/// What is allowed, but keeps clients out.
pub(crate) fn notes(config: &Config) -> impl Iterator<Item = String> {
    let tls = config.nfs.tls.as_ref();
    let late = tls.map(|tls| out_of_time("[nfs.tls]", tls, "NFS clients"));
    let patterns = config.exports.iter().filter_map(pattern_of);
    closed_export(config)
        .into_iter()
        .chain(late.into_iter().flatten())
        .chain(patterns)
        .chain(config.exports.iter().filter_map(referral::out_of_reach))
}

/// That a name of certificates looks like a pattern, which it is not.
fn pattern_of(export: &ExportSpec) -> Option<String> {
    let names = export.rules.iter().flat_map(|rule| match &rule.clients {
        Clients::Named(names) => &names[..],
        Clients::Any => &[],
    });
    let names = names.filter_map(|name| match name {
        ClientName::Certificate(name) => Some(name),
        _ => None,
    });
    no_pattern(&format!("the export {}", export.path), names)
}

/// That exports want TLS which is not there.
fn closed_export(config: &Config) -> Option<String> {
    let tls = config.nfs.tls.as_ref();
    let can = match tls.map(|tls| tls.client_ca.is_some()) {
        None => &[Xprtsec::None][..],
        Some(false) => &[Xprtsec::None, Xprtsec::Tls],
        Some(true) => &Xprtsec::ALL,
    };
    let is_closed = |rule: &ExportRule| !can.iter().any(|has| rule.xprtsec.take(*has));
    let closed = |export: &&ExportSpec| export.rules.iter().any(is_closed);
    let export = config.exports.iter().find(closed)?;
    let missing = match tls {
        None => "there is no [nfs.tls], whose `certificate` and `key` it is spoken by",
        Some(_) => "[nfs.tls] names no `client_ca`, by which clients' certificates are judged",
    };
    Some(format!(
        "the `xprtsec` of the export {} lets no client in: {missing}",
        export.path
    ))
}

/// The file systems, and the names of all, of broken ones too, with whether each keeps security
/// labels.
fn file_systems(
    sink: &mut Sink,
    file: &Section,
    folders: (&Path, Option<&Path>),
) -> (Vec<FileSystemSpec>, ByName<bool>) {
    let (mut list, mut names) = (Vec::new(), Vec::new());
    let mut lines: HashMap<String, usize> = HashMap::new();
    let mut paths: HashMap<PathBuf, usize> = HashMap::new();
    for section in file.tables(sink, SCHEMA, "file_system", FILE_SYSTEM) {
        section.missing(sink, "name", "name = \"files\"");
        let name = section.text(sink, "name");
        if let Some(name) = &name
            && let Err(why) = check::file_system_name(name.value)
        {
            sink.add(&name.span, why);
        }
        let line = sink.line(&section.span);
        if let Some(name) = &name
            && let Some(first) = lines.insert(name.value.to_owned(), line)
        {
            let there = format!("a file system \"{}\" is there already, ", name.value);
            sink.add_with_line(&name.span, (&there, first, ""));
        }
        let kind = kind(
            sink,
            &section,
            folders,
            name.as_ref().map(|name| name.value),
        );
        if let Some(FileSystemKind::Dir { path, state, .. }) = &kind {
            if let Some(first) = paths.insert(path.clone(), line) {
                let text = ("the file system ", first, " is this directory already");
                sink.add_with_line(&section.span_of("path"), text);
            }
            if let Some(first) = paths.insert(state.clone(), line) {
                let text = ("the file system ", first, " has this folder already");
                sink.add_with_line(&section.span_of("state"), text);
            }
        }
        let name = name.map(|name| name.value.to_owned());
        let keeps_labels = !matches!(kind, Some(FileSystemKind::Dir { .. }));
        names.extend(name.clone().map(|name| (name, keeps_labels)));
        if let (Some(name), Some(kind)) = (name, kind) {
            list.push(FileSystemSpec { name, kind });
        }
    }
    (list, ByName::new(names))
}

fn kind(
    sink: &mut Sink,
    section: &Section,
    folders: (&Path, Option<&Path>),
    name: Option<&str>,
) -> Option<FileSystemKind> {
    section.missing(sink, "kind", "kind = \"mem\"");
    let other = |sink: &mut Sink, key: &str, kind: &str| {
        if section.has(key) {
            let text = format!("`{key}` is for file systems of the kind \"{kind}\"");
            sink.add(&section.span_of(key), text);
        }
    };
    match choice(sink, section, "kind", &["mem", "dir"])? {
        0 => {
            for key in ["path", "state", "read_only", "acl", "direct"] {
                other(sink, key, "dir");
            }
            section.missing(sink, "size", "size = \"1GiB\"");
            let size_bytes = MEM_SIZE.find(sink, Some(section))?;
            Some(FileSystemKind::Mem { size_bytes })
        }
        _ => {
            other(sink, "size", "mem");
            dir(sink, section, folders, name)
        }
    }
}

fn dir(
    sink: &mut Sink,
    section: &Section,
    (folder, general): (&Path, Option<&Path>),
    name: Option<&str>,
) -> Option<FileSystemKind> {
    section.missing(sink, "path", "path = \"/srv/files\"");
    let own = section.text(sink, "state");
    let own = own.map(|path| folder.join(path.value));
    let general = general.zip(name).map(|(state, name)| state.join(name));
    let state = own.or(general);
    if state.is_none() && !section.has("state") {
        let text = format!(
            "what file handles mean must outlive a restart: write `state = \"/var/lib/weft\"` in \
             {NFS}, or a folder of its own here"
        );
        sink.add(&section.span, text);
    }
    let read_only = section.flag(sink, "read_only").unwrap_or(false);
    let direct = section.flag(sink, "direct").unwrap_or(false);
    let acls = choice(sink, section, "acl", &["none", "nfs4", "posix"]);
    let acls = acls.map(|at| [Acls::Off, Acls::Nfs4, Acls::Posix][at]);
    let path = folder.join(section.text(sink, "path")?.value);
    // Without links on the way, so that one directory by two names is seen. What is
    // wrong with it the start says.
    let path = path.canonicalize().unwrap_or(path);
    let state = state?;
    if std::path::absolute(&state).is_ok_and(|state| state.starts_with(&path)) {
        let text = format!(
            "{} lies in the directory that is served, where clients could change it: choose \
             another folder",
            state.display()
        );
        let place = if section.has("state") {
            "state"
        } else {
            "path"
        };
        sink.add(&section.span_of(place), text);
    }
    Some(FileSystemKind::Dir {
        path,
        state,
        read_only,
        acls,
        direct,
    })
}

fn exports(
    sink: &mut Sink,
    file: &Section,
    (names, listeners): (&ByName<bool>, &[ListenerSpec]),
    has_keys: bool,
) -> Vec<ExportSpec> {
    let mut exports: Vec<ExportSpec> = Vec::new();
    let mut referrals = Vec::new();
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    for section in file.tables(sink, SCHEMA, "export", EXPORT) {
        section.missing(sink, "path", "path = \"/files\"");
        if !section.has("referral") {
            let hint = "file_system = \"files\", or referral = [\"server2:/files\"]";
            section.missing(sink, "file_system", hint);
        }
        let path = section.text(sink, "path");
        if let Some(path) = &path {
            let line = sink.line(&section.span);
            path_fits(sink, path, &lines);
            lines.entry(path.value.to_owned()).or_insert(line);
        }
        let file_system = section.text(sink, "file_system");
        let found = file_system.as_ref();
        let found = found.map(|name| (name, names.find(name.value)));
        if let Some((name, None)) = found {
            let hint = names.hint(name.value);
            let text = format!("there is no file system \"{}\"{hint}", name.value);
            sink.add(&name.span, text);
        }
        let rules = rules(sink, &section, has_keys);
        if let Some((name, Some(false))) = found
            && rules.iter().any(|rule| rule.security_label)
        {
            let text = format!(
                "the file system \"{}\" is a directory, with whose files no security labels are \
                 kept: leave `security_label` out, or export a file system of the kind \"mem\"",
                name.value
            );
            sink.add(&section.span_of("security_label"), text);
        }
        let name = path.as_ref().map_or("", |path| path.value);
        let referral = referral::read(sink, &section, name);
        let what = match (&referral, file_system) {
            (Some(referral), _) => Some(Exported::Referral(referral.locations())),
            (None, name) => name.map(|name| Exported::FileSystem(name.value.to_owned())),
        };
        referrals.extend(referral);
        if let (Some(path), Some(what)) = (path, what) {
            let path = path.value.to_owned();
            exports.push(ExportSpec { path, what, rules });
        }
    }
    referral::add_loops(sink, &referrals, listeners);
    exports
}

fn path_fits(sink: &mut Sink, path: &At<&str>, known: &BTreeMap<String, usize>) {
    if let Err(why) = nfs::check_path(path.value) {
        sink.add(&path.span, why.to_string());
        return;
    }
    if let Some((other, line)) = related(known, path.value)
        && let Some(why) = nfs::clash(other, path.value)
    {
        sink.add_with_line(&path.span, (&format!("{why} ("), *line, ")"));
    }
}

/// A path that is this one, or above or below it.
fn related<'k>(known: &'k BTreeMap<String, usize>, path: &str) -> Option<(&'k String, &'k usize)> {
    let above = path.match_indices('/').map(|(at, _)| &path[..at.max(1)]);
    let mut above = above.chain([path]);
    let inside = format!("{}/", path.trim_end_matches('/'));
    let first_inside = || {
        let (other, line) = known.range(inside.clone()..).next()?;
        other.starts_with(&inside).then_some((other, line))
    };
    let found = above.find_map(|path| known.get_key_value(path));
    found.or_else(first_inside)
}

/// The rules of an export: first clients with terms of their own, then all others.
fn rules(sink: &mut Sink, section: &Section, has_keys: bool) -> Vec<ExportRule> {
    let general = terms(sink, section, &ExportRule::default(), has_keys);
    let mut rules = Vec::new();
    let is_referral = section.has("referral");
    if is_referral {
        referral::check_keys(sink, section);
    }
    for section in section.tables(sink, SCHEMA, "client", CLIENT) {
        if is_referral {
            referral::check_keys(sink, &section);
        }
        section.missing(sink, "clients", "clients = [\"192.0.2.0/24\"]");
        let own = terms(sink, &section, &general, has_keys);
        let clients = Clients::Named(named(sink, &section).unwrap_or_default());
        rules.push(ExportRule { clients, ..own });
    }
    let any = section.flag(sink, "allow_any_client");
    let named = named(sink, section);
    let clients = match (any, named) {
        (Some(true), Some(_)) => {
            let text = "`allow_any_client` lets every client in: leave `clients` out, or that";
            sink.add(&section.span_of("clients"), text);
            None
        }
        (Some(true), None) => Some(Clients::Any),
        (_, Some(names)) => Some(Clients::Named(names)),
        (_, None) => {
            if !section.has("client") && !section.has("clients") {
                let text = format!(
                    "no client may use this export: write `allow_any_client = true`, \
                     `clients = [\"192.0.2.0/24\"]` or {CLIENT}"
                );
                sink.add(&section.span, text);
            }
            None
        }
    };
    rules.extend(clients.map(|clients| ExportRule { clients, ..general }));
    if rules.len() > nfs::RULES_MAX {
        let text = format!(
            "an export has {} rules at most: use networks",
            nfs::RULES_MAX
        );
        sink.add(&section.span, text);
    }
    rules
}

/// What a section says of its clients; where it says nothing as `general` has it.
fn terms(sink: &mut Sink, section: &Section, general: &ExportRule, has_keys: bool) -> ExportRule {
    const SQUASH: &[(&str, Squash)] = &[
        ("root", Squash::Root),
        ("all", Squash::All),
        ("none", Squash::None),
    ];
    let from = Some(section);
    ExportRule {
        clients: Clients::Any,
        is_read_only: section
            .flag(sink, "read_only")
            .unwrap_or(general.is_read_only),
        squash: pick(sink, from, "squash", SQUASH).unwrap_or(general.squash),
        anon_uid: ANON_UID.read(sink, from, general.anon_uid),
        anon_gid: ANON_GID.read(sink, from, general.anon_gid),
        flavors: flavors(sink, section, has_keys).unwrap_or_else(|| general.flavors.clone()),
        xprtsec: xprtsec(sink, section).unwrap_or(general.xprtsec),
        secure: section.flag(sink, "secure").unwrap_or(general.secure),
        security_label: section
            .flag(sink, "security_label")
            .unwrap_or(general.security_label),
    }
}

/// How connections may be protected.
fn xprtsec(sink: &mut Sink, section: &Section) -> Option<XprtsecModes> {
    let list = section.texts(sink, "xprtsec")?;
    if list.is_empty() {
        let text = "`xprtsec` names how connections may be protected: [\"tls\", \"mtls\"]";
        sink.add(&section.span_of("xprtsec"), text);
    }
    let mut ways: Vec<Xprtsec> = Vec::new();
    for item in list {
        let mut known = Xprtsec::ALL.into_iter();
        match known.find(|way| way.word() == item.value) {
            Some(way) if ways.contains(&way) => {
                let text = format!("\"{}\" is in the list already", item.value);
                sink.add(&item.span, text);
            }
            Some(way) => ways.push(way),
            None => {
                let hint = hint(item.value, Xprtsec::ALL.map(Xprtsec::word));
                let text = format!(
                    "`xprtsec` holds \"none\", \"tls\" (encrypted) and \"mtls\" (the client shows \
                     a certificate, too), not \"{}\"{hint}",
                    item.value
                );
                sink.add(&item.span, text);
            }
        }
    }
    Some(XprtsecModes::new(&ways))
}

fn flavors(sink: &mut Sink, section: &Section, has_keys: bool) -> Option<Vec<Flavor>> {
    const FLAVORS: &[(&str, Flavor)] = &[
        ("sys", Flavor::Sys),
        ("none", Flavor::None),
        ("krb5", Flavor::Krb5),
        ("krb5i", Flavor::Krb5i),
        ("krb5p", Flavor::Krb5p),
    ];
    let list = section.texts(sink, "security")?;
    if list.is_empty() {
        let text = "`security` names how clients identify their users: [\"sys\"]";
        sink.add(&section.span_of("security"), text);
    }
    let mut flavors = Vec::new();
    for item in list {
        let known = FLAVORS.iter().find(|(word, _)| *word == item.value);
        match known {
            Some((_, flavor)) if flavors.contains(flavor) => {
                sink.add(
                    &item.span,
                    format!("\"{}\" is in the list already", item.value),
                );
            }
            Some((word, flavor)) => {
                if flavor.is_gss() && !has_keys {
                    let text = format!(
                        "there are no keys by which a user could prove itself with \"{word}\": \
                         {KERBEROS} names them"
                    );
                    sink.add(&item.span, text);
                }
                flavors.push(*flavor);
            }
            None => {
                let hint = hint(item.value, FLAVORS.iter().map(|(word, _)| *word));
                let text = format!(
                    "`security` holds \"sys\" (AUTH_SYS), \"none\" (AUTH_NONE), and of Kerberos \
                     \"krb5\", \"krb5i\" (integrity) and \"krb5p\" (privacy), not \"{}\"{hint}",
                    item.value
                );
                sink.add(&item.span, text);
            }
        }
    }
    Some(flavors)
}

/// What `clients` names clients by.
fn named(sink: &mut Sink, section: &Section) -> Option<Vec<ClientName>> {
    let mut names: Vec<ClientName> = Vec::new();
    for item in section.texts(sink, "clients")? {
        if is_alternative_name(item.value) {
            match alternative_name(item.value) {
                Ok(name) => names.push(ClientName::Certificate(name)),
                Err(why) => sink.add(&item.span, format!("`clients` takes {why}")),
            }
            continue;
        }
        match resolve(item.value) {
            Ok(found) => names.push(found),
            Err(why) => sink.add(&item.span, why),
        }
    }
    if names.is_empty()
        && section
            .texts(sink, "clients")
            .is_some_and(|list| list.is_empty())
    {
        let text = "`clients` names no client: leave it out, or name a host or a network";
        sink.add(&section.span_of("clients"), text);
    }
    Some(names)
}

/// A netgroup is told to clients with its `@`, in 255 bytes (MNTNAMLEN, RFC 1813, appendix I).
const NETGROUP_BYTES_MAX: usize = 254;

/// A network, an address, a host with the addresses that it has now, a pattern of host names or a
/// netgroup.
fn resolve(text: &str) -> Result<ClientName, String> {
    if let Ok(net) = text.parse::<Net>() {
        return Ok(ClientName::Net(net));
    }
    if let Some((address, bits)) = text.split_once('/') {
        let bits_max = match address.parse::<IpAddr>() {
            Ok(IpAddr::V4(_)) => 32,
            Ok(IpAddr::V6(_)) => 128,
            Err(_) => {
                return Err(format!(
                    "\"{address}\" in \"{text}\" is no IP address; write \"192.0.2.0/24\""
                ));
            }
        };
        return Err(format!(
            "\"{bits}\" in \"{text}\" is no number of bits: it is from 0 to {bits_max}"
        ));
    }
    if text == "*" {
        return Err("that is every client: write `allow_any_client = true`".to_owned());
    }
    if let Some(group) = text.strip_prefix('@') {
        let is_odd = |c: char| c.is_whitespace() || c.is_control();
        let is_name = (1..=NETGROUP_BYTES_MAX).contains(&group.len()) && !group.contains(is_odd);
        return match is_name && !group.starts_with('-') {
            true => Ok(ClientName::Netgroup(group.to_owned())),
            false => Err(format!(
                "{text:?} names no netgroup, as \"@staff\" does, in {NETGROUP_BYTES_MAX} bytes at \
                 most"
            )),
        };
    }
    if text.contains(['*', '?']) {
        // What they stand for is part of a host's name.
        check::host(&text.replace(['*', '?'], "a")).map_err(|why| {
            format!("{why}: \"{text}\" is no pattern of host names, as \"*.example.org\" is")
        })?;
        // Any last label fits hosts of every domain, and they may be called as addresses are.
        let last = text.rsplit('.').next().unwrap_or_default();
        if text.contains(':')
            || last.contains(['*', '?'])
            || last.bytes().all(|byte| byte.is_ascii_digit())
        {
            return Err(format!(
                "\"{text}\" does not end in the domain of its hosts, as \"*.example.org\" does: \
                 hosts of foreign domains would fit it. For addresses write a network, such as \
                 \"192.0.2.0/24\""
            ));
        }
        return Ok(ClientName::Pattern(text.to_owned()));
    }
    check::host(text)?;
    match (text, 0).to_socket_addrs() {
        Ok(found) => {
            let addresses = found.map(|address| address.ip()).collect();
            Ok(ClientName::Host(NamedHost::new(text, addresses).into()))
        }
        Err(error) => Err(format!(
            "the address of the host \"{text}\" cannot be found ({error}): write the address \
             itself, or add the host to /etc/hosts"
        )),
    }
}
