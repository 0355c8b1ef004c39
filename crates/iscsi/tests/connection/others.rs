//! NOPs, texts, logouts, asynchronous messages.

use wire::iscsi::{AsyncEvent, AsyncMessage, LogoutResponse, NopIn, NopOut, TextResponse};
use zerocopy::IntoBytes;

use super::malformed::was_not_received;
use super::*;

#[test]
fn pings_are_sent_back_as_far_as_the_initiator_takes_them() {
    let mut peer = Peer::live(keys());
    let data = pattern(2, 4000);
    for (len, back) in [(0, 0), (1, 1), (5, 5), (2048, 2048), (4000, 2048)] {
        let bytes = peer.pdus.nop_out(5, TAG_NONE, peer.cmd_sn, &data[..len]);
        let answers = peer.send(&bytes);
        assert_eq!(opcodes(&answers), [opcode::NOP_IN]);
        assert_eq!(answers[0].data, data[..back]);
        let header: &NopIn = answers[0].bhs.cast();
        assert_eq!((header.itt.get(), header.ttt.get()), (5, TAG_NONE));
    }
    // Not immediate: with a CmdSN of its own, in and out of memory.
    for data in [&[][..], b"data"] {
        let nop = NopOut {
            flags: flags::FINAL,
            itt: 6.into(),
            ttt: TAG_NONE.into(),
            cmd_sn: peer.cmd_sn.into(),
            ..NopOut::new()
        };
        let bytes = peer.pdus.pdu(nop.as_bytes(), data);
        peer.cmd_sn = peer.cmd_sn.wrapping_add(1);
        let answers = peer.send(&bytes);
        assert_eq!(answers[0].data, data);
        let header: &NopIn = answers[0].bhs.cast();
        assert_eq!(header.exp_cmd_sn.get(), peer.cmd_sn);
        assert_eq!(header.max_cmd_sn.get(), peer.cmd_sn.wrapping_add(7));
    }
    // Without memory for it there is an answer all the same.
    let bytes = peer.pdus.nop_out(5, TAG_NONE, peer.cmd_sn, b"data");
    let mut stream = bytes.into();
    peer.target.end.receive(&mut stream, usize::MAX);
    peer.target.take_ops();
    peer.target.starve(0);
    let answers = peer.send(&[]);
    assert_eq!(
        (opcodes(&answers), answers[0].data.len()),
        (vec![opcode::NOP_IN], 0)
    );
    assert_eq!(peer.in_flight(), 0);
}

fn with_keep_alive() -> Peer {
    let mut peer = Peer::with(ConnectionRole {
        session: Rc::new(RefCell::new(Session::new(CMD_SN, 8, false))),
        negotiated: keys(),
        cid: 0,
        nop_interval: 100,
        nop_timeout: 30,
    });
    peer.log_in();
    peer
}

#[test]
fn an_initiator_that_is_silent_is_asked_and_one_that_stays_silent_is_left() {
    let mut peer = with_keep_alive();
    let tick = |peer: &mut Peer, now| {
        assert!(peer.target.end.machine.deadline().expect("a deadline") <= now);
        peer.target.end.machine.on_deadline(now);
        let answers = peer.send(&[]);
        assert!(answers.iter().all(|pdu| pdu.bhs.opcode() == opcode::NOP_IN));
        answers.len()
    };
    assert_eq!(tick(&mut peer, 1000), 0);
    assert_eq!(peer.target.end.machine.deadline(), Some(1100));
    // Something came: no question.
    peer.do_command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
    assert_eq!(tick(&mut peer, 1100), 0);
    peer.target.end.machine.on_deadline(1200);
    let answers = peer.send(&[]);
    let nop: &NopIn = answers[0].bhs.cast();
    assert_eq!(nop.itt.get(), TAG_NONE);
    assert_eq!(nop.stat_sn.get(), STAT_SN + 2, "the next, not used up");
    assert_eq!(peer.target.end.machine.deadline(), Some(1230));
    let bytes = peer.pdus.nop_out(TAG_NONE, nop.ttt.get(), peer.cmd_sn, &[]);
    assert!(peer.send(&bytes).is_empty());
    assert_eq!(tick(&mut peer, 1230), 0);
    assert_eq!(tick(&mut peer, 1330), 1);
    assert!(!peer.target.end.machine.is_finished());
    peer.target.end.machine.on_deadline(1360);
    peer.target.take_ops();
    assert_eq!(peer.target.fatal, Some(FatalError::KeepAlive));
    assert!(peer.target.end.machine.is_finished());
}

/// A receive may be under way when the connection ends, and bring data afterwards.
#[test]
fn data_of_an_initiator_that_was_left_is_used_up() {
    let mut peer = with_keep_alive();
    let bytes = peer.command(WRITE, cdb::write(0, 1), 512, &[1; 512]);
    peer.send(&bytes[..100]);
    for now in [1000, 2000, 3000, 4000] {
        peer.target.end.machine.on_deadline(now);
    }
    let machine = &mut peer.target.end.machine;
    assert!(machine.is_finished());
    machine.on_direct(10);
}

#[test]
fn keep_alive_does_not_end_a_connection_that_waits_for_memory() {
    let mut peer = with_keep_alive();
    let bytes = peer.command(WRITE, cdb::write(0, 1), 512, &[1; 512]);
    let mut stream = bytes.into();
    peer.target.end.receive(&mut stream, usize::MAX);
    peer.target.take_ops();
    for now in 1..20 {
        // No memory all the time.
        peer.target.end.machine.on_deadline(now * 1000);
    }
    assert!(!peer.target.end.machine.is_finished());
    let answers = peer.send(&[]);
    assert_eq!(opcodes(&answers), [opcode::SCSI_RESPONSE]);
}

#[test]
fn a_nop_in_is_sent_once_until_it_is_answered() {
    let mut peer = Peer::live(keys());
    peer.target.end.machine.ping();
    peer.target.end.machine.ping();
    let answers = peer.send(&[]);
    assert_eq!(opcodes(&answers), [opcode::NOP_IN]);
    // The answer is that to another question.
    let ttt = answers[0].bhs.cast::<NopIn>().ttt.get();
    for (answer, more) in [(ttt + 1, 0), (ttt, 1)] {
        let bytes = peer.pdus.nop_out(TAG_NONE, answer, peer.cmd_sn, b"data");
        assert!(peer.send(&bytes).is_empty());
        peer.target.end.machine.ping();
        assert_eq!(peer.send(&[]).len(), more);
    }
}

#[test]
fn nops_are_not_received_while_too_many_answers_wait() {
    let mut peer = Peer::live(keys());
    let bytes = peer.pdus.nop_out(5, TAG_NONE, CMD_SN, &[]);
    let mut stream: VecDeque<u8> = bytes.repeat(3 * CONTROLS_MAX).into();
    peer.target.end.receive(&mut stream, usize::MAX);
    peer.target.take_ops();
    assert_eq!(peer.target.end.machine.recv_plan().stage_max, 0);
    assert!(!peer.target.end.machine.has_step());
    let mut answers = peer.transmit(1);
    answers.extend(peer.transmit(CONTROLS_MAX));
    answers.extend(peer.send(&[]));
    assert_eq!(opcodes(&answers), [opcode::NOP_IN; 3 * CONTROLS_MAX]);
}

fn text(pdu: &Pdu) -> (u8, u32) {
    assert_eq!(pdu.bhs.opcode(), opcode::TEXT_RESPONSE);
    let header: &TextResponse = pdu.bhs.cast();
    (header.flags, header.ttt.get())
}

impl Peer {
    pub(super) fn text(&mut self, itt: u32, ttt: u32, flags: u8, text: &[u8]) -> Vec<Pdu> {
        let ids = (itt, self.cmd_sn);
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        let bytes = self.pdus.text(ids, ttt, flags, text);
        self.send(&bytes)
    }
}

#[test]
fn long_text_answers_are_sent_in_several_responses() {
    for data_digest in [false, true] {
        let mut peer = Peer::live(Negotiated {
            data_digest,
            header_digest: data_digest,
            ..keys()
        });
        let long = pattern(3, 5001);
        peer.target.text_answer = long.clone();
        let mut ttt = TAG_NONE;
        let mut found: Vec<u8> = Vec::new();
        for (piece, expected) in [2048, 2048, 905].into_iter().enumerate() {
            let said = if piece == 0 {
                &b"SendTargets=All\0"[..]
            } else {
                &[]
            };
            let answers = peer.text(9, ttt, flags::FINAL, said);
            assert_eq!(answers.len(), 1);
            assert_eq!(answers[0].data.len(), expected);
            let (text_flags, tag) = text(&answers[0]);
            let is_last = piece == 2;
            assert_eq!(tag == TAG_NONE, is_last);
            assert_eq!(
                text_flags,
                if is_last {
                    flags::FINAL
                } else {
                    flags::CONTINUE
                }
            );
            found.extend(&answers[0].data);
            ttt = tag;
        }
        assert_eq!(found, long);
        assert_eq!(peer.target.texts[1..], [b"SendTargets=All\0"]);
        let (exp_cmd_sn, max_cmd_sn) = peer.window();
        assert_eq!(max_cmd_sn, exp_cmd_sn.wrapping_add(7));
    }
}

/// libiscsi takes an answer in one PDU or not at all.
#[test]
fn an_answer_that_fits_what_the_initiator_takes_is_one_pdu() {
    for digests in [false, true] {
        let mut peer = Peer::live(Negotiated {
            data_digest: digests,
            header_digest: digests,
            max_send_data_segment_length: 256 << 10,
            ..keys()
        });
        for (len, pieces) in [
            (8193, 1),
            (100_001, 1),
            (256 << 10, 1),
            ((256 << 10) + 1, 2),
        ] {
            let long = pattern(3, len);
            peer.target.text_answer = long.clone();
            let mut answers = peer.text(9, TAG_NONE, flags::FINAL, b"SendTargets=All\0");
            let mut found = answers[0].data.clone();
            for _ in 1..pieces {
                let (text_flags, ttt) = text(&answers[0]);
                assert_eq!(text_flags, flags::CONTINUE);
                answers = peer.text(9, ttt, flags::FINAL, b"");
                found.extend(&answers[0].data);
            }
            assert_eq!(text(&answers[0]), (flags::FINAL, TAG_NONE), "{len}");
            assert!(found == long, "{len}");
        }
    }
}

#[test]
fn long_texts_come_in_several_requests_and_a_new_text_ends_an_old_one() {
    let mut peer = Peer::live(keys());
    let answers = peer.text(9, TAG_NONE, flags::CONTINUE, b"SendTar");
    let (text_flags, ttt) = text(&answers[0]);
    assert!(text_flags == 0 && ttt != TAG_NONE && answers[0].data.is_empty());
    assert_eq!(peer.target.texts.len(), 1);
    peer.text(9, ttt, flags::FINAL, b"gets=All\0");
    assert_eq!(peer.target.texts[1], b"SendTargets=All\0");
    // An exchange that goes on: the initiator has more to say.
    let answers = peer.text(9, TAG_NONE, 0, b"a=b\0");
    let (text_flags, ttt) = text(&answers[0]);
    assert!(text_flags == 0 && ttt != TAG_NONE);
    let answers = peer.text(8, ttt, flags::FINAL, b"c=d\0");
    let reason = RejectReason::InvalidPduField;
    assert_eq!(reject_reasons(&answers), [reason as u8], "another task's");
    was_not_received(&mut peer, &answers[0], &answers[0].data);
    let answers = peer.text(9, ttt, flags::FINAL, b"c=d\0");
    assert_eq!(text(&answers[0]), (flags::FINAL, TAG_NONE));
    // One that is left for another.
    let answers = peer.text(9, TAG_NONE, flags::CONTINUE, b"lost");
    let (_, lost) = text(&answers[0]);
    peer.text(10, TAG_NONE, flags::FINAL, b"x=y\0");
    assert_eq!(peer.target.texts.last().expect("one"), b"x=y\0");
    let answers = peer.text(9, lost, flags::FINAL, b"");
    assert_eq!(reject_reasons(&answers).len(), 1);
    was_not_received(&mut peer, &answers[0], &answers[0].data);
    // Too long.
    let mut ttt = TAG_NONE;
    let mut answers = Vec::new();
    for _ in 0..5 {
        answers = peer.text(9, ttt, flags::CONTINUE, &[b'x'; 4096]);
        if answers[0].bhs.opcode() != opcode::TEXT_RESPONSE {
            break;
        }
        ttt = text(&answers[0]).1;
    }
    assert_eq!(reject_reasons(&answers), [RejectReason::LongOpReject as u8]);
    was_not_received(&mut peer, &answers[0], &answers[0].data);
}

#[test]
fn an_answer_larger_than_a_batch_goes_on_in_the_next_one() {
    let mut peer = Peer::live(Negotiated {
        max_send_data_segment_length: 256 << 10,
        ..keys()
    });
    peer.target.text_answer = vec![b'x'; 40_000];
    let bytes = peer.command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
    peer.push(&bytes);
    peer.target.execute(0);
    let ids = (9, peer.cmd_sn);
    let bytes = peer.pdus.text(ids, TAG_NONE, flags::FINAL, b"a=b\0");
    peer.push(&bytes);
    // Of three parts, the first behind the response.
    peer.target.transmit(&mut peer.out, 2);
    peer.target.transmit(&mut peer.out, 1);
    assert!(peer.out.len() < 40_000 && peer.target.end.machine.has_transmit());
    let answers = peer.transmit(1);
    assert_eq!(
        opcodes(&answers),
        [opcode::SCSI_RESPONSE, opcode::TEXT_RESPONSE]
    );
    assert_eq!(answers[1].data.len(), 40_000);
    assert!(!peer.target.end.machine.has_transmit());
}

#[test]
fn a_logout_response_is_the_last_pdu_of_its_connection() {
    for reason in [0, 1] {
        let mut peer = Peer::live(keys());
        let bytes = peer.command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
        peer.push(&bytes);
        peer.target.execute(0);
        let bytes = peer.pdus.logout((9, peer.cmd_sn), reason, 0);
        let answers = peer.send(&bytes);
        assert_eq!(
            opcodes(&answers),
            [opcode::SCSI_RESPONSE, opcode::LOGOUT_RESPONSE]
        );
        let header: &LogoutResponse = answers[1].bhs.cast();
        assert_eq!((header.response, header.itt.get()), (0, 9));
        assert_eq!((header.time2wait.get(), header.time2retain.get()), (2, 20));
        assert!(peer.target.end.machine.is_finished());
        assert!(peer.target.session().borrow().connections().is_empty());
        assert!(peer.target.fatal.is_none());
        assert!(peer.send(&bytes).is_empty());
    }
}

#[test]
fn the_logout_of_another_connection_is_answered_and_this_one_goes_on() {
    let mut peer = Peer::live(keys());
    let bytes = peer.pdus.logout((9, peer.cmd_sn), 1, 3);
    let answers = peer.send(&bytes);
    assert_eq!(opcodes(&answers), [opcode::LOGOUT_RESPONSE]);
    assert_eq!(peer.target.logouts, [(LogoutReason::CloseConnection, 3)]);
    let answers = peer.do_command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
    assert_eq!(response(&answers[0]), GOOD);
    // At this ErrorRecoveryLevel no connection is recovered.
    let bytes = peer.pdus.logout((9, peer.cmd_sn), 2, 3);
    let answers = peer.send(&bytes);
    assert_eq!(answers[0].bhs.cast::<LogoutResponse>().response, 2);
    assert_eq!(peer.target.logouts.len(), 1);
}

#[test]
fn asynchronous_messages_say_what_happens() {
    let mut peer = Peer::live(keys());
    let machine = &mut peer.target.end.machine;
    machine.send_async(AsyncEvent::LogoutRequest, 0, [0, 0, 30], &[]);
    machine.send_async(AsyncEvent::Scsi, 5 << 48, [0; 3], &[0x70, 0, 6]);
    let answers = peer.send(&[]);
    let header: &AsyncMessage = answers[0].bhs.cast();
    assert_eq!((header.async_event, header.parameter3.get()), (1, 30));
    assert_eq!(header.stat_sn.get(), STAT_SN + 1);
    let header: &AsyncMessage = answers[1].bhs.cast();
    assert_eq!((header.async_event, header.lun[1]), (0, 5));
    assert_eq!(header.stat_sn.get(), STAT_SN + 2);
    assert_eq!(answers[1].data, [0, 3, 0x70, 0, 6]);
}

#[test]
fn the_memory_of_a_damaged_ping_is_not_given_back_for_another() {
    let keys = Negotiated {
        data_digest: true,
        ..keys()
    };
    let mut peer = Peer::live(keys);
    let mut bytes = peer.pdus.nop_out(5, TAG_NONE, peer.cmd_sn, b"damaged");
    *bytes.last_mut().expect("a digest") ^= 1;
    // It comes together with the ping, so that nothing is sent in between.
    bytes.extend(peer.command(READ, cdb::read(3, 1), BLOCK as u32, &[]));
    let answers = peer.send(&bytes);
    assert_eq!(opcodes(&answers[..2]), [opcode::REJECT, opcode::DATA_IN]);
    let released = &peer.target.end.released;
    assert_eq!(released.len(), 2);
    assert_ne!(released[0], released[1], "a tag of two at a time");
    assert_eq!(peer.in_flight(), 0);
}
