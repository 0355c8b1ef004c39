//! What a machine writes as a stream of bytes, as PDUs again.

use std::ops::Range;

use iwarp::{DataPart, OWN_BYTES, Qp, Work};
use machine::{PAD_MAX, Tag, Tail, Transmit, crc32c};
use wire::iscsi::{BHS_LEN, Bhs, opcode, padded};
use wire::iser::{ISER_HEADER_LEN, IserHeader, iser_first};
use zerocopy::{FromBytes, IntoBytes};

use super::HEAD_LEN;

/// Things that are gathered at a time.
const GATHERED_MAX: usize = 32;
/// Bytes of a PDU without payload that a machine writes at a time.
const HEADER_ROOM: usize = 16 << 10;

/// A thing that a machine has written.
#[derive(Clone, Debug)]
pub(super) enum Gathered {
    /// A PDU.
    Pdu { bhs: Bhs, data: PduData },
    /// Nothing names a tag any more.
    Release(Tag),
}

impl Gathered {
    /// Whether it is a Send: Data-In and R2T are none.
    pub(super) fn is_send(&self) -> bool {
        let is_moved = |bhs: &Bhs| matches!(bhs.opcode(), opcode::DATA_IN | opcode::R2T);
        matches!(self, Gathered::Pdu { bhs, .. } if !is_moved(bhs))
    }

    /// The tag that nothing names any more.
    pub(super) fn released(&self) -> Option<Tag> {
        match self {
            Gathered::Release(tag) => Some(*tag),
            Gathered::Pdu { .. } => None,
        }
    }
}

/// The data segment of a PDU.
#[derive(Clone, Debug)]
pub(super) enum PduData {
    /// Bytes of [`Gather::own`].
    Own(Range<usize>),
    /// Data of a command.
    Of(DataPart),
}

impl PduData {
    /// As the stream names it.
    pub(super) fn part(&self) -> DataPart {
        match self {
            PduData::Own(range) => DataPart {
                tag: OWN_BYTES,
                offset: range.start as u32,
                len: range.len() as u32,
            },
            PduData::Of(part) => *part,
        }
    }
}

/// PDUs that a machine writes.
#[derive(Debug, Default)]
pub(super) struct Gather {
    /// In order.
    pub(super) all: Vec<Gathered>,
    /// Data segments that are the machine's own bytes, one behind the other.
    pub(super) own: Vec<u8>,
    /// The PDU of which something is to come, its headers first.
    partial: Vec<u8>,
}

impl Gather {
    /// Everything before was sent.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.own.clear();
    }

    fn bhs(&self) -> Bhs {
        Bhs::read_from_prefix(&self.partial)
            .expect("a header comes whole")
            .0
    }
}

impl Transmit for Gather {
    fn has_room(&self) -> bool {
        self.all.len() < GATHERED_MAX
    }

    fn header_room(&self) -> usize {
        HEADER_ROOM
    }

    /// A header alone has its data behind it as payload, or none; another comes with its data.
    fn header(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
        let bhs = self.bhs();
        let len = bhs.data_segment_length.get();
        let comes_apart = self.partial.len() == BHS_LEN && len > 0;
        if comes_apart || self.partial.len() < BHS_LEN + padded(len) as usize {
            return;
        }
        let at = self.own.len();
        let data = BHS_LEN..BHS_LEN + len as usize;
        self.own.extend_from_slice(&self.partial[data]);
        let data = PduData::Own(at..self.own.len());
        self.all.push(Gathered::Pdu { bhs, data });
        self.partial.clear();
    }

    fn payload(&mut self, tag: Tag, offset: u32, len: u32, _: Tail) {
        let data = PduData::Of(DataPart { tag, offset, len });
        let bhs = self.bhs();
        self.all.push(Gathered::Pdu { bhs, data });
        self.partial.clear();
    }

    fn release(&mut self, tag: Tag) {
        self.all.push(Gathered::Release(tag));
    }
}

/// A batch into which the stream puts what it sends of what was gathered: bytes of the
/// machine are bytes there too.
pub(super) struct GatheredBatch<'a, T, F> {
    pub(super) out: &'a mut T,
    /// What [`OWN_BYTES`] names.
    pub(super) own: &'a [u8],
    /// Whether the driver is told of a tag whose last byte is named.
    pub(super) on_release: F,
}

impl<T: Transmit, F: FnMut(Tag) -> bool> Transmit for GatheredBatch<'_, T, F> {
    fn has_room(&self) -> bool {
        self.out.has_room()
    }

    fn header_room(&self) -> usize {
        self.out.header_room()
    }

    fn header(&mut self, bytes: &[u8]) {
        self.out.header(bytes);
    }

    fn payload(&mut self, tag: Tag, offset: u32, len: u32, tail: Tail) {
        if tag != OWN_BYTES {
            return self.out.payload(tag, offset, len, tail);
        }
        let bytes = &self.own[offset as usize..(offset + len) as usize];
        let pad = &[0; PAD_MAX][..usize::from(tail.pad)];
        self.out.header(bytes);
        self.out.header(pad);
        if let Some(seed) = tail.digest {
            let crc = crc32c(pad, crc32c(bytes, seed));
            self.out.header(&crc.to_le_bytes());
        }
    }

    fn release(&mut self, tag: Tag) {
        if (self.on_release)(tag) {
            self.out.release(tag);
        }
    }
}

/// The header of a PDU without memory.
pub(super) fn control() -> IserHeader {
    IserHeader {
        first: iser_first::CONTROL,
        ..IserHeader::default()
    }
}

/// Posts a Send of both headers and `data`, at whose end the batch is told of `release`. It
/// invalidates an STag of the peer or none.
pub(super) fn send(
    qp: &mut Qp,
    (iser, bhs): (&IserHeader, &Bhs),
    data: &PduData,
    (invalidate, release): (Option<u32>, Option<Tag>),
) {
    let mut head = [0; HEAD_LEN];
    head[..ISER_HEADER_LEN].copy_from_slice(iser.as_bytes());
    head[ISER_HEADER_LEN..].copy_from_slice(bhs.as_bytes());
    qp.post(Work::Send {
        head: &head,
        body: data.part(),
        invalidate,
        is_solicited: true,
        release,
    });
}
