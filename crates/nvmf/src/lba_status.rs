//! Get LBA Status (NVM Command Set Specification 1.0, section 4.2.1).

/// A Get LBA Status that passed every check: what to ask the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbaStatus {
    /// The namespace.
    pub nsid: u32,
    /// First byte of the range asked about.
    pub offset: u64,
    /// Bytes of it, in whole blocks; 0 never.
    pub len: u64,
    /// Logical blocks are `1 << block_shift` bytes.
    pub block_shift: u8,
    /// Which blocks the host asks for.
    pub kind: LbaStatusKind,
    /// Bytes of data that the host takes, at least 8.
    pub data_bytes_max: u32,
}

/// Action Type of a Get LBA Status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LbaStatusKind {
    /// Allocated blocks (02h).
    Allocated,
    /// Blocks that may be unrecoverable (10h, 11h).
    Unrecoverable,
}
