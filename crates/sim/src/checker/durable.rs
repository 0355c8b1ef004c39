//! What a volume may hold after the power failed or its process ended.

use super::block::{BEFORE, CheckedBlock};
use super::{Checker, SeenBlock, Value, Verdict, ZEROS};

impl Checker {
    /// A reactor has panicked: what has come short of what is under way may never be
    /// gone on with, and is there in part then.
    pub fn panicked(&mut self) {
        for &value in &self.open {
            self.ops[value as usize].is_atomic = false;
        }
    }

    /// The target's process ended: what was under way there has happened, in
    /// part or not at all, and happens no more.
    pub fn killed(&mut self) -> Verdict {
        self.panicked();
        for value in self.open.clone() {
            self.ended(value)?;
        }
        Ok(())
    }

    /// The power failed under a volume whose target has been
    /// [`Checker::killed`]: each block holds what was durable or anything newer,
    /// and if sectors are smaller than blocks, any mixture of those.
    pub fn power_cut(&mut self, volume: usize) -> Verdict {
        self.check_miscompares(volume)?;
        let now = self.tick();
        let tears = self.volumes[volume].promise.block_sectors > 1;
        for at in 0..self.volumes[volume].blocks.len() {
            let values = self.survivors(volume, at as u64);
            let block = &mut self.volumes[volume].blocks[at];
            *block = CheckedBlock::new(now, values, tears);
        }
        Ok(())
    }

    /// A volume in memory ended with its process: zeros.
    pub fn forgotten(&mut self, volume: usize) -> Verdict {
        self.check_miscompares(volume)?;
        let now = self.tick();
        for block in &mut self.volumes[volume].blocks {
            *block = CheckedBlock::new(now, vec![ZEROS], false);
        }
        Ok(())
    }

    /// The volume has another size: blocks between the two hold zeros as soon
    /// as they can be used.
    pub fn resized(&mut self, volume: usize, from: u64, to: u64) {
        let now = self.tick();
        // What is under way may have met before what cannot be read.
        for value in self.open.clone() {
            if self.op(value).volume == volume {
                let met = (self.may_be_damaged(value), self.may_be_spoiled(value));
                let op = &mut self.ops[value as usize];
                (op.met_damaged, op.met_spoiled) = met;
            }
        }
        let all = &mut self.volumes[volume].blocks;
        let zero = || CheckedBlock::new(now, vec![ZEROS], false);
        if to > all.len() as u64 {
            all.resize_with(to as usize, zero);
        }
        let between = from.min(to)..from.max(to);
        all[between.start as usize..between.end as usize].fill_with(zero);
        // What is under way since before may come where the end is far enough.
        for &value in &self.open {
            let op = &self.ops[value as usize];
            if op.volume != volume || !op.kind.writes() {
                continue;
            }
            let (first, end) = (op.first, op.first + op.blocks);
            for block in first.max(between.start)..end.min(between.end) {
                self.volumes[volume].blocks[block as usize]
                    .writers
                    .push(value);
            }
        }
    }

    /// The values that a block may be left with: those that no durable one
    /// has surely replaced.
    fn survivors(&self, volume: usize, at: u64) -> Vec<Value> {
        let block = &self.volumes[volume].blocks[at as usize];
        let durable: Vec<_> = (block.clusters.iter())
            .filter(|cluster| self.is_durable(volume, cluster.value))
            .collect();
        let replaced = |first_end| durable.iter().any(|d| first_end < d.last_begin);
        let mut values = Vec::new();
        if !replaced(block.epoch()) {
            match &block.initial.found {
                Some(SeenBlock::Whole(value)) => values.push(*value),
                Some(SeenBlock::Torn(mixed)) => values.extend(mixed),
                _ => values.extend(&block.initial.values),
            }
        }
        for &value in &block.writers {
            let op = &self.ops[value as usize];
            let cluster = block.cluster(value);
            let first_end = cluster.map_or(op.end, |cluster| cluster.first_end);
            // One that is itself durable is replaced by others only.
            let others = durable
                .iter()
                .filter(|d| d.value != value && d.value != BEFORE);
            if op.is_refused || others.into_iter().any(|d| first_end < d.last_begin) {
                continue;
            }
            values.push(if op.kind.leaves_zeros() { ZEROS } else { value });
        }
        values.sort_unstable();
        values.dedup();
        values
    }
}
