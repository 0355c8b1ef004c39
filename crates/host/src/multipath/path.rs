//! One path: a queue of one controller, as long as there is one.

use std::net::SocketAddr;
use std::sync::Arc;

use machine::Tag;
use nvmf::command::AnaState;
use reactor::{Driver, Token};

use super::PathRequest;
use super::select::PathAccess;
use crate::{Error, HostIdentity, Memory, PathChange, PathSignal, Queue, QueueParams};

/// No path, or no request.
pub(super) const NONE: u16 = u16::MAX;

/// Where a path leads, and what its queue is to be.
#[derive(Clone)]
pub struct PathParams {
    /// Where to connect.
    pub to: SocketAddr,
    /// The queue; controller, in-capsule data and secrets as a [`PathChange`] says.
    pub queue: QueueParams,
    /// How the path's keeper is told.
    pub signal: Arc<PathSignal>,
}

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// Not connected: not yet, or not any more.
    Down,
    /// Connected, with the ANA state of the namespace; `None` while the log is
    /// read again.
    Live(Option<AnaState>),
    /// It is not connected again.
    GivenUp,
}

/// What became of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathReport {
    /// Commands that were sent on it.
    pub ios: u64,
    /// Commands that it failed or lost and that were sent again.
    pub failovers: u64,
    /// How often its connection was made.
    pub connects: u64,
    /// How often its connection was lost.
    pub losses: u64,
    /// Why it was lost last.
    pub reason: Option<String>,
    /// What it is now.
    pub state: PathState,
}

/// A controller as a keeper has connected it.
struct Controller {
    epoch: u64,
    cntlid: u16,
    in_capsule_max: u32,
    host: Box<HostIdentity>,
}

pub(super) struct Path {
    params: PathParams,
    base: Token,
    pub(super) queue: Option<Box<Queue>>,
    /// Whether the queue is to be closed, or is.
    is_lost: bool,
    has_ended: bool,
    is_given_up: bool,
    /// Which of the controllers that the keeper has connected the queue belongs to.
    epoch: u64,
    ana: AnaState,
    /// The state was something else than what was read.
    is_distrusted: bool,
    /// To be opened when what is left of the last queue is gone.
    next: Option<Controller>,
    /// The request that a tag of the queue carries.
    carried: Vec<Tag>,
    pub(super) in_flight: u32,
    ios: u64,
    pub(super) failovers: u64,
    connects: u64,
    losses: u64,
    reason: Option<String>,
}

impl Path {
    pub(super) fn new(params: PathParams, base: Token) -> Self {
        Path {
            // A queue's tags are below its size.
            carried: vec![NONE; usize::from(params.queue.connect.sqsize) + 1],
            params,
            base,
            queue: None,
            is_lost: false,
            has_ended: false,
            is_given_up: false,
            epoch: 0,
            ana: AnaState::Inaccessible,
            is_distrusted: false,
            next: None,
            in_flight: 0,
            ios: 0,
            failovers: 0,
            connects: 0,
            losses: 0,
            reason: None,
        }
    }

    #[inline]
    pub(super) fn is_live(&self) -> bool {
        !self.is_lost && self.queue.as_ref().is_some_and(|queue| queue.is_live())
    }

    /// How good it is for commands; `None` where it takes none.
    #[inline]
    pub(super) fn access(&self) -> Option<PathAccess> {
        if self.is_distrusted || !self.is_live() {
            return None;
        }
        match self.ana {
            AnaState::Optimized => Some(PathAccess::Optimized),
            AnaState::NonOptimized => Some(PathAccess::NonOptimized),
            AnaState::Inaccessible | AnaState::PersistentLoss | AnaState::Change => None,
        }
    }

    pub(super) fn state(&self) -> PathState {
        match (self.is_live(), self.is_given_up) {
            (true, _) => PathState::Live((!self.is_distrusted).then_some(self.ana)),
            (false, true) => PathState::GivenUp,
            (false, false) => PathState::Down,
        }
    }

    pub(super) fn report(&self) -> PathReport {
        PathReport {
            ios: self.ios,
            failovers: self.failovers,
            connects: self.connects,
            losses: self.losses,
            reason: self.reason.clone(),
            state: self.state(),
        }
    }

    /// Whether the queue took the request.
    #[inline]
    pub(super) fn submit(&mut self, tag: Tag, request: &PathRequest) -> bool {
        let queue = self.queue.as_mut().expect("a path that was picked is live");
        let memory = |_| request.memory.map_or_else(Memory::default, Memory::lent);
        let Some(qtag) = queue.submit(&request.sqe, request.data, memory) else {
            return false;
        };
        self.carried[usize::from(qtag)] = tag;
        self.in_flight += 1;
        self.ios += 1;
        true
    }

    /// The request of a command that the queue has answered.
    #[inline]
    pub(super) fn take(&mut self, qtag: Tag) -> Tag {
        self.in_flight -= 1;
        std::mem::replace(&mut self.carried[usize::from(qtag)], NONE)
    }

    /// Takes every request off a queue that is gone.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Tag> {
        let count = u64::from(std::mem::take(&mut self.in_flight));
        self.failovers += if self.has_ended { 0 } else { count };
        let all = self.carried.iter_mut();
        all.map(|tag| std::mem::replace(tag, NONE))
            .filter(|tag| *tag != NONE)
    }

    /// Whether its queue has a request of which `is_so`, which is asked of each.
    pub(super) fn carries(&self, is_so: &mut impl FnMut(Tag) -> bool) -> bool {
        let carried = self.carried.iter().filter(|tag| **tag != NONE);
        carried.fold(false, |found, tag| is_so(*tag) | found)
    }

    /// No command goes here until the log was read again.
    pub(super) fn stop_until_log_is_read(&mut self) {
        self.is_distrusted = true;
        self.params.signal.set_stale();
    }

    /// Whether nothing of the queue is left.
    pub(super) fn is_gone(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.is_closed())
    }

    /// The connection is lost, or of no use: the keeper is told, and commands
    /// stay where they are until nothing is left of it.
    pub(super) fn lose<D: Driver>(&mut self, driver: &mut D, error: Option<Error>) {
        if self.is_lost {
            return;
        }
        self.is_lost = true;
        self.losses += 1;
        self.reason = error.map(|error| error.to_string()).or(self.reason.take());
        self.params.signal.set_lost(self.epoch);
        if let Some(queue) = &mut self.queue {
            queue.close(driver);
        }
    }

    /// Opens the queue of the controller that there is meanwhile.
    pub(super) fn reopen<D: Driver>(&mut self, driver: &mut D) {
        self.queue = None;
        if let Some(controller) = self.next.take() {
            self.open(driver, controller);
        }
    }

    fn open<D: Driver>(&mut self, driver: &mut D, controller: Controller) {
        if self.has_ended {
            return;
        }
        self.epoch = controller.epoch;
        self.is_lost = false;
        let mut params = self.params.queue.clone();
        params.connect_data.cntlid = controller.cntlid.into();
        params.in_capsule_max = controller.in_capsule_max;
        (params.psk, params.dhchap) = (controller.host.psk, controller.host.dhchap);
        match Queue::open(driver, self.params.to, params, self.base) {
            Ok(queue) => {
                self.connects += 1;
                self.queue = Some(Box::new(queue));
            }
            Err(error) => self.lose(driver, Some(error.into())),
        }
    }

    pub(super) fn on_change<D: Driver>(&mut self, driver: &mut D, change: PathChange) {
        match change {
            PathChange::Up {
                epoch,
                cntlid,
                in_capsule_max,
                ana,
                host,
            } => {
                let controller = Controller {
                    epoch,
                    cntlid,
                    in_capsule_max,
                    host,
                };
                (self.ana, self.is_distrusted, self.is_given_up) = (ana, false, false);
                match self.queue {
                    None => self.open(driver, controller),
                    Some(_) => self.next = Some(controller),
                }
            }
            PathChange::Ana { ana } => (self.ana, self.is_distrusted) = (ana, false),
            PathChange::Lost { epoch } => {
                self.next = self.next.take().filter(|next| next.epoch != epoch);
                if self.epoch == epoch && self.queue.is_some() {
                    self.lose(driver, None);
                }
            }
            PathChange::GivenUp => self.is_given_up = true,
        }
    }

    /// Ends the path for good.
    pub(super) fn end<D: Driver>(&mut self, driver: &mut D) {
        self.has_ended = true;
        self.next = None;
        if let Some(queue) = &mut self.queue {
            queue.close(driver);
        }
    }
}
