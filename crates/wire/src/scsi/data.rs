//! Parameter data of fixed layout.

use core::mem::{offset_of, size_of};
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Standard INQUIRY data up to its version descriptors (SPC-4).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct StandardInquiry {
    /// Bits 7:5: peripheral qualifier, bits 4:0: peripheral device type.
    pub peripheral: u8,
    /// Bit 7: RMB.
    pub rmb: u8,
    /// Version: 06h is SPC-4.
    pub version: u8,
    /// Bit 5: NORMACA, bit 4: HISUP, bits 3:0: response data format, 2.
    pub format: u8,
    /// Bytes that follow.
    pub additional_length: u8,
    /// Bits 5:4: TPGS, bit 3: 3PC, bit 0: PROTECT.
    pub flags5: u8,
    /// Bit 4: MULTIP.
    pub flags6: u8,
    /// Bit 1: CMDQUE.
    pub flags7: u8,
    /// T10 vendor identification, padded with spaces.
    pub vendor: [u8; 8],
    /// Product identification, padded with spaces.
    pub product: [u8; 16],
    /// Product revision level, padded with spaces.
    pub revision: [u8; 4],
    /// Vendor specific.
    pub vendor_specific: [u8; 20],
    /// Reserved.
    pub reserved56: [u8; 2],
    /// Version descriptors.
    pub versions: [U16; 8],
    /// Reserved.
    pub reserved74: [u8; 22],
}

/// READ CAPACITY(10) parameter data (SBC-35.2).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ReadCapacity10 {
    /// Returned logical block address: the last, or FFFF_FFFFh if it does not fit.
    pub last_lba: U32,
    /// Logical block length in bytes.
    pub block_bytes: U32,
}

/// READ CAPACITY(16) parameter data (SBC-36.2).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ReadCapacity16 {
    /// The last logical block address.
    pub last_lba: U64,
    /// Logical block length in bytes.
    pub block_bytes: U32,
    /// Bits 3:1: P_TYPE, bit 0: PROT_EN.
    pub protection: u8,
    /// Bits 3:0: logical blocks per physical block exponent.
    pub exponents: u8,
    /// Bit 15: LBPME, bit 14: LBPRZ, bits 13:0: lowest aligned LBA.
    pub provisioning: U16,
    /// Reserved.
    pub reserved16: [u8; 16],
}

/// A descriptor of GET LBA STATUS (SBC-3).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct LbaStatus {
    /// The first logical block.
    pub lba: U64,
    /// How many.
    pub blocks: U32,
    /// Provisioning status: 0 mapped or unknown, 1 deallocated, 2 anchored.
    pub status: u8,
    /// Reserved.
    pub reserved13: [u8; 3],
}

/// What an UNMAP parameter list begins with (SBC-30.2).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct UnmapHeader {
    /// Bytes that follow this field.
    pub data_len: U16,
    /// Bytes of block descriptors.
    pub descriptors_len: U16,
    /// Reserved.
    pub reserved4: [u8; 4],
}

/// A block descriptor of UNMAP.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct UnmapDescriptor {
    /// The first logical block.
    pub lba: U64,
    /// How many.
    pub blocks: U32,
    /// Reserved.
    pub reserved12: [u8; 4],
}

/// A target port group descriptor of REPORT TARGET PORT GROUPS up to its ports,
/// which are four bytes each (SPC-4).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct PortGroup {
    /// Bit 7: PREF, bits 3:0: asymmetric access state.
    pub state: u8,
    /// States that are supported: bit 7 T, 6 O, 4 LBD, 3 U, 2 S, 1 AN, 0 AO.
    pub supported: u8,
    /// Target port group.
    pub tag: U16,
    /// Reserved.
    pub reserved4: u8,
    /// Status code: why the state was changed last.
    pub status: u8,
    /// Vendor specific.
    pub vendor_specific: u8,
    /// Target port count.
    pub ports: u8,
}

const _: () = {
    assert!(size_of::<StandardInquiry>() == 96 && offset_of!(StandardInquiry, versions) == 58);
    assert!(offset_of!(StandardInquiry, product) == 16);
    assert!(size_of::<ReadCapacity10>() == 8);
    assert!(size_of::<ReadCapacity16>() == 32 && offset_of!(ReadCapacity16, protection) == 12);
    assert!(size_of::<LbaStatus>() == 16 && offset_of!(LbaStatus, status) == 12);
    assert!(size_of::<UnmapHeader>() == 8 && size_of::<UnmapDescriptor>() == 16);
    assert!(size_of::<PortGroup>() == 8 && offset_of!(PortGroup, ports) == 7);
};
