//! The paths of a remote volume: a keeper each, on a thread of its own, since attempts to connect
//! take their time.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use host::{
    Address, ControllerInfo, HostIdentity, Keeper, KeeperParams, KeptNamespace, PathChange,
    PathParams, PathSignal, QueueParams, Settings,
};
use mem::{Budget, Pool};
use reactor::{DriverConfig, EpollDriver, Mailbox};
use wire::nvme::ConnectCommand;
use wire::nvme::fabrics::ConnectData;

use crate::session::Shared;
use crate::worker::Letter;

/// Keep Alive Timeout: a controller that hears nothing as long as this ends.
pub(crate) const KATO_MS: u32 = 5_000;

/// Memory of an Admin Queue.
const ADMIN_MEMORY_MAX: u64 = 16 << 20;

const RECONNECT_DELAY: Duration = Duration::from_millis(250);
const RECONNECT_DELAY_MAX: Duration = Duration::from_secs(10);

/// What a path is to be.
pub(crate) struct PathPlan {
    pub number: usize,
    pub address: Address,
    pub host: HostIdentity,
    /// What it must lead to; `None`: whatever is there.
    pub known: Option<KeptNamespace>,
    pub shared: Arc<Shared>,
}

/// What is there at the end of a path.
#[derive(Clone)]
pub(crate) struct PathFound {
    pub controller: ControllerInfo,
    pub known: KeptNamespace,
}

/// A path whose keeper is at work.
pub(crate) struct RemotePath {
    plan: PathParams,
    mailbox: mpsc::Sender<Mailbox<Letter>>,
    hosts: mpsc::Sender<HostIdentity>,
}

impl RemotePath {
    /// Its I/O queue, for so many commands.
    pub fn params(&self, depth: u16) -> PathParams {
        let mut params = self.plan.clone();
        params.queue.connect.sqsize = depth;
        params
    }

    /// What becomes of it goes there from now on. By what is given back its keeper hears which
    /// host it connects as.
    pub fn tell(self, mailbox: Mailbox<Letter>) -> mpsc::Sender<HostIdentity> {
        // A keeper that has ended has nothing to tell.
        let _ = self.mailbox.send(mailbox);
        self.hosts
    }
}

/// What a keeper finds where it connects for the first time.
pub(crate) type PathFinding = mpsc::Receiver<Result<PathFound, String>>;

/// Starts the keeper of a path.
pub(crate) fn start(plan: PathPlan) -> Result<(RemotePath, PathFinding), String> {
    let signal = Arc::new(PathSignal::default());
    let (address, host) = (&plan.address, &plan.host);
    let queue = QueueParams {
        settings: Settings::default().into(),
        connect: ConnectCommand {
            recfmt: 0,
            qid: 1,
            sqsize: 0,
            cattr: ConnectCommand::DISABLE_SQ_FLOW_CONTROL,
            kato_ms: 0,
        },
        connect_data: ConnectData::new(host.hostid, 0, &address.subnqn, &host.hostnqn),
        in_capsule_max: 0,
        psk: host.psk.clone(),
        dhchap: host.dhchap.clone(),
    };
    let (mailbox, mail) = mpsc::channel();
    let (hosts, other_host) = mpsc::channel();
    let path = RemotePath {
        plan: PathParams {
            to: address.socket,
            queue,
            signal: Arc::clone(&signal),
        },
        mailbox,
        hosts,
    };
    let (found, finding) = mpsc::channel();
    let started = thread::Builder::new()
        .name("weft-path".into())
        .spawn(move || run(plan, signal, &found, (&mail, &other_host)));
    started.map_err(|error| format!("cannot start a thread: {error}"))?;
    Ok((path, finding))
}

fn driver() -> io::Result<EpollDriver> {
    let config = DriverConfig {
        sockets_max: 1,
        ..DriverConfig::default()
    };
    EpollDriver::new(&config, Pool::new(Budget::new(ADMIN_MEMORY_MAX))?)
}

/// The thread of a path.
fn run(
    plan: PathPlan,
    signal: Arc<PathSignal>,
    found: &mpsc::Sender<Result<PathFound, String>>,
    (mail, other_host): (
        &mpsc::Receiver<Mailbox<Letter>>,
        &mpsc::Receiver<HostIdentity>,
    ),
) {
    let PathPlan {
        number,
        address,
        host,
        known,
        shared,
    } = plan;
    let params = KeeperParams {
        to: address.socket,
        subnqn: address.subnqn,
        host,
        settings: Settings::default().into(),
        nsid: address.nsid,
        queues: 1,
        kato_ms: KATO_MS,
        reconnect_delay: RECONNECT_DELAY,
        reconnect_delay_max: RECONNECT_DELAY_MAX,
        ctrl_loss_tmo: None,
    };
    let mut keeper = match known {
        Some(known) => Keeper::expecting(params, signal, known, driver),
        None => match Keeper::connect(params, signal, driver) {
            Ok(keeper) => {
                let controller = keeper.controller().expect("connected just now").clone();
                let known = keeper.known().expect("connected just now").clone();
                let _ = found.send(Ok(PathFound { controller, known }));
                keeper
            }
            Err(error) => return drop(found.send(Err(error.to_string()))),
        },
    };
    // The session may not have come about.
    if let Ok(mailbox) = mail.recv() {
        let mut told = PathReporter {
            number,
            shared,
            reason: None,
        };
        told.tell(&keeper, &mailbox, keeper.standing());
        while !told.shared.has_ended.load(Ordering::Relaxed) {
            if let Some(host) = other_host.try_iter().last() {
                keeper.set_host(host);
            }
            if let Some(change) = keeper.turn() {
                told.tell(&keeper, &mailbox, change);
            }
            told.follow(&keeper);
        }
    }
    keeper.shutdown();
}

/// What is told of a path.
struct PathReporter {
    number: usize,
    shared: Arc<Shared>,
    /// Why it is down.
    reason: Option<String>,
}

impl PathReporter {
    /// Passes on what a keeper says.
    fn tell(&mut self, keeper: &Keeper<EpollDriver>, to: &Mailbox<Letter>, change: PathChange) {
        let volume = &self.shared.volume;
        match &change {
            PathChange::Up { .. } => {
                let mut address = String::new();
                self.shared.on_path(self.number, |path| {
                    (path.is_live, path.reason) = (true, None);
                    address.clone_from(&path.address);
                });
                tracing::info!(
                    event = "remote-path-up",
                    volume,
                    address,
                    "a path to a remote volume is there"
                );
            }
            PathChange::Lost { epoch } if *epoch > 0 => {
                self.shared.losses.fetch_add(1, Ordering::Relaxed);
                let mut address = String::new();
                self.shared.on_path(self.number, |path| {
                    path.is_live = false;
                    path.losses += 1;
                    address.clone_from(&path.address);
                });
                tracing::warn!(
                    event = "remote-path-lost",
                    volume,
                    address,
                    reason = keeper.reason().unwrap_or(""),
                    "a path to a remote volume is lost: it is tried again and again"
                );
            }
            PathChange::Lost { .. } | PathChange::Ana { .. } | PathChange::GivenUp => {}
        }
        to.send(Letter::Path(self.number, change));
    }

    /// Notes what has changed of the namespace, and why there is no controller.
    fn follow(&mut self, keeper: &Keeper<EpollDriver>) {
        if keeper.reason() != self.reason.as_deref() {
            self.reason = keeper.reason().map(str::to_owned);
            let reason = self.reason.clone();
            self.shared
                .on_path(self.number, |path| path.reason = reason);
        }
        let Some(known) = keeper.known() else { return };
        let block_bytes = u64::from(known.namespace.block_bytes);
        let bytes = known.namespace.block_count.saturating_mul(block_bytes);
        if self.shared.size_bytes.fetch_max(bytes, Ordering::Relaxed) < bytes {
            tracing::info!(
                event = "remote-larger",
                volume = self.shared.volume,
                bytes,
                "the namespace of a remote volume has become larger: set `size` to that to give it to \
                 hosts"
            );
        }
    }
}
