//! The machine of a connection of a server whose client comes by RDMA.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use doubles::nfs::{RpcDouble, SeenCall};
use doubles::rdma::RdmaPair;
use iwarp::{CrcPolicy, QpError, QpSettings};
use machine::Machine;
use nfs::connection::*;
use proptest::prelude::*;
use random::Random;
use testkit::nfs::call::{CompoundPart, call_header, call_header_of, compound, cut, record};
use testkit::rpc_rdma::{Message, Segment, segment};
use wire::iwarp::{MPA_REQUEST_KEY, TerminateCode};
use wire::nfs3::nfs_proc3;
use wire::nfs4::NFS4_PROGRAM;
use wire::rpc_rdma::{RpcRdmaPrivateData, rpc_rdma_error, rpc_rdma_errvers};
use wire::xdr::{Encode, pad};

const INLINE: u32 = 4096;
const CREDITS: u16 = 8;

fn client_data() -> RpcRdmaPrivateData {
    RpcRdmaPrivateData {
        takes_invalidate: true,
        send_bytes_max: INLINE,
        receive_bytes_max: INLINE,
    }
}

fn settings() -> (RpcServerSettings, RdmaSettings) {
    let rdma = RdmaSettings {
        credits: CREDITS,
        ..RdmaSettings::default()
    };
    (RpcServerSettings::default(), rdma)
}

fn pair_with(stream: QpSettings, step: usize) -> RdmaPair {
    RdmaPair::new(settings(), stream, &client_data().encode(), step)
}

fn pair() -> RdmaPair {
    pair_with(QpSettings::default(), usize::MAX)
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at * 7 + seed + at / 256) as u8)
        .collect()
}

fn padded(bytes: &[u8]) -> Vec<u8> {
    [bytes, &[0; 3][..pad(bytes.len())]].concat()
}

/// A COMPOUND, as it is without chunks.
fn call(xid: u32, parts: &[CompoundPart]) -> Vec<u8> {
    let mut bytes = call_header(xid, |_| {});
    bytes.extend(compound(parts).0);
    bytes
}

/// The answer to a COMPOUND as [`RpcDouble::answer`] gives it, before its payload.
fn answer_head(xid: u32, seen: &SeenCall) -> Vec<u8> {
    let mut bytes = Vec::new();
    [xid, 1, 0, 0, 0, 0]
        .iter()
        .for_each(|word| word.encode(&mut bytes));
    bytes.extend(&seen.args);
    bytes
}

/// Takes data out of a call: what is left of it, and where it stood.
fn reduce(call: &[u8], data: &[u8]) -> (Vec<u8>, u32) {
    let whole = padded(data);
    let at = call.windows(whole.len()).position(|bytes| bytes == whole);
    let at = at.expect("it is there");
    let rest = [&call[..at], &call[at + whole.len()..]].concat();
    (rest, at as u32)
}

fn received(pair: &mut RdmaPair) -> Vec<Result<Message, rpc_rdma_error>> {
    let all = std::mem::take(&mut pair.client.received);
    all.iter()
        .map(|(bytes, _)| Message::decode(bytes))
        .collect()
}

/// The only message that the client has got.
fn one(pair: &mut RdmaPair) -> Message {
    let mut all = received(pair);
    assert_eq!(all.len(), 1, "one message");
    all.remove(0).expect("no error")
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let word = |word: &[u8]| u32::from_be_bytes(word.try_into().expect("4 bytes"));
    bytes.chunks(4).map(word).collect()
}

#[test]
fn a_connection_tells_its_sizes_and_credits() {
    let mut pair = pair();
    let own = RpcRdmaPrivateData::decode(pair.client.end.machine.private_data());
    assert_eq!(own, Some(client_data()));
    pair.send(&Message::short(9, 1, call_header(9, |call| call.proc = 0)));
    let (bytes, _) = pair.client.received[0].clone();
    let header = [9, 1, u32::from(CREDITS), 0, 0, 0, 0];
    assert_eq!(words(&bytes), [&header[..], &[9, 1, 0, 0, 0, 0]].concat());
}

#[test]
fn calls_and_answers_in_sends_cut_at_every_byte() {
    let data = pattern(50, 1);
    let parts = [
        CompoundPart::Put(vec![5; 8]),
        CompoundPart::Write(77, data.clone()),
        CompoundPart::Getattr(vec![1, 2]),
    ];
    for crc in [CrcPolicy::Off, CrcPolicy::Require] {
        for step in [1, 7, 100, usize::MAX] {
            let stream = QpSettings {
                crc,
                ulpdu_max: 128,
                ..QpSettings::default()
            };
            let mut pair = pair_with(stream, step);
            pair.send(&Message::short(3, 1, call(3, &parts)));
            let (_, seen) = &pair.server.calls[0];
            assert_eq!((seen.xid, seen.ops), (3, (3, Stop::End)));
            assert_eq!(seen.args, compound(&parts).1);
            assert_eq!(seen.data, [Some(data.clone())]);
            assert_eq!(pair.server.places, [(77, Some(vec![5; 8]))]);
            let seen = seen.clone();
            pair.server.answer(0, &[pattern(9, 2)]);
            pair.exchange();
            let answer = one(&mut pair);
            let mut expected = answer_head(3, &seen);
            9u32.encode(&mut expected);
            expected.extend(padded(&pattern(9, 2)));
            assert_eq!(answer, Message::short(3, CREDITS.into(), expected));
        }
    }
}

#[test]
fn data_of_a_write_is_read_straight_into_its_memory() {
    for (len, has_padding, cuts) in [
        (4096, false, vec![]),
        (4099, false, vec![1, 4000]),
        (4099, true, vec![4099]),
        (9000, false, vec![0, 5, 5, 8999]),
    ] {
        let mut pair = pair();
        let data = pattern(len, 3);
        let parts = [
            CompoundPart::Put(vec![5; 8]),
            CompoundPart::Write(11, data.clone()),
            CompoundPart::Put(vec![6; 12]),
            CompoundPart::Getattr(vec![1]),
        ];
        let (rest, position) = reduce(&call(4, &parts), &data);
        let whole = match has_padding {
            true => padded(&data),
            false => data.clone(),
        };
        let mut reads = Vec::new();
        let mut from = 0;
        for to in cuts.iter().copied().chain([whole.len()]) {
            reads.push((position, pair.client.readable(&whole[from..to])));
            from = to;
        }
        let message = Message {
            reads,
            ..Message::short(4, 1, rest)
        };
        pair.send(&message);
        let (tag, seen) = &pair.server.calls[0];
        assert_eq!(seen.ops, (4, Stop::End));
        assert_eq!(seen.args, compound(&parts).1);
        assert_eq!(seen.data, [Some(data)]);
        assert_eq!(pair.server.places, [(11, Some(vec![5; 8]))]);
        let record_bytes = pair.server.end.machine.call(*tag).record_bytes;
        assert_eq!(record_bytes as usize, call(4, &parts).len());
        assert_eq!(
            pair.server.end.placed_bytes + pair.server.end.direct_bytes,
            len as u64
        );
    }
}

#[test]
fn calls_go_on_while_data_of_another_waits_for_memory() {
    let mut pair = pair();
    pair.server.starves = true;
    let data = pattern(5000, 3);
    let parts = [
        CompoundPart::Put(vec![5; 8]),
        CompoundPart::Write(11, data.clone()),
        CompoundPart::Put(vec![6; 12]),
    ];
    let (rest, position) = reduce(&call(4, &parts), &data);
    for xid in [4, 6] {
        let reads = vec![(position, pair.client.readable(&data))];
        let body = [&u32::to_be_bytes(xid)[..], &rest[4..]].concat();
        pair.send(&Message {
            reads,
            ..Message::short(xid, 1, body)
        });
        let (tag, len) = pair.server.starved.expect("memory is asked for");
        assert_eq!(len, 5000);
        assert!(!pair.server.end.machine.is_blocked_on(tag));
        let small = [CompoundPart::Getattr(vec![1])];
        pair.send(&Message::short(5, 1, call(5, &small)));
        assert_eq!(pair.server.calls[0].1.xid, 5, "it is not held back");
        pair.server.answer(0, &[]);
        // The file is that of the WRITE still, though the call has another now.
        let call = pair
            .server
            .end
            .machine
            .write_handle(0, tag)
            .map(<[u8]>::to_vec);
        if xid == 4 {
            assert_eq!(call, Some(vec![5; 8]));
        }
        pair.server.feed(xid == 4);
        pair.exchange();
        let (_, seen) = pair.server.calls[0].clone();
        let expected = (xid == 4).then(|| data.clone());
        assert_eq!((seen.xid, seen.ops), (xid, (3, Stop::End)));
        assert_eq!(seen.data, [expected]);
        pair.server.answer(0, &[]);
        pair.exchange();
        assert_eq!(received(&mut pair).len(), 2);
    }
}

#[test]
fn two_writes_have_chunks_of_their_own() {
    let mut pair = pair();
    let (one, two) = (pattern(4097, 1), pattern(6000, 2));
    let parts = [
        CompoundPart::Write(1, one.clone()),
        CompoundPart::Getattr(vec![1]),
        CompoundPart::Write(2, two.clone()),
    ];
    let whole = call(8, &parts);
    let (_, second) = reduce(&whole, &two);
    let (rest, first) = reduce(&whole, &one);
    let (rest, _) = reduce(&rest, &two);
    // In any order.
    let reads = vec![
        (second, pair.client.readable(&two[..100])),
        (first, pair.client.readable(&one)),
        (second, pair.client.readable(&two[100..])),
    ];
    pair.send(&Message {
        reads,
        ..Message::short(8, 1, rest)
    });
    let (_, seen) = &pair.server.calls[0];
    assert_eq!(seen.ops, (3, Stop::End));
    assert_eq!(seen.data, [Some(one), Some(two)]);
}

/// A SYMLINK of NFSv3 whose text has a chunk.
#[test]
fn text_of_a_symbolic_link_is_put_in_its_place() {
    let mut pair = pair();
    let mut args = Vec::new();
    for word in [8, 0x0a0b, 0x0c0d, 1, 0x6e00_0000, 0, 0, 0, 0, 0, 0] {
        u32::encode(&word, &mut args);
    }
    let text = pattern(333, 5);
    (text.len() as u32).encode(&mut args);
    let header = call_header_of(2, (NFS4_PROGRAM, 3, nfs_proc3::NFSPROC3_SYMLINK as u32));
    let position = (header.len() + args.len()) as u32;
    let reads = vec![
        (position, pair.client.readable(&text[..1])),
        (position, pair.client.readable(&text[1..])),
    ];
    let rest = [&header[..], &args, &[7; 8]].concat();
    pair.send(&Message {
        reads,
        ..Message::short(2, 1, rest)
    });
    let (tag, seen) = &pair.server.calls[0];
    let procedure = Procedure::Nfs3(nfs_proc3::NFSPROC3_SYMLINK);
    assert_eq!(pair.server.end.machine.call(*tag).procedure, procedure);
    assert_eq!(seen.args, [args, padded(&text), vec![7; 8]].concat());
}

#[test]
fn long_calls_are_read_from_the_chunk_at_position_zero() {
    for crc in [CrcPolicy::Off, CrcPolicy::Require] {
        let stream = QpSettings {
            crc,
            ulpdu_max: 1000,
            ..QpSettings::default()
        };
        let mut pair = pair_with(stream, 777);
        let (small, large) = (pattern(700, 1), pattern(8193, 2));
        let parts = [
            CompoundPart::Put(vec![5; 8]),
            CompoundPart::Lookup(vec![b'n'; 200]),
            CompoundPart::Write(1, small.clone()),
            CompoundPart::Write(2, large.clone()),
            CompoundPart::Getattr(vec![1; 2]),
        ];
        let whole = call(6, &parts);
        // All of it, then without what has a chunk of its own.
        let (rest, position) = reduce(&whole, &large);
        for reduced in [false, true] {
            let bytes = if reduced { &rest } else { &whole };
            let mut reads = vec![
                (0, pair.client.readable(&bytes[..301])),
                (0, pair.client.readable(&bytes[301..])),
            ];
            if reduced {
                reads.insert(0, (position, pair.client.readable(&large)));
            }
            pair.send(&Message {
                is_long: true,
                reads,
                ..Message::short(6, 1, Vec::new())
            });
            assert_eq!(pair.server.fatal, None);
            let (_, seen) = pair.server.calls.remove(0);
            assert_eq!(seen.ops, (5, Stop::End));
            assert_eq!(seen.args, compound(&parts).1);
            assert_eq!(seen.data, [Some(small.clone()), Some(large.clone())]);
        }
    }
}

#[test]
fn long_call_without_memory_is_a_system_error() {
    let mut pair = pair();
    pair.server.starves = true;
    let parts = [CompoundPart::Write(2, pattern(8193, 2))];
    let whole = call(6, &parts);
    let reads = vec![(0, pair.client.readable(&whole))];
    pair.send(&Message {
        is_long: true,
        reads,
        ..Message::short(6, 1, Vec::new())
    });
    assert_eq!(
        pair.server.starved_args.map(|(_, bytes)| bytes as usize),
        Some(whole.len())
    );
    pair.server.feed(false);
    pair.exchange();
    assert_eq!(words(&one(&mut pair).body), [6, 1, 0, 0, 0, 5]);
}

/// A READ is answered with `data`; the client has these chunks.
fn answered(pair: &mut RdmaPair, data: &[Vec<u8>], message: Message) -> SeenCall {
    let body = call(7, &[CompoundPart::Getattr(vec![1])]);
    pair.send(&Message {
        xid: 7,
        credits: 1,
        body,
        ..message
    });
    let (_, seen) = pair.server.calls[0].clone();
    pair.server.answer(0, data);
    pair.exchange();
    seen
}

#[test]
fn data_of_a_read_is_written_to_its_chunk() {
    for crc in [CrcPolicy::Off, CrcPolicy::Require] {
        let stream = QpSettings {
            crc,
            ..QpSettings::default()
        };
        let mut pair = pair_with(stream, 500);
        let data = pattern(5001, 4);
        let (first, second) = (pair.client.writable(3000), pair.client.writable(4000));
        let unused = pair.client.writable(10);
        let reply = pair.client.writable(20);
        let message = Message {
            writes: vec![vec![first, second], vec![unused]],
            reply: Some(vec![reply]),
            ..Message::default()
        };
        let seen = answered(&mut pair, std::slice::from_ref(&data), message);
        assert_eq!(pair.client.memory(3), &data[..3000]);
        assert_eq!(pair.client.memory(2)[..2001], data[3000..]);
        assert!(
            pair.client.memory(2)[2001..]
                .iter()
                .all(|byte| *byte == 0xdd),
            "no padding"
        );
        let mut body = answer_head(7, &seen);
        5001u32.encode(&mut body);
        let expected = Message {
            writes: vec![
                vec![
                    first,
                    Segment {
                        length: 2001,
                        ..second
                    },
                ],
                vec![Segment {
                    length: 0,
                    ..unused
                }],
            ],
            reply: Some(vec![Segment { length: 0, ..reply }]),
            ..Message::short(7, CREDITS.into(), body)
        };
        assert_eq!(pair.client.received[0].1, None, "several handles");
        assert_eq!(one(&mut pair), expected);
    }
}

#[test]
fn the_only_handle_of_a_call_is_invalidated_where_the_client_takes_that() {
    for takes_invalidate in [true, false] {
        let data = RpcRdmaPrivateData {
            takes_invalidate,
            ..client_data()
        };
        let mut pair = RdmaPair::new(settings(), QpSettings::default(), &data.encode(), 1000);
        let all = pair.client.writable(3000);
        let half = |offset| segment(all.handle, all.offset + offset, 1500);
        let message = Message {
            writes: vec![vec![half(0), half(1500)]],
            ..Message::default()
        };
        answered(&mut pair, &[pattern(2000, 1)], message);
        assert_eq!(pair.client.memory(0)[..2000], pattern(2000, 1));
        let (_, invalidated) = pair.client.received[0];
        assert_eq!(invalidated, takes_invalidate.then_some(all.handle));
        assert_eq!(pair.client.fatal, None);
    }
}

#[test]
fn several_results_go_to_chunks_in_their_order() {
    let mut pair = pair();
    let data = [pattern(5000, 1), Vec::new(), pattern(30, 2), pattern(41, 3)];
    let (first, second, last) = (
        pair.client.writable(5000),
        pair.client.writable(9),
        pair.client.writable(50),
    );
    let message = Message {
        // The third has a chunk that says that its data is wanted in the answer.
        writes: vec![vec![first], vec![second], vec![], vec![last]],
        ..Message::default()
    };
    let seen = answered(&mut pair, &data, message);
    assert_eq!(pair.client.memory(2), data[0]);
    assert_eq!(pair.client.memory(0)[..41], data[3]);
    let mut body = answer_head(7, &seen);
    5000u32.encode(&mut body);
    0u32.encode(&mut body);
    30u32.encode(&mut body);
    body.extend(padded(&data[2]));
    41u32.encode(&mut body);
    let answer = one(&mut pair);
    assert_eq!(answer.body, body);
    let lengths: Vec<Vec<u32>> = answer
        .writes
        .iter()
        .map(|chunk| chunk.iter().map(|segment| segment.length).collect())
        .collect();
    assert_eq!(lengths, [vec![5000], vec![0], vec![], vec![41]]);
}

#[test]
fn text_among_the_bytes_of_an_answer_goes_to_its_chunk() {
    let mut pair = pair();
    let chunk = pair.client.writable(100);
    pair.send(&Message {
        writes: vec![vec![chunk]],
        ..Message::short(7, 1, call(7, &[CompoundPart::Getattr(vec![1])]))
    });
    let (tag, _) = pair.server.calls.remove(0);
    let text = pattern(33, 9);
    let reply = pair.server.end.machine.reply(tag);
    1u32.encode(reply.bytes());
    33u32.encode(reply.bytes());
    reply.bytes().extend(padded(&text));
    reply.data_item_behind(33);
    2u32.encode(reply.bytes());
    pair.server.send(tag);
    pair.exchange();
    let answer = one(&mut pair);
    assert_eq!(words(&answer.body), [7, 1, 0, 0, 0, 0, 1, 33, 2]);
    assert_eq!(answer.writes[0][0].length, 33);
    assert_eq!(pair.client.memory(0)[..33], text);
    assert_eq!(pair.client.memory(0)[33], 0xdd);
}

#[test]
fn long_answers_go_to_their_chunk_with_the_data_that_has_none() {
    for crc in [CrcPolicy::Off, CrcPolicy::Require] {
        let stream = QpSettings {
            crc,
            ..QpSettings::default()
        };
        let mut pair = pair_with(stream, 999);
        let data = [pattern(4001, 1), pattern(3, 2), pattern(2000, 3)];
        let write = pair.client.writable(4001);
        let (first, second) = (pair.client.writable(1999), pair.client.writable(9000));
        let message = Message {
            writes: vec![vec![write], vec![]],
            reply: Some(vec![first, second]),
            ..Message::default()
        };
        // Beside it more than fits into a Send.
        let body = call(7, &[CompoundPart::Getattr(vec![1])]);
        pair.send(&Message {
            body,
            xid: 7,
            ..message.clone()
        });
        let (tag, seen) = pair.server.calls[0].clone();
        let more = pattern(4096, 8);
        pair.server.end.machine.reply(tag).bytes().extend(&more);
        pair.server.answer(0, &data);
        pair.exchange();
        assert_eq!(pair.client.memory(2), data[0]);
        let mut whole = answer_head(7, &seen);
        let args = whole.split_off(24);
        whole.extend(&more);
        whole.extend(args);
        for (index, bytes) in data.iter().enumerate() {
            (bytes.len() as u32).encode(&mut whole);
            if index > 0 {
                whole.extend(padded(bytes));
            }
        }
        let got = [pair.client.memory(1), pair.client.memory(0)].concat();
        assert_eq!(got[..whole.len()], whole);
        assert!(got[whole.len()..].iter().all(|byte| *byte == 0xdd));
        let length = whole.len() as u32 - 1999;
        let expected = Message {
            is_long: true,
            writes: vec![vec![write], vec![]],
            reply: Some(vec![first, Segment { length, ..second }]),
            ..Message::short(7, CREDITS.into(), Vec::new())
        };
        assert_eq!(one(&mut pair), expected);
    }
}

#[test]
fn answers_without_room_are_errors_and_the_connection_goes_on() {
    let mut pair = pair();
    let write = pair.client.writable(4000);
    let reply = pair.client.writable(4000);
    let none = (vec![], None);
    for (writes, reply) in [
        none.clone(),
        // The data is longer than its chunk; all of it is longer than the chunk for it.
        (vec![vec![write]], None),
        (vec![], Some(vec![reply])),
    ] {
        let message = Message {
            writes,
            reply,
            ..Message::default()
        };
        answered(&mut pair, &[pattern(4100, 1)], message);
        assert_eq!(received(&mut pair), [Err(rpc_rdma_error::ERR_CHUNK)]);
        answered(&mut pair, &[pattern(10, 1)], Message::default());
        assert_eq!(one(&mut pair).xid, 7);
    }
    assert!(
        pair.client.memory(1).iter().all(|byte| *byte == 0xdd),
        "nothing was written"
    );
}

#[test]
fn a_client_that_says_nothing_of_itself_gets_1024_bytes_in_a_send() {
    let mut pair = RdmaPair::new(settings(), QpSettings::default(), b"", usize::MAX);
    let reply = pair.client.writable(4000);
    for (len, is_long) in [(800, false), (1000, true)] {
        let message = Message {
            reply: Some(vec![reply]),
            ..Message::default()
        };
        answered(&mut pair, &[pattern(len, 1)], message);
        let (bytes, _) = &pair.client.received[0];
        assert!(bytes.len() <= 1024);
        assert_eq!(one(&mut pair).is_long, is_long);
    }
}

#[test]
fn wrong_headers_are_answered_as_the_standard_says() {
    const CHUNK: Option<rpc_rdma_error> = Some(rpc_rdma_error::ERR_CHUNK);
    let only = rpc_rdma_errvers {
        rdma_vers_low: 1,
        rdma_vers_high: 1,
    };
    let versions = Some(rpc_rdma_error::ERR_VERS(only));
    let body = call(5, &[CompoundPart::Getattr(vec![1])]);
    let good = Message::short(5, 1, body);
    let word = |at: usize, value: u32| {
        let mut bytes = good.encode();
        bytes[at * 4..at * 4 + 4].copy_from_slice(&value.to_be_bytes());
        bytes
    };
    let with = |change: &dyn Fn(&mut Message)| {
        let mut message = good.clone();
        change(&mut message);
        message.encode()
    };
    let far = segment(1, u64::MAX, 2);
    let (one, other) = (segment(1, 10, 10), segment(1, 19, 10));
    let many = vec![segment(1, 0, 0); 65];
    let cases: Vec<(Vec<u8>, Option<rpc_rdma_error>)> = vec![
        (good.encode()[..27].to_vec(), None),
        (word(1, 0), versions),
        (word(1, 2), versions),
        (word(3, 2), CHUNK),
        (word(3, 3), None),
        (word(3, 4), None),
        (word(3, 5), CHUNK),
        // No more than the header; a long message without one; another transaction inside.
        (good.encode()[..28].to_vec(), CHUNK),
        (word(3, 1), CHUNK),
        (word(7, 6), CHUNK),
        // Lists that are none, or end behind the Send.
        (word(4, 2), CHUNK),
        (word(5, 1), CHUNK),
        (word(6, 7), CHUNK),
        (
            with(&|message| message.reads = vec![(6, segment(1, 0, 8))]),
            CHUNK,
        ),
        (
            with(&|message| message.reads = vec![(0, segment(1, 0, 8))]),
            CHUNK,
        ),
        (with(&|message| message.reads = vec![(40, far)]), CHUNK),
        (with(&|message| message.writes = vec![vec![far]]), CHUNK),
        (with(&|message| message.reply = Some(vec![far])), CHUNK),
        // Overlapping memory for results.
        (
            with(&|message| message.writes = vec![vec![one, other]]),
            CHUNK,
        ),
        (
            with(&|message| message.writes = vec![vec![one], vec![other]]),
            CHUNK,
        ),
        (
            with(&|message| {
                message.writes = vec![vec![one]];
                message.reply = Some(vec![other]);
            }),
            CHUNK,
        ),
        // More than any call may have, and more segments than are taken.
        (
            with(&|message| message.reads = vec![(40, segment(1, 0, 2 << 20))]),
            CHUNK,
        ),
        (
            with(&|message| message.reads = vec![(40, segment(1, 0, u32::MAX)); 2]),
            CHUNK,
        ),
        (with(&|message| message.writes = vec![many.clone()]), CHUNK),
        (
            with(&|message| message.reads = vec![(40, segment(1, 0, 0)); 65]),
            CHUNK,
        ),
        // An answer to nothing, with and without chunks.
        (word(8, 1), None),
    ];
    let mut pair = pair();
    for (index, (bytes, expected)) in cases.iter().enumerate() {
        pair.send_bytes(bytes.clone());
        let answers = received(&mut pair);
        let expected: Vec<_> = expected.iter().copied().map(Err).collect();
        assert_eq!(answers, expected, "case {index}");
        assert!(pair.server.calls.is_empty() && pair.server.fatal.is_none());
        // No credit is lost.
        for _ in 0..2 * CREDITS {
            pair.send(&good);
            pair.server.answer(0, &[]);
            pair.exchange();
            assert_eq!(received(&mut pair).len(), 1, "behind case {index}");
        }
    }
}

#[test]
fn errors_tell_transaction_and_version_of_the_message() {
    let mut pair = pair();
    let words_of = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect();
    let mut pairs = vec![([0xabcd, 9, 1, 0, 0, 0, 0], vec![0xabcd, 9, 8, 4, 1, 1, 1])];
    pairs.push(([0xabce, 1, 1, 2, 0, 0, 0], vec![0xabce, 1, 8, 4, 2]));
    for (sent, answer) in pairs {
        pair.send_bytes(words_of(&sent));
        let (bytes, _) = pair.client.received.pop().expect("an error");
        assert_eq!(words(&bytes), answer);
    }
}

#[test]
fn chunks_that_no_argument_has_make_garbage_of_a_call() {
    let data = pattern(5000, 1);
    let parts = [
        CompoundPart::Write(1, data.clone()),
        CompoundPart::Getattr(vec![1]),
    ];
    let (rest, position) = reduce(&call(5, &parts), &data);
    let plain = call(5, &[CompoundPart::Getattr(vec![1])]);
    let end = plain.len() as u32;
    // Beside a WRITE whose data comes; behind the end; of another length.
    type Case<'a> = (Vec<(u32, usize)>, &'a [u8]);
    let cases: [Case<'_>; 3] = [
        (vec![(position, 5000), (position + 5004, 4096)], &rest),
        (vec![(end + 400, 4096)], &plain),
        (vec![(end + 400, 10)], &plain),
    ];
    for (chunks, body) in cases {
        let mut pair = pair();
        let reads = chunks
            .iter()
            .map(|(position, len)| (*position, pair.client.readable(&data[..*len])));
        let reads = reads.collect();
        pair.send(&Message {
            reads,
            ..Message::short(5, 1, body.to_vec())
        });
        assert!(pair.server.calls.is_empty() && pair.server.fatal.is_none());
        assert_eq!(words(&one(&mut pair).body), [5, 1, 0, 0, 0, 4]);
    }
    let mut pair = pair();
    let reads = vec![(position, pair.client.readable(&data[..4999]))];
    pair.send(&Message {
        reads,
        ..Message::short(5, 1, rest)
    });
    let (_, seen) = &pair.server.calls[0];
    assert_eq!((seen.ops, &seen.data), ((0, Stop::BadXdr), &Vec::new()));
}

#[test]
fn more_calls_than_there_are_credits_end_the_stream() {
    let mut pair = pair();
    for xid in 0..=CREDITS {
        let body = call(xid.into(), &[CompoundPart::Getattr(vec![1])]);
        pair.send(&Message::short(xid.into(), 1, body));
    }
    assert_eq!(pair.server.calls.len(), usize::from(CREDITS));
    let why = QpError::Sent(TerminateCode::NO_BUFFER);
    assert_eq!(pair.server.fatal, Some(RpcServerFatalError::Rdma(why)));
    let why = QpError::Received(TerminateCode::NO_BUFFER);
    assert_eq!(pair.client.fatal, Some(why));
}

#[test]
fn sends_longer_than_was_said_end_the_stream() {
    let mut pair = pair();
    pair.send_bytes(vec![0; INLINE as usize + 1]);
    let why = QpError::Sent(TerminateCode::MESSAGE_TOO_LONG);
    assert_eq!(pair.server.fatal, Some(RpcServerFatalError::Rdma(why)));
}

#[test]
fn memory_that_the_client_never_gave_ends_the_stream_and_executes_nothing() {
    let data = pattern(5000, 1);
    let (rest, position) = reduce(&call(5, &[CompoundPart::Write(1, data.clone())]), &data);
    let mut pair = pair();
    let there = pair.client.readable(&data);
    let reads = vec![(position, segment(there.handle ^ 1, 0x1000, 5000))];
    pair.send(&Message {
        reads,
        ..Message::short(5, 1, rest)
    });
    assert!(pair.server.calls.is_empty());
    let why = QpError::Received(TerminateCode::SOURCE_STAG);
    assert_eq!(pair.server.fatal, Some(RpcServerFatalError::Rdma(why)));
}

#[test]
fn a_client_whose_memory_cannot_be_read_is_rejected() {
    let stream = QpSettings {
        ird_max: 0,
        ..QpSettings::default()
    };
    let mut client = testkit::End::new(iwarp::Qp::initiator(stream, 3, b"", 0));
    let (rpc, rdma) = settings();
    let mut server = RpcDouble::new(Connection::new(rpc, 0).with_rdma(rdma, 1));
    let (mut there, mut back) = (VecDeque::new(), VecDeque::new());
    client.transmit(&mut there, 9);
    server.receive(&mut there, usize::MAX);
    assert_eq!(server.fatal, Some(RpcServerFatalError::NoReads));
    server.end.transmit(&mut back, 9);
    client.receive(&mut back, usize::MAX);
    assert_eq!(client.next_op(), Some(iwarp::QpOp::Rejected));
}

#[test]
fn the_first_byte_says_whether_records_come() {
    let (rpc, rdma) = settings();
    let machine = Connection::new(rpc, 0).with_rdma(rdma, 1);
    let mut server = RpcDouble::new(machine);
    let bytes = call(5, &[CompoundPart::Getattr(vec![1])]);
    let mut stream: VecDeque<u8> = record(&bytes, || 10).into();
    while server.receive(&mut stream, 1) {}
    assert!(!server.end.machine.is_rdma());
    assert_eq!(server.calls[0].1.xid, 5);
    // Where either is not taken, it is told which.
    let only = RdmaSettings {
        takes_records: false,
        ..rdma
    };
    let mut server = RpcDouble::new(Connection::new(rpc, 0).with_rdma(only, 1));
    server.receive(&mut record(&bytes, || 10).into(), 1);
    assert_eq!(server.fatal, Some(RpcServerFatalError::Records));
    let mut server = RpcDouble::new(Connection::new(rpc, 0));
    server.receive(&mut MPA_REQUEST_KEY.to_vec().into(), usize::MAX);
    assert_eq!(server.fatal, Some(RpcServerFatalError::NoRdma));
}

#[test]
fn callbacks_go_out_as_the_client_has_credits_for_them() {
    let mut pair = pair();
    answered(&mut pair, &[], Message::default());
    pair.client.received.clear();
    let machine = &mut pair.server.end.machine;
    let xids: Vec<u32> = (0..4)
        .map(|index| {
            let called = machine.call_back((0x4000_0000, 1, 1), |to| u32::encode(&index, to));
            called.expect("room")
        })
        .collect();
    let too_long = machine.call_back((1, 1, 1), |to| to.extend([0; INLINE as usize]));
    assert_eq!(too_long, None);
    let mut gone = Vec::new();
    // Until it has answered one, a client takes one; then as many as it says.
    for (answered, credits, sent) in [
        (None, 0, 1),
        (Some(0), 2, 2),
        (Some(1), 1, 0),
        (Some(2), 9, 1),
    ] {
        if let Some(index) = answered {
            let xid: u32 = xids[index];
            let answer: Vec<u8> = [xid, 1, 0, 0, 0, 0]
                .iter()
                .flat_map(|w| w.to_be_bytes())
                .collect();
            pair.send(&Message::short(xid, credits, answer));
        }
        pair.exchange();
        let new = received(&mut pair);
        assert_eq!(new.len(), sent, "behind {answered:?}");
        gone.extend(new.into_iter().map(|message| message.expect("a call")));
    }
    assert_eq!(gone.iter().map(|call| call.xid).collect::<Vec<_>>(), xids);
    let header = words(&gone[0].encode());
    assert_eq!(header[..7], [xids[0], 1, 16, 0, 0, 0, 0]);
    assert_eq!(header[7..9], [xids[0], 0]);
    let answers = std::mem::take(&mut pair.server.answers);
    assert_eq!(answers.len(), 3);
    // Answers took no credit of calls.
    for _ in 0..2 * CREDITS {
        answered(&mut pair, &[], Message::default());
        assert_eq!(received(&mut pair).len(), 1);
    }
    assert_eq!((pair.client.fatal, pair.server.fatal), (None, None));
}

/// Bytes that stand nowhere else.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.below(256) as u8).collect()
}

/// What a server sees of a call that comes in a record, and the answer that it gives.
fn by_records(bytes: &[u8], data: &[Vec<u8>]) -> (SeenCall, Vec<u8>) {
    let (rpc, _) = settings();
    let mut server = RpcDouble::new(Connection::new(rpc, 0));
    let mut stream = record(bytes, || usize::MAX).into();
    while server.receive(&mut stream, usize::MAX) {}
    let (_, seen) = server.calls[0].clone();
    server.answer(0, data);
    let mut out = VecDeque::new();
    while server.end.machine.has_transmit() {
        server.end.transmit(&mut out, 9);
    }
    (seen, cut(&mut out).remove(0))
}

/// Cuts `bytes` into segments of the client's memory.
fn cut_up(pair: &mut RdmaPair, bytes: &[u8], random: &mut Random) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut rest = bytes;
    while segments.len() < 5 && random.one_in(2) {
        let (piece, behind) = rest.split_at(random.below(rest.len() as u64 + 1) as usize);
        segments.push(pair.client.readable(piece));
        rest = behind;
    }
    segments.push(pair.client.readable(rest));
    segments
}

/// An answer as the client puts it together: from a Send, chunks of data, the chunk of all.
fn put_together(pair: &RdmaPair, answer: &Message, data: &[Vec<u8>], chunks: u16) -> Vec<u8> {
    let mut bytes = match answer.is_long {
        false => answer.body.clone(),
        true => {
            let length = answer.reply.as_ref().expect("a chunk")[0].length;
            pair.client.memory(0)[..length as usize].to_vec()
        }
    };
    // From the end, so that what is before stays where it was.
    let mut at = bytes.len();
    for (index, item) in data.iter().enumerate().rev() {
        if index >= usize::from(chunks) {
            at -= padded(item).len() + 4;
            continue;
        }
        let lengths = answer.writes[index].iter().map(|segment| segment.length);
        assert_eq!(lengths.sum::<u32>() as usize, item.len());
        let got = &pair.client.memory(chunks - index as u16)[..item.len()];
        bytes.splice(at..at, padded(got));
        at -= 4;
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// However a call comes, the same is seen, and its answer is the same.
    #[test]
    fn rdma_brings_what_records_bring(
        lens in proptest::collection::vec(prop_oneof![0usize..80, 4090usize..4110, 4096usize..9000], 0..4),
        answers in proptest::collection::vec(prop_oneof![1usize..60, 3000usize..5000], 0..3),
        chunks in 0u16..3,
        is_long in any::<bool>(),
        has_crc in any::<bool>(),
        ulpdu in 128u16..2000,
        step in prop_oneof![1usize..200, Just(usize::MAX)],
        seed in any::<u64>(),
    ) {
        let mut random = Random::new(seed);
        let mut parts = vec![CompoundPart::Put(vec![5; 8])];
        for (index, len) in lens.iter().enumerate() {
            parts.push(CompoundPart::Write(index as u64, noise(*len, index as u64)));
            parts.push(CompoundPart::Getattr(vec![index as u32]));
        }
        let whole = call(7, &parts);
        let answers: Vec<_> = answers.iter().map(|len| pattern(*len, *len)).collect();
        let (seen, answer) = by_records(&whole, &answers);
        let stream = QpSettings {
            crc: if has_crc { CrcPolicy::Require } else { CrcPolicy::Off },
            ulpdu_max: ulpdu,
            ..QpSettings::default()
        };
        let (rpc, mut rdma) = settings();
        rdma.stream.ulpdu_max = ulpdu;
        let mut pair = RdmaPair::new((rpc, rdma), stream, &client_data().encode(), step);
        let mut reads = Vec::new();
        let mut rest = whole.clone();
        for (index, len) in lens.iter().enumerate() {
            let data = noise(*len, index as u64);
            if *len < 16 || *len < 4096 && random.one_in(2) {
                continue;
            }
            let (_, position) = reduce(&whole, &data);
            rest = reduce(&rest, &data).0;
            let data = if random.one_in(2) { padded(&data) } else { data };
            let segments = cut_up(&mut pair, &data, &mut random);
            reads.extend(segments.into_iter().map(|segment| (position, segment)));
        }
        let mut message = Message::short(7, 1, rest);
        if is_long || message.body.len() > 2500 {
            let body = std::mem::take(&mut message.body);
            let segments = cut_up(&mut pair, &body, &mut random);
            reads.extend(segments.into_iter().map(|segment| (0, segment)));
            message.is_long = true;
        }
        message.reads = reads;
        message.writes = (0..chunks).map(|_| vec![pair.client.writable(5000)]).collect();
        message.reply = Some(vec![pair.client.writable(60_000)]);
        pair.send(&message);
        prop_assert_eq!(pair.server.fatal, None);
        prop_assert_eq!(&pair.server.calls[0].1, &seen);
        pair.server.answer(0, &answers);
        pair.exchange();
        let got = one(&mut pair);
        prop_assert_eq!(put_together(&pair, &got, &answers, chunks), answer);
    }
}
