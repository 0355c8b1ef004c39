//! A target that is changed while an unmodified Linux kernel uses it.

use interop::guest::{Config, Guest};
use interop::scripts::{LIVE, MACHINE, RDMA, script};
use interop::systems::{RELEASE, SIW, System};
use interop::weft::{NQN, free_address};
use needs::needs;
use nvmf::command::AnaState;
use nvmf::transport::Transports;
use server::{Change, ListenerSpec, NamespaceSpec, Running, SubsystemSpec};
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;
use store::Spec;

use crate::changes::{Step, change, follow, ram, set_ana};

const MIB: u64 = 1 << 20;

/// Namespaces of the subsystem at most, the first included.
const NAMESPACES: u32 = 256;

fn volume(name: &str, size_bytes: u64) -> Spec {
    ram(name, size_bytes, 4096)
}

fn namespace(nsid: u32) -> NamespaceSpec {
    NamespaceSpec {
        nsid,
        volume: format!("v{nsid}"),
        ..NamespaceSpec::default()
    }
}

fn listener(address: SocketAddr) -> ListenerSpec {
    let mut listener = ListenerSpec::from(address);
    listener.rdma.transports = Transports::Both;
    listener
}

/// A target with one namespace, reached by two ports.
fn serve(paths: &[SocketAddr; 2]) -> Running {
    let config = server::Config {
        volumes: vec![volume("v1", 64 * MIB)],
        subsystems: vec![SubsystemSpec {
            nqn: NQN.into(),
            serial: "INTEROP".into(),
            model: "weft".into(),
            namespaces: vec![namespace(1)],
            ..SubsystemSpec::default()
        }],
        listeners: paths.iter().map(|path| listener(*path)).collect(),
        ..server::Config::default()
    };
    server::start(config).expect("a target")
}

fn set_state(target: &Running, listener: SocketAddr, state: AnaState) {
    set_ana(target, NQN, listener, state);
}

/// First one path, then the other is inaccessible, never both.
fn fail_over(target: &Running, [a, b]: [SocketAddr; 2]) {
    for (away, here) in [(a, b), (b, a), (a, b)] {
        set_state(target, here, AnaState::Optimized);
        sleep(Duration::from_millis(200));
        set_state(target, away, AnaState::Inaccessible);
        sleep(Duration::from_millis(1500));
    }
}

fn resize(target: &Running, size_bytes: u64, allow_shrink: bool) {
    let resize = Change::ResizeVolume {
        name: "v1".into(),
        size_bytes,
        allow_shrink,
    };
    change(target, resize);
}

fn add_namespaces(target: &Running) {
    for nsid in 2..=NAMESPACES {
        change(target, Change::AddVolume(volume(&format!("v{nsid}"), MIB)));
        let add = Change::AddNamespace {
            nqn: NQN.into(),
            namespace: namespace(nsid),
        };
        change(target, add);
    }
}

fn remove_namespaces(target: &Running) {
    for nsid in 2..=NAMESPACES {
        let nqn = NQN.into();
        change(target, Change::RemoveNamespace { nqn, nsid });
        let name = format!("v{nsid}");
        change(target, Change::RemoveVolume { name });
    }
}

/// Failover by ANA and by a lost path, resizes, resets and 255 more namespaces,
/// under a verified load that must not see an error. `before` makes the host ready to connect.
fn every_change(name: &str, system: &'static System, before: &[&str]) {
    let paths @ [a, b] = [free_address(), free_address()];
    let target = serve(&paths);
    let (first, second) = (a.port().to_string(), b.port().to_string());
    let settings = [
        ("ADDR", MACHINE),
        ("PORT", &first),
        ("SECOND", &second),
        ("NQN", NQN),
        ("SIW", "siw"),
    ];
    let parts = [before, &[LIVE]].concat();
    let mut config = Config::new(name, &script(&settings, &parts));
    config.system = system;
    config.cpus = 2;
    let guest = Guest::start(&config).expect("a guest, as everything for it is there");
    let steps: [Step<'_>; 7] = [
        ("MARK failover", &|t| fail_over(t, paths)),
        ("MARK failover ends", &|t| {
            set_state(t, a, AnaState::Optimized);
            set_state(t, b, AnaState::Optimized);
        }),
        ("MARK lose", &|t| {
            change(t, Change::RemoveListener { address: a });
        }),
        ("MARK regain", &|t| {
            change(t, Change::AddListener(listener(a)));
        }),
        ("MARK resize", &|t| {
            resize(t, 128 * MIB, false);
            sleep(Duration::from_secs(1));
            resize(t, 96 * MIB, true);
        }),
        ("MARK many", &add_namespaces),
        ("MARK few", &remove_namespaces),
    ];
    follow(guest, target, &steps);
}

#[needs(guest)]
#[test]
fn a_host_notices_every_change_and_loses_nothing() {
    every_change("live", &RELEASE, &[]);
}

#[needs(guest, program("make"), program("gcc"))]
#[test]
#[ignore = "another test has one such guest: cargo xtask lab guests"]
fn a_host_by_rdma_notices_every_change_and_loses_nothing() {
    every_change("live-rdma", &SIW, &[RDMA]);
}
