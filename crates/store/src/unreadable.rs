//! Ranges that hosts have marked as unreadable.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::Range;

/// Ranges at most. To keep more, marks are refused, and a write in the middle
/// of a range frees the rest of it: those blocks hold what they held before.
pub(crate) const RANGES_MAX: usize = 1 << 16;

/// Ranges that may not be read. One load tells that there are none.
#[derive(Default)]
pub(crate) struct Unreadable {
    any: AtomicBool,
    /// From first byte to end; apart from each other.
    ranges: Mutex<BTreeMap<u64, u64>>,
}

impl Unreadable {
    fn ranges(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.ranges.lock().expect("nothing panics under this lock")
    }

    /// Whether a byte of the range is marked.
    #[inline]
    pub(crate) fn overlaps(&self, offset: u64, len: u64) -> bool {
        self.any.load(Ordering::Acquire) && self.find(offset, len)
    }

    #[cold]
    fn find(&self, offset: u64, len: u64) -> bool {
        let ranges = self.ranges();
        let before_end = ranges.range(..offset.saturating_add(len)).next_back();
        len > 0 && before_end.is_some_and(|(_, &end)| end > offset)
    }

    /// Marks a range; whether that changes anything.
    pub(crate) fn add(&self, offset: u64, len: u64) -> bool {
        if len == 0 {
            return false;
        }
        let added = insert(&mut self.ranges(), offset, offset + len);
        self.any.store(true, Ordering::Release);
        added
    }

    /// Makes the marks in `within` those that `marks` has there, in one step to
    /// all others; whether that changes anything.
    pub(crate) fn restore(&self, within: Range, marks: &[Range]) -> bool {
        let to = within.offset.saturating_add(within.len);
        let mut ranges = self.ranges();
        let before = ranges.clone();
        remove(&mut ranges, within.offset, to);
        for mark in marks {
            let from = mark.offset.max(within.offset);
            let to = mark.offset.saturating_add(mark.len).min(to);
            if from < to {
                insert(&mut ranges, from, to);
            }
        }
        self.any.store(!ranges.is_empty(), Ordering::Release);
        *ranges != before
    }

    /// Whether it takes no more.
    pub(crate) fn is_full(&self) -> bool {
        self.any.load(Ordering::Acquire) && self.ranges().len() >= RANGES_MAX
    }

    /// Makes a range readable; whether that changes anything.
    #[inline]
    pub(crate) fn clear(&self, offset: u64, len: u64) -> bool {
        self.any.load(Ordering::Acquire) && self.cut(offset, len)
    }

    #[cold]
    fn cut(&self, offset: u64, len: u64) -> bool {
        let mut ranges = self.ranges();
        let changed = remove(&mut ranges, offset, offset.saturating_add(len));
        self.any.store(!ranges.is_empty(), Ordering::Release);
        changed
    }

    /// The marked parts of a range, in order, `max` at most.
    pub(crate) fn list(&self, offset: u64, len: u64, max: usize) -> Vec<Range> {
        let to = offset.saturating_add(len);
        let ranges = self.ranges();
        let before = ranges.range(..offset).next_back();
        let first = before.filter(|(_, end)| **end > offset);
        let parts = first.into_iter().chain(ranges.range(offset..to));
        let parts = parts.map(|(&start, &end)| Range {
            offset: start.max(offset),
            len: end.min(to) - start.max(offset),
        });
        parts.take(max).collect()
    }
}

/// Marks from `from` to `to`; those that touch it become one with it. Whether
/// that changes anything.
fn insert(ranges: &mut BTreeMap<u64, u64>, mut from: u64, mut to: u64) -> bool {
    while let Some((&start, &end)) = ranges.range(..=to).next_back()
        && end >= from
    {
        if start <= from && end >= to {
            return false;
        }
        ranges.remove(&start);
        (from, to) = (from.min(start), to.max(end));
    }
    ranges.insert(from, to);
    true
}

/// Takes the marks from `from` to `to` away; whether that changes anything.
fn remove(ranges: &mut BTreeMap<u64, u64>, from: u64, to: u64) -> bool {
    let mut changed = false;
    while let Some((&start, &end)) = ranges.range(..to).next_back()
        && end > from
        && to > from
    {
        changed = true;
        ranges.remove(&start);
        if start < from {
            ranges.insert(start, from);
        }
        if end > to && ranges.len() < RANGES_MAX {
            ranges.insert(to, end);
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SPACE: u64 = 64;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn marks_of_every_byte_are_those_of_the_last_change(
            acts in prop::collection::vec((any::<bool>(), 0..SPACE, 0..20u64), 1..40),
        ) {
            let marks = Unreadable::default();
            let mut model = [false; SPACE as usize + 20];
            for (mark, offset, len) in acts {
                let part = &mut model[offset as usize..(offset + len) as usize];
                let changes = part.iter().any(|&byte| byte != mark);
                part.fill(mark);
                let changed = match mark {
                    true => marks.add(offset, len),
                    false => marks.clear(offset, len),
                };
                prop_assert_eq!(changed, changes);
                for (at, &byte) in model.iter().enumerate() {
                    prop_assert_eq!(marks.overlaps(at as u64, 1), byte, "{}", at);
                }
                prop_assert_eq!(marks.any.load(Ordering::Relaxed), model.contains(&true));
                // Parts in order, apart, and cut to what was asked for.
                let (from, to) = (5, 60);
                let mut listed = [false; SPACE as usize + 20];
                let mut end = 0;
                for Range { offset, len } in marks.list(from, to - from, usize::MAX) {
                    prop_assert!(len > 0 && (offset > end || end == 0 && offset >= from));
                    end = offset + len;
                    listed[offset as usize..end as usize].fill(true);
                }
                prop_assert_eq!(&listed[5..60], &model[5..60]);
                prop_assert!(!listed[..5].contains(&true) && !listed[60..].contains(&true));
                prop_assert!(marks.list(0, SPACE, 1).len() <= 1);
            }
        }
    }

    #[test]
    fn empty_range_marks_nothing_and_the_largest_does_not_overflow() {
        let marks = Unreadable::default();
        assert!(!marks.add(5, 0));
        assert!(marks.add(5, 5));
        assert!(!marks.overlaps(7, 0));
        assert!(marks.overlaps(0, u64::MAX));
        assert!(!marks.clear(7, 0));
        assert!(marks.clear(7, u64::MAX));
        assert_eq!(marks.list(0, u64::MAX, 9), [Range { offset: 5, len: 2 }]);
    }

    /// What only touches the range is no part of it.
    #[test]
    fn neighbours_of_what_is_restored_change_nothing() {
        let marks = Unreadable::default();
        let range = |offset, len| Range { offset, len };
        let neighbours = [range(0, 512), range(1024, 512)];
        assert!(!marks.restore(range(512, 512), &neighbours));
        assert_eq!(marks.list(0, u64::MAX, 9), []);
        assert!(!marks.overlaps(0, u64::MAX));
    }

    #[test]
    fn the_number_of_ranges_is_bounded() {
        let marks = Unreadable::default();
        marks.add(0, 1 << 40);
        for n in 1..RANGES_MAX as u64 + 100 {
            assert_eq!(marks.is_full(), n > RANGES_MAX as u64 - 1);
            marks.clear(n * 10, 1);
        }
        assert_eq!(marks.list(0, u64::MAX, usize::MAX).len(), RANGES_MAX);
        assert!(marks.overlaps(1, 1));
    }
}
