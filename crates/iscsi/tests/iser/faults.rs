//! Initiators that break iSER, or ask for what they cannot have.

use iscsi::iser::{CrcPolicy, IserError};
use iscsi::target::FatalError;
use iwarp::QpError;
use machine::Machine;
use testkit::iscsi::cdb;
use wire::iser::{IserHello, iser_first};
use wire::iwarp::TerminateCode;
use zerocopy::IntoBytes;

use super::*;

/// What the target ends the connection with, of a message of these bytes; the initiator has
/// got a Terminate.
fn fault(peer: &mut Peer, message: Vec<u8>) -> &'static str {
    peer.client.post(message);
    peer.run();
    assert!(peer.target.end.machine.is_finished());
    assert_eq!(
        peer.client.fatal,
        Some(QpError::Received(TerminateCode::UNSPECIFIED))
    );
    match peer.target.fatal {
        Some(FatalError::Rdma(IserError::Message(what))) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn message_that_breaks_iser_is_terminated_and_reaches_no_command() {
    type Make = fn(&mut Peer) -> Vec<u8>;
    let cases: [(&str, Make); 11] = [
        ("it ends before its PDU header does", |_| {
            vec![iser_first::CONTROL; HEADERS - 1]
        }),
        ("its opcode is none of a PDU", |peer| {
            let mut message = vec![0x40; ISER_HEADER_LEN];
            message.extend(peer.command(NONE, cdb::TEST_UNIT_READY, 0, b""));
            message
        }),
        ("its opcode is none of a PDU", |peer| {
            let mut message = vec![0; ISER_HEADER_LEN];
            message.extend(peer.command(WRITE, cdb::write(0, 1), 512, &[0; 512]));
            message
        }),
        ("its length is not that of its PDU", |peer| {
            let command = peer.command(NONE, cdb::TEST_UNIT_READY, 0, b"");
            [header(None, None).as_bytes(), &command, &[0; 1]].concat()
        }),
        ("its length is not that of its PDU", |peer| {
            let command = peer.command(WRITE, cdb::write(0, 1), 512, &[0; 512]);
            let len = command.len() - 1;
            [header(None, None).as_bytes(), &command[..len]].concat()
        }),
        ("a command that reads has no Read STag", |peer| {
            let command = peer.command(READ, cdb::read(0, 1), 512, b"");
            [header(None, None).as_bytes(), &command[..]].concat()
        }),
        ("a command that writes has no Write STag", |peer| {
            let command = peer.command(WRITE, cdb::write(0, 2), 1024, &[0; 512]);
            [header(None, None).as_bytes(), &command[..]].concat()
        }),
        ("Data-Out, where InitialR2T is Yes", |peer| {
            let data = PDUS.data_out((peer.itt, 0), true, 0, 0, &[1; 512]);
            [header(None, None).as_bytes(), &data[..]].concat()
        }),
        ("Data-Out, where InitialR2T is Yes", |peer| {
            let data = PDUS.data_out((peer.itt, 0), true, 0, 0, b"");
            [header(None, None).as_bytes(), &data[..]].concat()
        }),
        ("a Hello has 28 bytes", |_| vec![iser_first::HELLO; 27]),
        ("its Hello is of other versions of iSER", |_| {
            let hello = IserHello {
                first: iser_first::HELLO,
                versions: 0x92,
                ..IserHello::default()
            };
            hello.as_bytes().to_vec()
        }),
    ];
    for (what, make) in cases {
        for step in [1, 50, usize::MAX] {
            let mut peer = Peer::live(keys(), CrcPolicy::Require, step);
            let before = peer.target.media.clone();
            let message = make(&mut peer);
            assert_eq!(fault(&mut peer, message), what);
            assert!(peer.target.media == before, "{what}");
            assert_eq!(opcodes(&peer.received()), [0u8; 0], "{what}");
        }
    }
}

#[test]
fn part_of_the_data_is_not_taken_where_the_rest_lies_is_not_known() {
    let keys = Negotiated {
        solicited_only: None,
        ..keys()
    };
    let mut peer = Peer::live(keys, CrcPolicy::Off, usize::MAX);
    let memory = peer.client.readable(&[0; 1024]);
    let command = peer.command(WRITE, cdb::write(0, 2), 1024, &[0; 512]);
    let message = [header(Some(memory), None).as_bytes(), &command[..]].concat();
    assert!(fault(&mut peer, message).contains("TaggedBufferForSolicitedDataOnly"));
}

#[test]
fn memory_that_is_not_the_initiators_ends_its_own_connection() {
    let mut peer = Peer::live(keys(), CrcPolicy::Off, usize::MAX);
    let memory = peer.client.writable(512);
    let wrong = Segment {
        handle: memory.handle ^ 1,
        ..memory
    };
    let command = peer.command(READ, cdb::read(0, 1), 512, b"");
    peer.post(&command, &header(None, Some(wrong)));
    peer.run();
    let code = TerminateCode::SINK_STAG;
    assert_eq!(peer.client.fatal, Some(QpError::Sent(code)));
    let expected = FatalError::Rdma(QpError::Received(code).into());
    assert_eq!(peer.target.fatal, Some(expected));
}

#[test]
fn initiator_that_cannot_be_served_is_rejected() {
    let cases = [
        (None, 4, IserError::NotServed),
        (rdma(CrcPolicy::Off), 0, IserError::NoReads),
    ];
    for (rdma, ird_max, why) in cases {
        let settings = TargetSettings::default();
        let machine = AcceptedConnection::new(settings, rdma, 9, 5);
        let mut target = TargetDouble::new(machine, role(keys()), Vec::new());
        let stream = QpSettings {
            ird_max,
            ..stream(CrcPolicy::Off)
        };
        let mut client = RdmaClient::new(stream, b"");
        let (mut there, mut back) = (VecDeque::new(), VecDeque::new());
        client.transmit(&mut there);
        target.serve(&mut there, &mut back);
        client.receive(&mut back, usize::MAX);
        assert!(client.is_rejected);
        assert_eq!(target.fatal, Some(FatalError::Rdma(why)));
        assert!(target.end.machine.is_finished());
    }
}

#[test]
fn initiator_by_tcp_is_refused_where_there_is_rdma_alone() {
    let rdma = IserSettings {
        takes_tcp: false,
        ..rdma(CrcPolicy::Off).expect("it is there")
    };
    let machine = AcceptedConnection::new(TargetSettings::default(), Some(rdma), 9, 5);
    let mut target = TargetDouble::new(machine, role(keys()), Vec::new());
    let mut out = VecDeque::new();
    target.serve(&mut PDUS.login(CMD_SN, 0, b"").into(), &mut out);
    assert_eq!(target.fatal, Some(FatalError::TcpNotServed));
    assert!(out.is_empty() && target.texts.is_empty());
}

#[test]
fn login_that_does_not_come_in_time_ends_the_connection() {
    for cm in [&b""[..], &[0; 4]] {
        let mut peer = Peer::fresh(keys(), rdma(CrcPolicy::Off), cm, usize::MAX);
        let deadline = peer.target.end.machine.deadline().expect("a deadline");
        peer.target.end.machine.on_deadline(deadline);
        peer.target.take_ops();
        assert_eq!(peer.target.fatal, Some(FatalError::LoginTimeout));
        assert!(peer.target.end.machine.is_finished());
    }
}

#[test]
fn message_that_no_crc_proves_does_nothing() {
    let mut peer = Peer::live(keys(), CrcPolicy::Require, usize::MAX);
    for data in [&b""[..], &[7; 512]] {
        let mut peer = Peer::live(keys(), CrcPolicy::Require, usize::MAX);
        let before = peer.target.media.clone();
        let command = peer.command(WRITE, cdb::write(0, 1), data.len() as u32, data);
        peer.post(&command, &header(None, None));
        peer.client.transmit(&mut peer.there);
        *peer.there.back_mut().expect("a CRC") ^= 1;
        peer.run();
        let expected = QpError::Sent(TerminateCode::CRC).into();
        assert_eq!(peer.target.fatal, Some(FatalError::Rdma(expected)));
        assert!(peer.target.media == before && peer.target.work.is_empty());
        assert_eq!(opcodes(&peer.received()), [0u8; 0]);
    }
    // The session of another goes on.
    let command = peer.command(NONE, cdb::TEST_UNIT_READY, 0, b"");
    assert_eq!(peer.send(&command).len(), 1);
}
