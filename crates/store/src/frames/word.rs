//! One word of the table: pins and locks.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{FramesRefused, LentInner};
use mem::sync::AtomicU64;

/// The low half names a frame, not a hole.
pub(super) const PRESENT: u64 = 1 << 31;
const PIN: u64 = 1 << 32;
pub(super) const PINS: u64 = 0xff_ffff << 32;
/// A writer is at it: no new pins, no other writer.
pub(super) const LOCKED: u64 = 1 << 63;

/// The frame that the low half of a word names; `None` for a hole.
#[inline]
pub(super) fn frame_of(what: u32) -> Option<u32> {
    let present = PRESENT as u32;
    (what & present != 0).then_some(what & !present)
}

/// The pins of a word.
#[inline]
pub(super) fn pins_of(word: u64) -> i32 {
    ((word & PINS) / PIN) as i32
}

/// Waits a little longer each time, and not for ever: a thread with a lock
/// only copies, unless it was preempted.
#[derive(Default)]
pub(super) struct Patience {
    rounds: u32,
}

impl Patience {
    /// Rounds from which it yields, sleeps, and gives up: after more than a
    /// second, since a machine with too much to do may let a thread wait long.
    const YIELD: u32 = 100;
    const SLEEP: u32 = 200;
    const END: u32 = 10_000;

    /// The same for what does not come from others' copies: only a little.
    #[cold]
    pub(super) fn spin(&mut self) -> bool {
        self.rounds += 1;
        std::hint::spin_loop();
        self.rounds < Self::YIELD
    }

    /// False when it is over.
    #[cold]
    pub(super) fn wait(&mut self) -> bool {
        self.rounds += 1;
        match self.rounds {
            0..Self::YIELD => std::hint::spin_loop(),
            Self::YIELD..Self::SLEEP => std::thread::yield_now(),
            Self::SLEEP..Self::END => std::thread::sleep(Duration::from_micros(100)),
            Self::END.. => return false,
        }
        true
    }
}

#[cold]
fn wait_unlocked(word: &AtomicU64) -> Result<u64, FramesRefused> {
    let mut patience = Patience::default();
    while patience.wait() {
        let seen = word.load(Ordering::Acquire);
        if seen & LOCKED == 0 {
            return Ok(seen);
        }
    }
    Err(FramesRefused::Busy)
}

impl LentInner {
    #[inline]
    pub(super) fn word(&self, index: usize) -> &AtomicU64 {
        &self.words.all()[index]
    }

    /// Pins what is there, so that no thread writes it, and says what it is. A
    /// hole needs no pin. Acquire: what its last writer wrote is to be seen.
    #[inline]
    pub(super) fn pin(&self, index: usize) -> Result<u32, FramesRefused> {
        let word = self.word(index);
        let mut seen = word.load(Ordering::Acquire);
        loop {
            if seen & LOCKED != 0 {
                seen = wait_unlocked(word)?;
                continue;
            }
            if seen & PRESENT == 0 {
                return Ok(seen as u32);
            }
            if seen & PINS == PINS {
                return Err(FramesRefused::Busy);
            }
            let pinned = seen + PIN;
            match word.compare_exchange_weak(seen, pinned, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Ok(seen as u32),
                Err(now) => seen = now,
            }
        }
    }

    /// Pins what is there while the caller has it locked.
    pub(super) fn pin_locked(&self, index: usize) -> Result<u32, FramesRefused> {
        let word = self.word(index);
        let seen = word.load(Ordering::Acquire);
        if seen & PINS == PINS {
            return Err(FramesRefused::Busy);
        }
        if seen & PRESENT != 0 {
            word.fetch_add(PIN, Ordering::Relaxed);
        }
        Ok(seen as u32)
    }

    /// Ends a pin on `what`, which names a frame. Release: the next writer of
    /// the frame writes after we have read it.
    #[inline]
    pub(super) fn unpin(&self, index: usize, what: u32) {
        let word = self.word(index);
        let mut seen = word.load(Ordering::Relaxed);
        // A frame that was replaced does not come back here before its last
        // pin is gone, so this is the frame that we have pinned.
        while seen as u32 == what {
            match word.compare_exchange_weak(seen, seen - PIN, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
        self.unpin_retired(frame_of(what).expect("holes have no pins"));
    }

    /// Ends a pin on a frame that was replaced meanwhile.
    #[cold]
    fn unpin_retired(&self, frame: u32) {
        if self.retired.all()[frame as usize].fetch_sub(1, Ordering::AcqRel) == 1 {
            self.spare.give(1);
            self.free.give(frame, 1);
        }
    }

    /// Moves `pins` off the table with the frame that they hold; whether all
    /// were gone already, so that the frame is free now.
    pub(super) fn retire(&self, frame: u32, pins: i32) -> bool {
        self.retired.all()[frame as usize].fetch_add(pins, Ordering::AcqRel) == -pins
    }

    /// Locks a word; what it was. Acquire: reads that were pinned are over.
    #[inline]
    pub(super) fn lock(&self, index: usize) -> Result<u64, FramesRefused> {
        let word = self.word(index);
        let mut seen = word.load(Ordering::Relaxed);
        loop {
            if seen & LOCKED != 0 {
                seen = wait_unlocked(word)?;
                continue;
            }
            let locked = seen | LOCKED;
            match word.compare_exchange_weak(seen, locked, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(seen),
                Err(now) => seen = now,
            }
        }
    }

    /// Locks in ascending order, as all do, so that no two threads wait for
    /// each other. All or nothing.
    pub(super) fn lock_all(&self, first: usize, last: usize) -> Result<(), FramesRefused> {
        for index in first..=last {
            if let Err(busy) = self.lock(index) {
                if index > first {
                    self.unlock_all(first, index - 1);
                }
                return Err(busy);
            }
        }
        Ok(())
    }

    /// Release: what was written under the lock is seen by the next pin
    /// or lock.
    pub(super) fn unlock_all(&self, first: usize, last: usize) {
        for index in first..=last {
            self.word(index).fetch_and(!LOCKED, Ordering::Release);
        }
    }

    /// Replaces what a locked word says, leaving it locked and unpinned; what
    /// it said. Acquire: pins that ended meanwhile have read.
    pub(super) fn replace(&self, index: usize, what: u32) -> u64 {
        let word = self.word(index);
        word.swap(LOCKED | u64::from(what), Ordering::AcqRel)
    }
}
