//! Data from the initiator.

use machine::{Step, Tag, Tail};
use wire::iscsi::{Bhs, DataOut, RejectReason, TAG_NONE, flags, opcode};
use zerocopy::FromBytes;

use super::end::Condition;
use super::receive::Frame;
use super::recovery::Hole;
use super::tasks::{Kind, State};
use super::transfers::{Found, NO_TRANSFER};
use super::{Connection, R2TS_MAX, TargetOp};

impl Connection {
    /// SCSI Data-Out (section 11.7).
    #[inline]
    pub(super) fn data_out(&mut self, bhs: &Bhs, frame: &Frame, step: &mut Option<Step<TargetOp>>) {
        let header: &DataOut = bhs.cast();
        if self.keeps {
            self.acknowledge(header.exp_stat_sn.get());
        }
        let Some(at) = self.sequence(bhs, frame) else {
            return;
        };
        let transfer = self.transfers.get(at);
        let (tag, len) = (transfer.tag, frame.data_len);
        let offset = header.buffer_offset.get();
        let is_final = bhs.flags & flags::FINAL != 0;
        let is_in_order = offset == transfer.next && header.data_sn.get() == transfer.data_sn;
        let is_inside = len <= transfer.end - transfer.next;
        if !is_in_order || !is_inside || is_final != (len == transfer.end - transfer.next) {
            return self.disordered(at, bhs, frame);
        }
        let place = self.transfers.get_mut(at);
        place.next += len;
        place.data_sn = place.data_sn.wrapping_add(1);
        self.data_out_bytes -= u64::from(len);
        let ends = if is_final { at } else { NO_TRANSFER };
        let slot = &self.tasks[tag];
        if slot.is_given_up || len == 0 {
            self.skip(len);
            self.arriving.ends = ends;
            self.end_arriving();
            return self.continue_transfer(tag, step);
        }
        let (is_preparing, wanted) = (slot.state == State::Preparing, slot.wanted);
        self.keep_header(bhs, ends);
        match is_preparing {
            true => {
                self.inbound
                    .begin_blocked(tag, offset, len, Tail::padded(len, self.data_digest))
            }
            false => self.inbound.begin(
                tag,
                offset,
                len,
                wanted,
                Tail::padded(len, self.data_digest),
            ),
        }
    }

    /// The sequence that a Data-Out PDU belongs to. `None`: to none, and it was
    /// passed over.
    #[inline]
    fn sequence(&mut self, bhs: &Bhs, frame: &Frame) -> Option<u16> {
        let header: &DataOut = bhs.cast();
        let ttt = header.ttt.get();
        if ttt == TAG_NONE {
            let tag = self.tasks.find(bhs.itt.get());
            let at = tag.map_or(NO_TRANSFER, |tag| self.tasks[tag].unsolicited);
            if at != NO_TRANSFER {
                return Some(at);
            }
            self.unexpected(bhs, frame, tag);
            return None;
        }
        let found = self.transfers.find(ttt);
        if let Found::Open(at) = found {
            let tag = self.transfers.get(at).tag;
            let is_its = self.tasks[tag].itt == bhs.itt.get()
                && self.tasks.task(tag).lun == u64::from_be_bytes(bhs.lun)
                && self.tasks[tag].unsolicited != at;
            if is_its {
                return Some(at);
            }
        }
        match found {
            // For a task that ended meanwhile.
            Found::Over => self.skip(frame.data_len),
            _ => self.refuse(bhs, frame, RejectReason::InvalidPduField, false),
        }
        None
    }

    /// Unsolicited data where none is due.
    #[cold]
    fn unexpected(&mut self, bhs: &Bhs, frame: &Frame, tag: Option<Tag>) {
        let aborted = self.aborted.iter().position(|itt| *itt == bhs.itt.get());
        match (tag, aborted) {
            (_, Some(at)) => {
                if bhs.flags & flags::FINAL != 0 {
                    self.aborted.remove(at);
                }
                self.skip(frame.data_len);
            }
            (Some(tag), None) => {
                self.refuse(bhs, frame, RejectReason::ProtocolError, false);
                if self.tasks[tag].kind == Kind::Scsi {
                    self.give_up(tag, Condition::UnexpectedUnsolicitedData);
                }
            }
            (None, None) => self.refuse(bhs, frame, RejectReason::InvalidPduField, false),
        }
    }

    /// A Data-Out PDU that is not the one that its sequence goes on with: the
    /// task fails, once all data for it has come (sections 7.9 and 11.17.1).
    #[cold]
    fn disordered(&mut self, at: u16, bhs: &Bhs, frame: &Frame) {
        let header: &DataOut = bhs.cast();
        let transfer = self.transfers.get(at);
        let condition = if header.data_sn.get() != transfer.data_sn {
            // PDUs before it are missing.
            Condition::ProtocolServiceCrcError
        } else if header.buffer_offset.get() != transfer.next {
            self.reject(bhs, RejectReason::InvalidPduField, false);
            Condition::IncorrectAmountOfData
        } else {
            Condition::IncorrectAmountOfData
        };
        self.skip(frame.data_len);
        let tag = transfer.tag;
        self.give_up(tag, condition);
        // Whatever else comes is counted, so that the last PDU is known.
        let place = self.transfers.get_mut(at);
        place.data_sn = header.data_sn.get().wrapping_add(1);
        let taken = frame.data_len.min(place.end - place.next);
        place.next += taken;
        self.data_out_bytes -= u64::from(taken);
        if bhs.flags & flags::FINAL != 0 || place.next == place.end {
            self.arriving.ends = at;
            self.end_arriving();
            self.settle(tag);
        }
    }

    /// The sequence that the PDU just taken ends is over.
    pub(super) fn end_arriving(&mut self) {
        let at = std::mem::replace(&mut self.arriving.ends, NO_TRANSFER);
        if at == NO_TRANSFER {
            return;
        }
        let tag = self.transfers.get(at).tag;
        self.data_out_bytes -= u64::from(self.transfers.end(at));
        let slot = &mut self.tasks[tag];
        slot.sequences -= 1;
        match slot.unsolicited == at {
            true => slot.unsolicited = NO_TRANSFER,
            false => slot.r2ts -= 1,
        }
    }

    /// The data of one PDU is complete; what follows for its task goes to
    /// `step`.
    #[inline]
    pub(super) fn received(
        &mut self,
        tag: Tag,
        is_intact: bool,
        step: &mut Option<Step<TargetOp>>,
    ) {
        if !is_intact {
            let bhs = Bhs::read_from_bytes(&self.arriving.header).expect("48 bytes");
            if bhs.opcode() != opcode::DATA_OUT {
                return self.discard_request(tag);
            }
            self.data_out_damaged(tag, &bhs);
        }
        self.confirm_cmd_sn();
        if self.tasks[tag].kind == Kind::Ping {
            return self.ping_received(tag);
        }
        self.end_arriving();
        self.continue_transfer(tag, step);
    }

    /// What follows for a task that has got some data, or a sequence's end.
    #[inline]
    fn continue_transfer(&mut self, tag: Tag, step: &mut Option<Step<TargetOp>>) {
        let slot = &mut self.tasks[tag];
        if slot.is_given_up {
            self.settle(tag);
        } else if slot.state != State::Receiving {
            // Not prepared yet: it goes on with that.
        } else if slot.has_all() {
            slot.state = State::Executing;
            let task = *self.tasks.task(tag);
            *step = Some(Step::Op(TargetOp::Execute { tag, task }));
        } else if self.wants_r2t(tag) {
            self.queue(tag);
        }
    }

    /// The data of a Data-Out PDU does not match its digest (section 7.8). It is asked
    /// for once more at ErrorRecoveryLevel 1; else the task fails, once all data for it
    /// has come.
    #[cold]
    fn data_out_damaged(&mut self, tag: Tag, bhs: &Bhs) {
        self.reject(bhs, RejectReason::DataDigestError, false);
        let (start, end) = self.inbound.range();
        if self.keeps && self.can_recover(tag) {
            if start < end {
                let slot = &mut self.tasks[tag];
                slot.holes += 1;
                slot.recoveries += 1;
                self.holes.push(Hole { tag, start, end });
            }
            return;
        }
        self.give_up(tag, Condition::ProtocolServiceCrcError);
    }

    /// Whether one more R2T for `tag` could be sent now.
    #[inline]
    pub(super) fn wants_r2t(&self, tag: Tag) -> bool {
        let slot = &self.tasks[tag];
        let r2ts_max = self.keys.max_outstanding_r2t.clamp(1, R2TS_MAX);
        (slot.asked < slot.wanted || slot.holes > 0)
            && slot.r2ts < r2ts_max
            && slot.unsolicited == NO_TRANSFER
            && (slot.sequences == 0 || self.transfers.has_extra(self.tasks_max()))
    }
}
