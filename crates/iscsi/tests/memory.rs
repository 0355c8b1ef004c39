//! What a connection holds of data that nothing reads.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use doubles::iscsi::{BLOCK, TargetDouble};
use iscsi::accepted::{AcceptedConnection, IserSettings};
use iscsi::iser::{CrcPolicy, QpSettings};
use iscsi::target::{ConnectionRole, TargetSettings};
use iscsi::{Negotiated, Session};
use testkit::iscsi::{Pdus, cdb};
use testkit::iwarp::{Fpdus, mpa_frame};
use testkit::resident_bytes;
use wire::iscsi::{TAG_NONE, flags};
use wire::iser::{IserHeader, iser_first};
use wire::iwarp::MPA_REQUEST_KEY;
use zerocopy::IntoBytes;

const CMD_SN: u32 = 1;
const CONNECTIONS: u64 = 256;
/// More than a text may have, and as much as a data segment.
const LEN: usize = 128 << 10;
const PDUS: Pdus = Pdus {
    header_digest: false,
    data_digest: false,
};

/// What an initiator sends by RDMA, one behind the other.
fn by_rdma(pdus: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let header = IserHeader {
        first: iser_first::CONTROL,
        ..IserHeader::default()
    };
    let fpdus = Fpdus { crc: false };
    let mut all = vec![mpa_frame(MPA_REQUEST_KEY, (0, 2), Some((4, 0)), &[0; 4])];
    for (pdu, msn) in pdus.iter().zip(1..) {
        let message = [header.as_bytes(), pdu].concat();
        let len = message.len();
        for (at, part) in (0..).step_by(1024).zip(message.chunks(1024)) {
            let kind = (wire::iwarp::opcode::SEND, at + part.len() == len);
            let place = (wire::iwarp::queue::SEND, msn, at as u32);
            all.push(fpdus.untagged(kind, 0, place, part));
        }
    }
    all
}

/// A connection in the full feature phase that has taken all of `sent`.
fn taken(sent: &[Vec<u8>]) -> TargetDouble {
    let negotiated = Negotiated {
        max_recv_data_segment_length: LEN as u32,
        ..Negotiated::default()
    };
    let role = ConnectionRole {
        session: Rc::new(RefCell::new(Session::new(CMD_SN, 8, false))),
        negotiated,
        cid: 0,
        nop_interval: 0,
        nop_timeout: 0,
    };
    let stream = QpSettings {
        crc: CrcPolicy::Off,
        ..QpSettings::default()
    };
    let rdma = IserSettings {
        stream,
        takes_tcp: true,
    };
    let machine = AcceptedConnection::new(TargetSettings::default(), Some(rdma), 3, 0);
    let mut target = TargetDouble::new(machine, role, vec![0; BLOCK]);
    let mut stream = VecDeque::new();
    for part in sent.iter().flat_map(|bytes| bytes.chunks(2048)) {
        stream.extend(part);
        while target.end.receive(&mut stream, usize::MAX) > 0 {
            target.take_ops();
            target.transmit(&mut VecDeque::new(), usize::MAX);
        }
    }
    assert!(stream.is_empty() && target.fatal.is_none());
    target
}

#[test]
fn data_that_nothing_reads_is_not_kept() {
    let login = PDUS.login(CMD_SN, 0, b"");
    let data = vec![7; LEN];
    let text = PDUS.text((9, CMD_SN), TAG_NONE, flags::FINAL, &data);
    let write = flags::FINAL | flags::WRITE;
    let command = PDUS.command((9, CMD_SN), write, cdb::write(0, 1), 512, &data);
    let cases = [
        vec![login.clone(), text.clone()],
        by_rdma(&[login.clone(), text]),
        by_rdma(&[login, command]),
    ];
    for (at, sent) in cases.iter().enumerate() {
        let before = resident_bytes();
        let all: Vec<TargetDouble> = (0..CONNECTIONS).map(|_| taken(sent)).collect();
        let each = resident_bytes().saturating_sub(before) / all.len() as u64;
        assert!(each < LEN as u64 / 2, "case {at}: {each} bytes");
    }
}
