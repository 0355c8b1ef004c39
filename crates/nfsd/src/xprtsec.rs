//! How connections are protected, and which ways of that an export takes: `xprtsec` of
//! exports(5), by RPC-with-TLS (RFC 9289).

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Ports below it take a privilege (exports(5), `secure`).
const SECURE_PORTS: u16 = 1024;

/// How a connection is protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Xprtsec {
    /// Not at all.
    #[default]
    None,
    /// By TLS, in which the client has shown no certificate.
    Tls,
    /// By TLS, in which the client has shown a good certificate.
    Mtls,
}

impl Xprtsec {
    /// All ways, the weakest first.
    pub const ALL: [Xprtsec; 3] = [Xprtsec::None, Xprtsec::Tls, Xprtsec::Mtls];

    /// As exports(5) and mount call it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Xprtsec::None => "none",
            Xprtsec::Tls => "tls",
            Xprtsec::Mtls => "mtls",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The ways that an export takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct XprtsecModes(u8);

impl XprtsecModes {
    /// Every way.
    pub const ALL: XprtsecModes = XprtsecModes(0b111);

    /// These.
    #[must_use]
    pub fn new(named: &[Xprtsec]) -> XprtsecModes {
        XprtsecModes(named.iter().fold(0, |bits, way| bits | way.bit()))
    }

    /// The ways that are named, the weakest first.
    pub fn named(self) -> impl Iterator<Item = Xprtsec> {
        let is_named = move |way: &Xprtsec| self.0 & way.bit() != 0;
        Xprtsec::ALL.into_iter().filter(is_named)
    }

    /// Whether a connection that is protected so may use the export (else NFS4ERR_WRONGSEC, or
    /// NFS3ERR_ACCES). A certificate is no less than TLS alone.
    #[inline]
    #[must_use]
    pub fn take(self, has: Xprtsec) -> bool {
        let enough = match has {
            Xprtsec::None => Xprtsec::None.bit(),
            Xprtsec::Tls => Xprtsec::Tls.bit(),
            Xprtsec::Mtls => Xprtsec::Tls.bit() | Xprtsec::Mtls.bit(),
        };
        self.0 & enough != 0
    }
}

/// As in exports(5): `tls:mtls`.
impl fmt::Display for XprtsecModes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.named().map(Xprtsec::word).collect();
        f.write_str(&words.join(":"))
    }
}

impl fmt::Debug for XprtsecModes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A good certificate that a client has shown.
#[derive(Clone, Debug)]
pub struct ShownCertificate {
    /// What its client is known by. A certificate that is renewed with more names behind the first
    /// is of the same client.
    pub owner: String,
    /// Its subject alternative names with their kinds, as `DNS:client.example.org`.
    pub names: Arc<[String]>,
}

/// What is known of the host at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownHost {
    /// Its names, which all lead to its address.
    pub names: Vec<String>,
    /// Those of the netgroups in rules that it is in.
    pub netgroups: Vec<String>,
}

/// What is known of a client by its connection: what rules of exports look at.
#[derive(Clone, Debug)]
pub struct ConnectedClient {
    /// Its address.
    pub address: IpAddr,
    /// How its connection is protected.
    pub xprtsec: Xprtsec,
    /// Subject alternative names of its certificate with their kinds, as
    /// `DNS:client.example.org`.
    pub names: Arc<[String]>,
    /// What the name service says of its address.
    pub host: Arc<KnownHost>,
    /// It comes from a port below 1024.
    pub has_secure_port: bool,
}

/// In the clear, from a port below 1024.
impl From<IpAddr> for ConnectedClient {
    fn from(address: IpAddr) -> ConnectedClient {
        ConnectedClient {
            address,
            xprtsec: Xprtsec::None,
            names: Arc::default(),
            host: Arc::default(),
            has_secure_port: true,
        }
    }
}

/// In the clear.
impl From<SocketAddr> for ConnectedClient {
    fn from(address: SocketAddr) -> ConnectedClient {
        ConnectedClient {
            has_secure_port: address.port() < SECURE_PORTS,
            ..ConnectedClient::from(address.ip())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn export_takes_the_ways_it_names_and_certificates_where_it_takes_tls() {
        let taken = |named: &[Xprtsec]| {
            let modes = XprtsecModes::new(named);
            Xprtsec::ALL.map(|has| modes.take(has))
        };
        assert_eq!(taken(&[Xprtsec::None]), [true, false, false]);
        assert_eq!(taken(&[Xprtsec::Tls]), [false, true, true]);
        assert_eq!(taken(&[Xprtsec::Mtls]), [false, false, true]);
        assert_eq!(taken(&Xprtsec::ALL), [true; 3]);
        assert_eq!(XprtsecModes::new(&Xprtsec::ALL), XprtsecModes::ALL);
        let shown = XprtsecModes::new(&[Xprtsec::Mtls, Xprtsec::Tls]);
        assert_eq!(shown.to_string(), "tls:mtls");
    }
}
