//! Where a file system is (`fs_locations`: RFC 7530, section 8.8, and RFC 8881, section 11.16;
//! `fs_locations_info`: section 11.17): here, by each address that clients are told, so that a client
//! that looks for further ways to the same server (section 11.5) finds them; or elsewhere, where a
//! referral says.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use machine::locked;
use wire::nfs4::{self, FSLI4BX_GFLAGS, FSLI4BX_READORDER, FSLI4BX_WRITEORDER};
use wire::xdr::{Encode, Opaque};

use crate::Nfsd;
use crate::exports::{Export, ExportsError, PATH_BYTES_MAX, check_path, names};
use crate::pseudo::{PseudoPlace, View};
use crate::rpcbind::RpcProgram;

/// The port of an address without one.
pub const NFS_PORT: u16 = 2049;
/// Locations of a referral at most.
pub const LOCATIONS_MAX: usize = 16;
/// Bytes of the name of a server at most, which are more than a DNS name has.
const SERVER_BYTES_MAX: usize = 256;

/// A server that has the file system of a referral (`fs_location4`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsLocation {
    /// Which server.
    pub server: LocationServer,
    /// The path of the file system there: `/` or `/a/b`.
    pub path: String,
}

/// How a server is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocationServer {
    /// By a DNS name, which clients look up; its port is [`NFS_PORT`].
    Name(String),
    /// By an address.
    Address(SocketAddr),
}

/// `server2:/a/b`, `192.0.2.7:/a`, `[2001:db8::7]:20490:/a`.
impl fmt::Display for FsLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            LocationServer::Name(name) => write!(f, "{name}:{}", self.path),
            LocationServer::Address(address) if address.port() != NFS_PORT => {
                write!(f, "{address}:{}", self.path)
            }
            LocationServer::Address(address) => match address.ip() {
                IpAddr::V4(ip) => write!(f, "{ip}:{}", self.path),
                IpAddr::V6(ip) => write!(f, "[{ip}]:{}", self.path),
            },
        }
    }
}

/// Whether there can be a referral at a path.
///
/// # Errors
/// [`ExportsError::Referral`], [`ExportsError::Path`].
pub(crate) fn check_referral(path: &str, locations: &[FsLocation]) -> Result<(), ExportsError> {
    let refused = |why| Err(ExportsError::Referral(path.to_owned(), why));
    let fits = |location: &FsLocation| match &location.server {
        LocationServer::Name(name) => (1..=SERVER_BYTES_MAX).contains(&name.len()),
        LocationServer::Address(_) => true,
    };
    match () {
        // A client cannot begin where there is nothing.
        () if path == "/" => refused("the root itself is no referral: give it a path, as /a"),
        () if locations.is_empty() => refused("a referral names one server at least"),
        () if locations.len() > LOCATIONS_MAX => refused("a referral names 16 servers at most"),
        () if !locations.iter().all(fits) => refused("a server has a name of 1 to 256 bytes"),
        () => locations.iter().try_for_each(|one| check_path(&one.path)),
    }
}

/// The path of the file system that a place is in, and the export, if it is one.
fn of_place(view: &View, place: PseudoPlace) -> (&str, Option<&Export>) {
    let export = match place {
        PseudoPlace::File { export, .. } | PseudoPlace::Absent(export) => view.terms(export),
        PseudoPlace::Pseudo(_) => None,
    };
    let export = export.map(|terms| terms.export);
    (export.map_or("/", Export::path), export)
}

/// Appends the value of `fs_locations` of the file system that a place is in.
pub(crate) fn write(nfsd: &Nfsd, view: &View, place: PseudoPlace, to: &mut Vec<u8>) {
    let (path, export) = of_place(view, place);
    write_path(path, to);
    if let Some(referral) = export.filter(|export| export.fs().is_none()) {
        (referral.locations().len() as u32).encode(to);
        for location in referral.locations() {
            1u32.encode(to);
            write_server(&server_of(location), to);
            write_path(&location.path, to);
        }
        return;
    }
    let mut servers = own_servers(nfsd);
    if servers.is_empty() {
        // The address that the call has come to.
        servers.push(String::new());
    }
    1u32.encode(to);
    (servers.len() as u32).encode(to);
    for server in &servers {
        write_server(server, to);
    }
    write_path(path, to);
}

/// Appends the value of `fs_locations_info`, where the call has come to the address `local`.
pub(crate) fn write_info(
    (nfsd, local): (&Nfsd, Option<SocketAddr>),
    view: &View,
    place: PseudoPlace,
    to: &mut Vec<u8>,
) {
    let (path, export) = of_place(view, place);
    // No variable is substituted in paths, and nothing is to be asked again on a schedule.
    0u32.encode(to);
    0i32.encode(to);
    write_path(path, to);
    if let Some(referral) = export.filter(|export| export.fs().is_none()) {
        (referral.locations().len() as u32).encode(to);
        for (order, location) in (0..).zip(referral.locations()) {
            1u32.encode(to);
            // How current it is, whether it can be written and what it shares with others is
            // not known here.
            let mut info = [0; INFO_BYTES];
            info[FSLI4BX_READORDER as usize] = order;
            info[FSLI4BX_WRITEORDER as usize] = order;
            write_replica(-1, info, &server_of(location), to);
            write_path(&location.path, to);
        }
        return;
    }
    let is_writable = match place {
        PseudoPlace::File { export, .. } => view
            .granted(export)
            .is_some_and(|granted| !granted.rule.is_read_only && !granted.fs.info().is_read_only),
        PseudoPlace::Pseudo(_) | PseudoPlace::Absent(_) => false,
    };
    // All are one file system of one server: in whatever respect they are compared, they are the
    // same.
    let mut info = [1; INFO_BYTES];
    info[FSLI4BX_GFLAGS as usize..][..2].fill(0);
    info[nfs4::FSLI4BX_READRANK as usize..].fill(0);
    if is_writable {
        info[FSLI4BX_GFLAGS as usize] |= nfs4::FSLI4GF_WRITABLE as u8;
    }
    let mut others = own_servers(nfsd);
    let local = local.and_then(server);
    others.retain(|other| Some(other) != local.as_ref());
    1u32.encode(to);
    (1 + others.len() as u32).encode(to);
    let mut current = info;
    current[FSLI4BX_GFLAGS as usize] |= nfs4::FSLI4GF_CUR_REQ as u8;
    write_replica(0, current, "", to);
    for other in &others {
        write_replica(0, info, other, to);
    }
    write_path(path, to);
}

/// Bytes of `fls_info`.
const INFO_BYTES: usize = FSLI4BX_WRITEORDER as usize + 1;

/// A `fs_locations_server4`: how many seconds it may be behind, what it is like, and its name.
fn write_replica(currency: i32, info: [u8; INFO_BYTES], server: &str, to: &mut Vec<u8>) {
    currency.encode(to);
    Opaque::<INFO_BYTES>(&info).encode(to);
    write_server(server, to);
}

fn write_server(server: &str, to: &mut Vec<u8>) {
    Opaque::<SERVER_BYTES_MAX>(server.as_bytes()).encode(to);
}

/// The addresses that clients are told.
fn own_servers(nfsd: &Nfsd) -> Vec<String> {
    let ports = locked(&nfsd.ports).clone();
    let told = ports
        .iter()
        .filter(|(_, programs)| programs.has(RpcProgram::Nfs));
    let mut servers: Vec<String> = told.filter_map(|(address, _)| server(*address)).collect();
    servers.dedup();
    servers
}

fn server_of(location: &FsLocation) -> String {
    match &location.server {
        LocationServer::Name(name) => name.clone(),
        LocationServer::Address(address) => universal(*address),
    }
}

/// An address that others reach.
fn server(address: SocketAddr) -> Option<String> {
    let ip = address.ip().to_canonical();
    let is_own = ip.is_unspecified() || ip.is_loopback();
    (!is_own).then(|| universal(address))
}

/// A universal address without its netid; its port is there unless it is the usual one.
fn universal(address: SocketAddr) -> String {
    let ip = address.ip().to_canonical();
    match address.port() {
        NFS_PORT => ip.to_string(),
        port => {
            let [high, low] = port.to_be_bytes();
            format!("{ip}.{high}.{low}")
        }
    }
}

/// A `pathname4`.
fn write_path(path: &str, to: &mut Vec<u8>) {
    (names(path).count() as u32).encode(to);
    for name in names(path) {
        Opaque::<PATH_BYTES_MAX>(name.as_bytes()).encode(to);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use store::fs::{Memory, Time};
    use wire::xdr::{Decode, Reader};

    use super::*;
    use crate::NfsdSettings;
    use crate::exports::{Export, Exports, Rule};
    use crate::rpcbind::RpcPrograms;

    fn list(from: &mut Reader<'_>) -> Vec<String> {
        let len = u32::decode(from).expect("a length");
        let mut next = || {
            let text = Opaque::<1024>::decode(from).expect("a text");
            String::from_utf8(text.0.to_vec()).expect("UTF-8")
        };
        (0..len).map(|_| next()).collect()
    }

    /// The path of the file system, and its servers.
    fn told(listeners: &[(&str, RpcPrograms)], path: &str) -> (Vec<String>, Vec<String>) {
        let fs = Memory::new("m", 1 << 20, 1, Time::default()).expect("memory");
        let export = Export::new("/a/b", Arc::new(fs), vec![Rule::default()]);
        let exports = Exports::new(vec![export.expect("an export")], Time::default());
        let exports = exports.expect("exports");
        let nfsd = Nfsd::new(NfsdSettings::default(), 1, [], exports, 0);
        let ports = listeners.iter();
        let ports = ports.map(|(address, programs)| (address.parse().expect("one"), *programs));
        nfsd.set_ports(ports.collect());
        let from: IpAddr = "192.0.2.1".parse().expect("an address");
        let view = View::new(&nfsd.exports, from);
        let place = match view.directory_at(path) {
            Some(dir) => PseudoPlace::Pseudo(dir),
            None => {
                let granted = view.all_granted().next().expect("the export");
                PseudoPlace::File {
                    export: granted.export.id(),
                    file: granted.fs.root(),
                }
            }
        };
        let mut bytes = Vec::new();
        write(&nfsd, &view, place, &mut bytes);
        let from = &mut Reader::new(&bytes);
        let path = list(from);
        assert_eq!(u32::decode(from), Ok(1));
        let servers = list(from);
        assert_eq!(list(from), path, "it is there by the same path");
        assert!(from.rest().is_empty());
        (path, servers)
    }

    #[test]
    fn addresses_of_listeners_with_nfs_are_told_and_their_ports_where_they_are_not_the_usual_one() {
        let all = RpcPrograms::default();
        let locks = RpcPrograms::new(&[RpcProgram::Nlm]);
        let listeners = [
            ("192.0.2.1:2049", all),
            ("192.0.2.2:20490", all),
            ("[2001:db8::1]:2049", all),
            ("192.0.2.3:2049", locks),
            ("127.0.0.1:2049", all),
            ("0.0.0.0:2049", all),
        ];
        let (path, servers) = told(&listeners, "/a/b");
        assert_eq!(path, ["a", "b"]);
        assert_eq!(servers, ["192.0.2.1", "192.0.2.2.80.10", "2001:db8::1"]);
    }

    #[test]
    fn without_an_address_that_others_reach_that_of_the_call_is_meant() {
        let (path, servers) = told(&[("0.0.0.0:2049", RpcPrograms::default())], "/a");
        assert_eq!(path, Vec::<String>::new(), "all directories above are one");
        assert_eq!(servers, [""]);
    }
}
