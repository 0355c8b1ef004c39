//! I/Os that a target does not answer, and those that it may do twice.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use reactor::{FileIo, Ticket, Token};
use server::{Change, parts};
use store::{
    Base, Errno, Error, Extent, Io, Kind, Parked, Progress, ResizeError, Spec, Task, Volume,
};

use crate::{Desk, PATIENCE, SIZE, any, buffer, config, open, paths, stop, until, url, write};

/// How long a change that was under way on a lost connection keeps its blocks at least.
const QUIET: Duration = Duration::from_secs(10);

/// A volume whose reads and writes hang while they are to.
struct Slow {
    inner: Arc<dyn Volume>,
    holds: AtomicBool,
    tickets: Mutex<Vec<Ticket>>,
}

/// An I/O that hangs.
#[derive(Debug)]
struct Hanging(Io);

impl Parked for Hanging {}

impl Slow {
    fn new() -> Arc<Slow> {
        Arc::new(Slow {
            inner: store::open(&Spec::new("a", Kind::RAM, SIZE, 512)).expect("memory"),
            holds: AtomicBool::new(false),
            tickets: Mutex::default(),
        })
    }

    fn hanging(&self) -> usize {
        self.tickets.lock().unwrap().len()
    }

    fn hold(&self) {
        self.holds.store(true, Ordering::Relaxed);
    }

    fn let_go(&self) {
        self.holds.store(false, Ordering::Relaxed);
        let tickets = std::mem::take(&mut *self.tickets.lock().unwrap());
        tickets.into_iter().for_each(Ticket::ring);
    }
}

impl Volume for Slow {
    fn base(&self) -> &Base {
        self.inner.base()
    }

    fn start(&self, io: Io, files: &mut dyn FileIo, token: Token) -> Progress {
        if !self.holds.load(Ordering::Relaxed) {
            return self.inner.start(io, files, token);
        }
        self.tickets.lock().unwrap().push(files.ticket(token));
        Progress::Pending(Task::parked(Hanging(io)))
    }

    fn resume(
        &self,
        task: Task,
        result: io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        match task.unpark::<Hanging>() {
            Ok(Hanging(io)) => self.inner.start(io, files, token),
            Err(task) => self.inner.resume(task, result, files, token),
        }
    }

    fn resize(&self, size_bytes: u64, allow_shrink: bool) -> Result<(), ResizeError> {
        self.inner.resize(size_bytes, allow_shrink)
    }

    fn extents(&self, at: u64, len: u64, max: usize, out: &mut Vec<Extent>) -> Result<(), Error> {
        self.inner.extents(at, len, max, out)
    }
}

#[test]
fn io_that_takes_too_long_fails_though_its_target_answers_else() {
    let slow = Slow::new();
    let folder = tempfile::tempdir().expect("a folder");
    let running = parts::start_with(config(&folder, any(), &["a"]), vec![slow.clone()]);
    let running = running.expect("it starts");
    let volume = open(&[url(running.addresses()[0], 1)], Duration::from_secs(1));
    let mut desk = Desk::new();
    desk.write(&*volume, 0, 1, 4096).expect("written");
    slow.hold();
    let read = Io::Read {
        offset: 0,
        buf: buffer(4096),
    };
    let late = Err(Error::ReadFailed(Errno::TIMEDOUT));
    assert_eq!(desk.one(&*volume, read), late);
    assert!(slow.hanging() > 0, "it had come there");
    until("its connection is not ended", || {
        paths(&volume)[0].losses > 0
    });
    slow.let_go();
    until("no I/O is done", || Desk::new().one(&*volume, read).is_ok());
    assert!(desk.has(&*volume, 0, 1, 4096));
    drop(volume);
    stop(running);
}

#[test]
fn write_that_a_target_may_do_twice_keeps_its_blocks_until_the_first_is_over() {
    let slow = Slow::new();
    let folder = tempfile::tempdir().expect("a folder");
    let running = parts::start_with(config(&folder, any(), &["a"]), vec![slow.clone()]);
    let running = running.expect("it starts");
    let address = running.addresses()[0];
    let volume = open(&[url(address, 1)], PATIENCE);
    let mut desk = Desk::new();
    slow.hold();
    let mut cut = Instant::now();
    let results = desk.run(&*volume, &[write(0, 1, 4096), write(2048, 2, 4096)], || {
        until("it has not come there", || slow.hanging() == 1);
        cut = Instant::now();
        running
            .change(Change::RemoveListener { address })
            .expect("it is closed");
        until("the loss is not noticed", || !paths(&volume)[0].is_live);
        running
            .change(Change::AddListener(address.into()))
            .expect("it is opened");
        until("it is not sent again", || slow.hanging() == 2);
        slow.let_go();
        // What has nothing to do with it goes on.
        let beside = Desk::new().write(&*volume, 1 << 20, 3, 4096);
        beside.expect("written");
    });
    assert_eq!(results, [Ok(()), Ok(())]);
    assert!(
        cut.elapsed() >= QUIET,
        "the first may come after the second"
    );
    assert!(desk.has(&*volume, 0, 1, 2048) && desk.has(&*volume, 2048, 2, 4096));
    assert!(desk.has(&*volume, 1 << 20, 3, 4096));
    drop(volume);
    stop(running);
}
