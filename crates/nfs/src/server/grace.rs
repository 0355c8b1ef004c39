//! The time after a start in which clients take back what they had (RFC 8881,
//! section 8.4.2).

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use machine::{Nanos, locked};

use super::principal::Principal;
use super::record::RecordedClient;

#[derive(Debug)]
pub(super) struct Grace {
    until: Nanos,
    /// No client is waited for any more.
    is_over: AtomicBool,
    /// By their names, those that have not said that they are done.
    awaited: Mutex<HashMap<Box<[u8]>, Vec<AwaitedClient>>>,
}

#[derive(Debug)]
struct AwaitedClient {
    /// As [`RecordedClient::principal`].
    principal: Option<Principal>,
    /// It is on record again since the start.
    is_recorded: bool,
}

impl AwaitedClient {
    fn is(&self, principal: Principal) -> bool {
        self.principal.is_none_or(|own| own == principal)
    }
}

impl Grace {
    pub(super) fn new(known: impl IntoIterator<Item = RecordedClient>, until: Nanos) -> Grace {
        let mut awaited: HashMap<_, Vec<_>> = HashMap::new();
        for RecordedClient { owner, principal } in known {
            awaited.entry(owner).or_default().push(AwaitedClient {
                principal,
                is_recorded: false,
            });
        }
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
    pub(super) fn awaits(&self, owner: &[u8], principal: Principal) -> bool {
        let awaited = locked(&self.awaited);
        let mut named = awaited.get(owner).into_iter().flatten();
        named.any(|client| client.is(principal))
    }

    /// Whether clients of this name had state before, none of them of this principal.
    pub(super) fn awaits_another(&self, owner: &[u8], principal: Principal) -> bool {
        let awaited = locked(&self.awaited);
        let named = awaited.get(owner);
        named.is_some_and(|named| !named.iter().any(|client| client.is(principal)))
    }

    /// A client is on record again.
    pub(super) fn recorded(&self, owner: &[u8], principal: Principal) {
        let mut awaited = locked(&self.awaited);
        let named = awaited.get_mut(owner).into_iter().flatten();
        named
            .filter(|client| client.is(principal))
            .for_each(|client| client.is_recorded = true);
    }

    /// A client is done, or will never be; with the last one grace ends.
    pub(super) fn done(&self, owner: &[u8], principal: Principal) {
        let mut awaited = locked(&self.awaited);
        if let Some(named) = awaited.get_mut(owner) {
            named.retain(|client| !client.is(principal));
            if named.is_empty() {
                awaited.remove(owner);
            }
        }
        if awaited.is_empty() {
            self.is_over.store(true, Ordering::Release);
        }
    }

    /// It ends. Returns the clients that did not reclaim what they had: others may
    /// have it from now on.
    pub(super) fn end(&self) -> Vec<RecordedClient> {
        let mut awaited = locked(&self.awaited);
        self.is_over.store(true, Ordering::Release);
        let absent = |(owner, named): (Box<[u8]>, Vec<AwaitedClient>)| {
            let absent = named.into_iter().filter(|client| !client.is_recorded);
            absent.map(move |client| RecordedClient {
                owner: owner.clone(),
                principal: client.principal,
            })
        };
        awaited.drain().flat_map(absent).collect()
    }
}
