//! Checksummed volumes: what is changed below them, what a crash leaves of data and sums, and
//! sums that are missing or cannot be written.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use reactor::{FileIo, Token};
use store::{
    Base, Errno, Error, Extent, Io, Kind, OpenError, Progress, ResizeError, Spec, Task, Volume,
    examine, open, open_over, snapshot,
};

use crate::common::*;
use crate::compare::{compare, compare_and_write, verify};
use crate::encrypted::by;
use crate::fake::*;
use crate::mirror::{S, upkeep};
use crate::ranges::{Desk, meet, read_io, write_io};

const SIZE: u64 = 1 << 20;

/// A file volume in `folder` that has checksums.
fn spec_in(folder: &Path) -> Spec {
    Spec {
        checksum: true,
        ..file_spec(&folder.join("disk"), SIZE)
    }
}

fn open_in(folder: &Path) -> Result<Arc<dyn Volume>, OpenError> {
    open(&spec_in(folder))
}

fn refused(spec: &Spec) -> String {
    let told = open(spec).err().expect("it is refused").to_string();
    let examined = examine(spec).expect_err("so is a look at it");
    assert_eq!(examined.to_string(), told);
    told
}

fn disk_of(folder: &Path) -> PathBuf {
    folder.join("disk")
}

fn sums_of(folder: &Path) -> PathBuf {
    folder.join("disk.weft.sums")
}

/// Changes bits of a byte of a file.
pub fn flip(path: &Path, at: u64, bits: u8) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ bits], at).unwrap();
}

/// Puts bytes into a file.
fn put(path: &Path, at: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

/// A volume that is opened on copies of the files of another, as after a crash.
fn crashed(folder: &Path) -> (tempfile::TempDir, Arc<dyn Volume>) {
    let copy = tempfile::tempdir().unwrap();
    for path in [disk_of(folder), sums_of(folder)] {
        fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    let volume = open_in(copy.path()).unwrap();
    (copy, volume)
}

pub const WRONG: Result<(), Error> = Err(Error::ChecksumMismatch);

#[test]
fn block_that_is_changed_below_is_an_error_and_never_data() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_in(folder.path()).unwrap();
    let mut files = Fake::default();
    write(&*volume, &mut files, 4096, &[7; 2048], false).unwrap();
    flip(&disk_of(folder.path()), 4096 + 700, 1);
    // A block that nothing was ever written to is one of zeros.
    flip(&disk_of(folder.path()), SIZE - 1, 1);
    assert_eq!(read(&*volume, &mut files, 4096, 512).unwrap(), [7; 512]);
    let lost = read(&*volume, &mut files, 4096, 2048).map(drop);
    assert_eq!(lost, WRONG);
    assert_eq!(read(&*volume, &mut files, SIZE - 512, 512).map(drop), WRONG);
    assert_eq!(read(&*volume, &mut files, 5120, 1024).unwrap(), [7; 1024]);
    let old = [7; 512];
    assert_eq!(run(&*volume, &mut files, compare(4608, &old)), WRONG);
    let change = compare_and_write(4608, &old, &old, false);
    assert_eq!(run(&*volume, &mut files, change), WRONG);
    for piece in [100, 512, 4096] {
        assert_eq!(run(&*volume, &mut files, verify(0, 8192, piece)), WRONG);
        assert_eq!(run(&*volume, &mut files, verify(0, 4608, piece)), Ok(()));
    }
    let or = Io::OrWrite {
        offset: 4608,
        buf: buffer(512),
        scratch: buffer(512),
        durable: false,
    };
    assert_eq!(run(&*volume, &mut files, or), WRONG);
    assert_eq!(volume.stats().errors.checksum_mismatch, 8);
    // What is written is there again.
    write(&*volume, &mut files, 4608, &[8; 512], true).unwrap();
    assert_eq!(read(&*volume, &mut files, 4608, 512).unwrap(), [8; 512]);
}

#[test]
fn each_io_is_one_step_to_every_other() {
    for seed in 1..=15 {
        let folder = tempfile::tempdir().unwrap();
        meet(&*open_in(folder.path()).unwrap(), seed);
        let ram = Spec {
            checksum: true,
            ..spec(Kind::RAM, SIZE, 512)
        };
        meet(&*open(&ram).unwrap(), seed);
    }
}

#[test]
fn data_is_what_it_was_when_it_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Fake::default();
    let volume = open_in(folder.path()).unwrap();
    let info = volume.info().clone();
    write(&*volume, &mut files, 0, &[1; 8192], false).unwrap();
    let zero = Io::Zero {
        offset: 1024,
        len: 1024,
        deallocate: true,
        durable: false,
    };
    run(&*volume, &mut files, zero).unwrap();
    let advice = Io::Deallocate {
        offset: 4096,
        len: 512,
    };
    run(&*volume, &mut files, advice).unwrap();
    let change = compare_and_write(0, &[1; 512], &[3; 512], false);
    run(&*volume, &mut files, change).unwrap();
    drop(volume);
    let volume = open_in(folder.path()).unwrap();
    assert_eq!(*volume.info(), info);
    let mut there = vec![1; 8192];
    there[..512].fill(3);
    there[1024..2048].fill(0);
    there[4096..4608].fill(0);
    assert!(read(&*volume, &mut files, 0, 8192).unwrap() == there);
}

#[test]
fn sums_are_durable_before_the_data_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_in(folder.path()).unwrap();
    let mut files = Fake::default();
    write(&*volume, &mut files, 512, &[7; 512], false).unwrap();
    let sums = |offset| Op::Write {
        offset,
        len: 16,
        durable: false,
    };
    let data = |durable| Op::Write {
        offset: 512,
        len: 512,
        durable,
    };
    let page = Op::Read {
        offset: 4096,
        len: 4096,
    };
    assert_eq!(files.log, [page, sums(4112), Op::Sync, data(false)]);
    files.log.clear();
    write(&*volume, &mut files, 512, &[8; 512], true).unwrap();
    assert_eq!(files.log, [sums(4112), Op::Sync, data(true)]);
    // What has the sum already needs none.
    files.log.clear();
    let zero = Io::Zero {
        offset: 8192,
        len: 512,
        deallocate: false,
        durable: false,
    };
    run(&*volume, &mut files, zero).unwrap();
    let zero_range = Op::ZeroRange {
        offset: 8192,
        len: 512,
    };
    assert_eq!(files.log, [zero_range]);
}

#[test]
fn one_sync_of_sums_is_for_all_writes_that_wait() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_in(folder.path()).unwrap();
    // The page is in memory.
    read(&*volume, &mut Fake::default(), 0, 512).unwrap();
    let mut desk = Desk::new(&*volume);
    for n in 0..32 {
        desk.start(write_io(n * 512, 1 + n as u8, 512));
    }
    desk.finish();
    assert!(desk.results.iter().all(|result| *result == Some(Ok(()))));
    let syncs = desk.files.log.iter().filter(|op| **op == Op::Sync).count();
    assert_eq!(syncs, 2, "of the first, and of all others");
}

/// As a kill of the process leaves it.
#[test]
fn each_block_is_what_it_was_or_what_it_was_to_be_after_a_crash_at_any_step() {
    for steps in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let volume = open_in(folder.path()).unwrap();
        let mut files = Fake::default();
        write(&*volume, &mut files, 0, &[1; 4096], true).unwrap();
        let mut desk = Desk::new(&*volume);
        desk.start(write_io(512, 2, 1024));
        desk.start(write_io(2048, 3, 512));
        desk.start(Io::Zero {
            offset: 3072,
            len: 512,
            deallocate: false,
            durable: true,
        });
        for _ in 0..steps {
            if desk.files.pending() > 0 {
                desk.step_at(0);
            }
        }
        let (_copy, after) = crashed(folder.path());
        let blocks: Vec<u8> = (0..8)
            .map(|block| {
                let found = read(&*after, &mut files, block * 512, 512).unwrap();
                assert!(found.iter().all(|byte| *byte == found[0]));
                found[0]
            })
            .collect();
        let may = [
            [1, 1],
            [1, 2],
            [1, 2],
            [1, 1],
            [1, 3],
            [1, 1],
            [1, 0],
            [1, 1],
        ];
        for (block, may) in blocks.iter().zip(may) {
            assert!(may.contains(block), "{blocks:?} after {steps}");
        }
        for (block, wants) in [(1, 2), (4, 3), (6, 0)] {
            let index = [1, 4, 6].iter().position(|other| *other == block).unwrap();
            if desk.results[index].is_some() {
                assert_eq!(blocks[block], wants, "{steps}");
            }
        }
        let is_over = desk.results.iter().all(Option::is_some);
        desk.finish();
        if is_over {
            assert!(steps > 8);
            break;
        }
    }
}

/// A power cut takes back any of what was not flushed.
#[test]
fn block_has_a_sum_for_all_that_it_may_hold_until_it_is_flushed() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_in(folder.path()).unwrap();
    let mut files = Fake::default();
    // What it may hold after a power cut.
    let mut may = vec![0u8];
    for byte in 1..=20 {
        files.log.clear();
        write(&*volume, &mut files, 0, &[byte; 512], false).unwrap();
        let syncs: Vec<usize> = (files.log.iter().enumerate())
            .filter(|(_, op)| **op == Op::Sync)
            .map(|(at, _)| at)
            .collect();
        if syncs.len() == 2 {
            // The volume was flushed before it got another sum.
            may.drain(..may.len() - 1);
        }
        may.push(byte);
        for there in &may {
            put(&disk_of(folder.path()), 0, &[*there; 512]);
            let (_copy, after) = crashed(folder.path());
            let found = read(&*after, &mut files, 0, 512).unwrap();
            assert_eq!(found, [*there; 512], "{may:?}");
        }
        // While it is served nothing but the last is right.
        for there in &may[..may.len() - 1] {
            put(&disk_of(folder.path()), 0, &[*there; 512]);
            assert_eq!(read(&*volume, &mut files, 0, 512).map(drop), WRONG);
        }
        put(&disk_of(folder.path()), 0, &[byte; 512]);
        assert_eq!(read(&*volume, &mut files, 0, 512).unwrap(), [byte; 512]);
        assert!(may.len() <= 4);
    }
}

#[test]
fn sums_of_before_are_taken_away_when_what_came_is_durable() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_in(folder.path()).unwrap();
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &[1; 1024], false).unwrap();
    write(&*volume, &mut files, 512, &[2; 512], false).unwrap();
    assert!(upkeep(&*volume, &mut files, 10 * S));
    let sums = fs::read(sums_of(folder.path())).unwrap();
    for block in 0..2 {
        let sums = &sums[4096 + 16 * block..][..16];
        assert!(sums.chunks(4).all(|sum| sum == &sums[..4] && sum != [0; 4]));
    }
    assert!(!upkeep(&*volume, &mut files, 20 * S), "it is done");
    // A write that the disk has lost is found, also after a restart.
    drop(volume);
    put(&disk_of(folder.path()), 512, &[1; 512]);
    let volume = open_in(folder.path()).unwrap();
    assert_eq!(read(&*volume, &mut files, 512, 512).map(drop), WRONG);
    assert_eq!(read(&*volume, &mut files, 0, 512).unwrap(), [1; 512]);
    // A flush that fails takes nothing away.
    write(&*volume, &mut files, 0, &[5; 512], false).unwrap();
    files.faults.push_back(Fault::Errno(libc::EIO));
    assert!(upkeep(&*volume, &mut files, 30 * S));
    put(&disk_of(folder.path()), 0, &[1; 512]);
    let (_copy, after) = crashed(folder.path());
    assert_eq!(read(&*after, &mut files, 0, 512).unwrap(), [1; 512]);
}

/// Of a block that crashes have left as many sums as it can have.
#[test]
fn block_with_all_its_sums_is_read_before_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_in(folder.path()).unwrap();
    let mut files = Fake::default();
    for byte in 1..=3 {
        write(&*volume, &mut files, 0, &[byte; 512], false).unwrap();
    }
    for there in [2, 9] {
        put(&disk_of(folder.path()), 0, &[there; 512]);
        let (copy, after) = crashed(folder.path());
        files.log.clear();
        write(&*after, &mut files, 0, &[7; 512], false).unwrap();
        let reads = files.log.iter().filter(|op| matches!(op, Op::Read { .. }));
        assert_eq!(reads.count(), 2, "a page, and the block");
        assert_eq!(read(&*after, &mut files, 0, 512).unwrap(), [7; 512]);
        put(&disk_of(copy.path()), 0, &[there; 512]);
        let (_second, again) = crashed(copy.path());
        let found = read(&*again, &mut files, 0, 512).map(drop);
        assert_eq!(found, if there == 2 { Ok(()) } else { WRONG });
    }
}

#[test]
fn write_whose_sums_cannot_be_written_changes_nothing() {
    for (faults, later) in [
        (vec![Fault::Errno(libc::ENOSPC)], Ok(())),
        (
            vec![Fault::None, Fault::Errno(libc::EIO)],
            Err(Error::WriteFailed(Errno::IO)),
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let volume = open_in(folder.path()).unwrap();
        let mut files = Fake::default();
        write(&*volume, &mut files, 0, &[1; 1024], false).unwrap();
        files.faults.extend(&faults);
        let told = write(&*volume, &mut files, 0, &[2; 512], false);
        match faults.len() {
            1 => assert_eq!(told, Err(Error::OutOfSpace(Errno::NOSPC))),
            _ => assert_eq!(told, Err(Error::WriteFailed(Errno::IO))),
        }
        assert_eq!(read(&*volume, &mut files, 0, 1024).unwrap(), [1; 1024]);
        // A sync that failed once tells nothing any more.
        let told = write(&*volume, &mut files, 512, &[3; 512], false);
        assert_eq!(told, later);
        let (_copy, after) = crashed(folder.path());
        assert_eq!(read(&*after, &mut files, 0, 512).unwrap(), [1; 512]);
    }
}

#[test]
fn read_whose_sums_cannot_be_read_fails() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_in(folder.path()).unwrap();
    let mut files = Fake::with(&[Fault::None, Fault::Errno(libc::EIO)]);
    let told = read(&*volume, &mut files, 0, 512).map(drop);
    assert_eq!(told, Err(Error::ReadFailed(Errno::IO)));
    read(&*volume, &mut files, 0, 512).unwrap();
    // What comes short goes on.
    let volume = open_in(tempfile::tempdir().unwrap().path()).unwrap();
    let mut files = Fake::with(&[Fault::None, Fault::Short(100), Fault::Errno(libc::EINTR)]);
    read(&*volume, &mut files, 0, 512).unwrap();
}

#[test]
fn data_that_could_not_be_written_is_right_as_it_was_and_as_it_was_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_in(folder.path()).unwrap();
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &[1; 512], false).unwrap();
    let fails = [Fault::None, Fault::None, Fault::Errno(libc::EIO)];
    files.faults.extend(fails);
    let told = write(&*volume, &mut files, 0, &[2; 512], false);
    assert_eq!(told, Err(Error::WriteFailed(Errno::IO)));
    assert_eq!(read(&*volume, &mut files, 0, 512).unwrap(), [1; 512]);
    // What was read is what it holds.
    put(&disk_of(folder.path()), 0, &[2; 512]);
    assert_eq!(read(&*volume, &mut files, 0, 512).map(drop), WRONG);
}

#[test]
fn sums_that_are_missing_damaged_or_of_other_blocks_keep_a_volume_closed() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Fake::default();
    let path = sums_of(folder.path());
    let told = |spec: &Spec| refused(spec).replace(folder.path().to_str().unwrap(), "");
    let without = Spec {
        checksum: false,
        ..spec_in(folder.path())
    };
    {
        let volume = open_in(folder.path()).unwrap();
        write(&*volume, &mut files, 0, &[1; 4096], true).unwrap();
        let twice = open_in(folder.path()).err().unwrap().to_string();
        assert!(twice.contains("disk"), "{twice}");
    }
    assert!(told(&without).contains("set checksum = true"));
    let larger = Spec {
        block_bytes: 4096,
        ..spec_in(folder.path())
    };
    assert!(told(&larger).contains("of blocks of 512 bytes: set block_bytes"));
    let whole = fs::read(&path).unwrap();
    for (bytes, why) in [
        (&whole[..10], "is too short"),
        (&whole[..4096 + 32], "has too few bytes"),
        (&[0; 8192][..], "is damaged"),
    ] {
        fs::write(&path, bytes).unwrap();
        let spec = spec_in(folder.path());
        let told = open(&spec).err().unwrap().to_string();
        assert!(told.contains(why) && told.contains("backup"), "{told}");
    }
    fs::remove_file(&path).unwrap();
    assert!(told(&spec_in(folder.path())).contains("does not exist: bring it back"));
    let volume = open(&without).unwrap();
    assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), [1; 4096]);
    drop(volume);
    fs::write(&path, &whole).unwrap();
    let volume = open_in(folder.path()).unwrap();
    assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), [1; 4096]);
    let null = Spec {
        checksum: true,
        ..spec(Kind::NULL, SIZE, 512)
    };
    assert!(refused(&null).contains("keeps nothing to check"));
    let below = open(&file_spec(&folder.path().join("below"), SIZE)).unwrap();
    let slice = Spec {
        checksum: true,
        ..spec(Kind::slice("below", 0), SIZE, 512)
    };
    let nowhere = open_over(&slice, vec![below]).err().unwrap().to_string();
    assert!(nowhere.contains("set `state`"), "{nowhere}");
}

#[test]
fn volume_has_its_sums_in_each_size_that_it_takes() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_in(folder.path()).unwrap();
    let mut files = Fake::default();
    let end = SIZE / 2 + 1024;
    write(&*volume, &mut files, SIZE / 2, &[1; 4096], false).unwrap();
    assert!(volume.resize(end, false).is_err(), "it must be allowed");
    volume.resize(end, true).unwrap();
    assert_eq!(
        read(&*volume, &mut files, SIZE / 2, 1024).unwrap(),
        [1; 1024]
    );
    let beyond = read(&*volume, &mut files, end, 512).map(drop);
    assert_eq!(beyond, Err(Error::OutOfRange));
    volume.resize(2 * SIZE, false).unwrap();
    assert_eq!(read(&*volume, &mut files, end, 4096).unwrap(), [0; 4096]);
    write(&*volume, &mut files, 2 * SIZE - 512, &[2; 512], true).unwrap();
    drop(volume);
    let grown = |size_bytes| {
        open(&Spec {
            size_bytes,
            ..spec_in(folder.path())
        })
    };
    let volume = grown(2 * SIZE).unwrap();
    assert_eq!(
        read(&*volume, &mut files, SIZE / 2, 1024).unwrap(),
        [1; 1024]
    );
    assert_eq!(read(&*volume, &mut files, end, 4096).unwrap(), [0; 4096]);
    let last = read(&*volume, &mut files, 2 * SIZE - 512, 512).unwrap();
    assert_eq!(last, [2; 512]);
    drop(volume);
    // It has grown while it was not served.
    let volume = grown(3 * SIZE).unwrap();
    write(&*volume, &mut files, 3 * SIZE - 512, &[3; 512], true).unwrap();
    assert_eq!(read(&*volume, &mut files, 2 * SIZE, 512).unwrap(), [0; 512]);
}

/// As a crash in the middle of a shrink leaves them.
#[test]
fn sums_behind_the_end_are_gone_when_a_file_grows_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Fake::default();
    let volume = open_in(folder.path()).unwrap();
    write(&*volume, &mut files, SIZE - 4096, &[1; 4096], true).unwrap();
    drop(volume);
    let disk = File::options().write(true).open(disk_of(folder.path()));
    disk.unwrap().set_len(SIZE - 4096).unwrap();
    let spec = Spec {
        size_bytes: SIZE - 4096,
        ..spec_in(folder.path())
    };
    let volume = open(&spec).unwrap();
    volume.resize(SIZE, false).unwrap();
    let found = read(&*volume, &mut files, SIZE - 4096, 4096).unwrap();
    assert_eq!(found, [0; 4096]);
}

#[test]
fn sums_that_a_crash_in_a_shrink_has_left_count_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_in(folder.path()).unwrap();
    let mut files = Fake::default();
    for at in [SIZE / 2, SIZE - 4096] {
        write(&*volume, &mut files, at, &[1; 4096], true).unwrap();
    }
    assert!(upkeep(&*volume, &mut files, 10 * S));
    let sums = fs::read(sums_of(folder.path())).unwrap();
    let size_bytes = SIZE / 2 + 1024;
    volume.resize(size_bytes, true).unwrap();
    drop(volume);
    fs::write(sums_of(folder.path()), sums).unwrap();
    let spec = spec_in(folder.path());
    let volume = open(&Spec { size_bytes, ..spec }).unwrap();
    let last = read(&*volume, &mut files, size_bytes - 1024, 1024);
    assert_eq!(last.unwrap(), [1; 1024]);
    volume.resize(SIZE, false).unwrap();
    for at in [size_bytes, SIZE - 4096] {
        assert_eq!(read(&*volume, &mut files, at, 2048).unwrap(), [0; 2048]);
    }
}

#[test]
fn large_ranges_are_zeroed_and_verified_piece_by_piece() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(&Spec {
        size_bytes: 64 << 20,
        ..spec_in(folder.path())
    });
    let volume = volume.unwrap();
    let mut files = Fake::default();
    for at in [512, 3 << 20, 40 << 20] {
        write(&*volume, &mut files, at, &[5; 1 << 20], false).unwrap();
    }
    let zero = |deallocate| Io::Zero {
        offset: 1024,
        len: (60 << 20) + 512,
        deallocate,
        durable: true,
    };
    run(&*volume, &mut files, zero(false)).unwrap();
    run(&*volume, &mut files, zero(true)).unwrap();
    run(&*volume, &mut files, verify(0, 64 << 20, 1 << 20)).unwrap();
    assert_eq!(read(&*volume, &mut files, 512, 512).unwrap(), [5; 512]);
    assert_eq!(
        read(&*volume, &mut files, 40 << 20, 4096).unwrap(),
        [0; 4096]
    );
    flip(&disk_of(folder.path()), 33 << 20, 4);
    let told = run(&*volume, &mut files, verify(0, 64 << 20, 1 << 20));
    assert_eq!(told, WRONG);
}

#[test]
fn write_that_waits_for_its_range_can_be_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_in(folder.path()).unwrap();
    let mut desk = Desk::new(&*volume);
    let first = desk.start(write_io(0, 1, 512));
    let gone = desk.start(write_io(0, 2, 512));
    let last = desk.start(write_io(0, 3, 512));
    assert!(!desk.waits(first) && desk.waits(gone) && desk.waits(last));
    desk.tasks[gone] = None;
    // One that is canceled before its data is written changes nothing.
    let token = token_of(first as u64);
    let mut task = desk.tasks[first].take().unwrap();
    task.cancel(&mut desk.files, token);
    desk.tasks[first] = Some(task);
    desk.finish();
    let canceled = Err(Error::WriteFailed(Errno::CANCELED));
    assert_eq!(desk.results[first], Some(canceled));
    assert_eq!(desk.results[last], Some(Ok(())));
    let (io, seen) = read_io(0, 512);
    desk.start(io);
    desk.finish();
    let mut bytes = [0; 512];
    mem::copy_out(seen, &mut bytes);
    assert_eq!(bytes, [3; 512]);
}

/// A volume of which some I/Os fail that it does all the same.
struct Failing {
    below: Arc<dyn Volume>,
    writes_fail: AtomicBool,
    is_busy: AtomicBool,
}

impl Volume for Failing {
    fn base(&self) -> &Base {
        self.below.base()
    }

    fn start(&self, io: Io, files: &mut dyn FileIo, token: Token) -> Progress {
        if matches!(io, Io::Read { .. }) && self.is_busy.load(Ordering::Relaxed) {
            return Progress::Done(Err(Error::Busy));
        }
        let progress = self.below.start(io, files, token);
        match io {
            Io::Write { .. } if self.writes_fail.load(Ordering::Relaxed) => {
                Progress::Done(Err(Error::WriteFailed(Errno::IO)))
            }
            _ => progress,
        }
    }

    fn resume(
        &self,
        task: Task,
        result: std::io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        self.below.resume(task, result, files, token)
    }

    fn resize(&self, size_bytes: u64, allow_shrink: bool) -> Result<(), ResizeError> {
        self.below.resize(size_bytes, allow_shrink)
    }

    fn extents(
        &self,
        offset: u64,
        len: u64,
        max: usize,
        out: &mut Vec<Extent>,
    ) -> Result<(), Error> {
        self.below.extents(offset, len, max, out)
    }
}

#[test]
fn block_that_could_not_be_read_for_want_of_memory_keeps_its_sums() {
    let below = Arc::new(Failing {
        below: open(&spec(Kind::RAM, SIZE, 512)).unwrap(),
        writes_fail: AtomicBool::new(true),
        is_busy: AtomicBool::new(false),
    });
    let volume = store::checksummed(below.clone(), None);
    let mut files = Fake::default();
    for byte in 1..=3 {
        let told = write(&*volume, &mut files, 0, &[byte; 512], false);
        assert_eq!(told, Err(Error::WriteFailed(Errno::IO)));
    }
    below.is_busy.store(true, Ordering::Relaxed);
    let told = write(&*volume, &mut files, 0, &[4; 512], false);
    assert_eq!(told, Err(Error::Busy));
    below.is_busy.store(false, Ordering::Relaxed);
    assert_eq!(read(&*volume, &mut files, 0, 512).unwrap(), [3; 512]);
}

#[test]
fn write_that_is_taken_back_while_it_reads_its_block_leaves_that_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_in(folder.path()).unwrap();
    let mut files = Fake::default();
    for byte in 1..=3 {
        write(&*volume, &mut files, 0, &[byte; 512], false).unwrap();
    }
    for there in 0..=3 {
        put(&disk_of(folder.path()), 0, &[there; 512]);
        let (_copy, after) = crashed(folder.path());
        let mut desk = Desk::new(&*after);
        let gone = desk.start(write_io(0, 7, 512));
        desk.step_at(0);
        let block = Op::Read {
            offset: 0,
            len: 512,
        };
        assert_eq!(desk.files.log.last(), Some(&block));
        let mut task = desk.tasks[gone].take().unwrap();
        task.cancel(&mut desk.files, token_of(gone as u64));
        desk.tasks[gone] = Some(task);
        desk.finish();
        let canceled = Err(Error::WriteFailed(Errno::CANCELED));
        assert_eq!(desk.results[gone], Some(canceled));
        assert_eq!(read(&*after, &mut files, 0, 512).unwrap(), [there; 512]);
    }
}

#[test]
fn encrypted_volume_has_sums_of_what_lies_below() {
    let folder = tempfile::tempdir().unwrap();
    let spec = Spec {
        encryption: Some(by(1)),
        ..spec_in(folder.path())
    };
    let mut files = Fake::default();
    let volume = open(&spec).unwrap();
    write(&*volume, &mut files, 0, &[7; 8192], true).unwrap();
    assert_eq!(
        read(&*volume, &mut files, 0, 16384).unwrap()[..8192],
        [7; 8192]
    );
    drop(volume);
    flip(&disk_of(folder.path()), 512, 128);
    let volume = open(&spec).unwrap();
    assert_eq!(read(&*volume, &mut files, 512, 512).map(drop), WRONG);
    assert_eq!(read(&*volume, &mut files, 1024, 512).unwrap(), [7; 512]);
}

#[test]
fn checksummed_volume_has_no_snapshots() {
    let folder = tempfile::tempdir().unwrap();
    let spec = spec_in(folder.path());
    let volume = open(&spec).unwrap();
    let expected = snapshot::expect_possible(&spec).unwrap_err();
    assert!(expected.to_string().contains("has checksums"), "{expected}");
    let told = snapshot::create(&[volume], "monday", 0).unwrap_err();
    assert_eq!(told.to_string(), expected.to_string());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is changed in its files, a volume gives what was written or an error.
    #[test]
    fn bits_that_are_changed_anywhere_are_never_other_data(
        writes in prop::collection::vec((0u64..64, 1u64..8, 1u8..), 1..12),
        flips in prop::collection::vec((any::<bool>(), any::<u64>(), 1u8..), 1..24),
        reopens in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let size_bytes = 64 << 9;
        let spec = Spec { size_bytes, ..spec_in(folder.path()) };
        let mut files = Fake::default();
        let volume = open(&spec).unwrap();
        let mut model = vec![0u8; size_bytes as usize];
        for (first, count, byte) in writes {
            let place = (first * 512) as usize..((first + count).min(64) * 512) as usize;
            let bytes = vec![byte; place.len()];
            write(&*volume, &mut files, first * 512, &bytes, false).unwrap();
            model[place].fill(byte);
        }
        upkeep(&*volume, &mut files, 10 * S);
        let kept = (!reopens).then_some(volume);
        let (disk, sums) = (disk_of(folder.path()), sums_of(folder.path()));
        for (in_sums, at, bits) in flips {
            let (path, from) = if in_sums { (&sums, 4096) } else { (&disk, 0) };
            let len = fs::metadata(path).unwrap().len();
            flip(path, from + at % (len - from), bits);
        }
        let volume = kept.unwrap_or_else(|| open(&spec).unwrap());
        for block in 0..64 {
            let found = read(&*volume, &mut files, block * 512, 512);
            let place = (block * 512) as usize..(block as usize + 1) * 512;
            prop_assert!(found == Err(Error::ChecksumMismatch) || found.unwrap() == model[place]);
        }
    }
}
