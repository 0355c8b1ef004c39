//! Remote volumes whose keys and secrets change while they are used.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use auth::dhchap::{DhchapHash, DhchapKey};
use auth::psk::{Psk, PskHash};
use auth::{HostDhchap, HostPsk};
use needs::each_driver;
use nvmf::HostTerms;
use nvmf::dhchap::DhchapKeys;
use reactor::{Choice, must_fill_random};
use server::{Change, ChangeError, Config, ConnectionInfo, ConnectionRole, Running, SubsystemSpec};
use store::{Kind, RemoteAt, Spec};
use store_remote::{RemoteTarget, host_identity, parse_url};

use crate::{Desk, PATIENCE, any, config, paths, serve, stop, until, url};

/// By what a host proves itself.
#[derive(Clone)]
struct Credentials {
    psk: HostPsk,
    secret: HostDhchap,
}

impl Credentials {
    fn new() -> Credentials {
        Credentials {
            psk: Psk::new(PskHash::Sha256, must_fill_random).into(),
            secret: DhchapKey::new(DhchapHash::Sha256, &mut must_fill_random).into(),
        }
    }

    fn until(&self, until: Duration) -> Credentials {
        let mut bounded = self.clone();
        (bounded.psk.until, bounded.secret.until) = (Some(until), Some(until));
        bounded
    }
}

/// The subsystem, for which the host has any of these.
fn subsystem(config: &Config, credentials: &[Credentials]) -> SubsystemSpec {
    let host = host_identity(None).hostnqn;
    let dhchap = DhchapKeys {
        host: credentials.iter().map(|one| one.secret.clone()).collect(),
        controller: None,
    };
    SubsystemSpec {
        hosts: Some(vec![host.clone()]),
        terms: vec![HostTerms {
            psks: credentials.iter().map(|one| one.psk.clone()).collect(),
            dhchap: Some(dhchap),
            ..HostTerms::new(&host)
        }],
        ..config.subsystems[0].clone()
    }
}

/// The target takes any of these from now on.
fn rotate(there: &Running, credentials: &[Credentials]) {
    let change = Change::SetSubsystem {
        spec: subsystem(there.config(), credentials),
        sets_ana: false,
    };
    there.change(change).expect("changed");
}

/// The namespace of a target, reached by these.
fn place(there: &Running, credentials: &Credentials) -> RemoteAt {
    let mut host = host_identity(None);
    host.psk = Some(credentials.psk.key.clone().into());
    host.dhchap = Some(DhchapKeys {
        host: vec![credentials.secret.clone()],
        controller: None,
    });
    let urls = there.addresses().into_iter().map(|address| url(address, 1));
    RemoteAt(Arc::new(RemoteTarget {
        urls: urls.map(|url| parse_url(&url).expect("a URL")).collect(),
        host,
        timeout: PATIENCE,
    }))
}

fn set_remote(here: &Running, name: &str, place: RemoteAt) -> Result<(), ChangeError> {
    let name = name.to_owned();
    here.change(Change::SetRemote { name, place })
}

/// Ends every connection of a target.
fn cut(there: &Running) {
    let list = there.connections(|_| true).list;
    let all = list
        .iter()
        .map(|connection| connection.base.connection)
        .collect();
    there.change(Change::EvictConnections(all)).expect("cut");
}

#[each_driver]
fn credentials_of_a_volume_rotate_without_a_failed_io_or_a_lost_connection(backend: Choice) {
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let (old, new) = (Credentials::new(), Credentials::new());
    let mut of_there = config(&folders[0], any(), &["a"]);
    of_there.backend = backend;
    let other_way = SocketAddr::from(([127, 0, 0, 2], 0));
    of_there.listeners.push(other_way.into());
    of_there.subsystems = vec![subsystem(&of_there, std::slice::from_ref(&old))];
    let there = serve(of_there);
    let mut of_here = config(&folders[1], any(), &["file"]);
    of_here.backend = backend;
    let remote = Kind::remote(place(&there, &old));
    of_here.volumes.push(Spec::new("remote", remote, 0, 0));
    let here = serve(of_here);
    let volumes = here.volumes();
    let mut volumes = volumes.iter();
    let volume = volumes.find(|volume| volume.remote().is_some());
    let volume = volume.expect("it is served");
    let (mut desk, mut byte) = (Desk::new(), 0);
    let mut works = || {
        byte += 1;
        desk.write(&**volume, 0, byte, 4096).expect("written");
        assert!(desk.has(&**volume, 0, byte, 4096));
    };
    let connected = || {
        let list = there.connections(|_| true).list;
        let mut at: Vec<u64> = list.iter().map(|one| one.base.connection.pack()).collect();
        at.sort_unstable();
        at
    };
    let both_come = || {
        let has_authenticated = |one: &ConnectionInfo| match one.role {
            ConnectionRole::Queue {
                is_authenticated, ..
            } => is_authenticated,
            _ => false,
        };
        // An Admin Queue and one for I/O, on each way.
        until("both ways are not there", || {
            let list = there.connections(|_| true).list;
            let all_live = paths(volume).iter().all(|path| path.is_live);
            all_live && list.iter().filter(|one| has_authenticated(one)).count() == 4
        });
    };
    let losses = || paths(volume).iter().map(|path| path.losses).sum::<u64>();
    both_come();
    works();
    let first = connected();
    rotate(&there, &[new.clone(), old.until(Duration::MAX)]);
    works();
    // Of two at once the last one holds.
    for credentials in [&Credentials::new(), &new] {
        set_remote(&here, "remote", place(&there, credentials)).expect("taken");
    }
    works();
    rotate(&there, &[new.clone(), old.until(Duration::from_secs(1))]);
    works();
    assert_eq!((connected(), losses()), (first, 0));
    cut(&there);
    until("no loss is told", || losses() == 2);
    both_come();
    works();
    assert!(there.refusals().is_empty(), "{:?}", there.refusals());
    // One that the target does not take is told, and the right one is tried at once.
    set_remote(&here, "remote", place(&there, &old)).expect("taken");
    cut(&there);
    until("it is not told", || {
        paths(volume).iter().all(|path| path.reason.is_some()) && !there.refusals().is_empty()
    });
    set_remote(&here, "remote", place(&there, &new)).expect("taken");
    both_come();
    works();
    let of_another = set_remote(&here, "file", place(&there, &new)).expect_err("no such");
    assert!(of_another.to_string().contains("not on another machine"));
    let unknown = set_remote(&here, "none", place(&there, &new));
    assert!(unknown.is_err(), "{unknown:?}");
    stop(here);
    stop(there);
}
