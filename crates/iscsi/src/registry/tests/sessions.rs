use wire::iscsi::LoginStatus as Status;

use super::*;
use crate::config::SessionLimits;

fn names() -> String {
    format!("InitiatorName={INITIATOR}|TargetName={TARGET}")
}

#[test]
fn the_same_initiator_port_takes_its_own_place() {
    let mut registry = registry(vec![target()]);
    let (first, _) = Initiator::new(5).log_in(&mut registry, "MaxConnections=2");
    let (also, _) = Initiator::new(6)
        .with(first.tsih, 1)
        .log_in(&mut registry, "");
    assert_eq!(also.session, first.session);
    let (second, change) = Initiator::new(7).log_in(&mut registry, "");
    assert_eq!(change.closing, [5, 6]);
    assert!(second.leading && second.session != first.session && second.tsih != first.tsih);
    // The old one is found no more, even while its connections end.
    assert!(
        registry
            .session(first.session)
            .expect("still there")
            .has_ended
    );
    let outcome =
        Initiator::new(8)
            .with(first.tsih, 2)
            .send(&mut registry, TO_FULL_FEATURE, &names());
    assert_eq!(refused(&outcome), Status::NoSession);
    assert_eq!(registry.closed(5), None);
    assert_eq!(registry.closed(6), Some(first.session));
    assert_eq!(registry.closed(6), None);
    assert_eq!(
        registry
            .sessions()
            .map(|session| session.id)
            .collect::<Vec<_>>(),
        [second.session]
    );
    let (third, change) = Initiator::new(9).log_in(&mut registry, "");
    assert_eq!(change.closing, [7], "the second is still the nexus's");
    assert_ne!(third.session, second.session);
}

#[test]
fn other_ports_names_targets_and_portal_groups_are_other_sessions() {
    let other = Target {
        name: "iqn.2026-01.io.weft:other".to_owned(),
        ..target()
    };
    let mut registry = registry(vec![target(), other]);
    let mut sessions = Vec::new();
    let mut log_in = |connection, isid, listener, pairs: &str| {
        let mut initiator = Initiator::new(connection).on(listener);
        initiator.request.isid = isid;
        let (joined, change) = finished(initiator.send(&mut registry, TO_FULL_FEATURE, pairs));
        assert_eq!(change, SessionChange::default());
        assert!(!sessions.contains(&joined.session));
        sessions.push(joined.session);
        joined.portal_group_tag
    };
    assert_eq!(log_in(1, ISID, 1, &names()), 1);
    assert_eq!(log_in(2, [0x80, 1, 2, 3, 0, 2], 1, &names()), 1);
    assert_eq!(log_in(3, ISID, 3, &names()), 2);
    log_in(
        4,
        ISID,
        1,
        &names().replace("example:host", "example:other"),
    );
    log_in(5, ISID, 1, &names().replace("weft:disks", "weft:other"));
    // Discovery sessions are none of SCSI's, and any number of them.
    let discovery = format!("InitiatorName={INITIATOR}|SessionType=Discovery");
    log_in(6, ISID, 1, &discovery);
    log_in(7, ISID, 1, &discovery);
    let tsihs: Vec<u16> = registry.sessions().map(|session| session.tsih).collect();
    assert_eq!(tsihs, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(registry.connections_of(TARGET), [1, 2, 3, 4]);
}

#[test]
fn further_connections_join_within_the_limit() {
    let limits = SessionLimits {
        connections_max: 2,
        ..SessionLimits::default()
    };
    let mut registry = registry(vec![Target { limits, ..target() }]);
    let (first, _) =
        Initiator::new(5).log_in(&mut registry, "MaxConnections=4|MaxBurstLength=4096");
    let (second, change) = Initiator::new(6)
        .with(first.tsih, 1)
        .on(2)
        .log_in(&mut registry, "HeaderDigest=CRC32C");
    assert_eq!(change, SessionChange::default());
    assert_eq!((second.leading, second.lead_connection), (false, Some(5)));
    assert_eq!(
        (second.session, second.tsih, second.cid),
        (first.session, first.tsih, 1)
    );
    assert_eq!(
        second.negotiated.max_burst_length, 4096,
        "as the leading one agreed"
    );
    assert!(second.negotiated.header_digest && !first.negotiated.header_digest);
    let third = || Initiator::new(7).with(first.tsih, 2);
    let outcome = third().send(&mut registry, TO_FULL_FEATURE, &names());
    assert_eq!(refused(&outcome), Status::TooManyConnections);
    let outcome = third().on(3).send(&mut registry, TO_FULL_FEATURE, &names());
    assert_eq!(refused(&outcome), Status::CannotIncludeInSession);
    let others = names().replace("example:host", "example:other");
    let outcome = third().send(&mut registry, TO_FULL_FEATURE, &others);
    assert_eq!(refused(&outcome), Status::NoSession);
    let mut initiator = third();
    initiator.request.isid = [0; 6];
    let outcome = initiator.send(&mut registry, TO_FULL_FEATURE, &names());
    assert_eq!(refused(&outcome), Status::NoSession);
    // The leading connection ends; the session lives on in the other.
    assert_eq!(registry.closed(5), None);
    let (third, _) = third().log_in(&mut registry, "");
    assert_eq!(third.lead_connection, Some(6));
    let session = registry.session(first.session).expect("alive");
    assert_eq!(
        session.connections.keys().copied().collect::<Vec<_>>(),
        [1, 2]
    );
}

#[test]
fn a_connection_takes_the_place_of_one_that_was_lost() {
    let mut registry = registry(vec![target()]);
    let (first, _) = Initiator::new(5).log_in(&mut registry, "MaxConnections=2");
    // Of the only one the session is lost too.
    let mut alone = Initiator::new(6).with(first.tsih, 0);
    let outcome = alone.send(&mut registry, TO_FULL_FEATURE, &names());
    assert_eq!(refused(&outcome), Status::NoSession);
    let (_, change) = Initiator::new(7)
        .with(first.tsih, 1)
        .log_in(&mut registry, "");
    assert_eq!(change, SessionChange::default());
    let (again, change) = Initiator::new(8)
        .with(first.tsih, 0)
        .log_in(&mut registry, "");
    assert_eq!(change.closing, [5]);
    assert_eq!(again.session, first.session);
    assert_eq!((again.leading, again.lead_connection), (false, Some(7)));
    assert_eq!(registry.closed(5), None, "another is in its place");
    let (_, change) = Initiator::new(9)
        .with(first.tsih, 0)
        .log_in(&mut registry, "");
    assert_eq!(change.closing, [8]);
    assert_eq!(registry.closed(7), None);
    assert_eq!(registry.closed(9), Some(first.session));
    assert_eq!(registry.sessions().count(), 0);
    assert_eq!(registry.closed(8), None, "its session is gone before it");
}

#[test]
fn the_session_may_go_while_another_connection_logs_in() {
    let mut registry = registry(vec![target()]);
    let (first, _) = Initiator::new(5).log_in(&mut registry, "MaxConnections=2");
    let mut second = Initiator::new(6).with(first.tsih, 1);
    second.send(&mut registry, OPERATIONAL, &names());
    registry.closed(5);
    let outcome = second.send(&mut registry, TO_FULL_FEATURE, "");
    assert_eq!(refused(&outcome), Status::NoSession);
    assert_eq!(registry.sessions().count(), 0);
    assert_eq!(registry.closed(6), None);
}

#[test]
fn handles_are_not_given_out_twice() {
    let mut registry = registry(vec![target()]);
    registry.tsih_next = u16::MAX;
    let mut tsihs = Vec::new();
    for connection in 1..=3 {
        let mut initiator = Initiator::new(connection);
        initiator.request.isid[5] = connection as u8;
        let (joined, _) = initiator.log_in(&mut registry, "");
        tsihs.push(joined.tsih);
    }
    assert_eq!(tsihs, [u16::MAX, 1, 2]);
    registry.tsih_next = u16::MAX;
    let (joined, _) = Initiator::new(4).log_in(&mut registry, "");
    assert_eq!(joined.tsih, 3);
}

#[test]
fn a_connection_that_moves_is_found_by_its_new_name() {
    let mut registry = registry(vec![target()]);
    let (first, _) = Initiator::new(5).log_in(&mut registry, "MaxConnections=2");
    assert!(registry.moved(5, 50));
    assert!(!registry.moved(99, 100));
    assert_eq!(registry.connections_of(TARGET), [50]);
    assert_eq!(registry.closed(5), None);
    let (second, _) = Initiator::new(6)
        .with(first.tsih, 1)
        .log_in(&mut registry, "");
    assert_eq!(second.lead_connection, Some(50));
    assert_eq!(registry.closed(50), None);
    assert_eq!(registry.closed(6), Some(first.session));
}

#[test]
fn logging_out_closes_what_it_says() {
    let begin = || {
        let mut registry = registry(vec![target()]);
        let (first, _) = Initiator::new(5).log_in(&mut registry, "MaxConnections=3");
        let (_, change) = Initiator::new(6)
            .with(first.tsih, 1)
            .log_in(&mut registry, "");
        assert_eq!(change, SessionChange::default());
        (registry, first.session)
    };
    let outcome = |response, closing: &[u64], closes_own| LogoutOutcome {
        response,
        closing: closing.to_vec(),
        closes_own,
    };
    use LogoutResponseCode::{CidNotFound, RecoveryNotSupported, Success};
    let table = [
        (
            LogoutReason::CloseSession,
            7,
            outcome(Success, &[6], true),
            true,
        ),
        (
            LogoutReason::CloseConnection,
            0,
            outcome(Success, &[], true),
            false,
        ),
        (
            LogoutReason::CloseConnection,
            1,
            outcome(Success, &[6], false),
            false,
        ),
        (
            LogoutReason::CloseConnection,
            7,
            outcome(CidNotFound, &[], false),
            false,
        ),
        (
            LogoutReason::RemoveForRecovery,
            0,
            outcome(RecoveryNotSupported, &[], false),
            false,
        ),
    ];
    for (reason, cid, expected, ends) in table {
        let (mut registry, session) = begin();
        assert_eq!(
            registry.logout(session, 5, reason, cid),
            expected,
            "{reason} {cid}"
        );
        let info = registry
            .session(session)
            .expect("until its connections end");
        assert_eq!(info.has_ended, ends, "{reason} {cid}");
    }
    // The last connection of a session is the session.
    let (mut registry, session) = begin();
    registry.closed(6);
    let last = registry.logout(session, 5, LogoutReason::CloseConnection, 0);
    assert_eq!(last, outcome(Success, &[], true));
    assert!(registry.session(session).expect("there").has_ended);
}

#[test]
fn a_connection_with_other_luns_or_other_proof_does_not_join_a_session() {
    let at = |network: &str| InitiatorAcl {
        networks: vec![network.parse().expect("a network")],
        ..InitiatorAcl::default()
    };
    let trusted = InitiatorAcl {
        name: Some(INITIATOR.to_owned()),
        ..at("198.51.100.0/24")
    };
    let few = InitiatorAcl {
        luns: Some(vec![1]),
        ..at("203.0.113.0/24")
    };
    let proving = InitiatorAcl {
        auth: Some(super::chap::auth()),
        ..at("192.0.2.0/24")
    };
    let acl = vec![trusted, few, proving];
    let limits = SessionLimits {
        connections_max: 4,
        ..SessionLimits::default()
    };
    let mut registry = registry(vec![Target {
        acl,
        limits,
        ..target()
    }]);
    let (first, _) = Initiator::new(5).log_in(&mut registry, "MaxConnections=4");
    for (connection, peer) in [(6, "203.0.113.9:1"), (7, "192.0.2.9:1")] {
        let mut other = Initiator::new(connection).with(first.tsih, 1);
        other.via.peer = peer.parse().expect("an address");
        let pairs = format!("{}|AuthMethod=CHAP,None", names());
        let outcome = other.send(&mut registry, TO_OPERATIONAL, &pairs);
        assert_eq!(refused(&outcome), Status::CannotIncludeInSession, "{peer}");
    }
    let mut own = Initiator::new(8).with(first.tsih, 1);
    own.via.peer = "198.51.100.8:1".parse().expect("an address");
    let (joined, _) = own.log_in(&mut registry, "");
    assert_eq!(joined.session, first.session);
}

#[test]
fn a_session_waits_for_all_that_had_its_place_before() {
    let mut registry = registry(vec![target()]);
    Initiator::new(5)
        .log_in(&mut registry, "")
        .1
        .closing
        .clear();
    let (_, change) = Initiator::new(6).log_in(&mut registry, "");
    assert_eq!(change.closing, [5]);
    // The first is not gone yet.
    let (third, change) = Initiator::new(7).log_in(&mut registry, "");
    assert_eq!(change.closing, [5, 6]);
    registry.closed(5);
    registry.closed(6);
    // Nor is one that has logged out.
    let outcome = registry.logout(third.session, 7, LogoutReason::CloseSession, 0);
    assert!(outcome.closes_own);
    let (_, change) = Initiator::new(8).log_in(&mut registry, "");
    assert_eq!(change.closing, [7]);
}
