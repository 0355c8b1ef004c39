//! FPDUs to the peer: one message after the other, cut into segments.

use std::collections::VecDeque;

use machine::{Tag, Tail, Transmit, crc32c};
use wire::iwarp::{
    ReadRequest, TaggedFpdu, UntaggedFpdu, ddp_control, opcode, queue, rdmap_control,
};
use zerocopy::IntoBytes;

use super::Qp;
use crate::mpa::Rtr;
use crate::stags::{Denied, RegisteredMemory, RemoteAccess, Stags};

/// Bytes of a head that is sent, at most.
const HEAD_MAX: usize = 128;
/// Bytes of heads that were sent before the others move up.
const HEADS_SPENT_MAX: usize = 16384;
/// ULPDU_Length does not count itself.
const LENGTH_LEN: usize = 2;

/// In place of a command: bytes of the machine above. Where they are sent, its batch is told
/// of them as payload and writes them as header bytes. What is read there comes by
/// [`Qp::take_read_bytes`].
pub const OWN_BYTES: Tag = Tag::MAX;

/// Most header bytes of an FPDU, but for those of [`OWN_BYTES`]: headers, padding, CRC.
const FPDU_BYTES_MAX: usize = UntaggedFpdu::LEN + HEAD_MAX + 8;

/// A part of the data of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataPart {
    /// The command, or [`OWN_BYTES`].
    pub tag: Tag,
    /// First byte, counted from the start of the command's data.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
}

/// A message to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work<'a> {
    /// A Send (RFC 5040, section 4.6).
    Send {
        /// What it begins with: bytes of the machine above, 128 at most, which are copied.
        head: &'a [u8],
        /// What follows.
        body: DataPart,
        /// The peer's STag to invalidate.
        invalidate: Option<u32>,
        /// With a Solicited Event.
        is_solicited: bool,
        /// A tag that nothing names any more once the last byte of this message was named.
        release: Option<Tag>,
    },
    /// An RDMA Write (RFC 5040, section 4.3).
    Write {
        /// What is written.
        data: DataPart,
        /// The peer's STag.
        stag: u32,
        /// Tagged Offset of the first byte there.
        to: u64,
        /// A tag that nothing names any more once the last byte of this message was named.
        release: Option<Tag>,
    },
}

/// A [`Work`] that is posted.
#[derive(Clone, Copy, Debug)]
struct QueuedWork {
    kind: QueuedKind,
    data: DataPart,
    release: Option<Tag>,
}

#[derive(Clone, Copy, Debug)]
enum QueuedKind {
    Send {
        /// Bytes that it has at the front of [`Heads`].
        head_len: u8,
        /// The opcode with all that it says.
        opcode: u8,
        invalidate: u32,
    },
    Write {
        stag: u32,
        to: u64,
    },
}

impl QueuedWork {
    /// Bytes of the message.
    fn len(&self) -> u32 {
        match self.kind {
            QueuedKind::Send { head_len, .. } => u32::from(head_len) + self.data.len,
            QueuedKind::Write { .. } => self.data.len,
        }
    }
}

/// The heads of the Sends that are posted, one behind the other.
#[derive(Debug, Default)]
struct Heads {
    bytes: Vec<u8>,
    /// Where the first begins.
    begin: usize,
}

impl Heads {
    #[inline]
    fn push(&mut self, head: &[u8]) {
        assert!(head.len() <= HEAD_MAX, "a head of a Send is short");
        self.bytes.extend_from_slice(head);
    }

    /// The first, of `len` bytes.
    #[inline]
    fn first(&self, len: u8) -> &[u8] {
        &self.bytes[self.begin..][..usize::from(len)]
    }

    /// The first, of `len` bytes, is sent.
    #[inline]
    fn pop(&mut self, len: u8) {
        self.begin += usize::from(len);
        if self.begin == self.bytes.len() {
            self.bytes.clear();
            self.begin = 0;
        } else if self.begin >= HEADS_SPENT_MAX {
            self.bytes.drain(..self.begin);
            self.begin = 0;
        }
    }
}

/// A Read Request of this end whose response has not come.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRead {
    pub(super) stag: u32,
    pub(super) sink: DataPart,
    pub(super) received: u32,
    /// The machine above asked for it, and has not abandoned it: the RTR is this end's own.
    pub(super) is_wanted: bool,
}

/// A Read Request that waits for one before it to end.
#[derive(Clone, Copy, Debug)]
struct WaitingRead {
    sink: DataPart,
    source_stag: u32,
    source_to: u64,
}

/// The response to a Read Request of the peer, and the header of its FPDU.
#[derive(Clone, Copy, Debug)]
struct QueuedResponse {
    request: ReadRequest,
    fpdu: UntaggedFpdu,
}

/// Where the next message comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextMessage {
    Read,
    Response,
    Work,
}

/// What is to be sent.
#[derive(Debug)]
pub(super) struct FpduSender {
    works: VecDeque<QueuedWork>,
    heads: Heads,
    waiting: VecDeque<WaitingRead>,
    pending: VecDeque<PendingRead>,
    responses: VecDeque<QueuedResponse>,
    /// The message of which some segments were sent, and how many bytes of it.
    under_way: Option<NextMessage>,
    sent: u32,
    /// A response goes before other work: they take turns.
    responds_next: bool,
    /// MSN of the next Send and of the next Read Request.
    send_msn: u32,
    read_msn: u32,
    /// Bytes of Read Responses that have not come.
    pub(super) read_bytes: u64,
}

impl Default for FpduSender {
    fn default() -> FpduSender {
        FpduSender {
            works: VecDeque::new(),
            heads: Heads::default(),
            waiting: VecDeque::new(),
            pending: VecDeque::new(),
            responses: VecDeque::new(),
            under_way: None,
            sent: 0,
            responds_next: true,
            send_msn: 1,
            read_msn: 1,
            read_bytes: 0,
        }
    }
}

impl FpduSender {
    #[inline]
    pub(super) fn post(&mut self, work: Work<'_>) {
        self.works.push_back(match work {
            Work::Send {
                head,
                body,
                invalidate,
                is_solicited,
                release,
            } => {
                self.heads.push(head);
                QueuedWork {
                    kind: QueuedKind::Send {
                        head_len: head.len() as u8,
                        opcode: send_opcode(invalidate.is_some(), is_solicited),
                        invalidate: invalidate.unwrap_or(0),
                    },
                    data: body,
                    release,
                }
            }
            Work::Write {
                data,
                stag,
                to,
                release,
            } => QueuedWork {
                kind: QueuedKind::Write { stag, to },
                data,
                release,
            },
        });
    }

    pub(super) fn has_posted(&self) -> bool {
        !self.works.is_empty()
    }

    pub(super) fn read(&mut self, sink: DataPart, source_stag: u32, source_to: u64) {
        self.waiting.push_back(WaitingRead {
            sink,
            source_stag,
            source_to,
        });
    }

    /// A Read Request of the peer was right.
    pub(super) fn respond(&mut self, request: ReadRequest, fpdu: UntaggedFpdu) {
        self.responses.push_back(QueuedResponse { request, fpdu });
    }

    /// Read Requests of the peer whose response was not sent.
    pub(super) fn responses(&self) -> usize {
        self.responses.len()
    }

    /// The Read Request that the next response belongs to.
    pub(super) fn oldest_read(&mut self) -> Option<&mut PendingRead> {
        self.pending.front_mut()
    }

    /// Bytes of the oldest Read Response that have not begun to arrive.
    pub(super) fn read_left(&self) -> Option<u64> {
        let read = self.pending.front()?;
        Some(u64::from(read.sink.len - read.received))
    }

    /// What is read to the data of `tag` is passed over.
    pub(super) fn abandon(&mut self, tag: Tag) {
        self.waiting.retain(|read| read.sink.tag != tag);
        let pending = self.pending.iter_mut();
        for read in pending.filter(|read| read.sink.tag == tag) {
            read.is_wanted = false;
        }
    }

    /// Whether a response is to come that is passed over.
    pub(super) fn has_abandoned(&self) -> bool {
        self.pending.iter().any(|read| !read.is_wanted)
    }

    /// Read Requests whose response has not come.
    pub(super) fn reads_under_way(&self) -> u64 {
        self.pending.len() as u64
    }

    /// The oldest Read Request has its response: where that is, if the machine above asked.
    pub(super) fn read_done(&mut self, stags: &mut Stags) -> Option<DataPart> {
        let read = self.pending.pop_front()?;
        stags.remove(read.stag);
        read.is_wanted.then_some(read.sink)
    }

    /// Whether something may be sent.
    #[inline]
    pub(super) fn has_work(&self, ord: u16) -> bool {
        self.next(ord).is_some()
    }

    #[inline]
    fn next(&self, ord: u16) -> Option<NextMessage> {
        let has_read = !self.waiting.is_empty() && self.pending.len() < usize::from(ord);
        let has_response = !self.responses.is_empty();
        match self.under_way {
            Some(source) => Some(source),
            None if has_read => Some(NextMessage::Read),
            None if has_response && (self.responds_next || self.works.is_empty()) => {
                Some(NextMessage::Response)
            }
            None => (!self.works.is_empty()).then_some(NextMessage::Work),
        }
    }

    /// `len` bytes of a message go out now; its last if `is_last`.
    #[inline]
    fn advance(&mut self, source: NextMessage, len: u32, is_last: bool) {
        self.sent += len;
        self.under_way = Some(source);
        if is_last {
            self.sent = 0;
            self.under_way = None;
            self.responds_next = source == NextMessage::Work;
        }
    }

    /// The next Read Request.
    fn request(&mut self, read: WaitingRead, is_rtr: bool, stags: &mut Stags) -> ReadFpdu {
        let WaitingRead { sink, .. } = read;
        let memory = RegisteredMemory {
            tag: sink.tag,
            offset: sink.offset,
            len: sink.len,
            to: 0,
            access: RemoteAccess::NONE,
        };
        // Of no bytes it needs no memory, and 0 is as good as any STag.
        let stag = match sink.len {
            0 => 0,
            _ => stags.register(memory).expect("as many regions as tags"),
        };
        if sink.tag != OWN_BYTES {
            self.read_bytes += u64::from(sink.len);
        }
        self.pending.push_back(PendingRead {
            stag,
            sink,
            received: 0,
            is_wanted: !is_rtr,
        });
        let msn = self.read_msn;
        self.read_msn = msn.wrapping_add(1);
        ReadFpdu {
            fpdu: untagged(
                ReadRequest::LEN as u32,
                (opcode::READ_REQUEST, true),
                queue::READ_REQUEST,
                (msn, 0),
            ),
            request: ReadRequest {
                sink_stag: stag.into(),
                sink_to: 0.into(),
                size: sink.len.into(),
                source_stag: read.source_stag.into(),
                source_to: read.source_to.into(),
            },
        }
    }

    /// The first FPDU of an initiator, peer to peer (RFC 6581).
    pub(super) fn rtr(&mut self, rtr: Rtr, stags: &mut Stags, has_crc: bool) -> Vec<u8> {
        let mut bytes = match rtr {
            Rtr::Fpdu => vec![0; LENGTH_LEN],
            Rtr::Write => tagged(0, (opcode::WRITE, true), 0, 0).as_bytes().to_vec(),
            Rtr::Read => {
                let read = WaitingRead {
                    sink: DataPart::default(),
                    source_stag: 0,
                    source_to: 0,
                };
                let ReadFpdu { fpdu, request } = self.request(read, true, stags);
                [fpdu.as_bytes(), request.as_bytes()].concat()
            }
        };
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let crc = if has_crc { crc32c(&bytes, 0) } else { 0 };
        bytes.extend(crc.to_le_bytes());
        bytes
    }
}

/// An RDMA Read Request in its FPDU.
struct ReadFpdu {
    fpdu: UntaggedFpdu,
    request: ReadRequest,
}

/// The header of a segment with `len` bytes: of opcode `kind.0`, the last if `kind.1`.
#[inline]
fn tagged(len: u32, kind: (u8, bool), stag: u32, to: u64) -> TaggedFpdu {
    TaggedFpdu {
        ulpdu_len: ((TaggedFpdu::LEN - LENGTH_LEN) as u16 + len as u16).into(),
        ddp: ddp_control::TAGGED | control(kind),
        rdmap: rdmap_control::VERSION | kind.0,
        stag: stag.into(),
        to: to.into(),
    }
}

/// The same of an untagged segment.
#[inline]
fn untagged(len: u32, kind: (u8, bool), qn: u32, (msn, mo): (u32, u32)) -> UntaggedFpdu {
    UntaggedFpdu {
        ulpdu_len: ((UntaggedFpdu::LEN - LENGTH_LEN) as u16 + len as u16).into(),
        ddp: control(kind),
        rdmap: rdmap_control::VERSION | kind.0,
        invalidate_stag: 0.into(),
        qn: qn.into(),
        msn: msn.into(),
        mo: mo.into(),
    }
}

fn control((_, is_last): (u8, bool)) -> u8 {
    ddp_control::VERSION | if is_last { ddp_control::LAST } else { 0 }
}

impl Qp {
    /// Sends one FPDU; `false`: nothing may be sent, or the stream has ended.
    #[inline]
    pub(super) fn send_fpdu(&mut self, out: &mut impl Transmit) -> bool {
        match self.sender.next(self.terms.ord) {
            None => return false,
            Some(NextMessage::Read) => {
                let read = self.sender.waiting.pop_front().expect("it was looked at");
                let ReadFpdu { fpdu, request } = self.sender.request(read, false, &mut self.stags);
                self.put(
                    out,
                    fpdu.as_bytes(),
                    request.as_bytes(),
                    DataPart::default(),
                );
            }
            Some(NextMessage::Response) => return self.send_response(out),
            Some(NextMessage::Work) => self.send_work(out),
        }
        true
    }

    /// How many of `left` bytes go into a segment behind a header of `header_len` bytes:
    /// of several, all but the last have a multiple of 8.
    #[inline]
    fn segment_len(&self, left: u32, header_len: usize) -> u32 {
        let room = u32::from(self.settings.ulpdu_max) - (header_len - LENGTH_LEN) as u32;
        if left <= room { left } else { room & !7 }
    }

    /// The same of the data of `tag`, as much as the batch has room for.
    #[inline]
    fn work_len(&self, left: u32, header_len: usize, tag: Tag, out: &impl Transmit) -> u32 {
        let len = self.segment_len(left, header_len);
        let room = match tag {
            OWN_BYTES => (out.header_room() - FPDU_BYTES_MAX) as u32,
            _ => u32::MAX,
        };
        if len <= room { len } else { room & !7 }
    }

    /// A segment of a Read Response. The memory is looked at again: it may have been
    /// invalidated since the Request came.
    fn send_response(&mut self, out: &mut impl Transmit) -> bool {
        let QueuedResponse { request, fpdu } =
            *self.sender.responses.front().expect("it was there");
        let sent = self.sender.sent;
        let left = request.size.get() - sent;
        let source = match left {
            0 => Ok((0, 0)),
            _ => {
                let to = request.source_to.get().wrapping_add(sent.into());
                let stag = request.source_stag.get();
                self.stags.check(stag, to, left, RemoteAccess::READ)
            }
        };
        let (tag, offset) = match source {
            Ok(source) => source,
            Err(denied) => {
                let header = [fpdu.as_bytes(), request.as_bytes()].concat();
                self.terminate_with(Denied::of_source(denied), header);
                return false;
            }
        };
        let len = self.work_len(left, TaggedFpdu::LEN, tag, out);
        let header = tagged(
            len,
            (opcode::READ_RESPONSE, len == left),
            request.sink_stag.get(),
            request.sink_to.get().wrapping_add(sent.into()),
        );
        match self.stags.bytes(request.source_stag.get()) {
            Some(bytes) if len > 0 => {
                let bytes = &bytes[offset as usize..][..len as usize];
                self.put_bytes(out, header.as_bytes(), bytes);
            }
            _ => self.put(out, header.as_bytes(), &[], DataPart { tag, offset, len }),
        }
        self.sender.advance(NextMessage::Response, len, len == left);
        if len == left {
            self.sender.responses.pop_front();
        }
        true
    }

    /// A segment of a Send or an RDMA Write.
    #[inline]
    fn send_work(&mut self, out: &mut impl Transmit) {
        let work = *self.sender.works.front().expect("it was looked at");
        let (sent, left) = (self.sender.sent, work.len() - self.sender.sent);
        let header_len = match work.kind {
            QueuedKind::Write { .. } => TaggedFpdu::LEN,
            QueuedKind::Send { .. } => UntaggedFpdu::LEN,
        };
        let len = self.work_len(left, header_len, work.data.tag, out);
        let is_last = len == left;
        match work.kind {
            QueuedKind::Write { stag, to } => {
                let to = to.wrapping_add(sent.into());
                let header = tagged(len, (opcode::WRITE, is_last), stag, to);
                let data = DataPart {
                    offset: work.data.offset + sent,
                    len,
                    ..work.data
                };
                self.put(out, header.as_bytes(), &[], data);
            }
            QueuedKind::Send {
                head_len,
                opcode,
                invalidate,
            } => {
                let place = (self.sender.send_msn, sent);
                let mut header = untagged(len, (opcode, is_last), queue::SEND, place);
                header.invalidate_stag = invalidate.into();
                let head = self.sender.heads.first(head_len);
                let head = &head[(sent as usize).min(head.len())..];
                let head = &head[..head.len().min(len as usize)];
                let body = DataPart {
                    offset: work.data.offset + sent.saturating_sub(head_len.into()),
                    len: len - head.len() as u32,
                    ..work.data
                };
                self.put(out, header.as_bytes(), head, body);
            }
        }
        self.sender.advance(NextMessage::Work, len, is_last);
        if is_last {
            self.sender.works.pop_front();
            if let QueuedKind::Send { head_len, .. } = work.kind {
                self.sender.heads.pop(head_len);
                self.sender.send_msn = self.sender.send_msn.wrapping_add(1);
            }
            if let Some(tag) = work.release {
                out.release(tag);
            }
        }
    }

    /// Writes an FPDU: `header` and `head` as bytes, `payload` as a name.
    // The lengths of headers are known where it stands.
    #[inline(always)]
    fn put(&self, out: &mut impl Transmit, header: &[u8], head: &[u8], payload: DataPart) {
        let pad = (header.len() + head.len()).wrapping_neg() as u32;
        let pad = pad.wrapping_sub(payload.len) as usize % 4;
        out.header(header);
        out.header(head);
        let crc = self.terms.crc.then(|| {
            let mut bytes = [0; FPDU_BYTES_MAX];
            let head_end = header.len() + head.len();
            bytes[..header.len()].copy_from_slice(header);
            bytes[header.len()..head_end].copy_from_slice(head);
            let zeros = if payload.len > 0 { 0 } else { pad };
            crc32c(&bytes[..head_end + zeros], 0)
        });
        if payload.len > 0 {
            let tail = Tail {
                pad: pad as u8 + if crc.is_none() { 4 } else { 0 },
                digest: crc,
            };
            return out.payload(payload.tag, payload.offset, payload.len, tail);
        }
        out.header(&[0; 3][..pad]);
        out.header(&crc.unwrap_or(0).to_le_bytes());
    }

    /// The same with payload that is `bytes` of this end.
    fn put_bytes(&self, out: &mut impl Transmit, header: &[u8], bytes: &[u8]) {
        out.header(header);
        out.header(bytes);
        let pad = &[0; 3][..(header.len() + bytes.len()).wrapping_neg() % 4];
        out.header(pad);
        let crc = match self.terms.crc {
            true => crc32c(pad, crc32c(bytes, crc32c(header, 0))),
            false => 0,
        };
        out.header(&crc.to_le_bytes());
    }
}

fn send_opcode(invalidates: bool, is_solicited: bool) -> u8 {
    match (invalidates, is_solicited) {
        (false, false) => opcode::SEND,
        (true, false) => opcode::SEND_INVALIDATE,
        (false, true) => opcode::SEND_SOLICITED,
        (true, true) => opcode::SEND_SOLICITED_INVALIDATE,
    }
}
