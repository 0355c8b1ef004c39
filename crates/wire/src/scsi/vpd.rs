//! Vital product data (SPC-4, section 7.8; SBC-3).

/// Page codes.
pub mod page {
    /// Supported VPD Pages.
    pub const SUPPORTED_PAGES: u8 = 0x00;
    /// Unit Serial Number.
    pub const UNIT_SERIAL_NUMBER: u8 = 0x80;
    /// Device Identification.
    pub const DEVICE_IDENTIFICATION: u8 = 0x83;
    /// Extended INQUIRY Data.
    pub const EXTENDED_INQUIRY: u8 = 0x86;
    /// Mode Page Policy.
    pub const MODE_PAGE_POLICY: u8 = 0x87;
    /// SCSI Ports.
    pub const SCSI_PORTS: u8 = 0x88;
    /// Third-party Copy.
    pub const THIRD_PARTY_COPY: u8 = 0x8f;
    /// Block Limits.
    pub const BLOCK_LIMITS: u8 = 0xb0;
    /// Block Device Characteristics.
    pub const BLOCK_DEVICE_CHARACTERISTICS: u8 = 0xb1;
    /// Logical Block Provisioning.
    pub const LOGICAL_BLOCK_PROVISIONING: u8 = 0xb2;
}

/// Designator types of the Device Identification page (SPC-4, section 7.8).
pub mod designator {
    /// T10 vendor ID based.
    pub const T10_VENDOR_ID: u8 = 0x1;
    /// EUI-64 based.
    pub const EUI_64: u8 = 0x2;
    /// NAA.
    pub const NAA: u8 = 0x3;
    /// Relative target port identifier.
    pub const RELATIVE_TARGET_PORT: u8 = 0x4;
    /// Target port group.
    pub const TARGET_PORT_GROUP: u8 = 0x5;
    /// SCSI name string.
    pub const SCSI_NAME_STRING: u8 = 0x8;
    /// UUID (SPC-5).
    pub const UUID: u8 = 0xa;
}

/// What a designator belongs to (SPC-4, ASSOCIATION).
pub mod association {
    /// The logical unit.
    pub const LOGICAL_UNIT: u8 = 0;
    /// The target port through which the request came.
    pub const TARGET_PORT: u8 = 1;
    /// The SCSI target device.
    pub const TARGET_DEVICE: u8 = 2;
}

/// Code set of a designator.
pub mod code_set {
    /// Binary.
    pub const BINARY: u8 = 1;
    /// ASCII, printable.
    pub const ASCII: u8 = 2;
    /// UTF-8.
    pub const UTF_8: u8 = 3;
}
