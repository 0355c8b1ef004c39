//! The stream of a snapshot: whatever comes in it, what is told is in order and within the
//! volume, and a stream that is not as it was sent is an error.
//!
//! An input is a mode and records. The stream is the bytes as they are, or one with these
//! records, whose checksums are right, or one that is right but for what the records change.

use store::Range;
use store::snapshot::{StreamError, StreamHeader, StreamReader, StreamRecord, StreamWriter};
use uuid::Uuid;

use super::records;

const SIZE_BYTES: u64 = 1 << 20;
/// Bytes of a header with its checksum.
const HEADER_BYTES: usize = 156;

fn header(from: u64) -> StreamHeader {
    StreamHeader {
        volume: Uuid::from_u128(1),
        snapshot: Uuid::from_u128(2),
        since: None,
        size_bytes: SIZE_BYTES,
        block_bytes: 512,
        taken_unix_ms: 1,
        from,
        name: "monday".to_owned(),
    }
}

/// The body of the target.
pub fn snapshot_stream(input: &[u8]) {
    let Some((&mode, rest)) = input.split_first() else {
        return;
    };
    match mode % 3 {
        0 => drop(told(rest)),
        1 => drop(told(&written(rest))),
        _ => {
            let whole = written(&[
                0, 4, 0, 1, 0, 1, 0, 1, 4, 0, 9, 0, 5, 0, 2, 4, 0, 99, 0, 9, 0,
            ]);
            let mut changed = whole.clone();
            for (len, record) in records(rest) {
                if let Some((&[low, high], bytes)) = record.split_first_chunk::<2>() {
                    let at = usize::from(u16::from_le_bytes([low, high])) % changed.len();
                    let end = (at + bytes.len()).min(changed.len());
                    changed.splice(at..end, bytes.iter().copied());
                }
                if len & 1 != 0 {
                    changed.truncate(changed.len().saturating_sub(usize::from(len)).max(1));
                }
            }
            assert_eq!(told(&changed).is_ok(), changed == whole);
        }
    }
}

/// A stream with a record for each of the input: its kind, its first block, how many bytes.
fn written(input: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut stream = StreamWriter::new(&mut bytes, &header(0)).expect("room");
    for (mode, record) in records(input) {
        let number = |at| record.get(at).copied().unwrap_or_default();
        let range = Range {
            offset: u64::from(u16::from_le_bytes([number(0), number(1)])) * 512,
            len: u64::from(u16::from_le_bytes([number(2), number(3)])),
        };
        let told = match mode % 3 {
            0 => stream.unreadable(range),
            1 => stream.zeros(range),
            _ => stream.data(range, |room| {
                room.fill(mode);
                Ok(())
            }),
        };
        told.expect("room");
    }
    stream.end().expect("room");
    bytes
}

/// How many records a stream tells.
fn told(bytes: &[u8]) -> Result<usize, StreamError> {
    let mut stream = StreamReader::new(bytes)?;
    let header = stream.header().clone();
    assert!(header.from <= header.size_bytes && bytes.len() >= HEADER_BYTES);
    let (mut reached, mut marked, mut count) = (header.from, 0, 0);
    while let Some(record) = stream.next_record()? {
        let (from, range) = match record {
            StreamRecord::Unreadable(range) => (&mut marked, range),
            StreamRecord::Zeros(range) => (&mut reached, range),
            StreamRecord::Data(offset, data) => {
                let len = data.len() as u64;
                (&mut reached, Range { offset, len })
            }
        };
        assert!(range.offset >= *from && range.len > 0);
        *from = range.offset + range.len;
        assert!(*from <= header.size_bytes);
        count += 1;
    }
    Ok(count)
}
