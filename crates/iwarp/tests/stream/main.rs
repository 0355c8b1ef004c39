//! An RDMAP stream against a peer written by hand, and two of them against each other.
#![forbid(unsafe_code)]

mod faults;
mod handshake;
mod pair;
mod placement;
mod splits;
mod turns;

use std::collections::VecDeque;

use iwarp::{CrcPolicy, Qp, QpOp, QpSettings};
use testkit::End;
use testkit::iwarp::{Fpdus, mpa_frame};
use wire::iwarp::{MPA_REQUEST_KEY, mpa_flags, opcode};

/// The size of a head, and of the longest body, in these tests.
const HEAD: usize = 16;
const BODY: usize = 64;

fn settings() -> QpSettings {
    QpSettings {
        crc: CrcPolicy::Off,
        ird_max: 2,
        ord_max: 2,
        head_max: HEAD as u16,
        send_max: (HEAD + BODY) as u32,
        tags_max: 64,
        ..QpSettings::default()
    }
}

/// All that `end` tells of `bytes`, received `step` at a time. The body of each Send gets the
/// memory of tag 9.
fn feed(end: &mut End<Qp>, bytes: &[u8], step: usize) -> Vec<QpOp> {
    let mut stream: VecDeque<u8> = bytes.to_vec().into();
    let mut told = Vec::new();
    loop {
        while let Some(op) = end.next_op() {
            told.push(op);
            if op == QpOp::Body {
                end.set_memory(9, vec![0; BODY]);
                end.machine.body_into(9);
                end.machine.prepared(9, BODY as u32);
            }
        }
        if end.receive(&mut stream, step) == 0 {
            assert!(stream.is_empty(), "all bytes are taken");
            return told;
        }
    }
}

/// What `end` sends.
fn sent(end: &mut End<Qp>) -> VecDeque<u8> {
    let mut out = VecDeque::new();
    end.transmit(&mut out, usize::MAX);
    out
}

/// A responder that a peer has connected to and may be sent to. FPDUs are as the second says.
fn connected(settings: QpSettings, crc: bool) -> (End<Qp>, Fpdus) {
    let mut end = End::new(Qp::responder(settings, 7, 0));
    let flags = if crc { mpa_flags::CRC } else { 0 };
    let request = mpa_frame(MPA_REQUEST_KEY, (flags, 2), Some((4, 4)), b"");
    assert_eq!(feed(&mut end, &request, usize::MAX), [QpOp::Requested]);
    end.machine.accept(b"");
    assert!(!sent(&mut end).is_empty());
    let peer = Fpdus { crc };
    let rtr = peer.tagged((opcode::WRITE, true), 0, 0, b"");
    assert_eq!(feed(&mut end, &rtr, usize::MAX), []);
    assert_eq!(end.machine.terms().crc, crc);
    (end, peer)
}
