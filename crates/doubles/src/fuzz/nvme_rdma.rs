//! Any controller against a host's machine.
//!
//! An input is 4 bytes of configuration and seed, then records: a mode, a length (16 bits,
//! little endian) and so many bytes. In a raw record the bytes are the stream; in a framed one
//! they are a ULPDU; in a named one they say what a controller does with a command that it
//! has: an RDMA Write, an RDMA Read or a response, and in a wild one the same with STags,
//! CIDs and bounds that may be wrong. The host submits commands between records.

use std::collections::VecDeque;

use iwarp::QpError;
use machine::Machine;
use nvmf::host::{Data, HostOp, HostRole};
use nvmf::rdma::CrcPolicy;
use nvmf::rdma::host::{RdmaHostError, RdmaHostOp, RdmaHostSettings, RdmaQpair};
use random::Random;
use testkit::End;
use testkit::iwarp::{Fpdus, mpa_frame};
use wire::iwarp::{
    MPA_REPLY_KEY, ReadRequest, UntaggedFpdu, mpa_flags, opcode, queue, rdmap_control,
};
use wire::nvme::{ConnectCommand, Cqe, Sqe, Status, io};
use wire::nvme_rdma::{CmAccept, KeyedSgl};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Entries of the queue, and commands that the controller takes.
const ENTRIES: u16 = 8;
const CRQSIZE: u16 = 5;
/// Bytes of the data of a command: in its capsule or not.
const LENS: [u32; 3] = [0, 256, 1024];
const IN_CAPSULE_MAX: u32 = 256;
/// What stands in memory at first.
const BLANK: u8 = 0xee;

/// A command that the host has sent.
#[derive(Clone, Copy)]
struct Sent {
    data: Data,
    /// 0: it has none.
    stag: u32,
}

/// A host, and what its controller knows.
struct Rig {
    end: End<RdmaQpair>,
    peer: Fpdus,
    random: Random,
    commands: Vec<Option<Sent>>,
    /// MSN of the next Send and of the next Read Request.
    send_msn: u32,
    read_msn: u32,
    told: Vec<String>,
    fatal: Option<RdmaHostError>,
    /// ULPDUs that are Terminates.
    terminates: usize,
    /// Bytes that are received at a time.
    step: usize,
}

/// Any controller against the host's machine: the same comes of its bytes together and one
/// by one.
pub fn host(input: &[u8]) {
    told(input);
}

/// What a host's machine tells of an input.
pub fn told(input: &[u8]) -> Vec<String> {
    let Some((config, records)) = input.split_first_chunk::<4>() else {
        return Vec::new();
    };
    let whole = play(*config, records, usize::MAX);
    let by_bytes = play(*config, records, 1);
    assert_eq!(whole, by_bytes, "the same is told and written");
    whole.0
}

fn play(config: [u8; 4], records: &[u8], step: usize) -> (Vec<String>, Vec<Vec<u8>>) {
    let mut rig = Rig::new(config, step);
    rig.transmit();
    if config[0] & 2 == 0 {
        let accept = CmAccept {
            crqsize: CRQSIZE.into(),
            ..CmAccept::new_zeroed()
        };
        let crc = (config[0] & 1) * mpa_flags::CRC;
        let words = Some((0, u16::from(config[0] >> 4)));
        let reply = mpa_frame(MPA_REPLY_KEY, (crc, 2), words, accept.as_bytes());
        rig.receive(&reply);
    }
    for (mode, record) in super::records(records) {
        while rig.fatal.is_none() && rig.random.one_in(2) {
            rig.submit();
        }
        let bytes = match mode % 4 {
            0 => record.to_vec(),
            1 => rig.peer.fpdu(record),
            mode => rig.named(record, mode == 3),
        };
        rig.receive(&bytes);
    }
    rig.check();
    (rig.told, rig.end.memory)
}

impl Rig {
    fn new(config: [u8; 4], step: usize) -> Rig {
        let crc = config[0] & 1 != 0;
        let settings = RdmaHostSettings {
            crc: if crc {
                CrcPolicy::Require
            } else {
                CrcPolicy::Off
            },
            ird_max: 2,
            ulpdu_max: 200,
        };
        let connect = ConnectCommand {
            recfmt: 0,
            qid: 1,
            sqsize: ENTRIES - 1,
            cattr: 0,
            kato_ms: 0,
        };
        Rig {
            end: End::new(RdmaQpair::new(settings, &connect, 1, 1, 0)),
            peer: Fpdus { crc },
            random: Random::new(u64::from(u32::from_le_bytes(config))),
            commands: vec![None; usize::from(ENTRIES)],
            send_msn: 1,
            read_msn: 1,
            told: Vec::new(),
            fatal: None,
            terminates: 0,
            step,
        }
    }

    /// Takes all of `bytes` and what comes of them.
    fn receive(&mut self, bytes: &[u8]) {
        let mut stream: VecDeque<u8> = bytes.iter().copied().collect();
        loop {
            while let Some(op) = self.end.next_op() {
                self.take(op);
            }
            self.transmit();
            if self.end.receive(&mut stream, self.step) == 0 && !self.end.machine.has_step() {
                break;
            }
        }
        assert!(stream.is_empty(), "all bytes are taken");
    }

    fn take(&mut self, op: RdmaHostOp) {
        assert_eq!(self.fatal, None, "nothing is told behind the end");
        self.told.push(format!("{op:?}"));
        match op {
            HostOp::Ready => self.end.machine.attach(HostRole {
                entries: ENTRIES,
                in_capsule_max: IN_CAPSULE_MAX,
                flow_control_disabled: true,
            }),
            HostOp::Completed { tag, cqe } => {
                let sent = self.commands[usize::from(tag)].take();
                match sent.expect("it was in flight").data {
                    Data::In(len) => assert!(cqe.data_len <= len),
                    Data::Out(_) | Data::None => assert_eq!(cqe.data_len, 0),
                }
            }
            HostOp::Fatal(why) => self.fatal = Some(why),
        }
    }

    /// Submits a command, if there is room, and sends its capsule.
    fn submit(&mut self) {
        let len = LENS[self.random.below(3) as usize];
        let (opcode, data) = match self.random.below(2) {
            0 => (io::READ, Data::In(len)),
            _ => (io::WRITE, Data::Out(len)),
        };
        if let Some(tag) = self.end.machine.submit(&Sqe::new(opcode), data) {
            self.end.set_memory(tag, vec![BLANK; len as usize]);
            let stag = 0;
            let before = self.commands[usize::from(tag)].replace(Sent { data, stag });
            assert!(before.is_none(), "a tag was given twice");
            self.transmit();
        }
    }

    /// Sends what there is: of capsules their STags become known.
    fn transmit(&mut self) {
        let mut out = VecDeque::new();
        self.end.transmit(&mut out, usize::MAX);
        if out.front() == Some(&b'M') {
            return;
        }
        // A record may have agreed to CRCs.
        self.peer.crc = self.end.machine.has_crc();
        for ulpdu in self.peer.cut(&mut out) {
            let opcode = ulpdu[1] & rdmap_control::OPCODE_MASK;
            self.terminates += usize::from(opcode == opcode::TERMINATE);
            let sqe = Sqe::read_from_prefix(&ulpdu[UntaggedFpdu::LEN.min(ulpdu.len()) - 2..]);
            // Of several segments the first has the entry.
            let is_first = opcode == opcode::SEND && ulpdu[14..18] == [0; 4];
            if let Some((sqe, _)) = sqe.ok().filter(|_| is_first) {
                let command = &mut self.commands[usize::from(sqe.cid.get())];
                let keyed = KeyedSgl::of(&sqe.sgl).map_or(0, |keyed| keyed.key.get());
                command.as_mut().expect("it was submitted").stag = keyed;
            }
        }
    }

    /// A command that the controller has, by the choice of `which`: one with memory of its
    /// own where `has_memory` says which way. Without any, or where `is_wild`, whatever comes.
    fn pick(&self, which: u8, has_memory: Option<bool>, is_wild: bool) -> (u16, Sent) {
        let is_fit = |sent: &Sent| match (has_memory, sent.data) {
            (None, _) => true,
            (Some(is_in), Data::In(_)) => is_in && sent.stag != 0,
            (Some(is_in), Data::Out(_)) => !is_in && sent.stag != 0,
            (Some(_), Data::None) => false,
        };
        let all = (0..ENTRIES).zip(&self.commands);
        let fit = all.filter_map(|(cid, sent)| Some((cid, sent.filter(is_fit)?)));
        let fit: Vec<(u16, Sent)> = fit.collect();
        let stranger = Sent {
            data: Data::In(512),
            stag: u32::from(which),
        };
        match fit.len() {
            0 => (u16::from(which), stranger),
            _ if is_wild && which & 0x80 != 0 => (u16::from(which), stranger),
            count => fit[usize::from(which) % count],
        }
    }

    /// What `record` says that the controller does: all is in bounds unless it `is_wild`.
    fn named(&mut self, record: &[u8], is_wild: bool) -> Vec<u8> {
        let Some((&[kind, which, low, high], rest)) = record.split_first_chunk::<4>() else {
            return Vec::new();
        };
        let has_memory = [Some(true), Some(false), None][usize::from(kind % 3)];
        let (cid, sent) = self.pick(which, has_memory, is_wild);
        let (Data::In(len) | Data::Out(len)) = sent.data else {
            return Vec::new();
        };
        let number = u32::from(low) | u32::from(high & 7) << 8;
        match kind % 3 {
            0 => {
                let to = if is_wild { number } else { number % len };
                let room = if is_wild { u32::MAX } else { len - to };
                let data = &rest[..rest.len().min(room as usize)];
                let kind = (opcode::WRITE, high & 0x80 == 0);
                self.peer.tagged(kind, sent.stag, to.into(), data)
            }
            1 => {
                let size = if is_wild { number } else { number % (len + 1) };
                let request = ReadRequest {
                    sink_stag: 1.into(),
                    sink_to: 0.into(),
                    size: size.into(),
                    source_stag: sent.stag.into(),
                    source_to: 0.into(),
                };
                self.read_msn += 1;
                self.peer.read_request(self.read_msn - 1, &request)
            }
            _ => {
                let cqe = Cqe::new(cid, Status::SUCCESS, 0, 0xffff);
                let other = self.pick(low, Some(true), true).1.stag;
                let invalidated = match high % 4 {
                    0 if is_wild => Some(other),
                    0 | 1 => Some(sent.stag).filter(|stag| *stag != 0),
                    _ => None,
                };
                let opcode = invalidated.map_or(opcode::SEND, |_| opcode::SEND_INVALIDATE);
                self.send_msn += 1;
                let place = (queue::SEND, self.send_msn - 1, 0);
                let stag = invalidated.unwrap_or(0);
                self.peer
                    .untagged((opcode, true), stag, place, cqe.as_bytes())
            }
        }
    }

    /// What must be true of a host's machine that has taken all bytes.
    fn check(&self) {
        assert_eq!(self.end.machine.is_finished(), self.fatal.is_some());
        let is_told = match self.fatal {
            None | Some(RdmaHostError::Rejected(_)) => false,
            Some(RdmaHostError::Stream(why)) => matches!(why, QpError::Sent(_)),
            Some(_) => true,
        };
        assert_eq!(self.terminates, usize::from(is_told));
        let sent = self.commands.iter().flatten();
        if self.fatal.is_none() {
            assert_eq!(self.end.machine.in_flight(), sent.clone().count());
        }
        for (sent, memory) in self.commands.iter().zip(&self.end.memory) {
            if let Some(Data::Out(_)) = sent.map(|sent| sent.data) {
                assert!(
                    memory.iter().all(|byte| *byte == BLANK),
                    "not to be written"
                );
            }
        }
    }
}
