//! Read delegations: given, recalled, returned, and taken away from clients that do
//! not return them (RFC 8881, sections 10.2 and 10.4).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use machine::{Nanos, locked, work};
use wire::nfs4::{clientid4, nfsstat4, stateid4};

use super::state::{GONE, READ, RECALLED, REVOKED, WRITE, stateid};
use super::{
    FileKey, FileStates, Files, OpenArgs, ShareReservation, State, StateKind, StateRefused,
};

/// A file whose delegation was recalled, or that was written without an open, gets none
/// for so long: it is written now and then.
const REST: Nanos = 30_000_000_000;

/// Delegations of one file at most: all of them are recalled at once.
const OF_FILE_MAX: usize = 1024;

/// Places that remember recalls; files share them.
pub(super) const RECALLS: usize = 1024;

/// A delegation to be recalled.
#[derive(Clone, Debug)]
pub struct Recall {
    /// Which.
    pub state: Arc<State>,
    /// Its state id.
    pub stateid: stateid4,
    /// The file handle by which its client has it.
    pub handle: Arc<[u8]>,
}

/// A delegation of a file.
#[derive(Debug)]
pub(super) struct Delegation {
    pub(super) state: Arc<State>,
    handle: Arc<[u8]>,
}

impl FileStates {
    /// Refuses while others have delegations.
    pub(super) fn check_delegations(
        &self,
        files: &Files,
        client: clientid4,
        now: Nanos,
    ) -> Result<(), StateRefused> {
        work::spend(self.delegations.len() as u64);
        let others = || self.delegations.iter().filter(|d| d.state.client != client);
        if others().next().is_none() {
            return Ok(());
        }
        let clients = others().map(|delegation| delegation.state.client).collect();
        let mut recalls = Vec::new();
        for Delegation { state, handle } in others().filter(|d| !d.state.is_recalled()) {
            state.mark(RECALLED);
            recalls.push(Recall {
                state: state.clone(),
                stateid: stateid(files.boot, state),
                handle: handle.clone(),
            });
        }
        files.remember_recalls(&recalls, now);
        Err(StateRefused::Recall(recalls, clients))
    }
}

impl Files {
    fn recall_place(&self, (system, file): FileKey) -> &std::sync::atomic::AtomicU64 {
        let hash = (system ^ file).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.recalls[hash as usize % RECALLS]
    }

    fn remember_recalls(&self, recalls: &[Recall], now: Nanos) {
        if recalls.is_empty() {
            return;
        }
        let mut recalled = locked(&self.recalled);
        for recall in recalls {
            recalled.push_back((now, recall.state.clone()));
            self.rest(recall.state.file, now);
        }
    }

    /// The file is changed without an open: until that is surely over it is not delegated.
    /// A client with a delegation would keep what is being replaced.
    #[inline]
    pub fn rest(&self, file: FileKey, now: Nanos) {
        let until = now.saturating_add(REST);
        self.recall_place(file).store(until, Ordering::Relaxed);
    }

    /// A read delegation for a file that no client writes, if its client has none.
    pub(super) fn delegate(
        &self,
        file: &mut FileStates,
        args: &OpenArgs<'_>,
    ) -> Option<Arc<State>> {
        let handle = args.delegate?;
        let writes = |share: ShareReservation| share.access & WRITE != 0;
        work::spend(file.delegations.len() as u64);
        let in_the_way = |state: &State| state.client == args.client || state.is_recalled();
        let is_free = args.share.access & WRITE == 0
            && file.opens.find_share(writes).is_none()
            && !file.delegations.iter().any(|d| in_the_way(&d.state));
        let rests_until = self.recall_place(args.file).load(Ordering::Relaxed);
        let has_room = self.delegations.load(Ordering::Relaxed) < self.delegations_max
            && file.delegations.len() < OF_FILE_MAX;
        if !is_free || !has_room || args.now < rests_until {
            return None;
        }
        let share = ShareReservation {
            access: READ,
            deny: 0,
        };
        let state = self.add(
            (args.client, args.uid),
            (StateKind::Delegation, None),
            args.file,
            b"",
            share,
        )?;
        self.delegations.fetch_add(1, Ordering::Relaxed);
        file.delegations.push(Delegation {
            state: state.clone(),
            handle: handle.into(),
        });
        Some(state)
    }

    /// Whether any client has a delegation of anything.
    #[inline]
    pub fn has_delegations(&self) -> bool {
        self.delegations.load(Ordering::Relaxed) > 0
    }

    /// A client is about to write, set attributes of, link, rename or remove
    /// the file: delegations of others are to be recalled first.
    ///
    /// # Errors
    /// [`StateRefused::Recall`].
    #[inline]
    pub fn break_delegations(
        &self,
        client: clientid4,
        file: FileKey,
        now: Nanos,
    ) -> Result<(), StateRefused> {
        if !self.has_delegations() {
            return Ok(());
        }
        let shard = self.shard(file);
        match shard.get(&file) {
            Some(file) => file.check_delegations(self, client, now),
            None => Ok(()),
        }
    }

    /// DELEGRETURN.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_BAD_STATEID`].
    pub fn return_delegation(&self, state: &State) -> Result<(), nfsstat4> {
        self.end_delegation(state, GONE)?;
        self.drop_state(state);
        Ok(())
    }

    fn end_delegation(&self, state: &State, flag: u64) -> Result<(), nfsstat4> {
        let bad = nfsstat4::NFS4ERR_BAD_STATEID;
        let mut shard = self.shard(state.file);
        let file = shard.get_mut(&state.file).ok_or(bad)?;
        work::spend(file.delegations.len() as u64);
        let mut delegations = file.delegations.iter();
        let at = delegations.position(|d| std::ptr::eq(&*d.state, state));
        file.delegations.swap_remove(at.ok_or(bad)?);
        if file.is_empty() {
            shard.remove(&state.file);
        }
        self.delegations.fetch_sub(1, Ordering::Relaxed);
        state.mark(flag);
        Ok(())
    }

    /// Takes delegations away that were recalled more than `patience` ago and
    /// not returned: their clients must say FREE_STATEID for them. What the turn has no
    /// share for comes the next time.
    pub fn revoke_overdue(&self, patience: Nanos, now: Nanos) -> Vec<Arc<State>> {
        let mut overdue = Vec::new();
        while let Some(state) = self.next_overdue(patience, now) {
            work::spend(1);
            if !state.is_over() && self.end_delegation(&state, REVOKED).is_ok() {
                self.count_revoked(state.client);
                overdue.push(state);
            }
            if work::is_used_up() {
                break;
            }
        }
        overdue
    }

    /// The delegation that was recalled first, if it is over or must be by now.
    fn next_overdue(&self, patience: Nanos, now: Nanos) -> Option<Arc<State>> {
        let mut recalled = locked(&self.recalled);
        let (since, state) = recalled.front()?;
        match now.saturating_sub(*since) > patience || state.is_over() {
            true => recalled.pop_front().map(|(_, state)| state),
            false => None,
        }
    }
}
