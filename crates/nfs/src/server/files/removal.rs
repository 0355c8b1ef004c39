//! States that are taken away from their clients, in steps: a client may have very
//! many, and others have their turns meanwhile.

use std::collections::{BTreeMap, BTreeSet, btree_set};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::vec;

use machine::{locked, work};
use wire::nfs4::clientid4;

use super::super::locks::{LockOwner, Range};
use super::state::{BY_ADMIN, GONE, REVOKED};
use super::{FileKey, Files, Owner, OwnerKind, State, StateKind};

/// States that are being taken away: [`Files::take_away`].
pub struct Removal {
    states: Box<dyn Iterator<Item = Arc<State>> + Send>,
    scope: RemovalScope,
    /// Files where there were locks: waiters for those are woken at the end.
    unlocked: BTreeSet<FileKey>,
}

enum RemovalScope {
    /// A client that is gone, with its owners.
    Client {
        client: clientid4,
        by_owner: btree_set::IntoIter<(LockOwner, u32)>,
        owners: BTreeMap<(OwnerKind, Box<[u8]>), Arc<Owner>>,
    },
    /// Of what these clients have, that in this file system.
    FileSystem {
        system: u64,
        clients: vec::IntoIter<clientid4>,
    },
}

/// What one step has taken away.
#[derive(Debug, Default)]
pub struct Removed {
    /// The files that were held ([`State::holds_file`]), one for each state: the file system is
    /// to be told.
    pub closed: Vec<FileKey>,
    /// Clients that have lost something to the administrator.
    pub losers: Vec<clientid4>,
    /// Nothing is left to be taken away.
    pub is_done: bool,
}

impl Files {
    /// A client is gone: from now on it has nothing that is good for anything, and gets
    /// nothing more. What it had stays in the way of others until it is taken away.
    /// `None` where there is nothing to take, or another removal is at it.
    pub fn forget_client(&self, client: clientid4) -> Option<Removal> {
        let holdings = self.holdings(client)?;
        let mut holdings = locked(&holdings);
        if std::mem::replace(&mut holdings.is_gone, true) {
            return None;
        }
        let states = std::mem::take(&mut holdings.states);
        Some(Removal {
            states: Box::new(states.into_values()),
            scope: RemovalScope::Client {
                client,
                by_owner: std::mem::take(&mut holdings.by_owner).into_iter(),
                owners: std::mem::take(&mut holdings.owners),
            },
            unlocked: BTreeSet::new(),
        })
    }

    /// Whether a client is gone and what it had is not all taken away yet.
    pub fn is_leaving(&self, client: clientid4) -> bool {
        self.holdings(client)
            .is_some_and(|holdings| locked(&holdings).is_gone)
    }

    /// All that clients have in a file system is taken away by the administrator.
    pub fn revoke_system(&self, system: u64) -> Removal {
        let clients = locked(&self.clients);
        let clients: Vec<_> = clients.keys().copied().collect();
        Removal {
            states: Box::new(std::iter::empty()),
            scope: RemovalScope::FileSystem {
                system,
                clients: clients.into_iter(),
            },
            unlocked: BTreeSet::new(),
        }
    }

    /// Takes away as much as the turn has a share for ([`machine::work`]), and some
    /// in any case.
    pub fn take_away(&self, removal: &mut Removal) -> Removed {
        let mut removed = Removed::default();
        loop {
            match removal.states.next() {
                Some(state) => self.take_state(removal, &state, &mut removed),
                None => removed.is_done = !self.take_rest(removal),
            }
            if removed.is_done || work::is_used_up() {
                return removed;
            }
        }
    }

    /// Removes a state, wherever it is; one that is over is nowhere any more.
    fn take_state(&self, removal: &mut Removal, state: &Arc<State>, removed: &mut Removed) {
        work::spend(work::OPERATION_UNITS);
        let taken = self.take_from_file(state);
        if taken.was_locked {
            removal.unlocked.insert(state.file);
        }
        if taken.was_open {
            work::spend(work::OPERATION_UNITS);
            removed.closed.push(state.file);
        }
        match &mut removal.scope {
            RemovalScope::Client { by_owner, .. } => {
                by_owner.next();
                self.held.fetch_sub(1, Ordering::Relaxed);
            }
            RemovalScope::FileSystem { .. } if taken.was_there => {
                state.mark(REVOKED | BY_ADMIN);
                self.count_revoked(state.client);
                if removed.losers.last() != Some(&state.client) {
                    removed.losers.push(state.client);
                }
            }
            RemovalScope::FileSystem { .. } => {}
        }
    }

    /// What there is beside states, or states of the next client; whether there is more.
    fn take_rest(&self, removal: &mut Removal) -> bool {
        work::spend(1);
        match &mut removal.scope {
            RemovalScope::Client { owners, .. } => {
                if owners.pop_first().is_some() {
                    self.held.fetch_sub(1, Ordering::Relaxed);
                    return true;
                }
            }
            RemovalScope::FileSystem { system, clients } => {
                if let Some(client) = clients.next() {
                    let states = self.states_of(client, |state| state.file.0 == *system);
                    removal.states = Box::new(states.into_iter());
                    return true;
                }
            }
        }
        if let Some(key) = removal.unlocked.pop_first() {
            if let Some(file) = self.shard(key).get_mut(&key) {
                self.wake(file, Range::ALL);
            }
            return true;
        }
        if let RemovalScope::Client { client, .. } = removal.scope {
            let mut clients = locked(&self.clients);
            clients.remove(&client);
        }
        false
    }

    /// Removes a state from its file, unless it was removed before.
    fn take_from_file(&self, state: &Arc<State>) -> TakenState {
        let mut taken = TakenState::default();
        let mut shard = self.shard(state.file);
        if state.is_over() {
            return taken;
        }
        taken.was_there = true;
        state.mark(GONE);
        let Some(file) = shard.get_mut(&state.file) else {
            return taken;
        };
        match state.kind {
            StateKind::Open => taken.was_open = file.opens.remove(state),
            StateKind::Share => {
                file.shares.remove(state);
            }
            StateKind::Lock { .. } => {
                file.lock_states.remove(state);
                taken.was_locked =
                    file.change_locks(&state.owner, |locks| locks.unlock_all(state.owner.id));
            }
            StateKind::Delegation => {
                taken.was_open = state.holds_file();
                self.delegations.fetch_sub(1, Ordering::Relaxed);
                work::spend(file.delegations.len() as u64);
                file.delegations.retain(|d| !Arc::ptr_eq(&d.state, state));
            }
            StateKind::Copy => {}
        }
        if file.is_empty() {
            // Hosts of NFSv3 wait without having anything in the file.
            self.wake(file, Range::ALL);
            shard.remove(&state.file);
        }
        taken
    }
}

/// What a state was that has been taken away.
#[derive(Default)]
struct TakenState {
    /// It was not over before.
    was_there: bool,
    /// A file was open by it.
    was_open: bool,
    /// It had locks.
    was_locked: bool,
}
