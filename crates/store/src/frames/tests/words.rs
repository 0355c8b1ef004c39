//! Words of the table: locks that are held, pins at their most, names of holes.

use super::super::word::{LOCKED, PINS};
use super::*;

fn word(frames: &Frames, index: usize) -> u64 {
    frames.inner.word(index).load(Ordering::Relaxed)
}

#[test]
fn write_that_meets_a_lock_lets_go_of_those_that_it_has() {
    let frames = Frames::with_spare(16 * F, 16 * F, 8);
    frames.write(0, &vec![1; 16 * F as usize]).unwrap();
    for held in [0, 2] {
        frames.inner.lock(held).unwrap();
        let refused = frames.zero(0, 4 * FRAME_BYTES);
        assert_eq!(refused, Err(FramesRefused::Busy));
        for index in 0..4 {
            let is_locked = word(&frames, index) & LOCKED != 0;
            assert_eq!(is_locked, index == held, "word {index}");
        }
        frames.inner.unlock_all(held, held);
    }
    assert_eq!(frames.bytes(0, 16 * F as u32), vec![1; 16 * F as usize]);
    frames.check_quiet();
}

#[test]
fn frames_that_are_pinned_under_a_lock_keep_their_content() {
    let frames = Frames::with_spare(16 * F, 16 * F, 8);
    let inner = frames.inner;
    frames.write(0, &[1; 512]).unwrap();
    inner.lock_all(0, 1).unwrap();
    let loan = frames.pin_each(0, 2 * FRAME_BYTES, &mut [0; 2], LentInner::pin_locked);
    inner.unlock_all(0, 1);
    let loan = loan.expect("there is room for pins");
    assert_eq!(word(&frames, 1) & PINS, 0, "a hole has no pins");
    frames.write(0, &[2; 512]).unwrap();
    frames.write(F, &[2; 512]).unwrap();
    let read = bytes_of(&loan);
    assert_eq!(read[..512], [1; 512]);
    assert!(read[512..].iter().all(|&byte| byte == 0), "a hole then");
    drop(loan);
    frames.check_quiet();
}

#[test]
fn word_that_is_full_of_pins_takes_no_more() {
    let frames = Frames::with_spare(16 * F, 16 * F, 8);
    frames.write(0, &[1; 512]).unwrap();
    let inner = frames.inner;
    inner.word(0).fetch_or(PINS, Ordering::Relaxed);
    let full = word(&frames, 0);
    assert!(frames.pin(0, 512).is_none());
    assert_eq!(inner.pin_locked(0), Err(FramesRefused::Busy));
    assert_eq!(word(&frames, 0), full);
    inner.word(0).fetch_and(!PINS, Ordering::Relaxed);
    assert_eq!(frames.bytes(0, 512), [1; 512]);
    frames.check_quiet();
}

/// Pins may end before the writer that replaced their frame has counted them.
#[test]
fn frame_is_free_when_as_many_pins_have_ended_as_it_had() {
    let frames = Frames::with_spare(16 * F, 16 * F, 8);
    let inner = frames.inner;
    let retired = &inner.retired.all()[0];
    for (ended, is_free) in [(0, false), (1, false), (2, true)] {
        retired.store(-ended, Ordering::Relaxed);
        assert_eq!(inner.retire(0, 2), is_free, "{ended} of 2");
    }
    retired.store(0, Ordering::Relaxed);
    frames.check_quiet();
}

#[test]
fn names_of_holes_are_neither_frames_nor_what_was_never_written() {
    let frames = Frames::with_spare(F, F, 8);
    let last = PRESENT as u32 - 1;
    for start in [0, last - 2, last - 1, last, last + 1, u32::MAX] {
        frames.inner.holes.store(start, Ordering::Relaxed);
        frames.write(0, &[1; 512]).unwrap();
        frames.discard(0, F).unwrap();
        assert!((1..PRESENT).contains(&word(&frames, 0)), "after {start}");
    }
    frames.check_quiet();
}

#[test]
fn hole_of_which_a_part_is_discarded_takes_no_frame() {
    let frames = Frames::with_spare(16 * F, 16 * F, 8);
    frames.discard(512, 1024).unwrap();
    assert_eq!(frames.extent(0, 16 * F), (false, 16 * F));
    frames.check_quiet();
}

#[test]
fn smaller_volume_sets_no_more_aside_than_it_lost() {
    let frames = Frames::with_spare(256 * F, 256 * F, 64);
    for parts in [100, 180, 30, 256] {
        frames.resize(parts * F).unwrap();
        let aside: u64 = frames
            .inner
            .withdrawn()
            .iter()
            .map(|&(_, n)| u64::from(n))
            .sum();
        let lost = frames.inner.parts_max() - parts;
        assert!(aside <= lost, "{aside} of {lost}");
        frames.check_quiet();
    }
}
