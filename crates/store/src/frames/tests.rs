//! Against a model, then by many threads at once.

mod model;
#[cfg(shuttle)]
mod models;
mod reserve;
mod threads;
mod words;

use super::*;
use mem::{copy_in, copy_out, counters};

use super::reserve::Moving;

const F: u64 = FRAME_BYTES as u64;

impl Frames {
    /// Without a limit of pins.
    fn with_spare(size_bytes: u64, max_bytes: u64, spare: u32) -> Frames {
        let frames = Frames::metered(size_bytes, max_bytes, spare);
        frames.inner.pins.reset(1 << 40);
        frames
    }

    fn metered(size_bytes: u64, max_bytes: u64, spare: u32) -> Frames {
        let inner = LentInner::take(size_bytes, max_bytes, Some(spare)).unwrap();
        Frames { inner }
    }

    /// No loan is out: every frame must be free, in the table or set aside.
    fn check_quiet(&self) {
        let inner = self.inner;
        // Nothing is on its way from cold to ready meanwhile.
        let _moving = self.moving();
        let words = inner.words.all().iter();
        let words: Vec<u64> = words.map(|word| word.load(Ordering::Relaxed)).collect();
        assert!(
            words.iter().all(|word| word >> 32 == 0),
            "pins or locks left"
        );
        let used = words.iter().filter(|&&word| word & PRESENT != 0).count() as u64;
        let withdrawn: u64 = inner.withdrawn().iter().map(|&(_, n)| u64::from(n)).sum();
        let all = inner.data.len() >> FRAME_SHIFT;
        assert_eq!(used + withdrawn + inner.free.count(), all, "frames lost");
        let mut frames: Vec<u32> = words.iter().filter_map(|&w| frame_of(w as u32)).collect();
        frames.sort_unstable();
        assert!(frames.is_sorted_by(|a, b| a < b), "a frame in two places");
        assert_eq!(inner.spare.left.load(Ordering::Relaxed), inner.spare.max);
        assert!(
            inner
                .retired
                .all()
                .iter()
                .all(|n| n.load(Ordering::Relaxed) == 0),
            "pins of replaced frames left"
        );
    }

    /// As if the helper were making frames ready, once it is not.
    fn moving(&self) -> Moving<'static> {
        loop {
            if let Some(moving) = self.inner.reserve.begin_move() {
                return moving;
            }
            std::thread::yield_now();
        }
    }

    fn bytes(&self, offset: u64, len: u32) -> Vec<u8> {
        bytes_of(&self.pin(offset, len).unwrap())
    }
}

fn bytes_of(loan: &Loan) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &piece in loan.pieces() {
        let at = bytes.len();
        bytes.resize(at + piece.len() as usize, 0xee);
        copy_out(piece, &mut bytes[at..]);
    }
    bytes
}

fn fill(loan: &Loan, bytes: &[u8]) {
    let mut at = 0;
    for &piece in loan.pieces() {
        copy_in(piece, &bytes[at..at + piece.len() as usize]);
        at += piece.len() as usize;
    }
    assert_eq!(at, bytes.len());
}

#[test]
fn a_fresh_volume_is_zeros_and_takes_no_frames() {
    let frames = Frames::with_spare(1 << 20, 1 << 20, 64);
    let loan = frames.pin(100, (1 << 20) - 100).unwrap();
    assert_eq!(loan.pieces().len(), 1, "zeros follow zeros");
    assert!(bytes_of(&loan).iter().all(|&b| b == 0));
    assert_eq!(frames.extent(0, 1 << 20), (false, 1 << 20));
    drop(loan);
    frames.check_quiet();
}

#[test]
fn frames_that_are_written_in_order_lie_in_one_piece() {
    let frames = Frames::with_spare(4 << 20, 4 << 20, 64);
    for at in (0..4 << 20).step_by(4096) {
        frames.write(at, &[at as u8 >> 4; 4096]).unwrap();
    }
    let whole = frames.pin(4096, 1 << 20).unwrap();
    assert_eq!(whole.pieces().len(), 1);
    drop(whole);
    let mut loan = frames.borrow(1 << 20, 128 << 10).unwrap();
    assert_eq!(loan.pieces().len(), 1, "spare frames in a run");
    fill(&loan, &[9; 128 << 10]);
    frames.commit(&mut loan, 1 << 20).unwrap();
    let read = frames.pin(1 << 20, 128 << 10).unwrap();
    assert_eq!(read.pieces().len(), 1);
    assert!(bytes_of(&read).iter().all(|&b| b == 9));
    drop((loan, read));
    frames.check_quiet();
}

#[test]
fn long_write_from_the_middle_of_a_word_takes_frames_of_its_own() {
    let frames = Frames::with_spare(256 * F, 256 * F, 256);
    let loan = frames.borrow(32 * F, 64 * FRAME_BYTES).unwrap();
    assert_eq!(loan.pieces().len(), 1);
    assert_eq!(loan.pieces()[0].offset(), 32 * F);
    drop(loan);
    frames.check_quiet();
}

#[test]
fn a_pinned_read_stays_as_it_is_whatever_is_written() {
    let frames = Frames::with_spare(16 * F, 16 * F, 32);
    let old: Vec<u8> = (0..8 * F).map(|i| (i / 512) as u8).collect();
    frames.write(F / 2, &old).unwrap();
    let loan = frames.pin(F / 2, 8 * F as u32).unwrap();
    frames.write(F, &[0xaa; 4096]).unwrap();
    frames.write(2 * F - 512, &[0xbb; 1024]).unwrap();
    let mut large = frames.borrow(3 * F + 512, 2 * F as u32).unwrap();
    fill(&large, &vec![0xcc; 2 * F as usize]);
    frames.commit(&mut large, 3 * F + 512).unwrap();
    frames.zero(6 * F, 100).unwrap();
    frames.discard(7 * F, F).unwrap();
    assert!(bytes_of(&loan) == old);
    let mut want = vec![0; 16 * F as usize];
    let mut put = |at: u64, bytes: &[u8]| want[at as usize..][..bytes.len()].copy_from_slice(bytes);
    put(F / 2, &old);
    put(F, &[0xaa; 4096]);
    put(2 * F - 512, &[0xbb; 1024]);
    put(3 * F + 512, &vec![0xcc; 2 * F as usize]);
    put(6 * F, &[0; 100]);
    put(7 * F, &vec![0; F as usize]);
    assert!(frames.bytes(0, 16 * F as u32) == want);
    drop((loan, large));
    frames.check_quiet();
}

#[test]
fn a_borrowed_write_is_seen_only_when_it_is_committed() {
    let frames = Frames::with_spare(16 * F, 16 * F, 32);
    frames.write(0, &vec![1; 16 * F as usize]).unwrap();
    let len = 3 * F as u32;
    let mut loan = frames.borrow(F + 512, len).unwrap();
    fill(&loan, &vec![2; len as usize]);
    assert!(frames.bytes(0, 16 * F as u32).iter().all(|&b| b == 1));
    let dropped = frames.borrow(F, len).unwrap();
    fill(&dropped, &vec![3; len as usize]);
    drop(dropped);
    frames.commit(&mut loan, F + 512).unwrap();
    assert!(loan.is_empty(), "frames are the volume's now");
    let bytes = frames.bytes(0, 16 * F as u32);
    let (from, to) = (F as usize + 512, 4 * F as usize + 512);
    assert!(bytes[..from].iter().chain(&bytes[to..]).all(|&b| b == 1));
    assert!(bytes[from..to].iter().all(|&b| b == 2));
    frames.check_quiet();
}

#[test]
fn copies_are_as_promised() {
    let frames = Frames::with_spare(1 << 20, 1 << 20, 64);
    let data = vec![7; 128 << 10];
    frames.write(0, &vec![1; 1 << 20]).unwrap();
    let copied = |what: &mut dyn FnMut()| {
        let before = counters::here().copied_bytes;
        what();
        counters::here().copied_bytes - before
    };
    assert_eq!(
        copied(&mut || frames.write(4096, &data[..4096]).unwrap()),
        4096
    );
    assert_eq!(
        copied(&mut || frames.write(F - 4096, &data[..8192]).unwrap()),
        8192
    );
    assert_eq!(copied(&mut || drop(frames.pin(512, 128 << 10))), 0);
    let commit = |offset| {
        let mut loan = frames.borrow(offset, 128 << 10).unwrap();
        copied(&mut || frames.commit(&mut loan, offset).unwrap())
    };
    assert_eq!(commit(128 << 10), 0);
    // The shorter of what was received and what lies around it, at both ends.
    assert_eq!(commit((128 << 10) + 4096), 4096 + 4096);
    frames.check_quiet();
}

#[test]
fn without_spare_frames_writes_do_without_or_are_refused() {
    let frames = Frames::with_spare(16 * F, 16 * F, 8);
    frames.write(0, &vec![1; 16 * F as usize]).unwrap();
    assert!(
        frames.borrow(0, 5 * F as u32).is_none(),
        "half is left for others"
    );
    let loan = frames.borrow(0, 4 * F as u32).unwrap();
    // In place, where no frame is pinned.
    frames.write(F, &vec![2; 8 * F as usize]).unwrap();
    let read = frames.pin(0, 16 * F as u32).unwrap();
    frames.write(0, &[3; 512]).unwrap();
    frames.write(F, &[3; 512]).unwrap();
    frames.write(2 * F, &[3; 512]).unwrap();
    frames.write(3 * F, &[3; 512]).unwrap();
    assert_eq!(frames.write(4 * F, &[3; 512]), Err(FramesRefused::Busy));
    assert_eq!(frames.write(F, &[4; 512]), Ok(()), "that one is not pinned");
    // A write of two frames of which one would have to wait is not half done.
    assert_eq!(
        frames.write(4 * F - 512, &[5; 1024]),
        Err(FramesRefused::Busy)
    );
    assert_eq!(frames.bytes(4 * F - 512, 512), [2; 512]);
    // Holes have frames of their own, and are made without any.
    frames.discard(4 * F, F).unwrap();
    drop(loan);
    frames.write(4 * F, &[6; 512]).unwrap();
    assert_eq!(frames.bytes(4 * F, 1024)[511..513], [6, 0]);
    drop(read);
    frames.check_quiet();
}

#[test]
fn only_writes_that_would_not_be_copied_are_received_into_spare_frames() {
    let (max, half) = (BUF_BYTES_MAX, FRAME_BYTES / 2);
    let frames = Frames::with_spare(4 << 20, 4 << 20, 1024);
    for (len, is_lent) in [
        (half, false),
        (half + 1, true),
        (max, true),
        (max + 1, false),
    ] {
        let loan = frames.borrow(0, len);
        assert_eq!(loan.map(|loan| loan.len()), is_lent.then_some(len));
    }
    frames.check_quiet();
}

#[test]
fn borrow_that_finds_too_few_frames_gives_back_all_that_it_took() {
    let frames = Frames::with_spare(16 * F, 16 * F, 64);
    let inner = frames.inner;
    // As if others had the frames.
    let mut taken = Vec::new();
    while inner.free.count() > 0 {
        taken.extend(inner.take_run(0, 63));
    }
    let (first, n) = taken.swap_remove(0);
    for free in [1, 3] {
        inner.free.give(first, free);
        assert!(frames.borrow(0, 8 * FRAME_BYTES).is_none());
        let left = inner.spare.left.load(Ordering::Relaxed);
        assert_eq!(left, inner.spare.max, "of {free} frames");
        assert!(inner.free.take_these(first, free), "they are free again");
    }
    inner.free.give(first, n);
    for (first, n) in taken {
        inner.free.give(first, n);
    }
    frames.check_quiet();
}

/// What is free is one bit a frame, 64 in a word.
#[test]
fn loans_beside_each_other_share_no_frame() {
    let frames = Frames::with_spare(128 * F, 128 * F, 128);
    let at = |part| part * F;
    let len = 8 * FRAME_BYTES;
    let mut loans = [60, 64, 68].map(|part| (part, frames.borrow(at(part), len).unwrap()));
    for (part, loan) in &loans {
        fill(loan, &vec![*part as u8; len as usize]);
    }
    for (part, loan) in &mut loans {
        assert!(bytes_of(loan).iter().all(|&byte| byte == *part as u8));
        frames.commit(loan, at(*part)).unwrap();
    }
    for (part, byte) in [(60, 60), (64, 64), (68, 68), (72, 68)] {
        assert_eq!(
            frames.bytes(at(part), 4 * FRAME_BYTES),
            vec![byte; 4 * F as usize]
        );
    }
    frames.check_quiet();
}

#[test]
fn large_write_into_frames_that_lie_apart_is_whole() {
    let frames = Frames::with_spare(16 * F, 16 * F, 64);
    frames.write(0, &vec![1; 16 * F as usize]).unwrap();
    let inner = frames.inner;
    let mut taken = Vec::new();
    while inner.free.count() > 0 {
        taken.extend(inner.take_run(0, 63));
    }
    let each = taken.iter().flat_map(|&(first, n)| first..first + n);
    let (even, odd): (Vec<u32>, Vec<u32>) = each.partition(|frame| frame % 2 == 0);
    even.iter().for_each(|&frame| inner.free.give(frame, 1));
    let data: Vec<u8> = (0..12 * F).map(|at| (at / 512) as u8).collect();
    let pieces = frames
        .borrow(0, data.len() as u32)
        .map(|loan| loan.pieces().len());
    assert_eq!(pieces, Some(12));
    frames.write(2 * F, &data).unwrap();
    assert!(frames.bytes(2 * F, data.len() as u32) == data);
    odd.iter().for_each(|&frame| inner.free.give(frame, 1));
    frames.check_quiet();
}

/// As many loans are held as may be, of what is written meanwhile.
#[test]
fn loans_that_are_held_keep_no_write_from_its_frames() {
    let frames = Frames::metered(16 * F, 16 * F, 64);
    frames.write(0, &vec![1; 16 * F as usize]).unwrap();
    let mut held = Vec::new();
    for len in [9 * FRAME_BYTES, 512] {
        while let Some(loan) = frames.pin(0, len) {
            held.push(loan);
            for part in 0..16 {
                frames.write(part * F, &[2; 512]).unwrap();
            }
        }
    }
    assert_eq!(held.len(), 2 + 6, "24 pins of 64 spare frames");
    let received = frames.borrow(0, 8 * FRAME_BYTES).unwrap();
    let region = Region::anonymous(F).unwrap();
    for round in 0..100 {
        for part in 0..16 {
            frames.write(part * F, &[round; 512]).unwrap();
        }
        // Copied instead.
        assert!(frames.pin(0, 512).is_none());
        let bytes = region.range(0, 512);
        frames.read(0, bytes).unwrap();
        frames.compare(0, bytes).unwrap();
    }
    drop((held, received));
    assert_eq!(frames.inner.pins.count(), 24);
    assert!(frames.pin(16 * F, 0).is_some());
    assert!(frames.pin(16 * F, 512).is_none());
    assert_eq!(frames.inner.pins.count(), 24);
    frames.check_quiet();
}

#[test]
fn compare_and_write_is_all_or_nothing() {
    let region = Region::anonymous(1 << 20).unwrap();
    let frames = Frames::with_spare(16 * F, 16 * F, 8);
    let len = 3 * F as u32;
    let (expect, data) = (region.range(0, len), region.range(1 << 19, len));
    copy_in(data, &vec![5; len as usize]);
    frames.compare_and_write(F - 512, expect, data).unwrap();
    assert_eq!(frames.bytes(F - 512, len), vec![5; len as usize]);
    frames.compare(F - 512, data).unwrap();
    copy_in(expect, &vec![5; len as usize]);
    copy_in(expect.slice(F as u32 + 77, 1), &[6]);
    let offset = F as u32 + 77;
    let differs = Err(FramesRefused::Miscompare { offset });
    assert_eq!(frames.compare(F - 512, expect), differs);
    assert_eq!(frames.compare_and_write(F - 512, expect, expect), differs);
    assert_eq!(frames.bytes(F - 512, len), vec![5; len as usize]);
    frames.check_quiet();
}

#[test]
fn reads_and_compares_of_a_whole_step_are_whole_and_longer_ones_are_refused() {
    let max = BUF_BYTES_MAX;
    let size_bytes = u64::from(max) + F;
    let frames = Frames::with_spare(size_bytes, size_bytes, 8);
    let mut want = vec![0; size_bytes as usize];
    // Holes between, so that what is lent is many pieces.
    for part in (0..size_bytes / F).step_by(2) {
        let bytes = vec![1 + part as u8; F as usize];
        frames.write(part * F, &bytes).unwrap();
        want[(part * F) as usize..][..F as usize].copy_from_slice(&bytes);
    }
    let region = Region::anonymous(size_bytes).unwrap();
    let range = |len| region.range(0, len);
    copy_in(range(max), &want[..max as usize]);
    frames.compare(0, range(max)).unwrap();
    frames.read(512, range(max)).unwrap();
    let mut found = vec![0; max as usize];
    copy_out(range(max), &mut found);
    assert!(found == want[512..][..max as usize]);
    frames.write_from(0, range(max)).unwrap();
    frames.compare(0, range(max)).unwrap();
    for refused in [
        frames.read(0, range(max + 512)),
        frames.compare(0, range(max + 512)),
    ] {
        assert_eq!(refused, Err(FramesRefused::Busy), "in one step");
    }
    for offset in [size_bytes - 511, size_bytes, u64::MAX] {
        assert_eq!(
            frames.read(offset, range(512)),
            Err(FramesRefused::OutOfRange)
        );
        assert_eq!(
            frames.compare(offset, range(512)),
            Err(FramesRefused::OutOfRange)
        );
    }
    frames.check_quiet();
}

#[test]
fn bits_are_set_in_place_in_holes_and_beside_readers() {
    let frames = Frames::with_spare(16 * F, 16 * F, 8);
    let region = Region::anonymous(F).unwrap();
    let data = region.range(0, 1024);
    let set = |bits: u8| {
        copy_in(data, &[bits; 1024]);
        // Of two parts, of which the first is a hole to begin with.
        frames.or_from(F - 512, data).unwrap();
        frames.bytes(F - 512, 1024)
    };
    frames.write(F, &[1; 1024]).unwrap();
    assert_eq!(set(2), [[2; 512], [3; 512]].concat());
    assert_eq!(set(4), [[6; 512], [7; 512]].concat());
    let reader = frames.pin(F - 512, 2048).unwrap();
    assert_eq!(set(8), [[14; 512], [15; 512]].concat());
    assert_eq!(frames.bytes(F + 512, 512), [1; 512], "beside it");
    assert_eq!(bytes_of(&reader)[..1024], [[6; 512], [7; 512]].concat());
    assert_eq!(frames.or_from(0, region.range(0, 0)), Ok(()));
    assert_eq!(
        frames.or_from(16 * F - 512, data),
        Err(FramesRefused::OutOfRange)
    );
    drop(reader);
    frames.check_quiet();
}

#[test]
fn holes_are_whole_frames_and_extents_show_them() {
    let frames = Frames::with_spare(16 * F, 16 * F, 8);
    frames.write(0, &vec![1; 16 * F as usize]).unwrap();
    frames.discard(2 * F - 512, 3 * F + 1024).unwrap();
    assert_eq!(frames.extent(0, 16 * F), (true, 2 * F));
    assert_eq!(frames.extent(2 * F, 16 * F), (false, 5 * F));
    assert_eq!(frames.extent(3 * F + 5, 4 * F), (false, 4 * F));
    assert_eq!(frames.extent(5 * F, 16 * F), (true, 16 * F));
    let bytes = frames.bytes(0, 16 * F as u32);
    let hole = (2 * F - 512) as usize..(5 * F + 512) as usize;
    for (i, &byte) in bytes.iter().enumerate() {
        assert_eq!(byte, u8::from(!hole.contains(&i)), "byte {i}");
    }
    frames.check_quiet();
}

/// A reader that sees a hole twice must know whether it is the same one.
#[test]
fn no_hole_has_the_name_of_another() {
    let frames = Frames::with_spare(F, F, 8);
    let mut names = Vec::new();
    for _ in 0..3 {
        names.push(frames.inner.word(0).load(Ordering::Relaxed));
        frames.write(0, &[1; 512]).unwrap();
        frames.discard(0, F).unwrap();
    }
    names.dedup();
    assert_eq!(names.len(), 3);
    assert!(names.iter().all(|name| name & PRESENT == 0));
}

#[test]
fn a_size_is_seen_at_once_and_disturbs_no_reader() {
    let frames = Frames::with_spare(8 * F, 64 * F, 8);
    frames.write(0, &vec![1; 8 * F as usize]).unwrap();
    let read = frames.pin(6 * F, 2 * F as u32).unwrap();
    let mut late = frames.borrow(4 * F, 4 * F as u32).unwrap();
    frames.resize(5 * F + 512).unwrap();
    assert!(bytes_of(&read).iter().all(|&b| b == 1));
    assert!(frames.pin(5 * F, 1024).is_none());
    assert_eq!(
        frames.write(5 * F + 512, &[2; 512]),
        Err(FramesRefused::OutOfRange)
    );
    assert_eq!(
        frames.commit(&mut late, 4 * F),
        Err(FramesRefused::OutOfRange)
    );
    frames.resize(32 * F).unwrap();
    let bytes = frames.bytes(0, 32 * F as u32);
    let end = 5 * F as usize + 512;
    assert!(bytes[..end].iter().all(|&b| b == 1));
    assert!(
        bytes[end..].iter().all(|&b| b == 0),
        "what was cut off is gone"
    );
    frames.write(0, &vec![3; 32 * F as usize]).unwrap();
    assert_eq!(frames.resize(64 * F + 1), Err(FramesRefused::OutOfRange));
    frames.resize(F).unwrap();
    frames.resize(2 * F).unwrap();
    assert!(bytes_of(&read).iter().all(|&b| b == 1));
    drop((read, late));
    frames.resize(2 * F).unwrap();
    frames.check_quiet();
    assert_eq!(frames.inner.free.count(), 8 + 1);
}

/// What lay behind the old end would be seen.
#[test]
fn a_size_whose_new_part_cannot_be_cleared_is_refused() {
    let frames = Frames::with_spare(16 * F, 16 * F, 8);
    frames.write(0, &vec![1; 16 * F as usize]).unwrap();
    let small = 16 * F - 512;
    let read = frames.pin(0, 16 * F as u32).unwrap();
    for part in 0..8 {
        frames.write(part * F, &[2; 512]).unwrap();
    }
    assert_eq!(frames.write(8 * F, &[2; 512]), Err(FramesRefused::Busy));
    frames.resize(small).unwrap();
    frames.resize(small).expect("that is its size");
    assert_eq!(frames.resize(16 * F), Err(FramesRefused::Busy));
    assert_eq!(frames.size_bytes(), small);
    drop(read);
    frames.resize(16 * F).unwrap();
    assert_eq!(frames.bytes(small - 1, 513)[..2], [1, 0]);
    frames.check_quiet();
}

#[test]
fn a_dropped_volume_lives_on_in_its_loans_and_its_memory_is_used_again() {
    // A size that no other test uses.
    let (size, spare) = (77 * F, 11);
    let frames = Frames::with_spare(size, size, spare);
    frames.write(0, &vec![1; size as usize]).unwrap();
    let read = frames.pin(3 * F, 2 * F as u32).unwrap();
    let received = frames.borrow(0, 2 * F as u32).unwrap();
    let inner = frames.inner;
    drop(frames);
    assert!(bytes_of(&read).iter().all(|&b| b == 1));
    let other = Frames::with_spare(size, size, spare);
    assert!(!std::ptr::eq(inner, other.inner), "still lent");
    fill(&received, &vec![2; 2 * F as usize]);
    drop((received, read));
    let again = Frames::with_spare(size, size, spare);
    assert!(std::ptr::eq(inner, again.inner));
    assert!(again.bytes(0, size as u32).iter().all(|&b| b == 0));
    again.write(0, &vec![3; size as usize]).unwrap();
    again.check_quiet();
}

#[test]
fn nothing_goes_past_the_end() {
    let frames = Frames::with_spare(F, F, 8);
    for (offset, len) in [
        (F - 512, 1024),
        (F, 512),
        (1 << 40, 512),
        (u64::MAX, 512),
        (u64::MAX - 100, 101),
    ] {
        let bytes = vec![1; len as usize];
        assert!(frames.pin(offset, len).is_none());
        assert!(frames.borrow(offset & !(F - 1), 2 * FRAME_BYTES).is_none());
        assert_eq!(frames.write(offset, &bytes), Err(FramesRefused::OutOfRange));
        assert_eq!(frames.zero(offset, len), Err(FramesRefused::OutOfRange));
        assert_eq!(
            frames.discard(offset, len.into()),
            Err(FramesRefused::OutOfRange)
        );
    }
    assert!(frames.pin(F, 0).unwrap().is_empty());
    assert_eq!(frames.write(0, &[]), Ok(()));
    assert_eq!(frames.write(F, &[]), Ok(()));
    assert_eq!(frames.discard(F, 0), Ok(()));
    assert!(frames.pin(F + 1, 0).is_none());
}

#[test]
#[should_panic(expected = "where it was borrowed")]
fn a_loan_is_not_committed_elsewhere() {
    let frames = Frames::with_spare(2 * F, 2 * F, 8);
    let mut loan = frames.borrow(0, FRAME_BYTES).unwrap();
    let _ = frames.commit(&mut loan, 512);
}

/// Parts far apart share huge pages, and what was received finds any place.
#[test]
fn thin_content_lies_close_together() {
    let frames = Frames::thin(1 << 34, 4 << 20).unwrap();
    let bytes = vec![7; FRAME_BYTES as usize];
    let far = |i: u64| i * (1 << 28) + 5 * F;
    for i in 0..60 {
        frames.write(far(i), &bytes).unwrap();
        let loan = frames.pin(far(i), FRAME_BYTES).unwrap();
        assert_eq!(bytes_of(&loan), bytes);
    }
    let mut at: Vec<u64> = (0..60)
        .map(|i| frames.pin(far(i), 1).unwrap().pieces()[0].offset() / F)
        .collect();
    at.sort_unstable();
    assert!(at[59] - at[0] < 256, "not close together: {at:?}");
    let mut loan = frames.borrow(100, 3 * FRAME_BYTES).unwrap();
    for &piece in loan.pieces() {
        copy_in(piece, &vec![9; piece.len() as usize]);
    }
    frames.commit_at(&mut loan, far(7) + F + 100).unwrap();
    assert_eq!(
        frames.bytes(far(7) + F + 100, 3 * FRAME_BYTES),
        [9; 3 << 14]
    );
    assert_eq!(frames.bytes(far(7) + F, 100), [0; 100]);
    assert_eq!(frames.extent(far(3) + F, 1 << 34), (false, far(4)));
    for i in 0..60 {
        frames.discard(far(i), 8 * F).unwrap();
    }
    frames.check_quiet();
    assert_eq!(
        frames.inner.free.count() << FRAME_SHIFT,
        (4 << 20) + (128 << 20)
    );
    let used = frames.inner as *const LentInner;
    drop(frames);
    let again = Frames::thin(1 << 34, 4 << 20).unwrap();
    assert!(std::ptr::eq(again.inner, used), "used again");
    assert_eq!(again.extent(0, 1 << 34), (false, 1 << 34));
}

#[test]
#[should_panic(expected = "committed where it fits")]
fn commit_at_another_place_in_a_frame_panics() {
    let frames = Frames::thin(1 << 30, 4 << 20).unwrap();
    let mut loan = frames.borrow(100, FRAME_BYTES).unwrap();
    let _ = frames.commit_at(&mut loan, (1 << 20) + 101);
}

#[test]
fn writes_over_a_full_volume_stay_in_the_memory_that_is_warm() {
    const IO: u32 = 64 * FRAME_BYTES;
    const IOS: u64 = 16;
    // Half of the room is never used: to take it would be to clear pages.
    let frames = Frames::thin(64 * u64::from(IO), 32 * u64::from(IO)).unwrap();
    let mut under_way = std::collections::VecDeque::new();
    let mut seen = std::collections::BTreeSet::new();
    let mut at = 0;
    for step in 0..4000_u64 {
        // Writes under way at once: now one, now many.
        let depth = [1, 8, 3, 8, 2, 5, 8, 1][(step / 3 % 8) as usize];
        while under_way.len() < depth {
            at = (at + 7) % IOS;
            let loan = frames.borrow(at * u64::from(IO), IO).unwrap();
            seen.extend(loan.pieces().iter().map(|piece| piece.offset()));
            assert_eq!(loan.pieces().len(), 1, "a run");
            under_way.push_back((at, loan));
        }
        let (at, mut loan) = under_way.pop_front().unwrap();
        frames.commit(&mut loan, at * u64::from(IO)).unwrap();
    }
    // Those that are there, and those of the writes under way.
    assert!(seen.len() <= IOS as usize + 8 + 1, "{} runs", seen.len());
}
