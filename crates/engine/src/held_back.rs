//! Operations that wait for a limit: none of them has begun, so they hold no memory but their
//! places in their queues.
//!
//! What a connection asks of one volume or export goes in its order. The first of them stands in
//! the lines of its limits, so hosts that share a limit have their turns. An operation whose data
//! stands before what comes behind keeps the connection from receiving; where what comes behind
//! may be about commands before it (iSCSI) the data is taken in, and the command waits with it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use machine::{Nanos, Tag, work};
use reactor::Driver;
use store::meter::IoOp;

use crate::connection::Connection;
use crate::hosts::ConnectedHost;
use crate::payload::keep_staged;
use crate::protocol::{Protocol, ProtocolOp};
use crate::rate_limits::{ActiveLimit, Cost, Goal, Places, RateLimits, take, try_take};
use crate::waiting::Waits;

/// An I/O that an operation begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Index of what it goes to in what the connection is served.
    pub unit: u32,
    /// A read or a write; anything else counts as a write.
    pub op: IoOp,
    /// Bytes that it moves.
    pub bytes: u64,
}

impl Demand {
    pub(crate) fn cost(self) -> Cost {
        Cost {
            op: self.op,
            bytes: self.bytes,
        }
    }
}

/// Limits for one unit, as a connection has found them.
struct UnitLimits {
    /// Where the name of the unit's volume or export lies, which says whether it is still that.
    name: usize,
    limits: Rc<[Arc<ActiveLimit>]>,
}

/// The limits that hold for one connection: looked up anew where they have changed.
pub struct OwnLimits {
    all: Arc<RateLimits>,
    host: Arc<ConnectedHost>,
    listener: u16,
    generation: Cell<u64>,
    by_unit: RefCell<BTreeMap<u32, UnitLimits>>,
}

impl OwnLimits {
    pub(crate) fn new(all: Arc<RateLimits>, host: Arc<ConnectedHost>, listener: u16) -> OwnLimits {
        OwnLimits {
            all,
            host,
            listener,
            generation: Cell::default(),
            by_unit: RefCell::default(),
        }
    }

    /// Whether there may be any.
    #[inline]
    pub fn are_used(&self) -> bool {
        self.all.are_used()
    }

    /// Those for a unit.
    pub(crate) fn of(&self, unit: u32, goal: Goal<'_>) -> Rc<[Arc<ActiveLimit>]> {
        let (Goal::Volume(text) | Goal::Export(text)) = goal;
        let name = text.as_ptr() as usize;
        let mut by_unit = self.by_unit.borrow_mut();
        let generation = self.all.generation();
        if self.generation.replace(generation) != generation {
            by_unit.clear();
        }
        if let Some(known) = by_unit.get(&unit).filter(|known| known.name == name) {
            return known.limits.clone();
        }
        let limits: Rc<[_]> = self.all.of(&self.host.name, self.listener, goal).into();
        let known = limits.clone();
        by_unit.insert(unit, UnitLimits { name, limits });
        known
    }

    /// Whether an I/O goes at once, as far as limits let it; then it has taken what it takes.
    #[inline]
    pub fn try_take(&self, demand: Demand, goal: Goal<'_>, now: Nanos) -> bool {
        try_take(&self.of(demand.unit, goal), demand.cost(), now)
    }
}

/// An operation that waits.
struct HeldOp<O> {
    op: O,
    demand: Demand,
    since: Nanos,
    /// Nothing is received before it goes on.
    stalls: bool,
}

/// Those for one unit, in their order.
struct UnitQueue<O> {
    unit: u32,
    ops: VecDeque<HeldOp<O>>,
    /// Where the first stands in line, once that has been looked at.
    places: Option<Places>,
}

/// The operations of a connection that wait for limits.
pub struct HeldBack<O> {
    /// Never empty ones.
    queues: Vec<UnitQueue<O>>,
    /// One of them stands before all that comes.
    is_stalled: bool,
    /// Commands whose data may come, and which therefore need not wait again; and as what.
    let_in: Vec<(Tag, Demand)>,
    /// When it is time to look at them.
    wakes_at: Option<Nanos>,
}

impl<O> Default for HeldBack<O> {
    fn default() -> Self {
        HeldBack {
            queues: Vec::new(),
            is_stalled: false,
            let_in: Vec::new(),
            wakes_at: None,
        }
    }
}

impl<O> HeldBack<O> {
    /// Whether nothing is received before one goes on.
    #[inline]
    pub(crate) fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// Whether none waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// When it is time to look at them.
    #[inline]
    pub(crate) fn wakes_at(&self) -> Option<Nanos> {
        self.wakes_at.filter(|_| !self.is_empty())
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.queues.iter().map(|queue| queue.ops.len()).sum()
    }

    /// Whether one is `meant`.
    pub(crate) fn has(&self, meant: impl Fn(&O) -> bool) -> bool {
        let mut ops = self.queues.iter().flat_map(|queue| &queue.ops);
        ops.any(|held| meant(&held.op))
    }

    /// Takes out the first that is `meant`: it will not be executed.
    pub(crate) fn take(&mut self, meant: impl Fn(&O) -> bool) -> Option<O> {
        let found = self.queues.iter().enumerate().find_map(|(at, queue)| {
            let nth = queue.ops.iter().position(|held| meant(&held.op))?;
            Some((at, nth))
        });
        let (at, nth) = found?;
        self.remove(at, nth).map(|(held, _)| held.op)
    }

    fn remove(&mut self, at: usize, nth: usize) -> Option<(HeldOp<O>, Option<Places>)> {
        let queue = &mut self.queues[at];
        let held = queue.ops.remove(nth)?;
        self.is_stalled &= !held.stalls;
        let mut places = None;
        if nth == 0 {
            places = queue.places.take();
            self.wakes_at = Some(0);
        }
        if queue.ops.is_empty() {
            self.queues.remove(at);
        }
        Some((held, places))
    }

    fn push(&mut self, held: HeldOp<O>) {
        let unit = held.demand.unit;
        self.is_stalled |= held.stalls;
        let queue = self.queues.iter_mut().find(|queue| queue.unit == unit);
        match queue {
            Some(queue) => queue.ops.push_back(held),
            None => {
                self.queues.push(UnitQueue {
                    unit,
                    ops: VecDeque::from([held]),
                    places: None,
                });
                self.wakes_at = Some(0);
            }
        }
    }

    fn waits_for(&self, unit: u32) -> bool {
        self.queues.iter().any(|queue| queue.unit == unit)
    }

    /// As what the data of one of these commands was let come; it is forgotten.
    fn take_let_in(&mut self, tags: [Option<Tag>; 2]) -> Option<Demand> {
        let mut found = None;
        self.let_in.retain(|(tag, demand)| {
            let is_meant = tags.contains(&Some(*tag));
            found = found.or(is_meant.then_some(*demand));
            !is_meant
        });
        found
    }
}

/// What a connection does about limits.
pub trait Limited: Protocol {
    /// Executes an operation, unless a limit holds it back.
    #[inline]
    fn execute_or_hold<D: Driver>(&mut self, op: ProtocolOp<Self>, driver: &mut D) {
        if self.core().limits.are_used() && !self.is_let_in(&op, driver.now()) {
            self.hold_back(op, driver);
        } else if !self.execute(&op, driver) {
            self.wait(op);
        }
    }

    /// Whether no limit keeps an operation from being executed; then it has taken what it takes.
    fn is_let_in(&mut self, op: &ProtocolOp<Self>, now: Nanos) -> bool {
        let tags = Self::commands(op);
        let [Some(tag), _] = tags else {
            return true;
        };
        let is_whole = Self::is_whole(op);
        let let_in = self.core_mut().waiting.held_back.take_let_in(tags);
        let Some(demand) = self.demand(op) else {
            return true;
        };
        // Where it was let in as another, that was a command of its tag that has ended since.
        if is_whole && let_in == Some(demand) {
            return true;
        }
        let Some(goal) = self.goal(demand.unit) else {
            return true;
        };
        // What is behind is about commands before it: the data is taken in.
        if Self::REFUSES_COMMANDS && !is_whole && self.core().stalls(op) {
            return true;
        }
        let is_first = !self.core().waiting.held_back.waits_for(demand.unit);
        let goes = is_first && self.core().limits.try_take(demand, goal, now);
        if goes && !is_whole {
            self.core_mut().waiting.held_back.let_in.push((tag, demand));
        }
        goes
    }

    /// An operation waits for a limit.
    #[cold]
    fn hold_back<D: Driver>(&mut self, op: ProtocolOp<Self>, driver: &mut D) {
        let (Some(demand), [Some(tag), _]) = (self.demand(&op), Self::commands(&op)) else {
            unreachable!("what begins no I/O waits for no limit");
        };
        self.held_back(&op);
        let core = self.core_mut();
        if Self::is_whole(&op) && !keep_staged(&mut core.link, tag, |len| core.pool.get(len)) {
            // It cannot stay where it is. So it goes, and what it takes others wait for.
            return self.go_anyway(op, demand, driver);
        }
        let held = HeldOp {
            stalls: self.core().stalls(&op),
            since: driver.now(),
            op,
            demand,
        };
        self.core_mut().waiting.held_back.push(held);
    }

    /// An operation waits no longer, whatever limits say.
    #[cold]
    fn go_anyway<D: Driver>(&mut self, op: ProtocolOp<Self>, demand: Demand, driver: &mut D) {
        if let Some(goal) = self.goal(demand.unit) {
            let limits = self.core().limits.of(demand.unit, goal);
            take(&limits, demand.cost(), driver.now());
        }
        if !self.execute(&op, driver) {
            self.wait(op);
        }
    }

    /// Executes what limits let go now, of each unit in turn.
    #[cold]
    fn go_on_held_back<D: Driver>(&mut self, driver: &mut D) {
        if Self::REFUSES_COMMANDS {
            self.take_in_what_stalls(driver);
        }
        let mut has_gone = true;
        while std::mem::take(&mut has_gone) {
            let (mut at, mut wakes_at) = (0, None);
            while at < self.core().waiting.held_back.queues.len() {
                if self.core_mut().gives_way() {
                    return;
                }
                work::spend(1);
                let queues = self.core().waiting.held_back.queues.len();
                match self.first_goes_at(at, driver.now()) {
                    goes_at if goes_at <= driver.now() => {
                        has_gone = true;
                        self.go_first(at, driver);
                    }
                    goes_at => {
                        let first: Nanos = wakes_at.unwrap_or(Nanos::MAX);
                        wakes_at = Some(first.min(goes_at));
                    }
                }
                let is_gone = self.core().waiting.held_back.queues.len() < queues;
                at += usize::from(!is_gone);
            }
            self.core_mut().waiting.held_back.wakes_at = wakes_at;
        }
    }

    /// When the first of a queue may go. What it goes to, or its limits, may be others by now.
    fn first_goes_at(&mut self, at: usize, now: Nanos) -> Nanos {
        let held_back = &mut self.core_mut().waiting.held_back;
        let queue = &mut held_back.queues[at];
        let (demand, places) = (queue.ops[0].demand, queue.places.take());
        let Some(goal) = self.goal(demand.unit) else {
            return now;
        };
        let limits = self.core().limits.of(demand.unit, goal);
        let mut places = places.unwrap_or_else(|| Places::new(demand.cost()));
        let goes_at = places.goes_at(&limits, now);
        self.core_mut().waiting.held_back.queues[at].places = Some(places);
        goes_at
    }

    /// The first of a queue goes.
    fn go_first<D: Driver>(&mut self, at: usize, driver: &mut D) {
        let removed = self.core_mut().waiting.held_back.remove(at, 0);
        let (held, places) = removed.expect("a queue has a first");
        if let (Some(places), Some(goal)) = (places, self.goal(held.demand.unit)) {
            let limits = self.core().limits.of(held.demand.unit, goal);
            places.go(&limits, driver.now(), held.since);
        }
        let [Some(tag), _] = Self::commands(&held.op) else {
            unreachable!("what waits is of a command");
        };
        let held_back = &mut self.core_mut().waiting.held_back;
        if !Self::is_whole(&held.op) {
            held_back.let_in.push((tag, held.demand));
        }
        work::spend(work::OPERATION_UNITS);
        let HeldOp { op, stalls, .. } = held;
        if !self.execute(&op, driver) {
            self.wait(op);
        }
        if stalls {
            self.run(driver);
        }
    }

    /// Data of commands that wait has come since, and stands before what is behind it.
    fn take_in_what_stalls<D: Driver>(&mut self, driver: &mut D) {
        let stalls = |op: &ProtocolOp<Self>| !Self::is_whole(op) && self.core().stalls(op);
        let mut ops = (self.core().waiting.held_back.queues.iter()).flat_map(|queue| &queue.ops);
        let Some(held) = ops.find(|held| stalls(&held.op)) else {
            return;
        };
        let tags = Self::commands(&held.op);
        let taken = (self.core_mut().waiting.held_back).take(|op| Self::commands(op) == tags);
        let op = taken.expect("it was found");
        if !self.execute(&op, driver) {
            self.wait(op);
        }
        self.run(driver);
    }
}

impl<P: Protocol> Limited for P {}
