//! Connections that go short of memory, and those that sit on it.
//!
//! What finds no memory waits, and the connection goes on receiving: the data
//! that others of its commands were promised memory for must come in, or none
//! of that memory would ever be free again. A command itself that finds no room is
//! different: it is refused, where its protocol has a status for that and what is behind
//! it may be about commands before it (iSCSI); else nothing more is received until others
//! of its connection have ended, which waits for no data. Where a host neither sends what it
//! was asked for nor takes what it asked for, while others go short, its
//! connection ends.

use std::collections::VecDeque;

use machine::{Nanos, work};
use reactor::Driver;

use crate::connection::Connection;
use crate::held_back::{Demand, HeldBack, HeldOp};
use crate::payload::keep_staged;
use crate::protocol::{ConnectionEvent, Protocol, ProtocolOp};
use crate::rate_limits::{TokenPlaces, take};
use crate::refusals::RefusalKind;

/// A command that found no memory for so many ticks is answered: its host is
/// about to give up on it.
const WAIT_TICKS_MAX: u32 = 50;
/// While others go short, a connection that moves no byte holds memory no
/// longer than this,
const IDLE_TICKS_MAX: u32 = 10;
/// and one that moves a few no longer than this.
const HELD_TICKS_MAX: u32 = 60;

/// For small buffers and for larger ones.
const QUEUES: usize = 2;

struct MemoryWait<O> {
    op: O,
    ticks: u32,
}

/// What waits for memory, or for limits, on one connection: at most a queue's entries.
pub struct Waiting<O> {
    /// For limits.
    pub(crate) held_back: HeldBack<O>,
    /// For small buffers, to which larger ones leave some memory, and for larger ones;
    /// each in the order they came.
    queues: [VecDeque<MemoryWait<O>>; QUEUES],
    /// Its data is in the staging buffer, or stands before its memory: nothing
    /// is received before it goes on.
    stalled: Option<MemoryWait<O>>,
}

impl<O> Default for Waiting<O> {
    fn default() -> Self {
        Waiting {
            held_back: HeldBack::default(),
            queues: Default::default(),
            stalled: None,
        }
    }
}

impl<O> Waiting<O> {
    /// Whether something stands before all that comes.
    #[inline]
    pub fn is_stalled(&self) -> bool {
        self.stalled.is_some() || self.held_back.is_stalled()
    }

    /// Whether nothing waits for memory.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// What waits will not be done.
    pub fn clear(&mut self) {
        *self = Waiting::default();
    }

    fn all(&self) -> impl Iterator<Item = &MemoryWait<O>> {
        self.queues.iter().flatten().chain(&self.stalled)
    }

    /// Whether one is `meant`.
    pub(crate) fn has(&self, meant: impl Fn(&O) -> bool) -> bool {
        self.all().any(|wait| meant(&wait.op)) || self.held_back.has(meant)
    }

    /// Takes out the first that is `meant`: it will not be executed as it is.
    pub fn take(&mut self, meant: impl Fn(&O) -> bool) -> Option<O> {
        for queue in &mut self.queues {
            if let Some(at) = queue.iter().position(|wait| meant(&wait.op)) {
                return queue.remove(at).map(|wait| wait.op);
            }
        }
        let is_meant = self.stalled.as_ref().is_some_and(|wait| meant(&wait.op));
        let stalled = self.stalled.take_if(|_| is_meant).map(|wait| wait.op);
        stalled.or_else(|| self.held_back.take(meant))
    }

    /// A tick has passed; whether something waited all of it.
    fn tick(&mut self) -> bool {
        for wait in self.queues.iter_mut().flatten().chain(&mut self.stalled) {
            wait.ticks += 1;
        }
        self.all().any(|wait| wait.ticks > 1)
    }

    /// Takes out one that has waited for too long.
    fn take_late(&mut self) -> Option<O> {
        let is_late = |wait: &MemoryWait<O>| wait.ticks > WAIT_TICKS_MAX;
        // Those in front have waited longest.
        let mut queues = self.queues.iter_mut();
        if let Some(queue) = queues.find(|queue| queue.front().is_some_and(is_late)) {
            return queue.pop_front().map(|wait| wait.op);
        }
        self.stalled
            .take_if(|wait| is_late(wait))
            .map(|wait| wait.op)
    }
}

/// What a connection does where it finds no memory.
pub trait Waits: Protocol {
    /// There was no memory for `op`.
    #[cold]
    fn wait(&mut self, op: ProtocolOp<Self>) {
        let stalls = self.core().stalls(&op);
        let core = self.core_mut();
        let wait = MemoryWait { op, ticks: 0 };
        match stalls {
            true => core.waiting.stalled = Some(wait),
            false => {
                let queue = usize::from(!core.pool.has_refused_small());
                core.waiting.queues[queue].push_back(wait);
            }
        }
    }

    /// Tries again one operation that found no small buffer, one that found no larger
    /// one, and the one that keeps others from being received. Whether one went on and
    /// more wait: connections take turns.
    #[cold]
    fn retry<D: Driver>(&mut self, driver: &mut D) -> bool {
        if self.core_mut().gives_way() {
            return false;
        }
        let mut went_on = false;
        // The operation that is first now claims anew what it needs.
        self.core_mut().pool.forget_claim();
        if self.core().waiting.stalled.is_none() {
            // Data of one of them may have come since, and stand before its memory.
            let stalls = |wait: &MemoryWait<ProtocolOp<Self>>| self.core().stalls(&wait.op);
            let mut queues = self.core().waiting.queues.iter().enumerate();
            let found = queues.find_map(|(n, queue)| Some((n, queue.iter().position(stalls)?)));
            let waiting = &mut self.core_mut().waiting;
            waiting.stalled = found.and_then(|(n, at)| waiting.queues[n].remove(at));
        }
        if let Some(wait) = self.core_mut().waiting.stalled.take() {
            work::spend(work::OPERATION_UNITS);
            went_on = self.execute(&wait.op, driver);
            match went_on {
                true => self.run(driver),
                false => self.core_mut().waiting.stalled = Some(wait),
            }
        }
        for n in 0..QUEUES {
            if let Some(wait) = self.core_mut().waiting.queues[n].pop_front() {
                work::spend(work::OPERATION_UNITS);
                match self.execute(&wait.op, driver) {
                    true => went_on = true,
                    false => self.core_mut().waiting.queues[n].push_front(wait),
                }
            }
        }
        went_on && !self.core().waiting.is_empty()
    }

    /// Looks at memory: what it waits for, and what it holds while others wait.
    fn memory_tick<D: Driver>(&mut self, now: Nanos, driver: &mut D) {
        let core = self.core_mut();
        core.link.tick();
        core.room.trim(core.jobs_open);
        if core.waiting.is_empty() {
            core.pool.forget_claim();
        }
        // The shortage counts for all only where this host holds little itself.
        if (core.waiting.tick() || core.holds_back()) && core.host.note_shortage(now) {
            core.shared.note_shortage(now);
        }
        while let Some(op) = self.core_mut().waiting.take_late() {
            self.refuse(op, driver);
            self.run(driver);
        }
        // A slow connection ends only where other hosts are short, an idle one also where
        // its own host is.
        let core = self.core();
        let is_idle = core.link.idle_ticks() >= IDLE_TICKS_MAX;
        let must_not_sit = core.shared.is_short(now) || (is_idle && core.host.is_short(now));
        if must_not_sit && sits_on_memory(self) {
            let reason = "its peer moves no data while others go short of memory";
            self.note_refusal(RefusalKind::END, &reason);
            // Peers give the rest up too when one connection is lost, and what
            // the rest waits for had better be another's.
            self.on_event(ConnectionEvent::SitsOnMemory, driver);
            self.close(driver);
        }
    }
}

impl<P: Protocol> Waits for P {}

/// Whether a connection holds memory for longer than others can wait, for data that
/// its host does not send or take.
fn sits_on_memory<P: Protocol>(c: &P) -> bool {
    let core = c.core();
    let max = match core.link.idle_ticks() {
        IDLE_TICKS_MAX.. => IDLE_TICKS_MAX,
        _ => HELD_TICKS_MAX,
    };
    if core.link.sending_ticks() >= max {
        return true;
    }
    // Its peer may have sent what is not received before there is room for commands, or
    // before a limit lets one go.
    if core.holds_back() || core.waiting.held_back.is_stalled() {
        return false;
    }
    // What a volume has just ended leaves with this turn.
    if core.link.has_unsent() && !core.link.stream.is_sending() {
        return false;
    }
    // Whatever a volume is at, or waits itself, is not the peer's doing.
    (core.link.held())
        .any(|(tag, ticks)| ticks >= max && !core.is_command_waiting(tag) && !c.is_worked_on(tag))
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
        let mut places = places.unwrap_or_else(|| TokenPlaces::new(demand.cost()));
        let goes_at = places.goes_at(&limits, now);
        self.core_mut().waiting.held_back.queues[at].places = Some(places);
        goes_at
    }

    /// The first of a queue goes.
    fn go_first<D: Driver>(&mut self, at: usize, driver: &mut D) {
        let removed = self.core_mut().waiting.held_back.remove(at, 0);
        let (held, places) = removed.expect("a queue has a first");
        if let Some(places) = places {
            places.go(driver.now(), held.since);
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
