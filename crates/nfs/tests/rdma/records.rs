//! The same by RDMA and by records.

use crate::*;

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

/// The record that an answer stands for: from a Send, chunks of data, the chunk of all.
fn record_of(pair: &RdmaPair, answer: &Message, data: &[Vec<u8>], chunks: u16) -> Vec<u8> {
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
        prop_assert_eq!(record_of(&pair, &got, &answers, chunks), answer);
    }
}
