//! What operations cost in units ([`machine::work`]), with tables as full as they get.

use machine::work::{OPERATION_UNITS_MAX, TURN_UNITS_MAX, take_turn};
use store::frames::FRAME_BYTES;
use store::fs::{Error, FileId, FsOp, Memory, Output, Progress, Seek, SetAttr, Time};

use crate::user::{User, size};

const MIB: u64 = 1 << 20;
/// Names of a directory.
const NAMES: u32 = 30_000;

fn memory(bytes: u64) -> Memory {
    Memory::new("units", bytes, 1, Time::default()).expect("memory is left")
}

/// What `operation` costs.
fn units_of<T>(operation: impl FnOnce() -> T) -> (T, u64) {
    let mut units = 0;
    let value = take_turn(&mut units, u64::MAX, operation);
    (value, units)
}

#[test]
fn listing_goes_on_without_a_look_at_what_was_listed() {
    let fs = memory(64 * MIB);
    let mut user = User::root(&fs);
    let dir = user.top();
    let file = user.file(dir, b"0");
    for number in 1..NAMES {
        let name = number.to_string();
        let name = name.as_bytes();
        user.run(FsOp::Link { file, dir, name }).expect("room");
    }
    let (mut cookie, mut count) = (0, 0);
    loop {
        let (listing, units) = units_of(|| user.list(dir, cookie, 100).expect("a listing"));
        assert!(
            units < 200,
            "{units} units for 100 entries from cookie {cookie}"
        );
        count += listing.len();
        match listing.iter().last().map(|(entry, _)| entry.cookie) {
            Some(last) if !listing.is_end => cookie = last,
            _ => break,
        }
    }
    assert_eq!(count, NAMES as usize);
    let (found, units) = units_of(|| user.lookup(dir, b"29999"));
    assert!(found.is_ok() && units < 8, "{units} units for a LOOKUP");
}

/// Runs an operation to its end, which is `Ok`; what its dearest step cost, and all of them.
fn run(user: &mut User<'_>, op: FsOp<'_>) -> (u64, u64) {
    let (result, dearest, all) = try_run(user, op);
    assert!(matches!(result, Ok(Output::Done | Output::Copied(_))));
    (dearest, all)
}

/// The same with its end.
fn try_run(user: &mut User<'_>, op: FsOp<'_>) -> (Result<Output, Error>, u64, u64) {
    let (mut progress, mut dearest) = units_of(|| user.start(op));
    let mut all = dearest;
    loop {
        match progress {
            Progress::Done(result) => return (result, dearest, all),
            Progress::Pending(task) => {
                let units;
                (progress, units) = units_of(|| user.turn(task));
                dearest = dearest.max(units);
                all += units;
            }
        }
    }
}

#[test]
fn copy_of_many_extents_looks_at_each_once() {
    const BYTES: u64 = 64 * MIB;
    let frame = u64::from(FRAME_BYTES);
    let fs = memory(4 * BYTES);
    let mut user = User::root(&fs);
    let dir = user.top();
    let (whole, holed) = (user.file(dir, b"whole"), user.file(dir, b"holed"));
    let to = user.file(dir, b"to");
    let (file, offset, len) = (whole, 0, BYTES);
    run(&mut user, FsOp::Allocate { file, offset, len });
    for at in (0..BYTES).step_by(2 * frame as usize) {
        user.write(holed, at, b"data").expect("room");
    }
    for from in [whole, holed] {
        for is_clone in [false, true] {
            let (from_offset, to_offset, len) = (0, 0, BYTES - 2 * frame);
            let op = match is_clone {
                true => FsOp::Clone {
                    from,
                    from_offset,
                    to,
                    to_offset,
                    len,
                },
                false => FsOp::Copy {
                    from,
                    from_offset,
                    to,
                    to_offset,
                    len,
                },
            };
            let (dearest, all) = run(&mut user, op);
            assert!(dearest < OPERATION_UNITS_MAX, "{dearest} units for a step");
            // Each KiB, and some looks at each frame.
            let max = BYTES / 1024 + 16 * BYTES / frame;
            assert!(all < max, "{all} units, {max} at most");
        }
    }
}

#[test]
fn deallocation_of_a_large_file_looks_at_each_extent_once() {
    const BYTES: u64 = 256 * MIB;
    let frame = u64::from(FRAME_BYTES);
    let fs = memory(2 * BYTES);
    let mut user = User::root(&fs);
    let dir = user.top();
    let file = user.file(dir, b"holed");
    for at in (0..BYTES).step_by(64 * frame as usize) {
        user.write(file, at, b"data").expect("room");
    }
    let (offset, len) = (0, BYTES);
    let (dearest, all) = run(&mut user, FsOp::Deallocate { file, offset, len });
    assert!(dearest < OPERATION_UNITS_MAX, "{dearest} units for a step");
    let max = 16 * BYTES / frame;
    assert!(all < max, "{all} units, {max} at most");
}

/// Bytes that lie in the largest run of addresses of a file.
const CHUNK_BYTES: u64 = 32 * MIB;
/// As many runs with a frame each, which take 96 MiB: six million frames in all.
const CHUNKS: u64 = 3000;

fn sparse_file(user: &mut User<'_>) -> FileId {
    let file = user.file(user.top(), b"sparse");
    for at in 0..CHUNKS {
        user.write(file, at * CHUNK_BYTES, b"data").expect("room");
    }
    file
}

#[test]
fn truncation_of_a_huge_sparse_file_is_cheap_and_counts_what_is_left() {
    let fs = memory(128 * MIB);
    let mut user = User::root(&fs);
    let file = sparse_file(&mut user);
    let half = (CHUNKS / 2) * CHUNK_BYTES;
    for (len, frames) in [(half, CHUNKS / 2), (1, 1), (0, 0)] {
        let set: SetAttr = size(len);
        let guard = None;
        let (result, dearest, _) = try_run(&mut user, FsOp::Setattr { file, set, guard });
        assert!(result.is_ok());
        assert!(dearest < TURN_UNITS_MAX, "{dearest} units for a step");
        let used = user.attr(file).expect("it is there").used_bytes;
        assert_eq!(used, frames * u64::from(FRAME_BYTES), "at {len} bytes");
    }
}

#[test]
fn allocation_that_does_not_fit_is_refused_without_a_look_at_each_frame() {
    let fs = memory(128 * MIB);
    let mut user = User::root(&fs);
    let file = sparse_file(&mut user);
    let (offset, len) = (0, CHUNKS * CHUNK_BYTES);
    let (result, dearest, _) = try_run(&mut user, FsOp::Allocate { file, offset, len });
    assert!(matches!(result, Err(Error::NoSpc)));
    assert!(dearest < TURN_UNITS_MAX, "{dearest} units for a step");
}

#[test]
fn seek_looks_at_frames_of_two_runs_at_most() {
    const BYTES: u64 = 160 * MIB;
    let fs = memory(2 * BYTES);
    let mut user = User::root(&fs);
    let file = user.file(user.top(), b"whole");
    let (offset, len) = (0, BYTES);
    run(&mut user, FsOp::Allocate { file, offset, len });
    let seek = |user: &mut User<'_>, what| {
        let offset = 5;
        let (result, dearest, _) = try_run(user, FsOp::Seek { file, offset, what });
        assert!(dearest < 128, "{dearest} units for a SEEK");
        match result {
            Ok(Output::Found { offset, is_end }) => (offset, is_end),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(seek(&mut user, Seek::Data), (5, false));
    assert_eq!(seek(&mut user, Seek::Hole), (BYTES, true));
    let (offset, len) = (BYTES - MIB, u64::from(FRAME_BYTES));
    run(&mut user, FsOp::Deallocate { file, offset, len });
    assert_eq!(seek(&mut user, Seek::Hole), (offset, false));
}
