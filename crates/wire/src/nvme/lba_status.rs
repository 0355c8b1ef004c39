//! Get LBA Status (NVM Command Set Specification 1.0, section 4.2.1).

use core::mem::size_of;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Action Type, CDW13 bits 31:24.
pub mod atype {
    /// Allocated blocks.
    pub const ALLOCATED: u8 = 0x02;
    /// Scan, then the blocks that may be unrecoverable.
    pub const SCAN_UNRECOVERABLE: u8 = 0x10;
    /// The blocks known that may be unrecoverable.
    pub const UNRECOVERABLE: u8 = 0x11;
}

/// Completion Condition of a list.
pub mod cmpc {
    /// There are more descriptors.
    pub const INCOMPLETE: u8 = 1;
    /// All descriptors of the range are there.
    pub const COMPLETE: u8 = 2;
}

/// Head of an LBA Status Descriptor List; the descriptors follow.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ListHeader {
    /// Number of LBA Status Descriptors.
    pub nlsd: U32,
    /// Completion Condition, see [`cmpc`].
    pub cmpc: u8,
    reserved5: [u8; 3],
}

/// LBA Status Descriptor.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Descriptor {
    /// Descriptor Starting LBA.
    pub dslba: U64,
    /// Number of Logical Blocks, not 0's based.
    pub nlb: U32,
    reserved12: u8,
    /// Additional status about the range: none.
    pub status: u8,
    reserved14: [u8; 2],
}

const _: () = assert!(size_of::<ListHeader>() == 8 && size_of::<Descriptor>() == 16);
