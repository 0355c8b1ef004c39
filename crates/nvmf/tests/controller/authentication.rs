//! Controllers whose host has to authenticate and has not: they take no place of others.

use std::sync::Arc;

use nvmf::{AuthenticationRefusal, Connected, ControllerId, HostTerms};
use wire::nvme::Status;
use wire::nvme::fabrics::ConnectData;

use crate::bench::{Bench, NQN, command, data};
use crate::generated_keys::{NOW, admin_queue, bench, has_key, make_key};

/// More than wait at a time.
const STORM: usize = 40;
/// How many wait at a time.
const UNPROVEN_MAX: usize = 16;
/// Controllers of a host that has proven itself.
const CONTROLLERS_MAX: u16 = 4;

/// A target with Controller IDs for a storm, whose usual host has a secret.
fn roomy() -> Bench {
    let mut bench = bench();
    let mut subsystem = bench.registry.subsystem(NQN).expect("there is one");
    Arc::make_mut(&mut subsystem).cntlids = 1..=1000;
    let _ = bench.registry.replace_subsystem(subsystem);
    bench
}

/// Connects many times with the NQN of the usual host, and authenticates never. Connections
/// that were closed for that.
fn storm(bench: &mut Bench) -> Vec<u64> {
    let all = (0..STORM).flat_map(|_| admin_queue(bench, None).closing);
    all.collect()
}

fn authenticate(bench: &mut Bench, id: ControllerId) -> Result<(), AuthenticationRefusal> {
    let (keys, _) = bench.registry.dhchap(id).expect("the host has a secret");
    bench.registry.authenticated(id, &keys, None, NOW)
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
    bench.network = [192, 0, 2, 1].into();
    let own = admin_queue(&mut bench, None);
    let own_connection = bench.last_connection();
    bench.network = [192, 0, 2, 99].into();
    assert_eq!(own.closing.len(), 1);
    assert!(!storm(&mut bench).contains(&own_connection));
    assert_eq!(authenticate(&mut bench, own.controller), Ok(()));
    assert_eq!(storm(&mut bench).len(), STORM - 1);
}

#[test]
fn controller_that_was_closed_for_another_is_not_let_in_by_authentication() {
    let mut bench = roomy();
    let oldest = admin_queue(&mut bench, None).controller;
    let (keys, _) = bench.registry.dhchap(oldest).expect("a secret");
    storm(&mut bench);
    let taken = bench.registry.authenticated(oldest, &keys, None, NOW);
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
