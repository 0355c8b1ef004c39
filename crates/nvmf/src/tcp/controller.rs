//! The controller's end of an NVMe/TCP queue pair.

mod decode;
mod give_up;
mod receive;
mod send;
mod slots;
mod transfers;

use std::collections::VecDeque;
use std::sync::Arc;

use machine::inbound::{Inbound, Walk};
use machine::{Machine, Nanos, RecvPlan, Step, Tag, Transmit};
use wire::nvme::Status;
use wire::nvme_tcp::{Data, MAXH2CDATA_MIN, PDA_MAX, pdu_type};

use self::slots::{CommandSlots, SlotState};
use self::transfers::Transfers;
use super::{FatalError, Framing, Malformed, terminate};
use crate::command::{Command, Geometry, Io};

/// Commands that may wait for an answer before Connect has made a queue.
const ENTRIES_BEFORE_CONNECT: usize = 32;
/// Staging when small PDUs are expected.
const STAGE_LARGE: u32 = 256 * 1024;
/// Staging until Connect has succeeded: a stranger who sends half a header and
/// waits holds no more than this.
const STAGE_HANDSHAKE: u32 = 2048;
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
    /// Until Connect must have succeeded.
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

/// What Connect made of the queue pair.
#[derive(Clone, Debug)]
pub struct Role {
    /// Queue identifier: 0 is the Admin Queue.
    pub qid: u16,
    /// Entries of the submission queue (a count: SQSIZE + 1), at least 2.
    pub entries: u16,
    /// The host asked for no SQ flow control.
    pub flow_control_disabled: bool,
    /// What I/O commands may name.
    pub namespaces: Arc<[Geometry]>,
}

/// Work for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Data will arrive, or is arriving: provide `len` bytes of memory for
    /// `tag`, then call [`Qpair::prepared`], at once or later; or refuse with
    /// [`Qpair::complete`].
    Prepare {
        /// The command.
        tag: Tag,
        /// Bytes of data.
        len: u32,
        /// What it is.
        command: Command,
        /// All of the data is staged: its `Place`s and the `Execute` follow
        /// before any byte is received.
        staged: bool,
    },
    /// All of the command is here: execute it, then call [`Qpair::complete`].
    Execute {
        /// The command.
        tag: Tag,
        /// What it is.
        command: Command,
    },
    /// A fused Compare and Write, all data of both there: execute it in one
    /// step, then call [`Qpair::complete`] for both, the Compare first. A Write
    /// whose Compare failed is completed with
    /// [`Status::FUSED_FAILED`].
    ExecuteFused {
        /// The Compare; its data is what the media must hold.
        compare: Tag,
        /// The Write.
        write: Tag,
        /// [`IoKind::CompareAndWrite`](crate::command::IoKind), with the range
        /// of both and the Write's FUA.
        io: Io,
    },
    /// The host has used the CID of an Asynchronous Event Request again and waits for
    /// that one no more: nothing is sent for it. Hold it no longer, and where it was
    /// held call [`Qpair::complete`], with whatever.
    Forgotten {
        /// The request.
        tag: Tag,
        /// Dword 0 of the event that it was completed with and that the host will not
        /// hear of. Then the tag is over.
        event: Option<u32>,
    },
    /// A command was refused, and is answered already: for the error log.
    Refused(RefusedCommand),
    /// The connection ends once everything was sent.
    Fatal(FatalError),
}

/// A command that never became an [`Op::Execute`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedCommand {
    /// Command Identifier.
    pub cid: u16,
    /// What it was answered with.
    pub status: Status,
    /// The namespace that it named.
    pub nsid: u32,
    /// Command dwords 10 and 11: the first logical block, of most commands.
    pub slba: u64,
    /// Where in the submission queue entry the error is, as the Error
    /// Information log has it (byte in bits 7:0, bit in 10:8).
    pub location: Option<u16>,
}

/// What became of a command that [`Qpair::abort`] was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortOutcome {
    /// No such command, or its answer is under way: it was not aborted.
    NotFound,
    /// The driver did not have it: it will be answered with Command Abort
    /// Requested, as soon as the host has sent the data that it was asked for.
    Aborted(Tag),
    /// The driver has it, preparing or executing: it stops and calls
    /// [`Qpair::complete`] with [`Status::ABORT_REQUESTED`].
    Executing(Tag),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Its status.
    pub status: Status,
    /// Dwords 0 and 1 of the completion.
    pub result: u64,
    /// Bytes from the start of the command's memory to send to the host, at
    /// most what its SGL holds; they go only with success.
    pub data_len: u32,
}

impl From<Status> for Done {
    fn from(status: Status) -> Done {
        Done {
            status,
            result: 0,
            data_len: 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QpairPhase {
    /// ICReq must come.
    IcReq,
    /// Connect must come.
    Connect,
    /// Connect came and is being executed.
    Connecting,
    /// Commands come.
    Live,
    /// Nothing comes any more.
    Ended,
}

/// Whether the next command may be the second of a fused pair (Base 2.0, section
/// 3.4.2): only the command right behind the first may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fuse {
    /// The last command was no first one.
    Idle,
    /// It was, and waits.
    First(Tag),
    /// It was, and failed already.
    Broken,
}

/// The controller's end of one NVMe/TCP connection, which is one queue pair.
///
/// Every tag that an [`Op`] named ends with [`Transmit::release`]; a command
/// that the machine refuses itself never shows. While memory is awaited for
/// in-capsule data, [`Machine::recv_plan`] wants nothing (`stage_max` 0): keep
/// the staged bytes and walk them again after [`Qpair::prepared`].
///
/// A CID that is in flight already is refused with Command ID Conflict, unless
/// it is that of an Asynchronous Event Request: which commands are searched is
/// ours to choose, and hosts that shut down forget their
/// requests and use the CIDs again ([`Op::Forgotten`]). More
/// commands in flight than the queue has entries end the connection: the host
/// overran the queue (Base 2.0, section 3.3.2.1.1).
///
/// A command that is given up before the driver executes it (aborted, its
/// namespace gone, its fused partner failed) is answered once the host has sent
/// all that it was asked for, so that no data of it can come after its answer.
#[derive(Debug)]
pub struct Qpair {
    settings: Settings,
    role: Role,
    phase: QpairPhase,
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
    slots: CommandSlots,
    transfers: Transfers,
    fuse: Fuse,
    /// Tags with something to send, in order.
    ready: VecDeque<Tag>,
    /// Bytes that hosts were asked for by R2T and whose PDU has not begun.
    r2t_bytes: u64,
    sqhd: u16,
    /// An ICResp or C2HTermReq, before everything else.
    control: Vec<u8>,
    /// Commands that were given up and not told yet.
    given_up: Vec<RefusedCommand>,
    /// Event requests that the host waits for no more, and the events that they were
    /// completed with, not told yet.
    forgotten: Vec<(Tag, Option<u32>)>,
    /// Tags that are over without an answer: they go with the next PDU.
    unanswered: Vec<Tag>,
    deadline: Option<Nanos>,
}

impl Qpair {
    /// The machine of a connection accepted at `now`.
    pub fn new(settings: Settings, now: Nanos) -> Qpair {
        assert!(settings.maxh2cdata >= MAXH2CDATA_MIN && settings.maxh2cdata.is_multiple_of(4));
        assert!(settings.r2t_bytes_max > 0 && settings.r2t_bytes_max.is_multiple_of(4));
        assert!(settings.cpda <= PDA_MAX);
        Qpair {
            settings,
            role: Role {
                qid: 0,
                entries: 2,
                flow_control_disabled: false,
                namespaces: Arc::new([]),
            },
            phase: QpairPhase::IcReq,
            framing: Framing::default(),
            c2h_pdo: Data::HLEN,
            r2ts_max: 1,
            r2t_len_max: u32::MAX,
            inbound: Inbound::default(),
            ends_r2t: false,
            slots: CommandSlots::new(),
            transfers: Transfers::new(),
            fuse: Fuse::Idle,
            ready: VecDeque::new(),
            r2t_bytes: 0,
            sqhd: 0,
            control: Vec::new(),
            given_up: Vec::new(),
            forgotten: Vec::new(),
            unanswered: Vec::new(),
            deadline: Some(now.saturating_add(settings.handshake_timeout)),
        }
    }

    /// Connect will succeed: call it before completing Connect.
    pub fn attach(&mut self, role: Role) {
        assert!(role.entries >= 2, "a queue has at least 2 entries");
        if self.phase == QpairPhase::Connecting {
            self.role = role;
        }
    }

    /// Whether payload is covered by a digest.
    #[inline]
    pub fn data_digest(&self) -> bool {
        self.framing.data
    }

    /// Commands in flight, those included whose answer is not sent yet.
    pub fn in_flight(&self) -> usize {
        self.slots.in_flight()
    }

    /// Command Identifier of a command in flight.
    pub fn cid(&self, tag: Tag) -> u16 {
        self.slots[tag].cid
    }

    /// Whether nothing more is taken before there is memory for `tag`.
    #[inline]
    pub fn is_blocked_on(&self, tag: Tag) -> bool {
        self.inbound.is_blocked_on(tag)
    }

    /// Memory for `tag` is there.
    #[inline]
    pub fn prepared(&mut self, tag: Tag) {
        if self.phase == QpairPhase::Ended {
            return;
        }
        let slot = &mut self.slots[tag];
        assert_eq!(slot.state, SlotState::Preparing, "prepared once");
        slot.state = SlotState::Receiving;
        if !slot.status.is_success() {
            return self.settle(tag);
        }
        if slot.asked < slot.len {
            self.queue(tag);
        }
        if self.inbound.is_blocked_on(tag) {
            self.inbound.unblock(tag, u32::MAX);
        }
    }

    /// The command of `tag` ended: after [`Op::Execute`] or
    /// [`Op::ExecuteFused`], or instead of [`Qpair::prepared`].
    #[inline]
    pub fn complete(&mut self, tag: Tag, done: Done) {
        if self.phase == QpairPhase::Ended {
            return;
        }
        let slot = &mut self.slots[tag];
        match slot.state {
            SlotState::Executing => {}
            SlotState::Preparing => return self.refuse_prepare(tag, done.status),
            state => panic!("completed a command that is {state:?}"),
        }
        let data_len = if done.status.is_success() {
            done.data_len
        } else {
            0
        };
        assert!(
            data_len == 0 || slot.is_read && data_len <= slot.len,
            "more than the SGL holds"
        );
        slot.state = SlotState::SendResponse;
        slot.status = done.status;
        slot.result = done.result;
        slot.data_len = data_len;
        if slot.is_forgotten {
            return self.end_forgotten(tag);
        }
        self.queue(tag);
        if self.phase == QpairPhase::Connecting {
            // Nothing but Connect executes before there is a queue.
            self.connected(done.status);
        }
    }

    /// The driver has no memory for `tag`, or does not want the command.
    #[cold]
    fn refuse_prepare(&mut self, tag: Tag, status: Status) {
        self.withdraw(tag, status);
        self.slots[tag].state = SlotState::Receiving;
        self.settle(tag);
    }

    /// `tag` may have the CID of an event request, which the host has forgotten then.
    fn note_forgotten(&mut self, tag: Tag) {
        let Some(request) = self.slots.event_request(tag) else {
            return;
        };
        self.slots[request].is_forgotten = true;
        match self.slots[request].state {
            SlotState::SendResponse => self.end_forgotten(request),
            _ => self.forgotten.push((request, None)),
        }
    }

    /// A forgotten request is completed. Its answer would pass for another's, and the
    /// event that it brings nobody hears.
    #[cold]
    fn end_forgotten(&mut self, tag: Tag) {
        self.ready.retain(|ready| *ready != tag);
        self.unanswered.push(tag);
        self.forgotten.retain(|(forgotten, _)| *forgotten != tag);
        let slot = &self.slots[tag];
        if slot.status.is_success() && slot.result != 0 {
            self.forgotten.push((tag, Some(slot.result as u32)));
        }
    }

    #[cold]
    fn connected(&mut self, status: Status) {
        if status.is_success() {
            self.phase = QpairPhase::Live;
            self.deadline = None;
        } else {
            self.phase = QpairPhase::Connect;
        }
    }

    /// `tag` has something to send.
    #[inline]
    fn queue(&mut self, tag: Tag) {
        let slot = &mut self.slots[tag];
        if !slot.is_queued {
            slot.is_queued = true;
            self.ready.push_back(tag);
        }
    }

    /// Ends the connection because of the PDU at the start of `bytes`.
    #[cold]
    fn fail(&mut self, why: Malformed, bytes: &[u8]) -> Op {
        self.end();
        Op::Fatal(terminate(
            pdu_type::C2H_TERM_REQ,
            why,
            bytes,
            &mut self.control,
        ))
    }

    fn end(&mut self) {
        self.phase = QpairPhase::Ended;
        self.inbound.discard();
        self.ready.clear();
        self.control.clear();
        self.forgotten.clear();
        self.unanswered.clear();
        self.deadline = None;
    }
}

impl Machine for Qpair {
    type Op = Op;

    fn tags_max(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    fn recv_plan(&self) -> RecvPlan {
        if self.inbound.is_blocked() {
            return RecvPlan {
                direct: None,
                stage_max: 0,
            };
        }
        let stage_max = if self.phase != QpairPhase::Live {
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
    fn poll_step(&mut self, staged: &[u8], at: &mut usize) -> Option<Step<Op>> {
        let mut step = None;
        if let Some((tag, event)) = self.forgotten.pop() {
            return Some(Step::Op(Op::Forgotten { tag, event }));
        }
        while self.phase != QpairPhase::Ended {
            match self.inbound.walk(staged, at) {
                Walk::Header => {
                    let bytes = &staged[*at..];
                    match self.pdu(bytes, &mut step) {
                        Ok(0) => return self.next_given_up(),
                        Ok(used) => *at += used,
                        Err(malformed) => {
                            *at = staged.len();
                            step = Some(Step::Op(self.fail(malformed, bytes)));
                        }
                    }
                    if step.is_some() {
                        return step;
                    }
                }
                Walk::More => return self.next_given_up(),
                Walk::Step(step) => return Some(step),
                Walk::Text { .. } => unreachable!("nothing was kept for the machine"),
                Walk::Data { tag, is_intact } => {
                    self.received(tag, is_intact, &mut step);
                    if step.is_some() {
                        return step;
                    }
                }
            }
        }
        *at = staged.len();
        None
    }

    fn on_digest(&mut self, tag: Tag, crc: u32) {
        self.inbound.on_digest(tag, crc);
    }

    #[inline]
    fn has_transmit(&self) -> bool {
        !self.ready.is_empty() || !self.control.is_empty()
    }

    #[inline]
    fn poll_transmit(&mut self, out: &mut impl Transmit) {
        if !self.control.is_empty() && out.has_room() {
            out.header(&self.control);
            self.control = Vec::new();
        }
        while let Some(&tag) = self.ready.front() {
            if !out.has_room() {
                return;
            }
            if self.slots[tag].state == SlotState::Receiving {
                if !self.send_r2ts(tag, out) {
                    return;
                }
                self.slots[tag].is_queued = false;
                self.ready.pop_front();
                continue;
            }
            if !self.send_response(tag, out) {
                return;
            }
            self.ready.pop_front();
            if self.slots.free(tag) {
                out.release(tag);
            }
        }
        while let Some(tag) = self.unanswered.pop() {
            if self.slots.free(tag) {
                out.release(tag);
            }
        }
    }

    fn is_finished(&self) -> bool {
        self.phase == QpairPhase::Ended
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
