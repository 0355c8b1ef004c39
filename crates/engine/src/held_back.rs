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

use machine::{Nanos, Tag};
use store::meter::IoOp;

use crate::hosts::ConnectedHost;
use crate::rate_limits::{ActiveLimit, Cost, Goal, RateLimits, TokenPlaces, try_take};

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
pub(crate) struct HeldOp<O> {
    pub(crate) op: O,
    pub(crate) demand: Demand,
    pub(crate) since: Nanos,
    /// Nothing is received before it goes on.
    pub(crate) stalls: bool,
}

/// Those for one unit, in their order.
pub(crate) struct UnitQueue<O> {
    unit: u32,
    pub(crate) ops: VecDeque<HeldOp<O>>,
    /// Where the first stands in line, once that has been looked at.
    pub(crate) places: Option<TokenPlaces>,
}

/// The operations of a connection that wait for limits.
pub struct HeldBack<O> {
    /// Never empty ones.
    pub(crate) queues: Vec<UnitQueue<O>>,
    /// One of them stands before all that comes.
    is_stalled: bool,
    /// Commands whose data may come, and which therefore need not wait again; and as what.
    pub(crate) let_in: Vec<(Tag, Demand)>,
    /// When it is time to look at them.
    pub(crate) wakes_at: Option<Nanos>,
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

    pub(crate) fn remove(
        &mut self,
        at: usize,
        nth: usize,
    ) -> Option<(HeldOp<O>, Option<TokenPlaces>)> {
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

    pub(crate) fn push(&mut self, held: HeldOp<O>) {
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

    pub(crate) fn waits_for(&self, unit: u32) -> bool {
        self.queues.iter().any(|queue| queue.unit == unit)
    }

    /// As what the data of one of these commands was let come; it is forgotten.
    pub(crate) fn take_let_in(&mut self, tags: [Option<Tag>; 2]) -> Option<Demand> {
        let mut found = None;
        self.let_in.retain(|(tag, demand)| {
            let is_meant = tags.contains(&Some(*tag));
            found = found.or(is_meant.then_some(*demand));
            !is_meant
        });
        found
    }
}
