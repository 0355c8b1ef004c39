//! Attackers that connect by RDMA.

use random::Random;
use testkit::iwarp::{Fpdus, mpa_frame};
use wire::iwarp::{MPA_REQUEST_KEY, opcode, rdmap_control};
use zerocopy::IntoBytes;

use super::{Attack, EVIL, Field, bad_command};
use crate::common::Queue;
use crate::rdma_host::{RdmaQueue, cm_request};

/// The host asks for them.
const FPDUS: Fpdus = Fpdus { crc: true };

/// An FPDU: a Send is the answer to a capsule, a Terminate to what ends the connection.
fn fpdu(answers: &[u8]) -> Option<(usize, bool)> {
    let (length, _) = answers.split_first_chunk::<2>()?;
    let padded = (2 + usize::from(u16::from_be_bytes(*length))).next_multiple_of(4);
    let len = padded + 4;
    let kind = answers.get(..len)?[3] & rdmap_control::OPCODE_MASK;
    let is_data = matches!(kind, opcode::WRITE | opcode::READ_REQUEST);
    Some((len, !is_data))
}

/// An FPDU that no host may send.
fn bad_fpdu(random: &mut Random, msn: u32, send: Vec<u8>) -> Vec<u8> {
    let mut bytes = match random.below(6) {
        0 => FPDUS.tagged((opcode::WRITE, true), random.next_u32(), 0, &[7; 64]),
        1 => FPDUS.tagged((opcode::READ_RESPONSE, true), random.next_u32(), 0, &[7; 8]),
        2 => FPDUS.untagged((random.below(16) as u8, true), 0, (3, msn, 0), &[0; 64]),
        3 => FPDUS.send(msn.wrapping_add(random.below(3) as u32), &[0; 63]),
        4 => (0..64).map(|_| random.below(256) as u8).collect(),
        _ => send,
    };
    let at = random.below(bytes.len().min(40) as u64) as usize;
    bytes[at] ^= 1 << random.below(8);
    bytes
}

/// Bad commands and FPDUs on a queue of a controller, or a frame that is no Request, until
/// one of them ends the connection.
pub fn attack(field: &Field, random: &mut Random) {
    if random.one_in(8) {
        return attack_by_frame(field, random);
    }
    let connected = RdmaQueue::connect_to(field.address, EVIL, 0, 0xffff);
    let Ok((mut admin, cntlid)) = connected else {
        return;
    };
    admin.enable();
    let (queue, _admin) = if random.one_in(4) {
        (admin, None)
    } else {
        let Ok((queue, _)) = RdmaQueue::connect_to(field.address, EVIL, 1, cntlid) else {
            return;
        };
        (queue, Some(admin))
    };
    let mut msn = queue.sent;
    let attack = Attack::new(queue.stream, fpdu);
    attack.run(field, random, |random, cid| {
        msn += 1;
        let (sqe, data) = bad_command(random, cid);
        let send = FPDUS.send(msn, &[sqe.as_bytes(), &data].concat());
        match random.one_in(100) {
            true => bad_fpdu(random, msn, send),
            false => send,
        }
    });
}

/// A Request with a bit that is wrong, or what is none.
fn attack_by_frame(field: &Field, random: &mut Random) {
    let request = cm_request(random.below(3) as u16, random.below(3) as u16);
    let words = (random.next_u32() as u16, random.next_u32() as u16);
    let kind = (random.below(256) as u8, random.below(4) as u8);
    let mut frame = mpa_frame(MPA_REQUEST_KEY, kind, Some(words), request.as_bytes());
    let at = random.below(frame.len() as u64) as usize;
    frame[at] ^= 1 << random.below(8);
    let mut attack = Attack::new(Queue::open(field.address).stream, |_| None);
    let sent = std::io::Write::write_all(&mut attack.stream, &frame);
    let _ = attack.stream.shutdown(std::net::Shutdown::Write);
    while sent.is_ok() && attack.take_answers().is_some() {}
    field.note_handled(1);
}
