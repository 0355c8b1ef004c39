//! A reactor that panics: the target stops in order, and says why.

use needs::each_driver;
use std::io::Result as IoResult;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use reactor::{Choice, FileIo, Token};
use server::{Change, IscsiTargetSpec, Limits, ListenerSpec, LunSpec, Report, Running, parts};
use store::{Base, Error, Extent, Io, Progress, ResizeError, Task, Volume};
use wire::iscsi::TaskFunction;
use wire::nvme::{Sqe, io as opcode};

use crate::common::{BLOCK, Host, NQN, PATIENCE, Queue, config, ram};
use crate::scsi::{ALICE, DISKS, Nexus};

/// The block at which a read panics.
const TRAP: u64 = 77;
/// So long that nothing that is on its way still comes.
const A_WHILE: Duration = Duration::from_millis(200);

/// RAM with a trap, which counts its flushes.
struct Trap {
    inner: Arc<dyn Volume>,
    flushes: AtomicUsize,
    /// The next question for its counters panics.
    is_set_for_counters: AtomicBool,
}

impl Trap {
    fn new() -> Arc<Trap> {
        Arc::new(Trap {
            inner: store::open(&ram("ram", 4096)).expect("memory"),
            flushes: AtomicUsize::new(0),
            is_set_for_counters: AtomicBool::new(false),
        })
    }
}

impl Volume for Trap {
    fn base(&self) -> &Base {
        let is_sprung = self.is_set_for_counters.swap(false, Ordering::Relaxed);
        assert!(!is_sprung, "the counters were read");
        self.inner.base()
    }

    /// Not lent: what is read comes here.
    fn start(&self, io: Io, files: &mut dyn FileIo, token: Token) -> Progress {
        if let Io::Read { offset, .. } = io {
            assert!(offset != TRAP * BLOCK as u64, "the trap was read");
        }
        if io == Io::Flush {
            self.flushes.fetch_add(1, Ordering::Relaxed);
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
        assert!(offset != TRAP * BLOCK as u64, "the trap was looked up");
        self.inner.extents(offset, len, max, out)
    }
}

/// Two reactors, which connections go to in turn.
fn serve(trap: Arc<Trap>, backend: Choice) -> Running {
    let mut config = config(backend, Limits::default(), 128 << 20);
    let mut disks = IscsiTargetSpec::new(DISKS);
    disks.luns = vec![LunSpec::new(0, "ram")];
    config.iscsi_targets = vec![disks];
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    config.listeners.push(ListenerSpec::iscsi(local));
    parts::start_with(config, vec![trap as Arc<dyn Volume>]).expect("starts")
}

fn spring_the_trap(queue: &mut Queue) {
    let mut sqe = Sqe::new(opcode::READ);
    sqe.nsid = 1.into();
    sqe.set_blocks(TRAP, 1);
    sqe.sgl = wire::nvme::Sgl::new(wire::nvme::Sgl::TRANSPORT, BLOCK as u32);
    queue.send(sqe, &[]);
}

/// What the target says until all of it has ended: the failures, and the rest.
fn end_of(running: &mut Running) -> (Vec<String>, Report) {
    let mut failures = Vec::new();
    loop {
        match running.wait(PATIENCE) {
            Ok(Some(report)) => return (failures, report),
            Ok(None) => panic!("the target did not stop; it says {failures:?}"),
            Err(failure) => failures.push(failure.to_string()),
        }
    }
}

fn assert_failed_once(failures: &[String], what: &str) {
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].contains(what), "{failures:?}");
}

/// Runs a test with the queues of a host on two reactors: the Admin
/// queue and the I/O queue, whose reactor is told, on the first or on the other one.
fn on_each_reactor(backend: Choice, test: impl Fn(&Trap, &mut Running, (Queue, Queue), usize)) {
    for queue_first in [true, false] {
        let trap = Trap::new();
        let mut running = serve(trap.clone(), backend);
        let address = running.addresses()[0];
        // The first connection is the first reactor's, which accepts.
        let spare = queue_first.then(|| Queue::open(address));
        let queues = Host::at(address).pair();
        test(&trap, &mut running, queues, usize::from(!queue_first));
        drop(spare);
    }
}

#[each_driver]
fn a_reactor_that_panics_ends_the_target_in_order_and_is_told(backend: Choice) {
    on_each_reactor(backend, |trap, running, (admin, mut io), dead| {
        let addresses = running.addresses();
        let written = io.write(1, 0, 5);
        assert!(written.is_success());
        spring_the_trap(&mut io);
        io.expect_end();
        admin.expect_end();
        let (failures, report) = end_of(running);
        assert_failed_once(&failures, &format!("reactor {dead} on CPU"));
        assert_failed_once(&failures, "panic: the trap was read");
        assert_eq!(report.unsynced, 0);
        let flushes = trap.flushes.load(Ordering::Relaxed);
        assert_eq!(flushes, 1, "by the other reactor");
        for address in addresses {
            let tried = TcpStream::connect(address);
            assert!(tried.is_err(), "{address} still listens");
        }
    });
}

/// An Admin command holds the lock of the controllers, which those of the other
/// reactor need to end.
#[each_driver]
fn panic_under_the_lock_of_controllers_lets_the_others_end_in_order(backend: Choice) {
    on_each_reactor(backend, |trap, running, (mut admin, mut io), _| {
        assert!(io.write(1, 0, 5).is_success());
        trap.is_set_for_counters.store(true, Ordering::Relaxed);
        let mut smart = Sqe::new(wire::nvme::admin::GET_LOG_PAGE);
        smart.nsid = u32::MAX.into();
        smart.cdw10 = (2 | 127 << 16).into();
        smart.sgl = wire::nvme::Sgl::new(wire::nvme::Sgl::TRANSPORT, 512);
        admin.send(smart, &[]);
        admin.expect_end();
        io.expect_end();
        let (failures, report) = end_of(running);
        assert_failed_once(&failures, "panic: the counters were read");
        assert_eq!(report.unsynced, 0);
        assert_eq!(trap.flushes.load(Ordering::Relaxed), 1);
    });
}

/// The function waits for a fence that the dead reactor cannot pass.
#[each_driver]
fn a_lun_reset_beside_a_dead_reactor_panics_no_other(backend: Choice) {
    let trap = Trap::new();
    let mut running = serve(trap.clone(), backend);
    let addresses = running.addresses();
    let spare = Queue::open(addresses[0]);
    let (admin, mut io) = Host::at(addresses[0]).pair();
    let mut nexus = Nexus::connect(addresses[2], ALICE, DISKS);
    spring_the_trap(&mut io);
    io.expect_end();
    // It may be answered, or its connection has ended.
    let _ = (nexus.session).task_management(TaskFunction::LogicalUnitReset, 0);
    drop((nexus, admin, spare));
    let (failures, _) = end_of(&mut running);
    assert_failed_once(&failures, "reactor 0");
}

#[each_driver]
fn a_change_beside_a_dead_reactor_is_answered_at_once(backend: Choice) {
    let trap = Trap::new();
    let mut running = serve(trap.clone(), backend);
    let (admin, mut io) = Host::at(running.addresses()[0]).pair();
    spring_the_trap(&mut io);
    io.expect_end();
    std::thread::sleep(A_WHILE);
    let change = Change::RemoveNamespace {
        nqn: NQN.into(),
        nsid: 1,
    };
    let refused = running.change(change).expect_err("the target stops");
    assert_eq!(refused.to_string(), "the target is being stopped");
    drop(admin);
    let (failures, _) = end_of(&mut running);
    assert_failed_once(&failures, "panic: the trap was read");
}

#[test]
fn a_lookup_that_panics_ends_the_target_in_order_and_is_told() {
    let trap = Trap::new();
    let mut running = serve(trap.clone(), Choice::Epoll);
    let mut nexus = Nexus::connect(running.addresses()[2], ALICE, DISKS);
    let ask = wire::scsi::cdb::get_lba_status(TRAP, 24);
    let failed = nexus.take(ask, 24);
    // HARDWARE ERROR, INTERNAL TARGET FAILURE.
    assert_eq!(failed, Err(crate::scsi::Fail::Check(4, 0x4400, None)));
    let (failures, _) = end_of(&mut running);
    assert_failed_once(&failures, "weft-blocking: panic: the trap was looked up");
    assert_eq!(trap.flushes.load(Ordering::Relaxed), 1);
}
