//! Whatever changes in whatever order: a host is told exactly when what it
//! sees has changed, and of nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use nvmf::command::AnaState;
use nvmf::{ControllerChange, ControllerId, Namespace, Referral, WriteProtect};
use proptest::prelude::*;
use wire::nvme::discovery::DISCOVERY_NQN;
use wire::nvme::identify::cns;
use wire::nvme::log::lid;

use crate::bench::{
    Bench, HOST, NQN, disk, listener, namespace, subsystem, u16_at, u32_at, u64_at,
};

const OTHER: &str = "nqn.2024-01.org.example:other";
const HOSTS: [&str; 2] = [HOST, OTHER];
/// Results of the events.
const NAMESPACES: u64 = 0x04_0002;
const ANA: u64 = 0x0c_0302;
const DISCOVERY: u64 = 0x70_f002;

/// One change, its parts small numbers.
#[derive(Clone, Copy, Debug)]
enum Step {
    Add(u8),
    Remove(u8),
    Resize(u8, u8),
    Mask(u8, u8),
    Group(u8, u8),
    Protect(u8, u8),
    State(u8, u8, u8),
    Allow(u8),
    Listeners(u8),
    Referrals(u8),
}

fn steps() -> impl Strategy<Value = Step> {
    let nsid = || 1u8..5;
    prop_oneof![
        nsid().prop_map(Step::Add),
        nsid().prop_map(Step::Remove),
        (nsid(), 1u8..3).prop_map(|(nsid, blocks)| Step::Resize(nsid, blocks)),
        (nsid(), 0u8..3).prop_map(|(nsid, mask)| Step::Mask(nsid, mask)),
        (nsid(), 1u8..4).prop_map(|(nsid, group)| Step::Group(nsid, group)),
        (nsid(), 0u8..2).prop_map(|(nsid, state)| Step::Protect(nsid, state)),
        (0u8..3, 1u8..4, 0u8..5).prop_map(|(at, group, state)| Step::State(at, group, state)),
        (0u8..3).prop_map(Step::Allow),
        (0u8..4).prop_map(Step::Listeners),
        (0u8..2).prop_map(Step::Referrals),
    ]
}

/// Every host, the one, or the other.
fn hosts(which: u8) -> Option<Vec<String>> {
    match which {
        0 => None,
        1 => Some(vec![HOST.to_owned()]),
        _ => Some(vec![OTHER.to_owned()]),
    }
}

fn with(namespaces: &mut [Namespace], nsid: u8, edit: impl FnOnce(&mut Namespace)) {
    let found = namespaces
        .iter_mut()
        .find(|one| one.nsid == u32::from(nsid));
    if let Some(found) = found {
        edit(found);
    }
}

fn apply(bench: &mut Bench, step: Step) -> ControllerChange {
    let mut subsystem = bench.registry.subsystem(NQN).unwrap();
    let mut namespaces = subsystem.namespaces.to_vec();
    let edited = Arc::make_mut(&mut subsystem);
    match step {
        Step::Add(nsid) if namespaces.iter().all(|one| one.nsid != u32::from(nsid)) => {
            namespaces.insert(0, namespace(nsid.into(), 512, 8));
        }
        Step::Add(_) => {}
        Step::Remove(nsid) => namespaces.retain(|one| one.nsid != u32::from(nsid)),
        Step::Resize(nsid, blocks) => {
            with(&mut namespaces, nsid, |one| one.block_count = blocks.into())
        }
        Step::Mask(nsid, which) => with(&mut namespaces, nsid, |one| one.hosts = hosts(which)),
        Step::Group(nsid, group) => with(&mut namespaces, nsid, |one| one.ana_group = group.into()),
        Step::Protect(nsid, state) => {
            let state = WriteProtect::from_value(state.into()).unwrap();
            return bench.registry.set_write_protect(NQN, nsid.into(), state);
        }
        Step::State(at, group, state) => {
            let states = [
                AnaState::Optimized,
                AnaState::NonOptimized,
                AnaState::Inaccessible,
                AnaState::PersistentLoss,
                AnaState::Change,
            ];
            let at = u16::from(at).checked_sub(1);
            let state = states[usize::from(state)];
            return bench
                .registry
                .set_ana(NQN, at, group.into(), state)
                .unwrap();
        }
        Step::Allow(which) => {
            // Of another subsystem, so that every controller here stays.
            let mut other = crate::bench::subsystem("nqn.2024-01.org.example:x", vec![]);
            other.hosts = hosts(which);
            return bench.registry.replace_subsystem(other.into());
        }
        Step::Listeners(which) => {
            let all = [listener(0, "0.0.0.0:4420"), listener(1, "0.0.0.0:4421")];
            let more = listener(2, "127.0.0.1:4422");
            let listeners = match which {
                0 => all.to_vec(),
                1 => all[..1].to_vec(),
                2 => all.into_iter().chain([more]).collect(),
                _ => all.into_iter().rev().collect(),
            };
            return bench.registry.set_listeners(listeners);
        }
        Step::Referrals(count) => {
            let one = Referral::new("192.0.2.7", 8009);
            let referrals = vec![one; count.into()];
            return bench.registry.set_referrals(referrals);
        }
    }
    edited.namespaces = namespaces.into();
    bench.registry.replace_subsystem(subsystem)
}

/// What an I/O controller's host sees of a namespace: what is identified, and
/// how it is reached.
type Seen = BTreeMap<u32, (Vec<u8>, (u32, u8))>;

fn seen(bench: &mut Bench, id: ControllerId) -> Seen {
    let active = bench.identify(id, cns::ACTIVE_NAMESPACES, 0).unwrap();
    let nsids = (0..4).map(|index| u32_at(&active, index * 4));
    let nsids: Vec<u32> = nsids.take_while(|nsid| *nsid != 0).collect();
    // The states of the ANA log, retaining its event.
    let mut retaining = crate::bench::log_sqe(lid::ANA, 0, 0, 512);
    retaining.cdw10 = (retaining.cdw10.get() | 1 << 15).into();
    let mut log = [0; 512];
    assert!(bench.admin(id, &retaining, &mut log).status.is_success());
    let mut states = BTreeMap::new();
    let mut at = 16;
    for _ in 0..u16_at(&log, 8) {
        let count = u32_at(&log, at + 4) as usize;
        for index in 0..count {
            let nsid = u32_at(&log, at + 32 + index * 4);
            states.insert(nsid, (u32_at(&log, at), log[at + 16]));
        }
        at += 32 + count * 4;
    }
    let is_active: Vec<u32> = states.keys().copied().collect();
    assert_eq!(is_active, nsids, "every active namespace is in the ANA log");
    nsids
        .into_iter()
        .map(|nsid| {
            let mut data = bench.identify(id, cns::NAMESPACE, nsid).unwrap();
            // NUSE and ANAGRPID are no attributes whose change is told (figure 146).
            data[16..24].fill(0);
            assert_eq!(u32_at(&data, 92), states[&nsid].0, "ANAGRPID");
            data[92..96].fill(0);
            (nsid, (data, states[&nsid]))
        })
        .collect()
}

/// The entries of a discovery log, in no order.
fn entries(bench: &mut Bench, id: ControllerId) -> Vec<Vec<u8>> {
    let mut retaining = crate::bench::log_sqe(lid::DISCOVERY, 0, 0, 16 << 10);
    retaining.cdw10 = (retaining.cdw10.get() | 1 << 15).into();
    let mut log = vec![0; 16 << 10];
    assert!(bench.admin(id, &retaining, &mut log).status.is_success());
    let count = u64_at(&log, 8) as usize;
    let entries = log[1024..].chunks(1024).take(count);
    entries.map(<[u8]>::to_vec).collect()
}

/// What was told, and reading its pages.
fn told(bench: &mut Bench, id: ControllerId) -> Vec<u64> {
    let mut results = Vec::new();
    while let Some((tag, reply)) = bench.take_event(id) {
        results.push(reply.result);
        let lid = (reply.result >> 16) as u8;
        bench.log(id, lid, 0, 0, 4096).unwrap();
        bench.hold_event_request(id, tag);
    }
    results.sort_unstable();
    results
}

/// What a step is expected to tell an I/O controller's host.
fn expected(before: &Seen, after: &Seen) -> Vec<u64> {
    let attributes = |seen: &Seen| -> Vec<(u32, Vec<u8>)> {
        seen.iter()
            .map(|(nsid, one)| (*nsid, one.0.clone()))
            .collect()
    };
    let mut results = Vec::new();
    if attributes(before) != attributes(after) {
        results.push(NAMESPACES);
    }
    let access = |nsid: &u32| Some(before.get(nsid)?.1 != after.get(nsid)?.1);
    if before.keys().filter_map(access).any(|changed| changed) {
        results.push(ANA);
    }
    results
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn hosts_have_events_of_changes_that_they_see(steps in prop::collection::vec(steps(), 1..25)) {
        let listeners = ["0.0.0.0:4420", "0.0.0.0:4421"];
        let mut bench = Bench::with(vec![disk()], &listeners);
        let small = subsystem(NQN, vec![namespace(1, 512, 8), namespace(2, 512, 8)]);
        let _ = bench.registry.replace_subsystem(small.into());
        let mut io = Vec::new();
        let mut discovery = Vec::new();
        for (number, hostnqn) in [(0, HOSTS[0]), (1, HOSTS[0]), (0, HOSTS[1])] {
            bench.listener = number;
            io.push((bench.enabled_for(NQN, hostnqn, 30_000), bench.last_connection()));
            let id = bench.enabled_for(DISCOVERY_NQN, hostnqn, 30_000);
            discovery.push((id, bench.last_connection()));
        }
        for (id, _) in io.iter().chain(&discovery) {
            bench.hold_event_request(*id, 1);
            bench.hold_event_request(*id, 2);
        }
        for step in steps {
            let before: Vec<Seen> = io.iter().map(|(id, _)| seen(&mut bench, *id)).collect();
            let logs: Vec<_> = discovery.iter().map(|(id, _)| entries(&mut bench, *id)).collect();
            let change = apply(&mut bench, step);
            prop_assert!(change.closing.is_empty());
            for ((id, connection), before) in io.iter().zip(before) {
                let expected = expected(&before, &seen(&mut bench, *id));
                prop_assert_eq!(change.events.contains(connection), !expected.is_empty());
                prop_assert_eq!(told(&mut bench, *id), expected, "{:?}", step);
            }
            for ((id, connection), before) in discovery.iter().zip(logs) {
                let is_new = entries(&mut bench, *id) != before;
                prop_assert_eq!(change.events.contains(connection), is_new);
                let expected = if is_new { vec![DISCOVERY] } else { vec![] };
                prop_assert_eq!(told(&mut bench, *id), expected, "{:?}", step);
            }
        }
    }
}
