//! The memory behind frames: made once, kept until the last loan is over, then
//! used for other frames, so that volumes that come and go use up no addresses.

use std::io;
use std::iter;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, OnceLock};

use mem::sync::{AtomicI64, AtomicU32, AtomicU64};
use mem::{AtomicTable, BUF_BYTES_MAX, COLD_BYTES_MIN, Region};

use super::free::{Free, WORD_FRAMES};
use super::quota::Quota;
use super::reserve::Reserve;
use super::{FRAME_BYTES, FRAME_SHIFT, Frames, LentInner, Spare};

/// Frames are named by 31 bits.
const FRAMES_MAX: u64 = 1 << 31;
/// Beyond one frame for each part of the volume: an eighth more, within these
/// bounds. They take memory only as far as writes in flight and reads of what
/// was replaced use them.
const SPARE_BYTES_MIN: u64 = 128 << 20;
const SPARE_BYTES_MAX: u64 = 1 << 30;

/// From this size on the table lies in huge pages: each read looks at a random
/// word of it, and a missing address translation costs more than all the rest.
/// 2 MiB of table are then less than a hundredth of the volume.
const HUGE_TABLE_BYTES_MIN: u64 = 256 << 20;

static PARKED: Mutex<Parked> = Mutex::new(Parked {
    volumes: 0,
    newest: None,
    dying: Vec::new(),
    idle: Vec::new(),
});

/// The first that was made; each has the next one.
static FIRST: OnceLock<&'static LentInner> = OnceLock::new();

/// Taken where a volume is opened or dropped, and never by the thread of low
/// priority that touches memory: it might be given a core late.
pub(super) struct Parked {
    /// How many are used.
    volumes: usize,
    newest: Option<&'static LentInner>,
    /// Dropped, but something of it is still lent.
    dying: Vec<&'static LentInner>,
    /// Of no volume: zero, and without memory.
    idle: Vec<&'static LentInner>,
}

pub(super) fn parked() -> MutexGuard<'static, Parked> {
    PARKED.lock().expect("nothing panics under this lock")
}

fn zeros() -> io::Result<&'static Region> {
    static ZEROS: OnceLock<Region> = OnceLock::new();
    if let Some(zeros) = ZEROS.get() {
        return Ok(zeros);
    }
    // Never written: reading it maps the kernel's own zero page.
    let zeros = Region::anonymous(u64::from(BUF_BYTES_MAX))?;
    Ok(ZEROS.get_or_init(|| zeros))
}

/// Frames that loans may have pinned: less than the half of the spare that is
/// kept for writes to them, since copies pin for a moment too.
fn pins_max(spare: u32) -> i64 {
    i64::from(spare) * 3 / 8
}

/// Frames beyond one for each part.
fn spare_of(size_bytes: u64) -> u32 {
    let bytes = (size_bytes / 8).clamp(SPARE_BYTES_MIN, SPARE_BYTES_MAX);
    (bytes >> FRAME_SHIFT) as u32
}

fn parts_of(bytes: u64) -> u64 {
    bytes.div_ceil(u64::from(FRAME_BYTES))
}

/// Parts for which there is room: whole words of bits, so that what lies in
/// one run does not depend on how far a volume may grow.
fn parts_max_of(bytes: u64) -> u64 {
    parts_of(bytes).next_multiple_of(u64::from(WORD_FRAMES))
}

/// All that were ever made, used or not, without a lock.
pub(super) fn all() -> impl Iterator<Item = &'static LentInner> {
    iter::successors(FIRST.get(), |inner| inner.next.get()).copied()
}

impl Parked {
    /// Whatever has become quiet is idle.
    fn sweep(&mut self) {
        let quiet = self.dying.extract_if(.., |inner| inner.is_quiet());
        self.idle
            .extend(quiet.filter(|inner| inner.clear().is_ok()));
    }

    fn take(&mut self, parts_max: u64, spare: u32, is_cold: bool) -> Option<&'static LentInner> {
        self.sweep();
        let fits = |inner: &&LentInner| {
            // Far larger tables would be no bargain.
            let has = inner.parts_max();
            !inner.is_thin
                && has >= parts_max
                && has / 4 <= parts_max
                && inner.spare.max == i64::from(spare)
                && inner.data.is_cold() == is_cold
        };
        let found = self.idle.iter().position(fits)?;
        Some(self.idle.swap_remove(found))
    }
}

impl LentInner {
    /// Idle memory that fits, or new. Where the system grants no addresses for
    /// `max_bytes`, for `size_bytes` alone.
    pub(super) fn take(
        size_bytes: u64,
        max_bytes: u64,
        spare: Option<u32>,
    ) -> io::Result<&'static LentInner> {
        let spare = spare.unwrap_or_else(|| spare_of(size_bytes));
        let is_cold = size_bytes >= COLD_BYTES_MIN;
        let is_huge = size_bytes >= HUGE_TABLE_BYTES_MIN;
        let most = parts_max_of(max_bytes.max(size_bytes));
        let found = parked().take(most, spare, is_cold);
        let inner = match found {
            Some(inner) => inner,
            None => {
                let map = |parts| LentInner::map(parts, spare, is_cold, is_huge);
                let made = map(most).or_else(|_| map(parts_max_of(size_bytes)));
                LentInner::keep(made?)
            }
        };
        inner.begin(size_bytes);
        Ok(inner)
    }

    /// The same for a thin volume: parts for `address_bytes`, frames for
    /// `content_bytes`.
    pub(super) fn take_thin(
        address_bytes: u64,
        content_bytes: u64,
    ) -> io::Result<&'static LentInner> {
        let parts = parts_max_of(address_bytes);
        let spare = spare_of(content_bytes);
        let frames = parts_max_of(content_bytes);
        let same = |inner: &&LentInner| {
            inner.is_thin
                && inner.parts() == parts
                && inner.parts_max() == frames
                && inner.spare.max == i64::from(spare)
        };
        let found = {
            let mut parked = parked();
            parked.sweep();
            let found = parked.idle.iter().position(same);
            found.map(|found| parked.idle.swap_remove(found))
        };
        let inner = match found {
            Some(inner) => inner,
            None => {
                let is_cold = content_bytes >= COLD_BYTES_MIN;
                let is_huge = content_bytes >= HUGE_TABLE_BYTES_MIN;
                let words = AtomicTable::new(parts, is_huge)?;
                let made = LentInner::map_with(words, true, frames, spare, is_cold)?;
                LentInner::keep(made)
            }
        };
        inner.begin(frames << FRAME_SHIFT);
        inner.size_bytes.store(address_bytes, Ordering::Release);
        Ok(inner)
    }

    /// For ever, as one of all.
    fn keep(made: LentInner) -> &'static LentInner {
        let made: &'static LentInner = Box::leak(Box::new(made));
        let mut parked = parked();
        let newest = parked.newest.replace(made);
        let place = newest.map_or(&FIRST, |newest| &newest.next);
        assert!(place.set(made).is_ok(), "one comes after another");
        made
    }

    fn map(parts_max: u64, spare: u32, is_cold: bool, is_huge: bool) -> io::Result<LentInner> {
        let words = AtomicTable::new(parts_max, is_huge)?;
        LentInner::map_with(words, false, parts_max, spare, is_cold)
    }

    fn map_with(
        table: AtomicTable<AtomicU64>,
        is_thin: bool,
        parts_max: u64,
        spare: u32,
        is_cold: bool,
    ) -> io::Result<LentInner> {
        let frames = parts_max + u64::from(spare);
        if frames > FRAMES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(LentInner {
            data: Region::map(frames << FRAME_SHIFT, is_cold, true)?,
            zeros: zeros()?,
            words: table,
            is_thin,
            retired: AtomicTable::new(frames, false)?,
            free: Free::new(frames)?,
            reserve: Reserve::new(),
            size_bytes: AtomicU64::new(0),
            spare: Spare {
                left: AtomicI64::new(0),
                max: spare.into(),
            },
            pins: Quota::new(pins_max(spare)),
            holes: AtomicU32::new(0),
            withdrawn: Mutex::new(Vec::new()),
            next: OnceLock::new(),
        })
    }

    /// Starts a use: everything is zero.
    fn begin(&'static self, size_bytes: u64) {
        let (parts, parts_max) = (parts_of(size_bytes) as u32, self.parts_max() as u32);
        self.free.give_cold(0, parts);
        self.free.give_cold(parts_max, self.spare.max as u32);
        self.spare.left.store(self.spare.max, Ordering::Relaxed);
        self.pins.reset(pins_max(self.spare.max as u32));
        let mut withdrawn = self.withdrawn();
        withdrawn.clear();
        if parts < parts_max {
            withdrawn.push((parts, parts_max - parts));
        }
        drop(withdrawn);
        self.size_bytes.store(size_bytes, Ordering::Release);
        let mut parked = parked();
        parked.volumes += 1;
        let volumes = parked.volumes;
        drop(parked);
        self.start_reserve(volumes);
    }

    /// Ends a use. What could not be given back is never used again.
    fn clear(&self) -> io::Result<()> {
        self.words.clear()?;
        self.retired.clear()?;
        self.free.clear()?;
        self.data.discard(0, self.data.len())
    }

    pub(super) fn withdrawn(&self) -> MutexGuard<'_, Vec<(u32, u32)>> {
        self.withdrawn
            .lock()
            .expect("nothing panics under this lock")
    }

    /// Words of the table.
    fn parts(&self) -> u64 {
        self.words.all().len() as u64
    }

    /// Parts that the volume may have; of a thin one, those that may hold data
    /// at a time.
    pub(super) fn parts_max(&self) -> u64 {
        (self.data.len() >> FRAME_SHIFT) - self.spare.max as u64
    }

    /// Whether nothing of an emptied volume is lent, and no thread is still
    /// giving it back, the last of which is to set a frame's bit, or making
    /// some of it ready.
    fn is_quiet(&self) -> bool {
        if !self.reserve.is_over() {
            return false;
        }
        let withdrawn = self.withdrawn();
        let withdrawn: u64 = withdrawn.iter().map(|&(_, n)| u64::from(n)).sum();
        let frames = self.data.len() >> FRAME_SHIFT;
        withdrawn + self.free.count() == frames
    }
}

impl Drop for Frames {
    /// The content is gone but for what is lent: that stays as it is until the
    /// loans are over.
    fn drop(&mut self) {
        self.empty();
        self.inner.reserve.end();
        let mut parked = parked();
        parked.volumes -= 1;
        parked.dying.push(self.inner);
        parked.sweep();
    }
}
