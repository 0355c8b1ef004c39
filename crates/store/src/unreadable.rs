//! Ranges that hosts have marked as unreadable.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::Range;

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
        let (mut from, mut to) = (offset, offset + len);
        let mut ranges = self.ranges();
        // Those that touch it become one with it.
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
        self.any.store(true, Ordering::Release);
        true
    }

    /// Makes a range readable; whether that changes anything.
    #[inline]
    pub(crate) fn clear(&self, offset: u64, len: u64) -> bool {
        self.any.load(Ordering::Acquire) && self.cut(offset, len)
    }

    #[cold]
    fn cut(&self, offset: u64, len: u64) -> bool {
        let to = offset.saturating_add(len);
        let mut ranges = self.ranges();
        let mut changed = false;
        while let Some((&start, &end)) = ranges.range(..to).next_back()
            && end > offset
            && len > 0
        {
            changed = true;
            ranges.remove(&start);
            if end > to {
                ranges.insert(to, end);
            }
            if start < offset {
                ranges.insert(start, offset);
            }
        }
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
