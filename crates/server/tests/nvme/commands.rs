//! Every I/O command with its data, and every way in which it is refused, on
//! memory and on a file.

use needs::each_driver;
use std::path::Path;
use std::sync::Arc;

use reactor::Choice;
use server::{Config, Limits, NamespaceSpec, Running};
use store::{Errno, Error, Volume};
use wire::nvme::{NSID_ALL, Sqe, Status, cdw12, io as opcode};

use crate::common::{BLOCK, Host, config, ram, stop};
use crate::gate::Gate;
use crate::initiator::{Carry, Initiator, Io, blocks, copy, deallocate, digests, on, pattern};
use crate::report::report;

/// Namespaces: memory, a file, memory with small blocks, memory that may not
/// be written.
const RAM: u32 = 1;
const FILE: u32 = 2;
const SMALL: u32 = 3;
const FIXED: u32 = 4;
const SMALL_BLOCK: usize = 512;
const COUNT: u64 = 4096;

fn served(backend: Choice, folder: &Path) -> Config {
    let file = store::Spec {
        kind: store::Kind::file(folder.join("disk")),
        ..ram("file", COUNT)
    };
    let small = store::Spec {
        block_bytes: SMALL_BLOCK as u32,
        ..ram("small", 256)
    };
    let fixed = store::Spec {
        read_only: true,
        ..ram("fixed", 256)
    };
    let mut config = config(backend, Limits::default(), 256 << 20);
    config.volumes.extend([file, small, fixed]);
    let names = ["ram", "file", "small", "fixed"];
    let namespaces = (1..).zip(names).map(|(nsid, name)| NamespaceSpec {
        nsid,
        volume: name.into(),
        ..NamespaceSpec::default()
    });
    config.subsystems[0].namespaces = namespaces.collect();
    config
}

/// Runs a test with an initiator and an I/O queue.
fn connected(backend: Choice, test: impl Fn(&Running, &mut Initiator, &mut Io)) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(served(backend, folder.path())).expect("starts");
    let mut initiator = Initiator::connect(running.addresses()[0], backend);
    let mut io = initiator.queue(1);
    test(&running, &mut initiator, &mut io);
    stop(running);
}

fn status(io: &mut Io, sqe: &Sqe, carry: Carry<'_>) -> Status {
    io.run(sqe, carry).status
}

#[each_driver]
fn read_of_a_namespace_returns_what_was_written(backend: Choice) {
    connected(backend, |_, initiator, plain| {
        let mut digested = initiator.queue_with(2, digests());
        for (n, nsid) in [(1, RAM), (2, FILE)] {
            for len in [BLOCK, 2 * BLOCK, 128 << 10, 1 << 20] {
                let data = pattern(n ^ len as u64, len);
                assert_eq!(plain.write(nsid, 7, &data, BLOCK), Status::SUCCESS);
                assert_eq!(digested.read(nsid, 7, len, BLOCK), data);
                let data = pattern(!len as u64, len);
                assert_eq!(digested.write(nsid, 9, &data, BLOCK), Status::SUCCESS);
                assert_eq!(plain.read(nsid, 9, len, BLOCK), data);
            }
            let mut durable = blocks(opcode::WRITE, nsid, 0, 1);
            durable.cdw12 = (durable.cdw12.get() | cdw12::FUA).into();
            let data = pattern(77, BLOCK);
            assert_eq!(status(plain, &durable, Carry::Out(&data)), Status::SUCCESS);
            assert_eq!(digested.read(nsid, 0, BLOCK, BLOCK), data);
        }
        let data = pattern(78, 3 * SMALL_BLOCK);
        assert_eq!(plain.write(SMALL, 5, &data, SMALL_BLOCK), Status::SUCCESS);
        assert_eq!(digested.read(SMALL, 5, data.len(), SMALL_BLOCK), data);
    });
}

#[each_driver]
fn compare_tells_equal_from_different(backend: Choice) {
    connected(backend, |_, _, io| {
        for nsid in [RAM, FILE] {
            let mut data = pattern(3, 16 * BLOCK);
            assert_eq!(io.write(nsid, 32, &data, BLOCK), Status::SUCCESS);
            let compare = blocks(opcode::COMPARE, nsid, 32, 16);
            assert_eq!(status(io, &compare, Carry::Out(&data)), Status::SUCCESS);
            data[15 * BLOCK + 5] ^= 1;
            let failure = Status::COMPARE_FAILURE.dnr();
            assert_eq!(status(io, &compare, Carry::Out(&data)), failure);
            let one = blocks(opcode::COMPARE, nsid, 32, 1);
            assert_eq!(
                status(io, &one, Carry::Out(&data[..BLOCK])),
                Status::SUCCESS
            );
        }
    });
}

#[each_driver]
fn the_error_log_names_the_block_that_differs(backend: Choice) {
    connected(backend, |running, _, io| {
        let (mut admin, _) = crate::common::Queue::admin(running.addresses()[0], 0);
        let data = vec![0; 4 * BLOCK];
        let mut other = data.clone();
        other[3 * BLOCK] = 1;
        assert_eq!(io.write(RAM, 100, &data, BLOCK), Status::SUCCESS);
        // The log is each controller's own.
        let host = crate::common::Host::at(running.addresses()[0]);
        let cntlid = admin.identify(1, 0);
        let cntlid = u16::from_le_bytes([cntlid[78], cntlid[79]]);
        let (mut own, _) = host.queue(1, cntlid).expect("admitted");
        let compare = blocks(opcode::COMPARE, RAM, 102, 2);
        let (status, _) = own.command(compare, &other[2 * BLOCK..]);
        assert_eq!(status, Status::COMPARE_FAILURE.dnr());
        // Error Information entry (Base 2.0, figure 206): LBA at 16.
        let log = admin.log_page(1, 64);
        assert_eq!(log[16..24], 103u64.to_le_bytes());
    });
}

#[each_driver]
fn spoiled_blocks_fail_until_they_are_written(backend: Choice) {
    connected(backend, |_, _, io| {
        for nsid in [RAM, FILE] {
            let data = pattern(4, 8 * BLOCK);
            assert_eq!(io.write(nsid, 200, &data, BLOCK), Status::SUCCESS);
            let verify = blocks(opcode::VERIFY, nsid, 200, 8);
            assert_eq!(status(io, &verify, Carry::Nothing), Status::SUCCESS);
            let spoil = blocks(opcode::WRITE_UNCORRECTABLE, nsid, 202, 2);
            assert_eq!(status(io, &spoil, Carry::Nothing), Status::SUCCESS);

            let unreadable = Status::UNRECOVERED_READ.dnr();
            assert_eq!(status(io, &verify, Carry::Nothing), unreadable);
            let read = blocks(opcode::READ, nsid, 203, 1);
            assert_eq!(status(io, &read, Carry::In(BLOCK)), unreadable);
            let compare = blocks(opcode::COMPARE, nsid, 202, 1);
            let block = &data[2 * BLOCK..3 * BLOCK];
            assert_eq!(status(io, &compare, Carry::Out(block)), unreadable);
            // Their neighbours are as they were.
            assert_eq!(io.read(nsid, 200, 2 * BLOCK, BLOCK), data[..2 * BLOCK]);
            assert_eq!(io.read(nsid, 204, 4 * BLOCK, BLOCK), data[4 * BLOCK..]);

            assert_eq!(io.write(nsid, 202, block, BLOCK), Status::SUCCESS);
            assert_eq!(io.read(nsid, 202, BLOCK, BLOCK), block);
            assert_eq!(status(io, &read, Carry::In(BLOCK)), unreadable);
            let zeroes = blocks(opcode::WRITE_ZEROES, nsid, 203, 1);
            assert_eq!(status(io, &zeroes, Carry::Nothing), Status::SUCCESS);
            assert_eq!(io.read(nsid, 203, BLOCK, BLOCK), vec![0; BLOCK]);
        }
    });
}

#[each_driver]
fn zeroed_and_deallocated_ranges_read_as_zeros(backend: Choice) {
    connected(backend, |_, _, io| {
        for nsid in [RAM, FILE] {
            let data = pattern(5, 256 * BLOCK);
            for deac in [0, cdw12::DEAC] {
                assert_eq!(io.write(nsid, 512, &data, BLOCK), Status::SUCCESS);
                let mut zeroes = blocks(opcode::WRITE_ZEROES, nsid, 513, 254);
                zeroes.cdw12 = (zeroes.cdw12.get() | deac).into();
                assert_eq!(status(io, &zeroes, Carry::Nothing), Status::SUCCESS);
                let read = io.read(nsid, 512, 256 * BLOCK, BLOCK);
                assert_eq!(read[..BLOCK], data[..BLOCK]);
                assert!(read[BLOCK..255 * BLOCK].iter().all(|byte| *byte == 0));
                assert_eq!(read[255 * BLOCK..], data[255 * BLOCK..]);
            }
            assert_eq!(io.write(nsid, 512, &data, BLOCK), Status::SUCCESS);
            let (sqe, ranges) = deallocate(nsid, &[(520, 16), (600, 0), (560, 1)]);
            assert_eq!(status(io, &sqe, Carry::Out(&ranges)), Status::SUCCESS);
            let mut expected = data.clone();
            expected[8 * BLOCK..24 * BLOCK].fill(0);
            expected[48 * BLOCK..49 * BLOCK].fill(0);
            assert_eq!(io.read(nsid, 512, 256 * BLOCK, BLOCK), expected);
            // One range outside: none is touched.
            let (sqe, ranges) = deallocate(nsid, &[(512, 4), (COUNT, 1)]);
            let outside = Status::LBA_OUT_OF_RANGE.dnr();
            assert_eq!(status(io, &sqe, Carry::Out(&ranges)), outside);
            assert_eq!(io.read(nsid, 512, 256 * BLOCK, BLOCK), expected);
        }
    });
}

#[each_driver]
fn flush_of_one_namespace_and_of_all(backend: Choice) {
    connected(backend, |running, _, io| {
        let flushes = || -> Vec<u64> {
            let volumes = running.volumes();
            volumes
                .iter()
                .map(|volume| volume.stats().flushes)
                .collect()
        };
        let flush = on(opcode::FLUSH, FILE);
        assert_eq!(status(io, &flush, Carry::Nothing), Status::SUCCESS);
        assert_eq!(flushes(), [0, 1, 0, 0]);
        let all = on(opcode::FLUSH, NSID_ALL);
        assert_eq!(status(io, &all, Carry::Nothing), Status::SUCCESS);
        assert_eq!(flushes(), [1, 2, 1, 1]);
    });
}

/// NVM Command Set 1.0, sections 3.2.1, 3.2.4 and 3.2.5: what is read is committed.
#[each_driver]
fn read_with_fua_flushes_a_file_and_no_memory(backend: Choice) {
    connected(backend, |running, _, io| {
        let flushes_of = |volume: usize| running.volumes()[volume].stats().flushes;
        let flushes = || flushes_of(1);
        let data = pattern(8, 2 * BLOCK);
        for nsid in [RAM, FILE] {
            assert_eq!(io.write(nsid, 40, &data, BLOCK), Status::SUCCESS);
        }
        let with_fua = |opcode, nsid| {
            let mut sqe = blocks(opcode, nsid, 40, 2);
            sqe.cdw12 = (sqe.cdw12.get() | cdw12::FUA).into();
            sqe
        };
        // Memory has no other medium.
        for (nsid, before) in [(RAM, 0), (FILE, 0)] {
            let more = u64::from(nsid == FILE);
            let read = io.run(&with_fua(opcode::READ, nsid), Carry::In(data.len()));
            assert_eq!((read.status, read.data), (Status::SUCCESS, data.clone()));
            assert_eq!(flushes(), before + more);
            let compare = with_fua(opcode::COMPARE, nsid);
            assert_eq!(status(io, &compare, Carry::Out(&data)), Status::SUCCESS);
            assert_eq!(flushes(), before + 2 * more);
            let other = vec![0; data.len()];
            let failure = Status::COMPARE_FAILURE.dnr();
            assert_eq!(status(io, &compare, Carry::Out(&other)), failure);
            let verify = with_fua(opcode::VERIFY, nsid);
            assert_eq!(status(io, &verify, Carry::Nothing), Status::SUCCESS);
            assert_eq!(flushes(), before + 3 * more);
        }
        assert_eq!(flushes_of(0), 0);
    });
}

/// What another host writes after a flush may be what is read: the flush comes last.
#[each_driver]
fn read_with_fua_is_flushed_after_its_data_was_read(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    let kind = store::Kind::file(path);
    let gate = Gate::open_over(&store::Spec {
        kind,
        ..ram("ram", COUNT)
    });
    let config = config(backend, Limits::default(), 64 << 20);
    let running = server::parts::start_with(config, vec![gate.clone()]).expect("starts");
    let initiator = Initiator::connect(running.addresses()[0], backend);
    let mut io = initiator.queue(1);
    let flushes = || gate.stats().flushes;
    let data = pattern(8, 2 * BLOCK);
    assert_eq!(io.write(1, 40, &data, BLOCK), Status::SUCCESS);
    let with_fua = |opcode| {
        let mut sqe = blocks(opcode, 1, 40, 2);
        sqe.cdw12 = (sqe.cdw12.get() | cdw12::FUA).into();
        sqe
    };
    let all = |data| {
        [
            (opcode::READ, Carry::In(2 * BLOCK)),
            (opcode::COMPARE, Carry::Out(data)),
            (opcode::VERIFY, Carry::Nothing),
        ]
    };
    for (opcode, carry) in all(&data) {
        gate.shut();
        let before = flushes();
        let tag = io.submit(&with_fua(opcode), carry);
        io.until(|_| gate.hanging() == 1);
        assert_eq!(flushes(), before, "{opcode}");
        gate.open();
        assert_eq!(io.wait(tag).status, Status::SUCCESS);
        assert_eq!(flushes(), before + 1, "{opcode}");
    }
    // Where the flush fails, what was read is not answered, and the failure stands where
    // the command is.
    gate.fail_flushes(Some(Error::FlushFailed(Errno::IO)));
    for (opcode, carry) in all(&data) {
        let ended = io.run(&with_fua(opcode), carry);
        assert_eq!(ended.status, Status::WRITE_FAULT, "{opcode}");
    }
    let (mut admin, mut raw) = Host::at(running.addresses()[0]).pair();
    let (failed, _) = raw.command(with_fua(opcode::VERIFY), &[]);
    assert_eq!(failed, Status::WRITE_FAULT);
    assert_eq!(admin.log_page(1, 64)[16..24], 40u64.to_le_bytes());
    gate.fail_flushes(None);
    // No part of a command begins when its connection is gone.
    gate.shut();
    let before = flushes();
    io.submit(&with_fua(opcode::READ), Carry::In(2 * BLOCK));
    io.until(|_| gate.hanging() == 1);
    io.hang_up();
    wait_for(|| report(&running).orphans == 1);
    gate.open();
    wait_for(|| report(&running).orphans == 0);
    assert_eq!(flushes(), before);
    stop(running);
}

#[each_driver]
fn impossible_commands_are_refused_with_the_status_of_the_standard(backend: Choice) {
    connected(backend, |_, _, io| {
        let block = vec![0; BLOCK];
        let outside = Status::LBA_OUT_OF_RANGE.dnr();
        let protected = Status::WRITE_PROTECTED.dnr();
        let nowhere = Status::INVALID_FIELD.dnr();
        for (opcode, carry) in [
            (opcode::READ, Carry::In(BLOCK)),
            (opcode::WRITE, Carry::Out(&block)),
            (opcode::COMPARE, Carry::Out(&block)),
            (opcode::VERIFY, Carry::Nothing),
            (opcode::WRITE_ZEROES, Carry::Nothing),
            (opcode::WRITE_UNCORRECTABLE, Carry::Nothing),
        ] {
            let behind = blocks(opcode, FILE, COUNT, 1);
            assert_eq!(status(io, &behind, carry), outside, "{opcode:x}");
            let wrapped = blocks(opcode, FILE, u64::MAX, 1);
            assert_eq!(status(io, &wrapped, carry), outside, "{opcode:x}");
            let unknown = blocks(opcode, 99, 0, 1);
            assert_eq!(status(io, &unknown, carry), nowhere, "{opcode:x}");
        }
        for (opcode, carry) in [
            (opcode::WRITE, Carry::Out(&block)),
            (opcode::WRITE_ZEROES, Carry::Nothing),
            (opcode::WRITE_UNCORRECTABLE, Carry::Nothing),
        ] {
            let write = blocks(opcode, FIXED, 0, 1);
            assert_eq!(status(io, &write, carry), protected, "{opcode:x}");
        }
        let (sqe, ranges) = deallocate(FIXED, &[(0, 1)]);
        assert_eq!(status(io, &sqe, Carry::Out(&ranges)), protected);
        let (sqe, ranges) = copy(FIXED, 0, 0, &[(FIXED, 8, 1)]);
        assert_eq!(status(io, &sqe, Carry::Out(&ranges)), protected);
        assert_eq!(io.read(FIXED, 0, BLOCK, BLOCK), block);
        let compare = blocks(opcode::COMPARE, FIXED, 0, 1);
        assert_eq!(status(io, &compare, Carry::Out(&block)), Status::SUCCESS);
        // MDTS is 1 MiB.
        let large = blocks(opcode::READ, RAM, 0, 257);
        let refused = status(io, &large, Carry::In(257 * BLOCK));
        assert_eq!(refused, Status::INVALID_FIELD.dnr());
        let reserved = blocks(0x7e, RAM, 0, 1);
        let unknown = status(io, &reserved, Carry::Nothing);
        assert_eq!(unknown, Status::INVALID_OPCODE.dnr());
    });
}

/// Set Features, Namespace Write Protection Config (FID 84h): 1 is Write
/// Protect, 3 Permanent Write Protect (Base 2.0, section 5.27.1.30).
#[each_driver]
fn a_protected_namespace_takes_no_write_until_it_is_released(backend: Choice) {
    const FID: u8 = 0x84;
    connected(backend, |_, initiator, io| {
        let block = pattern(7, BLOCK);
        for nsid in [RAM, FILE] {
            initiator.set_feature(FID, nsid, 1).expect("protects");
            let protected = Status::WRITE_PROTECTED.dnr();
            assert_eq!(io.write(nsid, 0, &block, BLOCK), protected);
            assert_eq!(io.read(nsid, 0, BLOCK, BLOCK), vec![0; BLOCK]);
            initiator.set_feature(FID, nsid, 0).expect("releases");
            assert_eq!(io.write(nsid, 0, &block, BLOCK), Status::SUCCESS);
            assert_eq!(io.read(nsid, 0, BLOCK, BLOCK), block);
        }
        // Nowhere to keep it: a volume without a state file cannot promise it.
        initiator.set_feature(FID, RAM, 3).expect_err("refused");
        assert_eq!(io.write(RAM, 0, &block, BLOCK), Status::SUCCESS);
    });
}

/// Volumes of the test's own, as namespaces 1 and 2. Neither is memory to the
/// target: what they read and write lies in its buffers.
pub fn serve_gates(backend: Choice) -> (Running, Arc<Gate>, Arc<Gate>) {
    serve_gates_in(256 << 20, backend)
}

/// The same with so much memory for the target's buffers.
pub fn serve_gates_in(memory_max: u64, backend: Choice) -> (Running, Arc<Gate>, Arc<Gate>) {
    let gate = Gate::open_over(&ram("ram", COUNT));
    let beside = Gate::open_over(&ram("beside", COUNT));
    let mut config = config(backend, Limits::default(), memory_max);
    config.subsystems[0].namespaces.push(NamespaceSpec {
        nsid: 2,
        volume: "beside".into(),
        ..NamespaceSpec::default()
    });
    let volumes: Vec<Arc<dyn Volume>> = vec![gate.clone(), beside.clone()];
    let running = server::parts::start_with(config, volumes).expect("starts");
    (running, gate, beside)
}

#[each_driver]
fn every_error_of_a_volume_has_its_status(backend: Choice) {
    let errno = Errno::IO;
    let table = [
        (Error::OutOfRange, Status::LBA_OUT_OF_RANGE.dnr()),
        (Error::ReadOnly, Status::WRITE_PROTECTED.dnr()),
        (Error::OutOfSpace(errno), Status::CAPACITY_EXCEEDED.dnr()),
        (Error::ReadFailed(errno), Status::UNRECOVERED_READ),
        (Error::WriteFailed(errno), Status::WRITE_FAULT),
        (Error::FlushFailed(errno), Status::WRITE_FAULT),
        (Error::Unreadable, Status::UNRECOVERED_READ.dnr()),
        (Error::ChecksumMismatch, Status::UNRECOVERED_READ.dnr()),
        (Error::Busy, Status::COMMAND_INTERRUPTED),
        (
            Error::Miscompare { offset: 0 },
            Status::COMPARE_FAILURE.dnr(),
        ),
    ];
    let (running, gate, _) = serve_gates(backend);
    let initiator = Initiator::connect(running.addresses()[0], backend);
    let mut io = initiator.queue(1);
    let block = [0; BLOCK];
    for (error, expected) in table {
        gate.fail(Some(error));
        // A write waits for one that is busy.
        if error != Error::Busy {
            let write = io.write(1, 0, &block, BLOCK);
            assert_eq!(write, expected, "{error}");
        }
        let verify = blocks(opcode::VERIFY, 1, 0, 1);
        assert_eq!(io.run(&verify, Carry::Nothing).status, expected, "{error}");
        // It costs that command alone.
        assert_eq!(io.write(2, 0, &block, BLOCK), Status::SUCCESS);
        gate.fail(None);
        assert_eq!(io.write(1, 0, &block, BLOCK), Status::SUCCESS);
    }
    stop(running);
}

/// The volume shrinks between the decoding of a command and its execution.
#[each_driver]
fn read_of_blocks_that_a_shrink_has_removed_is_out_of_range(backend: Choice) {
    let (running, gate, _) = serve_gates(backend);
    let initiator = Initiator::connect(running.addresses()[0], backend);
    let mut io = initiator.queue(1);
    gate.shut();
    let read = io.submit(
        &blocks(opcode::READ, 1, COUNT - 256, 256),
        Carry::In(1 << 20),
    );
    io.until(|_| gate.hanging() == 1);
    let half = COUNT / 2 * BLOCK as u64;
    gate.resize(half, true).expect("shrinks");
    gate.open();
    assert_eq!(io.wait(read).status, Status::LBA_OUT_OF_RANGE.dnr());
    stop(running);
}

/// Waits for something in the target that it does not report.
pub fn wait_for(mut is_true: impl FnMut() -> bool) {
    let give_up = std::time::Instant::now() + crate::common::PATIENCE;
    while !is_true() {
        assert!(std::time::Instant::now() < give_up, "it never came true");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
