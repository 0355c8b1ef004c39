use std::net::SocketAddr;

use super::*;
use crate::config::Advertise;

fn other() -> Target {
    Target {
        name: "iqn.2026-01.io.weft:other".to_owned(),
        acl: vec![InitiatorAcl {
            name: Some(INITIATOR.to_owned()),
            networks: vec!["198.51.100.0/24".parse().expect("a network")],
            ..InitiatorAcl::default()
        }],
        portal_groups: vec![PortalGroup {
            tag: 7,
            portals: vec![2],
            ..PortalGroup::default()
        }],
        ..target()
    }
}

/// What an initiator of `name` gets that asks for `wanted`.
fn ask(registry: &mut Registry, name: &str, wanted: &str) -> String {
    ask_at(registry, name, wanted, via(1, 1))
}

fn ask_at(registry: &mut Registry, name: &str, wanted: &str, via: Via) -> String {
    let mut initiator = Initiator::new(1);
    initiator.via = via;
    let pairs = format!("InitiatorName={name}|SessionType=Discovery");
    let (joined, _) = finished(initiator.send(registry, TO_FULL_FEATURE, &pairs));
    let request = text_of(&format!("SendTargets={wanted}"));
    let outcome = registry.text(joined.session, &via, &request);
    assert_eq!(outcome.max_send_data_segment_length, None);
    registry.closed(1);
    bars(&outcome.text)
}

const DISKS: &str = "TargetName=iqn.2026-01.io.weft:disks|TargetAddress=192.0.2.1:3260,1|\
    TargetAddress=192.0.2.2:3261,1|TargetAddress=[2001:db8::3]:3260,2";
const OTHER: &str = "TargetName=iqn.2026-01.io.weft:other|TargetAddress=192.0.2.2:3261,7";

#[test]
fn an_initiator_is_told_of_the_targets_that_it_may_use() {
    let mut registry = registry(vec![target(), other()]);
    let all = format!("{DISKS}|{OTHER}");
    assert_eq!(ask(&mut registry, INITIATOR, "All"), all);
    assert_eq!(
        ask(&mut registry, "iqn.2026-01.org.example:x", "All"),
        DISKS
    );
    let elsewhere = Via {
        peer: "203.0.113.1:9".parse().expect("an address"),
        ..via(1, 1)
    };
    assert_eq!(ask_at(&mut registry, INITIATOR, "All", elsewhere), DISKS);
    assert_eq!(
        ask(&mut registry, INITIATOR, "iqn.2026-01.IO.weft:other"),
        OTHER
    );
    assert_eq!(
        ask(
            &mut registry,
            "iqn.2026-01.org.example:x",
            "iqn.2026-01.io.weft:other"
        ),
        ""
    );
    assert_eq!(
        ask(&mut registry, INITIATOR, "iqn.2026-01.io.weft:none"),
        ""
    );
    assert_eq!(ask(&mut registry, INITIATOR, ""), "SendTargets=Reject");
}

/// Entries that hold at some portal groups alone: which initiators log in where, with
/// what proof, and what they see.
#[test]
fn entries_hold_at_their_portal_groups() {
    let entry = |name: Option<&str>, tag: u16, lun: u16| InitiatorAcl {
        name: name.map(str::to_owned),
        portal_groups: vec![tag],
        luns: Some(vec![lun]),
        ..InitiatorAcl::default()
    };
    let acl = vec![entry(Some(INITIATOR), 2, 5), entry(None, 1, 6)];
    let mut registry = registry(vec![Target { acl, ..target() }]);
    assert_eq!(ask(&mut registry, INITIATOR, "All"), DISKS);
    let of_others = "TargetName=iqn.2026-01.io.weft:disks|TargetAddress=192.0.2.1:3260,1|\
        TargetAddress=192.0.2.2:3261,1";
    let other = "iqn.2026-01.org.example:x";
    assert_eq!(ask(&mut registry, other, "All"), of_others);
    // The name goes before the rest only where it holds.
    for (listener, lun) in [(1, 6), (3, 5)] {
        let mut login = Initiator::new(5).on(listener);
        let (joined, _) = login.log_in(&mut registry, "");
        assert_eq!(joined.luns, Some(vec![lun]), "by listener {listener}");
        registry.closed(5);
    }
    let pairs = format!("InitiatorName={other}|TargetName={TARGET}|SessionType=Normal");
    let mut login = Initiator::new(6).on(3);
    let outcome = login.send(&mut registry, TO_FULL_FEATURE, &pairs);
    let status = outcome.answer.status();
    assert_eq!(status, LoginStatus::AuthorizationFailure);
}

/// One address is told once in a portal group, and every portal once, however many
/// there are.
#[test]
fn portals_that_have_one_address_are_told_once() {
    let group = |tag| PortalGroup {
        tag,
        portals: (1..=2000).collect(),
        ..PortalGroup::default()
    };
    let mut registry = registry(vec![Target {
        portal_groups: vec![group(1), group(2)],
        ..target()
    }]);
    let portals = (1..=2000).map(|number| portal(number, &format!("192.0.2.1:{}", number / 2)));
    registry.set_portals(portals.collect());
    let all = ask(&mut registry, INITIATOR, "All");
    assert_eq!(all.matches("TargetAddress=").count(), 2 * 1001);
    assert_eq!(all.matches("192.0.2.1:77,2").count(), 1);
}

#[test]
fn a_normal_session_is_told_of_its_own_target() {
    let mut registry = registry(vec![target(), other()]);
    let (joined, _) = Initiator::new(5).log_in(&mut registry, "");
    let ask = |wanted: &str| {
        let request = text_of(&format!("SendTargets={wanted}"));
        bars(&registry.text(joined.session, &via(5, 1), &request).text)
    };
    assert_eq!(ask(""), DISKS);
    assert_eq!(ask(TARGET), DISKS);
    assert_eq!(ask("All"), "SendTargets=Reject");
    assert_eq!(ask("iqn.2026-01.io.weft:other"), "SendTargets=Reject");
}

#[test]
fn portals_are_told_as_the_initiator_reaches_them() {
    let mut registry = registry(vec![Target {
        portal_groups: vec![PortalGroup {
            tag: 1,
            portals: vec![1, 2, 3, 4, 5],
            ..PortalGroup::default()
        }],
        ..target()
    }]);
    let advertised = |number, host: &str, port| Portal {
        advertise: Some(Advertise {
            host: host.to_owned(),
            port,
        }),
        ..portal(number, "10.0.0.1:3260")
    };
    registry.set_portals(vec![
        portal(1, "0.0.0.0:3260"),
        portal(2, "127.0.0.1:3261"),
        advertised(3, "storage.example.org", Some(4000)),
        advertised(4, "2001:db8::4", None),
        portal(5, "0.0.0.0:3260"),
    ]);
    let at = |local: &str| Via {
        local: local.parse::<SocketAddr>().expect("an address"),
        ..via(1, 1)
    };
    let advertised = "TargetAddress=storage.example.org:4000,1|TargetAddress=[2001:db8::4]:3260,1";
    let name = format!("TargetName={TARGET}");
    assert_eq!(
        ask_at(&mut registry, INITIATOR, "All", at("192.0.2.77:3260")),
        format!("{name}|TargetAddress=192.0.2.77:3260,1|{advertised}")
    );
    assert_eq!(
        ask_at(&mut registry, INITIATOR, "All", at("127.0.0.1:3261")),
        format!(
            "{name}|TargetAddress=127.0.0.1:3260,1|TargetAddress=127.0.0.1:3261,1|{advertised}"
        )
    );
    // An IPv4 wildcard is not told to an initiator on IPv6.
    assert_eq!(
        ask_at(&mut registry, INITIATOR, "All", at("[2001:db8::1]:3260")),
        format!("{name}|{advertised}")
    );
    registry.set_portals(vec![portal(2, "127.0.0.1:3261")]);
    assert_eq!(
        ask_at(&mut registry, INITIATOR, "All", at("192.0.2.77:3260")),
        ""
    );
}

#[test]
fn other_keys_of_a_text_request() {
    let mut registry = registry(vec![target()]);
    let (joined, _) = Initiator::new(5).log_in(&mut registry, "");
    let ask = |request: &[u8]| {
        let outcome = registry.text(joined.session, &via(5, 1), request);
        (bars(&outcome.text), outcome.max_send_data_segment_length)
    };
    let request = text_of(
        "MaxRecvDataSegmentLength=4096|InitiatorAlias=me|MaxBurstLength=512|X-a.b=1|X-c.d=Reject",
    );
    assert_eq!(
        ask(&request),
        (
            "MaxBurstLength=Reject|X-a.b=NotUnderstood".to_owned(),
            Some(4096)
        )
    );
    let request = text_of("MaxRecvDataSegmentLength=1");
    assert_eq!(
        ask(&request),
        ("MaxRecvDataSegmentLength=Reject".to_owned(), None)
    );
    assert_eq!(ask(b"no pair"), (String::new(), None));
    assert_eq!(ask(b""), (String::new(), None));
}

#[test]
fn a_thousand_targets_are_each_looked_at_once() {
    const TARGETS: u64 = 1000;
    let named = |n| Target {
        name: format!("iqn.2026-01.io.weft:disk{n}"),
        ..target()
    };
    let mut registry = registry((0..TARGETS).map(named).collect());
    let mut units = 0;
    let told = machine::work::take_turn(&mut units, u64::MAX, || {
        ask(&mut registry, INITIATOR, "All")
    });
    assert_eq!(told.matches("TargetName=").count() as u64, TARGETS);
    assert!(units < 10 * TARGETS, "{units} units for SendTargets");
}

#[test]
fn targets_are_told_once_a_request() {
    let mut registry = registry(vec![target()]);
    let told = ask(&mut registry, INITIATOR, "All\0SendTargets=All");
    assert_eq!(told, format!("{DISKS}|SendTargets=Reject"));
}

#[test]
fn discovery_session_has_one_connection() {
    let mut registry = registry(vec![target()]);
    let pairs = format!("InitiatorName={INITIATOR}|SessionType=Discovery");
    let first = alone(Initiator::new(5).send(&mut registry, TO_FULL_FEATURE, &pairs));
    let mut second = Initiator::new(6).with(first.tsih, 1);
    let outcome = second.send(&mut registry, TO_FULL_FEATURE, &pairs);
    assert_eq!(refused(&outcome), LoginStatus::NoSession);
    assert_eq!(registry.sessions().count(), 1);
}

/// Each portal group of a target is looked for in each of its entries.
#[test]
fn send_targets_costs_what_it_looks_at() {
    let units = |entries: usize, groups: u16| {
        let group = |tag| PortalGroup {
            tag,
            portals: vec![tag],
            ..PortalGroup::default()
        };
        let mut registry = registry(vec![Target {
            acl: vec![InitiatorAcl::default(); entries],
            portal_groups: (1..=groups).map(group).collect(),
            ..target()
        }]);
        let mut units = 0;
        machine::work::take_turn(&mut units, u64::MAX, || {
            ask(&mut registry, INITIATOR, "All");
        });
        units
    };
    assert_eq!(units(40, 3), units(10, 3) + 30 * 3);
}
