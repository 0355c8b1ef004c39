//! Hosts go elsewhere before maintenance.

use needs::each_driver;
use nvmf::command::AnaState;
use reactor::Choice;
use server::{Change, IscsiTargetSpec, LunSpec, Running, SubsystemSpec};
use wire::iscsi::AsyncEvent;
use wire::nvme::Status;
use wire::scsi::{asc, key};

use crate::both::{ana_state, config_of_shared_states, group_states};
use crate::common::{BLOCK, Host, NQN, stop};
use crate::live::{ANA_CHANGED, ANA_INACCESSIBLE, add_namespace, code, refuse};
use crate::scsi::{ALICE, BOB, DISKS, Fail, MORE, Nexus};

const OTHER: &str = "nqn.2026-01.io.weft:other";
const CONNECT_BUSY: u16 = 0x181;
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

fn drain(running: &Running, is_drained: bool) {
    let change = Change::SetDrained(is_drained);
    running.change(change).expect("made");
}

/// Why logins were refused, the latest first.
fn refused(running: &Running) -> Vec<(&'static str, String)> {
    let refusals = running.refusals().into_iter().rev();
    refusals.map(|one| (one.kind.0, one.reason)).collect()
}

#[each_driver]
fn drained_hosts_hear_of_it_and_have_their_paths_back_at_the_end(backend: Choice) {
    let running = server::start(config_of_shared_states(backend)).expect("starts");
    let addresses = running.addresses();
    let set = |state| Change::SetAna {
        nqn: NQN.into(),
        listener: Some(addresses[0]),
        group: 1,
        state,
    };
    running.change(set(AnaState::NonOptimized)).expect("made");
    let (mut admin, mut io) = Host::at(addresses[0]).pair();
    admin.wants_every_notice();
    admin.arm();
    let mut alice = Nexus::connect(addresses[3], ALICE, DISKS);
    assert_eq!(group_states(&mut alice), [1, 0]);
    assert_eq!(io.write(1, 0, 7), Status::SUCCESS);

    std::thread::scope(|scope| {
        // It is over when the initiator has logged out, as it is asked to.
        let drained = scope.spawn(|| drain(&running, true));
        assert_eq!(admin.event(), ANA_CHANGED);
        let asked = alice.session.next_async(PATIENCE).expect("a message");
        assert_eq!(asked.kind(), Some(AsyncEvent::LogoutRequest));
        assert_eq!(alice.settle(), [asc::ASYMMETRIC_ACCESS_STATE_CHANGED]);
        let failed = alice.read(BLOCK, 0, 1).expect_err("standby");
        assert!(
            matches!(failed, Fail::Check(key::NOT_READY, ..)),
            "{failed:?}"
        );
        assert_eq!(group_states(&mut alice), [2, 2]);
        alice.session.logout().expect("logged out");
        drained.join().expect("no panic");
    });
    assert_eq!(ana_state(&mut admin), 3);
    assert_eq!(code(io.write(1, 0, 1)), ANA_INACCESSIBLE);
    refuse(&running, set(AnaState::Optimized), "weft is drained");

    admin.arm();
    drain(&running, false);
    assert_eq!(admin.event(), ANA_CHANGED);
    assert_eq!(ana_state(&mut admin), 2, "as it was set before");
    assert_eq!(io.read(1, 0).expect("reads"), [7; BLOCK]);
    let mut alice = Nexus::connect(addresses[3], ALICE, DISKS);
    assert_eq!(group_states(&mut alice), [1, 0]);
    assert_eq!(alice.read(BLOCK, 0, 1).expect("reads"), [7; BLOCK]);
    stop(running);
}

#[each_driver]
fn drained_target_lets_no_host_in_but_for_discovery(backend: Choice) {
    let running = server::start(config_of_shared_states(backend)).expect("starts");
    let addresses = running.addresses();
    let (mut admin, cntlid) = Host::at(addresses[0]).admin();
    drain(&running, true);
    let host = Host::at(addresses[0]);
    assert_eq!(host.queue(0, 0xffff).err().map(code), Some(CONNECT_BUSY));
    let mut late = host.queue(1, cntlid).expect("of a controller there is").0;
    assert_eq!(code(late.write(1, 0, 1)), ANA_INACCESSIBLE);
    drop(Host::discovering(addresses[0]).admin());
    let at = addresses[2];
    let login = std::thread::spawn(move || drop(Nexus::connect(at, BOB, DISKS))).join();
    assert!(login.is_err(), "it is let in");
    let told = refused(&running);
    for (kind, one) in ["login refused", "Connect refused"].iter().zip(&told) {
        assert_eq!(one.0, *kind);
        assert!(one.1.contains("weft is drained"), "{one:?}");
    }

    // What comes meanwhile is drained too.
    running
        .change(Change::AddSubsystem(SubsystemSpec {
            nqn: OTHER.into(),
            serial: "2".into(),
            model: "weft".into(),
            ..SubsystemSpec::default()
        }))
        .expect("made");
    let mut more = IscsiTargetSpec::new(MORE);
    more.luns = vec![LunSpec::new(0, "ram")];
    running.change(Change::AddTarget(more)).expect("made");
    running
        .change(Change::RemoveNamespace {
            nqn: NQN.into(),
            nsid: 1,
        })
        .expect("made");
    running.change(add_namespace(1, "ram")).expect("made");
    assert_eq!(code(late.write(1, 0, 1)), ANA_INACCESSIBLE);
    let other = Host {
        subnqn: OTHER,
        ..host
    };
    assert_eq!(other.queue(0, 0xffff).err().map(code), Some(CONNECT_BUSY));

    // Once more is as good as once.
    drain(&running, true);
    drain(&running, false);
    drain(&running, false);
    assert_eq!(late.write(1, 0, 5), Status::SUCCESS);
    drop(other.admin());
    assert_eq!(ana_state(&mut admin), 1);
    for target in [DISKS, MORE] {
        let mut bob = Nexus::connect(addresses[2], BOB, target);
        assert_eq!(bob.read(BLOCK, 0, 1).expect("reads"), [5; BLOCK]);
    }
    stop(running);
}
