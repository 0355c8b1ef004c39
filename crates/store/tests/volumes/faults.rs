//! What goes wrong below becomes the right error, is counted, and costs
//! nothing else.

use crate::common::*;
use crate::fake::*;
use crate::file_volume;
use store::{Errno, Error, Io, Progress};

const SIZE: u64 = 64 << 10;

fn error_of(io: Io, faults: &[Fault]) -> (Error, store::ErrorStats) {
    let (_folder, _, volume) = file_volume(SIZE);
    let mut files = Fake::with(faults);
    let error = run(&*volume, &mut files, io).unwrap_err();
    assert!(files.faults.is_empty(), "{io:?}: faults left over");
    assert_eq!(volume.stats().errors.total(), 1);
    (error, volume.stats().errors)
}

#[test]
fn each_fault_has_its_error() {
    let buf = buffer(8192);
    let (offset, len) = (0, 8192);
    let read = Io::Read { offset, buf };
    let write = |durable| Io::Write {
        offset,
        buf,
        durable,
    };
    let zero = Io::Zero {
        offset,
        len,
        deallocate: false,
        durable: false,
    };
    let deallocate = Io::Deallocate { offset, len };
    let zeros = buffer(8192);
    let compare = crate::compare::compare(offset, &[0; 8192]);
    let replace = |durable| Io::CompareAndWrite {
        offset,
        compare: zeros,
        write: zeros,
        scratch: buf,
        durable,
    };
    let verify = crate::compare::verify(offset, len, 4096);
    let errno = Fault::Errno;
    use libc::*;
    let table: &[(Io, &[Fault], Error)] = &[
        (read, &[errno(EIO)], Error::ReadFailed(Errno::IO)),
        (
            read,
            &[Fault::Short(512), errno(EIO)],
            Error::ReadFailed(Errno::IO),
        ),
        (read, &[Fault::Short(0)], Error::EndsEarly),
        (read, &[errno(EINTR); 9], Error::ReadFailed(Errno::INTR)),
        (write(false), &[errno(EIO)], Error::WriteFailed(Errno::IO)),
        (
            write(false),
            &[errno(ENOSPC)],
            Error::OutOfSpace(Errno::NOSPC),
        ),
        (
            write(false),
            &[Fault::Short(4096), errno(EDQUOT)],
            Error::OutOfSpace(Errno::DQUOT),
        ),
        (
            write(false),
            &[Fault::Short(0)],
            Error::WriteFailed(Errno::IO),
        ),
        (write(false), &[errno(EROFS)], Error::ReadOnly),
        (
            write(false),
            &[errno(EPERM)],
            Error::WriteFailed(Errno::PERM),
        ),
        (
            write(false),
            &[errno(ECANCELED)],
            Error::WriteFailed(Errno::CANCELED),
        ),
        (write(true), &[errno(EIO)], Error::WriteFailed(Errno::IO)),
        (
            write(true),
            &[errno(ENOSPC); 2],
            Error::OutOfSpace(Errno::NOSPC),
        ),
        (zero, &[errno(ENOSPC)], Error::OutOfSpace(Errno::NOSPC)),
        (
            zero,
            &[errno(EOPNOTSUPP), errno(EIO)],
            Error::WriteFailed(Errno::IO),
        ),
        (deallocate, &[errno(EIO)], Error::WriteFailed(Errno::IO)),
        (compare, &[errno(EIO)], Error::ReadFailed(Errno::IO)),
        (replace(true), &[errno(EIO)], Error::ReadFailed(Errno::IO)),
        (
            replace(false),
            &[Fault::None, errno(EIO)],
            Error::WriteFailed(Errno::IO),
        ),
        (
            replace(true),
            &[Fault::Short(512), Fault::None, errno(ENOSPC), errno(ENOSPC)],
            Error::OutOfSpace(Errno::NOSPC),
        ),
        (verify, &[errno(ENXIO)], Error::ReadFailed(Errno::NXIO)),
        (Io::Flush, &[errno(EIO)], Error::FlushFailed(Errno::IO)),
        (
            Io::Flush,
            &[errno(ENOSPC)],
            Error::FlushFailed(Errno::NOSPC),
        ),
    ];
    for (io, faults, expected) in table {
        let (error, counted) = error_of(*io, faults);
        assert_eq!(error, *expected, "{io:?} {faults:?}");
        let count = match error {
            Error::OutOfRange => counted.out_of_range,
            Error::ReadOnly => counted.read_only,
            Error::OutOfSpace(_) => counted.out_of_space,
            Error::ReadFailed(_) | Error::EndsEarly => counted.read_failed,
            Error::WriteFailed(_) => counted.write_failed,
            Error::FlushFailed(_) => counted.flush_failed,
            Error::Miscompare { .. } => counted.miscompare,
            Error::Unreadable => counted.unreadable,
            Error::ChecksumMismatch => counted.checksum_mismatch,
            Error::Locked => counted.locked,
            Error::Busy => counted.busy,
        };
        assert_eq!(count, 1, "{io:?} {faults:?}");
    }
}

#[test]
fn a_fault_costs_only_its_own_io() {
    let (_folder, _, volume) = file_volume(SIZE);
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &[3; 4096], false).unwrap();
    for errno in [libc::EIO, libc::ENOSPC] {
        files.faults.push_back(Fault::Errno(errno));
        write(&*volume, &mut files, 0, &[4; 4096], false).unwrap_err();
    }
    assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), [3; 4096]);
    write(&*volume, &mut files, 0, &[5; 4096], true).unwrap();
    run(&*volume, &mut files, Io::Flush).unwrap();
    assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), [5; 4096]);
}

#[test]
fn read_of_a_file_that_a_local_process_truncated_fails() {
    let (_folder, path, volume) = file_volume(SIZE);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(SIZE - 4096).unwrap();
    let mut files = Fake::default();
    let result = read(&*volume, &mut files, SIZE - 8192, 8192);
    assert_eq!(result, Err(Error::EndsEarly));
    assert_eq!(read(&*volume, &mut files, 0, 512).unwrap(), [0; 512]);
}

/// The kernel forgets a failed writeback once it has been reported.
#[test]
fn a_failed_flush_is_never_followed_by_a_good_one() {
    let failing_first: [fn(&dyn store::Volume, &mut Fake); 3] = [
        |volume, files| run(volume, files, Io::Flush).unwrap_err_into(),
        |volume, files| write(volume, files, 0, &[1; 512], true).unwrap_err_into(),
        |volume, files| {
            let io = Io::Zero {
                offset: 0,
                len: 512,
                deallocate: true,
                durable: true,
            };
            files.faults.push_front(Fault::None);
            run(volume, files, io).unwrap_err_into();
        },
    ];
    for fail in failing_first {
        let (_folder, path, volume) = file_volume(SIZE);
        let mut files = Fake::with(&[Fault::Errno(libc::EIO)]);
        fail(&*volume, &mut files);
        assert!(files.faults.is_empty());
        files.log.clear();
        let lost = Errno::IO;
        let flush = run(&*volume, &mut files, Io::Flush);
        assert_eq!(flush, Err(Error::FlushFailed(lost)));
        let durable = write(&*volume, &mut files, 0, &[2; 512], true);
        assert_eq!(durable, Err(Error::WriteFailed(lost)));
        assert!(files.log.is_empty(), "refused before it reaches the file");
        write(&*volume, &mut files, 0, &[2; 512], false).unwrap();
        assert_eq!(read(&*volume, &mut files, 0, 512).unwrap(), [2; 512]);
        drop(volume);
        let again = store::open(&file_spec(&path, SIZE)).unwrap();
        run(&*again, &mut files, Io::Flush).unwrap();
    }
}

trait UnwrapErrInto {
    fn unwrap_err_into(self);
}

impl UnwrapErrInto for Result<(), Error> {
    fn unwrap_err_into(self) {
        self.unwrap_err();
    }
}

#[test]
fn a_flush_beside_a_failing_one_does_not_succeed_after_it() {
    let (_folder, _, volume) = file_volume(SIZE);
    let mut files = Fake::with(&[Fault::Errno(libc::EIO)]);
    let Progress::Pending(first) = volume.start(Io::Flush, &mut files, 1) else {
        panic!("a flush takes a sync");
    };
    let Progress::Pending(second) = volume.start(Io::Flush, &mut files, 2) else {
        panic!("a flush takes a sync");
    };
    let (token, result) = files.complete(0);
    assert_eq!(token, 1);
    let first = volume.resume(first, result, &mut files, 1);
    let (_, result) = files.complete(0);
    assert!(result.is_ok(), "the kernel told the other one");
    let second = volume.resume(second, result, &mut files, 2);
    for progress in [first, second] {
        let Progress::Done(result) = progress else {
            panic!("a sync is not repeated");
        };
        assert_eq!(result, Err(Error::FlushFailed(Errno::IO)));
    }
}

/// The sync that a mark waits for may succeed beside one that was told that the write is
/// lost: the disk has what was there before the mark.
#[test]
fn a_mark_stays_where_a_sync_beside_the_write_has_lost_it() {
    let (_folder, _, volume) = file_volume(SIZE);
    let mut files = Fake::default();
    let (offset, len) = (512, 512);
    run(&*volume, &mut files, Io::MarkUnreadable { offset, len }).unwrap();
    let [ok, fails] = [Fault::None, Fault::Errno(libc::EIO)];
    // The write, the flush, the sync after the write.
    files.faults.extend([ok, fails, ok]);
    let mut begin = |io, token| match volume.start(io, &mut files, token) {
        Progress::Pending(task) => task,
        Progress::Done(result) => panic!("{result:?} without a file operation"),
    };
    let (buf, durable) = (buffer(512), false);
    let write = Io::Write {
        offset,
        buf,
        durable,
    };
    let write = begin(write, 1);
    let flush = begin(Io::Flush, 2);
    let (token, result) = files.complete(0);
    let Progress::Pending(write) = volume.resume(write, result, &mut files, token) else {
        panic!("the mark goes after a sync");
    };
    let (_, lost) = files.complete(0);
    let flushed = volume.resume(flush, lost, &mut files, 2);
    let failed = Error::FlushFailed(Errno::IO);
    assert!(matches!(flushed, Progress::Done(Err(error)) if error == failed));
    let (_, synced) = files.complete(0);
    let written = volume.resume(write, synced, &mut files, 1);
    let failed = Error::WriteFailed(Errno::IO);
    assert!(matches!(written, Progress::Done(Err(error)) if error == failed));
    assert_eq!(
        volume.unreadable(0, SIZE, 9),
        [store::Range { offset, len }]
    );
}

/// A full disk is no loss of data: once there is room, everything works again.
#[test]
fn a_full_disk_does_not_spoil_later_flushes() {
    let (_folder, _, volume) = file_volume(SIZE);
    let full = Fault::Errno(libc::ENOSPC);
    let mut files = Fake::with(&[full, full]);
    let result = write(&*volume, &mut files, 0, &[1; 512], true);
    assert_eq!(result, Err(Error::OutOfSpace(Errno::NOSPC)));
    run(&*volume, &mut files, Io::Flush).unwrap();
    write(&*volume, &mut files, 0, &[1; 512], true).unwrap();
}

/// Room for the write but none on the way to the disk is a loss.
#[test]
fn a_disk_that_is_full_below_the_cache_is_a_lost_write() {
    let (_folder, _, volume) = file_volume(SIZE);
    let full = Fault::Errno(libc::ENOSPC);
    let mut files = Fake::with(&[full, Fault::None, full]);
    let result = write(&*volume, &mut files, 0, &[1; 512], true);
    assert_eq!(result, Err(Error::OutOfSpace(Errno::NOSPC)));
    let write = |durable| Op::Write {
        offset: 0,
        len: 512,
        durable,
    };
    assert_eq!(files.log, [write(true), write(false), Op::Sync]);
    let flush = run(&*volume, &mut files, Io::Flush);
    assert_eq!(flush, Err(Error::FlushFailed(Errno::NOSPC)));
}

#[test]
fn durable_means_durable_in_every_part() {
    let (_folder, _, volume) = file_volume(SIZE);
    let mut files = Fake::with(&[Fault::Short(1000)]);
    write(&*volume, &mut files, 512, &[1; 4096], true).unwrap();
    let part = |offset, len| Op::Write {
        offset,
        len,
        durable: true,
    };
    assert_eq!(files.log, [part(512, 4096), part(1512, 3096)]);
    files.log.clear();
    write(&*volume, &mut files, 512, &[1; 4096], false).unwrap();
    run(&*volume, &mut files, Io::Flush).unwrap();
    let plain = Op::Write {
        offset: 512,
        len: 4096,
        durable: false,
    };
    assert_eq!(files.log, [plain, Op::Sync]);
}

#[test]
fn tasks_complete_in_any_order() {
    let (_folder, _, volume) = file_volume(SIZE);
    let mut files = Fake::default();
    let mut tasks = Vec::new();
    for i in 0..8 {
        let buf = buffer(512);
        mem::copy_in(buf, &[i as u8 + 1; 512]);
        let io = Io::Write {
            offset: i * 512,
            buf,
            durable: false,
        };
        let Progress::Pending(task) = volume.start(io, &mut files, i) else {
            panic!("a write takes a file operation");
        };
        tasks.push(Some(task));
    }
    for _ in 0..8 {
        let last = files.pending() - 1;
        let (token, result) = files.complete(last);
        let task = tasks[token as usize].take().expect("completes once");
        let progress = volume.resume(task, result, &mut files, token);
        assert!(matches!(progress, Progress::Done(Ok(()))));
    }
    let bytes = read(&*volume, &mut files, 0, 8 * 512).unwrap();
    for (i, block) in bytes.chunks(512).enumerate() {
        assert!(block.iter().all(|&b| b == i as u8 + 1));
    }
}

/// Only interruptions without progress count against a transfer.
#[test]
fn a_transfer_that_moves_on_may_be_interrupted_often() {
    let (_folder, _, volume) = file_volume(SIZE);
    let mut files = Fake::default();
    for _ in 0..15 {
        let interrupted = Fault::Errno(libc::EINTR);
        files.faults.extend([interrupted, Fault::Short(512)]);
    }
    write(&*volume, &mut files, 0, &[6; 8192], false).unwrap();
    assert_eq!(read(&*volume, &mut files, 0, 8192).unwrap(), [6; 8192]);
}
