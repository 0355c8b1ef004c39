//! From a configuration to running reactors, and back.

use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use std::{io, thread};

use crate::change::kerberos::set as set_kerberos;
use engine::blocking_worker::{BlockingWorker, caught};
use engine::placement::Placer;
use engine::reservation::Hears;
use engine::shard::{Acceptor, DISPLACING_MAX};
use machine::{Nanos, locked};
use nvmf::{Registry, RegistryConfig, Subsystem};
use reactor::{BoundListener, Driver, DriverConfig, Mailbox, RunConfig};
use serve_nfs::records::Records;
use serve_nfs::{
    ClientInfo, FileSystemKind, FileSystemSpec, OwnMail, RenewedTls, ServerSide, Service, Wall,
    files,
};
use store::Volume;
use store::fs::{Dir, FileSystem};

use crate::change::{Change, ChangeError, cannot_listen};
use crate::check::LISTENERS_MAX;
use crate::config::{Config, Limits, ListenerSpec, Start};
use crate::datagrams;
use crate::report::Report;
use crate::schedule;
use crate::serving::Shard;
use crate::shared::{Bind, Mailboxes, ServerMail, Shared};
use crate::space;
use crate::state::{ServedState, own_identity, set_quotas};

/// Why a target did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A volume could not be opened.
    #[error("{0}")]
    Volume(store::OpenError),
    /// The first volume is made of the second, which is not open.
    #[error("volume \"{0}\": the volume \"{1}\", which it is made of, is not there")]
    Part(String, String),
    /// A file system could not be opened.
    #[error("{0}")]
    FileSystem(String),
    /// The folder of what NFS must know after a restart cannot be used.
    #[error(
        "cannot keep in {} what NFS must know after a restart: {}{}",
        .0.display(), .1, store::remedy(.1)
    )]
    NfsState(PathBuf, io::Error),
    /// The files by which NFS speaks TLS cannot be used.
    #[error("[nfs.tls]: {0}")]
    NfsTls(String),
    /// The files by which NBD speaks TLS cannot be used.
    #[error("[nbd.tls]: {0}")]
    NbdTls(String),
    /// The keys by which users of NFS clients prove who they are cannot be used.
    #[error("[nfs.kerberos]: {0}")]
    Kerberos(kerberos::KerberosError),
    /// A socket that listens already has an address that the configuration does not name.
    #[error(
        "the service manager hands over a socket that listens on {0}, and no [[listener]] has \
         this address: add one, or leave it out of the socket unit"
    )]
    NotAListener(SocketAddr),
    /// An address could not be listened on.
    #[error("{}", cannot_listen(.0, .1))]
    Listen(SocketAddr, io::Error),
    /// What is to be served contradicts itself.
    #[error("{0}")]
    Config(ChangeError),
    /// A reactor could not be set up on its CPU.
    #[error("cannot run a reactor on CPU {}: {}{}", .0, .1, store::remedy(.1))]
    Reactor(usize, io::Error),
}

/// How long to wait for a port that is in use.
const PORT_PATIENCE: Duration = Duration::from_secs(2);

/// How long a reactor may take to say what it has done.
pub(crate) const REPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// Descriptors that are neither for connections nor for volumes: listeners, rings,
/// state files.
const DESCRIPTORS_KEPT: u64 = 512;
/// Descriptors of a volume at most: its content and its state file.
const DESCRIPTORS_OF_VOLUME: u64 = 2;

/// How long a change may take to become true.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);

/// How often what waits for a change looks whether the target is being stopped.
const STOPPING_LOOK_EVERY: Duration = Duration::from_millis(100);

/// A target that runs. Dropping it without [`Running::stop`] leaves it running.
pub struct Running {
    pub(crate) shared: Arc<Shared>,
    backend: &'static str,
    /// What [`Running::wait`] has and waits for, by one caller at a time.
    reports: Mutex<Reports>,
    config: Config,
    missing: Vec<String>,
}

/// What reactors say at their end.
struct Reports {
    told: Receiver<io::Result<Report>>,
    /// Reactors that have ended, and what they did.
    ended: (usize, Report),
}

impl Reports {
    fn told_by(told: Receiver<io::Result<Report>>) -> Reports {
        Reports {
            told,
            ended: (0, Report::default()),
        }
    }
}

/// What a reactor says once it is set up.
type ReactorReady = io::Result<(Mailbox<ServerMail>, &'static str)>;

/// Opens the volumes, binds the listeners and starts the reactors. When it
/// returns, hosts can connect.
pub fn start(config: Config) -> Result<Running, StartError> {
    start_on(config, Vec::new(), None)
}

/// As [`start`], with sockets that listen already in place of those that it would bind: each
/// is for the listener of its address. `records`: what NFS keeps, to know it after a restart, where
/// the configuration says nothing of that.
pub fn start_on(
    mut config: Config,
    listening: Vec<BoundListener>,
    records: Option<Records>,
) -> Result<Running, StartError> {
    // Volumes and file systems take descriptors too.
    reactor::raise_descriptor_limit();
    let mut missing = Vec::new();
    let mut opened = OpenedStore {
        listening,
        records,
        ..OpenedStore::default()
    };
    // What is missing takes itself away, and nothing else.
    let mut give_up = |error: StartError| match config.start {
        Start::Strict => Err(error),
        Start::Degraded => {
            let why = error.to_string();
            tracing::error!(why, "not served: mend it and start again");
            missing.push(why);
            Ok(())
        }
    };
    let mut gone = Vec::new();
    for spec in &config.volumes {
        let volume = opened.open_volume(spec, config.start).and_then(|volume| {
            let others = opened.volumes.iter().map(|other| other.info());
            let own = own_identity(volume.info(), others);
            own.map_err(StartError::Config).map(|()| volume)
        });
        match volume {
            Ok(volume) => opened.volumes.push(volume),
            Err(error) => {
                give_up(error)?;
                gone.push(spec.name.clone());
            }
        }
    }
    let (now, mut gone_files) = (opened.wall.time(0), Vec::new());
    for spec in &config.file_systems {
        match files::open(spec, now) {
            Ok(fs) => opened.file_systems.push(fs),
            Err(why) => {
                give_up(StartError::FileSystem(why))?;
                gone_files.push(spec.name.clone());
            }
        }
    }
    config.leave_out(&gone, &gone_files);
    let mut running = start_with(config, opened)?;
    running.missing = missing;
    Ok(running)
}

/// What is there already, in place of what the configuration says.
#[derive(Default)]
pub struct OpenedStore {
    /// All volumes.
    pub volumes: Vec<Arc<dyn Volume>>,
    /// File systems; those of the configuration whose names are missing are
    /// opened.
    pub file_systems: Vec<Arc<dyn FileSystem>>,
    /// What NFS keeps, to know it after a restart.
    pub records: Option<Records>,
    /// Where the time of day comes from.
    pub wall: Wall,
    /// Sockets that listen already, each on the address of a listener; the others are bound.
    pub listening: Vec<BoundListener>,
}

impl OpenedStore {
    /// Opens a volume, over those that are open. A mirror needs one of its legs where the rest is
    /// to be served that there is.
    pub fn open_volume(
        &self,
        spec: &store::Spec,
        start: Start,
    ) -> Result<Arc<dyn Volume>, StartError> {
        let find = |name: &str| {
            let mut volumes = self.volumes.iter();
            volumes.find(|volume| volume.info().name == name).cloned()
        };
        let below = spec.parts(start == Start::Degraded, find);
        let missing = |part: &str| StartError::Part(spec.name.clone(), part.to_owned());
        store::open_over(spec, below.map_err(missing)?).map_err(StartError::Volume)
    }
}

impl<V: Volume + 'static> From<Vec<Arc<V>>> for OpenedStore {
    fn from(volumes: Vec<Arc<V>>) -> OpenedStore {
        let volumes = volumes.into_iter().map(|volume| volume as Arc<dyn Volume>);
        OpenedStore::from(volumes.collect::<Vec<_>>())
    }
}

impl From<Vec<Arc<dyn Volume>>> for OpenedStore {
    fn from(volumes: Vec<Arc<dyn Volume>>) -> OpenedStore {
        OpenedStore {
            volumes,
            ..OpenedStore::default()
        }
    }
}

/// As [`start`], with volumes that are open already in place of those of the
/// configuration.
pub fn start_with(
    mut config: Config,
    opened: impl Into<OpenedStore>,
) -> Result<Running, StartError> {
    Descriptors::of(&config).bound_connections(&mut config.limits);
    let mut opened: OpenedStore = opened.into();
    let (listeners, addresses) = listen_all(&config.listeners, &mut opened.listening)?;
    let shared = assemble(
        &config,
        opened,
        &addresses,
        BlockingWorker::Thread,
        Box::new(listen),
    )?;
    let placer = Placer::new(
        config.placement,
        config.cpus.clone(),
        shared.engine.load.clone(),
    );
    let mut acceptor = Some(Acceptor { listeners, placer });

    let budget = mem::Budget::of_pools(config.memory_max, config.cpus.len());
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
                registered_min_bytes: config.registered_min_bytes,
                fast_path: config.fast_path,
                sockets_max: config.limits.connections_max + DISPLACING_MAX + LISTENERS_MAX as u32,
            },
            run: RunConfig {
                spin_us_max: config.spin_us_max,
            },
            budget: budget.clone(),
            shared: shared.clone(),
            acceptor: acceptor.take(),
        };
        reactor
            .spawn(ready, may_go, report.clone())
            .map_err(|error| StartError::Reactor(cpu, error))?;
        reactors.push((cpu, is_ready, go));
    }
    let (mut mailboxes, mut starts, mut backend) = (Vec::new(), Vec::new(), "");
    for (cpu, is_ready, go) in reactors {
        let ready: ReactorReady = is_ready
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("its thread ended")));
        let (mailbox, name) = ready.map_err(|error| StartError::Reactor(cpu, error))?;
        mailboxes.push(mailbox);
        backend = name;
        starts.push(go);
    }
    start_watches(&shared).map_err(|error| StartError::Reactor(config.cpus[0], error))?;
    let first = shared.mailboxes.set(mailboxes).is_ok();
    assert!(first, "a target starts once");
    for go in starts {
        // A reactor that is gone says why in its report.
        let _ = go.send(());
    }
    Ok(Running {
        shared,
        backend,
        reports: Mutex::new(Reports::told_by(reports)),
        config,
        missing: Vec::new(),
    })
}

/// Starts the threads beside the reactors.
fn start_watches(shared: &Arc<Shared>) -> io::Result<()> {
    let volumes_of = Arc::downgrade(shared);
    space::start(&shared.nvme, move || {
        volumes_of.upgrade().map(|shared| shared.volumes())
    })?;
    serve_nfs::hosts::start(&shared.nfs)?;
    datagrams::start(shared)?;
    schedule::start(shared)
}

/// Listens on the address of each, by number, unless one of `listening` does; what each is
/// bound to.
fn listen_all(
    specs: &[ListenerSpec],
    listening: &mut Vec<BoundListener>,
) -> Result<Listening, StartError> {
    let mut all = Listening::default();
    for (number, spec) in (0..).zip(specs) {
        let there = listening.iter().position(|l| l.address() == spec.address);
        let listener = match there {
            Some(at) => listening.swap_remove(at),
            None => {
                listen(spec.address).map_err(|error| StartError::Listen(spec.address, error))?
            }
        };
        all.1.push(listener.address());
        all.0.push((number, listener));
    }
    match listening.first() {
        Some(left) => Err(StartError::NotAListener(left.address())),
        None => Ok(all),
    }
}

/// Listeners by number, and the addresses that they are bound to.
type Listening = (Vec<(u16, BoundListener)>, Vec<SocketAddr>);

/// How long the end waits for the blocking worker, which may hang with a disk. What is served is not
/// free for another target before.
const BLOCKING_WORK_PATIENCE: Duration = Duration::from_secs(1);

/// What has descriptors beside connections.
struct Descriptors {
    volumes: u64,
    directories: u64,
}

impl Descriptors {
    fn of(config: &Config) -> Descriptors {
        let is_directory = |spec: &&FileSystemSpec| matches!(spec.kind, FileSystemKind::Dir { .. });
        Descriptors {
            volumes: config.volumes.len() as u64,
            directories: config.file_systems.iter().filter(is_directory).count() as u64,
        }
    }

    /// Of `limit` descriptors those for connections. Directories have half of all at
    /// most: what files are open they close again when others need descriptors.
    fn left(&self, limit: u64) -> u64 {
        let kept = DESCRIPTORS_KEPT + DESCRIPTORS_OF_VOLUME * self.volumes;
        let of_directories = self.directories * Dir::descriptors_max(limit);
        limit.saturating_sub(kept + of_directories.min(limit / 2))
    }

    /// The limit that leaves so many to connections.
    fn limit_for(&self, connections: u64) -> u64 {
        let mut limit = connections;
        while self.left(limit) < connections {
            limit += connections - self.left(limit);
        }
        limit
    }

    /// Refuses the connections that there would be no descriptors for.
    fn bound_connections(&self, limits: &mut Limits) {
        let connections_max = &mut limits.connections_max;
        let descriptors = reactor::raise_descriptor_limit();
        let most = self.left(descriptors).max(1);
        if u64::from(*connections_max) <= most {
            return;
        }
        let needed = self.limit_for((*connections_max).into());
        // One address leaves some to others.
        let of_address_max = &mut limits.connections_of_address_max;
        let most_of_address = (*of_address_max).min((most as u32).div_ceil(2));
        tracing::warn!(
            connections_max,
            connections_of_address_max = *of_address_max,
            descriptors,
            "connections are limited to {most}, those of one address to {most_of_address}: \
             `ulimit -n {needed}` allows all of connections_max, or set it to {most}"
        );
        *connections_max = most as u32;
        *of_address_max = most_of_address;
    }
}

/// Listens on `address`. A target that was killed leaves its port taken for a
/// moment, while the kernel takes its rings apart; the next one waits for it.
fn listen(address: SocketAddr) -> io::Result<BoundListener> {
    let give_up = Instant::now() + PORT_PATIENCE;
    loop {
        match BoundListener::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < give_up => {
                thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

/// A panic is one more way to fail.
fn caught_io<T>(f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    caught(f).unwrap_or_else(|why| Err(io::Error::other(why)))
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
    /// Starts its thread, which says in `ready` that it is set up and in
    /// `report` how it ended.
    fn spawn(
        self,
        ready: Sender<ReactorReady>,
        may_go: Receiver<()>,
        report: Sender<io::Result<Report>>,
    ) -> io::Result<()> {
        let thread = thread::Builder::new().name(format!("weft-{}", self.number));
        thread.spawn(move || {
            let result = caught_io(|| self.run(&ready, &may_go));
            if let Err(error) = &result {
                let same = error.raw_os_error().map(io::Error::from_raw_os_error);
                let told = || io::Error::new(error.kind(), error.to_string());
                let _ = ready.send(Err(same.unwrap_or_else(told)));
            }
            let _ = report.send(result);
        })?;
        Ok(())
    }

    /// The life of its thread. Nothing is served before all are set up.
    fn run(self, ready: &Sender<ReactorReady>, may_go: &Receiver<()>) -> io::Result<Report> {
        reactor::pin_to_cpu(self.cpu)?;
        let pool = match self.driver.registered_min_bytes {
            Some(_) => mem::Pool::in_small_pages(self.budget)?,
            None => mem::Pool::new(self.budget)?,
        };
        let mut driver = reactor::open(self.choice, &self.driver, pool)?;
        let (mailbox, mail) = reactor::mailbox(driver.waker());
        // Files can be asked about as soon as the server has started.
        self.shared.nfs.begin(driver.now());
        let _ = ready.send(Ok((mailbox, driver.name())));
        if may_go.recv().is_err() {
            return Ok(Report::default());
        }
        let (number, cpu, shared) = (self.number, self.cpu, self.shared.clone());
        // That of a reactor that fails stays for ever, whatever else panics: see
        // [`Shard::failed`].
        let mut shard = None;
        let ended = caught_io(|| {
            let new = Shard::new(number, self.shared, self.acceptor, &mut driver)?;
            let shard = shard.insert(ManuallyDrop::new(new));
            reactor::run(&mut driver, &mail, &mut **shard, &self.run)?;
            Ok(shard.report(&driver))
        });
        match ended {
            Ok(report) => {
                drop(shard.map(ManuallyDrop::into_inner));
                Ok(report)
            }
            Err(error) => {
                let why = error.to_string();
                match &mut shard {
                    Some(shard) => shard.failed(&why),
                    None => {
                        let volumes = shared.volumes().len();
                        shared.engine.reactor_failed(number, &why, volumes);
                    }
                }
                let what = format!("reactor {number} on CPU {cpu} has failed: {why}");
                Err(io::Error::new(error.kind(), what))
            }
        }
    }
}

/// What serves NFS. Its file systems are opened, as far as they are not.
fn nfs_of(
    config: &Config,
    state: &mut ServedState,
    opened: OpenedStore,
    (engine, mailboxes): (&Arc<engine::Shared>, &Arc<Mailboxes>),
) -> Result<Service, StartError> {
    let OpenedStore {
        file_systems,
        records,
        wall,
        ..
    } = opened;
    let now = wall.time(0);
    for fs in file_systems {
        state.add_file_system(fs).map_err(StartError::Config)?;
    }
    for spec in &config.file_systems {
        if state.file_system(&spec.name).is_none() {
            let fs = files::open(spec, now).map_err(StartError::FileSystem)?;
            state.add_file_system(fs).map_err(StartError::Config)?;
        }
    }
    set_quotas(&state.file_systems, (&[], &config.quotas), now).map_err(StartError::Config)?;
    state.quotas.clone_from(&config.quotas);
    let exports = state.exports_of(&config.exports, now);
    let exports = exports.map_err(StartError::Config)?;
    state.exports.clone_from(&config.exports);
    let records = match (records, &config.nfs.state) {
        (None, Some(folder)) => {
            // What state ids of other servers begin with is none of ours.
            let records = Records::in_folder(folder, now.seconds as u32);
            Some(records.map_err(|error| StartError::NfsState(folder.clone(), error))?)
        }
        (records, _) => records,
    };
    let tls = config.nfs.tls.as_ref();
    let tls = tls.map(|files| RenewedTls::read(files, ServerSide::for_rpc));
    let tls = tls.transpose().map_err(StartError::NfsTls)?;
    let service = Service::new(
        (engine.clone(), mailboxes.clone()),
        (handshake_timeout(&config.limits), tls),
        &config.nfs,
        exports,
        records,
        wall,
    );
    service.set_ports(state.program_ports());
    set_kerberos(&service, config.nfs.kerberos.as_ref()).map_err(StartError::Kerberos)?;
    Ok(service)
}

/// Puts together what the reactors share, without any thread but perhaps the
/// blocking worker's. What is `opened` need not be opened, `addresses` are where the listeners of the
/// configuration are bound; `bind` makes the listeners that are added later.
/// Before the first reactor runs, `Shared::mailboxes` must be set.
///
/// # Errors
/// What of the configuration cannot be.
pub fn assemble(
    config: &Config,
    opened: impl Into<OpenedStore>,
    addresses: &[SocketAddr],
    worker: BlockingWorker,
    bind: Bind,
) -> Result<Arc<Shared>, StartError> {
    let listeners = config.listeners.iter().cloned().zip(addresses);
    let listeners = listeners.map(|(spec, &address)| ListenerSpec { address, ..spec });
    let mut opened: OpenedStore = opened.into();
    let mut state = ServedState::new(listeners.collect());
    state
        .snapshot_schedules
        .clone_from(&config.snapshot_schedules);
    for volume in std::mem::take(&mut opened.volumes) {
        state.add_volume(volume).map_err(StartError::Config)?;
    }
    let limits = engine::ConnectionLimits {
        connections_max: config.limits.connections_max,
        connections_of_address_max: config.limits.connections_of_address_max,
        tls_handshakes_max: config.limits.tls_handshakes_max,
        turn_units_max: config.limits.turn_units_max,
    };
    let mailboxes = Arc::new(Mailboxes::default());
    let reactors = config.cpus.len();
    let engine = Arc::new(engine::Shared::new(limits, reactors, mailboxes.clone()));
    engine.rate_limits.set(config.rate_limits.clone(), 0);
    let policies = config.connection_policies.clone();
    engine.connection_policies.set(policies);
    let nothing = store::Spec {
        read_only: true,
        ..store::Spec::new("", store::Kind::NULL, 512, 512)
    };
    let nothing = store::open(&nothing).expect("a null volume needs nothing");
    let nvme = nvme_of(config, &state, (&engine, &mailboxes), nothing.clone());
    let iscsi = iscsi_of(config, &state, (&engine, &mailboxes), (&nvme, nothing));
    let nfs = nfs_of(config, &mut state, opened, (&engine, &mailboxes))?;
    let nbd = nbd_of(config, (&engine, &mailboxes))?;
    let hears: [Weak<dyn Hears>; 2] = [Arc::downgrade(&nvme) as _, Arc::downgrade(&iscsi) as _];
    engine.set_hearing(hears.into());
    let shared = Arc::new(Shared {
        limits: config.limits,
        engine,
        nvme,
        iscsi,
        nfs: Arc::new(nfs),
        nbd: Arc::new(nbd),
        mailboxes,
        state: Mutex::new(state),
        changes: Mutex::default(),
        bind,
    });
    let sets = Arc::downgrade(&shared);
    shared
        .iscsi
        .on_set_states(Box::new(move |target, lun, states, then| {
            if let Some(shared) = sets.upgrade() {
                shared.set_states(target, lun, states, then);
            }
        }));
    insert_all(&shared, config).map_err(StartError::Config)?;
    if worker == BlockingWorker::Thread {
        let started = shared.engine.start_blocking_worker();
        started.map_err(|error| StartError::Reactor(config.cpus[0], error))?;
    }
    Ok(shared)
}

/// Puts in what is to be served of volumes.
fn insert_all(shared: &Shared, config: &Config) -> Result<(), ChangeError> {
    for spec in &config.volumes {
        shared.take_files(spec)?;
    }
    for spec in &config.subsystems {
        // No host is connected yet.
        let _ = shared.insert_subsystem(&mut shared.registry(), spec)?;
    }
    for spec in &config.iscsi_targets {
        // Likewise.
        let _ = shared.insert_target(spec)?;
    }
    for spec in &config.nbd_exports {
        shared.insert_nbd_export(spec)?;
    }
    Ok(())
}

pub(crate) fn handshake_timeout(limits: &Limits) -> Nanos {
    u64::from(limits.handshake_timeout_ms) * 1_000_000
}

/// What serves NVMe: no subsystem yet.
fn nvme_of(
    config: &Config,
    state: &ServedState,
    (engine, mailboxes): (&Arc<engine::Shared>, &Arc<Mailboxes>),
    nothing: Arc<dyn Volume>,
) -> Arc<serve_nvme::Service> {
    let mut registry = Registry::new(RegistryConfig {
        subsystems: Vec::new(),
        listeners: state.listener_list(),
        referrals: config.referrals.clone(),
    });
    registry.set_psk_compat(config.psk_compat);
    let places = serve_nvme::Subsystems::new(nothing, state.listener_numbers());
    let (engine, post) = (engine.clone(), mailboxes.clone());
    Arc::new(serve_nvme::Service::new(engine, post, registry, places))
}

/// What serves NBD: no export yet.
fn nbd_of(
    config: &Config,
    (engine, mailboxes): (&Arc<engine::Shared>, &Arc<Mailboxes>),
) -> Result<serve_nbd::NbdService, StartError> {
    let tls = config.nbd_tls.as_ref().map(serve_nbd::NbdSecrets::read);
    let tls = tls.transpose().map_err(StartError::NbdTls)?;
    let settings = serve_nbd::NbdSettings {
        in_flight_max: config.limits.queue_entries_max,
        handshake_timeout: handshake_timeout(&config.limits),
        tls: Default::default(),
    };
    let (engine, post) = (engine.clone(), mailboxes.clone());
    Ok(serve_nbd::NbdService::new(engine, post, settings, tls))
}

/// What serves iSCSI: no target yet. Targets may share the states of subsystems.
fn iscsi_of(
    config: &Config,
    state: &ServedState,
    (engine, mailboxes): (&Arc<engine::Shared>, &Arc<Mailboxes>),
    (nvme, nothing): (&Arc<serve_nvme::Service>, Arc<dyn Volume>),
) -> Arc<serve_iscsi::Service> {
    let settings = iscsi::target::TargetSettings {
        handshake_timeout: handshake_timeout(&config.limits),
    };
    let registry = iscsi::Registry::new(iscsi::RegistryConfig {
        targets: Vec::new(),
        discovery: config.iscsi_discovery.clone(),
        portals: state.portals(),
    });
    let places = serve_iscsi::Targets::new(nothing, config.limits.scsi_io_bytes_max);
    let subsystems = nvme.clone();
    let states_of: serve_iscsi::StatesOf = Box::new(move |nqn, take| {
        let registry = subsystems.registry();
        match registry.subsystem(nqn) {
            Some(subsystem) => take(&subsystem.ana_groups),
            None => take(&[]),
        }
    });
    let iscsi = Arc::new(serve_iscsi::Service::new(
        engine.clone(),
        mailboxes.clone(),
        settings,
        (registry, places),
        states_of,
    ));
    let shares = Arc::downgrade(&iscsi);
    nvme.set_sharing(Box::new(move |subsystem: &Subsystem, tell| {
        if let Some(iscsi) = shares.upgrade() {
            iscsi.subsystem_changed(&subsystem.nqn, &subsystem.ana_groups, tell);
        }
    }));
    iscsi
}

impl Running {
    /// The addresses listened on, oldest listener first, with the port that
    /// the kernel chose where that was left to it.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let state = self.shared.state();
        let listeners = state.listeners.values();
        listeners.map(|listener| listener.spec.address).collect()
    }

    /// What its reactors share.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// What it was started with, but for what is [`Running::missing`].
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What is not served although the configuration names it, and why: after
    /// a [`Start::Degraded`].
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// The driver in use: "io_uring" or "epoll".
    pub fn backend(&self) -> &'static str {
        self.backend
    }

    /// The volumes, oldest first.
    pub fn volumes(&self) -> Vec<Arc<dyn Volume>> {
        self.shared.volumes()
    }

    /// The file systems, oldest first.
    pub fn file_systems(&self) -> Vec<Arc<dyn FileSystem>> {
        self.shared.state().file_systems.clone()
    }

    /// Changes what is served, while hosts use it. Returns when the change is
    /// true for all of them; blocks meanwhile.
    ///
    /// # Errors
    /// Why not, and what to do about it. Nothing has changed then, except
    /// where the error says so.
    pub fn change(&self, change: Change) -> Result<(), ChangeError> {
        let (tell, told) = channel();
        let done = move |_: &Arc<Shared>, outcome| {
            // The caller may have given up waiting.
            let _ = tell.send(outcome);
        };
        self.shared.change(change, Box::new(done));
        let give_up = Instant::now() + CHANGE_TIMEOUT;
        loop {
            match told.recv_timeout(STOPPING_LOOK_EVERY) {
                Ok(outcome) => return outcome,
                // A reactor that ends does not answer.
                Err(_) if self.shared.engine.is_stopping() => return Err(ChangeError::Stopping),
                Err(RecvTimeoutError::Timeout) if Instant::now() < give_up => {}
                Err(_) => return Err(ChangeError::Unfinished),
            }
        }
    }

    /// Ends it in order: no new connections, open ones closed, volumes synced.
    /// Returns at once; [`Running::wait`] tells when it is over.
    pub fn stop(&self) {
        self.shared.engine.stop();
    }

    /// Waits until every reactor has ended, and a little for what threads beside them are
    /// still at, at most `timeout`: what they did,
    /// `None` if some still run. An error is why one of them, or the blocking worker, has
    /// failed, each told once; the others stop, and may be waited for again.
    pub fn wait(&self, timeout: Duration) -> io::Result<Option<Report>> {
        let deadline = Instant::now() + timeout;
        let mut reports = locked(&self.reports);
        while reports.ended.0 < self.shared.engine.load.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            match reports.told.recv_timeout(left) {
                Ok(Ok(report)) => {
                    reports.ended.0 += 1;
                    reports.ended.1 += report;
                }
                Ok(Err(error)) => {
                    reports.ended.0 += 1;
                    self.stop();
                    return Err(error);
                }
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => unreachable!("each reactor reports"),
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        self.shared
            .engine
            .wait_for_blocking_work(left.min(BLOCKING_WORK_PATIENCE));
        let failure = locked(&self.shared.engine.failures).pop();
        if let Some(failure) = failure {
            return Err(io::Error::other(failure));
        }
        Ok(Some(self.with_others(reports.ended.1)))
    }

    /// What RPC-with-TLS is spoken by, if it is.
    pub fn nfs_tls(&self) -> Option<&Arc<RenewedTls>> {
        self.shared.nfs.tls.as_ref()
    }

    /// What NBD speaks TLS by, if it does.
    pub fn nbd_tls(&self) -> Option<&serve_nbd::NbdSecrets> {
        self.shared.nbd.tls.as_ref()
    }

    /// The clients of NFSv4, oldest first.
    pub fn nfs_clients(&self) -> Vec<ClientInfo> {
        let (send, receive) = channel();
        self.shared.nfs.send(0, OwnMail::List(send));
        receive.recv_timeout(REPORT_TIMEOUT).unwrap_or_default()
    }

    /// What each reactor has done so far, by its number; `None` where it does not answer.
    pub fn reports(&self) -> Vec<Option<Report>> {
        let ask = |shard| {
            let (send, receive) = channel();
            self.shared.send(shard, ServerMail::Report(send));
            receive
        };
        let asked: Vec<_> = (0..self.shared.engine.load.len()).map(ask).collect();
        let give_up = Instant::now() + REPORT_TIMEOUT;
        let told = asked.iter().map(|told| {
            let left = give_up.saturating_duration_since(Instant::now());
            told.recv_timeout(left).ok()
        });
        told.collect()
    }

    /// What it has done so far; a reactor that has ended does not count.
    pub fn report(&self) -> Report {
        let reports = self.reports();
        let mut total = Report {
            silent: reports.iter().filter(|report| report.is_none()).count() as u64,
            ..Report::default()
        };
        for report in reports.into_iter().flatten() {
            total += report;
        }
        self.with_others(total)
    }

    fn with_others(&self, mut total: Report) -> Report {
        total.unsynced = self.shared.engine.unsynced.load(Ordering::Relaxed);
        self.shared.nfs.note_refused();
        total.refusals = self.shared.engine.refusals.total();
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The thread of a reactor may be late.
    #[test]
    fn server_that_has_just_started_answers_for_its_files() {
        for _ in 0..32 {
            let running = start(Config::default()).expect("nothing is served");
            assert!(running.metrics().volumes.is_empty());
            running.stop();
            running.wait(Duration::from_secs(20)).expect("in order");
        }
    }

    /// Opening waits for what is below a volume; no other change waits for that.
    #[test]
    fn volume_is_opened_while_another_change_is_made_and_added_after_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk");
        let kind = store::Kind::file(path.clone());
        let spec = store::Spec::new("a", kind, 1 << 20, 512);
        let running = start(Config::default()).expect("nothing is served");
        let shared = running.shared.clone();
        let made = locked(&shared.changes);
        thread::scope(|scope| {
            let added = scope.spawn(|| running.change(Change::AddVolume(spec.clone())));
            let give_up = Instant::now() + Duration::from_secs(20);
            while !path.exists() && Instant::now() < give_up {
                thread::sleep(Duration::from_millis(1));
            }
            let is_open = path.exists();
            // Its name is taken meanwhile.
            let again = is_open.then(|| running.change(Change::AddVolume(spec.clone())));
            drop(made);
            added.join().expect("no panic").expect("it is there");
            let told = again.expect("opened under the lock").expect_err("one name");
            assert!(matches!(told, ChangeError::Exists(..)), "{told}");
        });
        running.stop();
        running.wait(Duration::from_secs(20)).expect("in order");
    }

    #[test]
    fn limit_of_descriptors_that_is_told_leaves_all_connections_their_own() {
        for directories in 0..4 {
            for connections in [1, 600, 10_000, 132_096, 1 << 20] {
                let others = Descriptors {
                    volumes: 7,
                    directories,
                };
                let limit = others.limit_for(connections);
                assert!(others.left(limit) >= connections);
                assert!(others.left(limit - 1) < connections, "no more than that");
                let of_directories = (directories * Dir::descriptors_max(limit)).min(limit / 2);
                assert!(connections + of_directories + 512 + 2 * 7 <= limit);
            }
        }
    }
}
