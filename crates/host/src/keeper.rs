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
use wire::nvme::feature::async_event::{self, NAMESPACE_ATTRIBUTE};
use wire::nvme::log::lid;

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
    /// Pause between two attempts to connect, at first; later half of the time since the loss,
    pub reconnect_delay: Duration,
    /// and this at most.
    pub reconnect_delay_max: Duration,
    /// How long after the loss attempts go on; `None`: for ever.
    pub ctrl_loss_tmo: Option<Duration>,
}

/// What a path must lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptNamespace {
    /// The namespace as it was described last.
    pub namespace: NamespaceInfo,
    /// What identifies it: [`Admin::identifiers`].
    pub identifiers: Vec<u8>,
}

impl KeptNamespace {
    /// Takes what is found for the same namespace, as it was or larger.
    fn follow(&mut self, found: KeptNamespace) -> Result<(), Error> {
        let (old, new) = (&self.namespace, &found.namespace);
        let is_same = old.nsid == new.nsid && self.identifiers == found.identifiers;
        let why = if !is_same {
            format!("namespace {} is another one than before", new.nsid)
        } else if old.block_bytes != new.block_bytes || old.block_count > new.block_count {
            format!(
                "namespace {} has {} blocks of {} bytes, and had {} of {}",
                new.nsid, new.block_count, new.block_bytes, old.block_count, old.block_bytes
            )
        } else {
            *self = found;
            return Ok(());
        };
        Err(Error::Unusable(why))
    }
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
    /// What it keeps, once that is known.
    known: Option<KeptNamespace>,
    state: KeeperState<D>,
    /// Why there is no controller.
    reason: Option<String>,
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
            params,
            make: Box::new(make),
            signal,
            epoch: 0,
            known: None,
            state: KeeperState::GivenUp,
            reason: None,
        };
        keeper.state = KeeperState::Up(Box::new(keeper.open()?));
        Ok(keeper)
    }

    /// Of a path that is to lead to a namespace which is known, and is connected with the next
    /// [`Keeper::turn`] at the earliest.
    pub fn expecting(
        params: KeeperParams,
        signal: Arc<PathSignal>,
        known: KeptNamespace,
        make: impl FnMut() -> io::Result<D> + 'static,
    ) -> Self {
        let now = Instant::now();
        Keeper {
            params,
            make: Box::new(make),
            signal,
            epoch: 0,
            known: Some(known),
            state: KeeperState::Down(now, now),
            reason: None,
        }
    }

    /// Every attempt from now on is made as this host, the first at once where there is no
    /// controller; one that there is stays.
    pub fn set_host(&mut self, host: HostIdentity) {
        self.params.host = host;
        if let KeeperState::Down(_, next) = &mut self.state {
            *next = Instant::now();
        }
    }

    /// The namespace as it was described last; `None` before the first time.
    #[must_use]
    pub fn known(&self) -> Option<&KeptNamespace> {
        self.known.as_ref()
    }

    /// Why there is no controller, where that is known.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
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
                    false => {
                        let known = self.known.as_mut().expect("it was connected");
                        up.turn(known, is_stale, self.params.kato_ms)
                    }
                };
                match turned {
                    Ok(changed) => changed.map(|ana| PathChange::Ana { ana }),
                    Err(error) => Some(self.lose(&error)),
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

    fn lose(&mut self, error: &Error) -> PathChange {
        let now = Instant::now();
        self.reason = Some(error.to_string());
        // The connection ends here, and with it what is left of the controller.
        self.state = KeeperState::Down(now, now + self.params.reconnect_delay);
        PathChange::Lost { epoch: self.epoch }
    }

    fn try_again(&mut self, since: Instant) -> Option<PathChange> {
        match self.open() {
            Ok(up) => {
                self.state = KeeperState::Up(Box::new(up));
                self.reason = None;
                Some(self.standing())
            }
            Err(error) => {
                self.reason = Some(error.to_string());
                let (least, most) = (self.params.reconnect_delay, self.params.reconnect_delay_max);
                let pause = (since.elapsed() / 2).min(most).max(least);
                self.state = KeeperState::Down(since, Instant::now() + pause);
                None
            }
        }
    }

    fn open(&mut self) -> Result<Up<D>, Error> {
        let p = &self.params;
        let driver = (self.make)()?;
        let mut admin = Admin::connect(driver, p.to, &p.subnqn, &p.host, p.settings, p.kato_ms)?;
        let controller = admin.controller()?;
        let granted = admin.set_queue_count(p.queues)?;
        if granted < p.queues {
            return Err(Error::Unusable(format!(
                "the controller gives {granted} I/O queues of the {} asked for",
                p.queues
            )));
        }
        // What changes after this is told.
        let notices = controller.notices & (async_event::ANA_CHANGE | NAMESPACE_ATTRIBUTE);
        if notices != 0 {
            admin.enable_notices(notices)?;
        }
        let known = self.known.as_ref().map(|known| known.namespace.nsid);
        let namespace = admin.namespace(p.nsid.or(known))?;
        let found = KeptNamespace {
            identifiers: admin.identifiers(namespace.nsid)?.to_vec(),
            namespace,
        };
        match &mut self.known {
            Some(known) => known.follow(found)?,
            None => self.known = Some(found),
        }
        let mut ana = AnaState::Optimized;
        if let Some(info) = controller.ana {
            ana = admin.ana_state(info, namespace.nsid)?;
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
    fn turn(
        &mut self,
        known: &mut KeptNamespace,
        is_stale: bool,
        kato_ms: u32,
    ) -> Result<Option<AnaState>, Error> {
        if kato_ms > 0 && Instant::now() >= self.keep_alive_at {
            self.admin.keep_alive()?;
            let interval = Duration::from_millis(kato_ms.into()) / KEEP_ALIVES;
            self.keep_alive_at = Instant::now() + interval;
        }
        let event = self.admin.idle(TURN)?;
        if event.is_some_and(is_of_namespaces) {
            self.admin.read_changed_namespaces()?;
            self.look(known)?;
        }
        let has_event = event.is_some_and(|event| !is_of_namespaces(event));
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
        self.ana = self.admin.ana_state(info, known.namespace.nsid)?;
        match self.ana {
            AnaState::Change => {
                self.changing_since.get_or_insert_with(Instant::now);
            }
            _ => self.changing_since = None,
        }
        Ok(Some(self.ana))
    }

    /// Looks at the namespace again, whose attributes have changed.
    fn look(&mut self, known: &mut KeptNamespace) -> Result<(), Error> {
        let nsid = known.namespace.nsid;
        let found = KeptNamespace {
            namespace: self.admin.namespace(Some(nsid))?,
            identifiers: self.admin.identifiers(nsid)?.to_vec(),
        };
        known.follow(found)
    }
}

/// Whether an event is about the attributes of namespaces: its log page says it (Base 2.0,
/// section 5.2, Completion Queue Entry Dword 0).
fn is_of_namespaces(event: u32) -> bool {
    (event >> 16) as u8 == lid::CHANGED_NAMESPACES
}
