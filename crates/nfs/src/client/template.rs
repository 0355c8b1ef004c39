//! A COMPOUND that is sent over and over, written once.

use super::Slot;
use super::compound::{CallData, Places};

/// A record of which only the slot and the place in a file change.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    places: Places,
    pub(super) data: CallData,
}

impl Template {
    pub(super) fn new(bytes: Vec<u8>, places: Places, data: CallData) -> Template {
        Template {
            bytes,
            places,
            data,
        }
    }

    /// Where data that has memory of its own stands.
    #[inline]
    pub(super) fn payload_at(&self) -> u32 {
        self.places.payload.unwrap_or(self.bytes.len() as u32)
    }

    /// Appends the record.
    #[inline]
    pub(super) fn write(&self, to: &mut Vec<u8>, slot: Slot, offset: u64) {
        let begin = to.len();
        to.extend_from_slice(&self.bytes);
        let record = &mut to[begin..];
        if let Some(at) = self.places.sequence {
            let at = at as usize;
            record[at..at + 4].copy_from_slice(&slot.sequenceid.to_be_bytes());
            record[at + 4..at + 8].copy_from_slice(&slot.slotid.to_be_bytes());
        }
        if let Some(at) = self.places.offset {
            let at = at as usize;
            record[at..at + 8].copy_from_slice(&offset.to_be_bytes());
        }
    }
}
