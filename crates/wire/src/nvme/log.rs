//! Log pages (NVM Express Base Specification 2.0, section 5.16.1).

use core::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Log Page Identifiers (CDW10 bits 7:0 of Get Log Page).
pub mod lid {
    /// Supported Log Pages.
    pub const SUPPORTED: u8 = 0x00;
    /// Error Information.
    pub const ERROR: u8 = 0x01;
    /// SMART / Health Information.
    pub const SMART: u8 = 0x02;
    /// Firmware Slot Information.
    pub const FIRMWARE_SLOT: u8 = 0x03;
    /// Changed Namespace List.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Commands Supported and Effects.
    pub const COMMAND_EFFECTS: u8 = 0x05;
    /// Asymmetric Namespace Access.
    pub const ANA: u8 = 0x0c;
    /// Feature Identifiers Supported and Effects.
    pub const FEATURE_EFFECTS: u8 = 0x12;
    /// NVMe-MI Commands Supported and Effects.
    pub const MI_EFFECTS: u8 = 0x13;
    /// Discovery.
    pub const DISCOVERY: u8 = 0x70;
    /// Reservation Notification.
    pub const RESERVATION_NOTIFICATION: u8 = 0x80;
    /// Sanitize Status.
    pub const SANITIZE_STATUS: u8 = 0x81;
}

/// Error Information Log Entry (figure 206).
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ErrorEntry {
    /// Number of this error since the controller was created, from 1; 0: no entry.
    pub error_count: U64,
    /// Submission Queue ID.
    pub sqid: U16,
    /// Command ID.
    pub cid: U16,
    /// Status Field with the phase tag in bit 0.
    pub status: U16,
    /// Byte in bits 7:0 and bit in bits 10:8 of the command that is wrong; FFFFh: none.
    pub error_location: U16,
    /// First logical block that saw the error.
    pub lba: U64,
    /// Namespace.
    pub nsid: U32,
    /// Vendor specific log page with more; 0: none.
    pub vendor: u8,
    /// Transport Type: 3 is TCP.
    pub trtype: u8,
    reserved30: [u8; 2],
    /// Command specific information.
    pub command_specific: U64,
    /// Transport type specific information.
    pub trtype_specific: U16,
    reserved42: [u8; 22],
}

const _: () = {
    assert!(size_of::<ErrorEntry>() == 64);
    assert!(offset_of!(ErrorEntry, lba) == 16);
    assert!(offset_of!(ErrorEntry, trtype) == 29);
};

/// A number of 128 bits, little endian.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Wide(pub [u8; 16]);

impl From<u64> for Wide {
    fn from(value: u64) -> Self {
        Wide(u128::from(value).to_le_bytes())
    }
}

/// Bits of the Critical Warning.
pub mod critical_warning {
    /// Available spare is below its threshold.
    pub const SPARE: u8 = 1 << 0;
    /// NVM subsystem reliability is degraded.
    pub const RELIABILITY: u8 = 1 << 2;
}

/// SMART / Health Information Log Page (figure 207).
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Smart {
    /// Critical Warning.
    pub critical_warning: u8,
    /// Composite Temperature in kelvins.
    pub composite_temperature: U16,
    /// Available Spare in percent.
    pub available_spare: u8,
    /// Available Spare Threshold in percent.
    pub available_spare_threshold: u8,
    /// Percentage Used.
    pub percentage_used: u8,
    /// Endurance Group Critical Warning Summary.
    pub endurance_group_warning: u8,
    reserved7: [u8; 25],
    /// Thousands of 512-byte units read by hosts, rounded up.
    pub data_units_read: Wide,
    /// Thousands of 512-byte units written by hosts, rounded up.
    pub data_units_written: Wide,
    /// Read commands, Compare included.
    pub host_read_commands: Wide,
    /// Write commands.
    pub host_write_commands: Wide,
    /// Controller Busy Time in minutes.
    pub controller_busy_time: Wide,
    /// Power Cycles.
    pub power_cycles: Wide,
    /// Power On Hours.
    pub power_on_hours: Wide,
    /// Unsafe Shutdowns.
    pub unsafe_shutdowns: Wide,
    /// Media and Data Integrity Errors.
    pub media_errors: Wide,
    /// Error Information Log Entries over the life of the controller.
    pub error_log_entries: Wide,
    /// Warning Composite Temperature Time in minutes.
    pub warning_temperature_time: U32,
    /// Critical Composite Temperature Time in minutes.
    pub critical_temperature_time: U32,
    /// Temperature Sensors 1 to 8 in kelvins; 0: not implemented.
    pub temperature_sensors: [U16; 8],
    reserved216: [u8; 296],
}

const _: () = {
    assert!(size_of::<Smart>() == 512);
    assert!(offset_of!(Smart, data_units_read) == 32);
    assert!(offset_of!(Smart, error_log_entries) == 176);
};

/// Firmware Slot Information Log Page (figure 209).
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FirmwareSlot {
    /// Active Firmware Info: slot in bits 2:0.
    pub afi: u8,
    reserved1: [u8; 7],
    /// Revision in slots 1 to 7, ASCII.
    pub frs: [[u8; 8]; 7],
    reserved64: [u8; 448],
}

const _: () = assert!(size_of::<FirmwareSlot>() == 512);

/// Commands Supported and Effects Log Page (figure 210), entries as of figure 211.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CommandEffects {
    /// By opcode of the Admin Command Set.
    pub admin: [U32; 256],
    /// By opcode of the I/O Command Set.
    pub io: [U32; 256],
    reserved2048: [u8; 2048],
}

const _: () = assert!(size_of::<CommandEffects>() == 4096);

/// Bits of a Commands Supported and Effects entry (figure 211).
pub mod effect {
    /// Command Supported.
    pub const CSUPP: u32 = 1 << 0;
    /// Logical Block Content Change.
    pub const LBCC: u32 = 1 << 1;
    /// Namespace Capability Change.
    pub const NCC: u32 = 1 << 2;
    /// Scope: a namespace.
    pub const SCOPE_NAMESPACE: u32 = 1 << 20;
    /// Scope: the controller.
    pub const SCOPE_CONTROLLER: u32 = 1 << 21;
    /// Scope: the NVM subsystem.
    pub const SCOPE_SUBSYSTEM: u32 = 1 << 25;
}

/// Supported Log Pages and Feature Identifiers Supported and Effects Log Pages:
/// one entry an identifier, bit 0 says that it is supported.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Identifiers {
    /// By identifier.
    pub entries: [U32; 256],
}

const _: () = assert!(size_of::<Identifiers>() == 1024);

/// Head of the Asymmetric Namespace Access Log Page (figure 221); group
/// descriptors follow.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AnaHeader {
    /// Change Count.
    pub chgcnt: U64,
    /// Number of ANA Group Descriptors.
    pub ngrps: U16,
    reserved10: [u8; 6],
}

/// ANA Group Descriptor (figure 222); namespace identifiers follow.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AnaGroup {
    /// ANA Group ID.
    pub agid: U32,
    /// Number of NSID Values.
    pub nnsids: U32,
    /// Change Count; 0: not reported.
    pub chgcnt: U64,
    /// Asymmetric Namespace Access State, in bits 3:0.
    pub state: u8,
    reserved17: [u8; 15],
}

const _: () = {
    assert!(size_of::<AnaHeader>() == 16);
    assert!(size_of::<AnaGroup>() == 32);
    assert!(offset_of!(AnaGroup, state) == 16);
};

/// Sanitize Status Log Page (section 5.16.1.25).
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SanitizeLog {
    /// Sanitize Progress, in 65536ths; FFFFh: none is in progress.
    pub sprog: U16,
    /// Sanitize Status, see [`sanitize_status`].
    pub sstat: U16,
    /// Command Dword 10 of the last Sanitize.
    pub scdw10: U32,
    /// Estimated times in seconds of overwrite, block erase and crypto erase, then of the same with
    /// No-Deallocate; FFFFFFFFh: none is told.
    pub times: [U32; 6],
    reserved32: [u8; 480],
}

const _: () = {
    assert!(size_of::<SanitizeLog>() == 512);
    assert!(offset_of!(SanitizeLog, scdw10) == 4);
    assert!(offset_of!(SanitizeLog, times) == 8);
};

/// Values of SSTAT, bits 2:0.
pub mod sanitize_status {
    /// There was no sanitize operation yet.
    pub const NEVER: u16 = 0;
    /// The last one has succeeded.
    pub const COMPLETED: u16 = 1;
    /// One is in progress.
    pub const IN_PROGRESS: u16 = 2;
    /// The last one has failed.
    pub const FAILED: u16 = 3;
}

/// Log Specific Field of the ANA log page: Return Groups Only.
pub const ANA_RGO: u8 = 1 << 0;

/// Asynchronous Event Types and information (figures 145 to 150): the fields
/// of completion dword 0 of an Asynchronous Event Request.
pub mod event {
    /// Notice: Namespace Attribute Changed, answered by reading log page 04h.
    pub const NAMESPACE_ATTRIBUTE_CHANGED: u32 =
        0x02 | (super::lid::CHANGED_NAMESPACES as u32) << 16;
    /// Notice: Asymmetric Namespace Access Change, answered by reading log page 0Ch.
    pub const ANA_CHANGED: u32 = 0x02 | 0x03 << 8 | (super::lid::ANA as u32) << 16;
    /// SMART / Health Status: Spare Below Threshold, answered by reading log page 02h.
    pub const SPARE_BELOW_THRESHOLD: u32 = 0x01 | 0x02 << 8 | (super::lid::SMART as u32) << 16;
    /// SMART / Health Status: NVM subsystem reliability, answered by reading log page 02h.
    pub const RELIABILITY_DEGRADED: u32 = 0x01 | (super::lid::SMART as u32) << 16;
    /// Error: Transient Internal Error, answered by reading log page 01h.
    pub const TRANSIENT_INTERNAL_ERROR: u32 = 0x04 << 8 | (super::lid::ERROR as u32) << 16;
    /// I/O Command Set Specific: Reservation Log Page Available, answered by
    /// reading log page 80h.
    pub const RESERVATION_LOG_AVAILABLE: u32 =
        0x06 | (super::lid::RESERVATION_NOTIFICATION as u32) << 16;
    /// I/O Command Set Specific: Sanitize Operation Completed, answered by reading log page 81h.
    pub const SANITIZE_COMPLETED: u32 =
        0x06 | 0x01 << 8 | (super::lid::SANITIZE_STATUS as u32) << 16;
    /// Notice: Discovery Log Page Change, answered by reading log page 70h.
    pub const DISCOVERY_CHANGED: u32 = 0x02 | 0xf0 << 8 | (super::lid::DISCOVERY as u32) << 16;
}
