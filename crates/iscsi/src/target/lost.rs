//! Requests that are rejected, those whose data does not match its digest among them:
//! they count as never received (RFC 7143, sections 7.3 and 7.8). The initiator fills
//! the gap: it sends them again, sends another request in their place, or aborts them.

use machine::{Nanos, Tag};
use wire::iscsi::{Bhs, NopOut, RejectReason, flags, opcode, serial_distance};
use zerocopy::FromBytes;

use super::control::ControlPdu;
use super::tasks::{Kind, State};
use super::transfers::NO_TRANSFER;
use super::{Connection, FatalError, TargetOp};

/// Lost requests come again within this, or the connection ends: most initiators at
/// ErrorRecoveryLevel 0 know no other way to recover than a new session.
pub(super) const RETRY_TIMEOUT: Nanos = 5_000_000_000;
/// CmdSNs of lost requests that a connection remembers.
pub(super) const LOST_MAX: usize = 256;

/// The gaps that lost requests have left in the order of the session.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// CmdSNs of requests that have to come again on this connection. Those that
    /// have come stay until the next look.
    cmd_sns: Vec<u32>,
    /// When the last of them was lost.
    since: Nanos,
}

impl Connection {
    /// The request whose data is arriving counts as received.
    #[inline]
    pub(super) fn confirm_cmd_sn(&mut self) {
        if std::mem::take(&mut self.arriving.holds_cmd_sn) {
            self.session.borrow_mut().confirm();
        }
    }

    /// The data of the request `bhs` does not match its digest.
    #[cold]
    pub(super) fn reject_damaged(&mut self, bhs: &Bhs) {
        let is_numbered = self.arriving.holds_cmd_sn;
        self.reject(bhs, RejectReason::DataDigestError, is_numbered);
    }

    /// The request `bhs`, taken in its turn, was never received after all: its CmdSN
    /// waits for it to come again.
    #[cold]
    pub(super) fn await_retransmission(&mut self, bhs: &Bhs) {
        self.arriving.holds_cmd_sn = false;
        self.session.borrow_mut().give_back(cmd_sn(bhs));
        self.remember_lost(bhs);
        self.lost.since = self.now;
        self.look_by(self.now.saturating_add(RETRY_TIMEOUT));
    }

    /// The same of a request that has a task, which is neither executed nor answered.
    #[cold]
    pub(super) fn discard_request(&mut self, tag: Tag) {
        let bhs = Bhs::read_from_bytes(&self.arriving.header).expect("48 bytes");
        let slot = &mut self.tasks[tag];
        slot.holds_window = false;
        if slot.kind == Kind::Scsi && !slot.is_given_up {
            self.ops.push_back(TargetOp::GivenUp { tag });
        }
        self.end_sequences(tag);
        self.withdraw(tag);
        let slot = &mut self.tasks[tag];
        slot.state = State::Responding;
        (slot.sequences, slot.unsolicited) = (0, NO_TRANSFER);
        self.reject_damaged(&bhs);
        self.tasks.give_up_itt(tag);
        // Its place is free when its memory is, and not taken before.
        self.push_item(ControlPdu::Release(tag));
    }

    /// A request that is not next comes behind a lost one and is passed over, because
    /// the lost one comes behind it. `false`: what is missing was not lost here.
    #[cold]
    pub(super) fn is_behind_lost(&mut self, bhs: &Bhs, cmd_sn: u32) -> Result<bool, FatalError> {
        let expected = self.forget_found();
        let is_before = |lost: &u32| serial_distance(*lost, cmd_sn) > 0;
        if !self.lost.cmd_sns.iter().any(is_before) {
            return Ok(false);
        }
        if self.lost.cmd_sns.len() == LOST_MAX {
            return Err(FatalError::CmdSnGap { cmd_sn, expected });
        }
        self.remember_lost(bhs);
        let is_write = bhs.opcode() == opcode::SCSI_COMMAND && bhs.flags & flags::WRITE != 0;
        if is_write && bhs.flags & flags::FINAL == 0 {
            self.drop_unsolicited(bhs.itt.get());
        }
        Ok(true)
    }

    /// A request has to come again.
    fn remember_lost(&mut self, bhs: &Bhs) {
        let cmd_sn = cmd_sn(bhs);
        if !self.lost.cmd_sns.contains(&cmd_sn) {
            self.lost.cmd_sns.push(cmd_sn);
        }
    }

    /// Forgets those that have come again, or whose place an abort has taken. The
    /// CmdSN that is expected.
    fn forget_found(&mut self) -> u32 {
        let expected = self.session.borrow().exp_cmd_sn();
        let is_missing = |lost: &u32| serial_distance(expected, *lost) >= 0;
        self.lost.cmd_sns.retain(is_missing);
        expected
    }

    /// Until when lost requests have to come again, if there are some.
    pub(super) fn lost_until(&mut self) -> Option<Nanos> {
        if self.lost.cmd_sns.is_empty() {
            return None;
        }
        self.forget_found();
        let until = self.lost.since.saturating_add(RETRY_TIMEOUT);
        (!self.lost.cmd_sns.is_empty()).then_some(until)
    }
}

/// Of any request: it stands at the same place in all of them.
fn cmd_sn(bhs: &Bhs) -> u32 {
    bhs.cast::<NopOut>().cmd_sn.get()
}
