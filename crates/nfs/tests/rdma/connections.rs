//! Headers that are wrong, what ends a connection, and callbacks.

use crate::*;

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

/// A client that answers none has its calls answered for all that.
#[test]
fn callbacks_that_are_given_up_before_they_are_sent_hold_nothing() {
    let mut pair = pair();
    answered(&mut pair, &[], Message::default());
    pair.client.received.clear();
    let mut given_up = Vec::new();
    for index in 0..1000_u32 {
        let machine = &mut pair.server.end.machine;
        let called = machine.call_back((0x4000_0000, 1, 1), |to| u32::encode(&index, to));
        given_up.push(called.expect("room"));
        machine.forget_call(given_up[index as usize]);
    }
    pair.exchange();
    let sent: Vec<u32> = received(&mut pair)
        .into_iter()
        .map(|call| call.expect("a call").xid)
        .collect();
    assert_eq!(sent, given_up[..1], "it has a credit for one");
    for _ in 0..2 * CREDITS {
        answered(&mut pair, &[], Message::default());
        assert_eq!(received(&mut pair).len(), 1);
    }
    // Its answer, though late, makes room for the next.
    let called = pair
        .server
        .end
        .machine
        .call_back((0x4000_0000, 1, 1), |_| ());
    let late: Vec<u8> = [sent[0], 1, 0, 0, 0, 0]
        .iter()
        .flat_map(|w| w.to_be_bytes())
        .collect();
    pair.send(&Message::short(sent[0], 1, late));
    pair.exchange();
    let next: Vec<_> = received(&mut pair).into_iter().flatten().collect();
    assert_eq!(
        next.iter().map(|call| Some(call.xid)).collect::<Vec<_>>(),
        [called]
    );
    assert_eq!((pair.client.fatal, pair.server.fatal), (None, None));
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
