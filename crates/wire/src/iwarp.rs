//! iWARP: frames and headers of MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and RDMAP
//! (RFC 5040), with the error codes of all three (RFC 6580).

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

macro_rules! header {
    ($(#[$doc:meta])* $name:ident, $size:literal, {$($(#[$field_doc:meta])* $field:ident: $ty:ty = $offset:literal,)*}) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
        )]
        #[repr(C)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $ty,)*
        }
        impl $name {
            /// Bytes of it.
            pub const LEN: usize = $size;
        }
        const _: () = {
            assert!(core::mem::size_of::<$name>() == $size);
            $(assert!(core::mem::offset_of!($name, $field) == $offset);)*
        };
    };
}

header! {
    /// What an MPA Request Frame and an MPA Reply Frame begin with (RFC 5044, section
    /// 7.1.1). Private data follows, of an enhanced frame behind [`MpaEnhanced`].
    MpaFrame, 20, {
        /// [`MPA_REQUEST_KEY`] or [`MPA_REPLY_KEY`].
        key: [u8; 16] = 0,
        /// Bits of [`mpa_flags`].
        flags: u8 = 16,
        /// Revision of MPA: 1, or 2 with RFC 6581.
        revision: u8 = 17,
        /// PD_Length: bytes that follow, [`PRIVATE_DATA_MAX`] at most.
        private_data_len: U16 = 18,
    }
}

header! {
    /// What stands before the private data of an enhanced frame (RFC 6581).
    MpaEnhanced, 4, {
        /// [`PEER_TO_PEER`], [`RTR_FPDU`], and the sender's IRD in [`READ_DEPTH_MASK`].
        ird: U16 = 0,
        /// [`RTR_WRITE`], [`RTR_READ`], and the sender's ORD in [`READ_DEPTH_MASK`].
        ord: U16 = 2,
    }
}

header! {
    /// The header of an FPDU with a tagged DDP segment (RFC 5044, section 4.1; RFC 5041,
    /// section 4.2).
    TaggedFpdu, 16, {
        /// ULPDU_Length: bytes behind this field, padding and CRC excluded.
        ulpdu_len: U16 = 0,
        /// Bits of [`ddp_control`].
        ddp: u8 = 2,
        /// RDMAP's version and [`opcode`].
        rdmap: u8 = 3,
        /// STag of the data sink.
        stag: U32 = 4,
        /// Tagged Offset of the first byte.
        to: U64 = 8,
    }
}

header! {
    /// The header of an FPDU with an untagged DDP segment (RFC 5044, section 4.1; RFC 5041,
    /// section 4.3).
    UntaggedFpdu, 20, {
        /// ULPDU_Length: bytes behind this field, padding and CRC excluded.
        ulpdu_len: U16 = 0,
        /// Bits of [`ddp_control`].
        ddp: u8 = 2,
        /// RDMAP's version and [`opcode`].
        rdmap: u8 = 3,
        /// Of a Send with Invalidate the STag to invalidate (RFC 5040, section 4.1); else 0.
        invalidate_stag: U32 = 4,
        /// Queue Number: one of [`queue`].
        qn: U32 = 8,
        /// Message Sequence Number, from 1 in each queue.
        msn: U32 = 12,
        /// Message Offset of the first byte.
        mo: U32 = 16,
    }
}

header! {
    /// RDMA Read Request (RFC 5040, section 4.4).
    ReadRequest, 28, {
        /// STag that the data goes to.
        sink_stag: U32 = 0,
        /// Tagged Offset of the first byte there.
        sink_to: U64 = 4,
        /// Bytes.
        size: U32 = 12,
        /// STag that the data is read from.
        source_stag: U32 = 16,
        /// Tagged Offset of the first byte there.
        source_to: U64 = 20,
    }
}

header! {
    /// The Terminate Control field (RFC 5040, section 4.8). As its bits say, the ULPDU_Length
    /// and the headers of the segment in error follow.
    TerminateControl, 4, {
        /// Layer in the upper four bits, error type in the lower four.
        layer_etype: u8 = 0,
        /// Error code.
        code: u8 = 1,
        /// Bits of [`terminate_flags`].
        flags: u8 = 2,
        /// Reserved.
        reserved: u8 = 3,
    }
}

/// Begins a Request Frame.
pub const MPA_REQUEST_KEY: &[u8; 16] = b"MPA ID Req Frame";
/// Begins a Reply Frame.
pub const MPA_REPLY_KEY: &[u8; 16] = b"MPA ID Rep Frame";
/// Most private data of a frame, [`MpaEnhanced`] included.
pub const PRIVATE_DATA_MAX: usize = 512;
/// The highest revision of MPA.
pub const MPA_REVISION_MAX: u8 = 2;

/// FLAGS of a Request or Reply Frame (RFC 5044, section 7.1.1; RFC 6581).
pub mod mpa_flags {
    /// M: the sender wants markers in what it receives.
    pub const MARKERS: u8 = 0x80;
    /// C: the sender wants CRCs.
    pub const CRC: u8 = 0x40;
    /// R: the connection is rejected; in a Reply alone.
    pub const REJECT: u8 = 0x20;
    /// S: the frame is enhanced; of revision 2 alone.
    pub const ENHANCED: u8 = 0x10;
}

/// A: the connection is peer to peer, the first FPDU of the initiator is an RTR.
pub const PEER_TO_PEER: u16 = 0x8000;
/// B: an FPDU of length 0 may be the RTR.
pub const RTR_FPDU: u16 = 0x4000;
/// C: an RDMA Write of length 0 may be the RTR.
pub const RTR_WRITE: u16 = 0x8000;
/// D: an RDMA Read of length 0 may be the RTR.
pub const RTR_READ: u16 = 0x4000;
/// The bits of IRD and ORD.
pub const READ_DEPTH_MASK: u16 = 0x3fff;
/// This IRD or ORD is not negotiated here but by the upper layers.
pub const READ_DEPTH_UNSET: u16 = 0x3fff;

/// DDP's control field (RFC 5041, section 4.1).
pub mod ddp_control {
    /// T: the segment is tagged.
    pub const TAGGED: u8 = 0x80;
    /// L: the segment is the last of its message.
    pub const LAST: u8 = 0x40;
    /// DV: version.
    pub const VERSION_MASK: u8 = 0x03;
    /// The version of RFC 5041.
    pub const VERSION: u8 = 1;
}

/// RDMAP's control field (RFC 5040, section 4.1).
pub mod rdmap_control {
    /// RV: version.
    pub const VERSION_MASK: u8 = 0xc0;
    /// The version of RFC 5040.
    pub const VERSION: u8 = 0x40;
    /// The opcode.
    pub const OPCODE_MASK: u8 = 0x0f;
}

/// RDMAP's opcodes (RFC 5040, section 4.1).
pub mod opcode {
    /// RDMA Write: tagged.
    pub const WRITE: u8 = 0;
    /// RDMA Read Request: untagged, queue 1.
    pub const READ_REQUEST: u8 = 1;
    /// RDMA Read Response: tagged.
    pub const READ_RESPONSE: u8 = 2;
    /// Send: untagged, queue 0.
    pub const SEND: u8 = 3;
    /// Send with Invalidate.
    pub const SEND_INVALIDATE: u8 = 4;
    /// Send with Solicited Event.
    pub const SEND_SOLICITED: u8 = 5;
    /// Send with Solicited Event and Invalidate.
    pub const SEND_SOLICITED_INVALIDATE: u8 = 6;
    /// Terminate: untagged, queue 2.
    pub const TERMINATE: u8 = 7;
}

/// Queue Numbers of untagged messages (RFC 5040, section 4.2).
pub mod queue {
    /// Sends.
    pub const SEND: u32 = 0;
    /// RDMA Read Requests.
    pub const READ_REQUEST: u32 = 1;
    /// Terminates.
    pub const TERMINATE: u32 = 2;
}

/// HdrCt: which headers of the segment in error a Terminate has (RFC 5040, section 4.8).
pub mod terminate_flags {
    /// M: its ULPDU_Length.
    pub const LENGTH: u8 = 0x80;
    /// D: its DDP header.
    pub const DDP: u8 = 0x40;
    /// R: its RDMAP header, that of an RDMA Read Request.
    pub const RDMAP: u8 = 0x20;
}

/// Why a stream ends: layer, error type and error code of a Terminate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminateCode {
    /// 0: RDMAP. 1: DDP. 2: MPA.
    pub layer: u8,
    /// Error type.
    pub etype: u8,
    /// Error code.
    pub code: u8,
}

macro_rules! codes {
    ($($name:ident = $layer:literal, $etype:literal, $code:literal, $words:literal;)*) => {
        impl TerminateCode {
            $(
                #[doc = $words]
                pub const $name: TerminateCode = TerminateCode {
                    layer: $layer,
                    etype: $etype,
                    code: $code,
                };
            )*

            /// What it means, `None` if no standard says.
            pub fn name(self) -> Option<&'static str> {
                // A local catastrophic error of RDMAP has no code: any value may stand there.
                let has_code = (self.layer, self.etype) != (0, 0);
                match (self.layer, self.etype, if has_code { self.code } else { 0 }) {
                    $(($layer, $etype, $code) => Some($words),)*
                    _ => None,
                }
            }
        }
    };
}

// RFC 5040, section 4.8; RFC 5041, section 7.2; RFC 5044, section 8; RFC 6581.
codes! {
    RDMAP_CATASTROPHIC = 0, 0, 0x00, "RDMAP: local catastrophic error";
    SOURCE_STAG = 0, 1, 0x00, "RDMAP: invalid STag";
    SOURCE_BOUNDS = 0, 1, 0x01, "RDMAP: base or bounds violation";
    ACCESS_RIGHTS = 0, 1, 0x02, "RDMAP: access rights violation";
    SOURCE_NOT_ASSOCIATED = 0, 1, 0x03, "RDMAP: STag not associated with the stream";
    SOURCE_WRAP = 0, 1, 0x04, "RDMAP: Tagged Offset wraps";
    STAG_PROTECTED = 0, 1, 0x09, "RDMAP: STag cannot be invalidated, by its protection";
    PROTECTION_UNSPECIFIED = 0, 1, 0xff, "RDMAP: unspecified protection error";
    RDMAP_VERSION = 0, 2, 0x05, "RDMAP: invalid version";
    UNEXPECTED_OPCODE = 0, 2, 0x06, "RDMAP: unexpected opcode";
    STREAM_CATASTROPHIC = 0, 2, 0x07, "RDMAP: catastrophic error of the stream";
    GLOBAL_CATASTROPHIC = 0, 2, 0x08, "RDMAP: catastrophic error, global";
    CANNOT_INVALIDATE = 0, 2, 0x09, "RDMAP: STag cannot be invalidated";
    UNSPECIFIED = 0, 2, 0xff, "RDMAP: unspecified error";
    DDP_CATASTROPHIC = 1, 0, 0x00, "DDP: local catastrophic error";
    SINK_STAG = 1, 1, 0x00, "DDP: invalid STag";
    SINK_BOUNDS = 1, 1, 0x01, "DDP: base or bounds violation";
    SINK_NOT_ASSOCIATED = 1, 1, 0x02, "DDP: STag not associated with the stream";
    SINK_WRAP = 1, 1, 0x03, "DDP: Tagged Offset wraps";
    TAGGED_VERSION = 1, 1, 0x04, "DDP: invalid version of a tagged segment";
    QUEUE_NUMBER = 1, 2, 0x01, "DDP: invalid Queue Number";
    NO_BUFFER = 1, 2, 0x02, "DDP: invalid MSN, no buffer available";
    MSN_RANGE = 1, 2, 0x03, "DDP: invalid MSN, out of range";
    MESSAGE_OFFSET = 1, 2, 0x04, "DDP: invalid Message Offset";
    MESSAGE_TOO_LONG = 1, 2, 0x05, "DDP: message too long for its buffer";
    UNTAGGED_VERSION = 1, 2, 0x06, "DDP: invalid version of an untagged segment";
    STREAM_LOST = 2, 0, 0x01, "MPA: TCP connection lost";
    CRC = 2, 0, 0x02, "MPA: CRC error";
    FPDU_START = 2, 0, 0x03, "MPA: marker and ULPDU_Length disagree";
    INVALID_FRAME = 2, 0, 0x04, "MPA: invalid Request or Reply Frame";
    MPA_CATASTROPHIC = 2, 0, 0x05, "MPA: local catastrophic error";
    INSUFFICIENT_IRD = 2, 0, 0x06, "MPA: insufficient IRD";
    NO_MATCHING_RTR = 2, 0, 0x07, "MPA: no matching RTR";
}

impl TerminateCode {
    /// Layer and error type as [`TerminateControl`] has them.
    pub const fn layer_etype(self) -> u8 {
        self.layer << 4 | self.etype
    }
}

impl From<TerminateControl> for TerminateCode {
    fn from(control: TerminateControl) -> TerminateCode {
        TerminateCode {
            layer: control.layer_etype >> 4,
            etype: control.layer_etype & 0x0f,
            code: control.code,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_lie_as_the_figures_of_the_standards_have_them() {
        let tagged = TaggedFpdu {
            ulpdu_len: 0x0102.into(),
            ddp: ddp_control::TAGGED | ddp_control::LAST | ddp_control::VERSION,
            rdmap: rdmap_control::VERSION | opcode::READ_RESPONSE,
            stag: 0x0304_0506.into(),
            to: 0x0708_090a_0b0c_0d0e.into(),
        };
        let bytes = [1, 2, 0xc1, 0x42, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
        assert_eq!(tagged.as_bytes(), bytes);
        let untagged = UntaggedFpdu {
            ulpdu_len: 18.into(),
            ddp: ddp_control::LAST | ddp_control::VERSION,
            rdmap: rdmap_control::VERSION | opcode::TERMINATE,
            invalidate_stag: 0.into(),
            qn: queue::TERMINATE.into(),
            msn: 1.into(),
            mo: 7.into(),
        };
        let bytes = [
            0, 18, 0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 7,
        ];
        assert_eq!(untagged.as_bytes(), bytes);
    }

    #[test]
    fn code_of_a_terminate_is_read_as_it_is_written() {
        let code = TerminateCode::MESSAGE_TOO_LONG;
        let control = TerminateControl {
            layer_etype: code.layer_etype(),
            code: code.code,
            flags: terminate_flags::LENGTH | terminate_flags::DDP,
            reserved: 0,
        };
        assert_eq!(control.as_bytes(), [0x12, 5, 0xc0, 0]);
        assert_eq!(TerminateCode::from(control), code);
        assert_eq!(code.name(), Some("DDP: message too long for its buffer"));
        let protected = TerminateControl {
            layer_etype: 0x01,
            code: 9,
            ..control
        };
        assert_eq!(
            TerminateCode::from(protected),
            TerminateCode::STAG_PROTECTED
        );
        let unknown = TerminateCode { code: 0x77, ..code };
        assert_eq!(unknown.name(), None);
        let catastrophic = TerminateCode {
            code: 0xff,
            ..TerminateCode::RDMAP_CATASTROPHIC
        };
        assert_eq!(catastrophic.name(), Some("RDMAP: local catastrophic error"));
    }
}
