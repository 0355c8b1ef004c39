//! Fused Compare and Write: its statuses, and that it stays one step however
//! many hosts interleave it over however many queues.

use needs::each_driver;
use std::sync::atomic::{AtomicU64, Ordering};

use reactor::Choice;
use server::{Config, Limits, NamespaceSpec};
use store::{Errno, Error};
use wire::nvme::{Sqe, Status, cdw12, io as opcode};

use crate::commands::serve_gates;
use crate::common::{BLOCK, HOST, config, ram, stop};
use crate::initiator::{Carry, Initiator, Io, blocks, digests, fused, pattern};

const RAM: u32 = 1;
const FILE: u32 = 2;

fn served(backend: Choice, folder: &std::path::Path) -> Config {
    let mut config = config(backend, Limits::default(), 256 << 20);
    config.volumes.push(store::Spec {
        kind: store::Kind::file(folder.join("disk")),
        ..ram("file", 4096)
    });
    config.subsystems[0].namespaces.push(NamespaceSpec {
        nsid: FILE,
        volume: "file".into(),
        ..NamespaceSpec::default()
    });
    config
}

/// Sends both halves at once; how they ended.
fn pair(io: &mut Io, (compare, write): (Sqe, Sqe), old: &[u8], new: &[u8]) -> (Status, Status) {
    let compare = io.submit(&compare, Carry::Out(old));
    let write = io.submit(&write, Carry::Out(new));
    (io.wait(compare).status, io.wait(write).status)
}

#[each_driver]
fn equal_data_is_replaced_and_other_data_is_not(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(served(backend, folder.path())).expect("starts");
    let initiator = Initiator::connect(running.addresses()[0], backend);
    let mut queues = [initiator.queue(1), initiator.queue_with(2, digests())];
    for nsid in [RAM, FILE] {
        for (n, io) in queues.iter_mut().enumerate() {
            // In the capsules, and asked for.
            for count in [1, 4, 8] {
                let seed = (n * 16 + count) as u64;
                let (old, new) = (pattern(seed, count * BLOCK), pattern(!seed, count * BLOCK));
                assert_eq!(io.write(nsid, 40, &old, BLOCK), Status::SUCCESS);
                let (compare, mut write) = fused(nsid, 40, count);
                let success = (Status::SUCCESS, Status::SUCCESS);
                assert_eq!(pair(io, (compare, write), &old, &new), success);
                assert!(io.read(nsid, 40, count * BLOCK, BLOCK) == new);

                let differs = (Status::COMPARE_FAILURE.dnr(), Status::FUSED_FAILED);
                assert_eq!(pair(io, (compare, write), &old, &old), differs);
                assert!(io.read(nsid, 40, count * BLOCK, BLOCK) == new);
                write.cdw12 = (write.cdw12.get() | cdw12::FUA).into();
                assert_eq!(pair(io, (compare, write), &new, &old), success);
                assert!(io.read(nsid, 40, count * BLOCK, BLOCK) == old);
            }
        }
    }
    stop(running);
}

#[each_driver]
fn failure_of_either_half_of_a_fused_pair_fails_the_other(backend: Choice) {
    let (running, gate, _) = serve_gates(backend);
    let initiator = Initiator::connect(running.addresses()[0], backend);
    let mut io = initiator.queue(1);
    let block = [0; BLOCK];
    for (error, expected) in [
        (
            Error::ReadFailed(Errno::IO),
            (Status::UNRECOVERED_READ, Status::FUSED_FAILED),
        ),
        (
            Error::WriteFailed(Errno::IO),
            (Status::FUSED_FAILED, Status::WRITE_FAULT),
        ),
        (
            Error::OutOfSpace(Errno::NOSPC),
            (Status::FUSED_FAILED, Status::CAPACITY_EXCEEDED.dnr()),
        ),
    ] {
        gate.fail(Some(error));
        assert_eq!(pair(&mut io, fused(1, 0, 1), &block, &block), expected);
    }
    gate.fail(None);
    stop(running);
}

#[each_driver]
fn a_half_alone_is_refused(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(served(backend, folder.path())).expect("starts");
    let initiator = Initiator::connect(running.addresses()[0], backend);
    let mut io = initiator.queue(1);
    let block = [0; BLOCK];
    let (compare, write) = fused(RAM, 0, 1);
    let alone = io.submit(&compare, Carry::Out(&block));
    let after = io.submit(&blocks(opcode::READ, RAM, 0, 1), Carry::In(BLOCK));
    assert_eq!(io.wait(alone).status.code(), Status::FUSED_MISSING);
    assert_eq!(io.wait(after).status, Status::SUCCESS);
    let alone = io.run(&write, Carry::Out(&block));
    assert_eq!(alone.status.code(), Status::FUSED_MISSING);
    stop(running);
}

/// Heartbeat blocks shared by two hosts with two queues each, as a cluster
/// file system keeps them: every successful compare-and-write adds one.
#[each_driver]
fn one_of_concurrent_compare_and_writes_of_a_block_succeeds(backend: Choice) {
    const WINS_EACH: u64 = 150;
    const BLOCKS: u64 = 2;
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(served(backend, folder.path())).expect("starts");
    let address = running.addresses()[0];
    let other = HOST.replace("0b9b", "0b9c");
    let hosts = [
        Initiator::connect(address, backend),
        Initiator::named(address, backend, &other),
    ];
    let lost = AtomicU64::new(0);
    for nsid in [RAM, FILE] {
        std::thread::scope(|scope| {
            for (host, qid) in hosts.iter().flat_map(|host| [(host, 1), (host, 2)]) {
                let qid = qid + 2 * (nsid as u16 - 1);
                let (seat, lost) = (host.seat.clone(), &lost);
                scope.spawn(move || {
                    let mut io = seat.queue(qid);
                    for turn in 0..WINS_EACH {
                        win(&mut io, nsid, turn % BLOCKS, lost);
                    }
                });
            }
        });
        let mut io = hosts[0].queue(9 + nsid as u16);
        for block in 0..BLOCKS {
            let read = io.read(nsid, block, BLOCK, BLOCK);
            // The whole block says the same.
            for word in read.chunks(8) {
                let count = u64::from_le_bytes(word.try_into().expect("8 bytes"));
                assert_eq!(count, 4 * WINS_EACH / BLOCKS);
            }
        }
    }
    assert!(lost.load(Ordering::Relaxed) > 0, "no pair ever raced");
    stop(running);
}

/// Adds one to a block, however often that takes.
fn win(io: &mut Io, nsid: u32, block: u64, lost: &AtomicU64) {
    let mut old = io.read(nsid, block, BLOCK, BLOCK);
    loop {
        let count = u64::from_le_bytes(old[..8].try_into().expect("8 bytes"));
        let new = (count + 1).to_le_bytes().repeat(BLOCK / 8);
        match pair(io, fused(nsid, block, 1), &old, &new) {
            (Status::SUCCESS, Status::SUCCESS) => return,
            (compare, write) => {
                assert_eq!(compare, Status::COMPARE_FAILURE.dnr());
                assert_eq!(write, Status::FUSED_FAILED);
                lost.fetch_add(1, Ordering::Relaxed);
            }
        }
        old = io.read(nsid, block, BLOCK, BLOCK);
    }
}
