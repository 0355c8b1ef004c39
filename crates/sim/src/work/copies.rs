//! Copies. The content of a block names the write and the place that it is for,
//! so a copy takes two commands: what names it is written to blocks of its own,
//! which no other operation uses, on the same volume or on another, and copied from there.

use wire::nvme::{CopySource, Status, cdw12, io};
use zerocopy::IntoBytes;

use super::{CommandPart, HostWork, SimRequest, Unsettled, had_no_effect};
use crate::checker::{CheckedOp, OpKind, Stamp, Value, Verdict};
use crate::plan::Plan;

/// Blocks that one copy moves at most.
const BLOCKS_MAX: u64 = 4;
/// Copies under way on a volume at most.
const SLOTS: usize = 2;

/// Where a copy comes from.
#[derive(Clone, Copy)]
pub(super) struct TakenSource {
    op: Value,
    /// The volume, and the place on it that no other operation uses.
    pub(super) source: usize,
    slot: usize,
    /// The volume whose logical unit is asked for the copy: either of the two.
    pub(super) asked: usize,
    /// When it was asked for.
    pub(super) begun: Stamp,
}

/// Copies under way.
#[derive(Default)]
pub(super) struct CopiesUnderWay {
    /// Places that are taken, until what was to come there or from there has come or
    /// never will.
    taken: Vec<TakenSource>,
    /// Those whose content is in its place.
    pub(super) ready: Vec<Value>,
}

impl Plan {
    /// Blocks at the beginning of each volume that only copies use.
    pub(super) fn stage_blocks(&self) -> u64 {
        match self.copies {
            0 => 0,
            _ => BLOCKS_MAX * SLOTS as u64,
        }
    }
}

impl HostWork {
    /// Where a copy comes from.
    pub(super) fn source_of(&self, op: Value) -> Option<TakenSource> {
        let mut taken = self.copies.taken.iter();
        taken.find(|taken| taken.op == op).copied()
    }

    /// The first command of a copy; a write, where no place is free.
    pub(super) fn stage(
        &mut self,
        host: usize,
        volume: usize,
        first: u64,
        blocks: u64,
    ) -> SimRequest {
        // Content names its place by sectors: blocks must be alike.
        let block_bytes = self.volumes[volume].block_bytes;
        let shared = 0..self.plan.shared_volumes();
        let alike = shared.filter(|&v| self.volumes[v].block_bytes == block_bytes);
        let alike: Vec<usize> = alike.collect();
        let from = self.random.pick(&alike);
        let taken = &self.copies.taken;
        let is_free = |slot: &usize| !taken.iter().any(|t| (t.source, t.slot) == (from, *slot));
        let Some(slot) = (0..SLOTS).find(is_free) else {
            return self.write(host, volume, first, blocks);
        };
        // EXTENDED COPY has no FUA.
        let durable = self.durable() && self.plan.hosts[host].iscsi.is_none();
        let kind = OpKind::Copy { durable };
        let op = self.begin(CheckedOp::new(
            kind,
            host,
            volume,
            first,
            blocks.min(BLOCKS_MAX),
        ));
        // The copy manager of EXTENDED COPY is in any logical unit.
        let asked = match self.plan.hosts[host].iscsi {
            Some(_) => self.random.pick(&[volume, from]),
            None => volume,
        };
        self.copies.taken.push(TakenSource {
            op,
            source: from,
            slot,
            asked,
            begun: 0,
        });
        let mut request = self.write_of(op, false);
        request.sqe.nsid = self.nsid(host, from).into();
        let blocks = self.checker.op(op).blocks as u32;
        request.sqe.set_blocks(slot as u64 * BLOCKS_MAX, blocks);
        request.io.part = CommandPart::Stage;
        request
    }

    /// What a copy shall find was written, or was not.
    pub(super) fn has_staged(&mut self, op: Value, status: Status) -> Verdict {
        self.check_status(op, status)?;
        // An answer that was on its way when the target ended finds no place: that was
        // not given out since, and nothing asks for the copy any more.
        if status.is_success() && self.source_of(op).is_some() {
            self.copies.ready.push(op);
            return Ok(());
        }
        if had_no_effect(status.code()) {
            self.free_place(op);
        }
        self.has_not_staged(op, None)
    }

    /// What a copy shall find may still be written, and the copy will not be asked for.
    pub(super) fn has_not_staged(&mut self, op: Value, connection: Option<usize>) -> Verdict {
        if self.source_of(op).is_some() {
            self.unsettled.push(Unsettled {
                ops: vec![op],
                connection,
                work: None,
                reserve: None,
            });
        }
        self.checker.refused(op)
    }

    /// The second command of a copy of a host, if one is ready.
    pub(super) fn staged(&mut self, host: usize) -> Option<SimRequest> {
        let mut ready = self.copies.ready.iter();
        let at = ready.position(|&op| self.checker.op(op).host == host)?;
        let op = self.copies.ready.remove(at);
        let CheckedOp {
            volume,
            first,
            blocks,
            kind,
            ..
        } = *self.checker.op(op);
        let begun = self.checker.stamp();
        let mut taken = self.copies.taken.iter_mut();
        let place = taken.find(|taken| taken.op == op).expect("it has one");
        place.begun = begun;
        let TakenSource {
            source,
            slot,
            asked,
            ..
        } = *place;
        let from = slot as u64 * BLOCKS_MAX;
        let snsid = self.nsid(host, source);
        // One range, or two.
        let cut = self.random.between(1, blocks);
        let ranges = [(from, cut), (from + cut, blocks - cut)];
        let is_here = source == volume && self.plan.hosts[host].iscsi.is_none();
        let mut bytes = Vec::new();
        for (from, blocks) in ranges.into_iter().filter(|(_, blocks)| *blocks > 0) {
            let range = CopySource {
                // Reserved in format 0.
                snsid: if is_here { 0 } else { snsid }.into(),
                slba: from.into(),
                nlb: (blocks as u16 - 1).into(),
                ..CopySource::default()
            };
            bytes.extend_from_slice(range.as_bytes());
        }
        let mut request = self.request(io::COPY, volume, op);
        request.sqe.set_blocks(first, 1);
        let mut dword12 = (bytes.len() / size_of::<CopySource>()) as u32 - 1;
        if kind == (OpKind::Copy { durable: true }) {
            dword12 |= cdw12::FUA;
        }
        if !is_here {
            // Descriptor format 2h.
            dword12 |= 2 << 8;
        }
        request.sqe.cdw12 = dword12.into();
        request.len = bytes.len() as u32;
        request.bytes = bytes;
        request.asked = Some(self.nsid(host, asked));
        Some(request)
    }

    /// The copy was carried out, or never will be: its place is another's.
    pub(super) fn free_place(&mut self, op: Value) {
        self.copies.taken.retain(|taken| taken.op != op);
    }

    /// The target has ended: nothing is under way, and nothing in its place.
    pub(super) fn forget_copies(&mut self) -> Verdict {
        let CopiesUnderWay { ready, .. } = std::mem::take(&mut self.copies);
        ready
            .into_iter()
            .try_for_each(|op| self.checker.refused(op))
    }
}
