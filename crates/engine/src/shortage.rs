//! What goes between reactors where memory is short.

use mem::Pool;

use crate::post::ShardMail;
use crate::shared::Shared;

/// What reactors tell each other where memory is short. What one gives back lies
/// free in its pool, or in the share of a host, and no other reactor would look
/// before the next tick.
#[derive(Default)]
pub(crate) struct Shortage {
    /// A connection of this reactor waits for memory.
    pub(crate) is_here: bool,
    /// The others know.
    has_asked: bool,
    /// Reactors that wait to hear that something was given back.
    wanted_by: Vec<usize>,
    /// One of them has asked since this was looked at.
    is_asked: bool,
    /// What had been given back when they asked.
    given_back: u64,
}

impl Shortage {
    /// Whether there is something to ask or to tell.
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        (self.is_here && !self.has_asked) || !self.wanted_by.is_empty()
    }

    /// Another reactor goes short.
    pub(crate) fn wanted(&mut self, by: usize, pool: &Pool) {
        if self.wanted_by.is_empty() {
            self.given_back = pool.given_back();
        }
        self.is_asked = true;
        if !self.wanted_by.contains(&by) {
            self.wanted_by.push(by);
        }
    }

    /// Another reactor has given memory back: where it was not enough, they are
    /// asked once more.
    pub(crate) fn freed(&mut self) {
        self.has_asked = false;
    }

    /// Asks the others, once, and tells those that have asked.
    #[cold]
    pub(crate) fn turn_ends(&mut self, shared: &Shared, here: usize, pool: &Pool) {
        if self.is_here && !std::mem::replace(&mut self.has_asked, true) {
            let others = (0..shared.load.len()).filter(|&other| other != here);
            others.for_each(|other| shared.send(other, ShardMail::MemoryWanted(here)));
        }
        let is_asked = std::mem::take(&mut self.is_asked);
        let has_given = pool.given_back() != self.given_back;
        if self.wanted_by.is_empty() || !(is_asked || has_given) {
            return;
        }
        if pool.trim() > 0 || has_given {
            for reactor in self.wanted_by.drain(..) {
                shared.send(reactor, ShardMail::MemoryFreed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use mem::{Budget, Buf};

    use super::*;
    use crate::post::Post;
    use crate::shared::ConnectionLimits;

    /// Mail to a reactor: which of them wants memory, or none where some was freed.
    type Sent = (usize, Option<usize>);

    #[derive(Default)]
    struct Outbox(Mutex<Vec<Sent>>);

    impl Post<ShardMail> for Outbox {
        fn send(&self, shard: usize, mail: ShardMail) {
            let wanted_by = match mail {
                ShardMail::MemoryWanted(by) => Some(by),
                ShardMail::MemoryFreed => None,
                _ => unreachable!("no mail about memory"),
            };
            self.0.lock().expect("whole").push((shard, wanted_by));
        }
    }

    /// The second of three reactors.
    struct Reactor {
        shortage: Shortage,
        shared: Shared,
        pool: Pool,
        outbox: Arc<Outbox>,
    }

    impl Reactor {
        fn new() -> Reactor {
            let limits = ConnectionLimits {
                connections_max: 0,
                connections_of_address_max: 0,
                tls_handshakes_max: 0,
                turn_units_max: 0,
            };
            let outbox = Arc::<Outbox>::default();
            Reactor {
                shortage: Shortage::default(),
                shared: Shared::new(limits, 3, outbox.clone()),
                pool: Pool::new(Budget::new(64 << 20)).expect("address space"),
                outbox,
            }
        }

        fn buf(&self) -> Buf {
            self.pool.get(4096).expect("memory")
        }

        fn is_asked_by(&mut self, reactor: usize) {
            self.shortage.wanted(reactor, &self.pool);
        }

        /// What it sends at the end of a turn.
        fn turn_ends(&mut self) -> Vec<Sent> {
            if self.shortage.has_mail() {
                self.shortage.turn_ends(&self.shared, 1, &self.pool);
            }
            std::mem::take(&mut self.outbox.0.lock().expect("whole"))
        }
    }

    #[test]
    fn reactor_that_goes_short_asks_all_others_once_until_memory_is_freed() {
        let mut reactor = Reactor::new();
        reactor.shortage.is_here = true;
        assert_eq!(reactor.turn_ends(), [(0, Some(1)), (2, Some(1))]);
        assert_eq!(reactor.turn_ends(), []);
        reactor.shortage.freed();
        assert_eq!(reactor.turn_ends(), [(0, Some(1)), (2, Some(1))]);
    }

    #[test]
    fn reactor_that_is_asked_gives_back_what_lies_free_in_its_pool() {
        let mut reactor = Reactor::new();
        drop(reactor.buf());
        assert!(reactor.pool.reserved_bytes() > 0);
        reactor.is_asked_by(2);
        assert_eq!(reactor.turn_ends(), [(2, None)]);
        assert_eq!(reactor.pool.reserved_bytes(), 0);
        assert_eq!(reactor.turn_ends(), [], "none asks");
    }

    /// It lies free in the share of a host, though its pool has nothing to give back.
    #[test]
    fn reactor_that_has_nothing_tells_those_that_asked_when_a_buffer_comes_back() {
        let mut reactor = Reactor::new();
        let [_kept, came_back, comes_back] = [0; 3].map(|_| reactor.buf());
        drop(came_back);
        for asks in [2, 0, 2] {
            reactor.is_asked_by(asks);
            assert_eq!(reactor.turn_ends(), []);
        }
        drop(comes_back);
        assert_eq!(reactor.turn_ends(), [(2, None), (0, None)]);
    }
}
