//! Requests whose data does not match its digest (RFC 7143, sections 7.3 and 7.8): they
//! were never received, and their CmdSN waits for them.

use wire::iscsi::{NopIn, TextResponse};

use super::malformed::is_rejected;
use super::*;

const FIRST_ITT: u32 = 0x101;

fn digests(error_recovery_level: u8) -> Negotiated {
    Negotiated {
        data_digest: true,
        error_recovery_level,
        ..keys()
    }
}

/// The connections of one session.
fn two_connections(keys: [Negotiated; 2]) -> (Peer, Peer, Rc<RefCell<Session>>) {
    let session = Rc::new(RefCell::new(Session::new(CMD_SN, 8, false)));
    let [first, second] = [0, 1].map(|cid| {
        let mut peer = Peer::of(keys[usize::from(cid)], session.clone(), cid);
        peer.log_in();
        peer
    });
    (first, second, session)
}

/// `bytes` with a bit of the data behind its first header flipped.
fn damaged(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[50] ^= 1;
    bytes
}

/// ExpCmdSN and MaxCmdSN of any PDU of a target.
fn numbers(pdu: &Pdu) -> (u32, u32) {
    let header: &Reject = pdu.bhs.cast();
    (header.exp_cmd_sn.get(), header.max_cmd_sn.get())
}

/// One Reject of `request` for its data digest, and nothing else.
fn is_lost(answers: &[Pdu], request: &[u8]) {
    assert_eq!(opcodes(answers), [opcode::REJECT]);
    let reason = RejectReason::DataDigestError as u8;
    assert_eq!(reject_reasons(answers), [reason]);
    assert_eq!(answers[0].data, request[..48]);
}

#[test]
fn damaged_immediate_data_is_rejected_and_the_command_waited_for_again() {
    for level in [0, 1] {
        let mut peer = Peer::live(digests(level));
        let data = pattern(7, 1024);
        let whole = peer.command(WRITE, cdb::write(0, 2), 1024, &data);
        let answers = peer.send(&damaged(&whole));
        is_lost(&answers, &whole);
        assert_eq!(numbers(&answers[0]), (CMD_SN, CMD_SN.wrapping_add(7)));
        assert_eq!(peer.in_flight(), 0);
        assert_eq!(peer.target.end.released, [0], "its memory is given back");
        assert!(peer.target.work.is_empty(), "it is never executed");
        assert_eq!(peer.media(0, 2), &pattern(1, 1024)[..]);

        let answers = peer.send(&whole);
        assert_eq!(response(&answers[0]), GOOD);
        let after = (CMD_SN.wrapping_add(1), CMD_SN.wrapping_add(8));
        assert_eq!(numbers(&answers[0]), after);
        assert_eq!(peer.media(0, 2), data);
        assert_eq!(peer.in_flight(), 0);
    }
}

#[test]
fn a_damaged_pad_or_unwanted_byte_makes_the_command_come_again() {
    let mut peer = Peer::live(digests(0));
    for (edtl, at) in [(1023, 48 + 1023), (1024, 48 + 600)] {
        // Of the second one block is wanted.
        let whole = peer.command(WRITE, cdb::write(0, 1), edtl, &vec![7; edtl as usize]);
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        is_lost(&peer.send(&bytes), &whole);
        assert_eq!(response(&peer.send(&whole)[0]), GOOD);
    }
}

#[test]
fn requests_behind_a_lost_one_are_passed_over_until_they_come_again() {
    const UNTAGGED: u8 = flags::WRITE;
    for (level, more) in [(0, WRITE_MORE), (1, WRITE_MORE), (1, UNTAGGED)] {
        let mut peer = Peer::live(digests(level));
        let data = pattern(7, 4096);
        let lost = peer.command(WRITE, cdb::write(0, 1), 512, &data[..512]);
        let mut behind = peer.command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
        behind.extend(peer.command(more, cdb::write(8, 8), 4096, &data[..1000]));
        let ids = (peer.itt, UNSOLICITED);
        behind.extend(peer.sequence(ids, &data, (1000, 4096), 3000));
        behind.extend(peer.command(READ, cdb::read(0, 1), 512, &[]));
        let answers = peer.send(&[damaged(&lost), behind.clone()].concat());
        is_lost(&answers, &lost);
        assert_eq!(peer.window(), (CMD_SN, CMD_SN.wrapping_add(7)));
        assert!(peer.target.fatal.is_none(), "{:?}", peer.target.fatal);

        let answers = peer.send(&[lost, behind].concat());
        let is_read = |pdu: &&Pdu| pdu.bhs.opcode() == opcode::DATA_IN;
        assert_eq!(answers.iter().filter(is_read).count(), 1);
        let statuses = answers.iter().filter(|pdu| !is_read(pdu)).map(response);
        assert_eq!(statuses.collect::<Vec<_>>(), [GOOD; 3]);
        assert_eq!(peer.media(0, 1), &data[..512]);
        assert_eq!(peer.media(8, 8), data);
        assert_eq!((peer.in_flight(), answers.len()), (0, 4));
    }
}

#[test]
fn a_lost_request_that_does_not_come_again_ends_the_connection() {
    let mut peer = Peer::live(digests(0));
    let lost = peer.command(WRITE, cdb::write(0, 1), 512, &[7; 512]);
    peer.target.end.now = 1000;
    is_lost(&peer.send(&damaged(&lost)), &lost);
    let machine = &mut peer.target.end.machine;
    assert_eq!(machine.deadline(), Some(1000 + RETRY_TIMEOUT));
    machine.on_deadline(999 + RETRY_TIMEOUT);
    assert!(!machine.is_finished());
    machine.on_deadline(1000 + RETRY_TIMEOUT);
    assert!(machine.is_finished());
    peer.target.take_ops();
    let gap = FatalError::CmdSnGap {
        cmd_sn: CMD_SN,
        expected: CMD_SN,
    };
    assert_eq!(peer.target.fatal, Some(gap));
}

#[test]
fn a_lost_request_that_came_again_ends_nothing() {
    let mut peer = Peer::live(digests(0));
    let lost = peer.command(WRITE, cdb::write(0, 1), 512, &[7; 512]);
    peer.target.end.now = 1000;
    is_lost(&peer.send(&damaged(&lost)), &lost);
    assert_eq!(response(&peer.send(&lost)[0]), GOOD);
    peer.target.end.machine.on_deadline(1000 + RETRY_TIMEOUT);
    assert!(!peer.target.end.machine.is_finished());
    assert_eq!(peer.target.end.machine.deadline(), None);
    // A gap that comes later is none of it.
    peer.cmd_sn = peer.cmd_sn.wrapping_add(1);
    assert!(
        peer.do_command(NONE, cdb::TEST_UNIT_READY, 0, &[])
            .is_empty()
    );
    assert!(matches!(
        peer.target.fatal,
        Some(FatalError::CmdSnGap { .. })
    ));
}

#[test]
fn an_abort_takes_the_place_of_a_lost_command() {
    let mut peer = Peer::live(digests(0));
    let lost = peer.command(WRITE, cdb::write(0, 1), 512, &[7; 512]);
    is_lost(&peer.send(&damaged(&lost)), &lost);
    let abort = peer.pdus.function((9, peer.cmd_sn), 1, (FIRST_ITT, CMD_SN));
    assert_eq!(
        opcodes(&peer.send(&abort)),
        [opcode::TASK_MANAGEMENT_RESPONSE]
    );
    assert_eq!(peer.window().0, CMD_SN.wrapping_add(1));
    let answers = peer.do_command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
    assert_eq!(response(&answers[0]), GOOD);
    peer.target.end.machine.on_deadline(RETRY_TIMEOUT);
    assert_eq!(peer.target.end.machine.deadline(), None);
    assert_eq!(peer.media(0, 1), &pattern(1, 512)[..]);
}

#[test]
fn a_damaged_immediate_command_is_forgotten_and_holds_up_nothing() {
    for level in [0, 1] {
        let mut peer = Peer::live(digests(level));
        let mut whole = peer.command(WRITE, cdb::write(0, 1), 512, &[7; 512]);
        peer.cmd_sn = CMD_SN;
        whole[0] |= 0x40;
        is_lost(&peer.send(&damaged(&whole)), &whole);
        assert_eq!(peer.window(), (CMD_SN, CMD_SN.wrapping_add(7)));
        let answers = peer.do_command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
        assert_eq!(response(&answers[0]), GOOD);
        assert_eq!(response(&peer.send(&whole)[0]), GOOD);
        assert_eq!(peer.media(0, 1), [7; 512]);
    }
}

#[test]
fn unsolicited_data_of_a_lost_command_is_dropped_without_an_r2t() {
    for level in [0, 1] {
        let mut peer = Peer::live(digests(level));
        let data = pattern(7, 8192);
        let command = peer.command(WRITE_MORE, cdb::write(0, 16), 8192, &data[..1000]);
        let ids = (peer.itt, UNSOLICITED);
        let rest = peer.sequence(ids, &data, (1000, 8192), 4000);
        is_lost(
            &peer.send(&[damaged(&command), rest.clone()].concat()),
            &command,
        );
        assert_eq!(peer.media(0, 16), &pattern(1, 8192)[..]);
        let answers = peer.send(&[command, rest].concat());
        assert_eq!(opcodes(&answers), [opcode::SCSI_RESPONSE]);
        assert_eq!(response(&answers[0]), GOOD);
        assert_eq!(peer.media(0, 16), data);
    }
}

#[test]
fn a_lost_command_that_comes_again_before_its_reject_has_left_is_executed() {
    let mut peer = Peer::live(digests(0));
    let data = pattern(7, 4096);
    let whole = peer.command(WRITE_MORE, cdb::write(0, 8), 4096, &data[..1000]);
    let ids = (peer.itt, UNSOLICITED);
    let rest = peer.sequence(ids, &data, (1000, 4096), 4000);
    peer.push(&damaged(&whole)[..48]);
    peer.target.feed(0);
    peer.push(&[&damaged(&whole)[48..], &rest].concat());
    peer.push(&whole[..48]);
    peer.target.feed(0);
    let answers = peer.send(&[&whole[48..], &rest].concat());
    assert_eq!(opcodes(&answers), [opcode::REJECT, opcode::SCSI_RESPONSE]);
    assert_eq!(response(&answers[1]), GOOD);
    assert_eq!(peer.media(0, 8), data);
}

#[test]
fn no_r2t_of_a_command_goes_out_before_its_immediate_data_is_intact() {
    let mut peer = Peer::live(digests(0));
    let data = pattern(7, 4096);
    let whole = peer.command(WRITE, cdb::write(0, 8), 4096, &data[..1000]);
    let bytes = damaged(&whole);
    peer.push(&bytes[..500]);
    peer.target.feed(0);
    assert!(peer.transmit(9).is_empty());
    is_lost(&peer.send(&bytes[500..]), &whole);
    let r2ts = peer.send(&whole);
    assert_eq!(opcodes(&r2ts), [opcode::R2T]);
    assert_eq!(response(&peer.obey(r2ts, &data, 4096)[0]), GOOD);
    assert_eq!(peer.media(0, 8), data);
}

#[test]
fn a_damaged_command_that_the_driver_had_ended_is_never_answered() {
    let mut peer = Peer::live(digests(0));
    let whole = peer.command(WRITE, cdb::write(0, 2), 1024, &[7; 1024]);
    let bytes = damaged(&whole);
    peer.push(&bytes[..48]);
    let (tag, wanted) = peer.target.starved.pop().expect("it wants memory");
    peer.target.end.set_memory(tag, vec![0; wanted as usize]);
    peer.target.end.machine.prepared(tag, wanted);
    peer.push(&bytes[48..600]);
    peer.target.end.machine.complete(tag, Done::status(8));
    is_lost(&peer.send(&bytes[600..]), &whole);
    assert_eq!(peer.window(), (CMD_SN, CMD_SN.wrapping_add(7)));
    assert_eq!(response(&peer.send(&whole)[0]), GOOD);
    assert_eq!(peer.target.end.released, [0, 0]);
}

#[test]
fn a_command_whose_data_is_dropped_unread_is_taken() {
    let mut peer = Peer::live(digests(0));
    let whole = peer.command(WRITE, cdb::write(0, 2), 1024, &[7; 1024]);
    peer.push(&whole[..48]);
    peer.target.starve(0);
    let answers = peer.send(&whole[48..]);
    assert_eq!(response(&answers[0]), (2, 5, 0x2000));
    assert_eq!(numbers(&answers[0]).0, CMD_SN.wrapping_add(1));
    // Aborted while its data comes.
    let whole = peer.command(WRITE, cdb::write(0, 2), 1024, &[7; 1024]);
    peer.push(&whole[..48]);
    peer.target.abort(0);
    assert!(peer.send(&whole[48..]).is_empty());
    assert_eq!(
        peer.window(),
        (CMD_SN.wrapping_add(2), CMD_SN.wrapping_add(9))
    );
}

#[test]
fn another_connection_waits_until_the_data_of_those_before_is_intact() {
    let (mut first, mut second, session) = two_connections([digests(0); 2]);
    let write = first.command(WRITE, cdb::write(0, 1), 512, &[7; 512]);
    let bytes = damaged(&write);
    first.push(&bytes[..100]);
    first.target.feed(0);
    // The same once more, and the next.
    second.push(&write);
    second.cmd_sn = first.cmd_sn;
    let next = second.command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
    let mut stream: VecDeque<u8> = next.into();
    second.target.end.receive(&mut stream, usize::MAX);
    second.target.take_ops();
    assert!(second.target.work.is_empty() && second.target.starved.is_empty());
    assert_eq!(session.borrow_mut().next_due(), None);
    is_lost(&first.send(&bytes[100..]), &write);
    assert_eq!(session.borrow_mut().next_due(), None);
    // What comes behind the lost one here is passed over, not waited for.
    first.cmd_sn = second.cmd_sn;
    let last = first.command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
    assert!(first.send(&last).is_empty());
    assert_eq!(first.target.end.machine.recv_plan().stage_max, STAGE_LARGE);
    let answers = first.send(&write);
    assert_eq!(response(&answers[0]), GOOD);
    assert_eq!(session.borrow_mut().next_due(), Some(1));
    assert_eq!(response(&second.send(&[])[0]), GOOD);
    assert_eq!(response(&first.send(&last)[0]), GOOD);
    assert_eq!(first.media(0, 1), [7; 512]);
}

#[test]
fn an_arriving_request_is_not_taken_for_one_that_never_came() {
    let (mut first, mut second, _) = two_connections([digests(0); 2]);
    let write = first.command(WRITE, cdb::write(0, 1), 512, &[7; 512]);
    first.push(&write[..100]);
    first.target.feed(0);
    let abort = second
        .pdus
        .function((9, first.cmd_sn), 1, (first.itt, CMD_SN));
    second.send(&abort);
    assert_eq!(response(&first.send(&write[100..])[0]), GOOD);
    assert_eq!(
        first.window(),
        (CMD_SN.wrapping_add(1), CMD_SN.wrapping_add(8))
    );
}

#[test]
fn text_whose_data_is_arriving_may_still_be_rejected_and_the_next_request_waits() {
    let (mut first, mut second, session) = two_connections([keys(), digests(0)]);
    let mut ttt = TAG_NONE;
    for _ in 0..4 {
        let answers = first.text(9, ttt, flags::CONTINUE, &[b'x'; 4096]);
        ttt = answers[0].bhs.cast::<TextResponse>().ttt.get();
    }
    let cmd_sn = session.borrow().exp_cmd_sn();
    let too_long = first.pdus.text((9, cmd_sn), ttt, 0, b"more");
    first.push(&too_long[..50]);
    assert_eq!(session.borrow().exp_cmd_sn(), cmd_sn, "it is not here yet");
    second.cmd_sn = cmd_sn.wrapping_add(1);
    let write = second.command(WRITE, cdb::write(0, 1), 512, &[7; 512]);
    let mut stream: VecDeque<u8> = write[..100].to_vec().into();
    second.target.end.receive(&mut stream, usize::MAX);
    second.target.take_ops();
    let answers = first.send(&too_long[50..]);
    assert_eq!(reject_reasons(&answers), [RejectReason::LongOpReject as u8]);
    assert_eq!(session.borrow().exp_cmd_sn(), cmd_sn, "its place is free");
    let nop = first
        .pdus
        .text((10, cmd_sn), TAG_NONE, flags::FINAL, b"a=b\0");
    assert_eq!(opcodes(&first.send(&nop)), [opcode::TEXT_RESPONSE]);
    assert_eq!(session.borrow_mut().next_due(), Some(1));
    assert_eq!(response(&second.send(&write[100..])[0]), GOOD);
}

#[test]
fn a_connection_that_ends_amid_a_request_leaves_its_place_to_the_others() {
    let (mut first, mut second, _) = two_connections([digests(0); 2]);
    let write = first.command(WRITE, cdb::write(0, 1), 512, &[7; 512]);
    first.push(&write[..100]);
    second.cmd_sn = first.cmd_sn;
    drop(first);
    let answers = second.do_command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
    assert_eq!(response(&answers[0]), GOOD);
    assert_eq!(
        second.window(),
        (CMD_SN.wrapping_add(2), CMD_SN.wrapping_add(9))
    );
}

#[test]
fn more_requests_behind_a_lost_one_than_are_remembered_end_the_connection() {
    let session = Rc::new(RefCell::new(Session::new(CMD_SN, 1024, false)));
    let mut peer = Peer::of(digests(0), session, 0);
    peer.log_in();
    let lost = peer.command(WRITE, cdb::write(0, 1), 512, &[7; 512]);
    is_lost(&peer.send(&damaged(&lost)), &lost);
    for _ in 1..LOST_MAX {
        let answers = peer.do_command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
        assert!(answers.is_empty() && peer.target.fatal.is_none());
    }
    peer.do_command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
    let gap = FatalError::CmdSnGap {
        cmd_sn: peer.cmd_sn.wrapping_sub(1),
        expected: CMD_SN,
    };
    assert_eq!(peer.target.fatal, Some(gap));
}

#[test]
fn a_damaged_nop_out_comes_again() {
    let mut peer = Peer::live(digests(0));
    let mut whole = peer.pdus.nop_out(0x77, TAG_NONE, peer.cmd_sn, b"hello");
    is_rejected(&mut peer, &damaged(&whole), RejectReason::DataDigestError);
    assert_eq!(peer.target.end.released.len(), 2, "and what came behind it");
    // One with a CmdSN of its own.
    whole = peer.pdus.nop_out(0x77, TAG_NONE, peer.cmd_sn, b"hello");
    whole[0] &= !0x40;
    is_lost(&peer.send(&damaged(&whole)), &whole);
    assert_eq!(peer.window(), (peer.cmd_sn, peer.cmd_sn.wrapping_add(7)));
    peer.cmd_sn = peer.cmd_sn.wrapping_add(1);
    let answers = peer.send(&whole);
    assert_eq!(opcodes(&answers), [opcode::NOP_IN]);
    let header: &NopIn = answers[0].bhs.cast();
    assert_eq!(header.exp_cmd_sn.get(), peer.cmd_sn);
    assert_eq!(answers[0].data, b"hello");
    assert_eq!(peer.target.end.released.len(), 4);
}

#[test]
fn a_damaged_text_changes_nothing_and_comes_again() {
    let mut peer = Peer::live(digests(0));
    peer.target.text_answer = vec![b'x'; 3000];
    let cmd_sn = peer.cmd_sn;
    let pdus = peer.pdus;
    let whole = pdus.text((5, cmd_sn), TAG_NONE, flags::FINAL, b"a=b\0");
    is_lost(&peer.send(&damaged(&whole)), &whole);
    assert_eq!(peer.window(), (cmd_sn, cmd_sn.wrapping_add(7)));
    assert_eq!(peer.target.texts.len(), 1, "that of the login");
    let answers = peer.send(&whole);
    assert_eq!(opcodes(&answers), [opcode::TEXT_RESPONSE]);
    assert_eq!(answers[0].data.len(), 2048);
    assert_eq!(peer.target.texts[1], b"a=b\0");
    // A damaged new text does not end the exchange that is under way.
    let other = pdus.text(
        (6, cmd_sn.wrapping_add(1)),
        TAG_NONE,
        flags::FINAL,
        b"c=d\0",
    );
    is_lost(&peer.send(&damaged(&other)), &other);
    let header: &TextResponse = answers[0].bhs.cast();
    let mut rest = pdus.text((5, cmd_sn), header.ttt.get(), flags::FINAL, b"");
    rest[0] |= 0x40;
    let answers = peer.send(&rest);
    assert_eq!(opcodes(&answers), [opcode::TEXT_RESPONSE]);
    assert_eq!(answers[0].data.len(), 952);
    assert_eq!(opcodes(&peer.send(&other)), [opcode::TEXT_RESPONSE]);
}

#[test]
fn a_login_text_has_no_digest_whatever_is_agreed() {
    let mut peer = Peer::fresh(digests(0));
    let login = peer.pdus.login(CMD_SN, 0, b"a=b\0");
    assert_eq!(login.len(), 48 + 4);
    assert_eq!(opcodes(&peer.send(&login)), [opcode::LOGIN_RESPONSE]);
    assert_eq!(peer.target.texts, [b"a=b\0"]);
    // In the full feature phase it has one like any PDU, and is none of its time.
    let late = peer.pdus.pdu(&login[..48], b"a=b\0");
    is_rejected(&mut peer, &late, RejectReason::ProtocolError);
}
