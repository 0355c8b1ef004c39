//! What comes from the target.

use machine::{Tag, Tail, crc32c};
use wire::iscsi::{
    AsyncMessage, BHS_LEN, Bhs, DIGEST_LEN, DataIn, LoginResponse, LogoutResponse, NopIn, NopOut,
    R2t, RESPONSE_COMPLETED, Reject, RejectReason, ScsiResponse, TAG_NONE, TaskFunction,
    TaskManagementRequest, TaskManagementResponse, TaskResponse, TextRequest, TextResponse, first,
    flags, opcode, serial_distance,
};
use zerocopy::{FromBytes, IntoBytes};

use super::connection::{
    CommandSlot, CommandState, ConnectionPhase, InitiatorConnection, SlotUse, TEXT_LEN_MAX, ToSend,
};
use super::login::LoginNext;
use super::{Async, CommandOutcome, ExpectedData, InitiatorFatalError, InitiatorOp, Residual};
use crate::Negotiated;

type Result<T> = std::result::Result<T, InitiatorFatalError>;

#[cold]
fn protocol<T>(opcode: u8, what: &'static str) -> Result<T> {
    Err(InitiatorFatalError::Protocol { opcode, what })
}

impl InitiatorConnection {
    /// The PDU whose header stands at the start of `bytes`: how many bytes up to
    /// its data segment it has (0: more are needed), and what it amounts to.
    #[inline]
    pub(super) fn pdu(&mut self, bytes: &[u8]) -> Result<(usize, Option<InitiatorOp>)> {
        let Ok((bhs, _)) = Bhs::ref_from_prefix(bytes) else {
            return Ok((0, None));
        };
        let mut used = BHS_LEN + bhs.ahs_len();
        if self.header_digest {
            let Some(found) = bytes.get(used..used + DIGEST_LEN) else {
                return Ok((0, None));
            };
            if crc32c(&bytes[..used], 0).to_le_bytes() != *found {
                return Err(InitiatorFatalError::HeaderDigest);
            }
            used += DIGEST_LEN;
        }
        if bytes.len() < used {
            return Ok((0, None));
        }
        let (opcode, len) = (bhs.opcode(), bhs.data_segment_length.get());
        let is_moved = opcode == opcode::DATA_IN && self.agreed.rdma_extensions;
        if len > self.max_recv && !is_moved {
            return protocol(opcode, "its data segment is longer than was declared");
        }
        let is_login = opcode == opcode::LOGIN_RESPONSE;
        if is_login != (self.phase == ConnectionPhase::Login) {
            return protocol(opcode, "it has no place in this phase");
        }
        if opcode == opcode::DATA_IN {
            let op = self.data_in(bhs.cast(), len)?;
            return Ok((used, op));
        }
        if opcode == opcode::SCSI_RESPONSE && len == 0 {
            let op = self.scsi_response(bhs.cast())?;
            return Ok((used, Some(op)));
        }
        self.segment.clear();
        self.sense = (0, 0);
        if len == 0 {
            let bhs = *bhs;
            let op = self.whole_pdu(&bhs)?;
            return Ok((used, op));
        }
        self.segment_of = *bhs;
        self.inbound
            .begin_text(len, Tail::padded(len, self.data_digest));
        Ok((used, None))
    }

    /// The data segment of a PDU that is not Data-In is here.
    #[cold]
    pub(super) fn segment_received(&mut self, is_intact: bool) -> Result<Option<InitiatorOp>> {
        let bhs = self.segment_of;
        self.segment.extend_from_slice(self.inbound.text());
        if !is_intact {
            return Err(InitiatorFatalError::DataDigest {
                opcode: bhs.opcode(),
            });
        }
        self.whole_pdu(&bhs)
    }

    /// A PDU that is not Data-In, with its data in [`InitiatorConnection::segment`].
    #[cold]
    fn whole_pdu(&mut self, bhs: &Bhs) -> Result<Option<InitiatorOp>> {
        match bhs.opcode() {
            opcode::LOGIN_RESPONSE => self.login_response(bhs.cast()),
            opcode::SCSI_RESPONSE => self.scsi_response(bhs.cast()).map(Some),
            opcode::R2T => self.r2t(bhs.cast()).map(|()| None),
            opcode::NOP_IN => self.nop_in(bhs.cast()),
            opcode::TASK_MANAGEMENT_RESPONSE => self.task_response(bhs.cast()),
            opcode::TEXT_RESPONSE => self.text_response(bhs.cast()),
            opcode::LOGOUT_RESPONSE => self.logout_response(bhs.cast()).map(Some),
            opcode::ASYNC_MESSAGE => self.async_message(bhs.cast()).map(Some),
            opcode::REJECT => self.reject(bhs.cast()),
            opcode => protocol(opcode, "a target sends no such PDU"),
        }
    }

    /// Takes a StatSN; without error recovery none may be missing.
    #[inline]
    fn take_stat_sn(&mut self, opcode: u8, stat_sn: u32) -> Result<()> {
        if stat_sn != self.exp_stat_sn {
            return protocol(opcode, "its StatSN is not the next one");
        }
        self.exp_stat_sn = stat_sn.wrapping_add(1);
        Ok(())
    }

    #[inline]
    fn window(&mut self, exp_cmd_sn: u32, max_cmd_sn: u32) {
        self.session.update(exp_cmd_sn, max_cmd_sn);
        if !self.waiting.is_empty() {
            self.release_waiting();
        }
    }

    /// The slot of `itt`, if it is of this kind.
    #[inline]
    fn slot_for(&self, opcode: u8, itt: u32, kind: SlotUse) -> Result<Tag> {
        match self.slot_of(itt) {
            Some(tag) if self.slots[usize::from(tag)].kind == kind => Ok(tag),
            _ => protocol(opcode, "it answers nothing that was asked"),
        }
    }

    /// Data-In (section 11.7).
    #[inline]
    fn data_in(&mut self, pdu: &DataIn, len: u32) -> Result<Option<InitiatorOp>> {
        const OPCODE: u8 = opcode::DATA_IN;
        let tag = self.slot_for(OPCODE, pdu.itt.get(), SlotUse::Command)?;
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        let slot = &mut self.slots[usize::from(tag)];
        let ExpectedData::In(total) = slot.data else {
            return protocol(OPCODE, "its command reads nothing");
        };
        if pdu.data_sn.get() != slot.data_sn {
            return protocol(OPCODE, "its DataSN is not the next one");
        }
        if pdu.buffer_offset.get() != slot.moved {
            return protocol(OPCODE, "its data is not the next");
        }
        if len > total - slot.moved {
            return protocol(OPCODE, "it brings more than was expected");
        }
        slot.data_sn += 1;
        slot.moved += len;
        let is_all = slot.moved == total;
        self.reads -= u64::from(is_all && len > 0);
        self.read_bytes -= u64::from(len);
        if pdu.flags & flags::STATUS != 0 {
            if pdu.flags & flags::FINAL == 0 {
                return protocol(OPCODE, "its status comes before the end");
            }
            self.take_stat_sn(OPCODE, pdu.stat_sn.get())?;
            let residual = residual(pdu.flags, pdu.residual_count.get());
            self.pending = Some((CommandOutcome::Status(pdu.status), residual));
        }
        if len == 0 {
            return Ok(self.received(tag, true));
        }
        let start = pdu.buffer_offset.get();
        self.inbound.begin(
            tag,
            start,
            len,
            u32::MAX,
            Tail::padded(len, self.data_digest),
        );
        Ok(None)
    }

    /// The data of one Data-In PDU is complete.
    #[inline]
    pub(super) fn received(&mut self, tag: Tag, is_intact: bool) -> Option<InitiatorOp> {
        self.slots[usize::from(tag)].is_damaged |= !is_intact;
        let (outcome, residual) = self.pending.take()?;
        self.sense = (0, 0);
        Some(self.complete(tag, outcome, residual))
    }

    /// A SCSI command has its status. GOOD with less data than it says is none.
    #[inline]
    fn complete(&mut self, tag: Tag, outcome: CommandOutcome, residual: Residual) -> InitiatorOp {
        let slot = &mut self.slots[usize::from(tag)];
        let missing = match residual {
            Residual::Underflow(missing) => missing,
            Residual::None | Residual::Overflow(_) => 0,
        };
        let told = u64::from(slot.moved) + u64::from(missing);
        slot.is_damaged |= match slot.data {
            ExpectedData::In(total) => told != u64::from(total),
            // More may have gone unasked than the target had a use for.
            ExpectedData::Out(total) => told < u64::from(total),
            ExpectedData::None => false,
        };
        self.finish(tag, outcome, residual)
    }

    /// SCSI Response (section 11.4).
    #[inline]
    fn scsi_response(&mut self, pdu: &ScsiResponse) -> Result<InitiatorOp> {
        const OPCODE: u8 = opcode::SCSI_RESPONSE;
        let tag = self.slot_for(OPCODE, pdu.itt.get(), SlotUse::Command)?;
        self.take_stat_sn(OPCODE, pdu.stat_sn.get())?;
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        self.sense = match self.segment.get(..2) {
            Some(len) if pdu.data_segment_length.get() > 0 => {
                let len = usize::from(u16::from_be_bytes([len[0], len[1]]));
                (2, self.segment.len().min(2 + len))
            }
            _ => (0, 0),
        };
        let slot = &mut self.slots[usize::from(tag)];
        let outcome = match pdu.response {
            RESPONSE_COMPLETED => CommandOutcome::Status(pdu.status),
            response => CommandOutcome::TargetFailure(response),
        };
        // Data-In and R2T PDUs that did not come (section 11.4.8); tgt leaves it 0.
        let exp_data_sn = pdu.exp_data_sn.get();
        slot.is_damaged |= exp_data_sn != 0 && exp_data_sn != slot.data_sn;
        if matches!(slot.data, ExpectedData::Out(_)) {
            // The target may give up before all data went out.
            self.drop_data(tag);
        }
        let residual = residual(pdu.flags, pdu.residual_count.get());
        Ok(self.complete(tag, outcome, residual))
    }

    /// Data that was to be sent for a command that has ended.
    #[inline]
    fn drop_data(&mut self, tag: Tag) {
        if !self.ready.is_empty() {
            self.ready.retain(|ready| ready.tag() != tag);
        }
    }

    /// R2T (section 11.8): one after the other through the data of a command, as
    /// many outstanding as was agreed.
    fn r2t(&mut self, pdu: &R2t) -> Result<()> {
        const OPCODE: u8 = opcode::R2T;
        let tag = self.slot_for(OPCODE, pdu.itt.get(), SlotUse::Command)?;
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        let (max_burst, r2ts_max) = (
            self.agreed.max_burst_length,
            self.agreed.max_outstanding_r2t,
        );
        let slot = &mut self.slots[usize::from(tag)];
        let ExpectedData::Out(total) = slot.data else {
            return protocol(OPCODE, "its command writes nothing");
        };
        let (offset, len) = (
            pdu.buffer_offset.get(),
            pdu.desired_data_transfer_length.get(),
        );
        if pdu.ttt.get() == TAG_NONE {
            return protocol(OPCODE, "it has no Target Transfer Tag");
        }
        if pdu.r2t_sn.get() != slot.data_sn {
            return protocol(OPCODE, "its R2TSN is not the next one");
        }
        if len == 0 || len > max_burst {
            return protocol(OPCODE, "it asks for nothing, or more than MaxBurstLength");
        }
        if offset != slot.moved || len > total - slot.moved {
            return protocol(OPCODE, "it asks for data that is not the next");
        }
        if slot.r2ts >= r2ts_max {
            return protocol(OPCODE, "it is one more than MaxOutstandingR2T");
        }
        slot.data_sn += 1;
        slot.moved += len;
        slot.r2ts += 1;
        self.ready.push_back(ToSend::Data {
            tag,
            ttt: pdu.ttt.get(),
            offset,
            left: len,
            data_sn: 0,
        });
        Ok(())
    }

    /// NOP-In (section 11.19): an answer, or a question.
    fn nop_in(&mut self, pdu: &NopIn) -> Result<Option<InitiatorOp>> {
        const OPCODE: u8 = opcode::NOP_IN;
        let (itt, ttt) = (pdu.itt.get(), pdu.ttt.get());
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        if itt == self.gap_itt() && self.fillers > 0 {
            self.fillers -= 1;
            return self.take_stat_sn(OPCODE, pdu.stat_sn.get()).map(|()| None);
        }
        if itt != TAG_NONE {
            let tag = self.slot_for(OPCODE, itt, SlotUse::Ping)?;
            self.take_stat_sn(OPCODE, pdu.stat_sn.get())?;
            self.free_slot(tag);
            return Ok(Some(InitiatorOp::Pong { tag }));
        }
        if ttt == TAG_NONE {
            // It only tells the window.
            return Ok(None);
        }
        let mut answer = NopOut::new();
        answer.first |= first::IMMEDIATE;
        answer.flags = flags::FINAL;
        answer.lun = pdu.lun;
        answer.itt = TAG_NONE.into();
        answer.ttt = ttt.into();
        answer.cmd_sn = self.session.cmd_sn().into();
        answer.exp_stat_sn = self.exp_stat_sn.into();
        self.push_control(answer.as_bytes(), &[]);
        Ok(None)
    }

    /// Task Management Function Response (section 11.6): the commands that the
    /// function ended are told before it.
    fn task_response(&mut self, pdu: &TaskManagementResponse) -> Result<Option<InitiatorOp>> {
        const OPCODE: u8 = opcode::TASK_MANAGEMENT_RESPONSE;
        let tag = self.slot_for(OPCODE, pdu.itt.get(), SlotUse::Task)?;
        self.take_stat_sn(OPCODE, pdu.stat_sn.get())?;
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        let slot = self.slots[usize::from(tag)];
        let request: TaskManagementRequest = zerocopy::transmute!(slot.header);
        let function = TaskFunction::from_value(request.flags & flags::FUNCTION_MASK);
        let response = TaskResponse::from_value(pdu.response);
        let is_over = match function {
            // Where there is no such task it has ended, and its answer came before.
            Some(TaskFunction::AbortTask) => {
                matches!(
                    response,
                    Some(TaskResponse::Complete | TaskResponse::NoTask)
                )
            }
            _ => response == Some(TaskResponse::Complete),
        };
        if let Some(function) = function.filter(|_| is_over) {
            self.end_commands(function, &request, slot.order);
        }
        self.free_slot(tag);
        let op = InitiatorOp::TaskManaged {
            tag,
            response: pdu.response,
        };
        if self.ended.is_empty() {
            return Ok(Some(op));
        }
        self.managed = Some(op);
        Ok(None)
    }

    /// Notes the commands that `function` has ended: those concerned that were
    /// sent before it (section 11.5.1). CmdSN does not tell: an immediate command
    /// has that of the next one.
    fn end_commands(
        &mut self,
        function: TaskFunction,
        request: &TaskManagementRequest,
        order: u64,
    ) {
        for (slot, tag) in self.slots.iter().zip(0..) {
            // A later one may have the tag of one that it was about.
            let is_before = slot.state == CommandState::Sent && slot.order < order;
            if slot.kind != SlotUse::Command || !is_before {
                continue;
            }
            let bhs = slot.bhs();
            let is_concerned = match function {
                TaskFunction::AbortTask => bhs.itt == request.referenced_task_tag,
                TaskFunction::AbortTaskSet
                | TaskFunction::ClearTaskSet
                | TaskFunction::LogicalUnitReset => bhs.lun == request.lun,
                TaskFunction::TargetWarmReset | TaskFunction::TargetColdReset => true,
                _ => false,
            };
            if is_concerned {
                self.ended.push_back(tag);
            }
        }
        let ended = &self.ended;
        self.ready.retain(|ready| !ended.contains(&ready.tag()));
    }

    /// Text Response (section 11.11).
    fn text_response(&mut self, pdu: &TextResponse) -> Result<Option<InitiatorOp>> {
        const OPCODE: u8 = opcode::TEXT_RESPONSE;
        let tag = self.slot_for(OPCODE, pdu.itt.get(), SlotUse::Text)?;
        self.take_stat_sn(OPCODE, pdu.stat_sn.get())?;
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        if self.text_in.len() + self.segment.len() > TEXT_LEN_MAX {
            return protocol(OPCODE, "its text comes to no end");
        }
        self.text_in.extend_from_slice(&self.segment);
        if pdu.flags & flags::FINAL != 0 {
            self.free_slot(tag);
            return Ok(Some(InitiatorOp::Text { tag }));
        }
        if pdu.ttt.get() == TAG_NONE {
            return protocol(OPCODE, "it goes on without a Target Transfer Tag");
        }
        let mut request = TextRequest::new();
        request.first |= first::IMMEDIATE;
        request.flags = flags::FINAL;
        request.lun = pdu.lun;
        request.itt = pdu.itt;
        request.ttt = pdu.ttt;
        request.cmd_sn = self.session.cmd_sn().into();
        request.exp_stat_sn = self.exp_stat_sn.into();
        self.push_control(request.as_bytes(), &[]);
        Ok(None)
    }

    /// Logout Response (section 11.15).
    fn logout_response(&mut self, pdu: &LogoutResponse) -> Result<InitiatorOp> {
        const OPCODE: u8 = opcode::LOGOUT_RESPONSE;
        let tag = self.slot_for(OPCODE, pdu.itt.get(), SlotUse::Logout)?;
        self.take_stat_sn(OPCODE, pdu.stat_sn.get())?;
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        self.free_slot(tag);
        Ok(InitiatorOp::LoggedOut {
            tag,
            response: pdu.response,
        })
    }

    /// Asynchronous Message (section 11.9).
    fn async_message(&mut self, pdu: &AsyncMessage) -> Result<InitiatorOp> {
        self.take_stat_sn(opcode::ASYNC_MESSAGE, pdu.stat_sn.get())?;
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        // Sense data of a SCSI event stands as in a SCSI Response.
        let len = self.segment.len();
        self.sense = (len.min(2), len);
        Ok(InitiatorOp::Async(Async {
            event: pdu.async_event,
            lun: pdu.lun,
            parameters: [pdu.parameter1, pdu.parameter2, pdu.parameter3].map(|p| p.get()),
        }))
    }

    /// Reject (section 11.17): its data is the header of what was rejected.
    fn reject(&mut self, pdu: &Reject) -> Result<Option<InitiatorOp>> {
        const OPCODE: u8 = opcode::REJECT;
        self.take_stat_sn(OPCODE, pdu.stat_sn.get())?;
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        let Ok((bhs, _)) = Bhs::ref_from_prefix(&self.segment) else {
            return protocol(OPCODE, "it does not say what it rejects");
        };
        let bhs = *bhs;
        if matches!(bhs.opcode(), opcode::DATA_OUT | opcode::SNACK) {
            // The command lives, or ends with a status of its own (section 7.8).
            return Ok(None);
        }
        let Some(tag) = self.slot_of(bhs.itt.get()) else {
            return Ok(None);
        };
        let reason = pdu.reason;
        let slot = &mut self.slots[usize::from(tag)];
        if slot.kind != SlotUse::Command {
            self.free_slot(tag);
            return Ok(Some(InitiatorOp::Rejected { tag, reason }));
        }
        let is_damaged = RejectReason::from_value(reason) == Some(RejectReason::DataDigestError);
        let (bhs, cmd_sn) = (*slot.bhs(), slot.cmd_sn);
        let is_immediate = bhs.is_immediate();
        let is_gap = !is_immediate && !self.session.is_taken(cmd_sn);
        if is_damaged && is_gap {
            if std::mem::replace(&mut slot.is_retried, true) {
                let opcode = bhs.opcode();
                return Err(InitiatorFatalError::DataDigest { opcode });
            }
            self.send_again_from(cmd_sn, bhs.opcode())?;
            return Ok(None);
        }
        if is_damaged && is_immediate && !std::mem::replace(&mut slot.is_retried, true) {
            // It comes behind all that was sent meanwhile.
            self.drop_data(tag);
            self.release(tag, self.session.cmd_sn());
            return Ok(None);
        }
        self.drop_data(tag);
        let op = self.finish(tag, CommandOutcome::Rejected(reason), Residual::None);
        if is_gap {
            self.send_again_from(cmd_sn, bhs.opcode())?;
            self.fill(cmd_sn);
        }
        Ok(Some(op))
    }

    /// Sends a NOP-Out with the CmdSN of a command that was rejected (section 7.3).
    fn fill(&mut self, cmd_sn: u32) {
        let mut nop = NopOut::new();
        nop.flags = flags::FINAL;
        nop.itt = self.gap_itt().into();
        nop.ttt = TAG_NONE.into();
        nop.cmd_sn = cmd_sn.into();
        nop.exp_stat_sn = self.exp_stat_sn.into();
        self.fillers += 1;
        self.push_control(nop.as_bytes(), &[]);
    }

    /// The target never received the command of `opcode` with the CmdSN `first`: a gap
    /// that the command itself, another request or an abort fills (section 7.3). What
    /// was sent from it on is sent again, as a target that takes commands in their order
    /// may have passed over it; what such a target has kept it ignores the second time
    /// (section 4.2.2.1).
    fn send_again_from(&mut self, first: u32, opcode: u8) -> Result<()> {
        let distance = |tag: &Tag| serial_distance(first, self.slots[usize::from(*tag)].cmd_sn);
        let is_behind = |tag: &Tag| {
            let slot = &self.slots[usize::from(*tag)];
            let is_sent = slot.state == CommandState::Sent && slot.kind == SlotUse::Command;
            is_sent && !slot.bhs().is_immediate() && distance(tag) >= 0
        };
        let mut again: Vec<Tag> = (0..self.slots.len() as Tag).filter(is_behind).collect();
        again.sort_unstable_by_key(distance);
        let is_managing =
            |slot: &CommandSlot| slot.kind == SlotUse::Task && slot.state != CommandState::Free;
        if !again.is_empty() && self.slots.iter().any(is_managing) {
            // A function may take the place of some; which ones is not known here.
            return Err(InitiatorFatalError::Gap { opcode });
        }
        self.ready.retain(|ready| !again.contains(&ready.tag()));
        for tag in again.into_iter().rev() {
            self.slots[usize::from(tag)].state = CommandState::Ready;
            self.ready.push_front(ToSend::Request(tag));
        }
        Ok(())
    }

    /// Login Response (section 11.13).
    fn login_response(&mut self, pdu: &LoginResponse) -> Result<Option<InitiatorOp>> {
        const OPCODE: u8 = opcode::LOGIN_RESPONSE;
        let mut login = self.login.take().expect("the phase says so");
        if pdu.status_class != 0 {
            self.text_in.extend_from_slice(&self.segment);
            let keys = crate::text::parse(&self.text_in).unwrap_or_default();
            let address = keys.iter().find(|(key, _)| *key == "TargetAddress");
            self.target_address = address.map(|(_, value)| (*value).to_owned());
            return Err(InitiatorFatalError::LoginRefused {
                class: pdu.status_class,
                detail: pdu.status_detail,
            });
        }
        if pdu.isid != self.session.isid() {
            return protocol(OPCODE, "its ISID is another session's");
        }
        self.exp_stat_sn = pdu.stat_sn.get().wrapping_add(1);
        self.session
            .update(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        self.text_in.extend_from_slice(&self.segment);
        if self.text_in.len() > TEXT_LEN_MAX {
            return protocol(OPCODE, "its text comes to no end");
        }
        if pdu.flags & flags::CONTINUE != 0 {
            let request = login.request_rest()?;
            self.login = Some(login);
            self.send_login(&request);
            return Ok(None);
        }
        let stage = (pdu.flags & flags::CSG_MASK) >> flags::CSG_SHIFT;
        let is_transit = pdu.flags & flags::TRANSIT != 0;
        let transit = is_transit.then_some(pdu.flags & flags::NSG_MASK);
        let next = login.answer(stage, transit, &self.text_in)?;
        self.text_in.clear();
        match next {
            LoginNext::Send(request) => {
                self.login = Some(login);
                self.send_login(&request);
                Ok(None)
            }
            LoginNext::Done(agreed) => self.log_in(pdu, agreed).map(Some),
        }
    }

    /// Full Feature Phase.
    fn log_in(&mut self, pdu: &LoginResponse, agreed: Negotiated) -> Result<InitiatorOp> {
        let tsih = pdu.tsih.get();
        if tsih == 0 || self.session.tsih() != 0 && self.session.tsih() != tsih {
            return protocol(
                opcode::LOGIN_RESPONSE,
                "its TSIH is not that of the session",
            );
        }
        if self.session.tsih() == 0 {
            self.session.set_tsih(tsih);
            self.session.set_agreed(agreed);
        }
        self.phase = ConnectionPhase::FullFeature;
        self.header_digest = agreed.header_digest;
        self.data_digest = agreed.data_digest;
        self.max_recv = self.max_recv_declared;
        self.agreed = agreed;
        Ok(InitiatorOp::Ready)
    }
}

/// The residual of flags and count (section 11.4.5).
#[inline]
fn residual(bits: u8, count: u32) -> Residual {
    match bits & (flags::OVERFLOW | flags::UNDERFLOW) {
        flags::UNDERFLOW => Residual::Underflow(count),
        flags::OVERFLOW => Residual::Overflow(count),
        _ => Residual::None,
    }
}
