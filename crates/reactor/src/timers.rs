//! Completions that come when some time has passed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::sys::{self, Nanos};
use crate::types::{Completion, Token, Wait};

/// Those of one driver.
#[derive(Default)]
pub(crate) struct Timers {
    /// By their time, then in the order in which they came.
    due: BinaryHeap<Reverse<(Nanos, u64, Token)>>,
    count: u64,
}

impl Timers {
    /// Adds one that is due `after_ns` from now.
    pub(crate) fn add(&mut self, after_ns: Nanos, token: Token) {
        let at = sys::now().saturating_add(after_ns);
        self.due.push(Reverse((at, self.count, token)));
        self.count += 1;
    }

    /// How long to wait where the next one ends the wait.
    #[inline]
    pub(crate) fn bound(&self, wait: Wait) -> Wait {
        match (wait, self.due.peek()) {
            (Wait::Until(until), Some(Reverse((at, ..)))) => Wait::Until(until.min(*at)),
            _ => wait,
        }
    }

    /// Appends a completion for each that is due.
    #[inline]
    pub(crate) fn take(&mut self, now: Nanos, out: &mut Vec<Completion>) {
        while let Some(Reverse((at, _, token))) = self.due.peek().copied()
            && at <= now
        {
            self.due.pop();
            let result = Ok(0);
            out.push(Completion::File { token, result });
        }
    }
}
