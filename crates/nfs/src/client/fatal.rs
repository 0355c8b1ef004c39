//! What ends a connection.

use iwarp::QpError;

/// Why a connection ended: the server does not speak RPC, or keeps to no
/// bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RpcClientFatalError {
    /// A record that is neither call nor answer.
    #[error("a record that is no RPC message")]
    NoMessage,
    /// A record longer than what was asked for can be.
    #[error("an answer longer than asked for")]
    LongRecord,
    /// More fragments than a record needs.
    #[error("a record in too many fragments")]
    Fragments,
    /// More data than was asked for.
    #[error("more data than asked for")]
    Overrun,
    /// It calls and takes no answers.
    #[error("too many callbacks whose answers are not taken")]
    Callbacks,
    /// It was asked for TLS.
    #[error("it does not speak TLS on this port (no STARTTLS in the answer to AUTH_TLS)")]
    NoTls,
    /// What RPCSEC_GSS protects is not what the server sent: another on the way has changed it.
    #[error("an answer that does not prove to be the server's (RPCSEC_GSS)")]
    Unproven,
    /// Bytes in the clear between its answer to the question for TLS and the handshake:
    /// another on the way may have put them there.
    #[error("bytes in the clear behind its answer to AUTH_TLS")]
    BehindProbe,
    /// Its stream of RDMA ends.
    #[error(transparent)]
    Rdma(#[from] QpError),
    /// It does not take the connection.
    #[error("the server rejects the connection (MPA): see its log")]
    Rejected,
    /// A Send that is no message of RPC-over-RDMA version 1.
    #[error("a Send without a header of RPC-over-RDMA version 1")]
    Header,
    /// An answer of which less was written than it says, or data that is not in its chunk.
    #[error("an answer whose bytes were not written to the chunks that the call had for them")]
    Chunk,
    /// An answer invalidates what its call has not named.
    #[error("bogus remote invalidation of STag {0:#010x}")]
    Invalidation(u32),
}
