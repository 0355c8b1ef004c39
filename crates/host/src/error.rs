//! What can go wrong between a host and a controller.

use std::io;

use nvmf::rdma::host::RdmaHostError;
use nvmf::tcp::FatalError;
use wire::nvme::Status;

/// Why a connection or a command did not work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket failed.
    #[error("socket: {0}")]
    Socket(#[from] io::Error),
    /// The controller closed the connection.
    #[error("the controller closed the connection")]
    Closed,
    /// One side broke the protocol; the connection was terminated.
    #[error("protocol error: {0}")]
    Protocol(#[from] FatalError),
    /// The same over RDMA, or the controller rejects the connection.
    #[error("RDMA: {0}")]
    Rdma(#[from] RdmaHostError),
    /// The controller refused a command.
    #[error("{command} was refused: {status}")]
    Refused {
        /// The command's name in the standard.
        command: &'static str,
        /// What it answered.
        status: Status,
    },
    /// Nothing came for too long.
    #[error("no {waiting_for} in time")]
    TimedOut {
        /// What was waited for.
        waiting_for: &'static str,
    },
    /// What the controller answers, or is to be asked, cannot be used; why, in words.
    #[error("{0}")]
    Unusable(String),
    /// `memory_max` leaves no room.
    #[error("no memory left below memory_max")]
    NoMemory,
}
