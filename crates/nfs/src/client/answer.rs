//! The answer to a call, as RPC has it.

use std::fmt;

use wire::rpc::{accept_stat, accepted_body, accepted_reply, rejected_reply, reply_body};
use wire::rpc_rdma::rpc_rdma_error;
use wire::xdr::{Decode, Reader, XdrError};

use super::compound::Results;

/// Why a call was not executed, where RPC says so (RFC 5531, section 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RpcRefused {
    /// It was let in, but is not served.
    Accepted(accepted_body),
    /// It was not let in.
    Denied(rejected_reply),
    /// The answer cannot be read.
    Unreadable(XdrError),
    /// The server cannot use what was said of it by RDMA, or the answer had no room (RFC 8166,
    /// section 4.5).
    Header(rpc_rdma_error),
}

impl fmt::Display for RpcRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RpcRefused::Accepted(accepted_body::PROG_MISMATCH(found)) => {
                write!(f, "PROG_MISMATCH, {} to {}", found.low, found.high)
            }
            RpcRefused::Accepted(accepted_body::default(status)) => write!(f, "{status:?}"),
            RpcRefused::Denied(rejected_reply::AUTH_ERROR(why)) => write!(f, "{why:?}"),
            RpcRefused::Denied(rejected_reply::RPC_MISMATCH(_)) => f.write_str("RPC_MISMATCH"),
            RpcRefused::Header(rpc_rdma_error::ERR_VERS(range)) => write!(
                f,
                "RDMA_ERROR, ERR_VERS: versions {} to {} of RPC-over-RDMA, of which 1 is known",
                range.rdma_vers_low, range.rdma_vers_high
            ),
            RpcRefused::Header(rpc_rdma_error::ERR_CHUNK) => {
                f.write_str("RDMA_ERROR, ERR_CHUNK: chunks that the server cannot use")
            }
            RpcRefused::Unreadable(error) => write!(f, "an answer that cannot be read: {error}"),
        }
    }
}

impl std::error::Error for RpcRefused {}

/// The answer to a call.
#[derive(Clone, Copy, Debug)]
pub struct RpcAnswer<'a> {
    /// What follows the header of RPC.
    pub(super) bytes: Result<&'a [u8], RpcRefused>,
    /// Data of READs lies in the call's memory, not in `bytes`.
    pub(super) is_placed: bool,
    /// Bytes of data that lie in the call's memory.
    pub data_len: u32,
}

impl<'a> RpcAnswer<'a> {
    /// The results of a COMPOUND.
    ///
    /// # Errors
    /// Where RPC refuses, or the answer makes no sense.
    #[inline]
    pub fn results(&self) -> Result<Results<'a>, RpcRefused> {
        Results::read(self.bytes?, self.is_placed).map_err(RpcRefused::Unreadable)
    }

    /// What follows the header of RPC, without data that was placed: nothing after a NULL.
    ///
    /// # Errors
    /// Where RPC refuses.
    pub fn body(&self) -> Result<&'a [u8], RpcRefused> {
        self.bytes
    }
}

/// Behind xid and type of an answer that was accepted and succeeded, without a
/// verifier: MSG_ACCEPTED, AUTH_NONE, no bytes, SUCCESS.
const SUCCESS: [u8; 16] = [0; 16];

/// What an answer's header says, and what follows it.
#[inline]
pub(super) fn results(message: &[u8]) -> Result<&[u8], RpcRefused> {
    let body = &message[8..];
    if body.starts_with(&SUCCESS) {
        return Ok(&body[SUCCESS.len()..]);
    }
    let mut from = Reader::new(body);
    match reply_body::decode(&mut from).map_err(RpcRefused::Unreadable)? {
        reply_body::MSG_ACCEPTED(accepted_reply {
            body: accepted_body::default(accept_stat::SUCCESS),
            ..
        }) => Ok(&body[from.position()..]),
        reply_body::MSG_ACCEPTED(accepted) => Err(RpcRefused::Accepted(accepted.body)),
        reply_body::MSG_DENIED(why) => Err(RpcRefused::Denied(why)),
    }
}
