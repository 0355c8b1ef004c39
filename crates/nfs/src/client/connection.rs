//! One connection: calls that wait for their answers, and what is to be sent.

use std::collections::VecDeque;

use machine::{Machine, Nanos, RecvPlan, Step, Tag, Tail, Transmit};
use wire::nfs4::{
    CB_COMPOUND, CB_NULL, NFS_CB, NFS_V4, NFS4_PROGRAM, NFSPROC4_COMPOUND, NFSPROC4_NULL,
};
use wire::rpc::{
    AUTH_NONE, AUTH_SYS, RPC_VERSION, RecordMark, accept_stat, accepted_body, accepted_reply,
    authsys_parms, call_body, mismatch_info, msg_type, opaque_auth, reply_body,
};
use wire::xdr::{Decode, Encode, List, Opaque, Reader, pad};

use super::Slot;
use super::answer::{RpcAnswer, results};
use super::compound::{CallData, Compound, Places};
use super::fatal::RpcClientFatalError;
use super::gss::Security;
use super::probe::Probe;
use super::rdma::Rdma;
use super::receive::Inbound;
use super::template::Template;

/// Bytes that are handed on at once.
const CHUNK_BYTES: usize = 480;
/// Capacity that a buffer keeps when its call is over.
const KEEP_BYTES: usize = 4096;
/// Answers to the server's calls that may wait to be sent.
pub(super) const REPLIES_MAX: usize = 64;
/// Staging when small answers are expected.
const STAGE_LARGE: u32 = 256 << 10;
/// Staging when large reads are expected: the padding of one, and what stands
/// before the data of the next.
const STAGE_HEADERS: u32 = 128;
/// Reads that are on average this large are worth a receive each.
const LARGE_READ: u64 = 32 << 10;
/// Bytes of an AUTH_SYS credential, at most (RFC 5531, section 8.2).
const AUTH_BYTES_MAX: usize = 400;

/// A credential as it goes on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    flavor: u32,
    body: Vec<u8>,
}

impl Auth {
    /// AUTH_NONE: no user.
    pub fn none() -> Auth {
        Auth {
            flavor: AUTH_NONE,
            body: Vec::new(),
        }
    }

    /// A user by AUTH_SYS, with at most 16 further groups.
    pub fn sys(uid: u32, gid: u32, gids: &[u32]) -> Auth {
        let mut body = Vec::new();
        let parms = authsys_parms {
            stamp: 0,
            machinename: Opaque(b""),
            uid,
            gid,
            gids: List::Of(gids),
        };
        parms.encode(&mut body);
        assert!(body.len() <= AUTH_BYTES_MAX);
        Auth {
            flavor: AUTH_SYS,
            body,
        }
    }
}

/// What a connection may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcClientSettings {
    /// Calls that wait for their answers at a time.
    pub calls_max: u16,
    /// Bytes of one answer, without data that has memory of its own.
    pub answer_bytes_max: u32,
    /// The program that the server may call on this connection.
    pub callback_program: u32,
    /// The credential of its calls.
    pub auth: Auth,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientOp {
    /// A call was answered; its tag and memory are free. See
    /// [`ClientConnection::answer`] before the next step.
    Answered {
        /// Which.
        tag: Tag,
    },
    /// The server calls CB_COMPOUND: see [`ClientConnection::callback`] before the next
    /// step, then say [`ClientConnection::answer_callback`].
    CallBack {
        /// Transaction identifier.
        xid: u32,
    },
    /// The server has answered a token of a security context: see
    /// [`ClientConnection::take_token_answer`].
    TokenAnswered,
    /// The server begins with TLS ([`ClientConnection::ask_for_tls`]): begin the stream's
    /// handshake, then say [`ClientConnection::tls_begun`].
    StartTls,
    /// The connection is of no use any more: close it, and
    /// [`ClientConnection::restart`] on another.
    Fatal(RpcClientFatalError),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CallState {
    #[default]
    Free,
    /// In the ready queue.
    Ready,
    /// The server has all of it.
    Sent,
}

/// A call: its record as it goes out, which stays until it is answered.
#[derive(Debug, Default)]
pub(super) struct OutgoingCall {
    pub state: CallState,
    xid: u32,
    pub data: CallData,
    /// The record with its mark, without data that has memory of its own.
    pub bytes: Vec<u8>,
    /// Where that data stands.
    pub payload_at: u32,
    /// Its answer fits in any Send.
    pub has_short_answer: bool,
    /// Its sequence number, in which context it has that.
    pub number: u32,
    pub epoch: u32,
}

/// What is to be sent.
#[derive(Debug)]
pub(super) enum ToSend {
    Call(Tag),
    Reply(Vec<u8>),
    /// What makes a security context, ahead of the calls that go in it.
    Token(Vec<u8>),
}

/// The client's end of one connection.
///
/// A tag lives from [`ClientConnection::compound`] to [`ClientOp::Answered`]; its memory must
/// be known to the driver before the next [`Machine::poll_transmit`].
/// [`Transmit::release`] is never called. A call that was not answered when the
/// stream was lost is sent again, as it was, after [`ClientConnection::restart`].
#[derive(Debug)]
pub struct ClientConnection {
    pub(super) settings: RpcClientSettings,
    pub(super) inbound: Inbound,
    pub(super) calls: Vec<OutgoingCall>,
    free: Vec<Tag>,
    pub(super) ready: VecDeque<ToSend>,
    replies: usize,
    /// Bytes of the first in `ready` that were sent, and whether its data was.
    pub(super) sent: usize,
    pub(super) is_payload_sent: bool,
    /// Reads that are not answered, and their bytes.
    reads: u64,
    read_bytes: u64,
    xid_next: u16,
    /// What stands at the beginning of every call, from its mark on.
    pub(super) head: Vec<u8>,
    is_ended: bool,
    pub(super) security: Option<Box<Security>>,
    /// What messages go by, in place of records.
    pub(super) rdma: Option<Box<Rdma>>,
    probe: Probe,
    /// Where that begins on every stream.
    first_probe: Probe,
}

/// Where the transaction identifier lies in a record with its mark.
pub(super) const XID_AT: usize = RecordMark::LEN;
/// Where the procedure lies.
pub(super) const PROCEDURE_AT: usize = XID_AT + 20;

impl ClientConnection {
    /// The machine of a fresh connection.
    pub fn new(settings: RpcClientSettings) -> ClientConnection {
        assert!(settings.calls_max > 0);
        let mut head = vec![0; RecordMark::LEN];
        0u32.encode(&mut head);
        msg_type::CALL.encode(&mut head);
        let call = call_body {
            rpcvers: RPC_VERSION,
            prog: NFS4_PROGRAM,
            vers: NFS_V4,
            proc: NFSPROC4_COMPOUND,
            cred: opaque_auth {
                flavor: settings.auth.flavor,
                body: Opaque(&settings.auth.body),
            },
            verf: opaque_auth {
                flavor: AUTH_NONE,
                body: Opaque(&[]),
            },
        };
        call.encode(&mut head);
        ClientConnection {
            settings,
            inbound: Inbound::default(),
            calls: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            replies: 0,
            sent: 0,
            is_payload_sent: false,
            reads: 0,
            read_bytes: 0,
            xid_next: 0,
            head,
            is_ended: false,
            security: None,
            rdma: None,
            probe: Probe::Over,
            first_probe: Probe::Over,
        }
    }

    /// Asks the server for TLS before anything else, here and after each
    /// [`ClientConnection::restart`]: calls wait for it.
    pub fn ask_for_tls(&mut self) {
        self.first_probe = Probe::Asks;
        self.probe = Probe::Asks;
    }

    /// What comes and goes from now on does so in TLS.
    pub fn tls_begun(&mut self) {
        assert!(self.probe == Probe::Begins, "it was announced");
        self.probe = Probe::Over;
    }

    /// The stream is lost, and another one begins: every call without an answer
    /// is sent again with the same xid, and so the same slot and sequence id.
    /// Answers to callbacks are not: the server will ask again.
    pub fn restart(&mut self) {
        self.inbound.restart();
        self.ready.clear();
        self.replies = 0;
        self.sent = 0;
        self.is_payload_sent = false;
        self.is_ended = false;
        self.rdma = None;
        self.probe = self.first_probe;
        self.restart_security();
        for (call, tag) in self.calls.iter_mut().zip(0..) {
            if call.state != CallState::Free {
                call.state = CallState::Ready;
                self.ready.push_back(ToSend::Call(tag));
            }
        }
    }

    /// Calls that wait for their answers.
    #[inline]
    pub fn in_flight(&self) -> usize {
        self.calls.len() - self.free.len()
    }

    /// Calls that may wait for their answers.
    pub(super) fn calls_max(&self) -> u32 {
        self.settings.calls_max.into()
    }

    /// How many calls would be taken now.
    #[inline]
    pub fn room(&self) -> u16 {
        self.settings.calls_max - self.in_flight() as u16
    }

    /// Takes a COMPOUND that `write` writes. `None`: as many as may be wait for
    /// their answers.
    pub fn compound(
        &mut self,
        minor: u32,
        data: CallData,
        write: impl FnOnce(&mut Compound<'_>),
    ) -> Option<Tag> {
        let tag = self.take()?;
        let call = &mut self.calls[usize::from(tag)];
        call.bytes.extend_from_slice(&self.head);
        let places = write_compound(&mut call.bytes, minor, write);
        assert!(places.payload.is_some() == matches!(data, CallData::Out(1..)));
        call.payload_at = places.payload.unwrap_or(0);
        self.submit(tag, data);
        Some(tag)
    }

    /// Takes a NULL.
    pub fn null(&mut self) -> Option<Tag> {
        let tag = self.take()?;
        let bytes = &mut self.calls[usize::from(tag)].bytes;
        bytes.extend_from_slice(&self.head);
        bytes[PROCEDURE_AT..PROCEDURE_AT + 4].copy_from_slice(&NFSPROC4_NULL.to_be_bytes());
        self.submit(tag, CallData::None);
        Some(tag)
    }

    /// A COMPOUND of one READ or WRITE that is to be sent over and over; `write`
    /// as in [`ClientConnection::compound`].
    pub fn template(
        &self,
        minor: u32,
        data: CallData,
        write: impl FnOnce(&mut Compound<'_>),
    ) -> Template {
        let mut bytes = self.head.clone();
        let places = write_compound(&mut bytes, minor, write);
        assert!(places.payload.is_some() == matches!(data, CallData::Out(1..)));
        seal(&mut bytes, data);
        Template::new(bytes, places, data)
    }

    /// Takes a COMPOUND made of a template, in a slot, for a place in the file.
    #[inline]
    pub fn from_template(&mut self, template: &Template, slot: Slot, offset: u64) -> Option<Tag> {
        let tag = self.take()?;
        let call = &mut self.calls[usize::from(tag)];
        template.write(&mut call.bytes, slot, offset);
        call.payload_at = template.payload_at();
        call.has_short_answer = true;
        self.queue(tag, template.data);
        Some(tag)
    }

    #[inline]
    fn take(&mut self) -> Option<Tag> {
        let tag = match self.free.pop() {
            Some(tag) => tag,
            None if self.calls.len() < usize::from(self.settings.calls_max) => {
                self.calls.push(OutgoingCall::default());
                (self.calls.len() - 1) as Tag
            }
            None => return None,
        };
        let bytes = &mut self.calls[usize::from(tag)].bytes;
        bytes.clear();
        if bytes.capacity() > KEEP_BYTES {
            *bytes = Vec::new();
        }
        Some(tag)
    }

    fn submit(&mut self, tag: Tag, data: CallData) {
        let call = &mut self.calls[usize::from(tag)];
        seal(&mut call.bytes, data);
        call.has_short_answer = false;
        self.queue(tag, data);
    }

    #[inline]
    fn queue(&mut self, tag: Tag, data: CallData) {
        // A tag in the low half finds the call, the rest tells answers to
        // earlier ones apart.
        let data = match data {
            CallData::In(0) | CallData::Out(0) => CallData::None,
            data => data,
        };
        let xid = self.next_xid(tag);
        let call = &mut self.calls[usize::from(tag)];
        call.bytes[XID_AT..XID_AT + 4].copy_from_slice(&xid.to_be_bytes());
        call.xid = xid;
        call.data = data;
        call.state = CallState::Ready;
        if let CallData::In(len) = data {
            self.reads += 1;
            self.read_bytes += u64::from(len);
        }
        self.ready.push_back(ToSend::Call(tag));
    }

    #[inline]
    pub(super) fn next_xid(&mut self, tag: Tag) -> u32 {
        let xid = u32::from(self.xid_next) << 16 | u32::from(tag);
        self.xid_next = self.xid_next.wrapping_add(1);
        xid
    }

    /// The call that an answer names: its tag, and the data it may bring.
    #[inline]
    pub(super) fn answered(&self, xid: u32) -> Option<(Tag, Option<u32>)> {
        let tag = xid as Tag;
        let Some(call) = self.calls.get(usize::from(tag)) else {
            return self.is_token_answer(xid).then_some((tag, None));
        };
        let is_it = call.state == CallState::Sent && call.xid == xid;
        let data = match call.data {
            CallData::In(len) if !self.protects_data() => Some(len),
            _ => None,
        };
        is_it.then_some((tag, data))
    }

    /// All of an answer is here.
    #[inline]
    pub(super) fn finish(&mut self, tag: Tag) -> ClientOp {
        let call = &mut self.calls[usize::from(tag)];
        if let CallData::In(len) = call.data {
            self.reads -= 1;
            self.read_bytes -= u64::from(len);
        }
        call.state = CallState::Free;
        self.free.push(tag);
        ClientOp::Answered { tag }
    }

    /// Bytes that an answer may have.
    #[inline]
    pub(super) fn record_bytes_max(&self) -> u32 {
        // Which call it answers is not known yet.
        let data_max = self.read_bytes.min(u64::from(u32::MAX >> 2)) as u32;
        self.settings.answer_bytes_max.saturating_add(data_max)
    }

    /// The answer that [`ClientOp::Answered`] told of.
    #[inline]
    pub fn answer(&self) -> RpcAnswer<'_> {
        let refusal = self.inbound.refusal();
        RpcAnswer {
            bytes: refusal.map_or_else(|| results(self.inbound.message()), Err),
            is_placed: self.inbound.is_placed(),
            data_len: self.inbound.data_len(),
        }
    }

    /// The arguments of the CB_COMPOUND that [`ClientOp::CallBack`] told of.
    pub fn callback(&self) -> &[u8] {
        self.inbound.callback()
    }

    /// Answers a callback with the results that `results` appends.
    pub fn answer_callback(&mut self, xid: u32, results: impl FnOnce(&mut Vec<u8>)) {
        self.reply(xid, accepted_body::default(accept_stat::SUCCESS), results);
    }

    fn reply(&mut self, xid: u32, body: accepted_body, results: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = vec![0; RecordMark::LEN];
        xid.encode(&mut bytes);
        msg_type::REPLY.encode(&mut bytes);
        let verf = opaque_auth {
            flavor: AUTH_NONE,
            body: Opaque(&[]),
        };
        reply_body::MSG_ACCEPTED(accepted_reply { verf, body }).encode(&mut bytes);
        results(&mut bytes);
        seal(&mut bytes, CallData::None);
        self.replies += 1;
        self.ready.push_back(ToSend::Reply(bytes));
    }

    /// A call of the server's is here: answers it, or says where the arguments
    /// of its CB_COMPOUND begin.
    pub(super) fn called(&mut self) -> Result<Option<ClientOp>, RpcClientFatalError> {
        let bytes = self.inbound.message();
        let mut from = Reader::new(bytes);
        let xid = u32::decode(&mut from).map_err(|_| RpcClientFatalError::NoMessage)?;
        msg_type::decode(&mut from).map_err(|_| RpcClientFatalError::NoMessage)?;
        let call = call_body::decode(&mut from).map_err(|_| RpcClientFatalError::NoMessage)?;
        if self.replies >= REPLIES_MAX {
            return Err(RpcClientFatalError::Callbacks);
        }
        let is_ours = call.prog == self.settings.callback_program;
        let body = match (is_ours, call.vers, call.proc) {
            (true, NFS_CB, CB_COMPOUND) => {
                let at = from.position();
                self.inbound.set_callback(at);
                return Ok(Some(ClientOp::CallBack { xid }));
            }
            (true, NFS_CB, CB_NULL) => accepted_body::default(accept_stat::SUCCESS),
            (true, NFS_CB, _) => accepted_body::default(accept_stat::PROC_UNAVAIL),
            (true, ..) => accepted_body::PROG_MISMATCH(mismatch_info {
                low: NFS_CB,
                high: NFS_CB,
            }),
            (false, ..) => accepted_body::default(accept_stat::PROG_UNAVAIL),
        };
        self.reply(xid, body, |_| {});
        Ok(None)
    }

    /// Whether answers to callbacks are to be sent.
    pub(super) fn has_replies(&self) -> bool {
        self.replies > 0
    }

    /// Whether a part of the first of what is to be sent has gone.
    pub(super) fn is_amid_first(&self) -> bool {
        let by_rdma = self.rdma.as_ref().is_some_and(|rdma| rdma.is_sending());
        self.sent > 0 || self.is_payload_sent || by_rdma
    }

    /// All of the first of what was to be sent has gone.
    #[inline]
    pub(super) fn first_is_sent(&mut self) {
        self.sent = 0;
        self.is_payload_sent = false;
        match self.ready.pop_front() {
            Some(ToSend::Call(tag)) => {
                self.calls[usize::from(tag)].state = CallState::Sent;
                if let Some(security) = &mut self.security {
                    security.sent();
                }
            }
            Some(ToSend::Reply(_)) => self.replies -= 1,
            Some(ToSend::Token(_)) | None => {}
        }
        // An error comes again when the driver prepares the next.
        let _ = self.prepare();
    }

    #[cold]
    fn receive_probe(&mut self, staged: &[u8], at: &mut usize) -> Option<Step<ClientOp>> {
        match self.probe.take(staged, at) {
            Ok(begins) => begins.map(|()| Step::Op(ClientOp::StartTls)),
            Err(error) => Some(Step::Op(self.fail(error))),
        }
    }

    #[cold]
    pub(super) fn fail(&mut self, error: RpcClientFatalError) -> ClientOp {
        self.is_ended = true;
        ClientOp::Fatal(error)
    }
}

fn write_compound(
    bytes: &mut Vec<u8>,
    minor: u32,
    write: impl FnOnce(&mut Compound<'_>),
) -> Places {
    let mut compound = Compound::begin(bytes, minor);
    write(&mut compound);
    compound.end()
}

/// Writes the record mark.
pub(super) fn seal(bytes: &mut [u8], data: CallData) {
    let payload = match data {
        CallData::Out(len) => len + pad(len as usize) as u32,
        CallData::None | CallData::In(_) => 0,
    };
    let mark = RecordMark {
        is_last: true,
        len: (bytes.len() - RecordMark::LEN) as u32 + payload,
    };
    bytes[..RecordMark::LEN].copy_from_slice(&mark.encode());
}

impl Machine for ClientConnection {
    type Op = ClientOp;

    fn tags_max(&self) -> usize {
        self.calls.len()
    }

    #[inline]
    fn recv_plan(&self) -> RecvPlan {
        if let Some(rdma) = &self.rdma {
            return rdma.recv_plan();
        }
        if let Some(stage_max) = self.probe.stage_max() {
            return RecvPlan {
                direct: None,
                stage_max,
            };
        }
        let is_large = self.reads > 0 && self.read_bytes >= self.reads * LARGE_READ;
        let is_large = is_large && !self.protects_data();
        RecvPlan {
            direct: self.inbound.direct(),
            stage_max: if is_large { STAGE_HEADERS } else { STAGE_LARGE },
        }
    }

    #[inline]
    fn on_direct(&mut self, len: u32) {
        match &mut self.rdma {
            Some(rdma) => rdma.on_direct(len),
            None => self.inbound.on_direct(len),
        }
    }

    #[inline]
    fn poll_step(&mut self, now: Nanos, staged: &[u8], at: &mut usize) -> Option<Step<ClientOp>> {
        match (self.is_ended, self.probe) {
            (false, _) if self.rdma.is_some() => self.poll_rdma(now, staged, at),
            (false, Probe::Over) => self.receive(staged, at),
            (false, _) => self.receive_probe(staged, at),
            (true, _) => {
                *at = staged.len();
                None
            }
        }
    }

    fn has_step(&self) -> bool {
        let by_rdma = self.rdma.as_ref().is_some_and(|rdma| rdma.has_step());
        by_rdma && !self.is_ended
    }

    fn on_digest(&mut self, tag: Tag, crc: u32) {
        let rdma = self.rdma.as_mut().expect("RPC has no digests");
        rdma.on_digest(tag, crc);
    }

    #[inline]
    fn has_transmit(&self) -> bool {
        if let Some(rdma) = &self.rdma {
            return self.has_rdma_transmit(rdma);
        }
        let is_ready = match self.probe {
            Probe::Over => self.first_goes(),
            probe => probe == Probe::Asks,
        };
        is_ready && !self.is_ended
    }

    #[inline]
    fn poll_transmit(&mut self, out: &mut impl Transmit) {
        if self.rdma.is_some() {
            return self.transmit_rdma(out);
        }
        if self.is_ended {
            return;
        }
        if self.probe != Probe::Over {
            return self.probe.transmit(out);
        }
        while self.first_goes() {
            let (bytes, payload) = match &self.ready[0] {
                ToSend::Reply(bytes) | ToSend::Token(bytes) => (bytes, None),
                ToSend::Call(tag) => {
                    let call = &self.calls[usize::from(*tag)];
                    let sealed = self.security.as_ref().and_then(|of| of.sealed(*tag));
                    let (bytes, at) = sealed.unwrap_or((&call.bytes, call.payload_at as usize));
                    let payload = match call.data {
                        CallData::Out(len) if !self.is_payload_sent => Some((*tag, at, len)),
                        _ => None,
                    };
                    (bytes, payload)
                }
            };
            if !out.has_room() {
                return;
            }
            let end = payload.map_or(bytes.len(), |(_, at, _)| at);
            let next = end.min(self.sent + CHUNK_BYTES);
            if next > self.sent {
                out.header(&bytes[self.sent..next]);
            }
            self.sent = next;
            if next < end {
                continue;
            }
            if let Some((tag, _, len)) = payload {
                out.payload(tag, 0, len, Tail::padded(len, false));
                self.is_payload_sent = true;
                if next < bytes.len() {
                    continue;
                }
            }
            self.first_is_sent();
        }
    }

    fn is_finished(&self) -> bool {
        self.is_ended || self.rdma.as_ref().is_some_and(|rdma| rdma.is_finished())
    }

    fn deadline(&self) -> Option<Nanos> {
        self.rdma.as_ref()?.deadline()
    }

    fn on_deadline(&mut self, now: Nanos) {
        if let Some(rdma) = &mut self.rdma {
            rdma.on_deadline(now);
        }
    }
}
