//! Task management, text, NOP, logout, what the target says by itself.

use wire::iscsi::{
    AsyncMessage, LogoutReason, LogoutRequest, LogoutResponse, NopIn, NopOut, Reject, RejectReason,
    TAG_NONE, TaskFunction, TaskManagementRequest, TaskManagementResponse, TextRequest,
    TextResponse, opcode,
};

use super::*;

fn task_response(itt: u32, response: u8) -> TaskManagementResponse {
    let mut pdu = TaskManagementResponse::new();
    pdu.flags = flags::FINAL;
    pdu.response = response;
    pdu.itt = itt.into();
    pdu.exp_cmd_sn = CMD_SN.into();
    pdu.max_cmd_sn = CMD_SN.wrapping_add(31).into();
    pdu
}

#[test]
fn an_aborted_command_ends_before_its_function() {
    let mut peer = in_full_feature();
    let (kept, gone) = (peer.plain(), peer.write(60_000));
    let sent = peer.sent();
    let itt = sent[1].bhs.itt.get();
    peer.push(r2t(itt, 0, 16_384, 43_616).as_bytes(), b"");
    assert_eq!(peer.ops(), []);
    let tmf = peer
        .end
        .machine
        .task_management(TaskFunction::AbortTask, lun_field(3), Some(gone));
    let tmf = tmf.expect("room");
    let sent = peer.sent();
    let request = sent.last().expect("the function goes last");
    assert!(request.bhs.is_immediate());
    let pdu: &TaskManagementRequest = request.bhs.cast();
    assert_eq!(pdu.flags, flags::FINAL | 1);
    assert_eq!(
        (pdu.lun, pdu.referenced_task_tag.get()),
        (lun_field(3), itt)
    );
    assert_eq!(pdu.ref_cmd_sn.get(), CMD_SN.wrapping_add(1));
    assert_eq!(pdu.cmd_sn.get(), CMD_SN.wrapping_add(2));
    let ops = peer.answer(task_response(request.bhs.itt.get(), 0).as_bytes(), b"");
    let managed = InitiatorOp::TaskManaged {
        tag: tmf,
        response: 0,
    };
    assert_eq!(ops, [ended(gone, CommandOutcome::Aborted), managed]);
    assert_eq!(peer.end.machine.in_flight(), 1);
    let again = peer.plain();
    assert_ne!(again, kept, "the other command lives");
}

#[test]
fn an_abort_that_comes_too_late_ends_no_other_command() {
    let mut peer = in_full_feature();
    let tag = peer.plain();
    let abort = peer
        .end
        .machine
        .task_management(TaskFunction::AbortTask, lun_field(3), Some(tag))
        .expect("room");
    let sent = peer.sent();
    let itt = sent[0].bhs.itt.get();
    assert_eq!(peer.answer(response(itt).as_bytes(), b""), [good(tag, 0)]);
    assert_eq!(peer.plain(), tag, "the tag is used again");
    let again = peer.sent();
    assert_eq!(again[0].bhs.itt.get(), itt);
    let ops = peer.answer(task_response(sent[1].bhs.itt.get(), 1).as_bytes(), b"");
    let managed = InitiatorOp::TaskManaged {
        tag: abort,
        response: 1,
    };
    assert_eq!(ops, [managed]);
    assert_eq!(peer.answer(response(itt).as_bytes(), b""), [good(tag, 0)]);
}

#[test]
fn a_function_that_failed_ends_nothing() {
    let mut peer = in_full_feature();
    let tag = peer.plain();
    let tmf = peer
        .end
        .machine
        .task_management(TaskFunction::LogicalUnitReset, lun_field(3), None);
    let tmf = tmf.expect("room");
    let sent = peer.sent();
    let pdu: &TaskManagementRequest = sent[1].bhs.cast();
    assert_eq!(pdu.referenced_task_tag.get(), TAG_NONE);
    let ops = peer.answer(task_response(sent[1].bhs.itt.get(), 5).as_bytes(), b"");
    assert_eq!(
        ops,
        [InitiatorOp::TaskManaged {
            tag: tmf,
            response: 5
        }]
    );
    let itt = sent[0].bhs.itt.get();
    assert_eq!(peer.answer(response(itt).as_bytes(), b""), [good(tag, 0)]);
}

#[test]
fn a_reset_ends_what_was_sent_before_it_on_its_unit() {
    let reset = |function: TaskFunction| {
        let mut peer = in_full_feature();
        let on_3 = peer.plain();
        let other = Command::new(4, cdb::plain(0));
        let on_4 = peer.submit(&other, ExpectedData::None, vec![]);
        let tmf = peer
            .end
            .machine
            .task_management(function, lun_field(3), None)
            .expect("room");
        let after = peer.plain();
        let sent = peer.sent();
        let itt = sent[2].bhs.itt.get();
        assert_eq!(sent[2].bhs.opcode(), opcode::TASK_MANAGEMENT_REQUEST);
        let mut ops = peer.answer(task_response(itt, 0).as_bytes(), b"");
        assert_eq!(
            ops.pop(),
            Some(InitiatorOp::TaskManaged {
                tag: tmf,
                response: 0
            })
        );
        let tags = ops.iter().map(|op| match op {
            InitiatorOp::Completed { tag, .. } => *tag,
            op => panic!("{op:?}"),
        });
        (tags.collect::<Vec<_>>(), on_3, on_4, after)
    };
    for function in [
        TaskFunction::AbortTaskSet,
        TaskFunction::ClearTaskSet,
        TaskFunction::LogicalUnitReset,
    ] {
        let (ended, on_3, ..) = reset(function);
        assert_eq!(ended, [on_3], "{function}");
    }
    let (ended, on_3, on_4, _) = reset(TaskFunction::TargetWarmReset);
    assert_eq!(ended, [on_3, on_4]);
    let (ended, ..) = reset(TaskFunction::QueryTaskSet);
    assert_eq!(ended, []);
}

#[test]
fn nops_go_both_ways() {
    let mut peer = in_full_feature();
    let tag = peer.end.machine.ping().expect("room");
    let sent = peer.sent();
    let ping: &NopOut = sent[0].bhs.cast();
    assert!(sent[0].bhs.is_immediate());
    assert_eq!(ping.ttt.get(), TAG_NONE);
    let mut pong = NopIn::new();
    pong.flags = flags::FINAL;
    pong.itt = ping.itt;
    pong.ttt = TAG_NONE.into();
    pong.exp_cmd_sn = CMD_SN.into();
    pong.max_cmd_sn = CMD_SN.wrapping_add(31).into();
    assert_eq!(
        peer.answer(pong.as_bytes(), b"data"),
        [InitiatorOp::Pong { tag }]
    );
    // The target asks: it uses no StatSN.
    let mut question = pong;
    question.itt = TAG_NONE.into();
    question.ttt = 0xabcd.into();
    question.lun = lun_field(5);
    question.stat_sn = peer.stat_sn.into();
    peer.push(question.as_bytes(), b"");
    assert_eq!(peer.ops(), []);
    let sent = peer.sent();
    let answer: &NopOut = sent[0].bhs.cast();
    assert_eq!((answer.itt.get(), answer.ttt.get()), (TAG_NONE, 0xabcd));
    assert_eq!(
        (answer.lun, answer.exp_stat_sn.get()),
        (lun_field(5), peer.stat_sn)
    );
    // It only tells the window.
    question.ttt = TAG_NONE.into();
    question.max_cmd_sn = CMD_SN.wrapping_add(63).into();
    peer.push(question.as_bytes(), b"");
    assert_eq!((peer.ops(), peer.sent().len()), (vec![], 0));
    assert_eq!(peer.end.machine.session().window(), 64);
}

#[test]
fn text_is_asked_for_until_it_ends() {
    let mut peer = in_full_feature();
    let tag = peer.end.machine.text(b"SendTargets=All\0").expect("room");
    assert_eq!(
        peer.end.machine.text(b"SendTargets=\0"),
        None,
        "one at a time"
    );
    let sent = peer.sent();
    let request: &TextRequest = sent[0].bhs.cast();
    assert_eq!(sent[0].data, b"SendTargets=All\0");
    assert_eq!((request.flags, request.ttt.get()), (flags::FINAL, TAG_NONE));
    let mut part = TextResponse::new();
    part.flags = flags::CONTINUE;
    part.itt = request.itt;
    part.ttt = 9.into();
    part.lun = lun_field(1);
    part.exp_cmd_sn = CMD_SN.into();
    part.max_cmd_sn = CMD_SN.wrapping_add(31).into();
    assert_eq!(peer.answer(part.as_bytes(), b"TargetName=iqn.a\0Targ"), []);
    let sent = peer.sent();
    let go_on: &TextRequest = sent[0].bhs.cast();
    assert_eq!(
        (go_on.itt, go_on.ttt.get(), go_on.lun),
        (part.itt, 9, lun_field(1))
    );
    assert!(sent[0].data.is_empty());
    part.flags = flags::FINAL;
    part.ttt = TAG_NONE.into();
    assert_eq!(
        peer.answer(part.as_bytes(), b"etAlias=a\0"),
        [InitiatorOp::Text { tag }]
    );
    assert_eq!(
        peer.end.machine.text_answer(),
        b"TargetName=iqn.a\0TargetAlias=a\0"
    );
    assert!(peer.end.machine.text(b"SendTargets=\0").is_some());
    assert_eq!(peer.end.machine.text_answer(), b"");
}

#[test]
fn logout_request_is_sent_and_its_response_reported() {
    let mut peer = in_full_feature();
    let tag = peer
        .end
        .machine
        .logout(LogoutReason::CloseConnection, 4)
        .expect("room");
    let sent = peer.sent();
    let request: &LogoutRequest = sent[0].bhs.cast();
    assert_eq!((request.flags, request.cid.get()), (flags::FINAL | 1, 4));
    let mut pdu = LogoutResponse::new();
    pdu.flags = flags::FINAL;
    pdu.response = 2;
    pdu.itt = request.itt;
    pdu.exp_cmd_sn = CMD_SN.into();
    pdu.max_cmd_sn = CMD_SN.into();
    assert_eq!(
        peer.answer(pdu.as_bytes(), b""),
        [InitiatorOp::LoggedOut { tag, response: 2 }]
    );
}

#[test]
fn asynchronous_message_is_reported_as_an_event() {
    let mut peer = in_full_feature();
    let mut pdu = AsyncMessage::new();
    pdu.flags = flags::FINAL;
    pdu.itt = TAG_NONE.into();
    pdu.lun = lun_field(2);
    pdu.exp_cmd_sn = CMD_SN.into();
    pdu.max_cmd_sn = CMD_SN.wrapping_add(31).into();
    pdu.async_event = 1;
    pdu.parameter3 = 10.into();
    let event = Async {
        event: 1,
        lun: lun_field(2),
        parameters: [0, 0, 10],
    };
    assert_eq!(event.kind(), Some(AsyncEvent::LogoutRequest));
    assert_eq!(
        peer.answer(pdu.as_bytes(), b""),
        [InitiatorOp::Async(event)]
    );
    pdu.async_event = 0;
    let ops = peer.answer(pdu.as_bytes(), &[0, 4, 1, 2, 3, 4]);
    assert!(matches!(
        ops[..],
        [InitiatorOp::Async(Async { event: 0, .. })]
    ));
    assert_eq!(peer.end.machine.sense(), [1, 2, 3, 4]);
}

fn reject(reason: RejectReason) -> Reject {
    let mut pdu = Reject::new();
    pdu.flags = flags::FINAL;
    pdu.reason = reason as u8;
    pdu.itt = TAG_NONE.into();
    pdu.exp_cmd_sn = CMD_SN.into();
    pdu.max_cmd_sn = CMD_SN.wrapping_add(31).into();
    pdu
}

#[test]
fn a_rejected_request_is_over() {
    let mut peer = in_full_feature();
    let (tag, ping) = (peer.plain(), peer.end.machine.ping().expect("room"));
    let sent = peer.sent();
    let why = reject(RejectReason::CommandNotSupported);
    let ops = peer.answer(why.as_bytes(), sent[0].bhs.as_bytes());
    assert_eq!(ops, [ended(tag, CommandOutcome::Rejected(5))]);
    let ops = peer.answer(why.as_bytes(), sent[1].bhs.as_bytes());
    assert_eq!(
        ops,
        [InitiatorOp::Rejected {
            tag: ping,
            reason: 5
        }]
    );
    let ops = peer.answer(why.as_bytes(), sent[1].bhs.as_bytes());
    assert_eq!(ops, [], "what is over already");
    assert_eq!(peer.end.machine.in_flight(), 0);
}

#[test]
fn a_command_damaged_on_its_way_is_sent_once_more() {
    let mut peer = in_full_feature();
    let tag = peer.write(4096);
    let first = peer.sent();
    let why = reject(RejectReason::DataDigestError);
    assert_eq!(peer.answer(why.as_bytes(), first[0].bhs.as_bytes()), []);
    let again = peer.sent();
    assert_eq!(
        again[0].command().cmd_sn,
        first[0].command().cmd_sn,
        "it fills the gap"
    );
    assert_eq!(
        (again[0].bhs.itt, &again[0].data),
        (first[0].bhs.itt, &first[0].data)
    );
    let mut done = response(again[0].bhs.itt.get());
    done.exp_cmd_sn = CMD_SN.wrapping_add(1).into();
    assert_eq!(
        peer.answer(done.as_bytes(), b""),
        [ended(tag, CommandOutcome::GOOD)]
    );
    // A command that was taken has a status coming if its data was damaged later.
    let tag = peer.write(60_000);
    let sent = peer.sent();
    assert_eq!(sent[1].bhs.opcode(), opcode::DATA_OUT);
    assert_eq!(peer.answer(why.as_bytes(), sent[1].bhs.as_bytes()), []);
    let itt = sent[0].bhs.itt.get();
    let mut failed = response(itt);
    failed.status = 2;
    let ops = peer.answer(failed.as_bytes(), b"");
    assert_eq!(ops, [ended(tag, CommandOutcome::Status(2))]);
}

#[test]
fn a_command_damaged_twice_ends_the_connection_as_its_place_stays_empty() {
    let mut peer = in_full_feature();
    peer.write(4096);
    let why = reject(RejectReason::DataDigestError);
    let first = peer.sent();
    assert_eq!(peer.answer(why.as_bytes(), first[0].bhs.as_bytes()), []);
    let again = peer.sent();
    let ops = peer.answer(why.as_bytes(), again[0].bhs.as_bytes());
    let opcode = opcode::SCSI_COMMAND;
    assert_eq!(
        ops,
        [InitiatorOp::Fatal(InitiatorFatalError::DataDigest {
            opcode
        })]
    );
}

#[test]
fn commands_behind_a_damaged_one_are_sent_again_before_new_ones() {
    let mut peer = in_full_feature();
    let taken = peer.plain();
    let _damaged = peer.write(4096);
    let _behind = [peer.plain(), peer.write(60_000)];
    let sent = peer.sent();
    let opcodes = |sent: &[Pdu]| sent.iter().map(|pdu| pdu.bhs.opcode()).collect::<Vec<_>>();
    assert!(sent.len() > 4, "the last has unsolicited data");
    let _new = peer.plain();
    let mut why = reject(RejectReason::DataDigestError);
    why.exp_cmd_sn = CMD_SN.wrapping_add(1).into();
    assert_eq!(peer.answer(why.as_bytes(), sent[1].bhs.as_bytes()), []);
    let again = peer.sent();
    assert_eq!(opcodes(&again)[..sent.len() - 1], opcodes(&sent)[1..]);
    for (again, sent) in again.iter().zip(&sent[1..]) {
        // But for ExpStatSN, which has moved on.
        let bytes = |pdu: &Pdu| (pdu.bhs.as_bytes()[..28].to_vec(), pdu.data.clone());
        assert_eq!(bytes(again), bytes(sent));
    }
    assert_eq!(again.len(), sent.len(), "and the new one last");
    assert_eq!(peer.end.machine.in_flight(), 5);
    let _ = taken;
}

#[test]
fn gap_of_a_rejected_command_is_filled_and_what_is_behind_it_is_sent_again() {
    let mut peer = in_full_feature();
    let (rejected, behind) = (peer.plain(), peer.write(4096));
    let sent = peer.sent();
    let why = reject(RejectReason::CommandNotSupported);
    let ops = peer.answer(why.as_bytes(), sent[0].bhs.as_bytes());
    assert_eq!(ops, [ended(rejected, CommandOutcome::Rejected(5))]);
    let again = peer.sent();
    let opcodes: Vec<u8> = again.iter().map(|pdu| pdu.bhs.opcode()).collect();
    assert_eq!(opcodes, [opcode::NOP_OUT, opcode::SCSI_COMMAND]);
    let nop: &NopOut = again[0].bhs.cast();
    assert!(!again[0].bhs.is_immediate(), "it takes the CmdSN");
    assert_eq!((nop.cmd_sn.get(), nop.ttt.get()), (CMD_SN, TAG_NONE));
    assert_ne!(nop.itt.get(), TAG_NONE, "such a NOP-Out has no CmdSN");
    assert!(
        sent.iter().all(|pdu| pdu.bhs.itt != nop.itt),
        "no command's"
    );
    assert_eq!(again[1].command().cmd_sn, CMD_SN.wrapping_add(1));
    assert_eq!(again[1].data, sent[1].data);
    let mut pong = NopIn::new();
    pong.flags = flags::FINAL;
    (pong.itt, pong.ttt) = (nop.itt, TAG_NONE.into());
    pong.exp_cmd_sn = CMD_SN.wrapping_add(2).into();
    pong.max_cmd_sn = CMD_SN.wrapping_add(32).into();
    assert_eq!(peer.answer(pong.as_bytes(), b""), []);
    let mut done = response(again[1].bhs.itt.get());
    done.exp_cmd_sn = pong.exp_cmd_sn;
    let ops = peer.answer(done.as_bytes(), b"");
    assert_eq!(ops, [ended(behind, CommandOutcome::GOOD)]);
    assert_eq!(peer.end.machine.in_flight(), 0);
    // Nothing is filled where the target has taken the command, or it had no CmdSN.
    let rejected = peer.plain();
    let sent = peer.sent();
    let mut why = reject(RejectReason::CommandNotSupported);
    why.exp_cmd_sn = CMD_SN.wrapping_add(3).into();
    let ops = peer.answer(why.as_bytes(), sent[0].bhs.as_bytes());
    assert_eq!(ops, [ended(rejected, CommandOutcome::Rejected(5))]);
    assert!(peer.sent().is_empty());
}

#[test]
fn gap_amid_a_task_management_function_ends_the_connection() {
    let mut peer = in_full_feature();
    let _commands = [peer.plain(), peer.plain()];
    let function = TaskFunction::LogicalUnitReset;
    peer.end
        .machine
        .task_management(function, lun_field(0), None);
    let sent = peer.sent();
    let why = reject(RejectReason::CommandNotSupported);
    let ops = peer.answer(why.as_bytes(), sent[0].bhs.as_bytes());
    let opcode = opcode::SCSI_COMMAND;
    assert_eq!(
        ops,
        [InitiatorOp::Fatal(InitiatorFatalError::Gap { opcode })]
    );
}
