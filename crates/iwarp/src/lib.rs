//! iWARP over a TCP stream as pure state: MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and RDMAP
//! (RFC 5040) in one machine, both roles, without I/O.
//!
//! A [`Qp`] is one stream. What lies above it (NVMe/RDMA, iSER, RPC-over-RDMA) is a machine
//! of its own that has a `Qp`, passes the steps on that are not [`Step::Op`], and sends:
//!
//! - The responder gets [`QpOp::Requested`] and answers it with [`Qp::accept`] or
//!   [`Qp::reject`]; the initiator gets [`QpOp::Established`] or [`QpOp::Rejected`].
//! - A Send arrives in two parts: its head, up to [`QpSettings::head_max`] bytes, is bytes to
//!   the machine above ([`Qp::head`]); the rest goes to the data of a tag that it chooses
//!   when [`QpOp::Body`] says that there is a rest. [`QpOp::Received`] comes when all CRCs
//!   of the message were right. Until then nothing of it may be acted on; a tag whose bytes
//!   do not come to that is worth nothing.
//! - RDMA Writes and Read Responses go straight into memory that was registered
//!   ([`Qp::register`]) or read to ([`Qp::read`]), once all that their headers claim was
//!   checked. Nothing is told of Writes: the Send behind them tells.
//! - Each mistake of the peer ends the stream by a Terminate that says which; [`QpOp::Fatal`]
//!   tells it. What comes afterwards is passed over.
//!
//! Markers are neither sent nor taken: a peer that wants them is rejected. Atomics and
//! immediate data (RFC 7306) are unexpected opcodes.
//!
//! [`Step::Op`]: machine::Step::Op
#![forbid(unsafe_code)]

mod batch;
mod counts;
mod mpa;
mod qp;
mod stags;
mod terminates;

pub use batch::UpperBatch;
pub use counts::{CountedStream, StreamCounts};
pub use mpa::{CrcPolicy, MpaError, Terms, ulpdu_max};
pub use qp::{
    DataPart, OWN_BYTES, Qp, QpCounts, QpError, QpOp, QpSettings, ReadsRefused, ReceivedSend, Work,
};
pub use stags::{RegisteredMemory, RemoteAccess};
pub use terminates::{TerminateCount, TerminateCounts};
