//! Logins of the initiator's machine to the target's, answered by the registry,
//! over a pipe in memory: whatever the two are set to, they agree on the same
//! values or both see why not.
#![allow(missing_docs)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use auth::{Algorithm, Secret};
use iscsi::initiator::{self, Chap, Digest, InitiatorFatalError, RANDOM_LEN};
use iscsi::{
    AfterLogin, Auth, Credentials, DigestPolicy, Joined, LoginState, Negotiated, Portal,
    PortalGroup, Registry, RegistryConfig, Session, SessionLimits, Target, Via, target,
};
use proptest::prelude::*;
use random::Random;
use testkit::End;
use wire::iscsi::LoginStatus;

const INITIATOR: &str = "iqn.2026-01.org.example:host";
const TARGET: &str = "iqn.2026-01.io.weft:disks";
const ISID: [u8; 6] = [0x80, 0, 0, 0, 0, 1];

fn registry(target: Target) -> Registry {
    let address = "192.0.2.1:3260".parse().expect("an address");
    Registry::new(RegistryConfig {
        targets: vec![Arc::new(target)],
        portals: vec![Portal {
            number: 1,
            address,
            advertise: None,
        }],
        ..RegistryConfig::default()
    })
}

fn base() -> Target {
    Target {
        portal_groups: vec![PortalGroup {
            tag: 1,
            portals: vec![1],
            ..PortalGroup::default()
        }],
        ..Target::new(TARGET)
    }
}

/// One connection that logs in: what the initiator's machine agreed on, and
/// what the registry says; or why the initiator gave up.
fn meet(
    registry: &mut Registry,
    settings: initiator::InitiatorSettings,
    session: &initiator::InitiatorSession,
    cid: u16,
    seed: u64,
) -> Result<(Negotiated, Joined), InitiatorFatalError> {
    let mut random = Random::new(seed);
    let via = Via {
        connection: u64::from(cid) + 1,
        listener: 1,
        local: "192.0.2.1:3260".parse().expect("an address"),
        peer: "192.0.2.7:40000".parse().expect("an address"),
    };
    let secret_bytes = [random.below(256) as u8; RANDOM_LEN];
    let mut initiator = End::new(initiator::InitiatorConnection::new(
        settings,
        session.clone(),
        cid,
        secret_bytes,
    ));
    let mut target = End::new(target::Connection::new(
        target::TargetSettings::default(),
        0,
    ));
    let (mut there, mut back) = (VecDeque::new(), VecDeque::new());
    let mut state = LoginState::new();
    let mut joined = None;
    for _ in 0..100_000 {
        initiator.transmit(&mut there, 1 + random.below(2) as usize);
        target.receive(&mut there, 1 + random.below(700) as usize);
        while let Some(op) = target.next_op() {
            assert_eq!(op, target::TargetOp::Login, "nothing else can come");
            let step = target.machine.take_login();
            let mut random = |bytes: &mut [u8]| {
                for byte in bytes {
                    *byte = random.below(256) as u8;
                }
            };
            let outcome = registry.login(&mut state, &step, &via, &mut random);
            assert!(outcome.change.closing.is_empty());
            if let AfterLogin::FullFeature(done) = outcome.then {
                target.machine.attach(role(&done));
                joined = Some(*done);
            }
            target.machine.login_answer(outcome.answer);
        }
        target.transmit(&mut back, 1 + random.below(2) as usize);
        initiator.receive(&mut back, 1 + random.below(700) as usize);
        match initiator.next_op() {
            Some(initiator::InitiatorOp::Ready) => {
                let joined = joined.expect("the registry let it in before");
                return Ok((*initiator.machine.agreed(), joined));
            }
            Some(initiator::InitiatorOp::Fatal(why)) => return Err(why),
            Some(op) => panic!("{op:?} before the login is over"),
            None => {}
        }
    }
    panic!("the login comes to no end");
}

fn role(joined: &Joined) -> target::ConnectionRole {
    let window = Session::new(joined.cmd_sn, 16, false);
    target::ConnectionRole {
        session: Rc::new(RefCell::new(window)),
        negotiated: joined.negotiated,
        cid: joined.cid,
        nop_interval: 0,
        nop_timeout: 0,
    }
}

/// The same values from the other side.
fn mirrored(agreed: Negotiated) -> Negotiated {
    Negotiated {
        max_recv_data_segment_length: agreed.max_send_data_segment_length,
        max_send_data_segment_length: agreed.max_recv_data_segment_length,
        ..agreed
    }
}

fn length() -> impl Strategy<Value = u32> {
    prop_oneof![512u32..2000, 8000u32..300_000, (1u32 << 20)..(1 << 24)]
}

fn settings() -> impl Strategy<Value = initiator::InitiatorSettings> {
    let digest =
        || proptest::sample::select(vec![Digest::Never, Digest::Preferred, Digest::Required]);
    let lengths = (length(), length(), length());
    let flags = (any::<bool>(), any::<bool>());
    (digest(), digest(), lengths, flags, 1u16..200, 1u16..20).prop_map(
        |(header_digest, data_digest, (segment, first, burst), flags, r2ts, connections)| {
            initiator::InitiatorSettings {
                header_digest,
                data_digest,
                max_recv_data_segment: segment,
                first_burst: first,
                max_burst: burst,
                initial_r2t: flags.0,
                immediate_data: flags.1,
                max_outstanding_r2t: r2ts,
                max_connections: connections,
                ..initiator::InitiatorSettings::new(INITIATOR, TARGET)
            }
        },
    )
}

fn target() -> impl Strategy<Value = Target> {
    let policies = vec![
        DigestPolicy::None,
        DigestPolicy::Allowed,
        DigestPolicy::Required,
    ];
    let policy = move || proptest::sample::select(policies.clone());
    let lengths = (length(), length(), length());
    let flags = (any::<bool>(), any::<bool>());
    (policy(), policy(), lengths, flags, 1u16..64, 2u16..9).prop_map(
        |(header_digest, data_digest, (segment, first, burst), flags, r2ts, connections)| Target {
            header_digest,
            data_digest,
            limits: SessionLimits {
                max_recv_data_segment_bytes: segment,
                first_burst_bytes: first,
                max_burst_bytes: burst,
                initial_r2t: flags.0,
                immediate_data: flags.1,
                r2ts_max: r2ts,
                connections_max: connections,
                ..SessionLimits::default()
            },
            ..base()
        },
    )
}

/// Whether there is a digest setting that both can live with.
fn fits(digest: Digest, policy: DigestPolicy) -> bool {
    !matches!(
        (digest, policy),
        (Digest::Never, DigestPolicy::Required) | (Digest::Required, DigestPolicy::None)
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn both_sides_agree_on_the_same_values(
        settings in settings(),
        further in settings(),
        target in target(),
        seed in any::<u64>(),
    ) {
        let can = |settings: &initiator::InitiatorSettings| {
            fits(settings.header_digest, target.header_digest)
                && fits(settings.data_digest, target.data_digest)
        };
        let (first_can, second_can) = (can(&settings), can(&further));
        let connections_max = settings.max_connections.min(target.limits.connections_max);
        let mut registry = registry(target.clone());
        let session = initiator::InitiatorSession::new(ISID, 7);
        let first = meet(&mut registry, settings.clone(), &session, 0, seed);
        prop_assert_eq!(first.is_ok(), first_can, "{:?}", first);
        let Ok((seen, joined)) = first else {
            return Ok(());
        };
        prop_assert_eq!(seen, mirrored(joined.negotiated));
        prop_assert_eq!(seen.max_connections, connections_max);
        prop_assert_eq!(seen.max_recv_data_segment_length, settings.max_recv_data_segment);
        prop_assert_eq!(seen.initial_r2t, settings.initial_r2t || target.limits.initial_r2t);
        prop_assert_eq!(joined.tsih, session.tsih());
        // A further connection, where the session may have one.
        let second = meet(&mut registry, further, &session, 1, seed);
        if connections_max < 2 {
            let status = LoginStatus::TooManyConnections;
            let refused = InitiatorFatalError::LoginRefused { class: status.class(), detail: status.detail() };
            prop_assert_eq!(second.err(), Some(refused));
            return Ok(());
        }
        prop_assert_eq!(second.is_ok(), second_can, "{:?}", second);
        if let Ok((seen, second)) = second {
            prop_assert_eq!(seen, mirrored(second.negotiated));
            prop_assert_eq!(seen.max_burst_length, joined.negotiated.max_burst_length);
            prop_assert_eq!(second.session, joined.session);
        }
    }

    #[test]
    fn a_login_succeeds_only_with_the_right_secrets(
        offered in proptest::sample::subsequence(Algorithm::ALL.to_vec(), 1..=4).prop_shuffle(),
        taken in proptest::sample::subsequence(Algorithm::ALL.to_vec(), 1..=4),
        secrets in ("[a-c]{12}", "[a-c]{12}"),
        wrong in (0u8..4, 0u8..4),
        wants_proof in any::<bool>(),
        seed in any::<u64>(),
    ) {
        prop_assume!(secrets.0 != secrets.1);
        let secret = |text: &str, wrong: u8| Secret::new(match wrong {
            0 => format!("{text}x"),
            _ => text.to_owned(),
        });
        let credentials = |user: &str, text: &str| Some(Credentials {
            user: user.to_owned(),
            secret: secret(text, 1),
        });
        let mut registry = registry(Target {
            auth: Auth {
                chap: credentials("host", &secrets.0),
                mutual: credentials("weft", &secrets.1),
                algorithms: taken.clone(),
            },
            ..base()
        });
        let settings = initiator::InitiatorSettings {
            chap: Some(Chap {
                name: "host".to_owned(),
                secret: secret(&secrets.0, wrong.0),
                algorithms: offered.clone(),
                mutual: wants_proof.then(|| secret(&secrets.1, wrong.1)),
            }),
            ..initiator::InitiatorSettings::new(INITIATOR, TARGET)
        };
        let session = initiator::InitiatorSession::new(ISID, 7);
        let met = meet(&mut registry, settings, &session, 0, seed);
        let has_algorithm = offered.iter().any(|algorithm| taken.contains(algorithm));
        let status = LoginStatus::AuthenticationFailure;
        let refused = InitiatorFatalError::LoginRefused { class: status.class(), detail: status.detail() };
        if !has_algorithm || wrong.0 == 0 {
            prop_assert_eq!(met.err(), Some(refused));
        } else if wants_proof && wrong.1 == 0 {
            prop_assert!(matches!(met, Err(InitiatorFatalError::Authentication(_))), "{:?}", met);
        } else {
            let (seen, joined) = met.expect("both know what they must");
            prop_assert_eq!(seen, mirrored(joined.negotiated));
        }
    }
}
