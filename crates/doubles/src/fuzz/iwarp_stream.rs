//! Any peer against an RDMAP stream.
//!
//! An input is 4 bytes of configuration and seed, then records: a mode, a length (16 bits,
//! little endian) and so many bytes. In a raw record the bytes are the stream; in a framed one
//! they are a ULPDU; in a named one they are a ULPDU whose versions, STag or MSN are made
//! right first, so that what lies behind those checks is reached.

use std::collections::VecDeque;

use iwarp::{
    CrcPolicy, DataPart, Qp, QpError, QpOp, QpSettings, RegisteredMemory, RemoteAccess, Work,
};
use machine::{Machine, Tag};
use random::Random;
use testkit::End;
use testkit::iwarp::{Fpdus, mpa_frame};
use wire::iwarp::{
    MPA_REPLY_KEY, MPA_REQUEST_KEY, ddp_control, mpa_flags, opcode, queue, rdmap_control,
};

/// Memory that the peer may write, that it may read, that is read into, and bodies of Sends.
const WRITABLE: Tag = 1;
const READABLE: Tag = 2;
const SINK: Tag = 3;
const BODY: Tag = 4;
/// Where the regions begin in it, as Tagged Offset, and their bytes.
const OFFSET: u32 = 64;
const TO: u64 = 0x100;
const LEN: u32 = 256;
/// What stands in memory at first.
const BLANK: u8 = 0xee;
/// Most bytes of the body of a Send.
const BODY_MAX: u32 = 200;

/// Any peer against a stream, before the handshake and behind it.
pub fn iwarp_stream(input: &[u8]) {
    let Some((config, records)) = input.split_first_chunk::<4>() else {
        return;
    };
    let mut random = Random::new(u64::from(u32::from_le_bytes(*config)));
    let has_crc = config[0] & 1 != 0;
    match config[0] & 6 {
        0 => {
            let whole = behind_the_handshake(has_crc, records, usize::MAX);
            let by_bytes = behind_the_handshake(has_crc, records, 1);
            assert_eq!(whole, by_bytes, "the same is told and placed");
        }
        2 => {
            let qp = Qp::responder(settings(has_crc), 1, 0);
            handshake(qp, MPA_REQUEST_KEY, records, &mut random);
        }
        _ => {
            let qp = Qp::initiator(settings(has_crc), 1, b"private", 0);
            handshake(qp, MPA_REPLY_KEY, records, &mut random);
        }
    }
}

fn settings(has_crc: bool) -> QpSettings {
    QpSettings {
        crc: if has_crc {
            CrcPolicy::Prefer
        } else {
            CrcPolicy::Off
        },
        ird_max: 3,
        ord_max: 3,
        peer_to_peer: true,
        ulpdu_max: 128,
        head_max: 32,
        send_max: 32 + BODY_MAX,
        tags_max: 8,
        ..QpSettings::default()
    }
}

/// Frames and FPDUs to a stream whose connection does not stand yet.
fn handshake(qp: Qp, key: &[u8; 16], bytes: &[u8], random: &mut Random) {
    let mut end = End::new(qp);
    let mut stream = VecDeque::new();
    for (mode, record) in super::records(bytes) {
        match (mode & 1, record.split_first_chunk::<6>()) {
            (1, Some((&[flags, revision, ird, irds, ord, ords], data))) => {
                let words = (
                    u16::from_be_bytes([ird, irds]),
                    u16::from_be_bytes([ord, ords]),
                );
                let words = (mode & 2 != 0).then_some(words);
                stream.extend(mpa_frame(key, (flags, revision), words, data));
            }
            _ => stream.extend(record),
        }
    }
    let mut out = VecDeque::new();
    loop {
        while let Some(op) = end.next_op() {
            match op {
                QpOp::Requested if random.one_in(8) => end.machine.reject(b"no"),
                QpOp::Requested => end.machine.accept(b"yes"),
                QpOp::Body => end.machine.drop_body(),
                _ => {}
            }
        }
        end.transmit(&mut out, 1 + random.below(3) as usize);
        if end.receive(&mut stream, 1 + random.below(60) as usize) == 0 {
            break;
        }
    }
    assert!(stream.is_empty(), "all bytes are taken");
    let timeout = settings(false).handshake_timeout;
    end.machine.on_deadline(timeout);
    assert_eq!(end.machine.deadline(), None);
}

/// A stream whose connection stands, with memory that the peer may name.
struct Rig {
    end: End<Qp>,
    peer: Fpdus,
    stags: Vec<u32>,
}

fn rig(has_crc: bool) -> Rig {
    let mut end = End::new(Qp::responder(settings(has_crc), 1, 0));
    let peer = Fpdus { crc: has_crc };
    let flags = if has_crc { mpa_flags::CRC } else { 0 };
    let mut stream: VecDeque<u8> = mpa_frame(MPA_REQUEST_KEY, (flags, 2), Some((8, 8)), b"").into();
    end.receive(&mut stream, usize::MAX);
    assert_eq!(end.next_op(), Some(QpOp::Requested));
    end.machine.accept(b"");
    stream.extend(peer.tagged((opcode::WRITE, true), 0, 0, b""));
    end.receive(&mut stream, usize::MAX);
    assert_eq!(end.next_op(), None);
    for tag in 0..=SINK {
        end.set_memory(tag, vec![BLANK; (OFFSET + LEN + OFFSET) as usize]);
    }
    let mut stags = Vec::new();
    for (tag, access) in [
        (WRITABLE, RemoteAccess::WRITE),
        (READABLE, RemoteAccess::READ),
    ] {
        let memory = RegisteredMemory {
            tag,
            offset: OFFSET,
            len: LEN,
            to: TO,
            access,
        };
        stags.push(end.machine.register(memory).expect("room"));
    }
    let sink = DataPart {
        tag: SINK,
        offset: OFFSET,
        len: LEN,
    };
    end.machine.read(sink, 1, 0).expect("reads");
    end.machine.post_receives(3);
    end.machine.post(Work::Send {
        head: &[7; 100],
        body: sink,
        invalidate: None,
        is_solicited: false,
        release: None,
    });
    let mut out = VecDeque::new();
    end.transmit(&mut out, usize::MAX);
    let sent: Vec<u8> = out.into();
    let request = sent.windows(2).position(|ddp| ddp == [0x41, 0x41]);
    let at = request.expect("the Read Request") + 18;
    stags.push(u32::from_be_bytes(
        sent[at..at + 4].try_into().expect("4 bytes"),
    ));
    Rig { end, peer, stags }
}

/// What the peer of an input sends.
fn stream(rig: &Rig, bytes: &[u8]) -> VecDeque<u8> {
    let mut stream = VecDeque::new();
    let mut msns = [1u32; 3];
    for (mode, record) in super::records(bytes) {
        match mode % 3 {
            0 => stream.extend(record),
            1 => stream.extend(rig.peer.fpdu(record)),
            _ => stream.extend(rig.peer.fpdu(&named(record, &rig.stags, &mut msns))),
        }
    }
    stream
}

/// `record` as a ULPDU with the right versions and the STag or MSN of its message.
fn named(record: &[u8], stags: &[u32], msns: &mut [u32; 3]) -> Vec<u8> {
    let mut ulpdu = record.to_vec();
    ulpdu.resize(ulpdu.len().max(18), 0);
    ulpdu[0] = ulpdu[0] & (ddp_control::TAGGED | ddp_control::LAST) | ddp_control::VERSION;
    ulpdu[1] = ulpdu[1] & 7 | rdmap_control::VERSION;
    if ulpdu[0] & ddp_control::TAGGED != 0 {
        let stag = stags[usize::from(ulpdu[2]) % stags.len()];
        ulpdu[2..6].copy_from_slice(&stag.to_be_bytes());
        ulpdu[6..12].fill(0);
        ulpdu[12] &= 1;
        return ulpdu;
    }
    let qn = match ulpdu[1] & 7 {
        opcode::READ_REQUEST => queue::READ_REQUEST,
        opcode::TERMINATE => queue::TERMINATE,
        _ => queue::SEND,
    };
    let msn = &mut msns[qn as usize];
    if qn == queue::READ_REQUEST && ulpdu.len() >= 46 {
        let source = stags[usize::from(ulpdu[34]) % stags.len()];
        ulpdu[34..38].copy_from_slice(&source.to_be_bytes());
        ulpdu[30..33].fill(0);
        ulpdu[38..44].fill(0);
    }
    let stag = stags[usize::from(ulpdu[2]) % stags.len()];
    ulpdu[2..6].copy_from_slice(&stag.to_be_bytes());
    ulpdu[6..10].copy_from_slice(&qn.to_be_bytes());
    ulpdu[10..14].copy_from_slice(&msn.to_be_bytes());
    ulpdu[14..17].fill(0);
    *msn += u32::from(ulpdu[0] & ddp_control::LAST != 0);
    ulpdu
}

/// What is told of `bytes` that come `step` at a time, and what the memory is then.
fn behind_the_handshake(has_crc: bool, bytes: &[u8], step: usize) -> (Vec<String>, Vec<Vec<u8>>) {
    let mut rig = rig(has_crc);
    let mut stream = stream(&rig, bytes);
    let end = &mut rig.end;
    let (mut told, mut fatal, mut out) = (Vec::new(), None, VecDeque::new());
    loop {
        while let Some(op) = end.next_op() {
            let head = end.machine.head().to_vec();
            told.push(format!("{op:?} {head:?}"));
            match op {
                QpOp::Body if head[0] & 1 != 0 => end.machine.drop_body(),
                QpOp::Body => {
                    end.set_memory(BODY, vec![BLANK; BODY_MAX as usize]);
                    end.machine.body_into(BODY);
                    end.machine
                        .prepared(BODY, BODY_MAX - u32::from(head[0] >> 2));
                }
                QpOp::Fatal(why) => {
                    assert_eq!(fatal.replace(why), None, "it is told once");
                }
                _ => assert_eq!(fatal, None, "nothing is told behind the end"),
            }
        }
        end.transmit(&mut out, usize::MAX);
        if end.receive(&mut stream, step) == 0 && !end.machine.has_step() {
            break;
        }
    }
    assert!(stream.is_empty(), "all bytes are taken");
    assert_eq!(end.machine.is_finished(), fatal.is_some());
    check_sent(&rig.peer.cut(&mut out), fatal);
    check_memory(&end.memory);
    (told, end.memory.clone())
}

/// One Terminate, which is the last, for each mistake.
fn check_sent(ulpdus: &[Vec<u8>], fatal: Option<QpError>) {
    let is_terminate = |ulpdu: &Vec<u8>| ulpdu[1] & rdmap_control::OPCODE_MASK == 7;
    let terminates = ulpdus.iter().filter(|ulpdu| is_terminate(ulpdu)).count();
    let is_sent = matches!(fatal, Some(QpError::Sent(_)));
    assert_eq!(terminates, usize::from(is_sent));
    assert!(!is_sent || ulpdus.last().is_some_and(is_terminate));
}

/// Nothing is written that was not to be.
fn check_memory(memory: &[Vec<u8>]) {
    let is_blank = |bytes: &[u8]| bytes.iter().all(|byte| *byte == BLANK);
    assert!(is_blank(&memory[0]) && is_blank(&memory[usize::from(READABLE)]));
    for tag in [WRITABLE, SINK] {
        let bytes = &memory[usize::from(tag)];
        assert!(is_blank(&bytes[..OFFSET as usize]) && is_blank(&bytes[(OFFSET + LEN) as usize..]));
    }
}
