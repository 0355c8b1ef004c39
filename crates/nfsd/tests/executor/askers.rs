//! Which asker a file system sees: hosts take turns there, and so do the
//! connections of each.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use reactor::{FileIo, Token};
use store::fs::{Asker, Caller, FileId, FsOp, Info, Progress, Task};
use testkit::nfs::call::call_header_of;
use wire::mount3::{MOUNT_PROGRAM, dirpath, mount_proc3};
use wire::nfs3::{GETATTR3args, nfs_proc3};

use super::*;

/// A file system that remembers its askers.
struct Remembers {
    info: Info,
    below: Arc<dyn FileSystem>,
    askers: Mutex<Vec<Asker>>,
}

impl FileSystem for Remembers {
    fn info(&self) -> &Info {
        &self.info
    }
    fn root(&self) -> FileId {
        self.below.root()
    }
    fn start(
        &self,
        caller: &Caller<'_>,
        op: FsOp<'_>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        self.askers.lock().unwrap().push(caller.from);
        self.below.start(caller, op, files, token)
    }
    fn resume(
        &self,
        task: Task,
        result: io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        self.below.resume(task, result, files, token)
    }
}

/// A call of each program and version, each of which asks the file system.
fn calls(root: &[u8], file: &[u8]) -> Vec<Vec<u8>> {
    let fh = || Ops::default().fh(file);
    let mut getattr = call_header_of(1, (NFS4_PROGRAM, 3, nfs_proc3::NFSPROC3_GETATTR as u32));
    let object = Opaque(root);
    GETATTR3args { object }.encode(&mut getattr);
    let mount = mount_proc3::MOUNTPROC3_MNT as u32;
    let mut mount = call_header_of(2, (MOUNT_PROGRAM, 3, mount));
    let path: dirpath<'_> = Opaque(b"/");
    path.encode(&mut mount);
    let listing = Ops::root().readdir(0, [0; 8], 4096, &[]);
    vec![
        fh().getattr(STAT).record(0),
        fh().read(0, 10).record(0),
        fh().write(0, b"data").record(0),
        listing.record(0),
        getattr,
        mount,
    ]
}

/// The asker that the file system sees of a connection from there, whatever it calls.
fn asker(world: &mut World, fs: &Remembers, address: &str, calls: &[Vec<u8>]) -> Asker {
    let address: SocketAddr = address.parse().unwrap();
    let conn = world.server.connect(address);
    let mut all = Vec::new();
    for call in calls {
        world.server.call(conn, call);
        let askers = std::mem::take(&mut *fs.askers.lock().unwrap());
        assert!(!askers.is_empty(), "the file system was asked");
        all.extend(askers);
    }
    all.dedup();
    assert_eq!(all.len(), 1, "{all:?}");
    all[0]
}

#[test]
fn hosts_and_their_connections_are_told_apart() {
    let below = memory(1);
    let fs = Arc::new(Remembers {
        info: below.info().clone(),
        below,
        askers: Mutex::default(),
    });
    let export = Export::new("/", fs.clone(), vec![rule()]).unwrap();
    let mut world = World::with(vec![export], 64 << 20);
    let fs_below: &dyn FileSystem = &*fs.below;
    make(fs_below, "f", b"content");
    let ops = Ops::root().op(arg::OP_GETFH).lookup("f").op(arg::OP_GETFH);
    let mut answer = world.do_ops(&ops);
    let root = answer.ok(ROOT).ok(nfs_opnum4::OP_GETFH).opaque();
    answer.ok(nfs_opnum4::OP_LOOKUP).ok(nfs_opnum4::OP_GETFH);
    let calls = calls(&root, &answer.opaque());
    fs.askers.lock().unwrap().clear();
    // Connections of each of several hosts.
    let hosts: [&[&str]; 4] = [
        &["192.0.2.1:700", "192.0.2.1:701", "[::ffff:192.0.2.1]:700"],
        &["192.0.2.2:700", "192.0.2.2:700"],
        &["[2001:db8::1]:700", "[2001:db8::2]:700"],
        &["[2001:db8:0:1::1]:700"],
    ];
    let mut known: Vec<Asker> = Vec::new();
    for connections in hosts {
        let askers: Vec<Asker> = connections
            .iter()
            .map(|address| asker(&mut world, &fs, address, &calls))
            .collect();
        let host = askers[0].host;
        assert_ne!(host, Asker::default().host, "that is the server itself");
        assert!(known.iter().all(|other| other.host != host), "{host}");
        for asker in askers {
            assert_eq!(asker.host, host);
            let mut others = known.iter();
            assert!(others.all(|other| other.connection != asker.connection));
            known.push(asker);
        }
    }
    assert_eq!(known.len(), 8);
}
