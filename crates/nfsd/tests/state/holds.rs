//! Files that the file system holds for opens, while exports change.

use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use nfsd::exports::{Clients, Export, Exports, Rule, Squash};
use reactor::{FileIo, Ticket, Token};
use store::fs::{Caller, FileId, FileSystem, FsOp, Info, Progress, Task, Time};
use wire::nfs4::*;
use wire::xdr::{List, Opaque};

use crate::world::*;
use nfs_argop4 as arg;

/// What waits until its ticket is rung.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Which {
    Nothing,
    Open,
    Setattr,
    Getattr,
}

/// A file system that counts what it holds.
struct Counting {
    below: Arc<dyn FileSystem>,
    held: AtomicI64,
    waits: Mutex<(Which, Vec<Ticket>)>,
}

impl FileSystem for Counting {
    fn info(&self) -> &Info {
        self.below.info()
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
        let (which, change) = match op {
            FsOp::Open { .. } => (Which::Open, 1),
            FsOp::Close { .. } => (Which::Nothing, -1),
            FsOp::Setattr { .. } => (Which::Setattr, 0),
            FsOp::Getattr { file } if file != self.root() => (Which::Getattr, 0),
            _ => (Which::Nothing, 0),
        };
        let Progress::Done(result) = self.below.start(caller, op, files, token) else {
            panic!("memory does so at once");
        };
        if result.is_ok() {
            self.held.fetch_add(change, Ordering::Relaxed);
        }
        let waits = &mut *self.waits.lock().unwrap();
        if which == Which::Nothing || which != waits.0 {
            return Progress::Done(result);
        }
        waits.1.push(files.ticket(token));
        Progress::Pending(Task::of_other(result))
    }

    fn resume(&self, task: Task, _: io::Result<u32>, _: &mut dyn FileIo, _: Token) -> Progress {
        Progress::Done(task.into_other())
    }
}

impl Counting {
    /// What all clients of a world reach from now on.
    fn below(world: &mut World) -> Arc<Counting> {
        let counting = Arc::new(Counting {
            below: world.fs.clone(),
            held: AtomicI64::new(0),
            waits: Mutex::new((Which::Nothing, Vec::new())),
        });
        world.server.set_exports(counting.exports(Clients::Any));
        counting
    }

    fn exports(self: &Arc<Counting>, clients: Clients) -> Exports {
        let rule = Rule {
            clients,
            squash: Squash::None,
            ..Rule::default()
        };
        let export = Export::new("/", self.clone(), vec![rule]).expect("an export");
        Exports::new(vec![export], Time::default()).expect("exports")
    }

    /// Nothing waits from now on: what has waited.
    fn stop(&self) -> Vec<Ticket> {
        let (which, tickets) = &mut *self.waits.lock().unwrap();
        *which = Which::Nothing;
        std::mem::take(tickets)
    }

    fn held(&self) -> i64 {
        self.held.load(Ordering::Relaxed)
    }
}

/// An OPEN that empties the file, with what comes behind it.
fn empties<'a>(client: &Client, owner: &'a str, seqid: u32) -> OPEN4args<'a> {
    let size = fattr4 {
        attrmask: List::Of(&[1 << FATTR4_SIZE]),
        attr_vals: Opaque(&[0; 8]),
    };
    OPEN4args {
        seqid,
        share_access: BOTH,
        openhow: openflag4::OPEN4_CREATE(createhow4::UNCHECKED4(size)),
        ..opening(client, owner, "f")
    }
}

#[test]
fn open_whose_client_loses_its_right_meanwhile_leaves_nothing() {
    for minor in [0, 1] {
        for which in [Which::Open, Which::Setattr, Which::Getattr] {
            if (minor, which) == (0, Which::Getattr) {
                // It has no delegation, whose attributes are looked at.
                continue;
            }
            let mut world = World::new();
            let counting = Counting::below(&mut world);
            let (mut a, mut b) = (world.client("a", minor), world.client("b", 1));
            world.file(&mut b, "f");
            assert_eq!(counting.held(), 0);
            counting.waits.lock().unwrap().0 = which;
            let ops = root().op(arg::OP_OPEN(empties(&a, "o", 1)));
            a.sequence += 1;
            let ops = match minor {
                0 => ops,
                _ => world.sequenced(&a, &ops),
            };
            world.send(a.conn, minor, &ops);
            let nets = vec!["192.0.2.0/24".parse().expect("a network")];
            world
                .server
                .set_exports(counting.exports(Clients::nets(nets)));
            let mut tickets = counting.stop();
            assert_eq!(tickets.len(), 1, "{minor} {which:?}");
            tickets.remove(0).ring();
            world.server.advance(0);
            let status = world.arrived(a.conn).status;
            assert_eq!(status, nfsstat4::NFS4ERR_STALE, "{minor} {which:?}");
            let counts = world.server.nfsd.files.counts(a.id);
            assert_eq!((counting.held(), counts), (0, [0; 4]), "{minor} {which:?}");
            // The owner goes on.
            world.server.set_exports(counting.exports(Clients::Any));
            let args = empties(&a, "o", 2);
            world.open(&mut a, args).unwrap();
            assert_eq!(counting.held(), 1);
        }
    }
}

#[test]
fn file_that_its_owner_opens_again_is_held_once() {
    let mut world = World::new();
    let counting = Counting::below(&mut world);
    let mut a = world.client("a", 1);
    let (_, handle) = world.create(&mut a, "o", "f");
    let args = empties(&a, "o", 0);
    let opened = world.open(&mut a, args).unwrap();
    assert_eq!(counting.held(), 1);
    let close = at(&handle).close(0, opened.stateid);
    assert_eq!(world.last(&mut a, close), nfsstat4::NFS4_OK);
    assert_eq!(counting.held(), 0);
}
