//! Hosts that connect by RDMA: the same volumes on the same port as over TCP, and mistakes
//! that cost the command or the connection.

use std::io::{Read, Write};

use iwarp::{CrcPolicy, QpError, QpOp, RemoteAccess};
use machine::work::OPERATION_UNITS;
use needs::each_driver;
use nvmf::transport::Transports;
use reactor::Choice;
use server::{Limits, RdmaSpec, Running};
use testkit::iwarp::{Fpdus, mpa_frame};
use wire::iwarp::{MPA_REPLY_KEY, MPA_REQUEST_KEY, TerminateCode, mpa_flags, opcode};
use wire::nvme::{Sqe, Status, admin, io};
use wire::nvme_rdma::{CmReject, CmRequest, KeyedSgl, cm_status};
use wire::nvme_tcp::pdu_type;
use zerocopy::{FromBytes, IntoBytes};

use crate::common::{BLOCK, Host, Queue, config, stop};
use crate::disks::ram;
use crate::rdma_host::{Data, HSQSIZE, RdmaQueue, TO, cm_request};
use crate::report::report;
use testkit::nvme::Pdus;

/// Runs a test with a target whose first listener takes these transports.
fn with_target(backend: Choice, rdma: RdmaSpec, test: impl Fn(&mut Running)) {
    let mut config = config(backend, Limits::default(), 64 << 20);
    config.volumes = vec![ram("ram", 4096)];
    config.listeners[0].rdma = rdma;
    let mut running = server::start(config).expect("starts");
    test(&mut running);
    stop(running);
}

const BOTH: RdmaSpec = RdmaSpec {
    transports: Transports::Both,
    crc: CrcPolicy::Prefer,
    fpdu_bytes_max: 64 << 10,
    reads_max: 4,
};

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed)
        .collect()
}

fn blocks(opcode: u8, lba: u64, count: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode);
    sqe.nsid = 1.into();
    sqe.set_blocks(lba, count);
    sqe
}

#[each_driver]
fn host_by_rdma_has_the_volumes_of_hosts_by_tcp(backend: Choice) {
    with_target(backend, BOTH, |running| {
        let address = running.addresses()[0];
        let (mut admin, mut io) = RdmaQueue::pair(address);
        let mut identify = Sqe::new(admin::IDENTIFY);
        identify.cdw10 = 1.into();
        let (status, _, controller) = admin.command(identify, Data::Written(4096));
        assert_eq!(status, Status::SUCCESS);
        let u32_at = |at: usize| u32::from_le_bytes(controller[at..at + 4].try_into().expect("4"));
        assert_eq!(u32_at(536), 0x10_0005, "SGLS");
        assert_eq!(u32_at(1792), (64 + (16 << 10)) / 16, "IOCCSZ");

        // In the capsule; then more than a capsule holds, in several reads and writes.
        let small = pattern(BLOCK, 1);
        let large = pattern(64 * BLOCK, 2);
        let (status, ..) = io.command(blocks(io::WRITE, 0, 1), Data::Capsule(&small));
        assert_eq!(status, Status::SUCCESS);
        let (status, ..) = io.command(blocks(io::WRITE, 100, 64), Data::Read(&large));
        assert_eq!(status, Status::SUCCESS);
        let (status, _, back) =
            io.command(blocks(io::READ, 100, 64), Data::Written(large.len() as u32));
        assert!(status.is_success() && back == large, "{status}");
        let (status, _, back) = io.command(blocks(io::READ, 0, 1), Data::Written(BLOCK as u32));
        assert!(status.is_success() && back == small, "{status}");

        let (_admin, mut by_tcp) = Host::at(address).pair();
        assert_eq!(by_tcp.read(1, 0), Ok(small));
        assert_eq!(by_tcp.read(1, 163), Ok(large[63 * BLOCK..].to_vec()));
        assert_eq!(by_tcp.write(1, 0, 7), Status::SUCCESS);
        let (status, _, back) = io.command(blocks(io::READ, 0, 1), Data::Written(BLOCK as u32));
        assert!(status.is_success() && back == [7; BLOCK], "{status}");

        let listed = running.connections(|_| true);
        let by_rdma = listed.list.iter().filter(|one| one.is_rdma).count();
        assert_eq!((by_rdma, listed.list.len()), (2, 4));
        assert_eq!(running.refusals().len(), 0);
    });
}

#[each_driver]
fn listener_refuses_the_transport_that_it_is_not_for(backend: Choice) {
    with_target(backend, RdmaSpec::default(), |running| {
        let request = cm_request(0, 0);
        let address = running.addresses()[0];
        let mut queue = RdmaQueue::open(address, request.as_bytes(), CrcPolicy::Off);
        assert_eq!(queue.op(), Some(QpOp::Rejected));
        assert_eq!(queue.op(), None);
        let refusals = running.refusals();
        assert!(refusals[0].reason.contains("`rdma = true`"), "{refusals:?}");
    });
    let only = RdmaSpec {
        transports: Transports::Rdma,
        ..BOTH
    };
    with_target(backend, only, |running| {
        let mut queue = Queue::open(running.addresses()[0]);
        let ic_req = Pdus::default().ic_req(0);
        queue.stream.write_all(&ic_req).expect("sent");
        assert_eq!(queue.pdu()[0], pdu_type::C2H_TERM_REQ);
        queue.expect_end();
        let refusals = running.refusals();
        assert!(
            refusals[0].reason.contains("`rdma = \"only\"`"),
            "{refusals:?}"
        );
        let (_admin, mut io) = RdmaQueue::pair(running.addresses()[0]);
        let (status, ..) = io.command(blocks(io::FLUSH, 0, 1), Data::Nowhere);
        assert_eq!(status, Status::SUCCESS);
    });
}

#[each_driver]
fn requests_that_cannot_be_had_are_rejected_with_their_status(backend: Choice) {
    with_target(backend, BOTH, |running| {
        let address = running.addresses()[0];
        let (_admin, cntlid) = RdmaQueue::connect(address, 0, 0xffff).expect("admitted");
        let with = |change: fn(&mut CmRequest)| {
            let mut request = cm_request(1, cntlid);
            change(&mut request);
            request.as_bytes().to_vec()
        };
        for (data, sts) in [
            (vec![0; 31], cm_status::INVALID_LENGTH),
            (with(|of| of.recfmt = 1.into()), cm_status::INVALID_RECFMT),
            (with(|of| of.qid = 129.into()), cm_status::INVALID_QID),
            (with(|of| of.hsqsize = 0.into()), cm_status::INVALID_HSQSIZE),
            (
                with(|of| of.hsqsize = 1024.into()),
                cm_status::INVALID_HSQSIZE,
            ),
            (
                with(|of| of.hrqsize = 1025.into()),
                cm_status::INVALID_HRQSIZE,
            ),
            (
                with(|of| of.cntlid = (of.cntlid.get() + 1).into()),
                cm_status::INVALID_CNTLID,
            ),
        ] {
            let mut queue = RdmaQueue::open(address, &data, CrcPolicy::Off);
            assert_eq!(queue.op(), Some(QpOp::Rejected));
            let reject = CmReject::read_from_bytes(queue.end.machine.private_data());
            let reject = reject.expect("4 bytes");
            assert_eq!((reject.recfmt.get(), reject.sts.get()), (0, sts));
            assert_eq!(queue.op(), None);
            let name = cm_status::name(sts).expect("one of the standard's");
            let refusals = running.refusals();
            let told = refusals.iter().any(|one| one.reason.contains(name));
            assert!(told, "{name}: {refusals:?}");
        }
        let mut queue = RdmaQueue::open(address, &with(|_| {}), CrcPolicy::Off);
        assert_eq!(queue.op(), Some(QpOp::Established));
    });
}

#[each_driver]
fn frames_that_are_no_request_are_refused_and_slow_ones_end_in_time(backend: Choice) {
    let mut config = config(
        backend,
        Limits {
            handshake_timeout_ms: 300,
            ..Limits::default()
        },
        64 << 20,
    );
    config.listeners[0].rdma = BOTH;
    let running = server::start(config).expect("starts");
    let address = running.addresses()[0];
    let request = cm_request(0, 0);
    let frame = |flags, revision, private: &[u8]| {
        mpa_frame(MPA_REQUEST_KEY, (flags, revision), Some((4, 4)), private)
    };
    let mut wrong_key = frame(0, 2, request.as_bytes());
    wrong_key[5] ^= 1;
    // The bytes, and whether the target says that it rejects them.
    for (bytes, is_answered) in [
        (wrong_key, false),
        (frame(mpa_flags::MARKERS, 2, request.as_bytes()), true),
        (frame(0, 3, request.as_bytes()), true),
        (frame(0, 2, &[0; 509]), false),
        ([frame(0, 2, request.as_bytes()), vec![0]].concat(), false),
        // Nothing more comes of these.
        (b"M".to_vec(), false),
        (frame(0, 2, request.as_bytes())[..30].to_vec(), false),
    ] {
        let mut queue = Queue::open(address);
        queue.stream.write_all(&bytes).expect("sent");
        let mut answer = Vec::new();
        let _ = queue.stream.read_to_end(&mut answer);
        let is_reply = answer.starts_with(MPA_REPLY_KEY);
        assert_eq!(is_reply, is_answered, "{bytes:x?}: {answer:x?}");
        if is_answered {
            assert_ne!(answer[16] & mpa_flags::REJECT, 0);
        }
    }
    // One that was accepted and sends no FPDU.
    let mut queue = RdmaQueue::open(address, request.as_bytes(), CrcPolicy::Off);
    assert_eq!((queue.op(), queue.op()), (Some(QpOp::Established), None));
    stop(running);
}

#[each_driver]
fn mistakes_of_a_command_cost_that_command_alone(backend: Choice) {
    with_target(backend, BOTH, |running| {
        let (_admin, mut io) = RdmaQueue::pair(running.addresses()[0]);
        let block = pattern(BLOCK, 3);
        let length = Status::DATA_SGL_LENGTH_INVALID.dnr();
        let (status, ..) = io.command(blocks(io::WRITE, 0, 2), Data::Read(&block));
        assert_eq!(status, length);
        let (status, ..) = io.command(blocks(io::READ, 0, 1), Data::Written(512));
        assert_eq!(status, length);
        let (status, ..) = io.command(blocks(io::WRITE, 0, 2), Data::Capsule(&block));
        assert_eq!(status, length);
        let (status, ..) = io.command(blocks(io::READ, 0, 1), Data::Nowhere);
        assert_eq!(status, Status::SGL_TYPE_INVALID.dnr());
        let (status, ..) = io.command(blocks(io::WRITE, 4096, 1), Data::Read(&block));
        assert_eq!(status, Status::LBA_OUT_OF_RANGE.dnr());
        let (status, ..) = io.command(blocks(io::WRITE, 0, 1), Data::Read(&block));
        assert_eq!(status, Status::SUCCESS);
    });
}

/// Makes FPDUs.
type Makes<'a> = &'a dyn Fn(Fpdus) -> Vec<u8>;

/// The Terminate that an I/O queue gets for an FPDU, which ends that queue alone.
fn terminated(running: &Running, fpdu: Makes<'_>) -> Option<QpOp> {
    let (_admin, mut io) = RdmaQueue::pair(running.addresses()[0]);
    io.stream
        .write_all(&fpdu(Fpdus { crc: true }))
        .expect("sent");
    let op = io.op();
    assert_eq!(io.op(), None);
    op
}

#[each_driver]
fn mistakes_of_the_stream_cost_that_connection_alone(backend: Choice) {
    with_target(backend, BOTH, |running| {
        let (_admin, mut other) = RdmaQueue::pair(running.addresses()[0]);
        let written = |fpdus: Fpdus| fpdus.tagged((opcode::WRITE, true), 77, 0, &[1; 64]);
        let response = |fpdus: Fpdus| fpdus.tagged((opcode::READ_RESPONSE, true), 77, 0, &[]);
        let damaged = |fpdus: Fpdus| {
            let mut bytes = written(fpdus);
            bytes[30] ^= 1;
            bytes
        };
        // Connect was the first Send.
        let repeated = |fpdus: Fpdus| fpdus.send(1, &[0; 64]);
        let far = |fpdus: Fpdus| fpdus.send(9, &[0; 64]);
        let short = |fpdus: Fpdus| fpdus.send(2, &[0; 63]);
        let long = |fpdus: Fpdus| fpdus.send(2, &[0; 64 + (16 << 10) + 1]);
        let cases: [(Makes<'_>, TerminateCode); 8] = [
            (&written, TerminateCode::SINK_STAG),
            (&response, TerminateCode::UNEXPECTED_OPCODE),
            (&damaged, TerminateCode::CRC),
            (&repeated, TerminateCode::MSN_RANGE),
            (&far, TerminateCode::MSN_RANGE),
            (&short, TerminateCode::UNSPECIFIED),
            (&long, TerminateCode::MESSAGE_TOO_LONG),
            (
                &|fpdus| fpdus.untagged((opcode::SEND, true), 0, (3, 2, 0), &[0; 64]),
                TerminateCode::QUEUE_NUMBER,
            ),
        ];
        for (fpdu, code) in cases {
            let told = Some(QpOp::Fatal(QpError::Received(code)));
            assert_eq!(terminated(running, fpdu), told);
            let name = code.name().expect("one of the standard's");
            let metrics = running.metrics();
            let counted = metrics.terminates.iter();
            let counted = counted.filter(|(of, (sender, error, _))| {
                (*of, *sender, *error) == ("nvme-rdma", "weft", name)
            });
            assert_eq!(counted.count(), 1, "{name}");
            let (status, ..) = other.command(blocks(io::FLUSH, 0, 1), Data::Nowhere);
            assert_eq!(status, Status::SUCCESS);
        }
    });
}

#[each_driver]
fn host_with_more_capsules_than_crqsize_or_memory_it_took_back_is_terminated(backend: Choice) {
    with_target(backend, BOTH, |running| {
        let address = running.addresses()[0];
        let (_admin, mut io) = RdmaQueue::pair(address);
        // The host answers no RDMA Read meanwhile: each command keeps its receive.
        let stag = io.register(pattern(BLOCK, 1), RemoteAccess::READ);
        for cid in 0..=HSQSIZE + 1 {
            let mut sqe = blocks(io::WRITE, 0, 1);
            sqe.cid = (1000 + cid).into();
            sqe.sgl = KeyedSgl::new(KeyedSgl::PLAIN, stag, TO, BLOCK as u32).into();
            io.send(&sqe, &[]);
        }
        let told = QpOp::Fatal(QpError::Received(TerminateCode::NO_BUFFER));
        assert_eq!(io.op(), Some(told));

        let (_admin, mut io) = RdmaQueue::pair(address);
        let stag = io.register(pattern(64 * BLOCK, 1), RemoteAccess::READ);
        io.end.machine.invalidate(stag);
        let mut sqe = blocks(io::WRITE, 0, 64);
        sqe.sgl = KeyedSgl::new(KeyedSgl::PLAIN, stag, 0, 64 * BLOCK as u32).into();
        io.send(&sqe, &[]);
        let told = QpOp::Fatal(QpError::Sent(TerminateCode::SOURCE_STAG));
        assert_eq!(io.op(), Some(told));
        let (_admin, mut io) = RdmaQueue::pair(address);
        let (status, _, back) = io.command(blocks(io::READ, 0, 1), Data::Written(BLOCK as u32));
        assert!(
            status.is_success() && back == [0; BLOCK],
            "nothing was written"
        );
    });
}

/// The host sends as many empty RDMA Writes as two receives take, which is a thousand shares.
#[each_driver]
fn empty_fpdus_take_turns_with_what_others_do(backend: Choice) {
    const SHARE: u64 = 64;
    const FPDUS: usize = 32_768;
    let limits = Limits {
        turn_units_max: SHARE,
        ..Limits::default()
    };
    let mut config = config(backend, limits, 64 << 20);
    config.cpus.truncate(1);
    config.listeners[0].rdma = BOTH;
    let running = server::start(config).expect("starts");
    let address = running.addresses()[0];
    let (_admin, mut io) = RdmaQueue::pair(address);
    let (_other_admin, mut other) = Host::at(address).pair();
    let before = report(&running).turn_units_max;
    let mut feeder = io.stream.try_clone().expect("a socket");
    let empty = Fpdus { crc: true }.tagged((opcode::WRITE, true), 0, 0, b"");
    let flood = std::thread::spawn(move || feeder.write_all(&empty.repeat(FPDUS)));
    while !flood.is_finished() {
        assert!(other.is_alive());
    }
    flood.join().expect("no panic").expect("all was taken");
    let (status, ..) = io.command(blocks(io::FLUSH, 0, 1), Data::Nowhere);
    assert_eq!(status, Status::SUCCESS, "all of it was walked");
    let units = report(&running).turn_units_max;
    let most = before.max(SHARE + 2 * OPERATION_UNITS);
    assert!(units <= most, "{units} units, {before} before");
    stop(running);
}
