use wire::nvme::authentication::AuthenticationCommand;
use wire::nvme::{ConnectCommand, Disconnect, PropertyGet, Sgl, io};

use super::*;
use crate::command::{AnaState, Io, IoKind};

const ENTRIES: u16 = 4;
const BLOCK: u32 = 512;

type Op = super::Op<()>;

fn namespace(nsid: u32) -> Geometry {
    Geometry {
        nsid,
        block_shift: BLOCK.trailing_zeros() as u8,
        read_only: false,
        ana: AnaState::Optimized,
        instance: 0,
        block_count: 64,
    }
}

/// A queue that Connect has made.
fn live(qid: u16, flow_control_disabled: bool) -> Queue {
    let mut queue = Queue::new(64 << 10, 0);
    connect(&mut queue, qid, flow_control_disabled, false);
    assert!(queue.is_live());
    queue
}

fn connect(queue: &mut Queue, qid: u16, flow_control_disabled: bool, must_authenticate: bool) {
    let connect = ConnectCommand {
        recfmt: 0,
        qid,
        sqsize: ENTRIES - 1,
        cattr: 0,
        kato_ms: 0,
    };
    let sqe = Sqe {
        sgl: Sgl::new(Sgl::IN_CAPSULE, 1024),
        ..connect.encode()
    };
    let tag = prepared(queue, &sqe, 1024);
    assert_eq!(queue.data_whole(tag), Some(Op::Execute { tag }));
    queue.attach(Role {
        qid,
        entries: ENTRIES,
        flow_control_disabled,
        namespaces: Arc::new([namespace(1)]),
        authentication: match must_authenticate {
            true => InBandAuthentication::Required,
            false => InBandAuthentication::None,
        },
    });
    queue.complete(tag, Done::default());
    assert_eq!(answered(queue), [(0, Status::SUCCESS)]);
}

fn command(opcode: u8, cid: u16, slba: u64) -> Sqe {
    let mut sqe = Sqe {
        cid: cid.into(),
        nsid: 1.into(),
        sgl: Sgl::new(Sgl::TRANSPORT, BLOCK),
        ..Sqe::new(opcode)
    };
    sqe.set_blocks(slba, 1);
    sqe
}

/// The halves of a Compare and Write.
fn pair() -> [Sqe; 2] {
    let halves = [
        (io::COMPARE, Sqe::FUSE_FIRST),
        (io::WRITE, Sqe::FUSE_SECOND),
    ];
    let mut cid = 0;
    halves.map(|(opcode, fuse)| {
        cid += 1;
        let mut sqe = command(opcode, cid, 5);
        sqe.flags |= fuse;
        sqe
    })
}

fn submit(queue: &mut Queue, sqe: &Sqe, capsule_len: u32) -> Option<Op> {
    queue.submit(sqe, capsule_len).expect("an entry is free")
}

/// The tag of a command that brings data and whose memory is there.
fn prepared(queue: &mut Queue, sqe: &Sqe, capsule_len: u32) -> Tag {
    let Some(Op::Prepare { tag, .. }) = submit(queue, sqe, capsule_len) else {
        panic!("it brings data");
    };
    assert!(queue.prepared(tag));
    tag
}

/// Sends all answers: CIDs and statuses.
fn answered(queue: &mut Queue) -> Vec<(u16, Status)> {
    let mut sent = Vec::new();
    while let Some(answer) = queue.answer() {
        let cqe = queue.completion(&answer);
        sent.push((cqe.cid.get(), cqe.status()));
        queue.answered();
    }
    sent
}

fn notices(queue: &mut Queue) -> Vec<Op> {
    std::iter::from_fn(|| queue.next_notice()).collect()
}

/// CIDs that the error log hears of.
fn refused(queue: &mut Queue) -> Vec<u16> {
    let cid = |op| match op {
        Op::Refused(refused) => refused.cid,
        other => panic!("{other:?}"),
    };
    notices(queue).into_iter().map(cid).collect()
}

#[test]
fn a_read_is_executed_at_once_and_answered_with_its_data() {
    let mut queue = live(1, true);
    let op = submit(&mut queue, &command(io::READ, 9, 3), 0);
    assert_eq!(op, Some(Op::Execute { tag: 0 }));
    let expected = Io {
        kind: IoKind::Read,
        namespace: 0,
        offset: 3 * u64::from(BLOCK),
        len: BLOCK.into(),
        fua: false,
        deallocate: false,
        copy_format: 0,
    };
    assert_eq!(*queue.command(0), Command::Io(expected));
    assert!(queue.answer().is_none());
    let data_len = BLOCK;
    let done = Done {
        data_len,
        ..Done::default()
    };
    queue.complete(0, done);
    let answer = Answer {
        tag: 0,
        cid: 9,
        data_len,
        is_bare_success: true,
    };
    assert_eq!(queue.answer(), Some(answer));
    queue.data_sent();
    assert_eq!(queue.answer().map(|answer| answer.data_len), Some(0));
    assert_eq!(queue.completion(&answer).sqhd.get(), NO_SQHD);
    assert_eq!((queue.answered(), queue.in_flight()), (Some(0), 0));
}

#[test]
fn answers_move_the_head_round_the_queue() {
    let mut queue = live(1, false);
    let mut heads = Vec::new();
    for cid in 0..5 {
        submit(&mut queue, &command(io::READ, cid, 0), 0);
        queue.complete(0, Done::default());
        let answer = queue.answer().expect("it is complete");
        assert!(!answer.is_bare_success, "the host needs the head");
        heads.push(queue.completion(&answer).sqhd.get());
        queue.answered();
    }
    assert_eq!(heads, [2, 3, 0, 1, 2], "Connect moved it to 1");
}

#[test]
fn a_host_with_more_commands_than_entries_overruns_the_queue() {
    let mut queue = live(1, true);
    for cid in 0..ENTRIES {
        assert!(submit(&mut queue, &command(io::READ, cid, 0), 0).is_some());
    }
    let sqe = command(io::READ, 99, 0);
    assert_eq!(queue.submit::<()>(&sqe, 0), Err(Overrun));
    queue.complete(2, Done::default());
    assert_eq!(queue.submit::<()>(&sqe, 0), Err(Overrun), "not answered");
    answered(&mut queue);
    assert_eq!(submit(&mut queue, &sqe, 0), Some(Op::Execute { tag: 2 }));
}

#[test]
fn a_cid_in_flight_is_a_conflict_of_the_second_alone() {
    let mut queue = live(1, true);
    submit(&mut queue, &command(io::READ, 7, 0), 0);
    assert_eq!(submit(&mut queue, &command(io::READ, 7, 0), 0), None);
    let conflict = Status::CID_CONFLICT.dnr();
    assert_eq!(answered(&mut queue), [(7, conflict)]);
    assert_eq!(refused(&mut queue), [7]);
    queue.complete(0, Done::default());
    assert_eq!(answered(&mut queue), [(7, Status::SUCCESS)]);
}

#[test]
fn data_comes_between_preparing_and_executing() {
    for capsule_len in [0, BLOCK] {
        let mut queue = live(1, true);
        let tag = prepared(&mut queue, &command(io::WRITE, 1, 0), capsule_len);
        assert_eq!(queue.data_whole(tag), Some(Op::Execute { tag }));
        queue.complete(tag, Done::default());
        assert_eq!(answered(&mut queue), [(1, Status::SUCCESS)]);
    }
}

#[test]
fn a_command_whose_data_moves_is_answered_when_that_is_over() {
    let mut queue = live(1, true);
    let tag = prepared(&mut queue, &command(io::WRITE, 1, 0), 0);
    assert_eq!(queue.abort(1), AbortOutcome::Aborted(tag));
    assert_eq!(queue.abort(1), AbortOutcome::NotFound, "once");
    assert_eq!(
        (queue.next_withdrawn(), queue.next_withdrawn()),
        (Some(tag), None)
    );
    assert!(queue.answer().is_none(), "data of it is on its way");
    queue.data_over(tag);
    queue.data_over(tag);
    assert_eq!(answered(&mut queue), [(1, Status::ABORT_REQUESTED)]);
    assert_eq!((notices(&mut queue), queue.in_flight()), (vec![], 0));
}

#[test]
fn a_command_that_the_driver_prepares_is_the_drivers_to_end() {
    let mut queue = live(1, true);
    let Some(Op::Prepare { tag, .. }) = submit(&mut queue, &command(io::WRITE, 1, 0), 0) else {
        panic!("it brings data");
    };
    assert_eq!(queue.abort(1), AbortOutcome::Executing(tag));
    queue.complete(tag, Status::ABORT_REQUESTED.into());
    assert_eq!(queue.next_withdrawn(), Some(tag));
    queue.data_over(tag);
    assert_eq!(answered(&mut queue), [(1, Status::ABORT_REQUESTED)]);
}

#[test]
fn a_pair_is_executed_when_the_data_of_both_is_there() {
    let mut queue = live(1, true);
    let [compare, write] = pair().map(|sqe| prepared(&mut queue, &sqe, BLOCK));
    assert_eq!(queue.data_whole::<()>(write), None);
    let op = queue.data_whole(compare);
    assert_eq!(op, Some(Op::ExecuteFused { compare, write }));
    let Command::Io(io) = queue.command(write) else {
        panic!("it is I/O");
    };
    assert_eq!(io.kind, IoKind::CompareAndWrite);
}

#[test]
fn a_half_that_is_given_up_takes_the_other_with_it() {
    for lost in [0, 1] {
        let mut queue = live(1, true);
        let tags = pair().map(|sqe| prepared(&mut queue, &sqe, BLOCK));
        assert_eq!(queue.data_whole::<()>(tags[1 - lost]), None);
        queue.give_up(tags[lost], Status::TRANSIENT_TRANSPORT);
        assert_eq!(queue.next_withdrawn(), Some(tags[lost]));
        assert_eq!(
            queue.next_withdrawn(),
            None,
            "all data of the other is here"
        );
        queue.data_over(tags[lost]);
        let cid = |half: usize| half as u16 + 1;
        let mut statuses = answered(&mut queue);
        statuses.sort_by_key(|(of, _)| *of != cid(lost));
        let expected = [
            (cid(lost), Status::TRANSIENT_TRANSPORT),
            (cid(1 - lost), Status::FUSED_FAILED),
        ];
        assert_eq!(statuses, expected);
        assert_eq!(refused(&mut queue), [cid(lost), cid(1 - lost)]);
    }
}

#[test]
fn a_first_without_its_second_is_given_up() {
    let mut queue = live(1, true);
    let first = prepared(&mut queue, &pair()[0], BLOCK);
    assert_eq!(queue.data_whole::<()>(first), None);
    let read = submit(&mut queue, &command(io::READ, 8, 0), 0);
    assert_eq!(read, Some(Op::Execute { tag: 1 }));
    assert_eq!(submit(&mut queue, &pair()[1], BLOCK), None);
    let expected = [(1, Status::FUSED_MISSING), (2, Status::FUSED_MISSING)];
    assert_eq!(answered(&mut queue), expected);
    assert_eq!(refused(&mut queue), [1, 2]);
}

#[test]
fn only_connect_comes_before_there_is_a_queue() {
    let mut queue = Queue::new(4096, 0);
    assert_eq!(submit(&mut queue, &command(io::READ, 3, 0), 0), None);
    let sequence = Status::COMMAND_SEQUENCE.dnr();
    assert_eq!(answered(&mut queue), [(3, sequence)]);
    assert_eq!(queue.entries(), ENTRIES_BEFORE_CONNECT);
}

#[test]
fn a_queue_ends_with_the_answer_to_a_disconnect() {
    let mut queue = live(1, true);
    let sqe = Disconnect { recfmt: 0 }.encode();
    assert_eq!(submit(&mut queue, &sqe, 0), Some(Op::Execute { tag: 0 }));
    submit(&mut queue, &command(io::READ, 9, 0), 0);
    queue.complete(0, Done::default());
    queue.complete(1, Done::default());
    assert!(!queue.is_ended());
    assert_eq!(answered(&mut queue), [(0, Status::SUCCESS)]);
    assert!(queue.is_ended() && !queue.has_answer());
}

#[test]
fn an_event_request_whose_cid_is_used_again_is_forgotten() {
    let mut queue = live(0, false);
    let request = command(admin::ASYNC_EVENT_REQUEST, 5, 0);
    let Some(Op::Execute { tag }) = submit(&mut queue, &request, 0) else {
        panic!("it brings no data");
    };
    let op = submit(&mut queue, &command(admin::KEEP_ALIVE, 5, 0), 0);
    assert_eq!(op, Some(Op::Execute { tag: 1 }));
    let event = None;
    assert_eq!(notices(&mut queue), [Op::Forgotten { tag, event }]);
    let result = 0x0004_0002;
    let done = Done {
        result,
        ..Done::default()
    };
    queue.complete(tag, done);
    assert!(!queue.has_answer());
    let event = Some(result as u32);
    assert_eq!(notices(&mut queue), [Op::Forgotten { tag, event }]);
    assert_eq!((queue.next_unanswered(), queue.in_flight()), (Some(tag), 1));
}

#[test]
fn commands_whose_data_moves_see_a_namespace_go() {
    let mut queue = live(1, true);
    let write = prepared(&mut queue, &command(io::WRITE, 1, 0), 0);
    submit(&mut queue, &command(io::READ, 2, 0), 0);
    queue.set_namespaces(Arc::new([namespace(0)]));
    assert_eq!(queue.next_withdrawn(), Some(write));
    assert!(queue.is_given_up(write) && !queue.is_given_up(1));
    queue.data_over(write);
    let gone = Status::INVALID_FIELD.dnr();
    assert_eq!(answered(&mut queue), [(1, gone)]);
    assert_eq!(refused(&mut queue), [1]);
    assert_eq!(submit(&mut queue, &command(io::READ, 3, 0), 0), None);
    assert_eq!(answered(&mut queue), [(3, gone)]);
}

/// While the data of a Connect comes, nothing else is executed.
#[test]
fn commands_beside_a_connect_are_refused() {
    let mut queue = Queue::new(64 << 10, 0);
    let connect = ConnectCommand {
        recfmt: 0,
        qid: 0,
        sqsize: ENTRIES - 1,
        cattr: 0,
        kato_ms: 0,
    };
    let sqe = Sqe {
        sgl: Sgl::new(Sgl::TRANSPORT, 1024),
        ..connect.encode()
    };
    prepared(&mut queue, &sqe, 0);
    let get = PropertyGet {
        offset: 0,
        is_8_bytes: true,
    };
    let send = AuthenticationCommand::new(8).encode_send();
    for (cid, mut sqe) in [
        (1, get.encode()),
        (2, Disconnect { recfmt: 0 }.encode()),
        (3, send),
    ] {
        sqe.cid = cid.into();
        assert_eq!(submit(&mut queue, &sqe, 0), None);
        assert_eq!(
            answered(&mut queue),
            [(cid, Status::COMMAND_SEQUENCE.dnr())]
        );
    }
}

#[test]
fn queue_of_a_host_that_must_authenticate_takes_nothing_else_before() {
    for qid in [0, 1] {
        let mut queue = Queue::new(64 << 10, 0);
        connect(&mut queue, qid, false, true);
        assert!(!queue.is_live() && queue.is_connected());
        assert_eq!(queue.entries(), usize::from(ENTRIES));
        let get = PropertyGet {
            offset: 0,
            is_8_bytes: true,
        };
        let required = Status::AUTHENTICATION_REQUIRED.dnr();
        let [compare, write] = pair();
        for mut sqe in [
            command(io::READ, 0, 0),
            compare,
            write,
            Sqe::new(admin::IDENTIFY),
            get.encode(),
            Disconnect { recfmt: 0 }.encode(),
        ] {
            sqe.cid = 9.into();
            assert_eq!(submit(&mut queue, &sqe, 0), None);
            assert_eq!(answered(&mut queue), [(9, required)]);
        }
        let mut receive = AuthenticationCommand::new(64).encode_receive();
        receive.sgl = Sgl::new(Sgl::TRANSPORT, 64);
        let Some(Op::Execute { tag }) = submit(&mut queue, &receive, 0) else {
            panic!("authentication is executed");
        };
        assert_eq!(
            *queue.command(tag),
            Command::AuthenticationReceive { len: 64 }
        );
        queue.complete(tag, Done::default());
        queue.set_authenticated(true);
        assert!(queue.is_live());
        assert_eq!(answered(&mut queue), [(0, Status::SUCCESS)]);
        // One that fails later takes all else away again.
        queue.set_authenticated(false);
        assert_eq!(submit(&mut queue, &command(io::READ, 5, 0), 0), None);
        assert_eq!(answered(&mut queue), [(5, required)]);
    }
}
