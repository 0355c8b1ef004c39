//! Addresses of files, and the identity of this client.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;

use reactor::fill_random;
use wire::nfs4::verifier4;

use crate::resolve;

/// The port of NFS (RFC 8881, section 2.9.3).
const PORT: u16 = 2049;
/// The same by RDMA (RFC 8267, section 9).
const RDMA_PORT: u16 = 20049;

/// Whether a URL of NFS means RDMA, and what follows its scheme; `None`: it is none of NFS.
fn transport(url: &str) -> Option<(bool, &str)> {
    match url.split_once("://")? {
        ("nfs", rest) => Some((false, rest)),
        ("nfs+rdma", rest) => Some((true, rest)),
        _ => None,
    }
}

/// A place in the files of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfsAddress {
    /// RPC-over-RDMA is spoken there.
    pub is_rdma: bool,
    /// Where to connect.
    pub socket: SocketAddr,
    /// Name or address of the server, as it is written.
    pub host: String,
    /// Names from the root of all exports on.
    pub path: Vec<String>,
}

impl NfsAddress {
    /// Whether a URL is one of NFS.
    #[must_use]
    pub fn is_url(url: &str) -> bool {
        transport(url).is_some()
    }

    /// Reads `nfs://host[:port]/path`, or the same with `nfs+rdma://`.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn parse(url: &str) -> Result<Self, String> {
        let (is_rdma, rest) = transport(url)
            .ok_or_else(|| format!("`{url}` is no NFS URL: write nfs://host:port/path"))?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let names = path.split('/').filter(|name| !name.is_empty());
        let path: Vec<String> = names.map(str::to_owned).collect();
        if let Some(dots) = path.iter().find(|name| matches!(name.as_str(), "." | "..")) {
            return Err(format!("`{url}`: `{dots}` is no name on a server"));
        }
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => host,
            _ => authority,
        };
        let port = if is_rdma { RDMA_PORT } else { PORT };
        Ok(NfsAddress {
            is_rdma,
            socket: resolve(authority, port)?,
            host: host.trim_matches(['[', ']']).to_owned(),
            path,
        })
    }

    /// The URL of the server, with the address that its name leads to.
    #[must_use]
    pub fn server_url(&self) -> String {
        let scheme = if self.is_rdma { "nfs+rdma" } else { "nfs" };
        format!("{scheme}://{}", self.socket)
    }
}

/// What this process is called as a client (`client_owner4`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// `co_ownerid`.
    pub owner: Vec<u8>,
    /// `co_verifier`: of this start of the client.
    pub verifier: verifier4,
}

impl ClientIdentity {
    /// A client with a random identity.
    ///
    /// # Errors
    /// Where the system has no random bytes.
    pub fn new() -> io::Result<ClientIdentity> {
        let mut random = [0; 16];
        fill_random(&mut random)?;
        let (name, verifier) = random.split_at(8);
        let name: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(ClientIdentity {
            owner: format!("weft {name}").into_bytes(),
            verifier: verifier.try_into().expect("8 bytes"),
        })
    }
}

/// Uid and gid of this process.
///
/// # Errors
/// Where there is no `/proc`.
pub fn user() -> io::Result<(u32, u32)> {
    let process = std::fs::metadata("/proc/self")?;
    Ok((process.uid(), process.gid()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_server_and_a_path() {
        let full = NfsAddress::parse("nfs://127.0.0.1:20490/a//b c/").expect("a URL");
        assert_eq!(full.socket, "127.0.0.1:20490".parse().expect("address"));
        assert_eq!(full.path, ["a", "b c"]);
        for (url, socket, host) in [
            ("nfs://[::1]", "[::1]:2049", "::1"),
            ("nfs://[::1]:9/", "[::1]:9", "::1"),
            ("nfs://127.0.0.1/", "127.0.0.1:2049", "127.0.0.1"),
        ] {
            let root = NfsAddress::parse(url).expect("a URL");
            assert_eq!(root.host, host);
            assert_eq!(root.socket, socket.parse().expect("address"));
            assert!(root.path.is_empty());
        }
        let rdma = NfsAddress::parse("nfs+rdma://[::1]/a").expect("a URL");
        assert_eq!(rdma.socket, "[::1]:20049".parse().expect("address"));
        assert!(rdma.is_rdma && !full.is_rdma);
        assert_eq!(rdma.path, ["a"]);
        for url in [
            "rdma://127.0.0.1/a",
            "127.0.0.1:/a",
            "nfs://127.0.0.1/a/../b",
            "nfs://127.0.0.1:99999/",
        ] {
            assert!(NfsAddress::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn clients_are_told_apart() {
        let (a, b) = (ClientIdentity::new(), ClientIdentity::new());
        let (a, b) = (a.expect("random"), b.expect("random"));
        assert_ne!(a.owner, b.owner);
        assert_ne!(a.verifier, b.verifier);
    }
}
