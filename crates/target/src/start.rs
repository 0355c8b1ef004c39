//! From a configuration to running reactors, and back.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use nvmf::command::{AnaState, Geometry};
use nvmf::{Namespace, Registry, RegistryConfig, Subsystem};
use reactor::{Driver, DriverConfig, Mailbox, RunConfig};
use store::Volume;

use crate::config::{Config, SubsystemSpec};
use crate::placement::Placer;
use crate::report::Report;
use crate::shard::{Acceptor, Shard};
use crate::shared::{Mail, Served, Shared};

/// Why a target did not start.
#[derive(Debug)]
pub enum StartError {
    /// A volume could not be opened.
    Volume(store::OpenError),
    /// An address could not be listened on.
    Listen(SocketAddr, io::Error),
    /// A reactor could not be set up on its CPU.
    Reactor(usize, io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Volume(error) => write!(f, "{error}"),
            StartError::Listen(address, error) => {
                write!(f, "cannot listen on {address}: {error}")?;
                f.write_str(match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        "; another program does: end it, or configure another port"
                    }
                    io::ErrorKind::PermissionDenied => {
                        "; ports below 1024 need a privilege: configure a higher one"
                    }
                    io::ErrorKind::AddrNotAvailable => "; this machine has no such address",
                    _ => "",
                })
            }
            StartError::Reactor(cpu, error) => {
                write!(f, "cannot run a reactor on CPU {cpu}: {error}")
            }
        }
    }
}

impl std::error::Error for StartError {}

/// How long to wait for a port that is in use.
const PORT_PATIENCE: Duration = Duration::from_secs(2);

/// How long a reactor may take to say what it has done.
const REPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// A target that runs. Dropping it without [`Running::stop`] leaves it running.
pub struct Running {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    backend: &'static str,
    reports: Receiver<io::Result<Report>>,
    /// Reactors that have ended, and what they did.
    ended: (usize, Report),
}

/// What a reactor says once it is set up.
type Ready = io::Result<(Mailbox<Mail>, &'static str)>;

/// Opens the volumes, binds the listeners and starts the reactors. When it
/// returns, hosts can connect.
pub fn start(config: Config) -> Result<Running, StartError> {
    let mut volumes = Vec::new();
    for spec in &config.volumes {
        volumes.push(store::open(spec).map_err(StartError::Volume)?);
    }
    let mut listeners = Vec::new();
    let mut addresses = Vec::new();
    for &address in &config.listeners {
        let listening = listen(address).and_then(|l| Ok((l.local_addr()?, l)));
        let (bound, listener) = listening.map_err(|error| StartError::Listen(address, error))?;
        addresses.push(bound);
        listeners.push(listener);
    }
    let load = Arc::new((config.cpus.iter()).map(|_| AtomicU32::new(0)).collect());
    let shared = Arc::new(shared(&config, volumes, &addresses, load));
    let placer = Placer::new(config.placement, config.cpus.clone(), shared.load.clone());
    let mut acceptor = Some(Acceptor { listeners, placer });

    let budget = mem::Budget::new(config.memory_max);
    let (report, reports) = channel();
    let mut reactors = Vec::new();
    for (number, &cpu) in config.cpus.iter().enumerate() {
        let (ready, is_ready) = channel();
        let (go, may_go) = channel();
        let reactor = Reactor {
            number,
            cpu,
            choice: config.backend,
            driver: DriverConfig {
                zero_copy_min_bytes: config.zero_copy_min_bytes,
                sockets_max: config.limits.connections_max + config.listeners.len() as u32,
            },
            run: RunConfig {
                spin_us_max: u64::from(config.spin_us_max),
            },
            budget: budget.clone(),
            shared: shared.clone(),
            acceptor: acceptor.take(),
        };
        let report = report.clone();
        thread::Builder::new()
            .name(format!("weft-{number}"))
            .spawn(move || {
                let result = reactor.run(&ready, &may_go);
                if let Err(error) = &result {
                    let _ = ready.send(Err(io::Error::new(error.kind(), error.to_string())));
                }
                let _ = report.send(result);
            })
            .map_err(|error| StartError::Reactor(cpu, error))?;
        reactors.push((cpu, is_ready, go));
    }
    let mut mailboxes = Vec::new();
    let mut backend = "";
    let mut starts = Vec::new();
    for (cpu, is_ready, go) in reactors {
        let ready: Ready = is_ready
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("its thread ended")));
        let (mailbox, name) = ready.map_err(|error| StartError::Reactor(cpu, error))?;
        mailboxes.push(mailbox);
        backend = name;
        starts.push(go);
    }
    let first = shared.mailboxes.set(mailboxes).is_ok();
    assert!(first, "a target starts once");
    for go in starts {
        // A reactor that is gone says why in its report.
        let _ = go.send(());
    }
    Ok(Running {
        shared,
        addresses,
        backend,
        reports,
        ended: (0, Report::default()),
    })
}

/// Listens on `address`. A target that was killed leaves its port taken for a
/// moment, while the kernel takes its rings apart; the next one waits for it.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let give_up = Instant::now() + PORT_PATIENCE;
    loop {
        match TcpListener::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < give_up => {
                thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

/// One reactor, before its thread has started.
struct Reactor {
    number: usize,
    cpu: usize,
    choice: reactor::Choice,
    driver: DriverConfig,
    run: RunConfig,
    budget: Arc<mem::Budget>,
    shared: Arc<Shared>,
    acceptor: Option<Acceptor>,
}

impl Reactor {
    /// The life of its thread. Nothing is served before all are set up.
    fn run(self, ready: &Sender<Ready>, may_go: &Receiver<()>) -> io::Result<Report> {
        reactor::pin_to_cpu(self.cpu)?;
        let pool = mem::Pool::new(self.budget)?;
        let mut driver = reactor::open(self.choice, &self.driver, pool)?;
        let (mailbox, mail) = reactor::mailbox(driver.waker());
        let _ = ready.send(Ok((mailbox, driver.name())));
        if may_go.recv().is_err() {
            return Ok(Report::default());
        }
        let mut shard = Shard::new(self.number, self.shared, self.acceptor, &mut driver)?;
        reactor::run(&mut driver, &mail, &mut shard, &self.run)?;
        Ok(Report {
            unsynced: shard.unsynced(),
            ..Report::here(&driver)
        })
    }
}

fn shared(
    config: &Config,
    volumes: Vec<Arc<dyn Volume>>,
    listeners: &[SocketAddr],
    load: crate::placement::Load,
) -> Shared {
    let mut subsystems = Vec::new();
    let mut served = HashMap::new();
    for spec in &config.subsystems {
        let behind: Arc<[Arc<dyn Volume>]> = (spec.namespaces.iter())
            .map(|namespace| find(&volumes, &namespace.volume).clone())
            .collect();
        let subsystem = subsystem(spec, &behind, config);
        let geometry = subsystem.namespaces.iter().map(geometry).collect();
        served.insert(
            spec.nqn.clone(),
            Served {
                volumes: behind,
                geometry,
            },
        );
        subsystems.push(Arc::new(subsystem));
    }
    let registry = Registry::new(RegistryConfig {
        subsystems,
        listeners: listeners.to_vec(),
    });
    Shared {
        limits: config.limits,
        volumes,
        served,
        registry: Mutex::new(registry),
        mailboxes: OnceLock::new(),
        load,
    }
}

fn find<'a>(volumes: &'a [Arc<dyn Volume>], name: &str) -> &'a Arc<dyn Volume> {
    let volume = volumes.iter().find(|volume| volume.info().name == name);
    volume.expect("the configuration was checked: every volume named is there")
}

fn subsystem(spec: &SubsystemSpec, volumes: &[Arc<dyn Volume>], config: &Config) -> Subsystem {
    let namespaces = (spec.namespaces.iter().zip(volumes))
        .map(|(namespace, volume)| {
            let info = volume.info();
            Namespace {
                nsid: namespace.nsid,
                uuid: info.uuid.into_bytes(),
                nguid: info.nguid,
                eui64: None,
                block_bytes: info.block_bytes,
                block_count: volume.size_bytes() / u64::from(info.block_bytes),
                read_only: info.read_only,
                volatile_cache: info.volatile_cache,
            }
        })
        .collect();
    Subsystem {
        nqn: spec.nqn.clone(),
        serial: spec.serial.clone(),
        model: spec.model.clone(),
        firmware: env!("CARGO_PKG_VERSION").to_owned(),
        hosts: spec.hosts.clone(),
        namespaces,
        limits: nvmf::Limits {
            io_queues_max: config.limits.io_queues_max,
            queue_entries_max: config.limits.queue_entries_max,
            io_bytes_max: config.limits.io_bytes_max,
            in_capsule_bytes_max: config.limits.in_capsule_bytes_max,
        },
        cntlids: 1..=nvmf::CNTLID_MAX,
    }
}

fn geometry(namespace: &Namespace) -> Geometry {
    Geometry {
        nsid: namespace.nsid,
        block_shift: namespace.block_bytes.trailing_zeros() as u8,
        read_only: namespace.read_only,
        ana: AnaState::Optimized,
        instance: 0,
        block_count: namespace.block_count,
    }
}

impl Running {
    /// The addresses listened on, in the order of the configuration, with the
    /// port that the kernel chose where that was left to it.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The driver in use: "io_uring" or "epoll".
    pub fn backend(&self) -> &'static str {
        self.backend
    }

    /// The volumes, in the order of the configuration.
    pub fn volumes(&self) -> &[Arc<dyn Volume>] {
        &self.shared.volumes
    }

    /// Ends it in order: no new connections, open ones closed, volumes synced.
    /// Returns at once; [`Running::wait`] tells when it is over.
    pub fn stop(&self) {
        for shard in 0..self.shared.load.len() {
            self.shared.send(shard, Mail::Stop);
        }
    }

    /// Waits until every reactor has ended, at most `timeout`: what they did,
    /// `None` if some still run. An error is why a reactor failed; the others
    /// are told to stop.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<Option<Report>> {
        let deadline = Instant::now() + timeout;
        while self.ended.0 < self.shared.load.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.reports.recv_timeout(left) {
                Ok(Ok(report)) => {
                    self.ended.0 += 1;
                    self.ended.1 += report;
                }
                Ok(Err(error)) => {
                    self.stop();
                    return Err(error);
                }
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("a reactor panicked"));
                }
            }
        }
        Ok(Some(self.with_volumes(self.ended.1)))
    }

    /// What it has done so far; a reactor that has ended does not count.
    pub fn report(&self) -> Report {
        let (send, receive) = channel();
        for shard in 0..self.shared.load.len() {
            self.shared.send(shard, Mail::Report(send.clone()));
        }
        drop(send);
        let mut total = Report::default();
        while let Ok(report) = receive.recv_timeout(REPORT_TIMEOUT) {
            total += report;
        }
        self.with_volumes(total)
    }

    fn with_volumes(&self, mut total: Report) -> Report {
        for volume in self.volumes() {
            let stats = volume.stats();
            total.ios +=
                stats.reads + stats.writes + stats.flushes + stats.zeroes + stats.deallocates;
            total.io_bytes += stats.read_bytes + stats.write_bytes;
        }
        total
    }
}
