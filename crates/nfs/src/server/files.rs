//! What clients have of files: opens with share reservations, byte-range
//! locks, read delegations, and the state ids that name them (RFC 8881,
//! sections 8.2, 9, 10.4; RFC 7530, section 9).
//!
//! Files lie in shards, each behind a lock that opens, closes and locks take.
//! Reading and writing with a state id takes none: the connection keeps the
//! [`State`] that it has seen and looks at its atomics.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use wire::nfs4::{clientid4, nfsstat4, stateid4};

use super::locks::{Lock, LockOwner, Locks, Range};

/// A file: the file system, and the file in it.
pub type FileKey = (u64, u64);

/// Shards of the table of files.
const SHARDS: usize = 64;
/// States of one client at most.
const STATES_MAX: usize = 64 * 1024;

/// Reading.
pub const READ: u32 = 1;
/// Writing.
pub const WRITE: u32 = 2;

/// What a state id stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file that an open owner has open.
    Open,
    /// Locks that a lock owner has in a file, by that open.
    Lock {
        /// The open's.
        open: u32,
    },
    /// A read delegation.
    Delegation,
}

/// An owner of opens or of locks.
#[derive(Debug)]
pub struct Owner {
    /// Unique in the server.
    pub id: LockOwner,
    /// How its client calls it.
    pub name: Box<[u8]>,
    kind: u8,
    /// That have it as their owner.
    states: AtomicU32,
}

/// What one state id stands for; its number is unique in its client.
#[derive(Debug)]
pub struct State {
    /// What it is.
    pub kind: Kind,
    /// Whose.
    pub client: clientid4,
    /// Of which file.
    pub file: FileKey,
    /// By which owner of the client; of a delegation, the client itself.
    pub owner: Arc<Owner>,
    /// Its number.
    pub number: u32,
    /// `seqid` of the state id above, share access and deny, and [`GONE`],
    /// [`REVOKED`].
    word: AtomicU64,
}

/// It was closed, or returned.
const GONE: u64 = 1 << 8;
/// It was taken away.
const REVOKED: u64 = 1 << 9;
/// The client was asked to return it.
const RECALLED: u64 = 1 << 10;

impl State {
    fn new(
        (client, number): (clientid4, u32),
        kind: Kind,
        file: FileKey,
        owner: Arc<Owner>,
        share: Share,
    ) -> State {
        State {
            kind,
            client,
            file,
            owner,
            number,
            word: AtomicU64::new(1 << 32 | share.bits()),
        }
    }

    #[inline]
    fn word(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    /// How often it has changed.
    #[inline]
    pub fn seqid(&self) -> u32 {
        (self.word() >> 32) as u32
    }

    /// What it lets its client do, and others not.
    #[inline]
    pub fn share(&self) -> Share {
        let word = self.word();
        Share {
            access: word as u32 & 3,
            deny: (word >> 2) as u32 & 3,
        }
    }

    /// A change of a state that is there: the next `seqid`, which is never 0
    /// (RFC 8881, section 8.2.2). Under the lock of its file.
    fn change(&self, share: Share) {
        let seqid = match self.seqid().wrapping_add(1) {
            0 => 1,
            seqid => seqid,
        };
        let flags = self.word() & RECALLED;
        let word = u64::from(seqid) << 32 | flags | share.bits();
        self.word.store(word, Ordering::Release);
    }

    /// The share of the open below has changed.
    fn set_share(&self, share: Share) {
        let word = self.word() & !0xf | share.bits();
        self.word.store(word, Ordering::Release);
    }

    fn mark(&self, flag: u64) {
        self.word.fetch_or(flag, Ordering::AcqRel);
    }

    /// Whether the client was asked to return it.
    pub fn is_recalled(&self) -> bool {
        self.word() & RECALLED != 0
    }

    /// Whether a state id with this `seqid` names it as it is. 0 is as good as
    /// the last, where `is_session`.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_OLD_STATEID`], [`nfsstat4::NFS4ERR_BAD_STATEID`],
    /// [`nfsstat4::NFS4ERR_DELEG_REVOKED`], [`nfsstat4::NFS4ERR_EXPIRED`].
    #[inline]
    pub fn check(&self, seqid: u32, is_session: bool) -> Result<(), nfsstat4> {
        let word = self.word();
        if word & (GONE | REVOKED) != 0 {
            return Err(match (word & REVOKED, self.kind) {
                (0, _) => nfsstat4::NFS4ERR_BAD_STATEID,
                (_, Kind::Delegation) => nfsstat4::NFS4ERR_DELEG_REVOKED,
                _ => nfsstat4::NFS4ERR_EXPIRED,
            });
        }
        let now = (word >> 32) as u32;
        match seqid {
            0 if is_session => Ok(()),
            _ if seqid == now => Ok(()),
            // Sequence numbers wrap.
            _ if now.wrapping_sub(seqid) < 1 << 31 => Err(nfsstat4::NFS4ERR_OLD_STATEID),
            _ => Err(nfsstat4::NFS4ERR_BAD_STATEID),
        }
    }

    /// Whether it lets its client read ([`READ`]) or write ([`WRITE`]).
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_OPENMODE`].
    #[inline]
    pub fn check_access(&self, access: u32) -> Result<(), nfsstat4> {
        match self.share().access & access == access {
            true => Ok(()),
            false => Err(nfsstat4::NFS4ERR_OPENMODE),
        }
    }
}

/// A share reservation: what one will do, and others may not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// [`READ`], [`WRITE`].
    pub access: u32,
    /// Likewise.
    pub deny: u32,
}

impl Share {
    fn bits(self) -> u64 {
        u64::from(self.access & 3 | (self.deny & 3) << 2)
    }

    fn conflicts(self, other: Share) -> bool {
        self.access & other.deny != 0 || self.deny & other.access != 0
    }

    fn union(self, other: Share) -> Share {
        Share {
            access: self.access | other.access,
            deny: self.deny | other.deny,
        }
    }
}

/// Why a state cannot be had now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// For good: this status.
    Status(nfsstat4),
    /// A client has what is in the way. If its lease has run out
    /// ([`super::Server::expire`]) it is to be forgotten
    /// ([`Files::forget_client`]) and this to be asked again; else this status.
    InTheWay(clientid4, nfsstat4),
    /// Delegations are in the way, of which these have not been recalled yet;
    /// the client asks again later (NFS4ERR_DELAY).
    Recall(Vec<Recall>),
    /// A lock of somebody else is in the way: NFS4ERR_DENIED and what it is.
    Denied(Lock, clientid4, Box<[u8]>),
}

/// A delegation to be recalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recall {
    /// Whose.
    pub client: clientid4,
    /// Which.
    pub stateid: stateid4,
    /// Of which file.
    pub file: FileKey,
}

/// All that is known of one file.
#[derive(Debug, Default)]
struct File {
    opens: Vec<Open>,
    /// The states that hold `locks`.
    lock_states: Vec<Arc<State>>,
    locks: Locks,
    delegations: Vec<Arc<State>>,
}

#[derive(Debug)]
struct Open {
    state: Arc<State>,
    /// Each share that was asked for and is in force: what a downgrade may ask
    /// for (RFC 8881, section 18.18.3).
    asked: u16,
}

impl Open {
    fn asks(share: Share) -> u16 {
        1 << share.bits()
    }
}

impl File {
    fn is_empty(&self) -> bool {
        self.opens.is_empty() && self.lock_states.is_empty() && self.delegations.is_empty()
    }

    fn open_of(&self, state: &State) -> Option<usize> {
        let mut opens = self.opens.iter();
        opens.position(|open| std::ptr::eq(&*open.state, state))
    }

    /// The share of an open is now this, also for locks by it.
    fn change_open(&mut self, at: usize, share: Share) {
        let state = &self.opens[at].state;
        state.change(share);
        let kind = Kind::Lock { open: state.number };
        let locks = self.lock_states.iter();
        locks
            .filter(|lock| lock.client == state.client && lock.kind == kind)
            .for_each(|lock| lock.set_share(share));
    }

    /// Refuses while others have delegations.
    fn check_delegations(&self, client: clientid4, boot: u32) -> Result<(), Refused> {
        let others = || self.delegations.iter().filter(|s| s.client != client);
        if others().next().is_none() {
            return Ok(());
        }
        let mut recalls = Vec::new();
        for state in others().filter(|state| !state.is_recalled()) {
            state.mark(RECALLED);
            recalls.push(Recall {
                client: state.client,
                stateid: stateid(boot, state),
                file: state.file,
            });
        }
        Err(Refused::Recall(recalls))
    }
}

/// States and owners of one client.
#[derive(Debug, Default)]
struct Holdings {
    states: HashMap<u32, Arc<State>>,
    owners: HashMap<Box<[u8]>, Arc<Owner>>,
    next: u32,
    /// Its client is gone: nothing is added any more.
    is_gone: bool,
}

impl Holdings {
    fn free_number(&mut self) -> u32 {
        loop {
            self.next = self.next.wrapping_add(1);
            if !self.states.contains_key(&self.next) {
                return self.next;
            }
        }
    }
}

fn owner_key(kind: u8, name: &[u8]) -> Box<[u8]> {
    [&[kind], name].concat().into()
}

/// The state id of a state as it is: its number, its client, and the start of
/// the server, so that one of another time is told from one that never was.
pub fn stateid(boot: u32, state: &State) -> stateid4 {
    let mut other = [0; 12];
    other[..4].copy_from_slice(&boot.to_be_bytes());
    other[4..8].copy_from_slice(&(state.client as u32).to_be_bytes());
    other[8..].copy_from_slice(&state.number.to_be_bytes());
    let seqid = state.seqid();
    stateid4 { seqid, other }
}

/// A state id that stands for no state (RFC 8881, section 8.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// All zero.
    Anonymous,
    /// All ones: reads go round share reservations.
    Bypass,
    /// The one that the COMPOUND had last.
    Current,
    /// Never right.
    Invalid,
}

impl Special {
    /// Which it is, if it is one.
    pub fn of(stateid: &stateid4) -> Option<Special> {
        match (stateid.seqid, stateid.other) {
            (0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]) => Some(Special::Anonymous),
            (u32::MAX, other) if other == [0xff; 12] => Some(Special::Bypass),
            (1, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]) => Some(Special::Current),
            (_, other) if other == [0; 12] || other == [0xff; 12] => Some(Special::Invalid),
            _ => None,
        }
    }
}

/// An OPEN of a file that was found or made, and may be opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenArgs<'a> {
    /// Who.
    pub client: clientid4,
    /// `open_owner4.owner`.
    pub owner: &'a [u8],
    /// What.
    pub file: FileKey,
    /// How.
    pub share: Share,
    /// A read delegation is welcome, and can be recalled.
    pub wants_delegation: bool,
}

/// What OPEN came to.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The open.
    pub state: Arc<State>,
    /// It is one more: the file system is to be told.
    pub is_new: bool,
    /// A read delegation.
    pub delegation: Option<Arc<State>>,
}

/// A LOCK, LOCKT or LOCKU by a state.
#[derive(Clone, Copy, Debug)]
pub struct LockArgs {
    /// What.
    pub range: Range,
    /// A write lock.
    pub is_exclusive: bool,
}

impl LockArgs {
    fn by(self, state: &State) -> Lock {
        Lock {
            range: self.range,
            owner: state.owner.id,
            is_exclusive: self.is_exclusive,
        }
    }
}

/// The files of a server of which clients have something.
#[derive(Debug)]
pub struct Files {
    boot: u32,
    shards: Box<[Mutex<HashMap<FileKey, File>>]>,
    clients: Mutex<HashMap<clientid4, Arc<Mutex<Holdings>>>>,
    owner_next: AtomicU64,
    /// Delegations in all; new ones are given below a bound.
    delegations: AtomicU32,
    delegations_max: u32,
}

impl Files {
    /// None; `boot` is that of the [`super::Server`].
    pub fn new(boot: u32, delegations_max: u32) -> Files {
        Files {
            boot,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            clients: Mutex::default(),
            owner_next: AtomicU64::new(1),
            delegations: AtomicU32::new(0),
            delegations_max,
        }
    }

    fn shard(&self, (system, file): FileKey) -> MutexGuard<'_, HashMap<FileKey, File>> {
        let hash = (system ^ file).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let shard = &self.shards[hash as usize % SHARDS];
        shard.lock().expect("nobody panics with it")
    }

    /// A client may have state from now on, until [`Files::forget_client`].
    pub fn admit(&self, client: clientid4) {
        let mut clients = self.clients.lock().expect("nobody panics with it");
        clients.entry(client).or_default();
    }

    /// What a client has; `None` of one that is gone.
    fn holdings(&self, client: clientid4) -> Option<Arc<Mutex<Holdings>>> {
        let clients = self.clients.lock().expect("nobody panics with it");
        clients.get(&client).cloned()
    }

    /// The owner of a client that goes by this name, if it has any state.
    fn owner(&self, client: clientid4, kind: u8, name: &[u8]) -> LockOwner {
        let Some(holdings) = self.holdings(client) else {
            return NOBODY;
        };
        let holdings = holdings.lock().expect("nobody panics with it");
        let owner = holdings.owners.get(&owner_key(kind, name));
        owner.map_or(NOBODY, |owner| owner.id)
    }

    /// A new state of an owner of a client. `None` if it has too many, or is
    /// gone.
    fn add(
        &self,
        client: clientid4,
        kind: Kind,
        file: FileKey,
        name: &[u8],
        share: Share,
    ) -> Option<Arc<State>> {
        let holdings = self.holdings(client)?;
        let mut holdings = holdings.lock().expect("nobody panics with it");
        if holdings.is_gone || holdings.states.len() >= STATES_MAX {
            return None;
        }
        let owner_kind = match kind {
            Kind::Open => OPEN_OWNER,
            Kind::Lock { .. } => LOCK_OWNER,
            Kind::Delegation => DELEGATION_OWNER,
        };
        let owner = holdings.owners.entry(owner_key(owner_kind, name));
        let owner = owner.or_insert_with(|| {
            Arc::new(Owner {
                id: self.owner_next.fetch_add(1, Ordering::Relaxed),
                name: name.into(),
                kind: owner_kind,
                states: AtomicU32::new(0),
            })
        });
        owner.states.fetch_add(1, Ordering::Relaxed);
        let owner = owner.clone();
        let number = holdings.free_number();
        let state = Arc::new(State::new((client, number), kind, file, owner, share));
        holdings.states.insert(number, state.clone());
        Some(state)
    }

    /// A state is known no more, and its owner with its last.
    fn drop_state(&self, state: &State) {
        let Some(holdings) = self.holdings(state.client) else {
            return;
        };
        let mut holdings = holdings.lock().expect("nobody panics with it");
        if holdings.states.remove(&state.number).is_some()
            && state.owner.states.fetch_sub(1, Ordering::Relaxed) == 1
        {
            let key = owner_key(state.owner.kind, &state.owner.name);
            holdings.owners.remove(&key);
        }
    }

    /// The state that a state id of `client` names, whatever its `seqid` is.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_STALE_STATEID`] of another start of the server,
    /// [`nfsstat4::NFS4ERR_BAD_STATEID`].
    pub fn find(&self, client: clientid4, stateid: &stateid4) -> Result<Arc<State>, nfsstat4> {
        let word = |at: usize| {
            let bytes = stateid.other[at..at + 4].try_into();
            u32::from_be_bytes(bytes.expect("4 bytes"))
        };
        if word(0) != self.boot {
            return Err(nfsstat4::NFS4ERR_STALE_STATEID);
        }
        if word(4) != client as u32 {
            return Err(nfsstat4::NFS4ERR_BAD_STATEID);
        }
        let holdings = self.holdings(client);
        let holdings = holdings.ok_or(nfsstat4::NFS4ERR_BAD_STATEID)?;
        let holdings = holdings.lock().expect("nobody panics with it");
        let state = holdings.states.get(&word(8)).cloned();
        state.ok_or(nfsstat4::NFS4ERR_BAD_STATEID)
    }

    /// Whether a client has anything.
    pub fn has_state(&self, client: clientid4) -> bool {
        let holdings = self.holdings(client);
        holdings.is_some_and(|h| !h.lock().expect("nobody panics").states.is_empty())
    }

    /// OPEN: a new open, or more of one that its owner has already.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_SHARE_DENIED`] behind [`Refused::InTheWay`];
    /// delegations to recall; [`nfsstat4::NFS4ERR_RESOURCE`].
    pub fn open(&self, args: &OpenArgs<'_>) -> Result<Opened, Refused> {
        let mut shard = self.shard(args.file);
        let file = shard.entry(args.file).or_default();
        let opened = self.open_in(file, args);
        if file.is_empty() {
            shard.remove(&args.file);
        }
        opened
    }

    fn open_in(&self, file: &mut File, args: &OpenArgs<'_>) -> Result<Opened, Refused> {
        let owner = self.owner(args.client, OPEN_OWNER, args.owner);
        let other =
            |open: &&Open| open.state.owner.id != owner && open.state.share().conflicts(args.share);
        if let Some(open) = file.opens.iter().find(other) {
            let client = open.state.client;
            return Err(Refused::InTheWay(client, nfsstat4::NFS4ERR_SHARE_DENIED));
        }
        if args.share.access & WRITE != 0 || args.share.deny & READ != 0 {
            file.check_delegations(args.client, self.boot)?;
        }
        let known = file
            .opens
            .iter()
            .position(|open| open.state.owner.id == owner);
        let state = match known {
            Some(at) => {
                file.opens[at].asked |= Open::asks(args.share);
                let share = file.opens[at].state.share().union(args.share);
                file.change_open(at, share);
                file.opens[at].state.clone()
            }
            None => {
                let state = self.add(args.client, Kind::Open, args.file, args.owner, args.share);
                let state = state.ok_or(Refused::Status(nfsstat4::NFS4ERR_RESOURCE))?;
                file.opens.push(Open {
                    state: state.clone(),
                    asked: Open::asks(args.share),
                });
                state
            }
        };
        Ok(Opened {
            state,
            is_new: known.is_none(),
            delegation: match args.wants_delegation {
                true => self.delegate(file, args),
                false => None,
            },
        })
    }

    /// A read delegation for a file that nobody writes, if its client has none.
    fn delegate(&self, file: &mut File, args: &OpenArgs<'_>) -> Option<Arc<State>> {
        let writes = |open: &Open| open.state.share().access & WRITE != 0;
        let has_one = |state: &Arc<State>| state.client == args.client;
        let is_free = args.share.access & WRITE == 0
            && !file.opens.iter().any(writes)
            && !file.delegations.iter().any(has_one)
            && !file.delegations.iter().any(|state| state.is_recalled());
        if !is_free || self.delegations.load(Ordering::Relaxed) >= self.delegations_max {
            return None;
        }
        let share = Share {
            access: READ,
            deny: 0,
        };
        let state = self.add(args.client, Kind::Delegation, args.file, b"", share)?;
        self.delegations.fetch_add(1, Ordering::Relaxed);
        file.delegations.push(state.clone());
        Some(state)
    }

    /// Somebody is about to write, set attributes of, link, rename or remove
    /// the file: delegations of others are to be recalled first.
    ///
    /// # Errors
    /// [`Refused::Recall`].
    pub fn break_delegations(&self, client: clientid4, file: FileKey) -> Result<(), Refused> {
        if self.delegations.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let shard = self.shard(file);
        match shard.get(&file) {
            Some(file) => file.check_delegations(client, self.boot),
            None => Ok(()),
        }
    }

    /// OPEN_DOWNGRADE: less than was asked for, but something that was.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_INVAL`], [`nfsstat4::NFS4ERR_BAD_STATEID`].
    pub fn downgrade(&self, state: &State, share: Share) -> Result<(), nfsstat4> {
        let bad = nfsstat4::NFS4ERR_BAD_STATEID;
        let mut shard = self.shard(state.file);
        let file = shard.get_mut(&state.file).ok_or(bad)?;
        let at = file.open_of(state).ok_or(bad)?;
        // What is asked for must be some union of shares that were.
        let is_part = |bits: &u64| bits & !share.bits() == 0;
        let asked = file.opens[at].asked;
        let was_asked = |bits: &u64| is_part(bits) && asked & 1 << bits != 0;
        let union = (0..16).filter(was_asked).fold(0, |a, b| a | b);
        if share.access == 0 || union != share.bits() {
            return Err(nfsstat4::NFS4ERR_INVAL);
        }
        let parts = (0..16).filter(is_part).fold(0, |a, b| a | 1 << b);
        file.opens[at].asked &= parts;
        file.change_open(at, share);
        Ok(())
    }

    /// CLOSE. Locks of the open go with it. The file system is to be told.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_BAD_STATEID`].
    pub fn close(&self, state: &State) -> Result<(), nfsstat4> {
        let mut shard = self.shard(state.file);
        let file = shard
            .get_mut(&state.file)
            .ok_or(nfsstat4::NFS4ERR_BAD_STATEID)?;
        let at = file.open_of(state).ok_or(nfsstat4::NFS4ERR_BAD_STATEID)?;
        file.opens.swap_remove(at);
        state.mark(GONE);
        self.drop_state(state);
        let kind = Kind::Lock { open: state.number };
        self.drop_locks(file, |lock| {
            lock.client == state.client && lock.kind == kind
        });
        if file.is_empty() {
            shard.remove(&state.file);
        }
        Ok(())
    }

    /// States of locks that `which` names go, and the locks with them.
    fn drop_locks(&self, file: &mut File, which: impl Fn(&State) -> bool) {
        let File {
            lock_states, locks, ..
        } = file;
        lock_states.retain(|state| {
            let goes = which(state);
            if goes {
                locks.unlock_all(state.owner.id);
                state.mark(GONE);
                self.drop_state(state);
            }
            !goes
        });
    }

    /// LOCK by an owner who has no locks in the file yet, or has: the state of
    /// its locks, under this open.
    ///
    /// # Errors
    /// As [`Files::lock`]; nothing is made then.
    pub fn lock_first(
        &self,
        open: &State,
        owner: &[u8],
        args: LockArgs,
    ) -> Result<Arc<State>, Refused> {
        let bad = Refused::Status(nfsstat4::NFS4ERR_BAD_STATEID);
        let full = Refused::Status(nfsstat4::NFS4ERR_RESOURCE);
        let mut shard = self.shard(open.file);
        let file = shard.get_mut(&open.file).ok_or(bad.clone())?;
        let at = file.open_of(open).ok_or(bad)?;
        let share = file.opens[at].state.share();
        let id = self.owner(open.client, LOCK_OWNER, owner);
        let known = file.lock_states.iter().find(|state| state.owner.id == id);
        if let Some(state) = known.cloned() {
            self.lock_in(file, &state, args)?;
            return Ok(state);
        }
        self.check_lock(file, id, share, args)?;
        let kind = Kind::Lock { open: open.number };
        let state = self.add(open.client, kind, open.file, owner, share);
        let state = state.ok_or(full.clone())?;
        if file.locks.lock(args.by(&state)).is_err() {
            state.mark(GONE);
            self.drop_state(&state);
            return Err(full);
        }
        file.lock_states.push(state.clone());
        Ok(state)
    }

    /// LOCK by a state of locks.
    ///
    /// # Errors
    /// [`Refused::Denied`]; [`nfsstat4::NFS4ERR_OPENMODE`],
    /// [`nfsstat4::NFS4ERR_BAD_STATEID`], [`nfsstat4::NFS4ERR_RESOURCE`].
    pub fn lock(&self, state: &State, args: LockArgs) -> Result<(), Refused> {
        let mut shard = self.shard(state.file);
        let bad = Refused::Status(nfsstat4::NFS4ERR_BAD_STATEID);
        let file = shard.get_mut(&state.file).ok_or(bad.clone())?;
        let is_there = file.lock_states.iter().any(|s| std::ptr::eq(&**s, state));
        match is_there {
            true => self.lock_in(file, state, args),
            false => Err(bad),
        }
    }

    fn lock_in(&self, file: &mut File, state: &State, args: LockArgs) -> Result<(), Refused> {
        self.check_lock(file, state.owner.id, state.share(), args)?;
        let full = Refused::Status(nfsstat4::NFS4ERR_RESOURCE);
        file.locks.lock(args.by(state)).map_err(|_| full)?;
        state.change(state.share());
        Ok(())
    }

    /// Whether the open lets one lock so, and nobody else has.
    fn check_lock(
        &self,
        file: &File,
        owner: LockOwner,
        share: Share,
        args: LockArgs,
    ) -> Result<(), Refused> {
        let needs = match args.is_exclusive {
            true => WRITE,
            false => READ,
        };
        if share.access & needs == 0 {
            return Err(Refused::Status(nfsstat4::NFS4ERR_OPENMODE));
        }
        self.check_free(file, owner, args)
    }

    fn check_free(&self, file: &File, owner: LockOwner, args: LockArgs) -> Result<(), Refused> {
        let lock = Lock {
            range: args.range,
            owner,
            is_exclusive: args.is_exclusive,
        };
        let Some(held) = file.locks.conflict(&lock) else {
            return Ok(());
        };
        let mut states = file.lock_states.iter();
        let state = states.find(|state| state.owner.id == held.owner);
        let state = state.expect("who holds a lock has a state");
        let name = state.owner.name.clone();
        Err(Refused::Denied(*held, state.client, name))
    }

    /// LOCKT: whether an owner could have this lock.
    ///
    /// # Errors
    /// [`Refused::Denied`].
    pub fn test_lock(
        &self,
        client: clientid4,
        owner: &[u8],
        file: FileKey,
        args: LockArgs,
    ) -> Result<(), Refused> {
        let shard = self.shard(file);
        let owner = self.owner(client, LOCK_OWNER, owner);
        match shard.get(&file) {
            Some(file) => self.check_free(file, owner, args),
            None => Ok(()),
        }
    }

    /// LOCKU.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_BAD_STATEID`], [`nfsstat4::NFS4ERR_RESOURCE`].
    pub fn unlock(&self, state: &State, range: Range) -> Result<(), nfsstat4> {
        let mut shard = self.shard(state.file);
        let file = shard.get_mut(&state.file);
        let file = file.filter(|f| f.lock_states.iter().any(|s| std::ptr::eq(&**s, state)));
        let file = file.ok_or(nfsstat4::NFS4ERR_BAD_STATEID)?;
        let unlocked = file.locks.unlock(state.owner.id, range);
        unlocked.map_err(|_| nfsstat4::NFS4ERR_RESOURCE)?;
        state.change(state.share());
        Ok(())
    }

    /// DELEGRETURN, or what a recall that nobody heard comes to
    /// (`is_revoked`): then its client must say FREE_STATEID.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_BAD_STATEID`].
    pub fn end_delegation(&self, state: &State, is_revoked: bool) -> Result<(), nfsstat4> {
        let mut shard = self.shard(state.file);
        let file = shard
            .get_mut(&state.file)
            .ok_or(nfsstat4::NFS4ERR_BAD_STATEID)?;
        let at = file
            .delegations
            .iter()
            .position(|s| std::ptr::eq(&**s, state));
        file.delegations
            .swap_remove(at.ok_or(nfsstat4::NFS4ERR_BAD_STATEID)?);
        if file.is_empty() {
            shard.remove(&state.file);
        }
        self.delegations.fetch_sub(1, Ordering::Relaxed);
        match is_revoked {
            true => state.mark(REVOKED),
            false => {
                state.mark(GONE);
                self.drop_state(state);
            }
        }
        Ok(())
    }

    /// FREE_STATEID (RFC 8881, section 18.38): locks that hold nothing, and what
    /// was revoked.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_LOCKS_HELD`].
    pub fn free(&self, state: &State) -> Result<(), nfsstat4> {
        let mut shard = self.shard(state.file);
        if state.word() & REVOKED != 0 {
            self.drop_state(state);
            return Ok(());
        }
        let file = shard
            .get_mut(&state.file)
            .ok_or(nfsstat4::NFS4ERR_BAD_STATEID)?;
        if !matches!(state.kind, Kind::Lock { .. }) || file.locks.holds(state.owner.id) {
            return Err(nfsstat4::NFS4ERR_LOCKS_HELD);
        }
        self.drop_locks(file, |lock| std::ptr::eq(lock, state));
        if file.is_empty() {
            shard.remove(&state.file);
        }
        Ok(())
    }

    /// Whether reading or writing without a state is kept from by opens of
    /// others (RFC 8881, section 9.1.2).
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_LOCKED`].
    pub fn check_anonymous(&self, file: FileKey, access: u32) -> Result<(), nfsstat4> {
        let shard = self.shard(file);
        let opens = shard.get(&file).map_or(&[][..], |file| &file.opens[..]);
        match opens
            .iter()
            .any(|open| open.state.share().deny & access != 0)
        {
            true => Err(nfsstat4::NFS4ERR_LOCKED),
            false => Ok(()),
        }
    }

    /// A client is gone with all that it had. The files that it had open, one
    /// for each open: the file system is to be told.
    pub fn forget_client(&self, client: clientid4) -> Vec<FileKey> {
        let mut clients = self.clients.lock().expect("nobody panics with it");
        let holdings = clients.remove(&client);
        drop(clients);
        let Some(holdings) = holdings else {
            return Vec::new();
        };
        let states = {
            let mut holdings = holdings.lock().expect("nobody panics with it");
            holdings.is_gone = true;
            std::mem::take(&mut holdings.states)
        };
        let mut closed = Vec::new();
        for state in states.into_values() {
            let mut shard = self.shard(state.file);
            let was_revoked = state.word() & REVOKED != 0;
            state.mark(GONE);
            if state.kind == Kind::Delegation && !was_revoked {
                self.delegations.fetch_sub(1, Ordering::Relaxed);
            }
            let Some(file) = shard.get_mut(&state.file) else {
                continue;
            };
            let opens = file.opens.len();
            file.opens.retain(|open| !Arc::ptr_eq(&open.state, &state));
            closed.extend((file.opens.len() < opens).then_some(state.file));
            file.delegations.retain(|other| !Arc::ptr_eq(other, &state));
            file.lock_states.retain(|other| !Arc::ptr_eq(other, &state));
            if matches!(state.kind, Kind::Lock { .. }) {
                file.locks.unlock_all(state.owner.id);
            }
            if file.is_empty() {
                shard.remove(&state.file);
            }
        }
        closed
    }
}

const OPEN_OWNER: u8 = 0;
const LOCK_OWNER: u8 = 1;
const DELEGATION_OWNER: u8 = 2;
/// Of whom nothing is known.
const NOBODY: LockOwner = 0;

#[cfg(test)]
mod tests;
