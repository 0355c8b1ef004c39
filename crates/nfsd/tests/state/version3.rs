//! Clients of NFSv3, which know no state, beside those of version 4.

use testkit::nfs::call::{call_header_of, write3};
use wire::nfs3::{
    CREATE3args, GETATTR3args, LINK3args, READ3args, REMOVE3args, RENAME3args, SETATTR3args,
    createhow3, diropargs3, fattr3, nfs_proc3, nfsstat3, sattr3, set_atime, set_mtime,
};
use wire::nfs4::*;
use wire::xdr::{Decode, Encode, Opaque, Reader};

use crate::world::*;
use crate::write_delegations::{delegated, give_back, look, op_of, say, seen};
use nfsstat3::{NFS3_OK, NFS3ERR_ACCES, NFS3ERR_EXIST, NFS3ERR_JUKEBOX};
use nfsstat4::NFS4_OK;

/// A client of NFSv3: its connection, and the number of its next call.
struct Old {
    conn: usize,
    xid: u32,
    root: Vec<u8>,
}

impl Old {
    fn new(world: &mut World, by: &mut Client) -> Old {
        let mut answer = world.run(by, root().op(nfs_argop4::OP_GETFH));
        answer.ok(nfs_opnum4::OP_PUTROOTFH);
        Old {
            conn: world.connect(),
            xid: 1,
            root: answer.handle(),
        }
    }

    fn send(&mut self, world: &mut World, record: &[u8]) -> nfsstat3 {
        self.xid += 1;
        let answer = world.server.call(self.conn, record);
        assert_eq!(answer[4..24], [&[0, 0, 0, 1][..], &[0; 16]].concat());
        nfsstat3::decode(&mut Reader::new(&answer[24..])).expect("a status")
    }

    fn call(&mut self, world: &mut World, procedure: nfs_proc3, args: &impl Encode) -> nfsstat3 {
        let mut record = call_header_of(self.xid, (NFS4_PROGRAM, 3, procedure as u32));
        args.encode(&mut record);
        self.send(world, &record)
    }

    fn write(&mut self, world: &mut World, file: &[u8]) -> nfsstat3 {
        let (record, _) = write3(self.xid, file, 0, b"data");
        self.send(world, &record)
    }

    fn read(&mut self, world: &mut World, file: &[u8]) -> nfsstat3 {
        let args = READ3args {
            file: Opaque(file),
            offset: 0,
            count: 1,
        };
        self.call(world, nfs_proc3::NFSPROC3_READ, &args)
    }

    fn setattr(&mut self, world: &mut World, file: &[u8], size: Option<u64>) -> nfsstat3 {
        let args = SETATTR3args {
            object: Opaque(file),
            new_attributes: attributes(size),
            guard: None,
        };
        self.call(world, nfs_proc3::NFSPROC3_SETATTR, &args)
    }

    /// CREATE of the file `f`.
    fn create(&mut self, world: &mut World, how: createhow3) -> nfsstat3 {
        let root = self.root.clone();
        let where_ = Old::named(&root, "f");
        let args = CREATE3args { where_, how };
        self.call(world, nfs_proc3::NFSPROC3_CREATE, &args)
    }

    fn named<'a>(dir: &'a [u8], name: &'a str) -> diropargs3<'a> {
        diropargs3 {
            dir: Opaque(dir),
            name: Opaque(name.as_bytes()),
        }
    }
}

fn attributes(size: Option<u64>) -> sattr3 {
    sattr3 {
        mode: Some(0o600),
        uid: None,
        gid: None,
        size,
        atime: set_atime::DONT_CHANGE,
        mtime: set_mtime::DONT_CHANGE,
    }
}

fn share(client: &Client, deny: u32) -> OPEN4args<'static> {
    OPEN4args {
        share_access: READ | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
        share_deny: deny,
        ..opening(client, "o", "f")
    }
}

#[test]
fn share_reservations_deny_calls_of_version_3() {
    let mut world = World::new();
    let mut client = world.client("a", 1);
    let mut old = Old::new(&mut world, &mut client);
    let handle = world.file(&mut client, "f");
    assert_eq!(old.write(&mut world, &handle), NFS3_OK);
    let args = share(&client, OPEN4_SHARE_DENY_WRITE);
    let opened = world.open(&mut client, args).unwrap();
    assert_eq!(old.write(&mut world, &handle), NFS3ERR_ACCES);
    let cut = old.setattr(&mut world, &handle, Some(0));
    assert_eq!(cut, NFS3ERR_ACCES);
    assert_eq!(old.read(&mut world, &handle), NFS3_OK);
    let ops = at(&handle).close(0, opened.stateid);
    assert_eq!(world.last(&mut client, ops), NFS4_OK);
    assert_eq!(old.write(&mut world, &handle), NFS3_OK);
    let args = share(&client, OPEN4_SHARE_DENY_READ);
    world.open(&mut client, args).unwrap();
    assert_eq!(old.read(&mut world, &handle), NFS3ERR_ACCES);
    // A client that does not come back is not in the way for long.
    world.server.advance(200 * SECOND);
    assert_eq!(old.read(&mut world, &handle), NFS3_OK);
    assert_eq!(old.write(&mut world, &handle), NFS3_OK);
}

/// A call of NFSv3 that changes a file, and what became of it.
type Change = fn(&mut Old, &mut World, &[u8]) -> nfsstat3;

/// Each of them.
fn changes() -> Vec<Change> {
    vec![
        |old, world, file| old.write(world, file),
        |old, world, file| old.setattr(world, file, None),
        |old, world, file| old.setattr(world, file, Some(1)),
        |old, world, _| old.create(world, createhow3::UNCHECKED(attributes(Some(0)))),
        |old, world, _| {
            let root = old.root.clone();
            let object = Old::named(&root, "f");
            old.call(world, nfs_proc3::NFSPROC3_REMOVE, &REMOVE3args { object })
        },
        |old, world, _| {
            let root = old.root.clone();
            let (from, to) = (Old::named(&root, "f"), Old::named(&root, "g"));
            old.call(world, nfs_proc3::NFSPROC3_RENAME, &RENAME3args { from, to })
        },
        |old, world, _| {
            let root = old.root.clone();
            let (from, to) = (Old::named(&root, "other"), Old::named(&root, "f"));
            old.call(world, nfs_proc3::NFSPROC3_RENAME, &RENAME3args { from, to })
        },
        |old, world, file| {
            let root = old.root.clone();
            let args = LINK3args {
                file: Opaque(file),
                link: Old::named(&root, "g"),
            };
            old.call(world, nfs_proc3::NFSPROC3_LINK, &args)
        },
    ]
}

#[test]
fn delegations_are_recalled_for_clients_of_version_3() {
    for (index, change) in changes().into_iter().enumerate() {
        let mut world = World::new();
        let (mut a, mut b) = (world.client("a", 2), world.client("b", 1));
        let mut old = Old::new(&mut world, &mut b);
        let handle = world.file(&mut b, "f");
        world.file(&mut b, "other");
        let args = opening(&a, "o", "f");
        let delegation = world.open(&mut a, args).unwrap().delegation;
        let deleg_stateid = delegation.expect("no client writes");
        // To read it, and to look at it, is no matter.
        assert_eq!(old.read(&mut world, &handle), NFS3_OK);
        let object = Opaque(&handle[..]);
        let getattr = GETATTR3args { object };
        let status = old.call(&mut world, nfs_proc3::NFSPROC3_GETATTR, &getattr);
        assert_eq!(status, NFS3_OK);
        assert!(world.called(a.conn).is_empty());

        assert_eq!(
            change(&mut old, &mut world, &handle),
            NFS3ERR_JUKEBOX,
            "{index}"
        );
        assert_eq!(world.called(a.conn).len(), 1, "{index}");
        assert_eq!(
            change(&mut old, &mut world, &handle),
            NFS3ERR_JUKEBOX,
            "{index}"
        );
        let back = nfs_argop4::OP_DELEGRETURN(DELEGRETURN4args { deleg_stateid });
        assert_eq!(world.last(&mut a, at(&handle).op(back)), NFS4_OK);
        // What was answered before does not stick to the call.
        assert_eq!(change(&mut old, &mut world, &handle), NFS3_OK, "{index}");
    }
}

/// A write without an open may still be under way, with no answer yet: a client with a
/// delegation then would keep what it replaces.
#[test]
fn file_that_is_written_without_an_open_is_not_delegated_for_a_while() {
    let mut world = World::new();
    let (mut a, mut b) = (world.client("a", 1), world.client("b", 1));
    let mut old = Old::new(&mut world, &mut b);
    let handle = world.file(&mut b, "f");
    let mut delegation = |world: &mut World| {
        let args = opening(&a, "o", "f");
        let opened = world.open(&mut a, args).expect("it is there");
        let ops = at(&handle).close(0, opened.stateid);
        assert_eq!(world.last(&mut a, ops), NFS4_OK);
        let delegation = opened.delegation?;
        let args = DELEGRETURN4args {
            deleg_stateid: delegation,
        };
        let ops = at(&handle).op(nfs_argop4::OP_DELEGRETURN(args));
        assert_eq!(world.last(&mut a, ops), NFS4_OK);
        Some(delegation)
    };
    assert!(delegation(&mut world).is_some());
    assert_eq!(old.write(&mut world, &handle), NFS3_OK);
    assert_eq!(delegation(&mut world), None);
    world.server.advance(31 * SECOND);
    assert!(delegation(&mut world).is_some());
    let write = at(&handle).write(ANONYMOUS, 0, b"x");
    assert_eq!(world.last(&mut b, write), NFS4_OK);
    assert_eq!(delegation(&mut world), None);
}

#[test]
fn file_that_a_client_writes_by_a_delegation_is_read_when_that_is_back() {
    let (mut world, mut a, mut b, delegation, handle) = delegated(1);
    let mut old = Old::new(&mut world, &mut b);
    assert_eq!(old.read(&mut world, &handle), NFS3ERR_JUKEBOX);
    let recalled = nfs_cb_opnum4::OP_CB_RECALL;
    assert_eq!(op_of(&world.called(a.conn)[0]), recalled);
    give_back(&mut world, &mut a, delegation, &handle);
    assert_eq!(old.read(&mut world, &handle), NFS3_OK);
}

#[test]
fn attributes_of_a_file_that_a_client_writes_by_a_delegation_are_as_that_client_says() {
    let (mut world, mut a, mut b, _, handle) = delegated(1);
    look(&mut world, &mut a, &handle);
    let (given, _) = seen(&mut world, &a).unwrap();
    let old = Old::new(&mut world, &mut b);
    for (is_changed, size) in [(false, 4_u64), (true, 9)] {
        world.server.advance(SECOND);
        let before = world.server.time.seconds as u32;
        let object = Opaque(&handle[..]);
        let mut record = vec![0x80, 0, 0, 0];
        record.extend(call_header_of(9, (NFS4_PROGRAM, 3, 1)));
        GETATTR3args { object }.encode(&mut record);
        record[3] = record.len() as u8 - 4;
        world.server.receive(old.conn, &record);
        assert!(world.server.sent(old.conn).is_empty(), "it waits");
        // The first time it says what it was given.
        let change = match is_changed {
            true => u64::MAX,
            false => given,
        };
        say(&mut world, &a, &handle, (change, size));
        let answer = world.server.sent(old.conn);
        let mut from = Reader::new(&answer[4 + 24..]);
        assert_eq!(nfsstat3::decode(&mut from), Ok(NFS3_OK));
        let found = fattr3::decode(&mut from).expect("attributes");
        assert_eq!(found.size, size);
        assert_eq!(found.mtime.seconds == before, is_changed);
    }
}

/// A CREATE of a file that must not be there, or is taken as it is, changes nothing.
#[test]
fn create_that_changes_no_file_recalls_no_delegation() {
    let mut world = World::new();
    let (mut a, mut b) = (world.client("a", 1), world.client("b", 1));
    let mut old = Old::new(&mut world, &mut b);
    world.file(&mut b, "f");
    let args = opening(&a, "o", "f");
    world.open(&mut a, args).unwrap().delegation.expect("one");
    for (how, status) in [
        (createhow3::GUARDED(attributes(Some(0))), NFS3ERR_EXIST),
        (createhow3::EXCLUSIVE(*b"verifier"), NFS3ERR_EXIST),
        (createhow3::UNCHECKED(attributes(None)), NFS3_OK),
    ] {
        assert_eq!(old.create(&mut world, how), status);
        assert!(world.called(a.conn).is_empty());
    }
}

/// Clients are about to reclaim what they had open, by its name too.
#[test]
fn names_are_not_changed_by_version_3_in_grace() {
    let mut world = World::new();
    let mut client = world.client("a", 1);
    let mut old = Old::new(&mut world, &mut client);
    let handle = world.file(&mut client, "f");
    world.file(&mut client, "other");
    world.restart();
    old.conn = world.connect();
    for (index, change) in changes().into_iter().enumerate().skip(4) {
        let status = change(&mut old, &mut world, &handle);
        assert_eq!(status, NFS3ERR_JUKEBOX, "{index}");
    }
    world.client("a", 1);
    let remove = changes()[4];
    assert_eq!(remove(&mut old, &mut world, &handle), NFS3_OK);
}

/// Until it is known which client has what open, no other one reads or writes.
#[test]
fn content_is_not_read_or_written_by_version_3_in_grace() {
    let mut world = World::new();
    let mut client = world.client("a", 1);
    let mut old = Old::new(&mut world, &mut client);
    let handle = world.file(&mut client, "f");
    world.restart();
    old.conn = world.connect();
    assert_eq!(old.write(&mut world, &handle), NFS3ERR_JUKEBOX);
    assert_eq!(old.read(&mut world, &handle), NFS3ERR_JUKEBOX);
    let object = Opaque(&handle[..]);
    let getattr = GETATTR3args { object };
    let status = old.call(&mut world, nfs_proc3::NFSPROC3_GETATTR, &getattr);
    assert_eq!(status, NFS3_OK);
    // All clients that had anything are back.
    world.client("a", 1);
    assert_eq!(old.write(&mut world, &handle), NFS3_OK);
    assert_eq!(old.read(&mut world, &handle), NFS3_OK);
}
