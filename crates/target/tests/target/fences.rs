//! A change is answered when it is true: what was under way before is over.

use std::io::ErrorKind;
use std::io::Result as IoResult;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nvmf::command::AnaState;
use reactor::{FileIo, Token};
use store::{Base, Error, Extent, Io, Progress, ResizeError, Task, Volume};
use target::{Change, Limits, Running, parts};
use wire::nvme::{Sqe, Status, io as opcode};

use crate::common::{BLOCK, Host, NQN, Queue, backends, config, ram, stop};
use crate::gate::Gate;

/// Long enough for a change that waits for nothing to be over.
const A_WHILE: Duration = Duration::from_millis(100);

fn start(volume: Arc<dyn Volume>, backend: reactor::Choice) -> Running {
    let config = config(backend, Limits::default(), 64 << 20);
    parts::start_with(config, vec![volume]).expect("starts")
}

/// Begins to write a block.
fn begin_write(io: &mut Queue, lba: u64) -> u16 {
    let mut sqe = Sqe::new(opcode::WRITE);
    sqe.nsid = 1.into();
    sqe.set_blocks(lba, 1);
    io.send(sqe, &[1; BLOCK])
}

/// While a write hangs the change is made, but not answered; once the write is
/// over both are.
fn waits_for_a_write(change: Change, lba: u64, holds: impl Fn(&mut Queue) -> bool) {
    for backend in backends() {
        let gate = Gate::open_over(&ram("ram", 4096));
        let running = start(gate.clone(), backend);
        let host = Host::at(running.addresses()[0]);
        let (mut admin, mut io) = host.pair();
        gate.shut();
        let cid = begin_write(&mut io, lba);
        while gate.hanging() == 0 {
            std::thread::yield_now();
        }
        let is_answered = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let changing = scope.spawn(|| {
                running.change(change.clone()).expect("a change");
                is_answered.store(true, Ordering::Release);
            });
            while !holds(&mut admin) {
                std::thread::yield_now();
            }
            std::thread::sleep(A_WHILE);
            assert!(!is_answered.load(Ordering::Acquire), "answered too early");
            gate.open();
            assert_eq!(io.response(cid).0, Status::SUCCESS);
            changing.join().expect("answered");
        });
        stop(running);
    }
}

#[test]
fn a_removed_namespace_is_gone_when_its_last_write_is_over() {
    let change = Change::RemoveNamespace {
        nqn: NQN.into(),
        nsid: 1,
    };
    waits_for_a_write(change, 0, |admin| admin.identify(2, 0)[..4] == [0; 4]);
}

/// The write is not refused as one behind the end: it was there first.
#[test]
fn nothing_is_cut_off_under_a_write() {
    let change = Change::ResizeVolume {
        name: "ram".into(),
        size_bytes: 64 * BLOCK as u64,
        allow_shrink: true,
    };
    waits_for_a_write(change, 4000, |admin| admin.identify(0, 1)[..2] == [64, 0]);
}

#[test]
fn an_inaccessible_group_has_no_write_left() {
    let change = Change::SetAna {
        nqn: NQN.into(),
        listener: None,
        group: 1,
        state: AnaState::Inaccessible,
    };
    waits_for_a_write(change, 0, |admin| admin.log_page(0x0c, 56)[32] & 0xf == 3);
}

/// Looks, when it is flushed, whether a host still has its connection.
struct Witness {
    inner: Arc<dyn Volume>,
    host: Mutex<Option<TcpStream>>,
    flushes: AtomicUsize,
    too_early: AtomicBool,
}

impl Volume for Witness {
    fn base(&self) -> &Base {
        self.inner.base()
    }

    fn start(&self, io: Io, files: &mut dyn FileIo, token: Token) -> Progress {
        if io == Io::Flush
            && let Some(host) = &*self.host.lock().expect("not poisoned")
        {
            self.flushes.fetch_add(1, Ordering::Relaxed);
            let open = host.peek(&mut [0]).map_err(|error| error.kind());
            self.too_early
                .fetch_or(open == Err(ErrorKind::WouldBlock), Ordering::Relaxed);
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
        self.inner.resume(task, result, files, token)
    }

    fn resize(&self, size_bytes: u64, allow_shrink: bool) -> Result<(), ResizeError> {
        self.inner.resize(size_bytes, allow_shrink)
    }

    fn extents(
        &self,
        offset: u64,
        len: u64,
        max: usize,
        out: &mut Vec<Extent>,
    ) -> Result<(), Error> {
        self.inner.extents(offset, len, max, out)
    }
}

#[test]
fn volumes_are_flushed_once_and_after_the_last_connection() {
    for backend in backends() {
        let witness = Arc::new(Witness {
            inner: store::open(&ram("ram", 4096)).expect("memory"),
            host: Mutex::default(),
            flushes: AtomicUsize::new(0),
            too_early: AtomicBool::new(false),
        });
        let running = start(witness.clone(), backend);
        let (_admin, mut io) = Host::at(running.addresses()[0]).pair();
        assert!(io.is_alive());
        let stream = io.stream.try_clone().expect("a descriptor");
        stream.set_nonblocking(true).expect("settable");
        *witness.host.lock().expect("not poisoned") = Some(stream);
        stop(running);
        assert_eq!(witness.flushes.load(Ordering::Relaxed), 1);
        assert!(!witness.too_early.load(Ordering::Relaxed));
    }
}

/// A backend that hangs does not keep a target from stopping in order.
#[test]
fn a_volume_that_hangs_does_not_hold_up_the_end() {
    for backend in backends() {
        let gate = Gate::open_over(&ram("ram", 4096));
        let running = start(gate.clone(), backend);
        let (_admin, mut io) = Host::at(running.addresses()[0]).pair();
        gate.shut();
        begin_write(&mut io, 0);
        while gate.hanging() == 0 {
            std::thread::yield_now();
        }
        stop(running);
        io.expect_end();
    }
}
