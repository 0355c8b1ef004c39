//! What makes the GSS-API security contexts of a server (RFC 2743, section 2.2.2): what a
//! protocol's driver asks of it, whatever it is.

use crate::gss::{ContextStep, Unfinished};

/// Accepts contexts, from any thread.
pub trait GssAcceptor: Send + Sync {
    /// Takes a token of an initiator: of a context that is `unfinished`, or the first of a new
    /// one. It may block, on files and on the network, so no reactor calls it.
    ///
    /// # Errors
    /// There is no context.
    fn step(
        &self,
        unfinished: Option<Unfinished>,
        token: &[u8],
    ) -> Result<ContextStep, AcceptError>;
}

/// Why there is no context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptError {
    /// The major status (RFC 2744, section 3.9.1).
    pub major: u32,
    /// The minor status, of the mechanism.
    pub minor: u32,
    /// For the initiator, if it is not empty: the mechanism's own error.
    pub token: Vec<u8>,
    /// What is wrong, in words for the one who runs the server.
    pub why: String,
}
