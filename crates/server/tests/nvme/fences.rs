//! A change is answered when it is true: what was under way before is over.

use needs::each_driver;
use std::io::Result as IoResult;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use nvmf::command::AnaState;
use reactor::{BoundListener, Choice, Driver, DriverConfig, EpollDriver, FileIo, RunConfig, Token};
use server::{Change, ChangeError, Limits, Running, parts};
use store::{Base, Errno, Error, Extent, Io, Progress, ResizeError, Task, Volume};
use wire::nvme::{Sqe, Status, io as opcode};

use crate::common::{BLOCK, Host, NQN, Queue, config, ram, stop};
use crate::gate::Gate;
use crate::live::{add_namespace, refuse, resize};

/// Long enough for a change that waits for nothing to be over.
const A_WHILE: Duration = Duration::from_millis(100);

fn start(volume: Arc<dyn Volume>, backend: Choice) -> Running {
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
fn waits_for_a_write(
    backend: Choice,
    change: Change,
    lba: u64,
    holds: impl Fn(&mut Queue) -> bool,
) {
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

#[each_driver]
fn a_removed_namespace_is_gone_when_its_last_write_is_over(backend: Choice) {
    let change = Change::RemoveNamespace {
        nqn: NQN.into(),
        nsid: 1,
    };
    waits_for_a_write(backend, change, 0, |admin| {
        admin.identify(2, 0)[..4] == [0; 4]
    });
}

/// The write is not refused as one behind the end: it was there first.
#[each_driver]
fn shrink_waits_for_a_write_beyond_the_new_end(backend: Choice) {
    let change = Change::ResizeVolume {
        name: "ram".into(),
        size_bytes: 64 * BLOCK as u64,
        allow_shrink: true,
    };
    waits_for_a_write(backend, change, 4000, |admin| {
        admin.identify(0, 1)[..2] == [64, 0]
    });
}

/// Blocks behind the new end may not come back by another way before they are cut off.
#[each_driver]
fn a_volume_that_shrinks_takes_no_other_change(backend: Choice) {
    let gate = Gate::open_over(&ram("ram", 4096));
    let running = start(gate.clone(), backend);
    let (mut admin, mut io) = Host::at(running.addresses()[0]).pair();
    gate.shut();
    let cid = begin_write(&mut io, 4000);
    while gate.hanging() == 0 {
        std::thread::yield_now();
    }
    std::thread::scope(|scope| {
        let shrinking = scope.spawn(|| running.change(resize("ram", 64, true)));
        while admin.identify(0, 1)[..2] != [64, 0] {
            std::thread::yield_now();
        }
        for change in [resize("ram", 4096, false), add_namespace(2, "ram")] {
            refuse(&running, change, "a resize or a rollback that is not over");
        }
        gate.open();
        assert_eq!(io.response(cid).0, Status::SUCCESS);
        shrinking.join().expect("answered").expect("a change");
    });
    stop(running);
}

#[each_driver]
fn an_inaccessible_group_has_no_write_left(backend: Choice) {
    let change = Change::SetAna {
        nqn: NQN.into(),
        listener: None,
        group: 1,
        state: AnaState::Inaccessible,
    };
    waits_for_a_write(backend, change, 0, |admin| {
        admin.log_page(0x0c, 56)[32] & 0xf == 3
    });
}

/// RAM that looks when it is flushed, and is slow to write its first block.
struct Witness {
    inner: Arc<dyn Volume>,
    shared: OnceLock<Arc<parts::Shared>>,
    /// Connections that there were at each flush.
    seen: Mutex<Vec<u32>>,
    /// The slow write has begun.
    is_writing: AtomicBool,
}

impl Witness {
    fn new() -> Arc<Witness> {
        Arc::new(Witness {
            inner: store::open(&ram("ram", 4096)).expect("memory"),
            shared: OnceLock::new(),
            seen: Mutex::default(),
            is_writing: AtomicBool::new(false),
        })
    }
}

impl Volume for Witness {
    fn base(&self) -> &Base {
        self.inner.base()
    }

    fn start(&self, io: Io, files: &mut dyn FileIo, token: Token) -> Progress {
        match (io, self.shared.get()) {
            (Io::Flush, Some(shared)) => {
                let connections = shared.engine.load.iter().map(|n| n.load(Ordering::Relaxed));
                let mut seen = self.seen.lock().expect("not poisoned");
                seen.push(connections.sum());
            }
            (Io::Write { offset: 0, .. }, _) => {
                self.is_writing.store(true, Ordering::Release);
                std::thread::sleep(A_WHILE * 3);
            }
            _ => {}
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

/// A reactor of the test's own, from the parts.
#[test]
fn volumes_are_flushed_once_and_after_the_last_connection() {
    let witness = Witness::new();
    let mut config = config(Choice::Epoll, Limits::default(), 64 << 20);
    config.cpus.truncate(1);
    config.listeners.truncate(1);
    let listener = BoundListener::bind(config.listeners[0].address).expect("binds");
    let address = listener.address();
    let volumes: Vec<Arc<dyn Volume>> = vec![witness.clone()];
    let shared = parts::assemble(
        &config,
        volumes,
        &[address],
        parts::BlockingWorker::Inline,
        Box::new(BoundListener::bind),
    )
    .expect("a configuration that can be");
    assert!(witness.shared.set(shared.clone()).is_ok());
    let pool = mem::Pool::new(mem::Budget::new(64 << 20)).expect("memory");
    let mut driver = EpollDriver::new(&DriverConfig::default(), pool).expect("a driver");
    let (mailbox, mail) = reactor::mailbox(driver.waker());
    assert!(shared.mailboxes.set(vec![mailbox]).is_ok());
    let placer = parts::Placer::new(config.placement, config.cpus, shared.engine.load.clone());
    let acceptor = parts::Acceptor {
        listeners: vec![(0, listener)],
        placer,
    };
    let host = {
        let shared = shared.clone();
        std::thread::spawn(move || {
            let hosts: Vec<_> = (0..4).map(|_| Host::at(address).pair()).collect();
            shared.engine.stop();
            hosts.into_iter().for_each(|(_, io)| io.expect_end());
        })
    };
    let mut shard =
        parts::Shard::new(0, shared.clone(), Some(acceptor), &mut driver).expect("listens");
    let run = RunConfig { spin_us_max: 0 };
    reactor::run(&mut driver, &mail, &mut shard, &run).expect("no failure");
    host.join().expect("every connection ended");
    assert_eq!(*witness.seen.lock().expect("not poisoned"), [0]);
}

/// While one reactor is busy no host hears of what that one does not know yet.
#[each_driver]
fn hosts_are_told_when_every_reactor_knows(backend: Choice) {
    let witness = Witness::new();
    let running = start(witness.clone(), backend);
    let host = Host::at(running.addresses()[0]);
    // Connections take turns on the two reactors: the Admin Queue is on the
    // first, these two on the second.
    let (mut admin, cntlid) = host.admin();
    let (mut slow, _) = host.queue(1, cntlid).expect("admitted");
    let (_other, _) = host.queue(2, cntlid).expect("admitted");
    let (mut io, _) = host.queue(3, cntlid).expect("admitted");
    admin.arm();
    let cid = begin_write(&mut slow, 0);
    while !witness.is_writing.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let grow = Change::ResizeVolume {
                name: "ram".into(),
                size_bytes: 8192 * BLOCK as u64,
                allow_shrink: false,
            };
            running.change(grow).expect("a change");
        });
        admin.event();
        assert_eq!(io.write(1, 8000, 1), Status::SUCCESS);
    });
    assert_eq!(slow.response(cid).0, Status::SUCCESS);
    stop(running);
}

/// Otherwise it waits for half a minute, and the process with it.
#[each_driver]
fn change_that_waits_for_a_disk_that_hangs_ends_with_the_target(backend: Choice) {
    let gate = Gate::open_over(&ram("ram", 4096));
    let running = start(gate.clone(), backend);
    gate.shut();
    let (tell, told) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| tell.send(running.change(resize("ram", 64, true))));
        std::thread::sleep(A_WHILE);
        running.stop();
        let outcome = told.recv_timeout(Duration::from_secs(15));
        gate.open();
        let why = outcome.expect("it ends").expect_err("the disk hangs");
        assert!(matches!(why, ChangeError::Stopping), "{why}");
    });
    stop(running);
}

/// A volume that cannot be flushed goes all the same, and its owner is told.
#[each_driver]
fn a_volume_that_fails_can_be_removed(backend: Choice) {
    let gate = Gate::open_over(&ram("ram", 4096));
    let running = start(gate.clone(), backend);
    let nqn = NQN.to_owned();
    let namespace = Change::RemoveNamespace { nqn, nsid: 1 };
    running.change(namespace).expect("no host uses it");
    let lost = Error::FlushFailed(Errno::IO);
    gate.fail(Some(lost));
    let volume = || Change::RemoveVolume { name: "ram".into() };
    let error = running.change(volume()).expect_err("unflushed");
    assert!(
        matches!(&error, ChangeError::Unsynced(_, e) if *e == lost),
        "{error}"
    );
    assert!(running.volumes().is_empty());
    let error = running.change(volume()).expect_err("gone");
    assert!(
        matches!(error, ChangeError::Unknown("volume", _)),
        "{error}"
    );
    stop(running);
}

/// A backend that hangs does not keep a target from stopping in order.
#[each_driver]
fn a_volume_that_hangs_does_not_hold_up_the_end(backend: Choice) {
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
