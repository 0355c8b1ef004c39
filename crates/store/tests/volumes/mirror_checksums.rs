//! Mirrors of checksummed volumes, and mirrors with checksums above them: each block is read from a
//! leg that has it right, and copied to those that have not.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use needs::each_driver;
use reactor::Choice;
use store::{Error, Io, Kind, ScrubAction, ScrubState, Spec, Volume, open, open_over};

use crate::checksummed::{WRONG, flip};
use crate::common::*;
use crate::compare::{compare, compare_and_write, verify};
use crate::fake::*;
use crate::mirror::{S, settle, words};
use crate::ranges::{Desk, read_io, write_io};

pub const SIZE: u64 = 1 << 20;

/// A file volume with checksums, which is a leg of a mirror.
fn leg_of(folder: &Path, leg: usize) -> Arc<dyn Volume> {
    let name = format!("leg{leg}");
    let kind = Kind::file(folder.join(&name));
    let checksum = true;
    open(&Spec {
        checksum,
        ..Spec::new(name, kind, SIZE, 512)
    })
    .unwrap()
}

/// A mirror of two of them, and where they lie.
pub fn mirror_of(folder: &Path) -> (Arc<dyn Volume>, impl Fn(usize) -> PathBuf) {
    let spec = Spec {
        state: Some(folder.join("state")),
        ..Spec::new("disk", Kind::mirror(&["leg0", "leg1"]), SIZE, 512)
    };
    let legs = (0..2).map(|leg| leg_of(folder, leg)).collect();
    let volume = open_over(&spec, legs).unwrap();
    let folder = folder.to_owned();
    (volume, move |leg| folder.join(format!("leg{leg}")))
}

#[test]
fn mirror_reads_another_leg_and_mends_the_one_that_has_other_data() {
    let folder = tempfile::tempdir().unwrap();
    let (volume, path) = mirror_of(folder.path());
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &[7; 4096], true).unwrap();
    // Both have alone what lies beside that.
    flip(&path(0), 700, 1);
    flip(&path(1), 2100, 1);
    for _ in 0..4 {
        assert_eq!(read(&*volume, &mut files, 512, 512).unwrap(), [7; 512]);
        assert_eq!(read(&*volume, &mut files, 2048, 512).unwrap(), [7; 512]);
    }
    let status = volume.as_mirror().unwrap().status();
    assert!(status.is_whole(), "no leg lacks anything: {status:?}");
    settle(&*volume, &mut files, 10 * S);
    for leg in 0..2 {
        let mended = fs::read(path(leg)).unwrap();
        assert!(mended[..4096] == [7; 4096] && mended[4096..] == vec![0; SIZE as usize - 4096]);
    }
    let mismatches = || -> u64 {
        let legs = volume.as_mirror().unwrap().volumes();
        legs.iter()
            .map(|leg| leg.stats().errors.checksum_mismatch)
            .sum()
    };
    let before = mismatches();
    assert!(before >= 2);
    for _ in 0..4 {
        assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), [7; 4096]);
    }
    assert_eq!(mismatches(), before);
    // What no leg has is an error, and the rest of it is mended all the same.
    flip(&path(0), 700, 1);
    flip(&path(1), 700, 1);
    flip(&path(1), 2100, 1);
    assert_eq!(read(&*volume, &mut files, 512, 512).map(drop), WRONG);
    for _ in 0..4 {
        assert_eq!(read(&*volume, &mut files, 1024, 2048).unwrap(), [7; 2048]);
    }
    settle(&*volume, &mut files, 100 * S);
    assert_eq!(fs::read(path(1)).unwrap()[2048..4096], [7; 2048]);
}

#[test]
fn mirror_reads_what_each_leg_has_of_a_range_that_none_has_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (volume, path) = mirror_of(folder.path());
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &[7; 65536], true).unwrap();
    flip(&path(0), 700, 1);
    flip(&path(1), 2100, 1);
    flip(&path(0), 60_000, 1);
    assert!(read(&*volume, &mut files, 0, 65536).unwrap() == [7; 65536]);
    run(&*volume, &mut files, compare(0, &[7; 4096])).unwrap();
    settle(&*volume, &mut files, 10 * S);
    for leg in 0..2 {
        assert!(fs::read(path(leg)).unwrap()[..65536] == [7; 65536]);
    }
    // A block that no leg has is an error, and no other one.
    flip(&path(0), 700, 1);
    flip(&path(1), 700, 1);
    assert_eq!(read(&*volume, &mut files, 0, 4096).map(drop), WRONG);
    assert_eq!(read(&*volume, &mut files, 1024, 4096).unwrap(), [7; 4096]);
}

#[test]
fn leg_gets_what_it_lacks_from_the_leg_that_has_it_right() {
    let folder = tempfile::tempdir().unwrap();
    let (volume, path) = mirror_of(folder.path());
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &[7; 65536], true).unwrap();
    flip(&path(0), 700, 1);
    flip(&path(1), 60_000, 1);
    let mirror = volume.as_mirror().unwrap();
    let mut legs = mirror.volumes();
    legs.push(leg_of(folder.path(), 2));
    mirror.set_legs(legs).unwrap();
    settle(&*volume, &mut files, 10 * S);
    assert!(fs::read(path(2)).unwrap()[..65536] == [7; 65536]);
    assert!(volume.as_mirror().unwrap().status().is_whole());
}

#[test]
fn leg_that_was_out_comes_back_whatever_its_first_block_holds() {
    for is_marked in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (volume, path) = mirror_of(folder.path());
        let mut files = Fake::default();
        write(&*volume, &mut files, 0, &[7; 65536], true).unwrap();
        let (offset, len) = (0, 512);
        match is_marked {
            true => run(&*volume, &mut files, Io::MarkUnreadable { offset, len }).unwrap(),
            false => flip(&path(1), 10, 1),
        }
        files.faults.extend([Fault::None, Fault::Errno(libc::EIO)]);
        write(&*volume, &mut files, 4096, &[8; 512], false).unwrap();
        assert_eq!(words(&*volume), ["in-sync", "out"]);
        settle(&*volume, &mut files, 20 * S);
        assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
        let told = read(&*volume, &mut files, 0, 512);
        match is_marked {
            true => assert_eq!(told, Err(Error::Unreadable)),
            false => assert_eq!(told.unwrap(), [7; 512]),
        }
        let there = fs::read(path(1)).unwrap();
        assert!(there[4096..4608] == [8; 512] && there[4608..65536] == [7; 65536 - 4608]);
    }
}

/// A mirror of so many files that has checksums itself.
fn summed(folder: &Path, legs: usize) -> (Arc<dyn Volume>, impl Fn(usize) -> PathBuf) {
    let names: Vec<String> = (0..legs).map(|leg| format!("leg{leg}")).collect();
    let below = names.iter().map(|name| {
        let kind = Kind::file(folder.join(name));
        open(&Spec::new(name.clone(), kind, SIZE, 512)).unwrap()
    });
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let spec = Spec {
        state: Some(folder.join("state")),
        checksum: true,
        ..Spec::new("disk", Kind::mirror(&names), SIZE, 512)
    };
    let volume = open_over(&spec, below.collect()).unwrap();
    let folder = folder.to_owned();
    (volume, move |leg| folder.join(format!("leg{leg}")))
}

fn repaired(volume: &dyn Volume) -> u64 {
    volume.as_mirror().unwrap().status().repaired_bytes
}

#[each_driver]
fn checksummed_mirror_reads_another_leg_and_writes_the_right_bytes_to_the_wrong_ones(
    choice: Choice,
) {
    for legs in 2..=3 {
        let folder = tempfile::tempdir().unwrap();
        let (volume, path) = summed(folder.path(), legs);
        let mut files = Real::open(choice);
        write(&*volume, &mut files, 0, &[7; 8192], true).unwrap();
        // Each has alone what lies beside that, and the last leg all.
        for leg in 0..legs {
            flip(&path(leg), 700 + 512 * leg as u64, 1);
        }
        (0..legs - 1).for_each(|leg| flip(&path(leg), 5000, 1));
        for _ in 0..legs {
            assert_eq!(read(&*volume, &mut files, 0, 8192).unwrap(), [7; 8192]);
        }
        for leg in 0..legs {
            assert!(fs::read(path(leg)).unwrap()[..8192] == [7; 8192]);
        }
        assert_eq!(repaired(&*volume), 512 * (2 * legs as u64 - 1));
        assert_eq!(volume.stats().errors.total(), 0);
        assert!(volume.as_mirror().unwrap().status().is_whole());
    }
}

#[test]
fn checksummed_mirror_has_an_error_for_what_no_leg_has_and_never_other_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let (volume, path) = summed(folder.path(), 2);
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &[7; 4096], true).unwrap();
    for leg in 0..2 {
        flip(&path(leg), 700, 1 << leg);
    }
    let before = [fs::read(path(0)).unwrap(), fs::read(path(1)).unwrap()];
    for _ in 0..3 {
        assert_eq!(read(&*volume, &mut files, 0, 4096).map(drop), WRONG);
        assert_eq!(read(&*volume, &mut files, 1024, 512).unwrap(), [7; 512]);
    }
    assert_eq!(
        before,
        [fs::read(path(0)).unwrap(), fs::read(path(1)).unwrap()]
    );
    assert_eq!(
        (repaired(&*volume), volume.stats().errors.checksum_mismatch),
        (0, 3)
    );
    write(&*volume, &mut files, 512, &[8; 512], true).unwrap();
    assert_eq!(read(&*volume, &mut files, 512, 512).unwrap(), [8; 512]);
}

#[test]
fn all_that_reads_of_a_checksummed_mirror_finds_what_one_leg_has() {
    let folder = tempfile::tempdir().unwrap();
    let (volume, path) = summed(folder.path(), 2);
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &[7; 4096], true).unwrap();
    let or = |bits: u8| {
        let buf = buffer(512);
        mem::copy_in(buf, &[bits; 512]);
        Io::OrWrite {
            offset: 512,
            buf,
            scratch: buffer(512),
            durable: false,
        }
    };
    let ios = [
        (compare(0, &[7; 4096]), 7),
        (verify(0, 4096, 100), 7),
        (verify(0, 4096, 4096), 7),
        (compare_and_write(512, &[7; 512], &[8; 512], false), 8),
        (or(16), 24),
    ];
    for (io, byte) in ios {
        flip(&path(0), 700, 1);
        flip(&path(1), 1100, 1);
        run(&*volume, &mut files, io).unwrap();
        for _ in 0..2 {
            let mut expected = [7; 1024];
            expected[..512].fill(byte);
            let there = read(&*volume, &mut files, 512, 1024);
            assert_eq!(there.unwrap(), expected);
        }
        for leg in 0..2 {
            let there = fs::read(path(leg)).unwrap();
            assert!(there[512..1024] == [byte; 512] && there[1024..4096] == [7; 3072]);
        }
    }
    assert_eq!(volume.stats().errors.total(), 0);
}

/// A write that meets a repair waits for it, and is on both legs in the end.
#[test]
fn repair_never_replaces_a_newer_write() {
    let folder = tempfile::tempdir().unwrap();
    let (volume, path) = summed(folder.path(), 2);
    for step in 0.. {
        let mut files = Fake::default();
        write(&*volume, &mut files, 0, &[7; 512], true).unwrap();
        flip(&path(step % 2), 100, 1);
        let mut desk = Desk::new(&*volume);
        let read = desk.start(read_io(0, 512).0);
        (0..step).for_each(|_| {
            if desk.files.pending() > 0 {
                desk.step_at(0);
            }
        });
        let is_over = desk.results[read].is_some();
        let newer = desk.start(write_io(0, 9, 512));
        assert!(is_over || desk.waits(newer));
        desk.finish();
        assert!(desk.results.iter().all(|result| *result == Some(Ok(()))));
        for leg in 0..2 {
            assert!(fs::read(path(leg)).unwrap()[..512] == [9; 512], "{step}");
        }
        if is_over && step > 8 {
            return;
        }
    }
}

#[test]
fn leg_of_a_checksummed_mirror_that_is_out_gets_nothing_by_a_repair() {
    let folder = tempfile::tempdir().unwrap();
    let (volume, path) = summed(folder.path(), 3);
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &[7; 4096], true).unwrap();
    // The sums are written and synced before the legs are.
    files.log.clear();
    write(&*volume, &mut files, 4096, &[7; 512], false).unwrap();
    let before = files.log.len() - 3;
    files.faults.extend((0..before).map(|_| Fault::None));
    files.faults.extend([Fault::None, Fault::Errno(libc::EIO)]);
    write(&*volume, &mut files, 8192, &[7; 512], false).unwrap();
    assert_eq!(words(&*volume), ["in-sync", "out", "in-sync"]);
    flip(&path(0), 700, 1);
    flip(&path(1), 700, 2);
    let stale = fs::read(path(1)).unwrap();
    for _ in 0..3 {
        assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), [7; 4096]);
    }
    assert!(fs::read(path(0)).unwrap()[..4096] == [7; 4096]);
    assert!(fs::read(path(1)).unwrap() == stale);
    assert_eq!(repaired(&*volume), 512);
}

#[test]
fn leg_that_does_not_take_a_repair_stays_as_it_is_and_the_read_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let (volume, path) = summed(folder.path(), 2);
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &[7; 512], true).unwrap();
    flip(&path(0), 100, 1);
    flip(&path(0), 600, 1);
    let mut desk = Desk::new(&*volume);
    for _ in 0..2 {
        desk.start(read_io(0, 512).0);
        desk.finish_all();
    }
    assert!(fs::read(path(0)).unwrap()[..512] == [7; 512]);
    // The first read of one of two is of that leg: three reads go before the write.
    let at = |volume: &dyn Volume, files: &mut Fake, reads: usize| {
        files.faults.extend((0..reads).map(|_| Fault::None));
        files.faults.push_back(Fault::Errno(libc::EIO));
        let told = read(volume, files, 512, 512);
        files.faults.clear();
        told.unwrap()
    };
    for _ in 0..2 {
        assert_eq!(at(&*volume, &mut files, 3), [0; 512]);
    }
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
    for _ in 0..2 {
        assert_eq!(read(&*volume, &mut files, 512, 512).unwrap(), [0; 512]);
    }
    assert!(fs::read(path(0)).unwrap()[..1024] == *[[7; 512], [0; 512]].concat());
}

#[test]
fn scrub_of_a_checksummed_mirror_reads_each_leg_and_repairs_what_another_one_has() {
    let folder = tempfile::tempdir().unwrap();
    let (volume, path) = summed(folder.path(), 3);
    let mut files = Fake::default();
    let bytes = vec![7; SIZE as usize];
    write(&*volume, &mut files, 0, &bytes, true).unwrap();
    for leg in 0..3 {
        flip(&path(leg), 700 + 512 * leg as u64, 1);
        flip(&path(leg), 300_000 + 512 * leg as u64, 1);
        // No leg has this.
        flip(&path(leg), 500_000, 1);
    }
    assert!(volume.scrub().unwrap().act(ScrubAction::Start));
    settle(&*volume, &mut files, 100 * S);
    let done = volume.scrub().unwrap().status();
    assert_eq!((done.state, done.read_bytes), (ScrubState::Done, SIZE));
    assert_eq!((done.bad_blocks, done.repaired_blocks), (7, 6));
    assert_eq!(done.bad_lbas, [500_000 / 512]);
    assert_eq!(volume.stats().errors.checksum_mismatch, 1);
    assert_eq!(repaired(&*volume), 6 * 512);
    for leg in 0..3 {
        let mut there = fs::read(path(leg)).unwrap();
        there[500_000] ^= 1;
        assert!(there == bytes);
    }
}

#[test]
fn scrub_of_a_checksummed_mirror_passes_over_a_leg_that_does_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let (volume, path) = summed(folder.path(), 3);
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &[7; 4096], true).unwrap();
    settle(&*volume, &mut files, 10 * S);
    flip(&path(0), 700, 1);
    flip(&path(2), 1300, 1);
    let mut scrubbed = |reads_before: usize, now: u64| {
        files.faults.extend((0..reads_before).map(|_| Fault::None));
        files.faults.push_back(Fault::Errno(libc::EIO));
        assert!(volume.scrub().unwrap().act(ScrubAction::Start));
        settle(&*volume, &mut files, now);
        files.faults.clear();
        volume.scrub().unwrap().status()
    };
    // The first read is of whichever leg.
    let done = scrubbed(1, 100 * S);
    assert_eq!((done.state, done.position_bytes), (ScrubState::Done, SIZE));
    let done = scrubbed(1000, 200 * S);
    assert_eq!((done.state, done.bad_blocks), (ScrubState::Done, 0));
    for leg in 0..3 {
        assert!(fs::read(path(leg)).unwrap()[..4096] == [7; 4096], "{leg}");
    }
}

/// What a block may have of several checksums after a restart is known from the leg that has one.
#[test]
fn block_with_several_checksums_is_settled_by_the_leg_that_has_one_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let (volume, path) = summed(folder.path(), 2);
    let mut files = Fake::default();
    for byte in [5, 6, 7] {
        write(&*volume, &mut files, 0, &[byte; 8192], false).unwrap();
    }
    run(&*volume, &mut files, Io::Flush).unwrap();
    drop(volume);
    let (volume, _) = summed(folder.path(), 2);
    (0..16).for_each(|block| flip(&path(0), block * 512 + 9, 1));
    for block in 0..16 {
        write(&*volume, &mut files, block * 512, &[8; 512], false).unwrap();
    }
    let settled = repaired(&*volume);
    assert!(
        0 < settled && settled < 8192,
        "{settled}: some are read of the other leg"
    );
    assert_eq!(read(&*volume, &mut files, 0, 8192).unwrap(), [8; 8192]);
}
