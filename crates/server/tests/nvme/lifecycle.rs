//! Connections and controllers over real sockets, on both drivers: what ends
//! what, and that nothing else ends with it.

use needs::each_driver;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use reactor::Choice;
use server::Limits;
use testkit::nvme::Pdus;
use wire::nvme::feature::fid;
use wire::nvme::property::{csts, offset};
use wire::nvme::{PropertyGet, PropertySet, Sqe, Status, admin as opcodes, io as opcode};
use wire::nvme_tcp::pdu_type;

use crate::common::{BLOCK, Host, PATIENCE, Queue, config, with_target};

#[each_driver]
fn a_controller_ends_with_its_admin_queue_and_alone(backend: Choice) {
    with_target(backend, Limits::default(), 64 << 20, |running| {
        let address = running.addresses()[0];
        let (admin, cntlid) = Queue::admin(address, 0);
        let (mut io, _) = Queue::connect(address, 1, cntlid, 0).expect("admitted");
        // Over IPv6, another controller of the same subsystem.
        let (_other_admin, other) = Queue::admin(running.addresses()[1], 0);
        let (mut other_io, _) =
            Queue::connect(running.addresses()[1], 1, other, 0).expect("admitted");
        assert_ne!(cntlid, other);
        assert!(io.is_alive());
        drop(admin);
        io.expect_end();
        assert!(other_io.is_alive());
        let refused = Queue::connect(address, 2, cntlid, 0).err();
        assert_eq!(refused, Some(Status::CONNECT_INVALID_PARAMETERS.dnr()));
    });
}

#[each_driver]
fn connections_on_which_nothing_happens_cost_nothing(backend: Choice) {
    with_target(backend, Limits::default(), 64 << 20, |running| {
        let address = running.addresses()[0];
        let mut queues = Vec::new();
        for _ in 0..100 {
            let (admin, cntlid) = Queue::admin(address, 120_000);
            let (mut io, _) = Queue::connect(address, 1, cntlid, 0).expect("admitted");
            assert!(io.is_alive());
            queues.push((admin, io));
        }
        let ticks = || running.report().ticks;
        let until = Instant::now() + PATIENCE;
        loop {
            let before = ticks();
            // A few times as long as from one tick to the next.
            std::thread::sleep(Duration::from_secs(2));
            if ticks() == before {
                break;
            }
            assert!(Instant::now() < until, "they are told the time for ever");
        }
        assert!(queues.iter_mut().all(|(_, io)| io.is_alive()));
        assert!(ticks() > 0);
    });
}

#[each_driver]
fn a_silent_host_loses_its_controller(backend: Choice) {
    with_target(backend, Limits::default(), 64 << 20, |running| {
        let address = running.addresses()[0];
        let (admin, cntlid) = Queue::admin(address, 1000);
        let (io, _) = Queue::connect(address, 1, cntlid, 0).expect("admitted");
        let (_patient, other) = Queue::admin(address, 0);
        let (mut patient_io, _) = Queue::connect(address, 1, other, 0).expect("admitted");
        admin.expect_end();
        io.expect_end();
        assert!(patient_io.is_alive());
    });
}

/// Base 2.0, section 3.9: Set Features starts the timer, stops it and gives it another
/// time, also of a host on whose connection nothing has happened for longer.
#[each_driver]
fn a_keep_alive_timer_that_is_set_counts_from_then(backend: Choice) {
    with_target(backend, Limits::default(), 64 << 20, |running| {
        let address = running.addresses()[0];
        let [none, short, long] = [0, 1000, 120_000];
        let changes = [(none, short), (long, short), (short, long), (short, none)];
        let mut hosts = changes.map(|(before, _)| Queue::admin(address, before).0);
        let mut change = |at: usize, kato_ms: u32| {
            let mut sqe = Sqe::new(opcodes::SET_FEATURES);
            sqe.cdw10 = u32::from(fid::KEEP_ALIVE_TIMER).into();
            sqe.cdw11 = kato_ms.into();
            assert_eq!(hosts[at].command(sqe, &[]).0, Status::SUCCESS);
        };
        for at in [2, 3] {
            change(at, changes[at].1);
        }
        // The others are idle by then.
        std::thread::sleep(Duration::from_millis(1100));
        for at in [0, 1] {
            change(at, changes[at].1);
        }
        let [started, shorter, mut longer, mut stopped] = hosts;
        started.expect_end();
        shorter.expect_end();
        for queue in [&mut longer, &mut stopped] {
            assert!(queue.identify(1, 0).len() == 4096);
        }
    });
}

#[each_driver]
fn connection_without_a_connect_in_time_is_closed(backend: Choice) {
    let limits = Limits {
        handshake_timeout_ms: 500,
        ..Limits::default()
    };
    with_target(backend, limits, 64 << 20, |running| {
        let address = running.addresses()[0];
        let (mut admin, _) = Queue::admin(address, 0);
        Queue::open(address).expect_end();
        let mut half = Queue::open(address);
        half.stream
            .write_all(&Pdus::default().ic_req(0))
            .expect("sent");
        half.expect_end();
        let keep_alive = Sqe::new(wire::nvme::admin::KEEP_ALIVE);
        assert!(admin.command(keep_alive, &[]).0.is_success());
    });
}

#[each_driver]
fn a_malformed_pdu_costs_its_connection_only(backend: Choice) {
    with_target(backend, Limits::default(), 64 << 20, |running| {
        let address = running.addresses()[0];
        let (_admin, cntlid) = Queue::admin(address, 0);
        let (mut good, _) = Queue::connect(address, 1, cntlid, 0).expect("admitted");
        let (mut bad, _) = Queue::connect(address, 2, cntlid, 0).expect("admitted");
        bad.stream
            .write_all(&[0x99, 0, 24, 0, 24, 0, 0, 0])
            .expect("sent");
        assert_eq!(bad.pdu()[0], pdu_type::C2H_TERM_REQ);
        bad.expect_end();
        assert!(good.is_alive());
    });
}

/// As SPDK's hosts leave: they forget their event requests, and use the CIDs of
/// these for all that follows.
#[each_driver]
fn a_shutdown_with_the_cids_of_event_requests_completes(backend: Choice) {
    with_target(backend, Limits::default(), 64 << 20, |running| {
        let nameless = Host {
            hostnqn: "",
            ..Host::at(running.addresses()[0])
        };
        let (mut admin, mut io) = nameless.pair();
        assert!(io.is_alive());
        let cids: Vec<u16> = (0..4)
            .map(|_| admin.send(Sqe::new(opcodes::ASYNC_EVENT_REQUEST), &[]))
            .collect();
        let mut property = |sqe: Sqe, cid: u16| {
            admin.cid = cid - 1;
            let (status, value) = admin.command(sqe, &[]);
            assert_eq!(status, Status::SUCCESS, "CID {cid}");
            value
        };
        let get = |offset| PropertyGet {
            offset,
            is_8_bytes: false,
        };
        let cc = property(get(offset::CC).encode(), cids[3]);
        let set = PropertySet {
            offset: offset::CC,
            is_8_bytes: false,
            value: cc | 1 << 14,
        };
        property(set.encode(), cids[3]);
        io.expect_end();
        let complete = csts::RDY | csts::SHST_COMPLETE;
        while property(get(offset::CSTS).encode(), cids[2]) != u64::from(complete) {}
    });
}

#[each_driver]
fn connections_max_refuses_the_next_only(backend: Choice) {
    let limits = Limits {
        connections_max: 2,
        ..Limits::default()
    };
    with_target(backend, limits, 64 << 20, |running| {
        let address = running.addresses()[0];
        let (_admin, cntlid) = Queue::admin(address, 0);
        let (mut io, _) = Queue::connect(address, 1, cntlid, 0).expect("admitted");
        Queue::open(address).expect_end();
        assert!(io.is_alive());
    });
}

#[each_driver]
fn commands_that_failed_stand_in_the_error_log(backend: Choice) {
    with_target(backend, Limits::default(), 64 << 20, |running| {
        let address = running.addresses()[0];
        let (mut admin, cntlid) = Queue::admin(address, 0);
        let (mut io, _) = Queue::connect(address, 3, cntlid, 0).expect("admitted");
        let mut sqe = Sqe::new(opcode::COMPARE);
        sqe.nsid = 1.into();
        sqe.set_blocks(7, 1);
        let (status, _) = io.command(sqe, &[1; BLOCK]);
        assert_eq!(status, Status::COMPARE_FAILURE.dnr());
        sqe.set_blocks(1 << 40, 1);
        let (status, _) = io.command(sqe, &[1; BLOCK]);
        assert_eq!(status, Status::LBA_OUT_OF_RANGE.dnr());
        // Error Information entries, newest first (Base 2.0, figure 206):
        // SQID at 8, status at 12 with the phase tag, LBA at 16, namespace at 24.
        let log = admin.log_page(1, 128);
        let entries = [
            (Status::LBA_OUT_OF_RANGE, 1u64 << 40),
            (Status::COMPARE_FAILURE, 7),
        ];
        for (entry, (status, lba)) in log.chunks_exact(64).zip(entries) {
            assert_eq!(entry[8..10], [3, 0]);
            let field = u16::from_le_bytes([entry[12], entry[13]]) >> 1;
            assert_eq!(Status(field).code(), status);
            assert_eq!(entry[16..24], lba.to_le_bytes());
            assert_eq!(entry[24..28], [1, 0, 0, 0]);
        }
    });
}

/// Two reactors fill the ceiling with stages alone; all commands still end.
#[each_driver]
fn short_memory_delays_and_loses_nothing(backend: Choice) {
    with_target(backend, Limits::default(), 12 << 20, |running| {
        let address = running.addresses()[0];
        let (_admin, cntlid) = Queue::admin(address, 0);
        let hosts: Vec<_> = (1..=8)
            .map(|qid| {
                std::thread::spawn(move || {
                    let (mut io, _) = Queue::connect(address, qid, cntlid, 0).expect("admitted");
                    for turn in 0..200u64 {
                        let mut sqe = Sqe::new(opcode::WRITE);
                        sqe.nsid = 1.into();
                        sqe.set_blocks(u64::from(qid) * 16 + turn % 8, 2);
                        let data = vec![qid as u8; 2 * BLOCK];
                        assert!(io.command(sqe, &data).0.is_success());
                        sqe.opcode = opcode::COMPARE;
                        assert!(io.command(sqe, &data).0.is_success());
                    }
                })
            })
            .collect();
        for host in hosts {
            host.join().expect("every command of every host succeeded");
        }
    });
}

/// Connections that send a byte and wait hold little memory: hosts are served beside
/// them.
#[each_driver]
fn connections_with_half_a_header_do_not_disturb_a_host(backend: Choice) {
    with_target(backend, Limits::default(), 32 << 20, |running| {
        let address = running.addresses()[0];
        let strangers: Vec<Queue> = (0..400)
            .map(|_| {
                let mut stranger = Queue::open(address);
                stranger.stream.write_all(&[0]).expect("sent");
                stranger
            })
            .collect();
        let (_admin, cntlid) = Queue::admin(address, 0);
        let (mut io, _) = Queue::connect(address, 1, cntlid, 0).expect("admitted");
        let mut sqe = Sqe::new(opcode::WRITE);
        sqe.nsid = 1.into();
        sqe.set_blocks(0, 2);
        for _ in 0..100 {
            let (status, _) = io.command(sqe, &[7; 2 * BLOCK]);
            assert!(status.is_success());
        }
        drop(strangers);
    });
}

#[test]
fn stopping_closes_connections_and_tells_what_was_done() {
    let running = server::start(config(Choice::Auto, Limits::default(), 64 << 20)).expect("starts");
    let (admin, cntlid) = Queue::admin(running.addresses()[0], 0);
    let (mut io, _) = Queue::connect(running.addresses()[0], 1, cntlid, 0).expect("admitted");
    for _ in 0..10 {
        assert!(io.is_alive());
    }
    assert_eq!(crate::report::report(&running).ios, 10);
    running.stop();
    admin.expect_end();
    io.expect_end();
    let report = running
        .wait(PATIENCE)
        .expect("no failure")
        .expect("in time");
    // Stopping flushes the volume once more.
    assert_eq!(report.ios, 11);
    assert!(TcpStream::connect(running.addresses()[0]).is_err());
}

/// As after a kill: the port comes free a moment later.
#[test]
fn start_waits_for_a_port_that_comes_free() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let mut config = config(Choice::Auto, Limits::default(), 64 << 20);
    config.listeners = vec![taken.local_addr().expect("bound").into()];
    let freed = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        drop(taken);
    });
    let running = server::start(config).expect("starts");
    freed.join().expect("freed");
    running.stop();
    assert!(running.wait(PATIENCE).expect("no failure").is_some());
}

#[test]
fn an_address_in_use_is_named_with_the_remedy() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let mut config = config(Choice::Auto, Limits::default(), 64 << 20);
    config.listeners = vec![taken.local_addr().expect("bound").into()];
    let error = server::start(config).err().expect("refused").to_string();
    let address = taken.local_addr().expect("bound").to_string();
    assert!(
        error.contains(&address) && error.contains("another program"),
        "{error}"
    );
}
