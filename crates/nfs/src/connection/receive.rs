//! The way of the bytes that come: record marks off, arguments into the
//! buffer of their call, data of WRITEs to its memory.

mod protected;

use machine::inbound::{Inbound as Payload, Walk};
use machine::{Direct, Step, Tag, Tail};
use wire::nfs3::nfs_proc3;
use wire::rpc::{RecordMark, accept_stat};
use wire::xdr::{Decode, Reader, XdrError, pad};

use self::protected::Unwrapped;
use super::credential::Credential;
use super::gss::GssCall;
use super::reply::Refusal;
use super::scan::{self, Header, Operation};
use super::slots::{CallState, RecordSlots};
use super::tls::TlsState;
use super::{Connection, Procedure, RpcServerFatalError, ServerOp, Stop};

/// Staging when small calls are expected.
const STAGE_LARGE: u32 = 256 << 10;
/// Staging before the first call: a client that sends half a header and waits
/// holds no more than this.
const STAGE_HANDSHAKE: u32 = 2048;
/// Staging when large WRITEs are expected: the rest of one call, and of the next
/// what stands before the data.
const STAGE_HEADERS: u32 = 512;
/// From so many bytes of data, a receive for each WRITE costs less than
/// copying.
const BULK_BYTES_MIN: u32 = 32 << 10;
/// So many calls without such data, and no more of it is expected.
const BULK_CALLS: u8 = 4;
/// Bytes of an operation that are looked at first, where it came in pieces.
const PIECE_BYTES: usize = 64;
/// Bytes of a transaction identifier.
const XID_BYTES: usize = 4;

/// What comes next of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RecordPart {
    #[default]
    Header,
    Compound,
    Operation,
    /// The number of an operation that is one too many.
    Last,
    /// The arguments of NFSv3's WRITE.
    Write3,
    /// All of it belongs to the record's buffer: of a call.
    Args,
    /// Likewise, of a call that RPCSEC_GSS protects.
    Protected,
    /// Likewise, of an answer.
    Rest,
    /// It is skipped.
    Nothing,
}

/// Where the stream stands.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    /// The record that is arriving.
    tag: Option<Tag>,
    part: RecordPart,
    /// Of the fragment that is arriving.
    left: u32,
    /// Whether that is the last of its record.
    is_last: bool,
    /// Within a fragment.
    is_inside: bool,
    record_bytes: u32,
    fragments: u32,
    /// Up to where the record's buffer has been read.
    parsed: usize,
    ops_left: u32,
    pub(super) refusal: Option<Refusal>,
    /// It asks for TLS, and gets it.
    pub(super) is_probe: bool,
    /// The call is not answered.
    is_dropped: bool,
    /// The arguments of a call that was protected: what is received follows them.
    unwrapped: Option<Unwrapped>,
    /// Those are walked.
    is_unwrapped: bool,
    /// The data of a WRITE, and its padding.
    payload: Payload,
    /// The data of WRITEs in this record.
    io_bytes: u32,
    /// What names the memory that its arguments wait for, and the bytes that they may
    /// have then.
    args_wanted: Option<(Tag, u32)>,
    /// Calls for which large data is expected.
    bulk: u8,
}

impl Inbound {
    /// Bytes of protected arguments.
    pub(super) fn unwrapped(&self, at: u32, len: u32) -> &[u8] {
        let unwrapped = self.unwrapped.as_ref().expect("a step has named them");
        &unwrapped.bytes[at as usize..(at + len) as usize]
    }

    /// Whether a record is walked that is all here.
    #[inline]
    pub(super) fn is_unwrapped(&self) -> bool {
        self.unwrapped.is_some()
    }

    #[inline]
    pub(super) fn is_blocked(&self) -> bool {
        self.args_wanted.is_some() || self.payload.is_blocked()
    }

    #[inline]
    pub(super) fn is_blocked_on(&self, tag: Tag) -> bool {
        let args = self.args_wanted.map(|(wanted, _)| wanted);
        args == Some(tag) || self.payload.is_blocked_on(tag)
    }

    /// Between two records.
    #[inline]
    pub(super) fn is_between(&self) -> bool {
        self.tag.is_none() && !self.is_inside
    }

    pub(super) fn prepared(&mut self, tag: Tag, slots: &mut RecordSlots) {
        assert!(self.is_blocked_on(tag), "prepared once");
        match self.args_wanted.take() {
            None => self.payload.unblock(tag, u32::MAX),
            Some((_, bytes)) => {
                let slot = &mut slots[self.tag.expect("inside a record")];
                slot.args_max = bytes;
                slot.args.reserve_exact(bytes as usize - slot.args.len());
            }
        }
    }

    /// Bytes that the record's buffer still has room for.
    #[inline]
    fn room(&self, slots: &RecordSlots) -> usize {
        match (self.part, self.tag) {
            (RecordPart::Nothing, _) | (_, None) => usize::MAX,
            (_, Some(tag)) => slots[tag].args_max as usize - slots[tag].args.len(),
        }
    }

    /// There is no memory for data or arguments.
    pub(super) fn refuse(&mut self, tag: Tag, slots: &mut RecordSlots) {
        assert!(self.is_blocked_on(tag), "refused once");
        if self.args_wanted.take().is_some() {
            self.skip_call(slots);
            return;
        }
        self.payload.discard();
        let call = self.tag.expect("data belongs to a call");
        let payloads = &mut slots[call].payloads;
        *payloads.last_mut().expect("it was announced") = None;
    }

    /// The call that is arriving finds no room for its arguments. Its first operation is
    /// there: there is data before those.
    #[cold]
    fn skip_call(&mut self, slots: &mut RecordSlots) {
        let slot = &mut slots[self.tag.expect("inside a record")];
        slot.ops = 0;
        slot.stop = Stop::Delay;
        self.part = RecordPart::Nothing;
    }

    #[inline]
    pub(super) fn direct(&self) -> Option<Direct> {
        if self.is_unwrapped {
            return None;
        }
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

    #[inline]
    pub(super) fn stage_max(&self, is_stranger: bool) -> u32 {
        match () {
            () if is_stranger => STAGE_HANDSHAKE,
            () if self.bulk > 0 => STAGE_HEADERS,
            () => STAGE_LARGE,
        }
    }

    /// Takes the data of a WRITE and its padding from what is staged of the fragment.
    #[inline]
    fn walk_payload(&mut self, staged: &[u8], at: &mut usize) -> Walk<ServerOp> {
        let begin = *at;
        let end = staged.len().min(begin + self.left as usize);
        let walk = self.payload.walk(&staged[..end], at);
        self.left -= (*at - begin) as u32;
        walk
    }
}

/// What stood between the transaction identifier and the arguments of the last
/// COMPOUND: in the next one there nearly always stands the same.
#[derive(Debug, Default)]
pub(super) struct Known {
    bytes: Vec<u8>,
    credential: Credential,
}

impl Known {
    fn note(&mut self, header: &[u8], credential: &Credential) {
        let bytes = header.get(XID_BYTES..).unwrap_or_default();
        if self.bytes != bytes {
            self.bytes.clear();
            self.bytes.extend_from_slice(bytes);
            self.credential.clone_from(credential);
        }
    }

    /// Where the arguments of a COMPOUND with the same header begin.
    #[inline]
    fn arguments(&self, record: &[u8]) -> Option<usize> {
        let begin = XID_BYTES + self.bytes.len();
        let is_it = begin > XID_BYTES && record.get(XID_BYTES..begin)? == self.bytes;
        is_it.then_some(begin)
    }
}

/// What a piece of a record turned out to be.
enum RecordPiece {
    Header(Header),
    Compound(u32),
    Operation(Operation),
    Write3(Write3),
}

/// An NFSv3 WRITE up to its data.
struct Write3 {
    handle_bytes: u32,
    offset: u64,
    len: u32,
}

impl Connection {
    /// Takes what was received, and before it what was protected in it.
    #[inline]
    pub(super) fn receive(&mut self, staged: &[u8], at: &mut usize) -> Option<Step<ServerOp>> {
        if self.tls == TlsState::Announced {
            return self.before_tls(&staged[*at..]);
        }
        loop {
            if self.inbound.unwrapped.is_some() {
                let step = self.walk_unwrapped();
                if step.is_some() || self.inbound.unwrapped.is_some() {
                    return step;
                }
            }
            let step = self.walk(staged, at);
            if step.is_some() || self.inbound.unwrapped.is_none() {
                return step;
            }
        }
    }

    /// Takes bytes up to the next step, or to the end of a protected record.
    #[inline]
    fn walk(&mut self, staged: &[u8], at: &mut usize) -> Option<Step<ServerOp>> {
        loop {
            let inbound = &mut self.inbound;
            if inbound.args_wanted.is_some() {
                return None;
            }
            if !inbound.payload.is_at_header() {
                match inbound.walk_payload(staged, at) {
                    Walk::Step(step) => return Some(step),
                    Walk::More if inbound.is_blocked() => return None,
                    Walk::More => {}
                    Walk::Data { .. } | Walk::Header => {
                        let tag = inbound.tag.expect("inside a record");
                        self.operation_is_here(tag);
                        continue;
                    }
                    Walk::Text { .. } => unreachable!("nothing was kept for the machine"),
                }
            }
            if !inbound.is_inside {
                if inbound.is_between() && self.is_full() {
                    return None;
                }
                let mark = staged.get(*at..*at + RecordMark::LEN)?;
                *at += RecordMark::LEN;
                let mark = mark.try_into().expect("its length");
                if let Err(error) = self.begin_fragment(RecordMark::decode(mark)) {
                    return Some(self.fail(error));
                }
                continue;
            }
            if inbound.left == 0 {
                inbound.is_inside = false;
                if inbound.is_last
                    && let Some(step) = self.end_record()
                {
                    return Some(step);
                }
                if self.inbound.unwrapped.is_some() {
                    return None;
                }
                continue;
            }
            let available = staged.len() - *at;
            if available == 0 {
                return None;
            }
            let room = inbound.room(&self.slots);
            if room == 0 {
                match self.want_args() {
                    Some(step) => return Some(step),
                    None => continue,
                }
            }
            let chunk = &staged[*at..*at + available.min(inbound.left as usize).min(room)];
            match self.gather(chunk, available) {
                Ok((used, step)) => {
                    *at += used;
                    if step.is_some() {
                        return step;
                    }
                }
                Err(error) => return Some(self.fail(error)),
            }
        }
    }

    /// A slot for a record that is arriving.
    #[inline]
    pub(super) fn take_slot(&mut self) -> Tag {
        let tag = self.slots.take(CallState::Gathering).expect("not full");
        let slot = &mut self.slots[tag];
        slot.args_max = self.settings.args_bytes_free();
        if slot.args.capacity() == 0 {
            slot.args = std::mem::take(&mut self.spare_args);
        }
        tag
    }

    #[inline]
    fn begin_fragment(&mut self, mark: RecordMark) -> Result<(), RpcServerFatalError> {
        if self.inbound.tag.is_none() {
            self.inbound = Inbound {
                tag: Some(self.take_slot()),
                bulk: self.inbound.bulk,
                ..Inbound::default()
            };
        }
        let inbound = &mut self.inbound;
        inbound.fragments += 1;
        inbound.record_bytes = inbound.record_bytes.saturating_add(mark.len);
        inbound.is_inside = true;
        inbound.left = mark.len;
        inbound.is_last = mark.is_last;
        if inbound.record_bytes > self.settings.record_bytes_max() {
            return Err(match mark.is_mpa_request() && !self.has_called {
                true => RpcServerFatalError::NoRdma,
                false => RpcServerFatalError::LongRecord,
            });
        }
        match inbound.fragments > self.settings.fragments_max {
            true => Err(RpcServerFatalError::Fragments),
            false => Ok(()),
        }
    }

    /// The arguments of a call are more than have room without asking.
    #[cold]
    fn want_args(&mut self) -> Option<Step<ServerOp>> {
        let call = self.inbound.tag.expect("inside a record");
        let more = match self.inbound.is_last {
            true => self.inbound.left,
            false => u32::MAX,
        };
        let args_max = self.slots[call].args_max;
        // Of a protected call all of its record comes here first.
        let is_protected = self.inbound.part == RecordPart::Protected;
        let most = match is_protected {
            true => self.settings.record_bytes_max(),
            false => self.settings.args_bytes_max,
        };
        let bytes = args_max.saturating_add(more).min(most);
        if bytes == args_max {
            return Some(self.fail(RpcServerFatalError::LongArguments));
        }
        // Only a call that has data needs a tag beside its own.
        let Some(tag) = self.data_tag(call) else {
            self.inbound.skip_call(&mut self.slots);
            return None;
        };
        self.inbound.args_wanted = Some((tag, bytes));
        // Its arguments are copied out of it, which data of WRITEs has other memory for.
        let copied = match is_protected {
            true => bytes.min(self.settings.args_bytes_max),
            false => 0,
        };
        let bytes = bytes + copied;
        Some(Step::Op(ServerOp::PrepareArgs { call, tag, bytes }))
    }

    /// Takes bytes of the record that is arriving from `chunk`, the rest of
    /// its fragment as far as it is staged. Says how many it took.
    #[inline]
    fn gather(
        &mut self,
        chunk: &[u8],
        available: usize,
    ) -> Result<(usize, Option<Step<ServerOp>>), RpcServerFatalError> {
        let tag = self.inbound.tag.expect("inside a record");
        let part = self.inbound.part;
        let parsed = self.inbound.parsed;
        let args = &mut self.slots[tag].args;
        if part == RecordPart::Header
            && args.is_empty()
            && let Some(begin) = self.known.arguments(chunk)
            && let Ok((len, ops)) = scan::compound(&chunk[begin..])
        {
            return Ok(self.gather_known(tag, chunk, available, (begin, begin + len, ops)));
        }
        if matches!(
            part,
            RecordPart::Args | RecordPart::Protected | RecordPart::Rest | RecordPart::Nothing
        ) {
            if part != RecordPart::Nothing {
                args.extend_from_slice(chunk);
            }
            let used = self.took(chunk.len());
            return Ok((used, None));
        }
        let tail = args.len() - parsed;
        // A whole piece is looked at where it lies; behind the beginning of one
        // that came before, some bytes more each time.
        let mut more = 0;
        let item = loop {
            let result = match tail {
                0 => read(part, chunk),
                _ => {
                    let piece = (PIECE_BYTES + more).min(chunk.len() - more);
                    args.extend_from_slice(&chunk[more..more + piece]);
                    more += piece;
                    read(part, &args[parsed..])
                }
            };
            match result {
                Ok(item) => break Some(item),
                Err(XdrError::Short) if tail > 0 && more < chunk.len() => {}
                Err(XdrError::Short) => break None,
                Err(_) if part == RecordPart::Header => return Err(RpcServerFatalError::NoMessage),
                Err(_) => return Ok((self.garbage(chunk.len()), None)),
            }
        };
        let Some((len, item)) = item else {
            if tail == 0 {
                args.extend_from_slice(chunk);
            }
            return Ok((self.took(chunk.len()), None));
        };
        // What was taken beyond the piece came with this chunk; only one that
        // cannot be read ends before that.
        let used = len.saturating_sub(tail);
        args.truncate(parsed + tail);
        args.extend_from_slice(&chunk[..used]);
        let used = self.took(used);
        self.inbound.parsed = parsed + len;
        let step = match item {
            RecordPiece::Header(header) => self.on_header(tag, header),
            RecordPiece::Compound(ops) => {
                self.inbound.ops_left = ops;
                self.next_operation(tag);
                None
            }
            RecordPiece::Operation(operation) => {
                self.on_operation(tag, parsed, operation, available - used)
            }
            RecordPiece::Write3(write) => self.on_write3(tag, parsed, &write, available - used),
        };
        Ok((used, step))
    }

    /// Takes the beginning of a COMPOUND whose header is known, and all of its
    /// common operations up to the data of a WRITE: `ops` of them begin at `at`.
    #[inline]
    fn gather_known(
        &mut self,
        tag: Tag,
        chunk: &[u8],
        available: usize,
        (args_at, mut at, ops): (usize, usize, u32),
    ) -> (usize, Option<Step<ServerOp>>) {
        let slot = &mut self.slots[tag];
        slot.xid = scan::word(chunk, 0).expect("it stands before the header");
        slot.procedure = Procedure::Compound;
        slot.credential.clone_from(&self.known.credential);
        slot.args_at = args_at as u32;
        let mut data = None;
        while slot.ops < ops.min(self.settings.ops_max)
            && let Some((len, operation)) = scan::common(&chunk[at..])
        {
            let begin = at;
            at += len;
            match operation {
                Operation::Whole(handle) => slot.took(begin, handle),
                Operation::Write { offset, len } => {
                    data = Some((offset, len));
                    break;
                }
                Operation::Stop(_) => unreachable!("what is common is executed"),
            }
        }
        slot.args.extend_from_slice(&chunk[..at]);
        self.inbound.ops_left = ops - slot.ops;
        self.inbound.parsed = at;
        self.has_come(Procedure::Compound);
        self.next_operation(tag);
        let used = self.took(at);
        let step =
            data.and_then(|(offset, len)| self.begin_payload(tag, offset, len, available - used));
        (used, step)
    }

    /// Bytes of the fragment have gone into the buffer of their record, or nowhere.
    #[inline]
    fn took(&mut self, len: usize) -> usize {
        self.inbound.left -= len as u32;
        len
    }

    /// Arguments are none: nothing of the record is of use.
    #[cold]
    fn garbage(&mut self, len: usize) -> usize {
        self.inbound.refusal = Some(Refusal::stat(accept_stat::GARBAGE_ARGS));
        self.inbound.part = RecordPart::Nothing;
        self.took(len)
    }

    #[inline]
    fn on_header(&mut self, tag: Tag, header: Header) -> Option<Step<ServerOp>> {
        let slot = &mut self.slots[tag];
        slot.args_at = self.inbound.parsed as u32;
        match header {
            Header::Call {
                xid,
                procedure,
                credential,
            } => {
                slot.xid = xid;
                slot.procedure = procedure;
                if procedure == Procedure::Compound {
                    self.known.note(&slot.args, &credential);
                }
                slot.credential = credential;
                self.inbound.part = arguments_of(procedure);
                self.has_come(procedure);
            }
            Header::Probe { xid } => {
                slot.xid = xid;
                self.inbound.part = RecordPart::Nothing;
                self.on_probe();
            }
            Header::Gss { xid } => {
                slot.xid = xid;
                self.on_gss_header(tag);
            }
            Header::Refused { xid, why } => {
                slot.xid = xid;
                self.inbound.refusal = Some(why);
                self.inbound.part = RecordPart::Nothing;
            }
            Header::Answer { xid } => {
                slot.xid = xid;
                slot.is_answer = true;
                let mut out = self.calls_out.iter_mut();
                let called = out.find(|(out, _)| *out == xid);
                self.inbound.part = match called {
                    Some((_, context)) => {
                        slot.gss = context.take().map(GssCall::InContext);
                        RecordPart::Rest
                    }
                    // It is not waited for any more.
                    None => RecordPart::Nothing,
                };
                self.forget_call(xid);
            }
        }
        None
    }

    #[inline]
    fn next_operation(&mut self, tag: Tag) {
        let inbound = &mut self.inbound;
        inbound.part = RecordPart::Operation;
        if inbound.ops_left == 0 {
            // What follows the last operation means nothing.
            inbound.part = RecordPart::Nothing;
        } else if self.slots[tag].ops == self.settings.ops_max {
            inbound.part = RecordPart::Last;
        }
    }

    #[inline]
    fn on_operation(
        &mut self,
        tag: Tag,
        begin: usize,
        operation: Operation,
        available: usize,
    ) -> Option<Step<ServerOp>> {
        let slot = &mut self.slots[tag];
        match operation {
            Operation::Whole(handle) => {
                slot.took(begin, handle);
                self.inbound.ops_left -= 1;
                self.next_operation(tag);
            }
            Operation::Write { offset, len } => {
                return self.begin_payload(tag, offset, len, available);
            }
            Operation::Stop(why) => self.stop(tag, why),
        }
        None
    }

    #[inline]
    fn on_write3(
        &mut self,
        tag: Tag,
        begin: usize,
        write: &Write3,
        available: usize,
    ) -> Option<Step<ServerOp>> {
        // The length of the handle stands before it.
        let at = begin + size_of::<u32>();
        self.slots[tag].handle = Some((at as u32, write.handle_bytes));
        self.inbound.ops_left = 1;
        self.begin_payload(tag, write.offset, write.len, available)
    }

    #[inline]
    pub(super) fn operation_is_here(&mut self, tag: Tag) {
        self.slots[tag].ops += 1;
        self.inbound.ops_left -= 1;
        self.next_operation(tag);
    }

    #[cold]
    fn stop(&mut self, tag: Tag, why: Stop) {
        self.slots[tag].stop = why;
        self.inbound.part = RecordPart::Nothing;
    }

    /// The data of a WRITE begins.
    #[inline]
    fn begin_payload(
        &mut self,
        call: Tag,
        offset: u64,
        len: u32,
        available: usize,
    ) -> Option<Step<ServerOp>> {
        let inbound = &self.inbound;
        let position = inbound.record_bytes - inbound.left;
        let chunk = self.slots[call].chunks.find(position, len);
        let is_there = match chunk {
            None => !inbound.is_last || len <= inbound.left,
            Some(bytes) => bytes.is_some(),
        };
        if !is_there {
            self.stop(call, Stop::BadXdr);
            return None;
        }
        if self.slots[call].payloads.len() >= usize::from(self.settings.writes_max) {
            self.stop(call, Stop::TooMany);
            return None;
        }
        if len > self.settings.io_bytes_max - inbound.io_bytes {
            self.stop(call, Stop::TooLarge);
            return None;
        }
        let tag = match len {
            0 => None,
            _ => self.data_tag(call),
        };
        self.slots[call].payloads.push(tag);
        let inbound = &mut self.inbound;
        inbound.io_bytes += len;
        if let Some(Some(bytes)) = chunk {
            inbound.record_bytes += len + pad(len as usize) as u32;
            self.begin_chunk((call, tag), (position, len), bytes);
            let staged = false;
            return tag.map(|tag| {
                Step::Op(ServerOp::Prepare {
                    call,
                    tag,
                    offset,
                    len,
                    staged,
                })
            });
        }
        let tail = Tail::padded(len, false);
        match tag {
            Some(tag) => inbound.payload.begin_blocked(tag, 0, len, tail),
            None => inbound.payload.skip(len, tail),
        }
        if len >= BULK_BYTES_MIN {
            inbound.bulk = BULK_CALLS;
        }
        let tag = tag?;
        let is_here = inbound.is_last && inbound.left as usize <= available;
        let staged = is_here && !inbound.is_unwrapped;
        Some(Step::Op(ServerOp::Prepare {
            call,
            tag,
            offset,
            len,
            staged,
        }))
    }

    /// The last fragment is over: all of the record is here, or will never be.
    #[inline]
    fn end_record(&mut self) -> Option<Step<ServerOp>> {
        let tag = self.inbound.tag.take().expect("inside a record");
        let inbound = &mut self.inbound;
        if inbound.io_bytes < BULK_BYTES_MIN {
            inbound.bulk = inbound.bulk.saturating_sub(1);
        }
        inbound.payload = Payload::default();
        self.slots[tag].record_bytes = inbound.record_bytes;
        if inbound.is_dropped {
            self.free(tag);
            return None;
        }
        let chunks = &self.slots[tag].chunks;
        if chunks.has_unfound() && self.slots[tag].stop == Stop::End {
            let garbage = Refusal::stat(accept_stat::GARBAGE_ARGS);
            inbound.refusal.get_or_insert(garbage);
        }
        if let Some(why) = inbound.refusal.take() {
            let chunks = &mut self.slots[tag].chunks;
            match chunks.awaits_data() {
                true => chunks.refusal = Some(why),
                false => self.queue_refusal(tag, why),
            }
            return None;
        }
        if inbound.is_probe {
            return Some(self.announce_tls(tag));
        }
        match inbound.part {
            RecordPart::Header => return Some(self.fail(RpcServerFatalError::NoMessage)),
            RecordPart::Compound | RecordPart::Write3 => {
                self.queue_refusal(tag, Refusal::stat(accept_stat::GARBAGE_ARGS));
                return None;
            }
            RecordPart::Rest => {
                let slot = &mut self.slots[tag];
                if let Some(GssCall::InContext(call)) = &slot.gss {
                    call.open_answer(&mut slot.args, slot.args_at as usize);
                }
                let xid = slot.xid;
                return Some(Step::Op(ServerOp::Answer { tag, xid }));
            }
            RecordPart::Protected => {
                self.unwrap(tag);
                return None;
            }
            RecordPart::Operation | RecordPart::Last => self.slots[tag].stop = Stop::BadXdr,
            RecordPart::Args | RecordPart::Nothing => {}
        }
        let slot = &mut self.slots[tag];
        if slot.is_answer {
            self.free(tag);
            return None;
        }
        match slot.chunks.awaits_data() {
            true => None,
            false => self.call_is_here(tag),
        }
    }

    /// All of a call is here, with its data.
    #[inline]
    pub(super) fn call_is_here(&mut self, tag: Tag) -> Option<Step<ServerOp>> {
        let slot = &mut self.slots[tag];
        if let Some(why) = slot.chunks.refusal.take() {
            self.queue_refusal(tag, why);
            return None;
        }
        if slot.gss.is_some() {
            return self.begin_gss_call(tag);
        }
        slot.reply.begin(slot.xid);
        if slot.procedure == Procedure::Null {
            slot.state = CallState::Sending;
            self.queue(tag);
            return None;
        }
        self.begin_call(tag);
        Some(Step::Op(ServerOp::Call { tag }))
    }

    #[inline]
    fn begin_call(&mut self, tag: Tag) {
        let slot = &mut self.slots[tag];
        slot.state = CallState::Executing;
        self.executing += 1;
        self.args_bytes += slot.free_args_bytes(&self.settings);
    }
}

/// What a procedure's arguments are taken as.
#[inline]
fn arguments_of(procedure: Procedure) -> RecordPart {
    match procedure {
        Procedure::Null => RecordPart::Nothing,
        Procedure::Compound => RecordPart::Compound,
        Procedure::Nfs3(nfs_proc3::NFSPROC3_WRITE) => RecordPart::Write3,
        _ => RecordPart::Args,
    }
}

#[inline]
fn read(part: RecordPart, bytes: &[u8]) -> Result<(usize, RecordPiece), XdrError> {
    match part {
        RecordPart::Header => {
            scan::header(bytes).map(|(len, header)| (len, RecordPiece::Header(header)))
        }
        RecordPart::Compound => {
            scan::compound(bytes).map(|(len, ops)| (len, RecordPiece::Compound(ops)))
        }
        RecordPart::Write3 => scan::write3(bytes).map(|(len, args)| {
            let write = Write3 {
                handle_bytes: args.file.0.len() as u32,
                offset: args.offset,
                len: args.data.len,
            };
            (len, RecordPiece::Write3(write))
        }),
        RecordPart::Last => {
            let one_more = RecordPiece::Operation(Operation::Stop(Stop::TooMany));
            u32::decode(&mut Reader::new(bytes)).map(|_| (size_of::<u32>(), one_more))
        }
        _ => scan::operation(bytes).map(|(len, op)| (len, RecordPiece::Operation(op))),
    }
}
