//! The target's end of iSER, against an initiator written by hand.

#![forbid(unsafe_code)]

mod commands;
mod faults;
mod initiator;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use doubles::iscsi::{BLOCK, TargetDouble};
use doubles::rdma::RdmaClient;
use iscsi::accepted::{AcceptedConnection, IserSettings};
use iscsi::iser::CrcPolicy;
use iscsi::target::{ConnectionRole, TargetSettings};
use iscsi::{Negotiated, Session};
use iwarp::QpSettings;
use random::Random;
use testkit::iscsi::Pdus;
use testkit::rpc_rdma::Segment;
use wire::iscsi::{BHS_LEN, Bhs, TaskAttribute, flags, opcode};
use wire::iser::{ISER_HEADER_LEN, IserCm, IserHeader, iser_cm_flags, iser_first};
use zerocopy::{FromBytes, IntoBytes};

const BLOCKS: usize = 256;
const CMD_SN: u32 = 0xffff_fffe;
const READ: u8 = flags::FINAL | flags::READ | TaskAttribute::Simple as u8;
const WRITE: u8 = flags::FINAL | flags::WRITE | TaskAttribute::Simple as u8;
const NONE: u8 = flags::FINAL | TaskAttribute::Simple as u8;
const PDUS: Pdus = Pdus {
    header_digest: false,
    data_digest: false,
};

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.below(256) as u8).collect()
}

/// Small values, so that all of them are met.
fn keys() -> Negotiated {
    Negotiated {
        max_recv_data_segment_length: 2048,
        max_send_data_segment_length: 512,
        first_burst_length: 2048,
        max_burst_length: 4096,
        max_outstanding_r2t: 2,
        rdma_extensions: true,
        solicited_only: Some(false),
        ..Negotiated::default()
    }
}

fn stream(crc: CrcPolicy) -> QpSettings {
    QpSettings {
        crc,
        ulpdu_max: 1400,
        ..QpSettings::default()
    }
}

fn rdma(crc: CrcPolicy) -> Option<IserSettings> {
    Some(IserSettings {
        stream: stream(crc),
        takes_tcp: true,
    })
}

fn role(keys: Negotiated) -> ConnectionRole {
    ConnectionRole {
        session: Rc::new(RefCell::new(Session::new(CMD_SN, 8, false))),
        negotiated: keys,
        cid: 0,
        nop_interval: 0,
        nop_timeout: 0,
    }
}

/// A PDU that came in a Send, and the STag that it invalidated.
struct Received {
    bhs: Bhs,
    data: Vec<u8>,
    invalidated: Option<u32>,
}

/// An initiator of its own bytes, and a target.
struct Peer {
    target: TargetDouble,
    client: RdmaClient,
    there: VecDeque<u8>,
    back: VecDeque<u8>,
    /// So many bytes are received at a time.
    step: usize,
    cmd_sn: u32,
    itt: u32,
    /// Messages that were taken of those that came.
    taken: usize,
}

impl Peer {
    /// Before the login, with these flags of private data.
    fn fresh(keys: Negotiated, rdma: Option<IserSettings>, cm: &[u8], step: usize) -> Peer {
        let settings = TargetSettings::default();
        let media = pattern(1, BLOCKS * BLOCK);
        let machine = AcceptedConnection::new(settings, rdma, 9, 5);
        let mut peer = Peer {
            target: TargetDouble::new(machine, role(keys), media),
            client: RdmaClient::new(stream(CrcPolicy::Off), cm),
            there: VecDeque::new(),
            back: VecDeque::new(),
            step,
            cmd_sn: CMD_SN,
            itt: 0x100,
            taken: 0,
        };
        peer.run();
        peer
    }

    /// In the full feature phase.
    fn live(keys: Negotiated, crc: CrcPolicy, step: usize) -> Peer {
        let cm = IserCm {
            flags: iser_cm_flags::NO_ZERO_BASED,
            ..IserCm::default()
        };
        let mut peer = Peer::fresh(keys, rdma(crc), cm.as_bytes(), step);
        let answers = peer.send(&PDUS.login(CMD_SN, 0, b""));
        assert_eq!(opcodes(&answers), [opcode::LOGIN_RESPONSE]);
        peer
    }

    /// Both do everything there is to do.
    fn run(&mut self) {
        while self.turn() {}
    }

    fn turn(&mut self) -> bool {
        let mut is_busy = self.client.transmit(&mut self.there);
        is_busy |= self.target.end.receive(&mut self.there, self.step) > 0;
        self.target.take_ops();
        while !self.target.starved.is_empty() {
            self.target.feed(0);
        }
        while !self.target.work.is_empty() {
            self.target.execute(0);
        }
        while !self.target.functions.is_empty() {
            self.target.manage(0);
        }
        is_busy |= machine::Machine::has_transmit(&self.target.end.machine);
        self.target.transmit(&mut self.back, usize::MAX);
        is_busy |= self.client.receive(&mut self.back, self.step);
        is_busy
    }

    /// The target looks at what comes, and does nothing.
    fn push(&mut self, bytes: &[u8], memory: &IserHeader) {
        self.post(bytes, memory);
        while self.client.transmit(&mut self.there)
            || self.target.end.receive(&mut self.there, self.step) > 0
        {
            self.target.take_ops();
        }
    }

    fn post(&mut self, pdu: &[u8], memory: &IserHeader) {
        self.client.post([memory.as_bytes(), pdu].concat());
    }

    /// Sends a PDU without memory: what the target answers.
    fn send(&mut self, pdu: &[u8]) -> Vec<Received> {
        self.send_with(pdu, &header(None, None))
    }

    fn send_with(&mut self, pdu: &[u8], memory: &IserHeader) -> Vec<Received> {
        self.post(pdu, memory);
        self.run();
        self.received()
    }

    /// What came since this was asked last.
    fn received(&mut self) -> Vec<Received> {
        let new = &self.client.received[self.taken..];
        let parsed = new.iter().map(|(bytes, invalidated)| {
            let (iser, rest) = IserHeader::ref_from_prefix(bytes).expect("an iSER header");
            let none = IserHeader {
                first: iser_first::CONTROL,
                ..IserHeader::default()
            };
            assert_eq!(*iser, none);
            let (bhs, data) = Bhs::read_from_prefix(rest).expect("a header");
            assert_eq!(data.len(), bhs.data_segment_length.get() as usize);
            Received {
                bhs,
                data: data.to_vec(),
                invalidated: *invalidated,
            }
        });
        let parsed = parsed.collect();
        self.taken = self.client.received.len();
        parsed
    }

    /// The next command's PDU.
    fn command(&mut self, flags: u8, cdb: [u8; 16], edtl: u32, data: &[u8]) -> Vec<u8> {
        self.itt += 1;
        let ids = (self.itt, self.cmd_sn);
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        let mut pdu = PDUS.command(ids, flags, cdb, edtl, data);
        // Padding of a Send may be left away.
        pdu.truncate(BHS_LEN + data.len());
        pdu
    }

    fn in_flight(&self) -> usize {
        self.target.end.machine.in_flight()
    }

    fn media(&self, lba: usize, blocks: usize) -> &[u8] {
        &self.target.media[lba * BLOCK..(lba + blocks) * BLOCK]
    }
}

/// The header of a PDU whose command writes from `write` and reads to `read`.
fn header(write: Option<Segment>, read: Option<Segment>) -> IserHeader {
    let mut header = IserHeader {
        first: iser_first::CONTROL,
        ..IserHeader::default()
    };
    if let Some(segment) = write {
        header.first |= iser_first::WRITE_STAG;
        header.write_stag = segment.handle.into();
        header.write_base = segment.offset.into();
    }
    if let Some(segment) = read {
        header.first |= iser_first::READ_STAG;
        header.read_stag = segment.handle.into();
        header.read_base = segment.offset.into();
    }
    header
}

fn opcodes(pdus: &[Received]) -> Vec<u8> {
    pdus.iter().map(|pdu| pdu.bhs.opcode()).collect()
}

/// What a Send is behind its headers.
const HEADERS: usize = ISER_HEADER_LEN + BHS_LEN;
