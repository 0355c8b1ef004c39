//! LOCK, LOCKT, LOCKU and waiters for locks (RFC 8881, sections 9.4 and 20.11;
//! RFC 7530, section 9).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use machine::{locked, work};
use wire::nfs4::{clientid4, nfsstat4, stateid4};

use super::super::locks::{Lock, LockOwner, Range};
use super::state::{GONE, READ, WRITE, stateid};
use super::{
    FileKey, FileStates, Files, OwnerKind, ShareReservation, State, StateKind, StateRefused,
};

/// Waiters for locks of one file at most.
pub(super) const WAITERS_MAX: usize = 256;

/// A LOCK, LOCKT or LOCKU by a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockArgs {
    /// What.
    pub range: Range,
    /// A write lock.
    pub is_exclusive: bool,
}

impl LockArgs {
    pub(super) fn by(self, owner: LockOwner) -> Lock {
        Lock {
            range: self.range,
            owner,
            is_exclusive: self.is_exclusive,
        }
    }
}

/// An owner that was refused a lock and would rather have waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Its client.
    pub client: clientid4,
    /// Which.
    pub owner: Box<[u8]>,
    /// The file handle by which its client has the file.
    pub handle: Box<[u8]>,
}

/// A waiter, and for what.
#[derive(Debug)]
pub(super) struct LockWaiter {
    waiter: Waiter,
    pub(super) args: LockArgs,
}

impl Files {
    /// LOCK by an owner that has no locks in the file yet, or has: the state of
    /// its locks, under this open, and its state id.
    ///
    /// # Errors
    /// As [`Files::lock`]; nothing is made then.
    pub fn lock_first(
        &self,
        open: &State,
        owner: &[u8],
        args: LockArgs,
    ) -> Result<(Arc<State>, stateid4), StateRefused> {
        let bad = StateRefused::Status(nfsstat4::NFS4ERR_BAD_STATEID);
        let full = StateRefused::Status(nfsstat4::NFS4ERR_RESOURCE);
        let mut shard = self.shard(open.file);
        let file = shard.get_mut(&open.file).ok_or(bad.clone())?;
        let by = file.opens.find(open).ok_or(bad)?.state.clone();
        if by.is_closing() {
            return Err(StateRefused::Status(nfsstat4::NFS4ERR_DELAY));
        }
        let share = by.share();
        let id = self.owner_id(open.client, OwnerKind::Lock, owner);
        if let Some(state) = file.lock_states.of_owner(id).cloned() {
            let stateid = self.lock_in(file, &state, args)?;
            return Ok((state, stateid));
        }
        check_lock(file, id, share, args)?;
        let kind = StateKind::Lock { open: open.number };
        let holder = (open.client, open.uid);
        let state = self.add(holder, (kind, Some(by)), open.file, owner, share);
        let state = state.ok_or(full.clone())?;
        let wanted = args.by(state.owner.id);
        let locked = file.change_locks(&state.owner, |locks| locks.lock(wanted));
        if locked.is_err() {
            state.mark(GONE);
            self.drop_state(&state);
            return Err(full);
        }
        file.lock_states.insert(&state);
        let stateid = stateid(self.boot, &state);
        Ok((state, stateid))
    }

    /// LOCK by a state of locks: its state id then.
    ///
    /// # Errors
    /// [`StateRefused::Denied`]; [`nfsstat4::NFS4ERR_OPENMODE`],
    /// [`nfsstat4::NFS4ERR_BAD_STATEID`], [`nfsstat4::NFS4ERR_RESOURCE`].
    pub fn lock(&self, state: &State, args: LockArgs) -> Result<stateid4, StateRefused> {
        let mut shard = self.shard(state.file);
        let bad = StateRefused::Status(nfsstat4::NFS4ERR_BAD_STATEID);
        let file = shard.get_mut(&state.file).ok_or(bad.clone())?;
        match file.lock_states.has(state) {
            true => self.lock_in(file, state, args),
            false => Err(bad),
        }
    }

    fn lock_in(
        &self,
        file: &mut FileStates,
        state: &State,
        args: LockArgs,
    ) -> Result<stateid4, StateRefused> {
        check_lock(file, state.owner.id, state.share(), args)?;
        let full = StateRefused::Status(nfsstat4::NFS4ERR_RESOURCE);
        let wanted = args.by(state.owner.id);
        let locked = file.change_locks(&state.owner, |locks| locks.lock(wanted));
        let is_less = locked.map_err(|_| full)?;
        state.change(state.share());
        if is_less {
            self.wake(file, args.range);
        }
        Ok(stateid(self.boot, state))
    }

    /// LOCKT: whether an owner could have this lock.
    ///
    /// # Errors
    /// [`StateRefused::Denied`].
    pub fn test_lock(
        &self,
        client: clientid4,
        owner: &[u8],
        file: FileKey,
        args: LockArgs,
    ) -> Result<(), StateRefused> {
        let shard = self.shard(file);
        let owner = self.owner_id(client, OwnerKind::Lock, owner);
        match shard.get(&file) {
            Some(file) => check_free(file, owner, args),
            None => Ok(()),
        }
    }

    /// LOCKU: the state id then.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_BAD_STATEID`]; [`nfsstat4::NFS4ERR_LOCK_RANGE`] where a
    /// lock would become two (RFC 8881, section 18.12.3), and there are as many as
    /// may be.
    pub fn unlock(&self, state: &State, range: Range) -> Result<stateid4, nfsstat4> {
        let mut shard = self.shard(state.file);
        let file = shard.get_mut(&state.file);
        let file = file.filter(|file| file.lock_states.has(state));
        let file = file.ok_or(nfsstat4::NFS4ERR_BAD_STATEID)?;
        let owner = &state.owner;
        let unlocked = file.change_locks(owner, |locks| locks.unlock(owner.id, range));
        let is_less = unlocked.map_err(|_| nfsstat4::NFS4ERR_LOCK_RANGE)?;
        state.change(state.share());
        if is_less {
            self.wake(file, range);
        }
        Ok(stateid(self.boot, state))
    }

    /// RELEASE_LOCKOWNER (RFC 7530, section 16.37), as far as the turn has a share for
    /// it; whether all is done. Else this is to be asked again.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_LOCKS_HELD`].
    pub fn release_lock_owner(&self, client: clientid4, name: &[u8]) -> Result<bool, nfsstat4> {
        let Some(owner) = self.find_owner(client, OwnerKind::Lock, name) else {
            return Ok(true);
        };
        if owner.locked.load(Ordering::Relaxed) > 0 {
            return Err(nfsstat4::NFS4ERR_LOCKS_HELD);
        }
        let mut from = Some(0);
        while let Some(state) = from.and_then(|from| self.state_of_owner(client, &owner, from)) {
            work::spend(work::OPERATION_UNITS);
            // An owner that takes a lock meanwhile keeps it.
            self.free(&state)?;
            if work::is_used_up() {
                return Ok(false);
            }
            from = state.number.checked_add(1);
        }
        self.drop_owner(client, &owner);
        Ok(true)
    }

    /// Removes the state of an owner's locks, and its locks; whether it had any: then
    /// waiters are to be woken.
    pub(super) fn drop_lock_state(&self, file: &mut FileStates, state: &State) -> bool {
        file.lock_states.remove(state);
        state.mark(GONE);
        self.drop_state(state);
        file.change_locks(&state.owner, |locks| locks.unlock_all(state.owner.id))
    }

    /// Remembers an owner that was refused a lock and would have waited:
    /// [`Files::take_woken`] returns it once it could have the lock. A client whose
    /// waiter is not remembered asks again anyway.
    pub fn wait_for_lock(&self, file: FileKey, waiter: Waiter, args: LockArgs) {
        let mut shard = self.shard(file);
        let Some(file) = shard.get_mut(&file) else {
            // Nothing is locked there any more.
            return self.woken(vec![waiter]);
        };
        let owner = self.owner_id(waiter.client, OwnerKind::Lock, &waiter.owner);
        if file.locks.conflict(&args.by(owner)).is_none() {
            // It was given up since it was refused.
            return self.woken(vec![waiter]);
        }
        let key = (waiter.client, waiter.owner.clone());
        if file.waiting.len() < WAITERS_MAX || file.waiting.contains_key(&key) {
            file.waiting.insert(key, LockWaiter { waiter, args });
        }
    }

    /// Locks have gone, or less is locked than before, in a range: waiters for a part of
    /// it are woken.
    pub(super) fn wake(&self, file: &mut FileStates, range: Range) {
        let FileStates { waiting, locks, .. } = file;
        work::spend(waiting.len() as u64);
        let mut free = Vec::new();
        waiting.retain(|_, one| {
            let client = one.waiter.client;
            let is_free = one.args.range.overlaps(range) && {
                let owner = self.owner_id(client, OwnerKind::Lock, &one.waiter.owner);
                locks.conflict(&one.args.by(owner)).is_none()
            };
            if is_free {
                free.push(one.waiter.clone());
            }
            !is_free
        });
        self.woken(free);
    }

    fn woken(&self, waiters: Vec<Waiter>) {
        if !waiters.is_empty() {
            let mut woken = locked(&self.woken);
            woken.extend(waiters);
            self.has_woken.store(true, Ordering::Release);
        }
    }

    /// The waiters whose lock can be had now.
    #[inline]
    pub fn take_woken(&self) -> Vec<Waiter> {
        if !self.has_woken.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut woken = locked(&self.woken);
        self.has_woken.store(false, Ordering::Release);
        std::mem::take(&mut woken)
    }
}

/// Whether the open permits such a lock, and no other owner's lock conflicts.
fn check_lock(
    file: &FileStates,
    owner: LockOwner,
    share: ShareReservation,
    args: LockArgs,
) -> Result<(), StateRefused> {
    let needs = match args.is_exclusive {
        true => WRITE,
        false => READ,
    };
    if share.access & needs == 0 {
        return Err(StateRefused::Status(nfsstat4::NFS4ERR_OPENMODE));
    }
    check_free(file, owner, args)
}

pub(super) fn check_free(
    file: &FileStates,
    owner: LockOwner,
    args: LockArgs,
) -> Result<(), StateRefused> {
    let Some(held) = file.locks.conflict(&args.by(owner)) else {
        return Ok(());
    };
    let state = file.lock_states.of_owner(held.owner);
    let state = state.expect("a holder of a lock has a state");
    let name = state.owner.name.clone();
    Err(StateRefused::Denied(*held, state.client, name))
}
