//! The user-space initiator.
//!
//! NOTE to whoever fills this room: the binding of a machine to a socket
//! (recv_plan -> Driver::recv, steps, Transmit -> Batch, data slots by tag,
//! running digests) is the crate `link` (crates/link), shared by `target` and
//! `host`. Do not write it again here; see `link::Link` and
//! /tmp/plan/contract.md. (Remove this note.)
#![forbid(unsafe_code)]
