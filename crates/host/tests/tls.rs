//! The initiator speaks TLS with a target in the same process.
#![allow(missing_docs)]

#[path = "shared/ends.rs"]
mod ends;

use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use auth::HostPsk;
use auth::psk::{Derivation, Psk, PskHash, TlsPsk};
use ends::{driver, stop};
use host::{Admin, Caller, Error, HostIdentity, Payload, RdmaHostSettings, Settings, discover};
use link::HANDSHAKE_UNITS;
use machine::work::TURN_UNITS_MAX;
use nvmf::HostTerms;
use reactor::{Choice, EpollDriver};
use server::{Change, Config, Limits, ListenerSpec, NamespaceSpec, Running, SubsystemSpec};
use tls::psk_handshake::{KnownPsks, PskHandshake};
use tls::{HandshakeError, ProvenPeer};
use wire::nvme::{Sqe, Status, io};

const NQN: &str = "nqn.2026-01.io.weft:test";
const FRIEND: &str = "nqn.2026-01.org.example:friend";
const GUEST: &str = "nqn.2026-01.org.example:guest";
const SIZE: u64 = 8 << 20;
/// Long enough for a loaded machine; reached only when a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

fn key(hash: PskHash, byte: u8) -> Psk {
    Psk::new(hash, |bytes| bytes.fill(byte))
}

fn host(nqn: &str, psk: Option<Psk>) -> HostIdentity {
    let host = HostIdentity::new(Some(nqn)).expect("random bytes");
    let psk = psk.map(Into::into);
    HostIdentity { psk, ..host }
}

/// A target where one host has keys, and another none. The second listener takes TLS alone.
fn serve(psks: Vec<HostPsk>, backend: Choice) -> Running {
    serve_with(psks, backend, Limits::default())
}

fn serve_with(psks: Vec<HostPsk>, backend: Choice, limits: Limits) -> Running {
    let listener = |requires_tls| ListenerSpec {
        requires_tls,
        ..ListenerSpec::from(SocketAddr::from(([127, 0, 0, 1], 0)))
    };
    let config = Config {
        volumes: vec![store::Spec::new("a", store::Kind::RAM, SIZE, 4096)],
        subsystems: vec![SubsystemSpec {
            nqn: NQN.into(),
            serial: "S1".into(),
            model: "model".into(),
            hosts: Some(vec![FRIEND.into(), GUEST.into()]),
            terms: vec![HostTerms {
                psks,
                ..HostTerms::new(FRIEND)
            }],
            namespaces: vec![NamespaceSpec {
                nsid: 1,
                volume: "a".into(),
                ..NamespaceSpec::default()
            }],
            ..SubsystemSpec::default()
        }],
        listeners: vec![listener(false), listener(true)],
        cpus: vec![reactor::available_cpus()[0]],
        spin_us_max: 0,
        memory_max: 64 << 20,
        backend,
        limits,
        ..Config::default()
    };
    server::start(config).expect("the target starts")
}

fn settings(digests: bool) -> Settings {
    Settings {
        header_digest: digests,
        data_digest: digests,
        ..Settings::default()
    }
}

/// No connection is tried.
#[test]
fn key_for_tls_is_refused_by_rdma_with_the_remedy() {
    let has_key = host(FRIEND, Some(key(PskHash::Sha256, 1)));
    let makes_key = HostIdentity {
        concatenates: true,
        ..host(FRIEND, None)
    };
    let to = SocketAddr::from(([127, 0, 0, 1], 1));
    for host in [has_key, makes_key] {
        let settings = RdmaHostSettings::default();
        let refused = Admin::connect(driver(), to, NQN, &host, settings, 10_000).err();
        let told = refused.expect("RDMA has no TLS").to_string();
        assert!(
            told.starts_with("NVMe/RDMA has no TLS") && told.contains("nvme-tcp://"),
            "{told}"
        );
    }
}

fn connect(to: SocketAddr, host: &HostIdentity) -> Result<Admin<EpollDriver>, Error> {
    Admin::connect(driver(), to, NQN, host, settings(false), 10_000)
}

/// Writes and reads pieces of many sizes, and compares them.
fn moves_data(to: SocketAddr, host: &HostIdentity, digests: bool) {
    let admin = Admin::connect(driver(), to, NQN, host, settings(digests), 10_000);
    let mut admin = admin.expect("connects");
    admin.set_queue_count(1).expect("a queue");
    let queue = (admin.cntlid(), 16);
    let line = Caller::io(driver(), to, NQN, host, settings(digests), queue);
    let mut line = line.expect("connects");
    let mut fill = 0u32;
    for blocks in [1u64, 2, 3, 4, 5, 16, 33, 64, 256] {
        let len = blocks as usize * 4096;
        let data: Vec<u8> = (0..len as u32)
            .map(|n| (n.wrapping_mul(31).wrapping_add(fill) >> 3) as u8)
            .collect();
        fill += 12_345;
        let mut sqe = Sqe::new(io::WRITE);
        sqe.nsid = 1.into();
        sqe.cdw10 = (blocks as u32 * 3).into();
        sqe.cdw12 = (blocks as u32 - 1).into();
        line.command("Write", &sqe, Payload::Out(&data))
            .expect("written");
        sqe.opcode = io::READ;
        let mut read = vec![0; len];
        line.command("Read", &sqe, Payload::In(&mut read))
            .expect("read");
        assert!(read == data, "{blocks} blocks");
    }
    admin.keep_alive().expect("alive");
}

fn one_key(psk: &Psk) -> Vec<HostPsk> {
    let (psk, until) = (psk.clone(), None);
    vec![HostPsk { key: psk, until }]
}

#[test]
fn data_of_every_size_passes() {
    for (hash, backend) in [
        (PskHash::Sha256, Choice::Epoll),
        (PskHash::Sha384, Choice::Auto),
    ] {
        let psk = key(hash, 7);
        let running = serve(one_key(&psk), backend);
        let host = host(FRIEND, Some(psk));
        for to in running.addresses() {
            moves_data(to, &host, false);
            moves_data(to, &host, true);
        }
        stop(running);
    }
}

#[test]
fn peer_that_leaves_amid_a_handshake_is_told_from_one_that_leaves_later() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = listener.local_addr().expect("an address");
    let leaves = thread::spawn(move || {
        // The first host says its key by an identity of each version.
        for _ in 0..3 {
            let (mut peer, _) = listener.accept().expect("a host");
            let said = peer.read(&mut [0; 4096]).expect("a hello or ICReq");
            assert!(said > 0);
        }
    });
    let why = |host: &HostIdentity| connect(to, host).err().expect("no answer").to_string();
    let told = why(&host(FRIEND, Some(key(PskHash::Sha256, 7))));
    assert!(told.contains("closed amid the handshake"), "{told}");
    assert!(told.contains("by the identity of version 0"), "{told}");
    let told = why(&host(FRIEND, None));
    assert_eq!(told, Error::Closed.to_string());
    leaves.join().expect("both have come");
}

/// A target that has one key, by one identity.
struct KnownOne(TlsPsk);

impl KnownPsks for KnownOne {
    fn psks_of(&self, identity: &str) -> Vec<TlsPsk> {
        let known = (self.0.identity == identity).then(|| self.0.clone());
        known.into_iter().collect()
    }

    fn has_any(&self) -> bool {
        true
    }
}

/// Makes a handshake with the next that connects, and closes: by which identity it has proved its
/// key.
fn accept_by(listener: &TcpListener, known: &TlsPsk) -> Result<String, HandshakeError> {
    let (mut peer, _) = listener.accept().expect("a host");
    let mut handshake = PskHandshake::server(Arc::new(KnownOne(known.clone())));
    let mut bytes = [0; 4096];
    loop {
        let len = peer.read(&mut bytes).expect("more of the handshake");
        let step = handshake.step(&bytes[..len]);
        peer.write_all(&step.output).expect("the host reads");
        match step.end.transpose()?.map(|secured| secured.peer) {
            None => {}
            Some(ProvenPeer::Psk(psk)) => return Ok(psk.identity),
            Some(ProvenPeer::Certificate(_)) => panic!("no certificate is asked for"),
        }
    }
}

#[test]
fn target_that_knows_identities_of_version_0_alone_gets_one() {
    for hash in PskHash::ALL {
        let psk = key(hash, 7);
        let by_1 = psk.tls_psk(FRIEND, NQN, Derivation::Standard).identity;
        let by_0 = psk.tls_psk_version_0(FRIEND, NQN, Derivation::Standard);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("an address");
        let known = by_0.clone();
        let target = thread::spawn(move || [(); 2].map(|()| accept_by(&listener, &known)));
        let end = connect(to, &host(FRIEND, Some(psk))).err();
        // Both have their keys, and the target leaves.
        assert!(matches!(end, Some(Error::Closed)), "{end:?}");
        let said = target.join().expect("both have come");
        let refused = Err(HandshakeError::UnknownIdentity(by_1));
        assert_eq!(said, [refused, Ok(by_0.identity)]);
    }
}

#[test]
fn hosts_with_and_without_keys_share_a_listener() {
    let psk = key(PskHash::Sha256, 7);
    let running = serve(one_key(&psk), Choice::Auto);
    let [both, tls_alone] = running.addresses()[..] else {
        panic!("two listeners");
    };
    moves_data(both, &host(GUEST, None), false);
    moves_data(both, &host(FRIEND, Some(psk.clone())), false);
    // A host with a key uses it.
    match connect(both, &host(FRIEND, None)) {
        Err(Error::Refused { status, .. }) => {
            assert_eq!(status.code(), Status::CONNECT_INVALID_HOST);
        }
        other => panic!("{:?}", other.err()),
    }
    assert!(connect(tls_alone, &host(GUEST, None)).is_err());
    let told = |to, host: &HostIdentity| {
        let entries = discover(driver(), to, host, settings(false)).expect("a log");
        let ports = entries.iter().filter(|entry| entry.subnqn == NQN);
        ports.map(|entry| entry.trsvcid.clone()).collect::<Vec<_>>()
    };
    let friend = host(FRIEND, Some(psk));
    assert_eq!(told(both, &host(GUEST, None)).len(), 2);
    assert_eq!(told(tls_alone, &friend).len(), 2);
    stop(running);
}

#[test]
fn hosts_without_a_table_connect_by_the_key_of_any_host() {
    let (own, any) = (key(PskHash::Sha256, 7), key(PskHash::Sha384, 8));
    let running = serve(one_key(&own), Choice::Auto);
    let spec = running.shared().served().subsystems.remove(0);
    let mut spec = SubsystemSpec {
        hosts: None,
        ..spec
    };
    spec.terms.push(HostTerms {
        psks: one_key(&any),
        ..HostTerms::new(HostTerms::ANY_HOST)
    });
    let sets_ana = false;
    let change = Change::SetSubsystem { spec, sets_ana };
    running.change(change).expect("it may change");
    let to = running.addresses()[0];
    for nqn in [GUEST, "nqn.2026-01.org.example:never-named"] {
        moves_data(to, &host(nqn, Some(any.clone())), false);
        let entries = discover(driver(), to, &host(nqn, None), settings(false)).expect("a log");
        let entry = entries.iter().find(|entry| entry.subnqn == NQN);
        assert_eq!(entry.expect("it is named").treq & 3, 1, "a secure channel");
        assert!(connect(to, &host(nqn, None)).is_err(), "in the clear");
        assert!(connect(to, &host(nqn, Some(own.clone()))).is_err());
    }
    moves_data(to, &host(FRIEND, Some(own)), false);
    assert!(connect(to, &host(FRIEND, Some(any))).is_err(), "its own");
    stop(running);
}

#[test]
fn wrong_expired_and_foreign_keys_open_nothing() {
    let (right, old) = (key(PskHash::Sha384, 1), key(PskHash::Sha384, 2));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("later");
    let keys = vec![
        HostPsk {
            key: right.clone(),
            until: Some(now + Duration::from_secs(600)),
        },
        HostPsk {
            key: old.clone(),
            until: Some(now - Duration::from_secs(1)),
        },
    ];
    let running = serve(keys, Choice::Auto);
    let to = running.addresses()[0];
    assert!(connect(to, &host(FRIEND, Some(right.clone()))).is_ok());
    for (nqn, psk) in [
        (FRIEND, old),
        (FRIEND, key(PskHash::Sha384, 3)),
        (FRIEND, key(PskHash::Sha256, 1)),
        (GUEST, right),
    ] {
        let Err(error) = connect(to, &host(nqn, Some(psk))) else {
            panic!("{nqn} is let in");
        };
        assert!(error.to_string().contains("TLS"), "{error}");
    }
    let refusals = running.refusals();
    let reasons: Vec<&str> = refusals.iter().map(|refusal| &*refusal.reason).collect();
    let told = |what| reasons.iter().filter(|why| why.contains(what)).count();
    // Each is said by an identity of both versions. That of version 0 tells nothing of the key.
    assert_eq!(told("no host has the TLS identity"), 5, "{reasons:?}");
    assert_eq!(told("is another on the host than here"), 1, "{reasons:?}");
    assert_eq!(
        told("has expired or was revoked: give the host"),
        1,
        "{reasons:?}"
    );
    let names: Vec<_> = refusals
        .iter()
        .map(|refusal| refusal.host.as_deref())
        .collect();
    assert!(
        names.contains(&Some(FRIEND)) && names.contains(&Some(GUEST)),
        "{names:?}"
    );
    stop(running);
}

/// What the target answers to bytes, until it closes.
fn answer(to: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(to).expect("connects");
    socket.write_all(bytes).expect("sent");
    let timeout = Some(Duration::from_secs(20));
    socket.set_read_timeout(timeout).expect("a timeout");
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).expect("it closes");
    answer
}

#[test]
fn peer_that_does_not_shake_hands_costs_no_other_host_anything() {
    let psk = key(PskHash::Sha256, 7);
    let running = serve(one_key(&psk), Choice::Auto);
    let [both, tls_alone] = running.addresses()[..] else {
        panic!("two listeners");
    };
    let friend = host(FRIEND, Some(psk));
    let mut beside = connect(both, &friend).expect("connects");
    let alert = |code: u8| vec![21, 3, 3, 0, 2, 2, code];
    let decode_error = alert(50);
    for to in [both, tls_alone] {
        assert_eq!(answer(to, &[22, 3, 1, 0, 4, 2, 0, 0, 0]), decode_error);
        assert_eq!(answer(to, &[22, 3, 1, 0xff, 0xff]), decode_error);
        assert_eq!(
            answer(to, &[22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff]),
            decode_error
        );
        let mut endless = vec![22, 3, 1, 0x40, 0];
        endless.resize(5 + (1 << 14), 1);
        assert_eq!(answer(to, &endless), decode_error);
    }
    // ICReq in the clear, where nothing but TLS is spoken.
    let mut icreq = vec![0; 128];
    (icreq[2], icreq[4]) = (128, 128);
    assert!(answer(tls_alone, &icreq).is_empty());
    beside.keep_alive().expect("alive");
    stop(running);
}

#[test]
fn handshake_that_comes_to_no_end_is_counted_and_told() {
    let psk = key(PskHash::Sha256, 7);
    let limits = Limits {
        connections_max: 2,
        ..Limits::default()
    };
    let running = serve_with(one_key(&psk), Choice::Auto, limits);
    let to = running.addresses()[0];
    connect(to, &host(FRIEND, Some(psk))).expect("connects");
    let begin = || {
        let mut peer = TcpStream::connect(to).expect("connects");
        peer.write_all(&[22, 3, 1]).expect("sent");
        peer
    };
    let count = |reason| {
        let metrics = running.metrics();
        metrics.tls[0].1.failures.get(reason).copied().unwrap_or(0)
    };
    let since = Instant::now();
    // Where there is no room for a newcomer, the oldest that is not known gives way.
    let mut peers = Vec::new();
    while count("unfinished") == 0 {
        peers.push(begin());
        assert!(since.elapsed() < PATIENCE, "none gives way");
    }
    drop(peers);
    while count("left") == 0 {
        assert!(since.elapsed() < PATIENCE, "none leaves");
    }
    let refusals = running.refusals();
    let told = |what| refusals.iter().any(|one| one.reason.contains(what));
    assert!(told("was not over when weft closed") && told("closed the connection amid"));
    stop(running);
}

/// They come by IPv6, and the host by IPv4.
#[test]
fn storm_of_handshakes_from_one_address_ends_none_of_another() {
    const STORM: u64 = 100;
    const HANDSHAKES_MAX: u64 = 8;
    let psk = key(PskHash::Sha256, 7);
    for backend in [Choice::Epoll, Choice::Auto] {
        let limits = Limits {
            tls_handshakes_max: HANDSHAKES_MAX as u32,
            ..Limits::default()
        };
        let running = serve_with(one_key(&psk), backend, limits);
        let by_ipv6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
        let added = running.change(Change::AddListener(by_ipv6.into()));
        added.expect("there is IPv6 on loopback");
        let (to, storm_to) = (running.addresses()[0], running.addresses()[2]);
        let begin = |_| {
            let mut peer = TcpStream::connect(storm_to).expect("connects");
            peer.write_all(&[22, 3, 1]).expect("sent");
            peer
        };
        let storm: Vec<TcpStream> = (0..STORM).map(begin).collect();
        let failures = |listener: usize| {
            let metrics = running.metrics();
            metrics.tls[listener].1.failures.clone()
        };
        let gone = |count| {
            let since = Instant::now();
            while failures(2).get("too-many") != Some(&count) {
                assert!(since.elapsed() < PATIENCE, "{:?}", failures(2));
            }
        };
        gone(STORM - HANDSHAKES_MAX);
        assert_eq!(running.metrics().tls_handshakes, HANDSHAKES_MAX);
        let friend = host(FRIEND, Some(psk.clone()));
        for _ in 0..3 {
            connect(to, &friend).expect("connects");
        }
        gone(STORM - HANDSHAKES_MAX + 1);
        assert_eq!(failures(0).values().sum::<u64>(), 0);
        assert_eq!(running.metrics().tls_handshakes, HANDSHAKES_MAX - 1);
        let refusals = running.refusals();
        let told = "its TLS handshake gave way: `tls_handshakes_max` = 8 are under way";
        assert!(refusals.iter().any(|one| one.reason.starts_with(told)));
        drop(storm);
        stop(running);
    }
}

/// A ClientHello with one identity of the friend's so many times, and binders that prove no key.
fn hello(times: usize) -> Vec<u8> {
    let identity = format!("NVMe0R01 {FRIEND} {NQN}");
    let mut identities = Vec::new();
    let mut binders = Vec::new();
    for _ in 0..times {
        identities.extend((identity.len() as u16).to_be_bytes());
        identities.extend(identity.as_bytes());
        identities.extend([0; 4]);
        binders.push(32);
        binders.extend([7; 32]);
    }
    let long = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let extension = |kind: u16, body: &[u8]| [&kind.to_be_bytes()[..], &long(body)].concat();
    let extensions = [
        extension(43, &[2, 3, 4]),
        extension(45, &[1, 1]),
        extension(41, &[long(&identities), long(&binders)].concat()),
    ];
    let mut hello = vec![3, 3];
    hello.extend([9; 32]);
    hello.extend([0, 0, 2, 0x13, 1, 1, 0]);
    hello.extend(long(&extensions.concat()));
    let mut message = vec![1];
    message.extend(&(hello.len() as u32).to_be_bytes()[1..]);
    message.extend(hello);
    [&[22, 3, 1][..], &long(&message)].concat()
}

/// The alert `decrypt_error` in the clear.
const DECRYPT_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 51];

/// A ClientHello costs a bounded number of derivations, whatever a peer says in the clear.
#[test]
fn hello_with_one_identity_many_times_is_looked_at_once() {
    let running = serve(one_key(&key(PskHash::Sha256, 7)), Choice::Auto);
    assert_eq!(answer(running.addresses()[0], &hello(8)), DECRYPT_ERROR);
    let refusals = running.refusals();
    let wrong = refusals
        .iter()
        .filter(|refusal| refusal.reason.contains("is another on the host"));
    assert_eq!(wrong.count(), 1);
    stop(running);
}

/// All of a storm's handshakes are made beside the one reactor: no turn on it has the work of a
/// step, so that an I/O of another host waits for none.
#[test]
fn storm_of_hellos_has_no_handshake_made_in_a_turn_of_the_reactor() {
    const HELLOS: usize = 10_000;
    const PEERS: usize = 8;
    let running = serve(one_key(&key(PskHash::Sha256, 7)), Choice::Auto);
    let [both, tls_alone] = running.addresses()[..] else {
        panic!("two listeners");
    };
    let guest = host(GUEST, None);
    let mut admin = connect(both, &guest).expect("connects");
    admin.set_queue_count(1).expect("a queue");
    let queue = (admin.cntlid(), 2);
    let line = Caller::io(driver(), both, NQN, &guest, settings(false), queue);
    let mut line = line.expect("connects");
    let mut read = Sqe::new(io::READ);
    read.nsid = 1.into();
    let (told, reads) = thread::scope(|scope| {
        let storm = |_| {
            scope.spawn(|| {
                let hello = hello(1);
                let answers = (0..HELLOS / PEERS).map(|_| answer(tls_alone, &hello));
                answers.filter(|answer| *answer == DECRYPT_ERROR).count()
            })
        };
        let peers: Vec<_> = (0..PEERS).map(storm).collect();
        let mut reads = 0;
        while !peers.iter().all(|peer| peer.is_finished()) {
            let mut block = vec![0; 4096];
            line.command("Read", &read, Payload::In(&mut block))
                .expect("it is answered");
            reads += 1;
        }
        let told = peers.into_iter().map(|peer| peer.join().expect("no panic"));
        (told.sum::<usize>(), reads)
    });
    assert_eq!(told, HELLOS);
    assert!(reads > 0, "a host was served");
    let report = loop {
        let report = running.report();
        if report.silent == 0 {
            break report;
        }
    };
    let units = report.turn_units_max;
    const { assert!(HANDSHAKE_UNITS > TURN_UNITS_MAX) };
    assert!(units <= TURN_UNITS_MAX, "{units} units in one turn");
    stop(running);
}
