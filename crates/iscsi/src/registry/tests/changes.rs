use wire::iscsi::LoginStatus as Status;

use super::*;
use crate::config::Redirect;

fn named(names: &[&str]) -> Vec<InitiatorAcl> {
    let entry = |name: &&str| InitiatorAcl {
        name: Some(format!("iqn.2026-01.org.example:{name}")),
        ..InitiatorAcl::default()
    };
    names.iter().map(entry).collect()
}

/// A registry where `host` and `other` have a session each, on connections 1
/// and 2.
fn busy() -> (Registry, SessionId, SessionId) {
    let mut registry = registry(vec![target()]);
    let (host, _) = Initiator::new(1).log_in(&mut registry, "");
    let pairs = format!("InitiatorName=iqn.2026-01.org.example:other|TargetName={TARGET}");
    let outcome = Initiator::new(2)
        .on(2)
        .send(&mut registry, TO_FULL_FEATURE, &pairs);
    let (other, _) = finished(outcome);
    (registry, host.session, other.session)
}

#[test]
fn sessions_end_of_initiators_that_may_no_longer_use_the_target() {
    let group = |portals: &[u16], tag| {
        vec![PortalGroup {
            tag,
            portals: portals.to_vec(),
            ..PortalGroup::default()
        }]
    };
    let redirect = Some(Redirect {
        host: "192.0.2.9".to_owned(),
        port: 3260,
        permanent: false,
    });
    let other = named(&["other"]);
    let network = InitiatorAcl {
        networks: vec!["192.0.2.0/24".parse().expect("a network")],
        ..InitiatorAcl::default()
    };
    let table: [(Target, &[u64]); 8] = [
        (
            Target {
                alias: Some("new".to_owned()),
                ..target()
            },
            &[],
        ),
        (
            Target {
                acl: named(&["host", "other"]),
                ..target()
            },
            &[],
        ),
        (
            Target {
                acl: other,
                ..target()
            },
            &[1],
        ),
        (
            Target {
                acl: vec![network],
                ..target()
            },
            &[1, 2],
        ),
        (
            Target {
                portal_groups: group(&[1], 1),
                ..target()
            },
            &[2],
        ),
        (
            Target {
                portal_groups: group(&[1, 2], 5),
                ..target()
            },
            &[1, 2],
        ),
        (
            Target {
                auth: super::chap::auth(),
                ..target()
            },
            &[1, 2],
        ),
        (
            Target {
                redirect,
                ..target()
            },
            &[1, 2],
        ),
    ];
    for (target, closing) in table {
        let (mut registry, host, other) = busy();
        let target = Arc::new(target);
        let change = registry.replace_target(target.clone());
        assert_eq!(change.closing, closing, "{target:?}");
        for (id, connection) in [(host, 1), (other, 2)] {
            let session = registry.session(id).expect("until its connection ends");
            assert_eq!(session.has_ended, closing.contains(&connection));
            if !session.has_ended {
                assert!(Arc::ptr_eq(
                    session.target.as_ref().expect("a target"),
                    &target
                ));
            }
        }
        // Closing what is closing already is not asked for twice.
        assert_eq!(registry.replace_target(target), SessionChange::default());
    }
}

#[test]
fn session_that_proved_what_a_new_target_asks_stays() {
    let with = |auth: Auth| Arc::new(Target { auth, ..target() });
    let mut registry = registry(vec![target()]);
    assert_eq!(
        registry.replace_target(with(super::chap::auth())),
        SessionChange::default()
    );
    let mut initiator = Initiator::new(1);
    let names = format!("InitiatorName={INITIATOR}|TargetName={TARGET}|AuthMethod=CHAP");
    initiator.send(&mut registry, SECURITY, &names);
    initiator.send(&mut registry, SECURITY, "CHAP_A=5");
    let stages = (Stage::Security, Some(Stage::FullFeature));
    let pairs = "CHAP_N=host|CHAP_R=0x580e2e7c54b14ea7d0b46d87cb5e38cf";
    alone(initiator.send(&mut registry, stages, pairs));
    let one_way = Auth {
        mutual: None,
        ..super::chap::auth()
    };
    assert_eq!(
        registry.replace_target(with(one_way)),
        SessionChange::default()
    );
    let mut renamed = super::chap::auth();
    renamed.chap.as_mut().expect("CHAP").user = "somebody".to_owned();
    assert_eq!(registry.replace_target(with(renamed)).closing, [1]);
}

#[test]
fn the_logical_units_that_are_seen_follow() {
    let (mut registry, host, other) = busy();
    let mut acl = named(&["host"]);
    acl[0].luns = Some(vec![0, 3]);
    acl.push(InitiatorAcl::default());
    let change = registry.replace_target(Arc::new(Target { acl, ..target() }));
    assert_eq!(change, SessionChange::default());
    let luns = |id| registry.session(id).expect("a session").luns.clone();
    assert_eq!((luns(host), luns(other)), (Some(vec![0, 3]), None));
}

#[test]
fn a_removed_target_ends_its_sessions_and_may_be_added_again() {
    let (mut registry, host, _) = busy();
    let discovery = format!("InitiatorName={INITIATOR}|SessionType=Discovery");
    alone(Initiator::new(3).send(&mut registry, TO_FULL_FEATURE, &discovery));
    assert_eq!(registry.remove_target(TARGET).closing, [1, 2]);
    assert_eq!(registry.remove_target(TARGET), SessionChange::default());
    assert!(registry.session(host).expect("until it ends").has_ended);
    let pairs = format!("InitiatorName={INITIATOR}|TargetName={TARGET}");
    let log_in =
        |registry: &mut Registry| Initiator::new(9).send(registry, TO_FULL_FEATURE, &pairs);
    assert_eq!(refused(&log_in(&mut registry)), Status::TargetRemoved);
    assert_eq!(
        registry.replace_target(Arc::new(target())),
        SessionChange::default()
    );
    let (_, change) = finished(log_in(&mut registry));
    // What the old session has under way may be on the same volumes.
    assert_eq!(change.closing, [1]);
    assert_eq!(registry.closed(1), Some(host));
    assert_eq!(registry.target(TARGET).expect("a target").name, TARGET);
}

#[test]
fn few_removed_targets_are_remembered() {
    let mut registry = registry(Vec::new());
    for number in 0..100 {
        let name = format!("iqn.2026-01.io.weft:{number}");
        registry
            .replace_target(Arc::new(Target {
                name: name.clone(),
                ..target()
            }))
            .closing
            .clear();
        assert_eq!(registry.remove_target(&name), SessionChange::default());
    }
    let mut status = |number: u32| {
        let pairs = format!("InitiatorName={INITIATOR}|TargetName=iqn.2026-01.io.weft:{number}");
        refused(&Initiator::new(1).send(&mut registry, TO_FULL_FEATURE, &pairs))
    };
    assert_eq!(
        (status(99), status(36)),
        (Status::TargetRemoved, Status::TargetRemoved)
    );
    assert_eq!(
        (status(35), status(0)),
        (Status::NotFound, Status::NotFound)
    );
}
