//! One stripe: the claims that are held there and those that wait.
//!
//! A claim is compared with what is held and with the [`GUARDED_MAX`] that have waited
//! longest, so that those are not overtaken. It waits for one that it conflicts with,
//! and is looked at again when that is gone. All waits go from younger to older claims
//! or to held ones: never in a circle.
//!
//! Many may wait for one. Of those, [`LOOK_MAX`] are looked at when it is gone. While
//! some are left, the one that has waited longest is called, and looks at as many when it
//! goes on: so what nothing is in the way of is granted soon, whatever else waits.

use std::collections::{BTreeMap, BTreeSet};

use machine::work;

use super::held::HeldClaims;
use super::{Caller, Claim};

/// Claims that wait and are not overtaken by others that they conflict with.
pub(super) const GUARDED_MAX: usize = 32;

/// Other claims that wait and are looked at in one go.
const LOOK_MAX: usize = 16;

/// Claims before it that one is compared with first. Of many on one block each then
/// waits for the one before it, and none is looked at in vain.
const PREVIOUS_MAX: usize = 4;

struct Waiting {
    id: u64,
    claim: Claim,
    /// None from a call until the claim goes on.
    caller: Option<Caller>,
}

struct Unguarded {
    waiting: Waiting,
    /// The number of the claim that it waits for, or waited for until that was gone.
    waits_for: u64,
}

/// Claims have numbers in the order in which they came.
#[derive(Default)]
pub(super) struct Stripe {
    held: HeldClaims,
    /// Those that have waited longest, by number. Each conflicts with one that is held
    /// or stands before it.
    guarded: Vec<Waiting>,
    /// The others that wait, by number, all higher than those of the guarded ones.
    unguarded: BTreeMap<u64, Unguarded>,
    /// What each of them waits for, and its own number.
    waits: BTreeSet<(u64, u64)>,
    /// Claims that are gone and for which some wait still. As long as there is one, the
    /// first unguarded claim has been called and has not gone on.
    gone: BTreeSet<u64>,
    last_id: u64,
}

impl Stripe {
    /// Takes a claim, or a place among those that wait: its number.
    #[inline]
    pub(super) fn acquire(
        &mut self,
        claim: Claim,
        caller: impl FnOnce() -> Caller,
    ) -> Result<(), u64> {
        self.last_id += 1;
        let id = self.last_id;
        let Some(waits_for) = self.conflict(&claim, id) else {
            self.held.insert(claim, id);
            return Ok(());
        };
        let caller = Some(caller());
        let waiting = Waiting { id, claim, caller };
        match self.unguarded.is_empty() {
            true => self.wait(waiting, waits_for),
            false => self.wait_unguarded(waiting, waits_for),
        }
        Err(id)
    }

    /// The number of a claim that is in the way of this one: of some that wait before it
    /// or of those that are held.
    #[inline]
    fn conflict(&self, claim: &Claim, id: u64) -> Option<u64> {
        let previous = self.unguarded.range(..id).rev().take(PREVIOUS_MAX);
        let previous = previous.map(|(_, unguarded)| &unguarded.waiting);
        let guarded = self.guarded.iter().take_while(|waiting| waiting.id < id);
        let mut before = previous.chain(guarded).inspect(|_| work::spend(1));
        match before.find(|waiting| waiting.claim.conflicts(claim)) {
            Some(waiting) => Some(waiting.id),
            None => self.held.conflict(claim),
        }
    }

    /// Among those that are guarded if there is room.
    fn wait(&mut self, waiting: Waiting, waits_for: u64) {
        match self.guarded.len() < GUARDED_MAX {
            true => self.guarded.push(waiting),
            false => self.wait_unguarded(waiting, waits_for),
        }
    }

    fn wait_unguarded(&mut self, waiting: Waiting, waits_for: u64) {
        let id = waiting.id;
        self.waits.insert((waits_for, id));
        self.unguarded.insert(id, Unguarded { waiting, waits_for });
    }

    fn take_unguarded(&mut self, id: u64) -> Option<Waiting> {
        let Unguarded { waiting, waits_for } = self.unguarded.remove(&id)?;
        self.waits.remove(&(waits_for, id));
        if self.first_waiting_for(waits_for).is_none() {
            self.gone.remove(&waits_for);
        }
        Some(waiting)
    }

    fn first_waiting_for(&self, id: u64) -> Option<u64> {
        let mut waits = self.waits.range((id, 0)..=(id, u64::MAX));
        waits.next().map(|&(_, waiting)| waiting)
    }

    fn waiting(&mut self, id: u64) -> Option<&mut Waiting> {
        let guarded = self.guarded.iter_mut().find(|waiting| waiting.id == id);
        guarded.or_else(|| Some(&mut self.unguarded.get_mut(&id)?.waiting))
    }

    /// Gives a claim that is held back. Returns what to call, as all of these do.
    #[inline]
    pub(super) fn release(&mut self, claim: &Claim) -> Vec<Caller> {
        let id = self.held.remove(claim);
        match self.guarded.is_empty() && self.unguarded.is_empty() {
            true => Vec::new(),
            false => self.grant_freed(id, claim, 0),
        }
    }

    /// Gives up what a claim has: its place, or what was granted to it.
    pub(super) fn give_up(&mut self, id: u64, claim: &Claim) -> Vec<Caller> {
        if self.take_unguarded(id).is_some() {
            return self.grant_freed(id, claim, self.guarded.len());
        }
        match self.guarded.iter().position(|waiting| waiting.id == id) {
            None => self.release(claim),
            Some(at) => {
                self.guarded.remove(at);
                self.grant_freed(id, claim, at)
            }
        }
    }

    /// A claim that was called goes on, unless it still waits: then it is called again.
    pub(super) fn go_on(
        &mut self,
        id: u64,
        caller: impl FnOnce() -> Caller,
    ) -> Result<(), Vec<Caller>> {
        match self.waiting(id) {
            None => Ok(()),
            Some(waiting) => {
                waiting.caller = Some(caller());
                Err(self.look(Vec::new()))
            }
        }
    }

    /// A claim is gone that was held or waited, before the guarded claims from `from` on.
    #[cold]
    fn grant_freed(&mut self, id: u64, claim: &Claim, from: usize) -> Vec<Caller> {
        if self.first_waiting_for(id).is_some() {
            self.gone.insert(id);
        }
        let mut callers = Vec::new();
        let mut at = from;
        while let Some(next) = self.guarded.get(at) {
            work::spend(1);
            match next.claim.conflicts(claim) && self.conflict(&next.claim, next.id).is_none() {
                false => at += 1,
                true => {
                    let waiting = self.guarded.remove(at);
                    self.grant(waiting, &mut callers);
                }
            }
        }
        self.look(callers)
    }

    fn grant(&mut self, waiting: Waiting, callers: &mut Vec<Caller>) {
        self.held.insert(waiting.claim, waiting.id);
        callers.extend(waiting.caller);
    }

    /// Looks at some that wait: the oldest while there is room among the guarded ones,
    /// else those that waited for what is gone.
    fn look(&mut self, mut callers: Vec<Caller>) -> Vec<Caller> {
        for _ in 0..LOOK_MAX {
            let id = match self.guarded.len() < GUARDED_MAX {
                true => self.unguarded.keys().next().copied(),
                false => self.gone.first().and_then(|&id| self.first_waiting_for(id)),
            };
            let Some(id) = id else { break };
            let waiting = self.take_unguarded(id).expect("it waits");
            work::spend(1);
            match self.conflict(&waiting.claim, id) {
                None => self.grant(waiting, &mut callers),
                Some(waits_for) => self.wait(waiting, waits_for),
            }
        }
        if !self.gone.is_empty() {
            let first = self.unguarded.values_mut().next();
            callers.extend(first.and_then(|first| first.waiting.caller.take()));
        }
        callers
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let waits = self.guarded.len() + self.unguarded.len() + self.waits.len();
        self.held.is_empty() && waits + self.gone.len() == 0
    }
}
