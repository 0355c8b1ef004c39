//! Where a file system is (`fs_locations`: RFC 7530, section 8.16.1, and RFC 8881, section 11.16):
//! here, by each address that clients are told. A client that looks for further ways to the same
//! server (RFC 8881, section 11.5) finds them so.

use std::net::{IpAddr, SocketAddr};

use machine::locked;
use wire::xdr::{Encode, Opaque};

use crate::Nfsd;
use crate::exports::{PATH_BYTES_MAX, names};
use crate::pseudo::{PseudoPlace, View};
use crate::rpcbind::RpcProgram;

/// The port of an address without one.
const NFS_PORT: u16 = 2049;

/// Appends the value of `fs_locations` of the file system that a place is in.
pub(crate) fn write(nfsd: &Nfsd, view: &View, place: PseudoPlace, to: &mut Vec<u8>) {
    let path = match place {
        PseudoPlace::File { export, .. } => view.granted(export).map(|own| own.export.path()),
        PseudoPlace::Pseudo(_) => None,
    };
    let path = path.unwrap_or("/");
    write_path(path, to);
    let ports = locked(&nfsd.ports).clone();
    let told = ports
        .iter()
        .filter(|(_, programs)| programs.has(RpcProgram::Nfs));
    let mut servers: Vec<String> = told.filter_map(|(address, _)| server(*address)).collect();
    servers.dedup();
    if servers.is_empty() {
        // The address that the call has come to.
        servers.push(String::new());
    }
    1u32.encode(to);
    (servers.len() as u32).encode(to);
    for server in &servers {
        Opaque::<64>(server.as_bytes()).encode(to);
    }
    write_path(path, to);
}

/// An address that others reach, as a universal address; its port is there unless it is the usual
/// one.
fn server(address: SocketAddr) -> Option<String> {
    let ip: IpAddr = address.ip().to_canonical();
    if ip.is_unspecified() || ip.is_loopback() {
        return None;
    }
    Some(match address.port() {
        NFS_PORT => ip.to_string(),
        port => {
            let [high, low] = port.to_be_bytes();
            format!("{ip}.{high}.{low}")
        }
    })
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
                let export = view.exports().iter().next().expect("the export");
                PseudoPlace::File {
                    export: export.id(),
                    file: export.fs().root(),
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
