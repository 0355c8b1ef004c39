//! Clients and users that the name service of this machine knows.

use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use needs::each_driver;
use reactor::Choice;
use server::ListenerSpec;
use server::nfs::{ClientName, Clients, RpcProgram, RpcPrograms, Rule};

use crate::common::{address, config, export, memory, stop, until};
use crate::raw;

const OK: u32 = 0;
const NOENT: u32 = 2;

/// A call waits until its client's address has a name and its user groups, and so does a MOUNT by
/// a datagram until it comes again.
#[each_driver]
fn clients_are_let_in_by_patterns_of_their_names(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(backend, folder.path());
    let named = [("mine", "localh?st"), ("others", "*.invalid")];
    config.file_systems = vec![memory("mem", 1 << 20)];
    config.exports = Vec::new();
    for (path, pattern) in named {
        let names = vec![ClientName::Pattern(pattern.to_owned())];
        let rule = Rule {
            clients: Clients::Named(names),
            ..Rule::default()
        };
        let mut export = export("mem");
        export.path = format!("/{path}");
        export.rules = vec![rule];
        config.exports.push(export);
    }
    config.nfs.manage_gids = true;
    let mount = RpcPrograms::new(&[RpcProgram::Portmap, RpcProgram::Mount]);
    config.listeners.push(ListenerSpec {
        programs: mount,
        ..ListenerSpec::nfs(SocketAddr::from(([127, 0, 0, 1], 0)))
    });
    let running = server::start(config).expect("starts");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let soon = Duration::from_millis(200);
    socket.set_read_timeout(Some(soon)).expect("a time");
    let path = [5u32.to_be_bytes().as_slice(), b"/mine\0\0\0"].concat();
    let call = raw::call(9, (100_005, 3, 1), &path);
    let to = running.addresses()[1];
    let mut buf = [0; 512];
    let mut status = None;
    until("a datagram is answered", || {
        socket.send_to(&call[4..], to).expect("sent");
        let answer = socket.recv(&mut buf).ok();
        status = answer.map(|len| raw::status(&buf[24..len]));
        status.is_some()
    });
    assert_eq!(status, Some(OK));
    let mut stream = raw::open(address(&running));
    for (xid, (path, status)) in (1..).zip([("mine", OK), ("others", NOENT), ("mine", OK)]) {
        let ops = [raw::putrootfh4(), raw::lookup4(path.as_bytes())];
        stream.write_all(&raw::compound4(xid, &ops)).expect("taken");
        let (of, results) = raw::answer(&mut stream).expect("an answer");
        assert_eq!((of, raw::status(&results)), (xid, status), "{path}");
    }
    stop(running);
}
