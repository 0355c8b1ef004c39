use std::collections::VecDeque;

use wire::nvme::{ConnectCommand, Cqe, io};
use wire::nvme_tcp::TermReq;

use super::*;
use testkit::End;
use testkit::nvme::{Pdus, cut};

const MAXH2CDATA: u32 = 4096;

/// A controller that writes its own bytes, against a host.
struct Peer {
    end: End<Qpair>,
    pdus: Pdus,
    ops: Vec<Op>,
}

impl Peer {
    fn fresh(pdus: Pdus) -> Peer {
        Peer::with(pdus, 0, 0)
    }

    fn with(pdus: Pdus, hpda: u8, maxr2t: u32) -> Peer {
        let settings = Settings {
            header_digest: pdus.header_digest,
            data_digest: pdus.data_digest,
            hpda,
            maxr2t,
            part_in_capsule: false,
        };
        Peer {
            end: End::new(Qpair::new(settings)),
            pdus,
            ops: Vec::new(),
        }
    }

    fn live(pdus: Pdus, cpda: u8) -> Peer {
        Peer::live_with(pdus, cpda, 0, 0)
    }

    fn live_with(pdus: Pdus, cpda: u8, hpda: u8, maxr2t: u32) -> Peer {
        let mut peer = Peer::with(pdus, hpda, maxr2t);
        let request = pdus.ic_req_with(hpda, maxr2t);
        assert_eq!(peer.sent(), [(pdu_type::IC_REQ, request)]);
        assert_eq!(peer.receive(&pdus.ic_resp(cpda, MAXH2CDATA)), [Op::Ready]);
        peer.end.machine.attach(HostRole {
            entries: 4,
            in_capsule_max: 512,
            flow_control_disabled: true,
        });
        peer
    }

    fn receive(&mut self, bytes: &[u8]) -> Vec<Op> {
        let mut stream: VecDeque<u8> = bytes.iter().copied().collect();
        while self.end.receive(&mut stream, usize::MAX) > 0 {
            while let Some(op) = self.end.next_op() {
                self.ops.push(op);
            }
        }
        std::mem::take(&mut self.ops)
    }

    fn sent(&mut self) -> Vec<(u8, Vec<u8>)> {
        let mut stream = VecDeque::new();
        self.end.transmit(&mut stream, usize::MAX);
        cut(&mut stream)
    }

    fn submit(&mut self, opcode: u8, data: Data, memory: Vec<u8>) -> (Tag, Vec<(u8, Vec<u8>)>) {
        let tag = self
            .end
            .machine
            .submit(&Sqe::new(opcode), data)
            .expect("there is room");
        self.end.set_memory(tag, memory);
        (tag, self.sent())
    }

    fn read(&mut self, len: u32) -> Tag {
        self.submit(io::READ, Data::In(len), vec![0; len as usize])
            .0
    }

    fn respond(&mut self, tag: Tag, status: Status) -> Vec<Op> {
        self.receive(&self.pdus.capsule_resp(Cqe::new(tag, status, 5, 0xffff)))
    }
}

fn completed(tag: Tag, status: Status, result: u64, data_len: u32) -> Op {
    let sqhd = 0xffff;
    Op::Completed {
        tag,
        cqe: Completion {
            status,
            result,
            sqhd,
            data_len,
        },
    }
}

fn sqe_of(pdu: &(u8, Vec<u8>)) -> Sqe {
    assert_eq!(pdu.0, pdu_type::CAPSULE_CMD);
    view::<CapsuleCmd>(&pdu.1).sqe
}

#[test]
fn no_command_is_sent_before_ic_resp() {
    let mut peer = Peer::fresh(Pdus::default());
    assert_eq!(
        peer.end.machine.submit(&Sqe::new(io::READ), Data::In(512)),
        None
    );
    let pdus = Pdus {
        header_digest: true,
        data_digest: true,
    };
    let mut peer = Peer::fresh(pdus);
    peer.sent();
    assert_eq!(
        peer.receive(&Pdus::default().ic_resp(0, MAXH2CDATA)),
        [Op::Ready]
    );
    assert_eq!(
        peer.end.machine.digests(),
        (false, false),
        "the controller decides"
    );
    let connect = ConnectCommand {
        recfmt: 0,
        qid: 1,
        sqsize: 31,
        cattr: 4,
        kato_ms: 0,
    };
    let tag = peer
        .end
        .machine
        .submit(&connect.encode(), Data::Out(1024))
        .unwrap();
    assert_eq!(
        peer.end.machine.submit(&Sqe::new(io::READ), Data::In(512)),
        None,
        "one at first"
    );
    peer.end.set_memory(tag, vec![3; 1024]);
    let sent = peer.sent();
    assert_eq!(
        (sent[0].1.len(), sqe_of(&sent[0]).sgl.id),
        (72 + 1024, Sgl::IN_CAPSULE)
    );
}

#[test]
fn capsules_are_as_the_standard_has_them() {
    let mut peer = Peer::live(Pdus::default(), 0);
    let (tag, sent) = peer.submit(io::FLUSH, Data::None, Vec::new());
    let sqe = sqe_of(&sent[0]);
    assert_eq!(sent[0].1[..8], [4, 0, 72, 0, 72, 0, 0, 0]);
    assert_eq!(
        (sqe.cid.get(), sqe.flags, sqe.sgl),
        (tag, 0x40, Sgl::new(0x5a, 0))
    );
    peer.respond(tag, Status::SUCCESS);
    let (tag, sent) = peer.submit(io::WRITE, Data::Out(512), vec![7; 512]);
    assert_eq!(sent[0].1[..8], [4, 0, 72, 72, 72, 2, 0, 0]);
    assert_eq!(
        (sqe_of(&sent[0]).sgl, &sent[0].1[72..]),
        (Sgl::new(1, 512), &[7; 512][..])
    );
    assert_eq!(
        peer.respond(tag, Status::SUCCESS),
        [completed(tag, Status::SUCCESS, 5, 0)]
    );

    let pdus = Pdus {
        header_digest: true,
        data_digest: true,
    };
    let mut peer = Peer::live(pdus, 31);
    let (_, sent) = peer.submit(io::WRITE, Data::Out(512), vec![7; 512]);
    let bytes = &sent[0].1;
    assert_eq!(
        (bytes[3], bytes.len()),
        (128, 128 + 512 + 4),
        "aligned to CPDA"
    );
    assert_eq!(bytes[128..640], [7; 512]);
}

#[test]
fn reads_complete_by_success_or_response() {
    let mut peer = Peer::live(Pdus::default(), 0);
    let tag = peer.read(1024);
    let first = peer
        .pdus
        .data(pdu_type::C2H_DATA, 0, (tag, 0), 0, &[1; 512]);
    assert_eq!(peer.receive(&first), []);
    let flags = flags::LAST_PDU | flags::SUCCESS;
    let last = peer
        .pdus
        .data(pdu_type::C2H_DATA, flags, (tag, 0), 512, &[2; 512]);
    assert_eq!(
        peer.receive(&last),
        [completed(tag, Status::SUCCESS, 0, 1024)]
    );
    assert_eq!(
        peer.end.memory[usize::from(tag)],
        [[1; 512], [2; 512]].concat()
    );

    let tag = peer.read(1024);
    let part = peer
        .pdus
        .data(pdu_type::C2H_DATA, flags::LAST_PDU, (tag, 0), 0, &[3; 512]);
    assert_eq!(peer.receive(&part), []);
    assert_eq!(
        peer.respond(tag, Status::SUCCESS),
        [completed(tag, Status::SUCCESS, 5, 512)]
    );
    let tag = peer.read(1024);
    let failed = Status::LBA_OUT_OF_RANGE.dnr();
    assert_eq!(peer.respond(tag, failed), [completed(tag, failed, 5, 0)]);
    assert_eq!(peer.end.machine.in_flight(), 0);
    assert_eq!(peer.end.machine.recv_plan().stage_max, STAGE_LARGE);
}

#[test]
fn r2t_data_respects_maxh2cdata() {
    let mut peer = Peer::live(Pdus::default(), 0);
    let memory: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
    let (tag, sent) = peer.submit(io::WRITE, Data::Out(10_000), memory.clone());
    assert_eq!(
        (sent[0].1.len(), sqe_of(&sent[0]).sgl.id),
        (72, Sgl::TRANSPORT)
    );
    let mut got: Vec<u8> = Vec::new();
    for (offset, len, pieces) in [(0, 9000, 3), (9000, 1000, 1)] {
        assert_eq!(peer.receive(&peer.pdus.r2t(tag, 0xabc, offset, len)), []);
        let sent = peer.sent();
        assert_eq!(sent.len(), pieces);
        for (n, (kind, bytes)) in sent.iter().enumerate() {
            let header: &DataHeader = view(bytes);
            assert_eq!((*kind, header.cccid.get()), (pdu_type::H2C_DATA, tag));
            assert_eq!(header.ttag.get(), 0xabc);
            assert_eq!(header.datao.get(), got.len() as u32);
            assert_eq!(header.ch.flags & flags::LAST_PDU != 0, n + 1 == pieces);
            got.extend(&bytes[24..]);
        }
    }
    assert_eq!(got, memory);
    assert_eq!(
        peer.respond(tag, Status::SUCCESS),
        [completed(tag, Status::SUCCESS, 5, 0)]
    );
}

#[test]
fn several_r2ts_are_answered_in_the_order_they_came() {
    let mut peer = Peer::live_with(Pdus::default(), 0, 0, 2);
    let memory: Vec<u8> = (0..20_000u32).map(|n| (n / 5) as u8).collect();
    let [a, b] = [(); 2].map(|()| peer.submit(io::WRITE, Data::Out(20_000), memory.clone()).0);
    // Three for each, interleaved, before anything is sent.
    let r2ts = [
        (a, 10, 0),
        (a, 11, 6000),
        (b, 20, 0),
        (a, 12, 12_000),
        (b, 21, 6000),
    ];
    for (tag, ttag, offset) in r2ts {
        let len = 6000;
        assert_eq!(peer.receive(&peer.pdus.r2t(tag, ttag, offset, len)), []);
    }
    let mut got = Vec::new();
    for (_, bytes) in peer.sent() {
        let header: &DataHeader = view(&bytes);
        let (at, last) = (header.datao.get(), header.ch.flags & flags::LAST_PDU != 0);
        assert!(bytes[24..] == memory[at as usize..][..bytes.len() - 24]);
        got.push((header.cccid.get(), header.ttag.get(), at, last));
    }
    // MAXH2CDATA cuts each in two.
    let expected =
        r2ts.map(|(tag, ttag, at)| [(tag, ttag, at, false), (tag, ttag, at + 4096, true)]);
    assert_eq!(got, expected.concat());
    // What was sent is outstanding no more.
    assert_eq!(peer.receive(&peer.pdus.r2t(a, 10, 18_000, 2000)), []);
    assert_eq!(peer.sent().len(), 1);
    assert_eq!(
        peer.respond(a, Status::SUCCESS),
        [completed(a, Status::SUCCESS, 5, 0)]
    );
    // The controller gives up while two are outstanding: neither goes out.
    peer.receive(&peer.pdus.r2t(b, 22, 12_000, 1000));
    peer.receive(&peer.pdus.r2t(b, 23, 13_000, 1000));
    peer.respond(b, Status::WRITE_FAULT);
    assert_eq!((peer.sent(), peer.end.machine.in_flight()), (vec![], 0));
}

#[test]
fn more_r2ts_than_maxr2t_end_the_connection() {
    for maxr2t in [0, 1, 5] {
        let mut peer = Peer::live_with(Pdus::default(), 0, 0, maxr2t);
        let (tag, _) = peer.submit(io::WRITE, Data::Out(8192), vec![1; 8192]);
        for n in 0..=maxr2t {
            assert_eq!(peer.receive(&peer.pdus.r2t(tag, n as u16, n * 4, 4)), []);
        }
        peer.receive(&peer.pdus.r2t(tag, 99, maxr2t * 4 + 4, 4));
        let sent = peer.sent();
        let term: &TermReq = view(&sent[0].1);
        assert_eq!(
            (term.fes.get(), term.fei.get()),
            (5, 0),
            "R2T Limit Exceeded"
        );
    }
}

#[test]
fn data_from_the_controller_is_aligned_to_hpda() {
    for digests in [false, true] {
        let pdus = Pdus {
            header_digest: digests,
            data_digest: digests,
        };
        for hpda in [0, 1, 2, 31] {
            let mut peer = Peer::live_with(pdus, 0, hpda, 0);
            let success = flags::LAST_PDU | flags::SUCCESS;
            let tag = peer.read(512);
            let plain = pdus.data(pdu_type::C2H_DATA, success, (tag, 0), 0, &[6; 512]);
            let aligned = pdus.align(plain.clone(), hpda);
            let done = completed(tag, Status::SUCCESS, 0, 512);
            assert_eq!(peer.receive(&aligned), [done]);
            assert_eq!(peer.end.memory[usize::from(tag)], [6; 512]);
            assert_eq!(peer.read(512), tag);
            if plain == aligned {
                assert_eq!(peer.receive(&plain), [done]);
                continue;
            }
            peer.receive(&plain);
            let sent = peer.sent();
            let term: &TermReq = view(&sent[0].1);
            assert_eq!((term.fes.get(), term.fei.get()), (1, 3), "PDO");
        }
    }
}

#[test]
fn termination_requests_are_understood() {
    use wire::nvme_tcp::fes_name;
    for fes in 0..=8 {
        let mut peer = Peer::live(Pdus::default(), 0);
        let mut term = TermReq::new(pdu_type::C2H_TERM_REQ, Fes::LimitExceeded, 9, &[]).0;
        term.fes = fes.into();
        let name = fes_name(fes, false).unwrap_or("reserved status");
        let expected = FatalError::Received { fes, fei: 9, name };
        assert_eq!(peer.receive(term.as_bytes()), [Op::Fatal(expected)]);
    }
    let mut peer = Peer::live(Pdus::default(), 0);
    let term = TermReq::new(pdu_type::C2H_TERM_REQ, Fes::LimitExceeded, 9, &[]).0;
    let mut bytes = term.as_bytes().to_vec();
    bytes[4] = 23;
    assert_eq!(peer.receive(&bytes), [Op::Fatal(FatalError::Garbled)]);
    assert_eq!(
        (peer.sent(), peer.end.machine.is_finished()),
        (vec![], true)
    );
}

#[test]
fn a_controller_may_end_a_write_before_all_its_data_was_sent() {
    let mut peer = Peer::live(Pdus::default(), 0);
    let (tag, _) = peer.submit(io::WRITE, Data::Out(8192), vec![1; 8192]);
    peer.receive(&peer.pdus.r2t(tag, 1, 0, 8192));
    let mut stream = VecDeque::new();
    peer.end.transmit(&mut stream, 1);
    assert_eq!(stream.len(), 24 + 4096);
    let failed = Status::WRITE_FAULT;
    assert_eq!(peer.respond(tag, failed), [completed(tag, failed, 5, 0)]);
    assert_eq!(peer.sent(), [], "the rest is not sent");
    let (again, sent) = peer.submit(io::FLUSH, Data::None, Vec::new());
    assert_eq!((again, sent.len()), (tag, 1));
}

#[test]
fn a_data_digest_error_fails_the_read_only() {
    let pdus = Pdus {
        header_digest: false,
        data_digest: true,
    };
    let mut peer = Peer::live(pdus, 0);
    let success = flags::LAST_PDU | flags::SUCCESS;
    for flags in [success, flags::LAST_PDU] {
        let tag = peer.read(512);
        let mut data = pdus.data(pdu_type::C2H_DATA, flags, (tag, 0), 0, &[9; 512]);
        data[30] ^= 1;
        let mut ops = peer.receive(&data);
        if flags != success {
            ops.extend(peer.respond(tag, Status::SUCCESS));
        }
        let Op::Completed { cqe, .. } = ops[0] else {
            panic!("{ops:?}")
        };
        assert_eq!((ops.len(), cqe.status), (1, Status::TRANSIENT_TRANSPORT));
    }
    let tag = peer.read(512);
    let data = pdus.data(pdu_type::C2H_DATA, success, (tag, 0), 0, &[9; 512]);
    assert_eq!(
        peer.receive(&data),
        [completed(tag, Status::SUCCESS, 0, 512)]
    );
}

#[test]
fn the_queue_holds_one_less_than_its_entries() {
    let mut peer = Peer::live(Pdus::default(), 0);
    let tags: Vec<_> = (0..3).map(|_| peer.read(512)).collect();
    assert_eq!(tags, [0, 1, 2]);
    assert_eq!(
        peer.end.machine.submit(&Sqe::new(io::READ), Data::In(512)),
        None
    );
    assert_eq!(peer.end.machine.room(), 0);
    peer.respond(1, Status::SUCCESS);
    assert_eq!(peer.end.machine.room(), 1);
    assert_eq!(peer.read(512), 1);

    let mut peer = Peer::live(Pdus::default(), 0);
    let role = HostRole {
        entries: 4,
        in_capsule_max: 512,
        flow_control_disabled: false,
    };
    peer.end.machine.attach(role);
    for room in (0..3).rev() {
        assert!(peer.read(512) < 3);
        assert_eq!(peer.end.machine.room(), room);
    }
    let answer = |tag, sqhd| Cqe::new(tag, Status::SUCCESS, 0, sqhd);
    peer.receive(&peer.pdus.capsule_resp(answer(0, 1)));
    let refused = peer.end.machine.submit(&Sqe::new(io::READ), Data::In(512));
    assert_eq!(refused, None, "the controller did not move the head");
    assert_eq!(peer.end.machine.room(), 0);
    peer.receive(&peer.pdus.capsule_resp(answer(1, 3)));
    assert!(peer.read(512) < 3);
}

#[test]
fn a_wrong_head_does_not_stop_a_queue_of_which_nothing_is_in_flight() {
    let mut peer = Peer::live(Pdus::default(), 0);
    peer.end.machine.attach(HostRole {
        entries: 2,
        in_capsule_max: 512,
        flow_control_disabled: false,
    });
    let tag = peer.read(512);
    // Head and tail are both 0 now; a damaged head says that the entry is still there.
    let answer = Cqe::new(tag, Status::SUCCESS, 0, 1);
    peer.receive(&peer.pdus.capsule_resp(answer));
    assert_eq!(peer.end.machine.room(), 1);
    assert_eq!(peer.read(512), tag);
}

#[test]
fn large_reads_bypass_staging() {
    let mut peer = Peer::live(Pdus::default(), 0);
    let success = flags::LAST_PDU | flags::SUCCESS;
    for _ in 0..20 {
        // What small reads leave behind must not hide a large one.
        let tag = peer.read(512);
        assert_eq!(peer.end.machine.recv_plan().stage_max, STAGE_LARGE);
        peer.receive(
            &peer
                .pdus
                .data(pdu_type::C2H_DATA, success, (tag, 0), 0, &[4; 512]),
        );
    }
    let before = (peer.end.placed_bytes, peer.end.direct_bytes);
    let tags = [peer.read(65_536), peer.read(65_536)];
    let plan = peer.end.machine.recv_plan();
    assert_eq!(
        plan,
        RecvPlan {
            direct: None,
            stage_max: STAGE_HEADERS
        }
    );
    let mut bytes = Vec::new();
    for tag in tags {
        bytes.extend(
            peer.pdus
                .data(pdu_type::C2H_DATA, success, (tag, 0), 0, &[4; 65_536]),
        );
    }
    assert_eq!(peer.receive(&bytes).len(), 2);
    assert!(
        peer.end.placed_bytes - before.0 <= 2 * 32,
        "{}",
        peer.end.placed_bytes
    );
    assert_eq!(
        peer.end.direct_bytes + peer.end.placed_bytes,
        before.0 + before.1 + 2 * 65_536
    );
    let plan = peer.end.machine.recv_plan();
    assert_eq!(
        plan,
        RecvPlan {
            direct: None,
            stage_max: STAGE_LARGE
        }
    );
}

#[test]
fn malformed_pdus_end_the_connection() {
    let pdus = Pdus::default();
    let response = |cid| pdus.capsule_resp(Cqe::new(cid, Status::SUCCESS, 0, 0));
    let data = |flags, cid, at, len| {
        pdus.data(
            pdu_type::C2H_DATA,
            flags,
            (cid, 0),
            at,
            &vec![0; len as usize],
        )
    };
    let edit = |mut bytes: Vec<u8>, at: usize, value: u8| {
        bytes[at] = value;
        bytes
    };
    // Tag 0 is a read, tag 1 a write by R2T, tag 2 a write in the capsule.
    for (name, bytes, fes, fei) in [
        ("unknown type", edit(response(0), 0, 8), 1, 0),
        ("a host's PDU", edit(response(0), 0, 4), 1, 0),
        ("ICResp again", pdus.ic_resp(0, 4096), 2, 0),
        ("HLEN", edit(response(0), 2, 25), 1, 2),
        ("HDGST flag", edit(response(0), 1, 1), 1, 1),
        ("response with data", edit(response(0), 4, 28), 1, 4),
        ("CID beyond", response(3), 1, 20),
        ("data for no read", data(0, 1, 0, 4), 1, 8),
        ("data beyond", data(0, 9, 0, 4), 1, 8),
        ("data offset", data(0, 0, 4, 4), 2, 0),
        ("data beyond the end", data(0, 0, 512, 4), 4, 0),
        ("data far beyond", data(0, 0, u32::MAX - 3, 4), 4, 0),
        ("too much data", data(0, 0, 0, 516), 4, 0),
        ("no data", data(0, 0, 0, 0), 1, 16),
        ("DATAL", edit(data(0, 0, 0, 8), 16, 4), 1, 16),
        (
            "SUCCESS without LAST",
            data(flags::SUCCESS, 0, 0, 512),
            1,
            1,
        ),
        ("PDO", edit(data(0, 0, 0, 8), 3, 20), 1, 3),
        ("R2T for a read", pdus.r2t(0, 0, 0, 4), 1, 8),
        ("R2T of nothing", pdus.r2t(1, 0, 0, 0), 1, 16),
        ("R2T offset", pdus.r2t(1, 0, 4, 4), 2, 0),
        ("R2T beyond", pdus.r2t(1, 0, 1024, 4), 4, 0),
        ("R2T far beyond", pdus.r2t(1, 0, u32::MAX, u32::MAX), 4, 0),
        ("R2T length", pdus.r2t(1, 0, 0, 1028), 4, 0),
        ("R2T for sent data", pdus.r2t(2, 0, 0, 4), 2, 0),
        (
            "second R2T",
            [pdus.r2t(1, 0, 0, 4), pdus.r2t(1, 1, 4, 4)].concat(),
            5,
            0,
        ),
    ] {
        let mut peer = Peer::live(pdus, 0);
        peer.read(512);
        peer.submit(io::WRITE, Data::Out(1024), vec![0; 1024]);
        peer.submit(io::WRITE, Data::Out(512), vec![0; 512]);
        let ops = peer.receive(&bytes);
        assert!(
            matches!(ops[..], [Op::Fatal(FatalError::Sent { .. })]),
            "{name}: {ops:?}"
        );
        let sent = peer.sent();
        assert_eq!(
            (sent.len(), sent[0].0),
            (1, pdu_type::H2C_TERM_REQ),
            "{name}"
        );
        let term: &TermReq = view(&sent[0].1);
        assert_eq!((term.fes.get(), term.fei.get()), (fes, fei), "{name}");
        assert!(peer.end.machine.is_finished(), "{name}");
        assert_eq!(
            peer.end.machine.submit(&Sqe::new(0), Data::None),
            None,
            "{name}"
        );
    }
}

#[test]
fn malformed_ic_resps_end_the_connection() {
    let good = Pdus::default().ic_resp(0, 4096);
    for (at, value, fes, fei) in [
        (0, pdu_type::CAPSULE_RESP, 2, 0),
        (0, pdu_type::IC_REQ, 1, 0),
        (2, 24, 1, 2),
        (4, 24, 1, 4),
        (8, 1, 6, 8),
        (10, 32, 6, 10),
        (11, 1, 6, 11),
        (13, 1, 6, 12),
    ] {
        let mut bytes = good.clone();
        bytes[at] = value;
        let mut peer = Peer::fresh(Pdus::default());
        peer.sent();
        peer.receive(&bytes);
        let sent = peer.sent();
        let term: &TermReq = view(&sent[0].1);
        assert_eq!(
            (term.fes.get(), term.fei.get()),
            (fes, fei),
            "byte {at} = {value}"
        );
    }
}

#[test]
fn a_termination_request_is_not_answered() {
    let mut peer = Peer::live(Pdus::default(), 0);
    let (term, data) = TermReq::new(pdu_type::C2H_TERM_REQ, Fes::PduSequenceError, 7, &[4; 72]);
    let ops = peer.receive(&[term.as_bytes(), data].concat());
    assert_eq!(
        ops,
        [Op::Fatal(FatalError::Received {
            fes: 2,
            fei: 7,
            name: "PDU Sequence Error"
        })]
    );
    assert_eq!(peer.sent(), []);
}

#[test]
fn every_split_gives_the_same() {
    let pdus = Pdus {
        header_digest: true,
        data_digest: true,
    };
    let success = flags::LAST_PDU | flags::SUCCESS;
    let mut bytes = pdus.data(pdu_type::C2H_DATA, 0, (0, 0), 0, &[1; 300]);
    bytes.extend(pdus.data(pdu_type::C2H_DATA, success, (1, 0), 0, &[2; 512]));
    bytes.extend(pdus.capsule_resp(Cqe::new(2, Status::SUCCESS, 9, 0xffff)));
    bytes.extend(pdus.data(pdu_type::C2H_DATA, success, (0, 0), 300, &[3; 212]));
    let play = |sizes: &mut dyn FnMut() -> usize| {
        let mut peer = Peer::live(pdus, 0);
        peer.read(512);
        peer.read(512);
        peer.submit(io::FLUSH, Data::None, Vec::new());
        let mut stream: VecDeque<u8> = bytes.iter().copied().collect();
        let mut ops = Vec::new();
        while !stream.is_empty() {
            peer.end.receive(&mut stream, sizes());
            ops.extend(std::iter::from_fn(|| peer.end.next_op()));
        }
        (ops, peer.end.memory)
    };
    let whole = play(&mut || usize::MAX);
    assert_eq!(whole.0.len(), 3);
    assert_eq!(whole.1[0], [[1; 300].to_vec(), [3; 212].to_vec()].concat());
    assert!(play(&mut || 1) == whole);
    for split in 1..bytes.len() {
        let mut first = Some(split);
        assert!(
            play(&mut || first.take().unwrap_or(usize::MAX)) == whole,
            "at {split}"
        );
    }
}
