//! What RAM volumes promise beyond holding data.

use crate::common::*;
use crate::fake::Fake;
use mem::{BUF_BYTES_MAX, Loan};
use reactor::Token;
use store::frames::FRAME_BYTES;
use store::{Error, Extent, Io, Kind, Progress, ResizeError, Volume, open};

const FRAME: u64 = FRAME_BYTES as u64;
const SIZE: u64 = 64 * FRAME;

fn ram(size_bytes: u64) -> std::sync::Arc<dyn Volume> {
    open(&spec(Kind::RAM, size_bytes, 512)).unwrap()
}

fn fill(loan: &Loan, byte: u8) {
    for &piece in loan.pieces() {
        mem::copy_in(piece, &vec![byte; piece.len() as usize]);
    }
}

fn holds(loan: &Loan, byte: u8) -> bool {
    loan.pieces().iter().all(|&piece| {
        let mut bytes = vec![0; piece.len() as usize];
        mem::copy_out(piece, &mut bytes);
        bytes.iter().all(|&b| b == byte)
    })
}

#[test]
fn reads_and_writes_of_any_size_are_atomic() {
    assert_eq!(ram(SIZE).info().atomic_bytes, BUF_BYTES_MAX);
}

#[test]
fn lent_memory_keeps_its_content_through_every_change() {
    let volume = ram(SIZE);
    let mut files = Fake::default();
    let len = 8 * FRAME_BYTES;
    write(&*volume, &mut files, 512, &vec![1; len as usize], false).unwrap();
    let read = volume.lend(512, len).unwrap();
    volume.write_now(1024, &[2; 4096]).unwrap().unwrap();
    let mut received = volume.borrow(FRAME, 3 * FRAME_BYTES).unwrap();
    fill(&received, 3);
    volume.commit(&mut received, FRAME).unwrap();
    let (offset, len_bytes) = (4 * FRAME, 2 * FRAME);
    let deallocate = Io::Deallocate {
        offset,
        len: len_bytes,
    };
    run(&*volume, &mut files, deallocate).unwrap();
    volume.resize(FRAME, true).unwrap();
    assert!(holds(&read, 1));
    drop(volume);
    assert!(holds(&read, 1));
}

#[test]
fn a_write_that_was_not_committed_never_happened() {
    let volume = ram(SIZE);
    let mut files = Fake::default();
    let len = 4 * FRAME_BYTES;
    write(&*volume, &mut files, 0, &vec![1; len as usize], false).unwrap();
    let received = volume.borrow(0, len).unwrap();
    fill(&received, 2);
    drop(received);
    assert!(holds(&volume.lend(0, len).unwrap(), 1));
    assert_eq!(volume.stats().writes, 1);
}

#[test]
fn a_write_heals_what_was_unreadable() {
    let volume = ram(SIZE);
    let mut files = Fake::default();
    let len = 8 * FRAME;
    run(&*volume, &mut files, Io::MarkUnreadable { offset: 0, len }).unwrap();
    assert!(volume.lend(0, 512).is_none());
    assert_eq!(
        read(&*volume, &mut files, 0, 512).unwrap_err(),
        Error::Unreadable
    );
    volume.write_now(0, &[1; 512]).unwrap().unwrap();
    assert!(volume.lend(0, 512).is_some());
    assert!(volume.lend(0, 1024).is_none());
    let mut received = volume.borrow(512, 4 * FRAME_BYTES).unwrap();
    fill(&received, 1);
    volume.commit(&mut received, 512).unwrap();
    assert!(volume.lend(0, 4 * FRAME_BYTES).is_some());
    assert!(volume.lend(4 * FRAME, 1024).is_none());
}

#[test]
fn shrunken_volume_refuses_io_beyond_its_end_at_once() {
    let volume = ram(SIZE);
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &vec![1; SIZE as usize], false).unwrap();
    let mut late = volume.borrow(8 * FRAME, 8 * FRAME_BYTES).unwrap();
    assert!(matches!(
        volume.resize(10 * FRAME, false),
        Err(ResizeError::Shrink { .. })
    ));
    volume.resize(10 * FRAME, true).unwrap();
    assert_eq!(volume.size_bytes(), 10 * FRAME);
    let past = Err(Error::OutOfRange);
    assert_eq!(volume.commit(&mut late, 8 * FRAME), past);
    assert_eq!(volume.write_now(10 * FRAME, &[1; 512]), Some(past));
    assert!(volume.lend(10 * FRAME, 512).is_none());
    assert!(volume.borrow(9 * FRAME, 2 * FRAME_BYTES).is_none());
    volume.resize(2 * SIZE, false).unwrap();
    assert_eq!(volume.size_bytes(), 2 * SIZE);
    let all = read(&*volume, &mut files, 0, 2 * SIZE as usize).unwrap();
    let (kept, new) = all.split_at(10 * FRAME as usize);
    assert!(kept.iter().all(|&b| b == 1), "what is left is untouched");
    assert!(new.iter().all(|&b| b == 0), "and the rest is new");
    write(&*volume, &mut files, 2 * SIZE - 512, &[1; 512], false).unwrap();
    assert!(matches!(
        volume.resize(1 << 49, false),
        Err(ResizeError::Memory { .. })
    ));
    assert_eq!(volume.size_bytes(), 2 * SIZE);
}

#[test]
fn extents_tell_what_was_written() {
    let volume = ram(SIZE);
    let mut files = Fake::default();
    write(&*volume, &mut files, 3 * FRAME + 512, &[1; 512], false).unwrap();
    let zero = Io::Zero {
        offset: 10 * FRAME,
        len: 20 * FRAME,
        deallocate: false,
        durable: false,
    };
    run(&*volume, &mut files, zero).unwrap();
    let extents = |offset, len, max| {
        let mut out = Vec::new();
        volume.extents(offset, len, max, &mut out).map(|()| out)
    };
    let part = |offset, to, allocated| Extent {
        offset,
        len: to - offset,
        allocated,
    };
    let all = [
        part(0, 3 * FRAME, false),
        part(3 * FRAME, 4 * FRAME, true),
        part(4 * FRAME, 10 * FRAME, false),
        part(10 * FRAME, 30 * FRAME, true),
        part(30 * FRAME, SIZE, false),
    ];
    assert_eq!(extents(0, SIZE, 10).unwrap(), all);
    assert_eq!(extents(0, SIZE, 2).unwrap(), all[..2]);
    let cut = [
        part(3 * FRAME + 1024, 4 * FRAME, true),
        part(4 * FRAME, 4 * FRAME + 512, false),
    ];
    assert_eq!(extents(3 * FRAME + 1024, FRAME - 512, 10).unwrap(), cut);
    assert_eq!(extents(SIZE, 0, 10).unwrap(), []);
    assert_eq!(extents(SIZE, 512, 10), Err(Error::OutOfRange));
}

/// Others have their turn between the steps of a long change.
#[test]
fn long_ranges_are_changed_in_steps() {
    const TOKEN: Token = 7;
    let size = 64 << 20;
    let volume = ram(size);
    let mut files = Fake::default();
    write(&*volume, &mut files, size - 512, &[1; 512], false).unwrap();
    write(&*volume, &mut files, 512, &[1; 512], false).unwrap();
    for deallocate in [false, true] {
        let zero = Io::Zero {
            offset: 512,
            len: size - 512,
            deallocate,
            durable: false,
        };
        let mut steps = 1;
        let mut progress = volume.start(zero, files.io(), TOKEN);
        let all = store::Range {
            offset: 0,
            len: size,
        };
        let watch = volume.base().watch(vec![all]);
        while let Progress::Pending(task) = progress {
            assert!(!task.is_waiting(), "it has begun");
            assert_eq!(volume.stats().zeroes, u64::from(deallocate));
            let (token, result) = files.completion();
            assert_eq!(token, TOKEN);
            progress = volume.resume(task, result, files.io(), TOKEN);
            steps += 1;
        }
        assert!(matches!(progress, Progress::Done(Ok(()))));
        assert!(watch.has_changed(), "it was not over when that began");
        assert!(steps >= 4, "{steps} steps");
        let mut out = Vec::new();
        volume.extents(FRAME, size - FRAME, 9, &mut out).unwrap();
        assert_eq!((out.len(), out[0].allocated), (1, !deallocate));
        let ends = [
            read(&*volume, &mut files, 0, 1024),
            read(&*volume, &mut files, size - 512, 512),
        ];
        assert!(
            ends.iter()
                .all(|end| end.as_ref().unwrap().iter().all(|&b| b == 0))
        );
    }
    assert_eq!(volume.stats().zeroes, 2);
}

/// Hosts that never take what they have asked for keep no other from writing.
#[test]
fn reads_are_copied_when_much_is_lent() {
    let volume = ram(SIZE);
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &vec![1; SIZE as usize], false).unwrap();
    let mut held = Vec::new();
    while let Some(loan) = volume.lend(0, 32 * FRAME_BYTES) {
        held.push(loan);
        for frame in 0..32 {
            let done = volume.write_now(frame * FRAME, &[2; 512]);
            assert_eq!(done, Some(Ok(())));
        }
        assert!(held.len() < 1000, "ever more memory");
    }
    assert_eq!(read(&*volume, &mut files, 0, 512).unwrap(), [2; 512]);
    for frame in 0..64 {
        let done = volume.write_now(frame * FRAME, &[3; 512]);
        assert_eq!(done, Some(Ok(())));
    }
    held.clear();
    assert!(volume.lend(0, FRAME_BYTES).is_some());
}
