//! What initiators must not send, field by field, and what it costs them.

use wire::iscsi::ScsiCommand;
use zerocopy::IntoBytes;

use super::*;

/// The one answer to `bytes` is a Reject with this reason, of that header; the
/// connection goes on.
pub(super) fn is_rejected(peer: &mut Peer, bytes: &[u8], reason: RejectReason) {
    let answers = peer.send(bytes);
    assert_eq!(opcodes(&answers), [opcode::REJECT], "{reason}");
    assert_eq!(reject_reasons(&answers), [reason as u8]);
    assert_eq!(answers[0].data, bytes[..48]);
    assert_eq!(answers[0].bhs.itt.get(), TAG_NONE);
    was_not_received(peer, &answers[0], bytes);
    goes_on(peer);
}

/// A request that is not immediate and is rejected was never received: its CmdSN is the
/// next one's (RFC 7143, section 7.3).
pub(super) fn was_not_received(peer: &mut Peer, reject: &Pdu, request: &[u8]) {
    const NUMBERED: [u8; 5] = [
        opcode::NOP_OUT,
        opcode::SCSI_COMMAND,
        opcode::TASK_MANAGEMENT_REQUEST,
        opcode::TEXT_REQUEST,
        opcode::LOGOUT_REQUEST,
    ];
    if NUMBERED.contains(&request[0]) {
        peer.cmd_sn = u32::from_be_bytes(request[24..28].try_into().expect("4 bytes"));
    }
    let header: &Reject = reject.bhs.cast();
    assert_eq!(header.exp_cmd_sn.get(), peer.cmd_sn, "ExpCmdSN");
    assert_eq!(peer.window().0, peer.cmd_sn);
}

fn goes_on(peer: &mut Peer) {
    let answers = peer.do_command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
    assert_eq!(opcodes(&answers), [opcode::SCSI_RESPONSE]);
    assert_eq!(response(&answers[0]), GOOD);
    let (exp_cmd_sn, max_cmd_sn) = peer.window();
    assert_eq!(
        max_cmd_sn,
        exp_cmd_sn.wrapping_add(7),
        "the window is whole"
    );
}

fn ends(peer: &mut Peer, bytes: &[u8], error: FatalError) {
    assert!(peer.send(bytes).is_empty());
    assert_eq!(peer.target.fatal, Some(error));
    assert!(peer.target.end.machine.is_finished());
    assert!(peer.target.session().borrow().connections().is_empty());
    assert!(peer.send(&[0; 100]).is_empty(), "what follows is used up");
}

#[test]
fn unknown_opcodes_are_rejected() {
    for opcode in [0x07, 0x0f, 0x1c, 0x1e, 0x20, 0x21, 0x3f] {
        let mut peer = Peer::live(keys());
        let mut header = [0; 48];
        header[0] = opcode;
        header[16..20].copy_from_slice(&[1, 2, 3, 4]);
        for data in [&[][..], b"data"] {
            let bytes = peer.pdus.pdu(&header, data);
            is_rejected(&mut peer, &bytes, RejectReason::CommandNotSupported);
        }
        let refused = peer.target.refused[0];
        assert_eq!((refused.opcode, refused.itt), (opcode, 0x01020304));
    }
}

#[test]
fn login_in_the_full_feature_phase_is_rejected() {
    let mut peer = Peer::live(keys());
    let bytes = peer.pdus.login(CMD_SN, 0, b"");
    is_rejected(&mut peer, &bytes, RejectReason::ProtocolError);
}

#[test]
fn too_much_data_in_one_pdu() {
    let mut peer = Peer::live(keys());
    let bytes = peer.command(WRITE, cdb::write(0, 16), 8192, &[0; 4097]);
    let error = FatalError::Format {
        opcode: opcode::SCSI_COMMAND,
        what: "more data than MaxRecvDataSegmentLength",
    };
    ends(&mut peer, &bytes, error);
    assert!(error.ends_session());
}

#[test]
fn a_header_digest_that_does_not_match() {
    for byte in [0, 3, 20, 47, 48, 51] {
        let mut peer = Peer::live(Negotiated {
            header_digest: true,
            ..keys()
        });
        let mut bytes = peer.command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
        bytes[byte] ^= 4;
        ends(&mut peer, &bytes, FatalError::HeaderDigest);
    }
}

#[test]
fn segments_of_headers_where_none_belong() {
    let mut peer = Peer::live(keys());
    let mut bytes = peer.pdus.nop_out(3, TAG_NONE, CMD_SN, &[]);
    bytes[4] = 1;
    bytes.extend([0; 4]);
    let what = "Additional Header Segments";
    let opcode = opcode::NOP_OUT;
    ends(&mut peer, &bytes, FatalError::Format { opcode, what });
}

#[test]
fn cmd_sns_outside_the_window_are_not_noticed() {
    let mut peer = Peer::live(keys());
    let data = [1; 512];
    for cmd_sn in [
        CMD_SN.wrapping_sub(1),
        CMD_SN.wrapping_add(8),
        CMD_SN ^ 1 << 31,
    ] {
        let ids = (7, cmd_sn);
        let bytes = peer.pdus.command(ids, WRITE, cdb::write(0, 1), 512, &data);
        assert!(peer.send(&bytes).is_empty());
        let bytes = peer.pdus.command(ids, NONE, cdb::TEST_UNIT_READY, 0, &[]);
        assert!(peer.send(&bytes).is_empty());
    }
    goes_on(&mut peer);
    // One that comes twice is served once.
    let ids = (8, peer.cmd_sn.wrapping_sub(1));
    let bytes = peer.pdus.command(ids, NONE, cdb::TEST_UNIT_READY, 0, &[]);
    assert!(peer.send(&bytes).is_empty());
    goes_on(&mut peer);
}

#[test]
fn a_gap_of_cmd_sns_on_the_only_connection_ends_it() {
    let mut peer = Peer::live(keys());
    let cmd_sn = CMD_SN.wrapping_add(1);
    let bytes = peer
        .pdus
        .command((7, cmd_sn), NONE, cdb::TEST_UNIT_READY, 0, &[]);
    let expected = CMD_SN;
    ends(&mut peer, &bytes, FatalError::CmdSnGap { cmd_sn, expected });
}

#[test]
fn task_tags_that_are_none_or_taken() {
    let mut peer = Peer::live(keys());
    let ids = (TAG_NONE, peer.cmd_sn);
    peer.cmd_sn = peer.cmd_sn.wrapping_add(1);
    let bytes = peer.pdus.command(ids, NONE, cdb::TEST_UNIT_READY, 0, &[]);
    is_rejected(&mut peer, &bytes, RejectReason::InvalidPduField);

    let bytes = peer.command(WRITE, cdb::write(0, 8), 4096, &[]);
    let r2t = peer.send(&bytes);
    let first = peer.itt;
    for data in [&[][..], &[5; 512]] {
        peer.itt -= 1;
        let flags = if data.is_empty() { READ } else { WRITE };
        let bytes = peer.command(flags, cdb::read(0, 1), 512, data);
        let answers = peer.send(&bytes);
        assert_eq!(peer.itt, first);
        assert_eq!(
            reject_reasons(&answers),
            [RejectReason::TaskInProgress as u8]
        );
        was_not_received(&mut peer, &answers[0], &bytes);
    }
    let bytes = peer.pdus.function((first, peer.cmd_sn), 5, (TAG_NONE, 0));
    let answers = peer.send(&bytes);
    assert_eq!(
        reject_reasons(&answers),
        [RejectReason::TaskInProgress as u8]
    );
    let bytes = peer.pdus.nop_out(first, TAG_NONE, peer.cmd_sn, b"echo");
    let answers = peer.send(&bytes);
    assert_eq!(
        reject_reasons(&answers),
        [RejectReason::TaskInProgress as u8]
    );
    let data = pattern(3, 4096);
    let answers = peer.obey(r2t, &data, 4096);
    assert_eq!(response(&answers[0]), GOOD);
    assert_eq!(peer.media(0, 8), data);
    goes_on(&mut peer);
}

#[test]
fn task_attributes_that_are_reserved() {
    for attribute in 0..8 {
        let mut peer = Peer::live(keys());
        let bytes = peer.command(flags::FINAL | attribute, cdb::TEST_UNIT_READY, 0, &[]);
        match attribute {
            0..=4 => assert_eq!(response(&peer.send(&bytes)[0]), GOOD),
            _ => is_rejected(&mut peer, &bytes, RejectReason::InvalidPduField),
        }
    }
}

#[test]
fn more_immediate_commands_than_there_are_places() {
    let mut peer = Peer::live(keys());
    let mut bytes = Vec::new();
    for itt in 0..8 + EXTRA_TASKS_MAX as u32 {
        let mut command = ScsiCommand {
            flags: NONE,
            itt: (0x1000 + itt).into(),
            cmd_sn: CMD_SN.into(),
            ..ScsiCommand::new()
        };
        command.first |= 0x40;
        bytes.extend(peer.pdus.pdu(command.as_bytes(), &[]));
    }
    peer.push(&bytes);
    assert_eq!(peer.target.work.len(), 8 + EXTRA_TASKS_MAX);
    let mut one_more = bytes[..48].to_vec();
    one_more[16] = 9;
    peer.push(&one_more);
    let answers = peer.transmit(1);
    let reason = RejectReason::ImmediateCommandReject;
    assert_eq!(reject_reasons(&answers), [reason as u8]);
    // One that is not immediate waits for its place.
    let bytes = peer.command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
    let mut stream = bytes.into();
    peer.target.end.receive(&mut stream, usize::MAX);
    peer.target.take_ops();
    assert_eq!(peer.target.end.machine.recv_plan().stage_max, 0);
    assert_eq!(peer.target.work.len(), 8 + EXTRA_TASKS_MAX);
    assert_eq!(peer.send(&[]).len(), 8 + EXTRA_TASKS_MAX + 1);
    goes_on(&mut peer);
}

#[test]
fn commands_with_data_in_both_directions_and_long_cdbs_are_refused() {
    let ahs = [0, 5, 2, 0, 0, 0, 2, 0, 0, 3, 1, 0, 0xaa, 0xbb, 0, 0];
    let data = [5; 1000];
    for (flags, ahs) in [
        (READ | flags::WRITE, &[][..]),
        (READ | flags::WRITE, &ahs[..8]),
        (NONE, &ahs[8..]),
        (WRITE, &ahs[8..]),
        (WRITE_MORE, &ahs),
    ] {
        let mut peer = Peer::live(keys());
        let is_write = flags & flags::WRITE != 0;
        let (edtl, data) = if is_write {
            (8000, &data[..])
        } else {
            (0, &[][..])
        };
        let header = peer.command(flags, cdb::write(0, 8), edtl, &[]);
        let bytes = peer.pdus.pdu_with(&header, ahs, data);
        let mut answers = peer.send(&bytes);
        if flags & flags::FINAL == 0 {
            assert!(answers.is_empty(), "its data is to come");
            let ids = (peer.itt, UNSOLICITED);
            let rest = peer.sequence(ids, &[6; 8000], (1000, 8000), 4000);
            answers = peer.send(&rest);
        }
        assert_eq!(response(&answers[0]), (2, 5, 0x2000));
        assert!(peer.target.named.is_empty(), "the driver is told nothing");
        goes_on(&mut peer);
    }
}

/// A write that breaks a rule with its own PDU.
fn write_fails(keys: Negotiated, flags: u8, edtl: u32, data: usize, expected: (u8, u8, u16)) {
    let mut peer = Peer::live(keys);
    let answers = peer.do_command(flags, cdb::write(0, 32), edtl, &vec![5; data]);
    assert_eq!(opcodes(&answers), [opcode::SCSI_RESPONSE]);
    assert_eq!(response(&answers[0]), expected);
    assert_eq!(peer.media(0, 32), &pattern(1, 32 * BLOCK)[..]);
    goes_on(&mut peer);
}

#[test]
fn unsolicited_data_that_was_not_agreed_on() {
    let no_immediate = Negotiated {
        immediate_data: false,
        ..keys()
    };
    let no_unsolicited = Negotiated {
        initial_r2t: true,
        ..keys()
    };
    let small_burst = Negotiated {
        first_burst_length: 1024,
        ..keys()
    };
    write_fails(no_immediate, WRITE, 4096, 4, UNEXPECTED);
    write_fails(no_unsolicited, WRITE_MORE, 4096, 0, UNEXPECTED);
    write_fails(keys(), READ, 4096, 4, UNEXPECTED);
    write_fails(keys(), NONE, 0, 4, UNEXPECTED);
    write_fails(keys(), WRITE, 0, 4, INCORRECT);
    write_fails(keys(), WRITE, 1000, 1001, INCORRECT);
    write_fails(small_burst, WRITE, 4096, 1025, INCORRECT);
}

/// A write of 16 KiB whose second Data-Out PDU, in its unsolicited data or in
/// what an R2T asked for, is `change`d.
fn data_out_fails(
    solicited: bool,
    change: impl Fn(&mut Vec<u8>),
    reasons: &[RejectReason],
    expected: (u8, u8, u16),
) {
    let mut peer = Peer::live(keys());
    let data = pattern(2, 32 * BLOCK);
    let flags = if solicited { WRITE } else { WRITE_MORE };
    let mut answers = peer.do_command(flags, cdb::write(0, 32), 16384, &[]);
    let (ids, end) = match answers.pop() {
        Some(r2t) => ((peer.itt, r2t.bhs.cast::<R2t>().ttt.get()), 16384),
        None => ((peer.itt, UNSOLICITED), 8192),
    };
    let first = peer.pdus.data_out(ids, false, 0, 0, &data[..2000]);
    let mut second = peer.pdus.data_out(ids, false, 1, 2000, &data[2000..4000]);
    change(&mut second);
    let is_final = second[1] & flags::FINAL != 0;
    let mut answers = peer.send(&[first, second].concat());
    if !is_final {
        // What is left must come before anything is said.
        assert!(answers.iter().all(|pdu| pdu.bhs.opcode() == opcode::REJECT));
        assert_eq!(peer.in_flight(), 1);
        for (data_sn, at) in (4000..end).step_by(4000).enumerate() {
            let to = (at + 4000).min(end);
            let rest = (data_sn as u32 + 2, at as u32, &data[at..to]);
            let bytes = peer.pdus.data_out(ids, to == end, rest.0, rest.1, rest.2);
            answers.extend(peer.send(&bytes));
        }
    }
    let reasons: Vec<u8> = reasons.iter().map(|reason| *reason as u8).collect();
    assert_eq!(reject_reasons(&answers), reasons);
    let last = answers.pop().expect("a response");
    assert_eq!(response(&last), expected);
    assert_eq!(peer.in_flight(), 0);
    assert_eq!(peer.media(0, 32), &pattern(1, 32 * BLOCK)[..]);
    goes_on(&mut peer);
}

#[test]
fn data_out_that_is_out_of_order() {
    for solicited in [false, true] {
        let at = |offset: usize, value: u32| {
            move |bytes: &mut Vec<u8>| {
                bytes[offset..offset + 4].copy_from_slice(&value.to_be_bytes());
            }
        };
        for data_sn in [0, 2, 27, u32::MAX] {
            data_out_fails(solicited, at(36, data_sn), &[], CRC_ERROR);
        }
        let reason = [RejectReason::InvalidPduField];
        for offset in [0, 1999, 2004, 16384, u32::MAX - 100] {
            data_out_fails(solicited, at(40, offset), &reason, INCORRECT);
        }
        let is_final = |bytes: &mut Vec<u8>| bytes[1] |= flags::FINAL;
        data_out_fails(solicited, is_final, &[], INCORRECT);
    }
}

#[test]
fn data_out_without_a_task_that_expects_it_is_rejected() {
    let mut peer = Peer::live(keys());
    // No such task, no such tag, and a read.
    let pdus = peer.pdus;
    let bytes = pdus.data_out((1, UNSOLICITED), true, 0, 0, &[1; 9]);
    is_rejected(&mut peer, &bytes, RejectReason::InvalidPduField);
    let bytes = pdus.data_out((1, 5), true, 0, 0, &[1; 9]);
    is_rejected(&mut peer, &bytes, RejectReason::InvalidPduField);
    let command = peer.command(READ, cdb::read(0, 1), 512, &[]);
    peer.push(&command);
    let bytes = pdus.data_out((peer.itt, UNSOLICITED), true, 0, 0, &[1; 9]);
    peer.push(&bytes);
    let answers = peer.send(&[]);
    assert_eq!(opcodes(&answers), [opcode::REJECT, opcode::DATA_IN]);
    goes_on(&mut peer);

    // Another's tag, or another logical unit.
    let data = pattern(4, 4096);
    let r2ts = peer.do_command(WRITE, cdb::write(0, 8), 4096, &[]);
    let ttt = r2ts[0].bhs.cast::<R2t>().ttt.get();
    let other = peer.itt + 1;
    let bytes = pdus.data_out((other, ttt), true, 0, 0, &data);
    let answers = peer.send(&bytes);
    assert_eq!(
        reject_reasons(&answers),
        [RejectReason::InvalidPduField as u8]
    );
    let mut bytes = pdus.data_out((peer.itt, ttt), true, 0, 0, &data);
    bytes[9] = 1;
    let answers = peer.send(&bytes);
    assert_eq!(
        reject_reasons(&answers),
        [RejectReason::InvalidPduField as u8]
    );
    let answers = peer.obey(r2ts, &data, 4096);
    assert_eq!(response(&answers[0]), GOOD);
    // Late, when the tag leads nowhere any more.
    let bytes = pdus.data_out((peer.itt, ttt), true, 0, 0, &[9; 4096]);
    assert!(peer.send(&bytes).is_empty());
    assert_eq!(peer.media(0, 8), data);
    goes_on(&mut peer);
}

#[test]
fn more_data_than_an_r2t_asked_for() {
    let mut peer = Peer::live(keys());
    let r2ts = peer.do_command(WRITE, cdb::write(0, 2), 1024, &[]);
    let ttt = r2ts[0].bhs.cast::<R2t>().ttt.get();
    let bytes = peer.pdus.data_out((peer.itt, ttt), true, 0, 0, &[9; 1025]);
    let answers = peer.send(&bytes);
    assert_eq!(response(&answers[0]), INCORRECT);
    assert_eq!(peer.media(0, 2), &pattern(1, 1024)[..]);
    goes_on(&mut peer);
}

#[test]
fn data_out_with_a_bad_digest_costs_the_task() {
    let digests = Negotiated {
        data_digest: true,
        ..keys()
    };
    let mut peer = Peer::live(digests);
    // In the first of two Data-Out PDUs: the second is awaited.
    let r2ts = peer.do_command(WRITE, cdb::write(0, 2), 1024, &[]);
    let ids = (peer.itt, r2ts[0].bhs.cast::<R2t>().ttt.get());
    let mut bytes = peer.sequence(ids, &[7; 1024], (0, 1024), 600);
    bytes[50] ^= 1;
    let answers = peer.send(&bytes[..48 + 604]);
    assert_eq!(opcodes(&answers), [opcode::REJECT]);
    let answers = peer.send(&bytes[48 + 604..]);
    assert_eq!(response(&answers[0]), CRC_ERROR);
    assert_eq!(peer.media(0, 2), &pattern(1, 1024)[..]);
    goes_on(&mut peer);
}

#[test]
fn texts_and_functions_that_make_no_sense() {
    let mut peer = Peer::live(keys());
    let pdus = peer.pdus;
    let cmd_sn = |peer: &mut Peer| {
        peer.cmd_sn = peer.cmd_sn.wrapping_add(1);
        peer.cmd_sn.wrapping_sub(1)
    };
    let ids = (5, cmd_sn(&mut peer));
    let bytes = pdus.text(ids, 3, flags::FINAL, b"");
    is_rejected(&mut peer, &bytes, RejectReason::InvalidPduField);
    let ids = (5, cmd_sn(&mut peer));
    let bytes = pdus.text(ids, TAG_NONE, flags::FINAL | flags::CONTINUE, b"a=b\0");
    is_rejected(&mut peer, &bytes, RejectReason::ProtocolError);
    let ids = (TAG_NONE, cmd_sn(&mut peer));
    let bytes = pdus.text(ids, TAG_NONE, flags::FINAL, b"a=b\0");
    is_rejected(&mut peer, &bytes, RejectReason::InvalidPduField);
    for function in [0, 13, 0x7f] {
        let bytes = pdus.function((5, peer.cmd_sn), function, (TAG_NONE, 0));
        is_rejected(&mut peer, &bytes, RejectReason::InvalidPduField);
    }
    let bytes = pdus.logout((5, peer.cmd_sn), 3, 0);
    is_rejected(&mut peer, &bytes, RejectReason::InvalidPduField);
    // Data where none belongs.
    let header = pdus.logout((5, peer.cmd_sn), 1, 0);
    let bytes = pdus.pdu(&header, b"data");
    is_rejected(&mut peer, &bytes, RejectReason::InvalidPduField);
    // As ordinary requests.
    let ordinary = |mut bytes: Vec<u8>| {
        bytes[0] &= 0x3f;
        bytes
    };
    let bytes = ordinary(pdus.function((5, peer.cmd_sn), 13, (TAG_NONE, 0)));
    is_rejected(&mut peer, &bytes, RejectReason::InvalidPduField);
    let bytes = ordinary(pdus.function((TAG_NONE, peer.cmd_sn), 5, (TAG_NONE, 0)));
    is_rejected(&mut peer, &bytes, RejectReason::ProtocolError);
    let bytes = ordinary(pdus.logout((5, peer.cmd_sn), 3, 0));
    is_rejected(&mut peer, &bytes, RejectReason::InvalidPduField);
    let header = ordinary(pdus.logout((5, peer.cmd_sn), 1, 0));
    let bytes = pdus.pdu(&header, b"data");
    is_rejected(&mut peer, &bytes, RejectReason::InvalidPduField);
    assert!(peer.target.logouts.is_empty());
}

#[test]
fn rejected_request_that_does_not_come_again_ends_the_connection() {
    let mut peer = Peer::live(keys());
    let bytes = peer.command(flags::FINAL | 5, cdb::TEST_UNIT_READY, 0, &[]);
    assert_eq!(opcodes(&peer.send(&bytes)), [opcode::REJECT]);
    // What comes behind it is passed over.
    let behind = peer.command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
    assert!(peer.send(&behind).is_empty());
    let machine = &mut peer.target.end.machine;
    machine.on_deadline(RETRY_TIMEOUT - 1);
    assert!(!machine.is_finished());
    machine.on_deadline(RETRY_TIMEOUT);
    assert!(machine.is_finished());
}

#[test]
fn discovery_sessions_take_no_commands() {
    let session = Rc::new(RefCell::new(Session::new(CMD_SN, 8, true)));
    let mut peer = Peer::of(keys(), session, 0);
    peer.log_in();
    let bytes = peer.command(WRITE, cdb::write(0, 1), 512, &[1; 512]);
    let answers = peer.send(&bytes);
    assert_eq!(
        reject_reasons(&answers),
        [RejectReason::ProtocolError as u8]
    );
    was_not_received(&mut peer, &answers[0], &bytes);
    let bytes = peer.pdus.function((5, peer.cmd_sn), 5, (TAG_NONE, 0));
    let answers = peer.send(&bytes);
    assert_eq!(
        reject_reasons(&answers),
        [RejectReason::ProtocolError as u8]
    );
    let bytes = peer.pdus.text(
        (5, peer.cmd_sn),
        TAG_NONE,
        flags::FINAL,
        b"SendTargets=All\0",
    );
    assert_eq!(opcodes(&peer.send(&bytes)), [opcode::TEXT_RESPONSE]);
}
