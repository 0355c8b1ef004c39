//! What goes to the client: a message in a Send or in the chunk for the answer, data of
//! results in chunks of their own.

use iwarp::{DataPart, OWN_BYTES, Qp, Work};
use machine::{Machine, Tag, Transmit};
use wire::rpc::msg_type;
use wire::rpc_rdma::{
    RPC_RDMA_VERSION, rdma_body, rdma_msg, rdma_proc, rpc_rdma_error, rpc_rdma_header,
    xdr_rdma_segment, xdr_write_chunk,
};
use wire::xdr::{Encode, pad};

use super::Rdma;
use crate::connection::chunks::Frame;
use crate::connection::reply::Reply;
use crate::connection::slots::{CallState, RecordSlot};
use crate::connection::{CALLS_OUT_MAX, Connection};
use crate::rdma::{HEADER_BYTES, send_message};

/// The chunks that a client has for results and for all of an answer, none in both
/// where it has no lists.
type Lists<'a> = Option<rpc_rdma_header<'a>>;

/// The chunk for the data of the result with this index, if that may go there: one without
/// segments says that it may not (RFC 8166, section 4.3.2.3).
fn chunk_of<'a>(lists: &Lists<'a>, index: usize) -> Option<xdr_write_chunk<'a>> {
    let chunk = lists.as_ref()?.rdma_writes.iter().nth(index)?;
    (!chunk.target.is_empty()).then_some(chunk)
}

fn capacity(chunk: &xdr_write_chunk<'_>) -> u64 {
    let lengths = chunk.target.iter().map(|segment| u64::from(segment.length));
    lengths.sum()
}

/// Bytes of the header of an answer.
fn head_bytes(lists: &Lists<'_>) -> usize {
    let segment = size_of::<u32>() * 4;
    let bytes = |chunk: xdr_write_chunk<'_>| size_of::<u32>() + chunk.target.len() * segment;
    let of_lists = lists.as_ref().map_or(0, |lists| {
        let writes = lists
            .rdma_writes
            .iter()
            .map(|chunk| size_of::<u32>() + bytes(chunk));
        writes.sum::<usize>() + lists.rdma_reply.map_or(0, bytes)
    });
    HEADER_BYTES + of_lists
}

/// Appends a chunk of which the first `used` bytes were written.
fn put_chunk(chunk: &xdr_write_chunk<'_>, mut used: u32, to: &mut Vec<u8>) {
    (chunk.target.len() as u32).encode(to);
    for segment in chunk.target.iter() {
        let length = segment.length.min(used);
        used -= length;
        xdr_rdma_segment { length, ..segment }.encode(to);
    }
}

/// How a message goes to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// In a Send; the payload that no chunk gets is among its bytes.
    Short,
    /// In the chunk for the answer: so many bytes.
    Long(u32),
    /// There is no room for it.
    None,
}

impl Rdma {
    /// Marks which data goes to chunks of its own, and says how the rest goes: no Send is longer
    /// than the client takes, be it a header alone.
    fn form(&self, lists: &Lists<'_>, reply: &mut Reply) -> Form {
        let mut is_right = true;
        reply.place_items(|index, len| {
            let chunk = chunk_of(lists, index);
            is_right &= chunk.is_none_or(|chunk| u64::from(len) <= capacity(&chunk));
            chunk.is_some()
        });
        let bytes = reply.unplaced_bytes();
        let room = (self.send_bytes_max as usize).checked_sub(head_bytes(lists));
        let Some(room) = room.filter(|_| is_right) else {
            return Form::None;
        };
        if bytes as usize <= room {
            return Form::Short;
        }
        let reply_chunk = lists.as_ref().and_then(|lists| lists.rdma_reply);
        match reply_chunk.is_some_and(|chunk| u64::from(bytes) <= capacity(&chunk)) {
            true => Form::Long(bytes),
            false => Form::None,
        }
    }

    /// Whether payload of an answer goes among its bytes.
    pub(in crate::connection) fn gathers(&self, slot: &mut RecordSlot) -> bool {
        let form = self.form(&slot.chunks.lists(), &mut slot.reply);
        form == Form::Short && slot.reply.has_unplaced_payload()
    }

    /// All of a message is there: makes its header. One that has no room becomes an error
    /// (RFC 8166, section 4.5.3).
    pub(in crate::connection) fn seal(&self, slot: &mut RecordSlot) {
        let mut frame = std::mem::take(&mut slot.chunks.frame);
        let lists = slot.chunks.lists();
        let reply = &mut slot.reply;
        let form = self.form(&lists, reply);
        let (xid, kind) = (reply.word(0), reply.word(1));
        let credits = match kind == msg_type::CALL as u32 {
            true => CALLS_OUT_MAX as u32,
            false => self.settings.credits.into(),
        };
        let head = &mut frame.head;
        if form == Form::None {
            reply.clear();
            self.encode_rdma_error(xid, RPC_RDMA_VERSION, rpc_rdma_error::ERR_CHUNK, head);
            slot.chunks.frame = frame;
            return;
        }
        let proc = match form {
            Form::Long(_) => rdma_proc::RDMA_NOMSG,
            _ => rdma_proc::RDMA_MSG,
        };
        [xid, RPC_RDMA_VERSION, credits, proc as u32, 0]
            .iter()
            .for_each(|word| word.encode(head));
        let (writes, reply_chunk) = match lists {
            Some(lists) => (Some(lists.rdma_writes), lists.rdma_reply),
            None => (None, None),
        };
        for (index, chunk) in writes.iter().flat_map(|writes| writes.iter()).enumerate() {
            true.encode(head);
            put_chunk(&chunk, reply.placed_bytes(index), head);
        }
        false.encode(head);
        reply_chunk.is_some().encode(head);
        if let Some(chunk) = reply_chunk {
            let used = if let Form::Long(bytes) = form {
                bytes
            } else {
                0
            };
            put_chunk(&chunk, used, head);
        }
        frame.is_long = matches!(form, Form::Long(_));
        if frame.is_long {
            frame.tail.extend_from_slice(&[0; 3]);
        }
        reply.cut_items(&mut frame.tail);
        slot.chunks.frame = frame;
    }

    /// Appends an error instead of an answer (section 4.5).
    pub(super) fn encode_rdma_error(
        &self,
        xid: u32,
        vers: u32,
        error: rpc_rdma_error,
        to: &mut Vec<u8>,
    ) {
        let message = rdma_msg {
            rdma_xid: xid,
            rdma_vers: vers,
            rdma_credit: self.settings.credits.into(),
            body: rdma_body::RDMA_ERROR(error),
        };
        message.encode(to);
    }

    /// Hands a message to the stream: first what goes to chunks, then the Send that tells of
    /// it.
    fn post(&mut self, slot: &RecordSlot, tag: Tag) {
        let (reply, frame) = (&slot.reply, &slot.chunks.frame);
        let lists = slot.chunks.lists();
        let head = frame.head.len() as u32;
        let message = reply.message().len() as u32;
        for (index, item) in reply.placed_items() {
            let Some(chunk) = chunk_of(&lists, index) else {
                continue;
            };
            let data = item.payload.unwrap_or(DataPart {
                tag: OWN_BYTES,
                offset: head + message + item.tail_at,
                len: item.len,
            });
            Target::new(&chunk).write(&mut self.qp, data);
        }
        let chunk = lists.and_then(|lists| lists.rdma_reply);
        if let (true, Some(chunk)) = (frame.is_long, chunk) {
            let mut target = Target::new(&chunk);
            let own = |offset, len| DataPart {
                tag: OWN_BYTES,
                offset,
                len,
            };
            let mut from = 0;
            for (at, part) in reply.unplaced_parts() {
                target.write(&mut self.qp, own(head + from, at - from));
                target.write(&mut self.qp, part);
                let zeros = own(head + message, pad(part.len as usize) as u32);
                target.write(&mut self.qp, zeros);
                from = at;
            }
            target.write(&mut self.qp, own(head + from, message - from));
        }
        let inline = if frame.is_long { 0 } else { message };
        self.qp.post(Work::Send {
            head: &[],
            body: DataPart {
                tag: OWN_BYTES,
                offset: 0,
                len: head + inline,
            },
            invalidate: slot.chunks.invalidates.filter(|_| self.takes_invalidate),
            is_solicited: false,
            release: Some(tag),
        });
    }
}

/// Where the next byte goes of a chunk that is written from its start.
struct Target<'a> {
    chunk: &'a xdr_write_chunk<'a>,
    used: u64,
}

impl<'a> Target<'a> {
    fn new(chunk: &'a xdr_write_chunk<'a>) -> Target<'a> {
        Target { chunk, used: 0 }
    }

    /// Writes `data` behind what was written: RDMA Writes, one for each segment it touches.
    fn write(&mut self, qp: &mut Qp, mut data: DataPart) {
        let mut begin = 0;
        for segment in self.chunk.target.iter() {
            let end = begin + u64::from(segment.length);
            let used = self.used;
            if data.len > 0 && used < end && used >= begin {
                let len = u64::from(data.len).min(end - used) as u32;
                qp.post(Work::Write {
                    data: DataPart { len, ..data },
                    stag: segment.handle,
                    to: segment.offset + (used - begin),
                    release: None,
                });
                self.used += u64::from(len);
                data.offset += len;
                data.len -= len;
            }
            begin = end;
        }
        debug_assert!(data.len == 0, "it was seen that there is room");
    }
}

impl Connection {
    /// Hands one message after the other to the stream, so that a tag is free only when its
    /// last byte was named.
    pub(in crate::connection) fn transmit_rdma(&mut self, out: &mut impl Transmit) {
        loop {
            let rdma = self.rdma.on_mut().expect("it is on");
            let next = self.ready.front().copied();
            let next = next.filter(|_| !rdma.qp.is_finished());
            let mut own = [&[][..]; 3];
            if let Some(tag) = next {
                let slot = &self.slots[tag];
                if !rdma.is_sending {
                    rdma.post(slot, tag);
                    rdma.is_sending = true;
                }
                let frame = &slot.chunks.frame;
                own = [&frame.head, slot.reply.message(), &frame.tail];
            }
            if !send_message(&mut rdma.qp, out, own) {
                return;
            }
            rdma.is_sending = false;
            self.sent(out);
        }
    }

    /// Whether [`Connection::transmit_rdma`] would write anything.
    pub(in crate::connection) fn has_rdma_transmit(&self, rdma: &Rdma) -> bool {
        rdma.qp.has_transmit()
            || !self.ready.is_empty() && !rdma.is_sending && !rdma.qp.is_finished()
    }

    /// An error goes instead of the answer to a message with a header that cannot be used.
    pub(super) fn send_rdma_error(&mut self, xid: u32, vers: u32, error: rpc_rdma_error) {
        let tag = self.slots.take(CallState::Sending).expect("not full");
        let chunks = &mut self.slots[tag].chunks;
        chunks.has_receive = true;
        let rdma = self.rdma.on_mut().expect("it is on");
        let mut frame = Frame::default();
        rdma.encode_rdma_error(xid, vers, error, &mut frame.head);
        chunks.frame = frame;
        self.ready.push_back(tag);
    }
}
