//! What `serve` and `check` say about a configuration.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;

use control::{ClientSystem, NbdProof, NvmeProof, Reached, ReachedObject, reachable};
use server::nfs::{Clients, ExportSpec, Exported, FileSystemKind, Rule};
use server::{Ana, Config, IscsiTargetSpec, ListenerSpec, Protocol};

/// Volumes, subsystems, targets and addresses, as a user recognises them.
pub fn contents(config: &Config, addresses: &[SocketAddr]) -> String {
    let mut text = String::new();
    for subsystem in &config.subsystems {
        let hosts = subsystem.hosts.as_ref();
        let hosts = hosts.map_or_else(|| "any host".to_owned(), |hosts| count(hosts.len(), "host"));
        let _ = writeln!(text, "  {}  ({hosts})", subsystem.nqn);
        for namespace in &subsystem.namespaces {
            let about = volume(config, &namespace.volume);
            let _ = writeln!(text, "    namespace {}  {about}", namespace.nsid);
        }
    }
    for spec in &config.iscsi_targets {
        let IscsiTargetSpec { target, luns, .. } = spec;
        let _ = writeln!(text, "  {}  ({})", target.name, initiators(spec));
        for lun in luns {
            let about = volume(config, &lun.volume);
            let _ = writeln!(text, "    LUN {}  {about}", lun.lun);
        }
        if let Some(redirect) = &target.redirect {
            let _ = writeln!(text, "    initiators are sent to {redirect}");
        }
    }
    for export in &config.exports {
        let _ = writeln!(text, "  {}  ({})", export.path, clients(export));
        let _ = match &export.what {
            Exported::FileSystem(name) => {
                writeln!(text, "    files of {}", file_system(config, name))
            }
            Exported::Referral(locations) => {
                let locations: Vec<String> = locations.iter().map(ToString::to_string).collect();
                writeln!(text, "    refers clients to {}", locations.join(", "))
            }
        };
    }
    for export in &config.nbd_exports {
        let allowed = match &export.clients {
            None => "any client".to_owned(),
            Some(networks) => count(networks.len(), "host or network"),
        };
        let read_only = if export.is_read_only {
            ", read only"
        } else {
            ""
        };
        let _ = writeln!(text, "  NBD export {}  ({allowed}{read_only})", export.name);
        let _ = writeln!(text, "    {}", volume(config, &export.volume));
    }
    for (listener, address) in config.listeners.iter().zip(addresses) {
        let what = match (listener.protocol, listener.discovery_only) {
            (Protocol::NvmeTcp, false) => " with discovery",
            (Protocol::NvmeTcp, true) => ", discovery only",
            (Protocol::Iscsi, _) => "",
            (Protocol::Nfs, _) => " 4.2, 4.1, 4.0 and 3",
            (Protocol::Nbd, _) => "",
        };
        let what = format!("{}{what}", listener.spoken());
        let _ = write!(text, "  on {address} {what}");
        if let Some(advertise) = &listener.advertise {
            let port = advertise.port.unwrap_or(address.port());
            let _ = write!(text, ", told to hosts as {}", at(&advertise.host, port));
        }
        text.push('\n');
    }
    for referral in &config.referrals {
        let other = at(&referral.host, referral.port);
        let _ = writeln!(text, "  discovery names {other} too");
    }
    text
}

/// A volume on one line.
fn volume(config: &Config, name: &str) -> String {
    let volume = config.volumes.iter().find(|volume| volume.name == name);
    let volume = volume.expect("control has checked the names");
    let kind = &volume.kind;
    let size = match volume.size_bytes {
        0 => "all of it".to_owned(),
        size => control::format_size(size),
    };
    let read_only = if volume.read_only { ", read only" } else { "" };
    let state = match volume.state_path() {
        Some(state) => format!("state kept in {}", state.display()),
        None => "no state kept".to_owned(),
    };
    let blocks = match volume.block_bytes {
        0 => "blocks as there".to_owned(),
        block => format!("blocks of {block}"),
    };
    format!("{name}, {kind}, {size}, {blocks}{read_only}, {state}")
}

/// A file system on one line.
fn file_system(config: &Config, name: &str) -> String {
    let mut all = config.file_systems.iter();
    let spec = all.find(|spec| spec.name == name);
    match &spec.expect("control has checked the names").kind {
        FileSystemKind::Mem { size_bytes } => {
            let size = control::format_size(*size_bytes);
            format!("{name}, mem, at most {size}")
        }
        FileSystemKind::Dir { path, .. } => format!("{name}, dir {}", path.display()),
    }
}

/// The clients that may use an export.
fn clients(export: &ExportSpec) -> String {
    let rules = || export.rules.iter();
    let names = |rule: &Rule| match &rule.clients {
        Clients::Any => 0,
        Clients::Named(names) => names.len(),
    };
    let named: usize = rules().map(names).sum();
    let is_open = rules().any(|rule| rule.clients == Clients::Any);
    let allowed = match (is_open, named) {
        (true, 0) => "any client".to_owned(),
        (true, _) => "any client, some on terms of their own".to_owned(),
        (false, 1) => "1 host or network".to_owned(),
        (false, _) => format!("{named} hosts or networks"),
    };
    match rules().all(|rule| rule.is_read_only) && !export.rules.is_empty() {
        true => format!("{allowed}, read only"),
        false => allowed,
    }
}

/// The initiators that may use a target, and what they prove.
fn initiators(IscsiTargetSpec { target, .. }: &IscsiTargetSpec) -> String {
    let named = target
        .acl
        .iter()
        .filter(|entry| entry.name.is_some())
        .count();
    let nameless = target.acl.iter().filter(|entry| entry.name.is_none());
    let is_open = nameless.map(|e| e.networks.is_empty() && e.portal_groups.is_empty());
    let any = match is_open.max() {
        Some(true) => Some("any initiator".to_owned()),
        Some(false) => Some("any initiator of some networks or portals".to_owned()),
        None => None,
    };
    let named = (named > 0 || any.is_none()).then(|| count(named, "initiator"));
    let allowed: Vec<String> = any.into_iter().chain(named).collect();
    let auth = match (&target.auth.chap, &target.auth.mutual) {
        (None, _) => "",
        (Some(_), None) => ", CHAP",
        (Some(_), Some(_)) => ", mutual CHAP",
    };
    format!("{}{auth}", allowed.join(" and "))
}

/// `1 host`, `2 hosts`.
fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// Host and port as one text.
fn at(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// What is allowed and yet may surprise.
pub fn notes(config: &Config) -> String {
    let notes = control::notes(config).into_iter();
    notes.map(|note| format!("  note: {note}\n")).collect()
}

/// Which listeners have their ANA states together, of targets that have those of a
/// subsystem.
pub fn paths(config: &Config) -> String {
    let default = server::default_portal_group((0..).zip(&config.listeners));
    let hosts_come_in =
        |number: &&u16| config.listeners[usize::from(**number)].protocol == Protocol::NvmeTcp;
    let mut lines = String::new();
    for spec in &config.iscsi_targets {
        let Ana::Subsystem(nqn) = &spec.ana else {
            continue;
        };
        let (name, groups) = match &spec.target.portal_groups[..] {
            [] => (&spec.target.name, std::slice::from_ref(&default)),
            groups => (&spec.target.name, groups),
        };
        for group in groups {
            let (tag, named) = (group.tag, group.portals.iter().filter(hosts_come_in));
            let named: Vec<String> = named
                .map(|number| config.listeners[usize::from(*number)].address.to_string())
                .collect();
            lines += &match named.is_empty() {
                true => format!(
                    "  paths: states of {name} by portal group {tag} change for initiators alone; \
                     for hosts of {nqn} too, name their NVMe/TCP listeners in the group\n"
                ),
                false => format!(
                    "  paths: states of {name} by portal group {tag} and of {nqn} by {} change \
                     together\n",
                    named.join(" and ")
                ),
            };
        }
    }
    lines
}

/// How the process uses the machine; `driver` as started.
pub fn machine(config: &Config, driver: &str) -> String {
    let why = match reactor::probe() {
        Err(error) if config.backend == reactor::Choice::Auto => format!(" ({error})"),
        _ => String::new(),
    };
    format!(
        "  {driver}{why}, reactors on CPUs {}, at most {} of buffers\n",
        control::format_cpus(&config.cpus),
        control::format_size(config.memory_max),
    )
}

/// The commands that reach what is served.
pub fn commands(config: &Config, addresses: &[SocketAddr]) -> String {
    let mut text = nvme_commands(config, addresses).unwrap_or_default();
    text += &iscsi_commands(config, addresses).unwrap_or_default();
    text += &nfs_commands(config, addresses).unwrap_or_default();
    text += &nbd_commands(config, addresses).unwrap_or_default();
    let is_open = |address: &SocketAddr| address.ip().is_unspecified();
    if !text.is_empty() && addresses.iter().any(is_open) {
        text += "From another machine: with an address of this one.\n";
    }
    text
}

/// Those for the first subsystem with a namespace, on the first listener where it is
/// reached.
fn nvme_commands(config: &Config, addresses: &[SocketAddr]) -> Option<String> {
    let mut subsystems = config.subsystems.iter();
    let subsystem = subsystems.find(|subsystem| !subsystem.namespaces.is_empty())?;
    let will_do = |number, listener: &ListenerSpec| {
        let on = subsystem.listeners.as_ref();
        listener.protocol == Protocol::NvmeTcp
            && !listener.discovery_only
            && on.is_none_or(|on| on.contains(&number))
    };
    let takes_tcp =
        |number, listener: &ListenerSpec| will_do(number, listener) && !listener.rdma.is_only();
    let found = first(config, addresses, takes_tcp);
    let (listener, address) = found.or_else(|| first(config, addresses, will_do))?;
    let what = ReachedObject::Subsystem {
        nqn: &subsystem.nqn,
        proof: NvmeProof::of(subsystem, listener),
    };
    Some(steps(what, address))
}

/// Those for the first target with a logical unit, on the first portal where it is
/// reached over TCP.
fn iscsi_commands(config: &Config, addresses: &[SocketAddr]) -> Option<String> {
    let mut targets = config.iscsi_targets.iter();
    let IscsiTargetSpec { target, luns, .. } = targets.find(|spec| !spec.luns.is_empty())?;
    let (_, address) = first(config, addresses, |number, listener| {
        let is_on = target.portal_groups.is_empty() || target.portal_group_of(number).is_some();
        listener.protocol == Protocol::Iscsi && !listener.rdma.is_only() && is_on
    })?;
    let unit = ReachedObject::Unit {
        target: &target.name,
        lun: luns.first()?.lun,
        user: target.auth.chap.as_ref().map(|chap| chap.user.as_str()),
    };
    Some(steps(unit, address))
}

/// Those for the first export, on the first listener for NFS over TCP.
fn nfs_commands(config: &Config, addresses: &[SocketAddr]) -> Option<String> {
    let path = &config.exports.first()?.path;
    let (_, address) = first(config, addresses, |_, listener| {
        listener.protocol == Protocol::Nfs && !listener.rdma.is_only()
    })?;
    Some(steps(ReachedObject::Export(path), address))
}

/// Those for the first NBD export, on the first listener for NBD.
fn nbd_commands(config: &Config, addresses: &[SocketAddr]) -> Option<String> {
    let export = config.nbd_exports.first()?;
    let (listener, address) = first(config, addresses, |_, listener| {
        listener.protocol == Protocol::Nbd
    })?;
    let tls = config.nbd_tls.as_ref();
    let has_certificate = tls.is_some_and(|tls| tls.certificates.is_some());
    let proof = NbdProof::of(export, listener, has_certificate);
    Some(steps(
        ReachedObject::NbdExport(&export.name, proof),
        address,
    ))
}

/// The commands that connect from Linux, and those of programs that need no kernel.
fn steps(what: ReachedObject, address: SocketAddr) -> String {
    let weft = program();
    let reached = Reached {
        what,
        address,
        weft: &weft,
    };
    let systems = [ClientSystem::Linux, ClientSystem::Other];
    let first = systems.map(|system| reached.steps(system).into_iter().next());
    let mut text = String::new();
    for step in first.into_iter().flatten() {
        let _ = writeln!(text, "{}:", step.title);
        for line in step.lines {
            let _ = writeln!(text, "  {line}");
        }
    }
    text
}

/// The first listener that will do, as this machine itself can connect to it.
fn first<'c>(
    config: &'c Config,
    addresses: &[SocketAddr],
    will_do: impl Fn(u16, &ListenerSpec) -> bool,
) -> Option<(&'c ListenerSpec, SocketAddr)> {
    let listeners = (0..).zip(&config.listeners).zip(addresses);
    let mut listeners = listeners.filter(|((number, listener), _)| will_do(*number, listener));
    let ((_, listener), address) = listeners.next()?;
    Some((listener, reachable(*address)))
}

/// How the user can start this very program again.
fn program() -> String {
    let Ok(program) = std::env::current_exe() else {
        return "weft".to_owned();
    };
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_on_path = std::env::split_paths(&folders).any(|folder| folder.join("weft") == program);
    let here = std::env::current_dir().unwrap_or_default();
    match program.strip_prefix(&here) {
        _ if is_on_path => "weft".to_owned(),
        Ok(below) => Path::new(".").join(below).display().to_string(),
        Err(_) => program.display().to_string(),
    }
}
