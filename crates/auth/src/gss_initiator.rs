//! What makes the GSS-API security contexts of a client (RFC 2743, section 2.2.1): what a
//! protocol's driver asks of it, whatever it is.

use crate::gss::{ContextStep, Unfinished};

/// Begins contexts with one service, from any thread.
pub trait GssInitiator: Send + Sync {
    /// The next step of a context, with the token that the acceptor answered; without an
    /// `unfinished` one and with no token it begins another. It may block, on files and on the
    /// network.
    ///
    /// # Errors
    /// Why there is no context, in words for the user.
    fn step(&self, unfinished: Option<Unfinished>, token: &[u8]) -> Result<ContextStep, String>;
}
