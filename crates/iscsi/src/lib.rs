//! iSCSI (RFC 7143) as sans-IO machines, target and initiator side. It is the
//! SCSI transport: it carries CDBs and sense data as bytes and knows no SCSI
//! command.
#![forbid(unsafe_code)]

mod config;
pub mod digest;
mod login;
mod negotiated;
mod registry;

pub use config::{
    Advertise, Auth, Credentials, DigestPolicy, InitiatorAcl, Limits, Network, NetworkError, Portal,
    PortalGroup, Redirect, Target,
};
pub use login::{LOGIN_TEXT_MAX, LoginAnswer, LoginStep};
pub use negotiated::{LENGTH_MAX, LENGTH_MIN, Negotiated, TaskReporting};
pub use registry::{
    Change, InitiatorPort, Joined, LoginOutcome, RegistryConfig, SessionId, SessionKind, Then, Via,
};
