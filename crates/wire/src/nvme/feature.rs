//! Features (NVM Express Base Specification 2.0, section 5.27.1; for NVMe over
//! Fabrics also section 6).

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Feature Identifiers (CDW10 bits 7:0 of Get and Set Features).
pub mod fid {
    /// Arbitration.
    pub const ARBITRATION: u8 = 0x01;
    /// Power Management.
    pub const POWER_MANAGEMENT: u8 = 0x02;
    /// Temperature Threshold.
    pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
    /// Error Recovery (NVM Command Set, a namespace's).
    pub const ERROR_RECOVERY: u8 = 0x05;
    /// Volatile Write Cache.
    pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
    /// Number of Queues.
    pub const NUMBER_OF_QUEUES: u8 = 0x07;
    /// Write Atomicity Normal.
    pub const WRITE_ATOMICITY: u8 = 0x0a;
    /// Asynchronous Event Configuration.
    pub const ASYNC_EVENT_CONFIG: u8 = 0x0b;
    /// Keep Alive Timer.
    pub const KEEP_ALIVE_TIMER: u8 = 0x0f;
    /// Timestamp.
    pub const TIMESTAMP: u8 = 0x0e;
    /// Namespace Write Protection Config.
    pub const WRITE_PROTECTION: u8 = 0x84;
    /// Host Behavior Support.
    pub const HOST_BEHAVIOR: u8 = 0x16;
    /// Host Identifier.
    pub const HOST_IDENTIFIER: u8 = 0x81;
    /// Reservation Notification Mask, a namespace's.
    pub const RESERVATION_NOTIFICATION_MASK: u8 = 0x82;
    /// Reservation Persistence, a namespace's.
    pub const RESERVATION_PERSISTENCE: u8 = 0x83;
}

/// Select field of Get Features (CDW10 bits 10:8, figure 191).
pub mod select {
    /// The value in force.
    pub const CURRENT: u8 = 0;
    /// The value after a reset.
    pub const DEFAULT: u8 = 1;
    /// The saved value.
    pub const SAVED: u8 = 2;
    /// What the controller can do with the feature.
    pub const CAPABILITIES: u8 = 3;
}

/// Bits of completion dword 0 for [`select::CAPABILITIES`].
pub mod capability {
    /// The feature belongs to a namespace.
    pub const NAMESPACE_SPECIFIC: u32 = 1 << 1;
    /// The feature can be set.
    pub const CHANGEABLE: u32 = 1 << 2;
}

/// Bits of the Asynchronous Event Configuration (figure 327).
pub mod async_event {
    /// SMART / Health Critical Warnings.
    pub const SMART_WARNINGS: u32 = 0xff;
    /// Available spare is below its threshold, one of the warnings above.
    pub const SPARE: u32 = 1 << 0;
    /// NVM subsystem reliability has been degraded, another one.
    pub const RELIABILITY: u32 = 1 << 2;
    /// Asymmetric Namespace Access Change Notices.
    pub const ANA_CHANGE: u32 = 1 << 11;
    /// Namespace Attribute Notices.
    pub const NAMESPACE_ATTRIBUTE: u32 = 1 << 8;
    /// Discovery Log Page Change Notification.
    pub const DISCOVERY_CHANGE: u32 = 1 << 31;
}

/// Bytes of the Host Behavior Support data structure.
pub const HOST_BEHAVIOR_BYTES: usize = 512;

/// Host Behavior Support data structure (Base 2.0, figure 349; CDFE of 2.1).
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct HostBehavior {
    /// Advanced Command Retry Enable.
    pub acre: u8,
    /// Extended Telemetry Data Area 4 Supported.
    pub etdas: u8,
    /// LBA Format Extension Enable.
    pub lbafee: u8,
    /// Host Dispersed Namespace Support.
    pub hdisns: u8,
    /// Copy Descriptor Formats Enable, a bit a format.
    pub cdfe: U16,
    /// Reserved.
    pub reserved6: [u8; 506],
}

impl HostBehavior {
    /// The copy descriptor formats that need to be enabled and can be.
    pub const COPY_FORMATS: u16 = 1 << 2 | 1 << 3;
}

/// Timestamp data structure (figure 336).
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Timestamp {
    /// Milliseconds, little endian.
    pub timestamp: [u8; 6],
    /// Get Features: Synch in bit 0, Timestamp Origin in bits 3:1.
    pub attributes: u8,
    /// Reserved.
    pub reserved7: u8,
}

/// Timestamp Origin: set by Set Features, and no pause since.
pub const TIMESTAMP_SET_BY_HOST: u8 = 1 << 1;

const _: () = {
    assert!(core::mem::size_of::<HostBehavior>() == HOST_BEHAVIOR_BYTES);
    assert!(core::mem::size_of::<Timestamp>() == 8);
};
