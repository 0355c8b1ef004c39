//! The Login Phase (RFC 7143, section 6.3): one request after another, each
//! answered by [`Registry::login`](crate::Registry::login).

use wire::iscsi::LoginRequest;
use wire::iscsi::LoginResponse;

/// The most bytes of text in the requests of one login step, joined: 16 KiB.
/// At least 8192 must be taken (RFC 7143, section 6.2).
pub const LOGIN_TEXT_MAX: usize = 16 << 10;

/// A Login Request with the whole text of its step: what came with the C bit
/// is joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginStep {
    /// The header of the last PDU of the step (the one without the C bit).
    pub request: LoginRequest,
    /// Text, at most [`LOGIN_TEXT_MAX`] bytes.
    pub text: Vec<u8>,
}

/// A Login Response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginAnswer {
    /// The header but for StatSN, ExpCmdSN, MaxCmdSN and DataSegmentLength, which
    /// are the connection's to set. After a Status-Class other than 0 the
    /// connection closes.
    pub response: LoginResponse,
    /// Text, at most 8192 bytes: it fits into one PDU, whatever the initiator
    /// declared.
    pub text: Vec<u8>,
}
