//! What hosts of NFSv3 have of files, by the Network Lock Manager: locks without opens, and share
//! reservations of their own (RFC 1813, appendix II). They lie with those of NFSv4, so that each
//! is in the way of the other.

use machine::{Nanos, work};
use wire::nfs4::{clientid4, nfsstat4};

use super::super::locks::Range;
use super::held::Opens;
use super::locking::{LockArgs, check_free};
use super::state::{GONE, READ, WRITE};
use super::{FileKey, FileStates, Files, OwnerKind, ShareReservation, StateKind, StateRefused};

/// The open of locks that have none: no state has this number.
const NO_OPEN: u32 = 0;

/// An owner of locks or shares of a host, in a file.
#[derive(Clone, Copy, Debug)]
pub struct NlmOwner<'a> {
    /// What stands for its host ([`Files::nlm_client`]).
    pub client: clientid4,
    /// Which owner.
    pub name: &'a [u8],
    /// The file.
    pub file: FileKey,
}

const FULL: StateRefused = StateRefused::Status(nfsstat4::NFS4ERR_RESOURCE);

impl Files {
    /// The id of a host of NFSv3, which no client of NFSv4 has.
    pub fn nlm_client(&self, number: u32) -> clientid4 {
        u64::from(!self.boot) << 32 | u64::from(number)
    }

    /// Whether an id stands for a host of NFSv3.
    pub fn is_nlm_client(&self, client: clientid4) -> bool {
        (client >> 32) as u32 == !self.boot
    }

    /// A lock of an owner of a host.
    ///
    /// # Errors
    /// [`StateRefused::Denied`]; [`nfsstat4::NFS4ERR_RESOURCE`].
    pub fn nlm_lock(&self, by: NlmOwner<'_>, args: LockArgs) -> Result<(), StateRefused> {
        let mut shard = self.shard(by.file);
        let file = shard.entry(by.file).or_default();
        let locked = self.nlm_lock_in(file, by, args);
        if file.is_empty() {
            shard.remove(&by.file);
        }
        locked
    }

    fn nlm_lock_in(
        &self,
        file: &mut FileStates,
        by: NlmOwner<'_>,
        args: LockArgs,
    ) -> Result<(), StateRefused> {
        let id = self.owner_id(by.client, OwnerKind::Lock, by.name);
        check_free(file, id, args)?;
        let (state, is_new) = match file.lock_states.of_owner(id) {
            Some(state) => (state.clone(), false),
            None => {
                let kind = StateKind::Lock { open: NO_OPEN };
                let share = ShareReservation {
                    access: READ | WRITE,
                    deny: 0,
                };
                let holder = (by.client, 0);
                let state = self.add(holder, (kind, None), by.file, by.name, share);
                (state.ok_or(FULL)?, true)
            }
        };
        let wanted = args.by(state.owner.id);
        match file.change_locks(&state.owner, |locks| locks.lock(wanted)) {
            Ok(is_less) => {
                if is_new {
                    file.lock_states.insert(&state);
                }
                if is_less {
                    self.wake(file, args.range);
                }
                Ok(())
            }
            Err(_) => {
                if is_new {
                    state.mark(GONE);
                    self.drop_state(&state);
                }
                Err(FULL)
            }
        }
    }

    /// An owner of a host gives up what it has in a range.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_RESOURCE`] where a lock would become two, and there are as many as may
    /// be.
    pub fn nlm_unlock(&self, by: NlmOwner<'_>, range: Range) -> Result<(), nfsstat4> {
        let mut shard = self.shard(by.file);
        let Some(file) = shard.get_mut(&by.file) else {
            return Ok(());
        };
        let id = self.owner_id(by.client, OwnerKind::Lock, by.name);
        let Some(state) = file.lock_states.of_owner(id).cloned() else {
            return Ok(());
        };
        let unlocked = file.change_locks(&state.owner, |locks| locks.unlock(id, range));
        let is_less = unlocked.map_err(|_| nfsstat4::NFS4ERR_RESOURCE)?;
        if !file.locks.holds(id) {
            self.drop_lock_state(file, &state);
        }
        if is_less {
            self.wake(file, range);
        }
        if file.is_empty() {
            shard.remove(&by.file);
        }
        Ok(())
    }

    /// An owner waits no longer; whether it did, for such a lock.
    pub fn nlm_cancel(&self, by: NlmOwner<'_>, args: LockArgs) -> bool {
        let mut shard = self.shard(by.file);
        let Some(file) = shard.get_mut(&by.file) else {
            return false;
        };
        let key = (by.client, Box::from(by.name));
        let is_it = file.waiting.get(&key).is_some_and(|one| one.args == args);
        if is_it {
            file.waiting.remove(&key);
        }
        is_it
    }

    /// An owner of a host has a file open, and says what others may not do with it meanwhile;
    /// in the place of what it said before.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_SHARE_DENIED`] behind [`StateRefused::InTheWay`]; delegations to
    /// recall; [`nfsstat4::NFS4ERR_RESOURCE`].
    pub fn nlm_share(
        &self,
        by: NlmOwner<'_>,
        share: ShareReservation,
        now: Nanos,
    ) -> Result<(), StateRefused> {
        let mut shard = self.shard(by.file);
        let file = shard.entry(by.file).or_default();
        let shared = self.nlm_share_in(file, by, share, now);
        if file.is_empty() {
            shard.remove(&by.file);
        }
        shared
    }

    fn nlm_share_in(
        &self,
        file: &mut FileStates,
        by: NlmOwner<'_>,
        share: ShareReservation,
        now: Nanos,
    ) -> Result<(), StateRefused> {
        let id = self.owner_id(by.client, OwnerKind::Open, by.name);
        let before = file.shares.of_owner(id).map(|open| open.state.clone());
        if let Some(state) = &before {
            // What it has itself is not in its way.
            file.shares.remove(state);
        }
        let checked = file
            .check_share(share)
            .and_then(|()| file.check_delegations(self, by.client, share.breaks(), now));
        let state = match (checked, before) {
            (Err(refused), before) => {
                before.iter().for_each(|state| file.shares.insert(state));
                return Err(refused);
            }
            (Ok(()), Some(state)) => {
                state.change(share);
                state
            }
            (Ok(()), None) => {
                let kind = (StateKind::Share, None);
                let state = self.add((by.client, 0), kind, by.file, by.name, share);
                state.ok_or(FULL)?
            }
        };
        file.shares.insert(&state);
        Ok(())
    }

    /// An owner of a host has a file open no more.
    pub fn nlm_unshare(&self, by: NlmOwner<'_>) {
        let mut shard = self.shard(by.file);
        let Some(file) = shard.get_mut(&by.file) else {
            return;
        };
        let id = self.owner_id(by.client, OwnerKind::Open, by.name);
        if let Some(state) = file.shares.of_owner(id).map(|open| open.state.clone()) {
            file.shares.remove(&state);
            state.mark(GONE);
            self.drop_state(&state);
        }
        if file.is_empty() {
            shard.remove(&by.file);
        }
    }
}

impl FileStates {
    /// Whether no open, and no share of a host of NFSv3, keeps from having a file open so.
    pub(super) fn check_share(&self, wanted: ShareReservation) -> Result<(), StateRefused> {
        let conflicts = |share: ShareReservation| share.conflicts(wanted);
        let in_the_way = |opens: &Opens| Some(opens.find_share(conflicts)?.state.client);
        work::spend(1);
        match in_the_way(&self.opens).or_else(|| in_the_way(&self.shares)) {
            Some(client) => Err(StateRefused::InTheWay(
                client,
                nfsstat4::NFS4ERR_SHARE_DENIED,
            )),
            None => Ok(()),
        }
    }
}
