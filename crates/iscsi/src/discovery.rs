//! What SendTargets tells (RFC 7143, appendix C): the targets that an initiator
//! may use, at the addresses where it reaches them.

use std::net::{IpAddr, SocketAddr};

use crate::config::{Portal, Target};
use crate::text;

/// A listener as an initiator reaches it.
pub(crate) struct Port {
    number: u16,
    /// As TargetAddress has it, without the tag.
    address: String,
}

/// The listeners that an initiator reaches which reached us at `local`.
pub(crate) fn ports(portals: &[Portal], local: SocketAddr) -> Vec<Port> {
    let local = local.ip().to_canonical();
    let reached = portals.iter().filter_map(|portal| {
        let (host, port) = reachable(portal, local)?;
        Some(Port {
            number: portal.number,
            address: domain_address(&host, port),
        })
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

/// Appends the record of a target, unless it is reached at none of `ports`.
/// One address is told once in a portal group.
pub(crate) fn describe(target: &Target, ports: &[Port], out: &mut Vec<u8>) {
    let mut addresses: Vec<String> = Vec::new();
    for group in &target.portal_groups {
        let reached = ports
            .iter()
            .filter(|port| group.portals.contains(&port.number));
        for port in reached {
            let address = format!("{},{}", port.address, group.tag);
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }
    if addresses.is_empty() {
        return;
    }
    text::push(out, "TargetName", &target.name);
    for address in addresses {
        text::push(out, "TargetAddress", &address);
    }
}
