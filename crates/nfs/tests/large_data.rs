//! Data of up to 8 MiB in one call and in one answer, however it is cut.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use doubles::nfs::RpcDouble;
use machine::Machine as _;
use nfs::connection::*;
use proptest::prelude::*;
use random::Random;
use testkit::nfs::call::{CompoundPart, call_header, compound, cut, record};

const LARGE: usize = 8 << 20;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ at >> 9) as u8).collect()
}

fn call(xid: u32, parts: &[CompoundPart]) -> Vec<u8> {
    let mut bytes = call_header(xid, |_| {});
    bytes.extend(compound(parts).0);
    bytes
}

fn server() -> RpcDouble {
    let settings = RpcServerSettings::with_io(LARGE as u32);
    RpcDouble::new(Connection::new(settings, 0))
}

/// The record with its last bytes goes in fragments of 1 KiB, the least that so many allow.
#[test]
fn write_of_8_mib_may_come_in_fragments_of_1_kib() {
    let mut server = server();
    let data = pattern(LARGE);
    let parts = [
        CompoundPart::Put(vec![4; 9]),
        CompoundPart::Write(0, data.clone()),
    ];
    let mut stream: VecDeque<u8> = record(&call(1, &parts), || 1024).into();
    while server.receive(&mut stream, usize::MAX) {}
    server.take_ops();
    assert_eq!(server.fatal, None);
    assert!(server.calls[0].1.data == [Some(data)]);
}

/// A byte more than there may be is skipped; the record that follows is read.
#[test]
fn write_of_more_than_8_mib_is_too_large_and_disturbs_no_other() {
    for (first, second) in [(LARGE + 1, 0), (LARGE - 3, 4)] {
        let mut server = server();
        let parts = [first, second].map(|len| CompoundPart::Write(0, pattern(len)));
        let mut stream: VecDeque<u8> = record(&call(1, &parts), || usize::MAX).into();
        let next = [CompoundPart::Put(vec![1])];
        stream.extend(record(&call(2, &next), || usize::MAX));
        while server.receive(&mut stream, 1 << 20) {}
        server.take_ops();
        let ops: Vec<_> = server.calls.iter().map(|(_, seen)| seen.ops).collect();
        let whole = u32::from(first <= LARGE);
        assert_eq!(ops, [(whole, Stop::TooLarge), (1, Stop::End)]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn large_data_is_the_same_however_its_record_is_cut(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let most = random.pick(&[LARGE, LARGE - 3, (2 << 20) + 1, 1 << 20]);
        let first = random.below(most as u64) as usize;
        let data = [pattern(first), pattern(most - first)];
        let write = |data: &Vec<u8>| CompoundPart::Write(7, data.clone());
        let mut parts = vec![CompoundPart::Put(vec![4; 9]), write(&data[0])];
        parts.push(CompoundPart::Getattr(vec![1]));
        parts.push(write(&data[1]));
        let fragment = random.pick(&[1200, 100_000, u64::MAX / 2]);
        let mut stream: VecDeque<u8> =
            record(&call(1, &parts), || 1024 + random.below(fragment) as usize).into();
        stream.extend(record(&call(2, &[]), || usize::MAX));
        let step = random.pick(&[5000, 300_000, LARGE as u64]);
        let mut server = server();
        while server.receive(&mut stream, 1 + random.below(step) as usize) {}
        server.take_ops();
        prop_assert_eq!(server.fatal, None);
        let seen: Vec<_> = server.calls.iter().map(|(_, seen)| (seen.xid, seen.ops)).collect();
        prop_assert_eq!(seen, [(1, (4, Stop::End)), (2, (0, Stop::End))]);
        let wanted = data.map(|data| (!data.is_empty()).then_some(data));
        prop_assert!(server.calls[0].1.data == wanted);
    }

    #[test]
    fn large_data_of_an_answer_goes_out_whole_in_pieces(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let mut server = server();
        let mut stream: VecDeque<u8> = record(&call(1, &[]), || usize::MAX).into();
        stream.extend(record(&call(2, &[]), || usize::MAX));
        while server.receive(&mut stream, usize::MAX) {}
        let args = server.calls[0].1.args.clone();
        let len = random.pick(&[LARGE, LARGE - 3, (1 << 20) + 1, 1 << 20, 5]);
        let payloads = [pattern(len), pattern(random.below(2000) as usize)];
        server.answer(0, &payloads);
        server.answer(0, &[]);
        let mut out = VecDeque::new();
        let mut sends = 0;
        while server.end.machine.has_transmit() {
            let before = out.len();
            server.end.transmit(&mut out, 1);
            sends += 1;
            prop_assert!(out.len() - before <= (1 << 20) + 4096, "more than one piece");
        }
        prop_assert!(sends >= 2 + len.div_ceil(1 << 20));
        let answers = cut(&mut out);
        prop_assert_eq!(answers.len(), 2);
        let mut wanted = args;
        for bytes in &payloads {
            wanted.extend((bytes.len() as u32).to_be_bytes());
            wanted.extend(bytes);
            wanted.resize(wanted.len().next_multiple_of(4), 0);
        }
        prop_assert!(answers[0].ends_with(&wanted));
        prop_assert!(answers[0].len() == 24 + wanted.len());
    }
}
