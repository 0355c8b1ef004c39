//! Live changes: what hosts see at once, which controllers have events, which
//! connections go on.

use std::sync::Arc;

use auth::HostPsk;
use auth::psk::{Derivation, Psk, PskHash};
use nvmf::command::AnaState;
use nvmf::{ControllerChange, ControllerId, HostTerms, Namespace, Subsystem};
use wire::nvme::Status;
use wire::nvme::discovery::DISCOVERY_NQN;
use wire::nvme::feature::fid;
use wire::nvme::identify::cns;
use wire::nvme::log::lid;

use crate::bench::{
    Bench, CC_ENABLE, HOST, NQN, PRIVATE_NQN, command, data, disk, listener, namespace, subsystem,
    u32_at, u64_at,
};

const OTHER: &str = "nqn.2024-01.org.example:other";
const NEW_NQN: &str = "nqn.2024-01.org.example:new";

/// The subsystem as it is, changed.
fn edit(bench: &Bench, edit: impl FnOnce(&mut Subsystem)) -> Arc<Subsystem> {
    let mut subsystem = bench.registry.subsystem(NQN).unwrap();
    edit(Arc::make_mut(&mut subsystem));
    subsystem
}

/// The subsystem with its namespaces changed.
fn with_namespaces(bench: &Bench, change: impl FnOnce(&mut Vec<Namespace>)) -> Arc<Subsystem> {
    edit(bench, |subsystem| {
        let mut namespaces = subsystem.namespaces.to_vec();
        change(&mut namespaces);
        subsystem.namespaces = namespaces.into();
    })
}

/// An enabled controller that holds an event request.
fn listening(bench: &mut Bench, nqn: &str, hostnqn: &str) -> (ControllerId, u64) {
    let id = bench.enabled_for(nqn, hostnqn, 30_000);
    bench.hold_event_request(id, 1);
    (id, bench.last_connection())
}

fn changed(bench: &mut Bench, id: ControllerId) -> Vec<u32> {
    let list = bench.log(id, lid::CHANGED_NAMESPACES, 0, 0, 4096).unwrap();
    (0..1024)
        .map(|index| u32_at(&list, index * 4))
        .take_while(|nsid| *nsid != 0)
        .collect()
}

#[test]
fn namespaces_come_go_and_change() {
    let mut bench = Bench::new();
    let (id, connection) = listening(&mut bench, NQN, HOST);
    let replaced = with_namespaces(&bench, |namespaces| {
        namespaces.retain(|namespace| namespace.nsid == 5);
        namespaces[0].block_count = 4096;
        namespaces.push(namespace(9, 4096, 1));
    });
    let change = bench.registry.replace_subsystem(replaced);
    assert_eq!((change.events, change.closing), (vec![connection], vec![]));
    assert_eq!(bench.take_event(id).unwrap().1.result, 0x04_0002);
    assert_eq!(changed(&mut bench, id), [2, 5, 9], "gone, changed, new");
    let active = bench.identify(id, cns::ACTIVE_NAMESPACES, 0).unwrap();
    assert_eq!([0, 4, 8].map(|at| u32_at(&active, at)), [5, 9, 0]);
    let data = bench.identify(id, cns::NAMESPACE, 5).unwrap();
    assert_eq!(u64_at(&data, 0), 4096);
    // The same again is no change.
    let same = bench.registry.subsystem(NQN).unwrap();
    assert_eq!(
        bench.registry.replace_subsystem(same),
        ControllerChange::default()
    );
    assert_eq!(changed(&mut bench, id), []);
}

/// Of a masked namespace only the hosts have an event that see it, before or after.
#[test]
fn hosts_have_events_only_of_namespaces_that_they_see() {
    let mut bench = Bench::new();
    let (here, _) = listening(&mut bench, NQN, HOST);
    let (other, others) = listening(&mut bench, NQN, OTHER);
    let only_other = Some(vec![OTHER.to_owned()]);
    let added = with_namespaces(&bench, |namespaces| {
        namespaces.push(Namespace {
            hosts: only_other.clone(),
            ..namespace(7, 512, 8)
        });
    });
    let change = bench.registry.replace_subsystem(added);
    assert_eq!(change.events, [others]);
    assert_eq!(bench.take_event(other).unwrap().1.result, 0x04_0002);
    assert_eq!(changed(&mut bench, here), []);
    assert_eq!(changed(&mut bench, other), [7]);

    // Masking a namespace is its end for the others, and nothing for hosts that keep it.
    bench.hold_event_request(other, 2);
    let masked = with_namespaces(&bench, |namespaces| {
        namespaces[0].hosts = only_other.clone();
    });
    assert!(bench.registry.replace_subsystem(masked).events.len() == 1);
    assert_eq!(changed(&mut bench, here), [5]);
    assert_eq!(changed(&mut bench, other), []);
    let active = bench.identify(here, cns::ACTIVE_NAMESPACES, 0).unwrap();
    assert_eq!([0, 4].map(|at| u32_at(&active, at)), [2, 0]);
}

/// ANA states are a listener's, and so is the notice.
#[test]
fn ana_changes_are_events_of_the_listener_that_they_change() {
    let listeners = ["0.0.0.0:4420", "0.0.0.0:4421"];
    let mut bench = Bench::with(vec![disk()], &listeners);
    let (first, first_connection) = listening(&mut bench, NQN, HOST);
    bench.listener = 1;
    let (second, second_connection) = listening(&mut bench, NQN, HOST);
    let state = |bench: &mut Bench, id| bench.log(id, lid::ANA, 0, 0, 48).unwrap()[32];

    let change = bench
        .registry
        .set_ana(NQN, Some(1), 1, AnaState::Inaccessible)
        .unwrap();
    assert_eq!(change.events, [second_connection]);
    assert_eq!(bench.take_event(second).unwrap().1.result, 0x0c_0302);
    assert!(bench.take_event(first).is_none());
    assert_eq!(
        (state(&mut bench, first), state(&mut bench, second)),
        (1, 3)
    );
    assert_eq!(changed(&mut bench, second), [], "no attribute changed");

    let change = bench
        .registry
        .set_ana(NQN, None, 1, AnaState::NonOptimized)
        .unwrap();
    assert_eq!(
        change.events,
        [first_connection],
        "the other holds no request"
    );
    assert_eq!(
        (state(&mut bench, first), state(&mut bench, second)),
        (2, 2)
    );
    let again = bench.registry.set_ana(NQN, None, 1, AnaState::NonOptimized);
    assert_eq!(again, Some(ControllerChange::default()), "the same again");
    // No controller has an event of a group without namespaces.
    let empty = bench.registry.set_ana(NQN, None, 9, AnaState::Change);
    assert_eq!(empty, Some(ControllerChange::default()));
}

/// A namespace that moves to another group is an ANA change, not an attribute's.
#[test]
fn a_namespace_changes_its_ana_group() {
    let mut bench = Bench::new();
    let (id, connection) = listening(&mut bench, NQN, HOST);
    let moved = with_namespaces(&bench, |namespaces| namespaces[0].ana_group = 2);
    let change = bench.registry.replace_subsystem(moved);
    assert_eq!(change.events, [connection]);
    assert_eq!(bench.take_event(id).unwrap().1.result, 0x0c_0302);
    assert_eq!(changed(&mut bench, id), []);
    let log = bench.log(id, lid::ANA, 0, 0, 96).unwrap();
    assert_eq!((u64_at(&log, 0), log[8]), (1, 2), "change count, groups");
    let counts = (u64_at(&log, 24), u64_at(&log, 60));
    assert_eq!(counts, (2, 2), "both groups changed");
    let data = bench.identify(id, cns::NAMESPACE, 5).unwrap();
    assert_eq!(u32_at(&data, 92), 2, "ANAGRPID");
}

#[test]
fn only_controllers_of_denied_hosts_end() {
    let mut bench = Bench::new();
    let (here, connection) = listening(&mut bench, NQN, HOST);
    bench.io_queue(1, 1).unwrap();
    let io_connection = bench.last_connection();
    let (other, _) = listening(&mut bench, NQN, OTHER);
    let denied = edit(&bench, |subsystem| {
        subsystem.hosts = Some(vec![OTHER.to_owned()]);
    });
    let change = bench.registry.replace_subsystem(denied);
    assert_eq!(change.closing, [connection, io_connection]);
    assert_eq!(change.events, []);
    assert!(bench.take_event(other).is_none());
    assert!(bench.identify(other, cns::CONTROLLER, 0).is_ok());
    assert!(bench.identify(here, cns::CONTROLLER, 0).is_err());
    let refusal = bench.connect(&command(0, 31, 0), &data(0xffff, NQN));
    assert_eq!(
        refusal.unwrap_err().status.code(),
        Status::CONNECT_INVALID_HOST
    );
    let late = bench.io_queue(1, 2).unwrap_err().status.code();
    assert_eq!(late, Status::CONNECT_INVALID_PARAMETERS);
    for qid in [0, 1] {
        assert!(bench.registry.disconnected(here, qid).is_empty());
    }
    let allowed = edit(&bench, |subsystem| subsystem.hosts = None);
    let _ = bench.registry.replace_subsystem(allowed);
    assert!(
        bench
            .connect(&command(0, 31, 0), &data(0xffff, NQN))
            .is_ok()
    );
}

/// The host of the bench comes from 192.0.2.99.
#[test]
fn host_is_admitted_from_its_networks_alone() {
    let mut bench = Bench::new();
    let (_, connection) = listening(&mut bench, NQN, HOST);
    let from = |bench: &Bench, network: &str| {
        let terms = HostTerms {
            networks: vec![network.parse().unwrap()],
            ..HostTerms::new(HOST)
        };
        edit(bench, |subsystem| subsystem.terms = vec![terms])
    };
    let here = from(&bench, "192.0.2.0/24");
    let change = bench.registry.replace_subsystem(here);
    assert_eq!(change.closing, []);
    let elsewhere = from(&bench, "198.51.100.0/24");
    let change = bench.registry.replace_subsystem(elsewhere);
    assert_eq!(change.closing, [connection]);
    let refusal = bench.connect(&command(0, 31, 0), &data(0xffff, NQN));
    let refusal = refusal.unwrap_err();
    assert_eq!(refusal.status.code(), Status::CONNECT_INVALID_HOST);
    assert!(refusal.reason.contains("`networks`"), "{}", refusal.reason);
    // Nor does discovery name it.
    let id = bench.enabled(DISCOVERY_NQN, 0);
    let records = |bench: &mut Bench| {
        let log = bench.log(id, lid::DISCOVERY, 0, 0, 1024).unwrap();
        u64_at(&log, 8)
    };
    let without = records(&mut bench);
    let here = from(&bench, "192.0.2.99");
    let _ = bench.registry.replace_subsystem(here);
    assert_eq!(records(&mut bench), without + 1);
}

/// Of a key for `hostnqn` and `subnqn`.
fn psk_identity(hostnqn: &str, subnqn: &str) -> String {
    let psk = Psk::new(PskHash::Sha256, |bytes| bytes.fill(1));
    psk.tls_psk(hostnqn, subnqn, Derivation::Standard).identity
}

#[test]
fn host_with_a_key_is_admitted_by_that_key_alone() {
    let mut bench = Bench::new();
    let (_, connection) = listening(&mut bench, NQN, HOST);
    assert!(!bench.registry.has_keys());
    let with_key = edit(&bench, |subsystem| {
        let key = HostPsk {
            key: Psk::new(PskHash::Sha256, |bytes| bytes.fill(1)),
            until: None,
        };
        subsystem.terms = vec![HostTerms {
            psks: vec![key],
            ..HostTerms::new(HOST)
        }];
    });
    let change = bench.registry.replace_subsystem(with_key);
    assert_eq!(
        change.closing,
        [connection],
        "what it sends is not encrypted"
    );
    assert!(bench.registry.has_keys());
    let connect = |bench: &mut Bench, identity: Option<String>| {
        bench.psk_identity = identity;
        let connected = bench.connect(&command(0, 31, 0), &data(0xffff, NQN));
        let refused = connected.map_err(|refusal| (refusal.status.code(), refusal.reason));
        refused.map(|connected| connected.controller)
    };
    for (identity, status, why) in [
        (None, Status::CONNECT_INVALID_HOST, "connects without"),
        (
            Some(psk_identity(OTHER, NQN)),
            Status::CONNECT_INVALID_HOST,
            "another host's",
        ),
        (
            Some(psk_identity(HOST, PRIVATE_NQN)),
            Status::CONNECT_INVALID_PARAMETERS,
            "another subsystem",
        ),
        (
            Some("formless".to_owned()),
            Status::CONNECT_INVALID_HOST,
            "another host's",
        ),
    ] {
        let (code, reason) = connect(&mut bench, identity).unwrap_err();
        assert!(code == status && reason.contains(why), "{code:?} {reason}");
    }
    let id = connect(&mut bench, Some(psk_identity(HOST, NQN))).unwrap();
    assert_eq!(bench.set_cc(id, CC_ENABLE), Status::SUCCESS);
    assert!(bench.io_queue(2, 1).is_ok());
    bench.psk_identity = None;
    let refusal = bench.io_queue(2, 2).unwrap_err();
    assert_eq!(refusal.status.code(), Status::CONNECT_INVALID_HOST);
    // Discovery says what the host needs, also to one that asks in the clear.
    let id = bench.enabled(DISCOVERY_NQN, 0);
    let log = bench.log(id, lid::DISCOVERY, 0, 0, 4096).unwrap();
    let entries = log[1024..].chunks(1024);
    let mut entries = entries.filter(|entry| entry[256..].starts_with(NQN.as_bytes()));
    let entry = entries.next().expect("the subsystem");
    assert_eq!((entry[3] & 3, entry[768]), (1, 2), "required, TLS 1.3");
    let _ = bench.registry.remove_subsystem(NQN);
    assert!(!bench.registry.has_keys());
}

#[test]
fn a_removed_subsystem_ends_its_controllers() {
    let mut bench = Bench::new();
    let (id, connection) = listening(&mut bench, NQN, HOST);
    let change = bench.registry.remove_subsystem(NQN);
    assert_eq!(change.closing, [connection]);
    assert_eq!(
        bench.registry.remove_subsystem(NQN),
        ControllerChange::default()
    );
    assert_eq!(
        bench.registry.remove_subsystem(DISCOVERY_NQN),
        ControllerChange::default(),
        "not for taking away"
    );
    assert!(bench.registry.subsystem(NQN).is_none());
    let refusal = bench.connect(&command(0, 31, 0), &data(0xffff, NQN));
    assert_eq!(
        refusal.unwrap_err().status.code(),
        Status::CONNECT_INVALID_PARAMETERS
    );
    // Another of that NQN has nothing to do with the one that ends.
    let _ = bench.registry.replace_subsystem(disk().into());
    let new = bench.controller();
    assert_eq!(bench.registry.controller(new).unwrap().cntlid(), 1);
    bench.registry.disconnected(id, 0);
    assert!(bench.registry.controller(id).is_none());
    assert!(
        bench.io_queue(1, 1).is_ok(),
        "the new one's ID is still taken"
    );
}

/// A subsystem is where its listeners are.
#[test]
fn subsystems_are_on_listeners() {
    let listeners = ["0.0.0.0:4420", "0.0.0.0:4421"];
    let mut private = disk();
    private.listeners = Some(vec![1]);
    let mut bench = Bench::with(vec![private], &listeners);
    let admin = |bench: &mut Bench| bench.connect(&command(0, 31, 0), &data(0xffff, NQN));
    let refusal = admin(&mut bench).unwrap_err();
    assert_eq!(refusal.status.code(), Status::CONNECT_INVALID_PARAMETERS);
    assert_eq!(refusal.result, 1 << 16 | 256, "SUBNQN");
    bench.listener = 1;
    let id = bench.controller();
    let connection = bench.last_connection();
    bench.listener = 0;
    let elsewhere = bench.io_queue(1, 1).unwrap_err();
    assert_eq!(
        elsewhere.result,
        1 << 16 | 256,
        "an association has one port"
    );
    bench.listener = 1;
    assert!(bench.io_queue(1, 1).is_ok());
    let io_connection = bench.last_connection();
    let moved = edit(&bench, |subsystem| subsystem.listeners = Some(vec![0]));
    let change = bench.registry.replace_subsystem(moved);
    assert_eq!(change.closing, [connection, io_connection]);
    assert!(bench.registry.controller(id).unwrap().has_ended());
    bench.listener = 0;
    assert!(admin(&mut bench).is_ok());
}

#[test]
fn discovery_only_listeners() {
    let mut bench = Bench::with(vec![disk()], &["0.0.0.0:4420"]);
    let mut only = listener(1, "0.0.0.0:8009");
    only.discovery_only = true;
    let listeners = vec![listener(0, "0.0.0.0:4420"), only];
    let _ = bench.registry.set_listeners(listeners);
    bench.listener = 1;
    let refusal = bench.connect(&command(0, 31, 0), &data(0xffff, NQN));
    assert_eq!(
        refusal.unwrap_err().status.code(),
        Status::CONNECT_INVALID_PARAMETERS
    );
    assert!(
        bench
            .connect(&command(0, 31, 0), &data(0xffff, DISCOVERY_NQN))
            .is_ok()
    );
}

#[test]
fn discovery_controllers_have_events_when_entries_that_they_see_change() {
    let mut bench = Bench::new();
    let (here, first) = listening(&mut bench, DISCOVERY_NQN, HOST);
    let (other, second) = listening(&mut bench, DISCOVERY_NQN, OTHER);
    let generation =
        |bench: &mut Bench| u64_at(&bench.log(here, lid::DISCOVERY, 0, 0, 1024).unwrap(), 0);
    let mut last = generation(&mut bench);
    let mut told = |bench: &mut Bench, change: ControllerChange| {
        for id in [here, other] {
            if let Some((tag, reply)) = bench.take_event(id) {
                assert_eq!((tag, reply.result), (1, 0x70_f002));
                bench.log(id, lid::DISCOVERY, 0, 0, 1024).unwrap();
                bench.hold_event_request(id, 1);
            }
        }
        let now = generation(bench);
        let is_new = now != last;
        last = now;
        (change.events, is_new)
    };
    let both = (vec![first, second], true);
    let unchanged = (vec![], false);

    let mut hidden = subsystem(NEW_NQN, vec![]);
    hidden.hosts = Some(vec![OTHER.to_owned()]);
    let change = bench.registry.replace_subsystem(hidden.into());
    assert_eq!(
        told(&mut bench, change),
        (vec![second], true),
        "one sees it"
    );
    let change = bench
        .registry
        .replace_subsystem(subsystem(NEW_NQN, vec![]).into());
    assert_eq!(
        told(&mut bench, change),
        (vec![first], true),
        "the other too"
    );
    let more = subsystem(NEW_NQN, vec![namespace(1, 512, 8)]);
    let change = bench.registry.replace_subsystem(more.into());
    assert_eq!(told(&mut bench, change), unchanged, "no entry changes");
    let change = bench.registry.remove_subsystem(NEW_NQN);
    assert_eq!(told(&mut bench, change), both);
    let change = bench.registry.remove_subsystem(PRIVATE_NQN);
    assert_eq!(told(&mut bench, change), (vec![second], true));

    let listeners = vec![listener(0, "0.0.0.0:4420"), listener(1, "0.0.0.0:4421")];
    let change = bench.registry.set_listeners(listeners.clone());
    assert_eq!(told(&mut bench, change), both);
    let change = bench.registry.set_listeners(listeners.clone());
    assert_eq!(told(&mut bench, change), unchanged, "the same again");
    let mut loopback = listeners;
    loopback.push(listener(2, "127.0.0.1:4420"));
    let change = bench.registry.set_listeners(loopback);
    assert_eq!(
        told(&mut bench, change),
        (vec![], true),
        "not for remote hosts"
    );

    let referrals = vec![nvmf::Referral::new("192.0.2.7", 8009)];
    let change = bench.registry.set_referrals(referrals.clone());
    assert_eq!(told(&mut bench, change), both);
    let change = bench.registry.set_referrals(referrals);
    assert_eq!(told(&mut bench, change), unchanged, "the same again");
}

/// A thousand controllers with all of their queues, and then no Controller ID.
#[test]
fn controllers_by_the_thousand() {
    const CONTROLLERS: u16 = 1100;
    const QUEUES: u16 = 128;
    let mut many = disk();
    many.cntlids = 1..=CONTROLLERS;
    many.limits.io_queues_max = QUEUES;
    many.limits.controllers_of_host_max = CONTROLLERS;
    let mut bench = Bench::with(vec![many], &["0.0.0.0:4420"]);
    let mut ids = Vec::new();
    for cntlid in 1..=CONTROLLERS {
        let id = bench.controller();
        assert_eq!(bench.registry.controller(id).unwrap().cntlid(), cntlid);
        for qid in 1..=QUEUES {
            bench.io_queue(cntlid, qid).unwrap();
        }
        let past = bench.io_queue(cntlid, QUEUES + 1).unwrap_err();
        assert_eq!(past.result, 42, "QID");
        ids.push(id);
    }
    let full = bench.connect(&command(0, 31, 0), &data(0xffff, NQN));
    assert_eq!(full.unwrap_err().status, Status::CONNECT_BUSY, "try later");
    let queues: usize = (bench.registry.controllers())
        .map(|(_, controller)| controller.queues().count())
        .sum();
    assert_eq!(queues, usize::from(CONTROLLERS) * (usize::from(QUEUES) + 1));
    let list = bench.identify(ids[0], cns::CONTROLLERS, 0).unwrap();
    assert_eq!(
        list[..4],
        [(CONTROLLERS & 0xff) as u8, (CONTROLLERS >> 8) as u8, 1, 0]
    );

    // One change reaches all of them, and an ID comes free with its controller.
    let change = bench.registry.set_ana(NQN, None, 1, AnaState::Change);
    assert_eq!(
        change,
        Some(ControllerChange::default()),
        "no event request waits"
    );
    bench.hold_event_request(ids[7], 1);
    assert!(bench.take_event(ids[7]).is_some());
    let enabled = bench.get_feature(ids[7], fid::ASYNC_EVENT_CONFIG, 0, 0);
    assert_eq!(enabled.result, 0x900);
    assert_eq!(
        bench.registry.disconnected(ids[7], 0).len(),
        usize::from(QUEUES)
    );
    for qid in 1..=QUEUES {
        bench.registry.disconnected(ids[7], qid);
    }
    let id = bench.controller();
    assert_eq!(bench.registry.controller(id).unwrap().cntlid(), 8);
}

/// A host that shuts a controller down may have forgotten its requests.
#[test]
fn a_controller_that_is_shut_down_sends_no_events() {
    let mut bench = Bench::new();
    let (id, _) = listening(&mut bench, NQN, HOST);
    assert_eq!(bench.set_cc(id, CC_ENABLE | 1 << 14), Status::SUCCESS);
    let fewer = with_namespaces(&bench, |namespaces| namespaces.truncate(1));
    let change = bench.registry.replace_subsystem(fewer);
    assert!(change.events.is_empty());
    assert_eq!(bench.take_event(id), None);
}

#[test]
fn an_event_that_did_not_reach_the_host_goes_to_the_next_request() {
    let mut bench = Bench::new();
    let (id, _) = listening(&mut bench, NQN, HOST);
    let replaced = with_namespaces(&bench, |namespaces| namespaces.push(namespace(9, 4096, 1)));
    let change = bench.registry.replace_subsystem(replaced);
    assert_eq!(change.events.len(), 1);
    let (_, reply) = bench.take_event(id).unwrap();
    bench.hold_event_request(id, 7);
    assert!(bench.take_event(id).is_none(), "masked until it is read");
    let controller = bench.registry.controller(id).unwrap();
    controller.return_event(reply.result as u32);
    let (tag, again) = bench.take_event(id).unwrap();
    assert_eq!((tag, again.result), (7, reply.result));
}

/// What hosts are told by number has a number, and only one has it.
#[test]
fn identifiers_out_of_range_or_there_twice_are_no_subsystem() {
    let of_group = |ana_group| Namespace {
        ana_group,
        ..namespace(5, 512, 8)
    };
    for (namespaces, what) in [
        (vec![namespace(0, 512, 8)], "namespace identifier 0"),
        (vec![namespace(1025, 512, 8)], "namespace identifier 1025"),
        (vec![namespace(5, 512, 8); 2], "namespace identifier 5"),
        (vec![of_group(0)], "ANA group 0"),
        (vec![of_group(129)], "ANA group 129"),
    ] {
        let wrong = subsystem(NQN, namespaces);
        let new = std::panic::catch_unwind(|| Bench::with(vec![wrong.clone()], &[]));
        assert_eq!(panic_of(new), format!("{what} of {NQN}"), "when it is new");
        let mut bench = Bench::new();
        let replaced = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            bench.registry.replace_subsystem(wrong.clone().into())
        }));
        assert_eq!(panic_of(replaced), format!("{what} of {NQN}"), "instead");
    }
}

fn panic_of<T>(result: std::thread::Result<T>) -> String {
    let panic = result.err().expect("it panics");
    *panic.downcast::<String>().unwrap()
}
