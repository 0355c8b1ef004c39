//! Hosts as numbers, which clients and states are told apart by.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The number of a host: of its address, of IPv6 the network that
/// it may choose addresses in. Never 0, which is the server itself.
pub(crate) fn host_number(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(address) => 1 << 32 | u64::from(address.to_bits()),
        IpAddr::V6(address) => ((address.to_bits() >> 64) as u64).max(1),
    }
}

/// What [`Asker::host`](store::fs::Asker::host) is of: an address, or a network.
pub fn host_name(host: u64) -> String {
    match host_address(host) {
        None => "this server".into(),
        Some(IpAddr::V4(address)) => address.to_string(),
        Some(IpAddr::V6(network)) => format!("{network}/64"),
    }
}

/// The address, or the first of the network, of a host; `None` for this server.
pub fn host_address(host: u64) -> Option<IpAddr> {
    match (host >> 32, host) {
        (0, 0) => None,
        (1, _) => Some(Ipv4Addr::from_bits(host as u32).into()),
        _ => Some(Ipv6Addr::from_bits(u128::from(host) << 64).into()),
    }
}

#[cfg(test)]
mod tests {
    use store::fs::Asker;

    use super::*;

    #[test]
    fn hosts_are_told_apart_by_what_they_cannot_choose() {
        let host = |text: &str| host_number(text.parse().expect("an address"));
        assert_eq!(host("192.0.2.1"), host("::ffff:192.0.2.1"));
        assert_ne!(host("192.0.2.1"), host("192.0.2.2"));
        assert_eq!(host("2001:db8::1"), host("2001:db8::ffff:9"));
        assert_ne!(host("2001:db8::1"), host("2001:db8:0:1::1"));
        assert_ne!(host("::1"), Asker::default().host);
        assert_eq!(host_name(host("192.0.2.1")), "192.0.2.1");
        assert_eq!(host_name(host("2001:db8::1")), "2001:db8::/64");
        assert_eq!(host_name(0), "this server");
    }
}
