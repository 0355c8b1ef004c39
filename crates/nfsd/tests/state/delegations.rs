//! Delegations that are recalled, on whatever way there is, and taken away.

use wire::nfs4::*;
use wire::xdr::{Encode, List, Opaque};

use crate::world::*;
use nfs_argop4 as arg;
use nfsstat4::NFS4_OK;

const RECALL: nfs_cb_opnum4 = nfs_cb_opnum4::OP_CB_RECALL;

/// Two clients, of which the first has a delegation of a file.
fn delegated(minor: u32) -> (World, Client, Client, stateid4, Vec<u8>) {
    let mut world = World::new();
    let (mut a, mut b) = (world.client("a", minor), world.client("b", 1));
    let handle = world.file(&mut b, "f");
    let args = opening(&a, "o", "f");
    let opened = world.open(&mut a, args).unwrap();
    let delegation = opened.delegation.expect("no client writes");
    (world, a, b, delegation, handle)
}

fn writes<'a>(client: &Client) -> OPEN4args<'a> {
    OPEN4args {
        share_access: WRITE,
        ..opening(client, "o", "f")
    }
}

fn recall(stateid: stateid4, handle: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    nfs_cb_argop4::OP_CB_RECALL(CB_RECALL4args {
        stateid,
        truncate: false,
        fh: Opaque(handle),
    })
    .encode(&mut bytes);
    bytes
}

fn give_back(world: &mut World, client: &mut Client, stateid: stateid4, handle: &[u8]) {
    let args = DELEGRETURN4args {
        deleg_stateid: stateid,
    };
    let ops = at(handle).op(arg::OP_DELEGRETURN(args));
    assert_eq!(world.last(client, ops), NFS4_OK);
}

#[test]
fn a_delegation_is_recalled_when_another_client_opens_to_write() {
    let (mut world, mut a, mut b, delegation, handle) = delegated(2);
    // Its client reads by it, and opens under it.
    let read = at(&handle).op(arg::OP_READ(READ4args {
        stateid: delegation,
        offset: 0,
        count: 1,
    }));
    assert_eq!(world.last(&mut a, read), NFS4_OK);
    let write = at(&handle).write(delegation, 0, b"x");
    let mode = world.last(&mut a, write);
    assert_eq!(mode, nfsstat4::NFS4ERR_OPENMODE);
    let under = OPEN4args {
        claim: open_claim4::CLAIM_DELEG_CUR_FH(delegation),
        ..opening(&a, "p", "f")
    };
    world.open_at(&mut a, at(&handle), under).unwrap();

    let args = writes(&b);
    let delayed = world.open(&mut b, args).unwrap_err();
    assert_eq!(delayed, nfsstat4::NFS4ERR_DELAY);
    let called = world.called(a.conn);
    assert_eq!((called.len(), called[0].minor), (1, 2));
    assert_eq!(called[0].sequence, (0, 1));
    assert_eq!(called[0].op, recall(delegation, &handle));
    world.answer(&a, &called[0], RECALL, NFS4_OK);
    // It is recalled once, and an open meanwhile gets none.
    let delayed = world.open(&mut b, args).unwrap_err();
    assert_eq!(delayed, nfsstat4::NFS4ERR_DELAY);
    assert!(world.called(a.conn).is_empty());
    let reads = opening(&b, "r", "f");
    assert_eq!(world.open(&mut b, reads).unwrap().delegation, None);
    give_back(&mut world, &mut a, delegation, &handle);
    world.open(&mut b, args).unwrap();
    let args = opening(&a, "o", "f");
    let opened = world.open(&mut a, args).unwrap();
    assert_eq!(opened.delegation, None, "another client writes");
}

/// What another client does to the file `f` of this handle, and from which minor version on.
type Change = (u32, fn(&[u8]) -> Ops);

/// The attributes of a file that is cut.
fn size() -> fattr4<'static> {
    fattr4 {
        attrmask: List::Of(&[1 << FATTR4_SIZE]),
        attr_vals: Opaque(&[0; 8]),
    }
}

fn set(handle: &[u8], obj_attributes: fattr4<'_>) -> Ops {
    at(handle).op(arg::OP_SETATTR(SETATTR4args {
        stateid: ANONYMOUS,
        obj_attributes,
    }))
}

fn rename(oldname: &str, newname: &str) -> Ops {
    let (oldname, newname) = (Opaque(oldname.as_bytes()), Opaque(newname.as_bytes()));
    let (save, rename) = (
        arg::OP_SAVEFH,
        arg::OP_RENAME(RENAME4args { oldname, newname }),
    );
    root().op(save).op(rename)
}

const CHANGES: [Change; 9] = [
    (0, |_| root().remove("f")),
    (0, |_| rename("f", "g")),
    (0, |_| rename("other", "f")),
    (0, |handle| {
        let newname = Opaque(&b"g"[..]);
        at(handle)
            .op(arg::OP_SAVEFH)
            .op(arg::OP_PUTROOTFH)
            .op(arg::OP_LINK(LINK4args { newname }))
    }),
    (0, |handle| set(handle, mode())),
    (0, |handle| set(handle, size())),
    (0, |handle| at(handle).write(ANONYMOUS, 0, b"x")),
    (2, |handle| {
        at(handle).op(arg::OP_ALLOCATE(ALLOCATE4args {
            aa_stateid: ANONYMOUS,
            aa_offset: 0,
            aa_length: 1,
        }))
    }),
    (2, |handle| {
        at(handle).op(arg::OP_SETXATTR(SETXATTR4args {
            sxa_option: setxattr_option4::SETXATTR4_EITHER,
            sxa_key: Opaque(b"key"),
            sxa_value: Opaque(b"value"),
        }))
    }),
];

#[test]
fn every_change_of_a_file_recalls_its_delegations() {
    for (at, (since, op)) in CHANGES.into_iter().enumerate() {
        for minor in since..3 {
            let (mut world, mut a, mut b, delegation, handle) = delegated(1);
            world.file(&mut b, "other");
            let mut other = world.client("c", minor);
            let ops = op(&handle);
            let delayed = world.last(&mut other, ops.clone());
            assert_eq!(delayed, nfsstat4::NFS4ERR_DELAY, "{at} of 4.{minor}");
            assert_eq!(world.called(a.conn).len(), 1, "{at} of 4.{minor}");
            give_back(&mut world, &mut a, delegation, &handle);
            assert_eq!(world.last(&mut other, ops), NFS4_OK, "{at} of 4.{minor}");
        }
    }
}

/// The change may still be under way: a client with a delegation then would keep what it
/// replaces.
#[test]
fn a_file_that_was_changed_is_not_delegated_for_a_while() {
    for (index, (_, op)) in CHANGES.into_iter().enumerate() {
        let mut world = World::new();
        let (mut a, mut b) = (world.client("a", 2), world.client("b", 2));
        let handle = world.file(&mut b, "f");
        world.file(&mut b, "other");
        let ops = op(&handle);
        // Another name of it, by which it is found when the first is gone.
        let newname = Opaque(&b"link"[..]);
        let link = at(&handle)
            .op(arg::OP_SAVEFH)
            .op(arg::OP_PUTROOTFH)
            .op(arg::OP_LINK(LINK4args { newname }));
        assert_eq!(world.last(&mut b, link), NFS4_OK);
        world.server.advance(31 * SECOND);
        assert_eq!(world.last(&mut b, ops), NFS4_OK, "{index}");
        let args = opening(&a, "o", "link");
        let opened = world.open(&mut a, args).unwrap();
        assert_eq!(opened.delegation, None, "{index}");
        world.server.advance(31 * SECOND);
        let args = opening(&a, "p", "link");
        let opened = world.open(&mut a, args).unwrap();
        assert!(opened.delegation.is_some(), "{index}");
    }
}

#[test]
fn a_recalled_delegation_that_is_not_returned_is_revoked() {
    let (mut world, mut a, mut b, delegation, handle) = delegated(1);
    let args = writes(&b);
    world.open(&mut b, args).unwrap_err();
    let called = world.called(a.conn);
    world.answer(&a, &called[0], RECALL, NFS4_OK);
    for _ in 0..3 {
        world.server.advance(30 * SECOND);
        // Both are alive.
        assert_eq!(world.last(&mut a, root()), NFS4_OK);
        let delayed = world.open(&mut b, args).unwrap_err();
        assert_eq!(delayed, nfsstat4::NFS4ERR_DELAY);
    }
    world.server.advance(SECOND);
    world.open(&mut b, args).unwrap();
    assert_eq!(world.last(&mut a, root()), NFS4_OK);
    assert_eq!(a.flags, SEQ4_STATUS_RECALLABLE_STATE_REVOKED);
    let revoked = nfsstat4::NFS4ERR_DELEG_REVOKED;
    let stateids = [delegation];
    let test = Ops::default().op(arg::OP_TEST_STATEID(TEST_STATEID4args {
        ts_stateids: List::Of(&stateids),
    }));
    let mut answer = world.run(&mut a, test);
    answer.ok(nfs_opnum4::OP_TEST_STATEID);
    let words: [u32; 2] = [answer.get(), answer.get()];
    assert_eq!(words, [1, revoked as u32]);
    let read = at(&handle).op(arg::OP_READ(READ4args {
        stateid: delegation,
        offset: 0,
        count: 1,
    }));
    assert_eq!(world.last(&mut a, read), revoked);
    let free = |stateid| {
        let args = FREE_STATEID4args {
            fsa_stateid: stateid,
        };
        Ops::default().op(arg::OP_FREE_STATEID(args))
    };
    assert_eq!(world.last(&mut a, free(delegation)), NFS4_OK);
    let again = world.last(&mut a, free(delegation));
    assert_eq!(again, nfsstat4::NFS4ERR_BAD_STATEID);
    assert_eq!(world.last(&mut a, root()), NFS4_OK);
    assert_eq!(a.flags, 0, "it knows");
}

#[test]
fn a_silent_client_loses_its_delegation_at_once() {
    let (mut world, mut a, mut b, ..) = delegated(1);
    world.server.advance(91 * SECOND);
    let args = writes(&b);
    world.open(&mut b, args).unwrap();
    let gone = world.run(&mut a, root()).status;
    assert_eq!(gone, nfsstat4::NFS4ERR_BADSESSION);
}

#[test]
fn a_callback_without_an_answer_is_sent_on_another_connection() {
    let (mut world, mut a, mut b, delegation, handle) = delegated(1);
    let args = writes(&b);
    world.open(&mut b, args).unwrap_err();
    assert_eq!(world.called(a.conn).len(), 1);
    // Its connection is lost: a status flag says so to the client, which binds another.
    world.server.disconnect(a.conn);
    a.conn = world.connect();
    assert_eq!(world.last(&mut a, root()), NFS4_OK);
    assert_eq!(a.flags, SEQ4_STATUS_CB_PATH_DOWN_SESSION);
    let bind = Ops::default().op(arg::OP_BIND_CONN_TO_SESSION(BIND_CONN_TO_SESSION4args {
        bctsa_sessid: a.session,
        bctsa_dir: channel_dir_from_client4::CDFC4_FORE_OR_BOTH,
        bctsa_use_conn_in_rdma_mode: false,
    }));
    world.send(a.conn, 1, &bind);
    let mut records = testkit::nfs::call::cut(&mut world.server.sent(a.conn).into());
    assert_eq!(records.len(), 2, "the answer, and the call");
    records.retain(|record| record[4..8] == [0; 4]);
    assert_eq!(records.len(), 1);
    assert!(records[0].ends_with(&recall(delegation, &handle)));
    // No answer arrives for a while, on a connection that is there.
    world.server.advance(11 * SECOND);
    assert_eq!(world.last(&mut a, root()), NFS4_OK);
    assert_eq!(a.flags, SEQ4_STATUS_CB_PATH_DOWN_SESSION);
    world.send(a.conn, 1, &bind);
    let again = testkit::nfs::call::cut(&mut world.server.sent(a.conn).into());
    assert!(
        again
            .iter()
            .any(|r| r.ends_with(&recall(delegation, &handle)))
    );
    give_back(&mut world, &mut a, delegation, &handle);
    world.open(&mut b, args).unwrap();
}

/// However often its connections are lost in the middle of calls, a client is
/// called again.
#[test]
fn lost_connections_do_not_use_the_backchannel_up() {
    let (mut world, mut a, mut b, delegation, handle) = delegated(1);
    let args = writes(&b);
    world.open(&mut b, args).unwrap_err();
    for lost in 0..10 {
        world.server.disconnect(a.conn);
        a.conn = world.connect();
        let bind = Ops::default().op(arg::OP_BIND_CONN_TO_SESSION(BIND_CONN_TO_SESSION4args {
            bctsa_sessid: a.session,
            bctsa_dir: channel_dir_from_client4::CDFC4_FORE_OR_BOTH,
            bctsa_use_conn_in_rdma_mode: false,
        }));
        world.send(a.conn, 1, &bind);
        let sent = testkit::nfs::call::cut(&mut world.server.sent(a.conn).into());
        let is_recall = |record: &Vec<u8>| record.ends_with(&recall(delegation, &handle));
        assert!(sent.iter().any(is_recall), "lost {lost} times");
    }
}

#[test]
fn a_recall_that_overtakes_its_delegation_is_repeated() {
    let (mut world, mut a, mut b, delegation, handle) = delegated(1);
    let args = writes(&b);
    world.open(&mut b, args).unwrap_err();
    let called = world.called(a.conn);
    world.answer(&a, &called[0], RECALL, nfsstat4::NFS4ERR_BAD_STATEID);
    assert!(world.called(a.conn).is_empty());
    world.server.advance(2 * SECOND);
    let called = world.called(a.conn);
    assert_eq!(called[0].sequence, (0, 2));
    assert_eq!(called[0].op, recall(delegation, &handle));
    give_back(&mut world, &mut a, delegation, &handle);
    world.answer(&a, &called[0], RECALL, nfsstat4::NFS4ERR_BADHANDLE);
    world.server.advance(2 * SECOND);
    assert!(world.called(a.conn).is_empty(), "it is back");
}

#[test]
fn an_open_is_delegated_as_its_want_flags_ask() {
    let mut world = World::new();
    let mut a = world.client("a", 1);
    world.file(&mut a, "f");
    let wants = |a: &Client, want| OPEN4args {
        share_access: READ | want,
        ..opening(a, "o", "f")
    };
    let args = wants(&a, OPEN4_SHARE_ACCESS_WANT_NO_DELEG);
    let opened = world.open(&mut a, args).unwrap();
    let not_wanted = why_no_delegation4::WND4_NOT_WANTED;
    assert_eq!(
        (opened.delegation, opened.why_none),
        (None, Some(not_wanted))
    );
    let args = wants(&a, OPEN4_SHARE_ACCESS_WANT_READ_DELEG);
    assert!(world.open(&mut a, args).unwrap().delegation.is_some());
    let opened = world.open(&mut a, args).unwrap();
    let resource = why_no_delegation4::WND4_RESOURCE;
    assert_eq!(opened.why_none, Some(resource), "it has one");
    // A client that cannot be called gets none, and neither does one of version 4.0.
    let mut b = world.client("b", 1);
    world.server.disconnect(b.conn);
    b.conn = world.connect();
    let args = opening(&b, "o", "f");
    assert_eq!(world.open(&mut b, args).unwrap().delegation, None);
    let mut c = world.client("c", 0);
    let args = opening(&c, "o", "f");
    assert_eq!(world.open(&mut c, args).unwrap().delegation, None);
}
