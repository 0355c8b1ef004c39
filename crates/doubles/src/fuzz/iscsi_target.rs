//! Any initiator against a target's machine.
//!
//! An input is 4 bytes of configuration and seed, then records: a mode, a
//! length (16 bits, little endian) and so many bytes. In a raw record (bit 0 of
//! the mode is 0) the bytes are the stream; in a framed one they are a PDU whose
//! lengths and digests are made right first, and with bit 1 its CmdSN too, so
//! that what lies behind those checks is reached.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use iscsi::accepted::AcceptedConnection;
use iscsi::target::{ConnectionRole, FatalError, TargetSettings};
use iscsi::{Negotiated, Session};
use machine::Machine;
use random::Random;
use testkit::iscsi::{Pdu, Pdus};
use wire::iscsi::{BHS_LEN, TAG_NONE, opcode, padded};

use crate::iscsi::{BLOCK, TargetDouble};

const BLOCKS: usize = 64;
const CMD_SN: u32 = 0xffff_fff8;
/// Rounds without progress after which nothing more will come.
const IDLE_ROUNDS: u32 = 64;

/// Splits the configuration off.
fn config(input: &[u8]) -> Option<(u8, Random, &[u8])> {
    let (config, records) = input.split_first_chunk::<4>()?;
    let random = Random::new(u64::from(u32::from_le_bytes(*config)));
    Some((config[0], random, records))
}

/// The values of a configuration's keys.
fn negotiated(config: u8) -> Negotiated {
    Negotiated {
        header_digest: config & 1 != 0,
        data_digest: config & 2 != 0,
        max_recv_data_segment_length: 4096,
        max_send_data_segment_length: 1024,
        initial_r2t: config & 4 != 0,
        immediate_data: config & 8 == 0,
        first_burst_length: 2048,
        max_burst_length: 4096,
        max_outstanding_r2t: 3,
        error_recovery_level: config >> 6 & 1,
        ..Negotiated::default()
    }
}

/// The stream that `records` stand for.
fn stream(mut records: &[u8], pdus: Pdus) -> VecDeque<u8> {
    let mut stream = VecDeque::new();
    let mut cmd_sn = CMD_SN;
    while let Some((&[mode, low, high], rest)) = records.split_first_chunk::<3>() {
        let len = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (bytes, rest) = rest.split_at(len);
        records = rest;
        if mode & 1 == 0 || bytes.is_empty() {
            stream.extend(bytes);
            continue;
        }
        let mut header = bytes[..len.min(BHS_LEN)].to_vec();
        header.resize(BHS_LEN, 0);
        let is_login = header[0] & 0x3f == opcode::LOGIN_REQUEST;
        let has_cmd_sn = !matches!(header[0] & 0x3f, opcode::DATA_OUT | opcode::SNACK);
        if mode & 2 != 0 && has_cmd_sn {
            header[24..28].copy_from_slice(&cmd_sn.to_be_bytes());
            if header[0] & 0x40 == 0 && !is_login {
                cmd_sn = cmd_sn.wrapping_add(1);
            }
        }
        let data = &bytes[len.min(BHS_LEN)..];
        let ahs = usize::from(mode >> 4).min(data.len() / 4) * 4;
        let (ahs, data) = data.split_at(ahs);
        let pdus = if is_login { Pdus::default() } else { pdus };
        stream.extend(pdus.pdu_with(&header, ahs, data));
    }
    stream
}

/// A target as a configuration has it, its media all alike.
fn target(config: u8) -> (TargetDouble, Pdus) {
    let negotiated = negotiated(config);
    let role = ConnectionRole {
        session: Rc::new(RefCell::new(Session::new(CMD_SN, 8, config & 0x80 != 0))),
        negotiated,
        cid: 0,
        nop_interval: 0,
        nop_timeout: 0,
    };
    let machine = AcceptedConnection::new(TargetSettings::default(), None, 0, 0);
    let mut target = TargetDouble::new(machine, role, vec![0xa5; BLOCKS * BLOCK]);
    target.text_answer = (0..3000).map(|byte| byte as u8).collect();
    let pdus = Pdus {
        header_digest: negotiated.header_digest,
        data_digest: negotiated.data_digest,
    };
    (target, pdus)
}

/// Any initiator against the target's machine.
pub fn iscsi_target(input: &[u8]) {
    let Some((config, mut random, records)) = config(input) else {
        return;
    };
    let (mut target, pdus) = target(config);
    let mut out = VecDeque::new();
    if config & 0x10 != 0 {
        target.serve(&mut pdus.login(CMD_SN, 0, b"").into(), &mut out);
    }
    let mut stream = stream(records, pdus);
    let disturbs = config & 0x20 != 0;
    let mut idle = 0;
    while idle < IDLE_ROUNDS {
        idle += 1;
        if target
            .end
            .receive(&mut stream, 1 + random.below(600) as usize)
            > 0
        {
            idle = 0;
        }
        if idle == 0 || target.end.machine.has_step() {
            target.take_ops();
        }
        turn(&mut target, &mut random, disturbs);
        if random.one_in(2) {
            target.transmit(&mut out, 1 + random.below(4) as usize);
        }
    }
    target.serve(&mut stream, &mut out);
    check(&target, &stream, &pdus.cut(&mut out), config);
}

/// Does some of what there is to do.
fn turn(target: &mut TargetDouble, random: &mut Random, disturbs: bool) {
    if !target.starved.is_empty() && random.one_in(2) {
        let index = random.below(target.starved.len() as u64) as usize;
        match disturbs && random.one_in(8) {
            true => target.starve(index),
            false => target.feed(index),
        }
    }
    if !target.work.is_empty() && random.one_in(2) {
        target.execute(random.below(target.work.len() as u64) as usize);
    }
    if !target.functions.is_empty() && random.one_in(2) {
        target.manage(random.below(target.functions.len() as u64) as usize);
    }
    if disturbs && random.one_in(8) {
        let tags: Vec<_> = target.end.machine.tasks().map(|(tag, _)| tag).collect();
        if !tags.is_empty() {
            target.abort(tags[random.below(tags.len() as u64) as usize]);
        }
    }
    if disturbs && random.one_in(16) {
        target.end.machine.ping();
        let depth = 4 + random.below(8) as u16;
        target.session().borrow_mut().set_queue_depth(depth);
    }
}

/// What must be true of a target's machine that has taken all bytes.
fn check(target: &TargetDouble, stream: &VecDeque<u8>, sent: &[Pdu], config: u8) {
    let machine = &target.end.machine;
    assert!(stream.is_empty(), "all bytes are taken");
    if let Some(error) = target.fatal {
        assert!(machine.is_finished(), "{error}");
    }
    if let Some(FatalError::NoLogin { .. }) = target.fatal {
        assert!(
            sent.iter()
                .all(|pdu| pdu.bhs.opcode() == opcode::LOGIN_RESPONSE)
        );
    }
    let mut stat_sn = None;
    for pdu in sent {
        assert!(pdu.bhs.opcode() >= 0x20, "what targets send");
        assert!(padded(pdu.data.len() as u32) <= 8192);
        if config & 0x40 == 0 && has_status(pdu) {
            let [_, _, _, _, a, b, c, d, ..] = pdu.bhs.specific20;
            let found = u32::from_be_bytes([a, b, c, d]);
            let expected = stat_sn.replace(found.wrapping_add(1));
            assert!(expected.is_none_or(|expected| expected == found), "StatSN");
        }
    }
    let is_over = machine.is_finished();
    let named = target.named.iter().filter(|named| **named).count();
    if !is_over && config & 0x40 == 0 {
        // What is left waits for data that the initiator owes.
        assert!(machine.in_flight() >= named);
    }
}

/// Whether a PDU uses up a StatSN.
fn has_status(pdu: &Pdu) -> bool {
    match pdu.bhs.opcode() {
        opcode::R2T => false,
        opcode::DATA_IN => pdu.bhs.flags & wire::iscsi::flags::STATUS != 0,
        opcode::NOP_IN => pdu.bhs.itt.get() != TAG_NONE,
        _ => true,
    }
}
