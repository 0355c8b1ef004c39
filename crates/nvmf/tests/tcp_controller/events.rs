//! Asynchronous Event Requests, which stay in flight while the host goes on.

use super::*;

/// An Admin Queue with one Asynchronous Event Request of CID 5 under way.
fn admin_with_event_request() -> (Peer, Tag) {
    let mut peer = Peer::live(0, false, Pdus::default());
    peer.push(&event_request(5));
    let (tag, _) = peer.target.work.pop().expect("it is executed");
    (peer, tag)
}

/// Namespace Attribute Changed.
const EVENT: Done = Done {
    status: Status::SUCCESS,
    result: 0x0004_0002,
    data_len: 0,
};

/// A driver that has not read yet that a request is forgotten completes it.
#[test]
fn an_event_for_a_forgotten_request_is_given_back() {
    let (mut peer, tag) = admin_with_event_request();
    let other = sqe(admin::KEEP_ALIVE, 5, (Sgl::TRANSPORT, 0));
    assert_eq!(peer.status_of(&other, &[]), Status::SUCCESS);
    peer.target.forgotten.clear();
    peer.target.end.machine.complete(tag, EVENT);
    assert!(!peer.target.end.machine.has_transmit());
    let next = sqe(admin::KEEP_ALIVE, 6, (Sgl::TRANSPORT, 0));
    assert_eq!(peer.status_of(&next, &[]), Status::SUCCESS);
    assert_eq!(peer.target.forgotten, [(tag, Some(0x0004_0002))]);
    assert_eq!(peer.in_flight(), 0);
}

fn event_request(cid: u16) -> Vec<u8> {
    let request = sqe(admin::ASYNC_EVENT_REQUEST, cid, (Sgl::TRANSPORT, 0));
    Pdus::default().capsule_cmd(&request, &[])
}

/// SPDK's hosts forget their event requests before they shut a controller down,
/// and use the CIDs again.
#[test]
fn a_command_with_the_cid_of_an_event_request_is_executed() {
    let get = PropertyGet {
        offset: 0x1c,
        is_8_bytes: false,
    };
    let set = PropertySet {
        offset: 0x14,
        is_8_bytes: false,
        value: 0x0046_4001,
    };
    let commands = [
        get.encode(),
        set.encode(),
        sqe(admin::KEEP_ALIVE, 5, (Sgl::TRANSPORT, 0)),
    ];
    let (mut peer, tag) = admin_with_event_request();
    for command in commands {
        let command = Sqe {
            cid: 5.into(),
            ..command
        };
        assert_eq!(peer.status_of(&command, &[]), Status::SUCCESS);
    }
    assert_eq!(peer.in_flight(), 1, "the event request");
    assert_eq!(peer.target.forgotten, [(tag, None)]);
    // Its answer would be taken for that of another command.
    peer.target.end.machine.complete(tag, Done::default());
    assert!(!peer.target.end.machine.has_transmit());
    let next = sqe(admin::KEEP_ALIVE, 6, (Sgl::TRANSPORT, 0));
    assert_eq!(peer.status_of(&next, &[]), Status::SUCCESS);
    assert_eq!(peer.in_flight(), 0, "its place is free again");
}

#[test]
fn an_event_that_waits_to_be_sent_is_no_answer_to_a_command_with_its_cid() {
    let (mut peer, tag) = admin_with_event_request();
    peer.target.end.machine.complete(tag, EVENT);
    let get = PropertyGet {
        offset: 0x1c,
        is_8_bytes: false,
    };
    let get = Sqe {
        cid: 5.into(),
        ..get.encode()
    };
    peer.push(&Pdus::default().capsule_cmd(&get, &[]));
    while let Some((tag, _)) = peer.target.work.pop() {
        peer.target.end.machine.complete(tag, Done::default());
    }
    let answers = peer.transmit(9);
    assert_eq!(answers.len(), 1, "one CID, one answer");
    assert_eq!(peer.target.forgotten, [(tag, Some(0x0004_0002))]);
    assert_eq!(peer.in_flight(), 0);
}

#[test]
fn an_event_request_with_its_own_cid_is_answered() {
    let (mut peer, tag) = admin_with_event_request();
    let other = sqe(admin::KEEP_ALIVE, 6, (Sgl::TRANSPORT, 0));
    assert_eq!(peer.status_of(&other, &[]), Status::SUCCESS);
    let done = Done {
        result: 0x0003_0002,
        ..Done::default()
    };
    peer.target.end.machine.complete(tag, done);
    assert_eq!(status(&peer.transmit(9)[0].1), (5, Status::SUCCESS));
}

#[test]
fn an_event_request_with_the_cid_of_another_command_is_a_conflict() {
    let mut peer = Peer::live(0, false, Pdus::default());
    let identify = sqe(admin::IDENTIFY, 5, (Sgl::TRANSPORT, 4096));
    peer.push(&Pdus::default().capsule_cmd(&identify, &[]));
    peer.push(&event_request(5));
    assert_eq!(peer.target.work.len(), 1);
    assert_eq!(
        status(&peer.transmit(9)[0].1),
        (5, Status::CID_CONFLICT.dnr())
    );
}

/// Abort means the command that was sent last.
#[test]
fn an_abort_of_a_cid_used_again_spares_the_event_request() {
    let (mut peer, event) = admin_with_event_request();
    let identify = sqe(admin::IDENTIFY, 5, (Sgl::TRANSPORT, 4096));
    peer.push(&Pdus::default().capsule_cmd(&identify, &[]));
    let (tag, _) = peer.target.work[0];
    assert_ne!(tag, event);
    let machine = &mut peer.target.end.machine;
    assert_eq!(machine.abort(5), AbortOutcome::Executing(tag));
}
