//! How many hosts, controllers and queues there may be, and what connections without
//! a Connect cost.

use needs::each_driver;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reactor::Choice;
use server::Limits;
use testkit::nvme::Pdus;
use wire::nvme::{Sqe, Status, admin};

use crate::common::{Host, Queue, config, stop, with_target};

#[each_driver]
fn a_controller_has_128_io_queues(backend: Choice) {
    with_target(backend, Limits::default(), 256 << 20, |running| {
        let host = Host::at(running.addresses()[0]);
        let (mut admin_queue, cntlid) = host.admin();
        // Number of Queues (Base 2.0, section 5.27.1.5): 0's based, both ways.
        let mut sqe = Sqe::new(admin::SET_FEATURES);
        sqe.cdw10 = 7.into();
        sqe.cdw11 = (199 << 16 | 199).into();
        let (status, granted) = admin_queue.command(sqe, &[]);
        assert_eq!((status, granted), (Status::SUCCESS, 127 << 16 | 127));
        let mut queues: Vec<Queue> = (1..=128)
            .map(|qid| host.queue(qid, cntlid).expect("admitted").0)
            .collect();
        for (n, queue) in queues.iter_mut().enumerate() {
            assert_eq!(queue.write(1, n as u64, n as u8), Status::SUCCESS);
        }
        for (n, queue) in queues.iter_mut().rev().enumerate() {
            let block = queue.read(1, n as u64).expect("reads");
            assert!(block.iter().all(|byte| *byte == n as u8), "block {n}");
        }
        let refused = host.queue(129, cntlid).err();
        assert_eq!(refused, Some(Status::CONNECT_INVALID_PARAMETERS.dnr()));
    });
}

#[each_driver]
fn there_are_1024_controllers_with_a_queue_each(backend: Choice) {
    let limits = Limits {
        controllers_of_host_max: 1024,
        ..Limits::default()
    };
    with_target(backend, limits, 256 << 20, |running| {
        let host = Host::at(running.addresses()[0]);
        let mut hosts: Vec<(Queue, Queue)> = (0..1024).map(|_| host.pair()).collect();
        let cntlids: std::collections::BTreeSet<u16> = (hosts.iter_mut())
            .map(|(admin, _)| {
                // CNTLID lies at byte 78 of Identify Controller.
                let controller = admin.identify(1, 0);
                u16::from_le_bytes([controller[78], controller[79]])
            })
            .collect();
        assert_eq!(cntlids.len(), 1024);
        for (n, (_, io)) in hosts.iter_mut().enumerate() {
            assert_eq!(io.write(1, n as u64, 1), Status::SUCCESS, "host {n}");
        }
    });
}

/// Of targets that serve one subsystem together each gives out its own
/// Controller IDs, and no others.
#[test]
fn controllers_are_numbered_from_the_subsystems_own_range() {
    let mut config = config(Choice::Epoll, Limits::default(), 64 << 20);
    config.subsystems[0].cntlids = Some(700..=701);
    let running = server::start(config).expect("starts");
    let host = Host::at(running.addresses()[0]);
    let connect = || host.queue(0, 0xffff);
    let (first, second) = (connect().expect("admitted"), connect().expect("admitted"));
    assert_eq!((first.1, second.1), (700, 701));
    assert_eq!(connect().err(), Some(Status::CONNECT_BUSY));
    stop(running);
}

/// Connections that send ICReq byte by byte and never get to Connect are closed,
/// though each byte comes in time.
#[each_driver]
fn connection_that_sends_its_ic_req_too_slowly_is_closed(backend: Choice) {
    let limits = Limits {
        handshake_timeout_ms: 500,
        ..Limits::default()
    };
    with_target(backend, limits, 64 << 20, |running| {
        let address = running.addresses()[0];
        let (_admin, mut io) = Host::at(address).pair();
        let mut stranger = Queue::open(address);
        let ic_req = Pdus::default().ic_req(0);
        let is_closed = ic_req.iter().cycle().take(1000).any(|byte| {
            std::thread::sleep(Duration::from_millis(20));
            stranger.stream.write_all(&[*byte]).is_err()
        });
        assert!(is_closed, "20 s of trickling");
        assert!(io.is_alive());
    });
}

/// An address with all its connections is refused one more, and what it has goes on.
#[each_driver]
fn address_with_all_its_connections_has_one_more_when_one_is_closed(backend: Choice) {
    let limits = Limits {
        connections_of_address_max: 4,
        ..Limits::default()
    };
    with_target(backend, limits, 64 << 20, |running| {
        let address = running.addresses()[0];
        let (_admin, mut io) = Host::at(address).pair();
        let (_other, mut its_io) = Host::at(address).pair();
        for _ in 0..20 {
            Queue::open(address).expect_end();
        }
        assert!(io.is_alive() && its_io.is_alive());
        let report = crate::report::report(running);
        assert_eq!((report.connections, report.refusals), (4, 20));
        drop(its_io);
        // Without its I/O queue there is room for one.
        crate::commands::wait_for(|| crate::report::report(running).connections == 3);
        let mut next = Queue::open(address);
        next.stream
            .write_all(&Pdus::default().ic_req(0))
            .expect("sent");
        assert_eq!(next.pdu()[0], wire::nvme_tcp::pdu_type::IC_RESP);
    });
}

/// One host does not take every Controller ID.
#[each_driver]
fn host_with_all_its_controllers_is_refused_and_another_is_not(backend: Choice) {
    let limits = Limits {
        controllers_of_host_max: 2,
        ..Limits::default()
    };
    with_target(backend, limits, 64 << 20, |running| {
        let host = Host::at(running.addresses()[0]);
        let (first, _second) = (host.admin(), host.admin());
        assert_eq!(host.queue(0, 0xffff).err(), Some(Status::CONNECT_BUSY));
        let other = Host {
            hostnqn: "nqn.2026-01.org.example:other",
            ..host
        };
        assert!(other.queue(0, 0xffff).is_ok());
        drop(first);
        crate::commands::wait_for(|| host.queue(0, 0xffff).is_ok());
    });
}

/// Strangers take every place and stay: a host gets in all the same, and those
/// that are in stay in. Only where every place is a host's is one refused.
#[each_driver]
fn strangers_do_not_starve_a_host(backend: Choice) {
    let limits = Limits {
        connections_max: 20,
        ..Limits::default()
    };
    with_target(backend, limits, 64 << 20, |running| {
        let address = running.addresses()[0];
        let (_admin, mut io) = Host::at(address).pair();
        let done = Arc::new(AtomicBool::new(false));
        let stop = done.clone();
        let host = std::thread::spawn(move || {
            let mut count = 0;
            loop {
                // Once more when all of them have come, however late it is.
                let is_last = stop.load(Ordering::Relaxed);
                assert_eq!(io.write(1, count % 8, 1), Status::SUCCESS);
                count += 1;
                if is_last {
                    return;
                }
            }
        });
        let mut strangers: Vec<Queue> = (0..60).map(|_| Queue::open(address)).collect();
        // The oldest had to go for the youngest.
        let young = strangers.split_off(42);
        strangers.into_iter().for_each(Queue::expect_end);
        let mut hosts: Vec<(Queue, Queue)> = (0..9).map(|_| Host::at(address).pair()).collect();
        young.into_iter().for_each(Queue::expect_end);
        Queue::open(address).expect_end();
        assert!(hosts.iter_mut().all(|(_, io)| io.is_alive()));
        done.store(true, Ordering::Relaxed);
        host.join().expect("no error");
    });
}
