//! One connection: its state, and what may be asked of it.

use std::collections::VecDeque;

use machine::{Machine, Nanos, RecvPlan, Step, Tag, Transmit};
use wire::iscsi::{
    BHS_LEN, Bhs, DATA_SEGMENT_LEN_MAX, DIGEST_LEN, LogoutReason, LogoutRequest, NopOut,
    ScsiCommand, TAG_NONE, TaskFunction, TaskManagementRequest, TextRequest, first, flags,
};
use zerocopy::{FromZeros, IntoBytes};

use super::login::{Login, RANDOM_LEN};
use super::{
    Command, CommandOutcome, Completion, ExpectedData, InitiatorFatalError, InitiatorOp,
    InitiatorSession, InitiatorSettings, Residual,
};
use crate::Negotiated;
use machine::inbound::{Inbound, Walk};

/// Staging when small PDUs are expected.
const STAGE_LARGE: u32 = 256 * 1024;
/// Reads that are on average this large are worth a receive each.
const LARGE_READ: u64 = 32 * 1024;
/// Requests other than SCSI commands in flight at most.
const OTHERS_MAX: u16 = 8;
/// Bytes of a text answer at most: thousands of targets with several portals each.
pub(super) const TEXT_LEN_MAX: usize = 16 << 20;
/// Of the NOP-Outs that fill gaps: no slot has it.
const GAP_TAG: Tag = u16::MAX - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionPhase {
    Login,
    FullFeature,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandState {
    Free,
    /// The command window is closed: it has no CmdSN yet.
    Waiting,
    /// To be sent.
    Ready,
    /// The target has it.
    Sent,
}

/// What a slot is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotUse {
    Command,
    Ping,
    Task,
    Text,
    Logout,
}

/// What is to be sent, in the order in which it became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToSend {
    Request(Tag),
    /// A sequence of Data-Out PDUs.
    Data {
        tag: Tag,
        /// Of the R2T, or [`TAG_NONE`].
        ttt: u32,
        offset: u32,
        left: u32,
        data_sn: u32,
    },
}

impl ToSend {
    pub(super) fn tag(&self) -> Tag {
        match self {
            ToSend::Request(tag) | ToSend::Data { tag, .. } => *tag,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct CommandSlot {
    pub(super) state: CommandState,
    pub(super) kind: SlotUse,
    /// Data did not match its digest.
    pub(super) is_damaged: bool,
    /// It was rejected and sent once more.
    pub(super) is_retried: bool,
    pub(super) data: ExpectedData,
    /// Bytes whose PDU has begun (in), or that command, unsolicited data and
    /// R2Ts covered (out).
    pub(super) moved: u32,
    /// Bytes in the command's PDU.
    pub(super) immediate: u32,
    /// R2Ts whose data is not all sent.
    pub(super) r2ts: u16,
    /// The next DataSN or R2TSN.
    pub(super) data_sn: u32,
    /// The request, but for CmdSN and ExpStatSN.
    pub(super) header: [u8; BHS_LEN],
    /// CmdSN, once it has one.
    pub(super) cmd_sn: u32,
    /// Which request of the connection it is, once it is to be sent.
    pub(super) order: u64,
}

impl CommandSlot {
    const FREE: CommandSlot = CommandSlot {
        state: CommandState::Free,
        kind: SlotUse::Command,
        is_damaged: false,
        is_retried: false,
        data: ExpectedData::None,
        moved: 0,
        immediate: 0,
        r2ts: 0,
        data_sn: 0,
        header: [0; BHS_LEN],
        cmd_sn: 0,
        order: 0,
    };

    /// Bytes of data still to come.
    #[inline]
    pub(super) fn expects(&self) -> u32 {
        match self.data {
            ExpectedData::In(len) => len - self.moved,
            _ => 0,
        }
    }

    #[inline]
    pub(super) fn bhs(&self) -> &Bhs {
        zerocopy::transmute_ref!(&self.header)
    }
}

/// The initiator's end of one connection.
///
/// A tag lives from [`InitiatorConnection::submit`] (and the like) to the [`InitiatorOp`] that
/// tells its end; its memory must be known to the driver before the next
/// [`Machine::poll_transmit`]. [`Transmit::release`] is never called.
#[derive(Debug)]
pub struct InitiatorConnection {
    pub(super) session: InitiatorSession,
    pub(super) cid: u16,
    pub(super) phase: ConnectionPhase,
    pub(super) login: Option<Box<Login>>,
    pub(super) agreed: Negotiated,
    /// Header digests on what comes and goes.
    pub(super) header_digest: bool,
    pub(super) data_digest: bool,
    /// Bytes of a data segment that the target may send.
    pub(super) max_recv: u32,
    /// What [`InitiatorConnection::max_recv`] becomes with the login.
    pub(super) max_recv_declared: u32,
    queue_depth: u16,
    pub(super) exp_stat_sn: u32,
    pub(super) inbound: Inbound,
    /// Status, flags and residual that came with the data now arriving.
    pub(super) pending: Option<(CommandOutcome, Residual)>,
    /// The PDU whose data segment is being gathered, and as much as is there.
    pub(super) segment_of: Bhs,
    pub(super) segment: Vec<u8>,
    /// Where sense data lies in the segment.
    pub(super) sense: (usize, usize),
    pub(super) slots: Vec<CommandSlot>,
    free: Vec<Tag>,
    /// SCSI commands among the slots in use.
    commands: u16,
    /// Requests so far that were to be sent.
    requests: u64,
    pub(super) ready: VecDeque<ToSend>,
    /// Commands that the window has no room for.
    pub(super) waiting: VecDeque<Tag>,
    /// Commands that were aborted, to be told.
    pub(super) ended: VecDeque<Tag>,
    /// The answer to the task management function that aborted them.
    pub(super) managed: Option<InitiatorOp>,
    /// Reads whose data is still to come, and how much.
    pub(super) reads: u64,
    pub(super) read_bytes: u64,
    /// PDUs without a slot, and how much of them is sent.
    pub(super) control: Vec<u8>,
    pub(super) control_sent: usize,
    /// NOP-Outs that fill gaps and are not answered yet.
    pub(super) fillers: u32,
    /// The text of the exchange under way so far.
    pub(super) text_in: Vec<u8>,
    pub(super) target_address: Option<String>,
}

impl InitiatorConnection {
    /// The machine of a fresh TCP connection; a Login Request is ready to be
    /// sent. Of a session that has a TSIH it becomes one more connection: `cid`
    /// tells them apart. `random` are unpredictable bytes, for a
    /// challenge.
    pub fn new(
        settings: InitiatorSettings,
        session: InitiatorSession,
        cid: u16,
        random: [u8; RANDOM_LEN],
    ) -> InitiatorConnection {
        assert!(
            (512..=DATA_SEGMENT_LEN_MAX).contains(&settings.max_recv_data_segment),
            "MaxRecvDataSegmentLength is 512 to 2^24 - 1"
        );
        assert!(settings.queue_depth > 0 && settings.queue_depth <= u16::MAX - 2 * OTHERS_MAX);
        let is_joining = session.tsih() != 0;
        let login = Login::new(
            settings.clone(),
            is_joining.then(|| session.agreed()),
            random,
        );
        let mut connection = InitiatorConnection {
            session,
            cid,
            phase: ConnectionPhase::Login,
            login: Some(Box::new(login)),
            agreed: Negotiated::default(),
            header_digest: false,
            data_digest: false,
            max_recv: Negotiated::default().max_recv_data_segment_length,
            max_recv_declared: settings.max_recv_data_segment,
            queue_depth: settings.queue_depth,
            exp_stat_sn: 0,
            inbound: Inbound::default(),
            pending: None,
            segment_of: Bhs::new_zeroed(),
            segment: Vec::new(),
            sense: (0, 0),
            slots: Vec::new(),
            free: Vec::new(),
            commands: 0,
            requests: 0,
            ready: VecDeque::new(),
            waiting: VecDeque::new(),
            ended: VecDeque::new(),
            managed: None,
            reads: 0,
            read_bytes: 0,
            control: Vec::new(),
            control_sent: 0,
            fillers: 0,
            text_in: Vec::new(),
            target_address: None,
        };
        connection.begin_login();
        connection
    }

    /// What the login agreed on, known from [`InitiatorOp::Ready`] on.
    pub fn agreed(&self) -> &Negotiated {
        &self.agreed
    }

    /// The session that it belongs to.
    pub fn session(&self) -> &InitiatorSession {
        &self.session
    }

    /// Where the target sent the initiator, if it did: `address:port` and
    /// perhaps `,tag`.
    pub fn target_address(&self) -> Option<&str> {
        self.target_address.as_deref()
    }

    /// Requests in flight.
    #[inline]
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// How many SCSI commands [`InitiatorConnection::submit`] would take now.
    #[inline]
    pub fn room(&self) -> u16 {
        match self.phase {
            ConnectionPhase::FullFeature => self.queue_depth - self.commands,
            _ => 0,
        }
    }

    /// Most data of a PDU that the target may send.
    pub(crate) fn recv_max(&self) -> u32 {
        self.max_recv
    }

    /// What carries it has ended.
    pub(crate) fn lose(&mut self, why: InitiatorFatalError) -> InitiatorOp {
        self.fail(why)
    }

    /// The sense data of the command that the last step ended.
    pub fn sense(&self) -> &[u8] {
        &self.segment[self.sense.0..self.sense.1]
    }

    /// The last text answer: `key=value` pairs, each with a NUL behind it.
    pub fn text_answer(&self) -> &[u8] {
        &self.text_in
    }

    /// Takes a SCSI command. It is sent when the command window has room for
    /// it. `None`: as many as the queue depth are in flight, or the connection
    /// is not in Full Feature Phase.
    #[inline]
    pub fn submit(&mut self, command: &Command, data: ExpectedData) -> Option<Tag> {
        if self.room() == 0 {
            return None;
        }
        let tag = self.take_slot();
        let data = match data {
            ExpectedData::In(0) | ExpectedData::Out(0) => ExpectedData::None,
            data => data,
        };
        let mut pdu = ScsiCommand::new();
        pdu.lun = command.lun;
        pdu.itt = self.itt(tag).into();
        pdu.cdb = command.cdb;
        pdu.flags = command.attribute as u8 | flags::FINAL;
        if command.is_immediate {
            pdu.first |= first::IMMEDIATE;
        }
        let (mut immediate, mut moved) = (0, 0);
        match data {
            ExpectedData::None => {}
            ExpectedData::In(len) => {
                self.reads += 1;
                self.read_bytes += u64::from(len);
                pdu.flags |= flags::READ;
                pdu.expected_data_transfer_length = len.into();
            }
            ExpectedData::Out(len) => {
                pdu.flags |= flags::WRITE;
                pdu.expected_data_transfer_length = len.into();
                let first_burst = len.min(self.agreed.first_burst_length);
                if self.agreed.immediate_data {
                    immediate = first_burst.min(self.agreed.max_send_data_segment_length);
                }
                moved = match self.agreed.initial_r2t {
                    // The target reads the rest as it needs it.
                    _ if self.agreed.rdma_extensions => len,
                    true => immediate,
                    false => first_burst,
                };
                if moved > immediate && !self.agreed.rdma_extensions {
                    pdu.flags &= !flags::FINAL;
                }
                pdu.data_segment_length = wire::iscsi::U24::new(immediate);
            }
        }
        self.commands += 1;
        self.slots[usize::from(tag)] = CommandSlot {
            data,
            moved,
            immediate,
            header: zerocopy::transmute!(pdu),
            ..CommandSlot::FREE
        };
        self.enqueue(tag, command.is_immediate);
        Some(tag)
    }

    /// Withdraws a command that was not given a CmdSN yet. `false`: the target
    /// has it, or will.
    pub fn withdraw(&mut self, tag: Tag) -> bool {
        let Some(at) = self.waiting.iter().position(|waiting| *waiting == tag) else {
            return false;
        };
        self.waiting.remove(at);
        self.free_slot(tag);
        true
    }

    /// Sends a task management function, immediate (section 11.5). `referenced`
    /// is the command that ABORT TASK and QUERY TASK mean. `None`: no room.
    pub fn task_management(
        &mut self,
        function: TaskFunction,
        lun: [u8; 8],
        referenced: Option<Tag>,
    ) -> Option<Tag> {
        let mut pdu = TaskManagementRequest::new();
        pdu.first |= first::IMMEDIATE;
        pdu.flags = flags::FINAL | function as u8;
        pdu.lun = lun;
        pdu.referenced_task_tag = TAG_NONE.into();
        if let Some(tag) = referenced {
            pdu.referenced_task_tag = self.itt(tag).into();
            let slot = &self.slots[usize::from(tag)];
            // An immediate command has no CmdSN of its own (section 11.5.5).
            let ref_cmd_sn = match slot.bhs().is_immediate() {
                true => self.session.cmd_sn(),
                false => slot.cmd_sn,
            };
            pdu.ref_cmd_sn = ref_cmd_sn.into();
        }
        self.request(SlotUse::Task, zerocopy::transmute!(pdu))
    }

    /// Sends a text request (section 11.10), such as `SendTargets=All\0`; one at
    /// a time. `None`: no room.
    pub fn text(&mut self, text: &[u8]) -> Option<Tag> {
        let is_free =
            |slot: &CommandSlot| slot.state == CommandState::Free || slot.kind != SlotUse::Text;
        if !self.slots.iter().all(is_free) {
            return None;
        }
        let mut pdu = TextRequest::new();
        pdu.first |= first::IMMEDIATE;
        pdu.flags = flags::FINAL;
        pdu.ttt = TAG_NONE.into();
        pdu.data_segment_length = wire::iscsi::U24::new(text.len() as u32);
        let tag = self.take_other(SlotUse::Text)?;
        pdu.itt = self.itt(tag).into();
        pdu.cmd_sn = self.session.cmd_sn().into();
        pdu.exp_stat_sn = self.exp_stat_sn.into();
        self.slots[usize::from(tag)].state = CommandState::Sent;
        self.push_control(pdu.as_bytes(), text);
        self.text_in.clear();
        Some(tag)
    }

    /// Sends a NOP-Out that wants an answer. `None`: no room.
    pub fn ping(&mut self) -> Option<Tag> {
        let mut pdu = NopOut::new();
        pdu.first |= first::IMMEDIATE;
        pdu.flags = flags::FINAL;
        pdu.ttt = TAG_NONE.into();
        self.request(SlotUse::Ping, zerocopy::transmute!(pdu))
    }

    /// Sends a logout (section 11.14). `cid` is the connection that is to be
    /// closed, if it is one. Submit nothing more. `None`: no room.
    pub fn logout(&mut self, reason: LogoutReason, cid: u16) -> Option<Tag> {
        let mut pdu = LogoutRequest::new();
        pdu.first |= first::IMMEDIATE;
        pdu.flags = flags::FINAL | reason as u8;
        pdu.cid = cid.into();
        self.request(SlotUse::Logout, zerocopy::transmute!(pdu))
    }

    fn request(&mut self, kind: SlotUse, header: [u8; BHS_LEN]) -> Option<Tag> {
        let tag = self.take_other(kind)?;
        let itt = self.itt(tag);
        let slot = &mut self.slots[usize::from(tag)];
        slot.header = header;
        // The Initiator Task Tag stands at byte 16 of every PDU.
        slot.header[16..20].copy_from_slice(&itt.to_be_bytes());
        self.enqueue(tag, true);
        Some(tag)
    }

    /// A slot for something else than a SCSI command.
    fn take_other(&mut self, kind: SlotUse) -> Option<Tag> {
        let others = self.in_flight() - usize::from(self.commands);
        if self.phase != ConnectionPhase::FullFeature || others >= usize::from(OTHERS_MAX) {
            return None;
        }
        let tag = self.take_slot();
        self.slots[usize::from(tag)] = CommandSlot {
            kind,
            ..CommandSlot::FREE
        };
        Some(tag)
    }

    #[inline]
    fn enqueue(&mut self, tag: Tag, is_immediate: bool) {
        let cmd_sn = match is_immediate {
            true => Some(self.session.cmd_sn()),
            false if self.waiting.is_empty() => self.session.take_cmd_sn(),
            false => None,
        };
        match cmd_sn {
            Some(cmd_sn) => self.release(tag, cmd_sn),
            None => {
                self.slots[usize::from(tag)].state = CommandState::Waiting;
                self.waiting.push_back(tag);
            }
        }
    }

    /// A request has its CmdSN and is to be sent.
    #[inline]
    pub(super) fn release(&mut self, tag: Tag, cmd_sn: u32) {
        self.requests += 1;
        let slot = &mut self.slots[usize::from(tag)];
        slot.state = CommandState::Ready;
        slot.cmd_sn = cmd_sn;
        slot.order = self.requests;
        self.ready.push_back(ToSend::Request(tag));
    }

    /// Commands that the window has room for now are to be sent. What opens it
    /// may come on another connection of the session: call it before a send.
    #[inline]
    pub fn release_waiting(&mut self) {
        while let Some(&tag) = self.waiting.front() {
            let Some(cmd_sn) = self.session.take_cmd_sn() else {
                return;
            };
            self.waiting.pop_front();
            self.release(tag, cmd_sn);
        }
    }

    /// Initiator Task Tags are unique in the session: CID and slot.
    #[inline]
    fn itt(&self, tag: Tag) -> u32 {
        u32::from(self.cid) << 16 | u32::from(tag)
    }

    /// Of the NOP-Outs that fill gaps.
    pub(super) fn gap_itt(&self) -> u32 {
        self.itt(GAP_TAG)
    }

    /// The slot in flight that an Initiator Task Tag names.
    #[inline]
    pub(crate) fn slot_of(&self, itt: u32) -> Option<Tag> {
        let tag = itt as u16;
        let slot = self.slots.get(usize::from(tag))?;
        (slot.state == CommandState::Sent && itt >> 16 == u32::from(self.cid)).then_some(tag)
    }

    #[inline]
    fn take_slot(&mut self) -> Tag {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(CommandSlot::FREE);
            (self.slots.len() - 1) as Tag
        })
    }

    #[inline]
    pub(super) fn free_slot(&mut self, tag: Tag) {
        let slot = &mut self.slots[usize::from(tag)];
        debug_assert!(slot.state != CommandState::Free, "a tag ends once");
        let missing = slot.expects();
        if missing > 0 {
            self.reads -= 1;
            self.read_bytes -= u64::from(missing);
        }
        slot.state = CommandState::Free;
        self.commands -= u16::from(slot.kind == SlotUse::Command);
        self.free.push(tag);
    }

    /// Ends a SCSI command.
    #[inline]
    pub(super) fn finish(
        &mut self,
        tag: Tag,
        outcome: CommandOutcome,
        residual: Residual,
    ) -> InitiatorOp {
        let slot = &self.slots[usize::from(tag)];
        let is_damaged = slot.is_damaged && outcome == CommandOutcome::GOOD;
        let data_len = match slot.data {
            ExpectedData::In(_) => slot.moved,
            _ => 0,
        };
        self.free_slot(tag);
        InitiatorOp::Completed {
            tag,
            completion: Completion {
                outcome: if is_damaged {
                    CommandOutcome::Damaged
                } else {
                    outcome
                },
                data_len,
                residual,
            },
        }
    }

    #[cold]
    pub(super) fn fail(&mut self, error: InitiatorFatalError) -> InitiatorOp {
        self.phase = ConnectionPhase::Ended;
        self.inbound.discard();
        self.ready.clear();
        self.waiting.clear();
        self.ended.clear();
        self.control.clear();
        self.control_sent = 0;
        InitiatorOp::Fatal(error)
    }

    /// What a task management function leaves to tell: the commands that it
    /// ended, then its answer.
    #[cold]
    fn next_ended(&mut self) -> Option<InitiatorOp> {
        match self.ended.pop_front() {
            Some(tag) => Some(self.finish(tag, CommandOutcome::Aborted, Residual::None)),
            None => self.managed.take(),
        }
    }
}

impl Machine for InitiatorConnection {
    type Op = InitiatorOp;

    fn tags_max(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    fn recv_plan(&self) -> RecvPlan {
        let direct = self.inbound.direct();
        let is_large = self.reads > 0 && self.read_bytes >= self.reads * LARGE_READ;
        if !is_large && direct.is_none() {
            return RecvPlan {
                direct,
                stage_max: STAGE_LARGE,
            };
        }
        // What stands between two payloads: a digest, a header, its digest.
        let mut stage_max = BHS_LEN;
        if self.header_digest {
            stage_max += DIGEST_LEN;
        }
        if self.data_digest && direct.is_some() {
            stage_max += DIGEST_LEN;
        }
        RecvPlan {
            direct,
            stage_max: if is_large {
                stage_max as u32
            } else {
                STAGE_LARGE
            },
        }
    }

    #[inline]
    fn on_direct(&mut self, len: u32) {
        self.inbound.on_direct(len);
    }

    #[inline]
    fn poll_step(&mut self, _: Nanos, staged: &[u8], at: &mut usize) -> Option<Step<InitiatorOp>> {
        while self.phase != ConnectionPhase::Ended {
            if self.managed.is_some()
                && let Some(op) = self.next_ended()
            {
                return Some(Step::Op(op));
            }
            let result = match self.inbound.walk(staged, at) {
                Walk::More => return None,
                Walk::Step(step) => return Some(step),
                Walk::Data { tag, is_intact } => Ok(self.received(tag, is_intact)),
                Walk::Text { is_intact } => self.segment_received(is_intact),
                Walk::Header => match self.pdu(&staged[*at..]) {
                    Ok((0, _)) => return None,
                    Ok((used, op)) => {
                        *at += used;
                        Ok(op)
                    }
                    Err(error) => Err(error),
                },
            };
            match result {
                Ok(Some(op)) => return Some(Step::Op(op)),
                Ok(None) => {}
                Err(error) => {
                    *at = staged.len();
                    return Some(Step::Op(self.fail(error)));
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
        self.send(out);
    }

    fn is_finished(&self) -> bool {
        self.phase == ConnectionPhase::Ended
    }

    fn deadline(&self) -> Option<Nanos> {
        None
    }

    fn on_deadline(&mut self, _now: Nanos) {}
}
