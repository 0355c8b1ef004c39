//! A server of nothing on plain memory, and calls to it: for tests and the
//! fuzz target.

use std::collections::VecDeque;

use machine::testing::End;
use machine::{Machine, Tag};
use random::Random;
use wire::mount3::{MOUNT_PROGRAM, MOUNT_V3, mount_proc3};
use wire::nfs3::{NFS_V3, WRITE3args, nfs_proc3, stable_how};
use wire::nfs4::{
    GETATTR4args, NFS_V4, NFS4_PROGRAM, NFSPROC4_COMPOUND, PUTFH4args, WRITE4args, compound_head,
    nfs_argop4, stable_how4, stateid4,
};
use wire::rpc::{
    AUTH_NONE, AUTH_SYS, RPC_VERSION, RecordMark, authsys_parms, call_body, msg_type, opaque_auth,
};
use wire::xdr::{Encode, List, Opaque, Payload, pad};

use crate::connection::{Connection, FatalError, Op, Stop};

/// A call as a server saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its transaction identifier.
    pub xid: u32,
    /// Its arguments.
    pub args: Vec<u8>,
    /// Operations that were whole, and why no more.
    pub ops: (u32, Stop),
    /// The data of its WRITEs.
    pub data: Vec<Option<Vec<u8>>>,
}

/// A connection whose calls are kept until somebody answers them.
#[derive(Debug)]
pub struct Server {
    /// The machine with its memory.
    pub end: End<Connection>,
    /// Calls that came and are not answered.
    pub calls: Vec<(Tag, Seen)>,
    /// Answers to the server's own calls.
    pub answers: Vec<(u32, Vec<u8>)>,
    /// Where the data of WRITEs was said to go: offset, and the file handle.
    pub places: Vec<(u64, Option<Vec<u8>>)>,
    /// Memory that was asked for and not given.
    pub starved: Option<(Tag, u32)>,
    /// Give no memory by itself.
    pub starves: bool,
    /// How it ended.
    pub fatal: Option<FatalError>,
}

impl Server {
    /// On this machine.
    pub fn new(machine: Connection) -> Server {
        Server {
            end: End::new(machine),
            calls: Vec::new(),
            answers: Vec::new(),
            places: Vec::new(),
            starved: None,
            starves: false,
            fatal: None,
        }
    }

    /// One receive of at most `max` bytes, and what follows from it. Whether
    /// any were taken.
    pub fn receive(&mut self, stream: &mut VecDeque<u8>, max: usize) -> bool {
        let taken = self.end.receive(stream, max) > 0;
        self.take_ops();
        taken
    }

    /// Takes all that the bytes received allow.
    pub fn take_ops(&mut self) {
        while let Some(op) = self.end.next_op() {
            match op {
                Op::Prepare {
                    call,
                    tag,
                    offset,
                    len,
                    ..
                } => {
                    let handle = self.end.machine.write_handle(call);
                    self.places.push((offset, handle.map(<[u8]>::to_vec)));
                    self.starved = Some((tag, len));
                    if !self.starves {
                        self.feed(true);
                    }
                }
                Op::Call { tag } => self.see(tag),
                Op::Answer { tag, xid } => {
                    let bytes = self.end.machine.answer(tag).to_vec();
                    self.answers.push((xid, bytes));
                    self.end.machine.forget_answer(tag);
                }
                Op::Fatal(error) => self.fatal = Some(error),
            }
        }
    }

    /// Gives the memory that was asked for, or none.
    pub fn feed(&mut self, gives: bool) {
        let Some((tag, len)) = self.starved.take() else {
            return;
        };
        assert!(self.end.machine.is_blocked_on(tag));
        match gives {
            true => {
                self.end.set_memory(tag, vec![0xee; len as usize]);
                self.end.machine.prepared(tag);
            }
            false => self.end.machine.refuse(tag),
        }
    }

    fn see(&mut self, tag: Tag) {
        let call = self.end.machine.call(tag);
        let data = |tag: &Option<Tag>| tag.map(|tag| self.end.memory[usize::from(tag)].clone());
        let seen = Seen {
            xid: call.xid,
            args: call.args.to_vec(),
            ops: (call.ops, call.stop),
            data: call.payloads.iter().map(data).collect(),
        };
        self.calls.push((tag, seen));
    }

    /// Answers the call at `index` with its own arguments and, behind them,
    /// `payloads`, each with its length before it.
    pub fn answer(&mut self, index: usize, payloads: &[Vec<u8>]) {
        let (tag, seen) = self.calls.remove(index);
        let machine = &mut self.end.machine;
        machine.reply(tag).bytes().extend_from_slice(&seen.args);
        for bytes in payloads {
            let Some(data) = self.end.machine.data_tag(tag) else {
                break;
            };
            self.end.set_memory(data, bytes.clone());
            let reply = self.end.machine.reply(tag);
            (bytes.len() as u32).encode(reply.bytes());
            reply.payload(data, 0, bytes.len() as u32);
        }
        self.end.machine.send(tag);
    }
}

/// The header of a call of NFSv4 by AUTH_SYS as root.
pub fn call_header(xid: u32, change: impl FnOnce(&mut call_body<'_>)) -> Vec<u8> {
    let mut sys = Vec::new();
    authsys_parms {
        stamp: 0,
        machinename: Opaque(b"client"),
        uid: 0,
        gid: 0,
        gids: List::Of(&[]),
    }
    .encode(&mut sys);
    call_header_as(xid, &sys, change)
}

/// The same by the AUTH_SYS credential that `sys` is.
pub fn call_header_as<'a>(
    xid: u32,
    sys: &'a [u8],
    change: impl FnOnce(&mut call_body<'a>),
) -> Vec<u8> {
    let mut call = call_body {
        rpcvers: RPC_VERSION,
        prog: NFS4_PROGRAM,
        vers: NFS_V4,
        proc: NFSPROC4_COMPOUND,
        cred: opaque_auth {
            flavor: AUTH_SYS,
            body: Opaque(sys),
        },
        verf: opaque_auth {
            flavor: AUTH_NONE,
            body: Opaque(&[]),
        },
    };
    change(&mut call);
    let mut bytes = Vec::new();
    xid.encode(&mut bytes);
    msg_type::CALL.encode(&mut bytes);
    call.encode(&mut bytes);
    bytes
}

/// What a COMPOUND consists of, for [`compound`].
#[derive(Clone, Debug)]
pub enum Part {
    /// PUTFH of this handle.
    Put(Vec<u8>),
    /// GETATTR of so many words.
    Getattr(Vec<u32>),
    /// LOOKUP, of anything.
    Lookup(Vec<u8>),
    /// WRITE of this to there.
    Write(u64, Vec<u8>),
    /// These bytes.
    Raw(Vec<u8>),
}

/// The arguments of a COMPOUND: as on the wire, and without the data of WRITEs.
pub fn compound(parts: &[Part]) -> (Vec<u8>, Vec<u8>) {
    let mut wire = Vec::new();
    compound_head {
        tag: Opaque(b"tag"),
        minorversion: 1,
        ops: parts.len() as u32,
    }
    .encode(&mut wire);
    let mut args = wire.clone();
    for part in parts {
        let mut op = Vec::new();
        let mut data: &[u8] = &[];
        match part {
            Part::Put(handle) => nfs_argop4::OP_PUTFH(PUTFH4args {
                object: Opaque(handle),
            })
            .encode(&mut op),
            Part::Getattr(words) => nfs_argop4::OP_GETATTR(GETATTR4args {
                attr_request: List::Of(words),
            })
            .encode(&mut op),
            Part::Lookup(name) => nfs_argop4::OP_LOOKUP(wire::nfs4::LOOKUP4args {
                objname: Opaque(name),
            })
            .encode(&mut op),
            Part::Write(offset, bytes) => {
                data = bytes;
                nfs_argop4::OP_WRITE(WRITE4args {
                    stateid: stateid4 {
                        seqid: 1,
                        other: [7; 12],
                    },
                    offset: *offset,
                    stable: stable_how4::UNSTABLE4,
                    data: Payload {
                        len: bytes.len() as u32,
                    },
                })
                .encode(&mut op);
            }
            Part::Raw(bytes) => op.extend(bytes),
        }
        args.extend(&op);
        wire.extend(&op);
        wire.extend(data);
        wire.extend(&[0; 3][..pad(data.len())]);
    }
    (wire, args)
}

/// The procedures of NFSv3 and MOUNT, by what [`fuzz`] picks them with.
const OTHERS: [(u32, u32, u32); 3] = [
    (NFS4_PROGRAM, NFS_V3, nfs_proc3::NFSPROC3_WRITE as u32),
    (NFS4_PROGRAM, NFS_V3, nfs_proc3::NFSPROC3_LOOKUP as u32),
    (MOUNT_PROGRAM, MOUNT_V3, mount_proc3::MOUNTPROC3_MNT as u32),
];

/// The header of a call of another program, version and procedure by AUTH_SYS
/// as root.
pub fn call_header_of(xid: u32, (program, version, procedure): (u32, u32, u32)) -> Vec<u8> {
    call_header(xid, |call| {
        call.prog = program;
        call.vers = version;
        call.proc = procedure;
    })
}

/// A call of NFSv3's WRITE: as on the wire, and its arguments without the data.
pub fn write3(xid: u32, handle: &[u8], offset: u64, data: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut args = Vec::new();
    WRITE3args {
        file: Opaque(handle),
        offset,
        count: data.len() as u32,
        stable: stable_how::FILE_SYNC,
        data: Payload {
            len: data.len() as u32,
        },
    }
    .encode(&mut args);
    let mut wire = call_header_of(xid, OTHERS[0]);
    wire.extend(&args);
    wire.extend(data);
    wire.extend(&[0; 3][..pad(data.len())]);
    (wire, args)
}

/// A record in fragments of at most so many bytes each, in turn.
pub fn record(bytes: &[u8], mut fragment: impl FnMut() -> usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = bytes;
    loop {
        let len = fragment().min(rest.len());
        let mark = RecordMark {
            is_last: len == rest.len(),
            len: len as u32,
        };
        out.extend(mark.encode());
        out.extend(&rest[..len]);
        rest = &rest[len..];
        if mark.is_last {
            return out;
        }
    }
}

/// Cuts what was sent into records of one fragment.
pub fn cut(stream: &mut VecDeque<u8>) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    while !stream.is_empty() {
        let mark: Vec<u8> = stream.drain(..RecordMark::LEN).collect();
        let mark = RecordMark::decode(mark.try_into().expect("a mark"));
        assert!(mark.is_last, "answers are not fragmented");
        records.push(stream.drain(..mark.len as usize).collect());
    }
    records
}

/// The stream that `records` stand for.
fn stream_of(mut records: &[u8]) -> VecDeque<u8> {
    let mut stream = VecDeque::new();
    let mut xid = 0;
    while let Some((&[mode, low, high], rest)) = records.split_first_chunk::<3>() {
        let len = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (bytes, rest) = rest.split_at(len);
        records = rest;
        if mode & 1 == 0 {
            stream.extend(bytes);
            continue;
        }
        xid += 1;
        let mut message = match mode & 2 {
            0 => Vec::new(),
            _ => match mode >> 5 {
                which @ 1..=3 => call_header_of(xid, OTHERS[usize::from(which) - 1]),
                _ => call_header(xid, |_| {}),
            },
        };
        message.extend(bytes);
        let fragment = match mode >> 2 & 7 {
            0 => usize::MAX,
            bits => 1 << bits,
        };
        stream.extend(record(&message, || fragment));
    }
    stream
}

/// Any client against the machine. An input is 4 bytes of seed, then records:
/// a mode, a length (16 bits, little endian) and so many bytes. Mode bit 0: they
/// get a record mark; bit 1: and before them the header of a call; bits 2 to 4:
/// how long fragments are; bits 5 to 7: of which procedure, COMPOUND or another.
pub fn fuzz(input: &[u8]) {
    let Some((seed, records)) = input.split_first_chunk::<4>() else {
        return;
    };
    let mut random = Random::new(u64::from(u32::from_le_bytes(*seed)));
    let mut stream = stream_of(records);
    let settings = crate::connection::Settings {
        calls_max: 4,
        args_bytes_max: 2048,
        args_bytes_all_max: 4096,
        io_bytes_max: 4096,
        ops_max: 8,
        writes_max: 2,
        fragments_max: 64,
        handshake_timeout: 1,
    };
    let mut server = Server::new(Connection::new(settings, 0));
    server.starves = seed[0] & 1 != 0;
    let mut out = VecDeque::new();
    let mut idle = 0;
    while idle < 64 {
        idle += 1;
        if server.receive(&mut stream, 1 + random.below(300) as usize) {
            idle = 0;
        }
        if random.one_in(2) {
            let gives = !random.one_in(4);
            server.feed(gives);
        }
        if !server.calls.is_empty() && random.one_in(2) {
            let index = random.below(server.calls.len() as u64) as usize;
            let data = vec![random.below(256) as u8; random.below(9) as usize];
            server.answer(index, &[data.clone(), data]);
        }
        if seed[1] & 1 != 0 && random.one_in(8) {
            server.end.machine.call_back((1, 1, 0), |_| {});
        }
        if random.one_in(2) && server.end.machine.has_transmit() {
            server.end.transmit(&mut out, 1 + random.below(4) as usize);
        }
        assert!(server.calls.len() <= 4, "calls are bounded");
        assert!(server.end.machine.tags_max() <= 32, "tags are bounded");
    }
    if server.fatal.is_none() && server.starved.is_none() {
        assert!(stream.is_empty(), "all bytes are taken");
    }
    if server.fatal.is_none() && !server.end.machine.has_transmit() {
        cut(&mut out);
    }
}
