//! Delegations of clients of version 4.0, which are called at their addresses.

use nfsd::callback::ClientCall;
use wire::nfs4::*;
use wire::xdr::{Encode, List, Opaque};

use crate::world::*;
use crate::write_delegations::{give_back, look, seen};
use nfs_argop4 as arg;
use nfsstat4::{NFS4_OK, NFS4ERR_DELAY};

const GETATTR: nfs_cb_opnum4 = nfs_cb_opnum4::OP_CB_GETATTR;
const RECALL: nfs_cb_opnum4 = nfs_cb_opnum4::OP_CB_RECALL;

/// A client of version 4.0 with an owner that is confirmed.
struct Old {
    client: Client,
    seqid: u32,
}

fn calls(world: &World) -> Vec<ClientCall> {
    world.server.nfsd.take_client_calls()
}

/// The only call that was made.
#[track_caller]
fn only_call(world: &World) -> ClientCall {
    let mut calls = calls(world);
    assert_eq!(calls.len(), 1, "{calls:?}");
    calls.remove(0)
}

/// A call is answered, by bytes behind those that accept it, or never.
fn answer(world: &mut World, call: &ClientCall, results: Option<&[u8]>) {
    let answer = results.map(|results| [&[0; 16][..], results].concat());
    let now = world.server.now();
    (world.server.nfsd).answered(call.id, answer.as_deref(), now);
}

/// CB_COMPOUND with one result.
fn result(op: nfs_cb_opnum4, status: nfsstat4, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    cb_compound_res_head {
        status,
        tag: Opaque(&[]),
        results: 1,
    }
    .encode(&mut bytes);
    op.encode(&mut bytes);
    status.encode(&mut bytes);
    bytes.extend(body);
    bytes
}

/// What a CB_COMPOUND of one operation is.
fn compound(op: nfs_cb_argop4<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    CB_COMPOUND4args {
        tag: Opaque(&[]),
        minorversion: 0,
        callback_ident: 1,
        argarray: List::Of(&[op]),
    }
    .encode(&mut bytes);
    bytes
}

fn recall(stateid: stateid4, handle: &[u8]) -> Vec<u8> {
    compound(nfs_cb_argop4::OP_CB_RECALL(CB_RECALL4args {
        stateid,
        truncate: false,
        fh: Opaque(handle),
    }))
}

/// A look at the size of a file, without a state id.
fn sized(ops: Ops) -> Ops {
    let request = [1 << FATTR4_SIZE];
    ops.op(arg::OP_GETATTR(GETATTR4args {
        attr_request: List::Of(&request),
    }))
}

/// The answer to CB_GETATTR that a file has 9 bytes.
fn says() -> Vec<u8> {
    let values = [1u64.to_be_bytes(), 9u64.to_be_bytes()].concat();
    let mut body = Vec::new();
    fattr4 {
        attrmask: List::Of(&[1 << FATTR4_CHANGE | 1 << FATTR4_SIZE]),
        attr_vals: Opaque(&values),
    }
    .encode(&mut body);
    result(GETATTR, NFS4_OK, &body)
}

impl Old {
    /// One whose owner has opened `other`; it has been called and has not answered.
    fn new(world: &mut World, name: &str, other: &[u8]) -> Old {
        let mut old = Old {
            client: world.client(name, 0),
            seqid: 0,
        };
        let opened = old.open(world, "other", READ).unwrap();
        assert_ne!(opened.rflags & OPEN4_RESULT_CONFIRM, 0);
        old.seqid += 1;
        let confirm = at(other).op(arg::OP_OPEN_CONFIRM(OPEN_CONFIRM4args {
            open_stateid: opened.stateid,
            seqid: old.seqid,
        }));
        assert_eq!(world.last(&mut old.client, confirm), NFS4_OK);
        old
    }

    fn open(
        &mut self,
        world: &mut World,
        name: &str,
        share_access: u32,
    ) -> Result<Opened, nfsstat4> {
        self.seqid += 1;
        let args = OPEN4args {
            seqid: self.seqid,
            share_access,
            ..opening(&self.client, "o", name)
        };
        world.open_at(&mut self.client, root(), args)
    }

    fn renew(&mut self, world: &mut World) -> nfsstat4 {
        let clientid = self.client.id;
        let ops = Ops::default().op(arg::OP_RENEW(RENEW4args { clientid }));
        world.last(&mut self.client, ops)
    }
}

/// A client of version 4.0 and one of 4.1, of which the first has a write delegation of a file
/// of 4 bytes.
fn delegated() -> (World, Old, Client, stateid4, Vec<u8>) {
    let mut world = World::new();
    let mut b = world.client("b", 1);
    let (other, handle) = (world.file(&mut b, "other"), world.file(&mut b, "f"));
    let mut a = Old::new(&mut world, "a", &other);
    let proof = only_call(&world);
    answer(&mut world, &proof, Some(&[]));
    let opened = a.open(&mut world, "f", BOTH).unwrap();
    let delegation = opened.delegation.expect("a write delegation");
    assert!(opened.may_write);
    let ops = at(&handle).write(delegation, 0, b"data");
    assert_eq!(world.last(&mut a.client, ops), NFS4_OK);
    (world, a, b, delegation, handle)
}

fn reads<'a>(client: &Client) -> OPEN4args<'a> {
    OPEN4args {
        share_access: undelegated(client, READ),
        ..opening(client, "r", "f")
    }
}

#[test]
fn client_of_version_0_has_delegations_once_it_has_answered_and_its_owner_is_confirmed() {
    let mut world = World::new();
    let mut b = world.client("b", 1);
    let other = world.file(&mut b, "other");
    world.file(&mut b, "f");
    let client = world.client("c", 0);
    let proof = only_call(&world);
    let expected = ClientCall {
        id: proof.id,
        to: "127.0.0.1:9".parse().unwrap(),
        local: None,
        called: (0x4000_0000, 1, 0),
        args: Vec::new(),
    };
    assert_eq!(proof, expected);
    answer(&mut world, &proof, Some(&[]));
    let mut c = Old { client, seqid: 0 };
    let opened = c.open(&mut world, "f", READ).unwrap();
    assert_ne!(opened.rflags & OPEN4_RESULT_CONFIRM, 0);
    assert_eq!(opened.delegation, None, "its owner may be none");
    let mut a = Old::new(&mut world, "a", &other);
    let opened = a.open(&mut world, "f", READ).unwrap();
    assert_eq!(opened.delegation, None, "it has not answered");
    let proof = only_call(&world);
    answer(&mut world, &proof, Some(&[]));
    let opened = a.open(&mut world, "f", READ).unwrap();
    assert!(opened.delegation.is_some() && !opened.may_write);
}

#[test]
fn client_of_version_0_that_does_not_answer_is_tried_again_after_a_while() {
    let mut world = World::new();
    let mut b = world.client("b", 1);
    let other = world.file(&mut b, "other");
    world.file(&mut b, "f");
    let mut a = Old::new(&mut world, "a", &other);
    only_call(&world);
    world.server.advance(11 * SECOND);
    assert_eq!(a.renew(&mut world), NFS4_OK, "it has no delegation");
    assert_eq!(a.open(&mut world, "f", READ).unwrap().delegation, None);
    assert_eq!(calls(&world), []);
    world.server.advance(61 * SECOND);
    assert_eq!(a.open(&mut world, "f", READ).unwrap().delegation, None);
    let proof = only_call(&world);
    // It does not have the program.
    let now = world.server.now();
    let unavailable = [&[0; 12][..], &[0, 0, 0, 1]].concat();
    (world.server.nfsd).answered(proof.id, Some(&unavailable), now);
    assert_eq!(a.open(&mut world, "f", READ).unwrap().delegation, None);
    assert_eq!(calls(&world), []);
}

#[test]
fn delegation_of_version_0_is_recalled_and_returned() {
    let (mut world, mut a, mut b, delegation, handle) = delegated();
    let args = reads(&b);
    assert_eq!(world.open(&mut b, args).unwrap_err(), NFS4ERR_DELAY);
    let call = only_call(&world);
    assert_eq!(call.called, (0x4000_0000, 1, 1));
    assert_eq!(call.args, recall(delegation, &handle));
    // It does not know the delegation yet: it is told again.
    let unknown = result(RECALL, nfsstat4::NFS4ERR_BAD_STATEID, &[]);
    answer(&mut world, &call, Some(&unknown));
    world.server.advance(SECOND);
    let call = only_call(&world);
    assert_eq!(call.args, recall(delegation, &handle));
    answer(&mut world, &call, Some(&result(RECALL, NFS4_OK, &[])));
    world.server.advance(SECOND);
    assert_eq!(calls(&world), []);
    assert_eq!(a.renew(&mut world), NFS4_OK);
    give_back(&mut world, &mut a.client, delegation, &handle);
    world.open(&mut b, args).unwrap();
}

#[test]
fn client_of_version_0_opens_under_its_delegation() {
    let (mut world, mut a, mut b, delegation, _) = delegated();
    let args = reads(&b);
    world.open(&mut b, args).unwrap_err();
    a.seqid += 1;
    let claim = open_claim_delegate_cur4 {
        delegate_stateid: delegation,
        file: Opaque(b"f"),
    };
    let under = OPEN4args {
        seqid: a.seqid,
        share_access: BOTH,
        claim: open_claim4::CLAIM_DELEGATE_CUR(claim),
        ..opening(&a.client, "o", "f")
    };
    world.open(&mut a.client, under).unwrap();
}

#[test]
fn other_clients_see_what_a_client_of_version_0_says_of_its_file() {
    let (mut world, mut a, mut b, delegation, handle) = delegated();
    // What it asks behind its own state id asks no client.
    let ops = sized(at(&handle).write(delegation, 0, b"more"));
    assert_eq!(world.last(&mut a.client, ops), NFS4_OK);
    assert_eq!(calls(&world), []);
    look(&mut world, &mut b, &handle);
    let call = only_call(&world);
    let asked = [1 << FATTR4_CHANGE | 1 << FATTR4_SIZE];
    let getattr = nfs_cb_argop4::OP_CB_GETATTR(CB_GETATTR4args {
        fh: Opaque(&handle),
        attr_request: List::Of(&asked),
    });
    assert_eq!(call.args, compound(getattr));
    answer(&mut world, &call, Some(&says()));
    world.server.advance(1);
    let (_, size) = seen(&mut world, &b).unwrap();
    assert_eq!(size, 9);
}

#[test]
fn client_of_version_0_may_look_at_its_file_just_before_it_ends_a_state() {
    let (mut world, mut a, mut b, deleg_stateid, handle) = delegated();
    let opened = a.open(&mut world, "f", BOTH).unwrap();
    a.seqid += 1;
    let closes = sized(at(&handle)).close(a.seqid, opened.stateid);
    assert_eq!(world.last(&mut a.client, closes), NFS4_OK);
    assert_eq!(calls(&world), [], "it is not asked");
    let args = reads(&b);
    world.open(&mut b, args).unwrap_err();
    only_call(&world);
    let returned = arg::OP_DELEGRETURN(DELEGRETURN4args { deleg_stateid });
    let returns = sized(at(&handle)).op(returned);
    assert_eq!(world.last(&mut a.client, returns), NFS4_OK);
    world.open(&mut b, args).unwrap();
}

#[test]
fn client_of_version_0_that_names_no_state_is_asked_of_its_own_file() {
    let (mut world, mut a, _, delegation, handle) = delegated();
    let conn = a.client.conn;
    world.send(conn, 0, &sized(at(&handle)));
    let call = only_call(&world);
    answer(&mut world, &call, Some(&says()));
    world.server.advance(1);
    let mut seen = world.arrived(conn);
    seen.ok(nfs_opnum4::OP_PUTFH).ok(nfs_opnum4::OP_GETATTR);
    // It returns what stands in its way, in its own time.
    let removes = root().remove("f");
    let status = world.last(&mut a.client, removes.clone());
    assert_eq!(status, NFS4ERR_DELAY);
    let call = only_call(&world);
    assert_eq!(call.args, recall(delegation, &handle));
    answer(&mut world, &call, Some(&result(RECALL, NFS4_OK, &[])));
    give_back(&mut world, &mut a.client, delegation, &handle);
    assert_eq!(world.last(&mut a.client, removes), NFS4_OK);
}

#[test]
fn client_of_version_0_learns_that_it_cannot_be_called_and_loses_its_delegation() {
    let (mut world, mut a, mut b, delegation, handle) = delegated();
    let args = reads(&b);
    world.open(&mut b, args).unwrap_err();
    assert_eq!(a.renew(&mut world), NFS4_OK);
    let call = only_call(&world);
    answer(&mut world, &call, None);
    let down = nfsstat4::NFS4ERR_CB_PATH_DOWN;
    assert_eq!(a.renew(&mut world), down);
    // It is called again and again, one call at a time.
    world.server.advance(SECOND);
    let again = only_call(&world);
    assert_eq!(again.args, recall(delegation, &handle));
    world.server.advance(5 * SECOND);
    assert_eq!(calls(&world), []);
    for _ in 0..4 {
        world.server.advance(22 * SECOND);
        let status = a.renew(&mut world);
        assert!([NFS4_OK, down].contains(&status), "its lease is renewed");
        world.open(&mut b, args).ok();
    }
    world.open(&mut b, args).unwrap();
    assert_eq!(a.renew(&mut world), NFS4_OK, "it has no delegation");
    let ops = at(&handle).write(delegation, 0, b"late");
    let bad = world.last(&mut a.client, ops);
    assert_eq!(bad, nfsstat4::NFS4ERR_BAD_STATEID);
}

#[test]
fn client_of_version_0_has_its_delegation_again_after_a_restart() {
    let (mut world, .., handle) = delegated();
    world.restart();
    let mut a = world.returned("a", 0);
    let args = OPEN4args {
        seqid: 1,
        share_access: BOTH,
        claim: open_claim4::CLAIM_PREVIOUS(open_delegation_type4::OPEN_DELEGATE_WRITE),
        ..opening(&a, "o", "f")
    };
    let opened = world.open_at(&mut a, at(&handle), args).unwrap();
    assert!(opened.may_write, "it is had again");
    let delegation = opened.delegation.expect("it is");
    let ops = at(&handle).write(delegation, 0, b"late");
    assert_eq!(world.last(&mut a, ops), NFS4_OK);
}

#[test]
fn clients_of_version_0_are_called_at_their_own_addresses_in_the_clear_alone() {
    let mut world = World::new();
    // It says that it takes calls on another host.
    let conn = world.server.connect("192.0.2.1:700".parse().unwrap());
    world.returned_on(conn, "a", 0);
    assert_eq!(calls(&world), []);
    world.returned_with("b", 0, &["client.example.org"]);
    assert_eq!(calls(&world), []);
    // What listens there may take the call of a service for its own.
    world.callback.0 = 100_005;
    world.returned("c", 0);
    assert_eq!(calls(&world), []);
    world.callback.0 = 0x5fff_ffff;
    world.returned("d", 0);
    assert_eq!(calls(&world).len(), 1);
}

#[test]
fn host_whose_clients_do_not_answer_has_no_more_than_its_calls() {
    let mut world = World::new();
    for at in 0..20 {
        world.client(&format!("client {at}"), 0);
    }
    assert_eq!(calls(&world).len(), 16);
    // They are given up, and others have their places.
    world.server.advance(11 * SECOND);
    world.client("one more", 0);
    assert_eq!(calls(&world).len(), 1);
}

#[test]
fn delegation_is_recalled_while_very_many_clients_do_not_answer() {
    let (mut world, _, mut b, delegation, handle) = delegated();
    for host in 2..12 {
        let address = format!("127.0.0.{host}");
        world.callback.1 = format!("{address}.0.9");
        for at in 0..16 {
            let conn = world
                .server
                .connect(format!("{address}:700").parse().unwrap());
            world.returned_on(conn, &format!("{host} {at}"), 0);
        }
    }
    assert_eq!(calls(&world).len(), 128);
    let args = reads(&b);
    world.open(&mut b, args).unwrap_err();
    assert_eq!(only_call(&world).args, recall(delegation, &handle));
}
