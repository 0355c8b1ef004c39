//! What goes to the client.

use machine::{Tag, Transmit};
use wire::nbd::{ExtendedReply, REPLY_DONE, SimpleReply, StructuredReply, nbd_magic, reply_type};
use zerocopy::IntoBytes;

use super::{NO_TAIL, NbdAnswer, NbdServer, ReplyForm, RequestSlot};
use crate::error::NbdError;
use crate::request::RequestKind;
use crate::status::StatusReply;

/// What the chunks of a reply answer, and in which form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyTo {
    pub form: ReplyForm,
    pub cookie: u64,
    pub offset: u64,
}

/// The header of a chunk, and the fields before its payload.
pub(crate) struct ChunkHeader {
    bytes: [u8; CHUNK_HEADER_MAX],
    len: usize,
}

/// The longest header, and two fields of 32 bits or one of 64.
const CHUNK_HEADER_MAX: usize = size_of::<ExtendedReply>() + 8;

impl ChunkHeader {
    /// Bytes of the longest.
    pub const LONGEST: usize = CHUNK_HEADER_MAX;

    /// Of a chunk with these fields and so many bytes behind them, which may be the last of its
    /// reply.
    #[inline]
    pub fn new(
        to: ReplyTo,
        kind: u16,
        fields: &[u8],
        (payload_len, is_last): (u32, bool),
    ) -> ChunkHeader {
        let len = fields.len() as u32 + payload_len;
        let flags = if is_last { REPLY_DONE } else { 0 };
        let mut header = ChunkHeader {
            bytes: [0; CHUNK_HEADER_MAX],
            len: 0,
        };
        match to.form {
            ReplyForm::Extended => header.put(
                ExtendedReply {
                    magic: nbd_magic::EXTENDED_REPLY.into(),
                    flags: flags.into(),
                    kind: kind.into(),
                    cookie: to.cookie.into(),
                    offset: to.offset.into(),
                    len: u64::from(len).into(),
                }
                .as_bytes(),
            ),
            _ => header.put(
                StructuredReply {
                    magic: nbd_magic::STRUCTURED_REPLY.into(),
                    flags: flags.into(),
                    kind: kind.into(),
                    cookie: to.cookie.into(),
                    len: len.into(),
                }
                .as_bytes(),
            ),
        }
        header.put(fields);
        header
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl NbdServer {
    /// What the reply to a block status is made by, which an op named and that is not completed.
    pub fn status_reply(&self, tag: Tag) -> StatusReply {
        StatusReply {
            to: self.reply_to(&self.slots[usize::from(tag)]),
            request: self.request_of(tag),
            contexts: self.contexts.clone(),
        }
    }

    #[inline]
    fn reply_to(&self, slot: &RequestSlot) -> ReplyTo {
        ReplyTo {
            form: self.form,
            cookie: slot.cookie,
            offset: slot.offset,
        }
    }

    /// Hands on what is left of the handshake; whether that was all.
    #[inline]
    pub(super) fn send_control(&mut self, out: &mut impl Transmit) -> bool {
        while self.control_sent < self.control.len() {
            if !out.has_room() {
                return false;
            }
            let rest = &self.control[self.control_sent..];
            let part = &rest[..rest.len().min(out.header_room())];
            out.header(part);
            self.control_sent += part.len();
        }
        if self.control_sent > 0 {
            (self.control, self.control_sent) = (Vec::new(), 0);
        }
        true
    }

    /// The reply to an answered request, in one chunk.
    #[inline]
    pub(super) fn send_reply(&mut self, tag: Tag, out: &mut impl Transmit) {
        let slot = self.slots[usize::from(tag)];
        let answer = slot.answer.expect("it is answered");
        match (self.form, answer) {
            (ReplyForm::Simple, NbdAnswer::Done { data_len }) => {
                out.header(simple_reply(&slot, 0).as_bytes());
                put_data(out, tag, data_len);
            }
            (ReplyForm::Simple, NbdAnswer::Failed(error)) => {
                out.header(simple_reply(&slot, error.code).as_bytes());
            }
            (_, NbdAnswer::Done { data_len: 0 }) => {
                let chunk =
                    ChunkHeader::new(self.reply_to(&slot), reply_type::NONE, &[], (0, true));
                out.header(chunk.bytes());
            }
            (_, NbdAnswer::Done { data_len }) => {
                if !slot.is_status() {
                    let (kind, offset) = (reply_type::OFFSET_DATA, slot.offset.to_be_bytes());
                    let to = self.reply_to(&slot);
                    let chunk = ChunkHeader::new(to, kind, &offset, (data_len, true));
                    out.header(chunk.bytes());
                }
                put_data(out, tag, data_len);
            }
            (_, NbdAnswer::Failed(error)) => send_error(self.reply_to(&slot), error, out),
        }
    }
}

impl RequestSlot {
    /// Whether its data is made of whole chunks.
    fn is_status(&self) -> bool {
        self.request
            .is_some_and(|request| matches!(request.kind, RequestKind::BlockStatus { .. }))
    }
}

#[inline]
fn simple_reply(slot: &RequestSlot, error: u32) -> SimpleReply {
    SimpleReply {
        magic: nbd_magic::SIMPLE_REPLY.into(),
        error: error.into(),
        cookie: slot.cookie.into(),
    }
}

#[inline]
fn put_data(out: &mut impl Transmit, tag: Tag, len: u32) {
    if len > 0 {
        out.payload(tag, 0, len, NO_TAIL);
    }
}

/// NBD_REPLY_TYPE_ERROR: the error, and words about it.
#[cold]
fn send_error(to: ReplyTo, error: NbdError, out: &mut impl Transmit) {
    let text = error.text.as_bytes();
    let [a, b, c, d] = error.code.to_be_bytes();
    let [e, f] = (text.len() as u16).to_be_bytes();
    let fields = [a, b, c, d, e, f];
    let payload = (text.len() as u32, true);
    let chunk = ChunkHeader::new(to, reply_type::ERROR, &fields, payload);
    out.header(chunk.bytes());
    out.header(text);
}
