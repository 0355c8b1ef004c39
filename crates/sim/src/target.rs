//! The target under test: the real shards on simulated drivers.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use doubles::gss::FakeAcceptor;
use mem::Pool;
use nvmf::rdma::CrcPolicy;
use nvmf::transport::Transports;
use reactor::{
    BoundListener, Completion, DiskFile, Driver, Handler, Nanos, Receiver, Trimmer, Wait,
};
use server::parts::{Acceptor, BlockingWorker, OpenedStore, Placer, ServerMail, Shard, assemble};
use server::{Config, ListenerSpec, NamespaceSpec, NbdExportSpec, RdmaSpec};
use store::reservation::{Registrant, ScsiNexus};
use store::snapshot::SnapshotMedium;
use store::{Latency, ScrubAction, ScrubStatus, Spec, State, Volume};
use uuid::Uuid;
use wire::nbd::NBD_PORT;

use crate::checker::Promise;
use crate::content::SECTOR_BYTES;
use crate::driver::SimDriver;
use crate::made::Made;
use crate::nfs::{self, Nfs};
use crate::plan::{Lies, Plan, VolumePlan};
use crate::snapshots::SimSnapshots;
use crate::world::{BLOCKING_WORK, MS, SharedWorld, WorldEvent};

/// NQN of a subsystem.
pub fn subnqn(subsystem: usize) -> String {
    format!("nqn.2026-01.io.weft:sim{subsystem}")
}

/// The namespace of a volume, which each subsystem calls something else.
pub fn nsid(subsystem: usize, volume: usize) -> u32 {
    (subsystem as u32 & 1) << 9 | u32::from(lun(volume + 1))
}

/// The volume that a host calls so.
pub fn volume_of(nsid: u32) -> usize {
    (nsid & 7) as usize - 1
}

/// The logical unit of a volume. Three bits have to be flipped before one is another:
/// each bit of the number stands there three times.
pub fn lun(volume: usize) -> u16 {
    assert!(volume < 8, "three bits");
    volume as u16 * 0o111
}

/// Name of the iSCSI target.
pub fn target_name() -> String {
    "iqn.2026-01.io.weft:sim".into()
}

/// Where initiators find it.
pub fn portal() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 3260))
}

/// An address that another program takes.
pub fn taken_address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 4600))
}

/// Where NFS clients find it.
pub fn nfs_portal() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 2049))
}

/// Where NBD clients find it.
pub fn nbd_portal() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], NBD_PORT))
}

/// Name of an initiator.
pub fn initiator_name(host: usize) -> String {
    format!("iqn.2026-01.io.weft:sim-initiator{host}")
}

/// The ISID of its session.
pub fn isid(host: usize) -> [u8; 6] {
    [0x80, 0, 0, host as u8, 0, 1]
}

/// What a Reservation Report calls a host.
pub fn host_identifier(host: usize, speaks_iscsi: bool) -> [u8; 16] {
    if !speaks_iscsi {
        return [host as u8 + 1; 16];
    }
    let [a, b, c, d, e, f] = isid(host);
    let port = format!("{a:02x}{b:02x}{c:02x}{d:02x}{e:02x}{f:02x}");
    let nexus = ScsiNexus {
        initiator: format!("{},i,0x{port}", initiator_name(host)),
        target: target_name(),
        port: 1,
    };
    Registrant::ScsiNexus(nexus).host_identifier()
}

/// What one operation may cost here, where tables are small: the largest copy or sum of
/// what is read and written, and its command besides. Memory that it is first to use
/// brings its turn to the share at once, so that all of this comes on top.
const OPERATION_UNITS_MAX: u64 = (1 << 10) + 64;

/// A volume as it outlives the target's process.
pub struct Medium {
    /// What it is to be.
    pub plan: VolumePlan,
    /// Its size now.
    pub blocks: u64,
    /// It is to be cut off, at a time that is not known.
    pub is_odd: bool,
    /// The descriptors of its files, and those files' numbers.
    files: Vec<(Arc<DiskFile>, usize)>,
    /// The same of the file with its checksums, where it has any.
    sums: Option<(Arc<DiskFile>, usize)>,
    /// What the volume remembers beside its data; every change is durable.
    state: KeptState,
    /// The same of its files, where it is made of those.
    marks: Vec<KeptState>,
    /// The log of a mirror.
    log: KeptState,
    /// Its keys, where it is encrypted, and how often they were read.
    keys: (KeptState, Arc<AtomicU64>),
    /// Where its snapshots lie.
    snapshots: SimSnapshots,
}

/// Bytes of the checksums of a block in their file.
const SUMS_BYTES: usize = 16;

/// Where those of so many blocks end.
fn sums_end(blocks: u64) -> usize {
    4096 + blocks as usize * SUMS_BYTES
}

type KeptState = Arc<Mutex<Option<Vec<u8>>>>;

/// Where a simulated volume's state lies.
struct StateMedium(KeptState);

impl store::Medium for StateMedium {
    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.lock().expect("one thread").clone())
    }

    fn save(&self, bytes: &[u8]) -> io::Result<()> {
        *self.0.lock().expect("one thread") = Some(bytes.to_vec());
        Ok(())
    }

    fn path(&self) -> &Path {
        Path::new("simulated")
    }
}

/// The state of the volume with a UUID.
fn state_in(kept: &KeptState, uuid: Uuid) -> State {
    let medium = Box::new(StateMedium(kept.clone()));
    State::open(medium, uuid).expect("it was written whole")
}

/// One reactor.
struct Reactor {
    driver: SimDriver,
    /// `None` when its loop has ended.
    mail: Option<Receiver<ServerMail>>,
    shard: Shard,
    /// A turn is scheduled for when it looks again, whatever happens.
    wakes_at: Nanos,
    trimmer: Trimmer,
    /// It panics after so many events of the next turn that has any.
    panics_after: Option<usize>,
}

impl Reactor {
    /// Handles what has come; [`Panicked`] where it was to panic.
    fn handle(
        &mut self,
        completions: Vec<Completion>,
        letters: Vec<ServerMail>,
    ) -> Result<(), Panicked> {
        let Reactor { driver, shard, .. } = self;
        let mut left = match completions.is_empty() && letters.is_empty() {
            true => None,
            false => self.panics_after.take(),
        };
        let handled = catch_unwind(AssertUnwindSafe(move || {
            for completion in completions {
                count(&mut left);
                shard.on_completion(driver, completion);
            }
            for letter in letters {
                count(&mut left);
                shard.on_mail(driver, letter);
            }
            let now = driver.now();
            let deadline = Handler::<SimDriver, ServerMail>::deadline(shard);
            if deadline.is_some_and(|at| at <= now) {
                shard.on_deadline(driver, now);
            }
            // Fewer events came than it was to take.
            left.iter_mut().for_each(|left| *left = 0);
            count(&mut left);
            Handler::<SimDriver, ServerMail>::on_turn(shard, driver);
        }));
        match handled {
            Err(panic) if panic.is::<Panicked>() => Err(Panicked),
            Err(panic) => resume_unwind(panic),
            Ok(()) => Ok(()),
        }
    }
}

/// A reactor has panicked, as it was to.
struct Panicked;

/// One event more: the reactor panics where it was to take none. Unwinds as a panic
/// does, and says nothing.
fn count(left: &mut Option<usize>) {
    match left {
        Some(0) => resume_unwind(Box::new(Panicked)),
        Some(left) => *left -= 1,
        None => {}
    }
}

/// A target that runs.
pub struct SimTarget {
    /// What its reactors share.
    pub shared: Arc<server::parts::Shared>,
    reactors: Vec<Reactor>,
}

/// A listener of NVMe, as the document has it that all begins with.
pub fn listener(plan: &Plan, number: usize) -> ListenerSpec {
    let requires_tls = plan.tls_listener == Some(number);
    ListenerSpec {
        requires_tls,
        rdma: rdma(requires_tls),
        ..address(number).into()
    }
}

/// The listener of iSCSI.
pub fn iscsi_listener() -> ListenerSpec {
    ListenerSpec {
        rdma: rdma(false),
        ..ListenerSpec::iscsi(portal())
    }
}

/// The listener of NFS.
pub fn nfs_listener() -> ListenerSpec {
    ListenerSpec {
        rdma: rdma(false),
        ..ListenerSpec::nfs(nfs_portal())
    }
}

/// The export of volume `n`.
pub fn nbd_export(n: usize) -> NbdExportSpec {
    NbdExportSpec {
        name: volume_name(n),
        volume: volume_name(n),
        description: String::new(),
        is_read_only: false,
        clients: None,
    }
}

/// Hosts connect by RDMA, too, where they need no TLS.
pub fn rdma(requires_tls: bool) -> RdmaSpec {
    RdmaSpec {
        transports: match requires_tls {
            true => Transports::Tcp,
            false => Transports::Both,
        },
        crc: CrcPolicy::Off,
        ..RdmaSpec::default()
    }
}

/// Where hosts find it.
pub fn address(listener: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 4420 + listener as u16))
}

/// The UUID of volume `n`, which names it at both ends: serial numbers come from one of them.
pub fn uuid(n: usize) -> Uuid {
    let n = n as u64 + 1;
    Uuid::from_u64_pair(n, n)
}

/// Name of volume `n`.
pub fn volume_name(n: usize) -> String {
    format!("volume{n}")
}

impl Medium {
    /// A new volume of zeros.
    pub fn new(world: &SharedWorld, plan: VolumePlan) -> Medium {
        let bytes = plan.made.file_blocks(plan.blocks) * u64::from(plan.block_bytes);
        let count = match plan.lies {
            Lies::File => plan.made.files(),
            Lies::Memory => 0,
        };
        let file = |bytes: u64, block_bytes: usize| {
            let flags = rustix::fs::MemfdFlags::CLOEXEC;
            let fd = rustix::fs::memfd_create("weft-sim", flags).expect("descriptors are left");
            rustix::fs::ftruncate(&fd, bytes).expect("a memfd grows");
            let disk = &mut world.borrow_mut().disk;
            let number = disk.add_file(fd.as_raw_fd(), bytes as usize, block_bytes);
            (Arc::new(DiskFile::from(fd)), number)
        };
        let files = (0..count).map(|_| file(bytes, plan.block_bytes as usize));
        let has_sums = plan.is_checksummed && count > 0;
        let sums = has_sums.then(|| file(store::sums_file_bytes(plan.blocks), SUMS_BYTES));
        Medium {
            plan,
            blocks: plan.blocks,
            is_odd: false,
            files: files.collect(),
            sums,
            state: Arc::default(),
            marks: (0..count).map(|_| Arc::default()).collect(),
            log: Arc::default(),
            keys: Default::default(),
            snapshots: SimSnapshots::default(),
        }
    }

    /// The blocks that its file has room for.
    pub fn file_blocks(&self) -> Option<u64> {
        let (fd, _) = self.files.first()?;
        let bytes = rustix::fs::fstat(fd).expect("a memfd has a size").st_size as u64;
        let blocks = bytes / u64::from(self.plan.block_bytes);
        Some(self.plan.made.blocks(blocks))
    }

    /// Its file, if it has one, has so many blocks from now on.
    pub fn set_file_blocks(&self, world: &SharedWorld, blocks: u64) {
        if let Some(file) = self.file() {
            let bytes = blocks * u64::from(self.plan.block_bytes);
            world.borrow_mut().disk.set_len(file, bytes as usize);
        }
        if let Some((_, file)) = &self.sums {
            let disk = &mut world.borrow_mut().disk;
            disk.set_len(*file, sums_end(blocks));
            disk.set_len(*file, store::sums_file_bytes(blocks) as usize);
        }
    }

    /// A bit of a block, or of its sums, changes on its disk: the block that may be lost by that.
    /// Of a mirror that is none: it is one on a leg behind the first, which has all.
    pub fn flip(&self, world: &SharedWorld) -> Option<u64> {
        let world = &mut *world.borrow_mut();
        let (_, sums) = self.sums.as_ref()?;
        let random = &mut world.random;
        let leg = match self.plan.made {
            Made::File => 0,
            Made::Mirror(legs) => 1 + random.below(legs - 1) as usize,
            _ => return None,
        };
        let block = random.below(self.blocks);
        let bits = 1 << random.below(8);
        let (file, at) = match leg > 0 || random.percent(50) {
            true => {
                let block_bytes = u64::from(self.plan.block_bytes);
                let at = block * block_bytes + random.below(block_bytes);
                (self.files().nth(leg)?, at as usize)
            }
            false => {
                let at = sums_end(block) + random.below(SUMS_BYTES as u64) as usize;
                (*sums, at)
            }
        };
        world.disk.flip(file, at, bits);
        (leg == 0).then_some(block)
    }

    /// The number of the file with its checksums.
    pub fn sums_file(&self) -> Option<usize> {
        self.sums.as_ref().map(|(_, number)| *number)
    }

    /// The number of its first file.
    pub fn file(&self) -> Option<usize> {
        self.files().next()
    }

    /// The numbers of its files.
    pub fn files(&self) -> impl Iterator<Item = usize> {
        self.files.iter().map(|(_, number)| *number)
    }

    /// What the target says it promises.
    pub fn promise(&self, volume: &dyn Volume) -> Promise {
        let info = volume.info();
        Promise {
            blocks: self.blocks,
            block_sectors: self.plan.block_bytes as usize / SECTOR_BYTES,
            atomic_blocks: u64::from(info.atomic_bytes / info.block_bytes),
        }
    }

    /// What it is to a document.
    pub fn spec(&self, n: usize) -> Spec {
        let kind = match self.plan.lies {
            Lies::Memory => store::Kind::RAM,
            Lies::File => store::Kind::file(volume_name(n)),
        };
        let size_bytes = self.blocks * u64::from(self.plan.block_bytes);
        Spec {
            uuid: Some(uuid(n)),
            ..Spec::new(volume_name(n), kind, size_bytes, self.plan.block_bytes)
        }
    }

    fn open(&self, world: &SharedWorld, n: usize) -> Arc<dyn Volume> {
        let spec = self.spec(n);
        let mut volume = self.open_plain(world, &spec, n);
        if self.plan.is_checksummed {
            if let Some(file) = self.sums_file() {
                world.borrow_mut().disk.open(file);
            }
            let file = self.sums.as_ref().map(|(file, _)| file.clone());
            volume = store::checksummed(volume, file);
        }
        if !self.plan.is_encrypted {
            return volume;
        }
        let (keys, count) = &self.keys;
        let number = count.fetch_add(1, Ordering::Relaxed);
        let medium = || Some(Box::new(KeysMedium(keys.clone())) as Box<dyn store::KeyMedium>);
        if number == 0 {
            // Of a simulated file nothing tells that it is new.
            let blank = Spec {
                kind: store::Kind::NULL,
                ..spec
            };
            let blank = store::open(&blank).expect("it needs nothing");
            let _made = store::encrypted(blank, &encryption(0), medium());
        }
        let opened = store::encrypted(volume, &encryption(number), medium());
        opened.expect("one of two keys opens it")
    }

    fn open_plain(&self, world: &SharedWorld, spec: &Spec, n: usize) -> Arc<dyn Volume> {
        if self.plan.lies == Lies::Memory {
            return store::open(spec).expect("memory is left");
        }
        for number in self.files() {
            world.borrow_mut().disk.open(number);
        }
        let state = || state_in(&self.state, uuid(n));
        if self.plan.made == Made::File {
            let snapshots = Some(Box::new(self.snapshots.clone()) as Box<dyn SnapshotMedium>);
            let opened = store::over_file(spec, self.files[0].0.clone(), state(), snapshots);
            return opened.expect("a simulated file opens");
        }
        let files = (0..self.files.len()).map(|file| self.open_file(spec, n, file));
        let mut below: Vec<Arc<dyn Volume>> = files.collect();
        if let Made::Slices(count) = self.plan.made {
            below = self.slices_of(&below[0], count);
        }
        let names: Vec<String> = below.iter().map(|s| s.info().name.clone()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let latency = Latency {
            fixed_us: 5,
            mean_us: 50,
            tail_us: 5_000,
        };
        let kind = match self.plan.made {
            Made::File => unreachable!("opened above"),
            Made::Slices(_) => store::Kind::concat(&names),
            Made::Stripe(_) => store::Kind::stripe(&names, self.plan.block_bytes),
            Made::Mirror(_) => store::Kind::mirror(&names),
            Made::Delayed => store::Kind::delay(names[0], latency, latency),
        };
        let whole = Spec {
            kind,
            ..spec.clone()
        };
        let opened = match self.plan.made {
            Made::Mirror(_) => {
                let log = Box::new(StateMedium(self.log.clone()));
                store::over_legs(&whole, below, state(), log)
            }
            _ => store::over_volumes(&whole, below, state()),
        };
        opened.expect("what lies in simulated files opens")
    }

    /// One of the files that it is made of.
    fn open_file(&self, spec: &Spec, n: usize, file: usize) -> Arc<dyn Volume> {
        let own = Uuid::from_u64_pair(n as u64 + 1, 100 + file as u64);
        let blocks = self.plan.made.file_blocks(self.blocks);
        let spec = Spec {
            name: format!("{}-file{file}", spec.name),
            size_bytes: blocks * u64::from(self.plan.block_bytes),
            uuid: Some(own),
            ..spec.clone()
        };
        let state = state_in(&self.marks[file], own);
        let opened = store::over_file(&spec, self.files[file].0.clone(), state, None);
        opened.expect("a simulated file opens")
    }

    /// Slices of its file, as many as planned, one behind the other.
    fn slices_of(&self, file: &Arc<dyn Volume>, count: u64) -> Vec<Arc<dyn Volume>> {
        let block_bytes = self.plan.block_bytes;
        let bound = |n| n * self.blocks / count * u64::from(block_bytes);
        let slices = (0..count).map(|n| {
            let kind = store::Kind::slice(&file.info().name, bound(n));
            let name = format!("{}-{n}", file.info().name);
            let spec = Spec::new(name, kind, bound(n + 1) - bound(n), block_bytes);
            store::open_over(&spec, vec![file.clone()]).expect("they lie beside each other")
        });
        slices.collect()
    }
}

/// Where the keys of a simulated volume lie.
struct KeysMedium(KeptState);

impl store::KeyMedium for KeysMedium {
    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.lock().expect("one thread").clone())
    }

    fn create(&self, bytes: &[u8]) -> io::Result<()> {
        *self.0.lock().expect("one thread") = Some(bytes.to_vec());
        Ok(())
    }

    fn write_over(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut kept = self.0.lock().expect("one thread");
        let kept = kept.as_mut().expect("they were made");
        kept[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn path(&self) -> &Path {
        Path::new("simulated")
    }
}

/// By the key of a number, and that of the number before.
fn encryption(number: u64) -> store::EncryptionSettings {
    let key = |number: u64| {
        let digits = format!("{number:064x}");
        let key = store::WrappingKey::of_key_file(&auth::Secret::new(digits.into_bytes()));
        key.map_err(|why| why.to_string())
    };
    store::EncryptionSettings {
        key: key(number),
        former: number.checked_sub(1).map(key),
    }
}

/// The namespace of a volume in a subsystem.
pub fn namespace(subsystem: usize, volume: usize) -> NamespaceSpec {
    NamespaceSpec {
        nsid: nsid(subsystem, volume),
        volume: volume_name(volume),
        ..NamespaceSpec::default()
    }
}

impl SimTarget {
    /// Starts a target over `media` that serves a document; its reactors have the drivers
    /// from 0 on.
    pub fn start(
        world: &SharedWorld,
        (plan, config): (&Plan, &Config),
        (media, nfs): (&[Medium], Option<&mut Nfs>),
        pools: &[Pool],
    ) -> SimTarget {
        let volumes = media.iter().enumerate().map(|(n, m)| m.open(world, n));
        let mut opened = OpenedStore::from(volumes.collect::<Vec<_>>());
        let is_medium = |spec: &&Spec| (0..media.len()).any(|n| spec.name == volume_name(n));
        let others = config.volumes.iter().filter(|spec| !is_medium(spec));
        for spec in others {
            let volume = opened
                .open_volume(spec, config.start)
                .expect("memory is left");
            opened.volumes.push(volume);
        }
        let addresses = config.listeners.iter().map(|spec| spec.address);
        let addresses: Vec<SocketAddr> = addresses.collect();
        let listeners = addresses.iter().copied().map(BoundListener::unbound);
        let listeners: Vec<_> = (0..).zip(listeners).collect();
        let asked = AtomicU64::new(0);
        let bind = Box::new(move |address| match address == taken_address() {
            // It is taken after it was looked at.
            true if asked.fetch_add(1, Ordering::Relaxed) % 2 == 1 => {
                Err(io::ErrorKind::AddrInUse.into())
            }
            _ => Ok(BoundListener::unbound(address)),
        });
        let now = world.borrow().now;
        if let Some(nfs) = nfs {
            opened.file_systems = vec![nfs.start(now)];
            opened.records = Some(nfs.records());
            opened.wall = Nfs::wall();
        }
        let shared = assemble(config, opened, &addresses, BlockingWorker::Inline, bind);
        let shared = shared.expect("the configuration is right");
        if plan.nfs.as_ref().is_some_and(|nfs| nfs.users.is_some()) {
            shared.nfs.set_acceptor(Some(Arc::new(FakeAcceptor)));
        }
        let cpus = (0..plan.shards).collect();
        let placer = Placer::new(config.placement, cpus, shared.engine.load.clone());
        let mut acceptor = Some(Acceptor { listeners, placer });
        let mut mailboxes = Vec::new();
        let mut parts = Vec::new();
        for (id, pool) in pools.iter().enumerate().take(plan.shards) {
            let driver = SimDriver::new(world, id, pool.clone());
            let (mailbox, mail) = reactor::mailbox(driver.waker());
            mailboxes.push(mailbox);
            parts.push((driver, mail));
        }
        assert!(shared.mailboxes.set(mailboxes).is_ok(), "set once");
        let reactors = parts
            .into_iter()
            .enumerate()
            .map(|(n, (mut driver, mail))| {
                let shard = Shard::new(n, shared.clone(), acceptor.take(), &mut driver);
                Reactor {
                    trimmer: Trimmer::new(driver.pool()),
                    driver,
                    mail: Some(mail),
                    shard: shard.expect("simulated listeners listen"),
                    wakes_at: Nanos::MAX,
                    panics_after: None,
                }
            });
        let reactors = reactors.collect();
        if plan.nfs.as_ref().is_some_and(|nfs| nfs.others > 0) {
            nfs::leave_states(shared.nfs.nfsd(), now);
        }
        SimTarget { reactors, shared }
    }

    /// One turn of a reactor.
    pub fn turn(&mut self, n: usize, world: &SharedWorld) {
        world.borrow_mut().begin_turn(n);
        let reactor = &mut self.reactors[n];
        let Some(mail) = &reactor.mail else { return };
        let (mut completions, mut letters) = (Vec::new(), Vec::new());
        (reactor.driver)
            .poll(Wait::Now, &mut completions)
            .expect("a simulated driver works");
        mail.take(&mut letters);
        let now = reactor.driver.now();
        let deadline = Handler::<SimDriver, ServerMail>::deadline(&reactor.shard);
        let has_work = !completions.is_empty()
            || !letters.is_empty()
            || deadline.is_some_and(|at| at <= now)
            || Handler::<SimDriver, ServerMail>::has_more(&reactor.shard);
        let handled = reactor.handle(completions, letters);
        if handled.is_err() {
            world.borrow_mut().trace(|| format!("reactor {n} panics"));
            // Its sockets go with its driver; what the disks do for it goes on.
            reactor.shard.failed("it was to");
            world.borrow_mut().end_driver(n, false);
        }
        if handled.is_err() || Handler::<SimDriver, ServerMail>::is_done(&reactor.shard) {
            reactor.mail = None;
            self.shared.engine.run_blocking_work();
            return self.call(world);
        }
        let Reactor {
            driver,
            shard,
            wakes_at,
            trimmer,
            ..
        } = reactor;
        let units = shard.turn_units_max();
        let units_max = self.shared.limits.turn_units_max + OPERATION_UNITS_MAX;
        assert!(
            units <= units_max,
            "{units} units in one turn, {units_max} at most"
        );
        if has_work {
            trimmer.worked();
        }
        if Handler::<SimDriver, ServerMail>::has_more(shard) {
            world.borrow_mut().wake(n);
        } else {
            let deadline = Handler::<SimDriver, ServerMail>::deadline(shard);
            let next = trimmer
                .sleeps(now, || driver.give_back())
                .min(deadline.unwrap_or(Nanos::MAX));
            if std::mem::replace(wakes_at, next) != next && next < Nanos::MAX {
                world.borrow_mut().at(next, WorldEvent::Turn(n));
            }
        }
        if world.borrow_mut().random.one_in(4) {
            let delay = world.borrow_mut().random.around(MS / 10);
            world
                .borrow_mut()
                .after(delay, WorldEvent::Script(BLOCKING_WORK));
        } else {
            self.shared.engine.run_blocking_work();
        }
        self.call(world);
    }

    /// A reactor panics after so many events of its next turn that has any.
    pub fn panic(&mut self, shard: usize, events: usize) {
        self.reactors[shard].panics_after = Some(events);
    }

    /// No reactor panics any more that has not yet.
    pub fn cancel_panics(&mut self) {
        for reactor in &mut self.reactors {
            reactor.panics_after = None;
        }
    }

    /// A reactor has panicked.
    pub fn has_failed(&self) -> bool {
        self.reactors.iter().any(|reactor| reactor.mail.is_none())
    }

    /// All reactors have ended.
    pub fn has_ended(&self) -> bool {
        self.reactors.iter().all(|reactor| reactor.mail.is_none())
    }

    /// Has reactors take their turn that mail or tickets wait for.
    pub fn call(&self, world: &SharedWorld) {
        for (n, reactor) in self.reactors.iter().enumerate() {
            if reactor.driver.is_called() {
                world.borrow_mut().wake(n);
            }
        }
    }

    /// Has volumes do what they do by themselves.
    pub fn run_upkeep(&self, world: &SharedWorld) {
        self.shared.engine.run_upkeep();
        self.call(world);
    }

    /// Has all blocks read of volumes that have checksums.
    pub fn begin_scrubs(&self) {
        for volume in self.shared.volumes() {
            if let Some(scrub) = volume.scrub() {
                scrub.act(ScrubAction::Start);
            }
        }
    }

    /// How the scrub of each volume with checksums stands, by the number of the volume.
    pub fn scrubs(&self) -> Vec<(usize, ScrubStatus)> {
        let volumes = self.shared.volumes();
        let all = volumes.iter().enumerate();
        let all = all.filter_map(|(at, volume)| Some((at, volume.scrub()?.status())));
        all.collect()
    }

    /// Of each of those, how often a block had another checksum.
    pub fn mismatches(&self) -> Vec<(usize, u64)> {
        let volumes = self.shared.volumes();
        let summed = volumes.iter().enumerate();
        let summed = summed.filter(|(_, volume)| volume.has_checksums());
        let of = |volume: &dyn Volume| volume.stats().errors.checksum_mismatch;
        summed.map(|(at, volume)| (at, of(&**volume))).collect()
    }

    /// Whether hosts have made a byte of a volume unreadable.
    pub fn is_unreadable(&self, volume: usize, at: u64) -> bool {
        let volumes = self.shared.volumes();
        let volume = volumes.get(volume);
        volume.is_some_and(|volume| !volume.unreadable(at, 1, 1).is_empty())
    }

    /// Whether all mirrors have all on all legs.
    pub fn are_mirrors_whole(&self) -> bool {
        let volumes = self.shared.volumes();
        let mut mirrors = volumes.iter().filter_map(|volume| volume.as_mirror());
        mirrors.all(|mirror| mirror.status().is_whole())
    }

    /// Connections that its reactors count.
    pub fn connections(&self) -> u32 {
        self.shared
            .engine
            .load
            .iter()
            .map(|n| n.load(Ordering::Relaxed))
            .sum()
    }

    /// Controllers that it keeps.
    pub fn controllers(&self) -> usize {
        self.shared.registry().controllers().count()
    }
}

impl Drop for SimTarget {
    fn drop(&mut self) {
        self.shared.engine.end_blocking_work();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_flipped_bits_make_no_volume_another() {
        let far = |a: u32, b: u32| (a ^ b).count_ones() > 2;
        for one in 0..6 {
            assert_eq!(volume_of(nsid(1, one)), one);
            for other in (0..6).filter(|other| *other != one) {
                assert!(far(lun(one).into(), lun(other).into()), "{one}, {other}");
                assert!(far(nsid(0, one), nsid(0, other)), "{one}, {other}");
            }
        }
    }
}
