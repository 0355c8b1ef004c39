//! Which frames are free: a bit each, taken and given back without a lock.

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;

use super::FRAME_BYTES;
use mem::AtomicTable;
use mem::sync::{AtomicU32, AtomicU64, AtomicUsize};

/// Frames that one word of bits stands for: the longest run that is taken.
pub(super) const WORD_FRAMES: u32 = 64;
/// Frames of a huge page, of 2 MiB.
pub(super) const HUGE_FRAMES: u32 = (2 << 20) / FRAME_BYTES;
/// Hints where frames were freed lately, for one group of threads.
const HINTS: usize = 64;
const STRIPES: usize = 16;
/// Of them, those with too short a run that are looked past.
const HINT_LOOKS_MAX: usize = 8;
/// Words looked at for a whole run before a run in parts will do.
const LOOKS_MAX: usize = 16;

/// Free frames: those that have memory and are taken, and those that have none
/// yet and are made ready a huge page at a time.
pub(super) struct Free {
    ready: Bits,
    cold: Bits,
    /// Moves from `cold` to `ready` that have begun, and that are over.
    begun: AtomicU32,
    ended: AtomicU32,
    stripes: Box<[Stripe; STRIPES]>,
}

/// A set of frames. Taking needs no lock: a word's bits are claimed with one
/// compare-and-swap.
struct Bits {
    /// Bit i of word w: frame `64 w + i` is in it.
    words: AtomicTable<AtomicU64>,
    /// Bit i of word w: word `64 w + i` of `words` may have a bit set.
    summary: AtomicTable<AtomicU64>,
}

/// Where a group of threads looks first: where it freed last, which is still
/// in its cache, then from where it found something.
#[repr(align(128))]
struct Stripe {
    top: AtomicUsize,
    hints: [AtomicU32; HINTS],
    cursor: AtomicUsize,
}

fn stripe_index() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
    }
    MINE.try_with(Cell::get).unwrap_or(0)
}

/// The lowest bit of the first run of `n` (1 to 64) set bits.
#[inline]
fn find_run(bits: u64, n: u32) -> Option<u32> {
    let mut starts = bits;
    let mut have = 1;
    while have < n && starts != 0 {
        let step = have.min(n - have);
        starts &= starts >> step;
        have += step;
    }
    (starts != 0).then(|| starts.trailing_zeros())
}

/// The words of the frames of a huge page.
fn huge_words(block: u32) -> Range<usize> {
    const WORDS: usize = (HUGE_FRAMES / WORD_FRAMES) as usize;
    let first = block as usize * WORDS;
    first..first + WORDS
}

#[inline]
fn mask(at: u32, n: u32) -> u64 {
    (u64::MAX >> (WORD_FRAMES - n)) << at
}

impl Bits {
    /// For `frames` frames, none of them in it.
    fn new(frames: u64) -> io::Result<Bits> {
        let words = frames.div_ceil(64);
        Ok(Bits {
            words: AtomicTable::new(words, false)?,
            summary: AtomicTable::new(words.div_ceil(64), false)?,
        })
    }

    /// None in it, as at first.
    fn clear(&self) -> io::Result<()> {
        self.words.clear()?;
        self.summary.clear()
    }

    fn seen(&self, word: usize) -> u64 {
        let word = self.words.all().get(word);
        word.map_or(0, |bits| bits.load(Ordering::Relaxed))
    }

    /// Claims the bits of `mask` if all are set. Acquire: the thread that
    /// freed the frames was done with them.
    #[inline]
    fn claim(&self, word: usize, mask: u64) -> bool {
        let bits = &self.words.all()[word];
        let mut seen = bits.load(Ordering::Relaxed);
        while seen & mask == mask {
            match bits.compare_exchange_weak(
                seen,
                seen & !mask,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    if seen == mask {
                        self.forget(word);
                    }
                    return true;
                }
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Claims whatever is set in a word.
    fn claim_all(&self, word: usize) -> u64 {
        let bits = self.words.all()[word].swap(0, Ordering::Acquire);
        self.forget(word);
        bits
    }

    /// A word has become empty: its summary bit goes, unless a frame of it
    /// was freed meanwhile.
    fn forget(&self, word: usize) {
        let (summary, bit) = (&self.summary.all()[word / 64], 1 << (word % 64));
        // SeqCst here and in `give`: one of the two sees what the other did.
        summary.fetch_and(!bit, Ordering::SeqCst);
        if self.words.all()[word].load(Ordering::SeqCst) != 0 {
            summary.fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// Sets bits that are not set. Release: see `claim`.
    fn give(&self, word: usize, mask: u64) {
        let before = self.words.all()[word].fetch_or(mask, Ordering::SeqCst);
        assert!(before & mask == 0, "a frame is freed twice");
        // After the bits, see `forget`. A bit too many is no harm, even
        // where the frames serve another volume by now.
        self.summary.all()[word / 64].fetch_or(1 << (word % 64), Ordering::SeqCst);
    }

    fn give_run(&self, first: u32, n: u32) {
        let (mut first, end) = (first, first + n);
        while first < end {
            let at = first % WORD_FRAMES;
            let part = (end - first).min(WORD_FRAMES - at);
            self.give((first / WORD_FRAMES) as usize, mask(at, part));
            first += part;
        }
    }

    /// Words whose summary bit is set, from word `from` on and around.
    fn words_with_some(&self, from: usize) -> impl Iterator<Item = usize> {
        let summary = self.summary.all();
        let (first, skip) = (from / 64, from % 64);
        (0..=summary.len()).flat_map(move |i| {
            let at = (first + i) % summary.len();
            let bits = summary[at].load(Ordering::Relaxed);
            let bits = match i {
                0 => bits & u64::MAX << skip,
                _ if i == summary.len() => bits & !(u64::MAX << skip),
                _ => bits,
            };
            let mut left = bits;
            std::iter::from_fn(move || {
                (left != 0).then(|| {
                    let bit = left.trailing_zeros() as usize;
                    left &= left - 1;
                    at * 64 + bit
                })
            })
        })
    }

    /// How many are in it.
    fn count(&self) -> u64 {
        let words = self.words.all().iter();
        words
            .map(|word| u64::from(word.load(Ordering::Acquire).count_ones()))
            .sum()
    }
}

impl Free {
    /// Of `frames` frames, none of them free.
    pub(super) fn new(frames: u64) -> io::Result<Free> {
        let stripes = std::array::from_fn(|_| Stripe {
            top: AtomicUsize::new(0),
            hints: [const { AtomicU32::new(0) }; HINTS],
            cursor: AtomicUsize::new(0),
        });
        Ok(Free {
            ready: Bits::new(frames)?,
            cold: Bits::new(frames)?,
            begun: AtomicU32::new(0),
            ended: AtomicU32::new(0),
            stripes: Box::new(stripes),
        })
    }

    /// None free, as at first.
    pub(super) fn clear(&self) -> io::Result<()> {
        for stripe in &*self.stripes {
            let hints = stripe.hints.iter();
            hints.for_each(|hint| hint.store(0, Ordering::Relaxed));
            stripe.cursor.store(0, Ordering::Relaxed);
        }
        self.ready.clear()?;
        self.cold.clear()
    }

    /// Claims these very frames if they are ready, all or nothing.
    #[inline]
    pub(super) fn take_these(&self, first: u32, n: u32) -> bool {
        let (word, at) = (first / WORD_FRAMES, first % WORD_FRAMES);
        at + n <= WORD_FRAMES && self.ready.claim(word as usize, mask(at, n))
    }

    /// A run of `n` frames (1 to 64), or of fewer where there is none so long;
    /// nothing if no frame is ready.
    pub(super) fn take_run(&self, n: u32) -> Option<(u32, u32)> {
        let stripe = &self.stripes[stripe_index()];
        let mut top = stripe.top.load(Ordering::Relaxed);
        let mut below = 0;
        while below < HINT_LOOKS_MAX {
            let hint = &stripe.hints[top.wrapping_sub(below) % HINTS];
            let Some(word) = hint.load(Ordering::Relaxed).checked_sub(1) else {
                break;
            };
            let word = word as usize;
            if let Some(first) = self.take_in(word, n) {
                return Some((first, n));
            }
            let is_used_up = self.ready.seen(word) == 0;
            if below == 0 && is_used_up {
                // Such as these must not hide what is warm below them.
                hint.store(0, Ordering::Relaxed);
                top = top.wrapping_sub(1);
                stripe.top.store(top, Ordering::Relaxed);
            } else {
                below += 1;
            }
        }
        self.search(stripe, n)
    }

    #[inline]
    fn take_in(&self, word: usize, n: u32) -> Option<u32> {
        let at = find_run(self.ready.seen(word), n)?;
        let claimed = self.ready.claim(word, mask(at, n));
        claimed.then_some(word as u32 * WORD_FRAMES + at)
    }

    /// Looks through the words that have ready frames, from the cursor on: for
    /// a whole run in a few of them, then for the longest half of it.
    #[cold]
    fn search(&self, stripe: &Stripe, n: u32) -> Option<(u32, u32)> {
        let mut want = n;
        loop {
            let looks_max = if want == 1 { usize::MAX } else { LOOKS_MAX };
            let from = stripe.cursor.load(Ordering::Relaxed);
            for word in self.ready.words_with_some(from).take(looks_max) {
                // Another thread may be quicker; then the next word will do.
                if let Some(first) = self.take_in(word, want) {
                    stripe.cursor.store(word, Ordering::Relaxed);
                    return Some((first, want));
                }
            }
            if want == 1 {
                return None;
            }
            want = want.div_ceil(2);
        }
    }

    /// Claims all frames of the huge page `block` if every one is ready.
    pub(super) fn take_huge(&self, block: u32) -> bool {
        let mut words = huge_words(block);
        let taken = words.find(|&word| {
            let exists = word < self.ready.words.all().len();
            !(exists && self.ready.claim(word, u64::MAX))
        });
        let Some(missing) = taken else {
            return true;
        };
        for word in huge_words(block).take_while(|&word| word < missing) {
            self.ready.give(word, u64::MAX);
        }
        false
    }

    /// Gives `n` frames back, whose content is not looked at again: those
    /// that this thread will take next.
    pub(super) fn give(&self, first: u32, n: u32) {
        let stripe = &self.stripes[stripe_index()];
        for word in first / WORD_FRAMES..=(first + n - 1) / WORD_FRAMES {
            let top = stripe.top.load(Ordering::Relaxed).wrapping_add(1);
            stripe.hints[top % HINTS].store(word + 1, Ordering::Relaxed);
            stripe.top.store(top, Ordering::Relaxed);
        }
        self.ready.give_run(first, n);
    }

    /// The same for frames that no thread is to take next.
    pub(super) fn give_unused(&self, first: u32, n: u32) {
        self.ready.give_run(first, n);
    }

    /// The same for frames that have no memory, or may be without.
    pub(super) fn give_cold(&self, first: u32, n: u32) {
        self.cold.give_run(first, n);
    }

    /// `n` frames that are not ready, or fewer in one run: from `from` on and
    /// around.
    pub(super) fn take_cold(&self, from: u32, n: u32) -> Option<(u32, u32)> {
        let mut words = self.cold.words_with_some((from / WORD_FRAMES) as usize);
        words.find_map(|word| {
            let bits = self.cold.seen(word);
            let at = bits.trailing_zeros();
            let n = bits.checked_shr(at)?.trailing_ones().min(n);
            let claimed = n > 0 && self.cold.claim(word, mask(at, n));
            claimed.then_some((word as u32 * WORD_FRAMES + at, n))
        })
    }

    /// A huge page with frames that are not ready: that of `frame`, or the
    /// first there is.
    pub(super) fn cold_block(&self, frame: Option<u32>) -> Option<u32> {
        let is_cold = |&block: &u32| huge_words(block).any(|word| self.cold.seen(word) != 0);
        let own = frame.map(|frame| frame / HUGE_FRAMES).filter(is_cold);
        own.or_else(|| {
            let mut words = self.cold.words_with_some(0);
            let word = words.find(|&word| self.cold.seen(word) != 0)?;
            Some(word as u32 * WORD_FRAMES / HUGE_FRAMES)
        })
    }

    /// The frames of a huge page that were not ready are now; how many.
    pub(super) fn make_ready(&self, block: u32) -> u32 {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let mut n = 0;
        for word in huge_words(block).filter(|&word| self.cold.seen(word) != 0) {
            let bits = self.cold.claim_all(word);
            self.ready.give(word, bits);
            n += bits.count_ones();
        }
        self.ended.fetch_add(1, Ordering::SeqCst);
        n
    }

    /// Moves that are over: to be asked before one looks for a frame.
    pub(super) fn moves(&self) -> u32 {
        self.ended.load(Ordering::SeqCst)
    }

    /// Whether frames have been on their way since [`Free::moves`] was that, so
    /// that a search that found none may have missed them.
    pub(super) fn has_moved(&self, moves: u32) -> bool {
        self.begun.load(Ordering::SeqCst) != moves
    }

    /// How many are free. No thread makes any cold meanwhile, or some count twice.
    pub(super) fn count(&self) -> u64 {
        self.ready.count() + self.cold.count()
    }
}
