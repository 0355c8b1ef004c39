//! Syncs of one open file, one at a time.
//!
//! The kernel reports a failed writeback to one sync of a descriptor and then takes
//! the lost pages for clean. Of two syncs that overlap, the other one would succeed
//! over the hole, and might even be answered first. So a sync begins only when the
//! one before it has ended; requests that come meanwhile share the next one. And a
//! failure counts for every write and COMMIT that had begun by then: the kernel
//! does not say whose pages were lost.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use reactor::Ticket;
use rustix::io::Errno;

#[derive(Default)]
struct SyncState {
    /// The number of the last sync that has begun.
    begun: u64,
    /// The number of the last one that has ended.
    ended: u64,
    is_under_way: bool,
    /// Rung when the one under way has ended.
    waiting: Vec<Ticket>,
    /// Something was written since the last sync has begun.
    has_writes: bool,
    failures: u64,
    /// Of the last failure.
    errno: Option<Errno>,
}

#[derive(Default)]
pub(super) struct FileSyncs(Mutex<SyncState>);

/// How a sync that is wanted stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sync {
    /// It has ended.
    Ended,
    /// It begins now: the caller syncs, and then says [`FileSyncs::end`].
    Begin,
    /// Another one is under way: the ticket rings at its end.
    Wait,
}

impl FileSyncs {
    fn state(&self) -> MutexGuard<'_, SyncState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Failures so far, for [`FileSyncs::check`].
    pub(super) fn failures(&self) -> u64 {
        self.state().failures
    }

    /// Whether no sync has failed since there were so many failures.
    pub(super) fn check(&self, failures: u64) -> Result<(), Errno> {
        let state = self.state();
        match state.failures == failures {
            true => Ok(()),
            false => Err(state.errno.unwrap_or(Errno::IO)),
        }
    }

    /// Something was written.
    pub(super) fn wrote(&self) {
        self.state().has_writes = true;
    }

    /// Whether a close now would lose the error of a write.
    pub(super) fn has_writes(&self) -> bool {
        self.state().has_writes
    }

    /// The number of the first sync that covers all that is written by now.
    pub(super) fn next(&self) -> u64 {
        self.state().begun + 1
    }

    /// Wants the sync of this number or a later one.
    pub(super) fn join(&self, number: u64, ticket: impl FnOnce() -> Ticket) -> Sync {
        let mut state = self.state();
        if state.ended >= number {
            return Sync::Ended;
        }
        if state.is_under_way {
            state.waiting.push(ticket());
            return Sync::Wait;
        }
        state.begin();
        Sync::Begin
    }

    /// Begins a sync, unless one is under way or there is nothing to sync.
    pub(super) fn begin(&self) -> bool {
        let mut state = self.state();
        let begins = state.has_writes && !state.is_under_way;
        if begins {
            state.begin();
        }
        begins
    }

    /// The sync that has begun is over.
    pub(super) fn end(&self, result: Result<(), Errno>) {
        let mut state = self.state();
        state.is_under_way = false;
        state.ended = state.begun;
        if let Err(errno) = result {
            state.failures += 1;
            state.errno = Some(errno);
        }
        let waiting = mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Ticket::ring);
    }
}

impl SyncState {
    fn begin(&mut self) {
        self.begun += 1;
        self.is_under_way = true;
        self.has_writes = false;
    }
}
