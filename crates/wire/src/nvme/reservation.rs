//! Reservation commands, their data, and what hosts are told of reservations
//! (NVM Express Base Specification 2.0, sections 7.2 to 7.5, 5.16.1.24,
//! 5.27.1.25 to 5.27.1.27 and 8.19).

use core::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bit 3 of dword 10 of Register, Acquire and Release: Ignore Existing Key.
pub const IEKEY: u32 = 1 << 3;

/// Bits 2:0 of dword 10: what the command does.
pub mod action {
    /// Register, RREGA: register a key.
    pub const REGISTER: u8 = 0;
    /// Register, RREGA: unregister the key.
    pub const UNREGISTER: u8 = 1;
    /// Register, RREGA: replace the key.
    pub const REPLACE: u8 = 2;
    /// Acquire, RACQA: acquire a reservation.
    pub const ACQUIRE: u8 = 0;
    /// Acquire, RACQA: preempt.
    pub const PREEMPT: u8 = 1;
    /// Acquire, RACQA: preempt and abort.
    pub const PREEMPT_AND_ABORT: u8 = 2;
    /// Release, RRELA: release the reservation.
    pub const RELEASE: u8 = 0;
    /// Release, RRELA: clear the reservation and all registrants.
    pub const CLEAR: u8 = 1;
}

/// Bits 31:30 of dword 10 of Register: Change Persist Through Power Loss State.
pub mod cptpl {
    /// No change.
    pub const KEEP: u8 = 0;
    /// Released and cleared when power comes back.
    pub const CLEAR: u8 = 2;
    /// Kept through a loss of power.
    pub const SET: u8 = 3;
}

/// Bit 0 of dword 11 of Report: Extended Data Structure, 128-bit hosts.
pub const EDS: u32 = 1 << 0;

/// Data of Reservation Register, 16 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RegisterData {
    /// Current Reservation Key.
    pub crkey: U64,
    /// New Reservation Key.
    pub nrkey: U64,
}

/// Data of Reservation Acquire, 16 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct AcquireData {
    /// Current Reservation Key.
    pub crkey: U64,
    /// Preempt Reservation Key.
    pub prkey: U64,
}

/// Data of Reservation Release, 8 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ReleaseData {
    /// Current Reservation Key.
    pub crkey: U64,
}

/// What the answer to Reservation Report begins with: the Reservation Status
/// Extended data structure up to its registrants.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Status {
    /// Generation.
    pub generation: U32,
    /// Reservation Type; 0: none is held.
    pub rtype: u8,
    /// Number of Registrants.
    pub registrants: U16,
    reserved7: [u8; 2],
    /// Persist Through Power Loss State.
    pub ptpls: u8,
    reserved10: [u8; 54],
}

impl Status {
    /// The head of a report.
    pub fn new(generation: u32, rtype: u8, registrants: u16, ptpls: bool) -> Status {
        Status {
            generation: generation.into(),
            rtype,
            registrants: registrants.into(),
            reserved7: [0; 2],
            ptpls: ptpls.into(),
            reserved10: [0; 54],
        }
    }
}

/// One registrant of a report with 128-bit Host Identifiers.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Registrant {
    /// Controller ID; FFFFh: dynamic controller model.
    pub cntlid: U16,
    /// Reservation Status: bit 0: the registrant holds the reservation.
    pub rcsts: u8,
    reserved3: [u8; 5],
    /// Reservation Key.
    pub rkey: U64,
    /// Host Identifier.
    pub hostid: [u8; 16],
    reserved32: [u8; 32],
}

impl Registrant {
    /// A registrant of the dynamic controller model.
    pub fn new(hostid: [u8; 16], rkey: u64, is_holder: bool) -> Registrant {
        Registrant {
            cntlid: 0xffff.into(),
            rcsts: is_holder.into(),
            reserved3: [0; 5],
            rkey: rkey.into(),
            hostid,
            reserved32: [0; 32],
        }
    }
}

/// Reservation Notification Log Page Type.
pub mod notice {
    /// The queue of notifications is empty.
    pub const EMPTY: u8 = 0;
    /// Registration Preempted.
    pub const REGISTRATION_PREEMPTED: u8 = 1;
    /// Reservation Released.
    pub const RESERVATION_RELEASED: u8 = 2;
    /// Reservation Preempted.
    pub const RESERVATION_PREEMPTED: u8 = 3;
}

/// Reservation Notification log page, 64 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Notification {
    /// Log Page Count: number of this notification, from 1; 0: there is none.
    pub count: U64,
    /// One of [`notice`].
    pub kind: u8,
    /// Further notifications that can be read, 255 for 255 or more.
    pub available: u8,
    reserved10: [u8; 2],
    /// The namespace.
    pub nsid: U32,
    reserved16: [u8; 48],
}

impl Notification {
    /// A page; count and kind 0 say that there is none.
    pub fn new(count: u64, kind: u8, available: u8, nsid: u32) -> Notification {
        Notification {
            count: count.into(),
            kind,
            available,
            reserved10: [0; 2],
            nsid: nsid.into(),
            reserved16: [0; 48],
        }
    }
}

/// Bits of the Reservation Notification Mask: set, the notification is not given.
pub mod mask {
    /// Registration Preempted.
    pub const REGISTRATION_PREEMPTED: u32 = 1 << 1;
    /// Reservation Released.
    pub const RESERVATION_RELEASED: u32 = 1 << 2;
    /// Reservation Preempted.
    pub const RESERVATION_PREEMPTED: u32 = 1 << 3;
}

/// Bits of Reservation Capabilities (RESCAP) of Identify Namespace.
pub mod rescap {
    /// Persist Through Power Loss is supported.
    pub const PERSIST: u8 = 1 << 0;
    /// All six types.
    pub const ALL_TYPES: u8 = 0x7e;
    /// Ignore Existing Key is used as since revision 1.3: Register alone.
    pub const IEKEY_1_3: u8 = 1 << 7;
}

const _: () = {
    assert!(size_of::<RegisterData>() == 16 && offset_of!(RegisterData, nrkey) == 8);
    assert!(size_of::<AcquireData>() == 16 && offset_of!(AcquireData, prkey) == 8);
    assert!(size_of::<ReleaseData>() == 8);
    assert!(size_of::<Status>() == 64 && offset_of!(Status, rtype) == 4);
    assert!(offset_of!(Status, registrants) == 5 && offset_of!(Status, ptpls) == 9);
    assert!(size_of::<Registrant>() == 64 && offset_of!(Registrant, rcsts) == 2);
    assert!(offset_of!(Registrant, rkey) == 8 && offset_of!(Registrant, hostid) == 16);
    assert!(size_of::<Notification>() == 64 && offset_of!(Notification, kind) == 8);
    assert!(offset_of!(Notification, available) == 9 && offset_of!(Notification, nsid) == 12);
};
