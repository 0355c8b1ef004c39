//! SCSI: the numbers of SAM-5, SPC-4 and SBC-3 (WRITE ATOMIC and what goes with
//! it: SBC-4) and the structures whose layout never varies. Multi-byte fields are
//! big endian.

pub mod asc;
pub mod cdb;
mod data;
pub mod opcode;
pub mod vpd;

pub use data::{
    LbaStatus, PortGroup, ReadCapacity10, ReadCapacity16, StandardInquiry, UnmapDescriptor,
    UnmapHeader,
};
pub use opcode::{
    maintenance_in, maintenance_out, persistent_reserve_in, persistent_reserve_out,
    receive_copy_results, service_action_in,
};

/// Bytes of a CDB that is not of variable length, at most (SPC-4, section 4.2).
pub const CDB_BYTES: usize = 16;

/// Sense data that weft ever sends: descriptor format with an information, a
/// sense key specific and a command specific descriptor.
pub const SENSE_MAX: usize = 44;

/// What a command ended with (SAM-5, section 5.3.1).
pub mod status {
    /// GOOD.
    pub const GOOD: u8 = 0x00;
    /// CHECK CONDITION.
    pub const CHECK_CONDITION: u8 = 0x02;
    /// BUSY.
    pub const BUSY: u8 = 0x08;
    /// RESERVATION CONFLICT.
    pub const RESERVATION_CONFLICT: u8 = 0x18;
    /// TASK SET FULL.
    pub const TASK_SET_FULL: u8 = 0x28;
    /// TASK ABORTED.
    pub const TASK_ABORTED: u8 = 0x40;
}

/// Sense keys (SPC-4, section 4.5.6).
pub mod key {
    /// NO SENSE.
    pub const NO_SENSE: u8 = 0x0;
    /// RECOVERED ERROR.
    pub const RECOVERED_ERROR: u8 = 0x1;
    /// NOT READY.
    pub const NOT_READY: u8 = 0x2;
    /// MEDIUM ERROR.
    pub const MEDIUM_ERROR: u8 = 0x3;
    /// HARDWARE ERROR.
    pub const HARDWARE_ERROR: u8 = 0x4;
    /// ILLEGAL REQUEST.
    pub const ILLEGAL_REQUEST: u8 = 0x5;
    /// UNIT ATTENTION.
    pub const UNIT_ATTENTION: u8 = 0x6;
    /// DATA PROTECT.
    pub const DATA_PROTECT: u8 = 0x7;
    /// COPY ABORTED.
    pub const COPY_ABORTED: u8 = 0xa;
    /// ABORTED COMMAND.
    pub const ABORTED_COMMAND: u8 = 0xb;
    /// MISCOMPARE.
    pub const MISCOMPARE: u8 = 0xe;
}

/// Encoded sense data, without allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SenseBytes {
    bytes: [u8; SENSE_MAX],
    len: u8,
}

impl SenseBytes {
    /// No sense data: the command ended without CHECK CONDITION.
    pub const EMPTY: SenseBytes = SenseBytes {
        bytes: [0; SENSE_MAX],
        len: 0,
    };

    /// A copy of `bytes`, at most [`SENSE_MAX`].
    ///
    /// # Panics
    ///
    /// If there are more: sense data is of our own making.
    pub fn new(bytes: &[u8]) -> SenseBytes {
        let mut sense = SenseBytes::EMPTY;
        sense.bytes[..bytes.len()].copy_from_slice(bytes);
        sense.len = bytes.len() as u8;
        sense
    }

    /// The sense data; empty if there is none.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl Default for SenseBytes {
    fn default() -> SenseBytes {
        SenseBytes::EMPTY
    }
}

impl core::fmt::Debug for SenseBytes {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:02x?}", self.as_slice())
    }
}
