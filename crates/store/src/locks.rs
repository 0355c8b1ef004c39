//! Locks on ranges of a volume, held while the kernel moves their bytes.
//!
//! The volume is cut into granules, and each granule belongs to one of a fixed
//! number of stripes. A claim is noted in every stripe that its range touches;
//! two claims that overlap meet in the stripe of a granule that they share. In
//! a stripe a claim waits only while it conflicts with one that is held or that waits
//! before it. Those that have waited longest are not overtaken by any that they conflict
//! with: readers cannot starve a writer. Claims take their stripes in ascending
//! order, one after the other, so that claims never wait for each other in a circle.
//!
//! However many claims hosts have, one is compared with a number of others that grows
//! with their logarithm (`locks/stripe.rs`, `locks/held.rs`).
//!
//! Nothing is allocated for a claim that finds its range free, but for as many claims as
//! were never held at a time.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use faults::Fault;
use reactor::Ticket;

use stripe::Stripe;

mod held;
mod stripe;

/// Bytes of a granule are 1 << this: larger than nearly every I/O, which then
/// touches one stripe or two.
const GRANULE_SHIFT: u32 = 20;

/// Stripes; their set is one word.
const STRIPES: u32 = u64::BITS;

/// What is asked for: a range, alone or together with other readers. In order of where
/// it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

    /// Where it ends if it is exclusive, else 0.
    #[inline]
    fn exclusive_to(&self) -> u64 {
        match self.is_exclusive {
            true => self.to,
            false => 0,
        }
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

/// What is told that a claim that waits shall go on.
pub(crate) enum Caller {
    /// An I/O of a reactor.
    Ticket(Ticket),
    /// A thread that may block.
    Thread(Thread),
}

impl Caller {
    pub(crate) fn call(self) {
        match self {
            Caller::Ticket(ticket) => ticket.ring(),
            Caller::Thread(thread) => thread.unpark(),
        }
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

    /// Takes a range, or a place in the queue for it. The caller gives it back with
    /// [`Locks::release`].
    #[inline]
    pub(crate) fn acquire(
        self: &Arc<Locks>,
        claim: Claim,
        caller: impl FnMut() -> Caller,
    ) -> Result<(), Box<StripePlace>> {
        self.acquire_rest(claim, claim.stripes(), caller)
    }

    /// Takes a range if it is free; the answer gives it back when it is dropped.
    #[inline]
    pub(crate) fn try_acquire(self: &Arc<Locks>, claim: Claim) -> Option<HeldRange<'_>> {
        // What waits is dropped at once, before it could be called.
        let taken = self.acquire(claim, || Caller::Thread(thread::current()));
        taken.ok().map(|()| HeldRange { locks: self, claim })
    }

    /// Takes what is left of a range: the stripes of `rest`.
    #[inline]
    fn acquire_rest(
        self: &Arc<Locks>,
        claim: Claim,
        mut rest: u64,
        mut caller: impl FnMut() -> Caller,
    ) -> Result<(), Box<StripePlace>> {
        while rest != 0 {
            let index = rest.trailing_zeros();
            let taken = self.stripe(index).acquire(claim, &mut caller);
            if let Err(id) = taken {
                return Err(Box::new(StripePlace {
                    locks: Arc::clone(self),
                    claim,
                    index,
                    id,
                    is_over: false,
                }));
            }
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
            let left = give_up.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            thread::park_timeout(left);
            taken = place.go_on(me);
        }
        true
    }

    /// The same until the answer is dropped; `None` where it could not be had.
    pub(crate) fn hold_within(
        self: &Arc<Locks>,
        claim: Claim,
        patience: Duration,
    ) -> Option<HeldRange<'_>> {
        let taken = self.acquire_within(claim, patience);
        taken.then(|| HeldRange { locks: self, claim })
    }
}

/// A range that is taken for as long as this lives.
pub(crate) struct HeldRange<'l> {
    locks: &'l Locks,
    claim: Claim,
}

impl Drop for HeldRange<'_> {
    fn drop(&mut self) {
        self.locks.release(&self.claim);
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

    /// Goes on after a call: takes the rest of the range, or waits for it.
    pub(crate) fn go_on(
        mut self: Box<Self>,
        mut caller: impl FnMut() -> Caller,
    ) -> Result<(), Box<StripePlace>> {
        let going_on = self.locks.stripe(self.index).go_on(self.id, &mut caller);
        if let Err(callers) = going_on {
            callers.into_iter().for_each(Caller::call);
            return Err(self);
        }
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
        let callers = self.locks.stripe(self.index).give_up(self.id, &self.claim);
        callers.into_iter().for_each(Caller::call);
        self.locks.release_some(&self.claim, self.before());
    }
}

#[cfg(test)]
mod tests;
