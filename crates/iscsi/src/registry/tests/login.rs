use wire::iscsi::LoginStatus as Status;
use zerocopy::IntoBytes;

use super::*;
use crate::config::{DigestPolicy, Redirect, SessionLimits};
use crate::login::LOGIN_ANSWER_MAX;

#[test]
fn the_header_of_a_response_is_what_the_standard_has() {
    let mut registry = registry(vec![target()]);
    let mut initiator = Initiator::new(5).with(0, 9);
    let pairs = format!("InitiatorName={INITIATOR}|TargetName={TARGET}");
    let outcome = initiator.send(&mut registry, TO_FULL_FEATURE, &pairs);
    let bytes = outcome.answer.response.as_bytes();
    // Login Response; T, CSG 1, NSG 3; versions 0.
    assert_eq!(bytes[..5], [0x23, 0x87, 0, 0, 0]);
    // ISID as it came, TSIH 1, the Initiator Task Tag.
    assert_eq!(
        bytes[8..20],
        [0x80, 1, 2, 3, 0, 1, 0, 1, 0x0b, 0xad, 0xca, 0xfe]
    );
    // Status-Class and Status-Detail; the rest is the connection's or reserved.
    assert_eq!(bytes[20..], [0; 28]);
    let (joined, change) = finished(outcome);
    assert_eq!((joined.tsih, joined.cid, joined.cmd_sn), (1, 9, 77));
    assert_eq!((joined.leading, joined.lead_connection), (true, None));
    assert_eq!(
        (joined.kind, joined.portal_group_tag),
        (SessionKind::Normal, 1)
    );
    assert_eq!(joined.initiator.name, INITIATOR);
    assert_eq!(joined.initiator.isid, ISID);
    assert_eq!(change, SessionChange::default());
}

/// What Linux's initiator sends, and what it takes as an answer: nothing in the
/// security stage but what it knows, `1` for MaxOutstandingR2T and
/// MaxConnections, `0` for ErrorRecoveryLevel.
#[test]
fn login_as_linux_sends_it_is_accepted() {
    let mut registry = registry(vec![Target {
        alias: Some("Disks".to_owned()),
        ..target()
    }]);
    let mut initiator = Initiator::new(5);
    let pairs = format!(
        "InitiatorName={INITIATOR}|InitiatorAlias=host|TargetName={TARGET}|SessionType=Normal|AuthMethod=None"
    );
    let outcome = initiator.send(&mut registry, TO_OPERATIONAL, &pairs);
    assert!(matches!(outcome.then, AfterLogin::Continue), "{outcome:?}");
    assert_eq!(outcome.answer.response.flags, 0x81);
    assert_eq!(outcome.answer.response.tsih.get(), 0);
    assert_eq!(
        bars(&outcome.answer.text),
        "TargetAlias=Disks|TargetPortalGroupTag=1|AuthMethod=None"
    );
    let outcome = initiator.send(
        &mut registry,
        TO_FULL_FEATURE,
        "HeaderDigest=None,CRC32C|DataDigest=CRC32C,None|DefaultTime2Wait=2|DefaultTime2Retain=0|\
         IFMarker=No|OFMarker=No|ErrorRecoveryLevel=0|InitialR2T=No|ImmediateData=Yes|\
         MaxBurstLength=16776192|FirstBurstLength=262144|MaxOutstandingR2T=1|MaxConnections=1|\
         DataPDUInOrder=Yes|DataSequenceInOrder=Yes|MaxRecvDataSegmentLength=131072",
    );
    assert_eq!(
        bars(&outcome.answer.text),
        "HeaderDigest=None|DataDigest=CRC32C|DefaultTime2Wait=2|DefaultTime2Retain=0|\
         IFMarker=No|OFMarker=No|ErrorRecoveryLevel=0|InitialR2T=No|ImmediateData=Yes|\
         MaxBurstLength=1048576|FirstBurstLength=262144|MaxOutstandingR2T=1|MaxConnections=1|\
         DataPDUInOrder=Yes|DataSequenceInOrder=Yes|MaxRecvDataSegmentLength=262144"
    );
    let (joined, _) = finished(outcome);
    let expected = Negotiated {
        data_digest: true,
        initial_r2t: false,
        max_burst_length: 1 << 20,
        first_burst_length: 256 << 10,
        default_time2retain: 0,
        max_recv_data_segment_length: 256 << 10,
        max_send_data_segment_length: 128 << 10,
        ..Negotiated::default()
    };
    assert_eq!(joined.negotiated, expected);
    let session = registry.session(joined.session).expect("a session");
    assert_eq!(session.alias.as_deref(), Some("host"));
}

/// What libiscsi sends: the names come again in the operational stage.
#[test]
fn login_as_libiscsi_sends_it_is_accepted() {
    let mut registry = registry(vec![target()]);
    let mut initiator = Initiator::new(5);
    let names = format!("InitiatorName={INITIATOR}|TargetName={TARGET}|SessionType=Normal");
    let pairs = format!("{names}|AuthMethod=CHAP,None");
    let outcome = initiator.send(&mut registry, TO_OPERATIONAL, &pairs);
    assert_eq!(
        bars(&outcome.answer.text),
        "TargetPortalGroupTag=1|AuthMethod=None"
    );
    assert_eq!(outcome.answer.response.flags, 0x81);
    let pairs = format!("{names}|HeaderDigest=None,CRC32C|DataDigest=None|MaxConnections=1");
    let outcome = initiator.send(&mut registry, TO_FULL_FEATURE, &pairs);
    assert_eq!(
        bars(&outcome.answer.text),
        "HeaderDigest=None|DataDigest=None|MaxConnections=1|MaxRecvDataSegmentLength=262144"
    );
    alone(outcome);
}

#[test]
fn unknown_keys_and_keys_out_of_place_are_answered() {
    let mut registry = registry(vec![target()]);
    let mut initiator = Initiator::new(5);
    let pairs = format!(
        "InitiatorName={INITIATOR}|TargetName={TARGET}|X-com.example.ping=1|Other=Reject|\
         RDMAExtensions=Yes|SendTargets=All|TargetAlias=mine"
    );
    let outcome = initiator.send(&mut registry, OPERATIONAL, &pairs);
    assert_eq!(
        bars(&outcome.answer.text),
        "TargetPortalGroupTag=1|RDMAExtensions=No|X-com.example.ping=NotUnderstood|\
         SendTargets=Reject|TargetAlias=Reject|MaxRecvDataSegmentLength=262144"
    );
    assert_eq!(outcome.answer.response.flags, 0x04, "it stays");
    assert!(matches!(outcome.then, AfterLogin::Continue));
    // An empty step goes on; nothing is told twice.
    let outcome = initiator.send(&mut registry, TO_FULL_FEATURE, "");
    assert_eq!(bars(&outcome.answer.text), "");
    alone(outcome);
}

#[test]
fn a_digest_that_is_required_holds_the_login_up() {
    let required = || Target {
        header_digest: DigestPolicy::Required,
        ..target()
    };
    let mut registry = registry(vec![required()]);
    let names = format!("InitiatorName={INITIATOR}|TargetName={TARGET}");
    let mut initiator = Initiator::new(5);
    let outcome = initiator.send(&mut registry, TO_FULL_FEATURE, &names);
    assert!(matches!(outcome.then, AfterLogin::Continue));
    assert_eq!(outcome.answer.response.flags, 0x04, "T is not answered");
    assert!(bars(&outcome.answer.text).ends_with("HeaderDigest=CRC32C"));
    let outcome = initiator.send(&mut registry, TO_FULL_FEATURE, "HeaderDigest=CRC32C");
    let (joined, _) = finished(outcome);
    assert!(joined.negotiated.header_digest);
    // An initiator without digests, or without the stage, is refused.
    let mut initiator = Initiator::new(6);
    let pairs = format!("{names}|HeaderDigest=None");
    let outcome = initiator.send(&mut registry, TO_FULL_FEATURE, &pairs);
    assert_eq!(refused(&outcome), Status::InitiatorError);
    let mut initiator = Initiator::new(6);
    let stages = (Stage::Security, Some(Stage::FullFeature));
    let outcome = initiator.send(&mut registry, stages, &names);
    assert_eq!(refused(&outcome), Status::InitiatorError);
}

#[test]
fn stages_can_be_left_out_but_not_gone_back_to() {
    let mut registry = registry(vec![target()]);
    let names = format!("InitiatorName={INITIATOR}|TargetName={TARGET}");
    let mut initiator = Initiator::new(5);
    let stages = (Stage::Security, Some(Stage::FullFeature));
    alone(initiator.send(&mut registry, stages, &names));

    let mut initiator = Initiator::new(6);
    initiator.send(&mut registry, OPERATIONAL, &names);
    let outcome = initiator.send(&mut registry, SECURITY, "");
    assert_eq!(refused(&outcome), Status::InitiatorError);

    let bits = |csg: u8, rest: u8| csg << 2 | rest;
    for wrong in [
        bits(2, 0),               // reserved
        bits(3, 0),               // no stage of a login
        bits(0, 0x80),            // to itself
        bits(1, 0x80),            // backwards
        bits(0, 0x82),            // to a reserved one
        bits(1, 0x80 | 0x40 | 3), // T and C
    ] {
        let mut initiator = Initiator::new(7);
        initiator.request.flags = wrong;
        let step = LoginStep {
            request: initiator.request,
            text: text_of(&names),
            carrier: crate::Carrier::Tcp,
        };
        let outcome = registry.login(&mut initiator.state, &step, &initiator.via, &mut counting());
        assert_eq!(refused(&outcome), Status::InitiatorError, "{wrong:#04x}");
        assert_eq!(outcome.answer.response.flags, wrong & 0x0c);
    }
    assert_eq!(registry.sessions().count(), 1);
}

#[test]
fn each_status_is_given_for_its_reason() {
    let redirected = |name: &str, permanent| Target {
        redirect: Some(Redirect {
            host: "2001:db8::9".to_owned(),
            port: 3999,
            permanent,
        }),
        name: name.to_owned(),
        ..target()
    };
    let closed = Target {
        acl: vec![InitiatorAcl {
            name: Some("iqn.2026-01.org.example:other".to_owned()),
            ..InitiatorAcl::default()
        }],
        name: "iqn.2026-01.io.weft:closed".to_owned(),
        ..target()
    };
    let chap = Target {
        auth: super::chap::auth(),
        name: "iqn.2026-01.io.weft:chap".to_owned(),
        ..target()
    };
    let mut registry = registry(vec![
        target(),
        closed,
        chap,
        redirected("iqn.2026-01.io.weft:moved", false),
        redirected("iqn.2026-01.io.weft:gone", true),
        Target {
            name: "iqn.2026-01.io.weft:removed".to_owned(),
            ..target()
        },
    ]);
    assert_eq!(
        registry.remove_target("iqn.2026-01.io.weft:removed"),
        SessionChange::default()
    );
    let me = format!("InitiatorName={INITIATOR}");
    let table = [
        (
            me.clone() + "|TargetName=iqn.2026-01.io.weft:moved",
            Status::MovedTemporarily,
        ),
        (
            me.clone() + "|TargetName=iqn.2026-01.io.weft:gone",
            Status::MovedPermanently,
        ),
        (
            "InitiatorName=me|TargetName=x".to_owned(),
            Status::InitiatorError,
        ),
        (me.clone() + "|NoValue", Status::InitiatorError),
        (
            me.clone() + "|TargetName=iqn.2026-01.io.weft:chap",
            Status::AuthenticationFailure,
        ),
        (
            me.clone() + "|TargetName=iqn.2026-01.io.weft:closed",
            Status::AuthorizationFailure,
        ),
        (
            me.clone() + "|TargetName=iqn.2026-01.io.weft:none",
            Status::NotFound,
        ),
        (
            me.clone() + "|TargetName=iqn.2026-01.io.weft:removed",
            Status::TargetRemoved,
        ),
        (format!("TargetName={TARGET}"), Status::MissingParameter),
        (me.clone(), Status::MissingParameter),
        (me.clone() + "|SessionType=Normal", Status::MissingParameter),
        (
            me.clone() + "|SessionType=Backup",
            Status::SessionTypeNotSupported,
        ),
        (
            me.clone() + "|TargetName=" + TARGET + "|CHAP_A=5",
            Status::InitiatorError,
        ),
    ];
    for (pairs, status) in table {
        let outcome = Initiator::new(5).send(&mut registry, TO_FULL_FEATURE, &pairs);
        assert_eq!(refused(&outcome), status, "{pairs}");
        let text = match status {
            Status::MovedTemporarily | Status::MovedPermanently => {
                "TargetAddress=[2001:db8::9]:3999"
            }
            _ => "",
        };
        assert_eq!(bars(&outcome.answer.text), text);
    }
    let mut stranger = Initiator::new(5);
    stranger.send(
        &mut registry,
        TO_FULL_FEATURE,
        &format!("{me}|TargetName=iqn.x"),
    );
    assert_eq!(stranger.state.initiator(), Some(INITIATOR), "for the log");
    assert_eq!(stranger.state.target(), Some("iqn.x"));
    let mut versions = Initiator::new(5);
    versions.request.version_min = 1;
    let outcome = versions.send(&mut registry, TO_FULL_FEATURE, &me);
    assert_eq!(refused(&outcome), Status::UnsupportedVersion);
    let pairs = format!("{me}|TargetName={TARGET}");
    let outcome = Initiator::new(5)
        .with(9, 0)
        .send(&mut registry, TO_FULL_FEATURE, &pairs);
    assert_eq!(refused(&outcome), Status::NoSession);
    let outcome = Initiator::new(5)
        .on(4)
        .send(&mut registry, TO_FULL_FEATURE, &pairs);
    assert_eq!(refused(&outcome), Status::NotFound, "not reached there");
    assert_eq!(registry.sessions().count(), 0);
}

/// The wire has one status for many of them.
#[test]
fn malformed_login_names_its_key_its_value_and_what_to_do_for_the_log() {
    let required = Target {
        header_digest: DigestPolicy::Required,
        name: "iqn.2026-01.io.weft:digest".to_owned(),
        ..target()
    };
    let mut registry = registry(vec![target(), required]);
    let me = format!("InitiatorName={INITIATOR}");
    let both = format!("{me}|TargetName={TARGET}");
    let table: [(String, &[&str]); 15] = [
        (
            "InitiatorName=me".into(),
            &["InitiatorName", "`me`", "starts with"],
        ),
        (
            "InitiatorName=iqn.x".into(),
            &["InitiatorName", "`iqn.x`", "year and month"],
        ),
        (
            format!("TargetName={TARGET}"),
            &["no InitiatorName", "give"],
        ),
        (me.clone(), &["no TargetName", "SessionType=Discovery"]),
        (
            format!("{me}|SessionType=Backup"),
            &["SessionType", "`Backup`", "`Normal`"],
        ),
        (
            format!("{me}|TargetName=iqn.y"),
            &["TargetName", "`iqn.y`", "add the target"],
        ),
        (format!("{both}|NoValue"), &["`NoValue`", "`key=value`"]),
        (format!("{both}|k y=1"), &["`k y`", "`key=value`"]),
        (format!("{both}|CHAP_A=5"), &["CHAP_A", "security stage"]),
        (
            format!("{both}|MaxRecvDataSegmentLength=many"),
            &["`many`", "512"],
        ),
        (
            format!("{both}|ImmediateData=No|ImmediateData=Yes"),
            &["`Yes`", "once"],
        ),
        (format!("{both}|{}", "A=1|".repeat(100)), &["96 keys"]),
        (
            format!("{me}|TargetName=iqn.2026-01.io.weft:digest|HeaderDigest=None"),
            &["HeaderDigest", "`None`", "CRC32C", "`header_digest`"],
        ),
        (
            format!("InitiatorName={}", "x".repeat(300)),
            &["x...`", "1 to 223 bytes"],
        ),
        (
            format!("{both}|{}", "k".repeat(70) + "=1"),
            &["`kkk", "at most 63"],
        ),
    ];
    for (pairs, parts) in table {
        let outcome = Initiator::new(5).send(&mut registry, TO_FULL_FEATURE, &pairs);
        refused(&outcome);
        let reason = reason(&outcome);
        assert!(
            parts.iter().all(|part| reason.contains(part)),
            "{pairs}: {reason}"
        );
    }
    let mut again = |first: &str, stages, second: &str, part: &str| {
        let mut initiator = Initiator::new(5);
        initiator.send(&mut registry, OPERATIONAL, first);
        let outcome = initiator.send(&mut registry, stages, second);
        assert!(reason(&outcome).contains(part), "{}", reason(&outcome));
    };
    again(
        &both,
        TO_FULL_FEATURE,
        "TargetName=iqn.z",
        "TargetName becomes `iqn.z`",
    );
    again(
        &both,
        TO_FULL_FEATURE,
        "SessionType=Discovery",
        "SessionType becomes `Discovery`",
    );
    again(&both, SECURITY, "", "stage 0 (CSG) where 1 is under way");
    again(&both, (Stage::FullFeature, None), "", "flags 0x0c");
}

#[test]
fn names_are_compared_in_lower_case() {
    let mut registry = registry(vec![target()]);
    let mut initiator = Initiator::new(5);
    let pairs = format!(
        "InitiatorName={}|TargetName={}",
        INITIATOR.to_uppercase(),
        TARGET.to_uppercase()
    );
    let (joined, _) = finished(initiator.send(&mut registry, TO_FULL_FEATURE, &pairs));
    assert_eq!(joined.initiator.name, INITIATOR);
}

#[test]
fn a_login_is_one_from_its_first_request_to_its_last() {
    let mut registry = registry(vec![target()]);
    let pairs = format!("InitiatorName={INITIATOR}|TargetName={TARGET}");
    let changes: [fn(&mut LoginRequest); 4] = [
        |request| request.isid[5] ^= 1,
        |request| request.tsih = U16::new(1),
        |request| request.cid = U16::new(1),
        |request| request.itt = U32::new(1),
    ];
    for change in changes {
        let mut initiator = Initiator::new(5);
        initiator.send(&mut registry, OPERATIONAL, &pairs);
        change(&mut initiator.request);
        let outcome = initiator.send(&mut registry, TO_FULL_FEATURE, "");
        assert_eq!(refused(&outcome), Status::InitiatorError);
    }
    let other_keys = [
        "InitiatorName=iqn.2026-01.org.example:other",
        "TargetName=iqn.2026-01.io.weft:other",
        "SessionType=Discovery",
    ];
    for other in other_keys {
        let mut initiator = Initiator::new(5);
        initiator.send(&mut registry, OPERATIONAL, &pairs);
        let outcome = initiator.send(&mut registry, TO_FULL_FEATURE, other);
        assert_eq!(refused(&outcome), Status::InitiatorError, "{other}");
    }
    // The target changes meanwhile: the login is refused.
    let mut initiator = Initiator::new(5);
    initiator.send(&mut registry, OPERATIONAL, &pairs);
    let change = registry.replace_target(Arc::new(target()));
    assert!(change.closing.is_empty());
    let outcome = initiator.send(&mut registry, TO_FULL_FEATURE, "");
    assert_eq!(refused(&outcome), Status::ServiceUnavailable);
}

#[test]
fn a_login_comes_to_an_end_and_its_answers_are_bounded() {
    let mut registry = registry(vec![target()]);
    let pairs = format!("InitiatorName={INITIATOR}|TargetName={TARGET}");
    let mut initiator = Initiator::new(5);
    let mut steps = 0;
    let mut outcome = initiator.send(&mut registry, OPERATIONAL, &pairs);
    while matches!(outcome.then, AfterLogin::Continue) {
        steps += 1;
        assert!(steps < 100);
        outcome = initiator.send(&mut registry, OPERATIONAL, "");
    }
    assert_eq!(refused(&outcome), Status::InitiatorError);
    assert_eq!(steps, 32, "requests that were answered");

    let mut initiator = Initiator::new(5);
    let many: Vec<String> = (0..90).map(|n| format!("{n:0>63}=x")).collect();
    let outcome = initiator.send(
        &mut registry,
        OPERATIONAL,
        &format!("{pairs}|{}", many.join("|")),
    );
    assert!(outcome.answer.text.len() > 6000 && outcome.answer.text.len() <= LOGIN_ANSWER_MAX);
    assert!(matches!(outcome.then, AfterLogin::Continue));
}

#[test]
fn initiator_with_all_its_sessions_is_refused_and_others_are_not() {
    let limits = SessionLimits {
        sessions_of_initiator_max: 2,
        ..SessionLimits::default()
    };
    let mut registry = registry(vec![Target { limits, ..target() }]);
    let mut log_in = |connection, name: &str, last| {
        let mut initiator = Initiator::new(connection);
        initiator.request.isid = [0x80, 0, 0, 0, 0, last];
        let pairs = format!("InitiatorName={name}|TargetName={TARGET}");
        let outcome = initiator.send(&mut registry, TO_FULL_FEATURE, &pairs);
        (outcome, registry.limit_in_the_way(TARGET, name))
    };
    alone(log_in(1, INITIATOR, 1).0);
    alone(log_in(2, INITIATOR, 2).0);
    let (outcome, limit) = log_in(3, INITIATOR, 3);
    assert_eq!(refused(&outcome), Status::OutOfResources);
    assert_eq!(limit, Some(("sessions_of_initiator_max", 2)));
    // Session reinstatement is none more.
    let (_, change) = finished(log_in(4, INITIATOR, 2).0);
    assert_eq!(change.closing, [2]);
    let (outcome, limit) = log_in(5, "iqn.2026-01.org.example:other", 3);
    alone(outcome);
    assert_eq!(limit, None);
}

#[test]
fn a_target_has_as_many_sessions_as_it_may() {
    let limits = SessionLimits {
        sessions_max: 2,
        ..SessionLimits::default()
    };
    let mut registry = registry(vec![Target { limits, ..target() }]);
    let isid = |last| [0x80, 0, 0, 0, 0, last];
    let pairs = format!("InitiatorName={INITIATOR}|TargetName={TARGET}");
    let mut log_in = |connection, last| {
        let mut initiator = Initiator::new(connection);
        initiator.request.isid = isid(last);
        initiator.send(&mut registry, TO_FULL_FEATURE, &pairs)
    };
    alone(log_in(1, 1));
    alone(log_in(2, 2));
    assert_eq!(refused(&log_in(3, 3)), Status::OutOfResources);
    // One in the place of another is none more.
    let (_, change) = finished(log_in(4, 2));
    assert_eq!(change.closing, [2]);
    registry.closed(2);
    registry.closed(1);
    let mut initiator = Initiator::new(5);
    initiator.request.isid = isid(3);
    alone(initiator.send(&mut registry, TO_FULL_FEATURE, &pairs));
}
