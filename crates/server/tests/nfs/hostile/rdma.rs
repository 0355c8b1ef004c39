//! Attackers that connect by RDMA.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use random::Random;
use testkit::iwarp::{Fpdus, mpa_frame, mpa_frame_len};
use testkit::rpc_rdma::{Message, Segment, segment};
use wire::iwarp::{
    MPA_REQUEST_KEY, MpaFrame, ReadRequest, UntaggedFpdu, mpa_flags, opcode, rdmap_control,
};
use wire::rpc_rdma::RpcRdmaPrivateData;
use zerocopy::FromBytes;

use super::{Field, bad_record};
use crate::raw;

const FPDUS: Fpdus = Fpdus { crc: true };
/// Bytes of the client's Sends, and calls that it leaves unanswered: both at most.
const SEND_MAX: u32 = 4096;
const UNANSWERED_MAX: u64 = 60;

/// A stream that has connected.
struct Attack {
    stream: TcpStream,
    received: Vec<u8>,
    msn: u32,
    unanswered: u64,
}

fn private_data() -> Vec<u8> {
    RpcRdmaPrivateData {
        takes_invalidate: true,
        send_bytes_max: SEND_MAX,
        receive_bytes_max: SEND_MAX,
    }
    .encode()
    .to_vec()
}

/// `None`: the server is rid of it.
fn connect(field: &Field) -> Option<Attack> {
    let mut stream = raw::open(field.address);
    let kind = (mpa_flags::CRC, 2);
    let request = mpa_frame(MPA_REQUEST_KEY, kind, Some((4, 4)), &private_data());
    stream.write_all(&request).ok()?;
    let mut reply = vec![0; MpaFrame::LEN];
    stream.read_exact(&mut reply).ok()?;
    let more = mpa_frame_len(&reply) - MpaFrame::LEN;
    stream.read_exact(&mut vec![0; more]).ok()?;
    let patience = Some(Duration::from_millis(2));
    stream.set_read_timeout(patience).expect("a socket");
    Some(Attack {
        stream,
        received: Vec::new(),
        msn: 0,
        unanswered: 0,
    })
}

fn bad_segment(random: &mut Random) -> Segment {
    let length = random.pick::<u32>(&[0, 1, 512, 4096, 4096, 65_536, 1 << 20, u32::MAX]);
    let offset = random.pick::<u64>(&[0, 0, 7, u64::MAX - 100]);
    segment(random.next_u32(), offset, length)
}

fn bad_chunk(random: &mut Random) -> Vec<Segment> {
    let segments = random.pick::<u32>(&[0, 1, 1, 1, 2, 3, 70]);
    (0..segments).map(|_| bad_segment(random)).collect()
}

/// A call with something wrong, in a message whose chunks are as wrong.
fn bad_message(field: &Field, random: &mut Random) -> Vec<u8> {
    let record = bad_record(field, random);
    let mut message = Message::short(random.next_u32() >> 2, 32, record[4..].to_vec());
    if random.one_in(3) {
        let len = message.body.len() as u32;
        let positions = [0, 0, 40, len & !3, len + 4, u32::MAX];
        let reads = bad_chunk(random).into_iter();
        message.reads = reads
            .map(|segment| (random.pick(&positions), segment))
            .collect();
    }
    if random.one_in(3) {
        let chunks = random.pick::<u32>(&[1, 1, 2, 30]);
        message.writes = (0..chunks).map(|_| bad_chunk(random)).collect();
    }
    message.reply = random.one_in(3).then(|| bad_chunk(random));
    message.is_long = random.one_in(8);
    let mut bytes = message.encode();
    if random.one_in(10) {
        let at = random.below(bytes.len().min(60) as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
    }
    bytes.truncate(SEND_MAX as usize);
    bytes
}

/// An FPDU that no client may send.
fn bad_fpdu(random: &mut Random, msn: u32, send: Vec<u8>) -> Vec<u8> {
    let mut bytes = match random.below(6) {
        0 => FPDUS.tagged((opcode::WRITE, true), random.next_u32(), 0, &[7; 64]),
        1 => FPDUS.tagged((opcode::READ_RESPONSE, true), random.next_u32(), 0, &[7; 8]),
        2 => FPDUS.untagged((random.below(16) as u8, true), 0, (3, msn, 0), &[0; 40]),
        3 => FPDUS.send(msn.wrapping_add(random.below(3) as u32), &[0; 40]),
        4 => (0..64).map(|_| random.below(256) as u8).collect(),
        _ => send,
    };
    let at = random.below(bytes.len().min(96) as u64) as usize;
    bytes[at] ^= 1 << random.below(8);
    bytes
}

impl Attack {
    /// Takes what has come, and gives bytes for what is read, now and then. Whether it was the
    /// end.
    fn has_ended(&mut self, random: &mut Random) -> bool {
        let mut bytes = vec![0; 64 << 10];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return true,
                Ok(len) => self.received.extend_from_slice(&bytes[..len]),
                Err(error) => {
                    let is_late =
                        matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                    return !is_late;
                }
            }
            while let Some(fpdu) = self.next_fpdu() {
                if self.take(&fpdu, random).is_none() {
                    return true;
                }
            }
        }
    }

    /// The next FPDU that is all here.
    fn next_fpdu(&mut self) -> Option<Vec<u8>> {
        let (length, _) = self.received.split_first_chunk::<2>()?;
        let len = (2 + usize::from(u16::from_be_bytes(*length))).next_multiple_of(4) + 4;
        (self.received.len() >= len).then(|| self.received.drain(..len).collect())
    }

    /// `None`: the stream has ended.
    fn take(&mut self, fpdu: &[u8], random: &mut Random) -> Option<()> {
        match fpdu[3] & rdmap_control::OPCODE_MASK {
            opcode::WRITE => {}
            opcode::TERMINATE => return None,
            opcode::READ_REQUEST => {
                let request = fpdu.get(UntaggedFpdu::LEN..)?;
                let (request, _) = ReadRequest::read_from_prefix(request).ok()?;
                let size = request.size.get();
                if size <= SEND_MAX && !random.one_in(4) {
                    let data = vec![random.below(256) as u8; size as usize];
                    let place = (request.sink_stag.get(), request.sink_to.get());
                    let kind = (opcode::READ_RESPONSE, true);
                    let response = FPDUS.tagged(kind, place.0, place.1, &data);
                    self.stream.write_all(&response).ok()?;
                }
            }
            _ => self.unanswered = self.unanswered.saturating_sub(1),
        }
        Some(())
    }
}

/// A connection that sends what no client should, until something of it ends it; or a frame
/// that is no Request.
pub fn attack(field: &Field, random: &mut Random) {
    if random.one_in(10) {
        return attack_by_frame(field, random);
    }
    let Some(mut attack) = connect(field) else {
        return;
    };
    for _ in 0..16 {
        let mut burst = Vec::new();
        let count = random.below(UNANSWERED_MAX - attack.unanswered);
        for _ in 0..count {
            attack.msn += 1;
            let send = FPDUS.send(attack.msn, &bad_message(field, random));
            burst.extend(match random.one_in(200) {
                true => bad_fpdu(random, attack.msn, send),
                false => send,
            });
        }
        attack.unanswered += count;
        if attack.stream.write_all(&burst).is_err() {
            return;
        }
        field.sent.fetch_add(count, Ordering::Relaxed);
        // Some take nothing of what they asked for.
        if !random.one_in(6) && attack.has_ended(random) {
            return;
        }
    }
}

/// A Request with a bit that is wrong, or what is none.
fn attack_by_frame(field: &Field, random: &mut Random) {
    let words = (random.next_u32() as u16, random.next_u32() as u16);
    let kind = (random.below(256) as u8, random.below(4) as u8);
    let mut frame = mpa_frame(MPA_REQUEST_KEY, kind, Some(words), &private_data());
    let at = random.below(frame.len() as u64) as usize;
    frame[at] ^= 1 << random.below(8);
    let mut stream = raw::open(field.address);
    let patience = Some(Duration::from_millis(50));
    stream.set_read_timeout(patience).expect("a socket");
    if stream.write_all(&frame).is_ok() {
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read(&mut [0; 4096]);
    }
    field.sent.fetch_add(1, Ordering::Relaxed);
}
