//! Attackers that connect by RDMA.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use random::Random;
use testkit::iscsi::Pdus;
use testkit::iwarp::{Fpdus, mpa_frame};
use wire::iscsi::{LoginResponse, opcode};
use wire::iser::{ISER_HEADER_LEN, IserHeader, iser_cm_flags, iser_first};
use wire::iwarp::{MPA_REQUEST_KEY, MpaFrame, UntaggedFpdu, mpa_flags, opcode as rdmap};
use zerocopy::{FromBytes, IntoBytes};

use super::{Field, bad_pdu};
use crate::client::{Client, InitiatorPort};

const FPDUS: Fpdus = Fpdus { crc: true };
const CM: [u8; 4] = [iser_cm_flags::NO_ZERO_BASED, 0, 0, 0];

/// A Send of a PDU, with memory or without.
fn send(msn: u32, first: u8, pdu: &[u8]) -> Vec<u8> {
    let header = IserHeader {
        first,
        write_stag: msn.into(),
        read_stag: (msn + 1).into(),
        ..IserHeader::default()
    };
    FPDUS.send(msn, &[header.as_bytes(), pdu].concat())
}

/// A stream that has connected, in the full feature phase; `None`: the target is rid of it.
fn login(field: &Field, initiator: &InitiatorPort) -> Option<TcpStream> {
    let mut stream = Client::open(field.address).stream;
    let request = mpa_frame(MPA_REQUEST_KEY, (mpa_flags::CRC, 2), Some((4, 4)), &CM);
    stream.write_all(&request).ok()?;
    let mut reply = vec![0; MpaFrame::LEN];
    stream.read_exact(&mut reply).ok()?;
    let more = testkit::iwarp::mpa_frame_len(&reply) - MpaFrame::LEN;
    stream.read_exact(&mut vec![0; more]).ok()?;

    let (bhs, text) = initiator.login_request();
    let pdu = Pdus::default().pdu(&bhs, text.as_bytes());
    stream.write_all(&send(1, iser_first::CONTROL, &pdu)).ok()?;
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let len = (2 + usize::from(u16::from_be_bytes(length))).next_multiple_of(4) + 4;
    let mut answer = vec![0; len];
    stream.read_exact(&mut answer[2..]).ok()?;
    let response = answer.get(UntaggedFpdu::LEN + ISER_HEADER_LEN..)?;
    let (response, _) = LoginResponse::read_from_prefix(response).ok()?;
    let patience = Some(Duration::from_millis(2));
    stream.set_read_timeout(patience).expect("a socket");
    (response.status_class == 0).then_some(stream)
}

/// An FPDU that no initiator may send.
fn bad_fpdu(random: &mut Random, msn: u32, send: Vec<u8>) -> Vec<u8> {
    let mut bytes = match random.below(6) {
        0 => FPDUS.tagged((rdmap::WRITE, true), random.next_u32(), 0, &[7; 64]),
        1 => FPDUS.tagged((rdmap::READ_RESPONSE, true), random.next_u32(), 0, &[7; 8]),
        2 => FPDUS.untagged((random.below(16) as u8, true), 0, (3, msn, 0), &[0; 76]),
        3 => FPDUS.send(msn.wrapping_add(random.below(3) as u32), &[0; 75]),
        4 => (0..64).map(|_| random.below(256) as u8).collect(),
        _ => send,
    };
    let at = random.below(bytes.len().min(96) as u64) as usize;
    bytes[at] ^= 1 << random.below(8);
    bytes
}

/// The next Send: a PDU with something wrong, mostly in a right FPDU.
fn bad_send(random: &mut Random, msn: u32, cmd_sn: &mut u32, itt: &mut u32) -> Vec<u8> {
    let mut pdu = bad_pdu(random, cmd_sn, itt);
    // Each of them ends the connection.
    while pdu[0] & 0x3f == opcode::DATA_OUT && !random.one_in(20) {
        pdu = bad_pdu(random, cmd_sn, itt);
    }
    let memory = match random.one_in(200) {
        true => random.below(256) as u8,
        false => iser_first::CONTROL | iser_first::READ_STAG | iser_first::WRITE_STAG,
    };
    if random.one_in(200) {
        pdu.pop();
    }
    let send = send(msn, memory, &pdu);
    match random.one_in(200) {
        true => bad_fpdu(random, msn, send),
        false => send,
    }
}

/// A session that sends what no initiator may, until something of it ends it; or a frame that
/// is no Request.
pub fn attack(field: &Field, random: &mut Random, initiator: &InitiatorPort) {
    if random.one_in(10) {
        return attack_by_frame(field, random);
    }
    let mut initiator = initiator.clone().with("RDMAExtensions", "Yes");
    if random.one_in(2) {
        initiator = initiator.with("TaggedBufferForSolicitedDataOnly", "Yes");
    }
    let Some(mut stream) = login(field, &initiator) else {
        return;
    };
    let (mut cmd_sn, mut itt, mut msn) = (initiator.cmd_sn, 1, 1);
    for _ in 0..24 {
        let mut burst = Vec::new();
        let count = 16 + random.below(48);
        for _ in 0..count {
            msn += 1;
            burst.extend(bad_send(random, msn, &mut cmd_sn, &mut itt));
        }
        if stream.write_all(&burst).is_err() {
            return;
        }
        field.sent.fetch_add(count, Ordering::Relaxed);
        if super::has_ended(&mut stream, random) {
            return;
        }
    }
}

/// A Request with a bit that is wrong, or what is none.
fn attack_by_frame(field: &Field, random: &mut Random) {
    let words = (random.next_u32() as u16, random.next_u32() as u16);
    let kind = (random.below(256) as u8, random.below(4) as u8);
    let mut frame = mpa_frame(MPA_REQUEST_KEY, kind, Some(words), &CM);
    let at = random.below(frame.len() as u64) as usize;
    frame[at] ^= 1 << random.below(8);
    let mut stream = Client::open(field.address).stream;
    let patience = Some(Duration::from_millis(50));
    stream.set_read_timeout(patience).expect("a socket");
    if stream.write_all(&frame).is_ok() {
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read(&mut [0; 4096]);
    }
    field.sent.fetch_add(1, Ordering::Relaxed);
}
