//! The paths of a load: a keeper each, on a thread of its own, since attempts to
//! connect take their time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use host::{
    Address, ControllerInfo, HostIdentity, Keeper, KeeperParams, KeptNamespace, PathParams,
    PathSignal, QueueParams,
};
use reactor::{EpollDriver, Mailbox};
use wire::nvme::ConnectCommand;
use wire::nvme::fabrics::ConnectData;

use super::args::{PathPolicy, PerfArgs};
use super::device::Device;
use super::job::JobPlan;
use super::line::LinePlan;
use super::report::TargetInfo;
use super::worker::Letter;
use super::{KATO_MS, admin_driver, unique};

/// What a keeper found where it connected.
struct KeeperFound {
    controller: ControllerInfo,
    known: KeptNamespace,
}

/// One path.
struct KeptPath {
    params: PathParams,
    found: KeeperFound,
    mailboxes: mpsc::Sender<Vec<Mailbox<Letter>>>,
    thread: JoinHandle<()>,
}

/// The paths of a load.
pub(super) struct Paths {
    all: Vec<KeptPath>,
    has_ended: Arc<AtomicBool>,
}

impl Paths {
    /// Connects a controller on each of `addresses`, which must all lead to the
    /// same namespace.
    ///
    /// # Errors
    /// A sentence for the user.
    pub(super) fn connect(
        args: &PerfArgs,
        addresses: &[Address],
        host: &HostIdentity,
    ) -> Result<Paths, String> {
        let has_ended = Arc::new(AtomicBool::new(false));
        let mut paths = Paths {
            all: Vec::new(),
            has_ended: Arc::clone(&has_ended),
        };
        for (address, number) in addresses.iter().zip(0..) {
            let kept = start_path_keeper(args, address, host, number, Arc::clone(&has_ended));
            paths
                .all
                .push(kept.map_err(|error| format!("{}: {error}", address.socket))?);
            let (first, last) = (&paths.all[0].found, &paths.all[paths.all.len() - 1].found);
            if first.known != last.known {
                return Err(format!(
                    "{}: this is another namespace than at {}",
                    address.socket, addresses[0].socket
                ));
            }
        }
        Ok(paths)
    }

    /// The jobs over all paths, and the targets to tell of.
    ///
    /// # Errors
    /// A sentence for the user.
    pub(super) fn plan(
        &self,
        args: &PerfArgs,
        policy: PathPolicy,
    ) -> Result<(Vec<TargetInfo>, Vec<JobPlan>), String> {
        let jobs = u64::from(args.numjobs);
        let mut areas = Vec::new();
        // What fits every controller.
        for kept in &self.all {
            let device = Device::namespace(&kept.found.controller, &kept.found.known.namespace);
            areas = args.job_areas(&device, jobs)?;
        }
        let jobs = areas.into_iter().zip(1..).map(|(area, qid)| {
            let paths = self.all.iter().map(|kept| {
                let mut params = kept.params.clone();
                let connect = &mut params.queue.connect;
                let device = Device::namespace(&kept.found.controller, &kept.found.known.namespace);
                connect.qid = qid;
                connect.sqsize = device.queue_depth(args.iodepth);
                params
            });
            let line = LinePlan::Paths {
                policy: policy.into(),
                fast_io_fail: args.fast_io_fail_tmo.0.map(|tmo| tmo.as_nanos() as u64),
                paths: paths.collect(),
            };
            let first = &self.all[0];
            let device = Device::namespace(&first.found.controller, &first.found.known.namespace);
            let unique = unique(&first.params.queue.connect_data.hostid);
            JobPlan {
                // What no path has room for waits where another may take it.
                queue_depth: args.iodepth,
                ..JobPlan::new(args, line, &device, area, unique)
            }
        });
        let targets = self.all.iter().map(|kept| {
            let (to, subnqn) = (kept.params.to, &kept.params.queue.connect_data.subnqn);
            let subnqn = wire::nvme::fabrics::nqn_text(subnqn).unwrap_or_default();
            let device = Device::namespace(&kept.found.controller, &kept.found.known.namespace);
            TargetInfo::namespace(to, subnqn, &device, &kept.found.controller.model)
        });
        Ok((targets.collect(), jobs.collect()))
    }

    /// The workers want to hear what becomes of the paths.
    pub(super) fn register_mailboxes(&self, mailboxes: &[Mailbox<Letter>]) {
        for kept in &self.all {
            // A keeper that has ended has nothing to tell.
            drop(kept.mailboxes.send(mailboxes.to_vec()));
        }
    }
}

impl Drop for Paths {
    /// Shuts every controller down.
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        for kept in self.all.drain(..) {
            drop(kept.mailboxes);
            let ended = kept.thread.join();
            if !thread::panicking() {
                ended.expect("no keeper panics");
            }
        }
    }
}

/// Starts the keeper of one path; what it found.
fn start_path_keeper(
    args: &PerfArgs,
    address: &Address,
    host: &HostIdentity,
    number: u16,
    has_ended: Arc<AtomicBool>,
) -> Result<KeptPath, String> {
    let signal = Arc::new(PathSignal::default());
    let params = KeeperParams {
        to: address.socket,
        subnqn: address.subnqn.clone(),
        host: host.clone(),
        settings: args.settings(address.transport),
        nsid: address.nsid,
        queues: args.numjobs,
        kato_ms: KATO_MS,
        reconnect_delay: args.reconnect_delay,
        reconnect_delay_max: args.reconnect_delay,
        ctrl_loss_tmo: args.ctrl_loss_tmo.0,
    };
    let queue = QueueParams {
        settings: params.settings,
        connect: ConnectCommand {
            recfmt: 0,
            qid: 0,
            sqsize: args.iodepth,
            cattr: ConnectCommand::DISABLE_SQ_FLOW_CONTROL,
            kato_ms: 0,
        },
        connect_data: ConnectData::new(host.hostid, 0, &params.subnqn, &host.hostnqn),
        in_capsule_max: 0,
        psk: host.psk.clone(),
        dhchap: host.dhchap.clone(),
    };
    let (found, finding) = mpsc::channel();
    let (mailboxes, mail) = mpsc::channel();
    let its_signal = Arc::clone(&signal);
    let thread = thread::Builder::new()
        .name("weft-path".into())
        .spawn(move || run(params, its_signal, number, &found, &mail, &has_ended));
    let kept = KeptPath {
        params: PathParams {
            to: address.socket,
            queue,
            signal,
        },
        thread: thread.map_err(|error| error.to_string())?,
        found: finding
            .recv()
            .unwrap_or_else(|_| Err("its keeper ended".into()))?,
        mailboxes,
    };
    Ok(kept)
}

/// A keeper's thread.
fn run(
    params: KeeperParams,
    signal: Arc<PathSignal>,
    number: u16,
    found: &mpsc::Sender<Result<KeeperFound, String>>,
    mail: &mpsc::Receiver<Vec<Mailbox<Letter>>>,
    has_ended: &AtomicBool,
) {
    let connected = Keeper::<EpollDriver>::connect(params, signal, admin_driver);
    let mut keeper = match connected {
        Ok(keeper) => keeper,
        Err(error) => return drop(found.send(Err(error.to_string()))),
    };
    drop(found.send(Ok(KeeperFound {
        controller: keeper.controller().expect("connected just now").clone(),
        known: keeper.known().expect("connected just now").clone(),
    })));
    let mut mailboxes: Vec<Mailbox<Letter>> = Vec::new();
    while !has_ended.load(Ordering::Relaxed) {
        let mut change = None;
        match mailboxes.is_empty() {
            // There is no worker to tell yet: what changes meanwhile is seen
            // later.
            true => {
                if let Ok(given) = mail.recv_timeout(Duration::from_millis(20)) {
                    mailboxes = given;
                    change = Some(keeper.standing());
                }
            }
            false => change = keeper.turn(),
        }
        if let Some(change) = change {
            let letter = Letter::Path(number, change);
            for mailbox in &mailboxes {
                mailbox.send(letter.clone());
            }
        }
    }
    keeper.shutdown();
}
