//! Bytes go where they belong, in any pieces, and are told when they are there.

use std::collections::VecDeque;

use iwarp::{
    DataPart, OWN_BYTES, Qp, QpError, QpOp, QpSettings, ReadsRefused, ReceivedSend,
    RegisteredMemory, RemoteAccess, Work,
};
use machine::Machine;
use testkit::End;
use testkit::iwarp::{Fpdus, mpa_frame};
use wire::iwarp::{MPA_REQUEST_KEY, ReadRequest, TerminateCode, opcode, queue};
use zerocopy::FromBytes;

use crate::{BODY, HEAD, connected, feed, sent, settings};

fn region(tag: u16, len: u32, access: RemoteAccess) -> RegisteredMemory {
    RegisteredMemory {
        tag,
        offset: 8,
        len,
        to: 1 << 40,
        access,
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + 3) as u8).collect()
}

#[test]
fn write_in_any_pieces_is_placed_and_nothing_is_told() {
    let data = pattern(61);
    for crc in [false, true] {
        for step in [1, 2, 3, 7, 16, 17, 1000] {
            let (mut end, peer) = connected(settings(), crc);
            end.set_memory(1, vec![0xee; 100]);
            let memory = region(1, 80, RemoteAccess::WRITE);
            let stag = end.machine.register(memory).expect("room");
            let mut stream = Vec::new();
            // The last segment has nothing.
            for (at, to) in [(0, 1), (1, 20), (20, 20), (20, 61), (61, 61)] {
                let kind = (opcode::WRITE, (at, to) == (61, 61));
                stream.extend(peer.tagged(kind, stag, (1 << 40) + at as u64, &data[at..to]));
            }
            assert_eq!(feed(&mut end, &stream, step), []);
            assert_eq!(end.memory[1][8..69], data);
            let around = end.memory[1][..8].iter().chain(&end.memory[1][69..]);
            assert!(around.copied().all(|byte| byte == 0xee));
            assert!(!end.machine.is_finished());
        }
    }
}

#[test]
fn send_in_segments_of_one_byte_arrives_as_head_and_body() {
    let message = pattern(HEAD + 20);
    for crc in [false, true] {
        for step in [1, 5, 1000] {
            let (mut end, peer) = connected(settings(), crc);
            end.machine.post_receives(1);
            let mut stream = Vec::new();
            for at in 0..message.len() {
                let kind = (opcode::SEND_SOLICITED, at + 1 == message.len());
                let place = (queue::SEND, 1, at as u32);
                stream.extend(peer.untagged(kind, 0, place, &message[at..=at]));
            }
            let received = QpOp::Received(ReceivedSend {
                body_len: 20,
                tag: Some(9),
                invalidated: None,
                is_solicited: true,
            });
            assert_eq!(feed(&mut end, &stream, step), [QpOp::Body, received]);
            assert_eq!(end.machine.head(), &message[..HEAD]);
            assert_eq!(end.memory[9][..20], message[HEAD..]);
            assert!(end.memory[9][20..].iter().all(|byte| *byte == 0));
        }
    }
}

#[test]
fn send_that_is_all_head_or_nothing_needs_no_memory() {
    let (mut end, peer) = connected(settings(), true);
    end.machine.post_receives(3);
    for (msn, len) in [(1, 0), (2, 5), (3, HEAD)] {
        let message = pattern(len);
        let told = feed(&mut end, &peer.send(msn, &message), 2);
        let received = QpOp::Received(ReceivedSend {
            body_len: 0,
            tag: None,
            invalidated: None,
            is_solicited: false,
        });
        assert_eq!(told, [received]);
        assert_eq!(end.machine.head(), message);
    }
}

#[test]
fn body_that_becomes_part_of_the_head_needs_no_memory_and_has_a_bound() {
    let message = pattern(HEAD + 40);
    for crc in [false, true] {
        for (len_max, step) in [(40, 1), (40, 7), (30, 1), (30, 1000), (0, 3)] {
            let (mut end, peer) = connected(settings(), crc);
            end.machine.post_receives(1);
            let mut stream = VecDeque::new();
            for (from, to) in [
                (0, 5),
                (5, HEAD + 3),
                (HEAD + 3, HEAD + 3),
                (HEAD + 3, HEAD + 40),
            ] {
                let kind = (opcode::SEND, to == message.len());
                let place = (queue::SEND, 1, from as u32);
                stream.extend(peer.untagged(kind, 0, place, &message[from..to]));
            }
            let mut told = Vec::new();
            loop {
                while let Some(op) = end.next_op() {
                    told.push(op);
                    if op == QpOp::Body {
                        end.machine.body_into_head(len_max);
                    }
                }
                if end.receive(&mut stream, step) == 0 {
                    break;
                }
            }
            let received = QpOp::Received(ReceivedSend {
                body_len: 40 - len_max,
                tag: None,
                invalidated: None,
                is_solicited: false,
            });
            assert_eq!(told, [QpOp::Body, received]);
            assert_eq!(end.machine.head(), &message[..HEAD + len_max as usize]);
        }
    }
}

/// Takes ops until there is none.
fn ops(end: &mut End<Qp>) -> Vec<QpOp> {
    std::iter::from_fn(|| end.next_op()).collect()
}

#[test]
fn body_waits_for_its_place_and_for_its_memory() {
    let (mut end, peer) = connected(settings(), true);
    end.machine.post_receives(1);
    let message = pattern(HEAD + BODY);
    let mut stream: VecDeque<u8> = peer.send(1, &message).into();
    end.receive(&mut stream, 1000);
    assert_eq!(ops(&mut end), [QpOp::Body]);
    assert_eq!(
        end.machine.head(),
        &message[..HEAD],
        "to choose the memory by"
    );
    assert_eq!(end.machine.recv_plan().stage_max, 0);
    end.machine.body_into(4);
    assert!(end.machine.is_blocked_on(4) && !end.machine.is_blocked_on(5));
    assert_eq!(
        (end.machine.recv_plan().stage_max, ops(&mut end)),
        (0, vec![])
    );
    end.set_memory(4, vec![0; BODY]);
    // Less than there is: the rest is passed over.
    end.machine.prepared(4, 10);
    let told = ops(&mut end);
    assert!(matches!(
        told[..],
        [QpOp::Received(ReceivedSend {
            body_len: 64,
            tag: Some(4),
            ..
        })]
    ));
    assert_eq!(end.memory[4][..10], message[HEAD..HEAD + 10]);
    assert!(end.memory[4][10..].iter().all(|byte| *byte == 0));
}

#[test]
fn body_that_nothing_needs_is_passed_over_and_its_crc_counts() {
    for damage in [0, 1] {
        let (mut end, peer) = connected(settings(), true);
        end.machine.post_receives(1);
        let message = pattern(HEAD + 30);
        let (first, second) = message.split_at(HEAD + 10);
        let place = |at: usize| (queue::SEND, 1, at as u32);
        let mut bytes = peer.untagged((opcode::SEND, false), 0, place(0), first);
        bytes.extend(peer.untagged((opcode::SEND, true), 0, place(HEAD + 10), second));
        let at = bytes.len() - 8;
        bytes[at] ^= damage;
        let mut stream: VecDeque<u8> = bytes.into();
        let mut told = Vec::new();
        while end.receive(&mut stream, 3) > 0 || end.machine.has_step() {
            while let Some(op) = end.next_op() {
                told.push(op);
                if op == QpOp::Body {
                    end.machine.drop_body();
                }
            }
        }
        assert_eq!(told[0], QpOp::Body);
        match damage {
            0 => assert!(matches!(
                told[1..],
                [QpOp::Received(ReceivedSend {
                    body_len: 30,
                    tag: None,
                    ..
                })]
            )),
            _ => assert!(matches!(told[1..], [QpOp::Fatal(_)])),
        }
        assert_eq!(end.placed_bytes + end.direct_bytes, 0);
    }
}

#[test]
fn large_payload_goes_straight_to_its_memory() {
    let (mut end, peer) = connected(settings(), true);
    end.set_memory(1, vec![0; 40_000]);
    let memory = region(1, 39_000, RemoteAccess::WRITE);
    let stag = end.machine.register(memory).expect("room");
    let data = pattern(39_000);
    let mut bytes = peer.tagged((opcode::WRITE, false), stag, 1 << 40, &data[..20_000]);
    bytes.extend(peer.tagged(
        (opcode::WRITE, true),
        stag,
        (1 << 40) + 20_000,
        &data[20_000..],
    ));
    assert_eq!(feed(&mut end, &bytes, 8000), []);
    assert_eq!(end.memory[1][8..39_008], data);
    assert!(
        end.direct_bytes > 30_000,
        "{} went straight",
        end.direct_bytes
    );
}

#[test]
fn send_with_invalidate_takes_the_stag_from_the_peer() {
    for solicited in [false, true] {
        let (mut end, peer) = connected(settings(), false);
        end.machine.post_receives(2);
        end.set_memory(1, vec![0; 100]);
        let memory = region(1, 80, RemoteAccess::WRITE);
        let stag = end.machine.register(memory).expect("room");
        let opcode = match solicited {
            false => opcode::SEND_INVALIDATE,
            true => opcode::SEND_SOLICITED_INVALIDATE,
        };
        let send = |msn| peer.untagged((opcode, true), stag, (queue::SEND, msn, 0), b"x");
        let received = QpOp::Received(ReceivedSend {
            body_len: 0,
            tag: None,
            invalidated: Some(stag),
            is_solicited: solicited,
        });
        assert_eq!(feed(&mut end, &send(1), 4), [received]);
        assert!(!end.machine.invalidate(stag), "it was");
        let told = feed(&mut end, &send(2), 4);
        let fault = TerminateCode::CANNOT_INVALIDATE;
        assert_eq!(
            told,
            [QpOp::Fatal(iwarp::QpError::Sent(fault))],
            "not twice"
        );
    }
}

fn request(sink: (u32, u64), source: (u32, u64), size: u32) -> ReadRequest {
    ReadRequest {
        sink_stag: sink.0.into(),
        sink_to: sink.1.into(),
        size: size.into(),
        source_stag: source.0.into(),
        source_to: source.1.into(),
    }
}

#[test]
fn read_requests_are_answered_in_order_and_in_segments() {
    for crc in [false, true] {
        let (mut end, peer) = connected(
            QpSettings {
                ulpdu_max: 128,
                ..settings()
            },
            crc,
        );
        end.set_memory(1, pattern(300));
        let memory = region(1, 250, RemoteAccess::READ);
        let stag = end.machine.register(memory).expect("room");
        let mut bytes = peer.read_request(1, &request((70, 500), (stag, (1 << 40) + 5), 245));
        bytes.extend(peer.read_request(2, &request((71, 0), (0, 0), 0)));
        assert_eq!(feed(&mut end, &bytes, 1), []);
        let ulpdus = peer.cut(&mut sent(&mut end));
        let mut data = Vec::new();
        let lens: Vec<usize> = ulpdus.iter().map(|ulpdu| ulpdu.len() - 14).collect();
        assert_eq!(lens, [112, 112, 21, 0], "all but the last a multiple of 8");
        for (index, ulpdu) in ulpdus[..3].iter().enumerate() {
            let is_last = index == 2;
            assert_eq!(ulpdu[..2], [if is_last { 0xc1 } else { 0x81 }, 0x42]);
            assert_eq!(ulpdu[2..6], 70u32.to_be_bytes());
            assert_eq!(ulpdu[6..14], (500 + data.len() as u64).to_be_bytes());
            data.extend_from_slice(&ulpdu[14..]);
        }
        assert_eq!(data, pattern(300)[13..258]);
        assert_eq!(ulpdus[3][..6], [0xc1, 0x42, 0, 0, 0, 71]);
        // Both are answered: two others may come.
        let again = peer.read_request(3, &request((70, 0), (stag, 1 << 40), 1));
        assert_eq!(feed(&mut end, &again, 1), []);
    }
}

#[test]
fn responses_and_other_work_take_turns() {
    let (mut end, peer) = connected(settings(), false);
    let source = || request((1, 0), (0, 0), 0);
    feed(&mut end, &peer.read_request(1, &source()), 9);
    feed(&mut end, &peer.read_request(2, &source()), 9);
    for _ in 0..3 {
        end.machine.post(Work::Send {
            head: b"x",
            body: DataPart::default(),
            invalidate: None,
            is_solicited: false,
            release: None,
        });
    }
    let opcodes: Vec<u8> = peer
        .cut(&mut sent(&mut end))
        .iter()
        .map(|ulpdu| ulpdu[1])
        .collect();
    assert_eq!(opcodes, [0x42, 0x43, 0x42, 0x43, 0x43]);
}

#[test]
fn memory_that_is_invalidated_before_its_response_is_not_sent() {
    let (mut end, peer) = connected(
        QpSettings {
            ulpdu_max: 128,
            ..settings()
        },
        false,
    );
    end.set_memory(1, pattern(300));
    let memory = region(1, 250, RemoteAccess::READ);
    let stag = end.machine.register(memory).expect("room");
    let fpdu = peer.read_request(1, &request((70, 0), (stag, 1 << 40), 200));
    feed(&mut end, &fpdu, 9);
    let mut out = VecDeque::new();
    end.transmit(&mut out, 1);
    assert!(end.machine.invalidate(stag));
    end.transmit(&mut out, 1);
    let ulpdus = peer.cut(&mut out);
    assert_eq!(ulpdus.len(), 2);
    assert_eq!(ulpdus[1][18..22], [0x01, 0, 0xe0, 0]);
    assert_eq!(ulpdus[1][22..], fpdu[..48], "the Read Request");
    assert!(end.machine.has_step());
    let fault = iwarp::QpError::Sent(TerminateCode::SOURCE_STAG);
    assert_eq!(ops(&mut end), [QpOp::Fatal(fault)]);
    assert!(end.machine.is_finished() && !end.machine.has_transmit());
}

#[test]
fn write_to_memory_that_is_invalidated_meanwhile_ends_the_stream() {
    let (mut end, peer) = connected(settings(), false);
    end.set_memory(1, vec![0; 100]);
    let memory = region(1, 80, RemoteAccess::WRITE);
    let stag = end.machine.register(memory).expect("room");
    let mut stream: VecDeque<u8> = peer
        .tagged((opcode::WRITE, true), stag, 1 << 40, &[7; 60])
        .into();
    end.receive(&mut stream, 30);
    assert_eq!(ops(&mut end), []);
    let placed = end.memory[1].clone();
    assert!(end.machine.invalidate(stag));
    while end.receive(&mut stream, 7) > 0 {}
    let fault = iwarp::QpError::Sent(TerminateCode::SINK_STAG);
    assert_eq!(ops(&mut end), [QpOp::Fatal(fault)]);
    assert_eq!(end.memory[1], placed);
}

#[test]
fn reads_beyond_the_ord_wait_and_then_go() {
    let (mut end, peer) = connected(settings(), false);
    end.set_memory(3, vec![0; 50]);
    let part = |index: u32| DataPart {
        tag: 3,
        offset: index * 10,
        len: 10,
    };
    for index in 0..5 {
        end.machine.read(part(index), 1, 0).expect("reads");
    }
    let mut done = Vec::new();
    for round in 0..5u8 {
        let mut requests = VecDeque::from(peer.cut(&mut sent(&mut end)));
        // Two are under way, and each that ends lets one go.
        assert_eq!(requests.len(), [2, 1, 1, 1, 0][usize::from(round)]);
        assert!(!end.machine.has_transmit());
        done.extend(requests.drain(..).map(|ulpdu| {
            assert_eq!(ulpdu[..2], [0x41, 0x41]);
            u32::from_be_bytes(ulpdu[18..22].try_into().expect("4 bytes"))
        }));
        let stag = done[usize::from(round)];
        let response = peer.tagged((opcode::READ_RESPONSE, true), stag, 0, &[round + 1; 10]);
        let told = feed(&mut end, &response, 6);
        assert_eq!(told, [QpOp::ReadDone(part(round.into()))]);
    }
    let expected: Vec<u8> = (0..50).map(|at| at / 10 + 1).collect();
    assert_eq!(end.memory[3], expected);
}

#[test]
fn bytes_of_the_machine_above_are_sent_from_it_and_read_for_it() {
    for crc in [false, true] {
        let (mut end, peer) = connected(settings(), crc);
        // More than a batch has room for as header bytes.
        let own = pattern(40_000);
        end.memory.resize(usize::from(OWN_BYTES) + 1, Vec::new());
        end.memory[usize::from(OWN_BYTES)] = own.clone();
        let part = |offset, len| DataPart {
            tag: OWN_BYTES,
            offset,
            len,
        };
        end.machine.post(Work::Write {
            data: part(5, 30_000),
            stag: 7,
            to: 100,
            release: None,
        });
        end.machine.post(Work::Send {
            head: b"head",
            body: part(30_005, 9_000),
            invalidate: None,
            is_solicited: false,
            release: None,
        });
        let mut out = VecDeque::new();
        while end.machine.has_transmit() {
            end.transmit(&mut out, 1);
        }
        let ulpdus = peer.cut(&mut out);
        assert!(ulpdus.len() > 2 && ulpdus.iter().all(|ulpdu| ulpdu.len() <= 16 << 10));
        let (writes, sends): (Vec<_>, Vec<_>) = ulpdus.iter().partition(|ulpdu| ulpdu[1] == 0x40);
        let written = writes.iter().flat_map(|ulpdu| &ulpdu[14..]).copied();
        assert!(written.eq(own[5..30_005].iter().copied()));
        let message = [b"head", &own[30_005..39_005]].concat();
        let got = sends.iter().flat_map(|ulpdu| &ulpdu[18..]).copied();
        assert!(got.eq(message));

        for len in [0, 1, 1000] {
            end.machine.read(part(0, len), 9, 1).expect("reads");
            let ulpdu = peer.cut(&mut sent(&mut end)).remove(0);
            let stag = u32::from_be_bytes(ulpdu[18..22].try_into().expect("4 bytes"));
            let bytes = pattern(len as usize);
            let (first, last) = bytes.split_at(bytes.len() / 8 * 4);
            let to = first.len() as u64;
            let mut response = Vec::new();
            if to > 0 {
                response = peer.tagged((opcode::READ_RESPONSE, false), stag, 0, first);
            }
            response.extend(peer.tagged((opcode::READ_RESPONSE, true), stag, to, last));
            let told = feed(&mut end, &response, 7);
            assert_eq!(told, [QpOp::ReadDone(part(0, len))]);
            assert_eq!(end.machine.take_read_bytes(), bytes);
        }
        // No byte of them is told before its CRC.
        end.machine.read(part(0, 8), 9, 1).expect("reads");
        let ulpdu = peer.cut(&mut sent(&mut end)).remove(0);
        let stag = u32::from_be_bytes(ulpdu[18..22].try_into().expect("4 bytes"));
        let mut response = peer.tagged((opcode::READ_RESPONSE, true), stag, 0, &[1; 8]);
        *response.last_mut().expect("a CRC") ^= 1;
        let fault = iwarp::QpError::Sent(TerminateCode::CRC);
        let expected = match crc {
            true => QpOp::Fatal(fault),
            false => QpOp::ReadDone(part(0, 8)),
        };
        assert_eq!(feed(&mut end, &response, 7), [expected]);
    }
}

#[test]
fn reads_of_a_peer_that_takes_none_are_refused() {
    let mut end = End::new(Qp::responder(settings(), 7, 0));
    let request = mpa_frame(MPA_REQUEST_KEY, (0, 2), Some((0, 4)), b"");
    feed(&mut end, &request, 9);
    end.machine.accept(b"");
    assert_eq!(
        end.machine.read(DataPart::default(), 1, 0),
        Err(ReadsRefused)
    );
}

#[test]
fn messages_are_cut_at_the_longest_ulpdu_and_their_tag_is_released_once() {
    for crc in [false, true] {
        let (mut end, peer) = connected(
            QpSettings {
                ulpdu_max: 128,
                ..settings()
            },
            crc,
        );
        end.set_memory(1, pattern(400));
        end.machine.post(Work::Write {
            data: DataPart {
                tag: 1,
                offset: 3,
                len: 230,
            },
            stag: 0x55,
            to: 1000,
            release: None,
        });
        end.machine.post(Work::Send {
            head: &pattern(128),
            body: DataPart {
                tag: 1,
                offset: 5,
                len: 100,
            },
            invalidate: Some(0x66),
            is_solicited: true,
            release: Some(1),
        });
        let mut out = VecDeque::new();
        for _ in 0..5 {
            assert_eq!(end.released, []);
            end.transmit(&mut out, 1);
        }
        end.transmit(&mut out, 1);
        assert_eq!(end.released, [1]);
        let ulpdus = peer.cut(&mut out);
        let (writes, sends) = ulpdus.split_at(3);
        let mut data = Vec::new();
        for ulpdu in writes {
            assert_eq!(ulpdu[6..14], (1000 + data.len() as u64).to_be_bytes());
            data.extend_from_slice(&ulpdu[14..]);
        }
        assert_eq!(data, pattern(400)[3..233]);
        let mut message = Vec::new();
        for (index, ulpdu) in sends.iter().enumerate() {
            assert_eq!(ulpdu[..2], [if index == 2 { 0x41 } else { 0x01 }, 0x46]);
            assert_eq!(ulpdu[2..6], 0x66u32.to_be_bytes());
            assert_eq!(ulpdu[6..14], [0, 0, 0, 0, 0, 0, 0, 1], "queue 0, MSN 1");
            assert_eq!(ulpdu[14..18], (message.len() as u32).to_be_bytes());
            message.extend_from_slice(&ulpdu[18..]);
        }
        assert_eq!(message, [&pattern(128)[..], &pattern(400)[5..105]].concat());
    }
}

/// Receives that a stream of RDMA Writes to one region takes, each of `message` bytes and in
/// FPDUs of `fpdu` bytes, with a Send behind each; and the bytes that were staged and copied.
fn receives_of_writes(message: usize, fpdu: usize) -> (usize, u64) {
    const MESSAGES: usize = 8;
    let (mut end, peer) = connected(settings(), true);
    let mut stream = VecDeque::new();
    for n in 0..MESSAGES {
        let tag = 10 + n as u16;
        end.set_memory(tag, vec![0; message]);
        let memory = RegisteredMemory {
            tag,
            offset: 0,
            len: message as u32,
            to: 0,
            access: RemoteAccess::WRITE,
        };
        let stag = end.machine.register(memory).expect("room");
        for (at, part) in pattern(message).chunks(fpdu).enumerate() {
            let to = at * fpdu;
            let kind = (opcode::WRITE, to + part.len() == message);
            stream.extend(peer.tagged(kind, stag, to as u64, part));
        }
        stream.extend(peer.send(1 + n as u32, &pattern(HEAD)));
    }
    end.machine.post_receives(MESSAGES as u32);
    let mut receives = 0;
    while end.receive(&mut stream, usize::MAX) > 0 {
        receives += 1;
        for op in ops(&mut end) {
            assert!(matches!(op, QpOp::Received(_)), "{op:?}");
        }
    }
    assert!(stream.is_empty());
    for tag in 10..10 + MESSAGES {
        assert_eq!(end.memory[tag], pattern(message));
    }
    (receives, end.placed_bytes)
}

#[test]
fn large_message_takes_a_receive_for_each_full_fpdu() {
    // An FPDU has not quite 64 KiB: a short one ends the message.
    for (message, fpdus) in [(64 << 10, 1), (128 << 10, 2), (256 << 10, 4)] {
        let (receives, placed_bytes) = receives_of_writes(message, 65520);
        assert!(receives <= 8 * fpdus + 2, "{receives} of {message} bytes");
        assert!(placed_bytes <= 8 * 256, "{placed_bytes} of {message} bytes");
    }
}

#[test]
fn segment_of_no_bytes_may_name_a_place_behind_the_region() {
    let (mut end, peer) = connected(settings(), true);
    end.set_memory(9, vec![0; 100]);
    let region = region(9, 16, RemoteAccess::WRITE);
    let stag = end.machine.register(region).expect("room");
    let write = peer.tagged((opcode::WRITE, false), stag, u64::MAX, b"");
    assert_eq!(feed(&mut end, &write, usize::MAX), []);
    assert!(end.machine.recv_plan().stage_max > 0);
}

/// A receive for each segment of a TCP segment's size would cost more than a copy.
#[test]
fn small_segments_are_received_several_at_a_time_and_large_ones_each_by_itself() {
    const LARGE: usize = 32 << 10;
    let (mut end, peer) = connected(settings(), true);
    end.set_memory(3, vec![0; 16 * LARGE]);
    let memory = RegisteredMemory {
        tag: 3,
        offset: 0,
        len: 16 * LARGE as u32,
        to: 0,
        access: RemoteAccess::WRITE,
    };
    let stag = end.machine.register(memory).expect("room");
    for (sizes, are_several) in [
        (&[1408, 1408, 100][..], true),
        // One that is alone says nothing.
        (&[100], true),
        (&[LARGE, LARGE, 100], false),
        (&[100], false),
        (&[1408, 1408], true),
        (&[LARGE], false),
    ] {
        let mut to = 0;
        for (at, len) in sizes.iter().enumerate() {
            let kind = (opcode::WRITE, at + 1 == sizes.len());
            let fpdu = peer.tagged(kind, stag, to, &vec![7; *len]);
            to += *len as u64;
            assert_eq!(feed(&mut end, &fpdu, usize::MAX), []);
            if at > 0 || sizes.len() == 1 {
                let stage_max = end.machine.recv_plan().stage_max as usize;
                assert_eq!(
                    stage_max >= 2 * LARGE,
                    are_several,
                    "{sizes:?}: {stage_max}"
                );
            }
        }
    }
}

/// The payload of the tagged segments of `sent`, which are Read Responses without a gap.
fn responses(sent: &mut VecDeque<u8>, peer: Fpdus) -> Vec<u8> {
    let mut payload = Vec::new();
    for ulpdu in peer.cut(sent) {
        assert_eq!(ulpdu[1] & 15, opcode::READ_RESPONSE);
        let to = u64::from_be_bytes(ulpdu[6..14].try_into().expect("8 bytes"));
        assert_eq!(to, payload.len() as u64);
        assert_eq!(
            ulpdu[0] & 0x40 != 0,
            payload.len() + ulpdu.len() - 14 == LENT
        );
        payload.extend_from_slice(&ulpdu[14..]);
    }
    payload
}

/// Bytes that are lent: more than a batch has room for.
const LENT: usize = 50_001;

#[test]
fn bytes_that_are_lent_are_read_in_any_pieces_until_they_are_taken_back() {
    for crc in [false, true] {
        for step in [1, 1000] {
            let (mut end, peer) = connected(settings(), crc);
            let stag = end.machine.lend_bytes(pattern(LENT)).expect("room");
            let request = |size: usize, source_to: u64| ReadRequest {
                sink_stag: 9.into(),
                sink_to: 0.into(),
                size: (size as u32).into(),
                source_stag: stag.into(),
                source_to: source_to.into(),
            };
            let read = peer.read_request(1, &request(LENT, 0));
            assert_eq!(feed(&mut end, &read, step), []);
            assert_eq!(responses(&mut sent(&mut end), peer), pattern(LENT));
            assert_eq!(end.machine.take_bytes(stag), pattern(LENT));
            assert!(end.machine.take_bytes(stag).is_empty());
            let again = peer.read_request(2, &request(1, 0));
            let why = QpError::Sent(TerminateCode::SOURCE_STAG);
            assert_eq!(feed(&mut end, &again, step), [QpOp::Fatal(why)]);
        }
    }
}

#[test]
fn bytes_that_the_peer_writes_are_collected_in_any_pieces() {
    let data = pattern(3001);
    for crc in [false, true] {
        for step in [1, 7, 100_000] {
            let (mut end, peer) = connected(settings(), crc);
            end.machine.post_receives(1);
            let other = end.machine.collect_bytes(10).expect("room");
            let stag = end.machine.collect_bytes(4000).expect("room");
            let mut stream = Vec::new();
            // The second message is the first of the bytes, with another between.
            for (of, at, to, is_last) in [
                (stag, 1000, 1100, false),
                (stag, 1100, 3001, true),
                (other, 0, 5, true),
                (stag, 0, 1000, true),
            ] {
                let kind = (opcode::WRITE, is_last);
                stream.extend(peer.tagged(kind, of, at as u64, &data[at..to]));
            }
            let kind = (opcode::SEND_INVALIDATE, true);
            stream.extend(peer.untagged(kind, stag, (queue::SEND, 1, 0), b"done"));
            let received = QpOp::Received(ReceivedSend {
                body_len: 0,
                tag: None,
                invalidated: Some(stag),
                is_solicited: false,
            });
            assert_eq!(feed(&mut end, &stream, step), [received]);
            assert_eq!(end.machine.written(stag), 3001);
            assert_eq!(end.machine.take_bytes(stag), data);
            assert_eq!(end.machine.take_bytes(other), data[..5]);
        }
    }
}

#[test]
fn bytes_are_collected_within_bounds_and_with_a_right_crc_alone() {
    let (mut end, peer) = connected(settings(), true);
    let stag = end.machine.collect_bytes(10).expect("room");
    let good = peer.tagged((opcode::WRITE, true), stag, 0, &[1; 4]);
    let mut bad = peer.tagged((opcode::WRITE, true), stag, 4, &[2; 4]);
    let last = bad.len() - 1;
    bad[last] ^= 1;
    let why = QpError::Sent(TerminateCode::CRC);
    let told = feed(&mut end, &[good, bad].concat(), 5);
    assert_eq!(told, [QpOp::Fatal(why)]);
    assert_eq!(end.machine.take_bytes(stag), [1; 4]);
    let (mut end, peer) = connected(settings(), true);
    let stag = end.machine.collect_bytes(10).expect("room");
    let beyond = peer.tagged((opcode::WRITE, true), stag, 7, &[1; 4]);
    let why = QpError::Sent(TerminateCode::SINK_BOUNDS);
    assert_eq!(feed(&mut end, &beyond, 5), [QpOp::Fatal(why)]);
    assert!(end.machine.take_bytes(stag).is_empty());
}

#[test]
fn large_messages_that_are_collected_come_in_large_receives() {
    let (mut end, peer) = connected(settings(), false);
    let stag = end.machine.collect_bytes(1 << 20).expect("room");
    assert!(end.machine.recv_plan().stage_max > 60_000);
    let part = peer.tagged((opcode::WRITE, false), stag, 0, &pattern(60_000));
    assert_eq!(feed(&mut end, &part, usize::MAX), []);
    assert!(end.machine.recv_plan().stage_max > 60_000);
}

/// The sink STags of the Read Requests that `end` sends now.
fn sinks_asked_for(end: &mut End<Qp>, peer: Fpdus) -> Vec<u32> {
    let ulpdus = peer.cut(&mut sent(end)).into_iter();
    let requests = ulpdus.map(|ulpdu| {
        let (_, request) = ReadRequest::ref_from_suffix(&ulpdu).expect("a Read Request");
        request.sink_stag.get()
    });
    requests.collect()
}

#[test]
fn abandoned_read_is_passed_over_wherever_it_stands() {
    let data = pattern(20);
    for crc in [false, true] {
        // Bytes of the response that have come when its data is abandoned.
        for before in [0, 1, 20, 25, 30, 39, 60] {
            let (mut end, peer) = connected(settings(), crc);
            sent(&mut end);
            end.set_memory(3, vec![0; 40]);
            end.set_memory(4, vec![0; 20]);
            for (tag, offset) in [(3, 0), (3, 20), (3, 20), (4, 0)] {
                let sink = DataPart {
                    tag,
                    offset,
                    len: 20,
                };
                end.machine.read(sink, 77, 0).expect("it takes reads");
            }
            let stags = sinks_asked_for(&mut end, peer);
            assert_eq!(stags.len(), 2, "as many as the ORD");
            let response = |stag| {
                let mut bytes = peer.tagged((opcode::READ_RESPONSE, false), stag, 0, &data[..7]);
                bytes.extend(peer.tagged((opcode::READ_RESPONSE, true), stag, 7, &data[7..]));
                bytes
            };
            let mut stream: VecDeque<u8> = response(stags[0]).into();
            let mut first: VecDeque<u8> = stream.drain(..before.min(stream.len())).collect();
            while end.receive(&mut first, 1) > 0 {
                assert_eq!(ops(&mut end), []);
            }
            assert!(!end.machine.has_abandoned_reads());
            end.machine.abandon(3);
            assert!(end.machine.has_abandoned_reads());
            // Memory that is no more: to place anything there panics.
            end.set_memory(3, Vec::new());
            stream.extend(response(stags[1]));
            assert_eq!(feed(&mut end, &Vec::from(stream), 2), []);
            assert!(!end.machine.has_abandoned_reads());
            let stags = sinks_asked_for(&mut end, peer);
            assert_eq!(stags.len(), 1, "the third was not asked for yet");
            let sink = DataPart {
                tag: 4,
                offset: 0,
                len: 20,
            };
            let told = feed(&mut end, &response(stags[0]), 5);
            assert_eq!(told, [QpOp::ReadDone(sink)]);
            assert_eq!(end.memory[4], data);
        }
    }
}

#[test]
fn stream_that_is_ended_before_a_body_has_its_place_takes_what_comes() {
    let (mut end, peer) = connected(settings(), true);
    end.machine.post_receives(1);
    let mut stream: VecDeque<u8> = peer.send(1, &pattern(HEAD + BODY)).into();
    stream.extend(peer.send(2, b"more"));
    end.receive(&mut stream, HEAD + 30);
    assert_eq!(ops(&mut end), [QpOp::Body]);
    end.machine.terminate(TerminateCode::UNSPECIFIED);
    while !stream.is_empty() {
        assert!(end.receive(&mut stream, 7) > 0);
        ops(&mut end);
    }
}
