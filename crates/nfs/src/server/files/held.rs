//! Opens and states of locks of one file, found without looking at all of them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use machine::work;
use wire::nfs4::clientid4;

use super::super::locks::LockOwner;
use super::{ShareReservation, State, StateKind};

/// Combinations of a share reservation's bits.
const SHARES: u64 = 16;

/// An open of a file.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) state: Arc<State>,
    /// Each share that was asked for and is in force: what a downgrade may ask
    /// for (RFC 8881, section 18.18.3).
    pub(super) asked: u16,
}

/// The opens of a file, of which an owner has one at most.
#[derive(Debug, Default)]
pub(super) struct Opens {
    by_owner: HashMap<LockOwner, Open>,
    /// The bits of their shares, and whose they are.
    shares: BTreeSet<(u64, LockOwner)>,
    /// How many each client has.
    by_client: BTreeMap<clientid4, usize>,
}

impl Opens {
    pub(super) fn is_empty(&self) -> bool {
        self.by_owner.is_empty()
    }

    pub(super) fn of_owner(&self, owner: LockOwner) -> Option<&Open> {
        self.by_owner.get(&owner)
    }

    /// The open of a state, while it is there.
    pub(super) fn find(&self, state: &State) -> Option<&Open> {
        let open = self.of_owner(state.owner.id);
        open.filter(|open| std::ptr::eq(&*open.state, state))
    }

    /// Whether a client other than this one has an open.
    pub(super) fn has_others(&self, client: clientid4) -> bool {
        self.by_client.keys().any(|&other| other != client)
    }

    /// An open whose share is one of those that `which` names.
    pub(super) fn find_share(&self, which: impl Fn(ShareReservation) -> bool) -> Option<&Open> {
        work::spend(SHARES);
        let mut bits = (0..SHARES).filter(|&bits| which(ShareReservation::of_bits(bits)));
        let (_, owner) = bits.find_map(|bits| {
            let mut alike = self.shares.range((bits, 0)..=(bits, LockOwner::MAX));
            alike.next()
        })?;
        self.of_owner(*owner)
    }

    pub(super) fn insert(&mut self, state: &Arc<State>) {
        let (owner, bits) = (state.owner.id, state.share().bits());
        let asked = 1 << bits;
        let state = state.clone();
        self.shares.insert((bits, owner));
        *self.by_client.entry(state.client).or_default() += 1;
        self.by_owner.insert(owner, Open { state, asked });
    }

    /// Whether it was there.
    pub(super) fn remove(&mut self, state: &State) -> bool {
        let is_there = self.find(state).is_some();
        if is_there {
            self.by_owner.remove(&state.owner.id);
            self.shares.remove(&(state.share().bits(), state.owner.id));
            if let Entry::Occupied(mut count) = self.by_client.entry(state.client) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
        is_there
    }

    /// One more share is asked for.
    pub(super) fn add_asked_share(&mut self, state: &State, share: ShareReservation) {
        if let Some(open) = self.by_owner.get_mut(&state.owner.id) {
            open.asked |= 1 << share.bits();
        }
    }

    /// Only these shares are still in force of those that were asked for.
    pub(super) fn forget_asked(&mut self, state: &State, left: u16) {
        if let Some(open) = self.by_owner.get_mut(&state.owner.id) {
            open.asked &= left;
        }
    }

    /// The share of an open is now this.
    pub(super) fn change(&mut self, state: &State, share: ShareReservation) {
        let owner = state.owner.id;
        self.shares.remove(&(state.share().bits(), owner));
        self.shares.insert((share.bits(), owner));
        state.change(share);
    }
}

/// The states that hold locks of a file, of which an owner has one at most.
#[derive(Debug, Default)]
pub(super) struct LockStates {
    by_owner: HashMap<LockOwner, Arc<State>>,
    /// The open that each belongs to, by its client and number.
    by_open: BTreeSet<(clientid4, u32, LockOwner)>,
}

/// How [`LockStates::by_open`] has it.
fn key(state: &State) -> (clientid4, u32, LockOwner) {
    let StateKind::Lock { open } = state.kind else {
        unreachable!("only locks are kept here");
    };
    (state.client, open, state.owner.id)
}

impl LockStates {
    pub(super) fn is_empty(&self) -> bool {
        self.by_owner.is_empty()
    }

    pub(super) fn of_owner(&self, owner: LockOwner) -> Option<&Arc<State>> {
        self.by_owner.get(&owner)
    }

    pub(super) fn has(&self, state: &State) -> bool {
        let found = self.of_owner(state.owner.id);
        found.is_some_and(|found| std::ptr::eq(&**found, state))
    }

    /// Whether a client other than this one has a lock.
    pub(super) fn has_others(&self, client: clientid4) -> bool {
        let edges = [self.by_open.first(), self.by_open.last()];
        let mut clients = edges.into_iter().flatten().map(|(of, ..)| *of);
        clients.any(|of| of != client)
    }

    pub(super) fn insert(&mut self, state: &Arc<State>) {
        self.by_open.insert(key(state));
        self.by_owner.insert(state.owner.id, state.clone());
    }

    pub(super) fn remove(&mut self, state: &State) {
        if self.has(state) {
            self.by_open.remove(&key(state));
            self.by_owner.remove(&state.owner.id);
        }
    }

    /// One of those of an open.
    pub(super) fn of_open(&self, open: &State) -> Option<Arc<State>> {
        let of = |owner| (open.client, open.number, owner);
        let mut keys = self.by_open.range(of(0)..=of(LockOwner::MAX));
        let (.., owner) = keys.next()?;
        self.by_owner.get(owner).cloned()
    }
}
