//! FPDUs from the peer: every claim of a header is checked before its payload is taken, and
//! nothing of it is told before its CRC.

use machine::inbound::Walk;
use machine::{Step, Tag, Tail, crc32c, work};
use wire::iwarp::{
    ReadRequest, TaggedFpdu, TerminateCode, TerminateControl, UntaggedFpdu, ddp_control, opcode,
    queue, rdmap_control,
};
use zerocopy::{FromBytes, IntoBytes};

use super::{DIRECT_MIN, Life, OWN_BYTES, Qp, QpError, QpOp, ReceivedSend};
use crate::mpa::Rtr;
use crate::stags::{Denied, RegisteredMemory, RemoteAccess};

/// Bytes of a CRC.
const CRC_LEN: usize = 4;
/// Bytes of ULPDU_Length.
const LENGTH_LEN: usize = 2;

/// What comes next in the FPDU that is arriving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FpduState {
    #[default]
    Header,
    /// `left` bytes for the machine above or for this one, then `body` others.
    Head { left: u32, body: u32 },
    /// `len` bytes for which the machine above names no place yet.
    Body { len: u32 },
    /// Payload, padding and CRC.
    Payload,
    /// `left` bytes that no memory gets, then the CRC, which alone decides whether `fault` or
    /// the transport is to blame.
    Judged {
        left: u32,
        crc: u32,
        fault: Option<TerminateCode>,
    },
}

/// The header of an FPDU.
#[derive(Clone, Copy, Debug)]
enum FpduHeader {
    Tagged(TaggedFpdu),
    Untagged(UntaggedFpdu),
}

impl FpduHeader {
    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            FpduHeader::Tagged(fpdu) => fpdu.as_bytes(),
            FpduHeader::Untagged(fpdu) => fpdu.as_bytes(),
        }
    }

    /// The control fields of DDP and of RDMAP.
    #[inline]
    fn control(&self) -> (u8, u8) {
        match self {
            FpduHeader::Tagged(fpdu) => (fpdu.ddp, fpdu.rdmap),
            FpduHeader::Untagged(fpdu) => (fpdu.ddp, fpdu.rdmap),
        }
    }
}

/// The segment of an FPDU.
#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    opcode: u8,
    /// Bytes of payload.
    len: u32,
    is_last: bool,
}

/// A message whose last segment has not come. Segments of others may not stand between its
/// own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenMessage {
    Send { opcode: u8 },
    Write { stag: u32, to: u64 },
    Response,
}

/// Where the body of the Send goes that is arriving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum BodyPlace {
    #[default]
    Unasked,
    Into(Tag),
    Dropped,
}

/// What is known of what the peer sends.
#[derive(Debug)]
pub(super) struct FpduReceiver {
    state: FpduState,
    /// Header of the FPDU that came last.
    header: Option<FpduHeader>,
    segment: Segment,
    /// CRC32C of the FPDU so far.
    crc: u32,
    open: Option<OpenMessage>,
    /// The head of the Send that is arriving, or the header of RDMAP.
    pub(super) head: Vec<u8>,
    /// Bytes of its body that the head takes too.
    head_room: u32,
    body: BodyPlace,
    pub(super) body_wanted: u32,
    /// All of the body lies in the staged bytes, with what follows it in its FPDU.
    body_is_staged: bool,
    /// The peer cuts data into small segments: it has an FPDU in each of TCP's.
    pub(super) is_cut_small: bool,
    /// Bytes of the Send so far.
    send_len: u32,
    /// Bytes of a Read Response for the machine above.
    pub(super) read_bytes: Vec<u8>,
    /// MSN of the next Send and of the next Read Request.
    send_msn: u32,
    read_msn: u32,
    /// Sends that the peer may send.
    pub(super) receives: u32,
}

impl Default for FpduReceiver {
    fn default() -> FpduReceiver {
        FpduReceiver {
            state: FpduState::Header,
            header: None,
            segment: Segment::default(),
            crc: 0,
            open: None,
            head: Vec::new(),
            head_room: 0,
            body: BodyPlace::Unasked,
            body_wanted: 0,
            body_is_staged: false,
            is_cut_small: false,
            send_len: 0,
            read_bytes: Vec::new(),
            send_msn: 1,
            read_msn: 1,
            receives: 0,
        }
    }
}

impl FpduReceiver {
    /// Whether the machine above must say where bytes go.
    pub(super) fn awaits_body(&self) -> bool {
        matches!(self.state, FpduState::Body { .. })
    }

    /// Bytes of the body, if all of it is staged.
    pub(super) fn staged_body(&self) -> Option<u32> {
        let is_staged = self.body_is_staged;
        is_staged.then(|| self.send_len - self.head.len() as u32)
    }

    /// Nothing is asked of the machine above any more.
    pub(super) fn stop(&mut self) {
        self.state = FpduState::Header;
    }

    /// The body that goes to the data of `tag` is passed over.
    pub(super) fn abandon(&mut self, tag: Tag) {
        if self.body == BodyPlace::Into(tag) {
            self.body = BodyPlace::Dropped;
        }
    }

    /// Whether an RDMA Write to `stag` is arriving.
    pub(super) fn writes_to(&self, stag: u32) -> bool {
        self.state == FpduState::Payload
            && self.segment.opcode == opcode::WRITE
            && self.tagged().stag.get() == stag
    }

    /// The header of a tagged segment that is arriving or has come.
    #[inline]
    fn tagged(&self) -> &TaggedFpdu {
        match &self.header {
            Some(FpduHeader::Tagged(fpdu)) => fpdu,
            _ => panic!("the segment is not tagged"),
        }
    }

    /// The same of an untagged one.
    #[inline]
    fn untagged(&self) -> &UntaggedFpdu {
        match &self.header {
            Some(FpduHeader::Untagged(fpdu)) => fpdu,
            _ => panic!("the segment is tagged"),
        }
    }

    #[inline]
    fn header_bytes(&self) -> &[u8] {
        self.header.as_ref().map_or(&[], FpduHeader::bytes)
    }

    /// What of the header of the FPDU in error a Terminate with `code` tells: nothing where
    /// it could not be read (RFC 5040, section 4.8).
    pub(super) fn copied_header(&self, code: TerminateCode) -> Vec<u8> {
        let is_unread = matches!(
            code,
            TerminateCode::TAGGED_VERSION
                | TerminateCode::UNTAGGED_VERSION
                | TerminateCode::DDP_CATASTROPHIC
        );
        if is_unread || code.layer > 1 {
            return Vec::new();
        }
        let mut header = self.header_bytes().to_vec();
        // A Remote Protection Error is found when all of the Read Request is there.
        if (code.layer, code.etype) == (0, 1) && self.segment.opcode == opcode::READ_REQUEST {
            header.extend_from_slice(&self.head);
        }
        header
    }

    /// What follows the payload of the FPDU.
    #[inline]
    fn tail(&self, has_crc: bool) -> Tail {
        let pad = (self.header_bytes().len() as u32 + self.segment.len).wrapping_neg() % 4;
        match has_crc {
            true => Tail {
                pad: pad as u8,
                digest: Some(self.crc),
            },
            // The field is there, and nothing checks it (RFC 5044, section 4.4).
            false => Tail {
                pad: pad as u8 + CRC_LEN as u8,
                digest: None,
            },
        }
    }
}

impl Qp {
    /// Bytes behind the FPDU that is arriving of its message, where that goes on into memory:
    /// of an RDMA Write at most, up to the end of the region.
    #[inline]
    pub(super) fn tagged_left(&self) -> Option<u64> {
        match self.receiver.open? {
            OpenMessage::Write { stag, .. } if self.stags.bytes(stag).is_some() => None,
            OpenMessage::Write { stag, to } => {
                let end = |memory: &RegisteredMemory| memory.to + u64::from(memory.len);
                let end = self.stags.find(stag).map_or(u64::MAX, end);
                // A segment of no bytes may name any place.
                Some(end.saturating_sub(to))
            }
            OpenMessage::Response if !self.receiver.read_bytes.is_empty() => None,
            OpenMessage::Response => self.sender.read_left(),
            OpenMessage::Send { .. } => None,
        }
    }

    /// Takes what `staged[*at..]` holds; `None`: a notice, or nothing more for now. Very many
    /// FPDUs of which nothing is told are for more than one turn.
    #[inline]
    pub(super) fn walk(&mut self, staged: &[u8], at: &mut usize) -> Option<Step<QpOp>> {
        while self.notice.is_none() && self.life != Life::Ended {
            match self.receiver.state {
                FpduState::Header if work::is_used_up() => return None,
                FpduState::Header => *at += self.fpdu(&staged[*at..])?,
                FpduState::Head { left, body } => self.take_head(left, body, staged, at)?,
                FpduState::Body { .. } => return None,
                FpduState::Payload => match self.inbound.walk(staged, at) {
                    Walk::More => return None,
                    Walk::Step(step) => return Some(step),
                    Walk::Data { is_intact, .. } => self.fpdu_is_here(is_intact),
                    Walk::Text { is_intact } => {
                        if is_intact {
                            self.keep_text();
                        }
                        self.fpdu_is_here(is_intact);
                    }
                    // Of data that was abandoned, whose CRC nothing can tell.
                    Walk::Header => self.fpdu_is_here(true),
                },
                FpduState::Judged { left, crc, fault } => {
                    self.judge((left, crc, fault), staged, at)?;
                }
            }
        }
        None
    }

    /// Keeps what has come for the machine above; where that is in its memory was checked.
    fn keep_text(&mut self) {
        let text = self.inbound.text();
        if self.receiver.segment.opcode == opcode::READ_RESPONSE {
            return self.receiver.read_bytes.extend_from_slice(text);
        }
        let TaggedFpdu { stag, to, .. } = *self.receiver.tagged();
        if let Some(bytes) = self.stags.bytes_mut(stag.get()) {
            let begin = to.get() as usize;
            let end = begin + text.len();
            bytes.resize(bytes.len().max(end), 0);
            bytes[begin..end].copy_from_slice(text);
        }
    }

    /// The header at the start of `bytes`: how many it has; `None`: more are needed.
    #[inline]
    fn fpdu(&mut self, bytes: &[u8]) -> Option<usize> {
        let (length, rest) = bytes.split_first_chunk::<LENGTH_LEN>()?;
        let ulpdu_len = u16::from_be_bytes(*length);
        let header_len = match rest.first() {
            None if ulpdu_len > 0 => return None,
            Some(ddp) if ddp & ddp_control::TAGGED == 0 => UntaggedFpdu::LEN,
            _ => TaggedFpdu::LEN,
        };
        let Some(len) = (LENGTH_LEN + usize::from(ulpdu_len)).checked_sub(header_len) else {
            let is_rtr = ulpdu_len == 0
                && self.life == Life::AwaitsFpdu
                && self.terms.rtr == Some(Rtr::Fpdu);
            let fault = (!is_rtr).then_some(TerminateCode::DDP_CATASTROPHIC);
            return Some(self.begin_judged(ulpdu_len, fault));
        };
        let header = match header_len {
            TaggedFpdu::LEN => FpduHeader::Tagged(TaggedFpdu::read_from_prefix(bytes).ok()?.0),
            _ => FpduHeader::Untagged(UntaggedFpdu::read_from_prefix(bytes).ok()?.0),
        };
        work::spend(1);
        self.fpdus_received += 1;
        self.receiver.header = Some(header);
        match self.segment(&header, len as u32) {
            Ok(destination) => {
                if let Some(len) = self.whole_send(bytes) {
                    return Some(len);
                }
                if self.terms.crc {
                    self.receiver.crc = crc32c(&bytes[..header_len], 0);
                }
                self.begin(destination);
                Some(header_len)
            }
            Err(fault) => Some(self.begin_judged(ulpdu_len, Some(fault))),
        }
    }

    /// Takes the FPDU at the start of `bytes`, if all of it is there and it is a whole Send that
    /// is no longer than a head: as most commands and responses are. How many bytes it has.
    #[inline]
    fn whole_send(&mut self, bytes: &[u8]) -> Option<usize> {
        let receiver = &mut self.receiver;
        let Segment {
            opcode,
            len,
            is_last,
        } = receiver.segment;
        let is_send = matches!(opcode, opcode::SEND..=opcode::SEND_SOLICITED_INVALIDATE);
        let is_head = len == receiver.send_len && len <= self.settings.head_max.into();
        if !is_send || !is_last || !is_head {
            return None;
        }
        let head_end = UntaggedFpdu::LEN + len as usize;
        let end = head_end.next_multiple_of(4);
        let received = bytes.get(end..)?.first_chunk::<CRC_LEN>()?;
        work::spend_bytes(len.into());
        receiver
            .head
            .extend_from_slice(&bytes[UntaggedFpdu::LEN..head_end]);
        let is_intact =
            !self.terms.crc || crc32c(&bytes[..end], 0) == u32::from_le_bytes(*received);
        self.fpdu_is_here(is_intact);
        Some(end + CRC_LEN)
    }

    /// Nothing of the FPDU goes anywhere. Where there are CRCs, its own comes before any
    /// other fault of it.
    #[cold]
    fn begin_judged(&mut self, ulpdu_len: u16, fault: Option<TerminateCode>) -> usize {
        match fault {
            Some(fault) if !self.terms.crc => self.terminate(fault),
            _ => {
                let left = (LENGTH_LEN as u32 + u32::from(ulpdu_len)).next_multiple_of(4);
                self.receiver.state = FpduState::Judged {
                    left,
                    crc: 0,
                    fault,
                };
            }
        }
        0
    }

    /// Passes over an FPDU of which `left` bytes are left, and decides at its end; `None`:
    /// more bytes are needed.
    #[cold]
    fn judge(
        &mut self,
        (mut left, mut crc, fault): (u32, u32, Option<TerminateCode>),
        staged: &[u8],
        at: &mut usize,
    ) -> Option<()> {
        let bytes = take(staged, at, left);
        crc = crc32c(bytes, crc);
        left -= bytes.len() as u32;
        self.receiver.state = FpduState::Judged { left, crc, fault };
        let received = staged[*at..].first_chunk::<CRC_LEN>();
        let received = received.filter(|_| left == 0)?;
        *at += CRC_LEN;
        self.receiver.state = FpduState::Header;
        if self.terms.crc && u32::from_le_bytes(*received) != crc {
            self.terminate(TerminateCode::CRC);
        } else if let Some(fault) = fault {
            self.terminate(fault);
        } else {
            self.life = Life::Live;
        }
        Some(())
    }

    /// Checks the header that has come of a segment with `len` bytes of payload, and where
    /// these may go.
    #[inline]
    fn segment(
        &mut self,
        header: &FpduHeader,
        len: u32,
    ) -> Result<Option<(Tag, u32)>, TerminateCode> {
        let (ddp, rdmap) = header.control();
        let is_tagged = ddp & ddp_control::TAGGED != 0;
        if ddp & ddp_control::VERSION_MASK != ddp_control::VERSION {
            return Err(match is_tagged {
                true => TerminateCode::TAGGED_VERSION,
                false => TerminateCode::UNTAGGED_VERSION,
            });
        }
        if rdmap & rdmap_control::VERSION_MASK != rdmap_control::VERSION {
            return Err(TerminateCode::RDMAP_VERSION);
        }
        let segment = Segment {
            opcode: rdmap & rdmap_control::OPCODE_MASK,
            len,
            is_last: ddp & ddp_control::LAST != 0,
        };
        self.receiver.segment = segment;
        let fpdu = match header {
            FpduHeader::Untagged(fpdu) => fpdu,
            FpduHeader::Tagged(fpdu) => {
                // The last has what is left.
                if len >= DIRECT_MIN || !segment.is_last {
                    self.receiver.is_cut_small = len < DIRECT_MIN;
                }
                return match segment.opcode {
                    opcode::WRITE => self.write_segment(fpdu, segment),
                    opcode::READ_RESPONSE => self.response_segment(fpdu, segment),
                    _ => Err(TerminateCode::UNEXPECTED_OPCODE),
                };
            }
        };
        let checked = match segment.opcode {
            opcode::SEND..=opcode::SEND_SOLICITED_INVALIDATE => self.send_segment(fpdu, segment),
            opcode::READ_REQUEST => self.read_request_segment(fpdu, segment),
            opcode::TERMINATE if fpdu.qn.get() != queue::TERMINATE => {
                Err(TerminateCode::QUEUE_NUMBER)
            }
            opcode::TERMINATE => {
                self.receiver.head.clear();
                Ok(())
            }
            _ => Err(TerminateCode::UNEXPECTED_OPCODE),
        };
        checked.map(|()| None)
    }

    /// A segment of an RDMA Write (RFC 5040, section 4.3): what has no bytes names no memory
    /// (RFC 5041, section 7.1).
    #[inline]
    fn write_segment(
        &mut self,
        fpdu: &TaggedFpdu,
        segment: Segment,
    ) -> Result<Option<(Tag, u32)>, TerminateCode> {
        let (stag, to) = (fpdu.stag.get(), fpdu.to.get());
        match self.receiver.open {
            None => {}
            Some(OpenMessage::Write { stag: of, .. }) if of != stag => {
                return Err(TerminateCode::SINK_STAG);
            }
            Some(OpenMessage::Write { to: next, .. }) if next != to => {
                return Err(TerminateCode::SINK_BOUNDS);
            }
            Some(OpenMessage::Write { .. }) => {}
            Some(_) => return Err(TerminateCode::UNEXPECTED_OPCODE),
        }
        let destination = match segment.len {
            0 => None,
            len => {
                let checked = self.stags.check(stag, to, len, RemoteAccess::WRITE);
                Some(checked.map_err(Denied::of_sink)?)
            }
        };
        self.receiver.open = (!segment.is_last).then_some(OpenMessage::Write {
            stag,
            to: to.wrapping_add(segment.len.into()),
        });
        Ok(destination)
    }

    /// A segment of the Read Response to the oldest Read Request (RFC 5040, section 4.5): it
    /// has exactly the bytes that were asked for.
    fn response_segment(
        &mut self,
        fpdu: &TaggedFpdu,
        segment: Segment,
    ) -> Result<Option<(Tag, u32)>, TerminateCode> {
        let is_expected = matches!(self.receiver.open, None | Some(OpenMessage::Response));
        let read = self.sender.oldest_read().filter(|_| is_expected);
        let read = read.ok_or(TerminateCode::UNEXPECTED_OPCODE)?;
        if read.stag != fpdu.stag.get() {
            return Err(TerminateCode::SINK_STAG);
        }
        let left = read.sink.len - read.received;
        let is_in_order = fpdu.to.get() == u64::from(read.received) && segment.len <= left;
        if !is_in_order || segment.is_last != (segment.len == left) {
            return Err(TerminateCode::SINK_BOUNDS);
        }
        let place = (read.sink.tag, read.sink.offset + read.received);
        let destination = read.is_wanted.then_some(place);
        if read.received == 0 {
            self.receiver.read_bytes.clear();
        }
        read.received += segment.len;
        if read.sink.tag != OWN_BYTES {
            self.sender.read_bytes -= u64::from(segment.len);
        }
        self.receiver.open = (!segment.is_last).then_some(OpenMessage::Response);
        Ok(destination)
    }

    /// A segment of a Send (RFC 5040, sections 4.6 and 4.7): in order within its message,
    /// which is in order within its queue and has a receive.
    #[inline]
    fn send_segment(&mut self, fpdu: &UntaggedFpdu, segment: Segment) -> Result<(), TerminateCode> {
        let receiver = &mut self.receiver;
        if fpdu.qn.get() != queue::SEND {
            return Err(TerminateCode::QUEUE_NUMBER);
        }
        let opcode = segment.opcode;
        let is_first = receiver.open.is_none();
        if !is_first && receiver.open != Some(OpenMessage::Send { opcode }) {
            return Err(TerminateCode::UNEXPECTED_OPCODE);
        }
        if fpdu.msn.get() != receiver.send_msn {
            return Err(TerminateCode::MSN_RANGE);
        }
        if is_first {
            if receiver.receives == 0 {
                return Err(TerminateCode::NO_BUFFER);
            }
            receiver.head.clear();
            receiver.head_room = 0;
            receiver.body = BodyPlace::Unasked;
            receiver.body_is_staged = false;
            receiver.send_len = 0;
        }
        if fpdu.mo.get() != receiver.send_len {
            return Err(TerminateCode::MESSAGE_OFFSET);
        }
        let len = receiver.send_len.checked_add(segment.len);
        let len = len.filter(|len| *len <= self.settings.send_max);
        receiver.send_len = len.ok_or(TerminateCode::MESSAGE_TOO_LONG)?;
        receiver.open = (!segment.is_last).then_some(OpenMessage::Send { opcode });
        Ok(())
    }

    /// An RDMA Read Request (RFC 5040, section 4.4), one segment. Its queue has as many
    /// buffers as the IRD says.
    fn read_request_segment(
        &mut self,
        fpdu: &UntaggedFpdu,
        segment: Segment,
    ) -> Result<(), TerminateCode> {
        let receiver = &mut self.receiver;
        if fpdu.qn.get() != queue::READ_REQUEST {
            return Err(TerminateCode::QUEUE_NUMBER);
        }
        if receiver.open.is_some() {
            return Err(TerminateCode::UNEXPECTED_OPCODE);
        }
        if fpdu.msn.get() != receiver.read_msn {
            return Err(TerminateCode::MSN_RANGE);
        }
        // A Read of length 0 as RTR is not one of the peer's Reads (RFC 6581).
        let is_rtr = self.life == Life::AwaitsFpdu && self.terms.rtr == Some(Rtr::Read);
        let reads_max = usize::from(self.terms.ird).max(usize::from(is_rtr));
        if self.sender.responses() >= reads_max {
            return Err(TerminateCode::NO_BUFFER);
        }
        if fpdu.mo.get() != 0 {
            return Err(TerminateCode::MESSAGE_OFFSET);
        }
        match segment.len as usize {
            0..ReadRequest::LEN => return Err(TerminateCode::UNSPECIFIED),
            ReadRequest::LEN if segment.is_last => {}
            _ => return Err(TerminateCode::MESSAGE_TOO_LONG),
        }
        receiver.head.clear();
        receiver.read_msn = receiver.read_msn.wrapping_add(1);
        Ok(())
    }

    /// The header of an FPDU was right: its payload goes to `destination`, or its first bytes
    /// to a machine.
    #[inline]
    fn begin(&mut self, destination: Option<(Tag, u32)>) {
        let Segment { opcode, len, .. } = self.receiver.segment;
        let head_max = match opcode {
            opcode::WRITE | opcode::READ_RESPONSE => 0,
            opcode::READ_REQUEST => ReadRequest::LEN,
            opcode::TERMINATE => TerminateControl::LEN,
            _ => {
                let of_body = self.receiver.head_room as usize;
                usize::from(self.settings.head_max) + of_body - self.receiver.head.len()
            }
        };
        let left = len.min(head_max as u32);
        if left > 0 {
            self.receiver.state = FpduState::Head {
                left,
                body: len - left,
            };
        } else if matches!(opcode, opcode::WRITE | opcode::READ_RESPONSE) {
            match destination {
                Some((OWN_BYTES, _)) => {
                    let tail = self.receiver.tail(self.terms.crc);
                    self.inbound.begin_text(len, tail);
                    self.receiver.state = FpduState::Payload;
                }
                Some((tag, offset)) => self.begin_payload(tag, offset, len, u32::MAX),
                None => self.begin_payload(0, 0, len, 0),
            }
        } else {
            self.begin_rest(len);
        }
    }

    /// Takes bytes of the head; `None`: more are needed.
    fn take_head(&mut self, left: u32, body: u32, staged: &[u8], at: &mut usize) -> Option<()> {
        let bytes = take(staged, at, left);
        work::spend_bytes(bytes.len() as u64);
        if self.terms.crc {
            self.receiver.crc = crc32c(bytes, self.receiver.crc);
        }
        self.receiver.head.extend_from_slice(bytes);
        let left = left - bytes.len() as u32;
        if left > 0 {
            self.receiver.state = FpduState::Head { left, body };
            return None;
        }
        let len = body + self.receiver.tail(self.terms.crc).bytes();
        let is_staged = staged.len() - *at >= len as usize;
        self.receiver.body_is_staged = self.receiver.segment.is_last && is_staged;
        self.begin_rest(body);
        Some(())
    }

    /// `len` bytes follow the head.
    fn begin_rest(&mut self, len: u32) {
        let is_body = len > 0 && self.receiver.segment.opcode != opcode::TERMINATE;
        match self.receiver.body {
            BodyPlace::Unasked if is_body => {
                self.receiver.state = FpduState::Body { len };
                self.notice = Some(QpOp::Body);
            }
            BodyPlace::Into(tag) if is_body => {
                let wanted = self.receiver.body_wanted;
                self.begin_payload(tag, self.body_start(len), len, wanted);
            }
            _ => self.begin_payload(0, 0, len, 0),
        }
    }

    /// Where `len` bytes of body begin that end what has come of the Send.
    fn body_start(&self, len: u32) -> u32 {
        self.receiver.send_len - len - self.receiver.head.len() as u32
    }

    #[inline]
    fn begin_payload(&mut self, tag: Tag, start: u32, len: u32, wanted: u32) {
        let tail = self.receiver.tail(self.terms.crc);
        self.inbound.begin(tag, start, len, wanted, tail);
        self.receiver.state = FpduState::Payload;
    }

    /// The machine above has said where the body goes.
    pub(super) fn begin_body(&mut self, tag: Option<Tag>) {
        if self.life == Life::Ended {
            return;
        }
        let FpduState::Body { len } = self.receiver.state else {
            panic!("no body was told of");
        };
        let Some(tag) = tag else {
            self.receiver.body = BodyPlace::Dropped;
            return self.begin_rest(len);
        };
        self.receiver.body = BodyPlace::Into(tag);
        let tail = self.receiver.tail(self.terms.crc);
        let start = self.body_start(len);
        self.inbound.begin_blocked(tag, start, len, tail);
        self.receiver.state = FpduState::Payload;
    }

    /// The machine above takes the body as bytes.
    pub(super) fn extend_head(&mut self, len_max: u32) {
        if self.life == Life::Ended {
            return;
        }
        let FpduState::Body { len } = self.receiver.state else {
            panic!("no body was told of");
        };
        self.receiver.body = BodyPlace::Dropped;
        self.receiver.head_room = len_max;
        let left = len.min(len_max);
        self.receiver.state = FpduState::Head {
            left,
            body: len - left,
        };
    }

    /// All of an FPDU has come.
    #[inline]
    fn fpdu_is_here(&mut self, is_intact: bool) {
        self.receiver.state = FpduState::Header;
        if !is_intact {
            return self.terminate(TerminateCode::CRC);
        }
        if self.life == Life::AwaitsFpdu {
            self.life = Life::Live;
        }
        let segment = self.receiver.segment;
        match segment.opcode {
            opcode::READ_REQUEST => self.read_requested(),
            opcode::TERMINATE => self.terminated(),
            opcode::WRITE => {
                let stag = self.receiver.tagged().stag.get();
                self.stags.note_written(stag, segment.len);
            }
            _ if !segment.is_last => {}
            opcode::READ_RESPONSE => {
                if let Some(sink) = self.sender.read_done(&mut self.stags) {
                    self.notice = Some(QpOp::ReadDone(sink));
                }
            }
            _ => self.send_is_here(segment.opcode),
        }
    }

    fn read_requested(&mut self) {
        let request = ReadRequest::read_from_bytes(&self.receiver.head).expect("its length");
        if request.size.get() > 0 {
            let (stag, to) = (request.source_stag.get(), request.source_to.get());
            let size = request.size.get();
            if let Err(denied) = self.stags.check(stag, to, size, RemoteAccess::READ) {
                return self.terminate(denied.of_source());
            }
        }
        self.sender.respond(request, *self.receiver.untagged());
    }

    #[cold]
    fn terminated(&mut self) {
        let control = TerminateControl::read_from_bytes(&self.receiver.head);
        let code = control.map_or(TerminateCode::UNSPECIFIED, TerminateCode::from);
        self.end(QpError::Received(code));
    }

    #[inline]
    fn send_is_here(&mut self, opcode: u8) {
        let invalidates = matches!(
            opcode,
            opcode::SEND_INVALIDATE | opcode::SEND_SOLICITED_INVALIDATE
        );
        let mut invalidated = None;
        if invalidates {
            let stag = self.receiver.untagged().invalidate_stag.get();
            // Sinks of Read Responses are no memory that the peer can name.
            let is_named = |memory: &RegisteredMemory| memory.access != RemoteAccess::NONE;
            if self.stags.remove_if(stag, is_named).is_none() {
                return self.terminate(TerminateCode::CANNOT_INVALIDATE);
            }
            invalidated = Some(stag);
        }
        let receiver = &mut self.receiver;
        receiver.receives -= 1;
        receiver.send_msn = receiver.send_msn.wrapping_add(1);
        self.notice = Some(QpOp::Received(ReceivedSend {
            body_len: receiver.send_len - receiver.head.len() as u32,
            tag: match receiver.body {
                BodyPlace::Into(tag) => Some(tag),
                BodyPlace::Unasked | BodyPlace::Dropped => None,
            },
            invalidated,
            is_solicited: opcode >= opcode::SEND_SOLICITED,
        }));
    }
}

/// Takes at most `max` bytes.
fn take<'a>(staged: &'a [u8], at: &mut usize, max: u32) -> &'a [u8] {
    let rest = &staged[*at..];
    let len = rest.len().min(max as usize);
    *at += len;
    &rest[..len]
}
