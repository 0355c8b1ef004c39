//! PDUs from the initiator.

use faults::Fault;
use machine::{Step, Tag, Tail, crc32c};
use wire::iscsi::{
    BHS_LEN, Bhs, DIGEST_LEN, LogoutReason, LogoutRequest, LogoutResponseCode, NopOut,
    RejectReason, ScsiCommand, TAG_NONE, TaskAttribute, flags, opcode, padded,
};
use wire::scsi::{asc, key};
use zerocopy::{FromBytes, IntoBytes};

use super::end::{Condition, fixed_sense};
use super::tasks::{Kind, State};
use super::transfers::NO_TRANSFER;
use super::{
    BULK_COMMANDS, BULK_MIN, Connection, ConnectionPhase, Done, FatalError, Hold, ORDER_TIMEOUT,
    TargetOp, Task,
};
use crate::session::CmdSnOrder;

/// A PDU's header, and how much it takes up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// Bytes up to the data segment.
    pub used: usize,
    /// Bytes of the data segment.
    pub data_len: u32,
    /// Bytes that are staged, from its first on.
    pub staged: usize,
}

/// Whether a numbered request is looked at.
pub(super) enum Order {
    /// It is; whether MaxCmdSN moves when it is answered.
    Now(bool),
    /// It and its data are passed over.
    Ignored,
    /// Not yet.
    Early,
}

impl Connection {
    /// Takes the PDU header at the start of `bytes`: the bytes it used (0: more
    /// are needed, or it is not looked at yet). What comes of it goes to `step`,
    /// written in place because moving an operation costs as much as parsing it.
    #[inline]
    pub(super) fn pdu(
        &mut self,
        bytes: &[u8],
        step: &mut Option<Step<TargetOp>>,
    ) -> Result<usize, FatalError> {
        let Some(head) = bytes.first_chunk::<BHS_LEN>() else {
            return Ok(0);
        };
        let bhs = Bhs::ref_from_bytes(head).expect("48 bytes");
        let header_len = BHS_LEN + bhs.ahs_len();
        let used = header_len + if self.header_digest { DIGEST_LEN } else { 0 };
        if bytes.len() < used {
            return Ok(0);
        }
        if self.header_digest && !has_digest(bytes, header_len) {
            return Err(FatalError::HeaderDigest);
        }
        let frame = Frame {
            used,
            data_len: bhs.data_segment_length.get(),
            staged: bytes.len(),
        };
        if frame.data_len > self.data_segment_max(bhs.opcode()) {
            return Err(FatalError::Format {
                opcode: bhs.opcode(),
                what: "more data than MaxRecvDataSegmentLength",
            });
        }
        let kind = bhs.opcode();
        if kind == opcode::SCSI_COMMAND && self.phase == ConnectionPhase::FullFeature {
            self.keep_alive.heard = true;
            return self.scsi_command(bhs, &frame, step);
        }
        if kind == opcode::DATA_OUT
            && self.phase == ConnectionPhase::FullFeature
            && header_len == BHS_LEN
        {
            self.keep_alive.heard = true;
            self.data_out(bhs, &frame, step);
            return Ok(used);
        }
        self.other(bhs, &frame)
    }

    /// Most data that a PDU may bring: of Data-Out by RDMA, what was asked for.
    #[inline]
    fn data_segment_max(&self, opcode: u8) -> u32 {
        match opcode == opcode::DATA_OUT && self.carrier.is_rdma() {
            true => self.keys.max_burst_length,
            false => self.keys.max_recv_data_segment_length,
        }
    }

    /// Everything but SCSI Command and Data-Out.
    #[cold]
    fn other(&mut self, bhs: &Bhs, frame: &Frame) -> Result<usize, FatalError> {
        if bhs.total_ahs_length != 0 {
            return Err(FatalError::Format {
                opcode: bhs.opcode(),
                what: "Additional Header Segments",
            });
        }
        if self.phase == ConnectionPhase::Login {
            return self.login_request(bhs, frame);
        }
        self.keep_alive.heard = true;
        match bhs.opcode() {
            opcode::NOP_OUT
            | opcode::TASK_MANAGEMENT_REQUEST
            | opcode::TEXT_REQUEST
            | opcode::LOGOUT_REQUEST => return self.numbered(bhs, frame),
            opcode::SNACK if frame.data_len == 0 => self.snack(bhs),
            opcode::SNACK => self.refuse(bhs, frame, RejectReason::InvalidPduField, false),
            opcode::LOGIN_REQUEST => self.refuse(bhs, frame, RejectReason::ProtocolError, false),
            _ => self.refuse(bhs, frame, RejectReason::CommandNotSupported, false),
        }
        Ok(frame.used)
    }

    /// Requests that have a CmdSN, but SCSI Command.
    fn numbered(&mut self, bhs: &Bhs, frame: &Frame) -> Result<usize, FatalError> {
        let request: &NopOut = bhs.cast();
        self.acknowledge(request.exp_stat_sn.get());
        let holds_window = match self.order(bhs, request.cmd_sn.get())? {
            Order::Now(holds_window) => holds_window,
            Order::Early => return Ok(0),
            Order::Ignored => {
                self.skip(frame.data_len);
                return Ok(frame.used);
            }
        };
        match bhs.opcode() {
            opcode::NOP_OUT => self.ping_request(bhs, frame, holds_window),
            opcode::TEXT_REQUEST => self.text_request(bhs, frame, holds_window),
            _ if frame.data_len > 0 => {
                self.refuse(bhs, frame, RejectReason::InvalidPduField, holds_window);
            }
            opcode::TASK_MANAGEMENT_REQUEST => self.task_management(bhs, holds_window),
            _ => self.logout_request(bhs, holds_window),
        }
        Ok(frame.used)
    }

    /// Where a request stands in its session (section 4.2.2.1). One that is
    /// early is looked at again when the others have come.
    #[inline]
    pub(super) fn order(&mut self, bhs: &Bhs, cmd_sn: u32) -> Result<Order, FatalError> {
        if bhs.is_immediate() {
            return Ok(Order::Now(false));
        }
        // Its data decides whether it is received: by its digest or CRC, or by its length.
        let may_fail =
            self.data_digest || self.carrier.is_rdma() || bhs.opcode() == opcode::TEXT_REQUEST;
        let waits = may_fail && bhs.data_segment_length.get() > 0;
        let turn = self.session.borrow_mut().take(cmd_sn, waits);
        match turn {
            CmdSnOrder::Now => {
                self.arriving.holds_cmd_sn = waits;
                Ok(Order::Now(true))
            }
            CmdSnOrder::Ignored => Ok(Order::Ignored),
            CmdSnOrder::Early | CmdSnOrder::Gap if self.is_behind_lost(bhs, cmd_sn)? => {
                Ok(Order::Ignored)
            }
            CmdSnOrder::Early => {
                self.session.borrow_mut().wait(cmd_sn, self.cid);
                self.hold = Hold::Turn(cmd_sn, self.now);
                self.look_by(self.now.saturating_add(ORDER_TIMEOUT));
                Ok(Order::Early)
            }
            CmdSnOrder::Gap => Err(FatalError::CmdSnGap {
                cmd_sn,
                expected: self.session.borrow().exp_cmd_sn(),
            }),
        }
    }

    /// Rejects a PDU and passes over its data.
    #[cold]
    pub(super) fn refuse(
        &mut self,
        bhs: &Bhs,
        frame: &Frame,
        reason: RejectReason,
        holds_window: bool,
    ) {
        self.reject(bhs, reason, holds_window);
        self.skip(frame.data_len);
    }

    /// Passes over the data segment of a PDU. A request is taken without it.
    #[inline]
    pub(super) fn skip(&mut self, data_len: u32) {
        if data_len > 0 {
            self.confirm_cmd_sn();
            let tail = Tail::padded(data_len, self.data_digest);
            self.inbound.skip(data_len, tail);
        }
    }

    /// SCSI Command (section 11.3).
    #[inline]
    fn scsi_command(
        &mut self,
        bhs: &Bhs,
        frame: &Frame,
        step: &mut Option<Step<TargetOp>>,
    ) -> Result<usize, FatalError> {
        let command: &ScsiCommand = bhs.cast();
        if self.keeps {
            self.acknowledge(command.exp_stat_sn.get());
        }
        let tasks_max = self.tasks_max();
        if !self.tasks.has_room(tasks_max) && self.is_without_room(bhs) {
            return Ok(0);
        }
        let holds_window = match self.order(bhs, command.cmd_sn.get())? {
            Order::Now(holds_window) => holds_window,
            Order::Early => return Ok(0),
            Order::Ignored => {
                self.skip(frame.data_len);
                return Ok(frame.used);
            }
        };
        let attribute = TaskAttribute::from_value(command.flags & flags::ATTRIBUTE_MASK);
        let taken = attribute.and_then(|attribute| {
            let tag = self.take_task(bhs, tasks_max)?;
            Some((tag, attribute))
        });
        let Some((tag, attribute)) = taken else {
            self.refuse_command(bhs, frame, attribute.is_some(), holds_window);
            return Ok(frame.used);
        };
        self.tasks[tag].holds_window = holds_window;
        // Made once for the table and once for the step: a copy of it would wait
        // for its fields.
        let task = || Task {
            lun: u64::from_be_bytes(command.lun),
            cdb: command.cdb,
            attribute,
            priority: command.priority & 0xf,
            read: command.flags & flags::READ != 0,
            write: command.flags & flags::WRITE != 0,
            immediate: !holds_window,
            edtl: command.expected_data_transfer_length.get(),
            itt: command.itt.get(),
            cmd_sn: command.cmd_sn.get(),
        };
        self.tasks.set_task(tag, task());
        self.bulk = match u64::from(frame.data_len) >= BULK_MIN {
            true => BULK_COMMANDS,
            false => self.bulk.saturating_sub(1),
        };
        let is_write = command.flags & flags::WRITE != 0;
        if !is_write && frame.data_len == 0 && bhs.total_ahs_length == 0 {
            self.tasks[tag].is_named = true;
            let task = task();
            *step = Some(Step::Op(TargetOp::Execute { tag, task }));
        } else {
            self.start_write(tag, task, bhs, frame, step);
        }
        Ok(frame.used)
    }

    /// There is no place for one more task: either the initiator is told so, or
    /// it waits until an answer has left; then this is true.
    #[cold]
    fn is_without_room(&mut self, bhs: &Bhs) -> bool {
        if bhs.is_immediate() && self.kept.is_empty() && self.acknowledged.is_empty() {
            return false;
        }
        self.hold = Hold::Room;
        self.make_room();
        true
    }

    /// A slot for a command or NOP-Out whose Initiator Task Tag no other has.
    #[inline]
    fn take_task(&mut self, bhs: &Bhs, tasks_max: usize) -> Option<Tag> {
        let itt = bhs.itt.get();
        if itt == TAG_NONE || self.is_discovery {
            return None;
        }
        let (tag, is_unique) = self.tasks.take(itt, tasks_max)?;
        if is_unique {
            return Some(tag);
        }
        self.tasks.free(tag);
        if self.is_in_progress(itt) {
            return None;
        }
        let (tag, _) = self.tasks.take(itt, tasks_max)?;
        Some(tag)
    }

    /// Whether a task has this Initiator Task Tag. An initiator that uses the tag of
    /// a kept answer has received that answer.
    pub(super) fn is_in_progress(&self, itt: u32) -> bool {
        let tag = self.tasks.find(itt);
        tag.is_some_and(|tag| self.tasks[tag].state != State::Kept)
    }

    /// A SCSI Command that does not become a task.
    #[cold]
    fn refuse_command(
        &mut self,
        bhs: &Bhs,
        frame: &Frame,
        has_attribute: bool,
        holds_window: bool,
    ) {
        let itt = bhs.itt.get();
        let reason = if self.is_discovery {
            RejectReason::ProtocolError
        } else if itt == TAG_NONE || !has_attribute {
            RejectReason::InvalidPduField
        } else if self.is_in_progress(itt) {
            RejectReason::TaskInProgress
        } else {
            RejectReason::ImmediateCommandReject
        };
        self.refuse(bhs, frame, reason, holds_window);
    }

    /// A command that brings data or should not, or that is not plain.
    #[inline(always)]
    fn start_write(
        &mut self,
        tag: Tag,
        task: impl Fn() -> Task,
        bhs: &Bhs,
        frame: &Frame,
        step: &mut Option<Step<TargetOp>>,
    ) {
        let command: &ScsiCommand = bhs.cast();
        let (len, edtl) = (frame.data_len, command.expected_data_transfer_length.get());
        let is_final = bhs.flags & flags::FINAL != 0;
        let first_burst = self.keys.first_burst_length.min(edtl);
        let may_follow = !is_final && !self.keys.initial_r2t;
        let is_good = is_plain(bhs)
            && bhs.flags & flags::WRITE != 0
            && len <= first_burst
            && (len == 0 || self.keys.immediate_data)
            && (is_final || may_follow);
        if !is_good {
            return self.refuse_write(tag, &task(), bhs, frame);
        }
        let slot = &mut self.tasks[tag];
        slot.is_named = true;
        if edtl == 0 {
            let task = task();
            *step = Some(Step::Op(TargetOp::Execute { tag, task }));
            return;
        }
        slot.state = State::Preparing;
        slot.expected = edtl;
        slot.asked = len;
        if !is_final {
            self.expect_unsolicited(tag, len, first_burst);
        }
        if len > 0 {
            self.keep_header(bhs, NO_TRANSFER);
            self.inbound
                .begin_blocked(tag, 0, len, Tail::padded(len, self.data_digest));
        }
        let trailer = if self.data_digest { DIGEST_LEN } else { 0 };
        let whole = frame.used + padded(len) as usize + trailer;
        *step = Some(Step::Op(TargetOp::Prepare {
            tag,
            task: task(),
            staged: len == edtl && is_final && frame.staged >= whole,
        }));
    }

    /// Data-Out without R2T follows the command.
    fn expect_unsolicited(&mut self, tag: Tag, from: u32, to: u32) {
        let at = self.transfers.take(tag, from, to, 0);
        self.data_out_bytes += u64::from(to - from);
        let slot = &mut self.tasks[tag];
        slot.asked = to;
        slot.sequences = 1;
        slot.unsolicited = at;
    }

    /// A command that the driver never sees, and what becomes of it.
    #[cold]
    fn refuse_write(&mut self, tag: Tag, task: &Task, bhs: &Bhs, frame: &Frame) {
        let len = frame.data_len;
        let is_final = bhs.flags & flags::FINAL != 0;
        self.skip(len);
        self.tasks[tag].state = State::Receiving;
        self.tasks[tag].expected = task.edtl;
        if task.write && !is_final && !self.keys.initial_r2t {
            let first_burst = self.keys.first_burst_length.min(task.edtl);
            self.expect_unsolicited(tag, len.min(first_burst), first_burst);
        }
        if is_plain(bhs) {
            let is_too_long = len > task.edtl.min(self.keys.first_burst_length);
            let is_allowed = task.write && self.keys.immediate_data;
            return self.give_up(
                tag,
                match is_too_long && is_allowed {
                    true => Condition::IncorrectAmountOfData,
                    false => Condition::UnexpectedUnsolicitedData,
                },
            );
        }
        // Commands longer than 16 bytes and those with data in both directions
        // are none that a disk must have.
        let sense = fixed_sense(key::ILLEGAL_REQUEST, asc::INVALID_COMMAND_OPERATION_CODE);
        self.complete_early(tag, &Done::check_condition(sense));
    }

    /// Remembers what the data that follows belongs to.
    #[inline]
    pub(super) fn keep_header(&mut self, bhs: &Bhs, ends: u16) {
        self.arriving.ends = ends;
        if self.data_digest {
            self.arriving.header.copy_from_slice(bhs.as_bytes());
        }
    }

    /// NOP-Out (section 11.18). Data is sent back as far as the initiator takes
    /// so much.
    fn ping_request(&mut self, bhs: &Bhs, frame: &Frame, holds_window: bool) {
        let len = frame.data_len.min(self.keys.max_send_data_segment_length);
        if len == 0 || bhs.itt.get() == TAG_NONE {
            self.skip(frame.data_len);
            return self.nop_out(bhs.cast(), holds_window);
        }
        let Some(tag) = self.take_task(bhs, self.tasks_max()) else {
            return self.refuse_command(bhs, frame, true, holds_window);
        };
        let slot = &mut self.tasks[tag];
        slot.kind = Kind::Ping;
        slot.state = State::Preparing;
        slot.is_named = true;
        slot.holds_window = holds_window;
        slot.expected = len;
        slot.asked = len;
        let task = Task {
            lun: u64::from_be_bytes(bhs.lun),
            ..*self.tasks.task(tag)
        };
        self.tasks.set_task(tag, task);
        self.keep_header(bhs, NO_TRANSFER);
        self.inbound.begin_blocked(
            tag,
            0,
            frame.data_len,
            Tail::padded(frame.data_len, self.data_digest),
        );
        self.ops.push_back(TargetOp::Ping { tag, len });
    }

    /// The data of a NOP-Out is here.
    pub(super) fn ping_received(&mut self, tag: Tag) {
        let slot = &mut self.tasks[tag];
        slot.state = State::Responding;
        slot.data_in_len = slot.wanted;
        self.queue(tag);
    }

    /// Logout Request (section 11.14).
    fn logout_request(&mut self, bhs: &Bhs, holds_window: bool) {
        let request: LogoutRequest = *bhs.cast();
        let reason = LogoutReason::from_value(request.flags & flags::FUNCTION_MASK);
        match reason {
            None => self.reject(bhs, RejectReason::InvalidPduField, holds_window),
            Some(LogoutReason::RemoveForRecovery) => {
                // That is what ErrorRecoveryLevel 2 would be.
                let response = LogoutResponseCode::RecoveryNotSupported;
                self.push_logout(&request, response, (0, 0), holds_window, false);
            }
            Some(reason) => {
                self.logout = (request, holds_window);
                self.hold = Hold::Answer;
                self.ops.push_back(TargetOp::Logout {
                    reason,
                    cid: request.cid.get(),
                });
            }
        }
    }
}

/// Whether it is a command as disks have them: data in one direction, and a CDB
/// of 16 bytes at most.
#[inline]
fn is_plain(bhs: &Bhs) -> bool {
    const BOTH: u8 = flags::READ | flags::WRITE;
    bhs.total_ahs_length == 0 && bhs.flags & BOTH != BOTH
}

/// Whether the digest behind `header_len` bytes is theirs.
#[inline]
fn has_digest(bytes: &[u8], header_len: usize) -> bool {
    let found = &bytes[header_len..header_len + DIGEST_LEN];
    let is_it = crc32c(&bytes[..header_len], 0).to_le_bytes() == *found;
    is_it || faults::is(Fault::NoHeaderDigests)
}
