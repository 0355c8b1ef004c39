//! RPC-over-RDMA version 1: the headers of messages (RFC 8166) and what both ends tell each
//! other of it when they connect (RFC 8797).

described!("rpc_rdma");

/// What an end says of itself in the private data of its connection (RFC 8797, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcRdmaPrivateData {
    /// It takes Send with Invalidate.
    pub takes_invalidate: bool,
    /// Most bytes of a Send of it: a multiple of 1024, 262144 at most.
    pub send_bytes_max: u32,
    /// Most bytes of a Send to it: likewise.
    pub receive_bytes_max: u32,
}

impl Default for RpcRdmaPrivateData {
    /// What is so of an end that says nothing (RFC 8166, section 3.3.3).
    fn default() -> RpcRdmaPrivateData {
        RpcRdmaPrivateData {
            takes_invalidate: false,
            send_bytes_max: UNIT_BYTES,
            receive_bytes_max: UNIT_BYTES,
        }
    }
}

/// What it begins with.
const MAGIC: u32 = 0xf6ab_0e18;
const VERSION: u8 = 1;
const TAKES_INVALIDATE: u8 = 1;
/// Sizes are in units of so many bytes, 0's based.
const UNIT_BYTES: u32 = 1024;

impl RpcRdmaPrivateData {
    /// Bytes of it.
    pub const LEN: usize = 8;

    /// Reads it from the start of private data; `None`: that is of another format, and says
    /// nothing.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<RpcRdmaPrivateData> {
        let (magic, rest) = bytes.split_first_chunk()?;
        let &[VERSION, flags, send, receive, ..] = rest else {
            return None;
        };
        (u32::from_be_bytes(*magic) == MAGIC).then(|| RpcRdmaPrivateData {
            takes_invalidate: flags & TAKES_INVALIDATE != 0,
            send_bytes_max: (u32::from(send) + 1) * UNIT_BYTES,
            receive_bytes_max: (u32::from(receive) + 1) * UNIT_BYTES,
        })
    }

    /// Writes it.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LEN] {
        let units = |bytes: u32| (bytes / UNIT_BYTES - 1) as u8;
        let [a, b, c, d] = MAGIC.to_be_bytes();
        let flags = if self.takes_invalidate {
            TAKES_INVALIDATE
        } else {
            0
        };
        let (send, receive) = (units(self.send_bytes_max), units(self.receive_bytes_max));
        [a, b, c, d, VERSION, flags, send, receive]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::{Decode, Encode, Reader, XdrError};

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    fn decode(bytes: &[u8]) -> Result<rdma_msg<'_>, XdrError> {
        rdma_msg::decode(&mut Reader::new(bytes))
    }

    #[test]
    fn chunk_lists_lie_as_the_standard_has_them() {
        let mut words = vec![0x0a, 1, 32, 0];
        // Two segments to read, at one position.
        words.extend([1, 132, 0x11, 7, 0, 0x1000, 1, 132, 0x12, 9, 1, 2]);
        // No more; a chunk of two segments to write to, and one of none.
        words.extend([0, 1, 2, 0x21, 5, 0, 3, 0x22, 6, 0, 4, 1, 0]);
        // No more; a chunk for the answer, of one segment.
        words.extend([0, 1, 1, 0x31, 8, 0xffff_ffff, 0]);
        let bytes = bytes(&words);
        let message = decode(&bytes).expect("a header");
        let rdma_body::RDMA_MSG(lists) = message.body else {
            panic!("RDMA_MSG");
        };
        let segment = |handle, length, offset| xdr_rdma_segment {
            handle,
            length,
            offset,
        };
        let reads: Vec<_> = lists.rdma_reads.iter().collect();
        let targets = [segment(0x11, 7, 0x1000), segment(0x12, 9, 0x1_0000_0002)];
        assert_eq!(reads.len(), 2);
        for (read, target) in reads.iter().zip(targets) {
            assert_eq!((read.position, read.target), (132, target));
        }
        let writes: Vec<Vec<_>> = lists
            .rdma_writes
            .iter()
            .map(|chunk| chunk.target.iter().collect())
            .collect();
        let first = vec![segment(0x21, 5, 3), segment(0x22, 6, 4)];
        assert_eq!(writes, [first, Vec::new()]);
        let reply = lists.rdma_reply.expect("a chunk for the answer");
        let reply: Vec<_> = reply.target.iter().collect();
        assert_eq!(reply, [segment(0x31, 8, 0xffff_ffff_0000_0000)]);
        let mut again = Vec::new();
        message.encode(&mut again);
        assert_eq!(again, bytes);
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len]), Err(XdrError::Short), "{len} bytes");
        }
    }

    #[test]
    fn errors_and_kinds_that_are_not_in_use_are_told_apart() {
        let versions = rdma_msg {
            rdma_xid: 7,
            rdma_vers: 2,
            rdma_credit: 3,
            body: rdma_body::RDMA_ERROR(rpc_rdma_error::ERR_VERS(rpc_rdma_errvers {
                rdma_vers_low: 1,
                rdma_vers_high: 1,
            })),
        };
        let mut written = Vec::new();
        versions.encode(&mut written);
        assert_eq!(written, bytes(&[7, 2, 3, 4, 1, 1, 1]));
        assert_eq!(decode(&written), Ok(versions));
        let error = bytes(&[7, 1, 3, 4, 2]);
        let chunk = decode(&error).map(|message| message.body);
        assert_eq!(chunk, Ok(rdma_body::RDMA_ERROR(rpc_rdma_error::ERR_CHUNK)));
        let done = bytes(&[7, 1, 3, 3]);
        let done = decode(&done).map(|message| message.body);
        assert_eq!(done, Ok(rdma_body::RDMA_DONE));
        for kind in [2, 5, u32::MAX] {
            let unknown = bytes(&[7, 1, 3, kind, 0, 0, 0]);
            let unknown = decode(&unknown);
            assert_eq!(unknown, Err(XdrError::Value { what: "rdma_proc" }));
        }
        let many = bytes(&[7, 1, 3, 0, 0, 1, CHUNK_SEGMENTS_MAX + 1]);
        assert!(matches!(decode(&many), Err(XdrError::Long { .. })));
    }

    #[test]
    fn private_data_lies_as_the_standard_has_it() {
        let data = RpcRdmaPrivateData {
            takes_invalidate: true,
            send_bytes_max: 4096,
            receive_bytes_max: 262_144,
        };
        let written = data.encode();
        assert_eq!(written, [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 255]);
        assert_eq!(RpcRdmaPrivateData::decode(&written), Some(data));
        let longer = [&written[..], &[9; 4]].concat();
        assert_eq!(RpcRdmaPrivateData::decode(&longer), Some(data));
        // Flags that mean nothing yet.
        let flags = [0xf6, 0xab, 0x0e, 0x18, 1, 0xfe, 0, 0];
        let none = Some(RpcRdmaPrivateData::default());
        assert_eq!(RpcRdmaPrivateData::decode(&flags), none);
        for (at, bit) in [(0, 1), (3, 0x80), (4, 2)] {
            let mut other = written;
            other[at] ^= bit;
            assert_eq!(RpcRdmaPrivateData::decode(&other), None, "byte {at}");
        }
        assert_eq!(RpcRdmaPrivateData::decode(&written[..7]), None);
    }
}
