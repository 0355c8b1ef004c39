//! Limits of what hosts read and write in a second: what waits, what it costs, and how it ends.

use needs::each_driver;
use reactor::Choice;
use server::{IscsiTargetSpec, Limits, ListenerSpec, LunSpec, RateLimit, Rates};
use std::net::SocketAddr;
use wire::nvme::{Status, io as opcode};

use crate::commands::wait_for;
use crate::common::{BLOCK, HOST, NQN, config, ram, stop};
use crate::initiator::{Carry, Initiator, blocks, pattern};
use crate::limited::{held_back, one_of, set};
use crate::scsi::{ALICE, DISKS, Nexus};

/// Two volumes behind two namespaces, and the first behind a target.
fn serve(backend: Choice, limits: Vec<RateLimit>) -> server::Running {
    let mut config = config(backend, Limits::default(), 128 << 20);
    config.volumes.push(ram("other", 4096));
    let mut second = config.subsystems[0].namespaces[0].clone();
    (second.nsid, second.volume) = (2, "other".to_owned());
    config.subsystems[0].namespaces.push(second);
    let mut disks = IscsiTargetSpec::new(DISKS);
    disks.luns = vec![LunSpec::new(0, "ram")];
    config.iscsi_targets = vec![disks];
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    config.listeners.push(ListenerSpec::iscsi(local));
    config.rate_limits = limits;
    server::start(config).expect("starts")
}

/// A limit of so many I/Os in a second, for all.
fn iops(iops: u64) -> RateLimit {
    RateLimit {
        name: "a limit".to_owned(),
        rates: Rates {
            iops: Some(iops),
            ..Rates::default()
        },
        ..RateLimit::default()
    }
}

fn on_ram(limit: RateLimit) -> RateLimit {
    RateLimit {
        volumes: vec!["ram".to_owned()],
        ..limit
    }
}

/// What waits holds no memory, other volumes of the same queue go on, and it ends as soon as the
/// limit does.
#[each_driver]
fn reads_of_a_limited_volume_wait_without_memory_and_can_be_aborted(backend: Choice) {
    let len = 16 * BLOCK;
    let running = serve(backend, vec![on_ram(one_of(len as u64))]);
    let mut initiator = Initiator::connect(running.addresses()[0], backend);
    let mut io = initiator.queue(1);
    let read = |nsid| blocks(opcode::READ, nsid, 0, 16);
    let first = io.submit(&read(1), Carry::In(len));
    assert_eq!(io.wait(first).status, Status::SUCCESS);
    let waiting: Vec<_> = (0..8)
        .map(|_| io.submit(&read(1), Carry::In(len)))
        .collect();
    io.flush();
    wait_for(|| held_back(&running) == 8);
    for _ in 0..8 {
        let other = io.submit(&read(2), Carry::In(len));
        assert_eq!(io.wait(other).status, Status::SUCCESS, "another volume");
    }
    assert!(initiator.admin.abort(1, waiting[0]).expect("Abort"));
    assert_eq!(io.wait(waiting[0]).status, Status::ABORT_REQUESTED);
    assert_eq!(held_back(&running), 7);
    assert_eq!(crate::report::report(&running).orphans, 0);
    assert!(!waiting[1..].iter().any(|tag| io.has_ended(*tag)));
    set(&running, &[]);
    for tag in &waiting[1..] {
        assert_eq!(io.wait(*tag).status, Status::SUCCESS);
    }
    assert_eq!(held_back(&running), 0);
    stop(running);
}

/// Data of large writes is asked for when they may go; that of small ones, which came with
/// its command, keeps what comes behind it, and the Admin Queue goes on.
#[each_driver]
fn writes_of_a_limited_volume_get_no_memory_before_they_go(backend: Choice) {
    for len in [BLOCK, 64 * BLOCK] {
        let running = serve(backend, vec![on_ram(one_of(len as u64))]);
        let mut initiator = Initiator::connect(running.addresses()[0], backend);
        let mut io = initiator.queue(1);
        let data = pattern(1, len);
        let write = |n: u64| blocks(opcode::WRITE, 1, n * 64, len / BLOCK);
        let first = io.submit(&write(0), Carry::Out(&data));
        assert_eq!(io.wait(first).status, Status::SUCCESS);
        let before = crate::report::report(&running).pool_bytes;
        let waiting: Vec<_> = (1..9)
            .map(|n| io.submit(&write(n), Carry::Out(&data)))
            .collect();
        io.flush();
        let in_line = if len > BLOCK { 8 } else { 1 };
        wait_for(|| held_back(&running) == in_line);
        let after = crate::report::report(&running).pool_bytes;
        assert!(
            after < before + len as u64,
            "{after} of {before}: memory of those that wait"
        );
        let last = waiting[in_line - 1];
        assert!(initiator.admin.abort(1, last).expect("Abort"));
        assert_eq!(io.wait(last).status, Status::ABORT_REQUESTED);
        // A limit that changes twice under load holds each time.
        set(&running, &[on_ram(iops(1))]);
        set(&running, &[on_ram(iops(1_000_000))]);
        for tag in waiting.iter().filter(|tag| **tag != last) {
            assert_eq!(io.wait(*tag).status, Status::SUCCESS);
        }
        assert_eq!(io.read(1, 7 * 64, len, BLOCK), data);
        stop(running);
    }
}

#[each_driver]
fn a_fused_pair_waits_for_a_limit_as_one_and_is_done_as_one(backend: Choice) {
    let running = serve(backend, vec![on_ram(one_of(BLOCK as u64))]);
    let mut initiator = Initiator::connect(running.addresses()[0], backend);
    let mut io = initiator.queue(1);
    assert_eq!(io.read(1, 0, BLOCK, BLOCK), vec![0; BLOCK]);
    let (compare, write) = crate::initiator::fused(1, 0, 1);
    let compare = io.submit(&compare, Carry::Out(&[0; BLOCK]));
    let write = io.submit(&write, Carry::Out(&[9; BLOCK]));
    io.flush();
    wait_for(|| held_back(&running) > 0);
    set(&running, &[]);
    assert_eq!(io.wait(compare).status, Status::SUCCESS);
    assert_eq!(io.wait(write).status, Status::SUCCESS);
    assert_eq!(io.read(1, 0, BLOCK, BLOCK), vec![9; BLOCK]);
    let _ = initiator.admin.abort(1, 0);
    stop(running);
}

/// Whichever protocol an I/O comes by, it takes of the same budget.
#[each_driver]
fn io_by_one_protocol_takes_of_a_limit_that_the_other_has_too(backend: Choice) {
    let mut limit = on_ram(iops(1));
    limit.rates.burst_s = 4;
    let running = serve(backend, vec![limit]);
    let mut nexus = Nexus::connect(running.addresses()[2], ALICE, DISKS);
    let mut initiator = Initiator::connect(running.addresses()[0], backend);
    let mut io = initiator.queue(1);
    for lba in 0..5 {
        nexus.read(BLOCK, lba, 1).expect("within the burst");
    }
    let read = blocks(opcode::READ, 1, 0, 1);
    let waiting: Vec<_> = (0..5).map(|_| io.submit(&read, Carry::In(BLOCK))).collect();
    io.flush();
    wait_for(|| held_back(&running) > 0);
    // Had they a burst of their own, none of them would be there to abort.
    assert!(initiator.admin.abort(1, waiting[4]).expect("Abort"));
    assert_eq!(io.wait(waiting[4]).status, Status::ABORT_REQUESTED);
    set(&running, &[]);
    for tag in &waiting[..4] {
        assert_eq!(io.wait(*tag).status, Status::SUCCESS);
    }
    let delays = running.shared().engine.rate_limits.figures();
    assert!(delays.is_empty(), "a limit that is gone has none");
    stop(running);
}

/// A limit may be about hosts, listeners and volumes together: about what is all of these.
#[each_driver]
fn a_limit_is_about_what_all_of_its_lists_name(backend: Choice) {
    let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect();
    let limit = |name: &str, hosts: &[&str], listeners: &[u16]| RateLimit {
        name: name.to_owned(),
        hosts: names(hosts),
        listeners: listeners.to_vec(),
        ..on_ram(one_of(BLOCK as u64))
    };
    let running = serve(
        backend,
        vec![
            limit("another host", &["nqn.2026-01.io.weft:other", ALICE], &[]),
            limit("another listener", &[HOST], &[1]),
            limit("this", &[HOST], &[0]),
        ],
    );
    let mut nexus = Nexus::connect(running.addresses()[2], ALICE, DISKS);
    nexus.read(BLOCK, 0, 1).expect("the first");
    let mut initiator = Initiator::named(running.addresses()[0], backend, HOST);
    let mut io = initiator.queue(1);
    assert_eq!(
        io.read(1, 0, BLOCK, BLOCK).len(),
        BLOCK,
        "of no limit of that one"
    );
    let waits = io.submit(&blocks(opcode::READ, 1, 0, 1), Carry::In(BLOCK));
    io.flush();
    wait_for(|| held_back(&running) == 1);
    let third = Initiator::named(running.addresses()[0], backend, "nqn.2026-01.io.weft:third");
    let mut free = third.queue(1);
    for _ in 0..4 {
        assert_eq!(
            free.read(1, 0, BLOCK, BLOCK).len(),
            BLOCK,
            "{NQN}: not limited"
        );
    }
    let by_other = Initiator::named(running.addresses()[1], backend, HOST);
    let mut by_other = by_other.queue(1);
    assert_eq!(by_other.read(1, 0, BLOCK, BLOCK).len(), BLOCK);
    assert!(initiator.admin.abort(1, waits).expect("Abort"));
    assert_eq!(io.wait(waits).status, Status::ABORT_REQUESTED);
    let delays = running.shared().engine.rate_limits.figures();
    assert_eq!(delays.len(), 3);
    let rates = Rates::default();
    assert!(delays.iter().all(|limit| limit.limit.rates != rates));
    stop(running);
}

/// With its connection goes what waits on it, and its place in the line.
#[each_driver]
fn commands_that_wait_for_a_limit_end_with_their_connection(backend: Choice) {
    let running = serve(backend, vec![on_ram(one_of(BLOCK as u64))]);
    let address = running.addresses()[0];
    let initiator = Initiator::connect(address, backend);
    let mut io = initiator.queue(1);
    assert_eq!(io.read(1, 0, BLOCK, BLOCK).len(), BLOCK);
    for n in 0..4 {
        io.submit(&blocks(opcode::READ, 1, n, 1), Carry::In(BLOCK));
    }
    io.flush();
    wait_for(|| held_back(&running) == 4);
    io.hang_up();
    drop(initiator);
    wait_for(|| crate::report::report(&running).connections == 0);
    set(&running, &[on_ram(iops(1_000_000))]);
    let initiator = Initiator::connect(address, backend);
    let mut io = initiator.queue(1);
    assert_eq!(io.read(1, 0, BLOCK, BLOCK).len(), BLOCK);
    stop(running);
}
