//! Servers that start again, and what clients may reclaim (RFC 8881, section
//! 8.4).

use wire::nfs4::*;

use crate::world::*;
use nfs_argop4 as arg;
use nfsstat4::NFS4_OK;

fn reclaim<'a>(client: &Client, seqid: u32) -> OPEN4args<'a> {
    OPEN4args {
        seqid,
        share_access: BOTH,
        claim: open_claim4::CLAIM_PREVIOUS(open_delegation_type4::OPEN_DELEGATE_NONE),
        ..opening(client, "o", "f")
    }
}

#[test]
fn opens_and_locks_are_reclaimed_after_a_restart() {
    let mut world = World::new();
    let (mut a, mut b) = (world.client("a", 1), world.client("b", 2));
    let (stateid, handle) = world.create(&mut a, "o", "f");
    let ops = at(&handle).op(arg::OP_LOCK(locking(&a, "l", stateid)));
    assert_eq!(world.last(&mut a, ops), NFS4_OK);
    world.create(&mut b, "o", "g");
    world.restart();

    let gone = {
        a.conn = world.connect();
        world.run(&mut a, root()).status
    };
    assert_eq!(gone, nfsstat4::NFS4ERR_BADSESSION);
    let (mut a, mut stranger) = (world.returned("a", 1), world.returned("x", 1));
    let args = reclaim(&stranger, 0);
    let refused = world.open_at(&mut stranger, at(&handle), args);
    assert_eq!(refused.unwrap_err(), nfsstat4::NFS4ERR_RECLAIM_BAD);
    let fresh = opening(&a, "o", "f");
    let grace = world.open(&mut a, fresh).unwrap_err();
    assert_eq!(grace, nfsstat4::NFS4ERR_GRACE);
    for ops in [root().remove("f"), at(&handle).write(ANONYMOUS, 0, b"x")] {
        let grace = world.last(&mut stranger, ops);
        assert_eq!(grace, nfsstat4::NFS4ERR_GRACE);
    }
    let args = reclaim(&a, 0);
    let opened = world.open_at(&mut a, at(&handle), args).unwrap();
    let lock = |is_reclaim, client: &Client| {
        at(&handle).op(arg::OP_LOCK(LOCK4args {
            reclaim: is_reclaim,
            ..locking(client, "l", opened.stateid)
        }))
    };
    let ops = lock(false, &a);
    assert_eq!(world.last(&mut a, ops), nfsstat4::NFS4ERR_GRACE);
    let ops = lock(true, &a);
    assert_eq!(world.last(&mut a, ops), NFS4_OK);
    // After RECLAIM_COMPLETE it may reclaim no more, and open nothing new yet.
    world.complete(&mut a);
    let late = world.open_at(&mut a, at(&handle), args).unwrap_err();
    assert_eq!(late, nfsstat4::NFS4ERR_NO_GRACE);
    world.complete(&mut stranger);
    let args = opening(&stranger, "o", "f");
    let grace = world.open(&mut stranger, args).unwrap_err();
    assert_eq!(grace, nfsstat4::NFS4ERR_GRACE);
    // With the last of them grace ends, long before its time.
    let mut b = world.client("b", 2);
    world.open(&mut stranger, args).unwrap();
    let late = reclaim(&b, 0);
    let late = world.open_at(&mut b, at(&handle), late);
    assert_eq!(late.unwrap_err(), nfsstat4::NFS4ERR_NO_GRACE);
    let held = locking(&stranger, "m", opened.stateid);
    let test = at(&handle).op(arg::OP_LOCKT(LOCKT4args {
        locktype: held.locktype,
        offset: 0,
        length: 1,
        owner: state_owner4 {
            clientid: stranger.id,
            owner: wire::xdr::Opaque(b"m"),
        },
    }));
    let denied = world.last(&mut stranger, test);
    assert_eq!(denied, nfsstat4::NFS4ERR_DENIED);
}

#[test]
fn a_conflicting_reclaim_is_refused() {
    let mut world = World::new();
    let (mut a, mut b) = (world.client("a", 1), world.client("b", 1));
    let (_, handle) = world.create(&mut a, "o", "f");
    world.create(&mut b, "o", "f");
    world.restart();
    let (mut a, mut b) = (world.returned("a", 1), world.returned("b", 1));
    let args = OPEN4args {
        share_deny: OPEN4_SHARE_DENY_BOTH,
        ..reclaim(&a, 0)
    };
    world.open_at(&mut a, at(&handle), args).unwrap();
    let args = reclaim(&b, 0);
    let conflict = world.open_at(&mut b, at(&handle), args).unwrap_err();
    assert_eq!(conflict, nfsstat4::NFS4ERR_RECLAIM_CONFLICT);
}

#[test]
fn a_delegation_is_reclaimed() {
    let mut world = World::new();
    let mut a = world.client("a", 1);
    let handle = world.file(&mut a, "f");
    world.restart();
    let mut a = world.returned("a", 1);
    let args = OPEN4args {
        claim: open_claim4::CLAIM_PREVIOUS(open_delegation_type4::OPEN_DELEGATE_READ),
        ..opening(&a, "o", "f")
    };
    let opened = world.open_at(&mut a, at(&handle), args).unwrap();
    assert!(opened.delegation.is_some());
    // What was held for a client that no longer lives cannot be had.
    world.server.advance(91 * SECOND);
    let mut b = world.client("b", 1);
    for claim in [
        open_claim4::CLAIM_DELEG_PREV_FH,
        open_claim4::CLAIM_DELEGATE_PREV(wire::xdr::Opaque(b"f")),
    ] {
        let args = OPEN4args {
            claim,
            ..opening(&b, "o", "f")
        };
        let not_supported = world.open(&mut b, args).unwrap_err();
        assert_eq!(not_supported, nfsstat4::NFS4ERR_NOTSUPP);
    }
}

/// Clients of version 4.0 say nothing when they are done.
#[test]
fn grace_lasts_its_time_for_a_client_of_version_4_0() {
    let mut world = World::new();
    let mut a = world.client("a", 0);
    let args = OPEN4args {
        share_access: BOTH,
        openhow: openflag4::OPEN4_CREATE(createhow4::UNCHECKED4(mode())),
        ..opening(&a, "o", "f")
    };
    let mut answer = world.run(&mut a, root().op(arg::OP_OPEN(args)).op(arg::OP_GETFH));
    answer.ok(nfs_opnum4::OP_PUTROOTFH).opened();
    let handle = answer.handle();
    world.restart();
    let mut a = world.client("a", 0);
    let args = reclaim(&a, 5);
    let opened = world.open_at(&mut a, at(&handle), args).unwrap();
    assert_eq!(opened.rflags & OPEN4_RESULT_CONFIRM, 0, "it was confirmed");
    let ops = at(&handle).write(opened.stateid, 0, b"x");
    assert_eq!(world.last(&mut a, ops), NFS4_OK);
    // The refusal uses a number up.
    for seqid in [6, 7] {
        let args = OPEN4args {
            seqid,
            ..opening(&a, "o", "f")
        };
        let grace = world.open(&mut a, args).unwrap_err();
        assert_eq!(grace, nfsstat4::NFS4ERR_GRACE);
    }
    world.server.advance(90 * SECOND);
    let args = OPEN4args {
        seqid: 8,
        ..opening(&a, "o", "f")
    };
    world.open(&mut a, args).unwrap();
    let late = reclaim(&a, 9);
    let late = world.open_at(&mut a, at(&handle), late).unwrap_err();
    assert_eq!(late, nfsstat4::NFS4ERR_NO_GRACE);
    // It has taken back what it had, and may do so again.
    assert!(world.on_record().contains(&b"a"[..]));
}

/// RFC 8881, section 8.4.3: others may have had meanwhile what a client did not
/// take back.
#[test]
fn a_client_that_missed_the_grace_period_cannot_reclaim_later() {
    let mut world = World::new();
    for (name, minor) in [("a", 1), ("b", 1), ("c", 0)] {
        let mut client = world.client(name, minor);
        world.create(&mut client, "o", "f");
    }
    let mut d = world.client("d", 1);
    let handle = world.file(&mut d, "g");
    world.restart();
    // Of four one is back in time, and one comes and says no more.
    let mut d = world.returned("d", 1);
    let args = reclaim(&d, 0);
    world.open_at(&mut d, at(&handle), args).unwrap();
    world.complete(&mut d);
    world.returned("b", 1);
    assert_eq!(world.on_record().len(), 4);
    world.server.advance(91 * SECOND);
    let mut d = world.returned("d", 1);
    let args = opening(&d, "p", "g");
    world.open(&mut d, args).unwrap();
    let kept: Vec<_> = world.on_record().into_iter().collect();
    assert_eq!(kept, [Box::from(&b"d"[..])]);
    world.restart();
    let mut a = world.returned("a", 1);
    let args = reclaim(&a, 0);
    let bad = world.open_at(&mut a, at(&handle), args).unwrap_err();
    assert_eq!(bad, nfsstat4::NFS4ERR_RECLAIM_BAD);
}
