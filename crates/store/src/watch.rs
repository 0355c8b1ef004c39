//! Whether ranges of a volume have changed since a look at them began. What writes to a volume
//! that is not looked at loads one flag.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use machine::work;

use crate::Range;

/// Ranges of a volume that are looked at, as long as this lives.
#[derive(Debug)]
pub struct Watch {
    ranges: Vec<Range>,
    has_changed: AtomicBool,
}

impl Watch {
    /// Whether something has begun to change them. Where it has not, what was read of them
    /// before is what they held when the look began.
    pub fn has_changed(&self) -> bool {
        self.has_changed.load(Ordering::Acquire)
    }
}

/// Those of one volume.
#[derive(Default)]
pub(crate) struct Watches {
    any: AtomicBool,
    all: Mutex<Vec<Weak<Watch>>>,
}

impl Watches {
    /// Begins to look at ranges.
    pub(crate) fn add(&self, ranges: Vec<Range>) -> Arc<Watch> {
        let watch = Arc::new(Watch {
            ranges,
            has_changed: AtomicBool::new(false),
        });
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|watch| watch.strong_count() > 0);
        all.push(Arc::downgrade(&watch));
        self.any.store(true, Ordering::SeqCst);
        watch
    }

    /// A range is about to change.
    #[inline]
    pub(crate) fn changes(&self, offset: u64, len: u64) {
        if self.any.load(Ordering::Acquire) {
            self.tell(offset, len);
        }
    }

    #[cold]
    fn tell(&self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let overlaps = |range: &Range| {
            let start = offset.max(range.offset);
            start < end.min(range.offset.saturating_add(range.len))
        };
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|watch| {
            let Some(watch) = watch.upgrade() else {
                return false;
            };
            work::spend(watch.ranges.len() as u64);
            let is_hit = watch.ranges.iter().any(overlaps);
            if is_hit {
                watch.has_changed.store(true, Ordering::Release);
            }
            !is_hit
        });
        self.any.store(!all.is_empty(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_change_are_told_once_and_no_others() {
        let watches = Watches::default();
        let range = |offset, len| Range { offset, len };
        let both = watches.add(vec![range(0, 10), range(100, 10)]);
        let other = watches.add(vec![range(10, 10)]);
        watches.changes(20, 80);
        watches.changes(5, 0);
        assert!(!both.has_changed() && !other.has_changed());
        watches.changes(109, u64::MAX);
        assert!(both.has_changed() && !other.has_changed());
        watches.changes(0, 11);
        assert!(other.has_changed());
        assert!(
            !watches.any.load(Ordering::Relaxed),
            "no more are looked at"
        );
        drop(watches.add(vec![range(0, 1)]));
        watches.changes(0, 1);
        assert!(!watches.any.load(Ordering::Relaxed));
    }
}
