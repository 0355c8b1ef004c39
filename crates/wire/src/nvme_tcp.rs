//! NVMe/TCP PDU headers (NVM Express TCP Transport Specification 1.0, section 3.6).

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::nvme::{Cqe, Sqe};

/// PDU types, the first byte of every PDU (figure 19).
pub mod pdu_type {
    /// Initialize Connection Request.
    pub const IC_REQ: u8 = 0x00;
    /// Initialize Connection Response.
    pub const IC_RESP: u8 = 0x01;
    /// Host to Controller Terminate Connection Request.
    pub const H2C_TERM_REQ: u8 = 0x02;
    /// Controller to Host Terminate Connection Request.
    pub const C2H_TERM_REQ: u8 = 0x03;
    /// Command Capsule.
    pub const CAPSULE_CMD: u8 = 0x04;
    /// Response Capsule.
    pub const CAPSULE_RESP: u8 = 0x05;
    /// Host to Controller Data Transfer.
    pub const H2C_DATA: u8 = 0x06;
    /// Controller to Host Data Transfer.
    pub const C2H_DATA: u8 = 0x07;
    /// Ready to Transfer.
    pub const R2T: u8 = 0x09;
}

/// Bits of the FLAGS byte (section 3.6.1).
pub mod flags {
    /// A header digest follows the header.
    pub const HDGST: u8 = 1 << 0;
    /// A data digest follows the data.
    pub const DDGST: u8 = 1 << 1;
    /// The last PDU of the transfer (H2CData, C2HData).
    pub const LAST_PDU: u8 = 1 << 2;
    /// The command succeeded and no response capsule follows (C2HData).
    pub const SUCCESS: u8 = 1 << 3;
}

/// Fatal Error Status, the FES field of the two termination requests (figures
/// 22 and 24). 05h means one thing each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Fes {
    /// Invalid PDU Header Field; FEI is the byte offset of the field.
    InvalidPduHeaderField = 0x01,
    /// PDU Sequence Error.
    PduSequenceError = 0x02,
    /// Header Digest Error; FEI is the digest received.
    HeaderDigestError = 0x03,
    /// Data Transfer Out of Range.
    DataTransferOutOfRange = 0x04,
    /// Controller to host: Data Transfer Limit Exceeded. Host to controller:
    /// R2T Limit Exceeded.
    LimitExceeded = 0x05,
    /// Unsupported Parameter; FEI is the byte offset of the field.
    UnsupportedParameter = 0x06,
}

/// What the peer's FES means, `None` if the standard does not say. `sent_by_host`:
/// it came in an H2CTermReq.
pub fn fes_name(fes: u16, sent_by_host: bool) -> Option<&'static str> {
    Some(match fes {
        0x01 => "Invalid PDU Header Field",
        0x02 => "PDU Sequence Error",
        0x03 => "Header Digest Error",
        0x04 => "Data Transfer Out of Range",
        0x05 if sent_by_host => "R2T Limit Exceeded",
        0x05 => "Data Transfer Limit Exceeded",
        0x06 => "Unsupported Parameter",
        _ => return None,
    })
}

/// Common header (CH), the first 8 bytes of every PDU (section 3.6.1).
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct CommonHeader {
    /// PDU type.
    pub pdu_type: u8,
    /// FLAGS.
    pub flags: u8,
    /// Header length in bytes, without the digest.
    pub hlen: u8,
    /// Where the data begins, from the start of the PDU; 0 without data.
    pub pdo: u8,
    /// Length of the whole PDU in bytes.
    pub plen: U32,
}

macro_rules! header {
    ($(#[$doc:meta])* $name:ident, $size:literal, {$($(#[$field_doc:meta])* $field:ident: $ty:ty = $offset:literal,)*}) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
        )]
        #[repr(C)]
        pub struct $name {
            /// Common header.
            pub ch: CommonHeader,
            $($(#[$field_doc])* pub $field: $ty,)*
        }
        impl $name {
            /// HLEN of this PDU.
            pub const HLEN: u8 = $size;
        }
        const _: () = {
            assert!(core::mem::size_of::<$name>() == $size);
            $(assert!(core::mem::offset_of!($name, $field) == $offset);)*
        };
    };
}

header! {
    /// ICReq (section 3.6.2.2).
    IcReq, 128, {
        /// PDU format version: 0.
        pfv: U16 = 8,
        /// Host PDU data alignment: controller data begins at a multiple of
        /// `(hpda + 1) * 4` bytes; 0 to 31.
        hpda: u8 = 10,
        /// Digests that the host wants: [`DGST_HEADER`], [`DGST_DATA`].
        dgst: u8 = 11,
        /// R2Ts that the host takes at once for a command, 0's based.
        maxr2t: U32 = 12,
        /// Reserved.
        reserved16: [u8; 112] = 16,
    }
}

header! {
    /// ICResp (section 3.6.2.3).
    IcResp, 128, {
        /// PDU format version: 0.
        pfv: U16 = 8,
        /// Controller PDU data alignment, like HPDA.
        cpda: u8 = 10,
        /// Digests in use.
        dgst: u8 = 11,
        /// Most data bytes in an H2CData PDU; at least 4096, a multiple of 4.
        maxh2cdata: U32 = 12,
        /// Reserved.
        reserved16: [u8; 112] = 16,
    }
}

header! {
    /// H2CTermReq and C2HTermReq (sections 3.6.2.4 and 3.6.2.5). The header of
    /// the PDU in error follows as data, up to 128 bytes.
    TermReq, 24, {
        /// Fatal Error Status, see [`Fes`].
        fes: U16 = 8,
        /// Fatal Error Information.
        fei: U32 = 10,
        /// Reserved.
        reserved14: [u8; 10] = 14,
    }
}

header! {
    /// CapsuleCmd (section 3.6.2.6).
    CapsuleCmd, 72, {
        /// Submission queue entry.
        sqe: Sqe = 8,
    }
}

header! {
    /// CapsuleResp (section 3.6.2.7).
    CapsuleResp, 24, {
        /// Completion queue entry.
        cqe: Cqe = 8,
    }
}

header! {
    /// H2CData and C2HData (sections 3.6.2.8 and 3.6.2.9).
    Data, 24, {
        /// CID of the command.
        cccid: U16 = 8,
        /// Transfer tag of the R2T; reserved in C2HData.
        ttag: U16 = 10,
        /// First byte, from the start of the command's data.
        datao: U32 = 12,
        /// Bytes.
        datal: U32 = 16,
        /// Reserved.
        reserved20: U32 = 20,
    }
}

header! {
    /// R2T (section 3.6.2.10).
    R2t, 24, {
        /// CID of the command.
        cccid: U16 = 8,
        /// Transfer tag, to come back in H2CData.
        ttag: U16 = 10,
        /// First byte asked for, from the start of the command's data.
        r2to: U32 = 12,
        /// Bytes asked for.
        r2tl: U32 = 16,
        /// Reserved.
        reserved20: U32 = 20,
    }
}

const _: () = assert!(core::mem::size_of::<CommonHeader>() == 8);

/// DGST bit 0 of ICReq and ICResp: header digests.
pub const DGST_HEADER: u8 = 1 << 0;
/// DGST bit 1 of ICReq and ICResp: data digests.
pub const DGST_DATA: u8 = 1 << 1;
/// Bytes of a header or data digest.
pub const DIGEST_LEN: usize = 4;
/// Largest HPDA and CPDA.
pub const PDA_MAX: u8 = 31;
/// Most bytes of an erroneous PDU's header in a termination request.
pub const TERM_DATA_MAX: usize = 128;
/// Least MAXH2CDATA that a controller may offer.
pub const MAXH2CDATA_MIN: u32 = 4096;
/// In-capsule data that every Admin Queue takes (section 3.3.1).
pub const ADMIN_IN_CAPSULE_MAX: u32 = 8192;

impl CommonHeader {
    /// A header of a PDU without data or digests.
    pub const fn new(pdu_type: u8, hlen: u8) -> CommonHeader {
        CommonHeader {
            pdu_type,
            flags: 0,
            hlen,
            pdo: 0,
            plen: U32::new(hlen as u32),
        }
    }
}

impl TermReq {
    /// The termination request of `pdu_type` and the bytes of the PDU in error
    /// that belong behind it: at most 128.
    pub fn new(pdu_type: u8, fes: Fes, fei: u32, offender: &[u8]) -> (TermReq, &[u8]) {
        let data = &offender[..offender.len().min(TERM_DATA_MAX)];
        let mut ch = CommonHeader::new(pdu_type, TermReq::HLEN);
        ch.plen = U32::new(u32::from(TermReq::HLEN) + data.len() as u32);
        (
            TermReq {
                ch,
                fes: U16::new(fes as u16),
                fei: U32::new(fei),
                reserved14: [0; 10],
            },
            data,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn term_req_carries_the_offending_header() {
        let offender = [0xaa; 200];
        let (term, data) = TermReq::new(
            pdu_type::C2H_TERM_REQ,
            Fes::InvalidPduHeaderField,
            4,
            &offender,
        );
        assert_eq!(data.len(), 128);
        assert_eq!(
            term.as_bytes()[..14],
            [3, 0, 24, 0, 152, 0, 0, 0, 1, 0, 4, 0, 0, 0]
        );
        assert_eq!(term.as_bytes()[14..], [0; 10]);
        let (term, data) = TermReq::new(pdu_type::H2C_TERM_REQ, Fes::LimitExceeded, 0, &[1, 2]);
        assert_eq!((term.ch.plen.get(), data), (26, &[1u8, 2][..]));
    }

    #[test]
    fn every_fes_has_a_name() {
        let named = |host| (0..=7).map(move |fes| fes_name(fes, host).is_some());
        for host in [false, true] {
            let expected = [false, true, true, true, true, true, true, false];
            assert!(named(host).eq(expected));
        }
        assert_ne!(fes_name(5, true), fes_name(5, false), "one thing each way");
    }
}
