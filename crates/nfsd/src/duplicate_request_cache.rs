//! Calls that must not be executed twice, and what they were answered: a client
//! of NFSv3 or 4.0 that has lost its connection sends them again (RFC 1813,
//! section 4.5; RFC 7530, section 3.1.1; RFC 5531, section 5, on at-most-once
//! semantics). Sessions have slots for that.
//!
//! Kept by address, so that no client pushes out what another needs; not by port,
//! since few clients come back from the same one. A call is known by its
//! transaction identifier and by what it consists of, down to the caller, so that
//! clients behind one address are not mistaken for each other.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use machine::{Nanos, locked};
use nfs::connection::{Credential, Reply};

/// Calls of one address at most: behind it there may be many clients.
const CALLS_MAX: usize = 8 * 1024;
/// Calls of all addresses at most, but for these of each.
const CALLS_ALL_MAX: usize = 64 * 1024;
const CALLS_MIN: usize = 16;
/// Bytes of an answer that is kept.
const ANSWER_BYTES_MAX: usize = 1024;
/// Addresses that are remembered when none of theirs is connected.
const ADDRESSES_MAX: usize = 1024;
/// A call with the same key that arrives this late is another one.
const KEPT: Nanos = 120_000_000_000;

/// What a call is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CallKey {
    xid: u32,
    /// Of everything else.
    hash: u64,
}

impl CallKey {
    pub(crate) fn new(xid: u32, procedure: u32, credential: &Credential, args: &[u8]) -> CallKey {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        let head = [procedure, credential.uid, credential.gid];
        let head = head.iter().flat_map(|word| word.to_le_bytes());
        let head = head.chain(credential.principal.to_le_bytes());
        let begin = head.fold(0xcbf2_9ce4_8422_2325, |hash, byte| step(hash, &byte));
        CallKey {
            xid,
            hash: args.iter().fold(begin, step),
        }
    }
}

/// What is known of a call that arrived.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CallBegun {
    /// It is new: execute it, then [`AddressReplies::finish`] or [`AddressReplies::forget`].
    New,
    /// It was executed: these were its results.
    Again(Arc<[u8]>),
    /// It is being executed.
    UnderWay,
}

#[derive(Debug)]
struct PastCall {
    /// Of all calls of the address.
    number: u64,
    since: Nanos,
    /// `None` while it is under way.
    answer: Option<Arc<[u8]>>,
}

#[derive(Debug, Default)]
struct Calls {
    by_call: HashMap<CallKey, PastCall>,
    /// In the order in which they arrived, with their numbers; some were removed already.
    order: VecDeque<(CallKey, u64)>,
    number_next: u64,
}

/// What one address has called.
#[derive(Debug)]
pub(crate) struct AddressReplies {
    calls: Mutex<Calls>,
    /// Calls of all addresses.
    count: Arc<AtomicUsize>,
}

impl AddressReplies {
    /// A call arrived.
    pub(crate) fn begin(&self, known: CallKey, now: Nanos) -> CallBegun {
        let mut calls = locked(&self.calls);
        if let Some(call) = calls.by_call.get(&known) {
            match &call.answer {
                // However long it takes.
                None => return CallBegun::UnderWay,
                Some(answer) if now.saturating_sub(call.since) < KEPT => {
                    return CallBegun::Again(answer.clone());
                }
                Some(_) => {}
            }
        }
        self.make_room(&mut calls, now);
        let number = calls.number_next;
        calls.number_next += 1;
        let call = PastCall {
            number,
            since: now,
            answer: None,
        };
        if calls.by_call.insert(known, call).is_none() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        calls.order.push_back((known, number));
        CallBegun::New
    }

    /// Forgets what is late, and the oldest of what is too much; nothing that is
    /// being executed.
    fn make_room(&self, calls: &mut Calls, now: Nanos) {
        for _ in 0..calls.order.len() {
            let Some(&(known, number)) = calls.order.front() else {
                return;
            };
            let own = calls.by_call.len();
            let is_full = own >= CALLS_MAX
                || own >= CALLS_MIN && self.count.load(Ordering::Relaxed) >= CALLS_ALL_MAX;
            let call = calls.by_call.get(&known);
            match call.filter(|call| call.number == number) {
                None => {}
                Some(call) if call.answer.is_none() => {
                    // As many as are executed at a time come to stand behind.
                    let is_late = now.saturating_sub(call.since) >= KEPT;
                    if !is_full && !is_late {
                        return;
                    }
                    calls.order.rotate_left(1);
                    continue;
                }
                Some(call) if !is_full && now.saturating_sub(call.since) < KEPT => return,
                Some(_) => {
                    calls.by_call.remove(&known);
                    self.count.fetch_sub(1, Ordering::Relaxed);
                }
            }
            calls.order.pop_front();
        }
    }

    /// A call that was new has been executed.
    pub(crate) fn finish(&self, known: CallKey, results: &[u8]) {
        if results.len() > ANSWER_BYTES_MAX {
            return self.forget(known);
        }
        let mut calls = locked(&self.calls);
        if let Some(call) = calls.by_call.get_mut(&known) {
            call.answer = Some(results.into());
        }
    }

    /// A call that was new has done nothing: a retransmission of it is new again.
    pub(crate) fn forget(&self, known: CallKey) {
        let mut calls = locked(&self.calls);
        if calls.by_call.remove(&known).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
            let Calls { by_call, order, .. } = &mut *calls;
            if order.len() > 2 * by_call.len() + CALLS_MIN {
                let is_there = |&(known, number): &(CallKey, u64)| {
                    by_call
                        .get(&known)
                        .is_some_and(|call| call.number == number)
                };
                order.retain(is_there);
            }
        }
    }
}

impl Drop for AddressReplies {
    fn drop(&mut self) {
        let calls = locked(&self.calls);
        self.count.fetch_sub(calls.by_call.len(), Ordering::Relaxed);
    }
}

/// The calls of all addresses.
#[derive(Debug, Default)]
pub(crate) struct DuplicateRequestCache {
    /// In the order of their first connections.
    by_address: Mutex<VecDeque<(IpAddr, Arc<AddressReplies>)>>,
    count: Arc<AtomicUsize>,
}

impl DuplicateRequestCache {
    /// The calls of an address. Looked for once a connection.
    pub(crate) fn of(&self, address: IpAddr) -> Arc<AddressReplies> {
        let address = address.to_canonical();
        let mut all = locked(&self.by_address);
        if let Some((_, replies)) = all.iter().find(|(known, _)| *known == address) {
            return replies.clone();
        }
        if all.len() >= ADDRESSES_MAX {
            // Of those that are connected there are no more than connections.
            let unused = all
                .iter()
                .position(|(_, replies)| Arc::strong_count(replies) == 1);
            unused.map(|at| all.remove(at));
        }
        let replies = Arc::new(AddressReplies {
            calls: Mutex::default(),
            count: self.count.clone(),
        });
        all.push_back((address, replies.clone()));
        replies
    }
}

/// What a call is known by, once it does something that must not be done twice.
#[derive(Debug, Default)]
pub(crate) struct Once {
    pub(crate) known: Option<(Arc<AddressReplies>, CallKey)>,
    /// Since when it waits for the first of it to end.
    pub(crate) waits_since: Option<Nanos>,
}

impl Once {
    /// The call is over: this is its answer.
    #[inline]
    pub(crate) fn end(&mut self, reply: &Reply) {
        if self.known.is_some() {
            self.keep(reply);
        }
    }

    #[cold]
    fn keep(&mut self, reply: &Reply) {
        let results = reply.results();
        // What READ has sent is not there any more.
        let is_all = !reply.has_payload();
        match self.known.take() {
            Some((replies, known)) if !is_all => replies.forget(known),
            Some((replies, known)) => replies.finish(known, results),
            None => {}
        }
    }

    /// The call is given up.
    pub(crate) fn forget(&self) {
        if let Some((replies, known)) = &self.known {
            replies.forget(*known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(xid: u32, args: &[u8]) -> CallKey {
        CallKey::new(xid, 8, &Credential::sys(1, 2, []), args)
    }

    fn replies_of_an_address() -> (DuplicateRequestCache, Arc<AddressReplies>) {
        let cache = DuplicateRequestCache::default();
        let replies = cache.of("192.0.2.1".parse().unwrap());
        (cache, replies)
    }

    #[test]
    fn a_retransmitted_call_is_answered_as_before() {
        let (cache, replies) = replies_of_an_address();
        assert_eq!(replies.begin(known(1, b"a"), 0), CallBegun::New);
        assert_eq!(replies.begin(known(1, b"a"), 5), CallBegun::UnderWay);
        replies.finish(known(1, b"a"), b"done");
        // On whichever connection, of either family of addresses.
        let again = cache.of("::ffff:192.0.2.1".parse().unwrap());
        assert_eq!(
            again.begin(known(1, b"a"), 9),
            CallBegun::Again(b"done"[..].into())
        );
        // Others are not affected.
        let other = cache.of("192.0.2.2".parse().unwrap());
        assert_eq!(other.begin(known(1, b"a"), 9), CallBegun::New);
        assert_eq!(replies.begin(known(2, b"a"), 9), CallBegun::New);
        // The same number for something else, or much later, is another call.
        assert_eq!(replies.begin(known(1, b"b"), 9), CallBegun::New);
        replies.finish(known(1, b"b"), b"done too");
        assert_eq!(
            replies.begin(known(1, b"b"), 8 + KEPT),
            CallBegun::Again(b"done too"[..].into())
        );
        assert_eq!(replies.begin(known(1, b"b"), 9 + KEPT), CallBegun::New);
        for different in [
            CallKey::new(1, 9, &Credential::sys(1, 2, []), b"b"),
            CallKey::new(1, 8, &Credential::sys(2, 2, []), b"b"),
            CallKey::new(1, 8, &Credential::sys(1, 3, []), b"b"),
        ] {
            assert_ne!(different, known(1, b"b"));
        }
    }

    #[test]
    fn a_call_that_was_forgotten_or_had_a_long_answer_is_new_again() {
        let (_, replies) = replies_of_an_address();
        assert_eq!(replies.begin(known(1, b"a"), 0), CallBegun::New);
        replies.forget(known(1, b"a"));
        assert_eq!(replies.begin(known(1, b"a"), 0), CallBegun::New);
        replies.finish(known(1, b"a"), &[0; ANSWER_BYTES_MAX + 1]);
        assert_eq!(replies.begin(known(1, b"a"), 0), CallBegun::New);
    }

    #[test]
    fn answer_is_kept_up_to_its_length_and_until_its_time() {
        let (_, replies) = replies_of_an_address();
        let longest = [7; ANSWER_BYTES_MAX];
        replies.begin(known(1, b"a"), 0);
        replies.finish(known(1, b"a"), &longest);
        let again = replies.begin(known(1, b"a"), KEPT - 1);
        assert_eq!(again, CallBegun::Again(longest[..].into()));
        assert_eq!(replies.begin(known(2, b"a"), KEPT), CallBegun::New);
        assert_eq!(locked(&replies.calls).by_call.len(), 1, "the first is late");
    }

    #[test]
    fn forgotten_calls_take_no_place_in_the_order() {
        let (_, replies) = replies_of_an_address();
        let begin = |xid| replies.begin(known(xid, b"a"), 0);
        let begin_in_vain = |xid| {
            begin(xid);
            replies.forget(known(xid, b"a"));
        };
        begin(1);
        (0..3).for_each(|_| begin_in_vain(2));
        begin(2);
        (0..4 * CALLS_MIN).for_each(|_| begin_in_vain(3));
        let calls = locked(&replies.calls);
        for xid in [1, 2] {
            let known = known(xid, b"a");
            let places = calls.order.iter().filter(|(other, _)| *other == known);
            assert_eq!(places.count(), 1, "of {xid}");
        }
    }

    #[test]
    fn cached_calls_and_addresses_are_bounded() {
        let (cache, replies) = replies_of_an_address();
        let most = CALLS_MAX as u32;
        let all = most * 3;
        for xid in 0..all {
            assert_eq!(
                replies.begin(known(xid, b"a"), u64::from(xid)),
                CallBegun::New
            );
            replies.finish(known(xid, b"a"), b"done");
        }
        let count = |cache: &DuplicateRequestCache| cache.count.load(Ordering::Relaxed);
        assert_eq!(count(&cache), CALLS_MAX);
        assert_eq!(locked(&replies.calls).order.len(), CALLS_MAX);
        let now = u64::from(all);
        assert_ne!(
            replies.begin(known(all - most / 2, b"a"), now),
            CallBegun::New
        );
        assert_eq!(
            replies.begin(known(all - most - 1, b"a"), now),
            CallBegun::New
        );
        // The same number over and over takes no more room.
        for index in 0..all {
            replies.begin(known(7, &index.to_le_bytes()), now);
            replies.finish(known(7, &index.to_le_bytes()), b"done");
        }
        assert!(count(&cache) <= CALLS_MAX && locked(&replies.calls).order.len() <= CALLS_MAX);
        // Nor do calls that come to nothing.
        for xid in all..2 * all {
            replies.begin(known(xid, b"a"), now);
            replies.forget(known(xid, b"a"));
        }
        let calls = locked(&replies.calls);
        assert!(calls.order.len() <= 2 * calls.by_call.len() + 2 * CALLS_MIN);
        drop(calls);
        drop(replies);
        let address = |at: u32| IpAddr::from(at.to_be_bytes());
        (0..2 * ADDRESSES_MAX as u32).for_each(|at| drop(cache.of(address(at))));
        assert_eq!(locked(&cache.by_address).len(), ADDRESSES_MAX);
        assert_eq!(count(&cache), 0, "with an address go its calls");
        // An address that is connected keeps its calls.
        let kept = cache.of(address(0));
        assert_eq!(kept.begin(known(1, b""), 0), CallBegun::New);
        (1..2 * ADDRESSES_MAX as u32).for_each(|at| drop(cache.of(address(at))));
        assert_eq!(
            cache.of(address(0)).begin(known(1, b""), 0),
            CallBegun::UnderWay
        );
    }

    /// However many others there are, and however long it takes.
    #[test]
    fn a_call_that_is_being_executed_stays_in_the_cache() {
        let (_, replies) = replies_of_an_address();
        assert_eq!(replies.begin(known(1, b"slow"), 0), CallBegun::New);
        for xid in 2..3 * CALLS_MAX as u32 {
            assert_eq!(replies.begin(known(xid, b"a"), 1), CallBegun::New);
            replies.finish(known(xid, b"a"), b"done");
        }
        assert_eq!(replies.begin(known(1, b"slow"), 2), CallBegun::UnderWay);
        assert_eq!(
            replies.begin(known(1, b"slow"), 2 * KEPT),
            CallBegun::UnderWay
        );
        // With all of it late, it is what is left.
        assert_eq!(replies.begin(known(2, b"b"), 2 * KEPT), CallBegun::New);
        assert_eq!(locked(&replies.calls).by_call.len(), 2);
        replies.finish(known(1, b"slow"), b"done");
        let again = replies.begin(known(1, b"slow"), KEPT - 1);
        assert_eq!(again, CallBegun::Again(b"done"[..].into()));
    }

    /// An address with few calls keeps them, though others have taken all there is.
    #[test]
    fn busy_addresses_do_not_evict_calls_of_quiet_ones() {
        let cache = DuplicateRequestCache::default();
        let address = |at: u32| IpAddr::from((0x0a00_0000 + at).to_be_bytes());
        let quiet = cache.of(address(0));
        for xid in 0..CALLS_MIN as u32 - 1 {
            quiet.begin(known(xid, b"a"), 0);
            quiet.finish(known(xid, b"a"), b"done");
        }
        let busy: Vec<_> = (1..20).map(|at| cache.of(address(at))).collect();
        for replies in &busy {
            for xid in 0..CALLS_MAX as u32 {
                replies.begin(known(xid, b"a"), 1);
                replies.finish(known(xid, b"a"), b"done");
            }
        }
        let count = cache.count.load(Ordering::Relaxed);
        assert!(count <= CALLS_ALL_MAX + 20 * CALLS_MIN, "{count}");
        quiet.begin(known(99, b"a"), 2);
        let again = quiet.begin(known(0, b"a"), 3);
        assert_eq!(again, CallBegun::Again(b"done"[..].into()));
    }
}
