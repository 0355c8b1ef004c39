//! PDUs of iSCSI as an initiator writes them and a target's are read.

use std::collections::VecDeque;

use machine::crc32c;
use wire::iscsi::{
    BHS_LEN, Bhs, DIGEST_LEN, DataOut, LoginRequest, LogoutRequest, NopOut, ScsiCommand,
    SnackRequest, SnackType, Stage, TaskManagementRequest, TextRequest, U24, flags, padded,
};
use zerocopy::{FromBytes, IntoBytes};

/// CDBs of a few commands.
pub mod cdb {
    /// TEST UNIT READY.
    pub const TEST_UNIT_READY: [u8; 16] = [0; 16];

    /// READ (10) of `blocks` from `lba`.
    pub fn read(lba: u32, blocks: u16) -> [u8; 16] {
        ten(0x28, lba, blocks)
    }

    /// WRITE (10) of `blocks` to `lba`.
    pub fn write(lba: u32, blocks: u16) -> [u8; 16] {
        ten(0x2a, lba, blocks)
    }

    /// INQUIRY with an allocation length.
    pub fn inquiry(len: u16) -> [u8; 16] {
        let mut cdb = [0; 16];
        cdb[0] = 0x12;
        cdb[3..5].copy_from_slice(&len.to_be_bytes());
        cdb
    }

    fn ten(opcode: u8, lba: u32, blocks: u16) -> [u8; 16] {
        let mut cdb = [0; 16];
        cdb[0] = opcode;
        cdb[2..6].copy_from_slice(&lba.to_be_bytes());
        cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
        cdb
    }
}

/// PDUs of an initiator, with the digests that were agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pdus {
    /// Header digests are in use.
    pub header_digest: bool,
    /// Data digests are in use.
    pub data_digest: bool,
}

impl Pdus {
    /// A PDU of `header`, whose DataSegmentLength is filled in, and `data`.
    pub fn pdu(self, header: &[u8], data: &[u8]) -> Vec<u8> {
        self.pdu_with(header, &[], data)
    }

    /// The same with Additional Header Segments, a multiple of 4 bytes.
    pub fn pdu_with(self, header: &[u8], ahs: &[u8], data: &[u8]) -> Vec<u8> {
        let mut bytes = header.to_vec();
        assert!(bytes.len() == BHS_LEN && ahs.len().is_multiple_of(4));
        bytes[4] = (ahs.len() / 4) as u8;
        bytes[5..8].copy_from_slice(U24::new(data.len() as u32).as_bytes());
        bytes.extend(ahs);
        if self.header_digest {
            let digest = crc32c(&bytes, 0);
            bytes.extend(digest.to_le_bytes());
        }
        if !data.is_empty() {
            let at = bytes.len();
            bytes.extend(data);
            bytes.resize(at + padded(data.len() as u32) as usize, 0);
            if self.data_digest {
                let digest = crc32c(&bytes[at..], 0);
                bytes.extend(digest.to_le_bytes());
            }
        }
        bytes
    }

    /// Login Request: from the operational stage to the full feature phase.
    pub fn login(self, cmd_sn: u32, cid: u16, text: &[u8]) -> Vec<u8> {
        let request = LoginRequest {
            first: LoginRequest::OPCODE | 0x40,
            flags: flags::TRANSIT | (Stage::Operational as u8) << 2 | Stage::FullFeature as u8,
            isid: [0x80, 1, 2, 3, 4, 5],
            itt: 1.into(),
            cid: cid.into(),
            cmd_sn: cmd_sn.into(),
            ..LoginRequest::new()
        };
        Pdus::default().pdu(request.as_bytes(), text)
    }

    /// SCSI Command; `flags` are F, R, W and the task attribute.
    pub fn command(
        self,
        (itt, cmd_sn): (u32, u32),
        flags: u8,
        cdb: [u8; 16],
        edtl: u32,
        data: &[u8],
    ) -> Vec<u8> {
        let command = ScsiCommand {
            flags,
            itt: itt.into(),
            cmd_sn: cmd_sn.into(),
            expected_data_transfer_length: edtl.into(),
            cdb,
            ..ScsiCommand::new()
        };
        self.pdu(command.as_bytes(), data)
    }

    /// Data-Out.
    pub fn data_out(
        self,
        (itt, ttt): (u32, u32),
        is_final: bool,
        data_sn: u32,
        offset: u32,
        data: &[u8],
    ) -> Vec<u8> {
        let header = DataOut {
            flags: if is_final { flags::FINAL } else { 0 },
            itt: itt.into(),
            ttt: ttt.into(),
            data_sn: data_sn.into(),
            buffer_offset: offset.into(),
            ..DataOut::new()
        };
        self.pdu(header.as_bytes(), data)
    }

    /// Immediate NOP-Out.
    pub fn nop_out(self, itt: u32, ttt: u32, cmd_sn: u32, data: &[u8]) -> Vec<u8> {
        let header = NopOut {
            first: NopOut::OPCODE | 0x40,
            flags: flags::FINAL,
            itt: itt.into(),
            ttt: ttt.into(),
            cmd_sn: cmd_sn.into(),
            ..NopOut::new()
        };
        self.pdu(header.as_bytes(), data)
    }

    /// Immediate Task Management Function Request.
    pub fn function(
        self,
        (itt, cmd_sn): (u32, u32),
        function: u8,
        (referenced, ref_cmd_sn): (u32, u32),
    ) -> Vec<u8> {
        let header = TaskManagementRequest {
            first: TaskManagementRequest::OPCODE | 0x40,
            flags: flags::FINAL | function,
            itt: itt.into(),
            cmd_sn: cmd_sn.into(),
            referenced_task_tag: referenced.into(),
            ref_cmd_sn: ref_cmd_sn.into(),
            ..TaskManagementRequest::new()
        };
        self.pdu(header.as_bytes(), &[])
    }

    /// Text Request with the flags F and C as given.
    pub fn text(self, (itt, cmd_sn): (u32, u32), ttt: u32, flags: u8, text: &[u8]) -> Vec<u8> {
        let header = TextRequest {
            flags,
            itt: itt.into(),
            ttt: ttt.into(),
            cmd_sn: cmd_sn.into(),
            ..TextRequest::new()
        };
        self.pdu(header.as_bytes(), text)
    }

    /// Immediate Logout Request.
    pub fn logout(self, (itt, cmd_sn): (u32, u32), reason: u8, cid: u16) -> Vec<u8> {
        let header = LogoutRequest {
            first: LogoutRequest::OPCODE | 0x40,
            flags: flags::FINAL | reason,
            itt: itt.into(),
            cid: cid.into(),
            cmd_sn: cmd_sn.into(),
            ..LogoutRequest::new()
        };
        self.pdu(header.as_bytes(), &[])
    }

    /// SNACK Request, which acknowledges all before `exp_stat_sn`.
    pub fn snack(
        self,
        kind: SnackType,
        (itt, ttt): (u32, u32),
        exp_stat_sn: u32,
        (beg_run, run_length): (u32, u32),
    ) -> Vec<u8> {
        let header = SnackRequest {
            flags: flags::FINAL | kind as u8,
            itt: itt.into(),
            ttt: ttt.into(),
            exp_stat_sn: exp_stat_sn.into(),
            beg_run: beg_run.into(),
            run_length: run_length.into(),
            ..SnackRequest::new()
        };
        self.pdu(header.as_bytes(), &[])
    }

    /// The first PDU of a stream that a machine wrote, its digests and padding
    /// checked; `None` if it is not whole.
    pub fn next(self, stream: &mut VecDeque<u8>) -> Option<Pdu> {
        let header: Vec<u8> = stream.iter().take(BHS_LEN).copied().collect();
        let bhs = Bhs::read_from_bytes(&header).ok()?;
        let is_login = bhs.opcode() == wire::iscsi::opcode::LOGIN_RESPONSE;
        let pdus = if is_login { Pdus::default() } else { self };
        let len = bhs.data_segment_length.get() as usize;
        let head = BHS_LEN + if pdus.header_digest { DIGEST_LEN } else { 0 };
        let whole = match len {
            0 => head,
            _ => head + padded(len as u32) as usize + if pdus.data_digest { DIGEST_LEN } else { 0 },
        };
        if stream.len() < whole {
            return None;
        }
        let bytes: Vec<u8> = stream.drain(..whole).collect();
        assert_eq!(bhs.total_ahs_length, 0, "targets send no such segments");
        let (head, rest) = bytes.split_at(head);
        if pdus.header_digest {
            let (header, found) = head.split_at(BHS_LEN);
            assert_eq!(crc32c(header, 0).to_le_bytes(), found, "the header digest");
        }
        let (segment, found) = rest.split_at(padded(len as u32) as usize);
        if pdus.data_digest && len > 0 {
            assert_eq!(crc32c(segment, 0).to_le_bytes(), found, "the data digest");
        }
        assert!(segment[len..].iter().all(|byte| *byte == 0), "the padding");
        let data = segment[..len].to_vec();
        Some(Pdu { bhs, data })
    }

    /// Cuts a stream that a machine wrote into its PDUs.
    pub fn cut(self, stream: &mut VecDeque<u8>) -> Vec<Pdu> {
        let mut pdus = Vec::new();
        while let Some(pdu) = self.next(stream) {
            pdus.push(pdu);
        }
        assert!(stream.is_empty(), "whole PDUs");
        pdus
    }
}

/// A PDU of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pdu {
    /// Its header.
    pub bhs: Bhs,
    /// Its data segment.
    pub data: Vec<u8>,
}
