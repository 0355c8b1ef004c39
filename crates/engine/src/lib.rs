//! What serving a protocol takes, whichever it is: connections on reactors, what waits
//! for memory, for volumes and for others, and what is left of it when its peer has gone.
//!
//! A protocol is a [`Protocol`]: its machine, what its operations do, and what its
//! reactors tell each other ([`Mail`]). A [`Protocols`] is what composes protocols: which
//! there are, and which of them a connection is of. [`Shard`] is one reactor's share of
//! it, [`Shared`] what all reactors have in common. This room names no protocol.
#![forbid(unsafe_code)]

pub mod blocking_worker;
pub mod blocks;
mod commands;
pub mod connection;
pub mod connection_policy;
mod erase;
pub mod fence;
mod handshakes;
pub mod held_back;
pub mod hosts;
pub mod job;
mod last_refusals;
pub mod later;
mod life;
mod orphan;
pub mod payload;
pub mod placement;
pub mod post;
mod proofs;
pub mod protocol;
pub mod rate_limits;
pub mod refusals;
pub mod reservation;
pub mod sample;
pub mod shard;
pub mod shared;
mod shortage;
pub mod steps;
#[cfg(test)]
mod tests;
mod ticks;
pub mod tls_meter;
pub mod token;
mod unasked;
pub mod waiting;

pub use blocking_worker::About;
pub use blocks::{Blocks, OnVolumes};
pub use connection::{Connection, ConnectionInfo, Core, TlsInfo, Via};
pub use connection_policy::ConnectionPolicy;
pub use fence::Scope;
pub use held_back::Demand;
pub use last_refusals::{LastRefusal, Remedy};
pub use later::{Elsewhere, Later};
pub use life::ConnectionLife;
pub use orphan::Orphans;
pub use post::{Mail, Post};
pub use proofs::{ProofKind, ProofPlace};
pub use protocol::{
    AnyConnection, ConnectionEvent, ConnectionStage, FirstBytes, HandshakeTerms, Has, Protocol,
    ProtocolOp, Protocols,
};
pub use rate_limits::{Goal, LimitFigures, RateLimit, Rates};
pub use refusals::{Refusal, RefusalKind};
pub use shard::Shard;
pub use shared::{ConnectionLimits, Shared};
pub use token::{ConnectionId, ConnectionRef, JobId, Subject};
pub use waiting::{Limited, Waits};
