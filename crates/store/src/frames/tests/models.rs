//! Models of a few threads on the same frames. Before each operation on an atomic a
//! scheduler draws which thread goes on: `cargo xtask shuttle`. It knows no order of
//! memory that is weaker than one operation after the other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use faults::Fault;
use shuttle::scheduler::RandomScheduler;
use shuttle::{Config, FailurePersistence, MaxSteps, Runner, thread};

use super::*;

/// Orders drawn for each model.
const ORDERS: usize = 10_000;
/// What every thread reads or writes as a whole: parts of two frames.
const AT: u64 = F - 512;
const LEN: u32 = 1024;

type Actor = fn(&Frames);

/// Runs all actors at once on a volume of one content, in many orders, the same each
/// time.
fn run(actors: &'static [Actor]) {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(1 << 20);
    let scheduler = RandomScheduler::new_from_seed(1, ORDERS);
    Runner::new(scheduler, config).run(|| {
        let frames = Arc::new(Frames::with_spare(4 * F, 4 * F, 16));
        frames.write(AT, &[1; LEN as usize]).unwrap();
        let threads: Vec<_> = actors
            .iter()
            .map(|actor| {
                let frames = Arc::clone(&frames);
                thread::spawn(move || actor(&frames))
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        whole(&frames.bytes(AT, LEN));
        frames.check_quiet();
    });
}

/// The one write that all of the bytes are of.
fn whole(bytes: &[u8]) -> u8 {
    let first = bytes[0];
    assert!(bytes.iter().all(|&byte| byte == first), "a torn read");
    first
}

fn read(frames: &Frames) {
    let loan = frames.pin(AT, LEN).unwrap();
    let first = whole(&bytes_of(&loan));
    thread::yield_now();
    let held = whole(&bytes_of(&loan));
    assert_eq!(held, first, "a held read has changed");
}

/// In place, or into other frames where some are pinned.
fn write<const BYTE: u8>(frames: &Frames) {
    frames.write(AT, &[BYTE; LEN as usize]).unwrap();
}

fn commit<const BYTE: u8>(frames: &Frames) {
    let mut loan = frames.borrow(0, 2 * FRAME_BYTES).unwrap();
    fill(&loan, &[BYTE; 2 * FRAME_BYTES as usize]);
    frames.commit(&mut loan, 0).unwrap();
}

fn discard(frames: &Frames) {
    frames.discard(0, 2 * F).unwrap();
}

const IN_PLACE: &[Actor] = &[read, read, write::<2>, write::<3>];
const COMMITS: &[Actor] = &[read, read, commit::<2>, commit::<3>];
const MIXED: &[Actor] = &[read, write::<2>, commit::<3>, discard];

#[test]
fn model_of_writes_in_place_under_readers_tears_nothing_and_loses_no_frame() {
    run(IN_PLACE);
}

#[test]
fn model_of_commits_under_readers_tears_nothing_and_loses_no_frame() {
    run(COMMITS);
}

#[test]
fn model_of_all_kinds_of_change_tears_nothing_and_loses_no_frame() {
    run(MIXED);
}

/// The model fails, with these words of its own.
fn is_found(fault: Fault, actors: &'static [Actor], words: &str) {
    faults::set(Some(fault));
    let found = catch_unwind(AssertUnwindSafe(|| run(actors)));
    faults::set(None);
    let panic = found.expect_err("the fault is found");
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).into()));
    let text = text.unwrap_or_default();
    assert!(text.contains(words), "{text}");
}

#[test]
fn model_finds_a_pin_that_is_never_compared() {
    is_found(Fault::NoSnapshots, COMMITS, "a torn read");
}

#[test]
fn model_finds_a_commit_without_locks() {
    is_found(Fault::CommitUnlocked, MIXED, "torn");
}

#[test]
fn model_finds_a_pinned_frame_that_is_retired_as_free() {
    is_found(Fault::FreePinned, COMMITS, "pins of replaced frames left");
}
