//! Several connections in one session.

use proptest::prelude::*;

use super::*;

/// Two connections of one session.
fn pair() -> (Peer, Peer) {
    let session = Rc::new(RefCell::new(Session::new(CMD_SN, 8, false)));
    let mut first = Peer::of(keys(), session.clone(), 0);
    first.log_in();
    let mut second = Peer::of(keys(), session, 1);
    second.log_in();
    (first, second)
}

fn due(peer: &Peer) -> Option<u16> {
    peer.target.session().borrow_mut().next_due()
}

#[test]
fn commands_are_delivered_in_their_order_across_connections() {
    let (mut first, mut second) = pair();
    let a = first.command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
    second.cmd_sn = first.cmd_sn;
    let data = pattern(2, 512);
    let b = second.command(WRITE, cdb::write(0, 1), 512, &data);
    first.cmd_sn = second.cmd_sn;
    let c = first.command(NONE, cdb::TEST_UNIT_READY, 0, &[]);

    let mut stream = b.into();
    second.target.end.receive(&mut stream, usize::MAX);
    second.target.take_ops();
    assert!(second.target.starved.is_empty());
    assert_eq!(second.target.end.machine.recv_plan().stage_max, 0);
    assert!(!second.target.end.machine.has_step());
    assert_eq!(due(&first), None);

    let mut stream = [a, c].concat().into();
    first.target.end.receive(&mut stream, usize::MAX);
    first.target.take_ops();
    assert_eq!(first.target.work.len(), 1, "the second waits for the other");
    assert_eq!((due(&first), due(&first)), (Some(1), None));
    assert!(second.target.end.machine.has_step());
    second.target.take_ops();
    second.target.feed(0);
    assert_eq!(second.target.work.len(), 1);
    assert_eq!((due(&first), due(&first)), (Some(0), None));
    assert!(first.target.end.machine.has_step());
    first.target.take_ops();
    assert_eq!(first.target.work.len(), 2);
    // The connections share the window.
    let answers = second.send(&[]);
    let header: &ScsiResponse = answers[0].bhs.cast();
    assert_eq!(header.exp_cmd_sn.get(), 1);
    assert_eq!(header.max_cmd_sn.get(), 6);
    assert_eq!(header.stat_sn.get(), STAT_SN + 1, "its own");
    assert_eq!(first.send(&[]).len(), 2);
    assert_eq!(first.window(), (1, 8));
    assert_eq!(second.media(0, 1), data);
}

#[test]
fn functions_wait_for_what_they_concern_and_hold_nothing_up() {
    let (mut first, mut second) = pair();
    let a = first.command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
    let function = second.pdus.function((9, first.cmd_sn), 5, (TAG_NONE, 0));
    let nop = second.pdus.nop_out(5, TAG_NONE, first.cmd_sn, &[]);
    second.push(&[function, nop].concat());
    assert!(second.target.functions.is_empty());
    assert_eq!(opcodes(&second.transmit(9)), [opcode::NOP_IN]);
    first.push(&a);
    assert_eq!(due(&first), Some(1));
    assert!(second.target.end.machine.has_step());
    second.target.take_ops();
    assert_eq!(second.target.functions.len(), 1);
    assert_eq!(second.send(&[]).len(), 1);
}

#[test]
fn a_request_that_was_passed_over_holds_up_nothing() {
    let (mut first, mut second) = pair();
    let missing = first.command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
    second.cmd_sn = first.cmd_sn;
    let early = second.command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
    let nop = second.pdus.nop_out(5, TAG_NONE, second.cmd_sn, &[]);
    second.push(&early);
    // Aborted before its turn, by way of the other connection.
    let sn = first.cmd_sn;
    let abort = first.pdus.function((9, second.cmd_sn), 1, (second.itt, sn));
    assert_eq!(first.send(&abort).len(), 1);
    assert_eq!(first.send(&missing).len(), 1);
    assert_eq!(opcodes(&second.send(&nop)), [opcode::NOP_IN]);
}

#[test]
fn commands_of_a_lost_connection_leave_their_window_to_the_others() {
    let (mut first, mut second) = pair();
    second.cmd_sn = first.cmd_sn;
    for _ in 0..8 {
        let command = second.command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
        second.push(&command);
    }
    // The window is closed.
    first.cmd_sn = second.cmd_sn;
    let command = first.command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
    assert!(first.send(&command).is_empty());
    drop(second);
    first.cmd_sn = first.cmd_sn.wrapping_sub(1);
    for _ in 0..9 {
        let answers = first.do_command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
        assert_eq!(response(&answers[0]), GOOD);
    }
    let session = first.target.session().borrow();
    let open = session.max_cmd_sn().wrapping_sub(session.exp_cmd_sn());
    assert_eq!(open, 7);
}

#[test]
fn a_gap_of_cmd_sns_ends_the_connection_after_its_timeout() {
    let (mut first, mut second) = pair();
    second.cmd_sn = second.cmd_sn.wrapping_add(1);
    let bytes = second.command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
    let mut stream = bytes.into();
    second.target.end.now = 7;
    second.target.end.receive(&mut stream, usize::MAX);
    second.target.take_ops();
    assert_eq!(
        second.target.end.machine.deadline(),
        Some(7 + ORDER_TIMEOUT)
    );
    second.target.end.machine.on_deadline(7 + ORDER_TIMEOUT);
    second.target.take_ops();
    let cmd_sn = CMD_SN.wrapping_add(1);
    let expected = CMD_SN;
    assert_eq!(
        second.target.fatal,
        Some(FatalError::CmdSnGap { cmd_sn, expected })
    );
    assert_eq!(first.target.session().borrow().connections(), [0]);
    let answers = first.do_command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
    assert_eq!(response(&answers[0]), GOOD);
    assert_eq!(due(&first), None, "the other is gone");
}

#[test]
fn each_gap_of_cmd_sns_has_its_own_timeout() {
    let (mut first, mut second) = pair();
    for now in [7, 100 * ORDER_TIMEOUT] {
        let a = first.command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
        second.cmd_sn = first.cmd_sn;
        let b = second.command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
        first.cmd_sn = second.cmd_sn;
        let mut stream = b.into();
        second.target.end.now = now;
        second.target.end.receive(&mut stream, usize::MAX);
        second.target.take_ops();
        second.target.end.machine.on_deadline(now);
        assert_eq!(
            second.target.end.machine.deadline(),
            Some(now + ORDER_TIMEOUT)
        );
        first.send(&a);
        assert_eq!(second.send(&[]).len(), 1);
    }
    second.target.end.machine.on_deadline(200 * ORDER_TIMEOUT);
    assert_eq!(second.target.end.machine.deadline(), None);
    assert!(!second.target.end.machine.is_finished());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn whatever_connection_they_take_commands_arrive_in_their_order(
        ways in proptest::collection::vec(any::<bool>(), 1..60),
        seed in any::<u64>(),
    ) {
        let mut random = Random::new(seed);
        let (first, second) = pair();
        let mut peers = [first, second];
        let mut wires = [VecDeque::new(), VecDeque::new()];
        let (mut cmd_sn, mut arrived, mut answered) = (CMD_SN, CMD_SN, 0);
        let mut ways = ways.iter().peekable();
        let count = ways.len();
        for _ in 0..100_000 {
            let (_, max_cmd_sn) = peers[0].window();
            let is_open = wire::iscsi::serial_distance(cmd_sn, max_cmd_sn) >= 0;
            if let Some(second) = ways.next_if(|_| is_open && random.one_in(2)) {
                let at = usize::from(*second);
                let ids = (cmd_sn & 0xff, cmd_sn);
                let bytes = peers[at].pdus.command(ids, NONE, cdb::TEST_UNIT_READY, 0, &[]);
                wires[at].extend(bytes);
                cmd_sn = cmd_sn.wrapping_add(1);
            }
            let mut at = random.below(2) as usize;
            let len = 1 + random.below(100) as usize;
            peers[at].target.end.receive(&mut wires[at], len);
            loop {
                let before = peers[at].target.work.len();
                peers[at].target.take_ops();
                for (_, task) in &peers[at].target.work[before..] {
                    prop_assert_eq!(task.cmd_sn, arrived);
                    arrived = arrived.wrapping_add(1);
                }
                match due(&peers[at]) {
                    Some(cid) => at = usize::from(cid),
                    None => break,
                }
            }
            let target = &mut peers[at].target;
            if !target.work.is_empty() && random.one_in(2) {
                target.execute(random.below(target.work.len() as u64) as usize);
            }
            let before = peers[at].target.work.len();
            answered += peers[at].transmit(1).len();
            for (_, task) in &peers[at].target.work[before..] {
                prop_assert_eq!(task.cmd_sn, arrived);
                arrived = arrived.wrapping_add(1);
            }
            if answered == count {
                break;
            }
        }
        prop_assert_eq!(answered, count);
        let (exp_cmd_sn, max_cmd_sn) = peers[0].window();
        prop_assert_eq!(exp_cmd_sn, cmd_sn);
        prop_assert_eq!(max_cmd_sn, exp_cmd_sn.wrapping_add(7));
    }
}
