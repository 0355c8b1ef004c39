//! NBD: the fixed newstyle handshake and the transmission phase (the NBD protocol,
//! `doc/proto.md` of NetworkBlockDevice/nbd; extended headers are its branch
//! `extension-ext-header`); all big endian.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The port of NBD (section "Newstyle negotiation").
pub const NBD_PORT: u16 = 10809;

/// The first magic of a server: `NBDMAGIC`.
pub const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// The second, and that of every option of a client: `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// The magic of every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// Magics of the transmission phase.
pub mod nbd_magic {
    /// NBD_REQUEST_MAGIC.
    pub const REQUEST: u32 = 0x2560_9513;
    /// NBD_SIMPLE_REPLY_MAGIC.
    pub const SIMPLE_REPLY: u32 = 0x6744_6698;
    /// NBD_STRUCTURED_REPLY_MAGIC.
    pub const STRUCTURED_REPLY: u32 = 0x668e_33ef;
    /// NBD_EXTENDED_REQUEST_MAGIC.
    pub const EXTENDED_REQUEST: u32 = 0x21e4_1c71;
    /// NBD_EXTENDED_REPLY_MAGIC.
    pub const EXTENDED_REPLY: u32 = 0x6e8a_278c;
}

/// Handshake flags of a server, and the client flags of the same bits.
pub mod handshake_flags {
    /// NBD_FLAG_FIXED_NEWSTYLE, NBD_FLAG_C_FIXED_NEWSTYLE.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// NBD_FLAG_NO_ZEROES, NBD_FLAG_C_NO_ZEROES.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Transmission flags.
pub mod transmission_flags {
    /// NBD_FLAG_HAS_FLAGS: always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// NBD_FLAG_READ_ONLY.
    pub const READ_ONLY: u16 = 1 << 1;
    /// NBD_FLAG_SEND_FLUSH.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// NBD_FLAG_SEND_FUA.
    pub const SEND_FUA: u16 = 1 << 3;
    /// NBD_FLAG_SEND_TRIM.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// NBD_FLAG_SEND_WRITE_ZEROES.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// NBD_FLAG_SEND_DF.
    pub const SEND_DF: u16 = 1 << 7;
    /// NBD_FLAG_CAN_MULTI_CONN.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// NBD_FLAG_SEND_CACHE.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// NBD_FLAG_SEND_FAST_ZERO.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
    /// NBD_FLAG_BLOCK_STATUS_PAYLOAD.
    pub const BLOCK_STATUS_PAYLOAD: u16 = 1 << 12;
}

/// Options of the handshake.
pub mod nbd_option {
    /// NBD_OPT_EXPORT_NAME.
    pub const EXPORT_NAME: u32 = 1;
    /// NBD_OPT_ABORT.
    pub const ABORT: u32 = 2;
    /// NBD_OPT_LIST.
    pub const LIST: u32 = 3;
    /// NBD_OPT_STARTTLS.
    pub const STARTTLS: u32 = 5;
    /// NBD_OPT_INFO.
    pub const INFO: u32 = 6;
    /// NBD_OPT_GO.
    pub const GO: u32 = 7;
    /// NBD_OPT_STRUCTURED_REPLY.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// NBD_OPT_LIST_META_CONTEXT.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// NBD_OPT_SET_META_CONTEXT.
    pub const SET_META_CONTEXT: u32 = 10;
    /// NBD_OPT_EXTENDED_HEADERS.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Types of replies to options.
pub mod option_reply {
    /// NBD_REP_ACK.
    pub const ACK: u32 = 1;
    /// NBD_REP_SERVER.
    pub const SERVER: u32 = 2;
    /// NBD_REP_INFO.
    pub const INFO: u32 = 3;
    /// NBD_REP_META_CONTEXT.
    pub const META_CONTEXT: u32 = 4;
    /// NBD_REP_ERR_UNSUP.
    pub const ERR_UNSUP: u32 = 1 << 31 | 1;
    /// NBD_REP_ERR_POLICY.
    pub const ERR_POLICY: u32 = 1 << 31 | 2;
    /// NBD_REP_ERR_INVALID.
    pub const ERR_INVALID: u32 = 1 << 31 | 3;
    /// NBD_REP_ERR_TLS_REQD.
    pub const ERR_TLS_REQD: u32 = 1 << 31 | 5;
    /// NBD_REP_ERR_UNKNOWN.
    pub const ERR_UNKNOWN: u32 = 1 << 31 | 6;
    /// NBD_REP_ERR_SHUTDOWN.
    pub const ERR_SHUTDOWN: u32 = 1 << 31 | 7;
    /// NBD_REP_ERR_TOO_BIG.
    pub const ERR_TOO_BIG: u32 = 1 << 31 | 9;
    /// NBD_REP_ERR_EXT_HEADER_REQD.
    pub const ERR_EXT_HEADER_REQD: u32 = 1 << 31 | 10;
}

/// Information types of [`option_reply::INFO`].
pub mod info_type {
    /// NBD_INFO_EXPORT.
    pub const EXPORT: u16 = 0;
    /// NBD_INFO_NAME.
    pub const NAME: u16 = 1;
    /// NBD_INFO_DESCRIPTION.
    pub const DESCRIPTION: u16 = 2;
    /// NBD_INFO_BLOCK_SIZE.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Types of requests.
pub mod request_type {
    /// NBD_CMD_READ.
    pub const READ: u16 = 0;
    /// NBD_CMD_WRITE.
    pub const WRITE: u16 = 1;
    /// NBD_CMD_DISC.
    pub const DISC: u16 = 2;
    /// NBD_CMD_FLUSH.
    pub const FLUSH: u16 = 3;
    /// NBD_CMD_TRIM.
    pub const TRIM: u16 = 4;
    /// NBD_CMD_CACHE.
    pub const CACHE: u16 = 5;
    /// NBD_CMD_WRITE_ZEROES.
    pub const WRITE_ZEROES: u16 = 6;
    /// NBD_CMD_BLOCK_STATUS.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Command flags.
pub mod command_flags {
    /// NBD_CMD_FLAG_FUA.
    pub const FUA: u16 = 1 << 0;
    /// NBD_CMD_FLAG_NO_HOLE.
    pub const NO_HOLE: u16 = 1 << 1;
    /// NBD_CMD_FLAG_DF.
    pub const DF: u16 = 1 << 2;
    /// NBD_CMD_FLAG_REQ_ONE.
    pub const REQ_ONE: u16 = 1 << 3;
    /// NBD_CMD_FLAG_FAST_ZERO.
    pub const FAST_ZERO: u16 = 1 << 4;
    /// NBD_CMD_FLAG_PAYLOAD_LEN.
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Types of chunks of structured and extended replies.
pub mod reply_type {
    /// NBD_REPLY_TYPE_NONE.
    pub const NONE: u16 = 0;
    /// NBD_REPLY_TYPE_OFFSET_DATA.
    pub const OFFSET_DATA: u16 = 1;
    /// NBD_REPLY_TYPE_BLOCK_STATUS.
    pub const BLOCK_STATUS: u16 = 5;
    /// NBD_REPLY_TYPE_BLOCK_STATUS_EXT.
    pub const BLOCK_STATUS_EXT: u16 = 6;
    /// NBD_REPLY_TYPE_ERROR.
    pub const ERROR: u16 = 1 << 15 | 1;
}

/// NBD_REPLY_FLAG_DONE: the last chunk of a reply.
pub const REPLY_DONE: u16 = 1 << 0;

/// Error values.
pub mod nbd_error {
    /// NBD_EPERM.
    pub const EPERM: u32 = 1;
    /// NBD_EIO.
    pub const EIO: u32 = 5;
    /// NBD_ENOMEM.
    pub const ENOMEM: u32 = 12;
    /// NBD_EINVAL.
    pub const EINVAL: u32 = 22;
    /// NBD_ENOSPC.
    pub const ENOSPC: u32 = 28;
    /// NBD_EOVERFLOW.
    pub const EOVERFLOW: u32 = 75;
    /// NBD_ENOTSUP.
    pub const ENOTSUP: u32 = 95;
    /// NBD_ESHUTDOWN.
    pub const ESHUTDOWN: u32 = 108;
}

/// Flags of `base:allocation`.
pub mod allocation {
    /// NBD_STATE_HOLE.
    pub const HOLE: u32 = 1 << 0;
    /// NBD_STATE_ZERO.
    pub const ZERO: u32 = 1 << 1;
}

/// Flags of `qemu:dirty-bitmap:NAME` (`docs/interop/nbd.txt` of QEMU).
pub mod dirty_bitmap {
    /// NBD_STATE_DIRTY.
    pub const DIRTY: u32 = 1 << 0;
}

/// Bytes of a string at most (section "Conventions").
pub const STRING_BYTES_MAX: usize = 4096;

/// Zeros behind the answer to NBD_OPT_EXPORT_NAME, unless both sides do without.
pub const EXPORT_ZEROES: usize = 124;

structure! {
    /// What a server begins with.
    Greeting, 18, {
        /// [`NBD_MAGIC`].
        magic: U64 = 0,
        /// [`OPTION_MAGIC`].
        option_magic: U64 = 8,
        /// [`handshake_flags`].
        flags: U16 = 16,
    }
}

structure! {
    /// The header of an option.
    OptionHeader, 16, {
        /// [`OPTION_MAGIC`].
        magic: U64 = 0,
        /// [`nbd_option`].
        option: U32 = 8,
        /// Bytes of its data.
        len: U32 = 12,
    }
}

structure! {
    /// The header of a reply to an option.
    OptionReply, 20, {
        /// [`OPTION_REPLY_MAGIC`].
        magic: U64 = 0,
        /// The option.
        option: U32 = 8,
        /// [`option_reply`].
        kind: U32 = 12,
        /// Bytes of its data.
        len: U32 = 16,
    }
}

structure! {
    /// The answer to NBD_OPT_EXPORT_NAME, before its zeros.
    ExportAnswer, 10, {
        /// Bytes of the export.
        size: U64 = 0,
        /// [`transmission_flags`].
        flags: U16 = 8,
    }
}

structure! {
    /// NBD_INFO_EXPORT.
    InfoExport, 12, {
        /// [`info_type::EXPORT`].
        kind: U16 = 0,
        /// Bytes of the export.
        size: U64 = 2,
        /// [`transmission_flags`].
        flags: U16 = 10,
    }
}

structure! {
    /// NBD_INFO_BLOCK_SIZE.
    InfoBlockSize, 14, {
        /// [`info_type::BLOCK_SIZE`].
        kind: U16 = 0,
        /// What offsets and lengths are multiples of.
        minimum: U32 = 2,
        /// What they are best multiples of.
        preferred: U32 = 6,
        /// Bytes of a payload at most.
        maximum: U32 = 10,
    }
}

structure! {
    /// A request, without extended headers.
    CompactRequest, 28, {
        /// [`nbd_magic::REQUEST`].
        magic: U32 = 0,
        /// [`command_flags`].
        flags: U16 = 4,
        /// [`request_type`].
        kind: U16 = 6,
        /// What its reply has too.
        cookie: U64 = 8,
        /// First byte.
        offset: U64 = 16,
        /// Bytes.
        len: U32 = 24,
    }
}

structure! {
    /// A request with an extended header.
    ExtendedRequest, 32, {
        /// [`nbd_magic::EXTENDED_REQUEST`].
        magic: U32 = 0,
        /// [`command_flags`].
        flags: U16 = 4,
        /// [`request_type`].
        kind: U16 = 6,
        /// What its reply has too.
        cookie: U64 = 8,
        /// First byte.
        offset: U64 = 16,
        /// Bytes: of its payload, if the flags say so, else of what it is about.
        len: U64 = 24,
    }
}

structure! {
    /// A simple reply.
    SimpleReply, 16, {
        /// [`nbd_magic::SIMPLE_REPLY`].
        magic: U32 = 0,
        /// [`nbd_error`]; 0 for success.
        error: U32 = 4,
        /// That of the request.
        cookie: U64 = 8,
    }
}

structure! {
    /// A chunk of a structured reply.
    StructuredReply, 20, {
        /// [`nbd_magic::STRUCTURED_REPLY`].
        magic: U32 = 0,
        /// [`REPLY_DONE`].
        flags: U16 = 4,
        /// [`reply_type`].
        kind: U16 = 6,
        /// That of the request.
        cookie: U64 = 8,
        /// Bytes that follow.
        len: U32 = 16,
    }
}

structure! {
    /// A chunk of an extended reply.
    ExtendedReply, 32, {
        /// [`nbd_magic::EXTENDED_REPLY`].
        magic: U32 = 0,
        /// [`REPLY_DONE`].
        flags: U16 = 4,
        /// [`reply_type`].
        kind: U16 = 6,
        /// That of the request.
        cookie: U64 = 8,
        /// That of the request.
        offset: U64 = 16,
        /// Bytes that follow.
        len: U64 = 24,
    }
}

structure! {
    /// What a range of an export is, where headers are not extended.
    BlockDescriptor, 8, {
        /// Bytes.
        len: U32 = 0,
        /// What the context says of them.
        status: U32 = 4,
    }
}

structure! {
    /// The same where they are.
    ExtendedDescriptor, 16, {
        /// Bytes.
        len: U64 = 0,
        /// What the context says of them.
        status: U64 = 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magics_are_the_words_that_they_are_called_by() {
        assert_eq!(&NBD_MAGIC.to_be_bytes(), b"NBDMAGIC");
        assert_eq!(&OPTION_MAGIC.to_be_bytes(), b"IHAVEOPT");
    }

    #[test]
    fn requests_have_their_fields_where_the_protocol_has_them() {
        let compact = CompactRequest {
            magic: nbd_magic::REQUEST.into(),
            flags: 0x0102.into(),
            kind: request_type::BLOCK_STATUS.into(),
            cookie: 0x1112_1314_1516_1718.into(),
            offset: 0x2122_2324_2526_2728.into(),
            len: 0x3132_3334.into(),
        };
        let mut bytes = vec![0x25, 0x60, 0x95, 0x13, 1, 2, 0, 7];
        bytes.extend(0x11..=0x18);
        bytes.extend(0x21..=0x28);
        bytes.extend(0x31..=0x34);
        assert_eq!(compact.as_bytes(), bytes);
        let extended = ExtendedRequest {
            magic: nbd_magic::EXTENDED_REQUEST.into(),
            flags: compact.flags,
            kind: compact.kind,
            cookie: compact.cookie,
            offset: compact.offset,
            len: 0x3132_3334_3536_3738.into(),
        };
        bytes[..4].copy_from_slice(&[0x21, 0xe4, 0x1c, 0x71]);
        bytes.extend(0x35..=0x38);
        assert_eq!(extended.as_bytes(), bytes);
    }
}
