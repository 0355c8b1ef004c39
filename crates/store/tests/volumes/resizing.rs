//! Volumes that become larger and smaller while they are used, and where a
//! sparse one has data.

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::common::*;
use crate::fake::*;
use crate::file_volume;
use needs::needs;
use reactor::DiskFile;
use store::{Error, Extent, Io, Kind, Progress, Range, ResizeError, State, Volume, open};

const SIZE: u64 = 64 << 10;

#[test]
fn growth_shows_at_once_and_reads_as_zeros() {
    let (_folder, path, file) = file_volume(SIZE);
    let null = open(&spec(Kind::NULL, SIZE, 512)).unwrap();
    for volume in [file, null] {
        let mut files = Fake::default();
        let beyond = read(&*volume, &mut files, SIZE, 512);
        assert_eq!(beyond, Err(Error::OutOfRange));
        volume.resize(2 * SIZE, false).unwrap();
        assert_eq!(volume.size_bytes(), 2 * SIZE);
        assert_eq!(read(&*volume, &mut files, SIZE, 512).unwrap(), [0; 512]);
        write(&*volume, &mut files, 2 * SIZE - 512, &[1; 512], true).unwrap();
        let beyond = write(&*volume, &mut files, 2 * SIZE, &[1; 512], true);
        assert_eq!(beyond, Err(Error::OutOfRange));
    }
    assert_eq!(fs::metadata(&path).unwrap().len(), 2 * SIZE);
    let volume = open(&file_spec(&path, 2 * SIZE)).unwrap();
    let bytes = read(&*volume, &mut Fake::default(), 2 * SIZE - 512, 512);
    assert_eq!(bytes.unwrap(), [1; 512]);
}

#[test]
fn impossible_sizes_change_nothing() {
    let (_folder, path, volume) = file_volume(SIZE);
    let refused = |size, allow| {
        let error = volume.resize(size, allow).unwrap_err();
        assert_eq!(volume.size_bytes(), SIZE);
        assert_eq!(fs::metadata(&path).unwrap().len(), SIZE);
        error
    };
    for size in [0, SIZE + 511, (1 << 50) + 512, u64::MAX] {
        let error = refused(size, true);
        assert!(matches!(error, ResizeError::Size { .. }), "{error}");
        assert!(error.to_string().contains("multiple"), "{error}");
    }
    let error = refused(SIZE / 2, false);
    assert!(matches!(error, ResizeError::Shrink { .. }), "{error}");
    assert!(error.to_string().contains("destroy"), "{error}");
    let error = refused(1 << 49, false);
    assert!(matches!(error, ResizeError::System { .. }), "{error}");
    drop(volume);
    let mut spec = file_spec(&path, SIZE);
    spec.read_only = true;
    let volume = open(&spec).unwrap();
    let error = volume.resize(2 * SIZE, false).unwrap_err();
    assert!(matches!(error, ResizeError::ReadOnly));
}

#[test]
fn growth_after_a_shrink_reads_as_zeros() {
    let (_folder, path, volume) = file_volume(SIZE);
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &[1; SIZE as usize], false).unwrap();
    let (offset, len) = (SIZE / 2 - 512, 1024);
    run(&*volume, &mut files, Io::MarkUnreadable { offset, len }).unwrap();
    volume.resize(SIZE / 2, true).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), SIZE / 2);
    let beyond = read(&*volume, &mut files, SIZE / 2, 512);
    assert_eq!(beyond, Err(Error::OutOfRange));
    volume.resize(SIZE, false).unwrap();
    let back = read(&*volume, &mut files, SIZE / 2, SIZE as usize / 2).unwrap();
    assert!(back.iter().all(|&b| b == 0));
    let marked = [Range { offset, len: 512 }];
    assert_eq!(volume.unreadable(0, SIZE, 9), marked);
    drop(volume);
    let volume = open(&file_spec(&path, SIZE)).unwrap();
    assert_eq!(volume.unreadable(0, SIZE, 9), marked);
}

/// A write under way behind the new end would make the file longer again.
#[test]
fn a_shrink_waits_for_io_on_what_goes() {
    let (_folder, path, volume) = file_volume(SIZE);
    let mut files = Fake::default();
    let start = |files: &mut Fake, token, offset| {
        let buf = buffer(1024);
        let durable = false;
        let io = Io::Write {
            offset,
            buf,
            durable,
        };
        match volume.start(io, files, token) {
            Progress::Pending(task) => Ok(task),
            Progress::Done(result) => Err(result),
        }
    };
    let across = start(&mut files, 1, SIZE / 2 - 512).unwrap();
    let waiting = start(&mut files, 2, SIZE / 2).unwrap();
    let before = start(&mut files, 3, 0).unwrap();
    let shrinking = thread::spawn({
        let volume = Arc::clone(&volume);
        move || volume.resize(SIZE / 2, true)
    });
    // From now on nothing new is taken behind the new end.
    while volume.size_bytes() == SIZE {
        thread::sleep(Duration::from_millis(1));
    }
    let late = start(&mut files, 4, SIZE - 1024);
    assert_eq!(late.err(), Some(Err(Error::OutOfRange)));
    assert_eq!(fs::metadata(&path).unwrap().len(), SIZE);
    let (_, result) = files.complete(0);
    let done = volume.resume(across, result, &mut files, 1);
    assert!(matches!(done, Progress::Done(Ok(()))));
    // The one behind it has its turn before the shrink, and is refused.
    while files.rung() != [2] {}
    let done = volume.resume(waiting, Ok(0), &mut files, 2);
    assert!(matches!(done, Progress::Done(Err(Error::OutOfRange))));
    shrinking.join().unwrap().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), SIZE / 2);
    // What lies before the new end was not waited for.
    let (_, result) = files.complete(0);
    let done = volume.resume(before, result, &mut files, 3);
    assert!(matches!(done, Progress::Done(Ok(()))));
    assert_eq!(volume.stats().errors.total(), 2);
}

/// A verify locks nothing: what it meets behind the new end is no bad disk.
#[test]
fn a_verify_behind_the_new_end_is_out_of_range() {
    let (_folder, _, volume) = file_volume(SIZE);
    let mut files = Fake::default();
    let io = crate::compare::verify(0, SIZE, SIZE as usize);
    let Progress::Pending(task) = volume.start(io, &mut files, 1) else {
        panic!("a verify reads");
    };
    volume.resize(SIZE / 2, true).unwrap();
    let (_, result) = files.complete(0);
    let mut progress = volume.resume(task, result, &mut files, 1);
    while let Progress::Pending(task) = progress {
        let (_, result) = files.complete(0);
        progress = volume.resume(task, result, &mut files, 1);
    }
    assert!(matches!(progress, Progress::Done(Err(Error::OutOfRange))));
}

/// In the simulator nothing moves while a thread waits.
#[test]
fn a_volume_over_a_descriptor_does_not_wait() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(SIZE).unwrap();
    let seen = file.try_clone().unwrap();
    let file = Arc::new(DiskFile::from(file));
    let spec = file_spec("nowhere".as_ref(), SIZE);
    let volume = store::over_file(&spec, file, State::volatile(), None).unwrap();
    let mut files = Fake::default();
    write(&*volume, &mut files, 512, &[1; 512], true).unwrap();
    assert_eq!(read(&*volume, &mut files, 512, 512).unwrap(), [1; 512]);
    let buf = buffer(512);
    let offset = SIZE - 512;
    let Progress::Pending(task) = volume.start(Io::Read { offset, buf }, &mut files, 1) else {
        panic!("a read takes a file operation");
    };
    let busy = volume.resize(SIZE / 2, true).unwrap_err();
    assert!(matches!(busy, ResizeError::Busy));
    assert_eq!(volume.size_bytes(), SIZE);
    let (_, result) = files.complete(0);
    let done = volume.resume(task, result, &mut files, 1);
    assert!(matches!(done, Progress::Done(Ok(()))));
    volume.resize(SIZE / 2, true).unwrap();
    assert_eq!(seen.metadata().unwrap().len(), SIZE / 2);
    let all = extents(&*volume, 0, SIZE / 2, 9);
    assert_eq!(all, [(0, SIZE / 2, true)], "nothing is asked of it");
}

fn extents(volume: &dyn Volume, offset: u64, len: u64, max: usize) -> Vec<(u64, u64, bool)> {
    let mut out = vec![Extent {
        offset: 99,
        len: 1,
        allocated: true,
    }];
    volume.extents(offset, len, max, &mut out).unwrap();
    assert_eq!(out.remove(0).offset, 99, "what was there stays");
    let parts = out.iter().map(|e| (e.offset, e.len, e.allocated));
    parts.collect()
}

#[needs(holes)]
#[test]
fn a_sparse_file_tells_where_its_data_is() {
    let mib = 1 << 20;
    let (_folder, _, volume) = file_volume(4 * mib);
    let mut files = Fake::default();
    assert_eq!(extents(&*volume, 0, 4 * mib, 9), [(0, 4 * mib, false)]);
    write(&*volume, &mut files, mib, &[1; 1 << 20], true).unwrap();
    let found = extents(&*volume, 0, 4 * mib, 9);
    let hole = |offset, len| (offset, len, false);
    let data = |offset, len| (offset, len, true);
    let all = [hole(0, mib), data(mib, mib), hole(2 * mib, 2 * mib)];
    assert_eq!(found, all);
    assert_eq!(extents(&*volume, 0, 4 * mib, 2), all[..2]);
    assert_eq!(extents(&*volume, 0, 4 * mib, 0), []);
    let part = [data(mib + 4096, mib - 4096), hole(2 * mib, 512)];
    assert_eq!(extents(&*volume, mib + 4096, mib - 4096 + 512, 9), part);
    assert_eq!(extents(&*volume, 3 * mib, 512, 9), [hole(3 * mib, 512)]);
    // What is deallocated is a hole again, and reads as zeros.
    let (offset, len) = (mib, mib / 2);
    run(&*volume, &mut files, Io::Deallocate { offset, len }).unwrap();
    let half = [hole(0, mib + mib / 2), data(mib + mib / 2, mib / 2)];
    assert_eq!(extents(&*volume, 0, 2 * mib, 9), half);
    let mut out = Vec::new();
    let beyond = volume.extents(4 * mib - 512, 1024, 9, &mut out);
    assert_eq!(beyond, Err(Error::OutOfRange));
}

/// A block is larger than what the file system tells apart: one that has any
/// data is data.
#[test]
fn extents_are_whole_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let mut spec = file_spec(&folder.path().join("disk"), SIZE);
    spec.block_bytes = 4096;
    let volume = open(&spec).unwrap();
    let mut files = Fake::default();
    write(&*volume, &mut files, 8192, &[1; 4096], true).unwrap();
    for (offset, len, _) in extents(&*volume, 0, SIZE, 99) {
        assert!(offset % 4096 == 0 && len % 4096 == 0, "{offset} {len}");
    }
}
