//! `memory_max` is reached: commands wait and are done, and a host that holds memory idle
//! loses it to those that would use it.

use needs::each_driver;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use reactor::Choice;
use server::{Limits, Running};
use store::Error;
use testkit::nvme::Pdus;
use wire::nvme::feature::fid;
use wire::nvme::{Sgl, Sqe, Status, admin, io as opcode};

use crate::commands::{serve_gates, serve_gates_in};
use crate::common::{BLOCK, Host, Queue, config, stop, with_target};
use crate::gate::Gate;
use crate::initiator::{Carry, Initiator, blocks, on, pattern};

const MIB: usize = 1 << 20;
const BLOCKS: usize = MIB / BLOCK;
/// Blocks of a small command: 16 KiB.
const SMALL: usize = 4;

/// A target whose volume takes what it reads and writes from the buffers, of
/// which there are few.
fn serve(backend: Choice) -> Running {
    let gate = Gate::open_over(&crate::common::ram("ram", 8192));
    let config = config(backend, Limits::default(), 32 << 20);
    server::parts::start_with(config, vec![gate]).expect("starts")
}

/// More than the memory at once from an ordinary host, large writes and small
/// ones and reads in any order.
#[each_driver]
fn commands_for_more_than_all_memory_are_all_done(backend: Choice) {
    let running = serve(backend);
    let initiator = Initiator::connect(running.addresses()[0], backend);
    let mut io = initiator.queue(1);
    for turn in 0..2 {
        let mut tags = Vec::new();
        for n in 0..30 {
            let slba = (n * BLOCKS) as u64;
            let large = pattern(slba, MIB);
            tags.push(io.submit(&blocks(opcode::WRITE, 1, slba, BLOCKS), Carry::Out(&large)));
            tags.push(match n % 2 {
                0 => io.submit(
                    &blocks(opcode::WRITE, 1, slba, 1),
                    Carry::Out(&large[..BLOCK]),
                ),
                _ => io.submit(&blocks(opcode::READ, 1, slba, 16), Carry::In(16 * BLOCK)),
            });
        }
        for tag in tags {
            assert_eq!(io.wait(tag).status, Status::SUCCESS, "turn {turn}");
        }
    }
    assert_eq!(io.read(1, 0, MIB, BLOCK), pattern(0, MIB));
    stop(running);
}

/// Small reads that found no memory pass the large ones before them as soon as there is
/// some for them.
#[each_driver]
fn small_reads_pass_large_ones_that_wait_for_memory(backend: Choice) {
    let (running, gate, beside) = serve_gates_in(32 << 20, backend);
    let initiator = Initiator::connect(running.addresses()[0], backend);
    let mut io = initiator.queue(1);
    gate.shut();
    beside.shut();
    // Other hosts leave few small buffers.
    const OF_OTHER: usize = 300;
    let mut small_of_other = blocks(opcode::READ, 2, 0, SMALL);
    small_of_other.sgl = Sgl::new(Sgl::TRANSPORT, (SMALL * BLOCK) as u32);
    let mut others = Vec::from_iter((0..8).map(|n| {
        let hostnqn = format!("nqn.2026-01.org.example:{n}");
        let host = Host::at(running.addresses()[0]);
        let mut pair = Host {
            hostnqn: &hostnqn,
            sqsize: 1023,
            ..host
        }
        .pair();
        for _ in 0..OF_OTHER {
            pair.1.send(small_of_other, &[]);
        }
        // All of them have come when what comes behind them is over.
        assert!(pair.1.is_alive());
        pair
    }));
    let of_others = beside.hanging();
    let large: Vec<_> = (0..12)
        .map(|_| io.submit(&blocks(opcode::READ, 1, 0, BLOCKS), Carry::In(MIB)))
        .collect();
    let small: Vec<_> = (0..40)
        .map(|_| io.submit(&blocks(opcode::READ, 2, 0, SMALL), Carry::In(SMALL * BLOCK)))
        .collect();
    let flush = io.run(&on(opcode::FLUSH, 1), Carry::Nothing);
    assert_eq!(flush.status, Status::SUCCESS);
    assert!(gate.hanging() < large.len(), "large ones wait");
    assert!(
        beside.hanging() < of_others + small.len(),
        "small ones wait"
    );
    beside.open();
    for (_, queue) in &mut others {
        queue.expect_responses(OF_OTHER);
    }
    for tag in small {
        assert_eq!(io.wait(tag).status, Status::SUCCESS);
    }
    assert!(gate.hanging() < large.len(), "large ones wait still");
    gate.open();
    for tag in large {
        assert_eq!(io.wait(tag).status, Status::SUCCESS);
    }
    stop(running);
}

/// A command of 1 MiB whose data is asked for.
fn large(opcode: u8, nsid: u32, slba: usize) -> Sqe {
    let mut sqe = Sqe::new(opcode);
    sqe.nsid = nsid.into();
    sqe.set_blocks(slba as u64, BLOCKS as u32);
    sqe.sgl = Sgl::new(Sgl::TRANSPORT, MIB as u32);
    sqe
}

/// Hosts that have asked for all memory and then do nothing.
fn sit(address: SocketAddr, opcode: u8, hosts: usize) -> Vec<(Queue, Queue)> {
    let sitting = (0..hosts).map(|host| {
        let (admin, mut io) = Host::at(address).pair();
        for n in 0..28 {
            io.send(large(opcode, 1, (host * 28 + n) % 14 * BLOCKS), &[]);
        }
        (admin, io)
    });
    sitting.collect()
}

/// Whether the target has ended it, after what is still to read.
fn has_ended(queue: &mut Queue) -> bool {
    let patience = Duration::from_millis(500);
    let set = queue.stream.set_read_timeout(Some(patience));
    set.expect("settable");
    let mut bytes = vec![0; 1 << 20];
    loop {
        match queue.stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => {
                return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            }
        }
    }
}

#[test]
fn hosts_that_do_not_send_what_they_promised_lose_their_memory() {
    let running = serve(Choice::Auto);
    let address = running.addresses()[0];
    let mut quiet = Host::at(address).pair();
    let mut sitting = sit(address, opcode::WRITE, 2);
    // Others come in and go on.
    let initiator = Initiator::connect(address, Choice::Auto);
    let mut io = initiator.queue(1);
    for n in 0..4 {
        let data = pattern(n, MIB);
        let slba = n * BLOCKS as u64;
        assert_eq!(io.write(1, slba, &data, BLOCK), Status::SUCCESS);
        assert_eq!(io.read(1, slba, MIB, BLOCK), data);
    }
    // They wait for what they hold themselves.
    crate::commands::wait_for(|| sitting.iter_mut().any(|(_, io)| has_ended(io)));
    // A host that does nothing and holds nothing stays.
    assert!(quiet.1.is_alive());
    drop(sitting);
    stop(running);
}

/// Of a volume in memory they hold what they read, which others write.
#[test]
fn hosts_that_do_not_take_what_they_asked_for_lose_it() {
    let mut config = config(Choice::Auto, Limits::default(), 64 << 20);
    config.volumes[0].size_bytes = 16 << 20;
    let running = server::start(config).expect("starts");
    let address = running.addresses()[0];
    let initiator = Initiator::connect(address, Choice::Auto);
    let mut io = initiator.queue(1);
    let write = |io: &mut crate::initiator::Io, seed: u64| {
        for n in 0..14 {
            let data = pattern(seed + n, MIB);
            assert_eq!(
                io.write(1, n * BLOCKS as u64, &data, BLOCK),
                Status::SUCCESS
            );
        }
    };
    write(&mut io, 0);
    let sitting = sit(address, opcode::READ, 4);
    for turn in 1..6 {
        write(&mut io, turn);
    }
    assert_eq!(io.read(1, 0, MIB, BLOCK), pattern(5, MIB));
    drop(sitting);
    stop(running);
}

/// A command that waits on one reactor has memory as soon as the other gives it back: no
/// tick passes, with which its reactor would look for some anyway. The other is asked each
/// time.
#[each_driver]
fn command_has_memory_that_another_reactor_gives_back_before_a_tick(backend: Choice) {
    let (running, gate, _) = serve_gates_in(32 << 20, backend);
    let address = running.addresses()[0];
    // Connections go to two reactors in turn: I/O queues of these are on the second, of
    // more hosts than there are buffers,
    let names = Vec::from_iter((0..24).map(|n| format!("nqn.2026-01.org.example:{n}")));
    let hosts = names.iter().map(|hostnqn| Host {
        hostnqn,
        ..Host::at(address)
    });
    let mut holders = Vec::from_iter(hosts.map(Host::pair));
    // and that of this host is on the first.
    let (_admin, cntlid) = Host::at(address).admin();
    let _between = Queue::open(address);
    let (mut waiting, _) = Host::at(address).queue(1, cntlid).expect("admitted");
    let ticks = || crate::report::report(&running).ticks;
    let mut without_tick = 0;
    for _ in 0..20 {
        gate.shut();
        let ask = |io: &mut Queue| {
            let cid = io.send(large(opcode::READ, 1, 0), &[]);
            assert!(io.is_alive(), "it has come, and nothing is read");
            cid
        };
        let held = Vec::from_iter(holders.iter_mut().map(|(_, io)| ask(io)));
        let hanging = gate.hanging();
        let waits = ask(&mut waiting);
        // Its reactor may have memory still that it had a round ago.
        let is_waiting = gate.hanging() == hanging;
        let before = ticks();
        gate.open();
        for ((_, io), cid) in holders.iter_mut().zip(held) {
            assert_eq!(io.data_of(cid).map(|data| data.len()), Ok(MIB));
        }
        assert_eq!(waiting.data_of(waits).map(|data| data.len()), Ok(MIB));
        without_tick += usize::from(is_waiting && ticks() == before);
        if without_tick == 2 {
            break;
        }
    }
    assert_eq!(without_tick, 2, "memory was found with ticks alone");
    stop(running);
}

/// A hundred thousand commands that wait are a part of the memory like their data: what
/// one host sends beyond its share stays in its sockets, and another host goes on.
#[each_driver]
fn commands_that_wait_have_no_more_than_the_share_of_their_host(backend: Choice) {
    another_host_goes_on_beside_commands_without_room(backend, 128 << 20);
}

/// So little memory that what was received and finds no room is most of it: a hundred
/// stages beside those of two rings.
#[each_driver]
fn small_reads_have_memory_beside_stages_of_commands_without_room(backend: Choice) {
    another_host_goes_on_beside_commands_without_room(backend, 64 << 20);
}

fn another_host_goes_on_beside_commands_without_room(backend: Choice, memory_max: u64) {
    const QUEUES: u16 = 100;
    const COMMANDS: u16 = 1000;
    // So many are a part of each connection.
    const OF_QUEUE: usize = 32;
    // Of the memory, less an eighth and at least a sixteenth, a host has half: at 1 KiB a
    // command.
    let of_share = memory_max as usize / 32 * 13 / 1024;
    let (running, gate, _) = serve_gates_in(memory_max, backend);
    let host = Host {
        sqsize: 1023,
        ..Host::at(running.addresses()[0])
    };
    let (_admin, cntlid) = host.admin();
    let mut queues: Vec<Queue> = (1..=QUEUES)
        .map(|qid| host.queue(qid, cntlid).expect("admitted").0)
        .collect();
    gate.shut();
    let mut zeroes = Sqe::new(opcode::WRITE_ZEROES);
    zeroes.nsid = 1.into();
    zeroes.set_blocks(0, 1);
    for queue in &mut queues {
        let mut bytes = Vec::new();
        for cid in 0..COMMANDS {
            zeroes.cid = cid.into();
            bytes.extend(Pdus::default().capsule_cmd(&zeroes, &[]));
        }
        queue.stream.write_all(&bytes).expect("its socket takes it");
    }
    crate::commands::wait_for(|| gate.hanging() >= of_share / 4);
    let other = Host {
        hostnqn: "nqn.2026-01.org.example:other",
        ..host
    };
    let (mut other_admin, mut io) = other.pair();
    for n in 0..300u64 {
        assert_eq!(io.write(2, n % 8, n as u8), Status::SUCCESS);
        let block = io.read(2, n % 8).expect("there is memory");
        assert!(block == vec![n as u8; BLOCK]);
    }
    assert_eq!(other_admin.identify(1, 0).len(), 4096);
    let hanging = gate.hanging();
    let most = of_share + OF_QUEUE * usize::from(QUEUES);
    assert!(hanging <= most, "{hanging} commands are taken");
    gate.open();
    for queue in &mut queues {
        let mut seen = vec![false; usize::from(COMMANDS)];
        for _ in 0..COMMANDS {
            let answer = queue.pdu();
            let word = |at: usize| u16::from_le_bytes([answer[at], answer[at + 1]]);
            assert!(Status(word(22) >> 1).is_success());
            assert!(!std::mem::replace(&mut seen[usize::from(word(20))], true));
        }
    }
    stop(running);
}

/// A whole Admin Queue of commands that hang, of a host that has no room for more: its
/// Keep Alive is heard.
#[each_driver]
fn keep_alive_is_answered_though_there_is_no_room_for_commands(backend: Choice) {
    keep_alive_is_heard_beside_commands_without_room(backend, 60, 64 << 20);
}

/// So little memory that what the host's connections keep of what they received would be
/// all of it that is kept for headers.
#[each_driver]
fn keep_alive_is_answered_though_stages_of_waiting_connections_are_full(backend: Choice) {
    keep_alive_is_heard_beside_commands_without_room(backend, 20, 32 << 20);
}

fn keep_alive_is_heard_beside_commands_without_room(backend: Choice, queues: u16, memory_max: u64) {
    const COMMANDS: u16 = 1000;
    let (running, gate, _) = serve_gates_in(memory_max, backend);
    let host = Host {
        sqsize: 1023,
        ..Host::at(running.addresses()[0])
    };
    let (mut admin, cntlid) = host.admin();
    let mut queues = Vec::from_iter((1..=queues).map(|qid| {
        let (queue, _) = host.queue(qid, cntlid).expect("admitted");
        queue
    }));
    gate.shut();
    let zeroes = blocks(opcode::WRITE_ZEROES, 1, 0, 1);
    for queue in &mut queues {
        for _ in 0..COMMANDS {
            queue.send(zeroes, &[]);
        }
    }
    // Of the memory, less an eighth and a sixteenth, a host has half: at 1 KiB a command.
    crate::commands::wait_for(|| gate.hanging() >= memory_max as usize / 64 * 13 / 1024);
    let mut protect = on(admin::SET_FEATURES, 1);
    protect.cdw10 = u32::from(fid::WRITE_PROTECTION).into();
    protect.cdw11 = 1.into();
    // They wait for the writes.
    for _ in 0..100 {
        admin.send(protect, &[]);
    }
    let alive = admin.command(Sqe::new(admin::KEEP_ALIVE), &[]);
    assert!(alive.0.is_success());
    gate.open();
    stop(running);
}

/// Hosts hold all the buffers that one reactor finds. A host on the other has its own:
/// chunks of memory belong to one reactor and one size.
#[each_driver]
fn host_finds_small_buffers_on_a_reactor_beside_one_that_has_taken_all(backend: Choice) {
    let (running, gate, beside) = serve_gates_in(32 << 20, backend);
    let address = running.addresses()[0];
    // Reactors take connections in turn: Admin Queues are on the one, I/O queues on the other.
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let names = names.map(|name| format!("nqn.2026-01.org.example:{name}"));
    let mut sitting = Vec::from_iter(names.iter().map(|hostnqn| {
        let host = Host::at(address);
        Host {
            hostnqn,
            sqsize: 1023,
            ..host
        }
        .pair()
    }));
    let _turn = Host::at(address).admin();
    let (mut admin, mut io) = Host::at(address).pair();
    gate.shut();
    for (_, queue) in &mut sitting {
        for count in [&[SMALL; 400][..], &[BLOCKS; 10]].concat() {
            let mut read = blocks(opcode::READ, 1, 0, count);
            read.sgl = Sgl::new(Sgl::TRANSPORT, (count * BLOCK) as u32);
            queue.send(read, &[]);
        }
    }
    // They wait for the volume, and some for memory.
    let reads = sitting.len() * 410;
    let mut before = 0;
    crate::commands::wait_for(|| {
        std::thread::sleep(Duration::from_millis(200));
        let hanging = gate.hanging();
        hanging > 0 && std::mem::replace(&mut before, hanging) == hanging
    });
    assert!(gate.hanging() < reads);
    for n in 0..50u64 {
        assert_eq!(io.write(2, n % 8, n as u8), Status::SUCCESS);
        assert!(io.read(2, n % 8).expect("there is memory") == vec![n as u8; BLOCK]);
        let four = blocks(opcode::READ, 2, n % 8, SMALL);
        let read = io.fetch(four, (SMALL * BLOCK) as u32);
        assert_eq!(read.expect("there is memory").len(), SMALL * BLOCK);
    }
    assert_eq!(beside.hanging(), 0);
    assert_eq!(admin.identify(1, 0).len(), 4096);
    // None has lost its connection for it. All take their data at once: who does not take
    // it in time is cut.
    gate.open();
    std::thread::scope(|scope| {
        for (_, queue) in &mut sitting {
            scope.spawn(|| queue.expect_responses(410));
        }
    });
    stop(running);
}

/// A write that a volume has no memory for waits and is done.
#[each_driver]
fn a_busy_volume_is_waited_for(backend: Choice) {
    let (running, gate, _) = serve_gates(backend);
    let initiator = Initiator::connect(running.addresses()[0], backend);
    let mut io = initiator.queue(1);
    gate.fail(Some(Error::Busy));
    let data = pattern(1, BLOCK);
    let waits = io.submit(&blocks(opcode::WRITE, 1, 0, 1), Carry::Out(&data));
    io.flush();
    let beside = io.submit(&blocks(opcode::WRITE, 2, 0, 1), Carry::Out(&data));
    let patience = Duration::from_millis(20);
    std::thread::sleep(patience);
    assert!(!io.has_ended(waits));
    gate.fail(None);
    for tag in [waits, beside] {
        assert_eq!(io.wait(tag).status, Status::SUCCESS);
    }
    assert_eq!(io.read(1, 0, BLOCK, BLOCK), data);
    stop(running);
}

/// The same of one that was received into memory of the volume's: that stays the command's.
#[each_driver]
fn a_write_into_lent_memory_waits_for_a_busy_volume_and_loses_nothing(backend: Choice) {
    let (running, gate, _) = serve_gates(backend);
    gate.lends.store(true, Ordering::Relaxed);
    let initiator = Initiator::connect(running.addresses()[0], backend);
    let mut io = initiator.queue(1);
    gate.fail(Some(Error::Busy));
    let data = pattern(1, MIB);
    let waits = io.submit(&blocks(opcode::WRITE, 1, 0, BLOCKS), Carry::Out(&data));
    // It has arrived when one behind it has.
    assert_eq!(io.write(2, 0, &data, BLOCK), Status::SUCCESS);
    assert!(!io.has_ended(waits));
    gate.fail(None);
    assert_eq!(io.wait(waits).status, Status::SUCCESS);
    assert!(io.read(1, 0, MIB, BLOCK) == data);
    stop(running);
}

/// A host's commands that wait for memory do not hold up the Admin Queue.
#[each_driver]
fn administration_goes_on_while_memory_is_short(backend: Choice) {
    with_target(backend, Limits::default(), 32 << 20, |running| {
        let address = running.addresses()[0];
        let (mut admin, mut io) = Host::at(address).pair();
        for n in 0..28 {
            io.send(large(opcode::COMPARE, 1, n % 4 * BLOCKS), &[]);
        }
        assert_eq!(admin.identify(1, 0).len(), 4096);
        let (mut other, _) = Host::at(address).admin();
        assert_eq!(other.identify(1, 0).len(), 4096);
    });
}
