//! The user-space initiator.
