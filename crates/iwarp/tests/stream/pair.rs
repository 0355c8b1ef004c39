//! Two streams against each other, with any messages in any pieces: everything arrives where
//! it should, and nothing else is written.

use std::collections::VecDeque;

use iwarp::{
    CrcPolicy, DataPart, Qp, QpOp, QpSettings, ReceivedSend, RegisteredMemory, RemoteAccess, Work,
};
use machine::{Machine, Tag};
use proptest::prelude::*;
use random::Random;
use testkit::End;

/// Memory that the peer writes, memory that it reads, what is sent: tags of each end.
const WRITTEN: Tag = 0;
const READ: Tag = 1;
const SOURCE: Tag = 2;
/// Bytes of each.
const LEN: u32 = 20_000;
/// Tags of sinks and bodies are above those, and used once.
const TAGS_MAX: usize = 3 + 600;
/// What stands where nothing was written.
const BLANK: u8 = 0xee;
/// Bytes around the sink of a read.
const MARGIN: u32 = 5;

/// A Send as it must arrive.
struct ExpectedSend {
    message: Vec<u8>,
    invalidated: Option<u32>,
    is_solicited: bool,
}

/// One end, and what must come of what the other has sent.
struct Side {
    end: End<Qp>,
    name: &'static str,
    settings: QpSettings,
    sends: VecDeque<ExpectedSend>,
    reads: VecDeque<(DataPart, Vec<u8>)>,
    /// What [`WRITTEN`] must become, and what the memory that nothing writes is.
    written: Vec<u8>,
    unwritten: [Vec<u8>; 2],
    /// STags and Tagged Offsets of [`WRITTEN`] and [`READ`], and an STag to invalidate.
    writable: (u32, u64),
    readable: (u32, u64),
    spare: Option<u32>,
    next_tag: Tag,
    /// A tag that waits for memory.
    starved: Option<Tag>,
    is_established: bool,
}

fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.next_u32() as u8).collect()
}

impl Side {
    fn new(name: &'static str, settings: QpSettings, qp: Qp, random: &mut Random) -> Side {
        let mut end = End::new(qp);
        end.set_memory(WRITTEN, vec![BLANK; LEN as usize]);
        let unwritten = [READ, SOURCE].map(|tag| {
            let memory = bytes(random, LEN as usize);
            end.set_memory(tag, memory.clone());
            memory
        });
        let mut register = |tag, access| {
            let to = random.next_u64() >> 1;
            let memory = RegisteredMemory {
                tag,
                offset: 0,
                len: LEN,
                to,
                access,
            };
            (end.machine.register(memory).expect("room"), to)
        };
        let writable = register(WRITTEN, RemoteAccess::WRITE);
        let readable = register(READ, RemoteAccess::READ);
        let spare = Some(register(READ, RemoteAccess::READ).0);
        end.machine.post_receives(1000);
        Side {
            end,
            name,
            settings,
            sends: VecDeque::new(),
            reads: VecDeque::new(),
            written: vec![BLANK; LEN as usize],
            unwritten,
            writable,
            readable,
            spare,
            next_tag: 3,
            starved: None,
            is_established: name == "responder",
        }
    }

    fn take_tag(&mut self) -> Tag {
        self.next_tag += 1;
        self.next_tag - 1
    }

    /// Takes what it is told, and checks it.
    fn take_ops(&mut self, random: &mut Random) {
        while let Some(op) = self.end.next_op() {
            match op {
                QpOp::Requested => self.end.machine.accept(b"welcome"),
                QpOp::Established => self.is_established = true,
                QpOp::Body if random.one_in(5) => self.end.machine.drop_body(),
                QpOp::Body => {
                    let tag = self.take_tag();
                    self.end.machine.body_into(tag);
                    self.starved = Some(tag);
                    if random.one_in(2) {
                        self.give_memory();
                    }
                }
                QpOp::Received(received) => self.received(received),
                QpOp::ReadDone(sink) => {
                    let (expected, data) = self.reads.pop_front().expect("a read");
                    assert_eq!(sink, expected);
                    let memory = &self.end.memory[usize::from(sink.tag)];
                    let (from, to) = (sink.offset as usize, (sink.offset + sink.len) as usize);
                    assert_eq!(memory[from..to], data, "{}", self.name);
                    let around = memory[..from].iter().chain(&memory[to..]);
                    assert!(around.copied().all(|byte| byte == BLANK));
                }
                QpOp::Rejected | QpOp::Fatal(_) => panic!("{}: {op:?}", self.name),
            }
        }
    }

    fn give_memory(&mut self) {
        if let Some(tag) = self.starved.take() {
            let len = self.settings.send_max;
            self.end.set_memory(tag, vec![BLANK; len as usize]);
            self.end.machine.prepared(tag, len);
        }
    }

    fn received(&mut self, received: ReceivedSend) {
        let expected = self.sends.pop_front().expect("a Send");
        let head_len = expected.message.len().min(self.settings.head_max.into());
        let (head, body) = expected.message.split_at(head_len);
        assert_eq!(self.end.machine.head(), head);
        assert_eq!(received.body_len as usize, body.len());
        assert_eq!(received.invalidated, expected.invalidated);
        assert_eq!(received.is_solicited, expected.is_solicited);
        if let Some(tag) = received.tag {
            let memory = &self.end.memory[usize::from(tag)];
            assert_eq!(memory[..body.len()], *body, "{}", self.name);
            assert!(memory[body.len()..].iter().all(|byte| *byte == BLANK));
        }
    }
}

/// A part of `LEN` bytes, `len_max` at most.
fn part(random: &mut Random, tag: Tag, len_max: u64) -> DataPart {
    let len = random.below(len_max + 1) as u32;
    let offset = random.below(u64::from(LEN - len) + 1) as u32;
    DataPart { tag, offset, len }
}

fn data(side: &Side, part: DataPart) -> Vec<u8> {
    let (from, to) = (part.offset as usize, (part.offset + part.len) as usize);
    side.end.memory[usize::from(part.tag)][from..to].to_vec()
}

/// `from` begins something.
fn act(from: &mut Side, to: &mut Side, random: &mut Random) {
    let release = None;
    match random.below(3) {
        0 => {
            let head_len = random.below(129) as usize;
            let head = bytes(random, head_len);
            let body_max = u64::from(to.settings.send_max) - head.len() as u64;
            let body = part(random, SOURCE, body_max.min(3000));
            let invalidate = if random.one_in(8) {
                to.spare.take()
            } else {
                None
            };
            let is_solicited = random.one_in(3);
            to.sends.push_back(ExpectedSend {
                message: [head.clone(), data(from, body)].concat(),
                invalidated: invalidate,
                is_solicited,
            });
            from.end.machine.post(Work::Send {
                head: &head,
                body,
                invalidate,
                is_solicited,
                release,
            });
        }
        1 => {
            let source = part(random, SOURCE, 5000);
            let at = random.below(u64::from(LEN - source.len) + 1);
            let range = at as usize..at as usize + source.len as usize;
            to.written[range].copy_from_slice(&data(from, source));
            from.end.machine.post(Work::Write {
                data: source,
                stag: to.writable.0,
                to: to.writable.1 + at,
                release,
            });
        }
        _ if from.end.machine.terms().ord == 0 => {}
        _ => {
            let source = part(random, READ, 5000);
            let sink = DataPart {
                tag: from.take_tag(),
                offset: MARGIN,
                len: source.len,
            };
            let memory = vec![BLANK; (sink.len + 2 * MARGIN) as usize];
            from.end.set_memory(sink.tag, memory);
            from.reads.push_back((sink, data(to, source)));
            let to = (to.readable.0, to.readable.1 + u64::from(source.offset));
            from.end.machine.read(sink, to.0, to.1).expect("reads");
        }
    }
}

fn settings(random: &mut Random) -> QpSettings {
    QpSettings {
        crc: random.pick(&[CrcPolicy::Off, CrcPolicy::Prefer]),
        ird_max: 4,
        ord_max: random.pick(&[1, 4]),
        peer_to_peer: random.one_in(2),
        ulpdu_max: random.pick(&[128, 131, 1454, u16::MAX]),
        head_max: random.pick(&[0, 1, 64, 4096]),
        send_max: 3200,
        tags_max: TAGS_MAX,
        ..QpSettings::default()
    }
}

/// Moves bytes from one end to the other, in pieces. Whether there were any.
fn move_bytes(
    from: &mut Side,
    to: &mut Side,
    stream: &mut VecDeque<u8>,
    random: &mut Random,
) -> bool {
    let before = stream.len();
    if random.one_in(2) {
        let pdus = 1 + random.below(4) as usize;
        from.end.transmit(stream, pdus);
    }
    let has_sent = stream.len() > before;
    to.take_ops(random);
    let max = random.pick(&[1, 7, 100, 5000]);
    let received = to.end.receive(stream, 1 + random.below(max) as usize);
    to.take_ops(random);
    if random.one_in(3) {
        to.give_memory();
        to.take_ops(random);
    }
    has_sent || received > 0
}

fn play(seed: u64) {
    let random = &mut Random::new(seed);
    let (mine, theirs) = (settings(random), settings(random));
    let initiator = Qp::initiator(mine, random.next_u64(), b"hello", 0);
    let mut initiator = Side::new("initiator", mine, initiator, random);
    let responder = Qp::responder(theirs, random.next_u64(), 0);
    let mut responder = Side::new("responder", theirs, responder, random);
    let (mut there, mut back) = (VecDeque::new(), VecDeque::new());
    let (mut begun, mut idle) = (0, 0);
    while idle < 100 {
        idle += 1;
        if begun < 100 && initiator.is_established && random.one_in(4) {
            begun += 1;
            match random.one_in(2) {
                true => act(&mut initiator, &mut responder, random),
                false => act(&mut responder, &mut initiator, random),
            }
        }
        let moved = move_bytes(&mut initiator, &mut responder, &mut there, random)
            | move_bytes(&mut responder, &mut initiator, &mut back, random);
        if moved {
            idle = 0;
        }
        if begun == 0 && idle > 50 {
            panic!("no connection");
        }
    }
    assert_eq!(begun, 100);
    for side in [&initiator, &responder] {
        assert!(
            side.sends.is_empty() && side.reads.is_empty(),
            "{}",
            side.name
        );
        assert_eq!(side.end.memory[usize::from(WRITTEN)], side.written);
        assert_eq!(side.end.memory[usize::from(READ)..][..2], side.unwritten);
        assert!(!side.end.machine.is_finished() && !side.end.machine.has_transmit());
    }
    assert!(there.is_empty() && back.is_empty());
    let crc = [mine.crc, theirs.crc] != [CrcPolicy::Off; 2];
    for side in [&initiator, &responder] {
        assert_eq!(side.end.machine.terms().crc, crc);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn everything_arrives_whatever_the_seed(seed: u64) {
        play(seed);
    }
}
