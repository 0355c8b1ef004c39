//! What both ends of a connection have in common whose messages go by RPC-over-RDMA.

use iwarp::{OWN_BYTES, Qp, UpperBatch};
use machine::{Machine, PAD_MAX, Tag, Tail, Transmit, crc32c};

/// Bytes of a header without chunks, and of the shortest that is looked at (RFC 8166, section
/// 4.5).
pub(crate) const HEADER_BYTES: usize = 28;

/// Sends of one message what the batch has room for: what [`OWN_BYTES`] names are the bytes of
/// `own`, one behind the other. Whether its last byte was named.
pub(crate) fn send_message(qp: &mut Qp, out: &mut impl Transmit, own: [&[u8]; 3]) -> bool {
    let mut is_sent = false;
    qp.poll_transmit(&mut UpperBatch {
        out,
        payload: |out: &mut _, tag, offset, len, tail| {
            put_payload(out, own, (tag, offset, len), tail);
        },
        // Which tags the driver knows, the connection says.
        release: |_| is_sent = true,
    });
    is_sent
}

fn put_payload(
    out: &mut impl Transmit,
    own: [&[u8]; 3],
    (tag, offset, len): (Tag, u32, u32),
    tail: Tail,
) {
    if tag != OWN_BYTES {
        return out.payload(tag, offset, len, tail);
    }
    let (from, to) = (offset as usize, (offset + len) as usize);
    let mut crc = tail.digest;
    let mut begin = 0;
    for piece in own {
        let end = begin + piece.len();
        let (first, last) = (from.clamp(begin, end), to.clamp(begin, end));
        let bytes = &piece[first - begin..last - begin];
        out.header(bytes);
        crc = crc.map(|crc| crc32c(bytes, crc));
        begin = end;
    }
    let pad = &[0; PAD_MAX][..usize::from(tail.pad)];
    out.header(pad);
    if let Some(crc) = crc {
        out.header(&crc32c(pad, crc).to_le_bytes());
    }
}
