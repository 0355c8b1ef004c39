//! ErrorRecoveryLevel 1: what is lost comes once more.

use wire::iscsi::SnackType;

use super::*;

fn level_1() -> Negotiated {
    Negotiated {
        error_recovery_level: 1,
        data_digest: true,
        header_digest: true,
        ..keys()
    }
}

impl Peer {
    fn snack(
        &mut self,
        kind: SnackType,
        ids: (u32, u32),
        exp_stat_sn: u32,
        run: (u32, u32),
    ) -> Vec<Pdu> {
        let bytes = self.pdus.snack(kind, ids, exp_stat_sn, run);
        self.send(&bytes)
    }

    /// Acknowledges all before `exp_stat_sn`.
    fn acknowledge(&mut self, exp_stat_sn: u32) -> Vec<Pdu> {
        let mut bytes = self.pdus.nop_out(5, TAG_NONE, self.cmd_sn, &[]);
        bytes[28..32].copy_from_slice(&exp_stat_sn.to_be_bytes());
        let digest = machine::crc32c(&bytes[..48], 0);
        bytes[48..52].copy_from_slice(&digest.to_le_bytes());
        self.send(&bytes)
    }
}

fn stat_sn(pdu: &Pdu) -> u32 {
    pdu.bhs.cast::<Reject>().stat_sn.get()
}

const NO_TASK: (u32, u32) = (TAG_NONE, TAG_NONE);

#[test]
fn lost_answers_come_once_more_until_they_are_acknowledged() {
    let mut peer = Peer::live(level_1());
    let mut sent = Vec::new();
    sent.extend(peer.do_command(NONE, cdb::TEST_UNIT_READY, 0, &[]));
    sent.extend(peer.do_command(READ, cdb::inquiry(61), 61, &[]));
    sent.extend(peer.do_command(READ, [0x99; 16], 512, &[]));
    let nop = peer.pdus.nop_out(5, TAG_NONE, peer.cmd_sn, b"echo");
    sent.extend(peer.send(&nop));
    let function = peer.pdus.function((6, peer.cmd_sn), 5, (TAG_NONE, 0));
    sent.extend(peer.send(&function));
    let text = peer
        .pdus
        .text((7, peer.cmd_sn), TAG_NONE, flags::FINAL, b"a=b\0");
    peer.cmd_sn = peer.cmd_sn.wrapping_add(1);
    peer.target.text_answer = b"c=d\0".to_vec();
    sent.extend(peer.send(&text));
    assert_eq!(sent.len(), 6);
    assert_eq!(peer.in_flight(), 0);
    assert!(peer.target.end.released.is_empty(), "all are kept");

    let all = peer.snack(SnackType::Status, NO_TASK, 1, (0, 0));
    assert_eq!(without_window(&all), without_window(&sent));
    let some = peer.snack(SnackType::Status, NO_TASK, 1, (2, 3));
    assert_eq!(without_window(&some), without_window(&sent[1..4]));
    let rest = peer.snack(SnackType::Status, NO_TASK, 1, (5, 0));
    assert_eq!(without_window(&rest), without_window(&sent[4..]));
    // What was never sent, and what is acknowledged.
    for (exp_stat_sn, run) in [(1, (40, 1)), (1, (6, 20)), (4, (3, 1)), (4, (99, 0))] {
        let answers = peer.snack(SnackType::Status, NO_TASK, exp_stat_sn, run);
        assert_eq!(
            reject_reasons(&answers),
            [RejectReason::ProtocolError as u8]
        );
    }
    // Runs that come round to the beginning.
    for run in [(1 << 30, 7 << 28), (5, u32::MAX), (0, u32::MAX)] {
        let answers = peer.snack(SnackType::Status, NO_TASK, 4, run);
        assert_eq!(
            reject_reasons(&answers),
            [RejectReason::ProtocolError as u8]
        );
    }
    assert_eq!(peer.target.end.released.len(), 3);
    let answers = peer.acknowledge(14);
    assert_eq!(opcodes(&answers), [opcode::NOP_IN]);
    assert_eq!(peer.target.end.released.len(), 5);
    assert!(peer.target.named.iter().all(|named| !named));
}

/// PDUs without ExpCmdSN and MaxCmdSN, which are those of now.
fn without_window(pdus: &[Pdu]) -> Vec<Pdu> {
    let mut pdus = pdus.to_vec();
    for pdu in &mut pdus {
        pdu.bhs.specific20[8..16].fill(0);
    }
    pdus
}

#[test]
fn lost_data_in_comes_once_more() {
    let mut peer = Peer::live(level_1());
    let sent = peer.do_command(READ, cdb::read(0, 40), 20480, &[]);
    assert_eq!(sent.len(), 10);
    // The end of the first burst asks for an acknowledgement.
    let header: &DataIn = sent[7].bhs.cast();
    assert_eq!(header.flags, flags::FINAL | flags::ACKNOWLEDGE);
    let ttt = header.ttt.get();
    assert_ne!(ttt, TAG_NONE);
    let task = (peer.itt, TAG_NONE);
    for (run, range) in [
        ((0, 0), 0..10),
        ((3, 2), 3..5),
        ((7, 1), 7..8),
        ((9, 1), 9..10),
    ] {
        let again = peer.snack(SnackType::DataOrR2t, task, 1, run);
        assert_eq!(without_window(&again), without_window(&sent[range]));
    }
    let last = peer.snack(SnackType::Status, NO_TASK, 1, (1, 1));
    assert_eq!(without_window(&last), without_window(&sent[9..]));
    assert!(
        peer.snack(SnackType::DataAck, (TAG_NONE, ttt), 1, (8, 0))
            .is_empty()
    );

    let unknown_task = (0x999, TAG_NONE);
    for (ids, run) in [(task, (10, 1)), (task, (8, 3)), (unknown_task, (0, 1))] {
        let answers = peer.snack(SnackType::DataOrR2t, ids, 1, run);
        assert_eq!(
            reject_reasons(&answers),
            [RejectReason::ProtocolError as u8]
        );
    }
    let header: &Reject = {
        let answers = peer.snack(SnackType::DataOrR2t, task, 1, (10, 1));
        &answers[0].bhs.cast::<Reject>().clone()
    };
    assert_eq!(header.data_sn.get(), 10);
    for (ttt, run) in [(777, (8, 0)), (ttt, (11, 0)), (ttt, (8, 1))] {
        let answers = peer.snack(SnackType::DataAck, (TAG_NONE, ttt), 1, run);
        assert_eq!(
            reject_reasons(&answers),
            [RejectReason::InvalidDataAck as u8]
        );
    }
    assert_eq!(peer.target.end.released.len(), 0);
    peer.acknowledge(2);
    assert_eq!(peer.target.end.released.len(), 1);
}

#[test]
fn data_in_comes_once_more_as_there_is_room() {
    let mut peer = Peer::live(level_1());
    let sent = peer.do_command(READ, cdb::read(0, 40), 20480, &[]);
    let bytes = peer
        .pdus
        .snack(SnackType::DataOrR2t, (peer.itt, TAG_NONE), 1, (0, 0));
    peer.push(&bytes);
    let mut again = Vec::new();
    for _ in 0..sent.len() {
        again.extend(peer.transmit(1));
    }
    assert_eq!(without_window(&again), without_window(&sent));
    assert!(!peer.target.end.machine.has_transmit());
}

#[test]
fn data_that_is_asked_for_again_is_kept_until_it_was_sent() {
    let mut peer = Peer::live(level_1());
    let sent = peer.do_command(READ, cdb::read(0, 12), 6144, &[]);
    let task = (peer.itt, TAG_NONE);
    let again = peer.pdus.snack(SnackType::DataOrR2t, task, 1, (0, 0));
    // And acknowledges it in the same breath.
    let ack = peer.pdus.snack(SnackType::Status, NO_TASK, 2, (2, 0));
    peer.push(&[again, ack].concat());
    let mut found = peer.transmit(1);
    assert!(peer.target.end.released.is_empty());
    found.extend(peer.transmit(9));
    assert_eq!(without_window(&found), without_window(&sent));
    peer.acknowledge(2);
    assert_eq!(peer.target.end.released.len(), 1);
}

#[test]
fn r_data_is_cut_anew_and_its_answer_says_so() {
    let mut peer = Peer::live(level_1());
    peer.do_command(READ, cdb::read(0, 12), 6144, &[]);
    let task = (peer.itt, TAG_NONE);
    // The initiator takes less now.
    let ids = (7, peer.cmd_sn);
    peer.cmd_sn = peer.cmd_sn.wrapping_add(1);
    let bytes = peer.pdus.text(
        ids,
        TAG_NONE,
        flags::FINAL,
        b"MaxRecvDataSegmentLength=1024\0",
    );
    let mut at = 0;
    let machine = &mut peer.target.end.machine;
    assert_eq!(
        machine.poll_step(0, &bytes, &mut at),
        Some(Step::Op(TargetOp::Text))
    );
    machine.take_text();
    machine.text_answer(Vec::new(), Some(1024));
    peer.send(&[]);
    let answers = peer.snack(SnackType::DataOrR2t, task, 1, (0, 0));
    assert_eq!(reject_reasons(&answers), [RejectReason::SnackReject as u8]);
    let answers = peer.snack(SnackType::RData, (peer.itt, 0x55), 1, (0, 0));
    assert_eq!(answers.len(), 7);
    assert_eq!(data_in(&answers), peer.media(0, 12));
    assert!(answers[..6].iter().all(|pdu| pdu.data.len() == 1024));
    let last: &ScsiResponse = answers[6].bhs.cast();
    assert_eq!(response(&answers[6]), GOOD);
    assert_eq!((last.snack_tag.get(), last.stat_sn.get()), (0x55, 1));
    assert_eq!(last.exp_data_sn.get(), 6);
}

#[test]
fn lost_r2ts_come_once_more() {
    let mut peer = Peer::live(level_1());
    let data = pattern(2, 64 * BLOCK);
    let r2ts = peer.do_command(WRITE, cdb::write(0, 64), 32768, &[]);
    assert_eq!(r2ts.len(), 2);
    let task = (peer.itt, TAG_NONE);
    let again = peer.snack(SnackType::DataOrR2t, task, 1, (0, 0));
    assert_eq!(without_window(&again), without_window(&r2ts));
    let again = peer.snack(SnackType::DataOrR2t, task, 1, (1, 1));
    assert_eq!(without_window(&again), without_window(&r2ts[1..]));
    let answers = peer.snack(SnackType::DataOrR2t, task, 1, (2, 1));
    assert_eq!(
        reject_reasons(&answers),
        [RejectReason::ProtocolError as u8]
    );
    let answers = peer.obey(r2ts, &data, 4096);
    assert_eq!(response(&answers[0]), GOOD);
    assert_eq!(peer.media(0, 64), data);
}

#[test]
fn data_out_that_was_damaged_is_asked_for_once_more() {
    let mut peer = Peer::live(level_1());
    let data = pattern(2, 32 * BLOCK);
    // The second PDU of the unsolicited data, and the first that an R2T brings.
    let command = peer.command(WRITE_MORE, cdb::write(0, 32), 16384, &[]);
    let mut bytes = peer.sequence((peer.itt, UNSOLICITED), &data, (0, 8192), 3000);
    bytes[3056 + 52 + 17] ^= 8;
    let answers = peer.send(&[command, bytes].concat());
    assert_eq!(
        reject_reasons(&answers),
        [RejectReason::DataDigestError as u8]
    );
    let ranges: Vec<_> = answers[1..].iter().map(range).collect();
    assert_eq!(ranges, [(0, 3000, 3000), (1, 8192, 8192)]);
    let mut bytes = peer.data_for(answers[2].bhs.cast(), &data, 4096);
    bytes[60] ^= 1;
    let mut rest = peer.send(&bytes);
    assert_eq!(reject_reasons(&rest), [RejectReason::DataDigestError as u8]);
    assert_eq!(range(&rest[1]), (2, 8192, 4096));
    rest.remove(0);
    rest.push(answers[1].clone());
    let answers = peer.obey(rest, &data, 4096);
    assert_eq!(opcodes(&answers), [opcode::SCSI_RESPONSE]);
    assert_eq!(response(&answers[0]), GOOD);
    assert_eq!(peer.media(0, 32), data);
}

fn range(pdu: &Pdu) -> (u32, u32, u32) {
    assert_eq!(pdu.bhs.opcode(), opcode::R2T);
    let header: &R2t = pdu.bhs.cast();
    let len = header.desired_data_transfer_length.get();
    (header.r2t_sn.get(), header.buffer_offset.get(), len)
}

#[test]
fn data_that_is_damaged_ever_again_costs_the_task() {
    let mut peer = Peer::live(level_1());
    let data = [7; 1024];
    let mut answers = peer.do_command(WRITE, cdb::write(0, 2), 1024, &[]);
    for _ in 0..100 {
        let r2t = answers.iter().find(|pdu| pdu.bhs.opcode() == opcode::R2T);
        let Some(r2t) = r2t else {
            break;
        };
        let mut bytes = peer.data_for(r2t.bhs.cast(), &data, 1024);
        bytes[60] ^= 1;
        answers = peer.send(&bytes);
    }
    assert_eq!(response(answers.last().expect("one")), CRC_ERROR);
}

#[test]
fn a_task_in_recovery_can_be_aborted() {
    let mut peer = Peer::live(level_1());
    let data = [7; 4096];
    let r2ts = peer.do_command(WRITE, cdb::write(0, 8), 4096, &[]);
    let mut bytes = peer.data_for(r2ts[0].bhs.cast(), &data, 2048);
    bytes[60] ^= 1;
    peer.push(&bytes);
    peer.target.abort(0);
    let answers = peer.send(&[]);
    assert_eq!(opcodes(&answers), [opcode::REJECT]);
    assert_eq!(peer.in_flight(), 0);
    let answers = peer.do_command(WRITE, cdb::write(0, 8), 4096, &data);
    assert_eq!(response(&answers[0]), GOOD);
}

#[test]
fn answers_that_are_never_acknowledged_make_room_in_the_end() {
    let mut peer = Peer::live(level_1());
    for _ in 0..300 {
        let answers = peer.do_command(READ, cdb::inquiry(61), 61, &[]);
        let last = answers.last().expect("an answer");
        assert_eq!(last.bhs.opcode(), opcode::DATA_IN);
    }
    assert!(peer.target.end.machine.tags_max() <= 2 * 8 + EXTRA_TASKS_MAX);
    assert!(peer.target.end.released.len() > 200);
}

#[test]
fn a_task_tag_is_free_again_when_its_answer_has_come() {
    let mut peer = Peer::live(level_1());
    // An initiator that has the answer uses the tag again, acknowledged or not.
    for acknowledges in [true, false] {
        let read = peer.do_command(READ, cdb::read(3, 1), BLOCK as u32, &[]);
        peer.itt -= 1;
        let mut again = peer.command(READ, cdb::read(4, 1), BLOCK as u32, &[]);
        if acknowledges {
            let exp_stat_sn = stat_sn(&read[read.len() - 1]).wrapping_add(1);
            again[28..32].copy_from_slice(&exp_stat_sn.to_be_bytes());
            let digest = machine::crc32c(&again[..48], 0);
            again[48..52].copy_from_slice(&digest.to_le_bytes());
        }
        let answers = peer.send(&again);
        assert_eq!(opcodes(&answers), opcodes(&read));
        assert_ne!(answers[0].data, read[0].data);
    }
    // Of what is not answered it is not.
    let first = peer.command(READ, cdb::read(3, 1), BLOCK as u32, &[]);
    peer.itt -= 1;
    let second = peer.command(READ, cdb::read(4, 1), BLOCK as u32, &[]);
    let answers = peer.send(&[first, second].concat());
    assert_eq!(
        reject_reasons(&answers),
        [RejectReason::TaskInProgress as u8]
    );
}

#[test]
fn without_recovery_nothing_is_kept_or_sent_again() {
    let mut peer = Peer::live(keys());
    peer.do_command(READ, cdb::inquiry(61), 61, &[]);
    assert_eq!(peer.target.end.released.len(), 1);
    for kind in SnackType::ALL {
        let answers = peer.snack(*kind, (peer.itt, TAG_NONE), 1, (0, 0));
        assert_eq!(
            reject_reasons(&answers),
            [RejectReason::ProtocolError as u8]
        );
    }
}

/// Without acknowledgements no more than so much memory is kept; a SNACK for what is
/// not kept is rejected.
#[test]
fn data_that_is_kept_for_recovery_has_a_bound() {
    let mut peer = Peer::live(level_1());
    const BLOCKS: u16 = 512;
    let len = u32::from(BLOCKS) * BLOCK as u32;
    peer.target.media = pattern(1, len as usize);
    let most = (KEPT_BYTES_MAX / u64::from(len)) as usize;
    let mut pdus = 0;
    for _ in 0..most + 3 {
        pdus = peer.do_command(READ, cdb::read(0, BLOCKS), len, &[]).len();
    }
    let first = peer.itt - (most as u32 + 2);
    assert_eq!(peer.target.end.released.len(), 3);
    let answers = peer.snack(SnackType::DataOrR2t, (first, TAG_NONE), 1, (0, 0));
    assert_eq!(reject_reasons(&answers), [RejectReason::SnackReject as u8]);
    let answers = peer.snack(SnackType::RData, (first, 0x55), 1, (0, 0));
    assert_eq!(reject_reasons(&answers), [RejectReason::SnackReject as u8]);
    let answers = peer.snack(SnackType::DataOrR2t, (first - 1, TAG_NONE), 1, (0, 0));
    assert_eq!(
        reject_reasons(&answers),
        [RejectReason::ProtocolError as u8]
    );
    // The status is there, alone; of what is kept the data is, too.
    let answers = peer.snack(SnackType::Status, NO_TASK, 1, (1, 1));
    assert_eq!(opcodes(&answers), [opcode::SCSI_RESPONSE]);
    let header: &ScsiResponse = answers[0].bhs.cast();
    assert_eq!(response(&answers[0]), GOOD);
    let numbers = (
        header.stat_sn.get(),
        header.itt.get(),
        header.exp_data_sn.get(),
    );
    assert_eq!(numbers, (1, first, pdus as u32));
    let again = peer.snack(SnackType::DataOrR2t, (first + 3, TAG_NONE), 1, (0, 0));
    assert_eq!(again.len(), pdus);

    // Others go short of memory.
    peer.target.end.machine.drop_kept_data();
    let answers = peer.send(&[]);
    assert_eq!(opcodes(&answers), [opcode::NOP_IN]);
    assert_eq!(peer.target.end.released.len(), most + 3);
    let answers = peer.snack(SnackType::DataOrR2t, (peer.itt, TAG_NONE), 1, (0, 0));
    assert_eq!(reject_reasons(&answers), [RejectReason::SnackReject as u8]);
    let next = stat_sn(&answers[0]).wrapping_add(1);
    let all = peer.snack(SnackType::Status, NO_TASK, 1, (1, most as u32));
    assert_eq!(opcodes(&all), vec![opcode::SCSI_RESPONSE; most]);
    peer.acknowledge(next);
    for first in 1..=most as u32 {
        let answers = peer.snack(SnackType::Status, NO_TASK, 1, (first, 1));
        let reason = RejectReason::ProtocolError as u8;
        assert_eq!(reject_reasons(&answers), [reason], "{first} is gone");
    }
}

#[test]
fn answers_that_are_never_acknowledged_are_kept_up_to_a_bound() {
    let mut peer = Peer::live(level_1());
    let nop = peer.pdus.nop_out(5, TAG_NONE, peer.cmd_sn, &[]);
    for _ in 0..3 * KEPT_MAX {
        assert_eq!(opcodes(&peer.send(&nop)), [opcode::NOP_IN]);
    }
    // The oldest cannot be had again, the others can.
    let answers = peer.snack(SnackType::Status, NO_TASK, 1, (1, 1));
    let reason = RejectReason::ProtocolError as u8;
    assert_eq!(reject_reasons(&answers), [reason]);
    let refusal = stat_sn(&answers[0]);
    let last = refusal - 1;
    let answers = peer.snack(SnackType::Status, NO_TASK, 1, (last - 9, 10));
    assert_eq!(opcodes(&answers), [opcode::NOP_IN; 10]);
    let numbers = answers.iter().map(stat_sn);
    assert!(numbers.eq(last - 9..=last));
    let oldest = refusal + 1 - KEPT_MAX as u32;
    let answers = peer.snack(SnackType::Status, NO_TASK, 1, (oldest - 1, 1));
    assert_eq!(reject_reasons(&answers), [reason]);
    // The refusal is kept in place of the oldest.
    let answers = peer.snack(SnackType::Status, NO_TASK, 1, (oldest + 1, 1));
    assert_eq!(opcodes(&answers), [opcode::NOP_IN]);
}

#[test]
fn texts_that_are_never_acknowledged_are_kept_up_to_so_many_bytes() {
    let keys = Negotiated {
        max_send_data_segment_length: 1 << 18,
        ..level_1()
    };
    let mut peer = Peer::live(keys);
    peer.target.text_answer = vec![b'x'; 200_000];
    let mut last = 0;
    for _ in 0..20 {
        let ids = (5, peer.cmd_sn);
        peer.cmd_sn = peer.cmd_sn.wrapping_add(1);
        let text = peer.pdus.text(ids, TAG_NONE, flags::FINAL, b"a=b\0");
        let answers = peer.send(&text);
        assert_eq!(opcodes(&answers), [opcode::TEXT_RESPONSE]);
        last = stat_sn(&answers[0]);
    }
    let kept = KEPT_CONTROL_BYTES_MAX / 200_000;
    let oldest = last + 1 - kept as u32;
    let answers = peer.snack(SnackType::Status, NO_TASK, 1, (oldest - 1, 1));
    assert_eq!(
        reject_reasons(&answers),
        [RejectReason::ProtocolError as u8]
    );
    let answers = peer.snack(SnackType::Status, NO_TASK, 1, (oldest, kept as u32));
    assert_eq!(opcodes(&answers), vec![opcode::TEXT_RESPONSE; kept]);
}
