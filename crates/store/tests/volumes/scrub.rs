//! Scrubs of checksummed volumes: all blocks are read and compared while hosts write, and what a
//! leg of a mirror has wrong is repaired.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use store::{Error, Io, Scrub, ScrubAction, ScrubState, ScrubStatus, Spec, Volume, open, scrubbed};

use crate::checksummed::flip;
use crate::common::*;
use crate::fake::*;
use crate::mirror::{S, settle, upkeep};
use crate::mirror_checksums::mirror_of;
use crate::ranges::{Desk, write_io};

const SIZE: u64 = 1 << 20;

fn spec_of(folder: &Path, size_bytes: u64) -> Spec {
    Spec {
        checksum: true,
        ..file_spec(&folder.join("disk"), size_bytes)
    }
}

fn volume_in(folder: &Path) -> Arc<dyn Volume> {
    open(&spec_of(folder, SIZE)).unwrap()
}

fn scrub(volume: &dyn Volume) -> &Scrub {
    volume.scrub().expect("it has checksums")
}

fn status(volume: &dyn Volume) -> ScrubStatus {
    scrub(volume).status()
}

fn mismatches(volume: &dyn Volume) -> u64 {
    volume.stats().errors.checksum_mismatch
}

#[test]
fn scrub_finds_each_block_that_was_changed_at_the_rate_that_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let volume = volume_in(folder.path());
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &[7; 65536], true).unwrap();
    settle(&*volume, &mut files, 10 * S);
    for at in [513, 40_000, 40_512, SIZE - 1] {
        flip(&folder.path().join("disk"), at, 1);
    }
    let none = status(&*volume);
    assert_eq!((none.state, none.read_bytes), (ScrubState::None, 0));
    scrub(&*volume).set_rate(SIZE / 2);
    assert!(scrub(&*volume).act(ScrubAction::Start));
    assert!(!scrub(&*volume).act(ScrubAction::Start), "one at a time");
    files.pauses.clear();
    settle(&*volume, &mut files, 100 * S);
    let done = status(&*volume);
    assert_eq!(done.state, ScrubState::Done);
    assert_eq!((done.position_bytes, done.read_bytes), (SIZE, SIZE));
    assert_eq!((done.bad_blocks, done.repaired_blocks), (4, 0));
    assert_eq!(done.bad_lbas, [1, 78, 79, SIZE / 512 - 1]);
    assert_eq!(mismatches(&*volume), 4);
    assert_eq!(volume.stats().verifies, 0, "that is what hosts do");
    // After each chunk but the last.
    assert_eq!(files.pauses.iter().sum::<u64>(), 7 * S / 4);
    assert!(files.pauses.iter().all(|pause| *pause <= S / 10));
    // What was written since is right again, and so it is told.
    for at in [512, 39_936, 40_448, SIZE - 512] {
        write(&*volume, &mut files, at, &[8; 512], true).unwrap();
    }
    assert!(scrub(&*volume).act(ScrubAction::Start));
    settle(&*volume, &mut files, 200 * S);
    let done = status(&*volume);
    assert_eq!((done.state, done.bad_blocks), (ScrubState::Done, 0));
    assert_eq!((done.bad_lbas.len(), done.read_bytes), (0, 2 * SIZE));
}

#[test]
fn scrub_reads_nothing_while_it_is_paused_stopped_or_has_no_rate() {
    let folder = tempfile::tempdir().unwrap();
    let volume = volume_in(folder.path());
    let mut files = Fake::default();
    let scrub = scrub(&*volume);
    use ScrubAction::{Pause, Resume, Start, Stop};
    assert!(!scrub.act(Pause) && !scrub.act(Resume) && !scrub.act(Stop));
    assert!(scrub.act(Start));
    let some = |files: &mut Fake| {
        for _ in 0..6 {
            upkeep(&*volume, files, S);
        }
        scrub.status().position_bytes
    };
    let begun = some(&mut files);
    assert!(0 < begun && begun < SIZE);
    assert!(scrub.act(Pause) && !scrub.act(Pause) && !scrub.act(Start));
    assert_eq!(some(&mut files), begun);
    assert!(scrub.act(Resume) && !scrub.act(Resume));
    let more = some(&mut files);
    assert!(begun < more && more < SIZE);
    scrub.set_rate(0);
    assert_eq!(some(&mut files), more);
    scrub.set_rate(SIZE);
    assert!(scrub.act(Stop) && !scrub.act(Stop));
    assert_eq!(some(&mut files), more);
    assert!(scrub.act(Resume), "one that was stopped goes on, too");
    settle(&*volume, &mut files, 10 * S);
    assert_eq!(scrub.status().state, ScrubState::Done);
    assert_eq!(scrub.status().read_bytes, SIZE, "each block once");
}

#[test]
fn scrub_goes_on_after_a_restart_where_it_was_saved() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Fake::default();
    let reopened = |volume: Arc<dyn Volume>| {
        drop(volume);
        volume_in(folder.path())
    };
    let volume = volume_in(folder.path());
    flip(&folder.path().join("disk"), 1, 1);
    scrub(&*volume).act(ScrubAction::Start);
    for _ in 0..6 {
        upkeep(&*volume, &mut files, S);
    }
    let before = status(&*volume);
    assert!(scrub(&*volume).act(ScrubAction::Pause));
    settle(&*volume, &mut files, 10 * S);
    let volume = reopened(volume);
    let after = status(&*volume);
    assert_eq!((after.state, after.bad_blocks), (ScrubState::Paused, 1));
    assert_eq!(after.position_bytes, before.position_bytes);
    assert!(scrub(&*volume).act(ScrubAction::Resume));
    // That it goes on is saved before it reads.
    upkeep(&*volume, &mut files, S);
    let volume = reopened(volume);
    assert_eq!(status(&*volume).state, ScrubState::Running);
    settle(&*volume, &mut files, 10 * S);
    let done = status(&*volume);
    assert_eq!(done.state, ScrubState::Done);
    assert_eq!(done.read_bytes, SIZE - before.position_bytes);
    // What was saved and is damaged counts for nothing, and the sums are what they are.
    let volume = reopened(volume);
    assert_eq!(status(&*volume).bad_blocks, 1);
    drop(volume);
    flip(&folder.path().join("disk.weft.sums"), 512 + 17, 1);
    let volume = volume_in(folder.path());
    assert_eq!(status(&*volume).state, ScrubState::None);
    assert_eq!(read(&*volume, &mut files, 512, 512).unwrap(), [0; 512]);
}

#[test]
fn scrub_and_writes_wait_for_each_other_so_that_a_block_being_written_is_no_mismatch() {
    const CHUNK: u32 = 128 << 10;
    let folder = tempfile::tempdir().unwrap();
    let volume = volume_in(folder.path());
    let mut desk = Desk::new(&*volume);
    scrub(&*volume).act(ScrubAction::Start);
    desk.upkeep(S).expect("that it goes on is saved");
    desk.finish();
    let reads = |desk: &Desk| {
        let reads = |op: &&Op| matches!(op, Op::Read { len: CHUNK, .. });
        desk.files.log.iter().filter(reads).count()
    };
    let before = desk.start(write_io(0, 1, 4096));
    let scrubbing = desk.upkeep(S).expect("a chunk");
    assert!(desk.tasks[before].is_some() && desk.tasks[scrubbing].is_some());
    assert_eq!(reads(&desk), 0);
    desk.finish();
    assert_eq!(reads(&desk), 1);
    desk.upkeep(S).expect("a pause");
    desk.calls();
    desk.upkeep(S).expect("the next chunk");
    assert_eq!(reads(&desk), 2);
    let behind = desk.start(write_io(CHUNK.into(), 2, 4096));
    assert!(desk.waits(behind));
    desk.finish();
    let mut files = Fake::default();
    settle(&*volume, &mut files, 10 * S);
    let done = status(&*volume);
    assert_eq!((done.state, done.bad_blocks), (ScrubState::Done, 0));
}

#[test]
fn scrub_ends_where_the_volume_ends_when_that_comes() {
    let folder = tempfile::tempdir().unwrap();
    let volume = volume_in(folder.path());
    let mut files = Fake::default();
    scrub(&*volume).act(ScrubAction::Start);
    for _ in 0..6 {
        upkeep(&*volume, &mut files, S);
    }
    let begun = status(&*volume).position_bytes;
    volume.resize(2 * SIZE, false).unwrap();
    volume.resize(begun + 1024, true).unwrap();
    settle(&*volume, &mut files, 10 * S);
    let done = status(&*volume);
    assert_eq!((done.state, done.bad_blocks), (ScrubState::Done, 0));
    assert_eq!(done.position_bytes, begun + 1024);
    // One that is behind the end has nothing left.
    scrub(&*volume).act(ScrubAction::Start);
    for _ in 0..3 {
        upkeep(&*volume, &mut files, S);
    }
    volume.resize(512, true).unwrap();
    settle(&*volume, &mut files, 20 * S);
    assert_eq!(status(&*volume).state, ScrubState::Done);
}

#[test]
fn scrub_that_is_canceled_in_its_middle_goes_on_later() {
    let folder = tempfile::tempdir().unwrap();
    let volume = volume_in(folder.path());
    let mut desk = Desk::new(&*volume);
    scrub(&*volume).act(ScrubAction::Start);
    desk.upkeep(S);
    desk.finish();
    let reading = desk.upkeep(S).unwrap();
    let mut task = desk.tasks[reading].take().expect("it reads");
    task.cancel(&mut desk.files, token_of(reading as u64));
    desk.tasks[reading] = Some(task);
    desk.finish();
    assert_eq!(status(&*volume).position_bytes, 0);
    let behind = desk.start(write_io(0, 1, 4096));
    desk.finish();
    assert!(desk.tasks[behind].is_none(), "nothing of it is locked");
    let mut files = Fake::default();
    settle(&*volume, &mut files, 10 * S);
    let done = status(&*volume);
    assert_eq!((done.state, done.bad_blocks), (ScrubState::Done, 0));
}

#[test]
fn scrub_that_begins_anew_while_it_reads_counts_nothing_of_that() {
    let folder = tempfile::tempdir().unwrap();
    let volume = volume_in(folder.path());
    let mut files = Fake::default();
    scrub(&*volume).act(ScrubAction::Start);
    while status(&*volume).position_bytes == 0 {
        upkeep(&*volume, &mut files, S);
    }
    let mut desk = Desk::new(&*volume);
    desk.upkeep(S).expect("a pause");
    desk.calls();
    desk.upkeep(S).expect("the next chunk");
    scrub(&*volume).act(ScrubAction::Stop);
    scrub(&*volume).act(ScrubAction::Start);
    desk.finish();
    assert_eq!(status(&*volume).position_bytes, 0);
}

#[test]
fn block_that_the_disk_does_not_read_is_one_and_those_beside_it_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let volume = volume_in(folder.path());
    let mut files = Fake::default();
    let (offset, len) = (8192, 512);
    run(&*volume, &mut files, Io::MarkUnreadable { offset, len }).unwrap();
    flip(&folder.path().join("disk"), 8192 + 600, 1);
    scrub(&*volume).act(ScrubAction::Start);
    settle(&*volume, &mut files, 10 * S);
    let done = status(&*volume);
    assert_eq!(done.state, ScrubState::Done);
    assert_eq!(done.bad_lbas, [16, 17]);
    assert_eq!(mismatches(&*volume), 1, "of the other there is no checksum");
}

/// Has legs and mirror do what they do by themselves.
fn settle_all(mirror: &Arc<dyn Volume>, files: &mut Fake, now: u64) {
    for step in 0..20 {
        for leg in scrubbed(mirror) {
            settle(&*leg, files, now + step * S);
        }
        settle(&**mirror, files, now + step * S);
    }
}

fn begin_on_all(mirror: &Arc<dyn Volume>) -> Vec<Arc<dyn Volume>> {
    let legs = scrubbed(mirror);
    assert_eq!(legs.len(), 2);
    for leg in &legs {
        assert!(scrub(&**leg).act(ScrubAction::Start));
    }
    legs
}

#[test]
fn scrub_of_a_mirror_repairs_what_another_leg_has() {
    let folder = tempfile::tempdir().unwrap();
    let (mirror, path) = mirror_of(folder.path());
    let mut files = Fake::default();
    write(&*mirror, &mut files, 0, &[7; 65536], true).unwrap();
    for at in [700, 1300, 60_000] {
        flip(&path(0), at, 1);
    }
    flip(&path(1), 2100, 1);
    // Nobody has this.
    for leg in 0..2 {
        flip(&path(leg), 30_000, 1);
    }
    let legs = begin_on_all(&mirror);
    settle_all(&mirror, &mut files, 10 * S);
    let counts = legs.iter().map(|leg| {
        let done = status(&**leg);
        assert_eq!(done.state, ScrubState::Done);
        assert_eq!(done.bad_lbas, [30_000 / 512]);
        (done.bad_blocks, done.repaired_blocks)
    });
    assert_eq!(counts.collect::<Vec<_>>(), [(4, 3), (2, 1)]);
    for leg in 0..2 {
        let mut there = fs::read(path(leg)).unwrap();
        there[30_000] ^= 1;
        assert!(there[..65536] == [7; 65536]);
    }
    let told = read(&*mirror, &mut files, 29_696, 512);
    assert_eq!(told, Err(Error::ChecksumMismatch));
    assert!(mirror.as_mirror().unwrap().status().is_whole());
}

#[test]
fn scrub_of_a_mirror_repairs_what_is_destroyed_in_large_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let (mirror, path) = mirror_of(folder.path());
    let mut files = Fake::default();
    let bytes = vec![7; SIZE as usize];
    write(&*mirror, &mut files, 0, &bytes, true).unwrap();
    fs::write(path(1), vec![9; SIZE as usize]).unwrap();
    let legs = begin_on_all(&mirror);
    settle_all(&mirror, &mut files, 10 * S);
    let done = status(&*legs[1]);
    let blocks = SIZE / 512;
    assert_eq!((done.bad_blocks, done.repaired_blocks), (blocks, blocks));
    assert!(done.bad_lbas.is_empty() && fs::read(path(1)).unwrap() == bytes);
    assert_eq!(status(&*legs[0]).bad_blocks, 0);
}

#[test]
fn mirror_that_copies_nothing_lets_its_legs_end_their_scrub() {
    let folder = tempfile::tempdir().unwrap();
    let (mirror, path) = mirror_of(folder.path());
    let mut files = Fake::default();
    write(&*mirror, &mut files, 0, &[7; 65536], true).unwrap();
    flip(&path(0), 700, 1);
    mirror.as_mirror().unwrap().set_resync_rate(0);
    let legs = begin_on_all(&mirror);
    settle(&*legs[0], &mut files, 10 * S);
    assert_eq!(status(&*legs[0]).state, ScrubState::Running);
    settle_all(&mirror, &mut files, 10 * S);
    let done = status(&*legs[0]);
    assert_eq!(done.state, ScrubState::Done);
    assert_eq!((done.bad_blocks, done.repaired_blocks), (1, 0));
    assert_eq!(done.bad_lbas, [1]);
}

#[test]
fn volume_that_is_a_leg_no_more_ends_its_scrub_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let (mirror, path) = mirror_of(folder.path());
    let legs = scrubbed(&mirror);
    let mut files = Fake::default();
    write(&*mirror, &mut files, 0, &[7; 65536], true).unwrap();
    flip(&path(0), 700, 1);
    scrub(&*legs[0]).act(ScrubAction::Start);
    settle(&*legs[0], &mut files, 10 * S);
    assert_eq!(status(&*legs[0]).state, ScrubState::Running);
    drop(mirror);
    settle(&*legs[0], &mut files, 20 * S);
    assert_eq!(status(&*legs[0]).state, ScrubState::Done);
}
