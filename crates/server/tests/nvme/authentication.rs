//! Hosts that must authenticate: weft's own initiator, and hosts by hand.

use std::collections::BTreeMap;
use std::time::Duration;

use auth::dhchap::{DhchapGroup, DhchapHash, DhchapKey};
use host::{
    Admin, Caller, Error, HostIdentity, Payload, QueueSettings, RdmaHostSettings, Settings,
};
use needs::each_driver;
use nvmf::HostTerms;
use nvmf::dhchap::host::{Authentication, Next, RECEIVE_BYTES};
use nvmf::dhchap::{DhchapChoice, DhchapKeys};
use nvmf::transport::Transports;
use reactor::{Choice, fill_random};
use server::{Change, Config, Limits, NOT_AUTHENTICATED, Remedy, Running, SubsystemSpec};
use wire::nvme::authentication::{ATR, AuthenticationCommand};
use wire::nvme::property::offset;
use wire::nvme::{PropertyGet, Sqe, Status, io as opcode};

use crate::commands::wait_for;
use crate::common::{BLOCK, HOST, Host, NQN, Queue, config, stop};
use crate::disks::subsystem;
use crate::initiator::driver;
use crate::report::report;

pub fn random(bytes: &mut [u8]) {
    fill_random(bytes).expect("random bytes");
}

pub fn keys(is_mutual: bool) -> DhchapKeys {
    let key = |hash| DhchapKey::new(hash, &mut random);
    DhchapKeys {
        host: vec![key(DhchapHash::Sha256).into()],
        controller: is_mutual.then(|| key(DhchapHash::Sha384)),
    }
}

pub fn quick() -> DhchapChoice {
    DhchapChoice {
        groups: vec![DhchapGroup::Ffdhe2048, DhchapGroup::Null],
        ..DhchapChoice::default()
    }
}

/// The usual subsystem, where the usual host has secrets.
pub fn secured(keys: &DhchapKeys) -> SubsystemSpec {
    SubsystemSpec {
        hosts: Some(vec![HOST.to_owned(), OTHER.to_owned()]),
        terms: vec![HostTerms {
            dhchap: Some(keys.clone()),
            ..HostTerms::new(HOST)
        }],
        dhchap: quick(),
        ..subsystem()
    }
}

/// A host without secrets.
const OTHER: &str = "nqn.2026-01.org.example:open";

pub fn start(backend: Choice, keys: &DhchapKeys) -> Running {
    let mut config = Config {
        subsystems: vec![secured(keys)],
        ..config(backend, Limits::default(), 64 << 20)
    };
    config.listeners[0].rdma.transports = Transports::Both;
    server::start(config).expect("starts")
}

pub fn identity(keys: Option<DhchapKeys>) -> HostIdentity {
    HostIdentity {
        dhchap: keys,
        ..HostIdentity::new(Some(HOST)).expect("random bytes")
    }
}

/// One transaction on a queue by hand.
fn authenticate(queue: &mut Queue, keys: &DhchapKeys, choice: DhchapChoice) -> Next {
    let mut end = Authentication::new((keys.clone(), choice), (HOST, NQN), 5);
    authenticate_by(queue, &mut end)
}

/// The transaction of `end` on a queue by hand.
pub fn authenticate_by(queue: &mut Queue, end: &mut Authentication) -> Next {
    let next = end.begin();
    go_on(queue, end, next)
}

/// The rest of it, from `next` on; a message that is refused with a status fails it.
pub fn go_on(queue: &mut Queue, end: &mut Authentication, mut next: Next) -> Next {
    loop {
        next = match next {
            Next::Send(message) => {
                let sqe = AuthenticationCommand::new(message.len() as u32).encode_send();
                match queue.command(sqe, &message).0 {
                    Status::SUCCESS => end.sent(),
                    status => Next::Failed(status.to_string()),
                }
            }
            Next::Receive => {
                let sqe = AuthenticationCommand::new(RECEIVE_BYTES).encode_receive();
                let message = queue.fetch(sqe, RECEIVE_BYTES).expect("a message");
                end.received(&message, &mut random)
            }
            over => return over,
        }
    }
}

fn get_cap() -> Sqe {
    PropertyGet {
        offset: offset::CAP,
        is_8_bytes: true,
    }
    .encode()
}

#[each_driver]
fn initiator_authenticates_its_admin_and_io_queues(backend: Choice) {
    let by_tcp = QueueSettings::from(Settings::default());
    let by_rdma = RdmaHostSettings::default().into();
    for (is_mutual, settings) in [
        (false, by_tcp),
        (true, by_tcp),
        (false, by_rdma),
        (true, by_rdma),
    ] {
        let keys = keys(is_mutual);
        let running = start(backend, &keys);
        let address = running.addresses()[0];
        let host = identity(Some(keys));
        let admin = Admin::connect(driver(backend), address, NQN, &host, settings, 0);
        let mut admin = admin.expect("admitted");
        admin.set_queue_count(1).expect("granted");
        let seat = (admin.cntlid(), 8);
        let io = Caller::io(driver(backend), address, NQN, &host, settings, seat);
        let mut io = io.expect("admitted");
        let mut write = Sqe::new(opcode::WRITE);
        write.nsid = 1.into();
        write.set_blocks(3, 1);
        io.command("Write", &write, Payload::Out(&[7; BLOCK]))
            .expect("written");
        admin.shutdown().expect("in order");
        assert_eq!(report(&running).authentications, 2);
        assert!(running.refusals().is_empty());
        stop(running);
    }
}

#[each_driver]
fn nothing_but_authentication_is_executed_before_it(backend: Choice) {
    let keys = keys(false);
    let running = start(backend, &keys);
    let address = running.addresses()[0];
    let required = Status::AUTHENTICATION_REQUIRED.dnr();
    let host = Host::at(address);
    let (mut admin, _) = host.queue(0, 0xffff).expect("connected");
    assert_eq!(admin.command(get_cap(), &[]).0, required);
    let identify = Sqe::new(wire::nvme::admin::IDENTIFY);
    assert_eq!(admin.fetch(identify, 4096), Err(required));
    assert_eq!(
        authenticate(&mut admin, &keys, quick()),
        Next::Authenticated
    );
    assert!(admin.command(get_cap(), &[]).0.is_success());
    // A host without secrets has no use for the commands.
    let open = Host {
        hostnqn: OTHER,
        ..host
    };
    let (mut open, _) = open.queue(0, 0xffff).expect("connected");
    assert!(open.command(get_cap(), &[]).0.is_success());
    let send = AuthenticationCommand::new(8).encode_send();
    assert_eq!(
        open.command(send, &[0; 8]).0,
        Status::COMMAND_SEQUENCE.dnr()
    );
    drop((admin, open));
    stop(running);
}

#[each_driver]
fn every_io_queue_authenticates_and_may_do_so_again(backend: Choice) {
    let keys = keys(true);
    let running = start(backend, &keys);
    let host = Host::at(running.addresses()[0]);
    let (mut admin, answer) = host.connected(0, 0xffff);
    assert_eq!(answer & !0xffff, ATR);
    assert_eq!(
        authenticate(&mut admin, &keys, quick()),
        Next::Authenticated
    );
    admin.enable();
    let (mut io, answer) = host.connected(1, answer as u16);
    assert_eq!(answer & !0xffff, ATR);
    assert!(!io.is_alive());
    assert_eq!(io.read(1, 0), Err(Status::AUTHENTICATION_REQUIRED.dnr()));
    assert_eq!(authenticate(&mut io, &keys, quick()), Next::Authenticated);
    for _ in 0..3 {
        assert!(io.write(1, 0, 9).is_success());
        let null = DhchapChoice {
            groups: vec![DhchapGroup::Null],
            ..DhchapChoice::default()
        };
        assert_eq!(authenticate(&mut io, &keys, null), Next::Authenticated);
        assert_eq!(
            authenticate(&mut admin, &keys, quick()),
            Next::Authenticated
        );
    }
    assert_eq!(io.read(1, 0), Ok(vec![9; BLOCK]));
    // One that fails takes the queue along.
    let wrong = self::keys(true);
    assert!(matches!(
        authenticate(&mut io, &wrong, quick()),
        Next::Failed(_)
    ));
    assert_eq!(io.read(1, 0), Err(Status::AUTHENTICATION_REQUIRED.dnr()));
    io.expect_end();
    assert!(admin.command(get_cap(), &[]).0.is_success());
    drop(admin);
    stop(running);
}

#[each_driver]
fn wrong_commands_of_authentication_are_refused_with_their_status(backend: Choice) {
    let keys = keys(false);
    let running = start(backend, &keys);
    let (mut admin, _) = Host::at(running.addresses()[0])
        .queue(0, 0xffff)
        .expect("connected");
    let plain = AuthenticationCommand::new(8);
    let field = Status::INVALID_FIELD.dnr();
    let length = Status::DATA_SGL_LENGTH_INVALID.dnr();
    for (command, status) in [
        (
            AuthenticationCommand {
                secp: 0xea,
                ..plain
            },
            field,
        ),
        (
            AuthenticationCommand {
                spsp: [1, 2],
                ..plain
            },
            field,
        ),
        (
            AuthenticationCommand {
                spsp: [0, 1],
                ..plain
            },
            field,
        ),
        (AuthenticationCommand { len: 0, ..plain }, field),
        (
            AuthenticationCommand {
                len: 1 << 20,
                ..plain
            },
            field,
        ),
        (AuthenticationCommand { len: 9, ..plain }, length),
    ] {
        assert_eq!(admin.command(command.encode_send(), &[0; 8]).0, status);
        assert_eq!(admin.fetch(command.encode_receive(), 8), Err(status));
    }
    let early = admin.fetch(plain.encode_receive(), 8);
    assert_eq!(early, Err(Status::COMMAND_SEQUENCE.dnr()));
    assert_eq!(
        authenticate(&mut admin, &keys, quick()),
        Next::Authenticated
    );
    drop(admin);
    stop(running);
}

#[each_driver]
fn wrong_secret_is_refused_told_and_costs_no_other_anything(backend: Choice) {
    let right = keys(false);
    let running = start(backend, &right);
    let address = running.addresses()[0];
    let settings = Settings::default();
    let connect = |keys| {
        let host = identity(keys);
        Admin::connect(driver(backend), address, NQN, &host, settings, 0)
    };
    let error = |keys| match connect(keys) {
        Err(Error::Unusable(why)) => why,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("admitted"),
    };
    let admin = connect(Some(right.clone())).expect("admitted");
    assert!(error(Some(keys(false))).contains("the controller refuses the host"));
    assert!(error(None).contains("wants the host to authenticate"));
    // A controller that has no secret cannot prove itself.
    let wants_more = DhchapKeys {
        controller: keys(true).controller,
        ..right
    };
    assert!(error(Some(wants_more)).contains("the controller refuses the host"));
    let mut refused = running.refusals();
    // The host without a secret has not tried.
    refused.retain(|one| one.kind != NOT_AUTHENTICATED);
    let reasons: Vec<_> = refused.iter().map(|one| &*one.reason).collect();
    assert!(reasons[0].contains("`--dhchap-secret`"), "{reasons:?}");
    assert!(
        reasons[1].contains("`dhchap_ctrl_secret_file`"),
        "{reasons:?}"
    );
    for one in &refused {
        assert_eq!(
            (one.host.as_deref(), one.remedy),
            (Some(HOST), Remedy::Secret)
        );
    }
    admin.shutdown().expect("in order");
    stop(running);
}

#[each_driver]
fn old_secret_is_good_beside_the_new_one_until_its_time(backend: Choice) {
    let (old, new) = (keys(false), keys(false));
    let running = start(backend, &old);
    let address = running.addresses()[0];
    let connect = |keys: &DhchapKeys| {
        let host = identity(Some(keys.clone()));
        Admin::connect(driver(backend), address, NQN, &host, Settings::default(), 0)
    };
    let both = |until| {
        let mut secrets = [new.host.clone(), old.host.clone()].concat();
        secrets[1].until = Some(until);
        let host = DhchapKeys {
            host: secrets,
            ..new.clone()
        };
        let change = Change::SetSubsystem {
            spec: secured(&host),
            sets_ana: false,
        };
        running.change(change).expect("changed");
    };
    let mut before = connect(&old).expect("the only secret");
    both(Duration::MAX);
    for known in [&old, &new] {
        connect(known)
            .expect("a secret")
            .shutdown()
            .expect("in order");
    }
    both(Duration::from_secs(1));
    connect(&new)
        .expect("the new one")
        .shutdown()
        .expect("in order");
    assert!(connect(&old).is_err());
    let refused = running.refusals();
    assert_eq!(refused.len(), 1, "{refused:?}");
    let why = &refused[0].reason;
    assert!(
        why.contains("has expired: give the host the newer"),
        "{why}"
    );
    assert_eq!(refused[0].remedy, Remedy::Secret);
    before.keep_alive().expect("it stays");
    before.shutdown().expect("in order");
    stop(running);
}

#[each_driver]
fn connections_that_end_before_their_host_has_authenticated_are_told(backend: Choice) {
    let right = keys(false);
    let running = start(backend, &right);
    let host = Host::at(running.addresses()[0]);
    let untried = [(); 3].map(|()| host.queue(0, 0xffff).expect("connected").0);
    let (mut good, _) = host.queue(0, 0xffff).expect("connected");
    assert_eq!(
        authenticate(&mut good, &right, quick()),
        Next::Authenticated
    );
    let (mut wrong, _) = host.queue(0, 0xffff).expect("connected");
    let told = authenticate(&mut wrong, &keys(false), quick());
    assert!(matches!(told, Next::Failed(_)), "{told:?}");
    wrong.expect_end();
    drop((untried, good));
    let counts = || {
        let refused = running.refusals();
        let counts = refused.iter().map(|one| (one.kind.0, one.count));
        counts.collect::<BTreeMap<_, _>>()
    };
    wait_for(|| running.connections(|_| true).list.is_empty());
    let told = BTreeMap::from([(NOT_AUTHENTICATED.0, 3), ("authentication failed", 1)]);
    assert_eq!(counts(), told);
    let refused = running.refusals();
    let untried = refused.iter().find(|one| one.kind == NOT_AUTHENTICATED);
    let why = &untried.expect("told").reason;
    assert!(why.contains("from this machine, as a self-test"), "{why}");
    stop(running);
}

#[each_driver]
fn secret_that_changes_counts_from_the_next_authentication_on(backend: Choice) {
    let (old, new) = (keys(false), keys(true));
    let running = start(backend, &old);
    let host = Host::at(running.addresses()[0]);
    let (mut admin, _) = host.queue(0, 0xffff).expect("connected");
    assert_eq!(authenticate(&mut admin, &old, quick()), Next::Authenticated);
    let change = Change::SetSubsystem {
        spec: secured(&new),
        sets_ana: false,
    };
    running.change(change).expect("changed");
    assert!(admin.command(get_cap(), &[]).0.is_success());
    let (mut second, _) = host.queue(0, 0xffff).expect("connected");
    assert!(matches!(
        authenticate(&mut second, &old, quick()),
        Next::Failed(_)
    ));
    second.expect_end();
    let (mut third, _) = host.queue(0, 0xffff).expect("connected");
    assert_eq!(authenticate(&mut third, &new, quick()), Next::Authenticated);
    assert_eq!(authenticate(&mut admin, &new, quick()), Next::Authenticated);
    drop((admin, third));
    stop(running);
}
