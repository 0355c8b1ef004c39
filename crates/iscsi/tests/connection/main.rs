//! The machine of a target's connection, driven by hand.

#![forbid(unsafe_code)]

mod aborts;
mod commands;
mod digests;
mod logins;
mod malformed;
mod others;
mod random_orders;
mod recovery;
mod sessions;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::LazyLock;

use doubles::iscsi::{BLOCK, TargetDouble, UNSOLICITED};
use iscsi::accepted::AcceptedConnection;
use iscsi::target::{ConnectionRole, Done, FatalError, TargetOp, TargetSettings};
use iscsi::{Negotiated, Session};
use machine::{Machine, Nanos, Step};
use random::Random;
use testkit::iscsi::{Pdu, Pdus, cdb};
use wire::iscsi::{
    DataIn, LogoutReason, R2t, Reject, RejectReason, ScsiResponse, TAG_NONE, TaskAttribute,
    TaskFunction, flags, opcode,
};

// Bounds of a connection, which no setting changes.
const ORDER_TIMEOUT: Nanos = 20_000_000_000;
const RETRY_TIMEOUT: Nanos = 5_000_000_000;
const STAGE_LARGE: u32 = 256 * 1024;
const EXTRA_TASKS_MAX: usize = 64;
const CONTROLS_MAX: usize = 64;
const LOST_MAX: usize = 256;
const KEPT_BYTES_MAX: u64 = 4 << 20;
const KEPT_MAX: usize = 1024;
const KEPT_CONTROL_BYTES_MAX: usize = 1 << 20;

const BLOCKS: usize = 256;
const CMD_SN: u32 = 0xffff_fffe;
const STAT_SN: u32 = 0;
const READ: u8 = flags::FINAL | flags::READ | TaskAttribute::Simple as u8;
const WRITE: u8 = flags::FINAL | flags::WRITE | TaskAttribute::Simple as u8;
/// A write whose unsolicited data follows.
const WRITE_MORE: u8 = flags::WRITE | TaskAttribute::Simple as u8;
const NONE: u8 = flags::FINAL | TaskAttribute::Simple as u8;

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.below(256) as u8).collect()
}

/// Small values, so that all of them are met.
fn keys() -> Negotiated {
    Negotiated {
        max_recv_data_segment_length: 4096,
        max_send_data_segment_length: 2048,
        initial_r2t: false,
        first_burst_length: 8192,
        max_burst_length: 16384,
        max_outstanding_r2t: 2,
        ..Negotiated::default()
    }
}

/// An initiator that writes its own bytes, against a target.
struct Peer {
    target: TargetDouble,
    out: VecDeque<u8>,
    pdus: Pdus,
    /// CmdSN of the next command.
    cmd_sn: u32,
    /// Initiator Task Tag of the last command.
    itt: u32,
}

impl Peer {
    /// Before the login.
    fn fresh(keys: Negotiated) -> Peer {
        let session = Rc::new(RefCell::new(Session::new(CMD_SN, 8, false)));
        Peer::of(keys, session, 0)
    }

    fn of(keys: Negotiated, session: Rc<RefCell<Session>>, cid: u16) -> Peer {
        let role = ConnectionRole {
            session,
            negotiated: keys,
            cid,
            nop_interval: 0,
            nop_timeout: 0,
        };
        Peer::with(role)
    }

    fn with(role: ConnectionRole) -> Peer {
        let keys = role.negotiated;
        let settings = TargetSettings {
            handshake_timeout: 1000,
        };
        static MEDIA: LazyLock<Vec<u8>> = LazyLock::new(|| pattern(1, BLOCKS * BLOCK));
        let media = MEDIA.clone();
        Peer {
            target: TargetDouble::new(AcceptedConnection::new(settings, None, 0, 5), role, media),
            out: VecDeque::new(),
            pdus: Pdus {
                header_digest: keys.header_digest,
                data_digest: keys.data_digest,
            },
            cmd_sn: CMD_SN,
            itt: 0x100,
        }
    }

    /// In the full feature phase.
    fn live(keys: Negotiated) -> Peer {
        let mut peer = Peer::fresh(keys);
        peer.log_in();
        peer
    }

    fn log_in(&mut self) {
        let cid = self.target.session().borrow().connections().len() as u16;
        let login = self.pdus.login(CMD_SN, cid, b"");
        let answers = self.send(&login);
        assert_eq!(opcodes(&answers), [opcode::LOGIN_RESPONSE]);
        assert!(self.target.end.machine.session().is_some());
    }

    /// Sends and lets the target do everything there is to do.
    fn send(&mut self, bytes: &[u8]) -> Vec<Pdu> {
        let mut stream = bytes.iter().copied().collect();
        self.target.serve(&mut stream, &mut self.out);
        self.pdus.cut(&mut self.out)
    }

    /// Sends and lets the target look at it, but do nothing.
    fn push(&mut self, bytes: &[u8]) {
        let mut stream: VecDeque<u8> = bytes.iter().copied().collect();
        while self.target.end.receive(&mut stream, usize::MAX) > 0 {
            self.target.take_ops();
        }
        assert!(stream.is_empty());
    }

    fn transmit(&mut self, pdus_max: usize) -> Vec<Pdu> {
        self.target.transmit(&mut self.out, pdus_max);
        self.pdus.cut(&mut self.out)
    }

    /// The next command's PDU.
    fn command(&mut self, flags: u8, cdb: [u8; 16], edtl: u32, data: &[u8]) -> Vec<u8> {
        self.itt += 1;
        let ids = (self.itt, self.cmd_sn);
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        self.pdus.command(ids, flags, cdb, edtl, data)
    }

    fn do_command(&mut self, flags: u8, cdb: [u8; 16], edtl: u32, data: &[u8]) -> Vec<Pdu> {
        let bytes = self.command(flags, cdb, edtl, data);
        self.send(&bytes)
    }

    /// Sends the data that R2Ts ask for, of `data`, in PDUs of `len` bytes,
    /// until none comes any more; the rest of the answers.
    fn obey(&mut self, mut answers: Vec<Pdu>, data: &[u8], len: usize) -> Vec<Pdu> {
        let mut rest = Vec::new();
        while !answers.is_empty() {
            let mut bytes = Vec::new();
            for pdu in answers {
                if pdu.bhs.opcode() != opcode::R2T {
                    rest.push(pdu);
                    continue;
                }
                bytes.extend(self.data_for(pdu.bhs.cast(), data, len));
            }
            answers = self.send(&bytes);
        }
        rest
    }

    /// The Data-Out PDUs for one R2T.
    fn data_for(&self, r2t: &R2t, data: &[u8], len: usize) -> Vec<u8> {
        let start = r2t.buffer_offset.get() as usize;
        let end = start + r2t.desired_data_transfer_length.get() as usize;
        let ids = (r2t.itt.get(), r2t.ttt.get());
        self.sequence(ids, data, (start, end), len)
    }

    /// The Data-Out PDUs of one sequence.
    fn sequence(
        &self,
        ids: (u32, u32),
        data: &[u8],
        (start, end): (usize, usize),
        len: usize,
    ) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (data_sn, at) in (start..end).step_by(len).enumerate() {
            let to = (at + len).min(end);
            let (is_final, data) = (to == end, &data[at..to]);
            bytes.extend(
                self.pdus
                    .data_out(ids, is_final, data_sn as u32, at as u32, data),
            );
        }
        bytes
    }

    fn in_flight(&self) -> usize {
        self.target.end.machine.in_flight()
    }

    fn media(&self, lba: usize, blocks: usize) -> &[u8] {
        &self.target.media[lba * BLOCK..(lba + blocks) * BLOCK]
    }

    fn window(&self) -> (u32, u32) {
        let session = self.target.session().borrow();
        (session.exp_cmd_sn(), session.max_cmd_sn())
    }
}

fn opcodes(pdus: &[Pdu]) -> Vec<u8> {
    pdus.iter().map(|pdu| pdu.bhs.opcode()).collect()
}

/// Status, sense key and ASC with ASCQ of a SCSI Response.
fn response(pdu: &Pdu) -> (u8, u8, u16) {
    assert_eq!(pdu.bhs.opcode(), opcode::SCSI_RESPONSE);
    let header: &ScsiResponse = pdu.bhs.cast();
    assert_eq!(header.response, 0);
    if pdu.data.is_empty() {
        return (header.status, 0, 0);
    }
    let (len, sense) = pdu.data.split_at(2);
    assert_eq!(
        usize::from(u16::from_be_bytes([len[0], len[1]])),
        sense.len()
    );
    let asc = u16::from_be_bytes([sense[12], sense[13]]);
    (header.status, sense[2], asc)
}

const GOOD: (u8, u8, u16) = (0, 0, 0);
const UNEXPECTED: (u8, u8, u16) = (2, 0xb, 0x0c0c);
const INCORRECT: (u8, u8, u16) = (2, 0xb, 0x0c0d);
const CRC_ERROR: (u8, u8, u16) = (2, 0xb, 0x4705);

/// Flags and residual count of a SCSI Response.
fn residual(pdu: &Pdu) -> (u8, u32) {
    let header: &ScsiResponse = pdu.bhs.cast();
    (header.flags & !flags::FINAL, header.residual_count.get())
}

/// Checks that `pdus` are rejects of these reasons.
fn reject_reasons(pdus: &[Pdu]) -> Vec<u8> {
    let rejects = pdus.iter().filter(|pdu| pdu.bhs.opcode() == opcode::REJECT);
    rejects.map(|pdu| pdu.bhs.cast::<Reject>().reason).collect()
}

/// What Data-In PDUs bring, checked to be in order.
fn data_in(pdus: &[Pdu]) -> Vec<u8> {
    let mut data = Vec::new();
    let pieces = pdus
        .iter()
        .filter(|pdu| pdu.bhs.opcode() == opcode::DATA_IN);
    for (data_sn, pdu) in pieces.enumerate() {
        let header: &DataIn = pdu.bhs.cast();
        assert_eq!(header.data_sn.get(), data_sn as u32);
        assert_eq!(header.buffer_offset.get(), data.len() as u32);
        data.extend(&pdu.data);
    }
    data
}
