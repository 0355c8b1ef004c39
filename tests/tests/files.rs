//! Many clients of files at once, and many files.

#![forbid(unsafe_code)]

use interop::client::raise_open_files;
use interop::files::FilesClient;
use interop::weft::{WeftProcess, free_address};
use needs::needs;
use std::collections::HashSet;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};
use wire::nfs4::{
    CLOSE4args, FATTR4_CHANGE, FATTR4_FILEHANDLE, FATTR4_FILEID, FATTR4_FSID, FATTR4_MODE,
    FATTR4_MOUNTED_ON_FILEID, FATTR4_NUMLINKS, FATTR4_OWNER, FATTR4_OWNER_GROUP, FATTR4_RAWDEV,
    FATTR4_RDATTR_ERROR, FATTR4_SIZE, FATTR4_SPACE_USED, FATTR4_TIME_ACCESS, FATTR4_TIME_METADATA,
    FATTR4_TIME_MODIFY, FATTR4_TYPE, GETATTR4args, OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
    OPEN4_SHARE_ACCESS_WRITE, OPEN4_SHARE_DENY_NONE, OPEN4args, OPEN4resok, READDIR4args,
    READDIR4resok, createhow4, fattr4, nfs_argop4, nfs_ftype4, nfs_opnum4, open_claim4, openflag4,
    state_owner4, stateid4,
};
use wire::xdr::{Encode, List, Opaque};

/// Clients, each with a session and a connection of its own.
const CLIENTS: usize = 10_000;

/// Addresses that they come from: one has at most 4,096.
const ADDRESSES: u8 = 4;

/// What all of them may cost the server.
const CLIENTS_KIB_MAX: u64 = 256 << 10;

/// Files of one directory, where `WEFT_FILES` does not say how many.
const FILES: usize = 1_000_000;

/// Files made by one COMPOUND: three operations each, beside SEQUENCE, PUTROOTFH.
const FILES_AT_ONCE: usize = 20;

/// Bytes of one answer to READDIR.
const READDIR_BYTES: u32 = 256 << 10;

/// Of a GETATTR, and of an entry whose name is what matters.
const ASKED: &[u32] = &[bit(FATTR4_TYPE) | bit(FATTR4_FILEID)];
/// What Linux asks of an entry that it is about to look at.
const ASKED_LIKE_LINUX: &[u32] = &[
    bit(FATTR4_TYPE)
        | bit(FATTR4_CHANGE)
        | bit(FATTR4_SIZE)
        | bit(FATTR4_FSID)
        | bit(FATTR4_RDATTR_ERROR)
        | bit(FATTR4_FILEHANDLE)
        | bit(FATTR4_FILEID),
    bit(FATTR4_MODE)
        | bit(FATTR4_NUMLINKS)
        | bit(FATTR4_OWNER)
        | bit(FATTR4_OWNER_GROUP)
        | bit(FATTR4_RAWDEV)
        | bit(FATTR4_SPACE_USED)
        | bit(FATTR4_TIME_ACCESS)
        | bit(FATTR4_TIME_METADATA)
        | bit(FATTR4_TIME_MODIFY)
        | bit(FATTR4_MOUNTED_ON_FILEID),
];

const fn bit(number: u32) -> u32 {
    1 << (number % 32)
}

/// A file system as `/`, which `keys` describe.
fn serve(name: &str, keys: &str, io: &str) -> WeftProcess {
    let address = free_address();
    let config = format!(
        "[nfs]\nstate = \"state\"\n\
         [[file_system]]\nname = \"files\"\n{keys}\n\
         [[export]]\npath = \"/\"\nfile_system = \"files\"\n\
         allow_any_client = true\nsquash = \"none\"\n\
         [[listener]]\naddress = \"{address}\"\nprotocol = \"nfs\"\n\
         [policy]\nio = \"{io}\"\n"
    );
    WeftProcess::serve(name, &config, address)
}

/// In memory: as large as what is exported without a configuration.
const MEM: &str = "kind = \"mem\"\nsize = \"1GiB\"";

/// A share of the clients: those that come from one address.
fn clients_of(to: SocketAddr, address: u8) -> Vec<FilesClient> {
    let local = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2 + address));
    let numbers = 0..CLIENTS / usize::from(ADDRESSES);
    let one = |number| {
        let owner = format!("client {number} of {local}");
        let mut client = FilesClient::connect(local, to, owner.as_bytes())
            .unwrap_or_else(|e| panic!("{owner}: {e}"));
        assert_root(&mut client);
        client
    };
    numbers.map(one).collect()
}

/// The root is there and is a directory, says the session.
fn assert_root(client: &mut FilesClient) {
    let asked = nfs_argop4::OP_GETATTR(GETATTR4args {
        attr_request: List::Of(ASKED),
    });
    let found = client.call(
        |compound| {
            compound.op(&nfs_argop4::OP_PUTROOTFH).op(&asked);
        },
        |results| {
            results.done(nfs_opnum4::OP_PUTROOTFH)?;
            let found: fattr4<'_> = results.take(nfs_opnum4::OP_GETATTR)?;
            Ok(found.attr_vals.0.to_vec())
        },
    );
    let found = found.unwrap_or_else(|e| panic!("client {:x}: {e}", client.clientid()));
    assert_eq!(found.len(), 4 + 8, "type and file number");
    assert_eq!(found[..4], (nfs_ftype4::NF4DIR as u32).to_be_bytes());
}

/// Resident memory once the server has nothing left to do.
fn settled_rss_kib(target: &WeftProcess) -> u64 {
    sleep(Duration::from_millis(500));
    target.status_kib("VmRSS")
}

#[needs(ci, open_files(10_500))]
#[test]
fn ten_thousand_clients_with_a_session_each_cost_256_mib_at_most_on_epoll() {
    assert_ten_thousand_clients_cost_little("epoll");
}

#[needs(ci, open_files(10_500), io_uring)]
#[test]
fn ten_thousand_clients_with_a_session_each_cost_256_mib_at_most_on_io_uring() {
    assert_ten_thousand_clients_cost_little("io_uring");
}

fn assert_ten_thousand_clients_cost_little(io: &str) {
    // One at a time: each takes most of the files that a process may open.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(|failed| failed.into_inner());
    raise_open_files().expect("a limit");
    let target = serve("clients", MEM, io);
    let growth_kib = ten_thousand_clients(&target, io);
    assert!(growth_kib < CLIENTS_KIB_MAX, "{growth_kib} KiB on {io}");
    target.expect_orderly_end();
}

/// All of them come, and call again when all are there: how much larger the server
/// is then.
fn ten_thousand_clients(target: &WeftProcess, io: &str) -> u64 {
    let before_kib = settled_rss_kib(target);
    let began = Instant::now();
    let to = target.address();
    let mut clients: Vec<FilesClient> = thread::scope(|scope| {
        let shares: Vec<_> = (0..ADDRESSES)
            .map(|address| scope.spawn(move || clients_of(to, address)))
            .collect();
        let shares = shares.into_iter().map(|share| share.join());
        shares.flat_map(|share| share.expect("clients")).collect()
    });
    let there = began.elapsed();
    assert_eq!(clients.len(), CLIENTS);
    // No client was taken for another.
    let ids: HashSet<_> = clients.iter().map(FilesClient::clientid).collect();
    let sessions: HashSet<_> = clients.iter().map(FilesClient::session).collect();
    assert_eq!((ids.len(), sessions.len()), (CLIENTS, CLIENTS));
    clients.iter_mut().for_each(assert_root);
    let growth_kib = settled_rss_kib(target).saturating_sub(before_kib);
    let slots = clients.iter().map(FilesClient::slots_max);
    println!(
        "{CLIENTS} clients, {io}: {growth_kib} KiB, {:.1} KiB each, {} to {} slots, \
         all there in {there:?}",
        growth_kib as f64 / CLIENTS as f64,
        slots.clone().min().unwrap_or_default(),
        slots.max().unwrap_or_default(),
    );
    growth_kib
}

fn file_name(number: usize) -> String {
    format!("file-{number:07}")
}

fn files() -> usize {
    let asked = std::env::var("WEFT_FILES");
    asked.map_or(FILES, |asked| {
        asked.parse().expect("WEFT_FILES is a number")
    })
}

/// Makes the files `numbers` in the root.
fn make(client: &mut FilesClient, numbers: std::ops::Range<usize>) {
    let mut values = Vec::new();
    0o644u32.encode(&mut values);
    let clientid = client.clientid();
    let is_made = client.call(
        |compound| {
            compound.op(&nfs_argop4::OP_PUTROOTFH);
            for number in numbers.clone() {
                let attrs = fattr4 {
                    attrmask: List::Of(&[0, bit(FATTR4_MODE)]),
                    attr_vals: Opaque(&values),
                };
                compound.op(&nfs_argop4::OP_OPEN(OPEN4args {
                    seqid: 0,
                    share_access: OPEN4_SHARE_ACCESS_WRITE | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
                    share_deny: OPEN4_SHARE_DENY_NONE,
                    owner: state_owner4 {
                        clientid,
                        owner: Opaque(b"maker"),
                    },
                    openhow: openflag4::OPEN4_CREATE(createhow4::GUARDED4(attrs)),
                    claim: open_claim4::CLAIM_NULL(Opaque(file_name(number).as_bytes())),
                }));
                // The current state id (RFC 8881, section 16.2.3.1.2).
                let open_stateid = stateid4 {
                    seqid: 1,
                    other: [0; 12],
                };
                compound.op(&nfs_argop4::OP_CLOSE(CLOSE4args {
                    seqid: 0,
                    open_stateid,
                }));
                compound.op(&nfs_argop4::OP_PUTROOTFH);
            }
        },
        |results| {
            results.done(nfs_opnum4::OP_PUTROOTFH)?;
            for _ in numbers.clone() {
                results.take::<OPEN4resok<'_>>(nfs_opnum4::OP_OPEN)?;
                results.take::<stateid4>(nfs_opnum4::OP_CLOSE)?;
                results.done(nfs_opnum4::OP_PUTROOTFH)?;
            }
            Ok(())
        },
    );
    is_made.unwrap_or_else(|e| panic!("{numbers:?}: {e}"));
}

/// The names in the root, by READDIR to its end, with what `asked` asks of each;
/// and how many READDIRs it took.
fn list(client: &mut FilesClient, asked: &[u32]) -> (Vec<Vec<u8>>, usize) {
    let (mut names, mut calls) = (Vec::new(), 0);
    let (mut cookie, mut cookieverf) = (0, [0; 8]);
    loop {
        let op = nfs_argop4::OP_READDIR(READDIR4args {
            cookie,
            cookieverf,
            dircount: READDIR_BYTES,
            maxcount: READDIR_BYTES,
            attr_request: List::Of(asked),
        });
        let before = names.len();
        let is_end = client.call(
            |compound| {
                compound.op(&nfs_argop4::OP_PUTROOTFH).op(&op);
            },
            |results| {
                results.done(nfs_opnum4::OP_PUTROOTFH)?;
                let found: READDIR4resok<'_> = results.take(nfs_opnum4::OP_READDIR)?;
                for entry in found.entries.iter() {
                    cookie = entry.cookie;
                    names.push(entry.name.0.to_vec());
                }
                cookieverf = found.cookieverf;
                Ok(found.eof)
            },
        );
        calls += 1;
        if is_end.expect("a READDIR") {
            return (names, calls);
        }
        assert!(names.len() > before, "a directory without an end");
    }
}

/// All names are there, each once, however much is asked of each. Meanwhile another client is
/// served at least one call for each READDIR.
fn assert_listed(to: SocketAddr, what: &str) {
    let mut client = FilesClient::connect(to.ip(), to, b"million").expect("a client");
    let of_another = IpAddr::from([127, 0, 0, 2]);
    let mut other = FilesClient::connect(of_another, to, b"another").expect("a client");
    let files = files();
    for (how, asked) in [("names", ASKED), ("attributes", ASKED_LIKE_LINUX)] {
        let began = Instant::now();
        let is_over = AtomicBool::new(false);
        let ((mut names, calls), served) = thread::scope(|scope| {
            let beside = scope.spawn(|| {
                let calls = (0..).take_while(|_| !is_over.load(Ordering::Acquire));
                calls.inspect(|_| assert_root(&mut other)).count()
            });
            let listed = list(&mut client, asked);
            is_over.store(true, Ordering::Release);
            (listed, beside.join().expect("its calls are answered"))
        });
        let took = began.elapsed();
        println!(
            "{files} files, {what}: {how} in {took:?} by {calls} READDIRs, beside {served} calls"
        );
        assert!(
            served >= calls,
            "{served} calls of another client, {calls} READDIRs"
        );
        assert_eq!(names.len(), files);
        names.sort_unstable();
        for (found, number) in names.iter().zip(0..) {
            assert_eq!(*found, file_name(number).into_bytes());
        }
    }
}

#[needs(ci)]
#[test]
fn a_million_files_in_memory_are_listed() {
    let files = files();
    let keys = format!("kind = \"mem\"\nsize = \"{}MiB\"", files / 1000);
    let target = serve("million", &keys, "auto");
    let to = target.address();
    let before_kib = settled_rss_kib(&target);
    let began = Instant::now();
    thread::scope(|scope| {
        for half in [0..files / 2, files / 2..files] {
            scope.spawn(move || {
                let owner = format!("maker of {half:?}");
                let mut client =
                    FilesClient::connect(to.ip(), to, owner.as_bytes()).expect("a client");
                for first in half.clone().step_by(FILES_AT_ONCE) {
                    make(&mut client, first..half.end.min(first + FILES_AT_ONCE));
                }
            });
        }
    });
    println!(
        "{files} files: made in {:?}, {} KiB",
        began.elapsed(),
        settled_rss_kib(&target).saturating_sub(before_kib)
    );
    assert_listed(to, "mem");
    target.expect_orderly_end();
}

/// In memory where that can be had: disks take long to make so many.
#[needs(ci)]
#[test]
fn a_million_files_of_a_directory_are_listed() {
    let (files, name) = (files(), "million-dir");
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let folder = folder.expect("a folder");
    let began = Instant::now();
    for number in 0..files {
        File::create(folder.path().join(file_name(number))).expect("a file");
    }
    println!(
        "{files} files of a directory: made in {:?}",
        began.elapsed()
    );
    let keys = format!("kind = \"dir\"\npath = \"{}\"", folder.path().display());
    let target = serve(name, &keys, "auto");
    let to = target.address();
    assert_listed(to, "dir");
    target.expect_orderly_end();
}
