//! The machine of a queue pair of a controller on NVMe/TCP, driven by hand.

#![forbid(unsafe_code)]

mod abort;
mod events;
mod fused;
mod malformed;
mod r2t;

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};

use doubles::nvme::ControllerDouble;
use machine::{Machine, RecvPlan, Tag};
use nvmf::command::{AnaState, Command, Geometry, Io, IoKind};
use nvmf::queue::{
    AbortOutcome, ControllerEnd as _, Done, InBandAuthentication, RefusedCommand, Role,
};
use nvmf::tcp::FatalError;
use nvmf::tcp::controller::{Op, Qpair, Settings};
use proptest::prelude::*;
use random::Random;
use testkit::nvme::{Pdus, cut};
use wire::nvme::{
    ConnectCommand, Disconnect, DsmRange, FABRICS, PropertyGet, PropertySet, Sgl, Sqe, Status,
    admin, cdw12, fctype, io,
};
use wire::nvme_tcp::{CapsuleResp, DGST_DATA, Fes, TermReq, flags, pdu_type};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

// What a receive stages at most, and where large payload comes.
const STAGE_LARGE: u32 = 256 * 1024;
const STAGE_HEADERS: u32 = 76 + 28;

const BLOCK: usize = 512;
const BLOCKS: usize = 1024;
const IO_BYTES_MAX: u32 = 256 * 1024;
const MAXH2CDATA: u32 = 16 * 1024;

fn settings() -> Settings {
    Settings {
        io_bytes_max: IO_BYTES_MAX,
        maxh2cdata: MAXH2CDATA,
        handshake_timeout: 1000,
        ..Settings::default()
    }
}

fn role(qid: u16, flow_control_disabled: bool) -> Role {
    let geometry = |nsid, read_only| Geometry {
        nsid,
        block_shift: 9,
        read_only,
        ana: AnaState::Optimized,
        instance: 0,
        block_count: BLOCKS as u64,
    };
    let namespaces = Arc::new([geometry(1, false), geometry(2, true)]);
    Role {
        qid,
        entries: 8,
        flow_control_disabled,
        namespaces,
        authentication: InBandAuthentication::None,
    }
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.below(256) as u8).collect()
}

fn connect_sqe() -> Sqe {
    let connect = ConnectCommand {
        recfmt: 0,
        qid: 1,
        sqsize: 7,
        cattr: 4,
        kato_ms: 0,
    };
    Sqe {
        cid: 77.into(),
        sgl: Sgl::new(Sgl::IN_CAPSULE, 1024),
        ..connect.encode()
    }
}

fn sqe(opcode: u8, cid: u16, sgl: (u8, u32)) -> Sqe {
    let sgl = Sgl::new(sgl.0, sgl.1);
    Sqe {
        cid: cid.into(),
        nsid: 1.into(),
        sgl,
        ..Sqe::new(opcode)
    }
}

fn rw(opcode: u8, cid: u16, slba: u64, blocks: u32, sgl_id: u8) -> Sqe {
    let mut sqe = sqe(opcode, cid, (sgl_id, blocks * BLOCK as u32));
    sqe.set_blocks(slba, blocks);
    sqe
}

/// A host that writes its own bytes, against a target.
struct Peer {
    target: ControllerDouble,
    out: VecDeque<u8>,
    pdus: Pdus,
}

impl Peer {
    fn fresh(qid: u16, flow_control_disabled: bool) -> Peer {
        let machine = Qpair::new(settings(), 5);
        static MEDIA: LazyLock<Vec<u8>> = LazyLock::new(|| pattern(1, BLOCKS * BLOCK));
        let media = MEDIA.clone();
        let target = ControllerDouble::new(machine, role(qid, flow_control_disabled), media);
        Peer {
            target,
            out: VecDeque::new(),
            pdus: Pdus::default(),
        }
    }

    fn live(qid: u16, flow_control_disabled: bool, pdus: Pdus) -> Peer {
        let mut peer = Peer::fresh(qid, flow_control_disabled);
        peer.pdus = pdus;
        let answers = peer.send(&pdus.ic_req(0));
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].1[11], pdus.dgst());
        let answers = peer.send(&pdus.capsule_cmd(&connect_sqe(), &[9; 1024]));
        assert_eq!(status(&answers[0].1), (77, Status::SUCCESS));
        peer
    }

    fn io() -> Peer {
        Peer::live(1, true, Pdus::default())
    }

    /// Sends and lets the target do everything there is to do.
    fn send(&mut self, bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
        self.target
            .serve(&mut bytes.iter().copied().collect(), &mut self.out);
        cut(&mut self.out)
    }

    /// Sends and lets the target look at it, but do nothing.
    fn push(&mut self, bytes: &[u8]) {
        let mut stream: VecDeque<u8> = bytes.iter().copied().collect();
        while self.target.end.receive(&mut stream, usize::MAX) > 0 {
            self.target.take_ops();
        }
        assert!(stream.is_empty());
    }

    fn transmit(&mut self, pdus_max: usize) -> Vec<(u8, Vec<u8>)> {
        self.target.transmit(&mut self.out, pdus_max);
        cut(&mut self.out)
    }

    fn command(&mut self, sqe: &Sqe, data: &[u8]) -> Vec<(u8, Vec<u8>)> {
        self.send(&self.pdus.capsule_cmd(sqe, data))
    }

    fn status_of(&mut self, sqe: &Sqe, data: &[u8]) -> Status {
        let answers = self.command(sqe, data);
        assert_eq!(answers.len(), 1, "{answers:?}");
        status(&answers[0].1).1
    }

    fn in_flight(&self) -> usize {
        self.target.end.machine.queue().in_flight()
    }
}

/// The header at the start of a PDU.
fn view<T: FromBytes + KnownLayout + Immutable + Unaligned>(bytes: &[u8]) -> &T {
    T::ref_from_prefix(bytes).expect("a whole header").0
}

fn status(capsule_resp: &[u8]) -> (u16, Status) {
    assert_eq!(capsule_resp[0], pdu_type::CAPSULE_RESP);
    let cqe = &view::<CapsuleResp>(capsule_resp).cqe;
    (cqe.cid.get(), cqe.status())
}

fn sqhd(capsule_resp: &[u8]) -> u16 {
    view::<CapsuleResp>(capsule_resp).cqe.sqhd.get()
}

#[test]
fn ic_resp_is_as_the_standard_has_it() {
    let mut peer = Peer::fresh(1, true);
    let wanted = Pdus {
        header_digest: true,
        data_digest: true,
    };
    let answers = peer.send(&wanted.ic_req(3));
    let mut expected = vec![1, 0, 128, 0, 128, 0, 0, 0, 0, 0, 0, 3, 0, 0x40, 0, 0];
    expected.resize(128, 0);
    assert_eq!(answers, [(pdu_type::IC_RESP, expected)]);

    let only_data = Settings {
        header_digest: false,
        ..settings()
    };
    let target = ControllerDouble::new(Qpair::new(only_data, 0), role(1, true), Vec::new());
    let mut peer = Peer {
        target,
        ..Peer::fresh(1, true)
    };
    assert_eq!(peer.send(&wanted.ic_req(0))[0].1[11], DGST_DATA);
}

#[test]
fn a_read_is_one_c2h_data_pdu() {
    let mut peer = Peer::io();
    let answers = peer.command(&rw(io::READ, 0x1234, 8, 2, Sgl::TRANSPORT), &[]);
    let mut expected = vec![
        7, 0x0c, 24, 24, 0x18, 4, 0, 0, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 0, 4,
    ];
    expected.resize(24, 0);
    expected.extend(&peer.target.media[8 * BLOCK..10 * BLOCK]);
    assert_eq!(answers, [(pdu_type::C2H_DATA, expected)]);
    assert_eq!(peer.in_flight(), 0);
}

#[test]
fn flow_control_wants_a_response_with_sqhd() {
    let mut peer = Peer::live(1, false, Pdus::default());
    for n in 2..20 {
        let answers = peer.command(&rw(io::READ, n, 0, 1, Sgl::TRANSPORT), &[]);
        assert_eq!(answers.len(), 2);
        assert_eq!(answers[0].1[1], flags::LAST_PDU, "no SUCCESS flag");
        assert_eq!(status(&answers[1].1), (n, Status::SUCCESS));
        assert_eq!(sqhd(&answers[1].1), n % 8, "Connect was the first");
    }
    let mut peer = Peer::io();
    let answers = peer.command(&sqe(io::FLUSH, 1, (Sgl::TRANSPORT, 0)), &[]);
    assert_eq!(sqhd(&answers[0].1), 0xffff);
}

#[test]
fn a_result_or_a_failure_wants_a_response() {
    let mut peer = Peer::io();
    for (status, result, data_len, pdus) in [
        (Status::SUCCESS, 1, 512, 2),
        (Status::SUCCESS, 0, 512, 1),
        (Status::SUCCESS, 0, 0, 1),
        (Status::UNRECOVERED_READ, 0, 512, 1),
    ] {
        peer.push(&Pdus::default().capsule_cmd(&rw(io::READ, 1, 0, 1, Sgl::TRANSPORT), &[]));
        let (tag, _) = peer.target.work.pop().unwrap();
        peer.target.end.set_memory(tag, vec![7; 512]);
        peer.target.end.machine.complete(
            tag,
            Done {
                status,
                result,
                data_len,
            },
        );
        let answers = peer.transmit(9);
        assert_eq!(answers.len(), pdus);
        if status == Status::UNRECOVERED_READ || pdus == 2 {
            let (cid, told) = self::status(&answers.last().unwrap().1);
            assert_eq!((cid, told), (1, status));
        }
    }
}

#[test]
fn data_to_the_host_is_aligned_as_it_asked() {
    for (hpda, header_digest, pdo) in [
        (0, false, 24),
        (1, true, 32),
        (3, false, 32),
        (31, true, 128),
    ] {
        let pdus = Pdus {
            header_digest,
            data_digest: true,
        };
        let mut peer = Peer::fresh(1, true);
        peer.pdus = pdus;
        peer.send(&pdus.ic_req(hpda));
        peer.command(&connect_sqe(), &[0; 1024]);
        let answers = peer.command(&rw(io::READ, 1, 0, 1, Sgl::TRANSPORT), &[]);
        let bytes = &answers[0].1;
        assert_eq!((usize::from(bytes[3]), bytes.len()), (pdo, pdo + 512 + 4));
        assert_eq!(bytes[pdo..pdo + 512], peer.target.media[..512]);
    }
}

#[test]
fn in_capsule_and_r2t_writes() {
    let mut peer = Peer::io();
    let small = pattern(2, 8192);
    let write = rw(io::WRITE, 1, 0, 16, Sgl::IN_CAPSULE);
    assert_eq!(peer.status_of(&write, &small), Status::SUCCESS);
    assert_eq!(peer.target.media[..8192], small);

    let large = pattern(3, 40_960);
    let answers = peer.command(&rw(io::WRITE, 2, 100, 80, Sgl::TRANSPORT), &[]);
    let mut expected = vec![9, 0, 24, 0, 24, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0xa0];
    expected.resize(24, 0);
    assert_eq!(
        answers,
        [(pdu_type::R2T, expected)],
        "the whole transfer at once"
    );
    for (n, piece) in large.chunks(MAXH2CDATA as usize).enumerate() {
        let flags = if n == 2 { flags::LAST_PDU } else { 0 };
        let offset = n as u32 * MAXH2CDATA;
        let answers = peer.send(
            &peer
                .pdus
                .data(pdu_type::H2C_DATA, flags, (2, 0), offset, piece),
        );
        assert_eq!(answers.len(), usize::from(n == 2));
    }
    assert_eq!(peer.target.media[51_200..51_200 + 40_960], large);
    assert_eq!(peer.in_flight(), 0);
}

#[test]
fn large_payload_bypasses_staging() {
    let mut peer = Peer::io();
    let large = pattern(3, 131_072);
    let mut stream = VecDeque::new();
    for cid in 0..4 {
        peer.command(
            &rw(io::WRITE, cid, 256 * u64::from(cid), 256, Sgl::TRANSPORT),
            &[],
        );
    }
    assert_eq!(peer.target.end.machine.recv_plan().stage_max, STAGE_HEADERS);
    // The last slot freed is the next one taken: tag 0, then fresh ones.
    for cid in 0..4u16 {
        for (n, piece) in large.chunks(MAXH2CDATA as usize).enumerate() {
            let flags = if n == 7 { flags::LAST_PDU } else { 0 };
            let offset = n as u32 * MAXH2CDATA;
            stream.extend(
                peer.pdus
                    .data(pdu_type::H2C_DATA, flags, (cid, cid), offset, piece),
            );
        }
    }
    let before = (peer.target.end.placed_bytes, peer.target.end.direct_bytes);
    peer.target.serve(&mut stream, &mut peer.out);
    assert_eq!(cut(&mut peer.out).len(), 4);
    let placed = peer.target.end.placed_bytes - before.0;
    assert_eq!(
        placed + peer.target.end.direct_bytes - before.1,
        4 * 131_072
    );
    assert!(placed <= 32 * 80, "{placed} of 524288 bytes staged");
    assert_eq!(peer.target.end.machine.recv_plan().stage_max, STAGE_LARGE);
    for cid in 0..4 {
        assert!(peer.target.media[cid * 131_072..][..131_072] == large[..]);
    }
}

#[test]
fn other_commands_reach_the_driver() {
    let mut peer = Peer::io();
    let mut zeroes = rw(io::WRITE_ZEROES, 1, 4, 2, Sgl::TRANSPORT);
    zeroes.cdw12 = (zeroes.cdw12.get() | cdw12::DEAC | cdw12::FUA).into();
    peer.push(&peer.pdus.capsule_cmd(&zeroes, &[]));
    let expected = Io {
        kind: IoKind::WriteZeroes,
        namespace: 0,
        offset: 2048,
        len: 1024,
        fua: true,
        deallocate: true,
        copy_format: 0,
    };
    assert_eq!(peer.target.work, [(0, Command::Io(expected))]);
    assert_eq!(peer.send(&[]).len(), 1);
    assert_eq!(peer.target.media[2048..3072], [0; 1024]);

    let range = DsmRange {
        cattr: 0.into(),
        length_blocks: 3.into(),
        slba: 100.into(),
    };
    let mut data = range.as_bytes().to_vec();
    data.resize(4096, 0xff);
    let mut trim = sqe(io::DATASET_MANAGEMENT, 2, (Sgl::IN_CAPSULE, 4096));
    assert_eq!(
        peer.status_of(&trim, &data),
        Status::SUCCESS,
        "hints only, data skipped"
    );
    assert_ne!(peer.target.media[51_200..51_200 + 1536], [0; 1536]);
    trim.cdw11 = 4.into();
    assert_eq!(peer.status_of(&trim, &data), Status::SUCCESS);
    assert_eq!(peer.target.media[51_200..51_200 + 1536], [0; 1536]);

    let same = peer.target.media[..512].to_vec();
    let compare = rw(io::COMPARE, 3, 0, 1, Sgl::IN_CAPSULE);
    assert_eq!(peer.status_of(&compare, &same), Status::SUCCESS);
    assert_eq!(peer.status_of(&compare, &[1; 512]), Status::COMPARE_FAILURE);
}

#[test]
fn admin_and_fabrics_commands() {
    let mut peer = Peer::live(0, true, Pdus::default());
    let answers = peer.command(&sqe(admin::IDENTIFY, 1, (Sgl::TRANSPORT, 4096)), &[]);
    assert_eq!(
        (answers[0].0, &answers[0].1[24..]),
        (pdu_type::C2H_DATA, &[6; 4096][..])
    );
    let feature = sqe(admin::SET_FEATURES, 2, (Sgl::TRANSPORT, 0));
    assert_eq!(
        peer.status_of(&feature, &[]),
        Status::SUCCESS,
        "an empty SGL is no data"
    );
    let get = PropertyGet {
        offset: 0x1c,
        is_8_bytes: false,
    }
    .encode();
    let answers = peer.command(&get, &[]);
    assert_eq!(view::<CapsuleResp>(&answers[0].1).cqe.result.get(), 0x1c);
    let set = PropertySet {
        offset: 0x14,
        is_8_bytes: false,
        value: 1,
    }
    .encode();
    assert_eq!(peer.status_of(&set, &[]), Status::SUCCESS);

    let mut bad_size = get;
    bad_size.cdw10 = 3.into();
    let mut unknown = get;
    unknown.nsid = 7.into();
    let mut of_no_secret = get;
    of_no_secret.nsid = u32::from(fctype::AUTHENTICATION_SEND).into();
    let mut prp = sqe(admin::IDENTIFY, 1, (Sgl::TRANSPORT, 4096));
    prp.flags = 0;
    for (name, sqe, status) in [
        ("property size", bad_size, Status::INVALID_FIELD),
        ("unknown", unknown, Status::INVALID_OPCODE),
        ("no secret", of_no_secret, Status::COMMAND_SEQUENCE),
        ("second Connect", connect_sqe(), Status::COMMAND_SEQUENCE),
        (
            "disconnect",
            Disconnect { recfmt: 0 }.encode(),
            Status::INVALID_QUEUE_TYPE,
        ),
        ("PRP", prp, Status::INVALID_FIELD),
        (
            "both ways",
            sqe(0xc3, 1, (Sgl::TRANSPORT, 4)),
            Status::INVALID_OPCODE,
        ),
        (
            "huge",
            sqe(admin::IDENTIFY, 1, (Sgl::TRANSPORT, IO_BYTES_MAX + 1)),
            Status::INVALID_FIELD,
        ),
    ] {
        assert_eq!(peer.status_of(&sqe, &[]), status.dnr(), "{name}");
    }
    let mut peer = Peer::io();
    assert_eq!(
        peer.status_of(&set, &[]),
        Status::INVALID_OPCODE.dnr(),
        "Admin Queue only"
    );
    let odd = Disconnect { recfmt: 1 }.encode();
    assert_eq!(peer.status_of(&odd, &[]), Status::CONNECT_FORMAT.dnr());
    assert!(!peer.target.end.machine.is_finished());
    let disconnect = Disconnect { recfmt: 0 }.encode();
    assert_eq!(peer.status_of(&disconnect, &[]), Status::SUCCESS);
    assert!(peer.target.end.machine.is_finished());
}

#[test]
fn refused_commands_cost_only_themselves() {
    let pdus = Pdus {
        header_digest: true,
        data_digest: true,
    };
    let mut peer = Peer::live(1, true, pdus);
    let mut offset = rw(io::WRITE, 1, 0, 1, Sgl::IN_CAPSULE);
    offset.sgl.address = 64.into();
    let mut short = rw(io::WRITE, 1, 0, 2, Sgl::IN_CAPSULE);
    short.sgl.length = 512.into();
    let mut longer = rw(io::WRITE, 1, 0, 1, Sgl::TRANSPORT);
    longer.sgl.length = 1024.into();
    let mut protected = rw(io::WRITE, 1, 0, 1, Sgl::IN_CAPSULE);
    protected.nsid = 2.into();
    let write = |blocks, id| rw(io::WRITE, 1, 0, blocks, id);
    for (name, sqe, data_len, expected) in [
        ("offset", offset, 512, Status::SGL_OFFSET_INVALID),
        (
            "SGL shorter than NLB",
            short,
            512,
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            "SGL longer than NLB",
            longer,
            0,
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            "capsule too short",
            write(2, Sgl::IN_CAPSULE),
            512,
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            "capsule too long",
            write(1, Sgl::IN_CAPSULE),
            1024,
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            "nothing in it",
            write(1, Sgl::IN_CAPSULE),
            0,
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            "more in the capsule than there is",
            write(1, Sgl::TRANSPORT),
            516,
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            "read with data in the capsule",
            rw(io::READ, 1, 0, 1, Sgl::TRANSPORT),
            512,
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            "flush with data",
            sqe(io::FLUSH, 1, (1, 512)),
            512,
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            "read in capsule",
            rw(io::READ, 1, 0, 1, 1),
            512,
            Status::SGL_TYPE_INVALID,
        ),
        ("keyed", write(1, 0x40), 0, Status::SGL_TYPE_INVALID),
        ("segment", write(1, 0x20), 512, Status::SGL_TYPE_INVALID),
        ("subtype", write(1, 0x5b), 0, Status::SGL_TYPE_INVALID),
        (
            "opcode",
            sqe(0x7e, 1, (1, 512)),
            512,
            Status::INVALID_OPCODE,
        ),
        ("write protected", protected, 512, Status::WRITE_PROTECTED),
    ] {
        let before = peer.target.end.released.len();
        assert_eq!(
            peer.status_of(&sqe, &vec![3; data_len]),
            expected.dnr(),
            "{name}"
        );
        assert_eq!(
            peer.target.end.released.len(),
            before,
            "{name}: the driver never saw it"
        );
        let answers = peer.command(&rw(io::READ, 9, 0, 1, Sgl::TRANSPORT), &[]);
        assert_eq!(
            answers[0].0,
            pdu_type::C2H_DATA,
            "{name}: the stream goes on"
        );
    }
    assert_eq!(peer.in_flight(), 0);
}

#[test]
fn commands_before_connect_are_out_of_sequence() {
    let mut peer = Peer::fresh(1, true);
    peer.send(&Pdus::default().ic_req(0));
    let read = rw(io::READ, 1, 0, 1, Sgl::TRANSPORT);
    assert_eq!(peer.status_of(&read, &[]), Status::COMMAND_SEQUENCE.dnr());
    let get = PropertyGet {
        offset: 0,
        is_8_bytes: true,
    }
    .encode();
    assert_eq!(peer.status_of(&get, &[]), Status::COMMAND_SEQUENCE.dnr());
    // A refused Connect leaves the connection as it was.
    peer.push(&peer.pdus.capsule_cmd(&connect_sqe(), &[0; 1024]));
    let (tag, _) = peer.target.starved.pop().unwrap();
    let refusal = Status::CONNECT_INVALID_PARAMETERS.dnr();
    peer.target.end.machine.complete(
        tag,
        Done {
            result: 0x1_0020,
            ..refusal.into()
        },
    );
    assert_eq!(status(&peer.transmit(9)[0].1).1, refusal);
    assert!(peer.target.end.machine.deadline().is_some());
    assert_eq!(peer.status_of(&read, &[]), Status::COMMAND_SEQUENCE.dnr());
    assert_eq!(peer.status_of(&connect_sqe(), &[0; 1024]), Status::SUCCESS);
    assert_eq!(peer.command(&read, &[])[0].0, pdu_type::C2H_DATA);
}

#[test]
fn connect_may_come_by_r2t() {
    let mut peer = Peer::fresh(1, true);
    peer.send(&Pdus::default().ic_req(0));
    let connect = Sqe {
        sgl: Sgl::new(Sgl::TRANSPORT, 1024),
        ..connect_sqe()
    };
    assert_eq!(peer.command(&connect, &[])[0].0, pdu_type::R2T);
    let data = peer
        .pdus
        .data(pdu_type::H2C_DATA, flags::LAST_PDU, (77, 0), 0, &[0; 1024]);
    assert_eq!(status(&peer.send(&data)[0].1), (77, Status::SUCCESS));
}

#[test]
fn a_data_digest_error_costs_only_its_command() {
    let pdus = Pdus {
        header_digest: false,
        data_digest: true,
    };
    let mut peer = Peer::live(1, true, pdus);
    let before = peer.target.media.clone();
    let mut capsule = pdus.capsule_cmd(&rw(io::WRITE, 1, 0, 1, Sgl::IN_CAPSULE), &[7; 512]);
    capsule[100] ^= 1;
    assert_eq!(
        status(&peer.send(&capsule)[0].1),
        (1, Status::TRANSIENT_TRANSPORT)
    );

    peer.command(&rw(io::WRITE, 2, 0, 64, Sgl::TRANSPORT), &[]);
    let half = [5; MAXH2CDATA as usize];
    let mut first = pdus.data(pdu_type::H2C_DATA, 0, (2, 0), 0, &half);
    *first.last_mut().unwrap() ^= 0x80;
    assert_eq!(peer.send(&first), [], "the rest of the data is still taken");
    let last = pdus.data(
        pdu_type::H2C_DATA,
        flags::LAST_PDU,
        (2, 0),
        MAXH2CDATA,
        &half,
    );
    assert_eq!(
        status(&peer.send(&last)[0].1),
        (2, Status::TRANSIENT_TRANSPORT)
    );
    assert!(peer.target.media == before);
    assert_eq!(peer.in_flight(), 0);

    let mut peer = Peer::fresh(1, true);
    peer.pdus = pdus;
    peer.send(&pdus.ic_req(0));
    let mut connect = pdus.capsule_cmd(&connect_sqe(), &[1; 1024]);
    connect[80] = 0;
    assert_eq!(
        status(&peer.send(&connect)[0].1),
        (77, Status::TRANSIENT_TRANSPORT)
    );
    assert_eq!(
        peer.status_of(&connect_sqe(), &[0; 1024]),
        Status::SUCCESS,
        "tried again"
    );
}

#[test]
fn late_answers_after_the_end_are_dropped() {
    let mut peer = Peer::io();
    peer.push(
        &peer
            .pdus
            .capsule_cmd(&rw(io::READ, 1, 0, 1, Sgl::TRANSPORT), &[]),
    );
    peer.push(
        &peer
            .pdus
            .capsule_cmd(&rw(io::WRITE, 2, 0, 16, Sgl::TRANSPORT), &[]),
    );
    peer.push(&[0xff]);
    assert_eq!(peer.transmit(9).len(), 1);
    peer.target.feed(0);
    peer.target.execute(0);
    assert_eq!(peer.transmit(9), []);
}

#[test]
fn memory_may_come_late() {
    let mut peer = Peer::io();
    let data = pattern(4, 1024);
    let mut bytes = peer
        .pdus
        .capsule_cmd(&rw(io::WRITE, 1, 0, 2, Sgl::IN_CAPSULE), &data);
    bytes.extend(
        peer.pdus
            .capsule_cmd(&rw(io::WRITE, 2, 2, 2, Sgl::IN_CAPSULE), &data),
    );
    bytes.extend(
        peer.pdus
            .capsule_cmd(&rw(io::READ, 3, 4, 2, Sgl::TRANSPORT), &[]),
    );
    let mut stream: VecDeque<u8> = bytes.into();
    assert_eq!(
        peer.target.end.receive(&mut stream, usize::MAX),
        72 * 3 + 2048
    );
    peer.target.take_ops();
    assert_eq!((peer.target.starved.len(), peer.target.work.len()), (1, 0));
    let plan = peer.target.end.machine.recv_plan();
    assert_eq!(
        plan,
        RecvPlan {
            direct: None,
            stage_max: 0
        }
    );
    peer.target.feed(0);
    assert_eq!((peer.target.starved.len(), peer.target.work.len()), (1, 1));
    // The second is refused: its data is skipped and the third goes on.
    let (tag, _) = peer.target.starved.pop().unwrap();
    peer.target
        .end
        .machine
        .complete(tag, Status::INTERNAL_ERROR.into());
    peer.target.take_ops();
    assert_eq!(peer.target.work.len(), 2);
    let mut answers = peer.transmit(9);
    answers.extend(peer.send(&[]));
    assert_eq!(status(&answers[0].1), (2, Status::INTERNAL_ERROR));
    assert_eq!(status(&answers[1].1), (1, Status::SUCCESS));
    assert_eq!(answers[2].0, pdu_type::C2H_DATA);
    assert_eq!(
        (&peer.target.media[..1024], peer.in_flight()),
        (&data[..], 0)
    );
    // Nor does a refused R2T command get an R2T.
    peer.push(
        &peer
            .pdus
            .capsule_cmd(&rw(io::WRITE, 4, 0, 64, Sgl::TRANSPORT), &[]),
    );
    let (tag, _) = peer.target.starved.pop().unwrap();
    peer.target
        .end
        .machine
        .complete(tag, Status::INTERNAL_ERROR.into());
    assert_eq!(status(&peer.transmit(9)[0].1), (4, Status::INTERNAL_ERROR));
}

#[test]
fn a_full_batch_stops_and_goes_on() {
    let mut peer = Peer::live(1, false, Pdus::default());
    for cid in 0..3 {
        peer.push(
            &peer
                .pdus
                .capsule_cmd(&rw(io::READ, cid, 0, 1, Sgl::TRANSPORT), &[]),
        );
    }
    while !peer.target.work.is_empty() {
        peer.target.execute(0);
    }
    let kinds: Vec<_> = (0..7)
        .map(|_| peer.transmit(1).first().map(|pdu| pdu.0))
        .collect();
    let (data, response) = (Some(pdu_type::C2H_DATA), Some(pdu_type::CAPSULE_RESP));
    assert_eq!(kinds[..6], [data, response, data, response, data, response]);
    assert_eq!((kinds[6], peer.in_flight()), (None, 0));
}

#[test]
fn a_cid_in_flight_is_a_conflict() {
    let mut peer = Peer::io();
    // 0x1001 shares the bucket with 0x0001 and is no conflict.
    for cid in [0x0001, 0x1001, 0x0001] {
        peer.push(
            &peer
                .pdus
                .capsule_cmd(&rw(io::READ, cid, 0, 1, Sgl::TRANSPORT), &[]),
        );
    }
    assert_eq!(peer.target.work.len(), 2);
    assert_eq!(
        status(&peer.transmit(9)[0].1),
        (1, Status::CID_CONFLICT.dnr())
    );
    assert_eq!(peer.send(&[]).len(), 2);
    let again = peer.command(&rw(io::READ, 1, 0, 1, Sgl::TRANSPORT), &[]);
    assert_eq!(again[0].0, pdu_type::C2H_DATA);
}

#[test]
fn slots_follow_what_is_in_flight() {
    let mut peer = Peer::io();
    for cid in 0..100 {
        peer.command(&rw(io::READ, cid, 0, 1, Sgl::TRANSPORT), &[]);
    }
    assert_eq!(peer.target.end.machine.tags_max(), 1);
    for cid in 0..8 {
        peer.push(
            &peer
                .pdus
                .capsule_cmd(&rw(io::READ, cid, 0, 1, Sgl::TRANSPORT), &[]),
        );
    }
    assert_eq!(peer.target.end.machine.tags_max(), 8);
    let overrun = peer
        .pdus
        .capsule_cmd(&rw(io::READ, 8, 0, 1, Sgl::TRANSPORT), &[]);
    peer.push(&overrun);
    malformed::expect_term("overrun", &peer.transmit(9), &overrun, 2, 0);
}

#[test]
fn the_handshake_has_a_deadline() {
    let mut peer = Peer::fresh(1, true);
    peer.send(&Pdus::default().ic_req(0));
    let machine = &mut peer.target.end.machine;
    assert_eq!(machine.deadline(), Some(1005));
    machine.on_deadline(1004);
    assert!(!machine.is_finished());
    machine.on_deadline(1005);
    assert!(machine.is_finished());
    let mut peer = Peer::io();
    let machine = &mut peer.target.end.machine;
    assert_eq!(machine.deadline(), None);
    machine.on_deadline(u64::MAX);
    assert!(!machine.is_finished());
}

#[test]
fn authentication_has_a_deadline_and_its_failure_a_short_one() {
    let second = 1_000_000_000;
    let mut peer = Peer::fresh(1, true);
    let machine = &mut peer.target.end.machine;
    let role = Role {
        authentication: InBandAuthentication::Required,
        ..role(1, true)
    };
    machine.attach(role);
    assert_eq!(machine.deadline(), Some(1005 + 60 * second));
    machine.authentication_failed(5 * second);
    assert_eq!(machine.deadline(), Some(6 * second));
    machine.on_deadline(6 * second - 1);
    assert!(!machine.is_finished());
    machine.on_deadline(6 * second);
    assert!(machine.is_finished());
}

/// Everything that a host may send: what may come in one stream, in turn.
fn script(pdus: Pdus) -> [Vec<u8>; 3] {
    let mut bytes = pdus.capsule_cmd(&rw(io::READ, 1, 3, 1, Sgl::TRANSPORT), &[]);
    let write = rw(io::WRITE, 2, 20, 2, Sgl::IN_CAPSULE);
    bytes.extend(pdus.capsule_cmd(&write, &pattern(5, 1024)));
    let mut refused = rw(io::WRITE, 3, 20, 1, Sgl::IN_CAPSULE);
    refused.nsid = 9.into();
    bytes.extend(pdus.capsule_cmd(&refused, &pattern(6, 512)));
    bytes.extend(pdus.capsule_cmd(&sqe(io::FLUSH, 4, (Sgl::TRANSPORT, 0)), &[]));
    bytes.extend(pdus.capsule_cmd(&rw(io::WRITE, 5, 40, 4, Sgl::TRANSPORT), &[]));
    [
        pdus.ic_req(0),
        pdus.capsule_cmd(&connect_sqe(), &[0; 1024]),
        bytes,
    ]
}

/// Plays the script in receives of the sizes given, then answers the R2T.
/// Answers come back in the order of their bytes, without their tags.
fn play(pdus: Pdus, mut sizes: impl FnMut() -> usize) -> (Vec<(u8, Vec<u8>)>, Vec<u8>) {
    let mut peer = Peer::fresh(1, true);
    let mut answers = Vec::new();
    let mut turn = |peer: &mut Peer, bytes: Vec<u8>| {
        let mut stream: VecDeque<u8> = bytes.into();
        while !stream.is_empty() {
            peer.target.end.receive(&mut stream, sizes().max(1));
            peer.target.serve(&mut VecDeque::new(), &mut peer.out);
            answers.extend(cut(&mut peer.out));
        }
    };
    script(pdus)
        .into_iter()
        .for_each(|bytes| turn(&mut peer, bytes));
    let (ids, data) = ((5, 0), pattern(7, 2048));
    let mut bytes = pdus.data(pdu_type::H2C_DATA, 0, ids, 0, &data[..500]);
    bytes.extend(pdus.data(pdu_type::H2C_DATA, flags::LAST_PDU, ids, 500, &data[500..]));
    turn(&mut peer, bytes);
    assert_eq!(peer.in_flight(), 0);
    answers.sort();
    (answers, peer.target.media)
}

#[test]
fn every_split_gives_the_same() {
    for digests in [0, 3] {
        let pdus = Pdus {
            header_digest: digests & 1 != 0,
            data_digest: digests & 2 != 0,
        };
        let whole = play(pdus, || usize::MAX);
        assert_eq!(
            whole.0.len(),
            8,
            "ICResp, Connect, 4 answers, R2T, its answer"
        );
        assert!(play(pdus, || 1) == whole, "byte by byte");
        for split in 1..script(pdus)[2].len() {
            // One receive each for ICReq and Connect, then the split one.
            let mut sizes = [usize::MAX, usize::MAX, split].into_iter();
            let got = play(pdus, || sizes.next().unwrap_or(usize::MAX));
            assert!(got == whole, "at {split}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_splits_give_the_same(seed: u64, header_digest: bool, data_digest: bool) {
        let pdus = Pdus { header_digest, data_digest };
        let mut random = Random::new(seed);
        let max = [3, 40, 200, 3000][random.below(4) as usize];
        prop_assert!(play(pdus, || random.below(max) as usize) == play(pdus, || usize::MAX));
    }
}
