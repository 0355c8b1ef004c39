//! The controller's end of a queue pair, whatever transport carries it: commands from
//! their submission queue entry to their completion queue entry. Where the bytes of their
//! data lie, and when they come, is the transport's:
//!
//! 1. A submission queue entry has come: [`Queue::submit`] says what to do for it.
//! 2. Where that is [`Op::Prepare`], the driver's memory is there with
//!    [`Queue::prepared`]; the transport moves the data and says [`Queue::data_whole`].
//! 3. The driver ends the command with [`Queue::complete`].
//! 4. The transport sends [`Queue::answer`] and says [`Queue::answered`].
//!
//! A command that is given up before the driver executes it (aborted, its namespace gone,
//! its fused partner failed) is answered when the transport has nothing more to do with
//! its data, so that none of it can come after its answer: [`Queue::next_withdrawn`].

mod controller_end;
mod decode;
mod fused;
mod give_up;
mod slots;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use machine::{Nanos, Tag};
use wire::nvme::{Cqe, Sqe, Status, admin};

pub use self::controller_end::ControllerEnd;
use self::decode::{Transfer, error_location, is_plain, transfer};
use self::slots::{CommandSlots, Fused, SlotState};
use crate::command::{Command, Geometry, decode_io, is_io};

/// Commands that may wait for an answer before Connect has made a queue.
const ENTRIES_BEFORE_CONNECT: usize = 32;
/// The SQHD of a host that asked for no SQ flow control.
const NO_SQHD: u16 = 0xffff;

/// Staging until Connect has succeeded: a peer that sends half a header and
/// waits holds no more than this.
pub(crate) const STAGE_HANDSHAKE: u32 = 2048;
/// How long a host that must authenticate has for it.
const AUTHENTICATION_TIMEOUT: Nanos = 60_000_000_000;
/// How long a host whose authentication has failed has to ask why.
const FAILURE_TIMEOUT: Nanos = 1_000_000_000;

/// Whether a host authenticates on a queue (Base 2.0, section 8.13.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InBandAuthentication {
    /// It has no secret.
    None,
    /// It may: a key that it has made by its secret stands for it.
    Allowed,
    /// It must before anything else is executed.
    Required,
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
    /// Whether the host authenticates.
    pub authentication: InBandAuthentication,
}

/// Work for the driver. What a command is, [`Queue::command`] tells. `F` is why the
/// transport ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<F> {
    /// Data will arrive, or is arriving: provide `len` bytes of memory for
    /// `tag`, then say that it is prepared, at once or later; or refuse by
    /// completing the command.
    Prepare {
        /// The command.
        tag: Tag,
        /// Bytes of data.
        len: u32,
        /// All of the data is staged: its `Place`s and the `Execute` follow
        /// before any byte is received.
        staged: bool,
    },
    /// All of the command is here: execute it, then complete it.
    Execute {
        /// The command.
        tag: Tag,
    },
    /// A fused Compare and Write, all data of both there: execute it in one
    /// step, then complete both, the Compare first. The Write's [`Queue::command`] is an
    /// [`IoKind::CompareAndWrite`](crate::command::IoKind), with the range of both and the
    /// Write's FUA. A Write whose Compare failed is completed with
    /// [`Status::FUSED_FAILED`].
    ExecuteFused {
        /// The Compare; its data is what the media must hold.
        compare: Tag,
        /// The Write.
        write: Tag,
    },
    /// The host has used the CID of an Asynchronous Event Request again and waits for
    /// that one no more: nothing is sent for it. Hold it no longer, and where it was
    /// held complete it, with whatever.
    Forgotten {
        /// The request.
        tag: Tag,
        /// Dword 0 of the event that it was completed with and that the host does
        /// not receive. Then the tag is over.
        event: Option<u32>,
    },
    /// A command was refused, and is answered already: for the error log.
    Refused(RefusedCommand),
    /// NVMe/RDMA: the host asks for an I/O queue of the controller with this Controller ID,
    /// before it connects one: say whether the host may have a controller of that ID.
    QueueAsked {
        /// CNTLID, never 0.
        cntlid: u16,
    },
    /// The connection ends once everything was sent.
    Fatal(F),
}

impl<F> Op<F> {
    /// The same with another word for why the connection ends.
    #[inline]
    pub fn map_fatal<E>(self, of: impl FnOnce(F) -> E) -> Op<E> {
        match self {
            Op::Prepare { tag, len, staged } => Op::Prepare { tag, len, staged },
            Op::Execute { tag } => Op::Execute { tag },
            Op::ExecuteFused { compare, write } => Op::ExecuteFused { compare, write },
            Op::Forgotten { tag, event } => Op::Forgotten { tag, event },
            Op::Refused(refused) => Op::Refused(refused),
            Op::QueueAsked { cntlid } => Op::QueueAsked { cntlid },
            Op::Fatal(why) => Op::Fatal(of(why)),
        }
    }
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

/// Notices for the driver, besides the answers to entries and data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueNotice {
    /// A command was refused or given up.
    Refused(RefusedCommand),
    /// The host waits for an event request no more, which was completed with this event.
    Forgotten(Tag, Option<u32>),
}

/// What became of a command that [`Queue::abort`] was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortOutcome {
    /// No such command, or its answer is under way: it was not aborted.
    NotFound,
    /// The driver did not have it: it will be answered with Command Abort
    /// Requested, as soon as the host has sent the data that it was asked for.
    Aborted(Tag),
    /// The driver has it, preparing or executing: it stops and completes it with
    /// [`Status::ABORT_REQUESTED`].
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

/// The host has more commands in flight than the queue has entries: it overran the queue
/// (Base 2.0, section 3.3.2.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overrun;

/// An answer that is to be sent: its data, then its completion queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The command.
    pub tag: Tag,
    /// Its CID.
    pub cid: u16,
    /// Bytes of data that go to the host; 0 where they went.
    pub data_len: u32,
    /// The completion queue entry would tell success and nothing else.
    pub is_bare_success: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueuePhase {
    /// Connect must come.
    Connect,
    /// Connect came and is being executed.
    Connecting,
    /// The host must authenticate.
    Authenticating,
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

/// The commands of one queue pair.
///
/// A CID that is in flight already is refused with Command ID Conflict, unless
/// it is that of an Asynchronous Event Request: which commands are searched is
/// ours to choose, and hosts that shut down forget their
/// requests and use the CIDs again ([`Op::Forgotten`]).
#[derive(Debug)]
pub struct Queue {
    /// Most data of one command.
    io_bytes_max: u32,
    role: Role,
    phase: QueuePhase,
    slots: CommandSlots,
    fuse: Fuse,
    /// Commands that have ended, in order: their answers are to be sent.
    answers: VecDeque<Tag>,
    sqhd: u16,
    /// Commands that were given up while the transport moves their data.
    withdrawn: Vec<Tag>,
    /// What the driver has not read yet.
    notices: VecDeque<QueueNotice>,
    /// Tags that are over without an answer.
    unanswered: Vec<Tag>,
    /// Until Connect and authentication must have succeeded.
    live_until: Nanos,
}

impl Queue {
    /// A queue that Connect has not made yet, and must have by `live_until`; no command has
    /// more data than `io_bytes_max`.
    pub(crate) fn new(io_bytes_max: u32, live_until: Nanos) -> Queue {
        Queue {
            io_bytes_max,
            role: Role {
                qid: 0,
                entries: 2,
                flow_control_disabled: false,
                namespaces: Arc::new([]),
                authentication: InBandAuthentication::None,
            },
            phase: QueuePhase::Connect,
            slots: CommandSlots::new(),
            fuse: Fuse::Idle,
            answers: VecDeque::new(),
            sqhd: 0,
            withdrawn: Vec::new(),
            notices: VecDeque::new(),
            unanswered: Vec::new(),
            live_until,
        }
    }

    /// Connect will succeed: call it before completing Connect.
    fn attach(&mut self, role: Role) {
        assert!(role.entries >= 2, "a queue has at least 2 entries");
        if role.authentication == InBandAuthentication::Required {
            self.live_until = self.live_until.saturating_add(AUTHENTICATION_TIMEOUT);
        }
        if self.phase == QueuePhase::Connecting {
            self.role = role;
        }
    }

    /// Whether Connect has made it, and its host has authenticated where it must.
    #[inline]
    pub fn is_live(&self) -> bool {
        self.phase == QueuePhase::Live
    }

    /// Whether its host had to authenticate, and has.
    pub fn is_authenticated(&self) -> bool {
        self.is_live() && self.role.authentication == InBandAuthentication::Required
    }

    /// Whether Connect has made it.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(self.phase, QueuePhase::Live | QueuePhase::Authenticating)
    }

    /// When its host has had time enough to connect and to authenticate.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        let is_over = self.is_live() || self.is_ended();
        (!is_over).then_some(self.live_until)
    }

    fn authentication_failed(&mut self, now: Nanos) {
        self.set_authenticated(false);
        self.live_until = now.saturating_add(FAILURE_TIMEOUT);
    }

    /// The host has proven what it is, or it must again: nothing else is executed before.
    fn set_authenticated(&mut self, is_authenticated: bool) {
        if self.is_connected() {
            self.phase = match is_authenticated {
                true => QueuePhase::Live,
                false => QueuePhase::Authenticating,
            };
        }
    }

    /// Whether nothing comes or goes any more.
    #[inline]
    pub(crate) fn is_ended(&self) -> bool {
        self.phase == QueuePhase::Ended
    }

    /// Whether I/O commands come.
    #[inline]
    pub(crate) fn takes_io(&self) -> bool {
        self.is_live() && self.role.qid != 0
    }

    /// Commands that may be in flight.
    #[inline]
    pub fn entries(&self) -> usize {
        match self.is_connected() {
            true => usize::from(self.role.entries),
            false => ENTRIES_BEFORE_CONNECT,
        }
    }

    /// Commands in flight, those included whose answer is not sent yet.
    pub fn in_flight(&self) -> usize {
        self.slots.in_flight()
    }

    /// Tags are below this.
    pub(crate) fn tags_max(&self) -> usize {
        self.slots.len()
    }

    /// Command Identifier of a command in flight.
    pub fn cid(&self, tag: Tag) -> u16 {
        self.slots[tag].cid
    }

    /// What a command that an [`Op`] named is.
    #[inline]
    pub fn command(&self, tag: Tag) -> &Command {
        &self.slots[tag].command
    }

    /// A submission queue entry has come, and with it `capsule_len` bytes of data: what
    /// the driver does for it. `None`: it is refused, and answered; the data is dropped.
    #[inline(always)]
    pub(crate) fn submit<F>(
        &mut self,
        sqe: &Sqe,
        capsule_len: u32,
    ) -> Result<Option<Op<F>>, Overrun> {
        let taken = self.slots.take(sqe.cid.get(), self.entries());
        let Some((tag, is_unique)) = taken else {
            return Err(Overrun);
        };
        let is_usual = self.takes_io() && is_unique && is_plain(sqe) && is_io(sqe.opcode);
        let started = match is_usual && self.fuse == Fuse::Idle {
            true => self.start_io(tag, sqe, capsule_len),
            false => self.start_other((tag, is_unique), sqe, capsule_len),
        };
        match started {
            Ok(op) => Ok(Some(op)),
            Err(status) => {
                self.refuse(tag, sqe, status);
                Ok(None)
            }
        }
    }

    /// A plain I/O command.
    #[inline(always)]
    fn start_io<F>(&mut self, tag: Tag, sqe: &Sqe, capsule_len: u32) -> Result<Op<F>, Status> {
        let (io, need) = decode_io(sqe, &self.role.namespaces, self.io_bytes_max)?;
        let transfer = transfer(&sqe.sgl, need, capsule_len)?;
        Ok(self.start(tag, Command::Io(io), transfer))
    }

    /// Everything but plain I/O commands, and those that come where the second
    /// of a fused pair is due.
    #[cold]
    fn start_other<F>(
        &mut self,
        (tag, is_unique): (Tag, bool),
        sqe: &Sqe,
        capsule_len: u32,
    ) -> Result<Op<F>, Status> {
        if is_unique && self.role.qid == 0 {
            self.note_forgotten(tag);
        }
        let is_fused = sqe.flags & Sqe::FUSE_MASK != 0 || self.fuse != Fuse::Idle;
        if self.takes_io() && is_fused {
            return self.start_fused((tag, is_unique), sqe, capsule_len);
        }
        if !is_unique {
            return Err(Status::CID_CONFLICT.dnr());
        }
        self.start_single(tag, sqe, capsule_len)
    }

    /// A command that is no part of a fused pair.
    #[cold]
    fn start_single<F>(&mut self, tag: Tag, sqe: &Sqe, capsule_len: u32) -> Result<Op<F>, Status> {
        let (command, need) = self.decode(sqe)?;
        let transfer = transfer(&sqe.sgl, need, capsule_len)?;
        if let Command::Connect(_) = command {
            self.phase = QueuePhase::Connecting;
        }
        let slot = &mut self.slots[tag];
        slot.is_disconnect = matches!(command, Command::Disconnect);
        slot.is_event_request = matches!(
            command,
            Command::Admin(sqe) if sqe.opcode == admin::ASYNC_EVENT_REQUEST
        );
        Ok(self.start(tag, command, transfer))
    }

    /// A command that passed: what the driver does first.
    #[inline(always)]
    fn start<F>(&mut self, tag: Tag, command: Command, transfer: Transfer) -> Op<F> {
        let slot = &mut self.slots[tag];
        slot.command = command;
        slot.is_named = true;
        slot.state = SlotState::Executing;
        match transfer {
            Transfer::None => Op::Execute { tag },
            Transfer::In(len) => {
                slot.read_len = len;
                Op::Execute { tag }
            }
            Transfer::Out(len) => {
                slot.state = SlotState::Preparing;
                Op::Prepare {
                    tag,
                    len,
                    staged: false,
                }
            }
        }
    }

    /// Answers a command that never starts.
    #[cold]
    fn refuse(&mut self, tag: Tag, sqe: &Sqe, status: Status) {
        self.end_with(tag, status);
        self.notices.push_back(QueueNotice::Refused(RefusedCommand {
            cid: sqe.cid.get(),
            status,
            nsid: sqe.nsid.get(),
            slba: sqe.slba(),
            location: error_location(status),
        }));
    }

    /// Memory for `tag` is there; whether its data is still wanted.
    #[inline]
    pub(crate) fn prepared(&mut self, tag: Tag) -> bool {
        if self.is_ended() {
            return false;
        }
        let slot = &mut self.slots[tag];
        assert_eq!(slot.state, SlotState::Preparing, "prepared once");
        slot.state = SlotState::Receiving;
        if slot.is_given_up() {
            self.withdrawn.push(tag);
            return false;
        }
        true
    }

    /// All data of `tag` has come: what the driver does then, if not its fused partner is
    /// still to come, or it was given up.
    #[inline]
    pub(crate) fn data_whole<F>(&mut self, tag: Tag) -> Option<Op<F>> {
        let slot = &mut self.slots[tag];
        if slot.is_given_up() {
            self.data_over(tag);
            return None;
        }
        if slot.fused != Fused::No {
            return self.pair_up(tag);
        }
        slot.state = SlotState::Executing;
        Some(Op::Execute { tag })
    }

    /// The command of `tag` has ended: the driver has executed it, or has no memory for
    /// it.
    #[inline]
    pub(crate) fn complete(&mut self, tag: Tag, done: Done) {
        if self.is_ended() {
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
        assert!(data_len <= slot.read_len, "more than the SGL holds");
        slot.state = SlotState::Answering;
        slot.status = done.status;
        slot.result = done.result;
        slot.data_len = data_len;
        if slot.is_forgotten {
            return self.end_forgotten(tag);
        }
        self.answers.push_back(tag);
        if self.phase == QueuePhase::Connecting {
            // Nothing but Connect executes before there is a queue.
            self.connected(done.status);
        }
    }

    #[cold]
    fn connected(&mut self, status: Status) {
        self.phase = match status.is_success() {
            true if self.role.authentication == InBandAuthentication::Required => {
                QueuePhase::Authenticating
            }
            true => QueuePhase::Live,
            false => QueuePhase::Connect,
        };
    }

    /// Ends a command that the driver does not, or no longer, execute.
    #[cold]
    fn end_with(&mut self, tag: Tag, status: Status) {
        let slot = &mut self.slots[tag];
        slot.state = SlotState::Answering;
        slot.status = status;
        self.answers.push_back(tag);
    }

    /// `tag` may have the CID of an event request, which the host has forgotten then.
    fn note_forgotten(&mut self, tag: Tag) {
        let Some(request) = self.slots.event_request(tag) else {
            return;
        };
        self.slots[request].is_forgotten = true;
        match self.slots[request].state {
            SlotState::Answering => self.end_forgotten(request),
            _ => self
                .notices
                .push_back(QueueNotice::Forgotten(request, None)),
        }
    }

    /// A forgotten request is completed. Its answer would pass for another's, and its
    /// event goes back to the driver.
    #[cold]
    fn end_forgotten(&mut self, tag: Tag) {
        self.answers.retain(|ended| *ended != tag);
        self.unanswered.push(tag);
        self.notices
            .retain(|notice| *notice != QueueNotice::Forgotten(tag, None));
        let slot = &self.slots[tag];
        if slot.status.is_success() && slot.result != 0 {
            let event = Some(slot.result as u32);
            self.notices.push_back(QueueNotice::Forgotten(tag, event));
        }
    }

    /// The next that the driver has not read yet.
    #[inline]
    pub(crate) fn next_notice<F>(&mut self) -> Option<Op<F>> {
        match self.has_notice() {
            true => self.take_notice(),
            false => None,
        }
    }

    /// Whether there is one.
    #[inline]
    pub(crate) fn has_notice(&self) -> bool {
        !self.notices.is_empty()
    }

    #[cold]
    fn take_notice<F>(&mut self) -> Option<Op<F>> {
        match self.notices.pop_front()? {
            QueueNotice::Refused(refused) => Some(Op::Refused(refused)),
            QueueNotice::Forgotten(tag, event) => Some(Op::Forgotten { tag, event }),
        }
    }

    /// Whether an answer is to be sent.
    #[inline]
    pub(crate) fn has_answer(&self) -> bool {
        !self.answers.is_empty()
    }

    /// The answer that goes next.
    #[inline]
    pub(crate) fn answer(&self) -> Option<Answer> {
        let tag = *self.answers.front()?;
        let slot = &self.slots[tag];
        Some(Answer {
            tag,
            cid: slot.cid,
            data_len: slot.data_len,
            is_bare_success: self.role.flow_control_disabled
                && slot.result == 0
                && slot.status == Status::SUCCESS,
        })
    }

    /// The data of the answer that goes next has been sent.
    #[inline]
    pub(crate) fn data_sent(&mut self) {
        if let Some(&tag) = self.answers.front() {
            self.slots[tag].data_len = 0;
        }
    }

    /// The completion queue entry of an answer, which is sent now.
    #[inline]
    pub(crate) fn completion(&mut self, answer: &Answer) -> Cqe {
        let sqhd = if self.role.flow_control_disabled {
            NO_SQHD
        } else {
            // Advanced by answers, not by fetches: a host that follows SQHD can
            // then never have more in flight than the queue has entries.
            self.sqhd = (self.sqhd + 1) % self.role.entries;
            self.sqhd
        };
        let slot = &self.slots[answer.tag];
        Cqe::new(slot.cid, slot.status, slot.result, sqhd)
    }

    /// The answer that went next has been sent: its tag, if the driver knows it. That of a
    /// Disconnect ends the queue.
    #[inline]
    pub(crate) fn answered(&mut self) -> Option<Tag> {
        let tag = self.answers.pop_front()?;
        let slot = self.slots.free(tag);
        let is_named = slot.is_named;
        if slot.is_disconnect && slot.status.is_success() {
            self.end();
        }
        is_named.then_some(tag)
    }

    /// The next tag that is over without an answer.
    #[inline]
    pub(crate) fn next_unanswered(&mut self) -> Option<Tag> {
        let tag = self.unanswered.pop()?;
        self.slots.free(tag);
        Some(tag)
    }

    /// Nothing comes or goes any more.
    pub(crate) fn end(&mut self) {
        self.phase = QueuePhase::Ended;
        self.answers.clear();
        self.withdrawn.clear();
        self.notices.clear();
        self.unanswered.clear();
    }
}
