//! Which frames are free: a bit each, taken and given back without a lock.

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::FRAME_BYTES;
use super::table::Table;

/// Frames that one word of bits stands for: the longest run that is taken.
pub(super) const WORD_FRAMES: u32 = 64;
/// Frames of a huge page, of 2 MiB.
pub(super) const HUGE_FRAMES: u32 = (2 << 20) / FRAME_BYTES;
/// Hints where frames were freed lately, for one group of threads.
const HINTS: usize = 64;
const STRIPES: usize = 16;
/// Words looked at for a whole run before a run in parts will do.
const LOOKS_MAX: usize = 16;

/// Bits of free frames. Taking needs no lock: a word's bits are claimed with
/// one compare-and-swap.
pub(super) struct Free {
    /// Bit i of word w: frame `64 w + i` is free.
    words: Table<AtomicU64>,
    /// Bit i of word w: word `64 w + i` of `words` may have a bit set.
    summary: Table<AtomicU64>,
    stripes: Box<[Stripe; STRIPES]>,
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

impl Free {
    /// Of `frames` frames, none of them free. Both tables are zero.
    pub(super) fn new(words: Table<AtomicU64>, summary: Table<AtomicU64>) -> Free {
        let stripes = std::array::from_fn(|_| Stripe {
            top: AtomicUsize::new(0),
            hints: [const { AtomicU32::new(0) }; HINTS],
            cursor: AtomicUsize::new(0),
        });
        Free {
            words,
            summary,
            stripes: Box::new(stripes),
        }
    }

    /// None free, as at first.
    pub(super) fn clear(&self) -> io::Result<()> {
        for stripe in &*self.stripes {
            let hints = stripe.hints.iter();
            hints.for_each(|hint| hint.store(0, Ordering::Relaxed));
        }
        self.words.clear()?;
        self.summary.clear()
    }

    /// Makes everybody look from `frame` on.
    pub(super) fn look_from(&self, frame: u32) {
        for stripe in &*self.stripes {
            let word = (frame / WORD_FRAMES) as usize;
            stripe.cursor.store(word, Ordering::Relaxed);
        }
    }

    /// Claims these very frames, all or nothing.
    #[inline]
    pub(super) fn take_these(&self, first: u32, n: u32) -> bool {
        let (word, at) = (first / WORD_FRAMES, first % WORD_FRAMES);
        at + n <= WORD_FRAMES && self.claim(word as usize, mask(at, n))
    }

    /// Claims the bits of `mask` if all are set. Acquire: whoever freed the
    /// frames was done with them.
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

    /// A word has become empty: its summary bit goes, unless somebody has
    /// freed a frame of it meanwhile.
    fn forget(&self, word: usize) {
        let (summary, bit) = (&self.summary.all()[word / 64], 1 << (word % 64));
        // SeqCst here and in `give`: one of the two sees what the other did.
        summary.fetch_and(!bit, Ordering::SeqCst);
        if self.words.all()[word].load(Ordering::SeqCst) != 0 {
            summary.fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// A run of `n` frames (1 to 64), or of fewer where there is none so long;
    /// nothing if no frame is free.
    pub(super) fn take_run(&self, n: u32) -> Option<(u32, u32)> {
        let stripe = &self.stripes[stripe_index()];
        for _ in 0..4 {
            let top = stripe.top.load(Ordering::Relaxed);
            let hint = &stripe.hints[top % HINTS];
            let word = hint.load(Ordering::Relaxed);
            if word == 0 {
                break;
            }
            let word = word as usize - 1;
            if let Some(first) = self.take_in(word, n) {
                return Some((first, n));
            }
            hint.store(0, Ordering::Relaxed);
            stripe.top.store(top.wrapping_sub(1), Ordering::Relaxed);
        }
        self.search(stripe, n)
    }

    #[inline]
    fn take_in(&self, word: usize, n: u32) -> Option<u32> {
        let bits = self.words.all()[word].load(Ordering::Relaxed);
        let at = find_run(bits, n)?;
        let claimed = self.claim(word, mask(at, n));
        claimed.then_some(word as u32 * WORD_FRAMES + at)
    }

    /// Looks through the words that have free frames, from the cursor on: for
    /// a whole run in a few of them, then for the longest half of it.
    #[cold]
    fn search(&self, stripe: &Stripe, n: u32) -> Option<(u32, u32)> {
        let mut want = n;
        loop {
            let looks_max = if want == 1 { usize::MAX } else { LOOKS_MAX };
            let from = stripe.cursor.load(Ordering::Relaxed);
            for word in self.words_with_free(from).take(looks_max) {
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

    /// Words whose summary bit is set, from word `from` on and around.
    fn words_with_free(&self, from: usize) -> impl Iterator<Item = usize> {
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

    /// Claims all frames of the huge page `block` if every one is free.
    pub(super) fn take_huge(&self, block: u32) -> bool {
        let mut words = huge_words(block);
        let taken = words.find(|&word| {
            let exists = word < self.words.all().len();
            !(exists && self.claim(word, u64::MAX))
        });
        let Some(missing) = taken else {
            return true;
        };
        for word in huge_words(block).take_while(|&word| word < missing) {
            self.give_cold(word as u32 * WORD_FRAMES, WORD_FRAMES);
        }
        false
    }

    /// Gives `n` frames back, whose content nobody will look at again: those
    /// that this thread will take next.
    pub(super) fn give(&self, first: u32, n: u32) {
        let stripe = &self.stripes[stripe_index()];
        for word in first / WORD_FRAMES..=(first + n - 1) / WORD_FRAMES {
            let top = stripe.top.load(Ordering::Relaxed).wrapping_add(1);
            stripe.hints[top % HINTS].store(word + 1, Ordering::Relaxed);
            stripe.top.store(top, Ordering::Relaxed);
        }
        self.give_cold(first, n);
    }

    /// The same for frames that have no memory, or may be without: to be taken
    /// when there are no others.
    pub(super) fn give_cold(&self, first: u32, n: u32) {
        let (mut first, end) = (first, first + n);
        while first < end {
            let (word, at) = ((first / WORD_FRAMES) as usize, first % WORD_FRAMES);
            let part = (end - first).min(WORD_FRAMES - at);
            let summary = &self.summary.all()[word / 64];
            let bits = &self.words.all()[word];
            // Release: see `claim`.
            let before = bits.fetch_or(mask(at, part), Ordering::SeqCst);
            assert!(before & mask(at, part) == 0, "a frame is freed twice");
            // After the bits, see `forget`. A bit too many is no harm, even
            // where the frames serve another volume by now.
            summary.fetch_or(1 << (word % 64), Ordering::SeqCst);
            first += part;
        }
    }

    /// How many are free.
    pub(super) fn count(&self) -> u64 {
        let words = self.words.all().iter();
        words
            .map(|word| u64::from(word.load(Ordering::Acquire).count_ones()))
            .sum()
    }
}
