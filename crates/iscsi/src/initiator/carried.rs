//! The initiator's end of a connection, whatever carries it.

use std::ops::{Deref, DerefMut};

use machine::{Machine, Nanos, RecvPlan, Step, Tag, Transmit};

use super::{InitiatorConnection, InitiatorOp, InitiatorSession, InitiatorSettings, RANDOM_LEN};
use crate::iser::initiator::IserInitiator;

/// The initiator's end of one connection: an [`InitiatorConnection`], and a stream of RDMA below
/// it where [`InitiatorSettings::rdma`] says so.
#[derive(Debug)]
pub struct CarriedConnection {
    connection: InitiatorConnection,
    iser: Option<Box<IserInitiator>>,
}

impl CarriedConnection {
    /// As [`InitiatorConnection::new`], of a connection made at `now`.
    pub fn new(
        settings: InitiatorSettings,
        session: InitiatorSession,
        cid: u16,
        random: [u8; RANDOM_LEN],
        now: Nanos,
    ) -> CarriedConnection {
        let (seed, _) = random.split_first_chunk().expect("more than 8 bytes");
        let seed = u64::from_le_bytes(*seed);
        let iser = settings
            .rdma
            .map(|stream| Box::new(IserInitiator::new(stream, seed, now)));
        CarriedConnection {
            connection: InitiatorConnection::new(settings, session, cid, random),
            iser,
        }
    }

    /// Whether CRCs of MPA cover all of it.
    pub fn has_crc(&self) -> bool {
        self.iser.as_ref().is_some_and(|iser| iser.has_crc())
    }
}

impl Deref for CarriedConnection {
    type Target = InitiatorConnection;

    #[inline]
    fn deref(&self) -> &InitiatorConnection {
        &self.connection
    }
}

impl DerefMut for CarriedConnection {
    #[inline]
    fn deref_mut(&mut self) -> &mut InitiatorConnection {
        &mut self.connection
    }
}

impl Machine for CarriedConnection {
    type Op = InitiatorOp;

    fn tags_max(&self) -> usize {
        self.connection.tags_max()
    }

    #[inline]
    fn recv_plan(&self) -> RecvPlan {
        match &self.iser {
            None => self.connection.recv_plan(),
            Some(iser) => iser.recv_plan(),
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
    fn poll_step(
        &mut self,
        now: Nanos,
        staged: &[u8],
        at: &mut usize,
    ) -> Option<Step<InitiatorOp>> {
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
        self.iser.as_ref().and_then(|iser| iser.deadline())
    }

    fn on_deadline(&mut self, now: Nanos) {
        if let Some(iser) = &mut self.iser {
            iser.on_deadline(now);
        }
    }
}
