//! A server of nothing: its calls are kept until a test answers them.

use std::collections::VecDeque;
use std::sync::Arc;

use machine::{Machine as _, Tag};
use nfs::connection::{Connection, RpcServerFatalError, ServerOp, Stop};
use nfs::gss::Contexts;
use testkit::End;
use wire::xdr::Encode;

use crate::gss::answer_init;

/// A call as a server saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenCall {
    /// Its transaction identifier.
    pub xid: u32,
    /// Its arguments.
    pub args: Vec<u8>,
    /// Operations that were whole, and why no more.
    pub ops: (u32, Stop),
    /// The data of its WRITEs.
    pub data: Vec<Option<Vec<u8>>>,
}

/// The answer to a call of the server's own, which the machine has no longer.
pub(crate) fn taken_answer(machine: &mut Connection, tag: Tag) -> Vec<u8> {
    let answer = machine.answer(tag).to_vec();
    machine.forget_answer(tag);
    answer
}

/// A connection whose calls are kept until a test answers them.
#[derive(Debug)]
pub struct RpcDouble {
    /// The machine with its memory.
    pub end: End<Connection>,
    /// Calls that arrived and are not answered.
    pub calls: Vec<(Tag, SeenCall)>,
    /// Answers to the server's own calls.
    pub answers: Vec<(u32, Vec<u8>)>,
    /// Where the data of WRITEs was said to go: offset, and the file handle.
    pub places: Vec<(u64, Option<Vec<u8>>)>,
    /// Memory that was asked for and not given.
    pub starved: Option<(Tag, u32)>,
    /// The same for arguments.
    pub starved_args: Option<(Tag, u32)>,
    /// Bytes of all memory that was asked for arguments.
    pub args_bytes_asked: u64,
    /// Give no memory by itself.
    pub starves: bool,
    /// TLS was announced.
    pub starts_tls: bool,
    /// How it ended.
    pub fatal: Option<RpcServerFatalError>,
    contexts: Option<Arc<Contexts>>,
}

impl RpcDouble {
    /// On this machine.
    pub fn new(machine: Connection) -> RpcDouble {
        RpcDouble {
            end: End::new(machine),
            calls: Vec::new(),
            answers: Vec::new(),
            places: Vec::new(),
            starved: None,
            starved_args: None,
            args_bytes_asked: 0,
            starves: false,
            starts_tls: false,
            fatal: None,
            contexts: None,
        }
    }

    /// The same, with these contexts.
    pub fn with_contexts(machine: Connection, contexts: Arc<Contexts>) -> RpcDouble {
        RpcDouble {
            contexts: Some(contexts.clone()),
            ..RpcDouble::new(machine.with_contexts(contexts))
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
                ServerOp::Prepare {
                    call,
                    tag,
                    offset,
                    len,
                    ..
                } => {
                    let handle = self.end.machine.write_handle(call, tag);
                    self.places.push((offset, handle.map(<[u8]>::to_vec)));
                    self.starved = Some((tag, len));
                }
                ServerOp::PrepareArgs { tag, bytes, .. } => {
                    self.args_bytes_asked += u64::from(bytes);
                    self.starved_args = Some((tag, bytes));
                }
                ServerOp::Place {
                    tag,
                    offset,
                    at,
                    len,
                } => {
                    let bytes = self.end.machine.unwrapped(at, len);
                    let offset = offset as usize;
                    self.end.memory[usize::from(tag)][offset..offset + bytes.len()]
                        .copy_from_slice(bytes);
                }
                ServerOp::Init { tag } => {
                    let at = (1, self.end.now);
                    answer_init(&mut self.end.machine, tag, self.contexts.as_deref(), at);
                }
                ServerOp::Call { tag } => self.see(tag),
                ServerOp::Answer { tag, xid } => {
                    let bytes = taken_answer(&mut self.end.machine, tag);
                    self.answers.push((xid, bytes));
                }
                ServerOp::StartTls => self.starts_tls = true,
                ServerOp::Fatal(error) => self.fatal = Some(error),
            }
            if !self.starves {
                self.feed(true);
            }
        }
    }

    /// Gives the memory that was asked for, or none.
    pub fn feed(&mut self, gives: bool) {
        // What comes by RDMA is not held back.
        let holds_back = !self.end.machine.is_rdma();
        let args = self.starved_args.take().map(|(tag, _)| (tag, None));
        let data = self.starved.take().map(|(tag, len)| (tag, Some(len)));
        for (tag, data_len) in args.into_iter().chain(data) {
            assert_eq!(self.end.machine.is_blocked_on(tag), holds_back);
            if !gives {
                self.end.machine.refuse(tag);
                continue;
            }
            if let Some(len) = data_len {
                self.end.set_memory(tag, vec![0xee; len as usize]);
            }
            self.end.machine.prepared(tag);
        }
    }

    fn see(&mut self, tag: Tag) {
        let call = self.end.machine.call(tag);
        let data = |tag: &Option<Tag>| tag.map(|tag| self.end.memory[usize::from(tag)].clone());
        let seen = SeenCall {
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
            reply.data_item(bytes.len() as u32);
            reply.payload(data, 0, bytes.len() as u32);
        }
        self.send(tag);
    }

    /// Sends the answer to a call; payload goes among its bytes where it must.
    pub fn send(&mut self, tag: Tag) {
        let End {
            machine, memory, ..
        } = &mut self.end;
        if machine.wants_gathered(tag) {
            machine.gather_payload(tag, |tag, offset, len, to| {
                let (offset, len) = (offset as usize, len as usize);
                to.extend_from_slice(&memory[usize::from(tag)][offset..offset + len]);
            });
        }
        self.end.machine.send(tag);
    }
}
