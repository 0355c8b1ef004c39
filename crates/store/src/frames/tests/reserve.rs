//! Memory that is ready before it is asked for, and that goes back.

use super::*;
use crate::frames::free::HUGE_FRAMES;
use crate::frames::owner;
use std::collections::BTreeSet;
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

const HUGE: u64 = HUGE_FRAMES as u64 * F;

impl Frames {
    /// Frames that are ready, as far as no I/O has them.
    fn ready(&self) -> i64 {
        self.inner.reserve.frames()
    }

    /// Until the helper has done what it was asked for.
    fn wait_ready(&self, frames: i64) {
        let give_up = Instant::now() + Duration::from_secs(60);
        while self.ready() < frames {
            assert!(Instant::now() < give_up, "{} frames ready", self.ready());
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn block_of(&self, part: u64) -> u64 {
        self.pin(part * F, 1).unwrap().pieces()[0].offset() / HUGE
    }
}

/// Every part of `parts`, in an order that jumps.
fn scattered(parts: u64) -> impl Iterator<Item = u64> {
    assert!(parts.is_power_of_two());
    (0..parts).map(move |i| i.wrapping_mul(0x9e37_79b1) % parts)
}

/// Page faults of this thread that needed no disk.
fn faults() -> i64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // The name may hold anything; the state follows it, and minflt is seven further on.
    let (_, rest) = stat.rsplit_once(')').unwrap();
    let minflt = rest.split_whitespace().nth(7).unwrap();
    minflt.parse().unwrap()
}

fn first_touches() -> u64 {
    counters::here().first_touches
}

#[test]
fn first_writes_to_random_places_lie_close_together() {
    const PARTS: u64 = 4096;
    const WRITTEN: usize = 512;
    let frames = Frames::with_spare(PARTS * F, PARTS * F, 64);
    let before = first_touches();
    for part in scattered(PARTS).take(WRITTEN) {
        frames.write(part * F + 4096, &[7; 4096]).unwrap();
    }
    let blocks: BTreeSet<u64> = scattered(PARTS)
        .take(WRITTEN)
        .map(|part| frames.block_of(part))
        .collect();
    // Those that are full, and those of the reserve.
    let reserve = (PARTS * F / 16).div_ceil(HUGE) as usize;
    let full = WRITTEN / HUGE_FRAMES as usize;
    assert!(blocks.len() <= full + reserve + 1, "{blocks:?}");
    assert!(first_touches() - before <= full as u64 + 1);
    frames.check_quiet();
}

#[test]
fn writes_do_not_wait_for_memory() {
    const PARTS: u64 = 1 << 15;
    // So few that their words lie in a few pages.
    const WRITTEN: u64 = 4096;
    crate::frames::touch_ahead();
    let frames = Frames::new(PARTS * F, PARTS * F).unwrap();
    // It asks: beside another test's many volumes nothing is ready before.
    frames.write(0, &[1; 4096]).unwrap();
    frames.wait_ready(2048);
    let before = first_touches();
    let faults_before = faults();
    for part in scattered(WRITTEN).skip(1).take(1000) {
        frames.write(part * F, &[2; 4096]).unwrap();
    }
    assert_eq!(first_touches(), before);
    let faults = faults() - faults_before;
    assert!(faults < 100, "{faults} faults of 1,000 first writes");
    // What is given back and comes again is ready too.
    frames.discard(0, PARTS * F).unwrap();
    let faults_before = self::faults();
    for part in scattered(WRITTEN).take(1000) {
        frames.write(part * F, &[3; 4096]).unwrap();
    }
    assert_eq!(first_touches(), before);
    let faults = self::faults() - faults_before;
    assert!(faults < 100, "{faults} faults of 1,000 writes after a trim");
    frames.check_quiet();
}

/// Writes that are faster than the helper go on without it, to the last frame.
#[test]
fn a_volume_is_filled_whichever_thread_touches_the_memory() {
    const PARTS: u64 = 2048;
    for frames in [
        Frames::with_spare(PARTS * F, PARTS * F, 8),
        Frames::thin(4 * PARTS * F, PARTS * F).unwrap(),
    ] {
        for round in 1..3 {
            for part in scattered(PARTS) {
                frames.write(part * F, &[round; 16]).unwrap();
            }
            frames.discard(0, PARTS * F).unwrap();
            frames.check_quiet();
        }
    }
}

#[test]
fn memory_goes_back_in_huge_pages_but_for_the_reserve() {
    let frames = Frames::with_spare(8 * HUGE, 8 * HUGE, 128);
    for at in (0..8 * HUGE).step_by(4096) {
        frames.write(at, &[1; 4096]).unwrap();
    }
    let is_zero = |frame: u32| mem::is_zero(frames.inner.at(frame, 0, FRAME_BYTES));
    frames.discard(F, 4 * HUGE - F).unwrap();
    assert!(!is_zero(1), "the first is in use");
    frames.discard(0, F).unwrap();
    assert!((0..128).chain(256..512).all(is_zero));
    assert!(!is_zero(512), "the rest is in use");
    let kept = frames.ready();
    assert!((128..256 + 128).contains(&kept), "{kept} kept");
    frames.check_quiet();
    // A huge page without memory is not what a write takes first.
    frames.write(F, &[1; 512]).unwrap();
    assert_ne!(frames.block_of(1), 0, "one that is ready first");
    frames.check_quiet();
}

/// Threads of this process that have the lowest priority.
fn low_priority_threads() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").expect("a process");
    let nice = |stat: &str| {
        let (_, fields) = stat.rsplit_once(") ")?;
        fields.split(' ').nth(16)?.parse::<i32>().ok()
    };
    let is_lowest = |thread: std::io::Result<std::fs::DirEntry>| {
        // It may have ended meanwhile.
        let stat = std::fs::read_to_string(thread.ok()?.path().join("stat"));
        Some(nice(&stat.ok()?).expect("a nice value") == 19)
    };
    threads.filter_map(is_lowest).filter(|&is| is).count()
}

/// On a loaded machine one of low priority gets a core late, also to end on:
/// until then the process has not ended.
#[test]
fn no_thread_of_low_priority_is_left_when_all_is_ready() {
    crate::frames::touch_ahead();
    let frames = Frames::with_spare(64 * HUGE, 64 * HUGE, 128);
    let give_up = Instant::now() + Duration::from_secs(60);
    frames.write(0, &[1; 512]).unwrap();
    // More than one huge page, which the writer may have touched.
    frames.wait_ready(2 * i64::from(HUGE_FRAMES) - 1);
    while low_priority_threads() > 0 {
        assert!(Instant::now() < give_up, "it is still there");
        thread::sleep(Duration::from_millis(1));
    }
}

/// On a loaded machine the helper has to wait for a core: what it held then
/// would be waited for wherever a volume is opened or dropped.
#[test]
fn the_helper_needs_nothing_that_others_lock() {
    crate::frames::touch_ahead();
    let frames = Frames::with_spare(64 * HUGE, 64 * HUGE, 128);
    let parked = owner::parked();
    frames.write(0, &[1; 512]).unwrap();
    // More than one huge page, which the writer may have touched.
    frames.wait_ready(2 * i64::from(HUGE_FRAMES) - 1);
    drop(parked);
    frames.check_quiet();
}

/// The helper is asked for one huge page at the start, and for more while it is at that.
#[test]
fn request_for_frames_while_the_helper_works_is_not_lost() {
    crate::frames::touch_ahead();
    for _ in 0..8 {
        let frames = Frames::with_spare(64 * HUGE, 64 * HUGE, 128);
        frames.write(0, &[1; 512]).unwrap();
        // A sixteenth.
        frames.wait_ready(4 * i64::from(HUGE_FRAMES));
    }
}

/// No thread waits for it either.
#[test]
fn memory_that_the_helper_works_at_is_not_used_by_another_volume() {
    // No other test has as much to spare, so that no other volume fits.
    let new = || Frames::with_spare(64 * F, 64 * F, 9);
    let frames = new();
    let (inner, moving) = (frames.inner, frames.moving());
    drop(frames);
    let other = new();
    assert!(!ptr::eq(other.inner, inner), "it is being made ready");
    drop(moving);
    assert!(inner.reserve.begin_move().is_none(), "it has no owner");
    assert!(ptr::eq(new().inner, inner), "it is over");
}

/// With as many volumes as that, one that is never written takes nothing.
#[test]
fn nothing_is_ready_before_it_is_wanted() {
    crate::frames::touch_ahead();
    let many: Vec<Frames> = (0..70)
        .map(|_| Frames::with_spare(64 * F, 64 * F, 8))
        .collect();
    let last = many.last().unwrap();
    many[0].wait_ready(1);
    assert_eq!(last.ready(), 0);
    last.write(0, &[1; 512]).unwrap();
    assert!(last.ready() > 0);
}

#[test]
fn frames_that_are_set_aside_are_not_ready_any_more() {
    let frames = Frames::with_spare(256 * F, 256 * F, 128);
    for part in 0..256 {
        frames.write(part * F, &[1; 512]).unwrap();
    }
    frames.resize(100 * F).unwrap();
    let _moving = frames.moving();
    let inner = frames.inner;
    let aside: u64 = inner.withdrawn().iter().map(|&(_, n)| u64::from(n)).sum();
    assert_eq!(aside, 156);
    assert_eq!(frames.ready() as u64, inner.free.count());
}
