//! Several paths used as one, step by step: nothing here happens by itself. One goes over
//! TCP and one over RDMA.
#![allow(missing_docs)]

#[path = "shared/ends.rs"]
mod ends;
#[path = "shared/held.rs"]
mod held;

use std::net::SocketAddr;
use std::sync::Arc;

use ends::{driver, stop};
use held::Held;
use host::{
    Admin, AnaState, Data, HostIdentity, Multipath, PathChange, PathParams, PathReport, PathSignal,
    PathState, Policy, QueueParams, QueueSettings, RdmaHostSettings, Settings, TOKENS_PER_QUEUE,
};
use mem::Region;
use nvmf::transport::Transports;
use reactor::{Driver, EpollDriver, Token, Wait};
use server::{Change, Config, ListenerSpec, NamespaceSpec, RdmaSpec, Running, SubsystemSpec};
use wire::nvme::fabrics::ConnectData;
use wire::nvme::{ConnectCommand, Sqe, Status, io};

const NQN: &str = "nqn.2026-01.io.weft:paths";

/// A target with two listeners, a controller on each, and their paths.
struct World {
    running: Running,
    admins: Vec<Admin<EpollDriver>>,
    driver: Held,
    paths: Multipath,
    memory: Region,
    signals: Vec<Arc<PathSignal>>,
    host: HostIdentity,
}

const TOKENS: Token = 40;
const REQUESTS_MAX: u16 = 16;

/// What the path to listener `at` goes over.
fn settings(at: usize) -> QueueSettings {
    match at {
        0 => Settings::default().into(),
        _ => RdmaHostSettings::default().into(),
    }
}

impl World {
    fn new(policy: Policy, fast_io_fail: Option<u64>) -> Self {
        let listener = |transports| ListenerSpec {
            rdma: RdmaSpec {
                transports,
                ..RdmaSpec::default()
            },
            ..SocketAddr::from(([127, 0, 0, 1], 0)).into()
        };
        let config = Config {
            volumes: vec![store::Spec::new("a", store::Kind::RAM, 1 << 20, 4096)],
            subsystems: vec![SubsystemSpec {
                nqn: NQN.into(),
                serial: "S1".into(),
                model: "model".into(),
                namespaces: vec![NamespaceSpec {
                    nsid: 1,
                    volume: "a".into(),
                    ..NamespaceSpec::default()
                }],
                ..SubsystemSpec::default()
            }],
            listeners: vec![listener(Transports::Both), listener(Transports::Rdma)],
            cpus: vec![reactor::available_cpus()[0]],
            spin_us_max: 0,
            memory_max: 64 << 20,
            ..Config::default()
        };
        let running = server::start(config).expect("the target starts");
        let host = HostIdentity::new(None).expect("random bytes");
        let signals: Vec<Arc<PathSignal>> = (0..2).map(|_| Arc::default()).collect();
        let params: Vec<PathParams> = (0..2)
            .map(|at: usize| PathParams {
                to: running.addresses()[at],
                queue: QueueParams {
                    settings: settings(at),
                    connect: ConnectCommand {
                        recfmt: 0,
                        qid: 1,
                        sqsize: REQUESTS_MAX,
                        cattr: ConnectCommand::DISABLE_SQ_FLOW_CONTROL,
                        kato_ms: 0,
                    },
                    connect_data: ConnectData::new(host.hostid, 0, NQN, &host.hostnqn),
                    in_capsule_max: 0,
                    psk: None,
                    dhchap: None,
                },
                signal: Arc::clone(&signals[at]),
            })
            .collect();
        let mut world = World {
            running,
            admins: Vec::new(),
            driver: Held::new(driver()),
            paths: Multipath::new(policy, &params, REQUESTS_MAX, fast_io_fail, TOKENS),
            memory: Region::anonymous(u64::from(REQUESTS_MAX) << 12).expect("memory"),
            signals,
            host,
        };
        world.up(0, 1);
        world.up(1, 1);
        world
    }

    /// Makes a controller at listener `at`, and its queue.
    fn up(&mut self, at: usize, epoch: u64) {
        let to = self.running.addresses()[at];
        let admin = Admin::connect(driver(), to, NQN, &self.host, settings(at), 0);
        let mut admin = admin.expect("connects");
        assert_eq!(admin.set_queue_count(1).expect("count"), 1);
        let change = PathChange::Up {
            epoch,
            cntlid: admin.cntlid(),
            in_capsule_max: 8192,
            ana: AnaState::Optimized,
            host: Box::new(admin.host().clone()),
        };
        self.admins.push(admin);
        self.paths.on_change(&mut self.driver, at, change);
        self.until(|world| matches!(world.report(at).state, PathState::Live(_)));
    }

    fn report(&self, at: usize) -> PathReport {
        self.paths.reports().nth(at).expect("a path")
    }

    fn ios(&self) -> [u64; 2] {
        [self.report(0).ios, self.report(1).ios]
    }

    /// Turns the driver once, at most `pause_ms` long; what came to its end.
    fn turn(&mut self, pause_ms: u64) -> Vec<Status> {
        let mut done = Vec::new();
        self.paths.flush(&mut self.driver);
        let until = self.driver.now() + pause_ms * 1_000_000;
        let mut out = Vec::new();
        let polled = self.driver.poll(Wait::Until(until), &mut out);
        polled.expect("the driver works");
        for completion in out {
            let token = completion.token();
            assert!((TOKENS..TOKENS + 2 * TOKENS_PER_QUEUE).contains(&token));
            self.paths
                .on_completion(&mut self.driver, token, completion);
            done.extend(self.ended());
        }
        done
    }

    fn ended(&mut self) -> Vec<Status> {
        let next = || self.paths.next_completed(&mut self.driver);
        std::iter::from_fn(next).map(|(_, c)| c.status).collect()
    }

    /// Turns until `is_so`; what came to its end meanwhile.
    fn until(&mut self, is_so: impl Fn(&Self) -> bool) -> Vec<Status> {
        let late = self.driver.now() + 10_000_000_000;
        let mut done = self.ended();
        while !is_so(self) {
            assert!(self.driver.now() < late, "it does not come");
            done.extend(self.turn(100));
        }
        done
    }

    /// Turns until `count` commands came to their end; all must have succeeded.
    fn see(&mut self, count: usize) {
        let mut done = self.ended();
        let late = self.driver.now() + 10_000_000_000;
        while done.len() < count {
            assert!(self.driver.now() < late, "{} of {count}", done.len());
            done.extend(self.turn(100));
        }
        assert_eq!(done, vec![Status::SUCCESS; count]);
    }

    fn submit(&mut self, count: u16) {
        for _ in 0..count {
            let mut sqe = Sqe::new(io::READ);
            sqe.nsid = 1.into();
            sqe.set_blocks(0, 1);
            let memory = &self.memory;
            let range = |tag| memory.range(u64::from(tag) << 12, 4096);
            let tag = self.paths.submit(&sqe, Data::In(4096), range);
            assert!(tag.is_some(), "there is room");
        }
    }

    fn change(&self, change: Change) {
        self.running.change(change).expect("a change");
    }

    /// Takes a listener away, and with it its connections.
    fn remove(&self, at: usize) -> SocketAddr {
        let address = self.running.addresses()[at];
        self.change(Change::RemoveListener { address });
        address
    }

    fn end(mut self) {
        self.paths.close(&mut self.driver);
        self.until(|world| world.paths.is_closed());
        stop(self.running);
    }
}

#[test]
fn policies_spread_what_is_submitted() {
    let mut world = World::new(Policy::RoundRobin, None);
    world.submit(7);
    assert_eq!(world.ios().iter().sum::<u64>(), 7);
    assert_eq!(world.ios()[0].abs_diff(world.ios()[1]), 1);
    world.see(7);
    world.end();

    let mut world = World::new(Policy::QueueDepth, None);
    world.submit(8);
    assert_eq!(world.ios(), [4, 4]);
    world.see(8);
    // Only one path has answered: it gets everything until it is even.
    world.paths.on_change(
        &mut world.driver,
        1,
        PathChange::Ana {
            ana: AnaState::Inaccessible,
        },
    );
    world.submit(3);
    assert_eq!(world.ios(), [7, 4]);
    world.paths.on_change(
        &mut world.driver,
        1,
        PathChange::Ana {
            ana: AnaState::Optimized,
        },
    );
    world.submit(5);
    assert_eq!(world.ios(), [8, 8], "three outstanding there, then in turn");
    world.see(8);
    world.end();
}

#[test]
fn commands_of_a_lost_path_fail_over_only_once_it_is_closed() {
    let mut world = World::new(Policy::RoundRobin, None);
    world.driver.is_holding = true;
    // On the queues, not sent yet.
    world.submit(8);
    assert_eq!(world.ios(), [4, 4]);
    let address = world.remove(0);
    let done = world.until(|world| !world.driver.held.is_empty());
    assert_eq!(world.report(0).state, PathState::Down);
    assert_eq!(world.report(0).losses, 1);
    // The other four are answered; these four wait, though there is a path.
    let mut done = done.len();
    while done < 4 {
        done += world.turn(100).len();
    }
    for _ in 0..5 {
        assert!(world.turn(2).is_empty());
    }
    assert_eq!((done, world.ios()), (4, [4, 4]));
    assert_eq!(world.report(0).failovers, 0);
    world.driver.is_holding = false;
    world.see(4);
    assert_eq!(world.ios(), [4, 8]);
    assert_eq!(world.report(0).failovers, 4);

    // It comes back, and takes its part again.
    world.change(Change::AddListener(address.into()));
    let at = world.running.addresses().iter().position(|a| *a == address);
    assert_eq!(at, Some(0), "where it was");
    let mut admin = Admin::connect(driver(), address, NQN, &world.host, Settings::default(), 0)
        .expect("connects");
    admin.set_queue_count(1).expect("count");
    let change = PathChange::Up {
        epoch: 2,
        cntlid: admin.cntlid(),
        in_capsule_max: 8192,
        ana: AnaState::Optimized,
        host: Box::new(admin.host().clone()),
    };
    world.admins.push(admin);
    world.paths.on_change(&mut world.driver, 0, change);
    world.until(|world| world.paths.is_whole());
    world.submit(4);
    assert_eq!(world.ios(), [6, 10]);
    world.see(4);
    world.end();
}

#[test]
fn a_state_that_was_not_told_yet_costs_no_command() {
    let mut world = World::new(Policy::RoundRobin, None);
    world.change(Change::SetAna {
        nqn: NQN.into(),
        listener: Some(world.running.addresses()[0]),
        group: 1,
        state: AnaState::Inaccessible,
    });
    world.submit(4);
    world.see(4);
    assert_eq!(world.ios(), [2, 4], "two were sent again");
    assert_eq!(world.report(0).state, PathState::Live(None));
    world.submit(3);
    world.see(3);
    assert_eq!(world.ios(), [2, 7], "nothing more until the state is told");
    let ana = AnaState::Inaccessible;
    let told = PathChange::Ana { ana };
    world.paths.on_change(&mut world.driver, 0, told);
    world.submit(1);
    world.see(1);
    assert_eq!(world.ios(), [2, 8]);
    assert_eq!(world.report(0).state, PathState::Live(Some(ana)));
    world.end();
}

#[test]
fn without_a_path_commands_wait_and_then_fail_at_once() {
    let mut world = World::new(Policy::RoundRobin, Some(1_000_000_000));
    world.submit(4);
    world.see(4);
    assert_eq!(world.paths.deadline(), None, "there is a path");
    world.remove(1);
    let address = world.remove(0);
    world.until(|world| world.paths.is_closed());
    world.submit(3);
    assert!(world.turn(2).is_empty(), "they wait");
    assert!(!world.paths.is_failing());
    let at = world.paths.deadline().expect("not for ever");
    world.paths.on_deadline(at - 1);
    assert!(world.ended().is_empty());
    world.paths.on_deadline(at);
    assert_eq!(world.ended(), [Status::HOST_PATHING_ERROR; 3]);
    assert!(world.paths.is_failing());
    assert_eq!(world.paths.deadline(), None);
    world.submit(1);
    assert_eq!(world.ended(), [Status::HOST_PATHING_ERROR]);
    // A path that comes back ends that.
    world.change(Change::AddListener(address.into()));
    world.up(0, 2);
    assert!(!world.paths.is_failing(), "there is a path");
    for _ in 0..2 {
        world
            .paths
            .on_change(&mut world.driver, 1, PathChange::GivenUp);
    }
    assert!(!world.paths.is_given_up());
    assert_eq!(world.report(1).state, PathState::GivenUp);
    world.end();
}

#[test]
fn a_queue_of_a_controller_that_is_gone_is_given_back_to_the_keeper() {
    let mut world = World::new(Policy::RoundRobin, None);
    // The keeper says that the controller is gone: its queue is of no use.
    let lost = PathChange::Lost { epoch: 1 };
    world.paths.on_change(&mut world.driver, 0, lost);
    assert_eq!(world.report(0).state, PathState::Down);
    let stale = PathChange::Lost { epoch: 7 };
    world.paths.on_change(&mut world.driver, 1, stale);
    assert!(matches!(world.report(1).state, PathState::Live(_)));
    world.submit(2);
    world.see(2);
    assert_eq!(world.ios(), [0, 2]);
    assert!(Arc::strong_count(&world.signals[0]) > 1);
    world.end();
}
