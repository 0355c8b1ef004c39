//! Directories that take their time: what is held for them meanwhile.

use std::io;
use std::sync::{Arc, Mutex, Weak};

use reactor::{FileIo, Ticket, Token};
use store::fs::{Caller, Entry, FileId, FsOp, Info, Progress, Task};
use testkit::nfs::call::{call_header_of, cut};
use wire::nfs3::{READDIR3args, READDIRPLUS3args, nfs_proc3};

use super::*;

/// A file system that does not list a directory, or remove a name, before its
/// ticket is rung.
struct Slow {
    info: Info,
    below: Arc<dyn FileSystem>,
    waiting: Mutex<Vec<Ticket>>,
}

impl FileSystem for Slow {
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
        if !matches!(op, FsOp::Readdir { .. } | FsOp::Remove { .. }) {
            return self.below.start(caller, op, files, token);
        }
        self.waiting.lock().unwrap().push(files.ticket(token));
        let Progress::Done(result) = self.below.start(caller, op, files, token) else {
            panic!("memory does so at once");
        };
        Progress::Pending(Task::of_other(result))
    }
    fn resume(&self, task: Task, _: io::Result<u32>, _: &mut dyn FileIo, _: Token) -> Progress {
        Progress::Done(task.into_other())
    }
}

fn slow() -> (Arc<Slow>, World) {
    let below = memory(1);
    let info = Info {
        has_xattrs: false,
        ..below.info().clone()
    };
    let slow = Arc::new(Slow {
        info,
        below,
        waiting: Mutex::default(),
    });
    let fs: Arc<dyn FileSystem> = slow.clone();
    let export = Export::new("/", fs, vec![rule()]).unwrap();
    (slow, World::with(vec![export], 64 << 20))
}

/// The status of each answer that has come, of whichever version.
fn statuses(world: &mut World, conn: usize) -> Vec<nfsstat4> {
    let mut sent = world.server.sent(conn).into();
    let answers = cut(&mut sent).into_iter();
    let status = |bytes: Vec<u8>| nfsstat4::decode(&mut Reader::new(&bytes[24..]));
    answers.map(|bytes| status(bytes).unwrap()).collect()
}

/// A record as it is sent.
fn marked(record: &[u8]) -> Vec<u8> {
    let mark = RecordMark {
        is_last: true,
        len: record.len() as u32,
    };
    [&mark.encode()[..], record].concat()
}

/// Large listings in parallel take memory from the ceiling: one connection has a
/// part of it, and gets NFS4ERR_DELAY beyond, which is NFS3ERR_JUKEBOX; then other
/// connections wait. `record` is a listing of a directory by its handle.
fn check_flood(record: impl FnOnce(&[u8]) -> Vec<u8>) {
    let (slow, mut world) = slow();
    let budget = world.server.pool().budget().clone();
    let mut answer = world.do_ops(&Ops::root().op(arg::OP_GETFH));
    answer.ok(ROOT).ok(nfs_opnum4::OP_GETFH);
    let call = marked(&record(&answer.opaque()));
    let before = budget.used();
    world.server.receive(0, &call.repeat(200));
    let waiting = || slow.waiting.lock().unwrap().len();
    let first = waiting();
    assert!((8..64).contains(&first), "{first} under way");
    let used = budget.used() - before;
    // Of each, the answer and what it is made of; beside them, what has arrived.
    let each_max = (256 << 10) + 4096 * size_of::<Entry>() as u64;
    let (least, most) = (first as u64 * (256 << 10), first as u64 * each_max);
    let most = (most + (1 << 20)).min(20 << 20);
    assert!((least..=most).contains(&used), "{used} bytes");
    let refused = statuses(&mut world, 0);
    assert_eq!(refused, vec![nfsstat4::NFS4ERR_DELAY; 200 - first]);
    // Others have what is left, and wait when nothing is.
    let others: Vec<usize> = (0..5)
        .map(|at| world.server.connect(([127, 0, 0, 2 + at], 800).into()))
        .collect();
    for &conn in &others {
        world.server.receive(conn, &call.repeat(first));
    }
    let all = waiting();
    assert!(all > 2 * first && all < 6 * first, "{all} under way");
    assert!(budget.used() <= 56 << 20);
    // Each comes to its end, also those that waited, and gives all back.
    while waiting() > 0 {
        let tickets = std::mem::take(&mut *slow.waiting.lock().unwrap());
        tickets.into_iter().for_each(Ticket::ring);
        world.server.advance(1_000_000);
    }
    let done = statuses(&mut world, 0);
    assert_eq!(done, vec![NFS4_OK; first]);
    for conn in others {
        assert_eq!(statuses(&mut world, conn), vec![NFS4_OK; first]);
    }
    world.server.advance(1_000_000_000);
    // What the pool had for buffers it has given up meanwhile.
    assert!(budget.used() <= before);
}

#[test]
fn listings_under_way_have_the_memory_that_there_is() {
    check_flood(|_| Ops::root().readdir(0, [0; 8], 1 << 20, &[]).record(0));
}

/// A call of NFSv3.
fn old(procedure: nfs_proc3, args: &impl Encode) -> Vec<u8> {
    let mut record = call_header_of(7, (NFS4_PROGRAM, 3, procedure as u32));
    args.encode(&mut record);
    record
}

#[test]
fn listings_of_version_3_have_the_memory_that_there_is() {
    check_flood(|root| {
        let args = READDIR3args {
            dir: Opaque(root),
            cookie: 0,
            cookieverf: [0; 8],
            count: u32::MAX,
        };
        old(nfs_proc3::NFSPROC3_READDIR, &args)
    });
    check_flood(|root| {
        let args = READDIRPLUS3args {
            dir: Opaque(root),
            cookie: 0,
            cookieverf: [0; 8],
            dircount: u32::MAX,
            maxcount: u32::MAX,
        };
        old(nfs_proc3::NFSPROC3_READDIRPLUS, &args)
    });
}

/// A file system that is exported no longer is dropped while clients stay connected.
#[test]
fn an_idle_connection_holds_no_file_system() {
    let (slow, mut world) = slow();
    world.do_ops(&Ops::root().getattr(&[FATTR4_TYPE])).ok(ROOT);
    let weak: Weak<Slow> = Arc::downgrade(&slow);
    drop(slow);
    assert!(weak.upgrade().is_some(), "it is exported");
    world.server.set_exports(Exports::default());
    assert!(weak.upgrade().is_none());
}

/// Whether there are extended attributes, each file system says for itself.
#[test]
fn xattr_support_is_that_of_the_file_system() {
    let told = |world: &mut World| {
        let mut session = world.session(4096, 0);
        let ops = Ops::root().getattr(&[FATTR4_XATTR_SUPPORT]);
        let mut answer = world.sequence(&mut session, false, &ops);
        sequenced(&mut answer).ok(ROOT).ok(nfs_opnum4::OP_GETATTR);
        (answer.words(), answer.opaque())
    };
    let words = vec![0, 0, 1 << (FATTR4_XATTR_SUPPORT % 32)];
    assert_eq!(told(&mut World::new()), (words.clone(), vec![0, 0, 0, 1]));
    assert_eq!(told(&mut slow().1), (words, vec![0, 0, 0, 0]));
}

/// The bytes of a call that removes a name.
fn removal(name: &str) -> Vec<u8> {
    let target = Opaque(name.as_bytes());
    let ops = Ops::root().op(arg::OP_REMOVE(wire::nfs4::REMOVE4args { target }));
    marked(&ops.record(0))
}

/// A call of version 4.0 that comes again while it is under way, on another
/// connection, waits for its end, and has the same answer.
#[test]
fn a_removal_retransmitted_while_it_is_under_way_is_done_once() {
    let (slow, mut world) = slow();
    world.file("f", b"");
    let conns = [1, 2].map(|port| world.server.connect(([192, 0, 2, 9], port).into()));
    let call = removal("f");
    for conn in conns {
        world.server.receive(conn, &call);
    }
    let waiting = || std::mem::take(&mut *slow.waiting.lock().unwrap());
    let tickets = waiting();
    assert_eq!(tickets.len(), 1, "it is executed once");
    tickets.into_iter().for_each(Ticket::ring);
    world.server.advance(1_000_000);
    for conn in conns {
        assert_eq!(statuses(&mut world, conn), [NFS4_OK]);
    }
    assert_eq!(waiting().len(), 0, "nor is it done again");
}

/// An answer whose data is gone cannot be given again: the call is a new one.
#[test]
fn an_answer_with_read_data_is_not_kept_for_a_retry() {
    let mut world = World::new();
    let handle = world.file("f", &pattern(20_000));
    world.file("g", b"");
    let target = Opaque(&b"g"[..]);
    let remove = arg::OP_REMOVE(wire::nfs4::REMOVE4args { target });
    let ops = Ops::root().op(remove).fh(&handle).read(0, 20_000);
    let record = ops.record(0);
    let mut statuses = Vec::new();
    for _ in 0..2 {
        let answer = world.server.call(world.conn, &record);
        statuses.push(Answer::new(answer).status);
    }
    assert_eq!(statuses, [NFS4_OK, nfsstat4::NFS4ERR_NOENT]);
}
