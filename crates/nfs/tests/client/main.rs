//! The machine of a connection of a client, against that of a server.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use doubles::nfs::RpcDouble;
use machine::{Machine, Tag};
use nfs::client::*;
use nfs::connection::{Connection as Served, RpcServerSettings as ServedSettings};
use proptest::prelude::*;
use random::Random;
use testkit::End;
use testkit::nfs::call::{cut, record};
use wire::nfs4::{
    CB_RECALL4args, CB_SEQUENCE4args, CREATE_SESSION4resok, GETATTR4args, NFS_CB, PUTFH4args,
    READ4args, READ4resok, REMOVE4args, SEQUENCE4resok, WRITE4args, WRITE4resok, change_info4,
    compound_head, compound_res_head, fattr4, nfs_argop4, nfs_cb_argop4, nfs_opnum4, nfs_resop4,
    nfsstat4, stable_how4, stateid4,
};
use wire::rpc::{accept_stat, accepted_body, auth_stat, rejected_reply};
use wire::xdr::{Decode, Encode, List, Opaque, Payload, Reader};

mod gss;
mod rdma;
mod session;
mod tls;

const PROGRAM: u32 = 0x4000_0000;
const STATE: stateid4 = stateid4 {
    seqid: 1,
    other: [7; 12],
};

fn settings() -> RpcClientSettings {
    RpcClientSettings {
        calls_max: 16,
        answer_bytes_max: 1 << 20,
        callback_program: PROGRAM,
        auth: Auth::sys(1000, 100, &[4, 5]),
    }
}

fn server() -> RpcDouble {
    RpcDouble::new(Served::new(ServedSettings::default(), 0))
}

/// A call, what came of it, and the data that it left in memory.
type Answered = (Tag, Result<Vec<u8>, RpcRefused>, Vec<u8>);

/// What a client saw, in order.
struct Client {
    end: End<ClientConnection>,
    /// Answered calls: what follows RPC's header, and the data in memory.
    answers: Vec<Answered>,
    callbacks: Vec<(u32, Vec<u8>)>,
    starts_tls: bool,
    /// What the server answered to tokens.
    tokens: Vec<Result<ContextAnswer, RpcRefused>>,
    fatal: Option<RpcClientFatalError>,
}

impl Client {
    fn new(settings: RpcClientSettings) -> Client {
        Client {
            end: End::new(ClientConnection::new(settings)),
            answers: Vec::new(),
            callbacks: Vec::new(),
            starts_tls: false,
            tokens: Vec::new(),
            fatal: None,
        }
    }

    /// One receive of at most `max` bytes; whether any came.
    fn receive(&mut self, stream: &mut VecDeque<u8>, max: usize) -> bool {
        let taken = self.end.receive(stream, max) > 0;
        while let Some(op) = self.end.next_op() {
            let machine = &mut self.end.machine;
            match op {
                ClientOp::Answered { tag } => {
                    let answer = machine.answer();
                    let bytes = answer.body().map(<[u8]>::to_vec);
                    let len = answer.data_len as usize;
                    let memory = self.end.memory.get(usize::from(tag));
                    let data = match machine.protects_data() {
                        true => machine.protected_data()[..len].to_vec(),
                        false => memory.map_or(Vec::new(), |memory| memory[..len].to_vec()),
                    };
                    self.answers.push((tag, bytes, data));
                }
                ClientOp::CallBack { xid } => {
                    self.callbacks.push((xid, machine.callback().to_vec()));
                }
                ClientOp::TokenAnswered => {
                    self.tokens.extend(machine.take_token_answer());
                }
                ClientOp::StartTls => self.starts_tls = true,
                ClientOp::Fatal(error) => self.fatal = Some(error),
            }
        }
        taken
    }

    fn receive_all(&mut self, stream: &mut VecDeque<u8>, max: usize) {
        while self.receive(stream, max) {}
    }

    /// All that is to be sent.
    fn send(&mut self) -> VecDeque<u8> {
        let mut out = VecDeque::new();
        while self.end.machine.has_transmit() {
            self.end.transmit(&mut out, 3);
        }
        out
    }

    /// The stream is lost, and another begins.
    fn restart(&mut self) {
        let settings = RpcClientSettings {
            calls_max: 1,
            ..settings()
        };
        let old = std::mem::replace(&mut self.end, End::new(ClientConnection::new(settings)));
        self.end = End::new(old.machine);
        self.end.memory = old.memory;
        self.end.machine.restart();
    }

    fn read(&mut self, offset: u64, len: u32) -> Tag {
        let write = |compound: &mut Compound<'_>| {
            put_and(compound, &read_op(offset, len));
        };
        let tag = self.end.machine.compound(1, CallData::In(len), write);
        let tag = tag.expect("room");
        self.end.set_memory(tag, vec![0; len as usize]);
        tag
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Tag {
        let len = data.len() as u32;
        let write = |compound: &mut Compound<'_>| {
            put_and(compound, &nfs_argop4::OP_WRITE(write_args(offset, len)));
            compound.op(&getattr());
        };
        let tag = self.end.machine.compound(1, CallData::Out(len), write);
        let tag = tag.expect("room");
        self.end.set_memory(tag, data.to_vec());
        if self.end.machine.protects_data() {
            let put = |into: &mut [u8]| into.copy_from_slice(data);
            self.end.machine.put_data(tag, put);
        }
        tag
    }

    fn getattr(&mut self) -> Tag {
        let tag = self.end.machine.compound(1, CallData::None, |compound| {
            put_and(compound, &getattr());
        });
        let tag = tag.expect("room");
        self.end.set_memory(tag, Vec::new());
        tag
    }
}

fn put_and(compound: &mut Compound<'_>, op: &nfs_argop4<'_>) {
    let put = PUTFH4args {
        object: Opaque(&[3; 11]),
    };
    compound.op(&nfs_argop4::OP_PUTFH(put)).op(op);
}

fn read_op(offset: u64, count: u32) -> nfs_argop4<'static> {
    nfs_argop4::OP_READ(READ4args {
        stateid: STATE,
        offset,
        count,
    })
}

fn write_args(offset: u64, len: u32) -> WRITE4args {
    WRITE4args {
        stateid: STATE,
        offset,
        stable: stable_how4::UNSTABLE4,
        data: Payload { len },
    }
}

fn getattr() -> nfs_argop4<'static> {
    nfs_argop4::OP_GETATTR(GETATTR4args {
        attr_request: List::Of(&[1, 2]),
    })
}

/// What a file holds at an offset, in these tests.
fn content(offset: u64, len: u32) -> Vec<u8> {
    (offset..offset + u64::from(len))
        .map(|at| (at * 7 % 251) as u8)
        .collect()
}

const ATTRS: &[u8] = &[9; 21];

/// A server that keeps what it answered in each slot, and counts what it
/// removed.
#[derive(Default)]
struct Model {
    slots: Vec<(u32, Vec<u8>)>,
    removed: Vec<Vec<u8>>,
    replays: u32,
    /// Data of WRITEs, by offset.
    written: Vec<(u64, Vec<u8>)>,
    /// The most that a READ gives.
    data_max: Option<u32>,
    /// How every operation but SEQUENCE ends.
    status: Option<nfsstat4>,
}

const SESSION: [u8; 16] = [5; 16];

impl Model {
    /// Executes the call at `index` of a server and answers it.
    fn execute(&mut self, server: &mut RpcDouble, index: usize) {
        let (tag, seen) = server.calls.remove(index);
        let mut from = Reader::new(&seen.args);
        let head = compound_head::decode(&mut from).unwrap();
        assert!(head.tag.0.is_empty() && head.ops == seen.ops.0);
        let mut results = Vec::new();
        let mut payload = None;
        let mut slot = None;
        let mut data = seen.data.into_iter();
        let (mut count, mut status) = (0u32, nfsstat4::NFS4_OK);
        for _ in 0..head.ops {
            let op = nfs_argop4::decode(&mut from).unwrap();
            count += 1;
            if let nfs_argop4::OP_SEQUENCE(args) = op {
                let at = args.sa_slotid as usize;
                self.slots
                    .resize(self.slots.len().max(at + 1), Default::default());
                if self.slots[at].0 == args.sa_sequenceid {
                    self.replays += 1;
                    let kept = self.slots[at].1.clone();
                    assert!(!kept.is_empty(), "it asked for the answer to be kept");
                    let machine = &mut server.end.machine;
                    machine.reply(tag).bytes().extend(kept);
                    machine.send(tag);
                    return;
                }
                assert_eq!(self.slots[at].0 + 1, args.sa_sequenceid);
                self.slots[at].0 = args.sa_sequenceid;
                slot = Some((at, args.sa_cachethis));
                nfs_resop4::OP_SEQUENCE(wire::nfs4::SEQUENCE4res::NFS4_OK(SEQUENCE4resok {
                    sr_sessionid: args.sa_sessionid,
                    sr_sequenceid: args.sa_sequenceid,
                    sr_slotid: args.sa_slotid,
                    sr_highest_slotid: 15,
                    sr_target_highest_slotid: 15,
                    sr_status_flags: 0,
                }))
                .encode(&mut results);
                continue;
            }
            if let (Some(error), false) = (self.status, matches!(op, nfs_argop4::OP_PUTFH(_))) {
                status = error;
                number(&op).encode(&mut results);
                status.encode(&mut results);
                break;
            }
            payload = self.result(&op, &mut data, &mut results).or(payload);
        }
        let mut bytes = Vec::new();
        let tag_of = Opaque(&b"any"[..]);
        compound_res_head {
            status,
            tag: tag_of,
            results: count,
        }
        .encode(&mut bytes);
        let before = bytes.len();
        bytes.extend(&results);
        if let Some((slot, true)) = slot {
            self.slots[slot].1 = bytes.clone();
        }
        let machine = &mut server.end.machine;
        let Some((at, content)) = payload else {
            machine.reply(tag).bytes().extend(bytes);
            return machine.send(tag);
        };
        let at = before + at;
        machine.reply(tag).bytes().extend(&bytes[..at]);
        let named = machine.data_tag(tag).expect("a tag");
        let len = content.len() as u32;
        server.end.set_memory(named, content);
        let reply = server.end.machine.reply(tag);
        reply.data_item(len);
        reply.payload(named, 0, len);
        reply.bytes().extend(&bytes[at..]);
        server.send(tag);
    }

    /// Appends a result; where its data belongs, and that data.
    fn result(
        &mut self,
        op: &nfs_argop4<'_>,
        data: &mut impl Iterator<Item = Option<Vec<u8>>>,
        to: &mut Vec<u8>,
    ) -> Option<(usize, Vec<u8>)> {
        number(op).encode(to);
        nfsstat4::NFS4_OK.encode(to);
        match op {
            nfs_argop4::OP_PUTFH(args) => assert_eq!(args.object.0, [3; 11]),
            nfs_argop4::OP_GETATTR(args) => fattr4 {
                attrmask: args.attr_request,
                attr_vals: Opaque(ATTRS),
            }
            .encode(to),
            nfs_argop4::OP_REMOVE(args) => {
                self.removed.push(args.target.0.to_vec());
                change_info4 {
                    atomic: true,
                    before: 1,
                    after: 2,
                }
                .encode(to);
            }
            nfs_argop4::OP_WRITE(args) => {
                let data = data.next().unwrap().unwrap_or_default();
                WRITE4resok {
                    count: data.len() as u32,
                    committed: args.stable,
                    writeverf: [1; 8],
                }
                .encode(to);
                self.written.push((args.offset, data));
            }
            nfs_argop4::OP_READ(args) => {
                let len = args.count.min(self.data_max.unwrap_or(u32::MAX));
                READ4resok {
                    eof: false,
                    data: Payload { len },
                }
                .encode(to);
                return (len > 0).then(|| (to.len(), content(args.offset, len)));
            }
            other => panic!("{other:?} is not executed here"),
        }
        None
    }
}

fn number(op: &nfs_argop4<'_>) -> nfs_opnum4 {
    let mut bytes = Vec::new();
    op.encode(&mut bytes);
    nfs_opnum4::decode(&mut Reader::new(&bytes)).unwrap()
}

/// All that a server has to send.
fn sent(server: &mut RpcDouble) -> VecDeque<u8> {
    let mut out = VecDeque::new();
    while server.end.machine.has_transmit() {
        server.end.transmit(&mut out, 2);
    }
    out
}

fn serve_all(server: &mut RpcDouble, stream: &mut VecDeque<u8>) {
    while server.receive(stream, usize::MAX) {}
    assert!(stream.is_empty() && server.fatal.is_none());
}

/// Executes what `client` has sent, in order; the answers.
fn answers(client: &mut Client, model: &mut Model) -> VecDeque<u8> {
    let mut server = server();
    serve_all(&mut server, &mut client.send());
    while !server.calls.is_empty() {
        model.execute(&mut server, 0);
    }
    sent(&mut server)
}

fn results(answer: &Result<Vec<u8>, RpcRefused>, is_placed: bool) -> Results<'_> {
    Results::read(answer.as_ref().unwrap(), is_placed).unwrap()
}

/// The same records in fragments of at most so many bytes.
fn fragmented(mut stream: VecDeque<u8>, mut fragment: impl FnMut() -> usize) -> VecDeque<u8> {
    let records = cut(&mut stream);
    records
        .iter()
        .flat_map(|bytes| record(bytes, &mut fragment))
        .collect()
}

fn answer_of(xid: u32, words: &[u32]) -> Vec<u8> {
    let words = [&[xid, 1], words].concat();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    record(&bytes, || usize::MAX)
}

fn xid(client: &mut Client) -> u32 {
    let mut out = client.send();
    let call = cut(&mut out).remove(0);
    u32::from_be_bytes(call[..4].try_into().unwrap())
}

fn slots(count: u32) -> Slots {
    Slots::new(&made(count))
}

fn made(count: u32) -> CREATE_SESSION4resok<'static> {
    let args = create_session(
        1,
        1,
        &Channels {
            slots: count,
            message_bytes_max: 4096,
            cached_bytes_max: 512,
            ops_max: 8,
            callback_slots: 1,
            callback_program: PROGRAM,
        },
    );
    CREATE_SESSION4resok {
        csr_sessionid: SESSION,
        csr_sequence: 1,
        csr_flags: 0,
        csr_fore_chan_attrs: args.csa_fore_chan_attrs,
        csr_back_chan_attrs: args.csa_back_chan_attrs,
    }
}

#[test]
fn calls_are_encoded_as_the_standards_have_them() {
    let mut client = Client::new(settings());
    let null = client.end.machine.null().unwrap();
    let read = client.read(0x1_0000_0002, 9);
    let calls = cut(&mut client.send());
    let words = |bytes: &[u8]| -> Vec<u32> {
        let words = bytes.chunks(4);
        words
            .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
            .collect()
    };
    // RFC 5531, section 9: xid, CALL, version, program, its version, procedure;
    // AUTH_SYS with stamp, name, uid, gid, gids; AUTH_NONE.
    let sys = [1, 28, 0, 0, 1000, 100, 2, 4, 5, 0, 0];
    let head = |xid, proc| [&[xid, 0, 2, 100_003, 4, proc][..], &sys].concat();
    assert_eq!(words(&calls[0]), head(null.into(), 0));
    let compound = [
        0,
        1,
        2,
        22,
        11,
        0x0303_0303,
        0x0303_0303,
        0x0303_0300,
        25,
        1,
        0x0707_0707,
        0x0707_0707,
        0x0707_0707,
        1,
        2,
        9,
    ];
    let xid = 1 << 16 | u32::from(read);
    assert_eq!(words(&calls[1]), [&head(xid, 1)[..], &compound].concat());
}

#[test]
fn large_reads_go_straight_to_their_memory() {
    let mut client = Client::new(settings());
    let len = 200_001;
    client.read(3, len);
    // Its size tells that the next read is worth a receive of its own.
    assert!(client.end.machine.recv_plan().stage_max < 200);
    let mut stream = answers(&mut client, &mut Model::default());
    client.receive_all(&mut stream, usize::MAX);
    let (_, answer, data) = &client.answers[0];
    assert_eq!(*data, content(3, len));
    assert!(client.end.placed_bytes < 64, "{}", client.end.placed_bytes);
    let mut results = results(answer, true);
    results.done(nfs_opnum4::OP_PUTFH).unwrap();
    let read: READ4resok = results.take(nfs_opnum4::OP_READ).unwrap();
    assert_eq!((read.data.len, results.left()), (len, 0));
    assert!(results.data(len).is_err(), "it is elsewhere");
    assert!(client.end.machine.recv_plan().stage_max > 4096);
}

#[test]
fn many_small_reads_are_received_at_once() {
    let mut client = Client::new(settings());
    for at in 0..8 {
        client.read(at * 4096, 4096);
    }
    let mut stream = answers(&mut client, &mut Model::default());
    assert!(client.receive(&mut stream, usize::MAX) && stream.is_empty());
    assert_eq!(client.answers.len(), 8);
    for (at, (_, _, data)) in client.answers.iter().enumerate() {
        assert_eq!(*data, content(at as u64 * 4096, 4096));
    }
}

#[test]
fn several_reads_of_one_compound_lie_behind_each_other() {
    let mut client = Client::new(settings());
    let write = |compound: &mut Compound<'_>| {
        put_and(compound, &read_op(10, 5));
        compound.op(&getattr()).op(&read_op(100, 7));
    };
    // The model has one payload; these bytes are those of two.
    let tag = client
        .end
        .machine
        .compound(1, CallData::In(12), write)
        .unwrap();
    client.end.set_memory(tag, vec![0; 12]);
    let mut bytes = Vec::new();
    [xid(&mut client), 1, 0, 0, 0, 0]
        .iter()
        .for_each(|word| word.encode(&mut bytes));
    [0, 0, 4, 22, 0, 25, 0, 0]
        .iter()
        .for_each(|word: &u32| word.encode(&mut bytes));
    Opaque::<9>(b"first").encode(&mut bytes);
    [9, 0].iter().for_each(|word: &u32| word.encode(&mut bytes));
    fattr4 {
        attrmask: List::Of(&[1]),
        attr_vals: Opaque(ATTRS),
    }
    .encode(&mut bytes);
    [25, 0, 1]
        .iter()
        .for_each(|word: &u32| word.encode(&mut bytes));
    Opaque::<9>(b"seconds").encode(&mut bytes);
    for step in [1, 7, usize::MAX] {
        let mut client_again = Client::new(settings());
        let tag = client_again
            .end
            .machine
            .compound(1, CallData::In(12), write)
            .unwrap();
        client_again.end.set_memory(tag, vec![0; 12]);
        client_again.send();
        let mut stream: VecDeque<u8> = record(&bytes, || usize::MAX).into();
        client_again.receive_all(&mut stream, step);
        let (_, answer, data) = &client_again.answers[0];
        assert_eq!(data, b"firstseconds");
        let mut results = results(answer, true);
        let numbers = [22, 25, 9, 25].map(|_| results.any().map(|result| resop(&result)));
        assert_eq!(numbers, [22, 25, 9, 25].map(Some));
    }
}

fn resop(result: &nfs_resop4<'_>) -> u32 {
    let mut bytes = Vec::new();
    result.encode(&mut bytes);
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}

#[test]
fn data_without_memory_comes_with_the_answer() {
    let mut client = Client::new(settings());
    let tag = client.end.machine.compound(1, CallData::None, |compound| {
        put_and(compound, &read_op(1, 5));
        compound.write(write_args(9, 0), b"abc").op(&getattr());
    });
    let mut model = Model::default();
    let mut stream = answers(&mut client, &mut model);
    client.receive_all(&mut stream, usize::MAX);
    assert_eq!(model.written, [(9, b"abc".to_vec())]);
    assert_eq!(client.answers[0].0, tag.unwrap());
    let mut results = results(&client.answers[0].1, false);
    results.done(nfs_opnum4::OP_PUTFH).unwrap();
    let read: READ4resok = results.take(nfs_opnum4::OP_READ).unwrap();
    assert_eq!(results.data(read.data.len), Ok(&content(1, 5)[..]));
    let written: WRITE4resok = results.take(nfs_opnum4::OP_WRITE).unwrap();
    assert_eq!(written.count, 3);
    let attrs: fattr4<'_> = results.take(nfs_opnum4::OP_GETATTR).unwrap();
    assert_eq!(attrs.attr_vals.0, ATTRS);
    assert_eq!(results.done(nfs_opnum4::OP_GETATTR), Err(Wrong::Answer));
}

#[test]
fn an_error_names_its_operation_and_status() {
    let mut client = Client::new(settings());
    client.read(0, 4096);
    let mut model = Model {
        status: Some(nfsstat4::NFS4ERR_STALE),
        ..Model::default()
    };
    let mut stream = answers(&mut client, &mut model);
    client.receive_all(&mut stream, 5);
    let (_, answer, data) = &client.answers[0];
    assert!(data.is_empty());
    let mut results = results(answer, true);
    assert_eq!(results.status, nfsstat4::NFS4ERR_STALE);
    assert_eq!(
        results.done(nfs_opnum4::OP_GETFH),
        Err(Wrong::Answer),
        "it was PUTFH"
    );
    let wrong = results.take::<READ4resok>(nfs_opnum4::OP_READ).unwrap_err();
    assert_eq!(wrong.status(), Some(nfsstat4::NFS4ERR_STALE));
    assert_eq!(wrong.to_string(), "READ: NFS4ERR_STALE");
}

#[test]
fn refusals_by_rpc_are_the_answers_of_their_calls() {
    let denied = rejected_reply::AUTH_ERROR(auth_stat::AUTH_TOOWEAK);
    let garbage = accepted_body::default(accept_stat::GARBAGE_ARGS);
    let cases: [(&[u32], RpcRefused); 4] = [
        (&[1, 1, 5], RpcRefused::Denied(denied)),
        (&[0, 0, 0, 4], RpcRefused::Accepted(garbage)),
        (
            &[0, 0, 0],
            RpcRefused::Unreadable(wire::xdr::XdrError::Short),
        ),
        (
            &[7, 0, 0],
            RpcRefused::Unreadable(wire::xdr::XdrError::Value { what: "reply_stat" }),
        ),
    ];
    for (words, expected) in cases {
        for has_data in [false, true] {
            let mut client = Client::new(settings());
            match has_data {
                true => client.read(0, 100),
                false => client.getattr(),
            };
            let xid = xid(&mut client);
            client.receive_all(&mut answer_of(xid, words).into(), 3);
            assert_eq!(client.answers[0].1, Err(expected));
            assert_eq!(client.end.machine.in_flight(), 0);
        }
    }
}

#[test]
fn connection_ends_when_the_server_keeps_to_no_bounds() {
    let answer = |xid: u32, len: u32| {
        let mut words = vec![0, 0, 0, 0, 0, 0, 1, 25, 0, 0, len];
        words.extend(vec![0; 8]);
        answer_of(xid, &words)
    };
    let small = RpcClientSettings {
        answer_bytes_max: 96,
        ..settings()
    };
    let cases: [(Vec<u8>, RpcClientFatalError); 6] = [
        (answer(0, 9), RpcClientFatalError::Overrun),
        // The record ends within the data.
        (answer(0, 8)[..60].to_vec(), RpcClientFatalError::NoMessage),
        (vec![0x80, 0, 1, 0], RpcClientFatalError::LongRecord),
        (vec![0; 1025 * 4], RpcClientFatalError::Fragments),
        (
            vec![0x80, 0, 0, 4, 0, 0, 0, 0],
            RpcClientFatalError::NoMessage,
        ),
        (
            vec![0x80, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 3],
            RpcClientFatalError::NoMessage,
        ),
    ];
    for (index, (mut bytes, error)) in cases.into_iter().enumerate() {
        if index == 1 {
            bytes[3] = 56;
        }
        for step in [1, usize::MAX] {
            let mut client = Client::new(small.clone());
            client.read(0, 8);
            client.send();
            client.receive_all(&mut bytes.clone().into(), step);
            assert_eq!(client.fatal, Some(error), "case {index}");
            assert!(client.end.machine.is_finished());
            assert!(!client.end.machine.has_transmit());
        }
    }
}

#[test]
fn answers_to_calls_that_were_not_made_are_skipped() {
    let mut client = Client::new(settings());
    let tag = client.getattr();
    let xid = xid(&mut client);
    let mut stream = VecDeque::new();
    for other in [xid ^ 0x1_0000, xid ^ 1, u32::MAX] {
        stream.extend(answer_of(other, &[0, 0, 0, 0, 8, 8, 8]));
    }
    stream.extend(answer_of(xid, &[0, 0, 0, 0, 8]));
    stream.extend(answer_of(xid, &[0, 0, 0, 0, 9]));
    client.receive_all(&mut stream, 11);
    assert_eq!(client.answers.len(), 1);
    assert_eq!(client.answers[0].0, tag);
    assert_eq!(client.answers[0].1, Ok(vec![0, 0, 0, 8]));
}

#[test]
fn calls_under_way_are_bounded() {
    let mut client = Client::new(RpcClientSettings {
        calls_max: 2,
        ..settings()
    });
    let machine = &mut client.end.machine;
    assert!(machine.null().is_some() && machine.room() == 1 && machine.null().is_some());
    assert!(machine.null().is_none() && machine.room() == 0);
    let calls = cut(&mut client.send());
    let xid = u32::from_be_bytes(calls[1][..4].try_into().unwrap());
    client.receive_all(&mut answer_of(xid, &[0, 0, 0, 0]).into(), usize::MAX);
    assert_eq!((client.answers[0].0, client.end.machine.room()), (1, 1));
    assert_eq!(client.end.machine.null(), Some(1));
}

#[test]
fn a_lost_stream_costs_no_call_and_executes_none_twice() {
    for lost_at in [0, 1, 40, 150, 250, 600, usize::MAX] {
        let mut client = Client::new(settings());
        let mut slots = slots(4);
        let mut model = Model::default();
        let first = slots.take().unwrap();
        let remove = client.end.machine.compound(2, CallData::None, |compound| {
            compound.op(&nfs_argop4::OP_SEQUENCE(slots.sequence(first, true)));
            let target = REMOVE4args {
                target: Opaque(b"file"),
            };
            put_and(compound, &nfs_argop4::OP_REMOVE(target));
        });
        let read = client.read(7, 300);
        let write = client.write(11, &[6; 33]);
        // All of it is executed, and a part of the answers is lost.
        let mut stream = answers(&mut client, &mut model);
        let before = model.removed.len();
        stream.truncate(lost_at);
        client.receive_all(&mut stream, 64);
        let answered = client.answers.len();
        client.restart();
        assert_eq!(client.end.machine.in_flight(), 3 - answered);
        let mut stream = answers(&mut client, &mut model);
        client.receive_all(&mut stream, 64);
        assert_eq!(client.answers.len(), 3);
        assert_eq!((before, model.removed.len()), (1, 1), "executed once");
        assert_eq!(model.replays, u32::from(answered == 0));
        let by = |tag| {
            client
                .answers
                .iter()
                .find(|(found, ..)| *found == tag)
                .unwrap()
        };
        let (_, answer, _) = by(remove.unwrap());
        let mut results = results(answer, false);
        let sequence: SEQUENCE4resok = results.take(nfs_opnum4::OP_SEQUENCE).unwrap();
        assert_eq!(sequence.sr_sequenceid, 1);
        slots.end(first, &sequence);
        results.done(nfs_opnum4::OP_PUTFH).unwrap();
        assert!(results.take::<change_info4>(nfs_opnum4::OP_REMOVE).is_ok());
        assert_eq!(by(read).2, content(7, 300));
        assert_eq!(model.written[0], (11, vec![6; 33]));
        assert_eq!(by(write).1.as_ref().map(Vec::is_empty), Ok(false));
    }
}

#[test]
fn a_call_lost_on_its_way_is_sent_whole() {
    let mut client = Client::new(settings());
    client.write(0, &[1; 5000]);
    let whole = {
        let mut other = Client::new(settings());
        other.write(0, &[1; 5000]);
        other.send()
    };
    // One piece goes out, then the stream is lost.
    client.end.transmit(&mut VecDeque::new(), 1);
    client.restart();
    assert_eq!(client.send(), whole);
    client.restart();
    assert_eq!(client.send(), whole, "and again");
}

#[test]
fn templates_write_what_compounds_do() {
    let mut slots = slots(8);
    let client = Client::new(settings());
    let template = {
        let sequence = slots.sequence(Slot::default(), false);
        client
            .end
            .machine
            .template(2, CallData::Out(5), |compound| {
                compound.op(&nfs_argop4::OP_SEQUENCE(sequence));
                put_and(compound, &nfs_argop4::OP_WRITE(write_args(0, 5)));
            })
    };
    let mut both = Vec::new();
    for by_template in [true, false] {
        let mut client = Client::new(settings());
        let slot = Slot {
            slotid: 3,
            sequenceid: 77,
        };
        let machine = &mut client.end.machine;
        let tag = match by_template {
            true => machine.from_template(&template, slot, 0x1234_5678_9abc_def0),
            false => machine.compound(2, CallData::Out(5), |compound| {
                compound.op(&nfs_argop4::OP_SEQUENCE(slots.sequence(slot, false)));
                let args = write_args(0x1234_5678_9abc_def0, 5);
                put_and(compound, &nfs_argop4::OP_WRITE(args));
            }),
        };
        client.end.set_memory(tag.unwrap(), b"bytes".to_vec());
        both.push(client.send());
    }
    assert_eq!(both[0], both[1]);
    assert!(slots.take().is_some());
}

#[test]
fn buffers_are_used_again() {
    let mut client = Client::new(settings());
    let mut model = Model::default();
    for _ in 0..50 {
        client.read(0, 64);
        let mut stream = answers(&mut client, &mut model);
        client.receive_all(&mut stream, usize::MAX);
    }
    assert_eq!(client.end.machine.tags_max(), 1);
}

#[derive(Clone, Debug)]
enum Call {
    Read(u64, u32),
    Write(u64, Vec<u8>),
    Getattr,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let data = proptest::collection::vec(any::<u8>(), 1..600);
    let call = prop_oneof![
        (0..1u64 << 40, 1..20_000u32).prop_map(|(offset, len)| Call::Read(offset, len)),
        (any::<u64>(), data).prop_map(|(offset, data)| Call::Write(offset, data)),
        Just(Call::Getattr),
    ];
    proptest::collection::vec(call, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Answers are the same in any order and however they are cut.
    #[test]
    fn answers_come_to_their_calls(
        calls in calls(),
        seed in any::<u64>(),
        step in 1usize..3000,
        fragment in 64u32..5000,
        data_max in proptest::option::of(0u32..10_000),
    ) {
        let mut random = Random::new(seed);
        let mut client = Client::new(settings());
        let tags: Vec<Tag> = calls.iter().map(|call| match call {
            Call::Read(offset, len) => client.read(*offset, *len),
            Call::Write(offset, data) => client.write(*offset, data),
            Call::Getattr => client.getattr(),
        }).collect();
        let mut server = server();
        serve_all(&mut server, &mut client.send());
        prop_assert_eq!(server.calls.len(), calls.len());
        let mut model = Model { data_max, ..Model::default() };
        while !server.calls.is_empty() {
            let index = random.below(server.calls.len() as u64) as usize;
            model.execute(&mut server, index);
        }
        let mut stream = fragmented(sent(&mut server), || 32 + random.below(fragment.into()) as usize);
        client.receive_all(&mut stream, step);
        prop_assert_eq!(client.fatal, None);
        prop_assert_eq!(client.answers.len(), calls.len());
        for (tag, call) in tags.iter().zip(&calls) {
            let (_, answer, data) = client.answers.iter().find(|(found, ..)| found == tag).unwrap();
            let mut results = results(answer, matches!(call, Call::Read(..)));
            results.done(nfs_opnum4::OP_PUTFH).unwrap();
            match call {
                Call::Read(offset, len) => {
                    let len = (*len).min(data_max.unwrap_or(u32::MAX));
                    let read: READ4resok = results.take(nfs_opnum4::OP_READ).unwrap();
                    prop_assert_eq!(read.data.len, len);
                    prop_assert_eq!(data, &content(*offset, len));
                }
                Call::Write(offset, data) => {
                    let written: WRITE4resok = results.take(nfs_opnum4::OP_WRITE).unwrap();
                    prop_assert_eq!(written.count as usize, data.len());
                    prop_assert!(model.written.contains(&(*offset, data.clone())));
                    results.take::<fattr4<'_>>(nfs_opnum4::OP_GETATTR).unwrap();
                }
                Call::Getattr => {
                    results.take::<fattr4<'_>>(nfs_opnum4::OP_GETATTR).unwrap();
                }
            }
            prop_assert_eq!((results.left(), results.rest()), (0, &[][..]));
        }
        prop_assert_eq!(client.end.machine.in_flight(), 0);
    }

    /// Answers with some bytes changed cost the connection at most.
    #[test]
    fn broken_answers_cost_the_connection_at_most(
        calls in calls(),
        changes in proptest::collection::vec((any::<u32>(), any::<u8>()), 1..8),
        step in 1usize..400,
    ) {
        let mut client = Client::new(settings());
        for call in &calls {
            match call {
                Call::Read(offset, len) => client.read(*offset, *len),
                Call::Write(offset, data) => client.write(*offset, data),
                Call::Getattr => client.getattr(),
            };
        }
        let mut stream = answers(&mut client, &mut Model::default());
        for (at, to) in changes {
            let at = at as usize % stream.len();
            stream[at] = to;
        }
        client.receive_all(&mut stream, step);
        for (_, answer, _) in &client.answers {
            let Ok(answer) = answer else { continue };
            for is_placed in [true, false] {
                let Ok(mut results) = Results::read(answer, is_placed) else { continue };
                while results.any().is_some() {}
            }
        }
    }

    #[test]
    fn any_bytes_cost_the_connection_at_most(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..600),
        is_answer in any::<bool>(),
        step in 1usize..64,
    ) {
        let mut client = Client::new(settings());
        client.read(0, 100);
        let xid = xid(&mut client);
        if is_answer {
            bytes = [&xid.to_be_bytes()[..], &[0, 0, 0, 1], &bytes].concat();
            bytes = record(&bytes, || usize::MAX);
        }
        client.receive_all(&mut bytes.into(), step);
        let mut to = Vec::new();
        for (_, args) in &client.callbacks {
            Backchannel::new(SESSION, 1).answer(args, &mut to, |_, _| nfsstat4::NFS4_OK);
        }
    }
}
