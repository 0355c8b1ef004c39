//! The blocks of a namespace, as a volume asks for them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use host::{Address, HostIdentity};
use reactor::Mailbox;
use store::{Io, PathStatus, RemoteBlocks, RemoteCall, RemoteInfo, RemotePlace};

use crate::RemoteTarget;
use crate::commands::Format;
use crate::paths::{self, PathFound, PathPlan};
use crate::worker::{self, Letter, WorkerPlan};

/// What the threads of a volume tell.
pub(crate) struct Shared {
    /// Its name.
    pub volume: String,
    /// It is closed: its threads end.
    pub has_ended: AtomicBool,
    /// Capacity as it was told last.
    pub size_bytes: AtomicU64,
    /// How often what was not flushed may have been lost.
    pub losses: AtomicU64,
    /// Of each path, in the order of its URLs.
    pub paths: Mutex<Vec<PathStatus>>,
}

impl Shared {
    /// Changes how a path stands.
    pub fn on_path(&self, number: usize, change: impl FnOnce(&mut PathStatus)) {
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut paths[number]);
    }
}

/// The blocks of a namespace.
pub(crate) struct RemoteSession {
    info: RemoteInfo,
    shared: Arc<Shared>,
    mailbox: Mailbox<Letter>,
    /// To each keeper of a path: the host that it connects as from now on.
    hosts: Vec<mpsc::Sender<HostIdentity>>,
    worker: Option<JoinHandle<()>>,
}

/// What has been reached by the first path that answers.
struct Reached {
    addresses: Vec<Address>,
    shared: Arc<Shared>,
    /// The number of that path.
    first: usize,
    path: paths::RemotePath,
    found: PathFound,
}

impl Reached {
    /// What a path of a volume is to be.
    fn plan(
        target: &RemoteTarget,
        (addresses, shared): (&[Address], &Arc<Shared>),
        number: usize,
        known: Option<&PathFound>,
    ) -> PathPlan {
        PathPlan {
            number,
            address: addresses[number].clone(),
            host: target.host.clone(),
            known: known.map(|found| found.known.clone()),
            shared: Arc::clone(shared),
        }
    }

    /// Connects by one URL after the other until one answers.
    fn by(target: &RemoteTarget, volume: &str) -> Result<Reached, String> {
        let addresses = target.urls.iter().map(|url| url.resolve());
        let addresses: Vec<Address> = addresses.collect::<Result<_, String>>()?;
        let status = |url| PathStatus {
            address: format!("{url}"),
            is_live: false,
            losses: 0,
            reason: None,
        };
        let shared = Arc::new(Shared {
            volume: volume.to_owned(),
            has_ended: AtomicBool::new(false),
            size_bytes: AtomicU64::new(0),
            losses: AtomicU64::new(0),
            paths: Mutex::new(target.urls.iter().map(status).collect()),
        });
        let mut why = Vec::new();
        for (number, url) in target.urls.iter().enumerate() {
            let plan = Reached::plan(target, (&addresses, &shared), number, None);
            let (path, found) = paths::start(plan)?;
            match found.recv() {
                Ok(Ok(found)) => {
                    return Ok(Reached {
                        addresses,
                        shared,
                        first: number,
                        path,
                        found,
                    });
                }
                Ok(Err(error)) => why.push(format!("{url}: {error}")),
                Err(_) => why.push(format!("{url}: its thread has ended")),
            }
        }
        Err(format!("cannot be reached: {}", why.join("; ")))
    }

    fn info(&self) -> RemoteInfo {
        let namespace = &self.found.known.namespace;
        let identifiers = &self.found.known.identifiers;
        let end = identifiers.iter().rposition(|byte| *byte != 0);
        let identifier = match end {
            Some(end) => hex(&identifiers[..=end]),
            // A target that does not say what it is.
            None => format!("{}\n{}", self.addresses[self.first].subnqn, namespace.nsid),
        };
        let block_bytes = u64::from(namespace.block_bytes);
        RemoteInfo {
            identifier,
            block_bytes: namespace.block_bytes,
            size_bytes: namespace.block_count.saturating_mul(block_bytes),
            volatile_cache: self.found.controller.volatile_cache,
            is_thin: namespace.is_thin && self.found.controller.write_zeroes,
        }
    }
}

/// What is there; nothing of it is kept.
pub(crate) fn examine(target: &RemoteTarget) -> Result<RemoteInfo, String> {
    Ok(Reached::by(target, "")?.info())
}

impl RemoteSession {
    /// Connects by the first URL that answers, and begins to connect by the others.
    pub fn open(target: &RemoteTarget, volume: &str) -> Result<RemoteSession, String> {
        let reached = Reached::by(target, volume)?;
        let (format, info) = (Format::of(&reached.found), reached.info());
        let Reached {
            addresses,
            shared,
            first,
            path,
            found,
        } = reached;
        let others = (0..addresses.len()).filter(|number| *number != first);
        let others = others.map(|number| {
            let plan = Reached::plan(target, (&addresses, &shared), number, Some(&found));
            Ok(paths::start(plan)?.0)
        });
        let mut paths = others.collect::<Result<Vec<_>, String>>()?;
        paths.insert(first, path);
        shared.size_bytes.store(info.size_bytes, Ordering::Relaxed);
        let (worker, mailbox) = start_worker(WorkerPlan {
            volume: volume.to_owned(),
            paths: paths.iter().map(|path| path.params(format.depth)).collect(),
            format,
            timeout_ns: u64::try_from(target.timeout.as_nanos()).unwrap_or(u64::MAX / 2),
        })?;
        let hosts = paths.into_iter().map(|path| path.tell(mailbox.clone()));
        Ok(RemoteSession {
            info,
            shared,
            hosts: hosts.collect(),
            mailbox,
            worker: Some(worker),
        })
    }
}

fn start_worker(plan: WorkerPlan) -> Result<(JoinHandle<()>, Mailbox<Letter>), String> {
    let (ready, is_ready) = mpsc::channel();
    let thread = thread::Builder::new()
        .name("weft-remote".into())
        .spawn(move || worker::run(plan, &ready));
    let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
    let mailbox = is_ready
        .recv()
        .unwrap_or_else(|_| Err("its thread has ended".to_owned()))?;
    Ok((thread, mailbox))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl RemoteBlocks for RemoteSession {
    fn info(&self) -> &RemoteInfo {
        &self.info
    }

    fn begin(&self, io: Io, call: RemoteCall) {
        self.mailbox.send(Letter::Io(io, call));
    }

    fn size_bytes(&self) -> u64 {
        self.shared.size_bytes.load(Ordering::Relaxed)
    }

    fn losses(&self) -> u64 {
        match self.info.volatile_cache {
            true => self.shared.losses.load(Ordering::Relaxed),
            false => 0,
        }
    }

    fn follow(&self, place: &dyn RemotePlace) {
        let target = RemoteTarget::of(place).expect("a place that equals its own");
        for keeper in &self.hosts {
            // A keeper that has ended connects no more.
            let _ = keeper.send(target.host.clone());
        }
    }

    fn paths(&self) -> Vec<PathStatus> {
        let paths = self.shared.paths.lock();
        paths.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for RemoteSession {
    /// The keepers of the paths end by themselves: one may be about to connect.
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Relaxed);
        self.mailbox.send(Letter::End);
        if let Some(worker) = self.worker.take() {
            let ended = worker.join();
            if !thread::panicking() {
                ended.expect("no thread of a remote volume panics");
            }
        }
    }
}
