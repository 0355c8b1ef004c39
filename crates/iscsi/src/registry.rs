//! Which targets there are, where they are reached, and who is logged in.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::config::{Auth, Portal, Target};
use crate::login::LoginAnswer;
use crate::negotiated::Negotiated;

/// What a registry starts with.
#[derive(Clone, Debug, Default)]
pub struct RegistryConfig {
    /// The targets; their names are unique.
    pub targets: Vec<Arc<Target>>,
    /// What initiators prove in discovery sessions.
    pub discovery: Auth,
    /// Where initiators reach the targets; their numbers are unique.
    pub portals: Vec<Portal>,
}

/// How an initiator reached us.
#[derive(Clone, Copy, Debug)]
pub struct Via {
    /// The driver's own name for the connection: comes back when it is to be closed.
    pub connection: u64,
    /// Number of the listener, see [`Portal::number`].
    pub listener: u16,
    /// Our address.
    pub local: SocketAddr,
    /// The initiator's address.
    pub peer: SocketAddr,
}

/// What a change asks of the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Change {
    /// Connections to close.
    pub closing: Vec<u64>,
}

/// Names a session for the life of the registry; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(u64);

/// Types of session, the values of SessionType (RFC 7143, section 13.21).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionKind {
    /// `Normal`: for SCSI.
    #[default]
    Normal,
    /// `Discovery`: for SendTargets alone.
    Discovery,
}

/// The initiator port at the other end of a session (RFC 7143, section 4.2.1).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InitiatorPort {
    /// iSCSI name, normalized.
    pub name: String,
    /// Initiator part of the session identifier.
    pub isid: [u8; 6],
}

/// A connection is in the full feature phase.
#[derive(Clone, Debug)]
pub struct Joined {
    /// Its session.
    pub session: SessionId,
    /// Target Session Identifying Handle.
    pub tsih: u16,
    /// Connection ID.
    pub cid: u16,
    /// The connection is the first of its session, which begins.
    pub leading: bool,
    /// Another connection of the session: this one goes to its reactor.
    pub lead_connection: Option<u64>,
    /// What was agreed on.
    pub negotiated: Negotiated,
    /// The target as of now; `None` in discovery sessions.
    pub target: Option<Arc<Target>>,
    /// Target Portal Group Tag: the SCSI target port; 0 in discovery sessions.
    pub portal_group_tag: u16,
    /// Who is at the other end.
    pub initiator: InitiatorPort,
    /// What the session is for.
    pub kind: SessionKind,
    /// The logical units that the initiator sees; `None` for all.
    pub luns: Option<Vec<u16>>,
    /// The first CmdSN that the initiator uses, if leading.
    pub cmd_sn: u32,
}

/// What is to be done after a login step was answered.
#[derive(Clone, Debug)]
pub enum Then {
    /// Wait for the next request.
    Continue,
    /// Close the connection once the answer is sent.
    Close,
    /// The full feature phase begins with the answer.
    FullFeature(Box<Joined>),
}

/// What came of a login step.
#[derive(Clone, Debug)]
pub struct LoginOutcome {
    /// What the initiator is told; not before the connections to be closed are.
    pub answer: LoginAnswer,
    /// What is next.
    pub then: Then,
    /// Connections of sessions that this one takes the place of.
    pub change: Change,
}
