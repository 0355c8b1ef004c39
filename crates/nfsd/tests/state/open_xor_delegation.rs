//! Delegations instead of opens (RFC 9754): they hold what the open would.

use wire::nfs4::*;
use wire::xdr::{Decode, Encode, List, Opaque, Reader};

use crate::world::*;
use crate::write_delegations::{give_back, op_of};
use nfs_argop4 as arg;
use nfsstat4::{NFS4_OK, NFS4ERR_DELAY, NFS4ERR_STALE};

const XOR: u32 = OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION;

/// An OPEN of `f` that wants a delegation instead of an open.
fn wants<'a>(client: &Client, access: u32) -> OPEN4args<'a> {
    OPEN4args {
        share_access: access | XOR,
        ..opening(client, "o", "f")
    }
}

/// The same by the file's handle, which takes what the delegation covers.
fn under<'a>(client: &Client, access: u32, delegation: stateid4) -> OPEN4args<'a> {
    OPEN4args {
        claim: open_claim4::CLAIM_DELEG_CUR_FH(delegation),
        ..wants(client, access)
    }
}

/// Two clients, of which the first has a delegation of `f` and no open.
fn delegated(access: u32) -> (World, Client, Client, stateid4, Vec<u8>) {
    let mut world = World::new();
    let (mut a, mut b) = (world.client("a", 2), world.client("b", 2));
    let handle = world.file(&mut b, "f");
    let args = wants(&a, access);
    let opened = world.open(&mut a, args).unwrap();
    assert!(!has_open(&opened));
    let delegation = opened.delegation.expect("no other client has it open");
    (world, a, b, delegation, handle)
}

fn has_open(opened: &Opened) -> bool {
    let says_so = opened.rflags & OPEN4_RESULT_NO_OPEN_STATEID == 0;
    assert_eq!(says_so, opened.stateid != ANONYMOUS);
    says_so
}

fn counts(world: &World, client: &Client) -> [usize; 4] {
    world.server.nfsd.files.counts(client.id)
}

fn read(handle: &[u8], stateid: stateid4) -> Ops {
    at(handle).op(arg::OP_READ(READ4args {
        stateid,
        offset: 0,
        count: 4,
    }))
}

fn getattr(handle: &[u8], attr_request: &[u32]) -> Ops {
    let attr_request = List::Of(attr_request);
    at(handle).op(arg::OP_GETATTR(GETATTR4args { attr_request }))
}

#[test]
fn delegated_open_leaves_no_open_where_one_of_both_is_wanted() {
    for access in [READ, WRITE, BOTH] {
        let (mut world, mut a, _, delegation, handle) = delegated(access);
        assert_eq!(counts(&world, &a), [0, 0, 1, 0], "{access}");
        let write = at(&handle).write(delegation, 0, b"mine");
        let may_write = match access & WRITE {
            0 => nfsstat4::NFS4ERR_OPENMODE,
            _ => NFS4_OK,
        };
        assert_eq!(world.last(&mut a, write), may_write, "{access}");
        assert_eq!(world.last(&mut a, read(&handle, delegation)), NFS4_OK);
        // It has its one delegation: the next is an open.
        let args = wants(&a, access);
        let opened = world.open(&mut a, args).unwrap();
        assert!(has_open(&opened) && opened.delegation.is_none());
        give_back(&mut world, &mut a, delegation, &handle);
        let close = at(&handle).close(0, opened.stateid);
        assert_eq!(world.last(&mut a, close), NFS4_OK);
        assert_eq!(counts(&world, &a), [0; 4], "{access}");
    }
}

#[test]
fn open_that_is_not_delegated_or_denies_something_stays_an_open() {
    let mut world = World::new();
    let (mut a, mut b) = (world.client("a", 2), world.client("b", 2));
    let (stateid, handle) = world.create(&mut b, "maker", "f");
    let args = wants(&a, READ);
    let opened = world.open(&mut a, args).unwrap();
    assert!(has_open(&opened) && opened.delegation.is_none());
    let close = at(&handle).close(0, opened.stateid);
    assert_eq!(world.last(&mut a, close), NFS4_OK);
    let close = at(&handle).close(0, stateid);
    assert_eq!(world.last(&mut b, close), NFS4_OK);
    let args = OPEN4args {
        share_deny: OPEN4_SHARE_DENY_WRITE,
        ..wants(&a, READ)
    };
    let opened = world.open(&mut a, args).unwrap();
    assert!(has_open(&opened) && opened.delegation.is_some());
    // Version 4.1 does not know the flag.
    let mut old = world.client("old", 1);
    let args = wants(&old, READ);
    let refused = world.open(&mut old, args).unwrap_err();
    assert_eq!(refused, nfsstat4::NFS4ERR_INVAL);
}

#[test]
fn current_stateid_behind_a_delegated_open_is_the_delegation() {
    let mut world = World::new();
    let mut a = world.client("a", 2);
    world.file(&mut a, "f");
    let current = stateid4 {
        seqid: 1,
        other: [0; 12],
    };
    let ops = root()
        .op(arg::OP_OPEN(wants(&a, BOTH)))
        .op(arg::OP_DELEGRETURN(DELEGRETURN4args {
            deleg_stateid: current,
        }));
    assert_eq!(world.last(&mut a, ops), NFS4_OK);
    assert_eq!(counts(&world, &a), [0; 4]);
}

#[test]
fn recalled_delegation_becomes_the_open_that_it_stood_for() {
    let (mut world, mut a, mut b, delegation, handle) = delegated(BOTH);
    let denies = OPEN4args {
        share_deny: OPEN4_SHARE_DENY_READ,
        share_access: undelegated(&b, READ),
        ..opening(&b, "o", "f")
    };
    assert_eq!(world.open(&mut b, denies).unwrap_err(), NFS4ERR_DELAY);
    let called = world.called(a.conn);
    assert_eq!(called.len(), 1);
    assert_eq!(op_of(&called[0]), nfs_cb_opnum4::OP_CB_RECALL);
    let args = under(&a, BOTH, delegation);
    let opened = world.open_at(&mut a, at(&handle), args).unwrap();
    assert!(has_open(&opened));
    give_back(&mut world, &mut a, delegation, &handle);
    assert_eq!(counts(&world, &a), [1, 0, 0, 0]);
    let denied = world.open(&mut b, denies).unwrap_err();
    assert_eq!(denied, nfsstat4::NFS4ERR_SHARE_DENIED);
    let write = at(&handle).write(opened.stateid, 0, b"mine");
    assert_eq!(world.last(&mut a, write), NFS4_OK);
    let lock = at(&handle).op(arg::OP_LOCK(locking(&a, "l", opened.stateid)));
    assert_eq!(world.last(&mut a, lock), NFS4_OK);
}

#[test]
fn user_opens_under_a_delegation_what_it_was_allowed_when_it_was_given() {
    let mut world = World::new();
    let (mut a, mut b) = (world.client("a", 2), world.client("b", 2));
    let (handle, other) = (world.file(&mut b, "f"), world.file(&mut b, "g"));
    world.uid = 1000;
    let args = wants(&a, READ);
    let delegation = world.open(&mut a, args).unwrap().delegation.unwrap();
    world.uid = 0;
    let mut values = Vec::new();
    0o600u32.encode(&mut values);
    for handle in [&handle, &other] {
        let set = at(handle).op(arg::OP_SETATTR(SETATTR4args {
            stateid: ANONYMOUS,
            obj_attributes: fattr4 {
                attrmask: List::Of(&[0, 1 << (FATTR4_MODE - 32)]),
                attr_vals: Opaque(&values),
            },
        }));
        assert_eq!(world.last(&mut a, set), NFS4_OK);
    }
    let mut open = |uid, handle: &[u8], access| {
        world.uid = uid;
        let args = under(&a, access, delegation);
        world.open_at(&mut a, at(handle), args).map(drop)
    };
    let refused = Err(nfsstat4::NFS4ERR_ACCESS);
    assert_eq!(open(2000, &handle, READ), refused);
    assert_eq!(open(1000, &handle, BOTH), refused);
    assert_eq!(open(1000, &other, READ), refused);
    assert_eq!(open(1000, &handle, READ), Ok(()));
}

/// As with an open, whose CLOSE lets it go.
#[test]
fn removed_file_lives_until_its_delegation_is_returned() {
    for access in [READ, BOTH] {
        let (mut world, mut a, _, delegation, handle) = delegated(access);
        assert_eq!(world.last(&mut a, root().remove("f")), NFS4_OK);
        assert_eq!(world.last(&mut a, read(&handle, delegation)), NFS4_OK);
        give_back(&mut world, &mut a, delegation, &handle);
        let gone = world.last(&mut a, getattr(&handle, &[1 << FATTR4_SIZE]));
        assert_eq!(gone, NFS4ERR_STALE, "{access}");
    }
}

#[test]
fn removed_file_goes_with_the_delegation_that_is_revoked_or_whose_client_goes() {
    for is_evicted in [false, true] {
        let (mut world, mut a, mut b, delegation, handle) = delegated(READ);
        assert_eq!(world.last(&mut a, root().remove("f")), NFS4_OK);
        let writes = OPEN4args {
            share_access: undelegated(&b, WRITE),
            claim: open_claim4::CLAIM_FH,
            ..opening(&b, "o", "f")
        };
        match is_evicted {
            true => assert!(world.server.nfsd.evict(a.id)),
            false => {
                let delayed = world.open_at(&mut b, at(&handle), writes);
                assert_eq!(delayed.unwrap_err(), NFS4ERR_DELAY);
                let called = world.called(a.conn);
                world.answer(&a, &called[0], nfs_cb_opnum4::OP_CB_RECALL, NFS4_OK);
                for _ in 0..4 {
                    let size = getattr(&handle, &[1 << FATTR4_TYPE]);
                    assert_eq!(world.last(&mut b, size), NFS4_OK);
                    world.server.advance(30 * SECOND);
                    assert_eq!(world.last(&mut a, root()), NFS4_OK);
                }
                let revoked = world.last(&mut a, read(&handle, delegation));
                assert_ne!(revoked, NFS4_OK);
            }
        }
        world.server.advance(2 * SECOND);
        let gone = world.open_at(&mut b, at(&handle), writes);
        assert_eq!(gone.unwrap_err(), NFS4ERR_STALE, "{is_evicted}");
    }
}

#[test]
fn delegation_instead_of_an_open_is_reclaimed_as_such() {
    let (mut world, _, _, _, handle) = delegated(BOTH);
    world.restart();
    let mut a = world.returned("a", 2);
    let args = OPEN4args {
        claim: open_claim4::CLAIM_PREVIOUS(open_delegation_type4::OPEN_DELEGATE_WRITE),
        ..wants(&a, BOTH)
    };
    let opened = world.open_at(&mut a, at(&handle), args).unwrap();
    assert!(!has_open(&opened) && opened.may_write);
    assert_eq!(counts(&world, &a), [0, 0, 1, 0]);
}

/// The client asks anew, and holds the file once.
#[test]
fn delegation_ends_whose_open_was_never_answered() {
    let mut world = World::new();
    let (mut a, mut b) = (world.client("a", 2), world.client("b", 2));
    let handle = world.file(&mut b, "f");
    for (is_kept, wanted, [before, after]) in [
        (false, XOR, [[0, 0, 1, 0], [0; 4]]),
        (false, 0, [[1, 0, 1, 0], [1, 0, 0, 0]]),
        (true, 0, [[1, 0, 1, 0]; 2]),
    ] {
        world.keeps = is_kept;
        let args = OPEN4args {
            share_access: READ | wanted,
            ..opening(&a, "o", "f")
        };
        let ops = root().op(arg::OP_OPEN(args));
        world.run(&mut a, ops.clone());
        assert_eq!(counts(&world, &a), before, "{is_kept} {wanted}");
        let status = world.repeat(&mut a, ops).status;
        let expected = match is_kept {
            true => NFS4_OK,
            false => nfsstat4::NFS4ERR_RETRY_UNCACHED_REP,
        };
        assert_eq!(status, expected);
        assert_eq!(counts(&world, &a), after, "{is_kept} {wanted}");
    }
    world.keeps = false;
    let mut c = world.client("c", 2);
    let ops = root().op(arg::OP_OPEN(wants(&c, READ)));
    world.run(&mut c, ops.clone());
    world.repeat(&mut c, ops);
    assert!(world.server.evict(a.id));
    assert_eq!(world.last(&mut b, root().remove("f")), NFS4_OK);
    let gone = world.last(&mut b, getattr(&handle, &[1 << FATTR4_SIZE]));
    assert_eq!(gone, NFS4ERR_STALE, "nothing holds it");
}

#[test]
fn open_arguments_tells_what_open_understands() {
    let mut world = World::new();
    let mut a = world.client("a", 2);
    let handle = world.file(&mut a, "f");
    let asked = [0, 0, 1 << (FATTR4_OPEN_ARGUMENTS - 64)];
    let mut answer = world.run(&mut a, getattr(&handle, &asked));
    answer.ok(nfs_opnum4::OP_PUTFH).ok(nfs_opnum4::OP_GETATTR);
    let words: Vec<u32> = answer.with(|from| {
        let attributes = fattr4::decode(from).expect("attributes");
        let mut values = Reader::new(attributes.attr_vals.0);
        let word = |_| u32::decode(&mut values).expect("a word");
        (0..10).map(word).collect()
    });
    // Access, deny, wants, claims, ways to create: a bitmap of one word each.
    let wants = 1 << 3 | 1 << 4 | 1 << 20 | 1 << 21;
    assert_eq!(
        words,
        [1, 0b1110, 1, 0b1111, 1, wants, 1, 0b11_0111, 1, 0b1111]
    );
    // Whatever it tells of is no invalid argument.
    let args = OPEN4args {
        share_access: BOTH | XOR | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
        ..opening(&a, "o", "f")
    };
    let opened = world.open(&mut a, args).unwrap();
    assert!(has_open(&opened) && opened.delegation.is_none());
}
