//! What volumes of every kind have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use faults::Fault;
use mem::BufRange;
use rustix::io::Errno;

use crate::kept::KeptMarks;
use crate::meter::IoMeters;
use crate::parts::TakenRanges;
use crate::stats::Counters;
use crate::watch::{Watch, Watches};
use crate::{Error, Info, Io, Progress, Range, Space, State};

/// How full, in percent, what is below a thin volume is when that is told.
const SPACE_LEVELS: [u8; 3] = [80, 90, 95];
/// By so much what is taken goes back below a level that is told again later.
const LEVEL_BACK_PERCENT: u8 = 2;

/// What volumes of every kind have in common: what they are, how large, their
/// counters, and the ranges that may not be read.
pub struct Base {
    pub(crate) info: Info,
    size_bytes: AtomicU64,
    /// What it took of what is below it when that was looked at last.
    used_bytes: AtomicU64,
    /// How full that was then.
    taken_percent: AtomicU8,
    /// The last of [`SPACE_LEVELS`] that was told; 0 for none.
    told_level: AtomicU8,
    is_looking: AtomicBool,
    pub(crate) counters: Counters,
    meters: IoMeters,
    kept: Arc<KeptMarks>,
    watches: Arc<Watches>,
    /// What of it other volumes are made of.
    pub(crate) taken: Arc<TakenRanges>,
    /// Low bits of tokens that its I/Os need, see [`crate::LEG_BITS`].
    pub(crate) leg_bits: u32,
    /// What was written is there when it is opened again.
    pub(crate) outlasts_process: bool,
    /// Some of its I/Os wait for something, however short they are.
    pub(crate) takes_time: bool,
}

impl Base {
    /// Of a volume with `size_bytes`, all of it readable.
    pub fn new(info: Info, size_bytes: u64) -> Base {
        Base {
            outlasts_process: info.volatile_cache,
            takes_time: info.volatile_cache,
            info,
            size_bytes: AtomicU64::new(size_bytes),
            used_bytes: AtomicU64::new(0),
            taken_percent: AtomicU8::new(0),
            told_level: AtomicU8::new(0),
            is_looking: AtomicBool::new(false),
            counters: Counters::default(),
            meters: IoMeters::default(),
            kept: Arc::new(KeptMarks::new(State::volatile())),
            watches: Arc::default(),
            taken: Arc::default(),
            leg_bits: 0,
        }
    }

    /// Of a volume that is made of others, at which its I/Os need so many low bits of
    /// tokens; whether all of those outlast the process.
    pub(crate) fn over(info: Info, size_bytes: u64, leg_bits: u32, outlasts: bool) -> Base {
        Base {
            counters: Counters::of_volume_over_others(),
            leg_bits,
            outlasts_process: outlasts,
            takes_time: true,
            ..Base::new(info, size_bytes)
        }
    }

    /// Of a volume that is another one to hosts, with all that this remembers beside its data,
    /// and what is made of it: the I/Os of both are counted apart.
    pub(crate) fn around(below: &Base) -> Base {
        Base {
            kept: Arc::clone(&below.kept),
            watches: Arc::clone(&below.watches),
            taken: Arc::clone(&below.taken),
            ..Base::over(
                below.info.clone(),
                below.size_bytes(),
                below.leg_bits,
                below.outlasts_process,
            )
        }
    }

    /// The same with what it remembers beside its data.
    pub fn with_state(self, state: State) -> Base {
        let kept = Arc::new(KeptMarks::new(state));
        Base { kept, ..self }
    }

    /// The same, where what was marked unreadable still is: of a volume whose
    /// data outlasts the process.
    pub(crate) fn with_marks(self) -> Base {
        self.kept.load();
        self
    }

    /// What it remembers beside its data.
    #[inline]
    pub fn state(&self) -> &State {
        &self.kept.state
    }

    /// What came to it, by protocol.
    #[inline]
    pub fn meters(&self) -> &IoMeters {
        &self.meters
    }

    /// The name of a volume that is made of it, or of a range of it: hosts are served that
    /// one.
    pub fn owner(&self) -> Option<String> {
        self.taken.owner()
    }

    /// What the volume is.
    #[inline]
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Its capacity now.
    #[inline]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    /// Bytes that a volume took of what is below it at the last
    /// [`Volume::look_at_space`](crate::Volume::look_at_space).
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// How full what is below it was then, in percent, rounded up; 0 where that is not known.
    pub fn taken_percent(&self) -> u8 {
        self.taken_percent.load(Ordering::Relaxed)
    }

    /// What was found below it; where nothing is known it takes as much as it holds.
    pub(crate) fn set_space(&self, space: Option<Space>) {
        let used_bytes = space.map_or(self.size_bytes(), |space| space.used_bytes);
        let taken_percent = space.map_or(0, |space| space.taken_percent());
        self.used_bytes.store(used_bytes, Ordering::Relaxed);
        self.taken_percent.store(taken_percent, Ordering::Relaxed);
        self.is_looking.store(false, Ordering::Release);
    }

    /// The last of [`SPACE_LEVELS`] that is passed, if that has not been told. It is told again
    /// when clearly less was taken meanwhile.
    pub fn pass_level(&self) -> Option<u8> {
        let percent = self.taken_percent();
        let told = self.told_level.load(Ordering::Relaxed);
        let passed = SPACE_LEVELS.into_iter().rfind(|level| percent > *level);
        let is_new = passed.is_some_and(|level| level > told);
        if is_new || percent + LEVEL_BACK_PERCENT < told {
            self.told_level
                .store(passed.unwrap_or(0), Ordering::Relaxed);
        }
        passed.filter(|_| is_new)
    }

    /// Whether a look at the space may begin: there is one at a time, so that a file
    /// system that does not answer is not asked again.
    pub fn begin_look(&self) -> bool {
        !self.is_looking.swap(true, Ordering::Acquire)
    }

    /// Changes what [`Base::size_bytes`] says. What is marked unreadable behind
    /// a smaller size is forgotten.
    pub(crate) fn set_size(&self, size_bytes: u64) {
        self.changes(size_bytes, u64::MAX);
        self.show_size(size_bytes);
        self.kept
            .unreadable
            .clear(size_bytes, u64::MAX - size_bytes);
    }

    /// Changes what [`Base::size_bytes`] says, and nothing else.
    pub(crate) fn show_size(&self, size_bytes: u64) {
        self.size_bytes.store(size_bytes, Ordering::Release);
    }

    /// Whether the range lies inside the volume.
    #[inline]
    pub(crate) fn holds(&self, offset: u64, len: u64) -> bool {
        offset
            .checked_add(len)
            .is_some_and(|end| end <= self.size_bytes())
    }

    /// Whether the volume takes this I/O, and has the data that it needs.
    #[inline]
    pub(crate) fn check(&self, io: &Io) -> Result<(), Error> {
        let (offset, len) = io.extent();
        if !self.holds(offset, len) {
            return Err(Error::OutOfRange);
        }
        if !io.leaves_volume_unchanged() && self.refuses_writes() {
            return Err(Error::ReadOnly);
        }
        if io.needs_data() {
            self.check_readable(offset, len)?;
        }
        if matches!(io, Io::MarkUnreadable { .. }) && self.kept.unreadable.is_full() {
            return Err(Error::OutOfSpace(Errno::NOSPC));
        }
        if !io.leaves_volume_unchanged() {
            self.changes(offset, len);
        }
        Ok(())
    }

    /// Begins to look whether ranges change. A change that began before is told when it is over.
    pub fn watch(&self, ranges: Vec<Range>) -> Arc<Watch> {
        self.watches.add(ranges)
    }

    /// Those who look whether its ranges change.
    pub(crate) fn watches(&self) -> Arc<Watches> {
        Arc::clone(&self.watches)
    }

    /// A range is about to change, whatever changes it.
    #[inline]
    pub(crate) fn changes(&self, offset: u64, len: u64) {
        self.watches.changes(offset, len);
    }

    /// Refuses a range that is marked as unreadable, or has a part that is.
    #[inline]
    pub(crate) fn check_readable(&self, offset: u64, len: u64) -> Result<(), Error> {
        match self.kept.unreadable.overlaps(offset, len) {
            false => Ok(()),
            true => Err(Error::Unreadable),
        }
    }

    /// Whether a write there would be taken.
    #[inline]
    pub(crate) fn check_write(&self, offset: u64, len: u64) -> Result<(), Error> {
        if !self.holds(offset, len) {
            return Err(Error::OutOfRange);
        }
        if self.refuses_writes() {
            return Err(Error::ReadOnly);
        }
        self.changes(offset, len);
        Ok(())
    }

    /// Whether it was opened so, or protected for good since.
    #[inline]
    pub(crate) fn refuses_writes(&self) -> bool {
        self.info.read_only || self.kept.state.is_write_protected()
    }

    /// Forgets the marks on what a write has replaced.
    #[inline]
    pub(crate) fn heal(&self, offset: u64, len: u64) {
        self.kept.unreadable.clear(offset, len);
    }

    /// Whether an I/O takes a mark away that outlasts the process.
    #[inline]
    pub(crate) fn unmarks(&self, io: &Io) -> bool {
        let (offset, len) = io.extent();
        io.heals() && self.kept.unreadable.overlaps(offset, len) && self.kept.state.can_persist()
    }

    /// Keeps the marks in step with an I/O that has done its work; whether
    /// they changed.
    #[inline]
    pub(crate) fn mark(&self, io: &Io) -> bool {
        let (offset, len) = io.extent();
        match io {
            Io::MarkUnreadable { .. } if faults::is(Fault::ForgetMarks) => false,
            Io::MarkUnreadable { .. } => self.kept.unreadable.add(offset, len),
            _ if io.heals() => self.kept.unreadable.clear(offset, len),
            _ => false,
        }
    }

    /// The marked parts of a range, in order, `max` at most.
    pub(crate) fn unreadable(&self, offset: u64, len: u64, max: usize) -> Vec<Range> {
        self.kept.unreadable.list(offset, len, max)
    }

    /// What is saved beside the data.
    pub(crate) fn kept(&self) -> &Arc<KeptMarks> {
        &self.kept
    }

    /// Counts an I/O that is over. What has begun to look at its range meanwhile is told of it.
    #[inline]
    pub(crate) fn finish(&self, io: &Io, result: Result<(), Error>) -> Progress {
        if !io.leaves_volume_unchanged() {
            let (offset, len) = io.extent();
            self.changes(offset, len);
        }
        self.counters.count(io, &result);
        Progress::Done(result)
    }
}

/// Whether `data`, which should be there, is. Panics if the lengths differ.
pub(crate) fn compare(data: BufRange, stored: BufRange) -> Result<(), Error> {
    if mem::equal(data, stored) {
        return Ok(());
    }
    // The bytes may change meanwhile; what is told then is some byte of them.
    let (mut from, mut len) = (0, data.len());
    while len > 1 {
        let half = len / 2;
        if mem::equal(data.slice(from, half), stored.slice(from, half)) {
            from += half;
            len -= half;
        } else {
            len = half;
        }
    }
    Err(Error::Miscompare {
        offset: u64::from(from),
    })
}

#[cfg(test)]
mod tests {
    use mem::Region;

    use super::*;
    use crate::{Kind, Spec, open};

    #[test]
    fn the_first_byte_that_differs_is_named() {
        let region = Region::anonymous(2048).unwrap();
        let (a, b) = (region.range(0, 1000), region.range(1024, 1000));
        assert_eq!(compare(a, b), Ok(()));
        for offset in [0, 1, 499, 500, 998, 999] {
            mem::zero(b);
            mem::copy_in(
                b.slice(offset, 1000 - offset),
                &vec![1; 1000 - offset as usize],
            );
            let offset = u64::from(offset);
            assert_eq!(compare(a, b), Err(Error::Miscompare { offset }));
        }
        compare(a.slice(0, 0), b.slice(0, 0)).unwrap();
    }

    #[test]
    fn levels_of_space_are_told_once_and_again_when_clearly_less_was_taken() {
        let volume = open(&Spec::new("disk", Kind::RAM, 1 << 20, 512)).unwrap();
        let base = volume.base();
        let mut at = |taken: u64| {
            base.set_space(Some(Space {
                used_bytes: 7,
                available_bytes: 10_000 - taken,
                total_bytes: Some(10_000),
            }));
            base.pass_level()
        };
        let told = [0, 8000, 8001, 8100, 9500, 9501, 10_000].map(&mut at);
        assert_eq!(told, [None, None, Some(80), None, Some(90), Some(95), None]);
        // A little less is no less.
        assert_eq!([9400, 9600].map(&mut at), [None, None]);
        assert_eq!([9200, 9600].map(&mut at), [None, Some(95)]);
        assert_eq!([100, 9600].map(&mut at), [None, Some(95)]);
        base.set_space(None);
        assert_eq!((base.pass_level(), base.taken_percent()), (None, 0));
        assert_eq!(base.used_bytes(), 1 << 20, "as much as it holds");
    }
}
