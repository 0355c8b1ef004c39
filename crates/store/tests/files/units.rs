//! What operations cost in units ([`machine::work`]), with tables as full as they get.

use machine::work::{OPERATION_UNITS_MAX, take_turn};
use store::frames::FRAME_BYTES;
use store::fs::{FsOp, Memory, Output, Progress, Time};

use crate::user::User;

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

/// Runs an operation to its end; what its dearest step cost, and all of them.
fn run(user: &mut User<'_>, op: FsOp<'_>) -> (u64, u64) {
    let (mut progress, mut dearest) = units_of(|| user.start(op));
    let mut all = dearest;
    loop {
        match progress {
            Progress::Done(result) => {
                assert!(matches!(result, Ok(Output::Done | Output::Copied(_))));
                return (dearest, all);
            }
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
