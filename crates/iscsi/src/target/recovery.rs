//! ErrorRecoveryLevel 1: what was lost is sent or asked for once more (RFC 7143,
//! sections 7.1.4.2 and 11.16).

use machine::{Tag, Transmit};
use wire::iscsi::{
    Bhs, NopIn, RejectReason, ScsiResponse, SnackRequest, SnackType, TAG_NONE, flags, opcode,
    serial_distance,
};
use zerocopy::IntoBytes;

use super::control::{Control, ControlPdu, nop_in};
use super::send::Piece;
use super::tasks::{Kind, State};
use super::transfers::Found;
use super::{Connection, EXTRA_TASKS_MAX};

/// Bytes of memory that answers of one connection keep at most, to be sent once
/// more: of the oldest beyond that the status stays, and their data cannot be had
/// again.
pub(super) const KEPT_BYTES_MAX: u64 = 4 << 20;
/// Answers that a connection keeps at most, and bytes of those that are no task's any
/// more: the oldest beyond that cannot be had again.
pub(super) const KEPT_MAX: usize = 1024;
pub(super) const KEPT_CONTROL_BYTES_MAX: usize = 1 << 20;
/// So often data of one task is asked for once more.
const RECOVERIES_MAX: u16 = 64;

/// Data that was lost: to be asked for once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hole {
    pub tag: Tag,
    /// First byte, and the one behind the last.
    pub start: u32,
    pub end: u32,
}

/// An answer that was sent and may be asked for once more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeptAnswer {
    Task(Tag),
    Control(Box<Control>),
}

impl Connection {
    /// The initiator has the answers before `exp_stat_sn`.
    #[inline]
    pub(super) fn acknowledge(&mut self, exp_stat_sn: u32) {
        if !self.keeps || serial_distance(exp_stat_sn, self.stat_sn) < 0 {
            return;
        }
        while let Some((stat_sn, _)) = self.kept.front() {
            if serial_distance(*stat_sn, exp_stat_sn) <= 0 {
                break;
            }
            self.drop_oldest_answer();
        }
    }

    /// The oldest answer need not be kept any longer.
    fn drop_oldest_answer(&mut self) {
        self.shed_len = self.shed_len.saturating_sub(1);
        match self.kept.pop_front() {
            Some((_, KeptAnswer::Task(tag))) => {
                // Its memory goes with the next PDU, its place then.
                self.kept_bytes -= self.tasks[tag].kept_bytes();
                self.acknowledged.push(tag);
            }
            Some((_, KeptAnswer::Control(control))) => {
                self.kept_control_bytes -= control.data.len()
            }
            None => {}
        }
    }

    /// Keeps an answer; of those that an initiator never acknowledges the newest.
    fn keep_answer(&mut self, stat_sn: u32, kept: KeptAnswer) {
        self.kept.push_back((stat_sn, kept));
        while self.kept.len() > KEPT_MAX || self.kept_control_bytes > KEPT_CONTROL_BYTES_MAX {
            self.drop_oldest_answer();
        }
    }

    /// A PDU that is no task's was sent with this StatSN.
    pub(super) fn keep_control(&mut self, stat_sn: u32, control: Control) {
        self.kept_control_bytes += control.data.len();
        self.keep_answer(stat_sn, KeptAnswer::Control(Box::new(control)));
    }

    /// The task was answered with the StatSN before the next.
    pub(super) fn keep_task(&mut self, tag: Tag) {
        let slot = &mut self.tasks[tag];
        slot.state = State::Kept;
        let stat_sn = slot.stat_sn;
        self.kept_bytes += slot.kept_bytes();
        self.keep_answer(stat_sn, KeptAnswer::Task(tag));
        if self.kept_bytes > KEPT_BYTES_MAX {
            self.drop_data_above(KEPT_BYTES_MAX);
        }
    }

    /// Memory is short elsewhere: of what was answered the status alone is kept.
    pub fn drop_kept_data(&mut self) {
        self.drop_data_above(0);
        self.announce_release();
    }

    /// Of the oldest answers the status alone is kept, until no more than so many
    /// bytes are.
    #[cold]
    fn drop_data_above(&mut self, max: u64) {
        while self.kept_bytes > max && self.shed_len < self.kept.len() {
            let at = self.shed_len;
            self.shed_len += 1;
            let KeptAnswer::Task(tag) = self.kept[at].1 else {
                continue;
            };
            let bytes = self.tasks[tag].kept_bytes();
            if bytes > 0 {
                let response = self.response_of(tag);
                self.kept_control_bytes += response.data.len();
                self.kept[at].1 = KeptAnswer::Control(Box::new(response));
                self.kept_bytes -= bytes;
                self.acknowledged.push(tag);
            }
        }
    }

    /// What is left of an answer whose data is not kept: its status, or the NOP-In
    /// that was asked for.
    fn response_of(&self, tag: Tag) -> Control {
        let slot = &self.tasks[tag];
        if slot.kind == Kind::Ping {
            let nop_in = NopIn {
                flags: flags::FINAL,
                itt: slot.itt.into(),
                ttt: TAG_NONE.into(),
                ..NopIn::new()
            };
            return Control::new(nop_in.as_bytes(), Vec::new());
        }
        let response = ScsiResponse {
            flags: flags::FINAL | slot.residual_flags,
            status: slot.status,
            itt: slot.itt.into(),
            snack_tag: slot.snack_tag.into(),
            exp_data_sn: slot.data_sn.into(),
            residual_count: slot.residual_count.into(),
            ..ScsiResponse::new()
        };
        let mut data = Vec::new();
        if slot.has_sense {
            let sense = self.tasks.sense(tag).as_slice();
            data.extend((sense.len() as u16).to_be_bytes());
            data.extend_from_slice(sense);
        }
        Control::new(response.as_bytes(), data)
    }

    /// Why data of this task cannot be had again: there never was any, or it is
    /// not kept any more, and the initiator has to begin anew (section 11.17.1).
    fn without_data(&self, itt: u32) -> RejectReason {
        let was_kept = self.kept.iter().any(|(_, kept)| match kept {
            KeptAnswer::Control(control) => {
                control.header[0] == opcode::SCSI_RESPONSE
                    && control.header[16..20] == itt.to_be_bytes()
            }
            KeptAnswer::Task(_) => false,
        });
        match was_kept {
            true => RejectReason::SnackReject,
            false => RejectReason::ProtocolError,
        }
    }

    /// There are tasks kept, but no place for another: the oldest answers are
    /// let go of, and a PDU is sent with which their places become free.
    #[cold]
    pub(super) fn make_room(&mut self) {
        let few = self.kept.len().min(EXTRA_TASKS_MAX);
        for _ in 0..few {
            self.drop_oldest_answer();
        }
        self.announce_release();
    }

    /// A PDU is sent with which places and memory become free.
    fn announce_release(&mut self) {
        if self.ready.is_empty() && !self.acknowledged.is_empty() {
            self.announce(TAG_NONE);
        }
    }

    /// Tasks whose answer is acknowledged are over.
    #[cold]
    pub(super) fn release_acknowledged(&mut self, out: &mut impl Transmit) {
        // An answer that is to be sent once more stays until it was.
        let is_wanted = |item: &ControlPdu| {
            matches!(item, ControlPdu::Data { .. } | ControlPdu::Answers { .. })
        };
        if self.ready.iter().any(is_wanted) {
            return;
        }
        for tag in std::mem::take(&mut self.acknowledged) {
            if self.tasks.free(tag) {
                out.release(tag);
            }
        }
    }

    /// Whether lost data of a task may be asked for once more.
    pub(super) fn can_recover(&self, tag: Tag) -> bool {
        let slot = &self.tasks[tag];
        slot.is_open() && slot.recoveries < RECOVERIES_MAX
    }

    /// The next range of a task to be asked for once more.
    #[cold]
    pub(super) fn take_hole(&mut self, tag: Tag) -> (u32, u32) {
        let at = self.holes.iter().position(|hole| hole.tag == tag);
        let hole = self.holes.remove(at.expect("the task counts its holes"));
        self.tasks[tag].holes -= 1;
        (hole.start, hole.end)
    }

    /// SNACK Request (section 11.16).
    #[cold]
    pub(super) fn snack(&mut self, bhs: &Bhs) {
        let request: SnackRequest = *bhs.cast();
        self.acknowledge(request.exp_stat_sn.get());
        let kind = SnackType::from_value(request.flags & flags::SNACK_TYPE_MASK);
        let outcome = match kind {
            _ if !self.keeps => Err(RejectReason::ProtocolError),
            None => Err(RejectReason::InvalidPduField),
            Some(SnackType::Status) => self.snack_status(&request),
            Some(SnackType::DataAck) => self.snack_data_ack(&request),
            Some(SnackType::DataOrR2t) => self.snack_data(&request),
            Some(SnackType::RData) => self.snack_r_data(&request),
        };
        if let Err(reason) = outcome {
            let tag = self.tasks.find(request.itt.get());
            let data_sn = tag.map_or(0, |tag| self.tasks[tag].data_sn);
            self.reject_with(bhs, reason, data_sn);
        }
    }

    /// Answers are asked for once more.
    fn snack_status(&mut self, request: &SnackRequest) -> Result<(), RejectReason> {
        let first = self.kept.front().map_or(self.stat_sn, |(sn, _)| *sn);
        let count = self.stat_sn.wrapping_sub(first);
        let (beg_run, run_length) = (request.beg_run.get(), request.run_length.get());
        // 0 and 0: all that are not acknowledged.
        let from = match (beg_run, run_length) {
            (0, 0) => 0,
            _ => beg_run.wrapping_sub(first),
        };
        let left = count.checked_sub(from).ok_or(RejectReason::ProtocolError)?;
        let len = if run_length == 0 { left } else { run_length };
        if len > left {
            return Err(RejectReason::ProtocolError);
        }
        let next = first.wrapping_add(from);
        let end = next.wrapping_add(len);
        if next != end {
            self.push_item(ControlPdu::Answers { next, end });
        }
        Ok(())
    }

    /// Data-In PDUs have arrived: nothing is freed before the answer has too.
    fn snack_data_ack(&mut self, request: &SnackRequest) -> Result<(), RejectReason> {
        let tag = Tag::try_from(request.ttt.get()).ok();
        let tag = tag.filter(|tag| usize::from(*tag) < self.tasks.len());
        let is_known = tag.is_some_and(|tag| {
            let slot = &self.tasks[tag];
            matches!(slot.state, State::Responding | State::Kept)
                && serial_distance(request.beg_run.get(), slot.data_sn) >= 0
        });
        match is_known && request.run_length.get() == 0 {
            true => Ok(()),
            false => Err(RejectReason::InvalidDataAck),
        }
    }

    /// Data-In or R2T PDUs are asked for once more.
    fn snack_data(&mut self, request: &SnackRequest) -> Result<(), RejectReason> {
        let tag = self.tasks.find(request.itt.get());
        let tag = tag.filter(|tag| self.tasks[*tag].kind == Kind::Scsi);
        let tag = tag.ok_or_else(|| self.without_data(request.itt.get()))?;
        let slot = self.tasks[tag];
        let next = request.beg_run.get();
        let end = match request.run_length.get() {
            0 => slot.data_sn,
            len => next.checked_add(len).ok_or(RejectReason::ProtocolError)?,
        };
        if next >= end || end > slot.data_sn {
            return Err(RejectReason::ProtocolError);
        }
        if self.tasks.task(tag).write {
            for at in self.transfers.of(tag) {
                let transfer = self.transfers.get(at);
                let is_untouched = transfer.next == transfer.start && slot.unsolicited != at;
                if is_untouched && (next..end).contains(&transfer.r2t_sn) {
                    let ttt = self.transfers.ttt(at);
                    self.push_item(ControlPdu::R2t(ttt));
                }
            }
            return Ok(());
        }
        if slot.cut != self.keys.max_send_data_segment_length {
            // They cannot be cut as they were: R-Data SNACK it must be.
            return Err(RejectReason::SnackReject);
        }
        self.push_item(ControlPdu::Data { tag, next, end });
        Ok(())
    }

    /// Data-In PDUs are asked for once more, cut for what the initiator takes
    /// now, and the answer with them.
    fn snack_r_data(&mut self, request: &SnackRequest) -> Result<(), RejectReason> {
        let tag = self.tasks.find(request.itt.get());
        let tag = tag.filter(|tag| self.tasks[*tag].kind == Kind::Scsi);
        let tag = tag.ok_or_else(|| self.without_data(request.itt.get()))?;
        let cut = self.keys.max_send_data_segment_length;
        let slot = &mut self.tasks[tag];
        let next = request.beg_run.get();
        if slot.data_in_len == 0 || next > slot.data_sn || request.run_length.get() != 0 {
            return Err(RejectReason::ProtocolError);
        }
        if slot.cut != cut && next != 0 {
            return Err(RejectReason::SnackReject);
        }
        slot.snack_tag = request.ttt.get();
        if slot.state == State::Responding {
            // Not all was sent: it begins anew from there.
            slot.cut = cut;
            let (sent, count) = (slot.sent, slot.data_sn);
            let from = self.piece(tag, next).map_or(sent, |piece| piece.offset);
            let slot = &mut self.tasks[tag];
            slot.sent = from;
            slot.data_sn = next.min(count);
            return Ok(());
        }
        slot.cut = cut;
        let stat_sn = slot.stat_sn;
        let mut end = next;
        while self.piece(tag, end).is_some() {
            end += 1;
        }
        self.tasks[tag].data_sn = end;
        if next < end {
            self.push_item(ControlPdu::Data { tag, next, end });
        }
        self.push_item(ControlPdu::Answers {
            next: stat_sn,
            end: stat_sn.wrapping_add(1),
        });
        Ok(())
    }

    /// What the Data-In PDU `data_sn` of a task brings, `None` if it has not so
    /// many.
    fn piece(&self, tag: Tag, data_sn: u32) -> Option<Piece> {
        let slot = &self.tasks[tag];
        let cut = u64::from(self.keys.max_send_data_segment_length);
        let burst = u64::from(self.keys.max_burst_length);
        let (len, data_sn) = (u64::from(slot.data_in_len), u64::from(data_sn));
        let in_burst = burst.div_ceil(cut);
        let burst_start = data_sn / in_burst * burst;
        let start = burst_start + data_sn % in_burst * cut;
        if start >= len {
            return None;
        }
        let burst_end = (burst_start + burst).min(len);
        let end = (start + cut).min(burst_end);
        Some(Piece {
            offset: start as u32,
            len: (end - start) as u32,
            is_final: end == burst_end,
        })
    }

    /// Data-In PDUs once more, as far as there is room for them.
    pub(super) fn resend_data(
        &mut self,
        tag: Tag,
        next: u32,
        end: u32,
        out: &mut impl Transmit,
    ) -> bool {
        for data_sn in next..end {
            if !out.has_room() {
                if let Some(item) = self.ready.front_mut() {
                    let next = data_sn;
                    *item = ControlPdu::Data { tag, next, end };
                }
                return false;
            }
            let Some(piece) = self.piece(tag, data_sn) else {
                self.put_announcement(out);
                break;
            };
            let slot = &self.tasks[tag];
            let is_last = piece.offset + piece.len == slot.data_in_len;
            let has_status = is_last && slot.state == State::Kept && self.carries_status(tag);
            let stat_sn = Some(slot.stat_sn);
            self.put_data_in(tag, data_sn, piece, has_status, stat_sn, out);
        }
        true
    }

    /// A NOP-In in place of what need not be sent once more: the caller that fills a
    /// batch was told that something is ready.
    fn put_announcement(&mut self, out: &mut impl Transmit) {
        let control = nop_in(TAG_NONE);
        self.put_control(&control, self.stat_sn, out);
    }

    /// An R2T once more, if its data is still to come.
    pub(super) fn resend_r2t(&mut self, ttt: u32, out: &mut impl Transmit) -> bool {
        match self.transfers.find(ttt) {
            Found::Open(at) => self.put_r2t(at, out),
            _ => self.put_announcement(out),
        }
        true
    }

    /// Answers once more, as far as there is room for them and they are not
    /// acknowledged.
    pub(super) fn resend_answers(&mut self, next: u32, end: u32, out: &mut impl Transmit) -> bool {
        let mut stat_sn = next;
        while stat_sn != end {
            let kept = self.kept_at(stat_sn).cloned();
            if !out.has_room() || !self.is_written() {
                if let Some(item) = self.ready.front_mut() {
                    let next = stat_sn;
                    *item = ControlPdu::Answers { next, end };
                }
                return false;
            }
            match kept {
                Some(KeptAnswer::Task(tag)) => self.resend_task(tag, stat_sn, out),
                Some(KeptAnswer::Control(control)) => self.put_control(&control, stat_sn, out),
                None => self.put_announcement(out),
            }
            stat_sn = stat_sn.wrapping_add(1);
        }
        true
    }

    /// The answer that was sent with this StatSN.
    fn kept_at(&self, stat_sn: u32) -> Option<&KeptAnswer> {
        let (first, _) = *self.kept.front()?;
        let distance = |sn: u32| sn.wrapping_sub(first);
        let found = self
            .kept
            .binary_search_by_key(&distance(stat_sn), |(sn, _)| distance(*sn));
        found.ok().map(|at| &self.kept[at].1)
    }

    /// The answer to a SCSI command once more: a response, or the last Data-In
    /// PDU if that carried the status.
    pub(super) fn resend_answer(&mut self, tag: Tag, stat_sn: u32, out: &mut impl Transmit) {
        let slot = &self.tasks[tag];
        let count = slot.data_sn;
        let last = count.checked_sub(1).and_then(|sn| self.piece(tag, sn));
        match last.filter(|_| slot.data_in_len > 0 && self.carries_status(tag)) {
            Some(piece) if slot.cut == self.keys.max_send_data_segment_length => {
                self.put_data_in(tag, count - 1, piece, true, Some(stat_sn), out);
            }
            _ => self.put_response(tag, Some(stat_sn), out),
        }
    }
}
