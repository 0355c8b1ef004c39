//! One block: its clusters and what is known of their order.

use std::fmt;

use super::{Checker, NEVER, OpKind, SeenBlock, Stamp, Value, Verdict, Violation, ZEROS};

/// The cluster of what the block held when its epoch began.
pub(super) const BEFORE: Value = Value::MAX;

/// All operations that made or saw one value.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    pub(super) value: Value,
    /// The first end of one of them.
    pub(super) first_end: Stamp,
    /// The last beginning.
    pub(super) last_begin: Stamp,
    /// The compare-and-write that replaced it.
    replaced_by: Option<Value>,
}

impl Cluster {
    /// Whether it surely lies before `other`.
    pub(super) fn is_before(&self, other: &Cluster) -> bool {
        self.first_end < other.last_begin
    }
}

/// What the block may have held when its epoch began.
#[derive(Clone, Debug)]
pub(super) struct Initial {
    pub(super) values: Vec<Value>,
    /// Any mixture of those, sector by sector.
    pub(super) may_be_torn: bool,
    /// What a read has found it to be.
    pub(super) found: Option<SeenBlock>,
}

/// One block of a volume. An epoch ends where content may go back to older
/// content: with a power cut.
pub(super) struct CheckedBlock {
    pub(super) initial: Initial,
    /// The first is that of [`BEFORE`].
    pub(super) clusters: Vec<Cluster>,
    /// Everything begun in this epoch that may change the block.
    pub(super) writers: Vec<Value>,
    /// Pairs of values of which the first surely comes first.
    order: Vec<(Value, Value)>,
    /// Pairs of values with nothing between them.
    adjacent: Vec<(Value, Value)>,
}

impl CheckedBlock {
    pub(super) fn zero() -> CheckedBlock {
        CheckedBlock::new(0, vec![ZEROS], false)
    }

    /// A block whose epoch begins now.
    pub(super) fn new(epoch: Stamp, values: Vec<Value>, may_be_torn: bool) -> CheckedBlock {
        let found = match values[..] {
            [value] => Some(SeenBlock::Whole(value)),
            _ => None,
        };
        CheckedBlock {
            initial: Initial {
                values,
                may_be_torn,
                found,
            },
            clusters: vec![Cluster {
                value: BEFORE,
                first_end: epoch,
                last_begin: epoch,
                replaced_by: None,
            }],
            writers: Vec::new(),
            order: Vec::new(),
            adjacent: Vec::new(),
        }
    }

    pub(super) fn epoch(&self) -> Stamp {
        self.clusters[0].first_end
    }

    pub(super) fn has(&self, value: Value) -> bool {
        self.cluster(value).is_some()
    }

    pub(super) fn cluster(&self, value: Value) -> Option<&Cluster> {
        self.clusters.iter().find(|cluster| cluster.value == value)
    }

    /// Notes that `new` took the place of `old` in one step; what else did.
    pub(super) fn replace(&mut self, old: Value, new: Value) -> Option<Value> {
        self.adjacent.push((old, new));
        let mut clusters = self.clusters.iter_mut();
        let cluster = clusters.find(|cluster| cluster.value == old)?;
        cluster.replaced_by.replace(new)
    }

    /// Whether the block held `value` from `begin` to `end`, as far as is known.
    pub(super) fn held(&self, value: Value, begin: Stamp, end: Stamp) -> bool {
        if value == ZEROS {
            return false;
        }
        let is_initial = self.initial.found == Some(SeenBlock::Whole(value));
        let cluster = self.cluster(if is_initial { BEFORE } else { value });
        cluster.is_some_and(|c| c.first_end < begin && end < c.last_begin)
    }

    /// What contradicts what is known of `value` now.
    fn contradiction(&self, value: Value) -> Option<String> {
        let this = self.cluster(value)?;
        let clash = self
            .clusters
            .iter()
            .find(|other| other.value != value && this.is_before(other) && other.is_before(this));
        if let Some(other) = clash {
            let other = ValueName(other.value);
            return Some(format!(
                "{} and {other} each lie before the other",
                ValueName(value)
            ));
        }
        for &(first, then) in &self.order {
            if let (Some(a), Some(b)) = (self.cluster(first), self.cluster(then))
                && b.is_before(a)
            {
                let (first, then) = (ValueName(first), ValueName(then));
                return Some(format!("{first} comes before {then} and after it"));
            }
        }
        for &(first, then) in &self.adjacent {
            let (Some(a), Some(b)) = (self.cluster(first), self.cluster(then)) else {
                continue;
            };
            let between = self
                .clusters
                .iter()
                .find(|c| c.value != first && c.value != then && a.is_before(c) && c.is_before(b));
            if let Some(between) = between {
                let (first, then) = (ValueName(first), ValueName(then));
                let between = ValueName(between.value);
                return Some(format!(
                    "{between} lies between {first} and {then}, one step"
                ));
            }
        }
        None
    }
}

impl Checker {
    /// An operation from `begin` to `end` made or saw `value` in a block.
    pub(super) fn touch(
        &mut self,
        volume: usize,
        at: u64,
        value: Value,
        end: Stamp,
        begin: Stamp,
    ) -> Verdict {
        let op = match value {
            BEFORE => None,
            value => Some(&self.ops[value as usize]),
        };
        let block = &mut self.volumes[volume].blocks[at as usize];
        if op.is_some_and(|op| op.is_refused) {
            return self.fault(
                volume,
                at,
                &format!("write {value} was refused, yet it is there"),
            );
        }
        let found = block.clusters.iter_mut().find(|c| c.value == value);
        match found {
            Some(cluster) => {
                cluster.first_end = cluster.first_end.min(end);
                cluster.last_begin = cluster.last_begin.max(begin);
            }
            None => {
                let op = op.expect("what was there before has its cluster");
                block.clusters.push(Cluster {
                    value,
                    first_end: end.min(op.end),
                    last_begin: begin.max(op.invoked),
                    replaced_by: None,
                });
            }
        }
        match block.contradiction(value) {
            Some(what) => self.fault(volume, at, &what),
            None => Ok(()),
        }
    }

    /// In this block `first` comes before `then`.
    pub(super) fn order(&mut self, volume: usize, at: u64, first: Value, then: Value) -> Verdict {
        let block = &mut self.volumes[volume].blocks[at as usize];
        if block.order.contains(&(first, then)) {
            return Ok(());
        }
        block.order.push((first, then));
        match block.contradiction(then) {
            Some(what) => self.fault(volume, at, &what),
            None => Ok(()),
        }
    }

    /// To which cluster belongs what a read from `begin` to `end` found.
    /// `None`: to one of several that left zeros.
    pub(super) fn resolve(
        &mut self,
        volume: usize,
        at: u64,
        seen: &SeenBlock,
        end: Stamp,
        begin: Stamp,
    ) -> Result<Option<Value>, Violation> {
        let block = &self.volumes[volume].blocks[at as usize];
        if begin < block.epoch() && *seen != SeenBlock::Garbage {
            // An answer that was long under way: it may tell of the last epoch.
            return Ok(None);
        }
        let value = match *seen {
            SeenBlock::Garbage => {
                self.fault(volume, at, "bytes that were never written there")?;
                return Ok(None);
            }
            SeenBlock::Whole(ZEROS) => {
                let writers = self.zero_writers(volume, at, begin);
                match writers[..] {
                    [] => {
                        self.fault(volume, at, "zeros that nothing explains")?;
                        return Ok(None);
                    }
                    [one] => one,
                    _ => return Ok(None),
                }
            }
            SeenBlock::Whole(value) => {
                let op = self.ops.get(value as usize);
                match op.filter(|op| op.covers(volume, at) && op.kind.writes()) {
                    None => {
                        self.fault(
                            volume,
                            at,
                            &format!("content of write {value}, not of here"),
                        )?;
                        return Ok(None);
                    }
                    Some(op) if op.invoked < block.epoch() && !block.writers.contains(&value) => {
                        BEFORE
                    }
                    Some(_) => value,
                }
            }
            SeenBlock::Torn(_) => BEFORE,
        };
        if value == BEFORE {
            let block = &mut self.volumes[volume].blocks[at as usize];
            let admitted = block.initial.admits(seen);
            block.initial.found = Some(seen.clone());
            if !admitted {
                let what = format!("{seen:?} cannot be what was left of the last epoch");
                self.fault(volume, at, &what)?;
            }
        }
        self.touch(volume, at, value, end, begin)?;
        Ok(Some(value))
    }

    /// What may have left the zeros that a read from `begin` on found.
    fn zero_writers(&self, volume: usize, at: u64, begin: Stamp) -> Vec<Value> {
        let block = &self.volumes[volume].blocks[at as usize];
        let gone_before = |first_end: Stamp| {
            let mut others = block.clusters.iter();
            others.any(|c| {
                let is_zero = c.value == BEFORE || self.ops[c.value as usize].kind.leaves_zeros();
                !is_zero && first_end < c.last_begin && c.first_end < begin
            })
        };
        let mut found = Vec::new();
        if block.initial.admits(&SeenBlock::Whole(ZEROS)) && !gone_before(block.epoch()) {
            found.push(BEFORE);
        }
        for &value in &block.writers {
            let op = &self.ops[value as usize];
            if op.kind.leaves_zeros() && !op.is_refused {
                let end = block.cluster(value).map_or(op.end, |c| c.first_end);
                if !gone_before(end) {
                    found.push(value);
                }
            }
        }
        found
    }

    /// Whether a block that an operation covers may be unreadable, because a
    /// host has made it so and nothing has surely replaced that.
    pub fn may_be_spoiled(&self, value: Value) -> bool {
        let op = self.op(value);
        let blocks = self.volumes[op.volume].blocks.iter();
        let mut blocks = blocks.skip(op.first as usize).take(op.blocks as usize);
        op.met_spoiled || blocks.any(|block| self.is_spoiled(block, op.invoked))
    }

    fn is_spoiled(&self, block: &CheckedBlock, begin: Stamp) -> bool {
        let spoils = |value: Value| self.op(value).kind == OpKind::Spoil;
        let replaced = |first_end: Stamp| {
            let mut others = block.clusters.iter();
            others.any(|c| {
                let is_other = c.value != BEFORE && !spoils(c.value);
                is_other && first_end < c.last_begin && c.first_end < begin
            })
        };
        let was = block.initial.values.iter().any(|&value| spoils(value));
        let mut since = block.writers.iter().filter(|&&value| spoils(value));
        was && !replaced(block.epoch())
            || since.any(|&value| {
                let op = self.op(value);
                let end = block.cluster(value).map_or(op.end, |c| c.first_end);
                !op.is_refused && !replaced(end)
            })
    }

    /// A block of a volume was changed on the disk.
    pub fn damaged(&mut self, volume: usize, block: u64) {
        self.volumes[volume].damaged.insert(block);
    }

    /// Whether a block may have another checksum than what it holds, whatever was written since.
    pub fn was_damaged(&self, volume: usize, block: u64) -> bool {
        let volume = &self.volumes[volume];
        let mut torn = volume.blocks.get(block as usize).into_iter();
        volume.damaged.contains(&block) || torn.any(|block| block.initial.may_be_torn)
    }

    /// The same of any block of a volume.
    pub fn has_damage(&self, volume: usize) -> bool {
        let mut blocks = 0..self.volumes[volume].blocks.len() as u64;
        blocks.any(|block| self.was_damaged(volume, block))
    }

    /// Whether a block that an operation covers may have another checksum than what it holds:
    /// it was changed on the disk, or torn by a power cut and not surely replaced.
    pub fn may_be_damaged(&self, value: Value) -> bool {
        let op = self.op(value);
        let volume = &self.volumes[op.volume];
        let mut blocks = op.first..op.first + op.blocks;
        op.met_damaged
            || blocks.any(|at| {
                let is_torn = volume.blocks.get(at as usize).is_some_and(|block| {
                    let mut others = block.clusters.iter().filter(|c| c.value != BEFORE);
                    let is_replaced =
                        others.any(|c| block.epoch() < c.last_begin && c.first_end < op.invoked);
                    block.initial.may_be_torn && block.initial.found.is_none() && !is_replaced
                });
                is_torn || volume.damaged.contains(&at)
            })
    }

    /// Whether `value` cannot be lost any more: it was acknowledged with FUA or
    /// before a flush.
    pub(super) fn is_durable(&self, volume: usize, value: Value) -> bool {
        if value == BEFORE {
            return false;
        }
        let op = &self.ops[value as usize];
        let flushed = op.acked < self.volumes[volume].flushed_before;
        op.kind != OpKind::Trim && op.acked != NEVER && (op.kind.is_durable() || flushed)
    }
}

impl Initial {
    /// Whether this may be what was there when the epoch began.
    fn admits(&self, seen: &SeenBlock) -> bool {
        if let Some(found) = &self.found {
            return found == seen;
        }
        match seen {
            SeenBlock::Whole(value) => self.values.contains(value),
            SeenBlock::Torn(values) => {
                self.may_be_torn && values.iter().all(|value| self.values.contains(value))
            }
            SeenBlock::Garbage => false,
        }
    }
}

/// A value in words.
struct ValueName(Value);

impl fmt::Display for ValueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            BEFORE => f.write_str("what was there before"),
            value => write!(f, "write {value}"),
        }
    }
}

impl fmt::Display for CheckedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (epoch, initial) = (self.epoch(), &self.initial);
        writeln!(f, "  epoch since {epoch}, began with {initial:?}")?;
        for c in &self.clusters {
            let (first_end, last_begin) = (c.first_end, c.last_begin);
            writeln!(
                f,
                "  {}: first end {first_end}, last beginning {last_begin}",
                ValueName(c.value)
            )?;
        }
        Ok(())
    }
}
