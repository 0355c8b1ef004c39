//! Keys for TLS that a host makes by authentication: how it comes by them, and how they go.

use std::sync::Arc;
use std::time::Duration;

use auth::dhchap::{DhchapHash, DhchapKey};
use auth::psk::{Derivation, Psk, PskHash};
use auth::{HostDhchap, HostPsk, Secret};
use nvmf::dhchap::DhchapKeys;
use nvmf::dhchap::controller::ConcatenationTerms;
use nvmf::queue::InBandAuthentication;
use nvmf::{AdminOutcome, AuthenticationRefusal, Connected, ControllerId, HostTerms};
use wire::nvme::authentication::{ASCR, ATR, Concatenation};
use wire::nvme::feature::fid;
use wire::nvme::identify::cns;
use wire::nvme::{Sqe, Status, admin};

use crate::bench::{Bench, CC_ENABLE, HOST, NQN, command, data};

pub const NOW: Duration = Duration::from_secs(1_800_000_000);

fn key(byte: u8) -> DhchapKey {
    DhchapKey::new(DhchapHash::Sha256, &mut |bytes| bytes.fill(byte))
}

fn secret(byte: u8) -> Option<DhchapKeys> {
    Some(DhchapKeys {
        host: vec![key(byte).into()],
        controller: None,
    })
}

/// The usual subsystem with `terms` of the usual host, and room for `max` of its controllers.
fn set_terms(bench: &mut Bench, terms: HostTerms, max: u16) {
    let mut subsystem = bench.registry.subsystem(NQN).expect("there is one");
    let edited = Arc::make_mut(&mut subsystem);
    edited.terms = vec![terms];
    edited.limits.controllers_of_host_max = max;
    let _ = bench.registry.replace_subsystem(subsystem);
}

/// A target whose usual host has a secret.
pub fn bench() -> Bench {
    let mut bench = Bench::new();
    let dhchap = secret(1);
    let terms = HostTerms {
        dhchap,
        ..HostTerms::new(HOST)
    };
    set_terms(&mut bench, terms, 4);
    bench
}

fn generated(byte: u8) -> Psk {
    Psk::generated(Secret::new([byte; 32])).expect("the length of a key")
}

fn identity(byte: u8) -> String {
    let psk = generated(byte).tls_psk(HOST, NQN, Derivation::Standard);
    psk.identity
}

/// An Admin Queue by the key of `byte`, or without TLS.
pub fn admin_queue(bench: &mut Bench, byte: Option<u8>) -> Connected {
    bench.psk_identity = byte.map(identity);
    let connected = bench.connect(&command(0, 31, 0), &data(0xffff, NQN));
    connected.expect("admitted")
}

pub fn make_key(bench: &mut Bench, id: ControllerId, byte: u8) {
    let (keys, _) = bench.registry.dhchap(id).expect("the host has a secret");
    let psk = generated(byte);
    let taken = bench
        .registry
        .authenticated(id, &keys.host[0].key, Some(&psk), NOW);
    assert_eq!(taken, Ok(()));
}

pub fn has_key(bench: &Bench, byte: u8) -> bool {
    bench.registry.generated_key(&identity(byte)).is_some()
}

#[test]
fn key_that_a_host_has_made_stands_for_its_secret_on_every_queue() {
    let mut bench = bench();
    assert!(bench.registry.has_keys(), "the host may speak TLS");
    let plain = admin_queue(&mut bench, None);
    assert_eq!(plain.authentication, InBandAuthentication::Required);
    assert_eq!(plain.result & !0xffff, ATR);
    let terms = ConcatenationTerms::Allowed(Concatenation::NewTlsPsk);
    assert_eq!(plain.concatenation, terms);
    make_key(&mut bench, plain.controller, 1);
    let key = bench.registry.generated_key(&identity(1)).expect("made");
    assert_eq!(key.until, NOW + Duration::from_secs(3600));
    assert_eq!(key.psk.identity, identity(1));
    assert!(key.psk.identity.starts_with("NVMe1G01 "));
    // The key outlives the controller that it was made on: the next one comes by it.
    bench.registry.disconnected(plain.controller, 0);
    let secured = admin_queue(&mut bench, Some(1));
    assert_eq!(secured.authentication, InBandAuthentication::Allowed);
    assert_eq!(secured.result & !0xffff, 0);
    let terms = ConcatenationTerms::Allowed(Concatenation::ReplaceTlsPsk);
    assert_eq!(secured.concatenation, terms);
    bench.set_cc(secured.controller, CC_ENABLE);
    let queue = bench.io_queue(secured.cntlid, 1).expect("admitted");
    assert_eq!(queue.authentication, InBandAuthentication::Allowed);
    assert_eq!(queue.concatenation, ConcatenationTerms::None);
}

#[test]
fn io_queue_without_tls_is_refused_once_a_key_was_made() {
    let mut bench = bench();
    let plain = admin_queue(&mut bench, None);
    bench.set_cc(plain.controller, CC_ENABLE);
    assert!(bench.io_queue(plain.cntlid, 1).is_ok());
    make_key(&mut bench, plain.controller, 1);
    let refusal = bench.io_queue(plain.cntlid, 2).expect_err("refused");
    assert_eq!(refusal.status.code(), Status::CONNECT_INVALID_HOST);
    assert!(refusal.reason.contains("--concat"), "{}", refusal.reason);
}

#[test]
fn host_that_connects_by_tls_alone_may_come_without_to_make_a_key_and_for_nothing_else() {
    let mut bench = Bench::new();
    let key = HostPsk {
        key: Psk::new(PskHash::Sha256, |bytes| bytes.fill(9)),
        until: None,
    };
    let terms = HostTerms {
        psks: vec![key],
        dhchap: secret(1),
        ..HostTerms::new(HOST)
    };
    set_terms(&mut bench, terms, 4);
    let plain = admin_queue(&mut bench, None);
    assert_eq!(plain.result & !0xffff, ASCR);
    let terms = ConcatenationTerms::Required(Concatenation::NewTlsPsk);
    assert_eq!(plain.authentication, InBandAuthentication::Required);
    assert_eq!(plain.concatenation, terms);
    bench.set_cc(plain.controller, CC_ENABLE);
    assert!(bench.io_queue(plain.cntlid, 1).is_err());
    let protected = on_namespace(
        &mut bench,
        plain.controller,
        admin::SET_FEATURES,
        fid::WRITE_PROTECTION,
    );
    assert_eq!(protected, Status::AUTHENTICATION_REQUIRED.dnr());
    make_key(&mut bench, plain.controller, 1);
    assert!(bench.io_queue(plain.cntlid, 1).is_err());
    let secured = admin_queue(&mut bench, Some(1));
    assert_eq!(secured.authentication, InBandAuthentication::Allowed);
}

/// A command on namespace 1, as far as its status.
fn on_namespace(bench: &mut Bench, id: ControllerId, opcode: u8, fid: u8) -> Status {
    let mut sqe = Sqe::new(opcode);
    sqe.flags = Sqe::PSDT_SGL;
    sqe.nsid = 1.into();
    sqe.cdw10 = u32::from(fid).into();
    // Get LBA Status: of allocated blocks.
    sqe.cdw13 = (0x11 << 24).into();
    match bench.run(id, 1, &sqe, &[], &mut [0; 64]) {
        AdminOutcome::Done(reply) => reply.status,
        _ => Status::SUCCESS,
    }
}

#[test]
fn host_changes_no_namespace_in_the_clear_where_it_makes_a_key() {
    let commands = [
        (admin::SET_FEATURES, fid::WRITE_PROTECTION),
        (admin::SET_FEATURES, fid::RESERVATION_PERSISTENCE),
        (admin::SET_FEATURES, fid::RESERVATION_NOTIFICATION_MASK),
        (admin::GET_LBA_STATUS, 0),
    ];
    let mut bench = bench();
    let plain = admin_queue(&mut bench, None).controller;
    bench.set_cc(plain, CC_ENABLE);
    let statuses =
        |bench: &mut Bench, id| commands.map(|(opcode, fid)| on_namespace(bench, id, opcode, fid));
    let refused = Status::AUTHENTICATION_REQUIRED.dnr();
    assert!(
        !statuses(&mut bench, plain).contains(&refused),
        "no TLS is asked for"
    );
    make_key(&mut bench, plain, 1);
    assert_eq!(statuses(&mut bench, plain), [refused; 4]);
    // What a host of Linux sends before it goes, and comes back by TLS, is executed.
    assert!(bench.identify(plain, cns::CONTROLLER, 0).is_ok());
    assert!(
        bench
            .set_feature(plain, fid::ASYNC_EVENT_CONFIG, 0)
            .status
            .is_success()
    );
    let secured = admin_queue(&mut bench, Some(1)).controller;
    bench.set_cc(secured, CC_ENABLE);
    assert!(!statuses(&mut bench, secured).contains(&refused));
}

#[test]
fn key_goes_with_the_controller_whose_host_speaks_tls_by_it() {
    let mut bench = bench();
    let plain = admin_queue(&mut bench, None);
    make_key(&mut bench, plain.controller, 1);
    let secured = admin_queue(&mut bench, Some(1));
    bench.set_cc(secured.controller, CC_ENABLE);
    bench.io_queue(secured.cntlid, 1).expect("admitted");
    bench.registry.disconnected(secured.controller, 0);
    assert!(has_key(&bench, 1), "an I/O queue is left");
    bench.registry.disconnected(secured.controller, 1);
    assert!(!has_key(&bench, 1));
}

#[test]
fn key_that_replaces_another_is_the_only_one_of_its_controller() {
    let mut bench = bench();
    let plain = admin_queue(&mut bench, None);
    make_key(&mut bench, plain.controller, 1);
    let secured = admin_queue(&mut bench, Some(1));
    for byte in 2..5 {
        make_key(&mut bench, secured.controller, byte);
        let known: Vec<u8> = (1..6).filter(|byte| has_key(&bench, *byte)).collect();
        assert_eq!(known, [byte]);
    }
    bench.registry.disconnected(secured.controller, 0);
    assert!(!has_key(&bench, 4));
}

#[test]
fn keys_go_with_the_secret_that_made_them() {
    let mut bench = bench();
    let plain = admin_queue(&mut bench, None);
    let terms = |dhchap| HostTerms {
        dhchap,
        ..HostTerms::new(HOST)
    };
    make_key(&mut bench, plain.controller, 1);
    set_terms(&mut bench, terms(secret(1)), 5);
    assert!(has_key(&bench, 1), "the secret is the same");
    set_terms(&mut bench, terms(secret(2)), 5);
    assert!(!has_key(&bench, 1));
    make_key(&mut bench, plain.controller, 2);
    set_terms(&mut bench, terms(None), 5);
    assert!(!has_key(&bench, 2));
    set_terms(&mut bench, terms(secret(2)), 5);
    make_key(&mut bench, plain.controller, 3);
    let _ = bench.registry.remove_subsystem(NQN);
    assert!(!has_key(&bench, 3));
}

#[test]
fn old_secret_and_keys_that_it_made_are_good_beside_a_new_one_until_its_time() {
    let mut bench = bench();
    let id = admin_queue(&mut bench, None).controller;
    make_key(&mut bench, id, 1);
    let over = NOW + Duration::from_secs(10);
    let old = HostDhchap {
        key: key(1),
        until: Some(over),
    };
    let terms = |host| HostTerms {
        dhchap: Some(DhchapKeys {
            host,
            controller: None,
        }),
        ..HostTerms::new(HOST)
    };
    set_terms(&mut bench, terms(vec![key(2).into(), old.clone()]), 4);
    assert!(has_key(&bench, 1), "the secret that made it is the host's");
    let identity = identity(1);
    let known = bench.registry.generated_key(&identity).expect("known");
    assert_eq!(known.until, over, "no longer than its secret");
    let expired = Err(AuthenticationRefusal::ExpiredSecret);
    let other = Err(AuthenticationRefusal::OtherSecret);
    for (byte, now, taken) in [
        (1, over - Duration::from_secs(1), Ok(())),
        (1, over, expired),
        (2, over, Ok(())),
        (3, over, other),
    ] {
        let psk = generated(byte + 10);
        let told = bench
            .registry
            .authenticated(id, &key(byte), Some(&psk), now);
        assert_eq!(told, taken, "secret {byte}");
    }
    let known: Vec<u8> = (1..20).filter(|byte| has_key(&bench, *byte)).collect();
    assert_eq!(known, [1, 11, 12], "an expired secret makes no key");
    // Each goes with its own.
    set_terms(&mut bench, terms(vec![key(2).into()]), 4);
    let known: Vec<u8> = (1..20).filter(|byte| has_key(&bench, *byte)).collect();
    assert_eq!(known, [12]);
    let told = bench.registry.authenticated(id, &key(1), None, NOW);
    assert_eq!(told, other);
    // One that comes back has none of the keys that it made before.
    set_terms(&mut bench, terms(vec![key(2).into(), key(1).into()]), 4);
    let known: Vec<u8> = (1..20).filter(|byte| has_key(&bench, *byte)).collect();
    assert_eq!(known, [12]);
}

#[test]
fn secret_that_a_host_has_twice_is_good_as_long_as_the_longer() {
    let mut bench = bench();
    let id = admin_queue(&mut bench, None).controller;
    let over = HostDhchap {
        key: key(1),
        until: Some(NOW),
    };
    let twice = [over, key(1).into()];
    for host in [twice.to_vec(), twice.iter().rev().cloned().collect()] {
        let dhchap = Some(DhchapKeys {
            host,
            controller: None,
        });
        let terms = HostTerms {
            dhchap,
            ..HostTerms::new(HOST)
        };
        set_terms(&mut bench, terms, 4);
        make_key(&mut bench, id, 1);
        let known = bench.registry.generated_key(&identity(1)).expect("known");
        assert_eq!(known.until, NOW + Duration::from_secs(3600));
    }
}

#[test]
fn secret_that_was_replaced_amid_authentication_makes_no_key() {
    let mut bench = bench();
    let id = admin_queue(&mut bench, None).controller;
    for dhchap in [secret(2), None] {
        let terms = HostTerms {
            dhchap,
            ..HostTerms::new(HOST)
        };
        set_terms(&mut bench, terms, 4);
        for psk in [Some(generated(1)), None] {
            let taken = bench.registry.authenticated(id, &key(1), psk.as_ref(), NOW);
            assert_eq!(taken, Err(AuthenticationRefusal::OtherSecret));
        }
        assert!(!has_key(&bench, 1));
    }
}

#[test]
fn secret_of_the_controller_that_is_replaced_amid_authentication_refuses_no_host() {
    let mut bench = bench();
    let id = admin_queue(&mut bench, None).controller;
    for replaced in [Some(key(2)), None] {
        let (old, _) = bench.registry.dhchap(id).expect("the host has a secret");
        let dhchap = Some(DhchapKeys {
            controller: replaced,
            ..old
        });
        let terms = HostTerms {
            dhchap,
            ..HostTerms::new(HOST)
        };
        set_terms(&mut bench, terms, 4);
        let taken = bench.registry.authenticated(id, &key(1), None, NOW);
        assert_eq!(taken, Ok(()), "the host's own is the same");
    }
}

#[test]
fn keys_go_with_their_host_when_its_controllers_are_ended() {
    let mut bench = bench();
    let plain = admin_queue(&mut bench, None);
    let connection = bench.last_connection();
    make_key(&mut bench, plain.controller, 1);
    let change = bench.registry.end_controllers_of(&[connection].into());
    assert_eq!(change.closing, [connection]);
    assert!(!has_key(&bench, 1));
    let psk = generated(2);
    let taken = bench
        .registry
        .authenticated(plain.controller, &key(1), Some(&psk), NOW);
    assert_eq!(taken, Err(AuthenticationRefusal::Ended));
    assert!(!has_key(&bench, 2));
}

#[test]
fn host_has_as_many_keys_as_controllers_at_most() {
    let mut bench = bench();
    let plain = admin_queue(&mut bench, None);
    for byte in 1..=9 {
        make_key(&mut bench, plain.controller, byte);
        make_key(&mut bench, plain.controller, byte);
    }
    let known: Vec<u8> = (1..10).filter(|byte| has_key(&bench, *byte)).collect();
    assert_eq!(known, [6, 7, 8, 9], "the oldest go first");
}

#[test]
fn keys_of_a_host_are_forgotten_without_its_controllers() {
    let mut bench = bench();
    let plain = admin_queue(&mut bench, None).controller;
    make_key(&mut bench, plain, 1);
    make_key(&mut bench, plain, 2);
    bench.registry.disconnected(plain, 0);
    assert_eq!(bench.registry.generated_keys_of(HOST), 2);
    bench
        .registry
        .forget_generated_keys("nqn.2024-01.org.example:other");
    assert_eq!(bench.registry.generated_keys_of(HOST), 2);
    bench.registry.forget_generated_keys(HOST);
    assert_eq!(bench.registry.generated_keys_of(HOST), 0);
    assert!(!has_key(&bench, 1) && !has_key(&bench, 2));
}
