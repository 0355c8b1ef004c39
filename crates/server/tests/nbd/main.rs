//! The whole target over real sockets, on both drivers, as NBD clients see it.

mod client;
#[path = "../shared/content.rs"]
mod content;
mod dirty_bitmaps;
#[path = "../shared/disks.rs"]
mod disks;
mod hostile;
mod live;
#[path = "../shared/rate_limits.rs"]
mod rate_limits;
#[path = "../shared/running.rs"]
mod running;
mod starttls;

use std::net::SocketAddr;

use needs::each_driver;
use reactor::Choice;
use server::{Config, ListenerSpec, NbdExportSpec, Placement, Running};
use wire::nbd::{command_flags as flags, nbd_error, request_type as request};

use crate::client::{Client, Form, Outcome};
use crate::content::pattern;
use crate::disks::{BLOCK, ram, subsystem};
use crate::running::stop;

/// An export of a volume, under its name, that any client may have.
fn export(volume: &str) -> NbdExportSpec {
    NbdExportSpec {
        name: volume.to_owned(),
        volume: volume.to_owned(),
        description: String::new(),
        is_read_only: false,
        clients: None,
    }
}

/// The volume "ram" of 16 MiB, which is a namespace too, and "other" of 256 KiB, each exported.
fn config(backend: Choice) -> Config {
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    Config {
        volumes: vec![ram("ram", 4096), ram("other", 64)],
        subsystems: vec![subsystem()],
        nbd_exports: vec![export("ram"), export("other")],
        listeners: vec![ListenerSpec::nbd(local)],
        // Two reactors even on one CPU.
        cpus: vec![reactor::available_cpus()[0]; 2],
        backend,
        spin_us_max: 0,
        placement: Placement::RoundRobin,
        memory_max: 256 << 20,
        ..Config::default()
    }
}

fn with_target(backend: Choice, test: impl Fn(&Running)) {
    let running = server::start(config(backend)).expect("starts");
    test(&running);
    stop(running);
}

fn portal(running: &Running) -> SocketAddr {
    running.addresses()[0]
}

#[each_driver]
fn client_reads_what_it_wrote_in_every_form_and_size(backend: Choice) {
    with_target(backend, |running| {
        for form in [Form::Simple, Form::Structured, Form::Extended] {
            let mut client = Client::open(portal(running), form, "ram");
            for (seed, blocks) in (1..).zip([1, 3, 16, 64, 256, 1024, 4096]) {
                let data = pattern(seed, blocks * BLOCK);
                assert_eq!(client.write(0, 0, &data), Outcome::Done(vec![]));
                let read = client.request(request::READ, 0, 0, data.len() as u64);
                assert!(read == Outcome::Done(data), "{form:?} {blocks}");
            }
            let zero = client.request(request::WRITE_ZEROES, flags::FUA, 0, 16 << 20);
            assert_eq!(zero, Outcome::Done(vec![]));
            let read = client.request(request::READ, 0, 0, 1 << 20);
            assert!(read == Outcome::Done(vec![0; 1 << 20]));
            for kind in [request::TRIM, request::CACHE] {
                let done = client.request(kind, flags::FUA, BLOCK as u64, 1 << 20);
                assert_eq!(done, Outcome::Done(vec![]));
            }
            let flush = client.request(request::FLUSH, 0, 0, 0);
            assert_eq!(flush, Outcome::Done(vec![]));
        }
    });
}

#[each_driver]
fn refused_requests_between_others_cost_only_themselves(backend: Choice) {
    with_target(backend, |running| {
        let mut client = Client::open(portal(running), Form::Structured, "other");
        let size = 64 * BLOCK as u64;
        for _ in 0..4 {
            let beyond = client.write(0, size - 4096, &pattern(1, 2 * BLOCK));
            assert_eq!(beyond, Outcome::Failed(nbd_error::ENOSPC));
            let unaligned = client.write(0, 512, &pattern(2, BLOCK));
            assert_eq!(unaligned, Outcome::Failed(nbd_error::EINVAL));
            let data = pattern(3, BLOCK);
            assert_eq!(client.write(flags::FUA, 0, &data), Outcome::Done(vec![]));
            let read = client.request(request::READ, flags::DF, 0, BLOCK as u64);
            assert_eq!(read, Outcome::Done(data));
        }
    });
}

#[each_driver]
fn holes_are_told_where_nothing_was_written(backend: Choice) {
    with_target(backend, |running| {
        for form in [Form::Structured, Form::Extended] {
            let mut client = Client::with_context(portal(running), form, "other");
            assert_eq!(
                client.write(0, 65536, &pattern(1, 4 * BLOCK)),
                Outcome::Done(vec![])
            );
            let told = client.block_status(0, 64 * BLOCK as u64, 0);
            assert_eq!(told, [(65536, 3), (16384, 0), (180_224, 3)], "{form:?}");
            let one = client.block_status(65536, 64 * BLOCK as u64 - 65536, flags::REQ_ONE);
            assert_eq!(one, [(16384, 0)]);
        }
    });
}

#[each_driver]
fn all_connections_read_what_one_has_written(backend: Choice) {
    with_target(backend, |running| {
        let mut clients: Vec<_> = (0..6)
            .map(|_| Client::open(portal(running), Form::Structured, "ram"))
            .collect();
        for round in 0..12 {
            let data = pattern(round, 8 * BLOCK);
            let writer = usize::from(round) % clients.len();
            assert_eq!(clients[writer].write(0, 0, &data), Outcome::Done(vec![]));
            for client in &mut clients {
                let read = client.request(request::READ, 0, 0, data.len() as u64);
                assert!(read == Outcome::Done(data.clone()));
            }
        }
    });
}

#[each_driver]
fn many_requests_under_way_are_all_answered(backend: Choice) {
    with_target(backend, |running| {
        let mut client = Client::open(portal(running), Form::Simple, "ram");
        for at in 0..3000u64 {
            client.send(
                request::WRITE,
                0,
                at % 4096 * BLOCK as u64,
                &pattern(at as u8, BLOCK),
            );
        }
        for at in 0..3000 {
            assert_eq!(client.receive(at), Outcome::Done(vec![]));
        }
        for at in 0..3000u64 {
            let read = client.request(request::READ, 0, at % 4096 * BLOCK as u64, BLOCK as u64);
            assert!(read == Outcome::Done(pattern(at as u8, BLOCK)), "{at}");
        }
    });
}

#[each_driver]
fn zeros_of_a_whole_volume_count_as_the_longest_write_against_a_limit(backend: Choice) {
    let mut config = config(backend);
    let huge = store::Spec::new("huge", store::Kind::NULL, 8 << 40, 4096);
    config.volumes.push(huge);
    config.nbd_exports.push(export("huge"));
    let running = server::start(config).expect("starts");
    // A second's worth is more than the longest write, and of the volume it would take days.
    let mut limit = rate_limits::one_of(1);
    limit.rates.bytes = Some(64 << 20);
    rate_limits::set(&running, &[limit]);
    let mut client = Client::open(portal(&running), Form::Extended, "huge");
    let zero = client.request(request::WRITE_ZEROES, 0, 0, 8 << 40);
    assert_eq!(zero, Outcome::Done(vec![]));
    let data = pattern(1, BLOCK);
    assert_eq!(client.write(0, 0, &data), Outcome::Done(vec![]));
    assert_eq!(rate_limits::held_back(&running), 0);
    stop(running);
}
