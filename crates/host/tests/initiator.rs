//! The initiator against a target in the same process.
#![allow(missing_docs)]

#[path = "shared/ends.rs"]
mod ends;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use auth::dhchap::{DhchapHash, DhchapKey};
use auth::psk::{Psk, PskHash};
use ends::{driver, stop};
use host::{
    Admin, AnaState, Caller, CrcPolicy, Data, DiscoveryEntry, Error, Event, HostIdentity, Memory,
    Payload, Queue, QueueParams, QueueSettings, RdmaHostSettings, Settings, discover,
};
use mem::Region;
use nvmf::dhchap::DhchapKeys;
use nvmf::transport::Transports;
use reactor::{Completion, Driver, EpollDriver, Wait};
use server::{
    Change, Config, Limits, ListenerSpec, NamespaceSpec, RdmaSpec, Running, SubsystemSpec,
};
use wire::nvme::authentication::ATR;
use wire::nvme::fabrics::ConnectData;
use wire::nvme::{ConnectCommand, Sqe, Status, io};
use wire::nvme_tcp::{CommonHeader, IcResp, pdu_type};
use zerocopy::{FromZeros, IntoBytes};

const NQN: &str = "nqn.2026-01.io.weft:test";
const PLAIN: Settings = Settings {
    header_digest: false,
    data_digest: false,
    hpda: 0,
    maxr2t: 3,
    part_in_capsule: false,
};

/// Each transport without digests and with all of them.
fn each_settings() -> [QueueSettings; 4] {
    let digests = Settings {
        header_digest: true,
        data_digest: true,
        ..PLAIN
    };
    let rdma = |crc| RdmaHostSettings {
        crc,
        ..RdmaHostSettings::default()
    };
    [
        PLAIN.into(),
        digests.into(),
        rdma(CrcPolicy::Off).into(),
        rdma(CrcPolicy::Require).into(),
    ]
}

/// A target that hosts connect to by TCP and by RDMA.
fn serve() -> Running {
    serve_by(Transports::Both)
}

fn serve_by(transports: Transports) -> Running {
    let volume =
        |name: &str, block_bytes| store::Spec::new(name, store::Kind::RAM, 1 << 20, block_bytes);
    let namespace = |nsid, volume: &str| NamespaceSpec {
        nsid,
        volume: volume.into(),
        ..NamespaceSpec::default()
    };
    let config = Config {
        volumes: vec![volume("a", 4096), volume("b", 512)],
        subsystems: vec![SubsystemSpec {
            nqn: NQN.into(),
            serial: "S1".into(),
            model: "model".into(),
            hosts: Some(vec!["nqn.2026-01.org.example:friend".into()]),
            namespaces: vec![namespace(3, "a"), namespace(7, "b")],
            ..SubsystemSpec::default()
        }],
        listeners: vec![ListenerSpec {
            rdma: RdmaSpec {
                transports,
                crc: CrcPolicy::Off,
                ..RdmaSpec::default()
            },
            ..SocketAddr::from(([127, 0, 0, 1], 0)).into()
        }],
        cpus: vec![reactor::available_cpus()[0]],
        spin_us_max: 0,
        memory_max: 64 << 20,
        limits: Limits {
            io_queues_max: 4,
            queue_entries_max: 64,
            ..Limits::default()
        },
        ..Config::default()
    };
    server::start(config).expect("the target starts")
}

fn friend() -> HostIdentity {
    HostIdentity::new(Some("nqn.2026-01.org.example:friend")).expect("random bytes")
}

fn connect(to: SocketAddr, host: &HostIdentity) -> Result<Admin<EpollDriver>, Error> {
    connect_by(to, host, PLAIN.into())
}

fn connect_by(
    to: SocketAddr,
    host: &HostIdentity,
    settings: QueueSettings,
) -> Result<Admin<EpollDriver>, Error> {
    Admin::connect(driver(), to, NQN, host, settings, 10_000)
}

#[test]
fn a_controller_tells_what_it_is() {
    let running = serve();
    for settings in each_settings() {
        check_controller(connect_by(running.addresses()[0], &friend(), settings));
    }
    stop(running);
}

fn check_controller(admin: Result<Admin<EpollDriver>, Error>) {
    let mut admin = admin.expect("connects");
    let controller = admin.controller().expect("Identify");
    assert_eq!(controller.cntlid, admin.cntlid());
    assert_eq!(
        (controller.model.as_str(), controller.serial.as_str()),
        ("model", "S1")
    );
    assert_eq!(controller.transfer_max, Some(1 << 20));
    assert_eq!(
        (controller.in_capsule_max, controller.queue_entries_max),
        (16_384, 64)
    );
    assert_eq!(admin.active_namespaces().expect("list"), [3, 7]);
    let first = admin.namespace(None).expect("namespace");
    assert_eq!(
        (first.nsid, first.block_bytes, first.block_count),
        (3, 4096, 256)
    );
    let second = admin.namespace(Some(7)).expect("namespace");
    assert_eq!((second.block_bytes, second.block_count), (512, 2048));
    assert!(admin.namespace(Some(4)).is_err());
    assert_eq!(admin.set_queue_count(2).expect("count"), 2);
    admin.keep_alive().expect("alive");
    admin.shutdown().expect("in order");
}

#[test]
fn host_by_rdma_is_told_why_it_has_no_connection() {
    let by_tcp = serve_by(Transports::Tcp);
    let rdma = RdmaHostSettings::default().into();
    let error = connect_by(by_tcp.addresses()[0], &friend(), rdma).map(drop);
    let error = error.expect_err("a listener for TCP").to_string();
    assert!(error.contains("rejects the connection"), "{error}");
    stop(by_tcp);
    let by_rdma = serve_by(Transports::Rdma);
    let to = by_rdma.addresses()[0];
    let error = connect(to, &friend()).map(drop).expect_err("for RDMA");
    assert!(matches!(error, Error::Protocol(_)), "{error}");
    let psk = Psk::new(PskHash::Sha256, |bytes| bytes.fill(7));
    let keyed = HostIdentity {
        psk: Some(psk.into()),
        ..friend()
    };
    let error = connect_by(to, &keyed, rdma).map(drop).expect_err("a key");
    assert!(
        error.to_string().contains("NVMe/RDMA has no TLS"),
        "{error}"
    );
    stop(by_rdma);
}

#[test]
fn an_unknown_host_is_refused_with_connect_invalid_host() {
    let running = serve();
    let stranger = HostIdentity::new(None).expect("random bytes");
    match connect(running.addresses()[0], &stranger) {
        Err(Error::Refused {
            command: "Connect",
            status,
        }) => {
            assert_eq!(status.code(), Status::CONNECT_INVALID_HOST);
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("an unknown host is admitted"),
    }
    stop(running);
}

#[test]
fn the_discovery_log_names_the_subsystem() {
    let running = serve();
    for settings in each_settings() {
        let to = running.addresses()[0];
        let entries = discover(driver(), to, &friend(), settings).expect("a log");
        // By TCP and by RDMA.
        for trtype in [3, 1] {
            let is_it = |e: &&DiscoveryEntry| (e.subnqn.as_str(), e.trtype) == (NQN, trtype);
            let ours = entries.iter().find(is_it).expect("the subsystem");
            assert_eq!((ours.adrfam, ours.subtype), (1, 2));
            assert_eq!(ours.traddr, "127.0.0.1");
            assert_eq!(ours.trsvcid, to.port().to_string());
        }
    }
    stop(running);
}

/// Turns the driver until the queue has an event.
fn next(driver: &mut EpollDriver, queue: &mut Queue) -> Event {
    let deadline = driver.now() + 10_000_000_000;
    let mut out = Vec::new();
    loop {
        if let Some(event) = queue.next_event(driver) {
            return event;
        }
        queue.flush(driver);
        driver
            .poll(Wait::Until(deadline), &mut out)
            .expect("the driver works");
        assert!(driver.now() < deadline, "nothing came");
        for completion in out.drain(..) {
            queue.on_completion(driver, completion);
        }
    }
}

fn params(cntlid: u16, host: &HostIdentity, settings: impl Into<QueueSettings>) -> QueueParams {
    QueueParams {
        settings: settings.into(),
        connect: ConnectCommand {
            recfmt: 0,
            qid: 1,
            sqsize: 15,
            cattr: ConnectCommand::DISABLE_SQ_FLOW_CONTROL,
            kato_ms: 0,
        },
        connect_data: ConnectData::new(host.hostid, cntlid, NQN, &host.hostnqn),
        in_capsule_max: 8192,
        psk: None,
        dhchap: host.dhchap.clone(),
    }
}

#[test]
fn an_io_queue_moves_data_and_reports_what_fails() {
    let running = serve();
    let host = friend();
    for settings in each_settings() {
        let mut admin = connect_by(running.addresses()[0], &host, settings).expect("connects");
        assert_eq!(admin.set_queue_count(1).expect("count"), 1);
        let mut driver = driver();
        let params = params(admin.cntlid(), &host, settings);
        let to = running.addresses()[0];
        let mut queue = Queue::open(&mut driver, to, params, 40).expect("a socket");
        assert!(
            queue
                .submit(&Sqe::new(io::FLUSH), Data::None, |_| Memory::default())
                .is_none()
        );
        assert!(matches!(next(&mut driver, &mut queue), Event::Live(_)));
        // In the capsule; by R2T or RDMA Read; by many R2Ts' worth, and many FPDUs.
        for len in [4096u32, 65_536, 1 << 20] {
            let region = Region::anonymous(2 << 20).expect("memory");
            let (from, into) = (region.range(0, len), region.range(1 << 20, len));
            mem::copy_in(
                from,
                &(0..len)
                    .map(|i| (i * 7 + i / 256) as u8)
                    .collect::<Vec<_>>(),
            );
            for (opcode, data, memory) in [
                (io::WRITE, Data::Out(len), from),
                (io::READ, Data::In(len), into),
            ] {
                let mut sqe = Sqe::new(opcode);
                sqe.nsid = 3.into();
                sqe.set_blocks(0, len / 4096);
                let tag = queue
                    .submit(&sqe, data, |_| Memory::lent(memory))
                    .expect("room");
                match next(&mut driver, &mut queue) {
                    Event::Completed(done, completion) => {
                        assert_eq!((done, completion.status), (tag, Status::SUCCESS));
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert!(mem::equal(from, into), "{len} bytes come back");
        }
        let mut sqe = Sqe::new(io::READ);
        sqe.nsid = 3.into();
        sqe.set_blocks(256, 1);
        let buf = driver.pool().get(4096).expect("memory");
        let tag = queue
            .submit(&sqe, Data::In(4096), |_| Memory::owned(buf))
            .expect("room");
        match next(&mut driver, &mut queue) {
            Event::Completed(_, completion) => {
                assert_eq!(completion.status.code(), Status::LBA_OUT_OF_RANGE);
            }
            other => panic!("{other:?}"),
        }
        assert!(
            queue.take_memory(tag).into_buf().is_some(),
            "the memory is the caller's again"
        );
        queue.close(&mut driver);
        admin.shutdown().expect("in order");
    }
    stop(running);
}

/// Of Asynchronous Event Configuration, and dword 0 of what it has told (Base 2.0, sections
/// 5.27.1.8 and 5.2.1).
const ANA_CHANGE_NOTICES: u32 = 1 << 11;
const ANA_CHANGED: u32 = 0x000c_0302;
/// Turns that an event may take, and what is waited in each; reached only when a test fails.
const TURNS_MAX: usize = 20;
const PAUSE: Duration = Duration::from_secs(1);

/// Each host by its own transport, on one listener, whose states they share.
#[test]
fn hosts_of_each_transport_are_told_of_ana_states_and_kept_to_them() {
    let running = serve();
    let to = running.addresses()[0];
    let host = friend();
    let mut hosts = each_settings().map(|settings| {
        let mut admin = connect_by(to, &host, settings).expect("connects");
        let info = admin.controller().expect("Identify").ana.expect("there is");
        let state = admin.ana_state(info, 3).expect("a log");
        assert_eq!(state, AnaState::Optimized);
        admin.enable_notices(ANA_CHANGE_NOTICES).expect("set");
        assert_eq!(admin.set_queue_count(1).expect("count"), 1);
        let seat = (admin.cntlid(), 8);
        let io = Caller::io(driver(), to, NQN, &host, settings, seat);
        (admin, io.expect("connects"), info)
    });
    for (state, is_open) in [
        (AnaState::Inaccessible, false),
        (AnaState::NonOptimized, true),
    ] {
        let change = Change::SetAna {
            nqn: NQN.into(),
            listener: Some(to),
            group: 1,
            state,
        };
        running.change(change).expect("a change");
        for (admin, io, info) in &mut hosts {
            // A turn may bring something else.
            let mut told = (0..TURNS_MAX).map(|_| admin.idle(PAUSE).expect("alive"));
            assert_eq!(told.find_map(|event| event), Some(ANA_CHANGED));
            assert_eq!(admin.ana_state(*info, 3).expect("a log"), state);
            let mut sqe = Sqe::new(io::READ);
            sqe.nsid = 3.into();
            sqe.set_blocks(0, 1);
            let mut block = [0xee; 4096];
            match io.command("Read", &sqe, Payload::In(&mut block)) {
                Ok(_) => assert!(is_open && block == [0; 4096]),
                Err(Error::Refused { status, .. }) => {
                    assert_eq!((status.code(), is_open), (Status::ANA_INACCESSIBLE, false));
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
    stop(running);
}

#[test]
fn a_queue_holds_no_more_than_its_size_and_goes_down_once() {
    for settings in each_settings() {
        check_size(serve(), settings);
    }
}

fn check_size(running: Running, settings: QueueSettings) {
    let host = friend();
    let mut admin = connect_by(running.addresses()[0], &host, settings).expect("connects");
    admin.set_queue_count(1).expect("count");
    let mut driver = driver();
    let params = params(admin.cntlid(), &host, settings);
    let mut queue = Queue::open(&mut driver, running.addresses()[0], params, 0).expect("a socket");
    assert!(matches!(next(&mut driver, &mut queue), Event::Live(_)));
    let region = Region::anonymous(4096).expect("memory");
    let mut sqe = Sqe::new(io::READ);
    sqe.nsid = 3.into();
    sqe.set_blocks(0, 1);
    let mut submitted = 0;
    while queue
        .submit(&sqe, Data::In(4096), |_| {
            Memory::lent(region.range(0, 4096))
        })
        .is_some()
    {
        submitted += 1;
        assert!(
            submitted <= 16,
            "a queue of 16 entries took {submitted} commands"
        );
    }
    assert!(submitted >= 15);
    for _ in 0..submitted {
        assert!(matches!(
            next(&mut driver, &mut queue),
            Event::Completed(..)
        ));
    }
    stop(running);
    assert!(matches!(next(&mut driver, &mut queue), Event::Down(_)));
    assert!(queue.next_event(&mut driver).is_none(), "once");
    assert!(
        queue
            .submit(&sqe, Data::In(4096), |_| Memory::default())
            .is_none()
    );
}

/// A controller that breaks the protocol is told so, also where what was sent
/// before is still on its way.
#[test]
fn a_termination_request_goes_behind_what_is_being_sent() {
    const IC_REQ_BYTES: usize = 128;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = listener.local_addr().expect("an address");
    let mut driver = driver();
    let mut queue = Queue::open(&mut driver, to, params(1, &friend(), PLAIN), 0).expect("a socket");
    let (mut peer, _) = listener.accept().expect("a host");
    // No controller begins with a capsule for the controller.
    peer.write_all(&[4, 0, 72, 0, 72, 0, 0, 0]).expect("sent");
    let (mut out, mut sent, mut down) = (Vec::new(), None, None);
    while down.is_none() {
        let polled = driver.poll(Wait::Until(driver.now() + 1_000_000_000), &mut out);
        polled.expect("the driver works");
        for completion in out.drain(..) {
            match completion {
                Completion::Sent { .. } => sent = Some(completion),
                _ => queue.on_completion(&mut driver, completion),
            }
        }
        down = queue.next_event(&mut driver);
    }
    assert!(matches!(down, Some(Event::Down(Error::Protocol(_)))));
    let sent = sent.expect("ICReq went first");
    queue.on_completion(&mut driver, sent);
    while !queue.is_closed() {
        let polled = driver.poll(Wait::Until(driver.now() + 1_000_000_000), &mut out);
        polled.expect("the driver works");
        for completion in out.drain(..) {
            queue.on_completion(&mut driver, completion);
        }
    }
    let mut all = Vec::new();
    peer.read_to_end(&mut all).expect("to the end");
    assert_eq!(all[IC_REQ_BYTES], pdu_type::H2C_TERM_REQ);
}

/// A controller that wants authentication: its side up to the host's first message of it, of
/// which it reads only what `all` asks for.
fn wants_authentication(mut peer: TcpStream, all: bool) {
    const CONNECT_BYTES: usize = 72 + 1024;
    let mut bytes = [0; CONNECT_BYTES];
    peer.read_exact(&mut bytes[..128]).expect("ICReq");
    let response = IcResp {
        ch: CommonHeader::new(pdu_type::IC_RESP, IcResp::HLEN),
        maxh2cdata: 0x2000.into(),
        ..IcResp::new_zeroed()
    };
    peer.write_all(response.as_bytes()).expect("sent");
    peer.read_exact(&mut bytes).expect("Connect");
    let mut answer = [0; 24];
    answer[..8].copy_from_slice(&[pdu_type::CAPSULE_RESP, 0, 24, 0, 24, 0, 0, 0]);
    answer[8..12].copy_from_slice(&(1 | ATR).to_le_bytes());
    answer[20..22].copy_from_slice(&bytes[10..12]);
    peer.write_all(&answer).expect("sent");
    let len = if all { CONNECT_BYTES } else { 72 };
    assert!(peer.read(&mut bytes[..len]).expect("Authentication Send") >= 72);
}

#[test]
fn controller_that_closes_amid_an_authentication_is_told_as_one_that_may_refuse_the_host() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = listener.local_addr().expect("an address");
    let leaves = thread::spawn(move || {
        for reads_all in [true, false] {
            wants_authentication(listener.accept().expect("a host").0, reads_all);
        }
    });
    let key = DhchapKey::new(DhchapHash::Sha256, &mut |bytes| bytes.fill(1));
    let host = HostIdentity {
        dhchap: Some(DhchapKeys {
            host: vec![key.into()],
            controller: None,
        }),
        ..friend()
    };
    // One end comes in order, the other is a reset: not all was read.
    for end in ["the controller closed the connection amid", "socket: "] {
        let told = connect(to, &host).err().expect("no controller").to_string();
        assert!(told.starts_with(end), "{told}");
        assert!(told.contains("refuses the host"), "{told}");
    }
    leaves.join().expect("both have come");
}
