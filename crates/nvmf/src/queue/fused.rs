//! Fused pairs: Compare and Write (Base 2.0, section 3.4.2; NVM Command Set 1.0, section
//! 2.1.5).

use machine::Tag;
use wire::nvme::{FABRICS, Sqe, Status, io};

use super::decode::transfer;
use super::slots::{Fused, SlotState};
use super::{Fuse, Op, Queue};
use crate::command::{Command, Io, IoKind, decode_io};

impl Queue {
    /// A command with FUSE bits, or one that comes where the second of a pair is
    /// due. Compare and Write is the only fused operation: same namespace, same
    /// range.
    #[cold]
    pub(super) fn start_fused<F>(
        &mut self,
        (tag, is_unique): (Tag, bool),
        sqe: &Sqe,
        capsule_len: u32,
    ) -> Result<Op<F>, Status> {
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
            let started = self.start_second(first, (tag, is_unique), sqe, capsule_len);
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
                let half = (io::COMPARE, None);
                let started = self.start_half((tag, is_unique), sqe, capsule_len, half);
                self.fuse = match started {
                    Ok(_) => Fuse::First(tag),
                    Err(_) => Fuse::Broken,
                };
                started
            }
            0 if !is_unique => Err(Status::CID_CONFLICT.dnr()),
            0 => self.start_single(tag, sqe, capsule_len),
            _ => Err(Status::INVALID_FIELD.dnr()),
        }
    }

    fn start_second<F>(
        &mut self,
        first: Tag,
        (tag, is_unique): (Tag, bool),
        sqe: &Sqe,
        capsule_len: u32,
    ) -> Result<Op<F>, Status> {
        let Command::Io(compare) = self.slots[first].command else {
            unreachable!("the first of a pair is a Compare");
        };
        let half = (io::WRITE, Some(compare));
        let op = self.start_half((tag, is_unique), sqe, capsule_len, half);
        let op = op.inspect_err(|status| {
            if *status == Status::INVALID_FIELD.dnr() {
                // Where the ranges differ both get this status.
                self.give_up(first, *status);
            }
        })?;
        (self.slots[first].fused, self.slots[first].partner) = (Fused::First, tag);
        (self.slots[tag].fused, self.slots[tag].partner) = (Fused::Second, first);
        Ok(op)
    }

    /// One command of a pair, which must have `opcode` and the range of `other`.
    fn start_half<F>(
        &mut self,
        (tag, is_unique): (Tag, bool),
        sqe: &Sqe,
        capsule_len: u32,
        (opcode, other): (u8, Option<Io>),
    ) -> Result<Op<F>, Status> {
        if !is_unique {
            return Err(Status::CID_CONFLICT.dnr());
        }
        if sqe.opcode != opcode || sqe.flags & Sqe::PSDT_MASK != Sqe::PSDT_SGL {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let (mut io, need) = decode_io(sqe, &self.role.namespaces, self.io_bytes_max)?;
        let range = |io: &Io| (io.namespace, io.offset, io.len);
        match &other {
            Some(other) if range(other) != range(&io) => {
                return Err(Status::INVALID_FIELD.dnr());
            }
            Some(_) => io.kind = IoKind::CompareAndWrite,
            None => {}
        }
        let transfer = transfer(&sqe.sgl, need, capsule_len)?;
        self.slots[tag].fused = Fused::Alone;
        Ok(self.start(tag, Command::Io(io), transfer))
    }

    /// All data of a command of a pair is here: the pair is executed when the
    /// other's is too.
    #[cold]
    pub(super) fn pair_up<F>(&mut self, tag: Tag) -> Option<Op<F>> {
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
        Some(Op::ExecuteFused { compare, write })
    }
}
