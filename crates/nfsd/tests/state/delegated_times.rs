//! Times of files that are delegated to the client that writes them (RFC 9754, section 5).

use wire::nfs4::*;
use wire::xdr::{Decode, Encode, List, Opaque, Reader};

use crate::world::*;
use crate::write_delegations::{give_back, op_of};
use nfs_argop4 as arg;
use nfsstat4::{NFS4_OK, NFS4ERR_BAD_STATEID, NFS4ERR_DELAY, NFS4ERR_INVAL};

const TIMES: u32 = OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS;
const GETATTR: nfs_cb_opnum4 = nfs_cb_opnum4::OP_CB_GETATTR;
const DELEGATED: [u32; 3] = [
    0,
    0,
    1 << (FATTR4_TIME_DELEG_ACCESS - 64) | 1 << (FATTR4_TIME_DELEG_MODIFY - 64),
];
/// Of the user that owns the file, and of one that does not, which may write it.
const USERS: [u32; 2] = [1000, 2000];

fn wants<'a>(client: &Client, access: u32) -> OPEN4args<'a> {
    OPEN4args {
        share_access: access | TIMES,
        ..opening(client, "o", "f")
    }
}

/// Two clients, of which the first has a write delegation of `f` with its times; of a user.
fn delegated_to(uid: u32) -> (World, Client, Client, stateid4, Vec<u8>) {
    let mut world = World::new();
    let (mut a, mut b) = (world.client("a", 2), world.client("b", 2));
    let handle = world.file(&mut b, "f");
    let mut values = Vec::new();
    0o666u32.encode(&mut values);
    Opaque::<8>(b"1000").encode(&mut values);
    let mask = [0, 1 << (FATTR4_MODE - 32) | 1 << (FATTR4_OWNER - 32)];
    let set = setattr(&handle, ANONYMOUS, &mask, &values);
    assert_eq!(world.last(&mut b, set), NFS4_OK);
    world.server.advance(60 * SECOND);
    let args = wants(&a, BOTH);
    world.uid = uid;
    let opened = world.open(&mut a, args).unwrap();
    world.uid = 0;
    assert!(opened.may_write && opened.delegates_times);
    let delegation = opened.delegation.expect("no other client has it open");
    (world, a, b, delegation, handle)
}

/// The same of the file's owner.
fn delegated() -> (World, Client, Client, stateid4, Vec<u8>) {
    delegated_to(USERS[0])
}

fn setattr(handle: &[u8], stateid: stateid4, mask: &[u32], values: &[u8]) -> Ops {
    at(handle).op(arg::OP_SETATTR(SETATTR4args {
        stateid,
        obj_attributes: fattr4 {
            attrmask: List::Of(mask),
            attr_vals: Opaque(values),
        },
    }))
}

/// Seconds of the last read and the last change, encoded.
fn encoded((accessed, modified): (i64, i64)) -> Vec<u8> {
    let mut values = Vec::new();
    for seconds in [accessed, modified] {
        let nseconds = 7;
        nfstime4 { seconds, nseconds }.encode(&mut values);
    }
    values
}

/// SETATTR of both times by a delegation.
fn says(handle: &[u8], stateid: stateid4, times: (i64, i64)) -> Ops {
    setattr(handle, stateid, &DELEGATED, &encoded(times))
}

fn look(handle: &[u8]) -> Ops {
    let times = 1 << (FATTR4_TIME_ACCESS - 32) | 1 << (FATTR4_TIME_MODIFY - 32);
    let request = [1 << FATTR4_CHANGE, times];
    at(handle).op(arg::OP_GETATTR(GETATTR4args {
        attr_request: List::Of(&request),
    }))
}

/// `change`, and the seconds of both times.
fn seen(answer: &mut Answer) -> (u64, (i64, i64)) {
    answer.ok(nfs_opnum4::OP_PUTFH).ok(nfs_opnum4::OP_GETATTR);
    answer.with(|from| {
        let attributes = fattr4::decode(from).expect("attributes");
        let values = &mut Reader::new(attributes.attr_vals.0);
        let change = u64::decode(values).expect("change");
        let mut time = || nfstime4::decode(values).expect("a time").seconds;
        (change, (time(), time()))
    })
}

/// What the server has, as the client with the delegation sees it.
fn kept(world: &mut World, client: &mut Client, handle: &[u8]) -> (u64, (i64, i64)) {
    seen(&mut world.run(client, look(handle)))
}

/// Another client looks; the first one is asked and says this.
fn seen_by_other(
    world: &mut World,
    (a, b): (&Client, &mut Client),
    handle: &[u8],
    said: (u64, u64, Vec<u8>),
) -> Option<(u64, (i64, i64))> {
    world.server.advance(1);
    b.sequence += 1;
    let ops = world.sequenced(b, &look(handle));
    world.send(b.conn, b.minor, &ops);
    let called = world.called(a.conn);
    assert_eq!(called.len(), 1);
    let mask = [1 << FATTR4_CHANGE | 1 << FATTR4_SIZE, 0, DELEGATED[2]];
    let mut asked = Vec::new();
    nfs_cb_argop4::OP_CB_GETATTR(CB_GETATTR4args {
        fh: Opaque(handle),
        attr_request: List::Of(&mask),
    })
    .encode(&mut asked);
    assert_eq!(called[0].op, asked);
    let (change, size, times) = said;
    let values = [&change.to_be_bytes()[..], &size.to_be_bytes(), &times].concat();
    let mut result = Vec::new();
    fattr4 {
        attrmask: List::Of(&mask),
        attr_vals: Opaque(&values),
    }
    .encode(&mut result);
    world.answer_with(a, &called[0], (GETATTR, NFS4_OK, &result));
    let mut answer = world.arrived(b.conn);
    let _: SEQUENCE4resok = answer.ok(nfs_opnum4::OP_SEQUENCE).get();
    match answer.status {
        NFS4_OK => Some(seen(&mut answer)),
        status => {
            assert_eq!(status, NFS4ERR_DELAY);
            None
        }
    }
}

#[test]
fn times_are_delegated_with_a_write_delegation_that_is_to_have_them() {
    let (mut world, mut a, mut b, ..) = delegated();
    let handle = world.file(&mut b, "g");
    let reads = OPEN4args {
        claim: open_claim4::CLAIM_FH,
        ..wants(&a, READ)
    };
    let opened = world.open_at(&mut a, at(&handle), reads).unwrap();
    assert!(!opened.delegates_times);
    let set = says(&handle, opened.delegation.expect("one of reading"), (7, 7));
    assert_eq!(world.last(&mut a, set), NFS4ERR_BAD_STATEID);
    let mut old = world.client("old", 1);
    let args = wants(&old, BOTH);
    assert_eq!(world.open(&mut old, args).map(drop), Err(NFS4ERR_INVAL));
    let kind = open_delegation_type4::OPEN_DELEGATE_WRITE_ATTRS_DELEG;
    let reclaims = OPEN4args {
        claim: open_claim4::CLAIM_PREVIOUS(kind),
        ..opening(&old, "o", "f")
    };
    let refused = world.open_at(&mut old, at(&handle), reclaims).map(drop);
    assert_eq!(refused, Err(nfsstat4::NFS4ERR_BADXDR));
}

#[test]
fn client_sets_the_times_that_are_delegated_to_it() {
    let (mut world, mut a, _, delegation, handle) = delegated();
    world.uid = USERS[0];
    let now = 1_000_060;
    for (said, is_set) in [
        ((now - 20, now - 10), (now - 20, now - 10)),
        // Older than they were, and in time to come.
        ((5, -6), (5, -6)),
        ((now + 3600, now + 3600), (now, now)),
    ] {
        let set = says(&handle, delegation, said);
        assert_eq!(world.last(&mut a, set), NFS4_OK);
        assert_eq!(kept(&mut world, &mut a, &handle).1, is_set);
    }
    // That is no change which keeps the file from being delegated again.
    give_back(&mut world, &mut a, delegation, &handle);
    let args = OPEN4args {
        owner: state_owner4 {
            clientid: a.id,
            owner: Opaque(b"p"),
        },
        ..wants(&a, BOTH)
    };
    assert!(world.open(&mut a, args).unwrap().delegates_times);
}

#[test]
fn user_that_does_not_own_a_file_makes_it_no_older_by_a_delegation() {
    let (mut world, mut a, _, delegation, handle) = delegated();
    world.uid = USERS[1];
    let (_, (accessed, _)) = kept(&mut world, &mut a, &handle);
    let now = 1_000_060;
    let set = says(&handle, delegation, (5, now - 10));
    assert_eq!(world.last(&mut a, set), NFS4_OK);
    let times = kept(&mut world, &mut a, &handle).1;
    assert_eq!(times, (accessed, now - 10));
}

#[test]
fn times_are_set_so_by_no_client_that_they_are_not_delegated_to() {
    let (mut world, mut a, mut b, delegation, handle) = delegated();
    let before = kept(&mut world, &mut a, &handle);
    let refused = |stateid, status, world: &mut World, client: &mut Client| {
        let set = says(&handle, stateid, (7, 7));
        assert_eq!(world.last(client, set), status, "{stateid:?}");
    };
    refused(ANONYMOUS, NFS4ERR_BAD_STATEID, &mut world, &mut a);
    refused(delegation, NFS4ERR_BAD_STATEID, &mut world, &mut b);
    let under = OPEN4args {
        claim: open_claim4::CLAIM_DELEG_CUR_FH(delegation),
        ..wants(&a, BOTH)
    };
    let opened = world.open_at(&mut a, at(&handle), under).unwrap();
    refused(opened.stateid, NFS4ERR_BAD_STATEID, &mut world, &mut a);
    // A delegation without times.
    let other = world.file(&mut b, "g");
    let plain = opening(&a, "o", "g");
    let plain = OPEN4args {
        share_access: BOTH,
        ..plain
    };
    let opened = world.open(&mut a, plain).unwrap();
    assert!(opened.may_write && !opened.delegates_times);
    let set = says(&other, opened.delegation.unwrap(), (7, 7));
    assert_eq!(world.last(&mut a, set), NFS4ERR_BAD_STATEID);
    assert_eq!(kept(&mut world, &mut a, &handle), before);
}

#[test]
fn delegated_times_that_make_no_sense_are_refused() {
    let (mut world, mut a, _, delegation, handle) = delegated();
    let mut bad = encoded((7, 7));
    bad[8..12].copy_from_slice(&1_000_000_000u32.to_be_bytes());
    let set = setattr(&handle, delegation, &DELEGATED, &bad);
    assert_eq!(world.last(&mut a, set), NFS4ERR_INVAL);
    // A time that is set in both ways.
    let mask = [0, 1 << (FATTR4_TIME_MODIFY_SET - 32), DELEGATED[2]];
    let mut both = Vec::new();
    settime4::SET_TO_SERVER_TIME4.encode(&mut both);
    both.extend(encoded((7, 7)));
    let set = setattr(&handle, delegation, &mask, &both);
    assert_eq!(world.last(&mut a, set), NFS4ERR_INVAL);
    // What is being made is not delegated yet.
    let values = encoded((7, 7));
    let made = fattr4 {
        attrmask: List::Of(&DELEGATED),
        attr_vals: Opaque(&values),
    };
    let args = OPEN4args {
        openhow: openflag4::OPEN4_CREATE(createhow4::GUARDED4(made)),
        ..opening(&a, "q", "new")
    };
    assert_eq!(world.open(&mut a, args).map(drop), Err(NFS4ERR_INVAL));
}

/// What other users see of what a client says: whether it has changed the content, the times, what
/// is shown, and whether that is a change.
type Said = (bool, (i64, i64), (i64, i64), bool);

fn look_at_all(uid: u32, all: &[Said]) {
    let (mut world, mut a, mut b, _, handle) = delegated_to(uid);
    let (given, _) = kept(&mut world, &mut a, &handle);
    let mut before = given;
    for (at, &(is_modified, said, shown, is_change)) in all.iter().enumerate() {
        // Whoever looks.
        world.uid = [0, USERS[0], USERS[1], 3000][at % 4];
        let said = (given + u64::from(is_modified), 0, encoded(said));
        let seen = seen_by_other(&mut world, (&a, &mut b), &handle, said);
        let (change, times) = seen.expect("it is told");
        assert_eq!(times, shown, "{at}");
        assert_eq!(change > before, is_change, "{at}");
        before = change;
    }
}

#[test]
fn other_clients_see_the_times_that_the_client_of_the_owner_says() {
    let now = 1_000_060;
    let read = now - 5;
    look_at_all(
        USERS[0],
        &[
            // Set there, the content as it was.
            (false, (read, now - 30), (read, now - 30), true),
            (false, (read, now - 30), (read, now - 30), false),
            (false, (9, 9), (9, 9), true),
            // A time to come is none.
            (false, (9, now + 3600), (9, 9), false),
            // Changed there.
            (true, (read, now - 20), (read, now - 20), true),
            (true, (read, now + 3600), (read, now), true),
            (true, (read, 9), (read, 9), true),
        ],
    );
}

#[test]
fn other_clients_see_no_older_times_that_the_client_of_another_user_says() {
    let now = 1_000_060;
    let read = now - 5;
    look_at_all(
        USERS[1],
        &[
            (false, (read, now - 30), (read, now - 30), true),
            (false, (9, 9), (read, now - 30), false),
            (true, (9, 9), (read, now - 30), true),
            (true, (read, now - 20), (read, now - 20), true),
        ],
    );
}

#[test]
fn user_that_does_not_own_a_file_changes_it_now_where_it_cuts_it_off() {
    let (mut world, mut a, _, delegation, handle) = delegated_to(USERS[1]);
    world.uid = USERS[1];
    let mask = [1 << FATTR4_SIZE, 0, 1 << (FATTR4_TIME_DELEG_MODIFY - 64)];
    let mut values = 2u64.to_be_bytes().to_vec();
    values.extend(&encoded((7, 7))[12..]);
    let set = setattr(&handle, delegation, &mask, &values);
    assert_eq!(world.last(&mut a, set), NFS4_OK);
    assert_eq!(kept(&mut world, &mut a, &handle).1.1, 1_000_060);
}

#[test]
fn client_that_says_no_times_that_make_sense_returns_the_delegation() {
    for times in [Vec::new(), vec![0xff; 24]] {
        let (mut world, a, mut b, _, handle) = delegated();
        let said = (1, 0, times);
        let seen = seen_by_other(&mut world, (&a, &mut b), &handle, said);
        assert_eq!(seen, None);
        let recall = world.called(a.conn);
        assert_eq!(op_of(&recall[0]), nfs_cb_opnum4::OP_CB_RECALL);
    }
}

#[test]
fn times_are_delegated_again_after_a_restart() {
    let (mut world, .., handle) = delegated();
    world.restart();
    let mut a = world.returned("a", 2);
    let kind = open_delegation_type4::OPEN_DELEGATE_WRITE_ATTRS_DELEG;
    let args = OPEN4args {
        share_access: BOTH,
        claim: open_claim4::CLAIM_PREVIOUS(kind),
        ..opening(&a, "o", "f")
    };
    let opened = world.open_at(&mut a, at(&handle), args).unwrap();
    assert!(opened.may_write && opened.delegates_times);
    let set = says(&handle, opened.delegation.unwrap(), (9, 9));
    assert_eq!(world.last(&mut a, set), NFS4_OK);
}
