//! What a turn takes of FPDUs of which nothing is told: its share, and the rest comes later.

use std::collections::VecDeque;

use machine::work;
use testkit::iwarp::Fpdus;
use wire::iwarp::{opcode, queue};

use crate::{connected, settings};

/// Units of a turn.
const SHARE: u64 = 64;
/// FPDUs that lie received.
const FPDUS: u64 = 1000;

#[test]
fn empty_fpdus_take_no_more_than_the_share_of_a_turn() {
    let write = |fpdus: Fpdus| fpdus.tagged((opcode::WRITE, true), 0, 0, b"");
    // A Send without an end.
    let send = |fpdus: Fpdus| fpdus.untagged((opcode::SEND, false), 0, (queue::SEND, 1, 0), b"");
    let cases: [&dyn Fn(Fpdus) -> Vec<u8>; 2] = [&write, &send];
    for crc in [false, true] {
        for fpdu in cases {
            let (mut end, peer) = connected(settings(), crc);
            end.machine.post_receives(1);
            let before = end.machine.counts().fpdus_received;
            let mut stream: VecDeque<u8> = fpdu(peer).repeat(FPDUS as usize).into();
            end.receive(&mut stream, usize::MAX);
            assert!(stream.is_empty(), "all of it lies received");
            for taken in 1..=FPDUS.div_ceil(SHARE) {
                let mut units = 0;
                work::take_turn(&mut units, SHARE, || assert_eq!(end.next_op(), None));
                assert!(units <= SHARE, "{units} units");
                let received = end.machine.counts().fpdus_received - before;
                assert_eq!(received, FPDUS.min(taken * SHARE));
            }
        }
    }
}
