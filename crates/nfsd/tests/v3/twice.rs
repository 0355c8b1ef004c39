//! Calls that come again, and calls that wait.

use std::io;
use std::sync::Mutex;

use reactor::{FileIo, Ticket, Token};
use store::fs::{Caller, Error, FileId, FsOp, Info, Progress, Task};

use super::*;

/// The same record again, as from a client that has connected anew.
fn again(world: &mut World, record: &[u8]) -> Vec<u8> {
    world.server.disconnect(world.conn);
    world.conn = world.server.connect(address("192.0.2.1:800"));
    world.results(record)
}

fn status_of(results: &[u8]) -> u32 {
    u32::from_be_bytes(results[..4].try_into().unwrap())
}

#[test]
fn a_retransmitted_change_is_done_once() {
    let mut world = world();
    let root = world.root();
    let file = world.file(&root, "old");
    world.mkdir(&root, "gone", 0o755).unwrap();
    let how = createhow3::GUARDED(nothing());
    let where_ = |name| named(&root, name);
    let size = world.getattr(&file).unwrap().ctime;
    let set = SETATTR3args {
        object: Opaque(&file),
        new_attributes: with_size(5),
        guard: Some(size),
    };
    let symlink = SYMLINK3args {
        where_: where_("link"),
        symlink_attributes: nothing(),
        symlink_data: Opaque(b"x"),
    };
    let node = MKNOD3args {
        where_: where_("fifo"),
        what: mknoddata3::NF3FIFO(nothing()),
    };
    world.server.advance(1);
    let records = [
        world.record(
            nfs_proc3::NFSPROC3_CREATE,
            &CREATE3args {
                where_: where_("new"),
                how,
            },
        ),
        world.record(
            nfs_proc3::NFSPROC3_MKDIR,
            &MKDIR3args {
                where_: where_("dir"),
                attributes: nothing(),
            },
        ),
        world.record(nfs_proc3::NFSPROC3_SYMLINK, &symlink),
        world.record(nfs_proc3::NFSPROC3_MKNOD, &node),
        world.record(
            nfs_proc3::NFSPROC3_LINK,
            &LINK3args {
                file: Opaque(&file),
                link: where_("more"),
            },
        ),
        world.record(
            nfs_proc3::NFSPROC3_RENAME,
            &RENAME3args {
                from: where_("more"),
                to: where_("less"),
            },
        ),
        world.record(
            nfs_proc3::NFSPROC3_REMOVE,
            &REMOVE3args {
                object: where_("less"),
            },
        ),
        world.record(
            nfs_proc3::NFSPROC3_RMDIR,
            &REMOVE3args {
                object: where_("gone"),
            },
        ),
    ];
    let mut answers = Vec::new();
    for record in &records {
        let results = world.results(record);
        assert_eq!(status_of(&results), 0);
        answers.push(results);
    }
    let set = world.record(nfs_proc3::NFSPROC3_SETATTR, &set);
    let refused = world.results(&set);
    assert_eq!(status_of(&refused), nfsstat3::NFS3ERR_NOT_SYNC as u32);
    assert_eq!(again(&mut world, &set), refused);
    for (record, results) in records.iter().zip(&answers) {
        assert_eq!(again(&mut world, record), *results);
    }
    // By another number it is another call; and so it is from another address,
    // or much later.
    let mut other = records[0].clone();
    other[0] ^= 1;
    assert_eq!(
        status_of(&again(&mut world, &other)),
        nfsstat3::NFS3ERR_EXIST as u32
    );
    world.conn = world.server.connect(address("192.0.2.7:800"));
    assert_eq!(
        status_of(&world.results(&records[0])),
        nfsstat3::NFS3ERR_EXIST as u32
    );
    world.server.advance(200_000_000_000);
    assert_eq!(
        status_of(&again(&mut world, &records[0])),
        nfsstat3::NFS3ERR_EXIST as u32
    );
}

fn marked(record: &[u8]) -> Vec<u8> {
    let mark = (1u32 << 31) | record.len() as u32;
    [&mark.to_be_bytes()[..], record].concat()
}

/// To give back a large file takes the file system several steps.
#[test]
fn a_retransmission_of_a_call_under_way_waits_for_its_answer() {
    let mut world = world();
    let root = world.root();
    let file = world.file(&root, "large");
    for at in 0..40 {
        world.write(&file, at << 20, &vec![1; 1 << 20]).unwrap();
    }
    let object = named(&root, "large");
    let record = world.record(nfs_proc3::NFSPROC3_REMOVE, &REMOVE3args { object });
    let stream = marked(&record).repeat(3);
    world.server.receive(world.conn, &stream);
    let mut sent = world.server.sent(world.conn).into();
    let answers = testkit::nfs::call::cut(&mut sent);
    assert_eq!(answers.len(), 3);
    assert_eq!(status_of(&answers[0][24..]), 0);
    assert!(answers.iter().all(|answer| *answer == answers[0]));
}

/// A file system whose REMOVE waits until the test lets it fail.
struct Waits {
    inner: Arc<dyn FileSystem>,
    /// Of each REMOVE that has begun.
    tickets: Mutex<Vec<Ticket>>,
}

impl FileSystem for Waits {
    fn info(&self) -> &Info {
        self.inner.info()
    }

    fn root(&self) -> FileId {
        self.inner.root()
    }

    fn start(
        &self,
        caller: &Caller<'_>,
        op: FsOp<'_>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        if !matches!(op, FsOp::Remove { .. }) {
            return self.inner.start(caller, op, files, token);
        }
        self.tickets.lock().unwrap().push(files.ticket(token));
        Progress::Pending(Task::of_other(()))
    }

    fn resume(&self, _: Task, _: io::Result<u32>, _: &mut dyn FileIo, _: Token) -> Progress {
        Progress::Done(Err(Error::Access))
    }
}

#[test]
fn a_call_that_stays_under_way_is_answered_at_a_later_retransmission() {
    let waits = Arc::new(Waits {
        inner: memory(MIB, 1),
        tickets: Mutex::default(),
    });
    let mut world = world();
    let export = Export::new("/pub", waits.clone(), rule(|_| {})).unwrap();
    let exports = Exports::new(vec![export], Time::default()).unwrap();
    world.server.nfsd.exports.swap(exports);
    let root = world.root();
    let object = named(&root, "f");
    let record = world.record(nfs_proc3::NFSPROC3_REMOVE, &REMOVE3args { object });
    // Another connection of the client has sent it first.
    let other = world.server.connect(address("192.0.2.1:901"));
    world.server.receive(other, &marked(&record));
    world.server.receive(world.conn, &marked(&record));
    world.server.advance(100_000_000);
    assert_eq!(world.server.machine(world.conn).executing(), 1);
    world.server.advance(200_000_000);
    assert_eq!(world.server.machine(world.conn).executing(), 0);
    assert!(world.server.sent(world.conn).is_empty());
    let ticket = waits.tickets.lock().unwrap().pop().expect("it waits");
    ticket.ring();
    world.server.advance(0);
    let answer = testkit::nfs::call::cut(&mut world.server.sent(other).into()).remove(0);
    assert_eq!(status_of(&answer[24..]), nfsstat3::NFS3ERR_ACCES as u32);
    assert_eq!(world.results(&record), answer[24..]);
    let tickets = waits.tickets.lock().unwrap();
    assert!(tickets.is_empty(), "it was not executed once more");
}

/// An export that goes while a call waits takes the call with it.
#[test]
fn handles_of_removed_exports_are_stale() {
    let mut world = world();
    let root = world.root();
    world.server.nfsd.exports.swap(Exports::default());
    assert_eq!(world.getattr(&root), Err(nfsstat3::NFS3ERR_STALE));
    assert_eq!(world.mount("/pub"), Err(mountstat3::MNT3ERR_ACCES));
    let made = world.mkdir(&root, "x", 0o755);
    assert_eq!(made, Err(nfsstat3::NFS3ERR_STALE));
}

/// Also one whose last step has just been done.
#[test]
fn a_call_ends_when_its_export_is_removed_while_it_waits() {
    let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let dir = store::fs::Dir::open(&store::fs::DirSpec {
        name: "dir".into(),
        path: folder.path().into(),
        state: state.path().join("state"),
        read_only: false,
        owners: None,
        acls: None,
        direct: false,
    });
    let fs: Arc<dyn FileSystem> = Arc::new(dir.unwrap());
    let exports = || {
        let export = Export::new("/dir", fs.clone(), rule(|_| {})).unwrap();
        Exports::new(vec![export], Time::default()).unwrap()
    };
    let mut world = world();
    for _ in 0..50 {
        world.server.nfsd.exports.swap(exports());
        let view = nfsd::View::new(&world.server.nfsd.exports, address("192.0.2.1:700").ip());
        let granted = view.all_granted().next().unwrap();
        let handle = granted.handle(fs.root()).encode();
        let object = Opaque(&handle[..]);
        let record = world.record(nfs_proc3::NFSPROC3_FSINFO, &FSINFO3args { fsroot: object });
        world.server.receive(world.conn, &marked(&record));
        // A thread is at it.
        world.server.nfsd.exports.swap(Exports::default());
        let mut sent = Vec::new();
        while sent.is_empty() {
            world.server.advance(1);
            sent = world.server.sent(world.conn);
        }
        let status: nfsstat3 = Decode::decode(&mut Reader::new(&sent[28..])).unwrap();
        let may_be = [nfsstat3::NFS3_OK, nfsstat3::NFS3ERR_STALE];
        assert!(may_be.contains(&status), "{status:?}");
    }
}
