//! What passes on a connection by TLS, as one sees it who reads along and has no key.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher as _};

use wire::rpc::RecordMark;

/// Bytes of a record's header: type, version, length.
const HEADER_BYTES: usize = 5;
/// The types of records: change_cipher_spec, alert, handshake, application_data (RFC 8446,
/// section 5.1).
const TYPES: std::ops::RangeInclusive<u8> = 20..=23;
const APPLICATION_DATA: u8 = 23;

/// What one side has sent.
#[derive(Default)]
pub struct RecordWatch {
    /// Of a record that is not whole.
    bytes: Vec<u8>,
    /// Records under keys, as digests.
    seen: HashSet<u64>,
    /// A record of RPC comes first, in the clear.
    awaits_call: bool,
    /// It is no TLS: another began so, who speaks none.
    is_plain: bool,
}

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFault {
    /// It is none.
    InTheClear,
    /// Another one was the same: their keys and nonces are, and what they say.
    Twice,
}

impl RecordWatch {
    /// Of a side that asks for TLS by a call of RPC, or answers it, and speaks TLS then.
    pub fn behind_a_call() -> RecordWatch {
        RecordWatch {
            awaits_call: true,
            ..RecordWatch::default()
        }
    }

    /// Passes over the record of RPC; false: it is not all here.
    fn take_call(&mut self) -> bool {
        let Some(mark) = self.bytes.first_chunk() else {
            return false;
        };
        let end = RecordMark::LEN + RecordMark::decode(*mark).len as usize;
        let is_whole = self.bytes.len() >= end;
        if is_whole {
            self.bytes.drain(..end);
            self.awaits_call = false;
        }
        is_whole
    }

    /// Takes what was sent. What is no TLS from its first byte on may be what a side sends that
    /// speaks none; `always` where it does.
    pub fn take(&mut self, bytes: &[u8], always: bool) -> Result<(), RecordFault> {
        if self.is_plain {
            return Ok(());
        }
        self.bytes.extend_from_slice(bytes);
        if self.awaits_call && !self.take_call() {
            return Ok(());
        }
        let mut at = 0;
        while let Some(header) = self.bytes[at..].first_chunk::<HEADER_BYTES>() {
            let [kind, major, _, high, low] = *header;
            if !TYPES.contains(&kind) || major != 3 {
                let is_first = at == 0 && self.seen.is_empty();
                self.is_plain = is_first && !always;
                return match self.is_plain {
                    true => Ok(()),
                    false => Err(RecordFault::InTheClear),
                };
            }
            let end = at + HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
            let Some(record) = self.bytes.get(at..end) else {
                break;
            };
            if kind == APPLICATION_DATA {
                let mut hasher = DefaultHasher::new();
                hasher.write(record);
                if !self.seen.insert(hasher.finish()) {
                    return Err(RecordFault::Twice);
                }
            }
            at = end;
        }
        self.bytes.drain(..at);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_that_comes_twice_is_seen() {
        let mut watch = RecordWatch::default();
        let record = [23, 3, 3, 0, 2, 7, 8];
        for byte in record {
            assert_eq!(watch.take(&[byte], true), Ok(()));
        }
        assert_eq!(watch.take(&[23, 3, 3, 0, 1, 7], true), Ok(()));
        assert_eq!(watch.take(&record, true), Err(RecordFault::Twice));
    }

    #[test]
    fn plain_bytes_are_seen_where_there_may_be_none() {
        let plain = [0, 0, 128, 0, 128];
        assert_eq!(RecordWatch::default().take(&plain, false), Ok(()));
        let told = RecordWatch::default().take(&plain, true);
        assert_eq!(told, Err(RecordFault::InTheClear));
        let mut watch = RecordWatch::default();
        assert_eq!(watch.take(&[23, 3, 3, 0, 1, 7], false), Ok(()));
        assert_eq!(watch.take(&plain, false), Err(RecordFault::InTheClear));
    }
}
