//! However a peer splits its messages into FPDUs, and however these arrive, the same comes of
//! them.

use std::collections::VecDeque;

use iwarp::{DataPart, Qp, QpOp, QpSettings, RegisteredMemory, RemoteAccess};
use machine::Tag;
use proptest::prelude::*;
use random::Random;
use testkit::End;
use testkit::iwarp::Fpdus;
use wire::iwarp::{ReadRequest, UntaggedFpdu, opcode, queue};
use zerocopy::FromBytes;

use crate::{HEAD, connected, sent, settings};

/// Memory that the peer writes; sinks of reads; bodies of Sends, from this tag on.
const WRITTEN: Tag = 1;
const SINKS: [Tag; 2] = [2, 3];
const BODIES: Tag = 10;
/// Bytes of the first, of each of the second, and of a Send at most.
const LEN: usize = 4000;
const READ_LEN: usize = 1500;
const SEND_MAX: usize = 2000;

/// What the peer has to send.
#[derive(Clone, Debug)]
enum Message {
    Send { opcode: u8, bytes: Vec<u8> },
    Write { at: usize, bytes: Vec<u8> },
    Response { bytes: Vec<u8> },
}

impl Message {
    fn bytes(&self) -> &[u8] {
        match self {
            Message::Send { bytes, .. }
            | Message::Write { bytes, .. }
            | Message::Response { bytes } => bytes,
        }
    }
}

/// What the machine above sees of a message.
#[derive(Debug, PartialEq)]
enum Seen {
    Send {
        head: Vec<u8>,
        body: Vec<u8>,
        invalidated: Option<u32>,
        is_solicited: bool,
    },
    Read(DataPart, Vec<u8>),
}

/// An end that waits for all that.
struct World {
    end: End<Qp>,
    peer: Fpdus,
    writable: u32,
    spare: u32,
    sinks: Vec<u32>,
}

impl World {
    fn new(crc: bool) -> World {
        let settings = QpSettings {
            send_max: SEND_MAX as u32,
            ..settings()
        };
        let (mut end, peer) = connected(settings, crc);
        end.machine.post_receives(100);
        end.set_memory(WRITTEN, vec![0; LEN]);
        let memory = RegisteredMemory {
            tag: WRITTEN,
            offset: 0,
            len: LEN as u32,
            to: 0,
            access: RemoteAccess::WRITE,
        };
        let stags = [memory; 2].map(|memory| end.machine.register(memory).expect("room"));
        for tag in SINKS {
            end.set_memory(tag, vec![0; READ_LEN]);
            let (offset, len) = (0, READ_LEN as u32);
            let sink = DataPart { tag, offset, len };
            end.machine.read(sink, 1, 0).expect("the peer takes reads");
        }
        let requests = peer.cut(&mut sent(&mut end));
        let sink = |ulpdu: &Vec<u8>| {
            let request = &ulpdu[UntaggedFpdu::LEN - 2..];
            let request = ReadRequest::ref_from_bytes(request).expect("a Read Request");
            request.sink_stag.get()
        };
        World {
            end,
            peer,
            writable: stags[0],
            spare: stags[1],
            sinks: requests.iter().map(sink).collect(),
        }
    }

    /// The FPDUs of `messages`, each cut where `cuts` says.
    fn fpdus(&self, messages: &[Message], mut cuts: impl FnMut(usize) -> Vec<usize>) -> Vec<u8> {
        let (mut stream, mut msn, mut sinks) = (Vec::new(), 0, self.sinks.iter());
        for message in messages {
            let bytes = message.bytes();
            let mut cuts = cuts(bytes.len());
            let sink = match message {
                // Its last byte is in its last segment.
                Message::Response { .. } => {
                    cuts.retain(|cut| *cut < bytes.len());
                    sinks.next().copied()
                }
                _ => None,
            };
            msn += u32::from(matches!(message, Message::Send { .. }));
            cuts.push(bytes.len());
            let mut from = 0;
            for (n, to) in cuts.iter().copied().enumerate() {
                let is_last = n + 1 == cuts.len();
                let part = &bytes[from..to];
                stream.extend(match message {
                    Message::Send { opcode, .. } => {
                        let place = (queue::SEND, msn, from as u32);
                        let stag = if *opcode == opcode::SEND_INVALIDATE {
                            self.spare
                        } else {
                            0
                        };
                        self.peer.untagged((*opcode, is_last), stag, place, part)
                    }
                    Message::Write { at, .. } => {
                        let to = (at + from) as u64;
                        let kind = (opcode::WRITE, is_last);
                        self.peer.tagged(kind, self.writable, to, part)
                    }
                    Message::Response { .. } => {
                        let kind = (opcode::READ_RESPONSE, is_last);
                        let stag = sink.expect("it was asked for");
                        self.peer.tagged(kind, stag, from as u64, part)
                    }
                });
                from = to;
            }
        }
        stream
    }

    /// What comes of `stream` in pieces of up to `piece_max` bytes.
    fn take(mut self, stream: Vec<u8>, piece_max: u64, random: &mut Random) -> Outcome {
        let (mut stream, mut seen) = (VecDeque::from(stream), Vec::new());
        loop {
            while let Some(op) = self.end.next_op() {
                match op {
                    QpOp::Body => {
                        let tag = BODIES + seen.len() as Tag;
                        self.end.set_memory(tag, vec![0; SEND_MAX]);
                        self.end.machine.body_into(tag);
                        self.end.machine.prepared(tag, SEND_MAX as u32);
                    }
                    QpOp::Received(received) => {
                        let len = received.body_len as usize;
                        let body = |tag: Tag| self.end.memory[usize::from(tag)][..len].to_vec();
                        seen.push(Seen::Send {
                            head: self.end.machine.head().to_vec(),
                            body: received.tag.map_or(Vec::new(), body),
                            invalidated: received.invalidated,
                            is_solicited: received.is_solicited,
                        });
                    }
                    QpOp::ReadDone(sink) => {
                        let data = self.end.memory[usize::from(sink.tag)].clone();
                        seen.push(Seen::Read(sink, data));
                    }
                    other => panic!("{other:?}"),
                }
            }
            let piece = 1 + random.below(piece_max) as usize;
            if self.end.receive(&mut stream, piece) == 0 {
                assert!(stream.is_empty(), "all bytes are taken");
                let written = self.end.machine.written(self.writable);
                let memory = self.end.memory[usize::from(WRITTEN)].clone();
                return (seen, memory, written);
            }
        }
    }
}

/// What was told, what the written memory is, and how many bytes were written.
type Outcome = (Vec<Seen>, Vec<u8>, u64);

fn messages(random: &mut Random) -> Vec<Message> {
    let bytes = |random: &mut Random, len: usize| -> Vec<u8> {
        (0..len).map(|_| random.next_u32() as u8).collect()
    };
    let (mut reads, mut spares) = (SINKS.len(), 1);
    let mut all = Vec::new();
    for _ in 0..6 {
        let len = match random.below(4) {
            0 => random.below(4) as usize,
            1 => HEAD - 1 + random.below(3) as usize,
            _ => random.below(SEND_MAX as u64 + 1) as usize,
        };
        all.push(match random.below(4) {
            0 if reads > 0 => {
                reads -= 1;
                let bytes = bytes(random, READ_LEN);
                Message::Response { bytes }
            }
            1 => {
                let at = random.below((LEN - len) as u64 + 1) as usize;
                let bytes = bytes(random, len);
                Message::Write { at, bytes }
            }
            kind => {
                let opcode = match kind == 2 && spares > 0 {
                    true => opcode::SEND_INVALIDATE,
                    false => random.pick(&[opcode::SEND, opcode::SEND_SOLICITED]),
                };
                spares -= usize::from(opcode == opcode::SEND_INVALIDATE);
                let bytes = bytes(random, len);
                Message::Send { opcode, bytes }
            }
        });
    }
    all
}

/// Where a message of `len` bytes is cut: nowhere, behind each byte, or anywhere, more than
/// once at one place too, which makes segments of no bytes.
fn cuts(random: &mut Random, len: usize) -> Vec<usize> {
    match random.below(4) {
        0 => Vec::new(),
        1 => (1..len).collect(),
        _ => {
            let count = random.below(12);
            let mut cuts: Vec<_> = (0..count)
                .map(|_| random.below(len as u64 + 1) as usize)
                .collect();
            cuts.sort_unstable();
            cuts
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_split_of_any_message_into_fpdus_gives_the_same(seed: u64) {
        let random = &mut Random::new(seed);
        let crc = random.one_in(2);
        let messages = messages(random);
        let world = World::new(crc);
        let whole = world.fpdus(&messages, |_| Vec::new());
        let expected = world.take(whole, 1 << 20, random);
        let told = messages.iter().filter(|one| !matches!(one, Message::Write { .. }));
        prop_assert_eq!(expected.0.len(), told.count());
        for piece_max in [1, 40, 1 << 20] {
            let world = World::new(crc);
            let stream = world.fpdus(&messages, |len| cuts(random, len));
            prop_assert_eq!(&world.take(stream, piece_max, random), &expected);
        }
    }
}
