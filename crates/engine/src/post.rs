//! What reactors tell each other, and the way it takes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use link::HandshakeDone;
use reactor::{BoundListener, ConnectedSocket};
use store::Volume;

use crate::fence::Passage;
use crate::hosts::HostPlace;
use crate::rate_limits::RateLimit;
use crate::token::{ConnectionRef, JobId};

/// Takes mail of one sort to a reactor.
pub trait Post<M>: Send + Sync {
    /// Mail to the reactor of this number.
    fn send(&self, shard: usize, mail: M);
}

/// What reactors tell each other about connections of one protocol: its answers `A`,
/// and what it has besides.
pub enum Mail<A, M> {
    /// This job of yours ended elsewhere.
    Answer(JobId, A),
    /// In the words of the protocol.
    Own(M),
}

/// What to do with a result, once.
pub type AfterMail<T> = Box<dyn FnOnce(T) + Send>;

/// A connection that was just accepted.
pub struct Newcomer {
    /// Its socket.
    pub connected: ConnectedSocket,
    /// The host's address.
    pub peer: SocketAddr,
    /// Its place among the connections of its address.
    pub place: HostPlace,
    /// Number of the listener that it came in by.
    pub listener: u16,
    /// There are `connections_max` already: one that has not identified itself has
    /// to go for it.
    pub displaces: bool,
}

/// What reactors tell each other, whatever is spoken there.
pub enum ShardMail {
    /// A new connection for you.
    Adopt(Newcomer),
    /// Close this connection of yours.
    Close(ConnectionRef),
    /// A step of the handshake of this connection of yours was made.
    Handshake(ConnectionRef, Box<HandshakeDone>),
    /// The handshake of this connection of yours is one too many, if it is under way still.
    EndHandshake(ConnectionRef),
    /// Tell the peer of this connection of yours that it ends, and close it.
    Dismiss(ConnectionRef),
    /// Pass this when you have nothing of it left.
    Fence(Passage),
    /// Accept on this, as the listener of this number; then say whether
    /// that is so. For the first reactor.
    Listen(u16, BoundListener, AfterMail<io::Result<()>>),
    /// Close the listener of this number and what came in by it.
    Unlisten(u16),
    /// Do this on a volume, which takes no memory of others, and say how that went. For the first
    /// reactor.
    Run(
        Arc<dyn Volume>,
        store::Io,
        AfterMail<Result<(), store::Error>>,
    ),
    /// Volumes may have something to do by themselves: see to it. For the first reactor.
    Upkeep,
    /// These limits hold. For the first reactor, which tells the others.
    SetRateLimits(Vec<RateLimit>),
    /// Other limits hold: look at what waits for them.
    RateLimitsChanged,
    /// This reactor's connections wait for memory: give back what you do not use,
    /// and say when you have.
    MemoryWanted(usize),
    /// A reactor has given memory back.
    MemoryFreed,
    /// End: close everything, then leave the loop.
    Stop,
}
