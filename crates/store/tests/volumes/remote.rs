//! Volumes whose blocks another machine keeps, over a double of that.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use store::{
    Errno, Error, Io, Kind, PathStatus, Problem, RemoteAt, RemoteBlocks, RemoteCall, RemoteInfo,
    RemotePlace, ResizeError, Spec, State, Volume, over_blocks, over_legs,
};

use crate::common::*;
use crate::compare::{compare, compare_and_write, verify};
use crate::fake::Fake;
use crate::mirror::{Kept, dirty, missing, settle, words};
use crate::ranges::{Desk, read_io, write_io};

const SIZE: u64 = 4 << 20;

/// Blocks in memory, that answer at once, when they are told to, or not at all.
struct There {
    info: RemoteInfo,
    size_bytes: AtomicU64,
    losses: AtomicU64,
    bytes: Mutex<Vec<u8>>,
    /// What was asked for.
    asked: Mutex<Vec<Io>>,
    /// It keeps what it is asked for.
    holds: AtomicBool,
    held: Mutex<Vec<(Io, RemoteCall)>>,
    fails: Mutex<Option<Error>>,
}

impl There {
    fn new(is_thin: bool) -> Arc<There> {
        Arc::new(There {
            info: RemoteInfo {
                identifier: "there".into(),
                block_bytes: 512,
                size_bytes: SIZE,
                volatile_cache: true,
                is_thin,
            },
            size_bytes: AtomicU64::new(SIZE),
            losses: AtomicU64::new(0),
            bytes: Mutex::new(vec![0; SIZE as usize]),
            asked: Mutex::default(),
            holds: AtomicBool::new(false),
            held: Mutex::default(),
            fails: Mutex::new(None),
        })
    }

    fn open(self: &Arc<There>) -> Arc<dyn Volume> {
        over_blocks(&spec_of(0, 0), self.clone(), State::volatile()).unwrap()
    }

    fn do_it(&self, io: Io) {
        let (offset, len) = io.extent();
        let mut bytes = self.bytes.lock().unwrap();
        let part = &mut bytes[offset as usize..(offset + len) as usize];
        match io {
            Io::Read { buf, .. } => mem::copy_in(buf, part),
            Io::Write { buf, .. } => mem::copy_out(buf, part),
            Io::Zero { .. } => part.fill(0),
            Io::Flush => {}
            other => panic!("{other:?} is none of what is asked there"),
        }
    }

    /// Answers what it holds, in the order in which it came.
    fn let_go(&self) {
        let held: Vec<_> = self.held.lock().unwrap().drain(..).collect();
        for (io, call) in held {
            self.do_it(io);
            call.end(Ok(()));
        }
    }

    /// How many of these it was asked for.
    fn count(&self, is_so: fn(&Io) -> bool) -> usize {
        self.asked
            .lock()
            .unwrap()
            .iter()
            .filter(|io| is_so(io))
            .count()
    }
}

impl RemoteBlocks for There {
    fn info(&self) -> &RemoteInfo {
        &self.info
    }

    fn begin(&self, io: Io, call: RemoteCall) {
        self.asked.lock().unwrap().push(io);
        if let Some(error) = *self.fails.lock().unwrap() {
            return call.end(Err(error));
        }
        if self.holds.load(Ordering::Relaxed) {
            return self.held.lock().unwrap().push((io, call));
        }
        self.do_it(io);
        call.end(Ok(()));
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    fn paths(&self) -> Vec<PathStatus> {
        Vec::new()
    }

    fn follow(&self, _place: &dyn RemotePlace) {}
}

/// A place that leads there.
struct Place(Arc<There>);

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there")
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there")
    }
}

impl RemotePlace for Place {
    fn open(&self, volume: &str) -> Result<Arc<dyn RemoteBlocks>, String> {
        assert_eq!(volume, "disk");
        Ok(self.0.clone())
    }

    fn examine(&self) -> Result<RemoteInfo, String> {
        Ok(self.0.info.clone())
    }

    fn equals(&self, other: &dyn RemotePlace) -> bool {
        let other = (other as &dyn Any).downcast_ref::<Place>();
        other.is_some_and(|other| Arc::ptr_eq(&self.0, &other.0))
    }

    fn equals_but_for_credentials(&self, other: &dyn RemotePlace) -> bool {
        self.equals(other)
    }
}

fn spec_of(size_bytes: u64, block_bytes: u32) -> Spec {
    let place = RemoteAt(Arc::new(Place(There::new(true))));
    spec(Kind::remote(place), size_bytes, block_bytes)
}

fn is_zero(io: &Io) -> bool {
    matches!(io, Io::Zero { .. })
}

fn is_flush(io: &Io) -> bool {
    matches!(io, Io::Flush)
}

#[test]
fn written_data_is_there_and_is_read_compared_and_verified() {
    let there = There::new(true);
    let volume = there.open();
    let mut files = Fake::default();
    write(&*volume, &mut files, 4096, &[7; 4096], true).unwrap();
    assert_eq!(there.bytes.lock().unwrap()[4096..8192], [7; 4096]);
    let asked = there.asked.lock().unwrap()[0];
    assert!(matches!(asked, Io::Write { durable: true, .. }));
    assert_eq!(read(&*volume, &mut files, 4096, 512).unwrap(), [7; 512]);
    let mut other = vec![7; 1024];
    other[600] = 8;
    assert_eq!(run(&*volume, &mut files, compare(4096, &[7; 1024])), Ok(()));
    let differs = Err(Error::Miscompare { offset: 600 });
    assert_eq!(run(&*volume, &mut files, compare(4096, &other)), differs);
    let swapped = run(
        &*volume,
        &mut files,
        compare_and_write(4096, &other, &[9; 1024], false),
    );
    assert_eq!(swapped, differs);
    let swapped = run(
        &*volume,
        &mut files,
        compare_and_write(4096, &[7; 1024], &[9; 1024], false),
    );
    assert_eq!(swapped, Ok(()));
    let or = Io::OrWrite {
        offset: 4096,
        buf: filled(512, 0x60),
        scratch: buffer(512),
        durable: false,
    };
    assert_eq!(run(&*volume, &mut files, or), Ok(()));
    assert_eq!(read(&*volume, &mut files, 4096, 512).unwrap(), [0x69; 512]);
    assert_eq!(read(&*volume, &mut files, 4608, 512).unwrap(), [9; 512]);
    let before = there.asked.lock().unwrap().len();
    assert_eq!(run(&*volume, &mut files, verify(0, SIZE, 65536)), Ok(()));
    assert!(there.asked.lock().unwrap().len() > before);
    let end = write(&*volume, &mut files, SIZE, &[1; 512], false);
    assert_eq!(end, Err(Error::OutOfRange));
    assert_eq!(run(&*volume, &mut files, Io::Flush), Ok(()));
    assert_eq!(there.count(is_flush), 1);
}

fn filled(len: usize, byte: u8) -> mem::BufRange {
    let buf = buffer(len);
    mem::copy_in(buf, &vec![byte; len]);
    buf
}

#[test]
fn deallocate_is_zeros_where_space_is_given_back_and_else_nothing() {
    for (is_thin, zeros) in [(true, 1), (false, 0)] {
        let there = There::new(is_thin);
        let volume = there.open();
        let mut files = Fake::default();
        write(&*volume, &mut files, 0, &[7; 1024], false).unwrap();
        let deallocate = Io::Deallocate {
            offset: 0,
            len: 512,
        };
        assert_eq!(run(&*volume, &mut files, deallocate), Ok(()));
        assert_eq!(there.count(is_zero), zeros);
        let left = if is_thin { 0 } else { 7 };
        assert_eq!(read(&*volume, &mut files, 0, 512).unwrap(), [left; 512]);
        assert_eq!(volume.info().is_thin, is_thin);
    }
}

#[test]
fn io_waits_for_one_that_changes_what_it_needs_and_for_no_other() {
    let there = There::new(true);
    let volume = there.open();
    let mut desk = Desk::new(&*volume);
    there.holds.store(true, Ordering::Relaxed);
    let first = desk.start(write_io(0, 1, 4096));
    let second = desk.start(write_io(2048, 2, 4096));
    let beside = desk.start(write_io(8192, 3, 512));
    assert_eq!(there.held.lock().unwrap().len(), 2, "one waits");
    assert!(desk.tasks[second].as_ref().unwrap().is_waiting());
    assert!(!desk.tasks[first].as_ref().unwrap().is_waiting());
    there.let_go();
    desk.calls();
    assert_eq!(desk.results[beside], Some(Ok(())));
    assert_eq!(there.held.lock().unwrap().len(), 1, "it has its turn");
    there.let_go();
    desk.calls();
    assert_eq!(desk.results, [Some(Ok(())); 3]);
    assert_eq!(there.bytes.lock().unwrap()[2048..6144], [2; 4096]);
}

#[test]
fn failure_is_that_of_the_io_and_so_is_an_answer_that_never_comes() {
    let there = There::new(true);
    let volume = there.open();
    let mut files = Fake::default();
    *there.fails.lock().unwrap() = Some(Error::WriteFailed(Errno::TIMEDOUT));
    let read_failed = Error::ReadFailed(Errno::TIMEDOUT);
    assert_eq!(read(&*volume, &mut files, 0, 512), Err(read_failed));
    let swapped = run(
        &*volume,
        &mut files,
        compare_and_write(0, &[0; 512], &[1; 512], false),
    );
    assert_eq!(swapped, Err(read_failed));
    let flushed = run(&*volume, &mut files, Io::Flush);
    assert_eq!(flushed, Err(Error::FlushFailed(Errno::TIMEDOUT)));
    *there.fails.lock().unwrap() = Some(Error::OutOfRange);
    let written = write(&*volume, &mut files, 0, &[1; 512], false);
    assert_eq!(written, Err(Error::OutOfRange));
    *there.fails.lock().unwrap() = None;
    there.holds.store(true, Ordering::Relaxed);
    let mut desk = Desk::new(&*volume);
    desk.start(write_io(0, 1, 512));
    desk.start(read_io(4096, 512).0);
    there.held.lock().unwrap().clear();
    desk.calls();
    let gone = [
        Some(Err(Error::WriteFailed(Errno::NXIO))),
        Some(Err(Error::ReadFailed(Errno::NXIO))),
    ];
    assert_eq!(desk.results, gone);
    there.holds.store(false, Ordering::Relaxed);
    write(&*volume, &mut files, 0, &[1; 512], false).expect("its range is free");
}

#[test]
fn size_and_blocks_are_those_of_what_is_there() {
    let there = There::new(true);
    for (size_bytes, block_bytes) in [(0, 0), (SIZE, 512), (0, 512)] {
        let spec = spec_of(size_bytes, block_bytes);
        let volume = over_blocks(&spec, there.clone(), State::volatile()).unwrap();
        assert_eq!(volume.size_bytes(), SIZE);
        assert_eq!(volume.info().block_bytes, 512);
    }
    for (size_bytes, block_bytes) in [(SIZE / 2, 0), (2 * SIZE, 512), (0, 4096)] {
        let spec = spec_of(size_bytes, block_bytes);
        let Err(error) = over_blocks(&spec, there.clone(), State::volatile()) else {
            panic!("{size_bytes} {block_bytes} is something else");
        };
        assert!(matches!(error.problem, Problem::RemoteFormat { .. }));
    }
    let volume = there.open();
    there.size_bytes.store(2 * SIZE, Ordering::Relaxed);
    let other = volume.resize(3 * SIZE, false);
    assert!(
        matches!(other, Err(ResizeError::Remote { .. })),
        "{other:?}"
    );
    assert_eq!(volume.size_bytes(), SIZE);
    volume.resize(0, false).unwrap();
    assert_eq!(volume.size_bytes(), 2 * SIZE);
}

#[test]
fn description_names_the_place_and_is_another_where_that_is() {
    let there = There::new(true);
    let place = || RemoteAt(Arc::new(Place(there.clone())));
    let spec = Spec::new("disk", Kind::remote(place()), 0, 0);
    assert_eq!(spec.kind.to_string(), "remote there");
    assert!(!spec.kind.is_memory());
    assert_eq!(spec.kind, Kind::remote(place()));
    assert_ne!(spec.kind, spec_of(0, 0).kind);
    let examined = store::examine(&spec).unwrap();
    let volume = store::open(&spec).unwrap();
    assert_eq!(examined.info, *volume.info());
    assert_eq!(examined.size_bytes, SIZE);
}

#[test]
fn volume_is_blank_where_both_ends_are_zeros() {
    let there = There::new(true);
    let volume = there.open();
    let all = store::Range {
        offset: 0,
        len: SIZE,
    };
    assert!(volume.is_blank(all));
    there.bytes.lock().unwrap()[SIZE as usize - 1] = 1;
    assert!(!volume.is_blank(all));
    *there.fails.lock().unwrap() = Some(Error::ReadFailed(Errno::IO));
    assert!(!volume.is_blank(all), "it is not known");
}

#[test]
fn marked_block_is_readable_again_when_what_was_written_there_is_flushed() {
    let there = There::new(true);
    let kept = Kept::default();
    let spec = spec_of(0, 0);
    let id = there.open().info().uuid;
    let open = || {
        let state = State::open(Box::new(kept.clone()), id).unwrap();
        over_blocks(&spec, there.clone(), state).unwrap()
    };
    let volume = open();
    let mut files = Fake::default();
    let mark = Io::MarkUnreadable {
        offset: 512,
        len: 512,
    };
    assert_eq!(run(&*volume, &mut files, mark), Ok(()));
    drop(volume);
    let volume = open();
    let unreadable = read(&*volume, &mut files, 0, 1024);
    assert_eq!(unreadable, Err(Error::Unreadable));
    assert_eq!(there.count(is_flush), 0);
    write(&*volume, &mut files, 512, &[1; 512], false).unwrap();
    assert_eq!(there.count(is_flush), 1);
    assert_eq!(read(&*volume, &mut files, 512, 512).unwrap(), [1; 512]);
    drop(volume);
    assert_eq!(read(&*open(), &mut files, 512, 512).unwrap(), [1; 512]);
}

#[test]
fn leg_that_may_have_lost_what_was_not_flushed_gets_it_again() {
    let there = There::new(true);
    let folder = tempfile::tempdir().unwrap();
    let here = Spec::new("here", Kind::file(folder.path().join("here")), SIZE, 512);
    let here = store::open(&here).unwrap();
    let spec = Spec::new("mirror", Kind::mirror(&["here", "disk"]), 0, 512);
    let log = Box::new(Kept::default());
    let legs = vec![here, there.open()];
    let volume = over_legs(&spec, legs, State::volatile(), log).unwrap();
    let mut files = Fake::default();
    settle(&*volume, &mut files, 0);
    assert_eq!(words(&*volume), ["in-sync"; 2]);
    run(&*volume, &mut files, Io::Flush).unwrap();
    write(&*volume, &mut files, 0, &[7; 4096], false).unwrap();
    // Its machine crashes, and is there again.
    there.bytes.lock().unwrap()[..4096].fill(0);
    there.losses.fetch_add(1, Ordering::Relaxed);
    run(&*volume, &mut files, Io::Flush).expect("the other has it");
    assert_eq!(words(&*volume), ["in-sync", "out"]);
    assert!(missing(&*volume, 1) > 0);
    for _ in 0..4 {
        assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), [7; 4096]);
    }
    settle(&*volume, &mut files, 20_000_000_000);
    assert_eq!(words(&*volume), ["in-sync"; 2]);
    assert_eq!(there.bytes.lock().unwrap()[..4096], [7; 4096]);
    // What was flushed is there whatever happens.
    run(&*volume, &mut files, Io::Flush).unwrap();
    settle(&*volume, &mut files, 100_000_000_000);
    assert_eq!(dirty(&*volume), 0);
    assert_eq!(words(&*volume), ["in-sync"; 2]);
}
