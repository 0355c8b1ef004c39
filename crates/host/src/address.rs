//! Addresses of subsystems, and the identity of this host.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use auth::psk::Psk;
use nvmf::dhchap::DhchapKeys;
use nvmf::transport::Transport;
use reactor::fill_random;
use wire::nvme::fabrics::NQN_BYTES_MAX;

use crate::OfferedPsk;

/// The port of NVMe/TCP I/O controllers where none is named (NVMe/TCP 3.1).
const PORT: u16 = 4420;

/// The transport of a URL and what follows its scheme; `None`: it is no URL of NVMe.
fn transport(url: &str) -> Option<(Transport, &str)> {
    match url.split_once("://")? {
        ("nvme-tcp", rest) => Some((Transport::Tcp, rest)),
        ("rdma", rest) => Some((Transport::Rdma, rest)),
        _ => None,
    }
}

/// What a URL of a namespace says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceUrl {
    /// What is spoken there.
    pub transport: Transport,
    /// Host and port, as text.
    pub authority: String,
    /// NVM subsystem NQN.
    pub subnqn: String,
    /// Namespace identifier; `None`: the first active one.
    pub nsid: Option<u32>,
}

impl NamespaceUrl {
    /// Reads `nvme-tcp://host[:port]/nqn[?nsid=1]`, or the same with `rdma://`.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn parse(url: &str) -> Result<Self, String> {
        let (transport, rest) = transport(url).ok_or_else(|| {
            format!("`{url}` is no target: write nvme-tcp://host:port/nqn?nsid=1")
        })?;
        let (authority, path) = rest
            .split_once('/')
            .ok_or_else(|| format!("`{url}` names no subsystem: add /nqn..."))?;
        let (subnqn, query) = match path.split_once('?') {
            Some((subnqn, query)) => (subnqn, Some(query)),
            None => (path, None),
        };
        let nsid = match query {
            None => None,
            Some(query) => {
                let value = query
                    .strip_prefix("nsid=")
                    .or_else(|| query.strip_prefix("ns="));
                let nsid = value.and_then(|v| v.parse().ok()).filter(|n| *n > 0);
                Some(nsid.ok_or_else(|| format!("`?{query}` is not understood: use ?nsid=1"))?)
            }
        };
        check_nqn(subnqn)?;
        Ok(NamespaceUrl {
            transport,
            authority: authority.to_owned(),
            subnqn: subnqn.to_owned(),
            nsid,
        })
    }

    /// Looks the name of the host up, if it is one.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn resolve(&self) -> Result<Address, String> {
        Ok(Address {
            transport: self.transport,
            socket: resolve(&self.authority, PORT)?,
            subnqn: self.subnqn.clone(),
            nsid: self.nsid,
        })
    }
}

impl fmt::Display for NamespaceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.transport {
            Transport::Tcp => "nvme-tcp",
            Transport::Rdma => "rdma",
        };
        write!(f, "{scheme}://{}/{}", self.authority, self.subnqn)?;
        match self.nsid {
            Some(nsid) => write!(f, "?nsid={nsid}"),
            None => Ok(()),
        }
    }
}

fn check_nqn(subnqn: &str) -> Result<(), String> {
    match (1..=NQN_BYTES_MAX).contains(&subnqn.len()) {
        true => Ok(()),
        false => Err(format!("an NQN has 1 to {NQN_BYTES_MAX} bytes")),
    }
}

/// One namespace of a subsystem behind a TCP address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// What is spoken there.
    pub transport: Transport,
    /// Where to connect.
    pub socket: SocketAddr,
    /// NVM subsystem NQN.
    pub subnqn: String,
    /// Namespace identifier; `None`: the first active one.
    pub nsid: Option<u32>,
}

impl Address {
    /// That of a [`NamespaceUrl`].
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn parse(url: &str) -> Result<Self, String> {
        NamespaceUrl::parse(url)?.resolve()
    }

    /// An address of NVMe/TCP; checks the length of the NQN.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn new(socket: SocketAddr, subnqn: &str, nsid: Option<u32>) -> Result<Self, String> {
        check_nqn(subnqn)?;
        Ok(Address {
            transport: Transport::Tcp,
            socket,
            subnqn: subnqn.to_owned(),
            nsid,
        })
    }
}

/// The first address of `host`, `host:port`, `[v6]` or `[v6]:port`; without a
/// port it is `port`.
///
/// # Errors
/// A sentence for the user.
pub fn resolve(authority: &str, port: u16) -> Result<SocketAddr, String> {
    let has_port = match authority.rfind(']') {
        Some(end) => authority[end..].contains(':'),
        None => authority.contains(':'),
    };
    let full = match has_port {
        true => authority.to_owned(),
        false => format!("{authority}:{port}"),
    };
    full.to_socket_addrs()
        .map_err(|error| format!("`{authority}`: {error}"))?
        .next()
        .ok_or_else(|| format!("`{authority}` has no address"))
}

/// The identity of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// Host NQN.
    pub hostnqn: String,
    /// Host Identifier: never all zeros.
    pub hostid: [u8; 16],
    /// Its key for TLS, which it speaks then.
    pub psk: Option<OfferedPsk>,
    /// The secrets that it authenticates with, and a controller to it.
    pub dhchap: Option<DhchapKeys>,
    /// It makes its key for TLS by authentication, one for each controller.
    pub concatenates: bool,
}

impl HostIdentity {
    /// A host with a random identifier, without secrets, and a given NQN or a random one.
    ///
    /// # Errors
    /// Where the system has no random bytes.
    pub fn new(hostnqn: Option<&str>) -> io::Result<Self> {
        let mut hostid = [0u8; 16];
        fill_random(&mut hostid)?;
        // A version 4 UUID (RFC 9562, section 5.4), which is never all zeros.
        hostid[6] = hostid[6] & 0x0f | 0x40;
        hostid[8] = hostid[8] & 0x3f | 0x80;
        let hostnqn = hostnqn.map_or_else(|| uuid_nqn(&hostid), str::to_owned);
        Ok(HostIdentity {
            hostnqn,
            hostid,
            psk: None,
            dhchap: None,
            concatenates: false,
        })
    }

    /// The same host with a key that it has made by authentication, which stands for it.
    pub(crate) fn with_generated_psk(&self, psk: Psk) -> Self {
        HostIdentity {
            psk: Some(psk.into()),
            dhchap: None,
            concatenates: false,
            ..self.clone()
        }
    }
}

/// An NQN made of a UUID (Base 2.0, section 4.5).
fn uuid_nqn(uuid: &[u8; 16]) -> String {
    let mut text = String::from("nqn.2014-08.org.nvmexpress:uuid:");
    for (i, byte) in uuid.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_address_subsystem_and_namespace() {
        let full = Address::parse("nvme-tcp://127.0.0.1:4421/nqn.2024-01.org.a:b?nsid=3");
        let full = full.expect("a URL");
        assert_eq!(full.socket, "127.0.0.1:4421".parse().expect("address"));
        assert_eq!(
            (full.subnqn.as_str(), full.nsid),
            ("nqn.2024-01.org.a:b", Some(3))
        );
        let short = Address::parse("nvme-tcp://[::1]/nqn.x").expect("a URL");
        assert_eq!(short.socket, "[::1]:4420".parse().expect("address"));
        assert_eq!(short.nsid, None);
        assert_eq!(short.transport, Transport::Tcp);
        let rdma = Address::parse("rdma://[::1]/nqn.x").expect("a URL");
        assert_eq!(rdma.transport, Transport::Rdma);
        assert_eq!((rdma.socket, rdma.subnqn), (short.socket, short.subnqn));
        assert_eq!(
            Address::parse("nvme-tcp://[::1]:9/nqn.x?ns=2")
                .expect("a URL")
                .nsid,
            Some(2)
        );
    }

    #[test]
    fn urls_that_mean_nothing_are_refused() {
        let long = format!("nvme-tcp://127.0.0.1/{}", "n".repeat(224));
        for url in [
            "127.0.0.1/nqn.x",
            "nvme-tcp://127.0.0.1",
            "nvme-rdma://127.0.0.1/nqn.x",
            "nvme-tcp://127.0.0.1/",
            "nvme-tcp://127.0.0.1/nqn.x?nsid=0",
            "nvme-tcp://127.0.0.1/nqn.x?nsid=a",
            "nvme-tcp://127.0.0.1/nqn.x?volume=1",
            "nvme-tcp://127.0.0.1:99999/nqn.x",
            &long,
        ] {
            assert!(Address::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn every_host_is_another_unless_named() {
        let (a, b) = (HostIdentity::new(None), HostIdentity::new(None));
        let (a, b) = (a.expect("random"), b.expect("random"));
        assert_ne!(a, b);
        assert_eq!(
            a.hostnqn.len(),
            "nqn.2014-08.org.nvmexpress:uuid:".len() + 36
        );
        let named = HostIdentity::new(Some("nqn.x")).expect("random");
        assert_eq!(named.hostnqn, "nqn.x");
        assert_ne!(named.hostid, [0; 16]);
    }
}
