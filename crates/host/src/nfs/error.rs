//! What can go wrong between a client and a server.

use std::fmt;
use std::io;

use ::nfs::client::{FatalError, Refused, Wrong};
use wire::nfs4::nfsstat4;

/// Why a connection or an operation did not work.
#[derive(Debug)]
pub enum Error {
    /// The socket failed.
    Socket(io::Error),
    /// The server closed the connection.
    Closed,
    /// The server broke the protocol.
    Protocol(FatalError),
    /// RPC refused the call.
    Refused(Refused),
    /// An operation ended otherwise than with NFS4_OK.
    Operation(Wrong),
    /// Nothing came for too long.
    TimedOut {
        /// What was waited for.
        waiting_for: &'static str,
    },
    /// The server's answers cannot be used; why, in words.
    Unusable(String),
    /// `memory_max` leaves no room.
    NoMemory,
}

impl Error {
    /// The status that an operation ended with, if that is what went wrong.
    #[must_use]
    pub fn status(&self) -> Option<nfsstat4> {
        match self {
            Error::Operation(wrong) => wrong.status(),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Socket(error) => write!(f, "socket: {error}"),
            Error::Closed => f.write_str("the server closed the connection"),
            Error::Protocol(error) => write!(f, "protocol error: {error}"),
            Error::Refused(why) => write!(f, "the call was refused: {why}"),
            Error::Operation(wrong) => wrong.fmt(f),
            Error::TimedOut { waiting_for } => write!(f, "no {waiting_for} in time"),
            Error::Unusable(why) => f.write_str(why),
            Error::NoMemory => f.write_str("no memory left below memory_max"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Error::Socket(error)
    }
}

impl From<Refused> for Error {
    fn from(why: Refused) -> Self {
        Error::Refused(why)
    }
}

impl From<Wrong> for Error {
    fn from(wrong: Wrong) -> Self {
        Error::Operation(wrong)
    }
}
