//! Syncs of the file with the sums: one for all writes that wait.

use std::sync::{Mutex, MutexGuard};

use reactor::Ticket;
use rustix::io::Errno;

#[derive(Default)]
pub(super) struct GroupSync(Mutex<SyncState>);

#[derive(Default)]
struct SyncState {
    /// Syncs that have begun, and those that have ended well.
    begun: u64,
    ended: u64,
    is_running: bool,
    /// The first that failed. What it was to write may be lost, and no later one tells.
    failed: Option<Errno>,
    waiting: Vec<Ticket>,
}

/// What one who needs a sync does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncTurn {
    /// It is done.
    Done,
    /// Begins it, for all, and says how it ended.
    Begin,
    /// Waits, and asks again when its ticket is rung.
    Wait,
    /// It has failed.
    Failed(Errno),
}

impl GroupSync {
    fn state(&self) -> MutexGuard<'_, SyncState> {
        self.0.lock().expect("nothing panics under this lock")
    }

    /// The number of the first sync that will have all that is written by now.
    pub(super) fn next(&self) -> u64 {
        self.state().begun + 1
    }

    /// Whose turn it is, of one who needs the sync of that number.
    pub(super) fn turn(&self, number: u64, ticket: impl FnOnce() -> Ticket) -> SyncTurn {
        let mut state = self.state();
        if let Some(errno) = state.failed {
            return SyncTurn::Failed(errno);
        }
        if state.ended >= number {
            return SyncTurn::Done;
        }
        if state.is_running {
            state.waiting.push(ticket());
            return SyncTurn::Wait;
        }
        state.is_running = true;
        state.begun += 1;
        SyncTurn::Begin
    }

    /// The one that was begun is over. Whether it is the first that failed.
    pub(super) fn end(&self, result: Result<(), Errno>) -> bool {
        let mut state = self.state();
        state.is_running = false;
        match result {
            Ok(()) => state.ended = state.begun,
            Err(errno) => state.failed = Some(errno),
        }
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Ticket::ring);
        result.is_err()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reactor::Bell;

    #[test]
    fn one_sync_is_for_all_that_was_written_before_it_began() {
        let (syncs, bell) = (GroupSync::default(), Bell::new(None));
        let ticket = || bell.ticket(0);
        let first = syncs.next();
        assert_eq!(syncs.turn(first, ticket), SyncTurn::Begin);
        // Written while it is under way.
        let (second, third) = (syncs.next(), syncs.next());
        assert_eq!(syncs.turn(second, ticket), SyncTurn::Wait);
        assert_eq!(syncs.turn(third, ticket), SyncTurn::Wait);
        assert!(!syncs.end(Ok(())));
        assert!(bell.is_rung());
        assert_eq!(syncs.turn(first, ticket), SyncTurn::Done);
        assert_eq!(syncs.turn(second, ticket), SyncTurn::Begin);
        assert_eq!(syncs.turn(third, ticket), SyncTurn::Wait);
        assert!(!syncs.end(Ok(())));
        assert_eq!(syncs.turn(third, ticket), SyncTurn::Done);
    }

    #[test]
    fn nothing_is_synced_after_a_sync_that_failed() {
        let (syncs, bell) = (GroupSync::default(), Bell::new(None));
        let ticket = || bell.ticket(0);
        let number = syncs.next();
        assert_eq!(syncs.turn(number, ticket), SyncTurn::Begin);
        assert!(syncs.end(Err(Errno::IO)));
        let failed = SyncTurn::Failed(Errno::IO);
        assert_eq!(syncs.turn(number, ticket), failed);
        assert_eq!(syncs.turn(syncs.next(), ticket), failed);
    }
}
