//! Calls to clients.

/// Calls to clients that are to be made.
#[derive(Debug, Default)]
pub struct Outbox {}
