//! The target's end of an iSCSI connection.

mod control;
mod data_out;
mod end;
mod login;
mod lost;
mod receive;
mod recovery;
mod send;
mod task_management;
mod tasks;
mod text;
mod transfers;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use machine::{Machine, Nanos, RecvPlan, Step, Tag, Transmit};
use wire::iscsi::{
    BHS_LEN, LogoutReason, LogoutRequest, RejectReason, TaskAttribute, TaskFunction,
    serial_distance,
};
use wire::scsi::{SenseBytes, status};

use self::control::{Control, ControlPdu};
use self::login::Login;
use self::lost::Lost;
use self::recovery::{Hole, KeptAnswer};
use self::tasks::{Kind, State, Tasks};
use self::text::Exchange;
use self::transfers::{NO_TRANSFER, Transfers};
use crate::carrier::Carrier;
use crate::iser::IserError;
use crate::negotiated::Negotiated;
use crate::session::Session;
use machine::inbound::{Inbound, Walk};

pub use self::end::AbortOutcome;
pub use self::login::Detached;
pub use self::text::TextRequest;

/// Staging when small PDUs are expected.
const STAGE_LARGE: u32 = 256 * 1024;
/// Staging until the full feature phase: a peer that is not logged in and sends half
/// a header holds no more than this.
const STAGE_LOGIN: u32 = 2048;
/// Staging when Data-Out is expected: a command or the header of a Data-Out
/// PDU, with their digests, and one more. What follows then lands directly.
const STAGE_HEADERS: u32 = 2 * (BHS_LEN as u32 + 8);
/// From so many bytes of Data-Out still to come, a receive for each PDU costs
/// less than copying them.
const BULK_MIN: u64 = 32 * 1024;
/// After a command that came with so much data, as many more are taken to do so.
const BULK_COMMANDS: u8 = 4;
/// Most R2Ts outstanding for one task, whatever the initiator would take.
const R2TS_MAX: u16 = 16;
/// Tasks beyond the queue depth: immediate commands, task management functions,
/// NOP-Outs with data.
const EXTRA_TASKS_MAX: usize = 64;
/// So many answers that are no task's may wait to be sent before no more
/// requests are taken.
const CONTROLS_MAX: usize = 64;
/// A request waits no longer than this for those before it, which come on other
/// connections.
const ORDER_TIMEOUT: Nanos = 20_000_000_000;
/// Initiator Task Tags of aborted tasks whose unsolicited data may still come.
const ABORTED_MAX: usize = 64;

/// What a connection may do before it has logged in; the same for all of a
/// listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetSettings {
    /// Until the full feature phase must have begun.
    pub handshake_timeout: Nanos,
}

impl Default for TargetSettings {
    fn default() -> TargetSettings {
        TargetSettings {
            handshake_timeout: 10_000_000_000,
        }
    }
}

/// What a connection becomes with the last answer of its login.
#[derive(Clone, Debug)]
pub struct ConnectionRole {
    /// What it shares with the other connections of its session.
    pub session: Rc<RefCell<Session>>,
    /// The values of all keys.
    pub negotiated: Negotiated,
    /// Connection ID.
    pub cid: u16,
    /// After so long without a PDU the initiator is asked whether it is there;
    /// 0: never.
    pub nop_interval: Nanos,
    /// So long it may take to answer, else the connection ends.
    pub nop_timeout: Nanos,
}

/// A SCSI command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Logical unit: the LUN field as a big-endian number.
    pub lun: u64,
    /// Command descriptor block.
    pub cdb: [u8; 16],
    /// Task attribute.
    pub attribute: TaskAttribute,
    /// Command priority, 0 to 15; 0: none (RFC 7144, section 4.1).
    pub priority: u8,
    /// R: the initiator expects data.
    pub read: bool,
    /// W: the initiator sends data.
    pub write: bool,
    /// It was sent for immediate delivery.
    pub immediate: bool,
    /// Expected Data Transfer Length, bytes.
    pub edtl: u32,
    /// Initiator Task Tag.
    pub itt: u32,
    /// CmdSN.
    pub cmd_sn: u32,
}

/// Work for the driver. Commands of one session arrive in the order of their
/// CmdSN, each with `Prepare` or, where the initiator sends no data, `Execute`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetOp {
    /// A login step is complete: take it with [`Connection::take_login`] and
    /// answer with [`Connection::login_answer`].
    Login,
    /// A text of the full feature phase is complete: take it with
    /// [`Connection::take_text`] and answer with [`Connection::text_answer`].
    Text,
    /// Data will arrive, or is arriving: say with [`Connection::prepared`] how
    /// much of it is wanted, once there is memory for that, at once or later;
    /// or end the task with [`Connection::complete`].
    Prepare {
        /// The task.
        tag: Tag,
        /// What it is.
        task: Task,
        /// All of the data is staged: its `Place` and the `Execute` follow
        /// before any byte is received.
        staged: bool,
    },
    /// All data of the command that is wanted is here: execute it, then call
    /// [`Connection::complete`].
    Execute {
        /// The task.
        tag: Tag,
        /// What it is.
        task: Task,
    },
    /// A NOP-Out brings data, to be sent back: provide `len` bytes of memory for
    /// it, then call [`Connection::prepared`] with `len`; or do without with
    /// [`Connection::complete`]. Nothing is executed.
    Ping {
        /// The NOP-Out.
        tag: Tag,
        /// Bytes.
        len: u32,
    },
    /// A task management function; everything before it was delivered. It
    /// concerns [`Connection::tasks_before`] its CmdSN (which
    /// [`Connection::task`] tells), on all connections of the session. Answer
    /// with [`Connection::task_management_done`].
    TaskManagement {
        /// The function.
        tag: Tag,
        /// What it is.
        function: TaskFunction,
        /// The LUN field, as in [`Task::lun`].
        lun: u64,
        /// Of ABORT TASK: the task, which may be in any state.
        referenced: Option<Tag>,
    },
    /// The initiator logs out: close what it says, then answer with
    /// [`Connection::logout_answer`]. Nothing more is taken before that.
    Logout {
        /// What is to be closed.
        reason: LogoutReason,
        /// The connection, unless all of the session is.
        cid: u16,
    },
    /// The machine has given up on a task whose data broke a rule or its digest,
    /// and answers it itself: it will not be executed. Forget it; if it is not
    /// prepared yet, call [`Connection::complete`], with whatever.
    GivenUp {
        /// The task.
        tag: Tag,
    },
    /// A PDU was rejected, and is answered already: for the log.
    Refused(RejectedPdu),
    /// The connection ends once everything was sent.
    Fatal(FatalError),
}

/// A PDU that was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejectedPdu {
    /// Its opcode.
    pub opcode: u8,
    /// Its Initiator Task Tag.
    pub itt: u32,
    /// Why.
    pub reason: RejectReason,
}

/// Why a connection ends before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FatalError {
    /// A header digest did not match: where the next PDU begins is not known
    /// (RFC 7143, section 7.8).
    HeaderDigest,
    /// A PDU that breaks the rules of its format: all connections of the
    /// session have to be closed (section 7.7).
    Format {
        /// Its opcode.
        opcode: u8,
        /// What is wrong.
        what: &'static str,
    },
    /// Something else than a Login Request before the full feature phase.
    NoLogin {
        /// The opcode.
        opcode: u8,
    },
    /// A Login Request that breaks the rules.
    Login {
        /// What is wrong.
        what: &'static str,
    },
    /// The full feature phase was not reached in time.
    LoginTimeout,
    /// A CmdSN within the window came whose predecessors cannot come, or did
    /// not in time; or the expected one was lost and did not come again.
    CmdSnGap {
        /// The CmdSN.
        cmd_sn: u32,
        /// The one that was expected.
        expected: u32,
    },
    /// The initiator did not answer a NOP-In in time.
    KeepAlive,
    /// The stream of RDMA ends, or what comes by it breaks iSER.
    Rdma(IserError),
    /// The listener serves no initiators by TCP.
    TcpNotServed,
}

impl FatalError {
    /// Whether the other connections of the session must be closed too.
    pub fn ends_session(&self) -> bool {
        matches!(self, FatalError::Format { .. })
    }
}

impl fmt::Display for FatalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FatalError::HeaderDigest => f.write_str("a header digest does not match"),
            FatalError::Format { opcode, what } => {
                write!(f, "format error in a PDU with opcode {opcode:#04x}: {what}")
            }
            FatalError::NoLogin { opcode } => {
                write!(
                    f,
                    "a PDU with opcode {opcode:#04x} before the login is over"
                )
            }
            FatalError::Login { what } => write!(f, "login refused: {what}"),
            FatalError::LoginTimeout => f.write_str("no login in time"),
            FatalError::CmdSnGap { cmd_sn, expected } => match cmd_sn == expected {
                true => write!(f, "CmdSN {cmd_sn} was rejected and did not come again"),
                false => write!(f, "CmdSN {cmd_sn} came, and {expected} did not"),
            },
            FatalError::KeepAlive => f.write_str("no answer to a NOP-In in time"),
            FatalError::Rdma(error) => error.fmt(f),
            FatalError::TcpNotServed => f.write_str(
                "refused: the listener is for iSER alone (`rdma = \"only\"`), and this came by TCP",
            ),
        }
    }
}

/// How a task ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// SCSI status.
    pub status: u8,
    /// Sense data; empty for none.
    pub sense: SenseBytes,
    /// Bytes from the start of the task's memory to send to the initiator: of a
    /// read only, and at most its [`Task::edtl`].
    pub data_in_len: u32,
    /// Bytes that were, or would have been, transferred in the direction of the
    /// command, had the initiator expected any number: what is above its EDTL
    /// is the residual overflow, what is below the underflow.
    pub transfer_len: u64,
    /// The task was aborted: no answer is sent.
    is_aborted: bool,
}

impl Done {
    /// GOOD, without data to the initiator, of a command that transfers
    /// `transfer_len` bytes.
    #[inline]
    pub fn good(transfer_len: u64) -> Done {
        Done {
            transfer_len,
            ..Done::default()
        }
    }

    /// GOOD, with `data_in_len` bytes to the initiator out of `transfer_len`
    /// that the command has.
    #[inline]
    pub fn read(data_in_len: u32, transfer_len: u64) -> Done {
        Done {
            data_in_len,
            transfer_len,
            ..Done::default()
        }
    }

    /// CHECK CONDITION, nothing transferred.
    pub fn check_condition(sense: SenseBytes) -> Done {
        Done {
            status: status::CHECK_CONDITION,
            sense,
            ..Done::default()
        }
    }

    /// Another status without sense data, nothing transferred.
    pub fn status(status: u8) -> Done {
        Done {
            status,
            ..Done::default()
        }
    }

    /// Whether the task was aborted.
    pub(crate) fn is_aborted(&self) -> bool {
        self.is_aborted
    }

    /// The task was aborted by a task management function: it has no response.
    pub fn aborted() -> Done {
        Done {
            is_aborted: true,
            ..Done::default()
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionPhase {
    /// Login Requests come.
    Login,
    /// Everything else comes.
    FullFeature,
    /// Nothing comes any more; a last answer leaves.
    Closing,
    /// Nothing leaves any more.
    Ended,
}

/// What must happen before the next PDU is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    None,
    /// The driver answers a login step, a text or a logout.
    Answer,
    /// Requests of the session that come before this CmdSN, since this time.
    Turn(u32, Nanos),
    /// A place for one more task.
    Room,
}

/// The target's end of one iSCSI connection (RFC 7143).
///
/// Every tag that an [`TargetOp`] named ends with [`Transmit::release`], but for tasks
/// that are aborted: of those the machine is silent from then on. While memory
/// is awaited for data that is next in the stream, an answer for a login step,
/// text or logout, or a CmdSN of another connection, [`Machine::recv_plan`]
/// wants nothing (`stage_max` 0): keep the staged bytes and walk them again
/// when [`Machine::has_step`] says so.
///
/// A task that is given up before the driver executes it is answered once the
/// initiator has sent all that it was asked for, so that no data of it can come
/// after its answer. An aborted one is not waited for: its Target Transfer Tags
/// lead nowhere any more, and what still comes for them is dropped.
#[derive(Debug)]
pub struct Connection {
    settings: TargetSettings,
    phase: ConnectionPhase,
    header_digest: bool,
    data_digest: bool,
    carrier: Carrier,
    keys: Negotiated,
    session: Rc<RefCell<Session>>,
    cid: u16,
    /// The next StatSN.
    stat_sn: u32,
    login: Login,
    /// A session was found, though the full feature phase may be to come.
    is_attached: bool,
    is_discovery: bool,
    /// The values of all keys once the full feature phase has begun.
    keys_to_be: Negotiated,
    /// The logout that the driver works on, and whether MaxCmdSN moves with its
    /// answer.
    logout: (LogoutRequest, bool),
    exchange: Exchange,
    inbound: Inbound,
    /// What the PDU whose data is arriving belongs to.
    arriving: Arriving,
    /// Requests that have to come again.
    lost: Lost,
    tasks: Tasks,
    transfers: Transfers,
    /// Ranges to be asked for once more.
    holes: Vec<Hole>,
    hold: Hold,
    /// The last walk ended before a PDU because of `hold`.
    was_held: bool,
    /// Things to send, in order.
    ready: VecDeque<ControlPdu>,
    /// How many of them are no task's.
    extras: usize,
    /// Those that are no task's.
    controls: VecDeque<Control>,
    /// Tasks that became complete outside of a walk.
    due: VecDeque<Tag>,
    /// What the driver is told besides what the stream brings.
    ops: VecDeque<TargetOp>,
    /// Task management functions that await earlier commands.
    functions: VecDeque<Tag>,
    /// Whether answers are kept until they are acknowledged.
    keeps: bool,
    /// Answers by StatSN, those not acknowledged yet.
    kept: VecDeque<(u32, KeptAnswer)>,
    /// Bytes of memory that those keep.
    kept_bytes: u64,
    /// Bytes of data of those that are no task's any more.
    kept_control_bytes: usize,
    /// So many of the oldest keep no memory.
    shed_len: usize,
    /// Tasks whose answer is acknowledged: to be released with the next PDU.
    acknowledged: Vec<Tag>,
    /// Bytes of Data-Out whose PDU has not begun.
    data_out_bytes: u64,
    /// So many commands more are taken to bring bulk data with them.
    bulk: u8,
    /// Initiator Task Tags of aborted tasks.
    aborted: VecDeque<u32>,
    /// A PDU for Text and Reject is put together here.
    scratch: Vec<u8>,
    /// Bytes of it that were written: a long PDU goes out in several batches.
    written: usize,
    keep_alive: KeepAlive,
    /// When it was last asked for a step.
    now: Nanos,
    deadline: Option<Nanos>,
}

/// The PDU whose data segment is arriving.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    /// The sequence that ends with it.
    ends: u16,
    /// It is a request that is taken when its data is intact.
    holds_cmd_sn: bool,
    /// Its header, kept where data digests are in use, and of a text.
    header: [u8; BHS_LEN],
}

#[derive(Clone, Copy, Debug, Default)]
struct KeepAlive {
    interval: Nanos,
    timeout: Nanos,
    /// Something came since the last look.
    heard: bool,
    /// The Target Transfer Tag of the NOP-In that is not answered.
    asked: Option<u32>,
    /// The next one's.
    ttt: u32,
    /// When to look next.
    next_at: Nanos,
}

impl Connection {
    /// The machine of a connection accepted at `now`.
    pub fn new(settings: TargetSettings, now: Nanos) -> Connection {
        Connection::with(
            settings,
            Login::default(),
            0,
            Some(now.saturating_add(settings.handshake_timeout)),
        )
    }

    fn with(
        settings: TargetSettings,
        login: Login,
        stat_sn: u32,
        deadline: Option<Nanos>,
    ) -> Connection {
        Connection {
            settings,
            phase: ConnectionPhase::Login,
            header_digest: false,
            data_digest: false,
            carrier: Carrier::Tcp,
            keys: Negotiated::default(),
            session: Rc::new(RefCell::new(Session::new(0, 1, true))),
            cid: 0,
            stat_sn,
            login,
            is_attached: false,
            is_discovery: false,
            keys_to_be: Negotiated::default(),
            logout: (LogoutRequest::new(), false),
            exchange: Exchange::default(),
            inbound: Inbound::default(),
            arriving: Arriving {
                ends: NO_TRANSFER,
                holds_cmd_sn: false,
                header: [0; BHS_LEN],
            },
            lost: Lost::default(),
            tasks: Tasks::new(),
            transfers: Transfers::new(),
            holes: Vec::new(),
            hold: Hold::None,
            was_held: false,
            ready: VecDeque::new(),
            extras: 0,
            controls: VecDeque::new(),
            due: VecDeque::new(),
            ops: VecDeque::new(),
            functions: VecDeque::new(),
            keeps: false,
            kept: VecDeque::new(),
            kept_bytes: 0,
            kept_control_bytes: 0,
            shed_len: 0,
            acknowledged: Vec::new(),
            data_out_bytes: 0,
            bulk: 0,
            aborted: VecDeque::new(),
            scratch: Vec::new(),
            written: 0,
            keep_alive: KeepAlive::default(),
            now: 0,
            deadline,
        }
    }

    /// Whether data is covered by a digest.
    #[inline]
    pub fn data_digest(&self) -> bool {
        self.data_digest
    }

    /// Whether headers are.
    pub fn header_digest(&self) -> bool {
        self.header_digest
    }

    /// Says what carries it, before its first PDU.
    pub(crate) fn set_carrier(&mut self, carrier: Carrier) {
        self.carrier = carrier;
    }

    /// The values of its keys.
    pub(crate) fn keys(&self) -> &Negotiated {
        &self.keys
    }

    /// The task whose data is next and waits for its memory.
    pub(crate) fn arriving_tag(&self) -> Option<Tag> {
        self.inbound.blocked_tag()
    }

    /// The task with this Initiator Task Tag, in any state.
    pub(crate) fn tag_of(&self, itt: u32) -> Option<Tag> {
        self.tasks.find(itt)
    }

    /// Ends it: what carries it has ended.
    pub(crate) fn lose(&mut self) {
        self.end();
    }

    /// Tasks in flight, those included whose answer is not sent yet.
    pub fn in_flight(&self) -> usize {
        self.tags().count()
    }

    /// Tags of the tasks in flight.
    fn tags(&self) -> impl Iterator<Item = Tag> {
        let is_kept = |tag: &Tag| self.tasks[*tag].state == State::Kept;
        self.tasks.tags().filter(move |tag| !is_kept(tag))
    }

    /// The SCSI commands in flight that are not answered yet.
    pub fn tasks(&self) -> impl Iterator<Item = (Tag, &Task)> {
        let is_command = |tag: &Tag| {
            let slot = &self.tasks[*tag];
            slot.kind == Kind::Scsi && slot.state != State::Responding
        };
        let tags = self.tags().filter(is_command);
        tags.map(|tag| (tag, self.tasks.task(tag)))
    }

    /// Those of them that were sent before a task management function with this
    /// CmdSN: what comes later is not concerned by it (RFC 7143, section
    /// 4.2.3.2).
    pub fn tasks_before(&self, cmd_sn: u32) -> impl Iterator<Item = (Tag, &Task)> {
        let is_before = move |task: &Task| match serial_distance(task.cmd_sn, cmd_sn) {
            0 => task.immediate,
            ahead => ahead > 0,
        };
        self.tasks().filter(move |(_, task)| is_before(task))
    }

    /// The SCSI command with this Initiator Task Tag that is not answered yet.
    pub fn find(&self, itt: u32) -> Option<Tag> {
        let found = self.tasks().find(|(_, task)| task.itt == itt);
        found.map(|(tag, _)| tag)
    }

    /// What a task in flight is.
    #[inline]
    pub fn task(&self, tag: Tag) -> &Task {
        self.tasks.task(tag)
    }

    /// The session, once there is one.
    pub fn session(&self) -> Option<&Rc<RefCell<Session>>> {
        self.is_attached.then_some(&self.session)
    }

    /// Whether there is something to do besides what the stream brings.
    #[inline]
    fn has_news(&self) -> bool {
        !self.due.is_empty() || !self.ops.is_empty() || self.has_function()
    }

    /// Memory for `tag` is there: `wanted` bytes from the start of its data,
    /// never more than its EDTL, are taken; what else the initiator sends is
    /// dropped, and never asked for.
    #[inline]
    pub fn prepared(&mut self, tag: Tag, wanted: u32) {
        if !self.is_open() {
            return;
        }
        let slot = &mut self.tasks[tag];
        assert_eq!(slot.state, State::Preparing, "prepared once");
        assert!(wanted <= slot.expected, "more than the initiator sends");
        slot.state = State::Receiving;
        slot.wanted = wanted;
        if slot.is_given_up {
            return self.settle(tag);
        }
        if self.inbound.is_blocked_on(tag) {
            self.inbound.unblock(tag, wanted);
            self.was_held = true;
        }
        if self.inbound.is_on(tag) {
            // It goes on when the data that is arriving is found to be intact.
            return;
        }
        if self.tasks[tag].has_all() {
            self.due.push_back(tag);
        } else if self.wants_r2t(tag) {
            self.queue(tag);
        }
    }

    /// The task of `tag` ended: after [`TargetOp::Execute`], or instead of
    /// [`Connection::prepared`], or while its data is still coming.
    #[inline]
    pub fn complete(&mut self, tag: Tag, done: Done) {
        if !self.is_open() {
            return;
        }
        if done.is_aborted {
            return self.forget(tag);
        }
        let slot = &mut self.tasks[tag];
        match slot.state {
            State::Executing if slot.kind == Kind::Scsi => {}
            State::Preparing | State::Receiving => return self.complete_early(tag, &done),
            state => panic!("completed a task that is {state:?}"),
        }
        slot.state = State::Responding;
        self.set_answer(tag, &done);
        self.queue(tag);
    }

    /// What `tag` will be answered with.
    #[inline]
    fn set_answer(&mut self, tag: Tag, done: &Done) {
        let edtl = u64::from(self.tasks.task(tag).edtl);
        let slot = &mut self.tasks[tag];
        assert!(u64::from(done.data_in_len) <= edtl, "more than is expected");
        slot.status = done.status;
        slot.data_in_len = done.data_in_len;
        if done.transfer_len != edtl {
            let (flag, count) = match done.transfer_len.checked_sub(edtl) {
                Some(over) => (wire::iscsi::flags::OVERFLOW, over),
                None => (wire::iscsi::flags::UNDERFLOW, edtl - done.transfer_len),
            };
            slot.residual_flags = flag;
            slot.residual_count = u32::try_from(count).unwrap_or(u32::MAX);
        }
        slot.has_sense = !done.sense.as_slice().is_empty();
        if slot.has_sense {
            self.tasks.set_sense(tag, &done.sense);
        }
    }

    /// Whether the connection has a session and lives.
    #[inline]
    fn is_open(&self) -> bool {
        self.phase == ConnectionPhase::FullFeature
    }

    /// `tag` has something to send.
    #[inline]
    fn queue(&mut self, tag: Tag) {
        let slot = &mut self.tasks[tag];
        if !slot.is_queued {
            slot.is_queued = true;
            self.ready.push_back(ControlPdu::Task(tag));
        }
    }

    /// Tasks that there may be at a time, those kept included.
    #[inline]
    fn tasks_max(&self) -> usize {
        let depth = usize::from(self.session.borrow().queue_depth());
        depth * if self.keeps { 2 } else { 1 } + EXTRA_TASKS_MAX
    }

    /// Whether the next PDU must not be looked at yet.
    #[inline]
    fn is_held(&self) -> bool {
        if self.inbound.is_blocked() || self.extras >= CONTROLS_MAX {
            return true;
        }
        match self.hold {
            Hold::None => false,
            Hold::Answer => true,
            // A function may have passed over it.
            Hold::Turn(cmd_sn, _) => {
                serial_distance(self.session.borrow().exp_cmd_sn(), cmd_sn) > 0
            }
            Hold::Room => !self.tasks.has_room(self.tasks_max()),
        }
    }

    /// [`Machine::poll_step`] with its result written in place, because moving it
    /// costs as much as parsing it.
    #[inline(always)]
    fn walk(&mut self, staged: &[u8], at: &mut usize, step: &mut Option<Step<TargetOp>>) {
        self.was_held = false;
        while matches!(
            self.phase,
            ConnectionPhase::FullFeature | ConnectionPhase::Login
        ) {
            if self.has_news() && self.take_due_op(step) {
                return;
            }
            match self.inbound.walk(staged, at) {
                Walk::Header => {
                    if self.is_held() {
                        self.was_held = true;
                        return;
                    }
                    self.hold = Hold::None;
                    match self.pdu(&staged[*at..], step) {
                        Ok(0) => {
                            self.was_held = self.hold != Hold::None;
                            return;
                        }
                        Ok(used) => *at += used,
                        Err(error) => self.fail(error),
                    }
                }
                Walk::More => {
                    self.was_held = self.inbound.is_blocked();
                    return;
                }
                Walk::Step(found) => *step = Some(found),
                Walk::Data { tag, is_intact } => self.received(tag, is_intact, step),
                Walk::Text { is_intact } => self.text_received(is_intact),
            }
            if step.is_some() {
                return;
            }
        }
        *at = staged.len();
        self.take_due_op(step);
    }

    /// Ends the connection.
    #[cold]
    fn fail(&mut self, error: FatalError) {
        self.end();
        self.ops.push_back(TargetOp::Fatal(error));
    }

    #[cold]
    fn end(&mut self) {
        self.leave_session();
        self.phase = ConnectionPhase::Ended;
        self.inbound.discard();
        self.hold = Hold::None;
        self.ready.clear();
        self.written = self.scratch.len();
        self.extras = 0;
        self.controls.clear();
        self.due.clear();
        self.functions.clear();
        self.ops.clear();
        self.deadline = None;
    }

    /// The session goes on without this connection, and what it had taken here
    /// has ended: there is room for as much on the others.
    fn leave_session(&mut self) {
        if !std::mem::take(&mut self.is_attached) {
            return;
        }
        self.confirm_cmd_sn();
        let tasks = self.tags().filter(|tag| self.tasks[*tag].holds_window);
        let controls = self.controls.iter().filter(|control| control.holds_window);
        let under_way = tasks.count() + controls.count();
        let mut session = self.session.borrow_mut();
        (0..under_way).for_each(|_| session.ended());
        session.leave(self.cid);
    }

    /// Takes one of the things to do besides what the stream brings; whether
    /// there was one.
    #[cold]
    fn take_due_op(&mut self, step: &mut Option<Step<TargetOp>>) -> bool {
        let op = if let Some(tag) = self.due.pop_front() {
            self.tasks[tag].state = State::Executing;
            let task = *self.tasks.task(tag);
            Some(TargetOp::Execute { tag, task })
        } else {
            self.ops.pop_front().or_else(|| self.next_function())
        };
        *step = op.map(Step::Op);
        step.is_some()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.leave_session();
    }
}

impl Machine for Connection {
    type Op = TargetOp;

    fn tags_max(&self) -> usize {
        self.tasks.len()
    }

    #[inline]
    fn recv_plan(&self) -> RecvPlan {
        let is_stopped = match self.inbound.is_at_header() {
            true => self.is_held(),
            false => self.inbound.is_blocked(),
        };
        if is_stopped {
            return RecvPlan {
                direct: None,
                stage_max: 0,
            };
        }
        let stage_max = if self.phase != ConnectionPhase::FullFeature {
            STAGE_LOGIN
        } else if self.data_out_bytes >= BULK_MIN || self.bulk > 0 {
            // Data that is dropped goes through the staging buffer, as much of it at
            // once as there is.
            (STAGE_HEADERS + self.inbound.unwanted()).min(STAGE_LARGE)
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
        self.keep_alive.heard = true;
        self.inbound.on_direct(len);
    }

    #[inline]
    fn poll_step(&mut self, now: Nanos, staged: &[u8], at: &mut usize) -> Option<Step<TargetOp>> {
        self.now = now;
        let mut step = None;
        self.walk(staged, at, &mut step);
        step
    }

    #[inline]
    fn has_step(&self) -> bool {
        self.has_news() || self.was_held && !self.is_held()
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
        !self.ready.is_empty() || !self.is_written()
    }

    #[inline]
    fn poll_transmit(&mut self, out: &mut impl Transmit) {
        self.transmit(out);
    }

    fn is_finished(&self) -> bool {
        matches!(
            self.phase,
            ConnectionPhase::Closing | ConnectionPhase::Ended
        )
    }

    fn deadline(&self) -> Option<Nanos> {
        self.deadline
    }

    fn on_deadline(&mut self, now: Nanos) {
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.check_deadlines(now);
        }
    }
}
