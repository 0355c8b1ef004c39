//! One job: one I/O queue and the load on it.

use std::collections::VecDeque;

use host::{PathChange, PathReport};
use machine::{Nanos, Tag};
use mem::BufRange;
use random::Random;
use reactor::{Driver, Token};

use super::args::PerfArgs;
use super::device::Device;
use super::line::{IoFailed, Line, LineEvent, LinePlan, LoadIo};
use super::pattern::{BlockPattern, Ledger};
use super::workload::{IoDirection, KINDS, Schedule, Workload};
use crate::latency::Latencies;

/// Batches of a local volume between two looks at the driver.
const LOCAL_BATCHES: u32 = 64;
/// How long a server that asks for patience is left alone: as Linux begins with.
const PATIENCE: Nanos = 100_000_000;
/// Mismatches that are kept in words.
const EXAMPLES_MAX: usize = 8;

/// What a job is to do.
#[derive(Clone)]
pub struct JobPlan {
    /// What its I/Os go over.
    pub line: LinePlan,
    /// What is written and read.
    pub device: Device,
    /// Bytes of one I/O, a multiple of the logical block.
    pub bs: u32,
    /// First byte of the job's area, a multiple of `bs`.
    pub offset: u64,
    /// I/Os that fit into the job's area.
    pub blocks: u64,
    /// I/Os in flight.
    pub iodepth: u16,
    /// Those of them that its line takes at a time; the others wait for them.
    pub queue_depth: u16,
    /// Whether offsets are random.
    pub is_random: bool,
    /// Percentage of reads; `None`: operations on names and attributes.
    pub read_percent: Option<u8>,
    /// Stamp what is written, check what is read.
    pub verify: bool,
    /// I/Os a second of this job; `None`: as many as there can be.
    pub rate: Option<f64>,
    /// Which job of the run it is, from 0.
    pub number: u32,
    /// Where generations start: elsewhere in every run, so that what an earlier
    /// run left is not taken for this one's.
    pub generation: u32,
}

impl JobPlan {
    /// The job that `args` describe, over `line` on an area of `device`: its
    /// first byte and number of I/Os. `unique` differs from run to run. Rate and
    /// number are set when all jobs are known.
    pub fn new(
        args: &PerfArgs,
        line: LinePlan,
        device: &Device,
        (offset, blocks): (u64, u64),
        unique: u32,
    ) -> Self {
        JobPlan {
            line,
            device: *device,
            bs: args.bs as u32,
            offset,
            blocks,
            iodepth: args.iodepth,
            queue_depth: device.queue_depth(args.iodepth),
            is_random: args.rw.is_random(),
            read_percent: (!args.rw.is_metadata()).then(|| args.rw.read_percent(args.rwmixread)),
            verify: args.verify.is_some(),
            rate: None,
            number: 0,
            generation: unique >> 1,
        }
    }

    /// Whether the job wants to be pumped at times of its own.
    pub fn has_due(&self) -> bool {
        let fails =
            matches!(&self.line, LinePlan::Paths { fast_io_fail, .. } if fast_io_fail.is_some());
        let waits = matches!(&self.line, LinePlan::Nfs(_));
        self.rate.is_some() || fails || waits
    }
}

/// I/Os of one direction, of all jobs of a worker.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// I/Os that succeeded while measuring.
    pub ios: u64,
    /// Their latencies; in an open loop also those of I/Os that came too late to count.
    pub latencies: Latencies,
}

impl Tally {
    /// Forgets everything.
    pub fn reset(&mut self) {
        self.ios = 0;
        self.latencies.reset();
    }
}

/// By [`IoDirection`].
pub type Tallies = [Tally; KINDS];

/// What came of a job.
#[derive(Debug, Default)]
pub struct JobOutcome {
    /// Commands that failed, by status, most of a run.
    pub failed: Vec<(IoFailed, u64)>,
    /// Why the connection went down, if it did.
    pub down: Option<String>,
    /// I/Os lost with the connection.
    pub lost: u64,
    /// I/Os of an open loop that were due but could not even be started.
    pub unstarted: u64,
    /// Blocks checked.
    pub checked: u64,
    /// Blocks that were not what was written.
    pub mismatches: u64,
    /// The first of them, in words.
    pub examples: Vec<String>,
    /// What became of its paths, if it has several.
    pub paths: Vec<PathReport>,
    /// Names that were listed while measuring.
    pub entries: u64,
}

#[derive(Clone, Copy)]
struct Flight {
    /// When it was sent, or was due.
    begun: Nanos,
    block: u64,
    kind: IoDirection,
    generation: u32,
}

/// What is submitted next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Feed {
    Nothing,
    Load,
    ReadBack,
}

struct Verify {
    pattern: BlockPattern,
    ledger: Ledger,
    generation: u32,
    /// Nothing is written in this run: what is read was written by another.
    reads_only: bool,
}

/// One line to a device and the load on it.
pub struct Job {
    plan: JobPlan,
    line: Line,
    /// One buffer a tag.
    memory: BufRange,
    flights: Vec<Flight>,
    in_flight: u32,
    /// Those of them that their server wants later, and when; oldest first.
    later: VecDeque<(Nanos, Flight)>,
    /// Those of them that the line has no room for yet, oldest first.
    queued: VecDeque<Flight>,
    feed: Feed,
    is_counting: bool,
    workload: Workload,
    schedule: Option<Schedule>,
    verify: Option<Verify>,
    /// Logical blocks of one I/O.
    lbas: u32,
    /// Bytes of a logical block, as a power of two.
    block_shift: u32,
    outcome: JobOutcome,
}

impl Job {
    /// Bytes of memory that a job of this plan wants.
    pub fn memory_bytes(plan: &JobPlan) -> u32 {
        (u32::from(plan.iodepth) + 1) * plan.bs
    }

    /// A job with its memory, not connected yet.
    pub fn new(plan: JobPlan, memory: BufRange) -> Self {
        let tags = usize::from(plan.iodepth) + 1;
        fill(memory, u64::from(plan.number));
        let seed = u64::from(plan.number) + 1;
        Job {
            line: Line::None,
            memory,
            flights: vec![
                Flight {
                    begun: 0,
                    block: 0,
                    kind: IoDirection::Read,
                    generation: 0
                };
                tags
            ],
            in_flight: 0,
            later: VecDeque::new(),
            queued: VecDeque::new(),
            feed: Feed::Nothing,
            is_counting: false,
            workload: Workload::new(plan.is_random, plan.read_percent, plan.blocks, seed),
            schedule: None,
            verify: plan.verify.then(|| Verify {
                pattern: BlockPattern::new(plan.bs),
                ledger: Ledger::new(plan.blocks as usize),
                generation: plan.generation,
                reads_only: plan.read_percent == Some(100),
            }),
            lbas: plan.bs / plan.device.block_bytes,
            block_shift: plan.device.block_bytes.ilog2(),
            outcome: JobOutcome::default(),
            plan,
        }
    }

    /// Starts to connect.
    pub fn open<D: Driver>(&mut self, driver: &mut D, base: Token) {
        match Line::open(
            driver,
            &self.plan.line,
            (self.plan.device.number, self.plan.queue_depth),
            base,
        ) {
            Ok(line) => self.line = line,
            Err(error) => self.outcome.down = Some(error.to_string()),
        }
    }

    /// Whether the connection is made, or will not be.
    pub fn is_settled(&self) -> bool {
        self.outcome.down.is_some() || self.line.is_live()
    }

    /// Ends an attempt to connect that took too long.
    pub fn give_up<D: Driver>(&mut self, driver: &mut D) {
        if !self.is_settled() {
            self.outcome.down = Some("the connection was not made in time".into());
            self.close(driver);
        }
    }

    /// Whether the connection is lost.
    pub fn is_down(&self) -> bool {
        self.outcome.down.is_some()
    }

    /// I/Os under way.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Starts the load.
    pub fn begin(&mut self, now: Nanos) {
        self.feed = Feed::Load;
        self.schedule = self.plan.rate.map(|rate| Schedule::new(now, rate));
    }

    /// Counts from here.
    pub fn begin_counting(&mut self) {
        self.is_counting = true;
        self.outcome.unstarted = 0;
        self.outcome.entries = self.line.entries();
    }

    /// Starts nothing more and stops counting.
    pub fn end_counting(&mut self, now: Nanos, tallies: &mut Tallies) {
        self.feed = Feed::Nothing;
        if std::mem::take(&mut self.is_counting) {
            self.outcome.entries = self.line.entries() - self.outcome.entries;
        }
        // I/Os that were due and not even sent have waited at least this long.
        let mut schedule = self.schedule.filter(|_| !self.is_down());
        while let Some(due) = schedule.as_mut().and_then(|schedule| schedule.take(now)) {
            let kind = self.workload.next_kind();
            tallies[kind as usize].latencies.record(now - due);
            self.outcome.unstarted += 1;
        }
    }

    /// Starts to read back what was written, if anything was and is to be checked.
    pub fn begin_read_back(&mut self) {
        let has_written = self.verify.as_ref().is_some_and(|v| !v.reads_only) && !self.is_down();
        self.feed = if has_written {
            Feed::ReadBack
        } else {
            Feed::Nothing
        };
        self.schedule = None;
    }

    /// Starts nothing more.
    pub fn stop(&mut self) {
        self.feed = Feed::Nothing;
    }

    /// Ends the connection, and with it every I/O under way.
    pub fn close<D: Driver>(&mut self, driver: &mut D) {
        self.stop();
        self.outcome.lost += u64::from(std::mem::take(&mut self.in_flight));
        self.later.clear();
        self.queued.clear();
        if self.outcome.paths.is_empty() {
            self.outcome.paths = self.line.paths();
        }
        self.line.close(driver);
    }

    /// Whether the driver is done with the job's memory.
    pub fn is_closed(&self) -> bool {
        self.line.is_closed()
    }

    /// What came of it.
    pub fn into_outcome(self) -> JobOutcome {
        self.outcome
    }

    /// When the job wants to be pumped, if it is not for a completion.
    #[inline]
    pub fn next_due(&self) -> Option<Nanos> {
        let due = match &self.schedule {
            Some(schedule) if self.feed == Feed::Load && self.has_room() => Some(schedule.next()),
            _ => None,
        };
        let later = self.later.front().map(|(at, _)| *at);
        [due, later, self.line.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.in_flight < u32::from(self.plan.iodepth) && !self.line.is_failing()
    }

    /// Takes a completion of one of the line's tokens.
    #[inline]
    pub fn on_completion<D: Driver>(
        &mut self,
        driver: &mut D,
        token: Token,
        completion: reactor::Completion,
        now: Nanos,
        tallies: &mut Tallies,
    ) {
        self.line.on_completion(driver, token, completion);
        self.take_events(driver, now, tallies);
    }

    /// Whether its I/Os end without the driver, when they are started.
    pub fn is_local(&self) -> bool {
        matches!(self.plan.line, LinePlan::Local(_))
    }

    /// Starts I/Os of a local volume that end at once, one batch after the other
    /// but a bounded number of them; whether there are more. `clock` tells the
    /// time, which is read once for each batch.
    pub fn run_local<D: Driver>(
        &mut self,
        driver: &mut D,
        clock: impl Fn() -> Nanos,
        tallies: &mut Tallies,
    ) -> bool {
        let has_done = |line: &Line| matches!(line, Line::Local(local) if local.has_done());
        let mut now = clock();
        for _ in 0..LOCAL_BATCHES {
            self.pump(driver, now);
            if !has_done(&self.line) {
                return false;
            }
            now = clock();
            self.take_events(driver, now, tallies);
        }
        true
    }

    /// Takes what is told of path `path`.
    pub fn on_path<D: Driver>(
        &mut self,
        driver: &mut D,
        (path, change): (u16, PathChange),
        now: Nanos,
        tallies: &mut Tallies,
    ) {
        self.line.on_path(driver, path, change);
        self.take_events(driver, now, tallies);
    }

    /// Time has passed.
    pub fn on_deadline<D: Driver>(&mut self, driver: &mut D, now: Nanos, tallies: &mut Tallies) {
        self.line.on_deadline(now);
        self.take_events(driver, now, tallies);
    }

    #[inline]
    fn take_events<D: Driver>(&mut self, driver: &mut D, now: Nanos, tallies: &mut Tallies) {
        let mut line = std::mem::take(&mut self.line);
        while let Some(event) = line.next_event(driver) {
            match event {
                LineEvent::Completed(tag, result) => self.on_io(tag, result, now, tallies),
                LineEvent::Again(tag) => {
                    let flight = self.flights[usize::from(tag)];
                    self.send_or_queue(&mut line, flight);
                }
                LineEvent::Later(tag) => {
                    let flight = self.flights[usize::from(tag)];
                    self.later.push_back((now + PATIENCE, flight));
                }
                LineEvent::Down(reason) => {
                    self.outcome.down = Some(reason);
                    self.outcome.lost += u64::from(self.in_flight);
                    self.in_flight = 0;
                    self.later.clear();
                    self.queued.clear();
                    self.feed = Feed::Nothing;
                }
            }
        }
        self.line = line;
    }

    /// Submits what there is room for and sends it.
    #[inline]
    pub fn pump<D: Driver>(&mut self, driver: &mut D, now: Nanos) {
        if !self.later.is_empty() {
            self.send_late(now);
        }
        if !self.queued.is_empty() {
            self.send_queued();
        }
        while self.has_room() {
            let (begun, kind, block) = match self.feed {
                Feed::Nothing => break,
                Feed::Load => {
                    let Some(begun) = self.schedule.as_mut().map_or(Some(now), |s| s.take(now))
                    else {
                        break;
                    };
                    let kind = self.workload.next_kind();
                    (begun, kind, self.workload.next_block(kind))
                }
                Feed::ReadBack => {
                    let written = self.verify.as_mut().and_then(|v| v.ledger.take_written());
                    let Some(block) = written else {
                        self.feed = Feed::Nothing;
                        break;
                    };
                    (now, IoDirection::Read, block)
                }
            };
            self.submit(begun, kind, block);
        }
        self.line.flush(driver);
    }

    #[inline]
    fn submit(&mut self, begun: Nanos, kind: IoDirection, mut block: u64) {
        let mut generation = 0;
        if let Some(verify) = &mut self.verify {
            if self.feed == Feed::Load {
                block = verify.ledger.take(block);
            }
            generation = match kind {
                IoDirection::Read | IoDirection::Metadata => verify.ledger.generation(block),
                IoDirection::Write => {
                    verify.generation = verify.generation % (u32::MAX >> 1) + 1;
                    verify.generation
                }
            };
        }
        let flight = Flight {
            begun,
            block,
            kind,
            generation,
        };
        self.in_flight += 1;
        let mut line = std::mem::take(&mut self.line);
        self.send_or_queue(&mut line, flight);
        self.line = line;
    }

    /// Sends an I/O, perhaps once more, or has it wait behind those that do.
    #[inline]
    fn send_or_queue(&mut self, line: &mut Line, flight: Flight) {
        if !self.queued.is_empty() || !self.send(line, flight) {
            self.queued.push_back(flight);
        }
    }

    /// Sends what waits, as far as the line has room.
    #[cold]
    fn send_queued(&mut self) {
        let mut line = std::mem::take(&mut self.line);
        while let Some(flight) = self.queued.front().copied()
            && self.send(&mut line, flight)
        {
            self.queued.pop_front();
        }
        self.line = line;
    }

    /// Sends an I/O if the line has room.
    #[inline]
    fn send(&mut self, line: &mut Line, flight: Flight) -> bool {
        let bs = self.plan.bs;
        let offset = self.plan.offset + flight.block * u64::from(bs);
        let io = LoadIo {
            kind: flight.kind,
            lba: offset >> self.block_shift,
            blocks: self.lbas,
            len: bs,
        };
        let (memory, verify) = (self.memory, &mut self.verify);
        let tag = line.submit(&io, |tag| {
            let buffer = buffer(memory, tag, bs);
            if let (IoDirection::Write, Some(verify)) = (flight.kind, verify) {
                verify.pattern.fill(buffer, offset, flight.generation);
            }
            buffer
        });
        let Some(tag) = tag else { return false };
        self.flights[usize::from(tag)] = flight;
        true
    }

    /// Sends what its server wanted later, as far as it is time.
    #[cold]
    fn send_late(&mut self, now: Nanos) {
        let mut line = std::mem::take(&mut self.line);
        while let Some((at, flight)) = self.later.front().copied()
            && at <= now
        {
            self.later.pop_front();
            self.send_or_queue(&mut line, flight);
        }
        self.line = line;
    }

    #[inline]
    fn on_io(&mut self, tag: Tag, result: Result<(), IoFailed>, now: Nanos, tallies: &mut Tallies) {
        let flight = self.flights[usize::from(tag)];
        self.in_flight -= 1;
        match result {
            Ok(()) => {
                let tally = &mut tallies[flight.kind as usize];
                tally.ios += u64::from(self.is_counting);
                if self.is_counting || self.schedule.is_some() && self.feed == Feed::Nothing {
                    tally.latencies.record(now - flight.begun);
                }
            }
            Err(failed) => self.on_failed(failed),
        }
        if self.verify.is_some() {
            self.on_verified(tag, flight, result.is_ok());
        }
    }

    #[cold]
    fn on_failed(&mut self, why: IoFailed) {
        let failed = &mut self.outcome.failed;
        match failed.iter_mut().find(|(seen, _)| *seen == why) {
            Some((_, count)) => *count += 1,
            None => failed.push((why, 1)),
        }
    }

    fn on_verified(&mut self, tag: Tag, flight: Flight, is_ok: bool) {
        let Some(verify) = &mut self.verify else {
            return;
        };
        let Flight {
            kind,
            block,
            generation,
            ..
        } = flight;
        if kind == IoDirection::Write {
            // What a failed write left behind is not known.
            verify.ledger.put(block, if is_ok { generation } else { 0 });
            return;
        }
        verify.ledger.put(block, generation);
        if !is_ok || generation == 0 && !verify.reads_only {
            return;
        }
        let offset = self.plan.offset + block * u64::from(self.plan.bs);
        let wanted = (!verify.reads_only).then_some(generation);
        self.outcome.checked += 1;
        if let Err(mismatch) =
            BlockPattern::check(buffer(self.memory, tag, self.plan.bs), offset, wanted)
        {
            self.outcome.mismatches += 1;
            if self.outcome.examples.len() < EXAMPLES_MAX {
                let device = self.plan.device;
                let text = format!("{device}, offset {offset}: {mismatch}");
                self.outcome.examples.push(text);
            }
        }
    }
}

/// The buffer of a tag.
#[inline]
fn buffer(memory: BufRange, tag: Tag, bs: u32) -> BufRange {
    memory.slice(u32::from(tag) * bs, bs)
}

/// Bytes that nothing can compress or find to be equal.
fn fill(memory: BufRange, seed: u64) {
    let mut random = Random::new(seed);
    let mut bytes = vec![0u8; 64 << 10];
    let mut at = 0;
    while at < memory.len() {
        let len = (memory.len() - at).min(bytes.len() as u32);
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&random.next_u64().to_le_bytes());
        }
        mem::copy_in(memory.slice(at, len), &bytes[..len as usize]);
        at += len;
    }
}
