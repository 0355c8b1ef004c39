//! Changes of what is served while initiators are logged in.

use needs::each_driver;
use std::net::SocketAddr;
use std::time::Duration;

use host::iscsi::{Initiator, InitiatorSettings, Params, Session, SessionError, discover};
use iscsi::{Auth, Credentials, InitiatorAcl, PortalGroup, Redirect};
use mem::{Budget, Pool};
use nvmf::command::AnaState;
use reactor::{Choice, DriverConfig, EpollDriver};
use server::{Ana, Change, Config, IscsiTargetSpec, Limits, ListenerSpec, LunSpec, Running};
use wire::iscsi::{AsyncEvent, LoginStatus, TaskFunction, TaskResponse};
use wire::scsi::{asc, cdb, key, opcode};

use crate::client::{Client, InitiatorPort, write_16};
use crate::common::{
    BLOCK, NQN, PATIENCE, TARGET, config, pattern, portal, ram, stop, until, with_gate,
    with_gate_and, with_target,
};

const ALICE: &str = "iqn.2004-01.org.example:alice";
const BOB: &str = "iqn.2004-01.org.example:bob";
const MORE: &str = "iqn.2026-01.io.weft:more";

fn driver() -> EpollDriver {
    let pool = Pool::new(Budget::new(16 << 20)).expect("memory");
    EpollDriver::new(&DriverConfig::default(), pool).expect("a driver")
}

fn initiator(name: &str) -> Initiator {
    Initiator::new(Some(name)).expect("random bytes")
}

fn try_login(to: SocketAddr, name: &str, target: &str) -> Result<Host, SessionError> {
    let settings = InitiatorSettings::new(name, target);
    let params = Params::new(settings, &initiator(name), 1).expect("random bytes");
    Ok(Host(Session::open(driver(), to, params)?))
}

/// An initiator whose unit attentions were seen.
fn login(to: SocketAddr, name: &str, target: &str) -> Host {
    let mut host = try_login(to, name, target).expect("logged in");
    for lun in host.0.report_luns().expect("LUNs") {
        host.attentions(lun);
    }
    host
}

/// As many targets as a rack of machines has disks.
#[each_driver]
fn a_thousand_targets_are_discovered(backend: Choice) {
    let mut config = config(backend, Limits::default(), 256 << 20);
    config.iscsi_targets = (0..1000)
        .map(|number| {
            let name = format!("iqn.2026-01.io.weft:rack-{number:04}.row-17.hall-3.example");
            IscsiTargetSpec::new(name)
        })
        .collect();
    let running = server::start(config).expect("starts");
    let targets = discovered(portal(&running), ALICE);
    assert_eq!(targets.len(), 1000);
    assert!(targets.iter().all(|(_, addresses)| addresses.len() == 2));
    stop(running);
}

/// The names that discovery tells, and where the targets are.
fn discovered(at: SocketAddr, name: &str) -> Vec<(String, Vec<(String, u16)>)> {
    let targets = discover(driver(), at, &initiator(name), None, None).expect("SendTargets");
    let targets = targets.into_iter();
    targets
        .map(|target| (target.name, target.addresses))
        .collect()
}

struct Host(Session<EpollDriver>);

impl Host {
    /// TEST UNIT READY, once: sense key and code of a refusal.
    fn ready(&mut self, lun: u16) -> Result<(), (u8, u16)> {
        let cdb = cdb::plain(opcode::TEST_UNIT_READY);
        let lun = [0, lun as u8, 0, 0, 0, 0, 0, 0];
        let payload = host::Payload::None;
        let outcome = self.0.command_once("TEST UNIT READY", lun, cdb, payload);
        outcome.map(|_| ()).map_err(|error| {
            let sense = error.sense().unwrap_or_else(|| panic!("{error}"));
            (sense.key, sense.code)
        })
    }

    /// The unit attentions that wait.
    fn attentions(&mut self, lun: u16) -> Vec<u16> {
        let mut codes = Vec::new();
        while let Err((key::UNIT_ATTENTION, code)) = self.ready(lun) {
            codes.push(code);
        }
        codes
    }

    /// Writes a block and reads it again.
    fn uses(&mut self, lun: u16, seed: u8) {
        let unit = self.0.unit(lun).expect("a disk");
        let bytes = pattern(seed, BLOCK);
        self.0.write(&unit, 1, &bytes).expect("written");
        let mut read = vec![0; BLOCK];
        self.0.read(&unit, 1, &mut read).expect("read");
        assert_eq!(read, bytes);
    }

    /// The target asks for a logout.
    fn is_asked_to_leave(&mut self) {
        let said = self
            .0
            .next_async(PATIENCE)
            .expect("an asynchronous message");
        assert_eq!(said.kind(), Some(AsyncEvent::LogoutRequest));
        assert!(said.parameters[2] > 0, "there is time for it");
    }

    /// The target says that the session ends, and ends it.
    fn is_dismissed(&mut self) {
        let said = self
            .0
            .next_async(PATIENCE)
            .expect("an asynchronous message");
        assert_eq!(said.kind(), Some(AsyncEvent::DropAllConnections));
        let after = self.0.next_async(PATIENCE);
        assert!(matches!(after, Err(SessionError::Closed)), "{after:?}");
    }

    /// Nothing was said, and it works.
    fn lives_on(&mut self) {
        let said = self.0.next_async(Duration::ZERO);
        assert!(
            matches!(said, Err(SessionError::TimedOut { .. })),
            "{said:?}"
        );
        self.uses(0, 9);
    }
}

#[track_caller]
fn make(running: &Running, change: Change) {
    let shown = format!("{change:?}");
    running
        .change(change)
        .unwrap_or_else(|error| panic!("{shown}: {error}"));
}

#[track_caller]
fn refuse(running: &Running, change: Change, part: &str) {
    let shown = format!("{change:?}");
    let error = running.change(change).expect_err(&shown).to_string();
    assert!(error.contains(part), "{part:?} is not in: {error}");
}

#[track_caller]
fn refused(login: Result<Host, SessionError>, status: LoginStatus) {
    let error = login.err().expect("a refusal").to_string();
    let (class, detail) = (status.class(), status.detail());
    let shown = format!("{status}");
    assert!(
        error.contains(&shown),
        "{class:02x}{detail:02x}, {shown}: {error}"
    );
}

fn add_lun(lun: LunSpec) -> Change {
    let name = TARGET.into();
    Change::AddLun { name, lun }
}

fn remove_lun(lun: u16) -> Change {
    let name = TARGET.into();
    Change::RemoveLun { name, lun }
}

fn named(name: &str, luns: Option<Vec<u16>>) -> InitiatorAcl {
    InitiatorAcl {
        name: Some(name.into()),
        luns,
        ..InitiatorAcl::default()
    }
}

#[each_driver]
fn logical_units_are_added_and_removed_while_others_serve(backend: Choice) {
    with_target(backend, |running| {
        let mut alice = login(portal(running), ALICE, TARGET);
        refuse(
            running,
            add_lun(LunSpec::new(2, "new")),
            "no volume \"new\"",
        );
        make(running, Change::AddVolume(ram("new", 64)));
        refuse(running, add_lun(LunSpec::new(1, "new")), "a LUN 1 of");
        refuse(running, add_lun(LunSpec::new(2, "ram")), "there already");
        refuse(running, add_lun(LunSpec::new(16_384, "new")), "0 to 16383");
        assert!(alice.attentions(0).is_empty(), "nothing has changed");
        make(running, add_lun(LunSpec::new(2, "new")));
        assert_eq!(alice.attentions(0), [asc::REPORTED_LUNS_DATA_HAS_CHANGED]);
        assert_eq!(alice.0.report_luns().expect("LUNs"), [0, 1, 2]);
        alice.uses(2, 1);

        let remove = || Change::RemoveVolume { name: "new".into() };
        refuse(running, remove(), &format!("LUN 2 of {TARGET}"));
        make(running, remove_lun(2));
        refuse(running, remove_lun(2), "no LUN 2 of");
        assert_eq!(alice.attentions(0), [asc::REPORTED_LUNS_DATA_HAS_CHANGED]);
        assert_eq!(alice.0.report_luns().expect("LUNs"), [0, 1]);
        let gone = (key::ILLEGAL_REQUEST, asc::LOGICAL_UNIT_NOT_SUPPORTED);
        assert_eq!(alice.ready(2), Err(gone));
        make(running, remove());
        // The number is free, for another volume.
        make(running, Change::AddVolume(ram("newer", 8)));
        make(running, add_lun(LunSpec::new(2, "newer")));
        let size = alice.0.unit(2).expect("a disk").size_bytes();
        assert_eq!(size, 8 * BLOCK as u64);
        alice.lives_on();
    });
}

/// What hangs on a volume holds up the removal of its logical unit, and nothing
/// else.
#[each_driver]
fn removal_of_a_lun_waits_for_its_commands(backend: Choice) {
    with_gate(backend, |running, gate| {
        let at = portal(running);
        let mut bob = login(at, BOB, TARGET);
        std::thread::scope(|scope| {
            let reading = scope.spawn(move || {
                let mut alice = login(at, ALICE, TARGET);
                let unit = alice.0.unit(0).expect("a disk");
                gate.shut();
                let mut block = vec![0; BLOCK];
                alice.0.read(&unit, 0, &mut block).expect("read");
            });
            until("the read has begun", || gate.hanging() == 1);
            let change = scope.spawn(|| make(running, remove_lun(0)));
            let gone = (key::ILLEGAL_REQUEST, asc::LOGICAL_UNIT_NOT_SUPPORTED);
            until("the unit is gone", || bob.ready(0) == Err(gone));
            assert_eq!(bob.attentions(1), [asc::REPORTED_LUNS_DATA_HAS_CHANGED]);
            bob.uses(1, 1);
            assert!(!change.is_finished(), "the read is not over");
            let name = "ram".into();
            let remove = Change::RemoveVolume { name };
            refuse(running, remove, "namespace 1 of");
            gate.open();
            reading.join().expect("read");
            change.join().expect("made");
        });
    });
}

#[each_driver]
fn a_resize_reaches_logical_units(backend: Choice) {
    with_target(backend, |running| {
        let mut alice = login(portal(running), ALICE, TARGET);
        let resize = |blocks: u64, allow_shrink| Change::ResizeVolume {
            name: "other".into(),
            size_bytes: blocks * BLOCK as u64,
            allow_shrink,
        };
        for (blocks, allow_shrink) in [(128, false), (32, true)] {
            make(running, resize(blocks, allow_shrink));
            assert!(alice.attentions(0).is_empty(), "another volume");
            assert_eq!(alice.attentions(1), [asc::CAPACITY_DATA_HAS_CHANGED]);
            let unit = alice.0.unit(1).expect("a disk");
            assert_eq!(unit.size_bytes(), blocks * BLOCK as u64);
            let mut block = vec![0; BLOCK];
            alice
                .0
                .read(&unit, blocks - 1, &mut block)
                .expect("the last");
            let past = alice.0.read(&unit, blocks, &mut block);
            let sense = past.err().and_then(|error| error.sense());
            let sense = sense.expect("past the end");
            assert_eq!(sense.code, asc::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
        }
    });
}

#[each_driver]
fn targets_are_added_and_removed_while_others_serve(backend: Choice) {
    with_target(backend, |running| {
        let at = portal(running);
        let mut alice = login(at, ALICE, TARGET);
        let names = |initiator| {
            let targets = discovered(at, initiator).into_iter();
            targets.map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(ALICE), [TARGET]);
        let mut more = IscsiTargetSpec::new("iqn.2026-01.io.Weft:MORE");
        more.luns = vec![LunSpec::new(7, "other")];
        more.target.acl = vec![named("iqn.2004-01.org.example:ALICE", None)];
        let add = |spec: &IscsiTargetSpec| Change::AddTarget(spec.clone());
        let broken = |edit: fn(&mut IscsiTargetSpec)| {
            let mut spec = more.clone();
            edit(&mut spec);
            Change::AddTarget(spec)
        };
        let secret = |text: &str| Credentials {
            user: "u".into(),
            secret: auth::Secret::new(text.as_bytes()),
        };
        refuse(
            running,
            broken(|s| s.target.name = "weft".into()),
            "starts with",
        );
        refuse(
            running,
            broken(|s| s.target.name = TARGET.into()),
            "there is a target",
        );
        refuse(
            running,
            broken(|s| s.luns[0].volume = "x".into()),
            "no volume \"x\"",
        );
        refuse(
            running,
            broken(|s| s.target.limits.queue_depth = 0),
            "from 1 to 1024",
        );
        refuse(
            running,
            broken(|s| s.ana = Ana::Subsystem("nqn.2026-01.a:b".into())),
            "no subsystem",
        );
        let mut weak = more.clone();
        weak.target.auth.chap = Some(secret("short"));
        refuse(running, add(&weak), "12 to 255 bytes, not 5");
        let mut twice = more.clone();
        twice.target.acl.push(named(ALICE, None));
        refuse(running, add(&twice), "named twice");
        assert_eq!(names(ALICE), [TARGET], "no half of it is left");
        make(running, add(&more));
        assert_eq!(names(ALICE), [MORE, TARGET]);
        assert_eq!(
            names(BOB),
            [TARGET],
            "discovery does not name it to other initiators"
        );
        refused(try_login(at, BOB, MORE), LoginStatus::AuthorizationFailure);
        let mut again = login(at, ALICE, MORE);
        again.uses(7, 3);

        make(running, Change::RemoveTarget { name: MORE.into() });
        again.is_dismissed();
        assert_eq!(names(ALICE), [TARGET]);
        refused(try_login(at, ALICE, MORE), LoginStatus::TargetRemoved);
        let remove = Change::RemoveTarget { name: MORE.into() };
        refuse(running, remove, &format!("no target {MORE}"));
        alice.lives_on();
        // What it served is free, and it may come again.
        make(running, add(&more));
        login(at, ALICE, MORE).uses(7, 4);
    });
}

#[each_driver]
fn change_of_the_initiators_of_a_target_ends_sessions_of_others(backend: Choice) {
    with_target(backend, |running| {
        let at = portal(running);
        let (mut alice, mut bob) = (login(at, ALICE, TARGET), login(at, BOB, TARGET));
        let set = |acl: Vec<InitiatorAcl>| Change::SetInitiators {
            name: TARGET.into(),
            acl,
        };
        make(running, set(vec![named(ALICE, Some(vec![1]))]));
        bob.is_dismissed();
        refused(
            try_login(at, BOB, TARGET),
            LoginStatus::AuthorizationFailure,
        );
        // Alice goes on, and sees less.
        assert_eq!(alice.0.report_luns().expect("LUNs"), [1]);
        let gone = (key::ILLEGAL_REQUEST, asc::LOGICAL_UNIT_NOT_SUPPORTED);
        assert_eq!(alice.ready(0), Err(gone));
        alice.uses(1, 5);
        make(running, set(vec![named(ALICE, None), named(BOB, None)]));
        assert_eq!(alice.attentions(1), [asc::REPORTED_LUNS_DATA_HAS_CHANGED]);
        alice.uses(0, 6);
        login(at, BOB, TARGET).uses(0, 7);

        // The session of Alice ends: it did not log in with CHAP.
        let mut auth = Auth::default();
        let set = |auth: &Auth| Change::SetAuth {
            name: TARGET.into(),
            auth: auth.clone(),
        };
        auth.mutual = Some(Credentials {
            user: "weft".into(),
            secret: auth::Secret::new(*b"battery staple"),
        });
        refuse(running, set(&auth), "only with CHAP");
        auth.chap = auth.mutual.clone();
        refuse(running, set(&auth), "each needs its own");
        auth.mutual = None;
        make(running, set(&auth));
        alice.is_dismissed();
        refused(
            try_login(at, ALICE, TARGET),
            LoginStatus::AuthenticationFailure,
        );
        make(running, set(&Auth::default()));
        login(at, ALICE, TARGET).uses(0, 8);
    });
}

#[each_driver]
fn discovery_needs_chap_after_a_change(backend: Choice) {
    with_target(backend, |running| {
        let at = portal(running);
        let chap = Credentials {
            user: "finder".into(),
            secret: auth::Secret::new(*b"battery staple"),
        };
        let auth = Auth {
            chap: Some(chap),
            ..Auth::default()
        };
        make(running, Change::SetDiscoveryAuth(auth));
        let found = discover(driver(), at, &initiator(ALICE), None, None);
        let error = found.expect_err("a refusal").to_string();
        let status = LoginStatus::AuthenticationFailure.to_string();
        assert!(error.contains(&status), "{error}");
        login(at, ALICE, TARGET).uses(0, 1);
    });
}

fn set_redirect(host: Option<&str>, port: u16) -> Change {
    let redirect = host.map(|host| Redirect {
        host: host.into(),
        port,
        permanent: false,
    });
    let name = TARGET.into();
    Change::SetRedirect { name, redirect }
}

#[each_driver]
fn redirected_target_asks_for_logout_and_redirects_logins(backend: Choice) {
    with_target(backend, |running| {
        let at = portal(running);
        let mut alice = login(at, ALICE, TARGET);
        let set = |host| set_redirect(host, at.port());
        refuse(running, set(Some("a b")), "no host name");
        std::thread::scope(|scope| {
            // The change is done when the initiator has logged out, as it is
            // asked to.
            let change = scope.spawn(|| make(running, set(Some("127.0.0.1"))));
            alice.is_asked_to_leave();
            alice.uses(0, 1);
            alice.0.logout().expect("logged out");
            change.join().expect("made");
        });
        let login = try_login(at, ALICE, TARGET);
        let error = login.err().expect("it goes in circles").to_string();
        assert!(error.contains("circles"), "{error}");
        make(running, set(None));
        self::login(at, ALICE, TARGET).uses(0, 2);
    });
}

/// No NOP-In is due meanwhile, with which the connection would look at the time anyway.
#[test]
fn initiator_that_does_not_log_out_when_asked_is_dropped() {
    let mut config = config(Choice::Epoll, Limits::default(), 64 << 20);
    config.iscsi_targets[0].target.limits.nop_in_interval_ms = 0;
    let running = server::start(config).expect("starts");
    let at = portal(&running);
    let mut alice = login(at, ALICE, TARGET);
    make(&running, set_redirect(Some("127.0.0.1"), at.port()));
    alice.is_asked_to_leave();
    alice.is_dismissed();
    stop(running);
}

#[each_driver]
fn portals_are_added_and_removed_while_others_serve(backend: Choice) {
    with_target(backend, |running| {
        let at = portal(running);
        let mut alice = login(at, ALICE, TARGET);
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let only = ListenerSpec {
            discovery_only: true,
            ..ListenerSpec::iscsi(any_port)
        };
        refuse(running, Change::AddListener(only), "NVMe/TCP alone");
        make(running, Change::AddListener(ListenerSpec::iscsi(any_port)));
        let new = *running.addresses().last().expect("four listeners");
        let addresses = || {
            let found = discovered(at, ALICE);
            found[0]
                .1
                .iter()
                .map(|(a, tag)| (a.clone(), *tag))
                .collect::<Vec<_>>()
        };
        assert!(
            addresses().contains(&(new.to_string(), 1)),
            "{:?}",
            addresses()
        );
        let mut bob = login(new, BOB, TARGET);
        bob.uses(0, 1);
        make(running, Change::RemoveListener { address: new });
        bob.is_dismissed();
        assert!(
            !addresses().contains(&(new.to_string(), 1)),
            "{:?}",
            addresses()
        );
        assert!(std::net::TcpStream::connect(new).is_err(), "it is closed");
        alice.lives_on();
        // Another one for NVMe is none of iSCSI's.
        make(running, Change::AddListener(any_port.into()));
        assert_eq!(addresses().len(), 2);
    });
}

/// Its address is what makes a portal the same again: its portal group, and the
/// state that it had.
#[each_driver]
fn a_portal_that_comes_back_is_where_it_was(backend: Choice) {
    with_target(backend, |running| {
        let (first, second) = (running.addresses()[1], running.addresses()[2]);
        let group = |tag, number| PortalGroup {
            tag,
            portals: vec![number],
            ..PortalGroup::default()
        };
        let mut more = IscsiTargetSpec::new(MORE);
        more.luns = vec![LunSpec::new(0, "other")];
        more.target.portal_groups = vec![group(7, 1), group(8, 2)];
        make(running, Change::AddTarget(more));
        let of_more = || {
            let found = discovered(first, ALICE);
            let found = found.into_iter().find(|(name, _)| name == MORE);
            found.expect("it is told").1
        };
        let (in_7, in_8) = ((first.to_string(), 7), (second.to_string(), 8));
        assert_eq!(of_more(), [in_7.clone(), in_8.clone()]);
        let state = Change::SetAna {
            nqn: MORE.into(),
            listener: Some(second),
            group: 1,
            state: AnaState::Inaccessible,
        };
        make(running, state);
        for _ in 0..2 {
            make(running, Change::RemoveListener { address: second });
            assert_eq!(of_more(), std::slice::from_ref(&in_7));
            make(running, Change::AddListener(ListenerSpec::iscsi(second)));
            assert_eq!(of_more(), [in_7.clone(), in_8.clone()]);
            let mut host = login(second, BOB, MORE);
            let (key, _) = host.ready(0).expect_err("as inaccessible as before");
            assert_eq!(key, key::NOT_READY);
        }
    });
}

#[each_driver]
fn states_of_paths_are_the_same_by_either_name(backend: Choice) {
    with_target(backend, |running| {
        let at = portal(running);
        // "ram" under a target that shares the subsystem's states.
        let mut more = IscsiTargetSpec::new(MORE);
        more.luns = vec![LunSpec::new(0, "other")];
        more.ana = Ana::Subsystem(NQN.into());
        make(running, Change::AddTarget(more));
        let mut own = login(at, ALICE, TARGET);
        let mut shared = login(at, ALICE, MORE);
        let set = |name: &str, listener, state| Change::SetAna {
            nqn: name.into(),
            listener,
            group: 1,
            state,
        };
        let changed = [asc::ASYMMETRIC_ACCESS_STATE_CHANGED];
        for (name, host) in [(TARGET, &mut own), (MORE, &mut shared)] {
            make(running, set(name, None, AnaState::Inaccessible));
            assert_eq!(host.attentions(0), changed, "{name}");
            let (key, code) = host.ready(0).expect_err("inaccessible");
            assert_eq!(key, key::NOT_READY);
            assert_eq!(code >> 8, 4, "LOGICAL UNIT NOT ...: {code:04x}");
            make(running, set(name, Some(at), AnaState::NonOptimized));
            assert_eq!(host.attentions(0), changed, "{name}");
            assert_eq!(host.ready(0), Ok(()));
        }
        // The own ones are no others'.
        assert!(own.attentions(0).is_empty());
        // By the subsystem's name too; one portal stands for its group.
        make(running, set(NQN, Some(at), AnaState::PersistentLoss));
        assert_eq!(shared.attentions(0), changed);
        assert!(shared.ready(0).is_err());
        assert!(own.attentions(0).is_empty());
        let mut second = login(running.addresses()[2], BOB, MORE);
        assert!(second.ready(0).is_err(), "a portal of the same group");
        make(running, set(NQN, None, AnaState::Optimized));
        assert_eq!(second.attentions(0), changed);
        second.uses(0, 3);
        let remove = Change::RemoveSubsystem { nqn: NQN.into() };
        refuse(running, remove, &format!("are those of {MORE}"));
        let nowhere = set(TARGET, Some(running.addresses()[0]), AnaState::Optimized);
        refuse(running, nowhere, "is not reached on");
        let unknown = set("iqn.2026-01.a:b", None, AnaState::Optimized);
        refuse(running, unknown, "no target iqn.2026-01.a:b");
    });
}

/// What was asked for before ends with the permission, however late its data is.
#[each_driver]
fn late_data_is_not_written_to_a_unit_that_its_initiator_lost(backend: Choice) {
    with_target(backend, |running| {
        let at = portal(running);
        let initiator = InitiatorPort::new(1);
        let mut late = Client::login(at, &initiator).expect("in").calm(&[0, 1]);
        let data = pattern(7, BLOCK);
        let asked = [0, 1].map(|lun| late.start_write(lun, &write_16(3, 1), &data, 0));
        let r2ts = [(); 2].map(|()| late.receive().expect("an R2T"));
        let acl = InitiatorAcl {
            luns: Some(vec![1]),
            ..InitiatorAcl::default()
        };
        make(
            running,
            Change::SetInitiators {
                name: TARGET.into(),
                acl: vec![acl],
            },
        );
        late.answer_r2t(&r2ts[0], &data);
        let ended = late.end_of(asked[0], &data);
        let refusal = (key::ILLEGAL_REQUEST, asc::LOGICAL_UNIT_NOT_SUPPORTED);
        assert_eq!(ended.sense, Some(refusal));
        let set = |luns| Change::SetInitiators {
            name: TARGET.into(),
            acl: vec![InitiatorAcl {
                luns,
                ..InitiatorAcl::default()
            }],
        };
        // What it still sees goes on, after the attention.
        late.answer_r2t(&r2ts[1], &data);
        let ended = late.end_of(asked[1], &data);
        assert!(ended.is_attention(asc::REPORTED_LUNS_DATA_HAS_CHANGED));
        assert!(late.command_out(1, &write_16(3, 1), &data).is_good());
        // What was asked for before the unit went and came back counts no more
        // among its tasks: an ORDERED one waits for those alone that do.
        let old = late.start_write(1, &write_16(3, 1), &data, 0);
        let r2t = late.receive().expect("an R2T");
        make(running, set(Some(vec![0])));
        make(running, set(None));
        let mut late = late.calm(&[0, 1]);
        late.answer_r2t(&r2t, &data);
        assert!(late.end_of(old, &data).is_good());
        let (bhs, ordered) = late.command_header(1, &[0; 6], (0, 0), 2);
        late.send(bhs, &[]);
        assert!(late.end_of(ordered, &[]).is_good());
    });
}

/// A reset is for what its sender sees.
#[each_driver]
fn initiator_with_some_luns_neither_resets_nor_sets_states_of_the_others(backend: Choice) {
    let allow = |config: &mut Config| {
        config.iscsi_targets[0].target.limits.target_cold_reset = true;
    };
    with_gate_and(backend, allow, |running, _| {
        let at = portal(running);
        let (few, all) = (InitiatorPort::new(1), InitiatorPort::new(2));
        let acl = vec![
            InitiatorAcl {
                name: Some(few.name.clone()),
                luns: Some(vec![1]),
                ..InitiatorAcl::default()
            },
            InitiatorAcl::default(),
        ];
        let name = TARGET.into();
        make(running, Change::SetInitiators { name, acl });
        let mut few = Client::login(at, &few).expect("in").calm(&[1]);
        let mut all = Client::login(at, &all).expect("in").calm(&[0, 1]);
        let data = pattern(7, BLOCK);
        let asked = [0, 1].map(|lun| all.start_write(lun, &write_16(3, 1), &data, 0));
        let r2ts = [(); 2].map(|()| all.receive().expect("an R2T"));
        let cold = few.function(TaskFunction::TargetColdReset, 1, !0);
        assert_eq!(cold, TaskResponse::NotSupported);
        // Nor are the states of all units' paths its to set.
        let mut cdb = [0; 12];
        (cdb[0], cdb[1], cdb[9]) = (opcode::MAINTENANCE_OUT, 0x0a, 8);
        let standby = [0, 0, 0, 0, 2, 0, 0, 1];
        let refusal = (key::ILLEGAL_REQUEST, asc::INVALID_FIELD_IN_PARAMETER_LIST);
        assert_eq!(few.command_out(1, &cdb, &standby).sense, Some(refusal));
        let warm = few.function(TaskFunction::TargetWarmReset, 1, !0);
        assert_eq!(warm, TaskResponse::Complete);
        all.answer_r2t(&r2ts[0], &data);
        assert!(all.end_of(asked[0], &data).is_good());
        let reset = asc::BUS_DEVICE_RESET_FUNCTION_OCCURRED;
        assert!(all.test_unit_ready(1).is_attention(reset));
        assert!(all.test_unit_ready(0).is_good());
    });
}
