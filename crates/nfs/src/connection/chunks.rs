//! What a call says of its requester's memory: chunks to read arguments from, to write results
//! to, and to write all of the answer to.

use machine::Tag;
use wire::rpc_rdma::{CHUNK_SEGMENTS_MAX, rpc_rdma_header, xdr_rdma_segment};
use wire::xdr::{Decode, Reader, pad};

use super::reply::Refusal;

/// A chunk of a call with fewer bytes is put in its place before the call is read: the text
/// of a symbolic link is no longer, and memory of its own is not worth its trouble.
const DATA_BYTES_MIN: u64 = 4096;

/// Which chunks lists have, and what they come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CheckedLists {
    /// Bytes of chunks that are read before the call is.
    pub(super) spliced_bytes: u32,
    /// Bytes of the others: data of WRITEs.
    pub(super) data_bytes: u32,
    /// The only handle in all lists.
    pub(super) handle: Option<u32>,
}

/// Checks the lists of a call: what they have to be read is no more than `read_bytes_max`.
/// `None`: they cannot be used.
pub(super) fn check(lists: &rpc_rdma_header<'_>, read_bytes_max: u32) -> Option<CheckedLists> {
    let mut handles = Handles::default();
    let mut checked = CheckedLists::default();
    let mut left = read_bytes_max;
    let mut segments = 0;
    for (index, read) in lists.rdma_reads.iter().enumerate() {
        segments += 1;
        if segments > CHUNK_SEGMENTS_MAX as usize || read.position % 4 != 0 {
            return None;
        }
        handles.note(&read.target)?;
        left = left.checked_sub(read.target.length)?;
        let mut before = lists.rdma_reads.iter().take(index);
        if before.any(|other| other.position == read.position) {
            continue;
        }
        let bytes = chunk_bytes(lists, read.position);
        let sum = match is_spliced(read.position, bytes) {
            true => &mut checked.spliced_bytes,
            false => &mut checked.data_bytes,
        };
        *sum = sum.checked_add(u32::try_from(bytes).ok()?)?;
    }
    let written = || {
        let chunks = lists.rdma_writes.iter().chain(lists.rdma_reply);
        chunks.flat_map(|chunk| chunk.target.iter())
    };
    for (index, segment) in written().enumerate() {
        segments += 1;
        if segments > CHUNK_SEGMENTS_MAX as usize {
            return None;
        }
        handles.note(&segment)?;
        if written().take(index).any(|other| overlap(&segment, &other)) {
            return None;
        }
    }
    checked.handle = handles.only();
    Some(checked)
}

/// Whether two segments, which do not wrap, have bytes in common.
fn overlap(one: &xdr_rdma_segment, other: &xdr_rdma_segment) -> bool {
    let end = |segment: &xdr_rdma_segment| segment.offset + u64::from(segment.length);
    let is_apart = end(one) <= other.offset || end(other) <= one.offset;
    let is_empty = one.length == 0 || other.length == 0;
    one.handle == other.handle && !is_apart && !is_empty
}

/// Which handles there are: none, one, or several.
#[derive(Default)]
struct Handles {
    first: Option<u32>,
    are_several: bool,
}

impl Handles {
    /// Notes that of a segment; `None`: it wraps.
    fn note(&mut self, segment: &xdr_rdma_segment) -> Option<()> {
        segment.offset.checked_add(segment.length.into())?;
        let first = *self.first.get_or_insert(segment.handle);
        self.are_several |= first != segment.handle;
        Some(())
    }

    fn only(&self) -> Option<u32> {
        self.first.filter(|_| !self.are_several)
    }
}

/// Bytes of the chunk to be read at a position.
fn chunk_bytes(lists: &rpc_rdma_header<'_>, position: u32) -> u64 {
    let reads = lists.rdma_reads.iter();
    let here = reads.filter(|read| read.position == position);
    here.map(|read| u64::from(read.target.length)).sum()
}

/// Whether a chunk is put in its place before the call is read. That at position 0 is the
/// call (RFC 8166, section 3.5.3).
fn is_spliced(position: u32, bytes: u64) -> bool {
    position == 0 || bytes < DATA_BYTES_MIN
}

/// The chunks of a message, as far as they have come.
#[derive(Debug, Default)]
pub(super) struct CallChunks {
    /// The chunk lists as they came; empty: there are none.
    lists: Vec<u8>,
    /// The message has taken a receive, which another may have when it is over.
    pub(super) has_receive: bool,
    /// Bytes of the Send and of chunks that no memory was asked for.
    pub(super) held_bytes: u32,
    /// A handle that the answer invalidates.
    pub(super) invalidates: Option<u32>,
    /// Bytes of data whose place in the call was not found yet.
    unfound_bytes: u32,
    /// What is to be read, or waits for memory before it is.
    pub(super) missing: u32,
    /// The call was walked, and only the data is missing.
    pub(super) is_walked: bool,
    /// Why the call is not executed.
    pub(super) refusal: Option<Refusal>,
    /// The Send, while it waits for chunks, and where the message begins in it.
    pub(super) send: (Vec<u8>, usize),
    /// What was read of those chunks, in the order of their positions.
    pub(super) spliced: Vec<u8>,
    /// What goes to the client before and beside the bytes of its answer.
    pub(super) frame: Frame,
}

/// What goes to the client before and beside the bytes of a message.
#[derive(Debug, Default)]
pub(super) struct Frame {
    /// The header of RPC-over-RDMA.
    pub(super) head: Vec<u8>,
    /// Bytes for chunks that are not among those of the message.
    pub(super) tail: Vec<u8>,
    /// The message goes to the chunk for the answer.
    pub(super) is_long: bool,
}

impl CallChunks {
    /// Those of a call, which were checked.
    pub(super) fn set(&mut self, lists: &[u8], checked: &CheckedLists) {
        self.lists.extend_from_slice(lists);
        self.unfound_bytes = checked.data_bytes;
    }

    pub(super) fn lists(&self) -> Option<rpc_rdma_header<'_>> {
        rpc_rdma_header::decode(&mut Reader::new(&self.lists)).ok()
    }

    /// Whether data was announced that stands nowhere in the call.
    pub(super) fn has_unfound(&self) -> bool {
        self.unfound_bytes > 0
    }

    /// Whether the call has data that has not come. It goes on when that has.
    pub(super) fn awaits_data(&mut self) -> bool {
        self.is_walked = self.missing > 0;
        self.is_walked
    }

    /// Whether data lies in a chunk that stands at `position` of the call; then its bytes, if
    /// they are those of an argument of `len` bytes.
    #[inline]
    pub(super) fn find(&self, position: u32, len: u32) -> Option<Option<u32>> {
        match self.unfound_bytes {
            0 => None,
            _ => self.find_data(position, len),
        }
    }

    fn find_data(&self, position: u32, len: u32) -> Option<Option<u32>> {
        let bytes = chunk_bytes(&self.lists()?, position);
        if is_spliced(position, bytes) {
            return None;
        }
        // With padding or without (RFC 8166, section 3.4.5.2).
        let padded = u64::from(len) + pad(len as usize) as u64;
        let is_right = bytes == u64::from(len) || bytes == padded;
        Some(is_right.then_some(bytes as u32))
    }

    /// Data of so many bytes was found, and waits for memory.
    pub(super) fn found(&mut self, bytes: u32) {
        self.unfound_bytes -= bytes;
        self.missing += 1;
    }

    /// Whether the call itself lies in a chunk.
    pub(super) fn is_long(&self) -> bool {
        let reads = self.lists().map(|lists| lists.rdma_reads);
        reads.is_some_and(|reads| reads.iter().any(|read| read.position == 0))
    }

    /// The segments of the data at `position`.
    pub(super) fn segments(&self, position: u32) -> impl Iterator<Item = xdr_rdma_segment> {
        let reads = self
            .lists()
            .into_iter()
            .flat_map(|lists| lists.rdma_reads.iter());
        let here = reads.filter(move |read| read.position == position);
        here.map(|read| read.target)
    }

    /// The lowest position behind `position` that has a chunk which is put in its place first.
    pub(super) fn next_spliced(&self, position: Option<u32>) -> Option<u32> {
        self.next(position, true)
    }

    fn next(&self, after: Option<u32>, only_spliced: bool) -> Option<u32> {
        let lists = self.lists()?;
        let reads = lists.rdma_reads.iter().map(|read| read.position);
        let behind = reads.filter(|position| after.is_none_or(|after| *position > after));
        let wanted = behind.filter(|position| {
            !only_spliced || is_spliced(*position, chunk_bytes(&lists, *position))
        });
        wanted.min()
    }

    /// Puts what was read in its places: the call, and where it begins. `None`: it has no such
    /// places.
    pub(super) fn assemble(&mut self) -> Option<(Vec<u8>, usize)> {
        let (mut call, begin) = std::mem::take(&mut self.send);
        let spliced = std::mem::take(&mut self.spliced);
        if self.is_long() && self.next_spliced(Some(0)).is_none() {
            return Some((spliced, 0));
        }
        let lists = self.lists()?;
        let (mut taken, mut data_bytes) = (0, 0);
        let mut last = None;
        while let Some(position) = self.next(last, false) {
            last = Some(position);
            let bytes = chunk_bytes(&lists, position) as usize;
            let padded = bytes + pad(bytes);
            if !is_spliced(position, bytes as u64) {
                data_bytes += padded;
                continue;
            }
            let at = begin + (position as usize).checked_sub(data_bytes)?;
            if at > call.len() {
                return None;
            }
            let rest = call.split_off(at);
            call.extend_from_slice(&spliced[taken..taken + bytes]);
            call.extend_from_slice(&[0; 3][..pad(bytes)]);
            call.extend_from_slice(&rest);
            taken += bytes;
        }
        Some((call, begin))
    }

    /// For another message; of its buffers stays what `trim` leaves.
    pub(super) fn reset(&mut self, trim: impl Fn(&mut Vec<u8>)) {
        let Frame { head, tail, .. } = &mut self.frame;
        if self.lists.is_empty() && head.is_empty() {
            return;
        }
        [&mut self.lists, head, tail].into_iter().for_each(trim);
        self.frame.is_long = false;
        *self = CallChunks {
            lists: std::mem::take(&mut self.lists),
            frame: std::mem::take(&mut self.frame),
            ..CallChunks::default()
        };
    }
}

/// Memory that is read into once it is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct AwaitedMemory {
    pub(super) tag: Tag,
    pub(super) call: Tag,
    /// For this data; else for the chunks that are put in their places.
    pub(super) data: Option<AwaitedData>,
}

/// Data of a WRITE that lies in a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct AwaitedData {
    /// Of the chunk.
    pub(super) position: u32,
    /// Bytes, without padding.
    pub(super) len: u32,
    /// Where the file handle of the WRITE lies, if it is known, and its length.
    pub(super) handle: Option<(u32, u32)>,
}
