//! Commands that end before they are executed: fused pairs that lost a partner,
//! Abort, live changes.

use std::sync::Arc;

use machine::{Step, Tag};
use wire::nvme::{FABRICS, Sqe, Status, io};

use super::decode::{error_location, transfer};
use super::slots::{Fused, SlotState};
use super::{AbortOutcome, Fuse, Op, Qpair, QpairPhase, RefusedCommand};
use crate::command::{Command, Geometry, Io, IoKind, decode_io, recheck};
use crate::tcp::Frame;

impl Qpair {
    /// The namespaces of the queue changed: commands from now on may name
    /// these. A namespace keeps its index while it exists. Commands whose data
    /// is still arriving are checked again.
    pub fn set_namespaces(&mut self, namespaces: Arc<[Geometry]>) {
        let before = std::mem::replace(&mut self.role.namespaces, namespaces);
        if self.phase != QpairPhase::Live {
            return;
        }
        let tags: Vec<Tag> = self.slots.tags().collect();
        for tag in tags {
            let state = self.slots[tag].state;
            if !matches!(
                state,
                SlotState::Preparing | SlotState::Receiving | SlotState::Paired
            ) {
                continue;
            }
            let command = self.slots.command(tag);
            if let Err(status) = recheck(command, &before, &self.role.namespaces) {
                self.give_up(tag, status);
            }
        }
    }

    /// Ends the command `cid`, if it is not answered already (Base 2.0, section
    /// 5.1).
    pub fn abort(&mut self, cid: u16) -> AbortOutcome {
        let Some(tag) = self
            .slots
            .find(cid)
            .filter(|_| self.phase == QpairPhase::Live)
        else {
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

    /// A command with FUSE bits, or one that comes where the second of a pair is
    /// due. Compare and Write is the only fused operation: same namespace, same
    /// range (Base 2.0, section 3.4.2; NVM Command Set 1.0, section 2.1.5).
    #[cold]
    pub(super) fn start_fused(
        &mut self,
        tag: Tag,
        unique: bool,
        sqe: &Sqe,
        found: &Frame,
        step: &mut Option<Step<Op>>,
    ) -> Result<(), Status> {
        let fuse = std::mem::replace(&mut self.fuse, Fuse::Idle);
        let which = match sqe.opcode {
            FABRICS => 0,
            _ => sqe.flags & Sqe::FUSE_MASK,
        };
        if which == Sqe::FUSE_SECOND {
            let first = match fuse {
                Fuse::Idle => return Err(Status::FUSED_MISSING),
                Fuse::Broken => return Err(Status::FUSED_FAILED),
                Fuse::First(first) => first,
            };
            let started = self.start_second(first, tag, unique, sqe, found, step);
            if started.is_err() {
                self.give_up(first, Status::FUSED_FAILED);
            }
            return started;
        }
        if let Fuse::First(first) = fuse {
            self.give_up(first, Status::FUSED_MISSING);
        }
        match which {
            Sqe::FUSE_FIRST => {
                let started = self.start_half(tag, unique, sqe, found, (io::COMPARE, None), step);
                self.fuse = match started {
                    Ok(()) => Fuse::First(tag),
                    Err(_) => Fuse::Broken,
                };
                started
            }
            0 if !unique => Err(Status::CID_CONFLICT.dnr()),
            0 => self.start_single(tag, sqe, found, step),
            _ => Err(Status::INVALID_FIELD.dnr()),
        }
    }

    fn start_second(
        &mut self,
        first: Tag,
        tag: Tag,
        unique: bool,
        sqe: &Sqe,
        found: &Frame,
        step: &mut Option<Step<Op>>,
    ) -> Result<(), Status> {
        let Command::Io(compare) = *self.slots.command(first) else {
            unreachable!("the first of a pair is a Compare");
        };
        let half = (io::WRITE, Some(compare));
        self.start_half(tag, unique, sqe, found, half, step)
            .inspect_err(|status| {
                if *status == Status::INVALID_FIELD.dnr() {
                    // Where the ranges differ both get this status.
                    self.give_up(first, *status);
                }
            })?;
        (self.slots[first].fused, self.slots[first].partner) = (Fused::First, tag);
        (self.slots[tag].fused, self.slots[tag].partner) = (Fused::Second, first);
        Ok(())
    }

    /// One command of a pair, which must have `opcode` and the range of `other`.
    fn start_half(
        &mut self,
        tag: Tag,
        unique: bool,
        sqe: &Sqe,
        found: &Frame,
        (opcode, other): (u8, Option<Io>),
        step: &mut Option<Step<Op>>,
    ) -> Result<(), Status> {
        if !unique {
            return Err(Status::CID_CONFLICT.dnr());
        }
        if sqe.opcode != opcode || sqe.flags & Sqe::PSDT_MASK != Sqe::PSDT_SGL {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let (namespaces, io_bytes_max) = (&self.role.namespaces, self.settings.io_bytes_max);
        let (mut io, need) = decode_io(sqe, namespaces, io_bytes_max)?;
        let range = |io: &Io| (io.namespace, io.offset, io.len);
        match &other {
            Some(other) if range(other) != range(&io) => {
                return Err(Status::INVALID_FIELD.dnr());
            }
            Some(_) => io.kind = IoKind::CompareAndWrite,
            None => {}
        }
        let transfer = transfer(&sqe.sgl, need, found.data_len)?;
        self.slots[tag].fused = Fused::Alone;
        *step = Some(Step::Op(self.start(tag, Command::Io(io), transfer)));
        Ok(())
    }

    /// All data of a command of a pair is here: the pair is executed when the
    /// other's is too.
    #[cold]
    pub(super) fn pair_up(&mut self, tag: Tag) -> Option<Op> {
        let slot = &mut self.slots[tag];
        slot.state = SlotState::Paired;
        let partner = slot.partner()?;
        let (compare, write) = match slot.fused {
            Fused::Second => (partner, tag),
            _ => (tag, partner),
        };
        if self.slots[partner].state != SlotState::Paired {
            return None;
        }
        self.slots[tag].state = SlotState::Executing;
        self.slots[partner].state = SlotState::Executing;
        let Command::Io(io) = *self.slots.command(write) else {
            unreachable!("the second of a pair is a Write");
        };
        Some(Op::ExecuteFused { compare, write, io })
    }

    /// `tag` will be answered with `status` and never be executed, nor will its
    /// fused partner. Nothing happens where that is settled, or too late.
    #[cold]
    pub(super) fn give_up(&mut self, tag: Tag, status: Status) {
        if self.slots[tag].is_open() {
            if status != Status::ABORT_REQUESTED {
                self.tell_given_up(tag, status);
            }
            self.withdraw(tag, status);
        }
    }

    /// The same without a word for the error log.
    pub(super) fn withdraw(&mut self, tag: Tag, status: Status) {
        let slot = &mut self.slots[tag];
        if !slot.is_open() {
            return;
        }
        slot.status = status;
        let partner = slot.partner();
        if std::mem::take(&mut slot.is_queued) {
            self.ready.retain(|ready| *ready != tag);
        }
        if self.fuse == Fuse::First(tag) {
            self.fuse = Fuse::Broken;
        }
        self.settle(tag);
        if let Some(partner) = partner {
            self.give_up(partner, Status::FUSED_FAILED);
        }
    }

    /// Answers a command that was given up, if neither the driver nor the
    /// stream has to do with it any more.
    #[cold]
    pub(super) fn settle(&mut self, tag: Tag) {
        let slot = &self.slots[tag];
        let status = slot.status;
        if slot.state == SlotState::Preparing || slot.r2ts > 0 {
            return;
        }
        if self.inbound.is_blocked_on(tag) {
            self.inbound.discard();
        }
        if self.inbound.is_on(tag) {
            return;
        }
        if self.phase == QpairPhase::Connecting {
            // Connect is the only command that can have come this far.
            self.connected(status);
        }
        self.answer(tag, status);
    }

    fn tell_given_up(&mut self, tag: Tag, status: Status) {
        let (nsid, slba) = match self.slots.command(tag) {
            Command::Io(io) => {
                let geometry = &self.role.namespaces[io.namespace as usize];
                (geometry.nsid, io.offset >> geometry.block_shift)
            }
            Command::Reservation { sqe, .. } | Command::Admin(sqe) => (sqe.nsid.get(), 0),
            _ => (0, 0),
        };
        self.given_up.push(RefusedCommand {
            cid: self.slots[tag].cid,
            status,
            nsid,
            slba,
            location: error_location(status),
        });
    }

    /// The next command that was given up: it is told when nothing else is left
    /// to do with the bytes at hand.
    #[inline]
    pub(super) fn next_given_up(&mut self) -> Option<Step<Op>> {
        if self.given_up.is_empty() {
            return None;
        }
        self.given_up
            .pop()
            .map(|refused| Step::Op(Op::Refused(refused)))
    }
}
