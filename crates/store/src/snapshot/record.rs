//! What is written down of a snapshot beside its data: text with a checksum.

use std::io;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::stream::StreamHeader;
use crate::{Base, Range, checked_text, identity};

/// First words of a record, with the version of the format.
const MAGIC: &str = "weft-snapshot 1";

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SnapshotRecord {
    /// UUID of the volume that it is of.
    pub(super) volume: String,
    /// Its own, which it keeps where it is received; `None`: it follows from the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uuid: Option<String>,
    pub(super) taken_unix_ms: u64,
    pub(super) size_bytes: u64,
    pub(super) block_bytes: u32,
    /// First byte and number of bytes of each range that was marked.
    unreadable: Vec<(u64, u64)>,
}

impl SnapshotRecord {
    /// Of a volume as it is now.
    pub(super) fn of(base: &Base, unreadable: &[Range]) -> SnapshotRecord {
        let unreadable = unreadable.iter().map(|range| (range.offset, range.len));
        SnapshotRecord {
            volume: base.info.uuid.to_string(),
            uuid: None,
            taken_unix_ms: 0,
            size_bytes: base.size_bytes(),
            block_bytes: base.info.block_bytes,
            unreadable: unreadable.collect(),
        }
    }

    /// One that has come to this volume.
    pub(super) fn received(
        base: &Base,
        header: &StreamHeader,
        unreadable: &[Range],
    ) -> SnapshotRecord {
        SnapshotRecord {
            uuid: Some(header.snapshot.to_string()),
            taken_unix_ms: header.taken_unix_ms,
            size_bytes: header.size_bytes,
            ..SnapshotRecord::of(base, unreadable)
        }
    }

    /// Made now.
    pub(super) fn made(self, taken_unix_ms: u64) -> io::Result<SnapshotRecord> {
        Ok(SnapshotRecord {
            uuid: Some(identity::random_uuid()?.to_string()),
            taken_unix_ms,
            ..self
        })
    }

    /// What no other snapshot has, of this volume or another.
    pub(super) fn uuid(&self, volume: Uuid) -> Uuid {
        let own = self.uuid.as_deref().map(Uuid::try_parse);
        let derived = || identity::of_copy(volume, &format!("snapshot\n{}", self.taken_unix_ms));
        own.and_then(Result::ok).unwrap_or_else(derived)
    }

    pub(super) fn unreadable(&self) -> Vec<Range> {
        let ranges = self.unreadable.iter();
        ranges.map(|&(offset, len)| Range { offset, len }).collect()
    }

    pub(super) fn text(&self) -> String {
        let body = serde_json::to_string(self).expect("plain data becomes JSON");
        checked_text::seal(MAGIC, &(body + "\n"))
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<SnapshotRecord, String> {
        let body = checked_text::unseal(MAGIC, bytes)?;
        serde_json::from_str(body).map_err(|error| format!("is damaged: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_with_a_bit_flipped_anywhere_is_damaged() {
        let record = SnapshotRecord {
            volume: "d0e3a1b2-0000-4000-8000-000000000001".to_owned(),
            uuid: Some("d0e3a1b2-0000-4000-8000-000000000002".to_owned()),
            taken_unix_ms: 1_800_000_000_000,
            size_bytes: 1 << 30,
            block_bytes: 4096,
            unreadable: vec![(0, 4096), (8192, 512)],
        };
        let text = record.text().into_bytes();
        assert_eq!(SnapshotRecord::parse(&text), Ok(record));
        for bit in 0..text.len() * 8 {
            let mut flipped = text.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(SnapshotRecord::parse(&flipped).is_err(), "bit {bit}");
        }
        for len in 0..text.len() {
            assert!(SnapshotRecord::parse(&text[..len]).is_err(), "{len} bytes");
        }
    }
}
