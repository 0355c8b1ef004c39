//! What hosts ask for, and what is made of the answers.

mod changes;
mod copies;
mod harm;
mod requests;
mod snapshots;

use std::collections::{HashMap, VecDeque};

use host::Completion as Cqe;
use mem::BufRange;
use random::Random;
use reactor::{Nanos, Token};
use wire::nvme::{Sqe, Status, admin, io};

use crate::announced::Announced;
use crate::checker::{
    CheckedOp, Checker, OpKind, Promise, SeenBlock, Stamp, Value, Verdict, Violation, ZEROS,
};
use crate::content::{self, SECTOR_BYTES, Sector};
use crate::host::had_no_effect;
use crate::limits::{Moved, MovedIo};
use crate::plan::{Harm, NbdForm, Plan};
use crate::reserve::{Ask, Book, CommandEnd, Notice, REPORT_BYTES, ReservationReport};
use crate::target::{host_identifier, nsid};
use crate::world::{DriverId, S, SharedWorld, World};

/// An answer that takes longer is a failure where nothing excuses it.
const ANSWER_MAX: Nanos = 30 * S;
/// In place of an opcode: a Compare and a Write, fused.
const FUSED: u8 = 0xff;
/// In place of an opcode: ORWRITE, for which NVMe has no command.
pub const OR_WRITE: u8 = 0xfe;
/// Bytes of the answer to Get LBA Status: a header and some descriptors.
const LBA_STATUS_BYTES: u32 = 8 + 16 * 16;
/// In place of a status: COPY ABORTED of EXTENDED COPY.
pub const COPY_ABORTED: Status = Status::INTERNAL_ERROR;
/// Blocks that all hosts want.
const HOT_BLOCKS: u64 = 6;

/// Which command of its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommandPart {
    Whole,
    /// The compare of a fused pair.
    First,
    /// The write of a fused pair.
    Second,
    /// The write of what a copy is to find at its source.
    Stage,
}

/// A command in flight, as the checker sees it.
#[derive(Clone, Debug)]
pub struct CheckedIo {
    /// One operation; several for the ranges of a deallocation; none for a
    /// reservation command.
    ops: Vec<Value>,
    part: CommandPart,
    /// The volume of a reservation command, and its number there.
    reserve: Option<(usize, u64)>,
}

/// A command to send.
pub struct SimRequest {
    /// The command.
    pub sqe: Sqe,
    /// The namespace whose logical unit an initiator sends it to, where that is
    /// not the command's own: a unit is asked to copy to another.
    pub asked: Option<u32>,
    /// Bytes of data, in either direction.
    pub len: u32,
    /// The data to send.
    pub bytes: Vec<u8>,
    /// What it is to the checker.
    pub io: CheckedIo,
    /// A reservation command of an initiator.
    pub ask: Option<Ask>,
}

/// What became of one command of a fused pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered(Status),
    Lost,
}

/// Operations of unknown outcome that may still have their effect.
struct Unsettled {
    ops: Vec<Value>,
    /// Until the target has let go of this connection.
    connection: Option<usize>,
    /// And until this file work is over.
    work: Option<Vec<(DriverId, Token)>>,
    /// The volume of a reservation command, and its number there.
    reserve: Option<(usize, u64)>,
}

struct ServedVolumes {
    block_bytes: u32,
    /// Its size, as far as hosts know.
    blocks: u64,
    /// What its size was at least and at most, from each of these moments on.
    sizes: Vec<(Stamp, u64, u64)>,
    atomic_blocks: u64,
    /// Its reservations can outlast a restart.
    can_persist: bool,
    book: Book,
    /// Hosts that may not write, and of which no command is left that began when they
    /// might.
    is_over: Vec<bool>,
    /// Subsystems where its namespace may be gone.
    may_be_gone: Vec<bool>,
    /// Since when it is certainly there, by subsystem, where it is.
    there_since: Vec<Stamp>,
    /// When no host could use it, by subsystem: from one moment to another.
    absent: Vec<Vec<(Stamp, Stamp)>>,
}

/// What hosts ask for, and what is made of the answers.
pub struct HostWork {
    /// What every block may hold.
    pub checker: Checker,
    world: SharedWorld,
    random: Random,
    plan: Plan,
    volumes: Vec<ServedVolumes>,
    /// What reports call each host.
    called: Vec<[u8; 16]>,
    left: u64,
    /// What each block held in the last answer about it.
    guess: Vec<Vec<Option<Value>>>,
    fused: HashMap<Value, Fate>,
    unsettled: Vec<Unsettled>,
    copies: copies::CopiesUnderWay,
    /// What plans say that hosts see.
    pub announced: Announced,
    /// Since when each host gets notifications.
    hears: Vec<Option<Stamp>>,
    /// When each lost its queues last.
    deaf_at: Vec<Stamp>,
    /// Hosts that must be notified of something about a volume.
    owed: Vec<(usize, usize, Notice)>,
    /// Notifications that hosts got, and when.
    heard: Vec<((usize, usize, Notice), Stamp)>,
    /// Reads of everything, at the end.
    verify: VecDeque<(usize, u64, u64)>,
    /// How many of those may still be refused to one host and left to another.
    refusals_left: usize,
    /// Nothing goes wrong any more.
    is_healed: bool,
    /// Commands answered, by whether they succeeded.
    pub answers: [u64; 2],
    /// What was read and written.
    pub moved: Moved,
}

impl HostWork {
    /// The work of a plan.
    pub fn new(world: &SharedWorld, plan: &Plan) -> HostWork {
        HostWork {
            checker: Checker::new(),
            world: world.clone(),
            random: Random::new(plan.seed ^ 0x776f_726b),
            plan: plan.clone(),
            volumes: Vec::new(),
            called: (plan.hosts.iter().enumerate())
                .map(|(n, host)| host_identifier(n, host.iscsi.is_some()))
                .collect(),
            left: plan.ops,
            guess: Vec::new(),
            fused: HashMap::new(),
            unsettled: Vec::new(),
            copies: copies::CopiesUnderWay::default(),
            announced: Announced::new(plan),
            hears: vec![None; plan.hosts.len()],
            deaf_at: vec![0; plan.hosts.len()],
            owed: Vec::new(),
            heard: Vec::new(),
            verify: VecDeque::new(),
            refusals_left: 0,
            is_healed: false,
            answers: [0; 2],
            moved: Moved::default(),
        }
    }

    /// One more volume, of zeros.
    pub fn add_volume(&mut self, block_bytes: u32, can_persist: bool, promise: Promise) {
        self.checker.add_volume(promise);
        self.guess.push(vec![Some(ZEROS); promise.blocks as usize]);
        self.volumes.push(ServedVolumes {
            block_bytes,
            blocks: promise.blocks,
            sizes: vec![(0, promise.blocks, promise.blocks)],
            atomic_blocks: promise.atomic_blocks,
            can_persist,
            book: Book::new(self.plan.hosts.len()),
            is_over: vec![false; self.plan.hosts.len()],
            // The iSCSI target is one more, from which nothing goes.
            may_be_gone: vec![false; self.plan.subsystems + 1],
            there_since: vec![0; self.plan.subsystems + 1],
            absent: vec![Vec::new(); self.plan.subsystems + 1],
        });
    }

    /// Notes what happens.
    pub fn trace(&self, line: impl FnOnce() -> String) {
        self.world.borrow_mut().trace(line);
    }

    /// Whether hosts have something left to ask for.
    pub fn has_more(&self) -> bool {
        self.left > 0 || !self.verify.is_empty() || !self.copies.ready.is_empty()
    }

    /// From now on nothing excuses an error or a late answer.
    pub fn heal(&mut self) {
        self.is_healed = true;
        self.left = 0;
    }

    /// Has everything read once.
    pub fn verify_all(&mut self) {
        let shared = self.volumes.iter().take(self.plan.shared_volumes());
        for (volume, served) in shared.enumerate() {
            let most = u64::from(self.plan.io_bytes_max / served.block_bytes);
            let step = most.min(served.atomic_blocks).min(16);
            let mut first = self.plan.stage_blocks();
            while first < served.blocks {
                let blocks = step.min(served.blocks - first);
                self.verify.push_back((volume, first, blocks));
                first += blocks;
            }
        }
        self.refusals_left = self.verify.len() * self.plan.hosts.len();
    }

    /// Whether a host aborts something now.
    pub fn wants_abort(&mut self) -> bool {
        self.plan.abort_percent > 0 && self.left > 0 && self.random.percent(self.plan.abort_percent)
    }

    /// How long to wait before the next operation, mostly not at all.
    pub fn draw_pause(&mut self) -> Nanos {
        match self.plan.think {
            0 => 0,
            think if self.verify.is_empty() && self.random.percent(30) => self.random.around(think),
            _ => 0,
        }
    }

    /// The commands of the next operation of a host that has `room` for so
    /// many; none where that is too few.
    pub fn next(&mut self, host: usize, room: usize) -> Vec<SimRequest> {
        if room == 0 {
            return Vec::new();
        }
        if let Some((volume, first, blocks)) = self.verify.pop_front() {
            return vec![self.read(host, volume, first, blocks)];
        }
        if let Some(copy) = self.staged(host) {
            return vec![copy];
        }
        if self.left == 0 {
            return Vec::new();
        }
        self.left -= 1;
        let volume = self.plan.hosts[host].volume;
        let volume =
            volume.unwrap_or_else(|| self.random.below(self.plan.shared_volumes() as u64) as usize);
        let harm = self.plan.harm(host);
        let speaks_nbd = self.plan.hosts[host].nbd.is_some();
        let may_reserve =
            harm == Harm::Nothing && !speaks_nbd && !self.volumes[volume].book.is_busy();
        if self.random.percent(self.plan.reserve_percent) && may_reserve {
            return vec![self.reserve(host, volume)];
        }
        let speaks_iscsi = self.plan.hosts[host].iscsi.is_some();
        let unless = |isnt: bool, weight: u32| if isnt { 0 } else { weight };
        let nbd = self.plan.hosts[host].nbd;
        let has_no_status = nbd.is_some_and(|plan| plan.form == NbdForm::Simple);
        // A bit of what other commands have for data would make others of them.
        let is_exact = harm == Harm::Data;
        let kind = self.random.weighted(&[
            (35, io::READ),
            (35, io::WRITE),
            (self.plan.flushes, io::FLUSH),
            (6, io::WRITE_ZEROES),
            (unless(is_exact, 3), io::DATASET_MANAGEMENT),
            (unless(is_exact || speaks_nbd, 4), io::COMPARE),
            (unless(speaks_nbd, 3), io::VERIFY),
            (self.spoils(host), io::WRITE_UNCORRECTABLE),
            (unless(is_exact || room < 2 || speaks_nbd, 12), FUSED),
            (unless(is_exact || !speaks_iscsi, 6), OR_WRITE),
            (
                unless(harm != Harm::Nothing || speaks_nbd, self.plan.copies),
                io::COPY,
            ),
            (
                unless(is_exact && speaks_iscsi || has_no_status, 3),
                admin::GET_LBA_STATUS,
            ),
        ]);
        let (first, blocks) = self.extent(volume);
        match kind {
            io::READ => vec![self.read(host, volume, first, blocks)],
            io::WRITE => vec![self.write(host, volume, first, blocks)],
            io::FLUSH => vec![self.flush(host, volume)],
            io::WRITE_ZEROES => vec![self.zero(host, volume, first, blocks)],
            io::DATASET_MANAGEMENT => vec![self.trim(host, volume)],
            io::VERIFY => vec![self.verify(host, volume, first, blocks)],
            io::WRITE_UNCORRECTABLE => vec![self.spoil(host, volume, first, blocks)],
            io::COPY => vec![self.stage(host, volume, first, blocks)],
            OR_WRITE => vec![self.or_write(host, volume, first, blocks)],
            admin::GET_LBA_STATUS => vec![self.lba_status(host, volume, first, blocks)],
            _ => self.compare(host, volume, first, blocks, kind == FUSED),
        }
    }

    /// A place on a volume: often where others are.
    fn extent(&mut self, volume: usize) -> (u64, u64) {
        let served = &self.volumes[volume];
        let r = &mut self.random;
        let (from, blocks) = (self.plan.stage_blocks(), served.blocks);
        let most = u64::from(self.plan.io_bytes_max / served.block_bytes).min(blocks - from);
        let blocks = match r.below(10) {
            0..4 => 1,
            4..8 => r.between(1, most.min(8)),
            8 => r.between(1, served.atomic_blocks.min(most).min(32)),
            _ => r.between(1, most.min(64)),
        };
        let last = served.blocks - blocks;
        // A smaller volume is hot where it begins.
        let hot = match self.plan.volumes[volume].hot {
            hot if from <= hot && hot <= last => hot,
            _ => from,
        };
        let first = match r.percent(self.plan.hot_percent) {
            true => r.between(hot, last.min(hot + HOT_BLOCKS - 1)),
            false => r.between(from, last),
        };
        (first, blocks)
    }

    /// What a host calls a volume.
    fn nsid(&self, host: usize, volume: usize) -> u32 {
        nsid(self.plan.hosts[host].subsystem, volume)
    }

    fn reserve(&mut self, host: usize, volume: usize) -> SimRequest {
        let now = self.checker.stamp();
        let served = &mut self.volumes[volume];
        let speaks_iscsi = self.plan.hosts[host].iscsi.is_some();
        let random = &mut self.random;
        let ask = match speaks_iscsi {
            true => served.book.choose_scsi(host, served.can_persist, random),
            false => served.book.choose(host, served.can_persist, random),
        };
        let number = served.book.begin(host, ask, now);
        self.allow_writes(volume);
        self.trace(|| format!("host {host}: {ask:?} of volume {volume}"));
        let (mut sqe, bytes) = match speaks_iscsi {
            true => (Sqe::new(io::RESERVATION_REGISTER), Vec::new()),
            false => ask.encode(),
        };
        sqe.nsid = self.nsid(host, volume).into();
        let len = match ask {
            Ask::Report => REPORT_BYTES,
            _ => bytes.len(),
        };
        SimRequest {
            sqe,
            asked: None,
            len: len as u32,
            bytes,
            io: CheckedIo {
                ops: Vec::new(),
                part: CommandPart::Whole,
                reserve: Some((volume, number)),
            },
            ask: speaks_iscsi.then_some(ask),
        }
    }

    /// A reservation command was answered.
    fn reserved(
        &mut self,
        (volume, number): (usize, u64),
        cqe: &Cqe,
        memory: Option<BufRange>,
    ) -> Verdict {
        let status = cqe.status;
        let now = self.checker.stamp();
        let was_there = self.was_there(volume);
        let end = match status.code() {
            Status::SUCCESS => CommandEnd::Done,
            Status::RESERVATION_CONFLICT => CommandEnd::Conflict,
            // Where there is no namespace every field is wrong.
            Status::INVALID_FIELD if was_there => CommandEnd::Invalid,
            _ => {
                let work = Some(Vec::new());
                self.unsettled.push(Unsettled {
                    ops: Vec::new(),
                    connection: None,
                    work,
                    reserve: Some((volume, number)),
                });
                return Ok(());
            }
        };
        let book = &mut self.volumes[volume].book;
        assert!(book.awaits(number), "answers do not outlive a target");
        let begun = book.begun();
        // Only the answer to a host that takes the reservation says that what others
        // began is over. That it is held may be known from elsewhere before.
        let asked = book.asked().map(|(_, ask)| ask);
        let takes = matches!(asked, Some(Ask::Acquire { .. } | Ask::Preempt { .. }))
            && end == CommandEnd::Done;
        let owed = match end {
            CommandEnd::Done => book.must_tell(),
            _ => Vec::new(),
        };
        let fits = match (book.asked(), end) {
            (Some((_, Ask::Report)), CommandEnd::Done) => {
                let mut bytes = vec![0; cqe.data_len as usize];
                mem::copy_out(memory.expect("it has").slice(0, cqe.data_len), &mut bytes);
                ReservationReport::decode(&bytes, &self.called)
                    .is_some_and(|report| book.reported(&report, now))
            }
            _ => book.answered(end, now),
        };
        self.expect_notices(volume, begun, owed);
        if !fits {
            let text = format!("a reservation command on volume {volume} ended with {status}");
            return Err(Violation(text));
        }
        let served = &mut self.volumes[volume];
        for (host, is_over) in served.is_over.iter_mut().enumerate() {
            let is_barred = served.book.is_barred(host);
            *is_over = is_barred && (takes || *is_over);
            if *is_over {
                self.checker.forbid_writes(host, volume);
            }
        }
        self.allow_writes(volume);
        Ok(())
    }

    /// Whether the host of the reservation command under way has found the
    /// volume all the time since it asked.
    fn was_there(&self, volume: usize) -> bool {
        let served = &self.volumes[volume];
        served.book.asked().is_some_and(|(host, _)| {
            let subsystem = self.plan.hosts[host].subsystem;
            let since = served.there_since[subsystem];
            !served.may_be_gone[subsystem] && since < served.book.begun()
        })
    }

    /// A reservation command had its effect or not, and has it no more.
    fn forget(&mut self, volume: usize, number: u64) {
        if !self.volumes[volume].book.awaits(number) {
            return;
        }
        let now = self.checker.stamp();
        self.volumes[volume].book.unknown(now);
        self.volumes[volume].is_over.fill(false);
        self.allow_writes(volume);
    }

    /// Hosts that may write, as far as is known, may do so late.
    fn allow_writes(&mut self, volume: usize) {
        let book = &self.volumes[volume].book;
        for host in (0..self.plan.hosts.len()).filter(|&host| !book.is_barred(host)) {
            self.checker.allow_writes(host, volume);
        }
    }

    /// Whether what reservations allowed, and the size of the volume, fit an
    /// answer to a command that these operations are.
    fn check_access(&mut self, ops: &[Value], status: Status) -> Verdict {
        let now = self.checker.stamp();
        let value = ops[0];
        self.fits_documents(value, status.is_success())?;
        let op = self.checker.op(value);
        let (reads, writes) = match op.kind {
            OpKind::Read | OpKind::Compare | OpKind::Verify => (true, false),
            OpKind::CompareAndWrite { .. } | OpKind::OrWrite | OpKind::Copy { .. } => (true, true),
            // NBD clients cannot register, and what they have written is to last.
            OpKind::Flush if self.plan.hosts[op.host].nbd.is_some() => (false, false),
            // An Admin command of NVMe, for which reservations are nothing.
            OpKind::LbaStatus => (!self.plan.hosts[op.host].speaks_nvme(), false),
            _ => (false, true),
        };
        let copy = self.source_of(value);
        // A copy begins when what it copies is in its place.
        let (host, begun) = (op.host, copy.map_or(op.begun(), |copy| copy.begun));
        let subsystem = self.plan.hosts[host].subsystem;
        // It comes from a volume that may be another.
        let source = copy.map(|copy| copy.source);
        let source = source.filter(|source| *source != op.volume);
        // Of the unit that is asked it needs what a write needs (SPC-4, table 68).
        let is_asked_there = copy.is_some_and(|copy| copy.asked != op.volume);
        let of_volumes = [Some(op.volume), source].into_iter().flatten();
        let mut absent = of_volumes.flat_map(|volume| &self.volumes[volume].absent[subsystem]);
        if status.is_success() && absent.any(|&(from, to)| from < begun && now < to) {
            let text = format!("op {value} succeeded where nothing was served");
            return Err(Violation(text));
        }
        let book = &self.volumes[op.volume].book;
        let from = source.map(|source| &self.volumes[source].book);
        let ends = ops.iter().map(|value| self.checker.op(*value));
        let end = ends.map(|op| op.first + op.blocks).max().unwrap_or(0);
        let (least, most) = self.size_between(op.volume, begun, now);
        let is_impossible = match status.code() {
            Status::SUCCESS => end > most,
            Status::LBA_OUT_OF_RANGE => end <= least,
            _ => false,
        };
        if is_impossible && !matches!(op.kind, OpKind::Flush | OpKind::LbaStatus) {
            return Err(Violation(format!(
                "op {value} up to block {end} ended with {status} on a volume of {least} to \
                 {most} blocks"
            )));
        }
        let fits = match status.code() {
            Status::SUCCESS => {
                book.may_allow(begun, now, host, reads && source.is_none(), writes)
                    && from
                        .is_none_or(|book| book.may_allow(begun, now, host, true, is_asked_there))
            }
            Status::RESERVATION_CONFLICT => {
                book.may_refuse(begun, now, host, reads, writes)
                    || from
                        .is_some_and(|book| book.may_refuse(begun, now, host, true, is_asked_there))
            }
            _ => true,
        };
        match fits {
            true => Ok(()),
            false => Err(Violation(format!(
                "op {value} of host {host} ended with {status} against the reservations"
            ))),
        }
    }

    fn begin(&mut self, op: CheckedOp) -> Value {
        let (kind, host, volume) = (op.kind, op.host, op.volume);
        let (first, blocks) = (op.first, op.blocks);
        let value = self.checker.begin(op);
        self.trace(|| {
            format!("op {value}: host {host} {kind:?} volume {volume} blocks {first}+{blocks}")
        });
        value
    }

    fn durable(&mut self) -> bool {
        self.random.percent(self.plan.fua_percent)
    }

    /// How often a host makes blocks unreadable; only NVMe has a command for it here.
    fn spoils(&self, host: usize) -> u32 {
        match self.plan.hosts[host].speaks_nvme() {
            true => self.plan.spoils,
            false => 0,
        }
    }

    fn spoil(&mut self, host: usize, volume: usize, first: u64, blocks: u64) -> SimRequest {
        let op = self.begin(CheckedOp::new(OpKind::Spoil, host, volume, first, blocks));
        let mut request = self.request(io::WRITE_UNCORRECTABLE, volume, op);
        request.sqe.set_blocks(first, blocks as u32);
        request
    }

    /// A command that found no room on its queue: it is as if it had never
    /// been, but for the other half of a pair.
    pub fn not_sent(&mut self, io: CheckedIo) -> Verdict {
        match io.part {
            _ if self.is_of_altered_host(&io) => self.over(io, None),
            CommandPart::Whole => io
                .ops
                .into_iter()
                .try_for_each(|op| self.checker.refused(op)),
            CommandPart::Stage => {
                self.free_place(io.ops[0]);
                self.checker.refused(io.ops[0])
            }
            // The other half is answered as one without a partner.
            _ => self.half(io, Fate::Answered(Status::FUSED_MISSING), None),
        }
    }

    /// The connection of a command was lost.
    pub fn lost(&mut self, io: CheckedIo, connection: Option<usize>) -> Verdict {
        if self.is_of_altered_host(&io) {
            return self.over(io, connection);
        }
        if io.part == CommandPart::Stage {
            return self.has_not_staged(io.ops[0], connection);
        }
        if io.part != CommandPart::Whole {
            return self.half(io, Fate::Lost, connection);
        }
        let is_write = |value: &Value| self.checker.op(*value).kind.writes();
        if io.reserve.is_none() && !io.ops.iter().any(is_write) {
            return self.checker.ended(io.ops[0]);
        }
        self.unsettled.push(Unsettled {
            ops: io.ops,
            connection,
            work: None,
            reserve: io.reserve,
        });
        Ok(())
    }

    /// A host gave up waiting for an answer.
    pub fn timed_out(&mut self, host: usize) -> Verdict {
        let is_excused = self.plan.disk.hangs > 0 || self.plan.little_memory;
        match self.is_healed || !is_excused {
            true => Err(Violation(format!("host {host}: no answer in time"))),
            false => Ok(()),
        }
    }

    /// A command was answered.
    pub fn answered(
        &mut self,
        io: CheckedIo,
        cqe: &Cqe,
        memory: Option<BufRange>,
        connection: Option<usize>,
        took: Nanos,
    ) -> Verdict {
        let status = cqe.status;
        self.trace(|| format!("op {:?} {:?}: {status}", io.ops, io.part));
        self.answers[usize::from(status.is_success())] += 1;
        if self.is_of_altered_host(&io) {
            return self.over(io, None);
        }
        if took > ANSWER_MAX {
            let text = format!("op {:?} was answered after {} s", io.ops, took / S);
            return Err(Violation(text));
        }
        if let Some((volume, number)) = io.reserve {
            return self.reserved((volume, number), cqe, memory);
        }
        if io.part == CommandPart::Stage {
            return self.has_staged(io.ops[0], status);
        }
        if io.part != CommandPart::Whole {
            return self.half(io, Fate::Answered(status), connection);
        }
        let op = self.checker.op(io.ops[0]).clone();
        if status.is_success() && matches!(op.kind, OpKind::Read | OpKind::Write { .. }) {
            self.has_moved(&op, took);
        }
        self.check_status(io.ops[0], status)?;
        self.check_access(&io.ops, status)?;
        let is_read = matches!(op.kind, OpKind::Read);
        if is_read && self.is_healed && !status.is_success() && self.refusals_left > 0 {
            // Another host reads it: one that may.
            self.refusals_left -= 1;
            self.verify.push_back((op.volume, op.first, op.blocks));
        }
        match (op.kind, status.code()) {
            (OpKind::Read, Status::SUCCESS) => self.has_read(io.ops[0], cqe, memory),
            (OpKind::LbaStatus, Status::SUCCESS) => self.has_heard(io.ops[0], cqe, memory),
            (_, Status::SUCCESS) => {
                for value in io.ops {
                    self.checker.succeeded(value, &[])?;
                    self.learn(value);
                    self.free_place(value);
                }
                Ok(())
            }
            (OpKind::Compare, Status::COMPARE_FAILURE) => self.miscompared(io.ops[0]),
            (kind, _) if !kind.writes() => self.checker.ended(io.ops[0]),
            // What goes from place to place may fail on its way.
            (kind, code)
                if !matches!(kind, OpKind::Trim | OpKind::Copy { .. }) && had_no_effect(code) =>
            {
                self.checker.refused(io.ops[0])
            }
            _ => {
                let work = Some(self.world.borrow().disk.under_way());
                self.unsettled.push(Unsettled {
                    ops: io.ops,
                    connection: None,
                    work,
                    reserve: None,
                });
                Ok(())
            }
        }
    }

    fn has_moved(&mut self, op: &CheckedOp, took: Nanos) {
        let now = self.world.borrow().now;
        let io = MovedIo {
            host: op.host,
            volume: op.volume,
            bytes: op.blocks * u64::from(self.volumes[op.volume].block_bytes),
            begun: now - took,
            ended: now,
        };
        let is_own = self.plan.hosts[op.host].volume == Some(op.volume);
        self.moved.add(io, is_own);
    }

    /// A target has ended: whether it has kept its limits.
    pub fn check_limits(&mut self) -> Verdict {
        let kept = self.moved.check(&self.plan.limits);
        kept.map_err(Violation)
    }

    /// Whether a block with a checksum that an operation covers may have another.
    fn may_be_damaged(&self, op: Value) -> bool {
        let volume = self.checker.op(op).volume;
        self.plan.volumes[volume].is_checksummed && self.checker.may_be_damaged(op)
    }

    /// Whether anything explains this status.
    fn check_status(&self, op: Value, status: Status) -> Verdict {
        let disk = &self.plan.disk;
        // The disks of all legs that have what is read may be cut.
        let are_cut = self.plan.faults.cuts > 0 && !self.is_healed;
        let has_errors = disk.read_errors + disk.write_errors + disk.sync_errors > 0 || are_cut;
        let is_explained = match status.code() {
            Status::SUCCESS => true,
            Status::COMPARE_FAILURE => {
                matches!(
                    self.checker.op(op).kind,
                    OpKind::Compare | OpKind::CompareAndWrite { .. }
                )
            }
            Status::FUSED_FAILED | Status::FUSED_MISSING => {
                matches!(self.checker.op(op).kind, OpKind::CompareAndWrite { .. })
            }
            Status::UNRECOVERED_READ if self.checker.may_be_spoiled(op) => true,
            Status::UNRECOVERED_READ if self.may_be_damaged(op) => true,
            Status::UNRECOVERED_READ | Status::WRITE_FAULT | Status::CAPACITY_EXCEEDED => {
                has_errors || disk.hangs > 0
            }
            Status::WRITE_PROTECTED if disk.write_errors + disk.sync_errors > 0 => true,
            Status::RESERVATION_CONFLICT | Status::PREEMPTED => self.plan.reserve_percent > 0,
            Status::ABORT_REQUESTED => self.plan.abort_percent > 0,
            Status::COMMAND_INTERRUPTED => !self.is_healed,
            Status::TRANSIENT_TRANSPORT if self.plan.net.flips > 0 => true,
            // What EXTENDED COPY says of any failure on its way.
            COPY_ABORTED if matches!(self.checker.op(op).kind, OpKind::Copy { .. }) => {
                let is_hindered = self.plan.reserve_percent > 0 || self.plan.faults.changes > 0;
                is_hindered || has_errors || disk.hangs > 0
            }
            // Whether that is so is looked at with the reservations.
            Status::LBA_OUT_OF_RANGE => true,
            _ => self.plan.faults.changes > 0 || self.might_lack(op),
        };
        match is_explained {
            true => Ok(()),
            false => Err(Violation(format!(
                "op {op} ended with {status}, which nothing explains"
            ))),
        }
    }

    fn has_read(&mut self, value: Value, cqe: &Cqe, memory: Option<BufRange>) -> Verdict {
        let op = self.checker.op(value).clone();
        let block_bytes = self.volumes[op.volume].block_bytes as usize;
        let len = op.blocks as usize * block_bytes;
        if cqe.data_len as usize != len {
            let text = format!("op {value}: {} bytes came, not {len}", cqe.data_len);
            return Err(Violation(text));
        }
        let mut bytes = vec![0; len];
        mem::copy_out(
            memory.expect("a read has memory").slice(0, len as u32),
            &mut bytes,
        );
        for (n, sector) in bytes.chunks_exact_mut(SECTOR_BYTES).enumerate() {
            let number = op.first * (block_bytes / SECTOR_BYTES) as u64 + n as u64;
            self.restore_bits(&op, number, sector);
            if content::read(number, sector) == Sector::Garbage {
                self.trace(|| content::describe(number, sector));
            }
        }
        let blocks = bytes.chunks_exact(block_bytes).enumerate();
        let seen: Vec<SeenBlock> = blocks
            .map(|(n, bytes)| seen(bytes, op.first + n as u64))
            .collect();
        for (n, seen) in seen.iter().enumerate() {
            self.guess[op.volume][op.first as usize + n] = match seen {
                SeenBlock::Whole(value) => Some(*value),
                _ => None,
            };
        }
        self.checker.succeeded(value, &seen)
    }

    /// Where data lies was answered: elsewhere are zeros.
    fn has_heard(&mut self, value: Value, cqe: &Cqe, memory: Option<BufRange>) -> Verdict {
        let op = self.checker.op(value).clone();
        self.checker.succeeded(value, &[])?;
        // What cannot be read may lie nowhere.
        if self.checker.may_be_spoiled(value) {
            return Ok(());
        }
        let mut bytes = vec![0; cqe.data_len as usize];
        mem::copy_out(memory.expect("it has").slice(0, cqe.data_len), &mut bytes);
        let host = &self.plan.hosts[op.host];
        let holes = match (host.nbd, host.iscsi) {
            (Some(nbd), _) => {
                let block_bytes = self.volumes[op.volume].block_bytes;
                crate::nbd_words::holes(&bytes, nbd.form, op.first, block_bytes)
            }
            (_, Some(_)) => crate::scsi::holes(&bytes),
            _ => crate::host::holes(&bytes, op.first, op.blocks),
        };
        let Some(holes) = holes else {
            let text = format!("op {value}: an answer that makes no sense: {bytes:02x?}");
            return Err(Violation(text));
        };
        let asked = op.first..op.first + op.blocks;
        let holes: Vec<u64> = holes.into_iter().filter(|at| asked.contains(at)).collect();
        self.checker.was_told_of_holes(value, &holes)
    }

    /// A write was acknowledged: that is what its blocks hold, as a guess.
    fn learn(&mut self, value: Value) {
        let op = self.checker.op(value);
        let holds = match op.kind {
            OpKind::Write { .. } | OpKind::CompareAndWrite { .. } | OpKind::Copy { .. } => value,
            OpKind::Zero { .. } => ZEROS,
            _ => return,
        };
        let (first, end) = (op.first as usize, (op.first + op.blocks) as usize);
        self.guess[op.volume][first..end].fill(Some(holds));
    }

    /// One command of a fused pair came to its end.
    fn half(&mut self, io: CheckedIo, fate: Fate, connection: Option<usize>) -> Verdict {
        let value = io.ops[0];
        let Some(other) = self.fused.remove(&value) else {
            self.fused.insert(value, fate);
            return Ok(());
        };
        let (first, second) = match io.part {
            CommandPart::First => (fate, other),
            _ => (other, fate),
        };
        for fate in [first, second] {
            if let Fate::Answered(status) = fate {
                self.check_status(value, status)?;
                self.check_access(&[value], status)?;
            }
        }
        let succeeded = |fate| matches!(fate, Fate::Answered(status) if status.is_success());
        let failed = |fate| matches!(fate, Fate::Answered(status) if !status.is_success());
        if failed(first) && succeeded(second) {
            let text = format!("fused pair {value}: {first:?}, then {second:?}");
            return Err(Violation(text));
        }
        if succeeded(first) && succeeded(second) {
            self.checker.succeeded(value, &[])?;
            self.learn(value);
            return Ok(());
        }
        let miscompared = Fate::Answered(Status::COMPARE_FAILURE.dnr());
        if first == miscompared {
            return self.miscompared(value);
        }
        // The write's own status tells whether it had an effect; where it is
        // lost, that of a compare that failed by itself does.
        let refused = |fate| matches!(fate, Fate::Answered(status) if had_no_effect(status));
        let by_itself = failed(first) && !refused(first);
        // One that was aborted on its way may have taken the other with it.
        let cut = |fate| matches!(fate, Fate::Answered(s) if is_cut_short(s));
        let is_cut = cut(first) || cut(second);
        if !is_cut && (refused(second) || second == Fate::Lost && by_itself) {
            return self.checker.refused(value);
        }
        let is_lost = first == Fate::Lost || second == Fate::Lost;
        self.unsettled.push(Unsettled {
            ops: vec![value],
            connection: connection.filter(|_| is_lost),
            work: None,
            reserve: None,
        });
        Ok(())
    }

    /// After a turn of the target: what of unknown outcome can happen no more.
    pub fn settle(&mut self, worker_is_done: bool) -> Verdict {
        if self.unsettled.is_empty() {
            return Ok(());
        }
        let world = self.world.clone();
        let mut world = world.borrow_mut();
        let mut over = Vec::new();
        let mut books = Vec::new();
        self.unsettled.retain_mut(|waiting| {
            if waiting.work.is_none() {
                let gone = waiting.connection.is_none_or(|c| world.net.is_forgotten(c));
                if !gone {
                    return true;
                }
                waiting.work = Some(world.disk.under_way());
            }
            let work = waiting.work.as_mut().expect("set above");
            work.retain(|&(driver, token)| is_busy(&mut world, driver, token));
            // The blocking worker may still have a reservation command before it.
            let waits = !work.is_empty() || waiting.reserve.is_some() && !worker_is_done;
            if !waits {
                over.append(&mut waiting.ops);
                books.extend(waiting.reserve);
            }
            waits
        });
        drop(world);
        for (volume, number) in books {
            self.forget(volume, number);
        }
        for op in over {
            self.free_place(op);
            self.checker.ended(op)?;
        }
        Ok(())
    }

    /// The target's process is gone, and with it all that was under way.
    pub fn killed(&mut self) -> Verdict {
        self.unsettled.clear();
        self.owed.clear();
        let now = self.checker.stamp();
        for served in &mut self.volumes {
            served.may_be_gone.fill(false);
            served.there_since.fill(now);
        }
        for subsystem in 0..self.plan.subsystems {
            self.set_absent(subsystem, 0..self.volumes.len(), false);
        }
        for volume in 0..self.volumes.len() {
            let now = self.checker.stamp();
            self.volumes[volume].book.restarted(now);
        }
        self.checker.killed()?;
        self.forget_copies()
    }

    /// Whether nothing is left whose outcome is open.
    pub fn is_settled(&self) -> bool {
        self.unsettled.is_empty()
    }
}

/// Whether a command was ended on its way, with what it had done by then.
fn is_cut_short(status: Status) -> bool {
    [Status::ABORT_REQUESTED, Status::PREEMPTED].contains(&status.code())
}

fn is_busy(world: &mut World, driver: DriverId, token: Token) -> bool {
    use reactor::Completion::File;
    let waits =
        |(_, completion): &(_, _)| matches!(completion, File { token: t, .. } if *t == token);
    world.disk.is_busy(driver, token) || world.net.driver(driver).ready.iter().any(waits)
}

/// What a block holds.
fn seen(bytes: &[u8], block: u64) -> SeenBlock {
    let first = block * (bytes.len() / SECTOR_BYTES) as u64;
    let mut values = Vec::new();
    for (n, sector) in bytes.chunks_exact(SECTOR_BYTES).enumerate() {
        match content::read(first + n as u64, sector) {
            Sector::Zero => values.push(ZEROS),
            Sector::Of(value) => values.push(value),
            Sector::Garbage => return SeenBlock::Garbage,
        }
    }
    match values.iter().all(|value| *value == values[0]) {
        true => SeenBlock::Whole(values[0]),
        false => SeenBlock::Torn(values),
    }
}
