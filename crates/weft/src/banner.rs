//! What `serve` and `check` say about a configuration.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use target::Config;

/// Volumes, subsystems and addresses, as a user recognises them.
pub fn contents(config: &Config, addresses: &[SocketAddr]) -> String {
    let mut text = String::new();
    for subsystem in &config.subsystems {
        let hosts = match &subsystem.hosts {
            None => "any host".to_owned(),
            Some(hosts) if hosts.len() == 1 => "1 host".to_owned(),
            Some(hosts) => format!("{} hosts", hosts.len()),
        };
        let _ = writeln!(text, "  {}  ({hosts})", subsystem.nqn);
        for namespace in &subsystem.namespaces {
            let volume = config.volumes.iter().find(|v| v.name == namespace.volume);
            let volume = volume.expect("control has checked the names");
            let kind = match &volume.kind {
                store::Kind::Null => "null".to_owned(),
                store::Kind::Ram => "ram".to_owned(),
                store::Kind::File { path } => format!("file {}", path.display()),
                store::Kind::Block { path } => format!("block device {}", path.display()),
            };
            let _ = writeln!(
                text,
                "    namespace {}  {}, {kind}, {}, blocks of {}{}",
                namespace.nsid,
                volume.name,
                match volume.size_bytes {
                    0 => "all of it".to_owned(),
                    size => control::format_size(size),
                },
                volume.block_bytes,
                if volume.read_only { ", read only" } else { "" },
            );
        }
    }
    for (listener, address) in config.listeners.iter().zip(addresses) {
        let what = match listener.discovery_only {
            true => "discovery only",
            false => "with discovery",
        };
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

/// Host and port as one text.
fn at(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
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
    let Some(subsystem) = config.subsystems.first() else {
        return String::new();
    };
    // One where that subsystem is reached.
    let is_open = |n: u16| {
        let on = subsystem.listeners.as_ref();
        !config.listeners[usize::from(n)].discovery_only && on.is_none_or(|on| on.contains(&n))
    };
    let open = (0..).zip(addresses).find(|(n, _)| is_open(*n));
    let Some(address) = open.map(|(_, address)| reachable(*address)) else {
        return String::new();
    };
    let (ip, port, nqn) = (address.ip(), address.port(), &subsystem.nqn);
    let weft = program();
    let mut text = format!(
        "From Linux, as root, with nvme-cli:\n\
         \x20 modprobe nvme-tcp\n\
         \x20 nvme discover -t tcp -a {ip} -s {port}\n\
         \x20 nvme connect -t tcp -a {ip} -s {port} -n {nqn}\n\
         With weft's own initiator, as anybody:\n\
         \x20 {weft} discover {address}\n\
         \x20 {weft} perf nvme-tcp://{address}/{nqn} --rw randread --bs 4k\n"
    );
    if addresses
        .iter()
        .any(|address| address.ip().is_unspecified())
    {
        text += "From another machine: with an address of this one.\n";
    }
    text
}

/// An address that this machine itself can connect to.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
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
