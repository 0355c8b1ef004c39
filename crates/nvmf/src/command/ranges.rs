//! Commands whose data is a table of ranges.

use wire::nvme::{CopySource, DsmRange, Status};
use zerocopy::FromBytes;

use super::{COPY_BYTES_MAX, COPY_RANGE_BYTES_MAX, Geometry, Io, find};

/// The byte ranges of a [`IoKind::Deallocate`](super::IoKind) command, from the first
/// [`Io::len`] bytes of its data; LBA Out of Range for one that does not lie
/// in the namespace (NVM Command Set 1.0, section 3.2.3).
pub fn deallocate_ranges<'a>(
    data: &'a [u8],
    geometry: &'a Geometry,
) -> impl Iterator<Item = Result<(u64, u64), Status>> + 'a {
    data.chunks_exact(size_of::<DsmRange>()).map(|bytes| {
        let range = DsmRange::read_from_bytes(bytes).expect("a chunk is one range");
        let (slba, blocks) = (range.slba.get(), u64::from(range.length_blocks.get()));
        match slba.checked_add(blocks) {
            Some(end) if end <= geometry.block_count => {
                Ok((slba << geometry.block_shift, blocks << geometry.block_shift))
            }
            _ => Err(Status::LBA_OUT_OF_RANGE.dnr()),
        }
    })
}

/// One source range of a [`IoKind::Copy`](super::IoKind).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRange {
    /// Index of the source namespace.
    pub namespace: u32,
    /// First byte on its media.
    pub offset: u64,
    /// Bytes: at most [`COPY_RANGE_BYTES_MAX`], never 0.
    pub len: u64,
}

/// Bytes of a source range entry: formats 1h and 3h have room for longer
/// protection information.
pub(super) const fn copy_entry_bytes(format: u8) -> usize {
    if format & 1 == 0 { 32 } else { 40 }
}

/// The source ranges of a [`IoKind::Copy`](super::IoKind), from the first
/// [`Io::len`] bytes of its data, into `out`; returns their bytes together. All
/// of them, and the destination, are checked before any is given (NVM Command
/// Set 1.0, section 3.2.2; formats 2h and 3h: 1.1, section 3.3.2).
///
/// # Errors
/// What the command is to be answered with.
pub fn copy_ranges(
    data: &[u8],
    io: &Io,
    namespaces: &[Geometry],
    out: &mut Vec<CopyRange>,
) -> Result<u64, Status> {
    out.clear();
    let to = &namespaces[io.namespace as usize];
    let mut total = 0;
    for entry in data.chunks_exact(copy_entry_bytes(io.copy_format)) {
        let (entry, _) = CopySource::ref_from_prefix(entry).expect("a chunk is one entry");
        let namespace = match io.copy_format {
            0 | 1 => io.namespace,
            _ => find(namespaces, entry.snsid.get()).ok_or(Status::INVALID_NAMESPACE.dnr())?,
        };
        let from = &namespaces[namespace as usize];
        from.admits(false)?;
        if from.block_shift != to.block_shift {
            return Err(Status::INCOMPATIBLE_NAMESPACE.dnr());
        }
        let (slba, blocks) = (entry.slba.get(), u64::from(entry.nlb.get()) + 1);
        let len = blocks << from.block_shift;
        total += len;
        if len > COPY_RANGE_BYTES_MAX || total > COPY_BYTES_MAX {
            return Err(Status::COMMAND_SIZE_LIMIT.dnr());
        }
        let end = slba.checked_add(blocks);
        if end.is_none_or(|end| end > from.block_count) {
            return Err(Status::LBA_OUT_OF_RANGE.dnr());
        }
        let offset = slba << from.block_shift;
        out.push(CopyRange {
            namespace,
            offset,
            len,
        });
    }
    let end = io.offset + total;
    if end > to.block_count << to.block_shift {
        return Err(Status::LBA_OUT_OF_RANGE.dnr());
    }
    // What was written must not be read again as a source.
    let overlaps = |range: &CopyRange| {
        let is_apart = range.offset + range.len <= io.offset || end <= range.offset;
        range.namespace == io.namespace && !is_apart
    };
    if out.iter().any(overlaps) {
        return Err(Status::OVERLAPPING_RANGE.dnr());
    }
    Ok(total)
}
