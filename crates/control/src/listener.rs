//! Where hosts reach the target, and where else it sends them.

use std::net::SocketAddr;
use std::ops::Range;

use nvmf::{Advertise, HostTerms, Referral};
use server::nfs::{RpcProgram, RpcPrograms};
use server::{Config, ListenerSpec, Protocol, RdmaSpec, SubsystemSpec, check};

use crate::policy::pick;
use crate::rdma::rdma;
use crate::schema::{EXPORT, LISTENER, NBD_EXPORT, REFERRAL, SCHEMA, SUBSYSTEM, TARGET};
use crate::source::{Section, Sink, hint};

/// NVMe discovery's own port (NVMe/TCP Transport 1.0, section 3.1.1).
const DISCOVERY_PORT: u16 = 8009;

pub(crate) const PROTOCOLS: &[(&str, Protocol)] = &[
    ("nvme-tcp", Protocol::NvmeTcp),
    ("iscsi", Protocol::Iscsi),
    ("nfs", Protocol::Nfs),
    ("nbd", Protocol::Nbd),
];

/// Whether hosts speak TLS alone.
const TLS: &[(&str, bool)] = &[("allowed", false), ("required", true)];

/// The listeners; and whether all of them could be read.
pub(crate) fn listeners(sink: &mut Sink, file: &Section) -> (Vec<ListenerSpec>, bool) {
    let mut is_whole = file.has("listener");
    let mut listeners: Vec<(ListenerSpec, Range<usize>)> = Vec::new();
    let sections = file.tables(sink, SCHEMA, "listener", LISTENER);
    for section in &sections {
        let protocol = pick(sink, Some(section), "protocol", PROTOCOLS);
        is_whole &= protocol.is_some() || !section.has("protocol");
        let protocol = protocol.unwrap_or_default();
        let advertise = advertise(sink, section);
        let discovery_only = section.flag(sink, "discovery_only").unwrap_or(false);
        if discovery_only && protocol != Protocol::NvmeTcp {
            let text = match protocol {
                Protocol::Nfs | Protocol::Nbd => "`discovery_only` is for NVMe/TCP",
                _ => "`discovery_only` is for NVMe/TCP: initiators find targets at every portal",
            };
            sink.add(&section.span_of("discovery_only"), text);
        }
        let requires_tls = pick(sink, Some(section), "tls", TLS).unwrap_or(false);
        let why_not = why_no_tls(protocol, file);
        if let Some(text) = why_not.filter(|_| section.has("tls")) {
            sink.add(&section.span_of("tls"), text);
        }
        let rdma = rdma(sink, section, requires_tls);
        let programs = programs(sink, section);
        if section.has("programs") && protocol != Protocol::Nfs {
            sink.add(&section.span_of("programs"), "`programs` is for NFS");
        }
        if let (Some(_), Protocol::Nfs | Protocol::Nbd) = (&advertise, protocol) {
            let what = if protocol == Protocol::Nfs {
                "NFS"
            } else {
                "NBD"
            };
            let text =
                format!("`advertise` is for NVMe/TCP and iSCSI: {what} tells no client an address");
            sink.add(&section.span_of("advertise"), text);
        }
        if rdma != RdmaSpec::default() && protocol == Protocol::Nbd {
            let text = "`rdma` is for NVMe, iSCSI and NFS: NBD goes over TCP alone";
            sink.add(&section.span_of("rdma"), text);
        }
        let Some(address) = address(sink, section, &listeners) else {
            is_whole = false;
            continue;
        };
        let spec = ListenerSpec {
            address,
            protocol,
            advertise,
            discovery_only,
            requires_tls,
            rdma,
            programs: programs.unwrap_or_default(),
        };
        listeners.push((spec, section.span.clone()));
    }
    if !file.has("listener") {
        let text = "there is no [[listener]]: write [[listener]] and address = \"127.0.0.1:4420\"";
        sink.add(&(0..0), text);
    }
    if listeners.len() > check::LISTENERS_MAX {
        let text = format!("there are {} listeners at most", check::LISTENERS_MAX);
        sink.add(&listeners[check::LISTENERS_MAX].1, text);
    }
    let specs = listeners.into_iter().map(|(spec, _)| spec);
    (specs.collect(), is_whole)
}

/// Why `tls` has no place in a listener of a protocol.
fn why_no_tls(protocol: Protocol, file: &Section) -> Option<&'static str> {
    match protocol {
        Protocol::Iscsi => Some("`tls` is for NVMe/TCP and NBD: no iSCSI initiator speaks it"),
        Protocol::Nfs => Some("`tls` is for NVMe/TCP and NBD: of NFS exports say `xprtsec`"),
        Protocol::Nbd if !file.has("nbd") => Some(
            "`tls` wants [nbd.tls], by whose `certificate` and `key`, or `psk_file`, NBD speaks TLS",
        ),
        Protocol::NvmeTcp | Protocol::Nbd => None,
    }
}

/// What the port mapper sends clients to the listener for; nothing of a list that is wrong.
fn programs(sink: &mut Sink, section: &Section) -> Option<RpcPrograms> {
    let list = section.texts(sink, "programs")?;
    if list.is_empty() {
        let text = "`programs` names what clients are sent here for: [\"portmap\"]";
        sink.add(&section.span_of("programs"), text);
    }
    let count = list.len();
    let mut programs: Vec<RpcProgram> = Vec::new();
    for item in list {
        let mut known = RpcProgram::ALL.into_iter();
        match known.find(|program| program.word() == item.value) {
            Some(program) if programs.contains(&program) => {
                let text = format!("\"{}\" is in the list already", item.value);
                sink.add(&item.span, text);
            }
            Some(program) => programs.push(program),
            None => {
                let hint = hint(item.value, RpcProgram::ALL.map(RpcProgram::word));
                let text = format!(
                    "`programs` holds \"portmap\", \"nfs\", \"mount\", \"nlm\" (locks of version 3) \
                     and \"nsm\" (that a host has started again), not \"{}\"{hint}",
                    item.value
                );
                sink.add(&item.span, text);
            }
        }
    }
    let is_right = count > 0 && programs.len() == count;
    is_right.then(|| RpcPrograms::new(&programs))
}

/// Reports a file that serves nothing, or what no host could reach.
pub(crate) fn reachable(
    sink: &mut Sink,
    (nvme, iscsi, file): (Option<&Section>, Option<&Section>, &Section),
    (listeners, is_whole): (&[ListenerSpec], bool),
) {
    let first = |section: Option<&Section>, key| {
        let section = section.filter(|section| section.has(key))?;
        Some(section.first_of(key))
    };
    let (subsystem, target) = (first(nvme, "subsystem"), first(iscsi, "target"));
    let export = first(Some(file), "export");
    let nbd_export = first(Some(file), "nbd_export");
    if subsystem.is_none() && target.is_none() && export.is_none() && nbd_export.is_none() {
        let text = format!(
            "there is no {SUBSYSTEM}, no {TARGET}, no {EXPORT} and no {NBD_EXPORT}: nothing to \
             connect to"
        );
        let place = nvme.or(iscsi).map_or(0..0, |section| section.span.clone());
        sink.add(&place, text);
    }
    // One that is broken may be the one that is missed.
    if !is_whole {
        return;
    }
    let speaking = listeners
        .iter()
        .map(|spec| (spec.protocol, spec.discovery_only));
    if let Some(span) = subsystem
        && !speaking
            .clone()
            .any(|spec| spec == (Protocol::NvmeTcp, false))
    {
        let text = match speaking
            .clone()
            .any(|(protocol, _)| protocol == Protocol::NvmeTcp)
        {
            true => "every [[listener]] for NVMe/TCP is `discovery_only`",
            false => "no [[listener]] is for NVMe/TCP (`protocol = \"nvme-tcp\"`)",
        };
        sink.add(&span, format!("{text}: no subsystem could be reached"));
    }
    if let Some(span) = target
        && !speaking
            .clone()
            .any(|(protocol, _)| protocol == Protocol::Iscsi)
    {
        let text = "no [[listener]] has `protocol = \"iscsi\"`: no target could be reached";
        sink.add(&span, text);
    }
    if let Some(span) = nbd_export
        && !speaking
            .clone()
            .any(|(protocol, _)| protocol == Protocol::Nbd)
    {
        let text = "no [[listener]] has `protocol = \"nbd\"`: no NBD export could be reached";
        sink.add(&span, text);
    }
    if let Some(span) = export
        && !listeners
            .iter()
            .any(|spec| spec.protocol == Protocol::Nfs && spec.programs.has(RpcProgram::Nfs))
    {
        let text = "no [[listener]] has `protocol = \"nfs\"` and the program \"nfs\": no export \
                    could be reached";
        sink.add(&span, text);
    }
}

/// Listeners that take TLS alone where no host has a key, a line each. It is no mistake: a host
/// whose key is known to others is shut out by taking it away.
pub(crate) fn closed(config: &Config) -> Vec<String> {
    let is_closed = |(number, listener): &(u16, &ListenerSpec)| {
        let is_reached = |spec: &&SubsystemSpec| {
            let on = spec.listeners.as_ref();
            listener.discovery_only || on.is_none_or(|on| on.contains(number))
        };
        let mut reached = config.subsystems.iter().filter(is_reached);
        listener.protocol == Protocol::NvmeTcp
            && listener.requires_tls
            && !reached.any(|spec| spec.terms.iter().any(HostTerms::needs_tls))
    };
    let all = (0..).zip(&config.listeners).filter(is_closed);
    let told = all.map(|(_, listener)| {
        format!(
            "no host can connect at {}: it takes TLS alone (`tls = \"required\"`), and no host of \
             what it serves has a key; `weft key new` makes one, `psk_file` in \
             [[nvme.subsystem.host]] names it",
            listener.address
        )
    });
    told.collect()
}

fn address(
    sink: &mut Sink,
    section: &Section,
    listeners: &[(ListenerSpec, Range<usize>)],
) -> Option<SocketAddr> {
    section.missing(sink, "address", "address = \"127.0.0.1:4420\"");
    let text = section.text(sink, "address")?;
    let Ok(address) = text.value.parse::<SocketAddr>() else {
        let why = "is no IP address with port; write \"192.0.2.1:4420\" or \"[2001:db8::1]:4420\"";
        sink.add(&text.span, format!("\"{}\" {why}", text.value));
        return None;
    };
    if address.port() == 0 {
        let why = "port 0 would be another port at every start; NVMe/TCP's own is 4420, iSCSI's 3260, \
             NFS's 2049, NBD's 10809";
        sink.add(&text.span, why);
        return None;
    }
    let mut known = listeners.iter().map(|(spec, span)| (spec.address, span));
    if let Some((other, span)) = known.find(|(other, _)| check::clash(*other, address)) {
        let line = sink.line(span);
        let (before, after) = match other == address {
            true => (format!("{address} is there already, "), ""),
            false => (
                format!("{address} and {other} "),
                " cover each other: leave one of them out",
            ),
        };
        sink.add_with_line(&text.span, (&before, line, after));
        return None;
    }
    Some(address)
}

fn advertise(sink: &mut Sink, section: &Section) -> Option<Advertise> {
    let text = section.text(sink, "advertise")?;
    match host_and_port(text.value) {
        Ok((host, port)) => Some(Advertise { host, port }),
        Err(why) => {
            sink.add(&text.span, why);
            None
        }
    }
}

pub(crate) fn referrals(sink: &mut Sink, nvme: Option<&Section>) -> Vec<Referral> {
    let mut referrals: Vec<Referral> = Vec::new();
    let sections = nvme.map(|nvme| nvme.tables(sink, SCHEMA, "referral", REFERRAL));
    for section in sections.iter().flatten() {
        section.missing(sink, "address", "address = \"192.0.2.1:8009\"");
        let Some(text) = section.text(sink, "address") else {
            continue;
        };
        match host_and_port(text.value) {
            Ok((host, port)) => {
                let referral = Referral::new(host, port.unwrap_or(DISCOVERY_PORT));
                if referrals.contains(&referral) {
                    sink.add(&text.span, format!("{} is there already", text.value));
                }
                referrals.push(referral);
            }
            Err(why) => sink.add(&text.span, why),
        }
    }
    referrals
}

/// `name`, `name:port`, `192.0.2.1`, `192.0.2.1:port`, `2001:db8::1` or
/// `[2001:db8::1]:port`.
pub(crate) fn host_and_port(text: &str) -> Result<(String, Option<u16>), String> {
    let (host, port) = match text.parse::<SocketAddr>() {
        Ok(address) => (address.ip().to_string(), Some(address.port())),
        Err(_) => match text.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') => {
                let port = port.parse().map_err(|_| {
                    format!("\"{port}\" in \"{text}\" is no port: it is from 1 to 65535")
                })?;
                (host.to_owned(), Some(port))
            }
            _ => (text.to_owned(), None),
        },
    };
    if port == Some(0) {
        return Err("no host can connect to port 0".to_owned());
    }
    check::host(&host)?;
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_come_with_a_port_or_without() {
        for (text, host, port) in [
            ("nas.example.org", "nas.example.org", None),
            ("nas:4421", "nas", Some(4421)),
            ("192.0.2.1", "192.0.2.1", None),
            ("192.0.2.1:4420", "192.0.2.1", Some(4420)),
            ("2001:db8::1", "2001:db8::1", None),
            ("[2001:db8::1]:4420", "2001:db8::1", Some(4420)),
        ] {
            assert_eq!(host_and_port(text), Ok((host.to_owned(), port)), "{text}");
        }
        for (text, part) in [
            ("nas:http", "no port"),
            ("nas:0", "port 0"),
            ("nas:70000", "no port"),
            ("", "no host name"),
            ("a b", "no host name"),
            ("0.0.0.0:4420", "no host can connect to 0.0.0.0"),
        ] {
            let why = host_and_port(text).expect_err(text);
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
