//! Tasks that end before they are executed.

use machine::Tag;
use wire::iscsi::RejectReason;
use wire::scsi::{SenseBytes, asc, key};

use super::control::ControlPdu;
use super::tasks::{Kind, State};
use super::transfers::NO_TRANSFER;
use super::{ABORTED_MAX, Connection, Done, RejectedPdu, TargetOp};

/// What became of a task that [`Connection::abort`] was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortOutcome {
    /// No such command, or its answer is under way already.
    Gone,
    /// The driver did not have it, except for its memory, which it frees now:
    /// the tag is free.
    Aborted,
    /// The driver has it, preparing or executing: it stops, and calls
    /// [`Connection::complete`] with [`Done::aborted`]. The tag is free then.
    Executing,
}

/// iSCSI conditions that end a task with ABORTED COMMAND (RFC 7143, section
/// 11.4.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    UnexpectedUnsolicitedData,
    IncorrectAmountOfData,
    ProtocolServiceCrcError,
}

impl Condition {
    fn sense(self) -> SenseBytes {
        let asc = match self {
            Condition::UnexpectedUnsolicitedData => asc::WRITE_ERROR_UNEXPECTED_UNSOLICITED_DATA,
            Condition::IncorrectAmountOfData => asc::WRITE_ERROR_NOT_ENOUGH_UNSOLICITED_DATA,
            Condition::ProtocolServiceCrcError => asc::PROTOCOL_SERVICE_CRC_ERROR,
        };
        fixed_sense(key::ABORTED_COMMAND, asc)
    }
}

/// Sense data in fixed format (SPC-4, section 4.5.3).
pub(super) fn fixed_sense(key: u8, asc: u16) -> SenseBytes {
    let [asc, ascq] = asc.to_be_bytes();
    let mut sense = [0; 18];
    (sense[0], sense[2], sense[7], sense[12], sense[13]) = (0x70, key, 10, asc, ascq);
    SenseBytes::new(&sense)
}

impl Connection {
    /// Ends a SCSI command without an answer: a task management function says
    /// so. What the initiator still sends for it is dropped.
    pub fn abort(&mut self, tag: Tag) -> AbortOutcome {
        let is_there = self.is_open() && usize::from(tag) < self.tasks.len();
        if !is_there || self.tasks[tag].kind != Kind::Scsi {
            return AbortOutcome::Gone;
        }
        let slot = &self.tasks[tag];
        match slot.state {
            State::Preparing | State::Executing => AbortOutcome::Executing,
            State::Receiving => {
                let is_named = slot.is_named;
                self.forget(tag);
                match is_named {
                    true => AbortOutcome::Aborted,
                    false => AbortOutcome::Gone,
                }
            }
            State::Free | State::Waiting | State::Responding | State::Kept => AbortOutcome::Gone,
        }
    }

    /// The task of `tag` is over without a response.
    #[cold]
    pub(super) fn forget(&mut self, tag: Tag) {
        let slot = self.tasks[tag];
        assert!(
            matches!(
                slot.state,
                State::Preparing | State::Receiving | State::Executing
            ),
            "aborted a task that is {:?}",
            slot.state
        );
        if self.inbound.is_on(tag) {
            self.was_held |= self.inbound.is_blocked();
            self.inbound.discard();
            self.confirm_cmd_sn();
            self.arriving.ends = NO_TRANSFER;
        }
        self.end_sequences(tag);
        self.withdraw(tag);
        self.due.retain(|due| *due != tag);
        if slot.holds_window {
            self.session.borrow_mut().ended();
        }
        self.tasks.free(tag);
    }

    /// What still comes for a task that is over is dropped.
    pub(super) fn end_sequences(&mut self, tag: Tag) {
        let slot = self.tasks[tag];
        if slot.unsolicited != NO_TRANSFER {
            self.drop_unsolicited(slot.itt);
        }
        if slot.sequences > 0 {
            for at in self.transfers.of(tag) {
                self.data_out_bytes -= u64::from(self.transfers.end(at));
            }
        }
    }

    /// Unsolicited data with this Initiator Task Tag is dropped when it comes.
    pub(super) fn drop_unsolicited(&mut self, itt: u32) {
        if self.aborted.len() == ABORTED_MAX {
            self.aborted.pop_front();
        }
        self.aborted.push_back(itt);
    }

    /// No more data is asked for.
    pub(super) fn withdraw(&mut self, tag: Tag) {
        let slot = &mut self.tasks[tag];
        if std::mem::take(&mut slot.holes) > 0 {
            self.holes.retain(|hole| hole.tag != tag);
        }
        if std::mem::take(&mut slot.is_queued) {
            self.ready.retain(|item| *item != ControlPdu::Task(tag));
        }
    }

    /// The driver ends a task whose data is not all here.
    #[cold]
    pub(super) fn complete_early(&mut self, tag: Tag, done: &Done) {
        let slot = &mut self.tasks[tag];
        slot.state = State::Receiving;
        if slot.kind == Kind::Ping {
            slot.is_given_up = true;
            return self.settle(tag);
        }
        if !slot.is_given_up {
            assert_eq!(done.data_in_len, 0, "data of a command that did not run");
            self.end_early(tag, done);
        }
        self.settle(tag);
    }

    fn end_early(&mut self, tag: Tag, done: &Done) {
        self.set_answer(tag, done);
        self.tasks[tag].is_given_up = true;
        self.withdraw(tag);
        self.due.retain(|due| *due != tag);
    }

    /// `tag` will be answered with CHECK CONDITION and never be executed.
    /// Nothing happens where that is settled, or too late.
    #[cold]
    pub(super) fn give_up(&mut self, tag: Tag, condition: Condition) {
        if !self.tasks[tag].is_open() {
            return;
        }
        if self.tasks[tag].is_named {
            self.ops.push_back(TargetOp::GivenUp { tag });
        }
        self.end_early(tag, &Done::check_condition(condition.sense()));
        self.settle(tag);
    }

    /// Answers a task that was given up, if neither the driver nor the stream
    /// has to do with it any more.
    #[cold]
    pub(super) fn settle(&mut self, tag: Tag) {
        if self.tasks[tag].state == State::Preparing {
            return;
        }
        if self.inbound.is_blocked_on(tag) {
            // The data that waits for memory is dropped.
            self.was_held = true;
            self.inbound.discard();
            self.confirm_cmd_sn();
            self.end_arriving();
        }
        if self.inbound.is_on(tag) || self.tasks[tag].sequences > 0 {
            return;
        }
        if self.tasks[tag].state == State::Receiving {
            self.tasks[tag].state = State::Responding;
            self.queue(tag);
        }
    }

    /// A PDU was refused: for the log.
    pub(super) fn log_reject(&mut self, opcode: u8, itt: u32, reason: RejectReason) {
        self.ops.push_back(TargetOp::Refused(RejectedPdu {
            opcode,
            itt,
            reason,
        }));
    }
}
