//! Where peers may come from.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// The addresses that share the first `prefix` bits with `address`. `None`
    /// if an address has not as many bits.
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        (prefix <= bits).then_some(Network { address, prefix })
    }

    /// Whether `address` is one of them. An IPv4 address that was mapped into
    /// IPv6 is the IPv4 address.
    pub fn has(&self, address: IpAddr) -> bool {
        match (self.address.to_canonical(), address.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let prefix = self.prefix_within(32);
                let differing = u32::from(a) ^ u32::from(b);
                differing.checked_shr(32 - prefix).unwrap_or(0) == 0
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let prefix = self.prefix_within(128);
                let differing = u128::from(a) ^ u128::from(b);
                differing.checked_shr(128 - prefix).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    /// Whether all addresses of another are of this one.
    pub fn covers(&self, other: &Network) -> bool {
        let bits = match self.address.to_canonical() {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        self.has(other.address) && self.prefix_within(bits) <= other.prefix_within(bits)
    }

    /// The prefix in the bits of the canonical address.
    fn prefix_within(&self, bits: u32) -> u32 {
        let mapped = if self.address.is_ipv6() && bits == 32 {
            96
        } else {
            0
        };
        u32::from(self.prefix).saturating_sub(mapped)
    }
}

/// Not a network: an address, or an address and the number of its bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a network is an address, as in 192.0.2.7, or an address and how many of its bits count, as \
     in 192.0.2.0/24"
)]
pub struct NetworkError;

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NetworkError)?;
        let prefix = match prefix {
            Some(prefix) => prefix.parse().map_err(|_| NetworkError)?,
            None if address.is_ipv4() => 32,
            None => 128,
        };
        Network::new(address, prefix).ok_or(NetworkError)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_the_addresses_that_share_their_first_bits() {
        let table = [
            ("192.0.2.0/24", "192.0.2.255", true),
            ("192.0.2.0/24", "192.0.3.0", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.6", false),
            ("192.0.2.7/31", "192.0.2.6", true),
            ("0.0.0.0/0", "203.0.113.1", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("192.0.2.0/24", "::ffff:192.0.2.9", true),
            ("::ffff:192.0.2.0/120", "192.0.2.9", true),
            ("::ffff:192.0.2.0/120", "192.0.3.9", false),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("2001:db8::1", "2001:db8::1", true),
            ("2001:db8::1", "2001:db8::2", false),
            ("::/0", "2001:db8::1", true),
            ("::/0", "192.0.2.1", false),
        ];
        for (network, address, expected) in table {
            let network: Network = network.parse().expect("a network");
            let address: IpAddr = address.parse().expect("an address");
            assert_eq!(network.has(address), expected, "{network} {address}");
        }
        for text in [
            "",
            "192.0.2.0/33",
            "2001:db8::/129",
            "192.0.2/24",
            "192.0.2.0/",
            "a",
        ] {
            assert_eq!(text.parse::<Network>(), Err(NetworkError), "{text}");
        }
        let network: Network = "192.0.2.7".parse().expect("a network");
        assert_eq!(network.to_string(), "192.0.2.7/32");
    }
}
