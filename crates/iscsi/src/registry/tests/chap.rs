use auth::{Algorithm, Secret};
use wire::iscsi::LoginStatus as Status;

use super::*;
use crate::config::Credentials;

pub(super) fn auth() -> Auth {
    Auth {
        chap: Some(Credentials {
            user: "host".to_owned(),
            secret: Secret::new(*b"initiator secret 1"),
        }),
        mutual: Some(Credentials {
            user: "weft".to_owned(),
            secret: Secret::new(*b"target secret two"),
        }),
        algorithms: Algorithm::ALL.to_vec(),
    }
}

fn registry_with(auth: Auth) -> Registry {
    registry(vec![Target { auth, ..target() }])
}

const NAMES: &str =
    "InitiatorName=iqn.2026-01.org.example:host|TargetName=iqn.2026-01.io.weft:disks";
const CHALLENGE: &str = "0x12131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031";

/// What others compute of identifier 11h, the initiator's secret and the
/// challenge above.
const RESPONSES: [(u8, &str); 4] = [
    (5, "0x580e2e7c54b14ea7d0b46d87cb5e38cf"),
    (6, "0xb383c1db9472fd5ac21c8721c0cdfb25921a468b"),
    (
        7,
        "0x289e2c9071589d2ee5cf56fcbf3a0314691da172ba326e3f5fd7f2ef09bbf234",
    ),
    (
        8,
        "0x865b87ee641b22c099aefd116eb7ada2b5e185bc34027fa95eea79cff358391b",
    ),
];

/// A login that has come to the challenge.
fn challenged(registry: &mut Registry, number: u8) -> Initiator {
    let mut initiator = Initiator::new(5);
    let first = initiator.send(
        registry,
        TO_OPERATIONAL,
        &format!("{NAMES}|AuthMethod=CHAP,None"),
    );
    assert_eq!(
        bars(&first.answer.text),
        "TargetPortalGroupTag=1|AuthMethod=CHAP"
    );
    assert_eq!(first.answer.response.flags, 0, "it stays in the stage");
    let second = initiator.send(registry, SECURITY, &format!("CHAP_A={number}"));
    assert_eq!(
        bars(&second.answer.text),
        format!("CHAP_A={number}|CHAP_I=17|CHAP_C={CHALLENGE}")
    );
    initiator
}

#[test]
fn the_right_secret_logs_in_with_every_algorithm() {
    for (number, response) in RESPONSES {
        let mut registry = registry_with(auth());
        let mut initiator = challenged(&mut registry, number);
        let pairs = format!("CHAP_N=host|CHAP_R={response}");
        let third = initiator.send(&mut registry, TO_OPERATIONAL, &pairs);
        assert_eq!(bars(&third.answer.text), "");
        assert_eq!(third.answer.response.flags, 0x81);
        alone(initiator.send(&mut registry, TO_FULL_FEATURE, ""));
        // The same digits in capitals are the same response.
        let mut initiator = challenged(&mut registry, number);
        let pairs = format!("CHAP_R=0x{}|CHAP_N=host", response[2..].to_uppercase());
        let third = initiator.send(&mut registry, TO_OPERATIONAL, &pairs);
        assert_eq!(third.answer.response.flags, 0x81);
    }
}

#[test]
fn the_target_proves_itself_when_it_is_challenged() {
    // What others compute of identifier 200, the target's secret and the
    // challenge a0h, a1h, ... of 24 bytes.
    let proofs = [
        (5, "0x414c329d0acaeb3bb57c93140aecd452"),
        (
            7,
            "0xbaaf6d1929e5cf308abd8634abe16f1ae3f8dea099bf81e688bd3395db8623c7",
        ),
    ];
    for (number, proof) in proofs {
        let mut registry = registry_with(auth());
        let mut initiator = challenged(&mut registry, number);
        let response = RESPONSES
            .iter()
            .find(|known| known.0 == number)
            .expect("known")
            .1;
        let pairs = format!(
            "CHAP_N=host|CHAP_R={response}|CHAP_I=200|\
             CHAP_C=0xa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7"
        );
        let third = initiator.send(&mut registry, TO_OPERATIONAL, &pairs);
        assert_eq!(
            bars(&third.answer.text),
            format!("CHAP_N=weft|CHAP_R={proof}")
        );
        assert_eq!(third.answer.response.flags, 0x81);
    }
}

#[test]
fn a_wrong_secret_is_refused() {
    let good = RESPONSES[2].1;
    let wrong = good.replace("0x28", "0x29");
    let mutual = "CHAP_I=1|CHAP_C=0xa0a1";
    let table = [
        (
            format!("CHAP_N=host|CHAP_R={wrong}"),
            Status::AuthenticationFailure,
        ),
        (
            format!("CHAP_N=hosts|CHAP_R={good}"),
            Status::AuthenticationFailure,
        ),
        (
            format!("CHAP_N=|CHAP_R={good}"),
            Status::AuthenticationFailure,
        ),
        (
            "CHAP_N=host|CHAP_R=0x".to_owned(),
            Status::AuthenticationFailure,
        ),
        (
            format!("CHAP_N=host|CHAP_R={}", &good[..64]),
            Status::AuthenticationFailure,
        ),
        // No proof is given before the initiator's is right.
        (
            format!("CHAP_N=host|CHAP_R={wrong}|{mutual}"),
            Status::AuthenticationFailure,
        ),
        // Our own challenge comes back.
        (
            format!("CHAP_N=host|CHAP_R={good}|CHAP_I=1|CHAP_C={CHALLENGE}"),
            Status::AuthenticationFailure,
        ),
        (format!("CHAP_R={good}"), Status::InitiatorError),
        ("CHAP_N=host".to_owned(), Status::InitiatorError),
        (
            format!("CHAP_N=host|CHAP_R={good}|CHAP_I=1"),
            Status::InitiatorError,
        ),
        (
            format!("CHAP_N=host|CHAP_R={good}|CHAP_C=0xa0"),
            Status::InitiatorError,
        ),
        (
            format!("CHAP_N=host|CHAP_R={good}|CHAP_I=256|CHAP_C=0xa0"),
            Status::InitiatorError,
        ),
        (
            format!("CHAP_N=host|CHAP_R={good}|CHAP_I=1|CHAP_C=a0"),
            Status::InitiatorError,
        ),
        (
            format!("CHAP_N=host|CHAP_N=host|CHAP_R={good}"),
            Status::InitiatorError,
        ),
        (
            format!("CHAP_A=7|CHAP_N=host|CHAP_R={good}"),
            Status::InitiatorError,
        ),
        ("AuthMethod=None".to_owned(), Status::InitiatorError),
        (
            format!(
                "CHAP_N=host|CHAP_R={good}|CHAP_I=1|CHAP_C=0x{}",
                "a".repeat(2050)
            ),
            Status::InitiatorError,
        ),
    ];
    for (pairs, status) in table {
        let mut registry = registry_with(auth());
        let mut initiator = challenged(&mut registry, 7);
        let outcome = initiator.send(&mut registry, TO_OPERATIONAL, &pairs);
        assert_eq!(refused(&outcome), status, "{pairs}");
        assert_eq!(bars(&outcome.answer.text), "");
    }
}

#[test]
fn steps_cannot_be_left_out_or_taken_twice() {
    let good = RESPONSES[2].1;
    let table: [(&[&str], Status); 6] = [
        (&["AuthMethod=None"], Status::AuthenticationFailure),
        (&["AuthMethod=KRB5"], Status::AuthenticationFailure),
        (&[""], Status::AuthenticationFailure),
        (&["CHAP_A=7"], Status::InitiatorError),
        (
            &["AuthMethod=CHAP", "AuthMethod=CHAP"],
            Status::InitiatorError,
        ),
        (
            &["AuthMethod=CHAP", "CHAP_A=9,1"],
            Status::AuthenticationFailure,
        ),
    ];
    for (steps, status) in table {
        let mut registry = registry_with(auth());
        let mut initiator = Initiator::new(5);
        let (last, first) = steps.split_last().expect("steps");
        let mut names = NAMES.to_owned() + "|";
        for step in first {
            let outcome = initiator.send(&mut registry, SECURITY, &(names + step));
            assert!(matches!(outcome.then, AfterLogin::Continue));
            names = String::new();
        }
        let outcome = initiator.send(&mut registry, TO_OPERATIONAL, &(names + last));
        assert_eq!(refused(&outcome), status, "{steps:?}");
    }
    // Wanting to leave in the middle leads nowhere.
    let mut registry = registry_with(auth());
    let mut initiator = challenged(&mut registry, 7);
    let outcome = initiator.send(&mut registry, TO_OPERATIONAL, "");
    assert!(matches!(outcome.then, AfterLogin::Continue));
    assert_eq!(outcome.answer.response.flags, 0);
    let outcome = initiator.send(&mut registry, TO_FULL_FEATURE, "");
    assert_eq!(refused(&outcome), Status::InitiatorError);
    // Once proved, there is nothing more to prove.
    let mut initiator = challenged(&mut registry, 7);
    let pairs = format!("CHAP_N=host|CHAP_R={good}");
    initiator.send(&mut registry, SECURITY, &pairs);
    let outcome = initiator.send(&mut registry, TO_OPERATIONAL, &pairs);
    assert_eq!(refused(&outcome), Status::InitiatorError);
}

#[test]
fn weak_algorithms_are_used_where_they_are_allowed() {
    let mut registry = registry_with(Auth {
        algorithms: Vec::new(),
        ..auth()
    });
    let choose = |registry: &mut Registry, list: &str| {
        let mut initiator = Initiator::new(5);
        initiator.send(registry, SECURITY, &format!("{NAMES}|AuthMethod=CHAP"));
        initiator.send(registry, SECURITY, &format!("CHAP_A={list}"))
    };
    let outcome = choose(&mut registry, "5,6");
    assert_eq!(refused(&outcome), Status::AuthenticationFailure);
    // The first of the initiator's that is taken.
    let outcome = choose(&mut registry, "5,6,7,8");
    assert!(bars(&outcome.answer.text).starts_with("CHAP_A=7|"));
    let outcome = choose(&mut registry, "0x8,7");
    assert!(bars(&outcome.answer.text).starts_with("CHAP_A=8|"));
}

#[test]
fn a_target_without_a_proof_of_its_own_gives_none() {
    let same = Auth {
        mutual: auth().chap,
        ..auth()
    };
    for auth in [
        Auth {
            mutual: None,
            ..auth()
        },
        same,
    ] {
        let mut registry = registry_with(auth);
        let mut initiator = challenged(&mut registry, 7);
        let pairs = format!(
            "CHAP_N=host|CHAP_R={}|CHAP_I=1|CHAP_C=0xa0a1",
            RESPONSES[2].1
        );
        let outcome = initiator.send(&mut registry, TO_OPERATIONAL, &pairs);
        assert_eq!(refused(&outcome), Status::AuthenticationFailure);
        assert_eq!(bars(&outcome.answer.text), "");
    }
}

#[test]
fn an_initiator_can_have_secrets_of_its_own_and_a_target_none() {
    let of_host = InitiatorAcl {
        name: Some(INITIATOR.to_owned()),
        auth: Some(auth()),
        ..InitiatorAcl::default()
    };
    let mut registry = registry(vec![Target {
        acl: vec![of_host, InitiatorAcl::default()],
        ..target()
    }]);
    let outcome = Initiator::new(5).send(&mut registry, TO_FULL_FEATURE, NAMES);
    assert_eq!(refused(&outcome), Status::AuthenticationFailure);
    challenged(&mut registry, 8);
    let others = NAMES.replace("example:host", "example:other");
    alone(Initiator::new(6).send(&mut registry, TO_FULL_FEATURE, &others));
    // An initiator that insists on CHAP is refused by a target that asks for none.
    let outcome = Initiator::new(6).send(
        &mut registry,
        TO_OPERATIONAL,
        &format!("{others}|AuthMethod=CHAP"),
    );
    assert_eq!(refused(&outcome), Status::AuthenticationFailure);
}

#[test]
fn discovery_has_secrets_of_its_own() {
    let mut registry = Registry::new(RegistryConfig {
        discovery: auth(),
        ..RegistryConfig::default()
    });
    let names = format!("InitiatorName={INITIATOR}|SessionType=Discovery");
    let outcome = Initiator::new(5).send(&mut registry, TO_FULL_FEATURE, &names);
    assert_eq!(refused(&outcome), Status::AuthenticationFailure);
    let mut initiator = Initiator::new(5);
    let first = initiator.send(&mut registry, SECURITY, &format!("{names}|AuthMethod=CHAP"));
    assert_eq!(
        bars(&first.answer.text),
        "AuthMethod=CHAP",
        "there is no portal group"
    );
    initiator.send(&mut registry, SECURITY, "CHAP_A=8");
    let stages = (Stage::Security, Some(Stage::FullFeature));
    let pairs = format!("CHAP_N=host|CHAP_R={}", RESPONSES[3].1);
    let (joined, _) = finished(initiator.send(&mut registry, stages, &pairs));
    assert_eq!(joined.kind, SessionKind::Discovery);
    registry.set_discovery(Auth::default());
    alone(Initiator::new(6).send(&mut registry, TO_FULL_FEATURE, &names));
}

#[test]
fn nothing_shows_a_secret() {
    let registry = registry_with(auth());
    let shown = format!("{:?}", registry.targets().collect::<Vec<_>>());
    assert!(shown.contains("weft") && !shown.contains("secret 1") && !shown.contains("secret two"));
    assert!(!shown.contains("105, 110, 105"), "nor as numbers");
}

/// The wire has one status for all of them.
#[test]
fn failed_authentication_names_its_reason_for_the_log() {
    let reason = |outcome: &LoginOutcome| {
        assert_eq!(refused(outcome), Status::AuthenticationFailure);
        reason(outcome).to_owned()
    };
    let mut registry = registry_with(auth());
    let first = |registry: &mut Registry, stages: (Stage, Option<Stage>), methods: &str| {
        let pairs = format!("{NAMES}{methods}");
        Initiator::new(5).send(registry, stages, &pairs)
    };
    let outcome = first(&mut registry, TO_OPERATIONAL, "|AuthMethod=None");
    assert!(reason(&outcome).contains("no CHAP"));
    let outcome = first(&mut registry, TO_FULL_FEATURE, "");
    assert!(reason(&outcome).contains("no CHAP"));
    let outcome = first(&mut registry, TO_OPERATIONAL, "");
    assert!(reason(&outcome).contains("no CHAP"));

    let (number, response) = RESPONSES[2];
    let wrong = response.replace("28", "29");
    for (proof, part) in [
        (format!("CHAP_N=host|CHAP_R={wrong}"), "wrong secret"),
        (format!("CHAP_N=other|CHAP_R={response}"), "unknown user"),
        ("CHAP_N=host|CHAP_R=0xzz".to_owned(), "no binary value"),
    ] {
        let mut initiator = challenged(&mut registry, number);
        let outcome = initiator.send(&mut registry, TO_OPERATIONAL, &proof);
        assert!(reason(&outcome).contains(part), "{}", reason(&outcome));
    }

    let mut taken_back = auth();
    if let Some(known) = &mut taken_back.chap {
        known.secret = Secret::withdrawn([7; 32]);
    }
    let mut registry = registry_with(taken_back);
    let mut initiator = challenged(&mut registry, number);
    let proof = format!("CHAP_N=host|CHAP_R={response}");
    let outcome = initiator.send(&mut registry, TO_OPERATIONAL, &proof);
    assert!(reason(&outcome).contains("was taken back"));

    let mut registry = registry_with(Auth {
        algorithms: Vec::new(),
        ..auth()
    });
    let mut initiator = Initiator::new(5);
    initiator.send(&mut registry, SECURITY, &format!("{NAMES}|AuthMethod=CHAP"));
    let outcome = initiator.send(&mut registry, SECURITY, "CHAP_A=5,6");
    let told = reason(&outcome);
    assert!(told.contains("it offers 5,6"), "{told}");
    assert!(
        told.contains("allows 8,7") || told.contains("allows 7,8"),
        "{told}"
    );

    let mut registry = registry_with(Auth::default());
    let outcome = first(&mut registry, TO_OPERATIONAL, "|AuthMethod=CHAP");
    assert!(reason(&outcome).contains("no `chap`"));
}

#[test]
fn keys_out_of_turn_are_named_for_the_log_without_their_values() {
    let mut registry = registry_with(auth());
    let (number, response) = RESPONSES[2];
    for (proof, part) in [
        ("CHAP_N=host".to_owned(), "CHAP_R does not come"),
        (format!("CHAP_R={response}"), "CHAP_N does not come"),
        (
            format!("CHAP_N=host|CHAP_R={response}|CHAP_A=5"),
            "CHAP_A comes where",
        ),
        (
            format!("CHAP_N=host|CHAP_N=host|CHAP_R={response}"),
            "CHAP_N comes twice",
        ),
        (
            format!("CHAP_N={}|CHAP_R={response}", "n".repeat(300)),
            "CHAP_N has 300 characters",
        ),
    ] {
        let mut initiator = challenged(&mut registry, number);
        let outcome = initiator.send(&mut registry, TO_OPERATIONAL, &proof);
        assert_eq!(refused(&outcome), Status::InitiatorError);
        let reason = reason(&outcome);
        assert!(
            reason.contains(part) && !reason.contains(response),
            "{reason}"
        );
    }
}

/// The longest that each key may be (RFC 7143, sections 6.1 and 12.1.3), and what is longer
/// by one.
#[test]
fn security_keys_are_as_long_as_they_may_be() {
    let good = RESPONSES[2].1;
    let send = |pairs: &str| {
        let mut registry = registry_with(auth());
        challenged(&mut registry, 7).send(&mut registry, TO_OPERATIONAL, pairs)
    };
    let challenge = "a".repeat(2 * auth::chap::CHALLENGE_LEN_MAX);
    let taken = send(&format!(
        "CHAP_N=host|CHAP_R={good}|CHAP_I=1|CHAP_C=0x{challenge}"
    ));
    assert!(
        matches!(taken.then, AfterLogin::Continue),
        "{:?}",
        taken.then
    );
    for (pairs, status) in [
        (
            format!("CHAP_N=host|CHAP_R=0x{challenge}"),
            Status::AuthenticationFailure,
        ),
        (
            format!("CHAP_N=host|CHAP_R=0x{challenge}a"),
            Status::InitiatorError,
        ),
        (
            format!("CHAP_N={}|CHAP_R={good}", "h".repeat(255)),
            Status::AuthenticationFailure,
        ),
        (
            format!("CHAP_N={}|CHAP_R={good}", "h".repeat(256)),
            Status::InitiatorError,
        ),
    ] {
        assert_eq!(refused(&send(&pairs)), status, "{} bytes", pairs.len());
    }
    // Lists are as long as a login.
    let mut registry = registry_with(auth());
    let mut initiator = Initiator::new(5);
    let methods = "KRB5,".repeat(100);
    let first = format!("{NAMES}|AuthMethod={methods}CHAP");
    let outcome = initiator.send(&mut registry, SECURITY, &first);
    assert!(bars(&outcome.answer.text).ends_with("AuthMethod=CHAP"));
    let algorithms = "9,".repeat(200);
    let outcome = initiator.send(&mut registry, SECURITY, &format!("CHAP_A={algorithms}7"));
    assert!(bars(&outcome.answer.text).starts_with("CHAP_A=7|"));
}
