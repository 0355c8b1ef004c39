use std::collections::VecDeque;

use machine::Machine;
use testkit::End;
use testkit::nfs::call::{CompoundPart, call_header, compound, cut, record};
use wire::nfs4::nfs_opnum4 as op;
use wire::nfs4::{compound_res_head, nfs_opnum4};
use wire::xdr::Opaque;

use super::*;
use crate::connection::{Connection, RpcServerSettings, ServerOp};

/// Operations of a COMPOUND by their words, with how many are said to be.
fn call(minor: u32, count: u32, words: &[u32], data: &[u8]) -> Vec<u8> {
    let mut bytes = call_header(1, |_| {});
    compound_head {
        tag: Opaque(b"tagged"),
        minorversion: minor,
        ops: count,
    }
    .encode(&mut bytes);
    words.iter().for_each(|word| word.encode(&mut bytes));
    bytes.extend(data);
    bytes
}

/// A connection on which `call` has come, and its tag.
fn received(settings: RpcServerSettings, call: &[u8]) -> (End<Connection>, Tag) {
    let mut end = End::new(Connection::new(settings, 0));
    let mut stream: VecDeque<u8> = record(call, || usize::MAX).into();
    loop {
        end.receive(&mut stream, usize::MAX);
        match end.next_op() {
            Some(ServerOp::Prepare { tag, len, .. }) => {
                end.set_memory(tag, vec![0; len as usize]);
                end.machine.prepared(tag);
            }
            Some(ServerOp::Call { tag }) => return (end, tag),
            other => panic!("{other:?}"),
        }
    }
}

/// Operations that were executed, and whether they had data; the status and the
/// results of the answer.
type Executed = (Vec<(nfs_opnum4, bool)>, nfsstat4, Vec<(u32, u32)>);

/// Executes a call, with success wherever it may be executed: what was
/// executed, and the status and results as they were sent.
fn execute(call: &[u8]) -> Executed {
    let settings = RpcServerSettings {
        ops_max: 4,
        ..RpcServerSettings::default()
    };
    let (mut end, tag) = received(settings, call);
    let machine = &mut end.machine;
    let (call, reply) = machine.call_and_reply(tag);
    let mut compound = Compound::begin(&call, reply);
    let mut executed = Vec::new();
    loop {
        match compound.next(call.args, &call) {
            Next::Op(number, payload) => {
                let mut from = Reader::new(&call.args[compound.op_at as usize..]);
                assert_eq!(
                    compound.last_op(call.args),
                    nfs_argop4::decode(&mut from).unwrap()
                );
                compound.at = compound.op_at + from.position() as u32;
                executed.push((number, payload.is_some()));
                compound.result(number, nfsstat4::NFS4_OK, reply);
            }
            Next::Refused(number, status) => compound.result(number, status, reply),
            Next::End => break,
        }
    }
    compound.end(reply);
    machine.send(tag);
    let mut out = VecDeque::new();
    while end.machine.has_transmit() {
        end.transmit(&mut out, 1);
    }
    let answer = cut(&mut out).remove(0);
    let mut from = Reader::new(&answer[24..]);
    let head = compound_res_head::decode(&mut from).unwrap();
    assert_eq!(head.tag, Opaque(b"tagged"));
    let results: Vec<_> = (0..head.results)
        .map(|_| {
            (
                u32::decode(&mut from).unwrap(),
                u32::decode(&mut from).unwrap(),
            )
        })
        .collect();
    assert!(from.rest().is_empty());
    (executed, head.status, results)
}

const SEQUENCE: [u32; 9] = [53, 0, 0, 0, 0, 1, 0, 0, 0];

fn with_sequence(words: &[u32]) -> Vec<u32> {
    [&SEQUENCE[..], words].concat()
}

#[test]
fn operations_out_of_their_minor_version_or_place_are_refused() {
    use nfsstat4::*;
    const ROOT: u32 = op::OP_PUTROOTFH as u32;
    const DESTROY: [u32; 3] = [57, 0, 1];
    let cases: Vec<(u32, u32, Vec<u32>, usize, nfsstat4)> = vec![
        (0, 0, vec![], 0, NFS4_OK),
        (0, 2, vec![ROOT, ROOT], 2, NFS4_OK),
        (3, 1, vec![ROOT], 0, NFS4ERR_MINOR_VERS_MISMATCH),
        // 4.0 has no sessions, 4.1 nothing of 4.2.
        (0, 1, SEQUENCE.to_vec(), 0, NFS4ERR_OP_ILLEGAL),
        (1, 2, with_sequence(&[69]), 1, NFS4ERR_OP_ILLEGAL),
        (2, 2, with_sequence(&[76]), 1, NFS4ERR_OP_ILLEGAL),
        (2, 2, with_sequence(&[2]), 1, NFS4ERR_OP_ILLEGAL),
        (1, 2, with_sequence(&[30, 0, 0]), 1, NFS4ERR_NOTSUPP),
        (0, 1, vec![30, 0, 0], 1, NFS4_OK),
        // pNFS is not there.
        (1, 2, with_sequence(&[50]), 1, NFS4ERR_NOTSUPP),
        (1, 1, vec![ROOT], 0, NFS4ERR_OP_NOT_IN_SESSION),
        (1, 2, with_sequence(&SEQUENCE), 1, NFS4ERR_SEQUENCE_POS),
        (1, 1, DESTROY.to_vec(), 1, NFS4_OK),
        (
            1,
            2,
            [&DESTROY[..], &[ROOT]].concat(),
            0,
            NFS4ERR_NOT_ONLY_OP,
        ),
        (1, 2, with_sequence(&DESTROY), 2, NFS4_OK),
        (1, 2, with_sequence(&[41]), 1, NFS4ERR_NOT_ONLY_OP),
        // Cut short.
        (1, 2, with_sequence(&[]), 1, NFS4ERR_BADXDR),
        (1, 2, with_sequence(&[9]), 1, NFS4ERR_BADXDR),
        // Too many.
        (0, 5, vec![ROOT; 5], 4, NFS4ERR_RESOURCE),
        (1, 5, with_sequence(&[ROOT; 4]), 4, NFS4ERR_TOO_MANY_OPS),
    ];
    for (minor, count, words, executed, status) in cases {
        let (done, found, results) = execute(&call(minor, count, &words, &[]));
        let case = format!("4.{minor}: {count} of {words:?}");
        assert_eq!((done.len(), found), (executed, status), "{case}");
        let has_error = status != NFS4_OK && status != NFS4ERR_MINOR_VERS_MISMATCH;
        assert_eq!(results.len(), executed + usize::from(has_error), "{case}");
        if has_error {
            let (number, last) = results[executed];
            assert_eq!(last, status as u32, "{case}");
            assert_eq!(
                number == 10044,
                status == NFS4ERR_OP_ILLEGAL || words.len() == 9 && count == 2,
                "{case}"
            );
        }
    }
}

#[test]
fn each_write_has_its_data() {
    let (wire, _) = compound(&[
        CompoundPart::Write(0, vec![1; 5]),
        CompoundPart::Write(0, vec![]),
        CompoundPart::Write(8, vec![2; 9]),
    ]);
    // Only the operations: the tag, minor version and count are our own.
    let ops = &wire[4 + 4 + 4 + 4..];
    let (executed, status, _) = execute(&call(0, 3, &[], ops));
    assert_eq!(status, nfsstat4::NFS4_OK);
    let write = op::OP_WRITE;
    assert_eq!(executed, [(write, true), (write, false), (write, true)]);
}

#[test]
fn a_result_that_is_too_long_is_replaced_by_an_error() {
    let (mut end, tag) = received(RpcServerSettings::default(), &call(0, 2, &[24, 24], &[]));
    let (call, reply) = end.machine.call_and_reply(tag);
    let mut compound = Compound::begin(&call, reply);
    compound.next(call.args, &call);
    let mark = reply.mark();
    compound.result(op::OP_PUTROOTFH, nfsstat4::NFS4_OK, reply);
    reply.bytes().extend([0; 1000]);
    compound.replace_result(mark, op::OP_PUTROOTFH, nfsstat4::NFS4ERR_REP_TOO_BIG, reply);
    assert_eq!(compound.next(call.args, &call), Next::End);
    compound.end(reply);
    let mut from = Reader::new(reply.results());
    let head = compound_res_head::decode(&mut from).unwrap();
    assert_eq!(
        (head.status, head.results),
        (nfsstat4::NFS4ERR_REP_TOO_BIG, 1)
    );
    assert_eq!(from.rest().len(), 8);
    assert_eq!(
        (compound.taken(), compound.ops(), compound.minor()),
        (1, 2, 0)
    );
}
