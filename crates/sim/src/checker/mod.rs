//! What every block may hold, given what hosts asked for and what was answered.
//!
//! Each write leaves content that names it, so a read says which write it saw.
//! All operations that saw or made one value form a *cluster*. If a block is
//! linearizable, its clusters follow each other without overlap: cluster `a`
//! lies before cluster `b` as soon as one operation of `a` ended before one of
//! `b` began, and two clusters that lie before each other are a contradiction
//! (Gibbons and Korach, "Testing Shared Memories", 1997). That test is exact for
//! a block whose values are unique, cheap, and never has to be taken back when
//! more is learned, so it runs with every answer.
//!
//! Time is a count of beginnings and ends, so that no two are the same.

mod block;
mod durable;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use block::CheckedBlock;

/// When something began or ended: a count.
pub type Stamp = u64;
/// After everything.
pub const NEVER: Stamp = u64::MAX;

/// What a write leaves in a block: the number of that write.
pub type Value = u32;
/// The value of zeros, which no write owns.
pub const ZEROS: Value = 0;

/// What a read found in one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeenBlock {
    /// All of one write, or zeros.
    Whole(Value),
    /// Whole sectors of several writes.
    Torn(Vec<Value>),
    /// Bytes that were never written there.
    Garbage,
}

/// What is asked of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Read.
    Read,
    /// Write; `durable` with FUA.
    Write {
        /// Done only when it survives a power cut.
        durable: bool,
    },
    /// Write Zeroes.
    Zero {
        /// Done only when it survives a power cut.
        durable: bool,
    },
    /// Deallocate: zeros, or what was there.
    Trim,
    /// Write Uncorrectable: what was there cannot be read any more.
    Spoil,
    /// Compare.
    Compare,
    /// Compare and Write, fused.
    CompareAndWrite {
        /// The write is done only when it survives a power cut.
        durable: bool,
    },
    /// Flush.
    Flush,
    /// Verify: reads without an answer.
    Verify,
    /// Copy of blocks that hold what names it: they come one by one.
    Copy {
        /// Done only when it survives a power cut.
        durable: bool,
    },
    /// ORWRITE of zeros: reads and writes, and changes nothing.
    OrWrite,
    /// Get LBA Status: where no data is, zeros are.
    LbaStatus,
}

impl OpKind {
    /// Whether it may change a block.
    pub fn writes(self) -> bool {
        matches!(
            self,
            OpKind::Write { .. }
                | OpKind::Zero { .. }
                | OpKind::Trim
                | OpKind::Spoil
                | OpKind::CompareAndWrite { .. }
                | OpKind::Copy { .. }
        )
    }

    fn leaves_zeros(self) -> bool {
        matches!(self, OpKind::Zero { .. } | OpKind::Trim)
    }

    fn is_durable(self) -> bool {
        matches!(
            self,
            OpKind::Write { durable: true }
                | OpKind::Zero { durable: true }
                | OpKind::CompareAndWrite { durable: true }
                | OpKind::Copy { durable: true }
        )
    }
}

/// One operation of a host.
#[derive(Clone, Debug)]
pub struct CheckedOp {
    /// What it is.
    pub kind: OpKind,
    /// The host that asks.
    pub host: usize,
    /// Of which volume.
    pub volume: usize,
    /// First block.
    pub first: u64,
    /// Blocks.
    pub blocks: u64,
    /// What a compare expects, block by block.
    pub expected: Vec<Value>,
    invoked: Stamp,
    /// It takes effect before this or not at all.
    end: Stamp,
    /// When its success was answered.
    acked: Stamp,
    /// It was answered with a status that says that nothing happened.
    is_refused: bool,
    /// Its blocks change in one step.
    is_atomic: bool,
    /// A block that it covers was damaged, or spoiled, before the volume changed its size.
    met_damaged: bool,
    met_spoiled: bool,
}

impl CheckedOp {
    /// An operation on `blocks` blocks from `first`.
    pub fn new(kind: OpKind, host: usize, volume: usize, first: u64, blocks: u64) -> CheckedOp {
        CheckedOp {
            kind,
            host,
            volume,
            first,
            blocks,
            expected: Vec::new(),
            invoked: 0,
            end: NEVER,
            acked: NEVER,
            is_refused: false,
            is_atomic: false,
            met_damaged: false,
            met_spoiled: false,
        }
    }

    /// When it began.
    pub fn begun(&self) -> Stamp {
        self.invoked
    }

    /// Whether it may change a block.
    pub fn writes_to(&self, volume: usize, block: u64) -> bool {
        self.kind.writes() && self.covers(volume, block)
    }

    fn covers(&self, volume: usize, block: u64) -> bool {
        self.volume == volume && block >= self.first && block - self.first < self.blocks
    }
}

/// What a volume promises.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// Blocks at the start, all zero.
    pub blocks: u64,
    /// Sectors of a block.
    pub block_sectors: usize,
    /// Reads and writes of up to this many blocks are one step.
    pub atomic_blocks: u64,
}

struct Volume {
    promise: Promise,
    blocks: Vec<CheckedBlock>,
    /// What was acknowledged before this is durable.
    flushed_before: Stamp,
    /// Compares that failed, and when, to be looked at when more is known.
    miscompares: Vec<(Value, Stamp)>,
    /// Blocks that were changed on the disk.
    damaged: HashSet<u64>,
}

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

/// Whether all promises are kept so far.
pub type Verdict = Result<(), Violation>;

/// Knows what every block of every volume may hold.
pub struct Checker {
    ops: Vec<CheckedOp>,
    /// Operations that may still take effect.
    open: Vec<Value>,
    volumes: Vec<Volume>,
    clock: Stamp,
    /// Answers that were checked.
    checked: u64,
}

impl Checker {
    /// Knows of nothing yet.
    pub fn new() -> Checker {
        // Number 0 is of no operation: it stands for zeros.
        let zeros = CheckedOp::new(OpKind::Flush, 0, usize::MAX, 0, 0);
        Checker {
            ops: vec![zeros],
            open: Vec::new(),
            volumes: Vec::new(),
            clock: 0,
            checked: 0,
        }
    }

    /// A volume of zeros; its number.
    pub fn add_volume(&mut self, promise: Promise) -> usize {
        self.volumes.push(Volume {
            promise,
            blocks: (0..promise.blocks).map(|_| CheckedBlock::zero()).collect(),
            flushed_before: 0,
            miscompares: Vec::new(),
            damaged: HashSet::new(),
        });
        self.volumes.len() - 1
    }

    /// Answers that were checked.
    pub fn checked(&self) -> u64 {
        self.checked
    }

    /// Operations begun.
    pub fn begun(&self) -> usize {
        self.ops.len() - 1
    }

    /// Whether no operation can take effect any more.
    pub fn is_settled(&self) -> bool {
        self.open.is_empty()
    }

    /// What `value` is.
    pub fn op(&self, value: Value) -> &CheckedOp {
        &self.ops[value as usize]
    }

    /// A moment of its own, for what else happens.
    pub fn stamp(&mut self) -> Stamp {
        self.tick()
    }

    fn tick(&mut self) -> Stamp {
        self.clock += 1;
        self.clock
    }

    /// A host begins an operation: its number, which is also the value that it
    /// writes.
    pub fn begin(&mut self, mut op: CheckedOp) -> Value {
        op.invoked = self.tick();
        let volume = &mut self.volumes[op.volume];
        let is_one = !matches!(op.kind, OpKind::Trim | OpKind::Spoil | OpKind::Copy { .. });
        op.is_atomic = is_one && op.blocks <= volume.promise.atomic_blocks;
        let value = self.ops.len() as Value;
        if op.kind.writes() {
            for block in op.first..op.first + op.blocks {
                volume.blocks[block as usize].writers.push(value);
            }
        }
        self.open.push(value);
        self.ops.push(op);
        value
    }

    /// It can take effect no more.
    fn close(&mut self, value: Value, now: Stamp) {
        let op = &mut self.ops[value as usize];
        op.end = op.end.min(now);
        if let Some(at) = self.open.iter().position(|&open| open == value) {
            self.open.swap_remove(at);
        }
    }

    /// The operation succeeded; `seen` is what a read found, block by block.
    pub fn succeeded(&mut self, value: Value, seen: &[SeenBlock]) -> Verdict {
        let now = self.tick();
        self.checked += 1;
        self.close(value, now);
        self.ops[value as usize].acked = now;
        let op = self.ops[value as usize].clone();
        match op.kind {
            OpKind::Read => {
                assert_eq!(seen.len() as u64, op.blocks, "one answer a block");
                self.match_seen(value, seen)?;
            }
            OpKind::Compare => {
                self.match_seen(value, &whole(&op.expected))?;
            }
            OpKind::CompareAndWrite { .. } => {
                let was = self.match_seen(value, &whole(&op.expected))?;
                self.replaced(value, &was)?;
            }
            OpKind::Write { .. } | OpKind::Zero { .. } | OpKind::Spoil | OpKind::Copy { .. } => {
                for block in op.first..op.first + op.blocks {
                    self.touch(op.volume, block, value, op.end, op.invoked)?;
                }
            }
            OpKind::Flush => {
                let volume = &mut self.volumes[op.volume];
                volume.flushed_before = volume.flushed_before.max(op.invoked);
            }
            OpKind::Trim | OpKind::Verify | OpKind::OrWrite | OpKind::LbaStatus => {}
        }
        Ok(())
    }

    /// An operation was answered that these blocks hold no data: they were zeros then.
    pub fn was_told_of_holes(&mut self, value: Value, holes: &[u64]) -> Verdict {
        let CheckedOp {
            volume,
            acked,
            invoked,
            ..
        } = self.ops[value as usize];
        for &block in holes {
            self.resolve(volume, block, &SeenBlock::Whole(ZEROS), acked, invoked)?;
        }
        Ok(())
    }

    /// Answered with a status that says that it had no effect.
    pub fn refused(&mut self, value: Value) -> Verdict {
        let now = self.tick();
        self.checked += 1;
        self.close(value, now);
        let op = &mut self.ops[value as usize];
        op.is_refused = true;
        let op = op.clone();
        if !op.kind.writes() {
            return Ok(());
        }
        for block in op.first..op.first + op.blocks {
            if self.volumes[op.volume].blocks[block as usize].has(value) {
                return self.fault(op.volume, block, "a refused write was seen");
            }
        }
        Ok(())
    }

    /// A compare found something else, which may be right or not: known later.
    pub fn miscompared(&mut self, value: Value) -> Verdict {
        let volume = self.ops[value as usize].volume;
        let verdict = self.refused(value);
        self.volumes[volume].miscompares.push((value, self.clock));
        verdict
    }

    /// It failed, or its connection did, and may or may not have had its
    /// effect; after this moment it has none.
    pub fn ended(&mut self, value: Value) -> Verdict {
        let now = self.tick();
        self.close(value, now);
        let op = self.ops[value as usize].clone();
        if !op.kind.writes() {
            return Ok(());
        }
        for block in op.first..op.first + op.blocks {
            if self.volumes[op.volume].blocks[block as usize].has(value) {
                self.touch(op.volume, block, value, now, op.invoked)?;
            }
        }
        Ok(())
    }

    /// A host may not write to a volume any more: what it has under way there
    /// has had its effect by now or has none.
    pub fn forbid_writes(&mut self, host: usize, volume: usize) {
        let now = self.tick();
        for &value in &self.open {
            let op = &mut self.ops[value as usize];
            if op.host == host && op.volume == volume && op.kind.writes() {
                op.end = op.end.min(now);
            }
        }
    }

    /// The host may write again: what it had under way and was not seen so far
    /// may have been held up until now.
    pub fn allow_writes(&mut self, host: usize, volume: usize) {
        let blocks = &self.volumes[volume].blocks;
        for &value in &self.open {
            let op = &mut self.ops[value as usize];
            if op.host == host && op.volume == volume && op.kind.writes() {
                let mut its = blocks[op.first as usize..].iter().take(op.blocks as usize);
                if !its.any(|block| block.has(value)) {
                    op.end = NEVER;
                }
            }
        }
    }

    /// The store below failed a write of these blocks: whatever is under way
    /// there may come in part.
    pub fn media_error(&mut self, volume: usize, first: u64, blocks: u64) {
        for &value in &self.open {
            let op = &mut self.ops[value as usize];
            if op.volume == volume && op.first < first + blocks && first < op.first + op.blocks {
                op.is_atomic = false;
            }
        }
    }

    /// What an operation saw in its blocks; for each the value that it belongs
    /// to, `None` where that cannot be told from zeros.
    fn match_seen(
        &mut self,
        value: Value,
        seen: &[SeenBlock],
    ) -> Result<Vec<Option<Value>>, Violation> {
        let op = self.ops[value as usize].clone();
        let mut found = Vec::with_capacity(seen.len());
        for (n, seen) in seen.iter().enumerate() {
            found.push(self.resolve(op.volume, op.first + n as u64, seen, op.acked, op.invoked)?);
        }
        if op.is_atomic {
            self.check_whole(&op, &found)?;
        }
        Ok(found)
    }

    /// One step read these blocks: no atomic write may be there in part.
    fn check_whole(&mut self, read: &CheckedOp, found: &[Option<Value>]) -> Verdict {
        let mut values: Vec<Value> = found.iter().flatten().copied().collect();
        values.sort_unstable();
        values.dedup();
        for value in values {
            if value == block::BEFORE || !self.ops[value as usize].is_atomic {
                continue;
            }
            self.happened(value, read.acked)?;
            for (n, other) in found.iter().enumerate() {
                let at = read.first + n as u64;
                let Some(other) = *other else { continue };
                if other == value || !self.ops[value as usize].covers(read.volume, at) {
                    continue;
                }
                // What was cut off since is no part of it any more.
                let block = &self.volumes[read.volume].blocks[at as usize];
                if self.ops[value as usize].invoked < block.epoch() {
                    continue;
                }
                let covers_both = other != block::BEFORE && {
                    let other_op = &self.ops[other as usize];
                    let here = |n: usize| other_op.covers(read.volume, read.first + n as u64);
                    let mine = |n: &usize| found[*n] == Some(value);
                    other_op.is_atomic && (0..found.len()).filter(mine).any(here)
                };
                if other == block::BEFORE || covers_both {
                    let what = format!("one read saw write {value} in part");
                    return self.fault(read.volume, at, &what);
                }
                self.order(read.volume, at, value, other)?;
            }
        }
        Ok(())
    }

    /// An atomic write was seen somewhere, so all of it has happened by `end`.
    fn happened(&mut self, value: Value, end: Stamp) -> Verdict {
        let op = &mut self.ops[value as usize];
        if op.end <= end {
            return Ok(());
        }
        op.end = end;
        let (volume, first, blocks, begin) = (op.volume, op.first, op.blocks, op.invoked);
        for block in first..first + blocks {
            self.touch(volume, block, value, end, begin)?;
        }
        Ok(())
    }

    /// A compare-and-write that took the place of what it had compared.
    fn replaced(&mut self, value: Value, was: &[Option<Value>]) -> Verdict {
        let op = self.ops[value as usize].clone();
        for (n, was) in was.iter().enumerate() {
            let at = op.first + n as u64;
            self.touch(op.volume, at, value, op.end, op.invoked)?;
            let Some(was) = *was else { continue };
            let block = &mut self.volumes[op.volume].blocks[at as usize];
            if let Some(other) = block.replace(was, value) {
                let what = format!("writes {other} and {value} both took the place of one value");
                return self.fault(op.volume, at, &what);
            }
            self.order(op.volume, at, was, value)?;
        }
        Ok(())
    }

    /// The end of a run: what could not be judged before.
    pub fn finish(&mut self) -> Verdict {
        for volume in 0..self.volumes.len() {
            self.check_miscompares(volume)?;
        }
        Ok(())
    }

    /// A compare failed though every block held what it expected, seen before
    /// it began and after it ended.
    fn check_miscompares(&mut self, volume: usize) -> Verdict {
        for (value, end) in std::mem::take(&mut self.volumes[volume].miscompares) {
            let op = &self.ops[value as usize];
            let blocks = &self.volumes[volume].blocks[op.first as usize..];
            let held =
                |(block, &expected): (&CheckedBlock, &Value)| block.held(expected, op.invoked, end);
            if blocks.iter().zip(&op.expected).all(held) {
                let what = format!("compare {value} failed over what it expected");
                return self.fault(volume, op.first, &what);
            }
        }
        Ok(())
    }

    /// A violation, with everything that is known of the block.
    fn fault(&self, volume: usize, at: u64, what: &str) -> Verdict {
        use std::fmt::Write;
        let block = &self.volumes[volume].blocks[at as usize];
        let mut text = format!("volume {volume} block {at}: {what}\n{block}");
        for (value, op) in self.ops.iter().enumerate() {
            if op.covers(volume, at) && op.end >= block.epoch() {
                let end = match (op.acked, op.end) {
                    (NEVER, NEVER) => "open".to_owned(),
                    (NEVER, end) if op.is_refused => format!("{end} (refused)"),
                    (NEVER, end) => format!("{end} (unknown)"),
                    (acked, _) => format!("{acked}"),
                };
                let (kind, host, begun) = (op.kind, op.host, op.invoked);
                let (first, blocks) = (op.first, op.blocks);
                let _ = writeln!(
                    text,
                    "  {value}: host {host} {kind:?} {first}+{blocks} from {begun} to {end}"
                );
            }
        }
        Err(Violation(text))
    }
}

impl Default for Checker {
    fn default() -> Checker {
        Checker::new()
    }
}

fn whole(values: &[Value]) -> Vec<SeenBlock> {
    values
        .iter()
        .map(|&value| SeenBlock::Whole(value))
        .collect()
}
