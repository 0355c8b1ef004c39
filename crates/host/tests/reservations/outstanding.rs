//! Commands that are under way while reservations change, on a volume whose
//! writes end when the test says so.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use reactor::{FileIo, Ticket, Token};
use store::{Base, Error, Extent, Info, Io, Parked, Progress, ResizeError, Task, Volume};
use wire::nvme::Status;
use wire::nvme::reservation::action;

use crate::ends::stop;
use crate::fabric::*;

/// A volume that does nothing, and whose writes wait for a ticket.
struct Slow {
    base: Base,
    tickets: Mutex<Vec<Ticket>>,
    began: Condvar,
    /// At [`STALL`] the reactor of the next write stands still, [`STALLED`], until it is 0.
    stall: AtomicU8,
}

const STALL: u8 = 1;
const STALLED: u8 = 2;

impl Slow {
    fn new() -> Arc<Slow> {
        let info = Info {
            name: "slow".into(),
            kind: "ram",
            block_bytes: BLOCK as u32,
            uuid: uuid::Uuid::from_u128(7),
            nguid: [7; 16],
            eui64: None,
            naa: vec![7; 16],
            serial: "7".into(),
            vendor: None,
            product: None,
            revision: None,
            read_only: false,
            is_thin: false,
            volatile_cache: false,
            atomic_bytes: BLOCK as u32,
            atomic_power_fail_bytes: BLOCK as u32,
        };
        Arc::new(Slow {
            base: Base::new(info, 1 << 20),
            tickets: Mutex::default(),
            began: Condvar::new(),
            stall: AtomicU8::new(0),
        })
    }

    /// Waits until `count` writes are under way.
    fn wait_for(&self, count: usize) {
        let mut tickets = self.tickets.lock().unwrap();
        while tickets.len() < count {
            tickets = self.began.wait(tickets).unwrap();
        }
    }

    /// Lets the writes under way end.
    fn let_go(&self) {
        for ticket in self.tickets.lock().unwrap().drain(..) {
            ticket.ring();
        }
    }
}

/// A write that hangs.
#[derive(Debug)]
struct Hanging;

impl Parked for Hanging {}

impl Volume for Slow {
    fn base(&self) -> &Base {
        &self.base
    }

    fn start(&self, io: Io, files: &mut dyn FileIo, token: Token) -> Progress {
        if !matches!(io, Io::Write { .. }) {
            return Progress::Done(Ok(()));
        }
        self.tickets.lock().unwrap().push(files.ticket(token));
        self.began.notify_all();
        let order = Ordering::Relaxed;
        if (self.stall.compare_exchange(STALL, STALLED, order, order)).is_ok() {
            while self.stall.load(order) != 0 {
                std::thread::yield_now();
            }
        }
        Progress::Pending(Task::parked(Hanging))
    }

    fn resume(
        &self,
        _task: Task,
        result: std::io::Result<u32>,
        _files: &mut dyn FileIo,
        _token: Token,
    ) -> Progress {
        result.expect("the ticket was rung");
        Progress::Done(Ok(()))
    }

    fn resize(&self, _size_bytes: u64, _allow_shrink: bool) -> Result<(), ResizeError> {
        unreachable!("no test resizes it")
    }

    fn extents(
        &self,
        _offset: u64,
        _len: u64,
        _max: usize,
        _out: &mut Vec<Extent>,
    ) -> Result<(), Error> {
        unreachable!("no test asks")
    }
}

#[test]
fn an_answer_that_takes_access_away_waits_for_what_had_begun() {
    let slow = Slow::new();
    let running = serve(vec![slow.clone()]);
    let to = running.addresses()[0];
    let (mut a, mut b) = (Host::connect(to, 1), Host::connect(to, 2));
    a.join(1);
    let write = b.submit_write(0);
    slow.wait_for(1);
    let acquire = a.submit_acquire(action::ACQUIRE, 1, 0, 1);
    // Answered after the acquire was made: one blocking worker does one after the other.
    assert_eq!(a.report(64).rtype(), 1);
    let late = b.write(0);
    assert_eq!(late, Status::RESERVATION_CONFLICT.dnr(), "too late");
    assert_eq!(a.report(64).rtype(), 1);
    assert!(!a.is_done(acquire), "the write is still under way");
    slow.let_go();
    assert_eq!(a.wait(acquire).0, Status::SUCCESS);
    assert_eq!(b.wait(write).0, Status::SUCCESS);
    // A release that takes no access away waits for no command.
    let write = a.submit_write(0);
    slow.wait_for(1);
    assert_eq!(a.release(action::RELEASE, 1, 1), Status::SUCCESS);
    assert!(!a.is_done(write));
    slow.let_go();
    assert_eq!(a.wait(write).0, Status::SUCCESS);
    drop((a, b));
    stop(running);
}

/// The host may have given the first one up and read only the second one's answer.
#[test]
fn an_acquire_that_is_repeated_waits_for_what_had_begun_too() {
    let slow = Slow::new();
    let running = serve(vec![slow.clone()]);
    let to = running.addresses()[0];
    let (mut a, mut b) = (Host::connect(to, 1), Host::connect(to, 2));
    a.join(1);
    let write = b.submit_write(0);
    slow.wait_for(1);
    let acquires = [(); 2].map(|()| a.submit_acquire(action::ACQUIRE, 1, 0, 1));
    // Answered after both were made: one blocking worker does one after the other.
    assert_eq!(a.report(64).rtype(), 1);
    for acquire in acquires {
        assert!(!a.is_done(acquire), "the write is still under way");
    }
    slow.let_go();
    assert_eq!(b.wait(write).0, Status::SUCCESS);
    for acquire in acquires {
        assert_eq!(a.wait(acquire).0, Status::SUCCESS);
    }
    drop((a, b));
    stop(running);
}

#[test]
fn preempt_and_abort_ends_only_commands_of_the_preempted_host() {
    let slow = Slow::new();
    let running = serve(vec![slow.clone()]);
    let to = running.addresses()[0];
    let mut hosts = [1, 2, 3].map(|number| Host::connect(to, number));
    // Two controllers of the host to be preempted.
    let mut path = Host::connect(to, 2);
    for (host, key) in hosts.iter_mut().zip([1, 2, 3]) {
        host.join(key);
    }
    let [a, b, c] = &mut hosts;
    assert_eq!(b.acquire(action::ACQUIRE, 2, 0, 3), Status::SUCCESS);
    let lost = [0, 1].map(|slba| b.submit_write(slba));
    let lost_too = path.submit_write(2);
    let kept = c.submit_write(3);
    slow.wait_for(4);
    let preempt = a.submit_acquire(action::PREEMPT_AND_ABORT, 1, 2, 4);
    for pending in lost {
        assert_eq!(b.wait(pending).0, Status::PREEMPTED.dnr());
    }
    assert_eq!(path.wait(lost_too).0, Status::PREEMPTED.dnr());
    assert_eq!(a.report(64).rtype(), 4);
    assert!(!c.is_done(kept), "another registrant's goes on");
    slow.let_go();
    assert_eq!(c.wait(kept).0, Status::SUCCESS);
    assert_eq!(a.wait(preempt).0, Status::SUCCESS);
    assert_eq!(b.write(0), Status::RESERVATION_CONFLICT.dnr());
    assert_eq!(b.read(0), Status::RESERVATION_CONFLICT.dnr());
    drop((hosts, path));
    stop(running);
}

/// Nothing is reserved, so that no host loses access: it is answered when the commands of
/// the preempted host have ended all the same.
#[test]
fn preempt_and_abort_that_takes_no_access_waits_for_what_it_aborts() {
    let slow = Slow::new();
    let running = serve(vec![slow.clone()]);
    let to = running.addresses()[0];
    // In turn on two reactors: the I/O queues are not on the same.
    let mut b = Host::connect(to, 2);
    let between = std::net::TcpStream::connect(to).unwrap();
    let mut a = Host::connect(to, 1);
    a.join(1);
    b.join(2);
    let hangs = b.submit_write(0);
    slow.wait_for(1);
    slow.stall.store(STALL, Ordering::Relaxed);
    let stalls = b.submit_write(1);
    while slow.stall.load(Ordering::Relaxed) != STALLED {
        std::thread::yield_now();
    }
    let preempt = a.submit_acquire(action::PREEMPT_AND_ABORT, 1, 2, 1);
    // Answered after the change was made: one blocking worker does one after the other.
    assert_eq!(a.report(128).registrants(), [(a.hostid, 1, false)]);
    assert!(!a.is_done(preempt), "a reactor does not know of it");
    slow.stall.store(0, Ordering::Relaxed);
    for pending in [hangs, stalls] {
        assert_eq!(b.wait(pending).0, Status::PREEMPTED.dnr());
    }
    assert_eq!(a.wait(preempt).0, Status::SUCCESS);
    slow.let_go();
    drop((a, b, between));
    stop(running);
}

#[test]
fn preempt_alone_lets_commands_end_but_waits_for_them() {
    let slow = Slow::new();
    let running = serve(vec![slow.clone()]);
    let to = running.addresses()[0];
    let (mut a, mut b) = (Host::connect(to, 1), Host::connect(to, 2));
    a.join(1);
    b.join(2);
    assert_eq!(b.acquire(action::ACQUIRE, 2, 0, 1), Status::SUCCESS);
    let write = b.submit_write(0);
    slow.wait_for(1);
    let preempt = a.submit_acquire(action::PREEMPT, 1, 2, 1);
    assert_eq!(a.report(128).registrants(), [(a.hostid, 1, true)]);
    assert!(!a.is_done(preempt));
    slow.let_go();
    assert_eq!(b.wait(write).0, Status::SUCCESS);
    assert_eq!(a.wait(preempt).0, Status::SUCCESS);
    drop((a, b));
    stop(running);
}
