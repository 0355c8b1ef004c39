//! One end of a connection, whatever carries it.

use std::fmt::Debug;
use std::ops::{Deref, DerefMut};

use machine::{Machine, Nanos, RecvPlan, Step, Tag, Transmit};

/// One end of iSER: a stream of RDMA that does for the connection above it what TCP does for
/// others. All is as in [`Machine`].
pub trait IserEnd: Sized + Debug {
    /// What lies above it.
    type Connection: Machine + Debug;
    /// What a stream is made of whose first byte decides on it.
    type Undecided: Debug;

    /// The first byte of a connection is `first`: what carries it, TCP if `None`; or what
    /// becomes of one that nothing may carry.
    fn decide(
        undecided: Self::Undecided,
        first: u8,
        connection: &mut Self::Connection,
    ) -> Result<Option<Self>, <Self::Connection as Machine>::Op>;

    fn recv_plan(&self, connection: &Self::Connection) -> RecvPlan;
    fn on_direct(&mut self, connection: &mut Self::Connection, len: u32);
    fn poll_step(
        &mut self,
        connection: &mut Self::Connection,
        now: Nanos,
        staged: &[u8],
        at: &mut usize,
    ) -> Option<Step<<Self::Connection as Machine>::Op>>;
    fn has_step(&self, connection: &Self::Connection) -> bool;
    fn on_digest(&mut self, tag: Tag, crc: u32);
    fn has_transmit(&self, connection: &Self::Connection) -> bool;
    fn transmit(&mut self, connection: &mut Self::Connection, out: &mut impl Transmit);
    fn is_finished(&self) -> bool;

    /// Beside that of the connection.
    fn deadline(&self) -> Option<Nanos> {
        None
    }

    fn on_deadline(&mut self, _now: Nanos) {}
}

/// One end of a connection, and a stream of RDMA below it if that carries it.
#[derive(Debug)]
pub struct Carried<E: IserEnd> {
    pub(crate) connection: E::Connection,
    pub(crate) iser: Option<Box<E>>,
    /// Until the first byte has come, where that decides.
    pub(crate) undecided: Option<Box<E::Undecided>>,
}

impl<E: IserEnd> Deref for Carried<E> {
    type Target = E::Connection;

    #[inline]
    fn deref(&self) -> &E::Connection {
        &self.connection
    }
}

impl<E: IserEnd> DerefMut for Carried<E> {
    #[inline]
    fn deref_mut(&mut self) -> &mut E::Connection {
        &mut self.connection
    }
}

impl<E: IserEnd> Machine for Carried<E> {
    type Op = <E::Connection as Machine>::Op;

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
            Some(iser) => iser.on_direct(&mut self.connection, len),
        }
    }

    #[inline]
    fn poll_step(&mut self, now: Nanos, staged: &[u8], at: &mut usize) -> Option<Step<Self::Op>> {
        if *at < staged.len()
            && let Some(undecided) = self.undecided.take()
        {
            match E::decide(*undecided, staged[*at], &mut self.connection) {
                Ok(iser) => self.iser = iser.map(Box::new),
                Err(op) => {
                    *at = staged.len();
                    return Some(Step::Op(op));
                }
            }
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
        let has_ended = self.iser.as_ref().is_some_and(|iser| iser.is_finished());
        has_ended || self.connection.is_finished()
    }

    fn deadline(&self) -> Option<Nanos> {
        let of_stream = self.iser.as_ref().and_then(|iser| iser.deadline());
        let all = [of_stream, self.connection.deadline()];
        all.into_iter().flatten().min()
    }

    fn on_deadline(&mut self, now: Nanos) {
        self.connection.on_deadline(now);
        if let Some(iser) = &mut self.iser {
            iser.on_deadline(now);
        }
    }
}
