//! Write delegations: which opens have them, what ends them, and what others see of a file
//! that a client writes unseen.

use wire::nfs4::*;
use wire::xdr::{Decode, Encode, List, Opaque, Reader};

use crate::world::*;
use nfs_argop4 as arg;
use nfsstat4::{NFS4_OK, NFS4ERR_DELAY};

const GETATTR: nfs_cb_opnum4 = nfs_cb_opnum4::OP_CB_GETATTR;
const RECALL: nfs_cb_opnum4 = nfs_cb_opnum4::OP_CB_RECALL;

/// An OPEN by name, with this access.
fn opens<'a>(client: &Client, owner: &'a str, share_access: u32) -> OPEN4args<'a> {
    OPEN4args {
        share_access,
        ..opening(client, owner, "f")
    }
}

/// Two clients, of which the first has a write delegation of a file of 4 bytes.
pub fn delegated(minor: u32) -> (World, Client, Client, stateid4, Vec<u8>) {
    let mut world = World::new();
    let (mut a, mut b) = (world.client("a", minor), world.client("b", 1));
    let (stateid, handle) = world.create(&mut b, "maker", "f");
    let ops = at(&handle).write(stateid, 0, b"data").close(0, stateid);
    assert_eq!(world.last(&mut b, ops), NFS4_OK);
    let args = opens(&a, "o", BOTH);
    let opened = world.open(&mut a, args).unwrap();
    assert!(opened.may_write, "{:?}", opened.why_none);
    let delegation = opened.delegation.expect("a write delegation");
    (world, a, b, delegation, handle)
}

fn read(handle: &[u8], stateid: stateid4) -> Ops {
    at(handle).op(arg::OP_READ(READ4args {
        stateid,
        offset: 0,
        count: 4,
    }))
}

pub fn give_back(world: &mut World, client: &mut Client, stateid: stateid4, handle: &[u8]) {
    let args = DELEGRETURN4args {
        deleg_stateid: stateid,
    };
    let ops = at(handle).op(arg::OP_DELEGRETURN(args));
    assert_eq!(world.last(client, ops), NFS4_OK);
}

/// Which operation a call of the server's has.
pub fn op_of(called: &Called) -> nfs_cb_opnum4 {
    nfs_cb_opnum4::decode(&mut Reader::new(&called.op)).expect("its number")
}

#[test]
fn open_to_write_by_the_only_opener_has_a_write_delegation() {
    let mut world = World::new();
    let (mut a, mut b) = (world.client("a", 1), world.client("b", 1));
    // Also of a file that it makes.
    let makes = OPEN4args {
        openhow: openflag4::OPEN4_CREATE(createhow4::UNCHECKED4(mode())),
        ..opens(&a, "o", WRITE)
    };
    let opened = world.open(&mut a, makes).unwrap();
    assert!(opened.may_write, "{:?}", opened.why_none);
    // Its own opens neither end it nor bring another.
    let args = opens(&a, "p", BOTH);
    assert_eq!(world.open(&mut a, args).unwrap().delegation, None);
    assert!(world.called(a.conn).is_empty());
    world.file(&mut b, "g");
    let of_g = |client: &Client, access| OPEN4args {
        share_access: access,
        ..opening(client, "o", "g")
    };
    let reads = of_g(&b, undelegated(&b, READ));
    world.open(&mut b, reads).unwrap();
    let args = of_g(&a, WRITE | OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG);
    let opened = world.open(&mut a, args).unwrap();
    let resource = why_no_delegation4::WND4_RESOURCE;
    assert_eq!(opened.why_none, Some(resource), "another reads it");
    world.file(&mut b, "h");
    let args = OPEN4args {
        share_access: BOTH | OPEN4_SHARE_ACCESS_WANT_READ_DELEG,
        ..opening(&a, "o", "h")
    };
    let opened = world.open(&mut a, args).unwrap();
    assert_eq!(opened.delegation, None, "one of reading is of no use");
}

#[test]
fn client_reads_writes_locks_and_opens_under_its_write_delegation() {
    let (mut world, mut a, _, delegation, handle) = delegated(2);
    let write = at(&handle).write(delegation, 0, b"mine");
    assert_eq!(world.last(&mut a, write), NFS4_OK);
    assert_eq!(world.last(&mut a, read(&handle, delegation)), NFS4_OK);
    let under = OPEN4args {
        share_access: BOTH,
        claim: open_claim4::CLAIM_DELEG_CUR_FH(delegation),
        ..opening(&a, "p", "f")
    };
    let opened = world.open_at(&mut a, at(&handle), under).unwrap();
    let lock = locking(&a, "l", opened.stateid);
    let ops = at(&handle).op(arg::OP_LOCK(lock));
    assert_eq!(world.last(&mut a, ops), NFS4_OK);
    assert!(world.called(a.conn).is_empty());
    give_back(&mut world, &mut a, delegation, &handle);
}

#[test]
fn owner_opens_under_its_write_delegation_what_it_has_taken_the_bits_of_since() {
    let (mut world, mut a, _, delegation, handle) = delegated(1);
    let mut values = Vec::new();
    0o444u32.encode(&mut values);
    Opaque::<8>(b"1000").encode(&mut values);
    let change = at(&handle).op(arg::OP_SETATTR(SETATTR4args {
        stateid: ANONYMOUS,
        obj_attributes: fattr4 {
            attrmask: List::Of(&[0, 1 << (FATTR4_MODE - 32) | 1 << (FATTR4_OWNER - 32)]),
            attr_vals: Opaque(&values),
        },
    }));
    assert_eq!(world.last(&mut a, change), NFS4_OK);
    let under = |uid: u32, world: &mut World, a: &mut Client| {
        world.uid = uid;
        let args = OPEN4args {
            share_access: BOTH,
            claim: open_claim4::CLAIM_DELEG_CUR_FH(delegation),
            ..opening(a, "p", "f")
        };
        world.open_at(a, at(&handle), args).map(drop)
    };
    assert_eq!(under(1000, &mut world, &mut a), Ok(()));
    let others = under(2000, &mut world, &mut a);
    assert_eq!(others, Err(nfsstat4::NFS4ERR_ACCESS));
}

/// What another client does that must see what the first one has written.
const LOOKS: [fn(&Client, &[u8]) -> Ops; 4] = [
    |client, _| root().op(arg::OP_OPEN(opens(client, "r", READ))),
    |_, handle| read(handle, ANONYMOUS),
    |_, handle| {
        let stateid = stateid4 {
            seqid: u32::MAX,
            other: [0xff; 12],
        };
        read(handle, stateid)
    },
    |client, handle| {
        at(handle).op(arg::OP_LOCKT(LOCKT4args {
            locktype: nfs_lock_type4::READ_LT,
            offset: 0,
            length: 1,
            owner: state_owner4 {
                clientid: client.id,
                owner: Opaque(b"l"),
            },
        }))
    },
];

#[test]
fn whatever_looks_at_a_file_recalls_its_write_delegation() {
    for (index, looks) in LOOKS.into_iter().enumerate() {
        let (mut world, mut a, mut b, delegation, handle) = delegated(1);
        let ops = looks(&b, &handle);
        let delayed = world.last(&mut b, ops.clone());
        assert_eq!(delayed, NFS4ERR_DELAY, "{index}");
        let called = world.called(a.conn);
        assert_eq!(called.len(), 1, "{index}");
        assert_eq!(op_of(&called[0]), RECALL, "{index}");
        world.answer(&a, &called[0], RECALL, NFS4_OK);
        let write = at(&handle).write(delegation, 0, b"mine");
        assert_eq!(world.last(&mut a, write), NFS4_OK, "{index}: it flushes");
        assert_eq!(world.last(&mut b, ops.clone()), NFS4ERR_DELAY, "{index}");
        give_back(&mut world, &mut a, delegation, &handle);
        assert_eq!(world.last(&mut b, ops), NFS4_OK, "{index}");
    }
}

/// GETATTR of `change` and `size`, sent.
pub fn look(world: &mut World, client: &mut Client, handle: &[u8]) {
    let request = [1 << FATTR4_CHANGE | 1 << FATTR4_SIZE];
    let ops = at(handle).op(arg::OP_GETATTR(GETATTR4args {
        attr_request: List::Of(&request),
    }));
    // What was said before this moment does not count.
    world.server.advance(1);
    client.sequence += 1;
    let ops = world.sequenced(client, &ops);
    world.send(client.conn, client.minor, &ops);
}

/// What it came to.
pub fn seen(world: &mut World, client: &Client) -> Result<(u64, u64), nfsstat4> {
    let mut answer = world.arrived(client.conn);
    let _: SEQUENCE4resok = answer.ok(nfs_opnum4::OP_SEQUENCE).get();
    answer.ok(nfs_opnum4::OP_PUTFH);
    match answer.next(nfs_opnum4::OP_GETATTR) {
        NFS4_OK => Ok(answer.with(|from| {
            let attributes = fattr4::decode(from).expect("attributes");
            let values = &mut Reader::new(attributes.attr_vals.0);
            let change = u64::decode(values).expect("change");
            (change, u64::decode(values).expect("size"))
        })),
        status => Err(status),
    }
}

/// The client with the delegation answers CB_GETATTR.
pub fn say(world: &mut World, client: &Client, handle: &[u8], (change, size): (u64, u64)) {
    let called = world.called(client.conn);
    let mut asked = Vec::new();
    let request = [1 << FATTR4_CHANGE | 1 << FATTR4_SIZE];
    nfs_cb_argop4::OP_CB_GETATTR(CB_GETATTR4args {
        fh: Opaque(handle),
        attr_request: List::Of(&request),
    })
    .encode(&mut asked);
    assert_eq!(called.len(), 1);
    assert_eq!(called[0].op, asked);
    let values = [change.to_be_bytes(), size.to_be_bytes()].concat();
    let mut result = Vec::new();
    fattr4 {
        attrmask: List::Of(&[request[0], 0, 0]),
        attr_vals: Opaque(&values),
    }
    .encode(&mut result);
    world.answer_with(client, &called[0], (GETATTR, NFS4_OK, &result));
}

#[test]
fn other_clients_see_size_and_change_of_a_file_that_its_client_has_changed() {
    let (mut world, mut a, mut b, delegation, handle) = delegated(1);
    look(&mut world, &mut a, &handle);
    let given = seen(&mut world, &a).unwrap();
    assert_eq!(given.1, 4, "its own view asks no client");
    // Nothing was changed.
    look(&mut world, &mut b, &handle);
    assert!(world.server.sent(b.conn).is_empty(), "it waits");
    say(&mut world, &a, &handle, given);
    assert_eq!(seen(&mut world, &b), Ok(given));
    // Each look asks anew, and what was changed may change again meanwhile. Users who may not
    // write the file look too.
    let mut before = given.0;
    for (size, uid) in [(9, 0), (9, 2000), (4, 0)] {
        world.uid = uid;
        look(&mut world, &mut b, &handle);
        say(&mut world, &a, &handle, (given.0 + 1, size));
        let (change, told) = seen(&mut world, &b).unwrap();
        assert_eq!(told, size);
        assert!(change > before, "{change} after {before}");
        before = change;
    }
    world.uid = 0;
    // What it has flushed is changed no more.
    let write = at(&handle).write(delegation, 0, b"longer");
    assert_eq!(world.last(&mut a, write), NFS4_OK);
    look(&mut world, &mut b, &handle);
    say(&mut world, &a, &handle, (given.0, 6));
    let (change, size) = seen(&mut world, &b).unwrap();
    assert!(change > before && size == 6);
    give_back(&mut world, &mut a, delegation, &handle);
    look(&mut world, &mut b, &handle);
    assert_eq!(seen(&mut world, &b), Ok((change, 6)));
}

#[test]
fn client_that_cannot_say_what_its_file_is_like_returns_the_delegation() {
    let (mut world, a, mut b, _, handle) = delegated(1);
    look(&mut world, &mut b, &handle);
    let called = world.called(a.conn);
    let unknown = nfsstat4::NFS4ERR_BADHANDLE;
    world.answer(&a, &called[0], GETATTR, unknown);
    assert_eq!(seen(&mut world, &b), Err(NFS4ERR_DELAY));
    assert_eq!(op_of(&world.called(a.conn)[0]), RECALL);
}

#[test]
fn client_that_does_not_say_what_its_file_is_like_returns_the_delegation() {
    let (mut world, mut a, mut b, delegation, handle) = delegated(1);
    look(&mut world, &mut b, &handle);
    assert_eq!(world.called(a.conn).len(), 1);
    world.server.advance(SECOND / 10);
    assert!(world.server.sent(b.conn).is_empty(), "it waits");
    world.server.advance(SECOND / 10);
    assert_eq!(seen(&mut world, &b), Err(NFS4ERR_DELAY));
    assert_eq!(op_of(&world.called(a.conn)[0]), RECALL);
    give_back(&mut world, &mut a, delegation, &handle);
    look(&mut world, &mut b, &handle);
    assert!(seen(&mut world, &b).is_ok());
}

#[test]
fn write_delegation_is_had_again_after_a_restart() {
    let (mut world, .., handle) = delegated(1);
    world.restart();
    let mut a = world.returned("a", 1);
    let reclaims = |client: &Client, access, kind| OPEN4args {
        share_access: access,
        claim: open_claim4::CLAIM_PREVIOUS(kind),
        ..opening(client, "o", "f")
    };
    let write = open_delegation_type4::OPEN_DELEGATE_WRITE;
    // One that only read was not allowed to write.
    let args = reclaims(&a, READ, write);
    let opened = world.open_at(&mut a, at(&handle), args).unwrap();
    assert_eq!(opened.delegation, None);
    let args = reclaims(&a, BOTH, write);
    let opened = world.open_at(&mut a, at(&handle), args).unwrap();
    let delegation = opened.delegation.expect("it is had again");
    assert!(opened.may_write);
    let ops = at(&handle).write(delegation, 0, b"late");
    assert_eq!(world.last(&mut a, ops), NFS4_OK);
}
