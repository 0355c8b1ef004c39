//! Many threads at once. Data says which thread wrote it, so that a mix shows.

use super::*;
use random::Random;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::thread;

/// A range that is always written and read as a whole, by calls that promise
/// to be one step.
#[derive(Clone, Copy)]
struct Unit {
    offset: u64,
    len: u32,
}

/// Units of every kind: inside a frame, across two, many, aligned or not;
/// neighbours share frames.
fn units() -> Vec<Unit> {
    let mut units = Vec::new();
    let mut offset = 512;
    for len in [
        4096, 512, 8192, 20_480, 4096, 131_072, 65_536, 1536, 262_144, 16_384, 12_288,
    ] {
        units.push(Unit { offset, len });
        offset += u64::from(len);
    }
    units
}

/// Every 8 bytes say which write this was.
fn data(id: u64, len: u32) -> Vec<u8> {
    id.to_le_bytes().repeat(len as usize / 8)
}

/// The one write that all of the data is of.
fn id_of(bytes: &[u8], what: &str) -> u64 {
    let mut ids = bytes
        .chunks_exact(8)
        .map(|b| u64::from_le_bytes(b.try_into().unwrap()));
    let first = ids.next().unwrap();
    if let Some(at) = ids.position(|id| id != first) {
        panic!("{what}: torn at byte {} of {}", 8 * (at + 1), bytes.len());
    }
    first
}

/// The last write of each thread that is over, and of any that has begun.
struct Seen {
    begun: AtomicU64,
}

const THREAD: u64 = 1 << 40;

/// One thread's work: any write of any unit, and reads in between.
fn work(frames: &Frames, units: &[Unit], seen: &[Seen], me: u64, rounds: u64) {
    let scratch = Region::anonymous(1 << 20).unwrap();
    let mut random = Random::new(me);
    let mut held: Vec<(Loan, u64, usize)> = Vec::new();
    // By unit and writer: what was seen last, before which nothing may show.
    let mut last = vec![[0; 8]; units.len()];
    for round in 1..=rounds {
        let which = random.below(units.len() as u64) as usize;
        let Unit { offset, len } = units[which];
        let id = (me + 1) * THREAD + round;
        seen[me as usize].begun.store(round, Ordering::SeqCst);
        let written = match random.below(12) {
            0..=2 => frames.write(offset, &data(id, len)),
            3..=4 => match frames.borrow(offset, len) {
                Some(mut loan) => {
                    fill(&loan, &data(id, len));
                    match random.below(4) {
                        0 => Err(FramesRefused::Busy),
                        _ => frames.commit(&mut loan, offset),
                    }
                }
                None => Err(FramesRefused::Busy),
            },
            5 => frames.discard(offset, len.into()),
            6 => frames.zero(offset, len),
            7 => {
                let (expect, write) = (scratch.range(0, len), scratch.range(1 << 19, len));
                copy_in(expect, &bytes_of(&frames.pin(offset, len).unwrap()));
                copy_in(write, &data(id, len));
                frames.compare_and_write(offset, expect, write)
            }
            8 => {
                let into = scratch.range(0, len);
                frames.read(offset, into).unwrap();
                let mut bytes = vec![0; len as usize];
                copy_out(into, &mut bytes);
                id_of(&bytes, "copied");
                Ok(())
            }
            _ => {
                let loan = frames.pin(offset, len).unwrap();
                let id = id_of(&bytes_of(&loan), "lent");
                check_order(id, &mut last[which], seen);
                if random.below(3) == 0 {
                    held.push((loan, id, which));
                }
                Ok(())
            }
        };
        assert!(!matches!(written, Err(FramesRefused::OutOfRange)));
        if held.len() > 8 {
            let (loan, id, _) = held.swap_remove(random.below(9) as usize);
            assert_eq!(
                id_of(&bytes_of(&loan), "held"),
                id,
                "a held read has changed"
            );
        }
    }
}

/// Writes of one thread are seen in their order, and none before it begins.
fn check_order(id: u64, last: &mut [u64; 8], seen: &[Seen]) {
    let (writer, round) = ((id / THREAD) as usize, id % THREAD);
    if writer > 0 {
        assert!(
            round <= seen[writer - 1].begun.load(Ordering::SeqCst),
            "from the future"
        );
        assert!(round >= last[writer], "an older write again");
        last[writer] = round;
    }
}

fn run(spare: u32, threads: u64, rounds: u64) {
    let units = units();
    let size = 64 * F;
    let frames = Frames::with_spare(size, 2 * size, spare);
    let seen: Vec<Seen> = (0..threads)
        .map(|_| Seen {
            begun: AtomicU64::new(0),
        })
        .collect();
    let barrier = Barrier::new(threads as usize + 1);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|me| {
                let (frames, units, seen, barrier) = (&frames, &units, &seen, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    work(frames, units, seen, me, rounds);
                })
            })
            .collect();
        let resizer = scope.spawn(|| {
            // Behind the units: content there comes and goes.
            barrier.wait();
            let mut parts = 50;
            while !over.load(Ordering::Relaxed) {
                parts = if parts == 128 { 50 } else { parts + 13 };
                frames.resize(parts * F).unwrap();
                let _ = frames.write(49 * F, &vec![1; (parts as usize - 49).min(30) * F as usize]);
                thread::yield_now();
            }
            frames.resize(size).unwrap();
        });
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        over.store(true, Ordering::Relaxed);
        resizer.join().unwrap();
        for result in results {
            result.unwrap();
        }
    });
    frames.resize(size).unwrap();
    frames.check_quiet();
}

#[test]
fn every_io_is_one_step_to_all_others() {
    run(256, 4, 12_000);
}

#[test]
fn the_same_with_few_frames_to_spare() {
    run(6, 3, 12_000);
}

/// Readers that never let go of all frames, writers of the same frame: every
/// write must find another frame, and give it back.
#[test]
fn one_block_is_written_under_its_readers() {
    let frames = Frames::with_spare(F, F, 16);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut held = frames.pin(0, 4096).unwrap();
                let mut id = id_of(&bytes_of(&held), "first");
                while !over.load(Ordering::Relaxed) {
                    let next = frames.pin(0, 4096).unwrap();
                    let newer = id_of(&bytes_of(&next), "next");
                    assert!(newer >= id);
                    assert_eq!(id_of(&bytes_of(&held), "held"), id);
                    (held, id) = (next, newer);
                }
            });
        }
        for id in 1..30_000 {
            // Spare frames never run out: each reader holds two at most.
            frames.write(0, &data(id, 4096)).unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    frames.check_quiet();
}

/// A frame that is neither lent nor read is written where it is. A reader that comes
/// meanwhile waits, and never takes it for a hole.
#[test]
fn block_that_is_written_where_it_is_is_there_meanwhile() {
    let frames = Frames::with_spare(F, F, 16);
    let bytes = data(1, F as u32);
    frames.write(0, &bytes).unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let scratch = Region::anonymous(4096).unwrap();
            let (into, mut read) = (scratch.range(0, 8), [0; 8]);
            while !over.load(Ordering::Relaxed) {
                frames.read(0, into).unwrap();
                copy_out(into, &mut read);
                assert_eq!(id_of(&read, "copied"), 1);
            }
        });
        for _ in 0..300_000 {
            frames.write(0, &bytes).unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    frames.check_quiet();
}

/// Large reads under large writes, next to nothing but pins and locks: the id
/// stands at the start of each frame alone.
#[test]
fn many_frames_are_read_as_they_were_at_one_moment() {
    const FRAMES: u32 = 100;
    let len = FRAMES * FRAME_BYTES;
    let frames = Frames::with_spare(len.into(), len.into(), 6 * FRAMES);
    let first_bytes = |loan: &Loan, index: u32| {
        let mut parts = loan.parts(index * FRAME_BYTES, 8);
        parts.next().expect("a frame is not cut")
    };
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for me in 1..=2_u64 {
            let (frames, over) = (&frames, &over);
            scope.spawn(move || {
                for round in 1..2500 {
                    let Some(mut loan) = frames.borrow(0, len) else {
                        thread::yield_now();
                        continue;
                    };
                    let id = me << 32 | round;
                    for index in 0..FRAMES {
                        copy_in(first_bytes(&loan, index), &id.to_le_bytes());
                    }
                    frames.commit(&mut loan, 0).unwrap();
                }
                over.store(true, Ordering::Relaxed);
            });
        }
        while !over.load(Ordering::Relaxed) {
            let loan = frames.pin(0, len).unwrap();
            let ids = (0..FRAMES).map(|index| {
                let mut id = [0; 8];
                copy_out(first_bytes(&loan, index), &mut id);
                u64::from_le_bytes(id)
            });
            let ids: Vec<u64> = ids.collect();
            assert!(
                ids.iter().all(|&id| id == ids[0]),
                "two writes in one read: {ids:x?}"
            );
        }
    });
    frames.check_quiet();
}
