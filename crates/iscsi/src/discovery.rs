//! What SendTargets tells (RFC 7143, appendix C): the targets that an initiator
//! may use, at the addresses where it reaches them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use crate::config::{Portal, Target};
use crate::text;

/// The listeners that an initiator reaches: their addresses as TargetAddress has
/// them, without the tag, by their numbers.
pub(crate) type Ports = BTreeMap<u16, String>;

/// The listeners that an initiator reaches which reached us at `local`.
pub(crate) fn ports(portals: &[Portal], local: SocketAddr) -> Ports {
    let local = local.ip().to_canonical();
    let reached = portals.iter().filter_map(|portal| {
        let (host, port) = reachable(portal, local)?;
        Some((portal.number, domain_address(&host, port)))
    });
    reached.collect()
}

/// Where an initiator that reached us at `local` reaches `portal`: a wildcard
/// stands for the very address it used; an address of the other family behind a
/// wildcard is unknown, and loopback is of use to local initiators only.
fn reachable(portal: &Portal, local: IpAddr) -> Option<(String, u16)> {
    let (ip, port) = (portal.address.ip().to_canonical(), portal.address.port());
    if let Some(advertise) = &portal.advertise {
        return Some((advertise.host.clone(), advertise.port.unwrap_or(port)));
    }
    if ip.is_unspecified() {
        let serves = ip.is_ipv6() || local.is_ipv4();
        return serves.then(|| (local.to_string(), port));
    }
    if ip.is_loopback() && !local.is_loopback() {
        return None;
    }
    Some((ip.to_string(), port))
}

/// `host:port` as TargetAddress has it (RFC 7143, section 13.8).
pub(crate) fn domain_address(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Appends the record of a target: its portal groups where the initiator may use
/// it (`may` says so by the tag), as far as they are reached at `ports`; nothing if
/// there are none. One address is told once in a portal group.
pub(crate) fn describe(
    target: &Target,
    may: impl Fn(u16) -> bool,
    ports: &Ports,
    out: &mut Vec<u8>,
) {
    let mut is_named = false;
    for group in target.portal_groups.iter().filter(|group| may(group.tag)) {
        let mut told = BTreeSet::new();
        let reached = group.portals.iter().filter_map(|number| ports.get(number));
        for address in reached.filter(|address| told.insert(*address)) {
            if !std::mem::replace(&mut is_named, true) {
                text::push(out, "TargetName", &target.name);
            }
            text::push(out, "TargetAddress", &format!("{address},{}", group.tag));
        }
    }
}
