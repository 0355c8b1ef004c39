//! What tells sessions apart.

/// Names a session for the life of the registry; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub(crate) u64);

/// Types of session, the values of SessionType (RFC 7143, section 13.21).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionKind {
    /// `Normal`: for SCSI.
    #[default]
    Normal,
    /// `Discovery`: for SendTargets alone.
    Discovery,
}

/// The initiator port at the other end of a session (RFC 7143, section 4.4.2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InitiatorPort {
    /// iSCSI name, normalized.
    pub name: String,
    /// Initiator part of the session identifier.
    pub isid: [u8; 6],
}
