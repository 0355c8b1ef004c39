//! Where it listens on TCP.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use server::AdminListen;

/// How many ports are tried where none is named: as many of weft may run on a machine.
const PORTS_MAX: u16 = 64;

/// Listens where a configuration says; `None`: nowhere.
///
/// # Errors
/// Why not.
pub fn listen(listen: &AdminListen) -> Result<Option<TcpListener>, String> {
    let listener = match listen {
        AdminListen::Off => return Ok(None),
        AdminListen::At(address) => {
            bind(*address).map_err(|error| format!("{address}: {error}"))?
        }
        AdminListen::Usual => first_free(AdminListen::PORT)?,
    };
    Ok(Some(listener))
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
        let why = listen(&AdminListen::At(address)).expect_err("taken");
        assert!(why.starts_with(&address.to_string()), "{why}");
        assert!(listen(&AdminListen::Off).expect("nothing").is_none());
    }
}
