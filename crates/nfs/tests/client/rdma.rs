//! A client whose messages go by RPC-over-RDMA: against the server's machine, and against
//! servers written by hand.

use std::sync::Arc;

use auth::gss::GssContext;
use doubles::gss::{FakeContext, SERVICES, token_of};
use iwarp::{CrcPolicy, DataPart, Qp, QpError, QpOp, QpSettings, Work};
use nfs::connection::RdmaSettings;
use nfs::gss::{Contexts, ContextsSettings};
use nfs::server::Secret;
use testkit::rpc_rdma::{Message, Segment};
use wire::iwarp::TerminateCode;
use wire::rpc_rdma::{RpcRdmaPrivateData, rpc_rdma_error, rpc_rdma_errvers};

use super::*;

/// Seconds since 1970 that no test comes to.
const LATER: u64 = 1 << 40;

/// A client and a server, with what is on its way between them.
struct World {
    client: Client,
    server: RpcDouble,
    model: Model,
    there: VecDeque<u8>,
    back: VecDeque<u8>,
    /// So many bytes are received at a time.
    step: usize,
    /// The most calls that the server had at a time.
    calls_max: usize,
}

fn by_rdma(settings: RpcClientSettings, crc: CrcPolicy) -> Client {
    let mut client = Client::new(settings);
    use_rdma(&mut client, crc);
    client
}

fn use_rdma(client: &mut Client, crc: CrcPolicy) {
    let rdma = RdmaClientSettings {
        crc,
        ..RdmaClientSettings::default()
    };
    client.end.machine.use_rdma(rdma, 5, 0);
}

fn with_crc(rdma: RdmaSettings, crc: CrcPolicy) -> RdmaSettings {
    RdmaSettings {
        stream: QpSettings { crc, ..rdma.stream },
        ..rdma
    }
}

fn served(rdma: RdmaSettings) -> Served {
    Served::new(ServedSettings::default(), 0).with_rdma(rdma, 4)
}

impl World {
    fn new(rdma: RdmaSettings, crc: CrcPolicy, step: usize) -> World {
        World::of(by_rdma(settings(), crc), RpcDouble::new(served(rdma)), step)
    }

    fn of(client: Client, server: RpcDouble, step: usize) -> World {
        World {
            client,
            server,
            model: Model::default(),
            there: VecDeque::new(),
            back: VecDeque::new(),
            step,
            calls_max: 0,
        }
    }

    /// Both ends go on until neither has anything to say.
    fn exchange(&mut self) {
        loop {
            let _ = self.client.end.machine.prepare();
            let mut is_quiet = true;
            while self.client.end.machine.has_transmit() {
                self.client.end.transmit(&mut self.there, 3);
                is_quiet = false;
            }
            while self.server.end.machine.has_transmit() {
                self.server.end.transmit(&mut self.back, 3);
                is_quiet = false;
            }
            is_quiet &= !self.server.receive(&mut self.there, self.step);
            is_quiet &= !self.client.receive(&mut self.back, self.step);
            self.calls_max = self.calls_max.max(self.server.calls.len());
            if is_quiet {
                return;
            }
        }
    }

    /// The same, and the server executes all that it has, in any order.
    fn serve(&mut self) {
        self.exchange();
        while !self.server.calls.is_empty() {
            let last = self.server.calls.len() - 1;
            self.model.execute(&mut self.server, last / 2);
            self.exchange();
        }
    }

    fn assert_good(&self) {
        assert_eq!((self.client.fatal, self.server.fatal), (None, None));
    }

    fn answer(&mut self, tag: Tag) -> Answered {
        let found = self.client.answers.iter().position(|(of, ..)| *of == tag);
        self.client.answers.remove(found.expect("an answer"))
    }
}

/// Lengths around those of a Send and of an FPDU.
const LENGTHS: [u32; 9] = [1, 3, 4, 1000, 4096, 4097, 65_535, 65_536, 300_001];

#[test]
fn reads_and_writes_of_any_length_arrive_in_any_pieces() {
    for crc in [CrcPolicy::Off, CrcPolicy::Require] {
        for (step, inline_bytes_max) in [(1, 4096), (61, 1024), (usize::MAX, 4096)] {
            let rdma = RdmaSettings {
                inline_bytes_max,
                ..RdmaSettings::default()
            };
            let mut world = World::new(with_crc(rdma, crc), crc, step);
            for len in LENGTHS {
                let (offset, data) = (u64::from(len) * 3, content(len.into(), len));
                let write = world.client.write(offset, &data);
                let read = world.client.read(offset, len);
                let getattr = world.client.getattr();
                world.serve();
                world.assert_good();
                assert_eq!(world.model.written.pop(), Some((offset, data)));
                assert_eq!(world.answer(read).2, content(offset, len), "{len}");
                assert!(world.answer(write).1.is_ok() && world.answer(getattr).1.is_ok());
            }
            assert!(world.client.answers.is_empty());
            assert_eq!(
                world.client.end.machine.has_mpa_crc(),
                crc == CrcPolicy::Require
            );
        }
    }
}

#[test]
fn data_goes_straight_to_and_from_its_memory() {
    let mut world = World::new(RdmaSettings::default(), CrcPolicy::Off, usize::MAX);
    let len = 200_001;
    for _ in 0..4 {
        world.client.read(0, len);
    }
    world.serve();
    world.assert_good();
    let end = &world.client.end;
    let all = 4 * u64::from(len);
    assert_eq!(end.direct_bytes + end.placed_bytes, all);
    assert!(end.placed_bytes < 2000, "{} were copied", end.placed_bytes);
    world.client.write(0, &content(0, len));
    world.serve();
    let end = &world.server.end;
    assert_eq!(end.direct_bytes + end.placed_bytes, u64::from(len));
    assert!(end.placed_bytes < 2000, "{} were copied", end.placed_bytes);
}

#[test]
fn short_reads_and_errors_say_what_has_come() {
    let mut world = World::new(RdmaSettings::default(), CrcPolicy::Off, usize::MAX);
    world.model.data_max = Some(70);
    let short = world.client.read(1, 5000);
    world.serve();
    assert_eq!(world.answer(short).2, content(1, 70));
    world.model.data_max = Some(0);
    let none = world.client.read(1, 5000);
    world.serve();
    let (_, answer, data) = world.answer(none);
    assert!(data.is_empty());
    let mut read = results(&answer, true);
    read.done(nfs_opnum4::OP_PUTFH).unwrap();
    let read: READ4resok = read.take(nfs_opnum4::OP_READ).unwrap();
    assert_eq!(read.data.len, 0);
    world.model.status = Some(nfsstat4::NFS4ERR_IO);
    let failed = world.client.read(1, 5000);
    let write = world.client.write(1, &[1; 5000]);
    world.serve();
    for tag in [failed, write] {
        let (_, answer, data) = world.answer(tag);
        assert!(data.is_empty());
        assert_eq!(results(&answer, true).status, nfsstat4::NFS4ERR_IO);
    }
    world.assert_good();
}

#[test]
fn calls_and_answers_that_no_send_holds_go_in_chunks() {
    for (inline_bytes_max, crc) in [(1024, CrcPolicy::Require), (4096, CrcPolicy::Off)] {
        for step in [1, 50, usize::MAX] {
            let rdma = RdmaSettings {
                inline_bytes_max,
                ..RdmaSettings::default()
            };
            let mut world = World::new(with_crc(rdma, crc), crc, step);
            let name = [b'n'; 255];
            for (names, len) in [(3, 500), (14, 3900), (15, 4096), (61, 100_001)] {
                let remove = REMOVE4args {
                    target: Opaque(&name),
                };
                let tag = world.client.end.machine.compound(1, CallData::None, |to| {
                    put_and(to, &read_op(9, len));
                    (0..names).for_each(|_| {
                        to.op(&nfs_argop4::OP_REMOVE(remove));
                    });
                });
                world.serve();
                world.assert_good();
                assert_eq!(world.model.removed.len(), names);
                assert!(world.model.removed.drain(..).all(|removed| removed == name));
                let (_, answer, _) = world.answer(tag.expect("room"));
                let mut results = results(&answer, false);
                results.done(nfs_opnum4::OP_PUTFH).unwrap();
                let read: READ4resok = results.take(nfs_opnum4::OP_READ).unwrap();
                assert_eq!(results.data(read.data.len), Ok(&content(9, len)[..]));
                for _ in 0..names {
                    let removed = results.take::<change_info4>(nfs_opnum4::OP_REMOVE);
                    assert!(removed.is_ok());
                }
                assert!(results.rest().is_empty());
            }
        }
    }
}

#[test]
fn no_more_calls_are_under_way_than_the_server_takes() {
    for credits in [1, 3, 64] {
        let rdma = RdmaSettings {
            credits,
            ..RdmaSettings::default()
        };
        let mut world = World::new(rdma, CrcPolicy::Off, usize::MAX);
        let all = settings().calls_max;
        for _ in 0..all {
            world.client.getattr();
        }
        world.exchange();
        assert_eq!(world.server.calls.len(), 1, "until the first answer");
        world.serve();
        world.assert_good();
        assert_eq!(world.client.answers.len(), usize::from(all));
        assert_eq!(world.calls_max, usize::from(credits.min(all - 1)));
    }
}

#[test]
fn callbacks_are_answered_while_calls_wait_for_credits() {
    let rdma = RdmaSettings {
        credits: 1,
        ..RdmaSettings::default()
    };
    let mut world = World::new(rdma, CrcPolicy::Require, 7);
    world.client.getattr();
    world.client.write(9, &[4; 5000]);
    world.exchange();
    assert_eq!(world.server.calls.len(), 1, "another waits");
    let machine = &mut world.server.end.machine;
    let known = machine.call_back((PROGRAM, 1, 0), |_| {});
    let compound = machine.call_back((PROGRAM, 1, 1), |to| 5u32.encode(to));
    world.exchange();
    assert_eq!(world.server.answers[0].0, known.expect("room"));
    let (xid, args) = world.client.callbacks.pop().expect("a callback");
    assert_eq!((xid, &args[..4]), (compound.unwrap(), &[0, 0, 0, 5][..]));
    let answer = |to: &mut Vec<u8>| to.extend([1; 40]);
    world.client.end.machine.answer_callback(xid, answer);
    world.exchange();
    assert_eq!(world.server.answers.len(), 2);
    assert!(world.server.answers[1].1.ends_with(&[1; 40]));
    assert_eq!(world.server.calls.len(), 1, "the call still waits");
    world.serve();
    world.assert_good();
    assert_eq!(world.model.written, [(9, vec![4; 5000])]);
}

/// As over TCP: whatever was lost, each call is answered once.
#[test]
fn lost_stream_costs_no_call_and_executes_none_twice() {
    for lost_at in (0..900).step_by(50) {
        let mut world = World::new(RdmaSettings::default(), CrcPolicy::Require, usize::MAX);
        let mut slots = slots(4);
        let slot = slots.take().unwrap();
        let sequence = nfs_argop4::OP_SEQUENCE(slots.sequence(slot, true));
        let remove = world.client.end.machine.compound(2, CallData::None, |to| {
            let target = REMOVE4args {
                target: Opaque(b"file"),
            };
            to.op(&sequence);
            put_and(to, &nfs_argop4::OP_REMOVE(target));
        });
        let read = world.client.read(7, 3000);
        let write = world.client.write(11, &[6; 4999]);
        // Answers are lost from a byte on.
        let mut left = lost_at;
        while left > 0 {
            while world.client.end.machine.has_transmit() {
                world.client.end.transmit(&mut world.there, 3);
            }
            while world.server.receive(&mut world.there, usize::MAX) {}
            while !world.server.calls.is_empty() {
                world.model.execute(&mut world.server, 0);
            }
            while world.server.end.machine.has_transmit() {
                world.server.end.transmit(&mut world.back, 3);
            }
            if world.back.is_empty() {
                break;
            }
            world.back.truncate(left);
            left -= world.back.len();
            while world.client.receive(&mut world.back, usize::MAX) {}
        }
        world.client.restart();
        use_rdma(&mut world.client, CrcPolicy::Require);
        world.server = RpcDouble::new(served(RdmaSettings::default()));
        (world.there, world.back) = (VecDeque::new(), VecDeque::new());
        world.serve();
        world.assert_good();
        assert_eq!(world.client.answers.len(), 3, "{lost_at}");
        assert_eq!(world.model.removed.len(), 1, "executed once");
        assert!(world.answer(remove.unwrap()).1.is_ok());
        assert_eq!(world.answer(read).2, content(7, 3000));
        assert!(world.answer(write).1.is_ok());
        let written = world.model.written.iter();
        assert!(written.clone().all(|one| *one == (11, vec![6; 4999])));
        assert!(written.count() >= 1);
    }
}

#[test]
fn security_contexts_are_made_and_used_by_rdma() {
    for service in SERVICES {
        for step in [37, usize::MAX] {
            let contexts = Contexts::new(ContextsSettings::default(), Secret([7; 16]));
            let machine = served(RdmaSettings::default());
            let server = RpcDouble::with_contexts(machine, Arc::new(contexts));
            let mut client = Client::new(settings());
            client.end.machine.secure(service);
            use_rdma(&mut client, CrcPolicy::Off);
            let mut world = World::of(client, server, step);
            let data = content(5, 70_001);
            let write = world.client.write(5, &data);
            let read = world.client.read(8192, 70_001);
            assert!(!world.client.end.machine.takes_calls());
            let name = "user7@TEST";
            let machine = &mut world.client.end.machine;
            machine.send_token(&token_of(name, LATER));
            world.exchange();
            let answer = world.client.tokens.pop().expect("an answer");
            let answer = answer.expect("it was let in");
            let context: Box<dyn GssContext> = Box::new(FakeContext::new(name, LATER));
            let machine = &mut world.client.end.machine;
            machine.establish(context, &answer).expect("the server's");
            assert!(world.client.end.machine.takes_calls());
            world.serve();
            world.assert_good();
            assert_eq!(world.model.written, [(5, data)], "{service:?}");
            let (_, answer, found) = world.answer(read);
            assert!(answer.is_ok());
            assert_eq!(found, content(8192, 70_001), "{service:?}");
            assert!(world.answer(write).1.is_ok());
        }
    }
}

/// A server by hand.
struct Peer {
    client: Client,
    end: End<Qp>,
    there: VecDeque<u8>,
    back: VecDeque<u8>,
    /// What the client sent, and how its stream ended.
    sent: VecDeque<Message>,
    ended: Option<QpError>,
}

/// The tag of what a server sends.
const SEND: Tag = 0;

impl Peer {
    fn new(private_data: &[u8]) -> Peer {
        let stream = QpSettings {
            head_max: u16::MAX,
            send_max: u16::MAX.into(),
            ..QpSettings::default()
        };
        let mut end = End::new(Qp::responder(stream, 1, 0));
        end.machine.post_receives(1000);
        let mut peer = Peer {
            client: by_rdma(settings(), CrcPolicy::Require),
            end,
            there: VecDeque::new(),
            back: VecDeque::new(),
            sent: VecDeque::new(),
            ended: None,
        };
        peer.exchange();
        assert_eq!(
            RpcRdmaPrivateData::decode(peer.end.machine.private_data()),
            Some(RpcRdmaPrivateData {
                takes_invalidate: true,
                send_bytes_max: 4096,
                receive_bytes_max: 4096,
            })
        );
        peer.end.machine.accept(private_data);
        peer.exchange();
        peer
    }

    fn exchange(&mut self) {
        loop {
            let mut is_quiet = true;
            while self.client.end.machine.has_transmit() {
                self.client.end.transmit(&mut self.there, 3);
                is_quiet = false;
            }
            while self.end.machine.has_transmit() {
                self.end.transmit(&mut self.back, 3);
                is_quiet = false;
            }
            is_quiet &= self.end.receive(&mut self.there, usize::MAX) == 0;
            while let Some(op) = self.end.next_op() {
                match op {
                    QpOp::Requested => {}
                    QpOp::Received(_) => {
                        let message = Message::decode(self.end.machine.head());
                        self.sent.push_back(message.expect("no error"));
                    }
                    QpOp::Fatal(why) => self.ended = Some(why),
                    other => panic!("{other:?}"),
                }
            }
            is_quiet &= !self.client.receive(&mut self.back, usize::MAX);
            if is_quiet {
                return;
            }
        }
    }

    /// What the client sent last.
    fn call(&mut self) -> Message {
        self.exchange();
        let call = self.sent.pop_front().expect("a call");
        assert!(self.sent.is_empty());
        call
    }

    fn send(&mut self, bytes: Vec<u8>, invalidate: Option<u32>) {
        let len = bytes.len() as u32;
        self.end.set_memory(SEND, bytes);
        self.end.machine.post(Work::Send {
            head: &[],
            body: DataPart {
                tag: SEND,
                offset: 0,
                len,
            },
            invalidate,
            is_solicited: false,
            release: None,
        });
        self.exchange();
    }

    /// Writes so many bytes to where a segment says.
    fn write(&mut self, to: Segment, len: u32) {
        self.end.set_memory(SEND + 1, vec![0x77; len as usize]);
        self.end.machine.post(Work::Write {
            data: DataPart {
                tag: SEND + 1,
                offset: 0,
                len,
            },
            stag: to.handle,
            to: to.offset,
            release: None,
        });
        self.exchange();
    }
}

/// The answer to a call by records, without its mark.
fn record_of(xid: u32, words: &[u32]) -> Vec<u8> {
    answer_of(xid, words)[4..].to_vec()
}

/// What a READ of so many bytes behind PUTFH is answered.
fn read_answer(xid: u32, len: u32) -> Vec<u8> {
    let read = [0, 0, 0, 0, 0, 0, 2, 22, 0, 25, 0, 1, len];
    record_of(xid, &read)
}

#[test]
fn headers_lie_as_the_standard_has_them() {
    let mut peer = Peer::new(&[]);
    peer.client.getattr();
    let plain = peer.call();
    assert_eq!((plain.is_long, plain.credits), (false, 16));
    assert!(plain.reads.is_empty() && plain.writes.is_empty());
    let reply = plain.reply.expect("room for an answer of any length");
    assert_eq!(
        (reply.len(), reply[0].length),
        (1, settings().answer_bytes_max)
    );
    assert_eq!(plain.body[..4], plain.xid.to_be_bytes());
    peer.send(
        Message::short(plain.xid, 3, record_of(plain.xid, &[0; 4])).encode(),
        None,
    );
    assert_eq!(peer.client.answers.len(), 1);

    peer.client.write(0, &[1; 10]);
    let mut write = peer.call();
    assert!(write.writes.is_empty());
    let [(position, segment)] = write.reads[..] else {
        panic!("one chunk to read");
    };
    // GETATTR stands behind the data, of which there is nothing in the Send.
    let behind = write.body.split_off(position as usize);
    assert_eq!((segment.length, &behind[..4]), (10, &[0, 0, 0, 9][..]));
    assert_eq!(write.body[write.body.len() - 4..], [0, 0, 0, 10]);

    peer.client.read(0, 99);
    let read = peer.call();
    assert!(read.reads.is_empty());
    let [chunk] = &read.writes[..] else {
        panic!("one chunk to write to");
    };
    assert_eq!((chunk.len(), chunk[0].length), (1, 99));
    assert_eq!(peer.client.fatal, None);
}

#[test]
fn server_that_says_nothing_of_itself_gets_sends_of_1024_bytes() {
    let longest = |private_data: &[u8]| {
        let mut peer = Peer::new(private_data);
        let mut longest = 0;
        for ops in 1..250 {
            let tag = peer.client.end.machine.compound(1, CallData::None, |to| {
                put_and(to, &getattr());
                (1..ops).for_each(|_| {
                    to.op(&getattr());
                });
            });
            assert!(tag.is_some());
            let call = peer.call();
            if call.is_long {
                assert!(call.body.is_empty());
                let [(0, segment)] = call.reads[..] else {
                    panic!("all of the call");
                };
                assert!(segment.length as usize + 72 > longest);
            } else {
                assert!(call.reads.is_empty());
                longest = longest.max(call.encode().len());
            }
            peer.send(
                Message::short(call.xid, 3, record_of(call.xid, &[0; 4])).encode(),
                None,
            );
        }
        assert_eq!(peer.client.fatal, None);
        longest
    };
    let none = longest(&[]);
    assert!((1008..=1024).contains(&none), "{none}");
    let data = RpcRdmaPrivateData {
        takes_invalidate: false,
        send_bytes_max: 1024,
        receive_bytes_max: 2048,
    };
    let some = longest(&data.encode());
    assert!((2032..=2048).contains(&some), "{some}");
}

#[test]
fn credits_of_an_answer_hold_and_are_never_none() {
    let mut peer = Peer::new(&[]);
    for _ in 0..8 {
        peer.client.getattr();
    }
    let mut waiting: VecDeque<Message> = VecDeque::new();
    for (credits, expected) in [(3, 3), (0, 1), (1, 1), (2, 2), (u32::MAX, 8)] {
        peer.exchange();
        waiting.extend(peer.sent.drain(..));
        let call = waiting.pop_front().expect("a call");
        let answer = record_of(call.xid, &[0; 4]);
        peer.send(Message::short(call.xid, credits, answer).encode(), None);
        while waiting.len() + peer.sent.len() < expected && peer.client.end.machine.room() > 0 {
            peer.client.getattr();
            peer.exchange();
        }
        waiting.extend(peer.sent.drain(..));
        let most = expected.max(waiting.len().min(2));
        assert!(waiting.len() <= most, "{credits}: {}", waiting.len());
        assert!(!waiting.is_empty());
    }
    assert_eq!(peer.client.fatal, None);
}

#[test]
fn handles_are_worth_nothing_when_their_call_is_answered() {
    for invalidates in [false, true] {
        let mut peer = Peer::new(&[]);
        let tag = peer.client.read(0, 100);
        let call = peer.call();
        let segment = call.writes[0][0];
        peer.write(segment, 100);
        let used = Segment {
            length: 100,
            ..segment
        };
        let answer = Message {
            writes: vec![vec![used]],
            ..Message::short(call.xid, 4, read_answer(call.xid, 100))
        };
        peer.send(answer.encode(), invalidates.then_some(segment.handle));
        let (of, answer, data) = peer.client.answers.pop().expect("an answer");
        assert!(of == tag && answer.is_ok());
        assert_eq!(data, [0x77; 100]);
        peer.write(segment, 1);
        let why = QpError::Sent(TerminateCode::SINK_STAG);
        assert_eq!(peer.client.fatal, Some(RpcClientFatalError::Rdma(why)));
        assert_eq!(
            peer.ended,
            Some(QpError::Received(TerminateCode::SINK_STAG))
        );
    }
}

#[test]
fn calls_that_the_server_cannot_use_are_refused() {
    let range = rpc_rdma_errvers {
        rdma_vers_low: 2,
        rdma_vers_high: 3,
    };
    for (error, words) in [
        (rpc_rdma_error::ERR_CHUNK, "ERR_CHUNK"),
        (rpc_rdma_error::ERR_VERS(range), "versions 2 to 3"),
    ] {
        let mut peer = Peer::new(&[]);
        let tag = peer.client.read(0, 100);
        let call = peer.call();
        let mut bytes = Vec::new();
        [call.xid, 1, 5, 4]
            .iter()
            .for_each(|word| word.encode(&mut bytes));
        error.encode(&mut bytes);
        peer.send(bytes.clone(), None);
        // Of a call that is none it says nothing.
        peer.send(bytes, None);
        let why = RpcRefused::Header(error);
        assert_eq!(peer.client.answers, [(tag, Err(why), Vec::new())]);
        assert!(why.to_string().contains(words), "{why}");
        assert_eq!(peer.client.end.machine.in_flight(), 0);
        let next = peer.client.getattr();
        let call = peer.call();
        peer.send(
            Message::short(call.xid, 3, record_of(call.xid, &[0; 4])).encode(),
            None,
        );
        assert_eq!(peer.client.answers[1].0, next, "others go on");
    }
}

/// What a server does wrong to a READ of 100 bytes and a GETATTR, each with its call.
type Mistake = fn(&mut Peer, Message, Message);

#[test]
fn mistakes_of_a_server_end_the_connection_and_are_named() {
    use RpcClientFatalError::{Chunk, Header, Invalidation, NoMessage};
    let cases: Vec<(&str, Mistake, RpcClientFatalError)> = vec![
        (
            "says that more was written than was",
            |peer, read, _| {
                let segment = read.writes[0][0];
                peer.write(segment, 99);
                let message = Message {
                    writes: vec![vec![segment]],
                    ..Message::short(read.xid, 4, read_answer(read.xid, 100))
                };
                peer.send(message.encode(), None);
            },
            Chunk,
        ),
        (
            "has data among the bytes of an answer",
            |peer, read, _| {
                let mut body = read_answer(read.xid, 8);
                body.extend([1; 8]);
                peer.send(Message::short(read.xid, 4, body).encode(), None);
            },
            Chunk,
        ),
        (
            "answers with more data than was asked for",
            |peer, read, _| {
                let segment = read.writes[0][0];
                peer.write(segment, 100);
                peer.write(segment, 100);
                let used = Segment {
                    length: 101,
                    ..segment
                };
                let message = Message {
                    writes: vec![vec![used]],
                    ..Message::short(read.xid, 4, read_answer(read.xid, 101))
                };
                peer.send(message.encode(), None);
            },
            Chunk,
        ),
        (
            "answers in the chunk, of which it has written less",
            |peer, _, getattr| {
                let segment = getattr.reply.as_ref().expect("room")[0];
                peer.write(segment, 23);
                let used = Segment {
                    length: 24,
                    ..segment
                };
                let message = Message {
                    xid: getattr.xid,
                    credits: 4,
                    is_long: true,
                    reply: Some(vec![used]),
                    ..Message::default()
                };
                peer.send(message.encode(), None);
            },
            Chunk,
        ),
        (
            "answers a long call without a chunk",
            |peer, _, getattr| {
                let message = Message {
                    xid: getattr.xid,
                    credits: 4,
                    is_long: true,
                    ..Message::default()
                };
                peer.send(message.encode(), None);
            },
            NoMessage,
        ),
        (
            "answers another call in the body",
            |peer, read, getattr| {
                let body = record_of(read.xid, &[0; 4]);
                peer.send(Message::short(getattr.xid, 4, body).encode(), None);
            },
            NoMessage,
        ),
        (
            "sends no header",
            |peer, _, _| peer.send(vec![0; 12], None),
            Header,
        ),
        (
            "speaks version 2",
            |peer, read, _| {
                let mut bytes = Message::short(read.xid, 4, Vec::new()).encode();
                bytes[7] = 2;
                peer.send(bytes, None);
            },
            Header,
        ),
        (
            "would have something read",
            |peer, read, _| {
                let message = Message {
                    reads: vec![(0, read.writes[0][0])],
                    ..Message::short(read.xid, 4, read_answer(read.xid, 0))
                };
                peer.send(message.encode(), None);
            },
            Header,
        ),
        (
            "invalidates the handle of another call",
            |peer, read, getattr| {
                let handle = getattr.reply.as_ref().expect("room")[0].handle;
                let answer = Message::short(read.xid, 4, read_answer(read.xid, 0));
                peer.send(answer.encode(), Some(handle));
            },
            Invalidation(0),
        ),
    ];
    for (name, mistake, why) in cases {
        let mut peer = Peer::new(&[]);
        // So that two calls may be under way.
        peer.client.getattr();
        let first = peer.call();
        peer.send(
            Message::short(first.xid, 9, record_of(first.xid, &[0; 4])).encode(),
            None,
        );
        peer.client.read(0, 100);
        let read = peer.call();
        peer.client.getattr();
        let getattr = peer.call();
        let handle = getattr.reply.as_ref().expect("room")[0].handle;
        let before = peer.client.answers.len();
        mistake(&mut peer, read, getattr);
        let why = match why {
            Invalidation(_) => Invalidation(handle),
            why => why,
        };
        assert_eq!(peer.client.fatal, Some(why), "{name}");
        assert_eq!(peer.client.answers.len(), before, "{name}");
        assert!(peer.client.end.machine.is_finished());
        let code = match why {
            Invalidation(_) => TerminateCode::CANNOT_INVALIDATE,
            _ => TerminateCode::UNSPECIFIED,
        };
        assert_eq!(peer.ended, Some(QpError::Received(code)), "{name}");
    }
}

#[test]
fn server_that_rejects_the_connection_is_named() {
    let mut client = by_rdma(settings(), CrcPolicy::Off);
    client.getattr();
    let mut end = End::new(Qp::responder(QpSettings::default(), 1, 0));
    let mut stream = client.send();
    while end.receive(&mut stream, usize::MAX) > 0 {}
    assert_eq!(end.next_op(), Some(QpOp::Requested));
    end.machine.reject(&[]);
    end.transmit(&mut stream, 1);
    client.receive_all(&mut stream, usize::MAX);
    assert_eq!(client.fatal, Some(RpcClientFatalError::Rejected));
    assert!(client.send().is_empty());
}

/// Whatever a server sends and writes, it costs the connection at most; what it may not write
/// stays as it is.
#[test]
fn any_server_costs_the_connection_at_most() {
    let (mut fatal, mut answered) = (0, 0);
    for seed in 0..4000 {
        let mut random = Random::new(seed);
        let mut peer = Peer::new(&[]);
        let mut calls: Vec<Message> = Vec::new();
        let mut written = Vec::new();
        for _ in 0..12 {
            match random.below(3) {
                0 => {
                    peer.client.getattr();
                }
                1 => {
                    peer.client.read(0, 200);
                }
                _ => written.push(peer.client.write(0, &[5; 300])),
            }
            peer.exchange();
            calls.extend(peer.sent.drain(..));
            if peer.client.fatal.is_some() || calls.is_empty() {
                break;
            }
            let call = calls[random.below(calls.len() as u64) as usize].clone();
            let segments = call.writes.iter().flatten();
            let segments = segments.chain(call.reply.iter().flatten());
            let segments: Vec<Segment> = segments.copied().collect();
            if let Some(to) = segments.first()
                && random.one_in(2)
            {
                peer.write(*to, random.below(u64::from(to.length.min(400)) + 1) as u32);
            }
            let mut answer = Message {
                xid: call.xid,
                credits: random.below(5) as u32,
                is_long: random.one_in(6),
                writes: call.writes.clone(),
                reply: call.reply.clone(),
                body: read_answer(call.xid, random.below(210) as u32),
                ..Message::default()
            };
            for segment in answer.writes.iter_mut().flatten() {
                segment.length = random.below(210) as u32;
            }
            for segment in answer.reply.iter_mut().flatten() {
                segment.length = random.below(420) as u32;
            }
            let mut bytes = answer.encode();
            if random.one_in(3) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << random.below(8);
            }
            if random.one_in(8) {
                bytes.truncate(random.below(bytes.len() as u64) as usize);
            }
            let invalidate = segments.first().filter(|_| random.one_in(4));
            peer.send(bytes, invalidate.map(|segment| segment.handle));
        }
        fatal += u32::from(peer.client.fatal.is_some());
        answered += peer.client.answers.len();
        for tag in written {
            let memory = &peer.client.end.memory[usize::from(tag)];
            let is_in_use = memory.len() == 300;
            assert!(!is_in_use || *memory == [5; 300], "seed {seed}");
        }
    }
    assert!(fatal > 1000 && answered > 1000, "{fatal}, {answered}");
}
