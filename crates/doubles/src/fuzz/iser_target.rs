//! Any initiator by RDMA against a target's machine.
//!
//! An input is 4 bytes of configuration and seed, then records: a mode, a length (16 bits,
//! little endian) and so many bytes. In a raw record the bytes are the stream; in a framed one
//! they are a ULPDU; in one that is sent they are a Send, of a Send's PDU the lengths are made
//! right, and its CmdSN; a command record says which command of the double is sent, with
//! memory that is there; an answering one has data for an RDMA Read of the target.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use iscsi::accepted::{AcceptedConnection, IserSettings};
use iscsi::iser::{CrcPolicy, QpSettings};
use iscsi::target::{ConnectionRole, TargetSettings};
use iscsi::{Negotiated, Session};
use machine::Machine;
use random::Random;
use testkit::iscsi::{Pdus, cdb};
use testkit::iwarp::{Fpdus, mpa_frame};
use wire::iscsi::{BHS_LEN, flags, opcode as iscsi_opcode};
use wire::iser::{IserHeader, iser_first};
use wire::iwarp::{
    MPA_REQUEST_KEY, ReadRequest, UntaggedFpdu, mpa_flags, opcode, queue, rdmap_control,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::iscsi::{BLOCK, TargetDouble};

const BLOCKS: usize = 64;
const CMD_SN: u32 = 0xffff_fff8;
/// A STag of the initiator.
const STAG: u32 = 0x0101;
const PDUS: Pdus = Pdus {
    header_digest: false,
    data_digest: false,
};

/// A target, and what its initiator knows.
struct Rig {
    target: TargetDouble,
    peer: Fpdus,
    random: Random,
    /// MSN of the next Send.
    msn: u32,
    cmd_sn: u32,
    /// RDMA Reads of the target that were not answered: where data goes, and how much.
    reads: VecDeque<(u32, u32)>,
    terminates: usize,
}

/// Any initiator by RDMA against the target's machine.
pub fn iser_target(input: &[u8]) {
    let Some((config, records)) = input.split_first_chunk::<4>() else {
        return;
    };
    let mut rig = Rig::new(*config);
    if config[0] & 2 == 0 {
        let crc = (config[0] & 1) * mpa_flags::CRC;
        let cm = [config[1] & 0xc0, 0, 0, 0];
        rig.receive(mpa_frame(MPA_REQUEST_KEY, (crc, 2), Some((4, 0)), &cm));
        rig.send(&PDUS.login(CMD_SN, 0, b""), None);
    }
    for (mode, record) in super::records(records) {
        match mode % 6 {
            0 => rig.receive(record.to_vec()),
            1 => rig.receive(rig.peer.fpdu(record)),
            2 => rig.post(record),
            3 => rig.send_pdu(mode, record),
            4 => rig.command(record),
            _ => rig.answer(record),
        }
    }
    rig.check();
}

impl Rig {
    fn new(config: [u8; 4]) -> Rig {
        let negotiated = Negotiated {
            max_recv_data_segment_length: 1024,
            max_send_data_segment_length: 512,
            immediate_data: config[0] & 4 == 0,
            first_burst_length: 1024,
            max_burst_length: 2048,
            max_outstanding_r2t: 2,
            rdma_extensions: true,
            solicited_only: [None, Some(true), Some(false)][usize::from(config[0] >> 3) % 3],
            ..Negotiated::default()
        };
        let role = ConnectionRole {
            session: Rc::new(RefCell::new(Session::new(CMD_SN, 4, false))),
            negotiated,
            cid: 0,
            nop_interval: 0,
            nop_timeout: 0,
        };
        let rdma = IserSettings {
            stream: QpSettings {
                crc: CrcPolicy::Off,
                ord_max: 2,
                ulpdu_max: 300,
                ..QpSettings::default()
            },
            takes_tcp: config[0] & 0x80 == 0,
        };
        let settings = TargetSettings::default();
        let machine = AcceptedConnection::new(settings, Some(rdma), 3, 0);
        let mut target = TargetDouble::new(machine, role, vec![0xa5; BLOCKS * BLOCK]);
        target.text_answer = (0..700).map(|byte| byte as u8).collect();
        Rig {
            target,
            peer: Fpdus {
                crc: config[0] & 1 != 0,
            },
            random: Random::new(u64::from(u32::from_le_bytes(config))),
            msn: 1,
            cmd_sn: CMD_SN,
            reads: VecDeque::new(),
            terminates: 0,
        }
    }

    /// The target takes all of `bytes`, in pieces, and does some of what there is to do.
    fn receive(&mut self, bytes: Vec<u8>) {
        let mut stream: VecDeque<u8> = bytes.into();
        let mut idle = 0;
        while idle < 64 {
            idle += 1;
            let size = 1 + self.random.below(400) as usize;
            if self.target.end.receive(&mut stream, size) > 0 {
                idle = 0;
            }
            self.target.take_ops();
            self.turn();
            self.transmit();
        }
        assert!(stream.is_empty(), "all bytes are taken");
    }

    fn turn(&mut self) {
        let (target, random) = (&mut self.target, &mut self.random);
        if !target.starved.is_empty() && random.one_in(2) {
            match random.one_in(8) {
                true => target.starve(0),
                false => target.feed(0),
            }
        }
        if !target.work.is_empty() && random.one_in(2) {
            target.execute(random.below(target.work.len() as u64) as usize);
        }
        if !target.functions.is_empty() && random.one_in(2) {
            target.manage(0);
        }
        let tags: Vec<_> = target.end.machine.tasks().map(|(tag, _)| tag).collect();
        if !tags.is_empty() && random.one_in(40) {
            target.abort(tags[random.below(tags.len() as u64) as usize]);
        }
    }

    /// Sends what there is, and learns of its RDMA Reads.
    fn transmit(&mut self) {
        let mut out = VecDeque::new();
        // What is only asked for writes nothing while as much is asked for already.
        while self.target.end.machine.has_transmit() && self.target.transmit_some(&mut out) {}
        if out.front() == Some(&b'M') {
            let frame = testkit::iwarp::mpa_frame_len(out.make_contiguous());
            out.drain(..frame);
        }
        for ulpdu in self.peer.cut(&mut out) {
            match ulpdu[1] & rdmap_control::OPCODE_MASK {
                opcode::TERMINATE => self.terminates += 1,
                opcode::READ_REQUEST => {
                    let at = UntaggedFpdu::LEN - 2;
                    let request = ReadRequest::ref_from_bytes(&ulpdu[at..]).expect("its length");
                    let read = (request.sink_stag.get(), request.size.get());
                    self.reads.push_back(read);
                }
                _ => {}
            }
        }
    }

    /// Sends a message.
    fn post(&mut self, message: &[u8]) {
        let (len_max, len) = (600, message.len());
        for at in (0..len.max(1)).step_by(len_max) {
            let end = (at + len_max).min(len);
            let place = (queue::SEND, self.msn, at as u32);
            let kind = (opcode::SEND, end == len);
            let bytes = self.peer.untagged(kind, 0, place, &message[at..end]);
            self.receive(bytes);
        }
        self.msn += 1;
    }

    /// Sends a PDU, with memory that is there.
    fn send(&mut self, pdu: &[u8], first: Option<u8>) {
        const MEMORY: u8 = iser_first::WRITE_STAG | iser_first::READ_STAG;
        let header = IserHeader {
            first: first.unwrap_or(iser_first::CONTROL | MEMORY),
            write_stag: STAG.into(),
            read_stag: (STAG + 1).into(),
            ..IserHeader::default()
        };
        self.post(&[header.as_bytes(), pdu].concat());
    }

    /// Sends `record` as a PDU with right lengths, and with bit 3 of the mode the right CmdSN.
    fn send_pdu(&mut self, mode: u8, record: &[u8]) {
        let mut header = record[..record.len().min(BHS_LEN)].to_vec();
        header.resize(BHS_LEN, 0);
        let kind = header[0] & 0x3f;
        if mode & 8 != 0 && kind != iscsi_opcode::DATA_OUT {
            header[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
            self.cmd_sn = self.cmd_sn.wrapping_add(u32::from(header[0] & 0x40 == 0));
        }
        let data = &record[record.len().min(BHS_LEN)..];
        let ahs = usize::from(mode >> 6).min(data.len() / 4) * 4;
        let (ahs, data) = data.split_at(ahs);
        let first = (mode & 0x10 != 0).then_some(iser_first::CONTROL);
        self.send(&PDUS.pdu_with(&header, ahs, data), first);
    }

    /// Sends a command that the double knows.
    fn command(&mut self, record: &[u8]) {
        let Some((&[kind, lba, blocks, edtl], data)) = record.split_first_chunk::<4>() else {
            return;
        };
        let (lba, blocks) = (u32::from(lba % 70), u16::from(blocks % 12));
        let (cdb, direction) = match kind % 4 {
            0 => (cdb::read(lba, blocks), flags::READ),
            1 | 2 => (cdb::write(lba, blocks), flags::WRITE),
            _ => (cdb::inquiry(blocks * 10), flags::READ),
        };
        let edtl = u32::from(blocks) * BLOCK as u32 + u32::from(edtl % 4);
        let ids = (
            u32::from(kind) << 8 | u32::from(self.cmd_sn as u8),
            self.cmd_sn,
        );
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        let data = &data[..data.len().min(edtl as usize)];
        let pdu = PDUS.command(ids, flags::FINAL | direction, cdb, edtl, data);
        self.send(&pdu, None);
    }

    /// Answers the oldest RDMA Read, with as much as was asked for.
    fn answer(&mut self, record: &[u8]) {
        let Some((stag, len)) = self.reads.pop_front() else {
            return;
        };
        let data: Vec<u8> = record.iter().copied().cycle().take(len as usize).collect();
        if data.len() < len as usize {
            return;
        }
        let half = data.len() / 2;
        let mut bytes = Vec::new();
        for (at, end) in [(0, half), (half, data.len())] {
            let kind = (opcode::READ_RESPONSE, end == data.len());
            bytes.extend(self.peer.tagged(kind, stag, at as u64, &data[at..end]));
        }
        self.receive(bytes);
    }

    /// What must be true of a target's machine that has taken all bytes.
    fn check(&self) {
        let machine = &self.target.end.machine;
        if let Some(why) = self.target.fatal {
            assert!(machine.is_finished(), "{why}");
            assert!(self.terminates <= 1);
        }
        if !machine.is_finished() {
            let named = self.target.named.iter().filter(|named| **named).count();
            assert!(machine.in_flight() >= named);
            assert_eq!(self.terminates, 0);
        }
    }
}
