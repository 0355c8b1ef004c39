//! A driver on plain memory, for a machine of any protocol.

use std::cell::Cell;
use std::collections::VecDeque;

use machine::{Machine, Nanos, Step, Tag, Tail, Transmit, crc32c};

/// A machine with the memory of its commands and its staged bytes.
#[derive(Debug)]
pub struct End<M> {
    /// The machine.
    pub machine: M,
    /// The data of each tag.
    pub memory: Vec<Vec<u8>>,
    /// Tags that the machine released, in order.
    pub released: Vec<Tag>,
    /// Payload bytes that went straight to their destination.
    pub direct_bytes: u64,
    /// Payload bytes that were copied out of staging.
    pub placed_bytes: u64,
    /// The time.
    pub now: Nanos,
    staged: Vec<u8>,
    at: usize,
}

impl<M: Machine> End<M> {
    /// `machine` with no memory yet.
    pub fn new(machine: M) -> End<M> {
        End {
            machine,
            memory: Vec::new(),
            released: Vec::new(),
            direct_bytes: 0,
            placed_bytes: 0,
            now: 0,
            staged: Vec::new(),
            at: 0,
        }
    }

    /// Gives `tag` its memory.
    pub fn set_memory(&mut self, tag: Tag, bytes: Vec<u8>) {
        let index = usize::from(tag);
        assert!(index < self.machine.tags_max(), "a tag beyond tags_max");
        if self.memory.len() <= index {
            self.memory.resize(index + 1, Vec::new());
        }
        self.memory[index] = bytes;
    }

    /// One receive of at most `max` bytes from the front of `stream`, as the
    /// machine plans it. Take [`End::next_op`] until it is empty afterwards.
    /// Returns how many bytes were taken.
    pub fn receive(&mut self, stream: &mut VecDeque<u8>, max: usize) -> usize {
        let plan = self.machine.recv_plan();
        assert!(plan.stage_max > 0 || plan.direct.is_none());
        if plan.stage_max == 0 {
            return 0;
        }
        self.staged.drain(..self.at);
        self.at = 0;
        let max = max.min(stream.len());
        let mut taken = 0;
        if let Some(direct) = plan.direct {
            assert!(direct.len > 0);
            taken = max.min(direct.len as usize);
            let at = direct.offset as usize;
            let memory = &mut self.memory[usize::from(direct.tag)][at..at + direct.len as usize];
            memory
                .iter_mut()
                .zip(stream.drain(..taken))
                .for_each(|(to, from)| *to = from);
            self.direct_bytes += taken as u64;
            if taken > 0 {
                self.machine.on_direct(taken as u32);
            }
        }
        let staged = (max - taken).min(plan.stage_max as usize);
        self.staged.extend(stream.drain(..staged));
        taken + staged
    }

    /// The next operation that the bytes received allow.
    pub fn next_op(&mut self) -> Option<M::Op> {
        loop {
            let before = self.at;
            let step = self.machine.poll_step(self.now, &self.staged, &mut self.at);
            assert!(self.at >= before && self.at <= self.staged.len());
            match step? {
                Step::Op(op) => return Some(op),
                Step::Place {
                    tag,
                    offset,
                    at,
                    len,
                    ..
                } => {
                    let (offset, at, len) = (offset as usize, at as usize, len as usize);
                    assert!(len > 0 && at >= before && at + len <= self.at);
                    self.memory[usize::from(tag)][offset..offset + len]
                        .copy_from_slice(&self.staged[at..at + len]);
                    self.placed_bytes += len as u64;
                }
                Step::Digest {
                    tag,
                    offset,
                    len,
                    seed,
                } => {
                    let (from, to) = (offset as usize, (offset + len) as usize);
                    let crc = crc32c(&self.memory[usize::from(tag)][from..to], seed);
                    self.machine.on_digest(tag, crc);
                }
            }
        }
    }

    /// Sends at most `pdus_max` PDUs into `stream`.
    pub fn transmit(&mut self, stream: &mut VecDeque<u8>, pdus_max: usize) {
        let has_transmit = self.machine.has_transmit();
        let wrote = self.transmit_some(stream, pdus_max);
        assert!(
            wrote == (has_transmit && pdus_max > 0),
            "has_transmit tells the truth"
        );
    }

    /// The same of a machine that may have nothing to write after all: whether it wrote.
    pub fn transmit_some(&mut self, stream: &mut VecDeque<u8>, pdus_max: usize) -> bool {
        let mut sink = Sink {
            stream,
            memory: &self.memory,
            released: &mut self.released,
            left: pdus_max,
            has_room: Cell::new(Some(false)),
            wrote: false,
        };
        self.machine.poll_transmit(&mut sink);
        sink.wrote
    }
}

struct Sink<'a> {
    stream: &'a mut VecDeque<u8>,
    memory: &'a [Vec<u8>],
    released: &'a mut Vec<Tag>,
    left: usize,
    /// Whether a PDU may begin; `None`: one has begun, and more header bytes are of the same.
    has_room: Cell<Option<bool>>,
    wrote: bool,
}

/// Bytes that go at a time.
const HEADER_ROOM: usize = 16 << 10;

impl Sink<'_> {
    fn begin(&mut self) {
        if let Some(has_room) = self.has_room.take() {
            assert!(has_room, "asked has_room before every PDU");
            self.left -= 1;
        }
        self.wrote = true;
    }
}

impl Transmit for Sink<'_> {
    fn has_room(&self) -> bool {
        self.has_room.set(Some(self.left > 0));
        self.left > 0
    }

    fn header_room(&self) -> usize {
        HEADER_ROOM
    }

    fn header(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= HEADER_ROOM, "asked for the room of a header");
        self.begin();
        self.stream.extend(bytes);
    }

    fn payload(&mut self, tag: Tag, offset: u32, len: u32, tail: Tail) {
        // More of what was too long for one may come without a header.
        self.begin();
        let range = offset as usize..(offset + len) as usize;
        let mut bytes = self.memory[usize::from(tag)][range].to_vec();
        bytes.extend(vec![0; usize::from(tail.pad)]);
        if let Some(seed) = tail.digest {
            bytes.extend(crc32c(&bytes, seed).to_le_bytes());
        }
        self.stream.extend(bytes);
    }

    fn release(&mut self, tag: Tag) {
        self.released.push(tag);
    }
}
