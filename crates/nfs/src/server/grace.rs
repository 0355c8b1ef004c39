//! The time after a start in which clients take back what they had (RFC 8881,
//! section 8.4.2).

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use machine::Nanos;

#[derive(Debug)]
pub(super) struct Grace {
    until: Nanos,
    /// Nobody is waited for any more.
    is_over: AtomicBool,
    /// Clients that have not said that they are done.
    awaited: Mutex<HashSet<Box<[u8]>>>,
}

impl Grace {
    pub(super) fn new(known: impl IntoIterator<Item = Box<[u8]>>, until: Nanos) -> Grace {
        let awaited: HashSet<_> = known.into_iter().collect();
        Grace {
            until,
            is_over: AtomicBool::new(awaited.is_empty()),
            awaited: Mutex::new(awaited),
        }
    }

    pub(super) fn is_on(&self, now: Nanos) -> bool {
        if self.is_over.load(Ordering::Acquire) {
            return false;
        }
        if now >= self.until {
            self.is_over.store(true, Ordering::Release);
        }
        now < self.until
    }

    /// Whether a client had state before, and may have it back.
    pub(super) fn awaits(&self, owner: &[u8]) -> bool {
        self.awaited.lock().expect("nobody panics").contains(owner)
    }

    /// A client is done; with the last one grace ends.
    pub(super) fn done(&self, owner: &[u8]) {
        let mut awaited = self.awaited.lock().expect("nobody panics");
        awaited.remove(owner);
        if awaited.is_empty() {
            self.is_over.store(true, Ordering::Release);
        }
    }

    /// Those that never came.
    pub(super) fn take_absent(&self) -> Vec<Box<[u8]>> {
        let mut awaited = self.awaited.lock().expect("nobody panics");
        awaited.drain().collect()
    }
}
