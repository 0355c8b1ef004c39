//! What keeps a path: the Admin Queue of its controller, kept alive, followed
//! through ANA changes, and connected again when it is lost.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nvmf::command::AnaState;
use reactor::Driver;
use wire::nvme::feature::async_event;

use crate::{Admin, ControllerInfo, Error, HostIdentity, NamespaceInfo, QueueSettings};

/// How long a turn without anything to do takes: what a queue's user signals
/// is seen after as long.
const TURN: Duration = Duration::from_millis(20);
/// Keep Alives sent within a Keep Alive Timeout.
const KEEP_ALIVES: u32 = 3;

/// What became of a path's controller, for the owners of its queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathChange {
    /// There is a controller: queues may be connected.
    Up {
        /// Which one, of all that this keeper has connected; from 1.
        epoch: u64,
        /// Its Controller ID.
        cntlid: u16,
        /// In-capsule data that I/O queues take, in bytes.
        in_capsule_max: u32,
        /// State of the namespace there.
        ana: AnaState,
        /// Whose the queues are: see [`Admin::host`].
        host: Box<HostIdentity>,
    },
    /// The namespace has this state there.
    Ana {
        /// The state.
        ana: AnaState,
    },
    /// The controller is gone, and every queue of it is of no use.
    Lost {
        /// Which one.
        epoch: u64,
    },
    /// It is not tried any longer.
    GivenUp,
}

/// What users of a path's queues tell its keeper, from any thread.
#[derive(Debug, Default)]
pub struct PathSignal {
    lost: AtomicU64,
    is_stale: AtomicBool,
}

impl PathSignal {
    /// A queue of the controller `epoch` was lost.
    pub fn set_lost(&self, epoch: u64) {
        self.lost.fetch_max(epoch, Ordering::Relaxed);
    }

    /// A command was refused for another ANA state than was told.
    pub fn set_stale(&self) {
        self.is_stale.store(true, Ordering::Relaxed);
    }
}

/// What a keeper keeps, and for how long.
#[derive(Clone, Debug)]
pub struct KeeperParams {
    /// Where the controller is.
    pub to: SocketAddr,
    /// NVM subsystem NQN.
    pub subnqn: String,
    /// The identity of this host.
    pub host: HostIdentity,
    /// Its transport, and what to agree on there.
    pub settings: QueueSettings,
    /// Namespace whose state is told; `None`: the first active one.
    pub nsid: Option<u32>,
    /// I/O queues that there are to be.
    pub queues: u16,
    /// Keep Alive Timeout.
    pub kato_ms: u32,
    /// Pause between two attempts to connect.
    pub reconnect_delay: Duration,
    /// How long after the loss attempts go on; `None`: for ever.
    pub ctrl_loss_tmo: Option<Duration>,
}

enum KeeperState<D> {
    Up(Box<Up<D>>),
    /// Lost, at this time; the next attempt.
    Down(Instant, Instant),
    GivenUp,
}

struct Up<D> {
    admin: Admin<D>,
    controller: ControllerInfo,
    keep_alive_at: Instant,
    ana: AnaState,
    /// Since when the namespace is in ANA Change.
    changing_since: Option<Instant>,
}

/// Keeps the controller of one path. Its owner calls [`Keeper::turn`] over and
/// over, on a thread that may wait.
pub struct Keeper<D> {
    params: KeeperParams,
    make: Box<dyn FnMut() -> io::Result<D>>,
    signal: Arc<PathSignal>,
    epoch: u64,
    nsid: u32,
    /// What identifies the namespace: it must be the same ever after.
    identifiers: Vec<u8>,
    state: KeeperState<D>,
}

impl<D: Driver> Keeper<D> {
    /// Connects for the first time, which must succeed; every attempt has a
    /// driver of its own from `make`.
    ///
    /// # Errors
    /// Where the connection fails, or the controller is not as asked for.
    pub fn connect(
        params: KeeperParams,
        signal: Arc<PathSignal>,
        make: impl FnMut() -> io::Result<D> + 'static,
    ) -> Result<Self, Error> {
        let mut keeper = Keeper {
            nsid: params.nsid.unwrap_or(0),
            params,
            make: Box::new(make),
            signal,
            epoch: 0,
            identifiers: Vec::new(),
            state: KeeperState::GivenUp,
        };
        keeper.state = KeeperState::Up(Box::new(keeper.open()?));
        Ok(keeper)
    }

    /// The namespace, as its controller describes it now.
    ///
    /// # Errors
    /// Where there is none, or the command fails.
    pub fn namespace(&mut self) -> Result<NamespaceInfo, Error> {
        match &mut self.state {
            KeeperState::Up(up) => up.admin.namespace(Some(self.nsid)),
            _ => Err(Error::Closed),
        }
    }

    /// What identifies the namespace: [`Admin::identifiers`].
    #[must_use]
    pub fn identifiers(&self) -> &[u8] {
        &self.identifiers
    }

    /// The controller, if there is one.
    #[must_use]
    pub fn controller(&self) -> Option<&ControllerInfo> {
        match &self.state {
            KeeperState::Up(up) => Some(&up.controller),
            _ => None,
        }
    }

    /// The change that says what is there now; the first of all to be told.
    #[must_use]
    pub fn standing(&self) -> PathChange {
        match &self.state {
            KeeperState::Up(up) => PathChange::Up {
                epoch: self.epoch,
                cntlid: up.controller.cntlid,
                in_capsule_max: up.controller.in_capsule_max,
                ana: up.ana,
                host: Box::new(up.admin.host().clone()),
            },
            KeeperState::Down(..) => PathChange::Lost { epoch: self.epoch },
            KeeperState::GivenUp => PathChange::GivenUp,
        }
    }

    /// Does what is due, and waits a little where nothing is; an attempt to
    /// connect can take its time. What changed.
    pub fn turn(&mut self) -> Option<PathChange> {
        match &mut self.state {
            KeeperState::Up(up) => {
                let is_lost = self.signal.lost.load(Ordering::Relaxed) >= self.epoch;
                let is_stale = self.signal.is_stale.swap(false, Ordering::Relaxed);
                let turned = match is_lost {
                    true => Err(Error::Closed),
                    false => up.turn(self.nsid, is_stale, self.params.kato_ms),
                };
                match turned {
                    Ok(changed) => changed.map(|ana| PathChange::Ana { ana }),
                    Err(_) => Some(self.lose()),
                }
            }
            KeeperState::Down(since, next) => {
                let (since, next) = (*since, *next);
                if self
                    .params
                    .ctrl_loss_tmo
                    .is_some_and(|tmo| since.elapsed() >= tmo)
                {
                    self.state = KeeperState::GivenUp;
                    return Some(PathChange::GivenUp);
                }
                let pause = next.saturating_duration_since(Instant::now());
                if !pause.is_zero() {
                    thread::sleep(TURN.min(pause));
                    return None;
                }
                self.try_again(since)
            }
            KeeperState::GivenUp => {
                thread::sleep(TURN);
                None
            }
        }
    }

    fn lose(&mut self) -> PathChange {
        let now = Instant::now();
        // The connection ends here, and with it what is left of the controller.
        self.state = KeeperState::Down(now, now + self.params.reconnect_delay);
        PathChange::Lost { epoch: self.epoch }
    }

    fn try_again(&mut self, since: Instant) -> Option<PathChange> {
        match self.open() {
            Ok(up) => {
                self.state = KeeperState::Up(Box::new(up));
                Some(self.standing())
            }
            Err(_) => {
                let next = Instant::now() + self.params.reconnect_delay;
                self.state = KeeperState::Down(since, next);
                None
            }
        }
    }

    fn open(&mut self) -> Result<Up<D>, Error> {
        let p = &self.params;
        let driver = (self.make)()?;
        let mut admin = Admin::connect(driver, p.to, &p.subnqn, &p.host, p.settings, p.kato_ms)?;
        let controller = admin.controller()?;
        let namespace = admin.namespace(Some(self.nsid).filter(|nsid| *nsid > 0))?;
        let granted = admin.set_queue_count(p.queues)?;
        if granted < p.queues {
            return Err(Error::Unusable(format!(
                "the controller gives {granted} I/O queues of the {} asked for",
                p.queues
            )));
        }
        self.nsid = namespace.nsid;
        let identifiers = admin.identifiers(namespace.nsid)?;
        if self.identifiers.is_empty() {
            self.identifiers = identifiers.to_vec();
        } else if self.identifiers != *identifiers {
            let why = format!("namespace {} is another one than before", self.nsid);
            return Err(Error::Unusable(why));
        }
        let mut ana = AnaState::Optimized;
        if let Some(info) = controller.ana {
            // What changes after this is told.
            admin.enable_notices(async_event::ANA_CHANGE)?;
            ana = admin.ana_state(info, self.nsid)?;
        }
        self.epoch += 1;
        Ok(Up {
            admin,
            controller,
            keep_alive_at: Instant::now() + Duration::from_millis(p.kato_ms.into()) / KEEP_ALIVES,
            ana,
            changing_since: (ana == AnaState::Change).then(Instant::now),
        })
    }

    /// Shuts the controller down in order, if there is one.
    pub fn shutdown(self) {
        if let KeeperState::Up(up) = self.state {
            // It is over: a target that is gone changes nothing.
            let _ = up.admin.shutdown();
        }
    }
}

impl<D: Driver> Up<D> {
    /// One turn; the state of the namespace, where it was read anew.
    fn turn(&mut self, nsid: u32, is_stale: bool, kato_ms: u32) -> Result<Option<AnaState>, Error> {
        if kato_ms > 0 && Instant::now() >= self.keep_alive_at {
            self.admin.keep_alive()?;
            let interval = Duration::from_millis(kato_ms.into()) / KEEP_ALIVES;
            self.keep_alive_at = Instant::now() + interval;
        }
        let has_event = self.admin.idle(TURN)?.is_some();
        let Some(info) = self.controller.ana else {
            return Ok(None);
        };
        // A transition takes ANATT at most (Base 2.0, section 8.1.4): what
        // takes longer has lost its controller.
        let patience = Duration::from_secs(info.transition_s.into());
        if self
            .changing_since
            .is_some_and(|at| at.elapsed() > patience)
        {
            return Err(Error::TimedOut {
                waiting_for: "end of an ANA transition",
            });
        }
        if !has_event && !is_stale {
            return Ok(None);
        }
        self.ana = self.admin.ana_state(info, nsid)?;
        match self.ana {
            AnaState::Change => {
                self.changing_since.get_or_insert_with(Instant::now);
            }
            _ => self.changing_since = None,
        }
        Ok(Some(self.ana))
    }
}
