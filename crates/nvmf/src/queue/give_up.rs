//! Commands that end before they are executed: Abort, live changes, damaged data, a
//! driver without memory.

use std::sync::Arc;

use machine::Tag;
use wire::nvme::Status;

use super::decode::error_location;
use super::slots::SlotState;
use super::{AbortOutcome, Fuse, Queue, QueueNotice, QueuePhase, RefusedCommand};
use crate::command::{Command, Geometry, recheck};

impl Queue {
    /// The namespaces of the queue changed: commands from now on may name
    /// these. A namespace keeps its index while it exists. Commands whose data
    /// is still arriving are checked again.
    pub(crate) fn set_namespaces(&mut self, namespaces: Arc<[Geometry]>) {
        let before = std::mem::replace(&mut self.role.namespaces, namespaces);
        if !self.is_connected() {
            return;
        }
        let tags: Vec<Tag> = self.slots.tags().collect();
        for tag in tags {
            if !self.slots[tag].is_open() {
                continue;
            }
            let command = &self.slots[tag].command;
            if let Err(status) = recheck(command, &before, &self.role.namespaces) {
                self.give_up(tag, status);
            }
        }
    }

    /// Ends the command `cid`, if it is not answered already (Base 2.0, section
    /// 5.1).
    pub(crate) fn abort(&mut self, cid: u16) -> AbortOutcome {
        let found = self.slots.find(cid);
        let Some(tag) = found.filter(|_| self.is_connected()) else {
            return AbortOutcome::NotFound;
        };
        let slot = &self.slots[tag];
        match slot.state {
            SlotState::Preparing | SlotState::Executing => AbortOutcome::Executing(tag),
            _ if slot.is_open() => {
                self.give_up(tag, Status::ABORT_REQUESTED);
                AbortOutcome::Aborted(tag)
            }
            _ => AbortOutcome::NotFound,
        }
    }

    /// `tag` will be answered with `status` and never be executed, nor will its
    /// fused partner. Nothing happens where that is settled, or too late.
    #[cold]
    pub(crate) fn give_up(&mut self, tag: Tag, status: Status) {
        if self.slots[tag].is_open() {
            if status != Status::ABORT_REQUESTED {
                self.tell_given_up(tag, status);
            }
            self.withdraw(tag, status);
        }
    }

    /// Whether it was.
    #[inline]
    pub(crate) fn is_given_up(&self, tag: Tag) -> bool {
        self.slots[tag].is_given_up()
    }

    /// The same without a word for the error log.
    fn withdraw(&mut self, tag: Tag, status: Status) {
        let slot = &mut self.slots[tag];
        if !slot.is_open() {
            return;
        }
        slot.status = status;
        let partner = slot.partner();
        match slot.state {
            SlotState::Receiving => self.withdrawn.push(tag),
            SlotState::Paired => self.end_with(tag, status),
            // It is in the driver's hands.
            _ => {}
        }
        if self.fuse == Fuse::First(tag) {
            self.fuse = Fuse::Broken;
        }
        if let Some(partner) = partner {
            self.give_up(partner, Status::FUSED_FAILED);
        }
    }

    /// The driver has no memory for `tag`, or does not want the command.
    #[cold]
    pub(super) fn refuse_prepare(&mut self, tag: Tag, status: Status) {
        self.withdraw(tag, status);
        self.slots[tag].state = SlotState::Receiving;
        self.withdrawn.push(tag);
    }

    /// The next command that was given up while the transport moves its data: ask for no
    /// more of it, and say [`Queue::data_over`] when none is on its way.
    #[inline]
    pub(crate) fn next_withdrawn(&mut self) -> Option<Tag> {
        self.withdrawn.pop()
    }

    /// No data of `tag`, which was given up, is on its way: it is answered.
    #[cold]
    pub(crate) fn data_over(&mut self, tag: Tag) {
        let slot = &self.slots[tag];
        let status = slot.status;
        if slot.state != SlotState::Receiving {
            return;
        }
        if self.phase == QueuePhase::Connecting {
            // Connect is the only command that can have come this far.
            self.connected(status);
        }
        self.end_with(tag, status);
    }

    fn tell_given_up(&mut self, tag: Tag, status: Status) {
        let (nsid, slba) = match &self.slots[tag].command {
            Command::Io(io) => {
                let geometry = &self.role.namespaces[io.namespace as usize];
                (geometry.nsid, io.offset >> geometry.block_shift)
            }
            Command::Reservation { sqe, .. } | Command::Admin(sqe) => (sqe.nsid.get(), 0),
            _ => (0, 0),
        };
        self.notices.push_back(QueueNotice::Refused(RefusedCommand {
            cid: self.slots[tag].cid,
            status,
            nsid,
            slba,
            location: error_location(status),
        }));
    }
}
