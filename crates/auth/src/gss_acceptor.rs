//! What makes the GSS-API security contexts of a server (RFC 2743, section 2.2.2): what a
//! protocol's driver asks of it, whatever it is.

use crate::gss::{GssContext, Unfinished};

/// Accepts contexts, from any thread.
pub trait GssAcceptor: Send + Sync {
    /// Takes a token of an initiator: of a context that is `unfinished`, or the first of a new
    /// one. It may block, on files and on the network, so no reactor calls it.
    fn step(&self, unfinished: Option<Unfinished>, token: &[u8]) -> AcceptStep;
}

/// What comes of a token.
pub enum AcceptStep {
    /// The initiator is to get `token`, and its answer belongs to the next step
    /// (GSS_S_CONTINUE_NEEDED).
    Continue {
        /// For the initiator.
        token: Vec<u8>,
        /// The context so far.
        unfinished: Unfinished,
    },
    /// The context is established (GSS_S_COMPLETE).
    Done {
        /// For the initiator, if it is not empty.
        token: Vec<u8>,
        /// For the messages to come.
        context: Box<dyn GssContext>,
    },
    /// There is no context.
    Failed {
        /// The major status (RFC 2744, section 3.9.1).
        major: u32,
        /// The minor status, of the mechanism.
        minor: u32,
        /// For the initiator, if it is not empty: the mechanism's own error.
        token: Vec<u8>,
        /// What is wrong, in words for the one who runs the server.
        why: String,
    },
}
