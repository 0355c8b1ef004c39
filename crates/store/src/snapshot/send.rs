//! A snapshot to another machine: all of it, or what has changed since an earlier one.

use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::changes::{ChangedRange, ChangedRanges, DataFile};
use super::folder::{DATA, open_regular};
use super::record::SnapshotRecord;
use super::stream::{DATA_BYTES_MAX, StreamHeader, StreamWriter};
use super::{SnapshotError, SnapshotVolume};
use crate::{Range, Volume};

/// A snapshot, and what it may be compared with, while they are looked at. Both stay until
/// this is dropped, whatever is removed meanwhile.
pub struct SnapshotSource {
    header: StreamHeader,
    record: SnapshotRecord,
    data: DataFile,
    since: Option<DataFile>,
}

impl SnapshotSource {
    /// Opens the snapshot of that name, to be compared with the one called `since`; blocks.
    ///
    /// # Errors
    /// One of them is not there, or damaged.
    pub fn open(
        volume: &dyn Volume,
        name: &str,
        since: Option<&str>,
    ) -> Result<SnapshotSource, SnapshotError> {
        let part = SnapshotVolume::try_of(volume)?;
        let _changing = part.change();
        let (record, data) = open_one(&part, name)?;
        let since = since.map(|since| open_one(&part, since)).transpose()?;
        let uuid = volume.info().uuid;
        let header = StreamHeader {
            volume: uuid,
            snapshot: record.uuid(uuid),
            since: since.as_ref().map(|(record, _)| record.uuid(uuid)),
            size_bytes: record.size_bytes,
            block_bytes: record.block_bytes,
            taken_unix_ms: record.taken_unix_ms,
            from: 0,
            name: name.to_owned(),
        };
        Ok(SnapshotSource {
            header,
            record,
            data,
            since: since.map(|(_, data)| data),
        })
    }

    /// What the volume had.
    pub fn size_bytes(&self) -> u64 {
        self.header.size_bytes
    }

    /// Ranges behind `from` that may hold what the other does not, in order: more than differ,
    /// never less. Compared with none, what has space. Blocks.
    pub fn changes(&self, from: u64) -> impl Iterator<Item = io::Result<ChangedRange>> {
        ChangedRanges::new(&self.data, self.since.as_ref(), from)
    }

    /// Writes all of that from byte `from` on as a stream; blocks.
    ///
    /// # Errors
    /// The data cannot be read, or the stream not written: what was written of it is no whole
    /// one.
    pub fn send(&self, from: u64, out: impl Write) -> io::Result<()> {
        let header = StreamHeader {
            from,
            ..self.header.clone()
        };
        let mut stream = StreamWriter::new(out, &header)?;
        for range in self.record.unreadable() {
            stream.unreadable(range)?;
        }
        for changed in self.changes(from) {
            let ChangedRange { range, is_zeros } = changed?;
            if is_zeros {
                stream.zeros(range)?;
                continue;
            }
            let end = range.offset + range.len;
            for offset in (range.offset..end).step_by(DATA_BYTES_MAX) {
                let len = (end - offset).min(DATA_BYTES_MAX as u64);
                let read = |bytes: &mut [u8]| self.data.file.read_exact_at(bytes, offset);
                stream.data(Range { offset, len }, read)?;
            }
        }
        stream.end()
    }
}

/// A snapshot that is as it was made.
fn open_one(
    part: &SnapshotVolume<'_>,
    name: &str,
) -> Result<(SnapshotRecord, DataFile), SnapshotError> {
    part.expect(name)?;
    let damaged = |why| SnapshotError::Damaged(part.name(), name.to_owned(), why);
    let record = part.whole(name).map_err(damaged)?;
    let data = open_data(part.folder()?, name).and_then(DataFile::new);
    let action = format!("read the snapshot \"{name}\"");
    Ok((record, data.map_err(part.system(action))?))
}

pub(super) fn open_data(folder: &Path, name: &str) -> io::Result<std::fs::File> {
    open_regular(&folder.join(name).join(DATA))
}
