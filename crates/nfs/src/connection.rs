//! One connection of ONC RPC (RFC 5531) with the calls of NFS on it: records on TCP, or
//! messages by RDMA.
//!
//! The driver gets a call when all of it is here: its arguments lie together
//! in a buffer of the call, the data of each WRITE in memory that it was asked
//! for. It appends results to the call's [`Reply`] and says
//! [`Connection::send`], in any order of calls. What calls mean, whether one
//! is a retransmission, and which caller may do what, others decide.

mod callback;
mod chunks;
mod credential;
mod datagram;
mod gss;
mod rdma;
mod receive;
mod reply;
mod scan;
mod slots;
mod tls;

use iwarp::QpError;
use machine::{Machine, Nanos, RecvPlan, Step, Tag, Transmit};
use std::collections::VecDeque;
use std::sync::Arc;
use wire::mount3::mount_proc3;
use wire::nfs3::{nfs_proc3, nfsacl_proc3};
use wire::nfs4::{nfs_opnum4, offset4};
use wire::nlm4::nlm4_proc;
use wire::nsm::sm_proc;
use wire::rpc::{accept_stat, auth_stat};
use wire::rpcbind::{pmap_proc, rpcb_proc};
use wire::rquota::rquota_proc;

pub use iwarp::{CountedStream, QpCounts, StreamCounts, TerminateCounts};

pub use self::credential::{Credential, Flavor};
pub use self::datagram::DatagramCall;
use self::gss::{GssCall, InContext};
pub use self::rdma::RdmaSettings;
use self::rdma::RdmaState;
use self::receive::{Inbound, Known};
use self::reply::Refusal;
pub use self::reply::{Mark, Reply};
use self::slots::{CallState, RecordSlots, trim};
use self::tls::TlsState;
use crate::gss::{Contexts, InitAnswer};
use crate::server::CallbackWay;

/// Callbacks that may wait for an answer.
const CALLS_OUT_MAX: usize = 16;

/// What a connection may do; the same for all of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcServerSettings {
    /// Calls that are worked on at a time; more wait in the socket.
    pub calls_max: u16,
    /// Bytes of one call without the data of its WRITEs.
    pub args_bytes_max: u32,
    /// So many of those are a part of what a connection costs. For a call with more
    /// memory is asked for.
    pub args_bytes_free_max: u32,
    /// The same of all calls that are worked on and have no memory of their own: beyond
    /// it no further call is taken.
    pub args_bytes_all_max: u32,
    /// Bytes of answers that wait to be sent: beyond it no further call is taken.
    pub unsent_bytes_max: u32,
    /// Bytes of data in the WRITEs of one call.
    pub io_bytes_max: u32,
    /// Operations of one COMPOUND.
    pub ops_max: u32,
    /// WRITEs of one COMPOUND.
    pub writes_max: u16,
    /// Fragments of one record.
    pub fragments_max: u32,
    /// Until a first call must have come, in TLS where the client asks for that.
    pub handshake_timeout: Nanos,
    /// A client that asks for TLS gets it.
    pub offers_tls: bool,
}

impl Default for RpcServerSettings {
    fn default() -> RpcServerSettings {
        RpcServerSettings {
            calls_max: 256,
            args_bytes_max: 96 << 10,
            args_bytes_free_max: 4 << 10,
            args_bytes_all_max: 64 << 10,
            unsent_bytes_max: 1 << 20,
            io_bytes_max: 1 << 20,
            ops_max: 64,
            writes_max: 8,
            fragments_max: 1024,
            handshake_timeout: 10_000_000_000,
            offers_tls: false,
        }
    }
}

impl RpcServerSettings {
    /// The default, with so many bytes of data in the WRITEs of one call, whose record may come
    /// in fragments of 1 KiB.
    #[must_use]
    pub fn with_io(io_bytes_max: u32) -> RpcServerSettings {
        let mut settings = RpcServerSettings {
            io_bytes_max,
            ..RpcServerSettings::default()
        };
        let fragments = settings.record_bytes_max().div_ceil(1 << 10);
        settings.fragments_max = settings.fragments_max.max(fragments);
        settings
    }

    #[inline]
    fn args_bytes_free(&self) -> u32 {
        self.args_bytes_free_max.min(self.args_bytes_max)
    }

    /// Bytes of a record, in all its fragments.
    fn record_bytes_max(&self) -> u32 {
        self.args_bytes_max.saturating_add(self.io_bytes_max)
    }
}

/// A procedure of a client that is to be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallBack {
    /// The client's program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
    /// The flavor of its credential.
    pub way: CallbackWay,
}

impl From<(u32, u32, u32)> for CallBack {
    /// Program, version and procedure, as root.
    fn from((program, version, procedure): (u32, u32, u32)) -> CallBack {
        CallBack {
            program,
            version,
            procedure,
            way: CallbackWay::Sys(0, 0),
        }
    }
}

/// A procedure that is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Procedure {
    /// It does nothing, in any program; it is answered here.
    #[default]
    Null,
    /// NFSv4's other one.
    Compound,
    /// One of NFSv3, never its NULL.
    Nfs3(nfs_proc3),
    /// One of NFSACL, never its NULL.
    Acl3(nfsacl_proc3),
    /// One of MOUNT, never its NULL.
    Mount3(mount_proc3),
    /// One of the Network Lock Manager, never its NULL.
    Nlm4(nlm4_proc),
    /// One of the Network Status Monitor, never its NULL.
    Nsm(sm_proc),
    /// One of RQUOTA, version 1, never its NULL.
    Rquota(rquota_proc),
    /// One of its version 2, likewise.
    ExtRquota(rquota_proc),
    /// One of the port mapper, version 2, never its NULL.
    Pmap(pmap_proc),
    /// One of its versions 3 and 4, never their NULL.
    Rpcb(rpcb_proc),
}

/// Why a COMPOUND has no further operations in [`Call::args`]; of NFSv3's WRITE,
/// why it has no data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stop {
    /// All are there.
    #[default]
    End,
    /// The next cannot be read, or the record ends within it.
    BadXdr,
    /// The next has arguments that are not known here: it is not supported.
    Unsupported,
    /// More operations or WRITEs than [`RpcServerSettings`] have.
    TooMany,
    /// More data of WRITEs than [`RpcServerSettings::io_bytes_max`].
    TooLarge,
    /// There was no memory for the arguments: nothing of the call is executed, and its
    /// client is to send it again.
    Delay,
}

/// A call, all of it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Transaction identifier.
    pub xid: u32,
    /// Bytes of the whole record, its marks not counted; by RPCSEC_GSS those of the
    /// arguments alone, which a retry in another context has too.
    pub record_bytes: u32,
    /// Which.
    pub procedure: Procedure,
    /// The credential that it carries.
    pub credential: &'a Credential,
    /// The arguments of the procedure, without the data of WRITEs: a COMPOUND's
    /// header, which can be read, and operations. Others were not read yet.
    pub args: &'a [u8],
    /// Operations that can be read, and whose data is there; an NFSv3 WRITE that
    /// is so counts as one.
    pub ops: u32,
    /// Why there are no more.
    pub stop: Stop,
    /// For each WRITE among them the tag that names its data; `None` if it has
    /// none, or the driver had no memory.
    pub payloads: &'a [Option<Tag>],
}

/// The arguments of a call, held by its executor: see
/// [`Connection::take_args`].
#[derive(Debug, Default)]
pub struct Args {
    bytes: Vec<u8>,
    at: u32,
}

impl std::ops::Deref for Args {
    type Target = [u8];

    /// As [`Call::args`].
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[self.at as usize..]
    }
}

impl Call<'_> {
    /// The number of the operation at which [`Call::stop`] stopped, where
    /// `args` has no more than its beginning left.
    pub fn number(args: &[u8]) -> Option<nfs_opnum4> {
        scan::number(args)
    }
}

/// Work for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerOp {
    /// Data of a WRITE follows: provide `len` bytes of memory for `tag`, then
    /// say [`Connection::prepared`], at once or later, or
    /// [`Connection::refuse`]. Which file it is for,
    /// [`Connection::write_handle`] may know.
    Prepare {
        /// The call that it belongs to.
        call: Tag,
        /// What names the data.
        tag: Tag,
        /// Where it goes in the file.
        offset: offset4,
        /// Bytes.
        len: u32,
        /// All that is left of the call is staged: its `Place`s and the `Call`
        /// follow before any byte is received.
        staged: bool,
    },
    /// Arguments of a call follow that are more than
    /// [`RpcServerSettings::args_bytes_free_max`]: once there is memory for `bytes` of
    /// them, say [`Connection::prepared`], or of a call that has data
    /// [`Connection::refuse`]. Nothing is received before.
    PrepareArgs {
        /// The call that they belong to.
        call: Tag,
        /// What names the memory, until it is released.
        tag: Tag,
        /// Bytes.
        bytes: u32,
    },
    /// Data of a WRITE whose call was protected by RPCSEC_GSS: copy
    /// [`Connection::unwrapped`] to byte `offset` of the memory of `tag` before the next
    /// step.
    Place {
        /// What names the data.
        tag: Tag,
        /// Its first byte that is placed.
        offset: u32,
        /// Where those bytes lie.
        at: u32,
        /// How many there are.
        len: u32,
    },
    /// A token that makes a context of RPCSEC_GSS: see [`Connection::init`], then say
    /// [`Connection::send_init`], or [`Connection::send_denied`].
    Init {
        /// The call.
        tag: Tag,
    },
    /// A call is here: see [`Connection::call`]. Say [`Connection::send`] when
    /// its results are in [`Connection::reply`].
    Call {
        /// Which.
        tag: Tag,
    },
    /// A callback was answered: see [`Connection::answer`], then call
    /// [`Connection::forget_answer`].
    Answer {
        /// Where it is.
        tag: Tag,
        /// Of the callback.
        xid: u32,
    },
    /// The client was told that TLS begins (RFC 9289, section 4.1). Nothing is received
    /// before: once everything was sent make the stream's handshake begin, then say
    /// [`Connection::tls_begun`].
    StartTls,
    /// The connection ends once everything was sent.
    Fatal(RpcServerFatalError),
}

/// Why a connection ended: its peer does not speak RPC, or does not keep to
/// bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RpcServerFatalError {
    /// A record that is neither call nor answer, or ends within its header.
    #[error("a record that is no RPC message")]
    NoMessage,
    /// A record of more bytes than any call may have.
    #[error("a record longer than any call may be")]
    LongRecord,
    /// A call with more than [`RpcServerSettings::args_bytes_max`] beside its data.
    #[error("a call with too many arguments")]
    LongArguments,
    /// More than [`RpcServerSettings::fragments_max`].
    #[error("a record in too many fragments")]
    Fragments,
    /// Bytes in the clear between the client's question for TLS and its handshake: another
    /// on the way may have put them there.
    #[error("bytes in the clear behind its AUTH_TLS probe, before it has an answer")]
    BehindProbe,
    /// Records, where clients come by RDMA alone.
    #[error("calls without RDMA, where clients come by RDMA alone")]
    Records,
    /// A Request of MPA, where clients do not come by RDMA.
    #[error("a connection by RDMA, where clients do not come by RDMA")]
    NoRdma,
    /// The client came by RDMA, and takes no RDMA Reads: what it writes could not be had.
    #[error("a connection by RDMA of a client that takes no RDMA Reads: its IRD is 0")]
    NoReads,
    /// The stream of a client that came by RDMA.
    #[error(transparent)]
    Rdma(QpError),
}

/// The server's end of one connection.
///
/// Tags that an [`ServerOp`] named, and those that [`Connection::data_tag`] gave, end
/// with [`Transmit::release`]. Where [`Machine::recv_plan`] wants nothing
/// (`stage_max` 0), memory is awaited or as many calls are worked on as may be:
/// walk the staged bytes again after answers, and when a batch has gone.
#[derive(Debug)]
pub struct Connection {
    settings: RpcServerSettings,
    inbound: Inbound,
    /// The last walk ended before what it held back.
    was_held: bool,
    known: Known,
    /// A buffer of arguments of a call that is over: the next takes it while it
    /// is warm.
    spare_args: Vec<u8>,
    slots: RecordSlots,
    /// Records to be sent, in order; the first may be half gone.
    ready: VecDeque<Tag>,
    /// Calls that the driver has.
    executing: u16,
    /// Bytes of their arguments that have no memory of their own.
    args_bytes: u32,
    /// Bytes of the records in `ready`, without payload.
    ready_bytes: usize,
    /// Our calls that are not answered, by their xids; in a context, if they are by RPCSEC_GSS.
    calls_out: Vec<(u32, Option<InContext>)>,
    xid_next: u32,
    is_ended: bool,
    /// Until then its client has to identify itself; `None`: it has.
    deadline: Option<Nanos>,
    /// A call is one of a client that may be here.
    is_let_in: bool,
    has_called: bool,
    tls: TlsState,
    /// Those of the server; without them no call by RPCSEC_GSS is let in.
    contexts: Option<Arc<Contexts>>,
    /// When the last step was taken.
    now: Nanos,
    rdma: RdmaState,
}

impl Connection {
    /// The machine of a connection accepted at `now`.
    pub fn new(settings: RpcServerSettings, now: Nanos) -> Connection {
        assert!(settings.calls_max > 0 && settings.args_bytes_max >= 1024);
        // Each call may be sent while another takes its place, and have further
        // tags for its data.
        let slots_max = usize::from(settings.calls_max) * 4 + CALLS_OUT_MAX;
        Connection {
            settings,
            inbound: Inbound::default(),
            was_held: false,
            known: Known::default(),
            spare_args: Vec::new(),
            slots: RecordSlots::new(slots_max.min(usize::from(Tag::MAX))),
            ready: VecDeque::new(),
            executing: 0,
            args_bytes: 0,
            ready_bytes: 0,
            calls_out: Vec::new(),
            xid_next: 1,
            is_ended: false,
            deadline: Some(now.saturating_add(settings.handshake_timeout)),
            is_let_in: true,
            has_called: false,
            tls: TlsState::Clear,
            contexts: None,
            now,
            rdma: RdmaState::Off,
        }
    }

    /// The same; calls by RPCSEC_GSS are in these contexts.
    pub fn with_contexts(self, contexts: Arc<Contexts>) -> Connection {
        Connection {
            contexts: Some(contexts),
            ..self
        }
    }

    /// Whether something is exported to the client, as its address and its certificate are
    /// known: only then a call identifies it.
    pub fn set_let_in(&mut self, is_let_in: bool) {
        self.is_let_in = is_let_in;
    }

    /// Whether the client has identified itself, by a call that does something.
    #[inline]
    pub fn is_identified(&self) -> bool {
        self.deadline.is_none()
    }

    /// A call is arriving.
    #[inline]
    fn has_come(&mut self, procedure: Procedure) {
        self.has_called = true;
        if self.is_let_in && procedure != Procedure::Null {
            self.deadline = None;
        }
    }

    /// A call that [`ServerOp::Call`] named.
    #[inline]
    pub fn call(&self, tag: Tag) -> Call<'_> {
        let slot = &self.slots[tag];
        debug_assert!(slot.state == CallState::Executing);
        Call {
            xid: slot.xid,
            record_bytes: slot.record_bytes,
            procedure: slot.procedure,
            credential: &slot.credential,
            args: slot.args.get(slot.args_at as usize..).unwrap_or_default(),
            ops: slot.ops,
            stop: slot.stop,
            payloads: &slot.payloads,
        }
    }

    /// The user of a call is in these groups, whatever the call says.
    pub fn set_gids(&mut self, tag: Tag, gids: Arc<[u32]>) {
        self.slots[tag].credential.set_gids(gids);
    }

    /// What the client of a call has proved to be by RPCSEC_GSS.
    pub fn principal(&self, tag: Tag) -> Option<&str> {
        self.slots[tag].gss.as_ref()?.principal()
    }

    /// Where the results of a call go: behind the header of an answer that says
    /// that it succeeded.
    #[inline]
    pub fn reply(&mut self, tag: Tag) -> &mut Reply {
        let slot = &mut self.slots[tag];
        assert!(
            slot.state == CallState::Executing,
            "a call that is worked on"
        );
        &mut slot.reply
    }

    /// A call that [`ServerOp::Call`] named, and where its results go.
    #[inline]
    pub fn call_and_reply(&mut self, tag: Tag) -> (Call<'_>, &mut Reply) {
        let slot = &mut self.slots[tag];
        assert!(
            slot.state == CallState::Executing,
            "a call that is worked on"
        );
        let call = Call {
            xid: slot.xid,
            record_bytes: slot.record_bytes,
            procedure: slot.procedure,
            credential: &slot.credential,
            args: slot.args.get(slot.args_at as usize..).unwrap_or_default(),
            ops: slot.ops,
            stop: slot.stop,
            payloads: &slot.payloads,
        };
        (call, &mut slot.reply)
    }

    /// Takes the arguments of a call out, so that they can be read while the
    /// connection is used; [`Call::args`] is empty until
    /// [`Connection::give_args`], which comes before the answer.
    #[inline]
    pub fn take_args(&mut self, tag: Tag) -> Args {
        let slot = &mut self.slots[tag];
        debug_assert!(
            slot.state == CallState::Executing,
            "a call that is worked on"
        );
        Args {
            bytes: std::mem::take(&mut slot.args),
            at: slot.args_at,
        }
    }

    /// The arguments that were taken out, back again.
    #[inline]
    pub fn give_args(&mut self, tag: Tag, args: Args) {
        self.slots[tag].args = args.bytes;
    }

    /// The file handle that the WRITE whose data [`ServerOp::Prepare`] announced will
    /// be for, where the call says it itself.
    #[inline]
    pub fn write_handle(&self, call: Tag, tag: Tag) -> Option<&[u8]> {
        let slot = &self.slots[call];
        let in_chunk = self.rdma.on().and_then(|rdma| rdma.write_handle(tag));
        let (at, len) = in_chunk.unwrap_or(slot.handle)?;
        slot.args.get(at as usize..(at + len) as usize)
    }

    /// A tag to name data of an answer with: that of the call if it names
    /// nothing yet. `None` if there are no more.
    pub fn data_tag(&mut self, call: Tag) -> Option<Tag> {
        if !self.slots[call].own_is_used {
            self.slots[call].own_is_used = true;
            return Some(call);
        }
        let tag = self.slots.take(CallState::Extra)?;
        self.slots[call].extras.push(tag);
        Some(tag)
    }

    /// The results of a call are all appended; those that [`Connection::wants_gathered`] were
    /// gathered.
    #[inline]
    pub fn send(&mut self, tag: Tag) {
        if self.is_ended {
            return;
        }
        self.end_call(tag);
        if self.slots[tag].gss.is_some() {
            return self.send_protected(tag);
        }
        self.queue(tag);
    }

    /// Protects the results of a call by RPCSEC_GSS, where its client wants that.
    #[cold]
    fn send_protected(&mut self, tag: Tag) {
        let slot = &mut self.slots[tag];
        let closed = match &slot.gss {
            Some(GssCall::InContext(call)) => call.close(&mut slot.reply),
            _ => Ok(()),
        };
        match closed {
            Ok(()) => self.queue(tag),
            Err(_) => self.queue_refusal(tag, Refusal::NO_CONTEXT),
        }
    }

    /// Whether data of a call goes out among the bytes of its results: behind
    /// [`Connection::gather_payload`], once all results are appended.
    #[inline]
    pub fn wants_gathered(&mut self, tag: Tag) -> bool {
        self.is_protected(tag) || self.rdma_gathers(tag)
    }

    /// Whether RPCSEC_GSS protects the results of a call as bytes.
    #[inline]
    pub fn is_protected(&self, tag: Tag) -> bool {
        let gss = self.slots[tag].gss.as_ref();
        gss.is_some_and(GssCall::is_protected)
    }

    /// The payload of an answer becomes bytes of it: `copy` appends so many bytes of a
    /// tag's data, from an offset. The data stays with its tag until the answer has gone.
    pub fn gather_payload(&mut self, call: Tag, copy: impl FnMut(Tag, u32, u32, &mut Vec<u8>)) {
        self.slots[call].reply.gather(copy);
    }

    /// The bytes that [`ServerOp::Place`] named.
    pub fn unwrapped(&self, at: u32, len: u32) -> &[u8] {
        self.inbound.unwrapped(at, len)
    }

    /// The call that [`ServerOp::Init`] named: the handle of the context that it goes on
    /// with, if it does not begin one, and the token.
    pub fn init(&self, tag: Tag) -> (Option<&[u8]>, &[u8]) {
        let slot = &self.slots[tag];
        let Some(GssCall::Init(handle)) = &slot.gss else {
            panic!("it makes no context");
        };
        let args = slot.args.get(slot.args_at as usize..).unwrap_or_default();
        let token = gss::token(args).expect("it was read before");
        (handle.as_deref(), token)
    }

    /// Answers the call that [`ServerOp::Init`] named.
    pub fn send_init(&mut self, tag: Tag, answer: &InitAnswer) {
        if self.is_ended {
            return;
        }
        self.end_call(tag);
        let slot = &mut self.slots[tag];
        gss::answer_init(slot.xid, answer, &mut slot.reply);
        self.queue(tag);
    }

    /// A record goes out when its turn comes.
    #[inline]
    fn queue(&mut self, tag: Tag) {
        let slot = &mut self.slots[tag];
        match self.rdma.on() {
            None => slot.reply.seal(),
            Some(rdma) => rdma.seal(slot),
        }
        self.ready_bytes += slot.reply.bytes().len();
        self.ready.push_back(tag);
    }

    /// Bytes of the records that wait to be sent, without payload.
    #[inline]
    pub fn unsent_bytes(&self) -> usize {
        self.ready_bytes
    }

    /// A call is answered by RPC instead of the procedure.
    pub fn send_status(&mut self, tag: Tag, status: accept_stat) {
        self.send_refusal(tag, Refusal::stat(status));
    }

    /// A call is not let in.
    pub fn send_denied(&mut self, tag: Tag, why: auth_stat) {
        self.send_refusal(tag, Refusal::auth(why));
    }

    /// A call without data is not answered: its client will send it again. Memory of its
    /// arguments is released.
    pub fn drop_call(&mut self, tag: Tag) {
        if self.is_ended {
            return;
        }
        self.end_call(tag);
        assert!(self.slots[tag].payloads.is_empty(), "it has no data");
        self.free(tag);
    }

    fn send_refusal(&mut self, tag: Tag, why: Refusal) {
        if self.is_ended {
            return;
        }
        self.end_call(tag);
        self.queue_refusal(tag, why);
    }

    fn queue_refusal(&mut self, tag: Tag, why: Refusal) {
        let slot = &mut self.slots[tag];
        slot.state = CallState::Sending;
        trim(&mut slot.args);
        let verifier = slot.gss.as_ref().and_then(GssCall::verifier);
        let (why, mic) = match verifier {
            None => (why, None),
            Some(Ok(mic)) => (why, Some(mic)),
            Some(Err(_)) => (Refusal::NO_CONTEXT, None),
        };
        match why {
            Refusal::Accepted(body) => slot.reply.accepted(slot.xid, body, mic.as_deref()),
            Refusal::Denied(why) => slot.reply.denied(slot.xid, why),
        }
        self.queue(tag);
    }

    #[inline]
    fn end_call(&mut self, tag: Tag) {
        let slot = &mut self.slots[tag];
        assert!(
            slot.state == CallState::Executing,
            "a call that is worked on"
        );
        slot.state = CallState::Sending;
        self.executing -= 1;
        self.args_bytes -= slot.free_args_bytes(&self.settings);
        trim(&mut slot.args);
        if self.spare_args.capacity() == 0 {
            std::mem::swap(&mut slot.args, &mut self.spare_args);
        }
    }

    /// Memory for `tag` is there.
    #[inline]
    pub fn prepared(&mut self, tag: Tag) {
        if !self.is_ended && !self.read_awaited(tag, true) {
            self.inbound.prepared(tag, &mut self.slots);
        }
    }

    /// The driver has no memory for `tag`. Data is skipped, and the WRITE has no tag in
    /// [`Call::payloads`]; without its arguments a call is [`Stop::Delay`].
    pub fn refuse(&mut self, tag: Tag) {
        if !self.is_ended && !self.read_awaited(tag, false) {
            self.inbound.refuse(tag, &mut self.slots);
        }
    }

    /// Calls that are worked on.
    pub fn executing(&self) -> usize {
        usize::from(self.executing)
    }

    /// Calls the client (RFC 8881, section 2.10.3.1) with what `args` appends.
    /// The xid by which [`ServerOp::Answer`] will name it; `None` if too many wait.
    pub fn call_back(
        &mut self,
        called: impl Into<CallBack>,
        args: impl FnOnce(&mut Vec<u8>),
    ) -> Option<u32> {
        let called = called.into();
        if self.is_ended || self.calls_out.len() >= CALLS_OUT_MAX {
            return None;
        }
        let context = match &called.way {
            CallbackWay::None | CallbackWay::Sys(..) => None,
            CallbackWay::Gss(handles) => {
                let contexts = self.contexts.as_ref()?;
                Some(InContext::of_callback(handles, contexts, self.now)?)
            }
        };
        let tag = self.slots.take(CallState::Sending)?;
        let xid = self.xid_next;
        self.xid_next = xid.wrapping_add(1);
        let reply = &mut self.slots[tag].reply;
        let is_made = callback::put((xid, &called), context.as_ref(), args, reply.bytes());
        if is_made.is_err() || !self.queue_callback(xid, tag) {
            self.slots.free(tag);
            return None;
        }
        self.calls_out.push((xid, context));
        Some(xid)
    }

    /// The answer to this callback is not waited for any more.
    pub fn forget_call(&mut self, xid: u32) {
        self.calls_out.retain(|(out, _)| *out != xid);
        self.forget_callback(xid);
    }

    /// The answer that [`ServerOp::Answer`] named: what follows its xid and type, a
    /// `reply_body` and results.
    pub fn answer(&self, tag: Tag) -> &[u8] {
        &self.slots[tag].args[self.slots[tag].args_at as usize..]
    }

    /// The answer was read. Memory that its tag names is released.
    pub fn forget_answer(&mut self, tag: Tag) {
        if !self.is_ended {
            self.free(tag);
        }
    }

    /// A record is done with.
    #[inline]
    fn free(&mut self, tag: Tag) {
        self.let_go_of_send(tag);
        self.slots.free(tag);
    }

    /// The next of `ready` was sent.
    #[inline]
    fn sent(&mut self, out: &mut impl Transmit) {
        let tag = self.ready.pop_front().expect("it was sent");
        self.ready_bytes -= self.slots[tag].reply.bytes().len();
        while let Some(extra) = self.slots[tag].extras.pop() {
            out.release(extra);
            self.slots.free(extra);
        }
        out.release(tag);
        self.free(tag);
    }

    /// Nothing is taken any more; answers that are ready still go.
    fn end(&mut self) {
        self.is_ended = true;
        self.was_held = false;
        self.inbound = Inbound::default();
        self.deadline = None;
    }

    #[cold]
    fn fail(&mut self, error: RpcServerFatalError) -> Step<ServerOp> {
        if let Some(rdma) = self.rdma.on_mut() {
            rdma.terminate();
        }
        self.end();
        Step::Op(ServerOp::Fatal(error))
    }

    /// Whether what has been received waits: for memory, or for calls before it.
    #[inline]
    fn is_held(&self) -> bool {
        self.inbound.is_blocked()
            || self.inbound.is_between() && self.is_full()
            || self.tls == TlsState::Announced
    }

    /// Whether no further record is begun for now.
    #[inline]
    fn is_full(&self) -> bool {
        let has_work = self.executing > 0 || !self.ready.is_empty();
        let is_full = self.executing >= self.settings.calls_max
            || self.slots.in_flight() >= 2 * usize::from(self.settings.calls_max)
            || self.args_bytes >= self.settings.args_bytes_all_max
            || self.ready_bytes >= self.settings.unsent_bytes_max as usize
            || !self.slots.has_free();
        is_full && has_work
    }
}

impl Machine for Connection {
    type Op = ServerOp;

    fn tags_max(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    fn recv_plan(&self) -> RecvPlan {
        if let Some(rdma) = self.rdma.on() {
            return rdma.recv_plan(self.inbound.stage_max(self.deadline.is_some()));
        }
        if self.is_held() && !self.is_ended {
            return RecvPlan {
                direct: None,
                stage_max: 0,
            };
        }
        RecvPlan {
            direct: self.inbound.direct(),
            stage_max: self.inbound.stage_max(self.deadline.is_some()),
        }
    }

    #[inline]
    fn on_direct(&mut self, len: u32) {
        match self.rdma.on_mut() {
            None => self.inbound.on_direct(len),
            Some(rdma) => rdma.on_direct(len),
        }
    }

    #[inline]
    fn poll_step(&mut self, now: Nanos, staged: &[u8], at: &mut usize) -> Option<Step<ServerOp>> {
        if self.is_ended {
            *at = staged.len();
            return None;
        }
        self.now = now;
        if !matches!(self.rdma, RdmaState::Off) {
            if let Some(step) = self.decide_on_rdma(&staged[*at..], now) {
                return Some(step);
            }
            if self.is_rdma() {
                return self.poll_rdma(now, staged, at);
            }
        }
        let step = self.receive(staged, at);
        if step.is_none() {
            self.was_held = self.is_held();
        }
        step
    }

    #[inline]
    fn has_step(&self) -> bool {
        if let Some(rdma) = self.rdma.on() {
            return !self.is_ended && self.has_rdma_step(rdma);
        }
        self.was_held && !self.is_held()
    }

    #[inline]
    fn is_blocked_on(&self, tag: Tag) -> bool {
        !self.is_rdma() && self.inbound.is_blocked_on(tag)
    }

    fn on_digest(&mut self, tag: Tag, crc: u32) {
        let rdma = self.rdma.on_mut().expect("records have no digests");
        rdma.on_digest(tag, crc);
    }

    #[inline]
    fn has_transmit(&self) -> bool {
        if let Some(rdma) = self.rdma.on() {
            return self.has_rdma_transmit(rdma);
        }
        !self.ready.is_empty()
    }

    #[inline]
    fn poll_transmit(&mut self, out: &mut impl Transmit) {
        if self.is_rdma() {
            return self.transmit_rdma(out);
        }
        while let Some(&tag) = self.ready.front() {
            if !self.slots[tag].reply.transmit(out) {
                return;
            }
            self.sent(out);
        }
    }

    /// Ended, and every answer that was ready has gone.
    fn is_finished(&self) -> bool {
        self.is_ended
    }

    fn deadline(&self) -> Option<Nanos> {
        self.deadline
    }

    fn on_deadline(&mut self, now: Nanos) {
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.end();
        }
    }
}
