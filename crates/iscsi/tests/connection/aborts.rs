//! Task management, and data that comes for tasks which are no more.

use wire::iscsi::{TaskManagementResponse, TaskResponse};

use super::*;

const ABORT_TASK: u8 = TaskFunction::AbortTask as u8;
const LUN_RESET: u8 = TaskFunction::LogicalUnitReset as u8;

fn answer(pdu: &Pdu) -> u8 {
    assert_eq!(pdu.bhs.opcode(), opcode::TASK_MANAGEMENT_RESPONSE);
    pdu.bhs.cast::<TaskManagementResponse>().response
}

impl Peer {
    fn function(&mut self, function: u8, referenced: (u32, u32)) -> Vec<Pdu> {
        self.itt += 1;
        let ids = (self.itt, self.cmd_sn);
        let bytes = self.pdus.function(ids, function, referenced);
        self.send(&bytes)
    }
}

#[test]
fn an_aborted_task_that_executes_has_no_response() {
    let mut peer = Peer::live(keys());
    let bytes = peer.command(READ, cdb::read(0, 1), 512, &[]);
    peer.push(&bytes);
    let referenced = (peer.itt, peer.cmd_sn.wrapping_sub(1));
    let bytes = peer.pdus.function((9, peer.cmd_sn), ABORT_TASK, referenced);
    peer.push(&bytes);
    assert_eq!(peer.target.functions.len(), 1);
    peer.target.manage(0);
    assert!(peer.target.work.is_empty());
    let answers = peer.send(&[]);
    assert_eq!(answers.len(), 1);
    assert_eq!(answer(&answers[0]), TaskResponse::Complete as u8);
    let (exp_cmd_sn, max_cmd_sn) = peer.window();
    assert_eq!((exp_cmd_sn, max_cmd_sn), (u32::MAX, 6));
    assert_eq!(peer.in_flight(), 0);
}

#[test]
fn aborts_of_tasks_that_are_not_there() {
    let mut peer = Peer::live(keys());
    peer.do_command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
    // Answered, or never received: its CmdSN is outside the window.
    for referenced in [(peer.itt, CMD_SN), (5, 77)] {
        let answers = peer.function(ABORT_TASK, referenced);
        assert_eq!(answer(&answers[0]), TaskResponse::NoTask as u8);
    }
    // Not come yet, as its number says: it never will.
    let cmd_sn = peer.cmd_sn;
    let bytes = peer
        .pdus
        .function((9, cmd_sn.wrapping_add(1)), ABORT_TASK, (5, cmd_sn));
    let answers = peer.send(&bytes);
    assert_eq!(answer(&answers[0]), TaskResponse::Complete as u8);
    let bytes = peer.command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
    assert!(peer.send(&bytes).is_empty());
    let answers = peer.do_command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
    assert_eq!(response(&answers[0]), GOOD);
    // Another logical unit's.
    let bytes = peer.command(READ, cdb::read(0, 1), 512, &[]);
    peer.push(&bytes);
    let mut bytes = peer
        .pdus
        .function((9, peer.cmd_sn), ABORT_TASK, (peer.itt, 0));
    bytes[9] = 1;
    peer.push(&bytes);
    assert!(peer.target.functions.is_empty());
    assert!(peer.target.named.iter().filter(|named| **named).count() == 1);

    let answers = peer.function(TaskFunction::TaskReassign as u8, (5, 0));
    let responses = [TaskResponse::NoTask, TaskResponse::ReassignmentNotSupported];
    assert_eq!(
        answers[..2].iter().map(answer).collect::<Vec<_>>(),
        responses.map(|r| r as u8)
    );
}

#[test]
fn a_response_goes_before_the_answer_to_an_abort_that_came_late() {
    let mut peer = Peer::live(keys());
    let bytes = peer.command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
    peer.push(&bytes);
    peer.target.execute(0);
    let answers = peer.function(ABORT_TASK, (peer.itt, CMD_SN));
    assert_eq!(
        opcodes(&answers),
        [opcode::SCSI_RESPONSE, opcode::TASK_MANAGEMENT_RESPONSE]
    );
    assert_eq!(answer(&answers[1]), TaskResponse::NoTask as u8);
}

/// A task is aborted while one of its PDUs is half here: what the initiator
/// still sends lands nowhere, and the next task in its place is its own.
fn aborted_in_the_middle(keys: Negotiated, solicited: bool, cut: usize) {
    let mut peer = Peer::live(keys);
    let data = pattern(2, 32 * BLOCK);
    let flags = if solicited { WRITE } else { WRITE_MORE };
    let bytes = peer.command(flags, cdb::write(0, 32), 16384, &[]);
    peer.push_all(&bytes);
    let tag = 0;
    let r2ts = peer.transmit(9);
    let bytes = match r2ts.first() {
        Some(r2t) => peer.data_for(r2t.bhs.cast(), &data, 3000),
        None => peer.sequence((peer.itt, UNSOLICITED), &data, (0, 8192), 3000),
    };
    peer.push_all(&bytes[..cut]);
    assert_eq!(peer.target.end.machine.tasks().count(), 1);
    peer.target.abort(tag);
    assert_eq!((peer.in_flight(), peer.target.work.len()), (0, 0));
    let next = peer.command(WRITE, cdb::write(64, 4), 2048, &data[..2048]);
    let answers = peer.send(&[&bytes[cut..], &next].concat());
    assert_eq!(opcodes(&answers), [opcode::SCSI_RESPONSE]);
    assert_eq!(response(&answers[0]), GOOD);
    assert_eq!(peer.media(0, 64), &pattern(1, 64 * BLOCK)[..]);
    assert_eq!(peer.media(64, 4), &data[..2048]);
    let (exp_cmd_sn, max_cmd_sn) = peer.window();
    assert_eq!(max_cmd_sn, exp_cmd_sn.wrapping_add(7));
}

#[test]
fn late_data_of_aborted_tasks_lands_nowhere() {
    for data_digest in [false, true] {
        let keys = Negotiated {
            data_digest,
            ..keys()
        };
        for cut in [
            0, 20, 48, 49, 1000, 3048, 3049, 3052, 3053, 3100, 5000, 6100,
        ] {
            aborted_in_the_middle(keys, true, cut);
            aborted_in_the_middle(keys, false, cut);
        }
    }
}

#[test]
fn a_task_that_waits_for_memory_ends_with_the_data_that_stands_before_it() {
    let mut peer = Peer::live(keys());
    let data = pattern(2, 2048);
    let mut bytes = peer.command(WRITE, cdb::write(0, 4), 2048, &data);
    bytes.extend(peer.command(NONE, cdb::TEST_UNIT_READY, 0, &[]));
    let mut stream = bytes.into();
    peer.target.end.receive(&mut stream, usize::MAX);
    peer.target.take_ops();
    assert_eq!((peer.target.starved.len(), peer.target.work.len()), (1, 0));
    peer.target.abort(0);
    assert!(peer.target.end.machine.has_step());
    peer.target.take_ops();
    assert_eq!(peer.target.work.len(), 1);
    let answers = peer.send(&[]);
    assert_eq!(opcodes(&answers), [opcode::SCSI_RESPONSE]);
    assert_eq!(peer.media(0, 4), &pattern(1, 2048)[..]);
}

#[test]
fn a_task_all_of_whose_data_came_is_not_executed_behind_its_abort() {
    let mut peer = Peer::live(keys());
    let data = pattern(2, 2048);
    let bytes = peer.command(WRITE_MORE, cdb::write(0, 4), 2048, &[]);
    peer.push(&bytes);
    // An empty write: all that is wanted is there with the memory.
    let bytes = peer.command(WRITE, [0x99; 16], 0, &[]);
    peer.push(&bytes);
    assert_eq!(peer.target.work.len(), 1);
    peer.target.abort(1);
    let answers = peer.function(LUN_RESET, (TAG_NONE, 0));
    assert_eq!(opcodes(&answers), [opcode::TASK_MANAGEMENT_RESPONSE]);
    let ids = (peer.itt - 2, UNSOLICITED);
    let bytes = peer.sequence(ids, &data, (0, 2048), 1024);
    assert!(peer.send(&bytes).is_empty());
    assert_eq!(peer.media(0, 4), &pattern(1, 2048)[..]);
    // Once its last PDU has come, its tag names no task.
    let answers = peer.send(&bytes);
    assert_eq!(reject_reasons(&answers).len(), 2);
}

#[test]
fn a_task_that_became_complete_with_its_memory_is_not_executed_behind_its_abort() {
    let mut peer = Peer::live(keys());
    // Nothing of its data is wanted.
    let bytes = peer.command(WRITE, [0x99; 16], 512, &[]);
    peer.push(&bytes);
    let (tag, wanted) = peer.target.starved.remove(0);
    assert_eq!(wanted, 0);
    let machine = &mut peer.target.end.machine;
    machine.prepared(tag, wanted);
    assert!(machine.has_step());
    peer.target.abort(tag);
    assert!(!peer.target.end.machine.has_step());
    assert!(peer.send(&[]).is_empty());
    let answers = peer.do_command(WRITE, [0x99; 16], 512, &[]);
    assert_eq!(response(&answers[0]), (2, 5, 0x2000));
}

#[test]
fn functions_for_many_end_all_and_are_answered_last() {
    let mut peer = Peer::live(keys());
    let mut bytes = Vec::new();
    for _ in 0..3 {
        bytes.extend(peer.command(READ, cdb::read(0, 1), 512, &[]));
    }
    bytes.extend(peer.command(WRITE, cdb::write(0, 8), 4096, &[]));
    peer.push(&bytes);
    peer.target.execute(1);
    let bytes = peer
        .pdus
        .function((9, peer.cmd_sn), LUN_RESET, (TAG_NONE, 0));
    peer.push(&bytes);
    peer.target.manage(0);
    let answers = peer.send(&[]);
    assert_eq!(
        opcodes(&answers),
        [opcode::DATA_IN, opcode::TASK_MANAGEMENT_RESPONSE]
    );
    assert_eq!(answer(&answers[1]), TaskResponse::Complete as u8);
    assert_eq!(peer.in_flight(), 0);
    assert!(peer.target.named.iter().all(|named| !named));
    // One that is not immediate has its own CmdSN.
    let ids = (1, peer.cmd_sn);
    let mut bytes = peer.pdus.function(ids, LUN_RESET, (TAG_NONE, 0));
    bytes[0] &= 0x3f;
    peer.cmd_sn = peer.cmd_sn.wrapping_add(1);
    assert_eq!(answer(&peer.send(&bytes)[0]), TaskResponse::Complete as u8);
    let answers = peer.do_command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
    assert_eq!(response(&answers[0]), GOOD);
}

impl Peer {
    /// Sends, and gives memory where it is wanted, until nothing moves.
    fn push_all(&mut self, bytes: &[u8]) {
        let mut stream: VecDeque<u8> = bytes.iter().copied().collect();
        loop {
            let taken = self.target.end.receive(&mut stream, usize::MAX);
            self.target.take_ops();
            if self.target.starved.is_empty() && taken == 0 {
                return;
            }
            while !self.target.starved.is_empty() {
                self.target.feed(0);
            }
        }
    }
}

#[test]
fn query_task_is_not_supported_whether_or_not_there_is_the_task() {
    const QUERY_TASK: u8 = TaskFunction::QueryTask as u8;
    let mut peer = Peer::live(keys());
    let bytes = peer.command(READ, cdb::read(0, 1), 512, &[]);
    peer.push(&bytes);
    let executing = (peer.itt, peer.cmd_sn.wrapping_sub(1));
    for referenced in [executing, (77, CMD_SN)] {
        let bytes = peer.pdus.function((9, peer.cmd_sn), QUERY_TASK, referenced);
        let answers = peer.send(&bytes);
        assert_eq!(answer(&answers[0]), TaskResponse::NotSupported as u8);
    }
    assert!(peer.target.functions.is_empty(), "the driver is not asked");
}
