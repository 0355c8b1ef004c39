//! What goes to the server: a message in a Send, and what it may name beside that.

use iwarp::{DataPart, OWN_BYTES, RegisteredMemory, RemoteAccess, Work};
use machine::{Machine, Tag, Transmit};
use wire::rpc::RecordMark;
use wire::rpc_rdma::{RPC_RDMA_VERSION, rdma_proc, xdr_rdma_segment};
use wire::xdr::Encode;

use super::{CallChunks, Rdma};
use crate::client::compound::CallData;
use crate::client::connection::{ClientConnection, REPLIES_MAX, ToSend};
use crate::client::gss::TOKEN;
use crate::rdma::{HEADER_BYTES, send_message};

/// Bytes of an entry of the read list.
const READ_CHUNK_BYTES: usize = 24;
/// Bytes of a chunk of one segment in the write list.
const WRITE_CHUNK_BYTES: usize = 24;
/// The same of the chunk for the answer.
const REPLY_CHUNK_BYTES: usize = 20;

/// What of a call does not go in its Send.
struct Parts {
    tag: Tag,
    data: CallData,
    /// Where in the call data stands that the server reads.
    position: u32,
    /// Bytes of the chunk for the answer, if there is to be one.
    answer_bytes: Option<u32>,
}

impl Parts {
    /// Bytes of the header of a call all of which goes in its Send.
    fn head_bytes(&self) -> usize {
        let of_data = match self.data {
            CallData::None => 0,
            CallData::In(_) => WRITE_CHUNK_BYTES,
            CallData::Out(_) => READ_CHUNK_BYTES,
        };
        HEADER_BYTES + of_data + self.answer_bytes.map_or(0, |_| REPLY_CHUNK_BYTES)
    }
}

impl Rdma {
    /// Whether the server takes one more call.
    fn has_credit(&self) -> bool {
        self.under_way < self.credits
    }

    /// Makes the header of a call, and lets the server name what it says.
    fn begin_call(&mut self, message: &[u8], parts: &Parts) {
        let xid = u32::from_be_bytes(*message.first_chunk().expect("a call"));
        self.is_long = parts.head_bytes() + message.len() > self.send_bytes_max as usize;
        let chunks = self.register(message, parts);
        *self.chunks_of(parts.tag) = chunks;
        self.put_fixed(xid, self.calls_max);
        let to = &mut self.head;
        let segment = |handle, length| xdr_rdma_segment {
            handle,
            length,
            offset: 0,
        };
        let (read, written) = match (parts.data, chunks.data) {
            (CallData::Out(len), Some(stag)) => (Some((parts.position, stag, len)), None),
            (CallData::In(len), Some(stag)) => (None, Some((stag, len))),
            _ => (None, None),
        };
        let call = chunks.call.map(|stag| (0, stag, message.len() as u32));
        for (position, stag, len) in call.into_iter().chain(read) {
            true.encode(to);
            position.encode(to);
            segment(stag, len).encode(to);
        }
        false.encode(to);
        if let Some((stag, len)) = written {
            true.encode(to);
            1u32.encode(to);
            segment(stag, len).encode(to);
        }
        false.encode(to);
        chunks.answer.is_some().encode(to);
        if let (Some(stag), Some(len)) = (chunks.answer, parts.answer_bytes) {
            1u32.encode(to);
            segment(stag, len).encode(to);
        }
    }

    /// Lets the server name the parts of a call.
    fn register(&mut self, message: &[u8], parts: &Parts) -> CallChunks {
        let registered = "calls under way are fewer than regions";
        let data = match parts.data {
            CallData::None => None,
            CallData::In(len) => Some((len, RemoteAccess::WRITE)),
            CallData::Out(len) => Some((len, RemoteAccess::READ)),
        };
        let memory = data.map(|(len, access)| RegisteredMemory {
            tag: parts.tag,
            offset: 0,
            len,
            to: 0,
            access,
        });
        let lent = self.is_long.then(|| message.to_vec());
        let qp = &mut self.qp;
        CallChunks {
            data: memory.map(|memory| qp.register(memory).expect(registered)),
            call: lent.map(|bytes| qp.lend_bytes(bytes).expect(registered)),
            answer: (parts.answer_bytes).map(|len| qp.collect_bytes(len).expect(registered)),
        }
    }

    /// The answer to a callback has no chunks (RFC 8167, section 5.3).
    fn begin_reply(&mut self, message: &[u8]) {
        let xid = u32::from_be_bytes(*message.first_chunk().expect("an answer"));
        self.is_long = false;
        self.put_fixed(xid, REPLIES_MAX as u32);
        [false; 3]
            .iter()
            .for_each(|none| none.encode(&mut self.head));
    }

    /// What all headers begin with (RFC 8166, section 4.2).
    fn put_fixed(&mut self, xid: u32, credits: u32) {
        let proc = match self.is_long {
            true => rdma_proc::RDMA_NOMSG,
            false => rdma_proc::RDMA_MSG,
        };
        self.head.clear();
        [xid, RPC_RDMA_VERSION, credits, proc as u32]
            .iter()
            .for_each(|word| word.encode(&mut self.head));
    }

    /// Hands the Send to the stream.
    fn post(&mut self, message: &[u8]) {
        let inline = if self.is_long { 0 } else { message.len() };
        self.qp.post(Work::Send {
            head: &[],
            body: DataPart {
                tag: OWN_BYTES,
                offset: 0,
                len: (self.head.len() + inline) as u32,
            },
            invalidate: None,
            is_solicited: false,
            release: Some(OWN_BYTES),
        });
        self.is_sending = true;
    }
}

impl ClientConnection {
    /// As [`Machine::has_transmit`].
    pub(in crate::client) fn has_rdma_transmit(&self, rdma: &Rdma) -> bool {
        rdma.qp.has_transmit() || self.rdma_goes(rdma)
    }

    /// Whether there is a message to hand to the stream. Answers do not wait for calls that
    /// the server takes no more of: it may wait for them itself.
    fn rdma_goes(&self, rdma: &Rdma) -> bool {
        let may_begin = rdma.is_live && !rdma.is_sending && !rdma.qp.is_finished();
        may_begin && (self.has_replies() || rdma.has_credit() && self.first_goes())
    }

    /// As [`Machine::poll_transmit`].
    pub(in crate::client) fn transmit_rdma(&mut self, out: &mut impl Transmit) {
        loop {
            let rdma = self.rdma.as_ref().expect("it is on");
            if self.rdma_goes(rdma) {
                self.begin_first();
            }
            let Some(rdma) = &mut self.rdma else {
                return;
            };
            let mut own = [&[][..]; 3];
            if rdma.is_sending {
                let message = match &self.ready[0] {
                    _ if rdma.is_long => &[][..],
                    ToSend::Reply(bytes) | ToSend::Token(bytes) => &bytes[RecordMark::LEN..],
                    ToSend::Call(tag) => {
                        let sealed = self.security.as_ref().and_then(|of| of.sealed(*tag));
                        let bytes = &self.calls[usize::from(*tag)].bytes;
                        &sealed.map_or(bytes, |(bytes, _)| bytes)[RecordMark::LEN..]
                    }
                };
                own = [&rdma.head, message, &[]];
            }
            // The stream's own bytes lie beside those of the message.
            if !send_message(&mut rdma.qp, out, own) {
                return;
            }
            rdma.is_sending = false;
            if !matches!(self.ready[0], ToSend::Reply(_)) {
                rdma.under_way += 1;
            }
            self.first_is_sent();
        }
    }

    /// Begins to send the first that may go.
    fn begin_first(&mut self) {
        let may_call = self.first_goes();
        let rdma = self.rdma.as_mut().expect("it is on");
        if !(may_call && rdma.has_credit()) {
            let is_reply = |one: &ToSend| matches!(one, ToSend::Reply(_));
            let at = self.ready.iter().position(is_reply).expect("there is one");
            let reply = self.ready.remove(at).expect("it was found");
            self.ready.push_front(reply);
        }
        let answer_bytes = Some(self.settings.answer_bytes_max);
        let (bytes, parts) = match &self.ready[0] {
            ToSend::Reply(bytes) => {
                let message = &bytes[RecordMark::LEN..];
                rdma.begin_reply(message);
                return rdma.post(message);
            }
            ToSend::Token(bytes) => {
                let parts = Parts {
                    tag: TOKEN,
                    data: CallData::None,
                    position: 0,
                    answer_bytes,
                };
                (bytes, parts)
            }
            ToSend::Call(tag) => {
                let call = &self.calls[usize::from(*tag)];
                let sealed = self.security.as_ref().and_then(|of| of.sealed(*tag));
                let (bytes, at) = sealed.unwrap_or((&call.bytes, call.payload_at as usize));
                let is_protected = self.security.as_ref().is_some_and(|of| of.protects());
                let data = if is_protected {
                    CallData::None
                } else {
                    call.data
                };
                let is_short = call.has_short_answer && !is_protected;
                let parts = Parts {
                    tag: *tag,
                    data,
                    position: at.saturating_sub(RecordMark::LEN) as u32,
                    answer_bytes: answer_bytes.filter(|_| !is_short),
                };
                (bytes, parts)
            }
        };
        let message = &bytes[RecordMark::LEN..];
        rdma.begin_call(message, &parts);
        rdma.post(message);
    }
}
