use super::*;

fn abort(peer: &mut Peer, cid: u16) -> AbortOutcome {
    peer.target.end.machine.abort(cid)
}

/// A write of 16 blocks whose R2T is out, and the stream for its data.
fn asked(peer: &mut Peer, cid: u16) -> Vec<u8> {
    let answers = peer.command(&rw(io::WRITE, cid, 0, 16, Sgl::TRANSPORT), &[]);
    assert_eq!(answers[0].0, pdu_type::R2T);
    let ttag = u16::from_le_bytes([answers[0].1[10], answers[0].1[11]]);
    let last = flags::LAST_PDU;
    peer.pdus
        .data(pdu_type::H2C_DATA, last, (cid, ttag), 0, &[7; 8192])
}

#[test]
fn command_that_the_driver_has_is_aborted_by_the_driver() {
    let mut peer = Peer::io();
    assert_eq!(abort(&mut peer, 1), AbortOutcome::NotFound);
    peer.push(
        &peer
            .pdus
            .capsule_cmd(&rw(io::READ, 1, 0, 1, Sgl::TRANSPORT), &[]),
    );
    assert_eq!(abort(&mut peer, 1), AbortOutcome::Executing(0));
    let (tag, _) = peer.target.work.pop().unwrap();
    peer.target
        .end
        .machine
        .complete(tag, Status::ABORT_REQUESTED.into());
    assert_eq!(abort(&mut peer, 1), AbortOutcome::NotFound, "too late");
    assert_eq!(status(&peer.transmit(9)[0].1), (1, Status::ABORT_REQUESTED));
    // A command that waits for memory, in the capsule and not.
    for id in [Sgl::TRANSPORT, Sgl::IN_CAPSULE] {
        let data = if id == Sgl::IN_CAPSULE { 512 } else { 0 };
        let bytes = peer
            .pdus
            .capsule_cmd(&rw(io::WRITE, 2, 0, 1, id), &vec![1; data]);
        let mut stream: VecDeque<u8> = bytes.into();
        peer.target.end.receive(&mut stream, usize::MAX);
        peer.target.take_ops();
        let (tag, _) = peer.target.starved.pop().unwrap();
        assert_eq!(abort(&mut peer, 2), AbortOutcome::Executing(tag));
        peer.target
            .end
            .machine
            .complete(tag, Status::ABORT_REQUESTED.into());
        let answers = peer.send(&[]);
        assert_eq!(status(&answers[0].1), (2, Status::ABORT_REQUESTED));
        assert_eq!((answers.len(), peer.in_flight()), (1, 0));
    }
}

#[test]
fn a_refused_twin_is_not_what_is_aborted() {
    let mut peer = Peer::io();
    // The first frees the lower tag; the twin takes it and is refused.
    for cid in [5, 1] {
        peer.push(
            &peer
                .pdus
                .capsule_cmd(&rw(io::READ, cid, 0, 1, Sgl::TRANSPORT), &[]),
        );
    }
    peer.target.execute(0);
    peer.transmit(9);
    peer.push(
        &peer
            .pdus
            .capsule_cmd(&rw(io::READ, 1, 0, 1, Sgl::TRANSPORT), &[]),
    );
    assert_eq!(abort(&mut peer, 1), AbortOutcome::Executing(1));
}

#[test]
fn data_that_was_asked_for_comes_before_the_answer() {
    let mut peer = Peer::io();
    let before = peer.target.media.clone();
    let data = asked(&mut peer, 1);
    let half = data.len() / 2;
    assert_eq!(peer.send(&data[..half]), []);
    assert_eq!(abort(&mut peer, 1), AbortOutcome::Aborted(0));
    assert_eq!(abort(&mut peer, 1), AbortOutcome::NotFound, "once");
    assert_eq!(peer.transmit(9), [], "the host still owes data");
    // The tag is not used again meanwhile.
    let other = peer.command(&rw(io::READ, 2, 0, 1, Sgl::TRANSPORT), &[0; 0]);
    assert_eq!(other, [], "the stream stands inside the data");
    let mut peer = Peer::io();
    let data = asked(&mut peer, 1);
    assert_eq!(abort(&mut peer, 1), AbortOutcome::Aborted(0));
    let read = peer.command(&rw(io::READ, 2, 0, 1, Sgl::TRANSPORT), &[]);
    assert_eq!(read[0].0, pdu_type::C2H_DATA);
    assert_eq!(peer.target.end.released.last(), Some(&1));
    let answers = peer.send(&data);
    assert_eq!(status(&answers[0].1), (1, Status::ABORT_REQUESTED));
    assert_eq!((answers.len(), peer.in_flight()), (1, 0));
    assert!(peer.target.media == before, "nothing is written");
}

#[test]
fn an_r2t_that_has_not_left_never_does() {
    let mut peer = Peer::io();
    peer.push(
        &peer
            .pdus
            .capsule_cmd(&rw(io::WRITE, 1, 0, 16, Sgl::TRANSPORT), &[]),
    );
    peer.target.feed(0);
    assert_eq!(abort(&mut peer, 1), AbortOutcome::Aborted(0));
    let answers = peer.transmit(9);
    assert_eq!(answers.len(), 1);
    assert_eq!(status(&answers[0].1), (1, Status::ABORT_REQUESTED));
    assert_eq!(peer.in_flight(), 0);
}

#[test]
fn data_in_the_capsule_is_swallowed() {
    let mut peer = Peer::io();
    let before = peer.target.media.clone();
    let bytes = peer
        .pdus
        .capsule_cmd(&rw(io::WRITE, 1, 0, 1, Sgl::IN_CAPSULE), &[9; 512]);
    assert_eq!(peer.send(&bytes[..200]), []);
    assert_eq!(abort(&mut peer, 1), AbortOutcome::Aborted(0));
    assert_eq!(peer.transmit(9), []);
    let answers = peer.send(&bytes[200..]);
    assert_eq!(status(&answers[0].1), (1, Status::ABORT_REQUESTED));
    assert!(peer.target.media == before);
}

fn geometry(nsid: u32, instance: u32) -> Geometry {
    Geometry {
        nsid,
        block_shift: 9,
        read_only: false,
        ana: AnaState::Optimized,
        instance,
        block_count: BLOCKS as u64,
    }
}

#[test]
fn commands_on_their_way_see_a_live_change() {
    let same = geometry(1, 0);
    for (name, now, expected) in [
        ("nothing", same, Status::SUCCESS),
        ("removed", geometry(0, 0), Status::INVALID_FIELD.dnr()),
        (
            "another in its place",
            geometry(1, 7),
            Status::INVALID_FIELD.dnr(),
        ),
        (
            "write protected",
            Geometry {
                read_only: true,
                ..same
            },
            Status::WRITE_PROTECTED.dnr(),
        ),
        (
            "shrunk",
            Geometry {
                block_count: 15,
                ..same
            },
            Status::LBA_OUT_OF_RANGE.dnr(),
        ),
        (
            "just large enough",
            Geometry {
                block_count: 16,
                ..same
            },
            Status::SUCCESS,
        ),
        (
            "inaccessible",
            Geometry {
                ana: AnaState::Inaccessible,
                ..same
            },
            Status::ANA_INACCESSIBLE,
        ),
    ] {
        let mut peer = Peer::io();
        let before = peer.target.media.clone();
        // One whose data arrives, one that waits for memory.
        let data = asked(&mut peer, 1);
        peer.push(
            &peer
                .pdus
                .capsule_cmd(&rw(io::WRITE, 2, 0, 16, Sgl::TRANSPORT), &[]),
        );
        peer.target
            .end
            .machine
            .set_namespaces(Arc::new([now, geometry(2, 0)]));
        let answers = peer.send(&data);
        let mut statuses: Vec<_> = answers
            .iter()
            .filter(|(kind, _)| *kind == pdu_type::CAPSULE_RESP)
            .map(|(_, bytes)| status(bytes))
            .collect();
        statuses.sort_by_key(|(cid, _)| *cid);
        if expected == Status::SUCCESS {
            assert_eq!(statuses, [(1, expected)], "{name}");
        } else {
            assert_eq!(statuses, [(1, expected), (2, expected)], "{name}");
            assert!(peer.target.media == before, "{name}");
            assert_eq!(peer.in_flight(), 0, "{name}");
            assert_eq!(peer.target.refused.len(), 2, "{name}");
        }
    }
}

#[test]
fn new_commands_see_the_new_namespaces() {
    let mut peer = Peer::io();
    let flush = |nsid: u32| Sqe {
        nsid: nsid.into(),
        ..sqe(io::FLUSH, 1, (Sgl::TRANSPORT, 0))
    };
    let (none, gone) = (Status::INVALID_NAMESPACE.dnr(), Status::INVALID_FIELD.dnr());
    peer.target.end.machine.set_namespaces(Arc::new([
        geometry(0, 0),
        geometry(9, 1),
        geometry(0, 0),
    ]));
    for (nsid, expected) in [(1, gone), (9, Status::SUCCESS), (2, gone), (0, none)] {
        assert_eq!(peer.status_of(&flush(nsid), &[]), expected, "{nsid}");
    }
}
