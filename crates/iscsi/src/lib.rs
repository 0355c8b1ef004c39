//! iSCSI (RFC 7143) as sans-IO machines, target and initiator side. It is the
//! SCSI transport: it carries CDBs and sense data as bytes and knows no SCSI
//! command.
#![forbid(unsafe_code)]

pub mod accepted;
mod carried;
mod carrier;
mod config;
mod discovery;
pub mod initiator;
pub mod iser;
mod keys;
mod login;
mod name;
mod negotiated;
mod nexus;
mod registry;
mod security;
mod session;
pub mod support;
pub mod target;
pub mod text;

pub use carrier::Carrier;
pub use config::{
    Advertise, Auth, Credentials, DigestPolicy, InitiatorAcl, Portal, PortalGroup, Redirect,
    SessionLimits, Target,
};
pub use login::{LOGIN_ANSWER_MAX, LOGIN_TEXT_MAX, LoginAnswer, LoginState, LoginStep};
pub use name::{NAME_LEN_MAX, NameError, check_initiator_name, check_target_name, normalize};
pub use negotiated::{LENGTH_MAX, LENGTH_MIN, Negotiated};
pub use nexus::{InitiatorPort, SessionId, SessionKind};
pub use registry::{
    AfterLogin, Joined, LoginOutcome, LogoutOutcome, Registry, RegistryConfig, SessionChange,
    SessionInfo, TextOutcome, Via,
};
pub use session::Session;
