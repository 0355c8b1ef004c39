//! Initiators that connect by RDMA (iSER): the same volumes on the same port as over TCP.

use std::net::SocketAddr;

use host::iscsi::{
    Chap, Command, ExpectedData, Initiator, InitiatorSettings, Params, QpSettings, Secret, Session,
    SessionConnection, SessionError, SessionEvent, TOKENS_PER_CONNECTION, discover,
};
use iscsi::iser::CrcPolicy;
use iscsi::{Auth, Credentials, InitiatorAcl};
use mem::{Budget, Pool};
use needs::each_driver;
use nvmf::transport::Transports;
use reactor::{Choice, Driver, DriverConfig, EpollDriver, Wait};
use server::{Limits, RdmaSpec, Running};
use wire::iscsi::{TaskFunction, TaskResponse};
use wire::scsi::cdb;

use crate::client::write_16;
use crate::common::{BLOCK, PATIENCE, TARGET, config, pattern, portal, stop, with_gate_and};
use crate::report::report;

const ALICE: &str = "iqn.2004-01.org.example:alice";
const BOTH: RdmaSpec = RdmaSpec {
    transports: Transports::Both,
    crc: CrcPolicy::Prefer,
    fpdu_bytes_max: 64 << 10,
    reads_max: 4,
};

/// Runs a test with a target whose portals take these transports.
fn with_target(backend: Choice, rdma: RdmaSpec, test: impl Fn(&Running)) {
    let mut config = config(backend, Limits::default(), 256 << 20);
    config.listeners.iter_mut().for_each(|one| one.rdma = rdma);
    let running = server::start(config).expect("starts");
    test(&running);
    stop(running);
}

fn driver() -> EpollDriver {
    let pool = Pool::new(Budget::new(32 << 20)).expect("memory");
    EpollDriver::new(&DriverConfig::default(), pool).expect("a driver")
}

fn initiator() -> Initiator {
    Initiator::new(Some(ALICE)).expect("random bytes")
}

fn by_rdma() -> InitiatorSettings {
    InitiatorSettings {
        rdma: Some(QpSettings::default()),
        ..InitiatorSettings::new(ALICE, TARGET)
    }
}

fn open(to: SocketAddr, settings: InitiatorSettings) -> Result<Session<EpollDriver>, SessionError> {
    let params = Params::new(settings, &initiator(), 1).expect("random bytes");
    Session::open(driver(), to, params)
}

#[each_driver]
fn initiator_by_rdma_has_the_units_of_initiators_by_tcp(backend: Choice) {
    with_target(backend, BOTH, |running| {
        let at = portal(running);
        let found = discover(
            driver(),
            at,
            &initiator(),
            None,
            Some(QpSettings::default()),
        );
        let found = found.expect("SendTargets by RDMA");
        assert_eq!((found.len(), found[0].name.as_str()), (1, TARGET));

        let mut session = open(at, by_rdma()).expect("logged in by RDMA");
        assert!(session.agreed().rdma_extensions && session.agreed().immediate_data);
        let unit = session.unit(0).expect("a disk");
        // A block, and more than a burst: by one Send, and by RDMA Reads and Writes.
        for (seed, lba, blocks) in [(1, 0, 1), (2, 100, 256), (3, 1000, 512)] {
            let bytes = pattern(seed, blocks * BLOCK);
            session.write(&unit, lba, &bytes).expect("written");
            let mut back = vec![0; bytes.len()];
            session.read(&unit, lba, &mut back).expect("read");
            assert!(back == bytes);
        }
        assert!(session.unit(7).is_err(), "sense data comes too");
        session.ping().expect("an answer");

        let mut by_tcp = open(at, InitiatorSettings::new(ALICE, TARGET)).expect("by TCP");
        let mut back = vec![0; BLOCK];
        let unit = by_tcp.unit(0).expect("a disk");
        by_tcp.read(&unit, 100, &mut back).expect("read");
        assert_eq!(back, pattern(2, 256 * BLOCK)[..BLOCK]);

        let listed = running.connections(|_| true);
        let by_rdma: Vec<_> = listed.list.iter().filter(|one| one.is_rdma).collect();
        assert_eq!((by_rdma.len(), listed.list.len()), (1, 2));
        assert!(by_rdma[0].header_digest && by_rdma[0].data_digest);
        assert_eq!(by_rdma[0].target.as_deref(), Some(TARGET));
        // The login, the commands, and an RDMA Read and Write of each burst.
        let moved = report(running).rdma;
        assert!(
            moved.fpdus_received > 20 && moved.fpdus_sent > 20,
            "{moved:?}"
        );
        assert_eq!(moved.reads, 0);
        session.logout().expect("logged out");
    });
}

#[each_driver]
fn portal_refuses_the_transport_that_it_is_not_for(backend: Choice) {
    with_target(backend, RdmaSpec::default(), |running| {
        let refused = open(portal(running), by_rdma()).err().expect("rejected");
        assert!(refused.to_string().contains("`rdma = true`"), "{refused}");
        let refusals = running.refusals();
        assert!(refusals[0].reason.contains("`rdma = true`"), "{refusals:?}");
    });
    let only = RdmaSpec {
        transports: Transports::Rdma,
        ..BOTH
    };
    with_target(backend, only, |running| {
        let refused = open(portal(running), InitiatorSettings::new(ALICE, TARGET)).err();
        assert!(matches!(refused, Some(SessionError::Closed)), "{refused:?}");
        let refusals = running.refusals();
        assert!(
            refusals[0].reason.contains("`rdma = \"only\"`"),
            "{refusals:?}"
        );
        let mut session = open(portal(running), by_rdma()).expect("by RDMA");
        session.test_unit_ready(0).expect("ready");
    });
}

#[each_driver]
fn chap_and_lists_of_initiators_hold_by_rdma(backend: Choice) {
    let mut config = config(backend, Limits::default(), 256 << 20);
    config.listeners.iter_mut().for_each(|one| one.rdma = BOTH);
    let secret = Secret::new(*b"what alice knows");
    let target = &mut config.iscsi_targets[0].target;
    target.acl = vec![InitiatorAcl {
        name: Some(ALICE.to_owned()),
        luns: Some(vec![1]),
        ..InitiatorAcl::default()
    }];
    target.auth = Auth {
        chap: Some(Credentials {
            user: "alice".to_owned(),
            secret: secret.clone(),
        }),
        ..Auth::default()
    };
    let running = server::start(config).expect("starts");
    let with = |chap| InitiatorSettings { chap, ..by_rdma() };
    let refused = open(portal(&running), with(None)).err().expect("no secret");
    assert!(refused.asks_for_secret(), "{refused}");
    let chap = Chap::new("alice", secret);
    let mut session = open(portal(&running), with(Some(chap))).expect("logged in");
    assert_eq!(session.report_luns().expect("LUNs"), [1]);
    drop(session);
    stop(running);
}

/// Both connections of a session live on the reactor of the first, where the other goes with
/// its stream.
#[each_driver]
fn connections_of_a_session_by_rdma_come_together(backend: Choice) {
    with_target(backend, BOTH, |running| {
        let mut driver = driver();
        let settings = InitiatorSettings {
            max_connections: 2,
            ..by_rdma()
        };
        let params = Params::new(settings, &initiator(), 1).expect("random bytes");
        let at = portal(running);
        let first = SessionConnection::open(&mut driver, at, params.clone(), 0);
        let mut all = vec![first.expect("a socket")];
        wait(&mut driver, &mut all, 0, |event| {
            matches!(event, SessionEvent::Live).then_some(())
        });
        let (session, cid) = (all[0].session().clone(), 1);
        let params = Params { cid, ..params };
        let base = TOKENS_PER_CONNECTION;
        let second = SessionConnection::open_in(&mut driver, at, params, session, base);
        all.push(second.expect("a socket"));
        wait(&mut driver, &mut all, 1, |event| {
            matches!(event, SessionEvent::Live).then_some(())
        });
        let unit_ready = cdb::plain(wire::scsi::opcode::TEST_UNIT_READY);
        for _ in 0..8 {
            for at in [1, 0] {
                let command = Command::new(0, unit_ready);
                let tag = all[at].submit(&command, ExpectedData::None, |_| Default::default());
                let tag = tag.expect("room");
                wait(&mut driver, &mut all, at, |event| match event {
                    SessionEvent::Completed(done, _) if done == tag => Some(()),
                    _ => None,
                });
            }
        }
        let listed = running.connections(|_| true);
        assert!(listed.list.len() == 2 && listed.list.iter().all(|one| one.is_rdma));
    });
}

/// Turns the driver until connection `which` tells what is wanted.
fn wait<T>(
    driver: &mut EpollDriver,
    all: &mut [SessionConnection],
    which: usize,
    mut pick: impl FnMut(SessionEvent) -> Option<T>,
) -> T {
    let deadline = driver.now() + PATIENCE.as_nanos() as u64;
    let mut out = Vec::new();
    loop {
        while let Some(event) = all[which].next_event(driver) {
            assert!(!matches!(event, SessionEvent::Down(_)), "{event:?}");
            if let Some(found) = pick(event) {
                return found;
            }
        }
        assert!(driver.now() < deadline, "nothing came");
        all.iter_mut().for_each(|one| one.flush(driver));
        driver.poll(Wait::Until(deadline), &mut out).expect("polls");
        for completion in out.drain(..) {
            let of = (completion.token() / TOKENS_PER_CONNECTION) as usize;
            all[of].on_completion(driver, completion);
        }
    }
}

/// Turns the driver until something is so.
fn turn_until(driver: &mut EpollDriver, all: &mut [SessionConnection], is_so: impl Fn() -> bool) {
    let deadline = driver.now() + PATIENCE.as_nanos() as u64;
    let mut out = Vec::new();
    while !is_so() {
        assert!(driver.now() < deadline, "it is not so");
        let soon = Wait::Until(driver.now() + 1_000_000);
        all.iter_mut().for_each(|one| one.flush(driver));
        driver.poll(soon, &mut out).expect("polls");
        for completion in out.drain(..) {
            all[0].on_completion(driver, completion);
        }
        while all[0].next_event(driver).is_some() {}
    }
}

/// A write that hangs in its volume is aborted, and its unit reset, as over TCP.
#[each_driver]
fn tasks_by_rdma_are_aborted_and_reset(backend: Choice) {
    let edit = |config: &mut server::Config| {
        config.listeners.iter_mut().for_each(|one| one.rdma = BOTH);
    };
    with_gate_and(backend, edit, |running, gate| {
        let mut driver = driver();
        let params = Params::new(by_rdma(), &initiator(), 1).expect("random bytes");
        let at = portal(running);
        let one = SessionConnection::open(&mut driver, at, params, 0).expect("a socket");
        let mut all = [one];
        wait(&mut driver, &mut all, 0, |event| {
            matches!(event, SessionEvent::Live).then_some(())
        });
        // Unit attentions are seen.
        let ready = Command::new(0, cdb::plain(wire::scsi::opcode::TEST_UNIT_READY));
        for _ in 0..4 {
            let tag = all[0].submit(&ready, ExpectedData::None, |_| Default::default());
            let tag = tag.expect("room");
            wait(&mut driver, &mut all, 0, |event| match event {
                SessionEvent::Completed(done, _) if done == tag => Some(()),
                _ => None,
            });
        }
        gate.shut();
        let functions = [TaskFunction::AbortTask, TaskFunction::LogicalUnitReset];
        for (function, hanging) in functions.into_iter().zip(1..) {
            let len = 64 * BLOCK as u32;
            let buf = driver.pool().get(len).expect("memory");
            let command = Command::new(0, write_16(0, 64));
            let tag = all[0].submit(&command, ExpectedData::Out(len), |_| {
                link::CommandMemory::owned(buf)
            });
            let tag = tag.expect("room");
            let ping = all[0].ping().expect("room");
            // The write is there before it.
            wait(&mut driver, &mut all, 0, |event| match event {
                SessionEvent::Pong(done) if done == ping => Some(()),
                _ => None,
            });
            turn_until(&mut driver, &mut all, || gate.hanging() == hanging);
            let lun = host::iscsi::lun_field(0);
            let referenced = (function == TaskFunction::AbortTask).then_some(tag);
            let managed = all[0].task_management(function, lun, referenced);
            let managed = managed.expect("room");
            let mut is_aborted = false;
            let response = wait(&mut driver, &mut all, 0, |event| match event {
                SessionEvent::Completed(done, _) if done == tag => {
                    is_aborted = true;
                    None
                }
                SessionEvent::TaskManaged(done, response) if done == managed => Some(response),
                _ => None,
            });
            assert_eq!(response, TaskResponse::Complete as u8);
            assert!(is_aborted);
        }
        gate.open();
    });
}
