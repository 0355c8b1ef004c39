//! NVMe/TCP: both ends of a queue pair as machines (NVM Express TCP Transport
//! Specification 1.0).

pub mod controller;
pub mod host;
mod other_protocol;

use faults::Fault;
use machine::{Tail, crc32c};
use wire::nvme_tcp::{
    CommonHeader, DGST_DATA, DGST_HEADER, DIGEST_LEN, Fes, TERM_DATA_MAX, TermReq, fes_name, flags,
};
use zerocopy::{FromBytes, IntoBytes};

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FatalError {
    /// The peer broke the protocol: a termination request to it is queued.
    #[error("PDU of type {pdu_type:02x}h refused: {fes:?}, FEI {fei:#x}")]
    Sent {
        /// Fatal Error Status.
        fes: Fes,
        /// Fatal Error Information.
        fei: u32,
        /// PDU type of the PDU in error.
        pdu_type: u8,
    },
    /// What the peer begins with is another protocol: a termination request to it is queued.
    #[error("it speaks {0}, and this port NVMe/TCP: connect it to another port")]
    OtherProtocol(&'static str),
    /// The peer sent a termination request.
    #[error("peer terminated the connection: {name} (FES {fes:02x}h), FEI {fei:#x}")]
    Received {
        /// Fatal Error Status.
        fes: u16,
        /// Fatal Error Information.
        fei: u32,
        /// What the status means: 05h is one thing each way.
        name: &'static str,
    },
    /// The peer sent a termination request that is none: its length is wrong
    /// (section 3.6.2.4). It is not answered.
    #[error("peer terminated the connection with a malformed request")]
    Garbled,
}

/// What both ends agreed on about the PDUs that one of them receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Framing {
    /// Header digests are in use.
    header: bool,
    /// Data digests are in use.
    data: bool,
    /// Data begins at a multiple of so many bytes, 4 to 128.
    alignment: u8,
}

impl Default for Framing {
    fn default() -> Framing {
        Framing {
            header: false,
            data: false,
            alignment: 4,
        }
    }
}

impl Framing {
    /// Where the data of a PDU with a header of `hlen` bytes begins that is sent
    /// to a peer whose data alignment (HPDA or CPDA) is `pda`.
    const fn pdo(self, hlen: u8, pda: u8) -> u8 {
        (hlen + if self.header { DIGEST_LEN as u8 } else { 0 }).next_multiple_of(alignment(pda))
    }
}

impl Framing {
    /// What follows the data of a PDU.
    #[inline]
    const fn tail(self) -> Tail {
        Tail::digest(self.data)
    }

    /// The digests as DGST of ICReq and ICResp has them.
    fn dgst(self) -> u8 {
        (if self.header { DGST_HEADER } else { 0 }) | if self.data { DGST_DATA } else { 0 }
    }
}

/// Bytes that HPDA and CPDA (0's based, in dwords) stand for.
const fn alignment(pda: u8) -> u8 {
    (pda + 1) * 4
}

/// A termination request (sections 3.6.2.4 and 3.6.2.5) at the start of `bytes`,
/// which carries no digests; `None`: more bytes are needed.
#[cold]
fn term_req(bytes: &[u8], sent_by_host: bool) -> Option<FatalError> {
    let (ch, _) = CommonHeader::ref_from_prefix(bytes).ok()?;
    let plen_max = u32::from(TermReq::HLEN) + TERM_DATA_MAX as u32;
    if ch.hlen != TermReq::HLEN || !(u32::from(TermReq::HLEN)..=plen_max).contains(&ch.plen.get()) {
        return Some(FatalError::Garbled);
    }
    let (term, _) = TermReq::ref_from_prefix(bytes).ok()?;
    let (fes, fei) = (term.fes.get(), term.fei.get());
    Some(FatalError::Received {
        fes,
        fei,
        name: fes_name(fes, sent_by_host).unwrap_or("reserved status"),
    })
}

/// A PDU that is wrong: what goes into the termination request.
type Malformed = (Fes, u32);

/// Puts a termination request because of the PDU at the start of `bytes` into
/// what is sent (sections 3.6.2.4 and 3.6.2.5).
#[cold]
fn terminate(kind: u8, (fes, fei): Malformed, bytes: &[u8], control: &mut Vec<u8>) -> FatalError {
    let hlen = usize::from(bytes.get(2).copied().unwrap_or(0)).max(size_of::<CommonHeader>());
    let header = &bytes[..hlen.min(bytes.len())];
    let (term, data) = TermReq::new(kind, fes, fei, header);
    control.extend_from_slice(term.as_bytes());
    control.extend_from_slice(data);
    FatalError::Sent {
        fes,
        fei,
        pdu_type: bytes[0],
    }
}

/// Byte offsets of the common header's fields, for FEI.
mod field {
    pub const PDU_TYPE: u32 = 0;
    pub const FLAGS: u32 = 1;
    pub const HLEN: u32 = 2;
    pub const PDO: u32 = 3;
    pub const PLEN: u32 = 4;
    pub const PFV: u32 = 8;
    pub const PDA: u32 = 10;
    pub const DGST: u32 = 11;
    pub const MAXH2CDATA: u32 = 12;
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
    fn is_whole(&self, bytes: &[u8], framing: Framing) -> bool {
        let trailer = if framing.data { DIGEST_LEN } else { 0 };
        bytes.len() - self.used >= self.data_len as usize + trailer
    }
}

/// Checks the common header and the header digest of the PDU at the start of
/// `bytes`; `None`: more bytes are needed.
///
/// The lowest field that is wrong is told. The digest comes before PDO and PLEN:
/// a flipped bit in PLEN is a digest error, not a malformed PDU.
#[inline]
fn frame(
    bytes: &[u8],
    hlen: u8,
    may_carry_data: bool,
    framing: Framing,
) -> Result<Option<Frame>, Malformed> {
    let Ok((ch, _)) = CommonHeader::ref_from_prefix(bytes) else {
        return Ok(None);
    };
    if (ch.flags & flags::HDGST != 0) != framing.header {
        return Err(invalid(field::FLAGS));
    }
    if ch.hlen != hlen {
        return Err(invalid(field::HLEN));
    }
    let header_len = usize::from(hlen) + if framing.header { DIGEST_LEN } else { 0 };
    if bytes.len() < header_len {
        return Ok(None);
    }
    if framing.header {
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
    if (ch.flags & flags::DDGST != 0) != framing.data {
        return Err(invalid(field::FLAGS));
    }
    // More padding than there must be does no harm.
    let pdo = usize::from(ch.pdo);
    let is_aligned = match framing.alignment {
        4 => pdo & 3 == 0,
        alignment => pdo.is_multiple_of(usize::from(alignment)),
    };
    if pdo < header_len || pdo > plen as usize || !is_aligned {
        return Err(invalid(field::PDO));
    }
    let overhead = pdo + if framing.data { DIGEST_LEN } else { 0 };
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
    if crc32c(&bytes[..hlen], 0) == received || faults::is(Fault::NoHeaderDigests) {
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
fn put_header(out: &mut impl machine::Transmit, header: &[u8], framing: Framing, pdo: usize) {
    let plain = header.len();
    if !framing.header && pdo <= plain {
        out.header(header);
        return;
    }
    let mut bytes = [0; 256];
    bytes[..plain].copy_from_slice(header);
    let mut len = plain;
    if framing.header {
        bytes[len..len + DIGEST_LEN].copy_from_slice(&crc32c(header, 0).to_le_bytes());
        len += DIGEST_LEN;
    }
    out.header(&bytes[..len.max(pdo)]);
}
