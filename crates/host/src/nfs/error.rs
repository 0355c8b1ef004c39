//! What can go wrong between a client and a server.

use std::io;

use ::nfs::client::{RpcClientFatalError, RpcRefused, Wrong};
use wire::nfs4::nfsstat4;

/// Why a connection or an operation did not work.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The socket failed.
    #[error("socket: {0}")]
    Socket(#[from] io::Error),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The server broke the protocol.
    #[error("protocol error: {0}")]
    Protocol(RpcClientFatalError),
    /// RPC refused the call.
    #[error("the call was refused: {0}")]
    Refused(#[from] RpcRefused),
    /// An operation ended otherwise than with NFS4_OK.
    #[error("{0}")]
    Operation(#[from] Wrong),
    /// Nothing came for too long.
    #[error("no {waiting_for} in time")]
    TimedOut {
        /// What was waited for.
        waiting_for: &'static str,
    },
    /// The server's answers cannot be used; why, in words.
    #[error("{0}")]
    Unusable(String),
    /// `memory_max` leaves no room.
    #[error("no memory left below memory_max")]
    NoMemory,
}

impl ClientError {
    /// The status that an operation ended with, if that is what went wrong.
    #[must_use]
    pub fn status(&self) -> Option<nfsstat4> {
        match self {
            ClientError::Operation(wrong) => wrong.status(),
            _ => None,
        }
    }
}
