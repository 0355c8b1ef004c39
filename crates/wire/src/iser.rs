//! iSER: what stands before an iSCSI PDU in a Send and the Hello messages (RFC 7145, section 9),
//! and the private data of connections, which is InfiniBand's (annex A12) and which Linux sends on
//! iWARP too; all big endian.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of an iSER header: of all messages.
pub const ISER_HEADER_LEN: usize = 28;

/// The first byte of a message: its opcode, and flags that mean what the opcode says.
pub mod iser_first {
    /// The opcode.
    pub const OPCODE_MASK: u8 = 0xf0;
    /// An iSCSI PDU follows the header.
    pub const CONTROL: u8 = 0x10;
    /// Hello.
    pub const HELLO: u8 = 0x20;
    /// HelloReply.
    pub const HELLO_REPLY: u8 = 0x30;
    /// WSV: there is a Write STag (of [`CONTROL`]).
    pub const WRITE_STAG: u8 = 0x08;
    /// RSV: there is a Read STag (of [`CONTROL`]).
    pub const READ_STAG: u8 = 0x04;
    /// REJ: the target ends the connection (of [`HELLO_REPLY`]).
    pub const REJECT: u8 = 0x01;
}

/// The version of iSER in Hello messages.
pub const ISER_VERSION: u8 = 10;

/// Bits of [`IserCm::flags`].
pub mod iser_cm_flags {
    /// The end does without zero-based Tagged Offsets: headers have base offsets.
    pub const NO_ZERO_BASED: u8 = 0x80;
    /// The end does without Sends that invalidate.
    pub const NO_SEND_INVALIDATE: u8 = 0x40;
}

structure! {
    /// The header of an iSCSI control-type PDU, with the memory of the initiator that its
    /// command reads or writes.
    IserHeader, 28, {
        /// [`iser_first`].
        first: u8 = 0,
        /// Reserved.
        reserved1: [u8; 3] = 1,
        /// The STag that the data of a write is read from.
        write_stag: U32 = 4,
        /// Tagged Offset of the first byte there.
        write_base: U64 = 8,
        /// The STag that the data of a read is written to.
        read_stag: U32 = 16,
        /// Tagged Offset of the first byte there.
        read_base: U64 = 20,
    }
}

structure! {
    /// Hello of an initiator, and HelloReply of a target.
    IserHello, 28, {
        /// [`iser_first`].
        first: u8 = 0,
        /// The highest version in the high bits; in the low ones the lowest, of a reply the
        /// current one.
        versions: u8 = 1,
        /// RDMA Reads at a time: those that the initiator takes, or that the target will have.
        reads: U16 = 2,
        /// Reserved.
        reserved4: [u8; 24] = 4,
    }
}

structure! {
    /// Private data of either end.
    IserCm, 4, {
        /// [`iser_cm_flags`].
        flags: u8 = 0,
        /// Reserved.
        reserved1: [u8; 3] = 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_of_a_command_has_its_stags_where_the_standard_has_them() {
        let header = IserHeader {
            first: iser_first::CONTROL | iser_first::WRITE_STAG | iser_first::READ_STAG,
            write_stag: 0x0102_0304.into(),
            write_base: 0x1112_1314_1516_1718.into(),
            read_stag: 0x2122_2324.into(),
            read_base: 0x3132_3334_3536_3738.into(),
            ..IserHeader::default()
        };
        let mut bytes = vec![0x1c, 0, 0, 0, 1, 2, 3, 4];
        bytes.extend(0x11..=0x18);
        bytes.extend(0x21..=0x24);
        bytes.extend(0x31..=0x38);
        assert_eq!(header.as_bytes(), bytes);
    }
}
