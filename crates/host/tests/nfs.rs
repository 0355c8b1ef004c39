//! The NFS client against a server in the same process: what it asks for, and
//! what becomes of that where connections and servers go.
#![allow(missing_docs)]

#[path = "shared/ends.rs"]
mod ends;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ends::{driver, stop};
use host::nfs::{Access, Client, ClientError, Create, Handle, Params, RdmaClientSettings};
use reactor::EpollDriver;
use server::nfs::{
    ExportSpec, Exported, FileSystemKind, FileSystemSpec, NfsSettings, Rule, Squash,
};
use server::{Config, ListenerSpec, RdmaSpec, Running, Transports};
use testkit::nfs::proxy;
use wire::nfs4::{nfs_ftype4, nfsstat4, stable_how4};

/// What a client's messages go by: records, or RPC-over-RDMA.
type Way = Option<RdmaClientSettings>;

const RECORDS: Way = None;

/// Runs a test by records and by RDMA.
fn each_way(test: impl Fn(Way)) {
    test(RECORDS);
    test(Some(RdmaClientSettings::default()));
}

const STABLE: stable_how4 = stable_how4::FILE_SYNC4;

/// A directory as `/dir` and memory as `/mem`; records in `folder`.
fn start(folder: &Path, address: SocketAddr) -> Running {
    let path = folder.join("files");
    std::fs::create_dir_all(&path).expect("a folder of ours");
    let file_system = |name: &str, kind| FileSystemSpec {
        name: name.into(),
        kind,
    };
    let export = |name: &str| ExportSpec {
        path: format!("/{name}"),
        what: Exported::FileSystem(name.into()),
        rules: vec![Rule {
            squash: Squash::None,
            ..Rule::default()
        }],
    };
    let dir = FileSystemKind::Dir {
        path,
        state: folder.join("handles"),
        read_only: false,
        acls: None,
        direct: false,
    };
    let mem = FileSystemKind::Mem {
        size_bytes: 64 << 20,
    };
    let config = Config {
        file_systems: vec![file_system("dir", dir), file_system("mem", mem)],
        exports: vec![export("dir"), export("mem")],
        nfs: NfsSettings {
            state: Some(folder.join("clients")),
            ..NfsSettings::default()
        },
        listeners: vec![ListenerSpec {
            rdma: RdmaSpec {
                transports: Transports::Both,
                ..RdmaSpec::default()
            },
            ..ListenerSpec::nfs(address)
        }],
        cpus: vec![reactor::available_cpus()[0]],
        spin_us_max: 0,
        memory_max: 128 << 20,
        ..Config::default()
    };
    server::start(config).expect("the target starts")
}

/// A server on some port, and where its records are.
struct Served {
    running: Option<Running>,
    folder: tempfile::TempDir,
    address: SocketAddr,
}

impl Served {
    fn start() -> Served {
        let folder = tempfile::tempdir().expect("a folder");
        let running = start(folder.path(), SocketAddr::from(([127, 0, 0, 1], 0)));
        Served {
            address: running.addresses()[0],
            running: Some(running),
            folder,
        }
    }

    fn restart(&mut self) {
        stop(self.running.take().expect("it runs"));
        self.running = Some(start(self.folder.path(), self.address));
    }

    fn client(&self, connections: usize, export: &str) -> (Caller, Handle) {
        self.client_by(RECORDS, connections, export)
    }

    fn client_by(&self, way: Way, connections: usize, export: &str) -> (Caller, Handle) {
        client(self.address, way, connections, export)
    }
}

type Caller = Client<EpollDriver>;

/// A client with so many connections, and what is behind an export.
fn client(to: SocketAddr, way: Way, connections: usize, export: &str) -> (Caller, Handle) {
    let params = Params {
        connections,
        rdma: way,
        patience: Duration::from_secs(20),
        ..Params::new().expect("random bytes")
    };
    let mut client = Client::connect(driver(), to, params).expect("a session");
    let root = client.lookup([export]).expect("exported");
    (client, root)
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(running) = self.running.take()
            && !std::thread::panicking()
        {
            stop(running);
        }
    }
}

fn status<T: std::fmt::Debug>(result: Result<T, ClientError>) -> nfsstat4 {
    let error = result.expect_err("it is refused");
    error.status().unwrap_or_else(|| panic!("{error}"))
}

#[test]
fn files_are_made_in_every_way() {
    let served = Served::start();
    let (mut client, root) = served.client(1, "mem");
    client.null().expect("it is there");
    let mut open = |name, create| client.open((&root, name), (Access::Both, create), false);
    assert_eq!(status(open("a", Create::No)), nfsstat4::NFS4ERR_NOENT);
    let first = open("a", Create::Guarded).expect("it was not there");
    assert_eq!(status(open("a", Create::Guarded)), nfsstat4::NFS4ERR_EXIST);
    let second = open("a", Create::Unchecked).expect("it is there");
    let exclusive = Create::Exclusive([1; 8]);
    let third = open("b", exclusive).expect("it was not there");
    let again = open("b", exclusive).expect("it was made by the same");
    assert_eq!(
        status(open("b", Create::Exclusive([2; 8]))),
        nfsstat4::NFS4ERR_EXIST
    );
    let fourth = open("b", Create::No).expect("it is there");
    assert_eq!(client.handle(&first), client.handle(&second));
    assert_eq!(client.handle(&third), client.handle(&again));
    assert_ne!(client.handle(&first), client.handle(&fourth));
    assert_ne!(client.stateid(&first).other, client.stateid(&second).other);
    client.disconnect().expect("all is closed");
}

#[test]
fn read_of_a_file_returns_what_was_written() {
    each_way(read_back);
}

fn read_back(way: Way) {
    let served = Served::start();
    for export in ["mem", "dir"] {
        let (mut client, root) = served.client_by(way, 2, export);
        let how = (Access::Both, Create::Guarded);
        let open = client.open((&root, "file"), how, false).expect("room");
        let bytes: Vec<u8> = (0..300_007u32).map(|at| (at % 251) as u8).collect();
        let done = client.write(&open, 5, (&bytes, stable_how4::UNSTABLE4));
        let done = done.expect("room");
        assert_eq!(done.count as usize, bytes.len());
        let handle = client.handle(&open).clone();
        assert_eq!(client.commit(&handle).expect("stable"), done.writeverf);
        let size = bytes.len() + 5;
        let attributes = client.attributes(&handle).expect("attributes");
        assert_eq!(attributes.size, Some(size as u64));
        assert_eq!(attributes.kind, Some(nfs_ftype4::NF4REG));
        assert_eq!(attributes.mode, Some(0o644));
        for len in [1, 5, 4096, 300_000, 400_000] {
            let mut into = vec![0xee; len];
            let (count, is_end) = client.read(&open, 4, &mut into).expect("readable");
            let wanted = [&[0], &bytes[..]].concat();
            assert_eq!(
                (count, is_end),
                (len.min(size - 4), len >= size - 4),
                "{export} {len}"
            );
            assert!(into[..count] == wanted[..count], "{export} {len}");
            assert!(into[count..].iter().all(|byte| *byte == 0xee));
        }
        client.close_file(open).expect("closed");
        client.remove(&root, "file").expect("removed");
        assert_eq!(status(client.attributes(&handle)), nfsstat4::NFS4ERR_STALE);
        client.disconnect().expect("no state is left");
    }
}

#[test]
fn directories_are_listed_to_their_end() {
    each_way(list);
}

fn list(way: Way) {
    let served = Served::start();
    let (mut client, root) = served.client_by(way, 1, "mem");
    let directory = client.create_directory(&root, "many").expect("made");
    let exists = client.create_directory(&root, "many");
    assert_eq!(status(exists), nfsstat4::NFS4ERR_EXIST);
    // More than one answer takes.
    let mut names: Vec<String> = (0..1500).map(|n| format!("{n:0>60}")).collect();
    for name in &names {
        let how = (Access::Write, Create::Guarded);
        let open = client.open((&directory, name), how, false).expect("room");
        client.close_file(open).expect("closed");
    }
    let entries = client.entries(&directory).expect("listed");
    let is_file = |entry: &host::nfs::Entry| entry.attributes.kind == Some(nfs_ftype4::NF4REG);
    assert!(entries.iter().all(is_file));
    let mut found: Vec<_> = entries.iter().map(|entry| entry.name.clone()).collect();
    found.sort();
    names.sort();
    let names: Vec<_> = names.into_iter().map(String::into_bytes).collect();
    assert_eq!(found, names);
    assert_eq!(
        status(client.remove(&root, "many")),
        nfsstat4::NFS4ERR_NOTEMPTY
    );
    let of_root = client.entries(&root).expect("listed");
    assert_eq!(of_root[0].attributes.kind, Some(nfs_ftype4::NF4DIR));
}

#[test]
fn a_lost_connection_is_made_again() {
    each_way(lose_connections);
}

fn lose_connections(way: Way) {
    let served = Served::start();
    for connections in [1, 3] {
        let (mut client, root) = served.client_by(way, connections, "mem");
        let name = format!("file {connections}");
        let how = (Access::Both, Create::Guarded);
        let open = client.open((&root, &name), how, false).expect("room");
        for turn in 0..6u8 {
            client.cut_connections().expect("the driver goes on");
            // A call of every kind is the first after the loss.
            let data = (&[turn; 99][..], STABLE);
            client
                .write(&open, u64::from(turn) * 99, data)
                .expect("it goes on");
            if turn % 2 == 0 {
                client.cut_connections().expect("the driver goes on");
            }
            let mut into = [0; 99];
            let offset = u64::from(turn) * 99;
            assert_eq!(
                client.read(&open, offset, &mut into).expect("it goes on").0,
                99
            );
            assert_eq!(into, [turn; 99]);
        }
        client.cut_connections().expect("the driver goes on");
        client.remove(&root, &name).expect("it goes on");
        client.disconnect().expect("no state is left");
    }
}

#[test]
fn without_patience_a_lost_connection_is_the_end() {
    let mut served = Served::start();
    let params = Params::new().expect("random bytes");
    let mut client = Client::connect(driver(), served.address, params).expect("a session");
    stop(served.running.take().expect("it runs"));
    let error = client.renew().expect_err("the server is gone");
    assert!(
        matches!(error, ClientError::Closed | ClientError::Socket(_)),
        "{error}"
    );
    let error = client.disconnect().expect_err("the server is gone");
    assert!(matches!(error, ClientError::Closed), "at once: {error}");
    let params = Params::new().expect("random bytes");
    let refused = Client::connect(driver(), served.address, params);
    assert!(matches!(refused, Err(ClientError::Socket(_))));
}

#[test]
fn opens_outlive_the_server() {
    each_way(restart);
}

fn restart(way: Way) {
    let mut served = Served::start();
    let (mut client, root) = served.client_by(way, 2, "dir");
    let how = (Access::Both, Create::Guarded);
    let open = client.open((&root, "file"), how, false).expect("room");
    let other = client.open((&root, "other"), how, false).expect("room");
    client.write(&open, 0, (b"before", STABLE)).expect("room");
    let before = (client.clientid(), client.stateid(&open));
    for _ in 0..2 {
        served.restart();
        // The first call finds the session gone, and what was open is reclaimed.
        client
            .write(&open, 6, (b" after", STABLE))
            .expect("it goes on");
        let mut into = [0; 12];
        assert_eq!(
            client.read(&open, 0, &mut into).expect("reclaimed"),
            (12, true)
        );
        assert_eq!(&into, b"before after");
    }
    assert_ne!(client.clientid(), before.0);
    assert_ne!(client.stateid(&open), before.1);
    client
        .write(&other, 0, (b"x", STABLE))
        .expect("reclaimed too");
    client.close_file(open).expect("closed");
    client.close_file(other).expect("closed");
    client.disconnect().expect("no state is left");
}

#[test]
fn a_delegation_is_given_back_when_another_client_opens_to_write() {
    each_way(recall);
}

fn recall(way: Way) {
    let served = Served::start();
    for connections in [1, 4] {
        let (mut reader, root) = served.client_by(way, connections, "mem");
        let (mut writer, _) = served.client_by(way, 1, "mem");
        let name = format!("file {connections}");
        let how = (Access::Both, Create::Guarded);
        let open = writer.open((&root, &name), how, false).expect("room");
        writer.write(&open, 0, (b"1", STABLE)).expect("room");
        writer.close_file(open).expect("closed");
        let how = (Access::Read, Create::No);
        let held = reader.open((&root, &name), how, true).expect("there");
        assert!(reader.has_delegation(&held), "no other client has it open");
        // The callback comes over what is left of the connections.
        if connections > 1 {
            reader.cut_connections().expect("the driver goes on");
            reader.renew().expect("made again");
        }
        let address = served.address;
        let writing = std::thread::spawn(move || {
            let (mut writer, root) = client(address, way, 1, "mem");
            let how = (Access::Write, Create::No);
            let open = writer.open((&root, &name), how, false)?;
            writer.write(&open, 0, (b"2", STABLE))?;
            writer.close_file(open)
        });
        let mut returned = 0;
        for _ in 0..400 {
            returned += reader.serve(Duration::from_millis(25)).expect("served");
            if returned > 0 && writing.is_finished() {
                break;
            }
        }
        writing
            .join()
            .expect("no panic")
            .expect("it waited for the delegation");
        assert_eq!(returned, 1);
        let mut into = [0];
        reader.read(&held, 0, &mut into).expect("still open");
        assert_eq!(&into, b"2");
        reader.disconnect().expect("no state is left");
    }
}

#[test]
fn sessions_beside_the_first_have_slots_of_their_own() {
    let served = Served::start();
    let (mut client, _) = served.client(1, "mem");
    let slots = client.more_slots(16).expect("a session");
    let more = client.more_slots(4).expect("a session");
    assert_eq!((slots.count(), more.count()), (16, 4));
    assert_ne!(slots.session(), more.session());
    client.destroy_session(slots.session()).expect("destroyed");
    let gone = client.destroy_session(slots.session());
    assert_eq!(status(gone), nfsstat4::NFS4ERR_BADSESSION);
    client.renew().expect("its own session is another");
}

/// Passes bytes on between a client and its server, and cuts every connection
/// after so many of them, which differ from one to the next.
struct Cutter {
    address: SocketAddr,
    cuts: Arc<AtomicUsize>,
}

impl Cutter {
    /// What is passed on before each cut: bytes to the server, or from it.
    fn start(to: SocketAddr, budgets: &'static [(usize, usize)]) -> Cutter {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let cuts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&cuts);
        // It ends with the process: no client connects any more.
        std::thread::spawn(move || {
            for (number, client) in listener.incoming().enumerate() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(to)) else {
                    continue;
                };
                let (forth, back) = budgets
                    .get(number)
                    .copied()
                    .unwrap_or((usize::MAX, usize::MAX));
                let both = [(&client, &server, forth), (&server, &client, back)];
                for (from, into, budget) in both {
                    let streams = [from.try_clone(), into.try_clone()];
                    let [from, into] = streams.map(|stream| stream.expect("a descriptor"));
                    let counted = Arc::clone(&counted);
                    std::thread::spawn(move || pass(from, into, budget, &counted));
                }
            }
        });
        Cutter { address, cuts }
    }
}

/// Passes `budget` bytes on, then ends both.
fn pass(mut from: TcpStream, mut into: TcpStream, mut budget: usize, cuts: &AtomicUsize) {
    let mut bytes = [0; 16 << 10];
    while budget > 0 {
        let most = bytes.len().min(budget);
        match from.read(&mut bytes[..most]) {
            Ok(len @ 1..) if into.write_all(&bytes[..len]).is_ok() => budget -= len,
            _ => break,
        }
    }
    cuts.fetch_add(usize::from(budget == 0), Ordering::Relaxed);
    // What has ended already cannot be ended again.
    let _ = from.shutdown(Shutdown::Both);
    let _ = into.shutdown(Shutdown::Both);
}

#[test]
fn a_connection_lost_in_the_middle_of_anything_costs_nothing() {
    each_way(cut_anywhere);
}

fn cut_anywhere(way: Way) {
    const ALL: usize = usize::MAX;
    // In headers, in data, between a call and its answer, on either way.
    const BUDGETS: &[(usize, usize)] = &[
        (100, ALL),
        (ALL, 30),
        (ALL, 700),
        (1_200, ALL),
        (40_000, ALL),
        (ALL, 1_500),
        (70_000, ALL),
        (ALL, 1_000),
        (90_000, ALL),
        (ALL, 50_000),
        (ALL, 70_000),
        (ALL, 120),
        (ALL, 130_000),
        (ALL, 200),
        (ALL, 150),
        (300, ALL),
    ];
    let served = Served::start();
    let cutter = Cutter::start(served.address, BUDGETS);
    let (mut client, root) = client(cutter.address, way, 1, "mem");
    let data: Vec<u8> = (0..60_000u32).map(|at| (at % 253) as u8).collect();
    for turn in 0..200 {
        let name = format!("file {turn}");
        // Executed twice, each of these would be refused.
        let how = (Access::Both, Create::Guarded);
        let open = client.open((&root, &name), how, false).expect("made once");
        let done = client.write(&open, 0, (&data, STABLE)).expect("written");
        assert_eq!(done.count as usize, data.len());
        let mut into = vec![0; data.len()];
        assert_eq!(
            client.read(&open, 0, &mut into).expect("read"),
            (data.len(), true)
        );
        assert!(into == data, "turn {turn}");
        client.close_file(open).expect("closed once");
        client.remove(&root, &name).expect("removed once");
        if cutter.cuts.load(Ordering::Relaxed) == BUDGETS.len() {
            break;
        }
    }
    assert_eq!(cutter.cuts.load(Ordering::Relaxed), BUDGETS.len());
    assert_eq!(client.entries(&root).expect("listed"), []);
    client.disconnect().expect("no state is left");
}

/// A server that has only minor versions up to `most`, and those by which it was
/// called, in order.
fn of_minor_versions(to: SocketAddr, most: u32) -> (SocketAddr, Arc<Mutex<Vec<u32>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&seen);
    let refuse = move |call: &[u8]| {
        let minor = proxy::minor(call)?;
        notes.lock().expect("whole").push(minor);
        let status = nfsstat4::NFS4ERR_MINOR_VERS_MISMATCH;
        (minor > most).then(|| proxy::refused(call, status))
    };
    (proxy::start(to, Arc::new(refuse), Arc::new(|_| ())), seen)
}

/// RFC 8881, section 2.7: the version before is tried, and stays the one.
#[test]
fn a_server_without_4_2_is_asked_in_4_1() {
    let mut served = Served::start();
    let (address, seen) = of_minor_versions(served.address, 1);
    let (mut client, root) = client(address, RECORDS, 2, "dir");
    assert_eq!(client.minor(), 1);
    let how = (Access::Both, Create::Guarded);
    let open = client.open((&root, "file"), how, false).expect("room");
    client.write(&open, 0, (b"data", STABLE)).expect("room");
    // Also where all begins again.
    served.restart();
    let mut into = [0; 4];
    let read = client.read(&open, 0, &mut into).expect("reclaimed");
    assert_eq!((read, &into), ((4, true), b"data"));
    client.close_file(open).expect("closed");
    client.disconnect().expect("no state is left");
    let seen = seen.lock().expect("whole");
    assert_eq!(seen[0], 2, "what is liked best comes first");
    assert!(seen.len() > 10 && seen[1..].iter().all(|minor| *minor == 1));
}

#[test]
fn a_server_of_4_0_alone_is_not_asked_for_ever() {
    let served = Served::start();
    let (address, seen) = of_minor_versions(served.address, 0);
    let params = Params {
        patience: Duration::from_secs(20),
        ..Params::new().expect("random bytes")
    };
    let refused = Client::connect(driver(), address, params);
    let refused = refused.map(|_| ());
    assert_eq!(status(refused), nfsstat4::NFS4ERR_MINOR_VERS_MISMATCH);
    assert_eq!(*seen.lock().expect("whole"), [2, 1]);
}
