//! Hosts that make their keys for TLS by authentication: weft's own initiator, and hosts by hand.

use auth::HostPsk;
use auth::psk::{Psk, PskHash};
use host::{Admin, Caller, Error, HostIdentity, Payload, QueueParams, Settings};
use needs::each_driver;
use nvmf::HostTerms;
use nvmf::dhchap::DhchapKeys;
use nvmf::dhchap::host::{Authentication, Next, RECEIVE_BYTES};
use nvmf::transport::Transports;
use reactor::{AnyDriver, Choice};
use server::{Change, Config, Limits, Running, SubsystemSpec};
use std::net::SocketAddr;
use std::time::Instant;
use wire::nvme::authentication::{AuthenticationCommand, Concatenation};
use wire::nvme::fabrics::ConnectData;
use wire::nvme::property::offset;
use wire::nvme::{ConnectCommand, PropertyGet, Sqe, Status, io as opcode};

use crate::authentication::{
    authenticate_by, go_on, identity, keys, quick, random, secured, start,
};
use crate::commands::wait_for;
use crate::common::{BLOCK, HOST, Host, NQN, config, stop};
use crate::initiator::driver;
use crate::rdma_host::{Data, RdmaQueue};
use crate::report::report;
use crate::running::PATIENCE;

/// The usual host, which makes its keys.
fn concatenating(keys: &DhchapKeys) -> HostIdentity {
    HostIdentity {
        concatenates: true,
        ..identity(Some(keys.clone()))
    }
}

fn connect(
    backend: Choice,
    to: SocketAddr,
    host: &HostIdentity,
) -> Result<Admin<AnyDriver>, Error> {
    Admin::connect(driver(backend), to, NQN, host, Settings::default(), 0)
}

/// Why there is no connection.
fn refused(backend: Choice, to: SocketAddr, host: &HostIdentity) -> String {
    let refused = connect(backend, to, host).map(drop);
    refused.expect_err("refused").to_string()
}

/// A block goes there and comes back by an I/O queue of the controller.
fn moves_data(backend: Choice, to: SocketAddr, admin: &mut Admin<AnyDriver>) {
    admin.set_queue_count(1).expect("granted");
    let (settings, seat) = (Settings::default(), (admin.cntlid(), 8));
    let io = Caller::io(driver(backend), to, NQN, admin.host(), settings, seat);
    let mut io = io.expect("admitted");
    let mut sqe = Sqe::new(opcode::WRITE);
    sqe.nsid = 1.into();
    sqe.set_blocks(3, 1);
    let written = [7; BLOCK];
    io.command("Write", &sqe, Payload::Out(&written))
        .expect("written");
    sqe.opcode = opcode::READ;
    let mut read = [0; BLOCK];
    io.command("Read", &sqe, Payload::In(&mut read))
        .expect("read");
    assert_eq!(read, written);
}

fn reasons(running: &Running) -> Vec<String> {
    let refusals = running.refusals();
    refusals.iter().map(|one| one.reason.to_string()).collect()
}

#[each_driver]
fn initiator_makes_its_key_by_authentication_and_speaks_tls_by_it(backend: Choice) {
    for is_mutual in [false, true] {
        let keys = keys(is_mutual);
        let running = start(backend, &keys);
        let to = running.addresses()[0];
        let mut admin = connect(backend, to, &concatenating(&keys)).expect("admitted");
        moves_data(backend, to, &mut admin);
        assert_eq!(report(&running).authentications, 1, "the key stands for it");
        assert_eq!(reasons(&running), [] as [&str; 0]);
        // The key is this controller's, and goes with it.
        let by_key = admin.host().clone();
        admin.shutdown().expect("in order");
        let since = Instant::now();
        while connect(backend, to, &by_key).is_ok() {
            assert!(since.elapsed() < PATIENCE, "the key stays");
        }
        assert!(refused(backend, to, &by_key).contains("TLS"));
        let told = reasons(&running);
        assert!(told[0].contains("no host has the TLS identity"), "{told:?}");
        assert!(told[0].contains("NVMe1G02"), "{told:?}");
        stop(running);
    }
}

#[each_driver]
fn host_with_another_secret_makes_no_key(backend: Choice) {
    let running = start(backend, &keys(false));
    let to = running.addresses()[0];
    let why = refused(backend, to, &concatenating(&keys(false)));
    assert!(why.contains("the controller refuses the host"), "{why}");
    // It cannot be told to go on without, either.
    let open = HostIdentity {
        concatenates: true,
        ..HostIdentity::new(Some("nqn.2026-01.org.example:open")).expect("random bytes")
    };
    let why = refused(backend, to, &open);
    assert!(why.contains("wants no authentication"), "{why}");
    stop(running);
}

/// The usual host has a key for TLS and secrets.
fn by_tls_alone(backend: Choice, keys: &DhchapKeys, psk: &Psk) -> Config {
    let psks = vec![HostPsk {
        key: psk.clone(),
        until: None,
    }];
    let terms = HostTerms {
        psks,
        dhchap: Some(keys.clone()),
        ..HostTerms::new(HOST)
    };
    Config {
        subsystems: vec![SubsystemSpec {
            terms: vec![terms],
            ..secured(keys)
        }],
        ..config(backend, Limits::default(), 64 << 20)
    }
}

#[each_driver]
fn host_that_speaks_tls_alone_comes_by_authentication_too(backend: Choice) {
    let keys = keys(true);
    let psk = Psk::new(PskHash::Sha256, |bytes| bytes.fill(9));
    let config = by_tls_alone(backend, &keys, &psk);
    let running = server::start(config).expect("starts");
    let to = running.addresses()[0];
    let why = refused(backend, to, &identity(Some(keys.clone())));
    assert!(why.contains("--concat"), "{why}");
    // One that does not ask for a key may end its connection without a word.
    let told = || {
        let reasons = reasons(&running).into_iter();
        reasons.filter(|why| why.contains("ends before")).collect()
    };
    drop(Host::at(to).queue(0, 0xffff).expect("connected"));
    wait_for(|| !Vec::<String>::is_empty(&told()));
    assert!(told()[0].contains("--concat"), "{:?}", told());
    for host in [
        concatenating(&keys),
        HostIdentity {
            psk: Some(psk.into()),
            ..identity(Some(keys.clone()))
        },
    ] {
        let mut admin = connect(backend, to, &host).expect("admitted");
        moves_data(backend, to, &mut admin);
    }
    stop(running);
}

/// An Admin Queue by hand, with TLS.
fn admin_queue(backend: Choice, to: SocketAddr, psk: &Psk) -> Result<Caller<AnyDriver>, Error> {
    let host = identity(None);
    let params = QueueParams {
        settings: Settings::default().into(),
        connect: ConnectCommand {
            recfmt: 0,
            qid: 0,
            sqsize: 31,
            cattr: 0,
            kato_ms: 0,
        },
        connect_data: ConnectData::new(host.hostid, 0xffff, NQN, &host.hostnqn),
        in_capsule_max: 8192,
        psk: Some(psk.clone().into()),
        dhchap: None,
    };
    Ok(Caller::open(driver(backend), to, params)?.0)
}

/// Authenticates once more on a queue with TLS, for another key.
fn replaced(queue: &mut Caller<AnyDriver>, keys: &DhchapKeys) -> Psk {
    let end = Authentication::new((keys.clone(), quick()), (HOST, NQN), 6);
    let mut end = end.concatenating(Concatenation::ReplaceTlsPsk);
    let mut next = end.begin();
    loop {
        next = match next {
            Next::Send(message) => {
                let sqe = AuthenticationCommand::new(message.len() as u32).encode_send();
                queue
                    .command("Authentication Send", &sqe, Payload::Out(&message))
                    .expect("taken");
                end.sent()
            }
            Next::Receive => {
                let sqe = AuthenticationCommand::new(RECEIVE_BYTES).encode_receive();
                let mut message = vec![0; RECEIVE_BYTES as usize];
                queue
                    .command("Authentication Receive", &sqe, Payload::In(&mut message))
                    .expect("a message");
                end.received(&message, &mut random)
            }
            Next::Authenticated => return end.psk().cloned().expect("made"),
            Next::Failed(why) => panic!("{why}"),
        }
    }
}

/// The first key of a host, on an Admin Queue by hand without TLS.
fn first_key(to: SocketAddr, keys: &DhchapKeys) -> Psk {
    let (mut plain, _) = Host::at(to).queue(0, 0xffff).expect("connected");
    let end = Authentication::new((keys.clone(), quick()), (HOST, NQN), 5);
    let mut end = end.concatenating(Concatenation::NewTlsPsk);
    assert_eq!(authenticate_by(&mut plain, &mut end), Next::Authenticated);
    end.psk().cloned().expect("made")
}

#[each_driver]
fn key_that_was_replaced_opens_nothing_and_costs_no_connection(backend: Choice) {
    let keys = keys(true);
    let running = start(backend, &keys);
    let to = running.addresses()[0];
    let first = first_key(to, &keys);
    let mut admin = admin_queue(backend, to, &first).expect("admitted");
    let second = replaced(&mut admin, &keys);
    assert!(admin_queue(backend, to, &first).is_err());
    assert!(admin_queue(backend, to, &second).is_ok());
    let status = PropertyGet {
        offset: offset::CSTS,
        is_8_bytes: false,
    };
    admin
        .command("Property Get", &status.encode(), Payload::None)
        .expect("the connection goes on");
    stop(running);
}

#[each_driver]
fn keys_of_a_secret_that_changed_open_nothing_and_cost_no_connection(backend: Choice) {
    let (old, new) = (keys(false), keys(false));
    let running = start(backend, &old);
    let to = running.addresses()[0];
    let mut admin = connect(backend, to, &concatenating(&old)).expect("admitted");
    let change = Change::SetSubsystem {
        spec: secured(&new),
        sets_ana: false,
    };
    running.change(change).expect("changed");
    admin.keep_alive().expect("the connection goes on");
    assert!(refused(backend, to, admin.host()).contains("TLS"));
    assert!(connect(backend, to, &concatenating(&old)).is_err());
    assert!(connect(backend, to, &concatenating(&new)).is_ok());
    stop(running);
}

#[each_driver]
fn host_is_told_that_its_secret_was_replaced_amid_a_transaction_and_makes_no_key(backend: Choice) {
    for is_mutual in [false, true] {
        let (old, new) = (keys(is_mutual), keys(is_mutual));
        let running = start(backend, &old);
        let to = running.addresses()[0];
        let (mut plain, _) = Host::at(to).queue(0, 0xffff).expect("connected");
        let end = Authentication::new((old, quick()), (HOST, NQN), 5);
        let mut end = end.concatenating(Concatenation::NewTlsPsk);
        let Next::Send(negotiate) = end.begin() else {
            panic!("the host begins");
        };
        let sqe = AuthenticationCommand::new(negotiate.len() as u32).encode_send();
        assert!(plain.command(sqe, &negotiate).0.is_success());
        let next = end.sent();
        let change = Change::SetSubsystem {
            spec: secured(&new),
            sets_ana: false,
        };
        running.change(change).expect("changed");
        let Next::Failed(why) = go_on(&mut plain, &mut end, next) else {
            panic!("the host takes it that it has authenticated");
        };
        // Behind DH-HMAC-CHAP_Success2 no message comes any more.
        let of_status = Status::AUTHENTICATION_REQUIRED.dnr().to_string();
        assert_eq!(why == of_status, is_mutual, "{why}");
        plain.expect_end();
        if let Some(psk) = end.psk() {
            assert!(admin_queue(backend, to, psk).is_err());
        }
        let told = reasons(&running);
        assert!(told[0].contains("secret has changed"), "{told:?}");
        assert_eq!(report(&running).authentications, 0);
        assert!(connect(backend, to, &concatenating(&new)).is_ok());
        stop(running);
    }
}

/// RDMA has no TLS: what a host sent behind the key would go in the clear.
#[each_driver]
fn host_by_rdma_makes_no_key(backend: Choice) {
    let keys = keys(true);
    let running = start(backend, &keys);
    let (mut queue, _) = RdmaQueue::connect(running.addresses()[0], 0, 0xffff).expect("connected");
    let end = Authentication::new((keys.clone(), quick()), (HOST, NQN), 5);
    let mut end = end.concatenating(Concatenation::NewTlsPsk);
    let mut next = end.begin();
    let why = loop {
        next = match next {
            Next::Send(message) => {
                let sqe = AuthenticationCommand::new(message.len() as u32).encode_send();
                let (status, ..) = queue.command(sqe, Data::Read(&message));
                assert_eq!(status, Status::SUCCESS);
                end.sent()
            }
            Next::Receive => {
                let sqe = AuthenticationCommand::new(RECEIVE_BYTES).encode_receive();
                let (_, _, message) = queue.command(sqe, Data::Written(RECEIVE_BYTES));
                end.received(&message, &mut random)
            }
            Next::Authenticated => panic!("it has a key"),
            Next::Failed(why) => break why,
        };
    };
    assert!(why.contains("concatenation mismatch"), "{why}");
    let told = reasons(&running);
    assert!(told[0].contains("by TCP alone"), "{told:?}");
    stop(running);
    // Nor is it let in to make one, where it may come by TLS alone.
    let psk = Psk::new(PskHash::Sha256, |bytes| bytes.fill(9));
    let mut config = by_tls_alone(backend, &keys, &psk);
    config.listeners[0].rdma.transports = Transports::Both;
    let running = server::start(config).expect("starts");
    let connected = RdmaQueue::connect(running.addresses()[0], 0, 0xffff);
    let status = connected.map(drop).expect_err("refused");
    assert_eq!(status, Status::CONNECT_INVALID_HOST.dnr());
    let told = reasons(&running);
    assert!(told[0].contains("which RDMA has not"), "{told:?}");
    stop(running);
}
