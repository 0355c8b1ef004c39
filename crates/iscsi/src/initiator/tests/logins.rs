//! Logging in.

use std::net::SocketAddr;
use std::sync::Arc;

use auth::{Algorithm, Secret};
use wire::iscsi::LoginStatus;

use super::*;
use crate::{
    AfterLogin, Auth, Credentials, LoginState, LoginStep, Portal, PortalGroup, Registry,
    RegistryConfig, Target, Via,
};

#[test]
fn a_login_without_chap_takes_one_request() {
    let mut peer = Peer::new(settings());
    let [request] = &peer.sent()[..] else {
        panic!("one request");
    };
    let login: &LoginRequest = request.bhs.cast();
    assert!(request.bhs.is_immediate());
    assert_eq!(login.flags, flags::TRANSIT | 1 << flags::CSG_SHIFT | 3);
    assert_eq!((login.isid, login.tsih.get()), (ISID, 0));
    assert_eq!(login.cmd_sn.get(), CMD_SN);
    let text = request.text();
    for pair in [
        ("InitiatorName", INITIATOR),
        ("TargetName", TARGET),
        ("SessionType", "Normal"),
        ("HeaderDigest", "None"),
        ("MaxRecvDataSegmentLength", "262144"),
        ("InitialR2T", "No"),
        ("MaxOutstandingR2T", "4"),
    ] {
        assert!(text.contains(&pair), "{pair:?} in {text:?}");
    }
    assert_eq!(
        peer.end.machine.room(),
        0,
        "nothing before the login is over"
    );
    let request = request.clone();
    assert_eq!(
        peer.answer_login(&request, ANSWER, 32),
        [InitiatorOp::Ready]
    );
    let agreed = peer.end.machine.agreed();
    assert_eq!(agreed.max_send_data_segment_length, 8192);
    assert_eq!(
        (agreed.first_burst_length, agreed.max_burst_length),
        (16_384, 65_536)
    );
    assert_eq!(agreed.max_outstanding_r2t, 2);
    assert!(!agreed.initial_r2t && agreed.immediate_data);
    assert_eq!(peer.end.machine.session().tsih(), TSIH);
    assert_eq!(peer.end.machine.session().window(), 32);
    assert_eq!(peer.end.machine.room(), 128);
}

#[test]
fn key_that_a_target_leaves_out_has_its_default_and_no_more_than_was_offered() {
    let offered = InitiatorSettings {
        max_burst: 4096,
        first_burst: 2048,
        immediate_data: false,
        ..settings()
    };
    let peer = Peer::logged_in(offered, "TargetPortalGroupTag=1 ", 1);
    let agreed = peer.end.machine.agreed();
    assert_eq!(
        (agreed.first_burst_length, agreed.max_burst_length),
        (2048, 4096)
    );
    assert!(agreed.initial_r2t && !agreed.immediate_data);
    assert_eq!(agreed.max_outstanding_r2t, 1);
}

#[test]
fn answers_outside_of_the_offer_end_the_login() {
    let closed = InitiatorSettings {
        initial_r2t: true,
        immediate_data: false,
        data_digest: Digest::Required,
        ..settings()
    };
    for (key, value) in [
        ("HeaderDigest", "CRC32C"),
        ("HeaderDigest", "MD5"),
        ("DataDigest", "None"),
        ("MaxRecvDataSegmentLength", "511"),
        ("MaxRecvDataSegmentLength", "16777216"),
        ("MaxBurstLength", "1048577"),
        ("MaxBurstLength", "many"),
        ("FirstBurstLength", "262145"),
        ("MaxOutstandingR2T", "0"),
        ("MaxOutstandingR2T", "5"),
        ("MaxConnections", "2"),
        ("ErrorRecoveryLevel", "1"),
        ("InitialR2T", "No"),
        ("InitialR2T", "Perhaps"),
        ("ImmediateData", "Yes"),
    ] {
        let fine = [
            ("DataDigest", "CRC32C"),
            ("InitialR2T", "Yes"),
            ("ImmediateData", "No"),
        ];
        let others = fine.into_iter().filter(|(k, _)| *k != key);
        let changes: Vec<_> = others.chain([(key, value)]).collect();
        let mut peer = Peer::new(closed.clone());
        let request = peer.sent().pop().expect("a request");
        let ops = peer.answer_login(&request, &answer_with(&changes), 1);
        assert_eq!(
            ops,
            [InitiatorOp::Fatal(InitiatorFatalError::Negotiation { key })],
            "{key}={value}"
        );
        assert!(peer.end.machine.is_finished());
    }
}

#[test]
fn unknown_keys_are_answered_with_not_understood() {
    let mut peer = Peer::new(settings());
    let request = peer.sent().pop().expect("a request");
    let login: &LoginRequest = request.bhs.cast();
    let mut response = LoginResponse::new();
    response.flags = login.flags & !(flags::TRANSIT | flags::NSG_MASK);
    response.isid = ISID;
    response.exp_cmd_sn = CMD_SN.into();
    response.max_cmd_sn = CMD_SN.into();
    assert_eq!(peer.answer(response.as_bytes(), b"X-io.weft.test=1\0"), []);
    let again = peer.sent().pop().expect("another request");
    assert_eq!(again.text(), [("X-io.weft.test", "NotUnderstood")]);
    assert_eq!(peer.answer_login(&again, ANSWER, 1), [InitiatorOp::Ready]);

    // A login does not end before they are.
    let mut peer = Peer::new(settings());
    let request = peer.sent().pop().expect("a request");
    let open = format!("{ANSWER} X-io.weft.test=1");
    let ops = peer.answer_login(&request, &open, 1);
    let is_fatal = matches!(
        ops[..],
        [InitiatorOp::Fatal(InitiatorFatalError::Protocol { .. })]
    );
    assert!(is_fatal, "{ops:?}");
}

#[test]
fn text_in_several_responses_is_one_text() {
    let mut peer = Peer::new(settings());
    let request = peer.sent().pop().expect("a request");
    let login: &LoginRequest = request.bhs.cast();
    let mut response = LoginResponse::new();
    response.flags = login.flags & !(flags::TRANSIT | flags::NSG_MASK) | flags::CONTINUE;
    response.isid = ISID;
    response.exp_cmd_sn = CMD_SN.into();
    response.max_cmd_sn = CMD_SN.into();
    assert_eq!(peer.answer(response.as_bytes(), b"MaxBurstLength=1"), []);
    let go_on = peer.sent().pop().expect("an empty request");
    assert!(go_on.data.is_empty());
    assert_eq!(go_on.bhs.flags & flags::TRANSIT, 0);
    let login: &LoginRequest = go_on.bhs.cast();
    assert_eq!(login.exp_stat_sn.get(), peer.stat_sn);
    response.flags &= !flags::CONTINUE;
    assert_eq!(peer.answer(response.as_bytes(), b"0000\0"), []);
    let last = peer.sent().pop().expect("the end of the stage");
    assert_eq!(peer.answer_login(&last, "", 1), [InitiatorOp::Ready]);
    assert_eq!(peer.end.machine.agreed().max_burst_length, 10_000);
}

#[test]
fn a_login_that_comes_to_no_end_is_given_up() {
    let mut peer = Peer::new(settings());
    assert_eq!(peer.sent().len(), 1);
    let mut response = LoginResponse::new();
    response.flags = 1 << flags::CSG_SHIFT;
    response.isid = ISID;
    for _ in 0..100 {
        if let [op] = &peer.answer(response.as_bytes(), b"")[..] {
            assert!(
                matches!(op, InitiatorOp::Fatal(InitiatorFatalError::Protocol { .. })),
                "{op:?}"
            );
            return;
        }
        assert_eq!(peer.sent().len(), 1);
    }
    panic!("it goes on and on");
}

#[test]
fn a_refused_or_redirected_login_says_why_and_where() {
    for (status, text) in [
        (LoginStatus::NotFound, ""),
        (
            LoginStatus::MovedTemporarily,
            "TargetAddress=10.0.0.1:3261,2\0",
        ),
    ] {
        let mut peer = Peer::new(settings());
        let mut response = LoginResponse::new();
        response.isid = ISID;
        (response.status_class, response.status_detail) = (status.class(), status.detail());
        let ops = peer.answer(response.as_bytes(), text.as_bytes());
        let refused = InitiatorFatalError::LoginRefused {
            class: status.class(),
            detail: status.detail(),
        };
        assert_eq!(ops, [InitiatorOp::Fatal(refused)]);
        let address = (!text.is_empty()).then_some("10.0.0.1:3261,2");
        assert_eq!(peer.end.machine.target_address(), address);
    }
}

#[test]
fn a_second_connection_joins_the_session() {
    let mut first = in_full_feature();
    let session = first.end.machine.session().clone();
    let mut second = Peer::of(settings(), session, 7);
    let request = second.sent().pop().expect("a request");
    let login: &LoginRequest = request.bhs.cast();
    assert_eq!((login.tsih.get(), login.cid.get()), (TSIH, 7));
    let of_session = |(key, _): &(&str, &str)| ["MaxConnections", "InitialR2T"].contains(key);
    assert!(
        !request.text().iter().any(of_session),
        "leading connections alone"
    );
    let answer = "HeaderDigest=None DataDigest=None MaxRecvDataSegmentLength=512 ";
    assert_eq!(
        second.answer_login(&request, answer, 32),
        [InitiatorOp::Ready]
    );
    let agreed = second.end.machine.agreed();
    assert_eq!(agreed.max_send_data_segment_length, 512, "its own");
    assert_eq!(agreed.max_outstanding_r2t, 2, "the session's");
    // One numbering of commands, tags that the session has once.
    first.plain();
    second.plain();
    first.plain();
    let (a, b) = (first.sent(), second.sent());
    let numbers = [&a[0], &b[0], &a[1]].map(|pdu| pdu.command().cmd_sn.get());
    assert_eq!(numbers, [CMD_SN, CMD_SN + 1, CMD_SN.wrapping_add(2)]);
    assert_ne!(a[0].bhs.itt.get(), b[0].bhs.itt.get());
}

/// The target's side of a login, as the registry has it.
fn log_in(peer: &mut Peer, auth: Auth) -> Vec<InitiatorOp> {
    let local: SocketAddr = "127.0.0.1:3260".parse().expect("an address");
    let target = Target {
        auth,
        portal_groups: vec![PortalGroup {
            tag: 1,
            portals: vec![0],
            ..PortalGroup::default()
        }],
        ..Target::new(TARGET)
    };
    let mut registry = Registry::new(RegistryConfig {
        targets: vec![Arc::new(target)],
        portals: vec![Portal {
            number: 0,
            address: local,
            advertise: None,
        }],
        ..RegistryConfig::default()
    });
    let mut state = LoginState::new();
    let via = Via {
        connection: 1,
        listener: 0,
        local,
        peer: "127.0.0.1:40000".parse().expect("an address"),
    };
    for round in 0..8u8 {
        let request = peer.sent().pop().expect("a request");
        let step = LoginStep {
            request: *request.bhs.cast(),
            text: request.data.clone(),
            carrier: crate::Carrier::Tcp,
        };
        let mut random = |bytes: &mut [u8]| bytes.fill(round + 1);
        let outcome = registry.login(&mut state, &step, &via, &mut random);
        let mut response = outcome.answer.response;
        response.exp_cmd_sn = CMD_SN.into();
        response.max_cmd_sn = CMD_SN.into();
        let ops = peer.answer(response.as_bytes(), &outcome.answer.text);
        if !matches!(outcome.then, AfterLogin::Continue) || !ops.is_empty() {
            return ops;
        }
    }
    panic!("the login comes to no end");
}

fn credentials(user: &str, secret: &str) -> Option<Credentials> {
    Some(Credentials {
        user: user.into(),
        secret: Secret::new(secret.as_bytes()),
    })
}

fn chap(secret: &str) -> Chap {
    Chap::new("alice", Secret::new(secret.as_bytes()))
}

fn with_chap(chap: Chap) -> InitiatorSettings {
    InitiatorSettings {
        chap: Some(chap),
        ..settings()
    }
}

#[test]
fn chap_proves_the_initiator_with_every_algorithm() {
    for algorithm in Algorithm::ALL {
        let auth = || Auth {
            chap: credentials("alice", "correct horse battery"),
            mutual: None,
            algorithms: vec![algorithm],
        };
        let of = |secret| Chap {
            algorithms: Algorithm::ALL.to_vec(),
            ..chap(secret)
        };
        let mut peer = Peer::new(with_chap(of("correct horse battery")));
        assert_eq!(
            log_in(&mut peer, auth()),
            [InitiatorOp::Ready],
            "{algorithm}"
        );
        let mut peer = Peer::new(with_chap(of("wrong horse battery")));
        let refused = InitiatorFatalError::LoginRefused {
            class: 2,
            detail: 1,
        };
        assert_eq!(
            log_in(&mut peer, auth()),
            [InitiatorOp::Fatal(refused)],
            "{algorithm}"
        );
        let mut peer = Peer::new(settings());
        assert_eq!(
            log_in(&mut peer, auth()),
            [InitiatorOp::Fatal(refused)],
            "no CHAP at all"
        );
    }
}

#[test]
fn mutual_chap_proves_the_target_as_well() {
    let auth = |mutual| Auth {
        chap: credentials("alice", "correct horse battery"),
        mutual,
        ..Auth::default()
    };
    let mutual = |secret: &str| Chap {
        mutual: Some(Secret::new(secret.as_bytes())),
        ..chap("correct horse battery")
    };
    let target = || credentials("target", "staple of the target");
    let mut peer = Peer::new(with_chap(mutual("staple of the target")));
    assert_eq!(log_in(&mut peer, auth(target())), [InitiatorOp::Ready]);
    let mut peer = Peer::new(with_chap(mutual("staple of another one")));
    let ops = log_in(&mut peer, auth(target()));
    assert!(
        matches!(
            ops[..],
            [InitiatorOp::Fatal(InitiatorFatalError::Authentication(_))]
        ),
        "{ops:?}"
    );
    let mut peer = Peer::new(with_chap(mutual("staple of the target")));
    let ops = log_in(&mut peer, auth(None));
    assert!(
        matches!(ops[..], [InitiatorOp::Fatal(_)]),
        "a target that proves nothing: {ops:?}"
    );
}

#[test]
fn chap_is_offered_and_not_insisted_on_one_way() {
    let mut peer = Peer::new(with_chap(chap("correct horse battery")));
    assert_eq!(log_in(&mut peer, Auth::default()), [InitiatorOp::Ready]);
    let mutual = Chap {
        mutual: Some(Secret::new(*b"staple of the target")),
        ..chap("correct horse battery")
    };
    let mut peer = Peer::new(with_chap(mutual));
    let ops = log_in(&mut peer, Auth::default());
    assert!(matches!(ops[..], [InitiatorOp::Fatal(_)]), "{ops:?}");
}

#[test]
fn secrets_are_not_shown() {
    let peer = Peer::new(with_chap(chap("correct horse battery")));
    assert!(!format!("{:?}", peer.end.machine).contains("horse"));
}
