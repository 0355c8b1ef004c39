//! What a shard notes of a connection.

use machine::Nanos;
use store::counters::{self, Counts};

/// What its shard notes of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectionLife {
    /// When it came to this reactor.
    pub(crate) since: Nanos,
    /// What was done for it.
    pub(crate) counts: Counts,
}

impl ConnectionLife {
    pub(crate) fn since(now: Nanos) -> ConnectionLife {
        ConnectionLife {
            since: now,
            ..ConnectionLife::default()
        }
    }

    /// What this thread has done since it had counted `begun` was done for the connection.
    #[inline]
    pub(crate) fn count_since(&mut self, begun: Counts) {
        let now = counters::of_this_thread();
        self.counts.ios += now.ios - begun.ios;
        self.counts.io_bytes += now.io_bytes - begun.io_bytes;
    }
}
