//! Login, discovery and the end of sessions.

use needs::each_driver;
use reactor::Choice;
use std::io::Write;
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use server::{Limits, ListenerSpec};
use wire::iscsi::opcode;
use wire::scsi::asc;

use crate::client::{Client, InitiatorPort, read_16};
use crate::common::{BLOCK, TARGET, config, portal, stop, until, with_target};

#[each_driver]
fn discovery_names_the_target_and_the_portal_that_was_reached(backend: Choice) {
    with_target(backend, |running| {
        let initiator = InitiatorPort {
            target: None,
            ..InitiatorPort::new(1)
        };
        let mut client = Client::login(portal(running), &initiator).expect("in");
        let answer = client.text("SendTargets=All\0");
        let port = portal(running).port();
        assert!(
            answer.starts_with(&format!("TargetName={TARGET}\0")),
            "{answer:?}"
        );
        assert!(
            answer.contains(&format!("TargetAddress=127.0.0.1:{port},1\0")),
            "{answer:?}"
        );
        // No SCSI there.
        client.start_read(0, &[0; 6], 0);
        let refused = client.receive().expect("an answer");
        assert_eq!(refused.opcode(), opcode::REJECT);
        assert_eq!(client.logout(0, 0), 0);
        client.expect_end();
    });
}

#[each_driver]
fn a_session_begins_with_unit_attentions_and_ends_with_a_logout(backend: Choice) {
    with_target(backend, |running| {
        let mut client = Client::login(portal(running), &InitiatorPort::new(1)).expect("in");
        assert!(
            client.answers.contains("TargetPortalGroupTag=1\0"),
            "{}",
            client.answers
        );
        for lun in [0, 1] {
            let first = client.test_unit_ready(lun);
            let power_on = asc::POWER_ON_RESET_OR_BUS_DEVICE_RESET_OCCURRED;
            assert!(first.is_attention(power_on), "{first:?}");
            assert!(client.test_unit_ready(lun).is_good());
        }
        assert_eq!(client.ping(b"are you there?"), b"are you there?");
        assert_eq!(client.ping(b""), b"");
        assert_eq!(client.logout(0, 0), 0);
        client.expect_end();
    });
}

#[each_driver]
fn logins_to_unknown_targets_and_sessions_are_refused_and_counted(backend: Choice) {
    with_target(backend, |running| {
        let initiator = InitiatorPort {
            target: Some("iqn.2026-01.io.weft:nowhere".into()),
            ..InitiatorPort::new(1)
        };
        let refused = Client::login(portal(running), &initiator).err();
        assert_eq!(refused, Some((2, 3)), "target not found");
        let unknown_session = InitiatorPort {
            tsih: 77,
            ..InitiatorPort::new(1)
        };
        let refused = Client::login(portal(running), &unknown_session).err();
        assert_eq!(refused, Some((2, 10)), "session does not exist");
        until("refusals are counted", || {
            crate::report::report(running).refusals >= 2
        });
        // SCSI before the login is none of it.
        let mut stranger = Client::open(portal(running));
        stranger.start_read(0, &read_16(0, 1), BLOCK as u32);
        stranger.expect_end();
    });
}

/// Connections that send nothing, or little at a time, are closed.
#[each_driver]
fn connection_without_a_login_in_time_is_closed(backend: Choice) {
    let limits = Limits {
        handshake_timeout_ms: 500,
        ..Limits::default()
    };
    let running = server::start(config(backend, limits, 64 << 20)).expect("starts");
    let silent = Client::open(portal(&running));
    let mut trickler = Client::open(portal(&running));
    let is_closed = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        trickler.stream.write_all(&[0x43]).is_err()
    });
    assert!(is_closed, "20 s of trickling");
    silent.expect_end();
    stop(running);
}

/// At the end of the target initiators are told.
#[each_driver]
fn a_target_that_stops_says_so(backend: Choice) {
    let config = config(backend, Limits::default(), 64 << 20);
    let running = server::start(config).expect("starts");
    let mut client = Client::login(portal(&running), &InitiatorPort::new(1)).expect("in");
    stop(running);
    let said = client.receive().expect("a message");
    assert_eq!(said.opcode(), opcode::ASYNC_MESSAGE);
    assert_eq!(said.bhs[36], 3, "the target drops all connections");
    client.expect_end();
}

/// An idle initiator gets a NOP-In; the session of one that does not answer
/// ends.
#[each_driver]
fn idle_initiator_gets_a_nop_in_and_loses_its_session_without_an_answer(backend: Choice) {
    let mut config = config(backend, Limits::default(), 64 << 20);
    config.iscsi_targets[0].target.limits.nop_in_interval_ms = 200;
    let running = server::start(config).expect("starts");
    let mut lives = Client::login(portal(&running), &InitiatorPort::new(1)).expect("in");
    let mut silent = Client::login(portal(&running), &InitiatorPort::new(2)).expect("in");
    for _ in 0..2 {
        let asked = lives.receive().expect("a question");
        assert_eq!(asked.opcode(), opcode::NOP_IN);
        lives.answer_nop(&asked);
    }
    let asked = silent.receive().expect("a question");
    assert_eq!(asked.opcode(), opcode::NOP_IN);
    silent.expect_end();
    let itt = lives.start_read(0, &[0; 6], 0);
    let ended = std::iter::from_fn(|| lives.receive()).find(|pdu| pdu.itt() == itt);
    assert!(ended.is_some(), "its session goes on");
    stop(running);
}

/// Discovery sessions, which any initiator may begin, keep no normal session
/// out.
#[each_driver]
fn idle_discovery_sessions_make_room_for_normal_sessions(backend: Choice) {
    let limits = Limits {
        connections_max: 8,
        ..Limits::default()
    };
    let running = server::start(config(backend, limits, 64 << 20)).expect("starts");
    let at = portal(&running);
    let around = InitiatorPort {
        target: None,
        ..InitiatorPort::new(1)
    };
    let idle: Vec<Client> = (0..8)
        .map(|_| Client::login(at, &around).expect("in"))
        .collect();
    let mut users: Vec<Client> = (2..8)
        .map(|n| {
            Client::login(at, &InitiatorPort::new(n))
                .expect("in")
                .calm(&[0])
        })
        .collect();
    assert!(
        users
            .iter_mut()
            .all(|user| user.test_unit_ready(0).is_good())
    );
    drop(idle);
    drop(users);
    stop(running);
}

#[each_driver(ipv6)]
fn an_initiator_comes_over_ipv6(backend: Choice) {
    let local = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let mut config = config(backend, Limits::default(), 64 << 20);
    config.listeners.push(ListenerSpec::iscsi(local));
    let running = server::start(config).expect("starts");
    let at = running.addresses()[3];
    let around = InitiatorPort {
        target: None,
        ..InitiatorPort::new(1)
    };
    let mut client = Client::login(at, &around).expect("in");
    let answer = client.text("SendTargets=All\0");
    let address = format!("TargetAddress=[::1]:{},1\0", at.port());
    assert!(answer.contains(&address), "{answer:?}");
    let mut client = Client::login(at, &InitiatorPort::new(1))
        .expect("in")
        .calm(&[0]);
    assert!(client.command(0, &read_16(0, 1), BLOCK as u32).is_good());
    drop(client);
    stop(running);
}
