//! UNMAP and GET LBA STATUS (SBC-3, sections 5.30 and 5.5).

use wire::scsi::{LbaStatus, UnmapDescriptor, UnmapHeader};
use zerocopy::{FromBytes, IntoBytes};

use crate::sense::Sense;
use crate::unit::Unit;

/// Block descriptors of one UNMAP at most.
pub const DESCRIPTORS_MAX: usize = 256;

/// Blocks of one UNMAP at most, all descriptors together.
pub const BLOCKS_MAX: u32 = 1 << 20;

/// Bytes of an UNMAP parameter list that are looked at, at most.
pub const LIST_BYTES_MAX: u32 =
    (size_of::<UnmapHeader>() + DESCRIPTORS_MAX * size_of::<UnmapDescriptor>()) as u32;

/// Descriptors that GET LBA STATUS answers with at most.
pub const STATUS_DESCRIPTORS_MAX: usize = 256;

/// A part of the medium in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Its first byte.
    pub offset: u64,
    /// Bytes, not 0.
    pub len: u64,
}

/// Reads the parameter list of UNMAP: what shall be deallocated, within the
/// medium. An unfinished descriptor at the end is ignored.
pub fn parse(list: &[u8], unit: &Unit) -> Result<Vec<Range>, Sense> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let Ok((header, descriptors)) = UnmapHeader::ref_from_prefix(list) else {
        return Err(Sense::list_length());
    };
    let said = usize::from(header.descriptors_len.get());
    let descriptors = &descriptors[..said.min(descriptors.len())];
    let descriptors = descriptors.chunks_exact(size_of::<UnmapDescriptor>());
    if said / size_of::<UnmapDescriptor>() > DESCRIPTORS_MAX {
        return Err(Sense::in_list(2, None));
    }
    let shift = unit.block_bytes.trailing_zeros();
    let mut ranges = Vec::new();
    let mut total = 0;
    for (n, bytes) in descriptors.enumerate() {
        let descriptor = UnmapDescriptor::read_from_bytes(bytes).expect("a whole descriptor");
        let (lba, blocks) = (descriptor.lba.get(), u64::from(descriptor.blocks.get()));
        if lba
            .checked_add(blocks)
            .is_none_or(|end| end > unit.block_count)
        {
            return Err(Sense::out_of_range().with_information(lba.max(unit.block_count)));
        }
        total += blocks;
        if total > u64::from(BLOCKS_MAX) {
            let at = size_of::<UnmapHeader>() + n * size_of::<UnmapDescriptor>() + 8;
            return Err(Sense::in_list(at as u16, None));
        }
        if blocks > 0 {
            ranges.push(Range {
                offset: lba << shift,
                len: blocks << shift,
            });
        }
    }
    Ok(ranges)
}

/// Appends the answer to GET LBA STATUS for the byte `offset`: `extents` are
/// lengths in bytes, in whole blocks and without gaps, and whether they are
/// allocated. Neighbours of one kind become one descriptor; the last one of a
/// list that was cut short is left as it is.
pub fn lba_status(
    unit: &Unit,
    offset: u64,
    extents: impl IntoIterator<Item = (u64, bool)>,
    allocation_len: u32,
    out: &mut Vec<u8>,
) {
    /// PROVISIONING STATUS.
    const MAPPED: u8 = 0;
    const DEALLOCATED: u8 = 1;
    let start = out.len();
    out.extend_from_slice(&[0; 8]);
    let shift = unit.block_bytes.trailing_zeros();
    let mut lba = offset >> shift;
    let mut runs: Vec<(u64, u64, u8)> = Vec::new();
    for (len, is_allocated) in extents {
        let blocks = len >> shift;
        let is_mapped = is_allocated || !unit.thin;
        let status = if is_mapped { MAPPED } else { DEALLOCATED };
        let is_full = runs.len() == STATUS_DESCRIPTORS_MAX;
        match runs.last_mut() {
            Some(last) if last.2 == status => last.1 += blocks,
            _ if is_full => break,
            _ => runs.push((lba, blocks, status)),
        }
        lba += blocks;
    }
    for (lba, blocks, status) in runs {
        let data = LbaStatus {
            lba: lba.into(),
            blocks: u32::try_from(blocks).unwrap_or(u32::MAX).into(),
            status,
            reserved13: [0; 3],
        };
        out.extend_from_slice(data.as_bytes());
        // What one descriptor cannot count ends the list.
        if blocks > u64::from(u32::MAX) {
            break;
        }
    }
    let len = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&len.to_be_bytes());
    crate::respond::cut(out, start, allocation_len.into());
}
