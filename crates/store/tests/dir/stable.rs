//! What is promised to be on the disk: writes that come short, syncs that fail, and
//! which operations learn of that.

use super::data::{Told, opened};
use super::*;
use mem::Region;
use store::fs::{Asker, Caller, Progress, Task, Written};

/// What a disk may answer: full, over the quota, too large, broken.
const ERRNOS: [i32; 4] = [libc::ENOSPC, libc::EDQUOT, libc::EFBIG, libc::EIO];

fn holder() -> Caller<'static> {
    Caller {
        uid: 0,
        gid: 0,
        gids: &[],
        now: at(1),
        is_open: true,
        from: Asker::default(),
    }
}

fn written(len: u32, is_stable: bool) -> Result<Output, Error> {
    Ok(Output::Written(Written { len, is_stable }))
}

fn write(region: &Region, file: FileId, is_stable: bool) -> FsOp<'static> {
    FsOp::Write {
        file,
        offset: 0,
        buf: region.range(0, 1000),
        is_stable,
    }
}

fn begin(fs: &Dir, told: &mut Told, op: FsOp<'_>) -> Task {
    match fs.start(&holder(), op, told, 9) {
        Progress::Pending(task) => task,
        Progress::Done(result) => panic!("{result:?}"),
    }
}

#[test]
fn stable_write_of_which_a_part_fits_is_synced_and_answered_stable() {
    let place = Place::new();
    let fs = place.open();
    let file = opened(&fs, b"");
    let region = Region::anonymous(4096).unwrap();
    for errno in ERRNOS {
        let mut told = Told::new();
        (told.bytes_max, told.fails_with, told.fails_after) = (300, Some(errno), 2);
        // The disk takes two parts, refuses the third, and can be synced.
        told.recovers_after = 1;
        let done = told.run(&fs, true, write(&region, file, true));
        assert_eq!(done, written(600, true), "errno {errno}");
        assert_eq!(told.syncs, 1, "errno {errno}");
    }
}

#[test]
fn stable_write_of_which_nothing_fits_is_refused_and_keeps_the_verifier() {
    let place = Place::new();
    let fs = place.open();
    let file = opened(&fs, b"");
    let region = Region::anonymous(4096).unwrap();
    let verifier = fs.verifier();
    let errors = [Error::NoSpc, Error::DQuot, Error::FBig, Error::Io];
    for (errno, error) in ERRNOS.into_iter().zip(errors) {
        let mut told = Told::new();
        told.fails_with = Some(errno);
        let done = told.run(&fs, true, write(&region, file, true));
        assert_eq!(done, Err(error));
        assert_eq!(told.syncs, 0);
    }
    assert_eq!(fs.verifier(), verifier, "nothing was written");
}

#[test]
fn write_that_is_not_stable_of_which_a_part_fits_is_answered_short() {
    let place = Place::new();
    let fs = place.open();
    let file = opened(&fs, b"");
    let region = Region::anonymous(4096).unwrap();
    let mut told = Told::new();
    (told.bytes_max, told.fails_with, told.fails_after) = (300, Some(libc::ENOSPC), 2);
    let done = told.run(&fs, true, write(&region, file, false));
    assert_eq!(done, written(600, false));
    assert_eq!(told.syncs, 0);
}

#[test]
fn failed_sync_of_any_errno_changes_the_verifier() {
    let place = Place::new();
    let fs = place.open();
    let file = opened(&fs, b"");
    let region = Region::anonymous(4096).unwrap();
    let mut seen = vec![fs.verifier()];
    for errno in ERRNOS.into_iter().chain([libc::EROFS, libc::EINVAL]) {
        let mut told = Told::new();
        told.fails_with = Some(errno);
        assert!(told.run(&fs, true, FsOp::Commit { file }).is_err());
        assert!(!seen.contains(&fs.verifier()), "COMMIT: errno {errno}");
        seen.push(fs.verifier());
        // All of it is written, and cannot be synced.
        told.fails_after = 1;
        assert!(told.run(&fs, true, write(&region, file, true)).is_err());
        assert!(!seen.contains(&fs.verifier()), "WRITE: errno {errno}");
        seen.push(fs.verifier());
    }
}

/// The kernel tells a failed writeback to one of two syncs that overlap.
#[test]
fn commits_on_two_reactors_both_learn_of_a_failed_sync() {
    let place = Place::new();
    let fs = place.open();
    let file = opened(&fs, b"content");
    let (mut one, mut other) = (Told::new(), Told::new());
    let before = fs.verifier();
    one.fails_with = Some(libc::EIO);
    let first = begin(&fs, &mut one, FsOp::Commit { file });
    let second = begin(&fs, &mut other, FsOp::Commit { file });
    // The second hears from the disk before the first does, if it has asked.
    let second = match other.done.pop_front() {
        Some((_, result)) => fs.resume(second, result, &mut other, 9),
        None => Progress::Pending(second),
    };
    if let Progress::Done(Ok(_)) = second {
        assert_ne!(fs.verifier(), before, "it is told that all is well");
    }
    let (_, result) = one.done.pop_front().unwrap();
    let first = fs.resume(first, result, &mut one, 9);
    assert!(matches!(first, Progress::Done(Err(Error::Io))), "{first:?}");
    assert_ne!(fs.verifier(), before);
    let Progress::Pending(second) = second else {
        panic!("it was refused before: {second:?}");
    };
    assert!(
        other.bell.is_rung(),
        "the end of the first wakes the second"
    );
    let second = fs.resume(second, Ok(0), &mut other, 9);
    assert!(
        matches!(second, Progress::Done(Err(Error::Io))),
        "{second:?}"
    );
}

/// What it wrote may be what could not be brought to the disk.
#[test]
fn stable_write_beside_a_failed_sync_of_its_file_is_refused() {
    let place = Place::new();
    let fs = place.open();
    let file = opened(&fs, b"content");
    let region = Region::anonymous(4096).unwrap();
    let (mut one, mut other) = (Told::new(), Told::new());
    one.fails_with = Some(libc::ENOSPC);
    let commit = begin(&fs, &mut one, FsOp::Commit { file });
    let mut task = begin(&fs, &mut other, write(&region, file, true));
    let (_, result) = one.done.pop_front().unwrap();
    let commit = fs.resume(commit, result, &mut one, 9);
    assert!(matches!(commit, Progress::Done(Err(Error::NoSpc))));
    let done = loop {
        let (_, result) = other.done.pop_front().expect("the operation is under way");
        match fs.resume(task, result, &mut other, 9) {
            Progress::Done(result) => break result,
            Progress::Pending(next) => task = next,
        }
    };
    assert_eq!(done, Err(Error::NoSpc));
    // A write that begins after it is not concerned.
    let done = other.run(&fs, true, write(&region, file, true));
    assert_eq!(done, written(1000, true));
}

/// However many wait for a sync, those that came while it was under way share the
/// next one.
#[test]
fn commits_that_come_during_a_sync_share_the_next() {
    let place = Place::new();
    let fs = place.open();
    let file = opened(&fs, b"content");
    let mut told = Told::new();
    let mut tasks: Vec<Task> = (0..5)
        .map(|_| begin(&fs, &mut told, FsOp::Commit { file }))
        .collect();
    assert_eq!(told.syncs, 1, "one sync of a file at a time");
    let first = fs.resume(tasks.remove(0), Ok(0), &mut told, 9);
    assert!(matches!(first, Progress::Done(Ok(Output::Done))));
    // One of them asks the disk for all.
    let mut waiting = Vec::new();
    for task in tasks {
        match fs.resume(task, Ok(0), &mut told, 9) {
            Progress::Pending(task) => waiting.push(task),
            done @ Progress::Done(_) => panic!("{done:?}"),
        }
    }
    assert_eq!(told.syncs, 2);
    for task in waiting {
        let done = fs.resume(task, Ok(0), &mut told, 9);
        assert!(matches!(done, Progress::Done(Ok(Output::Done))));
    }
    assert_eq!(told.syncs, 2);
}
