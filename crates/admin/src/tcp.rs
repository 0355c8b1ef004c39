//! Where it listens on TCP.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use server::{AdminListen, AdminSpec};
use tls::{RenewedTls, ServerSide};

/// How many ports are tried where none is named: as many of weft may run on a machine.
const PORTS_MAX: u16 = 64;

/// A place on TCP.
#[derive(Debug)]
pub struct TcpPlace {
    pub(crate) listener: TcpListener,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// `None`: it speaks plain HTTP.
    pub(crate) tls: Option<Arc<RenewedTls>>,
}

impl TcpPlace {
    /// By what a browser asks: a name that the certificate is for.
    pub(crate) fn url(&self) -> String {
        let address = self.address;
        let port = address.port();
        let ip = match address.ip() {
            IpAddr::V4(v4) if v4.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(v6) if v6.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        let ip = SocketAddr::new(ip, port);
        let Some(tls) = &self.tls else {
            return format!("http://{ip}");
        };
        match tls.side().certificate.dns_name() {
            Some(name) => format!("https://{name}:{port}"),
            None => format!("https://{ip}"),
        }
    }
}

/// Listens where a configuration says; `None`: nowhere.
///
/// # Errors
/// Why not.
pub fn listen(spec: &AdminSpec) -> Result<Option<TcpPlace>, String> {
    if spec.listen == AdminListen::Off {
        return Ok(None);
    }
    // Nothing listens plainly because its certificate cannot be read.
    let tls = spec.tls.as_ref();
    let tls = tls.map(|files| RenewedTls::read(files, ServerSide::new));
    let tls = tls.transpose();
    let tls = tls.map_err(|why| format!("[admin.tls]: {why}"))?;
    let listener = match &spec.listen {
        AdminListen::At(address) => {
            bind(*address).map_err(|error| format!("{address}: {error}"))?
        }
        _ => first_free(AdminListen::PORT)?,
    };
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    Ok(Some(TcpPlace {
        listener,
        address,
        tls,
    }))
}

fn first_free(first: u16) -> Result<TcpListener, String> {
    let ports = first..first.saturating_add(PORTS_MAX);
    for port in ports.clone() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        match bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            Err(error) => return Err(format!("{address}: {error}")),
        }
    }
    let last = ports.end - 1;
    Err(format!("ports {first} to {last} of 127.0.0.1 are taken"))
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_free_port_is_taken_and_one_that_is_named_is_not_replaced() {
        // Ports that tests of others do not use: below those that the kernel gives out.
        let one = first_free(14_480).expect("a port");
        let address = one.local_addr().expect("bound");
        let next = first_free(address.port()).expect("another port");
        assert!(next.local_addr().expect("bound").port() > address.port());
        let spec = |listen| AdminSpec {
            listen,
            ..AdminSpec::default()
        };
        let why = listen(&spec(AdminListen::At(address))).expect_err("taken");
        assert!(why.starts_with(&address.to_string()), "{why}");
        assert!(listen(&spec(AdminListen::Off)).expect("nothing").is_none());
    }
}
