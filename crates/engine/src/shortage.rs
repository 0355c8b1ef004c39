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
    pub(crate) has_asked: bool,
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
