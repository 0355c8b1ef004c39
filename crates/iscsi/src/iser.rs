//! iSER (RFC 7145): iSCSI by RDMA over iWARP. A PDU is a Send, but for Data-In and R2T, which
//! are RDMA Writes and Reads of the initiator's memory, and Data-Out that R2T asks for.
//!
//! The machines of both ends are those of TCP. What they send is taken apart here
//! ([`gather`]), and what they receive is put together for them ([`feed`]).

mod feed;
mod gather;
pub(crate) mod initiator;
pub(crate) mod target;

use iwarp::QpError;
use wire::iscsi::{AHS_LEN_MAX, BHS_LEN, Bhs};
use wire::iser::{ISER_HEADER_LEN, IserHeader};
use wire::iwarp::TerminateCode;
use zerocopy::FromBytes;

use crate::negotiated::LENGTH_MAX;

pub use iwarp::{CountedStream, CrcPolicy, QpCounts, QpSettings, StreamCounts, TerminateCounts};

/// Sends that the peer may have sent and that were not taken: what cannot be taken yet stays
/// in the socket, so that there is no need of less.
const RECEIVES: u32 = 1 << 16;

/// Bytes of a Send before its data segment, and before Additional Header Segments.
const HEAD_LEN: usize = ISER_HEADER_LEN + BHS_LEN;

/// `stream` as iSER has it: a Send begins with both headers.
fn stream_settings(stream: QpSettings) -> QpSettings {
    QpSettings {
        head_max: HEAD_LEN as u16,
        send_max: (HEAD_LEN + AHS_LEN_MAX) as u32 + LENGTH_MAX,
        tags_max: usize::from(u16::MAX),
        ..stream
    }
}

/// Why a connection ends that is carried by RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IserError {
    /// Its stream does.
    #[error(transparent)]
    Stream(#[from] QpError),
    /// The listener serves no initiators by RDMA.
    #[error("iSER connection rejected: the listener is without `rdma = true`")]
    NotServed,
    /// The target could not read what the initiator writes.
    #[error("iSER connection rejected: the initiator takes no RDMA Reads, its IRD is 0")]
    NoReads,
    /// The target rejects it.
    #[error("the target rejects the connection by RDMA: its listener is without `rdma = true`")]
    Rejected,
    /// A response invalidates what its command has not named.
    #[error("bogus remote invalidation: a response invalidates STag {stag:#010x}")]
    Invalidation {
        /// Not its STag.
        stag: u32,
    },
    /// A message of the peer breaks iSER; a Terminate tells it so.
    #[error("iSER message refused: {0}")]
    Message(&'static str),
}

impl IserError {
    /// How its stream ends, where it has come about.
    #[must_use]
    pub fn of_stream(self) -> Option<QpError> {
        match self {
            IserError::Stream(why) => Some(why),
            IserError::Message(_) => Some(QpError::Sent(TerminateCode::UNSPECIFIED)),
            _ => None,
        }
    }
}

/// A Send that has come: both headers, and how many bytes the data segment has.
struct SentPdu<'a> {
    iser: &'a IserHeader,
    bhs: &'a Bhs,
    data_len: u32,
}

impl<'a> SentPdu<'a> {
    /// The headers at the start of `head`, if it begins with an iSCSI PDU.
    fn parse(head: &'a [u8]) -> Result<SentPdu<'a>, IserError> {
        use wire::iser::iser_first::{CONTROL, OPCODE_MASK};
        let headers = IserHeader::ref_from_prefix(head)
            .ok()
            .and_then(|(iser, rest)| {
                let (bhs, _) = Bhs::ref_from_prefix(rest).ok()?;
                Some((iser, bhs))
            });
        let (iser, bhs) =
            headers.ok_or(IserError::Message("it ends before its PDU header does"))?;
        if iser.first & OPCODE_MASK != CONTROL {
            return Err(IserError::Message("its opcode is none of a PDU"));
        }
        Ok(SentPdu {
            iser,
            bhs,
            data_len: bhs.data_segment_length.get(),
        })
    }

    /// Whether a Send has `len` bytes behind its Basic Header Segment: what the PDU says,
    /// with padding or without.
    fn has_len(&self, len: usize) -> bool {
        let says = self.bhs.ahs_len() + self.data_len as usize;
        len == says || len == says.next_multiple_of(wire::iscsi::PAD)
    }
}
