//! Byte-range locks of one file, as POSIX has them (RFC 8881, section 9.3;
//! RFC 7530, section 9.3): a lock of an owner replaces what the owner has
//! there, unlocking part of one splits it, neighbours of one kind are one.

mod tree;

use std::collections::{BTreeMap, HashMap};

use machine::work;

use tree::LockTree;

/// The id of an owner that holds locks: unique in the server.
pub type LockOwner = u64;

/// Locks of one file at most.
pub(super) const LOCKS_MAX: usize = 16 * 1024;

/// Bytes from `start` to `end`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
}

impl Range {
    /// Every byte that there can be.
    pub(super) const ALL: Range = Range {
        start: 0,
        end: u64::MAX,
    };

    /// `length` bytes from `offset`, all ones for as many as there can be.
    /// `None` for none, or where the sum of both is no number any more.
    pub fn new(offset: u64, length: u64) -> Option<Range> {
        let end = match length {
            0 => return None,
            u64::MAX => u64::MAX,
            _ => offset.checked_add(length)? - 1,
        };
        Some(Range { start: offset, end })
    }

    /// How `length` says it; a range to the last byte has no end.
    pub fn length(self) -> u64 {
        match self.end {
            u64::MAX => u64::MAX,
            end => end - self.start + 1,
        }
    }

    pub(super) fn overlaps(self, other: Range) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// Whether one begins where the other ends, or they overlap.
    fn overlaps_or_adjoins(self, other: Range) -> bool {
        let after = |a: Range, b: Range| a.end.checked_add(1) == Some(b.start);
        self.overlaps(other) || after(self, other) || after(other, self)
    }
}

/// A lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// What it covers.
    pub range: Range,
    /// The owner that holds it.
    pub owner: LockOwner,
    /// A write lock.
    pub is_exclusive: bool,
}

impl Lock {
    fn is_in_the_way_of(&self, wanted: &Lock) -> bool {
        self.owner != wanted.owner
            && (self.is_exclusive || wanted.is_exclusive)
            && self.range.overlaps(wanted.range)
    }

    /// What is left of it, before and behind a range that it overlaps.
    fn without(&self, range: Range) -> impl Iterator<Item = Lock> + use<> {
        let Range { start, end } = self.range;
        let before = (start < range.start).then(|| (start, range.start - 1));
        let behind = (range.end < end).then(|| (range.end + 1, end));
        let lock = *self;
        [before, behind]
            .into_iter()
            .flatten()
            .map(move |(start, end)| Lock {
                range: Range { start, end },
                ..lock
            })
    }
}

/// No more locks fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The locks of one file. A conflict is found in a number of steps that grows with the
/// logarithm of how many there are.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    /// Of all owners.
    tree: LockTree,
    /// Of each owner that has any, by their first byte: they do not overlap.
    owned: HashMap<LockOwner, BTreeMap<u64, Lock>>,
}

impl Locks {
    /// A lock of another owner that keeps this one from being had.
    pub fn conflict(&self, wanted: &Lock) -> Option<&Lock> {
        self.tree.conflict(wanted)
    }

    /// Takes a lock that nothing conflicts with. Whether others may have what they could
    /// not have before: a write lock, or a part of one, has become a read lock.
    ///
    /// # Errors
    /// [`Full`]; nothing has changed then.
    pub fn lock(&mut self, wanted: Lock) -> Result<bool, Full> {
        debug_assert!(self.conflict(&wanted).is_none());
        let mut new = wanted;
        let (mut old, mut left) = (Vec::new(), Vec::new());
        for lock in self.touching(wanted.owner, wanted.range) {
            let is_alike = lock.is_exclusive == wanted.is_exclusive;
            if is_alike {
                new.range.start = new.range.start.min(lock.range.start);
                new.range.end = new.range.end.max(lock.range.end);
            } else if lock.range.overlaps(wanted.range) {
                left.extend(lock.without(wanted.range));
            } else {
                continue;
            }
            old.push(*lock);
        }
        let is_less = old.iter().any(|lock| lock.is_exclusive) && !wanted.is_exclusive;
        left.push(new);
        self.replace(wanted.owner, &old, &left)?;
        Ok(is_less)
    }

    /// Gives up what the owner has in a range; whether that was anything.
    ///
    /// # Errors
    /// [`Full`], where what is left are more locks; nothing has changed then.
    pub fn unlock(&mut self, owner: LockOwner, range: Range) -> Result<bool, Full> {
        let touching = self.touching(owner, range);
        let old: Vec<_> = touching
            .filter(|lock| lock.range.overlaps(range))
            .copied()
            .collect();
        let left: Vec<_> = old.iter().flat_map(|lock| lock.without(range)).collect();
        self.replace(owner, &old, &left)?;
        Ok(!old.is_empty())
    }

    /// Gives up all that an owner has; whether that was anything.
    pub fn unlock_all(&mut self, owner: LockOwner) -> bool {
        let owned = self.owned.remove(&owner).unwrap_or_default();
        let old: Vec<_> = owned.into_values().collect();
        self.tree.remove(&old);
        !old.is_empty()
    }

    /// Whether an owner has any.
    pub fn holds(&self, owner: LockOwner) -> bool {
        self.owned.contains_key(&owner)
    }

    /// All, in the order of their first byte.
    pub fn iter(&self) -> impl Iterator<Item = &Lock> {
        self.tree.iter()
    }

    /// What an owner has that overlaps a range or ends where it begins.
    fn touching(&self, owner: LockOwner, range: Range) -> impl Iterator<Item = &Lock> {
        let owned = self.owned.get(&owner).into_iter();
        owned.flat_map(move |owned| {
            let before = owned.range(..range.start).next_back();
            let within = owned.range(range.start..=range.end.saturating_add(1));
            let all = before.into_iter().chain(within).map(|(_, lock)| lock);
            all.inspect(|_| work::spend(1))
                .filter(move |lock| lock.range.overlaps_or_adjoins(range))
        })
    }

    /// Puts locks of an owner in place of others that it has.
    fn replace(&mut self, owner: LockOwner, old: &[Lock], new: &[Lock]) -> Result<(), Full> {
        let len = self.tree.len() - old.len() + new.len();
        if len > LOCKS_MAX {
            return Err(Full);
        }
        let owned = self.owned.entry(owner).or_default();
        for lock in old {
            owned.remove(&lock.range.start);
        }
        self.tree.remove(old);
        for lock in new {
            owned.insert(lock.range.start, *lock);
            self.tree.insert(*lock);
        }
        if owned.is_empty() {
            self.owned.remove(&owner);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The model's last byte, which is the last that there can be; the one before
    /// stands for all that lie between.
    const LAST: u64 = 25;

    fn first(byte: u64) -> u64 {
        match byte {
            LAST => u64::MAX,
            byte => byte,
        }
    }

    fn last(byte: u64) -> u64 {
        match byte + 1 {
            LAST => u64::MAX - 1,
            _ => first(byte),
        }
    }

    /// The owners that hold each byte, and whether exclusively.
    #[derive(Clone, Default)]
    struct Model(std::collections::BTreeMap<(u64, LockOwner), bool>);

    impl Model {
        fn bytes(range: Range) -> impl Iterator<Item = u64> {
            (0..=LAST).filter(move |&byte| range.start <= first(byte) && last(byte) <= range.end)
        }

        fn conflicts(&self, wanted: &Lock) -> bool {
            Model::bytes(wanted.range).any(|byte| {
                self.0.iter().any(|(&(at, owner), &is_exclusive)| {
                    at == byte && owner != wanted.owner && (is_exclusive || wanted.is_exclusive)
                })
            })
        }
    }

    fn range() -> impl Strategy<Value = Range> {
        (0..=LAST, 0..=LAST).prop_map(|(a, b)| Range {
            start: first(a.min(b)),
            end: last(a.max(b)),
        })
    }

    proptest! {
        #[test]
        fn locks_agree_with_a_model_of_each_byte(
            steps in proptest::collection::vec((range(), 0u64..3, 0u8..4), 1..60),
        ) {
            let mut locks = Locks::default();
            let mut model = Model::default();
            for (range, owner, what) in steps {
                if what == 3 {
                    locks.unlock(owner, range).unwrap();
                    Model::bytes(range).for_each(|byte| { model.0.remove(&(byte, owner)); });
                } else {
                    let lock = Lock { range, owner, is_exclusive: what == 0 };
                    let conflict = locks.conflict(&lock).copied();
                    prop_assert_eq!(conflict.is_some(), model.conflicts(&lock));
                    if conflict.is_none() {
                        locks.lock(lock).unwrap();
                        Model::bytes(range).for_each(|byte| {
                            model.0.insert((byte, owner), lock.is_exclusive);
                        });
                    }
                }
                locks.tree.check();
                let mut found = Model::default();
                let mut last = 0;
                for lock in locks.iter() {
                    prop_assert!(lock.range.start <= lock.range.end && last <= lock.range.start);
                    last = lock.range.start;
                    for byte in Model::bytes(lock.range) {
                        let before = found.0.insert((byte, lock.owner), lock.is_exclusive);
                        prop_assert!(before.is_none(), "one lock of an owner over a byte");
                    }
                }
                prop_assert_eq!(&found.0, &model.0);
                // Neighbours of one kind are one.
                let all: Vec<_> = locks.iter().collect();
                for (at, a) in all.iter().enumerate() {
                    for b in &all[at + 1..] {
                        let alike = a.owner == b.owner && a.is_exclusive == b.is_exclusive;
                        prop_assert!(!alike || !a.range.overlaps_or_adjoins(b.range));
                    }
                }
            }
        }
    }

    #[test]
    fn ranges_of_no_bytes_or_beyond_the_end_are_none() {
        assert_eq!(Range::new(5, 0), None);
        let (start, end) = (1, u64::MAX - 1);
        assert_eq!(Range::new(1, u64::MAX - 1), Some(Range { start, end }));
        assert_eq!(Range::new(2, u64::MAX - 1), None);
        let all = Range::new(7, u64::MAX).unwrap();
        assert_eq!((all.end, all.length()), (u64::MAX, u64::MAX));
        assert_eq!(Range::new(7, 3).unwrap().length(), 3);
    }

    #[test]
    fn locks_of_a_file_are_bounded() {
        let mut locks = Locks::default();
        let lock = |start, length, is_exclusive| Lock {
            range: Range::new(start, length).unwrap(),
            owner: 1,
            is_exclusive,
        };
        let wide = |at: u64| lock(at * 4, 3, true);
        let taken = (0u64..)
            .take_while(|&at| locks.lock(wide(at)).is_ok())
            .count();
        assert_eq!(taken, LOCKS_MAX);
        // What would be one more is refused, and changes nothing.
        let before = locks.clone();
        let split = Range::new(5, 1).unwrap();
        assert_eq!(locks.unlock(1, split), Err(Full));
        assert_eq!(locks.lock(lock(5, 1, false)), Err(Full));
        assert_eq!(locks.lock(lock(3, 2, false)), Err(Full));
        let other = Lock {
            owner: 2,
            ..wide(LOCKS_MAX as u64)
        };
        assert_eq!(locks.lock(other), Err(Full));
        assert!(locks.iter().eq(before.iter()));
        // What is not goes.
        assert_eq!(locks.lock(wide(7)), Ok(false));
        assert_eq!(locks.lock(lock(8, 3, false)), Ok(true));
        assert_eq!(locks.unlock(1, Range::new(4, 1).unwrap()), Ok(true));
        assert_eq!(
            locks.unlock(1, Range::new(LOCKS_MAX as u64 * 9, 5).unwrap()),
            Ok(false)
        );
        assert_eq!(locks.tree.len(), LOCKS_MAX);
        // Between two of a kind, all three become one.
        assert_eq!(locks.lock(lock(15, 1, true)), Ok(false));
        assert_eq!(locks.tree.len(), LOCKS_MAX - 1);
        assert_eq!(locks.unlock(1, Range::new(20, 3).unwrap()), Ok(true));
        assert_eq!(locks.lock(lock(25, 1, false)), Ok(true), "into three");
        assert_eq!(locks.tree.len(), LOCKS_MAX);
        assert_eq!(locks.unlock(1, Range::new(0, u64::MAX).unwrap()), Ok(true));
        assert!(locks.iter().next().is_none() && !locks.holds(1));
        locks.lock(wide(1)).unwrap();
        locks.unlock_all(1);
        assert!(locks.iter().next().is_none());
    }
}
