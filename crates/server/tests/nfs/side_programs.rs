//! The programs beside NFSv3 over real sockets: the port mapper and MOUNT, also by datagrams, and
//! locks.

use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use needs::each_driver;
use reactor::Choice;
use server::nfs::{RpcProgram, RpcPrograms};
use server::{Change, Config, ListenerSpec, Running};

use crate::common::{address, at, config, stop, until};
use crate::raw::{self, NFS, call, status};

const PORTMAP: u32 = 100_000;
const MOUNT: u32 = 100_005;
const NLM: u32 = 100_021;
const TCP: u32 = 6;
const UDP: u32 = 17;

const GRANTED: u32 = 0;
const DENIED: u32 = 1;
const GRACE: u32 = 4;

/// Two listeners: the second has the port mapper.
fn with_portmap(backend: Choice, folder: &Path) -> Config {
    let mut config = config(backend, folder);
    config.listeners.push(portmap());
    config
}

fn portmap() -> ListenerSpec {
    ListenerSpec {
        programs: RpcPrograms::new(&[RpcProgram::Portmap]),
        ..ListenerSpec::nfs(SocketAddr::from(([127, 0, 0, 1], 0)))
    }
}

fn words(all: &[u32]) -> Vec<u8> {
    all.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut all = words(&[bytes.len() as u32]);
    all.extend(bytes);
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

fn getport(program: u32, transport: u32) -> Vec<u8> {
    let args = words(&[program, 3, transport, 0]);
    call(1, (PORTMAP, 2, 3), &args)
}

fn by_tcp(stream: &mut TcpStream, call: &[u8]) -> Vec<u8> {
    stream.write_all(call).expect("taken");
    raw::answer(stream).expect("an answer").1
}

/// The answer to a datagram without its identifier, however often it is to be sent.
fn by_udp(to: SocketAddr, call: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket
        .set_read_timeout(Some(Duration::from_millis(200)))
        .expect("a time");
    let mut buf = [0; 4096];
    let mut answer = None;
    until("a datagram is answered", || {
        // Without the record mark.
        let _ = socket.send_to(&call[4..], to);
        answer = socket.recv(&mut buf).ok().map(|len| buf[4..len].to_vec());
        answer.is_some()
    });
    answer.expect("it was waited for")
}

/// The results in one that succeeded.
fn results(answer: &[u8]) -> &[u8] {
    assert_eq!(answer[..20], words(&[1, 0, 0, 0, 0]));
    &answer[20..]
}

/// Why a call was not executed.
fn refusal(answer: &[u8]) -> u32 {
    assert_eq!(answer[..16], words(&[1, 0, 0, 0]));
    status(&answer[16..])
}

#[each_driver]
fn programs_are_found_by_a_port_mapper_and_exports_mounted_by_datagrams(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(with_portmap(backend, folder.path())).expect("starts");
    let [nfs, portmap] = running.addresses()[..] else {
        panic!("two listeners");
    };
    let port = |address: SocketAddr| words(&[address.port().into()]);
    let mut stream = raw::open(portmap);
    assert_eq!(by_tcp(&mut stream, &getport(NFS, TCP)), port(nfs));
    assert_eq!(by_tcp(&mut stream, &getport(PORTMAP, UDP)), port(portmap));
    let answer = by_udp(portmap, &getport(MOUNT, UDP));
    assert_eq!(results(&answer), port(nfs));
    for name in ["mem", "dir"] {
        let (mut client, root) = at(&running, name);
        client.create_directory(&root, "below").expect("room");
        for path in ["/", &format!("/{name}"), &format!("/{name}/below")] {
            let mount = call(2, (MOUNT, 3, 1), &opaque(path.as_bytes()));
            let answer = by_udp(nfs, &mount);
            let mounted = results(&answer);
            // A handle of 32 bytes, and the flavors.
            assert_eq!(mounted[..8], words(&[0, 32]), "{path}");
            let mut stream = raw::open(nfs);
            let same = by_tcp(&mut stream, &mount);
            assert_eq!(mounted, same, "{path}");
            let getattr = call(3, (NFS, 3, 1), &mounted[4..40]);
            assert_eq!(status(&by_tcp(&mut stream, &getattr)), 0, "{path}");
        }
        let missing = call(2, (MOUNT, 3, 1), &opaque(format!("/{name}/no").as_bytes()));
        assert_eq!(status(results(&by_udp(nfs, &missing))), 2);
    }
    // What lists something, and what moves data, takes a connection.
    let exports = call(2, (MOUNT, 3, 5), &[]);
    assert_eq!(refusal(&by_udp(nfs, &exports)), 3);
    let null = call(2, (NFS, 3, 0), &[]);
    assert_eq!(refusal(&by_udp(nfs, &null)), 1);
    stop(running);
}

#[each_driver]
fn port_mapper_comes_and_goes_with_its_listener(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(config(backend, folder.path())).expect("starts");
    let mut stream = raw::open(address(&running));
    let ask = |stream: &mut TcpStream| status(&by_tcp(stream, &getport(PORTMAP, TCP)));
    assert_eq!(ask(&mut stream), 0);
    running
        .change(Change::AddListener(portmap()))
        .expect("made");
    let there = running.addresses()[1];
    assert_eq!(ask(&mut stream), u32::from(there.port()));
    let answer = by_udp(there, &getport(NFS, TCP));
    assert_eq!(
        status(results(&answer)),
        u32::from(address(&running).port())
    );
    running
        .change(Change::RemoveListener { address: there })
        .expect("made");
    assert_eq!(ask(&mut stream), 0);
    let is_free = || UdpSocket::bind(there).is_ok();
    until("datagrams are not taken any more", is_free);
    stop(running);
}

/// LOCK of a host, exclusive, of the whole file; what it is answered.
fn lock(running: &Running, (host, file): (&[u8], &[u8]), reclaim: bool) -> u32 {
    let args = [
        opaque(b"c"),
        words(&[0, 1]),
        opaque(host),
        opaque(file),
        opaque(b"owner"),
        words(&[7, 0, 0, 0, 0, reclaim.into(), 3]),
    ];
    let call = call(9, (NLM, 4, 2), &args.concat());
    let mut stream = raw::open(address(running));
    status(&by_tcp(&mut stream, &call)[8..])
}

fn unlock(running: &Running, (host, file): (&[u8], &[u8])) -> u32 {
    let args = [
        opaque(b"c"),
        opaque(host),
        opaque(file),
        opaque(b"owner"),
        words(&[7, 0, 0, 0, 0]),
    ];
    let call = call(9, (NLM, 4, 4), &args.concat());
    let mut stream = raw::open(address(running));
    status(&by_tcp(&mut stream, &call)[8..])
}

#[each_driver]
fn locks_of_a_host_are_its_own_until_it_unlocks_and_after_a_restart(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(config(backend, folder.path())).expect("starts");
    let mut files = Vec::new();
    for name in ["mem", "dir"] {
        let (mut client, root) = at(&running, name);
        let open = crate::common::make(&mut client, &root, "file");
        files.push(client.handle(&open).as_bytes().to_vec());
        client.close_file(open).expect("closed");
    }
    for file in &files {
        assert_eq!(lock(&running, (b"a", file), false), GRANTED);
        assert_eq!(lock(&running, (b"b", file), false), DENIED);
        assert_eq!(unlock(&running, (b"b", file)), GRANTED);
        assert_eq!(lock(&running, (b"b", file), false), DENIED);
        assert_eq!(unlock(&running, (b"a", file)), GRANTED);
        assert_eq!(lock(&running, (b"b", file), false), GRANTED);
    }
    stop(running);
    let running = server::start(config(backend, folder.path())).expect("starts");
    let file = &files[1];
    assert_eq!(
        lock(&running, (b"c", file), true),
        GRACE,
        "it is not on record"
    );
    assert_eq!(lock(&running, (b"a", file), false), GRACE);
    assert_eq!(lock(&running, (b"b", file), true), GRANTED);
    stop(running);
}

#[each_driver]
fn hosts_are_listed_with_their_locks_and_evicted(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(config(backend, folder.path())).expect("starts");
    let (mut client, root) = at(&running, "mem");
    let open = crate::common::make(&mut client, &root, "file");
    let file = client.handle(&open).as_bytes().to_vec();
    client.close_file(open).expect("closed");
    client.disconnect().expect("gone in order");
    assert_eq!(lock(&running, (b"a", &file), false), GRANTED);
    let known = running.nfs_clients();
    let [host] = &known[..] else {
        panic!("{known:?}");
    };
    assert_eq!((&host.owner[..], host.minor), (&b"a"[..], None));
    assert_eq!(
        (host.address, host.locks),
        (Some([127, 0, 0, 1].into()), 1),
        "{host:?}"
    );
    let id = host.id;
    let evict = || running.change(Change::EvictClient { id });
    evict().expect("it is there");
    assert_eq!(lock(&running, (b"b", &file), false), GRANTED);
    assert!(evict().is_err(), "it is gone");
    stop(running);
}
