//! Connections that go short of memory, and those that sit on it.
//!
//! What finds no memory waits, and the connection goes on receiving: the data
//! that others of its commands were promised memory for must come in, or none
//! of that memory would ever be free again. Where a host neither sends what it
//! was asked for nor takes what it asked for, while others go short, its
//! connection ends.

use std::collections::VecDeque;

use machine::{Nanos, work};
use mem::Pool;
use reactor::Driver;

use crate::connection::{Connection, Op, Protocol};
use crate::refusals::Kind;
use crate::shared::{Mail, Shared};

/// A command that found no memory for so many ticks is answered: its host is
/// about to give up on it.
const WAIT_TICKS_MAX: u32 = 50;
/// While others go short, a connection that moves no byte holds memory no
/// longer than this,
const IDLE_TICKS_MAX: u32 = 10;
/// and one that moves a few no longer than this.
const HELD_TICKS_MAX: u32 = 60;

/// What reactors tell each other where memory is short. What one gives back lies
/// free in its pool, or in the share of a host, and nobody elsewhere would look
/// before the next tick.
#[derive(Default)]
pub(crate) struct Shortage {
    /// A connection of this reactor waits for memory.
    pub is_here: bool,
    /// The others know.
    pub has_asked: bool,
    /// Reactors that wait to hear that something was given back.
    wanted_by: Vec<usize>,
    /// One of them has asked since this was looked at.
    is_asked: bool,
    /// What had been given back when they asked.
    given_back: u64,
}

impl Shortage {
    /// Whether there is something to ask or to tell.
    #[inline]
    pub(crate) fn concerns_others(&self) -> bool {
        (self.is_here && !self.has_asked) || !self.wanted_by.is_empty()
    }

    /// Another reactor goes short.
    pub(crate) fn wanted(&mut self, by: usize, pool: &Pool) {
        if self.wanted_by.is_empty() {
            self.given_back = pool.given_back();
        }
        self.is_asked = true;
        if !self.wanted_by.contains(&by) {
            self.wanted_by.push(by);
        }
    }

    /// Asks the others, once, and tells those that have asked.
    #[cold]
    pub(crate) fn turn_ends(&mut self, shared: &Shared, here: usize, pool: &Pool) {
        if self.is_here && !std::mem::replace(&mut self.has_asked, true) {
            let others = (0..shared.load.len()).filter(|&other| other != here);
            others.for_each(|other| shared.send(other, Mail::MemoryWanted(here)));
        }
        let is_asked = std::mem::take(&mut self.is_asked);
        let has_given = pool.given_back() != self.given_back;
        if self.wanted_by.is_empty() || !(is_asked || has_given) {
            return;
        }
        if pool.trim() > 0 || has_given {
            for reactor in self.wanted_by.drain(..) {
                shared.send(reactor, Mail::MemoryFreed);
            }
        }
    }
}

struct Wait<O> {
    op: O,
    ticks: u32,
}

/// What waits for memory on one connection, at most a queue's entries.
pub(crate) struct Waiting<O> {
    /// For small buffers, to which larger ones leave some memory, and for larger ones;
    /// each in the order they came.
    queues: [VecDeque<Wait<O>>; 2],
    /// Its data is in the staging buffer, or stands before its memory: nothing
    /// is received before it goes on.
    stalled: Option<Wait<O>>,
}

impl<O> Default for Waiting<O> {
    fn default() -> Self {
        Waiting {
            queues: Default::default(),
            stalled: None,
        }
    }
}

impl<O> Waiting<O> {
    #[inline]
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.is_some()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    pub(crate) fn clear(&mut self) {
        *self = Waiting::default();
    }

    fn all(&self) -> impl Iterator<Item = &Wait<O>> {
        self.queues.iter().flatten().chain(&self.stalled)
    }

    fn has(&self, meant: impl Fn(&O) -> bool) -> bool {
        self.all().any(|wait| meant(&wait.op))
    }

    /// Takes out the first that is `meant`: it will not be executed as it is.
    pub(crate) fn take(&mut self, meant: impl Fn(&O) -> bool) -> Option<O> {
        for queue in &mut self.queues {
            if let Some(at) = queue.iter().position(|wait| meant(&wait.op)) {
                return queue.remove(at).map(|wait| wait.op);
            }
        }
        let is_meant = self.stalled.as_ref().is_some_and(|wait| meant(&wait.op));
        self.stalled.take_if(|_| is_meant).map(|wait| wait.op)
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
        let is_late = |wait: &Wait<O>| wait.ticks > WAIT_TICKS_MAX;
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

impl<P: Protocol> Connection<P> {
    /// There was no memory for `op`.
    #[cold]
    pub(crate) fn wait(&mut self, op: Op<P>) {
        let stalls = P::stalls(self, &op);
        let wait = Wait { op, ticks: 0 };
        match stalls {
            true => self.waiting.stalled = Some(wait),
            false => {
                let queue = usize::from(!self.pool.has_refused_small());
                self.waiting.queues[queue].push_back(wait);
            }
        }
    }

    /// Tries again one operation that found no small buffer, one that found no larger
    /// one, and the one that keeps others from being received. Whether one went on and
    /// more wait: connections take turns.
    #[cold]
    pub(crate) fn retry<D: Driver>(&mut self, driver: &mut D) -> bool {
        if self.gives_way() {
            return false;
        }
        let mut went_on = false;
        // Who is first now claims anew what it needs.
        self.pool.forget_claim();
        if self.waiting.stalled.is_none() {
            // Data of one of them may have come since, and stand before its memory.
            let stalls = |wait: &Wait<Op<P>>| P::stalls(self, &wait.op);
            let mut queues = self.waiting.queues.iter().enumerate();
            let found = queues.find_map(|(n, queue)| Some((n, queue.iter().position(stalls)?)));
            self.waiting.stalled = found.and_then(|(n, at)| self.waiting.queues[n].remove(at));
        }
        if let Some(wait) = self.waiting.stalled.take() {
            work::spend(work::OPERATION_UNITS);
            went_on = P::execute(self, &wait.op, driver);
            match went_on {
                true => self.run(driver),
                false => self.waiting.stalled = Some(wait),
            }
        }
        for n in 0..self.waiting.queues.len() {
            if let Some(wait) = self.waiting.queues[n].pop_front() {
                work::spend(work::OPERATION_UNITS);
                match P::execute(self, &wait.op, driver) {
                    true => went_on = true,
                    false => self.waiting.queues[n].push_front(wait),
                }
            }
        }
        went_on && !self.waiting.is_empty()
    }

    /// Looks at memory: what it waits for, and what it holds while others wait.
    pub(crate) fn memory_tick<D: Driver>(&mut self, now: Nanos, driver: &mut D) {
        self.link.tick();
        if self.waiting.is_empty() {
            self.pool.forget_claim();
        }
        // A host that holds much itself is in nobody's way but its own.
        if self.waiting.tick() && self.host.note_shortage(now) {
            self.shared.note_shortage(now);
        }
        while let Some(op) = self.waiting.take_late() {
            P::refuse_late(self, op, driver);
            self.run(driver);
        }
        // Who is slow is in nobody's way as long as only his own host waits.
        let is_idle = self.link.idle_ticks() >= IDLE_TICKS_MAX;
        let must_not_sit = self.shared.is_short(now) || (is_idle && self.host.is_short(now));
        if must_not_sit && self.sits_on_memory() {
            let reason = "its peer moves no data while others go short of memory";
            self.note_refusal(Kind::End, &reason);
            // Peers give the rest up too when one connection is lost, and what
            // the rest waits for had better be another's.
            P::end_all(self);
            self.close(driver);
        }
    }

    /// Whether its host or others have waited for memory a moment ago.
    pub(crate) fn is_short(&self, now: Nanos) -> bool {
        self.shared.is_short(now) || self.host.is_short(now)
    }

    /// Whether it holds memory for longer than others can wait, for data that
    /// its host does not send or take.
    fn sits_on_memory(&self) -> bool {
        let max = match self.link.idle_ticks() {
            IDLE_TICKS_MAX.. => IDLE_TICKS_MAX,
            _ => HELD_TICKS_MAX,
        };
        if self.link.sending_ticks() >= max {
            return true;
        }
        // What a volume has just ended leaves with this turn.
        if self.link.has_unsent() && !self.link.is_sending() {
            return false;
        }
        // Whatever a volume is at, or waits itself, is not the peer's doing.
        (self.link.held()).any(|(tag, ticks)| {
            ticks >= max && !self.waiting.has(|op| P::is_of(op, tag)) && !P::is_worked_on(self, tag)
        })
    }
}
