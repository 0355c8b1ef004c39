//! The user-space iSCSI initiator on a reactor.
//!
//! [`SessionConnection`] is one connection: it belongs to the owner of its driver and
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
    Async, Chap, Command, CommandOutcome, Completion, Digest, ExpectedData, InitiatorFatalError,
    InitiatorSession as SessionState, InitiatorSettings, Residual, lun_field,
};
pub use ::iscsi::iser::QpSettings;
pub use address::{Initiator, IscsiAddress};
pub use auth::{Algorithm, Secret};
pub use connection::{Params, SessionConnection, SessionEvent};
pub use discover::{DiscoveredTarget, discover};
pub use error::{Failure, SenseData, SessionError};
pub use session::{InquiryInfo, Session, UnitInfo};
