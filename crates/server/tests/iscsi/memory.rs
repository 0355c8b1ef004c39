//! Less memory than initiators ask for.

use needs::each_driver;
use std::sync::Arc;

use reactor::Choice;
use server::{Config, Limits};
use store::{Kind, Volume};
use wire::iscsi::{BHS_LEN, TaskAttribute, TaskFunction, TaskResponse, flags, opcode};
use wire::scsi::cdb::NDOB;
use wire::scsi::status;

use crate::client::{Client, InitiatorPort, read_16, write_16};
use crate::common::{BLOCK, config, pattern, portal, stop, until};
use crate::gate::Gate;

/// Blocks of one command: 1 MiB.
const BLOCKS: u32 = 256;
const WRITE_SAME_16: u8 = 0x93;

/// Volumes that are files: everything goes through buffers.
fn on_files(backend: Choice, folder: &std::path::Path, memory_max: u64) -> Config {
    let mut config = config(backend, Limits::default(), memory_max);
    for volume in &mut config.volumes {
        volume.kind = Kind::file(folder.join(&volume.name));
    }
    config
}

/// Two initiators together ask for four times as much as there is: all of it is
/// done, in turns.
#[each_driver]
fn all_initiators_have_turns_where_memory_is_short(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(on_files(backend, folder.path(), 32 << 20)).expect("starts");
    std::thread::scope(|scope| {
        for number in 1..=2u8 {
            let address = portal(&running);
            scope.spawn(move || {
                let client = Client::login(address, &InitiatorPort::new(number)).expect("in");
                let mut client = client.calm(&[0]);
                let first = u64::from(number) * 8 * u64::from(BLOCKS) - u64::from(BLOCKS) * 8;
                let data = pattern(number, BLOCKS as usize * BLOCK);
                let lba = |n: u64| first + (n % 8) * u64::from(BLOCKS);
                let mut open: Vec<(u32, u64)> = Vec::new();
                let start = |client: &mut Client, n: u64, immediate: usize| {
                    let cdb = write_16(lba(n), BLOCKS);
                    (client.start_write(0, &cdb, &data, immediate), n)
                };
                // Some of the data of each at once: what there is no memory
                // for is refused. Later only what is asked for.
                open.extend((0..48).map(|n| start(&mut client, n, 8192)));
                while !open.is_empty() {
                    let pdu = client.receive().expect("an answer");
                    if pdu.opcode() == opcode::R2T {
                        client.answer_r2t(&pdu, &data);
                        continue;
                    }
                    assert_eq!(pdu.opcode(), opcode::SCSI_RESPONSE);
                    let at = open.iter().position(|(itt, _)| *itt == pdu.itt());
                    let (_, n) = open.remove(at.expect("one of ours"));
                    match pdu.bhs[3] {
                        status::GOOD => {}
                        status::TASK_SET_FULL | status::BUSY => open.push(start(&mut client, n, 0)),
                        other => panic!("status {other:#x}"),
                    }
                }
                for n in 0..8 {
                    let read = client.command(0, &read_16(lba(n), BLOCKS), BLOCKS * BLOCK as u32);
                    assert!(
                        read.is_good() && read.data == data,
                        "initiator {number}, {n}"
                    );
                }
            });
        }
    });
    let report = crate::report::report(&running);
    assert!(
        report.pool_bytes <= 32 << 20,
        "{} bytes of buffers",
        report.pool_bytes
    );
    stop(running);
}

/// Connections that vanish with everything under way leave nothing behind.
#[each_driver]
fn memory_of_a_connection_that_vanishes_is_given_back(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(on_files(backend, folder.path(), 32 << 20)).expect("starts");
    for round in 0..12u8 {
        let client = Client::login(portal(&running), &InitiatorPort::new(round)).expect("in");
        let mut client = client.calm(&[0]);
        let data = pattern(round, BLOCKS as usize * BLOCK);
        for n in 0..8 {
            client.start_write(0, &write_16(n * 256, BLOCKS), &data, 8192);
            client.start_read(0, &read_16(n * 256, BLOCKS), BLOCKS * BLOCK as u32);
        }
        // Half of the asked for, then nothing more.
        let pdu = client.receive().expect("an answer");
        if pdu.opcode() == opcode::R2T {
            client.answer_r2t(&pdu, &data);
        }
        drop(client);
    }
    // Orphans come with the end of a connection: not before it has ended is
    // none of them left.
    until("nothing is left", || {
        let report = crate::report::report(&running);
        (report.connections, report.orphans) == (0, 0)
    });
    let mut client = Client::login(portal(&running), &InitiatorPort::new(77))
        .expect("in")
        .calm(&[0]);
    let data = pattern(1, BLOCKS as usize * BLOCK);
    let itt = client.start_write(0, &write_16(0, BLOCKS), &data, 8192);
    assert!(client.end_of(itt, &data).is_good());
    stop(running);
}

/// A command that waits for memory, and whose data comes then, stands before the
/// data of those that have some: it is refused, though others wait before it.
#[each_driver]
fn waiting_command_whose_data_blocks_others_is_refused_before_older_ones(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(on_files(backend, folder.path(), 32 << 20)).expect("starts");
    let initiator = InitiatorPort::new(1).with("InitialR2T", "No");
    let mut client = Client::login(portal(&running), &initiator)
        .expect("in")
        .calm(&[0]);
    let data = pattern(1, BLOCKS as usize * BLOCK);
    let write = |n: u32| write_16(u64::from(n % 8 * BLOCKS), BLOCKS);
    let asked: Vec<u32> = (0..40)
        .map(|n| client.start_write(0, &write(n), &data, 0))
        .collect();
    // What was promised memory is asked for, then nothing more comes.
    let mut r2ts = vec![client.receive().expect("an R2T")];
    let (mut bhs, last) = client.command_header(0, &write(0), (flags::WRITE, data.len() as u32), 1);
    bhs[1] &= !flags::FINAL;
    client.send(bhs, &[]);
    let mut bhs = [0; BHS_LEN];
    (bhs[0], bhs[1]) = (opcode::DATA_OUT, flags::FINAL);
    bhs[16..20].copy_from_slice(&last.to_be_bytes());
    bhs[20..24].fill(0xff);
    client.send(bhs, &data[..64 << 10]);
    let refused = loop {
        let pdu = client.receive().expect("an answer");
        match pdu.opcode() {
            opcode::R2T => r2ts.push(pdu),
            _ => break pdu,
        }
    };
    assert_eq!(refused.opcode(), opcode::SCSI_RESPONSE);
    assert_eq!(refused.itt(), last);
    assert_eq!(refused.bhs[3], status::TASK_SET_FULL);
    // The others have their turn.
    let mut done = 0;
    while done < asked.len() {
        if let Some(r2t) = r2ts.pop() {
            client.answer_r2t(&r2t, &data);
            continue;
        }
        let pdu = client.receive().expect("an answer");
        match pdu.opcode() {
            opcode::R2T => r2ts.push(pdu),
            _ => {
                assert_eq!(pdu.bhs[3], status::GOOD);
                done += 1;
            }
        }
    }
    drop(client);
    stop(running);
}

/// A write that waits for older tasks does not count as idle with its memory, as one
/// whose data does not come does: of two sessions of one host, which is short of memory,
/// that one loses its connection. Both are looked at in the same tick.
#[test]
fn write_that_waits_for_older_tasks_is_not_taken_for_idle() {
    let mut config = config(Choice::Epoll, Limits::default(), 24 << 20);
    config.cpus.truncate(1);
    let gate = Gate::open_over(&config.volumes[0]);
    let other = store::open(&config.volumes[1]).expect("memory");
    let volumes: Vec<Arc<dyn Volume>> = vec![gate.clone(), other];
    let running = server::parts::start_with(config, volumes).expect("starts");
    let login = |session| {
        let mut initiator = InitiatorPort::new(1);
        initiator.isid[5] = session;
        let client = Client::login(portal(&running), &initiator);
        client.expect("in").calm(&[0])
    };
    let (mut alice, mut bob) = (login(1), login(2));
    gate.shut();
    let block = pattern(1, BLOCK);
    let first = alice.start_write(0, &write_16(0, 1), &block, BLOCK);
    until("it hangs", || gate.hanging() == 1);
    let data = pattern(2, BLOCKS as usize * BLOCK);
    let (direction, attribute) = (flags::WRITE, TaskAttribute::Ordered as u8);
    let edtl = data.len() as u32;
    let (bhs, held) = alice.command_header(0, &write_16(1, BLOCKS), (direction, edtl), attribute);
    alice.send(bhs, &data[..8192]);
    let mut asked = 8192;
    while asked < data.len() {
        let r2t = alice.receive().expect("an R2T");
        alice.answer_r2t(&r2t, &data);
        asked += r2t.word(44) as usize;
    }
    for n in 0..32 {
        bob.start_write(0, &write_16(n % 8 * 256, BLOCKS), &data, 0);
    }
    bob.expect_end();
    gate.open();
    assert!(alice.end_of(first, &[]).is_good());
    assert!(alice.end_of(held, &[]).is_good());
    stop(running);
}

/// Small reads that found no memory pass the large ones before them as soon as there is
/// some for them.
#[each_driver]
fn small_reads_pass_large_ones_that_wait_for_memory(backend: Choice) {
    let config = config(backend, Limits::default(), 32 << 20);
    let gates = [0, 1].map(|at| Gate::open_over(&config.volumes[at]));
    let [gate, beside] = &gates;
    let volumes: Vec<Arc<dyn Volume>> = vec![gate.clone(), beside.clone()];
    let running = server::parts::start_with(config, volumes).expect("starts");
    let mut client = Client::login(portal(&running), &InitiatorPort::new(1))
        .expect("in")
        .calm(&[0, 1]);
    gates.iter().for_each(|gate| gate.shut());
    // Others leave few small buffers.
    const OF_OTHER: usize = 100;
    let mut others = Vec::from_iter((2..14).map(|number| {
        let other = Client::login(portal(&running), &InitiatorPort::new(number));
        let mut other = other.expect("in").calm(&[0, 1]);
        for _ in 0..OF_OTHER {
            other.start_read(1, &read_16(0, 4), 4 * BLOCK as u32);
        }
        assert!(other.test_unit_ready(0).is_good());
        other
    }));
    let of_others = beside.hanging();
    let large = Vec::from_iter((0..12).map(|_| {
        let len = BLOCKS * BLOCK as u32;
        client.start_read(0, &read_16(0, BLOCKS), len)
    }));
    let small =
        Vec::from_iter((0..40).map(|_| client.start_read(1, &read_16(0, 4), 4 * BLOCK as u32)));
    // All of them have come when what comes behind them is over.
    assert!(client.test_unit_ready(0).is_good());
    assert!(gate.hanging() < large.len(), "large ones wait");
    assert!(
        beside.hanging() < of_others + small.len(),
        "small ones wait"
    );
    beside.open();
    let good = |client: &mut Client| {
        let pdu = client.receive().expect("an answer");
        (pdu.bhs[1] & flags::STATUS != 0).then(|| {
            assert_eq!((pdu.opcode(), pdu.bhs[3]), (opcode::DATA_IN, status::GOOD));
            pdu.itt()
        })
    };
    for other in &mut others {
        let all = std::iter::repeat_with(|| good(other)).flatten();
        assert_eq!(all.take(OF_OTHER).count(), OF_OTHER);
    }
    for _ in &small {
        let itt = std::iter::repeat_with(|| good(&mut client))
            .flatten()
            .next();
        assert!(small.contains(&itt.expect("endless")));
    }
    assert!(gate.hanging() < large.len(), "large ones wait still");
    gate.open();
    for _ in &large {
        let itt = std::iter::repeat_with(|| good(&mut client))
            .flatten()
            .next();
        assert!(large.contains(&itt.expect("endless")));
    }
    stop(running);
}

/// A WRITE SAME has its data and waits for memory to repeat it in when its initiator logs
/// out: it never begins, though memory comes before the connection has ended.
#[each_driver]
fn command_that_waits_for_memory_never_begins_after_a_logout(backend: Choice) {
    let mut config = config(backend, Limits::default(), 24 << 20);
    config.cpus.truncate(1);
    let gate = Gate::open_over(&config.volumes[0]);
    let other = store::open(&config.volumes[1]).expect("memory");
    let volumes: Vec<Arc<dyn Volume>> = vec![gate.clone(), other];
    let running = server::parts::start_with(config, volumes).expect("starts");
    let login = |n| {
        let client = Client::login(portal(&running), &InitiatorPort::new(n)).expect("in");
        client.calm(&[0, 1])
    };
    let mut client = login(1);
    let zeros = vec![0; BLOCK];
    assert!(client.command_out(0, &write_16(7, 1), &zeros).is_good());
    // So much is on the way to the initiator, which reads nothing, that the answer to the
    // logout stays in the target.
    for _ in 0..100 {
        client.start_read(1, &read_16(0, 64), 64 * BLOCK as u32);
    }
    gate.shut();
    // Others have the memory, as long as the gate is shut.
    let mut others: Vec<Client> = (2..62).map(login).collect();
    for (n, other) in others.iter_mut().enumerate() {
        // One that holds nothing may have any one buffer, as long as there is one.
        let blocks = if n < 20 { 256 } else { 64 };
        other.start_read(0, &read_16(0, blocks), blocks * BLOCK as u32);
        assert!(other.test_unit_ready(1).is_good());
    }
    assert!(gate.hanging() < others.len(), "some wait for memory");
    let before = gate.hanging();
    let mut bytes = Vec::new();
    let mut same = write_16(7, 64);
    same[0] = WRITE_SAME_16;
    for cdb in [same, write_16(6, 1)] {
        let direction = (flags::WRITE, BLOCK as u32);
        let attribute = TaskAttribute::Simple as u8;
        let (mut bhs, _) = client.command_header(0, &cdb, direction, attribute);
        bhs[5..8].copy_from_slice(&(BLOCK as u32).to_be_bytes()[1..]);
        bytes.extend_from_slice(&bhs);
        bytes.extend(pattern(5, BLOCK));
    }
    let mut bhs = [0; BHS_LEN];
    (bhs[0], bhs[1]) = (opcode::LOGOUT_REQUEST | 0x40, flags::FINAL);
    bhs[16..20].copy_from_slice(&999u32.to_be_bytes());
    bhs[24..28].copy_from_slice(&client.cmd_sn.to_be_bytes());
    bhs[28..32].copy_from_slice(&client.exp_stat_sn.to_be_bytes());
    bytes.extend_from_slice(&bhs);
    std::io::Write::write_all(&mut client.stream, &bytes).expect("sent");
    until("the second hangs", || gate.hanging() == before + 1);
    drop(others);
    gate.open();
    // Memory comes, and turns pass.
    until("all others are gone", || {
        let report = crate::report::report(&running);
        (report.connections, report.orphans) == (1, 0)
    });
    client.expect_end();
    let mut again = login(1);
    let read = again.command(0, &read_16(7, 1), BLOCK as u32);
    assert!(read.data == zeros, "it never began");
    stop(running);
}

/// A target that has no room for more commands refuses them, hears what the initiator
/// answers, and does not take it for gone.
#[each_driver]
fn a_session_without_room_for_commands_is_not_taken_for_gone(backend: Choice) {
    const READS: u64 = 1000;
    let mut config = config(backend, Limits::default(), 12 << 20);
    let limits = &mut config.iscsi_targets[0].target.limits;
    (limits.queue_depth, limits.nop_in_interval_ms) = (1024, 200);
    let gate = Gate::open_over(&config.volumes[0]);
    let other = store::open(&config.volumes[1]).expect("memory");
    let volumes: Vec<Arc<dyn Volume>> = vec![gate.clone(), other];
    let running = server::parts::start_with(config, volumes).expect("starts");
    let mut client = Client::login(portal(&running), &InitiatorPort::new(1))
        .expect("in")
        .calm(&[0]);
    gate.shut();
    for n in 0..READS {
        client.start_read(0, &read_16(n, 1), BLOCK as u32);
    }
    let (mut asked, mut ended) = (0, 0);
    while asked < 5 {
        let pdu = client.receive().expect("a question");
        match pdu.opcode() {
            opcode::NOP_IN => {
                client.answer_nop(&pdu);
                asked += 1;
            }
            _ => {
                assert_eq!(pdu.bhs[3], status::TASK_SET_FULL);
                ended += 1;
            }
        }
    }
    assert!(ended > 0, "not all of them have room");
    assert_eq!(gate.hanging() as u64 + ended, READS);
    gate.open();
    while ended < READS {
        let pdu = client.receive().expect("the session goes on");
        match pdu.opcode() {
            opcode::NOP_IN => client.answer_nop(&pdu),
            opcode::DATA_IN => ended += u64::from(pdu.bhs[1] & flags::STATUS != 0),
            _ => ended += 1,
        }
    }
    stop(running);
}

/// A session that has no room for more commands, on a disk that hangs, is reset: commands
/// beyond the room are refused, and what comes behind them is heard.
#[each_driver]
fn reset_is_executed_though_there_is_no_room_for_commands(backend: Choice) {
    const SESSIONS: u8 = 60;
    const COMMANDS: usize = 120;
    let mut config = config(backend, Limits::default(), 16 << 20);
    config.cpus.truncate(1);
    let gate = Gate::open_over(&config.volumes[0]);
    let other = store::open(&config.volumes[1]).expect("memory");
    let volumes: Vec<Arc<dyn Volume>> = vec![gate.clone(), other];
    let running = server::parts::start_with(config, volumes).expect("starts");
    let mut sessions = Vec::from_iter((0..SESSIONS).map(|n| {
        let mut initiator = InitiatorPort::new(1);
        initiator.isid[5] = n;
        let initiator = initiator.with("InitialR2T", "No");
        Client::login(portal(&running), &initiator)
            .expect("in")
            .calm(&[0])
    }));
    gate.shut();
    // They have no data, so that nothing waits for memory of another kind.
    let mut zeros = write_16(0, 1);
    (zeros[0], zeros[1]) = (WRITE_SAME_16, NDOB);
    for client in &mut sessions {
        for _ in 0..COMMANDS {
            let simple = TaskAttribute::Simple as u8;
            let (bhs, _) = client.command_header(0, &zeros, (0, 0), simple);
            client.send(bhs, &[]);
        }
    }
    let last = sessions.last_mut().expect("one");
    // What follows a refused command is passed over: data with it, and behind it.
    let data = pattern(1, 2 * BLOCK);
    let (direction, attribute) = ((flags::WRITE, data.len() as u32), TaskAttribute::Ordered);
    let (mut bhs, itt) = last.command_header(0, &write_16(0, 2), direction, attribute as u8);
    bhs[1] &= !flags::FINAL;
    last.send(bhs, &data[..BLOCK]);
    let mut bhs = [0; BHS_LEN];
    (bhs[0], bhs[1]) = (opcode::DATA_OUT, flags::FINAL);
    bhs[16..20].copy_from_slice(&itt.to_be_bytes());
    bhs[20..24].fill(0xff);
    bhs[40..44].copy_from_slice(&(BLOCK as u32).to_be_bytes());
    last.send(bhs, &data[BLOCK..]);
    let mut refused = 0;
    for client in &mut sessions {
        let echo = client.start_ping(&[]);
        loop {
            let pdu = client.receive().expect("an answer");
            match pdu.opcode() {
                opcode::SCSI_RESPONSE => {
                    assert_eq!(pdu.bhs[3], status::TASK_SET_FULL);
                    refused += 1;
                }
                _ => {
                    assert_eq!((pdu.opcode(), pdu.itt()), (opcode::NOP_IN, echo));
                    break;
                }
            }
        }
    }
    assert!(refused > 1, "not all of them have room");
    // The ORDERED write may have had room, and then waits behind the others.
    let all = usize::from(SESSIONS) * COMMANDS;
    let under_way = gate.hanging();
    assert!(
        (all..=all + 1).contains(&(under_way + refused)),
        "{under_way} and {refused}"
    );
    let noted = crate::report::report(&running).refusals;
    assert!(
        (refused as u64 - 1..=refused as u64).contains(&noted),
        "{noted} of {refused}"
    );
    let last = sessions.last_mut().expect("one");
    let response = last.function(TaskFunction::LogicalUnitReset, 0, u32::MAX);
    assert_eq!(response, TaskResponse::Complete);
    gate.open();
    stop(running);
}
