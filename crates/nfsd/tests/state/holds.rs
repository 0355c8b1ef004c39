//! Files that the file system holds for opens, while exports change.

use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use doubles::nfsd::NfsdDouble;
use nfsd::exports::{Clients, Export, Exports, Rule, Squash};
use nfsd::{Nfsd, NfsdSettings};
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
    Write,
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
            FsOp::Write { .. } => (Which::Write, 0),
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
        self.exports_by(Rule {
            clients,
            squash: Squash::None,
            ..Rule::default()
        })
    }

    fn exports_by(self: &Arc<Counting>, rule: Rule) -> Exports {
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

/// A server of calls of up to 8 MiB.
fn large_world() -> World {
    let mut settings = NfsdSettings {
        io_bytes_max: 8 << 20,
        ..NfsdSettings::default()
    };
    settings.server.fore.request_bytes_max = 9 << 20;
    let mut world = World::new();
    let nfsd = Nfsd::new(settings, 1, [], exports(&world.fs, "/"), 0);
    world.server = NfsdDouble::new(nfsd, 64 << 20);
    world
}

/// A file that a client has made and has open; the next number of its owner is 3.
fn confirmed(world: &mut World, client: &mut Client) -> (stateid4, Vec<u8>) {
    let args = OPEN4args {
        seqid: 1,
        share_access: undelegated(client, BOTH),
        openhow: openflag4::OPEN4_CREATE(createhow4::UNCHECKED4(mode())),
        ..opening(client, "o", "f")
    };
    let ops = root().op(arg::OP_OPEN(args)).op(arg::OP_GETFH);
    let mut answer = world.run(client, ops);
    let mut stateid = answer.ok(nfs_opnum4::OP_PUTROOTFH).opened().stateid;
    let handle = answer.handle();
    if client.minor == 0 {
        let confirm = at(&handle).op(arg::OP_OPEN_CONFIRM(OPEN_CONFIRM4args {
            open_stateid: stateid,
            seqid: 2,
        }));
        assert_eq!(world.last(client, confirm), nfsstat4::NFS4_OK);
        stateid.seqid = 2;
    }
    (stateid, handle)
}

/// An 8 MiB WRITE is four pieces. What has come between them is seen before the next.
#[test]
fn write_in_pieces_ends_behind_that_in_which_its_client_loses_its_right() {
    const EACH: usize = mem::BUF_BYTES_MAX as usize;
    type Meanwhile = fn(&mut World, &mut Client, &Arc<Counting>, &[u8], stateid4);
    let nothing: Meanwhile = |_, _, _, _, _| ();
    let closed: Meanwhile = |world, a, _, handle, stateid| {
        // On another connection: the first one is under way.
        let (first, other) = (a.conn, world.connect());
        a.conn = other;
        let close = at(handle).close(3, stateid);
        assert_eq!(world.last(a, close), nfsstat4::NFS4_OK);
        a.conn = first;
    };
    let evicted: Meanwhile = |world, a, _, _, _| assert!(world.server.evict(a.id));
    let read_only: Meanwhile = |world, _, counting, _, _| {
        let rule = Rule {
            is_read_only: true,
            squash: Squash::None,
            ..Rule::default()
        };
        world.server.set_exports(counting.exports_by(rule));
    };
    for (minor, pieces, meanwhile, then) in [
        (0, 4, nothing, nfsstat4::NFS4_OK),
        (1, 4, nothing, nfsstat4::NFS4_OK),
        (0, 2, closed, nfsstat4::NFS4ERR_BAD_STATEID),
        (0, 2, evicted, nfsstat4::NFS4ERR_EXPIRED),
        (1, 2, evicted, nfsstat4::NFS4ERR_BADSESSION),
        (0, 2, read_only, nfsstat4::NFS4ERR_ROFS),
        (1, 2, read_only, nfsstat4::NFS4ERR_ROFS),
    ] {
        let mut world = large_world();
        let counting = Counting::below(&mut world);
        let mut a = world.client("a", minor);
        let (stateid, handle) = confirmed(&mut world, &mut a);
        counting.waits.lock().unwrap().0 = Which::Write;
        let data: Vec<u8> = (0..8 << 20).map(|at: u32| (at >> 9) as u8 | 1).collect();
        let write = at(&handle).write(stateid, 0, &data);
        a.sequence += 1;
        let ops = match minor {
            0 => write.clone(),
            _ => world.sequenced(&a, &write),
        };
        world.send(a.conn, minor, &ops);
        for piece in 0..pieces {
            let waiting = std::mem::take(&mut counting.waits.lock().unwrap().1);
            assert_eq!(waiting.len(), 1, "{minor} {pieces}: piece {piece}");
            if piece == 1 {
                meanwhile(&mut world, &mut a, &counting, &handle, stateid);
            }
            waiting.into_iter().for_each(Ticket::ring);
            world.server.advance(0);
        }
        assert!(counting.stop().is_empty(), "no further piece is written");
        let mut answer = world.arrived(a.conn);
        if minor > 0 {
            answer.ok(nfs_opnum4::OP_SEQUENCE).get::<SEQUENCE4resok>();
        }
        answer.ok(nfs_opnum4::OP_PUTFH).ok(nfs_opnum4::OP_WRITE);
        let resok: WRITE4resok = answer.get();
        assert_eq!(resok.count as usize, pieces * EACH, "{minor} {then:?}");
        // The client sends the rest, and is told.
        let again = at(&handle).write(stateid, 0, b"x");
        assert_eq!(world.last(&mut a, again), then);
    }
}
