//! Kinds of volumes that this crate does not have: over other volumes, and on threads of
//! their own.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use needs::each_driver;
use reactor::{Choice, FileIo, Token};
use store::{Base, Errno, Error, Extent, Io, Parked, Progress, ResizeError, Task, Volume};

use crate::common::{buffer, read, run, write};
use crate::ranges::{read_io, write_io};
use crate::{file_layers, file_volume};

const HALF: u64 = 64 << 10;

/// Two volumes, end to end. What spans both is done on one after the other.
struct Joined([Arc<dyn Volume>; 2]);

/// An I/O that one of the two is at.
#[derive(Debug)]
struct JoinedTask {
    below: Task,
    at: usize,
    /// What is left for the second.
    left: Option<Io>,
}

impl Parked for JoinedTask {
    fn is_waiting(&self) -> bool {
        self.at == 0 && self.below.is_waiting()
    }

    fn cancel(&mut self, files: &mut dyn FileIo, token: Token) {
        self.below.cancel(files, token);
    }
}

/// A part of a read or a write, moved `back` bytes.
fn part(io: Io, from: u64, len: u64, back: u64) -> Io {
    let (start, _) = io.extent();
    let slice = |buf: mem::BufRange| buf.slice((from - start) as u32, len as u32);
    let offset = from - back;
    match io {
        Io::Read { buf, .. } => Io::Read {
            offset,
            buf: slice(buf),
        },
        Io::Write { buf, durable, .. } => Io::Write {
            offset,
            buf: slice(buf),
            durable,
        },
        other => panic!("not in this test: {other:?}"),
    }
}

impl Joined {
    fn go_on(
        &self,
        mut at: usize,
        mut left: Option<Io>,
        mut progress: Progress,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        loop {
            match progress {
                Progress::Pending(below) => {
                    return Progress::Pending(Task::parked(JoinedTask { below, at, left }));
                }
                Progress::Done(Ok(())) => match left.take() {
                    Some(io) => {
                        at = 1;
                        progress = self.0[1].start(io, files, token);
                    }
                    None => return progress,
                },
                failed => return failed,
            }
        }
    }
}

impl Volume for Joined {
    fn base(&self) -> &Base {
        self.0[0].base()
    }

    fn start(&self, io: Io, files: &mut dyn FileIo, token: Token) -> Progress {
        let (from, len) = io.extent();
        let end = from + len;
        let second = (end > HALF).then(|| {
            let from = from.max(HALF);
            part(io, from, end - from, HALF)
        });
        match from < HALF {
            true => {
                let first = part(io, from, end.min(HALF) - from, 0);
                let progress = self.0[0].start(first, files, token);
                self.go_on(0, second, progress, files, token)
            }
            false => {
                let io = second.expect("it lies behind the first");
                let progress = self.0[1].start(io, files, token);
                self.go_on(1, None, progress, files, token)
            }
        }
    }

    fn resume(
        &self,
        task: Task,
        result: io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        let JoinedTask { below, at, left } = task.unpark().expect("all are its own");
        let progress = self.0[at].resume(below, result, files, token);
        self.go_on(at, left, progress, files, token)
    }

    fn resize(&self, _: u64, _: bool) -> Result<(), ResizeError> {
        unreachable!("not in this test")
    }

    fn extents(&self, _: u64, _: u64, _: usize, _: &mut Vec<Extent>) -> Result<(), Error> {
        unreachable!("not in this test")
    }
}

#[each_driver]
fn volume_over_two_volumes_parks_their_tasks(choice: Choice) {
    for mut files in file_layers(choice) {
        let (_first, _, first) = file_volume(HALF);
        let (_second, _, second) = file_volume(HALF);
        let joined = Joined([first.clone(), second.clone()]);
        let bytes: Vec<u8> = (0..16384u32).map(|at| (at / 512) as u8 + 1).collect();
        for offset in [0, HALF - 4096, HALF, HALF + 8192] {
            write(&joined, &mut *files, offset, &bytes, true).unwrap();
            let back = read(&joined, &mut *files, offset, bytes.len()).unwrap();
            assert_eq!(back, bytes, "at {offset}");
        }
        let tail = read(&*first, &mut *files, HALF - 4096, 4096).unwrap();
        assert_eq!(tail, bytes[..4096]);
        let beyond = run(&joined, &mut *files, read_io(2 * HALF - 512, 1024).0);
        assert_eq!(beyond, Err(Error::OutOfRange));
    }
}

/// What its driver asks a task goes to the task below.
#[test]
fn parked_task_waits_and_is_canceled_as_the_one_below() {
    let (_first, _, first) = file_volume(HALF);
    let (_second, _, second) = file_volume(HALF);
    let joined = Joined([first, second]);
    let mut files = crate::fake::Fake::default();
    let pending = |progress| match progress {
        Progress::Pending(task) => task,
        Progress::Done(result) => panic!("it is over: {result:?}"),
    };
    let begun = pending(joined.start(write_io(0, 1, 4096), &mut files, 1));
    let mut waits = pending(joined.start(write_io(0, 2, 4096), &mut files, 2));
    assert!(!begun.is_waiting() && waits.is_waiting());
    waits.cancel(&mut files, 2);
    let canceled = io::Error::from_raw_os_error(libc::ECANCELED);
    let ended = joined.resume(waits, Err(canceled), &mut files, 2);
    let gone = Error::WriteFailed(Errno::CANCELED);
    assert!(matches!(ended, Progress::Done(Err(error)) if error == gone));
    let other = begun.unpark::<Elsewhere>().expect_err("it is another's");
    assert!(!other.is_waiting());
}

/// Each of its I/Os is done by a thread.
struct Threaded(Arc<dyn Volume>);

/// What the thread answers.
#[derive(Debug)]
struct Elsewhere(Receiver<Result<(), Error>>);

impl Parked for Elsewhere {}

impl Volume for Threaded {
    fn base(&self) -> &Base {
        self.0.base()
    }

    fn start(&self, io: Io, files: &mut dyn FileIo, token: Token) -> Progress {
        let (tell, told) = channel();
        let ticket = files.ticket(token);
        thread::spawn(move || {
            let result = match io {
                Io::Read { buf, .. } => {
                    mem::copy_in(buf, &vec![7; buf.len() as usize]);
                    Ok(())
                }
                _ => Err(Error::ReadOnly),
            };
            tell.send(result).expect("the task is kept");
            ticket.ring();
        });
        Progress::Pending(Task::parked(Elsewhere(told)))
    }

    fn resume(&self, task: Task, _: io::Result<u32>, _: &mut dyn FileIo, _: Token) -> Progress {
        let Elsewhere(told) = task.unpark().expect("all are its own");
        Progress::Done(told.recv().expect("the ticket was rung"))
    }

    fn resize(&self, _: u64, _: bool) -> Result<(), ResizeError> {
        unreachable!("not in this test")
    }

    fn extents(&self, _: u64, _: u64, _: usize, _: &mut Vec<Extent>) -> Result<(), Error> {
        unreachable!("not in this test")
    }
}

#[each_driver]
fn thread_of_a_volume_completes_its_ios_by_a_ticket(choice: Choice) {
    let mut files = crate::common::Real::open(choice);
    let (_folder, _, below) = file_volume(HALF);
    let volume = Threaded(below);
    assert_eq!(read(&volume, &mut files, 512, 4096).unwrap(), [7; 4096]);
    let buf = buffer(512);
    let denied = Io::OrWrite {
        offset: 0,
        buf,
        scratch: buf,
        durable: false,
    };
    assert_eq!(run(&volume, &mut files, denied), Err(Error::ReadOnly));
}
