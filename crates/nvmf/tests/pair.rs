//! The host's and the controller's machine against each other over a pipe in
//! memory, by TCP and by RDMA: random commands (fused pairs too), digests, alignments,
//! R2Ts, RDMA Reads, sizes, splits, aborts, memory that comes late and completions out of
//! order. Every byte is checked.

use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::sync::Arc;

use doubles::nvme::{ControllerDouble, ControllerMachine};
use iwarp::{CrcPolicy, QpSettings};
use machine::{Machine, Tag};
use nvmf::command::{AnaState, Geometry};
use nvmf::host::{Data, HostOp, HostRole};
use nvmf::queue::{AbortOutcome, ControllerEnd as _, InBandAuthentication, Role};
use nvmf::{rdma, tcp};
use proptest::prelude::*;
use random::Random;
use testkit::End;
use wire::nvme::{ConnectCommand, CopySource, DSM_AD, DsmRange, Sqe, Status, io};
use zerocopy::IntoBytes;

const BLOCK: usize = 512;
/// Each command in flight has a window of the media to itself.
const WINDOW_BLOCKS: usize = 256;
const WINDOWS: usize = 12;

/// What a command in flight must come to.
struct Expected {
    /// The window; none for the first of a pair, whose second has it.
    window: Option<usize>,
    /// The other of a fused pair.
    partner: Option<Tag>,
    status: Status,
    /// What a read brings.
    data: Option<Vec<u8>>,
    /// What the media holds in the window afterwards, from a byte of it on.
    writes: Option<(usize, Vec<u8>)>,
}

/// A host's end of any transport.
trait HostMachine: Machine<Op = HostOp<Self::Error>> {
    type Error: Display;

    fn attach(&mut self, role: HostRole);
    fn submit(&mut self, sqe: &Sqe, data: Data) -> Option<Tag>;
    fn room(&self) -> u16;
    fn in_flight(&self) -> usize;
}

macro_rules! host_machine {
    ($machine:ty, $error:ty) => {
        impl HostMachine for $machine {
            type Error = $error;

            fn attach(&mut self, role: HostRole) {
                self.attach(role);
            }
            fn submit(&mut self, sqe: &Sqe, data: Data) -> Option<Tag> {
                self.submit(sqe, data)
            }
            fn room(&self) -> u16 {
                self.room()
            }
            fn in_flight(&self) -> usize {
                self.in_flight()
            }
        }
    };
}

host_machine!(tcp::host::Qpair, tcp::FatalError);
host_machine!(rdma::host::RdmaQpair, rdma::host::RdmaHostError);

/// Both ends, the host's for the queue of a Connect, and how much data capsules have at most.
type Ends<T> = (
    Box<dyn FnOnce(&ConnectCommand) -> <T as Transport>::Host>,
    <T as Transport>::Controller,
    u32,
);

/// Both ends of a transport.
trait Transport: Sized {
    type Host: HostMachine;
    type Controller: ControllerMachine;

    /// Both with settings that `pick` chooses.
    fn ends(pick: &mut impl FnMut(&[u32]) -> u32) -> Ends<Self>;
}

struct Tcp;

impl Transport for Tcp {
    type Host = tcp::host::Qpair;
    type Controller = tcp::controller::Qpair;

    fn ends(pick: &mut impl FnMut(&[u32]) -> u32) -> Ends<Self> {
        let wanted = tcp::host::Settings {
            header_digest: pick(&[0, 1]) == 1,
            data_digest: pick(&[0, 1]) == 1,
            hpda: pick(&[0, 0, 1, 3, 15, 31]) as u8,
            maxr2t: pick(&[0, 0, 1, 3, 100]),
            part_in_capsule: pick(&[0, 0, 1]) == 1,
        };
        let settings = tcp::controller::Settings {
            in_capsule_max: pick(&[0, 512, 4096, 8192]),
            maxh2cdata: pick(&[4096, 16_384, 1 << 20]),
            cpda: pick(&[0, 0, 1, 7, 31]) as u8,
            r2t_bytes_max: pick(&[512, 4096, 10_000, 1 << 20]),
            header_digest: pick(&[0, 1, 1]) == 1,
            data_digest: pick(&[0, 1, 1]) == 1,
            ..tcp::controller::Settings::default()
        };
        let host = move |_: &ConnectCommand| tcp::host::Qpair::new(wanted);
        let controller = tcp::controller::Qpair::new(settings, 0);
        (Box::new(host), controller, settings.in_capsule_max)
    }
}

struct Rdma;

impl Transport for Rdma {
    type Host = rdma::host::RdmaQpair;
    type Controller = rdma::controller::Qpair;

    fn ends(pick: &mut impl FnMut(&[u32]) -> u32) -> Ends<Self> {
        let mut crc = || match pick(&[0, 1]) {
            0 => CrcPolicy::Off,
            _ => CrcPolicy::Prefer,
        };
        let (here, there) = (crc(), crc());
        let wanted = rdma::host::RdmaHostSettings {
            crc: here,
            ird_max: pick(&[1, 3, 128]) as u16,
            ulpdu_max: pick(&[128, 1454, 65_535]) as u16,
        };
        let settings = rdma::controller::RdmaSettings {
            stream: QpSettings {
                crc: there,
                ord_max: pick(&[1, 2, 128]) as u16,
                ulpdu_max: pick(&[128, 1454, 65_535]) as u16,
                ..QpSettings::default()
            },
            in_capsule_max: pick(&[0, 512, 4096, 8192]),
            ..rdma::controller::RdmaSettings::default()
        };
        let host =
            move |connect: &ConnectCommand| rdma::host::RdmaQpair::new(wanted, connect, 1, 7, 0);
        let controller = rdma::controller::Qpair::new(settings, 8, 0);
        (Box::new(host), controller, settings.in_capsule_max)
    }
}

struct World<T: Transport> {
    random: Random,
    host: End<T::Host>,
    target: ControllerDouble<T::Controller>,
    to_target: VecDeque<u8>,
    to_host: VecDeque<u8>,
    model: Vec<u8>,
    windows: Vec<usize>,
    pending: HashMap<Tag, Expected>,
    connect: ConnectCommand,
    role: HostRole,
    is_ready: bool,
    submitted: usize,
    completed: usize,
    /// What happened to commands, by kind.
    fused: usize,
    copied: usize,
    aborted: usize,
}

impl<T: Transport> World<T> {
    fn new(seed: u64) -> World<T> {
        let mut random = Random::new(seed);
        let mut pick = |of: &[u32]| of[random.below(of.len() as u64) as usize];
        let (host, controller, in_capsule_max) = T::ends(&mut pick);
        let entries = pick(&[2, 3, 8, 64]) as u16;
        let flow_control_disabled = pick(&[0, 1]) == 1;
        let connect = ConnectCommand {
            recfmt: 0,
            qid: 1,
            sqsize: entries - 1,
            cattr: if flow_control_disabled { 4 } else { 0 },
            kato_ms: 0,
        };
        let block_count = (WINDOWS * WINDOW_BLOCKS) as u64;
        let geometry = Geometry {
            nsid: 1,
            block_shift: 9,
            read_only: false,
            ana: AnaState::Optimized,
            instance: 0,
            block_count,
        };
        let role = Role {
            qid: 1,
            entries,
            flow_control_disabled,
            namespaces: Arc::new([geometry]),
            authentication: InBandAuthentication::None,
        };
        let model: Vec<u8> = (0..WINDOWS * WINDOW_BLOCKS * BLOCK)
            .map(|n| (n / 7) as u8)
            .collect();
        World {
            host: End::new(host(&connect)),
            target: ControllerDouble::new(controller, role, model.clone()),
            connect,
            to_target: VecDeque::new(),
            to_host: VecDeque::new(),
            model,
            windows: (0..WINDOWS).collect(),
            pending: HashMap::new(),
            role: HostRole {
                entries,
                in_capsule_max,
                flow_control_disabled,
            },
            is_ready: false,
            submitted: 0,
            completed: 0,
            fused: 0,
            copied: 0,
            aborted: 0,
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
        let Some(window) = self.windows.last().copied() else {
            return;
        };
        let sizes = [1, 1, 8, 8, 16, 33, WINDOW_BLOCKS as u32];
        let blocks = sizes[self.random.below(sizes.len() as u64) as usize] as usize;
        let first = self.random.below((WINDOW_BLOCKS - blocks + 1) as u64) as usize;
        let (at, len) = ((window * WINDOW_BLOCKS + first) * BLOCK, blocks * BLOCK);
        let kind = self.random.below(16);
        let opcode = match kind {
            0..=2 => io::READ,
            3..=5 => io::WRITE,
            6 => io::COMPARE,
            7 => io::WRITE_ZEROES,
            8 => io::DATASET_MANAGEMENT,
            9 => io::VERIFY,
            10 => io::WRITE_UNCORRECTABLE,
            11 => return self.submit_copy(window),
            12 | 13 => return self.submit_pair(window, at, len),
            _ => io::FLUSH,
        };
        let mut sqe = Sqe::new(opcode);
        sqe.nsid = 1.into();
        sqe.set_blocks((at / BLOCK) as u64, blocks as u32);
        let mut expected = Expected {
            window: Some(window),
            partner: None,
            status: Status::SUCCESS,
            data: None,
            writes: None,
        };
        let mut memory = Vec::new();
        let there = self.model[at..at + len].to_vec();
        let data = match opcode {
            io::READ => {
                expected.data = Some(there);
                memory = vec![0x55; len];
                Data::In(len as u32)
            }
            io::WRITE | io::COMPARE => {
                memory = if opcode == io::WRITE {
                    self.bytes(len)
                } else {
                    there
                };
                if opcode == io::WRITE {
                    expected.writes = Some((at, memory.clone()));
                } else if self.random.one_in(2) {
                    memory[len - 1] ^= 1;
                    expected.status = Status::COMPARE_FAILURE;
                }
                Data::Out(len as u32)
            }
            io::WRITE_UNCORRECTABLE => {
                // What the memory target puts there for it.
                expected.writes = Some((at, vec![0xbd; len]));
                Data::None
            }
            io::WRITE_ZEROES => {
                expected.writes = Some((at, vec![0; len]));
                Data::None
            }
            io::DATASET_MANAGEMENT => {
                let range = DsmRange {
                    length_blocks: (blocks as u32).into(),
                    slba: ((at / BLOCK) as u64).into(),
                    ..DsmRange::default()
                };
                memory = range.as_bytes().to_vec();
                memory.resize(4096, 0xff);
                sqe.cdw10 = 0.into();
                sqe.cdw11 = DSM_AD.into();
                expected.writes = Some((at, vec![0; len]));
                Data::Out(4096)
            }
            _ => Data::None,
        };
        if self.random.one_in(10) {
            // Refused at once, whatever data it has: the stream must go on.
            sqe.nsid = 2.into();
            expected.status = Status::INVALID_FIELD.dnr();
            (expected.data, expected.writes) = (None, None);
        }
        if self.put(&sqe, data, memory, expected).is_some() {
            self.windows.pop();
        }
    }

    /// Puts a command on the queue, if that is not full.
    fn put(&mut self, sqe: &Sqe, data: Data, memory: Vec<u8>, expected: Expected) -> Option<Tag> {
        let tag = self.host.machine.submit(sqe, data)?;
        self.host.set_memory(tag, memory);
        assert!(
            self.pending.insert(tag, expected).is_none(),
            "a tag was given twice"
        );
        self.submitted += 1;
        Some(tag)
    }

    /// Copies parts of the first half of `window` to its second half.
    fn submit_copy(&mut self, window: usize) {
        let half = WINDOW_BLOCKS / 2;
        let (from, to) = (window * WINDOW_BLOCKS, window * WINDOW_BLOCKS + half);
        let format = self.random.below(4) as u32;
        let (mut table, mut copied) = (Vec::new(), Vec::new());
        let mut ranges = 0;
        while ranges == 0 || self.random.one_in(2) {
            let blocks = 1 + self.random.below(20) as usize;
            let slba = from + self.random.below((half - blocks) as u64) as usize;
            if copied.len() + blocks * BLOCK > half * BLOCK {
                break;
            }
            let entry = CopySource {
                snsid: 1.into(),
                slba: (slba as u64).into(),
                nlb: ((blocks - 1) as u16).into(),
                ..CopySource::default()
            };
            table.extend(entry.as_bytes());
            table.resize(table.len() + 8 * (format as usize & 1), 0xff);
            copied.extend_from_slice(&self.model[slba * BLOCK..(slba + blocks) * BLOCK]);
            ranges += 1;
        }
        let mut sqe = Sqe::new(io::COPY);
        sqe.nsid = 1.into();
        sqe.set_blocks(to as u64, 1);
        sqe.cdw12 = ((ranges - 1) | format << 8).into();
        let expected = Expected {
            window: Some(window),
            partner: None,
            status: Status::SUCCESS,
            data: None,
            writes: Some((to * BLOCK, copied)),
        };
        let len = table.len() as u32;
        let data = Data::Out(len);
        if self.put(&sqe, data, table, expected).is_some() {
            self.windows.pop();
            self.copied += 1;
        }
    }

    /// A fused Compare and Write on `len` bytes at byte `at` of `window`.
    fn submit_pair(&mut self, window: usize, at: usize, len: usize) {
        if self.host.machine.room() < 2 {
            return;
        }
        let mut compared = self.model[at..at + len].to_vec();
        let written = self.bytes(len);
        let matches = self.random.one_in(2);
        compared[len / 2] ^= u8::from(!matches);
        let half = |opcode, fuse| {
            let mut sqe = Sqe::new(opcode);
            sqe.flags |= fuse;
            sqe.nsid = 1.into();
            sqe.set_blocks((at / BLOCK) as u64, (len / BLOCK) as u32);
            sqe
        };
        let expect = |window, status, writes| Expected {
            window,
            partner: None,
            status,
            data: None,
            writes,
        };
        let (first, second) = match matches {
            true => (Status::SUCCESS, Status::SUCCESS),
            false => (Status::COMPARE_FAILURE, Status::FUSED_FAILED),
        };
        let writes = matches.then(|| (at, written.clone()));
        let data = Data::Out(len as u32);
        let compare = half(io::COMPARE, Sqe::FUSE_FIRST);
        let write = half(io::WRITE, Sqe::FUSE_SECOND);
        let first = self.put(&compare, data, compared, expect(None, first, None));
        let second = self.put(&write, data, written, expect(Some(window), second, writes));
        let (a, b) = first.zip(second).expect("there was room");
        self.pending.get_mut(&a).expect("just put").partner = second;
        self.pending.get_mut(&b).expect("just put").partner = first;
        self.windows.pop();
        self.fused += 1;
    }

    /// Aborts a random command, if the target has it: a half of a pair fails the
    /// other.
    fn abort(&mut self) {
        let mut tags: Vec<_> = self.pending.keys().copied().collect();
        tags.sort_unstable();
        let tag = tags[self.random.below(tags.len() as u64) as usize];
        if self.target.fused_cids().contains(&tag) {
            return;
        }
        match self.target.end.machine.abort(tag) {
            AbortOutcome::NotFound => return,
            AbortOutcome::Aborted(_) => {}
            AbortOutcome::Executing(at) => self.target.forget(at),
        }
        let statuses = [Status::ABORT_REQUESTED, Status::FUSED_FAILED];
        let partner = self.pending[&tag].partner;
        // Its other half was aborted before, and it with that.
        let is_aborted = |half: Option<&Expected>| {
            half.is_none_or(|half| half.status == Status::ABORT_REQUESTED)
        };
        if partner.is_some_and(|partner| is_aborted(self.pending.get(&partner))) {
            return;
        }
        for (tag, status) in [Some(tag), partner].into_iter().zip(statuses) {
            let Some(tag) = tag else { continue };
            let expected = self.pending.get_mut(&tag).expect("it is pending");
            expected.status = status;
            (expected.data, expected.writes) = (None, None);
        }
        self.aborted += 1;
    }

    fn on_host_op(&mut self, op: <T::Host as Machine>::Op) {
        match op {
            HostOp::Ready => {
                let tag = self
                    .host
                    .machine
                    .submit(&self.connect.encode(), Data::Out(1024));
                self.host.set_memory(tag.expect("one entry"), vec![1; 1024]);
            }
            HostOp::Completed { cqe, .. } if !self.is_ready => {
                assert_eq!((cqe.status, cqe.result), (Status::SUCCESS, 1));
                self.host.machine.attach(self.role);
                self.is_ready = true;
            }
            HostOp::Completed { tag, cqe } => {
                let expected = self.pending.remove(&tag).expect("it was submitted");
                assert_eq!(cqe.status, expected.status);
                if let Some(data) = expected.data {
                    assert_eq!(cqe.data_len as usize, data.len());
                    assert!(self.host.memory[usize::from(tag)] == data, "what was read");
                }
                if let Some((at, data)) = expected.writes {
                    self.model[at..at + data.len()].copy_from_slice(&data);
                }
                if let Some(window) = expected.window {
                    self.windows.insert(0, window);
                }
                self.completed += 1;
            }
            HostOp::Fatal(error) => panic!("{error}"),
        }
    }

    /// One random step of the host or the target.
    fn step(&mut self, commands: usize) {
        let size = match self.random.below(4) {
            0 => 1 + self.random.below(30) as usize,
            1 => 1 + self.random.below(3000) as usize,
            _ => usize::MAX,
        };
        let pdus = 1 + self.random.below(6) as usize;
        match self.random.below(8) {
            0 if self.is_ready && self.submitted < commands => self.submit(),
            1 => self.host.transmit(&mut self.to_target, pdus),
            2 => {
                self.target.end.receive(&mut self.to_target, size);
                self.target.take_ops();
            }
            3 if !self.target.starved.is_empty() => {
                let index = self.random.below(self.target.starved.len() as u64);
                self.target.feed(index as usize);
            }
            4 if !self.target.work.is_empty() => {
                let index = self.random.below(self.target.work.len() as u64);
                self.target.execute(index as usize);
            }
            4 if !self.target.fused.is_empty() => {
                let index = self.random.below(self.target.fused.len() as u64);
                self.target.execute_fused(index as usize);
            }
            5 => self.target.transmit(&mut self.to_host, pdus),
            7 if !self.pending.is_empty() && self.random.one_in(40) => self.abort(),
            6 => {
                self.host.receive(&mut self.to_host, size);
                while let Some(op) = self.host.next_op() {
                    self.on_host_op(op);
                }
            }
            _ => {}
        }
        assert!(self.target.fatal.is_none());
    }
}

/// Plays `commands` commands from `seed` and returns the world they leave.
fn play<T: Transport>(seed: u64, commands: usize) -> World<T> {
    let mut world = World::<T>::new(seed);
    let mut steps = 0;
    // The last answer may overtake data of a refused command.
    while world.completed < commands.max(world.submitted)
        || !world.to_host.is_empty()
        || !world.to_target.is_empty()
    {
        world.step(commands);
        steps += 1;
        assert!(
            steps < 2_000_000,
            "seed {seed}: stuck after {} commands",
            world.completed
        );
    }
    assert!(world.target.media == world.model, "seed {seed}: the media");
    assert_eq!(world.host.machine.in_flight(), 0);
    assert_eq!(
        world.target.end.machine.queue().in_flight(),
        0,
        "seed {seed}"
    );
    assert!(
        world.target.named.iter().all(|named| !named),
        "seed {seed}: every tag was released"
    );
    world
}

/// Plays many seeds.
fn play_all<T: Transport>() {
    let (mut moved, mut fused, mut copied, mut aborted) = (0, 0, 0, 0);
    for seed in 0..64 {
        let world = play::<T>(seed, 150);
        (fused, copied, aborted) = (
            fused + world.fused,
            copied + world.copied,
            aborted + world.aborted,
        );
        moved += world.host.direct_bytes + world.host.placed_bytes;
        moved += world.target.end.direct_bytes + world.target.end.placed_bytes;
    }
    assert!(
        moved > 10_000_000,
        "{moved} bytes of payload were looked at"
    );
    assert!(
        fused > 200 && copied > 200 && aborted > 100,
        "{fused} {copied} {aborted}"
    );
}

#[test]
fn everything_arrives_by_tcp() {
    play_all::<Tcp>();
}

#[test]
fn everything_arrives_by_rdma() {
    play_all::<Rdma>();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn everything_arrives_by_tcp_whatever_the_seed(seed: u64) {
        play::<Tcp>(seed, 100);
    }

    #[test]
    fn everything_arrives_by_rdma_whatever_the_seed(seed: u64) {
        play::<Rdma>(seed, 100);
    }
}
