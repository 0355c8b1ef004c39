//! UNMAP and GET LBA STATUS (SBC-30 and 5.5).

use wire::scsi::{LbaStatus, UnmapDescriptor, UnmapHeader};
use zerocopy::{FromBytes, IntoBytes};

use crate::cdb::cut;
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
    cut(out, start, allocation_len.into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::unit;
    use wire::scsi::asc;

    fn list(descriptors: &[(u64, u32)]) -> Vec<u8> {
        let len = 16 * descriptors.len() as u16;
        let mut list = (len + 6).to_be_bytes().to_vec();
        list.extend_from_slice(&len.to_be_bytes());
        list.extend_from_slice(&[0; 4]);
        for (lba, blocks) in descriptors {
            list.extend_from_slice(&lba.to_be_bytes());
            list.extend_from_slice(&blocks.to_be_bytes());
            list.extend_from_slice(&[0; 4]);
        }
        list
    }

    fn range(offset: u64, len: u64) -> Range {
        Range { offset, len }
    }

    #[test]
    fn unmap_descriptors_become_ranges_in_bytes() {
        let parsed = parse(&list(&[(1, 2), (5, 0), (2046, 2), (2048, 0)]), &unit());
        assert_eq!(parsed, Ok(vec![range(512, 1024), range(2046 * 512, 1024)]));
        assert_eq!(parse(&[], &unit()), Ok(Vec::new()));
        assert_eq!(parse(&list(&[]), &unit()), Ok(Vec::new()));
    }

    #[test]
    fn an_unfinished_descriptor_is_ignored() {
        let bytes = list(&[(1, 1), (2, 1)]);
        let parsed = parse(&bytes[..bytes.len() - 1], &unit());
        assert_eq!(parsed, Ok(vec![range(512, 512)]));
        assert_eq!(parse(&bytes[..7], &unit()), Err(Sense::list_length()));
    }

    #[test]
    fn limits_are_those_of_block_limits() {
        let mut unit = unit();
        unit.block_count = 1 << 40;
        let most = vec![(0, 1); DESCRIPTORS_MAX];
        assert_eq!(parse(&list(&most), &unit).unwrap().len(), 256);
        let more = vec![(0, 1); DESCRIPTORS_MAX + 1];
        assert_eq!(parse(&list(&more), &unit), Err(Sense::in_list(2, None)));
        assert!(parse(&list(&[(0, BLOCKS_MAX)]), &unit).is_ok());
        let more = parse(&list(&[(0, BLOCKS_MAX), (0, 1)]), &unit);
        assert_eq!(more, Err(Sense::in_list(8 + 16 + 8, None)));
    }

    #[test]
    fn unmap_outside_of_the_medium_is_refused() {
        for descriptor in [(2047, 2), (2049, 0), (u64::MAX, 1), (u64::MAX, 0)] {
            let sense = parse(&list(&[descriptor]), &unit()).unwrap_err();
            assert_eq!(sense.code, asc::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
        }
    }

    #[test]
    fn status_of_neighbours_is_joined() {
        let mut out = vec![9];
        let extents = [(512, true), (512, true), (1024, false), (512, true)];
        lba_status(&unit(), 2 * 512, extents, 1 << 10, &mut out);
        let mut expected = vec![9, 0, 0, 0, 4 + 3 * 16, 0, 0, 0, 0];
        for (lba, blocks, status) in [(2, 2, 0), (4, 2, 1), (6, 1, 0)] {
            expected.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, lba, 0, 0, 0, blocks, status]);
            expected.extend_from_slice(&[0, 0, 0]);
        }
        assert_eq!(out, expected);
        let mut short = Vec::new();
        lba_status(&unit(), 2 * 512, extents, 24, &mut short);
        assert_eq!(short, expected[1..25]);
        let mut thick = unit();
        thick.thin = false;
        let mut out = Vec::new();
        lba_status(&thick, 0, extents, 1 << 10, &mut out);
        assert_eq!((out.len(), out[19], out[20]), (24, 5, 0));
    }

    #[test]
    fn more_blocks_than_a_descriptor_counts_end_the_list() {
        let mut unit = unit();
        unit.block_count = 1 << 40;
        let mut out = Vec::new();
        let extents = [(1 << 50, true), (512, false)];
        lba_status(&unit, 0, extents, 1 << 10, &mut out);
        assert_eq!(out.len(), 24);
        assert_eq!(out[16..21], [0xff, 0xff, 0xff, 0xff, 0]);
    }
}
