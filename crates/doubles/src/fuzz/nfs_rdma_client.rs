//! Any server against the machine of a client's connection by RPC-over-RDMA.
//!
//! An input is 4 bytes of configuration and seed, then records: a mode, a length (16 bits,
//! little endian) and so many bytes. In a raw record the bytes are the stream; in a framed one
//! they are a ULPDU; in a named one they say what a server does with a call that it has: an
//! RDMA Write, an RDMA Read, an answer in a Send or in a chunk, RDMA_ERROR, or a callback; and
//! in a wild one the same with handles, identifiers and bounds that may be wrong. The client
//! calls between records.

use std::collections::VecDeque;

use iwarp::{CrcPolicy, QpError};
use machine::Machine;
use nfs::client::{
    Auth, CallData, ClientConnection, ClientOp, RdmaClientSettings, RpcClientFatalError,
    RpcClientSettings,
};
use random::Random;
use testkit::End;
use testkit::iwarp::{Fpdus, mpa_frame};
use testkit::rpc_rdma::{Message, Segment, segment};
use wire::iwarp::{
    MPA_REPLY_KEY, ReadRequest, UntaggedFpdu, mpa_flags, opcode, queue, rdmap_control,
};
use wire::nfs4::{
    PUTFH4args, READ4args, REMOVE4args, WRITE4args, nfs_argop4, stable_how4, stateid4,
};
use wire::rpc_rdma::RpcRdmaPrivateData;
use wire::xdr::{Opaque, Payload};

/// Calls of the client at a time.
const CALLS_MAX: u16 = 6;
/// Bytes of the data of a call.
const LENS: [u32; 3] = [0, 300, 5000];
/// What stands in memory at first.
const BLANK: u8 = 0xee;
/// The program that the server may call.
const PROGRAM: u32 = 0x4000_0000;
const STATE: stateid4 = stateid4 {
    seqid: 1,
    other: [7; 12],
};

/// A client, and what its server knows.
struct ServerRig {
    end: End<ClientConnection>,
    peer: Fpdus,
    random: Random,
    /// By tag, of calls that are not answered.
    data: Vec<Option<CallData>>,
    /// Calls that have come and were not answered.
    calls: Vec<Message>,
    /// MSN of the next Send and of the next Read Request.
    send_msn: u32,
    read_msn: u32,
    told: Vec<String>,
    fatal: Option<RpcClientFatalError>,
    /// ULPDUs that are Terminates.
    terminates: usize,
    /// Bytes that are received at a time.
    step: usize,
}

/// Any server against the client's machine: the same comes of its bytes together and one by
/// one.
pub fn client(input: &[u8]) {
    told(input);
}

/// What a client's machine tells of an input.
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
    let mut rig = ServerRig::new(config, step);
    rig.transmit();
    if config[0] & 2 == 0 {
        let server = RpcRdmaPrivateData {
            takes_invalidate: true,
            send_bytes_max: 4096,
            receive_bytes_max: if config[0] & 4 == 0 { 4096 } else { 1024 },
        };
        let crc = (config[0] & 1) * mpa_flags::CRC;
        let words = Some((0, u16::from(config[0] >> 4)));
        let reply = mpa_frame(MPA_REPLY_KEY, (crc, 2), words, &server.encode());
        rig.receive(&reply);
    }
    for (mode, record) in super::records(records) {
        while rig.fatal.is_none() && rig.random.one_in(2) {
            rig.call();
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

impl ServerRig {
    fn new(config: [u8; 4], step: usize) -> ServerRig {
        let crc = config[0] & 1 != 0;
        let mut machine = ClientConnection::new(RpcClientSettings {
            calls_max: CALLS_MAX,
            answer_bytes_max: 8192,
            callback_program: PROGRAM,
            auth: Auth::none(),
        });
        let settings = RdmaClientSettings {
            crc: match crc {
                true => CrcPolicy::Require,
                false => CrcPolicy::Off,
            },
            ird_max: 2,
            ..RdmaClientSettings::default()
        };
        machine.use_rdma(settings, 1, 0);
        ServerRig {
            end: End::new(machine),
            peer: Fpdus { crc },
            random: Random::new(u64::from(u32::from_le_bytes(config))),
            data: vec![None; usize::from(CALLS_MAX)],
            calls: Vec::new(),
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

    fn take(&mut self, op: ClientOp) {
        assert_eq!(self.fatal, None, "nothing is told behind the end");
        let machine = &mut self.end.machine;
        match op {
            ClientOp::Answered { tag } => {
                let answer = machine.answer();
                let (len, body) = (answer.data_len, answer.body().map(<[u8]>::len));
                self.told.push(format!("Answered {tag}: {body:?}, {len}"));
                let data = self.data[usize::from(tag)].take();
                match data.expect("it was under way") {
                    CallData::In(max) => assert!(len <= max),
                    CallData::Out(_) | CallData::None => assert_eq!(len, 0),
                }
            }
            ClientOp::CallBack { xid } => {
                let len = machine.callback().len();
                self.told.push(format!("CallBack {xid}: {len}"));
                machine.answer_callback(xid, |to| to.extend([0; 12]));
            }
            ClientOp::Fatal(why) => {
                self.told.push(format!("Fatal {why:?}"));
                self.fatal = Some(why);
            }
            ClientOp::TokenAnswered | ClientOp::StartTls => panic!("{op:?} was not asked for"),
        }
    }

    /// Calls, if there is room: with data to read or to write, with more arguments than a Send
    /// takes, or with none.
    fn call(&mut self) {
        let len = LENS[self.random.below(3) as usize];
        let (data, op) = match self.random.below(4) {
            0 => (CallData::In(len), read(len)),
            1 => (CallData::Out(len), write(len)),
            kind => (CallData::None, remove(kind)),
        };
        let ops = if data == CallData::None { 20 } else { 1 };
        let tag = self.end.machine.compound(1, data, |to| {
            let object = Opaque(&[3; 11]);
            to.op(&nfs_argop4::OP_PUTFH(PUTFH4args { object }));
            (0..ops).for_each(|_| {
                to.op(&op);
            });
        });
        if let Some(tag) = tag {
            self.end.set_memory(tag, vec![BLANK; len as usize]);
            let before = self.data[usize::from(tag)].replace(data);
            assert!(before.is_none(), "a tag was given twice");
            self.transmit();
        }
    }

    /// Sends what there is: the server learns of calls.
    fn transmit(&mut self) {
        let mut out = VecDeque::new();
        while self.end.machine.has_transmit() {
            self.end.transmit(&mut out, 3);
        }
        if out.front() == Some(&b'M') {
            return;
        }
        // A record may have agreed to CRCs.
        self.peer.crc = self.end.machine.has_mpa_crc();
        for ulpdu in self.peer.cut(&mut out) {
            match ulpdu[1] & rdmap_control::OPCODE_MASK {
                opcode::TERMINATE => self.terminates += 1,
                opcode::SEND => {
                    let send = Message::decode(&ulpdu[UntaggedFpdu::LEN - 2..]);
                    let send = send.expect("a client sends no errors");
                    let is_answer = send.body.get(4..8) == Some(&[0, 0, 0, 1]);
                    if send.is_long || !is_answer {
                        self.calls.push(send);
                    }
                }
                _ => {}
            }
        }
    }

    /// A call that the server has, by the choice of `which`; without any, or now and then where
    /// `is_wild`, whatever comes.
    fn pick(&mut self, which: u8, is_wild: bool, takes: bool) -> Message {
        let count = self.calls.len();
        if count == 0 || is_wild && which & 0x80 != 0 {
            let memory = segment(which.into(), 0, 512);
            return Message {
                xid: which.into(),
                reads: vec![(0, memory)],
                writes: vec![vec![memory]],
                reply: Some(vec![memory]),
                ..Message::default()
            };
        }
        let index = usize::from(which) % count;
        match takes {
            true => self.calls.remove(index),
            false => self.calls[index].clone(),
        }
    }

    /// What `record` says that the server does: all is in bounds unless it `is_wild`.
    fn named(&mut self, record: &[u8], is_wild: bool) -> Vec<u8> {
        let Some((&[kind, which, low, high], rest)) = record.split_first_chunk::<4>() else {
            return Vec::new();
        };
        let number = u32::from(low) | u32::from(high & 0x1f) << 8;
        let kind = kind % 6;
        if self.calls.is_empty() && !is_wild && kind != 4 {
            return Vec::new();
        }
        let call = self.pick(which, is_wild, matches!(kind, 2 | 3 | 5));
        let credits = u32::from(high >> 5);
        let in_bounds = |segment: &Segment| match is_wild {
            true => number,
            false => number % (segment.length + 1),
        };
        let segments = call.writes.first().or(call.reply.as_ref());
        let memory = segments.and_then(|segments| segments.first()).copied();
        match (kind, memory, call.reads.first()) {
            (0, Some(memory), _) => {
                let at = in_bounds(&memory);
                let room = if is_wild {
                    u32::MAX
                } else {
                    memory.length - at
                };
                let data = &rest[..rest.len().min(room as usize)];
                self.write(&memory, (at, high & 0x80 == 0), data)
            }
            (1, _, Some((_, memory))) => {
                self.read_msn += 1;
                let request = ReadRequest {
                    sink_stag: 1.into(),
                    sink_to: 0.into(),
                    size: in_bounds(memory).into(),
                    source_stag: memory.handle.into(),
                    source_to: memory.offset.into(),
                };
                self.peer.read_request(self.read_msn - 1, &request)
            }
            (2, ..) => {
                let mut answer = Message::short(call.xid, credits, reply(call.xid, rest));
                let claimed = call.writes.first().and_then(|chunk| chunk.first());
                answer.writes.extend(claimed.map(|memory| {
                    let length = in_bounds(memory);
                    vec![Segment { length, ..*memory }]
                }));
                // Of this call, or where it is wild of any.
                let other = self.pick(low, is_wild, false);
                let named = match is_wild {
                    true => other.writes.first().and_then(|chunk| chunk.first()),
                    false => claimed,
                };
                let stag = named.map(|memory| memory.handle);
                self.send(&answer, stag.filter(|_| which & 1 != 0))
            }
            (3, ..) => {
                let length = is_wild.then_some(number);
                self.long_answer(&call, credits, length, rest)
            }
            (4, ..) => self.call_back(number, which, credits, rest),
            (5, ..) => self.refusal(&call, which, credits),
            _ => Vec::new(),
        }
    }

    /// An answer in the reply chunk, which it says to have so many bytes, or as many as it has.
    fn long_answer(
        &mut self,
        call: &Message,
        credits: u32,
        length: Option<u32>,
        rest: &[u8],
    ) -> Vec<u8> {
        let Some(memory) = call.reply.as_ref().and_then(|chunk| chunk.first()) else {
            return Vec::new();
        };
        let body = reply(call.xid, rest);
        let length = length.unwrap_or(body.len() as u32);
        let answer = Message {
            xid: call.xid,
            credits,
            is_long: true,
            reply: Some(vec![Segment { length, ..*memory }]),
            ..Message::default()
        };
        let mut bytes = self.write(memory, (0, true), &body);
        bytes.extend(self.send(&answer, None));
        bytes
    }

    fn call_back(&mut self, xid: u32, which: u8, credits: u32, rest: &[u8]) -> Vec<u8> {
        // CALL, RPC version 2, the program, its version and procedure, AUTH_NONE twice.
        let words = [xid, 0, 2, PROGRAM, 1, u32::from(which % 3), 0, 0, 0, 0];
        let mut body: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
        body.extend_from_slice(rest);
        self.send(&Message::short(xid, credits, body), None)
    }

    fn refusal(&mut self, call: &Message, which: u8, credits: u32) -> Vec<u8> {
        // RDMA_ERROR of version 1: ERR_VERS with the versions, or ERR_CHUNK.
        let words = [call.xid, 1, credits, 4, 1 + u32::from(which % 2), 1, 1];
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
        bytes.truncate([28, 20][usize::from(which % 2)]);
        self.send_bytes(&bytes, None)
    }

    fn write(&self, memory: &Segment, (at, is_last): (u32, bool), data: &[u8]) -> Vec<u8> {
        let to = memory.offset.wrapping_add(at.into());
        self.peer
            .tagged((opcode::WRITE, is_last), memory.handle, to, data)
    }

    fn send(&mut self, message: &Message, invalidated: Option<u32>) -> Vec<u8> {
        self.send_bytes(&message.encode(), invalidated)
    }

    fn send_bytes(&mut self, bytes: &[u8], invalidated: Option<u32>) -> Vec<u8> {
        let opcode = invalidated.map_or(opcode::SEND, |_| opcode::SEND_INVALIDATE);
        self.send_msn += 1;
        let place = (queue::SEND, self.send_msn - 1, 0);
        self.peer
            .untagged((opcode, true), invalidated.unwrap_or(0), place, bytes)
    }

    /// What must be true of a client's machine that has taken all bytes.
    fn check(&self) {
        assert_eq!(self.end.machine.is_finished(), self.fatal.is_some());
        let is_told = match self.fatal {
            None | Some(RpcClientFatalError::Rejected) => false,
            Some(RpcClientFatalError::Rdma(why)) => matches!(why, QpError::Sent(_)),
            Some(_) => true,
        };
        assert_eq!(self.terminates, usize::from(is_told));
        let under_way = self.data.iter().flatten().count();
        assert_eq!(self.end.machine.in_flight(), under_way);
        for (data, memory) in self.data.iter().zip(&self.end.memory) {
            let is_ours = matches!(data, Some(CallData::Out(_)));
            assert!(!is_ours || memory.iter().all(|byte| *byte == BLANK));
        }
    }
}

fn read(count: u32) -> nfs_argop4<'static> {
    nfs_argop4::OP_READ(READ4args {
        stateid: STATE,
        offset: 0,
        count,
    })
}

fn write(len: u32) -> nfs_argop4<'static> {
    nfs_argop4::OP_WRITE(WRITE4args {
        stateid: STATE,
        offset: 0,
        stable: stable_how4::UNSTABLE4,
        data: Payload { len },
    })
}

/// Of a name that is short or long.
fn remove(kind: u64) -> nfs_argop4<'static> {
    let name: &[u8] = if kind == 2 { b"n" } else { &[b'n'; 255] };
    nfs_argop4::OP_REMOVE(REMOVE4args {
        target: Opaque(name),
    })
}

/// An answer of RPC that was accepted, with `results`.
fn reply(xid: u32, results: &[u8]) -> Vec<u8> {
    let words = [xid, 1, 0, 0, 0, 0];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    bytes.extend_from_slice(results);
    bytes
}
