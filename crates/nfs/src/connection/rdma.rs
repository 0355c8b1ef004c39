//! RPC-over-RDMA version 1 below a connection, in place of record marks (RFC 8166; RFC 8167
//! for callbacks; RFC 8267 for which data goes in chunks; RFC 8797 for what both ends tell
//! each other when they connect).
//!
//! A Send carries a header and the bytes of a message. A part of a call may lie in memory of
//! the client instead: data of WRITEs is read from there straight into its own memory, anything
//! else is read first and put in its place. From there on a call is walked like one that came
//! by record marks. Its answer goes in a Send too, or to memory that the call named for it.
//!
//! The stream is never held back: what a client may have sent before it has an answer is
//! bounded by its credits.

mod calls;
mod send;

use std::collections::VecDeque;

use iwarp::{Qp, QpCounts, QpOp, QpSettings};
use machine::{Machine, Nanos, RecvPlan, Step, Tag};
use wire::iwarp::{MPA_REQUEST_KEY, TerminateCode};
use wire::rpc_rdma::RpcRdmaPrivateData;

use super::chunks::AwaitedMemory;
use super::{CALLS_OUT_MAX, Connection, RpcServerFatalError, ServerOp};
use crate::rdma::HEADER_BYTES;

/// What a connection may do by RPC-over-RDMA; the same for all of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaSettings {
    /// Its stream; how Sends are taken follows from the rest.
    pub stream: QpSettings,
    /// Most bytes of a Send, in both ways: a multiple of 1024.
    pub inline_bytes_max: u16,
    /// Calls that a client may send before it has an answer, at least 1.
    pub credits: u16,
    /// Clients may send records instead.
    pub takes_records: bool,
}

impl Default for RdmaSettings {
    fn default() -> RdmaSettings {
        RdmaSettings {
            stream: QpSettings::default(),
            inline_bytes_max: 4096,
            credits: 64,
            takes_records: true,
        }
    }
}

/// Whether messages come by RDMA.
#[derive(Debug, Default)]
pub(super) enum RdmaState {
    /// They come in records.
    #[default]
    Off,
    /// The first byte says so. STags follow from the seed.
    Offered(RdmaSettings, u64),
    /// They do.
    On(Box<Rdma>),
}

impl RdmaState {
    #[inline]
    pub(super) fn on(&self) -> Option<&Rdma> {
        match self {
            RdmaState::On(rdma) => Some(rdma),
            RdmaState::Off | RdmaState::Offered(..) => None,
        }
    }

    #[inline]
    pub(super) fn on_mut(&mut self) -> Option<&mut Rdma> {
        match self {
            RdmaState::On(rdma) => Some(rdma),
            RdmaState::Off | RdmaState::Offered(..) => None,
        }
    }
}

/// The server's end of a stream with messages of RPC-over-RDMA.
#[derive(Debug)]
pub(super) struct Rdma {
    settings: RdmaSettings,
    qp: Qp,
    /// Most bytes of a Send to the client.
    send_bytes_max: u32,
    /// The client takes Send with Invalidate.
    takes_invalidate: bool,
    /// Sends whose messages are not begun. Each holds a receive.
    sends: VecDeque<Vec<u8>>,
    /// A buffer for the next.
    spare: Vec<u8>,
    /// Calls whose parts were put in their places, and that are not begun.
    assembled: VecDeque<Tag>,
    /// Bytes of calls with chunks that no memory was asked for.
    chunk_bytes: u32,
    /// Memory that is read into once it is there.
    awaited: Vec<AwaitedMemory>,
    /// The calls that RDMA Reads are for, in the order in which they end.
    reads: VecDeque<Tag>,
    /// Calls that were walked, and whose data has come now.
    whole: VecDeque<Tag>,
    /// The message that goes next is in the stream's hands.
    is_sending: bool,
    /// Callbacks that the client takes at a time, and those that it has and has not answered,
    /// given up or not.
    callback_credits: u32,
    callbacks_sent: u32,
    /// Callbacks beyond those, by their xids.
    callbacks_waiting: VecDeque<(u32, Tag)>,
}

impl Rdma {
    fn new(settings: RdmaSettings, seed: u64, now: Nanos) -> Rdma {
        assert!(settings.credits > 0 && settings.inline_bytes_max >= 1024);
        let stream = QpSettings {
            head_max: settings.inline_bytes_max,
            send_max: settings.inline_bytes_max.into(),
            ..settings.stream
        };
        Rdma {
            settings,
            qp: Qp::responder(stream, seed, now),
            send_bytes_max: 0,
            takes_invalidate: false,
            sends: VecDeque::new(),
            spare: Vec::new(),
            assembled: VecDeque::new(),
            chunk_bytes: 0,
            awaited: Vec::new(),
            reads: VecDeque::new(),
            whole: VecDeque::new(),
            is_sending: false,
            callback_credits: 1,
            callbacks_sent: 0,
            callbacks_waiting: VecDeque::new(),
        }
    }

    /// Answers the client's request; `false`: its memory cannot be read.
    fn requested(&mut self) -> bool {
        if self.qp.terms().ord == 0 {
            self.qp.reject(&[]);
            return false;
        }
        let own_bytes_max = u32::from(self.settings.inline_bytes_max);
        let client = RpcRdmaPrivateData::decode(self.qp.private_data()).unwrap_or_default();
        self.send_bytes_max = client.receive_bytes_max.min(own_bytes_max);
        self.takes_invalidate = client.takes_invalidate;
        let own = RpcRdmaPrivateData {
            takes_invalidate: true,
            send_bytes_max: own_bytes_max,
            receive_bytes_max: own_bytes_max,
        };
        self.qp.accept(&own.encode());
        self.qp.post_receives(self.settings.credits.into());
        true
    }

    /// Keeps a buffer of common size for the next Send.
    fn keep(&mut self, mut bytes: Vec<u8>) {
        if bytes.capacity() <= 2 * usize::from(self.settings.inline_bytes_max) {
            bytes.clear();
            self.spare = bytes;
        }
    }

    /// The client does not speak RPC.
    pub(super) fn terminate(&mut self) {
        self.qp.terminate(TerminateCode::UNSPECIFIED);
    }

    /// As [`Machine::recv_plan`]: calls that find no room wait here, not in the stream.
    pub(super) fn recv_plan(&self, stage_max: u32) -> RecvPlan {
        let plan = self.qp.recv_plan();
        RecvPlan {
            stage_max: plan.stage_max.min(stage_max),
            ..plan
        }
    }

    /// Where the file handle lies of the WRITE whose data `tag` names, if that is in a chunk.
    pub(super) fn write_handle(&self, tag: Tag) -> Option<Option<(u32, u32)>> {
        let awaited = self.awaited.iter().find(|awaited| awaited.tag == tag)?;
        Some(awaited.data?.handle)
    }

    pub(super) fn on_direct(&mut self, len: u32) {
        self.qp.on_direct(len);
    }

    pub(super) fn on_digest(&mut self, tag: Tag, crc: u32) {
        self.qp.on_digest(tag, crc);
    }
}

impl Connection {
    /// The same; a client may come by RDMA, which its first bytes say: a Request of MPA.
    /// STags follow from `seed`, which is random.
    pub fn with_rdma(self, settings: RdmaSettings, seed: u64) -> Connection {
        Connection {
            rdma: RdmaState::Offered(settings, seed),
            ..self
        }
    }

    /// Whether the client has come by RDMA.
    pub fn is_rdma(&self) -> bool {
        self.rdma.on().is_some()
    }

    /// What its stream of RDMA has moved; `None` of records.
    #[inline]
    pub fn rdma_counts(&self) -> Option<QpCounts> {
        self.rdma.on().map(|rdma| rdma.qp.counts())
    }

    /// The first byte says how messages come. A record mark that begins with the same would be
    /// of a record longer than any.
    pub(super) fn decide_on_rdma(&mut self, staged: &[u8], now: Nanos) -> Option<Step<ServerOp>> {
        let (RdmaState::Offered(settings, seed), Some(first)) = (&self.rdma, staged.first()) else {
            return None;
        };
        let (settings, seed) = (*settings, *seed);
        if *first == MPA_REQUEST_KEY[0] {
            self.rdma = RdmaState::On(Box::new(Rdma::new(settings, seed, now)));
            return None;
        }
        self.rdma = RdmaState::Off;
        (!settings.takes_records).then(|| self.fail(RpcServerFatalError::Records))
    }

    /// As [`Machine::has_step`].
    pub(super) fn has_rdma_step(&self, rdma: &Rdma) -> bool {
        rdma.qp.has_step() || self.has_calls(rdma)
    }

    /// Whether data of an answer goes among its other bytes.
    #[inline]
    pub(super) fn rdma_gathers(&mut self, tag: Tag) -> bool {
        let rdma = self.rdma.on();
        rdma.is_some_and(|rdma| rdma.gathers(&mut self.slots[tag]))
    }

    /// The message of a slot is done with: another may come instead.
    #[inline]
    pub(super) fn let_go_of_send(&mut self, tag: Tag) {
        let chunks = &mut self.slots[tag].chunks;
        let had = std::mem::take(&mut chunks.has_receive);
        let held_bytes = std::mem::take(&mut chunks.held_bytes);
        if let (true, Some(rdma)) = (had, self.rdma.on_mut()) {
            rdma.chunk_bytes -= held_bytes;
            rdma.qp.post_receives(1);
        }
    }

    /// The bytes of a record were walked.
    #[inline]
    pub(super) fn let_go_of_bytes(&mut self, bytes: Vec<u8>) {
        if let Some(rdma) = self.rdma.on_mut() {
            rdma.keep(bytes);
        }
    }

    /// As [`Machine::poll_step`].
    pub(super) fn poll_rdma(
        &mut self,
        now: Nanos,
        staged: &[u8],
        at: &mut usize,
    ) -> Option<Step<ServerOp>> {
        loop {
            if let Some(step) = self.next_of_calls() {
                return Some(step);
            }
            let rdma = self.rdma.on_mut()?;
            let step = match rdma.qp.poll_step(now, staged, at)? {
                Step::Op(op) => self.on_stream(op),
                other => other.filter_map(|_| None),
            };
            if step.is_some() {
                return step;
            }
        }
    }

    /// What comes of what the stream tells.
    fn on_stream(&mut self, op: QpOp) -> Option<Step<ServerOp>> {
        let rdma = self.rdma.on_mut()?;
        match op {
            QpOp::Requested => {
                let is_accepted = rdma.requested();
                (!is_accepted).then(|| self.fail(RpcServerFatalError::NoReads))
            }
            QpOp::Received(_) => {
                let mut send = std::mem::take(&mut rdma.spare);
                send.extend_from_slice(rdma.qp.head());
                rdma.sends.push_back(send);
                None
            }
            QpOp::ReadDone(sink) => {
                self.read_done(sink);
                None
            }
            QpOp::Fatal(why) => Some(self.fail(RpcServerFatalError::Rdma(why))),
            QpOp::Body => unreachable!("all of a Send is its head"),
            QpOp::Established | QpOp::Rejected => unreachable!("of an initiator"),
        }
    }

    /// A callback goes out, by RDMA when the client has a credit for it. `false`: it is too
    /// long.
    pub(super) fn queue_callback(&mut self, xid: u32, tag: Tag) -> bool {
        if let Some(rdma) = self.rdma.on_mut() {
            // Chunks of ours are none (RFC 8167, section 5.3).
            let bytes = HEADER_BYTES + self.slots[tag].reply.message().len();
            if bytes > rdma.send_bytes_max as usize {
                return false;
            }
            rdma.callbacks_waiting.push_back((xid, tag));
            self.send_callbacks();
            return true;
        }
        self.queue(tag);
        true
    }

    /// Those that the client has credits for.
    fn send_callbacks(&mut self) {
        while let Some(rdma) = self.rdma.on_mut()
            && rdma.callbacks_sent < rdma.callback_credits
            && let Some((_, tag)) = rdma.callbacks_waiting.pop_front()
        {
            rdma.callbacks_sent += 1;
            // For the answer.
            rdma.qp.post_receives(1);
            self.queue(tag);
        }
    }

    /// A callback is given up: one that the client has no credit for is not sent any more.
    pub(super) fn forget_callback(&mut self, xid: u32) {
        let Some(rdma) = self.rdma.on_mut() else {
            return;
        };
        let waiting = &mut rdma.callbacks_waiting;
        let at = waiting.iter().position(|(of, _)| *of == xid);
        if let Some((_, tag)) = at.and_then(|at| waiting.remove(at)) {
            self.slots.free(tag);
        }
    }

    /// A client has answered a callback, and takes so many at a time now (RFC 8167, section
    /// 4.1).
    fn on_callback_credits(&mut self, credits: u32) {
        if let Some(rdma) = self.rdma.on_mut() {
            rdma.callback_credits = credits.clamp(1, CALLS_OUT_MAX as u32);
            rdma.callbacks_sent = rdma.callbacks_sent.saturating_sub(1);
        }
        self.send_callbacks();
    }
}
