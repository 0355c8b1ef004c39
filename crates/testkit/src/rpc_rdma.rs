//! Headers of RPC-over-RDMA as a client writes them and a server's are read.

use wire::rpc_rdma::{rdma_body, rdma_msg, rpc_rdma_error, xdr_rdma_segment, xdr_write_chunk};
use wire::xdr::{Decode, Encode, Reader};

/// Memory that a message names.
pub type Segment = xdr_rdma_segment;

/// A message with its chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Transaction identifier.
    pub xid: u32,
    /// Credits, wanted or granted.
    pub credits: u32,
    /// RDMA_NOMSG instead of RDMA_MSG.
    pub is_long: bool,
    /// The read list: positions and segments.
    pub reads: Vec<(u32, Segment)>,
    /// The write list.
    pub writes: Vec<Vec<Segment>>,
    /// The reply chunk.
    pub reply: Option<Vec<Segment>>,
    /// What follows the header.
    pub body: Vec<u8>,
}

/// A segment.
pub fn segment(handle: u32, offset: u64, length: u32) -> Segment {
    Segment {
        handle,
        length,
        offset,
    }
}

/// The segments of a chunk.
fn segments(chunk: &xdr_write_chunk<'_>) -> Vec<Segment> {
    chunk.target.iter().collect()
}

impl Message {
    /// A message without chunks.
    pub fn short(xid: u32, credits: u32, body: Vec<u8>) -> Message {
        Message {
            xid,
            credits,
            body,
            ..Message::default()
        }
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        let to = &mut to;
        [self.xid, 1, self.credits, u32::from(self.is_long)]
            .iter()
            .for_each(|word| word.encode(to));
        for (position, segment) in &self.reads {
            true.encode(to);
            position.encode(to);
            segment.encode(to);
        }
        false.encode(to);
        let chunk = |segments: &[Segment], to: &mut Vec<u8>| {
            (segments.len() as u32).encode(to);
            segments.iter().for_each(|segment| segment.encode(to));
        };
        for segments in &self.writes {
            true.encode(to);
            chunk(segments, to);
        }
        false.encode(to);
        self.reply.is_some().encode(to);
        if let Some(segments) = &self.reply {
            chunk(segments, to);
        }
        to.extend_from_slice(&self.body);
        std::mem::take(to)
    }

    /// Reads a message of version 1, or the error that it is.
    pub fn decode(bytes: &[u8]) -> Result<Message, rpc_rdma_error> {
        let from = &mut Reader::new(bytes);
        let message = rdma_msg::decode(from).expect("a header");
        let (lists, is_long) = match message.body {
            rdma_body::RDMA_MSG(lists) => (lists, false),
            rdma_body::RDMA_NOMSG(lists) => (lists, true),
            rdma_body::RDMA_ERROR(error) => return Err(error),
            rdma_body::RDMA_DONE => panic!("it is not in use"),
        };
        assert_eq!(message.rdma_vers, 1);
        let reads = lists.rdma_reads.iter();
        Ok(Message {
            xid: message.rdma_xid,
            credits: message.rdma_credit,
            is_long,
            reads: reads.map(|read| (read.position, read.target)).collect(),
            writes: lists
                .rdma_writes
                .iter()
                .map(|chunk| segments(&chunk))
                .collect(),
            reply: lists.rdma_reply.map(|chunk| segments(&chunk)),
            body: from.rest().to_vec(),
        })
    }
}
