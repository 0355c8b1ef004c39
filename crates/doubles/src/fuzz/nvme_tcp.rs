//! Any host against a controller's machine, and any controller against a host's.
//!
//! An input is 4 bytes of configuration and seed, then records: a mode, a
//! length (16 bits, little endian) and so many bytes. In a raw record the bytes
//! are the stream; in a framed one they are a PDU whose lengths, flags and
//! digests are made right first, so that what lies behind those checks is
//! reached.

use std::collections::VecDeque;
use std::sync::Arc;

use machine::Machine;
use nvmf::command::{AnaState, Geometry};
use nvmf::host::{Data, HostRole};
use nvmf::queue::{AbortOutcome, ControllerEnd as _, InBandAuthentication, Op, Role};
use nvmf::tcp::{FatalError, controller, host};
use random::Random;
use testkit::End;
use testkit::nvme::{Pdus, cut};
use wire::nvme::{ConnectCommand, Sgl, Sqe, io};
use wire::nvme_tcp::pdu_type;

use crate::nvme::ControllerDouble;

const BLOCKS: u64 = 64;
/// Rounds without progress after which nothing more will come.
const IDLE_ROUNDS: u32 = 64;

/// The stream that an input of the controller's target stands for, and whether
/// it begins behind Connect, for hosts that send it to a target on a socket. It
/// has digests as [`Pdus`] says.
pub fn host_stream(input: &[u8]) -> Option<(bool, Pdus, Vec<u8>)> {
    let (config, _, records) = config(input)?;
    let pdus = digests(config);
    Some((config & 0x10 != 0, pdus, stream(records, pdus).into()))
}

/// The digests of a configuration.
fn digests(config: u8) -> Pdus {
    Pdus {
        header_digest: config & 1 != 0,
        data_digest: config & 2 != 0,
    }
}

/// Splits the configuration off.
fn config(input: &[u8]) -> Option<(u8, Random, &[u8])> {
    let (config, records) = input.split_first_chunk::<4>()?;
    Some((
        config[0],
        Random::new(u64::from(u32::from_le_bytes(*config))),
        records,
    ))
}

/// The stream that `records` stand for.
fn stream(mut records: &[u8], pdus: Pdus) -> VecDeque<u8> {
    let mut stream = VecDeque::new();
    while let Some((&[mode, low, high], rest)) = records.split_first_chunk::<3>() {
        let len = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (bytes, rest) = rest.split_at(len);
        records = rest;
        match bytes.first() {
            Some(kind) if mode & 1 != 0 => stream.extend(framed(*kind, bytes, pdus)),
            _ => stream.extend(bytes),
        }
    }
    stream
}

fn framed(kind: u8, bytes: &[u8], pdus: Pdus) -> Vec<u8> {
    let (hlen, pdus) = match kind {
        pdu_type::IC_REQ | pdu_type::IC_RESP => (128, Pdus::default()),
        pdu_type::CAPSULE_CMD => (72, pdus),
        pdu_type::H2C_TERM_REQ | pdu_type::C2H_TERM_REQ => (24, Pdus::default()),
        _ => (24, pdus),
    };
    let mut header = bytes[..bytes.len().min(hlen)].to_vec();
    header.resize(hlen, 0);
    header[2] = hlen as u8;
    let data = &bytes[bytes.len().min(hlen)..];
    if matches!(kind, pdu_type::H2C_DATA | pdu_type::C2H_DATA) {
        header[16..20].copy_from_slice(&(data.len() as u32).to_le_bytes());
    }
    pdus.pdu(&header, data)
}

/// Any bytes behind the handshake, all at once and one by one: a machine says the same of
/// both. Nothing is answered, so that what it says follows from the bytes alone.
pub fn pdu(input: &[u8]) {
    let Some((config, _, bytes)) = config(input) else {
        return;
    };
    let of_controller = |step| {
        let mut target = target(config);
        connect(&mut target, digests(config), 0, &mut VecDeque::new());
        said(&mut target.end, bytes, step, |end, mut op| {
            if let Op::Prepare { staged, .. } = &mut op {
                // This alone is about how the bytes came.
                *staged = false;
            }
            let command = match op {
                Op::Prepare { tag, .. } | Op::Execute { tag } => Some(tag),
                Op::ExecuteFused { write, .. } => Some(write),
                Op::Forgotten { .. } | Op::Refused(_) | Op::QueueAsked { .. } | Op::Fatal(_) => {
                    None
                }
            };
            let command = command.map(|tag| end.machine.queue().command(tag));
            format!("{op:?} {command:?}")
        })
    };
    assert_eq!(of_controller(usize::MAX), of_controller(1));
    let of_host = |step| {
        let mut end = End::new(host::Qpair::new(host_settings(config)));
        let handshake = digests(config).ic_resp(0, 4096);
        said(&mut end, &handshake, usize::MAX, |end, op| {
            attach(end, config);
            let data = [Data::In(4096), Data::Out(4096)];
            for (opcode, data) in [io::READ, io::WRITE].into_iter().zip(data) {
                let tag = end.machine.submit(&Sqe::new(opcode), data);
                end.set_memory(tag.expect("room"), vec![7; 4096]);
            }
            format!("{op:?}")
        });
        said(&mut end, bytes, step, |_, op| format!("{op:?}"))
    };
    assert_eq!(of_host(usize::MAX), of_host(1));
}

/// What a machine says of `bytes` that come `step` at a time, as `tell` puts it.
fn said<M: Machine>(
    end: &mut End<M>,
    bytes: &[u8],
    step: usize,
    tell: impl Fn(&mut End<M>, M::Op) -> String,
) -> Vec<String> {
    let mut stream = bytes.to_vec().into();
    let mut said = Vec::new();
    while end.receive(&mut stream, step) > 0 {
        while let Some(op) = end.next_op() {
            said.push(tell(end, op));
        }
    }
    said
}

/// Any host against the controller's machine.
pub fn controller(input: &[u8]) {
    let Some((config, mut random, records)) = config(input) else {
        return;
    };
    let pdus = digests(config);
    let mut target = target(config);
    let mut out = VecDeque::new();
    if config & 0x10 != 0 {
        connect(&mut target, pdus, u32::from(config >> 6), &mut out);
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
            target.take_ops();
            idle = 0;
        }
        if !target.starved.is_empty() && random.one_in(2) {
            target.feed(random.below(target.starved.len() as u64) as usize);
        }
        if !target.work.is_empty() && random.one_in(2) {
            target.execute(random.below(target.work.len() as u64) as usize);
        }
        if !target.fused.is_empty() && random.one_in(2) {
            target.execute_fused(random.below(target.fused.len() as u64) as usize);
        }
        if random.one_in(2) {
            target.transmit(&mut out, 1 + random.below(4) as usize);
        }
        if disturbs && random.one_in(8) {
            disturb(&mut target, &mut random);
        }
    }
    target.serve(&mut stream, &mut out);
    assert!(stream.is_empty(), "all bytes are taken");
    check_controller(&target, &cut(&mut out));
}

/// What must be true of a controller's machine that has taken all bytes.
fn check_controller(target: &ControllerDouble, sent: &[(u8, Vec<u8>)]) {
    let terms = sent
        .iter()
        .filter(|(kind, _)| *kind == pdu_type::C2H_TERM_REQ)
        .count();
    match target.fatal {
        Some(FatalError::Sent { .. }) => {
            assert_eq!(terms, 1);
            assert_eq!(
                sent.last().expect("the termination request").0,
                pdu_type::C2H_TERM_REQ
            );
            assert!(target.end.machine.is_finished());
        }
        _ => assert_eq!(terms, 0),
    }
    for (kind, _) in sent {
        assert!(matches!(
            *kind,
            pdu_type::IC_RESP
                | pdu_type::C2H_TERM_REQ
                | pdu_type::CAPSULE_RESP
                | pdu_type::C2H_DATA
                | pdu_type::R2T
        ));
    }
    if !target.end.machine.is_finished() {
        // What is left waits for data that the host owes.
        let named = target.named.iter().filter(|named| **named).count();
        assert_eq!(target.end.machine.queue().in_flight(), named);
    }
}

/// What other connections do to this one: an Abort, a live change.
fn disturb(target: &mut ControllerDouble, random: &mut Random) {
    if random.one_in(2) {
        let outcome = target.end.machine.abort(random.below(16) as u16);
        if let AbortOutcome::Executing(tag) = outcome {
            match target
                .fused
                .iter()
                .position(|pair| pair.0 == tag || pair.1 == tag)
            {
                Some(index) => target.execute_fused(index),
                None => target.forget(tag),
            }
        }
    } else {
        let change = Geometry {
            read_only: random.one_in(3),
            instance: random.below(3) as u32,
            block_count: BLOCKS - random.below(2) * 8,
            ana: [AnaState::Optimized, AnaState::Inaccessible][usize::from(random.one_in(4))],
            ..geometry(u32::from(!random.one_in(4)))
        };
        target.set_namespaces(Arc::new([change, geometry(2)]));
    }
}

fn geometry(nsid: u32) -> Geometry {
    Geometry {
        nsid,
        block_shift: 9,
        read_only: nsid == 2,
        ana: AnaState::Optimized,
        instance: 0,
        block_count: BLOCKS,
    }
}

fn target(config: u8) -> ControllerDouble {
    let settings = controller::Settings {
        io_bytes_max: 16_384,
        maxh2cdata: 4096,
        r2t_bytes_max: 1024,
        ..controller::Settings::default()
    };
    let role = Role {
        qid: u16::from(config & 4 == 0),
        entries: 16,
        flow_control_disabled: config & 8 == 0,
        namespaces: Arc::new([geometry(1), geometry(2)]),
        authentication: InBandAuthentication::None,
    };
    let media = vec![0xa5; BLOCKS as usize * 512];
    ControllerDouble::new(controller::Qpair::new(settings, 0), role, media)
}

fn connect(target: &mut ControllerDouble, pdus: Pdus, maxr2t: u32, out: &mut VecDeque<u8>) {
    let connect = ConnectCommand {
        recfmt: 0,
        qid: 1,
        sqsize: 15,
        cattr: 4,
        kato_ms: 0,
    };
    let sqe = Sqe {
        sgl: Sgl::new(Sgl::IN_CAPSULE, 1024),
        ..connect.encode()
    };
    target.serve(&mut pdus.ic_req_with(0, maxr2t).into(), out);
    target.serve(&mut pdus.capsule_cmd(&sqe, &[0; 1024]).into(), out);
    assert_eq!(cut(out).len(), 2);
}

/// Any controller against the host's machine.
pub fn host(input: &[u8]) {
    let Some((config, mut random, records)) = config(input) else {
        return;
    };
    let pdus = digests(config);
    let mut end = End::new(host::Qpair::new(host_settings(config)));
    let mut out = VecDeque::new();
    let mut stream = stream(records, pdus);
    if config & 0x10 != 0 {
        pdus.ic_resp(0, 4096)
            .into_iter()
            .rev()
            .for_each(|byte| stream.push_front(byte));
    }
    let mut in_flight = vec![None; 8];
    let mut fatal = None;
    let mut idle = 0;
    while idle < IDLE_ROUNDS {
        idle += 1;
        if end.receive(&mut stream, 1 + random.below(600) as usize) > 0 {
            idle = 0;
        }
        while let Some(op) = end.next_op() {
            match op {
                host::Op::Ready => attach(&mut end, config),
                host::Op::Completed { tag, cqe } => {
                    let len: u32 = in_flight[usize::from(tag)]
                        .take()
                        .expect("it was in flight");
                    assert!(cqe.data_len <= len);
                }
                host::Op::Fatal(error) => fatal = Some(error),
            }
        }
        if random.one_in(2) {
            submit(&mut end, &mut random, &mut in_flight);
        }
        if random.one_in(2) {
            end.transmit(&mut out, 1 + random.below(3) as usize);
        }
    }
    end.transmit(&mut out, usize::MAX);
    assert!(stream.is_empty(), "all bytes are taken");
    let is_term = |pdu: &&(u8, Vec<u8>)| pdu.0 == pdu_type::H2C_TERM_REQ;
    let terms = cut(&mut out).iter().filter(is_term).count();
    let broken = matches!(fatal, Some(FatalError::Sent { .. }));
    assert_eq!(
        (terms, end.machine.is_finished()),
        (usize::from(broken), fatal.is_some())
    );
    if fatal.is_none() {
        let expected = in_flight.iter().filter(|len| len.is_some()).count();
        assert_eq!(end.machine.in_flight(), expected);
    }
}

fn host_settings(config: u8) -> host::Settings {
    let pdus = digests(config);
    host::Settings {
        header_digest: pdus.header_digest,
        data_digest: pdus.data_digest,
        hpda: [0, 0, 2, 31][usize::from(config >> 5) % 4],
        maxr2t: u32::from(config >> 6),
        part_in_capsule: config & 4 != 0,
    }
}

fn attach(end: &mut End<host::Qpair>, config: u8) {
    end.machine.attach(HostRole {
        entries: 8,
        in_capsule_max: 1024,
        flow_control_disabled: config & 8 == 0,
    });
}

fn submit(end: &mut End<host::Qpair>, random: &mut Random, in_flight: &mut [Option<u32>]) {
    let len = [512, 4096, 12_288][random.below(3) as usize];
    let (opcode, data) = match random.below(3) {
        0 => (io::READ, Data::In(len)),
        1 => (io::WRITE, Data::Out(len)),
        _ => (io::FLUSH, Data::None),
    };
    if let Some(tag) = end.machine.submit(&Sqe::new(opcode), data) {
        end.set_memory(tag, vec![random.below(256) as u8; len as usize]);
        let expects = if let Data::In(len) = data { len } else { 0 };
        let before = in_flight[usize::from(tag)].replace(expects);
        assert_eq!(before, None, "a tag was given twice");
    }
}
