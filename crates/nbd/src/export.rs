//! An export, as far as a client is told of it.

use wire::nbd::{InfoBlockSize, info_type, transmission_flags as flags};

/// Bytes of a payload at most: what every client may count on (section "Size constraints").
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// The preferred block size at least.
const PREFERRED_BYTES: u32 = 4096;

/// An export as it is told to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdExport {
    /// Its name, also where the client has asked for the default one.
    pub name: String,
    /// For people; may be empty.
    pub description: String,
    /// Bytes.
    pub size_bytes: u64,
    /// What offsets and lengths are multiples of: a power of 2 up to 64 KiB.
    pub block_bytes: u32,
    /// Nothing is to be written.
    pub is_read_only: bool,
    /// Zeros that may be a hole are faster than the same written.
    pub is_fast_to_zero: bool,
}

impl NbdExport {
    /// The transmission flags, for a client that takes chunks or does not. A flush and FUA are
    /// those of the volume, whichever connection asks: clients may have several.
    pub(crate) fn flags(&self, takes_chunks: bool) -> u16 {
        let mut all = flags::HAS_FLAGS
            | flags::SEND_FLUSH
            | flags::SEND_FUA
            | flags::CAN_MULTI_CONN
            | flags::SEND_CACHE;
        all |= match self.is_read_only {
            true => flags::READ_ONLY,
            false => flags::SEND_TRIM | flags::SEND_WRITE_ZEROES | flags::SEND_FAST_ZERO,
        };
        if takes_chunks {
            all |= flags::SEND_DF;
        }
        all
    }

    pub(crate) fn block_size(&self) -> InfoBlockSize {
        InfoBlockSize {
            kind: info_type::BLOCK_SIZE.into(),
            minimum: self.block_bytes.into(),
            preferred: self.block_bytes.max(PREFERRED_BYTES).into(),
            maximum: PAYLOAD_BYTES_MAX.into(),
        }
    }
}
