//! The initiator against a target that a test speaks for, PDU by PDU.

mod commands;
mod logins;
mod malformed;
mod others;

use std::collections::VecDeque;

use machine::{Machine, Tag, crc32c};
use testkit::End;
use wire::iscsi::{
    BHS_LEN, Bhs, DataIn, LoginRequest, LoginResponse, R2t, ScsiCommand, ScsiResponse, U24, flags,
    padded,
};
use wire::scsi::{cdb, opcode};
use zerocopy::{FromBytes, IntoBytes};

use super::*;

const INITIATOR: &str = "iqn.2026-01.io.weft:initiator";
const TARGET: &str = "iqn.2026-01.io.weft:disks";
const ISID: [u8; 6] = [0x80, 1, 2, 3, 0, 9];
const CMD_SN: u32 = 0xffff_fffe;
const TSIH: u16 = 0x77;

/// A PDU that the initiator sent.
#[derive(Clone, Debug)]
struct Pdu {
    bhs: Bhs,
    data: Vec<u8>,
}

impl Pdu {
    fn text(&self) -> Vec<(&str, &str)> {
        crate::text::parse(&self.data).expect("text")
    }

    fn command(&self) -> &ScsiCommand {
        assert_eq!(self.bhs.opcode(), wire::iscsi::opcode::SCSI_COMMAND);
        self.bhs.cast()
    }
}

/// The initiator and both directions of its connection.
struct Peer {
    end: End<InitiatorConnection>,
    out: VecDeque<u8>,
    digests: (bool, bool),
    stat_sn: u32,
    /// Bytes that one receive takes at most.
    receive_max: usize,
}

impl Peer {
    fn new(settings: InitiatorSettings) -> Peer {
        Peer::of(settings, InitiatorSession::new(ISID, CMD_SN), 0)
    }

    fn of(settings: InitiatorSettings, session: InitiatorSession, cid: u16) -> Peer {
        let connection = InitiatorConnection::new(settings, session, cid, [0x5a; RANDOM_LEN]);
        Peer {
            end: End::new(connection),
            out: VecDeque::new(),
            digests: (false, false),
            stat_sn: 100,
            receive_max: usize::MAX,
        }
    }

    /// In full feature phase, the target having answered `answer` to the keys
    /// and opened a window of `window` commands.
    fn logged_in(settings: InitiatorSettings, answer: &str, window: u32) -> Peer {
        let mut peer = Peer::new(settings);
        let request = peer.sent().pop().expect("a login request");
        assert_eq!(
            peer.answer_login(&request, answer, window),
            [InitiatorOp::Ready]
        );
        let agreed = *peer.end.machine.agreed();
        peer.digests = (agreed.header_digest, agreed.data_digest);
        peer
    }

    /// Answers a login request as it asks to go on.
    fn answer_login(&mut self, request: &Pdu, answer: &str, window: u32) -> Vec<InitiatorOp> {
        let login: &LoginRequest = request.bhs.cast();
        let mut response = LoginResponse::new();
        response.flags = login.flags;
        response.isid = login.isid;
        response.tsih = TSIH.into();
        response.itt = login.itt;
        response.max_cmd_sn = login
            .cmd_sn
            .get()
            .wrapping_add(window)
            .wrapping_sub(1)
            .into();
        response.exp_cmd_sn = login.cmd_sn;
        self.answer(response.as_bytes(), answer.replace(' ', "\0").as_bytes())
    }

    /// Everything that the initiator sends now.
    fn sent(&mut self) -> Vec<Pdu> {
        let mut stream = VecDeque::new();
        self.end.transmit(&mut stream, 10_000);
        let bytes: Vec<u8> = stream.into();
        let mut pdus = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let (bhs, _) = Bhs::read_from_prefix(&bytes[at..]).expect("a header");
            let header = at..at + BHS_LEN;
            at = header.end;
            if self.digests.0 {
                let expected = crc32c(&bytes[header], 0).to_le_bytes();
                assert_eq!(bytes[at..at + 4], expected, "header digest");
                at += 4;
            }
            let len = bhs.data_segment_length.get();
            let data = bytes[at..at + len as usize].to_vec();
            let whole = &bytes[at..at + padded(len) as usize];
            assert!(
                whole[len as usize..].iter().all(|byte| *byte == 0),
                "padding"
            );
            at += whole.len();
            if self.digests.1 && len > 0 {
                let expected = crc32c(whole, 0).to_le_bytes();
                assert_eq!(bytes[at..at + 4], expected, "data digest");
                at += 4;
            }
            pdus.push(Pdu { bhs, data });
        }
        pdus
    }

    /// Queues a PDU to the initiator as it stands, but for its lengths and digests.
    fn push(&mut self, header: &[u8], data: &[u8]) {
        let mut header = header.to_vec();
        header[5..8].copy_from_slice(U24::new(data.len() as u32).as_bytes());
        if self.digests.0 {
            header.extend(crc32c(&header, 0).to_le_bytes());
        }
        self.out.extend(&header);
        let mut data = data.to_vec();
        data.resize(padded(data.len() as u32) as usize, 0);
        if self.digests.1 && !data.is_empty() {
            data.extend(crc32c(&data, 0).to_le_bytes());
        }
        self.out.extend(data);
    }

    /// Sends a PDU with the next StatSN, and tells what came of it.
    fn answer(&mut self, header: &[u8], data: &[u8]) -> Vec<InitiatorOp> {
        let mut header = header.to_vec();
        header[24..28].copy_from_slice(&self.stat_sn.to_be_bytes());
        self.stat_sn = self.stat_sn.wrapping_add(1);
        self.push(&header, data);
        self.ops()
    }

    /// Lets the initiator receive all that was queued.
    fn ops(&mut self) -> Vec<InitiatorOp> {
        let mut ops = Vec::new();
        while !self.out.is_empty() {
            self.end.receive(&mut self.out, self.receive_max);
            while let Some(op) = self.end.next_op() {
                ops.push(op);
            }
        }
        ops
    }

    /// Submits a command with memory.
    fn submit(&mut self, command: &Command, data: ExpectedData, memory: Vec<u8>) -> Tag {
        let tag = self.end.machine.submit(command, data).expect("room");
        self.end.set_memory(tag, memory);
        tag
    }

    fn read(&mut self, len: u32) -> Tag {
        let command = Command::new(3, cdb::read16(0, 1));
        self.submit(&command, ExpectedData::In(len), vec![0xee; len as usize])
    }

    fn write(&mut self, len: u32) -> Tag {
        let command = Command::new(3, cdb::write16(0, 1));
        self.submit(&command, ExpectedData::Out(len), pattern(len))
    }

    fn plain(&mut self) -> Tag {
        let command = Command::new(3, cdb::plain(opcode::TEST_UNIT_READY));
        self.submit(&command, ExpectedData::None, Vec::new())
    }
}

fn pattern(len: u32) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 256) as u8).collect()
}

fn settings() -> InitiatorSettings {
    InitiatorSettings::new(INITIATOR, TARGET)
}

/// What a target may answer to [`settings`].
const ANSWER: &str = "TargetPortalGroupTag=1 HeaderDigest=None DataDigest=None \
                      MaxRecvDataSegmentLength=8192 ErrorRecoveryLevel=0 \
                      DefaultTime2Wait=2 DefaultTime2Retain=0 MaxConnections=1 InitialR2T=No \
                      ImmediateData=Yes MaxBurstLength=65536 FirstBurstLength=16384 \
                      MaxOutstandingR2T=2 DataPDUInOrder=Yes DataSequenceInOrder=Yes ";

/// [`ANSWER`] with some keys answered otherwise.
fn answer_with(changes: &[(&str, &str)]) -> String {
    let mut out = String::new();
    for pair in ANSWER.split_whitespace() {
        let (key, value) = pair.split_once('=').expect("a pair");
        let changed = changes.iter().find(|(changed, _)| *changed == key);
        let value = changed.map_or(value, |(_, value)| value);
        out += &format!("{key}={value} ");
    }
    out
}

fn in_full_feature() -> Peer {
    Peer::logged_in(settings(), ANSWER, 32)
}

fn response(itt: u32) -> ScsiResponse {
    let mut pdu = ScsiResponse::new();
    pdu.flags = flags::FINAL;
    pdu.itt = itt.into();
    pdu.exp_cmd_sn = CMD_SN.into();
    pdu.max_cmd_sn = CMD_SN.wrapping_add(31).into();
    pdu
}

fn data_in(itt: u32, data_sn: u32, offset: u32) -> DataIn {
    let mut pdu = DataIn::new();
    pdu.itt = itt.into();
    pdu.ttt = wire::iscsi::TAG_NONE.into();
    pdu.exp_cmd_sn = CMD_SN.into();
    pdu.max_cmd_sn = CMD_SN.wrapping_add(31).into();
    pdu.data_sn = data_sn.into();
    pdu.buffer_offset = offset.into();
    pdu
}

fn r2t(itt: u32, r2t_sn: u32, offset: u32, len: u32) -> R2t {
    let mut pdu = R2t::new();
    pdu.flags = flags::FINAL;
    pdu.lun = lun_field(3);
    pdu.itt = itt.into();
    pdu.ttt = (0x1000 + r2t_sn).into();
    pdu.exp_cmd_sn = CMD_SN.into();
    pdu.max_cmd_sn = CMD_SN.wrapping_add(31).into();
    pdu.r2t_sn = r2t_sn.into();
    pdu.buffer_offset = offset.into();
    pdu.desired_data_transfer_length = len.into();
    pdu
}

fn good(tag: Tag, data_len: u32) -> InitiatorOp {
    InitiatorOp::Completed {
        tag,
        completion: Completion {
            outcome: CommandOutcome::GOOD,
            data_len,
            residual: Residual::None,
        },
    }
}

fn ended(tag: Tag, outcome: CommandOutcome) -> InitiatorOp {
    InitiatorOp::Completed {
        tag,
        completion: Completion {
            outcome,
            data_len: 0,
            residual: Residual::None,
        },
    }
}
