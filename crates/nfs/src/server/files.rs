//! What clients have of files: opens with share reservations, byte-range
//! locks, delegations, and the state ids that name them (RFC 8881,
//! sections 8.2, 9, 10.4; RFC 7530, section 9).
//!
//! Files lie in shards, each behind a lock that opens, closes and locks take.
//! Reading and writing with a state id takes none: the connection keeps the
//! [`State`] that it has seen and looks at its atomics.

mod delegation;
mod held;
mod locking;
mod nlm;
mod owner;
mod removal;
mod state;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use machine::{Nanos, locked, work};
use wire::nfs4::{clientid4, nfsstat4, stateid4};

use super::locks::{Lock, LockOwner, Locks, Range};
use super::secret::{For, Secret};
use delegation::{Delegation, RECALLS};
pub use delegation::{DelegationHolder, HolderAnswer, HolderQuestion, HolderView, Recall, Watched};
use held::{LockStates, Opens};
use locking::LockWaiter;
pub use locking::{LockArgs, Waiter};
pub use nlm::NlmOwner;
pub use owner::{LastAnswer, Owner, OwnerKind, RequestBegun, uses_seqid};
pub use removal::{Removal, Removed};
pub use state::{
    ANONYMOUS, INVALID, READ, ShareReservation, Special, State, StateKind, WRITE, stateid, words,
};
use state::{CLOSING, GONE, IS_ALONE, REVOKED, UNCONFIRMED, UNLOCKED};

/// A file: the file system, and the file in it.
pub type FileKey = (u64, u64);

/// Shards of the table of files.
const SHARDS: usize = 64;
/// States of one client at most.
const STATES_MAX: usize = 64 * 1024;
/// Its owners at most, those included that have no state now.
const OWNERS_MAX: usize = 64 * 1024;
/// States and owners of all clients together: no client has more than a part of
/// what is left of them.
const HELD_MAX: usize = 1 << 20;
/// Bits of a state's number that are counted up: states made one after the other
/// take different places in a table of so many.
const COUNTED_BITS: u32 = 12;
/// That every client may have, whatever others have.
const HELD_MIN: usize = 64;

/// Why a state cannot be had now.
#[derive(Clone, Debug)]
pub enum StateRefused {
    /// For good: this status.
    Status(nfsstat4),
    /// A client has what is in the way. If its lease has run out
    /// ([`super::Server::expire`]) it is to be forgotten
    /// ([`Files::forget_client`]) and this to be asked again; else this status.
    InTheWay(clientid4, nfsstat4),
    /// Delegations of these clients are in the way, of which those have not
    /// been recalled yet; the client asks again later (NFS4ERR_DELAY).
    Recall(Vec<Recall>, Vec<clientid4>),
    /// A lock of another owner is in the way: NFS4ERR_DENIED and what it is.
    Denied(Lock, clientid4, Box<[u8]>),
}

/// All that is known of one file.
#[derive(Debug, Default)]
struct FileStates {
    opens: Opens,
    /// What hosts of NFSv3 have open, as far as they say so.
    shares: Opens,
    /// The states that hold `locks`.
    lock_states: LockStates,
    locks: Locks,
    /// By client and owner.
    waiting: BTreeMap<(clientid4, Box<[u8]>), LockWaiter>,
    delegations: Vec<Delegation>,
}

impl FileStates {
    fn is_empty(&self) -> bool {
        self.opens.is_empty()
            && self.shares.is_empty()
            && self.lock_states.is_empty()
            && self.delegations.is_empty()
    }

    /// Changes the locks of an owner, which counts the files where it has some.
    fn change_locks<T>(&mut self, owner: &Owner, change: impl FnOnce(&mut Locks) -> T) -> T {
        let before = self.locks.holds(owner.id);
        let changed = change(&mut self.locks);
        match (before, self.locks.holds(owner.id)) {
            (false, true) => owner.locked.fetch_add(1, Ordering::Relaxed),
            (true, false) => owner.locked.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
        changed
    }
}

/// What an owner owns, and how its client calls it.
type OwnerKey = (OwnerKind, Box<[u8]>);

/// States and owners of one client.
#[derive(Debug)]
struct Holdings {
    /// Of all clients: how many there are.
    held: Arc<AtomicUsize>,
    /// Of version 4.0: owners number what they ask.
    is_sequenced: bool,
    states: BTreeMap<u32, Arc<State>>,
    /// Their owners and numbers.
    by_owner: BTreeSet<(LockOwner, u32)>,
    owners: BTreeMap<OwnerKey, Arc<Owner>>,
    next: u32,
    /// States that were taken away and are known until FREE_STATEID.
    revoked: u32,
    /// Its client is gone: what it had is being taken away, and nothing is added.
    is_gone: bool,
}

impl Holdings {
    fn new(held: &Arc<AtomicUsize>) -> Holdings {
        Holdings {
            held: held.clone(),
            is_sequenced: false,
            states: BTreeMap::new(),
            by_owner: BTreeSet::new(),
            owners: BTreeMap::new(),
            next: 0,
            revoked: 0,
            is_gone: false,
        }
    }

    /// Whether there may be one more, of `most` that all clients may have.
    fn has_room(&self, most: usize) -> bool {
        let own = self.states.len() + self.owners.len();
        let left = most.saturating_sub(self.held.load(Ordering::Relaxed));
        own < HELD_MIN.max(left / 4)
    }

    fn insert(&mut self, state: &Arc<State>) {
        self.held.fetch_add(1, Ordering::Relaxed);
        self.by_owner.insert((state.owner.id, state.number));
        self.states.insert(state.number, state.clone());
    }

    fn remove(&mut self, number: u32) {
        if let Some(state) = self.states.remove(&number) {
            self.by_owner.remove(&(state.owner.id, number));
            self.held.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn free_number(&mut self, (secret, client): (Secret, clientid4)) -> u32 {
        loop {
            self.next = self.next.wrapping_add(1);
            let number = secret.mark(For::State(client), self.next, COUNTED_BITS);
            // 0 stands for the open of locks that have none.
            if number != 0 && !self.states.contains_key(&number) {
                return number;
            }
        }
    }

    /// Forgets owners after `behind` that have had no state and asked nothing for
    /// `patience`. `behind` becomes the last one that was looked at, `None` at the end.
    fn forget_idle_owners(&mut self, behind: &mut Option<OwnerKey>, patience: Nanos, now: Nanos) {
        let begin = behind.take().map_or(Bound::Unbounded, Bound::Excluded);
        let mut idle = Vec::new();
        for (key, owner) in self.owners.range((begin, Bound::Unbounded)) {
            work::spend(1);
            let since = owner.idle_since();
            let is_idle = owner.states.load(Ordering::Relaxed) == 0
                && since.is_some_and(|since| now.saturating_sub(since) > patience);
            if is_idle {
                work::spend(work::OPERATION_UNITS);
                idle.push(owner.clone());
            }
            if work::is_used_up() {
                *behind = Some(key.clone());
                break;
            }
        }
        idle.iter().for_each(|owner| self.remove_owner(owner));
    }

    /// An owner is known no more.
    fn remove_owner(&mut self, owner: &Owner) {
        if let Some(number) = owner.take_closed() {
            self.remove(number);
        }
        let key = (owner.kind, owner.name.clone());
        if self.owners.remove(&key).is_some() {
            self.held.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// An OPEN of a file that was found or made, and may be opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenArgs<'a> {
    /// The client.
    pub client: clientid4,
    /// On behalf of which user.
    pub uid: u32,
    /// `open_owner4.owner`.
    pub owner: &'a [u8],
    /// What.
    pub file: FileKey,
    /// How.
    pub share: ShareReservation,
    /// A delegation is welcome, of writing where the open is, and can be recalled: the file
    /// handle by which the client has the file.
    pub delegate: Option<&'a [u8]>,
    /// A delegation is welcome instead of an open (RFC 9754).
    pub open_xor_delegation: bool,
    /// The times of the file are delegated with it, where that is of writing (RFC 9754).
    pub delegates_times: bool,
    /// OPEN_CONFIRM is to come before the state is good for anything.
    pub must_confirm: bool,
    /// Now.
    pub now: Nanos,
}

/// What OPEN came to.
#[derive(Clone, Debug)]
pub struct OpenOutcome {
    /// The open, or the delegation that there is instead of it.
    pub state: Arc<State>,
    /// Its state id by this very OPEN.
    pub stateid: stateid4,
    /// It is one more: the file system is to be told.
    pub is_new: bool,
    /// A delegation.
    pub delegation: Option<Arc<State>>,
}

/// The files of a server of which clients have something.
#[derive(Debug)]
pub struct Files {
    boot: u32,
    secret: Secret,
    shards: Box<[Mutex<HashMap<FileKey, FileStates>>]>,
    /// Also those that are gone, until all that they had is taken away.
    clients: Mutex<BTreeMap<clientid4, Arc<Mutex<Holdings>>>>,
    /// The client, and the owner of it, behind which owners are to be looked at next.
    retired: Mutex<(clientid4, Option<OwnerKey>)>,
    owner_next: AtomicU64,
    /// States and owners of all clients, and how many there may be.
    held: Arc<AtomicUsize>,
    held_max: usize,
    /// Delegations in all; new ones are given below a bound.
    delegations: AtomicU32,
    delegations_max: u32,
    /// Those that were recalled, and when.
    recalled: Mutex<VecDeque<(Nanos, Arc<State>)>>,
    /// Until when files are given none, by a hash of the file.
    recalls: Box<[AtomicU64]>,
    /// Waiters for locks that could have them now.
    woken: Mutex<Vec<Waiter>>,
    has_woken: AtomicBool,
}

impl Files {
    /// None; `boot` and `secret` are those of the [`super::Server`].
    pub fn new(boot: u32, secret: Secret, delegations_max: u32) -> Files {
        Files {
            boot,
            secret,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            clients: Mutex::default(),
            retired: Mutex::default(),
            owner_next: AtomicU64::new(1),
            held: Arc::default(),
            held_max: HELD_MAX,
            delegations: AtomicU32::new(0),
            delegations_max,
            recalled: Mutex::default(),
            recalls: (0..RECALLS).map(|_| AtomicU64::new(0)).collect(),
            woken: Mutex::default(),
            has_woken: AtomicBool::new(false),
        }
    }

    fn shard(&self, (system, file): FileKey) -> MutexGuard<'_, HashMap<FileKey, FileStates>> {
        let hash = (system ^ file).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let shard = &self.shards[hash as usize % SHARDS];
        locked(shard)
    }

    /// A client may have state from now on, until [`Files::forget_client`]. Of
    /// version 4.0, its owners number what they ask (`is_sequenced`).
    pub fn admit_client(&self, client: clientid4, is_sequenced: bool) {
        let mut clients = locked(&self.clients);
        let new = || Arc::new(Mutex::new(Holdings::new(&self.held)));
        let holdings = clients.entry(client).or_insert_with(new);
        locked(holdings).is_sequenced = is_sequenced;
    }

    /// What a client has; `None` of one that has left nothing.
    fn holdings(&self, client: clientid4) -> Option<Arc<Mutex<Holdings>>> {
        let clients = locked(&self.clients);
        clients.get(&client).cloned()
    }

    /// What `look` sees in what a client has, or nothing of one that is gone.
    fn with<T: Default>(&self, client: clientid4, look: impl FnOnce(&mut Holdings) -> T) -> T {
        let Some(holdings) = self.holdings(client) else {
            return T::default();
        };
        let mut holdings = locked(&holdings);
        match holdings.is_gone {
            true => T::default(),
            false => look(&mut holdings),
        }
    }

    /// The owner of a client that goes by this name, if it is known.
    pub fn find_owner(
        &self,
        client: clientid4,
        kind: OwnerKind,
        name: &[u8],
    ) -> Option<Arc<Owner>> {
        self.with(client, |holdings| {
            holdings.owners.get(&(kind, name.into())).cloned()
        })
    }

    fn owner_id(&self, client: clientid4, kind: OwnerKind, name: &[u8]) -> LockOwner {
        let owner = self.find_owner(client, kind, name);
        owner.map_or(NO_OWNER, |owner| owner.id)
    }

    /// The owner of a client of version 4.0, also one that is not known yet.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_RESOURCE`] with too many; [`nfsstat4::NFS4ERR_EXPIRED`]
    /// of a client that is gone.
    pub fn admit_owner(
        &self,
        client: clientid4,
        kind: OwnerKind,
        name: &[u8],
        now: Nanos,
    ) -> Result<Arc<Owner>, nfsstat4> {
        let holdings = self.holdings(client).ok_or(nfsstat4::NFS4ERR_EXPIRED)?;
        let mut holdings = locked(&holdings);
        if holdings.is_gone {
            return Err(nfsstat4::NFS4ERR_EXPIRED);
        }
        let owner = self.owner_in(&mut holdings, kind, name);
        let owner = owner.ok_or(nfsstat4::NFS4ERR_RESOURCE)?;
        owner.touch(now);
        Ok(owner)
    }

    fn owner_in(
        &self,
        holdings: &mut Holdings,
        kind: OwnerKind,
        name: &[u8],
    ) -> Option<Arc<Owner>> {
        let key = (kind, Box::from(name));
        if let Some(owner) = holdings.owners.get(&key) {
            return Some(owner.clone());
        }
        if holdings.owners.len() >= OWNERS_MAX || !holdings.has_room(self.held_max) {
            return None;
        }
        holdings.held.fetch_add(1, Ordering::Relaxed);
        let id = self.owner_next.fetch_add(1, Ordering::Relaxed);
        let owner = Arc::new(Owner::new(id, kind, name));
        holdings.owners.insert(key, owner.clone());
        Some(owner)
    }

    /// A new state of an owner of a client. `None` if it has too many, or is
    /// gone.
    fn add(
        &self,
        (client, uid): (clientid4, u32),
        (kind, open): (StateKind, Option<Arc<State>>),
        file: FileKey,
        name: &[u8],
        share: ShareReservation,
    ) -> Option<Arc<State>> {
        let holdings = self.holdings(client)?;
        let mut holdings = locked(&holdings);
        let is_full = holdings.states.len() >= STATES_MAX || !holdings.has_room(self.held_max);
        if holdings.is_gone || is_full {
            return None;
        }
        let owner_kind = match kind {
            StateKind::Open | StateKind::Share => OwnerKind::Open,
            StateKind::Lock { .. } => OwnerKind::Lock,
            StateKind::Delegation | StateKind::Copy => OwnerKind::Client,
        };
        let owner = self.owner_in(&mut holdings, owner_kind, name)?;
        owner.states.fetch_add(1, Ordering::Relaxed);
        let number = holdings.free_number((self.secret, client));
        let state = State::new((client, uid, number), (kind, open), file, owner, share);
        let state = Arc::new(state);
        holdings.insert(&state);
        Some(state)
    }

    /// A state is known no more, and its owner with its last; of version 4.0 the
    /// owner stays for a while, and the state that it has closed last.
    fn drop_state(&self, state: &State) {
        self.with(state.client, |holdings| {
            if !holdings.states.contains_key(&state.number) {
                return;
            }
            let is_last = state.owner.states.fetch_sub(1, Ordering::Relaxed) == 1;
            if holdings.is_sequenced && state.kind == StateKind::Open {
                let before = state.owner.replace_closed(state.number);
                if let Some(number) = before {
                    holdings.remove(number);
                }
                return;
            }
            holdings.remove(state.number);
            if is_last && !holdings.is_sequenced {
                holdings.remove_owner(&state.owner);
            }
        });
    }

    /// Forgets an owner that has no state any more.
    fn drop_owner(&self, client: clientid4, owner: &Owner) {
        self.with(client, |holdings| {
            if owner.states.load(Ordering::Relaxed) == 0 {
                holdings.remove_owner(owner);
            }
        });
    }

    /// Owners of version 4.0 go that have had no state and asked nothing for
    /// `patience`. What the turn has no share for is looked at the next time.
    pub fn retire_owners(&self, patience: Nanos, now: Nanos) {
        let mut retired = locked(&self.retired);
        let (client, owner) = &mut *retired;
        loop {
            let clients = locked(&self.clients);
            let next = clients.range(*client..).next();
            let Some((id, holdings)) = next.map(|(id, holdings)| (*id, holdings.clone())) else {
                *client = 0;
                return;
            };
            drop(clients);
            if std::mem::replace(client, id) != id {
                *owner = None;
            }
            work::spend(1);
            let mut holdings = locked(&holdings);
            if holdings.is_sequenced {
                holdings.forget_idle_owners(owner, patience, now);
            }
            if owner.is_none() {
                *client += 1;
            }
            if work::is_used_up() {
                return;
            }
        }
    }

    /// A state of a client's owner, of those from this number on.
    fn state_of_owner(&self, client: clientid4, owner: &Owner, from: u32) -> Option<Arc<State>> {
        self.with(client, |holdings| {
            let mut numbers = (holdings.by_owner).range((owner.id, from)..=(owner.id, u32::MAX));
            let (_, number) = numbers.next()?;
            holdings.states.get(number).cloned()
        })
    }

    /// The states of a client that `which` names.
    fn states_of(&self, client: clientid4, which: impl Fn(&State) -> bool) -> Vec<Arc<State>> {
        self.with(client, |holdings| {
            work::spend(holdings.states.len() as u64);
            let states = holdings.states.values();
            let states = states.filter(|state| !state.is_over() && which(state));
            states.cloned().collect()
        })
    }

    /// The state that a state id of `client` names, whatever its `seqid` is.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_STALE_STATEID`] of another start of the server,
    /// [`nfsstat4::NFS4ERR_BAD_STATEID`].
    pub fn find(&self, client: clientid4, stateid: &stateid4) -> Result<Arc<State>, nfsstat4> {
        let (boot, of_client, number) = words(stateid);
        if boot != self.boot {
            return Err(nfsstat4::NFS4ERR_STALE_STATEID);
        }
        if of_client != client as u32 {
            return Err(nfsstat4::NFS4ERR_BAD_STATEID);
        }
        let state = self.with(client, |holdings| holdings.states.get(&number).cloned());
        state.ok_or(nfsstat4::NFS4ERR_BAD_STATEID)
    }

    /// Whether a client has anything: what it has closed is kept for its replays alone.
    pub fn has_state(&self, client: clientid4) -> bool {
        self.with(client, |holdings| {
            let mut states = holdings.states.values();
            states.any(|state| state.word() & GONE == 0)
        })
    }

    /// States of one client: opens, those with locks, delegations, copies.
    pub fn counts(&self, client: clientid4) -> [usize; 4] {
        self.with(client, |holdings| {
            let mut counts = [0; 4];
            for state in holdings.states.values().filter(|state| !state.is_over()) {
                counts[match state.kind {
                    StateKind::Open | StateKind::Share => 0,
                    StateKind::Lock { .. } => 1,
                    StateKind::Delegation => 2,
                    StateKind::Copy => 3,
                }] += 1;
            }
            counts
        })
    }

    /// OPEN: a new open, or more of one that its owner has already.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_SHARE_DENIED`] behind [`StateRefused::InTheWay`];
    /// delegations to recall; [`nfsstat4::NFS4ERR_RESOURCE`].
    pub fn open(&self, args: &OpenArgs<'_>) -> Result<OpenOutcome, StateRefused> {
        let mut shard = self.shard(args.file);
        let file = shard.entry(args.file).or_default();
        let opened = self.open_in(file, args);
        if file.is_empty() {
            shard.remove(&args.file);
        }
        opened
    }

    fn open_in(
        &self,
        file: &mut FileStates,
        args: &OpenArgs<'_>,
    ) -> Result<OpenOutcome, StateRefused> {
        let owner = self.owner_id(args.client, OwnerKind::Open, args.owner);
        // Also what the owner itself has (RFC 8881, section 9.7).
        file.check_share(args.share)?;
        file.check_delegations(self, args.client, args.share.breaks(), args.now)?;
        let known = file.opens.of_owner(owner).map(|open| open.state.clone());
        let is_new = known.is_none();
        // A delegation denies nothing: what denies is an open.
        if is_new
            && args.open_xor_delegation
            && args.share.deny == 0
            && let Some(state) = self.delegate(file, args)
        {
            state.mark(IS_ALONE);
            return Ok(OpenOutcome {
                stateid: stateid(self.boot, &state),
                state: state.clone(),
                is_new,
                delegation: Some(state),
            });
        }
        let state = match known {
            Some(state) if state.is_closing() => {
                return Err(StateRefused::Status(nfsstat4::NFS4ERR_DELAY));
            }
            Some(state) => {
                file.opens.add_asked_share(&state, args.share);
                file.opens.change(&state, state.share().union(args.share));
                state
            }
            None => {
                let holder = (args.client, args.uid);
                let kind = StateKind::Open;
                let state = self.add(holder, (kind, None), args.file, args.owner, args.share);
                let state = state.ok_or(StateRefused::Status(nfsstat4::NFS4ERR_RESOURCE))?;
                if args.must_confirm {
                    state.mark(UNCONFIRMED);
                }
                file.opens.insert(&state);
                state
            }
        };
        Ok(OpenOutcome {
            stateid: stateid(self.boot, &state),
            state,
            is_new,
            delegation: self.delegate(file, args),
        })
    }

    /// OPEN_CONFIRM: the state id then.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_BAD_STATEID`] of one that waits for none.
    pub fn confirm(&self, state: &State) -> Result<stateid4, nfsstat4> {
        let _shard = self.shard(state.file);
        if state.is_over() || !state.is_unconfirmed() {
            return Err(nfsstat4::NFS4ERR_BAD_STATEID);
        }
        state.unmark(UNCONFIRMED);
        state.change(state.share());
        state.owner.confirm();
        Ok(stateid(self.boot, state))
    }

    /// What an owner of version 4.0 has open and has not confirmed: beside that it has at
    /// most the state that it closed last.
    pub fn unconfirmed(&self, client: clientid4, owner: &Owner) -> Option<Arc<State>> {
        let mut from = 0;
        loop {
            let state = self.state_of_owner(client, owner, from)?;
            if state.is_unconfirmed() && !state.is_over() {
                return Some(state);
            }
            from = state.number.checked_add(1)?;
        }
    }

    /// OPEN_DOWNGRADE: less than was asked for, but something that was. The
    /// state id then.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_INVAL`], [`nfsstat4::NFS4ERR_BAD_STATEID`].
    pub fn downgrade(&self, state: &State, share: ShareReservation) -> Result<stateid4, nfsstat4> {
        let bad = nfsstat4::NFS4ERR_BAD_STATEID;
        let mut shard = self.shard(state.file);
        let file = shard.get_mut(&state.file).ok_or(bad)?;
        // What is asked for must be some union of shares that were.
        let is_part = |bits: &u64| bits & !share.bits() == 0;
        let asked = file.opens.find(state).ok_or(bad)?.asked;
        if state.is_closing() {
            return Err(nfsstat4::NFS4ERR_DELAY);
        }
        let was_asked = |bits: &u64| is_part(bits) && asked & 1 << bits != 0;
        let union = (0..16).filter(was_asked).fold(0, |a, b| a | b);
        if share.access == 0 || union != share.bits() {
            return Err(nfsstat4::NFS4ERR_INVAL);
        }
        let parts = (0..16).filter(is_part).fold(0, |a, b| a | 1 << b);
        file.opens.forget_asked(state, parts);
        file.opens.change(state, share);
        Ok(stateid(self.boot, state))
    }

    /// CLOSE. Locks of the open go with it, before it, as far as the turn has a share for
    /// them; whether all is done. Then the file system is to be told, else this is to be
    /// asked again: the open takes no locks and does not change any more.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_BAD_STATEID`].
    pub fn close(&self, state: &State) -> Result<bool, nfsstat4> {
        let bad = nfsstat4::NFS4ERR_BAD_STATEID;
        let mut shard = self.shard(state.file);
        let file = shard.get_mut(&state.file).ok_or(bad)?;
        if file.opens.find(state).is_none() {
            return Err(bad);
        }
        state.mark(CLOSING);
        while let Some(lock) = file.lock_states.of_open(state) {
            work::spend(work::OPERATION_UNITS);
            if self.drop_lock_state(file, &lock) {
                state.mark(UNLOCKED);
            }
            if work::is_used_up() {
                return Ok(false);
            }
        }
        file.opens.remove(state);
        state.mark(GONE);
        self.drop_state(state);
        // Once for all: owners and waiters may be many.
        if state.word() & UNLOCKED != 0 {
            self.wake(file, Range::ALL);
        }
        if file.is_empty() {
            shard.remove(&state.file);
        }
        Ok(true)
    }

    /// A copy begins that outlives its COPY: what it is known by.
    pub fn begin_copy(
        &self,
        holder: (clientid4, u32),
        file: FileKey,
    ) -> Option<(Arc<State>, stateid4)> {
        let state = self.add(
            holder,
            (StateKind::Copy, None),
            file,
            b"",
            ShareReservation::default(),
        )?;
        let stateid = stateid(self.boot, &state);
        Some((state, stateid))
    }

    /// A copy has ended, and its client knows.
    pub fn end_copy(&self, state: &State) {
        state.mark(GONE);
        self.drop_state(state);
    }

    /// FREE_STATEID (RFC 8881, section 18.38): locks that hold nothing, and what
    /// was revoked. Whether the client has now freed all that was revoked.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_LOCKS_HELD`].
    pub fn free(&self, state: &State) -> Result<bool, nfsstat4> {
        let mut shard = self.shard(state.file);
        if state.word() & REVOKED != 0 {
            self.drop_state(state);
            return Ok(self.with(state.client, |holdings| {
                holdings.revoked = holdings.revoked.saturating_sub(1);
                holdings.revoked == 0
            }));
        }
        let file = shard
            .get_mut(&state.file)
            .ok_or(nfsstat4::NFS4ERR_BAD_STATEID)?;
        if !matches!(state.kind, StateKind::Lock { .. }) || file.locks.holds(state.owner.id) {
            return Err(nfsstat4::NFS4ERR_LOCKS_HELD);
        }
        if file.lock_states.has(state) {
            self.drop_lock_state(file, state);
        }
        if file.is_empty() {
            shard.remove(&state.file);
        }
        Ok(false)
    }

    fn count_revoked(&self, client: clientid4) {
        self.with(client, |holdings| holdings.revoked += 1);
    }

    /// Whether reading or writing without a state is kept from by opens of
    /// others (RFC 8881, section 9.1.2).
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_LOCKED`] behind [`StateRefused::InTheWay`].
    pub fn check_anonymous(&self, file: FileKey, access: u32) -> Result<(), StateRefused> {
        let shard = self.shard(file);
        let file = shard.get(&file);
        let denies = |share: ShareReservation| share.deny & access != 0;
        match file.and_then(|file| file.opens.find_share(denies)) {
            Some(open) => Err(StateRefused::InTheWay(
                open.state.client,
                nfsstat4::NFS4ERR_LOCKED,
            )),
            None => Ok(()),
        }
    }
}

/// The id of an owner that is not known.
const NO_OWNER: LockOwner = 0;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod work_tests;
