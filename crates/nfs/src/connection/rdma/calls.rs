//! Messages of the client: from Sends and chunks to calls that are walked.

use iwarp::{DataPart, OWN_BYTES};
use machine::{Step, Tag};
use wire::rpc::{accept_stat, msg_type};
use wire::rpc_rdma::{RPC_RDMA_VERSION, rdma_body, rdma_proc, rpc_rdma_error, rpc_rdma_errvers};
use wire::xdr::{Decode, Reader};

use super::Rdma;
use crate::connection::chunks::{self, AwaitedData, AwaitedMemory, CheckedLists};
use crate::connection::reply::Refusal;
use crate::connection::{Connection, ServerOp, scan};
use crate::rdma::HEADER_BYTES;

/// What a Send is.
#[derive(Debug)]
enum Message {
    /// Nothing that is answered.
    Nothing,
    /// A header that cannot be used, of this transaction and version.
    Wrong(u32, u32, rpc_rdma_error),
    /// The answer to a callback: where it begins, and how many callbacks the client takes.
    Answer(usize, u32),
    /// A call, whose bytes begin there.
    Call {
        xid: u32,
        at: usize,
        lists: CheckedLists,
    },
}

/// Bytes of the fields that all headers have.
const FIXED_BYTES: usize = 16;

/// Looks at the header of a Send (RFC 8166, sections 4.2 and 4.5). What has to be read for a
/// call is no more than `read_bytes_max`.
fn message(send: &[u8], read_bytes_max: u32) -> Message {
    let word = |index: usize| scan::word(send, index * size_of::<u32>());
    let fixed = (word(0), word(1), word(2), word(3));
    let (Some(xid), Some(version), Some(credits), Some(proc)) = fixed else {
        return Message::Nothing;
    };
    if send.len() < HEADER_BYTES || proc == rdma_proc::RDMA_ERROR as u32 {
        return Message::Nothing;
    }
    if version != RPC_RDMA_VERSION {
        let only = rpc_rdma_errvers {
            rdma_vers_low: RPC_RDMA_VERSION,
            rdma_vers_high: RPC_RDMA_VERSION,
        };
        return Message::Wrong(xid, version, rpc_rdma_error::ERR_VERS(only));
    }
    let wrong = Message::Wrong(xid, version, rpc_rdma_error::ERR_CHUNK);
    let from = &mut Reader::new(&send[FIXED_BYTES - size_of::<u32>()..]);
    let (lists, is_long) = match rdma_body::decode(from) {
        Ok(rdma_body::RDMA_MSG(lists)) => (lists, false),
        Ok(rdma_body::RDMA_NOMSG(lists)) => (lists, true),
        Ok(rdma_body::RDMA_DONE | rdma_body::RDMA_ERROR(_)) => return Message::Nothing,
        Err(_) => return wrong,
    };
    let at = send.len() - from.rest().len();
    let body = from.rest();
    if !is_long && scan::word(body, size_of::<u32>()) == Some(msg_type::REPLY as u32) {
        let is_right = at == HEADER_BYTES && scan::word(body, 0) == Some(xid);
        return match is_right {
            true => Message::Answer(at, credits),
            false => Message::Nothing,
        };
    }
    let has_call = lists.rdma_reads.iter().any(|read| read.position == 0);
    let is_right = match is_long {
        true => has_call,
        false => !has_call && scan::word(body, 0) == Some(xid),
    };
    match chunks::check(&lists, read_bytes_max).filter(|_| is_right) {
        Some(lists) => Message::Call { xid, at, lists },
        None => wrong,
    }
}

impl Connection {
    /// The next step that messages allow which are here.
    pub(super) fn next_of_calls(&mut self) -> Option<Step<ServerOp>> {
        loop {
            if self.inbound.is_unwrapped() {
                if let Some(step) = self.walk_unwrapped() {
                    return Some(step);
                }
                // One that was protected is opened now, and walked once more.
                if self.inbound.is_unwrapped() && !self.inbound.is_blocked() {
                    continue;
                }
            }
            match self.begin_next()? {
                None => {}
                step => return step,
            }
        }
    }

    /// Whether [`Connection::next_of_calls`] may come to something.
    pub(in crate::connection) fn has_calls(&self, rdma: &Rdma) -> bool {
        match self.inbound.is_unwrapped() {
            true => !self.inbound.is_blocked() || !rdma.whole.is_empty(),
            false => {
                !rdma.whole.is_empty()
                    || self.may_begin() && !(rdma.assembled.is_empty() && rdma.sends.is_empty())
            }
        }
    }

    fn may_begin(&self) -> bool {
        !self.inbound.is_unwrapped() && !self.is_full() && self.slots.has_free()
    }

    /// Goes on with a call whose data has come, or begins a message, if there is one and room
    /// for it.
    fn begin_next(&mut self) -> Option<Option<Step<ServerOp>>> {
        let may_begin = self.may_begin();
        let rdma = self.rdma.on_mut()?;
        if let Some(tag) = rdma.whole.pop_front() {
            return Some(self.call_is_here(tag));
        }
        if !may_begin {
            return None;
        }
        if let Some(tag) = rdma.assembled.pop_front() {
            self.begin_assembled(tag);
            return Some(None);
        }
        let send = rdma.sends.pop_front()?;
        Some(self.begin_message(send))
    }

    fn begin_message(&mut self, mut send: Vec<u8>) -> Option<Step<ServerOp>> {
        let read_bytes_max = self.settings.record_bytes_max();
        match message(&send, read_bytes_max) {
            Message::Nothing => {
                let rdma = self.rdma.on_mut()?;
                rdma.keep(send);
                rdma.qp.post_receives(1);
            }
            Message::Wrong(xid, version, error) => {
                self.rdma.on_mut()?.keep(send);
                self.send_rdma_error(xid, version, error);
            }
            Message::Answer(at, credits) => {
                self.on_callback_credits(credits);
                let tag = self.take_slot();
                self.begin_whole(tag, send, at);
            }
            Message::Call { xid, at, lists } => {
                let tag = self.take_slot();
                let slot = &mut self.slots[tag];
                slot.xid = xid;
                slot.chunks.has_receive = true;
                if at > HEADER_BYTES {
                    slot.chunks.set(&send[FIXED_BYTES..at], &lists);
                    slot.chunks.invalidates = lists.handle;
                }
                if slot.chunks.is_long() {
                    send.truncate(at);
                }
                if lists.spliced_bytes + lists.data_bytes == 0 {
                    self.begin_whole(tag, send, at);
                    return None;
                }
                slot.chunks.send = (send, at);
                return self.want_chunks(tag, lists.spliced_bytes);
            }
        }
        None
    }

    /// Reads what has its place in a call, once there is memory for it. The call keeps that, and
    /// its Send, for as long as its client likes: only a little of all such is a part of what a
    /// connection costs.
    fn want_chunks(&mut self, call: Tag, spliced_bytes: u32) -> Option<Step<ServerOp>> {
        let rdma = self.rdma.on_mut()?;
        let chunks = &mut self.slots[call].chunks;
        let bytes = spliced_bytes + chunks.send.0.len() as u32;
        let is_small = spliced_bytes <= self.settings.args_bytes_free();
        if is_small && rdma.chunk_bytes + bytes <= self.settings.args_bytes_all_max {
            rdma.chunk_bytes += bytes;
            chunks.held_bytes = bytes;
            self.read_spliced(call);
            return None;
        }
        if !self.is_let_in {
            // Nothing is exported to this client: it gets no memory to hold.
            self.queue_refusal(call, Refusal::stat(accept_stat::SYSTEM_ERR));
            return None;
        }
        let tag = self.data_tag(call).expect("its own is not used");
        let rdma = self.rdma.on_mut()?;
        rdma.awaited.push(AwaitedMemory {
            tag,
            call,
            data: None,
        });
        Some(Step::Op(ServerOp::PrepareArgs { call, tag, bytes }))
    }

    fn read_spliced(&mut self, call: Tag) {
        let mut position = None;
        loop {
            position = self.slots[call].chunks.next_spliced(position);
            let Some(position) = position else {
                break;
            };
            self.read_chunk(call, position, (OWN_BYTES, u32::MAX));
        }
        if self.slots[call].chunks.missing == 0 {
            let rdma = self.rdma.on_mut().expect("it is on");
            rdma.assembled.push_back(call);
        }
    }

    /// Reads the first `len` bytes of the chunk at `position` into the data of `tag`.
    fn read_chunk(&mut self, call: Tag, position: u32, (tag, len): (Tag, u32)) {
        let rdma = self.rdma.on_mut().expect("it is on");
        let chunks = &mut self.slots[call].chunks;
        let (mut offset, mut reads) = (0, 0);
        for segment in chunks.segments(position) {
            let sink = DataPart {
                tag,
                offset,
                len: segment.length.min(len - offset),
            };
            if sink.len == 0 {
                continue;
            }
            let asked = rdma.qp.read(sink, segment.handle, segment.offset);
            asked.expect("clients that take no reads are rejected");
            rdma.reads.push_back(call);
            offset += sink.len;
            reads += 1;
        }
        chunks.missing += reads;
    }

    /// An RDMA Read has ended.
    pub(super) fn read_done(&mut self, sink: DataPart) {
        let rdma = self.rdma.on_mut().expect("it is on");
        let call = rdma.reads.pop_front().expect("it was asked for");
        let chunks = &mut self.slots[call].chunks;
        if sink.tag == OWN_BYTES {
            let bytes = rdma.qp.take_read_bytes();
            match chunks.spliced.is_empty() {
                true => chunks.spliced = bytes,
                false => chunks.spliced.extend_from_slice(&bytes),
            }
        }
        chunks.missing -= 1;
        if chunks.missing > 0 {
            return;
        }
        match chunks.is_walked {
            true => rdma.whole.push_back(call),
            false if sink.tag == OWN_BYTES => rdma.assembled.push_back(call),
            // It is being walked.
            false => {}
        }
    }

    fn begin_assembled(&mut self, call: Tag) {
        match self.slots[call].chunks.assemble() {
            Some((bytes, at)) => self.begin_whole(call, bytes, at),
            None => self.queue_refusal(call, Refusal::stat(accept_stat::GARBAGE_ARGS)),
        }
    }

    /// The `len` bytes of data of a WRITE lie in the chunk of `bytes` bytes at `position`: they
    /// are read once `tag` has memory. Without a tag they are not taken.
    pub(in crate::connection) fn begin_chunk(
        &mut self,
        (call, tag): (Tag, Option<Tag>),
        (position, len): (u32, u32),
        bytes: u32,
    ) {
        let slot = &mut self.slots[call];
        slot.chunks.found(bytes);
        let handle = slot.handle;
        let data = AwaitedData {
            position,
            len,
            handle,
        };
        self.operation_is_here(call);
        let rdma = self.rdma.on_mut().expect("it is on");
        match tag {
            Some(tag) => rdma.awaited.push(AwaitedMemory {
                tag,
                call,
                data: Some(data),
            }),
            None => self.data_is_settled(call),
        }
    }

    /// Whether memory that was waited for is for what is to be read: that is read now, if
    /// there is memory.
    pub(in crate::connection) fn read_awaited(&mut self, tag: Tag, is_there: bool) -> bool {
        let Some(rdma) = self.rdma.on_mut() else {
            return false;
        };
        let Some(at) = rdma.awaited.iter().position(|awaited| awaited.tag == tag) else {
            return false;
        };
        let AwaitedMemory { call, data, .. } = rdma.awaited.swap_remove(at);
        match (data, is_there) {
            (Some(data), true) => {
                self.read_chunk(call, data.position, (tag, data.len));
                self.data_is_settled(call);
            }
            (Some(_), false) => {
                let payloads = &mut self.slots[call].payloads;
                let of_tag = payloads.iter_mut().find(|payload| **payload == Some(tag));
                *of_tag.expect("it was announced") = None;
                self.data_is_settled(call);
            }
            (None, true) => self.read_spliced(call),
            (None, false) => self.queue_refusal(call, Refusal::stat(accept_stat::SYSTEM_ERR)),
        }
        true
    }

    /// Data waits for memory no more.
    fn data_is_settled(&mut self, call: Tag) {
        let chunks = &mut self.slots[call].chunks;
        chunks.missing -= 1;
        if chunks.missing == 0 && chunks.is_walked {
            let rdma = self.rdma.on_mut().expect("it is on");
            rdma.whole.push_back(call);
        }
    }
}
