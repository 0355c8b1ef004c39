//! One RDMAP stream: its life from the first MPA frame to the Terminate.

mod receive;
mod send;
mod terminate;

use std::borrow::Cow;

use machine::inbound::Inbound;
use machine::{Machine, Nanos, RecvPlan, Step, Tag, Transmit};
use wire::iwarp::{MPA_REPLY_KEY, MPA_REQUEST_KEY, READ_DEPTH_UNSET, TerminateCode};

use self::receive::FpduReceiver;
use self::send::FpduSender;
pub use self::send::{DataPart, OWN_BYTES, Work};
use crate::mpa::{self, CrcPolicy, FRAME_MAX, MpaAnswer, MpaError, ReplyOutcome, Terms, Wishes};
use crate::stags::{RegisteredMemory, RemoteAccess, Stags};

/// Staging when small FPDUs are expected.
const STAGE_LARGE: u32 = 256 * 1024;
/// Staging within a message of large payload: what follows the payload of one FPDU and the
/// header of the next, which then lands directly.
const STAGE_HEADERS: u32 = 7 + 20;
/// So many bytes cost less to copy than a receive for them.
const COPIED_MAX: u32 = 256;
/// Where large messages follow each other a short Send may stand between two: header and CRC,
/// besides a head of up to [`COPIED_MAX`].
const SHORT_SEND: u32 = 20 + 4;
/// Of a message [`COPIED_MAX`] may be left behind one FPDU, as a power of two up to 1 MiB leaves
/// them where an FPDU has not quite 64 KiB. What the last FPDU has besides.
const LAST_SEGMENT_HEADERS: u32 = 16 + 4;
/// From so many bytes of payload in an FPDU, a receive for it costs less than copying them.
const DIRECT_MIN: u32 = 16 * 1024;

/// Regions that the peer may name at a time, with those of reads that wait for their end.
const REGISTERED_MAX: usize = 1 << 15;

/// What a stream may do; the same for all of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpSettings {
    /// Which CRCs are asked for.
    pub crc: CrcPolicy,
    /// RDMA Reads that the peer may have at a time: below 16383.
    pub ird_max: u16,
    /// RDMA Reads of this end at a time, which the peer may lower: below 16383.
    pub ord_max: u16,
    /// An initiator asks for a peer-to-peer connection, where its RTR lets the responder send
    /// first (RFC 6581). A responder takes either.
    pub peer_to_peer: bool,
    /// Most bytes of a ULPDU that is sent: [`crate::ulpdu_max`] of a TCP segment where each
    /// FPDU is to fit into one, 128 at least.
    pub ulpdu_max: u16,
    /// So many bytes of each Send are for the machine above: [`Qp::head`].
    pub head_max: u16,
    /// Most bytes of a Send that is received, its head included.
    pub send_max: u32,
    /// Tags are below this.
    pub tags_max: usize,
    /// Until the connection must stand: of a responder, until the first FPDU.
    pub handshake_timeout: Nanos,
}

impl Default for QpSettings {
    fn default() -> QpSettings {
        QpSettings {
            crc: CrcPolicy::Prefer,
            ird_max: 128,
            ord_max: 128,
            peer_to_peer: false,
            ulpdu_max: u16::MAX,
            head_max: 64,
            send_max: 64 + 8192,
            tags_max: 1024,
            handshake_timeout: 10_000_000_000,
        }
    }
}

/// What a stream has moved, and has under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpCounts {
    /// FPDUs that have begun to arrive.
    pub fpdus_received: u64,
    /// FPDUs that were sent, Terminates not counted.
    pub fpdus_sent: u64,
    /// RDMA Reads of this end whose response has not come.
    pub reads: u64,
}

/// Why a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QpError {
    /// No connection came about.
    #[error(transparent)]
    Mpa(#[from] MpaError),
    /// The peer broke a protocol, or names what it may not: a Terminate to it is queued.
    #[error("stream terminated: {}", words(*.0))]
    Sent(TerminateCode),
    /// The peer sent a Terminate.
    #[error("peer terminated the stream: {}", words(*.0))]
    Received(TerminateCode),
}

fn words(code: TerminateCode) -> Cow<'static, str> {
    let (layer, etype, number) = (code.layer, code.etype, code.code);
    let reserved =
        || format!("reserved, layer {layer}, error type {etype}, error code {number:#04x}");
    code.name().map_or_else(|| reserved().into(), Cow::from)
}

/// A Send that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedSend {
    /// Bytes of it behind its head.
    pub body_len: u32,
    /// Where they are, if [`Qp::body_into`] said so.
    pub tag: Option<Tag>,
    /// The STag that it has invalidated (Send with Invalidate): the peer can name it no more.
    pub invalidated: Option<u32>,
    /// It has a Solicited Event.
    pub is_solicited: bool,
}

/// Work for the machine above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpOp {
    /// The initiator's Request has come, with [`Qp::private_data`]: answer it with
    /// [`Qp::accept`] or [`Qp::reject`].
    Requested,
    /// The responder has accepted, with [`Qp::private_data`].
    Established,
    /// The responder has rejected, with [`Qp::private_data`]; the stream ends.
    Rejected,
    /// Bytes of a Send stand behind its head, which is whole, but which no CRC has proved yet:
    /// say by [`Qp::body_into`] or [`Qp::drop_body`] where they go.
    Body,
    /// A Send has arrived, and [`Qp::head`] is its head.
    Received(ReceivedSend),
    /// What [`Qp::read`] asked for has arrived.
    ReadDone(DataPart),
    /// The stream ends.
    Fatal(QpError),
}

/// The peer takes no RDMA Reads: its IRD is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer takes no RDMA Reads: its IRD is 0")]
pub struct ReadsRefused;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// The responder waits for the Request.
    AwaitsRequest,
    /// The machine above has not answered the Request.
    AwaitsAnswer,
    /// The initiator waits for the Reply.
    AwaitsReply,
    /// The responder has sent its Reply and sends nothing more before an FPDU has come (RFC
    /// 5044, section 7.1.2).
    AwaitsFpdu,
    Live,
    Ended,
}

/// One end of an RDMAP stream. See the crate's documentation.
#[derive(Debug)]
pub struct Qp {
    settings: QpSettings,
    life: Life,
    handshake_until: Nanos,
    /// What a Reply is made of, once the Request is there.
    answer: MpaAnswer,
    terms: Terms,
    private_data: Vec<u8>,
    stags: Stags,
    receiver: FpduReceiver,
    inbound: Inbound,
    sender: FpduSender,
    /// Frames of the handshake, the RTR or a Terminate, before everything else.
    control: Vec<u8>,
    notice: Option<QpOp>,
    fpdus_received: u64,
    fpdus_sent: u64,
}

impl Qp {
    /// The end that was connected to, at `now`. STags follow from `seed`, which is random.
    pub fn responder(settings: QpSettings, seed: u64, now: Nanos) -> Qp {
        Qp::new(settings, seed, now, Life::AwaitsRequest)
    }

    /// The end that has connected, at `now`: it sends a Request with `private_data`, 508
    /// bytes at most. STags follow from `seed`, which is random.
    pub fn initiator(settings: QpSettings, seed: u64, private_data: &[u8], now: Nanos) -> Qp {
        let mut qp = Qp::new(settings, seed, now, Life::AwaitsReply);
        qp.control = mpa::request(&qp.wishes(), private_data);
        qp
    }

    fn new(settings: QpSettings, seed: u64, now: Nanos, life: Life) -> Qp {
        assert!(settings.ird_max < READ_DEPTH_UNSET && settings.ord_max < READ_DEPTH_UNSET);
        assert!(settings.ulpdu_max >= 128, "every header fits");
        Qp {
            settings,
            life,
            handshake_until: now.saturating_add(settings.handshake_timeout),
            answer: MpaAnswer::default(),
            terms: Terms::default(),
            private_data: Vec::new(),
            stags: Stags::new(seed),
            receiver: FpduReceiver::default(),
            inbound: Inbound::default(),
            sender: FpduSender::default(),
            control: Vec::new(),
            notice: None,
            fpdus_received: 0,
            fpdus_sent: 0,
        }
    }

    fn wishes(&self) -> Wishes {
        Wishes {
            crc: self.settings.crc,
            ird: self.settings.ird_max,
            ord: self.settings.ord_max,
            peer_to_peer: self.settings.peer_to_peer,
        }
    }

    /// The private data of the peer's frame.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// What both ends agree on, once the peer's frame has come.
    #[inline]
    pub fn terms(&self) -> Terms {
        self.terms
    }

    /// What it has moved so far.
    pub fn counts(&self) -> QpCounts {
        QpCounts {
            fpdus_received: self.fpdus_received,
            fpdus_sent: self.fpdus_sent,
            reads: self.sender.reads_under_way(),
        }
    }

    /// Accepts the Request with `private_data`, 508 bytes at most.
    pub fn accept(&mut self, private_data: &[u8]) {
        self.answer_with(false, private_data);
        self.life = Life::AwaitsFpdu;
    }

    /// Rejects the Request with `private_data`, 508 bytes at most; the stream ends.
    pub fn reject(&mut self, private_data: &[u8]) {
        self.answer_with(true, private_data);
        self.life = Life::Ended;
    }

    fn answer_with(&mut self, is_rejected: bool, private_data: &[u8]) {
        assert_eq!(self.life, Life::AwaitsAnswer, "a Request is answered once");
        self.control = self.answer.reply(is_rejected, private_data);
    }

    /// Lets the peer name memory from now on; `None`: it can name 32768 regions already.
    #[inline]
    pub fn register(&mut self, memory: RegisteredMemory) -> Option<u32> {
        match self.stags.len() {
            // The others are for the sinks of reads, which the ORD bounds.
            REGISTERED_MAX.. => None,
            _ => self.stags.register(memory),
        }
    }

    /// Lets the peer read `bytes` of the machine above from now on, from Tagged Offset 0 on;
    /// `None`: as for [`Qp::register`].
    pub fn lend_bytes(&mut self, bytes: Vec<u8>) -> Option<u32> {
        let len = bytes.len() as u32;
        self.register_bytes(bytes, len, RemoteAccess::READ)
    }

    /// Lets the peer write `len` bytes for the machine above from now on, from Tagged Offset 0
    /// on; `None`: as for [`Qp::register`]. No memory is taken before they come.
    pub fn collect_bytes(&mut self, len: u32) -> Option<u32> {
        self.register_bytes(Vec::new(), len, RemoteAccess::WRITE)
    }

    fn register_bytes(&mut self, bytes: Vec<u8>, len: u32, access: RemoteAccess) -> Option<u32> {
        let memory = RegisteredMemory {
            tag: OWN_BYTES,
            offset: 0,
            len,
            to: 0,
            access,
        };
        match self.stags.len() {
            REGISTERED_MAX.. => None,
            _ => self.stags.register_with(memory, Some(bytes)),
        }
    }

    /// The bytes of what [`Qp::lend_bytes`] or [`Qp::collect_bytes`] has registered as `stag`,
    /// up to the last that the peer wrote: it can name them no more. Of an STag that was
    /// invalidated, until memory is registered again.
    pub fn take_bytes(&mut self, stag: u32) -> Vec<u8> {
        self.invalidate(stag);
        let bytes = self.stags.bytes_mut(stag);
        bytes.map_or(Vec::new(), std::mem::take)
    }

    /// The peer can name the memory of `stag` no more; `false`: it could not. A peer that is
    /// writing there or reads it is terminated.
    #[inline]
    pub fn invalidate(&mut self, stag: u32) -> bool {
        let is_known = self.stags.remove(stag).is_some();
        if is_known && self.receiver.writes_to(stag) {
            self.terminate(TerminateCode::SINK_STAG);
        }
        is_known
    }

    /// Bytes that RDMA Writes have brought to the memory of `stag`; of one that was
    /// invalidated, until memory is registered again.
    #[inline]
    pub fn written(&self, stag: u32) -> u64 {
        self.stags.written(stag)
    }

    /// The peer may send `count` Sends more: one for each receive that the upper layer's
    /// protocol lets it count on. One beyond them ends the stream.
    #[inline]
    pub fn post_receives(&mut self, count: u32) {
        self.receiver.receives += count;
    }

    /// The head of the Send that [`QpOp::Body`] or [`QpOp::Received`] tells of, until the
    /// next step.
    #[inline]
    pub fn head(&self) -> &[u8] {
        &self.receiver.head
    }

    /// Bytes of the body that [`QpOp::Body`] tells of, if all is at hand: once it has its place,
    /// the next steps bring it, before any byte is received.
    pub fn staged_body(&self) -> Option<u32> {
        self.receiver.staged_body()
    }

    /// The body of the Send that is arriving goes to the data of `tag`, from its start, once
    /// [`Qp::prepared`] says that there is memory.
    pub fn body_into(&mut self, tag: Tag) {
        self.begin_body(Some(tag));
    }

    /// Nothing needs the body of the Send that is arriving: it is passed over.
    pub fn drop_body(&mut self) {
        self.begin_body(None);
    }

    /// The first `len_max` bytes of the body of the Send that is arriving are for the machine
    /// above too: they become part of [`Qp::head`]. What comes behind them is passed over.
    pub fn body_into_head(&mut self, len_max: u32) {
        self.extend_head(len_max);
    }

    /// Nothing needs what is on its way to the data of `tag` any more, whose memory is free:
    /// it is passed over. [`QpOp::ReadDone`] tells nothing of it, and
    /// [`Qp::has_abandoned_reads`] whether the peer is still asked for any.
    pub fn abandon(&mut self, tag: Tag) {
        if self.inbound.is_on(tag) {
            self.inbound.discard();
        }
        self.receiver.abandon(tag);
        self.sender.abandon(tag);
    }

    /// Whether memory of the peer is being read that was abandoned: it must stay there.
    pub fn has_abandoned_reads(&self) -> bool {
        self.sender.has_abandoned()
    }

    /// Memory for the body that goes to `tag` is there: its first `wanted` bytes. What comes
    /// behind them is passed over.
    pub fn prepared(&mut self, tag: Tag, wanted: u32) {
        if self.life == Life::Ended {
            return;
        }
        self.receiver.body_wanted = wanted;
        self.inbound.unblock(tag, wanted);
    }

    /// Sends or writes; in the order of these calls. Held back until the peer may be sent to.
    #[inline]
    pub fn post(&mut self, work: Work<'_>) {
        if self.life != Life::Ended {
            self.sender.post(work);
        }
    }

    /// Whether something that was posted is not all named yet.
    pub fn has_posted(&self) -> bool {
        self.sender.has_posted()
    }

    /// Reads memory of the peer, from Tagged Offset `to` of its `stag`, into `sink`, which
    /// [`QpOp::ReadDone`] names when all of it has come. As many as [`Terms::ord`] are asked
    /// for at a time; others wait, and what [`Qp::post`] is given goes past them.
    pub fn read(&mut self, sink: DataPart, stag: u32, to: u64) -> Result<(), ReadsRefused> {
        if self.terms.ord == 0 {
            return Err(ReadsRefused);
        }
        if self.life != Life::Ended {
            self.sender.read(sink, stag, to);
        }
        Ok(())
    }

    /// The bytes that were read for the machine above ([`OWN_BYTES`]), once
    /// [`QpOp::ReadDone`] has told of it, until the next step.
    pub fn take_read_bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.receiver.read_bytes)
    }

    /// Ends the stream because of a mistake of the peer, of the FPDU that came last: one that
    /// the protocol above has found is [`TerminateCode::UNSPECIFIED`].
    #[cold]
    pub fn terminate(&mut self, code: TerminateCode) {
        if self.life == Life::Ended {
            return;
        }
        let header = self.receiver.copied_header(code);
        self.terminate_with(code, header);
    }

    /// The same, with the header of the FPDU in error, if it is told.
    #[cold]
    fn terminate_with(&mut self, code: TerminateCode, header: Vec<u8>) {
        let terminate = terminate::encode(code, &header, self.terms.crc);
        self.end(QpError::Sent(code));
        self.control.extend(terminate);
    }

    #[cold]
    fn end(&mut self, why: QpError) {
        self.notice = Some(QpOp::Fatal(why));
        self.stop();
    }

    fn stop(&mut self) {
        self.life = Life::Ended;
        self.receiver.stop();
        self.inbound.discard();
        self.sender = FpduSender::default();
    }

    /// The Request at the start of `bytes`, of which nothing may follow.
    fn request(&mut self, bytes: &[u8]) -> Result<Option<usize>, MpaError> {
        let Some(frame) = mpa::frame(bytes, MPA_REQUEST_KEY)? else {
            return Ok(None);
        };
        self.answer = MpaAnswer::new(&frame, &self.wishes())?;
        if bytes.len() > frame.len {
            return Err(MpaError::EarlyData);
        }
        self.private_data = frame.private_data.to_vec();
        self.terms = self.answer.terms;
        self.life = Life::AwaitsAnswer;
        self.notice = Some(QpOp::Requested);
        Ok(Some(frame.len))
    }

    /// What is wrong with the Request is told the peer, if it speaks MPA.
    #[cold]
    fn refuse(&mut self, bytes: &[u8], why: MpaError) {
        if matches!(
            why,
            MpaError::Revision(_) | MpaError::Markers | MpaError::NotEnhanced
        ) {
            self.control = MpaAnswer::to_refused(bytes).reply(true, &[]);
        }
        self.end(why.into());
    }

    /// The Reply at the start of `bytes`.
    fn reply(&mut self, bytes: &[u8]) -> Result<Option<usize>, MpaError> {
        let Some(frame) = mpa::frame(bytes, MPA_REPLY_KEY)? else {
            return Ok(None);
        };
        let outcome = mpa::outcome(&frame, &self.wishes())?;
        self.private_data = frame.private_data.to_vec();
        match outcome {
            ReplyOutcome::Agreed(terms) => {
                self.terms = terms;
                self.life = Life::Live;
                self.notice = Some(QpOp::Established);
                if let Some(rtr) = terms.rtr {
                    let rtr = self.sender.rtr(rtr, &mut self.stags, terms.crc);
                    self.control.extend(rtr);
                }
            }
            ReplyOutcome::Rejected => {
                self.notice = Some(QpOp::Rejected);
                self.stop();
            }
            ReplyOutcome::Terminated(code) => self.terminate(code),
        }
        Ok(Some(frame.len))
    }

    /// Staging where large payload is expected; `left` bytes of a message follow the FPDU that
    /// is arriving.
    fn stage_of_large(&self, left: u64) -> u32 {
        let head = u32::from(self.settings.head_max).min(COPIED_MAX);
        let behind_message = STAGE_HEADERS + SHORT_SEND + head;
        match u32::try_from(left) {
            Ok(0) => behind_message,
            Ok(left @ ..=COPIED_MAX) => behind_message + LAST_SEGMENT_HEADERS + left,
            _ => STAGE_HEADERS,
        }
    }

    /// Takes what `bytes` hold of the handshake.
    fn handshake(&mut self, bytes: &[u8]) -> usize {
        let taken = match self.life {
            Life::AwaitsRequest => self.request(bytes),
            Life::AwaitsReply => self.reply(bytes),
            _ if bytes.is_empty() => Ok(None),
            _ => Err(MpaError::EarlyData),
        };
        match taken {
            Ok(used) => return used.unwrap_or(0),
            Err(why) if self.life == Life::AwaitsReply => self.end(why.into()),
            Err(why) => self.refuse(bytes, why),
        }
        bytes.len()
    }
}

impl Machine for Qp {
    type Op = QpOp;

    fn tags_max(&self) -> usize {
        self.settings.tags_max
    }

    #[inline]
    fn recv_plan(&self) -> RecvPlan {
        let tagged_left = self.tagged_left();
        let is_large = !self.receiver.is_cut_small
            && (tagged_left.is_some()
                || self.sender.read_bytes >= DIRECT_MIN.into()
                || self.stags.awaits_large_writes());
        let stage_max = match self.life {
            Life::AwaitsRequest | Life::AwaitsAnswer | Life::AwaitsReply => FRAME_MAX as u32,
            _ if self.inbound.is_blocked() || self.receiver.awaits_body() => 0,
            _ if is_large => self.stage_of_large(tagged_left.unwrap_or(0)),
            _ => STAGE_LARGE,
        };
        RecvPlan {
            direct: self.inbound.direct(),
            stage_max,
        }
    }

    #[inline]
    fn on_direct(&mut self, len: u32) {
        self.inbound.on_direct(len);
    }

    #[inline]
    fn poll_step(&mut self, _: Nanos, staged: &[u8], at: &mut usize) -> Option<Step<QpOp>> {
        loop {
            if let Some(op) = self.notice.take() {
                return Some(Step::Op(op));
            }
            match self.life {
                Life::Ended => {
                    *at = staged.len();
                    return None;
                }
                Life::AwaitsFpdu | Life::Live => match self.walk(staged, at) {
                    Some(step) => return Some(step),
                    None if self.notice.is_none() && self.life != Life::Ended => return None,
                    None => {}
                },
                _ => {
                    *at += self.handshake(&staged[*at..]);
                    self.notice?;
                }
            }
        }
    }

    #[inline]
    fn has_step(&self) -> bool {
        self.notice.is_some()
    }

    fn is_blocked_on(&self, tag: Tag) -> bool {
        self.inbound.is_blocked_on(tag)
    }

    fn on_digest(&mut self, tag: Tag, crc: u32) {
        self.inbound.on_digest(tag, crc);
    }

    #[inline]
    fn has_transmit(&self) -> bool {
        !self.control.is_empty() || self.life == Life::Live && self.sender.has_work(self.terms.ord)
    }

    #[inline]
    fn poll_transmit(&mut self, out: &mut impl Transmit) {
        if !self.control.is_empty() {
            if !out.has_room() {
                return;
            }
            out.header(&self.control);
            self.control = Vec::new();
        }
        while self.life == Life::Live && out.has_room() && self.send_fpdu(out) {
            self.fpdus_sent += 1;
        }
        if self.life == Life::Ended && !self.control.is_empty() && out.has_room() {
            out.header(&self.control);
            self.control = Vec::new();
        }
    }

    #[inline]
    fn is_finished(&self) -> bool {
        self.life == Life::Ended
    }

    fn deadline(&self) -> Option<Nanos> {
        let is_over = matches!(self.life, Life::Live | Life::Ended);
        (!is_over).then_some(self.handshake_until)
    }

    fn on_deadline(&mut self, now: Nanos) {
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            self.control.clear();
            self.stop();
        }
    }
}
