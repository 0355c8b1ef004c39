//! One reactor of the load: its jobs, and the phases that they go through.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use machine::Nanos;
use mem::{Budget, Pool, Region};
use reactor::{
    AnyDriver, Choice, Completion, Counters, Driver, DriverConfig, Handler, Mailbox, Receiver,
    RunConfig,
};

use super::job::{Job, JobOutcome, JobPlan, Tallies, Tally};
use super::line::LinePlan;
use crate::clock::{Clock, thread_cpu_ns};
use host::PathChange;

const SECOND: Nanos = 1_000_000_000;
/// How long connections may take.
const CONNECT_NS: Nanos = 10 * SECOND;
/// How long the last I/Os may take after the load.
const DRAIN_NS: Nanos = 10 * SECOND;
/// How long closing may take.
const CLOSE_NS: Nanos = 2 * SECOND;

/// What a worker is to do.
#[derive(Clone)]
pub struct WorkerPlan {
    /// CPU to run on; `None`: where the scheduler likes.
    pub cpu: Option<usize>,
    /// Which driver.
    pub backend: Choice,
    /// Spin at most this long before sleeping; `u64::MAX`: never sleep.
    pub spin_us_max: u64,
    /// Before measuring.
    pub ramp_ns: Nanos,
    /// Measured.
    pub runtime_ns: Nanos,
    /// Its jobs.
    pub jobs: Vec<JobPlan>,
}

/// Letters to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Letter {
    /// Start the load.
    Begin,
    /// End now, and report.
    Stop,
    /// What became of a path of every job, by its number.
    Path(u16, PathChange),
}

/// What others see of a worker while it runs.
#[derive(Debug, Default)]
pub struct Live {
    /// I/Os that succeeded while measuring.
    pub ios: AtomicU64,
    /// Whether the measurement is under way.
    pub is_measuring: AtomicBool,
    /// Connections that could not be made; valid once settled.
    pub failures: AtomicU64,
    /// Every connection is made, or will not be.
    pub is_settled: AtomicBool,
}

/// What a worker did between the ramp and the end.
#[derive(Debug, Default)]
pub struct WorkerOutcome {
    /// What was measured.
    pub tallies: Tallies,
    /// What came of each job.
    pub jobs: Vec<JobOutcome>,
    /// The driver's name.
    pub backend: &'static str,
    /// Length of the measurement.
    pub elapsed_ns: u64,
    /// CPU time of the thread.
    pub cpu_ns: u64,
    /// System calls on the data path.
    pub syscalls: u64,
    /// Sleeps in the kernel that ended.
    pub wakeups: u64,
    /// Payload bytes copied in user space.
    pub copied_bytes: u64,
    /// Allocations.
    pub allocations: u64,
    /// How long it looked for work in vain without sleeping.
    pub spun_ns: u64,
    /// I/Os of each tenth of the measurement.
    pub tenths: [u64; TENTHS],
}

/// Parts of the measurement that are counted by themselves.
pub const TENTHS: usize = 10;

/// I/Os as they come, by tenths of the measurement.
#[derive(Debug, Default)]
struct Tenths {
    counts: [u64; TENTHS],
    /// The one that is under way.
    current: usize,
    /// When it ends.
    end: Nanos,
    len_ns: Nanos,
    /// I/Os before it.
    before: u64,
}

impl Tenths {
    fn new(now: Nanos, runtime_ns: Nanos) -> Tenths {
        let len_ns = (runtime_ns / TENTHS as u64).max(1);
        Tenths {
            end: now + len_ns,
            len_ns,
            ..Tenths::default()
        }
    }

    /// Ends those that are over: there were `ios` until then.
    #[cold]
    fn end(&mut self, now: Nanos, ios: u64) {
        while now >= self.end && self.current + 1 < TENTHS {
            self.counts[self.current] = ios - self.before;
            self.before = ios;
            self.current += 1;
            self.end += self.len_ns;
        }
        if self.current + 1 == TENTHS {
            self.end = Nanos::MAX;
        }
    }

    /// Ends the last one.
    fn finish(&mut self, ios: u64) {
        self.counts[self.current] = ios - self.before;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoadPhase {
    Connecting,
    Waiting,
    Ramp,
    Measuring,
    Draining,
    ReadBack,
    Closing,
    Done,
}

/// Counts at one moment.
#[derive(Clone, Copy, Default)]
struct Moment {
    at: Nanos,
    cpu_ns: u64,
    driver: Counters,
    memory: mem::counters::Counts,
    spun_ns: u64,
}

impl Moment {
    fn now<D: Driver>(driver: &D) -> Self {
        Moment {
            at: driver.now(),
            cpu_ns: thread_cpu_ns(),
            driver: driver.counters(),
            memory: mem::counters::here(),
            spun_ns: reactor::loop_times().spun_ns,
        }
    }
}

struct Worker {
    plan: WorkerPlan,
    jobs: Vec<Job>,
    /// Jobs that want to be pumped at the end of the turn.
    dirty: Vec<u32>,
    is_dirty: Vec<bool>,
    phase: LoadPhase,
    /// When the phase ends at the latest.
    phase_end: Nanos,
    /// When the next I/O of an open loop is due.
    next_due: Nanos,
    has_stopped: bool,
    /// Whether jobs want to be pumped at times of their own.
    has_due: bool,
    /// Whether jobs have volumes of this process, and whether those have more to do.
    has_local: bool,
    is_restless: bool,
    /// A job has `1 << token_bits` tokens.
    token_bits: u32,
    tallies: Tallies,
    /// Where the jobs' buffers lie.
    _memory: Region,
    start: Moment,
    end: Moment,
    tenths: Tenths,
    live: Arc<Live>,
}

/// Runs a worker on the calling thread until its load has ended. Sends its
/// mailbox through `hello` first.
///
/// # Errors
/// Where the driver or the memory cannot be had.
pub fn run(
    plan: WorkerPlan,
    live: &Arc<Live>,
    hello: impl FnOnce(Mailbox<Letter>),
) -> io::Result<WorkerOutcome> {
    if let Some(cpu) = plan.cpu {
        reactor::pin_to_cpu(cpu)?;
    }
    // Stages are what the pool is for, and a connection holds two at most.
    let connections: usize = plan.jobs.iter().map(|job| job.line.connections()).sum();
    let budget = (connections as u64 * (1 << 20)).max(64 << 20);
    let pool = Pool::new(Budget::new(budget))?;
    let config = DriverConfig {
        sockets_max: connections as u32 + 1,
        ..DriverConfig::default()
    };
    match reactor::open(plan.backend, &config, pool)? {
        AnyDriver::Uring(mut driver) => drive(&mut driver, plan, live, hello),
        AnyDriver::Epoll(mut driver) => drive(&mut driver, plan, live, hello),
    }
}

fn drive<D: Driver>(
    driver: &mut D,
    plan: WorkerPlan,
    live: &Arc<Live>,
    hello: impl FnOnce(Mailbox<Letter>),
) -> io::Result<WorkerOutcome> {
    let (mailbox, mail): (_, Receiver<Letter>) = reactor::mailbox(driver.waker());
    hello(mailbox);
    let config = RunConfig {
        spin_us_max: plan.spin_us_max,
    };
    let bytes = plan
        .jobs
        .iter()
        .map(|job| u64::from(Job::memory_bytes(job)))
        .sum();
    let memory = Region::anonymous(bytes)?;
    let mut at = 0;
    let jobs = plan.jobs.iter().map(|job| {
        let len = Job::memory_bytes(job);
        at += u64::from(len);
        Job::new(job.clone(), memory.range(at - u64::from(len), len))
    });
    let jobs: Vec<Job> = jobs.collect();
    let mut worker = Worker {
        is_dirty: vec![false; jobs.len()],
        dirty: Vec::with_capacity(jobs.len()),
        jobs,
        phase: LoadPhase::Connecting,
        phase_end: driver.now() + CONNECT_NS,
        next_due: Nanos::MAX,
        has_stopped: false,
        has_due: plan.jobs.iter().any(JobPlan::has_due),
        has_local: plan
            .jobs
            .iter()
            .any(|job| matches!(job.line, LinePlan::Local(_))),
        is_restless: false,
        token_bits: token_bits(&plan.jobs),
        tallies: Default::default(),
        _memory: memory,
        start: Moment::default(),
        end: Moment::default(),
        tenths: Tenths::default(),
        live: Arc::clone(live),
        plan,
    };
    for (i, job) in worker.jobs.iter_mut().enumerate() {
        job.open(driver, (i as u64) << worker.token_bits);
    }
    worker.advance(driver);
    reactor::run(driver, &mail, &mut worker, &config)?;
    Ok(worker.into_outcome(driver.name()))
}

/// Bits of a token that tell the tokens of one job apart.
fn token_bits(jobs: &[JobPlan]) -> u32 {
    let most = jobs.iter().map(|job| job.line.tokens(job.iodepth)).max();
    most.unwrap_or(1).next_power_of_two().ilog2()
}

impl Worker {
    fn into_outcome(self, backend: &'static str) -> WorkerOutcome {
        let (start, end) = (&self.start, &self.end);
        WorkerOutcome {
            backend,
            elapsed_ns: end.at - start.at,
            cpu_ns: end.cpu_ns - start.cpu_ns,
            syscalls: end.driver.syscalls - start.driver.syscalls,
            wakeups: end.driver.wakeups - start.driver.wakeups,
            copied_bytes: end.memory.copied_bytes - start.memory.copied_bytes,
            allocations: end.memory.allocations - start.memory.allocations,
            spun_ns: end.spun_ns - start.spun_ns,
            tenths: self.tenths.counts,
            tallies: self.tallies,
            jobs: self.jobs.into_iter().map(Job::into_outcome).collect(),
        }
    }

    #[inline]
    fn mark(&mut self, job: usize) {
        if !std::mem::replace(&mut self.is_dirty[job], true) {
            self.dirty.push(job as u32);
        }
    }

    fn mark_all(&mut self) {
        (0..self.jobs.len()).for_each(|job| self.mark(job));
    }

    /// Leaves phases that have reached their end.
    fn advance<D: Driver>(&mut self, driver: &mut D) {
        let now = driver.now();
        loop {
            let is_late = now >= self.phase_end;
            let in_flight = self.jobs.iter().any(|job| job.in_flight() > 0);
            let next = match self.phase {
                LoadPhase::Connecting if self.jobs.iter().all(Job::is_settled) || is_late => {
                    self.jobs.iter_mut().for_each(|job| job.give_up(driver));
                    let failures = self.jobs.iter().filter(|job| job.is_down()).count();
                    self.live.failures.store(failures as u64, Ordering::Relaxed);
                    self.live.is_settled.store(true, Ordering::Release);
                    LoadPhase::Waiting
                }
                LoadPhase::Waiting if self.has_stopped => LoadPhase::Closing,
                LoadPhase::Ramp if is_late || self.is_over() => LoadPhase::Measuring,
                LoadPhase::Measuring if is_late || self.is_over() => LoadPhase::Draining,
                LoadPhase::Draining if !in_flight || is_late => LoadPhase::ReadBack,
                LoadPhase::ReadBack if !in_flight || is_late => LoadPhase::Closing,
                LoadPhase::Closing if is_late || self.jobs.iter().all(Job::is_closed) => {
                    LoadPhase::Done
                }
                _ => return,
            };
            self.enter(driver, next, now);
        }
    }

    /// Goes on with the jobs that need no driver. The driver's time stands still
    /// meanwhile.
    fn run_local<D: Driver>(&mut self, driver: &mut D) {
        let (now, clock) = (driver.now(), Clock::start());
        self.is_restless = false;
        for job in self.jobs.iter_mut().filter(|job| job.is_local()) {
            let clock = || now + clock.now();
            self.is_restless |= job.run_local(driver, clock, &mut self.tallies);
        }
    }

    /// I/Os that were measured.
    #[inline]
    fn ios(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.ios).sum()
    }

    /// Whether the load ends before its time.
    fn is_over(&self) -> bool {
        self.has_stopped || self.jobs.iter().all(Job::is_down)
    }

    fn enter<D: Driver>(&mut self, driver: &mut D, phase: LoadPhase, now: Nanos) {
        self.phase = phase;
        self.is_restless = self.has_local;
        match phase {
            LoadPhase::Connecting => unreachable!("a worker connects once"),
            LoadPhase::Waiting | LoadPhase::Done => self.phase_end = Nanos::MAX,
            LoadPhase::Ramp => {
                self.phase_end = now + self.plan.ramp_ns;
                self.jobs
                    .iter_mut()
                    .filter(|job| !job.is_down())
                    .for_each(|job| job.begin(now));
                self.mark_all();
            }
            LoadPhase::Measuring => {
                self.phase_end = now + self.plan.runtime_ns;
                self.tallies.iter_mut().for_each(Tally::reset);
                self.jobs.iter_mut().for_each(Job::begin_counting);
                self.live.is_measuring.store(true, Ordering::Release);
                self.start = Moment::now(driver);
                self.tenths = Tenths::new(self.start.at, self.plan.runtime_ns);
            }
            LoadPhase::Draining => {
                self.end = Moment::now(driver);
                self.tenths.finish(self.ios());
                self.live.is_measuring.store(false, Ordering::Release);
                self.phase_end = now + DRAIN_NS;
                let tallies = &mut self.tallies;
                self.jobs
                    .iter_mut()
                    .for_each(|job| job.end_counting(now, tallies));
            }
            LoadPhase::ReadBack => {
                // As long as the load took, and a minute: it may be all of the volume.
                self.phase_end = now + self.plan.runtime_ns + 60 * SECOND;
                if !self.has_stopped {
                    self.jobs.iter_mut().for_each(Job::begin_read_back);
                    self.jobs.iter_mut().for_each(|job| job.pump(driver, now));
                }
            }
            LoadPhase::Closing => {
                self.phase_end = now + CLOSE_NS;
                self.jobs.iter_mut().for_each(|job| job.close(driver));
            }
        }
    }
}

impl<D: Driver> Handler<D, Letter> for Worker {
    #[inline]
    fn on_completion(&mut self, driver: &mut D, completion: Completion) {
        let token = completion.token();
        let index = (token >> self.token_bits) as usize;
        let now = driver.now();
        self.jobs[index].on_completion(driver, token, completion, now, &mut self.tallies);
        self.mark(index);
    }

    fn on_mail(&mut self, driver: &mut D, letter: Letter) {
        match letter {
            Letter::Begin if self.phase == LoadPhase::Waiting => {
                let now = driver.now();
                self.enter(driver, LoadPhase::Ramp, now);
            }
            Letter::Begin => {}
            Letter::Stop => {
                self.has_stopped = true;
                self.jobs.iter_mut().for_each(Job::stop);
            }
            Letter::Path(path, change) => {
                let now = driver.now();
                for job in &mut self.jobs {
                    job.on_path(driver, (path, change.clone()), now, &mut self.tallies);
                }
                self.mark_all();
            }
        }
    }

    #[inline]
    fn on_turn(&mut self, driver: &mut D) {
        let now = driver.now();
        for i in 0..self.dirty.len() {
            let index = self.dirty[i] as usize;
            self.is_dirty[index] = false;
            // Local ones have their own turn.
            if !self.jobs[index].is_local() {
                self.jobs[index].pump(driver, now);
            }
        }
        self.dirty.clear();
        if self.has_local {
            self.run_local(driver);
        }
        match self.phase {
            LoadPhase::Measuring => {
                if now >= self.tenths.end {
                    // What this turn brought belongs to the tenth that begins.
                    let before = self.live.ios.load(Ordering::Relaxed);
                    self.tenths.end(now, before);
                }
                self.live.ios.store(self.ios(), Ordering::Relaxed);
                if self.has_stopped || self.jobs[0].is_down() {
                    self.advance(driver);
                }
            }
            LoadPhase::Ramp if !self.has_stopped && !self.jobs[0].is_down() => {}
            _ => self.advance(driver),
        }
        if self.has_due {
            let due = self.jobs.iter().filter_map(Job::next_due).min();
            self.next_due = due.unwrap_or(Nanos::MAX);
        }
    }

    #[inline]
    fn deadline(&self) -> Option<Nanos> {
        if self.is_restless {
            return Some(0);
        }
        let at = self.phase_end.min(self.next_due);
        (at != Nanos::MAX).then_some(at)
    }

    fn on_deadline(&mut self, driver: &mut D, now: Nanos) {
        if now >= self.next_due {
            for job in &mut self.jobs {
                job.on_deadline(driver, now, &mut self.tallies);
            }
            self.mark_all();
            self.next_due = Nanos::MAX;
        }
        if now >= self.phase_end {
            self.advance(driver);
        }
    }

    #[inline]
    fn is_done(&self) -> bool {
        self.phase == LoadPhase::Done
    }
}
