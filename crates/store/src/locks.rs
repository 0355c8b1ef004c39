//! Locks on ranges of a volume, held while the kernel moves their bytes.
//!
//! The volume is cut into granules, and each granule belongs to one of a fixed
//! number of stripes. A claim is noted in every stripe that its range touches;
//! two claims that overlap meet in the stripe of a granule that they share. In
//! a stripe no claim overtakes one that it conflicts with, also one that waits:
//! readers cannot starve a writer. Claims take their stripes in ascending
//! order, one after the other, so that claims never wait for each other in a circle.
//!
//! A claim is compared with a bounded number of others, however many commands hosts
//! send: [`HELD_MAX`] that are held in a stripe and [`LOOK_MAX`] that wait there. What
//! comes when there are as many waits behind them.
//!
//! Nothing is allocated for a claim that finds its range free.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use faults::Fault;
use machine::work;
use reactor::Ticket;

/// Bytes of a granule are 1 << this: larger than nearly every I/O, which then
/// touches one stripe or two.
const GRANULE_SHIFT: u32 = 20;

/// Stripes; their set is one word.
const STRIPES: u32 = u64::BITS;

/// Claims held in a stripe at most: more than a disk has under way at a time.
const HELD_MAX: usize = 256;

/// Claims that wait in a stripe and are looked at: those that have waited longest.
const LOOK_MAX: usize = 64;

/// What is asked for: a range, alone or together with other readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    from: u64,
    to: u64,
    is_exclusive: bool,
}

impl Claim {
    /// Of `len` bytes, at least one. A range that no volume has is cut off.
    #[inline]
    pub(crate) fn new(offset: u64, len: u64, is_exclusive: bool) -> Claim {
        debug_assert!(len > 0, "a claim on nothing");
        Claim {
            from: offset,
            to: offset.saturating_add(len),
            is_exclusive,
        }
    }

    #[inline]
    fn conflicts(&self, other: &Claim) -> bool {
        (self.is_exclusive || other.is_exclusive) && self.from < other.to && other.from < self.to
    }

    /// The stripes that it touches, one bit each.
    #[inline]
    fn stripes(&self) -> u64 {
        let first = self.from >> GRANULE_SHIFT;
        let count = ((self.to - 1).max(self.from) >> GRANULE_SHIFT) - first + 1;
        let count = if faults::is(Fault::LockOneStripe) {
            1
        } else {
            count
        };
        match count < u64::from(STRIPES) {
            true => ((1 << count) - 1u64).rotate_left((first % u64::from(STRIPES)) as u32),
            false => u64::MAX,
        }
    }
}

/// Who is told that a claim that waited is granted.
pub(crate) enum Caller {
    /// An I/O of a reactor.
    Ticket(Ticket),
    /// A thread that may block.
    Thread(Thread),
}

impl Caller {
    fn call(self) {
        match self {
            Caller::Ticket(ticket) => ticket.ring(),
            Caller::Thread(thread) => thread.unpark(),
        }
    }
}

struct WaitingClaim {
    claim: Claim,
    caller: Caller,
}

#[derive(Default)]
struct Stripe {
    held: Vec<Claim>,
    /// By number, which is the order that they came in.
    queue: BTreeMap<u64, WaitingClaim>,
    last_id: u64,
}

impl Stripe {
    #[inline]
    fn is_free(&self, claim: &Claim) -> bool {
        if self.held.len() >= HELD_MAX || self.queue.len() >= LOOK_MAX {
            return false;
        }
        work::spend((self.held.len() + self.queue.len()) as u64);
        let held = self.held.iter().all(|other| !other.conflicts(claim));
        held && self.queue.values().all(|w| !w.claim.conflicts(claim))
    }

    /// Whether a claim with this number is among those that are looked at.
    fn looks_at(&self, id: u64) -> bool {
        self.queue.range(..id).nth(LOOK_MAX - 1).is_none()
    }

    /// `gone` no longer stands in the way of those that came after it, whose numbers
    /// begin with `from`: grants what waited for it.
    #[inline]
    fn grant(&mut self, gone: &Claim, from: u64) -> Vec<Caller> {
        match self.queue.range(from..).next() {
            None => Vec::new(),
            Some(_) => self.grant_queued(gone, from),
        }
    }

    #[cold]
    fn grant_queued(&mut self, gone: &Claim, from: u64) -> Vec<Caller> {
        // Some may wait because there were so many.
        let is_crowded = self.queue.len() >= LOOK_MAX || self.held.len() + 1 >= HELD_MAX;
        let (mut stays, mut granted): (Vec<Claim>, Vec<u64>) = Default::default();
        for (&id, WaitingClaim { claim, .. }) in &self.queue {
            if self.held.len() >= HELD_MAX || stays.len() >= LOOK_MAX {
                break;
            }
            work::spend(1);
            let mut before = self.held.iter().chain(&stays).inspect(|_| work::spend(1));
            let may_go = id >= from && (is_crowded || claim.conflicts(gone));
            match may_go && !before.any(|other| other.conflicts(claim)) {
                false => stays.push(*claim),
                true => {
                    self.held.push(*claim);
                    granted.push(id);
                }
            }
        }
        let queue = &mut self.queue;
        let waiting = granted.into_iter().filter_map(|id| queue.remove(&id));
        waiting.map(|waiting| waiting.caller).collect()
    }

    /// Claims that are the same stand for each other.
    #[inline]
    fn release(&mut self, claim: &Claim) -> Vec<Caller> {
        let at = self.held.iter().position(|other| other == claim);
        self.held.swap_remove(at.expect("a claim is held once"));
        self.grant(claim, 0)
    }
}

/// Apart from each other in cache, as reactors use them at the same time.
#[repr(align(128))]
#[derive(Default)]
struct CacheLine(Mutex<Stripe>);

/// See the module.
pub(crate) struct Locks(Box<[CacheLine]>);

impl Locks {
    pub(crate) fn new() -> Arc<Locks> {
        let stripes = (0..STRIPES).map(|_| CacheLine::default());
        Arc::new(Locks(stripes.collect()))
    }

    #[inline]
    fn stripe(&self, index: u32) -> MutexGuard<'_, Stripe> {
        let line = &self.0[index as usize];
        line.0.lock().expect("nothing panics under this lock")
    }

    /// Takes a range, or a place in the queue for it. Who took it gives it back
    /// with [`Locks::release`].
    #[inline]
    pub(crate) fn acquire(
        self: &Arc<Locks>,
        claim: Claim,
        caller: impl FnOnce() -> Caller,
    ) -> Result<(), Box<StripePlace>> {
        self.acquire_rest(claim, claim.stripes(), caller)
    }

    /// Takes what is left of a range: the stripes of `rest`.
    #[inline]
    fn acquire_rest(
        self: &Arc<Locks>,
        claim: Claim,
        mut rest: u64,
        caller: impl FnOnce() -> Caller,
    ) -> Result<(), Box<StripePlace>> {
        while rest != 0 {
            let index = rest.trailing_zeros();
            let mut stripe = self.stripe(index);
            if !stripe.is_free(&claim) {
                stripe.last_id += 1;
                let id = stripe.last_id;
                let caller = caller();
                stripe.queue.insert(id, WaitingClaim { claim, caller });
                return Err(Box::new(StripePlace {
                    locks: Arc::clone(self),
                    claim,
                    index,
                    id,
                    is_over: false,
                }));
            }
            stripe.held.push(claim);
            rest &= rest - 1;
        }
        Ok(())
    }

    /// Gives a range back.
    #[inline]
    pub(crate) fn release(&self, claim: &Claim) {
        self.release_some(claim, claim.stripes());
    }

    #[inline]
    fn release_some(&self, claim: &Claim, mut some: u64) {
        while some != 0 {
            let callers = self.stripe(some.trailing_zeros()).release(claim);
            callers.into_iter().for_each(Caller::call);
            some &= some - 1;
        }
    }

    /// Takes a range, waiting up to `patience` for it; whether it could.
    pub(crate) fn acquire_within(self: &Arc<Locks>, claim: Claim, patience: Duration) -> bool {
        let give_up = Instant::now() + patience;
        let me = || Caller::Thread(thread::current());
        let mut taken = self.acquire(claim, me);
        while let Err(place) = taken {
            while !place.is_granted() {
                let left = give_up.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return false;
                }
                thread::park_timeout(left);
            }
            taken = place.go_on(me);
        }
        true
    }
}

/// A place in the queue of one stripe. Dropped, everything that the claim has
/// so far is given back.
pub(crate) struct StripePlace {
    locks: Arc<Locks>,
    claim: Claim,
    /// The stripe that it waits in; those before it are held.
    index: u32,
    id: u64,
    /// What it stands for has become another's care.
    is_over: bool,
}

impl StripePlace {
    /// The stripes before its own.
    fn before(&self) -> u64 {
        self.claim.stripes() & ((1 << self.index) - 1)
    }

    fn is_granted(&self) -> bool {
        let stripe = self.locks.stripe(self.index);
        !stripe.queue.contains_key(&self.id)
    }

    /// Goes on after a call: takes the rest of the range or waits for that.
    pub(crate) fn go_on(mut self, caller: impl FnOnce() -> Caller) -> Result<(), Box<StripePlace>> {
        assert!(self.is_granted(), "goes on before it was called");
        self.is_over = true;
        let rest = self.claim.stripes() & !self.before() & !(1 << self.index);
        self.locks.acquire_rest(self.claim, rest, caller)
    }
}

impl fmt::Debug for StripePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({:?})", self.claim)
    }
}

impl Drop for StripePlace {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut stripe = self.locks.stripe(self.index);
        let callers = match stripe.queue.remove(&self.id) {
            Some(_) if stripe.looks_at(self.id) => stripe.grant(&self.claim, self.id),
            Some(_) => Vec::new(),
            None => stripe.release(&self.claim),
        };
        drop(stripe);
        callers.into_iter().for_each(Caller::call);
        self.locks.release_some(&self.claim, self.before());
    }
}

#[cfg(test)]
mod tests;
