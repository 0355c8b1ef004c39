//! SCSI commands and their data.

use super::*;

#[test]
fn a_read_is_cut_as_the_initiator_takes_it_and_its_last_pdu_says_the_status() {
    let mut peer = Peer::live(keys());
    // 20 KiB: 8 PDUs of 2048 make a burst of 16384, 2 are left.
    let answers = peer.do_command(READ, cdb::read(8, 40), 20480, &[]);
    assert_eq!(opcodes(&answers), [opcode::DATA_IN; 10]);
    assert_eq!(data_in(&answers), peer.media(8, 40));
    for (at, pdu) in answers.iter().enumerate() {
        let header: &DataIn = pdu.bhs.cast();
        let expected = match at {
            7 => flags::FINAL,
            9 => flags::FINAL | flags::STATUS,
            _ => 0,
        };
        assert_eq!(header.flags, expected, "PDU {at}");
        assert_eq!(header.ttt.get(), TAG_NONE);
    }
    let last: &DataIn = answers[9].bhs.cast();
    assert_eq!((last.stat_sn.get(), last.status), (STAT_SN + 1, 0));
    assert_eq!(last.exp_cmd_sn.get(), CMD_SN.wrapping_add(1));
    assert_eq!(last.max_cmd_sn.get(), CMD_SN.wrapping_add(8));
    assert_eq!((peer.in_flight(), peer.target.end.released.len()), (0, 1));
}

#[test]
fn read_command_is_answered_by_data_in_with_status() {
    let mut peer = Peer::live(keys());
    let bytes = peer.command(READ, cdb::inquiry(5), 5, &[]);
    peer.push(&bytes);
    peer.target.execute(0);
    peer.target.transmit(&mut peer.out, 1);
    let mut expected = vec![0; 56];
    expected[0] = 0x25;
    expected[1] = 0x81;
    expected[7] = 5;
    expected[16..20].copy_from_slice(&[0, 0, 1, 1]);
    expected[20..24].copy_from_slice(&[0xff; 4]);
    expected[27] = 1;
    expected[28..32].copy_from_slice(&[0xff; 4]);
    expected[32..36].copy_from_slice(&[0, 0, 0, 6]);
    expected[48..53].copy_from_slice(&[0, 1, 2, 3, 4]);
    assert_eq!(Vec::from(std::mem::take(&mut peer.out)), expected);
}

#[test]
fn residuals_tell_what_was_expected_too_much_or_too_little() {
    let mut peer = Peer::live(keys());
    let under = flags::UNDERFLOW;
    let over = flags::OVERFLOW;
    // EDTL, bytes that come, flags and count.
    for (edtl, len, flag, count) in [(61, 61, 0, 0), (80, 61, under, 19), (30, 30, over, 31)] {
        let answers = peer.do_command(READ, cdb::inquiry(255), edtl, &[]);
        assert_eq!(data_in(&answers).len(), len);
        let header: &DataIn = answers[0].bhs.cast();
        assert_eq!(header.flags, flags::FINAL | flags::STATUS | flag);
        assert_eq!(header.residual_count.get(), count);
    }
    // No data at all: neither R nor W, or R and EDTL 0.
    for flags in [NONE, READ] {
        let answers = peer.do_command(flags, cdb::inquiry(255), 0, &[]);
        assert_eq!(residual(&answers[0]), (over, 61));
    }
    // Writes of 2 blocks.
    let data = pattern(2, 2048);
    for (edtl, flag, count) in [(1024, 0, 0), (2048, under, 1024), (512, over, 512)] {
        let bytes = &data[..edtl as usize];
        let answers = peer.do_command(WRITE, cdb::write(4, 2), edtl, bytes);
        assert_eq!(response(&answers[0]), GOOD);
        assert_eq!(residual(&answers[0]), (flag, count));
        let come = edtl.min(1024) as usize;
        assert_eq!(peer.media(4, 2)[..come], data[..come]);
    }
    let answers = peer.do_command(WRITE, cdb::write(4, 2), 0, &[]);
    assert_eq!(residual(&answers[0]), (over, 1024));
    // A failed one transferred nothing.
    let answers = peer.do_command(READ, [0x99; 16], 100, &[]);
    assert_eq!(response(&answers[0]), (2, 5, 0x2000));
    assert_eq!(residual(&answers[0]), (under, 100));
}

#[test]
fn immediate_data_executes_where_it_was_staged() {
    let mut peer = Peer::live(keys());
    let data = pattern(2, 4096);
    let answers = peer.do_command(WRITE, cdb::write(16, 8), 4096, &data);
    assert_eq!(opcodes(&answers), [opcode::SCSI_RESPONSE]);
    assert_eq!(response(&answers[0]), GOOD);
    assert_eq!(peer.media(16, 8), data);
    assert_eq!(peer.target.staged, 1);
    assert_eq!((peer.in_flight(), peer.target.end.released.len()), (0, 1));
}

#[test]
fn immediate_unsolicited_and_solicited_data_make_one_write() {
    let mut peer = Peer::live(keys());
    let data = pattern(3, 64 * BLOCK);
    let command = peer.command(WRITE_MORE, cdb::write(0, 64), 32768, &data[..1000]);
    let unsolicited = peer.sequence((peer.itt, UNSOLICITED), &data, (1000, 8192), 3000);
    let answers = peer.send(&[command, unsolicited].concat());
    // 24 KiB are left: two R2Ts of at most 16 KiB.
    let ranges: Vec<_> = answers.iter().map(r2t).collect();
    assert_eq!(ranges, [(0, 8192, 16384), (1, 24576, 8192)]);
    let answers = peer.obey(answers, &data, 4096);
    assert_eq!(response(&answers[0]), GOOD);
    assert_eq!(answers[0].bhs.cast::<ScsiResponse>().exp_data_sn.get(), 2);
    assert_eq!(peer.media(0, 64), data);
    assert_eq!(peer.target.staged, 0);
}

/// R2TSN, first byte and bytes.
fn r2t(pdu: &Pdu) -> (u32, u32, u32) {
    assert_eq!(pdu.bhs.opcode(), opcode::R2T);
    let header: &R2t = pdu.bhs.cast();
    let len = header.desired_data_transfer_length.get();
    (header.r2t_sn.get(), header.buffer_offset.get(), len)
}

#[test]
fn no_more_r2ts_are_outstanding_than_the_initiator_takes() {
    let mut peer = Peer::live(Negotiated {
        max_burst_length: 4096,
        ..keys()
    });
    let data = pattern(4, 32 * BLOCK);
    let answers = peer.do_command(WRITE, cdb::write(0, 32), 16384, &[]);
    let ranges: Vec<_> = answers.iter().map(r2t).collect();
    assert_eq!(ranges, [(0, 0, 4096), (1, 4096, 4096)]);
    // They are answered in any order; each that ends makes room for one.
    let second = peer.data_for(answers[1].bhs.cast(), &data, 1024);
    let more = peer.send(&second);
    assert_eq!(more.iter().map(r2t).collect::<Vec<_>>(), [(2, 8192, 4096)]);
    let rest: Vec<Pdu> = answers.into_iter().take(1).chain(more).collect();
    let answers = peer.obey(rest, &data, 1024);
    assert_eq!(response(&answers[0]), GOOD);
    assert_eq!(peer.media(0, 32), data);
}

#[test]
fn data_that_is_not_wanted_is_neither_asked_for_nor_kept() {
    for data_digest in [false, true] {
        let mut peer = Peer::live(Negotiated {
            data_digest,
            ..keys()
        });
        // The command has 3 blocks, the initiator says 20 KiB and 3 bytes.
        let data = pattern(5, 20483);
        let command = peer.command(WRITE_MORE, cdb::write(7, 3), 20483, &data[..1001]);
        let unsolicited = peer.sequence((peer.itt, UNSOLICITED), &data, (1001, 8192), 1003);
        let answers = peer.send(&[command, unsolicited].concat());
        assert_eq!(response(&answers[0]), GOOD);
        assert_eq!(residual(&answers[0]), (flags::UNDERFLOW, 20483 - 1536));
        assert_eq!(peer.media(7, 3), &data[..1536]);
    }
}

#[test]
fn padded_data_has_digests_over_its_padding() {
    let mut peer = Peer::live(Negotiated {
        data_digest: true,
        header_digest: true,
        max_burst_length: 1538,
        ..keys()
    });
    let data = pattern(6, 4 * BLOCK);
    let bytes = peer.command(WRITE, cdb::write(9, 4), 2048, &data[..5]);
    let answers = peer.send(&bytes);
    let answers = peer.obey(answers, &data, 333);
    assert_eq!(response(&answers[0]), GOOD);
    assert_eq!(peer.media(9, 4), data);
}

#[test]
fn data_waits_for_memory_and_nothing_else_does() {
    let mut peer = Peer::live(keys());
    let data = pattern(7, 4096);
    // No data with it: the one behind it goes on.
    let mut bytes = peer.command(WRITE, cdb::write(0, 8), 4096, &[]);
    bytes.extend(peer.command(NONE, cdb::TEST_UNIT_READY, 0, &[]));
    peer.push(&bytes);
    assert_eq!((peer.target.starved.len(), peer.target.work.len()), (1, 1));
    // Data with it: it stands before everything behind it.
    let mut stream: VecDeque<u8> = peer.command(WRITE, cdb::write(8, 8), 4096, &data).into();
    stream.extend(peer.command(NONE, cdb::TEST_UNIT_READY, 0, &[]));
    peer.target.end.receive(&mut stream, usize::MAX);
    peer.target.take_ops();
    let tag = peer.target.starved[1].0;
    assert!(peer.target.end.machine.is_blocked_on(tag));
    assert_eq!(peer.target.end.machine.recv_plan().stage_max, 0);
    assert!(!peer.target.end.machine.has_step());
    assert_eq!(peer.target.work.len(), 1);
    peer.target.feed(1);
    assert_eq!(peer.target.work.len(), 3);
    let answers = peer.send(&[]);
    let answers = peer.obey(answers, &data, 4096);
    assert_eq!(answers.len(), 4);
    assert!(answers.iter().all(|pdu| response(pdu) == GOOD));
    assert_eq!(peer.media(0, 16), [&data[..], &data].concat());
}

#[test]
fn large_data_goes_straight_to_its_memory() {
    let mut peer = Peer::live(Negotiated {
        max_recv_data_segment_length: 256 * 1024,
        max_burst_length: 256 * 1024,
        ..keys()
    });
    let data = pattern(8, 256 * BLOCK);
    let answers = peer.do_command(WRITE, cdb::write(0, 256), 128 * 1024, &[]);
    let out = peer.data_for(answers[0].bhs.cast(), &data, 64 * 1024);
    let mut stream: VecDeque<u8> = out.into();
    assert!(peer.target.end.machine.recv_plan().stage_max < 200);
    while peer.target.end.receive(&mut stream, usize::MAX) > 0 {
        peer.target.take_ops();
    }
    let target = &peer.target.end;
    assert_eq!(target.direct_bytes + target.placed_bytes, 128 * 1024);
    assert!(target.placed_bytes < 500, "{}", target.placed_bytes);
    let answers = peer.send(&[]);
    assert_eq!(response(&answers[0]), GOOD);
    assert_eq!(peer.media(0, 256), data);
}

#[test]
fn a_task_can_be_refused_while_its_data_is_coming() {
    let mut peer = Peer::live(keys());
    let data = pattern(9, 16384);
    // Before there is memory: what comes with it is passed over.
    let bytes = peer.command(WRITE_MORE, cdb::write(0, 32), 16384, &data[..100]);
    peer.target
        .end
        .receive(&mut bytes.into_iter().collect(), usize::MAX);
    peer.target.take_ops();
    peer.target.starve(0);
    assert!(!peer.target.end.machine.has_transmit(), "data is to come");
    let ids = (peer.itt, UNSOLICITED);
    let rest = peer.sequence(ids, &data, (100, 8192), 4096);
    let answers = peer.send(&rest);
    assert_eq!(response(&answers[0]), (2, 5, 0x2000));
    assert_eq!(opcodes(&answers), [opcode::SCSI_RESPONSE]);
    // While R2Ts are outstanding.
    let bytes = peer.command(WRITE, cdb::write(0, 32), 16384, &[]);
    peer.push(&bytes);
    let tag = peer.target.starved[0].0;
    peer.target.feed(0);
    let r2ts = peer.transmit(9);
    let failed = Done::status(8);
    peer.target.end.machine.complete(tag, failed);
    assert!(!peer.target.end.machine.has_transmit());
    let answers = peer.obey(r2ts, &data, 4096);
    assert_eq!(response(&answers[0]), (8, 0, 0));
    assert_eq!(
        (peer.in_flight(), peer.target.media.len()),
        (0, BLOCKS * BLOCK)
    );
    assert_eq!(peer.media(0, 32), &pattern(1, 16384)[..]);
}

#[test]
fn every_byte_can_be_the_last_of_a_receive() {
    for (header_digest, data_digest) in [(false, false), (true, false), (false, true), (true, true)]
    {
        let digests = Negotiated {
            header_digest,
            data_digest,
            ..keys()
        };
        let data = pattern(10, 4 * BLOCK);
        let mut whole = Peer::live(digests);
        let mut bytes = whole.command(WRITE_MORE, cdb::write(0, 3), 1537, &data[..701]);
        let ids = (whole.itt, UNSOLICITED);
        bytes.extend(whole.sequence(ids, &data, (701, 1537), 400));
        bytes.extend(whole.command(READ, cdb::inquiry(61), 61, &[]));
        bytes.extend(whole.pdus.nop_out(5, TAG_NONE, whole.cmd_sn, b"hello"));
        let expected = whole.send(&bytes);
        assert_eq!(expected.len(), 3);
        for split in 0..=bytes.len() {
            let mut peer = Peer::live(digests);
            let mut answers = peer.send(&bytes[..split]);
            answers.extend(peer.send(&bytes[split..]));
            // Answers may leave sooner, and then say less of what came since.
            assert_eq!(opcodes(&answers).len(), 3, "split at {split}");
            assert_eq!(peer.media(0, 3), &data[..1536]);
            assert_eq!(data_in(&answers).len(), 61);
            let echo = answers
                .iter()
                .find(|pdu| pdu.bhs.opcode() == opcode::NOP_IN);
            assert_eq!(echo.expect("an echo").data, b"hello");
        }
        let mut peer = Peer::live(digests);
        let answers: Vec<Pdu> = bytes.iter().flat_map(|byte| peer.send(&[*byte])).collect();
        assert_eq!(answers.len(), 3);
        assert_eq!(peer.media(0, 3), &data[..1536]);
    }
}

#[test]
fn the_same_steps_come_of_every_split() {
    let mut peer = Peer::live(keys());
    let data = pattern(11, 2 * BLOCK);
    let mut bytes = peer.command(WRITE, cdb::write(0, 2), 1024, &data);
    bytes.extend(peer.command(READ, cdb::read(0, 2), 1024, &[]));
    for split in 0..=bytes.len() {
        let mut peer = Peer::live(keys());
        peer.push_unfed(&bytes[..split]);
        peer.push_unfed(&bytes[split..]);
        let cdbs: Vec<u8> = peer
            .target
            .work
            .iter()
            .map(|(_, task)| task.cdb[0])
            .collect();
        assert_eq!(cdbs, [0x2a, 0x28], "split at {split}");
        peer.target.execute(0);
        assert_eq!(peer.media(0, 2), data);
    }
}

impl Peer {
    /// Sends, and gives memory where it is wanted.
    fn push_unfed(&mut self, bytes: &[u8]) {
        let mut stream: VecDeque<u8> = bytes.iter().copied().collect();
        loop {
            let taken = self.target.end.receive(&mut stream, usize::MAX);
            self.target.take_ops();
            if self.target.starved.is_empty() && taken == 0 {
                break;
            }
            while !self.target.starved.is_empty() {
                self.target.feed(0);
            }
        }
        assert!(stream.is_empty());
    }
}

#[test]
fn answers_go_one_pdu_at_a_time_where_there_is_no_room_for_more() {
    let mut peer = Peer::live(keys());
    let bytes = peer.command(READ, cdb::read(0, 16), 9000, &[]);
    peer.push(&bytes);
    peer.target.execute(0);
    let mut answers = Vec::new();
    for _ in 0..4 {
        assert_eq!(peer.in_flight(), 1);
        answers.extend(peer.transmit(1));
    }
    assert_eq!((peer.in_flight(), answers.len()), (0, 4));
    assert_eq!(data_in(&answers), peer.media(0, 16));
}

/// Of a refused write as much is received at once as of one that is taken: it costs
/// no more than that.
#[test]
fn data_of_a_refused_write_is_received_in_large_pieces() {
    for data_digest in [false, true] {
        let mut peer = Peer::live(Negotiated {
            data_digest,
            max_recv_data_segment_length: 256 << 10,
            first_burst_length: 256 << 10,
            ..keys()
        });
        let data = pattern(4, 200 << 10);
        // It reaches past the end of the medium.
        let cdb = cdb::write(u32::MAX, 400);
        let mut stream: VecDeque<u8> = VecDeque::new();
        for _ in 0..8 {
            stream.extend(peer.command(WRITE, cdb, data.len() as u32, &data));
        }
        let mut receives = 0;
        while peer.target.end.receive(&mut stream, usize::MAX) > 0 {
            receives += 1;
            peer.target.take_ops();
            while let Some((tag, _)) = peer.target.starved.pop() {
                peer.target.end.machine.prepared(tag, 0);
                peer.target.take_ops();
            }
        }
        assert!(stream.is_empty());
        assert_eq!(peer.target.work.len(), 8, "all of them were delivered");
        assert!(receives <= 2 * 8 + 2, "{receives} receives");
    }
}
