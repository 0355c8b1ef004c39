//! Delegations: given, recalled, returned, and taken away from clients that do not
//! return them (RFC 8881, sections 10.2 and 10.4); what the client of a write
//! delegation says of its file (section 10.4.3).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use faults::Fault;
use machine::{Nanos, locked, work};
use wire::nfs4::{clientid4, nfsstat4, nfstime4, stateid4};

use super::state::{GONE, RECALLED, REVOKED, WRITE, stateid};
use super::{
    FileKey, FileStates, Files, OpenArgs, ShareReservation, State, StateKind, StateRefused,
};

/// A file whose delegation was recalled, or that was written without an open, gets none
/// for so long: it is written now and then.
const REST: Nanos = 30_000_000_000;

/// Delegations of one file at most: all of them are recalled at once.
const OF_FILE_MAX: usize = 1024;

/// Places that remember recalls and changes; files share them. A client that removes a tree of
/// thousands of files and makes another is to find most of them free.
pub(super) const RECALLS: usize = 64 * 1024;

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

/// A question to the client with a write delegation: what its file is like there.
#[derive(Clone, Debug)]
pub struct HolderQuestion {
    /// The delegation.
    pub state: Arc<State>,
    /// The file handle by which its client has it.
    pub handle: Arc<[u8]>,
    /// When it was put.
    pub asked_at: Nanos,
    /// The times of the file are the client's to say.
    pub delegates_times: bool,
}

/// What the client with a write delegation has answered.
#[derive(Clone, Copy, Debug)]
pub struct HolderAnswer {
    /// `change`.
    pub change: u64,
    /// Bytes.
    pub size: u64,
    /// When the file was last read and its content last changed, where that is delegated.
    pub times: Option<(nfstime4, nfstime4)>,
}

/// What the client with a write delegation says of its file.
#[derive(Clone, Debug)]
pub struct HolderView {
    /// The delegation.
    pub state: Arc<State>,
    /// `change`: another one than that which it was given, where it has changed the file.
    pub change: u64,
    /// Bytes.
    pub size: u64,
    /// `change` as it was given with the delegation, if that is known.
    pub given: Option<u64>,
    /// When the file was last read and its content last changed, where that is delegated.
    pub times: Option<(nfstime4, nfstime4)>,
}

impl HolderView {
    /// Whether the client has changed the file, of which the server has so many bytes (RFC
    /// 8881, section 10.4.3).
    pub fn is_modified(&self, size: u64) -> bool {
        self.given != Some(self.change) || self.size != size
    }
}

/// What there is to know of the client with a write delegation.
#[derive(Debug)]
pub enum DelegationHolder {
    /// No other client has one.
    NoOther,
    /// It is to be asked.
    Ask(HolderQuestion),
    /// It was asked then and has not answered yet.
    Asked(Nanos),
    /// It has answered.
    Says(HolderView),
    /// It cannot say, or is returning the delegation.
    Silent,
}

/// Lives as long as a delegation.
pub type Watched = Box<dyn fmt::Debug + Send + Sync>;

/// A delegation of a file.
#[derive(Debug)]
pub(super) struct Delegation {
    pub(super) state: Arc<State>,
    handle: Arc<[u8]>,
    /// Of a write delegation: `change` as its client was given it.
    given: Option<u64>,
    delegates_times: bool,
    /// What tells of changes by local programs, as long as it lives.
    _watched: Option<Watched>,
    /// It was asked then, and has not answered yet.
    asked_at: Option<Nanos>,
    /// What it said when it was asked then; `None` where it could not say.
    said: Option<(Nanos, Option<HolderView>)>,
}

impl Delegation {
    fn is_write(&self) -> bool {
        self.state.share().access & WRITE != 0
    }
}

impl FileStates {
    /// Refuses while others have delegations that `access` is in the way of: any where it is
    /// [`WRITE`], else write delegations.
    pub(super) fn check_delegations(
        &self,
        files: &Files,
        client: clientid4,
        access: u32,
        now: Nanos,
    ) -> Result<(), StateRefused> {
        work::spend(self.delegations.len() as u64);
        let is_read_alone = access & WRITE == 0;
        if is_read_alone && faults::is(Fault::NoRecall) {
            return Ok(());
        }
        let in_the_way = |d: &&Delegation| {
            let is_kept = faults::is(Fault::NoRecallAlone) && d.state.holds_file();
            d.state.client != client && (!is_read_alone || d.is_write()) && !is_kept
        };
        let others = || self.delegations.iter().filter(in_the_way);
        if others().next().is_none() {
            return Ok(());
        }
        let clients = others().map(|delegation| delegation.state.client).collect();
        let mut recalls = Vec::new();
        for Delegation { state, handle, .. } in others().filter(|d| !d.state.is_recalled()) {
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

    /// A delegation, if its client has none: for a client that writes, of a file that no other
    /// has open or locked, nor a host of NFSv3; for one that reads, of a file that no client
    /// has open to write, and no other has locked.
    pub(super) fn delegate(
        &self,
        file: &mut FileStates,
        args: &OpenArgs<'_>,
    ) -> Option<Arc<State>> {
        let handle = args.delegate?;
        let writes = |share: ShareReservation| share.access & WRITE != 0;
        work::spend(file.delegations.len() as u64);
        let in_the_way = |state: &State| state.client == args.client || state.is_recalled();
        let is_free = match writes(args.share) {
            true => {
                !file.opens.has_others(args.client)
                    && !file.lock_states.has_others(args.client)
                    && file.shares.is_empty()
                    && file.delegations.is_empty()
            }
            false => {
                file.opens.find_share(writes).is_none()
                    && !file.lock_states.has_others(args.client)
                    && !file.delegations.iter().any(|d| in_the_way(&d.state))
            }
        };
        let rests_until = self.recall_place(args.file).load(Ordering::Relaxed);
        let has_room = self.delegations.load(Ordering::Relaxed) < self.delegations_max
            && file.delegations.len() < OF_FILE_MAX;
        if !is_free || !has_room || args.now < rests_until {
            return None;
        }
        // No more than the open: what that did not ask for was not checked.
        let share = ShareReservation {
            access: args.share.access,
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
            given: None,
            delegates_times: writes(share) && args.delegates_times,
            _watched: None,
            asked_at: None,
            said: None,
        });
        Some(state)
    }

    /// Calls `change` with a delegation, while it is there.
    fn with_delegation(&self, state: &Arc<State>, change: impl FnOnce(&mut Delegation)) {
        let mut shard = self.shard(state.file);
        let its = shard.get_mut(&state.file).map(|file| &mut file.delegations);
        let mut all = its.into_iter().flatten();
        if let Some(delegation) = all.find(|d| Arc::ptr_eq(&d.state, state)) {
            change(delegation);
        }
    }

    /// `change` of a file as its client is given it with a write delegation.
    pub fn note_given(&self, state: &Arc<State>, change: u64) {
        self.with_delegation(state, |delegation| delegation.given = Some(change));
    }

    /// Keeps this as long as a delegation.
    pub fn keep_watched(&self, state: &Arc<State>, watched: Watched) {
        self.with_delegation(state, |delegation| delegation._watched = Some(watched));
    }

    /// What the client with a write delegation says to one that looks at the file, and began
    /// to at `since`: what it said before does not count.
    pub fn ask_holder(
        &self,
        file: FileKey,
        client: clientid4,
        (since, now): (Nanos, Nanos),
    ) -> DelegationHolder {
        if !self.has_delegations() {
            return DelegationHolder::NoOther;
        }
        let mut shard = self.shard(file);
        // A write delegation is the only one of its file.
        let its = shard.get_mut(&file);
        let its = its.and_then(|file| file.delegations.first_mut());
        let Some(its) = its.filter(|d| d.is_write() && d.state.client != client) else {
            return DelegationHolder::NoOther;
        };
        if its.state.is_recalled() {
            return DelegationHolder::Silent;
        }
        match &its.said {
            Some((asked_at, said)) if *asked_at >= since => said
                .clone()
                .map_or(DelegationHolder::Silent, DelegationHolder::Says),
            _ => match its.asked_at {
                Some(at) => DelegationHolder::Asked(at),
                None => {
                    its.asked_at = Some(now);
                    DelegationHolder::Ask(HolderQuestion {
                        state: its.state.clone(),
                        handle: its.handle.clone(),
                        asked_at: now,
                        delegates_times: its.delegates_times,
                    })
                }
            },
        }
    }

    /// Whether a state is a delegation that the times of its file are delegated with.
    pub fn delegates_times(&self, state: &Arc<State>) -> bool {
        let mut delegates = false;
        self.with_delegation(state, |delegation| delegates = delegation.delegates_times);
        delegates
    }

    /// The client with a write delegation has answered, if it could.
    pub fn holder_said(&self, question: &HolderQuestion, said: Option<HolderAnswer>) {
        self.with_delegation(&question.state, |delegation| {
            let given = delegation.given;
            let view = said.map(|said| HolderView {
                state: question.state.clone(),
                change: said.change,
                size: said.size,
                given,
                times: said.times,
            });
            delegation.said = Some((question.asked_at, view));
            delegation.asked_at = None;
        });
    }

    /// Whether any client has a delegation of anything.
    #[inline]
    pub fn has_delegations(&self) -> bool {
        self.delegations.load(Ordering::Relaxed) > 0
    }

    /// A client is about to write, set attributes of, link, rename or remove the file
    /// ([`WRITE`]), or to read it ([`super::READ`]): delegations of others that this is in the way of
    /// are to be recalled first.
    ///
    /// # Errors
    /// [`StateRefused::Recall`].
    #[inline]
    pub fn break_delegations(
        &self,
        client: clientid4,
        file: FileKey,
        access: u32,
        now: Nanos,
    ) -> Result<(), StateRefused> {
        if !self.has_delegations() {
            return Ok(());
        }
        let shard = self.shard(file);
        match shard.get(&file) {
            Some(file) => file.check_delegations(self, client, access, now),
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
