//! Waiting for locks.

use wire::nfs4::*;
use wire::xdr::{Encode, Opaque};

use crate::world::*;
use nfs_argop4 as arg;
use nfsstat4::NFS4_OK;

#[test]
fn who_would_wait_for_a_lock_is_told_when_it_can_be_had() {
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
fn who_would_not_wait_is_not_told() {
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
