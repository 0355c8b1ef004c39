//! The initiator's and the target's machine against each other over a pipe in
//! memory, as TCP and as iSER: random commands, digests, lengths that do not agree, immediate,
//! unsolicited and solicited data, segment and burst sizes, splits, task
//! management, pings, texts, memory that comes late and completions out of
//! order. Every byte is checked.
#![allow(missing_docs)]

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;

use doubles::iscsi::TargetDouble;
use iscsi::accepted::{AcceptedConnection, IserSettings};
use iscsi::initiator::{
    self, Command, CommandOutcome, Completion, Digest, ExpectedData, InitiatorOp, RANDOM_LEN,
    Residual, lun_field,
};
use iscsi::iser::{CrcPolicy, QpSettings};
use iscsi::{Negotiated, Session, target};
use machine::Tag;
use proptest::prelude::*;
use random::Random;
use testkit::End;
use testkit::iscsi::cdb;
use wire::iscsi::{
    BHS_LEN, Bhs, LogoutReason, RejectReason, TaskFunction, TaskResponse, opcode, padded,
};
use wire::scsi::status;
use zerocopy::FromBytes;

const BLOCK: usize = 512;
/// Each command in flight has a window of the media to itself.
const WINDOW_BLOCKS: usize = 256;
const WINDOWS: usize = 12;
const CMD_SN: u32 = 0xffff_ffe0;

/// What a command in flight must come to.
#[derive(Clone)]
struct Expected {
    window: Option<usize>,
    status: u8,
    residual: Residual,
    /// What a read brings.
    data: Option<Vec<u8>>,
    /// What a write puts there.
    writes: Option<(usize, Vec<u8>)>,
}

/// What happened, by kind.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    aborted: usize,
    managed: usize,
    pongs: usize,
    texts: usize,
    residuals: usize,
    flips: usize,
    bytes: u64,
}

struct World {
    random: Random,
    initiator: End<initiator::CarriedConnection>,
    target: TargetDouble,
    /// What the initiator wrote and no flip was decided about.
    sent: VecDeque<u8>,
    to_target: VecDeque<u8>,
    to_initiator: VecDeque<u8>,
    model: Vec<u8>,
    windows: Vec<usize>,
    pending: HashMap<Tag, Expected>,
    text: Vec<u8>,
    is_ready: bool,
    logout: Option<Tag>,
    has_ended: bool,
    others: usize,
    submitted: usize,
    completed: usize,
    tally: Tally,
    /// Bits of immediate data are flipped on their way, of each command once.
    flips: bool,
    /// The commands that were.
    flipped: HashSet<u32>,
    digests: Negotiated,
}

/// The values of a login, and the text that tells them to the initiator.
fn agreed(random: &mut Random) -> (initiator::InitiatorSettings, Negotiated, String) {
    let mut pick = |of: &[u32]| of[random.below(of.len() as u64) as usize];
    let max_burst = pick(&[512, 4096, 65_536, 1 << 20]);
    let first_burst = pick(&[512, 1001, 8192, 65_536]).min(max_burst);
    let negotiated = Negotiated {
        header_digest: pick(&[0, 1]) == 1,
        data_digest: pick(&[0, 1]) == 1,
        max_recv_data_segment_length: pick(&[512, 1001, 8192, 262_144]),
        max_send_data_segment_length: pick(&[512, 1002, 8192, 262_144]),
        initial_r2t: pick(&[0, 1]) == 1,
        immediate_data: pick(&[0, 1]) == 1,
        max_burst_length: max_burst,
        first_burst_length: first_burst,
        max_outstanding_r2t: pick(&[1, 2, 3, 8]) as u16,
        ..Negotiated::default()
    };
    let settings = initiator::InitiatorSettings {
        header_digest: Digest::Preferred,
        data_digest: Digest::Preferred,
        max_recv_data_segment: negotiated.max_send_data_segment_length,
        first_burst: 1 << 20,
        max_outstanding_r2t: 8,
        queue_depth: pick(&[1, 3, 8, 100]) as u16,
        ..initiator::InitiatorSettings::new("iqn.2026-01.io.weft:i", "iqn.2026-01.io.weft:t")
    };
    let digest = |is_on| if is_on { "CRC32C" } else { "None" };
    let yes = |is| if is { "Yes" } else { "No" };
    let text = format!(
        "HeaderDigest={}\0DataDigest={}\0MaxRecvDataSegmentLength={}\0InitialR2T={}\0\
         ImmediateData={}\0MaxBurstLength={}\0FirstBurstLength={}\0MaxOutstandingR2T={}\0",
        digest(negotiated.header_digest),
        digest(negotiated.data_digest),
        negotiated.max_recv_data_segment_length,
        yes(negotiated.initial_r2t),
        yes(negotiated.immediate_data),
        negotiated.max_burst_length,
        negotiated.first_burst_length,
        negotiated.max_outstanding_r2t,
    );
    (settings, negotiated, text)
}

/// The same by RDMA, and what the target's streams may do.
fn agreed_by_rdma(
    random: &mut Random,
) -> (
    initiator::InitiatorSettings,
    Negotiated,
    String,
    IserSettings,
) {
    let (settings, negotiated, answer) = agreed(random);
    let negotiated = Negotiated {
        header_digest: false,
        data_digest: false,
        initial_r2t: true,
        rdma_extensions: true,
        solicited_only: Some(false),
        ..negotiated
    };
    let mut stream = || QpSettings {
        crc: match random.one_in(2) {
            true => CrcPolicy::Prefer,
            false => CrcPolicy::Off,
        },
        ulpdu_max: [128, 1454, 9000, u16::MAX][random.below(4) as usize],
        ..QpSettings::default()
    };
    let settings = initiator::InitiatorSettings {
        header_digest: Digest::Never,
        data_digest: Digest::Never,
        rdma: Some(stream()),
        ..settings
    };
    let keys = answer.split('\0').filter(|pair| {
        let others = ["HeaderDigest", "DataDigest", "MaxRecv", "InitialR2T"];
        !others.iter().any(|key| pair.starts_with(key))
    });
    let mut answer = keys.collect::<Vec<_>>().join("\0");
    answer += &format!(
        "RDMAExtensions=Yes\0InitialR2T=Yes\0TargetRecvDataSegmentLength={}\0\
         InitiatorRecvDataSegmentLength={}\0",
        negotiated.max_recv_data_segment_length, negotiated.max_send_data_segment_length
    );
    let rdma = IserSettings {
        stream: stream(),
        takes_tcp: false,
    };
    (settings, negotiated, answer, rdma)
}

impl World {
    fn new(seed: u64, is_rdma: bool) -> World {
        let mut random = Random::new(seed);
        let (settings, negotiated, answer, rdma) = match is_rdma {
            true => {
                let (settings, negotiated, answer, rdma) = agreed_by_rdma(&mut random);
                (settings, negotiated, answer, Some(rdma))
            }
            false => {
                let (settings, negotiated, answer) = agreed(&mut random);
                (settings, negotiated, answer, None)
            }
        };
        let depth = [1, 2, 16, 128][random.below(4) as usize];
        let role = target::ConnectionRole {
            session: Rc::new(RefCell::new(Session::new(CMD_SN, depth, false))),
            negotiated,
            cid: 0,
            nop_interval: 0,
            nop_timeout: 0,
        };
        let model: Vec<u8> = (0..WINDOWS * WINDOW_BLOCKS * BLOCK)
            .map(|n| (n / 7) as u8)
            .collect();
        let machine = AcceptedConnection::new(target::TargetSettings::default(), rdma, seed, 0);
        let mut target = TargetDouble::new(machine, role, model.clone());
        target.text_answer = answer.into_bytes();
        let session = initiator::InitiatorSession::new([0x80, 0, 0, 1, 0, 0], CMD_SN);
        let connection =
            initiator::CarriedConnection::new(settings, session, 0, [1; RANDOM_LEN], 0);
        World {
            initiator: End::new(connection),
            target,
            sent: VecDeque::new(),
            to_target: VecDeque::new(),
            to_initiator: VecDeque::new(),
            model,
            windows: (0..WINDOWS).collect(),
            pending: HashMap::new(),
            text: Vec::new(),
            is_ready: false,
            logout: None,
            has_ended: false,
            others: 0,
            submitted: 0,
            completed: 0,
            tally: Tally::default(),
            flips: false,
            flipped: HashSet::new(),
            digests: negotiated,
            random,
        }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let seed = self.random.next_u32();
        (0..len as u32)
            .map(|n| (seed ^ n.wrapping_mul(0x9e37_79b1) >> 13) as u8)
            .collect()
    }

    /// Submits a random command, if a window and a queue entry are free.
    fn submit(&mut self) {
        if self.initiator.machine.room() == 0 || self.windows.is_empty() {
            return;
        }
        let sizes = [1, 1, 8, 8, 16, 33, WINDOW_BLOCKS as u32];
        let blocks = sizes[self.random.below(sizes.len() as u64) as usize] as usize;
        let first = self.random.below((WINDOW_BLOCKS - blocks + 1) as u64) as usize;
        match self.random.below(10) {
            0..=3 => self.read(first, blocks),
            4..=7 => self.write(first, blocks),
            8 => self.inquire(),
            _ => self.submit_nothing(),
        }
    }

    /// What an initiator expects of `len` bytes, and the residual that it gets.
    fn expectation(&mut self, len: u32) -> (u32, Residual) {
        let odd = 1 + self.random.below(700) as u32;
        match self.random.below(8) {
            0 => (len + odd, Residual::Underflow(odd)),
            1 if len > odd => (len - odd, Residual::Overflow(odd)),
            _ => (len, Residual::None),
        }
    }

    fn read(&mut self, first: usize, blocks: usize) {
        let window = self.windows.pop().expect("the caller looked");
        let (lba, len) = (window * WINDOW_BLOCKS + first, blocks * BLOCK);
        let (edtl, residual) = self.expectation(len as u32);
        let come = len.min(edtl as usize);
        let expected = Expected {
            window: Some(window),
            status: status::GOOD,
            residual,
            data: Some(self.model[lba * BLOCK..lba * BLOCK + come].to_vec()),
            writes: None,
        };
        let cdb = cdb::read(lba as u32, blocks as u16);
        self.put(
            cdb,
            ExpectedData::In(edtl),
            vec![0x55; edtl as usize],
            expected,
        );
    }

    fn write(&mut self, first: usize, blocks: usize) {
        let window = self.windows.pop().expect("the caller looked");
        let (lba, len) = (window * WINDOW_BLOCKS + first, blocks * BLOCK);
        let (edtl, residual) = self.expectation(len as u32);
        let memory = self.bytes(edtl as usize);
        let mut expected = Expected {
            window: Some(window),
            status: status::GOOD,
            residual,
            data: None,
            writes: Some((lba * BLOCK, memory[..len.min(edtl as usize)].to_vec())),
        };
        let mut cdb = cdb::write(lba as u32, blocks as u16);
        if self.random.one_in(10) {
            // Refused, whatever data comes: the stream must go on.
            cdb[0] = 0xfe;
            expected.status = status::CHECK_CONDITION;
            expected.writes = None;
            expected.residual = Residual::Underflow(edtl);
        }
        self.put(cdb, ExpectedData::Out(edtl), memory, expected);
    }

    fn inquire(&mut self) {
        let (asked, edtl) = (self.random.below(80) as u32, self.random.below(90) as u32);
        let len = asked.min(61);
        let residual = match len.cmp(&edtl) {
            std::cmp::Ordering::Less => Residual::Underflow(edtl - len),
            std::cmp::Ordering::Equal => Residual::None,
            std::cmp::Ordering::Greater => Residual::Overflow(len - edtl),
        };
        let expected = Expected {
            window: None,
            status: status::GOOD,
            residual,
            data: Some((0..len.min(edtl)).map(|byte| byte as u8).collect()),
            writes: None,
        };
        let memory = vec![0x55; edtl as usize];
        self.put(
            cdb::inquiry(asked as u16),
            ExpectedData::In(edtl),
            memory,
            expected,
        );
    }

    fn submit_nothing(&mut self) {
        let expected = Expected {
            window: None,
            status: status::GOOD,
            residual: Residual::None,
            data: None,
            writes: None,
        };
        self.put(
            cdb::TEST_UNIT_READY,
            ExpectedData::None,
            Vec::new(),
            expected,
        );
    }

    fn put(&mut self, cdb: [u8; 16], data: ExpectedData, memory: Vec<u8>, expected: Expected) {
        let mut command = Command::new(0, cdb);
        // Behind a reset its CmdSN would not tell on which side of it it stands.
        command.is_immediate = self.others == 0 && self.random.one_in(20);
        let tag = self.initiator.machine.submit(&command, data);
        let tag = tag.expect("the caller looked for room");
        self.initiator.set_memory(tag, memory);
        self.tally.residuals += usize::from(expected.residual != Residual::None);
        let old = self.pending.insert(tag, expected);
        assert!(old.is_none(), "a tag was given twice");
        self.submitted += 1;
    }

    /// Something else than a command.
    fn submit_other(&mut self) {
        let machine = &mut self.initiator.machine;
        let mut tags: Vec<_> = self.pending.keys().copied().collect();
        tags.sort_unstable();
        let some = (!tags.is_empty()).then(|| tags[self.random.below(tags.len() as u64) as usize]);
        // What was lost and aborted at once is no way out of for this initiator.
        let kinds = if self.flips { 2 } else { 5 };
        let sent = match self.random.below(kinds) {
            0 => machine.ping(),
            1 => machine.text(b"SendTargets=All\0"),
            2 => machine.task_management(TaskFunction::LogicalUnitReset, lun_field(0), None),
            _ => match some {
                Some(tag) if machine.withdraw(tag) => {
                    self.end(tag);
                    None
                }
                Some(tag) => {
                    machine.task_management(TaskFunction::AbortTask, lun_field(0), Some(tag))
                }
                None => None,
            },
        };
        self.others += usize::from(sent.is_some());
    }

    fn end(&mut self, tag: Tag) -> Expected {
        let expected = self.pending.remove(&tag).expect("it was submitted");
        self.windows.extend(expected.window);
        self.completed += 1;
        expected
    }

    fn on_op(&mut self, op: InitiatorOp) {
        match op {
            InitiatorOp::Ready => {
                self.is_ready = true;
                let len = self.random.below(20_000) as usize;
                let text: Vec<u8> = self.bytes(len).iter().map(|b| b'a' + b % 26).collect();
                self.text = [b"TargetAlias=", &text[..], b"\0"].concat();
                self.target.text_answer = self.text.clone();
            }
            InitiatorOp::Completed { tag, completion } => self.on_completed(tag, &completion),
            InitiatorOp::TaskManaged { response, .. } => {
                // The command may have ended when its abort came.
                let fine = [TaskResponse::Complete as u8, TaskResponse::NoTask as u8];
                assert!(fine.contains(&response), "{response}");
                self.others -= 1;
                self.tally.managed += 1;
            }
            InitiatorOp::Pong { .. } => {
                self.others -= 1;
                self.tally.pongs += 1;
            }
            InitiatorOp::Text { .. } => {
                assert!(self.initiator.machine.text_answer() == self.text);
                self.others -= 1;
                self.tally.texts += 1;
            }
            InitiatorOp::LoggedOut { tag, response } => {
                assert_eq!((Some(tag), response), (self.logout, 0));
                self.has_ended = true;
            }
            op => panic!("{op:?}"),
        }
    }

    fn on_completed(&mut self, tag: Tag, completion: &Completion) {
        let expected = self.end(tag);
        if completion.outcome == CommandOutcome::Aborted {
            // It was executed, or it was not.
            if let Some((at, data)) = expected.writes {
                let there = &self.target.media[at..at + data.len()];
                assert!(there == data || *there == self.model[at..at + data.len()]);
                self.model[at..at + data.len()].copy_from_slice(there);
            }
            self.tally.aborted += 1;
            return;
        }
        assert_eq!(completion.outcome, CommandOutcome::Status(expected.status));
        assert_eq!(completion.residual, expected.residual);
        if expected.status == status::CHECK_CONDITION {
            let sense = self.initiator.machine.sense();
            assert_eq!((sense.len(), sense[0], sense[2]), (18, 0x70, 5));
        }
        if let Some(data) = expected.data {
            assert_eq!(completion.data_len as usize, data.len());
            let memory = &self.initiator.memory[usize::from(tag)];
            assert!(memory[..data.len()] == data, "what was read");
            assert!(
                memory[data.len()..].iter().all(|byte| *byte == 0x55),
                "and no more"
            );
        }
        if let Some((at, data)) = expected.writes {
            self.model[at..at + data.len()].copy_from_slice(&data);
        }
    }

    /// Carries whole PDUs on, in some of them a bit flipped.
    fn carry(&mut self) {
        let is_guarded = self.is_ready && self.digests.data_digest;
        if !self.flips || !is_guarded {
            return self.to_target.append(&mut self.sent);
        }
        let digest = |is_on| if is_on { 4 } else { 0 };
        while let Some(header) = self.sent.make_contiguous().first_chunk::<BHS_LEN>() {
            let bhs = Bhs::read_from_bytes(header).expect("48 bytes");
            let data = BHS_LEN + digest(self.digests.header_digest);
            let len = bhs.data_segment_length.get();
            let end = match len {
                0 => data,
                len => data + padded(len) as usize + digest(true),
            };
            if self.sent.len() < end {
                return;
            }
            let is_command = len > 0 && bhs.opcode() == opcode::SCSI_COMMAND;
            if is_command && self.random.one_in(2) && self.flipped.insert(bhs.itt.get()) {
                let at = data + self.random.below((end - data) as u64) as usize;
                self.sent[at] ^= 1 << self.random.below(8);
                self.tally.flips += 1;
            }
            self.to_target.extend(self.sent.drain(..end));
        }
    }

    /// One random step of either side.
    fn step(&mut self, commands: usize) {
        let size = match self.random.below(4) {
            0 => 1 + self.random.below(30) as usize,
            1 => 1 + self.random.below(3000) as usize,
            _ => usize::MAX,
        };
        let pdus = 1 + self.random.below(6) as usize;
        let target = &mut self.target;
        match self.random.below(8) {
            0 if self.is_ready && self.submitted < commands => match self.random.one_in(12) {
                true => self.submit_other(),
                false => self.submit(),
            },
            1 => {
                self.initiator.transmit(&mut self.sent, pdus);
                self.carry();
            }
            2 => {
                target.end.receive(&mut self.to_target, size);
                target.take_ops();
            }
            3 if !target.starved.is_empty() => {
                let index = self.random.below(target.starved.len() as u64);
                target.feed(index as usize);
            }
            4 if !target.work.is_empty() => {
                let index = self.random.below(target.work.len() as u64);
                target.execute(index as usize);
            }
            5 => target.transmit(&mut self.to_initiator, pdus),
            6 => {
                self.initiator.receive(&mut self.to_initiator, size);
                while let Some(op) = self.initiator.next_op() {
                    self.on_op(op);
                }
            }
            _ => {}
        }
        // Before anything else comes, which is no business of theirs.
        while !self.target.functions.is_empty() {
            self.target.manage(0);
        }
        assert_eq!(self.target.fatal, None);
        for refused in &self.target.refused {
            let is_flip = refused.reason == RejectReason::DataDigestError;
            assert!(self.flips && is_flip, "{refused:?}");
        }
    }
}

/// Plays `commands` commands from `seed` and returns the world they leave.
fn play(seed: u64, commands: usize, flips: bool) -> World {
    let mut world = World::new(seed, false);
    world.flips = flips;
    run(world, seed, commands)
}

/// The same of a world that is there.
fn run(mut world: World, seed: u64, commands: usize) -> World {
    let mut steps = 0;
    let mut step = |world: &mut World| {
        world.step(commands);
        steps += 1;
        let completed = world.completed;
        assert!(
            steps < 3_000_000,
            "seed {seed}: stuck after {completed} commands"
        );
    };
    while world.completed < commands.max(world.submitted)
        || world.others > 0
        || !world.to_initiator.is_empty()
        || !world.to_target.is_empty()
        || !world.sent.is_empty()
    {
        step(&mut world);
    }
    assert_eq!(world.initiator.machine.in_flight(), 0);
    assert!(
        world.target.end.machine.tasks().next().is_none(),
        "seed {seed}"
    );
    let machine = &mut world.initiator.machine;
    world.logout = machine.logout(LogoutReason::CloseSession, 0);
    while !world.has_ended {
        step(&mut world);
    }
    assert!(world.target.media == world.model, "seed {seed}: the media");
    assert!(
        world.target.named.iter().all(|named| !named),
        "seed {seed}: every tag was released"
    );
    world.tally.bytes = world.initiator.direct_bytes
        + world.initiator.placed_bytes
        + world.target.end.direct_bytes
        + world.target.end.placed_bytes;
    world
}

#[test]
fn everything_arrives() {
    let mut all = Tally::default();
    for seed in 0..64 {
        let tally = play(seed, 150, false).tally;
        all.aborted += tally.aborted;
        all.managed += tally.managed;
        all.pongs += tally.pongs;
        all.texts += tally.texts;
        all.residuals += tally.residuals;
        all.bytes += tally.bytes;
    }
    assert!(all.bytes > 10_000_000, "{all:?}");
    assert!(all.aborted > 100 && all.managed > 200, "{all:?}");
    assert!(
        all.pongs > 50 && all.texts > 50 && all.residuals > 1000,
        "{all:?}"
    );
}

#[test]
fn everything_arrives_by_rdma() {
    let mut all = Tally::default();
    for seed in 0..64 {
        let world = run(World::new(seed, true), seed, 150);
        assert!(world.target.end.machine.is_rdma());
        all.aborted += world.tally.aborted;
        all.managed += world.tally.managed;
        all.residuals += world.tally.residuals;
        all.bytes += world.tally.bytes;
    }
    assert!(all.bytes > 10_000_000, "{all:?}");
    assert!(
        all.aborted > 100 && all.managed > 200 && all.residuals > 1000,
        "{all:?}"
    );
}

#[test]
fn immediate_data_with_flipped_bits_arrives_in_the_end() {
    let flips: usize = (0..64).map(|seed| play(seed, 150, true).tally.flips).sum();
    assert!(flips > 150, "{flips}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn everything_arrives_whatever_the_seed(seed: u64) {
        play(seed, 100, false);
        run(World::new(seed, true), seed, 100);
    }
}
