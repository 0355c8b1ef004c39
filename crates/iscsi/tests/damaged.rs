//! A bit that is flipped on its way, at each place of each PDU of the full feature phase,
//! towards either machine. A damaged header ends the connection. Damaged data is rejected,
//! and its command is done when it comes again, or fails (RFC 7143, section 7.8).

#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use doubles::iscsi::{BLOCK, TargetDouble};
use iscsi::accepted::AcceptedConnection;
use iscsi::initiator::{
    self, Command, CommandOutcome, Digest, ExpectedData, InitiatorConnection, InitiatorFatalError,
    InitiatorOp, InitiatorSettings, RANDOM_LEN, lun_field,
};
use iscsi::target::{ConnectionRole, FatalError, TargetSettings};
use iscsi::{Negotiated, Session};
use testkit::End;
use testkit::iscsi::cdb;
use wire::iscsi::{
    BHS_LEN, Bhs, DIGEST_LEN, LogoutReason, RejectReason, TaskFunction, TaskResponse, opcode,
    padded,
};
use wire::scsi::status;
use zerocopy::FromBytes;

const BLOCKS: usize = 32;
const CMD_SN: u32 = 0xffff_fffe;
const INQUIRY_LEN: u16 = 61;

/// A part of a PDU, each with its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Header,
    /// The data segment and its padding.
    Data,
}

/// One way of the connection.
#[derive(Default)]
struct Way {
    under_way: VecDeque<u8>,
    passed: Vec<u8>,
    arrived: VecDeque<u8>,
    /// Bytes of the login, which no digest guards.
    login_bytes: usize,
    /// Bit of a byte that is flipped.
    flip: Option<(usize, u8)>,
}

impl Way {
    /// What was sent since the last call arrives.
    fn arrive(&mut self) -> bool {
        let at = self.passed.len();
        self.passed.extend(self.under_way.drain(..));
        if let Some((byte, bit)) = self.flip
            && (at..self.passed.len()).contains(&byte)
        {
            self.passed[byte] ^= 1 << bit;
        }
        self.arrived.extend(&self.passed[at..]);
        at < self.passed.len()
    }

    /// The parts of the PDUs that came, and their opcodes.
    fn parts(&self) -> Vec<(Range<usize>, Part, u8)> {
        let mut parts = Vec::new();
        let mut at = self.login_bytes;
        while at < self.passed.len() {
            let (bhs, _) = Bhs::read_from_prefix(&self.passed[at..]).unwrap();
            let data = at + BHS_LEN + DIGEST_LEN;
            parts.push((at..data, Part::Header, bhs.opcode()));
            at = data;
            let len = bhs.data_segment_length.get();
            if len > 0 {
                at += padded(len) as usize + DIGEST_LEN;
                parts.push((data..at, Part::Data, bhs.opcode()));
            }
        }
        parts
    }
}

/// What the initiator asks for, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// Immediate data alone, and padding.
    WriteImmediate,
    /// Immediate, unsolicited and solicited data, and padding.
    WriteLong,
    Inquire,
    ReadLong,
    /// Ends with sense data.
    Unknown,
    Ping,
    Text,
    Reset,
    Logout,
}

const ALL: [Asked; 9] = [
    Asked::WriteImmediate,
    Asked::WriteLong,
    Asked::Inquire,
    Asked::ReadLong,
    Asked::Unknown,
    Asked::Ping,
    Asked::Text,
    Asked::Reset,
    Asked::Logout,
];

/// Bytes that the two writes bring.
const SHORT: usize = BLOCK - 3;
const LONG: usize = 10 * BLOCK - 3;
const TEXT: &[u8] = b"SendTargets=All\0\0";

/// The media as the first `count` requests leave it.
fn media_after(count: usize) -> Vec<u8> {
    let mut media = vec![0x11; BLOCKS * BLOCK];
    if count > 0 {
        media[..SHORT].fill(0xa5);
    }
    if count > 1 {
        media[4 * BLOCK..][..LONG].fill(0x3c);
    }
    media
}

struct Pair {
    initiator: End<InitiatorConnection>,
    target: TargetDouble,
    to_target: Way,
    to_initiator: Way,
    ops: Vec<InitiatorOp>,
    fatal: Option<InitiatorFatalError>,
    text: Vec<u8>,
}

impl Pair {
    /// In the full feature phase.
    fn new() -> Pair {
        let negotiated = Negotiated {
            header_digest: true,
            data_digest: true,
            max_recv_data_segment_length: 1024,
            max_send_data_segment_length: 1024,
            initial_r2t: false,
            immediate_data: true,
            first_burst_length: 2048,
            max_burst_length: 2048,
            max_outstanding_r2t: 1,
            ..Negotiated::default()
        };
        let settings = InitiatorSettings {
            header_digest: Digest::Required,
            data_digest: Digest::Required,
            max_recv_data_segment: 1024,
            ..InitiatorSettings::new("iqn.2026-01.io.weft:i", "iqn.2026-01.io.weft:t")
        };
        let agreed = "HeaderDigest=CRC32C\0DataDigest=CRC32C\0MaxRecvDataSegmentLength=1024\0\
                      InitialR2T=No\0ImmediateData=Yes\0MaxBurstLength=2048\0\
                      FirstBurstLength=2048\0MaxOutstandingR2T=1\0";
        let role = ConnectionRole {
            session: Rc::new(RefCell::new(Session::new(CMD_SN, 8, false))),
            negotiated,
            cid: 0,
            nop_interval: 0,
            nop_timeout: 0,
        };
        let machine = AcceptedConnection::new(TargetSettings::default(), None, 0, 0);
        let mut target = TargetDouble::new(machine, role, media_after(0));
        target.text_answer = agreed.into();
        let session = initiator::InitiatorSession::new([0x80, 0, 0, 1, 0, 0], CMD_SN);
        let connection = InitiatorConnection::new(settings, session, 0, [1; RANDOM_LEN]);
        let mut pair = Pair {
            initiator: End::new(connection),
            target,
            to_target: Way::default(),
            to_initiator: Way::default(),
            ops: Vec::new(),
            fatal: None,
            text: [b"TargetAlias=", &[b'x'; 2001][..], b"\0"].concat(),
        };
        pair.pump();
        assert_eq!(std::mem::take(&mut pair.ops), [InitiatorOp::Ready]);
        pair.target.text_answer = pair.text.clone();
        for way in [&mut pair.to_target, &mut pair.to_initiator] {
            way.login_bytes = way.passed.len();
        }
        pair
    }

    /// Until nothing more comes.
    fn pump(&mut self) {
        loop {
            let sent = &mut self.to_target;
            self.initiator.transmit(&mut sent.under_way, usize::MAX);
            let mut is_busy = sent.arrive();
            let answers = &mut self.to_initiator;
            (self.target).serve(&mut sent.arrived, &mut answers.under_way);
            is_busy |= answers.arrive();
            while self.initiator.receive(&mut answers.arrived, usize::MAX) > 0 {
                while let Some(op) = self.initiator.next_op() {
                    match op {
                        InitiatorOp::Fatal(error) => self.fatal = Some(error),
                        op => self.ops.push(op),
                    }
                }
            }
            if !is_busy {
                return;
            }
        }
    }

    /// Asks, and says what came of it, if anything did.
    fn ask(&mut self, asked: Asked) -> Option<InitiatorOp> {
        let write = |at, blocks, len: usize, fill| {
            let data = ExpectedData::Out(len as u32);
            (cdb::write(at, blocks), data, vec![fill; len])
        };
        let machine = &mut self.initiator.machine;
        let (cdb, data, memory) = match asked {
            Asked::WriteImmediate => write(0, 1, SHORT, 0xa5),
            Asked::WriteLong => write(4, 10, LONG, 0x3c),
            Asked::Inquire => {
                let data = ExpectedData::In(INQUIRY_LEN.into());
                (cdb::inquiry(INQUIRY_LEN), data, vec![0x55; 64])
            }
            Asked::ReadLong => {
                let len = 5 * BLOCK;
                let data = ExpectedData::In(len as u32);
                (cdb::read(3, 5), data, vec![0x55; len + 8])
            }
            Asked::Unknown => ([0xfe; 16], ExpectedData::None, Vec::new()),
            Asked::Ping | Asked::Text | Asked::Reset | Asked::Logout => {
                let sent = match asked {
                    Asked::Ping => machine.ping(),
                    Asked::Text => machine.text(TEXT),
                    Asked::Reset => {
                        let function = TaskFunction::LogicalUnitReset;
                        machine.task_management(function, lun_field(0), None)
                    }
                    _ => machine.logout(LogoutReason::CloseSession, 0),
                };
                sent.expect("there is room");
                self.pump();
                return self.answered();
            }
        };
        let tag = machine.submit(&Command::new(0, cdb), data);
        self.initiator.set_memory(tag.expect("room"), memory);
        self.pump();
        self.answered()
    }

    /// One answer at most.
    fn answered(&mut self) -> Option<InitiatorOp> {
        assert!(self.ops.len() <= 1, "{:?}", self.ops);
        self.ops.pop()
    }

    /// Whether an answer tells that all is well, and then with the right bytes.
    fn is_good(&self, asked: Asked, op: InitiatorOp) -> bool {
        let (tag, completion) = match op {
            InitiatorOp::Pong { .. } => return asked == Asked::Ping,
            InitiatorOp::TaskManaged { response, .. } => {
                return asked == Asked::Reset && response == TaskResponse::Complete as u8;
            }
            InitiatorOp::LoggedOut { response, .. } => {
                return asked == Asked::Logout && response == 0;
            }
            InitiatorOp::Text { .. } => {
                assert!(self.initiator.machine.text_answer() == self.text);
                return asked == Asked::Text;
            }
            InitiatorOp::Completed { tag, completion } => (tag, completion),
            InitiatorOp::Rejected { .. } => return false,
            op => panic!("{op:?}"),
        };
        if asked == Asked::Unknown {
            let sense = self.initiator.machine.sense();
            assert_eq!((sense.len(), sense[0], sense[2]), (18, 0x70, 5));
            return completion.outcome == CommandOutcome::Status(status::CHECK_CONDITION);
        }
        let is_good = completion.outcome == CommandOutcome::GOOD;
        let memory = &self.initiator.memory[usize::from(tag)];
        match asked {
            Asked::Inquire if is_good => {
                let (data, rest) = memory.split_at(INQUIRY_LEN.into());
                assert!(
                    data.iter()
                        .enumerate()
                        .all(|(at, byte)| at == usize::from(*byte))
                );
                assert_eq!(*rest, [0x55; 3], "and no more");
            }
            Asked::ReadLong if is_good => {
                let (data, rest) = memory.split_at(5 * BLOCK);
                assert!(*data == self.target.media[3 * BLOCK..][..data.len()]);
                assert_eq!(*rest, [0x55; 8], "and no more");
            }
            Asked::WriteImmediate | Asked::WriteLong if is_good => {
                let done = ALL.iter().position(|other| *other == asked).unwrap() + 1;
                assert!(self.target.media == media_after(done));
            }
            _ => {}
        }
        is_good
    }

    /// Asks for all up to what has no answer: how many had one, and those that were not
    /// good and are when they come again.
    fn play(&mut self, what: &str) -> (usize, Vec<(Asked, InitiatorOp)>) {
        let mut failed = Vec::new();
        for (at, asked) in ALL.into_iter().enumerate() {
            let Some(op) = self.ask(asked) else {
                return (at, failed);
            };
            if !self.is_good(asked, op) {
                assert!(
                    self.target.media == media_after(at),
                    "{what}: it did nothing"
                );
                failed.push((asked, op));
                let again = self.ask(asked).expect("an answer");
                assert!(self.is_good(asked, again), "{what}: {again:?}");
            }
        }
        (ALL.len(), failed)
    }
}

/// A flip in a header ends the connection, and nothing comes of that header.
fn header_is_damaged(pair: &Pair, done: usize, is_to_target: bool, what: &str) {
    assert!(done < ALL.len(), "{what}");
    let media = &pair.target.media;
    if is_to_target {
        assert_eq!(pair.target.fatal, Some(FatalError::HeaderDigest), "{what}");
        assert!(*media == media_after(done), "{what}");
    } else {
        assert_eq!(
            pair.fatal,
            Some(InitiatorFatalError::HeaderDigest),
            "{what}"
        );
        // It was done, and the answer did not come.
        let may_be = [done, done + 1].map(media_after);
        assert!(may_be.contains(media), "{what}");
    }
}

/// A header that seems to be longer is waited for: nothing is done by it meanwhile.
fn header_seems_longer(pair: &Pair, done: usize, what: &str) {
    assert!(done < ALL.len(), "{what}");
    assert!(
        matches!(pair.target.fatal, None | Some(FatalError::HeaderDigest)),
        "{what}"
    );
    let is_known = matches!(pair.fatal, None | Some(InitiatorFatalError::HeaderDigest));
    assert!(is_known, "{what}");
    let may_be = [done, done + 1].map(media_after);
    assert!(may_be.contains(&pair.target.media), "{what}");
}

/// What comes of data that is damaged, by the opcode of its PDU.
fn data_is_damaged(
    pair: &Pair,
    (done, failed): (usize, &[(Asked, InitiatorOp)]),
    kind: u8,
    what: &str,
) {
    assert_eq!(pair.target.fatal, None, "{what}");
    let rejected = match kind {
        // The initiator cannot ask for it once more: it begins anew.
        opcode::SCSI_RESPONSE | opcode::TEXT_RESPONSE => {
            let ended = Some(InitiatorFatalError::DataDigest { opcode: kind });
            assert_eq!(pair.fatal, ended, "{what}");
            assert!(done < ALL.len() && failed.is_empty(), "{what}");
            return assert!(pair.target.media == media_after(done), "{what}");
        }
        opcode::DATA_IN => 0,
        _ => 1,
    };
    assert_eq!((pair.fatal, done), (None, ALL.len()), "{what}");
    assert!(pair.target.media == media_after(done), "{what}");
    let refused = pair.target.refused.iter().map(|refused| refused.reason);
    let reasons: Vec<_> = refused.collect();
    assert_eq!(
        reasons,
        vec![RejectReason::DataDigestError; rejected],
        "{what}"
    );
    let outcome = |op: &InitiatorOp| match op {
        InitiatorOp::Completed { completion, .. } => Some(completion.outcome),
        _ => None,
    };
    match (kind, failed) {
        // It is sent again and succeeds.
        (opcode::SCSI_COMMAND, []) => {}
        (opcode::DATA_OUT, [(Asked::WriteLong, op)]) => {
            let failed = CommandOutcome::Status(status::CHECK_CONDITION);
            assert_eq!(outcome(op), Some(failed), "{what}");
        }
        (opcode::DATA_IN, [(Asked::Inquire | Asked::ReadLong, op)]) => {
            assert_eq!(outcome(op), Some(CommandOutcome::Damaged), "{what}");
        }
        (opcode::TEXT_REQUEST, [(Asked::Text, InitiatorOp::Rejected { reason, .. })]) => {
            assert_eq!(*reason, RejectReason::DataDigestError as u8, "{what}");
        }
        _ => panic!("{what}: {failed:?}"),
    }
}

#[test]
fn a_flipped_bit_is_found_before_anything_is_done_by_it() {
    const TOTAL_AHS_LENGTH: usize = 4;
    let mut whole = Pair::new();
    assert_eq!(whole.play("whole"), (ALL.len(), Vec::new()));
    let (to_target, to_initiator) = (whole.to_target.parts(), whole.to_initiator.parts());
    let count = |parts: &[(Range<usize>, Part, u8)], part, kind| {
        let alike = parts
            .iter()
            .filter(|(_, own, k)| (*own, *k) == (part, kind));
        alike.count()
    };
    for (kind, headers, data) in [
        (opcode::SCSI_COMMAND, 5, 2),
        (opcode::DATA_OUT, 4, 4),
        (opcode::NOP_OUT, 1, 0),
        (opcode::TEXT_REQUEST, 2, 1),
        (opcode::TASK_MANAGEMENT_REQUEST, 1, 0),
        (opcode::LOGOUT_REQUEST, 1, 0),
    ] {
        assert_eq!(count(&to_target, Part::Header, kind), headers, "{kind:#x}");
        assert_eq!(count(&to_target, Part::Data, kind), data, "{kind:#x}");
    }
    for (kind, headers, data) in [
        (opcode::R2T, 2, 0),
        (opcode::DATA_IN, 4, 4),
        (opcode::SCSI_RESPONSE, 3, 1),
        (opcode::NOP_IN, 1, 0),
        (opcode::TEXT_RESPONSE, 2, 2),
        (opcode::TASK_MANAGEMENT_RESPONSE, 1, 0),
        (opcode::LOGOUT_RESPONSE, 1, 0),
    ] {
        assert_eq!(
            count(&to_initiator, Part::Header, kind),
            headers,
            "{kind:#x}"
        );
        assert_eq!(count(&to_initiator, Part::Data, kind), data, "{kind:#x}");
    }
    for (is_to_target, parts) in [(true, to_target), (false, to_initiator)] {
        for (range, part, kind) in parts {
            for byte in range.clone() {
                // Of a header each bit, of the rest one of each byte.
                let bits = match part {
                    Part::Header => 0..8,
                    Part::Data => byte as u8 % 8..byte as u8 % 8 + 1,
                };
                for bit in bits {
                    let at = byte - range.start;
                    let what = format!("{kind:#x} {part:?} {at} bit {bit}, from {}", range.start);
                    let mut pair = Pair::new();
                    let way = match is_to_target {
                        true => &mut pair.to_target,
                        false => &mut pair.to_initiator,
                    };
                    way.flip = Some((byte, bit));
                    let (done, failed) = pair.play(&what);
                    match part {
                        Part::Data => data_is_damaged(&pair, (done, &failed), kind, &what),
                        Part::Header if at == TOTAL_AHS_LENGTH => {
                            header_seems_longer(&pair, done, &what);
                        }
                        Part::Header => header_is_damaged(&pair, done, is_to_target, &what),
                    }
                }
            }
        }
    }
}
