//! The controller's end of an NVMe/TCP queue pair.

mod receive;
mod send;
mod transfers;

use std::collections::VecDeque;

use machine::inbound::{Inbound, Walk};
use machine::{Machine, Nanos, RecvPlan, Step, Tag, Transmit};
use wire::nvme_tcp::{Data, Fes, MAXH2CDATA_MIN, PDA_MAX, pdu_type};

use self::transfers::{Incoming, Transfers};
use super::other_protocol::other_protocol;
use super::{FatalError, Framing, Malformed, terminate};
use crate::queue::{self, ControllerEnd, Queue, STAGE_HANDSHAKE};

/// Staging when small PDUs are expected.
const STAGE_LARGE: u32 = 256 * 1024;
/// Staging when R2T data is expected: a capsule and the header of an H2CData
/// PDU, with their digests. What follows that header then lands directly.
const STAGE_HEADERS: u32 = 76 + 28;
/// Most R2Ts outstanding for one command, whatever the host would take.
const R2TS_MAX: u32 = 8;
/// From so many bytes still to come for R2Ts, a receive for each PDU costs less
/// than copying them.
const BULK_MIN: u64 = 16 * 1024;

/// What a queue pair may do; the same for all of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Most in-capsule data on an I/O queue, in bytes: what Identify's IOCCSZ
    /// announces. The Admin Queue takes 8192.
    pub in_capsule_max: u32,
    /// MAXH2CDATA in bytes: at least 4096, a multiple of 4.
    pub maxh2cdata: u32,
    /// CPDA: the data of PDUs from the host begins at a multiple of
    /// `(cpda + 1) * 4` bytes; 0 to 31.
    pub cpda: u8,
    /// Most bytes that one R2T asks for, a multiple of 4, where the host takes
    /// several at once for a command (MAXR2T); else one asks for all.
    pub r2t_bytes_max: u32,
    /// Most data of one command, in bytes: what MDTS announces.
    pub io_bytes_max: u32,
    /// Whether a host may have header digests.
    pub header_digest: bool,
    /// Whether a host may have data digests.
    pub data_digest: bool,
    /// Until Connect must have succeeded; authentication has a minute more.
    pub handshake_timeout: Nanos,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            in_capsule_max: 8192,
            maxh2cdata: 1 << 20,
            cpda: 0,
            r2t_bytes_max: 256 * 1024,
            io_bytes_max: 1 << 20,
            header_digest: true,
            data_digest: true,
            handshake_timeout: 10_000_000_000,
        }
    }
}

/// Work for the driver.
pub type Op = queue::Op<FatalError>;

/// The controller's end of one NVMe/TCP connection: a [`Queue`] and the PDUs that carry it.
///
/// Every tag that an [`Op`] named ends with [`Transmit::release`]; a command
/// that the machine refuses itself never shows. While memory is awaited for
/// in-capsule data, [`Machine::recv_plan`] wants nothing (`stage_max` 0): keep
/// the staged bytes and walk them again after [`ControllerEnd::prepared`]. More commands in flight
/// than the queue has entries end the connection.
#[derive(Debug)]
pub struct Qpair {
    settings: Settings,
    queue: Queue,
    /// ICReq has come.
    is_initialized: bool,
    /// Of the PDUs that come.
    framing: Framing,
    /// Where the data of a C2HData PDU begins, which HPDA decides.
    c2h_pdo: u8,
    /// Most R2Ts outstanding for one command, and bytes in each: MAXR2T decides.
    r2ts_max: u8,
    r2t_len_max: u32,
    inbound: Inbound,
    /// The PDU that is arriving is the last for its R2T.
    ends_r2t: bool,
    /// Data from the host, by tag.
    incoming: Vec<Incoming>,
    transfers: Transfers,
    /// Tags of which data is to be asked for, in order.
    asking: VecDeque<Tag>,
    /// Bytes that hosts were asked for by R2T and whose PDU has not begun.
    r2t_bytes: u64,
    /// An ICResp or C2HTermReq, before everything else.
    control: Vec<u8>,
}

impl Qpair {
    /// The machine of a connection accepted at `now`.
    pub fn new(settings: Settings, now: Nanos) -> Qpair {
        assert!(settings.maxh2cdata >= MAXH2CDATA_MIN && settings.maxh2cdata.is_multiple_of(4));
        assert!(settings.r2t_bytes_max > 0 && settings.r2t_bytes_max.is_multiple_of(4));
        assert!(settings.cpda <= PDA_MAX);
        Qpair {
            settings,
            queue: Queue::new(
                settings.io_bytes_max,
                now.saturating_add(settings.handshake_timeout),
            ),
            is_initialized: false,
            framing: Framing::default(),
            c2h_pdo: Data::HLEN,
            r2ts_max: 1,
            r2t_len_max: u32::MAX,
            inbound: Inbound::default(),
            ends_r2t: false,
            incoming: Vec::new(),
            transfers: Transfers::new(),
            asking: VecDeque::new(),
            r2t_bytes: 0,
            control: Vec::new(),
        }
    }

    /// Whether payload is covered by a digest.
    #[inline]
    pub fn data_digest(&self) -> bool {
        self.framing.data
    }

    /// Whether headers are.
    pub fn header_digest(&self) -> bool {
        self.framing.header
    }

    /// Asks for no more data of `tag`, which was given up; it is answered when nothing of
    /// it is on its way.
    #[cold]
    fn stop(&mut self, tag: Tag) {
        let incoming = &mut self.incoming[usize::from(tag)];
        if std::mem::take(&mut incoming.is_queued) {
            self.asking.retain(|asking| *asking != tag);
        }
        if self.inbound.is_blocked_on(tag) {
            self.inbound.discard();
        }
        if incoming.r2ts == 0 && !self.inbound.is_on(tag) {
            self.queue.data_over(tag);
        }
    }

    /// Refuses a host, which began with `bytes`, as this is a port of another transport.
    #[cold]
    pub(crate) fn refuse(&mut self, bytes: &[u8]) {
        // The reason is the caller's.
        let _ = self.fail((Fes::UnsupportedParameter, 0), bytes);
    }

    /// Data of `tag` is to be asked for.
    #[inline]
    fn ask(&mut self, tag: Tag) {
        let is_queued = &mut self.incoming[usize::from(tag)].is_queued;
        if !std::mem::replace(is_queued, true) {
            self.asking.push_back(tag);
        }
    }

    /// Ends the connection because of the PDU at the start of `bytes`.
    #[cold]
    fn fail(&mut self, why: Malformed, bytes: &[u8]) -> Op {
        self.end();
        let error = terminate(pdu_type::C2H_TERM_REQ, why, bytes, &mut self.control);
        let other = other_protocol(bytes).filter(|_| !self.is_initialized);
        Op::Fatal(other.map_or(error, FatalError::OtherProtocol))
    }

    fn end(&mut self) {
        self.queue.end();
        self.inbound.discard();
        self.asking.clear();
        self.control.clear();
    }
}

impl ControllerEnd for Qpair {
    #[inline]
    fn queue(&self) -> &Queue {
        &self.queue
    }

    #[inline]
    fn queue_mut(&mut self) -> &mut Queue {
        &mut self.queue
    }

    #[inline]
    fn prepared(&mut self, tag: Tag) {
        if !self.queue.prepared(tag) {
            return self.stop_withdrawn();
        }
        let incoming = &self.incoming[usize::from(tag)];
        if incoming.asked < incoming.len {
            self.ask(tag);
        }
        if self.inbound.is_blocked_on(tag) {
            self.inbound.unblock(tag, u32::MAX);
        }
    }

    #[inline]
    fn stop_withdrawn(&mut self) {
        while let Some(tag) = self.queue.next_withdrawn() {
            self.stop(tag);
        }
    }
}

impl Machine for Qpair {
    type Op = Op;

    fn tags_max(&self) -> usize {
        self.queue.tags_max()
    }

    #[inline]
    fn recv_plan(&self) -> RecvPlan {
        if self.inbound.is_blocked() {
            return RecvPlan {
                direct: None,
                stage_max: 0,
            };
        }
        let stage_max = if !self.queue.is_live() {
            STAGE_HANDSHAKE
        } else if self.r2t_bytes >= BULK_MIN {
            STAGE_HEADERS
        } else {
            STAGE_LARGE
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
    fn poll_step(&mut self, _: Nanos, staged: &[u8], at: &mut usize) -> Option<Step<Op>> {
        loop {
            if let Some(op) = self.queue.next_notice() {
                return Some(Step::Op(op));
            }
            if self.queue.is_ended() {
                *at = staged.len();
                return None;
            }
            let op = match self.inbound.walk(staged, at) {
                Walk::Header => {
                    let bytes = &staged[*at..];
                    match self.pdu(bytes) {
                        Ok(taken) => {
                            let (used, op) = taken?;
                            *at += used;
                            op
                        }
                        Err(malformed) => {
                            *at = staged.len();
                            Some(self.fail(malformed, bytes))
                        }
                    }
                }
                Walk::More => return None,
                Walk::Step(step) => return Some(step),
                Walk::Text { .. } => unreachable!("nothing was kept for the machine"),
                Walk::Data { tag, is_intact } => self.received(tag, is_intact),
            };
            if let Some(op) = op {
                return Some(Step::Op(op));
            }
        }
    }

    #[inline]
    fn has_step(&self) -> bool {
        self.queue.has_notice()
    }

    #[inline]
    fn is_blocked_on(&self, tag: Tag) -> bool {
        self.inbound.is_blocked_on(tag)
    }

    fn on_digest(&mut self, tag: Tag, crc: u32) {
        self.inbound.on_digest(tag, crc);
    }

    #[inline]
    fn has_transmit(&self) -> bool {
        self.queue.has_answer() || !self.asking.is_empty() || !self.control.is_empty()
    }

    #[inline]
    fn poll_transmit(&mut self, out: &mut impl Transmit) {
        if !self.control.is_empty() && out.has_room() {
            out.header(&self.control);
            self.control = Vec::new();
        }
        while let Some(&tag) = self.asking.front() {
            if !out.has_room() || !self.send_r2ts(tag, out) {
                return;
            }
            self.incoming[usize::from(tag)].is_queued = false;
            self.asking.pop_front();
        }
        while let Some(answer) = self.queue.answer() {
            if !out.has_room() || !self.send_answer(&answer, out) {
                return;
            }
            if let Some(tag) = self.queue.answered() {
                out.release(tag);
            }
            if self.queue.is_ended() {
                return self.end();
            }
        }
        while let Some(tag) = self.queue.next_unanswered() {
            out.release(tag);
        }
    }

    fn is_finished(&self) -> bool {
        self.queue.is_ended()
    }

    fn deadline(&self) -> Option<Nanos> {
        self.queue.deadline()
    }

    fn on_deadline(&mut self, now: Nanos) {
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            self.end();
        }
    }
}
