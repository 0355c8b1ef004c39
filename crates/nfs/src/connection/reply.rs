//! A record that goes out: bytes with payloads between them.

mod items;

use machine::{Tag, Tail, Transmit};
use wire::rpc::{
    AUTH_NONE, RPCSEC_GSS, RecordMark, accept_stat, accepted_body, auth_stat, mismatch_info,
    msg_type, opaque_auth, rejected_reply, reply_stat,
};
use wire::xdr::{Encode, Opaque, pad};

use self::items::DataItem;
use crate::gss::BEHIND_BYTES;

/// What tells a client that TLS begins.
const STARTTLS: &[u8] = b"STARTTLS";
/// Bytes that are handed on at once.
const CHUNK_BYTES: usize = 480;
/// The same of data: fewer than a send has room for, in however many pieces they lie.
const DATA_BYTES: u32 = 1 << 20;

/// Data of a tag that goes out behind the bytes before `at`.
#[derive(Clone, Copy, Debug)]
struct ReplyPart {
    at: u32,
    tag: Tag,
    offset: u32,
    len: u32,
}

/// What the answer to a call consists of, in the order in which it is appended.
#[derive(Debug, Default)]
pub struct Reply {
    bytes: Vec<u8>,
    parts: Vec<ReplyPart>,
    /// Data of results, in their order.
    items: Vec<DataItem>,
    /// Payload with its padding.
    payload_bytes: u32,
    /// Where the results begin.
    results_at: usize,
    sent: usize,
    parts_sent: usize,
    /// Bytes of the next part that were handed on.
    part_sent: u32,
}

/// A place in a [`Reply`] to go back to.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    bytes: usize,
    parts: usize,
    items: usize,
    payload_bytes: u32,
}

impl Mark {
    /// How many bytes lie before it, without payload.
    pub fn position(&self) -> usize {
        self.bytes
    }
}

impl Reply {
    /// Where bytes are appended. What lies there already stays, apart from
    /// values written over in place.
    #[inline]
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Appends `len` bytes of the data of `tag` and the padding behind them;
    /// their length was written already.
    #[inline]
    pub fn payload(&mut self, tag: Tag, offset: u32, len: u32) {
        if len == 0 {
            return;
        }
        let at = self.bytes.len() as u32;
        self.parts.push(ReplyPart {
            at,
            tag,
            offset,
            len,
        });
        self.payload_bytes += len + pad(len as usize) as u32;
    }

    /// Bytes of the whole record, its mark not counted.
    #[inline]
    pub fn record_bytes(&self) -> u32 {
        (self.bytes.len() - RecordMark::LEN) as u32 + self.payload_bytes
    }

    /// What has been appended up to now.
    pub fn mark(&self) -> Mark {
        Mark {
            bytes: self.bytes.len(),
            parts: self.parts.len(),
            items: self.items.len(),
            payload_bytes: self.payload_bytes,
        }
    }

    /// Takes back what was appended since.
    pub fn back_to(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        self.parts.truncate(mark.parts);
        self.items.truncate(mark.items);
        self.payload_bytes = mark.payload_bytes;
    }

    /// The bytes of the results: what follows the header of RPC.
    pub fn results(&self) -> &[u8] {
        &self.bytes[self.results_at..]
    }

    /// Whether there is payload beside the bytes.
    pub fn has_payload(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Payload that has no memory of its own to go to becomes bytes: `copy` appends so much of
    /// a tag's data from an offset.
    pub(super) fn gather(&mut self, mut copy: impl FnMut(Tag, u32, u32, &mut Vec<u8>)) {
        let parts = std::mem::take(&mut self.parts);
        let room = self.bytes.len() + self.payload_bytes as usize + BEHIND_BYTES;
        let bytes = std::mem::replace(&mut self.bytes, Vec::with_capacity(room));
        let mut from = 0;
        for part in parts {
            self.bytes.extend_from_slice(&bytes[from..part.at as usize]);
            from = part.at as usize;
            let at = self.bytes.len() as u32;
            let part = ReplyPart { at, ..part };
            if self.is_placed(&part) {
                self.parts.push(part);
                continue;
            }
            copy(part.tag, part.offset, part.len, &mut self.bytes);
            let padding = pad(part.len as usize);
            self.bytes.extend_from_slice(&[0; 3][..padding]);
            let grown = self.bytes.len() as u32 - at;
            self.payload_bytes -= grown;
            let behind = self.items.iter_mut().filter(|item| item.at > at);
            behind.for_each(|item| item.at += grown);
        }
        self.bytes.extend_from_slice(&bytes[from..]);
    }

    pub(super) fn reset(&mut self, keep_bytes: usize) {
        if self.bytes.capacity() > keep_bytes {
            self.bytes = Vec::new();
        }
        self.empty();
        self.sent = 0;
        self.parts_sent = 0;
        self.part_sent = 0;
    }

    /// The header of an answer that was accepted and succeeded.
    #[inline]
    pub(super) fn begin(&mut self, xid: u32) {
        self.empty();
        // MSG_ACCEPTED, no verifier and SUCCESS are zeros.
        let mut head = [0; HEADER_BYTES];
        let words = &mut head[RecordMark::LEN..];
        words[..4].copy_from_slice(&xid.to_be_bytes());
        words[4..8].copy_from_slice(&(msg_type::REPLY as u32).to_be_bytes());
        self.bytes.extend_from_slice(&head);
        self.results_at = HEADER_BYTES;
    }

    /// The same with a verifier of RPCSEC_GSS, and `ahead` zeros before the results.
    pub(super) fn begin_verified(&mut self, xid: u32, mic: &[u8], ahead: usize) {
        self.begin_accepted(xid, Some(mic));
        accept_stat::SUCCESS.encode(&mut self.bytes);
        self.results_at = self.bytes.len() + ahead;
        self.bytes.resize(self.results_at, 0);
    }

    /// What was appended since [`Reply::begin_verified`], with the zeros before it.
    pub(super) fn protected(&mut self, ahead: usize) -> (&mut Vec<u8>, usize) {
        debug_assert!(self.parts.is_empty(), "payload was gathered");
        // What is protected can be placed no more.
        self.items.clear();
        (&mut self.bytes, self.results_at - ahead)
    }

    #[inline]
    fn empty(&mut self) {
        self.bytes.clear();
        self.parts.clear();
        self.items.clear();
        self.payload_bytes = 0;
    }

    fn begin_as(&mut self, xid: u32, stat: reply_stat) {
        self.empty();
        let to = &mut self.bytes;
        to.extend_from_slice(&[0; RecordMark::LEN]);
        xid.encode(to);
        msg_type::REPLY.encode(to);
        stat.encode(to);
    }

    fn begin_accepted(&mut self, xid: u32, mic: Option<&[u8]>) {
        self.begin_as(xid, reply_stat::MSG_ACCEPTED);
        let verifier = match mic {
            None => opaque_auth {
                flavor: AUTH_NONE,
                body: Opaque(&[]),
            },
            Some(mic) => opaque_auth {
                flavor: RPCSEC_GSS,
                body: Opaque(mic),
            },
        };
        verifier.encode(&mut self.bytes);
    }

    /// The answer to a client that asks for TLS: it begins (RFC 9289, section 4.1).
    pub(super) fn starttls(&mut self, xid: u32) {
        self.begin_as(xid, reply_stat::MSG_ACCEPTED);
        let verifier = opaque_auth {
            flavor: AUTH_NONE,
            body: Opaque(STARTTLS),
        };
        verifier.encode(&mut self.bytes);
        accept_stat::SUCCESS.encode(&mut self.bytes);
    }

    /// An answer without results; with a verifier of RPCSEC_GSS, if there is one.
    pub(super) fn accepted(&mut self, xid: u32, body: accepted_body, mic: Option<&[u8]>) {
        self.begin_accepted(xid, mic);
        body.encode(&mut self.bytes);
    }

    /// The answer to a call that is denied.
    pub(super) fn denied(&mut self, xid: u32, why: rejected_reply) {
        self.begin_as(xid, reply_stat::MSG_DENIED);
        why.encode(&mut self.bytes);
    }

    /// Writes the record mark: nothing is appended any more.
    #[inline]
    pub(super) fn seal(&mut self) {
        let mark = RecordMark {
            is_last: true,
            len: self.record_bytes(),
        };
        self.bytes[..RecordMark::LEN].copy_from_slice(&mark.encode());
    }

    /// Hands on what fits; whether that was all.
    #[inline]
    pub(super) fn transmit(&mut self, out: &mut impl Transmit) -> bool {
        loop {
            let part = self.parts.get(self.parts_sent);
            let end = part.map_or(self.bytes.len(), |part| part.at as usize);
            if self.sent == end && part.is_none() {
                return true;
            }
            if !out.has_room() {
                return false;
            }
            let next = end.min(self.sent + CHUNK_BYTES);
            if next > self.sent {
                out.header(&self.bytes[self.sent..next]);
                self.sent = next;
            }
            if let (true, Some(part)) = (next == end, part) {
                let (begin, left) = (part.offset + self.part_sent, part.len - self.part_sent);
                if left > DATA_BYTES {
                    out.payload(part.tag, begin, DATA_BYTES, Tail::default());
                    self.part_sent += DATA_BYTES;
                    continue;
                }
                let tail = Tail::padded(part.len, false);
                out.payload(part.tag, begin, left, tail);
                self.parts_sent += 1;
                self.part_sent = 0;
            }
        }
    }
}

/// Bytes before the results of a call that succeeded: the mark, then xid, type,
/// status, verifier, status.
const HEADER_BYTES: usize = RecordMark::LEN + 24;

/// An answer that is none of the procedure's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Accepted(accepted_body),
    Denied(rejected_reply),
}

impl Refusal {
    /// The security context of the call is good no more (RFC 2203, section 5.3.3.4).
    pub(super) const NO_CONTEXT: Refusal =
        Refusal::Denied(rejected_reply::AUTH_ERROR(auth_stat::RPCSEC_GSS_CTXPROBLEM));

    pub(super) fn auth(why: auth_stat) -> Refusal {
        Refusal::Denied(rejected_reply::AUTH_ERROR(why))
    }

    pub(super) fn versions(low: u32, high: u32) -> Refusal {
        Refusal::Accepted(accepted_body::PROG_MISMATCH(mismatch_info { low, high }))
    }

    pub(super) fn stat(why: accept_stat) -> Refusal {
        Refusal::Accepted(accepted_body::default(why))
    }
}
