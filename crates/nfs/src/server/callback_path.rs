//! The way to a client of version 4.0, which is called at an address that it names (RFC 7530,
//! sections 3.3.3, 10.2).

use std::sync::{Mutex, MutexGuard};

use machine::{Nanos, locked};

use super::CallbackAddress;

/// Calls to one client at a time.
const CALLS_MAX: usize = 4;
/// Until a client that could not be reached is tried again to give it delegations.
const REST: Nanos = 60_000_000_000;

/// What is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathState {
    /// The client was not called yet.
    Untried,
    /// It has answered the last call.
    Up,
    /// The last call, which ended then, had no answer.
    Down(Nanos),
}

/// The calls under way.
#[derive(Debug)]
struct PathCalls {
    state: PathState,
    count: usize,
    is_being_proved: bool,
}

/// The way to a client of version 4.0.
#[derive(Debug)]
pub struct CallbackPath {
    /// Where it leads.
    pub address: CallbackAddress,
    calls: Mutex<PathCalls>,
}

impl CallbackPath {
    pub(super) fn new(address: CallbackAddress) -> CallbackPath {
        CallbackPath {
            address,
            calls: Mutex::new(PathCalls {
                state: PathState::Untried,
                count: 0,
                is_being_proved: false,
            }),
        }
    }

    fn calls(&self) -> MutexGuard<'_, PathCalls> {
        locked(&self.calls)
    }

    /// Whether the client has answered the last call: it may have delegations.
    pub fn is_up(&self) -> bool {
        self.calls().state == PathState::Up
    }

    /// Whether the client is not called, or has not answered the last call: RENEW tells it, if
    /// it has delegations (RFC 7530, section 16.27).
    pub fn is_down(&self) -> bool {
        self.address.to.is_none() || matches!(self.calls().state, PathState::Down(_))
    }

    /// Whether CB_NULL is to be called now, to see whether the client answers. Then say
    /// [`CallbackPath::end_call`].
    pub fn begin_proof(&self, now: Nanos) -> bool {
        let mut calls = self.calls();
        let is_due = match calls.state {
            PathState::Untried => true,
            PathState::Up => false,
            PathState::Down(since) => now.saturating_sub(since) >= REST,
        };
        let begins = self.address.to.is_some() && is_due && !calls.is_being_proved;
        if begins {
            calls.is_being_proved = true;
            calls.count += 1;
        }
        begins
    }

    /// Whether there is room for one more call: one at a time of a client that has not answered.
    /// Then say [`CallbackPath::end_call`].
    pub fn begin_call(&self) -> bool {
        let mut calls = self.calls();
        let most = match calls.state {
            PathState::Up => CALLS_MAX,
            PathState::Untried | PathState::Down(_) => 1,
        };
        let begins = calls.count < most;
        calls.count += usize::from(begins);
        begins
    }

    /// A call was answered, or is waited for no longer.
    pub fn end_call(&self, is_answered: bool, now: Nanos) {
        let mut calls = self.calls();
        calls.count = calls.count.saturating_sub(1);
        calls.is_being_proved = false;
        calls.state = match is_answered {
            true => PathState::Up,
            false => PathState::Down(now),
        };
    }

    /// A call could not be made, which says nothing of the client.
    pub fn drop_call(&self) {
        let mut calls = self.calls();
        calls.count = calls.count.saturating_sub(1);
        calls.is_being_proved = false;
    }
}
