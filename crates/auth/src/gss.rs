//! GSS-API security contexts (RFC 2743), as RPCSEC_GSS uses them (RFC 2203): what a protocol
//! asks of one, whatever makes it.

use std::ops::Range;

/// Why a context does not do what it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GssError {
    /// The checksum or the encryption of a message is wrong.
    #[error("the message is not what the other side protected")]
    BadMessage,
    /// The context is good no more: its ticket has expired, or it failed.
    #[error("the security context is good no more")]
    NoContext,
}

/// An established context of an acceptor or an initiator.
pub trait GssContext: Send {
    /// Appends a checksum of `message` (GSS_GetMIC) to `out`.
    fn mic(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), GssError>;

    /// Checks the checksum of `message` (GSS_VerifyMIC).
    fn verify_mic(&mut self, message: &[u8], mic: &[u8]) -> Result<(), GssError>;

    /// Bytes that a token has before what it encrypts.
    fn wrap_ahead(&self) -> usize;

    /// Encrypts what ends `bytes` behind `room` (GSS_Wrap with confidentiality), in place where
    /// `room` has [`GssContext::wrap_ahead`] bytes. The token begins where `room` did, and ends
    /// `bytes`.
    fn wrap(&mut self, bytes: &mut Vec<u8>, room: Range<usize>) -> Result<(), GssError>;

    /// Decrypts `token` (GSS_Unwrap) in place where that can be: the range of the message in
    /// it. A token that is not encrypted is refused.
    fn unwrap(&mut self, token: &mut [u8]) -> Result<Range<usize>, GssError>;

    /// The client, as `user@REALM`.
    fn client_name(&self) -> &str;

    /// Seconds since 1970 from which on the context is good no more.
    fn expires_at_s(&self) -> u64;

    /// The user of this machine that the client is; without one, whom an export has for
    /// anonymous clients.
    fn user(&self) -> Option<&crate::user::User> {
        None
    }
}

/// A context that needs more tokens of the other side: what it is only its maker knows.
pub struct Unfinished(pub Box<dyn std::any::Any + Send>);

/// How a context stands behind a step of an acceptor or an initiator.
pub enum ContextStep {
    /// The other side is to get `token`, and its answer belongs to the next step
    /// (GSS_S_CONTINUE_NEEDED).
    Continue {
        /// For the other side.
        token: Vec<u8>,
        /// The context so far.
        unfinished: Unfinished,
    },
    /// The context is established (GSS_S_COMPLETE).
    Done {
        /// For the other side, if it is not empty.
        token: Vec<u8>,
        /// For the messages to come.
        context: Box<dyn GssContext>,
    },
}
