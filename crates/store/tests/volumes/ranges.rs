//! I/Os that meet on one range: each is one step to every other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use crate::common::*;
use crate::compare::{compare, compare_and_write, verify};
use crate::fake::*;
use random::Random;

use crate::file_volume;
use mem::{BufRange, counters};
use needs::each_driver;
use reactor::{Choice, DiskFile, FallocateMode, FileIo, Ticket, Token};
use store::{Errno, Error, Io, LEG_BITS, Progress, Task, Volume};

const SIZE: u64 = 4 << 20;

/// I/Os on one volume at once; their tokens are of their order.
pub struct Desk<'a> {
    volume: &'a dyn Volume,
    pub files: Fake,
    pub tasks: Vec<Option<Task>>,
    pub results: Vec<Option<Result<(), Error>>>,
}

impl Desk<'_> {
    pub fn new(volume: &dyn Volume) -> Desk<'_> {
        Desk {
            volume,
            files: Fake::default(),
            tasks: Vec::new(),
            results: Vec::new(),
        }
    }

    pub fn start(&mut self, io: Io) -> usize {
        let index = self.tasks.len();
        self.tasks.push(None);
        self.results.push(None);
        let token = token_of(index as u64);
        let progress = self.volume.start(io, &mut self.files, token);
        self.note(index, progress);
        index
    }

    /// Begins what the volume does by itself; `None`: nothing now.
    pub fn upkeep(&mut self, now: u64) -> Option<usize> {
        let index = self.tasks.len();
        let token = token_of(index as u64);
        let progress = self.volume.upkeep(now, &mut self.files, token)?;
        self.tasks.push(None);
        self.results.push(None);
        self.note(index, progress);
        Some(index)
    }

    fn note(&mut self, index: usize, progress: Progress) {
        match progress {
            Progress::Done(result) => self.results[index] = Some(result),
            Progress::Pending(task) => self.tasks[index] = Some(task),
        }
    }

    /// Ends the oldest file operation that is under way.
    fn step(&mut self) {
        self.step_at(0);
    }

    /// Ends the file operation at `index` of those that are under way.
    pub fn step_at(&mut self, index: usize) {
        let (token, result) = self.files.complete(index);
        self.resume(token, result);
        self.calls();
    }

    pub fn resume(&mut self, token: Token, result: std::io::Result<u32>) {
        let index = (token >> LEG_BITS) as usize;
        let task = self.tasks[index].take().expect("completes once");
        let progress = (self.volume).resume(task, result, &mut self.files, token);
        self.note(index, progress);
    }

    /// Goes on with those that were called.
    pub fn calls(&mut self) {
        loop {
            let called = self.files.rung();
            if called.is_empty() {
                return;
            }
            for token in called {
                if self.tasks[(token >> LEG_BITS) as usize].is_some() {
                    self.resume(token, Ok(0));
                }
            }
        }
    }

    pub fn waits(&self, index: usize) -> bool {
        self.tasks[index].as_ref().is_some_and(Task::is_waiting)
    }

    fn waiting(&self) -> usize {
        (0..self.tasks.len())
            .filter(|index| self.waits(*index))
            .count()
    }

    /// Ends all that is under way.
    pub fn finish_all(&mut self) {
        while self.files.pending() > 0 {
            self.step();
        }
    }

    pub fn finish(&mut self) {
        self.finish_all();
        assert!(self.tasks.iter().all(Option::is_none), "left waiting");
    }
}

pub fn write_io(offset: u64, byte: u8, len: usize) -> Io {
    let buf = buffer(len);
    mem::copy_in(buf, &vec![byte; len]);
    Io::Write {
        offset,
        buf,
        durable: false,
    }
}

pub fn read_io(offset: u64, len: usize) -> (Io, BufRange) {
    let buf = buffer(len);
    (Io::Read { offset, buf }, buf)
}

#[test]
fn only_ios_that_overlap_a_write_wait_for_it() {
    let (_folder, _, volume) = file_volume(SIZE);
    let mut desk = Desk::new(&*volume);
    let write = desk.start(write_io(0, 1, 8192));
    let (io, seen) = read_io(4096, 8192);
    let read = desk.start(io);
    let zero = desk.start(Io::Zero {
        offset: 8192,
        len: 4096,
        deallocate: false,
        durable: false,
    });
    let aside = desk.start(write_io(16384, 1, 4096));
    let flush = desk.start(Io::Flush);
    let verify = desk.start(verify(0, 8192, 8192));
    assert!(!desk.waits(write) && desk.waits(read));
    assert!(desk.waits(zero), "the read before it is in its way");
    for free in [aside, flush, verify] {
        assert!(!desk.waits(free));
    }
    assert_eq!(desk.files.pending(), 4);
    desk.step();
    assert!(desk.results[write].is_some());
    assert!(!desk.waits(read) && desk.waits(zero));
    desk.finish();
    assert!(desk.results.iter().all(|r| *r == Some(Ok(()))));
    let mut bytes = vec![0; 8192];
    mem::copy_out(seen, &mut bytes);
    assert_eq!(bytes[..4096], [1; 4096]);
    assert_eq!(bytes[4096..], [0; 4096]);
}

#[test]
fn writes_300_deep_on_one_block_hold_up_no_write_of_another() {
    let (_folder, _, volume) = file_volume(SIZE);
    let mut desk = Desk::new(&*volume);
    let wide = desk.start(write_io(0, 1, 8192));
    let deep: Vec<usize> = (0..300).map(|_| desk.start(write_io(0, 2, 512))).collect();
    let behind = desk.start(write_io(4096, 3, 4096));
    let aside = desk.start(write_io(8192, 4, 4096));
    assert!(desk.waits(behind) && !desk.waits(aside));
    desk.step();
    assert!(desk.results[wide].is_some());
    assert!(!desk.waits(deep[0]) && desk.waits(deep[1]) && !desk.waits(behind));
    desk.finish();
    assert!(desk.results.iter().all(|r| *r == Some(Ok(()))));
}

#[test]
fn reads_go_together_and_a_write_behind_them_is_not_overtaken() {
    let (_folder, _, volume) = file_volume(SIZE);
    let mut desk = Desk::new(&*volume);
    let first = desk.start(read_io(0, 4096).0);
    let second = desk.start(compare(2048, &[0; 4096]));
    let write = desk.start(write_io(0, 1, 4096));
    let late = desk.start(read_io(0, 512).0);
    assert!(!desk.waits(first) && !desk.waits(second));
    assert!(desk.waits(write) && desk.waits(late));
    desk.step();
    assert!(desk.waits(write));
    desk.step();
    assert!(!desk.waits(write) && desk.waits(late));
    desk.finish();
    assert_eq!(desk.results[second], Some(Ok(())));
}

/// The pattern of hosts that lock a disk by writing their name into a free
/// block: one of them wins, the others see its name.
#[test]
fn one_of_many_compare_and_writes_of_a_block_succeeds() {
    let (_folder, _, volume) = file_volume(SIZE);
    let mut desk = Desk::new(&*volume);
    for name in 1..=5 {
        desk.start(compare_and_write(512, &[0; 512], &[name; 512], false));
    }
    let (io, seen) = read_io(512, 512);
    desk.start(io);
    // Nothing comes between the read and the write of the first.
    assert_eq!(desk.files.pending(), 1);
    desk.step();
    assert_eq!(desk.files.pending(), 1);
    desk.finish();
    let miscompare = Some(Err(Error::Miscompare { offset: 0 }));
    assert_eq!(desk.results[0], Some(Ok(())));
    assert!(desk.results[1..5].iter().all(|r| *r == miscompare));
    let mut bytes = vec![0; 512];
    mem::copy_out(seen, &mut bytes);
    assert_eq!(bytes, [1; 512]);
}

#[test]
fn a_failed_io_gives_its_range_back() {
    let (_folder, _, volume) = file_volume(SIZE);
    let mut desk = Desk::new(&*volume);
    desk.files.faults.push_back(Fault::Errno(libc::EIO));
    let write = desk.start(write_io(0, 1, 4096));
    let next = desk.start(write_io(0, 2, 4096));
    desk.finish();
    let lost = Error::WriteFailed(Errno::IO);
    assert_eq!(desk.results[write], Some(Err(lost)));
    assert_eq!(desk.results[next], Some(Ok(())));
    let beyond = desk.start(write_io(SIZE - 512, 1, 4096));
    assert_eq!(desk.results[beyond], Some(Err(Error::OutOfRange)));
    let last = desk.start(write_io(SIZE - 512, 3, 512));
    assert!(!desk.waits(last));
    desk.finish();
}

#[test]
fn an_io_that_waits_can_be_dropped_or_canceled_and_never_happens() {
    let (_folder, _, volume) = file_volume(SIZE);
    let mut desk = Desk::new(&*volume);
    desk.start(write_io(0, 1, 4096));
    let dropped = desk.start(write_io(0, 2, 4096));
    let canceled = desk.start(write_io(0, 3, 4096));
    let refused = desk.start(read_io(0, 512).0);
    let (io, seen) = read_io(0, 4096);
    let read = desk.start(io);
    desk.tasks[dropped] = None;
    desk.tasks[canceled]
        .as_mut()
        .unwrap()
        .cancel(&mut Fake::default(), 0);
    let errno = std::io::Error::from_raw_os_error(libc::ECANCELED);
    desk.resume(token_of(refused as u64), Err(errno));
    desk.finish();
    let gone = Errno::CANCELED;
    assert_eq!(desk.results[canceled], Some(Err(Error::WriteFailed(gone))));
    assert_eq!(desk.results[refused], Some(Err(Error::ReadFailed(gone))));
    assert_eq!(desk.results[read], Some(Ok(())));
    let mut bytes = vec![0; 4096];
    mem::copy_out(seen, &mut bytes);
    assert_eq!(bytes, [1; 4096]);
    assert_eq!(desk.files.log.len(), 2, "{:?}", desk.files.log);
}

#[test]
fn a_canceled_io_that_has_begun_to_write_goes_on_to_its_end() {
    let (_folder, _, volume) = file_volume(SIZE);
    // Half is written when the cancel comes.
    let mut desk = Desk::new(&*volume);
    desk.files.faults = VecDeque::from([Fault::Short(2048), Fault::Errno(libc::ECANCELED)]);
    let write = desk.start(write_io(0, 1, 4096));
    desk.step();
    desk.tasks[write]
        .as_mut()
        .unwrap()
        .cancel(&mut Fake::default(), 0);
    desk.finish();
    assert_eq!(desk.results[write], Some(Ok(())));
    // Nothing is written when it comes: an interruption ends it.
    desk.files.faults = VecDeque::from([Fault::Errno(libc::EINTR)]);
    let write = desk.start(write_io(0, 2, 4096));
    desk.tasks[write]
        .as_mut()
        .unwrap()
        .cancel(&mut Fake::default(), 0);
    desk.finish();
    assert!(matches!(
        desk.results[write],
        Some(Err(Error::WriteFailed(_)))
    ));
    // Between the compare and the write.
    let replace = desk.start(compare_and_write(0, &[1; 512], &[3; 512], false));
    desk.tasks[replace]
        .as_mut()
        .unwrap()
        .cancel(&mut Fake::default(), 0);
    desk.finish();
    assert!(matches!(
        desk.results[replace],
        Some(Err(Error::WriteFailed(_)))
    ));
    let (io, seen) = read_io(0, 4096);
    desk.start(io);
    desk.finish();
    let mut bytes = vec![0; 4096];
    mem::copy_out(seen, &mut bytes);
    assert_eq!(bytes, [1; 4096]);
}

#[test]
fn ios_that_meet_happen_in_the_order_of_their_start() {
    for seed in 1..=60u64 {
        let (_folder, _, volume) = file_volume(64 << 10);
        meet(&*volume, seed);
    }
}

/// I/Os that wait at a time.
const WAITING_MAX: usize = 24;

/// Everything at once in the first bytes of a volume of 64 KiB, completed in any order,
/// short and interrupted: every I/O finds what those before it have left, in the order in
/// which they were started.
pub fn meet(volume: &dyn Volume, seed: u64) {
    let mut desk = Desk::new(volume);
    let mut random = Random::new(seed);
    let mut model = vec![0u8; 64 << 10];
    let mut expected = Vec::new();
    for _ in 0..80 {
        if random.below(3) == 0 {
            let fault = match random.below(4) {
                0 => Fault::Short(1 + random.below(3000) as u32),
                1 => Fault::Errno(libc::EINTR),
                _ => Fault::None,
            };
            desk.files.faults.push_back(fault);
        }
        let first = random.below(24);
        let len = (1 + random.below(8)) as usize * 512;
        let offset = first * 512;
        let place = offset as usize..offset as usize + len;
        let byte = random.below(256) as u8;
        let (io, buf, result) = match random.below(6) {
            0 | 1 => {
                let (io, buf) = read_io(offset, len);
                (io, Some((buf, model[place].to_vec())), Ok(()))
            }
            2 => {
                // Half of them match.
                let mut old = model[place.clone()].to_vec();
                let hit = random.below(2) == 0;
                old[len - 1] ^= u8::from(!hit);
                let io = compare_and_write(offset, &old, &vec![byte; len], hit);
                let miscompare = Error::Miscompare {
                    offset: len as u64 - 1,
                };
                if hit {
                    model[place].fill(byte);
                }
                (io, None, if hit { Ok(()) } else { Err(miscompare) })
            }
            3 => {
                model[place].fill(0);
                let len = len as u64;
                (Io::Deallocate { offset, len }, None, Ok(()))
            }
            _ => {
                model[place].fill(byte);
                (write_io(offset, byte, len), None, Ok(()))
            }
        };
        desk.start(io);
        expected.push((buf, result));
        // More than some that wait may be overtaken.
        while desk.files.pending() > 0 && (random.below(3) == 0 || desk.waiting() > WAITING_MAX) {
            let any = random.below(desk.files.pending() as u64) as usize;
            desk.step_at(any);
        }
    }
    desk.finish();
    for (at, (seen, result)) in expected.into_iter().enumerate() {
        assert_eq!(desk.results[at], Some(result), "seed {seed} I/O {at}");
        if let Some((buf, content)) = seen {
            let mut bytes = vec![0; content.len()];
            mem::copy_out(buf, &mut bytes);
            assert!(
                bytes == content,
                "seed {seed}: I/O {at} read something else"
            );
        }
    }
}

/// File work that is always done at once.
struct Instant(u32);

impl FileIo for Instant {
    fn read_at(&mut self, _: &Arc<DiskFile>, buf: BufRange, _: u64, _: Token) {
        self.0 = buf.len();
    }
    fn write_at(&mut self, _: &Arc<DiskFile>, buf: BufRange, _: u64, _: bool, _: Token) {
        self.0 = buf.len();
    }
    fn sync_data(&mut self, _: &Arc<DiskFile>, _: Token) {}
    fn fallocate(&mut self, _: &Arc<DiskFile>, _: FallocateMode, _: u64, _: u64, _: Token) {}
    fn ticket(&mut self, _: Token) -> Ticket {
        panic!("nothing is in the way")
    }
    fn cancel_file(&mut self, _: Token) {}
}

#[test]
fn io_that_overlaps_no_other_allocates_nothing() {
    let (_folder, _, volume) = file_volume(SIZE);
    let mut files = Instant(0);
    let (read, _) = read_io(4096, 4096);
    // The last one touches two stripes.
    let ios = [
        read,
        write_io(0, 1, 4096),
        write_io((1 << 20) - 512, 1, 1024),
    ];
    let mut round = || {
        for io in ios {
            let Progress::Pending(task) = volume.start(io, &mut files, 1) else {
                panic!("it takes a file operation");
            };
            let n = files.0;
            let done = volume.resume(task, Ok(n), &mut files, 1);
            assert!(matches!(done, Progress::Done(Ok(()))));
        }
    };
    round();
    let before = counters::here().allocations;
    (0..100).for_each(|_| round());
    assert_eq!(counters::here().allocations, before);
}

/// Runs `work` on as many threads, each with a reactor's driver of its own.
fn on_threads(
    choice: Choice,
    threads: u64,
    work: impl Fn(&dyn Volume, &mut Real, u64) + Sync,
    check: impl Fn(&dyn Volume, &mut Real),
) {
    let (_folder, _, volume) = file_volume(SIZE);
    thread::scope(|scope| {
        for number in 0..threads {
            let (volume, work) = (&volume, &work);
            scope.spawn(move || work(&**volume, &mut Real::open(choice), number));
        }
    });
    check(&*volume, &mut Real::open(choice));
}

/// Large writes of one byte each, and reads of any part beside them: each read
/// shows one write, whole.
#[each_driver]
fn read_beside_large_writes_sees_one_write_whole(choice: Choice) {
    const LEN: usize = 256 << 10;
    const WRITES: u64 = 60;
    let work = |volume: &dyn Volume, files: &mut Real, number| {
        let mut random = Random::new(number);
        // Across the border between two stripes.
        let at = (1 << 20) - 128 * 1024;
        let buf = buffer(LEN);
        if number < 2 {
            for n in 0..WRITES {
                mem::copy_in(buf, &vec![(2 * n + number) as u8; LEN]);
                let io = Io::Write {
                    offset: at,
                    buf,
                    durable: false,
                };
                run(volume, files, io).unwrap();
            }
            return;
        }
        let mut bytes = vec![0; LEN];
        for _ in 0..WRITES {
            let from = random.below(64) * 512;
            let len = LEN - 2 * from as usize;
            let buf = buf.slice(0, len as u32);
            let io = Io::Read {
                offset: at + from,
                buf,
            };
            run(volume, files, io).unwrap();
            mem::copy_out(buf, &mut bytes[..len]);
            let torn = bytes[..len].iter().position(|&b| b != bytes[0]);
            assert_eq!(torn, None, "two writes in one read");
        }
    };
    on_threads(choice, 4, work, |volume, _| {
        assert_eq!(volume.stats().writes, 2 * WRITES);
    });
}

/// A number in a block that all reactors count up: none of them is lost.
#[each_driver]
fn compare_and_write_from_several_reactors_counts(choice: Choice) {
    const EACH: u64 = 40;
    let work = |volume: &dyn Volume, files: &mut Real, _| {
        let (compare, write, scratch) = (buffer(512), buffer(512), buffer(512));
        let mut done = 0;
        let mut seen = 0u64;
        while done < EACH {
            let block = |n: u64| {
                let mut bytes = [0; 512];
                bytes[..8].copy_from_slice(&n.to_le_bytes());
                bytes
            };
            mem::copy_in(compare, &block(seen));
            mem::copy_in(write, &block(seen + 1));
            let io = Io::CompareAndWrite {
                offset: 4096,
                compare,
                write,
                scratch,
                durable: false,
            };
            match run(volume, files, io) {
                Ok(()) => {
                    done += 1;
                    seen += 1;
                }
                Err(Error::Miscompare { .. }) => {
                    let bytes = read(volume, files, 4096, 512).unwrap();
                    seen = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                }
                Err(error) => panic!("{error}"),
            }
        }
    };
    on_threads(choice, 3, work, |volume, files| {
        let bytes = read(volume, files, 4096, 512).unwrap();
        let n = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert_eq!(n, 3 * EACH);
        assert_eq!(volume.stats().compares, 3 * EACH);
    });
}
