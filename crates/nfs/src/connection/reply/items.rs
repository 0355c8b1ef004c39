//! Data of results that RDMA may place by itself (RFC 8267, sections 4 and 6.1), and what of
//! a message is left beside it.

use iwarp::DataPart;
use wire::rpc::RecordMark;
use wire::xdr::pad;

use super::{Reply, ReplyPart};

/// Data of a result: payload, or bytes among the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct DataItem {
    pub(super) at: u32,
    len: u32,
    /// It goes to memory of its own.
    is_placed: bool,
    /// Where it lies among the bytes that were cut out, if it is bytes.
    tail_at: u32,
}

/// Data that goes to memory of its own.
#[derive(Clone, Copy, Debug)]
pub(in crate::connection) struct PlacedItem {
    pub(in crate::connection) payload: Option<DataPart>,
    pub(in crate::connection) tail_at: u32,
    pub(in crate::connection) len: u32,
}

impl From<&ReplyPart> for DataPart {
    fn from(part: &ReplyPart) -> DataPart {
        DataPart {
            tag: part.tag,
            offset: part.offset,
            len: part.len,
        }
    }
}

fn padded(len: u32) -> u32 {
    len + pad(len as usize) as u32
}

impl Reply {
    /// The `len` bytes or the payload of so many bytes that are appended next are data of a
    /// result that RDMA may place.
    #[inline]
    pub fn data_item(&mut self, len: u32) {
        self.add_item(self.bytes.len() as u32, len);
    }

    /// The last `len` bytes, behind which padding stands, are such data.
    pub fn data_item_behind(&mut self, len: u32) {
        self.add_item(self.bytes.len() as u32 - padded(len), len);
    }

    fn add_item(&mut self, at: u32, len: u32) {
        self.items.push(DataItem {
            at,
            len,
            is_placed: false,
            tail_at: 0,
        });
    }

    /// The bytes of the message, without its mark.
    pub(in crate::connection) fn message(&self) -> &[u8] {
        self.bytes.get(RecordMark::LEN..).unwrap_or_default()
    }

    /// A word of the message.
    pub(in crate::connection) fn word(&self, index: usize) -> u32 {
        let at = index * size_of::<u32>();
        let word = self.message()[at..].first_chunk();
        u32::from_be_bytes(*word.expect("a message has xid and type"))
    }

    /// Nothing of the message goes out.
    pub(in crate::connection) fn clear(&mut self) {
        self.empty();
    }

    /// `places` says which items go to memory of their own, by their index and length.
    pub(in crate::connection) fn place_items(
        &mut self,
        mut places: impl FnMut(usize, u32) -> bool,
    ) {
        for (index, item) in self.items.iter_mut().enumerate() {
            item.is_placed = places(index, item.len);
        }
    }

    /// Bytes of an item that goes to memory of its own; of another none.
    pub(in crate::connection) fn placed_bytes(&self, index: usize) -> u32 {
        let item = self.items.get(index).filter(|item| item.is_placed);
        item.map_or(0, |item| item.len)
    }

    /// The items that go to memory of their own, with their index.
    pub(in crate::connection) fn placed_items(&self) -> impl Iterator<Item = (usize, PlacedItem)> {
        let items = self.items.iter().enumerate();
        let placed = items.filter(|(_, item)| item.is_placed && item.len > 0);
        placed.map(|(index, item)| {
            let payload = self.part_of(item).map(DataPart::from);
            let (tail_at, len) = (item.tail_at, item.len);
            (
                index,
                PlacedItem {
                    payload,
                    tail_at,
                    len,
                },
            )
        })
    }

    fn part_of(&self, item: &DataItem) -> Option<&ReplyPart> {
        let mut parts = self.parts.iter();
        parts.find(|part| part.at == item.at && part.len == item.len)
    }

    pub(super) fn is_placed(&self, part: &ReplyPart) -> bool {
        let mut items = self.items.iter().filter(|item| item.is_placed);
        items.any(|item| item.at == part.at && item.len == part.len)
    }

    /// Payload that does not go to memory of its own, and where in the message it stands.
    pub(in crate::connection) fn unplaced_parts(&self) -> impl Iterator<Item = (u32, DataPart)> {
        let parts = self.parts.iter().filter(|part| !self.is_placed(part));
        parts.map(|part| (part.at - RecordMark::LEN as u32, part.into()))
    }

    pub(in crate::connection) fn has_unplaced_payload(&self) -> bool {
        self.unplaced_parts().next().is_some()
    }

    /// Bytes of the message without what goes to memory of its own.
    pub(in crate::connection) fn unplaced_bytes(&self) -> u32 {
        let payload = self.unplaced_parts().map(|(_, part)| padded(part.len));
        let cut = self.items.iter().filter(|item| item.is_placed);
        let cut = cut.filter(|item| self.part_of(item).is_none());
        let cut: u32 = cut.map(|item| padded(item.len)).sum();
        self.message().len() as u32 + payload.sum::<u32>() - cut
    }

    /// Moves bytes that go to memory of their own to `tail`.
    pub(in crate::connection) fn cut_items(&mut self, tail: &mut Vec<u8>) {
        for index in 0..self.items.len() {
            let item = self.items[index];
            if !item.is_placed || item.len == 0 || self.part_of(&item).is_some() {
                continue;
            }
            self.items[index].tail_at = tail.len() as u32;
            let (begin, cut) = (item.at as usize, padded(item.len));
            tail.extend_from_slice(&self.bytes[begin..begin + item.len as usize]);
            self.bytes.drain(begin..begin + cut as usize);
            let behind = self.items.iter_mut().map(|item| &mut item.at);
            let behind = behind.chain(self.parts.iter_mut().map(|part| &mut part.at));
            behind.filter(|at| **at > item.at).for_each(|at| *at -= cut);
        }
    }
}
