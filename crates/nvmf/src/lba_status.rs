//! Get LBA Status (NVM Command Set Specification 1.0, section 4.2.1; the action
//! for allocated blocks is of 1.1).

use wire::nvme::identify::zeroed;
use wire::nvme::lba_status::{Descriptor, ListHeader, cmpc};
use zerocopy::IntoBytes;

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
    /// Descriptors that the host takes at most.
    pub ranges_max: u32,
}

/// Action Type of a Get LBA Status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LbaStatusKind {
    /// Allocated blocks (02h).
    Allocated,
    /// Blocks that cannot be read (10h, 11h).
    Unrecoverable,
}

/// Blocks of a descriptor at most: its count has 32 bits.
const DESCRIPTOR_BLOCKS_MAX: u64 = u32::MAX as u64;

impl LbaStatus {
    /// The data of the command, to be cut at what the host takes: a descriptor
    /// of each of `ranges` (first byte and bytes, ascending, not touching each
    /// other), cut to the range asked about. Give one more than
    /// [`LbaStatus::ranges_max`] where there are more, so that the host is told
    /// of it.
    pub fn data(&self, ranges: impl IntoIterator<Item = (u64, u64)>) -> Vec<u8> {
        let mut data = vec![0; size_of::<ListHeader>()];
        let mut header: ListHeader = zeroed();
        header.cmpc = cmpc::COMPLETE;
        let end = self.offset + self.len;
        let mut count = 0u32;
        'ranges: for (offset, len) in ranges {
            let first = offset.max(self.offset) >> self.block_shift;
            let behind = offset.saturating_add(len).min(end);
            let behind = behind.div_ceil(1 << self.block_shift);
            let mut slba = first;
            while slba < behind {
                if count == self.ranges_max {
                    header.cmpc = cmpc::INCOMPLETE;
                    break 'ranges;
                }
                let blocks = (behind - slba).min(DESCRIPTOR_BLOCKS_MAX);
                let mut descriptor: Descriptor = zeroed();
                descriptor.dslba = slba.into();
                descriptor.nlb = (blocks as u32).into();
                data.extend_from_slice(descriptor.as_bytes());
                slba += blocks;
                count += 1;
            }
        }
        header.nlsd = count.into();
        data[..size_of::<ListHeader>()].copy_from_slice(header.as_bytes());
        data
    }
}
