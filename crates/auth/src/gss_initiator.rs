//! What makes the GSS-API security contexts of a client (RFC 2743, section 2.2.1): what a
//! protocol's driver asks of it, whatever it is.

use crate::gss::{GssContext, Unfinished};

/// Begins contexts with one service, from any thread.
pub trait GssInitiator: Send + Sync {
    /// The next step of a context, with the token that the acceptor answered; without an
    /// `unfinished` one and with no token it begins another. It may block, on files and on the
    /// network.
    ///
    /// # Errors
    /// Why there is no context, in words for the user.
    fn step(&self, unfinished: Option<Unfinished>, token: &[u8]) -> Result<InitiateStep, String>;
}

/// How a context that was begun stands.
pub enum InitiateStep {
    /// The acceptor is to get `token`, and its answer belongs to the next step
    /// (GSS_S_CONTINUE_NEEDED).
    Continue {
        /// For the acceptor.
        token: Vec<u8>,
        /// The context so far.
        unfinished: Unfinished,
    },
    /// The context is established (GSS_S_COMPLETE).
    Done {
        /// For the acceptor, if it is not empty.
        token: Vec<u8>,
        /// For the messages to come.
        context: Box<dyn GssContext>,
    },
}
