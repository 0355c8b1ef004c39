//! Owners of version 4.0, which number what they ask.

use wire::nfs4::*;
use wire::xdr::{List, Opaque};

use crate::world::*;
use nfs_argop4 as arg;
use nfsstat4::NFS4_OK;

/// An open that is confirmed, by an owner whose next number is 3.
fn confirmed(world: &mut World) -> (Client, stateid4, Vec<u8>) {
    let mut a = world.client("a", 0);
    let args = OPEN4args {
        seqid: 1,
        share_access: BOTH,
        openhow: openflag4::OPEN4_CREATE(createhow4::UNCHECKED4(mode())),
        ..opening(&a, "o", "f")
    };
    let mut answer = world.run(&mut a, root().op(arg::OP_OPEN(args)).op(arg::OP_GETFH));
    let opened = answer.ok(nfs_opnum4::OP_PUTROOTFH).opened();
    let handle = answer.handle();
    assert_ne!(opened.rflags & OPEN4_RESULT_CONFIRM, 0);
    // It is good for nothing yet.
    let ops = at(&handle).write(opened.stateid, 0, b"x");
    let bad = world.last(&mut a, ops);
    assert_eq!(bad, nfsstat4::NFS4ERR_BAD_STATEID);
    let downgrade = at(&handle).op(arg::OP_OPEN_DOWNGRADE(OPEN_DOWNGRADE4args {
        open_stateid: opened.stateid,
        seqid: 2,
        share_access: BOTH,
        share_deny: OPEN4_SHARE_DENY_NONE,
    }));
    let bad = world.last(&mut a, downgrade);
    assert_eq!(bad, nfsstat4::NFS4ERR_BAD_STATEID);
    let confirm = |seqid| {
        at(&handle).op(arg::OP_OPEN_CONFIRM(OPEN_CONFIRM4args {
            open_stateid: opened.stateid,
            seqid,
        }))
    };
    let wrong = world.last(&mut a, confirm(50));
    assert_eq!(wrong, nfsstat4::NFS4ERR_BAD_SEQID);
    let mut stateid = opened.stateid;
    for _ in 0..2 {
        let mut answer = world.run(&mut a, confirm(2));
        answer
            .ok(nfs_opnum4::OP_PUTFH)
            .ok(nfs_opnum4::OP_OPEN_CONFIRM);
        stateid = answer.get();
        assert_eq!(stateid.seqid, 2, "once, however often it is asked");
    }
    (a, stateid, handle)
}

#[test]
fn a_retransmitted_open_is_answered_as_before() {
    let mut world = World::new();
    let (mut a, _, handle) = confirmed(&mut world);
    let again = OPEN4args {
        seqid: 3,
        share_deny: OPEN4_SHARE_DENY_NONE,
        ..opening(&a, "o", "f")
    };
    let mut stateids = Vec::new();
    for _ in 0..3 {
        let mut answer = world.run(&mut a, root().op(arg::OP_OPEN(again)).op(arg::OP_GETFH));
        stateids.push(answer.ok(nfs_opnum4::OP_PUTROOTFH).opened().stateid);
        assert_eq!(answer.handle(), handle, "the file is the current one again");
    }
    assert!(stateids.iter().all(|stateid| *stateid == stateids[0]));
    let absent = OPEN4args {
        seqid: 4,
        claim: open_claim4::CLAIM_NULL(Opaque(b"absent")),
        ..again
    };
    for _ in 0..2 {
        let refused = world.open(&mut a, absent).unwrap_err();
        assert_eq!(refused, nfsstat4::NFS4ERR_NOENT);
    }
    let wrong = OPEN4args { seqid: 7, ..again };
    let refused = world.open(&mut a, wrong).unwrap_err();
    assert_eq!(refused, nfsstat4::NFS4ERR_BAD_SEQID);
    let next = OPEN4args { seqid: 5, ..again };
    assert_eq!(world.open(&mut a, next).unwrap().stateid.seqid, 4);
}

#[test]
fn retransmitted_locks_and_closes_are_answered_as_before() {
    let mut world = World::new();
    let (mut a, stateid, handle) = confirmed(&mut world);
    let mut b = world.client("b", 1);
    let (held, _) = world.create(&mut b, "o", "f");
    let ops = at(&handle).op(arg::OP_LOCK(LOCK4args {
        offset: 100,
        length: 1,
        ..locking(&b, "m", held)
    }));
    assert_eq!(world.last(&mut b, ops), NFS4_OK);

    let first = |open_seqid, length| {
        let LOCK4args {
            locker: locker4::TRUE(mut new),
            ..
        } = locking(&a, "l", stateid)
        else {
            unreachable!();
        };
        new.open_seqid = open_seqid;
        new.lock_seqid = 7;
        at(&handle).op(arg::OP_LOCK(LOCK4args {
            length,
            locker: locker4::TRUE(new),
            ..locking(&a.clone(), "l", stateid)
        }))
    };
    let (denied, locked) = (first(3, 200), first(4, 10));
    let mut answers = Vec::new();
    for _ in 0..2 {
        let answer = world.run(&mut a, denied.clone());
        assert_eq!(answer.status, nfsstat4::NFS4ERR_DENIED);
        answers.push(format!("{answer:?}"));
    }
    assert_eq!(answers[0], answers[1], "also the holder");
    let mut lock = stateid;
    for _ in 0..2 {
        let mut answer = world.run(&mut a, locked.clone());
        answer.ok(nfs_opnum4::OP_PUTFH).ok(nfs_opnum4::OP_LOCK);
        lock = answer.get();
        assert_eq!(lock.seqid, 1);
    }
    let unlock = |seqid, lock_stateid| {
        at(&handle).op(arg::OP_LOCKU(LOCKU4args {
            locktype: nfs_lock_type4::WRITE_LT,
            seqid,
            lock_stateid,
            offset: 0,
            length: 5,
        }))
    };
    let wrong = world.last(&mut a, unlock(9, lock));
    assert_eq!(wrong, nfsstat4::NFS4ERR_BAD_SEQID);
    for _ in 0..2 {
        let mut answer = world.run(&mut a, unlock(8, lock));
        answer.ok(nfs_opnum4::OP_PUTFH).ok(nfs_opnum4::OP_LOCKU);
        assert_eq!(answer.get::<stateid4>().seqid, 2);
    }
    let old = world.last(&mut a, unlock(9, lock));
    assert_eq!(old, nfsstat4::NFS4ERR_OLD_STATEID);
    let release = Ops::default().op(arg::OP_RELEASE_LOCKOWNER(RELEASE_LOCKOWNER4args {
        lock_owner: state_owner4 {
            clientid: a.id,
            owner: Opaque(b"l"),
        },
    }));
    let held = world.last(&mut a, release.clone());
    assert_eq!(held, nfsstat4::NFS4ERR_LOCKS_HELD);
    for _ in 0..2 {
        let mut answer = world.run(&mut a, at(&handle).close(5, stateid));
        answer.ok(nfs_opnum4::OP_PUTFH).ok(nfs_opnum4::OP_CLOSE);
    }
    let twice = world.last(&mut a, at(&handle).close(6, stateid));
    assert_eq!(twice, nfsstat4::NFS4ERR_BAD_STATEID);
    assert_eq!(world.last(&mut a, release), NFS4_OK);
}

#[test]
fn an_unconfirmed_open_is_replaced_by_the_next() {
    let mut world = World::new();
    let mut a = world.client("a", 0);
    let args = OPEN4args {
        seqid: 1,
        share_access: BOTH,
        share_deny: OPEN4_SHARE_DENY_BOTH,
        openhow: openflag4::OPEN4_CREATE(createhow4::UNCHECKED4(mode())),
        ..opening(&a, "o", "f")
    };
    let first = world.open(&mut a, args).unwrap();
    let other = OPEN4args { seqid: 9, ..args };
    let second = world.open(&mut a, other).unwrap();
    assert_ne!(first.stateid.other, second.stateid.other);
    assert_eq!(world.server.nfsd.files.counts(a.id), [1, 0, 0, 0]);
}

#[test]
fn version_4_0_refuses_what_4_1_and_4_2_added() {
    let mut world = World::new();
    let mut a = world.client("a", 0);
    let both = creatverfattr {
        cva_verf: [1; 8],
        cva_attrs: mode(),
    };
    for args in [
        OPEN4args {
            openhow: openflag4::OPEN4_CREATE(createhow4::EXCLUSIVE4_1(both)),
            ..opening(&a, "o", "f")
        },
        OPEN4args {
            claim: open_claim4::CLAIM_FH,
            ..opening(&a, "o", "f")
        },
    ] {
        let refused = world.open(&mut a, args).unwrap_err();
        assert_eq!(refused, nfsstat4::NFS4ERR_BADXDR);
    }
    let wanting = OPEN4args {
        share_access: READ | OPEN4_SHARE_ACCESS_WANT_READ_DELEG,
        ..opening(&a, "o", "f")
    };
    let refused = world.open(&mut a, wanting).unwrap_err();
    assert_eq!(refused, nfsstat4::NFS4ERR_INVAL);
}

/// A call that changes names is retransmitted, as its client has lost its connection:
/// it is done once, and answered as it was.
#[test]
fn a_retransmitted_change_of_names_is_done_once() {
    let mut world = World::new();
    let (mut a, _, file) = confirmed(&mut world);
    let makes = |name| {
        root().op(arg::OP_CREATE(CREATE4args {
            objtype: createtype4::NF4DIR,
            objname: Opaque(name),
            createattrs: mode(),
        }))
    };
    let link = at(&file).op(arg::OP_SAVEFH).op(arg::OP_PUTROOTFH);
    let link = link.op(arg::OP_LINK(LINK4args {
        newname: Opaque(b"more"),
    }));
    let rename = root().op(arg::OP_SAVEFH).op(arg::OP_RENAME(RENAME4args {
        oldname: Opaque(b"more"),
        newname: Opaque(b"less"),
    }));
    let chmod = at(&file).op(arg::OP_SETATTR(SETATTR4args {
        stateid: stateid4 {
            seqid: 0,
            other: [0; 12],
        },
        obj_attributes: mode(),
    }));
    let looked = root().remove("less").op(arg::OP_GETFH);
    let all = [makes(b"dir"), link, rename, chmod, looked, makes(b"f")];
    // What they come to, and what the same does once more.
    let come_to = [(0, 17), (0, 17), (0, 2), (0, 0), (0, 2), (17, 17)];
    for (ops, (status, then)) in all.into_iter().zip(come_to) {
        let once = world.plain(a.conn, 0, &ops);
        assert_eq!(once.status as u32, status);
        a.conn = world.connect();
        world.xid -= 1;
        let again = world.plain(a.conn, 0, &ops);
        assert_eq!(format!("{once:?}"), format!("{again:?}"));
        // By another number it is another call.
        let other = world.plain(a.conn, 0, &ops).status;
        assert_eq!(other as u32, then);
    }
    // So it is by another user's.
    let ops = makes(b"another");
    assert_eq!(world.plain(a.conn, 0, &ops).status, NFS4_OK);
    (world.xid, world.uid) = (world.xid - 1, 7);
    assert_ne!(world.plain(a.conn, 0, &ops).status, NFS4_OK);
}

/// Attributes that are set once, and are something else meanwhile, stay that.
#[test]
fn a_retransmitted_setattr_undoes_nothing() {
    let mut world = World::new();
    let (mut a, stateid, file) = confirmed(&mut world);
    let cut = at(&file).op(arg::OP_SETATTR(SETATTR4args {
        stateid,
        obj_attributes: fattr4 {
            attrmask: List::Of(&[1 << FATTR4_SIZE]),
            attr_vals: Opaque(&[0; 8]),
        },
    }));
    let once = world.plain(a.conn, 0, &cut);
    assert_eq!(once.status, NFS4_OK);
    let write = at(&file).write(stateid, 0, b"content");
    assert_eq!(world.last(&mut a, write), NFS4_OK);
    a.conn = world.connect();
    world.xid -= 2;
    let again = world.plain(a.conn, 0, &cut);
    assert_eq!(format!("{once:?}"), format!("{again:?}"));
    let size = at(&file).op(arg::OP_GETATTR(GETATTR4args {
        attr_request: List::Of(&[1 << FATTR4_SIZE]),
    }));
    let mut answer = world.run(&mut a, size);
    answer.ok(nfs_opnum4::OP_PUTFH).ok(nfs_opnum4::OP_GETATTR);
    let attributes: [u32; 5] = std::array::from_fn(|_| answer.get());
    assert_eq!(attributes, [1, 1 << FATTR4_SIZE, 8, 0, 7]);
}

/// A call that waited for memory when its connection was lost is nowhere under way any
/// more: it is executed when it is retransmitted.
#[test]
fn a_call_given_up_with_its_connection_is_executed_when_retransmitted() {
    let mut world = World::new();
    let (mut a, stateid, file) = confirmed(&mut world);
    let write = at(&file).write(stateid, 0, &[7; 3000]);
    assert_eq!(world.last(&mut a, write), NFS4_OK);
    let ops = at(&file).op(arg::OP_SETATTR(SETATTR4args {
        stateid,
        obj_attributes: mode(),
    }));
    let ops = ops.op(arg::OP_READ(READ4args {
        stateid,
        offset: 0,
        count: 3000,
    }));
    let held = all_memory(&world);
    world.send(a.conn, 0, &ops);
    assert_eq!(world.server.machine(a.conn).executing(), 1);
    assert!(world.server.sent(a.conn).is_empty(), "it waits");
    world.server.disconnect(a.conn);
    drop(held);
    a.conn = world.connect();
    world.xid -= 1;
    let once = world.plain(a.conn, 0, &ops);
    assert_eq!(once.status, NFS4_OK);
    // What was read is not kept: it is read again.
    world.xid -= 1;
    let again = world.plain(a.conn, 0, &ops);
    assert_eq!(format!("{once:?}"), format!("{again:?}"));
}

/// Everything but what small buffers need: large ones leave it to them.
fn all_memory(world: &World) -> Vec<mem::Buf> {
    let pool = world.server.pool();
    [mem::BUF_BYTES_MAX, 4096]
        .into_iter()
        .flat_map(|size| std::iter::from_fn(move || pool.get(size)))
        .collect()
}

/// A call is retransmitted on another connection while it is under way: the
/// retransmission waits a while for its end, and gets NFS4ERR_DELAY.
#[test]
fn a_retransmission_of_a_call_under_way_is_delayed() {
    let mut world = World::new();
    let (mut a, stateid, file) = confirmed(&mut world);
    let write = at(&file).write(stateid, 0, &[7; 3000]);
    assert_eq!(world.last(&mut a, write), NFS4_OK);
    let ops = root().remove("f").op(arg::OP_PUTFH(PUTFH4args {
        object: Opaque(&file),
    }));
    let ops = ops.op(arg::OP_READ(READ4args {
        stateid,
        offset: 0,
        count: 3000,
    }));
    let held = all_memory(&world);
    world.send(a.conn, 0, &ops);
    assert!(world.server.sent(a.conn).is_empty(), "it waits for memory");
    let other = world.connect();
    world.xid -= 1;
    world.send(other, 0, &ops);
    world.server.advance(299_999_999);
    assert_eq!(world.server.machine(other).executing(), 1);
    assert!(
        world.server.sent(other).is_empty(),
        "it waits for the first"
    );
    world.server.advance(1);
    assert_eq!(world.server.machine(other).executing(), 0);
    // Mark, xid, type, reply, verifier, acceptance; then what it came to.
    let told = world.server.sent(other)[28..32].try_into();
    let told = u32::from_be_bytes(told.expect("a status"));
    assert_eq!(told, nfsstat4::NFS4ERR_DELAY as u32);
    drop(held);
    world.server.advance(1);
    assert!(!world.server.sent(a.conn).is_empty(), "the first went on");
}
