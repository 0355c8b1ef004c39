//! What comes from the server: answers, and its own calls.

use machine::Tag;
use wire::rpc::msg_type;
use wire::rpc_rdma::{
    RPC_RDMA_VERSION, rdma_body, rdma_msg, rpc_rdma_error, rpc_rdma_header, xdr_write_chunk,
};
use wire::xdr::{Decode, Reader};

use super::{CallChunks, Rdma};
use crate::client::answer::RpcRefused;
use crate::client::connection::{ClientConnection, ClientOp};
use crate::client::fatal::RpcClientFatalError;
use crate::client::receive::word;

/// What a Send is.
enum ServerMessage {
    Error(rpc_rdma_error),
    /// A call of the server's, which begins there.
    Call(usize),
    Answer(AnswerForm),
    Nothing,
}

/// How an answer has come.
#[derive(Clone, Copy)]
struct AnswerForm {
    /// Where it begins in the Send.
    at: usize,
    /// Bytes of it in the chunk that the call had for it, if it is there.
    long_bytes: Option<u64>,
    /// Bytes of data in a chunk of its own.
    data_bytes: u64,
    credits: u32,
}

/// Bytes that a chunk was said to have got.
fn used(chunk: &xdr_write_chunk<'_>) -> u64 {
    let lengths = chunk.target.iter().map(|segment| u64::from(segment.length));
    lengths.sum()
}

/// The transaction identifier of a Send, and what it is (RFC 8166, section 4.2).
fn message(send: &[u8]) -> Option<(u32, ServerMessage)> {
    let from = &mut Reader::new(send);
    let header = rdma_msg::decode(from).ok()?;
    let body = from.rest();
    let at = send.len() - body.len();
    let (lists, is_long) = match header.body {
        rdma_body::RDMA_ERROR(error) => {
            return Some((header.rdma_xid, ServerMessage::Error(error)));
        }
        rdma_body::RDMA_DONE => return Some((header.rdma_xid, ServerMessage::Nothing)),
        rdma_body::RDMA_MSG(lists) => (lists, false),
        rdma_body::RDMA_NOMSG(lists) => (lists, true),
    };
    let rpc_rdma_header {
        rdma_reads,
        rdma_writes,
        rdma_reply,
    } = lists;
    if header.rdma_vers != RPC_RDMA_VERSION || rdma_reads.iter().next().is_some() {
        return None;
    }
    let mut writes = rdma_writes.iter();
    let data_bytes = writes.next().map_or(0, |chunk| used(&chunk));
    // A call has one chunk for data.
    if writes.next().is_some() {
        return None;
    }
    let is_call = !is_long && word(body, 4) == Some(msg_type::CALL as u32);
    let message = match is_call {
        true => ServerMessage::Call(at),
        false => ServerMessage::Answer(AnswerForm {
            at,
            long_bytes: is_long.then(|| rdma_reply.map_or(0, |chunk| used(&chunk))),
            data_bytes,
            credits: header.rdma_credit,
        }),
    };
    Some((header.rdma_xid, message))
}

impl Rdma {
    /// A call is answered: the server can name nothing of it any more. What it may still have
    /// named.
    fn end_call(&mut self, tag: Tag) -> CallChunks {
        self.under_way = self.under_way.saturating_sub(1);
        let chunks = std::mem::take(self.chunks_of(tag));
        for stag in chunks.all() {
            self.qp.invalidate(stag);
        }
        chunks
    }
}

impl ClientConnection {
    /// A Send has come, which has invalidated what it says.
    pub(super) fn take_message(
        &mut self,
        invalidated: Option<u32>,
    ) -> Result<Option<ClientOp>, RpcClientFatalError> {
        let rdma = self.rdma.as_mut().expect("it is on");
        rdma.qp.post_receives(1);
        let send = rdma.qp.head();
        let (xid, message) = message(send).ok_or(RpcClientFatalError::Header)?;
        let call = match message {
            ServerMessage::Call(_) => None,
            _ => self.answered(xid),
        };
        if let Some(stag) = invalidated
            && !call.is_some_and(|(tag, _)| self.names(tag, stag))
        {
            return Err(RpcClientFatalError::Invalidation(stag));
        }
        match (message, call) {
            (ServerMessage::Nothing, _) => Ok(None),
            (ServerMessage::Error(_), None) => Ok(None),
            (ServerMessage::Error(error), Some((tag, _))) => Ok(Some(self.refused(tag, error))),
            (ServerMessage::Call(at), _) => {
                let rdma = self.rdma.as_ref().expect("it is on");
                self.inbound.take_message(&rdma.qp.head()[at..]);
                self.called()
            }
            (ServerMessage::Answer(form), call) => self.take_answer((xid, form), call),
        }
    }

    /// Whether the server could name `stag` for a call.
    fn names(&mut self, tag: Tag, stag: u32) -> bool {
        let rdma = self.rdma.as_mut().expect("it is on");
        rdma.chunks_of(tag).all().any(|named| named == stag)
    }

    fn take_answer(
        &mut self,
        (xid, form): (u32, AnswerForm),
        call: Option<(Tag, Option<u32>)>,
    ) -> Result<Option<ClientOp>, RpcClientFatalError> {
        let rdma = self.rdma.as_mut().expect("it is on");
        // One always goes: a server that takes none would be waited for in vain.
        rdma.credits = form.credits.clamp(1, rdma.calls_max);
        let Some((tag, data_max)) = call else {
            return Ok(None);
        };
        let chunks = rdma.end_call(tag);
        let wrong = RpcClientFatalError::Chunk;
        match form.long_bytes {
            None => self.inbound.take_message(&rdma.qp.head()[form.at..]),
            Some(len) => {
                let bytes = rdma.qp.take_bytes(chunks.answer.ok_or(wrong)?);
                let answer = usize::try_from(len).ok().and_then(|len| bytes.get(..len));
                self.inbound.take_message(answer.ok_or(wrong)?);
            }
        }
        let bytes = self.inbound.message();
        let is_answer = (word(bytes, 0), word(bytes, 4));
        if is_answer != (Some(xid), Some(msg_type::REPLY as u32)) {
            return Err(RpcClientFatalError::NoMessage);
        }
        let written = chunks.data.map_or(0, |stag| rdma.qp.written(stag));
        let data_bytes = u32::try_from(form.data_bytes).map_err(|_| wrong)?;
        if u64::from(data_bytes) > written {
            return Err(wrong);
        }
        if let Some(data_max) = data_max {
            self.inbound.note_data(data_max, data_bytes)?;
        }
        Ok(match self.security.is_some() {
            true => self.finish_secured(tag),
            false => Some(self.finish(tag)),
        })
    }

    /// The server cannot use the header of a call.
    #[cold]
    fn refused(&mut self, tag: Tag, error: rpc_rdma_error) -> ClientOp {
        self.rdma.as_mut().expect("it is on").end_call(tag);
        let why = RpcRefused::Header(error);
        self.inbound.refuse(why);
        match self.refuse_secured(tag, why) {
            Some(op) => op,
            None => self.finish(tag),
        }
    }
}
