//! Controllers whose host has to authenticate and has not: they take no place of others.

use std::collections::BTreeMap;
use std::sync::Arc;

use nvmf::{AuthenticationRefusal, Connected, ControllerId, HostTerms};
use wire::nvme::Status;
use wire::nvme::fabrics::ConnectData;

use crate::bench::{Bench, NQN, command, data};
use crate::generated_keys::{NOW, admin_queue, bench, has_key, make_key};

/// More than wait at a time.
const STORM: usize = 40;
/// How many of one address wait at a time.
const UNPROVEN_MAX: usize = 16;
/// Controllers of a host that has proven itself.
const CONTROLLERS_MAX: u16 = 4;

/// A target with so many Controller IDs, whose usual host has a secret.
fn with_ids(ids: u16) -> Bench {
    let mut bench = bench();
    let mut subsystem = bench.registry.subsystem(NQN).expect("there is one");
    Arc::make_mut(&mut subsystem).cntlids = 1..=ids;
    let _ = bench.registry.replace_subsystem(subsystem);
    bench
}

/// One with Controller IDs for a storm.
fn roomy() -> Bench {
    with_ids(1000)
}

/// Hosts come from here now.
fn set_peer_address(bench: &mut Bench, address: [u8; 4]) {
    bench.address = address.into();
    bench.network = bench.address;
}

/// Connects 300 times with the NQN of the usual host from 20 other addresses.
fn storm_from_many(bench: &mut Bench) -> Vec<u64> {
    let addresses = (0..300u16).map(|n| [198, 51, 100, (n % 20) as u8]);
    storm_from(bench, addresses, set_peer_address)
}

/// Connects with the NQN of the usual host from each of these addresses, and authenticates never.
/// Connections that were closed for that; each has gone.
fn storm_from(
    bench: &mut Bench,
    addresses: impl Iterator<Item = [u8; 4]>,
    set_peer_address: fn(&mut Bench, [u8; 4]),
) -> Vec<u64> {
    let mut waiting = BTreeMap::new();
    let mut closed = Vec::new();
    for address in addresses {
        set_peer_address(bench, address);
        let connected = admin_queue(bench, None);
        waiting.insert(bench.last_connection(), connected.controller);
        for connection in connected.closing {
            if let Some(id) = waiting.remove(&connection) {
                bench.registry.disconnected(id, 0);
            }
            closed.push(connection);
        }
    }
    closed
}

/// Connects many times with the NQN of the usual host, and authenticates never. Connections
/// that were closed for that.
fn storm(bench: &mut Bench) -> Vec<u64> {
    let all = (0..STORM).flat_map(|_| admin_queue(bench, None).closing);
    all.collect()
}

fn authenticate(bench: &mut Bench, id: ControllerId) -> Result<(), AuthenticationRefusal> {
    let (keys, _) = bench.registry.dhchap(id).expect("the host has a secret");
    bench
        .registry
        .authenticated(id, &keys.host[0].key, None, NOW)
}

/// A host that has a key comes by it.
fn by_key(bench: &mut Bench) -> Connected {
    admin_queue(bench, Some(1))
}

fn with_key() -> Bench {
    let mut bench = roomy();
    let plain = admin_queue(&mut bench, None).controller;
    make_key(&mut bench, plain, 1);
    bench.registry.disconnected(plain, 0);
    bench
}

#[test]
fn connects_without_authentication_keep_out_no_host_of_that_name() {
    let mut bench = with_key();
    let first = bench.last_connection() + 1;
    let closed = storm(&mut bench);
    // The oldest go first.
    let oldest = first..first + (STORM - UNPROVEN_MAX) as u64;
    assert_eq!(closed, Vec::from_iter(oldest));
    for _ in 0..CONTROLLERS_MAX - 2 {
        assert!(by_key(&mut bench).closing.is_empty());
    }
    set_peer_address(&mut bench, [192, 0, 2, 1]);
    let own = admin_queue(&mut bench, None);
    let own_connection = bench.last_connection();
    set_peer_address(&mut bench, [192, 0, 2, 99]);
    assert!(own.closing.is_empty(), "its address has places of its own");
    assert!(!storm(&mut bench).contains(&own_connection));
    assert_eq!(authenticate(&mut bench, own.controller), Ok(()));
    // The address of the storm was the host's own before, and had other places.
    assert_eq!(storm(&mut bench).len(), STORM - UNPROVEN_MAX);
}

#[test]
fn connects_from_many_addresses_in_the_name_of_a_host_do_not_keep_it_out() {
    let mut bench = roomy();
    // It has never authenticated: nothing tells its address from theirs.
    let own = admin_queue(&mut bench, None).controller;
    let own_connection = bench.last_connection();
    assert!(!storm_from_many(&mut bench).contains(&own_connection));
    assert_eq!(authenticate(&mut bench, own), Ok(()));
    // Nor while they wait.
    set_peer_address(&mut bench, [192, 0, 2, 99]);
    let own = admin_queue(&mut bench, None);
    assert!(own.closing.is_empty());
    assert_eq!(authenticate(&mut bench, own.controller), Ok(()));
}

#[test]
fn host_that_has_authenticated_keeps_its_place_from_there_where_all_are_taken() {
    // A place for each four of the twenty addresses.
    let mut bench = with_ids(10);
    let first = admin_queue(&mut bench, None).controller;
    assert_eq!(authenticate(&mut bench, first), Ok(()));
    bench.registry.disconnected(first, 0);
    let own = admin_queue(&mut bench, None).controller;
    let own_connection = bench.last_connection();
    let closed = storm_from_many(&mut bench);
    assert!(closed.len() > 200 && !closed.contains(&own_connection));
    assert_eq!(authenticate(&mut bench, own), Ok(()));
    bench.registry.disconnected(own, 0);
    // Of a network that others have addresses of, too, its own is meant.
    set_peer_address(&mut bench, [192, 0, 2, 99]);
    let own = admin_queue(&mut bench, None).controller;
    let own_connection = bench.last_connection();
    let beside = (0..STORM as u8).map(|last| [192, 0, 2, last]);
    let closed = storm_from(&mut bench, beside, |bench, address| {
        bench.address = address.into();
    });
    assert!(closed.len() > 20 && !closed.contains(&own_connection));
    assert_eq!(authenticate(&mut bench, own), Ok(()));
}

#[test]
fn host_whose_secret_goes_is_not_known_by_its_address_any_more() {
    let mut bench = with_ids(10);
    let first = admin_queue(&mut bench, None).controller;
    assert_eq!(authenticate(&mut bench, first), Ok(()));
    bench.registry.disconnected(first, 0);
    let with_secret = bench.registry.subsystem(NQN).expect("there is one");
    let mut without = with_secret.clone();
    Arc::make_mut(&mut without).terms.clear();
    for subsystem in [without, with_secret] {
        let _ = bench.registry.replace_subsystem(subsystem);
    }
    let _ = admin_queue(&mut bench, None);
    let own_connection = bench.last_connection();
    assert!(storm_from_many(&mut bench).contains(&own_connection));
}

#[test]
fn controller_that_was_closed_for_another_is_not_let_in_by_authentication() {
    let mut bench = roomy();
    let oldest = admin_queue(&mut bench, None).controller;
    let (keys, _) = bench.registry.dhchap(oldest).expect("a secret");
    storm(&mut bench);
    let taken = bench
        .registry
        .authenticated(oldest, &keys.host[0].key, None, NOW);
    assert_eq!(taken, Err(AuthenticationRefusal::Ended));
    // It leaves no place behind, either.
    bench.registry.disconnected(oldest, 0);
    assert_eq!(admin_queue(&mut bench, None).closing.len(), 1);
}

#[test]
fn host_without_a_place_is_refused_when_it_has_authenticated() {
    let mut bench = with_key();
    let waiting = admin_queue(&mut bench, None).controller;
    let own: Vec<_> = (0..CONTROLLERS_MAX).map(|_| by_key(&mut bench)).collect();
    let full = Err(AuthenticationRefusal::TooManyControllers(CONTROLLERS_MAX));
    assert_eq!(authenticate(&mut bench, waiting), full);
    bench.psk_identity = None;
    let refusal = bench.connect(&command(0, 31, 0), &data(0xffff, NQN));
    let refusal = refusal.expect_err("all are there");
    assert_eq!(refusal.status, Status::CONNECT_BUSY);
    // A key goes with its controller, which is not the matter here.
    bench.registry.disconnected(own[0].controller, 0);
    assert!(!has_key(&bench, 1));
    assert_eq!(authenticate(&mut bench, waiting), Ok(()));
    assert_eq!(authenticate(&mut bench, waiting), Ok(()), "once more");
    bench.registry.disconnected(waiting, 0);
    assert!(admin_queue(&mut bench, None).closing.is_empty());
}

#[test]
fn controllers_that_end_for_others_use_up_no_ids_of_other_hosts() {
    const IDS: u16 = 8;
    let mut bench = with_ids(IDS);
    // Nothing that was closed has gone yet.
    let mut waiting = BTreeMap::new();
    let mut ending = Vec::new();
    for last in 0..STORM as u8 {
        set_peer_address(&mut bench, [198, 51, 100, last]);
        match bench.connect(&command(0, 31, 0), &data(0xffff, NQN)) {
            Ok(connected) => {
                waiting.insert(bench.last_connection(), connected.controller);
                for connection in connected.closing {
                    ending.push(waiting.remove(&connection).expect("one that waits"));
                }
            }
            Err(refusal) => assert_eq!(refusal.status, Status::CONNECT_BUSY),
        }
        assert!(!waiting.is_empty());
    }
    assert_eq!(waiting.len() + ending.len(), usize::from(IDS) / 2);
    for _ in 0..IDS / 2 {
        bench.controller_of("nqn.2024-01.org.example:without-a-secret");
    }
    // What has gone counts no more.
    bench.registry.disconnected(ending[0], 0);
    assert_eq!(admin_queue(&mut bench, None).closing.len(), 1);
}

#[test]
fn controllers_that_wait_use_up_no_ids_of_other_hosts() {
    const IDS: u16 = 8;
    let mut bench = bench();
    let mut subsystem = bench.registry.subsystem(NQN).expect("there is one");
    let edited = Arc::make_mut(&mut subsystem);
    edited.cntlids = 1..=IDS;
    let others = (0..5).map(|n| format!("nqn.2024-01.org.example:waiting{n}"));
    let others = Vec::from_iter(others);
    let dhchap = edited.terms[0].dhchap.clone();
    edited.terms.extend(others.iter().map(|nqn| HostTerms {
        dhchap: dhchap.clone(),
        ..HostTerms::new(nqn)
    }));
    let _ = bench.registry.replace_subsystem(subsystem);
    let mut waiting = Vec::new();
    for nqn in others.iter().cycle().take(STORM) {
        let data = ConnectData::new([7; 16], 0xffff, NQN, nqn);
        let connected = bench
            .connect(&command(0, 31, 0), &data)
            .expect("an ID is left");
        waiting.push((bench.last_connection(), connected.controller));
        for closed in connected.closing {
            let at = waiting
                .iter()
                .position(|(connection, _)| *connection == closed);
            let (_, id) = waiting.remove(at.expect("one that waits"));
            bench.registry.disconnected(id, 0);
        }
        assert!(waiting.len() <= usize::from(IDS) / 2);
    }
    for _ in 0..IDS / 2 {
        bench.controller_of("nqn.2024-01.org.example:without-a-secret");
    }
}
