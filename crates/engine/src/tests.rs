//! A connection whose machine does as it is told, on a socket whose peer does nothing: when
//! it is to be told the time, and when it ends because it sits on memory.

mod secured;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::{Arc, mpsc};

use link::{CommandMemory, Stream};
use machine::{Machine, Nanos, RecvPlan, Step, Tag, Tail, Transmit};
use mem::{Budget, Buf, Pool};
use reactor::{AnyDriver, Choice, Driver, DriverConfig, FileIo, Token, Wait};
use store::meter::{IoMeter, IoOp};

use crate::connection::{Connection, Core, Via, stage_meters};
use crate::held_back::Demand;
use crate::job::{AnswerSource, Job, Jobs};
use crate::post::{Mail, Post, ShardMail};
use crate::proofs::ProofKind;
use crate::protocol::{ConnectionEvent, ConnectionStage, Has, Protocol};
use crate::rate_limits::Goal;
use crate::shard::Shard;
use crate::shared::{ConnectionLimits, Shared};
use crate::token::{ConnectionId, JobId};
use crate::waiting::Waits;

mod limits;

const NOW: Nanos = 1_000_000_000;
const MEMORY_MAX: u64 = 64 << 20;
/// The command of the tests.
const TAG: Tag = 0;
/// As the first lines of `waiting.rs` have them.
const IDLE_TICKS: usize = 10;
const HELD_TICKS: usize = 60;
const WAIT_TICKS: usize = 50;

/// Has so many PDUs to send; a command's tag is its only operation.
#[derive(Default)]
struct Script {
    pdus: usize,
    /// So much data of its command goes next.
    payload_bytes: u32,
    ops: VecDeque<Tag>,
    /// There is memory for so many operations.
    ops_with_memory: usize,
    /// What each operation begins.
    demand: Option<Demand>,
    /// Commands that were executed, in order.
    executed: Vec<Tag>,
    /// Data stands before the memory of its command.
    is_blocked: bool,
    is_finished: bool,
}

impl Machine for Script {
    type Op = Tag;

    fn tags_max(&self) -> usize {
        1
    }

    fn recv_plan(&self) -> RecvPlan {
        RecvPlan {
            direct: None,
            stage_max: 4096,
        }
    }

    fn on_direct(&mut self, _: u32) {}

    fn poll_step(&mut self, _: Nanos, _: &[u8], _: &mut usize) -> Option<Step<Tag>> {
        self.ops.pop_front().map(Step::Op)
    }

    fn is_blocked_on(&self, _: Tag) -> bool {
        self.is_blocked
    }

    fn on_digest(&mut self, _: Tag, _: u32) {}

    fn has_transmit(&self) -> bool {
        self.pdus > 0 || self.payload_bytes > 0
    }

    fn poll_transmit(&mut self, out: &mut impl Transmit) {
        match std::mem::take(&mut self.payload_bytes) {
            0 => {}
            len => {
                out.payload(TAG, 0, len, Tail::digest(false));
                out.release(TAG);
            }
        }
        if self.pdus > 0 && out.has_room() {
            self.pdus -= 1;
            out.header(b"head");
        }
    }

    fn is_finished(&self) -> bool {
        self.is_finished
    }

    fn deadline(&self) -> Option<Nanos> {
        None
    }

    fn on_deadline(&mut self, _: Nanos) {}
}

struct Work;

impl AnswerSource for Work {
    fn elsewhere() -> Self {
        Work
    }

    fn has_begun(&self) -> bool {
        true
    }

    fn cancel(&mut self, _: &mut dyn FileIo, _: Token) {}

    fn resume(self, _: io::Result<u32>, _: &mut dyn FileIo, _: Token) -> Option<Self> {
        None
    }
}

struct Scripted(Core<Scripted>);

impl Protocol for Scripted {
    type Machine = Script;
    type Answer = ();
    type Mail = ();
    type Job = Work;
    type Local = RefCell<Jobs<Work>>;

    fn jobs(local: &Self::Local) -> &RefCell<Jobs<Work>> {
        local
    }

    fn core(&self) -> &Core<Self> {
        &self.0
    }

    fn core_mut(&mut self) -> &mut Core<Self> {
        &mut self.0
    }

    fn post(&self) -> &Arc<dyn Post<Mail<(), ()>>> {
        unreachable!("no command goes to another reactor")
    }

    fn lost() {}

    fn execute<D: Driver>(&mut self, tag: &Tag, _: &mut D) -> bool {
        let script = &mut self.0.link.machine;
        let has_memory = script.ops_with_memory > 0;
        if has_memory {
            script.ops_with_memory -= 1;
            script.executed.push(*tag);
        }
        has_memory
    }

    fn demand(&self, _: &Tag) -> Option<Demand> {
        self.0.link.machine.demand
    }

    fn goal(&self, _: u32) -> Option<Goal<'_>> {
        Some(Goal::Volume("disk0"))
    }

    fn refuse<D: Driver>(&mut self, _: Tag, _: &mut D) {}

    fn answered<D: Driver>(&mut self, _: Tag, (): (), _: &mut D) {}

    fn on_file<D: Driver>(&mut self, _: JobId, _: Job<Work>, _: io::Result<u32>, _: &mut D) {}

    fn on_mail<S: Has<Self>, D: Driver>(_: &mut Shard<S>, (): (), _: &mut D) {}

    fn on_event<D: Driver>(&mut self, _: ConnectionEvent, _: &mut D) {}

    fn stage(&self) -> ConnectionStage {
        ConnectionStage::Known
    }

    fn commands(op: &Tag) -> [Option<Tag>; 2] {
        [Some(*op), None]
    }

    fn is_whole(_: &Tag) -> bool {
        true
    }
}

/// Keeps no mail.
struct NoPost;

impl Post<ShardMail> for NoPost {
    fn send(&self, _: usize, _: ShardMail) {}
}

struct Bench {
    connection: Scripted,
    driver: AnyDriver,
    peer: TcpStream,
}

impl std::ops::Deref for Bench {
    type Target = Core<Scripted>;

    fn deref(&self) -> &Core<Scripted> {
        &self.connection.0
    }
}

impl std::ops::DerefMut for Bench {
    fn deref_mut(&mut self) -> &mut Core<Scripted> {
        &mut self.connection.0
    }
}

fn bench() -> Bench {
    let pool = Pool::new(Budget::new(MEMORY_MAX)).expect("address space");
    let config = DriverConfig::default();
    let mut driver = reactor::open(Choice::Epoll, &config, pool.clone()).expect("a driver");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let local = listener.local_addr().expect("bound");
    let peer = TcpStream::connect(local).expect("connects");
    let (ours, address) = listener.accept().expect("connected");
    let socket = driver.add_socket(ours.into()).expect("room");
    let limits = ConnectionLimits {
        connections_max: 1,
        connections_of_address_max: 1,
        tls_handshakes_max: 1,
        turn_units_max: 1 << 20,
    };
    let shared = Arc::new(Shared::new(limits, 1, Arc::new(NoPost)));
    let place = shared.hosts.place(address.ip(), 1).expect("free");
    let id = ConnectionId {
        index: 0,
        generation: 0,
    };
    let via = Via {
        connection: 0,
        local,
        peer: address,
        listener: 0,
    };
    let jobs = Rc::new(RefCell::new(Jobs::new(0, Rc::new(Cell::new(0)))));
    let stream = Stream::new(socket, id.tokens());
    let came = (via, place);
    let core = Core::new(Script::default(), id, stream, came, shared, (jobs, &pool));
    Bench {
        connection: Scripted(core),
        driver,
        peer,
    }
}

#[test]
fn step_that_hangs_or_fails_keeps_no_proof_of_another_kind_or_address_waiting() {
    let shared = bench().shared.clone();
    shared.start_blocking_worker().expect("a thread");
    let (tell, told) = mpsc::channel();
    let (release, held) = mpsc::channel::<()>();
    let [one, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
    let tells = |what| {
        let tell = tell.clone();
        move || tell.send(what).expect("it is awaited")
    };
    let begun = tells("begun");
    let hangs = shared.prove(ProofKind::Asked, one, move || {
        begun();
        let _ = held.recv();
    });
    assert_eq!(told.recv(), Ok("begun"));
    let computed = shared.prove(ProofKind::Computed, one, tells("computed"));
    assert_eq!(told.recv(), Ok("computed"));
    let named = shared.prove(ProofKind::Named, one, tells("named"));
    assert_eq!(told.recv(), Ok("named"));
    let fails = shared.prove(ProofKind::Asked, one, || panic!("on purpose"));
    shared.prove(ProofKind::Asked, other, tells("left")).leave();
    drop(shared.prove(ProofKind::Asked, other, tells("given up")));
    let last = shared.prove(ProofKind::Asked, one, tells("last"));
    drop(release);
    assert_eq!([told.recv(), told.recv()], [Ok("left"), Ok("last")]);
    drop((hangs, computed, named, fails, last));
}

impl Bench {
    /// The command has memory of its host's share.
    fn hold(&mut self) {
        let buf = self.pool.get(4096).expect("memory");
        self.link.set_data(TAG, CommandMemory::owned(buf));
    }

    /// The command finds no memory.
    fn wait(&mut self) {
        self.link.machine.ops.push_back(TAG);
        self.connection.run(&mut self.driver);
        assert!(self.is_waiting());
    }

    /// The command is worked on.
    fn work(&mut self) {
        let (id, mut jobs) = (self.id(), self.jobs.borrow_mut());
        let job = jobs.vacant();
        jobs.insert(job, id, TAG, Work);
        drop(jobs);
        self.jobs_open += 1;
    }

    /// A PDU is on its way to the peer.
    fn send(&mut self) {
        self.link.machine.pdus = 1;
        self.connection.0.link.flush_now(&mut self.driver);
        assert!(self.link.stream.is_sending());
    }

    /// The kernel has taken it.
    fn sent(&mut self) {
        let mut done = Vec::new();
        while done.is_empty() {
            let polled = self.driver.poll(Wait::Until(Nanos::MAX), &mut done);
            polled.expect("the driver runs");
        }
        self.link.on_sent();
    }

    /// As many commands are open as have room without memory, and there is none for more.
    fn hold_back(&mut self) -> Vec<Buf> {
        let all = std::iter::from_fn(|| self.pool.get(1 << 20)).collect();
        while self.pool.try_reserve(1 << 10) {}
        self.jobs_open = 32;
        self.connection.run(&mut self.driver);
        assert!(self.holds_back());
        all
    }

    /// Other hosts wait for memory.
    fn others_are_short(&self) {
        self.shared.note_shortage(NOW);
    }

    /// The host has so much memory that it waits for itself.
    fn hold_much(&self) -> Vec<Buf> {
        let held = (0..8).map(|_| self.pool.get(1 << 20).expect("memory"));
        held.collect()
    }

    /// The host waits for memory that it holds itself.
    fn own_host_is_short(&self) -> Vec<Buf> {
        let held = self.hold_much();
        assert!(!self.host.note_shortage(NOW), "it is its own");
        held
    }

    fn tick(&mut self) {
        self.connection.memory_tick(NOW, &mut self.driver);
    }

    /// In how many ticks it ends, if it does; before each of them `event` happens.
    fn ends_after(&mut self, event: impl Fn(&mut Bench)) -> Option<usize> {
        (1..=2 * HELD_TICKS).find(|_| {
            event(self);
            self.tick();
            !self.is_open()
        })
    }

    /// The same where its peer moves no byte.
    fn ends_idle_after(&mut self) -> Option<usize> {
        self.ends_after(|_| {})
    }

    /// The same where its peer moves a few bytes in every tick.
    fn ends_slow_after(&mut self) -> Option<usize> {
        self.ends_after(|bench| bench.link.on_sent())
    }
}

#[test]
fn connection_is_told_the_time_with_every_tick_while_something_is_under_way() {
    let next = |begin: &dyn Fn(&mut Bench)| {
        let mut bench = bench();
        begin(&mut bench);
        bench.connection.next_tick()
    };
    assert_eq!(next(&|_| {}), None);
    assert_eq!(next(&|bench| bench.hold()), Some(0), "memory is held");
    assert_eq!(next(&|bench| bench.send()), Some(0), "a batch is sent");
    assert_eq!(next(&|bench| bench.wait()), Some(0), "a command waits");
    assert_eq!(
        next(&|bench| bench.work()),
        Some(0),
        "a command is worked on"
    );
    let ends = |bench: &mut Bench| bench.link.machine.is_finished = true;
    assert_eq!(next(&ends), Some(0), "it ends");
}

#[test]
fn connection_with_memory_ends_sooner_where_its_peer_moves_nothing() {
    let mut bench = bench();
    bench.hold();
    bench.others_are_short();
    assert_eq!(bench.ends_idle_after(), Some(IDLE_TICKS));
    let mut bench = self::bench();
    bench.hold();
    bench.others_are_short();
    assert_eq!(bench.ends_slow_after(), Some(HELD_TICKS));
}

#[test]
fn connection_without_memory_stays_where_others_are_short() {
    let mut bench = bench();
    bench.others_are_short();
    assert_eq!(bench.ends_idle_after(), None);
}

#[test]
fn connection_with_memory_stays_where_none_is_short() {
    let mut bench = bench();
    bench.hold();
    assert_eq!(bench.ends_idle_after(), None);
}

/// What it gives back serves its own host alone.
#[test]
fn connection_ends_for_its_own_host_only_where_its_peer_moves_nothing() {
    let mut bench = bench();
    bench.hold();
    let _held = bench.own_host_is_short();
    assert_eq!(bench.ends_idle_after(), Some(IDLE_TICKS));
    let mut bench = self::bench();
    bench.hold();
    let _held = bench.own_host_is_short();
    assert_eq!(bench.ends_slow_after(), None);
}

/// The memory of what is sent is the batch's, and no command's.
#[test]
fn connection_whose_peer_takes_nothing_ends_without_memory_of_a_command() {
    let mut bench = bench();
    bench.others_are_short();
    bench.send();
    assert_eq!(bench.ends_idle_after(), Some(IDLE_TICKS));
}

#[test]
fn connection_that_receives_nothing_for_want_of_room_is_not_taken_for_idle() {
    let mut bench = bench();
    bench.hold();
    let _all = bench.hold_back();
    bench.others_are_short();
    assert_eq!(bench.ends_idle_after(), None);
}

#[test]
fn connection_without_room_for_commands_counts_as_short_of_memory() {
    let mut bench = bench();
    let all = bench.hold_back();
    drop(all);
    bench.tick();
    assert!(bench.shared.is_short(NOW));
}

#[test]
fn connection_that_waits_from_one_tick_to_the_next_is_short_of_memory() {
    let mut bench = bench();
    bench.wait();
    bench.tick();
    assert!(!bench.is_short(NOW), "it has just begun to wait");
    bench.tick();
    assert!(bench.shared.is_short(NOW) && !bench.host.is_short(NOW));
}

#[test]
fn connection_that_waits_for_its_own_host_is_not_a_shortage_of_others() {
    let mut bench = bench();
    let _held = bench.hold_much();
    bench.wait();
    bench.tick();
    bench.tick();
    assert!(!bench.shared.is_short(NOW) && bench.host.is_short(NOW));
}

#[test]
fn connection_gives_back_room_of_commands_that_have_ended() {
    let mut bench = bench();
    bench.jobs_open = 32;
    bench.connection.run(&mut bench.driver);
    assert!(bench.host.share.held_bytes() > 0);
    bench.jobs_open = 0;
    bench.tick();
    assert_eq!(bench.host.share.held_bytes(), 0);
}

#[test]
fn connection_whose_answer_is_still_to_be_sent_is_not_taken_for_idle() {
    let mut bench = bench();
    bench.hold();
    bench.others_are_short();
    bench.link.machine.pdus = 1;
    assert_eq!(bench.ends_idle_after(), None);
}

/// No batch is under way for too long, but the answer of the command is never in it.
#[test]
fn connection_with_memory_ends_though_its_peer_takes_a_batch_in_every_tick() {
    let mut bench = bench();
    bench.hold();
    bench.others_are_short();
    bench.send();
    let sends_on = |bench: &mut Bench| {
        bench.sent();
        bench.send();
        bench.link.machine.pdus = 1;
    };
    assert_eq!(bench.ends_after(sends_on), Some(HELD_TICKS));
}

#[test]
fn connection_whose_command_waits_for_memory_is_not_taken_for_idle() {
    let mut bench = bench();
    bench.hold();
    bench.wait();
    bench.others_are_short();
    assert!(bench.ends_idle_after() > Some(IDLE_TICKS));
}

#[test]
fn connection_whose_command_is_worked_on_is_not_taken_for_idle() {
    let mut bench = bench();
    bench.hold();
    bench.work();
    bench.others_are_short();
    assert_eq!(bench.ends_idle_after(), None);
}

#[test]
fn command_whose_data_stands_before_its_memory_keeps_others_from_being_taken() {
    let mut bench = bench();
    bench.link.machine.is_blocked = true;
    bench.link.machine.ops.extend([TAG; 3]);
    bench.connection.run(&mut bench.driver);
    assert_eq!(bench.link.machine.ops.len(), 2);
    assert!(bench.is_waiting() && !bench.may_receive());
    bench.link.machine.ops_with_memory = 1;
    bench.connection.retry(&mut bench.driver);
    assert_eq!(bench.link.machine.ops.len(), 1, "the next one waits");
    bench.link.machine.ops_with_memory = 2;
    bench.connection.retry(&mut bench.driver);
    assert!(!bench.is_waiting() && bench.may_receive());
}

#[test]
fn connection_wants_another_turn_where_a_command_went_on_and_more_wait() {
    let mut bench = bench();
    bench.wait();
    bench.wait();
    assert!(!bench.connection.retry(&mut bench.driver), "none went on");
    bench.link.machine.ops_with_memory = 1;
    assert!(bench.connection.retry(&mut bench.driver));
    bench.link.machine.ops_with_memory = 1;
    assert!(!bench.connection.retry(&mut bench.driver), "none waits");
}

#[test]
fn command_that_waits_for_memory_is_refused_after_fifty_ticks() {
    let mut bench = bench();
    bench.wait();
    let refused = (1..=2 * WAIT_TICKS).find(|_| {
        bench.tick();
        !bench.is_waiting()
    });
    assert_eq!(refused, Some(WAIT_TICKS + 1));
}

#[test]
fn commands_that_wait_for_memory_end_with_their_connection() {
    let mut bench = bench();
    bench.wait();
    bench.connection.close(&mut bench.driver);
    assert!(bench.waiting.is_empty());
}

/// Prints what it costs to meter an I/O, samples included.
#[test]
#[ignore = "prints a time, which no machine of a test has to itself"]
fn metering_of_an_io_is_timed() {
    const IOS: u32 = 1 << 20;
    let (mut bench, meter) = (bench(), IoMeter::default());
    let mut rounds: Vec<f64> = (0..31)
        .map(|_| {
            let start = std::time::Instant::now();
            for _ in 0..IOS {
                let Bench {
                    connection, driver, ..
                } = &mut bench;
                let core = &mut connection.0;
                if core.sample.counts(TAG, true) {
                    connection.time_command(TAG, true, driver);
                }
                let core = &mut connection.0;
                core.begins_backend(TAG, driver);
                let took = core.ends_backend(TAG, driver);
                core.count(
                    Some(&meter),
                    std::hint::black_box((IoOp::Read, 4096)),
                    true,
                    took,
                );
                if core.sample.replies() {
                    let meters = stage_meters(&core.shared, &core.host, 0);
                    core.sample.turn_ends(u64::MAX, meters, driver);
                }
                if core.sample.is_sent() {
                    let meters = stage_meters(&core.shared, &core.host, 0);
                    core.sample.sent(meters, driver);
                }
            }
            start.elapsed().as_nanos() as f64 / f64::from(IOS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    assert_eq!(meter.counters.read()[0].ios, 31 * u64::from(IOS));
    let (least, median, most) = (rounds[0], rounds[15], rounds[30]);
    println!("ns an I/O: least {least:.1}, median {median:.1}, most {most:.1}");
}
