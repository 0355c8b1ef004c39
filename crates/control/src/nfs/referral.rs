//! Referrals: exports whose file system is on other servers.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use server::nfs::{
    ExportSpec, Exported, FsLocation, LOCATIONS_MAX, LocationServer, NFS_PORT, RpcProgram,
    check_path, clash,
};
use server::{ListenerSpec, Protocol, check};

use crate::source::{Section, Sink};

/// Keys that say what is done with files, of which a referral has none.
const OF_FILES: [&str; 5] = [
    "read_only",
    "squash",
    "anon_uid",
    "anon_gid",
    "security_label",
];

/// What is wrong with a section of a referral, or of some clients of it.
pub(super) fn check_keys(sink: &mut Sink, section: &Section) {
    for key in OF_FILES.into_iter().filter(|key| section.has(key)) {
        let text = format!(
            "`{key}` is for files, which a referral has none of: leave it out, and say it on the \
             server that has them"
        );
        sink.add(&section.span_of(key), text);
    }
}

/// One referral.
pub(super) struct ReadReferral {
    path: String,
    locations: Vec<ReadLocation>,
}

/// One location, and where it stands.
struct ReadLocation {
    location: FsLocation,
    span: Range<usize>,
}

impl ReadReferral {
    /// As it is served.
    pub(super) fn locations(&self) -> Vec<FsLocation> {
        let all = self.locations.iter();
        all.map(|one| one.location.clone()).collect()
    }
}

/// What `referral` of an export of this path names.
pub(super) fn read(sink: &mut Sink, section: &Section, path: &str) -> Option<ReadReferral> {
    let list = section.texts(sink, "referral")?;
    if section.has("file_system") {
        let text = "`referral` stands in place of `file_system`: leave one of them out";
        sink.add(&section.span_of("referral"), text);
    }
    if path == "/" {
        let text = "clients begin at \"/\", so it is no referral: give the export another path, as \
                    \"/files\"";
        sink.add(&section.span_of("referral"), text);
    }
    if list.is_empty() || list.len() > LOCATIONS_MAX {
        let text = format!(
            "`referral` names 1 to {LOCATIONS_MAX} servers with the path there: [\"server2:/files\"]"
        );
        sink.add(&section.span_of("referral"), text);
    }
    let mut locations: Vec<ReadLocation> = Vec::new();
    for item in list {
        match location(item.value) {
            Ok(location) if locations.iter().any(|one| one.location == location) => {
                let text = format!("\"{}\" is in the list already", item.value);
                sink.add(&item.span, text);
            }
            Ok(location) => locations.push(ReadLocation {
                location,
                span: item.span,
            }),
            Err(why) => sink.add(&item.span, why),
        }
    }
    let path = path.to_owned();
    Some(ReadReferral { path, locations })
}

/// `SERVER:/PATH`.
fn location(text: &str) -> Result<FsLocation, String> {
    let Some((server, rest)) = text.split_once(":/") else {
        return Err(format!(
            "\"{text}\" names no server with a path: write SERVER:/PATH, as \"server2:/files\" or \
             \"192.0.2.7:/files\""
        ));
    };
    let path = format!("/{rest}");
    check_path(&path).map_err(|_| {
        format!(
            "\"{path}\" in \"{text}\" is no path of an export: write / or /a/b, without . and .."
        )
    })?;
    let server = server_of(server, text)?;
    Ok(FsLocation { server, path })
}

fn server_of(server: &str, text: &str) -> Result<LocationServer, String> {
    let bare = server.strip_prefix('[').and_then(|ip| ip.strip_suffix(']'));
    let ip = match bare {
        Some(ip) => ip.parse().ok().map(IpAddr::V6),
        None => server.parse().ok(),
    };
    let address = match ip {
        Some(IpAddr::V6(ip)) if bare.is_none() => {
            return Err(format!(
                "the IPv6 address in \"{text}\" stands in brackets: write \"[{ip}]:/...\""
            ));
        }
        Some(ip) => Some(SocketAddr::new(ip, NFS_PORT)),
        None => server.parse().ok(),
    };
    if let Some(address) = address {
        let ip = address.ip().to_canonical();
        if ip.is_unspecified() || ip.is_multicast() || address.port() == 0 {
            return Err(format!(
                "no client can connect to \"{server}\" in \"{text}\""
            ));
        }
        if matches!(address, SocketAddr::V6(v6) if v6.scope_id() != 0) {
            return Err(format!(
                "\"{server}\" in \"{text}\" has a scope, which other machines do not know: write \
                 another address of the server"
            ));
        }
        let address = SocketAddr::new(ip, address.port());
        return Ok(LocationServer::Address(address));
    }
    check_name(server, text)?;
    Ok(LocationServer::Name(server.to_owned()))
}

/// Whether what is no address is a name alone.
fn check_name(server: &str, text: &str) -> Result<(), String> {
    if let Some((host, port)) = server.rsplit_once(':')
        && (!host.contains(':') || host.ends_with(']'))
    {
        if port.parse::<u16>().is_err() {
            return Err(format!(
                "\"{port}\" in \"{text}\" is no port: write a number from 1 to 65535 behind an \
                 address, or nothing for {NFS_PORT}"
            ));
        }
        if check::host(host).is_ok() {
            return Err(format!(
                "\"{text}\" has a port behind a name, which clients cannot be told (RFC 8881, \
                 section 11.16): write the address of {host}, as \"192.0.2.7:{port}:/...\""
            ));
        }
    }
    let mut last = server.rsplit('.').next().unwrap_or_default().bytes();
    let looks_numeric = last.all(|byte| byte.is_ascii_digit());
    if check::host(server).is_err() || looks_numeric {
        return Err(format!(
            "\"{server}\" in \"{text}\" is no server: write its name, its IPv4 address or its IPv6 \
             address in brackets"
        ));
    }
    Ok(())
}

/// That clients of Linux do not reach a location of a referral.
pub(super) fn out_of_reach(export: &ExportSpec) -> Option<String> {
    let Exported::Referral(locations) = &export.what else {
        return None;
    };
    let has_port = |one: &&FsLocation| match one.server {
        LocationServer::Address(address) => address.port() != NFS_PORT,
        LocationServer::Name(_) => false,
    };
    let one = locations.iter().find(has_port)?;
    Some(format!(
        "`referral` of the export {}: Linux does not follow \"{one}\", for it takes port {NFS_PORT} \
         alone; name a server with that port",
        export.path
    ))
}

/// Adds the locations by which clients would come back to where they are, for ever.
pub(super) fn add_loops(sink: &mut Sink, referrals: &[ReadReferral], listeners: &[ListenerSpec]) {
    for (at, referral) in referrals.iter().enumerate() {
        for one in &referral.locations {
            if !leads_back(referrals, listeners, one, at) {
                continue;
            }
            let text = format!(
                "\"{}\" is this server, and leads back to {}, so that clients would go round for \
                 ever: name the server that has the files",
                one.location, referral.path
            );
            sink.add(&one.span, text);
        }
    }
}

/// Whether a location leads to a referral, perhaps by others that are here.
fn leads_back(
    all: &[ReadReferral],
    listeners: &[ListenerSpec],
    from: &ReadLocation,
    to: usize,
) -> bool {
    let mut seen = BTreeSet::new();
    let mut left = vec![from];
    while let Some(location) = left.pop() {
        if !is_here(listeners, location) {
            continue;
        }
        for (at, referral) in all.iter().enumerate() {
            let is_on_the_way = clash(&referral.path, &location.location.path).is_some();
            if is_on_the_way && seen.insert(at) {
                left.extend(&referral.locations);
            }
        }
    }
    seen.contains(&to)
}

/// Whether a listener serves NFS at the address of a location. Names are not looked up: a server of
/// names that does not answer is to keep no file from being served.
fn is_here(listeners: &[ListenerSpec], location: &ReadLocation) -> bool {
    let serves = |listener: &&ListenerSpec| {
        listener.protocol == Protocol::Nfs && listener.programs.has(RpcProgram::Nfs)
    };
    let is_own = |listener: &ListenerSpec, address: &SocketAddr| {
        let (own, ip) = (
            listener.address.ip().to_canonical(),
            address.ip().to_canonical(),
        );
        let is_same = own == ip || own.is_unspecified() && ip.is_loopback();
        listener.address.port() == address.port() && is_same
    };
    let mut serving = listeners.iter().filter(serves);
    match &location.location.server {
        LocationServer::Address(address) => serving.any(|listener| is_own(listener, address)),
        LocationServer::Name(_) => false,
    }
}
