//! A document whose secrets are read again: they are taken, and nothing else of it.

use std::sync::Arc;

use ::iscsi::{Auth, Credentials, InitiatorAcl};
use auth::dhchap::{DhchapHash, DhchapKey};
use auth::psk::{Psk, PskHash};
use auth::{HostDhchap, Secret};
use nvmf::dhchap::DhchapKeys;
use server::{IscsiTargetSpec, SubsystemSpec};
use store::{RemoteAt, Spec};
use store_remote::{RemoteTarget, TIMEOUT_DEFAULT, host_identity, parse_url};

use super::*;
use crate::reload::with_secrets_of;

fn psk(byte: u8) -> Psk {
    Psk::new(PskHash::Sha256, |bytes| bytes.fill(byte))
}

/// Two secrets, the second of which is good for a time.
fn dhchap(byte: u8) -> Option<DhchapKeys> {
    let key = |byte: u8| DhchapKey::new(DhchapHash::Sha256, &mut |bytes| bytes.fill(byte));
    let old = HostDhchap {
        key: key(byte + 100),
        until: Some(std::time::Duration::from_secs(byte.into())),
    };
    Some(DhchapKeys {
        host: vec![key(byte).into(), old],
        controller: Some(key(byte + 50)),
    })
}

fn subsystem(nqn: &str, terms: &[HostTerms]) -> SubsystemSpec {
    SubsystemSpec {
        nqn: nqn.to_owned(),
        terms: terms.to_vec(),
        ..SubsystemSpec::default()
    }
}

fn host(nqn: &str, psks: Option<u8>, secrets: Option<u8>) -> HostTerms {
    HostTerms {
        psks: psks.into_iter().map(|byte| psk(byte).into()).collect(),
        dhchap: secrets.and_then(dhchap),
        ..HostTerms::new(nqn)
    }
}

fn taken(served: &[SubsystemSpec], read: &[SubsystemSpec]) -> Vec<SubsystemSpec> {
    let of = |subsystems: &[SubsystemSpec]| Config {
        subsystems: subsystems.to_vec(),
        ..Config::default()
    };
    with_secrets_of(&of(served), &of(read)).subsystems
}

#[test]
fn keys_and_secrets_of_hosts_are_taken_where_a_host_proves_itself_by_the_same() {
    let one = |psks, secrets| [subsystem("s", &[host("h", psks, secrets)])];
    for (served, read) in [
        (one(Some(1), None), one(Some(2), None)),
        (one(None, Some(1)), one(None, Some(2))),
        (one(Some(1), Some(1)), one(Some(2), Some(2))),
        (one(Some(1), Some(1)), one(Some(1), Some(2))),
        (one(Some(1), Some(1)), one(Some(2), Some(1))),
    ] {
        assert_eq!(taken(&served, &read), read);
    }
    // By a key more or less it is another document.
    for (served, read) in [
        (one(Some(1), None), one(Some(2), Some(2))),
        (one(Some(1), Some(1)), one(Some(2), None)),
        (one(None, Some(1)), one(Some(2), Some(2))),
        (one(Some(1), Some(1)), one(None, Some(2))),
        (one(None, None), one(Some(2), None)),
    ] {
        assert_eq!(taken(&served, &read), served);
    }
}

#[test]
fn keys_and_secrets_are_those_of_the_same_host_of_the_same_subsystem() {
    let hosts = |add: u8| {
        [
            host("g", Some(1 + add), None),
            host("h", None, Some(2 + add)),
        ]
    };
    let other = |add: u8| [host("h", None, Some(3 + add))];
    let served = [subsystem("s", &hosts(0)), subsystem("t", &other(0))];
    let [g, h] = hosts(10);
    let read = [subsystem("t", &other(10)), subsystem("s", &[h, g])];
    let wanted = [subsystem("s", &hosts(10)), subsystem("t", &other(10))];
    assert_eq!(taken(&served, &read), wanted);
    // Nothing else of what was read is taken, and what it lacks stays.
    let [_, mut h] = hosts(10);
    h.networks = vec!["192.0.2.0/24".parse().unwrap()];
    let read = [SubsystemSpec {
        serial: "another".to_owned(),
        ..subsystem("s", &[h, host("new", Some(1), None)])
    }];
    let [g, _] = hosts(0);
    let [_, h] = hosts(10);
    let wanted = [subsystem("s", &[g, h]), subsystem("t", &other(0))];
    assert_eq!(taken(&served, &read), wanted);
}

fn user(name: &str, byte: u8) -> Option<Credentials> {
    Some(Credentials {
        user: name.to_owned(),
        secret: Secret::new([byte; 16]),
    })
}

fn auth_of(chap: Option<Credentials>, mutual: Option<Credentials>) -> Auth {
    Auth {
        chap,
        mutual,
        ..Auth::default()
    }
}

#[test]
fn secrets_of_initiators_are_taken_where_user_and_place_are_the_same() {
    let config = |of_target: Auth, name: &str, of_alice: Auth, discovery: Auth| {
        let mut spec = IscsiTargetSpec::new("iqn.2026-01.io.weft:t");
        spec.target.auth = of_target;
        spec.target.acl = vec![InitiatorAcl {
            name: Some(name.to_owned()),
            auth: Some(of_alice),
            ..InitiatorAcl::default()
        }];
        Config {
            iscsi_targets: vec![IscsiTargetSpec::new("iqn.2026-01.io.weft:a"), spec],
            iscsi_discovery: discovery,
            ..Config::default()
        }
    };
    let taken = |served: &Config, read: &Config, wanted: &Config| {
        let taken = with_secrets_of(served, read);
        assert_eq!(taken.iscsi_targets, wanted.iscsi_targets);
        assert_eq!(taken.iscsi_discovery, wanted.iscsi_discovery);
    };
    let both = |add: u8| auth_of(user("a", add), user("weft", add + 1));
    let served = config(both(1), "alice", both(3), both(5));
    let read = config(both(11), "alice", both(13), both(15));
    taken(&served, &read, &read);
    // Another user, another initiator, a secret that there was not.
    let other = auth_of(user("b", 21), None);
    let of_another = config(other.clone(), "bob", both(23), other);
    taken(&served, &of_another, &served);
    let mut without = read.clone();
    without.iscsi_targets.pop();
    without.iscsi_discovery = Auth::default();
    taken(&served, &without, &served);
}

#[test]
fn credentials_of_remote_volumes_are_taken_where_the_place_is_the_same() {
    let there = |name: &str, port: u16, byte: u8| {
        let url = format!("nvme-tcp://192.0.2.1:{port}/nqn.2026-01.org.example:there");
        let mut host = host_identity(None);
        host.psk = Some(psk(byte).into());
        host.dhchap = dhchap(byte);
        let target = RemoteTarget {
            urls: vec![parse_url(&url).unwrap()],
            host,
            timeout: TIMEOUT_DEFAULT,
        };
        Spec::new(name, Kind::remote(RemoteAt(Arc::new(target))), 0, 0)
    };
    let of = |volumes: &[Spec]| Config {
        volumes: volumes.to_vec(),
        ..Config::default()
    };
    let ram = Spec::new("m", Kind::RAM, 1 << 20, 512);
    let served = of(&[ram.clone(), there("a", 1, 1), there("b", 2, 2)]);
    // Nothing else of what was read is taken.
    let larger = Spec {
        size_bytes: 1 << 20,
        ..there("b", 2, 12)
    };
    let read = of(&[there("a", 9, 11), larger, ram.clone()]);
    let wanted = of(&[ram, there("a", 1, 1), there("b", 2, 12)]);
    assert_eq!(with_secrets_of(&served, &read).volumes, wanted.volumes);
}
