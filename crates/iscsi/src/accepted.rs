//! The target's end of a connection whose first byte says what carries it.

use iwarp::QpCounts;
use machine::{Machine, Nanos, Tag};

use crate::carried::Carried;
use crate::iser::target::{IserTarget, Undecided};
use crate::target::{AbortOutcome, Connection, Detached, Done, TargetSettings};

pub use crate::iser::target::IserSettings;

/// The target's end of one iSCSI connection: a [`Connection`], and a stream of RDMA below it if
/// its first byte says that an MPA Request comes.
pub type AcceptedConnection = Carried<IserTarget>;

/// A connection that is to be answered by another core: see [`AcceptedConnection::detach`].
#[derive(Debug)]
pub struct DetachedConnection {
    connection: Detached,
    iser: Option<Box<IserTarget>>,
}

impl AcceptedConnection {
    /// The machine of a connection accepted at `now`, by a listener that takes RDMA as `rdma`
    /// says. STags follow from `seed`, which is random.
    pub fn new(
        settings: TargetSettings,
        rdma: Option<IserSettings>,
        seed: u64,
        now: Nanos,
    ) -> AcceptedConnection {
        AcceptedConnection {
            connection: Connection::new(settings, now),
            iser: None,
            undecided: Some(Box::new(Undecided {
                settings: rdma,
                seed,
                accepted: now,
            })),
        }
    }

    /// What its stream of RDMA has moved; `None` of TCP.
    #[inline]
    pub fn rdma_counts(&self) -> Option<QpCounts> {
        self.iser.as_ref().map(|iser| iser.counts())
    }

    /// Whether it is carried by RDMA, as far as is known.
    #[inline]
    pub fn is_rdma(&self) -> bool {
        self.iser.is_some()
    }

    /// Whether headers are covered by a digest: by RDMA, by CRCs of MPA.
    pub fn header_digest(&self) -> bool {
        let of_rdma = self.iser.as_ref().map(|iser| iser.has_crc());
        of_rdma.unwrap_or_else(|| self.connection.header_digest())
    }

    /// Whether data is.
    pub fn data_digest(&self) -> bool {
        let of_rdma = self.iser.as_ref().map(|iser| iser.has_crc());
        of_rdma.unwrap_or_else(|| self.connection.data_digest())
    }

    /// As [`Connection::prepared`].
    #[inline]
    pub fn prepared(&mut self, tag: Tag, wanted: u32) {
        self.connection.prepared(tag, wanted);
        if let Some(iser) = &mut self.iser {
            iser.go_on(tag, wanted);
        }
    }

    /// As [`Connection::complete`].
    #[inline]
    pub fn complete(&mut self, tag: Tag, done: Done) {
        let is_aborted = done.is_aborted();
        self.connection.complete(tag, done);
        if let Some(iser) = &mut self.iser {
            if is_aborted {
                iser.abandon(tag);
            } else if !self.connection.is_blocked_on(tag) {
                // Of data that stands before its memory, nothing is wanted.
                iser.go_on(tag, 0);
            }
        }
    }

    /// As [`Connection::abort`].
    pub fn abort(&mut self, tag: Tag) -> AbortOutcome {
        let outcome = self.connection.abort(tag);
        if let Some(iser) = &mut self.iser
            && outcome == AbortOutcome::Aborted
        {
            iser.abandon(tag);
        }
        outcome
    }

    /// As [`Connection::detach`].
    pub fn detach(&mut self) -> DetachedConnection {
        DetachedConnection {
            connection: self.connection.detach(),
            iser: self.iser.take(),
        }
    }

    /// As [`Connection::resume`].
    pub fn resume(detached: DetachedConnection) -> AcceptedConnection {
        AcceptedConnection {
            connection: Connection::resume(detached.connection),
            iser: detached.iser,
            undecided: None,
        }
    }
}
