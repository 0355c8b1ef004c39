//! Targets of iSCSI.

use std::net::SocketAddr;
use std::sync::Arc;

use reactor::Choice;
use server::{Config, IscsiTargetSpec, Limits, ListenerSpec, LunSpec, Placement, Running};
use store::Volume;

pub use crate::content::{pattern, until};
pub use crate::disks::{BLOCK, NQN, ram};
pub use crate::running::{PATIENCE, stop};

use crate::disks::subsystem;
use crate::gate::Gate;

pub const TARGET: &str = "iqn.2026-01.io.weft:test";

/// One iSCSI target: LUN 0 the volume "ram", LUN 1 the volume "other"; "ram" is
/// namespace 1 of an NVM subsystem too. The first listener is NVMe's, the second
/// and third are iSCSI's, in one portal group.
pub fn config(backend: Choice, limits: Limits, memory_max: u64) -> Config {
    let mut target = IscsiTargetSpec::new(TARGET);
    target.luns = vec![LunSpec::new(0, "ram"), LunSpec::new(1, "other")];
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    Config {
        volumes: vec![ram("ram", 4096), ram("other", 64)],
        subsystems: vec![subsystem()],
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

/// Runs a test with a target.
pub fn with_target(backend: Choice, test: impl Fn(&mut Running)) {
    let config = config(backend, Limits::default(), 256 << 20);
    let mut running = server::start(config).expect("starts");
    test(&mut running);
    stop(running);
}

/// The same with a gate before the volume "ram".
pub fn with_gate(backend: Choice, test: impl Fn(&Running, &Gate)) {
    with_gate_and(backend, |_| {}, test);
}

/// The same of a configuration that is changed before.
pub fn with_gate_and(backend: Choice, edit: impl Fn(&mut Config), test: impl Fn(&Running, &Gate)) {
    let mut config = config(backend, Limits::default(), 256 << 20);
    edit(&mut config);
    let gate = Gate::open_over(&config.volumes[0]);
    let other = store::open(&config.volumes[1]).expect("memory");
    let volumes: Vec<Arc<dyn Volume>> = vec![gate.clone(), other];
    let running = server::parts::start_with(config, volumes).expect("starts");
    test(&running, &gate);
    gate.open();
    stop(running);
}

/// An iSCSI portal of the target.
pub fn portal(running: &Running) -> SocketAddr {
    running.addresses()[1]
}
