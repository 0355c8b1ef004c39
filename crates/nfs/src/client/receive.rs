//! The way of the bytes that come: record marks off, messages into one buffer,
//! the data of READs to its memory.

use machine::inbound::{Inbound as Payload, Walk};
use machine::{Direct, Step, Tag, Tail};
use wire::nfs4::{READ4resok, compound_res_head, nfs_opnum4, nfs_resop4, nfsstat4};
use wire::rpc::{RecordMark, accept_stat, accepted_body, accepted_reply, msg_type, reply_body};
use wire::xdr::{Decode, Reader, XdrError, pad};

use super::answer::RpcRefused;
use super::connection::{ClientConnection, ClientOp};
use super::fatal::RpcClientFatalError;

/// Fragments of one record.
const FRAGMENTS_MAX: u32 = 1024;
/// Bytes that are looked at first, where what comes next came in pieces.
const PIECE_BYTES: usize = 64;
/// Capacity that the buffer of messages keeps.
const KEEP_BYTES: usize = 1 << 20;

/// What comes next of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RecordPart {
    /// Its transaction identifier and type.
    #[default]
    Head,
    /// The header of RPC and that of a COMPOUND's results.
    Answer,
    /// A result: so many are left.
    Results(u32),
    /// Bytes of the message.
    Rest,
    /// They are skipped.
    Nothing,
}

/// What a record is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Message {
    #[default]
    Unknown,
    /// The answer to this call.
    Answer(Tag),
    /// A call of the server's.
    Call,
}

/// Where the stream stands.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    /// The record without its marks and without data that has memory.
    bytes: Vec<u8>,
    /// Up to where it has been understood.
    parsed: usize,
    part: RecordPart,
    message: Message,
    /// The record is over; what it was is kept until the next step.
    is_over: bool,
    /// Of the fragment that is arriving.
    left: u32,
    /// Whether that is the last of its record.
    is_last: bool,
    is_inside: bool,
    fragments: u32,
    record_bytes: u32,
    /// Data that the call has memory for.
    data_max: Option<u32>,
    data_len: u32,
    /// Data that arrives, and its padding.
    payload: Payload,
    /// The same, where it came protected.
    data: Vec<u8>,
    /// Where the arguments of a callback begin.
    callback_at: usize,
    /// Why there is no answer to the call.
    refusal: Option<RpcRefused>,
}

impl Inbound {
    /// Before the first byte of a stream.
    pub(super) fn restart(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        *self = Inbound {
            bytes,
            ..Inbound::default()
        };
        self.bytes.clear();
    }

    /// The message that the last step told of.
    #[inline]
    pub(super) fn message(&self) -> &[u8] {
        &self.bytes
    }

    #[inline]
    pub(super) fn is_placed(&self) -> bool {
        self.data_max.is_some()
    }

    #[inline]
    pub(super) fn data_len(&self) -> u32 {
        self.data_len
    }

    /// The message, to take its protection off.
    pub(super) fn message_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Data of READs that came protected.
    pub(super) fn data(&self) -> &[u8] {
        &self.data
    }

    /// Takes the data of READs out of a message that came protected, at most `data_max` bytes:
    /// what stays is as where data has gone to its memory.
    pub(super) fn take_data(&mut self, data_max: u32) -> Result<(), RpcClientFatalError> {
        let Inbound { bytes, data, .. } = self;
        data.clear();
        each_read(bytes, |bytes, at, len| {
            let len = len as usize;
            let end = (at + len + pad(len)).min(bytes.len());
            if data.len() + len > data_max as usize || end - at < len {
                return Err(RpcClientFatalError::Overrun);
            }
            data.extend_from_slice(&bytes[at..at + len]);
            bytes.drain(at..end);
            Ok(())
        })?;
        self.data_max = Some(data_max);
        self.data_len = self.data.len() as u32;
        Ok(())
    }

    /// A message has come, as a whole.
    pub(super) fn take_message(&mut self, message: &[u8]) {
        self.begin_record();
        self.bytes.extend_from_slice(message);
    }

    /// It is the answer to a call with memory for data of at most `data_max` bytes, of which
    /// `data_bytes` are there.
    pub(super) fn note_data(
        &mut self,
        data_max: u32,
        data_bytes: u32,
    ) -> Result<(), RpcClientFatalError> {
        self.data_max = Some(data_max);
        let mut found = 0u32;
        match common_read(&self.bytes) {
            Some((_, 1, len)) => found = len,
            _ => each_read(&mut self.bytes, |_, _, len| {
                found = found.saturating_add(len);
                Ok(())
            })?,
        }
        self.data_len = found;
        match found <= data_bytes.min(data_max) {
            true => Ok(()),
            false => Err(RpcClientFatalError::Chunk),
        }
    }

    /// Something has come in place of an answer.
    pub(super) fn refuse(&mut self, why: RpcRefused) {
        self.begin_record();
        self.refusal = Some(why);
    }

    pub(super) fn refusal(&self) -> Option<RpcRefused> {
        self.refusal
    }

    pub(super) fn set_callback(&mut self, at: usize) {
        self.callback_at = at;
    }

    pub(super) fn callback(&self) -> &[u8] {
        &self.bytes[self.callback_at..]
    }

    #[inline]
    pub(super) fn direct(&self) -> Option<Direct> {
        let payload = self.payload.direct()?;
        let len = payload.len.min(self.left);
        (len > 0).then_some(Direct { len, ..payload })
    }

    #[inline]
    pub(super) fn on_direct(&mut self, len: u32) {
        assert!(
            len == 0 || self.direct().is_some_and(|direct| len <= direct.len),
            "more than was planned"
        );
        self.left -= len;
        self.payload.on_direct(len);
    }

    /// `len` bytes of data and their padding follow.
    #[inline]
    fn begin_payload(&mut self, len: u32) {
        let Message::Answer(tag) = self.message else {
            unreachable!("only answers bring data");
        };
        let tail = Tail::padded(len, false);
        self.payload.begin(tag, self.data_len, len, u32::MAX, tail);
        self.data_len += len;
    }

    /// Takes data and its padding from what is staged of the fragment.
    #[inline]
    fn walk_payload(&mut self, staged: &[u8], at: &mut usize) -> Walk<ClientOp> {
        let begin = *at;
        let end = staged.len().min(begin + self.left as usize);
        let walk = self.payload.walk(&staged[..end], at);
        self.left -= (*at - begin) as u32;
        walk
    }

    #[inline]
    fn begin_fragment(&mut self, mark: RecordMark) -> Result<(), RpcClientFatalError> {
        self.fragments += 1;
        self.record_bytes = self.record_bytes.saturating_add(mark.len);
        self.is_inside = true;
        self.left = mark.len;
        self.is_last = mark.is_last;
        match self.fragments > FRAGMENTS_MAX {
            true => Err(RpcClientFatalError::Fragments),
            false => Ok(()),
        }
    }

    /// Another record begins.
    #[inline]
    fn begin_record(&mut self) {
        self.bytes.clear();
        if self.bytes.capacity() > KEEP_BYTES {
            self.bytes = Vec::new();
        }
        self.parsed = 0;
        self.part = RecordPart::Head;
        self.message = Message::Unknown;
        self.is_over = false;
        self.fragments = 0;
        self.record_bytes = 0;
        self.data_max = None;
        self.data_len = 0;
        self.data.clear();
        self.refusal = None;
    }
}

/// Calls `each` for the data of every READ in the message of an answer: where it begins, or
/// would, and its length. What `each` takes out of the message is not looked at.
fn each_read(
    message: &mut Vec<u8>,
    mut each: impl FnMut(&mut Vec<u8>, usize, u32) -> Result<(), RpcClientFatalError>,
) -> Result<(), RpcClientFatalError> {
    let (mut at, mut part) = (8, RecordPart::Answer);
    while let Some((len, item)) = read(part, message.get(at..).unwrap_or(&[])) {
        at += len;
        part = match (item, part) {
            (RecordPiece::Answer(results), _) => RecordPart::Results(results),
            (RecordPiece::Data(len), RecordPart::Results(left)) => {
                each(message, at, len)?;
                RecordPart::Results(left - 1)
            }
            (RecordPiece::Result, RecordPart::Results(left)) => RecordPart::Results(left - 1),
            _ => break,
        };
        if part == RecordPart::Results(0) {
            break;
        }
    }
    Ok(())
}

/// The number that lies at `at`.
#[inline]
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes(word.try_into().ok()?))
}

/// Behind xid and type: MSG_ACCEPTED, AUTH_NONE without bytes, SUCCESS, NFS4_OK,
/// no tag.
const COMMON: [u8; 24] = [0; 24];

/// An answer that begins as nearly all do whose READ comes behind operations of
/// [`fixed_bytes`]: where its data begins, the results that are left with this
/// one, and bytes of data.
#[inline]
fn common_read(bytes: &[u8]) -> Option<(usize, u32, u32)> {
    let begin = bytes.get(8..8 + COMMON.len())?;
    if begin != COMMON {
        return None;
    }
    let mut at = 8 + COMMON.len();
    let mut left = word(bytes, at)?;
    at += 4;
    while left > 0 {
        let number = word(bytes, at)?;
        if word(bytes, at + 4)? != nfsstat4::NFS4_OK as u32 {
            return None;
        }
        if number == nfs_opnum4::OP_READ as u32 {
            return Some((at + 16, left, word(bytes, at + 12)?));
        }
        at += 8 + fixed_bytes(number)?;
        left -= 1;
    }
    None
}

/// What a piece of a record turned out to be.
enum RecordPiece {
    Head(u32, msg_type),
    /// A COMPOUND's answer with so many results.
    Answer(u32),
    /// No COMPOUND was executed: what follows has no data.
    Refused,
    Result,
    /// A READ's, and so much data follows.
    Data(u32),
}

impl ClientConnection {
    #[inline]
    pub(super) fn receive(&mut self, staged: &[u8], at: &mut usize) -> Option<Step<ClientOp>> {
        loop {
            let inbound = &mut self.inbound;
            if !inbound.payload.is_at_header()
                && let Walk::Step(step) = inbound.walk_payload(staged, at)
            {
                return Some(step);
            }
            if !inbound.is_inside {
                let mark = staged.get(*at..*at + RecordMark::LEN)?;
                *at += RecordMark::LEN;
                if inbound.is_over {
                    inbound.begin_record();
                }
                let mark = RecordMark::decode(mark.try_into().expect("its length"));
                let begun = inbound.begin_fragment(mark);
                let is_long = self.inbound.record_bytes > self.record_bytes_max();
                let error = match begun {
                    Err(error) => Some(error),
                    Ok(()) => is_long.then_some(RpcClientFatalError::LongRecord),
                };
                if let Some(error) = error {
                    return Some(Step::Op(self.fail(error)));
                }
                continue;
            }
            if inbound.left == 0 {
                inbound.is_inside = false;
                if inbound.is_last
                    && let Some(op) = self.end_record()
                {
                    return Some(Step::Op(op));
                }
                continue;
            }
            let available = staged.len() - *at;
            if available == 0 {
                return None;
            }
            let chunk = &staged[*at..*at + available.min(inbound.left as usize)];
            match self.gather(chunk) {
                Ok(used) => {
                    *at += used;
                    self.inbound.left -= used as u32;
                }
                Err(error) => {
                    *at = staged.len();
                    return Some(Step::Op(self.fail(error)));
                }
            }
        }
    }

    /// Takes bytes of the message from `chunk`; how many.
    #[inline]
    fn gather(&mut self, chunk: &[u8]) -> Result<usize, RpcClientFatalError> {
        if self.inbound.part == RecordPart::Head
            && self.inbound.bytes.is_empty()
            && let Some(used) = self.gather_answer(chunk)
        {
            return Ok(used);
        }
        let Inbound {
            bytes,
            parsed,
            part,
            ..
        } = &mut self.inbound;
        match part {
            RecordPart::Rest => bytes.extend_from_slice(chunk),
            RecordPart::Nothing => {}
            RecordPart::Head | RecordPart::Answer | RecordPart::Results(_) => {
                let tail = bytes.len() - *parsed;
                let Some((len, item)) = next_item(*part, bytes, tail, chunk) else {
                    return Ok(chunk.len());
                };
                // What was looked at beyond the piece is taken when its turn comes.
                let used = len - tail;
                bytes.truncate(*parsed + tail);
                bytes.extend_from_slice(&chunk[..used]);
                *parsed += len;
                self.on_item(item)?;
                return Ok(used);
            }
        }
        Ok(chunk.len())
    }

    /// The same, of the common answers where they come in one piece: `None` where
    /// this is none.
    #[inline]
    fn gather_answer(&mut self, chunk: &[u8]) -> Option<usize> {
        let xid = word(chunk, 0)?;
        if word(chunk, 4)? != msg_type::REPLY as u32 {
            return None;
        }
        let (tag, data_max) = self.answered(xid)?;
        let (used, part, len) = match data_max {
            None => (chunk.len(), RecordPart::Rest, 0),
            Some(data_max) => {
                let (used, left, len) = common_read(chunk).filter(|(.., len)| *len <= data_max)?;
                (used, RecordPart::Results(left), len)
            }
        };
        let inbound = &mut self.inbound;
        inbound.message = Message::Answer(tag);
        inbound.data_max = data_max;
        inbound.bytes.extend_from_slice(&chunk[..used]);
        inbound.parsed = used;
        inbound.part = part;
        if let RecordPart::Results(_) = part {
            inbound.next_result();
        }
        if len > 0 {
            inbound.begin_payload(len);
        }
        Some(used)
    }

    #[inline]
    fn on_item(&mut self, item: RecordPiece) -> Result<(), RpcClientFatalError> {
        match item {
            RecordPiece::Head(xid, msg_type::REPLY) => {
                let found = self.answered(xid);
                let inbound = &mut self.inbound;
                inbound.part = match found {
                    // No call waits for it any more.
                    None => RecordPart::Nothing,
                    Some((tag, data_max)) => {
                        inbound.message = Message::Answer(tag);
                        inbound.data_max = data_max;
                        match data_max {
                            Some(_) => RecordPart::Answer,
                            None => RecordPart::Rest,
                        }
                    }
                };
            }
            RecordPiece::Head(_, msg_type::CALL) => {
                self.inbound.message = Message::Call;
                self.inbound.part = RecordPart::Rest;
            }
            RecordPiece::Answer(results) => self.inbound.part = RecordPart::Results(results),
            RecordPiece::Refused => self.inbound.part = RecordPart::Rest,
            RecordPiece::Result => self.inbound.next_result(),
            RecordPiece::Data(len) => {
                let inbound = &mut self.inbound;
                inbound.next_result();
                let data_max = inbound.data_max.unwrap_or(0);
                if len > data_max - inbound.data_len {
                    return Err(RpcClientFatalError::Overrun);
                }
                inbound.begin_payload(len);
            }
        }
        Ok(())
    }

    /// The last fragment is over.
    #[inline]
    fn end_record(&mut self) -> Option<ClientOp> {
        let inbound = &mut self.inbound;
        inbound.is_over = true;
        if !inbound.payload.is_at_header() {
            return Some(self.fail(RpcClientFatalError::NoMessage));
        }
        match inbound.message {
            Message::Answer(tag) if self.security.is_some() => self.finish_secured(tag),
            Message::Answer(tag) => Some(self.finish(tag)),
            Message::Call => match self.called() {
                Ok(op) => op,
                Err(error) => Some(self.fail(error)),
            },
            Message::Unknown if inbound.part == RecordPart::Nothing => None,
            Message::Unknown => Some(self.fail(RpcClientFatalError::NoMessage)),
        }
    }
}

impl Inbound {
    #[inline]
    fn next_result(&mut self) {
        self.part = match self.part {
            RecordPart::Results(left) if left > 1 => RecordPart::Results(left - 1),
            _ => RecordPart::Rest,
        };
    }
}

/// The next piece: how long it is, and what. `tail` bytes of it are at the end
/// of `bytes`, the rest in `chunk`; where that is not all, all of `chunk` goes to
/// `bytes`.
#[inline]
fn next_item(
    part: RecordPart,
    bytes: &mut Vec<u8>,
    tail: usize,
    chunk: &[u8],
) -> Option<(usize, RecordPiece)> {
    if tail == 0 {
        let item = read(part, chunk);
        if item.is_none() {
            bytes.extend_from_slice(chunk);
        }
        return item;
    }
    let begin = bytes.len() - tail;
    let mut pieces = chunk;
    while !pieces.is_empty() {
        let (piece, rest) = pieces.split_at(PIECE_BYTES.min(pieces.len()));
        bytes.extend_from_slice(piece);
        pieces = rest;
        let item = read(part, &bytes[begin..]);
        // A piece that cannot be read ends where it was first seen.
        if let Some((len, item)) = item {
            return Some((len.max(tail), item));
        }
    }
    None
}

/// Reads a piece; `None`: it is not all there.
#[inline]
fn read(part: RecordPart, bytes: &[u8]) -> Option<(usize, RecordPiece)> {
    let mut from = Reader::new(bytes);
    let item = match part {
        RecordPart::Head => u32::decode(&mut from)
            .and_then(|xid| msg_type::decode(&mut from).map(|kind| RecordPiece::Head(xid, kind))),
        RecordPart::Answer => answer(&mut from),
        _ => result(&mut from),
    };
    match item {
        Ok(item) => Some((from.position(), item)),
        Err(XdrError::Short) => None,
        // The reader of the answer finds the error.
        Err(_) => Some((0, RecordPiece::Refused)),
    }
}

/// Reads what stands before the results of a COMPOUND.
#[inline]
fn answer(from: &mut Reader<'_>) -> Result<RecordPiece, XdrError> {
    let reply_body::MSG_ACCEPTED(accepted_reply {
        body: accepted_body::default(accept_stat::SUCCESS),
        ..
    }) = reply_body::decode(from)?
    else {
        return Ok(RecordPiece::Refused);
    };
    let head = compound_res_head::decode(from)?;
    Ok(match head.results {
        0 => RecordPiece::Refused,
        results => RecordPiece::Answer(results),
    })
}

/// Bytes behind the status of a result that always has the same, where that is
/// among the common ones before a READ.
#[inline]
fn fixed_bytes(number: u32) -> Option<usize> {
    const SEQUENCE: u32 = nfs_opnum4::OP_SEQUENCE as u32;
    const PUTFH: u32 = nfs_opnum4::OP_PUTFH as u32;
    match number {
        SEQUENCE => Some(16 + 5 * 4),
        PUTFH => Some(0),
        _ => None,
    }
}

/// Reads one result, of READ up to its data.
#[inline]
fn result(from: &mut Reader<'_>) -> Result<RecordPiece, XdrError> {
    let mut result = *from;
    let number = nfs_opnum4::decode(&mut result)?;
    let status = u32::decode(&mut result)?;
    if status != nfsstat4::NFS4_OK as u32 {
        // It is the last, and has no data.
        return Ok(RecordPiece::Refused);
    }
    if number == nfs_opnum4::OP_READ {
        let read = READ4resok::decode(&mut result)?;
        *from = result;
        return Ok(RecordPiece::Data(read.data.len));
    }
    Ok(match nfs_resop4::decode(from)? {
        // What its contents are is told by themselves.
        nfs_resop4::OP_READ_PLUS(_) => RecordPiece::Refused,
        _ => RecordPiece::Result,
    })
}
