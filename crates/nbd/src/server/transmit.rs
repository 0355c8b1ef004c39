//! What goes to the client.

use machine::{Tag, Transmit};
use wire::nbd::{
    BlockDescriptor, ExtendedDescriptor, ExtendedReply, REPLY_DONE, SimpleReply, StructuredReply,
    allocation, nbd_magic, reply_type,
};
use zerocopy::IntoBytes;

use super::options::CONTEXT_ID;
use super::{NO_TAIL, NbdAnswer, NbdServer, ReplyForm, RequestSlot};
use crate::error::NbdError;
use crate::request::{NbdRequest, RequestKind};

/// The data of a block status with `base:allocation` (section "Structured reply types"): of each
/// of these parts, in order from the offset of the request on, its bytes and whether data is
/// there. At most `bytes_max` bytes; nothing behind the request; one part where that asks for one.
pub fn descriptors(
    request: &NbdRequest,
    is_extended: bool,
    parts: impl Iterator<Item = (u64, bool)>,
    bytes_max: usize,
) -> Vec<u8> {
    let descriptor_bytes = match is_extended {
        true => size_of::<ExtendedDescriptor>(),
        false => size_of::<BlockDescriptor>(),
    };
    let is_one = matches!(request.kind, RequestKind::BlockStatus { is_one: true });
    let most = if is_one {
        1
    } else {
        bytes_max / descriptor_bytes
    };
    let (mut bytes, mut left) = (Vec::new(), request.len);
    for (len, has_data) in parts.take(most) {
        let len = len.min(left);
        if len == 0 {
            break;
        }
        left -= len;
        let status = match has_data {
            true => 0,
            false => allocation::HOLE | allocation::ZERO,
        };
        if is_extended {
            let (len, status) = (len.into(), u64::from(status).into());
            bytes.extend_from_slice(ExtendedDescriptor { len, status }.as_bytes());
        } else {
            // A request of that form has 32 bits for its length.
            let (len, status) = ((len as u32).into(), status.into());
            bytes.extend_from_slice(BlockDescriptor { len, status }.as_bytes());
        }
    }
    bytes
}

/// The header of a chunk, and the fields before its payload.
struct ChunkHeader {
    bytes: [u8; CHUNK_HEADER_MAX],
    len: usize,
}

/// The longest header, and two fields of 32 bits or one of 64.
const CHUNK_HEADER_MAX: usize = size_of::<ExtendedReply>() + 8;

impl ChunkHeader {
    /// Of the only chunk of a reply, with these fields and so many bytes behind them.
    #[inline]
    fn new(
        form: ReplyForm,
        slot: &RequestSlot,
        kind: u16,
        fields: &[u8],
        payload_len: u32,
    ) -> ChunkHeader {
        let len = fields.len() as u32 + payload_len;
        let mut header = ChunkHeader {
            bytes: [0; CHUNK_HEADER_MAX],
            len: 0,
        };
        match form {
            ReplyForm::Extended => header.put(
                ExtendedReply {
                    magic: nbd_magic::EXTENDED_REPLY.into(),
                    flags: REPLY_DONE.into(),
                    kind: kind.into(),
                    cookie: slot.cookie.into(),
                    offset: slot.offset.into(),
                    len: u64::from(len).into(),
                }
                .as_bytes(),
            ),
            _ => header.put(
                StructuredReply {
                    magic: nbd_magic::STRUCTURED_REPLY.into(),
                    flags: REPLY_DONE.into(),
                    kind: kind.into(),
                    cookie: slot.cookie.into(),
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

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl NbdServer {
    /// Whether headers are extended: [`descriptors`] differ then.
    pub fn is_extended(&self) -> bool {
        self.form == ReplyForm::Extended
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
            (form, NbdAnswer::Done { data_len: 0 }) => {
                let chunk = ChunkHeader::new(form, &slot, reply_type::NONE, &[], 0);
                out.header(chunk.bytes());
            }
            (form, NbdAnswer::Done { data_len }) => {
                send_data(form, &slot, data_len, out);
                put_data(out, tag, data_len);
            }
            (form, NbdAnswer::Failed(error)) => send_error(form, &slot, error, out),
        }
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

/// What stands before the data of a read, or the descriptors of a block status.
#[inline]
fn send_data(form: ReplyForm, slot: &RequestSlot, len: u32, out: &mut impl Transmit) {
    let is_status = slot
        .request
        .is_some_and(|request| matches!(request.kind, RequestKind::BlockStatus { .. }));
    let id = CONTEXT_ID.to_be_bytes();
    let chunk = match (is_status, form) {
        (false, _) => {
            let offset = slot.offset.to_be_bytes();
            ChunkHeader::new(form, slot, reply_type::OFFSET_DATA, &offset, len)
        }
        (true, ReplyForm::Extended) => {
            let count = len / size_of::<ExtendedDescriptor>() as u32;
            let [a, b, c, d] = count.to_be_bytes();
            let fields = [id[0], id[1], id[2], id[3], a, b, c, d];
            ChunkHeader::new(form, slot, reply_type::BLOCK_STATUS_EXT, &fields, len)
        }
        (true, _) => ChunkHeader::new(form, slot, reply_type::BLOCK_STATUS, &id, len),
    };
    out.header(chunk.bytes());
}

/// NBD_REPLY_TYPE_ERROR: the error, and words about it.
#[cold]
fn send_error(form: ReplyForm, slot: &RequestSlot, error: NbdError, out: &mut impl Transmit) {
    let text = error.text.as_bytes();
    let [a, b, c, d] = error.code.to_be_bytes();
    let [e, f] = (text.len() as u16).to_be_bytes();
    let fields = [a, b, c, d, e, f];
    let chunk = ChunkHeader::new(form, slot, reply_type::ERROR, &fields, text.len() as u32);
    out.header(chunk.bytes());
    out.header(text);
}
