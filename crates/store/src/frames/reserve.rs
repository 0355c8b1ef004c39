//! Frames that are ready before a writer takes them.
//!
//! The first to touch memory waits until the kernel has found and cleared it, a
//! huge page at a time: a fifth of a millisecond, and several on a virtual
//! machine that has never used it. So frames without memory are not given out:
//! a thread of low priority touches huge pages ahead of the writers, in the
//! order of their addresses, and keeps a reserve of them for each volume that
//! is written. What is written first takes its frames from there, its own ones
//! if they are ready. Only a writer that is faster than that thread touches a
//! huge page itself, one for [`HUGE_FRAMES`] frames.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering};
use std::thread::{self, Thread};

use super::free::HUGE_FRAMES;
use super::owner;
use super::word::Patience;
use super::{FRAME_BYTES, FRAME_SHIFT, LentInner};
use mem::counters;

const BLOCK: i64 = HUGE_FRAMES as i64;
/// Of what a volume may hold, this part is kept ready, within these bounds.
const RESERVE_PART: u64 = 16;
const RESERVE_BYTES_MIN: u64 = (HUGE_FRAMES * FRAME_BYTES) as u64;
const RESERVE_BYTES_MAX: u64 = 32 << 20;
/// Volumes that have a huge page ready before their first write: with more of
/// them each has to ask for it.
const STARTED_MAX: usize = 64;

/// States of a reserve, beside 0: the owner of the frames has let go of them,
/// and the helper is making some of them ready.
const OVER: u8 = 1;
const MOVING: u8 = 2;

/// How many frames have memory and no content. Changes only where a part is
/// written that was a hole, or becomes one.
#[repr(align(128))]
pub(super) struct Reserve {
    frames: AtomicI64,
    /// With fewer of them the helper is asked for more; never where there is
    /// nothing to be had.
    low: AtomicI64,
    /// What it is asked for.
    wanted: AtomicI64,
    is_asked: AtomicBool,
    state: AtomicU8,
}

/// The helper is making frames ready: until this is dropped their volume is not
/// quiet.
pub(super) struct Moving<'a>(&'a Reserve);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.state.fetch_and(!MOVING, Ordering::Release);
    }
}

impl Reserve {
    pub(super) fn new() -> Reserve {
        Reserve {
            frames: AtomicI64::new(0),
            low: AtomicI64::new(0),
            wanted: AtomicI64::new(0),
            is_asked: AtomicBool::new(false),
            state: AtomicU8::new(OVER),
        }
    }

    /// Nothing is made ready from now on, but for what is being so.
    pub(super) fn end(&self) {
        self.state.fetch_or(OVER, Ordering::Relaxed);
    }

    /// Acquire: the helper was done with the frames.
    pub(super) fn is_over(&self) -> bool {
        self.state.load(Ordering::Acquire) == OVER
    }

    /// `None` where the frames have no owner. No lock: a thread that drops a
    /// volume looks whether it is quiet, and does not wait for one of low priority.
    pub(super) fn begin_move(&self) -> Option<Moving<'_>> {
        let begun = (self.state).compare_exchange(0, MOVING, Ordering::Acquire, Ordering::Relaxed);
        begun.ok().map(|_| Moving(self))
    }

    #[cfg(test)]
    pub(super) fn frames(&self) -> i64 {
        self.frames.load(Ordering::Relaxed)
    }
}

/// The thread that sees to it that memory is touched; `None` inside where the
/// system has none to give.
static HELPER: OnceLock<Option<Thread>> = OnceLock::new();

/// Has the memory of all volumes touched ahead of its writers. Without it,
/// they touch theirs, and where a volume's content lies depends on nothing but
/// what is done to it.
pub fn touch_ahead() {
    let helper = HELPER.get_or_init(|| {
        let builder = thread::Builder::new().name("weft-memory".into());
        let started = builder.spawn(|| PANIC.note(help));
        started.ok().map(|started| started.thread().clone())
    });
    // A volume that asked before `HELPER` was set could not wake it.
    if let Some(helper) = helper {
        helper.unpark();
    }
}

/// Whether that thread has panicked, and no other has failed with it yet.
static PANIC: Panic = Panic(AtomicBool::new(false));

struct Panic(AtomicBool);

impl Panic {
    /// Runs what may panic.
    fn note(&self, f: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(f)).is_err() {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Panics where that did, once: the next caller that needs the thread fails with it.
    fn pass_on(&self) {
        let has_panicked = self.0.swap(false, Ordering::Relaxed);
        assert!(
            !has_panicked,
            "the thread that touches memory ahead has panicked"
        );
    }
}

fn helper() -> Option<&'static Thread> {
    PANIC.pass_on();
    HELPER.get().and_then(Option::as_ref)
}

/// Has a thread of low priority for as long as there is something to do: what
/// has gone down may not come up again, and a process has not ended before the
/// last of its threads was given a core to end on.
fn help() {
    loop {
        if owner::all().any(LentInner::wants_ready) {
            let builder = thread::Builder::new().name("weft-touch".into());
            let touch_at_low_priority = || {
                reactor::lower_thread_priority();
                touch();
            };
            match builder.spawn(touch_at_low_priority) {
                Ok(started) => started.join().unwrap_or_else(|panic| resume_unwind(panic)),
                Err(_) => touch(),
            }
        }
        thread::park();
    }
}

/// One huge page for each volume that wants some, as long as any does.
fn touch() {
    let mut has_found = true;
    while has_found {
        has_found = false;
        for inner in owner::all() {
            has_found |= inner.top_up();
        }
    }
}

impl LentInner {
    /// Frames to be kept ready.
    fn reserve_max(&self) -> i64 {
        let size_bytes = self.size_bytes.load(Ordering::Relaxed);
        let content_bytes = size_bytes.min(self.parts_max() << FRAME_SHIFT);
        let bytes = content_bytes / RESERVE_PART;
        (bytes.clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX) >> FRAME_SHIFT) as i64
    }

    /// A use starts without memory, as one of so many volumes.
    pub(super) fn start_reserve(&self, volumes: usize) {
        let reserve = &self.reserve;
        reserve.frames.store(0, Ordering::Relaxed);
        reserve.low.store(self.reserve_max() / 2, Ordering::Relaxed);
        reserve.wanted.store(BLOCK, Ordering::Relaxed);
        let starts = volumes <= STARTED_MAX;
        reserve.is_asked.store(starts, Ordering::Relaxed);
        reserve.state.store(0, Ordering::Release);
        if let (true, Some(helper)) = (starts, helper()) {
            helper.unpark();
        }
    }

    /// A hole has got a frame.
    #[inline]
    pub(super) fn use_ready(&self) {
        let left = self.reserve.frames.fetch_sub(1, Ordering::Relaxed) - 1;
        if left < self.reserve.low.load(Ordering::Relaxed) {
            self.ask();
        }
    }

    /// A frame has lost its part, but not its memory.
    #[inline]
    pub(super) fn add_ready(&self, n: i64) {
        self.reserve.frames.fetch_add(n, Ordering::Relaxed);
    }

    /// Before what was asked for is found, too: that may be less. Release: the helper
    /// that takes this sees what is wanted, and what was used.
    #[cold]
    fn ask(&self) {
        let reserve = &self.reserve;
        reserve.wanted.store(self.reserve_max(), Ordering::Relaxed);
        if !reserve.is_asked.swap(true, Ordering::Release)
            && let Some(helper) = helper()
        {
            helper.unpark();
        }
    }

    fn wants_ready(&self) -> bool {
        let reserve = &self.reserve;
        let is_over = reserve.state.load(Ordering::Acquire) & OVER != 0;
        !is_over && reserve.is_asked.load(Ordering::Acquire)
    }

    /// What the helper is asked for and does not have: a huge page that is to be made
    /// ready, or none. No other use begins meanwhile: it would have asked, and not be
    /// heard.
    fn take_ask(&self) -> Option<u32> {
        let reserve = &self.reserve;
        let _moving = reserve.begin_move()?;
        // Before the frames are counted: a writer that uses some after that asks anew.
        if !reserve.is_asked.swap(false, Ordering::Acquire) {
            return None;
        }
        let left = reserve.frames.load(Ordering::Relaxed);
        if left >= reserve.wanted.load(Ordering::Relaxed) {
            return None;
        }
        let block = self.free.cold_block(None);
        match block {
            Some(_) => reserve.is_asked.store(true, Ordering::Relaxed),
            None => reserve.low.store(i64::MIN, Ordering::Relaxed),
        }
        block
    }

    /// The helper's: one huge page more, if it is wanted and there is one.
    fn top_up(&self) -> bool {
        let Some(block) = self.take_ask() else {
            return false;
        };
        let start = u64::from(block * HUGE_FRAMES) << FRAME_SHIFT;
        self.data.touch(start, RESERVE_BYTES_MIN);
        // A look whether a dropped volume is quiet sees no move half done,
        // and none is made after that.
        if let Some(_moving) = self.reserve.begin_move() {
            self.add_ready(self.free.make_ready(block).into());
        }
        true
    }

    /// Nothing is ready: the caller is to touch a huge page itself, that of
    /// `frame` if it is cold. False where there is none, or was none before others
    /// moved theirs since `moves`, see [`super::free::Free::moves`].
    #[cold]
    pub(super) fn take_cold(
        &self,
        frame: Option<u32>,
        moves: u32,
        patience: &mut Patience,
    ) -> bool {
        if let Some(block) = self.free.cold_block(frame) {
            let n = self.free.make_ready(block);
            self.add_ready(n.into());
            counters::add_first_touch();
            return true;
        }
        self.free.has_moved(moves) && patience.wait()
    }

    /// These frames are free, without a part: huge pages of which nothing is
    /// used any more go back to the system, but for the reserve. Less would not
    /// give it anything before it is short of memory, and leave small pages
    /// behind for those that are used.
    pub(super) fn give_back(&self, first: u32, n: u32) {
        let reserve = &self.reserve;
        let kept = self.reserve_max() + BLOCK;
        for block in first / HUGE_FRAMES..=(first + n - 1) / HUGE_FRAMES {
            let left = || reserve.frames.load(Ordering::Relaxed);
            if left() >= kept && self.free.take_huge(block) {
                self.add_ready(-BLOCK);
                let frame = block * HUGE_FRAMES;
                // A refusal leaves the memory with us, which is no harm.
                let _: io::Result<()> = self
                    .data
                    .discard(u64::from(frame) << FRAME_SHIFT, RESERVE_BYTES_MIN);
                self.free.give_cold(frame, HUGE_FRAMES);
                reserve.low.store(self.reserve_max() / 2, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_of_the_helper_is_passed_on_once() {
        let panic = Panic(AtomicBool::new(false));
        panic.note(|| {
            let touches = thread::spawn(|| panic!("it touches the wrong page"));
            touches.join().unwrap_or_else(|panic| resume_unwind(panic));
        });
        assert!(catch_unwind(|| panic.pass_on()).is_err());
        panic.pass_on();
    }
}
