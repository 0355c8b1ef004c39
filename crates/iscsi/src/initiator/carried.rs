//! The initiator's end of a connection, whatever carries it.

use machine::Nanos;

use super::{InitiatorConnection, InitiatorSession, InitiatorSettings, RANDOM_LEN};
use crate::carried::Carried;
use crate::iser::initiator::IserInitiator;

/// The initiator's end of one connection: an [`InitiatorConnection`], and a stream of RDMA below
/// it where [`InitiatorSettings::rdma`] says so.
pub type CarriedConnection = Carried<IserInitiator>;

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
            undecided: None,
        }
    }

    /// Whether CRCs of MPA cover all of it.
    pub fn has_crc(&self) -> bool {
        self.iser.as_ref().is_some_and(|iser| iser.has_crc())
    }
}
