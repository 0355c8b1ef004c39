//! Compare, compare and write, verify, and marks, on every kind of volume.

use crate::common::*;
use crate::fake::*;
use crate::{file_layers, file_volume};
use needs::each_driver;
use reactor::Choice;
use store::{Errno, Error, Io, Kind, Range, Volume, open};

const SIZE: u64 = 64 << 10;

fn filled(bytes: &[u8]) -> mem::BufRange {
    let buf = buffer(bytes.len());
    mem::copy_in(buf, bytes);
    buf
}

pub fn compare(offset: u64, bytes: &[u8]) -> Io {
    Io::Compare {
        offset,
        buf: filled(bytes),
        scratch: buffer(bytes.len()),
    }
}

pub fn compare_and_write(offset: u64, old: &[u8], new: &[u8], durable: bool) -> Io {
    Io::CompareAndWrite {
        offset,
        compare: filled(old),
        write: filled(new),
        scratch: buffer(old.len()),
        durable,
    }
}

pub fn verify(offset: u64, len: u64, piece: usize) -> Io {
    Io::Verify {
        offset,
        len,
        scratch: buffer(piece),
    }
}

/// A fresh RAM volume, and a fresh file through each file layer.
fn each_writable(choice: Choice, mut test: impl FnMut(&dyn Volume, &mut dyn Files)) {
    let ram = open(&spec(Kind::RAM, SIZE, 512)).unwrap();
    test(&*ram, &mut Fake::default());
    for mut files in file_layers(choice) {
        let (_folder, _, volume) = file_volume(SIZE);
        test(&*volume, &mut *files);
    }
}

#[each_driver]
fn data_is_compared_and_replaced_only_if_it_matches(choice: Choice) {
    each_writable(choice, |volume, files| {
        let old: Vec<u8> = (0..4096).map(|i| i as u8).collect();
        let mut other = old.clone();
        other[700] ^= 1;
        write(volume, files, 1024, &old, false).unwrap();
        run(volume, files, compare(1024, &old)).unwrap();
        let miscompare = Err(Error::Miscompare { offset: 700 });
        assert_eq!(run(volume, files, compare(1024, &other)), miscompare);
        let failing = compare_and_write(1024, &other, &[9; 4096], false);
        assert_eq!(run(volume, files, failing), miscompare);
        assert_eq!(read(volume, files, 1024, 4096).unwrap(), old);
        for durable in [false, true] {
            run(
                volume,
                files,
                compare_and_write(1024, &old, &other, durable),
            )
            .unwrap();
            assert_eq!(read(volume, files, 1024, 4096).unwrap(), other);
            run(
                volume,
                files,
                compare_and_write(1024, &other, &old, durable),
            )
            .unwrap();
        }
        // What lies beside it stays.
        assert_eq!(read(volume, files, 0, 1024).unwrap(), [0; 1024]);
        assert_eq!(read(volume, files, 5120, 512).unwrap(), [0; 512]);
        let stats = volume.stats();
        assert_eq!((stats.compares, stats.compare_bytes), (5, 5 * 4096));
        assert_eq!((stats.writes, stats.write_bytes), (5, 5 * 4096));
        assert_eq!(stats.errors.miscompare, 2);
        assert_eq!(stats.errors.total(), 2);
    });
}

fn or_write(offset: u64, bits: &[u8], durable: bool) -> Io {
    Io::OrWrite {
        offset,
        buf: filled(bits),
        scratch: buffer(bits.len()),
        durable,
    }
}

#[each_driver]
fn bits_are_set_and_none_is_cleared(choice: Choice) {
    each_writable(choice, |volume, files| {
        // Where nothing was written, over the border of two frames, and again.
        let at = (16 << 10) - 512;
        run(volume, files, or_write(at, &[0x0f; 1024], false)).unwrap();
        run(volume, files, or_write(at + 512, &[0x30; 1024], true)).unwrap();
        let there = |volume: &dyn Volume, files: &mut dyn Files| {
            let bytes = read(volume, files, at - 512, 2560).unwrap();
            let parts: Vec<_> = (bytes.chunks(512))
                .map(|block| (block[0], block[511]))
                .collect();
            parts
        };
        let expected = [0, 0x0f, 0x3f, 0x30, 0].map(|byte| (byte, byte));
        assert_eq!(there(volume, files), expected);
        // What is being sent meanwhile stays as it was.
        let loan = volume.lend(at, 512);
        run(volume, files, or_write(at, &[0x80; 512], false)).unwrap();
        if let Some(loan) = loan {
            let mut bytes = [0; 512];
            mem::copy_out(loan.pieces()[0], &mut bytes);
            assert_eq!(bytes, [0x0f; 512]);
        }
        let expected = [0, 0x8f, 0x3f, 0x30, 0].map(|byte| (byte, byte));
        assert_eq!(there(volume, files), expected);
        let past = or_write(SIZE - 512, &[1; 1024], false);
        assert_eq!(run(volume, files, past), Err(Error::OutOfRange));
    });
}

#[test]
fn null_compares_with_zeros() {
    let volume = open(&spec(Kind::NULL, 1 << 40, 4096)).unwrap();
    let mut files = Fake::default();
    // Longer than the zeros that it has.
    let mut data = vec![0; 9 << 20];
    run(&*volume, &mut files, compare(4096, &data)).unwrap();
    data[(9 << 20) - 7] = 1;
    let offset = (9 << 20) - 7;
    let miscompare = Err(Error::Miscompare { offset });
    assert_eq!(run(&*volume, &mut files, compare(4096, &data)), miscompare);
    let write = compare_and_write(0, &[0; 4096], &[5; 4096], true);
    run(&*volume, &mut files, write).unwrap();
    run(&*volume, &mut files, write).unwrap();
    run(&*volume, &mut files, verify(0, 1 << 40, 4096)).unwrap();
}

#[each_driver]
fn a_verify_reads_everything_and_tells_what_cannot_be_read(choice: Choice) {
    let (_folder, _, volume) = file_volume(SIZE);
    let mut files = Fake::with(&[Fault::None, Fault::Short(1000), Fault::Errno(libc::EIO)]);
    let io = verify(512, 20_000 / 512 * 512, 8192);
    let lost = Err(Error::ReadFailed(Errno::IO));
    assert_eq!(run(&*volume, &mut files, io), lost);
    let read = |offset, len| Op::Read { offset, len };
    let parts = [read(512, 8192), read(8704, 8192), read(9704, 8192)];
    assert_eq!(files.log, parts);
    files.log.clear();
    run(&*volume, &mut files, io).unwrap();
    let parts = [read(512, 8192), read(8704, 8192), read(16896, 3584)];
    assert_eq!(files.log, parts);
    let stats = volume.stats();
    assert_eq!((stats.verifies, stats.verify_bytes), (1, 19968));
    each_writable(choice, |volume, files| {
        run(volume, files, verify(0, SIZE, 4096)).unwrap();
        let beyond = verify(SIZE - 512, 1024, 4096);
        assert_eq!(run(volume, files, beyond), Err(Error::OutOfRange));
    });
}

#[each_driver]
fn marked_blocks_are_unreadable_until_they_are_written(choice: Choice) {
    each_writable(choice, |volume, files| {
        write(volume, files, 0, &[7; 8192], false).unwrap();
        let (offset, len) = (1024, 2048);
        run(volume, files, Io::MarkUnreadable { offset, len }).unwrap();
        let bad = Err(Error::Unreadable);
        for at in (0..4096).step_by(512) {
            let good = !(1024..3072).contains(&at);
            let expected = if good { Ok(()) } else { bad };
            let found = read(volume, files, at, 512).map(drop);
            assert_eq!(found, expected, "at {at}");
            assert_eq!(run(volume, files, verify(at, 512, 512)), expected);
            assert_eq!(run(volume, files, compare(at, &[7; 512])), expected);
        }
        assert!(volume.lend(512, 1024).is_none(), "lent though unreadable");
        let replace = compare_and_write(1024, &[7; 512], &[8; 512], false);
        assert_eq!(run(volume, files, replace), bad);
        // Each way to put something else there heals what it covers.
        write(volume, files, 1024, &[8; 512], false).unwrap();
        let (offset, len) = (1536, 512);
        run(volume, files, Io::Deallocate { offset, len }).unwrap();
        let zero = Io::Zero {
            offset: 2048,
            len: 512,
            deallocate: false,
            durable: true,
        };
        run(volume, files, zero).unwrap();
        let left = [Range {
            offset: 2560,
            len: 512,
        }];
        assert_eq!(volume.unreadable(0, SIZE, 9), left);
        let bytes = read(volume, files, 512, 2048).unwrap();
        assert_eq!(bytes[..512], [7; 512]);
        assert_eq!(bytes[512..1024], [8; 512]);
        assert_eq!(bytes[1024..], [0; 1024]);
        assert_eq!(read(volume, files, 2048, 1024).map(drop), bad);
        let stats = volume.stats();
        assert_eq!((stats.marks, stats.errors.unreadable), (1, 4 * 3 + 2));
    });
}

#[test]
fn a_write_that_fails_heals_nothing() {
    let (_folder, _, volume) = file_volume(SIZE);
    let mut files = Fake::default();
    let (offset, len) = (0, 512);
    run(&*volume, &mut files, Io::MarkUnreadable { offset, len }).unwrap();
    files.faults.push_back(Fault::Errno(libc::EIO));
    write(&*volume, &mut files, 0, &[1; 512], false).unwrap_err();
    // Nor does advice that the file system does not take.
    for _ in 0..2 {
        files.faults.push_back(Fault::Errno(libc::EOPNOTSUPP));
        run(&*volume, &mut files, Io::Deallocate { offset, len }).unwrap();
        files.faults.clear();
    }
    assert_eq!(volume.unreadable(0, SIZE, 9).len(), 1);
    assert!(read(&*volume, &mut files, 0, 512).is_err());
}

#[each_driver]
fn marks_of_a_file_outlive_a_restart(choice: Choice) {
    for mut files in file_layers(choice) {
        let (_folder, path, volume) = file_volume(SIZE);
        let again = |volume: std::sync::Arc<dyn Volume>| {
            drop(volume);
            open(&file_spec(&path, SIZE)).unwrap()
        };
        let (offset, len) = (4096, 4096);
        let mark = Io::MarkUnreadable { offset, len };
        run(&*volume, &mut *files, mark).unwrap();
        let volume = again(volume);
        let bad = Err(Error::Unreadable);
        assert_eq!(read(&*volume, &mut *files, 4096, 512), bad);
        write(&*volume, &mut *files, 4096, &[1; 512], false).unwrap();
        let volume = again(volume);
        assert_eq!(read(&*volume, &mut *files, 4096, 512).unwrap(), [1; 512]);
        assert_eq!(read(&*volume, &mut *files, 4608, 512), bad);
    }
}

/// A mark is told as done only when it is on the disk.
#[test]
fn a_mark_that_cannot_be_saved_fails() {
    let (folder, path, volume) = file_volume(SIZE);
    let mut files = Fake::default();
    // A folder is in the way of the state file.
    let state = folder.path().join("disk.weft");
    std::fs::create_dir_all(state.join("full")).unwrap();
    let (offset, len) = (0, 512);
    let marked = run(&*volume, &mut files, Io::MarkUnreadable { offset, len });
    assert!(matches!(marked, Err(Error::WriteFailed(_))), "{marked:?}");
    read(&*volume, &mut files, 0, 512).expect("as after a restart");
    std::fs::remove_dir_all(&state).unwrap();
    drop(volume);
    let volume = open(&file_spec(&path, SIZE)).unwrap();
    read(&*volume, &mut files, 0, 512).unwrap();
}

/// A write whose mark cannot be taken away fails, and the mark is there as it is
/// after a restart.
#[test]
fn a_write_that_cannot_unmark_leaves_the_mark() {
    let (folder, path, volume) = file_volume(SIZE);
    let mut files = Fake::default();
    let (offset, len) = (512, 1024);
    run(&*volume, &mut files, Io::MarkUnreadable { offset, len }).unwrap();
    let in_the_way = folder.path().join("disk.weft.new");
    std::fs::create_dir(&in_the_way).unwrap();
    let written = write(&*volume, &mut files, 0, &[1; 1024], false);
    assert!(matches!(written, Err(Error::WriteFailed(_))), "{written:?}");
    let marked = volume.unreadable(0, SIZE, 9);
    assert_eq!(marked, [store::Range { offset, len }]);
    drop(volume);
    std::fs::remove_dir(&in_the_way).unwrap();
    let volume = open(&file_spec(&path, SIZE)).unwrap();
    assert_eq!(volume.unreadable(0, SIZE, 9), marked);
    write(&*volume, &mut files, 0, &[1; 2048], false).unwrap();
    assert_eq!(volume.unreadable(0, SIZE, 9), []);
}

#[test]
fn read_only_volumes_compare_but_neither_mark_nor_replace() {
    let (_folder, path, volume) = file_volume(SIZE);
    drop(volume);
    for kind in [Kind::NULL, Kind::RAM, Kind::file(path)] {
        let mut spec = spec(kind, SIZE, 512);
        spec.read_only = true;
        let volume = open(&spec).unwrap();
        let mut files = Fake::default();
        run(&*volume, &mut files, compare(0, &[0; 512])).unwrap();
        run(&*volume, &mut files, verify(0, SIZE, 512)).unwrap();
        let (offset, len) = (0, 512);
        let mark = Io::MarkUnreadable { offset, len };
        let replace = compare_and_write(0, &[0; 512], &[1; 512], false);
        for io in [mark, replace] {
            assert_eq!(run(&*volume, &mut files, io), Err(Error::ReadOnly));
        }
    }
}

#[test]
fn a_file_protected_for_good_refuses_writes_now_and_later() {
    let (_folder, path, volume) = file_volume(SIZE);
    let mut files = Fake::default();
    volume.state().protect_permanently().unwrap();
    let refused = Err(Error::ReadOnly);
    assert_eq!(write(&*volume, &mut files, 0, &[1; 512], false), refused);
    drop(volume);
    let volume = open(&file_spec(&path, SIZE)).unwrap();
    assert_eq!(write(&*volume, &mut files, 0, &[1; 512], false), refused);
    read(&*volume, &mut files, 0, 512).unwrap();
}
