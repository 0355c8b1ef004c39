//! Commands that end before their time: Abort, disconnect, reset and stop stay
//! bounded in time though a volume hangs, and an I/O that ends late harms no other.

use needs::each_driver;
use reactor::Choice;
use std::sync::Arc;

use server::{Limits, Running};
use wire::nvme::{Sqe, Status, admin, io as opcode};

use crate::commands::{serve_gates, wait_for};
use crate::common::{BLOCK, Host, PATIENCE, Queue, config, stop, with_target};
use crate::gate::Gate;
use crate::initiator::{Carry, Initiator, Io, blocks, copy, deallocate, fused, pattern};

const HANGS: u32 = 1;
const WORKS: u32 = 2;

fn connected(backend: Choice, test: impl Fn(&Running, &Arc<Gate>, &mut Initiator, &mut Io)) {
    let (running, gate, _) = serve_gates(backend);
    let mut initiator = Initiator::connect(running.addresses()[0], backend);
    let mut io = initiator.queue(1);
    test(&running, &gate, &mut initiator, &mut io);
    gate.open();
    stop(running);
}

#[each_driver]
fn an_abort_ends_what_a_volume_does_not(backend: Choice) {
    connected(backend, |running, gate, initiator, io| {
        let data = pattern(1, 4 * BLOCK);
        assert_eq!(io.write(HANGS, 0, &data, BLOCK), Status::SUCCESS);
        assert_eq!(io.write(WORKS, 0, &data, BLOCK), Status::SUCCESS);
        gate.shut();
        let (trim, ranges) = deallocate(HANGS, &[(0, 1), (2, 1)]);
        let (transfer, table) = copy(HANGS, 64, 0, &[(HANGS, 0, 2)]);
        let mut orphans = 0;
        for (sqe, carry) in [
            (blocks(opcode::READ, HANGS, 0, 4), Carry::In(4 * BLOCK)),
            (blocks(opcode::COMPARE, HANGS, 0, 4), Carry::Out(&data)),
            (blocks(opcode::VERIFY, HANGS, 0, 4), Carry::Nothing),
            (blocks(opcode::WRITE_ZEROES, HANGS, 8, 4), Carry::Nothing),
            (trim, Carry::Out(&ranges)),
            (transfer, Carry::Out(&table)),
        ] {
            let tag = io.submit(&sqe, carry);
            orphans += 1;
            io.until(|_| gate.hanging() == orphans);
            assert!(initiator.admin.abort(1, tag).expect("Abort"));
            let ended = io.wait(tag);
            assert_eq!(ended.status, Status::ABORT_REQUESTED, "{:x}", sqe.opcode);
            assert_eq!(crate::report::report(running).orphans, orphans as u64);
            // The tag is free: the next command with it is not disturbed.
            let next = blocks(opcode::READ, WORKS, 0, 4);
            let next_tag = io.submit(&next, Carry::In(4 * BLOCK));
            assert_eq!(next_tag, tag);
            let ended = io.wait(next_tag);
            assert_eq!((ended.status, &ended.data), (Status::SUCCESS, &data));
        }
        gate.open();
        wait_for(|| crate::report::report(running).orphans == 0);
        // An aborted command goes no further than it had come: of the two
        // ranges one, of the Copy the read.
        let read = io.read(HANGS, 0, 4 * BLOCK, BLOCK);
        assert_eq!(read[2 * BLOCK..], data[2 * BLOCK..]);
        assert_eq!(io.read(HANGS, 64, 2 * BLOCK, BLOCK), vec![0; 2 * BLOCK]);
    });
}

/// Keep Alive ends a controller though its commands hang; those that had begun may still
/// be executed, and others have their turns meanwhile.
#[each_driver]
fn controller_of_a_silent_host_ends_though_its_write_hangs(backend: Choice) {
    let (running, gate, _) = serve_gates(backend);
    let address = running.addresses()[0];
    let silent = Host {
        kato_ms: 1000,
        ..Host::at(address)
    };
    let (admin, mut io) = silent.pair();
    let (_other_admin, mut other) = Host::at(address).pair();
    gate.shut();
    let mut write = Sqe::new(opcode::WRITE);
    write.nsid = HANGS.into();
    write.set_blocks(0, 1);
    io.send(write, &[7; BLOCK]);
    wait_for(|| gate.hanging() == 1);
    admin.expect_end();
    io.expect_end();
    assert_eq!(crate::report::report(&running).orphans, 1);
    assert_eq!(other.write(WORKS, 0, 1), Status::SUCCESS);
    gate.open();
    wait_for(|| crate::report::report(&running).orphans == 0);
    assert_eq!(other.read(HANGS, 0), Ok(vec![7; BLOCK]));
    stop(running);
}

/// What wakes up late writes into memory that is still its own.
#[each_driver]
fn memory_of_an_orphan_is_used_by_no_other_command(backend: Choice) {
    const COUNT: usize = 8;
    let (running, gate, beside) = serve_gates(backend);
    let mut initiator = Initiator::connect(running.addresses()[0], backend);
    let mut io = initiator.queue(1);
    let old = pattern(5, 4 * BLOCK);
    assert_eq!(io.write(HANGS, 0, &old, BLOCK), Status::SUCCESS);
    gate.shut();
    let reads: Vec<_> = (0..COUNT)
        .map(|_| io.submit(&blocks(opcode::READ, HANGS, 0, 4), Carry::In(4 * BLOCK)))
        .collect();
    io.until(|_| gate.hanging() == COUNT);
    for tag in reads {
        assert!(initiator.admin.abort(1, tag).expect("Abort"));
        assert_eq!(io.wait(tag).status, Status::ABORT_REQUESTED);
    }
    // As many writes hold as much memory when the reads wake up.
    beside.shut();
    let writes: Vec<_> = (0..COUNT)
        .map(|n| {
            let data = pattern(100 + n as u64, 4 * BLOCK);
            let write = blocks(opcode::WRITE, WORKS, 4 * n as u64, 4);
            io.submit(&write, Carry::Out(&data))
        })
        .collect();
    io.until(|_| beside.hanging() == COUNT);
    gate.open();
    wait_for(|| crate::report::report(&running).orphans == 0);
    beside.open();
    for tag in writes {
        assert_eq!(io.wait(tag).status, Status::SUCCESS);
    }
    for n in 0..COUNT {
        let read = io.read(WORKS, 4 * n as u64, 4 * BLOCK, BLOCK);
        assert!(read == pattern(100 + n as u64, 4 * BLOCK), "write {n}");
    }
    stop(running);
}

#[each_driver]
fn an_abort_of_either_half_of_a_fused_pair_ends_both(backend: Choice) {
    connected(backend, |_, gate, initiator, io| {
        gate.shut();
        let block = [0; BLOCK];
        for (turn, first_named) in [(1, true), (2, false)] {
            let (compare, write) = fused(HANGS, 0, 1);
            let compare = io.submit(&compare, Carry::Out(&block));
            let write = io.submit(&write, Carry::Out(&block));
            io.until(|_| gate.hanging() == turn);
            let named = if first_named { compare } else { write };
            assert!(initiator.admin.abort(1, named).expect("Abort"));
            let (requested, failed) = (Status::ABORT_REQUESTED, Status::FUSED_FAILED);
            let expected = match first_named {
                true => (requested, failed),
                false => (failed, requested),
            };
            let ended = (io.wait(compare).status, io.wait(write).status);
            assert_eq!(ended, expected);
        }
    });
}

#[each_driver]
fn abort_of_a_command_that_is_not_there_aborts_nothing(backend: Choice) {
    connected(backend, |_, gate, initiator, io| {
        assert!(
            !initiator.admin.abort(1, 40).expect("Abort"),
            "no such command"
        );
        assert!(
            !initiator.admin.abort(7, 0).expect("Abort"),
            "no such queue"
        );
        let tag = io.submit(&blocks(opcode::READ, WORKS, 0, 1), Carry::In(BLOCK));
        assert!(io.wait(tag).status.is_success());
        assert!(!initiator.admin.abort(1, tag).expect("Abort"), "it is over");
        // Others under way are left alone.
        gate.shut();
        let tag = io.submit(&blocks(opcode::READ, HANGS, 0, 1), Carry::In(BLOCK));
        io.until(|_| gate.hanging() == 1);
        assert!(!initiator.admin.abort(1, tag + 1).expect("Abort"));
        gate.open();
        assert!(io.wait(tag).status.is_success());
    });
}

/// Commands of the Admin Queue itself: a held event request.
#[each_driver]
fn a_held_event_request_is_aborted(backend: Choice) {
    with_target(backend, Limits::default(), 64 << 20, |running| {
        let (mut queue, _) = Queue::admin(running.addresses()[0], 0);
        let request = queue.send(wire::nvme::Sqe::new(admin::ASYNC_EVENT_REQUEST), &[]);
        for expected in [0, 1] {
            let mut abort = wire::nvme::Sqe::new(admin::ABORT);
            abort.cdw10 = (u32::from(request) << 16).into();
            let sent = queue.send(abort, &[]);
            if expected == 0 {
                let (status, _) = queue.response(request);
                assert_eq!(status, Status::ABORT_REQUESTED);
            }
            assert_eq!(queue.response(sent), (Status::SUCCESS, expected));
        }
    });
}

/// Aborts are counted while they are under way, not for ever.
#[each_driver]
fn aborts_that_are_over_do_not_count_against_the_limit(backend: Choice) {
    connected(backend, |_, _, initiator, _| {
        for _ in 0..50 {
            assert!(!initiator.admin.abort(1, 40).expect("Abort"));
        }
    });
}

const LARGE_BYTES: usize = 1 << 20;

/// Fills the pool with reads that hang; their tags, of which the `begun`th is
/// the first that waits for memory.
fn fill_memory(gate: &Gate, io: &mut Io) -> (Vec<u16>, usize) {
    let read = blocks(opcode::READ, HANGS, 0, LARGE_BYTES / BLOCK);
    let tags: Vec<_> = (0..30)
        .map(|_| io.submit(&read, Carry::In(LARGE_BYTES)))
        .collect();
    let mut begun = 0;
    io.until(|_| gate.hanging() > 0);
    while gate.hanging() > begun {
        begun = gate.hanging();
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    assert!(begun < tags.len(), "memory was not short");
    (tags, begun)
}

fn serve_short_of_memory(backend: Choice) -> (Running, Arc<Gate>) {
    let gate = Gate::open_over(&crate::common::ram("ram", 4096));
    let config = config(backend, Limits::default(), 32 << 20);
    let running = server::parts::start_with(config, vec![gate.clone()]).expect("starts");
    gate.shut();
    (running, gate)
}

#[each_driver]
fn a_command_that_waits_for_memory_is_aborted(backend: Choice) {
    let (running, gate) = serve_short_of_memory(backend);
    let mut initiator = Initiator::connect(running.addresses()[0], backend);
    let mut io = initiator.queue(1);
    let (tags, begun) = fill_memory(&gate, &mut io);
    assert!(initiator.admin.abort(1, tags[begun]).expect("Abort"));
    assert_eq!(io.wait(tags[begun]).status, Status::ABORT_REQUESTED);
    gate.open();
    for tag in tags.iter().filter(|tag| **tag != tags[begun]) {
        assert!(io.wait(*tag).status.is_success());
    }
    stop(running);
}

/// What waits for memory is not executed on a namespace that is gone, nor does
/// it wait for what is.
#[each_driver]
fn command_that_waits_for_memory_is_refused_when_its_namespace_is_removed(backend: Choice) {
    let (running, gate) = serve_short_of_memory(backend);
    let address = running.addresses()[0];
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let initiator = Initiator::connect(address, backend);
            let mut io = initiator.queue(1);
            let (tags, begun) = fill_memory(&gate, &mut io);
            tell.send(()).expect("the test waits");
            for tag in &tags[begun..] {
                let ended = io.wait(*tag);
                assert_eq!(ended.status, Status::INVALID_FIELD.dnr());
            }
            assert_eq!(gate.hanging(), begun, "none of them began");
            gate.open();
            for tag in &tags[..begun] {
                assert!(io.wait(*tag).status.is_success());
            }
        });
        told.recv().expect("memory is short");
        let gone = server::Change::RemoveNamespace {
            nqn: crate::common::NQN.into(),
            nsid: HANGS,
        };
        running.change(gone).expect("when the others have ended");
    });
    stop(running);
}

/// What the blocking worker is at is aborted at once, however long the blocking worker takes.
#[each_driver]
fn a_command_that_the_blocking_worker_is_at_is_aborted(backend: Choice) {
    connected(backend, |running, gate, initiator, _| {
        gate.shut();
        let (mut queue, _) = Host::at(initiator.seat.address()).admin();
        let mut ask = wire::nvme::Sqe::new(admin::GET_LBA_STATUS);
        ask.nsid = HANGS.into();
        ask.cdw12 = (4096 / 4 - 1).into();
        ask.cdw13 = (0x02 << 24).into();
        ask.sgl = wire::nvme::Sgl::new(wire::nvme::Sgl::TRANSPORT, 4096);
        let asked = queue.send(ask, &[]);
        let mut abort = wire::nvme::Sqe::new(admin::ABORT);
        abort.cdw10 = (u32::from(asked) << 16).into();
        let sent = queue.send(abort, &[]);
        assert_eq!(queue.response(asked).0, Status::ABORT_REQUESTED);
        assert_eq!(queue.response(sent), (Status::SUCCESS, 0));
        assert_eq!(crate::report::report(running).orphans, 1);
        gate.open();
        wait_for(|| crate::report::report(running).orphans == 0);
    });
}

#[each_driver]
fn a_connection_ends_though_its_volume_hangs(backend: Choice) {
    connected(backend, |running, gate, initiator, io| {
        gate.shut();
        let mut other = initiator.queue(2);
        for lba in 0..3 {
            other.submit(&blocks(opcode::READ, HANGS, lba, 1), Carry::In(BLOCK));
        }
        other.until(|_| gate.hanging() == 3);
        other.hang_up();
        wait_for(|| crate::report::report(running).orphans == 3);
        // Its place is free: the queue is connected anew.
        let data = pattern(2, BLOCK);
        let mut again = reconnect(initiator, 2);
        assert_eq!(again.write(WORKS, 5, &data, BLOCK), Status::SUCCESS);
        assert_eq!(io.read(WORKS, 5, BLOCK, BLOCK), data);
        gate.open();
        wait_for(|| crate::report::report(running).orphans == 0);
    });
}

/// Connects a queue as soon as the target has let go of its predecessor.
fn reconnect(initiator: &Initiator, qid: u16) -> Io {
    let give_up = std::time::Instant::now() + PATIENCE;
    loop {
        match initiator.seat.try_queue(qid) {
            Some(io) => return io,
            None => assert!(std::time::Instant::now() < give_up, "never admitted"),
        }
    }
}

#[each_driver]
fn a_controller_is_reset_though_its_volume_hangs(backend: Choice) {
    connected(backend, |running, gate, initiator, io| {
        gate.shut();
        let tag = io.submit(&blocks(opcode::WRITE_ZEROES, HANGS, 0, 1), Carry::Nothing);
        io.until(|_| gate.hanging() == 1);
        // Disabled means CSTS.RDY is 0, which waits for the I/O queues to end.
        initiator.admin.reset().expect("within CAP.TO");
        assert!(!io.has_ended(tag));
        io.until(|io| io.is_down);
        assert_eq!(crate::report::report(running).orphans, 1);
        let mut again = reconnect(initiator, 1);
        let data = pattern(3, BLOCK);
        assert_eq!(again.write(WORKS, 0, &data, BLOCK), Status::SUCCESS);
    });
}

#[each_driver]
fn a_target_stops_though_a_volume_hangs(backend: Choice) {
    let (running, gate, _) = serve_gates(backend);
    let initiator = Initiator::connect(running.addresses()[0], backend);
    let mut io = initiator.queue(1);
    gate.shut();
    io.submit(&blocks(opcode::READ, HANGS, 0, 1), Carry::In(BLOCK));
    io.until(|_| gate.hanging() == 1);
    running.stop();
    let report = running.wait(PATIENCE).expect("no reactor failed");
    assert_eq!(report.expect("it ends").orphans, 1);
}

/// Get LBA Status is the blocking worker's; an Abort does not wait for the blocking worker.
#[each_driver]
fn lba_status_of_what_was_written(backend: Choice) {
    connected(backend, |_, _, initiator, io| {
        let data = pattern(4, 64 * BLOCK);
        assert_eq!(io.write(WORKS, 128, &data, BLOCK), Status::SUCCESS);
        let host = Host::at(initiator.seat.address());
        let (mut queue, _) = host.admin();
        let mut sqe = wire::nvme::Sqe::new(admin::GET_LBA_STATUS);
        sqe.nsid = WORKS.into();
        sqe.cdw10 = 0.into();
        sqe.cdw12 = (4096 / 4 - 1).into();
        sqe.cdw13 = (0x02 << 24).into();
        let page = queue.fetch(sqe, 4096).expect("Get LBA Status");
        let count = u32::from_le_bytes(page[..4].try_into().expect("4 bytes"));
        assert!(count >= 1, "what was written is allocated");
        let first = u64::from_le_bytes(page[8..16].try_into().expect("8 bytes"));
        let blocks = u32::from_le_bytes(page[16..20].try_into().expect("4 bytes"));
        assert!(first <= 128 && first + u64::from(blocks) >= 192);
        let marked = crate::initiator::blocks(opcode::WRITE_UNCORRECTABLE, WORKS, 130, 3);
        assert!(io.run(&marked, Carry::Nothing).status.is_success());
        sqe.cdw13 = (0x11 << 24).into();
        let page = queue.fetch(sqe, 4096).expect("Get LBA Status");
        let descriptor = (
            u32::from_le_bytes(page[..4].try_into().expect("4 bytes")),
            u64::from_le_bytes(page[8..16].try_into().expect("8 bytes")),
            u32::from_le_bytes(page[16..20].try_into().expect("4 bytes")),
        );
        assert_eq!(descriptor, (1, 130, 3));
    });
}
