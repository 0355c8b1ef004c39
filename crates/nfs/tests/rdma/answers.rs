//! Answers: in Sends, with data in chunks, all in a chunk, and those that have no room.

use crate::*;

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

/// The header of an answer repeats the chunks that the call has for it.
#[test]
fn no_send_is_longer_than_the_client_takes() {
    const SEND_MAX: usize = 1024;
    for (segments, is_answered) in [(61, true), (62, true), (63, false), (64, false)] {
        for data in [vec![], pattern(2000, 1)] {
            let mut pair = RdmaPair::new(settings(), QpSettings::default(), b"", usize::MAX);
            let all = pair.client.writable(64 * 64);
            let part = |at: u32| segment(all.handle, all.offset + u64::from(at) * 64, 64);
            let message = Message {
                reply: Some((0..segments).map(part).collect()),
                ..Message::default()
            };
            answered(&mut pair, std::slice::from_ref(&data), message);
            let (bytes, _) = &pair.client.received[0];
            assert!(bytes.len() <= SEND_MAX, "{} bytes", bytes.len());
            let answer = received(&mut pair).remove(0);
            match is_answered {
                true => assert!(answer.expect("no error").is_long),
                false => assert_eq!(answer, Err(rpc_rdma_error::ERR_CHUNK)),
            }
        }
    }
}
