//! Volumes that others are made of: which ranges of them are taken, and by which.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::problem::Problem;
use crate::{Range, Volume};

/// Everything, however large a volume becomes.
pub(crate) const WHOLE: Range = Range {
    offset: 0,
    len: u64::MAX,
};

/// What of a volume others are made of.
#[derive(Default)]
pub(crate) struct TakenRanges(Mutex<Vec<TakenRange>>);

struct TakenRange {
    /// That of the [`VolumePart`].
    number: u64,
    /// The name of the volume that is made of it.
    owner: String,
    range: Range,
    /// The owner relies on the size.
    keeps_size: bool,
}

impl TakenRanges {
    fn ranges(&self) -> MutexGuard<'_, Vec<TakenRange>> {
        self.0.lock().expect("nothing panics under this lock")
    }

    /// The name of a volume that is made of it.
    pub(crate) fn owner(&self) -> Option<String> {
        self.ranges().first().map(|taken| taken.owner.clone())
    }

    /// The name of a volume that keeps it from taking another size.
    pub(crate) fn keeps_from(&self, from: u64, to: u64) -> Option<String> {
        let is_missed = |taken: &&TakenRange| {
            let end = taken.range.offset.saturating_add(taken.range.len);
            taken.keeps_size || (to < from && end > to)
        };
        let ranges = self.ranges();
        ranges
            .iter()
            .find(is_missed)
            .map(|taken| taken.owner.clone())
    }

    /// Takes a range, in place of what its part has. The error names the volume that has
    /// some of it.
    fn take(&self, new: TakenRange) -> Result<(), String> {
        let end = |range: Range| range.offset.saturating_add(range.len);
        let mut ranges = self.ranges();
        let meets = |other: &&TakenRange| {
            other.number != new.number
                && other.range.offset < end(new.range)
                && new.range.offset < end(other.range)
        };
        if let Some(other) = ranges.iter().find(meets) {
            return Err(other.owner.clone());
        }
        ranges.retain(|own| own.number != new.number);
        ranges.push(new);
        Ok(())
    }
}

/// A volume that another one is made of, or a range of it. Nothing else may be made of that
/// until this is dropped.
pub(crate) struct VolumePart {
    volume: Arc<dyn Volume>,
    /// Which of all parts that there ever were.
    number: u64,
    owner: String,
    keeps_size: bool,
}

impl VolumePart {
    /// Takes `range` of a volume for the volume `owner`. Where that `keeps_size`, the volume
    /// cannot be resized meanwhile.
    pub(crate) fn take(
        volume: Arc<dyn Volume>,
        owner: &str,
        range: Range,
        keeps_size: bool,
    ) -> Result<VolumePart, Problem> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let taken = volume.base().taken.take(TakenRange {
            number,
            owner: owner.to_owned(),
            range,
            keeps_size,
        });
        match taken {
            Ok(()) => Ok(VolumePart {
                volume,
                number,
                owner: owner.to_owned(),
                keeps_size,
            }),
            Err(owner) => Err(Problem::PartTaken {
                part: volume.info().name.clone(),
                owner,
            }),
        }
    }

    /// Takes another range instead; the error names the volume that has some of it.
    pub(crate) fn retake(&self, range: Range) -> Result<(), String> {
        self.volume.base().taken.take(TakenRange {
            number: self.number,
            owner: self.owner.clone(),
            range,
            keeps_size: self.keeps_size,
        })
    }

    pub(crate) fn volume(&self) -> &Arc<dyn Volume> {
        &self.volume
    }
}

impl Drop for VolumePart {
    fn drop(&mut self) {
        let mut ranges = self.volume.base().taken.ranges();
        ranges.retain(|taken| taken.number != self.number);
    }
}
