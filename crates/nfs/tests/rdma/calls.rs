//! Calls: in Sends, with data in chunks, all in a chunk.

use crate::*;

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

/// Bytes of a Send whose call lies in a chunk of one segment.
const LONG_HEADER: usize = 52;

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
    let asked = pair.server.starved_args.map(|(_, bytes)| bytes as usize);
    assert_eq!(asked, Some(LONG_HEADER + whole.len()));
    pair.server.feed(false);
    pair.exchange();
    assert_eq!(words(&one(&mut pair).body), [6, 1, 0, 0, 0, 5]);
}

#[test]
fn long_call_of_a_client_without_exports_is_given_no_memory() {
    let mut pair = pair();
    pair.server.end.machine.set_let_in(false);
    pair.server.starves = true;
    let whole = call(6, &[CompoundPart::Write(2, pattern(8193, 2))]);
    let reads = vec![(0, pair.client.readable(&whole))];
    pair.send(&Message {
        is_long: true,
        reads,
        ..Message::short(6, 1, Vec::new())
    });
    assert_eq!(pair.server.starved_args, None);
    assert_eq!(words(&one(&mut pair).body), [6, 1, 0, 0, 0, 5]);
}

/// Makes a call, with memory of the client.
type MakesCall<'a> = &'a dyn Fn(u32, &mut RdmaPair) -> Message;

/// All that its credits let a client send, with chunks that it does not let the server have.
#[test]
fn calls_whose_chunks_do_not_come_have_memory_that_was_asked_for() {
    const CALLS: u16 = 64;
    let data = pattern(5000, 1);
    let names = vec![CompoundPart::Lookup(vec![b'n'; 200]); 15];
    let long = |xid: u32, pair: &mut RdmaPair| Message {
        is_long: true,
        reads: vec![(0, pair.client.readable(&call(xid, &names)))],
        ..Message::short(xid, 1, Vec::new())
    };
    let write = [&names[..], &[CompoundPart::Write(1, data.clone())]].concat();
    let with_data = |xid: u32, pair: &mut RdmaPair| {
        let (rest, position) = reduce(&call(xid, &write), &data);
        Message {
            reads: vec![(position, pair.client.readable(&data))],
            ..Message::short(xid, 1, rest)
        }
    };
    let cases: [(MakesCall<'_>, bool); 2] = [(&long, true), (&with_data, false)];
    for (makes, is_long) in cases {
        let (rpc, rdma) = settings();
        let credits = CALLS;
        let rdma = RdmaSettings { credits, ..rdma };
        let private = client_data().encode();
        let mut pair = RdmaPair::new((rpc, rdma), QpSettings::default(), &private, usize::MAX);
        // Where calls were, others find as much.
        for round in 1..=2 {
            let (mut there, mut held_bytes) = (VecDeque::new(), 0);
            for xid in 0..CALLS.into() {
                let message = makes(xid, &mut pair);
                let of_call = message.reads[0].1.length;
                held_bytes += message.encode().len() as u64;
                held_bytes += u64::from(if is_long { of_call } else { 0 });
                pair.client.post(message.encode());
                pair.client.transmit(&mut there);
                while pair.server.receive(&mut there, usize::MAX) {}
            }
            assert!(pair.server.calls.is_empty() && pair.server.fatal.is_none());
            let beside = held_bytes - pair.server.args_bytes_asked / round;
            assert!(
                beside <= u64::from(rpc.args_bytes_all_max),
                "{beside} bytes of {held_bytes} have no memory"
            );
            answer_all(&mut pair, CALLS);
        }
    }
}

/// Answers so many calls, all that there are.
fn answer_all(pair: &mut RdmaPair, calls: u16) {
    for _ in 0..calls {
        pair.exchange();
        pair.server.answer(0, &[]);
    }
    pair.exchange();
    assert_eq!(received(pair).len(), usize::from(calls));
    pair.client.take_regions_back();
}
