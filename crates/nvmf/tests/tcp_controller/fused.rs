use std::collections::BTreeMap;

use super::*;

const FIRST: u8 = Sqe::FUSE_FIRST;
const SECOND: u8 = Sqe::FUSE_SECOND;

/// A command of a pair: two blocks at block 10, its data in the capsule.
fn half(opcode: u8, cid: u16, fuse: u8) -> Sqe {
    let mut sqe = rw(opcode, cid, 10, 2, Sgl::IN_CAPSULE);
    sqe.flags |= fuse;
    sqe
}

fn by_r2t(mut sqe: Sqe) -> Sqe {
    sqe.sgl.id = Sgl::TRANSPORT;
    sqe
}

/// The statuses by CID in `answers`, and the CIDs in order.
fn statuses(answers: &[(u8, Vec<u8>)]) -> (BTreeMap<u16, Status>, Vec<u16>) {
    let responses: Vec<_> = answers
        .iter()
        .filter(|(kind, _)| *kind == pdu_type::CAPSULE_RESP)
        .map(|(_, bytes)| status(bytes))
        .collect();
    let order = responses.iter().map(|(cid, _)| *cid).collect();
    (responses.into_iter().collect(), order)
}

fn there(peer: &Peer) -> Vec<u8> {
    peer.target.media[10 * BLOCK..12 * BLOCK].to_vec()
}

fn io_of(peer: &Peer, tag: Tag) -> Io {
    match *peer.target.end.machine.queue().command(tag) {
        Command::Io(io) => io,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pair_is_one_operation() {
    let mut peer = Peer::io();
    let (old, new) = (there(&peer), pattern(9, 1024));
    let mut write = half(io::WRITE, 2, SECOND);
    write.cdw12 = (write.cdw12.get() | cdw12::FUA).into();
    let mut bytes = peer.pdus.capsule_cmd(&half(io::COMPARE, 1, FIRST), &old);
    bytes.extend(peer.pdus.capsule_cmd(&write, &new));
    let mut stream: VecDeque<u8> = bytes.into();
    assert_eq!(
        peer.target.end.receive(&mut stream, usize::MAX),
        2 * (72 + 1024)
    );
    let Some(Op::Prepare {
        tag: compare,
        staged: false,
        ..
    }) = peer.target.end.next_op()
    else {
        panic!("the Compare asks for memory, and is not executed at once");
    };
    assert_eq!(io_of(&peer, compare).kind, IoKind::Compare);
    peer.target.end.set_memory(compare, vec![0; 1024]);
    peer.target.end.machine.prepared(compare);
    let Some(Op::Prepare {
        tag: write,
        staged: false,
        ..
    }) = peer.target.end.next_op()
    else {
        panic!("so does the Write");
    };
    assert_eq!(io_of(&peer, write).kind, IoKind::CompareAndWrite);
    peer.target.end.set_memory(write, vec![0; 1024]);
    peer.target.end.machine.prepared(write);
    let op = peer.target.end.next_op();
    let expected = Io {
        kind: IoKind::CompareAndWrite,
        namespace: 0,
        offset: 5120,
        len: 1024,
        fua: true,
        deallocate: false,
        copy_format: 0,
    };
    assert_eq!(op, Some(Op::ExecuteFused { compare, write }));
    assert_eq!(io_of(&peer, write), expected);
    assert_eq!(
        (peer.target.end.next_op(), peer.target.end.memory.clone()),
        (None, vec![old, new])
    );
    peer.target.fused.push((compare, write, expected));
    peer.target.named = vec![true; 2];
    let answers = peer.send(&[]);
    assert_eq!(statuses(&answers).1, [1, 2], "the Compare first");
    assert_eq!((there(&peer), peer.in_flight()), (pattern(9, 1024), 0));
}

#[test]
fn a_failed_compare_fails_the_write() {
    let mut peer = Peer::io();
    let old = there(&peer);
    let mut bytes = peer
        .pdus
        .capsule_cmd(&half(io::COMPARE, 1, FIRST), &[1; 1024]);
    bytes.extend(
        peer.pdus
            .capsule_cmd(&half(io::WRITE, 2, SECOND), &[2; 1024]),
    );
    let (statuses, _) = statuses(&peer.send(&bytes));
    assert_eq!(statuses[&1], Status::COMPARE_FAILURE);
    assert_eq!(statuses[&2], Status::FUSED_FAILED);
    assert!(there(&peer) == old);
}

/// Data of the two commands may arrive in any order and in pieces.
#[test]
fn data_of_a_pair_may_interleave() {
    let (first, second) = (half(io::COMPARE, 1, FIRST), half(io::WRITE, 2, SECOND));
    let new = pattern(9, 1024);
    for (first, second) in [
        (by_r2t(first), second),
        (first, by_r2t(second)),
        (by_r2t(first), by_r2t(second)),
    ] {
        for second_first in [false, true] {
            let mut peer = Peer::io();
            let old = there(&peer);
            let data = |sqe: &Sqe, data: &[u8]| match sqe.sgl.id {
                Sgl::TRANSPORT => Vec::new(),
                _ => data.to_vec(),
            };
            let mut bytes = peer.pdus.capsule_cmd(&first, &data(&first, &old));
            bytes.extend(peer.pdus.capsule_cmd(&second, &data(&second, &new)));
            let r2ts = peer.send(&bytes);
            assert!(r2ts.iter().all(|(kind, _)| *kind == pdu_type::R2T));
            assert!(
                there(&peer) == old,
                "nothing is written before it is compared"
            );
            let mut transfers: Vec<_> = r2ts
                .iter()
                .map(|(_, bytes)| {
                    let r2t: &wire::nvme_tcp::R2t = view(bytes);
                    let cid = r2t.cccid.get();
                    ((cid, r2t.ttag.get()), if cid == 1 { &old } else { &new })
                })
                .collect();
            if second_first {
                transfers.reverse();
            }
            let mut answers = Vec::new();
            for (from, last) in [(0, 0), (512, flags::LAST_PDU)] {
                for (ids, data) in &transfers {
                    let piece = &data[from..from + 512];
                    let pdu = peer
                        .pdus
                        .data(pdu_type::H2C_DATA, last, *ids, from as u32, piece);
                    answers.extend(peer.send(&pdu));
                }
            }
            let (got, order) = statuses(&answers);
            assert!(got.values().all(|status| *status == Status::SUCCESS));
            assert_eq!((order, there(&peer) == new), (vec![1, 2], true));
            assert_eq!(peer.in_flight(), 0);
        }
    }
}

/// What is sent, and what each CID is answered with.
type Case = (&'static str, Vec<Sqe>, Vec<(u16, Status)>);

#[test]
fn halves_without_their_partner_are_refused() {
    let first = half(io::COMPARE, 1, FIRST);
    let second = half(io::WRITE, 2, SECOND);
    let edit = |mut sqe: Sqe, edit: &dyn Fn(&mut Sqe)| {
        edit(&mut sqe);
        sqe
    };
    let protected = |sqe| edit(sqe, &|sqe| sqe.nsid = 2.into());
    let far = |sqe| edit(sqe, &|sqe| sqe.set_blocks(BLOCKS as u64, 2));
    let both = edit(first, &|sqe| sqe.flags |= SECOND);
    let prp = edit(second, &|sqe| sqe.flags &= !Sqe::PSDT_MASK);
    let plain = rw(io::WRITE, 3, 10, 2, Sgl::IN_CAPSULE);
    let disconnect = Sqe {
        cid: 9.into(),
        ..Disconnect { recfmt: 1 }.encode()
    };
    let third = half(io::WRITE, 3, SECOND);
    const OK: Status = Status::SUCCESS;
    const MISSING: Status = Status::FUSED_MISSING;
    const FAILED: Status = Status::FUSED_FAILED;
    let invalid = Status::INVALID_FIELD.dnr();
    let cases: Vec<Case> = vec![
        ("a second alone", vec![second], vec![(2, MISSING)]),
        (
            "plain between",
            vec![first, plain, second],
            vec![(1, MISSING), (3, OK), (2, MISSING)],
        ),
        (
            "a Fabrics command between",
            vec![first, disconnect, second],
            vec![
                (1, MISSING),
                (9, Status::CONNECT_FORMAT.dnr()),
                (2, MISSING),
            ],
        ),
        (
            "a first between",
            vec![first, half(io::COMPARE, 4, FIRST), second],
            vec![(1, MISSING), (4, OK), (2, OK)],
        ),
        (
            "two seconds",
            vec![first, second, third],
            vec![(1, OK), (2, OK), (3, MISSING)],
        ),
        (
            "a bad first",
            vec![far(first), second],
            vec![(1, Status::LBA_OUT_OF_RANGE.dnr()), (2, FAILED)],
        ),
        (
            "a bad first is forgotten behind another command",
            vec![far(first), plain, second],
            vec![(1, Status::LBA_OUT_OF_RANGE.dnr()), (3, OK), (2, MISSING)],
        ),
        (
            "a bad second",
            vec![first, far(second)],
            vec![(1, FAILED), (2, Status::LBA_OUT_OF_RANGE.dnr())],
        ),
        (
            "another range",
            vec![first, edit(second, &|sqe| sqe.set_blocks(11, 2))],
            vec![(1, invalid), (2, invalid)],
        ),
        (
            "a protected namespace",
            vec![protected(first), protected(second)],
            vec![(1, FAILED), (2, Status::WRITE_PROTECTED.dnr())],
        ),
        (
            "another namespace",
            vec![protected(first), second],
            vec![(1, invalid), (2, invalid)],
        ),
        (
            "no Compare",
            vec![half(io::WRITE, 1, FIRST), second],
            vec![(1, invalid), (2, FAILED)],
        ),
        (
            "no Write",
            vec![first, half(io::COMPARE, 2, SECOND)],
            vec![(1, invalid), (2, invalid)],
        ),
        ("reserved FUSE", vec![both], vec![(1, invalid)]),
        ("PRPs", vec![first, prp], vec![(1, invalid), (2, invalid)]),
        (
            "the same CID",
            vec![first, edit(second, &|sqe| sqe.cid = 1.into())],
            vec![(1, Status::CID_CONFLICT.dnr()), (1, FAILED)],
        ),
    ];
    for (name, commands, mut expected) in cases {
        let mut peer = Peer::io();
        let old = there(&peer);
        let mut bytes = Vec::new();
        for sqe in &commands {
            let data = if sqe.opcode == FABRICS { &[][..] } else { &old };
            bytes.extend(peer.pdus.capsule_cmd(sqe, data));
        }
        let answers = peer.send(&bytes);
        let mut got: Vec<_> = answers.iter().map(|(_, bytes)| status(bytes)).collect();
        got.sort_by_key(|(cid, status)| (*cid, status.0));
        expected.sort_by_key(|(cid, status)| (*cid, status.0));
        assert_eq!(got, expected, "{name}");
        assert_eq!(peer.in_flight(), 0, "{name}");
        assert!(peer.target.named.iter().all(|named| !named), "{name}");
        let read = peer.command(&rw(io::READ, 5, 0, 1, Sgl::TRANSPORT), &[]);
        assert_eq!(read[0].0, pdu_type::C2H_DATA, "{name}: the stream goes on");
    }
}

#[test]
fn a_refusal_is_told_for_the_error_log() {
    let mut peer = Peer::io();
    let mut bytes = peer
        .pdus
        .capsule_cmd(&half(io::COMPARE, 1, FIRST), &[0; 1024]);
    bytes.extend(
        peer.pdus
            .capsule_cmd(&rw(io::READ, 2, 0, 1, Sgl::TRANSPORT), &[]),
    );
    peer.send(&bytes);
    let refused = RefusedCommand {
        cid: 1,
        status: Status::FUSED_MISSING,
        nsid: 1,
        slba: 10,
        location: Some(1),
    };
    assert_eq!(peer.target.refused, [refused]);
}

#[test]
fn damaged_data_fails_the_pair() {
    let pdus = Pdus {
        header_digest: false,
        data_digest: true,
    };
    for damaged in [0, 1] {
        for late in [false, true] {
            let mut peer = Peer::live(1, true, pdus);
            let old = there(&peer);
            let mut halves = [half(io::COMPARE, 1, FIRST), half(io::WRITE, 2, SECOND)];
            let mut capsules: Vec<Vec<u8>> = Vec::new();
            for (n, sqe) in halves.iter_mut().enumerate() {
                // The whole one's data comes before or after the damaged one's.
                let is_late = late && n != damaged;
                *sqe = if is_late { by_r2t(*sqe) } else { *sqe };
                let data = if is_late { &[][..] } else { &old };
                capsules.push(pdus.capsule_cmd(sqe, data));
            }
            capsules[damaged][100] ^= 1;
            let mut answers = peer.send(&capsules.concat());
            if late {
                let cid = [2, 1][damaged];
                let r2t = answers.iter().find(|(kind, _)| *kind == pdu_type::R2T);
                if let Some((_, bytes)) = r2t {
                    let ttag = view::<wire::nvme_tcp::R2t>(bytes).ttag.get();
                    let data = pdus.data(pdu_type::H2C_DATA, flags::LAST_PDU, (cid, ttag), 0, &old);
                    answers.extend(peer.send(&data));
                }
            }
            let (statuses, _) = statuses(&answers);
            let cids = [1 + damaged as u16, 2 - damaged as u16];
            assert_eq!(statuses[&cids[0]], Status::TRANSIENT_TRANSPORT);
            assert_eq!(statuses[&cids[1]], Status::FUSED_FAILED);
            assert_eq!(peer.in_flight(), 0);
            assert!(there(&peer) == old);
        }
    }
}

#[test]
fn a_driver_without_memory_fails_the_pair() {
    for refuse_second in [false, true] {
        let mut peer = Peer::io();
        let write = by_r2t(half(io::WRITE, 2, SECOND));
        peer.push(
            &peer
                .pdus
                .capsule_cmd(&by_r2t(half(io::COMPARE, 1, FIRST)), &[]),
        );
        peer.push(&peer.pdus.capsule_cmd(&write, &[]));
        let refused = peer.target.starved.remove(usize::from(refuse_second)).0;
        let status = Status::COMMAND_INTERRUPTED;
        peer.target.end.machine.complete(refused, status.into());
        let mut answers = peer.transmit(9);
        assert_eq!(answers.len(), 1, "the other is in the driver's hands");
        peer.target.feed(0);
        answers.extend(peer.transmit(9));
        let (statuses, _) = statuses(&answers);
        let failed = 1 + u16::from(refuse_second);
        assert_eq!(statuses[&failed], status);
        assert_eq!(statuses[&(3 - failed)], Status::FUSED_FAILED);
        peer.send(&[]);
        let told: Vec<_> = peer.target.refused.iter().map(|told| told.cid).collect();
        assert_eq!(told, [3 - failed], "the driver knows what it refused");
        assert_eq!(peer.in_flight(), 0);
    }
}

#[test]
fn an_aborted_half_fails_the_other() {
    let mut peer = Peer::io();
    let old = there(&peer);
    peer.send(&peer.pdus.capsule_cmd(&half(io::COMPARE, 1, FIRST), &old));
    assert_eq!(peer.in_flight(), 1, "it waits for its partner");
    let outcome = peer.target.end.machine.abort(1);
    assert_eq!(outcome, AbortOutcome::Aborted(0));
    let answers = peer.command(&half(io::WRITE, 2, SECOND), &[7; 1024]);
    let (statuses, _) = statuses(&answers);
    assert_eq!(statuses[&1], Status::ABORT_REQUESTED);
    assert_eq!(statuses[&2], Status::FUSED_FAILED);
    assert!(there(&peer) == old);
}
