use std::collections::VecDeque;

use testkit::End;
use testkit::iwarp::{Fpdus, mpa_frame};
use wire::iwarp::{
    MPA_REPLY_KEY, MPA_REQUEST_KEY, MpaEnhanced, MpaFrame, ReadRequest, TaggedFpdu, TerminateCode,
    UntaggedFpdu, mpa_flags, opcode, queue,
};
use wire::nvme::{Status, io};

use super::*;

const ENTRIES: u16 = 8;
const IN_CAPSULE_MAX: u32 = 512;

/// A controller that writes its own bytes, against a host.
struct Peer {
    end: End<RdmaQpair>,
    fpdus: Fpdus,
    /// MSN of the next Send.
    msn: u32,
    ops: Vec<RdmaHostOp>,
}

fn connect() -> ConnectCommand {
    ConnectCommand {
        recfmt: 0,
        qid: 3,
        sqsize: ENTRIES - 1,
        cattr: 4,
        kato_ms: 0,
    }
}

fn accept(recfmt: u16, crqsize: u16) -> CmAccept {
    CmAccept {
        recfmt: recfmt.into(),
        crqsize: crqsize.into(),
        ..CmAccept::new_zeroed()
    }
}

impl Peer {
    fn fresh(crc: bool) -> Peer {
        let settings = RdmaHostSettings {
            crc: if crc {
                CrcPolicy::Require
            } else {
                CrcPolicy::Off
            },
            ird_max: 2,
            ulpdu_max: 256,
        };
        Peer {
            end: End::new(RdmaQpair::new(settings, &connect(), 9, 1, 0)),
            fpdus: Fpdus { crc },
            msn: 1,
            ops: Vec::new(),
        }
    }

    fn live(crc: bool, crqsize: u16) -> Peer {
        let mut peer = Peer::fresh(crc);
        peer.sent_bytes();
        let told = peer.reply(0, accept(0, crqsize).as_bytes());
        assert_eq!(told, [HostOp::Ready]);
        assert_eq!(peer.end.machine.has_crc(), crc);
        peer.end.machine.attach(HostRole {
            entries: ENTRIES,
            in_capsule_max: IN_CAPSULE_MAX,
            flow_control_disabled: true,
        });
        peer
    }

    /// The answer to the Request.
    fn reply(&mut self, flags: u8, private_data: &[u8]) -> Vec<RdmaHostOp> {
        let crc = if self.fpdus.crc { mpa_flags::CRC } else { 0 };
        let reply = mpa_frame(MPA_REPLY_KEY, (flags | crc, 2), Some((0, 2)), private_data);
        self.receive(&reply)
    }

    fn receive(&mut self, bytes: &[u8]) -> Vec<RdmaHostOp> {
        self.receive_in_steps(bytes, usize::MAX)
    }

    fn receive_in_steps(&mut self, bytes: &[u8], step: usize) -> Vec<RdmaHostOp> {
        let mut stream: VecDeque<u8> = bytes.iter().copied().collect();
        while self.end.receive(&mut stream, step) > 0 {
            while let Some(op) = self.end.next_op() {
                self.ops.push(op);
            }
        }
        assert!(stream.is_empty(), "all bytes are taken");
        std::mem::take(&mut self.ops)
    }

    fn sent_bytes(&mut self) -> VecDeque<u8> {
        let mut stream = VecDeque::new();
        self.end.transmit(&mut stream, usize::MAX);
        stream
    }

    /// The ULPDUs that were sent.
    fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut stream = self.sent_bytes();
        self.fpdus.cut(&mut stream)
    }

    /// The tag of a command that was sent, its entry, and what else its capsule had.
    fn submit(&mut self, opcode: u8, data: Data, memory: Vec<u8>) -> (Tag, Sqe, Vec<u8>) {
        let tag = self.end.machine.submit(&Sqe::new(opcode), data);
        let tag = tag.expect("there is room");
        self.end.set_memory(tag, memory);
        let mut capsule = Vec::new();
        for ulpdu in self.sent() {
            assert_eq!(ulpdu[1] & 15, opcode::SEND);
            capsule.extend_from_slice(&ulpdu[UntaggedFpdu::LEN - 2..]);
        }
        let (sqe, rest) = Sqe::read_from_prefix(&capsule).expect("an entry");
        assert_eq!(sqe.cid.get(), tag);
        assert_eq!(sqe.flags & Sqe::PSDT_MASK, Sqe::PSDT_SGL);
        (tag, sqe, rest.to_vec())
    }

    /// A Read of `len` bytes that was sent: its tag and STag.
    fn read(&mut self, len: u32) -> (Tag, u32) {
        let (tag, sqe, _) = self.submit(io::READ, Data::In(len), vec![0; len as usize]);
        (tag, stag_of(&sqe, len))
    }

    /// A Write of `len` bytes that was sent and is not in its capsule: its tag and STag.
    fn write(&mut self, len: u32) -> (Tag, u32) {
        let (tag, sqe, _) = self.submit(io::WRITE, Data::Out(len), vec![7; len as usize]);
        (tag, stag_of(&sqe, len))
    }

    /// A response capsule, which invalidates `stag` if there is one.
    fn response(&mut self, cid: u16, stag: Option<u32>) -> Vec<u8> {
        let cqe = Cqe::new(cid, Status::SUCCESS, 5, 0xffff);
        self.send(stag, cqe.as_bytes())
    }

    fn send(&mut self, stag: Option<u32>, bytes: &[u8]) -> Vec<u8> {
        let opcode = stag.map_or(opcode::SEND, |_| opcode::SEND_INVALIDATE);
        let place = (queue::SEND, self.msn, 0);
        self.msn += 1;
        self.fpdus
            .untagged((opcode, true), stag.unwrap_or(0), place, bytes)
    }

    fn rdma_write(&self, stag: u32, to: u64, bytes: &[u8]) -> Vec<u8> {
        self.fpdus.tagged((opcode::WRITE, true), stag, to, bytes)
    }
}

/// The STag of a command with `len` bytes that are not in its capsule.
fn stag_of(sqe: &Sqe, len: u32) -> u32 {
    let keyed = KeyedSgl::of(&sqe.sgl).expect("a keyed descriptor");
    assert_eq!(keyed.id, KeyedSgl::INVALIDATE);
    assert_eq!((keyed.address.get(), keyed.len()), (0, len));
    keyed.key.get()
}

fn completed(tag: Tag, data_len: u32) -> RdmaHostOp {
    HostOp::Completed {
        tag,
        cqe: Completion {
            status: Status::SUCCESS,
            result: 5,
            sqhd: 0xffff,
            data_len,
        },
    }
}

#[test]
fn request_says_which_queue_it_is_and_how_long() {
    let mut peer = Peer::fresh(true);
    let sent: Vec<u8> = peer.sent_bytes().into();
    let (frame, rest) = MpaFrame::ref_from_prefix(&sent).expect("a frame");
    assert_eq!(&frame.key, MPA_REQUEST_KEY);
    assert_eq!(frame.flags, mpa_flags::CRC | mpa_flags::ENHANCED);
    let (words, rest) = MpaEnhanced::ref_from_prefix(rest).expect("IRD and ORD");
    assert_eq!((words.ird.get(), words.ord.get()), (2, 0));
    let request = CmRequest::ref_from_bytes(rest).expect("32 bytes");
    let expected = CmRequest {
        qid: 3.into(),
        hrqsize: ENTRIES.into(),
        hsqsize: (ENTRIES - 1).into(),
        cntlid: 9.into(),
        ..CmRequest::new_zeroed()
    };
    assert_eq!(*request, expected);
}

#[test]
fn no_command_is_sent_before_the_controller_accepts() {
    let mut peer = Peer::fresh(false);
    peer.sent_bytes();
    assert_eq!(peer.end.machine.room(), 0);
    let refused = peer.end.machine.submit(&Sqe::new(io::FLUSH), Data::None);
    assert_eq!(refused, None);
    assert_eq!(peer.reply(0, accept(0, 4).as_bytes()), [HostOp::Ready]);
    assert_eq!(peer.end.machine.room(), 1, "the Connect");
    assert_eq!(peer.end.machine.deadline(), None);
}

#[test]
fn answers_without_a_connection_say_why() {
    use RdmaHostError::{AcceptLen, NoReceives, Recfmt, Rejected};
    let reject = |sts: u16| CmReject {
        recfmt: 0.into(),
        sts: sts.into(),
    };
    let known = reject(cm_status::INVALID_HSQSIZE);
    let unknown = reject(77);
    let (other, none) = (accept(1, 4), accept(0, 0));
    for (flags, data, why, words) in [
        (
            mpa_flags::REJECT,
            known.as_bytes(),
            Rejected(Some(4)),
            "Invalid HSQSIZE",
        ),
        (
            mpa_flags::REJECT,
            unknown.as_bytes(),
            Rejected(Some(77)),
            "no standard names",
        ),
        (mpa_flags::REJECT, &[], Rejected(None), "does not say why"),
        (0, other.as_bytes(), Recfmt(1), "RECFMT 1"),
        (0, none.as_bytes(), NoReceives, "CRQSIZE is 0"),
        (0, &other.as_bytes()[..31], AcceptLen(31), "31 bytes"),
    ] {
        let mut peer = Peer::fresh(false);
        peer.sent_bytes();
        assert_eq!(peer.reply(flags, data), [HostOp::Fatal(why)]);
        assert!(why.to_string().contains(words), "{why}");
        assert!(peer.end.machine.is_finished());
        assert_eq!(peer.end.machine.room(), 0);
    }
}

#[test]
fn capsules_are_as_the_standard_has_them() {
    for crc in [false, true] {
        let mut peer = Peer::live(crc, ENTRIES);
        let (_, sqe, rest) = peer.submit(io::FLUSH, Data::None, Vec::new());
        assert_eq!((sqe.sgl.id, rest.len()), (KeyedSgl::PLAIN, 0));
        assert_eq!(&sqe.sgl.as_bytes()[..15], &[0; 15]);
        let data: Vec<u8> = (0..IN_CAPSULE_MAX).map(|n| n as u8).collect();
        let (_, sqe, rest) = peer.submit(io::WRITE, Data::Out(IN_CAPSULE_MAX), data.clone());
        assert_eq!(sqe.sgl, Sgl::new(Sgl::IN_CAPSULE, IN_CAPSULE_MAX));
        assert_eq!(rest, data);
        let len = IN_CAPSULE_MAX + 1;
        let (_, sqe, rest) = peer.submit(io::WRITE, Data::Out(len), vec![1; len as usize]);
        let write = stag_of(&sqe, len);
        assert!(rest.is_empty());
        let (_, read) = peer.read(4096);
        assert_ne!(write, read);
    }
}

#[test]
fn no_more_commands_are_in_flight_than_the_controller_has_receives() {
    let mut peer = Peer::live(false, 3);
    let tags: Vec<Tag> = (0..3).map(|_| peer.read(512).0).collect();
    assert_eq!(peer.end.machine.room(), 0);
    let refused = peer.end.machine.submit(&Sqe::new(io::FLUSH), Data::None);
    assert_eq!(refused, None);
    let response = peer.response(tags[1], None);
    assert_eq!(peer.receive(&response), [completed(tags[1], 0)]);
    assert_eq!(peer.end.machine.room(), 1);
}

#[test]
fn memory_of_a_read_is_written_and_its_stag_is_worth_nothing_afterwards() {
    for crc in [false, true] {
        for step in [1, 7, usize::MAX] {
            for invalidates in [false, true] {
                let mut peer = Peer::live(crc, ENTRIES);
                let (tag, stag) = peer.read(300);
                let mut bytes = peer.rdma_write(stag, 100, &[2; 200]);
                bytes.extend(peer.rdma_write(stag, 0, &[1; 100]));
                bytes.extend(peer.response(tag, invalidates.then_some(stag)));
                let told = peer.receive_in_steps(&bytes, step);
                assert_eq!(told, [completed(tag, 300)]);
                let memory = [vec![1; 100], vec![2; 200]].concat();
                assert_eq!(peer.end.memory[usize::from(tag)], memory);
                let late = peer.rdma_write(stag, 0, &[9]);
                let why = QpError::Sent(TerminateCode::SINK_STAG).into();
                assert_eq!(peer.receive_in_steps(&late, step), [HostOp::Fatal(why)]);
                assert_eq!(peer.end.memory[usize::from(tag)], memory);
            }
        }
    }
}

#[test]
fn read_says_how_many_bytes_came() {
    let mut peer = Peer::live(false, ENTRIES);
    let (tag, stag) = peer.read(300);
    let mut bytes = peer.rdma_write(stag, 0, &[1; 100]);
    bytes.extend(peer.response(tag, Some(stag)));
    assert_eq!(peer.receive(&bytes), [completed(tag, 100)]);
    let (again, stag) = peer.read(300);
    assert_eq!(again, tag);
    let whole = peer.rdma_write(stag, 0, &[1; 300]);
    assert_eq!(peer.receive(&[whole.clone(), whole].concat()), []);
    let response = peer.response(tag, None);
    assert_eq!(
        peer.receive(&response),
        [completed(tag, 300)],
        "no more than it has"
    );
}

#[test]
fn memory_of_a_write_is_read_by_rdma_reads() {
    for crc in [false, true] {
        let mut peer = Peer::live(crc, ENTRIES);
        let (tag, stag) = peer.write(600);
        let request = |size: u32, source_to: u64| ReadRequest {
            sink_stag: 0x1234.into(),
            sink_to: 50.into(),
            size: size.into(),
            source_stag: stag.into(),
            source_to: source_to.into(),
        };
        let mut bytes = peer.fpdus.read_request(1, &request(500, 0));
        bytes.extend(peer.fpdus.read_request(2, &request(100, 500)));
        assert_eq!(peer.receive(&bytes), []);
        let mut read = Vec::new();
        for ulpdu in peer.sent() {
            assert_eq!(ulpdu[1] & 15, opcode::READ_RESPONSE);
            read.extend_from_slice(&ulpdu[TaggedFpdu::LEN - 2..]);
        }
        assert_eq!(read, [7; 600]);
        let response = peer.response(tag, Some(stag));
        assert_eq!(peer.receive(&response), [completed(tag, 0)]);
    }
}

/// What a controller does wrong to a Read and a Write in flight, each with its STag.
type Mistake = fn(&mut Peer, (Tag, u32), (Tag, u32)) -> Vec<u8>;

fn read_of(stag: u32, size: u32) -> ReadRequest {
    ReadRequest {
        sink_stag: 1.into(),
        sink_to: 0.into(),
        size: size.into(),
        source_stag: stag.into(),
        source_to: 0.into(),
    }
}

/// Each mistake of a controller, and the error that it comes to.
fn mistakes() -> Vec<(&'static str, Mistake, RdmaHostError)> {
    let sent = |code| RdmaHostError::Stream(QpError::Sent(code));
    vec![
        (
            "writes under a wrong STag",
            |peer, read, _| peer.rdma_write(read.1 ^ 1, 0, &[1; 8]),
            sent(TerminateCode::SINK_STAG),
        ),
        (
            "writes past the end",
            |peer, read, _| peer.rdma_write(read.1, 1000, &[1; 25]),
            sent(TerminateCode::SINK_BOUNDS),
        ),
        (
            "writes what a Write sends",
            |peer, _, write| peer.rdma_write(write.1, 0, &[1; 8]),
            sent(TerminateCode::ACCESS_RIGHTS),
        ),
        (
            "reads past the end",
            |peer, _, write| peer.fpdus.read_request(1, &read_of(write.1, 1025)),
            sent(TerminateCode::SOURCE_BOUNDS),
        ),
        (
            "reads where a Read is to bring data",
            |peer, read, _| peer.fpdus.read_request(1, &read_of(read.1, 8)),
            sent(TerminateCode::ACCESS_RIGHTS),
        ),
        (
            "has more RDMA Reads than the IRD",
            |peer, _, write| {
                let requests =
                    (1..=3).map(|msn| peer.fpdus.read_request(msn, &read_of(write.1, 8)));
                requests.collect::<Vec<_>>().concat()
            },
            sent(TerminateCode::NO_BUFFER),
        ),
        (
            "sends a Read Response to a host that reads nothing",
            |peer, read, _| {
                let kind = (opcode::READ_RESPONSE, true);
                peer.fpdus.tagged(kind, read.1, 0, &[1; 8])
            },
            sent(TerminateCode::UNEXPECTED_OPCODE),
        ),
        (
            "answers twice",
            |peer, read, _| [peer.response(read.0, None), peer.response(read.0, None)].concat(),
            RdmaHostError::Cid(0),
        ),
        (
            "answers a command that was not sent",
            |peer, _, _| peer.response(5, None),
            RdmaHostError::Cid(5),
        ),
        (
            "invalidates the STag of another command",
            |peer, read, write| peer.response(read.0, Some(write.1)),
            // The first that a stream of this seed registers in its second slot.
            RdmaHostError::Invalidation { cid: 0, stag: 0 },
        ),
        (
            "invalidates an STag that is not there",
            |peer, read, _| peer.response(read.0, Some(read.1 ^ 1)),
            sent(TerminateCode::CANNOT_INVALIDATE),
        ),
        (
            "sends a response that is too short",
            |peer, _, _| peer.send(None, &[0; 15]),
            RdmaHostError::ResponseLen(15),
        ),
        (
            "sends a response that is too long",
            |peer, _, _| peer.send(None, &[0; 17]),
            sent(TerminateCode::MESSAGE_TOO_LONG),
        ),
    ]
}

#[test]
fn mistakes_of_a_controller_end_the_connection_and_are_named() {
    for crc in [false, true] {
        for step in [1, usize::MAX] {
            for (name, mistake, why) in mistakes() {
                let mut peer = Peer::live(crc, ENTRIES);
                let (read, write) = (peer.read(1024), peer.write(1024));
                let mut bytes = mistake(&mut peer, read, write);
                bytes.extend(peer.response(write.0, None));
                let told = peer.receive_in_steps(&bytes, step);
                let why = match why {
                    RdmaHostError::Invalidation { cid, .. } => {
                        RdmaHostError::Invalidation { cid, stag: write.1 }
                    }
                    why => why,
                };
                assert_eq!(told.last(), Some(&HostOp::Fatal(why)), "{name}");
                assert_eq!(
                    told.len(),
                    if name == "answers twice" { 2 } else { 1 },
                    "{name}"
                );
                let terminates = peer.sent();
                let of_terminate = |ulpdu: &Vec<u8>| ulpdu[1] & 15 == opcode::TERMINATE;
                assert_eq!(
                    terminates.iter().filter(|u| of_terminate(u)).count(),
                    1,
                    "{name}"
                );
                assert!(peer.end.machine.is_finished(), "{name}");
                assert_eq!(peer.end.machine.room(), 0, "{name}");
                assert_eq!(peer.end.memory[usize::from(read.0)], [0; 1024], "{name}");
                assert_eq!(peer.end.memory[usize::from(write.0)], [7; 1024], "{name}");
            }
        }
    }
}

#[test]
fn bogus_invalidation_is_said_by_that_name() {
    let why = RdmaHostError::Invalidation { cid: 3, stag: 7 };
    assert!(why.to_string().starts_with("bogus remote invalidation"));
}

#[test]
fn response_to_a_command_whose_capsule_was_not_sent_ends_the_connection() {
    let mut peer = Peer::live(false, ENTRIES);
    let tag = peer.end.machine.submit(&Sqe::new(io::FLUSH), Data::None);
    let response = peer.response(tag.expect("room"), None);
    let why = RdmaHostError::Cid(tag.expect("room"));
    assert_eq!(peer.receive(&response), [HostOp::Fatal(why)]);
}

#[test]
fn wrong_crc_ends_the_connection_before_the_command() {
    let mut peer = Peer::live(true, ENTRIES);
    let (tag, stag) = peer.read(64);
    let mut bytes = peer.rdma_write(stag, 0, &[1; 64]);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    bytes.extend(peer.response(tag, Some(stag)));
    let why = QpError::Sent(TerminateCode::CRC).into();
    assert_eq!(peer.receive(&bytes), [HostOp::Fatal(why)]);
}

/// The RDMA Writes of `len` bytes under `stag`, in FPDUs of at most 60,000.
fn rdma_writes(peer: &Peer, stag: u32, len: usize) -> Vec<u8> {
    let data: Vec<u8> = (0..len).map(|at| (at / 3) as u8).collect();
    let parts = data.chunks(60_000).enumerate();
    let fpdus = parts.map(|(index, part)| {
        let to = index * 60_000;
        let kind = (opcode::WRITE, to + part.len() == len);
        peer.fpdus.tagged(kind, stag, to as u64, part)
    });
    fpdus.collect::<Vec<_>>().concat()
}

#[test]
fn large_reads_bypass_staging_and_small_ones_come_together() {
    for crc in [false, true] {
        let mut peer = Peer::live(crc, ENTRIES);
        let reads: Vec<_> = (0..3).map(|_| peer.read(131_072)).collect();
        let mut bytes = Vec::new();
        for (tag, stag) in reads.clone() {
            bytes.extend(rdma_writes(&peer, stag, 131_072));
            bytes.extend(peer.response(tag, Some(stag)));
        }
        let told = peer.receive(&bytes);
        assert_eq!(
            told,
            reads
                .iter()
                .map(|(tag, _)| completed(*tag, 131_072))
                .collect::<Vec<_>>()
        );
        let end = &peer.end;
        assert_eq!(end.direct_bytes + end.placed_bytes, 3 * 131_072);
        // Of each FPDU no more than what one receive stages behind the last.
        assert!(
            end.placed_bytes <= 9 * 63,
            "{} bytes were copied",
            end.placed_bytes
        );
        let reads: Vec<_> = (0..3).map(|_| peer.read(4096)).collect();
        let mut stream = VecDeque::new();
        for (tag, stag) in reads {
            stream.extend(rdma_writes(&peer, stag, 4096));
            stream.extend(peer.response(tag, Some(stag)));
        }
        let (len, taken) = (stream.len(), peer.end.receive(&mut stream, usize::MAX));
        assert_eq!(taken, len, "in one receive");
    }
}
