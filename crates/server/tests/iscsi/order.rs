//! Task attributes: what waits for what (SAM-5, section 8).

use needs::each_driver;
use reactor::Choice;
use std::io::Write as _;

use machine::work::OPERATION_UNITS;
use wire::iscsi::{BHS_LEN, TaskAttribute, TaskFunction, TaskResponse, flags, opcode};

use crate::client::{Client, InitiatorPort, read_16, write_16};
use crate::common::{BLOCK, pattern, portal, until, with_gate, with_gate_and};
use crate::report::report;

fn start(client: &mut Client, lba: u64, attribute: TaskAttribute) -> u32 {
    let (header, itt) = client.command_header(
        0,
        &read_16(lba, 1),
        (flags::READ, BLOCK as u32),
        attribute as u8,
    );
    client.send(header, &[]);
    itt
}

/// The next answer: whose it is.
fn next(client: &mut Client) -> u32 {
    let answer = client.receive().expect("an answer");
    client.exp_stat_sn = answer.word(24).wrapping_add(1);
    answer.itt()
}

#[each_driver]
fn an_ordered_task_waits_and_is_waited_for(backend: Choice) {
    with_gate(backend, |running, gate| {
        use TaskAttribute::{HeadOfQueue, Ordered, Simple};
        let mut client = Client::login(portal(running), &InitiatorPort::new(1))
            .expect("in")
            .calm(&[0, 1]);
        gate.shut();
        let before = [start(&mut client, 0, Simple), start(&mut client, 1, Simple)];
        until("they hang", || gate.hanging() == 2);
        let ordered = start(&mut client, 2, Ordered);
        let behind = start(&mut client, 3, Simple);
        let head = start(&mut client, 4, HeadOfQueue);
        until("the head of the queue begins", || gate.hanging() == 3);
        // What waits holds up no other unit and no other nexus.
        assert!(client.test_unit_ready(1).is_good());
        let mut other = Client::login(portal(running), &InitiatorPort::new(2))
            .expect("in")
            .calm(&[0]);
        start(&mut other, 9, Simple);
        until("another's begins", || gate.hanging() == 4);
        assert_eq!(gate.hanging(), 4, "nothing else has begun");
        gate.open();
        let mut ended: Vec<u32> = (0..3).map(|_| next(&mut client)).collect();
        ended.sort_unstable();
        assert_eq!(
            ended,
            [before[0], before[1], head],
            "before the ordered one"
        );
        assert_eq!([next(&mut client), next(&mut client)], [ordered, behind]);
    });
}

/// However many an ordered one has held up: others of the reactor have their turns
/// between them.
#[each_driver]
fn held_tasks_that_begin_spend_no_more_than_the_share_of_a_turn(backend: Choice) {
    const SHARE: u64 = 64;
    const TASKS: u64 = 100;
    with_gate_and(
        backend,
        |config| config.limits.turn_units_max = SHARE,
        |running, gate| {
            let mut client = Client::login(portal(running), &InitiatorPort::new(1))
                .expect("in")
                .calm(&[0]);
            gate.shut();
            start(&mut client, 0, TaskAttribute::Ordered);
            until("it hangs", || gate.hanging() == 1);
            for lba in 1..=TASKS {
                start(&mut client, lba, TaskAttribute::Simple);
            }
            client.ping(b"all have come");
            let before = report(running).turn_units_max;
            gate.open();
            for _ in 0..=TASKS {
                next(&mut client);
            }
            let units = report(running).turn_units_max;
            // One operation may begin below the share, and end above it.
            let of_task = OPERATION_UNITS + BLOCK as u64 / 1024;
            let most = before.max(SHARE + 2 * of_task);
            assert!(units <= most, "{units} units, {before} before");
        },
    );
}

#[each_driver]
fn an_aborted_ordered_task_lets_the_others_go(backend: Choice) {
    with_gate(backend, |running, gate| {
        use TaskAttribute::{Ordered, Simple};
        let mut client = Client::login(portal(running), &InitiatorPort::new(1))
            .expect("in")
            .calm(&[0]);
        gate.shut();
        let first = start(&mut client, 0, Simple);
        until("it hangs", || gate.hanging() == 1);
        let ordered = start(&mut client, 1, Ordered);
        start(&mut client, 2, Simple);
        let response = client.function(TaskFunction::AbortTask, 0, ordered);
        assert_eq!(response, TaskResponse::Complete);
        until("the one behind it begins", || gate.hanging() == 2);
        let response = client.function(TaskFunction::AbortTask, 0, first);
        assert_eq!(response, TaskResponse::Complete);
        let response = client.function(TaskFunction::AbortTaskSet, 0, u32::MAX);
        assert_eq!(response, TaskResponse::Complete);
        gate.open();
        let data = pattern(4, BLOCK);
        assert!(client.command_out(0, &write_16(0, 1), &data).is_good());
    });
}

/// A task that waits for its turn when its initiator logs out never begins: an
/// initiator with the answer to its logout may count on that.
#[each_driver]
fn task_that_waits_for_its_turn_never_begins_after_a_logout(backend: Choice) {
    with_gate(backend, |running, gate| {
        let login = || Client::login(portal(running), &InitiatorPort::new(1)).expect("in");
        let mut client = login().calm(&[0, 1]);
        let zeros = vec![0; BLOCK];
        assert!(client.command_out(0, &write_16(7, 1), &zeros).is_good());
        // So much is on the way to the initiator, which reads nothing, that the
        // answer to the logout stays in the target.
        for _ in 0..100 {
            client.start_read(1, &read_16(0, 64), 64 * BLOCK as u32);
        }
        gate.shut();
        // In one breath, so that the logout is answered before the gate opens.
        let mut bytes = Vec::new();
        for (lba, attribute) in [(6, TaskAttribute::Simple), (7, TaskAttribute::Ordered)] {
            let cdb = write_16(lba, 1);
            let direction = (flags::WRITE, BLOCK as u32);
            let (mut bhs, _) = client.command_header(0, &cdb, direction, attribute as u8);
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
        client.stream.write_all(&bytes).expect("sent");
        until("the first hangs", || gate.hanging() == 1);
        gate.open();
        client.expect_end();
        let mut again = login().calm(&[0]);
        let read = again.command(0, &read_16(7, 1), BLOCK as u32);
        assert!(read.data == zeros, "it never began");
    });
}
