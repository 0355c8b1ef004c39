//! Several R2Ts for a command, alignment, data in the capsule with a tail.

use wire::nvme_tcp::R2t;

use super::*;

/// A host with `maxr2t` (0's based) and HPDA 0, against a controller that asks
/// for 4096 bytes at a time.
fn live(maxr2t: u32, pdus: Pdus, cpda: u8) -> Peer {
    let settings = Settings {
        r2t_bytes_max: 4096,
        cpda,
        ..settings()
    };
    let mut peer = Peer::fresh(1, true);
    peer.target.end.machine = Qpair::new(settings, 0);
    peer.pdus = pdus;
    let answers = peer.send(&pdus.ic_req_with(0, maxr2t));
    assert_eq!(answers[0].1[10], cpda);
    let connect = pdus.align(pdus.capsule_cmd(&connect_sqe(), &[0; 1024]), cpda);
    assert_eq!(status(&peer.send(&connect)[0].1), (77, Status::SUCCESS));
    peer
}

/// (TTAG, offset, length) of R2Ts for `cid`.
fn r2ts(answers: &[(u8, Vec<u8>)], cid: u16) -> Vec<(u16, u32, u32)> {
    let one = |(kind, bytes): &(u8, Vec<u8>)| {
        assert_eq!(*kind, pdu_type::R2T);
        let r2t: &R2t = view(bytes);
        assert_eq!(r2t.cccid.get(), cid);
        (r2t.ttag.get(), r2t.r2to.get(), r2t.r2tl.get())
    };
    answers.iter().map(one).collect()
}

fn piece(peer: &Peer, cid: u16, r2t: (u16, u32, u32), from: u32, len: u32, of: &[u8]) -> Vec<u8> {
    let (ttag, offset, r2t_len) = r2t;
    let last = if from + len == r2t_len {
        flags::LAST_PDU
    } else {
        0
    };
    let at = offset + from;
    let data = &of[at as usize..(at + len) as usize];
    peer.pdus
        .data(pdu_type::H2C_DATA, last, (cid, ttag), at, data)
}

#[test]
fn as_many_are_outstanding_as_the_host_takes() {
    let large = rw(io::WRITE, 1, 0, 16 * 8, Sgl::TRANSPORT);
    for (maxr2t, expected) in [(0, 1), (1, 2), (3, 4), (7, 8), (100, 8), (u32::MAX, 8)] {
        let mut peer = live(maxr2t, Pdus::default(), 0);
        let r2ts = r2ts(&peer.command(&large, &[]), 1);
        assert_eq!(r2ts.len(), expected, "MAXR2T {maxr2t}");
        let len = if maxr2t == 0 { 65_536 } else { 4096 };
        for (n, r2t) in r2ts.iter().enumerate() {
            assert_eq!((r2t.1, r2t.2), (n as u32 * len, len));
        }
        let mut ttags: Vec<_> = r2ts.iter().map(|r2t| r2t.0).collect();
        ttags.dedup();
        assert_eq!(ttags.len(), expected, "each with a tag of its own");
    }
}

#[test]
fn r2ts_are_answered_in_any_order_and_interleaved() {
    let pdus = Pdus {
        header_digest: true,
        data_digest: true,
    };
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        for len in [4096, 1024, 1364] {
            let mut peer = live(2, pdus, 0);
            let data = pattern(8, 5 * 4096 + 512);
            let write = rw(io::WRITE, 1, 8, 41, Sgl::TRANSPORT);
            let mut open = r2ts(&peer.command(&write, &[]), 1);
            let mut answers = Vec::new();
            let mut asked = open.len();
            let mut next: Vec<u32> = vec![0; 6];
            while !open.is_empty() {
                // One PDU for each R2T in turn, in the order of the case.
                for n in order {
                    let Some(r2t) = open.get(n).copied() else {
                        continue;
                    };
                    let at = &mut next[(r2t.1 / 4096) as usize];
                    let len = (r2t.2 - *at).min(len);
                    let bytes = piece(&peer, 1, r2t, *at, len, &data);
                    *at += len;
                    answers.extend(peer.send(&bytes));
                }
                open.retain(|r2t| next[(r2t.1 / 4096) as usize] < r2t.2);
                let fresh: Vec<_> = answers.extract_if(.., |a| a.0 == pdu_type::R2T).collect();
                asked += fresh.len();
                open.extend(r2ts(&fresh, 1));
                assert!(open.len() <= 3, "never more than the host takes");
            }
            assert_eq!(asked, 6);
            assert_eq!(status(&answers[0].1), (1, Status::SUCCESS));
            assert!(peer.target.media[8 * BLOCK..49 * BLOCK] == data);
            assert_eq!(peer.target.end.machine.recv_plan().stage_max, STAGE_LARGE);
        }
    }
}

#[test]
fn data_keeps_to_what_its_r2t_asked_for() {
    let all = vec![0; 16_384];
    for (name, which, at, len, last, fes) in [
        ("into the next R2T's", 0, 4096, 4096, true, 4),
        ("into the one's before", 1, 0, 4096, true, 4),
        ("across the end", 0, 0, 4100, true, 4),
        ("not its first byte", 0, 4, 4092, true, 2),
        ("LAST in the middle", 0, 0, 2048, true, 2),
        ("no LAST at the end", 0, 0, 4096, false, 2),
    ] {
        let mut peer = live(3, Pdus::default(), 0);
        let write = rw(io::WRITE, 1, 0, 32, Sgl::TRANSPORT);
        let open = r2ts(&peer.command(&write, &[]), 1);
        let flags = if last { flags::LAST_PDU } else { 0 };
        let ids = (1, open[which].0);
        let bytes = peer
            .pdus
            .data(pdu_type::H2C_DATA, flags, ids, at, &all[..len]);
        malformed::expect_term(name, &peer.send(&bytes), &bytes, fes, 0);
    }
}

#[test]
fn an_abort_ends_all_of_them() {
    let mut peer = live(1, Pdus::default(), 0);
    let before = peer.target.media.clone();
    let data = pattern(8, 16_384);
    let open = r2ts(
        &peer.command(&rw(io::WRITE, 1, 0, 32, Sgl::TRANSPORT), &[]),
        1,
    );
    peer.target.end.machine.abort(1);
    for (n, r2t) in open.iter().enumerate().rev() {
        let answers = peer.send(&piece(&peer, 1, *r2t, 0, 4096, &data));
        assert_eq!(answers.len(), usize::from(n == 0), "no R2T follows");
        if n == 0 {
            assert_eq!(status(&answers[0].1), (1, Status::ABORT_REQUESTED));
        }
    }
    assert!(peer.target.media == before && peer.in_flight() == 0);
}

#[test]
fn a_capsule_may_carry_the_first_part() {
    for digests in [false, true] {
        let pdus = Pdus {
            header_digest: digests,
            data_digest: digests,
        };
        for first in [4, 512, 4096, 8188] {
            for maxr2t in [0, 1] {
                let mut peer = live(maxr2t, pdus, 0);
                let data = pattern(8, 8192);
                let write = rw(io::WRITE, 1, 0, 16, Sgl::TRANSPORT);
                let mut answers = peer.command(&write, &data[..first]);
                let mut at = first as u32;
                while answers[0].0 == pdu_type::R2T {
                    let open = r2ts(&answers, 1);
                    assert!(open.len() <= maxr2t as usize + 1);
                    answers.clear();
                    for r2t in open {
                        assert_eq!(r2t.1, at, "only what the capsule did not have");
                        at += r2t.2;
                        answers.extend(peer.send(&piece(&peer, 1, r2t, 0, r2t.2, &data)));
                    }
                }
                assert_eq!((at, status(&answers[0].1)), (8192, (1, Status::SUCCESS)));
                assert!(peer.target.media[..8192] == data);
            }
        }
        let mut peer = live(0, pdus, 0);
        let whole = rw(io::WRITE, 1, 0, 1, Sgl::TRANSPORT);
        assert_eq!(
            peer.status_of(&whole, &pattern(3, 512)),
            Status::SUCCESS,
            "nothing is left to ask for"
        );
        assert!(peer.target.media[..512] == pattern(3, 512));
    }
}

#[test]
fn data_from_the_host_is_aligned_to_cpda() {
    for digests in [false, true] {
        let pdus = Pdus {
            header_digest: digests,
            data_digest: digests,
        };
        for cpda in [0, 1, 2, 6, 31] {
            let mut peer = live(0, pdus, cpda);
            let data = pattern(4, 512);
            let plain = pdus.capsule_cmd(&rw(io::WRITE, 1, 0, 1, Sgl::IN_CAPSULE), &data);
            let aligned = pdus.align(plain.clone(), cpda);
            assert_eq!(status(&peer.send(&aligned)[0].1), (1, Status::SUCCESS));
            assert!(peer.target.media[..512] == data);
            let is_aligned = plain == aligned;
            let answers = peer.send(&plain);
            if is_aligned {
                assert_eq!(status(&answers[0].1), (1, Status::SUCCESS));
            } else {
                malformed::expect_term("PDO", &answers, &plain, 1, 3);
            }
        }
    }
}

/// What the driver is told of the staged bytes decides whether it places data
/// where it stays: never a byte too early.
#[test]
fn data_is_staged_when_all_of_it_is_at_hand() {
    for digests in [false, true] {
        let pdus = Pdus {
            header_digest: digests,
            data_digest: digests,
        };
        let whole = rw(io::WRITE, 1, 0, 1, Sgl::IN_CAPSULE);
        let part = rw(io::WRITE, 1, 0, 2, Sgl::TRANSPORT);
        for sqe in [whole, part] {
            let bytes = pdus.capsule_cmd(&sqe, &[7; 512]);
            let header = bytes.len() - 512 - if digests { 4 } else { 0 };
            for at_hand in [header, header + 1, bytes.len() - 1, bytes.len()] {
                let mut peer = live(0, pdus, 0);
                let mut stream: VecDeque<u8> = bytes[..at_hand].iter().copied().collect();
                peer.target.end.receive(&mut stream, usize::MAX);
                let Some(Op::Prepare { tag, staged, .. }) = peer.target.end.next_op() else {
                    panic!("it asks for memory");
                };
                let is_all = at_hand == bytes.len() && sqe == whole;
                assert_eq!(staged, is_all, "{at_hand} of {}", bytes.len());
                peer.target.end.set_memory(tag, vec![0; 1024]);
                peer.target.end.machine.prepared(tag);
                let next = peer.target.end.next_op();
                assert_eq!(matches!(next, Some(Op::Execute { .. })), is_all);
            }
        }
    }
}

#[test]
fn trickling_bytes_do_not_move_the_deadline() {
    let mut peer = Peer::fresh(1, true);
    let deadline = peer.target.end.machine.deadline().expect("there is one");
    let connect = Pdus::default().capsule_cmd(&connect_sqe(), &[0; 1024]);
    let bytes = [Pdus::default().ic_req(0), connect].concat();
    for byte in &bytes[..bytes.len() - 1] {
        peer.send(&[*byte]);
        assert_eq!(peer.target.end.machine.deadline(), Some(deadline));
    }
    peer.target.end.machine.on_deadline(deadline);
    assert!(peer.target.end.machine.is_finished());
}

#[test]
fn termination_requests_are_understood() {
    use wire::nvme_tcp::fes_name;
    for fes in 0..=8 {
        for fei in [0, 4, u32::MAX] {
            let mut peer = Peer::io();
            let mut term = TermReq::new(pdu_type::H2C_TERM_REQ, Fes::PduSequenceError, fei, &[]).0;
            term.fes = fes.into();
            peer.send(term.as_bytes());
            let name = fes_name(fes, true).unwrap_or("reserved status");
            assert_eq!(
                peer.target.fatal,
                Some(FatalError::Received { fes, fei, name })
            );
        }
    }
    // One whose length is wrong is no request, but ends the connection as well.
    for (at, value) in [(4, 23), (4, 153), (5, 1), (2, 25)] {
        let mut peer = Peer::io();
        let (term, _) = TermReq::new(pdu_type::H2C_TERM_REQ, Fes::PduSequenceError, 0, &[]);
        let mut bytes = term.as_bytes().to_vec();
        bytes[at] = value;
        assert_eq!(peer.send(&bytes), []);
        assert_eq!(peer.target.fatal, Some(FatalError::Garbled));
        assert!(peer.target.end.machine.is_finished());
    }
}
