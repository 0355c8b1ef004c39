//! Requests on their way to the driver, and their answers.

use machine::Tag;
use wire::nbd::{CompactRequest, ExtendedRequest, nbd_magic};
use zerocopy::FromBytes;

use super::{BULK_MIN, NO_TAIL, NbdAnswer, NbdOp, NbdServer, ReplyForm, RequestSlot};
use crate::error::{FatalError, NbdError};
use crate::export::PAYLOAD_BYTES_MAX;
use crate::request::{NbdRequest, RequestHeader, RequestKind};
use crate::server::Phase;

impl NbdServer {
    /// Bytes of a request's header.
    #[inline]
    pub(super) fn header_len(&self) -> usize {
        match self.form {
            ReplyForm::Extended => size_of::<ExtendedRequest>(),
            _ => size_of::<CompactRequest>(),
        }
    }

    /// The header of a request: how much of `bytes` it is, and what comes of it.
    #[inline]
    pub(super) fn request(&mut self, bytes: &[u8]) -> Option<(usize, Option<NbdOp>)> {
        let used = self.header_len();
        let (magic, wanted, header) = match self.form {
            ReplyForm::Extended => {
                let (header, _) = ExtendedRequest::ref_from_prefix(bytes).ok()?;
                let wanted = nbd_magic::EXTENDED_REQUEST;
                (header.magic, wanted, RequestHeader::from(header))
            }
            _ => {
                let (header, _) = CompactRequest::ref_from_prefix(bytes).ok()?;
                let wanted = nbd_magic::REQUEST;
                (header.magic, wanted, RequestHeader::from(header))
            }
        };
        if magic.get() != wanted {
            return Some((used, Some(self.fail(FatalError::RequestMagic))));
        }
        if header.payload_len > PAYLOAD_BYTES_MAX.into() {
            let error = FatalError::PayloadTooLong(header.payload_len);
            return Some((used, Some(self.fail(error))));
        }
        let payload_len = header.payload_len as u32;
        if header.kind == wire::nbd::request_type::DISC {
            // What else it has does not matter: no reply would say so.
            self.phase = Phase::Disconnected;
            return Some((used, None));
        }
        self.is_bulk = payload_len >= BULK_MIN;
        let request = match (&self.export, self.is_shut_down) {
            (Some(export), false) => {
                let takes_chunks = self.form != ReplyForm::Simple;
                header.check(export, (takes_chunks, !self.contexts.is_empty()))
            }
            _ => Err(NbdError::SHUTDOWN),
        };
        let tag = self.take_slot(&header, request.ok());
        let op = match request {
            Err(error) => {
                self.complete(tag, NbdAnswer::Failed(error));
                if payload_len > 0 {
                    self.inbound.skip(payload_len, NO_TAIL);
                }
                None
            }
            Ok(_) if payload_len > 0 => {
                self.inbound.begin_blocked(tag, 0, payload_len, NO_TAIL);
                Some(NbdOp::Prepare {
                    tag,
                    len: payload_len,
                    staged: bytes.len() - used >= payload_len as usize,
                })
            }
            Ok(_) => Some(NbdOp::Execute { tag }),
        };
        Some((used, op))
    }

    #[inline]
    fn take_slot(&mut self, header: &RequestHeader, request: Option<NbdRequest>) -> Tag {
        self.statuses += u32::from(request.is_some_and(is_status));
        let slot = RequestSlot {
            cookie: header.cookie,
            offset: header.offset,
            request,
            answer: None,
        };
        match self.free.pop() {
            Some(tag) => {
                self.slots[usize::from(tag)] = slot;
                tag
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as Tag
            }
        }
    }

    /// A request that an op named and that is not completed.
    #[inline]
    pub fn request_of(&self, tag: Tag) -> NbdRequest {
        let request = self.slots[usize::from(tag)].request;
        request.expect("the driver sees requests that may be executed")
    }

    /// There is memory for the data of a write.
    #[inline]
    pub fn prepared(&mut self, tag: Tag) {
        if self.inbound.is_blocked_on(tag) {
            self.inbound.unblock(tag, u32::MAX);
        }
    }

    /// A request is over: its reply is sent next. What of its data has not come is passed over.
    #[inline]
    pub fn complete(&mut self, tag: Tag, answer: NbdAnswer) {
        let slot = &mut self.slots[usize::from(tag)];
        assert!(slot.answer.is_none(), "a request is answered once");
        slot.answer = Some(answer);
        self.statuses -= u32::from(slot.request.is_some_and(is_status));
        if self.inbound.is_on(tag) {
            self.inbound.discard();
        }
        self.answered.push_back(tag);
    }
}

fn is_status(request: NbdRequest) -> bool {
    matches!(request.kind, RequestKind::BlockStatus { .. })
}
