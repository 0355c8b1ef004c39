//! RPC-over-RDMA version 1 below a connection, in place of record marks (RFC 8166; RFC 8167
//! for callbacks; RFC 8267 for which data goes in chunks; RFC 8797 for what both ends tell
//! each other when they connect).
//!
//! A call goes in a Send. The data of its WRITE stays where it lies, and the server reads it
//! there; the data of its READ the server writes to where it belongs. A call that is too long
//! for a Send is read by the server as a whole, and an answer that may be too long has a chunk
//! of its own. All of these can be named by the server until it has answered, and no longer.

mod receive;
mod send;

use iwarp::{CrcPolicy, Qp, QpOp, QpSettings};
use machine::{Machine, Nanos, RecvPlan, Step, Tag};
use wire::iwarp::TerminateCode;
use wire::rpc_rdma::RpcRdmaPrivateData;

use super::connection::{ClientConnection, ClientOp, REPLIES_MAX};
use super::fatal::RpcClientFatalError;
use super::gss::TOKEN;

/// Most bytes of a Send, in both ways.
const INLINE_BYTES_MAX: u16 = 4096;
/// Calls that are under way at most: a stream has regions for three of each.
const CALLS_MAX: u32 = 8192;

/// What a client asks a server for by RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaClientSettings {
    /// Which CRCs are asked for.
    pub crc: CrcPolicy,
    /// RDMA Reads of the server at a time, at least 1: below 16383.
    pub ird_max: u16,
    /// Most bytes of a ULPDU that is sent: [`iwarp::ulpdu_max`] of a TCP segment where each
    /// FPDU is to fit into one, 128 at least.
    pub ulpdu_max: u16,
}

impl Default for RdmaClientSettings {
    fn default() -> RdmaClientSettings {
        RdmaClientSettings {
            crc: CrcPolicy::Off,
            ird_max: 128,
            ulpdu_max: u16::MAX,
        }
    }
}

/// STags of what the server may name until it has answered a call.
#[derive(Clone, Copy, Debug, Default)]
struct CallChunks {
    /// All of the call, which is too long for a Send.
    call: Option<u32>,
    /// Data of its WRITE or READ.
    data: Option<u32>,
    /// Room for all of the answer.
    answer: Option<u32>,
}

impl CallChunks {
    fn all(self) -> impl Iterator<Item = u32> {
        [self.call, self.data, self.answer].into_iter().flatten()
    }
}

/// The client's end of a stream with messages of RPC-over-RDMA.
#[derive(Debug)]
pub(super) struct Rdma {
    qp: Qp,
    /// Calls that the client would have under way.
    calls_max: u32,
    /// The server has accepted.
    is_live: bool,
    /// Most bytes of a Send to the server.
    send_bytes_max: u32,
    /// Calls that the server takes before it has answered one.
    credits: u32,
    /// Calls that were sent and are not answered.
    under_way: u32,
    /// The first of what is to be sent is in the stream's hands.
    is_sending: bool,
    /// Its header, and whether nothing else of it goes in the Send.
    head: Vec<u8>,
    is_long: bool,
    /// By tag.
    chunks: Vec<CallChunks>,
    token_chunks: CallChunks,
}

impl Rdma {
    fn new(settings: RdmaClientSettings, calls_max: u32, seed: u64, now: Nanos) -> Rdma {
        let stream = QpSettings {
            crc: settings.crc,
            ird_max: settings.ird_max,
            ord_max: 0,
            ulpdu_max: settings.ulpdu_max,
            head_max: INLINE_BYTES_MAX,
            send_max: INLINE_BYTES_MAX.into(),
            ..QpSettings::default()
        };
        let own = RpcRdmaPrivateData {
            takes_invalidate: true,
            send_bytes_max: INLINE_BYTES_MAX.into(),
            receive_bytes_max: INLINE_BYTES_MAX.into(),
        };
        Rdma {
            qp: Qp::initiator(stream, seed, &own.encode(), now),
            calls_max,
            is_live: false,
            send_bytes_max: 0,
            // Until the first answer (RFC 8166, section 3.3.1).
            credits: 1,
            under_way: 0,
            is_sending: false,
            head: Vec::new(),
            is_long: false,
            chunks: Vec::new(),
            token_chunks: CallChunks::default(),
        }
    }

    fn chunks_of(&mut self, tag: Tag) -> &mut CallChunks {
        if tag == TOKEN {
            return &mut self.token_chunks;
        }
        let index = usize::from(tag);
        if self.chunks.len() <= index {
            self.chunks.resize(index + 1, CallChunks::default());
        }
        &mut self.chunks[index]
    }

    /// The server has accepted.
    fn established(&mut self) {
        let server = RpcRdmaPrivateData::decode(self.qp.private_data()).unwrap_or_default();
        self.send_bytes_max = server.receive_bytes_max.min(INLINE_BYTES_MAX.into());
        self.is_live = true;
        // Answers, that to a token among them, and callbacks.
        let receives = self.calls_max + 1 + REPLIES_MAX as u32;
        self.qp.post_receives(receives);
    }

    /// Whether calls go.
    pub(super) fn is_live(&self) -> bool {
        self.is_live
    }

    /// Whether CRCs are in use.
    pub(super) fn has_crc(&self) -> bool {
        self.qp.terms().crc
    }

    /// Whether the first of what is to be sent has begun to go.
    pub(super) fn is_sending(&self) -> bool {
        self.is_sending
    }

    pub(super) fn has_step(&self) -> bool {
        self.qp.has_step()
    }

    pub(super) fn is_finished(&self) -> bool {
        self.qp.is_finished()
    }

    pub(super) fn recv_plan(&self) -> RecvPlan {
        self.qp.recv_plan()
    }

    pub(super) fn on_direct(&mut self, len: u32) {
        self.qp.on_direct(len);
    }

    pub(super) fn on_digest(&mut self, tag: Tag, crc: u32) {
        self.qp.on_digest(tag, crc);
    }

    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.qp.deadline()
    }

    pub(super) fn on_deadline(&mut self, now: Nanos) {
        self.qp.on_deadline(now);
    }
}

impl ClientConnection {
    /// Messages go by RPC-over-RDMA on a stream that has connected at `now`: before its first
    /// byte, here and after each [`ClientConnection::restart`]. STags follow from `seed`, which
    /// is random. A call with data of READs has one READ then.
    pub fn use_rdma(&mut self, settings: RdmaClientSettings, seed: u64, now: Nanos) {
        let calls_max = self.calls_max().min(CALLS_MAX);
        self.rdma = Some(Box::new(Rdma::new(settings, calls_max, seed, now)));
    }

    /// Whether CRCs of MPA are in use.
    #[must_use]
    pub fn has_mpa_crc(&self) -> bool {
        self.rdma.as_ref().is_some_and(|rdma| rdma.has_crc())
    }

    /// As [`Machine::poll_step`].
    pub(super) fn poll_rdma(
        &mut self,
        now: Nanos,
        staged: &[u8],
        at: &mut usize,
    ) -> Option<Step<ClientOp>> {
        loop {
            let rdma = self.rdma.as_mut()?;
            let step = match rdma.qp.poll_step(now, staged, at)? {
                Step::Op(op) => self.on_stream(op).map(Step::Op),
                other => other.filter_map(|_| None),
            };
            if step.is_some() {
                return step;
            }
        }
    }

    /// What comes of what the stream tells.
    fn on_stream(&mut self, op: QpOp) -> Option<ClientOp> {
        let rdma = self.rdma.as_mut().expect("it is on");
        match op {
            QpOp::Received(send) => match self.take_message(send.invalidated) {
                Ok(op) => op,
                Err(why) => Some(self.end_rdma(why)),
            },
            QpOp::Established => {
                rdma.established();
                None
            }
            QpOp::Rejected => Some(self.fail(RpcClientFatalError::Rejected)),
            QpOp::Fatal(why) => Some(self.fail(RpcClientFatalError::Rdma(why))),
            QpOp::Requested => unreachable!("of a responder"),
            QpOp::Body => unreachable!("all of a Send is its head"),
            QpOp::ReadDone(_) => unreachable!("a client reads nothing"),
        }
    }

    /// The server has made a mistake that its stream has not.
    #[cold]
    fn end_rdma(&mut self, why: RpcClientFatalError) -> ClientOp {
        let rdma = self.rdma.as_mut().expect("it is on");
        rdma.qp.terminate(match why {
            RpcClientFatalError::Invalidation(_) => TerminateCode::CANNOT_INVALIDATE,
            _ => TerminateCode::UNSPECIFIED,
        });
        self.fail(why)
    }
}
