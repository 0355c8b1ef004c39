//! Targets on each driver.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reactor::Choice;
use store::Volume;
use target::{
    Config, IscsiTargetSpec, Limits, ListenerSpec, LunSpec, NamespaceSpec, Placement, Running,
    SubsystemSpec,
};

use crate::gate::Gate;

pub const TARGET: &str = "iqn.2026-01.io.weft:test";
pub const NQN: &str = "nqn.2026-01.io.weft:test";
/// Long enough for a loaded machine; reached only when a test fails.
pub const PATIENCE: Duration = Duration::from_secs(20);
pub const BLOCK: usize = 4096;

/// A RAM volume of `blocks` blocks.
pub fn ram(name: &str, blocks: u64) -> store::Spec {
    store::Spec {
        name: name.into(),
        kind: store::Kind::Ram,
        size_bytes: blocks * BLOCK as u64,
        block_bytes: BLOCK as u32,
        read_only: false,
        uuid: None,
        state: None,
    }
}

/// One iSCSI target: LUN 0 the volume "ram", LUN 1 the volume "other"; "ram" is
/// namespace 1 of an NVM subsystem too. The first listener is NVMe's, the second
/// and third are iSCSI's, in one portal group.
pub fn config(backend: Choice, limits: Limits, memory_max: u64) -> Config {
    let mut target = IscsiTargetSpec::new(TARGET);
    target.luns = vec![LunSpec::new(0, "ram"), LunSpec::new(1, "other")];
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    Config {
        volumes: vec![ram("ram", 4096), ram("other", 64)],
        subsystems: vec![SubsystemSpec {
            nqn: NQN.into(),
            serial: "1".into(),
            model: "weft".into(),
            namespaces: vec![NamespaceSpec {
                nsid: 1,
                volume: "ram".into(),
                ..NamespaceSpec::default()
            }],
            ..SubsystemSpec::default()
        }],
        iscsi_targets: vec![target],
        listeners: vec![
            local.into(),
            ListenerSpec::iscsi(local),
            ListenerSpec::iscsi(local),
        ],
        // Two reactors even on one CPU, so that connections are handed over.
        cpus: vec![reactor::available_cpus()[0]; 2],
        backend,
        spin_us_max: 0,
        placement: Placement::RoundRobin,
        memory_max,
        limits,
        ..Config::default()
    }
}

/// The drivers that the machine lets us have.
pub fn backends() -> Vec<Choice> {
    let mut backends = vec![Choice::Epoll];
    match reactor::probe() {
        Ok(()) => backends.push(Choice::Uring),
        Err(why) => eprintln!("SKIPPED on io_uring: {why}"),
    }
    backends
}

/// Runs a test on every driver that the machine lets us have.
pub fn on_each_driver(test: impl Fn(&mut Running)) {
    for backend in backends() {
        let config = config(backend, Limits::default(), 256 << 20);
        let mut running = target::start(config).expect("starts");
        test(&mut running);
        stop(running);
    }
}

/// The same with a gate before the volume "ram".
pub fn with_gate(test: impl Fn(&Running, &Gate)) {
    for backend in backends() {
        let config = config(backend, Limits::default(), 256 << 20);
        let gate = Gate::open_over(&config.volumes[0]);
        let other = store::open(&config.volumes[1]).expect("memory");
        let volumes: Vec<Arc<dyn Volume>> = vec![gate.clone(), other];
        let running = target::parts::start_with(config, volumes).expect("starts");
        test(&running, &gate);
        gate.open();
        stop(running);
    }
}

/// An iSCSI portal of the target.
pub fn portal(running: &Running) -> SocketAddr {
    running.addresses()[1]
}

/// Ends a target; it must end.
pub fn stop(mut running: Running) {
    running.stop();
    let report = running.wait(PATIENCE).expect("no reactor failed");
    assert!(report.is_some(), "the target did not stop");
}

/// Bytes that are different for every seed.
pub fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed)
        .collect()
}

/// Waits until something is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = std::time::Instant::now() + PATIENCE;
    while !is_so() {
        assert!(std::time::Instant::now() < give_up, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
