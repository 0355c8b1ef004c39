//! The user-space iSCSI initiator on a reactor.
//!
//! [`Connection`] is one connection: it belongs to whoever runs its driver and
//! takes SCSI commands without allocating. [`Session`] is one connection with a
//! driver of its own, whose calls wait for their answers; [`discover`] asks a
//! portal for its targets.

mod address;
mod connection;
mod discover;
mod error;
mod session;

pub use crate::transport::TOKENS_PER_CONNECTION;
pub use ::iscsi::check_initiator_name;
pub use ::iscsi::initiator::{
    Async, Chap, Command, Completion, Data, Digest, FatalError, Outcome, Residual,
    Session as SessionState, Settings, lun_field,
};
pub use address::{Address, Initiator};
pub use auth::{Algorithm, Secret};
pub use connection::{Connection, Event, Params};
pub use discover::{DiscoveredTarget, discover};
pub use error::{Error, Failure, SenseData};
pub use session::{InquiryInfo, Session, UnitInfo};
