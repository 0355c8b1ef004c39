//! What can go wrong between a host and a controller.

use std::fmt;
use std::io;

use nvmf::tcp::FatalError;
use wire::nvme::Status;

/// Why a connection or a command did not work.
#[derive(Debug)]
pub enum Error {
    /// The socket failed.
    Socket(io::Error),
    /// The controller closed the connection.
    Closed,
    /// One side broke the protocol; the connection was terminated.
    Protocol(FatalError),
    /// The controller refused a command.
    Refused {
        /// The command's name in the standard.
        command: &'static str,
        /// What it answered.
        status: Status,
    },
    /// Nothing came for too long.
    TimedOut {
        /// What was waited for.
        waiting_for: &'static str,
    },
    /// The controller's answers cannot be used; why, in words.
    Unusable(String),
    /// `memory_max` leaves no room.
    NoMemory,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Socket(error) => write!(f, "socket: {error}"),
            Error::Closed => f.write_str("the controller closed the connection"),
            Error::Protocol(error) => write!(f, "protocol error: {error:?}"),
            Error::Refused { command, status } => write!(f, "{command} was refused: {status}"),
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
