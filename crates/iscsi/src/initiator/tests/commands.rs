//! SCSI commands and their data.

use wire::iscsi::{DataOut, TAG_NONE, opcode};
use wire::scsi::status;

use super::*;

/// The digests that may be in use, and how much one receive brings.
fn variants() -> impl Iterator<Item = ((bool, bool), usize)> {
    let digests = [(false, false), (true, false), (false, true), (true, true)];
    let sizes = [1, 7, 48, 53, 1000, usize::MAX];
    digests
        .into_iter()
        .flat_map(move |d| sizes.into_iter().map(move |size| (d, size)))
}

fn with_digests((header, data): (bool, bool)) -> Peer {
    let digest = |is_on| {
        if is_on {
            Digest::Required
        } else {
            Digest::Never
        }
    };
    let answer = |is_on| if is_on { "CRC32C" } else { "None" };
    let settings = InitiatorSettings {
        header_digest: digest(header),
        data_digest: digest(data),
        ..settings()
    };
    let keys = [
        ("HeaderDigest", answer(header)),
        ("DataDigest", answer(data)),
    ];
    Peer::logged_in(settings, &answer_with(&keys), 32)
}

#[test]
fn a_command_goes_out_as_the_standard_has_it() {
    let mut peer = in_full_feature();
    let mut command = Command::new(300, cdb::read16(5, 2));
    command.attribute = TaskAttribute::Ordered;
    peer.submit(&command, ExpectedData::In(1024), vec![0; 1024]);
    command.is_immediate = true;
    peer.submit(&command, ExpectedData::None, vec![]);
    let sent = peer.sent();
    let pdu = sent[0].command();
    assert_eq!(pdu.first, opcode::SCSI_COMMAND);
    assert_eq!(pdu.flags, flags::FINAL | flags::READ | 2);
    assert_eq!(
        pdu.lun,
        [0x41, 0x2c, 0, 0, 0, 0, 0, 0],
        "flat space addressing"
    );
    assert_eq!(pdu.expected_data_transfer_length.get(), 1024);
    assert_eq!((pdu.cmd_sn.get(), pdu.exp_stat_sn.get()), (CMD_SN, 101));
    assert_eq!(pdu.cdb, cdb::read16(5, 2));
    let pdu = sent[1].command();
    assert!(sent[1].bhs.is_immediate());
    assert_eq!(pdu.cmd_sn.get(), CMD_SN.wrapping_add(1), "the next one's");
    assert_eq!(pdu.flags, flags::FINAL | 2);
    peer.plain();
    let third = peer.sent();
    assert_eq!(third[0].command().cmd_sn.get(), CMD_SN.wrapping_add(1));
}

#[test]
fn data_in_lands_in_its_place() {
    for (digests, receive_max) in variants() {
        let mut peer = with_digests(digests);
        peer.receive_max = receive_max;
        // Lengths that need padding, and two commands whose data comes mixed.
        let (a, b) = (peer.read(4097), peer.read(1030));
        let sent = peer.sent();
        let [itt_a, itt_b] = [0, 1].map(|i: usize| sent[i].bhs.itt.get());
        let (data_a, data_b) = (pattern(4097), pattern(1030));
        peer.push(data_in(itt_a, 0, 0).as_bytes(), &data_a[..2000]);
        peer.push(data_in(itt_b, 0, 0).as_bytes(), &data_b[..1001]);
        peer.push(data_in(itt_a, 1, 2000).as_bytes(), &data_a[2000..4096]);
        assert_eq!(peer.ops(), []);
        let mut last = data_in(itt_b, 1, 1001);
        last.flags = flags::FINAL | flags::STATUS;
        assert_eq!(
            peer.answer(last.as_bytes(), &data_b[1001..]),
            [good(b, 1030)]
        );
        peer.push(data_in(itt_a, 2, 4096).as_bytes(), &data_a[4096..]);
        let mut end = response(itt_a);
        end.exp_data_sn = 3.into();
        assert_eq!(peer.answer(end.as_bytes(), b""), [good(a, 4097)]);
        assert_eq!(
            peer.end.memory[usize::from(a)],
            data_a,
            "{digests:?} {receive_max}"
        );
        assert_eq!(
            peer.end.memory[usize::from(b)],
            data_b,
            "{digests:?} {receive_max}"
        );
        assert_eq!(peer.end.machine.in_flight(), 0);
    }
}

#[test]
fn large_reads_are_never_staged() {
    let mut peer = with_digests((true, true));
    let tag = peer.read(200_000);
    let itt = peer.sent()[0].bhs.itt.get();
    let data = pattern(200_000);
    peer.receive_max = usize::MAX;
    peer.push(data_in(itt, 0, 0).as_bytes(), &data[..131_072]);
    let mut last = data_in(itt, 1, 131_072);
    last.flags = flags::FINAL | flags::STATUS;
    assert_eq!(
        peer.answer(last.as_bytes(), &data[131_072..]),
        [good(tag, 200_000)]
    );
    assert_eq!(peer.end.direct_bytes, 200_000);
    assert_eq!(peer.end.placed_bytes, 0);
}

#[test]
fn residuals_and_sense_data_are_told() {
    for (digests, receive_max) in variants() {
        let mut peer = with_digests(digests);
        peer.receive_max = receive_max;
        let tag = peer.read(4096);
        let itt = peer.sent()[0].bhs.itt.get();
        let mut last = data_in(itt, 0, 0);
        last.flags = flags::FINAL | flags::STATUS | flags::UNDERFLOW;
        last.residual_count = 4060.into();
        let ops = peer.answer(last.as_bytes(), &pattern(36));
        let completion = Completion {
            outcome: CommandOutcome::GOOD,
            data_len: 36,
            residual: Residual::Underflow(4060),
        };
        assert_eq!(ops, [InitiatorOp::Completed { tag, completion }]);
        let tag = peer.read(512);
        let itt = peer.sent()[0].bhs.itt.get();
        let mut failed = response(itt);
        failed.status = status::CHECK_CONDITION;
        failed.flags |= flags::OVERFLOW;
        failed.residual_count = 7.into();
        let sense: Vec<u8> = (0..19).collect();
        let mut segment = vec![0, 18];
        segment.extend(&sense);
        let ops = peer.answer(failed.as_bytes(), &segment);
        let completion = Completion {
            outcome: CommandOutcome::Status(status::CHECK_CONDITION),
            data_len: 0,
            residual: Residual::Overflow(7),
        };
        assert_eq!(ops, [InitiatorOp::Completed { tag, completion }]);
        assert_eq!(
            peer.end.machine.sense(),
            &sense[..18],
            "{digests:?} {receive_max}"
        );
        let tag = peer.plain();
        let itt = peer.sent()[0].bhs.itt.get();
        assert_eq!(peer.answer(response(itt).as_bytes(), b""), [good(tag, 0)]);
        assert_eq!(peer.end.machine.sense(), b"", "of another command");
    }
}

#[test]
fn good_without_all_data_is_not_good() {
    for (exp_data_sn, flags_, residual) in
        [(0, 0, 0), (1, 0, 0), (2, 0, 0), (1, flags::UNDERFLOW, 9)]
    {
        let mut peer = in_full_feature();
        let tag = peer.read(1024);
        let itt = peer.sent()[0].bhs.itt.get();
        peer.push(data_in(itt, 0, 0).as_bytes(), &pattern(1000));
        let mut end = response(itt);
        end.exp_data_sn = exp_data_sn.into();
        end.flags |= flags_;
        end.residual_count = residual.into();
        let ops = peer.answer(end.as_bytes(), b"");
        let [
            InitiatorOp::Completed {
                tag: ended,
                completion,
            },
        ] = ops[..]
        else {
            panic!("{ops:?}");
        };
        assert_eq!((ended, completion.outcome), (tag, CommandOutcome::Damaged));
    }
}

/// What one write sends: immediate bytes, then Data-Out PDUs as TTT, DataSN,
/// offset, length and F.
type Shape = (u32, Vec<(u32, u32, u32, u32, bool)>);

fn shape(peer: &mut Peer, tag: Tag) -> Shape {
    let sent = peer.sent();
    let itt = sent[0].bhs.itt;
    let command = *sent[0].command();
    let immediate = sent[0].data.len() as u32;
    let data = pattern(command.expected_data_transfer_length.get());
    assert_eq!(sent[0].data, data[..immediate as usize]);
    let outs = sent[1..].iter().map(|pdu| {
        assert_eq!((pdu.bhs.opcode(), pdu.bhs.itt), (opcode::DATA_OUT, itt));
        let out: &DataOut = pdu.bhs.cast();
        let (at, len) = (out.buffer_offset.get(), pdu.data.len() as u32);
        assert_eq!(pdu.data, data[at as usize..(at + len) as usize]);
        assert_eq!(out.ttt.get(), TAG_NONE);
        (
            TAG_NONE,
            out.data_sn.get(),
            at,
            len,
            out.flags & flags::FINAL != 0,
        )
    });
    let outs: Vec<_> = outs.collect();
    assert_eq!(command.flags & flags::WRITE, flags::WRITE);
    let is_all = outs.is_empty();
    assert_eq!(
        command.flags & flags::FINAL != 0,
        is_all,
        "F if nothing unsolicited follows"
    );
    assert_eq!(usize::from(tag), itt.get() as usize & 0xffff);
    (immediate, outs)
}

#[test]
fn data_goes_unasked_as_far_as_was_agreed() {
    const U: u32 = TAG_NONE;
    for (immediate, initial_r2t, first_burst, segment, len, expected) in [
        // All of it fits into the command.
        ("Yes", "Yes", 16_384, 8192, 4097, (4097, vec![])),
        ("Yes", "No", 16_384, 8192, 8192, (8192, vec![])),
        // The segment is the bound, then FirstBurstLength.
        ("Yes", "Yes", 16_384, 8192, 60_000, (8192, vec![])),
        (
            "Yes",
            "No",
            16_384,
            8192,
            60_000,
            (8192, vec![(U, 0, 8192, 8192, true)]),
        ),
        (
            "Yes",
            "No",
            16_384,
            4096,
            9000,
            (
                4096,
                vec![(U, 0, 4096, 4096, false), (U, 1, 8192, 808, true)],
            ),
        ),
        ("Yes", "No", 1001, 8192, 9000, (1001, vec![])),
        // Nothing rides in the command.
        ("No", "Yes", 16_384, 8192, 9000, (0, vec![])),
        (
            "No",
            "No",
            16_384,
            8192,
            20_000,
            (0, vec![(U, 0, 0, 8192, false), (U, 1, 8192, 8192, true)]),
        ),
        ("No", "No", 16_384, 8192, 0, (0, vec![])),
    ] {
        let answer = answer_with(&[
            ("ImmediateData", immediate),
            ("InitialR2T", initial_r2t),
            ("FirstBurstLength", &first_burst.to_string()),
            ("MaxRecvDataSegmentLength", &segment.to_string()),
        ]);
        let mut peer = Peer::logged_in(settings(), &answer, 32);
        if len == 0 {
            let tag = peer.write(0);
            let sent = peer.sent();
            assert_eq!(sent[0].command().flags, flags::FINAL | 1, "no data, no W");
            assert_eq!(sent.len(), 1);
            assert_eq!(usize::from(tag), 0);
            continue;
        }
        let tag = peer.write(len);
        let found: Shape = shape(&mut peer, tag);
        assert_eq!(
            found, expected,
            "{immediate} {initial_r2t} {first_burst} {segment} {len}"
        );
    }
}

#[test]
fn r2ts_are_served_in_order_several_at_a_time() {
    for ((digests, _), exp_data_sn) in variants().zip([2, 0].into_iter().cycle()) {
        let mut peer = with_digests(digests);
        let tag = peer.write(60_000);
        let sent = peer.sent();
        let itt = sent[0].bhs.itt.get();
        assert_eq!(sent.len(), 2, "immediate and unsolicited");
        peer.push(r2t(itt, 0, 16_384, 20_000).as_bytes(), b"");
        peer.push(r2t(itt, 1, 36_384, 23_616).as_bytes(), b"");
        assert_eq!(peer.ops(), []);
        let data = pattern(60_000);
        let mut next = 16_384;
        let sent = peer.sent();
        let numbers: Vec<_> = sent
            .iter()
            .map(|pdu| {
                let out: &DataOut = pdu.bhs.cast();
                assert_eq!(out.lun, lun_field(3), "with a Target Transfer Tag");
                assert_eq!(out.buffer_offset.get(), next);
                let len = pdu.data.len();
                assert_eq!(pdu.data, data[next as usize..next as usize + len]);
                next += len as u32;
                let is_final = out.flags & flags::FINAL != 0;
                (out.ttt.get(), out.data_sn.get(), len, is_final)
            })
            .collect();
        assert_eq!(
            numbers,
            [
                (0x1000, 0, 8192, false),
                (0x1000, 1, 8192, false),
                (0x1000, 2, 3616, true),
                (0x1001, 0, 8192, false),
                (0x1001, 1, 8192, false),
                (0x1001, 2, 7232, true),
            ]
        );
        let mut end = response(itt);
        // Targets that do not count leave 0.
        end.exp_data_sn = exp_data_sn.into();
        assert_eq!(peer.answer(end.as_bytes(), b""), [good(tag, 0)]);
    }
}

#[test]
fn good_before_all_data_was_asked_for_is_not_good() {
    for exp_data_sn in [0, 1] {
        let mut peer = in_full_feature();
        let tag = peer.write(60_000);
        let itt = peer.sent()[0].bhs.itt.get();
        peer.push(r2t(itt, 0, 16_384, 20_000).as_bytes(), b"");
        assert_eq!(peer.ops(), []);
        let mut end = response(itt);
        end.exp_data_sn = exp_data_sn.into();
        assert_eq!(
            peer.answer(end.as_bytes(), b""),
            [ended(tag, CommandOutcome::Damaged)]
        );
    }
}

#[test]
fn data_of_a_command_that_has_ended_stays_here() {
    let mut peer = in_full_feature();
    let (a, b) = (peer.write(60_000), peer.write(60_000));
    let sent = peer.sent();
    let itts: Vec<u32> = [0, 2].map(|i: usize| sent[i].bhs.itt.get()).to_vec();
    for itt in &itts {
        peer.push(r2t(*itt, 0, 16_384, 43_616).as_bytes(), b"");
    }
    assert_eq!(peer.ops(), []);
    let mut refused = response(itts[0]);
    refused.status = status::CHECK_CONDITION;
    refused.exp_data_sn = 1.into();
    let ops = peer.answer(refused.as_bytes(), b"");
    assert_eq!(
        ops,
        [ended(a, CommandOutcome::Status(status::CHECK_CONDITION))]
    );
    let sent = peer.sent();
    assert!(!sent.is_empty() && sent.iter().all(|pdu| pdu.bhs.itt.get() == itts[1]));
    assert_eq!(usize::from(b), itts[1] as usize & 0xffff);
}

#[test]
fn commands_wait_for_the_window() {
    let mut peer = Peer::logged_in(settings(), ANSWER, 2);
    let tags: Vec<Tag> = (0..4).map(|_| peer.plain()).collect();
    let sent = peer.sent();
    assert_eq!(sent.len(), 2);
    assert!(!peer.end.machine.has_transmit());
    assert!(peer.end.machine.withdraw(tags[3]));
    assert!(!peer.end.machine.withdraw(tags[1]), "it is on its way");
    let mut end = response(sent[0].bhs.itt.get());
    end.exp_cmd_sn = CMD_SN.wrapping_add(2).into();
    end.max_cmd_sn = CMD_SN.wrapping_add(3).into();
    assert_eq!(peer.answer(end.as_bytes(), b""), [good(tags[0], 0)]);
    let sent = peer.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].command().cmd_sn.get(), CMD_SN.wrapping_add(2));
    assert_eq!(sent[0].command().exp_stat_sn.get(), peer.stat_sn);
    assert_eq!(peer.end.machine.in_flight(), 2);
}

#[test]
fn the_queue_depth_is_the_bound() {
    let shallow = InitiatorSettings {
        queue_depth: 2,
        ..settings()
    };
    let mut peer = Peer::logged_in(shallow, ANSWER, 32);
    let tag = peer.plain();
    peer.plain();
    let command = Command::new(3, cdb::plain(0));
    assert_eq!(peer.end.machine.submit(&command, ExpectedData::None), None);
    assert!(
        peer.end.machine.ping().is_some(),
        "other requests have room of their own"
    );
    let itt = peer.sent()[0].bhs.itt.get();
    assert_eq!(peer.answer(response(itt).as_bytes(), b""), [good(tag, 0)]);
    assert_eq!(peer.end.machine.room(), 1);
    assert_eq!(peer.plain(), tag, "its tag is free again");
}

#[test]
fn a_data_digest_error_costs_only_its_command() {
    let mut peer = with_digests((false, true));
    let (a, b) = (peer.read(999), peer.read(512));
    let sent = peer.sent();
    let mut last = data_in(sent[0].bhs.itt.get(), 0, 0);
    last.flags = flags::FINAL | flags::STATUS;
    last.stat_sn = peer.stat_sn.into();
    peer.stat_sn += 1;
    peer.push(last.as_bytes(), &pattern(999));
    peer.out[60] ^= 1;
    let ops = peer.ops();
    let [InitiatorOp::Completed { tag, completion }] = ops[..] else {
        panic!("{ops:?}");
    };
    assert_eq!((tag, completion.outcome), (a, CommandOutcome::Damaged));
    let mut last = data_in(sent[1].bhs.itt.get(), 0, 0);
    last.flags = flags::FINAL | flags::STATUS;
    assert_eq!(peer.answer(last.as_bytes(), &pattern(512)), [good(b, 512)]);
}

#[test]
fn a_failure_of_the_target_is_no_status() {
    let mut peer = in_full_feature();
    let tag = peer.plain();
    let itt = peer.sent()[0].bhs.itt.get();
    let mut failed = response(itt);
    failed.response = 1;
    let ops = peer.answer(failed.as_bytes(), b"");
    assert_eq!(ops, [ended(tag, CommandOutcome::TargetFailure(1))]);
}

#[test]
fn window_of_a_connection_opens_by_what_another_of_its_session_receives() {
    let mut first = Peer::logged_in(settings(), ANSWER, 1);
    let mut second = Peer::of(settings(), first.end.machine.session().clone(), 1);
    let request = second.sent().pop().expect("a request");
    assert_eq!(second.answer_login(&request, "", 1), [InitiatorOp::Ready]);
    let tag = first.plain();
    let itt = first.sent()[0].bhs.itt.get();
    second.plain();
    assert_eq!(second.sent().len(), 0, "the window is closed");
    let mut end = response(itt);
    end.exp_cmd_sn = CMD_SN.wrapping_add(1).into();
    end.max_cmd_sn = CMD_SN.wrapping_add(1).into();
    assert_eq!(first.answer(end.as_bytes(), b""), [good(tag, 0)]);
    second.end.machine.release_waiting();
    let sent = second.sent();
    assert_eq!(sent[0].command().cmd_sn.get(), CMD_SN.wrapping_add(1));
}
