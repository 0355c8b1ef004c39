//! What one send carries.

use crate::sys;
use mem::{Buf, BufRange, Loan};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Pieces in one batch: the kernel's limit on one send.
const BATCH_PIECES_MAX: usize = 1024;
/// A batch takes no more PDUs once it holds this many bytes.
const BATCH_BYTES_MAX: u64 = 1 << 20;
const ARENA_BYTES: usize = 32 << 10;
/// Batches that a driver keeps.
const SPARE_BATCHES_MAX: usize = 64;
/// Pieces that one PDU may take: header, payload (a loan may have many
/// pieces), trailer.
const PDU_PIECES: usize = 2 + mem::LOAN_PIECES_MAX;
/// Header bytes of a lone PDU, at most: a COMPOUND of NFS that reads or writes, as a user of
/// some groups. It is three commands of NVMe as well.
const ONE_PDU_HEADER_BYTES: usize = 256;
/// Header bytes that one PDU may take.
const PDU_HEADER_BYTES: usize = 512;

/// Memory that stays as it is until the kernel is done with a batch.
#[derive(Debug)]
pub enum HeldMemory {
    /// A buffer of a pool.
    Buf(Buf),
    /// Memory that a volume lent.
    Loan(Loan),
}

impl From<Buf> for HeldMemory {
    #[inline]
    fn from(buf: Buf) -> HeldMemory {
        HeldMemory::Buf(buf)
    }
}

impl From<Loan> for HeldMemory {
    #[inline]
    fn from(loan: Loan) -> HeldMemory {
        HeldMemory::Loan(loan)
    }
}

/// A part of what a batch sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchPiece<'a> {
    /// Bytes of the batch's own.
    Header(&'a [u8]),
    /// Memory that stays where it is.
    Payload(BufRange),
}

#[allow(clippy::len_without_is_empty)] // none is empty
impl BatchPiece<'_> {
    /// Bytes.
    #[inline]
    pub fn len(self) -> usize {
        self.address().1
    }

    /// Where it lies.
    #[inline]
    pub(crate) fn address(self) -> (*const u8, usize) {
        match self {
            BatchPiece::Header(bytes) => (bytes.as_ptr(), bytes.len()),
            BatchPiece::Payload(range) => (range.as_ptr().cast_const(), range.len() as usize),
        }
    }
}

/// Payload, and its place among the headers.
struct BatchPayload {
    /// Where the headers before it end.
    header_end: usize,
    range: BufRange,
}

/// Headers (copied into it) and payload (named by handles) that leave with one
/// system call, and the memory that is held until the kernel is done.
pub struct Batch {
    arena: Box<[u8; ARENA_BYTES]>,
    arena_len: usize,
    payloads: Vec<BatchPayload>,
    /// Headers between payloads are one piece.
    pieces: usize,
    held: Vec<HeldMemory>,
    /// Bytes of headers that were sent.
    headers_sent: usize,
    /// The first payload that is not wholly sent.
    next: usize,
    left_bytes: u64,
    /// What is left as the kernel takes it, made when it is about to.
    iovecs: Vec<libc::iovec>,
    message: libc::msghdr,
}

impl Batch {
    /// An empty one; a caller with a driver asks it for one that was used before.
    pub fn new() -> Box<Batch> {
        Box::new(Batch {
            arena: Box::new([0; ARENA_BYTES]),
            arena_len: 0,
            payloads: Vec::with_capacity(BATCH_PIECES_MAX),
            pieces: 0,
            held: Vec::with_capacity(64),
            headers_sent: 0,
            next: 0,
            left_bytes: 0,
            // So that what the kernel is told never moves, and takes no memory then.
            iovecs: Vec::with_capacity(BATCH_PIECES_MAX),
            message: sys::empty_message(),
        })
    }

    /// Whether one more PDU fits: a header, one payload in up to
    /// [`mem::LOAN_PIECES_MAX`] pieces, and a trailer.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.pieces + PDU_PIECES <= BATCH_PIECES_MAX
            && self.arena_len + PDU_HEADER_BYTES <= ARENA_BYTES
            && self.left_bytes < BATCH_BYTES_MAX
    }

    /// Bytes that [`Batch::header`] takes now.
    #[inline]
    pub fn header_room(&self) -> usize {
        ARENA_BYTES - self.arena_len
    }

    /// Appends a copy of `bytes`. Panics where they do not fit.
    #[inline]
    pub fn header(&mut self, bytes: &[u8]) {
        let at = self.arena_len;
        if !bytes.is_empty() && at == self.header_end() {
            self.add_piece();
        }
        self.arena[at..at + bytes.len()].copy_from_slice(bytes);
        self.arena_len += bytes.len();
        self.left_bytes += bytes.len() as u64;
    }

    /// Appends the bytes that `range` names; they are read when they are sent.
    /// Panics where they do not fit.
    #[inline]
    pub fn payload(&mut self, range: BufRange) {
        if range.is_empty() {
            return;
        }
        range.prefetch_rest();
        self.add_piece();
        self.left_bytes += u64::from(range.len());
        self.payloads.push(BatchPayload {
            header_end: self.arena_len,
            range,
        });
    }

    #[inline]
    fn add_piece(&mut self) {
        assert!(self.pieces < BATCH_PIECES_MAX, "batch overflow");
        self.pieces += 1;
    }

    /// Where the headers before the last payload end.
    #[inline]
    fn header_end(&self) -> usize {
        self.payloads.last().map_or(0, |last| last.header_end)
    }

    /// Keeps memory until the kernel is done with the batch.
    #[inline]
    pub fn hold(&mut self, memory: impl Into<HeldMemory>) {
        self.held.push(memory.into());
    }

    /// Whether there is nothing to send.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.left_bytes == 0
    }

    /// Bytes to send.
    #[inline]
    pub fn len_bytes(&self) -> u64 {
        self.left_bytes
    }

    /// All that is left, in order.
    #[inline]
    pub fn pieces_left(&self) -> impl Iterator<Item = BatchPiece<'_>> {
        let mut at = self.headers_sent;
        let mut next = self.next;
        std::iter::from_fn(move || {
            let payload = self.payloads.get(next);
            let end = payload.map_or(self.arena_len, |payload| payload.header_end);
            if at < end {
                let header = BatchPiece::Header(&self.arena[at..end]);
                at = end;
                return Some(header);
            }
            next += 1;
            payload.map(|payload| BatchPiece::Payload(payload.range))
        })
    }

    /// The message of all that is left, valid while the batch stays unchanged.
    #[inline]
    pub(crate) fn message(&mut self) -> *const libc::msghdr {
        let mut iovecs = std::mem::take(&mut self.iovecs);
        iovecs.clear();
        iovecs.extend(self.pieces_left().map(|piece| {
            let (base, len) = piece.address();
            libc::iovec {
                iov_base: base.cast_mut().cast(),
                iov_len: len,
            }
        }));
        self.iovecs = iovecs;
        self.message.msg_iov = self.iovecs.as_mut_ptr();
        self.message.msg_iovlen = self.iovecs.len() as _;
        &raw const self.message
    }

    /// Sends what the kernel takes of it, with a plain system call; its bytes.
    #[inline]
    pub(crate) fn send(&mut self, fd: impl AsFd, flags: i32) -> io::Result<usize> {
        let (fd, flags) = (fd.as_fd().as_raw_fd(), flags | libc::MSG_NOSIGNAL);
        // SAFETY: the message names bytes of the batch, and of regions, which stay mapped.
        sys::check(unsafe { libc::sendmsg(fd, self.message(), flags) })
    }

    /// What the message names that was asked for last, where that is one piece.
    #[inline]
    pub(crate) fn only_piece(&self) -> Option<(*const u8, u32)> {
        match &self.iovecs[..] {
            [piece] => Some((piece.iov_base.cast(), piece.iov_len as u32)),
            _ => None,
        }
    }

    /// Whether the pieces of its payload have at least `min` bytes, taken
    /// together. To be asked before anything of it is sent.
    #[inline]
    pub(crate) fn has_pieces_of(&self, min: u64) -> bool {
        let bytes = self.left_bytes - self.arena_len as u64;
        let payloads = self.payloads.len() as u64;
        payloads > 0 && bytes >= min.saturating_mul(payloads)
    }

    /// Its payload, where that is one piece. To be asked before anything of it
    /// is sent.
    #[inline]
    pub(crate) fn only_payload(&self) -> Option<BufRange> {
        match &self.payloads[..] {
            [only] => Some(only.range),
            _ => None,
        }
    }

    /// Pieces that it had before anything of it was sent.
    pub(crate) fn pieces(&self) -> usize {
        self.pieces
    }

    /// Whether it holds a single PDU, or a few that are as small.
    #[inline]
    pub(crate) fn is_one_pdu(&self) -> bool {
        self.pieces <= 3 && self.arena_len <= ONE_PDU_HEADER_BYTES
    }

    /// The kernel took `bytes`, or they have gone another way; whether that was all.
    #[inline]
    pub fn advance(&mut self, bytes: u64) -> bool {
        assert!(bytes <= self.left_bytes, "sent more than there was");
        self.left_bytes -= bytes;
        if self.left_bytes == 0 {
            return true;
        }
        let mut bytes = bytes as usize;
        while bytes > 0 {
            let next = self.payloads.get_mut(self.next);
            let end = next.as_ref().map_or(self.arena_len, |next| next.header_end);
            let taken = bytes.min(end - self.headers_sent);
            self.headers_sent += taken;
            bytes -= taken;
            if let Some(BatchPayload { range, .. }) = next {
                let taken = range.len().min(bytes as u32);
                *range = range.slice(taken, range.len() - taken);
                bytes -= taken as usize;
                self.next += usize::from(range.is_empty());
            }
        }
        false
    }

    /// Moves at most `max` bytes of what is left to the end of `into`, for a
    /// driver without a kernel; whether that was all. They are read now, as a
    /// kernel reads them when it takes them.
    pub fn take_out(&mut self, max: usize, into: &mut Vec<u8>) -> bool {
        let before = into.len();
        for piece in self.pieces_left() {
            let left = max - (into.len() - before);
            match piece {
                BatchPiece::Header(bytes) => into.extend(&bytes[..bytes.len().min(left)]),
                BatchPiece::Payload(range) => {
                    let at = into.len();
                    let len = range.len().min(left as u32);
                    into.resize(at + len as usize, 0);
                    mem::copy_out_as_kernel(range.slice(0, len), &mut into[at..]);
                }
            }
        }
        self.advance((into.len() - before) as u64)
    }

    /// Empties it and lets go of what it held.
    #[inline]
    pub fn clear(&mut self) {
        self.arena_len = 0;
        self.payloads.clear();
        self.pieces = 0;
        self.headers_sent = 0;
        self.next = 0;
        self.left_bytes = 0;
        self.held.clear();
    }
}

/// Batches that a driver keeps for reuse, last in first out.
#[derive(Default)]
pub(crate) struct SpareBatches {
    #[allow(clippy::vec_box)] // handed out as they are
    all: Vec<Box<Batch>>,
    /// So many of the first were not taken since [`SpareBatches::trim`].
    unused: usize,
}

impl SpareBatches {
    /// An empty batch.
    #[inline]
    pub(crate) fn take(&mut self) -> Box<Batch> {
        let batch = self.all.pop();
        self.unused = self.unused.min(self.all.len());
        batch.unwrap_or_else(Batch::new)
    }

    /// Lets go of what a batch held.
    #[inline]
    pub(crate) fn put(&mut self, mut batch: Box<Batch>) {
        batch.clear();
        if self.all.len() < SPARE_BATCHES_MAX {
            self.all.push(batch);
        }
    }

    /// Frees those that were not taken since it was called last; how many.
    pub(crate) fn trim(&mut self) -> usize {
        let unused = self.unused;
        self.all.drain(..unused);
        self.unused = self.all.len();
        unused
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (bytes, pieces) = (self.left_bytes, self.pieces);
        write!(f, "Batch({bytes} bytes in {pieces} pieces)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mem::{Budget, Pool, Region, copy_in};

    /// The bytes that the message names.
    fn bytes_of(batch: &mut Batch) -> Vec<u8> {
        let mut bytes = Vec::new();
        if batch.is_empty() {
            return bytes;
        }
        batch.message();
        for piece in &batch.iovecs {
            // SAFETY: pieces lie in the arena or in a live region.
            bytes.extend_from_slice(unsafe {
                std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len)
            });
        }
        bytes
    }

    #[test]
    fn adjacent_headers_are_one_piece() {
        let region = Region::anonymous(4096).unwrap();
        copy_in(region.range(0, 4), b"data");
        let mut batch = Batch::new();
        batch.header(b"ab");
        batch.header(b"cd");
        batch.payload(region.range(0, 4));
        batch.header(b"ef");
        batch.header(b"gh");
        assert_eq!(batch.pieces(), 3);
        assert_eq!(bytes_of(&mut batch), b"abcddataefgh");
        assert_eq!(batch.len_bytes(), 12);
    }

    #[test]
    fn advance_leaves_the_rest_at_every_split() {
        let region = Region::anonymous(4096).unwrap();
        copy_in(region.range(0, 5), b"01234");
        for first in 1..14 {
            for second in 1..(14 - first) {
                let mut batch = Batch::new();
                batch.header(b"head");
                batch.payload(region.range(0, 5));
                batch.header(b"tails");
                let all = bytes_of(&mut batch);
                assert!(!batch.advance(first as u64));
                assert_eq!(bytes_of(&mut batch), all[first..]);
                assert!(!batch.advance(second as u64));
                assert_eq!(bytes_of(&mut batch), all[first + second..]);
                assert!(batch.advance((14 - first - second) as u64));
            }
        }
    }

    #[test]
    fn payload_stays_a_handle_and_what_was_sent_of_it_is_left_out() {
        let region = Region::anonymous(4096).unwrap();
        let mut batch = Batch::new();
        batch.header(b"head");
        batch.payload(region.range(0, 5));
        batch.payload(region.range(9, 1));
        batch.header(b"tail");
        assert!(!batch.advance(6));
        let mut left = Vec::new();
        left.extend(batch.pieces_left());
        let payload = |at, len| BatchPiece::Payload(region.range(at, len));
        assert_eq!(
            left,
            [payload(2, 3), payload(9, 1), BatchPiece::Header(b"tail")]
        );
    }

    #[test]
    fn bytes_are_taken_out_at_every_split() {
        let region = Region::anonymous(4096).unwrap();
        copy_in(region.range(0, 5), b"01234");
        for first in 1..14 {
            let mut batch = Batch::new();
            batch.header(b"head");
            batch.payload(region.range(0, 5));
            batch.header(b"tails");
            let mut out = b"before".to_vec();
            assert!(!batch.take_out(first, &mut out));
            assert!(batch.take_out(100, &mut out));
            assert_eq!(out, b"beforehead01234tails");
        }
    }

    #[test]
    fn a_batch_with_room_takes_a_whole_pdu() {
        let region = Region::anonymous(4096).unwrap();
        let mut batch = Batch::new();
        let mut pdus = 0;
        while batch.has_room() {
            batch.header(&[0; PDU_HEADER_BYTES - 4]);
            batch.payload(region.range(0, 1));
            batch.header(&[0; 4]);
            pdus += 1;
        }
        assert!(pdus >= 60);
        batch.clear();
        pdus = 0;
        while batch.has_room() {
            batch.header(&[0; 24]);
            batch.payload(region.range(0, 1));
            pdus += 1;
        }
        assert_eq!(pdus, (BATCH_PIECES_MAX - PDU_PIECES) / 2 + 1);
        batch.clear();
        while batch.has_room() {
            batch.payload(region.range(0, 4096));
        }
        assert_eq!(batch.len_bytes(), BATCH_BYTES_MAX);
    }

    #[test]
    fn payload_counts_by_the_size_of_its_pieces() {
        let region = Region::anonymous(1 << 20).unwrap();
        let mut batch = Batch::new();
        batch.header(&[0; 512]);
        assert!(!batch.has_pieces_of(0), "no payload");
        batch.payload(region.range(0, 300));
        assert!(batch.has_pieces_of(300) && !batch.has_pieces_of(301));
        assert_eq!(batch.only_payload(), Some(region.range(0, 300)));
        batch.header(&[0; 100]);
        batch.payload(region.range(1000, 100));
        assert!(batch.has_pieces_of(200) && !batch.has_pieces_of(201));
        assert_eq!(batch.only_payload(), None);
        batch.clear();
        batch.header(b"alone");
        assert!(!batch.has_pieces_of(0) && batch.only_payload().is_none());
    }

    #[test]
    fn batches_that_were_not_taken_for_an_interval_are_freed() {
        let mut spare = SpareBatches::default();
        let taken: Vec<_> = (0..70).map(|_| spare.take()).collect();
        taken.into_iter().for_each(|batch| spare.put(batch));
        assert_eq!(spare.all.len(), SPARE_BATCHES_MAX);
        assert_eq!(spare.trim(), 0, "they were taken just now");
        let taken = [spare.take(), spare.take()];
        taken.into_iter().for_each(|batch| spare.put(batch));
        assert_eq!((spare.trim(), spare.all.len()), (SPARE_BATCHES_MAX - 2, 2));
        assert_eq!((spare.trim(), spare.trim(), spare.all.len()), (2, 0, 0));
    }

    #[test]
    fn clear_gives_held_buffers_back() {
        let pool = Pool::new(Budget::new(2 << 20)).unwrap();
        let mut batch = Batch::new();
        batch.hold(pool.get(2 << 20).unwrap());
        assert!(pool.get(2 << 20).is_none());
        batch.clear();
        assert!(pool.get(2 << 20).is_some());
    }

    #[test]
    fn the_largest_loan_fits_where_there_is_room() {
        let region = Region::anonymous(1 << 20).unwrap();
        let mut batch = Batch::new();
        while batch.has_room() {
            batch.header(&[0; 24]);
            for piece in 0..mem::LOAN_PIECES_MAX as u64 {
                batch.payload(region.range(2 * piece, 1));
            }
            batch.header(&[0; 4]);
        }
        assert!(batch.pieces() > BATCH_PIECES_MAX - PDU_PIECES);
    }
}
