//! A volume that a test can stop: what comes while it is shut hangs, as on a
//! disk that has gone away, or fails with an error of the test's choice.

use std::io::Result as IoResult;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use mem::Loan;
use reactor::{FileIo, Ticket, Token};
use store::reservation::Reservations;
use store::{
    Base, Error, Extent, Io, Parked, Progress, ResizeError, Space, State as Kept, Task, Volume,
};

pub struct Gate {
    /// What it is a gate to.
    inner: Arc<dyn Volume>,
    state: Mutex<State>,
    /// The gate was opened.
    opened: Condvar,
    /// What there is below it, as it says.
    pub space: Mutex<Option<Space>>,
    /// How often it was asked that.
    pub asked: AtomicUsize,
    /// 1: the reactor of what comes next stands still, which makes it 2, until it is
    /// 0 again.
    pub stall: AtomicU8,
    /// It lends memory to receive writes into, as what is below it does.
    pub lends: AtomicBool,
    /// Threads other than reactors hang when they ask for reservations while it is
    /// shut.
    pub holds_reservations: AtomicBool,
    /// Where reservations are kept, if not with the volume below.
    kept: Option<Kept>,
}

#[derive(Default)]
struct State {
    is_shut: bool,
    fails: Option<Error>,
    flushes_fail: Option<Error>,
    tickets: Vec<Ticket>,
}

impl Gate {
    pub fn open_over(spec: &store::Spec) -> Arc<Gate> {
        Gate::open_with(spec, None)
    }

    /// The same with reservations that are kept there, not with the volume below.
    pub fn open_with(spec: &store::Spec, kept: Option<Kept>) -> Arc<Gate> {
        Arc::new(Gate {
            inner: store::open(spec).expect("memory"),
            state: Mutex::default(),
            opened: Condvar::new(),
            space: Mutex::default(),
            asked: AtomicUsize::new(0),
            stall: AtomicU8::new(0),
            lends: AtomicBool::new(false),
            holds_reservations: AtomicBool::new(false),
            kept,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics under this lock")
    }

    /// What comes from now on hangs, but for flushes.
    pub fn shut(&self) {
        self.state().is_shut = true;
    }

    /// What hangs goes on, all at once.
    pub fn open(&self) {
        let mut state = self.state();
        state.is_shut = false;
        for ticket in state.tickets.drain(..) {
            ticket.ring();
        }
        self.opened.notify_all();
    }

    /// What comes from now on fails.
    pub fn fail(&self, error: Option<Error>) {
        self.state().fails = error;
    }

    /// Flushes from now on fail.
    pub fn fail_flushes(&self, error: Option<Error>) {
        self.state().flushes_fail = error;
    }

    /// Until it is open.
    fn wait(&self) {
        let is_shut = |state: &mut State| state.is_shut;
        drop(self.opened.wait_while(self.state(), is_shut));
    }

    /// I/Os that hang, or hung and were given up.
    pub fn hanging(&self) -> usize {
        self.state().tickets.len()
    }
}

fn is_blocking_worker() -> bool {
    std::thread::current().name() == Some("weft-blocking")
}

/// An I/O that hangs.
#[derive(Debug)]
struct Hanging(Io);

impl Parked for Hanging {}

impl Volume for Gate {
    fn base(&self) -> &Base {
        self.inner.base()
    }

    fn borrow(&self, offset: u64, len: u32) -> Option<Loan> {
        let lends = self.lends.load(Ordering::Relaxed);
        lends.then(|| self.inner.borrow(offset, len)).flatten()
    }

    fn commit(&self, loan: &mut Loan, offset: u64) -> Result<(), Error> {
        let fails = self.state().fails;
        fails.map_or_else(|| self.inner.commit(loan, offset), Err)
    }

    fn start(&self, io: Io, files: &mut dyn FileIo, token: Token) -> Progress {
        if (self.stall)
            .compare_exchange(1, 2, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
        {
            while self.stall.load(Ordering::Relaxed) != 0 {
                std::thread::yield_now();
            }
        }
        let mut state = self.state();
        let flush_fails = state.flushes_fail.filter(|_| io == Io::Flush);
        if let Some(error) = state.fails.or(flush_fails) {
            return Progress::Done(Err(error));
        }
        if state.is_shut && io != Io::Flush {
            state.tickets.push(files.ticket(token));
            return Progress::Pending(Task::parked(Hanging(io)));
        }
        self.inner.start(io, files, token)
    }

    fn resume(
        &self,
        task: Task,
        result: IoResult<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        match task.unpark() {
            Ok(Hanging(io)) => {
                assert!(result.is_ok(), "a ticket was rung");
                self.inner.start(io, files, token)
            }
            Err(task) => self.inner.resume(task, result, files, token),
        }
    }

    fn reservations(&self) -> &Reservations {
        if is_blocking_worker() && self.holds_reservations.load(Ordering::Relaxed) {
            self.wait();
        }
        let kept = self.kept.as_ref().map(Kept::reservations);
        kept.unwrap_or_else(|| self.inner.reservations())
    }

    fn resize(&self, size_bytes: u64, allow_shrink: bool) -> Result<(), ResizeError> {
        if is_blocking_worker() {
            self.wait();
        }
        self.inner.resize(size_bytes, allow_shrink)
    }

    fn extents(
        &self,
        offset: u64,
        len: u64,
        max: usize,
        out: &mut Vec<Extent>,
    ) -> Result<(), Error> {
        self.wait();
        self.inner.extents(offset, len, max, out)
    }

    fn space(&self) -> Option<Space> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        *self.space.lock().expect("nothing panics under this lock")
    }
}
