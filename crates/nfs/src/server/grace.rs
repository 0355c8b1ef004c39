//! The time after a start in which clients take back what they had (RFC 8881,
//! section 8.4.2).

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use machine::{Nanos, locked};

#[derive(Debug)]
pub(super) struct Grace {
    until: Nanos,
    /// No client is waited for any more.
    is_over: AtomicBool,
    /// Clients that have not said that they are done, and whether they are on
    /// record again since the start.
    awaited: Mutex<HashMap<Box<[u8]>, bool>>,
}

impl Grace {
    pub(super) fn new(known: impl IntoIterator<Item = Box<[u8]>>, until: Nanos) -> Grace {
        let awaited: HashMap<_, _> = known.into_iter().map(|owner| (owner, false)).collect();
        Grace {
            until,
            is_over: AtomicBool::new(awaited.is_empty()),
            awaited: Mutex::new(awaited),
        }
    }

    /// Whether it is over, whatever the time.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    pub(super) fn has_run_out(&self, now: Nanos) -> bool {
        now >= self.until
    }

    /// Whether a client had state before, and may have it back.
    pub(super) fn awaits(&self, owner: &[u8]) -> bool {
        let awaited = locked(&self.awaited);
        awaited.contains_key(owner)
    }

    /// A client is on record again.
    pub(super) fn recorded(&self, owner: &[u8]) {
        let mut awaited = locked(&self.awaited);
        if let Some(is_recorded) = awaited.get_mut(owner) {
            *is_recorded = true;
        }
    }

    /// A client is done, or will never be; with the last one grace ends.
    pub(super) fn done(&self, owner: &[u8]) {
        let mut awaited = locked(&self.awaited);
        awaited.remove(owner);
        if awaited.is_empty() {
            self.is_over.store(true, Ordering::Release);
        }
    }

    /// It ends. Returns the clients that did not reclaim what they had: others may
    /// have it from now on.
    pub(super) fn end(&self) -> Vec<Box<[u8]>> {
        let mut awaited = locked(&self.awaited);
        self.is_over.store(true, Ordering::Release);
        let absent = awaited.drain().filter(|(_, is_recorded)| !is_recorded);
        absent.map(|(owner, _)| owner).collect()
    }
}
