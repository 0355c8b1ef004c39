//! NVMe/TCP: both ends of a queue pair as machines (NVM Express TCP Transport
//! Specification 1.0).

pub mod controller;
pub mod host;
mod inbound;
pub mod testing;

use std::fmt;

use wire::nvme_tcp::{CommonHeader, DIGEST_LEN, Fes, digest, flags};
use zerocopy::FromBytes;

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FatalError {
    /// The peer broke the protocol: a termination request to it is queued.
    Sent {
        /// Fatal Error Status.
        fes: Fes,
        /// Fatal Error Information.
        fei: u32,
        /// PDU type of the PDU in error.
        pdu_type: u8,
    },
    /// The peer sent a termination request.
    Received {
        /// Fatal Error Status.
        fes: u16,
        /// Fatal Error Information.
        fei: u32,
    },
}

impl fmt::Display for FatalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FatalError::Sent { fes, fei, pdu_type } => {
                write!(
                    f,
                    "PDU of type {pdu_type:02x}h refused: {fes:?}, FEI {fei:#x}"
                )
            }
            FatalError::Received { fes, fei } => {
                write!(
                    f,
                    "peer terminated the connection: FES {fes:02x}h, FEI {fei:#x}"
                )
            }
        }
    }
}

impl std::error::Error for FatalError {}

/// Which digests are in use on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Digests {
    header: bool,
    data: bool,
}

/// A PDU that is wrong: what goes into the termination request.
type Malformed = (Fes, u32);

/// Byte offsets of the common header's fields, for FEI.
mod field {
    pub const PDU_TYPE: u32 = 0;
    pub const FLAGS: u32 = 1;
    pub const HLEN: u32 = 2;
    pub const PDO: u32 = 3;
    pub const PLEN: u32 = 4;
    pub const CCCID: u32 = 8;
    pub const TTAG: u32 = 10;
    pub const R2TL: u32 = 16;
    pub const DATAL: u32 = 16;
}

fn invalid(field: u32) -> Malformed {
    (Fes::InvalidPduHeaderField, field)
}

/// The header of a PDU, all of it there and its common header checked.
struct Frame {
    /// Bytes up to the data, or of the whole PDU if it has none.
    used: usize,
    /// Bytes of data, digest excluded.
    data_len: u32,
}

impl Frame {
    /// Whether `bytes` hold all of the PDU, its data digest included.
    #[inline]
    fn is_whole(&self, bytes: &[u8], digests: Digests) -> bool {
        let trailer = if digests.data { DIGEST_LEN } else { 0 };
        bytes.len() - self.used >= self.data_len as usize + trailer
    }
}

/// Checks the common header and the header digest of the PDU at the start of
/// `bytes`; `None`: more bytes are needed.
///
/// The digest comes before every field but HLEN: a flipped bit in PLEN is a
/// digest error, not a malformed PDU.
#[inline]
fn frame(
    bytes: &[u8],
    hlen: u8,
    may_carry_data: bool,
    digests: Digests,
) -> Result<Option<Frame>, Malformed> {
    let Ok((ch, _)) = CommonHeader::ref_from_prefix(bytes) else {
        return Ok(None);
    };
    if ch.hlen != hlen {
        return Err(invalid(field::HLEN));
    }
    let header_len = usize::from(hlen) + if digests.header { DIGEST_LEN } else { 0 };
    if bytes.len() < header_len {
        return Ok(None);
    }
    if (ch.flags & flags::HDGST != 0) != digests.header {
        return Err(invalid(field::FLAGS));
    }
    if digests.header {
        check_header_digest(bytes, usize::from(hlen))?;
    }
    let plen = ch.plen.get();
    if plen as usize == header_len {
        return Ok(Some(Frame {
            used: header_len,
            data_len: 0,
        }));
    }
    if !may_carry_data || (plen as usize) < header_len {
        return Err(invalid(field::PLEN));
    }
    // Both ends announce an alignment of 4 (HPDA and CPDA 0); more padding does no harm.
    let pdo = usize::from(ch.pdo);
    if pdo < header_len || !pdo.is_multiple_of(4) {
        return Err(invalid(field::PDO));
    }
    if (ch.flags & flags::DDGST != 0) != digests.data {
        return Err(invalid(field::FLAGS));
    }
    let overhead = pdo + if digests.data { DIGEST_LEN } else { 0 };
    let data_len = match plen.checked_sub(overhead as u32) {
        None | Some(0) => return Err(invalid(field::PLEN)),
        Some(data_len) => data_len,
    };
    Ok((bytes.len() >= pdo).then_some(Frame {
        used: pdo,
        data_len,
    }))
}

#[cold]
fn check_header_digest(bytes: &[u8], hlen: usize) -> Result<(), Malformed> {
    let received = u32_at(bytes, hlen);
    if digest(&bytes[..hlen]) == received {
        Ok(())
    } else {
        Err((Fes::HeaderDigestError, received))
    }
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + DIGEST_LEN].try_into().expect("4 bytes"))
}

/// A whole header at the start of `bytes`, which [`frame`] found long enough.
#[inline]
fn view<T: FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned>(
    bytes: &[u8],
) -> &T {
    T::ref_from_prefix(bytes)
        .expect("the frame holds the header")
        .0
}

/// Appends a header whose flags and PLEN are set already, its digest if there
/// are any, and padding up to `pdo` (0: none).
#[inline]
fn put_header(out: &mut impl machine::Transmit, header: &[u8], digests: Digests, pdo: usize) {
    let plain = header.len();
    if !digests.header && pdo <= plain {
        out.header(header);
        return;
    }
    let mut bytes = [0; 256];
    bytes[..plain].copy_from_slice(header);
    let mut len = plain;
    if digests.header {
        bytes[len..len + DIGEST_LEN].copy_from_slice(&digest(header).to_le_bytes());
        len += DIGEST_LEN;
    }
    out.header(&bytes[..len.max(pdo)]);
}
