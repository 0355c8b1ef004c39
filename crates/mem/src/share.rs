//! How much of the memory for payload is held: what one host and one of its
//! connections may have of it depends on what is left.
//!
//! A host may hold as many bytes as are left to others, and a connection as
//! many as are left to others of its host. So a host alone has half of the
//! memory, each of four has a fifth, and the next one finds as much as they
//! have: no host takes the last of it. (In networks this is known as dynamic
//! thresholds: Choudhury and Hahne, 1998.) Of small buffers likewise, whatever it holds of
//! larger ones.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::budget::Budget;

/// An eighth of the memory is kept for stages. Of that one host has a quarter for
/// payload that stands before others.
const SPARE_PART: u64 = 32;

/// What one host holds, on all reactors.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    /// In larger and in small buffers.
    held_bytes: [AtomicU64; 2],
    /// Of memory that is kept for stages; see [`Pool::get_spare`](crate::Pool::get_spare).
    spare_bytes: AtomicU64,
    /// What one of its connections waits for that needs several buffers at once: the
    /// others leave it as much, or they would take what comes back for ever.
    claimed_bytes: AtomicU64,
}

impl Share {
    /// Of a host that holds nothing yet.
    pub fn new(budget: Arc<Budget>) -> Arc<Share> {
        Arc::new(Share {
            budget,
            held_bytes: Default::default(),
            spare_bytes: AtomicU64::new(0),
            claimed_bytes: AtomicU64::new(0),
        })
    }

    /// Bytes that it holds now.
    #[inline]
    pub fn held_bytes(&self) -> u64 {
        let held_bytes = self.held_bytes.iter();
        held_bytes.map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }
}

/// What one connection holds, of the share of its host. Stays on its thread.
#[derive(Debug)]
pub(crate) struct Account {
    share: Arc<Share>,
    /// In larger and in small buffers.
    held_bytes: [Cell<u64>; 2],
    /// The claim on its host's share, where that is its own.
    claimed_bytes: Cell<u64>,
    /// What it asked for last that it did not get was small.
    has_refused_small: Cell<bool>,
}

impl Account {
    pub(crate) fn new(share: Arc<Share>) -> Rc<Account> {
        Rc::new(Account {
            share,
            held_bytes: Default::default(),
            claimed_bytes: Cell::new(0),
            has_refused_small: Cell::new(false),
        })
    }

    /// What `take` finds, where the share has room for what is wanted: so many bytes, and
    /// whether that is a small buffer.
    #[inline]
    pub(crate) fn within<T>(
        &self,
        wanted: (u64, bool),
        take: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        let taken = self.may_take(wanted).then(take).flatten();
        if taken.is_none() {
            self.has_refused_small.set(wanted.1);
        }
        taken
    }

    pub(crate) fn has_refused_small(&self) -> bool {
        self.has_refused_small.get()
    }

    /// Whether it may take `bytes` more: not where too little would be left to
    /// others. A host or connection that holds nothing may have any one buffer. Small
    /// buffers are counted by themselves: they pass larger ones that wait.
    #[inline]
    fn may_take(&self, (bytes, is_small): (u64, bool)) -> bool {
        let (share, budget) = (&*self.share, &self.share.budget);
        let [large, small] = &self.held_bytes;
        let (host, own, left) = match is_small {
            true => {
                let host = share.held_bytes[1].load(Ordering::Relaxed);
                (host, small.get(), budget.left(true))
            }
            false => {
                let left = budget.left(false).saturating_sub(self.claimed_by_others());
                (share.held_bytes(), large.get() + small.get(), left)
            }
        };
        let host_may = host == 0 || host + bytes <= left;
        host_may && (own == 0 || own + bytes <= left.saturating_sub(host))
    }

    #[inline]
    fn claimed_by_others(&self) -> u64 {
        let claimed_bytes = self.share.claimed_bytes.load(Ordering::Relaxed);
        claimed_bytes.saturating_sub(self.claimed_bytes.get())
    }

    /// Waits for `bytes` at once; the first of a host that does has the claim.
    pub(crate) fn claim(&self, bytes: u64) {
        let claimed_bytes = &self.share.claimed_bytes;
        if claimed_bytes
            .compare_exchange(0, bytes, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
        {
            self.claimed_bytes.set(bytes);
        }
    }

    /// Does not wait any more, or has what it waited for.
    pub(crate) fn forget_claim(&self) {
        if self.claimed_bytes.replace(0) > 0 {
            self.share.claimed_bytes.store(0, Ordering::Relaxed);
        }
    }

    /// Takes `bytes` of what is kept for stages; false where its host has its part
    /// of that. A host that has none may have any one buffer.
    pub(crate) fn take_spare(&self, bytes: u64) -> bool {
        let Share {
            budget,
            spare_bytes,
            ..
        } = &*self.share;
        let max = budget.max() / SPARE_PART;
        let fits = |held: u64| (held == 0 || held + bytes <= max).then_some(held + bytes);
        spare_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .is_ok()
    }

    /// Gives `bytes` of that back.
    pub(crate) fn give_spare(&self, bytes: u64) {
        let spare_bytes = &self.share.spare_bytes;
        spare_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Takes `bytes` more.
    #[inline]
    pub(crate) fn take(&self, (bytes, is_small): (u64, bool)) {
        let (share, kind) = (&*self.share, usize::from(is_small));
        self.held_bytes[kind].set(self.held_bytes[kind].get() + bytes);
        share.held_bytes[kind].fetch_add(bytes, Ordering::Relaxed);
        share.budget.lend(bytes, is_small);
    }

    /// Gives `bytes` back.
    #[inline]
    pub(crate) fn give(&self, (bytes, is_small): (u64, bool)) {
        let (share, kind) = (&*self.share, usize::from(is_small));
        self.held_bytes[kind].set(self.held_bytes[kind].get() - bytes);
        share.held_bytes[kind].fetch_sub(bytes, Ordering::Relaxed);
        share.budget.unlend(bytes, is_small);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.forget_claim();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buf, Pool, STAGE_BYTES};

    const MIB: u32 = 1 << 20;

    /// Everything that a host with one connection gets.
    fn all(pool: &Pool, len: u32) -> Vec<Buf> {
        std::iter::from_fn(|| pool.get(len)).collect()
    }

    fn pool() -> Pool {
        Pool::new(Budget::new(256 << 20)).unwrap()
    }

    fn of_new_host(pool: &Pool) -> Pool {
        pool.of(Share::new(Arc::clone(pool.budget())))
    }

    #[test]
    fn host_that_takes_all_it_can_leaves_as_much_to_the_next() {
        let pool = pool();
        let share = Share::new(Arc::clone(pool.budget()));
        // 256 MiB less an eighth and a sixteenth.
        let payload = 208;
        let connections: Vec<Pool> = (0..64).map(|_| pool.of(Arc::clone(&share))).collect();
        let held: Vec<Buf> = connections.iter().flat_map(|own| all(own, MIB)).collect();
        assert_eq!(held.len(), payload / 2);
        assert_eq!(share.held_bytes(), held.len() as u64 * u64::from(MIB));
        let next = all(&of_new_host(&pool), MIB);
        assert_eq!(
            next.len(),
            (payload / 2).div_ceil(3),
            "one connection of a host of two"
        );
        drop(held);
        assert_eq!(share.held_bytes(), 0);
    }

    #[test]
    fn connection_that_takes_all_it_can_leaves_a_part_to_the_next_of_its_host() {
        let pool = pool();
        let share = Share::new(Arc::clone(pool.budget()));
        let (first, second) = (pool.of(Arc::clone(&share)), pool.of(share));
        let held = all(&first, MIB);
        assert_eq!(held.len(), 208_usize.div_ceil(3));
        assert!(all(&second, MIB).len() >= 20);
    }

    #[test]
    fn connection_that_gives_a_part_back_gets_no_more_than_that_again() {
        let pool = pool();
        let share = Share::new(Arc::clone(pool.budget()));
        let (own, _other) = (pool.of(Arc::clone(&share)), pool.of(share));
        let mut held = all(&own, MIB);
        held.truncate(held.len() - 20);
        assert_eq!(all(&own, MIB).len(), 20);
    }

    #[test]
    fn small_buffers_of_a_connection_count_where_it_wants_large_ones() {
        let pool = pool();
        let own = of_new_host(&pool);
        let small: Vec<Buf> = (0..512).filter_map(|_| own.get(4096)).collect();
        let large = all(&own, MIB);
        assert_eq!(large.len(), 208_usize.div_ceil(3) - small.len() / 256);
    }

    #[test]
    fn refusal_says_whether_a_small_buffer_was_wanted() {
        let own = of_new_host(&pool());
        let large = all(&own, MIB);
        assert!(!own.has_refused_small());
        let small = all(&own, 4096);
        assert!(own.has_refused_small());
        assert!(own.get(MIB).is_none() && !own.has_refused_small());
        drop((large, small));
    }

    #[test]
    fn hosts_that_hold_all_large_buffers_leave_small_ones() {
        let pool = pool();
        let hosts: Vec<Pool> = (0..500).map(|_| of_new_host(&pool)).collect();
        let held: Vec<Buf> = hosts.iter().flat_map(|own| all(own, MIB)).collect();
        assert!(held.len() <= 208);
        for _ in 0..500 {
            assert!(of_new_host(&pool).get(4096).is_some());
        }
        drop(held);
    }

    /// Hosts take all that their shares let them have; the next finds some.
    fn hosts_that_hold_all_small_buffers_leave_one(large: bool) {
        let pool = Pool::new(Budget::new(16 << 20)).unwrap();
        let hosts: Vec<Pool> = (0..8).map(|_| of_new_host(&pool)).collect();
        let of_others: Vec<Pool> = (0..8).map(|_| of_new_host(&pool)).collect();
        let large = of_others.iter().filter(|_| large);
        let mut held: Vec<Buf> = large.flat_map(|own| all(own, MIB)).collect();
        held.extend(hosts.iter().flat_map(|own| all(own, 4096)));
        for len in [4096, 16 << 10] {
            assert!(of_new_host(&pool).get(len).is_some(), "{len} bytes");
        }
    }

    #[test]
    fn hosts_that_hold_all_small_buffers_leave_one_to_the_next() {
        hosts_that_hold_all_small_buffers_leave_one(false);
    }

    #[test]
    fn hosts_that_hold_all_small_and_large_buffers_leave_small_ones_to_the_next() {
        hosts_that_hold_all_small_buffers_leave_one(true);
    }

    #[test]
    fn host_that_holds_nothing_may_have_one_however_little_is_left() {
        let pool = Pool::new(Budget::new(4 << 20)).unwrap();
        let first = of_new_host(&pool);
        let held = all(&first, 2 * MIB);
        assert_eq!(held.len(), 1);
        assert!(of_new_host(&pool).get(2 * MIB).is_some());
    }

    /// A command may need more than a connection may have beside what it holds.
    #[test]
    fn host_that_holds_nothing_has_several_buffers_at_once() {
        let pool = Pool::new(Budget::new(16 << 20)).unwrap();
        let own = of_new_host(&pool);
        let held = own.get_several(8 * MIB).expect("there is memory");
        assert_eq!(held.len(), 4);
        assert!(own.get_several(3 * MIB).is_none());
        drop(held);
        assert_eq!(own.get_several(3 * MIB).map(|bufs| bufs.len()), Some(2));
    }

    /// Each of a host's connections asks again for what it has just given back.
    #[test]
    fn several_buffers_at_once_come_though_others_of_the_host_go_on() {
        let pool = pool();
        let share = Share::new(Arc::clone(pool.budget()));
        let connections: Vec<Pool> = (0..64).map(|_| pool.of(Arc::clone(&share))).collect();
        let mut held: Vec<(&Pool, Buf)> = (connections.iter())
            .flat_map(|own| all(own, MIB).into_iter().map(move |buf| (own, buf)))
            .collect();
        let last = pool.of(share);
        assert!(last.get_several(8 * MIB).is_none());
        let mut rounds = 0;
        let large = loop {
            rounds += 1;
            assert!(rounds <= 8, "it starves");
            let (own, buf) = held.pop().expect("one");
            drop(buf);
            held.extend(own.get(MIB).map(|buf| (own, buf)));
            if let Some(large) = last.get_several(8 * MIB) {
                break large;
            }
        };
        assert_eq!(large.len(), 4);
        // Nothing waits for it afterwards.
        held.truncate(held.len() - 8);
        assert!(connections[63].get(MIB).is_some());
    }

    #[test]
    fn claim_of_a_connection_that_is_gone_or_does_not_wait_is_none() {
        let pool = pool();
        let share = Share::new(Arc::clone(pool.budget()));
        let connections: Vec<Pool> = (0..64).map(|_| pool.of(Arc::clone(&share))).collect();
        let mut held: Vec<Buf> = connections.iter().flat_map(|own| all(own, MIB)).collect();
        for is_gone in [true, false] {
            let waiting = pool.of(Arc::clone(&share));
            assert!(waiting.get_several(8 * MIB).is_none());
            held.pop();
            // Another one does not wait.
            connections[0].forget_claim();
            assert!(connections[63].get(MIB).is_none(), "it is claimed");
            match is_gone {
                true => drop(waiting),
                false => waiting.forget_claim(),
            }
            held.push(connections[63].get(MIB).expect("no claim"));
        }
    }

    #[test]
    fn host_that_takes_spare_memory_leaves_some_to_the_next_and_to_stages() {
        let pool = pool();
        let share = Share::new(Arc::clone(pool.budget()));
        let (first, second) = (pool.of(Arc::clone(&share)), pool.of(share));
        let take = |own: &Pool| Vec::from_iter(std::iter::from_fn(|| own.get_spare(4096)));
        let held = take(&first);
        // 8 MiB in buffers of 256 KiB.
        assert_eq!(held.len(), 32);
        assert!(second.get_spare(4096).is_none(), "of the same host");
        assert_eq!(take(&of_new_host(&pool)).len(), 32);
        assert!(first.get_to_finish(STAGE_BYTES).is_some());
        drop(held);
        assert!(second.get_spare(4096).is_some());
    }

    #[test]
    fn command_that_has_its_data_ends_beyond_the_share() {
        let pool = pool();
        let own = of_new_host(&pool);
        let held = all(&own, MIB);
        let scratch = own.get_to_finish(MIB).expect("others' memory is free");
        drop((held, scratch));
        assert_eq!(pool.budget().left(false), 208 << 20);
    }
}
