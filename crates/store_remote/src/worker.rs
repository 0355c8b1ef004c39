//! The thread of a remote volume: its I/Os, as commands on the paths that there are.

use std::collections::VecDeque;
use std::sync::mpsc;

use host::{Multipath, PathChange, PathParams, Policy};
use machine::{Nanos, Tag};
use mem::{Budget, Pool, Region};
use reactor::{
    AnyDriver, Choice, Completion, Driver, DriverConfig, Handler, Mailbox, Receiver, RunConfig,
};
use store::{Errno, Error, Io, RemoteCall};

use crate::commands::{self, DATA_BYTES_MAX, Format};
use crate::paths::KATO_MS;

const MS: Nanos = 1_000_000;

/// How long after the loss of a connection its controller may still do what came by it. A
/// controller looks once in each Keep Alive Timeout whether anything has come, so it notices
/// within two (Base 2.0, section 3.9).
pub(crate) const QUIESCE_NS: Nanos = 2 * KATO_MS as Nanos * MS;

/// How often it looks whether something takes too long, at most and at least.
const LOOKS_NS: (Nanos, Nanos) = (10 * MS, 1_000 * MS);

/// Memory for what is received at a time, of each path.
const PATH_MEMORY: u64 = 8 << 20;

/// What a worker is to do.
pub(crate) struct WorkerPlan {
    pub volume: String,
    pub paths: Vec<PathParams>,
    pub format: Format,
    pub timeout_ns: Nanos,
}

/// Letters to a worker.
pub(crate) enum Letter {
    /// An I/O.
    Io(Io, RemoteCall),
    /// What became of a path, by its number.
    Path(usize, PathChange),
    /// It is over.
    End,
}

/// An I/O that is under way.
struct Job {
    io: Io,
    call: RemoteCall,
    begun: Nanos,
    /// How far it has been cut into commands, of how much.
    cut: u64,
    work: u64,
    /// It is not cut up yet.
    is_queued: bool,
    in_flight: u32,
    failed: Option<Error>,
    /// When a connection was lost last on which it was under way.
    lost_at: Option<Nanos>,
}

impl Job {
    fn is_late(&self, now: Nanos, timeout_ns: Nanos) -> bool {
        now >= self.begun.saturating_add(timeout_ns)
    }

    fn is_over(&self) -> bool {
        self.in_flight == 0 && !self.is_queued
    }

    /// Until when its end waits.
    fn quiet_at(&self) -> Option<Nanos> {
        let lost_at = self.lost_at?;
        matches!(self.io, Io::Write { .. } | Io::Zero { .. }).then_some(lost_at + QUIESCE_NS)
    }
}

struct Worker {
    plan: WorkerPlan,
    paths: Multipath,
    jobs: Vec<Option<Job>>,
    free: Vec<usize>,
    /// Jobs that are not cut up yet, in the order in which they came.
    queue: VecDeque<usize>,
    /// The job that a command is of, and how much of it.
    commands: Vec<(usize, u64)>,
    /// Jobs that are done, and end when the controller of a lost connection is quiet.
    held: Vec<(Nanos, usize)>,
    zeros: Region,
    looks_at: Nanos,
    looks_ns: Nanos,
    is_ending: bool,
}

/// Runs a worker on the calling thread until it is told to end.
pub(crate) fn run(plan: WorkerPlan, ready: &mpsc::Sender<Result<Mailbox<Letter>, String>>) {
    let opened = || {
        let pool = Pool::new(Budget::new(plan.paths.len() as u64 * PATH_MEMORY))?;
        let config = DriverConfig {
            sockets_max: 2 * plan.paths.len() as u32,
            ..DriverConfig::default()
        };
        let driver = reactor::open(Choice::Auto, &config, pool)?;
        Ok((driver, Region::anonymous(DATA_BYTES_MAX)?))
    };
    let opened: std::io::Result<(AnyDriver, Region)> = opened();
    match opened {
        Ok((AnyDriver::Uring(mut driver), zeros)) => drive(&mut driver, plan, zeros, ready),
        Ok((AnyDriver::Epoll(mut driver), zeros)) => drive(&mut driver, plan, zeros, ready),
        Err(error) => drop(ready.send(Err(format!("cannot start its reactor: {error}")))),
    }
}

fn drive<D: Driver>(
    driver: &mut D,
    plan: WorkerPlan,
    zeros: Region,
    ready: &mpsc::Sender<Result<Mailbox<Letter>, String>>,
) {
    let (mailbox, mail): (_, Receiver<Letter>) = reactor::mailbox(driver.waker());
    let depth = plan.format.depth;
    let timeout = Some(plan.timeout_ns);
    let mut worker = Worker {
        paths: Multipath::new(Policy::QueueDepth, &plan.paths, depth, timeout, 0),
        jobs: Vec::new(),
        free: Vec::new(),
        queue: VecDeque::new(),
        commands: vec![(0, 0); usize::from(depth)],
        held: Vec::new(),
        zeros,
        looks_at: driver.now(),
        looks_ns: (plan.timeout_ns / 8).clamp(LOOKS_NS.0, LOOKS_NS.1),
        is_ending: false,
        plan,
    };
    if ready.send(Ok(mailbox)).is_err() {
        return;
    }
    if let Err(error) = reactor::run(driver, &mail, &mut worker, &RunConfig::default()) {
        tracing::error!(
            event = "remote-ended",
            volume = worker.plan.volume,
            %error,
            "the thread of a remote volume has ended, and every I/O on it fails: start weft again"
        );
    }
}

impl Worker {
    fn job(&mut self, id: usize) -> &mut Job {
        self.jobs[id].as_mut().expect("it is under way")
    }

    fn take(&mut self, id: usize) -> Job {
        self.free.push(id);
        self.jobs[id].take().expect("it is under way")
    }

    fn add(&mut self, job: Job) {
        let id = self.free.pop().unwrap_or_else(|| {
            self.jobs.push(None);
            self.jobs.len() - 1
        });
        self.jobs[id] = Some(job);
        self.queue.push_back(id);
    }

    /// Puts on paths what has room there.
    fn submit(&mut self, now: Nanos) {
        while let Some(&id) = self.queue.front() {
            let job = self.jobs[id].as_mut().expect("it is under way");
            if job.cut == job.work || job.failed.is_some() {
                job.is_queued = false;
                self.queue.pop_front();
                self.end_if_over(id, now);
                continue;
            }
            let zeros = self.zeros.range(0, DATA_BYTES_MAX as u32);
            let command = commands::next(&job.io, job.cut, &self.plan.format, zeros);
            let memory = |_| command.memory.expect("it has data");
            let Some(tag) = self.paths.submit(&command.sqe, command.data, memory) else {
                return;
            };
            self.commands[usize::from(tag)] = (id, command.len);
            job.cut += command.len;
            job.in_flight += 1;
        }
    }

    /// A command came to its end.
    fn completed(&mut self, tag: Tag, completion: &host::Completion, now: Nanos) {
        let (id, len) = self.commands[usize::from(tag)];
        let lost_at = self.paths.lost_at(tag);
        let job = self.job(id);
        job.in_flight -= 1;
        job.lost_at = job.lost_at.max(lost_at);
        let is_short = matches!(job.io, Io::Read { .. }) && u64::from(completion.data_len) != len;
        if !completion.status.is_success() {
            let error = commands::error_of(&job.io, completion.status);
            job.failed.get_or_insert(error);
        } else if is_short {
            job.failed
                .get_or_insert(commands::failed(&job.io, Errno::IO));
        }
        self.end_if_over(id, now);
    }

    /// Ends a job, now or when the controller of a lost connection is quiet.
    fn end_if_over(&mut self, id: usize, now: Nanos) {
        let job = self.job(id);
        if !job.is_over() {
            return;
        }
        match job.quiet_at().filter(|at| *at > now) {
            Some(at) => self.held.push((at, id)),
            None => self.end(id),
        }
    }

    fn end(&mut self, id: usize) {
        let job = self.take(id);
        job.call.end(job.failed.map_or(Ok(()), Err));
    }

    /// Ends what has waited long enough.
    fn end_held(&mut self, now: Nanos) {
        let (over, held) = self.held.drain(..).partition(|(at, _)| *at <= now);
        self.held = held;
        let over: Vec<(Nanos, usize)> = over;
        over.into_iter().for_each(|(_, id)| self.end(id));
    }

    /// Fails what takes too long.
    fn fail_late<D: Driver>(&mut self, driver: &mut D, now: Nanos) {
        let (jobs, commands) = (&self.jobs, &self.commands);
        let timeout_ns = self.plan.timeout_ns;
        let is_late = |tag: Tag| {
            let job = jobs[commands[usize::from(tag)].0].as_ref();
            job.is_some_and(|job| job.is_late(now, timeout_ns))
        };
        self.paths.fail_late(driver, is_late);
        for &id in &self.queue {
            let job = self.jobs[id].as_mut().expect("it is under way");
            if job.is_late(now, timeout_ns) {
                let late = commands::failed(&job.io, Errno::TIMEDOUT);
                job.failed.get_or_insert(late);
            }
        }
    }

    /// Goes on until nothing can be done without waiting.
    fn go_on<D: Driver>(&mut self, driver: &mut D) {
        loop {
            self.submit(driver.now());
            let Some((tag, completion)) = self.paths.next_completed(driver) else {
                break;
            };
            self.completed(tag, &completion, driver.now());
        }
        self.paths.flush(driver);
    }
}

impl<D: Driver> Handler<D, Letter> for Worker {
    fn on_completion(&mut self, driver: &mut D, completion: Completion) {
        self.paths
            .on_completion(driver, completion.token(), completion);
        while let Some((tag, completion)) = self.paths.next_completed(driver) {
            self.completed(tag, &completion, driver.now());
        }
    }

    fn on_mail(&mut self, driver: &mut D, letter: Letter) {
        match letter {
            Letter::Io(io, call) => self.add(Job {
                work: commands::work_of(&io),
                io,
                call,
                begun: driver.now(),
                cut: 0,
                is_queued: true,
                in_flight: 0,
                failed: None,
                lost_at: None,
            }),
            Letter::Path(number, change) if !self.is_ending => {
                self.paths.on_change(driver, number, change);
            }
            Letter::Path(..) => {}
            Letter::End => {
                self.is_ending = true;
                self.paths.close(driver);
            }
        }
    }

    fn on_turn(&mut self, driver: &mut D) {
        self.go_on(driver);
    }

    fn deadline(&self) -> Option<Nanos> {
        let is_idle = self.jobs.len() == self.free.len();
        let looks_at = (!is_idle).then_some(self.looks_at);
        let held_at = self.held.iter().map(|(at, _)| *at).min();
        let all = [looks_at, held_at, self.paths.deadline()];
        all.into_iter().flatten().min()
    }

    fn on_deadline(&mut self, driver: &mut D, now: Nanos) {
        self.paths.on_deadline(now);
        self.end_held(now);
        if now >= self.looks_at {
            self.looks_at = now + self.looks_ns;
            self.fail_late(driver, now);
        }
    }

    fn is_done(&self) -> bool {
        self.is_ending && self.paths.is_closed()
    }
}
