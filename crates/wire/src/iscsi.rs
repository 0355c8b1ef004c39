//! iSCSI PDU headers and the numbers in them (RFC 7143, with the additions of
//! RFC 7144), all big endian.
//!
//! Every PDU begins with a Basic Header Segment of 48 bytes: [`Bhs`] is what
//! all of them share, the structures after it are the same bytes as one opcode
//! has them. `TotalAHSLength * 4` bytes of Additional Header Segments follow,
//! then the header digest if there is one, the data segment padded to a
//! multiple of 4, and the data digest, which covers the padding.

pub mod code;

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use code::{
    AsyncEvent, LoginStatus, LogoutReason, LogoutResponseCode, RejectReason, SnackType, Stage,
    TaskAttribute, TaskFunction, TaskResponse,
};

/// Bytes of a Basic Header Segment (section 11.2.1).
pub const BHS_LEN: usize = 48;
/// Bytes of a header or data digest (section 11.1).
pub const DIGEST_LEN: usize = 4;
/// Segments and digests are padded to multiples of this (section 11.1).
pub const PAD: usize = 4;
/// The most bytes that Additional Header Segments can have: TotalAHSLength
/// counts words in one byte.
pub const AHS_LEN_MAX: usize = 255 * 4;
/// The most bytes that a data segment can have: a 24-bit length.
pub const DATA_SEGMENT_LEN_MAX: u32 = (1 << 24) - 1;
/// The tag that means none: Initiator Task Tag, Target Transfer Tag, SNACK Tag
/// and Referenced Task Tag (section 11.2.1.8).
pub const TAG_NONE: u32 = 0xffff_ffff;
/// The protocol version of RFC 3720 and RFC 7143 (section 11.12.4).
pub const VERSION: u8 = 0x00;
/// The TCP port that IANA gave to iSCSI.
pub const PORT: u16 = 3260;
/// Bytes of the longest iSCSI name (section 4.2.7.2).
pub const NAME_LEN_MAX: usize = 223;

/// Bits of the first byte (section 11.2.1.1).
pub mod first {
    /// I: the request is immediate; only initiators set it.
    pub const IMMEDIATE: u8 = 1 << 6;
    /// The opcode.
    pub const OPCODE_MASK: u8 = 0x3f;
}

/// Opcodes (section 11.2.1.2).
pub mod opcode {
    /// NOP-Out.
    pub const NOP_OUT: u8 = 0x00;
    /// SCSI Command.
    pub const SCSI_COMMAND: u8 = 0x01;
    /// SCSI Task Management Function Request.
    pub const TASK_MANAGEMENT_REQUEST: u8 = 0x02;
    /// Login Request.
    pub const LOGIN_REQUEST: u8 = 0x03;
    /// Text Request.
    pub const TEXT_REQUEST: u8 = 0x04;
    /// SCSI Data-Out.
    pub const DATA_OUT: u8 = 0x05;
    /// Logout Request.
    pub const LOGOUT_REQUEST: u8 = 0x06;
    /// SNACK Request.
    pub const SNACK: u8 = 0x10;
    /// NOP-In.
    pub const NOP_IN: u8 = 0x20;
    /// SCSI Response.
    pub const SCSI_RESPONSE: u8 = 0x21;
    /// SCSI Task Management Function Response.
    pub const TASK_MANAGEMENT_RESPONSE: u8 = 0x22;
    /// Login Response.
    pub const LOGIN_RESPONSE: u8 = 0x23;
    /// Text Response.
    pub const TEXT_RESPONSE: u8 = 0x24;
    /// SCSI Data-In.
    pub const DATA_IN: u8 = 0x25;
    /// Logout Response.
    pub const LOGOUT_RESPONSE: u8 = 0x26;
    /// Ready To Transfer.
    pub const R2T: u8 = 0x31;
    /// Asynchronous Message.
    pub const ASYNC_MESSAGE: u8 = 0x32;
    /// Reject.
    pub const REJECT: u8 = 0x3f;
}

/// Bits of the second byte, which mean what the opcode says.
pub mod flags {
    /// F: the last PDU of a sequence; always set where there are no sequences.
    pub const FINAL: u8 = 1 << 7;
    /// R: the initiator expects data (SCSI Command).
    pub const READ: u8 = 1 << 6;
    /// W: the initiator sends data (SCSI Command).
    pub const WRITE: u8 = 1 << 5;
    /// ATTR: the task attribute (SCSI Command), see
    /// [`TaskAttribute`](super::TaskAttribute).
    pub const ATTRIBUTE_MASK: u8 = 0x07;
    /// A: acknowledge with a DataACK SNACK (Data-In).
    pub const ACKNOWLEDGE: u8 = 1 << 6;
    /// o: bidirectional read residual overflow (SCSI Response).
    pub const BIDI_OVERFLOW: u8 = 1 << 4;
    /// u: bidirectional read residual underflow (SCSI Response).
    pub const BIDI_UNDERFLOW: u8 = 1 << 3;
    /// O: residual overflow (SCSI Response, Data-In).
    pub const OVERFLOW: u8 = 1 << 2;
    /// U: residual underflow (SCSI Response, Data-In).
    pub const UNDERFLOW: u8 = 1 << 1;
    /// S: the PDU carries the status (Data-In).
    pub const STATUS: u8 = 1 << 0;
    /// T: transit to the next stage (Login).
    pub const TRANSIT: u8 = 1 << 7;
    /// C: the text goes on in the next PDU (Login, Text).
    pub const CONTINUE: u8 = 1 << 6;
    /// CSG, the current stage (Login), and how far left it stands.
    pub const CSG_MASK: u8 = 0x0c;
    /// How far left CSG stands.
    pub const CSG_SHIFT: u8 = 2;
    /// NSG, the next stage (Login).
    pub const NSG_MASK: u8 = 0x03;
    /// Function (Task Management Function Request) and Reason Code (Logout Request).
    pub const FUNCTION_MASK: u8 = 0x7f;
    /// Type (SNACK Request).
    pub const SNACK_TYPE_MASK: u8 = 0x0f;
}

/// An unsigned number of 24 bits, big endian.
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
pub struct U24([u8; 3]);

impl U24 {
    /// The number `value`.
    ///
    /// # Panics
    /// If it has more than 24 bits.
    #[inline]
    pub const fn new(value: u32) -> U24 {
        let [top, a, b, c] = value.to_be_bytes();
        assert!(top == 0, "24 bits");
        U24([a, b, c])
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u32 {
        let [a, b, c] = self.0;
        u32::from_be_bytes([0, a, b, c])
    }
}

/// `len` with the padding behind it.
#[inline]
pub const fn padded(len: u32) -> u32 {
    len.next_multiple_of(PAD as u32)
}

/// How far the serial number `a` stands before `b`, negative if behind:
/// RFC 1982 with 32 bits, as CmdSN, StatSN and DataSN count (section 4.2.2.1).
#[inline]
pub const fn serial_distance(a: u32, b: u32) -> i32 {
    b.wrapping_sub(a) as i32
}

macro_rules! pdu {
    ($(#[$doc:meta])* $name:ident = $opcode:expr,
     {$($(#[$early_doc:meta])* $early:ident: $early_ty:ty = $early_offset:literal,)*}
     {$($(#[$field_doc:meta])* $field:ident: $ty:ty = $offset:literal,)*}) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
        )]
        #[repr(C)]
        pub struct $name {
            /// The I bit and the opcode, see [`first`].
            pub first: u8,
            /// What the opcode says, see [`flags`].
            pub flags: u8,
            $($(#[$early_doc])* pub $early: $early_ty,)*
            /// Words of Additional Header Segments.
            pub total_ahs_length: u8,
            /// Bytes of the data segment, without padding.
            pub data_segment_length: U24,
            $($(#[$field_doc])* pub $field: $ty,)*
        }
        impl $name {
            /// Its opcode.
            pub const OPCODE: u8 = $opcode;

            /// All zeros but the opcode.
            #[inline]
            pub fn new() -> Self {
                Self { first: $opcode, ..Self::new_zeroed() }
            }
        }
        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }
        const _: () = {
            assert!(core::mem::size_of::<$name>() == BHS_LEN);
            $(assert!(core::mem::offset_of!($name, $early) == $early_offset);)*
            assert!(core::mem::offset_of!($name, total_ahs_length) == 4);
            assert!(core::mem::offset_of!($name, data_segment_length) == 5);
            $(assert!(core::mem::offset_of!($name, $field) == $offset);)*
        };
    };
}

/// What all PDUs share (section 11.2.1).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Bhs {
    /// The I bit and the opcode, see [`first`].
    pub first: u8,
    /// What the opcode says, see [`flags`].
    pub flags: u8,
    /// What the opcode says.
    pub specific2: [u8; 2],
    /// Words of Additional Header Segments.
    pub total_ahs_length: u8,
    /// Bytes of the data segment, without padding.
    pub data_segment_length: U24,
    /// Logical unit, or what the opcode says.
    pub lun: [u8; 8],
    /// Initiator Task Tag.
    pub itt: U32,
    /// What the opcode says: CmdSN at 24 and ExpStatSN at 28 in most requests,
    /// StatSN, ExpCmdSN and MaxCmdSN at 24, 28 and 32 in responses.
    pub specific20: [u8; 28],
}

const _: () = {
    assert!(core::mem::size_of::<Bhs>() == BHS_LEN);
    assert!(core::mem::offset_of!(Bhs, total_ahs_length) == 4);
    assert!(core::mem::offset_of!(Bhs, data_segment_length) == 5);
    assert!(core::mem::offset_of!(Bhs, lun) == 8);
    assert!(core::mem::offset_of!(Bhs, itt) == 16);
    assert!(core::mem::offset_of!(Bhs, specific20) == 20);
};

impl Bhs {
    /// The opcode.
    #[inline]
    pub const fn opcode(&self) -> u8 {
        self.first & first::OPCODE_MASK
    }

    /// Whether the I bit is set.
    #[inline]
    pub const fn is_immediate(&self) -> bool {
        self.first & first::IMMEDIATE != 0
    }

    /// Bytes of the Additional Header Segments.
    #[inline]
    pub const fn ahs_len(&self) -> usize {
        self.total_ahs_length as usize * 4
    }

    /// The same bytes as the PDU `T`, whose opcode it is or is taken for.
    #[inline]
    pub fn cast<T: FromBytes + KnownLayout + Immutable + Unaligned>(&self) -> &T {
        const { assert!(core::mem::size_of::<T>() == BHS_LEN) };
        T::ref_from_bytes(self.as_bytes()).expect("the sizes are equal")
    }
}

pdu! {
    /// SCSI Command (section 11.3).
    ScsiCommand = opcode::SCSI_COMMAND, {
        /// Command priority in bits 3:0, of initiators with iSCSIProtocolLevel 2
        /// (RFC 7144).
        priority: u8 = 2,
        /// Reserved.
        reserved3: u8 = 3,
    } {
        /// Logical unit.
        lun: [u8; 8] = 8,
        /// Initiator Task Tag.
        itt: U32 = 16,
        /// Expected Data Transfer Length in bytes; of the write where both R and
        /// W are set.
        expected_data_transfer_length: U32 = 20,
        /// CmdSN.
        cmd_sn: U32 = 24,
        /// ExpStatSN.
        exp_stat_sn: U32 = 28,
        /// Command descriptor block, its first 16 bytes.
        cdb: [u8; 16] = 32,
    }
}

pdu! {
    /// SCSI Response (section 11.4). Sense data is the data segment, behind its
    /// length in two bytes.
    ScsiResponse = opcode::SCSI_RESPONSE, {
        /// iSCSI service response: 0 completed at the target, 1 target failure.
        response: u8 = 2,
        /// SCSI status, if `response` is 0.
        status: u8 = 3,
    } {
        /// Status qualifier (RFC 7144).
        status_qualifier: U16 = 8,
        /// Reserved.
        reserved10: [u8; 6] = 10,
        /// Initiator Task Tag.
        itt: U32 = 16,
        /// SNACK Tag: what R-Data SNACK carried, else 0.
        snack_tag: U32 = 20,
        /// StatSN.
        stat_sn: U32 = 24,
        /// ExpCmdSN.
        exp_cmd_sn: U32 = 28,
        /// MaxCmdSN.
        max_cmd_sn: U32 = 32,
        /// R2T and Data-In PDUs that the target sent for the command.
        exp_data_sn: U32 = 36,
        /// Bidirectional read residual count, bytes.
        bidi_read_residual_count: U32 = 40,
        /// Residual count, bytes.
        residual_count: U32 = 44,
    }
}

/// Service response of a SCSI Response: completed at the target.
pub const RESPONSE_COMPLETED: u8 = 0x00;
/// Service response of a SCSI Response: target failure.
pub const RESPONSE_TARGET_FAILURE: u8 = 0x01;

pdu! {
    /// SCSI Task Management Function Request (section 11.5).
    TaskManagementRequest = opcode::TASK_MANAGEMENT_REQUEST, {
        /// Reserved.
        reserved2: [u8; 2] = 2,
    } {
        /// Logical unit, where the function concerns one.
        lun: [u8; 8] = 8,
        /// Initiator Task Tag.
        itt: U32 = 16,
        /// Referenced Task Tag: which task to abort, query or reassign.
        referenced_task_tag: U32 = 20,
        /// CmdSN.
        cmd_sn: U32 = 24,
        /// ExpStatSN.
        exp_stat_sn: U32 = 28,
        /// RefCmdSN: CmdSN of the task to abort.
        ref_cmd_sn: U32 = 32,
        /// ExpDataSN, for TASK REASSIGN.
        exp_data_sn: U32 = 36,
        /// Reserved.
        reserved40: [u8; 8] = 40,
    }
}

pdu! {
    /// SCSI Task Management Function Response (section 11.6).
    TaskManagementResponse = opcode::TASK_MANAGEMENT_RESPONSE, {
        /// Response, see [`TaskResponse`].
        response: u8 = 2,
        /// Reserved.
        reserved3: u8 = 3,
    } {
        /// Additional Response Information of QUERY ASYNCHRONOUS EVENT in its
        /// first three bytes (RFC 7144); else reserved.
        additional_response: [u8; 8] = 8,
        /// Initiator Task Tag.
        itt: U32 = 16,
        /// Reserved.
        reserved20: U32 = 20,
        /// StatSN.
        stat_sn: U32 = 24,
        /// ExpCmdSN.
        exp_cmd_sn: U32 = 28,
        /// MaxCmdSN.
        max_cmd_sn: U32 = 32,
        /// Reserved.
        reserved36: [u8; 12] = 36,
    }
}

pdu! {
    /// SCSI Data-Out (section 11.7).
    DataOut = opcode::DATA_OUT, {
        /// Reserved.
        reserved2: [u8; 2] = 2,
    } {
        /// Logical unit, where the Target Transfer Tag is not none.
        lun: [u8; 8] = 8,
        /// Initiator Task Tag.
        itt: U32 = 16,
        /// Target Transfer Tag of the R2T, [`TAG_NONE`] for unsolicited data.
        ttt: U32 = 20,
        /// Reserved.
        reserved24: U32 = 24,
        /// ExpStatSN.
        exp_stat_sn: U32 = 28,
        /// Reserved.
        reserved32: U32 = 32,
        /// DataSN, from 0 in each sequence.
        data_sn: U32 = 36,
        /// First byte, from the start of the command's data.
        buffer_offset: U32 = 40,
        /// Reserved.
        reserved44: U32 = 44,
    }
}

pdu! {
    /// SCSI Data-In (section 11.7).
    DataIn = opcode::DATA_IN, {
        /// Reserved.
        reserved2: u8 = 2,
        /// SCSI status, if S is set.
        status: u8 = 3,
    } {
        /// Logical unit, if A is set.
        lun: [u8; 8] = 8,
        /// Initiator Task Tag.
        itt: U32 = 16,
        /// Target Transfer Tag that a DataACK carries, if A is set; else
        /// [`TAG_NONE`].
        ttt: U32 = 20,
        /// StatSN, if S is set.
        stat_sn: U32 = 24,
        /// ExpCmdSN.
        exp_cmd_sn: U32 = 28,
        /// MaxCmdSN.
        max_cmd_sn: U32 = 32,
        /// DataSN, from 0 in each command, together with R2TSN.
        data_sn: U32 = 36,
        /// First byte, from the start of the command's data.
        buffer_offset: U32 = 40,
        /// Residual count in bytes, if S is set.
        residual_count: U32 = 44,
    }
}

pdu! {
    /// Ready To Transfer (section 11.8).
    R2t = opcode::R2T, {
        /// Reserved.
        reserved2: [u8; 2] = 2,
    } {
        /// Logical unit.
        lun: [u8; 8] = 8,
        /// Initiator Task Tag.
        itt: U32 = 16,
        /// Target Transfer Tag, to come back in Data-Out.
        ttt: U32 = 20,
        /// The next StatSN: an R2T uses none up.
        stat_sn: U32 = 24,
        /// ExpCmdSN.
        exp_cmd_sn: U32 = 28,
        /// MaxCmdSN.
        max_cmd_sn: U32 = 32,
        /// R2TSN, from 0 in each command, together with DataSN.
        r2t_sn: U32 = 36,
        /// First byte asked for, from the start of the command's data.
        buffer_offset: U32 = 40,
        /// Bytes asked for.
        desired_data_transfer_length: U32 = 44,
    }
}

pdu! {
    /// Asynchronous Message (section 11.9).
    AsyncMessage = opcode::ASYNC_MESSAGE, {
        /// Reserved.
        reserved2: [u8; 2] = 2,
    } {
        /// Logical unit, for the events that concern one.
        lun: [u8; 8] = 8,
        /// [`TAG_NONE`].
        itt: U32 = 16,
        /// Reserved.
        reserved20: U32 = 20,
        /// StatSN.
        stat_sn: U32 = 24,
        /// ExpCmdSN.
        exp_cmd_sn: U32 = 28,
        /// MaxCmdSN.
        max_cmd_sn: U32 = 32,
        /// AsyncEvent, see [`AsyncEvent`].
        async_event: u8 = 36,
        /// AsyncVCode of a vendor's event.
        async_vcode: u8 = 37,
        /// Parameter1: CID of the connection to be dropped.
        parameter1: U16 = 38,
        /// Parameter2: Time2Wait in seconds.
        parameter2: U16 = 40,
        /// Parameter3: Time2Retain, or the time to log out or to negotiate,
        /// seconds.
        parameter3: U16 = 42,
        /// Reserved.
        reserved44: U32 = 44,
    }
}

pdu! {
    /// Text Request (section 11.10).
    TextRequest = opcode::TEXT_REQUEST, {
        /// Reserved.
        reserved2: [u8; 2] = 2,
    } {
        /// Logical unit: what the Text Response carried.
        lun: [u8; 8] = 8,
        /// Initiator Task Tag.
        itt: U32 = 16,
        /// Target Transfer Tag of the response that this continues, else
        /// [`TAG_NONE`].
        ttt: U32 = 20,
        /// CmdSN.
        cmd_sn: U32 = 24,
        /// ExpStatSN.
        exp_stat_sn: U32 = 28,
        /// Reserved.
        reserved32: [u8; 16] = 32,
    }
}

pdu! {
    /// Text Response (section 11.11).
    TextResponse = opcode::TEXT_RESPONSE, {
        /// Reserved.
        reserved2: [u8; 2] = 2,
    } {
        /// Logical unit, to come back with the tag.
        lun: [u8; 8] = 8,
        /// Initiator Task Tag.
        itt: U32 = 16,
        /// Target Transfer Tag if the exchange goes on, else [`TAG_NONE`].
        ttt: U32 = 20,
        /// StatSN.
        stat_sn: U32 = 24,
        /// ExpCmdSN.
        exp_cmd_sn: U32 = 28,
        /// MaxCmdSN.
        max_cmd_sn: U32 = 32,
        /// Reserved.
        reserved36: [u8; 12] = 36,
    }
}

pdu! {
    /// Login Request (section 11.12). Always immediate.
    LoginRequest = opcode::LOGIN_REQUEST, {
        /// Version-max.
        version_max: u8 = 2,
        /// Version-min.
        version_min: u8 = 3,
    } {
        /// Initiator part of the session identifier.
        isid: [u8; 6] = 8,
        /// Target Session Identifying Handle; 0 for a new session.
        tsih: U16 = 14,
        /// Initiator Task Tag.
        itt: U32 = 16,
        /// Connection ID.
        cid: U16 = 20,
        /// Reserved.
        reserved22: U16 = 22,
        /// CmdSN: the first one of a new session.
        cmd_sn: U32 = 24,
        /// ExpStatSN, from the second request on.
        exp_stat_sn: U32 = 28,
        /// Reserved.
        reserved32: [u8; 16] = 32,
    }
}

pdu! {
    /// Login Response (section 11.13).
    LoginResponse = opcode::LOGIN_RESPONSE, {
        /// Version-max.
        version_max: u8 = 2,
        /// Version-active.
        version_active: u8 = 3,
    } {
        /// Initiator part of the session identifier, as it came.
        isid: [u8; 6] = 8,
        /// Target Session Identifying Handle: set in the last response.
        tsih: U16 = 14,
        /// Initiator Task Tag.
        itt: U32 = 16,
        /// Reserved.
        reserved20: U32 = 20,
        /// StatSN.
        stat_sn: U32 = 24,
        /// ExpCmdSN.
        exp_cmd_sn: U32 = 28,
        /// MaxCmdSN.
        max_cmd_sn: U32 = 32,
        /// Status-Class.
        status_class: u8 = 36,
        /// Status-Detail.
        status_detail: u8 = 37,
        /// Reserved.
        reserved38: [u8; 10] = 38,
    }
}

pdu! {
    /// Logout Request (section 11.14).
    LogoutRequest = opcode::LOGOUT_REQUEST, {
        /// Reserved.
        reserved2: [u8; 2] = 2,
    } {
        /// Reserved.
        reserved8: [u8; 8] = 8,
        /// Initiator Task Tag.
        itt: U32 = 16,
        /// Connection ID of what is to be closed or recovered.
        cid: U16 = 20,
        /// Reserved.
        reserved22: U16 = 22,
        /// CmdSN.
        cmd_sn: U32 = 24,
        /// ExpStatSN.
        exp_stat_sn: U32 = 28,
        /// Reserved.
        reserved32: [u8; 16] = 32,
    }
}

pdu! {
    /// Logout Response (section 11.15).
    LogoutResponse = opcode::LOGOUT_RESPONSE, {
        /// Response, see [`LogoutResponseCode`].
        response: u8 = 2,
        /// Reserved.
        reserved3: u8 = 3,
    } {
        /// Reserved.
        reserved8: [u8; 8] = 8,
        /// Initiator Task Tag.
        itt: U32 = 16,
        /// Reserved.
        reserved20: U32 = 20,
        /// StatSN.
        stat_sn: U32 = 24,
        /// ExpCmdSN.
        exp_cmd_sn: U32 = 28,
        /// MaxCmdSN.
        max_cmd_sn: U32 = 32,
        /// Reserved.
        reserved36: U32 = 36,
        /// Time2Wait, seconds.
        time2wait: U16 = 40,
        /// Time2Retain, seconds.
        time2retain: U16 = 42,
        /// Reserved.
        reserved44: U32 = 44,
    }
}

pdu! {
    /// SNACK Request (section 11.16).
    SnackRequest = opcode::SNACK, {
        /// Reserved.
        reserved2: [u8; 2] = 2,
    } {
        /// Logical unit, as the Data-In with the A bit had it.
        lun: [u8; 8] = 8,
        /// Initiator Task Tag, [`TAG_NONE`] for Status SNACK and DataACK.
        itt: U32 = 16,
        /// Target Transfer Tag of a DataACK, SNACK Tag of an R-Data SNACK, else
        /// [`TAG_NONE`].
        ttt: U32 = 20,
        /// Reserved.
        reserved24: U32 = 24,
        /// ExpStatSN.
        exp_stat_sn: U32 = 28,
        /// Reserved.
        reserved32: [u8; 8] = 32,
        /// BegRun: the first DataSN, R2TSN or StatSN that is missing.
        beg_run: U32 = 40,
        /// RunLength: how many are missing, 0 for all from BegRun on.
        run_length: U32 = 44,
    }
}

pdu! {
    /// Reject (section 11.17). The header of what is rejected is the data segment.
    Reject = opcode::REJECT, {
        /// Reason, see [`RejectReason`].
        reason: u8 = 2,
        /// Reserved.
        reserved3: u8 = 3,
    } {
        /// Reserved.
        reserved8: [u8; 8] = 8,
        /// [`TAG_NONE`].
        itt: U32 = 16,
        /// Reserved.
        reserved20: U32 = 20,
        /// StatSN.
        stat_sn: U32 = 24,
        /// ExpCmdSN.
        exp_cmd_sn: U32 = 28,
        /// MaxCmdSN.
        max_cmd_sn: U32 = 32,
        /// DataSN or R2TSN: the next one of a command whose SNACK is rejected;
        /// else reserved.
        data_sn: U32 = 36,
        /// Reserved.
        reserved40: [u8; 8] = 40,
    }
}

pdu! {
    /// NOP-Out (section 11.18).
    NopOut = opcode::NOP_OUT, {
        /// Reserved.
        reserved2: [u8; 2] = 2,
    } {
        /// Logical unit, as the NOP-In had it.
        lun: [u8; 8] = 8,
        /// Initiator Task Tag, [`TAG_NONE`] if no NOP-In is wanted.
        itt: U32 = 16,
        /// Target Transfer Tag of the NOP-In that this answers, else [`TAG_NONE`].
        ttt: U32 = 20,
        /// CmdSN.
        cmd_sn: U32 = 24,
        /// ExpStatSN.
        exp_stat_sn: U32 = 28,
        /// Reserved.
        reserved32: [u8; 16] = 32,
    }
}

pdu! {
    /// NOP-In (section 11.19).
    NopIn = opcode::NOP_IN, {
        /// Reserved.
        reserved2: [u8; 2] = 2,
    } {
        /// Logical unit, to come back with the tag.
        lun: [u8; 8] = 8,
        /// Initiator Task Tag of the NOP-Out that this answers, else [`TAG_NONE`].
        itt: U32 = 16,
        /// Target Transfer Tag if a NOP-Out is wanted, else [`TAG_NONE`].
        ttt: U32 = 20,
        /// StatSN.
        stat_sn: U32 = 24,
        /// ExpCmdSN.
        exp_cmd_sn: U32 = 28,
        /// MaxCmdSN.
        max_cmd_sn: U32 = 32,
        /// Reserved.
        reserved36: [u8; 12] = 36,
    }
}

/// The start of an Additional Header Segment (section 11.2.2). The next one
/// begins at a multiple of 4 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct AhsHeader {
    /// Bytes that follow AHSType, without padding.
    pub length: U16,
    /// AHSType in bits 5:0.
    pub kind: u8,
}

const _: () = assert!(core::mem::size_of::<AhsHeader>() == 3);

/// AHSType: the CDB from byte 16 on, behind a reserved byte (section 11.2.2.3).
pub const AHS_EXTENDED_CDB: u8 = 1;
/// AHSType: Bidirectional Read Expected Data Transfer Length in 4 bytes, behind
/// a reserved byte (section 11.2.2.4).
pub const AHS_BIDI_READ_LENGTH: u8 = 2;

/// The Additional Header Segments in `bytes`, which has as many as
/// TotalAHSLength says: type and content of each. An `Err` is the last: the
/// rest is no segment.
pub fn additional_headers(bytes: &[u8]) -> impl Iterator<Item = Result<(u8, &[u8]), AhsError>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let taken = std::mem::take(&mut rest);
        let Ok((header, behind)) = AhsHeader::ref_from_prefix(taken) else {
            return Some(Err(AhsError));
        };
        let len = usize::from(header.length.get());
        let Some(content) = behind.get(..len) else {
            return Some(Err(AhsError));
        };
        let whole = (size_of::<AhsHeader>() + len).next_multiple_of(PAD);
        rest = taken.get(whole..).unwrap_or_default();
        Some(Ok((header.kind & 0x3f, content)))
    })
}

/// Bytes of Additional Header Segments that are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AhsError;

#[cfg(test)]
mod tests;
