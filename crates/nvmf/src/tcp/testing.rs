//! Drivers on plain memory: for tests, fuzz targets and simulations.
//!
//! [`Target`] is a controller's end that executes I/O on a byte vector.

pub mod fuzz;

use std::collections::VecDeque;
use std::sync::Arc;

pub use machine::testing::End;
use machine::{Tag, crc32c};
use wire::nvme::{Cqe, Sqe, Status};
use wire::nvme_tcp::{
    CapsuleCmd, CapsuleResp, CommonHeader, Data, IcReq, IcResp, R2t, flags, pdu_type,
};
use zerocopy::{FromZeros, IntoBytes};

use super::FatalError;
use super::controller::{Done, Op, Qpair, Refused, Role};
use crate::command::{Command, Geometry, Io, IoKind, copy_ranges, deallocate_ranges};

/// A controller's end whose namespaces all lie on one byte vector. Connect
/// succeeds, Admin commands are answered with bytes of their opcode.
#[derive(Debug)]
pub struct Target {
    /// The machine and its memory.
    pub end: End<Qpair>,
    /// What the namespaces hold.
    pub media: Vec<u8>,
    /// Commands that wait for memory.
    pub starved: Vec<(Tag, u32)>,
    /// Commands that wait to be executed.
    pub work: Vec<(Tag, Command)>,
    /// Fused pairs that wait to be executed: Compare, Write, what they do.
    pub fused: Vec<(Tag, Tag, Io)>,
    /// Commands that the machine refused.
    pub refused: Vec<Refused>,
    /// Event requests that the host forgot, and the events of those that had one.
    pub forgotten: Vec<(Tag, Option<u32>)>,
    /// Why the connection ended.
    pub fatal: Option<FatalError>,
    /// Tags named by an operation and not released yet.
    pub named: Vec<bool>,
    role: Role,
    checked: usize,
}

impl Target {
    /// `machine` on `media`; Connect makes it `role`.
    pub fn new(machine: Qpair, role: Role, media: Vec<u8>) -> Target {
        Target {
            end: End::new(machine),
            media,
            starved: Vec::new(),
            work: Vec::new(),
            fused: Vec::new(),
            refused: Vec::new(),
            forgotten: Vec::new(),
            fatal: None,
            named: Vec::new(),
            role,
            checked: 0,
        }
    }

    /// Takes every operation there is; memory is left for [`Target::feed`].
    pub fn take_ops(&mut self) {
        while let Some(op) = self.end.next_op() {
            match op {
                Op::Prepare { tag, len, .. } => {
                    self.name(tag);
                    self.starved.push((tag, len));
                }
                Op::Execute { tag, command } => {
                    if !self.named.get(usize::from(tag)).is_some_and(|named| *named) {
                        self.name(tag);
                    }
                    self.work.push((tag, command));
                }
                Op::ExecuteFused { compare, write, io } => self.fused.push((compare, write, io)),
                Op::Forgotten { tag, event } => self.forgotten.push((tag, event)),
                Op::Refused(refused) => self.refused.push(refused),
                Op::Fatal(error) => self.fatal = Some(error),
            }
        }
    }

    fn name(&mut self, tag: Tag) {
        let index = usize::from(tag);
        if self.named.len() <= index {
            self.named.resize(index + 1, false);
        }
        assert!(!self.named[index], "a tag was used twice");
        self.named[index] = true;
    }

    /// Gives the command at `index` of [`Target::starved`] its memory.
    pub fn feed(&mut self, index: usize) {
        let (tag, len) = self.starved.swap_remove(index);
        self.end.set_memory(tag, vec![0xee; len as usize]);
        self.end.machine.prepared(tag);
        self.take_ops();
    }

    /// Executes the command at `index` of [`Target::work`].
    pub fn execute(&mut self, index: usize) {
        let (tag, command) = self.work.swap_remove(index);
        let done = match command {
            Command::Connect(_) => {
                self.end.machine.attach(self.role.clone());
                Done {
                    result: 1,
                    ..Done::default()
                }
            }
            Command::PropertyGet(get) => Done {
                result: u64::from(get.offset),
                ..Done::default()
            },
            Command::PropertySet(_) | Command::Disconnect => Done::default(),
            Command::Admin(sqe) => {
                let mut done = Done::default();
                if sqe.direction() == wire::nvme::Direction::ControllerToHost {
                    done.data_len = sqe.sgl.length.get();
                    self.end
                        .set_memory(tag, vec![sqe.opcode; done.data_len as usize]);
                }
                done
            }
            Command::Reservation { .. } => Status::INVALID_OPCODE.dnr().into(),
            Command::Io(io) => self.execute_io(tag, &io),
        };
        self.end.machine.complete(tag, done);
    }

    /// The namespaces change while commands are on their way. They all stay on
    /// the same bytes.
    pub fn set_namespaces(&mut self, namespaces: Arc<[Geometry]>) {
        self.role.namespaces = Arc::clone(&namespaces);
        self.end.machine.set_namespaces(namespaces);
    }

    /// Ends a command that waits for memory or to be executed as aborted.
    pub fn forget(&mut self, tag: Tag) {
        self.starved.retain(|(starved, _)| *starved != tag);
        self.work.retain(|(waiting, _)| *waiting != tag);
        self.end
            .machine
            .complete(tag, Status::ABORT_REQUESTED.into());
        self.take_ops();
    }

    /// CIDs of the commands in [`Target::fused`].
    pub fn fused_cids(&self) -> Vec<u16> {
        let tags = self.fused.iter().flat_map(|pair| [pair.0, pair.1]);
        tags.map(|tag| self.end.machine.cid(tag)).collect()
    }

    /// Executes the pair at `index` of [`Target::fused`].
    pub fn execute_fused(&mut self, index: usize) {
        let (compare, write, io) = self.fused.swap_remove(index);
        assert_eq!(io.kind, IoKind::CompareAndWrite);
        let range = io.offset as usize..(io.offset + io.len) as usize;
        let statuses = if self.media[range.clone()] == self.end.memory[usize::from(compare)][..] {
            self.media[range].copy_from_slice(&self.end.memory[usize::from(write)]);
            [Status::SUCCESS; 2]
        } else {
            [Status::COMPARE_FAILURE, Status::FUSED_FAILED]
        };
        self.end.machine.complete(compare, statuses[0].into());
        self.end.machine.complete(write, statuses[1].into());
    }

    fn execute_io(&mut self, tag: Tag, io: &Io) -> Done {
        let range = io.offset as usize..(io.offset + io.len) as usize;
        let data = self.end.memory.get(usize::from(tag));
        match io.kind {
            IoKind::Read => {
                let bytes = self.media[range].to_vec();
                self.end.set_memory(tag, bytes);
                return Done {
                    data_len: io.len as u32,
                    ..Done::default()
                };
            }
            IoKind::Write => self.media[range].copy_from_slice(data.expect("was prepared")),
            IoKind::Compare if self.media[range.clone()] != data.expect("was prepared")[..] => {
                return Status::COMPARE_FAILURE.into();
            }
            IoKind::Compare | IoKind::Verify | IoKind::Flush | IoKind::FlushAll => {}
            IoKind::CompareAndWrite => panic!("a fused command comes as a pair"),
            // Here only a pattern tells.
            IoKind::WriteUncorrectable => self.media[range].fill(0xbd),
            IoKind::WriteZeroes => self.media[range].fill(0),
            IoKind::Deallocate if !io.deallocate => {}
            IoKind::Deallocate | IoKind::Copy => return self.execute_ranges(tag, io),
        }
        Done::default()
    }

    /// Commands whose data is a table of ranges.
    fn execute_ranges(&mut self, tag: Tag, io: &Io) -> Done {
        let table = &self.end.memory[usize::from(tag)][..io.len as usize];
        let namespaces = &self.role.namespaces;
        if io.kind == IoKind::Deallocate {
            for range in deallocate_ranges(table, &namespaces[io.namespace as usize]) {
                match range {
                    Ok((at, len)) => self.media[at as usize..(at + len) as usize].fill(0),
                    Err(status) => return status.into(),
                }
            }
            return Done::default();
        }
        let mut ranges = Vec::new();
        if let Err(status) = copy_ranges(table, io, namespaces, &mut ranges) {
            return status.into();
        }
        let mut to = io.offset as usize;
        for range in ranges {
            let from = range.offset as usize;
            self.media.copy_within(from..from + range.len as usize, to);
            to += range.len as usize;
        }
        Done::default()
    }

    /// Sends at most `pdus_max` PDUs and checks what was released.
    pub fn transmit(&mut self, stream: &mut VecDeque<u8>, pdus_max: usize) {
        self.end.transmit(stream, pdus_max);
        for tag in &self.end.released[self.checked..] {
            let named = std::mem::replace(&mut self.named[usize::from(*tag)], false);
            assert!(named, "released a tag that no operation named");
        }
        self.checked = self.end.released.len();
    }

    /// Receives all of `stream` at once and does everything there is to do.
    pub fn serve(&mut self, stream: &mut VecDeque<u8>, out: &mut VecDeque<u8>) {
        loop {
            let taken = self.end.receive(stream, usize::MAX);
            self.take_ops();
            let busy = taken > 0
                || !self.starved.is_empty()
                || !self.work.is_empty()
                || !self.fused.is_empty();
            while !self.starved.is_empty() {
                self.feed(0);
            }
            while !self.work.is_empty() {
                self.execute(0);
            }
            while !self.fused.is_empty() {
                self.execute_fused(0);
            }
            self.transmit(out, usize::MAX);
            if !busy {
                return;
            }
        }
    }
}

/// PDUs as a peer would write them, with the digests that were agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pdus {
    /// Header digests are in use.
    pub header_digest: bool,
    /// Data digests are in use.
    pub data_digest: bool,
}

impl Pdus {
    /// A PDU of `header`, whose flags and lengths are filled in, and `data`.
    pub fn pdu(self, header: &[u8], data: &[u8]) -> Vec<u8> {
        let mut bytes = header.to_vec();
        let hlen = bytes.len();
        let mut plen = hlen + if self.header_digest { 4 } else { 0 };
        bytes[1] |= if self.header_digest { flags::HDGST } else { 0 };
        if !data.is_empty() {
            bytes[1] |= if self.data_digest { flags::DDGST } else { 0 };
            bytes[3] = plen as u8;
            plen += data.len() + if self.data_digest { 4 } else { 0 };
        }
        bytes[4..8].copy_from_slice(&(plen as u32).to_le_bytes());
        if self.header_digest {
            bytes.extend(crc32c(&bytes[..hlen], 0).to_le_bytes());
        }
        bytes.extend(data);
        if self.data_digest && !data.is_empty() {
            bytes.extend(crc32c(data, 0).to_le_bytes());
        }
        bytes
    }

    /// DGST of ICReq and ICResp.
    pub fn dgst(self) -> u8 {
        u8::from(self.header_digest) | u8::from(self.data_digest) << 1
    }

    /// `pdu` moved to the alignment of `pda`, HPDA or CPDA: padding goes before
    /// its data.
    pub fn align(self, mut pdu: Vec<u8>, pda: u8) -> Vec<u8> {
        let pdo = usize::from(pdu[3]);
        let aligned = pdo.next_multiple_of(usize::from(super::alignment(pda)));
        if pdo == 0 || pdo == aligned {
            return pdu;
        }
        let padding = aligned - pdo;
        pdu.splice(pdo..pdo, std::iter::repeat_n(0, padding));
        pdu[3] = aligned as u8;
        let plen = pdu.len() as u32;
        pdu[4..8].copy_from_slice(&plen.to_le_bytes());
        if self.header_digest {
            let hlen = usize::from(pdu[2]);
            let crc = crc32c(&pdu[..hlen], 0);
            pdu[hlen..hlen + 4].copy_from_slice(&crc.to_le_bytes());
        }
        pdu
    }

    /// ICReq of a host that takes one R2T at a time for a command.
    pub fn ic_req(self, hpda: u8) -> Vec<u8> {
        self.ic_req_with(hpda, 0)
    }

    /// ICReq with MAXR2T, which is 0's based.
    pub fn ic_req_with(self, hpda: u8, maxr2t: u32) -> Vec<u8> {
        let ch = CommonHeader::new(pdu_type::IC_REQ, IcReq::HLEN);
        let request = IcReq {
            ch,
            hpda,
            dgst: self.dgst(),
            maxr2t: maxr2t.into(),
            ..IcReq::new_zeroed()
        };
        request.as_bytes().to_vec()
    }

    /// ICResp.
    pub fn ic_resp(self, cpda: u8, maxh2cdata: u32) -> Vec<u8> {
        let ch = CommonHeader::new(pdu_type::IC_RESP, IcResp::HLEN);
        let maxh2cdata = maxh2cdata.into();
        let response = IcResp {
            ch,
            cpda,
            dgst: self.dgst(),
            maxh2cdata,
            ..IcResp::new_zeroed()
        };
        response.as_bytes().to_vec()
    }

    /// CapsuleCmd with in-capsule data.
    pub fn capsule_cmd(self, sqe: &Sqe, data: &[u8]) -> Vec<u8> {
        let ch = CommonHeader::new(pdu_type::CAPSULE_CMD, CapsuleCmd::HLEN);
        self.pdu(CapsuleCmd { ch, sqe: *sqe }.as_bytes(), data)
    }

    /// CapsuleResp.
    pub fn capsule_resp(self, cqe: Cqe) -> Vec<u8> {
        let ch = CommonHeader::new(pdu_type::CAPSULE_RESP, CapsuleResp::HLEN);
        self.pdu(CapsuleResp { ch, cqe }.as_bytes(), &[])
    }

    /// H2CData or C2HData with `flags`.
    pub fn data(self, kind: u8, flags: u8, ids: (u16, u16), datao: u32, data: &[u8]) -> Vec<u8> {
        let header = Data {
            ch: CommonHeader {
                flags,
                ..CommonHeader::new(kind, Data::HLEN)
            },
            cccid: ids.0.into(),
            ttag: ids.1.into(),
            datao: datao.into(),
            datal: (data.len() as u32).into(),
            reserved20: 0.into(),
        };
        self.pdu(header.as_bytes(), data)
    }

    /// R2T.
    pub fn r2t(self, cccid: u16, ttag: u16, r2to: u32, r2tl: u32) -> Vec<u8> {
        let header = R2t {
            ch: CommonHeader::new(pdu_type::R2T, R2t::HLEN),
            cccid: cccid.into(),
            ttag: ttag.into(),
            r2to: r2to.into(),
            r2tl: r2tl.into(),
            reserved20: 0.into(),
        };
        self.pdu(header.as_bytes(), &[])
    }
}

/// Cuts a stream that a machine wrote into its PDUs, each as (type, bytes).
pub fn cut(stream: &mut VecDeque<u8>) -> Vec<(u8, Vec<u8>)> {
    let mut pdus = Vec::new();
    while stream.len() >= 8 {
        let plen = u32::from_le_bytes([stream[4], stream[5], stream[6], stream[7]]) as usize;
        assert!(plen >= 8 && plen <= stream.len(), "a whole PDU");
        let bytes: Vec<u8> = stream.drain(..plen).collect();
        pdus.push((bytes[0], bytes));
    }
    assert!(stream.is_empty());
    pdus
}
