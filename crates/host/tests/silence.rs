//! Clients that have had nothing to say for a long time, against a target in the same process.
#![allow(missing_docs)]

#[path = "shared/ends.rs"]
mod ends;
#[path = "shared/held.rs"]
mod held;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use ends::{driver, stop};
use held::Held;
use host::iscsi::{Initiator, InitiatorSettings, Session};
use host::{Admin, HostIdentity, Settings, nfs};
use server::nfs::{ExportSpec, Exported, FileSystemKind, FileSystemSpec, Rule};
use server::{Config, IscsiTargetSpec, ListenerSpec, LunSpec, Running, SubsystemSpec};

const NQN: &str = "nqn.2026-01.io.weft:silence";
const TARGET: &str = "iqn.2026-01.io.weft:silence";
const ALICE: &str = "iqn.2026-01.org.example:alice";

/// Something of each protocol, at an address each.
fn serve() -> Running {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut target = IscsiTargetSpec::new(TARGET);
    target.luns = vec![LunSpec::new(0, "a")];
    let config = Config {
        volumes: vec![store::Spec::new("a", store::Kind::RAM, 1 << 20, 4096)],
        subsystems: vec![SubsystemSpec {
            nqn: NQN.into(),
            serial: "S1".into(),
            model: "model".into(),
            ..SubsystemSpec::default()
        }],
        iscsi_targets: vec![target],
        file_systems: vec![FileSystemSpec {
            name: "mem".into(),
            kind: FileSystemKind::Mem {
                size_bytes: 1 << 20,
            },
        }],
        exports: vec![ExportSpec {
            path: "/mem".into(),
            what: Exported::FileSystem("mem".into()),
            rules: vec![Rule::default()],
        }],
        listeners: vec![
            address.into(),
            ListenerSpec::iscsi(address),
            ListenerSpec::nfs(address),
        ],
        cpus: vec![reactor::available_cpus()[0]],
        spin_us_max: 0,
        memory_max: 64 << 20,
        ..Config::default()
    };
    server::start(config).expect("the target starts")
}

/// An hour goes by in which a driver makes no turn.
fn hour(ahead: &AtomicU64) {
    ahead.fetch_add(3_600_000_000_000, Ordering::Relaxed);
}

#[test]
fn nvme_command_after_a_long_silence_has_its_time_for_an_answer() {
    let running = serve();
    let (driver, host) = (
        Held::new(driver()),
        HostIdentity::new(None).expect("random bytes"),
    );
    let ahead = driver.ahead.clone();
    let to = running.addresses()[0];
    let admin = Admin::connect(driver, to, NQN, &host, Settings::default(), 0);
    let mut admin = admin.expect("connects");
    hour(&ahead);
    admin.keep_alive().expect("it is answered");
    hour(&ahead);
    admin.shutdown().expect("in order");
    stop(running);
}

#[test]
fn scsi_command_after_a_long_silence_has_its_time_for_an_answer() {
    let running = serve();
    let driver = Held::new(driver());
    let ahead = driver.ahead.clone();
    let initiator = Initiator::new(Some(ALICE)).expect("random bytes");
    let settings = InitiatorSettings::new(ALICE, TARGET);
    let params = host::iscsi::Params::new(settings, &initiator, 1).expect("random bytes");
    let session = Session::open(driver, running.addresses()[1], params);
    let mut session = session.expect("logged in");
    hour(&ahead);
    assert_eq!(session.report_luns().expect("it is answered"), [0]);
    hour(&ahead);
    session.logout().expect("in order");
    stop(running);
}

#[test]
fn call_of_a_client_of_files_after_a_long_silence_has_its_time_for_an_answer() {
    let running = serve();
    let driver = Held::new(driver());
    let ahead = driver.ahead.clone();
    let params = nfs::Params::new().expect("random bytes");
    let client = nfs::Client::connect(driver, running.addresses()[2], params);
    let mut client = client.expect("a session");
    hour(&ahead);
    client.lookup(["mem"]).expect("it is answered");
    stop(running);
}
