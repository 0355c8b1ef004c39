//! The target's end of a connection whose first byte says what carries it.

use std::ops::{Deref, DerefMut};

use iwarp::{QpCounts, QpSettings};
use machine::{Machine, Nanos, RecvPlan, Step, Tag, Transmit};
use wire::iwarp::MPA_REQUEST_KEY;

use crate::iser::IserError;
use crate::iser::target::IserTarget;
use crate::target::{
    AbortOutcome, Connection, Detached, Done, FatalError, TargetOp, TargetSettings,
};

/// What the connections of a listener may do that are carried by RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IserSettings {
    /// Their streams; how Sends are taken follows from iSER.
    pub stream: QpSettings,
    /// Connections by TCP are taken too.
    pub takes_tcp: bool,
}

/// What a stream of RDMA is made of, until the first byte has come.
#[derive(Debug)]
struct Undecided {
    settings: Option<IserSettings>,
    seed: u64,
    accepted: Nanos,
}

/// The target's end of one iSCSI connection: a [`Connection`], and a stream of RDMA below it if
/// its first byte says that an MPA Request comes.
#[derive(Debug)]
pub struct AcceptedConnection {
    connection: Connection,
    iser: Option<Box<IserTarget>>,
    undecided: Option<Box<Undecided>>,
}

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

    /// The first byte of the connection is `first`.
    #[cold]
    fn decide(&mut self, first: u8) -> Option<TargetOp> {
        let Undecided {
            settings,
            seed,
            accepted,
        } = *self.undecided.take()?;
        if first == MPA_REQUEST_KEY[0] {
            let refusal = settings.is_none().then_some(IserError::NotServed);
            let stream = settings.map(|settings| settings.stream).unwrap_or_default();
            let iser = IserTarget::new(stream, refusal, seed, accepted);
            self.iser = Some(Box::new(iser));
        } else if settings.is_some_and(|settings| !settings.takes_tcp) {
            self.connection.lose();
            return Some(TargetOp::Fatal(FatalError::TcpNotServed));
        }
        None
    }
}

impl Deref for AcceptedConnection {
    type Target = Connection;

    #[inline]
    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for AcceptedConnection {
    #[inline]
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

impl Machine for AcceptedConnection {
    type Op = TargetOp;

    fn tags_max(&self) -> usize {
        self.connection.tags_max()
    }

    #[inline]
    fn recv_plan(&self) -> RecvPlan {
        match &self.iser {
            None => self.connection.recv_plan(),
            Some(iser) => iser.recv_plan(&self.connection),
        }
    }

    #[inline]
    fn on_direct(&mut self, len: u32) {
        match &mut self.iser {
            None => self.connection.on_direct(len),
            Some(iser) => iser.on_direct(len),
        }
    }

    #[inline]
    fn poll_step(&mut self, now: Nanos, staged: &[u8], at: &mut usize) -> Option<Step<TargetOp>> {
        if self.undecided.is_some()
            && *at < staged.len()
            && let Some(op) = self.decide(staged[*at])
        {
            *at = staged.len();
            return Some(Step::Op(op));
        }
        match &mut self.iser {
            None => self.connection.poll_step(now, staged, at),
            Some(iser) => iser.poll_step(&mut self.connection, now, staged, at),
        }
    }

    #[inline]
    fn has_step(&self) -> bool {
        match &self.iser {
            None => self.connection.has_step(),
            Some(iser) => iser.has_step(&self.connection),
        }
    }

    #[inline]
    fn is_blocked_on(&self, tag: Tag) -> bool {
        self.connection.is_blocked_on(tag)
    }

    fn on_digest(&mut self, tag: Tag, crc: u32) {
        match &mut self.iser {
            None => self.connection.on_digest(tag, crc),
            Some(iser) => iser.on_digest(tag, crc),
        }
    }

    #[inline]
    fn has_transmit(&self) -> bool {
        match &self.iser {
            None => self.connection.has_transmit(),
            Some(iser) => iser.has_transmit(&self.connection),
        }
    }

    #[inline]
    fn poll_transmit(&mut self, out: &mut impl Transmit) {
        match &mut self.iser {
            None => self.connection.poll_transmit(out),
            Some(iser) => iser.transmit(&mut self.connection, out),
        }
    }

    fn is_finished(&self) -> bool {
        let has_ended = self.iser.as_ref().is_some_and(|iser| iser.has_ended());
        has_ended || self.connection.is_finished()
    }

    fn deadline(&self) -> Option<Nanos> {
        self.connection.deadline()
    }

    fn on_deadline(&mut self, now: Nanos) {
        self.connection.on_deadline(now);
    }
}
