//! Any sequence of calls, against an array of bytes.

use super::*;
use proptest::prelude::*;

const PARTS: u64 = 24;

#[derive(Clone, Debug)]
enum Op {
    Write(u64, u32),
    Borrow(u64, u32),
    Commit(usize),
    Forget(usize),
    Pin(u64, u32),
    Unpin(usize),
    Zero(u64, u32),
    Discard(u64, u32),
    CompareAndWrite(u64, u32, bool),
    Resize(u64),
}

fn range() -> impl Strategy<Value = (u64, u32)> {
    let len = prop_oneof![1..17_u32, 28..36_u32, 1..200_u32];
    (0..PARTS * 32, len).prop_map(|(at, len)| (at * 512, len * 512))
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => range().prop_map(|(at, len)| Op::Write(at, len)),
        3 => range().prop_map(|(at, len)| Op::Borrow(at, len)),
        2 => any::<usize>().prop_map(Op::Commit),
        1 => any::<usize>().prop_map(Op::Forget),
        4 => range().prop_map(|(at, len)| Op::Pin(at, len)),
        3 => any::<usize>().prop_map(Op::Unpin),
        1 => range().prop_map(|(at, len)| Op::Zero(at, len)),
        2 => range().prop_map(|(at, len)| Op::Discard(at, len)),
        1 => (range(), any::<bool>()).prop_map(|((at, len), same)| Op::CompareAndWrite(at, len, same)),
        1 => (1..PARTS * 32).prop_map(|blocks| Op::Resize(blocks * 512)),
    ]
}

/// What should be there, and what is lent.
struct Model {
    frames: Frames,
    bytes: Vec<u8>,
    pins: Vec<(Loan, Vec<u8>)>,
    borrowed: Vec<(Loan, u64, Vec<u8>)>,
    serial: u8,
    scratch: Region,
}

impl Model {
    fn new(spare: u32) -> Model {
        Model {
            frames: Frames::with_spare(PARTS * F, PARTS * F, spare),
            bytes: vec![0; (PARTS * F) as usize],
            pins: Vec::new(),
            borrowed: Vec::new(),
            serial: 0,
            scratch: Region::anonymous(1 << 20).unwrap(),
        }
    }

    /// Data that no other write has.
    fn data(&mut self, len: u32) -> Vec<u8> {
        self.serial = self.serial.wrapping_add(1);
        (0..len).map(|i| (i / 512) as u8 ^ self.serial).collect()
    }

    fn put(&mut self, at: u64, bytes: &[u8], result: Result<(), FramesRefused>) {
        let range = at as usize..at as usize + bytes.len();
        if range.end > self.bytes.len() {
            return assert_eq!(result, Err(FramesRefused::OutOfRange));
        }
        match result {
            Ok(()) => self.bytes[range].copy_from_slice(bytes),
            Err(refused) => assert_eq!(refused, FramesRefused::Busy),
        }
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Write(at, len) => {
                let data = self.data(len);
                let done = self.frames.write(at, &data);
                self.put(at, &data, done);
            }
            Op::Borrow(at, len) => {
                let data = self.data(len);
                if let Some(loan) = self.frames.borrow(at, len) {
                    fill(&loan, &data);
                    self.borrowed.push((loan, at, data));
                }
            }
            Op::Commit(i) if !self.borrowed.is_empty() => {
                let i = i % self.borrowed.len();
                let (mut loan, at, data) = self.borrowed.swap_remove(i);
                let done = self.frames.commit(&mut loan, at);
                self.put(at, &data, done);
            }
            Op::Forget(i) if !self.borrowed.is_empty() => {
                let i = i % self.borrowed.len();
                drop(self.borrowed.swap_remove(i));
            }
            Op::Pin(at, len) => {
                let range = at as usize..at as usize + len as usize;
                let loan = self.frames.pin(at, len);
                assert_eq!(loan.is_some(), range.end <= self.bytes.len());
                if let Some(loan) = loan {
                    self.pins.push((loan, self.bytes[range].to_vec()));
                }
            }
            Op::Unpin(i) if !self.pins.is_empty() => {
                let i = i % self.pins.len();
                let (loan, bytes) = self.pins.swap_remove(i);
                assert!(bytes_of(&loan) == bytes);
            }
            Op::Zero(at, len) => {
                let done = self.frames.zero(at, len);
                self.put(at, &vec![0; len as usize], done);
            }
            Op::Discard(at, len) => {
                let done = self.frames.discard(at, len.into());
                self.put(at, &vec![0; len as usize], done);
            }
            Op::CompareAndWrite(at, len, same) => self.compare_and_write(at, len, same),
            Op::Resize(bytes) => {
                if self.frames.resize(bytes).is_ok() {
                    self.bytes.resize(bytes as usize, 0);
                }
                assert_eq!(self.frames.size_bytes(), self.bytes.len() as u64);
            }
            Op::Commit(_) | Op::Forget(_) | Op::Unpin(_) => {}
        }
    }

    fn compare_and_write(&mut self, at: u64, len: u32, same: bool) {
        let data = self.data(len);
        let (expect, write) = (self.scratch.range(0, len), self.scratch.range(1 << 19, len));
        copy_in(write, &data);
        let range = at as usize..at as usize + len as usize;
        let Some(there) = self.bytes.get(range) else {
            let done = self.frames.compare_and_write(at, expect, write);
            return assert_eq!(done, Err(FramesRefused::OutOfRange));
        };
        copy_in(expect, there);
        if same {
            let done = self.frames.compare_and_write(at, expect, write);
            return self.put(at, &data, done);
        }
        let wrong = len / 2;
        copy_in(expect.slice(wrong, 1), &[!there[wrong as usize]]);
        let done = self.frames.compare_and_write(at, expect, write);
        assert_eq!(done, Err(FramesRefused::Miscompare { offset: wrong }));
    }

    fn check(&self) {
        assert!(self.frames.bytes(0, self.bytes.len() as u32) == self.bytes);
        for (loan, bytes) in &self.pins {
            assert!(bytes_of(loan) == *bytes, "a pinned read has changed");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn it_is_an_array_of_bytes(
        spare in prop_oneof![1..4_u32, 20..100_u32],
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut model = Model::new(spare);
        for op in ops {
            model.run(op);
            model.check();
        }
        let Model { frames, pins, borrowed, bytes, .. } = model;
        drop((pins, borrowed));
        // What a resize could not set aside is found by the next.
        frames.resize(bytes.len() as u64).unwrap();
        frames.check_quiet();
    }
}
