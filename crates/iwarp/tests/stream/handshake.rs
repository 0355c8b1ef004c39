//! How connections come about, and how they do not.

use iwarp::{CrcPolicy, DataPart, MpaError, Qp, QpError, QpOp, QpSettings, Work};
use machine::Machine;
use testkit::End;
use testkit::iwarp::{Fpdus, mpa_frame};
use wire::iwarp::{
    MPA_REPLY_KEY, MPA_REQUEST_KEY, PEER_TO_PEER, RTR_FPDU, RTR_READ, RTR_WRITE, ReadRequest,
    TerminateCode, mpa_flags, opcode,
};

use crate::{feed, sent, settings};

fn responder(settings: QpSettings) -> End<Qp> {
    End::new(Qp::responder(settings, 1, 0))
}

fn initiator(settings: QpSettings) -> End<Qp> {
    let mut end = End::new(Qp::initiator(settings, 1, b"hello", 0));
    assert!(!sent(&mut end).is_empty());
    end
}

fn request(flags: u8, revision: u8, enhanced: Option<(u16, u16)>, data: &[u8]) -> Vec<u8> {
    mpa_frame(MPA_REQUEST_KEY, (flags, revision), enhanced, data)
}

fn reply(flags: u8, enhanced: Option<(u16, u16)>) -> Vec<u8> {
    mpa_frame(MPA_REPLY_KEY, (flags, 2), enhanced, b"")
}

fn work() -> Work<'static> {
    Work::Send {
        head: b"x",
        body: DataPart::default(),
        invalidate: None,
        is_solicited: false,
        release: None,
    }
}

/// What the responder replies to `request`, which it accepts with `data`.
fn accepted(settings: QpSettings, request: &[u8], data: &[u8]) -> Vec<u8> {
    let mut end = responder(settings);
    assert_eq!(feed(&mut end, request, 1), [QpOp::Requested]);
    end.machine.accept(data);
    sent(&mut end).into()
}

#[test]
fn request_in_any_pieces_is_replied_with_its_revision() {
    let frame = request(0, 1, None, b"private");
    let whole = mpa_frame(MPA_REPLY_KEY, (0, 1), None, b"yes");
    for step in 1..=frame.len() {
        let mut end = responder(settings());
        assert_eq!(feed(&mut end, &frame, step), [QpOp::Requested]);
        assert_eq!(end.machine.private_data(), b"private");
        assert!(!end.machine.has_transmit(), "the machine above answers");
        end.machine.accept(b"yes");
        assert_eq!(sent(&mut end), whole);
    }
    let frame = request(0, 2, None, b"");
    let bare = mpa_frame(MPA_REPLY_KEY, (0, 2), None, b"");
    assert_eq!(accepted(settings(), &frame, b""), bare);
}

#[test]
fn ird_and_ord_are_the_lower_of_both_ends() {
    // This end has 2 of both.
    for (theirs, mine) in [
        ((1, 1), (1, 1)),
        ((9, 1), (1, 2)),
        ((1, 9), (2, 1)),
        ((0, 0), (0, 0)),
        ((0x3fff, 0x3fff), (0x3fff, 0x3fff)),
    ] {
        let frame = request(0, 2, Some(theirs), b"");
        let whole = mpa_frame(MPA_REPLY_KEY, (0, 2), Some(mine), b"ok");
        assert_eq!(accepted(settings(), &frame, b"ok"), whole, "{theirs:?}");
    }
}

#[test]
fn read_depth_that_the_peer_leaves_to_upper_layers_is_that_of_this_end() {
    let mut end = responder(settings());
    feed(&mut end, &request(0, 2, Some((0x3fff, 0x3fff)), b""), 1);
    end.machine.accept(b"");
    let terms = end.machine.terms();
    assert_eq!((terms.ird, terms.ord), (2, 2));
}

#[test]
fn crcs_are_in_use_if_either_end_asks() {
    for (policy, flag, used) in [
        (CrcPolicy::Off, 0, false),
        (CrcPolicy::Off, mpa_flags::CRC, true),
        (CrcPolicy::Prefer, 0, true),
        (CrcPolicy::Prefer, mpa_flags::CRC, true),
        (CrcPolicy::Require, 0, true),
        (CrcPolicy::Require, mpa_flags::CRC, true),
    ] {
        let settings = QpSettings {
            crc: policy,
            ..settings()
        };
        let mut end = responder(settings);
        feed(&mut end, &request(flag, 2, None, b""), 7);
        end.machine.accept(b"");
        assert_eq!(end.machine.terms().crc, used, "{policy:?}, {flag}");
        assert_eq!(sent(&mut end)[16] & mpa_flags::CRC != 0, used);

        let mut end = initiator(settings);
        let told = feed(&mut end, &reply(flag, Some((2, 2))), 7);
        let is_refused = policy == CrcPolicy::Require && flag == 0;
        match is_refused {
            true => assert_eq!(told, [QpOp::Fatal(MpaError::NoCrc.into())]),
            false => {
                assert_eq!(told, [QpOp::Established]);
                assert_eq!(end.machine.terms().crc, used);
            }
        }
    }
}

#[test]
fn private_data_of_512_bytes_is_taken_and_no_more() {
    for (enhanced, len) in [(None, 512), (Some((1, 1)), 508)] {
        let data = vec![7; len];
        let mut end = responder(settings());
        let told = feed(&mut end, &request(0, 2, enhanced, &data), 100);
        assert_eq!(told, [QpOp::Requested]);
        assert_eq!(end.machine.private_data(), data);
    }
    let mut end = responder(settings());
    let told = feed(&mut end, &request(0, 2, None, &[7; 513]), 1);
    assert_eq!(told, [QpOp::Fatal(MpaError::PrivateDataLen(513).into())]);
    assert!(!end.machine.has_transmit() && end.machine.is_finished());
}

/// `frame` is not accepted: the responder tells `why`, and replies so or not at all.
fn refused(frame: &[u8], why: MpaError, replied: Option<Vec<u8>>) {
    for step in [1, frame.len()] {
        let mut end = responder(settings());
        assert_eq!(feed(&mut end, frame, step), [QpOp::Fatal(why.into())]);
        let out: Vec<u8> = sent(&mut end).into();
        assert_eq!(out, replied.clone().unwrap_or_default());
        assert!(end.machine.is_finished());
        assert_eq!(end.machine.deadline(), None);
    }
}

fn rejection(revision: u8) -> Option<Vec<u8>> {
    Some(mpa_frame(
        MPA_REPLY_KEY,
        (mpa_flags::REJECT, revision),
        None,
        b"",
    ))
}

#[test]
fn peer_that_wants_markers_is_rejected() {
    let frame = request(mpa_flags::MARKERS, 2, Some((1, 1)), b"");
    refused(&frame, MpaError::Markers, rejection(2));
    refused(
        &request(mpa_flags::MARKERS, 1, None, b""),
        MpaError::Markers,
        rejection(1),
    );
}

#[test]
fn revision_that_is_unknown_is_rejected_with_one_that_is_known() {
    refused(
        &request(0, 3, None, b""),
        MpaError::Revision(3),
        rejection(2),
    );
    refused(
        &request(0, 0, None, b""),
        MpaError::Revision(0),
        rejection(1),
    );
}

#[test]
fn enhanced_request_without_ird_and_ord_is_rejected() {
    let frame = request(mpa_flags::ENHANCED, 2, None, b"abc");
    refused(&frame, MpaError::NotEnhanced, rejection(2));
}

#[test]
fn key_that_is_wrong_in_any_byte_ends_the_connection_without_a_reply() {
    for at in 0..16 {
        let mut frame = request(0, 2, None, b"");
        frame[at] ^= 0x20;
        refused(&frame, MpaError::Key, None);
    }
    let frame = mpa_frame(MPA_REPLY_KEY, (0, 2), None, b"");
    refused(&frame, MpaError::Key, None);
}

#[test]
fn fpdu_before_the_reply_ends_the_connection() {
    let mut frame = request(0, 2, Some((1, 1)), b"x");
    let len = frame.len();
    frame.extend(Fpdus { crc: false }.send(1, b"early"));
    for step in 1..frame.len() {
        let mut end = responder(settings());
        let told = feed(&mut end, &frame, step);
        let early = QpOp::Fatal(MpaError::EarlyData.into());
        assert_eq!(told.last(), Some(&early), "{step} of {len}");
        assert!(!end.machine.has_transmit() && end.machine.is_finished());
    }
}

#[test]
fn connection_that_does_not_stand_in_time_ends() {
    let timeout = settings().handshake_timeout;
    let reached: [fn(&mut End<Qp>); 3] = [
        |_| {},
        |end| {
            feed(end, &request(0, 2, None, b""), 3);
        },
        |end| {
            feed(end, &request(0, 2, None, b""), 3);
            end.machine.accept(b"");
        },
    ];
    for reach in reached {
        let mut end = End::new(Qp::responder(settings(), 1, 100));
        reach(&mut end);
        assert_eq!(end.machine.deadline(), Some(100 + timeout));
        end.machine.on_deadline(99 + timeout);
        assert!(!end.machine.is_finished());
        end.machine.on_deadline(100 + timeout);
        assert!(end.machine.is_finished() && !end.machine.has_transmit());
        assert_eq!(end.machine.deadline(), None);
    }
    let mut end = initiator(settings());
    assert_eq!(end.machine.deadline(), Some(timeout));
    feed(&mut end, &reply(0, Some((2, 2))), 3);
    assert_eq!(end.machine.deadline(), None);
}

#[test]
fn rejection_has_the_private_data_of_the_machine_above() {
    let mut end = responder(settings());
    feed(&mut end, &request(0, 2, Some((1, 1)), b""), 9);
    end.machine.reject(b"no");
    let whole = mpa_frame(MPA_REPLY_KEY, (mpa_flags::REJECT, 2), Some((1, 1)), b"no");
    assert_eq!(sent(&mut end), whole);
    assert!(end.machine.is_finished());

    let mut end = initiator(settings());
    assert_eq!(feed(&mut end, &whole, 1), [QpOp::Rejected]);
    assert_eq!(end.machine.private_data(), b"no");
    assert!(end.machine.is_finished() && !end.machine.has_transmit());
    let bare = mpa_frame(
        MPA_REPLY_KEY,
        (mpa_flags::REJECT | mpa_flags::ENHANCED, 2),
        None,
        b"",
    );
    assert_eq!(feed(&mut initiator(settings()), &bare, 1), [QpOp::Rejected]);
}

#[test]
fn reply_that_is_wrong_ends_the_connection_without_a_word() {
    for (frame, why) in [
        (reply(mpa_flags::MARKERS, Some((2, 2))), MpaError::Markers),
        (reply(0, None), MpaError::NotEnhanced),
        (reply(mpa_flags::ENHANCED, None), MpaError::NotEnhanced),
        (
            mpa_frame(MPA_REPLY_KEY, (0, 1), None, b""),
            MpaError::ReplyRevision(1),
        ),
        (
            mpa_frame(MPA_REPLY_KEY, (0, 3), None, b""),
            MpaError::ReplyRevision(3),
        ),
        (request(0, 2, Some((2, 2)), b""), MpaError::Key),
        (
            mpa_frame(MPA_REPLY_KEY, (0, 2), Some((2, 2)), &[0; 509]),
            MpaError::PrivateDataLen(513),
        ),
    ] {
        let mut end = initiator(settings());
        assert_eq!(feed(&mut end, &frame, 1), [QpOp::Fatal(why.into())]);
        assert!(end.machine.is_finished() && !end.machine.has_transmit());
    }
}

/// The code of the only FPDU in what `end` sends: a Terminate.
fn terminate(end: &mut End<Qp>) -> (u8, u8) {
    let ulpdus = Fpdus { crc: false }.cut(&mut sent(end));
    assert_eq!(ulpdus.len(), 1);
    (ulpdus[0][18], ulpdus[0][19])
}

#[test]
fn reply_with_more_reads_than_the_ird_is_terminated() {
    let mut end = initiator(settings());
    let code = TerminateCode::INSUFFICIENT_IRD;
    let told = feed(&mut end, &reply(0, Some((2, 3))), 1);
    assert_eq!(told, [QpOp::Fatal(QpError::Sent(code))]);
    assert_eq!(terminate(&mut end), (0x20, 6));
}

#[test]
fn reply_without_an_rtr_of_the_request_is_terminated() {
    let mut end = initiator(QpSettings {
        peer_to_peer: true,
        ..settings()
    });
    let code = TerminateCode::NO_MATCHING_RTR;
    let told = feed(&mut end, &reply(0, Some((2 | PEER_TO_PEER, 2))), 1);
    assert_eq!(told, [QpOp::Fatal(QpError::Sent(code))]);
    assert_eq!(terminate(&mut end), (0x20, 7));
}

#[test]
fn responder_sends_nothing_before_a_whole_fpdu_has_come() {
    for crc in [false, true] {
        let peer = Fpdus { crc };
        let fpdu = peer.tagged((opcode::WRITE, true), 0, 0, b"");
        let flags = if crc { mpa_flags::CRC } else { 0 };
        let mut end = responder(settings());
        feed(&mut end, &request(flags, 2, None, b""), 9);
        end.machine.accept(b"");
        sent(&mut end);
        end.machine.post(work());
        for byte in &fpdu {
            assert!(!end.machine.has_transmit());
            feed(&mut end, &[*byte], 1);
        }
        assert_eq!(peer.cut(&mut sent(&mut end)).len(), 1);
    }
}

/// A request of a peer that takes RTRs by the flags `ird` and `ord`, and the reply's flags.
fn peer_to_peer(ird: u16, ord: u16) -> (End<Qp>, (u16, u16)) {
    let mut end = responder(settings());
    let words = (1 | PEER_TO_PEER | ird, ord);
    feed(&mut end, &request(0, 2, Some(words), b""), 9);
    end.machine.accept(b"");
    let reply: Vec<u8> = sent(&mut end).into();
    let word = |at: usize| u16::from_be_bytes([reply[at], reply[at + 1]]) & 0xc000;
    end.machine.post(work());
    assert!(!end.machine.has_transmit());
    (end, (word(20), word(22)))
}

#[test]
fn responder_takes_every_kind_of_rtr() {
    let peer = Fpdus { crc: false };
    let read = ReadRequest {
        sink_stag: 0.into(),
        sink_to: 0.into(),
        size: 0.into(),
        source_stag: 0.into(),
        source_to: 0.into(),
    };
    for ((ird, ord), chosen, rtr, answers) in [
        (
            (RTR_FPDU, 0),
            (PEER_TO_PEER | RTR_FPDU, 0),
            peer.fpdu(b""),
            1,
        ),
        (
            (RTR_FPDU, RTR_WRITE | RTR_READ),
            (PEER_TO_PEER, RTR_WRITE),
            peer.tagged((opcode::WRITE, true), 0, 0, b""),
            1,
        ),
        (
            (RTR_FPDU, RTR_READ),
            (PEER_TO_PEER, RTR_READ),
            peer.read_request(1, &read),
            2,
        ),
    ] {
        for step in [1, 100] {
            let (mut end, flags) = peer_to_peer(ird, ord);
            assert_eq!(flags, chosen);
            assert_eq!(feed(&mut end, &rtr, step), []);
            assert_eq!(peer.cut(&mut sent(&mut end)).len(), answers);
            assert!(!end.machine.is_finished());
        }
    }
}

#[test]
fn fpdu_of_no_bytes_is_a_fault_where_it_is_no_rtr() {
    let empty = Fpdus { crc: false }.fpdu(b"");
    let fault = QpOp::Fatal(QpError::Sent(TerminateCode::DDP_CATASTROPHIC));
    let (mut end, _) = peer_to_peer(RTR_FPDU, RTR_WRITE);
    assert_eq!(feed(&mut end, &empty, 1), [fault], "another was agreed on");
    let (mut end, _) = peer_to_peer(RTR_FPDU, 0);
    assert_eq!(feed(&mut end, &empty, 1), []);
    assert_eq!(feed(&mut end, &empty, 1), [fault], "there is one RTR");
}

#[test]
fn initiator_begins_with_the_rtr_that_the_reply_has() {
    let peer = Fpdus { crc: false };
    for (ird, ord, rtr) in [
        (0, RTR_WRITE, vec![0xc1, 0x40]),
        (0, RTR_READ, vec![0x41, 0x41]),
        (RTR_FPDU, 0, vec![]),
    ] {
        let mut end = initiator(QpSettings {
            peer_to_peer: true,
            ..settings()
        });
        end.machine.post(work());
        let frame = reply(0, Some((2 | PEER_TO_PEER | ird, 2 | ord)));
        assert_eq!(feed(&mut end, &frame, 5), [QpOp::Established]);
        let ulpdus = peer.cut(&mut sent(&mut end));
        assert_eq!(ulpdus.len(), 2, "the RTR and the Send");
        assert_eq!(ulpdus[0][..rtr.len()], rtr);
        assert_eq!(ulpdus[1][1], 0x43);
        if ord == RTR_READ {
            let response = peer.tagged((opcode::READ_RESPONSE, true), 0, 0, b"");
            assert_eq!(
                feed(&mut end, &response, 3),
                [],
                "nothing is told of the RTR"
            );
        }
    }
}
