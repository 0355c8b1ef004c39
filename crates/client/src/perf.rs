//! `weft perf`: a load on one or more targets, measured.
//!
//! The main thread makes the associations and keeps them alive; workers, one
//! reactor each, hold the I/O queues and do nothing else.

mod args;
mod device;
mod job;
mod line;
mod local;
mod mount;
mod nfs;
mod paths;
mod pattern;
mod report;
mod worker;
mod workload;

use std::io::{self, IsTerminal, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use host::iscsi::{self, Initiator, Params, Session};
use host::{Address, Admin, HostIdentity, QueueParams};
use mem::{Budget, Pool};
use reactor::{DriverConfig, EpollDriver, Mailbox};
use wire::nvme::ConnectCommand;
use wire::nvme::fabrics::ConnectData;

pub use args::{
    Backend, Check, CpuList, LoadAddress, PathPolicy, Patience, PerfArgs, default_nqn,
    parse_cpu_list,
};
pub use device::{Device, DeviceKind};
pub use report::{
    Direction, Errors, Failed, Load, Metadata, PathUse, Report, Spent, TargetInfo, TargetName,
    Verified,
};
pub use workload::Rw;

use job::JobPlan;
use line::LinePlan;
use mount::Mount;
use paths::Paths;
use worker::{Letter, Live, WorkerOutcome, WorkerPlan};

use crate::units::show_count;

/// Keep Alive Timeout asked for, and how often it is fed.
const KATO_MS: u32 = 15_000;
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(4);
/// How often the main thread looks around.
const TICK: Duration = Duration::from_millis(50);
/// How often the live line is written.
const LIVE_EVERY: Duration = Duration::from_millis(500);
/// Memory of an Admin Queue's driver.
const ADMIN_MEMORY_MAX: u64 = 16 << 20;

/// Runs `weft perf`. Once `stop` is set the load ends, and what was measured
/// until then is reported.
///
/// # Errors
/// The report cannot be printed.
pub fn run(args: &PerfArgs, stop: &AtomicBool) -> io::Result<ExitCode> {
    let report = match measure(args, stop) {
        Ok(report) => report,
        Err(error) => {
            let _ = writeln!(io::stderr(), "weft perf: {error}");
            return Ok(ExitCode::FAILURE);
        }
    };
    if args.json {
        let text = serde_json::to_string_pretty(&report).expect("a report is JSON");
        writeln!(io::stdout(), "{text}")?;
    } else {
        write!(io::stdout(), "{}", report.text())?;
    }
    Ok(match report.is_clean() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// What a target is told by, as long as the load lasts.
enum Association {
    Nvme(Box<Admin<EpollDriver>>),
    Nfs(Box<Mount>),
}

impl Association {
    /// A target that does not answer shows in the I/O as well.
    fn keep_alive(&mut self) {
        match self {
            Association::Nvme(admin) => drop(admin.keep_alive()),
            Association::Nfs(mount) => drop(mount.keep_alive()),
        }
    }

    /// The measurement is over: a target that is gone changes nothing.
    fn end(self) {
        match self {
            Association::Nvme(admin) => drop(admin.shutdown()),
            Association::Nfs(mount) => drop(mount.end()),
        }
    }
}

/// An Admin Queue's driver: what it does is seldom, so epoll will do.
pub(crate) fn admin_driver() -> io::Result<EpollDriver> {
    let config = DriverConfig {
        sockets_max: 1,
        ..DriverConfig::default()
    };
    EpollDriver::new(&config, Pool::new(Budget::new(ADMIN_MEMORY_MAX))?)
}

/// Runs a load to its end.
///
/// # Errors
/// A sentence for the user where there was nothing to measure.
pub fn measure(args: &PerfArgs, stop: &AtomicBool) -> Result<Report, String> {
    let mut associations = Vec::new();
    let measured = measure_on(args, stop, &mut associations);
    // Whatever became of the load: what was made for it is taken away.
    associations.into_iter().for_each(Association::end);
    measured
}

fn measure_on(
    args: &PerfArgs,
    stop: &AtomicBool,
    associations: &mut Vec<Association>,
) -> Result<Report, String> {
    let mut paths = None;
    let (targets, mut jobs) = match args.multipath {
        Some(policy) => {
            let host = args.host_identity()?;
            let addresses = args.path_addresses()?;
            let paths = paths.insert(Paths::connect(args, &addresses, &host)?);
            paths.plan(args, policy)?
        }
        None => plan(args, associations)?,
    };
    let count = jobs.len() as f64;
    for (job, number) in jobs.iter_mut().zip(0..) {
        job.number = number;
        job.rate = args.rate.map(|rate| rate / count);
    }
    let mut run = WorkersRun::start(args, jobs)?;
    if let Some(paths) = &paths {
        paths.register_mailboxes(&run.mailboxes);
    }
    let is_shown = io::stderr().is_terminal() && !args.json;
    let gate = args.wait.then(Gate::default);
    let outcomes = run.watch(associations, stop, (is_shown, gate))?;
    Ok(Report::new(args, targets, &outcomes))
}

/// The jobs on every target, one after the other.
fn plan(
    args: &PerfArgs,
    associations: &mut Vec<Association>,
) -> Result<(Vec<TargetInfo>, Vec<JobPlan>), String> {
    let host = args.host_identity()?;
    let initiator = args.chap.identity()?;
    let mut targets = Vec::new();
    let mut jobs = Vec::new();
    for place in args.target_addresses()? {
        let (target, its_jobs) = match place {
            LoadAddress::Nvme(address) => {
                let (admin, target, its_jobs) = associate(args, &address, &host)?;
                associations.push(Association::Nvme(Box::new(admin)));
                (target, its_jobs)
            }
            LoadAddress::Iscsi(address) => {
                // Sessions of one initiator are told apart by their numbers.
                let sessions = (jobs.len() + targets.len()) as u16;
                log_in(args, &address, &initiator, sessions)?
            }
            LoadAddress::Nfs(address) => {
                let first = jobs.len() as u32;
                let (mount, target, its_jobs) = mount::mount(args, &address, first)?;
                associations.push(Association::Nfs(Box::new(mount)));
                (target, its_jobs)
            }
            LoadAddress::Local(address) => open_local(args, &address, &host)?,
        };
        targets.push(target);
        jobs.extend(its_jobs);
    }
    Ok((targets, jobs))
}

/// Connects the Admin Queue of one target and plans the jobs on its I/O queues.
fn associate(
    args: &PerfArgs,
    address: &Address,
    host: &HostIdentity,
) -> Result<(Admin<EpollDriver>, TargetInfo, Vec<JobPlan>), String> {
    let at = |error: host::Error| format!("{}: {error}", address.socket);
    let driver = admin_driver().map_err(|e| e.to_string())?;
    let (to, subnqn) = (address.socket, &address.subnqn);
    let settings = args.settings(address.transport);
    let admin = Admin::connect(driver, to, subnqn, host, settings, KATO_MS);
    let mut admin = admin.map_err(at)?;
    let host = admin.host().clone();
    let controller = admin.controller().map_err(at)?;
    let namespace = admin.namespace(address.nsid).map_err(at)?;
    let queues = admin.set_queue_count(args.numjobs).map_err(at)?;
    if queues < args.numjobs {
        return Err(format!(
            "{to}: the controller gives {queues} I/O queues, fewer than --numjobs"
        ));
    }
    let data = ConnectData::new(host.hostid, controller.cntlid, subnqn, &host.hostnqn);
    let device = Device::namespace(&controller, &namespace);
    let areas = args.job_areas(&device, u64::from(args.numjobs))?;
    let jobs = areas.into_iter().zip(1..).map(|(area, qid)| {
        let queue = QueueParams {
            settings,
            connect: ConnectCommand {
                recfmt: 0,
                qid,
                sqsize: device.queue_depth(args.iodepth),
                cattr: ConnectCommand::DISABLE_SQ_FLOW_CONTROL,
                kato_ms: 0,
            },
            connect_data: data.clone(),
            in_capsule_max: controller.in_capsule_max,
            psk: host.psk.clone(),
            dhchap: host.dhchap.clone(),
        };
        let line = LinePlan::Queue(to, Box::new(queue));
        JobPlan::new(args, line, &device, area, unique(&host.hostid))
    });
    let target = TargetInfo::namespace(to, subnqn, &device, &controller.model);
    Ok((admin, target, jobs.collect()))
}

/// The first bytes of something random, as a number.
fn unique(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().expect("4 bytes"))
}

/// Logs in to an iSCSI target to see what its logical unit is, and plans the
/// jobs on it: a session each, numbered from `first`.
fn log_in(
    args: &PerfArgs,
    address: &iscsi::IscsiAddress,
    initiator: &Initiator,
    first: u16,
) -> Result<(TargetInfo, Vec<JobPlan>), String> {
    let (to, name) = (address.portal, &address.target);
    let at = |error: iscsi::SessionError| format!("{to}: {error}");
    let driver = admin_driver().map_err(|e| e.to_string())?;
    let settings = args.iscsi_settings(&initiator.name, address)?;
    let params = |number| Params::new(settings.clone(), initiator, number);
    let first_params = params(first).map_err(|e| e.to_string())?;
    let mut session = Session::open(driver, to, first_params).map_err(at)?;
    let unit = session.unit(address.lun).map_err(at)?;
    // What is known stays known where the logout fails.
    let _ = session.logout();
    let device = Device::unit(&unit);
    let areas = args.job_areas(&device, u64::from(args.numjobs))?;
    let jobs = areas.into_iter().zip(first + 1..).map(|(area, number)| {
        let params = params(number).map_err(|e| e.to_string())?;
        let unique = unique(&params.random);
        let line = LinePlan::Iscsi(to, Box::new(params));
        Ok(JobPlan::new(args, line, &device, area, unique))
    });
    let jobs = jobs.collect::<Result<_, String>>()?;
    Ok((TargetInfo::unit(to, name, &device, &unit.model), jobs))
}

/// Opens a volume of this process and plans the jobs on it.
fn open_local(
    args: &PerfArgs,
    address: &local::LocalAddress,
    host: &HostIdentity,
) -> Result<(TargetInfo, Vec<JobPlan>), String> {
    let volume = address.open()?;
    let device = Device::local(&*volume);
    let areas = args.job_areas(&device, u64::from(args.numjobs))?;
    let jobs = areas.into_iter().map(|area| {
        let line = LinePlan::Local(Arc::clone(&volume));
        JobPlan::new(args, line, &device, area, unique(&host.hostid))
    });
    Ok((
        TargetInfo::local(address.to_string(), &device),
        jobs.collect(),
    ))
}

/// Workers under way.
struct WorkersRun {
    workers: Vec<JoinHandle<io::Result<WorkerOutcome>>>,
    mailboxes: Vec<Mailbox<Letter>>,
    live: Vec<Arc<Live>>,
    connections: usize,
}

impl WorkersRun {
    /// Spreads the jobs over workers and starts them; they connect, and wait.
    fn start(args: &PerfArgs, jobs: Vec<JobPlan>) -> Result<WorkersRun, String> {
        let cpus: Vec<Option<usize>> = match &args.cpus {
            Some(CpuList(cpus)) => cpus.iter().copied().map(Some).collect(),
            None => vec![None],
        };
        let connections = jobs.iter().map(|job| job.line.connections()).sum();
        let mut plans: Vec<WorkerPlan> = cpus
            .iter()
            .take(jobs.len())
            .map(|cpu| WorkerPlan {
                cpu: *cpu,
                backend: args.io_backend.into(),
                spin_us_max: args.spin_us_max(),
                ramp_ns: args.ramp_time.as_nanos() as u64,
                runtime_ns: args.runtime.as_nanos() as u64,
                jobs: Vec::new(),
            })
            .collect();
        let count = plans.len();
        for (i, job) in jobs.into_iter().enumerate() {
            plans[i % count].jobs.push(job);
        }
        let mut run = WorkersRun {
            workers: Vec::new(),
            mailboxes: Vec::new(),
            live: Vec::new(),
            connections,
        };
        for plan in plans {
            let live = Arc::new(Live::default());
            let (hello, greeting) = mpsc::channel();
            run.live.push(Arc::clone(&live));
            let worker = thread::Builder::new()
                .name("weft-perf".into())
                .spawn(move || {
                    // The receiver is gone where another worker failed to start.
                    worker::run(plan, &live, |mailbox| drop(hello.send(mailbox)))
                });
            run.workers.push(worker.map_err(|e| e.to_string())?);
            match greeting.recv() {
                Ok(mailbox) => run.mailboxes.push(mailbox),
                Err(_) => {
                    run.send(Letter::Stop);
                    let outcomes = run.join();
                    return Err(outcomes
                        .err()
                        .unwrap_or_else(|| "a reactor did not start".into()));
                }
            }
        }
        Ok(run)
    }

    fn send(&self, letter: Letter) {
        self.mailboxes
            .iter()
            .for_each(|mailbox| mailbox.send(letter.clone()));
    }

    fn join(&mut self) -> Result<Vec<WorkerOutcome>, String> {
        let joined = self
            .workers
            .drain(..)
            .map(|worker| worker.join().expect("no worker panics"));
        let outcomes: io::Result<Vec<WorkerOutcome>> = joined.collect();
        outcomes.map_err(|error| format!("the reactor failed: {error}"))
    }

    /// Begins when all are connected, shows how it goes, and feeds Keep Alive
    /// until the workers have ended.
    fn watch(
        &mut self,
        associations: &mut [Association],
        stop: &AtomicBool,
        (is_shown, mut gate): (bool, Option<Gate>),
    ) -> Result<Vec<WorkerOutcome>, String> {
        let mut has_begun = false;
        let mut has_stopped = false;
        let mut alive_at = Instant::now();
        let mut line = LiveLine::new(is_shown);
        while !self.workers.iter().all(JoinHandle::is_finished) {
            let is_settled = self
                .live
                .iter()
                .all(|live| live.is_settled.load(Ordering::Acquire));
            if is_settled && !has_begun {
                let failures = self.live.iter().map(|l| l.failures.load(Ordering::Relaxed));
                let is_whole = failures.sum::<u64>() == 0;
                let answer = gate.as_mut().filter(|_| is_whole).map(Gate::answer);
                // A load over fewer connections than asked for would mislead.
                let letter = match answer {
                    None | Some(Some(true)) if is_whole => Some(Letter::Begin),
                    Some(None) => None,
                    _ => Some(Letter::Stop),
                };
                if let Some(letter) = letter {
                    has_begun = true;
                    self.send(letter);
                }
            }
            // A worker that ends before the load began could not be set up.
            let is_crippled = !has_begun && self.workers.iter().any(JoinHandle::is_finished);
            if (stop.load(Ordering::Relaxed) || is_crippled) && !has_stopped {
                has_stopped = true;
                self.send(Letter::Stop);
            }
            if alive_at.elapsed() >= KEEP_ALIVE_EVERY {
                alive_at = Instant::now();
                associations.iter_mut().for_each(Association::keep_alive);
            }
            line.show(&self.live, self.connections);
            thread::sleep(if has_begun {
                TICK
            } else {
                Duration::from_millis(1)
            });
        }
        line.clear();
        self.join()
    }
}

/// What holds a load back until a line on the standard input says that it may
/// begin.
#[derive(Default)]
struct Gate(Option<mpsc::Receiver<bool>>);

impl Gate {
    /// Says `ready` when it is first asked; whether to begin or to give up, once
    /// that is known.
    fn answer(&mut self) -> Option<bool> {
        let answers = self.0.get_or_insert_with(|| {
            let _ = writeln!(io::stderr(), "ready");
            let (tell, told) = mpsc::channel();
            thread::spawn(move || {
                let read = io::stdin().lines().next();
                tell.send(matches!(read, Some(Ok(_))))
            });
            told
        });
        match answers.try_recv() {
            Ok(answer) => Some(answer),
            Err(mpsc::TryRecvError::Empty) => None,
            Err(mpsc::TryRecvError::Disconnected) => Some(false),
        }
    }
}

/// One line on the terminal that is written over and over.
struct LiveLine {
    is_shown: bool,
    at: Instant,
    ios: u64,
}

impl LiveLine {
    fn new(is_shown: bool) -> Self {
        LiveLine {
            is_shown,
            at: Instant::now(),
            ios: 0,
        }
    }

    fn show(&mut self, live: &[Arc<Live>], connections: usize) {
        let elapsed = self.at.elapsed();
        if !self.is_shown || elapsed < LIVE_EVERY {
            return;
        }
        let ios: u64 = live
            .iter()
            .map(|live| live.ios.load(Ordering::Relaxed))
            .sum();
        let rate = ios.saturating_sub(self.ios) as f64 / elapsed.as_secs_f64();
        let is_measuring = live
            .iter()
            .any(|live| live.is_measuring.load(Ordering::Relaxed));
        let phase = if is_measuring {
            "measuring"
        } else {
            "not measuring"
        };
        let rate = show_count(rate);
        // A terminal that is gone must not end the measurement.
        let line = format!("\r\x1b[K{connections} connections, {phase}: {rate} IOPS, {ios} I/Os");
        let _ = io::stderr().write_all(line.as_bytes());
        (self.at, self.ios) = (Instant::now(), ios);
    }

    fn clear(&self) {
        if self.is_shown {
            let _ = io::stderr().write_all(b"\r\x1b[K");
        }
    }
}
