//! Leases that run out, courtesy, eviction, and files that no client holds any more.

use wire::nfs4::*;
use wire::xdr::List;

use crate::world::*;
use nfs_argop4 as arg;
use nfsstat4::NFS4_OK;

/// A file that a client has open and keeps others from writing.
fn denied(world: &mut World, minor: u32) -> (Client, Opened, Vec<u8>) {
    let mut a = world.client("a", minor);
    let handle = {
        let mut maker = world.client("maker", 1);
        world.file(&mut maker, "f")
    };
    let args = OPEN4args {
        share_deny: OPEN4_SHARE_DENY_WRITE,
        ..opening(&a, "o", "f")
    };
    let opened = world.open(&mut a, args).unwrap();
    (a, opened, handle)
}

#[test]
fn a_silent_client_keeps_its_state_until_another_open_conflicts() {
    let mut world = World::new();
    let (mut a, opened, handle) = denied(&mut world, 1);
    let mut b = world.client("b", 2);
    let writes = |b: &Client| OPEN4args {
        share_access: WRITE,
        ..opening(b, "o", "f")
    };
    let args = writes(&b);
    let refused = world.open(&mut b, args).unwrap_err();
    assert_eq!(refused, nfsstat4::NFS4ERR_SHARE_DENIED);
    // Its lease runs out, and no open conflicts: its state stays good.
    world.server.advance(100 * SECOND);
    let args = opening(&b, "p", "f");
    world.open(&mut b, args).unwrap();
    let read = arg::OP_READ(READ4args {
        stateid: opened.stateid,
        offset: 0,
        count: 1,
    });
    assert_eq!(world.last(&mut a, at(&handle).op(read)), NFS4_OK);
    // Again, and an open conflicts.
    world.server.advance(100 * SECOND);
    let args = writes(&b);
    world.open(&mut b, args).unwrap();
    let mut gone = world.run(&mut a, root());
    assert_eq!(gone.status, nfsstat4::NFS4ERR_BADSESSION);
    assert_eq!(gone.with(|from| from.rest().len()), 0);
    assert!(
        !world.on_record().contains(&b"a"[..]),
        "it is off the record"
    );
}

#[test]
fn locks_of_a_silent_client_yield() {
    let mut world = World::new();
    let mut a = world.client("a", 1);
    let (stateid, handle) = world.create(&mut a, "o", "f");
    let ops = at(&handle).op(arg::OP_LOCK(locking(&a, "l", stateid)));
    assert_eq!(world.last(&mut a, ops), NFS4_OK);
    world.server.advance(91 * SECOND);
    let mut b = world.client("b", 1);
    let (stateid, _) = world.create(&mut b, "o", "f");
    let test = at(&handle).op(arg::OP_LOCKT(LOCKT4args {
        locktype: nfs_lock_type4::READ_LT,
        offset: 5,
        length: 1,
        owner: state_owner4 {
            clientid: b.id,
            owner: wire::xdr::Opaque(b"l"),
        },
    }));
    assert_eq!(world.last(&mut b, test), NFS4_OK);
    let ops = at(&handle).op(arg::OP_LOCK(locking(&b, "l", stateid)));
    assert_eq!(world.last(&mut b, ops), NFS4_OK);
}

#[test]
fn a_client_that_stays_silent_is_forgotten_after_courtesy() {
    let mut world = World::new();
    let mut a = world.client("a", 1);
    let (stateid, handle) = world.create(&mut a, "o", "f");
    let mut b = world.client("b", 1);
    assert_eq!(world.last(&mut b, root().remove("f")), NFS4_OK);
    // It lives without a name.
    let ops = at(&handle).write(stateid, 0, &[7; 100]);
    assert_eq!(world.last(&mut a, ops), NFS4_OK);
    world.server.advance((86_400 + 91) * SECOND);
    assert_eq!(world.server.nfsd.server.counts(), (0, 0));
    let mut c = world.client("c", 1);
    let stale = world.last(
        &mut c,
        at(&handle).op(arg::OP_GETATTR(GETATTR4args {
            attr_request: List::Of(&[2]),
        })),
    );
    assert_eq!(stale, nfsstat4::NFS4ERR_STALE, "no client has it open");
}

#[test]
fn clients_of_version_4_0_are_told_that_they_have_expired() {
    let mut world = World::new();
    let mut a = world.client("a", 0);
    let args = OPEN4args {
        share_access: BOTH,
        share_deny: OPEN4_SHARE_DENY_BOTH,
        openhow: openflag4::OPEN4_CREATE(createhow4::GUARDED4(mode())),
        ..opening(&a, "o", "f")
    };
    let opened = world.open(&mut a, args).unwrap();
    assert_ne!(opened.rflags & OPEN4_RESULT_CONFIRM, 0);
    world.server.advance(89 * SECOND);
    let renew = Ops::default().op(arg::OP_RENEW(RENEW4args { clientid: a.id }));
    assert_eq!(world.last(&mut a, renew.clone()), NFS4_OK);
    world.server.advance(89 * SECOND);
    let mut b = world.client("b", 1);
    let wanted = |b: &Client| OPEN4args {
        share_access: WRITE,
        ..opening(b, "o", "f")
    };
    let args = wanted(&b);
    let refused = world.open(&mut b, args).unwrap_err();
    assert_eq!(refused, nfsstat4::NFS4ERR_SHARE_DENIED);
    world.server.advance(2 * SECOND);
    let args = wanted(&b);
    world.open(&mut b, args).unwrap();
    assert_eq!(world.last(&mut a, renew), nfsstat4::NFS4ERR_EXPIRED);
    let close = root().close(1, opened.stateid);
    assert_eq!(world.last(&mut a, close), nfsstat4::NFS4ERR_EXPIRED);
    let strange = Ops::default().op(arg::OP_RENEW(RENEW4args { clientid: 77 }));
    let stale = world.last(&mut a, strange);
    assert_eq!(stale, nfsstat4::NFS4ERR_STALE_CLIENTID);
}

#[test]
fn the_administrator_evicts_clients_and_takes_exports_away() {
    let mut world = World::new();
    let (mut a, _, handle) = denied(&mut world, 1);
    assert!(world.server.nfsd.evict(a.id) && !world.server.nfsd.evict(a.id));
    assert_eq!(
        world.run(&mut a, root()).status,
        nfsstat4::NFS4ERR_BADSESSION
    );
    let mut b = world.client("b", 1);
    let args = OPEN4args {
        share_access: undelegated(&b, WRITE),
        ..opening(&b, "o", "f")
    };
    let opened = world.open(&mut b, args).unwrap();
    // Another file system takes the place of the one that it has open.
    let time = world.server.time;
    let other = std::sync::Arc::new(store::fs::Memory::new("other", 1 << 20, 8, time).unwrap());
    world.server.nfsd.set_exports(exports(&other, "/"));
    world.server.advance(1);
    let ops = at(&handle).write(opened.stateid, 0, b"x");
    assert_eq!(world.last(&mut b, ops), nfsstat4::NFS4ERR_STALE);
    assert_eq!(b.flags, SEQ4_STATUS_ADMIN_STATE_REVOKED);
    let stateids = [opened.stateid];
    let test = Ops::default().op(arg::OP_TEST_STATEID(TEST_STATEID4args {
        ts_stateids: List::Of(&stateids),
    }));
    let mut answer = world.run(&mut b, test);
    answer.ok(nfs_opnum4::OP_TEST_STATEID);
    let words: [u32; 2] = [answer.get(), answer.get()];
    assert_eq!(words, [1, nfsstat4::NFS4ERR_ADMIN_REVOKED as u32]);
    let free = Ops::default().op(arg::OP_FREE_STATEID(FREE_STATEID4args {
        fsa_stateid: opened.stateid,
    }));
    assert_eq!(world.last(&mut b, free), NFS4_OK);
    world.run(&mut b, root());
    assert_eq!(b.flags, 0);
}

/// A connection remembers its sessions; one that is gone is none to it either.
#[test]
fn a_connection_is_not_bound_to_a_session_that_is_gone() {
    let mut world = World::new();
    let mut a = world.client("a", 1);
    assert_eq!(world.last(&mut a, root()), NFS4_OK);
    let bind = Ops::default().op(arg::OP_BIND_CONN_TO_SESSION(BIND_CONN_TO_SESSION4args {
        bctsa_sessid: a.session,
        bctsa_dir: channel_dir_from_client4::CDFC4_FORE,
        bctsa_use_conn_in_rdma_mode: false,
    }));
    assert_eq!(world.plain(a.conn, 1, &bind).status, NFS4_OK);
    let destroy = Ops::default().op(arg::OP_DESTROY_SESSION(DESTROY_SESSION4args {
        dsa_sessionid: a.session,
    }));
    let other = world.connect();
    assert_eq!(world.plain(other, 1, &destroy).status, NFS4_OK);
    let bound = world.plain(a.conn, 1, &bind);
    assert_eq!(bound.status, nfsstat4::NFS4ERR_BADSESSION);
}
