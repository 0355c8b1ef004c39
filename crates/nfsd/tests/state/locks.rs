//! Waiting for locks.

use wire::nfs4::*;
use wire::xdr::{Encode, Opaque};

use crate::world::*;
use nfs_argop4 as arg;
use nfsstat4::NFS4_OK;

#[test]
fn a_blocking_lock_is_notified_when_it_can_be_had() {
    let mut world = World::new();
    let (mut a, mut b) = (world.client("a", 1), world.client("b", 1));
    let (held, handle) = world.create(&mut a, "o", "f");
    let (stateid, _) = world.create(&mut b, "o", "f");
    let ops = at(&handle).op(arg::OP_LOCK(locking(&a, "l", held)));
    let mut answer = world.run(&mut a, ops);
    answer.ok(nfs_opnum4::OP_PUTFH).ok(nfs_opnum4::OP_LOCK);
    let lock: stateid4 = answer.get();
    let blocking = LOCK4args {
        locktype: nfs_lock_type4::WRITEW_LT,
        offset: 10,
        length: 5,
        ..locking(&b, "waiter", stateid)
    };
    for _ in 0..2 {
        let mut answer = world.run(&mut b, at(&handle).op(arg::OP_LOCK(blocking)));
        let denied = answer.ok(nfs_opnum4::OP_PUTFH).next(nfs_opnum4::OP_LOCK);
        assert_eq!(denied, nfsstat4::NFS4ERR_DENIED);
        let (offset, length): (u64, u64) = (answer.get(), answer.get());
        assert_eq!((offset, length), (0, u64::MAX));
        let (kind, client): (nfs_lock_type4, u64) = (answer.get(), answer.get());
        assert_eq!((kind, client), (nfs_lock_type4::WRITE_LT, a.id));
    }
    let unlock = |offset, lock_stateid| {
        at(&handle).op(arg::OP_LOCKU(LOCKU4args {
            locktype: nfs_lock_type4::WRITE_LT,
            seqid: 0,
            lock_stateid,
            offset,
            length: 5,
        }))
    };
    let mut answer = world.run(&mut a, unlock(0, lock));
    answer.ok(nfs_opnum4::OP_PUTFH).ok(nfs_opnum4::OP_LOCKU);
    let lock: stateid4 = answer.get();
    assert!(world.called(b.conn).is_empty(), "not that part");
    assert_eq!(world.last(&mut a, unlock(10, lock)), NFS4_OK);
    let called = world.called(b.conn);
    let mut notify = Vec::new();
    nfs_cb_argop4::OP_CB_NOTIFY_LOCK(CB_NOTIFY_LOCK4args {
        cnla_fh: Opaque(&handle),
        cnla_lock_owner: state_owner4 {
            clientid: b.id,
            owner: Opaque(b"waiter"),
        },
    })
    .encode(&mut notify);
    assert_eq!((called.len(), &called[0].op), (1, &notify));
    world.answer(&b, &called[0], nfs_cb_opnum4::OP_CB_NOTIFY_LOCK, NFS4_OK);
    let ops = at(&handle).op(arg::OP_LOCK(blocking));
    assert_eq!(world.last(&mut b, ops), NFS4_OK);
}

#[test]
fn a_lock_that_does_not_block_is_not_notified() {
    let mut world = World::new();
    let (mut a, mut b) = (world.client("a", 1), world.client("b", 1));
    let (held, handle) = world.create(&mut a, "o", "f");
    let (stateid, _) = world.create(&mut b, "o", "f");
    let ops = at(&handle).op(arg::OP_LOCK(locking(&a, "l", held)));
    assert_eq!(world.last(&mut a, ops), NFS4_OK);
    let ops = at(&handle).op(arg::OP_LOCK(locking(&b, "l", stateid)));
    let denied = world.last(&mut b, ops);
    assert_eq!(denied, nfsstat4::NFS4ERR_DENIED);
    assert_eq!(world.last(&mut a, at(&handle).close(0, held)), NFS4_OK);
    assert!(world.called(b.conn).is_empty());
}

/// A client that cannot be called asks again by itself. A late notice may be untrue.
#[test]
fn notice_of_a_lock_is_not_sent_late() {
    let mut world = World::new();
    let (mut a, mut b) = (world.client("a", 1), world.client("b", 1));
    let (held, handle) = world.create(&mut a, "o", "f");
    let (stateid, _) = world.create(&mut b, "o", "f");
    let ops = at(&handle).op(arg::OP_LOCK(locking(&a, "l", held)));
    assert_eq!(world.last(&mut a, ops), NFS4_OK);
    let blocking = LOCK4args {
        locktype: nfs_lock_type4::WRITEW_LT,
        ..locking(&b, "waiter", stateid)
    };
    let denied = world.last(&mut b, at(&handle).op(arg::OP_LOCK(blocking)));
    assert_eq!(denied, nfsstat4::NFS4ERR_DENIED);
    world.server.disconnect(b.conn);
    assert_eq!(world.last(&mut a, at(&handle).close(0, held)), NFS4_OK);
    b.conn = world.connect();
    let bind = Ops::default().op(arg::OP_BIND_CONN_TO_SESSION(BIND_CONN_TO_SESSION4args {
        bctsa_sessid: b.session,
        bctsa_dir: channel_dir_from_client4::CDFC4_FORE_OR_BOTH,
        bctsa_use_conn_in_rdma_mode: false,
    }));
    world.send(b.conn, 1, &bind);
    let sent = testkit::nfs::call::cut(&mut world.server.sent(b.conn).into());
    assert_eq!(sent.len(), 1, "the answer alone");
}

/// One of many locks of a file.
fn one_of_many(at: u64, stateid: stateid4) -> arg<'static> {
    arg::OP_LOCK(LOCK4args {
        locktype: nfs_lock_type4::WRITE_LT,
        reclaim: false,
        offset: 1000 + at * 4,
        length: 3,
        locker: locker4::FALSE(exist_lock_owner4 {
            lock_stateid: stateid,
            lock_seqid: 0,
        }),
    })
}

fn unlock(offset: u64, length: u64, lock_stateid: stateid4) -> arg<'static> {
    arg::OP_LOCKU(LOCKU4args {
        locktype: nfs_lock_type4::WRITE_LT,
        seqid: 0,
        lock_stateid,
        offset,
        length,
    })
}

/// A file with as many locks as it may have: what gives some up is done, and what
/// makes one more is refused by a status that the version has.
#[test]
fn a_file_full_of_locks_can_be_unlocked() {
    let mut world = World::new();
    let mut a = world.client("a", 1);
    let (open, handle) = world.create(&mut a, "o", "f");
    let first = arg::OP_LOCK(LOCK4args {
        offset: 0,
        length: 3,
        ..locking(&a, "l", open)
    });
    let mut answer = world.run(&mut a, at(&handle).op(first));
    answer.ok(nfs_opnum4::OP_PUTFH).ok(nfs_opnum4::OP_LOCK);
    let any = stateid4 {
        seqid: 0,
        ..answer.get()
    };
    let mut taken = 0;
    let full = loop {
        let lock = at(&handle).op(one_of_many(taken, any));
        match world.last(&mut a, lock) {
            NFS4_OK => taken += 1,
            status => break status,
        }
    };
    assert_eq!((taken, full), (16 * 1024 - 1, nfsstat4::NFS4ERR_DELAY));
    let mut last = |op: arg<'static>| world.last(&mut a, at(&handle).op(op));
    assert_eq!(last(unlock(1001, 1, any)), nfsstat4::NFS4ERR_LOCK_RANGE);
    assert_eq!(last(unlock(1000, 1, any)), NFS4_OK);
    assert_eq!(last(unlock(u64::MAX / 2, 9, any)), NFS4_OK, "there is none");
    assert_eq!(last(one_of_many(taken, any)), nfsstat4::NFS4ERR_DELAY);
    assert_eq!(last(unlock(1004, 3, any)), NFS4_OK);
    assert_eq!(last(one_of_many(taken, any)), NFS4_OK);
    assert_eq!(last(unlock(0, u64::MAX, any)), NFS4_OK);
}

/// An answer to LOCK that is kept may be short: only a refusal may have the long name
/// of an owner.
#[test]
fn short_answers_to_lock_are_kept_in_small_slots() {
    let mut world = World::new();
    let mut b = world.client("b", 1);
    world.keeps = true;
    world.kept_bytes_max = 128;
    let mut a = world.client("a", 1);
    let (open, handle) = world.create(&mut b, "o", "f");
    let read = OPEN4args {
        share_access: OPEN4_SHARE_ACCESS_BOTH,
        share_deny: 0,
        ..opening(&a, "o", "f")
    };
    world.keeps = false;
    let opened = world.open(&mut a, read).expect("it is there").stateid;
    world.keeps = true;
    let whole = at(&handle).op(arg::OP_LOCK(LOCK4args {
        offset: 0,
        length: 10,
        ..locking(&a, "l", opened)
    }));
    let mut answer = world.run(&mut a, whole.clone());
    answer.ok(nfs_opnum4::OP_PUTFH).ok(nfs_opnum4::OP_LOCK);
    let lock: stateid4 = answer.get();
    let mut again = world.repeat(&mut a, whole);
    again.ok(nfs_opnum4::OP_PUTFH).ok(nfs_opnum4::OP_LOCK);
    assert_eq!(lock, again.get(), "it was kept");
    let some = at(&handle).op(unlock(0, 10, lock));
    assert_eq!(world.last(&mut a, some), NFS4_OK);
    // An owner with a long name has it.
    let long = "n".repeat(1000);
    let other = at(&handle).op(arg::OP_LOCK(locking(&b, &long, open)));
    assert_eq!(world.last(&mut b, other), NFS4_OK);
    let refused = at(&handle).op(arg::OP_LOCK(locking(&a, "other", opened)));
    let refused = world.last(&mut a, refused);
    assert_eq!(refused, nfsstat4::NFS4ERR_REP_TOO_BIG_TO_CACHE);
}

/// A file that two clients have open: the first keeps its answers in slots of
/// `kept_bytes_max`, the second does not.
fn two_that_have_a_file_open(kept_bytes_max: u32) -> (World, [Client; 2], [stateid4; 2], Vec<u8>) {
    let mut world = World::new();
    world.kept_bytes_max = kept_bytes_max;
    let (mut a, mut b) = (world.client("a", 1), world.client("b", 1));
    let (first, handle) = world.create(&mut a, "o", "f");
    let (second, _) = world.create(&mut b, "o", "f");
    (world, [a, b], [first, second], handle)
}

/// Bytes of answers that slots keep: there is room for all but the last result, to
/// for that too.
fn slots() -> impl Iterator<Item = u32> {
    (92..=120).step_by(4)
}

/// What an operation came to in each of those.
fn check_slots(mut came_to: Vec<nfsstat4>) {
    came_to.dedup();
    let too_big = nfsstat4::NFS4ERR_REP_TOO_BIG_TO_CACHE;
    assert_eq!(came_to, [too_big, NFS4_OK]);
}

/// A LOCK whose answer could not be kept has locked nothing (RFC 8881, section
/// 2.10.6.4).
#[test]
fn a_lock_whose_answer_has_no_room_is_not_taken() {
    let mut came_to = Vec::new();
    for kept_bytes_max in slots() {
        let (mut world, [mut a, mut b], [first, second], handle) =
            two_that_have_a_file_open(kept_bytes_max);
        world.keeps = true;
        let ops = at(&handle).op(arg::OP_LOCK(locking(&a, "l", first)));
        let mut answer = world.run(&mut a, ops);
        let status = answer.ok(nfs_opnum4::OP_PUTFH).next(nfs_opnum4::OP_LOCK);
        world.keeps = false;
        let is_locked = usize::from(status == NFS4_OK);
        let counts = world.server.nfsd.files.counts(a.id);
        assert_eq!(counts, [1, is_locked, 0, 0], "{kept_bytes_max}");
        let other = at(&handle).op(arg::OP_LOCK(locking(&b, "l", second)));
        let other = world.last(&mut b, other);
        assert_eq!(other == NFS4_OK, status != NFS4_OK, "{kept_bytes_max}");
        came_to.push(status);
    }
    check_slots(came_to);
}

/// Nor has a LOCKU given anything up, or a new state id been made for it.
#[test]
fn an_unlock_whose_answer_has_no_room_is_not_done() {
    let mut came_to = Vec::new();
    for kept_bytes_max in slots() {
        let (mut world, [mut a, mut b], [first, second], handle) =
            two_that_have_a_file_open(kept_bytes_max);
        let lock = arg::OP_LOCK(locking(&a, "l", first));
        let mut answer = world.run(&mut a, at(&handle).op(lock));
        answer.ok(nfs_opnum4::OP_PUTFH).ok(nfs_opnum4::OP_LOCK);
        let held: stateid4 = answer.get();
        world.keeps = true;
        let whole = at(&handle).op(unlock(0, u64::MAX, held));
        let mut answer = world.run(&mut a, whole.clone());
        let status = answer.ok(nfs_opnum4::OP_PUTFH).next(nfs_opnum4::OP_LOCKU);
        world.keeps = false;
        let other = at(&handle).op(arg::OP_LOCK(locking(&b, "l", second)));
        let other = world.last(&mut b, other);
        assert_eq!(other == NFS4_OK, status == NFS4_OK, "{kept_bytes_max}");
        // What was not done can be, by the state id that there was.
        let again = world.last(&mut a, whole);
        let is_new = again == NFS4_OK;
        assert_eq!(is_new, status != NFS4_OK, "{kept_bytes_max}: {again:?}");
        came_to.push(status);
    }
    check_slots(came_to);
}
