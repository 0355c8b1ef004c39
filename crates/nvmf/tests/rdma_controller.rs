//! The controller's end of NVMe/RDMA against a host made of a stream: the host's memory is
//! read and written by keyed descriptors, and mistakes cost the command or the connection.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;

use iwarp::{
    CrcPolicy, DataPart, Qp, QpError, QpOp, QpSettings, RegisteredMemory, RemoteAccess, Work,
};
use machine::{Machine, Tag};
use nvmf::command::{AnaState, Command, Geometry};
use nvmf::queue::{
    AbortOutcome, ControllerEnd as _, Done, InBandAuthentication, Op, RefusedCommand, Role,
};
use nvmf::rdma::controller::{Qpair, RdmaError, RdmaSettings};
use testkit::End;
use testkit::iwarp::Fpdus;
use wire::iwarp::TerminateCode;
use wire::nvme::{ConnectCommand, Disconnect, Sgl, Sqe, Status, io};
use wire::nvme_rdma::{CmAccept, CmReject, CmRequest, KeyedSgl, cm_status};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Entries of the queue.
const ENTRIES: u16 = 4;
/// The one controller that there is.
const CNTLID: u16 = 5;
/// The host's memory: tags of what it reads into, writes from, and sends in capsules.
const READ: Tag = 1;
const WRITTEN: Tag = 2;
const CAPSULE: Tag = 3;
const LEN: usize = 4096;
const TO: u64 = 0x7000_0000;

/// A completion as the host has it: CID, status, and the STag that it invalidated.
type Completion = (u16, Status, Option<u32>);

/// Both ends, and what they tell.
struct Pair {
    host: End<Qp>,
    controller: End<Qpair>,
    there: VecDeque<u8>,
    back: VecDeque<u8>,
    work: Vec<Tag>,
    refused: Vec<RefusedCommand>,
    fatal: Option<RdmaError>,
    completions: Vec<Completion>,
    host_ops: Vec<QpOp>,
    /// So many bytes are received at a time.
    step: usize,
    /// A command waits for memory here, not given at once.
    starved: Option<Vec<(Tag, u32)>>,
}

fn cm_request(hsqsize: u16) -> CmRequest {
    CmRequest {
        qid: 1.into(),
        hrqsize: (hsqsize + 1).into(),
        hsqsize: hsqsize.into(),
        ..CmRequest::new_zeroed()
    }
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at * 7 + seed + at / 256) as u8)
        .collect()
}

impl Pair {
    /// Both ends, of which the host has sent its request.
    fn new(private_data: &[u8], stream: QpSettings, crc: CrcPolicy) -> Pair {
        let settings = RdmaSettings {
            stream: QpSettings {
                crc,
                ..QpSettings::default()
            },
            in_capsule_max: 1024,
            entries_max: 8,
            ..RdmaSettings::default()
        };
        let mut host = End::new(Qp::initiator(stream, 3, private_data, 0));
        for (tag, seed) in [(READ, 0), (WRITTEN, 1), (CAPSULE, 2)] {
            host.set_memory(tag, pattern(LEN, seed));
        }
        host.machine.post_receives(100);
        let mut pair = Pair {
            host,
            controller: End::new(Qpair::new(settings, 4, 0)),
            there: VecDeque::new(),
            back: VecDeque::new(),
            work: Vec::new(),
            refused: Vec::new(),
            fatal: None,
            completions: Vec::new(),
            host_ops: Vec::new(),
            step: 100,
            starved: None,
        };
        pair.exchange();
        pair
    }

    /// Both ends with a queue that Connect has made, its data read from the host.
    fn connected(crc: CrcPolicy) -> Pair {
        let mut pair = Pair::new(cm_request(ENTRIES - 1).as_bytes(), host_settings(), crc);
        assert_eq!(pair.host_ops, [QpOp::Established]);
        let accept = CmAccept::ref_from_bytes(pair.host.machine.private_data()).expect("32 bytes");
        assert_eq!((accept.recfmt.get(), accept.crqsize.get()), (0, ENTRIES));
        let key = pair.register(WRITTEN, RemoteAccess::READ);
        let connect = ConnectCommand {
            recfmt: 0,
            qid: 1,
            sqsize: ENTRIES - 1,
            cattr: 4,
            kato_ms: 0,
        };
        let sgl = KeyedSgl::new(KeyedSgl::PLAIN, key, TO, 1024).into();
        pair.send(
            &Sqe {
                sgl,
                ..connect.encode()
            },
            0,
        );
        let tag = pair.work.pop().expect("Connect");
        let command = pair.controller.machine.queue().command(tag);
        assert!(matches!(command, Command::Connect(_)));
        assert_eq!(
            pair.controller.memory[usize::from(tag)],
            pattern(LEN, 1)[..1024]
        );
        pair.controller.machine.attach(Role {
            qid: 1,
            entries: ENTRIES,
            flow_control_disabled: true,
            namespaces: Arc::new([Geometry {
                nsid: 1,
                block_shift: 9,
                read_only: false,
                ana: AnaState::Optimized,
                instance: 0,
                block_count: 64,
            }]),
            authentication: InBandAuthentication::None,
        });
        pair.complete(tag, Status::SUCCESS, 0);
        assert_eq!(pair.completions.pop(), Some((0, Status::SUCCESS, None)));
        assert!(pair.controller.machine.queue().is_live());
        assert_eq!(pair.controller.machine.deadline(), None);
        pair
    }

    /// Lets the controller name memory of the host.
    fn register(&mut self, tag: Tag, access: RemoteAccess) -> u32 {
        let memory = RegisteredMemory {
            tag,
            offset: 0,
            len: LEN as u32,
            to: TO,
            access,
        };
        self.host.machine.register(memory).expect("room")
    }

    /// Sends a capsule with so much data in it.
    fn send(&mut self, sqe: &Sqe, data_len: u32) {
        self.post(sqe.as_bytes(), data_len);
        self.exchange();
    }

    fn post(&mut self, head: &[u8], data_len: u32) {
        self.host.machine.post(Work::Send {
            head,
            body: DataPart {
                tag: CAPSULE,
                offset: 0,
                len: data_len,
            },
            invalidate: None,
            is_solicited: false,
            release: None,
        });
    }

    fn complete(&mut self, tag: Tag, status: Status, data_len: u32) {
        let done = Done {
            status,
            result: 0,
            data_len,
        };
        self.controller.machine.complete(tag, done);
        self.exchange();
    }

    /// Moves bytes until nothing moves.
    fn exchange(&mut self) {
        loop {
            self.host.transmit(&mut self.there, usize::MAX);
            self.controller.transmit(&mut self.back, usize::MAX);
            let received = self.controller.receive(&mut self.there, self.step)
                + self.host.receive(&mut self.back, self.step);
            let told = self.take_ops();
            if received == 0 && !told {
                return;
            }
        }
    }

    fn take_ops(&mut self) -> bool {
        let mut told = false;
        while let Some(op) = self.controller.next_op() {
            told = true;
            match op {
                Op::Prepare { tag, len, .. } => match &mut self.starved {
                    Some(starved) => starved.push((tag, len)),
                    None => self.feed(tag, len),
                },
                Op::Execute { tag } => self.work.push(tag),
                Op::Refused(refused) => self.refused.push(refused),
                Op::Fatal(why) => self.fatal = Some(why),
                Op::QueueAsked { cntlid } => {
                    self.controller.machine.answer_queue(cntlid == CNTLID);
                }
                other => panic!("{other:?}"),
            }
        }
        while let Some(op) = self.host.next_op() {
            told = true;
            match op {
                QpOp::Received(received) => {
                    let cqe = wire::nvme::Cqe::ref_from_bytes(self.host.machine.head());
                    let cqe = cqe.expect("16 bytes");
                    let status = cqe.status();
                    self.completions
                        .push((cqe.cid.get(), status, received.invalidated));
                }
                other => self.host_ops.push(other),
            }
        }
        told
    }

    fn feed(&mut self, tag: Tag, len: u32) {
        self.controller.set_memory(tag, vec![0; len as usize]);
        self.controller.machine.prepared(tag);
    }
}

fn host_settings() -> QpSettings {
    QpSettings {
        crc: CrcPolicy::Off,
        ulpdu_max: 400,
        ..QpSettings::default()
    }
}

/// A command on 2 blocks.
fn command(opcode: u8, cid: u16, sgl: impl Into<Sgl>) -> Sqe {
    let mut sqe = Sqe::new(opcode);
    sqe.cid = cid.into();
    sqe.nsid = 1.into();
    sqe.cdw12 = 1.into();
    sqe.sgl = sgl.into();
    sqe
}

fn in_capsule(len: u32) -> Sgl {
    Sgl::new(Sgl::IN_CAPSULE, len)
}

/// CRCs, and how many bytes are received at a time.
const CASES: [(CrcPolicy, usize); 4] = [
    (CrcPolicy::Off, 1),
    (CrcPolicy::Off, 100_000),
    (CrcPolicy::Prefer, 1),
    (CrcPolicy::Prefer, 100),
];

#[test]
fn data_of_a_read_is_written_to_the_host_before_its_completion() {
    for (crc, step) in CASES {
        for (id, invalidates) in [(KeyedSgl::PLAIN, false), (KeyedSgl::INVALIDATE, true)] {
            let mut pair = Pair::connected(crc);
            pair.step = step;
            let key = pair.register(READ, RemoteAccess::WRITE);
            let sgl = KeyedSgl::new(id, key, TO + 10, 1024);
            pair.send(&command(io::READ, 7, sgl), 0);
            let tag = pair.work.pop().expect("the Read");
            let data = pattern(1024, 99);
            pair.controller.set_memory(tag, data.clone());
            pair.complete(tag, Status::SUCCESS, 1024);
            let invalidated = invalidates.then_some(key);
            assert_eq!(pair.completions, [(7, Status::SUCCESS, invalidated)]);
            assert_eq!(pair.host.memory[usize::from(READ)][10..1034], data);
            assert_eq!(pair.host.memory[usize::from(READ)][..10], pattern(10, 0));
            assert_eq!(pair.controller.released.pop(), Some(tag));
            assert_eq!(pair.host.machine.invalidate(key), !invalidates, "not twice");
        }
    }
}

#[test]
fn data_of_a_read_that_fails_stays_and_its_stag_is_invalidated() {
    let mut pair = Pair::connected(CrcPolicy::Off);
    let key = pair.register(READ, RemoteAccess::WRITE);
    let sgl = KeyedSgl::new(KeyedSgl::INVALIDATE, key, TO, 1024);
    pair.send(&command(io::READ, 7, sgl), 0);
    let tag = pair.work.pop().expect("the Read");
    pair.complete(tag, Status::INTERNAL_ERROR, 0);
    assert_eq!(pair.completions, [(7, Status::INTERNAL_ERROR, Some(key))]);
    assert_eq!(pair.host.memory[usize::from(READ)], pattern(LEN, 0));
}

#[test]
fn data_of_a_write_comes_from_the_host_or_in_its_capsule() {
    for (crc, step) in CASES {
        let mut pair = Pair::connected(crc);
        pair.step = step;
        let key = pair.register(WRITTEN, RemoteAccess::READ);
        let keyed = KeyedSgl::new(KeyedSgl::INVALIDATE, key, TO + 20, 1024);
        pair.send(&command(io::WRITE, 1, keyed), 0);
        let tag = pair.work.pop().expect("the Write");
        assert_eq!(
            pair.controller.memory[usize::from(tag)],
            pattern(LEN, 1)[20..1044]
        );
        pair.complete(tag, Status::SUCCESS, 0);
        pair.send(&command(io::WRITE, 2, in_capsule(1024)), 1024);
        let tag = pair.work.pop().expect("the Write");
        assert_eq!(
            pair.controller.memory[usize::from(tag)],
            pattern(LEN, 2)[..1024]
        );
        pair.complete(tag, Status::SUCCESS, 0);
        let done = [(1, Status::SUCCESS, Some(key)), (2, Status::SUCCESS, None)];
        assert_eq!(pair.completions, done);
    }
}

/// What the driver is told of the staged bytes decides whether it places data where it stays:
/// never a byte too early.
#[test]
fn data_in_a_capsule_is_staged_when_all_of_it_is_at_hand() {
    for crc in [CrcPolicy::Off, CrcPolicy::Require] {
        for missing in [0, 1, 4, 5, 1023, 1024] {
            let mut pair = Pair::connected(crc);
            let write = command(io::WRITE, 1, in_capsule(1024));
            let capsule = [write.as_bytes(), &pattern(1024, 2)].concat();
            let crc = pair.controller.machine.has_crc();
            // Behind Connect.
            let mut stream: VecDeque<u8> = Fpdus { crc }.send(2, &capsule).into();
            stream.truncate(stream.len() - missing);
            pair.controller.receive(&mut stream, usize::MAX);
            let Some(Op::Prepare { tag, staged, .. }) = pair.controller.next_op() else {
                panic!("it asks for memory");
            };
            assert_eq!(staged, missing == 0, "{missing} bytes are missing");
            pair.controller.set_memory(tag, vec![0; 1024]);
            pair.controller.machine.prepared(tag);
            let next = pair.controller.next_op();
            assert_eq!(matches!(next, Some(Op::Execute { .. })), staged);
        }
    }
}

#[test]
fn answers_leave_in_order_and_each_tag_is_free_behind_its_last_byte() {
    let mut pair = Pair::connected(CrcPolicy::Prefer);
    let key = pair.register(READ, RemoteAccess::WRITE);
    for cid in 0..ENTRIES {
        let sgl = KeyedSgl::new(KeyedSgl::PLAIN, key, TO + u64::from(cid) * 1024, 1024);
        pair.send(&command(io::READ, cid, sgl), 0);
    }
    let tags = std::mem::take(&mut pair.work);
    pair.controller.released.clear();
    for &tag in tags.iter().rev() {
        pair.controller.set_memory(tag, pattern(1024, tag.into()));
        pair.controller
            .machine
            .complete(tag, Status::SUCCESS.into());
    }
    // No data goes with `Status::into`: the completions alone, one FPDU at a time.
    for sent in 1..=tags.len() {
        pair.controller.transmit(&mut pair.back, 1);
        let released: Vec<Tag> = tags.iter().rev().copied().take(sent).collect();
        assert_eq!(pair.controller.released, released);
    }
    pair.exchange();
    let cids: Vec<u16> = pair.completions.iter().map(|(cid, ..)| *cid).collect();
    assert_eq!(cids, [3, 2, 1, 0]);
    for cid in 0..ENTRIES {
        let sgl = KeyedSgl::new(KeyedSgl::PLAIN, key, TO + u64::from(cid) * 1024, 1024);
        pair.send(&command(io::READ, cid, sgl), 0);
    }
    let tags = std::mem::take(&mut pair.work);
    pair.controller.released.clear();
    for &tag in &tags {
        pair.controller.set_memory(tag, pattern(1024, tag.into()));
        let done = Done {
            status: Status::SUCCESS,
            result: 0,
            data_len: 1024,
        };
        pair.controller.machine.complete(tag, done);
    }
    for sent in 1..=tags.len() * 2 {
        pair.controller.transmit(&mut pair.back, 1);
        assert_eq!(
            pair.controller.released,
            tags[..sent / 2],
            "behind the completion"
        );
    }
    pair.exchange();
    for (index, &tag) in tags.iter().enumerate() {
        let memory = &pair.host.memory[usize::from(READ)][index * 1024..][..1024];
        assert_eq!(memory, pattern(1024, tag.into()));
    }
}

#[test]
fn descriptors_that_are_wrong_cost_the_command_alone() {
    let key = 1;
    let keyed = |len| Sgl::from(KeyedSgl::new(KeyedSgl::PLAIN, key, TO, len));
    let offset = Sgl {
        address: 8.into(),
        ..in_capsule(1024)
    };
    let length = Status::DATA_SGL_LENGTH_INVALID;
    for (name, sgl, data_len, status) in [
        (
            "a segment descriptor",
            Sgl::new(0x20, 16),
            0,
            Status::SGL_TYPE_INVALID,
        ),
        (
            "that of NVMe/TCP",
            Sgl::new(Sgl::TRANSPORT, 1024),
            0,
            Status::SGL_TYPE_INVALID,
        ),
        (
            "an address",
            Sgl::new(0x00, 1024),
            0,
            Status::SGL_TYPE_INVALID,
        ),
        ("an offset", offset, 1024, Status::SGL_OFFSET_INVALID),
        ("keyed, less than NLB", keyed(512), 0, length),
        ("keyed, more than NLB", keyed(1536), 0, length),
        ("keyed, no bytes", keyed(0), 0, length),
        ("keyed, with data in the capsule", keyed(1024), 512, length),
        (
            "in the capsule, less than NLB",
            in_capsule(512),
            512,
            length,
        ),
        ("in the capsule, no data", in_capsule(1024), 0, length),
        ("in the capsule, less data", in_capsule(1024), 512, length),
        ("in the capsule, no length", in_capsule(0), 512, length),
    ] {
        let mut pair = Pair::connected(CrcPolicy::Prefer);
        pair.send(&command(io::WRITE, 5, sgl), data_len);
        assert_eq!(pair.completions, [(5, status.dnr(), None)], "{name}");
        assert_eq!((pair.work.len(), pair.refused.len()), (0, 1), "{name}");
        // The next one goes.
        pair.send(&command(io::WRITE, 6, in_capsule(1024)), 1024);
        assert_eq!((pair.work.len(), pair.fatal), (1, None), "{name}");
    }
}

#[test]
fn request_that_does_not_fit_is_rejected_with_its_status() {
    let request = cm_request(3);
    let reads_none = QpSettings {
        ird_max: 0,
        ..host_settings()
    };
    let with = |change: fn(&mut CmRequest)| {
        let mut request = request;
        change(&mut request);
        request.as_bytes().to_vec()
    };
    for (data, stream, sts) in [
        (vec![0; 31], host_settings(), cm_status::INVALID_LENGTH),
        (vec![], host_settings(), cm_status::INVALID_LENGTH),
        (
            with(|request| request.recfmt = 1.into()),
            host_settings(),
            cm_status::INVALID_RECFMT,
        ),
        (
            with(|request| request.hsqsize = 0.into()),
            host_settings(),
            cm_status::INVALID_HSQSIZE,
        ),
        (
            with(|request| request.hsqsize = 8.into()),
            host_settings(),
            cm_status::INVALID_HSQSIZE,
        ),
        (
            with(|request| request.hrqsize = 0.into()),
            host_settings(),
            cm_status::INVALID_HRQSIZE,
        ),
        (
            with(|request| request.hrqsize = 9.into()),
            host_settings(),
            cm_status::INVALID_HRQSIZE,
        ),
        (
            with(|request| request.qid = 129.into()),
            host_settings(),
            cm_status::INVALID_QID,
        ),
        (
            with(|request| request.cntlid = (CNTLID + 1).into()),
            host_settings(),
            cm_status::INVALID_CNTLID,
        ),
        (with(|_| {}), reads_none, cm_status::INVALID_IRD),
    ] {
        let pair = Pair::new(&data, stream, CrcPolicy::Off);
        assert_eq!(pair.host_ops, [QpOp::Rejected]);
        let reject = CmReject::ref_from_bytes(pair.host.machine.private_data()).expect("4 bytes");
        assert_eq!((reject.recfmt.get(), reject.sts.get()), (0, sts));
        assert!(pair.controller.machine.is_finished());
    }
    let pair = Pair::new(
        &with(|request| {
            request.hsqsize = 7.into();
            request.cntlid = CNTLID.into();
        }),
        host_settings(),
        CrcPolicy::Off,
    );
    assert_eq!(pair.host_ops, [QpOp::Established]);
}

#[test]
fn capsule_beyond_crqsize_ends_the_connection() {
    let mut pair = Pair::connected(CrcPolicy::Off);
    for cid in 0..ENTRIES {
        pair.send(&command(io::FLUSH, cid, Sgl::default()), 0);
    }
    assert_eq!((pair.work.len(), pair.fatal), (ENTRIES.into(), None));
    let tag = pair.work.remove(0);
    pair.complete(tag, Status::SUCCESS, 0);
    pair.send(&command(io::FLUSH, 8, Sgl::default()), 0);
    assert_eq!(pair.fatal, None, "each answer lets one more come");
    pair.send(&command(io::FLUSH, 9, Sgl::default()), 0);
    assert_eq!(
        pair.fatal,
        Some(QpError::Sent(TerminateCode::NO_BUFFER).into())
    );
    let told = QpOp::Fatal(QpError::Received(TerminateCode::NO_BUFFER));
    assert_eq!(pair.host_ops, [QpOp::Established, told]);
    assert!(pair.controller.machine.is_finished());
}

#[test]
fn capsule_that_is_too_short_or_too_long_ends_the_connection() {
    let mut pair = Pair::connected(CrcPolicy::Off);
    pair.post(&[0; 63], 0);
    pair.exchange();
    assert_eq!(
        pair.fatal,
        Some(QpError::Sent(TerminateCode::UNSPECIFIED).into())
    );
    let mut pair = Pair::connected(CrcPolicy::Off);
    pair.send(&command(io::WRITE, 1, in_capsule(1025)), 1025);
    assert_eq!(
        pair.fatal,
        Some(QpError::Sent(TerminateCode::MESSAGE_TOO_LONG).into())
    );
    assert!(pair.work.is_empty());
}

#[test]
fn memory_that_the_host_does_not_have_ends_the_connection() {
    let mut pair = Pair::connected(CrcPolicy::Off);
    let sgl = KeyedSgl::new(KeyedSgl::PLAIN, 0x55, TO, 1024);
    pair.send(&command(io::WRITE, 1, sgl), 0);
    let code = TerminateCode::SOURCE_STAG;
    assert_eq!(pair.fatal, Some(QpError::Received(code).into()));
    assert!(pair.work.is_empty() && pair.controller.machine.is_finished());
}

#[test]
fn capsule_that_was_damaged_is_neither_executed_nor_refused() {
    // Of a command that would be executed, and of one that would be refused.
    for sgl in [in_capsule(1024), in_capsule(512)] {
        let mut pair = Pair::connected(CrcPolicy::Prefer);
        let len = sgl.length.get();
        pair.post(command(io::WRITE, 1, sgl).as_bytes(), len);
        pair.host.transmit(&mut pair.there, usize::MAX);
        let last = pair.there.len() - 9;
        pair.there[last] ^= 1;
        pair.exchange();
        assert_eq!(pair.fatal, Some(QpError::Sent(TerminateCode::CRC).into()));
        assert!(pair.work.is_empty() && pair.refused.is_empty());
        assert!(pair.completions.is_empty());
    }
}

/// As where the host writes to its memory while that is sent: the CRC is of what was there.
#[test]
fn write_whose_data_is_not_what_its_crc_says_is_not_executed() {
    // In the first FPDU, between, and in the last.
    for behind in [1000, 500, 9] {
        let mut pair = Pair::connected(CrcPolicy::Prefer);
        let key = pair.register(WRITTEN, RemoteAccess::READ);
        let keyed = KeyedSgl::new(KeyedSgl::INVALIDATE, key, TO, 1024);
        pair.post(command(io::WRITE, 1, keyed).as_bytes(), 0);
        pair.host.transmit(&mut pair.there, usize::MAX);
        pair.controller.receive(&mut pair.there, usize::MAX);
        assert!(pair.take_ops(), "memory is wanted");
        pair.controller.transmit(&mut pair.back, usize::MAX);
        pair.host.receive(&mut pair.back, usize::MAX);
        assert!(!pair.take_ops(), "it is read");
        pair.host.transmit(&mut pair.there, usize::MAX);
        let at = pair.there.len() - behind;
        pair.there[at] ^= 1;
        pair.exchange();
        assert_eq!(pair.fatal, Some(QpError::Sent(TerminateCode::CRC).into()));
        assert!(pair.work.is_empty() && pair.completions.is_empty());
    }
}

#[test]
fn command_that_is_aborted_is_answered_when_its_data_has_come() {
    // Data that an RDMA Read asks for, and data that waits in its capsule for memory.
    for in_a_capsule in [false, true] {
        let mut pair = Pair::connected(CrcPolicy::Off);
        pair.starved = Some(Vec::new());
        let key = pair.register(WRITTEN, RemoteAccess::READ);
        let keyed = KeyedSgl::new(KeyedSgl::PLAIN, key, TO, 1024);
        match in_a_capsule {
            false => pair.send(&command(io::WRITE, 1, keyed), 0),
            true => pair.send(&command(io::WRITE, 1, in_capsule(1024)), 1024),
        }
        let (tag, len) = pair.starved.take().expect("asked")[0];
        if in_a_capsule {
            let outcome = pair.controller.machine.abort(1);
            assert_eq!(outcome, AbortOutcome::Executing(tag));
            pair.complete(tag, Status::ABORT_REQUESTED, 0);
        } else {
            pair.feed(tag, len);
            assert_eq!(pair.controller.machine.abort(1), AbortOutcome::Aborted(tag));
            assert_eq!(
                pair.controller.machine.queue().in_flight(),
                1,
                "its data comes"
            );
            pair.exchange();
        }
        assert_eq!(pair.completions, [(1, Status::ABORT_REQUESTED, None)]);
        assert!(pair.work.is_empty());
        pair.send(&command(io::WRITE, 2, in_capsule(1024)), 1024);
        assert_eq!((pair.work.len(), pair.fatal), (1, None));
    }
}

#[test]
fn disconnect_ends_the_connection_behind_its_answer() {
    let mut pair = Pair::connected(CrcPolicy::Off);
    pair.send(&Disconnect { recfmt: 0 }.encode(), 0);
    let tag = pair.work.pop().expect("Disconnect");
    pair.complete(tag, Status::SUCCESS, 0);
    assert_eq!(pair.completions, [(0, Status::SUCCESS, None)]);
    assert!(pair.controller.machine.is_finished());
}

#[test]
fn host_that_does_not_connect_in_time_ends() {
    let pair = Pair::new(cm_request(3).as_bytes(), host_settings(), CrcPolicy::Off);
    let mut machine = pair.controller.machine;
    let deadline = machine.deadline().expect("a time");
    machine.on_deadline(deadline - 1);
    assert!(!machine.is_finished());
    machine.on_deadline(deadline);
    assert!(machine.is_finished() && machine.deadline().is_none());
}
